// What the page shows at present, which is the address's fragment, too.

/** @type {(id: string) => any} An element of page.html. */
const find = (id) => document.getElementById(id);
/** @type {Data} */
const data = JSON.parse(find("data").textContent);
const picture = new Image();

// What can be the first or the second (`a`, `b`): live systems, then the groups of implementations that cannot be computed here.
/** @type {Choice[]} */
const choices = [];
const start = JSON.stringify({
  boxes: data.boxes.map(({ numbers }) => numbers), box: 0, bins: data.bins, scale: data.scale,
  sampling: data.sampling, a: 0, b: 0, bin: data.bin || null,
});
/** @type {State} */
let state = JSON.parse(start);
/** @type {Plans} Null: values are only those that the page holds. */
let plans = null;
/** @type {Map<number, Float32Array>} What the present state's systems pool. */
let found = new Map();
const MANY = 4096; // bins, beyond which not everything follows a drag at once
const MOST_SAMPLES = 20000; // that are drawn
const MOST_BINS = 400;

function choiceOf(name) {
  return choices.findIndex((choice) => choice.name === name);
}

function boxNow() {
  return state.boxes[state.box];
}

function isAsMeasured() {
  const first = JSON.parse(start);
  return ["bins", "scale", "sampling"].every((key) => String(state[key]) === String(first[key])) &&
    String(boxNow()) === String(first.boxes[state.box]);
}

function fragment() {
  const first = JSON.parse(start);
  /** @type {Record<string, any>} */
  const parts = { first: choices[state.a].name, second: choices[state.b].name, box: state.box + 1 };
  if (String(state.bins) !== String(first.bins)) parts.bins = state.bins.join("x");
  if (state.scale !== first.scale) parts.scale = state.scale;
  if (state.sampling !== first.sampling) parts.sampling = state.sampling;
  if (state.bin) parts.bin = state.bin.join(",");
  if (JSON.stringify(state.boxes) !== JSON.stringify(first.boxes)) {
    parts.boxes = state.boxes.map((box) => box.map(exact).join(",")).join(";");
  }
  return new URLSearchParams(parts).toString().replaceAll("%2C", ",").replaceAll("%3B", ";");
}

function readFragment() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const numbers = (text, lengths) => {
    const list = (text || "").split(/[x,]/).map(Number);
    return lengths.includes(list.length) && list.every(Number.isFinite) ? list : null;
  };
  for (const [key, name] of [["a", "first"], ["b", "second"]]) {
    const choice = choiceOf(parts.get(name));
    if (choice >= 0) state[key] = choice;
  }
  const bins = numbers(parts.get("bins"), [2]);
  if (bins) state.bins = bins.map((count) => Math.min(Math.max(Math.round(count), 1), MOST_BINS));
  const scale = Number(parts.get("scale"));
  if (plans && scale > 0 && isScale(scale)) state.scale = scale;
  const sampling = Number(parts.get("sampling"));
  if (parts.has("sampling") && sampling >= 0 && sampling <= 64) state.sampling = Math.round(sampling);
  const boxes = (parts.get("boxes") || "").split(";").map((text) => numbers(text, [4, 5]));
  if (plans && boxes.every(Boolean)) state.boxes = boxes.slice(0, 100).map((box) => box.map(f32));
  const box = Number(parts.get("box"));
  if (box >= 1 && box <= state.boxes.length) state.box = Math.round(box) - 1;
  const bin = numbers(parts.get("bin"), [2]);
  if (bin) state.bin = bin;
  heldBin();
}

function heldBin() {
  if (!state.bin) return;
  const held = (i) => Math.min(Math.max(Math.round(state.bin[i]), 0), state.bins[i] - 1);
  state.bin = [held(0), held(1)];
}

function isScale(scale) {
  const cells = data.values === "picture" ? data.size[0] * data.size[1] * scale * scale : 0;
  return scale > 1e-4 && scale < 1e4 && cells <= 4e6;
}

let waiting = 0, later = 0, written = 0;

// Draws in the next frame, whatever changes until then.
function schedule() {
  if (!waiting) waiting = requestAnimationFrame(draw);
}

function change(what) {
  Object.assign(state, what);
  heldBin();
  if (Object.keys(what).some((key) => key !== "bin" && key !== "a" && key !== "b")) found = new Map();
  schedule();
}
