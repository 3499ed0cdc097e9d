/* The record's words for the reader's numbers: the templates of eligibility/explanation/sentences.py,
   which the page brings with it, filled again. */

const say = (name, slots = {}) =>
  sentences[name].replace(/\{(\w+)\}/g, (_, slot) => String(slots[slot]));

function title(record, state) {
  const { of, family, parameters, outcome } = record.subject;
  const [name, given] = parameters[0];
  const drawn = family === "Categorical" ? [state.counts.indexOf(1)] : state.counts;
  const slots = { of, family, names: name, value: summary(drawn, outcome.shape) };
  return say("title", { ...slots, given: `${name}=${summary(state.values, given.shape)}` });
}

/** The numbers that the sentences have slots for. */
function slotsOf(state, torch) {
  const { values, counts } = state;
  const trials = sum(counts);
  const a = counts.indexOf(Math.max(...counts));
  const [factor, result] = [factorOf(state), gradientOf(state)];
  return {
    a,
    count: counts[a],
    trials,
    last: counts.length - 1,
    down: number((-factor * trials) / sum(values)),
    up: number(values[a] ? (factor * counts[a]) / values[a] : Infinity),
    result: number(result[a]),
    scale: factor === 1 ? "" : `${number(factor)} · `,
    times: trials === 1 ? "" : `${trials} · `,
    probability: number(probabilitiesOf(state)[a]),
    torch: summary(torch, given.shape),
    rule: summary(result, given.shape),
    epsilon: number(EPSILON),
    dtype: "float64",
  };
}

/** The reason, in words. */
function why(state, torch) {
  const slots = slotsOf(state, torch);
  const many = slots.trials > 1;
  const names = {
    weights: ["weights", many ? "weights_many" : "weights_one"],
    ambient: ["ambient", "ambient_torch"],
    free: ["free", "free_entries"],
    tangent: ["tangent", "tangent_same"],
    "": [many ? "logits_many" : "logits", "logits_drawn"],
  }[state.coordinates];
  const clamped = agrees(state, torch) ? [] : ["clamped"];
  return [...clamped, ...names].map((name) => say(name, slots));
}

/** What stands under the table: the gradient of p where that of log p was asked for, or reversed. */
function note(state, torch) {
  const own = eligibility(state);
  if (own.length > 8 || !own.every(Number.isFinite) || !agrees(state, torch)) return "";
  if (state.of === "prob") return say("note_prob", { eligibility: vector(own) });
  const probability = Math.exp(logProbability(state));
  return say("note_log_prob", { scaled: vector(own.map((entry) => entry * probability)) });
}

/** The wrong expectations that apply: [what one expects, the answer, the worked question]. */
function expectations(state, torch) {
  const found = [];
  if (state.coordinates === "weights" && state.counts.includes(0)) {
    const scaled = ambient(state).map((entry) => factorOf(state) * entry);
    const shown = eligibility(state).every(Number.isFinite) && scaled.length <= 8;
    const numbers = shown ? `, here ${vector(scaled)}` : "";
    found.push([say("expected_zero"), say("answer_zero", { numbers }), 1]);
  }
  if (state.parameter === "logits") found.push([say("expected_same"), say("answer_same"), 4]);
  if (!agrees(state, torch)) {
    const slots = slotsOf(state, torch);
    const shown = torch.length <= 8 ? vector(torch) : "0";
    found.push([say("expected_slope"), say("answer_slope", { ...slots, torch: shown }), 6]);
  }
  return found;
}
