#!/usr/bin/env python3
"""Every refused remark of `hadal opt --remarks` says what the pass would have gained, or why nothing: over the published families,
residual systems and layers, and of each in narrow storage types or for several ranks, by turns, each way for a third of the models (with HADAL_FULL=1 in all).

    remarks.py HADAL SOURCE OUT"""
import glob
import json
import os
import re
import subprocess
import sys

hadal, source, _ = sys.argv[1:4]
# a number with what it counts, or the statement that there is none
GAIN = re.compile(r"\d (bytes|d (less|more)|numbers?|multiply-adds|rows)\b|move as much|nothing (of a token )?would have been (gained|saved)")
RANKS = ["--ranks", "3"]
NARROW = ["--weights-dtype", "q4", "--bank-dtype", "bf16", "--phase1-dtype", "bf16"]


def models():
    for folder in ("tests/published", "tests/golden"):
        yield from (os.path.dirname(x) for x in sorted(glob.glob(os.path.join(source, folder, "*/config.json"))))
    yield from (os.path.join(source, x) for x in ("examples/jargon/jargon.hadal", "tests/recurrence/recurrence.hadal", "tests/latent/latent.hadal"))


seen, models_seen = {}, 0
for number, model in enumerate(models()):
    ways = [[], NARROW, RANKS]
    for options in ways if os.environ.get("HADAL_FULL") == "1" else [ways[number % 3]]:
        done = subprocess.run([hadal, "opt", model, "--passes=default", "--remarks=json", *options, "-o", os.devnull], capture_output=True, text=True)
        remarks = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        if options == RANKS and done.returncode:
            continue  # not every model can be shared among three
        assert done.returncode == 0 and remarks, f"{model}: {done.stderr[-600:]}"
        models_seen += 1
        for r in remarks:
            if not r["taken"]:
                seen.setdefault(r["pass"], {})[re.sub(r"\d+", "#", r["text"])] = r["text"]
                assert GAIN.search(r["text"]), f"{model}: {r['pass']} refused something and does not say what that would have gained: {r['text']}"
wanted = {"fuse", "form-blocks", "layout", "narrow-depth", "recognise-depth-attention", "shard-tensor"}
assert wanted <= set(seen), f"no remark of {wanted - set(seen)}"
for name, texts in sorted(seen.items()):
    print(f"{name}: {len(texts)} kinds of refusal in {models_seen} compilations")
