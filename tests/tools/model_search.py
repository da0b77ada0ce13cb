"""What the searches by random models share: draws, reading results, running hadal, and the command line."""
import argparse
import array
import json
import os
import random
import struct
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import checkpoint  # noqa: E402

EVALUATOR, COMPILED = 1e-6, 1e-4


class Draw(random.Random):
    def some(self, share=0.5):
        return self.random() < share

    def of(self, *values):
        return self.choice(values)

    def maybe(self, name, *values, share=0.5):
        """The field with one of the values, or as it was"""
        return {name: self.choice(values)} if self.some(share) else {}

    def list_of(self, n, *values):
        return [self.choice(values) for _ in range(n)]

    def divisor(self, n):
        return self.choice([d for d in range(1, n + 1) if n % d == 0])


def tensor(path, name):
    return checkpoint.read_numbers(path)[name]


def npy(path):
    with open(path, "rb") as f:
        data = f.read()
    out = array.array("f")
    out.frombytes(data[10 + struct.unpack("<H", data[8:10])[0]:])
    return out


def distance(got, expected):
    """max |got - expected| / max |expected|, or in words why there is none"""
    if len(got) != len(expected):
        return f"{len(got)} numbers instead of {len(expected)}"
    errors = [abs(a - b) for a, b in zip(got, expected)]
    return max(errors) / max(map(abs, expected)) if all(e == e for e in errors) else "not a number"


def errors_of(done):
    return [line for line in done.stderr.splitlines() if "error: " in line][:3] or done.stderr[-300:]


def hadal_run(hadal, what, folder, expected, *flags):
    """How far the logits of `what`, a folder or library, are from `expected` for the folder's tokens; or what was said instead"""
    tokens = os.path.join(folder, "expected.safetensors") + ":tokens"
    logits = os.path.join(folder, "logits.npy")
    done = subprocess.run([hadal, "run", what, "--tokens", tokens, "--logits", logits, *flags], capture_output=True, text=True)
    return errors_of(done) if done.returncode else distance(npy(logits), expected)


def said_of(results):
    """(what, limit, distance) in words: those that are no number, or above the limit, are WRONG"""
    return [(what, f"{e:.1e}" if isinstance(e, float) and e <= limit else f"WRONG {e}") for what, limit, e in results]


def checked(hadal, folder, *flags_of_compile):
    """Evaluated, and compiled with these flags: in one call, by token, cut"""
    expected = tensor(os.path.join(folder, "expected.safetensors"), "logits")
    library = os.path.join(folder, "out", "lib")
    os.makedirs(os.path.dirname(library))
    results = [("evaluator", EVALUATOR, hadal_run(hadal, folder, folder, expected, "--interpret"))]
    if not isinstance(results[0][2], float):
        return [("refused", results[0][2])]
    done = subprocess.run([hadal, "compile", folder, "-o", library, "--target-cpu", "native", *flags_of_compile], capture_output=True, text=True)
    if done.returncode:
        return [("compile", "WRONG " + done.stderr[:400])]
    for what, flags in (("one call", []), ("by token", ["--split", "1"]), ("cut", ["--split", "5,7,1" if len(tensor(os.path.join(folder, "expected.safetensors"), "tokens")) > 13 else "5,2"])):
        results.append((what, COMPILED, hadal_run(hadal, library, folder, expected, *flags)))
    return said_of(results)


def search(make, faults, families, mark, check=checked):
    """The command line of a search: folders by make(family, seed, folder) for each family and seed,
    FAMILY-mark-SEED, each checked and told in a line; exits with 1 if one is wrong. `faults`: what
    make raises where no model could be made."""
    p = argparse.ArgumentParser()
    p.add_argument("hadal")
    p.add_argument("work")
    p.add_argument("--first", type=int, default=1)
    p.add_argument("--count", type=int, default=5)
    p.add_argument("families", nargs="*")
    a = p.parse_intermixed_args()
    wrong = 0
    for seed in range(a.first, a.first + a.count):
        for family in a.families or families:
            folder = os.path.join(a.work, f"{family}-{mark}{seed}")
            try:
                changes, said = make(family, seed, folder)
                results = check(a.hadal, folder)
            except faults as error:
                changes, said, results = {}, [], [("made", f"WRONG {type(error).__name__} {str(error)[:300]}")]
            bad = any("WRONG" in r for _, r in results)
            wrong += bad
            print("FAIL" if bad else results[0][0] if results[0][0] == "refused" else "ok", family, seed, *said, *(f"{w} {r}" for w, r in results), json.dumps(changes) if bad or results[0][0] == "refused" else "", flush=True)
    sys.exit(1 if wrong else 0)
