# SPDX-License-Identifier: Apache-2.0
"""GGUF files of GPT-2 and Llama with the seeded weights, for llama.cpp: f32 first, then what llama.cpp makes of it."""
import ctypes
import os

import gguf
import numpy as np

import seeded

KINDS = {"f32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K": 14}  # llama_ftype: ALL_F32, MOSTLY_*


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
        writer.add_tensor(name + "attn_q.weight", _pairs(weights[0], m.heads))
        writer.add_tensor(name + "attn_k.weight", _pairs(weights[1], m.kv_heads))
        writer.add_tensor(name + "attn_v.weight", weights[2])
    _linear(writer, name + "attn_output", path + ".o", (d, d), m)


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
        if m.kind == "llama":
            _linear(writer, name + "ffn_gate", path_i + ".mlp.ffn.gate", (m.ff, m.hidden), m)
        _linear(writer, name + "ffn_up", path_i + ".mlp.ffn.up", (m.ff, m.hidden), m)
        _linear(writer, name + "ffn_down", path_i + ".mlp.ffn.down", (m.hidden, m.ff), m)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path + ".part", path)


def write(m, folder, kind):
    """Writes the file of a kind, unless it is there."""
    path, plain = path_of(m, folder, kind), path_of(m, folder, "f32")
    if os.path.exists(path):
        return
    if not os.path.exists(plain):
        _write_f32(m, plain)
    import llama_cpp

    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.pure, parameters.nthread = KINDS[kind], True, 2
    if llama_cpp.llama_model_quantize(plain.encode(), path.encode(), ctypes.byref(parameters)):
        raise RuntimeError(f"llama.cpp cannot write {path}")
