#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewrites a safetensors file of F32 tensors with all of them rounded to nearest even. Pure Python.

    to_narrow.py IN.safetensors OUT.safetensors BF16|F16
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


def main():
    source, target, kind = sys.argv[1:4]
    with open(source, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    out, parts = {}, b""
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        part = (bf16 if kind == "BF16" else f16)(data[begin:end])
        out[name] = {"dtype": kind, "shape": t["shape"], "data_offsets": [len(parts), len(parts) + len(part)]}
        parts += part
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + parts)


main()
