#!/usr/bin/env python3
"""Links of the documentation: every page and heading that one leads to is there, every decision and page of figures is listed by its
directory's README, and every page of docs/ can be reached from the README of the project.

    links.py SOURCE"""
import glob
import os
import re
import sys

source = sys.argv[1]
FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.S | re.M)
faults = []


def pages():
    for folder in (".", "docs", "docs/*", "examples/*", "bench", "bench/*", "tests/*"):
        yield from sorted(glob.glob(os.path.join(source, folder, "*.md")))


def text_of(path):
    with open(path) as f:
        return FENCE.sub("", f.read())


def anchors(path):
    """Headings as GitHub and GitLab name them in links."""
    out = set()
    for heading in re.findall(r"^#+[ \t]+(.*)$", text_of(path), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
        out.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return out


links, reached = 0, {}
for page in pages():
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        links += 1
        path, _, anchor = target.partition("#")
        to = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        reached.setdefault(os.path.relpath(page, source), set()).add(os.path.relpath(to, source))
        if not os.path.exists(to):
            faults.append(f"{page}: {target} is not there")
        elif anchor and to.endswith(".md") and anchor not in anchors(to):
            faults.append(f"{page}: {target} has no such heading")
for overview in ("docs/decisions/README.md", "docs/figures/README.md"):
    listed = reached[overview] | {overview}
    for page in sorted(glob.glob(os.path.join(source, os.path.dirname(overview), "*.md"))):
        if os.path.relpath(page, source) not in listed:
            faults.append(f"{overview} does not list {os.path.basename(page)}")
found, new = set(), {"README.md"}
while new:
    found |= new
    new = {to for page in new for to in reached.get(page, ())} - found
for page in sorted(glob.glob(os.path.join(source, "docs/**/*.md"), recursive=True)):
    if os.path.relpath(page, source) not in found:
        faults.append(f"nothing that the README leads to leads to {os.path.relpath(page, source)}")
assert not faults, "\n".join(faults)
assert links > 300, links
print(f"{links} links")
