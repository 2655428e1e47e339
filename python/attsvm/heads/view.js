"use strict";
// State: the head, sentence and query that are shown, and the order of rivals.  show() makes every change.
const data = JSON.parse(document.getElementById("data").textContent);
const at = { head: data.start, sentence: 0, query: null, order: 1 };
const byId = (id) => document.getElementById(id);
const SIGNS = ["", "◌", "●", "○"];
const ROLES = ["It does not count", "It counts, and was not drawn", "It trained the SVM", "It was held out"];

function make(tag, attributes, ...children) {
  const svg = tag === "line";
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

// A token as readable text: signs stand for the space before it (a mark of GPT-2 and SentencePiece) and for line ends.
const shown = (token) => token.replace(/^[Ġ▁]/, "·").replace(/[Ċ\n]/g, "⏎") || "∅";
const token = (text) => make("span", { class: "token", title: text }, shown(text));
const quoted = (text) => "“" + shown(text) + "”";
const percent = (thousandths) => (thousandths / 10).toFixed(1) + "\u00a0%";
function digits(value, most = 3) {
  if (value === null) return "–";
  const size = Math.abs(value);
  return size >= 0.01 && size < 1000 ? value.toPrecision(most) : String(Number(value.toPrecision(most)));
}

const head = () => data.heads[at.head];
const sentence = () => data.texts[head().text].sentences[at.sentence];
const keys = () => sentence().keys;
const queries = () => sentence().queries || keys();
const cases = () => head().cases[at.sentence];

function query(q) {
  const found = cases()[q];
  if (!found) return null;
  const [selected, role, flat, rivals, taken, margin, decimals, shares] = found;
  const attention = new Map();
  for (let i = 0; i < flat.length; i += 2) attention.set(flat[i], flat[i + 1]);
  const values = flat.filter((_, i) => i % 2);
  const below = values.length === 24 ? values[23] : 5;
  return { selected, role, attention, below, rivals, taken, margin, decimals, shares };
}

const usable = () => cases().map((_, q) => q).filter((q) => cases()[q]);

function fill(select, options, value) {
  select.replaceChildren(...options.map(([key, text]) => make("option", { value: key }, text)));
  select.value = value;
}

function first() {
  // The first query to show: one with support tokens, else one that counts, else any.
  const score = (q) => {
    const found = query(q);
    const held = found.rivals.reduce((sum, rival) => sum + rival[3], 0);
    return held + (found.role > 1) * 1e-3 + (found.role > 0) * 1e-6 + (found.attention.get(found.selected) || 0) * 1e-12;
  };
  return usable().reduce((best, q) => (best === null || score(q) > score(best) ? q : best), null);
}

// The map of all heads, one row for each layer.
function showHeads() {
  const { by, largest, cells } = data.map;
  byId("heads").hidden = cells.length < 2;
  byId("by-what").textContent = "A row is a layer, a column a head; the darker, the larger: " + by + ", at most " +
    largest + ". A dashed frame: most of its attention is parked on the first token or the end.";
  const columns = [...new Set(cells.map((cell) => cell[1]))].sort((a, b) => a - b);
  const layers = [...new Set(cells.map((cell) => cell[0]))].sort((a, b) => a - b);
  const grid = byId("grid");
  grid.style.gridTemplateColumns = "max-content repeat(" + columns.length + ", minmax(0, 3.2rem))";
  const name = (text, row, column) => {
    const found = make("span", { "aria-hidden": "true" }, text);
    found.style.gridArea = row + " / " + column;
    return found;
  };
  const names = [...layers.map((layer, i) => name("L" + layer, i + 2, 1)),
    ...columns.map((number, i) => name("H" + number, 1, i + 2))];
  grid.replaceChildren(...names, ...cells.map(([layer, number, name, place, level, parked, text]) => {
    const active = place === at.head;
    const cell = make("button", { type: "button", "data-head": place, "aria-pressed": active, tabindex: active ? 0 : -1,
      title: text, "aria-label": text, class: parked ? "parked" : null,
      disabled: place < 0 ? "" : null });
    cell.style.gridArea = layers.indexOf(layer) + 2 + " / " + (columns.indexOf(number) + 2);
    cell.style.setProperty("--p", (level / 10).toFixed(1) + "%");
    return cell;
  }));
}

function showChoice() {
  const layers = [...new Set(data.heads.map((one) => one.layer))];
  const own = data.heads.map((one, i) => [i, one]).filter(([, one]) => one.layer === head().layer);
  fill(byId("layer"), layers.map((layer) => [layer, String(layer)]), head().layer);
  fill(byId("head"), own.map(([i, one]) => [i, String(one.number)]), at.head);
  const titled = (one) => one.index + (one.title ? ": " + one.title : "");
  const listed = data.texts[head().text].sentences.map((one, i) => [i, titled(one)]);
  byId("kind").textContent = sentence().kind;
  fill(byId("sentence"), listed, at.sentence);
  const module = head().module ? ", " + head().module : "";
  const cross = head().kind === "cross" ? " (cross-attention)" : "";
  const [, , name, , , , said] = data.map.cells.find((cell) => cell[3] === at.head);
  byId("about").textContent = name + module + cross + said.slice(name.length) + head().support;
  byId("space").textContent = data.spaces[head().space];
  showHeads();
  showNames();
}

// A table of the directions of the head's own W and of its SVM, side by side.
function showNames() {
  const { directions, svm } = head();
  byId("beside").hidden = !svm.length;
  const said = ([name, part] = ["", null]) => (name && shown(name)) + (part === null ? "" : " (" + part + "\u00a0%)");
  const header = ["", "own W", "the SVM’s W"].map((name) => make("th", { scope: "col", class: "word" }, name));
  const rows = svm.map((one, i) => make("tr", {}, make("td", {}, String(i)),
    ...[directions[i], one].map((direction) => make("td", { class: "word" }, said(direction)))));
  byId("names").replaceChildren(make("thead", {}, make("tr", {}, ...header)), make("tbody", {}, ...rows));
}

function showColumns() {
  byId("queries").replaceChildren(...queries().map((text, q) => {
    const found = query(q);
    if (!found) return make("li", {}, make("span", { class: "none" }, token(text), make("span", { class: "sign" })));
    const holds = found.rivals.some((rival) => rival[3] > 0) ? "◆" : "";
    const sign = make("span", { class: "sign", "aria-hidden": "true" }, SIGNS[found.role] + holds);
    const label = shown(text) + ", query " + q + ". " + ROLES[found.role] + ".";
    const active = q === at.query;
    const button = make("button", { type: "button", "data-query": q, "aria-pressed": active, "aria-label": label,
      tabindex: active ? 0 : -1 }, token(text), sign);
    return make("li", {}, button);
  }));
  const found = at.query === null ? null : query(at.query);
  const rank = new Map((found ? ordered(found) : []).map((rival, i) => [rival[0], [i + 1, rival[3]]]));
  byId("keys").replaceChildren(...keys().map((text, t) => {
    const item = make("li", { "data-token": t }, token(text));
    if (found && t === found.selected) item.firstChild.classList.add("selected");
    if (rank.has(t)) {
      const [number, multiplier] = rank.get(t);
      item.append(make("span", { class: "badge", title: "rival " + number }, String(number)));
      if (multiplier > 0) item.append(make("span", { class: "diamond", title: "support token" }, "◆"));
    }
    return item;
  }));
}

function showLines() {
  const svg = byId("lines");
  const rows = Math.max(queries().length, keys().length);
  byId("columns").classList.toggle("long", rows > 24);
  svg.setAttribute("viewBox", "0 0 100 " + rows);
  svg.style.height = "calc(var(--row) * " + rows + ")";
  const lines = [];
  const line = (q, t, attributes) => make("line", { x1: 0, y1: q + 0.5, x2: 100, y2: t + 0.5, ...attributes });
  for (const q of usable()) {
    if (q === at.query) continue;
    for (const [t, p] of query(q).attention) {
      if (p >= 20) lines.push(line(q, t, { "stroke-opacity": (p / 1000 * 0.3).toFixed(3) }));
    }
  }
  if (at.query !== null) {
    const found = query(at.query);
    for (const rival of found.rivals) {
      if (rival[3] > 0) lines.push(line(at.query, rival[0], { class: "support" }));
    }
    for (const [t, p] of found.attention) {
      lines.push(line(at.query, t, { class: "active", "data-token": t, "stroke-opacity": (p / 1000).toFixed(3) }));
    }
  }
  svg.replaceChildren(...lines);
}

// The patches of an image at their places.  The list of queries has the same content for screen readers.
function showMap() {
  const map = byId("map");
  const { columns, before, image } = sentence();
  map.classList.toggle("image", Boolean(image));
  map.hidden = !columns;
  if (!columns || at.query === null) return map.replaceChildren();
  const found = query(at.query);
  const nearest = ordered(found).map((rival) => rival[0]);
  map.style.gridTemplateColumns = "repeat(" + columns + ", 1fr)";
  map.setAttribute("aria-label", "Attention of " + queries()[at.query] + " on the patches of the image");
  const picture = image ? [make("img", { src: image, alt: "" })] : [];
  map.replaceChildren(...picture, ...keys().slice(before).map((name, i) => {
    const t = i + before;
    const p = found.attention.get(t) || 0;
    const kind = t === found.selected ? "selected" : nearest.includes(t) ? "rival" : null;
    const own = !sentence().queries && t === at.query ? "query" : null;
    const cell = make("div", { title: name + ": " + percent(p), "data-token": t, class: [kind, own].filter(Boolean).join(" ") });
    cell.style.setProperty("--p", (p / 10).toFixed(1) + "%");
    return cell;
  }));
}

function ordered(found) {
  // Without an SVM, rivals are ordered by the margin of the own W.
  const by = (rival) => rival[at.order] ?? rival[2] ?? Infinity;
  return [...found.rivals].sort((a, b) => by(a) - by(b));
}

function showPanel() {
  const found = at.query === null ? null : query(at.query);
  byId("order").hidden = !found || !found.rivals.some((rival) => rival[1] !== null);
  for (const id of ["rivals", "shares", "sum", "role", "call"]) byId(id).replaceChildren();
  if (!found) {
    byId("says").textContent = "This head attends to nothing here.";
    return;
  }
  const p = found.attention.get(found.selected);
  const most = p === undefined ? "the most" : percent(p);
  byId("says").textContent = quoted(queries()[at.query]) + " (" + at.query + ") selects " +
    quoted(keys()[found.selected]) + " (" + found.selected + ") with " + most + " of its attention";
  byId("role").textContent = ROLES[found.role] + ".";
  if (!found.rivals.length) {
    byId("role").textContent = "It sees no other token, so that there is nothing to select.";
    return;
  }
  const names = ["", "rival", "attention", "SVM", "own W", "support"];
  const header = make("tr", {}, ...names.map((name) => make("th", { scope: "col", class: name === "rival" ? "word" : null }, name)));
  const rows = ordered(found).map(([t, svm, own, multiplier], i) => {
    const p = found.attention.has(t) ? percent(found.attention.get(t)) : "< " + percent(found.below);
    const held = multiplier > 0 ? "◆ " + digits(multiplier, 2) + "\u00a0%" : "";
    const word = make("td", { class: "word" }, token(keys()[t]), " (" + t + ")");
    const cells = [p, digits(svm), digits(own), held].map((text) => make("td", {}, text));
    return make("tr", { "data-token": t }, make("td", {}, String(i + 1)), word, ...cells);
  });
  byId("rivals").replaceChildren(make("thead", {}, header), make("tbody", {}, ...rows));
  showShares(found);
  const python = "attsvm.heads.why(report, " + sentence().index + ", " + at.query + ")";
  byId("call").append("The same in Python: ", make("code", {}, python), " with the report of " + head().name + ".");
}

// The name of a direction, for the row below it.
function named(direction) {
  const [name, part, damage, random] = head().directions[direction] || [];
  if (!name) return [];
  const loss = typeof damage === "number"
    ? ", damage " + digits(damage, 2) + " (random direction " + digits(random, 2) + ")" : "";
  const title = part === null ? null : part + " % of the mean margin of this head’s choices";
  return [make("tr", {}, make("td", { class: "word fine", colspan: 4, title }, shown(name) + loss))];
}

function showShares(found) {
  const fixed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(found.decimals);
  const parts = [];
  let rest = found.margin;
  for (let i = 0; i < found.shares.length; i += 3) {
    const [direction, value, share] = found.shares.slice(i, i + 3);
    parts.push([direction, digits(value), share]);
    rest -= share;
  }
  rest = Number(rest.toFixed(found.decimals));
  if (rest !== 0) parts.push(["all others", "", rest]);
  const largest = Math.max(...parts.map((part) => Math.abs(part[2])), 1e-12);
  const whose = found.taken ? "the SVM’s W" : "the head’s own W";
  const margin = (found.taken ? 1 : 2);
  const nearest = found.rivals.reduce((best, rival) => (rival[margin] < best[margin] ? rival : best));
  byId("sum").textContent = "Ahead of " + quoted(keys()[nearest[0]]) + " (" + nearest[0] + ") by " +
    found.margin.toFixed(found.decimals) + ": shares of the directions of " + whose;
  const names = [["", "word"], ["singular value", null], ["", "bars"], ["share", null]];
  const header = make("tr", {}, ...names.map(([name, kind]) => make("th", { scope: "col", class: kind }, name)));
  const rows = parts.flatMap(([direction, value, share]) => {
    const below = named(direction);
    const name = typeof direction === "number" ? "direction " + direction : direction;
    const bar = make("div", { class: share < 0 ? "bar minus" : "bar" });
    bar.style.width = (100 * Math.abs(share) / largest).toFixed(1) + "%";
    const cells = [make("td", { class: "bars" }, bar), make("td", {}, fixed(share))];
    return [make("tr", { class: below.length ? "above" : null }, make("td", { class: "word" }, name),
      make("td", {}, value), ...cells), ...below];
  });
  const sum = make("tr", {}, make("td", { class: "word", colspan: 3 }, "together, the margin"),
    make("td", {}, fixed(found.margin)));
  byId("shares").replaceChildren(make("thead", {}, header), make("tbody", {}, ...rows), make("tfoot", {}, sum));
}

function show(change, focus) {
  const before = { ...at };
  Object.assign(at, change);
  at.sentence = Math.min(at.sentence, data.texts[head().text].sentences.length - 1);
  const moved = before.head !== at.head || before.sentence !== at.sentence;
  if (at.query === null || !cases()[at.query]) at.query = first();
  if (moved || change.all) showChoice();
  showColumns();
  showLines();
  showMap();
  showPanel();
  if (focus) byId("queries").querySelector('[aria-pressed="true"]')?.focus();
  remember();
}

// The address holds the state, so that a link shows the same query; a page in a notebook has no address.
function remember() {
  const words = "#head=" + head().name + "&sentence=" + sentence().index + "&query=" + at.query;
  try { history.replaceState(null, "", words); } catch { /* inside a notebook */ }
}

function recall() {
  const given = new URLSearchParams(location.hash.slice(1));
  const named = data.heads.findIndex((one) => one.name === given.get("head"));
  if (named >= 0) at.head = named;
  const listed = data.texts[head().text].sentences.findIndex((one) => String(one.index) === given.get("sentence"));
  at.sentence = Math.max(listed, 0);
  const asked = given.has("query") ? Number(given.get("query")) : null;
  at.query = asked !== null && cases()[asked] ? asked : null;
  if (given.get("order") === "own") at.order = 2;
  document.querySelector('[name=order][value="' + at.order + '"]').checked = true;
  show({ all: true });
}

function step(list, current, by) {
  const i = list.indexOf(current);
  return list[Math.min(Math.max(i + by, 0), list.length - 1)];
}

const KEYS = {
  ArrowDown: ["query", 1], j: ["query", 1], ArrowUp: ["query", -1], k: ["query", -1],
  ArrowRight: ["head", 1], ArrowLeft: ["head", -1], n: ["sentence", 1], p: ["sentence", -1],
};
document.addEventListener("keydown", (event) => {
  const asked = KEYS[event.key];
  if (!asked || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("select, input")) return;
  event.preventDefault();
  const [what, by] = asked;
  const lists = { query: usable(), head: data.heads.map((_, i) => i),
    sentence: data.texts[head().text].sentences.map((_, i) => i) };
  show({ [what]: step(lists[what], at[what], by) }, what === "query");
});
byId("layer").addEventListener("change", (event) => {
  const layer = Number(event.target.value);
  const own = data.heads.map((one, i) => [i, one]).filter(([, one]) => one.layer === layer);
  show({ head: (own.find(([, one]) => one.number === head().number) || own[0])[0] });
});
byId("head").addEventListener("change", (event) => show({ head: Number(event.target.value) }));
byId("sentence").addEventListener("change", (event) => show({ sentence: Number(event.target.value), query: null }));
byId("grid").addEventListener("click", (event) => {
  const place = Number(event.target.dataset?.head ?? -1);
  if (place >= 0) show({ head: place, query: null });
});
byId("choose").addEventListener("submit", (event) => event.preventDefault());
byId("map").addEventListener("click", (event) => {
  const q = Number(event.target.dataset.token);
  if (!sentence().queries && cases()[q]) show({ query: q });
});
byId("order").addEventListener("change", (event) => show({ order: Number(event.target.value) }));
for (const kind of ["pointerover", "focusin", "click"]) {
  byId("queries").addEventListener(kind, (event) => {
    const button = event.target.closest("button");
    if (!button || Number(button.dataset.query) === at.query) return;
    show({ query: Number(button.dataset.query) }, kind !== "pointerover");
  });
}
window.addEventListener("hashchange", recall);
recall();
