# SPDX-License-Identifier: Apache-2.0
"""The rows of compare.sh: which model, which sizes, and what one call or one token costs at least.

An encoder row is one call of `run`; a prefill row one call that appends a prompt; a decoding row one
token of greedy generation. `flops` counts matrix products only (two for a multiply-add), `bytes` what a
token must read: weights of the decoder, and keys and values of the context.
"""
from dataclasses import dataclass

@dataclass(frozen=True)
class Precision:
    """What matrices are stored as: the section of tfmc's model file, bytes of an element with its scales, the peak of
    products, and how far a peer's output may be from tfmc's, in parts of the largest value (formats of peers differ)."""

    name: str
    section: str
    bytes: float
    peak: str
    tolerance: float

    @property
    def type(self):
        """What peers are asked for."""
        return self.name.partition("_")[0]


PRECISIONS = {
    p.name: p
    for p in (
        Precision("f32", "", 4, "f32", 2e-4),
        Precision("bf16", "dtype: {weights: bf16, compute: bf16}\n", 2, "bf16", 0.1),
        Precision("int8", "quantize: q8\n", 34 / 32, "int8", 0.2),
        Precision("int8_row", "quantize: q8_row\ndtype: {compute: bf16}\n", 1, "int8", 0.2),
        Precision("q4", "quantize: q4\n", 18 / 32, "int8", 0.7),
    )
}


@dataclass(frozen=True)
class Model:
    """A network. kind: encoder, vit, gpt2, llama, qwen3moe, seq2seq. experts: of each layer, used for a token."""

    name: str
    kind: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ff: int
    vocab: int
    act: str
    eps: float
    ctx: int = 512
    sinusoidal: bool = False
    rope: str = "halves"
    experts: tuple[int, int] = (0, 0)

    @property
    def head_dim(self):
        """Features of one head."""
        return self.hidden // self.heads


@dataclass(frozen=True)
class Row:
    """A workload on a model. mode: run, prefill, decode; length: S, the prompt, or the source (seq2seq)."""

    name: str
    model: str
    mode: str
    length: int
    steps: int = 0
    large: bool = False


MODELS = {
    m.name: m
    for m in (
        Model("e1", "encoder", 6, 512, 8, 8, 2048, 32000, "relu", 1e-6, sinusoidal=True),
        Model("e2", "encoder", 12, 768, 12, 12, 3072, 30522, "gelu", 1e-12),
        Model("e3", "encoder", 6, 384, 12, 12, 1536, 30522, "gelu", 1e-12),
        Model("e4", "vit", 12, 192, 3, 3, 768, 0, "gelu", 1e-6, ctx=197),
        Model("e5", "encoder", 2, 64, 4, 4, 256, 1000, "gelu", 1e-12),
        Model("d1", "seq2seq", 6, 512, 8, 8, 2048, 32000, "relu", 1e-5, ctx=128, sinusoidal=True),
        Model("d2", "gpt2", 12, 768, 12, 12, 3072, 50257, "gelu_tanh", 1e-5, ctx=640),
        Model("d3", "llama", 22, 2048, 32, 4, 5632, 32000, "silu", 1e-5, ctx=256),
        Model("d4", "llama", 12, 768, 12, 12, 2048, 32000, "silu", 1e-5, ctx=256),
        Model("d5", "llama", 5, 64, 8, 4, 172, 512, "silu", 1e-5, ctx=512),
        Model("m8", "llama", 6, 768, 12, 4, 1024, 32000, "silu", 1e-5, ctx=256, experts=(8, 2)),
        Model("m16", "qwen3moe", 6, 768, 12, 4, 512, 32000, "silu", 1e-6, ctx=256, experts=(16, 4)),
    )
}

# Rows of files.py.
FILES = {name: Row(name, name, "decode", 64, steps=48) for name in ("d2", "d3", "d4", "m8", "m16")}

ROWS = {
    r.name: r
    for r in (
        Row("E1-64", "e1", "run", 64),
        Row("E1-512", "e1", "run", 512),
        Row("E2-128", "e2", "run", 128),
        Row("E2-512", "e2", "run", 512),
        Row("E3-32", "e3", "run", 32),
        Row("E3-128", "e3", "run", 128),
        Row("E4", "e4", "run", 197),
        Row("E5", "e5", "run", 16),
        Row("D1", "d1", "decode", 64, steps=64),
        Row("D2", "d2", "decode", 512, steps=48),
        Row("D2-p512", "d2", "prefill", 512),
        Row("D4", "d4", "decode", 64, steps=48),
        Row("D4-p128", "d4", "prefill", 128),
        Row("D5", "d5", "decode", 1, steps=256),
        Row("D3", "d3", "decode", 128, steps=16, large=True),
        Row("D3-p128", "d3", "prefill", 128, large=True),
    )
}


def attention_weights(m):
    """Numbers in the four projections of one attention."""
    return 2 * m.hidden * m.hidden + 2 * m.hidden * m.kv_heads * m.head_dim


def layer_weights(m):
    """Numbers in the matrices of one decoder layer, cross-attention's keys and values left out."""
    ffn = (3 if m.kind == "llama" else 2) * m.hidden * m.ff
    cross = 2 * m.hidden * m.hidden if m.kind == "seq2seq" else 0
    return attention_weights(m) + ffn + cross


def flops(row):
    """Operations of the products of one call; of a prefill the logits of the last position only."""
    m, n = MODELS[row.model], row.length
    if row.mode == "decode":
        return 2 * (m.layers * layer_weights(m) + m.vocab * m.hidden)
    seen = n * (n + 1) // 2 if row.mode == "prefill" else n * n
    total = m.layers * (2 * n * layer_weights(m) + 4 * seen * m.hidden)
    if m.kind == "vit":
        total += 2 * (n - 1) * 768 * m.hidden
    if row.mode == "prefill":
        total += 2 * m.vocab * m.hidden
    return total


def token_bytes(row, precision):
    """Bytes that one token in the middle of the generated ones reads at least; keys and values are f32."""
    m = MODELS[row.model]
    context = 2 * m.layers * m.kv_heads * m.head_dim * (row.length + row.steps // 2)
    return int(precision.bytes * (m.layers * layer_weights(m) + m.vocab * m.hidden) + 4 * context)
