# SPDX-License-Identifier: Apache-2.0
"""A loaded object, its weights, and sessions of the runtime library. A session is used by one thread at a time: callers
take one from the idle ones, or open another, and give it back."""
from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._library import Error, check, ffi, lib, text
from ._record import dims_of, entries_of

CALL_TOKENS = 4096  # of a prompt in one call; longer ones are read in several, with the same bits
MESSAGE_BYTES = 256


class Loaded:
    """An object and its weights in this process. Sessions keep it; the last one to go frees it."""

    def __init__(self, path: str, weights: str | None):
        """weights: the file of the weights; None: NAME.weights beside the object, if they are not in it."""
        self.model, out = ffi.new("struct tfmc_model *"), ffi.new("struct tfmc_object **")
        check(lib.tfmc_object_open(os.fsencode(path), self.model, out), path)
        weakref.finalize(self, lib.tfmc_object_close, out[0])
        self.record = self.model.record
        self.mapping = ffi.NULL
        if self.record.weights_bytes and not self.record.weights_embedded:
            file = weights or str(Path(path).with_suffix(".weights"))
            self.mapping = ffi.new("struct tfmc_mapping *")
            check(lib.tfmc_weights_map(os.fsencode(file), self.record, 0, self.mapping), file)
            weakref.finalize(self, lib.tfmc_weights_unmap, self.mapping)
        self.dims = dims_of(self.record)
        self.entries = entries_of(self.record)
        # The batch dim, as the runtime takes it: the first one of the first entry.
        first = next(iter(self.entries.values())).dims
        self.batch_dim = first[0] if first else -1


class Session:
    """struct tfmc_session. calls: prepared calls of `run` (_model.py)."""

    def __init__(self, loaded: Loaded, dims: Sequence[int], batch: int, call_tokens: int, context: int, threads: int):
        message = ffi.new("char[]", MESSAGE_BYTES)
        self.loaded, self.dims, self.batch = loaded, tuple(dims), batch
        self.calls: dict[Any, Any] = {}
        bounds = ffi.new("int64_t[]", list(dims) or [0])
        options = ffi.new("struct tfmc_session_options *", {
            "struct_size": ffi.sizeof("struct tfmc_session_options"), "batch": batch, "workers": threads,
            "dims_max": bounds, "weights": loaded.mapping, "call_tokens": call_tokens, "context": context,
            "message": message, "message_bytes": MESSAGE_BYTES})
        if call_tokens:
            self._shrink_calls(options)
        out = ffi.new("struct tfmc_session **")
        status = lib.tfmc_session_open(loaded.model, options, out)
        if status != 0 and text(message):
            raise Error(f"cannot open a session: {text(message)}", status)
        check(status, "cannot open a session")
        self.handle = out[0]
        self.close = weakref.finalize(self, _close, self.handle, loaded)

    def _shrink_calls(self, options: Any) -> None:
        """Where attention scores are materialized, a token takes memory in proportion to the context."""
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
        while options.call_tokens > 1 and lib.tfmc_session_arena_bytes(self.loaded.model, options) > limit:
            options.call_tokens //= 2


def _close(handle: Any, loaded: Loaded) -> None:
    """loaded: what the session needs until it is closed."""
    lib.tfmc_session_close(handle)


class Worker:
    """A call of the runtime in a thread of its own, so that the calling thread can be interrupted. A cancelled session
    is not used again: the cancellation may have come too late for this call, and would end the next one."""

    def __init__(self, session: Session, call: Callable[[], Any], done: Callable[[int], None] | None = None):
        self.session, self.is_cancelled, self._status = session, False, 0
        self._call, self._done = call, done
        # An event and not Thread.join: until Python 3.13 a join that is interrupted takes the thread for ended.
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="tfmc", daemon=True).start()

    def _run(self) -> None:
        self._status = self._call()
        self._ended.set()
        if self._done:
            self._done(self._status)

    def cancel(self) -> None:
        """Ends the call before its next call of the model, and waits for that."""
        if not self._ended.is_set():
            self.is_cancelled = True
            lib.tfmc_session_cancel(self.session.handle)
        self._ended.wait()

    def wait(self) -> int:
        """The status of the call. An exception in the waiting thread (KeyboardInterrupt) cancels it."""
        try:
            self._ended.wait()
        except BaseException:
            self.cancel()
            raise
        return self._status
