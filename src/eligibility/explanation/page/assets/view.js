/* The sections of the page, for the reader's numbers. All text is set as text; the only markup is the
   MathML of the equations, which the page brings with it. */

const { record, statements, sentences } = JSON.parse(document.getElementById("explanation").textContent);
const [parameter, given] = record.subject.parameters[0];
/* What follows the controls: the whole page, or one backward pass of a script. */
const root = document.getElementById("controls").closest("[data-root]");
const sectionOf = (name) => root.querySelector(`[data-section=${name}]`);

/** key -> the shape that the record gives to those numbers. */
function shapesOf({ leaves, steps }) {
  const found = new Map();
  const note = (key, numbers) => found.set(key, numbers?.shape ?? []);
  for (const leaf of leaves) {
    note(`${leaf.id}.value`, leaf.value);
    note(`${leaf.id}.gradient`, leaf.gradient);
    leaf.contributions.forEach((part, i) => note(`${leaf.id}.contribution.${i}`, part.gradient));
  }
  for (const step of steps) {
    note(`${step.id}.value`, step.value);
    note(`${step.id}.gradient`, step.gradient);
    step.edges.forEach((edge, i) => note(`${step.id}.edge.${i}`, edge.gradient));
  }
  return found;
}

const SHAPES = shapesOf(record);

function showGradient(state, shown) {
  const [leaf] = record.leaves;
  const torch = shown[`${leaf.id}.gradient`];
  const agreed = agrees(state, torch);
  const summands =
    isTorchs(state)
      ? leaf.contributions.map((part, i) => ({
          title: part.through,
          role: "contribution",
          values: shown[`${leaf.id}.contribution.${i}`],
        }))
      : [{ title: "torch's rule", role: "convention", values: torch }];
  const columns = [
    { title: parameter, role: "parameter", values: state.values },
    { title: "probability", role: "probability", values: probabilitiesOf(state) },
    { title: "drawn", role: "outcome", values: state.counts },
    ...summands,
    { title: "gradient", role: "gradient", values: agreed ? gradientOf(state) : torch },
    ...(agreed ? [] : [{ title: "by the rule", role: "convention", values: gradientOf(state) }]),
  ];
  const selected = state.counts.flatMap((count, k) => (count ? [k] : []));
  const section = sectionOf("gradient");
  fillTable(section.querySelector("table"), columns, selected);
  const old = section.querySelector(".note");
  const text = note(state, torch);
  if (old) old.textContent = text;
  else if (text) section.querySelector(".table").append(make("p", { class: "aside note" }, text));
}

function showSteps(shown) {
  for (const node of root.querySelectorAll("[data-key]")) {
    const values = shown[node.dataset.key];
    const shape = SHAPES.get(node.dataset.key);
    const whole = summary(values, shape);
    const most = Number(node.dataset.most ?? Infinity);
    node.textContent = whole.length > most ? summary(values, shape, 0) : whole;
  }
}

function showRule(state) {
  const statement = statements[state.coordinates];
  const section = sectionOf("rule");
  // MathML made by this library from its own rules; the page holds no other markup.
  section.querySelector("[data-live=equation]").innerHTML = statement.equation;
  section.querySelector("[data-live=reference]").textContent = statement.reference;
  const parts = summands(state);
  const numbers = {
    value: () => outcomeSummary(state),
    [parameter]: () => summary(state.values, given.shape),
    probability: () => number(Math.exp(logProbability(state))),
  };
  const shape = [parts[0].length];
  const terms = statement.terms.flatMap(([symbol, kind, meaning]) => {
    const isSummand = kind === "summand";
    const text = isSummand ? summary(parts.shift(), shape) : numbers[meaning]();
    const named = isSummand
      ? make("dt", {}, symbol)
      : make("dt", {}, make("var", {}, symbol), ` = ${meaning}`);
    return [named, make("dd", {}, make("output", { class: "numbers" }, text))];
  });
  const result = make("output", { class: "numbers result" }, summary(gradientOf(state), shape));
  section
    .querySelector(".terms")
    .replaceChildren(...terms, make("dt", {}, "gives"), make("dd", {}, result));
  const table = section.querySelector(".table table");
  if (table) {
    const columns = record.rules[0].conventions.columns.map((column) => ({
      title: column.title,
      role: "convention",
      values: eligibility(state, column.title),
    }));
    fillTable(table, columns, []);
  }
}

function outcomeSummary(state) {
  const { family, outcome } = record.subject;
  return summary(family === "Categorical" ? [state.counts.indexOf(1)] : state.counts, outcome.shape);
}

function showChecks(state, torch) {
  const items = checksOf(state, torch).map(([statement, deviation, tolerance]) => {
    const passed = deviation <= tolerance;
    const sign = passed ? "≤" : "not within";
    const detail = `off by ${scientific(deviation)} ${sign} ${scientific(tolerance)}`;
    return make(
      "li",
      { class: passed ? "passes" : "fails" },
      make("span", { "aria-hidden": "true", class: "mark" }, passed ? "✓" : "✗"),
      make("span", { class: "spoken" }, passed ? "passes: " : "fails: "),
      make("span", { class: "statement" }, statement),
      " ",
      make("span", { class: "aside" }, detail),
    );
  });
  sectionOf("checks").querySelector(".checks").replaceChildren(...items);
}

function showExpected(state, torch) {
  let section = sectionOf("expected");
  if (section === null) {
    const name = "You expected";
    section = make("section", { "data-section": "expected", "aria-label": name }, make("h2", {}, name));
    sectionOf("checks").after(section);
  }
  const found = expectations(state, torch).map(([text, answer, question]) =>
    make(
      "div",
      { class: "expectation" },
      make("p", {}, make("em", {}, text)),
      paragraph(`${answer} More: \`eligibility explain --question ${question}\``),
    ),
  );
  section.replaceChildren(section.firstElementChild, ...found);
  section.hidden = found.length === 0;
}

function show(state) {
  const shown = walk(record, state);
  const torch = shown[`${record.leaves[0].id}.gradient`];
  const heading = title(record, state);
  const line = root.querySelector("h1, [data-live=title]");
  line.textContent = heading;
  if (line.tagName === "H1") document.title = heading;
  const sentences = why(state, torch).map((sentence) => make("p", {}, sentence));
  sectionOf("why").querySelector(".lede").replaceChildren(...sentences);
  showGradient(state, shown);
  showSteps(shown);
  showRule(state);
  showChecks(state, torch);
  showExpected(state, torch);
}
