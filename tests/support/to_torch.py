#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tensors of a safetensors file as torch.save does, without torch: classes of its names stand in for its own.

    to_torch.py IN.safetensors OUT.bin [--old] [--protocol=N] [--under=KEY] [--strided] [--tie=NAME=OF] [--zip64] [--shards=N]

--old: the format before PyTorch 1.6. --under: in a checkpoint, beside other values. --strided: matrices are stored
transposed or as columns of a wider one, all tensors of a type in one storage. --tie: a further name of a tensor.
--shards: OUT.bin is a folder with N files and their index.
"""
import argparse
import collections
import json
import os
import pickle
import struct
import sys
import types
import zipfile

CLASSES = {"F32": ("FloatStorage", 4), "F16": ("HalfStorage", 2), "BF16": ("BFloat16Storage", 2), "F64": ("DoubleStorage", 8),
           "I64": ("LongStorage", 8), "I32": ("IntStorage", 4), "I16": ("ShortStorage", 2), "I8": ("CharStorage", 1),
           "U8": ("ByteStorage", 1), "BOOL": ("BoolStorage", 1)}
OLD_MAGIC, OLD_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001

torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules.update({"torch": torch, "torch._utils": utils})


def rebuild(*_):
    """Stands in for the function of torch that pickles name."""


rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
utils._rebuild_tensor_v2 = rebuild
for class_name, _ in CLASSES.values():
    setattr(torch, class_name, type(class_name, (), {"__module__": "torch"}))


class Storage:
    def __init__(self, dtype, data):
        self.name, self.width = CLASSES[dtype]
        self.data = data


class Tensor:
    def __init__(self, storage, offset, shape, strides):
        self.arguments = storage, offset, tuple(shape), tuple(strides), False, collections.OrderedDict()

    def __reduce__(self):
        return rebuild, self.arguments


class Pickler(pickle.Pickler):
    """Gives storages the keys 0, 1, .."""

    def __init__(self, out, protocol, old):
        super().__init__(out, protocol)
        self.old, self.storages = old, []

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        if obj not in self.storages:
            self.storages.append(obj)
        return ("storage", getattr(torch, obj.name), str(self.storages.index(obj)), "cpu", len(obj.data) // obj.width) + (None,) * self.old


class Out:
    """A file that pickles are written to."""

    def __init__(self):
        self.data = b""

    def write(self, data):
        self.data += bytes(data)


def contiguous(shape):
    strides, n = [], 1
    for size in reversed(shape):
        strides.insert(0, n)
        n *= size
    return strides


def read(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]]) for name, t in header.items()}


def columns(data, shape, width):
    """The elements of a matrix, column by column."""
    rows, n = shape
    return b"".join(data[(r * n + c) * width:(r * n + c + 1) * width] for c in range(n) for r in range(rows))


def strided(tensors):
    """Views of one storage for each type: transposed matrices, and those of even height columns of a wider one."""
    parts, views = collections.defaultdict(bytes), {}
    for name, (dtype, shape, data) in tensors.items():
        width = CLASSES[dtype][1]
        strides, offset = contiguous(shape), len(parts[dtype]) // width
        if len(shape) == 2 and shape[0] % 2:
            strides, data = [1, shape[0]], columns(data, shape, width)
        elif len(shape) == 2:
            row = shape[1] * width
            data = b"".join(b"\xff" * width + data[r * row:(r + 1) * row] for r in range(shape[0]))
            strides, offset = [shape[1] + 1, 1], offset + 1
        parts[dtype] += data
        views[name] = dtype, offset, shape, strides
    storages = {dtype: Storage(dtype, data) for dtype, data in parts.items()}
    return {name: Tensor(storages[dtype], *where) for name, (dtype, *where) in views.items()}


def write_zip(path, pickled, storages):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        out.writestr("archive/data.pkl", pickled)
        out.writestr("archive/byteorder", "little")
        for key, storage in enumerate(storages):
            out.writestr(f"archive/data/{key}", storage.data)
        out.writestr("archive/version", "3\n")


def write_old(path, pickled, storages, protocol):
    system = {"protocol_version": OLD_PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    with open(path, "wb") as out:
        for value in (OLD_MAGIC, OLD_PROTOCOL, system):
            pickle.dump(value, out, protocol)
        out.write(pickled)
        pickle.dump([str(key) for key in range(len(storages))], out, protocol)
        for storage in storages:
            out.write(struct.pack("<q", len(storage.data) // storage.width) + storage.data)


def save(path, value, protocol=2, old=False):
    out = Out()
    pickler = Pickler(out, protocol, old)
    pickler.dump(value)
    if old:
        write_old(path, out.data, pickler.storages, protocol)
    else:
        write_zip(path, out.data, pickler.storages)


def state_dict(tensors, is_strided=False):
    if is_strided:
        return collections.OrderedDict(strided(tensors))
    return collections.OrderedDict((name, Tensor(Storage(dtype, data), 0, shape, contiguous(shape)))
                                   for name, (dtype, shape, data) in tensors.items())


def save_shards(folder, tensors, n, **options):
    index = {"metadata": {}, "weight_map": {}}
    for part in range(n):
        file = f"pytorch_model-{part + 1:05d}-of-{n:05d}.bin"
        names = sorted(tensors)[part::n]
        save(os.path.join(folder, file), state_dict({name: tensors[name] for name in names}), **options)
        index["weight_map"].update({name: file for name in names})
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w", encoding="utf-8") as f:
        json.dump(index, f)


def main():
    parser = argparse.ArgumentParser()
    for name in ("source", "target"):
        parser.add_argument(name)
    for name in ("--old", "--strided", "--zip64"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--protocol", type=int, default=2)
    parser.add_argument("--shards", type=int)
    parser.add_argument("--under")
    parser.add_argument("--tie")
    a = parser.parse_args()
    tensors = read(a.source)
    if a.zip64:
        zipfile.ZIP64_LIMIT = zipfile.ZIP_FILECOUNT_LIMIT = 1
    if a.shards:
        save_shards(a.target, tensors, a.shards, protocol=a.protocol, old=a.old)
        return
    value = state_dict(tensors, a.strided)
    if a.tie:
        name, of = a.tie.split("=")
        value[name] = value[of]
    if a.under:
        value = {"epoch": 3, "loss": 0.5, "betas": (0.9, 0.999), "seen": {1, 2}, "big": 1 << 80, a.under: value,
                 "optimizer": {"state": {0: {"step": next(iter(value.values()))}}, "param_groups": [{"lr": 1e-4}]}}
    save(a.target, value, a.protocol, a.old)


if __name__ == "__main__":
    main()
