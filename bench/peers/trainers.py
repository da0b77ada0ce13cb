"""The models of a comparison of training steps: compiled by Hadal, and in PyTorch, eager and through torch.compile.

Each is what worker.py wants. forward() is a step: the gradients of the sum of the losses of all sequences, of which each predicts its
next token; Hadal is given the sequences packed, PyTorch as one batch. logits() is the loss for a token and the norms of the gradients of
the embedding and of everything: models that have them alike compute the same step. All begin with the weights of one .safetensors
file, and raise Missing where they cannot take part.
"""
import ctypes
import json
import math
import operator
import os
import struct
import sys

from checkpoint import EPS, Checkpoint, Missing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import levels
import training  # of the folder above

EMBEDDING = "model.embed_tokens.weight"


def ids_of(shape, batch):
    """The tokens of all sequences, one after the other, and what each predicts."""
    sequences, length = batch
    ids = [(7919 * i + i // length * 131 + 11) % shape["vocab"] for i in range(sequences * length + 1)]
    return ids[:-1], ids[1:]


def norms(loss, count, squares):
    """What logits() gives, of {name: sum of the squares of its gradient}."""
    return [loss / count, math.sqrt(squares[EMBEDDING]), math.sqrt(math.fsum(squares.values()))]


class Hadal:
    """A library of `hadal compile --gradients`."""

    def __init__(self, path, label, weights, shape, batch, threads):
        folder, name = os.path.split(path)
        self.label = label
        self.t = training.Trainer(os.path.join(folder, f"lib{name}.so"), name, shape, batch, threads)
        with open(weights, "rb") as f:
            (size,) = struct.unpack("<Q", f.read(8))
            tensors = json.loads(f.read(size))
            for p in self.t.parameters():
                begin, end = tensors[p.name.decode()]["data_offsets"]
                f.seek(8 + size + begin)
                ctypes.memmove(p.values, f.read(end - begin), 4 * p.elements)
        self.weight_bytes = self.t.bytes
        ids, targets = ids_of(shape, batch)
        self.t.ids[:], self.t.targets[:] = ids, targets

    def prepare(self, past):
        self.t.check(self.t.call("trainer_clear", self.t.at))

    def forward(self, past, n):
        self.t.step()

    def logits(self):
        squares = {}
        for p in self.t.parameters():
            g = p.gradient[:p.elements]
            squares[p.name.decode()] = sum(map(operator.mul, g, g))
        return norms(self.t.loss, self.t.count, squares)


class Torch:
    """Eager PyTorch: fused attention, q/k/v and gate/up as one product each, parameters as they are multiplied.

    AttnRes is written in two ways: `stacked`, as the paper's Figure 2 has it, in bare functions; `apart`, without a copy of the sources:
    a source's 1 / rms is computed once, a score is a product of the source with query times gain, and a mix adds source by source."""

    def __init__(self, form, weights, shape, batch, threads):
        try:
            import torch
        except ImportError:
            raise Missing("there is no torch for this python3 (pip install torch)")
        if not hasattr(torch.nn.functional, "rms_norm"):
            raise Missing(f"torch {torch.__version__} has no rms_norm: 2.5 or later is needed")
        self.t, self.s, self.form = torch, shape, form
        self.label = f"PyTorch {torch.__version__.split('+')[0]}" + ("" if form == "standard" else f", {form}")
        torch.set_num_threads(threads)
        self.checkpoint, self.parameters = Checkpoint(weights), {}
        self.embed, self.norm = self.parameter(EMBEDDING), self.parameter("model.norm.weight")
        self.layers = [self.layer(f"model.layers.{i}") for i in range(shape["layers"])]
        self.last = self.mix_weights("model.output_attn_res")
        del self.checkpoint
        self.weight_bytes = sum(4 * p.numel() for p in self.parameters.values())
        length, half = batch[1], shape["head_dim"] // 2
        angle = torch.outer(torch.arange(length), 1e6 ** (-torch.arange(half) / half))
        self.cos, self.sin = (torch.cat([f(angle)] * 2, -1) for f in (torch.cos, torch.sin))
        self.ids, self.targets = (torch.tensor(x).view(batch) for x in ids_of(shape, batch))

    def parameter(self, *names):
        p = self.t.cat([self.t.tensor(self.checkpoint[name]) for name in names]).requires_grad_()
        self.parameters[names[0]] = p
        return p

    def mix_weights(self, name):
        if self.form == "standard":
            return None
        names = f"{name}_proj.weight", f"{name}_norm.weight"
        return tuple(self.parameter(x) for x in names) if names[0] in self.checkpoint.tensors else None

    def layer(self, at):
        heads, mlp = f"{at}.self_attn", f"{at}.mlp"
        return (self.mix_weights(f"{at}.self_attention_res"), self.parameter(f"{at}.input_layernorm.weight"),
                self.parameter(*(f"{heads}.{x}_proj.weight" for x in "qkv")), self.parameter(f"{heads}.q_norm.weight"),
                self.parameter(f"{heads}.k_norm.weight"), self.parameter(f"{heads}.o_proj.weight"), self.mix_weights(f"{at}.mlp_res"),
                self.parameter(f"{at}.post_attention_layernorm.weight"), self.parameter(*(f"{mlp}.{x}_proj.weight" for x in ("gate", "up"))),
                self.parameter(f"{mlp}.down_proj.weight"))

    def rms(self, x, gain):
        return self.t.nn.functional.rms_norm(x, gain.shape, gain, EPS)

    # ---- residual systems: sources are lists of (value, its 1 / rms or None) ----

    def source(self, x):
        apart = self.form == "apart"
        return x, (x.square().mean(-1, keepdim=True) + EPS).rsqrt() if apart else None

    def mix(self, sources, weights):
        if len(sources) == 1:
            return sources[0][0]
        query, gain = weights
        if self.form == "stacked":
            v = self.t.stack([x for x, _ in sources])
            scores = self.t.einsum("d,nbtd->nbt", query[0], self.rms(v, gain)).softmax(0)
            return self.t.einsum("nbt,nbtd->btd", scores, v)
        key = (query[0] * gain)[:, None]
        scores = self.t.cat([(x @ key) * r for x, r in sources], -1).softmax(-1)
        total = scores[..., :1] * sources[0][0]
        for i, (x, _) in enumerate(sources[1:], 1):
            total = self.t.addcmul(total, scores[..., i:i + 1], x)
        return total

    # ---- the model ----

    def rope(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + self.t.cat([-b, a], -1) * self.sin

    def attention(self, x, qkv, q_norm, k_norm, o):
        F, s = self.t.nn.functional, self.s
        h = F.linear(x, qkv).unflatten(-1, (-1, s["head_dim"])).transpose(1, 2)
        q, k, v = h.split([s["heads"], s["kv_heads"], s["kv_heads"]], 1)
        q, k = self.rope(self.rms(q, q_norm)), self.rope(self.rms(k, k_norm))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s["heads"] != s["kv_heads"])
        return F.linear(y.transpose(1, 2).flatten(2), o)

    def mlp(self, x, gate_up, down):
        F = self.t.nn.functional
        gate, up = F.linear(x, gate_up).chunk(2, -1)
        return F.linear(F.silu(gate) * up, down)

    def hidden(self, x):
        """Through all layers, to the norm before the head."""
        if self.form == "standard":
            for _, norm, qkv, q_norm, k_norm, o, _, mlp_norm, gate_up, down in self.layers:
                x = x + self.attention(self.rms(x, norm), qkv, q_norm, k_norm, o)
                x = x + self.mlp(self.rms(x, mlp_norm), gate_up, down)
            return x
        bank, live, k = [], x, 0
        for mix, norm, qkv, q_norm, k_norm, o, mlp_mix, mlp_norm, gate_up, down in self.layers:
            for weights, of, run in ((mix, norm, lambda x: self.attention(x, qkv, q_norm, k_norm, o)),
                                     (mlp_mix, mlp_norm, lambda x: self.mlp(x, gate_up, down))):
                last = self.source(live)
                y = run(self.rms(self.mix(bank + [last], weights), of))
                if k % self.s["block"] == 0:
                    bank, live = bank + [last], y
                else:
                    live = live + y
                k += 1
        return self.mix(bank + [self.source(live)], self.last)

    def loss(self, ids, targets):
        F = self.t.nn.functional
        logits = F.linear(self.rms(self.hidden(F.embedding(ids, self.embed)), self.norm), self.embed)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    def prepare(self, past):
        for p in self.parameters.values():
            p.grad = None

    def forward(self, past, n):
        loss = self.loss(self.ids, self.targets)
        loss.backward()
        self.total = loss.detach()

    def logits(self):
        squares = {name: 0.0 if p.grad is None else float(p.grad.double().square().sum()) for name, p in self.parameters.items()}
        return norms(float(self.total), self.ids.numel(), squares)


class TorchCompiled(Torch):
    """The same through torch.compile (inductor), which compiles in the first step."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.label = self.label.replace("PyTorch", "torch.compile")
        levels.hold_inductor()
        self.loss = self.t.compile(self.loss, dynamic=False)
