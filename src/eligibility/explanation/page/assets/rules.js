/* The closed forms of the categorical family: the same as eligibility/rules/multinomial.py.

   A state is what the controls hold: `parameter` is "probs" or "logits", `values` its entries,
   `counts` what was drawn, `coordinates` the convention ("" for logits), `of` "log_prob" or "prob". */

/** The unnormalised weights that the state stands for. */
function weightsOf(state) {
  if (state.parameter === "probs") return state.values;
  const largest = Math.max(...state.values);
  return state.values.map((logit) => Math.exp(logit - largest));
}

function probabilitiesOf(state) {
  const weights = weightsOf(state);
  const total = sum(weights);
  return weights.map((weight) => weight / total);
}

/** y_k/w_k; exactly 0 for what was not drawn. */
function ambient(state) {
  const weights = weightsOf(state);
  return state.counts.map((count, k) => (count === 0 ? 0 : count / weights[k]));
}

/** Σ_{j≠k} w_j for each k, without the cancellation of 1 − π_k. */
function sumOfOthers(weights) {
  return weights.map((_, k) => sum(weights.filter((_, j) => j !== k)));
}

/** ∂ log p(y)/∂parameter in the named convention. */
function eligibility(state, coordinates = state.coordinates) {
  const weights = weightsOf(state);
  const total = sum(weights);
  const others = sumOfOthers(weights);
  const trials = sum(state.counts);
  const ratio = ambient(state);
  switch (coordinates) {
    case "ambient":
      return ratio;
    case "weights":
      return ratio.map((own, k) => own * (others[k] / total) - (trials - state.counts[k]) / total);
    case "free":
      return ratio.slice(0, -1).map((own) => own - ratio[ratio.length - 1]);
    case "tangent": {
      const rest = sumOfOthers(ratio);
      return ratio.map((own, k) => ((ratio.length - 1) * own - rest[k]) / ratio.length);
    }
    default:
      return state.counts.map(
        (count, k) => count * (others[k] / total) - (trials - count) * (weights[k] / total),
      );
  }
}

/** The two terms of the rule, or the one that it is, in the order of the equation. */
function summands(state) {
  const total = sum(weightsOf(state));
  const trials = sum(state.counts);
  if (state.coordinates === "weights") {
    return [ambient(state), state.counts.map(() => -trials / total)];
  }
  if (state.coordinates === "") {
    return [[...state.counts], probabilitiesOf(state).map((prob) => -trials * prob)];
  }
  return [eligibility(state)];
}

/** log n! − Σ log y_k!, the part of log p that no parameter is in. */
function logCoefficient(counts) {
  const logFactorial = (n) => sum(Array.from({ length: n }, (_, i) => Math.log(i + 1)));
  return logFactorial(sum(counts)) - sum(counts.map(logFactorial));
}

function logProbability(state, probs = probabilitiesOf(state)) {
  const terms = state.counts.map((count, k) => (count === 0 ? 0 : count * Math.log(probs[k])));
  return logCoefficient(state.counts) + sum(terms);
}

/** What log p is multiplied by: 1, or p where the gradient of p itself is asked for. */
function factorOf(state) {
  return state.of === "prob" ? Math.exp(logProbability(state)) : 1;
}

function gradientOf(state) {
  const factor = factorOf(state);
  return eligibility(state).map((entry) => factor * entry);
}
