// Parts that the views of the page share. Elements are made one by one with text as text, so that no name of a
// model is ever parsed as HTML.

function make(node, attrs, children) {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}
const h = (tag, attrs, ...children) => make(document.createElement(tag), attrs, children);
const s = (tag, attrs, ...children) => make(document.createElementNS("http://www.w3.org/2000/svg", tag), attrs, children);
/** Adds those children that are not empty. */
const add = (node, ...children) => make(node, null, children);
const $ = (id) => document.getElementById(id);

// ---- numbers ----
const group = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
function scaled(n, base, units) {
  let i = 0;
  while (Math.abs(n) >= base && i + 1 < units.length) (n /= base), i++;
  const digits = i === 0 && Number.isInteger(n) ? 0 : Math.abs(n) >= 100 ? 0 : Math.abs(n) >= 10 ? 1 : 2;
  return [n.toFixed(digits), units[i]];
}
const countOf = (n) => scaled(n, 1000, ["", "k", "M", "G", "T", "P"]);
const bytesOf = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const count = (n) => countOf(n).join("");
const rate = (n) => countOf(n).join("\u202f") + "FLOP/s";
const bytes = (n) => bytesOf(n).join("\u202f");
const time = (ns) => scaled(ns, 1000, ["ns", "µs", "ms", "s"]).join("\u202f");
const units = (x) => (x === 0 ? "0" : x.toFixed(x >= 100 ? 1 : 3)) + "\u202fd";
const hex = (n) => "0x" + n.toString(16);
const percent = (x) => (100 * x).toFixed(x < 0.1 ? 1 : 0) + "\u202f%";
const plural = (n, one, many) => `${group(n)} ${n === 1 ? one : many || one + "s"}`;

// ---- parts ----
const card = (title, attrs, ...children) => h("section", { class: "card " + (attrs?.class || ""), id: attrs?.id }, title && h("h2", null, title), ...children);
function tile(value, label, sub) {
  const [number, unit] = Array.isArray(value) ? value : [value, ""];
  return h("div", { class: "tile" }, h("b", null, number, unit && h("small", null, unit)), h("span", null, label), sub && h("span", { class: "sub" }, sub));
}
function table(columns, rows, attrs) {
  return h("table", { class: "table", ...attrs },
    h("thead", null, h("tr", null, columns.map((c) => h("th", { class: c.n ? "n" : null, scope: "col" }, c.name)))),
    h("tbody", null, rows.map((r) => h("tr", { class: r.go ? "link" : null, tabindex: r.go ? 0 : null, onclick: r.go, onkeydown: r.go && ((e) => e.key === "Enter" && r.go()), "data-row": r.id, title: r.title },
      r.cells.map((c, i) => h("td", { class: columns[i].n ? "n" : null }, c))))));
}
function bar(label, parts, most, value, attrs) {
  const total = parts.reduce((a, p) => a + p.size, 0);
  return h("div", { class: "bar " + (attrs?.class || ""), "data-bar": attrs?.id },
    h("span", { class: "label", title: attrs?.title || (typeof label === "string" ? label : null) }, label),
    h("span", { class: "track", style: { width: Math.max(0.3, (100 * total) / (most || 1)) + "%" } },
      parts.filter((p) => p.size > 0).map((p) => tipped(h("i", { style: { flex: p.size + " 0 0", background: p.colour } }), p.tip))),
    h("span", { class: "value" }, value));
}
const legend = (items) => h("div", { class: "legend" }, items.map(([colour, text]) => h("span", null, h("i", { style: { background: colour } }), text)));
const tabs = (items, chosen, choose) => h("div", { class: "tabs", role: "group" }, items.map(([id, text]) =>
  h("button", { type: "button", "aria-pressed": String(id === chosen), onclick: () => choose(id) }, text)));

/** Adds a tooltip: a text, or a function that makes the text when it is shown. */
function tipped(node, text) {
  if (!text) return node;
  const show = (e) => {
    const tip = $("tip");
    tip.textContent = typeof text === "function" ? text(node) : text;
    tip.hidden = !tip.textContent;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (e.clientY + 18 + box.height > innerHeight ? e.clientY - box.height - 10 : e.clientY + 18) + "px";
  };
  node.addEventListener("mousemove", show);
  node.addEventListener("mouseleave", hideTip);
  return node;
}
const hideTip = () => ($("tip").hidden = true);

/** A list that has elements only for the visible rows. Keyboard: arrows, Home and End move a cursor, Enter clicks. */
class VirtualList {
  constructor(height, draw, attrs) {
    this.height = height;
    this.draw = draw; // (index) => element
    this.inner = h("div");
    this.box = h("div", { class: "virtual ir", tabindex: 0, ...attrs }, this.inner);
    this.n = 0;
    this.shown = new Map();
    this.cursor = -1;
    this.box.addEventListener("keydown", (e) => this.onKey(e));
    this.box.addEventListener("scroll", () => this.update(), { passive: true });
    new ResizeObserver(() => this.update()).observe(this.box);
  }
  set(n) {
    this.n = n;
    this.cursor = Math.min(this.cursor, n - 1);
    this.inner.style.height = n * this.height + "px";
    this.inner.replaceChildren();
    this.shown.clear();
    this.update();
  }
  update() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - 8);
    const last = Math.min(this.n, Math.ceil((this.box.scrollTop + (this.box.clientHeight || 800)) / this.height) + 8);
    for (const [i, node] of this.shown)
      if (i < first || i >= last) node.remove(), this.shown.delete(i);
    for (let i = first; i < last; i++) {
      if (this.shown.has(i)) continue;
      const node = this.draw(i);
      node.style.top = i * this.height + "px";
      node.classList.toggle("cursor", i === this.cursor);
      this.inner.append(node);
      this.shown.set(i, node);
    }
  }
  /** The element of a visible row that reacts to clicks and the mouse: the later side of a pair. */
  handle(i) {
    const node = this.shown.get(i);
    return node && (node.querySelector(".cell.after[data-op]") || node.querySelector(".cell[data-op]") || node);
  }
  onKey(e) {
    const last = this.n - 1, at = this.cursor, inSight = Math.ceil(this.box.scrollTop / this.height);
    const to = { ArrowDown: at < 0 ? inSight : at + 1, ArrowUp: at < 0 ? inSight : at - 1, Home: 0, End: last }[e.key];
    if (e.key === "Enter" && at >= 0) return void this.handle(at)?.click();
    if (to === undefined || last < 0) return;
    e.preventDefault();
    this.cursor = Math.max(0, Math.min(last, to));
    this.show(this.cursor);
    for (const [i, node] of this.shown) node.classList.toggle("cursor", i === this.cursor);
    this.handle(this.cursor)?.dispatchEvent(new MouseEvent("mouseenter"));
  }
  show(i) {
    const top = i * this.height;
    if (top < this.box.scrollTop || top > this.box.scrollTop + this.box.clientHeight - 3 * this.height)
      this.box.scrollTop = Math.max(0, top - this.box.clientHeight / 3);
    this.update();
  }
}

/** A picture of a matrix of numbers, with its labels; null: an empty cell. */
function heat(matrix, rows, columns, tip, most) {
  const size = Math.max(2, Math.min(20, Math.floor(560 / Math.max(columns.length, 1)))), labelled = size >= 9;
  const longest = Math.max(...rows.map((x) => x.length), 1), left = labelled ? 12 + 7 * longest : 0;
  const deepest = Math.max(...columns.map((x) => x.length), 1), top = labelled ? 14 + 7 * deepest : 0;
  const peak = most || Math.max(1e-9, ...matrix.flat().filter((x) => x !== null).map(Math.abs));
  const ratio = Math.min(3, devicePixelRatio || 1), width = left + columns.length * size, height = top + rows.length * size;
  const canvas = h("canvas", { width: width * ratio, height: height * ratio, style: { width: width + "px", "aspect-ratio": `${width} / ${height}` }, role: "img", "aria-label": "matrix" });
  const paint = () => {
    const c = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const dark = document.documentElement.dataset.theme === "dark", gap = size > 4 ? 1 : 0;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.fillStyle = style.getPropertyValue("--raised");
    c.fillRect(left, top, width - left, height - top);
    matrix.forEach((row, y) => row.forEach((x, i) => {
      if (x === null) return;
      const t = Math.min(1, Math.sqrt(Math.abs(x) / peak)), hue = x < 0 ? 350 : 205;
      c.fillStyle = dark ? `hsl(${hue} 85% ${10 + 62 * t}%)` : `hsl(${hue} 75% ${96 - 58 * t}%)`;
      c.fillRect(left + i * size, top + y * size, size - gap, size - gap);
    }));
    if (!labelled) return;
    c.fillStyle = style.getPropertyValue("--dim");
    c.font = "10px system-ui, sans-serif";
    c.textAlign = "right";
    rows.forEach((text, y) => c.fillText(text, left - 6, top + (y + 0.5) * size + 3.5));
    c.textAlign = "left";
    columns.forEach((text, i) => {
      c.save();
      c.translate(left + (i + 0.5) * size + 3.5, top - 5);
      c.rotate(-Math.PI / 2);
      c.fillText(text, 0, 0);
      c.restore();
    });
  };
  paint();
  painters.push(paint);
  return track(canvas, (e) => {
    const box = canvas.getBoundingClientRect(), scale = width / box.width;
    const i = Math.floor(((e.clientX - box.left) * scale - left) / size), y = Math.floor(((e.clientY - box.top) * scale - top) / size);
    const x = matrix[y]?.[i];
    return x === null || x === undefined ? null : tip(y, i, x);
  });
}
/** A tooltip that depends on where the mouse is. */
function track(node, text) {
  let now = null;
  node.addEventListener("mousemove", (e) => {
    now = text(e);
    if (!now) hideTip();
  });
  return tipped(node, () => now || "");
}
function matrixFigure(title, note, matrix, rows, columns, what, most) {
  const canvas = heat(matrix, rows, columns, (y, i, x) => `${what(rows[y], columns[i])}\n${x.toPrecision(4)}`, most);
  return card(title, { class: "span6" }, h("p", { class: "note", style: { "margin-bottom": ".6rem" } }, note), h("div", { class: "figure" }, canvas));
}
let painters = []; // functions that draw canvases of the current view; they are called again when the palette changes

const phaseColour = (i) => `var(--p${i % 9})`;
/** The text of a row of IR, with its parts coloured. */
const irText = (stage, row, of = history) => of.pieces(stage, row).map(([c, text]) => (text ? h("span", { class: c }, text) : null));
const place = (l) => (l ? `${l.file}:${l.line}:${l.column}` : "");
