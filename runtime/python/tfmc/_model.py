# SPDX-License-Identifier: Apache-2.0
"""A model in this process."""
from __future__ import annotations

import operator
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._command import Source
from ._generate import Generation, Settings, beam_search
from ._library import Error, check, ffi, lib
from ._record import Entry, Tensor, ids_at, read_text
from ._session import CALL_TOKENS, Loaded, Session, Worker
from ._text import Text

Ids = Sequence[int] | NDArray[Any]
_buffer, _empty, _prepared_call = ffi.from_buffer, np.empty, lib.tfmc_prepared_call
CALLS_MAX = 64  # prepared calls that a session keeps, one for each combination of shapes


@dataclass(frozen=True)
class Plan:
    """What a model takes, in bytes, at some sizes. ``arena`` is enough for every entry and all its workers; the state
    takes memory as tokens come. ``flops``: operations of the matrix products of one call of each entry."""

    dims: Mapping[str, int]
    weights: int
    state_fixed: int
    state_for_each_sequence: int
    arena: int
    flops: Mapping[str, int]


@dataclass(frozen=True)
class Score:
    """Log-probabilities. ``log_p[i]``: of ``tokens[i]`` after all before it, f64."""

    tokens: NDArray[np.int32]
    log_p: NDArray[np.float64]
    counted: int

    @property
    def total(self) -> float:
        return float(np.add.accumulate(self.log_p)[-1]) if len(self.log_p) else 0.0

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.total / self.counted)) if self.counted else 1.0


_layout = operator.attrgetter("shape", "dtype")


class _Call:
    """A call of an entry for inputs of known shapes, with the memory of its arguments. It belongs to one session."""

    def __init__(self, session: Session, entry: Entry, dims: Sequence[int], named: Mapping[str, NDArray[Any]],
                 wanted: tuple[str, ...] | None):
        names, sizes = [t.name for t in entry.inputs], list(dims)
        inputs = ffi.new("struct tfmc_buffer[]", len(names) or 1)
        outputs = ffi.new("struct tfmc_buffer[]", len(entry.outputs) or 1)
        self.session, self.name = session.handle, entry.name
        self.slots = [inputs + names.index(n) for n in named]
        self.made: list[tuple[str, tuple[int, ...], np.dtype[Any], Any]] = []
        for slot, a in zip(self.slots, named.values()):
            slot.count = a.size
        for i, t in enumerate(entry.outputs):
            shape = tuple(s.at(list(sizes)) or 0 for s in t.sizes)
            outputs[i].count = int(np.prod(shape))
            if wanted is None or t.name in wanted:
                self.made.append((t.name, shape, t.dtype, outputs + i))
        self.keep = inputs, outputs, ffi.new("int64_t[]", sizes or [0])
        self.prepared = ffi.new("struct tfmc_prepared_call *", [session.handle, entry.number, self.keep[2], inputs, outputs])

    def __call__(self, named: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        found = {}
        try:
            for slot, a in zip(self.slots, named.values()):
                slot.data = _buffer(a)
        except (ValueError, BufferError):  # another layout
            named = {name: np.ascontiguousarray(a) for name, a in named.items()}
            for slot, a in zip(self.slots, named.values()):
                slot.data = _buffer(a)
        for name, shape, dtype, slot in self.made:
            found[name] = made = _empty(shape, dtype)
            slot.data = _buffer(made)
        status = _prepared_call(self.prepared)
        if status:
            check(status, self.name, self.session)
        return found


class Model:
    """A compiled model: :func:`tfmc.compile` or :func:`tfmc.load` makes it.

    Any number of threads may call it at the same time; each call in flight has a session of its own, and the
    interpreter lock is released while the model runs. ``with model:`` or :meth:`close` frees its memory early.

    Attributes: ``name``; ``dims``: bounds of each dim, inclusive; ``inputs`` and ``outputs`` of :meth:`run`: name to
    :class:`tfmc.Tensor`; ``entries``: names of the functions of the object.
    """

    def __init__(self, loaded: Loaded, *, source: Source | None = None, settings: Settings | None = None,
                 dims: Mapping[str, int] | None = None, context: int = 0, threads: int = 0,
                 tokenizer: str | None = None):
        record = loaded.record
        self._loaded, self._source = loaded, source
        self._settings = settings or Settings()
        self._context, self._threads = context, threads or len(os.sched_getaffinity(0))
        self.name = read_text(record, record.name)
        self.dims: Mapping[str, tuple[int, int]] = dict(loaded.dims)
        self._most = [hi for _, hi in self.dims.values()]
        self._is_sized = bool(dims)
        for name, size in (dims or {}).items():
            self._bound(name, size)
        self.entries = tuple(loaded.entries)
        self._run: Entry | None = loaded.entries.get("run")
        self.inputs: Mapping[str, Tensor] = {t.name: t for t in self._run.inputs} if self._run else {}
        self.outputs: Mapping[str, Tensor] = {t.name: t for t in self._run.outputs} if self._run else {}
        self._text = Text(record, tokenizer)
        self._idle: list[Session] = []          # of `run`
        self._idle_texts: list[Session] = []    # of generation and scores
        self.generates = {0: None, 1: "causal", 2: "seq2seq"}[record.generate_kind]

    def __repr__(self) -> str:
        given = ", ".join(str(t) for t in self.inputs.values())
        return f"<tfmc.Model {self.name}: {given} -> {', '.join(str(t) for t in self.outputs.values())}>"

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the sessions that no call uses. A later call opens another."""
        for idle in (self._idle, self._idle_texts):
            while idle:
                idle.pop().close()

    # ---- run ----

    def run(self, arrays: Mapping[str, Any] | None = None, outputs: Iterable[str] | None = None, /,
            **named: Any) -> dict[str, NDArray[Any]]:
        """Calls the entry ``run``: inputs by name to outputs by name.

        An input is a NumPy array, anything with DLPack in memory of the processor (``torch.Tensor``, ``jax.Array``), or
        nested lists; C-contiguous arrays of the input's type are read in place, others are copied. Optional inputs may
        be left out or None. Outputs are new arrays, which the model writes itself. ``outputs``: the names of those that
        are wanted; all by default. The sizes of the dims follow from the shapes.

            >>> model.run(ids=np.zeros((1, 5), np.int32))["logits"].shape
            (1, 5, 512)

        Raises TypeError for an unknown or missing input or another element type, ValueError for a shape that does not
        fit (both name the argument), Error for what the model itself refuses, such as an id outside of the vocabulary.
        Ctrl-C takes effect when the call has ended.
        """
        if arrays:
            named = {**arrays, **named}
        session: Session | None = None
        try:
            session = self._idle.pop()
            call: _Call = session.calls[(outputs, *named, *map(_layout, named.values()))]
        except (IndexError, KeyError, AttributeError, TypeError):
            session, call, named = self._prepare(session, named, None if outputs is None else tuple(outputs))
        try:
            return call(named)
        finally:
            self._idle.append(session)

    def _bound(self, name: str, size: int) -> None:
        if name not in self.dims:
            raise ValueError(f"dims: there is no dim {name!r}; known: {', '.join(self.dims)}")
        lo, hi = self.dims[name]
        if not lo <= size <= hi:
            raise ValueError(f"dims: {name} is {size}, the model takes {lo} to {hi}")
        self._most[list(self.dims).index(name)] = size

    def _convert(self, named: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Inputs that are no NumPy arrays become some; None is left out."""
        found = {}
        for name, value in named.items():
            tensor = self.inputs.get(name)
            if isinstance(value, np.ndarray):
                found[name] = value
            elif hasattr(value, "__dlpack__"):
                try:
                    found[name] = np.from_dlpack(value)
                except (BufferError, RuntimeError, TypeError) as e:
                    raise TypeError(f"{name}: {e}") from e
            elif value is not None and tensor is not None:
                array = np.asarray(value)
                if not np.can_cast(array.dtype, tensor.dtype, "same_kind"):
                    raise TypeError(f"{name}: {array.dtype} values, the model reads {tensor.dtype}")
                found[name] = array.astype(tensor.dtype)
                if array.dtype.kind in "iu" and not np.array_equal(found[name], array):
                    raise ValueError(f"{name}: a value is outside of {tensor.dtype}")
            elif value is not None:
                found[name] = np.asarray(value)
        return found

    def _prepare(self, session: Session | None, given: Mapping[str, Any],
                 outputs: tuple[str, ...] | None) -> tuple[Session, _Call, dict[str, NDArray[Any]]]:
        """A call for new shapes; in place of a session that is too small another one is opened."""
        try:
            named = self._convert(given)
            dims, entry = self._solve(named, outputs or ())
        except BaseException:
            if session is not None:
                self._idle.append(session)
            raise
        if session is None or any(d > most for d, most in zip(dims, session.dims)):
            session = self._open([max(d) for d in zip(dims, session.dims)] if session else dims)
        key = (outputs, *named, *map(_layout, named.values()))
        if len(session.calls) >= CALLS_MAX:
            session.calls.clear()
        if key not in session.calls:
            session.calls[key] = _Call(session, entry, dims, named, outputs)
        return session, session.calls[key], named

    def _open(self, dims: Sequence[int]) -> Session:
        """A session for calls of these sizes: without sizes of the caller, each up to the next power of two, so that
        growing inputs open few sessions."""
        most = [m if self._is_sized else min(m, 1 << (d - 1).bit_length()) for d, m in zip(dims, self._most)]
        at = self._loaded.batch_dim
        return Session(self._loaded, most, most[at] if at >= 0 else 0, 0, 0, self._threads)

    def _solve(self, named: Mapping[str, NDArray[Any]], wanted: Sequence[str]) -> tuple[list[int], Entry]:
        """Values of all dims from the shapes of the inputs; those that `run` does not have are their least."""
        if self._run is None:
            raise Error(f"{self.name}: the object has no entry run", lib.TFMC_RT_E_ENTRY)
        for name in wanted:
            if name not in self.outputs:
                raise ValueError(f"outputs: there is no output {name!r}; known: {', '.join(self.outputs)}")
        for name, a in named.items():
            self._check_type(name, a)
        for t in self.inputs.values():
            if t.name not in named and not t.optional:
                raise TypeError(f"{t.name}: the input {t} is missing")
        dims: list[int | None] = [None] * len(self.dims)
        axes = [(n, i, s, a.shape[i]) for n, a in named.items() for i, s in enumerate(self.inputs[n].sizes)]
        for _ in dims:
            for _, _, size, n in axes:
                size.solve(n, dims)
        for name, i, size, n in axes:
            if size.at(dims) != n:
                known = size.at(dims)
                why = f"is {n}, not {size.name}" + (f" = {known}" if known is not None and size.name != str(known) else "")
                raise ValueError(f"{name}: axis {i} {why} (shape {named[name].shape}, the model reads {self.inputs[name]})")
        solved = []
        for d, (name, (lo, hi)), most in zip(dims, self.dims.items(), self._most):
            value = lo if d is None else d
            if not lo <= value <= most:
                where = next((f"{n}: axis {i}" for n, i, s, _ in axes if name in s.name), "dims")
                raise ValueError(f"{where}: {name} is {value}, the model takes {lo} to {most}")
            solved.append(value)
        return solved, self._run

    def _check_type(self, name: str, a: NDArray[Any]) -> None:
        t = self.inputs.get(name)
        if t is None:
            raise TypeError(f"{name}: there is no such input; known: {', '.join(self.inputs)}")
        if a.dtype != t.dtype:
            raise TypeError(f"{name}: the array is {a.dtype}, the model reads {t}: astype({str(t.dtype)!r})")
        if a.ndim != len(t.sizes):
            raise ValueError(f"{name}: the array has {a.ndim} axes, the model reads {t}")

    # ---- text ----

    def tokenize(self, prompt: str, *, special: bool = True) -> list[int]:
        """Ids of a text, by the source's tokenizer. special: with the ids around a text ([CLS] .. [SEP], <s>), as a
        prompt is read. Raises Error without a tokenizer, or for characters outside of the vocabulary."""
        return self._text.encode(prompt, special)

    def detokenize(self, ids: Ids) -> str:
        """Text of ids, without control tokens."""
        return self._text.decode([int(i) for i in ids], False)

    def _take(self, batch: int) -> Session:
        for i, session in enumerate(self._idle_texts):
            if session.batch == batch:
                return self._idle_texts.pop(i)
        at, dims = self._loaded.batch_dim, list(self._most)
        if at >= 0:
            if batch > dims[at]:
                raise ValueError(f"beam: {batch}, the model computes at most {dims[at]} sequences at once")
            dims[at] = batch
        chunk = CALL_TOKENS if self._loaded.record.generate_kind == 1 else 0
        return Session(self._loaded, dims, batch, chunk, self._context, self._threads)

    def _give(self, worker: Worker) -> None:
        if not worker.is_cancelled:
            self._idle_texts.append(worker.session)

    def _need_generation(self) -> None:
        if self.generates is None:
            raise Error(f"{self.name}: the model has no generate section", lib.TFMC_RT_E_GENERATE)

    def _prompt(self, prompt: str | Ids) -> tuple[list[int], bool]:
        """Ids of a prompt with what goes before it, and whether new text continues it."""
        record, is_causal = self._loaded.record, self.generates == "causal"
        if not isinstance(prompt, str):
            ids = [int(i) for i in prompt]
            return ids, is_causal and any(not self._text.is_special(i) for i in ids)
        starts = ids_at(record, record.start, record.n_start) if is_causal and self._text.is_bare(prompt) else []
        return starts + (self.tokenize(prompt) if prompt else []), is_causal and bool(prompt)

    def generate(self, prompt: str | Ids = "", *, max_tokens: int | None = None, temperature: float | None = None,
                 top_k: int | None = None, top_p: float | None = None, min_p: float | None = None,
                 seed: int | None = None, beam: int | None = None, length_penalty: float | None = None,
                 min_tokens: int | None = None, stop: str | Sequence[str] = (), stop_tokens: Ids = (),
                 suppress: Ids = (), bad_words: Sequence[str] = (), repetition_penalty: float | None = None,
                 presence_penalty: float | None = None, frequency_penalty: float | None = None,
                 no_repeat_ngram: int | None = None, ignore_stop: bool = False) -> Generation:
        """What follows a prompt, or the target of a source: an iterator of text, piece by piece as tokens come.

            >>> for piece in model.generate("Once upon a time", max_tokens=20):
            ...     print(piece, end="", flush=True)
            >>> text = str(model.generate("Once"))  # all of it

        prompt: a text, or ids (int32 values). Arguments are those of ``tfmc generate``; None leaves the setting of the
        model file. Without temperature, top_k, top_p, min_p and seed, of the file too, decoding is greedy; equal seeds
        give equal text. beam: width of a beam search, whose text comes in one piece at the end. Without a tokenizer the
        text is the ids. The model computes ahead of the iterator in a thread; ``close()``, Ctrl-C and dropping the
        iterator end it at the next token.

        Raises Error: the model does not generate, or the prompt is empty, too long or has an unknown id (when the first
        piece is asked for). ValueError and TypeError: an argument.
        """
        self._need_generation()
        if "unsupported" in self._settings.values:
            raise Error(f"not supported yet: generation with {self._settings.values['unsupported']!r}",
                        lib.TFMC_RT_E_GENERATE)
        settings = self._settings.updated(
            max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, beam=beam,
            length_penalty=length_penalty, min_tokens=min_tokens, repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty, frequency_penalty=frequency_penalty, no_repeat_ngram=no_repeat_ngram)
        if max_tokens is None and ignore_stop:
            raise ValueError("ignore_stop: needs max_tokens")
        ids, continues = self._prompt(prompt)
        constraints = settings.constraints(self._text, [stop] if isinstance(stop, str) else stop, _list(stop_tokens),
                                           _list(suppress), bad_words)
        session = self._take(settings.beam)
        start = beam_search if settings.beam > 1 else Generation
        return start(session, self._text, self._give, settings, constraints, ids, continues, ignore_stop)

    def score(self, prompt: str | Ids, target: str | Ids | None = None) -> Score:
        """Log-probabilities of a text (or ids), given the model's start ids; with ``target`` those of the target of a
        sequence-to-sequence model, given the source ``prompt``. A text is followed by a stop id, as in ``tfmc score``.
        Raises Error as :meth:`generate` does, TypeError when a target is missing or not expected."""
        self._need_generation()
        record = self._loaded.record
        if (target is None) == (self.generates == "seq2seq"):
            raise TypeError("target: needed" if target is None else "target: the model has no source")
        source: list[int] = []
        scored: str | Ids = prompt
        if target is not None:
            source = self.tokenize(prompt) if isinstance(prompt, str) else [int(i) for i in prompt]
            scored = target
        if isinstance(scored, str):
            ids = self._text.encode(scored, False, is_target=target is not None)
            ids += ids_at(record, record.stop, min(record.n_stop, 1))
        else:
            ids = [int(i) for i in scored]
        log_p, session = np.zeros(len(ids)), self._take(1)
        out = ffi.cast("double *", ffi.from_buffer(log_p))
        own, given = ffi.new("int32_t[]", ids), ffi.new("int32_t[]", source)
        worker = Worker(session, lambda: lib.tfmc_score(session.handle, given, len(source), own, len(ids), out))
        check(worker.wait(), "score", session.handle)
        self._give(worker)
        return Score(np.array(ids, np.int32), log_p, len(ids) - (record.n_start == 0 and len(ids) > 0))

    def embed(self, texts: str | Sequence[str] | Sequence[Ids], output: str | None = None) -> NDArray[Any]:
        """Vectors of texts, or of lists of ids: [texts, E]. They are computed in batches, with lengths.

        output: the output of :meth:`run` that has them, of shape [B, E]; None: the only one of that shape.
        Raises TypeError when there is no such output, or none of ids as input; Error as :meth:`run` does.
        """
        of = [t for t in self.outputs.values() if len(t.shape) == 2 and t.dtype.kind == "f" and output in (None, t.name)]
        inputs = [t for t in self.inputs.values() if t.limit and len(t.shape) == 2]
        if len(of) != 1 or not inputs:
            named = ", ".join(str(t) for t in self.outputs.values())
            raise TypeError(f"output: {'name one' if of else 'there is none'} of shape [B, E]; the model has {named}")
        rows = [self._ids(t) for t in ([texts] if isinstance(texts, str) else texts)]
        lengths, step = inputs[0].lengths, self._most[self._loaded.batch_dim]
        found = [np.empty((0, 0), of[0].dtype)]
        while rows:
            n = step if lengths else next((i for i, r in enumerate(rows[:step]) if len(r) != len(rows[0])), len(rows[:step]))
            batch, rows = rows[:n], rows[n:]
            ids = np.zeros((len(batch), max(map(len, batch))), inputs[0].dtype)
            for row, r in zip(ids, batch):
                row[:len(r)] = r
            given: dict[str, Any] = {inputs[0].name: ids}
            if lengths:
                given[lengths] = np.array([len(r) for r in batch], self.inputs[lengths].dtype)
            found.append(self.run(given, [of[0].name])[of[0].name])
        return np.concatenate(found[1:] or found)

    def _ids(self, given: str | Ids) -> list[int]:
        return self.tokenize(given) if isinstance(given, str) else [int(i) for i in given]

    # ---- what the model does ----

    def attention(self, prompt: str | Ids, target: str | Ids | None = None, *, max_tokens: int | None = None,
                  attentions: str | None = None, layers: Sequence[int] | None = None,
                  heads: Sequence[int] | None = None) -> dict[str, NDArray[np.float32]]:
        """Probabilities of every attention for given tokens: layer path to f32 [heads, queries, keys].

        target: what a decoder reads (by default what it writes greedily); max_tokens: as many new tokens after the
        prompt of a causal model. attentions: ``encoder``, ``decoder``, ``cross``, ``self``; layers, heads: only these.
        The command compiles the model for it, so that a loaded object does not have it: Error.
        """
        if self._source is None:
            raise Error("attention: the model comes from an object, not from tfmc.compile", 2)
        words = ["attend", *_as_option("prompt", "tokens", prompt)]
        words += [] if target is None else _as_option("target-text", "target-tokens", target)
        lists = {"max-tokens": max_tokens, "attentions": attentions, "layers": layers and ",".join(map(str, layers)),
                 "heads": heads and ",".join(map(str, heads))}
        words += [f"--{k}={v}" for k, v in lists.items() if v is not None]
        with tempfile.TemporaryDirectory(prefix="tfmc-") as folder:
            self._source.run([*words, f"--npy={folder}"])
            return {p.stem: np.load(p) for p in sorted(Path(folder).glob("*.npy"))}

    def plan(self, **dims: int) -> Plan:
        """Memory and work at these sizes of the dims; those that are not named are at their largest. Raises ValueError
        for an unknown dim or a size outside of its bounds."""
        record, names = self._loaded.record, list(self.dims)
        sizes = dict(zip(names, (hi for _, hi in self.dims.values())))
        for name, size in dims.items():
            if name not in sizes or not self.dims[name][0] <= size <= self.dims[name][1]:
                raise ValueError(f"{name}: {size} is not a size of a dim; dims: {dict(self.dims)}")
            sizes[name] = size
        values = list(sizes.values())
        flops = {name: e.flops.at(list(values)) or 0 for name, e in self._loaded.entries.items()}
        return Plan(sizes, record.weights_bytes, record.state_fixed_bytes, record.state_batch_bytes,
                    self._loaded.model.arena_size(values or [0], self._threads), flops)


def _list(ids: Ids) -> list[int]:
    return [int(i) for i in ids]


def _as_option(as_text: str, as_ids: str, given: str | Ids) -> list[str]:
    return [f"--{as_text}={given}" if isinstance(given, str) else f"--{as_ids}={','.join(str(int(i)) for i in given)}"]
