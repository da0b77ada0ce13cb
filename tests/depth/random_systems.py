"""Residual systems that nobody has thought of, in Hadal's language: what a sublayer reads, how its output is written, and what is
mixed with which weights are drawn by a seed.

    what, text = spec(seed)         # a model of 2 LAYERS sublayers, and in words what its system does
"""
import random

LAYERS = 3

MODEL = """use "layers"

# {what}
object drawn(x) {{
    d = dim(x, -1)
    h = x           # the stream; of several streams their sum
    streams = x
    outputs = [x]   # what mixes read: the embedding and outputs
    blocks = []     # or sums of finished blocks, and the live one
    live = x
    k = 0
    place = none

    fn sources() {{
        {sources}
    }}

    fn weights_of(v, name) {{
        {scores}
        {normalised}
    }}

    fn mixed(name) {{
        all = sources()
        if len(all) == 1 {{
            return all[0]
        }}
        v = stack(all, axis: 1)
        n = len(all)
        a = weights_of(v, name)
        {mixed}
    }}

    fn read(name) {{
        place = name
        {read}
    }}

    fn write(y) {{
        k = k + 1
        at place {{
            {write}
        }}
        outputs = append(outputs, y)
        if k % {block} == 0 {{
            blocks = append(blocks, live)
            live = y
        }} else {{
            live = live + y
        }}
    }}

    fn result(name) {{
        {read}
    }}
}}

model drawn_{seed}(layers = {layers}, hidden = 32, heads = 4, ff = 48, vocab = 40) {{
    r = drawn(embed("embed", vocab, hidden))
    for l in 0..layers {{
        at "layers.{{l}}" {{
            r.write(attention(rmsnorm(r.read("attn_residual"), "attn_norm"), heads))
            r.write(swiglu(rmsnorm(r.read("mlp_residual"), "mlp_norm"), ff))
        }}
    }}
    output logits = head(rmsnorm(r.result("residual"), "norm"), vocab)
}}
"""

SOURCES = {
    "outputs": "return outputs",
    "a window": "return if len(outputs) > 4 { [outputs[0]] + outputs[-3..] } else { outputs }",
    "blocks": "return blocks + [live]",
    "every second output": "return [v for i, v in outputs if i % 2 == 0] + [h]",
}
KEYS = {"raw": "v", "normed": "op.rmsnorm(v, none, eps: 1e-6)",
        "normed with a gain": "op.rmsnorm(v, weight(\"{name}.key_gain\", [d]), eps: 1e-6)"}
QUERIES = {
    "static weights": "n = dim(v, 1)\n        return broadcast({f}(weight(\"{{name}}.logits\", [1, n]){axis}), [T, n])",
    "a learned query": "s = reshape(op.linear({keys}, weight(\"{{name}}.query\", [1, d])), [T, dim(v, 1)])",
    "a query of the stream": "s = reduce_sum({keys} * reshape(linear(h, \"{{name}}.query\", d), [T, 1, d]), axis: 2) / sqrt(float(d))",
    "a query for each head": "s = reduce_sum(reshape({keys} * weight(\"{{name}}.query\", [d]), [T, dim(v, 1), 4, d / 4]), axis: 3)",
}
READS = {
    "the stream": "return h",
    "a mix": "return mixed(\"{name}_mix\")",
    "the stream and a mix": "return h + weight(\"{name}.share\", [d]) * mixed(\"{name}_mix\")",
    "a blend of both": "g = sigmoid(linear(h, \"{name}.blend\", d))\n        return g * h + (1.0 - g) * mixed(\"{name}_mix\")",
    "a normed mix": "return rmsnorm(mixed(\"{name}_mix\"), \"{name}.mix_norm\")",
}
WRITES = {
    "a sum": "h = h + y",
    "a weighted sum": "h = weight(\"keep\", [d]) * h + weight(\"add\", [1]) * y",
    "a gated sum": "h = h + sigmoid(linear(h, \"gate\", d)) * (y - h)",
    "a normed sum": "h = rmsnorm(0.5 * h + y, \"post\")",
    "a sum of the normed output": "h = h + rmsnorm(y, \"post\")",
    "three streams": """streams = if rank(streams) == 2 { stack([streams, streams, streams], axis: 1) } else { streams }
            c = softmax(op.linear(op.rmsnorm(streams, none, eps: 1e-6), weight("coefficients", [1, d])), axis: 1)
            kept = reduce_sum(reshape(streams, [T, 3, 1, d]) * reshape(weight("carry", [3, 3]), [3, 3, 1]), axis: 1)
            streams = kept + c * reshape(y, [T, 1, d])
            h = reduce_sum(streams, axis: 1)""",
}


def spec(seed):
    rng = random.Random(seed)

    def draw(table):
        return rng.choice(sorted(table))

    read, write, sources, query, keys = draw(READS), draw(WRITES), draw(SOURCES), draw(QUERIES), draw(KEYS)
    normalised = rng.choice(["softmax", "sigmoid"])
    static, heads = query == "static weights", query == "a query for each head"
    scores = QUERIES[query].format(f=normalised, axis=", axis: 1" if normalised == "softmax" else "", keys=KEYS[keys])
    one = "return reduce_sum(v * reshape(a, [T, n, 1]), axis: 1)"
    many = "return reshape(reduce_sum(reshape(v, [T, n, 4, d / 4]) * reshape(a, [T, n, 4, 1]), axis: 1), [T, d])"
    what = f"reads {read}, writes {write}; mixes {sources} by {query}, {keys} keys, {normalised}"
    return what, MODEL.format(
        what=what, seed=seed, layers=LAYERS, block=rng.choice([2, 3]), sources=SOURCES[sources], scores=scores,
        normalised="" if static else "return softmax(s, axis: 1)" if normalised == "softmax" else "return sigmoid(s)",
        mixed=many if heads else one, read=READS[read], write=WRITES[write])
