/* The recorded steps once more: forwards with the reader's numbers, and backwards with gradients. */

const EPSILON = 2 ** -52; // torch clamps probabilities of float64 to [EPSILON, 1 − EPSILON]

const each = (values, f) => values.map((value, k) => f(value, k));
/** `value` as many times as `like` has entries, if it has only one. */
const spread = (value, like) => (value.length === like.length ? value : like.map(() => value[0]));

/* For each operation its value, and what it hands on to each input for an arriving gradient g.
   `x` and `y` are the inputs, `f` the value. An operation with one recorded input has a constant
   for the other one: the counts in a product, the logarithm of the coefficient in a sum. */
const OPERATIONS = {
  Sum: { value: ({ x }) => [sum(x)], back: ({ x, g }) => [x.map(() => g[0])] },
  Div: {
    value: ({ x, y }) => each(x, (v, k) => v / spread(y, x)[k]),
    back: ({ x, y, g }) => [
      each(g, (v, k) => v / spread(y, x)[k]),
      [sum(each(g, (v, k) => (-v * x[k]) / spread(y, x)[k] ** 2))],
    ],
  },
  Clamp: {
    value: ({ x }) => each(x, (v) => Math.min(Math.max(v, EPSILON), 1 - EPSILON)),
    back: ({ x, g }) => [each(g, (v, k) => (x[k] >= EPSILON && x[k] <= 1 - EPSILON ? v : 0))],
  },
  Log: { value: ({ x }) => each(x, Math.log), back: ({ x, g }) => [each(g, (v, k) => v / x[k])] },
  Exp: { value: ({ x }) => each(x, Math.exp), back: ({ f, g }) => [each(g, (v, k) => v * f[k])] },
  Logsumexp: {
    value: ({ x }) => [Math.max(...x) + Math.log(sum(x.map((v) => Math.exp(v - Math.max(...x)))))],
    back: ({ x, f, g }) => [each(x, (v) => g[0] * Math.exp(v - f[0]))],
  },
  Sub: {
    value: ({ x, y }) => each(x, (v, k) => v - spread(y, x)[k]),
    back: ({ y, g }) => [g, y.length === g.length ? each(g, (v) => -v) : [-sum(g)]],
  },
  Gather: {
    value: ({ x, state }) => [x[state.counts.indexOf(1)]],
    back: ({ x, g, state }) => [each(x, (_, k) => (state.counts[k] === 1 ? g[0] : 0))],
  },
  Mul: {
    value: ({ x, state }) => each(x, (v, k) => (state.counts[k] ? v * state.counts[k] : 0)),
    back: ({ g, state }) => [each(g, (v, k) => v * state.counts[k])],
  },
  Add: {
    value: ({ x, state }) => [x[0] + logCoefficient(state.counts)],
    back: ({ g }) => [g],
  },
  Squeeze: { value: ({ x }) => x, back: ({ g }) => [g] },
  Clone: { value: ({ x }) => x, back: ({ g }) => [g] },
  IndexPut: { value: ({ x }) => x, back: ({ g }) => [g] },
};

const operationOf = (step) => OPERATIONS[step.operation.replace(/Backward\d*$/, "")];

/** Whether every recorded step is an operation that is known here. */
function canWalk(record) {
  return record.steps.every((step) => operationOf(step) !== undefined && step.inner.length === 0);
}

/** The value and the gradients of every step: key -> numbers, keys as in the page. */
function walk(record, state) {
  const [leaf] = record.leaves;
  const values = { [leaf.id]: state.values };
  const shown = {};
  const context = (step, g) => ({
    x: values[step.edges[0].target],
    y: step.edges.length > 1 ? values[step.edges[1].target] : undefined,
    f: values[step.id],
    g,
    state,
  });
  for (const step of record.steps) values[step.id] = operationOf(step).value(context(step));
  const arrived = { [record.steps[record.steps.length - 1].id]: [1] };
  const contributions = {};
  for (const step of [...record.steps].reverse()) {
    const g = arrived[step.id];
    shown[`${step.id}.value`] = values[step.id];
    shown[`${step.id}.gradient`] = g;
    operationOf(step).back(context(step, g)).forEach((handed, index) => {
      const { target } = step.edges[index];
      shown[`${step.id}.edge.${index}`] = handed;
      if (target === leaf.id) contributions[step.id] = handed;
      const before = arrived[target];
      arrived[target] = before ? each(before, (v, k) => v + handed[k]) : handed;
    });
  }
  leaf.contributions.forEach((part, index) => {
    shown[`${leaf.id}.contribution.${index}`] = contributions[part.step];
  });
  shown[`${leaf.id}.value`] = state.values;
  shown[`${leaf.id}.gradient`] = arrived[leaf.id];
  return shown;
}
