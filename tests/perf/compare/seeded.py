# SPDX-License-Identifier: Apache-2.0
"""Seeded weights and inputs, the same for tfmc and every peer, and the file tfmc reads them from.

Every tensor is cut from one block of random numbers, at a place that its name decides; the block's
length is prime, so that no two rows of a matrix are equal. Names are the paths of the model language.
"""
import json
import os
import zlib

import numpy as np

import rows

PERIOD = 262139
BLOCK = np.random.default_rng(7).standard_normal(PERIOD, dtype=np.float32)


def tensor(name, shape):
    """The values of a tensor: norm weights around 1, everything else around 0; a linear keeps the size of its input."""
    n = int(np.prod(shape))
    start = zlib.crc32(name.encode()) % PERIOD
    scale = shape[-1] ** -0.5 if len(shape) > 1 else 0.02
    values = np.resize(np.roll(BLOCK, -start) * np.float32(scale), n).reshape(shape)
    is_norm = ("norm" in name or name.startswith("final")) and name.endswith(".weight")
    return values + np.float32(1) if is_norm else values


def _linear(path, n_out, n_in, bias=True):
    yield path + ".weight", (n_out, n_in)
    if bias:
        yield path + ".bias", (n_out,)


def _norm(path, d, bias=True):
    yield path + ".weight", (d,)
    if bias:
        yield path + ".bias", (d,)


def _attention(path, m, bias=True):
    d, kv = m.hidden, m.kv_heads * m.head_dim
    for role, size in (("q", d), ("k", kv), ("v", kv), ("o", d)):
        yield from _linear(f"{path}.{role}", size, d, bias)


def _ffn(path, m, bias=True):
    if m.kind == "llama":
        yield from _linear(path + ".gate", m.ff, m.hidden, bias)
    yield from _linear(path + ".up", m.ff, m.hidden, bias)
    yield from _linear(path + ".down", m.hidden, m.ff, bias)


def _post_norm_layer(path, m):
    yield from _attention(path + ".attn.attention", m)
    yield from _norm(path + ".norm1", m.hidden)
    yield from _ffn(path + ".mlp.ffn", m)
    yield from _norm(path + ".norm2", m.hidden)


def _pre_norm_layer(path, m, bias):
    yield from _norm(path + ".attn.norm", m.hidden, bias)
    yield from _attention(path + ".attn.attention", m, bias)
    yield from _norm(path + ".mlp.norm", m.hidden, bias)
    yield from _ffn(path + ".mlp.ffn", m, bias)


def _seq2seq(m):
    for side in ("encoder", "decoder"):
        yield side + ".word.weight", (m.vocab, m.hidden)
        for i in range(m.layers):
            path = f"{side}.layers.{i}"
            yield from _post_norm_layer(path, m)
            if side == "decoder":
                yield from _attention(path + ".cross.attention", m)
                yield from _norm(path + ".norm3", m.hidden)
    yield from _linear("decoder.head", m.vocab, m.hidden)


def tensors(m):
    """(name, shape) of all parameters of a model."""
    d = m.hidden
    if m.kind == "seq2seq":
        yield from _seq2seq(m)
        return
    if m.kind == "vit":
        yield from _linear("patch", d, 768)
        yield "cls.weight", (1, d)
    else:
        yield "word.weight", (m.vocab, d)
    if m.kind in ("vit", "gpt2") or m.kind == "encoder" and not m.sinusoidal:
        yield "position.weight", (m.ctx, d)
    if m.kind == "encoder":
        if not m.sinusoidal:
            yield from _norm("emb_norm", d)
        for i in range(m.layers):
            yield from _post_norm_layer(f"layers.{i}", m)
        return
    for i in range(m.layers):
        yield from _pre_norm_layer(f"layers.{i}", m, m.kind != "llama")
    yield from _norm("final", d, m.kind != "llama")
    if m.kind == "llama" and m.name != "d5":
        yield from _linear("head", m.vocab, d, False)


def write_safetensors(m, path):
    """Writes all parameters; a file that is there already is kept."""
    if os.path.exists(path):
        return
    header, offset, order = {}, 0, list(tensors(m))
    for name, shape in order:
        end = offset + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, shape in order:
            f.write(tensor(name, shape).tobytes())
    os.replace(path + ".part", path)


def sinusoid(n, d):
    """Rows of sines, then cosines, as in the paper."""
    angle = np.arange(n)[:, None] / 10000 ** (np.arange(0, d, 2)[None] / d)
    return np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32)


def ids(row):
    """The ids of the row's input, the prompt or the source: i64 [length]. A prompt of one is the start, 1; else 0 to 2
    are left to words like stop."""
    m = rows.MODELS[row.model]
    if row.length == 1:
        return np.ones(1, np.int64)
    return np.random.default_rng(11).integers(3, m.vocab, row.length).astype(np.int64)


def patches():
    """The input of the ViT: f32 [1, 196, 768]."""
    return np.random.default_rng(11).standard_normal((1, 196, 768), dtype=np.float32)
