#!/usr/bin/env python3
"""A small folder of Nanbeige, which transformers does not have: weights made up, logits of the plain Python implementation of
tests/residuals, in float64.

    make_nanbeige.py OUT [FIELD=JSON ...]

    h = E[id];  num_loops times: h = layers(h), h = RMSNorm(h; model.norm); with skip_loop_final_norm the norm ends the last run alone
"""
import array
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "residuals"))
from reference import Model, Standard, matvec       # noqa: E402
from variations import checkpoint, write_weights    # noqa: E402


class Nanbeige(Model):
    def run(self, tokens):
        c, logits = self.c, []
        self.caches = {}
        table = self.w("model.embed_tokens.weight", c["vocab_size"], self.d)
        head = table if c["tie_word_embeddings"] else self.w("lm_head.weight", c["vocab_size"], self.d)
        for self.t, token in enumerate(tokens):
            h = table[token]
            for run in range(c["num_loops"]):
                system = Standard(self, h)
                for l in range(self.L):
                    self.layer(system, l, run)
                h = system.result()
                if not c["skip_loop_final_norm"] or run == c["num_loops"] - 1:
                    h = self.norm(h, "model.norm.weight")
            logits += matvec(head, h)
        return logits


if __name__ == "__main__":
    out, *changes = sys.argv[1:]
    config = dict(model_type="nanbeige", vocab_size=40, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                  head_dim=8, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=7e4, num_loops=2, skip_loop_final_norm=False, tie_word_embeddings=False,
                  enable_mhc=False, enable_depth_attention=False, loop_share_kv=False, torch_dtype="float32")
    config.update((name, json.loads(value)) for name, value in (change.split("=", 1) for change in changes))
    model = Nanbeige({**config, "residual": {}}, 1)
    tokens = [(7 * t * t + 3 * t + 1) % config["vocab_size"] for t in range(14)]
    logits = model.run(tokens)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    write_weights(os.path.join(out, "model.safetensors"), model.weights)
    checkpoint.write(os.path.join(out, "expected.safetensors"),
                     {"tokens": ("I32", (len(tokens),), array.array("i", tokens).tobytes()),
                      "logits": ("F32", (len(tokens), config["vocab_size"]), array.array("f", logits).tobytes())})
