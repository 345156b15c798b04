"use strict";
// The report's ranking: sort and filter. Its table of tuples: sort, search, filter, and details of the selected tuple.
// All data are in SI units, as in the database; people read ms and mJ. Texts are set as text, never as markup.

const SHOWN = matchMedia("(max-width: 40rem)").matches ? 20 : 50;
const UNKNOWN = "-";
const SVG = "http://www.w3.org/2000/svg";

const data = JSON.parse(document.getElementById("data").textContent);
const tuples = data.tuples.map((values, number) => {
  const one = Object.fromEntries(data.fields.map((name, index) => [name, values[index]]));
  one.number = number;
  one.kind = one.operator.slice(one.operator.lastIndexOf(".") + 1);
  one.text = [one.operator, one.parameters, one.inputs, one.input_data, one.flags.join(" ")].join(" ").toLowerCase();
  return one;
});

const byId = (name) => document.getElementById(name);

function element(name, content, settings = {}) {
  const made = document.createElement(name);
  if (content !== undefined) made.append(...[content].flat());
  for (const [key, value] of Object.entries(settings)) made.setAttribute(key, value);
  return made;
}

function drawn(name, settings, content) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(settings)) made.setAttribute(key, value);
  if (content !== undefined) made.textContent = content;
  return made;
}

// Four significant digits and no exponent, as opcost.units writes them.
function significant(value) {
  if (value === 0) return "0";
  const magnitude = Number(value.toExponential(3).split("e")[1]);
  return value.toFixed(Math.min(9, Math.max(0, 3 - magnitude)));
}

const known = (value, text) => (value === null || value === undefined ? UNKNOWN : text(value));
const scaled = (value, scale) => known(value, (number) => significant(number / scale));
const percent = (share, digits = 1) => known(share, (value) => `${(100 * value).toFixed(digits)} %`);
const ratioOf = (part, whole) => (part === null || part === undefined || !whole ? null : part / whole);

const chosen = () => {
  const model = byId("model").value;
  return model === "" ? null : Number(model);
};

// Without a chosen model, each model counts once: one that was compared in several executions must not count twice.
function isCounted(index) {
  const model = chosen();
  return model === null ? data.models[index].is_usual : index === model;
}

function callsOf(one) {
  return one.uses.reduce((calls, [index, number]) => calls + (isCounted(index) ? number : 0), 0) || null;
}

function shareOf(one, whole) {
  const calls = callsOf(one);
  return calls === null || one.time_s === null || one.time_s === undefined ? null : ratioOf(one.time_s * calls, whole);
}

function wholeTime() {
  return data.models.reduce((sum, { full_time_s }, index) => sum + (isCounted(index) ? full_time_s : 0), 0);
}

const COLUMNS = [
  { name: "operator", label: "operator", value: (one) => `${one.operator} ${one.inputs}`, isText: true },
  { name: "time", label: "time (ms)", value: (one) => one.time_s, text: (one) => scaled(one.time_s, 1e-3) },
  { name: "time-error", label: "± time", hides: "wide", value: (one) => ratioOf(one.time_standard_error_s, one.time_s),
    text: (one, value) => percent(value, 2) },
  { name: "energy", label: "energy (mJ)", value: (one) => one.energy_j, text: (one) => scaled(one.energy_j, 1e-3) },
  { name: "energy-error", label: "± energy", hides: "wide", value: (one) => ratioOf(one.energy_standard_error_j, one.energy_j),
    text: (one, value) => percent(value, 2) },
  { name: "power", label: "power (W)", hides: "medium", value: (one) => one.power_w,
    text: (one, value) => known(value, (watts) => watts.toFixed(1)) },
  { name: "calls", label: "calls", hides: "medium", value: callsOf, text: (one, value) => known(value, String) },
  { name: "share", label: "share of time", value: (one) => shares[one.number], text: (one, value) => percent(value, 2) },
  { name: "flops", label: "TFLOP/s", hides: "wide", value: (one) => ratioOf(one.flop || null, one.time_s),
    text: (one, value) => scaled(value, 1e12) },
  { name: "bytes", label: "GB/s", hides: "medium", value: (one) => ratioOf(one.memory_bytes, one.time_s),
    text: (one, value) => scaled(value, 1e9) },
  { name: "intensity", label: "FLOP / byte", hides: "wide", value: (one) => ratioOf(one.flop || null, one.memory_bytes),
    text: (one, value) => known(value, significant) },
  { name: "roof", label: "of the roof, bound by", hides: "wide", value: (one) => one.roof_ratio,
    text: (one, value) => (value === null || value === undefined ? UNKNOWN : `${percent(value, 0)} ${one.side}`) },
  { name: "flags", label: "flags", hides: "medium", value: (one) => one.flags.length, isFlags: true },
];

// Unknown values come last in both directions.
function byFirst(sign) {
  return ([left], [right]) => {
    const unknown = (left === null || left === undefined) - (right === null || right === undefined);
    return unknown || sign * (left < right ? -1 : left > right ? 1 : 0);
  };
}

// A table of the page that is there without a script, too.

function valueOf(cell) {
  const text = cell.textContent;
  if (text === UNKNOWN || !cell.classList.contains("number")) return text === UNKNOWN ? null : text;
  return Number.parseFloat(text.replace(/[~,]/g, ""));
}

function makeSortable(area) {
  const { tHead: { rows: [head] }, tBodies: [body] } = area.querySelector("table");
  const rows = [...body.rows];
  const query = element("input", undefined, { type: "search", placeholder: "resnet", autocomplete: "off" });
  query.addEventListener("input", () => {
    const words = query.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.cells[0].textContent.toLowerCase().includes(word));
  });
  area.before(element("label", ["Models ", query], { class: "filter" }));
  [...head.cells].forEach((cell, place) => {
    const button = element("button", cell.textContent, { type: "button" });
    cell.replaceChildren(button);
    button.addEventListener("click", () => {
      const order = cell.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of head.cells) other.setAttribute("aria-sort", other === cell ? order : "none");
      const found = rows.map((row) => [valueOf(row.cells[place]), row]);
      body.append(...found.sort(byFirst(order === "ascending" ? 1 : -1)).map(([, row]) => row));
    });
  });
}

let shares = [];
let page = 0;
let listed = [];

function matches(one, words, wanted) {
  return words.every((word) => one.text.includes(word))
    && (wanted.model === null || one.uses.some(([index]) => index === wanted.model))
    && (!wanted.kind || one.kind === wanted.kind)
    && (!wanted.side || one.side === wanted.side)
    && (!wanted.flag || one.flags.includes(wanted.flag));
}

function list() {
  const words = byId("query").value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = { model: chosen(), kind: byId("kind").value, side: byId("side").value, flag: byId("flag").value };
  const whole = wholeTime();
  shares = tuples.map((one) => shareOf(one, whole));
  const column = COLUMNS.find(({ name }) => name === byId("sort").value);
  const sign = byId("descending").checked ? -1 : 1;
  const rows = tuples.filter((one) => matches(one, words, wanted)).map((one) => [column.value(one), one]);
  rows.sort(byFirst(sign));
  listed = rows.map(([, one]) => one);
}

function flagsOf(one) {
  return one.flags.map((flag) => element("span", flag, { class: "flag", title: data.flags[flag] }));
}

function nameCell(one) {
  const button = element("button", one.kind, { type: "button" });
  const values = one.input_data === "normal" ? "" : one.input_data;
  const sizes = element("span", [one.parameters, one.inputs, values].filter(Boolean).join("; "), { class: "sizes" });
  return element("th", [button, sizes], { scope: "row" });
}

function cell(column, one) {
  if (column.isText) return nameCell(one);
  if (column.isFlags) return element("td", flagsOf(one), { class: column.hides });
  return element("td", column.text(one, column.value(one)), { class: `number ${column.hides || ""}` });
}

function show() {
  const pages = Math.max(1, Math.ceil(listed.length / SHOWN));
  page = Math.min(page, pages - 1);
  const rows = listed.slice(page * SHOWN, (page + 1) * SHOWN).map((one) => {
    const row = element("tr", COLUMNS.map((column) => cell(column, one)), { "data-number": one.number });
    return row;
  });
  byId("rows").replaceChildren(...rows);
  const share = listed.reduce((sum, one) => sum + (shares[one.number] || 0), 0);
  const parts = `${percent(share)} of the selected models' time`;
  byId("count").textContent = `${listed.length} of ${tuples.length} tuples, ${parts}`;
  byId("page").textContent = `page ${page + 1} of ${pages}`;
  byId("previous").disabled = page === 0;
  byId("following").disabled = page === pages - 1;
  const order = byId("descending").checked ? "descending" : "ascending";
  for (const head of byId("columns").children) {
    head.setAttribute("aria-sort", head.dataset.column === byId("sort").value ? order : "none");
  }
}

function update() {
  page = 0;
  list();
  show();
}

function turn(by) {
  page += by;
  show();
  byId("count").scrollIntoView();
}

// Largest first for figures, A to Z for names; selecting the same column again reverses the order.
function sortBy(column) {
  const isSame = byId("sort").value === column.name;
  byId("descending").checked = isSame ? !byId("descending").checked : !column.isText;
  byId("sort").value = column.name;
  update();
}

// One tuple

function pairs(entries) {
  const shown = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", shown.flatMap(([name, value]) => [element("dt", name), element("dd", String(value))]));
}

const withError = (value, error, scale, unit) => known(value, (number) => {
  const half = error === null || error === undefined ? "" : ` ± ${percent(ratioOf(error, value), 2)}`;
  return `${significant(number / scale)} ${unit}${half}`;
});

function figuresOf(one) {
  const rate = ratioOf(one.flop || null, one.time_s);
  const roof = known(one.roof_ratio, (share) => `${percent(share)} of the roof, on the ${one.side} side`);
  return pairs([
    ["time of one call", withError(one.time_s, one.time_standard_error_s, 1e-3, "ms")],
    ["energy of one call", one.energy_j === null ? `unknown: ${one.energy_missing_reason || "not measured"}`
      : withError(one.energy_j, one.energy_standard_error_j, 1e-3, "mJ")],
    ["energy at 50 °C", one.energy_at_reference_j ? `${scaled(one.energy_at_reference_j, 1e-3)} mJ` : null],
    ["power", known(one.power_w, (watts) => `${watts.toFixed(1)} W`)],
    ["compute", one.flop ? `${scaled(one.flop, 1e9)} GFLOP, ${scaled(rate, 1e12)} TFLOP/s` : one.flop === null ? "unknown FLOPs" : "no counted FLOPs"],
    ["memory", `${scaled(one.memory_bytes, 1e6)} MB, ${scaled(ratioOf(one.memory_bytes, one.time_s), 1e9)} GB/s`],
    ["roofline", roof],
    ["values", one.measured_on && one.measured_on !== one.input_data
      ? `${one.measured_on} (the model's: ${one.input_data})` : one.input_data],
  ]);
}

function trace(one) {
  if (!one.trace) {
    const log = one.power_log
      ? `the log ${one.power_log} is not in the database's power_logs (if they are packed: unpack them, and write the report again)`
      : "its row names no log";
    return element("p", one.time_s === null ? "No power trace: not measured." : `No power trace: ${log}.`);
  }
  const { axes, lines, window: span } = one.trace;
  const [[timeLabel, time], [powerLabel, power]] = axes.map((index) => data.axes[index]);
  const [left, top, right, bottom] = [40, 30, 388, 200];
  const across = (position) => left + (position / 1000) * (right - left);
  const up = (position) => bottom - (position / 1000) * (bottom - top);
  const figure = drawn("svg", { viewBox: `0 0 400 ${bottom + 40 + 18 * lines.length}`, class: "figure trace", role: "img",
    "aria-label": "Power during the measurement" });
  const add = (...settings) => figure.append(drawn(...settings));
  if (span) {
    add("rect", { class: "window", x: across(span[0]), y: top, width: across(span[1]) - across(span[0]), height: bottom - top });
  }
  add("text", { x: 2, y: top - 10, class: "name" }, powerLabel);
  add("text", { x: (left + right) / 2, y: bottom + 33, class: "name", "text-anchor": "middle" }, timeLabel);
  for (const [position, text] of time) {
    add("path", { class: "grid", d: `M${across(position)} ${top}V${bottom}` });
    add("text", { x: across(position), y: bottom + 15, "text-anchor": "middle" }, text);
  }
  for (const [position, text] of power) {
    add("path", { class: "grid", d: `M${left} ${up(position)}H${right}` });
    add("text", { x: left - 5, y: up(position) + 4, "text-anchor": "end" }, text);
  }
  add("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` });
  lines.forEach(([name, positions], number) => {
    const values = positions.split(" ").map(Number);
    const points = values.map((value, index) => (index % 2 ? up(value) : across(value)).toFixed(1));
    add("path", { class: `line${number}`, d: `M${points.join(" ")}` });
    const height = bottom + 50 + 18 * number;
    add("path", { class: `line${number}`, d: `M40 ${height}h28` });
    add("text", { x: 74, y: height + 4 }, data.lines[name]);
  });
  if (span) add("text", { x: (across(span[0]) + across(span[1])) / 2, y: top - 10, "text-anchor": "middle" }, "measured");
  const caption = one.flags.includes("duty cycle")
    ? "It ran with pauses, since the power limit would have throttled it. The trace is the mean of work and pauses; the "
      + "operator's power, that of its work alone, is higher."
    : "The mean power in the marked window is the operator's power. It should be level: a slope or a step there is a "
      + "reason for doubt.";
  return element("figure", [figure, element("figcaption", caption)]);
}

function usesOf(one) {
  const head = element("tr", ["model", "calls", "share of its time", ""].map((name) => element("th", name, { scope: "col" })));
  const rows = one.uses.map(([index, calls, isSummed]) => {
    const { label, full_time_s: whole } = data.models[index];
    const share = ratioOf(one.time_s === null ? null : one.time_s * calls, whole);
    const texts = [String(calls), percent(share, 2), isSummed ? "" : "not in the sum"];
    return element("tr", [element("th", label, { scope: "row" }), ...texts.map((text) => element("td", text))]);
  });
  return element("table", [element("thead", head), element("tbody", rows)]);
}

function conditionsOf(one) {
  if (one.time_s === null) return [];
  const facts = data.facts.map((name, index) => [name, one.facts[index]]);
  const under = [...data.conditions[one.conditions], ...data.circumstances[one.circumstances]];
  return [
    element("h3", "Flags and notes"),
    element("p", one.measured_flags || "no flags"),
    element("p", one.facts[data.facts.indexOf("notes")] || "no notes"),
    element("h3", "The measurement"),
    pairs([["key", one.key], ...facts.filter(([name]) => name !== "notes"), ["power_log", one.power_log]]),
    element("h3", "Conditions and circumstances"),
    pairs(under),
  ];
}

function mark(one) {
  document.querySelectorAll(".chosen").forEach((ring, number) => {
    const position = one.positions[number];
    ring.setAttribute("visibility", position ? "visible" : "hidden");
    if (position) {
      ring.setAttribute("cx", position[0]);
      ring.setAttribute("cy", position[1]);
    }
  });
}

function open(one) {
  byId("tuple-title").textContent = `${one.operator}(${one.parameters}) on (${one.inputs})`;
  const meanings = one.flags.map((flag) => element("p", [element("span", flag, { class: "flag" }), ` ${data.flags[flag]}`]));
  byId("tuple-content").replaceChildren(
    ...meanings, figuresOf(one), trace(one), element("h3", "Models that use it"), usesOf(one), ...conditionsOf(one));
  mark(one);
  byId("tuple").showModal();
  byId("tuple").scrollTop = 0;
}

// A click near a mark of a roofline selects its tuple.
function openNearest(figure, number, event) {
  const field = figure.getBoundingClientRect();
  const scale = 400 / field.width;
  const [x, y] = [(event.clientX - field.left) * scale, (event.clientY - field.top) * scale];
  const near = tuples.filter((one) => one.positions[number])
    .map((one) => [Math.hypot(one.positions[number][0] - x, one.positions[number][1] - y), one])
    .sort(([left], [right]) => left - right)[0];
  if (near && near[0] < 8) open(near[1]);
}

function fill(select, entries) {
  byId(select).append(...entries.map(([value, text]) => element("option", text, { value })));
}

function start() {
  fill("model", data.models.map(({ label }, index) => [index, label]));
  fill("kind", [...new Set(tuples.map(({ kind }) => kind))].sort().map((kind) => [kind, kind]));
  fill("flag", Object.keys(data.flags).filter((flag) => tuples.some(({ flags }) => flags.includes(flag))).map((one) => [one, one]));
  fill("sort", COLUMNS.map(({ name, label }) => [name, label]));
  byId("sort").value = "share";
  byId("columns").append(...COLUMNS.map((column) => {
    const button = element("button", column.label, { type: "button" });
    button.addEventListener("click", () => sortBy(column));
    const kind = column.isText || column.isFlags ? "" : "number";
    return element("th", button, { scope: "col", "data-column": column.name, class: `${kind} ${column.hides || ""}`.trim() });
  }));
  byId("filters").addEventListener("input", update);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("previous").addEventListener("click", () => turn(-1));
  byId("following").addEventListener("click", () => turn(1));
  byId("rows").addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row) open(tuples[Number(row.dataset.number)]);
  });
  document.querySelectorAll("svg:has(> .chosen)").forEach((figure, number) => {
    figure.addEventListener("click", (event) => openNearest(figure, number, event));
  });
  document.querySelectorAll(".sortable").forEach(makeSortable);
  // On paper, nothing can be unfolded.
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  update();
}

start();
