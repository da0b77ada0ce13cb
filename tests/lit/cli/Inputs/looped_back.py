"""Passes of layers that run several times, in the profile of a training: gradients go through them backwards, and what is computed
again is of the pass of what it copies.

    looped_back.py PROFILE.json PASSES [again]"""
import collections
import json
import re
import sys

with open(sys.argv[1]) as f:
    lines = sorted(json.load(f)["phases"][0]["lines"], key=lambda x: x["line"])
passes = int(sys.argv[2])
turn = next(i for i, x in enumerate(lines) if x["scope"] == "lm_head.weight")
forward, backward = lines[:turn], lines[turn:]


def in_layers(part):
    """Scope without its pass, and the pass (0: none is said), of the kernels of layers."""
    found = [re.match(r"(model\.layers\.\d+[^,]*)(?:, pass (\d+))?$", x["scope"]) for x in part]
    return [(m[1], int(m[2] or 0)) for m in found if m]


def by_scope(part):
    all_of = collections.defaultdict(list)
    for scope, number in in_layers(part):
        all_of[scope].append(number)
    return all_of


def by_layer(part):
    all_of = collections.defaultdict(list)
    for scope, number in in_layers(part):
        all_of[re.match(r"model\.layers\.\d+", scope)[0]].append(number)
    return all_of


assert len(by_layer(backward)) > 1
for scope, numbers in by_scope(backward).items():
    assert 0 not in numbers, (scope, numbers)
    if scope.endswith(".weight"):  # the gradient of what a product reads: one in each pass
        assert numbers == list(range(passes, 0, -1)), (scope, numbers)
for layer, numbers in by_layer(forward).items():
    assert numbers == sorted(numbers) and set(numbers) == set(range(1, passes + 1)), (layer, numbers)
for layer, numbers in by_layer(backward).items():
    assert numbers == sorted(numbers, reverse=True) and set(numbers) == set(range(1, passes + 1)), (layer, numbers)
again = {scope for scope in by_scope(backward)} & {scope for scope, _ in in_layers(forward) if scope.endswith((".mlp", "_proj"))}
assert bool(again) == (sys.argv[3:] == ["again"]), again
