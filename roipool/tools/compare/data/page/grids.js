// Pooled values as pictures: those of the two, their difference, and a card for each group.

function shades(values, k, bins, into, at) {
  if (data.coloured) {
    for (let c = 0; c < 3; c++) into[at + c] = 255 * Math.min(Math.max(values[k + c * bins], 0), 1);
    return;
  }
  const [low, high] = data.range;
  const share = Math.min(Math.max((values[k] - low) / (high - low || 1), 0), 1);
  into.set(data.colours[Math.round(share * (data.colours.length - 1)) || 0], at);
}

function heat(distance, farthest, into, at) {
  if (distance === 0) into.set([255, 255, 255], at);
  else if (distance === Infinity) into.set([0, 0, 0], at);
  else into.set(data.heat[Math.round(Math.sqrt(Math.min(distance / farthest, 1)) * (data.heat.length - 1))], at);
}

// One pixel for each bin; `paint` sets its colour.
function drawGrid(canvas, paint) {
  const [rows, columns] = state.bins;
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  if (paint) {
    for (let k = 0; k < rows * columns; k++) {
      paint(k, pixels.data, 4 * k);
      pixels.data[4 * k + 3] = 255;
    }
  }
  context.putImageData(pixels, 0, 0);
}

function paintValues(choice) {
  const values = pooled(choice), bins = state.bins[0] * state.bins[1];
  return values && ((k, into, at) => shades(values, k, bins, into, at));
}

// A larger grid, whose bins can be chosen; the chosen one has a frame.
function drawLarge(id, paint) {
  const canvas = find(id), [rows, columns] = state.bins;
  drawGrid(scratch, paint);
  const { context, width, height } = prepared(canvas, 1);
  context.drawImage(scratch, 0, 0, width, height);
  if (!state.bin) return;
  const [wide, high] = [width / columns, height / rows];
  for (const [style, line] of [["black", 4], ["#ffd400", 2]]) {
    context.strokeStyle = style;
    context.lineWidth = line;
    context.strokeRect(state.bin[1] * wide, state.bin[0] * high, Math.max(wide, 3), Math.max(high, 3));
  }
}

const scratch = document.createElement("canvas");

function drawGrids() {
  const between = differences(state.a, state.b);
  drawLarge("grid-a", paintValues(state.a));
  drawLarge("grid-b", paintValues(state.b));
  drawLarge("grid-apart", between && ((k, into, at) => heat(between.each[k], between.most || 1, into, at)));
  find("name-a").textContent = choices[state.a].name;
  find("name-b").textContent = choices[state.b].name;
  let most = "not known for this box";
  if (between) most = between.most ? `at most ${brief(between.most)}` : "no difference but roundings";
  find("most").textContent = most;
  return between;
}

const cards = [];

function makeCards() {
  data.groups.forEach((group) => {
    const card = element("div", undefined, "group");
    card.tabIndex = 0;
    card.setAttribute("role", "option");
    const shown = element("canvas"), far = element("canvas");
    shown.setAttribute("aria-hidden", "true");
    far.setAttribute("aria-hidden", "true");
    const names = element("div", undefined, "names");
    for (const name of group.members) names.append(element("div", name));
    const said = element("div", "", "far");
    names.append(said);
    card.append(shown, far, names);
    const take = () => change({ a: group.choice });
    card.addEventListener("click", take);
    card.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      take();
    });
    find("groups").append(card);
    cards.push({ group, card, shown, far, said });
  });
}

function drawCards() {
  const all = cards.map(({ group }) => differences(group.choice, state.b));
  const some = all.filter((one) => one && one.most > 0 && one.most < Infinity).map((one) => one.most);
  some.sort((one, other) => one - other);
  // One far system must not fade all others.
  const farthest = some.length ? Math.min(some[some.length - 1], 2 * some[some.length >> 1]) : 1;
  cards.forEach(({ group, card, shown, far, said }, g) => {
    const between = all[g];
    drawGrid(shown, paintValues(group.choice));
    drawGrid(far, between && ((k, into, at) => heat(between.each[k], farthest, into, at)));
    let text = "measured for the first boxes only";
    if (between) text = between.most ? `differs from the second by ${brief(between.most)}` : "as the second";
    if (group.choice === state.b) text = "this is the second";
    said.textContent = text;
    card.setAttribute("aria-selected", String(group.choice === state.a));
    card.toggleAttribute("data-b", group.choice === state.b);
  });
}
