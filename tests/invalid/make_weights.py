#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes base/model.safetensors, base/extra.safetensors, and the wrong weight files with their models.

    python3 make_weights.py

Every row of `wrong_files` spoils a good safetensors file in one place; it becomes weights/NAME.safetensors and
file_NAME.yaml, a copy of base/model.yaml that reads it and says what must be reported. Pure Python; the
same bytes every time.
"""
import json
import os
import random
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
D, FF, VOCAB, CTX, LAYERS = 8, 12, 11, 6, 2


def shapes():
    """Canonical path -> shape, for base/model.yaml"""
    out = {"tok.weight": [VOCAB, D], "pos.weight": [CTX, D]}
    for i in range(LAYERS):
        attn, mlp = f"layers.{i}.attn.", f"layers.{i}.mlp."
        for norm in (attn + "norm.", mlp + "norm."):
            out[norm + "weight"], out[norm + "bias"] = [D], [D]
        for role in "qkvo":
            out[f"{attn}attention.{role}.weight"], out[f"{attn}attention.{role}.bias"] = [D, D], [D]
        out[mlp + "ffn.up.weight"], out[mlp + "ffn.up.bias"] = [FF, D], [FF]
        out[mlp + "ffn.down.weight"], out[mlp + "ffn.down.bias"] = [D, FF], [D]
    out.update({"final.weight": [D], "final.bias": [D], "head.weight": [VOCAB, D]})
    return out


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def tensors(rng, table):
    """(header as a dict, data): all tensors F32, one after the other"""
    header, data = {}, b""
    for name, shape in table.items():
        values = [rng.gauss(1.0 if "norm.weight" in name else 0.0, 0.3) for _ in range(count(shape))]
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    return header, data


def whole(header, data):
    """A file of a header (dict, text or bytes), padded with blanks to a multiple of 8, and data."""
    if isinstance(header, dict):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def changed(header, name, **fields):
    """A copy of the header with some fields of one entry replaced; None removes a field."""
    out = {key: dict(entry) for key, entry in header.items()}
    out[name].update(fields)
    out[name] = {key: value for key, value in out[name].items() if value is not None}
    return out


def wrong_files(header, data):
    """(name, what is wrong, regular expression of the message, bytes)"""
    good = whole(header, data)
    text = json.dumps(header, separators=(",", ":"))
    begin, end = header["pos.weight"]["data_offsets"]
    last = list(header)[-1]

    def pos(**fields):
        return whole(changed(header, "pos.weight", **fields), data)

    yield "empty", "no byte at all", "E406", b""
    yield "short", "fewer bytes than the length of the header takes", "E406", good[:5]
    yield ("header_beyond_file", "a header longer than the file", "header.*E406",
           struct.pack("<Q", 1 << 20) + good[8:])
    yield "header_huge", "a header of 2^63 bytes", "header.*E406", struct.pack("<Q", 1 << 63) + good[8:]
    yield "header_not_json", "a header that is not JSON", "E406", whole("tensors: " + text, data)
    yield "header_not_utf8", "a header that is not UTF-8", "E406", whole(
        text.encode().replace(b"pos.", b"p\xff\xfe."), data)
    yield "header_list", "a header that is a list", "E406", whole("[" + text + "]", data)
    yield "header_trailing", "text behind the header's object", "E406", whole(text + "{}", data)
    yield "json_duplicate", "a tensor is named twice", "pos.weight.*E406", whole(
        text[:-1] + ',"pos.weight":' + json.dumps(header["pos.weight"]) + "}", data)
    yield "json_duplicate_field", "a field is given twice", "dtype.*E406", whole(
        text.replace('"dtype":"F32"', '"dtype":"F32","dtype":"F32"', 1), data)
    yield "json_deep", "lists nested 200 deep", "E406", pos(shape=json.loads("[" * 200 + "]" * 200))
    yield "json_zero_character", "a name with a zero character", "E406", whole(
        text.replace('"pos.weight"', '"pos\\u0000.weight"'), data)
    yield "truncated", "the data ends too early", "E406", good[:-10]
    yield "trailing", "bytes behind the last tensor", "E406", good + bytes(12)
    yield "range_outside", "a range that ends outside of the file", f"{last}.*E406", whole(
        changed(header, last, data_offsets=[len(data), len(data) + 4 * VOCAB * D]), data)
    yield "range_overlap", "two tensors share bytes", "E406", pos(data_offsets=[begin - 32, end - 32])
    yield "range_hole", "bytes between two tensors that belong to none", "E406", whole(
        {name: entry for name, entry in header.items() if name != "pos.weight"}, data)
    yield "range_reversed", "a range that ends before it begins", "pos.weight.*E406", pos(
        data_offsets=[end, begin])
    yield "range_negative", "a range that begins below zero", "pos.weight.*E406", pos(data_offsets=[-8, end])
    yield "range_float", "an offset with a fraction", "pos.weight.*E406", pos(data_offsets=[begin + 0.5, end])
    yield "range_three", "three offsets", "pos.weight.*E406", pos(data_offsets=[begin, end, end])
    yield "bytes_for_shape", "more bytes than the shape takes", "pos.weight.*E406", pos(shape=[CTX - 1, D])
    yield "dtype_unknown", "an element type that does not exist", "pos.weight.*F33", pos(dtype="F33")
    yield "dtype_unreadable", "an element type that cannot be converted", "C64.*E405", whole(
        changed(header, "pos.weight", dtype="C64", shape=[CTX, D // 2]), data)
    yield "dtype_missing", "a tensor without element type", "pos.weight.*dtype.*E406", pos(dtype=None)
    yield "shape_negative", "a negative size", "pos.weight.*E406", pos(shape=[-CTX, -D])
    yield "shape_overflow", "a shape whose size overflows", "pos.weight.*E406", pos(
        shape=[1 << 62, 1 << 62, 16])
    yield "shape_rank", "nine axes", "pos.weight.*E406", pos(shape=[CTX, D] + [1] * 7)
    yield "shape_text", "a shape that is no list", "pos.weight.*E406", pos(shape="6, 8")


def gguf(header, data, kinds=None):
    """The same tensors as a GGUF file; kinds: name -> (number of a type, dims from the inner one, bytes)"""
    infos, body = b"", b""
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind, dims, part = (kinds or {}).get(name, (0, entry["shape"][::-1], data[begin:end]))
        infos += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        infos += struct.pack("<IQ", kind, len(body))
        body += part + bytes(-len(part) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(header), 0) + infos
    return head + bytes(-len(head) % 32) + body


def archive(name, part, method):
    """A zip archive of one entry whose method is as given, whatever its bytes are."""
    common = struct.pack("<HHHHHIII", 20, 0, method, 0, 33, 0, len(part), len(part))
    common += struct.pack("<HH", len(name), 0)
    local = b"PK\3\4" + common + name + part
    central = b"PK\1\2\x14\0" + common + bytes(14) + name
    return local + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def other_files(header, data):
    """As wrong_files, for other formats; the name has its ending"""
    good = gguf(header, data)
    array = b"\x93NUMPY\1\0\x38\0{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\n" + bytes(4)
    yield "gguf_truncated.gguf", "the data end too early", "head.weight.*E406", good[:-40]
    yield "gguf_header.gguf", "the file ends within its names", "E406", good[:100]
    yield "gguf_version.gguf", "a version that is too old", "version 1.*E406", good[:4] + b"\1" + good[5:]
    yield "gguf_counts.gguf", "more tensors than can be", "E406", good[:8] + b"\xff" * 8 + good[16:]
    yield ("gguf_quantized.gguf", "a tensor in a quantized type that is not read", "pos.weight.*stored as IQ3_S, which is not supported yet.*E405",
           gguf(header, data, {"pos.weight": (21, [256, 2], bytes(220))}))
    yield ("gguf_blocks.gguf", "rows that are no whole blocks", "pos.weight.*Q4_0.*E406",
           gguf(header, data, {"pos.weight": (2, [D, CTX], bytes(27))}))
    yield "npy_python.npy", "a header that is no literal", "npy_python.*E406", array.replace(b"False", b"exit( ")
    yield "npy_short.npy", "fewer bytes than the shape takes", "needs 4 bytes.*E406", array[:-1]
    yield "npz_damaged.npz", "a damaged compressed array", "compressed data are damaged.*E406", archive(b"tok.npy", array, 8)
    yield "npz_method.npz", "an array compressed by bzip2", "another method.*E406", archive(b"tok.npy", array, 12)
    yield "npz_torch.npz", "an archive of something else", "data.pkl.*E406", archive(b"data.pkl", array, 0)
    yield ("torch_global.pt", "a pickle that calls a function of another module", "at byte 40.*os.system.*E409",
           archive(b"m/data.pkl", b"cos\nsystem\nX\2\0\0\0id\x85R.", 0))
    yield "torch_old.pt", "a file of an old torch.save that is cut off", "E406", bytes.fromhex("80028a0a6cfc9c46f9206aa850192e80024d")
    yield "npz_truncated.npz", "an archive without its end", "E406", archive(b"tok.npy", array, 0)[:-30]


def write(path, content):
    os.makedirs(os.path.dirname(os.path.join(HERE, path)), exist_ok=True)
    with open(os.path.join(HERE, path), "wb") as f:
        f.write(content)


def main():
    header, data = tensors(random.Random(3), shapes())
    write("base/model.safetensors", whole(header, data))
    write("base/extra.safetensors", whole(*tensors(random.Random(4), {"extra.weight": [3, 2]})))
    with open(os.path.join(HERE, "base", "model.yaml"), encoding="utf-8") as f:
        lines = f.read().split("\n")[1:]
    wrong = [(f"{name}.safetensors", *rest) for name, *rest in wrong_files(header, data)]
    for file, what, expected, content in wrong + list(other_files(header, data)):
        name = file.rsplit(".", 1)[0]
        write(f"weights/{file}", content)
        model = [line.replace("[model.safetensors]", f"[weights/{file}]") for line in lines]
        place = 3 + next(i for i, line in enumerate(model) if "files:" in line)
        if "E405" in expected:  # a good file: the parameter that wants the tensor is reported
            place = "*"
        head = [f"# {what}", f"# expect: {place}:*: {expected}"]
        write(f"file_{name}.yaml", "\n".join(head + model).encode())


if __name__ == "__main__":
    main()
