#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model of a hub folder (config.json, model.safetensors, float32) as a GGUF file, as converters do.

    to_gguf.py FOLDER OUT.gguf [--type f32|f16|bf16] [--version 2|3] [--parts N] [--separate-experts] [--letters]

Written after what converters do to each family, not after tfmc's presets: names, orders of rows, 1 + weight of
norms, [out, in]. The families are those of FAMILIES. --letters: with a tokenizer whose pieces are letters. Pure Python.
"""
import argparse
import json
import math
import struct

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPES = {"f32": (0, 4), "f16": (1, 2), "bf16": (30, 2)}


def read_safetensors(path):
    """name -> (shape, list of floats)"""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack_from("<Q", data)[0]
    out = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n + at for at in entry["data_offsets"])
        if entry["dtype"] != "F32":
            raise SystemExit(f"{path}: {name} is {entry['dtype']}, not F32")
        out[name] = (entry["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])))
    return out


# ---- tensors -----------------------------------------------------------------------------------------

def rows_of(tensor):
    shape, values = tensor
    width = len(values) // shape[0] if shape[0] else 0
    return [values[i * width:(i + 1) * width] for i in range(shape[0])]


def from_rows(shape, rows):
    return shape, [v for row in rows for v in row]


def interleave(tensor, heads):
    """Rows of each head from halves to pairs: what is done to queries and keys of llama."""
    rows, out = rows_of(tensor), []
    size = len(rows) // heads
    for h in range(heads):
        head = rows[h * size:(h + 1) * size]
        for i in range(size // 2):
            out += [head[i], head[i + size // 2]]
    return from_rows(tensor[0], out)


def ungroup(tensor, heads):
    """Rows q, k, v of each head to all of q, of k, of v."""
    rows = rows_of(tensor)
    size = len(rows) // heads // 3
    return from_rows(tensor[0], [rows[(h * 3 + part) * size + i] for part in range(3) for h in range(heads)
                                 for i in range(size)])


def transpose(tensor):
    (n, m), values = tensor
    return [m, n], [values[i * m + j] for j in range(m) for i in range(n)]


def separate_groups(tensor, groups, head):
    """Rows of each group (queries, one key, one value) to all of q, of k, of v: what is done to Falcon's."""
    rows, width = rows_of(tensor), tensor[0][0] // groups
    out = []
    for first, last in ((0, width - 2 * head), (width - 2 * head, width - head), (width - head, width)):
        for g in range(groups):
            out += rows[g * width + first:g * width + last]
    return from_rows(tensor[0], out)


def plus_one(tensor):
    return tensor[0], [v + 1 for v in tensor[1]]


# ---- families ----------------------------------------------------------------------------------------
# Each takes (config, tensors) and gives (architecture, metadata without prefix, {name: tensor}).

def rename(tensors, prefix, layers, table, top):
    """table: name within a layer -> name; top: whole names. Other tensors are left out."""
    out = {new: tensors[old] for old, new in top.items() if old in tensors}
    for i in range(layers):
        for old, new in table.items():
            for end in ("weight", "bias"):
                name = f"{prefix.format(i)}.{old}.{end}"
                if name in tensors:
                    out[f"blk.{i}.{new}.{end}"] = tensors[name]
    return out


def both(old, new):
    return {f"{old}.{end}": f"{new}.{end}" for end in ("weight", "bias")}


LLAMA_LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
               "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
               "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
               "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "block_sparse_moe.gate": "ffn_gate_inp"}
LLAMA_TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}


def theta(c):
    rope = c.get("rope_parameters", {})
    return float(c["rope_theta"] if "rope_theta" in c else rope.get("full_attention", rope)["rope_theta"])


def partial(c):
    """Features of a head that turn."""
    part = next(d[k] for d, k in ((c, "partial_rotary_factor"), (c, "rotary_pct"), (c.get("rope_parameters", {}), "partial_rotary_factor"),
                                  ({"": 1.0}, "")) if k in d)
    return int(part * (c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]))


def decoder_keys(c):
    heads = c["num_attention_heads"]
    head = c.get("head_dim") or c["hidden_size"] // heads
    keys = {"block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
            "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
            "attention.head_count": heads, "attention.head_count_kv": c.get("num_key_value_heads", heads),
            "attention.layer_norm_rms_epsilon": float(c.get("rms_norm_eps", 1e-6)),
            "attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head,
            "rope.freq_base": theta(c), "vocab_size": c["vocab_size"]}
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    if rope.get("rope_type") in ("linear", "yarn"):
        keys.update({"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])})
    if rope.get("rope_type") == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        keys.update({f"rope.scaling.yarn_{side}": float(rope[side]) for side in ("beta_fast", "beta_slow") if side in rope})
    return keys


def rope_factors(c):
    """What llama3 scaling divides each frequency by, as a tensor."""
    s, half, out = c.get("rope_scaling") or c["rope_parameters"], (c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]) // 2, []
    for i in range(half):
        wave = 2 * math.pi * theta(c) ** (i / half)
        turns = s["original_max_position_embeddings"] / wave
        if turns < s["low_freq_factor"]:
            out.append(s["factor"])
        elif turns > s["high_freq_factor"]:
            out.append(1.0)
        else:
            smooth = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
            out.append(1 / ((1 - smooth) / s["factor"] + smooth))
    return [half], out


def stack_experts(c, tensors, i, names, separate, place="block_sparse_moe"):
    out = {}
    if f"model.layers.{i}.{place}.gate.weight" not in tensors:
        return out
    for old, new in names.items():
        parts = [tensors[f"model.layers.{i}.{place}.experts.{e}.{old}.weight"]
                 for e in range(c["num_local_experts"])]
        if separate:
            out.update({f"blk.{i}.{new}.{e}.weight": part for e, part in enumerate(parts)})
        else:
            out[f"blk.{i}.{new}_exps.weight"] = ([len(parts)] + parts[0][0], [v for p in parts for v in p[1]])
    return out


def llama(c, tensors, separate):
    keys = decoder_keys(c)
    out = rename(tensors, "model.layers.{}", c["num_hidden_layers"], LLAMA_LAYER, LLAMA_TOP)
    for name in out:
        if name.split(".")[-2] in ("attn_q", "attn_k"):
            out[name] = interleave(out[name], keys["attention.head_count" + ("" if "attn_q" in name else "_kv")])
    if "num_local_experts" in c:
        keys.update({"expert_count": c["num_local_experts"], "expert_used_count": c["num_experts_per_tok"]})
        for i in range(c["num_hidden_layers"]):
            out.update(stack_experts(c, tensors, i, {"w1": "ffn_gate", "w3": "ffn_up", "w2": "ffn_down"}, separate))
    if c.get("sliding_window"):
        keys["attention.sliding_window"] = c["sliding_window"]
    if (c.get("rope_scaling") or c.get("rope_parameters") or {}).get("rope_type") == "llama3":
        out["rope_freqs.weight"] = rope_factors(c)
    return "llama", keys, out


def granite(c, tensors, separate):
    _, keys, out = llama(c, tensors, separate)
    keys.update({new: float(c[old]) for old, new in (
        ("attention_multiplier", "attention.scale"), ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"), ("logits_scaling", "logit_scale"))})
    return "granite", keys, out


def norm_keys(c, eps):
    """decoder_keys of a family with layer norms."""
    keys = decoder_keys(c)
    del keys["attention.layer_norm_rms_epsilon"]
    return {**keys, "attention.layer_norm_epsilon": float(eps)}


def olmo(c, tensors, separate):
    _, _, out = llama(c, tensors, separate)
    return "olmo", norm_keys(c, 1e-5), out


def smollm3(c, tensors, separate):
    return ("smollm3",) + llama(c, tensors, separate)[1:]


def cohere(c, tensors, _):
    keys = {**norm_keys(c, c["layer_norm_eps"]), "logit_scale": float(c["logit_scale"]), "rope.scaling.type": "none"}
    if c.get("sliding_window"):
        keys["attention.sliding_window"] = c["sliding_window"]
    out = rename(tensors, "model.layers.{}", c["num_hidden_layers"], LLAMA_LAYER, LLAMA_TOP)
    return {"cohere": "command-r"}.get(c["model_type"], c["model_type"]), keys, out


def olmoe(c, tensors, separate):
    keys = {**decoder_keys(c), "expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_tok"]}
    return "olmoe", keys, sparse(c, tensors, separate)


def gpt_oss(c, tensors, _):
    """Experts [E, in, out], gate and up in turns, to [E, out, in]."""
    keys = {**decoder_keys(c), "attention.sliding_window": c["sliding_window"], "expert_count": c["num_local_experts"],
            "expert_used_count": c["num_experts_per_tok"], "expert_feed_forward_length": c["intermediate_size"]}
    table = {**LLAMA_LAYER, "post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"}
    out = rename(tensors, "model.layers.{}", c["num_hidden_layers"], table, LLAMA_TOP)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        out[f"blk.{i}.attn_sinks.weight"] = tensors[at + "self_attn.sinks"]
        for name, parts in (("gate_up", ("gate", "up")), ("down", ("down",))):
            (e, k, n), values = tensors[f"{at}mlp.experts.{name}_proj"]
            bias, step = tensors[f"{at}mlp.experts.{name}_proj_bias"][1], len(parts)
            for first, part in enumerate(parts):
                out[f"blk.{i}.ffn_{part}_exps.weight"] = [e, n // step, k], [
                    values[(x * k + j) * n + row] for x in range(e) for row in range(first, n, step) for j in range(k)]
                out[f"blk.{i}.ffn_{part}_exps.bias"] = [e, n // step], [bias[x * n + row] for x in range(e) for row in range(first, n, step)]
    return "gpt-oss", keys, out


def starcoder(c, tensors, _):
    keys = {"block_count": c["n_layer"], "context_length": c["n_positions"], "embedding_length": c["n_embd"],
            "feed_forward_length": c.get("n_inner") or 4 * c["n_embd"], "attention.head_count": c["n_head"],
            "attention.head_count_kv": 1, "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"])}
    return "starcoder", keys, {name: transpose(t) if len(t[0]) == 2 and name.startswith("blk.") else t
                               for name, t in gpt2(c, tensors, _)[2].items()}


def olmo3(c, tensors, _):
    """OLMo 2 with windows; frequencies of the other layers."""
    rope = c["rope_parameters"]["full_attention"]
    _, keys, out = olmo2({**c, "rope_parameters": rope}, tensors, _)
    keys["rope.scaling.attn_factor"] = rope["attention_factor"] / (0.1 * math.log(rope["factor"]) + 1)
    keys["attention.sliding_window"] = c["sliding_window"]
    keys["attention.sliding_window_pattern"] = [t == "sliding_attention" for t in c["layer_types"]]
    return "olmo2", keys, out


def olmo2(c, tensors, _):
    table = dict(LLAMA_LAYER, post_attention_layernorm="post_attention_norm", post_feedforward_layernorm="post_ffw_norm")
    return "olmo2", decoder_keys(c), rename(tensors, "model.layers.{}", c["num_hidden_layers"], table, LLAMA_TOP)


def stablelm(c, tensors, _):
    heads = c["num_attention_heads"]
    keys = {"block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
            "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"], "attention.head_count": heads,
            "attention.head_count_kv": c["num_key_value_heads"], "attention.layer_norm_epsilon": float(c["layer_norm_eps"]),
            "rope.dimension_count": partial(c), "use_parallel_residual": c["use_parallel_residual"]}
    top = {**LLAMA_TOP, **both("model.norm", "output_norm")}
    out = rename(tensors, "model.layers.{}", c["num_hidden_layers"], LLAMA_LAYER, top)
    for i in range(c["num_hidden_layers"]):
        for x, n in (("q", heads), ("k", c["num_key_value_heads"])):
            parts = [tensors.get(f"model.layers.{i}.self_attn.{x}_layernorm.norms.{h}.weight") for h in range(n)]
            if parts[0]:
                out[f"blk.{i}.attn_{x}_norm.weight"] = ([n] + parts[0][0], [v for p in parts for v in p[1]])
    return "stablelm", keys, out


def starcoder2(c, tensors, _):
    keys = {"block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
            "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
            "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
            "rope.freq_base": theta(c), "attention.layer_norm_epsilon": float(c["norm_epsilon"])}
    if c.get("sliding_window"):
        keys["attention.sliding_window"] = c["sliding_window"]
    table = dict(LLAMA_LAYER, **{"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"})
    top = {**LLAMA_TOP, **both("model.norm", "output_norm")}
    return "starcoder2", keys, rename(tensors, "model.layers.{}", c["num_hidden_layers"], table, top)


def phi3(c, tensors, _):
    keys, rope = decoder_keys(c), c.get("rope_parameters", {})
    for key in ("attention.key_length", "attention.value_length"):
        del keys[key]
    whole = c["max_position_embeddings"]
    original = c.get("original_max_position_embeddings", whole)
    keys.update({"rope.dimension_count": partial(c), "rope.scaling.original_context_length": original,
                 "attention.sliding_window": c.get("sliding_window") or 0})
    table = dict(LLAMA_LAYER, **{"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"})
    out = rename(tensors, "model.layers.{}", c["num_hidden_layers"], table, LLAMA_TOP)
    if rope.get("rope_type") == "longrope":
        stretch = max(1.0, rope.get("factor", whole / original))
        keys["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(stretch) / math.log(original))
        for side in ("long", "short"):
            out[f"rope_factors_{side}.weight"] = ([len(rope[f"{side}_factor"])], rope[f"{side}_factor"])
    return "phi3", keys, out


def sparse(c, tensors, separate):
    """Tensors of layers with mixtures of experts, perhaps with an expert for every row."""
    table = dict(LLAMA_LAYER, **{"mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
                 **{f"mlp.shared_expert.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}})
    out = rename(tensors, "model.layers.{}", c["num_hidden_layers"], table, LLAMA_TOP)
    names = {f"{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")}
    count = {"num_local_experts": c.get("num_local_experts") or c["num_experts"]}
    for i in range(c["num_hidden_layers"]):
        out.update(stack_experts(count, tensors, i, names, separate, "mlp"))
    return {name: ([t[0][1]], t[1]) if "gate_inp_shexp" in name else t for name, t in out.items()}


def qwen_moe(c, tensors, separate):
    keys = decoder_keys(c)
    keys.update({"expert_count": c.get("num_local_experts") or c["num_experts"], "expert_used_count": c["num_experts_per_tok"],
                 "expert_feed_forward_length": c["moe_intermediate_size"]})
    if "shared_expert_intermediate_size" in c:
        keys["expert_shared_feed_forward_length"] = c["shared_expert_intermediate_size"]
    return c["model_type"].replace("_", ""), keys, sparse(c, tensors, separate)


def falcon(c, tensors, _):
    heads = c["num_attention_heads"]
    groups = c["num_kv_heads"] if c["new_decoder_architecture"] else 1 if c["multi_query"] else heads
    if not c["new_decoder_architecture"] and not c["parallel_attn"] or c["alibi"]:
        raise SystemExit("Falcon with one behind the other, or with ALiBi, has no form as GGUF")
    keys = {"block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"], "tensor_data_layout": "jploski",
            "embedding_length": c["hidden_size"], "feed_forward_length": c["ffn_hidden_size"], "attention.head_count": heads,
            "attention.head_count_kv": groups, "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"])}
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    table = {"input_layernorm": "attn_norm", "ln_mlp": "attn_norm", "ln_attn": "attn_norm_2", "self_attention.query_key_value": "attn_qkv",
             "self_attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
    top = {"word_embeddings.weight": "token_embd.weight", "lm_head.weight": "output.weight", **both("ln_f", "output_norm")}
    out = rename(tensors, "h.{}", c["num_hidden_layers"], table, top)
    return "falcon", keys, {name: separate_groups(t, groups, c["hidden_size"] // heads) if "attn_qkv" in name else t
                            for name, t in out.items()}


def qwen(c, tensors, _):
    return c["model_type"], decoder_keys(c), rename(tensors, "model.layers.{}", c["num_hidden_layers"], LLAMA_LAYER,
                                                    LLAMA_TOP)


def gemma(c, tensors, _):
    keys = decoder_keys(c)
    keys["attention.sliding_window"] = c["sliding_window"]
    rope = c.get("rope_parameters", {}).get("full_attention", {})
    if rope.get("rope_type") == "linear":
        keys.update({"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])})
    for cap in ("attn", "final"):
        if c.get(f"{cap}_logit_softcapping"):
            keys[f"{cap}_logit_softcapping"] = float(c[f"{cap}_logit_softcapping"])
    table = dict(LLAMA_LAYER, post_attention_layernorm="post_attention_norm", pre_feedforward_layernorm="ffn_norm",
                 post_feedforward_layernorm="post_ffw_norm")
    out = rename(tensors, "model.layers.{}", c["num_hidden_layers"], table, LLAMA_TOP)
    return c["model_type"].replace("_text", ""), keys, {name: plus_one(t) if "norm" in name else t
                                                        for name, t in out.items()}


def gpt2(c, tensors, _):
    keys = {"block_count": c["n_layer"], "context_length": c["n_positions"], "embedding_length": c["n_embd"],
            "feed_forward_length": c.get("n_inner") or 4 * c["n_embd"], "attention.head_count": c["n_head"],
            "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"])}
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    table = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
             "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
    top = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight", **both("ln_f", "output_norm")}
    out = rename(tensors, "h.{}", c["n_layer"], table, top)
    transposed = ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
    return "gpt2", keys, {name: transpose(t) if name.split(".")[-2] in transposed and name.endswith("weight") else t
                          for name, t in out.items()}


def layer_norm_keys(c):
    return {"block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
            "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
            "attention.head_count": c["num_attention_heads"],
            "attention.layer_norm_epsilon": float(c["layer_norm_eps"])}


def gpt_neox(c, tensors, _):
    keys = layer_norm_keys(c)
    keys.update({"rope.dimension_count": partial(c), "use_parallel_residual": c["use_parallel_residual"]})
    table = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
             "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
    top = {"gpt_neox.embed_in.weight": "token_embd.weight", "embed_out.weight": "output.weight",
           **both("gpt_neox.final_layer_norm", "output_norm")}
    out = rename(tensors, "gpt_neox.layers.{}", c["num_hidden_layers"], table, top)
    return "gptneox", keys, {name: ungroup(t, c["num_attention_heads"]) if "attn_qkv" in name else t
                             for name, t in out.items()}


def phi(c, tensors, _):
    keys = layer_norm_keys(c)
    keys.update({"rope.dimension_count": partial(c), "attention.head_count_kv":
                 c["num_key_value_heads"]})
    table = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
    top = {"model.embed_tokens.weight": "token_embd.weight", **both("model.final_layernorm", "output_norm"),
           **both("lm_head", "output")}
    return "phi2", keys, rename(tensors, "model.layers.{}", c["num_hidden_layers"], table, top)


def bloom(c, tensors, _):
    keys = {"block_count": c["n_layer"], "context_length": c.get("seq_length", 2048), "embedding_length": c["hidden_size"],
            "feed_forward_length": 4 * c["hidden_size"], "attention.head_count": c["n_head"],
            "attention.head_count_kv": c["n_head"], "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"])}
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    table = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
             "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
    top = {"word_embeddings.weight": "token_embd.weight", **both("word_embeddings_layernorm", "token_embd_norm"),
           **both("ln_f", "output_norm")}
    out = rename(tensors, "h.{}", c["n_layer"], table, top)
    return "bloom", keys, {name: ungroup(t, c["n_head"]) if "attn_qkv" in name else t for name, t in out.items()}


def mpt(c, tensors, _):
    keys = {"block_count": c["n_layers"], "context_length": c["max_seq_len"], "embedding_length": c["d_model"],
            "feed_forward_length": 4 * c["d_model"], "attention.head_count": c["n_heads"],
            "attention.layer_norm_epsilon": 1e-5, "attention.max_alibi_bias": float(c["attn_config"]["alibi_bias_max"])}
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    table = {"norm_1": "attn_norm", "norm_2": "ffn_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output",
             "ffn.up_proj": "ffn_up", "ffn.down_proj": "ffn_down"}
    top = {"wte.weight": "token_embd.weight", "norm_f.weight": "output_norm.weight"}
    return "mpt", keys, rename(tensors, "blocks.{}", c["n_layers"], table, top)


def bert(c, tensors, _):
    keys = layer_norm_keys(c)
    keys["attention.causal"] = False
    tensors = {name.removeprefix("bert."): t for name, t in tensors.items()}
    table = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
             "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
             "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
    top = {"embeddings.word_embeddings.weight": "token_embd.weight",
           "embeddings.token_type_embeddings.weight": "token_types.weight",
           "embeddings.position_embeddings.weight": "position_embd.weight",
           **both("embeddings.LayerNorm", "token_embd_norm")}
    return "bert", keys, rename(tensors, "encoder.layer.{}", c["num_hidden_layers"], table, top)


def t5(c, tensors, _):
    encoder = c["architectures"] == ["T5EncoderModel"]
    keys = {"block_count": c["num_layers"], "context_length": c.get("n_positions", 512), "embedding_length": c["d_model"],
            "feed_forward_length": c["d_ff"], "attention.head_count": c["num_heads"],
            "attention.key_length": c["d_kv"], "attention.value_length": c["d_kv"],
            "attention.layer_norm_epsilon": float(c["layer_norm_epsilon"]),
            "attention.layer_norm_rms_epsilon": float(c["layer_norm_epsilon"]),
            "attention.relative_buckets_count": c["relative_attention_num_buckets"]}
    if "decoder_start_token_id" in c:
        keys["decoder_start_token_id"] = c["decoder_start_token_id"]
    if not encoder and c["num_decoder_layers"] != c["num_layers"]:
        keys["decoder_block_count"] = c["num_decoder_layers"]
    out = {"token_embd.weight": tensors["shared.weight"]}
    if "lm_head.weight" in tensors:
        out["output.weight"] = tensors["lm_head.weight"]
    attention = {x: f"attn_{x}" for x in "qkvo"}
    for side, short in (("encoder", "enc"), ("decoder", "dec"))[:1 if encoder else 2]:
        out[f"{short}.output_norm.weight"] = tensors[f"{side}.final_layer_norm.weight"]
        ffn = 1 if side == "encoder" else 2
        table = {"layer.0.layer_norm": "attn_norm", f"layer.{ffn}.layer_norm": "ffn_norm",
                 "layer.0.SelfAttention.relative_attention_bias": "attn_rel_b",
                 **{f"layer.0.SelfAttention.{old}": new for old, new in attention.items()},
                 **{f"layer.{ffn}.DenseReluDense.{old}": f"ffn_{new}"
                    for old, new in {"wi": "up", "wi_0": "gate", "wi_1": "up", "wo": "down"}.items()}}
        if side == "decoder":
            table.update({"layer.1.layer_norm": "cross_attn_norm",
                          **{f"layer.1.EncDecAttention.{old}": f"cross_{new}" for old, new in attention.items()}})
        for name, tensor in rename(tensors, f"{side}.block.{{}}", c["num_layers" if side == "encoder" else "num_decoder_layers"], table, {}).items():
            out[f"{short}.{name}"] = tensor
    return "t5encoder" if encoder else "t5", keys, out


def gemma1(c, tensors, _):
    out = rename(tensors, "model.layers.{}", c["num_hidden_layers"], LLAMA_LAYER, LLAMA_TOP)
    return "gemma", decoder_keys(c), {name: plus_one(t) if "norm" in name else t for name, t in out.items()}


FAMILIES = {"gemma": gemma1, "llama": llama, "mistral": llama, "mixtral": llama, "qwen2": qwen, "qwen3": qwen, "gemma2": gemma,
            "gemma3_text": gemma, "gpt2": gpt2, "gpt_neox": gpt_neox, "phi": phi, "bloom": bloom, "mpt": mpt,
            "bert": bert, "t5": t5, "granite": granite, "olmo2": olmo2, "olmo3": olmo3, "stablelm": stablelm, "starcoder2": starcoder2, "phi3": phi3,
            "qwen2_moe": qwen_moe, "qwen3_moe": qwen_moe, "falcon": falcon, "olmo": olmo, "olmoe": olmoe, "smollm3": smollm3, "cohere": cohere,
            "cohere2": cohere, "gpt_bigcode": starcoder, "gpt_oss": gpt_oss}


# ---- writing -----------------------------------------------------------------------------------------

def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def entry(key, value):
    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", U32, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", F32, value)
    if isinstance(value, list):
        kind = {str: STRING, float: F32, int: I32, bool: BOOL}[type(value[0])]
        items = b"".join(text(v) if kind == STRING else struct.pack({F32: "<f", I32: "<i", BOOL: "<?"}[kind], v) for v in value)
        return text(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + items
    return text(key) + struct.pack("<I", STRING) + text(value)


def numbers(values, kind):
    if kind == "f32":
        return struct.pack(f"<{len(values)}f", *values)
    if kind == "f16":
        return struct.pack(f"<{len(values)}e", *values)
    bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits))


def letters(n):
    """A tokenizer of the SentencePiece kind: unknown, begin, end, a blank, letters and nothing that joins them."""
    pieces = ["<unk>", "<s>", "</s>", "\u2581"] + [chr(ord("a") + i) for i in range(26)]
    pieces = pieces[:n] + [f"<unused{i}>" for i in range(n - len(pieces))]
    kinds = [2, 3, 3] + [1 if len(p) == 1 else 5 for p in pieces[3:]]
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.scores": [-float(i) for i in range(n)], "tokenizer.ggml.add_bos_token": True}


def convert(folder, separate=False):
    """(metadata, tensors) of a folder."""
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    architecture, keys, tensors = FAMILIES[config["model_type"]](config, read_safetensors(f"{folder}/model.safetensors"), separate)
    metadata = {"general.architecture": architecture, "general.name": "made by to_gguf.py", "general.file_type": 0}
    metadata.update({f"{architecture}.{key}": value for key, value in keys.items()})
    for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if isinstance(config.get(f"{key}_token_id"), int):
            metadata[f"tokenizer.ggml.{name}_token_id"] = config[f"{key}_token_id"]
    return metadata, tensors


def pack(tensors, kind):
    """(number of tensors, their descriptions, their data). Vectors are F32 whatever the kind of matrices is, as converters do it."""
    infos, at, parts = b"", 0, []
    for name, (shape, values) in tensors.items():
        own = kind if len(shape) > 1 else "f32"
        part = numbers(values, own)
        infos += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        infos += struct.pack("<IQ", TYPES[own][0], at)
        parts.append(part + bytes(-len(part) % 32))
        at += len(parts[-1])
    return len(tensors), infos, b"".join(parts)


def write(path, version, metadata, packed):
    count, infos, data = packed
    head = struct.pack("<4sIQQ", b"GGUF", version, count, len(metadata))
    head += b"".join(entry(key, value) for key, value in metadata.items()) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--type", choices=TYPES, default="f32")
    parser.add_argument("--version", type=int, default=3)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--separate-experts", action="store_true")
    parser.add_argument("--letters", action="store_true")
    args = parser.parse_args()
    metadata, tensors = convert(args.folder, args.separate_experts)
    if args.letters:
        metadata.update(letters(tensors["token_embd.weight"][0][0]))
    if args.parts == 1:
        return write(args.out, args.version, metadata, pack(tensors, args.type))
    names = list(tensors)
    for i in range(args.parts):
        some = {name: tensors[name] for name in names[i::args.parts]}
        split = {"split.no": i, "split.count": args.parts}
        path = f"{args.out.removesuffix('.gguf')}-{i + 1:05d}-of-{args.parts:05d}.gguf"
        write(path, args.version, dict(metadata if i == 0 else {}, **split), pack(some, args.type))


if __name__ == "__main__":
    main()
