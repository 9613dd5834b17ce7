// Boxes and bins under a mouse, a finger or the arrow keys.

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
    const handles = CORNERS.map((handle) => ({ handle, far: distance(within(box, handle[0], handle[1])) }));
    handles.sort((one, other) => one.far - other.far);
    if (handles[0].far <= reach) return { at: [x, y], kind: "resize", handle: handles[0].handle, box };
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
