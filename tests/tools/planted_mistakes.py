#!/usr/bin/env python3
"""Mistakes planted one at a time, to see whether the tests see them (planted_list.py).

    planted_mistakes.py --check                     each text to change stands once in the sources: the test `planted_mistakes`
    planted_mistakes.py --list
    planted_mistakes.py BUILD [--only N or PART OF A NAME ...]
                                                    BUILD: a build folder of this tree, Ninja's, which is built again for each of them

A mistake is written into the sources, what its tests need is built, the tests run, and the sources are as before, also after an interrupt: so use a
worktree of its own, and a build without optimisation (CMAKE_C_FLAGS_RELEASE=-O0) and with ccache, where each takes some ten seconds. It is caught
where a test fails, or the build does. The code is that of a mistake for a while: do not edit the tree meanwhile.
Ends with 1 if one is not caught."""
import argparse
import functools
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from planted_list import MISTAKES  # noqa: E402

SOURCES = ("api", "codegen", "comm", "driver", "frontend", "inspect", "ir", "passes", "report", "runtime", "support", "text")


def read_sources():
    out = {}
    for folder in SOURCES:
        for where, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if name.endswith((".c", ".h", ".js", ".hadal", ".def")):
                    path = os.path.join(where, name)
                    with open(path, encoding="utf-8") as f:
                        out[path] = f.read()
    return out


def flat(text):
    """With single blanks, so that an edit of an indentation or of a line's end is none of the text."""
    return re.sub(r"\s+", " ", text)


def pattern(before):
    return re.compile(r"\s+".join(re.escape(word) for word in before.split()))


def find(sources, before):
    """The files that have the text, once for each time."""
    first = before.split()[0]
    return [path for path, text in sources.items() if first in text for _ in pattern(before).finditer(text)]


def check(sources):
    bad = 0
    for name, before, after, _, tests in MISTAKES:
        found = find(sources, before)
        folder = name.split(":")[0]
        if len(found) != 1:
            print(f"{name}: the text to change stands {len(found)} times in the sources: {flat(before)}")
        elif not os.path.relpath(found[0], ROOT).startswith(folder + "/"):
            print(f"{name}: {os.path.relpath(found[0], ROOT)} is in another folder")
        elif flat(before) == flat(after) or not tests:
            print(f"{name}: nothing is changed, or no test is named")
        else:
            continue
        bad += 1
    names = [m[0] for m in MISTAKES]
    doubled = {n for n in names if names.count(n) > 1}
    if doubled:
        print(f"names that stand twice: {', '.join(sorted(doubled))}")
    print(f"{len(MISTAKES)} mistakes, {bad} that can no longer be planted")
    return bad or len(doubled)


def run(command, build, seconds):
    try:
        done = subprocess.run(command, cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, errors="replace", check=False)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return -1, "time is up"


@functools.cache
def known_targets(build):
    with open(os.path.join(build, "build.ninja"), encoding="utf-8") as f:
        return set(re.findall(r"^build (\S+): phony", f.read(), re.M))


def targets(build, tests):
    """What is built: programs of unit tests by their names, and for all other tests the command with what it links models with."""
    known, out = known_targets(build), set()
    for test in tests:
        if test.startswith("unit/"):
            out |= {test[5:]} if test[5:] in known else {k for k in known if re.fullmatch(test[5:] + r"\w*", k)}
        else:
            out |= {"hadal", "tensor_compare", "hadalrt", "hadal_threads", "ranks_compare"} & known
    return sorted(out)


def plant(sources, mistake, build):
    name, before, after, _, tests = mistake
    path = find(sources, before)[0]
    begun = time.time()
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(pattern(before).sub(lambda _: after, sources[path]))
        built, text = run(["ninja", "-j2", *targets(build, tests)], build, 1200)
        if built:
            return "does not build", text, time.time() - begun
        failed = []
        for test in tests:
            code, text = run(["ctest", "-R", f"^{test}{'$' if test[5:] in known_targets(build) else ''}", "--timeout", "120"], build, 1200)
            ran = "No tests were found" not in text
            failed += [test] if ran and code else []
            if failed:
                break
        return ("caught by " + failed[0]) if failed else "NOT CAUGHT", text, time.time() - begun
    finally:
        with open(path, "w", encoding="utf-8") as f:
            f.write(sources[path])


def chosen(only):
    for i, m in enumerate(MISTAKES, 1):
        if not only or str(i) in only or any(not o.isdigit() and o in m[0] for o in only):
            yield i, m


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", nargs="?")
    p.add_argument("--check", action="store_true")
    p.add_argument("--list", action="store_true")
    p.add_argument("--only", nargs="+", default=[])
    p.add_argument("--verbose", action="store_true", help="print what the last test or the build said")
    o = p.parse_args()
    if o.list:
        for i, (name, _, _, why, tests) in chosen(o.only):
            print(f"{i:3} {name}: {why} ({', '.join(tests)})")
        return 0
    sources = read_sources()
    bad = check(sources)
    if o.check or bad:
        return 1 if bad else 0
    if not o.build or not os.path.exists(os.path.join(o.build, "build.ninja")):
        p.error("BUILD must be a build folder of Ninja")
    missed = 0
    for i, m in chosen(o.only):
        result, text, took = plant(sources, m, os.path.abspath(o.build))
        missed += result == "NOT CAUGHT"
        print(f"{i:3} {m[0]}: {result}, {took:.0f} s", flush=True)
        if o.verbose or not result.startswith("caught"):
            print("\n".join("      " + line for line in text.splitlines()[-15:]), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
