#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewrites a safetensors file of F32 tensors with all of them rounded to nearest even, or converted to a wider type. Pure Python.

    to_narrow.py IN.safetensors OUT.safetensors BF16|F16|F64 [matrices]     matrices: vectors stay F32
"""
import json
import struct
import sys


def bf16(data):
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return struct.pack(f"<{len(words)}H", *((w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words))


def f16(data):
    numbers = struct.unpack(f"<{len(data) // 4}f", data)
    return struct.pack(f"<{len(numbers)}e", *numbers)


def f64(data):
    numbers = struct.unpack(f"<{len(data) // 4}f", data)
    return struct.pack(f"<{len(numbers)}d", *numbers)


def main():
    source, target, kind = sys.argv[1:4]
    only_matrices = sys.argv[4:] == ["matrices"]
    with open(source, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    out, parts = {}, b""
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        part, stays = data[begin:end], only_matrices and len(t["shape"]) < 2
        if not stays:
            part = {"BF16": bf16, "F16": f16, "F64": f64}[kind](part)
        out[name] = {"dtype": t["dtype"] if stays else kind, "shape": t["shape"], "data_offsets": [len(parts), len(parts) + len(part)]}
        parts += part
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + parts)


main()
