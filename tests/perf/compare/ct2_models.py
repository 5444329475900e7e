# SPDX-License-Identifier: Apache-2.0
"""CTranslate2 models with the seeded weights: encoders, GPT-2, Llama, encoder-decoder (not the ViT)."""
import os
import shutil

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

import seeded

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_tanh": common_spec.Activation.GELUTanh,
    "silu": common_spec.Activation.SWISH,
}


def _linear(spec, path, n_out, n_in, bias=True):
    spec.weight = seeded.tensor(path + ".weight", (n_out, n_in))
    if bias:
        spec.bias = seeded.tensor(path + ".bias", (n_out,))


def _joined(spec, paths, sizes, n_in, bias=True):
    """Several linears of one input in one matrix."""
    spec.weight = np.concatenate([seeded.tensor(p + ".weight", (n, n_in)) for p, n in zip(paths, sizes)])
    if bias:
        spec.bias = np.concatenate([seeded.tensor(p + ".bias", (n,)) for p, n in zip(paths, sizes)])


def _norm(spec, path, d, bias=True):
    spec.gamma = seeded.tensor(path + ".weight", (d,))
    if bias:
        spec.beta = seeded.tensor(path + ".bias", (d,))


def _self_attention(spec, path, m, bias=True):
    kv = m.kv_heads * m.head_dim
    _joined(spec.linear[0], [f"{path}.{r}" for r in "qkv"], (m.hidden, kv, kv), m.hidden, bias)
    _linear(spec.linear[1], path + ".o", m.hidden, m.hidden, bias)


def _cross_attention(spec, path, m):
    d = m.hidden
    _linear(spec.linear[0], path + ".q", d, d)
    _joined(spec.linear[1], [path + ".k", path + ".v"], (d, d), d)
    _linear(spec.linear[2], path + ".o", d, d)


def _ffn(spec, path, m, bias=True):
    _linear(spec.linear_0, path + (".gate" if m.kind == "llama" else ".up"), m.ff, m.hidden, bias)
    if m.kind == "llama":
        _linear(spec.linear_0_noact, path + ".up", m.ff, m.hidden, bias)
    _linear(spec.linear_1, path + ".down", m.hidden, m.ff, bias)


def _post_norm_layer(layer, path, m):
    _self_attention(layer.self_attention, path + ".attn.attention", m)
    _norm(layer.self_attention.layer_norm, path + ".norm1", m.hidden)
    _ffn(layer.ffn, path + ".mlp.ffn", m)
    _norm(layer.ffn.layer_norm, path + ".norm2", m.hidden)


def _first(embeddings):
    return embeddings[0] if isinstance(embeddings, list) else embeddings


def _encoder(m):
    spec = transformer_spec.TransformerEncoderSpec(
        m.layers, m.heads, pre_norm=False, activation=ACTIVATIONS[m.act], layernorm_embedding=not m.sinusoidal)
    model = transformer_spec.TransformerEncoderModelSpec(spec)
    _first(spec.embeddings).weight = seeded.tensor("word.weight", (m.vocab, m.hidden))
    spec.scale_embeddings = m.sinusoidal
    if m.sinusoidal:
        spec.position_encodings.encodings = seeded.sinusoid(m.ctx, m.hidden)
    else:
        spec.position_encodings.encodings = seeded.tensor("position.weight", (m.ctx, m.hidden))
        _norm(spec.layernorm_embedding, "emb_norm", m.hidden)
    for i, layer in enumerate(spec.layer):
        _post_norm_layer(layer, f"layers.{i}", m)
    return model


def _causal(m):
    llama = m.kind == "llama"
    more = {"rms_norm": True, "ffn_glu": True, "rotary_dim": 0, "rotary_interleave": False, "rotary_base": 10000}
    if llama and m.kv_heads != m.heads:
        more["num_heads_kv"] = m.kv_heads
    model = transformer_spec.TransformerDecoderModelSpec.from_config(
        m.layers, m.heads, pre_norm=True, activation=ACTIVATIONS[m.act], **(more if llama else {}))
    spec = model.decoder
    spec.scale_embeddings = False
    spec.embeddings.weight = seeded.tensor("word.weight", (m.vocab, m.hidden))
    if not llama:
        spec.position_encodings.encodings = seeded.tensor("position.weight", (m.ctx, m.hidden))
    _norm(spec.layer_norm, "final", m.hidden, not llama)
    for i, layer in enumerate(spec.layer):
        path = f"layers.{i}"
        _norm(layer.self_attention.layer_norm, path + ".attn.norm", m.hidden, not llama)
        _self_attention(layer.self_attention, path + ".attn.attention", m, not llama)
        _norm(layer.ffn.layer_norm, path + ".mlp.norm", m.hidden, not llama)
        _ffn(layer.ffn, path + ".mlp.ffn", m, not llama)
    if llama and m.name != "d5":
        _linear(spec.projection, "head", m.vocab, m.hidden, False)
    else:
        spec.projection.weight = spec.embeddings.weight
    return model


def _seq2seq(m):
    model = transformer_spec.TransformerSpec.from_config(
        (m.layers, m.layers), m.heads, pre_norm=False, activation=ACTIVATIONS[m.act])
    for side, spec in (("encoder", model.encoder), ("decoder", model.decoder)):
        _first(spec.embeddings).weight = seeded.tensor(side + ".word.weight", (m.vocab, m.hidden))
        spec.position_encodings.encodings = seeded.sinusoid(512, m.hidden)
        spec.scale_embeddings = True
        for i, layer in enumerate(spec.layer):
            path = f"{side}.layers.{i}"
            _post_norm_layer(layer, path, m)
            if side == "decoder":
                _cross_attention(layer.attention, path + ".cross.attention", m)
                _norm(layer.attention.layer_norm, path + ".norm3", m.hidden)
    _linear(model.decoder.projection, "decoder.head", m.vocab, m.hidden)
    return model


def write(m, folder):
    """Writes the model into a folder, unless it is there."""
    if os.path.exists(os.path.join(folder, "model.bin")):
        return
    model = {"encoder": _encoder, "seq2seq": _seq2seq}.get(m.kind, _causal)(m)
    words = [f"t{i}" for i in range(m.vocab)]
    if m.kind == "seq2seq":
        model.register_source_vocabulary(words)
        model.register_target_vocabulary(words)
    else:
        model.register_vocabulary(words)
    model.config.unk_token, model.config.bos_token, model.config.eos_token = "t0", "t1", "t2"
    if m.kind == "seq2seq":
        model.config.decoder_start_token = "t1"
        model.config.add_source_bos = model.config.add_source_eos = False
    if hasattr(model.config, "layer_norm_epsilon"):
        model.config.layer_norm_epsilon = m.eps
    model.validate()
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model.save(folder)
