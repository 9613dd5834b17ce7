// Everything that the page says. Every text goes through textContent or a canvas, never through
// HTML: file names and systems may be anybody's.

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function brief(value, digits = 4) {
  if (value === null || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "-infinity" : "infinity";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(Math.min(digits - 1, 2));
  return String(Number(value.toPrecision(digits)));
}

// The shortest number that is the same in float32.
function exact(value) {
  for (let digits = 1; digits < 10; digits++) {
    const text = String(Number(value.toPrecision(digits)));
    if (f32(Number(text)) === f32(value)) return text;
  }
  return String(value);
}

function describeBin(weights) {
  if (!state.bin) {
    find("bin").textContent = "Point at a bin, or choose one with the arrow keys, for its values and the weights of its cells.";
    return;
  }
  const [i, j] = state.bin, [rows, columns] = state.bins;
  const show = (choice) => {
    const values = pooled(choice), bins = rows * columns;
    if (!values) return "not known";
    const texts = [];
    for (let k = i * columns + j; k < values.length; k += bins) texts.push(brief(values[k]));
    return texts.join(", ");
  };
  let text = `Bin (${i}, ${j}): first ${show(state.a)}; second ${show(state.b)}.`;
  if (weights) {
    const width = mapSize()[1];
    const listed = [...weights].sort((one, other) => other[1] - one[1]);
    const cells = listed.slice(0, 12).map(([cell, weight]) => `(${Math.floor(cell / width)}, ${cell % width}) ${brief(weight, 3)}`);
    const more = listed.length > 12 ? `, and ${listed.length - 12} more` : "";
    const what = choices[state.a].system.maximum ? "greatest weights of cells in samples of the first" : "weights of cells in the first";
    text += ` ${weights.size ? `The ${what} (row, column): ${cells.join("; ")}${more}.` : "The first reads no cell."}`;
  }
  find("bin").textContent = text;
}

function describe(between) {
  const box = boxNow();
  const number = data.boxes[state.box] ? data.boxes[state.box].number : state.box + 1;
  find("box").textContent = `Box ${number} (${state.box + 1} of ${state.boxes.length})`;
  const numbers = cornersOf(box).map((x) => brief(x, 6)).join(", ");
  const turned = box.length === 5 ? `, turned by ${brief((box[4] * 180) / Math.PI)}°` : "";
  find("about").textContent = `Box ${number}: ${numbers}${turned}; ${state.bins[0]} × ${state.bins[1]} bins, scale ${brief(state.scale)}, ${state.sampling ? `sampling ratio ${state.sampling}` : "sampling by the box's size"}. ${data.about}`;
  const why = find("why");
  why.replaceChildren();
  if (state.a === state.b) {
    why.append(element("p", "The two are the same system: choose another for one of them."));
  } else if (!between) {
    why.append(element("p", "One of the two was measured for the first boxes and options only."));
  } else if (!between.most) {
    why.append(element("p", "The two agree on this box, roundings apart."));
  } else {
    const [, columns] = state.bins, bins = state.bins[0] * columns;
    const bin = between.where % bins;
    const at = `bin (${Math.floor(bin / columns)}, ${bin % columns})`;
    const pair = `${brief(pooled(state.a)[between.where])}, not ${brief(pooled(state.b)[between.where])}`;
    why.append(element("p", `On this box the first differs most from the second in ${at}: ${pair}.`));
    addReasons(why);
  }
}

// Why the first differs from the reference, where that was found out for this box.
function addReasons(why) {
  const group = data.groups.find((one) => one.choice === state.a);
  const home = data.groups.find((one) => one.reference);
  if (!isAsMeasured() || !group || !home || home.choice !== state.b || !group.reasons) return;
  const { where, reasons, remark } = group.reasons[state.box] || {};
  if (where && reasons.length) {
    why.append(element("p", `In bin (${where[0]}, ${where[1]}) the first:`));
    const list = element("ul");
    for (const [words, added] of reasons) {
      const text = added === null ? "NaN" : `${added >= 0 ? "+" : ""}${Number(added.toPrecision(2))}`;
      list.append(element("li", `${words} (${text})`));
    }
    why.append(list);
  }
  if (remark) why.append(element("p", remark));
}

function callText() {
  const { system, name } = choices[state.a];
  if (!system) return `# ${name} is not one of roipool's functions`;
  const { rows, columns, channels } = plans.map;
  const numbers = { rows: state.bins[0], columns: state.bins[1], scale: state.scale, sampling: state.sampling };
  cornersOf(boxNow()).forEach((x, i) => (numbers[["x1", "y1", "x2", "y2"][i]] = exact(x)));
  plans.boxFor(system, boxNow(), state).forEach((x, i) => (numbers[`b${i}`] = exact(x)));
  const call = system.call.replace(/\{(\w+)\}/g, (_, key) => numbers[key]);
  return `import numpy as np\nimport roipool\n\n# features: your map, here float32 of shape (1, ${channels}, ${rows}, ${columns})\npooled = ${call}\n`;
}
