// The history of one value: from the spec through the passes to its kernel, buffer, code and time.

function neighbourList(stage, ops, title) {
  if (!ops.size) return null;
  const list = [...ops].slice(0, 12).map((op) => h("li", null, h("a", { href: linkTo(stage, op), class: "ir", style: { "white-space": "pre-wrap" } }, irText(stage, history.layout(stage).row.get(op)))));
  return h("section", null, h("h3", null, `${title} (${ops.size})`), h("ul", { class: "neighbours" }, list));
}

function sourceQuote(l) {
  const file = (R.files || []).find((f) => f.path === l.file);
  const line = file?.text.split("\n")[l.line - 1];
  return [h("div", { class: "note" }, place(l)), line !== undefined && h("pre", { class: "mono" }, line.trim() + "\n" + " ".repeat(Math.max(0, l.column - 1 - (line.length - line.trimStart().length))) + "^")];
}

function kernelFacts(stage, row) {
  const at = history.kernelRow(stage, row);
  if (at < 0 || stage.ir !== "kernel") return null;
  const f = history.rowForm(stage, at), line = history.layout(stage).lines[at], name = history.attr(f, "name");
  const out = [h("dt", null, "kernel"), h("dd", null, h("a", { href: opLink(f[FORM.op], stage) }, name || "kernel"), `, line ${line}`)];
  const kernel_line = history.layout(history.last).lines[history.layout(history.last).row.get(f[FORM.op])];
  for (const r of planRows(R).filter((x) => x.line === kernel_line))
    out.push(h("dt", null, "leaves"), h("dd", null, h("span", { class: "mono" }, r.value), ` in ${r.place}[${r.offset}], ${bytes(r.bytes)}${r.per_token ? " a token" : ""}, kernels ${r.first}–${r.last}`));
  const moved = (R.ledger?.kernels?.accesses || []).filter((a) => a.line === kernel_line && isCharged(a.phase)).reduce((n, a) => n + a.bytes, 0);
  if (moved) out.push(h("dt", null, "moves"), h("dd", null, `${bytes(moved)} a token for the residual mechanism`));
  const step = R.code?.steps.find((x) => x.line === kernel_line);
  const own = history.layout(history.last).lines[history.layout(history.last).row.get(history.op(stage, row))];
  for (const [code, at] of step ? functionsOf(step, own) : []) {
    const fn = code.name, of = codeRanges(code).filter((x) => x.line === at), n = of.reduce((a, x) => a + x.bytes, 0);
    out.push(h("dt", null, "code"), h("dd", null, h("a", { href: `#code=${encodeURIComponent(fn)}&line=${at}` }, fn), ` ${group(code.bytes)} bytes, ${hex(code.offset)}–${hex(code.offset + code.bytes)}`,
      n > 0 && h("div", { class: "ranges" }, `for this op ${group(n)}: `, rangeText(of, 4))));
  }
  for (const p of phases(R)) for (const e of p.lines.filter((x) => x.line === kernel_line && x.calls))
    out.push(h("dt", null, p.phase), h("dd", null, `${time(nanoseconds(e))}, ${percent(nanoseconds(e) / (p.seconds * 1e9))}`));
  return h("section", null, h("h3", null, "Kernel, buffer, code, time"), h("dl", { class: "facts" }, out));
}

/** Ranges as "0x12–0x40, 0x51–0x5c and 3 more". */
const rangeText = (ranges, most) => h("span", { class: "mono" }, ranges.slice(0, most).map((x) => `${hex(x.from)}–${hex(x.to)}`).join(", "), ranges.length > most ? ` and ${ranges.length - most} more` : "");

const WHAT = { written: "as written", made: "made by", changed: "changed by", moved: "moved by", replaced: "replaced by", removed: "removed by" };

/** Shows the history of `op`, as it is in a stage; null: closes the panel. */
function showLife(op, stage) {
  const aside = $("life");
  document.body.classList.toggle("with-life", op !== null);
  aside.hidden = op === null;
  aside.replaceChildren();
  if (op === null) return;
  const row = history.layout(stage).row.get(op), f = history.rowForm(stage, row), l = history.location(f);
  const life = history.life(op), end = life[life.length - 1], last = end.row >= 0 ? history.last : null;
  const { operands, users } = history.neighbours(stage, op);
  const refused = (R.remarks || []).filter((r) => r.op === op || life.some((x) => x.op === r.op));
  const back = location.hash.replace(/&?(op|side)=[^&]*/g, "");
  add(aside, h("button", { type: "button", class: "close", "aria-label": "Close (Escape)", onclick: () => go(back) }, "×"),
    h("h2", { class: "mono" }, history.linkOf(stage, op), " ", h("span", { class: "o" }, history.strings[f[FORM.code]])),
    h("p", { class: "note" }, `line ${history.layout(stage).lines[row]} after ${stage.pass}`),
    l && h("section", null, h("h3", null, "Written"), sourceQuote(l), l.call && h("h3", null, "Called"), l.call && sourceQuote(l.call)),
    h("section", null, h("h3", null, "Through the passes"), h("ol", { class: "timeline" }, life.map((x) =>
      h("li", { class: "stage-" + x.stage.ir }, h("a", { href: linkTo(x.stage, x.op) }, x.what === "written" ? WHAT.written : `${WHAT[x.what]} ${x.stage.pass}`),
        x.row >= 0 && h("div", { class: "ir" }, irText(x.stage, x.row)))))),
    last && history.layout(last).row.has(end.op) ? kernelFacts(last, history.layout(last).row.get(end.op)) : null,
    refused.length ? h("section", null, h("h3", null, "Remarks"), h("ul", { class: "remarks" }, refused.slice(0, 20).map((r) => remarkItem(r)))) : null,
    neighbourList(stage, operands, "Made of"), neighbourList(stage, users, "Read by"));
  aside.scrollTop = 0;
}
