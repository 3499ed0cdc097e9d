/* The checks, recomputed for the reader's numbers. torch is not here, so the first one compares
   the rule with the recorded steps, walked backwards. */

const MOST_OUTCOMES = 4096;

/** Whether the convention is the one that torch's own operations follow. */
const isTorchs = (state) => state.coordinates === "" || state.coordinates === "weights";

/** The rule against what torch gives: the recorded steps, walked backwards. */
function agreement(state, torch) {
  const parts = summands(state);
  const sizes = state.values.map((_, k) => sum(parts.map((part) => Math.abs(part[k]))));
  const scale = sizes.map((size) => factorOf(state) * size);
  return equal("rule = the steps above, walked backwards", gradientOf(state), torch, scale);
}

/** Whether that check passes, or does not apply. */
function agrees(state, torch) {
  const [, deviation, tolerance] = isTorchs(state) ? agreement(state, torch) : ["", 0, 0];
  return deviation <= tolerance;
}

/** [statement, deviation, tolerance] of each check that applies. */
function checksOf(state, torch) {
  const own = eligibility(state);
  const found = isTorchs(state) ? [agreement(state, torch)] : [];
  if (own.every(Number.isFinite)) found.push(finiteDifferences(state, own));
  if (state.coordinates === "" || state.coordinates === "tangent") {
    found.push(zero("Σ over the categories = 0", [own]));
  }
  if (state.coordinates === "weights") {
    found.push(zero("probs · eligibility = 0", [own.map((e, k) => e * state.values[k])]));
  }
  const outcomes = state.coordinates === "ambient" ? null : outcomesOf(state);
  if (outcomes !== null) {
    const scores = outcomes.map((counts) => {
      const other = { ...state, counts };
      const probability = Math.exp(logProbability(other));
      return eligibility(other).map((entry) => (probability > 0 ? probability * entry : 0));
    });
    const columns = scores[0].map((_, k) => scores.map((row) => row[k]));
    found.push(zero(`Σ p(y) e(y) over all ${outcomes.length} outcomes = 0`, columns));
  }
  return found;
}

const largest = (values) => Math.max(0, ...values.map(Math.abs).filter(Number.isFinite));

function equal(statement, left, right, scale) {
  const gaps = left.map((entry, k) => (entry === right[k] ? 0 : Math.abs(entry - right[k])));
  return [statement, Math.max(...gaps), 8 * EPSILON * scale.length * largest(scale)];
}

/** Whether each of several sums vanishes, up to the rounding of its summands. */
function zero(statement, sums) {
  const length = Math.max(...sums.map((parts) => parts.length));
  const deviation = Math.max(...sums.map((parts) => Math.abs(sum(parts))));
  return [statement, deviation, 8 * EPSILON * length * largest(sums.flat())];
}

/** log p as a function of the entries in the state's convention, without the closed form. */
function logProbabilityAt(state, entries) {
  const logOfDrawn = (weights) =>
    sum(state.counts.map((count, k) => (count === 0 ? 0 : count * Math.log(weights[k]))));
  switch (state.coordinates) {
    case "ambient":
      return logOfDrawn(entries);
    case "free":
      return logOfDrawn([...entries, sum(state.values) - sum(entries)]);
    case "tangent": {
      const shift = (sum(state.values) - sum(entries)) / entries.length;
      return logProbability({ ...state, values: entries.map((entry) => entry + shift) });
    }
    default:
      return logProbability({ ...state, values: entries });
  }
}

/* Where log p is evaluated, in steps, and its weight there: both are exact for a parabola. The second
   one serves a weight of 0, which cannot be smaller. */
const CENTRAL = [[1, 0.5], [-1, -0.5]];
const ONE_SIDED = [[0, -1.5], [1, 2], [2, -0.5]];

/** The rule against differences of log p; their own error sets the tolerance. */
function finiteDifferences(state, own) {
  const start = state.values.slice(0, own.length);
  const widthOf = (step, entry) => step * (entry === 0 ? 1 : Math.abs(entry));
  const slope = (step, k) => {
    const width = widthOf(step, start[k]);
    const heightAt = (steps) =>
      logProbabilityAt(state, start.map((v, j) => (j === k ? v + steps * width : v)));
    const onEdge = state.parameter === "probs" && start[k] === 0;
    const heights = (onEdge ? ONE_SIDED : CENTRAL).map(([at, weight]) => weight * heightAt(at));
    return sum(heights) / width;
  };
  const height = 1 + Math.abs(logProbabilityAt(state, start));
  let worst = [0, 0, -Infinity];
  own.forEach((entry, k) => {
    const [coarse, fine] = [slope(2e-5, k), slope(1e-5, k)];
    const error = Math.abs(coarse - fine) + (16 * EPSILON * height) / widthOf(1e-5, start[k]);
    const gap = Math.abs(fine - entry);
    if (gap - error > worst[2]) worst = [gap, error, gap - error];
  });
  return ["rule = finite differences of log p", worst[0], worst[1]];
}

/** Every outcome of as many draws, as counts; null if they are too many. */
function outcomesOf(state) {
  const [trials, categories] = [sum(state.counts), state.counts.length];
  let many = 1;
  for (let k = 1; k < categories; k += 1) many = (many * (trials + k)) / k;
  return many > MOST_OUTCOMES ? null : compositions(trials, categories);
}

function compositions(total, parts) {
  if (parts === 1) return [[total]];
  const found = [];
  for (let first = 0; first <= total; first += 1) {
    for (const rest of compositions(total - first, parts - 1)) found.push([first, ...rest]);
  }
  return found;
}
