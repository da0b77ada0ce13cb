// Code: LLVM IR and assembly of a function, side by side with the lines of the kernel IR.

function codeRoom(room, link) {
  const c = R.code;
  if (!c) return void room.append(card("Code", {}, h("p", { class: "empty" }, R.made_of === "model" ? "The report was made with --code none." : "The report was made with --code none, or without IR of the kernel stage.")));
  const f = c.functions.find((x) => x.name === link.code) || c.functions.find((x) => c.steps.some((step) => step.functions.includes(x.name))) || c.functions[0];
  const form = link.form === "llvm" ? "llvm" : "assembly";
  const own = c.functions.filter((x) => c.steps.some((step) => step.functions.includes(x.name))), rest = c.functions.filter((x) => !own.includes(x));
  // the name without what all have in common: the model at its start, the CPU level at its end
  const short = (name) => name.replace(new RegExp(`^${R.name}[._]`), "").replace(new RegExp(`_${c.level}$`), "");
  const entry = (x) => h("button", { type: "button", "aria-pressed": String(x === f), onclick: () => go(`#code=${encodeURIComponent(x.name)}&form=${form}`), "data-function": x.name }, h("span", { title: x.name }, short(x.name)), h("span", null, bytes(x.bytes)));
  const holder = h("div");
  room.append(h("div", { class: "split" },
    card(`Functions for ${c.level}`, {}, h("div", { class: "list", id: "functions" }, own.map(entry), rest.length ? h("h3", { style: { margin: ".8rem 0 .3rem .5rem" } }, "called by them") : null, rest.map(entry))),
    h("section", { class: "card" }, h("div", { class: "head" }, h("h2", { id: "function" }, f.name), tabs([["assembly", "assembly"], ["llvm", "LLVM IR"]], form, (x) => go(`#code=${encodeURIComponent(f.name)}&form=${x}`))),
      h("p", { class: "note" }, `${group(f.bytes)} bytes, ${hex(f.offset)} to ${hex(f.offset + f.bytes)} of the object`, kernelsOf(f), R.made_of !== "model" && "; made of its kernel IR by the version of Hadal that wrote the report"), holder)));
  room.querySelector('.list [aria-pressed="true"]')?.scrollIntoView({ block: "nearest" });
  listingView(f, form, holder, +link.line || 0);
}

function kernelsOf(f) {
  const steps = R.code.steps.filter((x) => x.functions.includes(f.name));
  if (!steps.length) return null;
  return [`; computes ${plural(steps.length, "kernel")}: `, steps.slice(0, 6).map((x, i) => [i ? ", " : "", h("a", { href: lineLink(x.line) }, `${x.kernel} (line ${x.line})`)]), steps.length > 6 ? " …" : ""];
}

async function listingView(f, form, holder, wanted) {
  const text = await unpack(f[form]), lines = text.split("\n"), of = listingLines(f[form]);
  if (!text) return void holder.append(h("p", { class: "empty" }, "It has no code of its own: another function does what it would."));
  const of_line = history.layout(history.last).of_line;
  const ranges = codeRanges(f), begins = new Map(form === "assembly" ? ranges.map((x) => [x.listed, x.from]) : []);
  const source = h("div", { class: "quote ir", id: "made-for" }, h("span", { class: "a" }, "Point at a line: the op of the kernel IR that it was made for stands here, and where its code is."));
  let now = 0;
  const list = new VirtualList(20, (i) => {
    const node = h("div", { class: "row single" + (of[i] && of[i] === now ? " lit" : ""), "data-line": of[i] || null },
      h("div", { class: "cell" }, form === "assembly" && ranges.length > 0 && h("span", { class: "gutter address", title: "address in the object" }, begins.has(i) ? begins.get(i).toString(16) : ""),
        h("span", { class: "gutter", title: "line of the kernel IR" }, of[i] || ""), h("span", { class: "line" }, lines[i].replace(/\t/g, "  "))));
    node.addEventListener("mouseenter", () => point(of[i]));
    node.addEventListener("click", () => of[i] && lineLink(of[i]) && go(lineLink(of[i])));
    return node;
  }, { class: "virtual ir listing", id: "listing" });
  const point = (line) => {
    now = line;
    for (const [i, node] of list.shown) node.classList.toggle("lit", !!of[i] && of[i] === line);
    const row = of_line.get(line);
    const made = ranges.filter((x) => x.line === line), n = made.reduce((a, x) => a + x.bytes, 0);
    source.replaceChildren(row === undefined ? h("span", { class: "a" }, `${line}  no op of the kernel IR`) : h("span", null, h("span", { class: "a" }, line + "  "), irText(history.last, row)),
      h("div", { class: "a" }, n ? [`${plural(n, "byte")} in ${plural(made.length, "range")}: `, rangeText(made, 6)] : "no code of its own"));
  };
  holder.append(source, h("div", { style: { height: ".6rem" } }), list.box);
  list.set(lines.length);
  if (wanted) {
    point(wanted);
    const at = of.indexOf(wanted);
    if (at >= 0) list.show(at);
  }
}
