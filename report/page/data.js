// The data of the page: the report's JSON (docs/report-json.md). Its history of ops is unpacked when somebody
// looks at it.

const SCHEMA = "hadal-report-1";
const readData = (id) => JSON.parse(document.getElementById(id).textContent);

/** Single numbers from runs of consecutive ones, [first, count, first, count, ..]. */
function* each(runs) {
  for (let i = 0; i < runs.length; i += 2)
    for (let k = 0; k < runs[i + 1]; k++) yield runs[i] + k;
}

/** The words of a row form: docs/report-json.md has the table. */
const FORM = { op: 0, code: 1, attrs: 2, file: 3, line: 4, column: 5, parent: 6, results: 7, first: 8 };
const OPERAND = ["none", "value", "weight", "state"];

class History {
  constructor(json) {
    this.strings = json.strings;
    this.forms = json.forms;
    this.stages = json.stages;
    this.inputs = json.inputs;
    this.names = new Map(json.names);
    this.weights = json.weights;
    this.ops = json.ops;
    this.calls = new Map();
    for (let i = 0; i < (json.calls || []).length; i += 4) this.calls.set(json.calls[i], json.calls.slice(i + 1, i + 4));
    this.changed = this.stages.filter((s) => s.changed);
    this.stages.forEach((s, i) => {
      s.number = i;
      s.id = this.stages.filter((o) => o.pass === s.pass).length > 1 ? `${s.pass}@${s.index}` : s.pass;
    });
    this.changed.forEach((s, i) => (s.before = i ? this.changed[i - 1] : null));
    this.last = this.changed[this.changed.length - 1];
    this.first = this.changed[0];
  }

  /** The stage that a link names; if the pass ran several times, the last time. */
  find(id) {
    const same = this.stages.filter((s) => s.id === id || s.pass === id);
    return same.find((s) => s.id === id) || same.filter((s) => s.changed).pop() || same.pop();
  }
  /** The stage itself if it changed something, else the one before it that did. */
  shown(stage) {
    while (!stage.changed) stage = this.stages[stage.number - 1];
    return stage;
  }

  /** By row: the number of its row form. */
  rows(stage) {
    if (stage.form) return stage.form;
    const out = [], before = stage.before ? this.rows(stage.before) : null;
    for (let i = 0; i < stage.rows.length; i += 3) {
      const [fresh, from, n] = stage.rows.slice(i, i + 3);
      for (let k = 0; k < n; k++) out.push(fresh ? from + k : before[from + k]);
    }
    return (stage.form = Uint32Array.from(out));
  }
  rowForm(stage, row) {
    return this.forms[this.rows(stage)[row]];
  }
  op(stage, row) {
    return this.rowForm(stage, row)[FORM.op];
  }

  /** The line of each row in the dump, the number of each unnamed value there, and the row of each op. */
  layout(stage) {
    if (stage.layout) return stage.layout;
    const rows = this.rows(stage), lines = new Uint32Array(rows.length), row = new Map(), number = new Map();
    const end = new Int32Array(rows.length); // of a kernel: the row after its body
    let line = stage.first_line, next = 0, kernel = -1;
    for (const v of this.inputs) if (!this.names.has(v)) number.set(v, next++);
    for (let i = 0; i < rows.length; i++) {
      const f = this.forms[rows[i]];
      if (kernel >= 0 && !f[FORM.parent]) {
        line++; // the brace
        end[kernel] = i;
        kernel = -1;
      }
      if (this.strings[f[FORM.code]].startsWith("kernel.")) kernel = i;
      lines[i] = line++;
      row.set(f[FORM.op], i);
      for (let k = 0; k < f[FORM.results]; k++) {
        const v = f[FORM.first + 3 * k];
        if (!this.names.has(v)) number.set(v, next++);
      }
    }
    if (kernel >= 0) end[kernel] = rows.length;
    const of_line = new Map();
    lines.forEach((l, i) => of_line.set(l, i));
    return (stage.layout = { lines, row, number, of_line, end });
  }
  /** The HIR_DIFF marks of the rows, as class names of the style sheet. */
  marks(stage) {
    if (stage.mark) return stage.mark;
    const mark = (stage.mark = new Array(this.rows(stage).length).fill(""));
    for (const [key, word] of [["added", "added"], ["changed_rows", "changed"], ["moved", "moved"]])
      if (stage[key]) for (const i of each(stage[key])) mark[i] = word;
    return mark;
  }

  valueName(stage, v) {
    return "%" + (this.names.get(v) ?? this.layout(stage).number.get(v) ?? "?");
  }
  results(f) {
    const out = [];
    for (let k = 0; k < f[FORM.results]; k++) {
      const at = FORM.first + 3 * k;
      out.push({ value: f[at], type: this.strings[f[at + 1]], place: this.strings[f[at + 2]] });
    }
    return out;
  }
  operands(f) {
    return f.slice(FORM.first + 3 * f[FORM.results]).map((w) => ({ kind: OPERAND[w & 3], of: w >> 2 }));
  }
  operandText(stage, o) {
    if (o.kind === "none") return "_";
    if (o.kind === "value") return this.valueName(stage, o.of);
    return (o.kind === "weight" ? "@" : "$") + this.strings[o.of];
  }
  /** The pieces [class, text] of a row, as the printer of the IR writes it. */
  pieces(stage, row) {
    const f = this.rowForm(stage, row), results = this.results(f), out = [];
    results.forEach((r, i) => out.push(["a", i ? ", " : ""], ["v", this.valueName(stage, r.value)]));
    out.push(["a", results.length ? " = " : ""], ["o", this.strings[f[FORM.code]]]);
    this.operands(f).forEach((o, i) => out.push(["a", i ? ", " : " "], [o.kind === "value" ? "v" : o.kind === "none" ? "a" : "w", this.operandText(stage, o)]));
    if (f[FORM.attrs]) out.push(["a", ` {${this.strings[f[FORM.attrs]]}}`]);
    results.forEach((r, i) => {
      out.push(["t", (i ? ", " : " : ") + r.type]);
      if (r.place) out.push(["a", " in " + r.place]);
    });
    return out;
  }
  text(stage, row) {
    return this.pieces(stage, row).map((p) => p[1]).join("");
  }
  location(f) {
    if (!f[FORM.file]) return null;
    const call = this.calls.get(f[FORM.op]);
    return { file: this.strings[f[FORM.file]], line: f[FORM.line], column: f[FORM.column], call: call && { file: this.strings[call[0]], line: call[1], column: call[2] } };
  }

  /** By value of a stage: the op that makes it, and the ops that read it. */
  flow(stage) {
    if (stage.flow) return stage.flow;
    const maker = new Map(), users = new Map(), rows = this.rows(stage);
    for (let i = 0; i < rows.length; i++) {
      const f = this.forms[rows[i]];
      for (const r of this.results(f)) maker.set(r.value, f[FORM.op]);
      for (const o of this.operands(f)) {
        if (o.kind !== "value") continue;
        if (!users.has(o.of)) users.set(o.of, []);
        users.get(o.of).push(f[FORM.op]);
      }
    }
    return (stage.flow = { maker, users });
  }
  neighbours(stage, op) {
    const row = this.layout(stage).row.get(op);
    const operands = new Set(), users = new Set();
    if (row === undefined) return { operands, users };
    const f = this.rowForm(stage, row), { maker, users: readers } = this.flow(stage);
    for (const o of this.operands(f)) if (o.kind === "value" && maker.has(o.of)) operands.add(maker.get(o.of));
    for (const r of this.results(f)) for (const u of readers.get(r.value) || []) users.add(u);
    return { operands, users };
  }
  heirs(stage) {
    if (stage.heir) return stage.heir;
    stage.heir = new Map();
    for (let i = 0; i < (stage.heirs || []).length; i += 2) stage.heir.set(stage.heirs[i], stage.heirs[i + 1]);
    return stage.heir;
  }

  /** The op that makes the value called %name in a stage. */
  opNamed(stage, name) {
    const { number } = this.layout(stage);
    const text = name.replace(/^%/, "");
    let value = [...this.names].find((x) => x[1] === text)?.[0];
    if (value === undefined && /^\d+$/.test(text)) value = [...number].find((x) => x[1] === +text)?.[0];
    return value === undefined ? undefined : this.flow(stage).maker.get(value);
  }
  /** A name for the op in links: the name of its first result, else the line of its row. */
  linkOf(stage, op) {
    const row = this.layout(stage).row.get(op);
    if (row === undefined) return null;
    const results = this.results(this.rowForm(stage, row));
    return results.length ? this.valueName(stage, results[0].value) : "line" + this.layout(stage).lines[row];
  }
  opOfLink(stage, link) {
    const line = /^line(\d+)$/.exec(link);
    if (!line) return this.opNamed(stage, link);
    const row = this.layout(stage).of_line.get(+line[1]);
    return row === undefined ? undefined : this.op(stage, row);
  }
  /** The row of the kernel that contains a row, or the row itself if it is a kernel; -1: there is none. */
  kernelRow(stage, row) {
    const f = this.rowForm(stage, row);
    if (this.layout(stage).end[row]) return row;
    return f[FORM.parent] ? this.layout(stage).row.get(f[FORM.parent] - 1) : -1;
  }
  attr(f, key) {
    const found = new RegExp(`(?:^|, )${key} = (?:"([^"]*)"|([^,]*))`).exec(this.strings[f[FORM.attrs]]);
    return found ? found[1] ?? found[2] : null;
  }

  /** The history of an op: {stage, op, row, what} for each stage that did something to it. */
  life(op) {
    const out = [];
    // its predecessors: ops whose successor it is; of several, the last one listed in the stage that made this
    // op
    const born = this.changed.findIndex((s) => this.layout(s).row.has(op));
    if (born > 0) {
      const stage = this.changed[born];
      const parent = [...this.heirs(stage)].filter((x) => x[1] === op).map((x) => x[0]).pop();
      if (parent !== undefined) out.push(...this.past(parent, born));
    }
    this.follow(op, born, out);
    return out;
  }
  past(op, until) {
    const born = this.changed.findIndex((s) => this.layout(s).row.has(op)), out = [];
    if (born < 0 || born >= until) return out;
    if (born > 0) {
      const parent = [...this.heirs(this.changed[born])].filter((x) => x[1] === op).map((x) => x[0]).pop();
      if (parent !== undefined) out.push(...this.past(parent, born));
    }
    for (let i = born; i < until; i++) this.note(this.changed[i], op, i === born, out);
    return out;
  }
  note(stage, op, first, out) {
    const row = this.layout(stage).row.get(op);
    if (row === undefined) return;
    const mark = this.marks(stage)[row];
    if (first || mark) out.push({ stage, op, row, what: first ? (stage.before ? "made" : "written") : mark });
  }
  follow(op, from, out) {
    for (let i = Math.max(from, 0); i < this.changed.length; i++) {
      const stage = this.changed[i];
      if (this.layout(stage).row.has(op)) {
        this.note(stage, op, i === from, out);
        continue;
      }
      const heir = this.heirs(stage).get(op);
      if (heir === undefined) {
        out.push({ stage, op, row: -1, what: "removed" });
        return;
      }
      op = heir;
      out.push({ stage, op, row: this.layout(stage).row.get(op), what: "replaced" });
    }
  }
}

/** The beginning of a name up to its first number: "model.layers.3". */
const layerOf = (name) => /^(?:[^.\d]+\.)*\d+/.exec(name)?.[0] || "";

const R = readData("report");

/** By number, the name of a sublayer: "layers.7.mlp.down_proj, pass 2" of a layer that runs several times. */
const sublayers = new Map((R.depth?.rows || []).filter((r) => r.sublayer).map((r) => [r.sublayer, r.name]));
const passOf = (name) => +(/, pass (\d+)$/.exec(name)?.[1] || 0);
/** By layer that runs several times, how often. */
const loops = new Map();
for (const name of sublayers.values()) if (passOf(name)) loops.set(layerOf(name), Math.max(loops.get(layerOf(name)) || 0, passOf(name)));
/** "pass 1: 5-12, pass 2: 13-20", numbers of sublayers; empty: every layer runs once. */
function passSpans() {
  const spans = [];
  for (const [number, name] of [...sublayers].sort((a, b) => a[0] - b[0])) {
    const last = spans[spans.length - 1], pass = passOf(name);
    if (last?.pass === pass) last.to = number;
    else spans.push({ pass, from: number, to: number });
  }
  return spans.filter((x) => x.pass).map((x) => `pass ${x.pass}: ${x.from === x.to ? x.from : `${x.from}-${x.to}`}`).join(", ");
}
const B = readData("against");
const history = R.history ? new History(R.history) : null;
const D = readData("difference");
const other = B && B.history ? new History(B.history) : null;

/** A stage's ledger by phase, in units of d per token per sublayer. */
function stageUnits(stage) {
  const l = stage.ledger;
  if (!l) return null;
  const scale = 1 / (l.unit * l.sublayers);
  const phases = Object.entries(l.phases).map(([name, [read, written]]) => ({ name, read: read * scale, written: written * scale }));
  return { phases, read: l.total[0] * scale, written: l.total[1] * scale, total: (l.total[0] + l.total[1]) * scale };
}

/** The text of a listing, which is compressed by zlib, in base64. */
async function unpack(listing) {
  if (listing.plain !== undefined) return listing.plain;
  const bytes = Uint8Array.from(atob(listing.text), (c) => c.charCodeAt(0));
  if (!bytes.length) return (listing.plain = "");
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return (listing.plain = await new Response(stream).text());
}
/** The ranges of a function's code, each with its line of the kernel IR, as positions in the object's text section. */
function codeRanges(f) {
  const out = [];
  for (let i = 0; i < (f.ranges?.length || 0); i += 4) {
    const [line, first, n, listed] = f.ranges.slice(i, i + 4);
    out.push({ line, from: f.offset + first, to: f.offset + first + n, bytes: n, listed });
  }
  return out;
}
/** The line that an op of a kernel has in a function. Kernels with equal bodies share one function, which has the
 * lines of the first of them. */
function lineInFunction(name, kernel, line) {
  const lines = R.code.steps.filter((x) => x.functions.includes(name)).map((x) => x.line);
  return line - kernel + Math.min(kernel, ...lines);
}
/** The functions of a step, and of the functions that they call, such as epilogues, those that have code of a line;
 * each with the number that the line has in it. */
function functionsOf(step, line) {
  const of_steps = new Set(R.code.steps.flatMap((x) => x.functions)), out = [];
  let shared = line;
  for (const name of new Set(step.functions)) {
    const f = R.code.functions.find((x) => x.name === name);
    if (f) out.push([f, (shared = lineInFunction(name, step.line, line))]);
  }
  for (const f of R.code.functions) if (!of_steps.has(f.name) && codeRanges(f).some((x) => x.line === shared)) out.push([f, shared]);
  return out;
}
/** By line of a listing: its line of the kernel IR. */
function listingLines(listing) {
  const out = [];
  for (let i = 0; i < listing.lines.length; i += 2) for (let k = 0; k < listing.lines[i + 1]; k++) out.push(listing.lines[i]);
  return out;
}
