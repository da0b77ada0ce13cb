"""The figures of learning.py, as plain SVG."""
import math
import statistics

COLOURS = ("#b3541e", "#1f5f99", "#5a7d2a")
FONT = 'font-family="sans-serif" font-size="11"'
LEVELS = 12  # shades of a map, by the root of the weight
DARKEST = 0.25  # the weight from which on a map is darkest


def svg(width, height, parts):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" {FONT}>',
                      f'<rect width="{width}" height="{height}" fill="#fff"/>', *parts, "</svg>", ""])


def text(x, y, s, anchor="start", more=""):
    s = s.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="#222"{more}>{s}</text>'


def short(x):
    return f"{x:.3g}".replace("e-0", "e-")


# ---- curves ----


def ticks(low, high, log):
    """Round numbers of an axis."""
    if log:
        powers = [m * 10.0**e for e in range(-12, 13) for m in (1, 2, 5)]
        inside = [p for p in powers if low <= p <= high]
        return inside if len(inside) <= 6 else [p for p in inside if math.log10(p) % 1 < 0.01 or math.log10(p) % 1 > 0.99]
    step = 10.0**math.floor(math.log10((high - low) / 2))
    step = next(s for s in (step / 5, step / 2, step, step * 2, step * 5) if (high - low) / s <= 6)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def panel(left, top, width, height, title, x_name, curves, log):
    """curves: by name, a list of runs, each a list of (x, y). Runs are thin, their mean is thick."""
    points = [p for runs in curves.values() for run in runs for p in run]
    x0, x1 = min(p[0] for p in points), max(p[0] for p in points)
    y0, y1 = min(p[1] for p in points), max(p[1] for p in points)
    y0, y1 = (y0 / 1.1, y1 * 1.1) if log else (y0 - 0.05 * (y1 - y0), y1 + 0.05 * (y1 - y0))
    f = math.log if log else float

    def at(x, y):
        return (left + width * (x - x0) / ((x1 - x0) or 1), top + height * (1 - (f(y) - f(y0)) / ((f(y1) - f(y0)) or 1)))

    out = [text(left, top - 10, title, more=' font-weight="bold"'), text(left + width / 2, top + height + 30, x_name, "middle")]
    for y in ticks(y0, y1, log):
        _, v = at(x0, y)
        out += [f'<path d="M{left} {v:.1f}h{width}" stroke="#ddd"/>', text(left - 5, v + 4, short(y), "end")]
    for x in ticks(x0, x1, False):
        h, _ = at(x, y0)
        out.append(text(h, top + height + 15, short(x), "middle"))
    out.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>')
    for colour, runs in zip(COLOURS, curves.values()):
        mean = [(column[0][0], statistics.fmean(p[1] for p in column)) for column in zip(*runs)]
        for run, style in [(run, 'stroke-width="0.7" opacity="0.45"') for run in runs] + [(mean, 'stroke-width="1.8"')]:
            d = "L".join("%.1f %.1f" % at(*p) for p in run)
            out.append(f'<path d="M{d}" fill="none" stroke="{colour}" {style}/>')
    return out


def by_depth(curves, outputs, gradients):
    """Figure 5: loss over steps, and outputs and gradients by sublayer; each by system a list of runs."""
    def numbered(runs):
        return {s: [list(enumerate(run, 1)) for run in x] for s, x in runs.items()}
    parts, width = [], 250
    for i, (title, x_name, values, log) in enumerate((
            ("loss of the text that is learned", "steps", {s: [[tuple(p) for p in run] for run in x] for s, x in curves.items()}, False),
            ("magnitude of outputs", "sublayer", numbered(outputs), True),
            ("magnitude of gradients of outputs", "sublayer", numbered(gradients), True))):
        parts += panel(50 + i * (width + 60), 50, width, 210, title, x_name, values, log)
    for i, (name, colour) in enumerate(zip(curves, COLOURS)):
        parts += [f'<path d="M{50 + 150 * i} 16h22" stroke="{colour}" stroke-width="2"/>', text(77 + 150 * i, 20, name)]
    return svg(50 + 3 * (width + 60), 300, parts)


# ---- maps ----


def shade(level):
    """From white to dark blue."""
    t = level / LEVELS
    return "#%02x%02x%02x" % tuple(round(a + (b - a) * t) for a, b in zip((247, 251, 255), (8, 48, 107)))


def weight_map(left, top, width, height, rows):
    """Cells of one map, of so many points, as a path a shade; a row is (number, weights)."""
    shades = {}
    for i, (_, weights) in enumerate(rows):
        for j, w in enumerate(weights):
            if w is not None:
                level = min(LEVELS, round(LEVELS * math.sqrt(max(0.0, w) / DARKEST)))
                shades.setdefault(level, []).append(f"M{j} {i}.5h1")
    columns = len(rows[0][1])
    out = [f'<g transform="translate({left} {top}) scale({width} {height})">', f'<rect width="{columns}" height="{len(rows)}" fill="#eee"/>']
    out += [f'<path d="{"".join(d)}" stroke="{shade(level)}"/>' for level, d in sorted(shades.items())]
    out.append("</g>")
    marks = [i for i in range(len(rows)) if i % 8 == 7 or i == 0]
    return out + [text(left - 4, top + height * (i + 0.5) + 4, rows[i][0], "end") for i in marks]


def mixes(systems):
    """Figure 8: of each system (name, weights by mix and source), mixes before attention and before MLPs beside each other."""
    parts, top, side = [], 20, 384
    for name, weights in systems:
        # the first sublayer has one source and no mix; the last mix is the head's
        rows = [(str(i + 2) if i + 1 < len(weights) else "head", w) for i, w in enumerate(weights)]
        columns = len(rows[0][1])
        blocks = columns < len(rows)
        for left, title, chosen in ((50, "read by attention, and by the head", rows[1::2]), (100 + side, "read by MLPs", rows[0::2])):
            parts.append(text(left, top + 17, title))
            parts += weight_map(left, top + 24, round(side / columns, 2), round(side / len(chosen), 2), chosen)
        parts += [text(50, top, name, more=' font-weight="bold"'),
                  text(50, top + side + 40, f"sources, from left to right: the embedding and the outputs of {'blocks' if blocks else 'sublayers'}")]
        top += side + 75
    for level in range(LEVELS + 1):
        parts.append(f'<rect x="{50 + 16 * level}" y="{top - 16}" width="16" height="10" fill="{shade(level)}"/>')
    for t in (0, 0.25, 0.5, 0.75, 1):
        parts.append(text(58 + 16 * LEVELS * t, top + 8, short(DARKEST * t * t), "middle"))
    parts.append(text(50 + 16 * (LEVELS + 1) + 6, top - 6, "weight; the darkest: so much, or more"))
    return svg(120 + 2 * side, top + 16, parts)
