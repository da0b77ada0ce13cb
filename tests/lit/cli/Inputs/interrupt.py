"""interrupt.py FOLDER SIGNAL COMMAND..: runs COMMAND with FOLDER as its place for temporary files, sends the signal
as soon as there is one, and tells what is left."""
import os
import signal
import subprocess
import sys
import time

folder, number, command = sys.argv[1], getattr(signal, sys.argv[2]), sys.argv[3:]
os.makedirs(folder)
# who runs tests may ignore signals, and what it starts inherits that
p = subprocess.Popen(command, env={**os.environ, "TMPDIR": folder}, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
while p.poll() is None and not os.listdir(folder):
    time.sleep(0.001)
was_there = bool(os.listdir(folder))
p.send_signal(number)
code = p.wait()
print("ended by", signal.Signals(-code).name if code < 0 else code, "begun:", was_there, "left:", os.listdir(folder))
