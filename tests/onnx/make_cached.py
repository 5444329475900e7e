#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small decoder with a cache as exporters write them: `make_cached.py FILE [--mask=causal|padded|none]`.

One layer of attention whose keys and values are appended to those of tokens before. The mask is made of two Range; padded:
and of the input attention_mask, too; none: every key is visible."""
import struct
import sys

from make_tiny import field, floats, ints, node, tensor, value

V, H, E = 11, 2, 4


def integer(name, n):
    return tensor(name, [1], 7, struct.pack("<q", n))


def heads(name):
    return [node("MatMul", ["x", f"layer.{name}.weight"], f"{name}_0", f"/layer/{name}/MatMul"),
            node("Reshape", [f"{name}_0", "split"], f"{name}_1", "/layer/Reshape"),
            node("Transpose", [f"{name}_1"], name, "/layer/Transpose", perm=[0, 2, 1, 3])]


def mask(kind):
    yield node("Shape", ["past_key"], "past_shape", "/Shape")
    yield node("Gather", ["past_shape", "two"], "start", "/Gather")
    yield node("Shape", ["ids"], "shape", "/Shape_1")
    yield node("Gather", ["shape", "one"], "count", "/Gather_1")
    yield node("Add", ["start", "count"], "end", "/Add")
    yield node("Range", ["start", "end", "one"], "queries", "/Range")
    yield node("Range", ["zero", "end", "one"], "keys", "/Range_1")
    yield node("Unsqueeze", ["queries", "axis"], "column", "/Unsqueeze")
    yield node("LessOrEqual", ["keys", "column"], "before", "/LessOrEqual")
    if kind == "padded":
        yield node("Cast", ["attention_mask"], "real", "/Cast", to=9)
        yield node("Unsqueeze", ["real", "axes"], "real_row", "/Unsqueeze_1")
        yield node("And", ["before", "real_row"], "seen", "/And")
    yield node("Where", ["seen" if kind == "padded" else "before", "nothing", "hidden"], "mask", "/Where")


def main():
    kind = next((a[7:] for a in sys.argv[2:] if a.startswith("--mask=")), "causal")
    nodes = list(mask(kind)) if kind != "none" else []
    nodes += [node("Gather", ["table", "ids"], "words", "/Gather_2"), node("Gather", ["places", "position_ids"], "at", "/Gather_3"),
              node("Add", ["words", "at"], "x", "/Add_1")]
    nodes += heads("q") + heads("k") + heads("v")
    nodes += [node("Concat", ["past_key", "k"], "present_key", "/layer/Concat", axis=2),
              node("Concat", ["past_value", "v"], "present_value", "/layer/Concat_1", axis=-2),
              node("Transpose", ["present_key"], "transposed", "/layer/Transpose_3", perm=[0, 1, 3, 2]),
              node("MatMul", ["q", "transposed"], "scores", "/layer/MatMul"), node("Mul", ["scores", "half"], "scaled", "/layer/Mul")]
    nodes += [node("Add", ["scaled", "mask"], "biased", "/layer/Add")] if kind != "none" else []
    nodes += [node("Softmax", ["scaled" if kind == "none" else "biased"], "p", "/layer/Softmax", axis=-1),
              node("MatMul", ["p", "present_value"], "o", "/layer/MatMul_1"),
              node("Transpose", ["o"], "o_0", "/layer/Transpose_4", perm=[0, 2, 1, 3]),
              node("Reshape", ["o_0", "join"], "o_1", "/layer/Reshape_3"),
              node("MatMul", ["o_1", "head.weight"], "logits", "/head/MatMul")]
    graph = b"".join(field(1, n) for n in nodes)
    wide = H * E
    for t in (tensor("table", [V, wide], 1, floats(V * wide)), tensor("places", [16, wide], 1, floats(16 * wide)),
              *(tensor(f"layer.{n}.weight", [wide, wide], 1, floats(wide * wide)) for n in "qkv"),
              tensor("head.weight", [wide, V], 1, floats(wide * V)), tensor("half", [], 1, struct.pack("<f", 0.5)),
              tensor("nothing", [], 1, struct.pack("<f", 0)), tensor("hidden", [], 1, struct.pack("<f", -3.4e38)),
              ints("zero", 0), ints("one", 1), ints("two", 2), integer("axis", 1), ints("axes", 1, 2),
              ints("split", 0, 0, H, E), ints("join", 0, 0, wide)):
        graph += field(5, t)
    graph += field(11, value("ids", 7, ["batch", "seq"]))
    graph += field(11, value("attention_mask", 7, ["batch", "past + seq"])) if kind == "padded" else b""
    graph += field(11, value("position_ids", 7, ["batch", "seq"]))
    for name in ("key", "value"):
        graph += field(11, value(f"past_{name}", 1, ["batch", H, "past", E]))
    graph += field(12, value("logits", 1, ["batch", "seq", V]))
    for name in ("key", "value"):
        graph += field(12, value(f"present_{name}", 1, ["batch", H, "past + seq", E]))
    with open(sys.argv[1], "wb") as f:
        f.write(field(1, 8) + field(8, field(2, 17)) + field(7, graph))


if __name__ == "__main__":
    main()
