#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an operator of two constants, cast to f32 and added to the input x: `make_fold.py FILE OPERATOR TYPE=NUMBERS TYPE=NUMBERS`
with the types bool, u8, i8, i32, i64."""
import struct
import sys

from make_tiny import field, node, tensor, value

TYPES = {"bool": (9, "B"), "u8": (2, "B"), "i8": (3, "b"), "i32": (6, "i"), "i64": (7, "q")}


def constant(name, text):
    type_name, _, numbers = text.partition("=")
    kind, code = TYPES[type_name]
    numbers = [int(n) for n in numbers.split(",")]
    return len(numbers), tensor(name, [len(numbers)], kind, struct.pack(f"<{len(numbers)}{code}", *numbers))


def main():
    path, operator, *operands = sys.argv[1:]
    n, a = constant("a", operands[0])
    _, b = constant("b", operands[1])
    nodes = [node(operator, ["a", "b"], "c", "/c"), node("Cast", ["c"], "f", "/f", to=1), node("Add", ["x", "f"], "y", "/y")]
    message = b"".join(field(1, m) for m in nodes) + field(5, a) + field(5, b)
    message += field(11, value("x", 1, [n])) + field(12, value("y", 1, [n]))
    with open(path, "wb") as f:
        f.write(field(1, 8) + field(8, field(2, 17)) + field(7, message))


if __name__ == "__main__":
    main()
