// Memory: a map of the arena over the sequence of kernels, states by length, and the memory plan as a table.

const PLAN = ["value", "kernel", "line", "bytes", "per_token", "place", "offset", "first", "last", "leaves", "in_place", "over"];
const planRows = (r) => (r.memory?.rows || []).map((x) => Object.fromEntries(PLAN.map((key, i) => [key, x[i]])));

/** `at`: the kernel during which the most bytes are live. */
function memoryMap(rows, kernels, size, at) {
  const width = Math.max(1150, Math.min(4200, kernels * 10)), height = 380, left = 70, bottom = 26;
  const x = (k) => left + ((width - left) * k) / kernels, y = (offset) => height - bottom - ((height - bottom - 10) * offset) / size;
  const root = s("svg", { class: "map", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "arena over the schedule", id: "arena" });
  for (let i = 0; i <= 4; i++)
    root.append(s("line", { class: "block-line", x1: left, x2: width, y1: y((size * i) / 4), y2: y((size * i) / 4) }), s("text", { x: left - 6, y: y((size * i) / 4) + 4, "text-anchor": "end" }, bytes((size * i) / 4)));
  root.append(s("rect", { class: "peak", x: x(at), y: 10, width: Math.max(2, x(at + 1) - x(at)), height: height - bottom - 10 }));
  const every = Math.ceil(kernels / (width / 60));
  for (let k = 0; k < kernels; k += every) root.append(s("text", { x: x(k), y: height - 8 }, k));
  rows.forEach((r, i) => {
    const node = s("rect", { x: x(r.first), y: y(r.offset + r.bytes), width: Math.max(1, x(r.last + 1) - x(r.first)), height: Math.max(1, y(r.offset) - y(r.offset + r.bytes)), fill: kindColour(r.kernel), "fill-opacity": r.in_place ? 0.55 : 0.9, "data-value": r.value });
    node.addEventListener("click", () => r.line && go(lineLink(r.line)));
    root.append(tipped(node, () => `${r.value} of ${r.kernel} (line ${r.line})\n${bytes(r.bytes)} a token at ${r.offset}\nkernels ${r.first} to ${r.last}${r.in_place ? "\nin the place of a value that its kernel reads" : ""}${r.over >= 0 ? `\nwhere ${planRows(R)[r.over].value} was` : ""}`));
  });
  return root;
}
const hash = (text) => [...text.replace(/\d+$/, "")].reduce((a, c) => (a * 31 + c.charCodeAt(0)) >>> 0, 7);

/** For each kernel, the bytes that are live while it runs, from the rows of the plan. */
function aliveBytes(rows, kernels) {
  const change = new Float64Array(kernels + 2);
  for (const r of rows) {
    const first = r.first + (r.in_place ? 1 : 0);
    if (first > r.last) continue;
    change[first] += r.bytes;
    change[r.last + 1] -= r.bytes;
  }
  let now = 0;
  return Array.from({ length: kernels }, (_, k) => (now += change[k]));
}

function stateRows(m) {
  const groups = new Map();
  for (const x of m.states) {
    const key = `${x.name.replace(/\d+/g, "*")}|${x.kind}|${x.type}`;
    const g = groups.get(key) || { ...x, name: x.name.replace(/\d+/g, "*"), n: 0 };
    g.n++;
    groups.set(key, g);
  }
  return [...groups.values()];
}

function memoryRoom(room) {
  const m = R.memory;
  if (!m || !m.placed) return void room.append(card("Memory", {}, h("p", { class: "empty" }, "There is no memory plan at this stage.")));
  const rows = planRows(R), arena = rows.filter((r) => r.place === "arena"), alive = aliveBytes(arena, m.kernels);
  const peak = Math.max(...alive), at = alive.indexOf(peak), grid = h("div", { class: "grid" });
  room.append(grid);
  grid.append(h("div", { class: "tiles" },
    tile(bytesOf(m.arena_bytes_per_token), "arena per token of a chunk", `${(m.arena_bytes_per_token_without_reuse / Math.max(1, m.arena_bytes_per_token)).toFixed(1)} times less than without reuse`),
    tile(bytesOf(peak), "alive at the most", `while kernel ${at} runs`), tile(bytesOf(m.fixed_bytes), "values without tokens"), tile(String(rows.length), "values", `of ${m.kernels} kernels`)));
  grid.append(card("The arena over the schedule", {}, h("p", { class: "note" }, "Kernels in the order in which they run, from left to right; offsets upwards. A box is a value from the kernel that makes it to the last that reads it; boxes on top of each other in time would be an error. The bar behind them is the kernel while which most is alive."),
    h("div", { class: "figure" }, memoryMap(arena, m.kernels, Math.max(1, m.arena_bytes_per_token), at))));
  grid.append(card("A session by length", { class: "span6" }, lengthBars(R), h("div", { style: { "margin-top": ".7rem" } }, legend([["var(--p0)", "caches"], ["var(--p2)", "fixed"], ["var(--p1)", "arena"]]))));
  grid.append(card("States", { class: "span6", id: "states" }, h("div", { class: "scroll" }, table([{ name: "state" }, { name: "kind" }, { name: "type" }, { name: "number", n: 1 }, { name: "bytes each", n: 1 }],
    stateRows(m).map((x) => ({ cells: [x.name, x.kind, h("code", null, x.type), x.n, bytes(x.bytes) + (x.per_position ? " a position" : "")] }))))));
  const list = new VirtualList(26, (i) => {
    const r = rows[i];
    return h("div", { class: "row plan", onclick: () => r.line && go(lineLink(r.line)) }, [r.value, r.kernel, bytes(r.bytes) + (r.per_token ? "" : " once"), `${r.place}[${r.offset}]`, r.leaves ? `${r.first}–` : `${r.first}–${r.last}`, r.over >= 0 ? `over ${rows[r.over].value}` : ""].map((x) => h("span", null, x)));
  }, { style: { height: "28rem" }, id: "plan" });
  list.set(rows.length);
  grid.append(card("The plan", {}, h("div", { class: "row plan plan-head" }, ["value", "made by", "bytes a token", "place", "kernels", ""].map((x) => h("span", null, x))), list.box));
}
