#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the float32 tensors of two safetensors files: near.py A B TOLERANCE (0: the same bits). Pure Python."""
import json
import struct
import sys


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack_from("<Q", data)[0]
    out = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        begin, end = (8 + n + at for at in entry["data_offsets"])
        out[name] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end]))
    return out


def main():
    a, b, tolerance = read(sys.argv[1]), read(sys.argv[2]), float(sys.argv[3])
    if a.keys() != b.keys() or any(a[name][0] != b[name][0] for name in a):
        raise SystemExit("the files have different tensors")
    worst = max(abs(x - y) for name in a for x, y in zip(a[name][1], b[name][1]))
    largest = max(abs(x) for name in a for x in a[name][1])
    print(f"largest value {largest:g}, largest difference {worst:g}")
    if not worst <= tolerance or not largest > 0.1:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
