#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models whose layers differ in the format of their matrices, as quantizers and converters leave them: random blocks. Pure Python.

    mixtures.py FOLDER        files NAME.gguf, hub folders NAME/, model files NAME.yaml; prints a line for each: what tfmc is given, the
                              bytes of its tensors where a block takes what the row of its width in formats.def takes

The recipes are those of llama.cpp's quantizer: `more` says which layers have more bits.
"""
import functools
import json
import math
import os
import random
import struct
import sys

import quantized
import to_gguf

LAYERS, D, FF, HEADS, KV, HEAD, VOCAB, EXPERTS = 8, 512, 512, 8, 1, 64, 64, 3
FLOATS = {"F32": (0, 4), "F16": (1, 2), "BF16": (30, 2)}
# Bytes of 256 elements in memory: those of the file, but scales and minima of 6 bits are stored with 8.
KEPT = {"F32": 1024, "F16": 512, "BF16": 512, "Q4_0": 144, "Q4_1": 160, "Q4_K": 148, "IQ4_NL": 144, "IQ4_XS": 138, "MXFP4": 144,
        "Q8_0": 272, "Q6_K": 210, "Q5_K": 180, "Q5_0": 176, "Q5_1": 192, "Q3_K": 114, "Q2_K": 84}


def more(i):
    return i < LAYERS // 8 or i >= 7 * LAYERS // 8 or (i - LAYERS // 8) % 3 == 2


def first(i):
    return i < LAYERS // 8


RECIPES = {
    "Q4_K_M": lambda role, i: "Q6_K" if role == "output" or role in ("v", "qkv", "down") and more(i) else "Q4_K",
    "Q4_K_S": lambda role, i: "Q6_K" if role == "output" else "Q5_K" if role == "v" and i < 4 or role == "down" and first(i) else "Q4_K",
    "Q5_K_M": lambda role, i: "Q6_K" if role == "output" or role in ("v", "qkv", "down") and more(i) else "Q5_K",
    "Q3_K_M": lambda role, i: "Q6_K" if role == "output" else "Q5_K" if role == "v" and i < 2 or role == "down" and first(i)
    else "Q4_K" if role in ("v", "o", "down") else "Q3_K",
    "Q2_K": lambda role, i: "Q6_K" if role == "output" else "Q3_K" if role in ("v", "o", "down") else "Q2_K",
    "Q5": lambda role, i: "Q8_0" if role == "output" else "Q5_1" if role in ("v", "down") else "Q5_0",
    "IQ4_XS": lambda role, i: "Q6_K" if role == "output" else "Q5_K" if role == "down" and first(i) else "IQ4_XS",
    "IQ4_NL": lambda role, i: "Q6_K" if role == "output" else "Q5_K" if role == "down" and first(i) else "IQ4_NL",
    "UD": lambda role, i: "Q6_K" if i < 3 else "Q4_K",
    "floats": lambda role, i: ("F32", "BF16", "F16")[min(i, 2)],
}


POOL = 1 << 20 # elements of each type, of which a matrix takes a part


@functools.cache
def pool(kind):
    """Bytes of a block, its elements, random blocks."""
    source = random.Random(kind)
    if kind in FLOATS:  # near 2^-5, with either sign
        size = FLOATS[kind][1]
        data = bytearray(source.randbytes(POOL * size))
        data[size - 1::size] = bytes((b & 0x83 | 0x28) if kind == "F16" else (b & 0x80 | 0x3c) for b in data[size - 1::size])
        return size, 1, bytes(data)
    _, elements, size, halves, _ = quantized.TYPES[kind]
    data = bytearray(quantized.random_blocks(kind, POOL // elements, source))
    for at in (b + h for b in range(0, len(data), size) for h in halves):  # small numbers: sums of many rows stay finite
        struct.pack_into("<e", data, at, struct.unpack_from("<e", data, at)[0] * (0.05 if elements == 256 else 0.3))
    return size, elements, bytes(data)


def blocks(source, kind, n):
    size, elements, data = pool(kind)
    at = source.randrange((POOL - n) // elements) * size
    return data[at:at + n // elements * size]


def gguf(path, arch, keys, shapes, recipe):
    """shapes: name -> (role, layer, shape), role None: F32. Gives the bytes in memory."""
    source, infos, body, kept = random.Random(5), b"", b"", 0
    for name, (role, i, shape) in shapes.items():
        kind, n = recipe(role, i) if role else "F32", math.prod(shape)
        data = blocks(source, kind, n) if role else struct.pack(f"<{n}f", *[1.0] * n)
        infos += to_gguf.text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        infos += struct.pack("<IQ", FLOATS[kind][0] if kind in FLOATS else quantized.TYPES[kind][0], len(body))
        body += data + bytes(-len(data) % 32)
        kept += n * KEPT[kind] // 256
    to_gguf.write(path, 3, {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in keys.items()}}, (len(shapes), infos, body))
    return kept


def llama(arch):
    keys = {"block_count": LAYERS, "context_length": 32, "embedding_length": D, "feed_forward_length": FF, "attention.head_count": HEADS,
            "attention.head_count_kv": KV, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0, "rope.dimension_count": HEAD,
            "vocab_size": VOCAB}
    out = {"token_embd.weight": ("table", 0, [VOCAB, D]), "output_norm.weight": (None, 0, [D]), "output.weight": ("output", 0, [VOCAB, D])}
    for i in range(LAYERS):
        at = f"blk.{i}."
        out.update({at + "attn_norm.weight": (None, i, [D]), at + "ffn_norm.weight": (None, i, [D]),
                    at + "attn_q.weight": ("q", i, [HEADS * HEAD, D]), at + "attn_k.weight": ("k", i, [KV * HEAD, D]),
                    at + "attn_v.weight": ("v", i, [KV * HEAD, D]), at + "attn_output.weight": ("o", i, [D, HEADS * HEAD])})
        if arch == "llama":
            out.update({at + "ffn_gate.weight": ("gate", i, [FF, D]), at + "ffn_up.weight": ("up", i, [FF, D]), at + "ffn_down.weight": ("down", i, [D, FF])})
            continue
        out.update({at + "attn_q_norm.weight": (None, i, [HEAD]), at + "attn_k_norm.weight": (None, i, [HEAD]),
                    at + "ffn_gate_inp.weight": (None, i, [EXPERTS, D]), at + "ffn_gate_exps.weight": ("gate", i, [EXPERTS, FF, D]),
                    at + "ffn_up_exps.weight": ("up", i, [EXPERTS, FF, D]), at + "ffn_down_exps.weight": ("down", i, [EXPERTS, D, FF])})
    if arch == "qwen3moe":
        keys.update({"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": FF, "attention.key_length": HEAD,
                     "attention.value_length": HEAD})
    return arch, keys, out


def gpt2():
    keys = {"block_count": LAYERS, "context_length": 32, "embedding_length": D, "feed_forward_length": FF, "attention.head_count": HEADS,
            "attention.layer_norm_epsilon": 1e-5, "vocab_size": VOCAB}
    out = {"token_embd.weight": ("output", 0, [VOCAB, D]), "position_embd.weight": (None, 0, [32, D])}
    out.update({f"output_norm.{x}": (None, 0, [D]) for x in ("weight", "bias")})
    for i in range(LAYERS):
        at = f"blk.{i}."
        for name, role, shape in (("attn_qkv", "qkv", [3 * D, D]), ("attn_output", "o", [D, D]), ("ffn_up", "up", [FF, D]), ("ffn_down", "down", [D, FF])):
            out.update({f"{at}{name}.weight": (role, i, shape), f"{at}{name}.bias": (None, i, shape[:1])})
        out.update({f"{at}{n}.{x}": (None, i, [D]) for n in ("attn_norm", "ffn_norm") for x in ("weight", "bias")})
    return "gpt2", keys, out


def hub(folder, kinds, experts=0):
    """A folder of type llama, with experts mixtral; kinds: (role, layer) -> type, roles of experts end in their number. Gives the
    bytes in memory."""
    config = {"model_type": "mixtral" if experts else "llama", "hidden_size": D, "num_hidden_layers": 4, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HEAD,
              "intermediate_size": FF, "hidden_act": "silu", "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "max_position_embeddings": 32,
              "rope_theta": 10000.0, "tie_word_embeddings": False}
    if experts:
        config.update({"num_local_experts": experts, "num_experts_per_tok": 2})
    source, kept, tensors = random.Random(6), 0, {}
    matrices = {"self_attn.q_proj": [HEADS * HEAD, D], "self_attn.k_proj": [KV * HEAD, D], "self_attn.v_proj": [KV * HEAD, D],
                "self_attn.o_proj": [D, HEADS * HEAD], "mlp.gate_proj": [FF, D], "mlp.up_proj": [FF, D], "mlp.down_proj": [D, FF]}
    shapes = {"model.embed_tokens.weight": ("table", 0, [VOCAB, D]), "model.norm.weight": (None, 0, [D]), "lm_head.weight": ("output", 0, [VOCAB, D])}
    for i in range(4):
        shapes.update({f"model.layers.{i}.{n}.weight": (None, i, [D]) for n in ("input_layernorm", "post_attention_layernorm")})
        at = f"model.layers.{i}."
        shapes.update({f"{at}{n}.weight": (n.split(".")[1].split("_")[0], i, shape) for n, shape in matrices.items() if "mlp" not in n or not experts})
        shapes.update({f"{at}block_sparse_moe.gate.weight": (None, i, [experts, D])} if experts else {})
        shapes.update({f"{at}block_sparse_moe.experts.{e}.{n}.weight": (f"{r}.{e}", i, [FF, D]) for e in range(experts)
                       for r, n in (("gate", "w1"), ("up", "w3"), ("down", "w2"))})
    for name, (role, i, shape) in shapes.items():
        kind, n = kinds(role, i) if role else "F32", math.prod(shape)
        tensors[name] = (kind, shape, blocks(source, kind, n))
        kept += n * FLOATS[kind][1]
    os.makedirs(folder)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)
    quantized.write_safetensors(f"{folder}/model.safetensors", tensors)
    return kept


def main():
    at = sys.argv[1]

    def say(name, kept):
        print(name, kept)

    for name, recipe in RECIPES.items():
        say(f"{name}.gguf", gguf(f"{at}/{name}.gguf", *llama("llama"), recipe))
    for name in ("Q4_K_M", "Q5_K_M"):
        say(f"gpt2_{name}.gguf", gguf(f"{at}/gpt2_{name}.gguf", *gpt2(), RECIPES[name]))
    say("qwen3moe_Q4_K_M.gguf", gguf(f"{at}/qwen3moe_Q4_K_M.gguf", *llama("qwen3moe"), RECIPES["Q4_K_M"]))
    say("first_f32", hub(f"{at}/first_f32", lambda role, i: "F32" if i == 0 else "BF16"))
    say("down_f16", hub(f"{at}/down_f16", lambda role, i: "F16" if (role, i) == ("down", 2) else "BF16"))
    say("experts", hub(f"{at}/experts", lambda role, i: "F32" if (role, i) == ("down.1", 1) else "BF16", EXPERTS))
    kept = hub(f"{at}/keeps", lambda role, i: "BF16")
    for name, rules in (("keep_first", '{"layers.0.**": keep, "layers.**": q8}'), ("two", '{"layers.1.mlp.**": q4, "layers.**": q8}')):
        with open(f"{at}/{name}.yaml", "w", encoding="utf-8") as f:
            f.write(f"tfmc: 1\nname: {name}\nhf: keeps/config.json\nweights: {{files: [keeps/model.safetensors]}}\nquantize: {rules}\n")
    per = sum(math.prod(s) for s in ([HEADS * HEAD, D], [KV * HEAD, D], [KV * HEAD, D], [D, HEADS * HEAD]))
    mlp = 3 * D * FF
    vectors = kept - 2 * (4 * (per + mlp) + 2 * VOCAB * D)
    say("keep_first.yaml", vectors + 4 * VOCAB * D + 2 * (per + mlp) + 3 * (per + mlp) * KEPT["Q8_0"] // 256)
    say("two.yaml", vectors + 4 * VOCAB * D + 3 * (per + mlp) * KEPT["Q8_0"] // 256 + per * KEPT["Q8_0"] // 256 + mlp * KEPT["Q4_0"] // 256)


if __name__ == "__main__":
    main()
