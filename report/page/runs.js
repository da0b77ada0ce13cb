// Runs of hadal train beside each other: curves over the steps, magnitudes by depth and weights of mixes over time, options.
// The data: docs/training.md, "A report".

const SCHEMA = "hadal-runs-1";
const R = JSON.parse($("report").textContent), runs = R.runs || [];
const last = (list) => list[list.length - 1];
const base = (path) => last(path.replace(/\/+$/, "").split("/"));
/** What a run is called: the last part of its path, where it is that of no other. */
const nameOf = (run) => (runs.filter((x) => base(x.path) === base(run.path)).length > 1 ? run.path : base(run.path));
const colourOf = (run) => phaseColour(runs.indexOf(run));
const COLUMN = { step: 0, loss: 1, lr: 2, norm: 3 }; // of `steps`

// ---- curves ----
/** Means of as many points side by side as leave 500 of them. */
function thin(points) {
  const n = Math.ceil(points.length / 500), out = [];
  for (let i = 0; i < points.length; i += n) {
    const part = points.slice(i, i + n);
    out.push([last(part)[0], part.reduce((a, p) => a + p[1], 0) / part.length]);
  }
  return out;
}
/** Means over the last n points. */
function smooth(points, n) {
  let sum = 0;
  return points.map((p, i) => ((sum += p[1] - (i >= n ? points[i - n][1] : 0)), [p[0], sum / Math.min(i + 1, n)]));
}
const column = (run, key, from) => run.steps.filter((x) => x[0] >= from).map((x) => [x[0], x[COLUMN[key]]]);
const lastStep = () => Math.max(...runs.map((run) => last(run.steps)[0]));

/** Whole numbers from `from` to `to`, some six of them. */
function stepTicks(from, to) {
  const step = Math.max(1, niceStep(to - from)), out = [];
  for (let x = Math.ceil(from / step) * step; x <= to; x += step) out.push([x, group(x)]);
  return out;
}
const HALF = 620; // the width of a chart that has half of the page
function overSteps(id, label, from, curves, tip, width) {
  const to = lastStep(), out = chart({ id, label, curves, from, to, width, ticks: stepTicks(from, to), name: "step", fit: true });
  return out && tip ? track(out, (e) => tip(Math.round(out.valueAt(e)))) : out;
}
const at = (run, step) => run.steps.find((x) => x[0] === step);
const told = (step, key) => {
  const lines = runs.filter((run) => at(run, step)).map((run) => `${nameOf(run)} ${at(run, step)[COLUMN[key]].toPrecision(4)}`);
  return lines.length ? [`step ${group(step)}`, ...lines].join("\n") : null;
};

function lossChart(from) {
  const curves = runs.flatMap((run) => {
    const all = column(run, "loss", from), mean = smooth(all, Math.max(1, Math.round(all.length / 40)));
    return [{ name: "each step", colour: colourOf(run), faint: true, points: thin(all) }, { name: "loss", colour: colourOf(run), wide: true, points: thin(mean) },
      { name: "eval", colour: colourOf(run), dashed: true, dots: true, points: run.evals.filter((x) => x[0] >= from).map((x) => [...x, `${nameOf(run)}\nstep ${group(x[0])}: eval loss ${x[1].toPrecision(5)}`, { "data-run": nameOf(run), "data-step": x[0] }]) }];
  });
  return overSteps("losses", "loss by step", from, curves, (step) => told(step, "loss"));
}
const plainChart = (key, label) => overSteps(key, label, 1, runs.map((run) => ({ name: key, colour: colourOf(run), points: thin(column(run, key, 0)) })), (step) => told(step, key), HALF);

function runsTable() {
  const nats = (x) => (x === undefined ? "" : x.toFixed(4));
  return h("div", { class: "scroll" }, table([{ name: "run" }, { name: "steps", n: 1 }, { name: "loss", n: 1 }, { name: "eval loss", n: 1 }, { name: "least eval loss", n: 1 }, { name: "optimizer" }, { name: "learning rate", n: 1 }, { name: "tokens of a step", n: 1 }],
    runs.map((run) => {
      const r = run.record, least = run.evals.reduce((a, x) => (!a || x[1] < a[1] ? x : a), null);
      return { id: nameOf(run), title: run.path, cells: [h("span", null, h("i", { class: "swatch", style: { background: colourOf(run) } }), nameOf(run)), `${group(last(run.steps)[0])} of ${group(r.steps)}`, nats(last(run.steps)[COLUMN.loss]), nats(last(run.evals)?.[1]), least ? `${nats(least[1])} at ${group(least[0])}` : "", r.optimizer, `${r.lr}, ${r.schedule}`, group(r.batch * r.context)] };
    })));
}
const runsLegend = (more) => h("div", { style: { margin: ".6rem 0" } }, legend([...(runs.length > 1 ? runs.map((run) => [colourOf(run), nameOf(run)]) : []), ...(more || [])]));

function curvesRoom(room) {
  let part = 1;
  const spans = [[1, "all steps"], [0.5, "last half"], [0.1, "last tenth"]];
  const holder = h("section", { class: "card", id: "loss" }), fill = () => holder.replaceChildren(
    h("div", { class: "head" }, h("h2", null, "Loss"), tabs(spans, part, (x) => ((part = x), fill()))),
    h("p", { class: "note" }, "nats a token: of each step (faint), its mean over a fortieth of the steps shown (wide), and evaluations (dashed)"),
    runsLegend(), lossChart(Math.max(1, Math.floor(lastStep() * (1 - part)))) || "");
  fill();
  add(room, h("div", { class: "grid" }, card("Runs", { id: "runs" }, runsTable()), holder,
    card("Learning rate", { class: "span6" }, runsLegend(), plainChart("lr", "learning rate by step") || ""),
    card("Norm of the gradients", { class: "span6" }, h("p", { class: "note" }, "before they are clipped"), runsLegend(), plainChart("norm", "norm by step") || "")));
}

// ---- by depth ----
/** At most so many of a list, the first and the last among them. */
const some = (list, most) => (list.length <= most ? list : Array.from({ length: most }, (_, i) => list[Math.round((i * (list.length - 1)) / (most - 1))]));
const ageColour = (i, n) => `color-mix(in srgb, var(--p0) ${n > 1 ? Math.round(15 + (85 * i) / (n - 1)) : 100}%, var(--p8))`;

function byDepth(id, label, n, curves) {
  const every = Math.ceil(n / 30), ticks = Array.from({ length: n }, (_, i) => [i, String(i + 1)]).filter((t) => t[0] % every === 0);
  return chart({ id, label, curves, width: HALF, from: -0.5, to: n - 0.5, ticks, name: "sublayer" });
}
const KINDS = [["out_rms", "Outputs", "root mean square of what each sublayer adds to the stream"], ["out_grad_rms", "Gradients of outputs", "root mean square of the gradient of the loss with respect to it"]];
function depthCurve(run, line, key, how) {
  const names = run.depth.sublayers;
  return { name: key, dots: true, ...how, points: line[key].map((v, i) => [i, v, () => `${nameOf(run)}, step ${group(line.step)}\nsublayer ${i + 1}: ${names[i]}\n${v?.toPrecision(4)}`, { "data-what": key, "data-step": line.step, "data-place": i + 1 }]) };
}
function depthRoom(room) {
  const with_depth = runs.filter((run) => run.depths.length), grid = h("div", { class: "grid" });
  room.append(grid);
  if (!with_depth.length) return void grid.append(card("By depth", {}, h("p", { class: "empty" }, "Shown for runs of hadal train --depth-every N.")));
  for (const [key, title, note] of with_depth.length > 1 ? KINDS : []) {
    const n = Math.max(...with_depth.map((run) => run.depth.sublayers.length));
    grid.append(card(`${title}, at the last step`, { class: "span6" }, h("p", { class: "note" }, note), runsLegend(), byDepth(`last-${key}`, title, n, with_depth.map((run) => depthCurve(run, last(run.depths), key, { colour: colourOf(run) }))) || ""));
  }
  with_depth.forEach((run, r) => {
    const lines = some(run.depths, 6);
    for (const [key, title, note] of KINDS)
      grid.append(card(`${title}${runs.length > 1 ? ` of ${nameOf(run)}` : ""}, over time`, { class: "span6" }, h("p", { class: "note" }, note),
        h("div", { style: { margin: ".6rem 0" } }, legend(lines.map((line, i) => [ageColour(i, lines.length), `step ${group(line.step)}`]))),
        byDepth(`depth-${r}-${key}`, title, run.depth.sublayers.length, lines.map((line, i) => depthCurve(run, line, key, { colour: ageColour(i, lines.length), wide: i === lines.length - 1 }))) || ""));
  });
}

// ---- mixes ----
/** Rows read, columns are sources; those of one column are added. */
function mixMatrix(run, line) {
  const { columns, rows } = run.depth.mixes;
  return rows.map((row, r) => {
    const out = columns.map(() => null);
    row.columns.forEach((c, i) => line.mixes[r][i] !== null && (out[c] = (out[c] || 0) + line.mixes[r][i]));
    return out;
  });
}
function mixFigure(run, r) {
  const { columns, rows } = run.depth.mixes, holder = h("div", { class: "figure" }), text = h("output", { class: "mono" });
  const peak = run.depths.reduce((most, line) => line.mixes.flat().reduce((a, x) => Math.max(a, Math.abs(x)), most), 1); // one scale for all times
  let mine = [];
  const show = (i) => {
    const line = run.depths[i], before = painters.length;
    painters = painters.filter((paint) => !mine.includes(paint));
    holder.replaceChildren(heat(mixMatrix(run, line), rows.map((x) => x.label), columns, (y, x, v) => `step ${group(line.step)}\nsublayer ${rows[y].label} reads ${columns[x]}\n${v.toPrecision(4)}`, peak));
    mine = painters.slice(before - mine.length);
    text.textContent = `step ${group(line.step)}`;
  };
  const slider = h("input", { type: "range", id: `time-${r}`, min: 0, max: run.depths.length - 1, value: run.depths.length - 1, step: 1, "aria-label": "step", oninput: (e) => show(+e.target.value) });
  show(run.depths.length - 1);
  return card(runs.length > 1 ? nameOf(run) : "Weights of the mixes", { class: "span6" }, h("div", { class: "head" }, h("p", { class: "note" }, "mean weights; rows read, columns are sources"), h("label", { class: "time" }, slider, " ", text)), holder);
}
function mixesRoom(room) {
  const grid = h("div", { class: "grid" }), shown = runs.filter((run) => run.depths.length && run.depth.mixes);
  room.append(grid);
  if (!shown.length) return void grid.append(card("Mixes", {}, h("p", { class: "empty" }, "Shown for runs of hadal train --depth-every N whose models trace the weights of depth mixes.")));
  shown.forEach((run, r) => grid.append(mixFigure(run, r)));
}

// ---- options ----
function optionsRoom(room) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.record)))], value = (run, k) => run.record[k] ?? "–";
  const differs = (k) => runs.some((run) => value(run, k) !== value(runs[0], k));
  const rows = (list) => h("div", { class: "scroll" }, table([{ name: "" }, ...runs.map((run) => ({ name: nameOf(run) }))], list.map((k) => ({ id: k, cells: [k, ...runs.map((run) => String(value(run, k)))] }))));
  const grid = h("div", { class: "grid" });
  room.append(grid);
  if (runs.length > 1) grid.append(card("What differs", { id: "differs" }, rows(keys.filter(differs))));
  grid.append(card(runs.length > 1 ? "What is the same" : "run.json", { id: "same" }, rows(keys.filter((k) => !differs(k)))));
}

// ---- the page ----
const ROOMS = [["curves", "Curves", curvesRoom], ["depth", "Depth", depthRoom], ["mixes", "Mixes", mixesRoom], ["options", "Options", optionsRoom]];
function open() {
  const id = location.hash.slice(1), found = ROOMS.find((x) => x[0] === id) || ROOMS[0], room = $("room");
  hideTip();
  for (const a of $("rooms").children) a.dataset.room === found[0] ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
  room.replaceChildren();
  painters = [];
  room.dataset.room = found[0];
  try {
    found[2](room);
  } catch (fault) { // the page's data were edited by hand
    console.error(fault);
    room.replaceChildren(card("This room cannot be shown", { id: "fault" }, h("p", { class: "note" }, `The data are not as docs/training.md has them: ${fault.message}`)));
  }
}
function start() {
  startTheme();
  document.querySelector(".find").remove();
  document.querySelector("footer").textContent = "Keys: 1 to 4 rooms · t light or dark";
  document.title = `${runs.map(nameOf).join(", ")} – Hadal runs`;
  $("title").textContent = runs.length === 1 ? nameOf(runs[0]) : `${runs.length} runs`;
  $("subtitle").textContent = `${runs.map((run) => run.path).join(" · ")} · Hadal ${R.hadal}`;
  ROOMS.forEach(([id, text], i) => $("rooms").append(h("a", { href: "#" + id, "data-room": id, title: `${text} (${i + 1})` }, text)));
  $("theme").addEventListener("click", otherTheme);
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.type === "range") return;
    if (ROOMS[+e.key - 1]) location.hash = ROOMS[+e.key - 1][0];
    if (e.key === "t") otherTheme();
  });
  addEventListener("hashchange", open);
  if (R.schema !== SCHEMA) return void $("room").append(card(null, {}, h("p", { class: "empty" }, `This page shows ${SCHEMA}, not ${R.schema}.`)));
  open();
  document.documentElement.dataset.ready = "true";
}
start();
window.hadalRuns = { report: R }; // for other scripts
