import array
import ctypes
import json
import mmap
import os

try:
    import numpy
except ImportError:  # then logits are a list of array.array, a row each
    numpy = None

#@constants
NAME, VERSION, BUILD_ID = "model", "", ""
VOCAB, LOGITS, MAX_CHUNK = 0, 0, 0
OUTPUTS = ()
CODES = {}
#@end
HERE = os.path.dirname(os.path.abspath(__file__))


class Error(Exception):
    """What the library says of a call that failed; nothing has changed then. `code` is one of CODES, `name` its name."""

    def __init__(self, code, detail=""):
        text = _function("strerror", ctypes.c_char_p, ctypes.c_int)(code).decode()
        super().__init__(f"{text}: {detail}" if detail else text)
        self.code, self.name = code, CODES.get(code, "")


def _load():
    """The library beside this file; ImportError if it is of another build, since sizes may differ."""
    library = ctypes.CDLL(os.path.join(HERE, f"lib{NAME}.so"))

    class Info(ctypes.Structure):
        _fields_ = [
            #@info
        ]
    info = getattr(library, f"{NAME}_info")
    info.restype = ctypes.POINTER(Info)
    own = info().contents.build_id.decode()
    if own != BUILD_ID:
        raise ImportError(f"lib{NAME}.so is of build {own}, {NAME}.py of {BUILD_ID}: compile both again")
    return library


def _function(name, result, *arguments):
    f = getattr(_library, f"{NAME}_{name}")
    f.restype, f.argtypes = result, arguments
    return f


_library = _load()
_pointer, _n, _size = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t
_weights_open = _function("weights_open", ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_pointer))
_weights_read = _function("weights_read", ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_pointer))
_weights_close = _function("weights_close", None, _pointer)
_session_size = _function("session_size", _size, _n)
_session_init = _function("session_init", ctypes.c_int, _pointer, _size, _pointer, _n, ctypes.POINTER(_pointer))
_forward = _function("forward", ctypes.c_int, _pointer, _pointer, _n, _pointer, _n)
#@outputs
_forward_outputs = _function("forward_outputs", ctypes.c_int, _pointer, _pointer, _n, _pointer, _n)
#@end
#@loss
_loss = _function("loss", ctypes.c_int, _pointer, _pointer, _pointer, _n, _pointer)
#@end
_forward_batch = _function("forward_batch", ctypes.c_int, _pointer, _pointer, _n, _pointer)
_session_length = _function("session_length", _n, _pointer)
_session_rewind = _function("session_rewind", ctypes.c_int, _pointer, _n)
_save_size = _function("session_save_size", _size, _pointer)
_save = _function("session_save", ctypes.c_int, _pointer, _pointer, _size)
_restore = _function("session_restore", ctypes.c_int, _pointer, _pointer, _size)
_set_threads = _function("session_set_threads", ctypes.c_int, _pointer, ctypes.c_int)
_set_cpu = _function("session_set_cpu", ctypes.c_int, _pointer, ctypes.c_char_p)
_cpu = _function("session_cpu", ctypes.c_char_p, _pointer)
_machine = _function("session_machine", ctypes.c_char_p, _pointer)
_message = _function("session_message", ctypes.c_char_p, _pointer)


class _Weights:
    """A file of weights, mapped or read, which sessions share; the last one closes it."""

    def __init__(self, path, load):
        self.at, self.sessions = _pointer(), 0
        if load not in ("mmap", "read"):
            raise ValueError(f"weights are loaded by mmap or read, not by {load!r}")
        code = (_weights_read if load == "read" else _weights_open)(os.fsencode(path), ctypes.byref(self.at))
        if code:
            raise Error(code, path)

    def leave(self):
        self.sessions -= 1
        if not self.sessions:
            _weights_close(self.at)


def _ids(ids):
    """Whole numbers of 32 bits, as memory that the library reads, and how many they are."""
    if numpy is not None and isinstance(ids, numpy.ndarray):
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise TypeError(f"ids are whole numbers [n], not {ids.dtype} {list(ids.shape)}")
        if len(ids) and not -2**31 <= int(ids.min()) <= int(ids.max()) < 2**31:
            raise OverflowError("an id does not fit 32 bits")
        ids = numpy.ascontiguousarray(ids, dtype=numpy.int32)
        return ids, ids.ctypes.data, len(ids)
    ids = array.array("i", list(ids))
    return ids, ids.buffer_info()[0], len(ids)


def _rows(n, row):
    """Room for n rows of float32, its address, and what makes the result of it."""
    if numpy is not None:
        a = numpy.empty((n, *row), dtype=numpy.float32)
        return a.ctypes.data, lambda: a
    width = 1
    for d in row:
        width *= d
    memory = (ctypes.c_float * (n * width))()

    def result():
        flat = array.array("f", bytes(memory))
        return [flat[i * width:(i + 1) * width] for i in range(n)] if row else flat
    return ctypes.addressof(memory), result


class Model:
    """A sequence of tokens that the model has read: weights, which sequences share, and what it keeps of its own tokens.

        with Model.open(max_tokens=1024) as model:
            logits = model.forward([1, 2, 3])

    A sequence serves one thread at a time (else Error BUSY); several of them may run at once. Calls leave Python's lock.
    Errors of the library are Error, with its message; after one everything is as it was before the call."""

    def __init__(self, weights, max_tokens):
        self._session, self._weights = None, None
        size = _session_size(max_tokens)
        if not size:
            raise ValueError(f"a sequence of {max_tokens} tokens cannot be")
        self._mapping = mmap.mmap(-1, size)  # pages that are never used are never touched
        self._memory = (ctypes.c_char * size).from_buffer(self._mapping)
        session = _pointer()
        code = _session_init(ctypes.addressof(self._memory), size, weights.at, max_tokens, ctypes.byref(session))
        if code:
            raise Error(code)
        self._session, self._weights, self.max_tokens = session, weights, max_tokens
        weights.sessions += 1

    @classmethod
    def open(cls, weights=None, max_tokens=4096, load="mmap"):
        """An empty sequence, with room for max_tokens tokens. weights: a path; the file beside this one if there is none.
        load: "mmap", the file is mapped; "read", it is read into memory of this process, in huge pages: faster to decode with
        where a map has small pages, but a copy of its own for each process.
        Error OPEN, FORMAT, DIGEST (weights of another model), MEMORY, CPU (it lacks what the code needs)."""
        path = os.fspath(weights) if weights is not None else os.path.join(HERE, f"{NAME}.weights")
        opened = _Weights(path, load)
        try:
            return cls(opened, max_tokens)
        except BaseException:
            opened.sessions += 1
            opened.leave()
            raise

    def another(self, max_tokens=None):
        """A further empty sequence on the same weights, for batch() or for another thread."""
        self._check(0)
        return Model(self._weights, self.max_tokens if max_tokens is None else max_tokens)

    def close(self):
        """Frees the memory of the sequence, and the weights with the last one. Twice is no error."""
        if self._session is None:
            return
        self._session = None
        del self._memory
        self._mapping.close()
        self._weights.leave()

    def __reduce_ex__(self, _protocol):
        # two objects with one sequence would both close it
        raise TypeError("a model is neither copied nor pickled: another() begins a sequence, restore() gives it what save() has kept")

    def __enter__(self):
        self._check(0)
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_session", None) is not None:
            self.close()

    def _check(self, code):
        if self._session is None:
            raise ValueError("the model is closed")
        if code:
            raise Error(code, _message(self._session).decode())

    def __len__(self):
        """The number of tokens that the sequence holds."""
        self._check(0)
        return _session_length(self._session)

    def __bool__(self):
        return True

    def forward(self, tokens, rows=1):
        """Reads tokens after those that the sequence holds, and gives the logits of the last `rows` of them.

        tokens: n >= 1 ids of 0 .. VOCAB - 1: a list, bytes (each a token), an array of whole numbers [n]
        returns: float32 [rows, LOGITS], the caller's own; without numpy a list of array.array("f"), a row each
        Error TOKEN (which id), FULL (no room for n more tokens), ARGUMENT (rows above n), BUSY"""
        self._check(0)
        ids, at, n = _ids(tokens)
        if not 0 <= rows <= n:
            raise ValueError(f"{rows} rows of {n} tokens")
        out, result = _rows(rows, (LOGITS,))
        self._check(_forward(self._session, at, n, out if rows else None, rows))
        return result()

    #@outputs
    def outputs(self, tokens, rows=1):
        """As forward, with all OUTPUTS: a dict of the logits [rows, ..], and of the others, all n rows of each."""
        self._check(0)
        ids, at, n = _ids(tokens)
        if not 0 <= rows <= n:
            raise ValueError(f"{rows} rows of {n} tokens")
        made = {}
        for i, (name, tokens_first, row) in enumerate(OUTPUTS):
            made[name] = _rows(rows if i == 0 else n, row) if tokens_first else _rows(1, row)
        outs = (_pointer * len(made))(*(out for out, _ in made.values()))
        self._check(_forward_outputs(self._session, at, n, outs, rows))
        return {name: result() for name, (_, result) in made.items()}

    #@end
    #@loss
    def loss(self, tokens, targets):
        """Reads tokens as forward does, and gives what each costs: ln(1 / probability of targets[i] after tokens[i]).

        targets: n ids of 0 .. LOGITS - 1, of a text tokens[i + 1]; one below 0 is not counted, and costs 0
        returns: float32 [n], the caller's own; without numpy array.array("f")
        Error as forward's; TOKEN also for a target"""
        self._check(0)
        ids, at, n = _ids(tokens)
        wanted, targets_at, n_targets = _ids(targets)
        if n != n_targets:
            raise ValueError(f"{n} tokens and {n_targets} targets")
        out, result = _rows(n, ())
        self._check(_loss(self._session, at, targets_at, n, out))
        return result()

    #@end
    @staticmethod
    def batch(models, tokens):
        """One token more for each of several sequences on the same weights (another()): tokens[i] for models[i].

        returns: float32 [count, LOGITS], row i as models[i].forward([tokens[i]]) gives it up to rounding
        Error TOKEN, FULL, BUSY, TWICE (a sequence stands twice), MIXED (they are not on the same weights): no sequence has
        changed. The first one lends the call its threads."""
        ids, at, n = _ids(tokens)
        if n != len(models) or not n:
            raise ValueError(f"{len(models)} sequences and {n} tokens")
        for model in models:
            model._check(0)
        sessions = (_pointer * n)(*(model._session for model in models))
        out, result = _rows(n, (LOGITS,))
        models[0]._check(_forward_batch(sessions, at, n, out))
        return result()

    def save(self):
        """All that the sequence holds, as bytes, for restore() of any sequence of this build with these weights."""
        self._check(0)
        size = _save_size(self._session)
        memory = ctypes.create_string_buffer(size)
        self._check(_save(self._session, memory, size))
        return memory.raw

    def restore(self, saved):
        """Goes back to what was saved. Error SAVED (damaged bytes), BUILD (of another model or build), FULL, SIZE."""
        self._check(0)
        self._check(_restore(self._session, bytes(saved), len(saved)))

    def reset(self, length=0):
        """Forgets all tokens but the first `length`. Error LENGTH (there are fewer), REWIND (the model keeps state that can
        only be cleared: reset to 0, or restore)."""
        self._check(0)
        self._check(_session_rewind(self._session, length))

    def set_threads(self, n):
        """Threads of the next calls; at first as many as OpenMP would take (OMP_NUM_THREADS). Results do not depend on it."""
        self._check(0)
        self._check(_set_threads(self._session, n))

    def set_cpu(self, level=None):
        """Chooses a CPU level by name; None: the best that runs here."""
        self._check(0)
        self._check(_set_cpu(self._session, level.encode() if level else None))

    @property
    def cpu(self):
        """The CPU level in use."""
        self._check(0)
        return _cpu(self._session).decode()

    @property
    def machine(self):
        """What the library takes this machine for: the level, why it is no better one, sizes of caches; a dict."""
        self._check(0)
        return json.loads(_machine(self._session).decode())
