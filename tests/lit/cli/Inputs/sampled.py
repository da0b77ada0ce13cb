"""sampled.py PROMPT_IDS WRITTEN_IDS LOGITS.npy TEMPERATURE TOP_K TOP_P SEED

Draws again what `hadal generate` has drawn, as docs/text.md says, from the logits of prompt and written tokens, and
says "the same" if it comes to the same ids."""
import math
import struct
import sys

MASK = (1 << 64) - 1


def splitmix(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def rotated(x, k):
    return ((x << k) | (x >> (64 - k))) & MASK


def generator(seed, name):
    """xoshiro256** of a named stream (ir/eval/random.c)."""
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & MASK
    numbers = splitmix(next(splitmix(seed)) ^ h)
    s = [next(numbers) for _ in range(4)]
    while True:
        yield (rotated((s[1] * 5) & MASK, 7) * 9) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotated(s[3], 45)


def rows(path):
    data = open(path, "rb").read()
    size = 10 + struct.unpack_from("<H", data, 8)[0]
    shape = eval(data[10:size].decode())["shape"]
    values = struct.unpack_from(f"<{shape[0] * shape[1]}f", data, size)
    return [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]


def drawn(logits, temperature, top_k, top_p, u):
    best = max(logits)
    if temperature == 0:
        return logits.index(best)
    weight = [math.exp((x - best) / temperature) for x in logits]
    order = sorted(range(len(weight)), key=lambda i: (-weight[i], i))
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        whole, have, kept = sum(weight[i] for i in order), 0.0, []
        for i in order:
            if kept and have >= top_p * whole:
                break
            kept.append(i)
            have += weight[i]
        order = kept
    left = sorted(order)
    bound, running = u * sum(weight[i] for i in left), 0.0
    for i in left:
        running += weight[i]
        if running > bound:
            return i
    return left[-1]


prompt = [int(x) for x in sys.argv[1].split(",")]
written = [int(x) for x in open(sys.argv[2]).read().split()]
logits = rows(sys.argv[3])
temperature, top_k, top_p, seed = float(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7])
numbers = generator(seed, "generate")
again = [drawn(logits[len(prompt) - 1 + i], temperature, top_k, top_p, (next(numbers) >> 11) * 2.0 ** -53) for i in range(len(written))]
print("the same" if again == written else f"wanted {again}, have {written}")
