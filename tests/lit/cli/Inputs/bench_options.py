"""bench_options.py SPEC LIBRARY: every option that `hadal bench --help` names does something, or is refused.

An option that reaches what it is for refuses a value that makes no sense; one that nobody reads takes it without a word. So each
has such a value here, for a spec and for a library that was compiled before, and an option without a line here fails the test."""
import re
import subprocess
import sys

# how it is told that the value is wrong, of a spec and of a library
SPEC, GROUP = "for a SPEC, and this is a compiled model", "for a model that is divided over ranks"
OPTIONS = {
    "define": ("nosuch=1", "no such parameter", SPEC),
    "include": ("nowhere", "there is no folder", SPEC),
    "weights": ("nowhere", "cannot open", SPEC),
    "weights-dtype": ("q17", "q17", SPEC),
    "bank-dtype": ("q17", "q17", SPEC),
    "phase1-dtype": ("q17", "q17", SPEC),
    "merge-norm": ("none", "none", SPEC),
    "activations": ("q17", "q17", SPEC),
    "cache-dtype": ("q17", "q17", SPEC),
    "carry-dtype": ("q17", "q17", SPEC),
    "machine": ("l4=1M", "l4", SPEC),
    "linker": ("false", '"false" failed', SPEC),
    "chunk": ("0", "--chunk takes", SPEC),
    "threads": ("0", "a thread count of 0", "a thread count of 0"),
    "weights-load": ("copy", 'no way "copy" to load', 'no way "copy" to load'),
    "cpu-level": ("AVX2", 'did you mean "avx2"', 'did you mean "avx2"'),
    "prefill": ("x", "--prefill takes", "--prefill takes"),
    "decode": ("x", "--decode takes", "--decode takes"),
    "comm-timeout": ("9", GROUP, GROUP),
    "link": ("network=1G,latency=1us", GROUP, GROUP),
    "rounds": ("0", "--rounds takes", "--rounds takes"),
    "against": ("nowhere", "nowhere", "nowhere"),
    "against-define": ("nosuch=1", "no such parameter", SPEC),
}
OF_OUTPUT = {"json", "color", "quiet", "help"}


def bench(model, *options):
    line = ["hadal", "bench", model, "--prefill", "1", "--decode", "", "--threads", "1", "--rounds", "1", *options]
    done = subprocess.run(line, capture_output=True, text=True)
    return done.returncode, done.stderr


failed = False
spec, library = sys.argv[1:]
named = set(re.findall(r"^  .{4}--([a-z0-9-]+)", subprocess.run(["hadal", "bench", "--help"], capture_output=True, text=True).stdout, re.M))
if named - OF_OUTPUT != set(OPTIONS):
    print("options without a line here, and lines without an option:", (named - OF_OUTPUT) ^ set(OPTIONS))
    failed = True
for option, (value, *expected) in OPTIONS.items():
    for model, words in zip((spec, library), expected):
        code, said = bench(model, f"--{option}", value)
        # a folder of includes that is not there is a warning
        if words not in said or (code == 0) != (option == "include" and model == spec):
            print(f"{model} --{option} {value}: exit code {code}\n{said}")
            failed = True
print("failed" if failed else "all options are read")
