"""The forms in which published checkpoints store weights, written a second time (docs/quantised-checkpoints.md), for the searches that quantise random models.

A form stores a weight, in float64, as the tensors that a file has for it, and says what exactly they are: `store(name, w)` gives both. Weights are matrices [out, in] or, where the form allows it,
stacks of them. `fits(name, shape)` says whether a weight can be stored so.
"""
from typing import Callable, NamedTuple

import torch

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
E8M0 = torch.float8_e8m0fnu
WEIGHT = ".weight"


class Form(NamedTuple):
    word: str
    fits: Callable
    store: Callable
    group: dict = None      # what a group of compressed-tensors says of it


def module_of(name):
    return name[:-len(WEIGHT)] if name.endswith(WEIGHT) else name


def is_matrix(name, shape):
    return len(shape) == 2 and name.endswith(WEIGHT)


def powers_of_two(largest, top):
    """The smallest 2^k with largest <= top 2^k, as the byte k + 127 of E8M0 and as a number"""
    k = torch.ceil(torch.log2(torch.clamp(largest, min=1e-42) / top)).clamp(-127, 127)
    return (k + 127).to(torch.uint8), torch.exp2(k)


def largest_of_tiles(w, tr, tc):
    rows, cols = w.shape
    padded = torch.zeros(-(-rows // tr) * tr, -(-cols // tc) * tc, dtype=torch.float64)
    padded[:rows, :cols] = w.abs()
    return padded.reshape(padded.shape[0] // tr, tr, -1, tc).amax((1, 3))


def stacked(one, w):
    """A function of a matrix, of each in a stack: tuples of tensors"""
    return one(w) if w.dim() == 2 else tuple(torch.stack(t) for t in zip(*(one(m) for m in w)))


# ---- E4M3 with a scale for each tile

SCALES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "e8m0": E8M0, "u8": torch.uint8}


def e4m3_of(w, tile, scales, wobble):
    rows, cols = w.shape
    tr, tc = tile[0] or rows, tile[1] or cols
    largest = largest_of_tiles(w, tr, tc)
    if scales in ("e8m0", "u8"):
        byte, scale = powers_of_two(largest, 448.0)
        stored = byte.view(E8M0) if scales == "e8m0" else byte
    else:
        stored = (largest / 448 * wobble).clamp(min=1e-6 if scales == "f16" else 1e-12).to(SCALES[scales])
        scale = stored.double()
    each = scale.repeat_interleave(tr, 0).repeat_interleave(tc, 1)[:rows, :cols]
    codes = (w / each).clamp(-448, 448).float().to(torch.float8_e4m3fn)
    return codes, stored, codes.double() * each


def e4m3(r, tile, scales, suffix, single=None):
    """tile: rows and columns, 0: all. suffix: _scale_inv, _scale or .scale. single: the shape of a scale for all"""
    def store(name, w):
        codes, stored, value = stacked(lambda m: e4m3_of(m, tile, scales, r.uniform(0.7, 1.3)), w)
        if single is not None and w.dim() == 2:
            stored = stored.reshape(single)
        return {name: codes, (module_of(name) if suffix == ".scale" else name) + suffix: stored}, value
    return Form(f"e4m3 {'x'.join(str(n or 'all') for n in tile)} {scales} {suffix}", lambda name, shape: len(shape) in (2, 3) and (suffix != ".scale" or name.endswith(WEIGHT)), store)


# ---- E2M1, 32 with a power of two

def halves(w):
    """Codes, two in a byte, scales as bytes, and the numbers"""
    rows, cols = w.shape
    lines = w.reshape(rows, cols // 32, 32)
    byte, scale = powers_of_two(lines.abs().amax(-1), 6.0)
    x = lines / scale[..., None]
    code = (x.abs()[..., None] - E2M1).abs().argmin(-1)
    value = torch.where(x < 0, -1.0, 1.0) * E2M1[code] * scale[..., None]
    half = (code + 8 * (x < 0)).to(torch.uint8).reshape(rows, cols)
    return half[:, ::2] | half[:, 1::2] << 4, byte, value.reshape(rows, cols)


def mxfp4_packed(r, with_shape=False):
    def store(name, w):
        codes, byte, value = halves(w)
        parts = {name + "_packed": codes, name + "_scale": byte}
        if with_shape:
            parts[name + "_shape"] = torch.tensor(w.shape)
        return parts, value
    return Form("mxfp4", lambda name, shape: is_matrix(name, shape) and shape[1] % 32 == 0, store)


def mxfp4_pairs(r):
    def store(name, w):
        codes, byte, value = halves(w)
        return {name: codes.view(torch.int8) if r.some() else codes, module_of(name) + ".scale": byte.view(E8M0) if r.some() else byte}, value
    return Form("mxfp4 pairs", lambda name, shape: is_matrix(name, shape) and shape[1] % 32 == 0, store)


def mxfp4_blocks(r):
    """The file's matrices are those of the weight [E, in, out], transposed"""
    def store(name, w):
        experts, cols, rows = w.shape
        codes, byte, value = stacked(halves, w.transpose(1, 2).contiguous())
        return {name + "_blocks": codes.reshape(experts, rows, cols // 32, 16), name + "_scales": byte}, value.transpose(1, 2).contiguous()
    return Form("mxfp4 blocks", lambda name, shape: len(shape) == 3 and not name.endswith(WEIGHT) and shape[1] % 32 == 0, store)


# ---- E2M1, 16 with a scale in E4M3, and a factor

def small_groups(w, wobble):
    """Codes, two in a byte, scales in E4M3, the factor in f32, and the numbers without it"""
    rows, cols = w.shape
    lines = w.reshape(rows, cols // 16, 16)
    factor = (w.abs().amax() / (6 * 448) * wobble).clamp(min=1e-20).float()
    scale = (lines.abs().amax(-1) / 6 / factor.double()).clamp(max=448).float().to(torch.float8_e4m3fn)
    each = scale.double()[..., None]
    x = torch.where(each > 0, lines / (each * factor.double()).clamp(min=1e-300), 0.0)
    code = (x.abs()[..., None] - E2M1).abs().argmin(-1)
    value = torch.where(x < 0, -1.0, 1.0) * E2M1[code] * each
    half = (code + 8 * (x < 0)).to(torch.uint8).reshape(rows, cols)
    return half[:, ::2] | half[:, 1::2] << 4, scale, factor, value.reshape(rows, cols)


def nvfp4_packed(r):
    def store(name, w):
        codes, scale, factor, value = small_groups(w, r.uniform(0.6, 1.5))
        divisor = (1 / factor).reshape(1)
        return {name + "_packed": codes, name + "_scale": scale, name + "_global_scale": divisor}, value / divisor.double()
    return Form("nvfp4", lambda name, shape: is_matrix(name, shape) and shape[1] % 16 == 0, store)


def nvfp4_modelopt(r):
    def store(name, w):
        codes, scale, factor, value = small_groups(w, r.uniform(0.6, 1.5))
        return {name: codes, name + "_scale": scale, name + "_scale_2": factor.reshape(())}, value * factor.double()
    return Form("nvfp4 modelopt", lambda name, shape: is_matrix(name, shape) and shape[1] % 16 == 0, store)


def nvfp4_experts(r):
    """A stack whose factors are quotients, of one number or of one for each matrix"""
    def store(name, w):
        parts = [small_groups(m, r.uniform(0.6, 1.5)) for m in w]
        divisor = torch.full([len(parts)], 2688.0) * r.uniform(0.5, 2)
        amax = torch.stack([p[2] for p in parts]) * divisor
        value = torch.stack([p[3] * a.double() / d.double() for p, a, d in zip(parts, amax, divisor)])
        if r.some(0.3):
            divisor = divisor[:1].reshape(r.of([], [1]))
        return {name: torch.stack([p[0] for p in parts]), name + "_scale": torch.stack([p[1] for p in parts]), name + "_amax": amax, name + "_outer_scale_denominator": divisor}, value
    return Form("nvfp4 experts", lambda name, shape: len(shape) == 3 and name.endswith("_weight") and shape[2] % 16 == 0, store)


# ---- integers

def words(q, bits):
    """Rows of whole numbers as words, n of them in each, the first in the lowest bits; bits beyond the end are random"""
    n = 32 // bits
    rows, cols = q.shape
    full = torch.randint(0, 2 ** bits, (rows, -(-cols // n) * n), dtype=torch.int64)
    full[:, :cols] = q
    word = (full.reshape(rows, -1, n) << (bits * torch.arange(n))).sum(-1)
    return torch.where(word >= 2 ** 31, word - 2 ** 32, word).to(torch.int32)


def integers(r, bits, group, symmetric, dtype):
    """group: columns with a scale, None: a row"""
    def store(name, w):
        rows, cols = w.shape
        g = w.reshape(rows, -1, group or cols)
        middle, most = 2 ** (bits - 1), 2 ** bits - 1
        if symmetric:
            scale = (g.abs().amax(-1) / (middle - 0.5)).to(dtype)
            zero = torch.full(scale.shape, middle, dtype=torch.int64)
        else:
            low, high = g.amin(-1).clamp(max=0), g.amax(-1).clamp(min=0)
            scale = ((high - low) / most).to(dtype)
            zero = (-low / scale.double().clamp(min=1e-30)).round().clamp(0, most).to(torch.int64)
        each = scale.double()
        q = (g / each.clamp(min=1e-30)[..., None] + zero[..., None]).round().clamp(0, most).to(torch.int64)
        value = ((q - zero[..., None]).double() * each[..., None]).reshape(rows, cols)
        parts = {name + "_packed": words(q.reshape(rows, cols), bits), name + "_scale": scale, name + "_shape": torch.tensor([rows, cols], dtype=r.of(torch.int64, torch.int64, torch.int32))}
        if not symmetric:
            parts[name + "_zero_point"] = words(zero.T.contiguous(), bits).T.contiguous()
        return parts, value
    word = f"int{bits} {group or 'row'}{'' if symmetric else ' zeros'} {str(dtype)[6:]}"
    return Form(word, lambda name, shape: is_matrix(name, shape) and shape[1] % (group or 1) == 0, store)


# ---- as a group of compressed-tensors

def group_of(r, form, fmt, **weights):
    """The form with the object that a config has for it; what other programs read of it is drawn"""
    said = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "group_size": None, "block_structure": None, "actorder": None, "observer": "minmax", "observer_kwargs": {}}
    said.update(weights)
    for name in ("block_structure", "actorder", "observer_kwargs", "dynamic"):
        if not said[name] and r.some(0.2):
            del said[name]
    if r.some(0.5):
        said.update(scale_dtype=None, zp_dtype=None)
    activations = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True} if r.some(0.3) else None
    return form._replace(group={"format": fmt, "weights": said, "input_activations": activations, "output_activations": None})


def compressed_form(r):
    kind = r.of("int", "int", "int", "mxfp4", "nvfp4", "nvfp4", "mxfp8", "float", "float")
    if kind == "int":
        bits, group, symmetric = r.of(4, 4, 8), r.of(8, 16, 32, 64, 128, None), r.some()
        form = integers(r, bits, group, symmetric, r.of(torch.bfloat16, torch.bfloat16, torch.float16, torch.float32))
        return group_of(r, form, "pack-quantized", num_bits=bits, type="int", symmetric=symmetric, strategy="group" if group else "channel", group_size=group, actorder=r.of(None, "weight", "static"))
    if kind == "mxfp4":
        return group_of(r, mxfp4_packed(r, r.some(0.2)), "mxfp4-pack-quantized", num_bits=4, strategy="group", group_size=32, scale_dtype="torch.uint8")
    if kind == "nvfp4":
        return group_of(r, nvfp4_packed(r), "nvfp4-pack-quantized", num_bits=4, strategy="tensor_group", group_size=16, scale_dtype="torch.float8_e4m3fn")
    if kind == "mxfp8":
        return group_of(r, e4m3(r, (1, 32), r.of("u8", "e8m0"), "_scale"), "mxfp8-quantized", strategy="group", group_size=32)
    strategy = r.of("block", "block", "channel", "tensor")
    scales = r.of("f32", "bf16", "bf16", "f16")
    if strategy == "block":
        tile = r.of((128, 128), (128, 128), (32, 64), (8, 16), (24, 40))
        return group_of(r, e4m3(r, tile, scales, "_scale"), "float-quantized", strategy=strategy, block_structure=list(tile))
    form = e4m3(r, (1, 0) if strategy == "channel" else (0, 0), scales, "_scale", None if strategy == "channel" else r.of([1], [], [1, 1]))
    return group_of(r, form, "float-quantized", strategy=strategy)
