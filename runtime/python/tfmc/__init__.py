# SPDX-License-Identifier: Apache-2.0
"""tfmc: Transformer models as machine code.

    >>> import tfmc
    >>> model = tfmc.compile("examples/hub/tales", quantize="int8")
    >>> print(model.generate("Once upon a time", max_tokens=20))
    >>> model.run(input_ids=[[1, 2, 3]])["logits"].shape
    (1, 3, 512)

:func:`compile` runs the compiler on a model file, a hub folder or a GGUF file, :func:`load` reads an object that it has
written; both return a :class:`Model`. What is refused is an :class:`Error` with its place.
"""
from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from ._command import Source
from ._command import run as _run
from ._generate import Generation, Settings
from ._library import Diagnostic, Error
from ._model import Model, Plan, Score
from ._record import Tensor
from ._session import Loaded as _Loaded

__all__ = ["Diagnostic", "Error", "Generation", "Model", "Plan", "Score", "Tensor", "compile", "load"]


def compile(model: str | os.PathLike[str], *, quantize: str | None = None,
            adapters: Sequence[str | os.PathLike[str]] = (), dims: Mapping[str, int] | None = None,
            bounds: Mapping[str, int | tuple[int, int]] | None = None, params: Mapping[str, Any] | None = None,
            dtype: Mapping[str, str] | None = None, context: int | None = None,
            target: str | None = None, cpu: str | None = None, output: str | os.PathLike[str] | None = None,
            threads: int = 0, options: Sequence[str] = ()) -> Model:
    """Compiles a model and loads it.

    model: path of a model file, a hub folder, a GGUF file or an ONNX file; or the text of a model file (a string of
    several lines, whose files are relative to the current folder).
    quantize: format of matrices and tables, such as ``int8``, ``int4``, ``q4_k``.
    adapters: folders of LoRA adapters that are merged into the weights.
    dims: the largest sizes of later calls of :meth:`Model.run`, within the bounds of the model file: its memory is
    reserved for them. By default it grows with the calls.
    bounds: of an ONNX file the sizes that vary, by their names in it: ``{"batch": (1, 4), "seq": 64}``.
    params: parameters of the model file in place of its own. dtype: keys of its section, as ``{"compute": "bf16"}``.
    context: tokens of a sequence at most. target: ``native``, a triple, with ``,opencl`` also for devices;
    cpu: ``native``, a level such as ``x86-64-v3``, a processor. options: further options of ``tfmc compile``.
    output: keep the object here (``model.o``), with its header and weights, for :func:`load`; by default they are in a
    temporary folder until they are loaded.
    threads: workers of a call at most; 0: all processors. Small calls take fewer.

    Raises Error with file, line and column when the model is refused, and when the command is not found; warnings of
    the compiler become Python warnings.
    """
    shared = [f"--set={k}={v}" for k, v in (params or {}).items()]
    shared += [f"--dtype={','.join(f'{k}={v}' for k, v in dtype.items())}"] if dtype else []
    shared += [f"--adapter={os.fspath(folder)}" for folder in adapters]
    shared += [f"--dim={k}={v if isinstance(v, int) else f'{v[0]}..{v[1]}'}" for k, v in (bounds or {}).items()]
    given = {"--quantize": quantize, "--context": context, "-mcpu": cpu}
    shared += [f"{k}={v}" for k, v in given.items() if v is not None]
    source = Source(model, shared, [*([f"--target={target}"] if target else []), *options])
    with tempfile.TemporaryDirectory(prefix="tfmc-") as folder:
        path = os.fspath(output) if output is not None else os.path.join(folder, "model.o")
        source.compile(path, "auto" if output is not None else "file")
        report = source.inspect()
        loaded, tokenizer = _Loaded(path, None), None
        if report.get("tokenizer") == "yes" and not loaded.record.tokenizer:
            tokenizer = os.path.join(folder, "tokenizer")
            source.run(["tokenize", "-o", tokenizer, "-q"])
        return Model(loaded, source=source, settings=Settings.of(report), dims=dims, threads=threads, tokenizer=tokenizer)


def load(path: str | os.PathLike[str], *, weights: str | os.PathLike[str] | None = None,
         dims: Mapping[str, int] | None = None, context: int = 0, threads: int = 0) -> Model:
    """Loads an object that the compiler has written. The code of the object runs: load what you trust.

    weights: its weights, when they are not in it; None: the file beside it whose name ends in ``.weights``.
    context: tokens of a sequence at most; 0: as many as the object allows. dims, threads: as for :func:`compile`.
    Sampling, penalties and lengths of the model file are not in an object: :meth:`Model.generate` is greedy.

    Raises Error: the file cannot be read, or is for another processor; its weights are missing or of another object.
    """
    return Model(_Loaded(os.fspath(path), None if weights is None else os.fspath(weights)), dims=dims, context=context,
                 threads=threads)


def version() -> str:
    """Version of the compiler."""
    return _run(["--version"]).strip()
