"""bench_options.py SPEC: every option that `hadal bench --help` names does something, or is refused.

An option that reaches what it is for refuses a value that makes no sense; one that nobody reads takes it without a word. So each
has such a value here, and an option without a line here fails the test."""
import re
import subprocess
import sys

# a value, and how it is told that it is wrong
GROUP = "for a model that is divided over ranks"
OPTIONS = {
    "define": ("nosuch=1", "no such parameter"),
    "include": ("nowhere", "there is no folder"),
    "weights": ("nowhere", "cannot open"),
    "weights-dtype": ("q17", "q17"),
    "bank-dtype": ("q17", "q17"),
    "phase1-dtype": ("q17", "q17"),
    "merge-norm": ("none", "none"),
    "activations": ("q17", "q17"),
    "cache-dtype": ("q17", "q17"),
    "carry-dtype": ("q17", "q17"),
    "machine": ("l4=1M", "l4"),
    "linker": ("false", '"false" failed'),
    "chunk": ("0", "--chunk takes"),
    "threads": ("0", "a thread count of 0"),
    "cpu-level": ("AVX2", 'did you mean "avx2"'),
    "prefill": ("x", "--prefill takes"),
    "decode": ("x", "--decode takes"),
    "comm-timeout": ("9", GROUP),
    "link": ("network=1G,latency=1us", GROUP),
    "rounds": ("0", "--rounds takes"),
    "against": ("nowhere", "nowhere"),
    "against-define": ("nosuch=1", "no such parameter"),
}
OF_OUTPUT = {"json", "color", "quiet", "help"}


def bench(model, *options):
    line = ["hadal", "bench", model, "--prefill", "1", "--decode", "", "--threads", "1", "--rounds", "1", *options]
    done = subprocess.run(line, capture_output=True, text=True)
    return done.returncode, done.stderr


failed = False
spec = sys.argv[1]
named = set(re.findall(r"^  .{4}--([a-z0-9-]+)", subprocess.run(["hadal", "bench", "--help"], capture_output=True, text=True).stdout, re.M))
if named - OF_OUTPUT != set(OPTIONS):
    print("options without a line here, and lines without an option:", (named - OF_OUTPUT) ^ set(OPTIONS))
    failed = True
for option, (value, words) in OPTIONS.items():
    code, said = bench(spec, f"--{option}", value)
    # a folder of includes that is not there is a warning
    if words not in said or (code == 0) != (option == "include"):
        print(f"--{option} {value}: exit code {code}\n{said}")
        failed = True
print("failed" if failed else "all options are read")
