# SPDX-License-Identifier: Apache-2.0
"""Tensors in plain Python: rounding to the element types, broadcasting, safetensors. No package is needed."""
import itertools
import json
import math
import struct

FLOATS = ("f32", "f16", "bf16")
INTS = ("i8", "u8", "i16", "i32", "i64")
FORMATS = {"f32": "f", "f16": "e", "i8": "b", "u8": "B", "i16": "h", "i32": "i", "i64": "q", "bool": "?"}
STORED = {"f32": "F32", "f16": "F16", "bf16": "BF16", "i8": "I8", "u8": "U8", "i16": "I16", "i32": "I32", "i64": "I64",
          "bool": "BOOL"}
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i16": 2, "i32": 4, "i64": 8, "bool": 1}
BITS = {"i8": 8, "u8": 8, "i16": 16, "i32": 32, "i64": 64}
EPS = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
TINY = {"f32": 2.0**-126, "f16": 2.0**-24, "bf16": 2.0**-126}


class Tensor:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), list(data)
        assert len(self.data) == count(shape), (shape, len(self.data))

    def at(self, index):
        return self.data[ravel(self.shape, index)]


def count(shape):
    return math.prod(shape)


def ravel(shape, index):
    at = 0
    for size, i in zip(shape, index):
        at = at * size + i
    return at


def indices(shape):
    return itertools.product(*[range(n) for n in shape])


def wrap(dtype, v):
    bits = BITS[dtype]
    v &= (1 << bits) - 1
    return v - (1 << bits) if dtype != "u8" and v >> (bits - 1) else v


def limits(dtype):
    return (0, 255) if dtype == "u8" else (-(1 << (BITS[dtype] - 1)), (1 << (BITS[dtype] - 1)) - 1)


def round_to(dtype, v):
    """The value of the type nearest to v; ints and bools are taken as they are."""
    if dtype not in FLOATS:
        return v
    if math.isnan(v) or math.isinf(v):
        return v
    if dtype == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", round_odd(v)))[0]
        bits += 0x7FFF + (bits >> 16 & 1)
        return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]
    try:
        return struct.unpack("<" + FORMATS[dtype], struct.pack("<" + FORMATS[dtype], v))[0]
    except OverflowError:
        return math.copysign(math.inf, v)


def round_odd(v):
    """v as f32, with its last bit set when something was lost: a second rounding then is right."""
    try:
        near = struct.unpack("<f", struct.pack("<f", v))[0]
    except OverflowError:
        return math.copysign(math.inf, v)
    if near == v or math.isinf(near):
        return near
    bits = struct.unpack("<I", struct.pack("<f", near))[0]
    if abs(near) > abs(v):
        bits -= 1
    return struct.unpack("<f", struct.pack("<I", bits | 1))[0]


def cast(dtype, v, source):
    if dtype == "bool":
        return v != 0
    if dtype in FLOATS:
        return round_to(dtype, float(v))
    lo, hi = limits(dtype)
    if source in FLOATS:
        if math.isnan(v):
            return 0
        if math.isinf(v):
            return hi if v > 0 else lo
    return max(lo, min(hi, int(v)))


def broadcast_shape(*shapes):
    rank = max(len(s) for s in shapes)
    out = []
    for i in range(rank):
        sizes = {s[i - rank + len(s)] for s in shapes if i - rank + len(s) >= 0} - {1}
        assert len(sizes) <= 1, shapes
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def broadcast(t, shape):
    data = []
    lead = len(shape) - len(t.shape)
    for index in indices(shape):
        data.append(t.at([0 if n == 1 else i for n, i in zip(t.shape, index[lead:])]))
    return Tensor(t.dtype, shape, data)


def same_shape(*tensors):
    shape = broadcast_shape(*[t.shape for t in tensors])
    return [broadcast(t, shape) for t in tensors]


def to_bytes(t):
    if t.dtype == "bf16":
        return b"".join(struct.pack("<f", v)[2:] for v in t.data)
    return struct.pack("<%d%s" % (len(t.data), FORMATS[t.dtype]), *t.data)


def from_bytes(dtype, shape, raw):
    n = len(raw) // BYTES[dtype]
    if dtype == "bf16":
        return Tensor(dtype, shape, [struct.unpack("<f", b"\0\0" + raw[2 * i:2 * i + 2])[0] for i in range(n)])
    return Tensor(dtype, shape, struct.unpack("<%d%s" % (n, FORMATS[dtype]), raw))


def write(path, tensors):
    header, body = {}, b""
    for name, t in tensors.items():
        raw = to_bytes(t)
        header[name] = {"dtype": STORED[t.dtype], "shape": list(t.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def read(path):
    with open(path, "rb") as f:
        all_bytes = f.read()
    size = struct.unpack("<Q", all_bytes[:8])[0]
    header = json.loads(all_bytes[8:8 + size])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype = {v: k for k, v in STORED.items()}[entry["dtype"]]
        begin, end = entry["data_offsets"]
        out[name] = from_bytes(dtype, entry["shape"], all_bytes[8 + size + begin:8 + size + end])
    return out
