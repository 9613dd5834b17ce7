"use strict";
// Draws what `roipool compare` found. Every text goes through textContent or a canvas, never
// through HTML: file names and systems may be anybody's.
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const state = { box: 0, group: 0, bin: null };
const picture = new Image();

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A canvas as sharp as the screen, whose units are CSS pixels.
function prepared(canvas, aspect) {
  const width = canvas.clientWidth || 300;
  const height = Math.min(width * aspect, 0.7 * window.innerHeight + 80);
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
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
  if (picture.naturalWidth) {
    const [width, height] = data.size;
    context.drawImage(picture, at.x(0), at.y(0), width * at.scale, height * at.scale);
  }
}

function outline(context, at, corners) {
  context.beginPath();
  for (const [x, y] of corners) context.lineTo(at.x(x), at.y(y));
  context.closePath();
}

let pictureView = null;

function drawWhole() {
  const [width, height] = data.size;
  const room = 0.06 * Math.max(width, height);
  const canvas = prepared(find("picture"), (height + 2 * room) / (width + 2 * room));
  const { context } = canvas;
  context.clearRect(0, 0, canvas.width, canvas.height);
  pictureView = view(canvas.width, canvas.height, [-room, -room, width + room, height + room]);
  drawPicture(context, pictureView);
  const order = data.boxes.map((_, k) => k).filter((k) => k !== state.box);
  for (const k of [...order, state.box]) {
    const chosen = k === state.box;
    outline(context, pictureView, data.boxes[k].corners);
    context.lineJoin = "round";
    context.strokeStyle = "white";
    context.lineWidth = chosen ? 5 : 3;
    context.stroke();
    context.strokeStyle = chosen ? "#e0007a" : "#0a6ebd";
    context.lineWidth = chosen ? 3 : 1.5;
    context.stroke();
    const [x, y] = data.boxes[k].corners[0];
    const label = String(data.boxes[k].number);
    context.font = "bold 13px system-ui, sans-serif";
    const px = Math.min(Math.max(pictureView.x(x), 12), canvas.width - 12);
    const py = Math.min(Math.max(pictureView.y(y), 12), canvas.height - 12);
    const wide = context.measureText(label).width + 8;
    context.fillStyle = chosen ? "#e0007a" : "#0a6ebd";
    context.fillRect(px - wide / 2, py - 9, wide, 18);
    context.fillStyle = "white";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(label, px, py + 1);
  }
}

let zoomView = null;

function extremes(bins) {
  const all = bins.flat();
  return all.length ? [Math.min(...all), Math.max(...all)] : [];
}

// A sample of a grid that is turned around the origin and moved.
function turned({ turn: [cosine, sine, down, across] }, x, y) {
  return [y * sine + x * cosine + across, y * cosine - x * sine + down];
}

// What is enlarged: the box, and every sample of the system, with some room.
function window_(box, samples) {
  const xs = box.corners.map((corner) => corner[0]);
  const ys = box.corners.map((corner) => corner[1]);
  if (samples) {
    // The farthest samples are at the corners of their grid, however it is turned.
    for (const x of extremes(samples.x)) {
      for (const y of extremes(samples.y)) {
        const [px, py] = turned(samples, x, y);
        xs.push(px);
        ys.push(py);
      }
    }
  }
  const [x1, x2] = [Math.min(...xs), Math.max(...xs)];
  const [y1, y2] = [Math.min(...ys), Math.max(...ys)];
  const room = Math.max(x2 - x1, y2 - y1, 2 / data.scale) * 0.1 + 0.6 / data.scale;
  return [x1 - room, y1 - room, x2 + room, y2 + room];
}

function samplesHere() {
  const group = data.groups[state.group];
  return group.rules < 0 ? null : data.samples[group.rules][state.box];
}

function drawZoom() {
  const box = data.boxes[state.box];
  const samples = samplesHere();
  const shown = window_(box, samples);
  const canvas = prepared(find("zoom"), Math.min((shown[3] - shown[1]) / (shown[2] - shown[0]), 1.3));
  const { context } = canvas;
  context.clearRect(0, 0, canvas.width, canvas.height);
  zoomView = view(canvas.width, canvas.height, shown);
  drawPicture(context, zoomView);
  drawCells(context, canvas);
  drawBins(context, box);
  let caption = "Its samples are not known here.";
  if (samples) caption = drawSamples(context, samples);
  find("samples").textContent = caption;
}

// The borders of map cells, where they are not too fine.
function drawCells(context, canvas) {
  const step = zoomView.scale / data.scale;
  if (step < 6) return;
  context.strokeStyle = "rgba(255, 255, 255, 0.28)";
  context.lineWidth = 1;
  context.beginPath();
  for (let x = 0; x <= data.map[1]; x++) {
    context.moveTo(zoomView.x(x / data.scale), zoomView.y(0));
    context.lineTo(zoomView.x(x / data.scale), zoomView.y(data.size[1]));
  }
  for (let y = 0; y <= data.map[0]; y++) {
    context.moveTo(zoomView.x(0), zoomView.y(y / data.scale));
    context.lineTo(zoomView.x(data.size[0]), zoomView.y(y / data.scale));
  }
  context.stroke();
}

// A point of the box: the shares of its width and height from its first corner.
function within(box, across, down) {
  const [a, b, , d] = box.corners;
  return [
    a[0] + across * (b[0] - a[0]) + down * (d[0] - a[0]),
    a[1] + across * (b[1] - a[1]) + down * (d[1] - a[1]),
  ];
}

function drawBins(context, box) {
  const [rows, columns] = data.bins;
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
  outline(context, zoomView, box.corners);
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
  const across = samples.x.reduce((sum, bin) => sum + bin.length, 0);
  const down = samples.y.reduce((sum, bin) => sum + bin.length, 0);
  const [a, b, , d] = data.boxes[state.box].corners;
  const side = ([x1, y1], [x2, y2]) => zoomView.scale * Math.hypot(x2 - x1, y2 - y1);
  const spacing = Math.min(side(a, b) / Math.max(across, 1), side(a, d) / Math.max(down, 1));
  const size = Math.min(Math.max(spacing * 0.32, 0.7), 5);
  context.globalAlpha = size < 1.5 ? 0.5 : 1; // many small ones must not hide the picture
  samples.y.forEach((ys, i) =>
    samples.x.forEach((xs, j) => {
      const here = state.bin && state.bin[0] === i && state.bin[1] === j;
      context.fillStyle = here ? "#ffd400" : (i + j) % 2 ? "#00c2ff" : "#ff8a00";
      for (const y of ys) {
        for (const x of xs) {
          const at = turned(samples, x, y);
          const [px, py] = [zoomView.x(at[0]), zoomView.y(at[1])];
          context.beginPath();
          if (samples.whole) context.rect(px - size, py - size, 2 * size, 2 * size);
          else context.arc(px, py, size, 0, 7);
          context.fill();
          if (size > 2) {
            context.strokeStyle = "rgba(0, 0, 0, 0.75)";
            context.lineWidth = 1;
            context.stroke();
          }
        }
      }
    }),
  );
  context.globalAlpha = 1;
  const what = { cells: "whole cells", integral: "middles of integrals" };
  return `${across * down} ${what[samples.kind] || "samples"} of ${data.groups[state.group].letter}`;
}

function shade(value) {
  if (data.coloured) return value.map((v) => Math.round(255 * Math.min(Math.max(v, 0), 1)));
  const [low, high] = data.range;
  const share = Math.min(Math.max((value[0] - low) / (high - low || 1), 0), 1) * (data.colours.length - 1);
  return data.colours[Math.round(share)];
}

function farther(value) {
  if (value === null) return [0, 0, 0];
  const share = Math.sqrt(Math.min(value / (data.farthest || 1), 1)) * (data.heat.length - 1);
  return value === 0 ? [255, 255, 255] : data.heat[Math.round(share)];
}

function drawGrid(canvas, rows, columns, colourOf) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      pixels.data.set([...colourOf(i, j), 255], 4 * (i * columns + j));
    }
  }
  context.putImageData(pixels, 0, 0);
}

const cards = [];

function makeCards() {
  data.groups.forEach((group, g) => {
    const card = element("div", undefined, "group");
    card.tabIndex = 0;
    card.setAttribute("role", "option");
    const pooled = element("canvas");
    const far = element("canvas");
    pooled.setAttribute("aria-hidden", "true");
    far.setAttribute("aria-hidden", "true");
    const names = element("div", undefined, "names");
    names.append(element("div", group.letter, "letter"));
    for (const name of group.members) names.append(element("div", name));
    const apart = element("div", "", "far");
    names.append(apart);
    card.append(pooled, far, names);
    card.addEventListener("click", () => choose(state.box, g));
    card.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(state.box, g);
      }
    });
    find("groups").append(card);
    cards.push({ card, pooled, far, apart });
  });
}

function drawCards() {
  const [rows, columns] = data.bins;
  cards.forEach(({ card, pooled, far, apart }, g) => {
    const values = data.groups[g].values[state.box];
    const distances = data.groups[g].apart[state.box];
    drawGrid(pooled, rows, columns, (i, j) => shade(values[i][j]));
    drawGrid(far, rows, columns, (i, j) => farther(distances[i][j]));
    const most = Math.max(...distances.flat().map((value) => (value === null ? Infinity : value)));
    apart.textContent = data.groups[g].reference ? "reference" : `differs by ${brief(most)}`;
    card.setAttribute("aria-selected", String(g === state.group));
  });
}

function brief(value) {
  if (value === null) return "NaN";
  if (!Number.isFinite(value)) return "infinity";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function describe() {
  const box = data.boxes[state.box];
  const group = data.groups[state.group];
  find("box").textContent = `box ${box.number} (${state.box + 1} of ${data.boxes.length})`;
  find("system").textContent = `${group.letter}  ${group.members[0]}`;
  const why = find("why");
  why.replaceChildren();
  if (group.reference) {
    why.append(element("p", "The others are measured against this one."));
  } else if (!group.where) {
    why.append(element("p", group.remark || "It differs from the reference nowhere."));
  } else {
    const place = `box ${group.where.box + 1}, bin (${group.where.row}, ${group.where.column}), channel ${group.where.channel}`;
    why.append(element("p", `Differs most from the reference in ${place}: ${brief(group.pair[0])}, not ${brief(group.pair[1])}. It:`));
    const list = element("ul");
    for (const [words, change] of group.reasons) {
      const added = change === null ? "NaN" : `${change >= 0 ? "+" : ""}${Number(change.toPrecision(2))}`;
      list.append(element("li", `${words} (${added})`));
    }
    if (group.reasons.length) why.append(list);
    if (group.remark) why.append(element("p", group.remark));
  }
  let text = "Point at a bin for its values.";
  if (state.bin) {
    const [i, j] = state.bin;
    const home = data.groups.find((one) => one.reference);
    const show = (one) => one.values[state.box][i][j].map((v) => brief(v)).join(", ");
    text = `bin (${i}, ${j}): ${show(group)}; reference ${show(home)}`;
  }
  find("bin").textContent = text;
}

function draw() {
  drawWhole();
  drawZoom();
  drawCards();
  describe();
}

function choose(box, group) {
  state.box = (box + data.boxes.length) % data.boxes.length;
  state.group = (group + data.groups.length) % data.groups.length;
  state.bin = null;
  draw();
}

function binAt(event) {
  const place = find("zoom").getBoundingClientRect();
  const [x, y] = zoomView.back(event.clientX - place.left, event.clientY - place.top);
  const [a, b, , d] = data.boxes[state.box].corners;
  const [ux, uy, vx, vy] = [b[0] - a[0], b[1] - a[1], d[0] - a[0], d[1] - a[1]];
  const area = ux * vy - uy * vx;
  if (!area) return null;
  const across = ((x - a[0]) * vy - (y - a[1]) * vx) / area;
  const down = ((y - a[1]) * ux - (x - a[0]) * uy) / area;
  if (across < 0 || across >= 1 || down < 0 || down >= 1) return null;
  return [Math.floor(down * data.bins[0]), Math.floor(across * data.bins[1])];
}

function pointAt(event) {
  const bin = binAt(event);
  if (String(bin) === String(state.bin)) return;
  state.bin = bin;
  drawZoom();
  describe();
}

function boxAt(event) {
  const place = find("picture").getBoundingClientRect();
  const [x, y] = pictureView.back(event.clientX - place.left, event.clientY - place.top);
  const inside = (corners) => {
    let odd = false;
    corners.forEach(([x1, y1], i) => {
      const [x2, y2] = corners[(i + 1) % corners.length];
      if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) odd = !odd;
    });
    return odd;
  };
  const size = ({ corners: [a, b, , d] }) =>
    Math.abs((b[0] - a[0]) * (d[1] - a[1]) - (b[1] - a[1]) * (d[0] - a[0]));
  const hits = data.boxes.map((box, k) => [size(box), k]).filter(([, k]) => inside(data.boxes[k].corners));
  hits.sort((one, other) => one[0] - other[0]);
  if (hits.length) choose(hits[0][1], state.group);
}

function listen() {
  const step = (id, box, group) =>
    find(id).addEventListener("click", () => choose(state.box + box, state.group + group));
  step("previous-box", -1, 0);
  step("next-box", 1, 0);
  step("previous-system", 0, -1);
  step("next-system", 0, 1);
  const keys = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  document.addEventListener("keydown", (event) => {
    const move = keys[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(state.box + move[0], state.group + move[1]);
    cards[state.group].card.scrollIntoView({ block: "nearest" });
  });
  find("picture").addEventListener("click", boxAt);
  find("zoom").addEventListener("pointermove", (event) => event.pointerType === "mouse" && pointAt(event));
  find("zoom").addEventListener("click", pointAt);
  let from = null;
  find("zoom").addEventListener("touchstart", (event) => (from = event.changedTouches[0]), { passive: true });
  find("zoom").addEventListener("touchend", (event) => {
    const to = event.changedTouches[0];
    const moved = from ? to.clientX - from.clientX : 0;
    if (Math.abs(moved) > 40 && Math.abs(moved) > Math.abs(to.clientY - from.clientY)) {
      choose(state.box + (moved < 0 ? 1 : -1), state.group);
    }
  });
  find("theme").addEventListener("click", () => {
    const dark = colour("--ground") === "#131316";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  window.addEventListener("resize", draw);
}

find("title").textContent = data.title;
find("about").textContent = data.about;
find("note").textContent = data.note;
if (data.boxes.length) {
  state.group = data.groups.findIndex((group) => group.reference);
  makeCards();
  listen();
  picture.addEventListener("load", draw);
  picture.src = data.picture;
  draw();
} else {
  find("why").textContent = "There is no box that can be drawn.";
}
