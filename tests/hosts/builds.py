"""builds.py HADAL SPEC FOLDER: library, header and weights of `hadal compile` are one unit, whatever happens beside it.

Pairs of processes compile one model with different weights to one name, many pairs at once; and compiles are killed at random moments,
over an earlier build. Afterwards all files are of one build, or those that are there cannot be taken for a whole: no library.
HADAL_SEED repeats the moments, HADAL_PAIRS and HADAL_KILLS say how many: 8 and 6, and 50 and 24 in the full set (HADAL_FULL=1)."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

hadal, spec, folder = sys.argv[1:4]
full = os.environ.get("HADAL_FULL") == "1"
pairs, kills, most = int(os.environ.get("HADAL_PAIRS", 50 if full else 8)), int(os.environ.get("HADAL_KILLS", 24 if full else 6)), 6
seed = int(os.environ.get("HADAL_SEED", random.randrange(1 << 30)))
draw = random.Random(seed)
small = ["-D", "layers=1", "-D", "hidden=16", "-D", "ff=16", "-D", "heads=2"]
shutil.rmtree(folder, ignore_errors=True)
os.makedirs(folder + "/cache")
os.environ["HADAL_CODE_CACHE"] = folder + "/cache"


def ask(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def compile(which, name, more=()):
    command = [hadal, "compile", spec, *small, "-w", f"{folder}/{which}.safetensors", "--march", "baseline", "-q", *more]
    return subprocess.Popen(command + ["-o", f"{folder}/{name}"])


def files(name):
    """What there is of a build, and the build ids that header and weights have."""
    base = os.path.dirname(f"{folder}/{name}")
    stem = os.path.basename(name)
    there = {n for n in os.listdir(base) if n in (f"lib{stem}.so", f"{stem}.h", f"{stem}.weights") or re.fullmatch(rf"{stem}\.r\d+of\d+\.weights", n)}
    ids = set()
    for n in there:
        if n.endswith(".h"):
            ids.add(re.search(r'_BUILD_ID +"([0-9a-f-]+)"', open(f"{base}/{n}").read())[1])
        if n.endswith(".weights"):
            head = open(f"{base}/{n}", "rb").read(128)
            values = head[64:80] if any(head[64:80]) else head[48:64]
            ids.add(head[96:104].hex() + "-" + values[:8].hex())
    return there, ids


def judge(name, whole, what):
    there, ids = files(name)
    assert len(ids) <= 1, (seed, what, there, ids)
    if any(n.endswith(".so") for n in there):
        assert len(there) == whole, (seed, what, there)
        ask(hadal, "info", f"{folder}/{name}")  # exit code 1: of different builds
        id = ids.pop()
        assert ask(hadal, "info", f"{folder}/{name}").count(id) == whole, (seed, what)
        return id
    return None


for i, which in enumerate("ab"):
    ask(hadal, "init-weights", "--draw-all", spec, *small, "--seed", str(i + 1), "-o", f"{folder}/{which}.safetensors")
assert compile("a", "first/m").wait() == 0
ids = {judge("first/m", 3, "a")}
assert compile("b", "first/m").wait() == 0
ids.add(judge("first/m", 3, "b"))
assert len(ids) == 2 and None not in ids, ids

running, left, winners = [], list(range(pairs)), []
while left or running:
    while left and len(running) < most:
        i = left.pop()
        two = [compile(which, f"pairs/m{i}") for which in draw.sample("ab", 2)]
        running.append((i, two))
    for i, two in list(running):
        if all(p.poll() is not None for p in two):
            running.remove((i, two))
            assert [p.returncode for p in two] == [0, 0], (seed, i)
            winners.append(judge(f"pairs/m{i}", 3, f"pair {i}"))
            assert winners[-1] in ids, (seed, i)
    time.sleep(0.002)
assert not [n for n in os.listdir(folder + "/pairs") if n.startswith(".")], os.listdir(folder + "/pairs")

# three ranks' weights are of a build, too
for more, whole in ((), 3), (("--ranks", "2"), 4):
    began = time.time()
    assert compile("a", "killed/m", more).wait() == 0
    took = time.time() - began
    for k in range(kills // 2):
        p = compile(draw.choice("ab"), "killed/m", more)
        time.sleep(took * draw.random() * 1.2)
        p.send_signal(signal.SIGKILL)
        p.wait()
        judge("killed/m", whole, f"kill {k}")
    time.sleep(0.3)  # linkers of the killed have ended
    assert compile("b", "killed/m", more).wait() == 0
    assert not [n for n in os.listdir(folder + "/killed") if n.startswith(".hadal-")], (seed, os.listdir(folder + "/killed"))
    assert judge("killed/m", whole, "after kills"), seed
print(f"{pairs} pairs, of which {len(winners) - winners.count(winners[0])} ended otherwise than the first; {kills} kills")
