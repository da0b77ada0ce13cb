"""stopped.py TMPDIR HOW COMMAND ..: starts COMMAND with its temporary files in TMPDIR, waits for what it writes, and stops it

by Ctrl-C (`interrupt`) or by closing its output (`close`); says how it ended, what it wrote and what it left."""
import os
import signal
import subprocess
import sys

folder, how, command = sys.argv[1], sys.argv[2], sys.argv[3:]
os.makedirs(folder, exist_ok=True)
# who runs tests may ignore signals, and what it starts inherits that
child = subprocess.Popen(command, env=dict(os.environ, TMPDIR=folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
text = child.stdout.read(8)
if how == "close":
    child.stdout.close()
else:
    child.send_signal(signal.SIGINT)
if how == "interrupt":
    text += child.stdout.read()
errors = child.stderr.read().decode()
code = child.wait()
print("code", code, "text", len(text) >= 8, "ends", how != "interrupt" or text.endswith(b"\n"), "rates", "written in" in errors, "left", os.listdir(folder))
