#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights as llama.cpp quantizes them: a GGUF file of the tensors of a safetensors file, by the library in the package llama_cpp.

    ggml.py IN.safetensors TYPE OUT.gguf     TYPE: Q4_0, Q4_K, .. for matrices of whole blocks but tables of positions; others f32
    ggml.py --numbers IN.safetensors TYPE OUT.gguf    numbers of the TYPE, stored as f32, also of matrices whose rows are not whole
                                             blocks: these are cut out of all rows one behind the other, so bytes are those of the TYPE
    ggml.py --check                          exit code 0 when the packages gguf, llama_cpp and numpy are there

A matrix X.weight beside a number X.scale is the product of both.
"""
import ctypes
import glob
import json
import os
import struct
import sys


def tensors_of(path):
    with open(path, "rb") as f:
        data = f.read()
    end = 8 + struct.unpack_from("<Q", data)[0]
    found = {}
    for name, entry in json.loads(data[8:end]).items():
        if name == "__metadata__":
            continue
        begin, behind = (end + at for at in entry["data_offsets"])
        raw = numpy.frombuffer(data[begin:behind], {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1"}[entry["dtype"]])
        if entry["dtype"] == "BF16":
            raw = (raw.astype("<u4") << 16).view("<f4")
        elif entry["dtype"] == "F8_E4M3":
            sign, exponent, rest = 1 - 2.0 * (raw >> 7), raw >> 3 & 15, raw & 7
            raw = sign * numpy.where(exponent == 0, numpy.ldexp(rest / 8, -6), numpy.ldexp(1 + rest / 8, exponent.astype(int) - 7))
        found[name] = raw.reshape(entry["shape"]).astype("<f4")
    scales = {name: found.pop(name) for name in list(found) if name.endswith(".scale")}
    return {name: values * scales.get(name.removesuffix("weight") + "scale", numpy.float32(1)) for name, values in found.items()}


def quantize(library, kind, values):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = values.shape
    values, out = numpy.ascontiguousarray(values), numpy.zeros((rows, columns // elements * size), "u1")
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_init(int(kind))
    done = library.ggml_quantize_chunk(int(kind), values.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0),
                                       ctypes.c_int64(rows), ctypes.c_int64(columns), None)
    if done != out.nbytes:
        raise SystemExit(f"{kind.name}: {done} bytes of {out.nbytes}")
    return out


def numbers(library, kind, values):
    block = gguf.GGML_QUANT_SIZES[kind][0]
    blocks = numpy.concatenate([values.ravel(), numpy.zeros(-values.size % block, "<f4")]).reshape(-1, block)
    found = gguf.dequantize(quantize(library, kind, blocks), kind)
    return found.ravel()[: values.size].reshape(values.shape).astype("<f4")


def main(source, kind, out, as_numbers=False):
    kind = gguf.GGMLQuantizationType[kind]
    library = ctypes.CDLL(libraries[0])
    writer = gguf.GGUFWriter(out, "none")
    for name, values in tensors_of(source).items():
        if as_numbers and values.ndim == 2 and "position" not in name:
            values = numbers(library, kind, values)
        whole = not as_numbers and values.ndim == 2 and values.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 and "position" not in name
        writer.add_tensor(name, quantize(library, kind, values) if whole else values, raw_dtype=kind if whole else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    try:
        import gguf
        import llama_cpp
        import numpy
    except ImportError as e:
        raise SystemExit(f"SKIPPED: what llama.cpp makes of the weights: {e}")
    libraries = glob.glob(os.path.dirname(llama_cpp.__file__) + "/lib/libggml-base.*")
    if not libraries:
        raise SystemExit("SKIPPED: what llama.cpp makes of the weights: the package llama_cpp has no libggml-base")
    if sys.argv[1] == "--numbers":
        main(*sys.argv[2:], as_numbers=True)
    elif sys.argv[1:] != ["--check"]:
        main(*sys.argv[1:])
