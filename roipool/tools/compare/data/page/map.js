// The map that the engine pools: the picture at the present scale, or the page's own numbers.

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
    return { first, weights: weights.map((weight) => weight / sum) };
  });
  return lines.map((line) =>
    Float32Array.from(parts, ({ first, weights }) => {
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
