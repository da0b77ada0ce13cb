// The page: its views ("rooms"), links, keys, search.

const ROOMS = [["summary", "Summary", summaryRoom], ["passes", "Passes", passesRoom], ["depth", "Depth", depthRoom], ["ledger", "Ledger", ledgerRoom], ["memory", "Memory", memoryRoom], ["time", "Time", timeRoom], ["code", "Code", codeRoom]];
if (B) ROOMS.splice(1, 0, ["compare", "Against", compareRoom]);

/** "#pass=split-merge&op=%142" as {room, pass, op}. */
function readLink(hash) {
  const link = { room: "summary" };
  hash.replace(/^#/, "").split("&").forEach((part, i) => {
    const at = part.indexOf("="), key = at < 0 ? part : part.slice(0, at);
    if (!i) link.room = key === "pass" ? "passes" : key || "summary";
    if (at < 0) return;
    const text = part.slice(at + 1), sign = key === "op" && text.startsWith("%") ? "%" : "";
    try {
      link[key] = sign + decodeURIComponent(text.slice(sign.length));
    } catch {
      link[key] = text;
    }
  });
  if (!ROOMS.some((r) => r[0] === link.room)) link.room = "summary";
  return link;
}
const go = (hash) => {
  if (location.hash === hash) open();
  else location.hash = hash;
};

let shown = null;
function open() {
  const link = readLink(location.hash);
  hideTip();
  // the link is to another op of the same pass, so the list of ops keeps its position
  if (shown && shown.room === "passes" && link.room === "passes" && passView && (!link.pass || history.find(link.pass) === passView.stage)) {
    choose(passView, link);
    shown = link;
    return;
  }
  for (const a of $("rooms").children) {
    a.removeAttribute("aria-current");
    if (a.dataset.room !== link.room) continue;
    a.setAttribute("aria-current", "page");
    $("rooms").scrollLeft = a.offsetLeft - $("rooms").clientWidth / 2 + a.clientWidth / 2;
  }
  const room = $("room");
  room.replaceChildren();
  painters = [];
  passView = null;
  showLife(null);
  if (!shown || shown.room !== link.room) scrollTo(0, 0);
  shown = link;
  room.dataset.room = link.room;
  try {
    fill(room, link);
  } catch (fault) { // the page's data were edited by hand
    console.error(fault);
    room.replaceChildren(card("This room cannot be shown", { id: "fault" }, h("p", { class: "note" }, `The data of the report are not as docs/report-json.md has them: ${fault.message}`)));
  }
}
function fill(room, link) {
  if (!R.facts && link.room !== "summary" && link.room !== "compare") room.append(card(null, {}, h("p", { class: "empty" }, "The model could not be compiled. "), h("a", { href: "#summary" }, "What is wrong")));
  else ROOMS.find((r) => r[0] === link.room)[2](room, link);
}

// ---- search ----
const MOST_FOUND = 120;
function find(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean), found = [];
  if (!words.length || !history) return found;
  const has = (t) => words.every((w) => t.includes(w));
  const stage = passView?.stage || history.last;
  const value = /^%(.+)$/.exec(text.trim());
  if (value) {
    const op = history.opNamed(stage, value[1]);
    if (op !== undefined) found.push(["value", `${history.text(stage, history.layout(stage).row.get(op))}`, opLink(op, stage)]);
    return found;
  }
  for (const step of history.stages) if (has(step.pass)) found.push(["pass", step.id, `#pass=${encodeURIComponent(step.id)}`]);
  for (const w of history.weights) {
    if (found.length >= MOST_FOUND / 3 || !has(`${w.name} ${w.type}`.toLowerCase())) continue;
    const name = history.strings.indexOf(w.name);
    const home = [history.first, history.last].find((x) => readerOf(x, name) !== undefined);
    if (home) found.push(["weight", `@${w.name} : ${w.type}`, opLink(readerOf(home, name), home)]);
  }
  // sublayers: those that have the text as it stands, "pass 2", else those that have its words
  const all = [...sublayers].map(([number, name]) => [number, name, `sublayer ${number} ${name}`.toLowerCase()]), whole = text.trim().toLowerCase();
  const exact = all.filter((x) => x[2].includes(whole));
  for (const [number, name] of exact.length ? exact : all.filter((x) => has(x[2]))) {
    const line = R.depth.rows.find((r) => r.sublayer === number && r.line)?.line;
    if (found.length < MOST_FOUND / 2) found.push(["sublayer", `${number} ${name}`, (line && lineLink(line)) || "#depth"]);
  }
  for (const r of grouped(R.remarks || []).map((g) => g[0])) if (found.length < MOST_FOUND / 2 && has(`${r.pass} ${r.code} ${r.text}`.toLowerCase())) found.push([r.taken ? "remark" : "not applied", r.text, r.op !== null && opLink(r.op, history.shown(history.stages[r.stage])) ? opLink(r.op, history.shown(history.stages[r.stage])) : `#pass=${encodeURIComponent(history.stages[r.stage].id)}`]);
  // search in ops: first the strings that contain a word, then the rows that have such a string for every word
  const sets = words.map((w) => new Set(history.strings.flatMap((t, i) => (i && t.toLowerCase().includes(w) ? [i] : []))));
  const rows = history.rows(stage);
  for (let i = 0; i < rows.length && found.length < MOST_FOUND; i++) {
    const f = history.forms[rows[i]];
    if (!sets.every((set) => wordsOf(f).some((x) => set.has(x)))) continue;
    found.push(["op", history.text(stage, i), linkTo(stage, f[FORM.op])]);
  }
  for (const fn of R.code?.functions || []) if (found.length < MOST_FOUND && has(fn.name.toLowerCase())) found.push(["code", fn.name, `#code=${encodeURIComponent(fn.name)}`]);
  return found;
}
/** The strings of a row form. */
function wordsOf(f) {
  const out = [f[FORM.code], f[FORM.attrs]];
  for (let k = 0; k < f[FORM.results]; k++) out.push(f[FORM.first + 3 * k + 1]);
  for (let k = FORM.first + 3 * f[FORM.results]; k < f.length; k++) if ((f[k] & 3) > 1) out.push(f[k] >> 2);
  return out;
}
function readerOf(stage, name) {
  if (!stage.readers) {
    stage.readers = new Map();
    for (const form of history.rows(stage)) for (const o of history.operands(history.forms[form])) if (o.kind === "weight" && !stage.readers.has(o.of)) stage.readers.set(o.of, history.forms[form][FORM.op]);
  }
  return stage.readers.get(name);
}

function search() {
  const input = $("search"), list = $("found"), found = find(input.value);
  list.replaceChildren();
  list.hidden = !input.value.trim();
  input.setAttribute("aria-expanded", String(!list.hidden));
  if (list.hidden) return;
  if (!found.length) list.append(h("li", { class: "none" }, h("span"), h("span", null, "nothing found")));
  found.forEach(([kind, text, link], i) => list.append(h("li", { role: "option", "aria-selected": String(!i), "data-link": link, onmousedown: (e) => (e.preventDefault(), take(link)) }, h("span", null, kind), h("span", { class: kind === "pass" || kind === "remark" || kind === "not applied" ? "" : "mono" }, text))));
}
function take(link) {
  $("found").hidden = true;
  $("search").blur();
  if (link) go(link);
}
function move(by) {
  const items = [...$("found").children], at = items.findIndex((x) => x.getAttribute("aria-selected") === "true");
  const next = Math.max(0, Math.min(items.length - 1, at + by));
  items[at]?.setAttribute("aria-selected", "false");
  items[next]?.setAttribute("aria-selected", "true");
  items[next]?.scrollIntoView({ block: "nearest" });
}

// ---- keys ----
function stepOp(by) {
  const view = passView;
  if (!view) return;
  const marked = view.items.map((x, i) => (x.mark ? i : -1)).filter((i) => i >= 0);
  const row = (x) => (x.b >= 0 ? history.op(view.stage, x.b) : history.op(view.stage.before, x.a));
  const at = view.op === null ? -1 : view.items.findIndex((x) => x.fold === undefined && row(x) === view.op);
  const next = by > 0 ? marked.find((i) => i > at) : marked.filter((i) => i < (at < 0 ? Infinity : at)).pop();
  if (next === undefined) return;
  const item = view.items[next], stage = item.b >= 0 ? view.stage : view.stage.before;
  go(chosenLink(view, stage, row(item)));
}
function stepPass(by) {
  if (!history) return;
  const now = passView?.stage || history.changed[0], at = history.changed.indexOf(now);
  const next = history.changed[Math.max(0, Math.min(history.changed.length - 1, at + by))];
  go(`#pass=${encodeURIComponent(next.id)}`);
}
function onKey(e) {
  const typing = e.target === $("search");
  if (typing) {
    if (e.key === "ArrowDown") move(1), e.preventDefault();
    if (e.key === "ArrowUp") move(-1), e.preventDefault();
    if (e.key === "Enter") take($("found").querySelector('[aria-selected="true"]')?.dataset.link);
    if (e.key === "Escape") take(null);
    return;
  }
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const room = ROOMS[+e.key - 1];
  if (room) return go("#" + room[0]);
  const keys = { "/": () => ($("search").focus(), $("search").select(), e.preventDefault()), t: otherTheme, Escape: () => !$("life").hidden && $("life").querySelector(".close").click(), n: () => stepOp(1), p: () => stepOp(-1), "]": () => stepPass(1), "[": () => stepPass(-1) };
  keys[e.key]?.();
}

function start() {
  startTheme();
  document.title = `${R.name || R.path} – Hadal report`;
  $("title").textContent = R.name || (R.path || "Hadal").split("/").pop();
  $("subtitle").textContent = `${R.path || ""} · Hadal ${R.hadal}${B ? ` · against ${B.path}` : ""}`;
  ROOMS.forEach(([id, text], i) => $("rooms").append(h("a", { href: "#" + id, "data-room": id, title: `${text} (${i + 1})` }, text)));
  $("search").addEventListener("input", search);
  $("search").addEventListener("focus", search);
  $("search").addEventListener("blur", () => ($("found").hidden = true));
  $("theme").addEventListener("click", otherTheme);
  addEventListener("keydown", onKey);
  addEventListener("hashchange", open);
  if (R.schema !== SCHEMA || (B && B.schema !== SCHEMA)) return void $("room").append(card(null, {}, h("p", { class: "empty" }, `This page shows ${SCHEMA}, not ${R.schema}.`)));
  open();
  document.documentElement.dataset.ready = "true";
  performance.mark("ready");
}
start();
// the data of the page, for other scripts
window.hadalReport = { report: R, against: B, history, other, find };
