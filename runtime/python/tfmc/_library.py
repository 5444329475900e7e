# SPDX-License-Identifier: Apache-2.0
"""The shared library behind the package, by cffi in ABI mode (every call releases the interpreter lock), and the status
codes of its functions as exceptions."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from . import _abi

ffi: Any = _abi.ffi
lib: Any = ffi.dlopen(os.environ.get("TFMC_LIBRARY") or str(Path(__file__).with_name("libtfmc_python.so")))


class Diagnostic(NamedTuple):
    """One message of the compiler.

    severity: ``error``, ``warning`` or ``note``. code: such as ``E108`` (``tfmc explain E108`` says more), or None.
    file, line, column: the place, from 1; None where the message has none. notes: further lines.
    """

    severity: str
    code: str | None
    message: str
    file: str | None
    line: int | None
    column: int | None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = ":".join(str(p) for p in (self.file, self.line, self.column) if p is not None)
        code = f" [{self.code}]" if self.code else ""
        lines = [f"{place}: " * bool(place) + f"{self.severity}: {self.message}{code}"]
        return "\n".join(lines + [f"  note: {n}" for n in self.notes])


class Error(Exception):
    """The model, a file or the device was refused.

    Attributes: ``message``, ``code``, ``file``, ``line`` and ``column`` of the first error (None where there is none),
    ``diagnostics``: all of them, ``status``: the code of the runtime library, or the exit code of the command.
    Wrong arguments of Python calls are ``TypeError`` and ``ValueError``, which name the argument.
    """

    def __init__(self, text: str, status: int, diagnostics: tuple[Diagnostic, ...] = ()):
        super().__init__(text)
        errors = [d for d in diagnostics if d.severity == "error"]
        first = errors[0] if errors else Diagnostic("error", None, text, None, None, None)
        self.message, self.code = first.message, first.code
        self.file, self.line, self.column = first.file, first.line, first.column
        self.diagnostics, self.status = diagnostics, status


def text(pointer: Any) -> str:
    return str(ffi.string(pointer).decode("utf-8", "replace"))


def check(status: int, what: str, session: Any = ffi.NULL) -> None:
    """Raises Error for a status other than 0. session: the one that returned it, which knows the details."""
    if status != 0:
        tokenizer = status >= lib.TFMC_TOKENIZER_E_NULL
        why = lib.tfmc_tokenizer_status_text(status) if tokenizer else lib.tfmc_session_status_text(session, status)
        raise Error(f"{what}: {text(why)}", status)
