// Summary: what the model is, what it was compiled to, and what was not applied.

function diagnostics(list) {
  return list.map((d) =>
    h("div", { class: "diagnostic " + d.severity },
      h("b", null, `${d.severity}: ${d.message} `), h("span", { class: "note" }, `[${d.kind}]`),
      d.file && h("div", { class: "note" }, `${d.file}:${d.line}:${d.column}`),
      d.source_line && h("pre", null, d.source_line + "\n" + " ".repeat(Math.max(0, d.column - 1)) + "^".repeat(Math.max(1, d.end_column - d.column))),
      d.cause && h("div", null, "cause: " + d.cause), d.hint && h("div", null, "hint: " + d.hint)));
}

/** What the residual mechanism moves, from the model as written to the kernels, beside the closed forms. */
function ledgerBars(r) {
  const l = r.ledger;
  if (!l || (!l.ops && !l.kernels)) return null;
  const rows = [];
  const add = (label, t, extra) => t && rows.push({ label, total: t.total, read: t.read, written: t.written, ...extra });
  add("as written, op by op", l.ops?.total);
  add("kernels without depth passes", l.naive_kernels?.total);
  add("compiled", l.kernels?.total, { class: "strong" });
  if (l.table_1) {
    const form = l.paper.forms[l.table_1.row];
    if (form) add(`paper: ${l.table_1.row.replace(/_/g, " ")}`, form, { class: "paper" });
  }
  const most = Math.max(...rows.map((x) => x.total));
  return rows.map((x) => bar(x.label, [
    { size: x.read, colour: "var(--p0)", tip: `${x.label}: ${units(x.read)} read` },
    { size: x.written, colour: "var(--p1)", tip: `${x.label}: ${units(x.written)} written` },
  ], most, units(x.total), { class: x.class, id: x.label }));
}

function lengths(r) {
  const per = r.facts.state.bytes_per_position, fixed = r.facts.state.fixed_bytes, arena = r.memory?.arena_bytes_per_token || 0;
  const chunk = r.ledger?.memory?.chunk || 512;
  return [1024, 4096, 16384, 65536, 131072].map((n) => ({ n, state: per * n, fixed: fixed + (r.memory?.fixed_bytes || 0), arena: arena * Math.min(chunk, n) }));
}

function lengthBars(r) {
  const list = lengths(r), most = Math.max(...list.map((x) => x.state + x.fixed + x.arena));
  return list.map((x) => bar(`${group(x.n)} tokens`, [
    { size: x.state, colour: "var(--p0)", tip: `caches ${bytes(x.state)}` },
    { size: x.fixed, colour: "var(--p2)", tip: `state of fixed size and values without tokens ${bytes(x.fixed)}` },
    { size: x.arena, colour: "var(--p1)", tip: `arena of a chunk ${bytes(x.arena)}` },
  ], most, bytes(x.state + x.fixed + x.arena), { class: "short" }));
}

function remarkItem(r, of = history) {
  const stage = of.stages[r.stage];
  const link = r.op !== null && of === history ? opLink(r.op, of.shown(stage)) : null;
  return h("li", { class: r.taken ? "taken" : "refused" }, link ? h("a", { href: link }, r.code || "op") : r.code ? h("code", null, r.code) : null, (r.code ? ": " : "") + r.text + (r.weight ? ` (@${r.weight}${r.layer_pass ? `, pass ${r.layer_pass}` : ""})` : ""),
    " ", h("span", { class: "where" }, `${r.pass}${r.file ? ` · ${r.file}:${r.line}` : ""}${r.call ? `, called at ${r.call.file}:${r.call.line}` : ""}`));
}
/** Groups remarks of many layers that have the same words into one. */
function grouped(remarks) {
  const by = new Map();
  for (const r of remarks) {
    const key = `${r.stage}|${r.taken}|${r.code}|${r.weight || ""}|${r.text}`.replace(/\d+/g, "#");
    if (!by.has(key)) by.set(key, []);
    by.get(key).push(r);
  }
  return [...by.values()];
}
function remarkList(remarks) {
  return h("ul", { class: "remarks" }, grouped(remarks).map((same) => {
    const item = remarkItem(same[0]);
    if (same.length > 1) {
      const rest = h("details", null, h("summary", { class: "where" }, `and ${plural(same.length - 1, "time")} more like this`));
      rest.addEventListener("toggle", () => rest.children.length === 1 && rest.append(h("ul", { class: "remarks" }, same.slice(1, 200).map((r) => remarkItem(r)))), { once: true });
      item.append(rest);
    }
    return item;
  }));
}

function recognised(r) {
  const d = r.depth, l = r.ledger;
  if (!d || !d.sublayers) return ["no residual stream was found"];
  const out = [`${d.sublayers} sublayers`];
  if (l?.sources?.mixes) out.push(`${l.sources.mixes} mixes over depth`);
  if (d.blocks > 1 || l?.sources?.mixes) out.push(plural(d.blocks, "block") + ` of at most ${d.longest_block}`);
  const two = d.phase_1.filter((b) => b.kernel).length;
  if (!l?.sources?.mixes) out.push("one stream, no mixes over depth");
  else if (d.phase_1.length) out.push(two ? `${plural(two, "block")} in two phases` : "mixed in one phase");
  return out;
}

function summaryRoom(room) {
  const f = R.facts, l = R.ledger, d = R.depth;
  if (!f) {
    room.append(h("div", { class: "hero" }, h("div", null, h("h2", null, (R.path || "A model").split("/").pop()), h("p", null, "could not be compiled"))),
      card("What is wrong", { id: "diagnostics" }, diagnostics(R.diagnostics)));
    return;
  }
  const best = l?.kernels?.total.total, naive = (l?.naive_kernels || l?.ops)?.total.total;
  const bars = ledgerBars(R), refused = (R.remarks || []).filter((r) => !r.taken), taken = (R.remarks || []).filter((r) => r.taken);
  const stages = f.stages[f.stages.length - 1];
  room.append(h("div", { class: "grid" },
    h("div", { class: "hero" }, h("div", null, h("h2", null, R.name), h("p", null, recognised(R).join(" · ")))),
    h("div", { class: "tiles", id: "tiles" },
      tile(countOf(f.parameters), "parameters", f.active_parameters !== f.parameters && `${count(f.active_parameters)} active for a token`),
      tile(bytesOf(f.weights.bytes), "of weights", `${f.weights.tensors} tensors`),
      tile(bytesOf(f.state.bytes_per_position), "of state per position", f.state.fixed_bytes ? `and ${bytes(f.state.fixed_bytes)} of fixed size` : `${f.state.tensors} states`),
      tile(countOf(f.flops_per_token.linear), "FLOPs per token", `and ${count(f.flops_per_token.attention_per_position)} per position`),
      f.plan && tile(String(f.plan.kernels), "kernels", `${group(stages.total)} ops`),
      best !== undefined && tile([best.toFixed(2), "d"], "moved per token and sublayer", naive && best < naive && `${(naive / best).toFixed(1)} times less than naive`)),
    bars && card("What reading across depth moves", { class: "span7", id: "headline" }, bars, h("div", { style: { "margin-top": ".7rem" } },
      legend([["var(--p0)", "read"], ["var(--p1)", "written"]])), h("p", { class: "note" }, "In d, a row of the stream in f32, per token and sublayer. ", h("a", { href: "#ledger" }, "Ledger"))),
    card("Memory of a session", { class: bars ? "span5" : "" }, lengthBars(R), h("div", { style: { "margin-top": ".7rem" } },
      legend([["var(--p0)", "caches"], ["var(--p2)", "fixed"], ["var(--p1)", "arena"]])), h("p", { class: "note" }, h("a", { href: "#memory" }, "Memory plan"))),
    card(`Not applied, and why (${refused.length})`, { class: "span6", id: "refused" }, refused.length ? h("div", { class: "scroll" }, remarkList(refused)) : h("p", { class: "empty" }, R.made_of === "dumps" ? "Dumps hold no remarks." : "No pass decided against anything.")),
    card(`Applied (${taken.length})`, { class: "span6", id: "taken" }, taken.length ? h("div", { class: "scroll" }, remarkList(taken)) : h("p", { class: "empty" }, "No remarks.")),
    card("Options", { class: "span6" }, h("dl", { class: "facts" }, Object.entries(allOptions(R)).flatMap(([k, v]) => [h("dt", null, k), h("dd", null, v)]),
      h("dt", null, "made of"), h("dd", null, `${R.made_of}, ${R.path}`),
      R.library && [h("dt", null, "library"), h("dd", null, `of Hadal ${R.library.version}, for ${R.library.levels.join(", ")}; ${Object.entries(R.library.options).map(([k, v]) => `${k} ${typeof v === "object" ? JSON.stringify(v) : v}`).join(", ")}`)], h("dt", null, "by"), h("dd", null, `Hadal ${R.hadal}`))),
    card("Inputs and outputs", { class: "span6" }, h("dl", { class: "facts" }, [...f.inputs.map((x) => ["in", x]), ...f.outputs.map((x) => ["out", x])].flatMap(([w, x]) => [h("dt", null, w), h("dd", { class: "mono" }, `${x.name}: ${x.type}`)]))),
    R.diagnostics.length > 0 && card("Said on the way", {}, diagnostics(R.diagnostics))));
}
