#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantized tensors of GGUF files, written and decoded after the descriptions of the types. Pure Python.

    quantized.py OUT.gguf OUT.safetensors ROWS COLUMNS [TYPE..]   random blocks of every type, one tensor each, and what they are
    quantized.py --compare                                        this decoder and that of the package gguf, if it is there
"""
import hashlib
import json
import random
import struct
import sys

import to_gguf

NL = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
E2M1 = [0.0, .5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]  # 0, too, for the zero with a sign, as gguf


def half(block, at):
    return struct.unpack_from("<e", block, at)[0]


def nibbles(data):
    return [b & 15 for b in data] + [b >> 4 for b in data]


def bit(data, i):
    return data[i // 8] >> i % 8 & 1


def sixes(packed):
    """The scales and the offsets of Q4_K and Q5_K: (8, 8)."""
    a, b, c = packed[:4], packed[4:8], packed[8:]
    return ([x & 63 for x in a] + [(z & 15) + (x >> 6) * 16 for x, z in zip(a, c)],
            [y & 63 for y in b] + [(z >> 4) + (y >> 6) * 16 for y, z in zip(b, c)])


def q4_0(b):
    return [half(b, 0) * (q - 8) for q in nibbles(b[2:])]


def q4_1(b):
    return [half(b, 0) * q + half(b, 2) for q in nibbles(b[4:])]


def q5_0(b):
    return [half(b, 0) * (q + 16 * bit(b[2:6], i) - 16) for i, q in enumerate(nibbles(b[6:]))]


def q5_1(b):
    return [half(b, 0) * (q + 16 * bit(b[4:8], i)) + half(b, 2) for i, q in enumerate(nibbles(b[8:]))]


def q8_0(b):
    return [half(b, 0) * q for q in struct.unpack("<32b", b[2:])]


def iq4_nl(b):
    return [half(b, 0) * NL[q] for q in nibbles(b[2:])]


def mxfp4(b):
    return [2.0 ** (b[0] - 127) * E2M1[q] for q in nibbles(b[1:])]


def q4_k(b):
    scales, offsets = sixes(b[4:16])
    quants = sum((nibbles(b[i:i + 32]) for i in range(16, 144, 32)), [])
    return [half(b, 0) * scales[i // 32] * q - half(b, 2) * offsets[i // 32] for i, q in enumerate(quants)]


def q5_k(b):
    scales, offsets = sixes(b[4:16])
    quants = sum((nibbles(b[i:i + 32]) for i in range(48, 176, 32)), [])
    quants = [q + 16 * (b[16 + i % 32] >> i // 32 & 1) for i, q in enumerate(quants)]
    return [half(b, 0) * scales[i // 32] * q - half(b, 2) * offsets[i // 32] for i, q in enumerate(quants)]


def q6_k(b):
    low, high, scales = nibbles(b[:64]) + nibbles(b[64:128]), b[128:192], struct.unpack("<16b", b[192:208])
    return [half(b, 208) * scales[i // 16] * (low[i] + 16 * (high[32 * (i // 128) + i % 32] >> 2 * (i % 128 // 32) & 3) - 32)
            for i in range(256)]


def q3_k(b):
    last, packed = b[32:96], b[96:108]
    scales = [(packed[i % 8] >> 4 * (i // 8) & 15) + 16 * (packed[8 + i % 4] >> 2 * (i // 4) & 3) - 32 for i in range(16)]
    return [half(b, 108) * scales[i // 16] * ((last[32 * (i // 128) + i % 32] >> 2 * (i % 128 // 32) & 3)
                                              - (0 if b[i % 32] >> i // 32 & 1 else 4)) for i in range(256)]


def q2_k(b):
    last = b[16:80]
    return [half(b, 80) * (b[i // 16] & 15) * (last[32 * (i // 128) + i % 32] >> 2 * (i % 128 // 32) & 3) - half(b, 82) * (b[i // 16] >> 4)
            for i in range(256)]


def iq4_xs(b):
    high, quants = b[2] + 256 * b[3], sum((nibbles(b[i:i + 16]) for i in range(8, 136, 16)), [])
    scales = [(b[4 + i // 2] >> 4 * (i % 2) & 15) + 16 * (high >> 2 * i & 3) - 32 for i in range(8)]
    return [half(b, 0) * scales[i // 32] * NL[q] for i, q in enumerate(quants)]


# name -> (number, elements of a block, bytes of a block, where its halves are, decoder)
TYPES = {"Q4_0": (2, 32, 18, [0], q4_0), "Q4_1": (3, 32, 20, [0, 2], q4_1), "Q5_0": (6, 32, 22, [0], q5_0),
         "Q5_1": (7, 32, 24, [0, 2], q5_1), "Q8_0": (8, 32, 34, [0], q8_0), "Q3_K": (11, 256, 110, [108], q3_k),
         "Q4_K": (12, 256, 144, [0, 2], q4_k), "Q5_K": (13, 256, 176, [0, 2], q5_k), "Q6_K": (14, 256, 210, [208], q6_k),
         "Q2_K": (10, 256, 84, [80, 82], q2_k), "IQ4_XS": (23, 256, 136, [0], iq4_xs), "IQ4_NL": (20, 32, 18, [0], iq4_nl), "MXFP4": (39, 32, 17, [], mxfp4)}


# Bytes of the package gguf for 50 random blocks of each type.
DIGESTS = {"Q4_0": "a9dbbc536ba40cd0", "Q4_1": "e4069a4b1ea9ca45", "Q5_0": "aaab28ec55c2bde2", "Q5_1": "039a4d959bc1dfc1",
           "Q8_0": "e7bdafd6d6ddb436", "Q3_K": "31426258c6a934a4", "Q4_K": "97e149eeacbf306e", "Q5_K": "64e5ebbfe819464a",
           "Q6_K": "9c9648d96994037d", "Q2_K": "147286e98baf488b", "IQ4_XS": "6784664c509d55db", "IQ4_NL": "1e01237432cb15c5",
           "MXFP4": "98c7ff69d4a573d2"}


def random_blocks(name, n, source):
    """n blocks of any bits, but with halves, exponents that are near 1."""
    _, _, size, halves, _ = TYPES[name]
    out = bytearray(source.randbytes(n * size))
    for block in range(0, n * size, size):
        for at in halves:
            struct.pack_into("<e", out, block + at, source.uniform(-0.1, 0.1))
        if name == "MXFP4":
            out[block] = source.randrange(118, 128)
    return bytes(out)


def decode(name, data):
    _, _, size, _, of = TYPES[name]
    values = [v for at in range(0, len(data), size) for v in of(data[at:at + size])]
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def write_safetensors(path, tensors):
    """tensors: name -> (type, shape, bytes)"""
    header, at = {}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def make(out, expected, rows, columns, names):
    source, infos, body, values = random.Random(7), b"", b"", {}
    for name in names:
        number, elements, _, _, _ = TYPES[name]
        data = random_blocks(name, rows * columns // elements, source)
        infos += to_gguf.text(name) + struct.pack("<IQQIQ", 2, columns, rows, number, len(body))
        body += data + bytes(-len(data) % 32)
        values[name] = ("F32", [rows, columns], struct.pack(f"<{rows * columns}f", *decode(name, data)))
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(names), 0) + infos
    with open(out, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + body)
    write_safetensors(expected, values)


def digest(values):
    return hashlib.blake2b(struct.pack(f"<{len(values)}f", *values), digest_size=8).hexdigest()


def compare():
    """This decoder against the numbers of the package gguf 0.19: DIGESTS, and the package itself where it is there."""
    try:
        import gguf
        import numpy
    except ImportError as e:
        print(f"SKIPPED: the package gguf itself: {e}")
        gguf = None
    for name, (number, _, size, _, _) in TYPES.items():
        data = random_blocks(name, 50, random.Random(3))
        ours = digest(decode(name, data))
        if gguf:
            blocks = numpy.frombuffer(data, numpy.uint8).reshape(50, size)
            theirs = digest(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(number)).ravel().tolist())
            if theirs != ours:
                raise SystemExit(f"{name}: this decoder and that of gguf differ")
        if DIGESTS[name] != ours:
            raise SystemExit(f"{name}: {ours}, not what the package gguf gave")
    print(f"{len(TYPES)} types as the package gguf decodes them")


if __name__ == "__main__":
    if sys.argv[1:] == ["--compare"]:
        compare()
    else:
        make(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:] or TYPES)
