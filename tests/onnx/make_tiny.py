#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small ONNX model as exporters write them: `make_tiny.py FILE [--external] [--op=OPERATOR] [--empty]`.

A layer of an encoder: a linear layer, GELU by Erf, a residual sum and LayerNormalization; its result is reshaped to
heads by shape arithmetic. --external: matrices are in FILE.data. --op: the name of the last
operator, which gets an attribute `extra`. --empty: it gives the sizes behind the last axis, a list of none."""
import os
import random
import struct
import sys

from proto import field

RANDOM = random.Random(7)


def floats(count):
    return struct.pack(f"<{count}f", *(RANDOM.uniform(-1, 1) for _ in range(count)))


def tensor(name, shape, kind, data, external=None):
    message = b"".join(field(1, n) for n in shape) + field(2, kind) + field(8, name)
    if external is None or len(data) < 64:
        return message + field(9, data)
    path, rest = external
    with open(path, "ab") as f:
        at = f.tell()
        f.write(data)
    for key, value in (("location", os.path.basename(path)), ("offset", at), ("length", len(data))):
        message += field(13, field(1, key) + field(2, str(value)))
    return message + field(14, 1) + rest


def ints(name, *values):
    return tensor(name, [len(values)] if len(values) != 1 else [], 7, struct.pack(f"<{len(values)}q", *values))


def attribute(name, value):
    if isinstance(value, float):
        return field(1, name) + b"\x15" + struct.pack("<f", value) + field(20, 1)
    if isinstance(value, list):
        return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)
    if isinstance(value, bytes):  # a graph
        return field(1, name) + field(6, value) + field(20, 5)
    return field(1, name) + field(3, value) + field(20, 2)


def node(op, inputs, output, name, **attributes):
    return (b"".join(field(1, i) for i in inputs) + field(2, output) + field(3, name) + field(4, op) +
            b"".join(field(5, attribute(k, v)) for k, v in attributes.items()))


def value(name, kind, sizes):
    dims = b"".join(field(1, field(2, s) if isinstance(s, str) else field(1, s)) for s in sizes)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def main():
    path = sys.argv[1]
    external = (path + ".data", b"") if "--external" in sys.argv else None
    last = next((a[5:] for a in sys.argv[2:] if a.startswith("--op=")), "Transpose")
    if external and os.path.exists(external[0]):
        os.remove(external[0])
    nodes = [
        node("MatMul", ["x", "onnx::MatMul_3"], "m", "/layer/up/MatMul"),
        node("Add", ["layer.up.bias", "m"], "u", "/layer/up/Add"),
        node("Div", ["u", "root"], "d", "/layer/act/Div"),
        node("Erf", ["d"], "e", "/layer/act/Erf"),
        node("Add", ["e", "half_of"], "e1", "/layer/act/Add"),
        node("Mul", ["u", "e1"], "g", "/layer/act/Mul"),
        node("Gemm", ["g2", "layer.down.weight", "layer.down.bias"], "f", "/layer/down/Gemm", transB=1),
        node("Reshape", ["f", "list"], "f3", "/layer/down/Reshape"),
        node("Add", ["f3", "x"], "s", "/layer/Add"),
        node("LayerNormalization", ["s", "layer.norm.weight", "layer.norm.bias"], "n", "/layer/norm/LayerNormalization",
             axis=-1, epsilon=1e-5),
        node("Reshape", ["n", "heads"], "h", "/split/Reshape"),
        node(last, ["h"], "y", f"/split/{last}", **({} if last == "Transpose" else {"extra": 1})),
    ]
    if "--empty" in sys.argv:
        nodes[-1] = node("Shape", ["h"], "y", "/split/Shape", start=4)
    if "--twice" in sys.argv:
        nodes[-1] = node("Unsqueeze", ["h", "twice"], "y", "/split/Unsqueeze")
    shape = [
        node("Shape", ["x"], "shape", "/Shape"),
        node("Gather", ["shape", "zero"], "b", "/Gather", axis=0),
        node("Gather", ["shape", "one"], "t", "/Gather_1", axis=0),
        node("Unsqueeze", ["b", "axes"], "b1", "/Unsqueeze"),
        node("Unsqueeze", ["t", "axes"], "t1", "/Unsqueeze_1"),
        node("Concat", ["b1", "t1", "width"], "list", "/Concat", axis=0),
        node("Concat", ["b1", "t1", "split"], "heads", "/Concat_1", axis=0),
    ]
    flat = [node("Reshape", ["g", "rows"], "g2", "/layer/down/Reshape_1")]
    graph = b"".join(field(1, n) for n in shape + nodes[:6] + flat + nodes[6:])
    for t in (tensor("onnx::MatMul_3", [8, 16], 1, floats(128), external), tensor("layer.up.bias", [16], 1, floats(16)),
              tensor("layer.down.weight", [8, 16], 1, floats(128), external), tensor("layer.down.bias", [8], 1, floats(8)),
              tensor("layer.norm.weight", [8], 1, floats(8)), tensor("layer.norm.bias", [8], 1, floats(8)),
              tensor("root", [], 1, struct.pack("<f", 2 ** 0.5)), tensor("half_of", [], 1, struct.pack("<f", 1)),
              ints("zero", 0), ints("one", 1), tensor("axes", [1], 7, struct.pack("<q", 0)),
              tensor("width", [1], 7, struct.pack("<q", 8)), ints("split", 2, 4), ints("twice", 1, -5), ints("rows", -1, 16)):
        graph += field(5, t)
    graph += field(11, value("x", 1, ["batch", "seq", 8])) + field(12, value("y", 1, [4, 2, "seq", "batch"]))
    with open(path, "wb") as f:
        f.write(field(1, 8) + field(8, field(2, 17)) + field(7, graph))


if __name__ == "__main__":
    main()
