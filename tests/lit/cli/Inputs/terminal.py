"""terminal.py WHERE[:WORDS] COMMAND ..: runs COMMAND with its output in a terminal (`both`), or only its standard output (`out`) or its
standard error (`errors`), interrupts it as soon as it has sent WORDS, and prints what the terminal was sent, with <clear> for the bytes that erase a line, then what stands
on the screen in the end, and what went elsewhere."""
import errno
import os
import pty
import signal
import subprocess
import sys

CLEAR = b"\r\x1b[K"


def sent_to(terminal, child, words):
    """All bytes, until the last one who writes is gone."""
    data, waiting = b"", bool(words)
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            return data
        if not part:
            return data
        data += part
        if waiting and words in data:
            waiting = False
            child.send_signal(signal.SIGINT)


def screen(data):
    """Lines as they are seen, of a terminal that is wide enough."""
    lines = []
    for line in data.split(b"\r\n"):
        lines.append(line.split(CLEAR)[-1])
    return b"\n".join(lines)


(where, _, words), command = sys.argv[1].partition(":"), sys.argv[2:]
terminal, side = pty.openpty()
ends = {"stdout": side if where != "errors" else subprocess.PIPE, "stderr": side if where != "out" else subprocess.PIPE}
# who runs tests may ignore signals, and what it starts inherits that
with subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **ends) as child:
    os.close(side)
    data = sent_to(terminal, child, words.encode())
    elsewhere = b"".join(e.read() for e in (child.stdout, child.stderr) if e)
print("sent:", data.replace(b"\r\n", b"<line>").replace(CLEAR, b"<clear>").decode())
print("screen:")
sys.stdout.write(screen(data).decode())
print("elsewhere:", elsewhere.replace(CLEAR, b"<clear>").decode(), "exit code:", child.returncode)
