/* The controls: what the reader enters becomes a state, and the page follows it. */

const form = document.getElementById("controls");
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
