"""Token ids for eval.test, and whether what it has stored is what the logits say.

    evaluated.py ids TEXT OUT.npy OUT.i32 WINDOW.npy | far OUT.npy OUT.i32 OUT.npy | check FOLDER | depth FOLDER
"""
import ast, json, math, pathlib, struct, sys


def write_npy(path, descr, form, values):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len(values)},), }}".encode()
    head += b" " * (-(11 + len(head)) % 64) + b"\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head +
                                   struct.pack(f"<{len(values)}{form}", *values))


def read_npy(path):
    data = pathlib.Path(path).read_bytes()
    n = struct.unpack("<H", data[8:10])[0]
    head = ast.literal_eval(data[10:10 + n].decode())
    values = struct.unpack(f"<{(len(data) - 10 - n) // 4}f", data[10 + n:])
    return head["shape"], values


def near(a, b, limit):
    assert len(a) == len(b) and all(abs(x - y) <= limit * (1 + abs(y)) for x, y in zip(a, b)), (a, b)


def by_logits(path, text):
    (n, vocab), logits = read_npy(path)
    losses = []
    for t in range(n - 1):
        row = logits[t * vocab:(t + 1) * vocab]
        most = max(row)
        losses.append(math.log(math.fsum(math.exp(x - most) for x in row)) + most - row[text[t + 1]])
    return losses


def check(folder):
    text = (folder / "text").read_bytes()
    losses = {name: read_npy(folder / f"{name}.npy")[1] for name in "aerstw"}
    facts = {name: json.loads((folder / f"{name}.json").read_text()) for name in "abcderstw"}
    for name, loss in losses.items():
        mean = math.fsum(loss) / len(loss)
        assert facts[name]["tokens"] == len(loss)
        assert abs(facts[name]["loss"] - mean) <= 1e-9 * mean
        assert abs(facts[name]["perplexity"] - math.exp(mean)) <= 1e-9 * math.exp(mean)
    # 78 tokens in windows of 20 lose the first of four; with a stride the first alone
    assert len(losses["a"]) == 78 - 4 and len(losses["s"]) == 77
    near(losses["a"], losses["e"], 1e-5)
    near(losses["s"], losses["t"], 1e-5)
    near(losses["r"], losses["e"], 1e-6)  # on two ranks and two stages
    assert facts["a"]["bytes"] == 78 and "bits_per_byte" not in facts["c"] and "bits_per_byte" not in facts["d"]
    assert abs(facts["b"]["bits_per_byte"] - facts["b"]["loss"] / math.log(2)) < 1e-9
    whole = by_logits(folder / "logits.npy", text)
    near(losses["w"], whole, 1e-6)
    # the second window of 20 with a stride of 7 predicts tokens 20 .. 26 from 7 .. 26
    near(losses["t"][19:26], by_logits(folder / "window.npy", text[7:27])[12:], 1e-6)
    near(losses["e"][:19], whole[:19], 1e-6)  # the first window knows as much
    near(losses["t"][:19], whole[:19], 1e-6)


def sizes(depth):
    return [x for row in depth["rows"] for x in [*row["input"], *row["stream"], row["output"] or 0]]


def depth(folder):
    five, exact, code = (json.loads((folder / f"{name}.json").read_text()) for name in ("five", "depth-exact", "depth"))
    four = json.loads((folder / "four.json").read_text())
    assert five["by_depth"]["tokens"] == four["tokens"] == 4
    near(sizes(five["by_depth"]), sizes(four), 1e-6)
    assert code["by_depth"]["tokens"] == exact["by_depth"]["tokens"] == code["tokens"] == 77
    near(sizes(code["by_depth"]), sizes(exact["by_depth"]), 1e-5)
    near([code["loss"]], [exact["loss"]], 1e-5)


def main():
    command, paths = sys.argv[1], sys.argv[2:]
    if command == "ids":
        text = pathlib.Path(paths[0]).read_bytes()
        write_npy(paths[1], "<u2", "H", list(text))
        pathlib.Path(paths[2]).write_bytes(struct.pack(f"<{len(text)}i", *text))
        write_npy(paths[3], "<i4", "i", list(text[7:27]))
    elif command == "far":
        write_npy(paths[0], "<i8", "q", [1, 2, 256, 3])
        pathlib.Path(paths[1]).write_bytes(struct.pack("<3i", 1, -5, 3))
        write_npy(paths[2], "<f4", "f", [1.0, 2.0])
    else:
        {"check": check, "depth": depth}[command](pathlib.Path(paths[0]))


main()
