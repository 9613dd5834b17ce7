// The live page: what `roipool compare` found, or a playground. Comes after the other scripts, and
// begins.

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
  const inputs = document.querySelectorAll(".numbers input, .system input, #copy");
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (inputs)) input.disabled = true;
  find("picture-keys").textContent = "Its boxes: click on one, or press n for the next.";
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
