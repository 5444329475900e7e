#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Writes a Transformer encoder, or a decoder like GPT-2, for measurements: OUT/NAME.yaml and the seeded random weights it
names.

    make_encoder.py e2 --out DIR                    BERT-base: 12 layers, D 768, H 12, F 3072
    make_encoder.py e2 --out DIR --layers 48        the same with 48 layers
    make_encoder.py e3 --out DIR --name e3_v3       another name (the prefix of the object's symbols)

Needs nothing beside Python. The numbers come from one seeded block that every tensor reads from a place
of its own: the same bytes everywhere, and fast. Only --distinct layers are stored, later layers read them
again through weights.map (the object holds every layer all the same); --full stores every layer.
"""
import argparse
import array
import json
import os
import random
import sys

PRESETS = {
    # Transformer-base encoder, BERT-base, MiniLM, tiny; GPT-2 small
    "e1": dict(layers=6, hidden=512, heads=8, ff=2048, act="relu", vocab=32000, kind="sinusoidal", eps="1e-6"),
    "e2": dict(layers=12, hidden=768, heads=12, ff=3072, act="gelu", vocab=30522, kind="learned", eps="1e-12"),
    "e3": dict(layers=6, hidden=384, heads=12, ff=1536, act="gelu", vocab=30522, kind="learned", eps="1e-12"),
    "e5": dict(layers=2, hidden=64, heads=4, ff=256, act="gelu", vocab=1000, kind="learned", eps="1e-12"),
    "d2": dict(layers=12, hidden=768, heads=12, ff=3072, act="gelu_tanh", vocab=50257, kind="causal", eps="1e-5"),
}
BLOCK = 1 << 18  # numbers in the random block
SCALE = 0.02


def layer_tensors(c):
    """(role in the file, shape, mean) of one layer."""
    d, f = c.hidden, c.ff
    for role in "qkvo":
        yield f"attention.{role}.weight", (d, d), 0
        yield f"attention.{role}.bias", (d,), 0
    yield "ffn.up.weight", (f, d), 0
    yield "ffn.up.bias", (f,), 0
    yield "ffn.down.weight", (d, f), 0
    yield "ffn.down.bias", (d,), 0
    for norm in ("norm1", "norm2"):
        yield f"{norm}.weight", (d,), 1
        yield f"{norm}.bias", (d,), 0


def tensors(c):
    yield "word.weight", (c.vocab, c.hidden), 0
    if c.kind != "sinusoidal":
        yield "position.weight", (c.max_len, c.hidden), 0
        yield "emb_norm.weight", (c.hidden,), 1
        yield "emb_norm.bias", (c.hidden,), 0
    for i in range(c.distinct):
        for role, shape, mean in layer_tensors(c):
            yield f"layer{i}.{role}", shape, mean


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def random_block(seed, mean):
    generator = random.Random(seed)
    values = array.array("f", (generator.gauss(mean, SCALE) for _ in range(BLOCK)))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def write_weights(c, path):
    header, offset, order = {}, 0, list(tensors(c))
    for name, shape, _ in order:
        end = offset + 4 * count(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    total = 8 + len(text) + offset
    if os.path.exists(path) and os.path.getsize(path) == total:
        with open(path, "rb") as f:
            if f.read(8 + len(text)) == len(text).to_bytes(8, "little") + text:
                return
    blocks = {mean: random_block(c.seed, mean) * 2 for mean in (0, 1)}
    places = random.Random(c.seed + 1)
    with open(path + ".part", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, shape, mean in order:
            left, at = 4 * count(shape), 4 * places.randrange(BLOCK)
            while left:
                n = min(left, 4 * BLOCK)
                f.write(blocks[mean][at : at + n])
                left -= n
    os.replace(path + ".part", path)


def model_text(c):
    causal = c.kind == "causal"
    learned = c.kind != "sinusoidal"
    positions = (
        f"  - positions: {{id: position, kind: learned, len: {c.max_len}}}\n" + ("" if causal else "  - norm: {id: emb_norm}\n")
        if learned
        else "  - positions: {kind: sinusoidal, layout: halves, spacing: paper}\n"
    )
    embedding = "  - embed: {id: word, vocab: vocab, dim: d}\n" if learned else (
        "  - embed: {id: word, vocab: vocab, dim: d, scale: d ** 0.5}\n"
    )
    layers = ",".join(f"{i}={i % c.distinct}" for i in range(c.layers))
    maps = [("word.weight", "word.weight")]
    if learned:
        maps += [("position.weight", "position.weight"), ("emb_norm.{w}", "emb_norm.{w}")]
    if causal:
        maps[-1] = ("final.{w}", "emb_norm.{w}")
    maps += [
        ("layers.{i}.attn.attention.{r}.{w}", f"layer{{i:{layers}}}.attention.{{r}}.{{w}}"),
        ("layers.{i}.mlp.ffn.{r}.{w}", f"layer{{i:{layers}}}.ffn.{{r}}.{{w}}"),
    ]
    where = ".attn", ".mlp"
    body = """      - residual: {id: attn, body: [norm: {id: norm1}, attention]}
      - residual: {id: mlp, body: [norm: {id: norm2}, ffn]}
"""
    if not c.pre_norm:
        where = "", ""
        body = """      - residual: {id: attn, body: [attention]}
      - norm: {id: norm1}
      - residual: {id: mlp, body: [ffn]}
      - norm: {id: norm2}
"""
    maps += [(f"layers.{{i}}{place}.norm{n}.{{w}}", f"layer{{i:{layers}}}.norm{n}.{{w}}")
             for n, place in enumerate(where, 1)]
    lengths = "" if causal else ", lengths: lengths"
    default = "" if causal else "  lengths: {shape: [B], dtype: i32, default: S}\n"
    tail = "outputs: {last_hidden_state: x}\n"
    if causal:
        tail = f"""  - norm: {{id: final}}
  - linear: {{id: head, out: vocab, bias: false, tie: word}}
outputs: {{logits: x}}
generate: {{kind: causal, tokens: input_ids, start: 1, stop: 2, max_len: {c.max_len}}}
"""
    return f"""tfmc: 1
name: {c.name}
params: {{d: {c.hidden}, heads: {c.heads}, ff: {c.ff}, layers: {c.layers}, vocab: {c.vocab}}}
dims: {{B: 1..{c.max_batch}, S: 1..{c.max_len}}}
inputs:
  input_ids: {{shape: [B, S], dtype: i32{lengths}}}
{default}defaults:
  norm: {{kind: layer, eps: {c.eps}}}
  attention: {{heads: heads, mask: {"causal" if causal else "none"}}}
  ffn: {{act: {c.act}, dim: ff}}
model:
{embedding}{positions}  - repeat: {{id: layers, count: layers}}
    body:
{body}{tail}weights:
  files: [{c.weights}]
  map:
""" + "".join(f'    "{pattern}": "{source}"\n' for pattern, source in maps)


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("preset", choices=sorted(PRESETS))
    p.add_argument("--out", required=True, help="folder for NAME.yaml and the weights")
    p.add_argument("--name", help="name of the model (default: the preset)")
    p.add_argument("--max-batch", type=int, default=8)
    p.add_argument("--max-len", type=int, default=512)
    p.add_argument("--distinct", type=int, default=2, help="layers stored in the file")
    p.add_argument("--full", action="store_true", help="store every layer")
    p.add_argument("--pre-norm", action="store_true", help="norms in front of attention and FFN (no norm at the end)")
    p.add_argument("--seed", type=int, default=1)
    for key, value in PRESETS["e2"].items():
        p.add_argument(f"--{key}", type=type(value))
    c = p.parse_args()
    for key, value in PRESETS[c.preset].items():
        if getattr(c, key) is None:
            setattr(c, key, value)
    c.distinct = c.layers if c.full else min(c.distinct, c.layers)
    c.name = c.name or c.preset
    c.pre_norm = c.pre_norm or c.kind == "causal"
    c.weights = f"{c.preset}-{c.hidden}-{c.ff}-{c.distinct}.safetensors"
    return c


def main():
    c = read_arguments()
    os.makedirs(c.out, exist_ok=True)
    write_weights(c, os.path.join(c.out, c.weights))
    path = os.path.join(c.out, c.name + ".yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(model_text(c))
    print(path)


main()
