/* Elements and tables, as eligibility/explanation/page/tables.py makes them. */

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
  const categories = table.tBodies[0].rows.length;
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
