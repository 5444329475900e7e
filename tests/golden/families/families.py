# SPDX-License-Identifier: Apache-2.0
"""The families of make.py: a configuration of the library at small odd sizes for each, and what is compared."""
import types

import numpy
import torch
import transformers as hf

import seeded

V = 193
LOGITS = {"logits": lambda o: o.logits}
HIDDEN = {"last_hidden_state": lambda o: o.last_hidden_state}
IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def llama_like(**more):
    """84 wide, 7 heads of 12, feed-forward 101."""
    c = dict(vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7,
             num_key_value_heads=1, max_position_embeddings=41, tie_word_embeddings=False, **IDS)
    c.update(more)
    return c


DINOV2 = dict(hidden_size=84, num_hidden_layers=2, num_attention_heads=7, image_size=12, patch_size=4)


def bert_like(**more):
    """The same width; what is None is no key of the family."""
    c = dict(vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7,
             max_position_embeddings=41, type_vocab_size=2, pad_token_id=0)
    c.update(more)
    return {k: v for k, v in c.items() if v is not None}


def rope(theta=10000.0, **more):
    return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **more}}


def causal(cls, config, **more):
    return dict(kind="causal", cls=cls, config=config, outputs=LOGITS, **more)


class Sentence(torch.nn.Module):
    """A model whose hidden states are pooled over real positions, perhaps projected, and made unit vectors."""

    def __init__(self, model, last=False, dense=None):
        super().__init__()
        self.model, self.last, self.dense = model, last, dense

    def forward(self, input_ids, attention_mask=None, **more):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.model(input_ids=input_ids, attention_mask=mask, **more).last_hidden_state
        real = mask[:, :, None].to(hidden.dtype)
        one = hidden[torch.arange(len(mask)), mask.sum(1) - 1] if self.last else (hidden * real).sum(1) / real.sum(1)
        if self.dense is not None:
            one = torch.tanh(torch.nn.functional.linear(one, *(t.to(one.dtype) for t in self.dense)))
        return types.SimpleNamespace(last_hidden_state=hidden, sentence_embedding=torch.nn.functional.normalize(one, dim=1))


def projected(family, out, width, bias):
    """A sentence embedder with a projection behind its pooling, and the files of that."""
    rows = [("linear.weight", [out, width], 0.0, 0.2)] + ([("linear.bias", [out], 0.0, 0.2)] if bias else [])
    tensors = [torch.frombuffer(bytearray(seeded.tensor(family, *row)), dtype=torch.float32).reshape(row[1]) for row in rows]
    config = {"in_features": width, "out_features": out, "bias": bias, "activation_function": "torch.nn.modules.activation.Tanh"}
    return dict(wrap=lambda model: Sentence(model, dense=tensors), files={
        **sentence_files(width, dense=True), "2_Dense/config.json": config,
        "2_Dense/tensors.txt": "".join(f"{n} {','.join(map(str, s))} {m:g} {u:g}\n" for n, s, m, u in rows)})


SENTENCE = {**HIDDEN, "sentence_embedding": lambda o: o.sentence_embedding}


def sentence_files(d, last=False, dense=False):
    """What a sentence embedder has beside its configuration: d features of the mean or of the last state, made unit vectors."""
    names = ["Transformer", "Pooling"] + ["Dense"] * dense + ["Normalize"]
    return {
        "modules.json": [{"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": "sentence_transformers.models." + name}
                         for i, name in enumerate(names)],
        "1_Pooling/config.json": {"word_embedding_dimension": d, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": not last,
                                  "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
                                  **({"pooling_mode_lasttoken": True} if last else {})}}


def ends(token):
    """Marks the last id of every text, and no other, with the end token."""
    def mark(ids, lengths):
        ids[ids == token] = 4
        for row, n in zip(ids, lengths):
            row[n - 1] = token
    return mark


def ends_with_pad(ids, lengths):
    """The last id of every longer text is the padding's own: it is no token for a classifier of decoders."""
    for row, n in zip(ids, lengths):
        if n > 1:
            row[n - 1] = 0


def padding_inside(pad):
    """Longer texts have the id of padding inside, which takes no position."""
    def mark(ids, lengths):
        for row, n in zip(ids, lengths):
            row[n // 2 : n // 2 + 2 if n > 3 else 0] = pad
    return mark


def from_timm(tensors):
    """Tensors in timm's names as those of the hub's files."""
    out = {}
    names = {"cls_token": "vit.embeddings.cls_token", "pos_embed": "vit.embeddings.position_embeddings",
             "patch_embed.proj": "vit.embeddings.patch_embeddings.projection", "norm": "vit.layernorm", "head": "classifier"}
    layer = {"norm1": "layernorm_before", "norm2": "layernorm_after", "attn.proj": "attention.output.dense",
             "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}
    for name, x in tensors.items():
        stem, _, leaf = name.rpartition(".")
        if name in names:
            out[names[name]] = x
        elif stem in names:
            out[f"{names[stem]}.{leaf}"] = x
        else:
            _, i, part = stem.split(".", 2)
            if part == "attn.qkv":
                for role, rows in zip(("query", "key", "value"), numpy.split(x, 3)):
                    out[f"vit.encoder.layer.{i}.attention.attention.{role}.{leaf}"] = rows
            else:
                out[f"vit.encoder.layer.{i}.{layer[part]}.{leaf}"] = x
    return out


def timm_shapes(d, f, layers, patch, rows, classes):
    shapes = {"cls_token": [1, 1, d], "pos_embed": [1, rows, d], "patch_embed.proj.weight": [d, 3, patch, patch], "patch_embed.proj.bias": [d]}
    for i in range(layers):
        for name, shape in (("norm1", None), ("attn.qkv", [3 * d, d]), ("attn.proj", [d, d]), ("norm2", None), ("mlp.fc1", [f, d]), ("mlp.fc2", [d, f])):
            shapes[f"blocks.{i}.{name}.weight"] = shape or [d]
            shapes[f"blocks.{i}.{name}.bias"] = [shape[0] if shape else d]
    shapes.update({"norm.weight": [d], "norm.bias": [d], "head.weight": [classes, d], "head.bias": [classes]})
    return shapes


def sinusoids(tensors):
    """Stored tables of positions as they are in every file of the hub: sines, then cosines."""
    for name in tensors:
        if "embed_positions" in name:
            n, d = tensors[name].shape
            angle = numpy.arange(n)[:, None] / 10000.0 ** (numpy.arange(d // 2) * 2.0 / d)
            tensors[name] = numpy.concatenate([numpy.sin(angle), numpy.cos(angle)], 1).astype(numpy.float32)
    return tensors


def seq2seq(cls, config, start, **more):
    return dict(kind="seq2seq", cls=cls, config=config, start=start, **more)


FAMILIES = {
    "distilbert": dict(kind="text", cls="DistilBertModel", outputs=HIDDEN, config=hf.DistilBertConfig(
        vocab_size=V, dim=84, hidden_dim=101, n_layers=2, n_heads=7, max_position_embeddings=41)),
    "falcon": causal("FalconForCausalLM", hf.FalconConfig(
        vocab_size=V, hidden_size=84, ffn_hidden_size=101, num_hidden_layers=2, num_attention_heads=7, max_position_embeddings=41,
        alibi=False, bias=False, **IDS)),
    # the library's eager attention adds the linear biases twice, its default once, as models were trained
    "falcon_alibi": causal("FalconForCausalLM", hf.FalconConfig(
        vocab_size=V, hidden_size=84, num_hidden_layers=3, num_attention_heads=7, multi_query=False, parallel_attn=False, alibi=True,
        max_position_embeddings=41, bias=True, **IDS), attention="sdpa"),
    "falcon_new": causal("FalconForCausalLM", hf.FalconConfig(
        vocab_size=V, hidden_size=72, ffn_hidden_size=101, num_hidden_layers=2, num_attention_heads=6, num_kv_heads=2,
        new_decoder_architecture=True, max_position_embeddings=41, bias=True, tie_word_embeddings=False, **IDS)),
    "falcon_sequential": causal("FalconForCausalLM", hf.FalconConfig(
        vocab_size=V, hidden_size=84, num_hidden_layers=2, num_attention_heads=7, multi_query=False, parallel_attn=False,
        max_position_embeddings=41, bias=True, **IDS)),
    "gemma": causal("GemmaForCausalLM", hf.GemmaConfig(**llama_like(head_dim=12, tie_word_embeddings=True), **rope()),
                    plus_one=True, table=0.1),
    "gpt_neo": causal("GPTNeoForCausalLM", hf.GPTNeoConfig(
        vocab_size=V, hidden_size=84, intermediate_size=101, num_layers=3, num_heads=7, max_position_embeddings=41, window_size=6,
        attention_types=[[["global", "local"], 1], [["local"], 1]], **IDS), qk=1.0),
    "granite": causal("GraniteForCausalLM", hf.GraniteConfig(**llama_like(attention_bias=True), **rope(), embedding_multiplier=3.0,
                      logits_scaling=2.0, residual_multiplier=0.4, attention_multiplier=0.15)),
    "mbart": dict(kind="seq2seq", cls="MBartForConditionalGeneration", start=2, config=hf.MBartConfig(
        vocab_size=V, d_model=84, encoder_layers=2, decoder_layers=3, encoder_attention_heads=7, decoder_attention_heads=6,
        encoder_ffn_dim=101, decoder_ffn_dim=75, max_position_embeddings=41, scale_embedding=True, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, decoder_start_token_id=2), pad=1, positions=5.0, gain=1.3),
    "olmo2": causal("Olmo2ForCausalLM", hf.Olmo2Config(**llama_like(), **rope(500000.0))),
    "phi3": causal("Phi3ForCausalLM", hf.Phi3Config(**llama_like(sliding_window=11), **rope(partial_rotary_factor=0.5))),
    "qwen3_moe": causal("Qwen3MoeForCausalLM", hf.Qwen3MoeConfig(
        **llama_like(num_hidden_layers=3), head_dim=10, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=29, norm_topk_prob=True,
        decoder_sparse_step=2, **rope(1000000.0)), load=dict(experts_implementation="eager")),
    "roberta": dict(kind="text", cls="RobertaModel", outputs=HIDDEN, pad=1, mark=padding_inside(1), config=hf.RobertaConfig(
        **bert_like(pad_token_id=1, max_position_embeddings=43, type_vocab_size=1, layer_norm_eps=1e-5))),
    "stablelm": causal("StableLmForCausalLM", hf.StableLmConfig(
        **llama_like(use_qkv_bias=True), **rope(partial_rotary_factor=0.5))),
    "stablelm_parallel": causal("StableLmForCausalLM", hf.StableLmConfig(
        **llama_like(use_parallel_residual=True), **rope(partial_rotary_factor=0.34))),
    "stablelm_heads": causal("StableLmForCausalLM", hf.StableLmConfig(
        **llama_like(use_parallel_residual=True, qk_layernorm=True, num_attention_heads=6, num_key_value_heads=2),
        **rope(partial_rotary_factor=0.3))),
    "starcoder2": causal("Starcoder2ForCausalLM", hf.Starcoder2Config(
        **llama_like(sliding_window=9, tie_word_embeddings=True), **rope(100000.0))),
    "deit": dict(kind="picture", cls="DeiTForImageClassification", image=12, patch=4, config=hf.DeiTConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=12, patch_size=4, num_labels=5),
        outputs=LOGITS),
    "deit_distilled": dict(kind="picture", cls="DeiTForImageClassificationWithTeacher", image=12, patch=4, config=hf.DeiTConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=12, patch_size=4, num_labels=5),
        outputs=LOGITS),
    "clip_vision": dict(kind="picture", cls="CLIPVisionModelWithProjection", image=15, patch=5, config=hf.CLIPVisionConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=15, patch_size=5,
        projection_dim=33), outputs={"last_hidden_state": lambda o: o.last_hidden_state, "image_embeds": lambda o: o.image_embeds}),
    "phi3_long": causal("Phi3ForCausalLM", hf.Phi3Config(
        **llama_like(original_max_position_embeddings=16), rope_parameters={"rope_theta": 10000.0, "rope_type": "longrope",
        "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 1.5, 2.0, 3.5, 5.0, 8.0]}),
        lengths=(1, 3, 16, 17, 37), prompt=9, batch=[19, 3, 16], by_length=True),
    # the library's cache keeps the rotation of keys where the text passes the original length
    "llama_long": causal("LlamaForCausalLM", hf.LlamaConfig(**llama_like(), rope_parameters={
        "rope_theta": 10000.0, "rope_type": "longrope", "factor": 1.5, "original_max_position_embeddings": 20,
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 1.5, 2.0, 3.5, 5.0, 8.0]}), by_length=True, cached=True),
    "phi3_short": causal("Phi3ForCausalLM", hf.Phi3Config(
        **llama_like(original_max_position_embeddings=41), rope_parameters={"rope_theta": 10000.0, "rope_type": "longrope", "factor": 3.0,
        "original_max_position_embeddings": 41, "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 1.5, 2.0, 3.5, 5.0, 8.0]})),
    "qwen3_yarn": causal("Qwen3ForCausalLM", hf.Qwen3Config(**llama_like(), head_dim=12, rope_parameters={
        "rope_theta": 1000000.0, "rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 14, "beta_fast": 4.0})),
    "flan_t5": seq2seq("T5ForConditionalGeneration", hf.T5Config(
        vocab_size=V, d_model=84, d_kv=10, d_ff=101, num_layers=2, num_decoder_layers=3, num_heads=7, relative_attention_num_buckets=14,
        relative_attention_max_distance=25, feed_forward_proj="gated-gelu", tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0), 0, qk=0.6, table=1.0),
    "gemma3": causal("Gemma3ForCausalLM", hf.Gemma3TextConfig(
        **llama_like(head_dim=12, tie_word_embeddings=True, num_hidden_layers=3), sliding_window=8, query_pre_attn_scalar=15,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
                         "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}), plus_one=True, table=0.1),
    "gemma3_linear": causal("Gemma3ForCausalLM", hf.Gemma3TextConfig(
        **llama_like(head_dim=12, tie_word_embeddings=True, num_hidden_layers=3), sliding_window=8, query_pre_attn_scalar=15,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": {"rope_theta": 1000000.0, "rope_type": "linear", "factor": 2.0},
                         "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}), plus_one=True, table=0.1),
    "llama3": causal("LlamaForCausalLM", hf.LlamaConfig(**llama_like(), rope_parameters={
        "rope_theta": 500000.0, "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
        "original_max_position_embeddings": 16})),
    "minilm": dict(kind="text", cls="BertModel", config=hf.BertConfig(**bert_like()), types=True, wrap=Sentence, outputs=SENTENCE,
                   files=sentence_files(84)),
    "mixtral": causal("MixtralForCausalLM", hf.MixtralConfig(**llama_like(intermediate_size=29), num_local_experts=5, num_experts_per_tok=2,
                      sliding_window=9, **rope(1000000.0)), load=dict(experts_implementation="eager")),
    "gpt_neox": causal("GPTNeoXForCausalLM", hf.GPTNeoXConfig(
        vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, max_position_embeddings=41,
        use_parallel_residual=False, **rope(partial_rotary_factor=0.35), **IDS)),
    "phi": causal("PhiForCausalLM", hf.PhiConfig(
        vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, num_key_value_heads=1,
        max_position_embeddings=41, **rope(partial_rotary_factor=0.5), **IDS)),
    "modernbert": dict(kind="text", cls="ModernBertForMaskedLM", outputs=LOGITS, config=hf.ModernBertConfig(
        vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=4, num_attention_heads=7, max_position_embeddings=41,
        local_attention=10, global_attn_every_n_layers=3, bos_token_id=1, eos_token_id=2, pad_token_id=0, cls_token_id=1, sep_token_id=2)),
    "vit_timm": dict(kind="picture", cls="ViTForImageClassification", image=12, patch=4, outputs=LOGITS, shapes=timm_shapes(84, 101, 2, 4, 10, 5),
                     convert=from_timm, config=hf.ViTConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=12, patch_size=4, num_labels=5,
        layer_norm_eps=1e-6),
        head="""tfmc: 1
name: vit_timm
preset: vit
params: {d: 84, layers: 2, heads: 7, ff: 101, image: 12, patch: 4, classes: 5, eps: 1e-6}
weights: {files: [model.safetensors]}
"""),
    "bert_classes": dict(kind="text", cls="BertForSequenceClassification", outputs=LOGITS, types=True, config=hf.BertConfig(**bert_like(num_labels=3))),
    "bert_words": dict(kind="text", cls="BertForMaskedLM", outputs=LOGITS, types=True, config=hf.BertConfig(**bert_like())),
    "distilbert_classes": dict(kind="text", cls="DistilBertForSequenceClassification", outputs=LOGITS, config=hf.DistilBertConfig(
        vocab_size=V, dim=84, hidden_dim=101, n_layers=2, n_heads=7, max_position_embeddings=41, num_labels=5)),
    "distilbert_words": dict(kind="text", cls="DistilBertForMaskedLM", outputs=LOGITS, config=hf.DistilBertConfig(
        vocab_size=V, dim=84, hidden_dim=101, n_layers=2, n_heads=7, max_position_embeddings=41)),
    "roberta_classes": dict(kind="text", cls="XLMRobertaForSequenceClassification", outputs=LOGITS, pad=1, config=hf.XLMRobertaConfig(
        **bert_like(pad_token_id=1, max_position_embeddings=43, type_vocab_size=1, layer_norm_eps=1e-5, num_labels=3))),
    "roberta_tags": dict(kind="text", cls="RobertaForTokenClassification", outputs=LOGITS, pad=1, config=hf.RobertaConfig(
        **bert_like(pad_token_id=1, max_position_embeddings=43, type_vocab_size=1, layer_norm_eps=1e-5, num_labels=7))),
    "roberta_words": dict(kind="text", cls="RobertaForMaskedLM", outputs=LOGITS, pad=1, config=hf.RobertaConfig(
        **bert_like(pad_token_id=1, max_position_embeddings=43, type_vocab_size=1, layer_norm_eps=1e-5))),
    "clip": dict(kind="pair", cls="CLIPModel", image=15, patch=5, end=192, config=hf.CLIPConfig(
        text_config=dict(vocab_size=V, hidden_size=60, intermediate_size=101, num_hidden_layers=2, num_attention_heads=5, max_position_embeddings=21,
                         eos_token_id=192, bos_token_id=191, pad_token_id=0, projection_dim=33),
        vision_config=dict(hidden_size=84, intermediate_size=75, num_hidden_layers=2, num_attention_heads=7, image_size=15, patch_size=5,
                           projection_dim=33), projection_dim=33),
        outputs={k: (lambda o, k=k: getattr(o, k)) for k in ("text_embeds", "image_embeds", "logits_per_image")}),
    "qwen2_windows": causal("Qwen2ForCausalLM", hf.Qwen2Config(
        **llama_like(num_hidden_layers=3), use_sliding_window=True, sliding_window=7, max_window_layers=1, **rope(1000000.0))),
    "t5_encoder": dict(kind="text", cls="T5EncoderModel", outputs=HIDDEN, config=hf.T5Config(
        vocab_size=V, d_model=84, d_kv=10, d_ff=101, num_layers=2, num_heads=7, relative_attention_num_buckets=14,
        relative_attention_max_distance=25, feed_forward_proj="gated-gelu", pad_token_id=0, eos_token_id=1), qk=0.6, table=1.0),
    "vit_states": dict(kind="picture", cls="ViTModel", image=12, patch=4, outputs=HIDDEN, config=hf.ViTConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=12, patch_size=4)),
    "bert_tags": dict(kind="text", cls="BertForTokenClassification", outputs=LOGITS, types=True, config=hf.BertConfig(**bert_like(num_labels=7))),
    "distilbert_tags": dict(kind="text", cls="DistilBertForTokenClassification", outputs=LOGITS, config=hf.DistilBertConfig(
        vocab_size=V, dim=84, hidden_dim=101, n_layers=2, n_heads=7, max_position_embeddings=41, num_labels=7)),
    "mpnet": dict(kind="text", cls="MPNetModel", pad=1, mark=padding_inside(1), wrap=Sentence, outputs=SENTENCE, files=sentence_files(84), config=hf.MPNetConfig(
        **bert_like(pad_token_id=1, max_position_embeddings=43, type_vocab_size=None, layer_norm_eps=1e-5))),
    "mpnet_classes": dict(kind="text", cls="MPNetForSequenceClassification", pad=1, outputs=LOGITS, config=hf.MPNetConfig(
        **bert_like(pad_token_id=1, max_position_embeddings=43, type_vocab_size=None, num_labels=3))),
    "mpnet_words": dict(kind="text", cls="MPNetForMaskedLM", pad=1, outputs=LOGITS, config=hf.MPNetConfig(
        **bert_like(pad_token_id=1, max_position_embeddings=43, type_vocab_size=None))),
    "electra": dict(kind="text", cls="ElectraModel", types=True, outputs=HIDDEN, config=hf.ElectraConfig(**bert_like(embedding_size=36))),
    "electra_classes": dict(kind="text", cls="ElectraForSequenceClassification", types=True, outputs=LOGITS, config=hf.ElectraConfig(
        **bert_like(embedding_size=84, num_labels=3))),
    "electra_tags": dict(kind="text", cls="ElectraForTokenClassification", types=True, outputs=LOGITS, config=hf.ElectraConfig(
        **bert_like(embedding_size=36, num_labels=5))),
    "electra_replaced": dict(kind="text", cls="ElectraForPreTraining", types=True, outputs={"logits": lambda o: o.logits[:, :, None]},
                             config=hf.ElectraConfig(**bert_like(embedding_size=36))),
    "electra_words": dict(kind="text", cls="ElectraForMaskedLM", types=True, outputs=LOGITS, config=hf.ElectraConfig(**bert_like(embedding_size=36))),
    "albert": dict(kind="text", cls="AlbertModel", types=True, outputs=HIDDEN, config=hf.AlbertConfig(
        **bert_like(embedding_size=36, num_hidden_layers=4, num_hidden_groups=2))),
    "albert_classes": dict(kind="text", cls="AlbertForSequenceClassification", types=True, outputs=LOGITS, config=hf.AlbertConfig(
        **bert_like(embedding_size=36, num_hidden_layers=3, num_labels=3))),
    "albert_words": dict(kind="text", cls="AlbertForMaskedLM", types=True, outputs=LOGITS, config=hf.AlbertConfig(
        **bert_like(embedding_size=36, num_hidden_layers=3))),
    "albert_pretraining": dict(kind="text", cls="AlbertForPreTraining", types=True, config=hf.AlbertConfig(
        **bert_like(embedding_size=36, num_hidden_layers=3)), outputs={k: (lambda o, k=k: getattr(o, k)) for k in ("prediction_logits", "sop_logits")}),
    "bert_next": dict(kind="text", cls="BertForNextSentencePrediction", types=True, outputs=LOGITS, config=hf.BertConfig(**bert_like())),
    "bert_pretraining": dict(kind="text", cls="BertForPreTraining", types=True, config=hf.BertConfig(**bert_like()),
                             outputs={k: (lambda o, k=k: getattr(o, k)) for k in ("prediction_logits", "seq_relationship_logits")}),
    "llama_classes": dict(kind="text", cls="LlamaForSequenceClassification", outputs=LOGITS, mark=ends_with_pad, config=hf.LlamaConfig(
        **llama_like(num_labels=3), **rope())),
    "gpt2_tags": dict(kind="text", cls="GPT2ForTokenClassification", outputs=LOGITS, transposed=True, config=hf.GPT2Config(
        vocab_size=V, n_embd=84, n_inner=101, n_layer=2, n_head=7, n_positions=41, num_labels=3, **IDS)),
    "gptj": causal("GPTJForCausalLM", hf.GPTJConfig(
        vocab_size=V, n_embd=84, n_inner=101, n_layer=2, n_head=7, rotary_dim=6, n_positions=41, **IDS)),
    "codegen": causal("CodeGenForCausalLM", hf.CodeGenConfig(
        vocab_size=V, n_embd=96, n_layer=2, n_head=8, rotary_dim=6, n_positions=41, n_ctx=41, **IDS)),
    "gpt_bigcode": causal("GPTBigCodeForCausalLM", hf.GPTBigCodeConfig(
        vocab_size=V, n_embd=84, n_inner=101, n_layer=2, n_head=7, n_positions=41, **IDS)),
    "gpt_bigcode_heads": causal("GPTBigCodeForCausalLM", hf.GPTBigCodeConfig(
        vocab_size=V, n_embd=84, n_inner=101, n_layer=2, n_head=7, n_positions=41, multi_query=False, **IDS)),
    "olmo": causal("OlmoForCausalLM", hf.OlmoConfig(**llama_like(), **rope())),
    "olmo_clipped": causal("OlmoForCausalLM", hf.OlmoConfig(**llama_like(clip_qkv=1.5), **rope())),
    "olmo3": causal("Olmo3ForCausalLM", hf.Olmo3Config(
        **llama_like(num_hidden_layers=3), sliding_window=7, layer_types=["sliding_attention", "sliding_attention", "full_attention"], rope_parameters={
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
            "full_attention": {"rope_theta": 500000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10, "beta_fast": 4.0,
                               "beta_slow": 1.0, "attention_factor": 1.2}})),
    "gpt_oss": causal("GptOssForCausalLM", hf.GptOssConfig(
        **llama_like(num_hidden_layers=3, intermediate_size=29), head_dim=10, num_local_experts=5, num_experts_per_tok=3, sliding_window=7,
        swiglu_limit=1.5, swiglu_alpha=1.3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"rope_theta": 150000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10, "beta_fast": 4.0,
                         "beta_slow": 1.0, "truncate": False}), load=dict(experts_implementation="eager")),
    "olmoe": causal("OlmoeForCausalLM", hf.OlmoeConfig(**llama_like(intermediate_size=29), num_experts=5, num_experts_per_tok=2, **rope()),
                    load=dict(experts_implementation="eager")),
    "cohere": causal("CohereForCausalLM", hf.CohereConfig(
        **llama_like(use_qk_norm=True, num_attention_heads=6, num_key_value_heads=2, logit_scale=0.3), **rope())),
    "cohere2": causal("Cohere2ForCausalLM", hf.Cohere2Config(
        **llama_like(num_hidden_layers=3, tie_word_embeddings=True), sliding_window=7, logit_scale=0.3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], **rope())),
    "smollm3": causal("SmolLM3ForCausalLM", hf.SmolLM3Config(
        **llama_like(num_hidden_layers=3, tie_word_embeddings=True), no_rope_layers=[1, 0, 1], **rope(2000000.0))),
    "qwen2_moe": causal("Qwen2MoeForCausalLM", hf.Qwen2MoeConfig(
        **llama_like(num_hidden_layers=3), num_experts=5, num_experts_per_tok=3, moe_intermediate_size=29, shared_expert_intermediate_size=53,
        decoder_sparse_step=2, **rope(1000000.0)), load=dict(experts_implementation="eager")),
    "nemotron": causal("NemotronForCausalLM", hf.NemotronConfig(**llama_like(), **rope(partial_rotary_factor=0.5)), plus_one=True),
    "glm": causal("GlmForCausalLM", hf.GlmConfig(**llama_like(head_dim=12), **rope(partial_rotary_factor=0.5))),
    "glm4": causal("Glm4ForCausalLM", hf.Glm4Config(**llama_like(head_dim=12), **rope(partial_rotary_factor=0.5))),
    "ministral": causal("MinistralForCausalLM", hf.MinistralConfig(
        **llama_like(num_hidden_layers=3, head_dim=12), sliding_window=7, layer_types=["sliding_attention", "full_attention", "sliding_attention"], **rope())),
    "helium": causal("HeliumForCausalLM", hf.HeliumConfig(**llama_like(head_dim=12), **rope(100000.0))),
    "arcee": causal("ArceeForCausalLM", hf.ArceeConfig(**llama_like(), **rope())),
    "seed_oss": causal("SeedOssForCausalLM", hf.SeedOssConfig(**llama_like(head_dim=12), **rope())),
    "ernie4_5": causal("Ernie4_5ForCausalLM", hf.Ernie4_5Config(**llama_like(head_dim=12, use_bias=True), **rope(500000.0))),
    "m2m_100": seq2seq("M2M100ForConditionalGeneration", hf.M2M100Config(
        vocab_size=V, d_model=84, encoder_layers=2, decoder_layers=3, encoder_attention_heads=7, decoder_attention_heads=6, encoder_ffn_dim=101,
        decoder_ffn_dim=75, max_position_embeddings=41, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2), 2,
        pad=1, mark=padding_inside(1), table=0.15, gain=1.5),
    "pegasus": seq2seq("PegasusForConditionalGeneration", hf.PegasusConfig(
        vocab_size=V, d_model=84, encoder_layers=2, decoder_layers=3, encoder_attention_heads=7, decoder_attention_heads=6, encoder_ffn_dim=101,
        decoder_ffn_dim=75, max_position_embeddings=41, scale_embedding=True, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0), 0,
        table=0.15, gain=1.5, convert=sinusoids),
    "blenderbot": seq2seq("BlenderbotForConditionalGeneration", hf.BlenderbotConfig(
        vocab_size=V, d_model=84, encoder_layers=2, decoder_layers=3, encoder_attention_heads=7, decoder_attention_heads=6, encoder_ffn_dim=101,
        decoder_ffn_dim=75, max_position_embeddings=41, scale_embedding=True, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1), 1, positions=5.0, gain=1.3),
    "dinov2": dict(kind="picture", cls="Dinov2Model", image=12, patch=4, outputs=HIDDEN, config=hf.Dinov2Config(**DINOV2, mlp_ratio=2)),
    "dinov2_classes": dict(kind="picture", cls="Dinov2ForImageClassification", image=12, patch=4, outputs=LOGITS,
                           config=hf.Dinov2Config(**DINOV2, mlp_ratio=2, num_labels=5)),
    "dinov2_giant": dict(kind="picture", cls="Dinov2Model", image=12, patch=4, outputs=HIDDEN,
                         config=hf.Dinov2Config(**{**DINOV2, "hidden_size": 70}, mlp_ratio=2, use_swiglu_ffn=True)),
    "dinov2_with_registers": dict(kind="picture", cls="Dinov2WithRegistersModel", image=12, patch=4, outputs=HIDDEN,
                                  config=hf.Dinov2WithRegistersConfig(**DINOV2, mlp_ratio=2, num_register_tokens=3)),
    "dinov2_with_registers_classes": dict(
        kind="picture", cls="Dinov2WithRegistersForImageClassification", image=12, patch=4, outputs=LOGITS,
        config=hf.Dinov2WithRegistersConfig(**DINOV2, mlp_ratio=2, num_register_tokens=3, use_swiglu_ffn=True, num_labels=5)),
    "siglip": dict(kind="pair", cls="SiglipModel", image=15, patch=5, config=hf.SiglipConfig(
        text_config=dict(vocab_size=V, hidden_size=60, intermediate_size=101, num_hidden_layers=2, num_attention_heads=5, max_position_embeddings=21,
                         projection_size=84),
        vision_config=dict(hidden_size=84, intermediate_size=75, num_hidden_layers=2, num_attention_heads=7, image_size=15, patch_size=5)),
        outputs={k: (lambda o, k=k: getattr(o, k)) for k in ("text_embeds", "image_embeds", "logits_per_image")}),
    "siglip_vision": dict(kind="picture", cls="SiglipVisionModel", image=15, patch=5, config=hf.SiglipVisionConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=15, patch_size=5),
        outputs={**HIDDEN, "pooler_output": lambda o: o.pooler_output}),
    "sentence_dense": dict(kind="text", cls="DistilBertModel", outputs=SENTENCE, **projected("sentence_dense", 45, 84, True), config=hf.DistilBertConfig(
        vocab_size=V, dim=84, hidden_dim=101, n_layers=2, n_heads=7, max_position_embeddings=41)),
    "sentence_t5": dict(kind="text", cls="T5EncoderModel", outputs=SENTENCE, **projected("sentence_t5", 53, 84, False), config=hf.T5Config(
        vocab_size=V, d_model=84, d_kv=10, d_ff=101, num_layers=2, num_heads=7, relative_attention_num_buckets=14,
        relative_attention_max_distance=25, pad_token_id=0, eos_token_id=1), qk=0.6, table=1.0),
    "qwen3_sentence": dict(kind="text", cls="Qwen3Model", outputs=SENTENCE, wrap=lambda m: Sentence(m, last=True), files=sentence_files(84, last=True),
                           config=hf.Qwen3Config(**llama_like(), head_dim=12, **rope(1000000.0))),
    "nomic_bert": dict(kind="text", cls="NomicBertModel", types=True, wrap=Sentence, outputs=SENTENCE, files=sentence_files(84), config=hf.NomicBertConfig(
        **bert_like(), **rope(1000.0))),
    "modernbert_states": dict(kind="text", cls="ModernBertModel", wrap=Sentence, outputs=SENTENCE, files=sentence_files(84), config=hf.ModernBertConfig(
        vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=4, num_attention_heads=7, max_position_embeddings=41,
        local_attention=10, global_attn_every_n_layers=3, bos_token_id=1, eos_token_id=2, pad_token_id=0, cls_token_id=1, sep_token_id=2)),
    "modernbert_classes": dict(kind="text", cls="ModernBertForSequenceClassification", outputs=LOGITS, config=hf.ModernBertConfig(
        vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=4, num_attention_heads=7, max_position_embeddings=41, num_labels=5,
        classifier_pooling="mean", local_attention=10, global_attn_every_n_layers=3, bos_token_id=1, eos_token_id=2, pad_token_id=0, cls_token_id=1,
        sep_token_id=2)),
    "mpt_clipped": causal("MptForCausalLM", hf.MptConfig(
        vocab_size=V, d_model=84, n_heads=7, n_layers=2, max_seq_len=41, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        attn_config={"clip_qkv": 0.9, "softmax_scale": 0.4}), gain=1.5, table=0.3),
    "opt_bare": causal("OPTForCausalLM", hf.OPTConfig(
        vocab_size=V, hidden_size=84, ffn_dim=101, num_hidden_layers=2, num_attention_heads=7, max_position_embeddings=41, word_embed_proj_dim=84,
        activation_function="gelu", enable_bias=False, layer_norm_elementwise_affine=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "mt5": seq2seq("MT5ForConditionalGeneration", hf.MT5Config(
        vocab_size=V, d_model=84, d_kv=10, d_ff=101, num_layers=2, num_decoder_layers=3, num_heads=7, relative_attention_num_buckets=14,
        relative_attention_max_distance=25, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0), 0, qk=0.6, table=1.0),
    "mistral_sentence": dict(kind="text", cls="MistralModel", outputs=SENTENCE, wrap=lambda m: Sentence(m, last=True), files=sentence_files(84, last=True),
                             config=hf.MistralConfig(**llama_like(sliding_window=7), **rope())),
    "clip_text_states": dict(kind="text", cls="CLIPTextModel", outputs={**HIDDEN, "pooler_output": lambda o: o.pooler_output}, mark=ends(192),
                             longest=37, config=hf.CLIPTextConfig(
        vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, max_position_embeddings=41, eos_token_id=192,
        bos_token_id=191, pad_token_id=0)),
    "siglip_vision_cut": dict(kind="picture", cls="SiglipVisionModel", image=17, patch=5, config=hf.SiglipVisionConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=17, patch_size=5),
        outputs={**HIDDEN, "pooler_output": lambda o: o.pooler_output}),
    "llama_yarn": causal("LlamaForCausalLM", hf.LlamaConfig(**llama_like(), rope_parameters={
        "rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10, "mscale": 1.5, "mscale_all_dim": 0.5})),
}
