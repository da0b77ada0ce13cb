// Depth: which sublayer reads which source in which phase, and the weights that the model gives the sources.

/** The sources, in the order in which they are made. */
function depthColumns(d) {
  const columns = [], seen = new Set();
  for (const row of d.rows) for (const x of row.sources) if (!seen.has(x)) seen.add(x), columns.push(x);
  const begin = (x) => (x.startsWith("e") ? (x === "e" ? -1 : 0) : parseInt(x, 10)), end = (x) => parseInt(x.split("-").pop(), 10) || 0;
  return columns.sort((x, y) => end(x) - end(y) || begin(y) - begin(x));
}

function blockCosts(r) {
  const out = new Map();
  for (const a of r.ledger?.kernels?.accesses || []) {
    if (a.phase.startsWith("producer")) continue;
    const b = out.get(a.block) || { bytes: 0, kernels: new Map() };
    b.bytes += a.bytes;
    b.kernels.set(a.line, a.op);
    out.set(a.block, b);
  }
  return out;
}

const lineLink = (line) => {
  const row = history?.layout(history.last).of_line.get(line);
  return row === undefined ? null : opLink(history.op(history.last, row));
};

function depthPicture(d, costs) {
  const columns = depthColumns(d), index = new Map(columns.map((c, i) => [c, i]));
  const size = Math.max(5, Math.min(20, Math.floor(760 / columns.length))), step = d.rows.length > 120 ? 7 : d.rows.length > 60 ? 11 : 18;
  const longest = Math.max(...columns.map((c) => c.length)), turned = longest * 6.5 > size;
  const narrow = innerWidth < 640, left = narrow ? 46 : 250, top = turned ? 24 + longest * 5 : 34, width = left + columns.length * size + 150, height = top + d.rows.length * step + 8;
  const root = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "depth map", id: "depth-map" });
  const every = Math.ceil(14 / size);
  columns.forEach((c, i) => {
    const x = left + (i + 0.5) * size;
    if (i % every === 0) root.append(s("text", turned ? { transform: `translate(${x + 3} ${top - 6}) rotate(-52)` } : { x, y: top - 8, "text-anchor": "middle" }, c));
  });
  let block = 0;
  d.rows.forEach((row, r) => {
    const y = top + r * step, g = s("g", { class: "depth-row", "data-sublayer": row.sublayer });
    g.setAttribute("tabindex", r ? -1 : 0);
    if (row.block !== block) root.append(s("line", { class: "block-line", x1: 0, x2: width, y1: y, y2: y }));
    if (row.block !== block && row.sublayer) {
      const cost = costs.get(row.block);
      root.append(s("text", { x: left + columns.length * size + 12, y: y + 11 }, `block ${row.block}${cost ? ` · ${bytes(cost.bytes)}` : ""}`));
    }
    block = row.block;
    g.append(s("rect", { class: "hit", x: 0, y, width: left + columns.length * size, height: step }));
    if (step >= 11) {
      const label = narrow ? "" : row.name.length > 34 ? "…" + row.name.slice(-33) : row.name;
      g.append(s("text", { x: left - 38, y: y + step - 5, "text-anchor": "end" }, row.sublayer ? label : narrow ? "" : "output"), s("text", { x: left - 8, y: y + step - 5, "text-anchor": "end", class: "strong" }, row.sublayer || (narrow ? "out" : "")));
    }
    for (let k = 0; k < row.sources.length; ) {
      const two = row.phase_1 + row.partial > 0, kind = two ? (k < row.sources.length - row.direct ? "phase1" : "live") : "direct";
      const first = index.get(row.sources[k]);
      let n = 1;
      if (size < 8) while (k + n < row.sources.length && index.get(row.sources[k + n]) === first + n && (!two || k + n < row.sources.length - row.direct === k < row.sources.length - row.direct)) n++;
      g.append(s("rect", { class: "depth-cell " + kind, x: left + first * size + 1, y: y + 1, width: n * size - 2, height: step - 2, rx: size > 9 ? 3 : 1, "data-source": row.sources[k], "data-n": n }));
      k += n;
    }
    tipped(g, () => [row.sublayer ? `sublayer ${row.sublayer}: ${row.name}` : "the program's output", `reads ${row.sources.join(", ")}`,
      row.kernel && `${row.kernel} (line ${row.line}): ${[[row.phase_1, "with phase 1"], [row.partial, "partial mixes"], [row.streams, "streams"], [row.direct, "alone"]].filter((x) => x[0]).map((x) => `${x[0]} ${x[1]}`).join(", ")}`].filter(Boolean).join("\n"));
    const link = row.line ? lineLink(row.line) : null;
    if (link) g.addEventListener("click", () => go(link));
    root.append(g);
  });
  // the rows are one stop of the tab key; arrow keys move between rows
  root.addEventListener("keydown", (e) => {
    const rows = [...root.querySelectorAll(".depth-row")], at = rows.indexOf(document.activeElement);
    if (e.key === "Enter") rows[at]?.dispatchEvent(new MouseEvent("click"));
    const next = rows[at + ({ ArrowDown: 1, ArrowUp: -1 }[e.key] ?? NaN)];
    if (!next) return;
    e.preventDefault();
    rows[at].setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });
  return root;
}

/** Output, input and stream of each sublayer, as large as they are: of several inputs or streams the root mean square of all. */
function magnitudes(d) {
  const all = (list) => (list.length ? Math.sqrt(list.reduce((a, x) => a + x * x, 0) / list.length) : null);
  const kinds = [["stream", "var(--p2)", (row) => all(row.stream)], ["input", "var(--p1)", (row) => all(row.input)], ["output", "var(--p0)", (row) => row.output]];
  const every = Math.ceil(d.rows.length / 30), place = (row) => (row.sublayer ? String(row.sublayer) : "head");
  const tip = (row, what, v) => `${row.sublayer ? `sublayer ${row.sublayer}: ${row.name}` : "what the head reads"}\n${what} ${what === "output" ? v.toPrecision(4) : row[what].map((z) => z.toPrecision(4)).join(", ")}`;
  return chart({
    id: "magnitudes", label: "magnitudes by depth", name: "sublayer", from: -0.5, to: d.rows.length - 0.5,
    ticks: d.rows.map((row, i) => [i, place(row)]).filter((t) => t[0] % every === 0),
    curves: kinds.map(([what, colour, of]) => ({ name: what, colour, wide: what === "output", dots: true, points: d.rows.map((row, i) => [i, of(row), () => tip(row, what, of(row)), { "data-what": what, "data-place": place(row) }]) })),
  });
}

/** A row of a matrix, "13" or "13 (2)", the second of its inputs; a column, "12", "e" or "1-4". */
const sublayerNamed = (label) => (sublayers.get(parseInt(label, 10)) ? `sublayer ${label}: ${sublayers.get(parseInt(label, 10))}` : label === "out" ? "the program's output" : `sublayer ${label}`);
const sourceNamed = (label) => (/^\d+$/.test(label) && sublayers.get(+label) ? `${label}: ${sublayers.get(+label)}` : label);
const passNote = () => passSpans() && h("p", { class: "note", "data-passes": "" }, `Layers that run several times, by sublayers: ${passSpans()}.`);

function depthRoom(room) {
  const d = R.depth;
  if (!d || !d.rows.length) return void room.append(card("Depth", {}, h("p", { class: "empty" }, "This program has no residual stream.")));
  const costs = blockCosts(R), grid = h("div", { class: "grid" });
  room.append(grid);
  grid.append(card("Who reads what", { id: "depth" },
    h("p", { class: "note" }, `${recognised(R).join(" · ")}. e is the embedding, 3 the output of sublayer 3, 1-4 a sum of outputs. A click leads to the kernel.`),
    passNote(),
    h("div", { style: { margin: ".6rem 0" } }, legend([["var(--p0)", "finished, read once for the block (phase 1)"], ["var(--p1)", "live, merged (phase 2)"], ["var(--p3)", "read by the sublayer itself"]])),
    h("div", { class: "figure" }, depthPicture(d, costs))));
  if (R.heatmap) {
    const rows = R.heatmap.rows;
    grid.append(matrixFigure("Weights of the mixes", `mean of ${plural(R.heatmap.tokens, "token")}; rows read, columns are sources`, rows.map((r) => r.mean), rows.map((r) => r.label), R.heatmap.columns, (r, c) => `${sublayerNamed(r)}\nreads ${sourceNamed(c)}`, R.heatmap.normalized ? 1 : 0));
  }
  if (R.mixing)
    grid.append(matrixFigure("Mixing matrix", `how much of each output arrives in each input, mean of ${plural(R.mixing.tokens, "token")}; semiseparable rank ${R.mixing.rank}`, R.mixing.mean, R.mixing.rows, R.mixing.columns, (r, c) => `${sublayerNamed(r)}\noutput of ${sourceNamed(c)}`));
  const picture = R.by_depth && magnitudes(R.by_depth);
  if (picture)
    grid.append(card("Magnitudes by depth", {},
      h("p", { class: "note" }, `root mean square over ${plural(R.by_depth.tokens, "token")} and all channels: what sublayers give, what they read before their norm, and the stream before them`),
      h("div", { style: { margin: ".6rem 0" } }, legend([["var(--p0)", "output"], ["var(--p1)", "input"], ["var(--p2)", "stream"]])), picture));
  if (!R.heatmap && !R.mixing)
    grid.append(card("Weights of the mixes", {}, h("p", { class: "note" }, "Shown for a report made with --weights and --tokens.")));
  const two = d.phase_1.filter((b) => b.kernel);
  if (two.length)
    grid.append(card("Blocks", { id: "blocks" }, h("div", { class: "scroll" }, table(
      [{ name: "block", n: 1 }, { name: "kernel of phase 1" }, { name: "sources", n: 1 }, { name: "mixes", n: 1 }, { name: "moved a token", n: 1 }],
      d.phase_1.map((b) => ({ id: b.block, go: b.line ? () => go(lineLink(b.line)) : null, cells: [b.block, b.kernel || "one phase", b.sources, b.mixes, costs.has(b.block) ? bytes(costs.get(b.block).bytes) : ""] }))))));
}
