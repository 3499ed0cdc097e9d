/* The record's words for the reader's numbers: the same as eligibility/explanation/reasons.py,
   tables.py and expectations.py. */

function title(record, state) {
  const { of, family, parameters, outcome } = record.subject;
  const [name, given] = parameters[0];
  const drawn = family === "Categorical" ? [state.counts.indexOf(1)] : state.counts;
  const at = summary(drawn, outcome.shape);
  return `∂ ${of} / ∂ ${name} of ${family}(${name}=${summary(state.values, given.shape)}) at ${at}`;
}

/** The reason in two sentences. */
function why(state) {
  const drawn = {
    most: state.counts.indexOf(Math.max(...state.counts)),
    trials: sum(state.counts),
    last: state.counts.length - 1,
    factor: factorOf(state),
    result: gradientOf(state),
  };
  const reasons = { weights: whyWeights, ambient: whyAmbient, free: whyFree, tangent: whyTangent };
  return (reasons[state.coordinates] ?? whyLogits)(state, drawn);
}

function whyWeights(state, { most, trials, factor, result }) {
  const down = (-factor * trials) / sum(state.values);
  const up = state.values[most] ? (factor * state.counts[most]) / state.values[most] : Infinity;
  const numerator =
    trials === 1
      ? `Only category ${most}, which was drawn, stands in the numerator as well: through the ` +
        "division it"
      : "Only what was drawn stands in the numerator as well: through the division category " +
        `${most}, drawn ${state.counts[most]} times of ${trials},`;
  return [
    `torch divides probs by their sum, π_${most} = probs[${most}] / Σ probs, so every entry also ` +
      "stands in the denominator: raising any of them makes what was drawn less likely, and " +
      `through the sum each gets ${number(down)}.`,
    `${numerator} gets ${number(up)} on top, and ${number(up)} + (${number(down)}) = ` +
      `${number(result[most])}.`,
  ];
}

function whyLogits(state, { most, trials, factor, result }) {
  const scale = factor === 1 ? "" : `${number(factor)} · `;
  const times = trials === 1 ? "" : `${trials} · `;
  const draws = trials > 1 ? `, ${trials} times for ${trials} draws.` : ".";
  return [
    "The logits enter as log p = z − log Σ exp(z): the log-sum-exp pulls every logit down by the " +
      `probability of its category${draws}`,
    `Each draw pushes its own logit up by 1, so category ${most} gets ` +
      `${scale}(${state.counts[most]} − ${times}${number(probabilitiesOf(state)[most])}) = ` +
      `${number(result[most])}: what happened minus what was expected.`,
  ];
}

function whyAmbient(state, { most, result }) {
  return [
    "In ambient coordinates the normaliser is left out: log p is taken to be Σ y log w, so " +
      `category ${most} gets ${number(result[most])} and what was not drawn gets 0.`,
    "torch does not compute this: its probs are divided by their sum, and the sum depends on every " +
      "entry.",
  ];
}

function whyFree(state, { last }) {
  return [
    `The first ${last} probabilities are free and the last one, category ${last}, is what they ` +
      "leave: raising one of them lowers the last one by as much.",
    `So each entry is its own y/w minus the y/w of category ${last}, and there is no entry for ` +
      `category ${last}.`,
  ];
}

function whyTangent() {
  return [
    "Only directions along the simplex count, in which the probabilities keep their sum: the mean " +
      "is subtracted from y/w, so that the entries sum to 0.",
    "Subtracting a constant from y/w first changes nothing, so torch's rule and the ambient one " +
      "have this same projection.",
  ];
}

/** What stands under the table: the gradient of p where that of log p was asked for, or reversed. */
function note(state) {
  const own = eligibility(state);
  if (own.length > 8 || !own.every(Number.isFinite)) return "";
  if (state.of === "prob") {
    return `This is prob times the characteristic eligibility, ${vector(own)}.`;
  }
  const probability = Math.exp(logProbability(state));
  const scaled = vector(own.map((entry) => entry * probability));
  return `The gradient of prob itself is prob times this: ${scaled}.`;
}

/** The wrong expectations that apply: [what one expects, the answer, the worked question]. */
function expectations(state, torch) {
  const found = [];
  if (state.coordinates === "weights" && state.counts.includes(0)) {
    const scaled = ambient(state).map((entry) => factorOf(state) * entry);
    const shown = scaled.length <= 8 && scaled.every(Number.isFinite);
    found.push([
      "0 for what was not drawn.",
      "That is the gradient of Σ y log w with the normaliser left out (`--coordinates ambient`" +
        `${shown ? `, here ${vector(scaled)}` : ""}). Both are right, each for its own convention: ` +
        "they differ by a constant, and after a softmax they give the same gradient of the logits, " +
        "y − n π.",
      1,
    ]);
  }
  if (state.parameter === "logits") {
    found.push([
      "the same numbers for logits as for probs.",
      "A logit moves its probability by p times what the weight of the same name would: the chain " +
        "rule multiplies the eligibility of probs by it, and the 1/p is gone. Logits need not be " +
        "log-probabilities; any constant may be added to them.",
      4,
    ]);
  }
  const result = gradientOf(state);
  const mean = sum(torch) / torch.length;
  const reached = { weights: torch, tangent: torch.map((entry) => entry - mean) };
  const autograd = reached[state.coordinates] ?? result;
  if (state.parameter === "probs" && autograd.some((g, k) => g === 0 && result[k] !== 0)) {
    found.push([
      "a gradient wherever the outcome is improbable.",
      `torch gives${autograd.length <= 8 ? ` ${vector(autograd)}` : " 0"} here: it clamps ` +
        `probabilities to [ε, 1 − ε], ε = ${number(EPSILON)} in float64, and a clamp has ` +
        "derivative 0 outside. Pass logits, which are not clamped.",
      6,
    ]);
  }
  return found;
}
