#!/usr/bin/env python3
"""A report of every published family, opened in a browser: each room at two widths without a word on the console, and wider than
the screen nowhere. Families of different kinds of layers are run, so that all rooms have something to show.

    families.py HADAL SOURCE OUT [all]       all: every one of them is run

The short set has three of those that are run and each ninth of the others, wide or narrow by turns; with HADAL_FULL=1 it is all.

Exit code 77: there is no browser. BROWSER names another program than `chromium`."""
import glob
import os
import subprocess
import sys

from chromium import Browser, begin

hadal, source, out, program = begin()
ROOMS = ["summary", "passes", "depth", "ledger", "memory", "time", "code"]
# experts, chosen positions, latents, recurrences, tables and streams beside each other, several streams with selection
AT_WORK = {"gpt_oss", "glm5_next", "deepseek_v3", "kimi_linear", "gemma3n", "qwen4_exp"}
WITH_CODE = {"kimi_linear"}  # of them, in the short set
full = os.environ.get("HADAL_FULL") == "1" or sys.argv[4:] == ["all"]
if not full:
    AT_WORK = WITH_CODE | {"gpt_oss", "gemma3n"}


def report(folder, name):
    page = os.path.join(out, name + ".html")
    run = name in AT_WORK or sys.argv[4:] == ["all"]
    options = ["--tokens", "1,2,3,4,5,6,7,8,9", "--threads", "1"] if run else []
    if not run or not (full or name in WITH_CODE):
        options += ["--code", "none"]
    done = subprocess.run([hadal, "report", folder, *options, "-o", page], capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.returncode}\n{done.stderr}"
    return page, run


def look(page, name, run):
    """Every room, and the life of the value that the last output is."""
    for room in ROOMS:
        page.go("#" + room)
        assert page.run("document.getElementById('room').dataset.room") == room, (name, room)
        assert page.run("document.getElementById('fault') === null"), (name, room, page.complaints())
        assert not page.run("document.documentElement.scrollWidth > innerWidth"), f"{name}: {room} is too wide"
    page.go(page.run("'#pass=' + hadalReport.history.last.id + '&op=line' + hadalReport.history.layout(hadalReport.history.last).lines.slice(-3)[0]"))
    page.until("!document.getElementById('life').hidden")
    if run:
        page.go("#time")
        assert page.run("document.querySelectorAll('.flame').length") == 2, name
        page.go("#code")
        if full or name in WITH_CODE:
            page.until("document.querySelectorAll('#listing .row').length > 5")
    assert page.complaints() == [], (name, page.complaints())


browser = Browser(program)
page = browser.page()
seen = 0
try:
    for number, config in enumerate(sorted(glob.glob(os.path.join(source, "tests/published/*/config.json")))):
        folder = os.path.dirname(config)
        name = os.path.basename(folder)
        if not full and number % 9 and name not in AT_WORK:
            continue
        path, run = report(folder, name)
        shapes = (1280, 900, "light"), (400, 860, "dark")
        for width, height, scheme in shapes if full or run else shapes[seen % 2:][:1]:
            page.shape(width, height, scheme)
            page.open(path)
            look(page, name, run)
        seen += 1
        if not run:
            os.remove(path)
finally:
    browser.close()
assert seen > (40 if full else 8) and all(os.path.exists(os.path.join(out, name + ".html")) for name in AT_WORK), seen
print(f"{seen} families")
