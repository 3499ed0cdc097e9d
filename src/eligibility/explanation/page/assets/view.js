/* The controls, and the page that follows them. Text is set as text, never as HTML. */

const page = JSON.parse(document.getElementById("explanation").textContent);
const { record, statements } = page;
const form = document.getElementById("controls");
const [parameter, given] = record.subject.parameters[0];
const categories = given.values.length;
const sectionOf = (name) => document.querySelector(`[data-section=${name}]`);
const field = (name, k) => form.elements.namedItem(`${name}-${k}`);

/** The state that the record was made for. */
function givenState() {
  const { family, outcome, coordinates, of } = record.subject;
  const entries = (numbers) => numbers.values.map(Number);
  const counts =
    family === "Categorical"
      ? given.values.map((_, k) => (outcome.values[0] === k ? 1 : 0))
      : entries(outcome);
  return { parameter, of, coordinates, values: entries(given), counts };
}

/* Making elements. */

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function makeBar(value, [low, high]) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const shapes = [
    ["axis", 0, 8, 10],
    [value < 0 ? "down" : "up", 2, 0, 6],
  ];
  const at = (v) => (1000 * (Math.min(Math.max(v, low), high) - low)) / (high - low);
  const [zeroAt, end] = [at(0), at(value)];
  for (const [name, y, width, height] of shapes) {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const isAxis = name === "axis";
    const place = {
      class: name,
      x: (isAxis ? zeroAt - 4 : Math.min(zeroAt, end)).toFixed(1),
      y,
      width: isAxis ? width : Math.abs(end - zeroAt).toFixed(1),
      height,
    };
    for (const [key, v] of Object.entries(place)) rect.setAttribute(key, v);
    svg.append(rect);
  }
  const frame = { class: "bar", viewBox: "-4 0 1008 10", preserveAspectRatio: "none" };
  for (const [key, v] of Object.entries(frame)) svg.setAttribute(key, v);
  svg.setAttribute("aria-hidden", "true");
  return svg;
}

const GRADIENTS = ["contribution", "gradient", "convention"];

function scaleOf(columns) {
  const values = columns.filter((c) => GRADIENTS.includes(c.role)).flatMap((c) => c.values);
  const finite = values.filter((v) => v !== null && v !== undefined && Number.isFinite(v));
  const [low, high] = [Math.min(0, ...finite), Math.max(0, ...finite)];
  return high > low ? [low, high] : [0, 1];
}

/** Fills a table of the page with other columns; its caption and axis stay. */
function fillTable(table, columns, selected) {
  const scale = scaleOf(columns);
  const axis = table.tHead.rows[0].cells[0];
  const titles = columns.map((column) =>
    make("th", { scope: "col", role: "columnheader", class: column.role }, column.title),
  );
  table.tHead.rows[0].replaceChildren(axis, ...titles);
  const rows = Array.from({ length: categories }, (_, k) => {
    const header = make("th", { scope: "row", role: "rowheader" }, String(k));
    if (selected.includes(k)) header.append(make("span", { class: "drawn" }, "drawn"));
    const cells = columns.map(({ title: label, role, values }) => {
      const value = k < values.length ? values[k] : null;
      const write = role === "outcome" ? number : cell;
      const text =
        value === null
          ? make("span", { class: "number" })
          : make("data", { class: "number", value: String(value) }, write(value));
      const data = make("td", { role: "cell", class: role, "data-label": label }, text);
      const drawsBar = value !== null && !Number.isNaN(value);
      if (drawsBar && GRADIENTS.includes(role)) data.append(makeBar(value, scale));
      if (drawsBar && role === "probability") data.append(makeBar(value, [0, 1]));
      return data;
    });
    const attributes = selected.includes(k) ? { role: "row", class: "selected" } : { role: "row" };
    return make("tr", attributes, header, ...cells);
  });
  table.tBodies[0].replaceChildren(...rows);
}

/** Text with `backticks` as code. */
function paragraph(text) {
  const parts = text.split(/`([^`]*)`/);
  return make("p", {}, ...parts.map((part, i) => (i % 2 ? make("code", {}, part) : part)));
}

/* The sections. */

function showGradient(state, shown) {
  const [leaf] = record.leaves;
  const summands =
    state.coordinates === "" || state.coordinates === "weights"
      ? leaf.contributions.map((part, i) => ({
          title: part.through,
          role: "contribution",
          values: shown[`${leaf.id}.contribution.${i}`],
        }))
      : [{ title: "torch's rule", role: "convention", values: shown[`${leaf.id}.gradient`] }];
  const columns = [
    { title: parameter, role: "parameter", values: state.values },
    { title: "probability", role: "probability", values: probabilitiesOf(state) },
    { title: "drawn", role: "outcome", values: state.counts },
    ...summands,
    { title: "gradient", role: "gradient", values: gradientOf(state) },
  ];
  const selected = state.counts.flatMap((count, k) => (count ? [k] : []));
  const section = sectionOf("gradient");
  fillTable(section.querySelector("table"), columns, selected);
  const old = section.querySelector(".note");
  const text = note(state);
  if (old) old.textContent = text;
  else if (text) section.querySelector(".table").append(make("p", { class: "aside note" }, text));
}

function showSteps(shown) {
  for (const node of document.querySelectorAll("[data-key]")) {
    const values = shown[node.dataset.key];
    const shape = shapeOf(node.dataset.key);
    const whole = summary(values, shape);
    const most = Number(node.dataset.most ?? Infinity);
    node.textContent = whole.length > most ? summary(values, shape, 0) : whole;
  }
}

/** The shape that the record gives to a quantity of the page. */
const shapes = new Map();
function shapeOf(key) {
  return shapes.get(key);
}

function rememberShapes() {
  const [leaf] = record.leaves;
  shapes.set(`${leaf.id}.value`, leaf.value.shape).set(`${leaf.id}.gradient`, leaf.gradient.shape);
  leaf.contributions.forEach((part, i) => {
    shapes.set(`${leaf.id}.contribution.${i}`, part.gradient.shape);
  });
  for (const step of record.steps) {
    shapes.set(`${step.id}.value`, step.value?.shape ?? []);
    shapes.set(`${step.id}.gradient`, step.gradient?.shape ?? []);
    step.edges.forEach((edge, i) => shapes.set(`${step.id}.edge.${i}`, edge.gradient?.shape ?? []));
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
  document.title = heading;
  document.querySelector("h1").textContent = heading;
  const sentences = why(state).map((sentence) => make("p", {}, sentence));
  sectionOf("why").querySelector(".lede").replaceChildren(...sentences);
  showGradient(state, shown);
  showSteps(shown);
  showRule(state);
  showChecks(state, torch);
  showExpected(state, torch);
}

/* The controls. */

let state = givenState();

/** The other way to say entry k: the log of a weight, or the probability of a logit. */
function otherOf(current, k) {
  if (parameter === "probs") return Math.log(current.values[k]);
  return probabilitiesOf(current)[k];
}

/** The entry k that the other way to say it stands for. */
function ownFromOther(current, k, other) {
  if (parameter === "probs") return Math.exp(other);
  const rest = current.values.filter((_, j) => j !== k);
  const largest = Math.max(...rest);
  const logRest = largest + Math.log(sum(rest.map((logit) => Math.exp(logit - largest))));
  return Math.log(other / (1 - other)) + logRest;
}

/** Writes the state into every control but the one that is being edited. */
function showControls(except) {
  const put = (control, value) => {
    if (control !== except) control.value = Number.isFinite(value) ? number(value) : "";
  };
  state.values.forEach((value, k) => {
    const slider = field("slider", k);
    if (value > Number(slider.max)) slider.max = value;
    if (value < Number(slider.min)) slider.min = value;
    put(slider, value);
    put(field("own", k), value);
    put(field("other", k), otherOf(state, k));
  });
}

/** What is wrong with a state, or "". */
function problemOf({ values, counts, of }) {
  if (!values.every(Number.isFinite)) return "Every entry must be a finite number.";
  if (parameter === "probs" && values.some((weight) => weight < 0)) {
    return "A weight cannot be negative.";
  }
  if (parameter === "probs" && sum(values) === 0) return "At least one weight must be positive.";
  if (!counts.every((count) => Number.isInteger(count) && count >= 0 && count <= 99)) {
    return "A count is a whole number from 0 to 99.";
  }
  if (sum(counts) === 0) return "At least one draw is needed.";
  if (of === "prob" && counts.some((count, k) => count > 0 && values[k] === 0)) {
    return "The gradient of prob needs an outcome that can happen.";
  }
  return "";
}

function read(target) {
  const next = { ...state, values: [...state.values], counts: [...state.counts] };
  const [name, index] = target.name.split("-");
  const k = Number(index);
  const value = target.value.trim() === "" ? NaN : Number(target.value);
  if (name === "slider" || name === "own") next.values[k] = value;
  if (name === "other") next.values[k] = ownFromOther(state, k, value);
  if (name === "count") next.counts[k] = value;
  if (name === "drawn") next.counts = next.counts.map((_, j) => (j === value ? 1 : 0));
  if (name === "coordinates") next.coordinates = target.value;
  return next;
}

function change(event) {
  const next = read(event.target);
  const problem = problemOf(next);
  document.getElementById("problem").textContent = problem;
  event.target.setAttribute("aria-invalid", problem ? "true" : "false");
  if (problem) return;
  state = next;
  showControls(event.target);
  show(state);
}

if (canWalk(record)) {
  rememberShapes();
  form.hidden = false;
  showControls(null);
  form.addEventListener("input", change);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("button").addEventListener("click", () => {
    form.reset();
    state = givenState();
    document.getElementById("problem").textContent = "";
    for (const control of form.elements) control.removeAttribute("aria-invalid");
    showControls(null);
    show(state);
  });
}
