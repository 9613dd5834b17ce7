// Fields and buttons.

function setValue(id, value) {
  const input = find(id);
  if (document.activeElement !== input) input.value = value;
}

function variantOf(choice, aligned, maximum) {
  const { system } = choices[choice];
  if (!system) return -1;
  if (system.aligned === aligned && system.maximum === maximum) return choice;
  return choices.findIndex((one) => one.system && one.system.family === system.family &&
    one.system.aligned === aligned && one.system.maximum === maximum);
}

function showControls() {
  for (const key of ["a", "b"]) {
    find(key).value = state[key];
    const { system } = choices[state[key]];
    for (const option of ["aligned", "maximum"]) {
      const input = find(`${key}-${option}`);
      input.checked = Boolean(system && system[option]);
      const other = system ? { aligned: system.aligned, maximum: system.maximum, [option]: !system[option] } : {};
      input.disabled = !system || variantOf(state[key], other.aligned, other.maximum) < 0;
    }
  }
  setValue("rows", state.bins[0]);
  setValue("columns", state.bins[1]);
  setValue("scale", brief(state.scale, 9));
  setValue("sampling", state.sampling);
  cornersOf(boxNow()).forEach((x, i) => setValue(["x1", "y1", "x2", "y2"][i], exact(x)));
  setValue("angle", brief(boxNow().length === 5 ? (boxNow()[4] * 180) / Math.PI : 0));
  if (!find("call").hidden) find("call").textContent = callText();
}

function setBox(box) {
  const boxes = state.boxes.slice();
  boxes[state.box] = box.map(f32);
  change({ boxes });
}

// "1/16" or "0.0625".
function numberIn(text) {
  const [above, below] = text.split("/").map(Number);
  return below === undefined ? above : above / below;
}

function setScale(scale) {
  if (!(scale > 0) || !isScale(scale)) return;
  // A map that is no picture stays as it is: its boxes keep their places in it.
  const factor = data.values === "picture" ? 1 : state.scale / scale;
  const boxes = state.boxes.map((box) => box.map((x, i) => (i < 4 ? f32(x * factor) : x)));
  change({ scale, boxes });
}

function listen() {
  find("previous-box").addEventListener("click", () => change({ box: (state.box + state.boxes.length - 1) % state.boxes.length }));
  find("next-box").addEventListener("click", () => change({ box: (state.box + 1) % state.boxes.length }));
  for (const key of ["a", "b"]) {
    find(key).addEventListener("change", () => change({ [key]: Number(find(key).value) }));
    for (const option of ["aligned", "maximum"]) {
      find(`${key}-${option}`).addEventListener("change", () => {
        const wanted = variantOf(state[key], find(`${key}-aligned`).checked, find(`${key}-maximum`).checked);
        if (wanted >= 0) change({ [key]: wanted });
      });
    }
  }
  const count = (id) => Math.min(Math.max(Math.round(Number(find(id).value)) || 1, 1), MOST_BINS);
  for (const id of ["rows", "columns"]) find(id).addEventListener("change", () => change({ bins: [count("rows"), count("columns")] }));
  find("scale").addEventListener("change", () => setScale(numberIn(find("scale").value)));
  find("sampling").addEventListener("change", () => change({ sampling: Math.min(Math.max(Math.round(Number(find("sampling").value)) || 0, 0), 64) }));
  for (const id of ["x1", "y1", "x2", "y2", "angle"]) {
    find(id).addEventListener("change", () => {
      const numbers = ["x1", "y1", "x2", "y2"].map((name) => Number(find(name).value));
      const angle = (Number(find("angle").value) * Math.PI) / 180;
      if (![...numbers, angle].every(Number.isFinite)) return;
      setBox(angle || boxNow().length === 5 ? turnedBy(numbers, angle) : numbers);
    });
  }
  listenToPicture();
  listenToBins("zoom", binInZoom);
  for (const id of ["grid-a", "grid-b", "grid-apart"]) listenToBins(id, binInGrid);
  find("copy").addEventListener("click", copyCall);
  find("reset").addEventListener("click", () => {
    const { a, b } = state;
    found = new Map();
    change({ ...JSON.parse(start), a, b });
  });
  find("theme").addEventListener("click", () => {
    const dark = colour("--ground") === "#131316";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  window.addEventListener("resize", schedule);
  window.addEventListener("hashchange", () => {
    found = new Map();
    readFragment();
    schedule();
  });
}

// The call is shown, too: some browsers let no file write to the clipboard.
async function copyCall() {
  const text = callText();
  find("call").textContent = text;
  find("call").hidden = false;
  try {
    await navigator.clipboard.writeText(text);
    find("said").textContent = "Copied.";
  } catch {
    const range = document.createRange();
    range.selectNodeContents(find("call"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    find("said").textContent = "Selected below: copy it with your keyboard.";
  }
}
