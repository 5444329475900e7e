#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the float32 tensors of a safetensors file as NumPy arrays: to_npz.py IN OUT.npz [deflate]. Pure Python.

Tensors take turns in how they are written: C order and Fortran order, little- and big-endian, f4 and f8; vectors
also as whole numbers when they are some. All hold the same values.
"""
import itertools
import struct
import sys
import zipfile

import to_gguf


def reverse_axes(shape, values):
    strides = list(itertools.accumulate([1] + shape[:0:-1], lambda a, b: a * b))[::-1]
    return [values[sum(i * s for i, s in zip(index[::-1], strides))]
            for index in itertools.product(*(range(n) for n in shape[::-1]))]


def array(shape, values, kind):
    order, number = kind
    if order:
        values = reverse_axes(shape, values)
    text = f"{{'descr': '{number}', 'fortran_order': {order}, 'shape': ({', '.join(map(str, shape))},), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return (b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() +
            struct.pack(f"{number[0]}{len(values)}{'f' if number[2] == '4' else 'd'}", *values))


def main():
    kinds = itertools.cycle(itertools.product((False, True), ("<f4", ">f4", "<f8", ">f8")))
    method = zipfile.ZIP_DEFLATED if sys.argv[3:] == ["deflate"] else zipfile.ZIP_STORED
    with zipfile.ZipFile(sys.argv[2], "w", method) as out:
        for name, (shape, values) in to_gguf.read_safetensors(sys.argv[1]).items():
            out.writestr(f"{name}.npy", array(shape, values, next(kinds)))


if __name__ == "__main__":
    main()
