# What every module that `hadal compile --emit=torch` writes begins with.
import ctypes
import fnmatch
import json
import math
import os
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F


DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I8": torch.int8, "U8": torch.uint8,
          "BOOL": torch.bool}


class Weights(nn.Module):
    """Parameters under the names of the checkpoint: w["mlp.up_proj.weight"], w["mlp"]["up_proj.weight"]."""

    def add(self, name, shape):
        first, _, rest = name.partition(".")
        if rest:
            self._modules.setdefault(first, Weights()).add(rest, shape)
        else:  # not a number until `load` has read it
            self._parameters[first] = nn.Parameter(torch.full(shape, float("nan")))

    def __getitem__(self, name):
        at = self
        for part in name.split("."):
            at = at._modules[part] if part in at._modules else at._parameters[part]
        return at


class Checkpoint(Weights):
    def __init__(self):
        super().__init__()
        self.stored = {}  # shapes in the file, where several matrices may lie as one, and a number without axes
        self.kept = {}  # what the file holds and the model does not read: saved again
        for name, shape in names():
            self.add(name, shape)

    def load(self, path):
        """Reads a file of safetensors, the index of several, or a folder with either."""
        left = dict(self.named_parameters())
        for file in files_of(path):
            for name, tensor in read_tensors(file):
                parameter = left.pop(name, None)
                if parameter is not None:
                    self.take(f"{file}: {name}", name, tensor, parameter)
                elif any(fnmatch.fnmatchcase(name, unused) for unused in UNUSED):
                    self.kept[name] = tensor
                else:
                    raise ValueError(f"{file}: the model does not read {name}")
        if left:
            raise ValueError(f"{path} lacks {next(iter(left))}; quantised weights are not decoded here")
        return self

    def take(self, place, name, tensor, parameter):
        shape, own = list(tensor.shape), list(parameter.shape)
        joined = len(own) > 2 and shape == [own[0] * own[1], *own[2:]]
        if shape != own and not joined and (shape, own) != ([], [1]):
            raise ValueError(f"{place} is {shape}, the model has {own}")
        with torch.no_grad():
            parameter.copy_(tensor.reshape(own))
        self.stored[name] = shape

    def save(self, path):
        """Writes a file of safetensors, which `hadal compile --weights` reads."""
        words = {dtype: word for word, dtype in DTYPES.items()}
        header, at, parts = {}, 0, []
        for name, p in [*self.named_parameters(), *self.kept.items()]:
            part = p.detach().cpu().contiguous()
            size = part.numel() * part.element_size()
            header[name] = {"dtype": words[part.dtype],
                            "shape": self.stored.get(name, list(part.shape)),
                            "data_offsets": [at, at + size]}
            at += size
            parts.append(part)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path + ".part", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for part in parts:
                f.write(ctypes.string_at(part.data_ptr(), part.numel() * part.element_size()))
        os.replace(path + ".part", path)


def files_of(path):
    if os.path.isdir(path):
        index = os.path.join(path, "model.safetensors.index.json")
        path = index if os.path.exists(index) else os.path.join(path, "model.safetensors")
    if not path.endswith(".json"):
        return [path]
    with open(path) as f:
        files = sorted(set(json.load(f)["weight_map"].values()))
    return [os.path.join(os.path.dirname(path), file) for file in files]


def read_tensors(file):
    with open(file, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        header.pop("__metadata__", None)
        begin = f.tell()
        for name, tensor in header.items():
            if tensor["dtype"] not in DTYPES:
                raise ValueError(f"{file}: {name} is {tensor['dtype']}, which is not decoded here")
            start, end = tensor["data_offsets"]
            f.seek(begin + start)
            data, dtype = bytearray(f.read(end - start)), DTYPES[tensor["dtype"]]
            values = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            yield name, values.reshape(tensor["shape"])


class LanguageModel(Checkpoint):
    one_by_one = False  # sequences of a batch

    def forward(self, tokens):
        """Logits [T, V] of tokens [T], which stand at positions 0 .. T-1; or [B, T, V] of [B, T]."""
        if tokens.dim() == 1:
            return self.sequence(tokens)
        if not self.one_by_one:
            return torch.vmap(self.sequence)(tokens)
        rows = [self.sequence(row) for row in tokens]
        if not isinstance(rows[0], dict):
            return torch.stack(rows)
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}

    def loss(self, tokens, targets):
        """Mean cross entropy over the positions whose target is not negative."""
        logits = self(tokens)
        logits = next(iter(logits.values())) if isinstance(logits, dict) else logits
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten().long().clamp(min=-1),
                               ignore_index=-1)


def stacked(w, name, n):
    # one tensor of the checkpoint for each entry of the first dim
    return torch.stack([w[name.replace("*", str(e))] for e in range(n)])
