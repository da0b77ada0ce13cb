"""moments.py FOLDER SIGNAL MOMENTS NAMES COMMAND ..: runs COMMAND, which writes the files NAMES (with commas between) into FOLDER,
several times, and sends SIGNAL at MOMENTS moments of its way, each time to a fresh FOLDER; then when a file appears there: a temporary one,
and the first and the last of NAMES. With HADAL_FULL=1 there are three times as many moments, and it does for each of NAMES.
After each, all of the files must be there or none of them, and nothing else; an interrupted command says so in one line."""
import os
import shutil
import signal
import subprocess
import sys
import time

folder, number, moments, names, command = sys.argv[1], getattr(signal, sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(","), sys.argv[5:]
full = os.environ.get("HADAL_FULL") == "1"
moments *= 3 if full else 1
ended = 0


def start():
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    # who runs tests may ignore signals, and what it starts inherits that
    return subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))


def judge(child, moment):
    global ended
    child.send_signal(number)
    said = child.communicate()[1].decode()
    time.sleep(0.1)  # whom it started may still be there
    left = sorted(os.listdir(folder))
    assert left in ([], sorted(names)), (moment, left)
    assert child.returncode in (0, -number), (moment, child.returncode)
    if child.returncode == 0:
        assert left, moment
        return
    ended += 1
    # before the command listens there is nothing to say
    assert said == "" and not left or said.startswith("hadal: interrupted") and said.count("\n") == 1, (moment, said)


began = time.time()
child = start()
assert child.wait() == 0
took = time.time() - began
assert sorted(os.listdir(folder)) == sorted(names), os.listdir(folder)
for i in range(moments):
    child = start()
    time.sleep(took * (i + 0.5) / moments)
    judge(child, i)
for name in (names if full else [names[0], names[-1]]) + [".hadal-"]:
    child = start()
    while child.poll() is None and not any(n.startswith(name) for n in os.listdir(folder)):
        time.sleep(0.0005)
    judge(child, name)
assert ended, "it was never interrupted"
print("all or nothing")
