#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden tensors: PyTorch's own transformer modules with seeded weights, at small odd sizes.

    python3 make.py                rewrites model.safetensors and cases.safetensors of every folder here
    python3 make.py NAME ...       only of these folders

Of the folders in ACTIVATIONS it also writes what the modules compute (activations.safetensors), with the hooks of
examples/reference.

Needs PyTorch, numpy and safetensors. The weights are drawn here (numpy, seeded by the folder's name), not by
PyTorch's initialisation, so biases and norms are not trivial; PyTorch computes the expected outputs in
float64 from the weights as they are stored in float32. The model.yaml files are written by hand.
"""
import math
import os
import sys
import zlib

import numpy
import torch
from safetensors.numpy import save_file
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "examples", "reference"))
from torch_activations import Recorder  # noqa: E402

START, STOP = 1, 2
SMALLEST_MARGIN = 2e-3  # between the best and the second logit in the greedy cases
FEWEST_IDS = 6  # different ids in the greedy cases of a folder, taken together
SALTS = 300  # seeds that are tried for a folder


class Dull(Exception):
    """The greedy cases of a draw are decided narrowly or repeat one id: the next seed is taken."""


def sinusoid(length, d, layout, spacing, start=0):
    """[length, d], the four conventions of the model language."""
    j = numpy.arange(d // 2)
    w = 10000.0 ** (-2.0 * j / d) if spacing == "paper" else 10000.0 ** (-j / (d // 2 - 1))
    a = (numpy.arange(length) + start)[:, None] * w
    pair = [numpy.sin(a), numpy.cos(a)]
    table = numpy.concatenate(pair, 1) if layout == "halves" else numpy.stack(pair, 2).reshape(length, d)
    return torch.from_numpy(table)


def padding(lengths, size):
    """True at padded positions, as PyTorch wants it: [B, size]"""
    return torch.arange(size)[None, :] >= lengths[:, None]


def causal(size):
    """True where attention is not allowed: [size, size]"""
    return torch.ones(size, size, dtype=torch.bool).triu(1)


class Seq2seq(nn.Module):
    """nn.Transformer, post-norm, ReLU; one table for source, target and output; in_proj stored whole."""

    tables = ("embedding.weight",)
    vocab, d, heads, ff = 37, 20, 4, 36
    max_source, max_target = 12, 10

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.vocab, self.d)
        self.transformer = nn.Transformer(self.d, self.heads, 2, 2, self.ff, dropout=0.0, batch_first=True)

    def embed(self, ids):
        return self.embedding(ids) * math.sqrt(self.d) + sinusoid(ids.shape[1], self.d, "interleaved", "paper")

    def encode(self, src, lengths):
        pad = padding(lengths, src.shape[1])
        return self.transformer.encoder(self.embed(src), src_key_padding_mask=pad)

    def decode(self, tgt, memory, lengths):
        pad = padding(lengths, memory.shape[1])
        x = self.transformer.decoder(self.embed(tgt), memory, tgt_mask=causal(tgt.shape[1]),
                                     memory_key_padding_mask=pad)
        return x @ self.embedding.weight.T


class Seq2seqPrenorm(nn.Module):
    """nn.Transformer, norm_first, GELU, final norms; a table for each side; a head with bias."""

    tables = ("source_embedding.weight", "target_embedding.weight")
    source_vocab, target_vocab, d, heads, ff = 29, 37, 20, 4, 52
    max_source, max_target = 12, 10

    def __init__(self):
        super().__init__()
        self.source_embedding = nn.Embedding(self.source_vocab, self.d)
        self.target_embedding = nn.Embedding(self.target_vocab, self.d)
        self.transformer = nn.Transformer(self.d, self.heads, 1, 2, self.ff, dropout=0.0, activation="gelu",
                                          batch_first=True, norm_first=True)
        self.head = nn.Linear(self.d, self.target_vocab)

    def encode(self, src, lengths):
        x = self.source_embedding(src) + sinusoid(src.shape[1], self.d, "halves", "t2t", 1)
        return self.transformer.encoder(x, src_key_padding_mask=padding(lengths, src.shape[1]))

    def decode(self, tgt, memory, lengths):
        x = self.target_embedding(tgt) + sinusoid(tgt.shape[1], self.d, "halves", "paper")
        x = self.transformer.decoder(x, memory, tgt_mask=causal(tgt.shape[1]),
                                     memory_key_padding_mask=padding(lengths, memory.shape[1]))
        return self.head(x)


class Additive(nn.Module):
    """Attention over a source written out: in every layer Bahdanau's, with a bias for each position of the source and values that
    the layers share, then Luong's once; a pooled source begins every position of the target."""

    tables = ("source.weight", "target.weight")
    source_vocab, target_vocab, d, heads, hidden, layers = 29, 37, 20, 4, 25, 2
    max_source, max_target = 12, 10

    def __init__(self):
        super().__init__()
        d, hidden = self.d, self.hidden
        self.source = nn.Embedding(self.source_vocab, d)
        self.target = nn.Embedding(self.target_vocab, d)
        self.encoder = nn.TransformerEncoderLayer(d, self.heads, 33, dropout=0.0, batch_first=True)
        self.place, self.value = nn.Linear(d, 1), nn.Linear(d, d)
        self.self_attn = nn.ModuleList(nn.MultiheadAttention(d, self.heads, batch_first=True)
                                       for _ in range(self.layers))
        self.norm = nn.ModuleList(nn.LayerNorm(d) for _ in range(self.layers))
        self.query = nn.ModuleList(nn.Linear(d, hidden) for _ in range(self.layers))
        self.key = nn.ModuleList(nn.Linear(d, hidden, bias=False) for _ in range(self.layers))
        self.score = nn.ModuleList(nn.Linear(hidden, 1, bias=False) for _ in range(self.layers))
        self.general = nn.Linear(d, d, bias=False)
        self.head = nn.Linear(2 * d, self.target_vocab)

    def encode(self, src, lengths):
        x = self.source(src) + sinusoid(src.shape[1], self.d, "halves", "paper")
        return self.encoder(x, src_key_padding_mask=padding(lengths, src.shape[1]))

    def decode(self, tgt, memory, lengths):
        pad = padding(lengths, memory.shape[1])
        pooled = memory.masked_fill(pad[:, :, None], 0.0).sum(1) / lengths[:, None]
        x = 4 * self.target(tgt) + sinusoid(tgt.shape[1], self.d, "halves", "paper") + pooled[:, None]
        for i in range(self.layers):
            x = x + self.self_attn[i](x, x, x, attn_mask=causal(tgt.shape[1]), need_weights=False)[0]
            h = torch.tanh(self.query[i](x)[:, :, None] + self.key[i](memory)[:, None])
            e = self.score[i](h)[..., 0] + self.place(memory)[:, None, :, 0]
            e = e.masked_fill(pad[:, None], -math.inf)
            x = self.norm[i](x + torch.softmax(e, -1) @ self.value(memory))
        e = (self.general(x) @ memory.transpose(1, 2)).masked_fill(pad[:, None], -math.inf)
        return self.head(torch.cat([x, torch.softmax(e, -1) @ memory], -1))


class Encoder(nn.Module):
    """nn.TransformerEncoder, post-norm, GELU, learned positions, no final norm, logits at every position."""

    tables = ("tokens.weight", "positions.weight")
    vocab, d, heads, ff, labels, max_len = 31, 21, 3, 33, 5, 13

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(self.vocab, self.d)
        self.positions = nn.Embedding(self.max_len, self.d)
        layer = nn.TransformerEncoderLayer(self.d, self.heads, self.ff, dropout=0.0, activation="gelu",
                                           batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(self.d, self.labels)

    def forward(self, ids, lengths):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        hidden = self.encoder(x, src_key_padding_mask=padding(lengths, ids.shape[1]))
        return hidden, self.head(hidden)


class Decoder(nn.Module):
    """nn.TransformerEncoder with a causal mask: a decoder-only model, norm_first, final norm, tied head."""

    tables = ("tokens.weight",)
    vocab, d, heads, ff, max_len = 37, 20, 4, 36, 24

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(self.vocab, self.d)
        layer = nn.TransformerEncoderLayer(self.d, self.heads, self.ff, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(self.d), enable_nested_tensor=False)

    def forward(self, ids, lengths):
        x = self.tokens(ids) + sinusoid(ids.shape[1], self.d, "interleaved", "t2t")
        x = self.encoder(x, mask=causal(ids.shape[1]), src_key_padding_mask=padding(lengths, ids.shape[1]))
        return x @ self.tokens.weight.T


class RootMeanSquare(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * self.weight


def turn_halves(x, frequencies):
    """x [B, H, S, E]: features n and n + E/2 as a plane, by a rotation matrix."""
    angle = torch.arange(x.shape[2])[:, None] * frequencies
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def turn_interleaved(x, frequencies):
    """x [B, H, S, E]: features 2n and 2n + 1 as a complex number, times e^(i angle)."""
    angle = torch.arange(x.shape[2])[:, None] * frequencies
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def stretched(frequencies, factor, low, high, original):
    """The frequencies of Llama 3.1 for longer sequences."""
    turns = original * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / factor)


class RotaryLayer(nn.Module):
    heads, kv_heads, e = 4, 2, 6

    def __init__(self, d, ff):
        super().__init__()
        self.norm1, self.norm2 = RootMeanSquare(d), RootMeanSquare(d)
        self.q = nn.Linear(d, self.heads * self.e)
        self.k, self.v = (nn.Linear(d, self.kv_heads * self.e) for _ in range(2))
        self.o = nn.Linear(self.heads * self.e, d, bias=False)
        self.gate, self.up = (nn.Linear(d, ff, bias=False) for _ in range(2))
        self.down = nn.Linear(ff, d, bias=False)

    def forward(self, x, turn, keys):
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, self.e)).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (z.repeat_interleave(self.heads // self.kv_heads, 1) for z in (turn(k), v))
        y = nn.functional.scaled_dot_product_attention(turn(q), k, v, attn_mask=keys)
        x = x + self.o(y.transpose(1, 2).flatten(-2))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Rotary(nn.Module):
    """Rotary positions, grouped heads, RMS norms, gated feed-forward: two layers with halves, one with
    interleaved features of which the last two do not turn, its frequencies stretched."""

    tables = ("tokens.weight",)
    vocab, d, ff, max_len = 31, 20, 25, 24

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(self.vocab, self.d)
        self.layers = nn.ModuleList(RotaryLayer(self.d, self.ff) for _ in range(3))
        self.norm = RootMeanSquare(self.d)

    def forward(self, ids, lengths):
        keys = ~(causal(ids.shape[1]) | padding(lengths, ids.shape[1])[:, None, None, :])
        plain = 10000.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
        long = stretched(50.0 ** (-torch.arange(2, dtype=torch.float64) / 2), 4.0, 1.0, 4.0, 16.0)
        x = self.tokens(ids)
        for i, layer in enumerate(self.layers):
            turn = (lambda z: turn_halves(z, plain)) if i < 2 else (
                lambda z: torch.cat([turn_interleaved(z[..., :4], long), z[..., 4:]], -1))
            x = layer(x, turn, keys)
        return self.norm(x) @ self.tokens.weight.T


class SinkLayer(RotaryLayer):
    """Every head has one more logit, whose weight takes no value."""

    def __init__(self, d, ff):
        super().__init__(d, ff)
        self.sinks = nn.Parameter(torch.zeros(self.heads))

    def forward(self, x, turn, keys):
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, self.e)).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (z.repeat_interleave(self.heads // self.kv_heads, 1) for z in (turn(k), v))
        s = (turn(q) @ k.mT * self.e ** -0.5).masked_fill(~keys, -math.inf)
        sinks = self.sinks[None, :, None, None].expand(*s.shape[:3], 1)
        p = torch.cat([s, sinks], -1).softmax(-1)[..., :-1]
        x = x + self.o((p @ v).transpose(1, 2).flatten(-2))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Sinks(nn.Module):
    """Sinks; the first four positions are seen by all, or a window of three positions."""

    tables = ("tokens.weight",)
    vocab, d, ff, max_len, prefix, window = 31, 20, 25, 24, 4, 3
    prompts = (7,)

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(self.vocab, self.d)
        self.layers = nn.ModuleList(SinkLayer(self.d, self.ff) for _ in range(3))
        self.norm = RootMeanSquare(self.d)

    def forward(self, ids, lengths):
        i = torch.arange(ids.shape[1])
        real = ~padding(lengths, ids.shape[1])[:, None, None, :]
        prefix = ((i[None, :] <= i[:, None]) | (i[None, :] < self.prefix)) & real
        window = (i[None, :] <= i[:, None]) & (i[:, None] - i[None, :] < self.window) & real
        plain = 10000.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
        x = self.tokens(ids)
        for n, layer in enumerate(self.layers):
            x = layer(x, lambda z: turn_halves(z, plain), window if n == 1 else prefix)
        return self.norm(x) @ self.tokens.weight.T


class Nested(nn.Module):
    """Two stages; each goes twice through its own two layers."""

    tables = ("tokens.weight",)
    vocab, d, ff, max_len, n_stages, n_turns, n_layers = 31, 12, 13, 12, 2, 2, 2

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(self.vocab, self.d)
        self.stages = nn.ModuleList(nn.ModuleList(RotaryLayer(self.d, self.ff) for _ in range(self.n_layers))
                                    for _ in range(self.n_stages))
        self.norm = RootMeanSquare(self.d)

    def forward(self, ids, lengths):
        keys = ~(causal(ids.shape[1]) | padding(lengths, ids.shape[1])[:, None, None, :])
        plain = 10000.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
        x = self.tokens(ids)
        for stage in self.stages:
            for _ in range(self.n_turns):
                for layer in stage:
                    x = layer(x, lambda z: turn_halves(z, plain), keys)
        return self.norm(x) @ self.tokens.weight.T


class Graph(nn.Module):
    """Operators of the graph level that choose, count and multiply along any axis."""

    tables = ()

    def __init__(self):
        super().__init__()
        self.table = nn.Linear(7, 5, bias=False)

    def forward(self, case):
        x, y, ids = case["v"], case["rows"], case["ids"]
        values, chosen = (z[..., :3] for z in x.sort(dim=-1, descending=True, stable=True))
        last = x.clone()
        for t, at in enumerate(ids.tolist()):
            last[:, :, at] = y[:, :, t]
        return {
            "sums": x.cumsum(1), "more": x.cumsum(-1), "values": values, "chosen": chosen,
            "picked": x[:, :, ids], "every": x[:, 1:, 0:7:3].contiguous(), "put": last,
            "products": torch.einsum("bsi,oi->obs", x, self.table.weight),
            "shared": torch.einsum("bsi,bti->bst", x, x * 2.0), "total": torch.einsum("bsi->i", x),
            "outer": torch.einsum("bsi,o->boi", x, self.table.weight[:, 0]),
        }


class Front(nn.Module):
    """Convolutions and patches in front of an encoder layer: groups, dilation, stride, lengths, learned rows."""

    tables = ("marks.weight",)
    d, heads, ff, vocab, max_len, rows = 12, 3, 20, 9, 11, 2

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(6, 10, 3, padding=1)
        self.conv2 = nn.Conv1d(10, self.d, 5, padding=4, dilation=2, groups=2)
        self.front = nn.Parameter(torch.zeros(self.rows, self.d))
        self.layer = nn.TransformerEncoderLayer(self.d, self.heads, self.ff, dropout=0.0, batch_first=True)
        self.wave1 = nn.Conv1d(2, 5, 4, stride=3, padding=2, bias=False)
        self.wave2 = nn.Conv1d(5, 7, 3, stride=2)
        self.patch = nn.Conv2d(3, self.d, (3, 4), stride=(3, 4))
        self.plane = nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 3))
        self.marks = nn.Embedding(self.vocab, self.d)
        self.lanes = nn.Conv2d(3, 3, (3, 2), stride=(2, 1), padding=(1, 0), groups=3)
        self.pairs = nn.Conv2d(3, 6, 2, groups=3, bias=False)
        self.each = nn.Conv1d(5, 5, 3, stride=2, padding=2, dilation=2, groups=5, bias=False)
        self.long = nn.Conv1d(2, 4, 257, padding=130, groups=2)
        self.wide = nn.Conv2d(3, 3, 2, stride=(2, 1), padding=(1, 5), dilation=(2, 1), groups=3)

    def forward(self, case, lengths):
        x = zero_padding(case["frames"], lengths).transpose(1, 2)
        x = zero_padding(nn.functional.gelu(self.conv1(x)).transpose(1, 2), lengths).transpose(1, 2)
        x = self.conv2(x).transpose(1, 2)
        x = torch.cat([self.front.expand(len(x), -1, -1), x], 1)
        x = self.layer(x, src_key_padding_mask=padding(lengths + self.rows, x.shape[1]))
        wave = nn.functional.relu(self.wave1(case["wave"].transpose(1, 2)))
        marked = torch.stack([row[(ids[:n] == 5).int().argmax()]
                              for row, ids, n in zip(self.marks(case["ids"]), case["ids"], lengths)])
        return {"hidden": zero_padding(x, lengths + self.rows), "wave_out": self.wave2(wave).transpose(1, 2),
                "patches": self.patch(case["image"]).flatten(2).transpose(1, 2),
                "plane": self.plane(case["image"]), "marked": marked,
                "lanes": self.lanes(case["image"]), "wide": self.wide(case["image"]), "pairs": self.pairs(case["image"]),
                "each": self.each(wave).transpose(1, 2),
                "long": self.long(case["wave"].transpose(1, 2)).transpose(1, 2)}


class Mixture(nn.Module):
    """Experts chosen one row at a time: `weigh` makes the weights of all experts of a row from its logits [E]."""

    def __init__(self, d, ff, experts, gated, weigh, shared=False):
        super().__init__()
        self.router = nn.Linear(d, experts, bias=shared)
        names = ("gate", "up") if gated else ("up",)
        self.experts = nn.ModuleList(nn.ModuleDict({n: nn.Linear(d, ff) for n in names} | {"down": nn.Linear(ff, d)})
                                     for _ in range(experts))
        if shared:
            self.shared = nn.ModuleDict({"up": nn.Linear(d, ff), "down": nn.Linear(ff, d)})
            self.shared_gate = nn.Linear(d, 1, bias=False)
        self.weigh, self.has_shared = weigh, shared

    @staticmethod
    def run(e, x):
        h = nn.functional.silu(e["gate"](x)) * e["up"](x) if "gate" in e else nn.functional.relu(e["up"](x))
        return e["down"](h)

    def row(self, x):
        y = sum(w * self.run(e, x) for w, e in zip(self.weigh(self.router(x)), self.experts) if w != 0)
        return y + torch.sigmoid(self.shared_gate(x)) * self.run(self.shared, x) if self.has_shared else y

    def forward(self, x):
        return torch.stack([self.row(r) for r in x.reshape(-1, x.shape[-1])]).reshape(x.shape)


class BlockNorm(nn.Module):
    """x over its size: by `kind` its deviation from the mean, itself, or itself times one number; each row of heads may
    have weights of its own."""

    def __init__(self, kind, shape, bias, plus_one=False):
        super().__init__()
        self.kind, self.plus_one = kind, plus_one
        self.weight = nn.Parameter(torch.zeros(shape[:-1] + ((1,) if shape[:-1] else ()) if kind == "scale" else shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None

    def forward(self, x):
        if self.kind == "layer":
            x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * (self.weight + (1.0 if self.plus_one else 0.0))
        return x if self.bias is None else x + self.bias


class Grouped(nn.Module):
    """Each head of keys: its queries, then its keys, then its values, all rows of one matrix."""

    heads, groups, e = 4, 2, 3

    def __init__(self, d, bias, q_norm=None, k_norm=None, over_all=True):
        super().__init__()
        self.qkv, self.o = nn.Linear(d, (self.heads + 2 * self.groups) * self.e, bias), nn.Linear(self.heads * self.e, d)
        self.q_norm, self.k_norm, self.over_all = q_norm, k_norm, over_all

    def split(self, x):
        x = self.qkv(x).unflatten(-1, (self.groups, -1, self.e))
        return x[..., :-2, :].flatten(-3), x[..., -2, :].flatten(-2), x[..., -1, :].flatten(-2)

    def forward(self, x, memory, visible):
        q, k, v = self.split(x)[0], *self.split(memory)[1:]
        if self.over_all:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (z.unflatten(-1, (-1, self.e)) for z in (q, k, v))
        if not self.over_all:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        k, v = (z.repeat_interleave(self.heads // self.groups, 1) for z in (k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.o(y.transpose(1, 2).flatten(-2))


class Blocks(nn.Module):
    """Norms of every kind with 1 + weight and bias, of queries and keys too; q, k and v group by group over a memory;
    a sinusoid at given rows; pools over every axis."""

    tables = ()
    d, max_len, rows = 12, 11, 40

    def __init__(self):
        super().__init__()
        d, h, g, e = self.d, Grouped.heads, Grouped.groups, Grouped.e
        self.cross = Grouped(d, True, BlockNorm("layer", (h * e,), True, True), BlockNorm("layer", (g * e,), True, True))
        self.norm1 = BlockNorm("layer", (d,), True, True)
        self.self_all = Grouped(d, False, BlockNorm("rms", (h * e,), True), BlockNorm("rms", (g * e,), True))
        self.norm2 = BlockNorm("scale", (d,), True, True)
        self.self_each = Grouped(d, True, BlockNorm("layer", (h, e), True, True), BlockNorm("layer", (g, e), True, True), False)
        self.norm3 = BlockNorm("layer", (d,), False, True)
        self.self_scale = Grouped(d, False, BlockNorm("scale", (h, e), False, True), BlockNorm("scale", (g, e), False, True), False)
        self.norm4 = BlockNorm("rms", (d,), True, True)

    def forward(self, case, lengths):
        x, memory = case["v"], case["memory"]
        real = ~padding(lengths, x.shape[1])[:, None, None, :]
        x = zero_padding(x, lengths) + sinusoid(self.rows, self.d, "halves", "t2t")[case["at"]]
        kept = (~padding(case["memory_lengths"], memory.shape[1]))[:, None, None, :]
        x = self.norm1(x + self.cross(x, memory, kept))
        x = self.norm2(x + self.self_all(x, x, real & ~causal(x.shape[1])))
        x = self.norm3(x + self.self_each(x, x, real))
        x = zero_padding(self.norm4(x + self.self_scale(x, x, real)), lengths)
        wide, plain = x.unflatten(-1, (4, 3)), case["plain"]
        n = lengths[:, None, None]
        return {"hidden": x, "mean2": plain.mean(-1), "max2": plain.amax(-1), "cls2": plain[..., 0], "last2": plain[..., -1],
                "index2": plain[..., 5], "index0": plain[0], "mean4": wide.sum(1) / n, "last4": torch.stack([row[k - 1] for row, k in zip(wide, lengths)]),
                "max4": torch.stack([row[:k].amax(0) for row, k in zip(wide, lengths)]), "mean1": x[..., 2].sum(1) / lengths}


def after(r):
    top = r.topk(2)
    return torch.zeros_like(r).index_put((top.indices,), top.values.softmax(0))


def before(r):
    top = r.softmax(0).topk(3)
    return torch.zeros_like(r).index_put((top.indices,), 1.5 * top.values / top.values.sum())


def first(r):
    p = r.softmax(0)
    return torch.where(torch.arange(len(p)) == p.argmax(), p, 0.0)


class Experts(nn.Module):
    """Three mixtures behind each other: every order of softmax and choice, a shared expert, a bias of the router."""

    tables = ()
    d, max_len = 11, 9

    def __init__(self):
        super().__init__()
        self.a = Mixture(self.d, 7, 5, True, after)
        self.b = Mixture(self.d, 6, 4, False, before, shared=True)
        self.c = Mixture(self.d, 5, 3, False, first)

    def forward(self, case, lengths):
        x = case["x"]
        for layer in (self.a, self.b, self.c):
            x = x + layer(x)
        return {"y": zero_padding(x, lengths)}


# --- weights and inputs ----------------------------------------------------------------------------------


def draw_weights(model, rng):
    """Tables ~ N(0, 1/d), matrices ~ N(0, 4/in), biases ~ 0.1 N(0, 1), sinks ~ N(0, 1), norm weights ~ 1 + 0.2 N(0, 1)."""
    weights = {}
    for name, parameter in model.state_dict().items():
        draw = numpy.asarray(rng.standard_normal(tuple(parameter.shape)))
        if draw.ndim == 2:
            draw *= (1.0 if name in model.tables else 2.0) * parameter.shape[1] ** -0.5
        elif "norm" in name and name.endswith("weight"):
            draw = 1.0 + 0.2 * draw
        elif not name.endswith("sinks"):
            draw *= 0.1
        weights[name] = numpy.asarray(draw, numpy.float32)
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    return weights


def draw_ids(rng, shape, vocab):
    return torch.from_numpy(rng.integers(3, vocab, shape))


def zero_padding(x, lengths):
    return x.masked_fill(padding(lengths, x.shape[1])[:, :, None], 0.0)


def generate_greedy(step, count):
    """`count` ids by arg-max of step(ids so far) -> logits [V]; all margins must be clear."""
    ids = []
    for _ in range(count):
        best = torch.sort(step(ids), descending=True)
        if best.values[0] - best.values[1] < SMALLEST_MARGIN:
            raise Dull
        ids.append(int(best.indices[0]))
    return torch.tensor(ids)


# --- cases -----------------------------------------------------------------------------------------------


def seq2seq_cases(model, rng):
    source_vocab = getattr(model, "source_vocab", None) or model.vocab
    target_vocab = getattr(model, "target_vocab", None) or model.vocab
    cases = {}
    sizes = {"len1": (1, 1, 1), "len7": (1, 7, 5), "one_row": (1, 7, 1),
             "longest": (1, model.max_source, model.max_target), "batch3": (3, 7, 5)}
    for name, (batch, s, t) in sizes.items():
        src, tgt = draw_ids(rng, (batch, s), source_vocab), draw_ids(rng, (batch, t), target_vocab)
        tgt[:, 0] = START
        lengths, tgt_lengths = torch.full((batch,), s), torch.full((batch,), t)
        case = {"src": src, "tgt": tgt}
        if batch == 3:
            lengths, tgt_lengths = torch.tensor([5, 7, 1]), torch.tensor([5, 1, 3])
            case.update(lengths=lengths, decoder_lengths=tgt_lengths)
        memory = model.encode(src, lengths)
        logits = model.decode(tgt, memory, lengths)
        case.update(memory=zero_padding(memory, lengths), logits=zero_padding(logits, tgt_lengths))
        cases[name] = case
    for name, s in (("greedy1", 1), ("greedy7", 7), ("greedy12", model.max_source)):
        src = draw_ids(rng, (1, s), source_vocab)
        memory = model.encode(src, torch.tensor([s]))
        new = generate_greedy(
            lambda ids: model.decode(torch.tensor([[START] + ids]), memory, torch.tensor([s]))[0, -1],
            model.max_target - 1)
        cases[name] = {"src": src, "new_tokens": new}
    return cases


def plain_cases(model, rng, outputs):
    """Forward cases of a model with one input; `outputs` names what it returns."""
    cases = {}
    sizes = {"len1": (1, 1), "len7": (1, 7), "longest": (1, model.max_len), "batch3": (3, 7)}
    for name, (batch, s) in sizes.items():
        ids = draw_ids(rng, (batch, s), model.vocab)
        lengths = torch.full((batch,), s)
        case = {"input_ids": ids}
        if batch == 3:
            lengths = case["lengths"] = torch.tensor([4, 1, 7])
        got = model(ids, lengths)
        got = got if isinstance(got, tuple) else (got,)
        case.update({output: zero_padding(x, lengths) for output, x in zip(outputs, got)})
        cases[name] = case
    return cases


def encoder_cases(model, rng):
    return plain_cases(model, rng, ["hidden", "logits"])


def decoder_cases(model, rng):
    cases = plain_cases(model, rng, ["logits"])
    for s in getattr(model, "prompts", (1, 7)):
        name = f"greedy{s}"
        prompt = draw_ids(rng, (1, s), model.vocab)
        new = generate_greedy(lambda ids: model(torch.cat([prompt, torch.tensor([ids], dtype=torch.int64)], 1),
                                                torch.tensor([s + len(ids)]))[0, -1], model.max_len - s)
        cases[name] = {"input_ids": prompt, "new_tokens": new}
    return cases


def graph_cases(model, rng):
    """The ids name one column twice; the later one wins."""
    cases = {}
    for name, batch, s in (("one", 1, 3), ("longest", 2, 11)):
        case = {key: torch.from_numpy(rng.standard_normal(shape).astype(numpy.float32)).double() for key, shape in
                (("v", (batch, s, 7)), ("rows", (batch, s, 4)))}
        case["v"][0, 0, 2] = case["v"][0, 0, 5]
        case["ids"] = torch.tensor([6, 0, 3, 0])
        cases[name] = {**case, **model(case)}
    return cases


def front_cases(model, rng):
    """`marked` has the mark twice, beyond the length, and not at all."""
    cases = {}
    for name, lengths in (("len1", [1]), ("longest", [model.max_len]), ("batch3", [7, 3, 5])):
        batch, s = len(lengths), max(lengths)
        case = {key: torch.from_numpy(rng.standard_normal(shape).astype(numpy.float32)).double() for key, shape in
                (("frames", (batch, s, 6)), ("wave", (batch, 21, 2)), ("image", (batch, 3, 6, 8)))}
        case["ids"] = torch.from_numpy(rng.integers(6, model.vocab, (batch, s)))
        case["ids"][0, s // 3] = case["ids"][0, s // 2] = case["ids"][batch - 1, s - 1] = 5
        case["lengths"] = torch.tensor(lengths)
        cases[name] = {**case, **model(case, case["lengths"])}
    return cases


def expert_cases(model, rng):
    cases = {}
    for name, lengths in (("len1", [1]), ("longest", [model.max_len]), ("batch3", [7, 3, 5])):
        x = torch.from_numpy(rng.standard_normal((len(lengths), max(lengths), model.d)).astype(numpy.float32)).double()
        case = {"x": x, "lengths": torch.tensor(lengths)}
        cases[name] = {**case, **model(case, case["lengths"])}
    return cases


def block_cases(model, rng):
    cases = {}
    for name, lengths in (("len1", [1]), ("longest", [model.max_len]), ("batch3", [7, 3, 5])):
        batch, s = len(lengths), max(lengths)
        case = {key: torch.from_numpy(rng.standard_normal(shape).astype(numpy.float32)).double() for key, shape in
                (("v", (batch, s, model.d)), ("plain", (batch, s, 7)), ("memory", (batch, 5, model.d)))}
        case["at"] = torch.from_numpy(rng.integers(0, model.rows, (batch, s)))
        case["lengths"] = torch.tensor(lengths)
        case["memory_lengths"] = torch.from_numpy(rng.integers(1, 6, batch))
        cases[name] = {**case, **model(case, case["lengths"])}
    return cases


# folder: (module, its cases)
MODELS = {
    "torch_seq2seq": (Seq2seq, seq2seq_cases),
    "torch_seq2seq_prenorm": (Seq2seqPrenorm, seq2seq_cases),
    "torch_additive": (Additive, seq2seq_cases),
    "torch_encoder": (Encoder, encoder_cases),
    "torch_decoder": (Decoder, decoder_cases),
    "torch_rotary": (Rotary, decoder_cases),
    "torch_sinks": (Sinks, decoder_cases),
    "torch_nested": (Nested, decoder_cases),
    "torch_graph": (Graph, graph_cases),
    "torch_front": (Front, front_cases),
    "torch_experts": (Experts, expert_cases),
    "torch_blocks": (Blocks, block_cases),
}


# Modules of PyTorch and the steps of model.yaml that compute the same, and the case that is recorded.
ACTIVATIONS = {
    "torch_encoder": ("batch3", {
        "tokens": "tokens",
        "encoder.layers.{i}.self_attn": "layers.{i}.self.attention",
        "encoder.layers.{i}.norm1": "layers.{i}.norm1",
        "encoder.layers.{i}.linear1": "layers.{i}.ff.ffn.linear",
        "encoder.layers.{i}.linear2": "layers.{i}.ff.ffn",
        "encoder.layers.{i}.norm2": "layers.{i}.norm2",
        "head": "head",
    }),
}


def record(name, model, cases):
    chosen, mapping = ACTIVATIONS[name]
    case = cases[chosen]
    with Recorder(model, mapping) as recorder:
        model(case["input_ids"], case["lengths"])
    path = os.path.join(HERE, name, "activations.safetensors")
    recorder.save(path, {key: case[key] for key in ("input_ids", "lengths")},
                  {key: x for key, x in case.items() if key not in ("input_ids", "lengths")})
    os.chmod(path, 0o644)


def draw(name):
    """The module, weights and cases of a folder: the first seed whose greedy cases are clear and lively."""
    module, cases_of = MODELS[name]
    model = module().double().eval()
    for salt in range(SALTS):
        rng = numpy.random.default_rng([zlib.crc32(name.encode()), salt])
        weights = draw_weights(model, rng)
        try:
            cases = cases_of(model, rng)
        except Dull:
            continue
        chosen = [case["new_tokens"] for case in cases.values() if "new_tokens" in case]
        if not chosen or len(torch.cat(chosen).unique()) >= FEWEST_IDS:
            return model, weights, cases, salt
    raise SystemExit(f"{name}: no seed of {SALTS} has good greedy cases")


def store(folder, file, tensors):
    """float64 becomes float32, ids become int32"""
    os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    path = os.path.join(HERE, folder, file)
    save_file({name: numpy.ascontiguousarray(x, numpy.int32 if x.dtype.kind == "i" else numpy.float32)
               for name, x in tensors.items()}, path)
    os.chmod(path, 0o644)


def main():
    torch.backends.mha.set_fastpath_enabled(False)
    for name in sys.argv[1:] or MODELS:
        with torch.no_grad():
            model, weights, cases, salt = draw(name)
            if name in ACTIVATIONS:
                record(name, model, cases)
        store(name, "model.safetensors", weights)
        store(name, "cases.safetensors", {f"{case}.{key}": x.numpy() for case, tensors in cases.items()
                                          for key, x in tensors.items()})
        print(f"{name}: salt {salt}")


if __name__ == "__main__":
    main()
