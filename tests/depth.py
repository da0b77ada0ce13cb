#!/usr/bin/env python3
"""depth.py HADAL SPEC FOLDER [SYSTEM..]: what comes before code takes a time that grows with the operands of the graph, of which
systems that keep every sublayer have a number that grows with the square of the layers.

CPU time of --emit=header, which runs passes and lowering and makes no code, of LESS and MORE layers, per operand of the graph.
With HADAL_FULL=1 of every system of bench/specs/residuals.hadal."""
import glob, os, re, subprocess, sys, time

hadal, spec, folder, *systems = sys.argv[1:]
LESS, MORE, BOUND = 50, 200, 2.0  # a search of all weights or users for each operand makes it 4 or more
TRIES = 3       # other programs may take the CPU for a while
TOLD = 0.9      # of the time that starting and ending the process are part of
MANY = int(os.environ.get("DEPTH_TEST_LAYERS", "0"))  # 0: as many as MORE says
os.makedirs(folder, exist_ok=True)


def operands(layers, system):
    path = f"{folder}/graph.hir"
    subprocess.run([hadal, "opt", spec, *model(layers, system), "--passes=lower-traces", "-q", "-o", path], check=True)
    return sum(len(re.findall(r"[%@]", line)) for line in open(path) if line.lstrip().startswith("%"))


def model(layers, system):
    return ["-D", f"system={system}", "-D", f"layers={layers}", "-D", "hidden=64"]


def seconds(layers, system):
    before = os.times()
    said = subprocess.run([hadal, "compile", spec, *model(layers, system), "-q", "--emit=header", "--time-passes", "-o", f"{folder}/m"],
                          check=True, stderr=subprocess.PIPE, text=True).stderr
    after = os.times()
    steps = [float(ms) for ms in re.findall(r"^[a-z].*? ([0-9.]+) ms$", said, re.M)]
    assert "lowering" in said and "verification" in said, said
    return after.children_user + after.children_system - before.children_user - before.children_system, sum(steps) / 1e3


def least(measure, enough):
    """The least of a few measurements, or the first that is enough."""
    found = []
    while len(found) < TRIES and (not found or min(found) > enough):
        found.append(measure())
    return min(found)


def per_operand(system, more):
    less = max(seconds(LESS, system)[0] for _ in range(2))
    return (seconds(more, system)[0] / operands(more, system)) / (less / operands(LESS, system))


if os.environ.get("HADAL_FULL") == "1":
    systems += sorted(set(re.findall(r'if system == "([^"]+)"', open(spec).read())) - set(systems))
failed = False
for system in systems:
    more = MANY or MORE
    ratio = least(lambda: per_operand(system, more), BOUND)
    print(f"{system}: {more} layers take {ratio:.2f} times as long as {LESS} do, per operand")
    failed |= ratio > BOUND


def ledger_seconds(layers, system):
    before = os.times()
    subprocess.run([hadal, "inspect", spec, *model(layers, system), "-q", "--ledger=json"], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


# Every input has all outputs before it among its sources: lists of them after each pass made deepnorm 6 times as long. Sources that
# are met twice (laurel-lr), and inputs with a few of their own (siamesenorm), had lists of their own.
def ledger_growth(system):
    return ledger_seconds(400, system) / 400 / (ledger_seconds(50, system) / 50)


for system in ["deepnorm", "laurel-lr", "siamesenorm"] + (["mhc-lite", "attnres-window"] if os.environ.get("HADAL_FULL") == "1" else []):
    ratio = least(lambda: ledger_growth(system), BOUND)
    print(f"{system}: the ledger of 400 layers takes {ratio:.2f} times as long as that of 50, per layer")
    failed |= ratio > BOUND


# Blocks of Attention Residuals that are longer give no longer kernels, each of which becomes a function: LLVM's time for a
# function grows faster than its length.
def longest_kernel(layers, system):
    path = f"{folder}/kernels.hir"
    subprocess.run([hadal, "opt", spec, *model(layers, system), "-D", f"block={layers // 4}", "--passes=default", "-q", "-o", path],
                   check=True)
    return max(len(body.splitlines()) for body in re.findall(r"= kernel\.(.*?)^  }", open(path).read(), re.M | re.S))


LONGER = 1.2
for system in ["attnres", "attnres-sigmoid", "attnres-static"]:
    less, more = longest_kernel(256, system), longest_kernel(512, system)
    print(f"{system}: {more} ops in the longest kernel of 8 blocks of 128 sublayers, {less} of blocks of 64")
    failed |= more > LONGER * less


# Row programs that differ in the number of their sources share functions.
def row_functions(layers, system):
    base = f"{folder}/functions"
    subprocess.run([hadal, "compile", spec, *model(layers, system), "--emit=llvm", "--target-cpu", "avx2", "-q", "-o", base], check=True)
    text = "".join(open(f).read() for f in glob.glob(glob.escape(base) + "*.ll"))
    return len(set(re.findall(r"^define [^\n]*@(functions_row\w+)\(", text, re.M)))


for system in ["depth-attention"]:
    less, more = row_functions(10, system), row_functions(40, system)
    print(f"{system}: {more} functions of row programs of 40 layers, {less} of 10")
    failed |= not 0 < more <= less


def not_told():
    begun = time.monotonic()
    told = seconds(MORE, systems[0])[1]
    return 1 - told / (time.monotonic() - begun)


share = 1 - least(not_told, 1 - TOLD)
print(f"--time-passes tells {100 * share:.1f} % of the time")
sys.exit(failed or share < TOLD)
