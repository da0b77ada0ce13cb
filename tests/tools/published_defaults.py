#!/usr/bin/env python3
"""Each field of every published family left out once: is what hadal takes then what transformers takes?

    published_defaults.py HADAL WORK_FOLDER [FAMILY ...]

And is the config that transformers writes of a folder's one the same model?

transformers' configuration class says what a field is that is absent. The spec that hadal makes of a config without the field and of one that states
this value must be the same. Fields that hadal requires, and fields of objects, are counted, not compared: published_fields.py computes with them, and
needs torch, which this does not. Not a test of ctest: it needs transformers.
"""
import json
import os
import re
import subprocess
import sys

from transformers import AutoConfig

HERE = os.path.dirname(os.path.abspath(__file__))
PUBLISHED = os.path.join(HERE, "..", "published")
# Differences that are right: of the models' own classes on the hub, which configs are of, there are no experts where the fields are absent. A checkpoint
# that has them is refused then, since its tensors are no weights.
KIMI = ("kimi_linear", "kimi_linear-mxfp4", "kimi_k3")
EXPLAINED = {(family, name) for family in KIMI for name in ("num_experts", "num_shared_experts")}
# The same layers, said by another field.
EXPLAINED |= {(family, "mlp_layer_types") for family in KIMI}
# What the class makes of other fields where it is absent is stated by it in another form.
DERIVED = re.compile(r"^(rope_parameters|rope_scaling|rope_theta|partial_rotary_factor|layer_types|model_type|architectures|torch_dtype|dtype|transformers_version|per_layer_config)$")


def spec(hadal, folder, config):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    out = os.path.join(folder, "out.hadal")
    done = subprocess.run([hadal, "import", folder, "-o", out], capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.split("\n")[0]
    with open(out) as f:
        return re.sub(r"#.*\n", "", f.read()).lstrip(), ""


def class_of(config):
    try:
        return type(AutoConfig.for_model(config["model_type"]))
    except (KeyError, ValueError, TypeError):
        return None


def stated(cls, config, name):
    """What the class has for the field where the config has none; KeyError: it knows no such field."""
    made = cls.from_dict({k: v for k, v in config.items() if k != name}).to_dict()
    return made[name]


ROPE = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")


def without_positions(config):
    """(what is left out, the config): each field of rotary positions, and each of the objects in them"""
    for name in ROPE:
        yield name, {k: v for k, v in config.items() if k != name}
        for inner in config.get(name) or {} if isinstance(config.get(name), dict) else {}:
            yield f"{name}.{inner}", {**config, name: {k: v for k, v in config[name].items() if k != inner}}
    yield "all of them", {k: v for k, v in config.items() if k not in ROPE}


def check_positions(cls, config, put, make):
    """The same of positions, all that the class makes of what is there stated in one object: what rotates where nothing says it is 1.0."""
    compared = wrong = 0
    for name, less in without_positions(config):
        try:
            positions = cls.from_dict(json.loads(json.dumps(less))).rope_parameters
        except Exception:
            continue
        if not isinstance(positions, dict) or "rope_theta" not in positions or positions.get("rope_type") not in (None, "default"):
            continue                            # by kind of layer, or scaled: the class states it as it is given
        plain = {k: v for k, v in less.items() if k not in ROPE}
        without, _ = make(put(less))
        with_value, _ = make(put({**plain, "rope_parameters": {"partial_rotary_factor": 1.0, **positions}}))
        if without is None or with_value is None:
            continue
        compared += 1
        if without != with_value:
            wrong += 1
            print(f"{put.__name__}: without {name} transformers has {positions}")
    return compared, wrong


# The reference does not read `type` in OLMo 3, and writes it beside the rope_type that it takes, which is an error here.
WRITTEN_OTHERWISE = ("olmo3-type",) + KIMI      # the latter: the same layers as a list


def check_saved(hadal, work, family):
    folder, again = os.path.join(PUBLISHED, family), os.path.join(work, family)
    os.makedirs(again, exist_ok=True)
    try:
        AutoConfig.from_pretrained(folder).save_pretrained(again)
    except Exception:                           # no class of it
        return 0
    weights = os.path.join(again, "model.safetensors")
    if not os.path.lexists(weights):            # some specs are made with what stands in tensors
        os.symlink(os.path.join(folder, "model.safetensors"), weights)
    with open(os.path.join(folder, "config.json")) as f, open(os.path.join(again, "config.json")) as g:
        config, written = json.load(f), json.load(g)
    (one, _), (other, why) = spec(hadal, again, config), spec(hadal, again, written)
    if one == other or family in WRITTEN_OTHERWISE:
        return 0
    print(f"{family}: as transformers writes the config, another model: {why}")
    return 1


def check(hadal, work, family):
    with open(os.path.join(PUBLISHED, family, "config.json")) as f:
        whole = json.load(f)
    place = next((p for p in ("text_config",) if isinstance(whole.get(p), dict)), None)
    config = dict(whole[place]) if place else dict(whole)
    if place and "model_type" not in config:
        config["model_type"] = whole["model_type"] + "_text"
    if "indexer_head_dim" in config:                # so that any share of a head may rotate
        config["indexer_head_dim"] = config["head_dim"]
    cls = class_of(config)
    if cls is None:
        print(f"{family}: transformers has no class of it")
        return 0
    def put(c):
        return {**whole, place: c} if place else c

    folder, compared, required, wrong = os.path.join(work, family), 0, 0, 0
    names = sorted({*config, *vars(cls()).keys()} - {"model_type"})
    for name in names:
        if DERIVED.match(name) or name.startswith("_"):
            continue
        less = {k: v for k, v in config.items() if k != name}
        try:
            value = stated(cls, config, name)
        except Exception:                       # whatever the class raises: it says nothing about the field
            continue
        without, why = spec(hadal, folder, put(less))
        if without is None:
            required += 1
            continue
        with_value, why = spec(hadal, folder, put({**less, name: value}))
        compared += 1
        if with_value is not None and with_value != without and (family, name) not in EXPLAINED:
            wrong += 1
            lines = [f"    {a!r} without, {b!r} with" for a, b in zip(without.split("\n"), with_value.split("\n")) if a != b][:2]
            print(f"{family}.{name}: transformers has {value!r}\n" + "\n".join(lines))
    put.__name__ = family
    of_positions, wrong_positions = check_positions(cls, config, put, lambda c: spec(hadal, folder, c))
    compared, wrong = compared + of_positions, wrong + wrong_positions
    print(f"{family}: {compared} fields compared, {required} required, {wrong} differ", flush=True)
    return wrong


if __name__ == "__main__":
    hadal, work, *families = sys.argv[1:]
    sys.exit(1 if sum([check(hadal, work, family) + check_saved(hadal, work, family) for family in families or sorted(os.listdir(PUBLISHED)) if os.path.isdir(os.path.join(PUBLISHED, family))]) else 0)
