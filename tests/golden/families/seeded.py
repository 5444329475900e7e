# SPDX-License-Identifier: Apache-2.0
"""Weights that need not be stored: every tensor of a family's `tensors.txt`, drawn by Python's own generator.

A line of tensors.txt is `NAME SHAPE MEAN SPREAD` (SHAPE `-`: a scalar); the tensor holds MEAN + SPREAD * u with u uniform in [-1, 1), rounded to
f32 once. The generator is seeded with the family's and the tensor's name, so a tensor does not depend on the others.
make.py gives the same file to PyTorch.
"""
import array
import json
import os
import random
import sys


def read_list(path):
    """[(name, shape, mean, spread)] of a tensors.txt."""
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            name, shape, mean, spread = line.split()
            rows.append((name, [int(n) for n in shape.split(",") if n != "-"], float(mean), float(spread)))
    return rows


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def tensor(family, name, shape, mean, spread):
    """The bytes of a tensor, little-endian f32."""
    draw = random.Random(f"{family}/{name}").random
    values = array.array("f", (mean + spread * (2.0 * draw() - 1.0) for _ in range(count(shape))))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def write(family, rows, path):
    """A safetensors file with all tensors of the list."""
    header, offset = {}, 0
    for name, shape, _, _ in rows:
        end = offset + 4 * count(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for row in rows:
            f.write(tensor(family, *row))
    os.replace(path + ".part", path)
