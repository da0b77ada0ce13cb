"""Runs that are ended at any moment go on as if they had not been: hadal train, by its files.

    resume.py HADAL FOLDER WORK     FOLDER: that of small.hadal

Killed (SIGKILL) at random moments and started again, a run has to the bit the log and the checkpoints of an uninterrupted one, and
every checkpoint that is seen on the way is whole. Ctrl-C, SIGTERM, a disk that is full, two processes on one run, a loss that is not finite. The
moments are drawn by HADAL_SEED; three of them, and 20 in the full set."""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

from run_files import Runs, texts

hadal, folder, work = sys.argv[1:]
STEPS = 40
seed = int(os.environ.get("HADAL_SEED", "1"))
random.seed(seed)
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
data, other = texts(work)
runs = Runs(work, STEPS)
path, read, lines, wait_for, checkpoints = runs.path, runs.read, runs.lines, runs.wait_for, runs.checkpoints
check_whole, check_same = runs.check_whole, runs.check_same
COMMAND = [hadal, "train", os.path.join(folder, "small.hadal"), "--data", data, "--context", "32", "--batch", "4", "--steps", str(STEPS),
           "--warmup", "4", "--lr", "0.01", "--eval-data", other, "--eval-every", "6", "--depth-every", "5", "--save-every", "3", "--keep", "2", "-q"]


def start(run, *more, **how):
    return subprocess.Popen(COMMAND + ["-o", path(run), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def finish(process, code=0):
    out, err = process.communicate()
    assert process.returncode == code, f"exit code {process.returncode}, not {code}: {out}{err}"
    return out + err


def kill_and_go_on(name, *options):
    """A run that is killed once is the same as the whole one with these options."""
    process = start(name, *options, "--threads", "1")
    wait_for(process, name, 20)
    process.kill()
    process.communicate()
    finish(start(name, *options))
    check_same(name, name + "-whole")


# an uninterrupted run
finish(start("whole", "--threads", "1"))
log = [json.loads(line) for line in read("whole", "log.jsonl").splitlines()]
steps = [line for line in log if "loss" in line]
assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
assert [line["step"] for line in log if "eval_loss" in line] == [*range(6, STEPS, 6), STEPS]
assert [line["step"] for line in log if "out_rms" in line] == [*range(5, STEPS + 1, 5)]
assert steps[-1]["loss"] < 0.75 * steps[0]["loss"], "nothing is learnt"
assert checkpoints("whole") == [STEPS - 1, STEPS]
before = read("whole", "log.jsonl")
assert "finished before" in finish(start("whole"))
assert read("whole", "log.jsonl") == before

# killed at random moments
moments = sorted(random.randrange(1, len(log)) for _ in range(20 if os.environ.get("HADAL_FULL") == "1" else 3))
for n in moments:
    process = start("killed", "--threads", random.choice("12"))
    wait_for(process, "killed", n)
    time.sleep(random.random() * 0.01)
    process.kill()
    process.communicate()
    check_whole("killed")
finish(start("killed"))
check_same("killed")

# the same with Muon, whose moments are others
finish(start("muon-whole", "--optimizer", "muon"))
kill_and_go_on("muon", "--optimizer", "muon")
assert read("muon", "log.jsonl") != read("whole", "log.jsonl")

# and with products of bf16, where the machine has them
process = start("rounded-whole", "--matmul-dtype", "bf16")
out, err = process.communicate()
assert process.returncode == 0 or "--matmul-dtype bf16 is not for" in err, err
if process.returncode == 0:
    kill_and_go_on("rounded", "--matmul-dtype", "bf16")
    assert read("rounded", "log.jsonl") != read("whole", "log.jsonl")
    assert "another value of --matmul-dtype" in finish(start("rounded"), 2)

# Ctrl-C, and the signal of service managers: a checkpoint, and exit codes of their own
for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
    process = start("stopped")
    wait_for(process, "stopped", lines("stopped") + 5)
    process.send_signal(number)
    assert "interrupted" in finish(process, code)
    assert checkpoints("stopped")[-1] == json.loads(read("stopped", "log.jsonl").splitlines()[-1])["step"]
# two processes, one of them stopped in the middle
process = start("stopped")
wait_for(process, "stopped", lines("stopped") + 1)
process.send_signal(signal.SIGSTOP)
assert "another process trains in" in finish(start("stopped"), 3)
process.send_signal(signal.SIGCONT)
finish(process)
check_same("stopped")

# a disk that is full: files may not grow
process = start("full", preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
wait_for(process, "full", 4)
resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
said = finish(process, 3)
assert "cannot write" in said and "raise the limit (ulimit -f)" in said, said
check_whole("full")
finish(start("full"))
check_same("full")

# numbers that grow without an end: the state before is kept, and goes on to the same error
COMMAND[COMMAND.index("--lr") + 1] = "1e6"
said = finish(start("wild", "--weight-decay", "1e3"), 3)
last = checkpoints("wild")[-1]
assert "finite" in said and last == json.loads(read("wild", "log.jsonl").splitlines()[-1])["step"] < STEPS
again = finish(start("wild", "--weight-decay", "1e3"), 3)
assert "finite" in again and checkpoints("wild")[-1] == last
print(f"as promised, killed after {moments} lines of the log")
