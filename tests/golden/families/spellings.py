#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How published folders spell the same model: spellings.py, with TFMC in the environment.

1. SAME: further or older keys of config.json, after which the model expands to the very same statements.
2. ALIKE: two configurations that must mean the same, and a third that must not.
3. REFUSED: keys that change the computation, refused by name; all of them at once.
4. HEADS: configurations that tie a head whose file stores another one: the stored one is used, whatever the configuration says. A file
   without the table has it in the head, unless the configuration says that they differ.
5. NAMES: tensors under older names, and further ones that files carry: `tfmc plan` of a file with a hole for a body takes them.
"""
import json
import os
import re
import struct
import sys
import tempfile

import seeded
from command import call

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = {"unsloth_fixed": True, "unsloth_version": "1.2", "model_max_length": 99, "_model_name_or_path": "x", "eos_token_ids": [1, 2], "unk_token_id": 3, "xla_device": None,
         "image_token_id": 4, "cache_implementation": "static", "experts_implementation": "eager", "base_model": "x", "language": ["en"], "_attn_implementation_autoset": True, "tokenizer_name": "x/y",
         "custom_pipelines": {"text-generation": {"impl": "a.B", "pt": "C"}}, "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
         "sentence_transformers": {"activation_fn": "x.Identity", "version": "4"}, "sbert_ce_default_activation_function": "x.Identity"}
GPT2 = {"model_type": "gpt2", "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 9, "vocab_size": 17}
MARIAN = {"model_type": "marian", "d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 3, "decoder_attention_heads": 3,
          "encoder_ffn_dim": 7, "decoder_ffn_dim": 7, "vocab_size": 17, "max_position_embeddings": 9, "decoder_start_token_id": 16, "pad_token_id": 16}
MPT = {"model_type": "mpt", "d_model": 12, "n_heads": 3, "n_layers": 1, "vocab_size": 17, "max_seq_len": 9}
BIGCODE = {**GPT2, "model_type": "gpt_bigcode"}
LLAMA = {"model_type": "llama", "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 1, "intermediate_size": 7, "vocab_size": 5}
MISTRAL = {**LLAMA, "model_type": "mistral", "num_key_value_heads": 3, "max_position_embeddings": 9000}
GEMMA2 = {**LLAMA, "model_type": "gemma2", "num_key_value_heads": 3, "max_position_embeddings": 9}
MOE = {**LLAMA, "model_type": "qwen3_moe", "num_key_value_heads": 3, "head_dim": 8, "num_hidden_layers": 2, "num_experts": 3, "num_experts_per_tok": 2,
       "moe_intermediate_size": 5, "use_sliding_window": True, "sliding_window": 4}
OSS = {**LLAMA, "model_type": "gpt_oss", "num_key_value_heads": 3, "head_dim": 8, "num_local_experts": 3, "num_experts_per_tok": 2, "max_position_embeddings": 9}
NEO = {"model_type": "gpt_neo", "hidden_size": 12, "num_layers": 2, "num_heads": 3, "vocab_size": 17, "max_position_embeddings": 9}
VIT = {"model_type": "vit", "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 7, "image_size": 4, "patch_size": 2}
DINOV2 = {**{k: v for k, v in VIT.items() if k != "intermediate_size"}, "model_type": "dinov2", "mlp_ratio": 2}
BERT = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3,
        "intermediate_size": 7, "vocab_size": 17, "max_position_embeddings": 9}
BART = {"model_type": "bart", "d_model": 48, "encoder_layers": 1, "encoder_attention_heads": 3, "encoder_ffn_dim": 7, "vocab_size": 17, "max_position_embeddings": 9}
WHISPER = {"model_type": "whisper", "d_model": 12, "encoder_layers": 1, "encoder_attention_heads": 3, "encoder_ffn_dim": 7, "vocab_size": 17, "num_mel_bins": 4}
T5 = {"model_type": "t5", "d_model": 12, "d_kv": 4, "d_ff": 7, "num_layers": 1, "num_heads": 3, "vocab_size": 17}
LABELS = {"id2label": {"0": "a", "1": "b"}}
YARN = {"factor": 4.0, "original_max_position_embeddings": 6}

SAME = [
    (GPT2, TOOLS),
    ("llama3", {"max_sequence_length": 7, "is_llama_config": True, "rope_interleaved": False}),
    ("qwen2_windows", {"use_mrope": False}),
    ("phi3", {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False}),
    ("gpt_neox", {"num_steps": "global_step213"}),
    ("falcon", {"ff_factor": 4}),
    ("opt_bare", {"learned_embeddings": True, "scale_embeddings": False}),
    ("nomic_bert", {"parallel_block_tied_norm": False}),
    ({**LLAMA, "is_decoder": True}, {"pretraining_tp": None, "bos_token_ids": [1], "assistant_early_exit": None}),
    (MARIAN, {"normalize_embedding": False, "static_position_embeddings": True, "normalize_before": False, "add_final_layer_norm": False}),
    ("mbart", {"save_step": 3, "replacing_rate": 0, "student_encoder_layers": None, "student_decoder_layers": None}),
    ({**MPT, "attn_config": {"alibi": True}}, {"attn_config": {"alibi": True, "_name_or_path": "", "bad_words_ids": None, "clip_qkv": None, "softmax_scale": None,
                                                               "torch_dtype": None, "id2label": {"0": "a"}}}),
    # the library computes the width of DINOv2's feed-forward from mlp_ratio, whatever else a configuration has
    *(({**DINOV2, "use_swiglu_ffn": gated, "model_type": "dinov2" + more},
       {"intermediate_size": 7, "layerscale_value": 1.0, "drop_path_rate": 0.1, "apply_layernorm": True, "reshape_hidden_states": False,
        "stage_names": ["stem", "stage1"], "out_features": ["stage1"], "out_indices": [1], "use_mask_token": True, "qkv_bias": True})
      for gated in (False, True) for more in ("", "_with_registers")),
    ("clip", {"text_config_dict": None, "vision_config_dict": None}),
]
# (configuration, one that means the same, one that does not)
ALIKE = [
    (BIGCODE, {**BIGCODE, "num_key_value_heads": 1, "multi_query": True}, {**BIGCODE, "multi_query": False}),
    (MISTRAL, {**MISTRAL, "sliding_window": 4096}, {**MISTRAL, "sliding_window": None}),
    ({**MISTRAL, "sliding_window": None}, {**LLAMA, "max_position_embeddings": 9000}, {**MISTRAL, "sliding_window": 5}),
    (GEMMA2, {**GEMMA2, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}, {**GEMMA2, "attn_logit_softcapping": None}),
    ({**GEMMA2, "final_logit_softcapping": None}, {**GEMMA2, "final_logit_softcapping": 0.0}, GEMMA2),
    ({**LLAMA, "rope_scaling": {**YARN, "type": "yarn"}}, {**LLAMA, "rope_parameters": {**YARN, "type": "yarn", "rope_type": "yarn", "finetuned": True, "mscale": 1.0}},
     {**LLAMA, "rope_scaling": {**YARN, "type": "yarn", "mscale": 1.0, "mscale_all_dim": 0.5}}),
    ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}}, {**LLAMA, "rope_parameters": {"type": "linear", "rope_type": "linear", "factor": 2.0}}, LLAMA),
    ({**LLAMA, "model_type": "qwen2"}, {**LLAMA, "model_type": "qwen2", "rope_theta": 10000.0}, {**LLAMA, "model_type": "qwen2", "rope_theta": 1000000.0}),
    # the defaults of gpt-oss are one object of rope_parameters: a part of it alone has other ones
    ({**OSS, "rope_parameters": {"rope_theta": 150000.0}}, {**OSS, "rope_parameters": {"rope_type": "default"}}, OSS),
    ({**OSS, "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "truncate": False}},
     {**OSS, "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": False, "original_max_position_embeddings": 9}},
     {**OSS, "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "truncate": False, "original_max_position_embeddings": 4096}}),
    # attention_layers counts, alone and beside attention_types
    *(({**NEO, "attention_layers": ["local", "global"], **types}, {**NEO, "attention_types": [[["local", "global"], 1]]}, {**NEO, "attention_types": [[["global", "local"], 1]]})
      for types in ({}, {"attention_types": [[["global", "local"], 1]]}, {"attention_types": None})),
    # the library gives all layers of Qwen3-MoE the window
    ({**MOE, "max_window_layers": 1}, {**MOE, "max_window_layers": 0, "layer_types": ["full_attention", "sliding_attention"]}, {**MOE, "use_sliding_window": False}),
    # labels: as many as have names, else num_labels, else two
    *(({**c, **LABELS, "num_labels": 3}, c, {**c, "num_labels": 3}) for c in (VIT, {**VIT, "model_type": "deit"}, BERT, {**BERT, "architectures": ["BertForTokenClassification"]},
      *({**DINOV2, "model_type": "dinov2" + more, "architectures": [f"Dinov2{cls}ForImageClassification"]}
        for more, cls in (("", ""), ("_with_registers", "WithRegisters"))))),
    # a decoder has defaults of its own, not the encoder's values
    *(({**BART, **m}, {**BART, **m, "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16}, {**BART, **m, "decoder_layers": 1})
      for m in ({}, {"model_type": "mbart"}, {"model_type": "m2m_100"}, {"model_type": "marian"}, {"model_type": "pegasus"})),
    ({**BART, "model_type": "blenderbot", "decoder_attention_heads": 3}, {**BART, "model_type": "blenderbot", "decoder_attention_heads": 3, "decoder_layers": 24, "decoder_ffn_dim": 10240},
     {**BART, "model_type": "blenderbot", "decoder_attention_heads": 3, "decoder_ffn_dim": 7}),
    (WHISPER, {**WHISPER, "decoder_layers": 4, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536}, {**WHISPER, "decoder_attention_heads": 3}),
    ({**DINOV2, "model_type": "dinov2_with_registers"}, {**DINOV2, "model_type": "dinov2_with_registers", "num_register_tokens": 4},
     {**DINOV2, "model_type": "dinov2_with_registers", "num_register_tokens": 0}),
    ({**T5, "scale_decoder_outputs": None}, {**T5, "scale_decoder_outputs": False}, {**T5, "scale_decoder_outputs": True}),
    ({**LLAMA, "model_type": "phi", "partial_rotary_factor": 0.5}, {**LLAMA, "model_type": "phi"}, {**LLAMA, "model_type": "phi", "partial_rotary_factor": 0.25}),
]
REFUSED = [
    ({**LLAMA, "use_mrope": 1, "second": 2}, ["'use_mrope'", "'second'", "--ignore-key=use_mrope --ignore-key=second,", 'hub: {ignore: {mine: ["use_mrope", "second"]}}']),
    ({**LLAMA, "num_attention_heads": 100000, "head_dim": 24}, ["attention has at most 65536 heads, found 100000"]),
    ({**LLAMA, "model_type": "qwen2", "use_mrope": True}, ["'use_mrope' is true"]),
    ({**LLAMA, "rope_interleaved": True}, ["'rope_interleaved' is true"]),
    ({**MARIAN, "normalize_embedding": True}, ["'normalize_embedding' is true"]),
    ({**LLAMA, "model_type": "phi3", "lm_head_bias": True}, ["'lm_head_bias' is true"]),
    ({**MPT, "attn_config": {"qk_ln": True}}, ["'attn_config.qk_ln' is true"]),
]
# beginnings that wrappers put in front of the names of tensors: what replaces the beginning of a name
WRAPPED = [("llama3", "", "_orig_mod."), ("llama3", "", "module._orig_mod."), ("llama3", "", "language_model."), ("llama3", r"model\.", "model.language_model."),
           ("bert_classes", "", "module."), ("flan_t5", "", "_orig_mod.")]
# (family, the stored head in place of the tied one, its parameter)
HEADS = [
    *((family, "lm_head.weight", "head.weight") for family in ("gemma", "gemma3", "starcoder2", "falcon", "gpt_neo", "gpt_bigcode", "mpt_clipped", "opt_bare")),
    *((family, "lm_head.weight", "decoder.head.weight") for family in ("mbart", "m2m_100", "pegasus", "mt5")),
    ("bert_words", "cls.predictions.decoder.weight", "head.weight"), ("roberta_words", "lm_head.decoder.weight", "head.weight"),
    ("albert_words", "predictions.decoder.weight", "head.weight"), ("distilbert_words", "vocab_projector.weight", "head.weight"),
    ("electra_words", "generator_lm_head.weight", "head.weight"), ("mpnet_words", "lm_head.decoder.weight", "head.weight"), ("modernbert", "decoder.weight", "head.weight"),
]
# (family, [old name -> new name], further tensors for each name that fits)
INV = (r"(.*layers\.\d+\.self_attn)\.(q_proj|qkv_proj)\.weight", r"\1.rotary_emb.inv_freq", [6])
HEAD = (r"model\.embed_tokens\.weight", "lm_head.weight", [193, 84])
NAMES = [
    ("gemma", [], [INV, HEAD]), ("gemma3", [], [INV, HEAD]), ("starcoder2", [], [INV, HEAD]), ("phi", [], [INV]), ("llama3", [], [INV]),
    ("mistral_sentence", [], [(r"embed_tokens\.weight", "lm_head.weight", [193, 84])]),
    ("roberta_words", [(r"^lm_head\.bias", "lm_head.decoder.bias")], [(r"(.*)embeddings\.word_embeddings\.weight", r"\1embeddings.position_ids", [1, 43])]),
    ("mpnet_words", [(r"^lm_head\.bias", "lm_head.decoder.bias")], []),
    ("gptj", [], [(r"(.*attn)\.q_proj\.weight", r"\1.embed_positions", [41, 8]), (r"(.*attn)\.q_proj\.weight", r"\1.masked_bias", [])]),
    ("codegen", [], [(r"(.*attn)\.qkv_proj\.weight", r"\1.bias", [1, 1, 41, 41]), (r"(.*attn)\.qkv_proj\.weight", r"\1.embed_positions", [41, 8])]),
    ("falcon", [], [(r"(.*self_attention)\.query_key_value\.weight", r"\1.maybe_rotary.inv_freq", [6]), (r"(.*)word_embeddings\.weight", "lm_head.weight", [193, 84])]),
    ("gpt_neox", [], [(r"(.*attention)\.query_key_value\.weight", r"\1.masked_bias", []), (r"(.*attention)\.query_key_value\.weight", r"\1.rotary_emb.inv_freq", [4])]),
    ("bert_words", [(r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta")],
     [(r"bert\.embeddings\.word_embeddings\.weight", "cls.seq_relationship.weight", [2, 84])]),
    ("modernbert_states", [(r"^", "model.")], []),
    ("clip_text_states", [(r"^(?!text_model\.)", "text_model.")], [(r".*token_embedding\.weight", "text_model.embeddings.position_ids", [1, 41])]),
    ("mt5", [], [(r"shared\.weight", side + ".embed_tokens.weight", [193, 84]) for side in ("encoder", "decoder")]),
    # writers that store tied tables once keep any of them
    *((family, [(r"^(model\.)?shared\.weight", rf"\1{side}.embed_tokens.weight")], []) for family in ("mbart", "flan_t5") for side in ("encoder", "decoder")),
    ("t5_encoder", [(r"^shared\.weight", "encoder.embed_tokens.weight")], []),
    ("m2m_100", [], [(r"model\.shared\.weight", "lm_head.weight", [193, 84]), (r"model\.shared\.weight", "final_logits_bias", [1, 193])]),
]


def fail(*message):
    print(*message)
    sys.exit(1)


def config_of(base, more=()):
    if isinstance(base, str):
        with open(os.path.join(HERE, base, "config.json"), encoding="utf-8") as f:
            base = json.load(f)
    return {**base, **dict(more)}


def folder_of(tmp, config, shapes=(("w", [1]),)):
    """A hub folder whose weights are a header and a hole."""
    header, at = {}, 0
    for name, shape in dict(shapes).items():
        size = 4 * seeded.count(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.join(tmp, "model")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + at)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    return folder


def statements(tmp, config):
    """The graph of the configuration, without the parameters that it came from."""
    folder = folder_of(tmp, config)
    steps = os.path.join(folder, "steps.yaml")
    for source, out in ((folder, steps), (steps, "-")):
        result = call("expand", source, "-o", out)
        if result.returncode != 0:
            fail(json.dumps(config), "is refused:\n" + result.stderr)
    return result.stdout[result.stdout.index("\ninputs:"):]


def names(family, renamed, further):
    """Names and shapes of the family's tensors with others in their place and beside them."""
    shapes = {}
    for name, shape, *_ in seeded.read_list(os.path.join(HERE, family, "tensors.txt")):
        new = name
        for old, by in renamed:
            new = re.sub(old, by, new)
        shapes[new] = list(shape)
        for pattern, by, size in further:
            if re.fullmatch(pattern, name):
                shapes[re.sub(pattern, by, name)] = size
    before = len(list(seeded.read_list(os.path.join(HERE, family, "tensors.txt"))))
    if len(shapes) < before + len(further):
        fail(family, "has no tensor for", further)
    return shapes


def heads(tmp, family, name, parameter):
    """Weights of the folder with a head of ones beside a table that is a hole; the same with a copy of the table, and untied."""
    shapes = {n: list(s) for n, s, *_ in seeded.read_list(os.path.join(HERE, family, "tensors.txt"))}
    table = max((n for n in shapes if re.search(r"(embed_tokens|word_embeddings|tok_embeddings|shared|wte)\.weight$", n)), key=len)
    shapes.pop(name, None)
    shapes[name] = shapes[table]
    folder = folder_of(tmp, config_of(family), shapes)
    path = os.path.join(folder, "model.safetensors")
    found = []
    for own in (False, True):
        with open(path, "r+b") as f:
            n = int.from_bytes(f.read(8), "little")
            f.seek(8 + n + json.loads(f.read(n))[name]["data_offsets"][0])
            f.write(struct.pack("<f", float(own)))
        result = call("inspect", folder)
        if result.returncode != 0:
            fail(family, name, result.stderr)
        found.append(f"\n  {parameter}: " in result.stdout)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**config_of(family), "tie_word_embeddings": False}, f)
    result = call("inspect", folder)
    if result.returncode != 0 or found + [f"\n  {parameter}: " in result.stdout] != [False, True, True]:
        fail(family, name, "copy, own, untied:", found, result.stdout, result.stderr)
    del shapes[table]
    for tied, code, part in ((True, 0, ""), (False, 1, "no weight file has the tensor")):
        if family == "mt5" and not tied:  # which the library ties in any case
            continue
        result = call("inspect", folder_of(tmp, {**config_of(family), "tie_word_embeddings": tied}, shapes))
        if result.returncode != code or part not in result.stderr or f"\n  {parameter}: " in result.stdout:
            fail(family, name, "alone, tied:", tied, result.stdout, result.stderr)


def folders(tmp):
    """--ignore-key on every kind of command and in what import writes; names of weight files; rows behind the vocabulary."""
    folder = folder_of(tmp, {**GPT2, "unheard": {"of": 3}})
    plain = os.path.join(tmp, "m.yaml")
    made = call("import", folder, "-o", plain, "--ignore-key=unheard.*")
    for result, code, part in ((made, 0, ""), (call("expand", plain), 0, ""), (call("expand", folder), 1, "--ignore-key=unheard.of,"),
                               (call("expand", folder, "--ignore-key=unheard.of"), 0, ""), (call("expand", folder, "--ignore-key=unheard.of", "--ignore-key=nope"), 1, "no key of config.json is called 'nope'"),
                               (call("inspect", folder, "--ignore-key=unheard.of", "--ignore-key=n_layer"), 1, "; 47 more of this entry"),
                               (call("expand", os.path.join(HERE, "vit_timm", "head.yaml"), "--ignore-key=x"), 1, "--ignore-key is about a configuration")):
        if result.returncode != code or part not in result.stderr:
            fail("--ignore-key:", result.args, result.stderr)
    rows = [(n, list(s)) for n, s, *_ in seeded.read_list(os.path.join(HERE, "llama3", "tensors.txt"))]
    folder = folder_of(tmp, config_of("llama3"), [(n, [s[0] + 7, *s[1:]] if s[0] == 193 else s) for n, s in rows])
    os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, "it's \"new\"\n.safetensors"))
    result = call("inspect", folder)
    if result.returncode != 0 or result.stderr.count("the vocabulary has 193 ids") != 2 or "head.weight: f32[193,84]" not in result.stdout:
        fail("more rows, odd names:", result.stdout, result.stderr)
    for name in os.listdir(folder):
        if name != "config.json":
            os.remove(os.path.join(folder, name))
    for name, part in (("model.bin", "by another name than pytorch_model.bin"), ("model.onnx", "a graph of ONNX"), ("x.gguf", "GGUF files"), ("adapter_config.json", "an adapter (LoRA)")):
        open(os.path.join(folder, name), "w", encoding="utf-8").close()
        result = call("inspect", folder)
        os.remove(os.path.join(folder, name))
        if result.returncode != 3 or part not in result.stderr or "note: " not in result.stderr:
            fail("a folder with", name, result.stderr)
    part = os.path.join(folder, "x-00002-of-00003.gguf")
    with open(part, "wb") as f:
        f.write(b"GGUF\3\0\0\0" + bytes(16))
    result = call("expand", part)
    if "part 2 of 3" not in result.stderr or "'x-00001-of-00003.gguf'" not in result.stderr:
        fail("part 2:", result.stderr)
    os.remove(part)


def own_keys(tmp):
    """A model file may say of keys that they change nothing."""
    folder = folder_of(tmp, {**GPT2, "wandb": {"run": 3}})
    path = os.path.join(folder, "model.yaml")
    head = "tfmc: 1\nname: m\nhf: config.json\nweights: {files: [model.safetensors]}\n"
    for more, code in (("", 1), ("hub: {ignore: {mine: ['wandb.**']}}\n", 0), ("hub: {ignore: {mine: [other]}}\n", 1)):
        with open(path, "w", encoding="utf-8") as f:
            f.write(head + more)
        result = call("expand", path)
        if result.returncode != code:
            fail("hub in a model file:", more, result.stderr)
    with open(path, "w", encoding="utf-8") as f:
        f.write("tfmc: 1\nname: m\npreset: gpt2\nhub: {ignore: {mine: [x]}}\n")
    result = call("expand", path)
    if result.returncode != 1 or "model.yaml:4:6: error: 'hub' is about a configuration" not in result.stderr:
        fail("hub without hf:", result.stderr)


def main():
    with tempfile.TemporaryDirectory() as tmp:
        for base, more in SAME:
            if statements(tmp, config_of(base)) != statements(tmp, config_of(base, more)):
                fail(base, more, "is another model")
        for one, same, not_same in ALIKE:
            graph = statements(tmp, one)
            if graph != statements(tmp, same) or graph == statements(tmp, not_same):
                fail("not alike, or alike:", one, same, not_same)
        for config, parts in REFUSED:
            result = call("expand", folder_of(tmp, config))
            if result.returncode != 1 or not all(part in result.stderr for part in parts):
                fail(config, "is not refused:", result.stderr)
        for family, renamed, further in NAMES:
            result = call("plan", folder_of(tmp, config_of(family), names(family, renamed, further)))
            if result.returncode != 0:
                fail(family, renamed, further, result.stderr)
        for family, name, parameter in HEADS:
            heads(tmp, family, name, parameter)
        for family, old, new in WRAPPED:
            result = call("plan", folder_of(tmp, config_of(family), names(family, [("^" + old, new)], [])))
            if result.returncode != 0:
                fail(family, new, result.stderr)
        own_keys(tmp)
        folders(tmp)
    print(f"{len(SAME)} same, {len(ALIKE)} alike, {len(REFUSED)} refused, {len(HEADS)} heads, {len(NAMES)} files")


if __name__ == "__main__":
    main()
