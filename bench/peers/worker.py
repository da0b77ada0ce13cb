"""A model in a process of its own that runs only while it is being measured.

Thread pools of runtimes spin for a while after a call, keep their own OpenMP, and may end the
process where something is wrong: so each model has a process, and all but the one whose turn it is
are stopped (SIGSTOP). Linux only.
"""
import ctypes
import multiprocessing
import os
import signal
import time

from checkpoint import Missing

PR_SET_PDEATHSIG = 1


def _serve(pipe, make, arguments):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # so that a stopped process does not outlive its parent
    try:
        model = make(*arguments)
    except Missing as e:
        pipe.send(("missing", str(e)))
        return
    pipe.send(("ready", (model.label, model.weight_bytes)))
    while True:
        command, past, n, times = pipe.recv()
        prepare = getattr(model, "prepare", lambda past: None)
        if command == "logits":
            prepare(past)
            model.forward(past, n)
            pipe.send(("logits", model.logits()))
            continue
        seconds = []
        for _ in range(times):
            prepare(past)
            start = time.perf_counter()
            model.forward(past, n)
            seconds.append(time.perf_counter() - start)
        pipe.send(("seconds", seconds))


class Worker:
    """make(*arguments) runs in the new process and returns an object with label, weight_bytes, forward(past, n) and logits(),
    and perhaps prepare(past), which is not timed. Raises Missing if the object cannot take part, or if the process dies;
    otherwise the process is stopped when this returns."""

    def __init__(self, make, *arguments):
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_serve, args=(far, make, arguments), daemon=True)
        self.process.start()
        far.close()
        try:
            kind, what = self._answer()
            if kind == "missing":
                raise Missing(what)
        except BaseException:
            self.close()
            raise
        self.label, self.weight_bytes = what

    def _answer(self):
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            raise Missing(f"its process ended with exit code {self.process.exitcode}")
        if answer[0] != "missing":
            os.kill(self.process.pid, signal.SIGSTOP)
        return answer

    def _ask(self, *command):
        try:
            os.kill(self.process.pid, signal.SIGCONT)
            self.pipe.send(command)
        except (ConnectionError, ProcessLookupError):
            pass  # _answer says how it ended
        return self._answer()[1]

    def seconds(self, past, n, times=1):
        """Seconds of each of `times` calls of n tokens after a cache of `past`."""
        return self._ask("seconds", past, n, times)

    def logits(self, past, n):
        """The last row of logits after n tokens, after a cache of `past`."""
        return self._ask("logits", past, n, 1)

    def close(self):
        """Must be called: otherwise Python waits forever for a stopped process."""
        self.process.kill()
        self.process.join()
