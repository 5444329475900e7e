# SPDX-License-Identifier: Apache-2.0
"""The models in tfmc's model language. Sizes are fixed as those of the peers are; names of stored tensors are the paths."""

POST_NORM = """\
      - residual: {id: attn, body: [attention]}
      - norm: {id: norm1}
      - residual: {id: mlp, body: [ffn]}
      - norm: {id: norm2}
"""
PRE_NORM = """\
      - residual: {id: attn, body: [norm, attention]}
      - residual: {id: mlp, body: [norm, ffn]}
"""
CROSS = """\
          - residual: {id: attn, body: [attention: {mask: causal}]}
          - norm: {id: norm1}
          - residual: {id: cross, body: [attention: {memory: encoder}]}
          - norm: {id: norm3}
          - residual: {id: mlp, body: [ffn]}
          - norm: {id: norm2}
"""
SINUSOIDAL = "positions: {kind: sinusoidal, layout: halves, spacing: paper}"


def _frame(m, name, dims, inputs, defaults, body, tail):
    act = f"{{act: {m.act}, dim: {m.ff}}}"
    if m.kind == "llama":
        act = f"{{kind: gated, act: {m.act}, dim: {m.ff}, bias: false}}"
    norm = "rms" if m.kind == "llama" else "layer"
    return (
        f"tfmc: 1\nname: {name}\ndims: {dims}\ninputs:\n{inputs}defaults:\n"
        f"  norm: {{kind: {norm}, eps: {m.eps!r}}}\n  attention: {defaults}\n  ffn: {act}\n"
        f"model:\n{body}{tail}weights:\n  files: [{m.name}.safetensors]\n  map: identity\n"
    )


def _repeat(m, body):
    return f"  - repeat: {{id: layers, count: {m.layers}}}\n    body:\n{body}"


def encoder(m, name, length):
    """ids [1, length] to hidden states, norms after the residuals."""
    word = f"  - embed: {{id: word, vocab: {m.vocab}, dim: {m.hidden}"
    if m.sinusoidal:
        front = word + f", scale: {m.hidden} ** 0.5}}\n  - {SINUSOIDAL}\n"
    else:
        front = word + f"}}\n  - positions: {{id: position, kind: learned, len: {m.ctx}}}\n  - norm: {{id: emb_norm}}\n"
    return _frame(m, name, f"{{B: 1, S: {length}}}", "  ids: {shape: [B, S], dtype: i32}\n",
                  f"{{heads: {m.heads}, mask: none}}", front + _repeat(m, POST_NORM), "outputs: {y: x}\n")


def vit(m, name):
    """patches [1, 196, 768] to hidden states [1, 197, D], norms before."""
    front = (
        f"  - linear: {{id: patch, out: {m.hidden}}}\n  - prepend: {{id: cls}}\n"
        f"  - positions: {{id: position, kind: learned, len: {m.ctx}}}\n"
    )
    return _frame(m, name, f"{{B: 1, S: {m.ctx - 1}}}", "  patches: {shape: [B, S, 768], dtype: f32}\n",
                  f"{{heads: {m.heads}, mask: none}}", front + _repeat(m, PRE_NORM) + "  - norm: {id: final}\n",
                  "outputs: {y: x}\n")


def causal(m, name, prompt):
    """A decoder that generates: GPT-2 (learned positions, tied head) or Llama."""
    front = f"  - embed: {{id: word, vocab: {m.vocab}, dim: {m.hidden}}}\n"
    attention = f"{{heads: {m.heads}, kv_heads: {m.kv_heads}, mask: causal"
    if m.kind == "gpt2":
        front += f"  - positions: {{id: position, kind: learned, len: {m.ctx}}}\n"
        attention += "}"
    else:
        attention += f", bias: false, rope: {{theta: 10000, layout: {m.rope}}}}}"
    tie = ", tie: word" if m.kind == "gpt2" or m.name == "d5" else ""
    body = front + _repeat(m, PRE_NORM) + (
        f"  - norm: {{id: final}}\n  - linear: {{id: head, out: {m.vocab}, bias: false{tie}}}\n")
    tail = (
        "outputs: {logits: x}\n"
        f"generate: {{kind: causal, tokens: ids, start: 1, stop: 2, max_len: {m.ctx}}}\n"
    )
    return _frame(m, name, f"{{B: 1, S: 1..{max(prompt, 2)}}}", "  ids: {shape: [B, S], dtype: i32}\n", attention, body, tail)


def seq2seq(m, name, source):
    """Encoder and decoder, norms after the residuals, a head of its own."""
    embed = f"    body:\n      - embed: {{id: word, vocab: {m.vocab}, dim: {m.hidden}, scale: {m.hidden} ** 0.5}}\n"
    embed += f"      - {SINUSOIDAL}\n      - repeat: {{id: layers, count: {m.layers}}}\n        body:\n"
    indented = "".join("    " + line + "\n" for line in POST_NORM.splitlines())
    body = (
        f"  encoder:\n    input: src\n{embed}{indented}"
        f"  decoder:\n    input: tgt\n{embed}{CROSS}      - linear: {{id: head, out: {m.vocab}}}\n"
    )
    tail = (
        "outputs: {memory: encoder, logits: decoder}\n"
        f"generate: {{kind: seq2seq, source: src, tokens: tgt, start: 1, stop: 2, max_len: {m.ctx}}}\n"
    )
    return _frame(m, name, f"{{B: 1, S: 1..{source}, T: 1..4}}",
                  "  src: {shape: [B, S], dtype: i32}\n  tgt: {shape: [B, T], dtype: i32}\n",
                  f"{{heads: {m.heads}, mask: none}}", body, tail)


def text(m, name, row):
    """The model file of a row."""
    if m.kind == "encoder":
        return encoder(m, name, row.length)
    if m.kind == "vit":
        return vit(m, name)
    if m.kind == "seq2seq":
        return seq2seq(m, name, row.length)
    return causal(m, name, row.length)
