#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the projections of a hub folder (config.json, model.safetensors, float32) into few bits, as quantizers do.

    to_packed.py FOLDER OUT KIND [--group N] [--bits 4|8] [--symmetric] [--scales F16|BF16|F32] [--shuffle [shared]]
              [--actorder WORD] [--keep RE] [--eight RE] [--still RE]

KIND: gptq, gptq_v2, awq, words, bytes (the last two of compressed-tensors), mxfp4 (experts of gpt_oss). OUT/packed is the
folder with parts, OUT/plain the same model whose projections are the numbers that these parts stand for, in float32.
--shuffle: columns are in groups in another order (g_idx), one for each matrix, or shared by those of a layer that have one
width. --keep, --eight, --still: matrices (a regular expression) that are not converted, that have 8 bits, that are in order.
Written after what each format is read as elsewhere, not after tfmc. Pure Python.
"""
import argparse
import json
import math
import os
import random
import re
import struct

import to_gguf
from make_llama import write
from quantized import E2M1

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the row of eight in each four bits of a word, from the lowest on


def rounded(kind, values):
    """Numbers of a type, and their bytes."""
    if kind == "F32":
        data = struct.pack(f"<{len(values)}f", *values)
        return list(struct.unpack(f"<{len(values)}f", data)), data
    if kind == "F16":
        data = struct.pack(f"<{len(values)}e", *values)
        return list(struct.unpack(f"<{len(values)}e", data)), data
    high = [b >> 16 for b in struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))]
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}I", *(h << 16 for h in high)))), struct.pack(f"<{len(high)}H", *high)


def words(rows, bits, order=None):
    """Rows of numbers, 32 // bits of them in a word: i32 [rows, ..]"""
    per, out = 32 // bits, []
    for row in rows:
        row = row + [0] * (-len(row) % per)
        for at in range(0, len(row), per):
            eight = row[at:at + per]
            if order:
                eight = [eight[i] for i in order]
            out.append(sum(q << bits * i for i, q in enumerate(eight)))
    return "I32", [len(rows), len(out) // len(rows)], struct.pack(f"<{len(out)}I", *out)


def transposed(rows):
    return [list(column) for column in zip(*rows)]


def quantize(rows, group_of, groups, args):
    """q [N][K], zero points [N][G], scales [N][G], bytes of scales [N, G] and [G, N], elements [N][K]"""
    top, n, k = (1 << args.bits) - 1, len(rows), len(rows[0])
    scales, zeros = [], []
    for row in rows:
        for g in range(groups):
            of = [v for v, where in zip(row, group_of) if where == g]
            low, high = min(of + [0.0]), max(of + [0.0])
            if args.symmetric:
                scales.append(max(-low, high) / (top // 2) or 1.0)
                zeros.append((top + 1) // 2)
            else:
                scales.append((high - low) / top or 1.0)
                zeros.append(max(1, min(top, round(-low / scales[-1]))))
    scales, data = rounded(args.scales, scales)
    scales, zeros = [scales[i * groups:(i + 1) * groups] for i in range(n)], [zeros[i * groups:(i + 1) * groups] for i in range(n)]
    q = [[max(0, min(top, round(rows[i][j] / scales[i][group_of[j]]) + zeros[i][group_of[j]])) for j in range(k)] for i in range(n)]
    elements = [[scales[i][group_of[j]] * (q[i][j] - zeros[i][group_of[j]]) for j in range(k)] for i in range(n)]
    across = rounded(args.scales, [s for column in transposed(scales) for s in column])[1]
    return q, zeros, (data, across), elements


def pack(name, rows, args, rng):
    n, k = len(rows), len(rows[0])
    group = args.group if args.group > 0 else k
    groups = k // group
    group_of = [j // group for j in range(k)]
    if args.shuffle and not (args.still and re.search(args.still, name)):
        random.Random(f"{name.split(chr(46))[2]} {k}" if args.shuffle == "shared" else rng.random()).shuffle(group_of)
    q, zeros, (by_row, by_group), elements = quantize(rows, group_of, groups, args)
    x = name.removesuffix(".weight")
    if args.kind.startswith("gptq"):
        less = 1 if args.kind == "gptq" else 0
        _, (c, r), data = words(q, args.bits)
        flat = struct.unpack(f"<{c * r}I", data)
        parts = {"qweight": ("I32", [r, c], struct.pack(f"<{c * r}I", *(flat[j * r + i] for i in range(r) for j in range(c)))),
                 "qzeros": words([[z - less for z in column] for column in transposed(zeros)], args.bits),
                 "scales": (args.scales, [groups, n], by_group), "g_idx": ("I32", [k], struct.pack(f"<{k}i", *group_of))}
    elif args.kind == "awq":
        parts = {"qweight": words(transposed(q), 4, AWQ_ORDER), "qzeros": words(transposed(zeros), 4, AWQ_ORDER),
                 "scales": (args.scales, [groups, n], by_group)}
    elif args.kind == "words":
        parts = {"weight_packed": words(q, args.bits), "weight_scale": (args.scales, [n, groups], by_row),
                 "weight_shape": ("I64", [2], struct.pack("<2q", n, k))}
        if args.shuffle:
            parts["weight_g_idx"] = ("I32", [k], struct.pack(f"<{k}i", *group_of))
    else:
        parts = {"weight": ("I8", [n, k], struct.pack(f"<{n * k}b", *(v - 128 for row in q for v in row))),
                 "weight_scale": (args.scales, [n, groups], by_row)}
    return {f"{x}.{end}": part for end, part in parts.items()}, ("F32", [n, k], struct.pack(f"<{n * k}f", *(v for row in elements for v in row)))


def pack_experts(name, shape, values):
    """[E, in, out] as blocks [E, out, in / 32, 16] of two numbers a byte and their exponents; and the numbers, as they lay."""
    e, k, n = shape
    blocks, scales, elements = bytearray(), bytearray(), [0.0] * len(values)
    for row in range(e * n):
        places = [(row // n * k + i) * n + row % n for i in range(k)]
        for at in range(0, k, 32):
            of = [values[p] for p in places[at:at + 32]]
            power = math.frexp(max(map(abs, of)))[1] - 3  # the largest is 4 to 8 of them
            q = [min(range(8), key=lambda c, v=v: abs(abs(v) / 2.0 ** power - E2M1[c])) + (8 if v < 0 else 0) for v in of]
            blocks += bytes(low | high << 4 for low, high in zip(q[::2], q[1::2]))
            scales.append(power + 127)
            for p, c in zip(places[at:], q):
                elements[p] = E2M1[c] * 2.0 ** power
    return ({f"{name}_blocks": ("U8", [e, n, k // 32, 16], bytes(blocks)), f"{name}_scales": ("U8", [e, n, k // 32], bytes(scales))},
            ("F32", shape, struct.pack(f"<{len(elements)}f", *elements)))


def described(args):
    if args.kind == "mxfp4":
        return {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    if args.kind.startswith("gptq"):
        return {"bits": args.bits, "group_size": args.group, "desc_act": bool(args.shuffle), "sym": args.symmetric, "lm_head": False,
                "quant_method": "gptq", "checkpoint_format": args.kind, "meta": {"damp_percent": 0.01}}
    if args.kind == "awq":
        return {"bits": 4, "group_size": args.group, "quant_method": "awq", "version": "gemm", "zero_point": True,
                "modules_to_not_convert": None}
    weights = {"actorder": "group" if args.shuffle else args.actorder, "dynamic": False, "group_size": args.group, "num_bits": args.bits, "observer": "minmax",
               "observer_kwargs": {}, "strategy": "group" if args.group > 0 else "channel", "symmetric": True, "type": "int"}
    return {"config_groups": {"group_0": {"input_activations": None, "output_activations": None, "targets": ["Linear"], "weights": weights}},
            "format": "pack-quantized" if args.kind == "words" else "int-quantized", "ignore": ["lm_head"], "kv_cache_scheme": None,
            "quant_method": "compressed-tensors", "quantization_status": "compressed", "version": "0.9"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("kind", choices=["gptq", "gptq_v2", "awq", "words", "bytes", "mxfp4"])
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--symmetric", action="store_true")
    parser.add_argument("--scales", default="F16")
    for name in ("--actorder", "--keep", "--eight", "--still"):
        parser.add_argument(name)
    parser.add_argument("--shuffle", nargs="?", const="each")
    args = parser.parse_args()
    with open(f"{args.folder}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    packed, plain, rng = {}, {}, random.Random(5)
    for name, (shape, values) in to_gguf.read_safetensors(f"{args.folder}/model.safetensors").items():
        whole = ("F32", shape, struct.pack(f"<{len(values)}f", *values))
        if args.kind == "mxfp4" and name.endswith("_proj"):
            parts, plain[name] = pack_experts(name, shape, values)
            packed.update(parts)
        elif args.kind != "mxfp4" and name.endswith("_proj.weight") and not (args.keep and re.search(args.keep, name)):
            has_eight = args.eight and re.search(args.eight, name)
            one = argparse.Namespace(**{**vars(args), "bits": 8}) if has_eight else args
            parts, plain[name] = pack(name, to_gguf.rows_of((shape, values)), one, rng)
            packed.update(parts)
        else:
            packed[name] = plain[name] = whole
    for place, tensors, extra in (("packed", packed, {"quantization_config": described(args)}), ("plain", plain, {})):
        os.makedirs(f"{args.out}/{place}", exist_ok=True)
        write(f"{args.out}/{place}/model.safetensors", tensors)
        with open(f"{args.out}/{place}/config.json", "w", encoding="utf-8") as f:
            json.dump({**config, **extra}, f, indent=1)


if __name__ == "__main__":
    main()
