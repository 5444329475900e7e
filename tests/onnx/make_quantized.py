#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small quantized ONNX model: `make_quantized.py FILE [--floats]`, or compares two results of it:
`make_quantized.py --compare A.safetensors B.safetensors` (exit 1 where y differs by more than 1e-5).

Matrices of 8 bits with a scale for each column (MatMul) and with one scale and a zero point (Gemm), of 4 bits in blocks
(MatMulNBits), of integers (MatMulInteger), and a table of 8 bits. --floats: the same numbers as matrices of floats."""
import struct
import sys

from make_tiny import RANDOM, node, tensor, value
from proto import field, read_safetensors


def bytes_of(numbers, signed):
    return struct.pack(f"<{len(numbers)}{'b' if signed else 'B'}", *numbers)


def pack(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def numbers(count, low, high):
    return [RANDOM.randint(low, high) for _ in range(count)]


def matrix(name, rows, columns, codes, scale_of, zero_of):
    """Codes [rows, columns] as floats."""
    return tensor(name, [rows, columns], 1, pack([(codes[r * columns + c] - zero_of(r, c)) * scale_of(r, c)
                                                  for r in range(rows) for c in range(columns)]))


def constants():
    """Tensors of the quantized model, and those of floats in their place."""
    w1, s1 = numbers(64 * 32, -127, 127), [(2 + i) * 2 ** -17 for i in range(32)]
    w2 = numbers(96 * 32, 0, 255)
    w3, s3, z3 = numbers(16 * 96, 0, 15), [(5 + i) * 2 ** -15 for i in range(48)], numbers(16 * 3, 0, 15)
    w4, table = numbers(16 * 8, -128, 127), numbers(10 * 8, 0, 255)
    s1, s3 = (list(struct.unpack(f"<{len(s)}f", pack(s))) for s in (s1, s3))
    rows = [z3[3 * r:3 * r + 3] + [0] for r in range(16)]
    quantized = [
        tensor("up.codes", [64, 32], 3, bytes_of(w1, True)), tensor("up.scale", [32], 1, pack(s1)),
        tensor("down.codes", [96, 32], 2, bytes_of(w2, False)), tensor("down.zero", [], 2, b"\x83"),
        tensor("blocks", [16, 3, 16], 2, bytes([w3[2 * i] | w3[2 * i + 1] << 4 for i in range(len(w3) // 2)])),
        tensor("blocks.scale", [48], 1, pack(s3)),
        tensor("blocks.zero", [32], 2, bytes([r[2 * i] | r[2 * i + 1] << 4 for r in rows for i in range(2)])),
        tensor("integers", [16, 8], 3, bytes_of(w4, True)), tensor("table", [10, 8], 2, bytes_of(table, False))]
    floats = [
        matrix("up", 64, 32, w1, lambda r, c: s1[c], lambda r, c: 0),
        matrix("down", 96, 32, w2, lambda r, c: 2 ** -7, lambda r, c: 131),
        tensor("blocks.t", [96, 16], 1, pack([(w3[n * 96 + k] - z3[n * 3 + k // 32]) * s3[n * 3 + k // 32]
                                              for k in range(96) for n in range(16)])),
        matrix("integers.f", 16, 8, w4, lambda r, c: 1, lambda r, c: 0),
        matrix("table.f", 10, 8, table, lambda r, c: 0.125, lambda r, c: 7)]
    return quantized, floats


def main():
    floats = "--floats" in sys.argv
    tensors = constants()[floats] + [tensor("zero", [], 2, b"\x80"), tensor("seven", [], 2, b"\x07"),
                                     tensor("step", [], 1, pack([0.03125])), tensor("eighth", [], 1, pack([0.125])),
                                     tensor("part", [], 1, pack([2 ** -7]))]
    n = lambda op, inputs, outputs, **a: (node(op, inputs, outputs[0], f"/{op}", **a) +
                                          b"".join(field(2, o) for o in outputs[1:]))
    nodes = [n("QuantizeLinear", ["x", "step", "zero"], ["xq"]), n("DequantizeLinear", ["xq", "step", "zero"], ["xd"])]
    if not floats:
        nodes += [n("DequantizeLinear", ["up.codes", "up.scale"], ["up"], axis=1),
                  n("DequantizeLinear", ["down.codes", "part", "down.zero"], ["down"])]
    nodes += [n("MatMul", ["xd", "up"], ["a"]), n("Gemm", ["a", "down"], ["b"], transB=1)]
    nodes += [n("MatMul", ["b", "blocks.t"], ["c"])] if floats else [
        n("MatMulNBits", ["b", "blocks", "blocks.scale", "blocks.zero"], ["c"], K=96, N=16, bits=4, block_size=32) +
        field(7, "com.microsoft")]
    nodes += [n("DynamicQuantizeLinear", ["c"], ["q", "s", "z"])]
    nodes += [n("Cast", ["q"], ["qf"], to=1), n("Cast", ["z"], ["zf"], to=1), n("Sub", ["qf", "zf"], ["centered"]),
              n("MatMul", ["centered", "integers.f"], ["f"])] if floats else [
        n("MatMulInteger", ["q", "integers", "z"], ["i"]), n("Cast", ["i"], ["f"], to=1)]
    nodes += [n("Mul", ["f", "s"], ["d"])]
    nodes += [n("Gather", ["table.f", "ids"], ["e"])] if floats else [
        n("Gather", ["table", "ids"], ["rows"]), n("DequantizeLinear", ["rows", "eighth", "seven"], ["e"])]
    nodes += [n("Add", ["d", "e"], ["y"])]
    graph = b"".join(field(1, m) for m in nodes) + b"".join(field(5, t) for t in tensors)
    graph += field(11, value("x", 1, [2, 64])) + field(11, value("ids", 7, [2])) + field(12, value("y", 1, [2, 8]))
    with open(sys.argv[1], "wb") as f:
        f.write(field(1, 8) + field(8, field(2, 21)) + field(7, graph))


def compare():
    (_, a), (_, b) = (read_safetensors(path)["y"] for path in sys.argv[2:4])
    largest = max(abs(v) for v in b)
    error = max(abs(u - v) for u, v in zip(a, b))
    print(f"largest error {error:.2g} of {largest:.3g}")
    sys.exit(0 if len(a) == len(b) and 0 < largest and error <= 1e-5 * largest else 1)


compare() if sys.argv[1] == "--compare" else main()
