// Boxes, canvases, and the way from pixels of the picture to both.

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

/**
 * From pixels of the picture to a canvas that shows [x1, y1, x2, y2] of it, undistorted.
 * @type {(width: number, height: number, shown: Box) => View}
 */
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

/**
 * A point of a box: the shares of its width and height from its first corner. y points down.
 * @type {(box: Box, across: number, down: number) => Pair}
 */
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

function areaOf(box) {
  const [x1, y1, x2, y2] = cornersOf(box);
  return Math.max(Math.abs((x2 - x1) * (y2 - y1)), 1e-6);
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
