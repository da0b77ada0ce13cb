"""hadal train on several processes, by its files.

    ranks.py HADAL FOLDER WORK MPIRUN FLAVOUR     FOLDER: that of small.hadal; FLAVOUR: openmpi or mpich

Ranks give what one process gives, within a bound, and their own results to the bit, whether they are interrupted or not; what does not
fit together is an error on all of them. In the full set a full disk, numbers that are not finite, and four ranks, of which one is killed: the others end with an error, the last
checkpoint is whole, and the same command goes on to the bits of a run that was not killed."""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

from run_files import Runs, texts

hadal, folder, work, mpirun, flavour = sys.argv[1:]
full = os.environ.get("HADAL_FULL") == "1"
STEPS, DEADLINE = 9, 10
LOSSES = 1e-4  # of a loss: nine steps of a large learning rate
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
data, other = texts(work)
runs = Runs(work, STEPS)
path, read, wait_for, checkpoints = runs.path, runs.read, runs.wait_for, runs.checkpoints
check_whole, check_same = runs.check_whole, runs.check_same
COMMAND = [hadal, "train", os.path.join(folder, "small.hadal"), "--data", data, "--context", "32", "--batch", "4", "--steps", str(STEPS), "--warmup",
           "4", "--lr", "0.01", "--eval-data", other, "--eval-every", "6", "--save-every", "2", "--keep", "3", "--threads", "1", "-q"]
MPIRUN = [mpirun] + (["--oversubscribe"] if flavour == "openmpi" else [])
if flavour == "openmpi" and os.getuid() == 0:
    MPIRUN.append("--allow-run-as-root")
# what leaves the others running when a process dies: MPICH ends all when one dies of a signal, of which it hears by SIGUSR1 (comm/run.sh)
CHILD = [] if flavour == "openmpi" else ["sh", "-c", 'trap "" USR1; "$@" || exit $?; exit 0', "sh"]
RECOVERY = "--enable-recovery" if flavour == "openmpi" else "-disable-auto-cleanup"


def command(run, *more):
    return [*COMMAND, "-o", path(run), "--comm-timeout", str(DEADLINE), *more]


def start(ranks, run, *more, mpi=(), shell=()):
    return subprocess.Popen([*MPIRUN, *mpi, "-n", str(ranks), *shell, *command(run, *more)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "HADAL_TEST_RUN": path(run)})


def finish(process, fails=False):
    out, _ = process.communicate(timeout=120)
    assert (process.returncode != 0) == fails, f"exit code {process.returncode}: {out}"
    return out


def pid_of(run, rank):
    """Of a rank, which has its number in the environment."""
    wanted = {f"OMPI_COMM_WORLD_RANK={rank}".encode(), f"PMI_RANK={rank}".encode()}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                environment = set(f.read().split(b"\0"))
            if f"HADAL_TEST_RUN={path(run)}".encode() in environment and environment & wanted and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(hadal):
                return int(pid)
        except OSError:
            continue
    raise AssertionError(f"there is no rank {rank}")


def check_near(run, whole):
    both = [[json.loads(line) for line in read(x, "log.jsonl").splitlines()] for x in (run, whole)]
    assert len(both[0]) == len(both[1]) == STEPS + 2
    worst = 0.0
    for x, y in zip(*both):
        assert x.keys() == y.keys() and x["step"] == y["step"] and x.get("lr") == y.get("lr")
        worst = max(worst, *(abs(x[k] - y[k]) / abs(y[k]) for k in ("loss", "eval_loss", "norm") if k in x))
    print(f"'{run}' is off by {worst:.1e}")
    assert worst <= LOSSES


def rejected(text, ranks, run, *more):
    said = finish(start(ranks, run, *more), fails=True)
    assert text in said, f"\"{text}\" is not in: {said}"


# one process, and two
done = subprocess.run([*COMMAND, "-o", path("one")], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
said = finish(start(2, "two"))
assert said.count("steps ") == said.count(f"checkpoint-{STEPS}") == 1, said
check_near("two", "one")
assert json.loads(read("two", "run.json"))["ranks"] == 2
assert "finished before" in finish(start(2, "two"))
# interrupted on one rank: all stop after the same step, and go on to the same bits; another number of ranks does not
process = start(2, "stopped", "--optimizer", "adamw")
wait_for(process, "stopped", 3)
os.kill(pid_of("stopped", 1), signal.SIGINT)
assert "interrupted" in finish(process, fails=True)
assert checkpoints("stopped")[-1] == json.loads(read("stopped", "log.jsonl").splitlines()[-1])["step"] < STEPS
rejected("another value of the number of ranks", 1, "stopped")
finish(start(2, "stopped"))
check_same("stopped", "two")
# what does not fit together
rejected("a profile is of one process", 2, "profiled", "--profile")
rejected("a batch of 4 windows cannot be divided by 3 ranks", 3, "three")
assert not os.path.exists(path("three"))
both = subprocess.run([*MPIRUN, "-n", "1", *command("unlike"), ":", "-n", "1", *command("unlike", "--seed", "5")], capture_output=True, text=True)
assert both.returncode and "rank 1 was started with another model, other data or options than rank 0" in both.stdout + both.stderr, both.stderr
alone = subprocess.run(command("alone"), capture_output=True, text=True)
assert alone.returncode == 2 and "--comm-timeout is for processes that train together" in alone.stderr, alone.stderr

if full:
    # a disk that is full where the first rank writes
    process = start(2, "full", shell=["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh"])
    wait_for(process, "full", 3)
    resource.prlimit(pid_of("full", 0), resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    said = finish(process, fails=True)
    assert "cannot write" in said, said
    check_whole("full")
    finish(start(2, "full"))
    check_same("full", "two")
    # numbers that grow without an end: all ranks end, the state before is kept, and goes on to the same error
    for _ in range(2):
        said = finish(start(2, "wild", "--lr", "1e6", "--weight-decay", "1e3"), fails=True)
        assert "finite" in said and "another rank" not in said, said
        assert checkpoints("wild")[-1] == json.loads(read("wild", "log.jsonl").splitlines()[-1])["step"] < STEPS
        check_whole("wild")
    for optimizer in ("adamw", "muon"):
        whole, killed = f"four-{optimizer}", f"killed-{optimizer}"
        finish(start(4, whole, "--optimizer", optimizer))
        if optimizer == "adamw":
            check_near(whole, "one")
        process = start(4, killed, "--optimizer", optimizer, mpi=[RECOVERY], shell=CHILD)
        wait_for(process, killed, 5)
        os.kill(pid_of(killed, 2), signal.SIGKILL)
        begun = time.monotonic()
        said, _ = process.communicate(timeout=120)  # the exit code of such an mpirun says nothing
        assert time.monotonic() - begun < DEADLINE + 10, "the others end late"
        assert said.count("error: ") == 3 and "rank 2 has not answered" in said, said
        check_whole(killed)
        assert 0 < checkpoints(killed)[-1] < STEPS
        finish(start(4, killed, "--optimizer", optimizer))
        check_same(killed, whole)
print("as promised")
