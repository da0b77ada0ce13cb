"""Command lines that are refused (exit code 2), made of the help of each command: each option alone with a word that it cannot
take, and options that need others without these. None of them may write anything, and each has to say why. Of driver/together.def, which
options go together, every row is tried.

    refused.py HADAL EXAMPLES FOLDER TOGETHER"""
import os
import re
import subprocess
import sys

hadal, examples, folder, together = sys.argv[1:]
tiny = os.path.join(os.path.abspath(examples), "tiny", "tiny.hadal")
jargon = os.path.join(os.path.abspath(examples), "jargon")
one = ["-D", "layers=1"]
weights = os.path.join(folder, "w.safetensors")
text = os.path.join(folder, "text.txt")
outputs = os.path.join(folder, "outputs")
scratch = os.path.join(folder, "scratch")


def out(name):
    return os.path.join(outputs, name)


def run(*words):
    environment = dict(os.environ, TMPDIR=scratch, HADAL_CODE_CACHE="")
    return subprocess.run([hadal, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)


COMMANDS = {
    "compile": [tiny, *one, "-o", out("new/folder/m"), "--emit=kernel,header"],
    "run": [tiny, *one, "-w", weights, "--tokens", "1,2", "--logits", out("l.npy"), "--hidden", out("h.npy"), "--trace-depth", out("t.safetensors")],
    "generate": [tiny, *one, "-w", weights, "--tokens", "1,2", "--max-tokens", "1"],
    "eval": [tiny, *one, "-w", weights, "--data", text, "--losses", out("l.npy")],
    "gradients": [tiny, *one, "-w", weights, "--tokens", "1,2", "--targets", "2,3", "-o", out("g.safetensors")],
    "train": [tiny, *one, "--data", text, "--steps", "1", "--batch", "1", "--context", "8", "-o", out("run")],
    "bench": [tiny, *one, "-w", weights, "--prefill", "1", "--decode", "0", "--threads", "1", "--rounds", "1"],
    "opt": [tiny, *one, "--passes=default", "-o", out("o.hir")],
    "pack": [tiny, *one, "-w", weights, "-o", out("m.weights")],
    "init-weights": [tiny, *one, "-o", out("w.safetensors")],
    "import": [jargon, "-o", out("m.hadal")],
    "inspect": [tiny, *one, "-o", out("i.txt")],
    "report": [tiny, *one, "-o", out("r.html"), "--code", "none"],
    "explain": [tiny, "lm_head", *one, "--code", "none"],
    "diff": [tiny, tiny, *one, "-o", out("d.txt")],
    "machine": ["--threads", "0", "-o", out("m.json")],
    "plan": [tiny, *one, "--host", "memory=16G,read=40G,flops=500G,network=10G,latency=50us", "-o", out("p.txt")],
}
# What an option takes, where that is refused only for want of another option, or for the sake of one.
ALONE = {
    "compile": ["--emit=torch --weights-dtype=q8", "--emit=torch --remarks", "--emit=torch --loss", "--emit=obj --linker=cc", "--emit=graph --march=baseline",
                "--emit=kernel -g", "--emit=depth --activations=f32", "--emit=torch --machine=l2=2M", "--memory=600M", "--optimizer=muon", "--token-sums=kernels", "--matmul-dtype=bf16"],
    "run": ["--ranks=2", "--comm-timeout=3"],
    "generate": ["--top-k=3", "--top-p=0.5", "--comm-timeout=3"],
    "eval": ["--by-depth=json", "--ranks=2"],
    "train": ["--raw-prompt", "--comm-timeout=3", "--link=network=10G,latency=50us"],
    "bench": ["--comm-timeout=3", "--weights-dtype=f32,q5"],
    "opt": ["--memory=600M"],
    "inspect": ["--memory=600M"],
    "machine": ["--comm-timeout=3", "--link=network=10G,latency=50us"],
    "explain": ["--machine=l2=2M", "--activations=f32"],
    "report": ["--machine=l2=2M", "--activations=f32", "--memory=600M", "--optimizer=muon", "--profile", "--tokens=1,2 --threads=1"],
}
# What takes any word, or is told apart only where a file is read or code is made, with another exit code.
FREE = {"output", "include", "linker", "system", "prompt", "filter-passes", "filter-ops", "weights", "tokens", "targets", "data", "eval-data",
        "losses", "logits", "hidden", "trace-depth", "taps-out", "tokenizer", "against", "prompt-file", "mixing-matrix", "heatmap", "profile",
        "dump-ir", "by-depth", "host", "target", "target-cpu", "march", "code"}


def options(command):
    """Name, whether the value is optional, whether there is one: of each option in the help."""
    told = run(command, "--help").stdout
    return [(name, bool(optional), bool(argument)) for name, optional, argument in
            re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)(\[=[^\]]*\])?( [A-Z\w].*)?$", told, re.M) if name != "help"]


def refused(command, extra):
    """Runs the command line; whether it was refused. Its outputs lie in a folder that has one file before."""
    os.makedirs(outputs)
    with open(out("r.html"), "w") as f:
        f.write("earlier")
    done = run(command, *COMMANDS[command], *extra)
    line = f"hadal {command} .. {' '.join(extra)}"
    if done.returncode == 2:
        left = sorted(os.path.join(at, name) for at, folders, files in os.walk(outputs) for name in folders + files)
        assert left == [out("r.html")], f"{line}: {left}"
        with open(out("r.html")) as f:
            assert f.read() == "earlier", f"{line} wrote over a page"
        assert not done.stdout, f"{line}: {done.stdout}"
        assert "[usage]" in done.stderr or "usage:" in done.stderr, f"{line}: {done.stderr}"
    assert done.returncode == 0 or done.stderr, f"{line}: exit code {done.returncode}, and not a word"
    assert done.returncode >= 0 and done.returncode != 4, f"{line}: {done.returncode}: {done.stderr}"
    assert not os.listdir(scratch), f"{line}: {os.listdir(scratch)}"
    subprocess.run(["rm", "-r", outputs], check=True)
    return done.returncode == 2


def pairs(text, names, of_passes):
    """Command, relation, option and others (those that are given, or each that is missing) of every row of driver/together.def."""
    rows = re.findall(r"^(NEEDS|EXCLUDES)\(([A-Z_| ]+), (?:SET\(([^)]*)\)|OF_PASSES), SET\(([^)]*)\),", text, re.M)
    assert len(rows) == len(re.findall(r"^[A-Z]+\(", text, re.M)), "a row is not understood"
    for relation, commands, options, others in rows:
        for command in commands.split(" | "):
            for option in options.split(", ") if options else of_passes:
                for other in others.split(", ") if relation == "EXCLUDES" else [None]:
                    yield command.lower().replace("_", "-"), relation, names[option], other and names[other]


def given(command, name):
    """The option with a word for its argument: what it stands for is not looked at."""
    _, optional, argument = next(o for o in options(command) if o[0] == name)
    return f"--{name}=1" if argument and not optional else f"--{name}"


def keep_together():
    """Each row of the table refuses what it says, in its words."""
    source = os.path.dirname(together)
    tables = [os.path.join(source, "options.def"), os.path.join(source, "..", "support", "compile_options.def")]
    names = {}
    for table in tables:
        with open(table) as f:
            names.update(re.findall(r"^O\((\w+), \"([a-z0-9-]+)\"", text := f.read(), re.M))
            names.update(re.findall(r"^[PT]\((\w+), \w+, \"([a-z0-9-]+)\"", text, re.M))
    with open(tables[1]) as f:
        of_passes = [f"OPTION_{name}" for name, commands in re.findall(r"^P\((\w+),.*?, ([A-Z_| ]+),$", f.read(), re.M) if "OPT" in commands.split(" | ")]
    assert len(of_passes) > 10, of_passes
    names = {f"OPTION_{name}": option for name, option in names.items()}
    with open(together) as f:
        table = f.read()
    n = 0
    for command, relation, option, other in pairs(table, names, of_passes):
        n += 1
        words = [given(command, x) for x in (option, other) if x]
        done = run(command, tiny, *words)
        wanted = f"error: --{option} does not go with --{other} [usage]" if other else f"error: --{option} needs --"
        assert done.returncode == 2 and wanted in done.stderr, f"hadal {command} .. {' '.join(words)}: {done.returncode}: {done.stderr}"
        assert not done.stdout, done.stdout
    assert n > 60, n


os.makedirs(scratch)
with open(text, "w") as f:
    f.write("hacker: n. " * 40)
assert run("init-weights", tiny, *one, "-o", weights).returncode == 0
keep_together()
n, taken = 0, []
for command in COMMANDS:
    for name, optional, argument in options(command):
        if name in FREE or not (optional or argument):
            continue
        n += 1
        if not refused(command, [f"--{name}=such?"]):
            taken.append(f"{command} --{name}=such?")
    for extra in ALONE.get(command, []):
        n += 1
        if not refused(command, extra.split()):
            taken.append(f"{command} {extra}")
assert n > 150, n
assert not taken, "\n".join(["not refused:", *taken])
