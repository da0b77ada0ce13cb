#!/usr/bin/env python3
"""Command lines of the documentation: every `hadal` line that stands in a page as a command has options that the command takes.
Nothing is run: with --help a command reads its options and explains itself. What they do is for the tests of the commands.

    commands.py HADAL SOURCE"""
import glob
import os
import re
import shlex
import subprocess
import sys

hadal, source = sys.argv[1:]
ENDS = re.compile(r"^(\||\|\||&&|;|>|>>|2>.*|<|--)$")
faults, commands = [], 0


def lines(page):
    """Indented lines that begin with hadal, or with what starts it; those that end with \\ go on in the next."""
    with open(page) as f:
        text = f.read().replace("\\\n", " ")
    for line in re.findall(r"^ {4,}(?:\$ )?(.*)$", text, re.M):
        at = re.match(r"(?:mpirun [^#]*?)?(?:build/release/bin/)?hadal (?=[a-z])", line)
        if at:
            yield line[at.end():]


for folder in (".", "docs", "examples/*", "bench", "tests/*"):
    for page in sorted(glob.glob(os.path.join(source, folder, "*.md"))):
        if os.path.basename(page) == "CHANGELOG.md":
            continue
        for line in lines(page):
            words = []
            for word in shlex.split(line, comments=True):
                if ENDS.match(word):
                    break
                if word not in ("...", ".."):
                    words.append(word.rstrip(";"))
            commands += 1
            told = subprocess.run([hadal, *words, "--help"], capture_output=True, text=True)
            if told.returncode:
                faults.append(f"{page}: hadal {line}\n{told.stderr}")
assert not faults, "\n".join(faults)
assert commands > 60, commands
