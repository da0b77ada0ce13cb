"""next_tokens.py TABLE LOGITS.npy N [TEXT]: is TABLE what `hadal run --top N` has to print where these are the logits? With TEXT
the vocabulary is that of bytes, and the text of each token is there."""
import math
import struct
import sys


def last_row(path):
    data = open(path, "rb").read()
    size = 10 + struct.unpack_from("<H", data, 8)[0]
    shape = eval(data[10:size].decode())["shape"]
    return struct.unpack_from(f"<{shape[1]}f", data, size + 4 * (shape[0] - 1) * shape[1])


def quoted(byte):
    named = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 92: "\\\\"}
    return '"' + named.get(byte, chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") + '"'


table, logits, most = sys.argv[1], last_row(sys.argv[2]), int(sys.argv[3])
order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:most]
whole = sum(math.exp(l - max(logits)) for l in logits)
head, *rows = open(table).read().splitlines()
assert head.split() == ["rank", "id", "probability", "logit", "text"][: 5 if len(sys.argv) > 4 else 4], head
assert len(rows) == len(order), (len(rows), len(order))
for i, line in enumerate(rows):
    rank, token, probability, logit, *text = line.split(None, 4)
    assert int(rank) == i + 1, line
    # calls of other lengths round otherwise, so that neighbours may change places
    assert abs(logits[int(token)] - logits[order[i]]) < 1e-4, (line, order[i])
    assert abs(float(logit) - logits[int(token)]) < 1e-3, (line, logits[int(token)])
    wanted = math.exp(logits[int(token)] - max(logits)) / whole
    assert abs(float(probability) - wanted) < 1e-3 * wanted, (line, wanted)
    assert text == ([quoted(int(token))] if len(sys.argv) > 4 else []), line
assert len({line.split()[1] for line in rows}) == len(rows)
print("as it has to be")
