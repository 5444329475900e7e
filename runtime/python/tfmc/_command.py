# SPDX-License-Identifier: Apache-2.0
"""Runs the command `tfmc`: a model file, a hub folder or a GGUF file becomes an object."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._library import Diagnostic, Error

ENTRIES = "--entries=run,encode,prefill,step,score"


def command() -> str:
    """Path of the command: TFMC of the environment, the one beside this file (in a wheel), or the one in PATH."""
    beside = Path(__file__).with_name("tfmc")
    found = os.environ.get("TFMC") or (str(beside) if beside.exists() else shutil.which("tfmc"))
    if not found:
        raise Error("the command tfmc is neither in the package nor in PATH; TFMC=/path/to/tfmc names it", 3)
    return found


def _diagnostics(lines: str, names: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Messages of --diagnostics=json, one object a line. names: what to write in place of temporary files."""
    def shown(s: str) -> str:
        for path, name in names.items():
            s = s.replace(path, name)
        return s

    found = []
    for line in lines.splitlines():
        if line.startswith("{"):
            d = json.loads(line)
            notes = tuple(shown(n["message"] if isinstance(n, dict) else str(n)) for n in d["notes"])
            found.append(Diagnostic(d["severity"], d["code"], shown(d["message"]), d["file"] and shown(d["file"]),
                                    d["line"], d["column"], notes))
    return tuple(found)


def run(words: Sequence[str], names: Mapping[str, str] | None = None) -> str:
    """Standard output of the command. Warnings become Python warnings, a failure an Error with its place."""
    done = subprocess.run([command(), *words, "--diagnostics=json", "--progress=never"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    found = _diagnostics(done.stderr, names or {})
    if done.returncode != 0:
        text = "\n".join(str(d) for d in found) or done.stderr.strip() or f"tfmc ended with {done.returncode}"
        raise Error(text, done.returncode, found)
    for d in found:
        if d.severity == "warning":
            warnings.warn(str(d), stacklevel=4)
    return done.stdout


class Source:
    """A model and the options that it is compiled with."""

    def __init__(self, model: str | os.PathLike[str], shared: Sequence[str], own: Sequence[str]):
        """model: a path, or the text of a model file (a string with a newline), whose files are relative to the
        current folder. shared: options of every command; own: of compiling alone."""
        self.text = model if isinstance(model, str) and "\n" in model else None
        self.path = "" if self.text is not None else os.path.abspath(model)
        self.shared, self.own = list(shared), list(own)
        self.folder = os.getcwd()

    @contextlib.contextmanager
    def _file(self) -> Iterator[tuple[str, dict[str, str]]]:
        if self.text is None:
            yield self.path, {}
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self.folder, prefix=".tfmc-", suffix=".yaml") as f:
            f.write(self.text)
            f.flush()
            yield f.name, {f.name: "<yaml>"}

    def run(self, words: Sequence[str]) -> str:
        with self._file() as (path, names):
            return run([*words[:1], path, *words[1:], *self.shared], names)

    def compile(self, output: str, weights: str) -> None:
        """With the entry `score`, which the command takes for log-probabilities, too."""
        self.run(["compile", "-o", output, f"--weights={weights}", ENTRIES, *self.own, "-q"])

    def inspect(self) -> dict[str, Any]:
        """The report of `tfmc inspect --json`. Options that change sizes are none of its own: it is read for how the
        model generates."""
        with self._file() as (path, names), warnings.catch_warnings():
            warnings.simplefilter("ignore") # compiling has given them
            words = [w for w in self.shared if w.startswith("--ignore-key")]
            return dict(json.loads(run(["inspect", path, "--json", *words], names)))
