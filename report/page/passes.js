// Passes: the pipeline as a row of boxes, and for each pass the module before and after it, side by side.

let passView = null; // { stage, items, list, op }

/** Pairs of rows of two stages, in the order of the second one. A removed row keeps its place. */
function align(stage) {
  const out = [], now = history.rows(stage), marks = history.marks(stage), before = stage.before;
  if (!before) {
    for (let j = 0; j < now.length; j++) out.push({ a: -1, b: j, mark: "" });
    return out;
  }
  const old = history.rows(before), row = history.layout(before).row, here = history.layout(stage).row;
  const gone = new Set(each(stage.removed));
  let next = 0;
  const upTo = (end) => {
    for (; next < end; next++) if (gone.has(next)) out.push({ a: next, b: -1, mark: "removed" });
  };
  for (let j = 0; j < now.length; j++) {
    const from = row.get(history.forms[now[j]][FORM.op]);
    if (from !== undefined && marks[j] !== "moved" && from >= next) upTo(from), (next = from + 1);
    out.push({ a: from ?? -1, b: j, mark: marks[j] });
  }
  upTo(old.length);
  return out;
}

/** By row: the layer whose weights were read most recently; of one that runs several times with the pass, which each
 * reading of a weight belongs to in turn. */
function layers(stage) {
  if (stage.layers) return stage.layers;
  const out = [], all = new Map(), read = new Map(), last = new Map();
  const weights = (form) => history.operands(history.forms[form]).filter((o) => o.kind === "weight").map((o) => o.of);
  for (const form of loops.size ? history.rows(stage) : []) for (const w of weights(form)) all.set(w, (all.get(w) || 0) + 1);
  const named = (w, layer) => {
    const n = loops.get(layer), i = read.get(w) || 0;
    if (!n) return layer;
    read.set(w, i + 1);
    if (all.get(w) % n === 0) last.set(layer, `${layer}, pass ${1 + Math.floor((i * n) / all.get(w))}`);
    return last.get(layer) || layer;
  };
  let now = "";
  history.rows(stage).forEach((form, i) => {
    for (const w of weights(form)) {
      const layer = layerOf(history.strings[w]);
      if (layer) now = named(w, layer);
    }
    out[i] = now;
  });
  return (stage.layers = out);
}
/** The layer of a scope, with the pass that its name ends in: "model.layers.3, pass 2". */
const layerOfScope = (scope) => (layerOf(scope) && layerOf(scope) + (/, pass \d+$/.exec(scope)?.[0] || ""));

const CONTEXT = 3, LEAST_FOLD = 5;
/** The pairs with runs of unchanged rows folded; `open`: the first pairs of the folds that are open. */
function fold(stage, pairs, open) {
  if (!stage.before) return pairs.map((p) => ({ ...p }));
  const items = [], layer = layers(stage);
  for (let i = 0; i < pairs.length; ) {
    let n = 0;
    while (i + n < pairs.length && !pairs[i + n].mark) n++;
    const from = i + (i ? CONTEXT : 0), to = i + n - (i + n < pairs.length ? CONTEXT : 0);
    if (to - from >= LEAST_FOLD && !open.has(from)) {
      for (let k = i; k < from; k++) items.push(pairs[k]);
      const names = [layer[pairs[from].b], layer[pairs[to - 1].b]].filter(Boolean);
      items.push({ fold: from, n: to - from, where: [...new Set(names)].join(" … ") });
      for (let k = to; k < i + n; k++) items.push(pairs[k]);
    } else {
      for (let k = i; k < i + n; k++) items.push(pairs[k]);
    }
    i += n;
    if (i < pairs.length) items.push(pairs[i++]);
  }
  return items;
}

/** A link to an op as it is in a stage: "#pass=split-merge&op=%142". The % of a value is not encoded, so that
 * people can type what they read in a dump. */
function linkTo(stage, op) {
  const name = history.linkOf(stage, op), pass = `#pass=${encodeURIComponent(stage.id)}`;
  return name ? `${pass}&op=${name.startsWith("%") ? "%" + encodeURIComponent(name.slice(1)) : name}` : pass;
}
/** A link to an op in the given stage, or in the nearest one that has the op. */
function opLink(op, stage = history.last) {
  for (let at = stage; at; at = at.before) if (history.layout(at).row.has(op)) return linkTo(at, op);
  const later = history.changed.find((c) => history.layout(c).row.has(op));
  return later ? linkTo(later, op) : null;
}

const SIGN = { added: "+", removed: "−", changed: "~", moved: ">" };

/** A link to an op on one side of the pass that is shown. */
const chosenLink = (view, stage, op) => (stage === view.stage ? linkTo(stage, op) : linkTo(stage, op).replace(/^#pass=[^&]*/, `#pass=${encodeURIComponent(view.stage.id)}`) + "&side=before");

function drawCell(view, stage, row, mark, side) {
  if (row < 0) return h("div", { class: "cell empty " + side });
  const f = history.rowForm(stage, row), op = f[FORM.op];
  const node = h("div", { class: `cell ${side} ${mark}`, "data-op": op },
    h("span", { class: "gutter" }, history.layout(stage).lines[row]), h("span", { class: "sign" }, SIGN[mark] || ""),
    tipped(h("span", { class: "line" }, f[FORM.parent] ? "  " : "", irText(stage, row)), (line) => (line.scrollWidth > line.clientWidth ? line.textContent.trim() : "")));
  node.addEventListener("mouseenter", () => lightUp(view, stage, op));
  node.addEventListener("click", () => go(chosenLink(view, stage, op)));
  return node;
}
function drawRow(view, i) {
  const item = view.items[i];
  if (item.fold !== undefined)
    return h("div", { class: "row fold", role: "button", onclick: () => (view.open.add(item.fold), view.refill()) },
      `${plural(item.n, "unchanged op")}${item.where ? ` · ${item.where}` : ""}`);
  const stage = view.stage, mark = item.mark;
  const single = !stage.before;
  const node = h("div", { class: `row ${single ? "single" : ""} ${item.b < 0 ? "gone" : ""}` },
    !single && drawCell(view, stage.before, item.a, item.b < 0 ? "removed" : mark === "added" ? "" : mark, "before"),
    drawCell(view, stage, item.b, mark, "after"));
  applyLight(view, node);
  return node;
}
function lightUp(view, stage, op) {
  const { operands, users } = history.neighbours(stage, op);
  view.light = { op, operands, users };
  for (const node of view.list.shown.values()) applyLight(view, node);
}
function applyLight(view, node) {
  for (const cell of node.querySelectorAll(".cell[data-op]")) {
    const op = +cell.dataset.op, l = view.light;
    cell.classList.toggle("operand", !!l && l.operands.has(op));
    cell.classList.toggle("user", !!l && l.users.has(op));
    cell.classList.toggle("hovered", !!l && l.op === op);
    cell.classList.toggle("chosen", view.op === op);
  }
}

function pipelineLine(chosen) {
  return h("div", { class: "pipeline", role: "list", id: "pipeline" }, history.stages.map((x) => {
    const total = x.counts ? x.counts.added + x.counts.removed + x.counts.changed + x.counts.moved : 0;
    return tipped(h("a", { class: `step stage-${x.ir} ${x.changed ? "did" : ""}`, role: "listitem", href: `#pass=${encodeURIComponent(x.id)}`, "aria-current": x === chosen ? "true" : null, "aria-label": x.pass, "data-pass": x.id },
      h("i"), x.changed && h("b", null, x.pass), x.changed && h("span", null, x.before ? `${group(total)} changes` : `${group(history.rows(x).length)} ops`)),
      `${x.pass} (${x.ir} IR)${x.changed ? "" : "\nchanged nothing"}${x.seconds !== null ? `\n${time(x.seconds * 1e9)}` : ""}${x.doc ? `\n${x.doc}` : ""}`);
  }));
}

function passHead(stage) {
  const c = stage.counts, now = stageUnits(stage), was = stage.before && stageUnits(stage.before);
  const moved = now && was && Math.abs(now.total - was.total) > 1e-9;
  return h("div", { class: "head" },
    h("div", null, h("h2", null, stage.pass), stage.doc && h("p", { class: "note" }, stage.doc)),
    h("div", { class: "chips", id: "counts" },
      h("span", { class: "chip" }, `${stage.ir} IR`),
      c && ["added", "removed", "changed", "moved"].filter((k) => c[k]).map((k) => h("span", { class: "chip " + k, "data-count": k }, `${SIGN[k]} ${group(c[k])} ${k}`)),
      c && h("span", { class: "chip" }, `${group(c.same)} the same`),
      moved && h("a", { class: "chip", href: "#ledger" }, `${units(was.total)} → ${units(now.total)}`),
      stage.seconds !== null && h("span", { class: "chip" }, time(stage.seconds * 1e9))));
}

function passesRoom(room, link) {
  if (!history) return void room.append(h("p", { class: "empty" }, "There is no history of passes."));
  const asked = link.pass ? history.find(link.pass) : null;
  const stage = asked || history.changed.find((x) => x.pass === "split-merge") || history.changed[Math.min(1, history.changed.length - 1)];
  const remarks = (R.remarks || []).filter((r) => r.stage === stage.number);
  room.append(card(null, {}, pipelineLine(stage), legend([["var(--p0)", "graph"], ["var(--p3)", "depth"], ["var(--p1)", "kernel"]])));
  const body = card(null, { id: "pass" }, passHead(stage));
  room.append(body);
  room.querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest", inline: "center" });
  if (remarks.length)
    body.append(h("details", { style: { "margin-bottom": ".75rem" } }, h("summary", null, plural(remarks.length, "remark")), h("div", { class: "scroll" }, remarkList(remarks))));
  if (link.pass && !asked) body.append(h("p", { class: "empty" }, `There is no pass ${link.pass}.`));
  if (!stage.changed) {
    const before = history.shown(stage), op = link.op ? linkedOp(before, link.op) : null; // its dump is that of the pass before
    body.append(h("p", { class: "empty" }, "This pass changed nothing."));
    if (link.op && op === null) body.append(absentOp(link));
    return void showLife(op, before);
  }
  const view = { stage, pairs: align(stage), open: new Set(), light: null, op: null };
  view.list = new VirtualList(20, (i) => drawRow(view, i), { id: "ir", "aria-label": `IR before and after ${stage.pass}` });
  view.refill = () => {
    view.items = fold(stage, view.pairs, view.open);
    view.list.set(view.items.length);
  };
  view.list.box.addEventListener("mouseleave", () => {
    view.light = null;
    for (const node of view.list.shown.values()) applyLight(view, node);
  });
  body.append(view.list.box);
  view.refill();
  passView = view;
  choose(view, link);
}

/** The op that a link names, in a stage that changed something; null: the stage has none of that name. */
function linkedOp(stage, name) {
  // some programs encode the % of a value in a link as %25
  return history.opOfLink(stage, name) ?? (name.startsWith("%25") ? history.opOfLink(stage, "%" + name.slice(3)) : null) ?? null;
}
const absentOp = (link) => h("p", { class: "empty", id: "absent-op" }, `There is no ${link.op} ${link.side === "before" ? "before" : "after"} this pass.`);

/** Shows the op of a link in the list, and its history beside the list. */
function choose(view, link) {
  const stage = link.side === "before" && view.stage.before ? view.stage.before : view.stage;
  view.op = link.op ? linkedOp(stage, link.op) : null;
  $("absent-op")?.remove();
  if (link.op && view.op === null) view.list.box.before(absentOp(link));
  for (const node of view.list.shown.values()) applyLight(view, node);
  if (view.op === null) return void showLife(null);
  const pair = view.pairs.findIndex((p) => (p.b >= 0 ? history.op(view.stage, p.b) : history.op(view.stage.before, p.a)) === view.op);
  const inside = view.items.findIndex((x) => x.fold !== undefined && pair >= x.fold && pair < x.fold + x.n);
  if (inside >= 0) view.open.add(view.items[inside].fold), view.refill();
  const at = view.items.indexOf(view.pairs[pair]);
  const row = at >= 0 ? at : view.items.findIndex((x) => x.a === view.pairs[pair]?.a && x.b === view.pairs[pair]?.b);
  if (row >= 0) view.list.show(row);
  showLife(view.op, stage);
}
