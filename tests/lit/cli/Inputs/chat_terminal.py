"""chat_terminal.py KEYS COMMAND ..: runs COMMAND in a terminal and types: KEYS is a Python list of texts to type, each as soon as the pattern

before it matches what was written since: [wait, type, wait, type, ..]. Prints what the terminal was sent, with <clear> for the bytes that erase a line
and without other escapes, and how the command ended."""
import ast
import errno
import os
import pty
import re
import select
import signal
import sys
import time

keys, command = ast.literal_eval(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who runs tests may ignore it, and what is started inherits that
    os.environ.update(TERM="xterm", LC_ALL="C.UTF-8", HOME="/nonexistent")
    os.execvp(command[0], command)
data, seen, end = b"", 0, time.monotonic() + 60
while time.monotonic() < end:
    if keys and (found := re.compile(keys[0].encode()).search(data, seen)):
        seen = found.end()
        os.write(terminal, keys[1].encode())
        keys = keys[2:]
        continue
    if not select.select([terminal], [], [], 0.1)[0]:
        continue
    try:
        part = os.read(terminal, 1 << 16)
    except OSError as e:
        if e.errno != errno.EIO:
            raise
        part = b""
    if not part:
        break
    data += part
else:
    os.kill(child, 9)
_, status = os.waitpid(child, 0)
shown = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\r", b"", data.replace(b"\r\x1b[K", b"<clear>")).decode(errors="replace")
print(shown)
print("left:", keys, "code:", os.waitstatus_to_exitcode(status))
