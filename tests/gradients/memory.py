"""Gradients with as little memory as possible: values of the forward half are computed again.

    memory.py HADAL FOLDER WORK [CASE..]    FOLDER/CASE: the models; no case: all (full set), or FEW

Bounded by the least that the compiler names, and half way to it, gradients are those without a bound, most of them to the bit: recomputed
ops are the same ops, and an op's bits depend on its operands alone and not on the kernel that it is in. Two things do, so that 1e-6 of the
largest element is allowed (seen: 3e-7): a sum over tokens has another order in a row program than in a kernel of its own, and a sum over
heads, in the gradients of norms of q and k, takes products unrounded where its kernel makes them, rounded where another one has stored
them. Where the passes of depth are left out under a bound, since with them kernels would move more, mixes are computed in another way, and
gradients are the same up to what that rounds (seen: 2e-5). With all sums over tokens in kernels of their own gradients are the same, up to the order of these sums. A byte less is rejected. The plan is what a trainer takes:
NAME_trainer_size, less the memory of its threads, is the plan's sum, and after a call with one thread that much is resident, but for
some of what several threads share."""
import ctypes
import json
import mmap
import os
import re
import subprocess
import sys

import projections

hadal, folder, work, *chosen = sys.argv[1:]
FEW, LIMIT, TABLES = ["attnres-block", "mhc"], 1e-6, 8192
AS_WRITTEN = 5e-5  # for mixes in two phases and as they are written
os.makedirs(work, exist_ok=True)


def run(*arguments, fails=False):
    done = subprocess.run([hadal, *map(str, arguments)], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stderr if fails else done.stdout


def compare(case, a, b, limit=LIMIT, bits=True):
    largest = max(abs(x) for g in a.values() for x in g)
    worst, same = 0.0, 0
    assert a.keys() == b.keys()
    for name, x in a.items():
        scale = max(max(map(abs, x)), 1e-2 * largest)
        off = max(abs(p - q) for p, q in zip(x, b[name])) / scale
        assert off <= limit, f"{case}: {name} is off by {off:.2g}"
        worst = max(worst, off)
        same += off == 0
    assert not bits or same > len(a) / 2, f"{case}: {same} of {len(a)} gradients have the same bits"
    return worst


def sequence(case, chunk):
    """Arguments of `hadal gradients` for the tokens of a case, and of a trainer for up to so many."""
    tokens = [int(t) for t in projections.read_numbers(os.path.join(folder, case, "expected.safetensors"))["tokens"]]
    return ["gradients", os.path.join(folder, case), "--tokens", ",".join(map(str, tokens)), "--targets", ",".join(map(str, tokens[1:] + [-1])),
            "--chunk", chunk or len(tokens), "-q", "--json", "-o", os.path.join(work, case + ".safetensors")], len(tokens)


def least_of(arguments):
    return int(re.search(r"they take (\d+) bytes", run(*arguments, "--memory", 1, fails=True)).group(1))


def check(case):
    arguments, tokens = sequence(case, 0)
    free = json.loads(run(*arguments))["memory"]
    without = projections.read_numbers(arguments[-1])
    run(*arguments, "--token-sums", "kernels")
    compare(case, without, projections.read_numbers(arguments[-1]), 1e-5, False)
    least = least_of(arguments)
    half = (least + free["all"]) // 2
    graph = ["opt", os.path.join(folder, case), "--gradients", "--passes=default", "--stop-after=rematerialise", "--chunk", tokens]
    one_form = ("depth." in run(*graph, "-o", "-")) == ("depth." in run(*graph, "--memory", half, "-o", "-"))
    run(*arguments, "--memory", half)
    compare(case, without, projections.read_numbers(arguments[-1]), LIMIT if one_form else AS_WRITTEN, one_form)
    tight = json.loads(run(*arguments, "--memory", least))["memory"]
    off = compare(case, without, projections.read_numbers(arguments[-1]))
    assert least - TABLES <= tight["all"] <= least <= free["all"] and tight["kept"] <= tight["arena"] <= free["arena"]
    assert f"fit in {least - 1} bytes" in run(*arguments, "--memory", least - 1, fails=True)
    text = run(*graph, "--memory", least, "--check-passes", "-o", "-")
    assert " = after %" in text
    assert text.count(" = topk %") == run(*graph, "-o", "-").count(" = topk %"), f"{case}: a choice is made again"
    print(f"{case}: {tight['arena']} bytes of values in place of {free['arena']}, off by {off:.1g}")


def resident(start):
    """Resident bytes of the mapping that begins there; None: it is a part of another."""
    with open("/proc/self/smaps") as f:
        found = re.search(rf"^{start:x}-[0-9a-f]+ .*?^Rss: +(\d+) kB", f.read(), re.M | re.S)
    return int(found.group(1)) * 1024 if found else None


def check_size(case, tokens):
    """The plan against a trainer, half way to the least."""
    arguments, _ = sequence(case, tokens)
    bound = (least_of(arguments) + json.loads(run(*arguments))["memory"]["all"]) // 2
    plan = json.loads(run(*arguments, "--memory", bound))["memory"]
    done = subprocess.run([hadal, "compile", os.path.join(folder, case), "--gradients", "--chunk", str(tokens), "--memory", str(bound),
                           "--target-cpu", "native", "-o", os.path.join(work, "model")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(f"sequences of up to {tokens} tokens takes .* for each thread", done.stderr), done.stderr
    assert re.search(r"\d+ values are computed again, [0-9.]+ % more work: ", done.stderr), done.stderr
    lib, trainer = ctypes.CDLL(os.path.join(work, "libmodel.so")), ctypes.c_void_p()
    lib.model_trainer_size.restype = ctypes.c_size_t
    size = lib.model_trainer_size(ctypes.c_int64(tokens))
    threads = min(os.sysconf("SC_NPROCESSORS_CONF"), 256) * plan["thread"]
    assert plan["all"] <= bound and abs(size - threads - plan["all"]) <= TABLES, f"{size - threads} bytes, not {plan['all']}"
    memory = mmap.mmap(-1, size)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert lib.model_trainer_init(ctypes.c_void_p(at), ctypes.c_size_t(size), ctypes.c_int64(tokens), ctypes.byref(trainer)) == 0
    assert lib.model_trainer_set_threads(trainer, 1) == 0
    ids, lengths = (ctypes.c_int32 * tokens)(*[1] * tokens), (ctypes.c_int64 * 1)(tokens)
    total, count = ctypes.c_double(), ctypes.c_int64()
    assert lib.model_gradients(trainer, ids, ids, lengths, ctypes.c_int64(1), ctypes.byref(total), ctypes.byref(count)) == 0
    used = resident(at)
    assert used is None or 0.85 * plan["all"] <= used <= 1.05 * (plan["all"] + plan["thread"]), f"{used} bytes, not {plan['all']}"
    print(f"{case}: {used} bytes are resident, {plan['all']} in the plan")


cases = chosen or sorted(c for c in os.listdir(folder) if os.path.exists(os.path.join(folder, c, "expected.safetensors")))
if os.environ.get("HADAL_FULL") != "1" and not chosen:
    cases = FEW
for case in cases:
    check(case)
check_size(cases[-1], 512)
