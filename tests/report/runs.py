#!/usr/bin/env python3
"""The page of `hadal report RUN ..` in a browser: what is shown against the logs of the runs, over time and beside each other, light and
dark, wide and narrow, hostile names.

    runs.py HADAL SOURCE OUT        screenshots are left in OUT

Exit code 77: there is no browser. BROWSER names another program than `chromium`."""
import json
import os
import subprocess

from chromium import Browser, begin, expect

hadal, source, out, program = begin()
ROOMS = ["curves", "depth", "mixes", "options"]
HOSTILE = "<img src=x onerror=pwned()>"


def at(*names):
    return os.path.join(out, *names)


def run(*arguments):
    done = subprocess.run([hadal, *arguments, "-q"], capture_output=True, text=True, cwd=source)
    assert done.returncode == 0, f"hadal {arguments}: {done.returncode}\n{done.stderr}"


with open(at("text"), "w", encoding="ascii") as f:
    f.write("the sea is deep and the depth is read. " * 40)
TRAIN = ["train", "examples/tiny/tiny.hadal", "-D", "layers=3", "--data", at("text"), "--eval-data", at("text"), "--context", "16", "--batch", "2", "--steps", "6",
         "--warmup", "2", "--eval-every", "2", "--save-every", "0"]
run(*TRAIN, "--depth-every", "2", "-o", at("first"))
run(*TRAIN, "--lr", "0.003", "-o", at(HOSTILE))
run("report", at("first"), "-o", at("one.html"))
run("report", at("first"), at(HOSTILE), "-o", at("two.html"))
with open(at("first", "log.jsonl"), encoding="ascii") as f:
    log = [json.loads(line) for line in f]
with open(at("first", "depth.json"), encoding="ascii") as f:
    described = json.load(f)
depths, evals = ([line for line in log if key in line] for key in ("out_rms", "eval_loss"))

browser = Browser(program)
page = browser.page()
try:
    for width, height, scheme in ((1280, 900, "light"), (400, 860, "dark")):
        page.shape(width, height, scheme)
        page.open(at("two.html"))
        expect(page.run("document.documentElement.dataset.theme"), scheme, "palette")
        for room in ROOMS:
            page.go("#" + room)
            expect(page.run("document.getElementById('room').dataset.room"), room, "room")
            expect(page.run("document.querySelector('nav [aria-current]').dataset.room"), room, "tab")
            assert page.run("document.getElementById('room').textContent.length") > 40, room
            expect(page.run("document.getElementById('fault')"), None, room)
            expect(page.run("document.documentElement.scrollWidth > innerWidth"), False, f"{room} is wider than {width}")
            page.screenshot(at(f"{room}-{width}-{scheme}.png"))
        expect(page.complaints(), [], f"complaints at {width}")
    expect(page.run("window.pwned"), None, "a name that is markup")

    # losses, learning rate and norm; both runs in each chart
    page.shape(1280, 900, "light")
    page.open(at("two.html"))
    expect(page.run("[...document.querySelectorAll('#runs tbody tr')].map((x) => x.dataset.row)"), ["first", HOSTILE], "runs")
    row = page.run("document.querySelector('#runs tbody tr').textContent")
    for part in ("6 of 6", f"{[line for line in log if 'loss' in line][-1]['loss']:.4f}", f"{evals[-1]['eval_loss']:.4f}"):
        assert part in row, (part, row)
    expect(page.run("document.querySelectorAll('#losses [data-curve=loss]').length"), 2, "curves of losses")
    expect(page.run("[...document.querySelectorAll('#losses circle')].filter((x) => x.dataset.run === 'first').map((x) => +x.dataset.step)"), [line["step"] for line in evals], "evaluations")
    for key in ("lr", "norm"):
        points = page.run(f"[...document.querySelectorAll('#{key} polyline')].map((x) => x.getAttribute('points').split(' ').length)")
        expect(points, [6, 6], f"points of {key}")
    page.run("[...document.querySelectorAll('#loss .tabs button')].find((b) => b.textContent === 'last half').click()")
    expect(page.run("[...document.querySelectorAll('#losses [data-curve=loss]')].map((x) => x.getAttribute('points').split(' ').length)"), [4, 4], "steps of the last half")

    # by depth: a point for each sublayer at each time, the last time among them; of the run that has them
    page.open(at("one.html"))
    page.go("#depth")
    for key in ("out_rms", "out_grad_rms"):
        shown = page.run(f"[...document.querySelectorAll('#depth-0-{key} circle')].map((x) => [+x.dataset.step, +x.dataset.place])")
        expect(shown, [[line["step"], i + 1] for line in depths for i, x in enumerate(line[key]) if x > 0], key)
    # mixes: the slider goes through the times
    page.go("#mixes")
    expect(page.run("document.querySelectorAll('canvas').length"), 1, "the map of the mixes")
    expect(page.run("document.querySelector('output').textContent"), f"step {depths[-1]['step']}", "the last time")
    page.run("(() => { const x = document.getElementById('time-0'); x.value = 0; x.dispatchEvent(new Event('input')); })()")
    expect(page.run("document.querySelector('output').textContent"), f"step {depths[0]['step']}", "the first time")
    expect(page.run("document.querySelectorAll('canvas').length"), 1, "one map at a time")
    page.key("t", "t")
    expect(page.run("document.documentElement.dataset.theme"), "dark", "palette after t")
    page.key("4", "4")
    page.until("document.getElementById('room').dataset.room === 'options'")
    assert "depth_every" in page.run("document.getElementById('same').textContent")
    page.open(at("two.html"))
    page.go("#options")
    expect(page.run("[...document.querySelectorAll('#differs tbody tr')].map((x) => x.dataset.row)"), ["lr", "depth_every"], "options that differ")

    # what the report says as JSON
    done = subprocess.run([hadal, "report", at("first"), "--json", "-q"], capture_output=True, text=True)
    report = json.loads(done.stdout)
    expect(report["schema"], "hadal-runs-1", "schema")
    expect(report["runs"][0]["depths"], depths, "lines by depth")
    expect(report["runs"][0]["depth"], described, "what they are of")
    expect(report["runs"][0]["steps"], [[x["step"], x["loss"], x["lr"], x["norm"]] for x in log if "loss" in x], "steps")
    expect(page.complaints(), [], "complaints")
finally:
    browser.close()
print(f"{len(log)} lines of the log, {len(depths)} by depth")
