"""interrupt.py FOLDER SIGNAL COMMAND..: runs COMMAND with FOLDER as its place for temporary files, sends the signal
as soon as there is one, and tells what is left. On a busy machine a command may be over before anybody looked: then
once more. SIGNAL -: the command sees to it itself."""
import os
import signal
import subprocess
import sys
import time

folder, name, command = sys.argv[1], sys.argv[2], sys.argv[3:]
os.makedirs(folder)
if name == "-":
    code = subprocess.run(command, env={**os.environ, "TMPDIR": folder}).returncode
    print("ended by", signal.Signals(-code).name if code < 0 else code, "left:", os.listdir(folder))
    sys.exit()
number = getattr(signal, name)
for _ in range(20):
    # who runs tests may ignore signals, and what it starts inherits that
    p = subprocess.Popen(command, env={**os.environ, "TMPDIR": folder},
                         preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    while p.poll() is None and not os.listdir(folder):
        time.sleep(0.001)
    was_there = bool(os.listdir(folder))
    p.send_signal(number)
    code = p.wait()
    if was_there or code != 0:
        break
print("ended by", signal.Signals(-code).name if code < 0 else code, "begun:", was_there, "left:", os.listdir(folder))
