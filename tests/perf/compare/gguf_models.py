# SPDX-License-Identifier: Apache-2.0
"""GGUF files of GPT-2, Llama and mixtures of experts with the seeded weights: f32 first, then what llama.cpp makes of it."""
import ctypes
import os

import gguf
import numpy as np

import seeded

# llama_ftype: ALL_F32, MOSTLY_*, and whether every matrix has that format.
KINDS = {
    "f32": (0, True), "F16": (1, True), "Q4_0": (2, True), "Q4_1": (3, True), "Q8_0": (7, True), "Q5_0": (8, True),
    "Q5_1": (9, True), "Q2_K": (10, False), "Q3_K_S": (11, False), "Q3_K_M": (12, False), "Q3_K_L": (13, False),
    "Q4_K": (14, True), "Q4_K_S": (14, False), "Q4_K_M": (15, False), "Q5_K_S": (16, False), "Q5_K_M": (17, False),
    "Q6_K": (18, True), "IQ4_NL": (25, False), "IQ4_XS": (30, False), "BF16": (32, True), "MXFP4": (38, False),
}

_LOG_NOTHING = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


def kind_of(peer, precision):
    """What llama.cpp's file holds: the second word of the peer's name, else what the precision is there."""
    words = peer.split()
    return words[1] if len(words) > 1 else {"bf16": "F16", "int8": "Q8_0"}[precision]


def path_of(model, folder, kind):
    """The file of a model."""
    return os.path.join(folder, f"{model.name}.{kind}.gguf")


def _pairs(w, heads):
    """Rows of a head as llama.cpp rotates them: pairs side by side, of halves."""
    n, k = w.shape
    return w.reshape(heads, 2, n // heads // 2, k).swapaxes(1, 2).reshape(n, k)


def _norm(writer, name, path, m):
    writer.add_tensor(name + ".weight", seeded.tensor(path + ".weight", (m.hidden,)))
    if m.kind == "gpt2":
        writer.add_tensor(name + ".bias", seeded.tensor(path + ".bias", (m.hidden,)))


def _linear(writer, name, path, shape, m):
    writer.add_tensor(name + ".weight", seeded.tensor(path + ".weight", shape))
    if m.kind == "gpt2":
        writer.add_tensor(name + ".bias", seeded.tensor(path + ".bias", shape[:1]))


def _attention(writer, name, path, m):
    d, kv = m.hidden, m.kv_heads * m.head_dim
    weights = [seeded.tensor(f"{path}.{r}.weight", (n, d)) for r, n in (("q", d), ("k", kv), ("v", kv))]
    if m.kind == "gpt2":
        writer.add_tensor(name + "attn_qkv.weight", np.concatenate(weights))
        biases = [seeded.tensor(f"{path}.{r}.bias", (n,)) for r, n in (("q", d), ("k", kv), ("v", kv))]
        writer.add_tensor(name + "attn_qkv.bias", np.concatenate(biases))
    else:
        if m.kind == "llama":
            weights[0], weights[1] = _pairs(weights[0], m.heads), _pairs(weights[1], m.kv_heads)
        for role, w in zip("qkv", weights):
            writer.add_tensor(f"{name}attn_{role}.weight", w)
        for role in "qk" if m.kind == "qwen3moe" else "":
            writer.add_tensor(f"{name}attn_{role}_norm.weight", seeded.tensor(f"{path}.{role}_norm.weight", (m.head_dim,)))
    _linear(writer, name + "attn_output", path + ".o", (d, d), m)


def _experts(writer, name, path, m):
    e, d, f = m.experts[0], m.hidden, m.ff
    _linear(writer, name + "ffn_gate_inp", path + ".router", (e, d), m)
    for role, n, k in (("gate", f, d), ("up", f, d), ("down", d, f)):
        weights = [seeded.tensor(f"{path}.experts.{i}.{role}.weight", (n, k)) for i in range(e)]
        writer.add_tensor(f"{name}ffn_{role}_exps.weight", np.stack(weights))


def _header(writer, m):
    writer.add_context_length(m.ctx)
    writer.add_embedding_length(m.hidden)
    writer.add_block_count(m.layers)
    writer.add_feed_forward_length(m.ff)
    writer.add_head_count(m.heads)
    writer.add_vocab_size(m.vocab)
    writer.add_tokenizer_model("no_vocab")
    if m.kind == "gpt2":
        writer.add_layer_norm_eps(m.eps)
        return
    writer.add_head_count_kv(m.kv_heads)
    writer.add_layer_norm_rms_eps(m.eps)
    writer.add_rope_dimension_count(m.head_dim)
    writer.add_rope_freq_base(10000.0)
    if m.experts[0]:
        writer.add_expert_count(m.experts[0])
        writer.add_expert_used_count(m.experts[1])
    if m.kind == "qwen3moe":
        writer.add_expert_feed_forward_length(m.ff)
        writer.add_key_length(m.head_dim)
        writer.add_value_length(m.head_dim)


def _write_f32(m, path):
    writer = gguf.GGUFWriter(path + ".part", m.kind, use_temp_file=True)
    _header(writer, m)
    writer.add_tensor("token_embd.weight", seeded.tensor("word.weight", (m.vocab, m.hidden)))
    if m.kind == "gpt2":
        writer.add_tensor("position_embd.weight", seeded.tensor("position.weight", (m.ctx, m.hidden)))
    else:
        writer.add_tensor("output.weight", seeded.tensor("head.weight", (m.vocab, m.hidden)))
    _norm(writer, "output_norm", "final", m)
    for i in range(m.layers):
        name, path_i = f"blk.{i}.", f"layers.{i}"
        _norm(writer, name + "attn_norm", path_i + ".attn.norm", m)
        _norm(writer, name + "ffn_norm", path_i + ".mlp.norm", m)
        _attention(writer, name, path_i + ".attn.attention", m)
        if m.experts[0]:
            _experts(writer, name, path_i + ".mlp", m)
            continue
        if m.kind == "llama":
            _linear(writer, name + "ffn_gate", path_i + ".mlp.ffn.gate", (m.ff, m.hidden), m)
        _linear(writer, name + "ffn_up", path_i + ".mlp.ffn.up", (m.ff, m.hidden), m)
        _linear(writer, name + "ffn_down", path_i + ".mlp.ffn.down", (m.hidden, m.ff), m)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path + ".part", path)


def quiet_llama():
    """The module of llama.cpp, which prints nothing from then on."""
    import llama_cpp

    llama_cpp.llama_log_set(_LOG_NOTHING, None)
    return llama_cpp


def write(m, folder, kind):
    """Writes the file of a kind, unless it is there."""
    path, plain = path_of(m, folder, kind), path_of(m, folder, "f32")
    if os.path.exists(path):
        return
    if not os.path.exists(plain):
        _write_f32(m, plain)
    llama_cpp = quiet_llama()
    parameters = llama_cpp.llama_model_quantize_default_params()
    (parameters.ftype, parameters.pure), parameters.nthread = KINDS[kind], 2
    if llama_cpp.llama_model_quantize(plain.encode(), path.encode(), ctypes.byref(parameters)):
        raise RuntimeError(f"llama.cpp cannot write {path}")
