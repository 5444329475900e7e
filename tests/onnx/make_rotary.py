#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rotary positions as exporters write them out: `make_rotary.py FILE [--kind=KIND]`; `make_rotary.py --numbers` prints
an x of 5 positions, `--compare OUT [--kind=KIND]` compares what was computed of it with plain Python.

KIND: halves; split (halves, two products each); interleaved; part (4 of 8 features); turned (x is [B, S, H, E]); scaled (other
frequencies, and a factor); row (positions from 2 on, the third row of a table of positions); wrong (the sine of the first half is
added, which is no rotation)."""
import math
import struct
import sys

from make_tiny import field, ints, node, tensor, value
from proto import read_safetensors

H, E, S, THETA = 2, 8, 5, 10000.0


def frequencies(kind):
    n = (4 if kind == "part" else E) // 2
    powers = [struct.unpack("<f", struct.pack("<f", THETA ** (-i / n)))[0] for i in range(n)]
    return [f / (1, 3)[f < 0.5] for f in powers] if kind == "scaled" else powers


def halves(x, wide, y, wrong):
    """x cos + (-x2, x1) sin."""
    half = wide // 2
    yield node("Mul", [x, "cosines"], "first", "/rotary/Mul")
    yield node("Slice", [x, "at0", f"at{half}", "last"], "x1", "/rotary/Slice")
    yield node("Slice", [x, f"at{half}", f"at{wide}", "last"], "x2", "/rotary/Slice_1")
    yield node("Identity" if wrong else "Neg", ["x2"], "minus", "/rotary/Neg")
    yield node("Concat", ["minus", "x1"], "turned_x", "/rotary/Concat", axis=-1)
    yield node("Mul", ["turned_x", "sines"], "second", "/rotary/Mul_1")
    yield node("Add", ["first", "second"], y, "/rotary/Add")


def pairs(a, b):
    """a cos - b sin, b cos + a sin."""
    yield node("Mul", [a, "cosines"], "ac", "/rotary/Mul")
    yield node("Mul", [b, "sines"], "bs", "/rotary/Mul_1")
    yield node("Sub", ["ac", "bs"], "ya", "/rotary/Sub")
    yield node("Mul", [b, "cosines"], "bc", "/rotary/Mul_2")
    yield node("Mul", [a, "sines"], "as", "/rotary/Mul_3")
    yield node("Add", ["bc", "as"], "yb", "/rotary/Add")
    yield node("Concat", ["ya", "yb"], "both", "/rotary/Concat", axis=-1)


def rotation(kind):
    yield node("Shape", ["x"], "shape", "/Shape")
    yield node("Gather", ["shape", "one" if kind == "turned" else "two"], "count", "/Gather")
    yield node("Range", ["zero", "count", "one"], "positions", "/Range")
    if kind == "row":
        yield node("Range", ["zero", "three", "one"], "starts", "/Range_1")
        yield node("Unsqueeze", ["starts", "at1"], "starts_column", "/Unsqueeze_1")
        yield node("Add", ["starts_column", "positions"], "table", "/Add")
        yield node("Cast", ["table"], "table_numbers", "/Cast", to=1)
        yield node("Slice", ["table_numbers", "at2", "at4", "at0"], "row", "/Slice")
        yield node("Squeeze", ["row", "at0"], "numbers", "/Squeeze")
    else:
        yield node("Cast", ["positions"], "numbers", "/Cast", to=1)
    yield node("Unsqueeze", ["numbers", "at1"], "column", "/Unsqueeze")
    yield node("Mul", ["column", "inv_freq"], "angles", "/rotary/angles")
    last = "angles"
    if kind not in ("split", "interleaved"):
        yield node("Concat", ["angles", "angles"], "all", "/rotary/all", axis=-1)
        last = "all"
    for op, name in (("Cos", "cosines"), ("Sin", "sines")):
        yield node(op, [last], f"{name}_0", f"/rotary/{op}")
        if kind == "interleaved":
            yield node("Unsqueeze", [f"{name}_0", "at2"], name, f"/rotary/{op}_1")
        elif kind == "turned":
            yield node("Unsqueeze", [f"{name}_0", "at1"], name, f"/rotary/{op}_1")
        else:
            yield node("Mul", [f"{name}_0", "factor"], name, f"/rotary/{op}_1")
    if kind == "part":
        yield node("Slice", ["x", "at0", "at4", "last"], "head", "/rotary/Slice_2")
        yield node("Slice", ["x", "at4", "at8", "last"], "tail", "/rotary/Slice_3")
        yield from halves("head", 4, "rotated_head", False)
        yield node("Concat", ["rotated_head", "tail"], "y", "/rotary/Concat_1", axis=-1)
    elif kind == "split":
        yield node("Slice", ["x", "at0", "at4", "last"], "a", "/rotary/Slice_2")
        yield node("Slice", ["x", "at4", "at8", "last"], "b", "/rotary/Slice_3")
        yield from pairs("a", "b")
        yield node("Identity", ["both"], "y", "/rotary/Identity")
    elif kind == "interleaved":
        yield node("Reshape", ["x", "in_pairs"], "x_pairs", "/rotary/Reshape")
        yield node("Slice", ["x_pairs", "at0", "at1", "axis4"], "a", "/rotary/Slice_2")
        yield node("Slice", ["x_pairs", "at1", "at2", "axis4"], "b", "/rotary/Slice_3")
        yield from pairs("a", "b")
        yield node("Reshape", ["both", "in_rows"], "y", "/rotary/Reshape_1")
    else:
        yield from halves("x", E, "y", kind == "wrong")


def write(path, kind):
    graph = b"".join(field(1, n) for n in rotation(kind))
    f = frequencies(kind)
    factor = struct.pack("<f", 1.25 if kind == "scaled" else 1.0)
    for t in (tensor("inv_freq", [len(f)], 1, struct.pack(f"<{len(f)}f", *f)), tensor("factor", [], 1, factor), ints("zero", 0),
              ints("one", 1), ints("two", 2), ints("three", 3), *(tensor(f"at{n}", [1], 7, struct.pack("<q", n)) for n in (0, 1, 2, 4, 8)),
              tensor("last", [1], 7, struct.pack("<q", -1)), tensor("axis4", [1], 7, struct.pack("<q", 4)),
              ints("in_pairs", 0, 0, 0, E // 2, 2), ints("in_rows", 0, 0, 0, E)):
        graph += field(5, t)
    shape = ["batch", "seq", H, E] if kind == "turned" else ["batch", H, "seq", E]
    graph += field(11, value("x", 1, shape)) + field(12, value("y", 1, shape))
    with open(path, "wb") as out:
        out.write(field(1, 8) + field(8, field(2, 17)) + field(7, graph))


def numbers():
    return [(i * 37 % 61 - 30) / 10 for i in range(H * S * E)]


def expected(kind):
    x, f, y = numbers(), frequencies(kind), numbers()
    factor = 1.25 if kind == "scaled" else 1.0
    for row in range(H * S):
        position = row // H if kind == "turned" else row % S + (2 if kind == "row" else 0)
        for i, frequency in enumerate(f):
            a, b = (2 * i, 2 * i + 1) if kind == "interleaved" else (i, i + len(f))
            c, s = factor * math.cos(position * frequency), factor * math.sin(position * frequency)
            y[row * E + a] = x[row * E + a] * c + (x[row * E + b] if kind == "wrong" else -x[row * E + b]) * s
            y[row * E + b] = x[row * E + b] * c + x[row * E + a] * s
    return y


def main():
    kind = next((a[7:] for a in sys.argv if a.startswith("--kind=")), "halves")
    if sys.argv[1] == "--numbers":
        print("x_in=" + ",".join(map(str, numbers())))
    elif sys.argv[1] == "--compare":
        _, got = read_safetensors(sys.argv[2])["y"]
        worst = max(abs(a - b) for a, b in zip(got, expected(kind)))
        if worst > 1e-5 or len(got) != H * S * E:
            sys.exit(f"{kind} differs by {worst}")
    else:
        write(sys.argv[1], kind)


if __name__ == "__main__":
    main()
