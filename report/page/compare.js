// Compare: two reports side by side, with what differs first.

function difference(a, b, show, lessIsBetter = true) {
  if (a === undefined || b === undefined || a === null || b === null) return "";
  if (a === b) return h("span", { class: "note" }, "the same");
  const ratio = a ? b / a : Infinity, better = lessIsBetter === null ? "" : b < a === lessIsBetter ? "better" : "worse";
  return h("span", { class: better }, `${b > a ? "+" : "−"}${show(Math.abs(b - a))}${isFinite(ratio) ? ` (${ratio >= 1 ? "+" : "−"}${percent(Math.abs(ratio - 1))})` : ""}`);
}

function compareTable(rows) {
  return table([{ name: "" }, { name: "this", n: 1 }, { name: "against", n: 1 }, { name: "difference", n: 1 }],
    rows.filter((x) => x[1] !== undefined || x[2] !== undefined).map(([name, a, b, show, better]) => ({ id: name, cells: [name, a === undefined || a === null ? "–" : show(a), b === undefined || b === null ? "–" : show(b), difference(a, b, show, better)] })));
}

/** All options: those of the model, and those of the compiler as the command calls them. */
const allOptions = (r) => ({ ...r.facts.options, ...Object.fromEntries(Object.entries(r.settings || {}).map(([k, v]) => ["--" + k, v])) });

function optionRows() {
  const a = allOptions(R), b = allOptions(B);
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((k) => a[k] !== b[k]).map((k) => ({ cells: [k, a[k] ?? "–", b[k] ?? "–", ""] }));
}

/** Names a side by the options in which it differs from the other one. */
function sideText(a, b) {
  const there = allOptions(b), own = Object.entries(allOptions(a)).filter(([k, v]) => there[k] !== v).map(([k, v]) => `${k} = ${v}`);
  return [a.path, ...own.slice(0, 4), a.hadal !== b.hadal && `Hadal ${a.hadal}`].filter(Boolean).join(", ");
}

function compareSummary() {
  const a = R.facts, b = B.facts, la = R.ledger?.kernels?.total.total, lb = B.ledger?.kernels?.total.total;
  return compareTable([
    ["parameters", a.parameters, b.parameters, count, null], ["active parameters", a.active_parameters, b.active_parameters, count, null],
    ["bytes of weights", a.weights.bytes, b.weights.bytes, bytes], ["state per position", a.state.bytes_per_position, b.state.bytes_per_position, bytes], ["state of fixed size", a.state.fixed_bytes, b.state.fixed_bytes, bytes],
    ["FLOPs per token", a.flops_per_token.linear, b.flops_per_token.linear, count], ["ops as written", a.stages[0].total, b.stages[0].total, group, null], ["kernels", a.plan?.kernels, b.plan?.kernels, group],
    ["moved across depth", la, lb, units], ["sublayers", R.ledger?.sublayers, B.ledger?.sublayers, group, null], ["blocks", R.depth?.blocks, B.depth?.blocks, group, null]]);
}

function comparePasses() {
  const ids = [...new Set([...(history?.stages || []).map((x) => x.id), ...(other?.stages || []).map((x) => x.id)])];
  const text = (x) => (!x ? "not run" : !x.changed ? "nothing" : x.counts ? ["added", "removed", "changed", "moved"].filter((k) => x.counts[k]).map((k) => `${SIGN[k]}${x.counts[k]}`).join(" ") : "as written");
  const rows = ids.map((id) => ({ id, a: history?.stages.find((x) => x.id === id), b: other?.stages.find((x) => x.id === id) })).filter((x) => text(x.a) !== "nothing" || text(x.b) !== "nothing");
  return h("div", { class: "scroll" }, table([{ name: "pass" }, { name: "this" }, { name: "against" }, { name: "ledger, this", n: 1 }, { name: "against", n: 1 }],
    rows.map(({ id, a, b }) => ({ id, go: () => go(`#pass=${encodeURIComponent(id)}`), cells: [id, text(a), text(b), a?.changed && stageUnits(a) ? units(stageUnits(a).total) : "", b?.changed && stageUnits(b) ? units(stageUnits(b).total) : ""] }))));
}

function comparePhases() {
  const a = R.ledger?.kernels?.phases || {}, b = B.ledger?.kernels?.phases || {};
  return compareTable([...new Set([...Object.keys(a), ...Object.keys(b)])].filter((k) => (a[k]?.total || b[k]?.total) && isCharged(k)).map((k) => [k, a[k]?.total, b[k]?.total, units]));
}

function compareMemory() {
  const a = R.memory || {}, b = B.memory || {};
  return compareTable([["arena per token", a.arena_bytes_per_token, b.arena_bytes_per_token, bytes], ["without reuse", a.arena_bytes_per_token_without_reuse, b.arena_bytes_per_token_without_reuse, bytes],
    ["values without tokens", a.fixed_bytes, b.fixed_bytes, bytes], ["values", a.rows?.length, b.rows?.length, group, null], ...[4096, 131072].map((n) => [`session of ${group(n)} tokens`, ...[R, B].map((r) => r.facts && lengths({ ...r }).find((x) => x.n === n)).map((x) => x && x.state + x.fixed + x.arena), bytes])]);
}

function compareTime() {
  return ["prefill", "decode"].map((name) => {
    const a = phases(R).find((p) => p.phase === name), b = phases(B).find((p) => p.phase === name);
    if (!a || !b) return null;
    const kernel = (p, k) => p.kernels.filter((x) => x.kernel === k).reduce((n, x) => n + nanoseconds(x), 0) / p.tokens || undefined;
    const names = [...new Set([...a.kernels, ...b.kernels].filter((k) => k.calls).map((k) => k.kernel))];
    return card(`Time of ${name}, a token`, { class: "span6" }, h("div", { class: "scroll" }, compareTable([["all", (a.seconds * 1e9) / a.tokens, (b.seconds * 1e9) / b.tokens, time], ...names.map((k) => [k, kernel(a, k), kernel(b, k), time])])));
  });
}

/** Remarks that only one of the sides has; numbers in them are ignored. */
function compareRemarks() {
  const key = (r) => `${r.pass}|${r.taken}|${r.code}|${r.text.replace(/[\d.]+/g, "#")}`;
  const only = (x, y) => {
    const there = new Set((y.remarks || []).map(key));
    return (x.remarks || []).filter((r) => !there.has(key(r)));
  };
  const list = (r, of) => grouped(r).map((same) => h("ul", { class: "remarks" }, remarkItem(same[0], of)));
  const a = only(R, B), b = only(B, R);
  return h("div", { class: "grid" }, h("div", { class: "span6" }, h("h3", null, "only this"), a.length ? list(a, history) : h("p", { class: "empty" }, "none")), h("div", { class: "span6" }, h("h3", null, "only against"), b.length ? list(b, other) : h("p", { class: "empty" }, "none")));
}

/** How the two models differ by `hadal diff`, as written and as compiled. */
function compareOps() {
  if (!D) return null;
  let which = D.written.counts.added + D.written.counts.removed + D.written.counts.changed ? "written" : "compiled";
  const holder = h("section", { class: "card", id: "compare-ops" });
  const kinds = { "+": "added", "-": "removed", "~": "changed", ">": "moved" };
  const fill = () => {
    const d = D[which], lines = d.text.split("\n").slice(0, -1), c = d.counts;
    const list = new VirtualList(20, (i) => h("div", { class: "row single" }, h("div", { class: "cell " + (kinds[lines[i].trim()[0]] || "") }, h("span", { class: "line", style: { "padding-left": ".8rem" } }, lines[i]))), { style: { height: `${Math.min(30, lines.length + 1) * 20}px` } });
    list.set(lines.length);
    holder.replaceChildren();
    add(holder, h("div", { class: "head" }, h("h2", null, "Op by op"), tabs([["written", "as written"], ["compiled", "as compiled"]], which, (x) => ((which = x), fill()))),
      h("div", { class: "chips", style: { "margin-bottom": ".6rem" } }, ["added", "removed", "changed", "moved"].map((k) => c[k] > 0 && h("span", { class: "chip " + k }, `${SIGN[k]} ${group(c[k])} ${k}`)), h("span", { class: "chip" }, `${group(c.same)} the same`)),
      lines.length ? list.box : h("p", { class: "empty" }, "No differences."), d.more > 0 && h("p", { class: "note" }, `and ${plural(d.more, "line")} more: hadal diff has them all`));
  };
  fill();
  return holder;
}

function compareRoom(room) {
  if (!R.facts || !B.facts) return void room.append(card("Against", {}, h("p", { class: "empty" }, "One of the two models could not be compiled.")), B.facts ? "" : card("What is wrong", {}, diagnostics(B.diagnostics)));
  const options = optionRows();
  add(room, h("div", { class: "grid" },
    h("div", { class: "hero" }, h("div", null, h("h2", null, `${R.name} against ${B.name}`), h("p", null, `${sideText(R, B)} · ${sideText(B, R)}`))),
    card("Summary", { class: "span7", id: "compare-summary" }, compareSummary()),
    card("Options that differ", { class: "span5", id: "compare-options" }, options.length ? table([{ name: "" }, { name: "this" }, { name: "against" }, { name: "" }], options) : h("p", { class: "empty" }, "none")),
    card("Ledger by phase", { class: "span6", id: "compare-ledger" }, comparePhases()), card("Memory", { class: "span6", id: "compare-memory" }, compareMemory()),
    card("Passes", { id: "compare-passes" }, comparePasses()), compareTime(), compareOps(), card("Remarks that differ", {}, compareRemarks())));
}
