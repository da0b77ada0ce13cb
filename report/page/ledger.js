// Ledger: what the residual mechanism reads and writes, by pass and by phase, beside the closed forms.

function phaseNames() {
  const seen = [];
  for (const stage of history?.changed || []) for (const p of stageUnits(stage)?.phases || []) if (!seen.includes(p.name)) seen.push(p.name);
  return seen;
}
const isCharged = (name) => !name.startsWith("producer");

/** The ops of the kernels that belong to a phase, with the bytes that they move. */
function opsOfPhase(name) {
  const by = new Map();
  for (const a of R.ledger.kernels?.accesses || []) {
    if (a.phase !== name) continue;
    const x = by.get(a.op) || { bytes: 0, lines: new Set() };
    x.bytes += a.bytes;
    x.lines.add(a.line);
    by.set(a.op, x);
  }
  return [...by].sort((x, y) => y[1].bytes - x[1].bytes);
}
const phaseTip = (name) => () => [name, ...opsOfPhase(name).slice(0, 12).map(([op, x]) => `${op}: ${bytes(x.bytes)} a token${x.lines.size > 1 ? `, ${x.lines.size} kernels` : ""}`)].join("\n");

function passBars() {
  const names = phaseNames().filter(isCharged);
  const rows = (history?.changed || []).map((stage) => ({ stage, u: stageUnits(stage) })).filter((x) => x.u);
  const shown = rows.filter((x, i) => !i || Math.abs(x.u.total - rows[i - 1].u.total) > 1e-9 || x.stage === history.last);
  const most = Math.max(...shown.map((x) => x.u.total), 1e-9);
  return shown.map(({ stage, u }) => bar(h("a", { href: `#pass=${encodeURIComponent(stage.id)}` }, stage.before ? stage.pass : "as written"),
    u.phases.filter((p) => isCharged(p.name)).map((p) => ({ size: p.read + p.written, colour: phaseColour(names.indexOf(p.name)), tip: `${stage.pass}: ${p.name}\n${units(p.read)} read, ${units(p.written)} written` })), most, units(u.total), { id: stage.id }));
}

function phaseTable() {
  const k = R.ledger.kernels || R.ledger.ops, most = Math.max(...Object.values(k.phases).map((p) => p.total), 1e-9);
  const names = phaseNames().filter(isCharged);
  const rows = Object.entries(k.phases).filter(([name, p]) => p.total && isCharged(name));
  const list = h("div", null, rows.map(([name, p]) => {
    const node = bar(name, [{ size: p.read, colour: phaseColour(names.indexOf(name)), tip: phaseTip(name) }, { size: p.written, colour: `color-mix(in srgb, ${phaseColour(names.indexOf(name))} 55%, var(--surface))`, tip: phaseTip(name) }], most, units(p.total), { id: name });
    node.title = `${bytes(p.read_bytes)} read, ${bytes(p.written_bytes)} written a token`;
    return node;
  }));
  return list;
}

function kernelTable() {
  const by = new Map();
  for (const a of R.ledger.kernels?.accesses || []) {
    if (!isCharged(a.phase)) continue;
    const x = by.get(a.line) || { op: a.op, line: a.line, read: 0, written: 0, phases: new Set() };
    x[a.access === "read" ? "read" : "written"] += a.bytes;
    x.phases.add(a.phase);
    by.set(a.line, x);
  }
  const rows = [...by.values()].sort((x, y) => y.read + y.written - x.read - x.written).slice(0, 400);
  return h("div", { class: "scroll" }, table([{ name: "kernel" }, { name: "line", n: 1 }, { name: "phases" }, { name: "read", n: 1 }, { name: "written", n: 1 }],
    rows.map((x) => ({ go: lineLink(x.line) ? () => go(lineLink(x.line)) : null, cells: [x.op, x.line, [...x.phases].join(", "), bytes(x.read), bytes(x.written)] }))));
}

function paperTable() {
  const l = R.ledger, p = l.paper;
  return [h("p", { class: "note" }, `at L = ${p.L}, N = ${p.N}, S = ${p.S}, m = ${p.m}`),
    table([{ name: "row of Table 1" }, { name: "read", n: 1 }, { name: "written", n: 1 }, { name: "total", n: 1 }],
      Object.entries(p.forms).map(([key, f]) => ({ cells: [key.replace(/_/g, " "), f.read.toFixed(3), f.written.toFixed(3), f.total.toFixed(3)] })))];
}

function lineTable() {
  const t = R.ledger.table_1;
  return h("div", { class: "scroll" }, table([{ name: "line by line" }, { name: "paper's rules", n: 1 }, { name: "kernels", n: 1 }, { name: "why they differ" }],
    t.lines.map((x) => ({ cells: [x.what, x.rules.total.toFixed(3), x.kernels ? x.kernels.total.toFixed(3) : "", x.why || ""] }))));
}

// The backward half of a training step.
const isSublayers = (name) => name === "sublayer's own";

function backwardBars(k) {
  const rows = Object.entries(k.phases).filter(([name, p]) => p.total && !isSublayers(name));
  const most = Math.max(...rows.map(([, p]) => p.total), 1e-9);
  return h("div", null, rows.map(([name, p], i) => {
    const node = bar(name, [{ size: p.read, colour: phaseColour(i) }, { size: p.written, colour: `color-mix(in srgb, ${phaseColour(i)} 55%, var(--surface))` }], most, units(p.total), { id: `backward ${name}` });
    node.title = `${bytes(p.read_bytes)} read, ${bytes(p.written_bytes)} written a token`;
    return node;
  }));
}

function backwardTable(b) {
  const figures = [["ops one at a time", b.ops], ["kernels, no depth passes", b.naive_kernels], ["kernels, as compiled", b.kernels]].filter(([, x]) => x);
  return [table([{ name: "counted in" }, { name: "all", n: 1 }, { name: "as closed forms count", n: 1 }],
    figures.map(([name, x]) => ({ cells: [name, x.total.total.toFixed(3), x.as_closed_forms_count.total.toFixed(3)] }))),
  table([{ name: "closed form" }, { name: "total", n: 1 }], Object.entries(b.forms).map(([key, x]) => ({ cells: [key.replace(/_/g, " "), x.toFixed(3)] })))];
}

function backwardCards(grid, b) {
  const k = b.kernels || b.ops;
  if (!k) return;
  grid.append(card("Backward half by phase", { class: "span7", id: "backward-phases" }, backwardBars(k),
    h("p", { class: "note" }, "What the residual mechanism moves from the loss back to the weights. All else in this room is the forward half of the step.")));
  grid.append(card("Backward half", { class: "span5", id: "backward" }, backwardTable(b),
    b.kept && h("p", { class: "note" }, `${b.kept.rows_above_standard.toFixed(0)} rows of sources and mixes are kept above a standard residual's.`)));
}

function ledgerRoom(room) {
  const l = R.ledger;
  if (!l || !l.sublayers) return void room.append(card("Ledger", {}, h("p", { class: "empty" }, "This program has no residual stream.")));
  const names = phaseNames().filter(isCharged), grid = h("div", { class: "grid" });
  room.append(grid);
  grid.append(card("By pass", { class: "span7", id: "by-pass" }, passBars(), h("div", { style: { "margin-top": ".7rem" } }, legend(names.map((n, i) => [phaseColour(i), n]))),
    h("p", { class: "note" }, "d is a row of the stream in f32, per token and sublayer. Before kernels each op is charged as if it ran alone."), passNote()));
  grid.append(card("Beside the closed forms", { class: "span5" }, ledgerBars(R), h("p", { class: "note" }, `${bytes((l.kernels || l.ops).total.read_bytes + (l.kernels || l.ops).total.written_bytes)} a token in all; ${bytes((l.kernels || l.ops).weight_bytes_per_call)} of weights per call.`)));
  grid.append(card("By phase", { class: "span7", id: "by-phase" }, phaseTable(), h("p", { class: "note" }, "The darker part is read, the lighter written. Pointing at a bar names the kernels.")));
  grid.append(card("Closed forms of the paper", { class: "span5", id: "paper" }, paperTable()));
  if (l.table_1) grid.append(card(`Table 1, ${l.table_1.row.replace(/_/g, " ")}`, { class: "span12", id: "table-1" }, lineTable()));
  if (l.backward) backwardCards(grid, l.backward);
  if (l.kernels) grid.append(card("By kernel", { class: "span12", id: "by-kernel" }, kernelTable()));
}
