// A chart of curves, as SVG.

/** A step of an axis that has some five of them up to `size`. */
function niceStep(size) {
  const lead = 10 ** Math.floor(Math.log10(size / 5));
  return [1, 2, 5, 10].map((m) => m * lead).find((x) => x * 5 >= size * (1 - 1e-9));
}

/** The axis of values, all of them above 0: from 0 on; logarithmic where they are far from each other; `fit`: no wider than they need. */
function valueAxis(values, fit) {
  const most = Math.max(...values), least = Math.min(...values);
  if (most > 50 * least) {
    const ticks = [], from = Math.floor(Math.log10(least)), to = Math.ceil(Math.log10(most));
    for (let e = from; e <= to; e += Math.ceil((to - from) / 8)) ticks.push(10 ** e);
    return { ticks, place: (v) => (Math.log10(v) - from) / (to - from) };
  }
  const step = niceStep(fit && most > least ? most - least : most), from = fit ? step * Math.floor(least / step + 1e-9) : 0;
  const to = Math.max(from + step, step * Math.ceil(most / step - 1e-9)), ticks = [];
  for (let i = 0; from + i * step <= to + step * 1e-6; i++) ticks.push(from + i * step);
  return { ticks, place: (v) => (v - from) / (to - from) };
}

/** o: id, label; curves [{name, colour, wide, faint, points [[x, y, tip, data]], dots}], of which values that are not above 0 are left out;
    from, to, ticks [[x, text]], name of the axis below; fit. Null: there is nothing to show. `valueAt` of the result: x at the mouse. */
function chart(o) {
  const width = o.width || 900, height = 300, left = 60, bottom = 36, right = 12, top = 12;
  const curves = o.curves.map((c) => ({ ...c, points: c.points.filter((p) => p[1] > 0 && isFinite(p[1])) })), values = curves.flatMap((c) => c.points.map((p) => p[1]));
  if (!values.length) return null;
  const axis = valueAxis(values, o.fit), x = (v) => left + ((v - o.from) / (o.to - o.from || 1)) * (width - left - right), y = (v) => height - bottom - axis.place(v) * (height - bottom - top);
  const out = s("svg", { width: "100%", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": o.label, id: o.id });
  for (const v of axis.ticks)
    out.append(s("line", { class: "block-line", x1: left, x2: width - right, y1: y(v), y2: y(v) }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, String(+v.toPrecision(3))));
  for (const [v, text] of o.ticks) out.append(s("text", { x: x(v), y: height - bottom + 15, "text-anchor": "middle" }, text));
  out.append(s("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, o.name));
  for (const c of curves) {
    out.append(s("polyline", { points: c.points.map((p) => `${x(p[0]).toFixed(2)},${y(p[1]).toFixed(2)}`).join(" "), fill: "none", stroke: c.colour, "stroke-width": c.wide ? 2.5 : 1.5, "stroke-opacity": c.faint ? 0.35 : null, "stroke-dasharray": c.dashed ? "5 4" : null, "data-curve": c.name }));
    for (const p of c.dots ? c.points : [])
      out.append(tipped(s("circle", { cx: x(p[0]), cy: y(p[1]), r: c.wide ? 4 : 3, fill: c.colour, ...p[3] }), p[2]));
  }
  out.valueAt = (e) => {
    const box = out.getBoundingClientRect();
    return o.from + ((((e.clientX - box.left) * width) / box.width - left) / (width - left - right)) * (o.to - o.from);
  };
  return out;
}
