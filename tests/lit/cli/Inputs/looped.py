"""Passes of layers that run several times: in a profile as text, as JSON and as stacks, and in remarks, they are those of the
sublayers in the depth map.

    looped.py BASE"""
import json
import re
import sys

base = sys.argv[1]


def read(suffix):
    with open(base + suffix) as f:
        return f.read()


def layer_of(name):
    return re.match(r"(?:[^.\d]+\.)*\d+", name)[0]


def layers_with_passes(names):
    return {(layer_of(name), int(number)) for name, number in names}


wanted = layers_with_passes(re.findall(r"^ *\d+ +(\S+), pass (\d+)", read(".map"), re.M))
assert len(wanted) > 2 and {number for _, number in wanted} >= {1, 2}, wanted
looped = {layer for layer, _ in wanted}

lines = [(x["line"], x["scope"]) for x in json.loads(read(".json"))["phases"][0]["lines"]]
of_layers = [(line, scope) for line, scope in lines if re.search(r"\d", scope) and layer_of(scope) in looped]
assert of_layers and all(re.search(r", pass \d+$", scope) for _, scope in of_layers), of_layers
assert layers_with_passes(re.findall(r"^(.*), pass (\d+)$", "\n".join(scope for _, scope in of_layers), re.M)) == wanted, of_layers
# the kernels of a pass come before those of the next
for layer in looped:
    numbers = [int(scope.rpartition(" ")[2]) for _, scope in sorted(of_layers) if layer_of(scope) == layer]
    assert numbers == sorted(numbers), (layer, numbers)
# kernels that no layer has keep their names
assert any(scope and ", pass" not in scope for _, scope in lines), lines

text = read("")
for line, scope in of_layers:
    assert re.search(rf"^ .* {line} \S+ +{re.escape(scope)}$", text, re.M), (line, scope)
stacks = {line.split(";")[1] for line in read(".folded").splitlines()}
assert {f"{layer}, pass {number}" for layer, number in wanted} <= stacks and not stacks & looped, stacks

remarks = [json.loads(line) for line in read(".remarks.json").splitlines()]
told = {(layer_of(x["weight"]), x["layer_pass"]) for x in remarks if "layer_pass" in x}
assert told == wanted, (told, wanted)
assert all("layer_pass" in x for x in remarks if "value" in x and re.search(r"\d", x.get("weight", "")) and layer_of(x["weight"]) in looped), remarks
texts = re.findall(r"\(@(\S+), pass (\d+)\)", read(".remarks"))
assert layers_with_passes(texts) == wanted, texts
