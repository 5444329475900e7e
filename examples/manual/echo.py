#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the weights of the model of the tutorial, echo.safetensors, and its alphabet, letters.txt."""
import json
import string
import struct

letters = ["<unk>", " ", *string.ascii_lowercase]
vocab, ctx = len(letters), 64
letter, before, next_, place = 0, vocab, 2 * vocab, 3 * vocab  # where each part of a row begins
d = 3 * vocab + ctx

def matrix(rows, columns, row, column, n, value):
    """Zeros, but for n values on a diagonal that begins at (row, column)."""
    m = [[0.0] * columns for _ in range(rows)]
    for i in range(n):
        m[row + i][column + i] = value
    return m

tensors = {
    "embed.weight": matrix(vocab, d, 0, letter, vocab, 1.0),
    "positions.weight": matrix(ctx, d, 0, place, ctx, 1.0),
    # q of position p is like k of position p - 1; v is the letter.
    "first.attention.q.weight": matrix(d, d, 1, place + 1, ctx - 1, 40.0),
    "first.attention.k.weight": matrix(d, d, 1, place, ctx - 1, 1.0),
    "first.attention.v.weight": matrix(d, d, before, letter, vocab, 1.0),
    "first.attention.o.weight": matrix(d, d, 0, 0, d, 1.0),
    # q is the letter, k the letter before; v is the letter.
    "second.attention.q.weight": matrix(d, d, 0, letter, vocab, 40.0),
    "second.attention.k.weight": matrix(d, d, 0, before, vocab, 1.0),
    "second.attention.v.weight": matrix(d, d, next_, letter, vocab, 1.0),
    "second.attention.o.weight": matrix(d, d, 0, 0, d, 1.0),
    "head.weight": matrix(vocab, d, 0, next_, vocab, 10.0),
}
# Of several such positions the last one: 0.5 more for each step to the right.
for i in range(ctx):
    tensors["second.attention.k.weight"][vocab][place + i] = 0.5 * i
for i in range(vocab):
    tensors["second.attention.q.weight"][vocab][letter + i] = 1.0

# The safetensors format: the length of a JSON header, the header, the numbers.
header, data = {}, b""
for name, m in tensors.items():
    begin = len(data)
    data += b"".join(struct.pack(f"<{len(row)}f", *row) for row in m)
    header[name] = {"dtype": "F32", "shape": [len(m), len(m[0])], "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
with open("echo.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
with open("letters.txt", "w") as file:
    file.writelines(line + "\n" for line in letters)
