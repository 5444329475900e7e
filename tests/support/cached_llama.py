#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama model whose keys and values are rounded when they are appended, in f64. Pure Python.

    cached_llama.py FOLDER f32|f16|bf16|int8 IDS LOGITS.safetensors..

Computes the logits of all positions of IDS (separated by blanks or commas) and prints for each given file (logits
[1, S, vocab]) the relative L2 distance; then, how many ids are the likeliest behind those before them. Keys and values
are rounded to nearest even once, from f32, keys behind the rotation; int8 are integers up to 127 times a scale for each
position and head.
"""
import json
import math
import struct
import sys
from operator import mul

import to_gguf


def read(path):
    """Matrices as rows, vectors as they are."""
    out = {}
    for name, (shape, numbers) in to_gguf.read_safetensors(path).items():
        width = shape[-1]
        out[name] = [numbers[i:i + width] for i in range(0, len(numbers), width)] if len(shape) > 1 else numbers
    return out


def rounded(x, kind):
    words = struct.pack(f"<{len(x)}f", *x)
    if kind == "f16":
        return struct.unpack(f"<{len(x)}e", struct.pack(f"<{len(x)}e", *struct.unpack(f"<{len(x)}f", words)))
    if kind == "bf16":
        bits = (((w + 0x7FFF + (w >> 16 & 1)) >> 16) << 16 for w in struct.unpack(f"<{len(x)}I", words))
        words = struct.pack(f"<{len(x)}I", *bits)
    x = struct.unpack(f"<{len(x)}f", words)
    if kind == "int8":
        step = max(map(abs, x)) / 127
        return [round(v / step) * step if step > 0 else 0.0 for v in x]
    return x


def dot(a, b):
    return sum(map(mul, a, b))


def linear(x, w):
    return [dot(x, row) for row in w]


def rms(x, w, eps):
    r = 1 / math.sqrt(dot(x, x) / len(x) + eps)
    return [v * r * g for v, g in zip(x, w)]


def rotate(x, at, theta):
    half = len(x) // 2
    out = [0.0] * len(x)
    for n in range(half):
        angle = at * theta ** (-n / half)
        c, s = math.cos(angle), math.sin(angle)
        out[n], out[n + half] = x[n] * c - x[n + half] * s, x[n + half] * c + x[n] * s
    return out


def attend(q, keys, values):
    scores = [dot(q, k) / math.sqrt(len(q)) for k in keys]
    most = max(scores)
    p = [math.exp(s - most) for s in scores]
    total = sum(p)
    return [dot(p, column) / total for column in zip(*values)]


class Model:
    def __init__(self, folder, kind):
        with open(f"{folder}/config.json") as f:
            self.c = json.load(f)
        self.w, self.kind = read(f"{folder}/model.safetensors"), kind
        self.layers = self.c["num_hidden_layers"]
        self.cache = [([], []) for _ in range(self.layers * self.c["num_key_value_heads"])]

    def attention(self, layer, x, at):
        c, name = self.c, f"model.layers.{layer}.self_attn."
        heads, groups = c["num_attention_heads"], c["num_key_value_heads"]
        e, out = c["hidden_size"] // heads, []
        q, k, v = (linear(x, self.w[f"{name}{p}_proj.weight"]) for p in "qkv")
        for g in range(groups):
            keys, values = self.cache[layer * groups + g]
            keys.append(rounded(rotate(k[g * e:g * e + e], at, c["rope_theta"]), self.kind))
            values.append(rounded(v[g * e:g * e + e], self.kind))
            for h in range(g * heads // groups, (g + 1) * heads // groups):
                out += attend(rotate(q[h * e:h * e + e], at, c["rope_theta"]), keys, values)
        return linear(out, self.w[f"{name}o_proj.weight"])

    def step(self, token, at):
        w, eps = self.w, self.c["rms_norm_eps"]
        x = w["model.embed_tokens.weight"][token]
        for i in range(self.layers):
            name = f"model.layers.{i}."
            y = self.attention(i, rms(x, w[f"{name}input_layernorm.weight"], eps), at)
            x = [a + b for a, b in zip(x, y)]
            y = rms(x, w[f"{name}post_attention_layernorm.weight"], eps)
            gate, up = (linear(y, w[f"{name}mlp.{p}_proj.weight"]) for p in ("gate", "up"))
            y = linear([g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)], w[f"{name}mlp.down_proj.weight"])
            x = [a + b for a, b in zip(x, y)]
        return linear(rms(x, w["model.norm.weight"], eps), w["model.embed_tokens.weight"])


def distance(got, want):
    rows = [(a, b) for x, y in zip(got, want) for a, b in zip(x, y)]
    return math.sqrt(sum((a - b) ** 2 for a, b in rows) / sum(b * b for _, b in rows))


def main():
    folder, kind, ids, files = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    ids = [int(i) for i in ids.replace(",", " ").split()]
    model = Model(folder, kind)
    logits = [model.step(token, at) for at, token in enumerate(ids)]
    for name in files:
        got = read(name)["logits"]
        if len(got) != len(ids):
            raise SystemExit(f"{name} has {len(got)} rows")
        print(f"{distance(got, logits):.3g}")
    print(sum(row.index(max(row)) == token for row, token in zip(logits, ids[1:])))


if __name__ == "__main__":
    main()
