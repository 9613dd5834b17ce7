// The live page: what `roipool compare` found, or a playground. Every text goes through textContent
// or a canvas, never through HTML: file names and systems may be anybody's.
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const picture = new Image();

// What can be the first or the second (`a`, `b`): live systems, then the groups of implementations that cannot be computed here.
const choices = [];
const start = JSON.stringify({
  boxes: data.boxes.map(({ numbers }) => numbers), box: 0, bins: data.bins, scale: data.scale,
  sampling: data.sampling, a: 0, b: 0, bin: data.bin || null,
});
let state = JSON.parse(start);
let plans = null; // null: values are only those that the page holds
let found = new Map(); // what the present state's systems pool
const MANY = 4096; // bins, beyond which not everything follows a drag at once
const MOST_SAMPLES = 20000; // that are drawn
const MOST_BINS = 400;

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function floatsOf(text) {
  return new Float32Array(bytesOf(text).buffer);
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// ---- The map

let mapScale = null;

// One axis of Pillow's bilinear filter, which is as wide as what it shrinks.
function resizedLines(lines, length, size) {
  const ratio = length / size, width = Math.max(ratio, 1);
  const parts = Array.from({ length: size }, (_, i) => {
    const centre = (i + 0.5) * ratio;
    const first = Math.max(Math.trunc(centre - width + 0.5), 0);
    const last = Math.min(Math.trunc(centre + width + 0.5), length);
    const weights = [];
    for (let k = first; k < last; k++) weights.push(Math.max(1 - Math.abs((k - centre + 0.5) / width), 0));
    const sum = weights.reduce((one, other) => one + other, 0);
    return [first, weights.map((weight) => weight / sum)];
  });
  return lines.map((line) =>
    Float32Array.from(parts, ([first, weights]) => {
      let sum = 0;
      for (let k = 0; k < weights.length; k++) sum += weights[k] * line[first + k];
      return sum;
    }),
  );
}

function transposed(lines, length) {
  return Array.from({ length }, (_, i) => Float32Array.from(lines, (line) => line[i]));
}

function pixelsOfPicture() {
  const canvas = document.createElement("canvas");
  const [width, height] = [picture.naturalWidth, picture.naturalHeight];
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0);
  const { data: pixels } = context.getImageData(0, 0, width, height);
  return [0, 1, 2].map((channel) =>
    Array.from({ length: height }, (_, y) =>
      Float32Array.from({ length: width }, (_, x) => f32(pixels[4 * (y * width + x) + channel] / 255)),
    ),
  );
}

let pixels = null;

// Gives the map to the engine: the picture at the present scale, or the page's own.
function setMap() {
  if (!plans || mapScale === state.scale) return;
  const [rows, columns] = mapSize();
  if (data.values !== "picture") {
    if (mapScale === null) plans.setMap(data.coloured ? 3 : 1, rows, columns, floatsOf(data.values));
  } else {
    pixels = pixels || pixelsOfPicture();
    const values = new Float32Array(3 * rows * columns);
    pixels.forEach((lines, channel) => {
      const whole = rows === lines.length && columns === lines[0].length;
      const across = whole ? lines : resizedLines(lines, lines[0].length, columns);
      const all = whole ? across : transposed(resizedLines(transposed(across, columns), lines.length, rows), rows);
      all.forEach((line, y) => values.set(line, (channel * rows + y) * columns));
    });
    plans.setMap(3, rows, columns, values);
  }
  mapScale = state.scale;
}

function mapSize() {
  if (data.values !== "picture") return data.map;
  return [data.size[1], data.size[0]].map((length) => Math.max(halfToEven(length * state.scale), 1));
}

// The pixels that the map covers; of a map that is no picture they depend on the scale.
function imageSize() {
  if (data.values === "picture") return data.size;
  return data.size.map((length) => (length * data.scale) / state.scale);
}

// ---- What is pooled

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

// The pooled values of a choice, channel after channel; null where they are not known.
function pooled(choice) {
  if (!found.has(choice)) found.set(choice, computed(choices[choice]));
  return found.get(choice);
}

function computed({ system, values }) {
  if (values) return isAsMeasured() ? floatsOf(values[state.box]) : null;
  if (!plans || !system) return null;
  try {
    plans.plan(system, boxNow(), state);
    return plans.pool();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return null;
  }
}

// How far two values are apart, roundings apart: 0 for two NaN, infinite for one.
function apart(one, other) {
  if (one === other || (Number.isNaN(one) && Number.isNaN(other))) return 0;
  const distance = Math.abs(one - other);
  if (Number.isNaN(distance)) return Infinity;
  return distance <= data.tolerance[0] + data.tolerance[1] * Math.abs(other) ? 0 : distance;
}

// The greatest difference of each bin's channels, and of all bins with its bin.
function differences(choice, against) {
  const one = pooled(choice), other = pooled(against);
  if (!one || !other) return null;
  const bins = state.bins[0] * state.bins[1];
  const each = new Float32Array(bins);
  let most = 0, where = 0;
  for (let k = 0; k < one.length; k++) {
    const distance = apart(one[k], other[k]);
    if (distance > each[k % bins]) each[k % bins] = distance;
    if (distance > most) [most, where] = [distance, k];
  }
  return { each, most, where };
}

// ---- Drawing

// A canvas as sharp as the screen, whose units are CSS pixels.
function prepared(canvas, aspect) {
  const width = canvas.clientWidth || 300;
  const height = Math.min(width * aspect, 0.62 * window.innerHeight + 80);
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.style.height = height + "px";
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  return { context, width, height };
}

// From pixels of the picture to a canvas that shows [x1, y1, x2, y2] of it, undistorted.
function view(width, height, [x1, y1, x2, y2]) {
  const scale = Math.min(width / (x2 - x1), height / (y2 - y1));
  const left = (width - scale * (x2 - x1)) / 2 - scale * x1;
  const top = (height - scale * (y2 - y1)) / 2 - scale * y1;
  return {
    scale,
    x: (x) => left + scale * x,
    y: (y) => top + scale * y,
    back: (px, py) => [(px - left) / scale, (py - top) / scale],
  };
}

function drawPicture(context, at) {
  if (!picture.naturalWidth) return;
  const [width, height] = imageSize();
  context.drawImage(picture, at.x(0), at.y(0), width * at.scale, height * at.scale);
}

function outline(context, at, corners) {
  context.beginPath();
  for (const [x, y] of corners) context.lineTo(at.x(x), at.y(y));
  context.closePath();
}

// A point of a box: the shares of its width and height from its first corner. y points down.
function within(box, across, down) {
  if (box.length === 4) return [box[0] + across * (box[2] - box[0]), box[1] + down * (box[3] - box[1])];
  const [cx, cy, width, height, angle] = box;
  const [x, y] = [(across - 0.5) * width, (down - 0.5) * height];
  const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
  return [cx + x * cosine + y * sine, cy - x * sine + y * cosine];
}

function outlineOf(box) {
  return [[0, 0], [1, 0], [1, 1], [0, 1]].map(([across, down]) => within(box, across, down));
}

const CORNERS = [[0, 0], [0.5, 0], [1, 0], [1, 0.5], [1, 1], [0.5, 1], [0, 1], [0, 0.5]];

let pictureView = null;
let pictureWindow = null; // stays while a box is dragged

// Where a box is turned: above it, or within it where that is beyond the canvas.
function knobOf(box) {
  const [x, y] = within(box, 0.5, 0), [mx, my] = within(box, 0.5, 0.5);
  const length = Math.hypot(x - mx, y - my);
  const [dx, dy] = length ? [(x - mx) / length, (y - my) / length] : [0, -1];
  const out = 26 / pictureView.scale;
  const [x1, y1, x2, y2] = pictureWindow;
  const above = [x + dx * out, y + dy * out];
  if (above[0] > x1 && above[0] < x2 && above[1] > y1 && above[1] < y2) return above;
  const down = Math.min(out, 0.6 * length);
  return [x - dx * down, y - dy * down];
}

function drawWhole() {
  const [width, height] = imageSize();
  const room = 0.08 * Math.max(width, height);
  pictureWindow = [-room, -room, width + room, height + room];
  const canvas = prepared(find("picture"), (height + 2 * room) / (width + 2 * room));
  const { context } = canvas;
  pictureView = view(canvas.width, canvas.height, pictureWindow);
  drawPicture(context, pictureView);
  const order = state.boxes.map((_, k) => k).filter((k) => k !== state.box);
  context.lineJoin = "round";
  for (const k of [...order, state.box]) {
    const chosen = k === state.box;
    outline(context, pictureView, outlineOf(state.boxes[k]));
    context.strokeStyle = "white";
    context.lineWidth = chosen ? 5 : 3;
    context.stroke();
    context.strokeStyle = chosen ? "#e0007a" : "#0a6ebd";
    context.lineWidth = chosen ? 3 : 1.5;
    context.stroke();
    const [x, y] = within(state.boxes[k], 0, 0);
    const label = String(data.boxes[k] ? data.boxes[k].number : k + 1);
    context.font = "bold 13px system-ui, sans-serif";
    const px = Math.min(Math.max(pictureView.x(x), 12), canvas.width - 12);
    const py = Math.min(Math.max(pictureView.y(y) - 14, 12), canvas.height - 12);
    const wide = context.measureText(label).width + 8;
    context.fillStyle = chosen ? "#e0007a" : "#0a6ebd";
    context.fillRect(px - wide / 2, py - 9, wide, 18);
    context.fillStyle = "white";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(label, px, py + 1);
  }
  if (plans) drawHandles(context);
}

function drawHandles(context) {
  const box = boxNow();
  const knob = knobOf(box), top = within(box, 0.5, 0);
  context.beginPath();
  context.moveTo(pictureView.x(top[0]), pictureView.y(top[1]));
  context.lineTo(pictureView.x(knob[0]), pictureView.y(knob[1]));
  context.strokeStyle = "#e0007a";
  context.lineWidth = 2;
  context.stroke();
  for (const [x, y] of [...CORNERS.map(([across, down]) => within(box, across, down)), knob]) {
    context.beginPath();
    context.arc(pictureView.x(x), pictureView.y(y), 5, 0, 7);
    context.fillStyle = "white";
    context.fill();
    context.stroke();
  }
}

// Where the samples of the first or the second lie: for each bin a list of x and y in pixels; and how many.
function samplesOf(choice) {
  const { system } = choices[choice];
  if (!plans || !system) return null;
  const [rows, columns] = state.bins;
  const pixel = (position) => (position + 0.5) / state.scale;
  if (system.boxes === "region") {
    plans.plan(system, boxNow(), state);
    const bins = new Map();
    for (const [bin, y, x] of plans.placedSamples()) {
      if (!bins.has(bin)) bins.set(bin, []);
      bins.get(bin).push([pixel(x), pixel(y)]);
    }
    let count = 0;
    for (const list of bins.values()) count += list.length;
    return { count, kind: "points", of: (i, j) => bins.get(i * columns + j) || [] };
  }
  plans.plan(system, boxNow(), state, true);
  const along = (axis, count) =>
    Array.from({ length: count }, (_, bin) => plans.samples(axis, bin).listed.map(({ position }) => pixel(position)));
  const down = along(0, rows), across = along(1, columns);
  const sum = (lists) => lists.reduce((total, list) => total + list.length, 0);
  return {
    count: sum(down) * sum(across),
    kind: system.definition.includes("roi_pool") || system.definition.includes("average") ? "cells" : "grid",
    down, across,
    of: (i, j) => down[i].flatMap((y) => across[j].map((x) => [x, y])),
  };
}

let zoomView = null;

function extremes(lists, pair) {
  for (const list of lists) {
    for (const value of list) {
      if (value < pair[0]) pair[0] = value;
      if (value > pair[1]) pair[1] = value;
    }
  }
}

// What is enlarged: the box, and every sample of the system, with some room.
function zoomWindow(box, samples) {
  const x = [Infinity, -Infinity], y = [Infinity, -Infinity];
  const corners = outlineOf(box);
  extremes([corners.map((corner) => corner[0])], x);
  extremes([corners.map((corner) => corner[1])], y);
  const around = [x[1] - x[0], y[1] - y[0]];
  if (samples && samples.down) {
    extremes(samples.across, x);
    extremes(samples.down, y);
  }
  const cell = 1 / state.scale;
  const room = Math.max(...around, 2 * cell) * 0.1 + 0.6 * cell;
  return [x[0] - room, y[0] - room, x[1] + room, y[1] + room];
}

function drawZoom() {
  const box = boxNow();
  const samples = samplesOf(state.a);
  const shown = zoomWindow(box, samples);
  const wholeAspect = pictureWindow
    ? (pictureWindow[3] - pictureWindow[1]) / (pictureWindow[2] - pictureWindow[0]) : 1;
  const canvas = prepared(find("zoom"), wholeAspect);
  const { context } = canvas;
  zoomView = view(canvas.width, canvas.height, shown);
  drawPicture(context, zoomView);
  drawCells(context, canvas);
  const weights = drawWeights(context);
  drawBins(context, box);
  find("samples").textContent = samples ? drawSamples(context, samples) : "Its samples are not known here.";
  if (state.bin && state.a !== state.b) drawOthers(context);
  return weights;
}

// The borders of map cells, where they are not too fine.
function drawCells(context, canvas) {
  const step = zoomView.scale / state.scale;
  if (step < 6) return;
  const [rows, columns] = mapSize();
  const [x1, y1] = zoomView.back(0, 0), [x2, y2] = zoomView.back(canvas.width, canvas.height);
  const line = (first, last, count, draw) => {
    const end = Math.min(Math.ceil(last * state.scale), count);
    for (let k = Math.max(Math.floor(first * state.scale), 0); k <= end; k++) draw(k / state.scale);
  };
  context.strokeStyle = "rgba(255, 255, 255, 0.28)";
  context.lineWidth = 1;
  context.beginPath();
  line(x1, x2, columns, (x) => {
    context.moveTo(zoomView.x(x), zoomView.y(0));
    context.lineTo(zoomView.x(x), zoomView.y(rows / state.scale));
  });
  line(y1, y2, rows, (y) => {
    context.moveTo(zoomView.x(0), zoomView.y(y));
    context.lineTo(zoomView.x(columns / state.scale), zoomView.y(y));
  });
  context.stroke();
}

// The weights of cells in the chosen bin of the first, as text where there is room.
function drawWeights(context) {
  const { system } = choices[state.a];
  if (!state.bin || !plans || !system) return null;
  plans.plan(system, boxNow(), state);
  const weights = plans.weights(...state.bin);
  let most = 0;
  for (const weight of weights.values()) most = Math.max(most, Math.abs(weight));
  const size = zoomView.scale / state.scale;
  const columns = mapSize()[1];
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `${Math.min(size / 3.4, 14)}px system-ui, sans-serif`;
  for (const [cell, weight] of weights) {
    const [x, y] = [zoomView.x((cell % columns) / state.scale), zoomView.y(Math.floor(cell / columns) / state.scale)];
    context.fillStyle = `rgba(255, 212, 0, ${0.15 + 0.6 * Math.abs(weight) / (most || 1)})`;
    context.fillRect(x, y, size, size);
    if (size < 26) continue;
    context.fillStyle = "black";
    context.fillText(brief(weight, 2), x + size / 2, y + size / 2 + (size > 40 ? size / 4 : 0));
  }
  return weights;
}

function drawBins(context, box) {
  const [rows, columns] = state.bins;
  const line = (from, to) => {
    context.moveTo(zoomView.x(from[0]), zoomView.y(from[1]));
    context.lineTo(zoomView.x(to[0]), zoomView.y(to[1]));
  };
  context.beginPath();
  if (Math.max(rows, columns) <= 40) {
    for (let i = 1; i < rows; i++) line(within(box, 0, i / rows), within(box, 1, i / rows));
    for (let j = 1; j < columns; j++) line(within(box, j / columns, 0), within(box, j / columns, 1));
  }
  context.strokeStyle = "rgba(255, 255, 255, 0.9)";
  context.lineWidth = 1.2;
  context.stroke();
  outline(context, zoomView, outlineOf(box));
  context.strokeStyle = "#e0007a";
  context.lineWidth = 2.5;
  context.stroke();
  if (state.bin) {
    const [i, j] = state.bin;
    const corners = [[j, i], [j + 1, i], [j + 1, i + 1], [j, i + 1]];
    outline(context, zoomView, corners.map(([x, y]) => within(box, x / columns, y / rows)));
    context.strokeStyle = "#ffd400";
    context.lineWidth = 3;
    context.stroke();
  }
}

// Points, coloured by the bin that reads them, so that neighbours can be told apart.
function drawSamples(context, samples) {
  const [rows, columns] = state.bins;
  const area = zoomView.scale ** 2 * areaOf(boxNow());
  const size = Math.min(Math.max(Math.sqrt(area / Math.max(samples.count, 1)) * 0.3, 0.7), 4.5);
  const many = samples.count > MOST_SAMPLES || rows * columns > MOST_SAMPLES;
  context.globalAlpha = size < 1.5 ? 0.5 : 1; // many small ones must not hide the picture
  const drawBin = (i, j) => {
    const here = state.bin && state.bin[0] === i && state.bin[1] === j;
    context.fillStyle = here ? "#ffd400" : (i + j) % 2 ? "#00c2ff" : "#ff8a00";
    context.beginPath();
    for (const [x, y] of samples.of(i, j)) {
      const [px, py] = [zoomView.x(x), zoomView.y(y)];
      if (samples.kind === "cells" || size < 1.5) context.rect(px - size, py - size, 2 * size, 2 * size);
      else {
        context.moveTo(px + size, py);
        context.arc(px, py, size, 0, 7);
      }
    }
    context.fill();
    if (size > 2) {
      context.strokeStyle = "rgba(0, 0, 0, 0.75)";
      context.lineWidth = 1;
      context.stroke();
    }
  };
  if (!many) {
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) drawBin(i, j);
  } else if (state.bin) drawBin(...state.bin);
  context.globalAlpha = 1;
  const { system } = choices[state.a];
  if (system.definition === "precise_roi_pool") return "The first integrates the map: it has no samples.";
  const what = samples.kind === "cells" ? "whole cells" : "samples";
  const turned = boxNow().length === 5 && system.boxes !== "region" ? " The first takes the box without its angle." : "";
  const left = many ? ", too many to draw: those of the chosen bin" : "";
  const others = state.bin && state.a !== state.b ? " Crosses: those of the second in the chosen bin." : "";
  return `${samples.count.toLocaleString("en")} ${what} of the first${left}.${others}${turned}`;
}

// What the second reads for the chosen bin, as crosses.
function drawOthers(context) {
  const samples = samplesOf(state.b);
  if (!samples) return;
  const listed = samples.of(...state.bin);
  if (zoomView.scale ** 2 * areaOf(boxNow()) < 150 * listed.length * state.bins[0] * state.bins[1]) return;
  context.beginPath();
  for (const [x, y] of listed) {
    const [px, py] = [zoomView.x(x), zoomView.y(y)];
    context.moveTo(px - 5, py - 5);
    context.lineTo(px + 5, py + 5);
    context.moveTo(px + 5, py - 5);
    context.lineTo(px - 5, py + 5);
  }
  for (const [style, width] of [["white", 4], ["#0a6ebd", 2]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.stroke();
  }
}

function areaOf(box) {
  const [x1, y1, x2, y2] = cornersOf(box);
  return Math.max(Math.abs((x2 - x1) * (y2 - y1)), 1e-6);
}

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
    if (group.letter) names.append(element("div", group.letter, "letter"));
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

// ---- State, which is the address's fragment, too

function fragment() {
  const first = JSON.parse(start);
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
  if (state.bin) state.bin = state.bin.map((at, i) => Math.min(Math.max(Math.round(at), 0), state.bins[i] - 1));
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

function draw() {
  waiting = 0;
  setMap();
  drawWhole();
  const weights = drawZoom();
  const between = drawGrids();
  describeBin(weights);
  describe(between);
  showControls();
  clearTimeout(later);
  if (state.bins[0] * state.bins[1] <= MANY) drawCards();
  else later = setTimeout(drawCards, 150);
  clearTimeout(written);
  written = setTimeout(() => history.replaceState(null, "", `#${fragment()}`), 150);
}

// ---- Controls

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

function turnedBy(box, angle) {
  const [cx, cy, width, height] = regionOf(box);
  const held = Math.atan2(Math.sin(angle), Math.cos(angle));
  if (Math.abs(held) < 1e-6 && data.boxes.every(({ numbers }) => numbers.length === 4)) return cornersOf([cx, cy, width, height, 0]);
  return [cx, cy, width, height, held];
}

// To a fraction of a pixel that is about a pixel of the screen.
function rounded(value) {
  const step = Math.min(Math.max(2 ** Math.round(Math.log2(0.5 / pictureView.scale)), 1 / 64), 1);
  return Math.round(value / step) * step;
}

function moved(box, dx, dy) {
  if (box.length === 4) return [rounded(box[0] + dx), rounded(box[1] + dy), rounded(box[0] + dx) + box[2] - box[0], rounded(box[1] + dy) + box[3] - box[1]];
  return [rounded(box[0] + dx), rounded(box[1] + dy), ...box.slice(2)];
}

// Moves the sides of a box that a handle holds, by so much in the picture.
function resized(box, [across, down], dx, dy) {
  if (box.length === 4) {
    const next = box.slice();
    if (across !== 0.5) next[across ? 2 : 0] = rounded(box[across ? 2 : 0] + dx);
    if (down !== 0.5) next[down ? 3 : 1] = rounded(box[down ? 3 : 1] + dy);
    return next;
  }
  const [cx, cy, width, height, angle] = box;
  const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
  const along = (dx * cosine - dy * sine) * Math.sign(across - 0.5);
  const below = (dx * sine + dy * cosine) * Math.sign(down - 0.5);
  const wide = Math.max(rounded(width + along), 0), high = Math.max(rounded(height + below), 0);
  const x = ((wide - width) / 2) * Math.sign(across - 0.5), y = ((high - height) / 2) * Math.sign(down - 0.5);
  return [cx + x * cosine + y * sine, cy - x * sine + y * cosine, wide, high, angle];
}

function inside(box, x, y) {
  const [[ax, ay], [bx, by], , [dx, dy]] = outlineOf(box);
  const [ux, uy, vx, vy] = [bx - ax, by - ay, dx - ax, dy - ay];
  const area = ux * vy - uy * vx;
  if (!area) return null;
  const across = ((x - ax) * vy - (y - ay) * vx) / area;
  const down = ((y - ay) * ux - (x - ax) * uy) / area;
  return across >= 0 && across < 1 && down >= 0 && down < 1 ? [down, across] : null;
}

// What lies under a pointer: a handle of the chosen box, that box, or another, the smallest first. A
// click takes the smallest in any case.
function grabbed(event) {
  const place = find("picture").getBoundingClientRect();
  const [px, py] = [event.clientX - place.left, event.clientY - place.top];
  const [x, y] = pictureView.back(px, py);
  const reach = event.pointerType === "mouse" ? 9 : 20;
  const near = ([hx, hy]) => Math.hypot(pictureView.x(hx) - px, pictureView.y(hy) - py) <= reach;
  const box = boxNow();
  if (plans) {
    if (near(knobOf(box))) return { at: [x, y], kind: "turn", box };
    const distance = ([hx, hy]) => Math.hypot(pictureView.x(hx) - px, pictureView.y(hy) - py);
    const handles = CORNERS.map((handle) => [distance(within(box, ...handle)), handle]);
    handles.sort((one, other) => one[0] - other[0]);
    if (handles[0][0] <= reach) return { at: [x, y], kind: "resize", handle: handles[0][1], box };
  }
  const hits = state.boxes.map((one, k) => [areaOf(one), k]).filter(([, k]) => inside(state.boxes[k], x, y));
  hits.sort((one, other) => one[0] - other[0]);
  if (!hits.length) return null;
  const smallest = hits[0][1], number = plans && inside(box, x, y) ? state.box : smallest;
  return { at: [x, y], kind: "move", number, smallest, box: state.boxes[number] };
}

function dragTo(held, event) {
  const place = find("picture").getBoundingClientRect();
  const [x, y] = pictureView.back(event.clientX - place.left, event.clientY - place.top);
  const [dx, dy] = [x - held.at[0], y - held.at[1]];
  if (Math.hypot(dx, dy) * pictureView.scale < 3 && boxNow() === held.box) return; // a click
  if (held.kind === "move") setBox(moved(held.box, dx, dy));
  else if (held.kind === "resize") setBox(resized(held.box, held.handle, dx, dy));
  else {
    const [cx, cy] = within(held.box, 0.5, 0.5);
    let angle = Math.atan2(-(x - cx), -(y - cy));
    const step = event.shiftKey ? Math.PI / 12 : Math.PI / 180;
    angle = Math.round(angle / step) * step;
    setBox(turnedBy(held.box, Math.abs(angle) < 0.05 && !event.shiftKey ? 0 : angle));
  }
}

function listenToPicture() {
  const canvas = find("picture");
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = grabbed(event);
    if (!held) return;
    if (held.kind === "move" && held.number !== state.box) change({ box: held.number });
    if (!plans) held = null;
    else canvas.setPointerCapture(event.pointerId);
  });
  const from = [0, 0];
  canvas.addEventListener("pointerdown", (event) => from.splice(0, 2, event.clientX, event.clientY));
  canvas.addEventListener("pointerup", (event) => {
    const still = Math.hypot(event.clientX - from[0], event.clientY - from[1]) < 3;
    if (held && still && held.kind === "move" && held.smallest !== state.box) change({ box: held.smallest });
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) dragTo(held, event);
    else if (event.pointerType === "mouse") {
      const under = grabbed(event);
      canvas.style.cursor = !under ? "default" : { move: "grab", turn: "crosshair", resize: "nwse-resize" }[under.kind];
    }
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => (held = null));
  // A finger on a box moves it; beside the boxes it scrolls the page.
  canvas.addEventListener("touchstart", (event) => {
    const [finger] = event.changedTouches;
    if (plans && grabbed({ clientX: finger.clientX, clientY: finger.clientY, pointerType: "touch" })) event.preventDefault();
  }, { passive: false });
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const box = boxNow(), step = steps[event.key], turn = { "[": 1, "]": -1 }[event.key];
    if (event.key === "n") change({ box: (state.box + 1) % state.boxes.length });
    else if (step && plans && event.shiftKey) setBox(resized(box, [step[0] ? 1 : 0.5, step[1] ? 1 : 0.5], ...step));
    else if (step && plans) setBox(moved(box, ...step));
    else if (turn && plans) setBox(turnedBy(box, (regionOf(box)[4] || 0) + (turn * Math.PI) / 36));
    else return;
    event.preventDefault();
  });
}

// Bins are chosen by pointing, by touch, and with the arrow keys while a canvas has the focus.
function listenToBins(id, binAt) {
  const canvas = find(id);
  const take = (event) => {
    const bin = binAt(event, canvas.getBoundingClientRect());
    if (String(bin) !== String(state.bin)) change({ bin });
  };
  canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && take(event));
  canvas.addEventListener("click", take);
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") change({ bin: null });
    else if (event.key === "Home") change({ bin: [0, 0] });
    else if (event.key === "End") change({ bin: state.bins.map((count) => count - 1) });
    else if (steps[event.key]) {
      const [down, across] = steps[event.key];
      change({ bin: state.bin ? [state.bin[0] + down, state.bin[1] + across] : [0, 0] });
    } else return;
    event.preventDefault();
  });
}

function binInZoom(event, place) {
  if (!zoomView) return null;
  const shares = inside(boxNow(), ...zoomView.back(event.clientX - place.left, event.clientY - place.top));
  return shares && shares.map((share, i) => Math.min(Math.floor(share * state.bins[i]), state.bins[i] - 1));
}

function binInGrid(event, place) {
  const shares = [(event.clientY - place.top) / place.height, (event.clientX - place.left) / place.width];
  if (shares.some((share) => share < 0 || share >= 1)) return null;
  return shares.map((share, i) => Math.floor(share * state.bins[i]));
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

function makeChoices() {
  for (const system of data.systems) choices.push({ name: system.name, system });
  for (const group of data.groups) {
    group.choice = group.system === null ? -1 : choiceOf(group.system);
    if (group.choice >= 0 && !group.values) continue;
    group.choice = choices.length;
    choices.push({ name: group.members[0], system: null, values: group.values });
  }
  for (const key of ["a", "b"]) {
    choices.forEach(({ name }, number) => {
      const option = element("option", name);
      option.value = number;
      find(key).append(option);
    });
  }
}

function lockOptions() {
  for (const input of document.querySelectorAll(".numbers input, .system input, #copy")) input.disabled = true;
}

async function begin() {
  find("title").textContent = data.title;
  find("about").textContent = data.about;
  find("note").textContent = data.note;
  if (!data.boxes.length) {
    find("why").textContent = "There is no box that can be drawn.";
    return;
  }
  if (data.values !== null) plans = await Plans.of(await inflated(bytesOf(data.wasm)));
  makeChoices();
  const home = data.groups.find((group) => group.reference) || data.groups[0];
  const other = data.groups.find((group) => group.choice !== home.choice) || home;
  Object.assign(state, { a: other.choice, b: home.choice });
  picture.src = data.picture;
  await picture.decode().catch(() => {});
  makeCards();
  readFragment();
  listen();
  if (!plans) lockOptions();
  draw();
}

const ready = begin();
