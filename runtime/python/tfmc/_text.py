# SPDX-License-Identifier: Apache-2.0
"""Text and ids: the packed tokenizer of an object, or its vocabulary of one token per code point."""
from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from ._library import Error, check, ffi, lib

TOKEN_BYTES = 1024  # text of one token for stop strings, which do not look beyond


def sized(call: Callable[[Any, int, Any], Any], type_: str, what: str) -> Any:
    """The array of type_ that call(out, cap, n) writes, which is asked for its size first."""
    n = ffi.new("uint64_t *")
    status = call(ffi.NULL, 0, n)
    if status not in (0, lib.TFMC_RT_E_SIZE):
        check(status, what)
    out = ffi.new(type_, n[0] + 1)
    check(call(out, n[0] + 1, n), what)
    return ffi.unpack(out, n[0])


class Text:
    def __init__(self, record: Any, tokenizer: str | None):
        """tokenizer: the file of a packed tokenizer; None: that of the object, if it has one."""
        self.record, self.source, self.target = record, ffi.NULL, ffi.NULL
        size = ffi.new("uint64_t *")
        data = lib.tfmc_record_tokenizer(record, size)
        if tokenizer is not None:
            with open(tokenizer, "rb") as f:
                content = f.read()
            data = self._own = ffi.new("uint64_t[]", (len(content) + 7) // 8)
            size[0] = len(content)
            ffi.memmove(data, content, len(content))
        if data != ffi.NULL:
            self.source = self._open(lib.tfmc_tokenizer_open, data, size[0])
            self.target = self._open(lib.tfmc_tokenizer_open_target, data, size[0])
        self.has_packed = data != ffi.NULL
        self.is_any = self.has_packed or record.vocabulary > 0

    def _open(self, open_: Any, data: Any, size: int) -> Any:
        out = ffi.new("struct tfmc_tokenizer **")
        check(open_(data, size, out), "tokenizer")
        weakref.finalize(self, lib.tfmc_tokenizer_close, out[0])
        return out[0]

    def is_bare(self, text: str) -> bool:
        """Whether the model's start ids go before this prompt: else the tokenizer writes them."""
        return not text or not self.has_packed or bool(lib.tfmc_tokenizer_is_bare(self.source))

    def is_special(self, id_: int) -> bool:
        return not self.has_packed or bool(lib.tfmc_tokenizer_is_special(self.source, id_))

    def encode(self, text: str, special: bool, is_target: bool = False) -> list[int]:
        data = text.encode("utf-8", "surrogateescape")
        if self.has_packed:
            tokenizer, flags = self.target if is_target else self.source, lib.TOKENIZE_SPECIAL if special else 0
            return list(sized(lambda out, cap, n: lib.tfmc_tokenizer_encode(tokenizer, data, len(data), flags, out, cap, n),
                              "int32_t[]", "tokenizer"))
        if not self.is_any:
            raise Error("the object has no tokenizer: `tokenizer: {embed: true, ..}` in the model file",
                        lib.TFMC_RT_E_TEXT)
        encode = lib.tfmc_text_encode_target if is_target else lib.tfmc_text_encode
        return list(sized(lambda out, cap, n: encode(self.record, data, out, cap, n), "int32_t[]", f"text {text!r}"))

    def decode(self, ids: list[int], continues: bool) -> str:
        """continues: the text follows another, so that a blank at its beginning stays."""
        given, flags = ffi.new("int32_t[]", ids), lib.DETOKENIZE_AFTER if continues else 0
        if self.has_packed:
            data = sized(lambda out, cap, n: lib.tfmc_tokenizer_decode(self.target, given, len(ids), flags, out, cap, n),
                         "char[]", "tokenizer")
        elif self.is_any:
            data = sized(lambda out, cap, n: lib.tfmc_text_decode(self.record, given, len(ids), out, cap, n),
                         "char[]", "text")
        else:
            return " ".join(map(str, ids))
        return bytes(data).decode("utf-8", "replace")

    def token_text(self) -> Any:
        """For tfmc_constraints.token_text: the text of one id, in memory of the callback."""
        memory = ffi.new("char[]", TOKEN_BYTES)

        def of_token(_: Any, id_: int, n: Any) -> Any:
            given = ffi.new("int32_t *", id_)
            status = lib.tfmc_tokenizer_decode(self.target, given, 1, lib.DETOKENIZE_AFTER, memory, TOKEN_BYTES, n)
            n[0] = min(n[0], TOKEN_BYTES)
            return memory if status == 0 else ffi.NULL

        return ffi.callback("char *(void *, int32_t, uint64_t *)", of_token)
