// The enlarged box: cells, bins, samples and weights.

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

/** @type {View} */
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
  const chosen = state.bin ? "these are the chosen bin's" : "choose a bin to see its own";
  const left = many ? `, too many to draw at once: ${chosen}` : "";
  const others = state.bin && state.a !== state.b ? " Crosses: those of the second in the chosen bin." : "";
  return `The first reads ${samples.count.toLocaleString("en")} ${what}${left}.${others}${turned}`;
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
