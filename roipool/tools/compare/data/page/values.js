// What systems pool, and how far two of them are apart.

// The pooled values of a choice, channel after channel; null where they are not known.
function pooled(choice) {
  if (!found.has(choice)) found.set(choice, computed(choices[choice]));
  return found.get(choice);
}

/** @type {(choice: Choice) => Float32Array} */
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
