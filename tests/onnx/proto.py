# SPDX-License-Identifier: Apache-2.0
"""Messages of protobuf as Python values, and tensors of ONNX and of safetensors, by the standard library alone."""
import json
import struct

# TensorProto.DataType: name in safetensors, struct format of an element, field of elements that are not raw
TYPES = {1: ("F32", "f", 4), 2: ("U8", "B", 5), 3: ("I8", "b", 5), 5: ("I16", "h", 5), 6: ("I32", "i", 5),
         7: ("I64", "q", 7), 9: ("BOOL", "?", 5), 10: ("F16", "H", 5), 11: ("F64", "d", 10), 16: ("BF16", "H", 5)}


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of each field of a message; values are ints or bytes."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        else:
            size, at = (8, at) if tag & 7 == 1 else (4, at) if tag & 7 == 5 else read_varint(data, at)
            value, at = data[at:at + size], at + size
        yield tag >> 3, value


def every(data, number):
    return [value for n, value in fields(data) if n == number]


def varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, value):
    """A field: an int, a text, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


class Tensor:
    """name, ONNX type, shape and little-endian bytes of a TensorProto."""

    def __init__(self, message):
        self.name, self.shape, self.type, self.data = "", [], 0, None
        for number, value in fields(message):
            if number == 1:
                self.shape += [value] if isinstance(value, int) else list(unpacked(value))
            elif number == 2:
                self.type = value
            elif number == 8:
                self.name = value.decode()
            elif number == 9:
                self.data = value
        if self.type not in TYPES:
            raise ValueError(f"elements of the type {self.type}")
        if self.data is None:
            self.data = typed(message, self.type)

    def values(self):
        code = TYPES[self.type][1]
        numbers = struct.unpack(f"<{len(self.data) // struct.calcsize('<' + code)}{code}", self.data)
        return [half(n, self.type) for n in numbers] if self.type in (10, 16) else list(numbers)

    def message(self, name):
        dims = b"".join(field(1, n) for n in self.shape)
        return dims + field(2, self.type) + field(8, name) + field(9, self.data)


def half(bits, kind):
    return struct.unpack("<e", struct.pack("<H", bits))[0] if kind == 10 else struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def unpacked(data):
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        yield value


def typed(message, kind):
    """Elements in their own field, packed or not, as bytes."""
    _, code, number = TYPES[kind]
    if kind in (1, 11):
        return b"".join(every(message, number))
    numbers = [n for v in every(message, number) for n in ([v] if isinstance(v, int) else unpacked(v))]
    size = struct.calcsize("<" + code)
    return b"".join((n & (1 << 8 * size) - 1).to_bytes(size, "little") for n in numbers)


def write_safetensors(path, tensors):
    """tensors: {name: Tensor}"""
    header, data = {}, b""
    for name, t in sorted(tensors.items(), key=lambda item: -struct.calcsize("<" + TYPES[item[1].type][1])):
        header[name] = {"dtype": TYPES[t.type][0], "shape": t.shape, "data_offsets": [len(data), len(data) + len(t.data)]}
        data += t.data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """{name: (shape, values)}"""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    kinds = {name: kind for kind, (name, _, _) in TYPES.items()}
    out = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        t = Tensor.__new__(Tensor)
        t.type, t.shape = kinds[entry["dtype"]], entry["shape"]
        t.data = data[8 + n + entry["data_offsets"][0]:8 + n + entry["data_offsets"][1]]
        out[name] = (t.shape, t.values())
    return out
