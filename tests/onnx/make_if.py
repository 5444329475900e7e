#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an If as exporters write it for a squeeze of an axis whose size they do not know: `make_if.py FILE [--depth=N]
[--by=VALUE] [--size=N]`; x [batch, seq, 2]. With one position the result is that row times the matrix of the branch, else the
negated sum of the rows, both doubled. --depth: as many Ifs within each other; --by: what decides, the size, or an input of the
graph; --size: a number in place of seq."""
import struct
import sys

from make_tiny import field, ints, node, tensor, value

MATRIX = struct.pack("<4f", 1, 2, 3, 4)


def graph(nodes, tensors=(), output=None):
    return b"".join(field(1, n) for n in nodes) + b"".join(field(5, t) for t in tensors) + field(12, value(output, 1, []))


def branches(depth):
    inner = [node("Squeeze", ["x", "axis"], "row", "/then/Squeeze"), node("MatMul", ["row", "matrix"], "then_0", "/then/MatMul")]
    then = graph(inner, [tensor("matrix", [2, 2], 1, MATRIX)], "then_0")
    for i in range(depth - 1):
        then = graph([choice(then, f"else_{i}", f"then_{i + 1}")], (), f"then_{i + 1}")
    return then


def choice(then, otherwise, output):
    inner = [node("ReduceSum", ["x", "axis"], otherwise + "_sum", "/else/ReduceSum", keepdims=0),
             node("Neg", [otherwise + "_sum"], otherwise, "/else/Neg")]
    return node("If", ["condition"], output, "/If", then_branch=then, else_branch=graph(inner, (), otherwise))


def main():
    options = dict(a[2:].split("=") for a in sys.argv[2:])
    nodes = [node("Shape", ["x"], "shape", "/Shape"), node("Gather", ["shape", "one"], "size", "/Gather", axis=0),
             node("Equal", [options.get("by", "size"), "one"], "condition", "/Equal"),
             choice(branches(int(options.get("depth", 1))), "else", "chosen"), node("Add", ["chosen", "chosen"], "y", "/Add")]
    message = graph(nodes, [ints("one", 1), tensor("axis", [1], 7, struct.pack("<q", 1))], "y")
    message += field(11, value("x", 1, ["batch", int(options.get("size", 0)) or "seq", 2]))
    message += field(11, value(options["by"], 7, [])) if "by" in options else b""
    with open(sys.argv[1], "wb") as f:
        f.write(field(1, 8) + field(8, field(2, 17)) + field(7, message))


if __name__ == "__main__":
    main()
