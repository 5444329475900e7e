# SPDX-License-Identifier: Apache-2.0
"""Generation: settings of the model file and of the call, and the iterator of text."""
from __future__ import annotations

import codecs
import queue
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ._library import check, ffi, lib
from ._session import Session, Worker
from ._text import Text

# Settings in the names of struct tfmc_constraints.
CONSTRAINTS = {"min_tokens": "min_new_tokens", "min_total": "min_tokens", "max_total": "max_tokens",
               "repetition_penalty": "repetition_penalty", "source_repetition_penalty": "source_repetition_penalty",
               "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
               "no_repeat_ngram": "no_repeat_ngram", "source_no_repeat_ngram": "source_no_repeat_ngram",
               "decay_after": "decay_after", "decay": "decay", "counted": "n_counted", "renormalize": "renormalize"}
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
LIMITS = {"max_tokens": (1, 1 << 40), "min_tokens": (0, 1 << 40), "temperature": (0, 1e6), "top_k": (0, 1 << 40),
          "top_p": (1e-300, 1), "min_p": (0, 1), "seed": (0, (1 << 64) - 1), "beam": (1, 256),
          "length_penalty": (-100, 100), "repetition_penalty": (0, 1e6), "presence_penalty": (-1e6, 1e6),
          "frequency_penalty": (-1e6, 1e6), "no_repeat_ngram": (0, 1 << 40)}


def _ids(keep: list[Any], ids: Sequence[int]) -> dict[str, Any]:
    """A struct tfmc_ids of memory in `keep`."""
    keep.append(ffi.new("int32_t[]", [int(i) for i in ids]))
    return {"items": keep[-1], "n": len(ids)}


@dataclass(frozen=True)
class Settings:
    """The section `generate` of a model, as `tfmc inspect --json` reports it, with what a call changes."""

    values: Mapping[str, Any] = field(default_factory=dict)
    is_sampled: bool = False

    @staticmethod
    def of(report: Mapping[str, Any]) -> Settings:
        section = dict(report.get("generation", {}))
        values = {k: v if isinstance(v, bool) else _parse(k, str(v)) for k, v in section.items()}
        return Settings(values, any(k in values for k in SAMPLING) and values.get("temperature", 1) != 0)

    def updated(self, **given: float | int | None) -> Settings:
        changes = {k: v for k, v in given.items() if v is not None}
        for name, value in changes.items():
            lo, hi = LIMITS[name]
            if isinstance(value, bool) or not isinstance(value, int if isinstance(hi, int) and hi > 1e6 else (int, float)):
                raise TypeError(f"{name}: {value!r} is not a number of its kind")
            if not lo <= value <= hi:
                raise ValueError(f"{name}: {value} is not from {lo} to {hi}")
        values = {k: v for k, v in self.values.items() if not ("beam" in changes and k in SAMPLING)}
        values.update(changes)
        asked = any(k in changes for k in SAMPLING) or ("beam" not in changes and self.is_sampled)
        is_sampled = asked and values.get("temperature", 1) != 0
        if (is_sampled or "temperature" in changes) and "beam" not in changes:
            values["beam"] = 1
        if is_sampled and values.get("beam", 1) > 1:
            raise ValueError(f"beam: a beam of {values['beam']} does not go with sampling")
        # A bound of the call goes before those of the model that count the prompt, too.
        for own, total in (("max_tokens", "max_total"), ("min_tokens", "min_total")):
            if own in changes:
                values.pop(total, None)
        return replace(self, values=values, is_sampled=is_sampled)

    @property
    def beam(self) -> int:
        return int(self.values.get("beam", 1))

    @property
    def max_tokens(self) -> int:
        return int(self.values.get("max_tokens", 0))

    def sampling(self) -> Any:
        """struct tfmc_sample_options; NULL: greedy."""
        if not self.is_sampled:
            return ffi.NULL
        defaults = {"repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0}
        return ffi.new("struct tfmc_sample_options *", {
            "struct_size": ffi.sizeof("struct tfmc_sample_options"), **defaults,
            **{k: self.values[k] for k in SAMPLING if k in self.values}})

    def search(self, constraints: Any) -> Any:
        """struct tfmc_beam_options."""
        early = {"true": lib.TFMC_EARLY_ALWAYS, "false": lib.TFMC_EARLY_JUDGED, "never": lib.TFMC_EARLY_NEVER}
        return ffi.new("struct tfmc_beam_options *", {
            "struct_size": ffi.sizeof("struct tfmc_beam_options"), "beam": self.beam, "constraints": constraints,
            "length_penalty": self.values.get("length_penalty", 1.0), "gnmt": bool(self.values.get("gnmt")),
            "max_new_tokens": self.max_tokens, "early_stopping": early[self.values.get("early_stopping", "true")]})

    def constraints(self, text: Text, stop: Sequence[str], stop_tokens: Sequence[int], suppress: Sequence[int],
                    bad_words: Sequence[str]) -> Constraints:
        for name, texts in (("stop", stop), ("bad_words", bad_words)):
            if isinstance(texts, str) or any(not isinstance(t, str) or not t for t in texts):
                raise ValueError(f"{name}: requires texts that are not empty")
        keep: list[Any] = []
        texts_ = [[ffi.new("char[]", t.encode()) for t in texts] for texts in (stop, bad_words)]
        banned = [_ids(keep, ids) for ids in self.values.get("banned", [])]
        biases = [{"ids": _ids(keep, ids), "by": by} for by, ids in self.values.get("bias", [])]
        arrays = [ffi.new("struct tfmc_ids[]", banned), ffi.new("struct tfmc_bias[]", biases),
                  *(ffi.new("char *[]", t) for t in texts_), *texts_]
        made = ffi.new("struct tfmc_constraints *", {
            "struct_size": ffi.sizeof("struct tfmc_constraints"), "banned": arrays[0], "n_banned": len(banned),
            "biases": arrays[1], "n_biases": len(biases), "stop_texts": arrays[2], "n_stop_texts": len(stop),
            "banned_texts": arrays[3], "n_banned_texts": len(bad_words), "stop": _ids(keep, stop_tokens),
            "suppress": _ids(keep, suppress), "forced_last": _ids(keep, self.values.get("forced_last", [])),
            **{there: self.values[here] for here, there in CONSTRAINTS.items() if here in self.values}})
        if text.has_packed:
            keep.append(text.token_text())  # reading the field back would not keep the callback
            made.token_text = keep[-1]
        return Constraints(made, list(stop), [keep, arrays])


@dataclass(frozen=True)
class Constraints:
    made: Any
    stop: list[str]
    keep: list[Any]  # memory that `made` points to


def _parse(key: str, value: str) -> Any:
    """A setting of the report. Lists are "1,2"; lists of sequences "1,2;3", with a bias before a colon each."""
    def ids(s: str) -> list[int]:
        return [int(i) for i in s.split(",")]

    if key == "banned":
        return [ids(s) for s in value.split(";")]
    if key == "bias":
        return [(float(s.partition(":")[0]), ids(s.partition(":")[2])) for s in value.split(";")]
    if key == "forced_last":
        return ids(value)
    if key in ("early_stopping", "unsupported"):
        return value
    return int(value) if value.lstrip("-").isdigit() else float(value)


class Generation(Iterator[str]):
    """Text as it is generated: iterate over its pieces, or ``str()`` for all of it.

    Attributes: ``tokens``: the ids so far, with the stop id; ``log_p``: log-probability of each (of a beam search only
    their sum); ``finish``: ``length``, ``stop``, ``text`` (a stop string), ``closed``, None before the end.
    """

    def __init__(self, session: Session, text: Text, give: Callable[[Worker], None], settings: Settings,
                 constraints: Constraints, ids: Sequence[int], continues: bool, ignore_stop: bool):
        self.tokens: list[int] = []
        self.log_p: list[float] = []
        self.finish: str | None = None
        self._text, self._give, self._continues, self._constraints = text, give, continues, constraints
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pieces: deque[str] = deque()
        self._all = ""
        self._start(session, settings, ids, ignore_stop)
        self._finalizer = weakref.finalize(self, self._worker.cancel)

    def _start(self, session: Session, settings: Settings, ids: Sequence[int], ignore_stop: bool) -> None:
        cap = settings.max_tokens or max(session.loaded.record.max_len, 0)
        cap = min(cap, session.loaded.record.max_len)
        memory = ffi.new("int32_t[]", cap + 1), ffi.new("uint64_t *"), ffi.new("enum tfmc_finish *")
        log_p, sample, prompt = ffi.new("double[]", cap + 1), settings.sampling(), ffi.new("int32_t[]", list(ids))
        put = self._queue.put
        on_token = ffi.callback("int(void *, int32_t)", lambda _, id_: put(id_) or 0)
        on_text = ffi.callback("int(void *, char *, uint64_t)", lambda _, s, n: put(bytes(ffi.buffer(s, n))) or 0)
        # Text after a stop string is withheld by the library, which looks for them; else the tokenizer decodes.
        text, self._stream = self._text, None
        if text.has_packed and not self._constraints.stop:
            self._stream = Stream(text, self._continues, self._pieces.append)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        options = ffi.new("struct tfmc_generate_options *", {
            "struct_size": ffi.sizeof("struct tfmc_generate_options"), "max_new_tokens": settings.max_tokens,
            "ignore_stop": ignore_stop, "sample": sample, "constraints": self._constraints.made,
            "on_token": on_token, "log_p": log_p, "finish": memory[2]})
        if text.is_any and not self._stream:
            options.on_text = on_text
        kept = (self._constraints, on_token, on_text, sample)
        self._log_p, self._reason = log_p, memory[2]

        def call() -> int:
            _ = kept
            return int(lib.tfmc_generate(session.handle, options, prompt, len(ids), ffi.NULL, 0, memory[0], cap, memory[1]))

        self._worker = Worker(session, call, lambda status: put(_End(status)))

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        try:
            while not self._pieces:
                if self.finish is not None:
                    raise StopIteration
                self._take(self._queue.get())
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise
        self._all += self._pieces[0]
        return self._pieces.popleft()

    def __str__(self) -> str:
        """The whole text; waits for its end."""
        for _ in self:
            pass
        return self._all

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the generation at the next token."""
        if self.finish is None:
            self.finish = "closed"
            self._worker.cancel()
            self._give(self._worker)

    def _take(self, item: Any) -> None:
        if isinstance(item, _End):
            self._end(item.status)
        elif isinstance(item, bytes):
            self._push(self._decoder.decode(item))
        else:
            self.tokens.append(item)
            self.log_p.append(self._log_p[len(self.tokens) - 1])
            if self._stream:
                self._stream.add(item)
            elif not self._text.is_any:
                self._push(f"{' ' * (len(self.tokens) > 1)}{item}")

    def _push(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)

    def _end(self, status: int) -> None:
        self._worker.wait()
        if self._stream:
            self._stream.end()
        self._push(self._decoder.decode(b"", True))
        reasons = {lib.TFMC_FINISH_LENGTH: "length", lib.TFMC_FINISH_STOP: "stop", lib.TFMC_FINISH_TEXT: "text"}
        self.finish = reasons.get(self._reason[0], "closed") if status == 0 else "failed"
        try:
            check(status, "generate", self._worker.session.handle)
        finally:
            self._give(self._worker)


class _End:
    def __init__(self, status: int):
        self.status = status


class Stream:
    """Ids to whole characters (tfmc_token_stream)."""

    def __init__(self, text: Text, continues: bool, push: Callable[[str], None]):
        self._state = ffi.new("struct tfmc_token_stream *")
        def on_text(_: Any, data: Any, n: int) -> int:
            push(bytes(ffi.buffer(data, n)).decode("utf-8", "replace"))
            return 0

        self._on_text = ffi.callback("int(void *, char *, uint64_t)", on_text)
        flags = lib.DETOKENIZE_AFTER if continues else 0
        lib.tfmc_token_stream_begin(self._state, text.target, flags, self._on_text, ffi.NULL)

    def add(self, id_: int) -> None:
        lib.tfmc_token_stream_add(self._state, id_)  # ids beyond the vocabulary of the tokenizer have no text

    def end(self) -> None:
        lib.tfmc_token_stream_end(self._state)


def beam_search(session: Session, text: Text, give: Callable[[Worker], None], settings: Settings,
                constraints: Constraints, ids: Sequence[int], continues: bool, ignore_stop: bool) -> Generation:
    """The best hypothesis of a beam search as a Generation of one piece."""
    if ignore_stop:
        raise ValueError("ignore_stop: does not go with a beam search")
    return _Search(session, text, give, settings, constraints, ids, continues, ignore_stop)


class _Search(Generation):
    def _start(self, session: Session, settings: Settings, ids: Sequence[int], ignore_stop: bool) -> None:
        cap = max(session.loaded.record.max_len, 0) + 1
        self._best, n = ffi.new("struct tfmc_hypothesis *"), ffi.new("uint64_t *")
        self._memory = self._best.tokens = ffi.new("int32_t[]", cap)
        self._best.cap = cap
        options, prompt = settings.search(self._constraints.made), ffi.new("int32_t[]", list(ids))
        best, constraints = self._best, self._constraints

        def call() -> int:
            _ = constraints
            return int(lib.tfmc_beam_search(session.handle, options, prompt, len(ids), ffi.NULL, 0, best, 1, n))

        put = self._queue.put
        self._worker = Worker(session, call, lambda status: put(_End(status)))

    def _end(self, status: int) -> None:
        self._worker.wait()
        self.finish = "stop" if status == 0 else "failed"
        try:
            check(status, "generate", self._worker.session.handle)
        finally:
            self._give(self._worker)
        self.tokens, self.log_p = list(ffi.unpack(self._best.tokens, self._best.n)), [self._best.log_p]
        whole = self._text.decode(self.tokens, self._continues)
        ends = [whole.index(s) for s in self._constraints.stop if s in whole]
        self._push(whole[:min(ends, default=len(whole))])
