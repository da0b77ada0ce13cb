"""What tests of hadal train have in common: texts to train on, and the files of the runs in a folder."""
import os
import random
import struct
import time

FILES = {"model.hir", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "trainer.state"}
WORDS = "the depth of the sea is read across layers and each of them writes what it has seen into a stream".split()


def texts(work):
    """(text, another one to evaluate on), drawn words."""
    paths = os.path.join(work, "data.txt"), os.path.join(work, "other.txt")
    for path, seed, n in zip(paths, (2, 3), (1500, 60)):
        with open(path, "w", encoding="ascii") as f:
            f.write(" ".join(random.Random(seed).choice(WORDS) for _ in range(n)))
    return paths


class Runs:
    """The runs in `work`, which have that many steps."""

    def __init__(self, work, steps):
        self.work, self.steps = work, steps

    def path(self, run, *names):
        return os.path.join(self.work, run, *names)

    def read(self, run, *names):
        with open(self.path(run, *names), "rb") as f:
            return f.read()

    def lines(self, run):
        try:
            return self.read(run, "log.jsonl").count(b"\n")
        except FileNotFoundError:
            return 0

    def wait_for(self, process, run, n):
        """Until the log has n lines, or the process is over."""
        while self.lines(run) < n and process.poll() is None:
            time.sleep(0.001)

    def checkpoints(self, run):
        return sorted(int(n[11:]) for n in os.listdir(self.path(run)) if n.startswith("checkpoint-"))

    def check_whole(self, run):
        for step in self.checkpoints(run):
            files = set(os.listdir(self.path(run, f"checkpoint-{step}")))
            assert files == FILES, f"checkpoint {step} has {files}"
            state = self.read(run, f"checkpoint-{step}", "trainer.state")
            assert struct.unpack_from("<8s", state)[0] == b"HADALTR1"

    def check_same(self, run, whole="whole"):
        assert self.read(run, "log.jsonl") == self.read(whole, "log.jsonl"), f"the log of '{run}' differs"
        last = f"checkpoint-{self.steps}"
        for name in sorted(FILES):
            assert self.read(run, last, name) == self.read(whole, last, name), f"{name} of '{run}' differs"
        left = [n for n in os.listdir(self.path(run)) if n.startswith(".hadal")]
        assert not left, f"{left} are left"
