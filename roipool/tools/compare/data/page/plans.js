"use strict";
// The CPU's plans, compiled to WebAssembly: where bins and samples lie, what cells weigh, and pooled
// values. Knows nothing of a page, so that tests run it without a browser.

const f32 = Math.fround;

// x as `Math.round` does not round: half to even.
function halfToEven(x) {
  const low = Math.floor(x);
  if (x - low !== 0.5) return Math.round(x);
  return low % 2 ? low + 1 : low;
}

// A box is [x1, y1, x2, y2], or turned, [cx, cy, width, height, angle]; in pixels, in float32.
function cornersOf(box) {
  if (box.length === 4) return box;
  const [cx, cy, width, height] = box;
  return [cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2].map(f32);
}

function regionOf(box) {
  if (box.length === 5) return box;
  const [x1, y1, x2, y2] = box.map(f32);
  return [f32(f32(x1 + x2) * 0.5), f32(f32(y1 + y2) * 0.5), f32(x2 - x1), f32(y2 - y1), 0];
}

// What systems make of x1, y1, x2, y2 before they call roipool's engine; as NumPy computes it.
const FORMS = {
  corners: (box) => cornersOf(box),
  region: (box) => regionOf(box),
  cells: (box, { scale }) => cornersOf(box).map((x) => halfToEven(f32(x) * scale)),
  // As fractions of the way from the first cell's centre to the last one's.
  ends: (box, { scale, rows, columns }) =>
    cornersOf(box).map((x, i) => f32(f32(f32(x) * f32(scale)) / Math.max((i % 2 ? rows : columns) - 1, 1))),
  // The first and the last bin's centres, half a cell shifted, as such fractions.
  centres: (box, { scale, rows, columns, bins }) => {
    const ends = cornersOf(box).map((x) => f32(f32(x) * f32(scale)));
    const along = (low, high, count, size) => {
      const spacing = f32(f32(high - low) / count);
      const first = f32(f32(f32(low + f32(spacing / 2)) - 0.5) / (size - 1));
      return [first, f32(first + f32(f32(spacing * (count - 1)) / (size - 1)))];
    };
    const [x1, x2] = along(ends[0], ends[2], bins[1], columns);
    const [y1, y2] = along(ends[1], ends[3], bins[0], rows);
    return [x1, y1, x2, y2];
  },
};

// The arrays of a plan, in the order of `plan_array`.
const BEGIN = 0, COUNT = 1, CELL = 2, WEIGHT = 3, SAMPLE = 4, FIRST = 5, TOTAL = 6;
const SAMPLE_WORDS = 6;
const [FIRST_CELL, SECOND_CELL, FIRST_WEIGHT, SECOND_WEIGHT, , POSITION] = [0, 1, 2, 3, 4, 5];

class Plans {
  // Compiles the module from its bytes.
  static async of(bytes) {
    const { instance } = await WebAssembly.instantiate(bytes, {});
    return new Plans(instance.exports);
  }

  map = /** @type {MapSize} */ ({});
  planned = /** @type {Planned} */ ({});

  constructor(exports) {
    this.exports = exports;
    exports._initialize();
    this.numbers = {}; // of definitions, by name
    for (let number = 0; ; number++) {
      const name = this.text(exports.definition_name(number));
      if (!name) break;
      this.numbers[name] = number;
    }
  }

  text(address) {
    const bytes = new Uint8Array(this.exports.memory.buffer);
    let end = address;
    while (end && bytes[end]) end++;
    return String.fromCharCode(...bytes.subarray(address, end));
  }

  // Views are made anew each time: memory that grows takes the old ones' buffer away.
  floats(address, count) {
    return new Float32Array(this.exports.memory.buffer, address >>> 0, count);
  }

  words(address, count) {
    return new Int32Array(this.exports.memory.buffer, address >>> 0, count);
  }

  // `values` are a Float32Array: channels, rows, columns.
  setMap(channels, rows, columns, values) {
    const address = this.exports.new_map(channels, rows, columns);
    if (!address) throw new RangeError("the map is too large for this browser");
    this.map = { channels, rows, columns };
    this.floats(address, values.length).set(values);
  }

  // What a system's engine is given as the box.
  boxFor(system, box, options) {
    return FORMS[system.boxes](box, { ...options, ...this.map });
  }

  // Plans a box: `options` are bins, scale and sampling. For a mean the taps, or, if `samples`, the
  // samples that it is the mean of.
  plan(system, box, options, samples = system.maximum) {
    const numbers = this.boxFor(system, box, options);
    this.floats(this.exports.box_numbers(), numbers.length).set(numbers);
    const asked = system.sampled ? options.sampling : 0;
    const [down, across] = Array.isArray(asked) ? asked : [asked, asked];
    const scale = system.scaled ? options.scale : 1;
    const done = this.exports.make_plan(
      this.numbers[system.definition], samples, ...options.bins, scale, down, across,
      system.aligned, system.angle_scale,
    );
    if (!done) throw new RangeError("so many samples are too many for this browser");
    this.planned = { system, bins: options.bins, samples, pointwise: system.boxes === "region" };
  }

  // The pooled values of the planned box: a Float32Array of channels, rows and columns.
  pool() {
    const { system, bins } = this.planned;
    const lowest = system.lowest === null ? -Infinity : system.lowest;
    const address = this.exports.pool(
      system.maximum, system.empty, lowest, system.outside_is_zero, system.nan_restarts,
    );
    if (!address) throw new RangeError("so many bins are too many for this browser");
    return this.floats(address, this.map.channels * bins[0] * bins[1]).slice();
  }

  array(axis, which) {
    return this.exports.plan_array(axis, which);
  }

  // The taps of bin `bin` along an axis (0: down), as [cell, weight]; of a turned box those of the
  // bin in the whole map, along axis 1.
  taps(axis, bin) {
    const begin = this.words(this.array(axis, BEGIN), 2 * bin + 1)[2 * bin];
    const count = this.words(this.array(axis, COUNT), bin + 1)[bin];
    const cells = this.words(this.array(axis, CELL), begin + count);
    const weights = this.floats(this.array(axis, WEIGHT), begin + count);
    return Array.from({ length: count }, (_, i) => [cells[begin + i], weights[begin + i]]);
  }

  // The samples of bin `bin` along an axis, and how many there are with those outside the map.
  samples(axis, bin) {
    const begin = this.words(this.array(axis, BEGIN), 2 * bin + 1)[2 * bin];
    const count = this.words(this.array(axis, COUNT), bin + 1)[bin];
    const address = this.array(axis, SAMPLE) + 4 * SAMPLE_WORDS * begin;
    const words = this.words(address, SAMPLE_WORDS * count);
    const floats = this.floats(address, SAMPLE_WORDS * count);
    const listed = Array.from({ length: count }, (_, i) => {
      const at = SAMPLE_WORDS * i;
      const cells = [[words[at + FIRST_CELL], floats[at + FIRST_WEIGHT]]];
      if (words[at + SECOND_CELL] >= 0) cells.push([words[at + SECOND_CELL], floats[at + SECOND_WEIGHT]]);
      return { position: floats[at + POSITION], cells };
    });
    const low = (which) => this.words(this.array(axis, which), 2 * bin + 1)[2 * bin];
    return { listed, first: low(FIRST), total: low(TOTAL) };
  }

  // Where the samples of a turned box are: a Float32Array of y and x, after the bin's number each.
  placedSamples() {
    const count = this.exports.place_samples();
    const address = this.exports.placed_samples_at();
    const words = this.words(address, 3 * count), floats = this.floats(address, 3 * count);
    return Array.from({ length: count }, (_, i) => [words[3 * i], floats[3 * i + 1], floats[3 * i + 2]]);
  }

  // What each cell weighs in a bin: a Map from row * columns + column. A mean's weights are summed;
  // of a maximum's samples the greatest counts.
  weights(row, column) {
    const found = new Map();
    const { columns } = this.map;
    const { pointwise, samples, bins } = this.planned;
    if (pointwise) {
      for (const [cell, weight] of this.taps(1, row * bins[1] + column)) {
        found.set(cell, f32((found.get(cell) || 0) + weight));
      }
    } else if (samples) {
      for (const y of this.samples(0, row).listed) {
        for (const x of this.samples(1, column).listed) {
          for (const [down, weight] of y.cells) {
            for (const [across, other] of x.cells) {
              const cell = down * columns + across;
              found.set(cell, Math.max(found.get(cell) || 0, f32(weight * other)));
            }
          }
        }
      }
    } else {
      // A tap may be listed in parts, as engines read it; they add up rows first.
      const rows = new Map();
      for (const [down, weight] of this.taps(0, row)) rows.set(down, f32((rows.get(down) || 0) + weight));
      for (const [across, part] of this.taps(1, column)) {
        for (const [down, weight] of rows) {
          const cell = down * columns + across;
          found.set(cell, f32((found.get(cell) || 0) + f32(part * weight)));
        }
      }
    }
    return found;
  }
}
