"""Trainers that ranks share, called through ctypes as a program would call them; the ranks are threads.

    ranks.py HADAL FOLDER WORK     FOLDER: golden cases; HADAL_BUILD in the environment

AdamW and Muon on 1, 2 and 4 ranks: all ranks have the same bits, two runs of 4 ranks have them, and they are those of one rank within the
bounds that docs/training.md states. The moments are divided, and what is kept on 4 ranks goes on with 2."""
import array
import ctypes as c
import os
import random
import sys
import threading

from library import OK, Model, Options, Trainer

hadal, folder, work = sys.argv[1:]
os.makedirs(work, exist_ok=True)
STEPS, SEQUENCES, HEAD = 6, 4, 128
GRADIENTS, LOSSES = 1e-6, 1e-4  # of the largest moment after a step; of a loss
comms = c.CDLL(os.path.join(os.environ["HADAL_BUILD"], "lib", "libhadal_threads.so"))
comms.hadal_threads_comm.restype = c.c_void_p
comms.hadal_threads_comm.argtypes = [c.c_void_p, c.c_int32]
comms.hadal_threads_leave.argtypes = [c.c_void_p, c.c_int32]
comms.hadal_threads_close.argtypes = [c.c_void_p]


def together(ranks, body):
    """What body(rank, comm) gives on each rank."""
    group, out, failed = c.c_void_p(), [None] * ranks, []
    assert comms.hadal_threads_open(ranks, c.byref(group)) == OK

    def run(rank):
        try:
            out[rank] = body(rank, comms.hadal_threads_comm(group, rank))
        except BaseException as e:
            failed.append((rank, e))
        comms.hadal_threads_leave(group, rank)

    threads = [threading.Thread(target=run, args=(r,)) for r in range(ranks)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    comms.hadal_threads_close(group)
    if failed:
        raise failed[0][1]
    return out


def batch(m, step):
    draw, vocab = random.Random(step), m.config["vocab_size"]
    return [[(draw.randrange(vocab), draw.randrange(vocab) if draw.random() < 0.8 else -1) for _ in range(n)] for n in (17, 5, 30, 12)]


def saved(t, rank):
    size = t.m.trainer_save_size(t.t)
    data = c.create_string_buffer(size)
    assert t.m.trainer_save(t.t, data if rank == 0 else None, size if rank == 0 else 0) == OK, t.message()
    return data.raw if rank == 0 else None


class Results:
    def __init__(self, t, rank, ranks, steps, before=None):
        m = t.m
        assert m.trainer_set_threads(t.t, 1) == OK
        if before:
            assert m.trainer_restore(t.t, before if rank == 0 else None, len(before) if rank == 0 else 0) == OK, t.message()
        self.size, self.losses, self.states = t.size, [], []
        for _ in range(steps):
            step, each = m.trainer_steps(t.t) + 1, SEQUENCES // ranks
            code, total, count = t.call(batch(m, step)[rank * each:(rank + 1) * each])
            assert code == OK, t.message()
            code, norm = t.step(Options(step, learning_rate=0.01, clip=2))
            assert code == OK, t.message()
            self.losses += [total / count, norm]
            self.states.append(saved(t, rank))
        self.values = t.values()
        code, total, count = t.call(batch(m, 100)[rank:rank + 1], alone=True)  # of four ranks all, of two half
        assert code == OK, t.message()
        self.losses.append(total / count)


def run(m, ranks, steps=STEPS, before=None):
    """Rank 0's results; all have the same."""
    if ranks == 1:
        return Results(Trainer(m), 0, 1, steps, before)
    of_all = together(ranks, lambda rank, comm: Results(Trainer(m, comm=comm), rank, ranks, steps, before))
    for other in of_all[1:]:
        assert other.values == of_all[0].values and other.losses == of_all[0].losses, f"{ranks} ranks differ"
    of_all[0].sizes = [r.size for r in of_all]
    return of_all[0]


def floats(state, begin, end):
    numbers = array.array("f")
    numbers.frombytes(state[begin:end])
    return numbers


def check(m):
    one, four = run(m, 1), run(m, 4)
    assert len(one.states[0]) == len(four.states[0])
    worst = [0.0, 0.0]
    parameters = len(one.values)
    for ranks in (2, 4):
        many = four if ranks == 4 else run(m, ranks, 1)
        x, y = (floats(r.states[0], HEAD + parameters, len(r.states[0])) for r in (one, many))
        worst[0] = max(worst[0], max(abs(a - b) for a, b in zip(x, y)) / max(map(abs, x)))
    for a, b in zip(one.losses[:2 * STEPS], four.losses):
        worst[1] = max(worst[1], abs(a - b) / abs(a))
    print(f"moments after a step are off by {worst[0]:.1e}, losses and norms of {STEPS} steps by {worst[1]:.1e}")
    assert worst[0] <= GRADIENTS and worst[1] <= LOSSES
    assert run(m, 4).states == four.states, "another run has other bits"
    # moments are divided: of elements by lines, of Muon by matrices
    moments = len(one.states[0]) - HEAD - parameters
    largest = max(4 * len(w) for w in m.weights.values())
    for size in four.sizes:
        assert one.size - size >= 0.75 * moments - largest, f"a rank takes {size} bytes, one alone {one.size}"
    # what is kept: the same number of ranks goes on to the bit, another one within the bound
    again = run(m, 4, STEPS - 2, four.states[1])
    assert again.states == four.states[2:], "what was kept goes on otherwise"
    for ranks in (1, 2):
        other = run(m, ranks, 1, four.states[1])
        assert abs(other.losses[0] - four.losses[4]) <= LOSSES * four.losses[4]


NATIVE = "--target-cpu", "native"
check(Model(hadal, folder, work, "attnres-block", *NATIVE))
check(Model(hadal, folder, work, "standard", *NATIVE, "--optimizer", "muon"))
print("as promised")
