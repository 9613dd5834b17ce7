// The whole picture with its boxes, and the handles of the chosen one.

/** @type {View} */
let pictureView = null;
/** @type {Box} Stays while a box is dragged. */
let pictureWindow = null;

/**
 * Where a box is turned: above it, or within it where that is beyond the canvas.
 * @type {(box: Box) => Pair}
 */
function knobOf(box) {
  const [x, y] = within(box, 0.5, 0), [mx, my] = within(box, 0.5, 0.5);
  const length = Math.hypot(x - mx, y - my);
  const [dx, dy] = length ? [(x - mx) / length, (y - my) / length] : [0, -1];
  const out = 26 / pictureView.scale;
  const [x1, y1, x2, y2] = pictureWindow;
  /** @type {Pair} */
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
