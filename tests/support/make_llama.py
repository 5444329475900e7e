#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small seeded model of type llama, qwen2 or gpt_oss as a hub folder, and token ids to run it on. Pure Python.

    make_llama.py FOLDER [llama|qwen2|gpt_oss] [KEY=JSON ..]     further or other keys of config.json
"""
import json
import math
import os
import random
import struct
import sys

CONFIG = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
          "head_dim": 8, "intermediate_size": 40, "hidden_act": "silu", "vocab_size": 61, "rms_norm_eps": 1e-5,
          "max_position_embeddings": 40, "rope_theta": 100.0, "bos_token_id": 1, "eos_token_id": 2,
          "tie_word_embeddings": False}


def shapes(c, biases):
    d, ff, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    out = {"model.embed_tokens.weight": [v, d], "model.norm.weight": [d]}
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        out.update({at + "input_layernorm.weight": [d], at + "post_attention_layernorm.weight": [d],
                    at + "self_attn.q_proj.weight": [q, d], at + "self_attn.k_proj.weight": [kv, d],
                    at + "self_attn.v_proj.weight": [kv, d], at + "self_attn.o_proj.weight": [d, q]})
        if biases:
            out.update({f"{at}self_attn.{r}_proj.bias": [n] for r, n in (("q", q), ("k", kv), ("v", kv))})
        if c["model_type"] != "gpt_oss":
            out.update({at + "mlp.gate_proj.weight": [ff, d], at + "mlp.up_proj.weight": [ff, d], at + "mlp.down_proj.weight": [d, ff]})
            continue
        e = c["num_local_experts"]
        out.update({at + "self_attn.o_proj.bias": [d], at + "self_attn.sinks": [c["num_attention_heads"]], at + "mlp.router.weight": [e, d],
                    at + "mlp.router.bias": [e], at + "mlp.experts.gate_up_proj": [e, d, 2 * ff], at + "mlp.experts.gate_up_proj_bias": [e, 2 * ff],
                    at + "mlp.experts.down_proj": [e, ff, d], at + "mlp.experts.down_proj_bias": [e, d]})
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = [v, d]
    return out


def write(path, tensors):
    """tensors: name -> (type, shape, bytes)"""
    header, data = {}, b""
    for name, (kind, shape, part) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def floats(rng, name, shape):
    n = math.prod(shape)
    middle, width = (1.0, 0.2) if "norm" in name else (0.0, 0.3)
    return "F32", shape, struct.pack(f"<{n}f", *(rng.gauss(middle, width) for _ in range(n)))


def main():
    folder, kind = sys.argv[1], (sys.argv[2:] or ["llama"])[0]
    config = dict(CONFIG, model_type=kind)
    config.update({key: json.loads(value) for key, value in (arg.split("=", 1) for arg in sys.argv[3:])})
    rng = random.Random(7)
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)
    write(f"{folder}/model.safetensors",
          {name: floats(rng, name, shape) for name, shape in shapes(config, kind != "llama").items()})
    ids = [rng.randrange(config["vocab_size"]) for _ in range(2 * 37)]
    write(f"{folder}/inputs.safetensors", {"input_ids": ("I32", [2, 37], struct.pack("<74i", *ids)),
                                           "lengths": ("I32", [2], struct.pack("<2i", 37, 30))})


if __name__ == "__main__":
    main()
