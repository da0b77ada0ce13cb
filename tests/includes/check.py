"""Includes run down the ladder of folders only.

    check.py ROOT [RUNGS]     RUNGS: rungs.txt beside this file, which says what its lines mean

Reads each `#include "..."` of the C files and tables under ROOT and prints those that lean on a later rung,
a folder that has no rung, and a rung that has no file. Exit 1 if there is any.
"""
import os
import re
import sys

INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
USERS = {"tests", "bench", "examples", "build", "out"}  # what nothing includes; a folder in them may have a rung
MADE = {"llvm_names.h", "own_passes.def"}  # by the build, from tables


def read_rungs(path):
    """[(rung number, folder)], and for folders that say so what they may include instead."""
    rungs, only = {}, {}
    number = 0
    for line in open(path):
        line = line.split("#")[0].strip()
        if not line:
            continue
        folders, colon, allowed = line.partition(":")
        for folder in folders.split():
            rungs[folder] = number
            if colon:
                only[folder] = allowed.split()
        number += 1
    return rungs, only


def rung_of(path, rungs):
    """The longest row that `path` lies under, or None."""
    while path:
        if path in rungs:
            return path
        path = os.path.dirname(path)
    return None


def sources(root, tops):
    for top in sorted(tops):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def find(root, path, name):
    """Where `name`, included by `path`, lies: as the compiler looks for it."""
    for folder in (os.path.dirname(path), "", "include"):
        if os.path.isfile(os.path.join(root, folder, name)):
            return os.path.normpath(os.path.join(folder, name))
    return None


def check(root, rungs, only):
    faults, seen = [], set()
    tops = {folder.split("/")[0] for folder in rungs}
    for top in sorted(os.listdir(root)):
        if top not in tops | USERS and os.path.isdir(os.path.join(root, top)) and next(sources(root, [top]), None):
            faults.append(f"{top}: a folder with sources and without a rung")
    for path in sources(root, tops):
        mine = rung_of(path, rungs)
        if mine is None and path.split("/")[0] in USERS:
            continue
        if mine is None:
            faults.append(f"{path}: no rung holds its folder")
            continue
        seen.add(mine)
        for number, line in enumerate(open(os.path.join(root, path)), 1):
            match = INCLUDE.match(line)
            if not match or match.group(1) in MADE:
                continue
            there = find(root, path, match.group(1))
            if there is None:
                faults.append(f'{path}:{number}: "{match.group(1)}" is not in the tree')
                continue
            theirs = rung_of(there, rungs)
            if theirs is None:
                faults.append(f"{path}:{number}: includes {there}, which no rung holds")
            elif theirs == mine:
                continue
            elif mine in only:
                if theirs not in only[mine]:
                    faults.append(f"{path}:{number}: includes {there}, but {mine} may include {' and '.join(only[mine])} only")
            elif rungs[theirs] > rungs[mine]:
                faults.append(f"{path}:{number}: includes {there}, of a later rung ({theirs} comes after {mine})")
            elif rungs[theirs] == rungs[mine]:
                faults.append(f"{path}:{number}: includes {there}, which stands beside it ({theirs} and {mine} share a rung)")
    faults += [f"{folder}: a rung without files" for folder in rungs if folder not in seen]
    return faults


def main():
    root = sys.argv[1]
    rungs, only = read_rungs(sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "rungs.txt"))
    faults = check(root, rungs, only)
    for fault in faults:
        print(fault)
    if faults:
        print(f"{len(faults)} includes or folders are not as tests/includes/rungs.txt has them")
        return 1
    return 0


sys.exit(main())
