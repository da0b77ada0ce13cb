// Time: what kernels took in the calls of an execution, as a flame graph, as tables, and beside the limits of
// the machine.

const phases = (r) => r.profile?.phases || [];
const nanoseconds = (e) => e.work_ns + e.wait_ns;

/** Kernels of one kind have one colour; the kind is in the name: row3, row4. */
const KINDS = ["row", "contract", "sequence"];
const kindColour = (name) => {
  const known = KINDS.findIndex((k) => name.startsWith(k));
  return phaseColour(known < 0 ? 3 + (hash(name) % 5) : known);
};

/** A flame graph of layer > kernel > line; widths are times. */
function flame(phase) {
  const root = { name: phase.phase, size: 0, children: new Map() };
  for (const e of [...phase.lines].sort((a, b) => a.line - b.line)) { // in program order
    let node = root;
    root.size += nanoseconds(e);
    for (const name of [layerOfScope(e.scope) || e.scope || "–", e.kernel, `line ${e.line}`]) {
      if (!node.children.has(name)) node.children.set(name, { name, size: 0, wait: 0, children: new Map(), line: e.line });
      node = node.children.get(name);
      node.size += nanoseconds(e);
      node.wait += e.wait_ns;
    }
  }
  const width = 1400, height = 26, depth = 4;
  const out = s("svg", { class: "flame", width: "100%", viewBox: `0 0 ${width} ${depth * height}`, role: "img", "aria-label": `flame graph of ${phase.phase}` });
  const draw = (node, x, level, parent, odd) => {
    const w = (width * node.size) / root.size;
    if (w < 0.4) return;
    const box = s("rect", { x, y: level * height, width: w, height: height - 1, rx: 2, fill: level === 2 ? kindColour(node.name) : level === 3 ? `color-mix(in srgb, ${kindColour(parent.name)} 45%, var(--surface))` : level ? `color-mix(in srgb, var(--p7) ${odd ? 42 : 30}%, var(--surface))` : "var(--p8)", "data-name": node.name });
    if (node.line && lineLink(node.line)) box.addEventListener("click", () => go(lineLink(node.line)));
    out.append(tipped(box, `${node.name}\n${time(node.size)}, ${percent(node.size / root.size)}${node.wait ? `\n${time(node.wait)} of it waiting for other threads` : ""}`));
    const fits = Math.floor((w - 8) / 6.6); // number of letters that fit
    if (fits >= Math.min(node.name.length, 6)) out.append(s("text", { x: x + 5, y: level * height + 17 }, node.name.length <= fits ? node.name : passOf(node.name) ? "…" + node.name.slice(1 - fits) : node.name.slice(0, fits - 1) + "…"));
    let n = 0;
    for (const child of node.children.values()) draw(child, x, level + 1, node, n++ % 2), (x += (width * child.size) / root.size);
  };
  draw(root, 0, 0, null, 0);
  return out;
}

/** The limits of the machine: multiply-adds per second and bytes from memory per second. */
function machineLimits(r) {
  const l = r.machine?.limits;
  if (!l) return null;
  const find = (word) => Object.entries(l).find(([key]) => key.includes(word))?.[1];
  return { flops: find("f32_multiply_add") ?? find("f32 multiply-add") ?? find("multiply"), bytes: find("memory_read") ?? find("memory read") };
}

function roofline(phase, limit) {
  const width = 640, height = 320, left = 82, bottom = 34, right = 14, top = 12;
  const points = phase.kernels.filter((k) => nanoseconds(k) > 0 && k.flops > 0 && k.bytes > 0).map((k) => ({ k, x: k.flops / k.bytes, y: (k.flops / nanoseconds(k)) * 1e9 }));
  if (!points.length) return null;
  const lx = points.map((p) => Math.log10(p.x)), ly = points.map((p) => Math.log10(p.y));
  const x0 = Math.floor(Math.min(...lx, -1)), x1 = Math.ceil(Math.max(...lx, 2)), y1 = Math.ceil(Math.log10(Math.max(limit?.flops || 0, ...points.map((p) => p.y)))), y0 = Math.floor(Math.min(...ly));
  const x = (v) => left + ((Math.log10(v) - x0) / (x1 - x0)) * (width - left - right), y = (v) => height - bottom - ((Math.log10(v) - y0) / (y1 - y0)) * (height - bottom - top);
  const out = s("svg", { width: "100%", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline" });
  for (let e = x0; e <= x1; e++) out.append(s("line", { class: "block-line", x1: x(10 ** e), x2: x(10 ** e), y1: top, y2: height - bottom }), s("text", { x: x(10 ** e), y: height - bottom + 15, "text-anchor": "middle" }, e < 0 ? (10 ** e).toFixed(-e) : String(10 ** e)));
  for (let e = y0; e <= y1; e++) out.append(s("line", { class: "block-line", x1: left, x2: width - right, y1: y(10 ** e), y2: y(10 ** e) }), s("text", { x: left - 6, y: y(10 ** e) + 4, "text-anchor": "end" }, `${count(10 ** e).replace(/\.0+/, "")}FLOP/s`));
  out.append(s("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "FLOPs a byte"));
  if (limit?.flops && limit?.bytes) {
    const ridge = limit.flops / limit.bytes, from = Math.max(10 ** x0, 10 ** y0 / limit.bytes);
    out.append(s("polyline", { points: [[from, from * limit.bytes], [ridge, limit.flops], [10 ** x1, limit.flops]].filter((p) => p[0] <= 10 ** x1).map((p) => `${x(p[0])},${y(p[1])}`).join(" "), fill: "none", stroke: "var(--p1)", "stroke-width": 2 }));
  }
  const all = points.reduce((a, p) => a + nanoseconds(p.k), 0);
  for (const p of points.sort((a, b) => nanoseconds(b.k) - nanoseconds(a.k))) {
    const share = nanoseconds(p.k) / all, roof = limit?.flops && limit?.bytes ? Math.min(limit.flops, p.x * limit.bytes) : null;
    out.append(tipped(s("circle", { cx: x(p.x), cy: y(p.y), r: 3 + 16 * Math.sqrt(share), fill: kindColour(p.k.kernel), "fill-opacity": 0.75 }),
      `${p.k.kernel}\n${time(nanoseconds(p.k))}, ${percent(share)}\n${rate(p.y)}, ${bytes((p.k.bytes / nanoseconds(p.k)) * 1e9)}/s${roof ? `\n${percent(p.y / roof)} of its limit, bound by ${p.x < limit.flops / limit.bytes ? "bandwidth" : "arithmetic"}` : ""}`));
  }
  return out;
}

function boundBy(k, limit) {
  if (!limit?.flops || !limit?.bytes || !nanoseconds(k)) return "";
  const flops = ((k.flops / nanoseconds(k)) * 1e9) / limit.flops, memory = ((k.bytes / nanoseconds(k)) * 1e9) / limit.bytes;
  return `${percent(Math.max(flops, memory))} of ${flops > memory ? "arithmetic" : "bandwidth"}`;
}

function timeTable(phase, byLine) {
  const limit = machineLimits(R), list = (byLine ? phase.lines : phase.kernels).filter((k) => k.calls), all = phase.seconds * 1e9;
  const columns = [{ name: byLine ? "line" : "kernel" }, { name: byLine ? "scope" : "kind" }, { name: "time", n: 1 }, { name: "share", n: 1 }, { name: "waits", n: 1 }, { name: "GFLOP/s", n: 1 }, { name: "GB/s", n: 1 }, { name: "of its limit", n: 1 }];
  return h("div", { class: "scroll" }, table(columns, list.slice(0, 500).map((k) => ({
    go: byLine && lineLink(k.line) ? () => go(lineLink(k.line)) : null,
    cells: [byLine ? `${k.line} ${k.kernel}` : k.kernel, byLine ? k.scope : k.kind, time(nanoseconds(k)), percent(nanoseconds(k) / all), k.wait_ns ? time(k.wait_ns) : "", k.flops ? (k.flops / nanoseconds(k)).toFixed(1) : "", k.bytes ? (k.bytes / nanoseconds(k)).toFixed(1) : "", boundBy(k, limit)],
  }))));
}

function timeRoom(room) {
  if (!phases(R).length)
    return void room.append(card("Time", {}, h("p", { class: "empty" }, "Nothing was run. A report made with --weights F --tokens 1,2,3 runs the model and shows its times; --profile=FILE.json shows those of a run before.")));
  const limit = machineLimits(R), grid = h("div", { class: "grid" });
  room.append(grid);
  grid.append(h("div", { class: "hero" }, h("p", null, `variant ${R.profile.cpu}, ${R.profile.threads ? plural(R.profile.threads, "thread") : "default threads"}${limit ? `; this machine: ${rate(limit.flops)}, ${bytes(limit.bytes)}/s from memory` : ""}`)));
  for (const phase of phases(R)) {
    const inside = phase.lines.reduce((a, e) => a + nanoseconds(e), 0), wait = phase.lines.reduce((a, e) => a + e.wait_ns, 0), all = phase.seconds * 1e9;
    let byLine = false;
    const holder = h("div"), refill = () => holder.replaceChildren(h("div", { class: "head" }, h("h2", null, `${phase.phase} by ${byLine ? "line" : "kernel"}`), tabs([[false, "kernels"], [true, "lines"]], byLine, (x) => ((byLine = x), refill()))), timeTable(phase, byLine));
    refill();
    const roof = roofline(phase, limit);
    grid.append(h("div", { class: "tiles", "data-phase": phase.phase }, tile(scaled(all, 1000, ["ns", "µs", "ms", "s"]), phase.phase, `${plural(phase.calls, "call")}, ${plural(phase.tokens, "token")}`), tile(scaled((phase.tokens / all) * 1e9, 1000, ["", "k", "M"]), "tokens a second"),
      tile(percent(inside / all), "in kernels"), tile(percent(wait / Math.max(1, inside)), "of that waiting for threads")));
    grid.append(card(`Flame graph of ${phase.phase}`, {}, h("div", { class: "figure" }, flame(phase))));
    grid.append(h("section", { class: "card " + (roof ? "span7" : "") }, holder));
    if (roof) grid.append(card("Roofline", { class: "span5" }, roof, h("p", { class: "note" }, limit ? "The line is what this machine can do, with data from memory, measured when the report was made. A kernel above it, or with more than 100 % of its limit, finds its data in a cache." : "The limits of the machine were not measured.")));
  }
}
