# SPDX-License-Identifier: Apache-2.0
"""The record of an object (struct tfmc_record of abi.h): entries, tensors and sizes as Python values."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ._library import ffi, lib, text

# Row i is the element type i of ir/types/dtypes.def. NumPy has no bf16: its bits are uint16.
DTYPES = tuple(np.dtype(t) for t in ("f4", "f2", "u2", "f8", "i1", "u1", "i4", "i8", "?", "i2"))


class Size(NamedTuple):
    """Size of an axis: a sum of products of dims. terms: (factor, indices of dims)."""

    terms: tuple[tuple[int, tuple[int, ...]], ...]
    name: str

    def at(self, dims: list[int | None]) -> int | None:
        """The size at these dims; None: one of them is not known."""
        total = 0
        for factor, used in self.terms:
            for d in used:
                value = dims[d]
                if value is None:
                    return None
                factor *= value
            total += factor
        return total

    def solve(self, size: int, dims: list[int | None]) -> None:
        """Sets the only unknown dim, if it is a term of its own, so that the axis has this size."""
        unknown = [t for t in self.terms if any(dims[d] is None for d in t[1])]
        if len(unknown) != 1 or len(unknown[0][1]) != 1:
            return
        rest = Size(tuple(t for t in self.terms if t is not unknown[0]), "").at(dims) or 0
        factor, (d,) = unknown[0]
        if factor and (size - rest) % factor == 0:
            dims[d] = (size - rest) // factor


class Tensor(NamedTuple):
    """An input or output. shape: sizes of the axes as texts, such as ``("B", "S", "96")``. limit: ids are below it
    (0: any number). optional: it may be left out. lengths: the input with the lengths of axis 1 (None: no such)."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[str, ...]
    optional: bool
    limit: int
    lengths: str | None
    sizes: tuple[Size, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(self.shape)}]"


class Entry(NamedTuple):
    """A function of the object."""

    number: int
    name: str
    dims: tuple[int, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    flops: Size  # operations of the matrix products of a call


def _words(record: Any, offset: int, n: int) -> list[int]:
    return list(ffi.unpack(ffi.cast("int64_t *", ffi.cast("char *", record) + offset), n)) if n else []


def read_text(record: Any, offset: int) -> str:
    return text(lib.tfmc_record_text(record, offset))


def dims_of(record: Any) -> dict[str, tuple[int, int]]:
    """Bounds of each dim, inclusive."""
    rows = [lib.tfmc_record_dim_at(record, i) for i in range(record.n_dims)]
    return {read_text(record, d.name): (d.lo, d.hi) for d in rows}


def _size(record: Any, offset: int, names: list[str]) -> Size:
    at, terms, parts = offset + 8, [], []
    for _ in range(_words(record, offset, 1)[0]):
        factor, n = _words(record, at, 2)
        used = tuple(_words(record, at + 16, n))
        at += 16 + 8 * n
        terms.append((factor, used))
        product = "*".join(names[d] for d in used)
        parts.append(product if used and factor == 1 else f"{factor}*{product}" if used else str(factor))
    return Size(tuple(terms), " + ".join(parts) or "0")


def _tensors(record: Any, entry: int, n: int, get: Any, names: list[str], inputs: list[str]) -> tuple[Tensor, ...]:
    found = []
    for i in range(n):
        t = get(record, entry, i)
        sizes = tuple(_size(record, t.sizes[k], names) for k in range(t.rank))
        lengths = inputs[t.lengths] if 0 <= t.lengths < len(inputs) else None
        found.append(Tensor(read_text(record, t.name), DTYPES[t.dtype], tuple(s.name for s in sizes),
                            bool(t.has_default), max(t.below, 0), lengths, sizes))
    return tuple(found)


def entries_of(record: Any) -> Mapping[str, Entry]:
    dims, found = list(dims_of(record)), {}
    for number in range(record.n_entries):
        e = lib.tfmc_entry_at(record, number)
        name = read_text(record, e.name)
        inputs = [read_text(record, lib.tfmc_entry_input(record, number, i).name) for i in range(e.n_inputs)]
        found[name] = Entry(number, name, tuple(_words(record, e.dims, e.n_dims)),
                            _tensors(record, number, e.n_inputs, lib.tfmc_entry_input, dims, inputs),
                            _tensors(record, number, e.n_outputs, lib.tfmc_entry_output, dims, []),
                            _size(record, e.flops, dims) if e.flops else Size((), "0"))
    return found


def ids_at(record: Any, offset: int, n: int) -> list[int]:
    """The n ids at an offset; none for a negative one."""
    return _words(record, offset, n) if offset > 0 and n > 0 else []
