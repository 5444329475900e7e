#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configurations against the library: configs.py [FAMILY ...], by hand, with TFMC in the environment and what make.py needs.

SHOW=1 prints every comparison, ONLY=REGEX limits them to these keys and changes, JOBS=N runs N processes.

Every family of families.py and of MORE below, with its whole configuration as the library writes it, is compared with the library: each key
deleted, null and with other values, all keys that equal the default deleted at once. Weights are drawn again for each configuration, as shapes
change with it, and the library's file is what `tfmc run` reads. A comparison ends in one of these:

  same      the results agree to 1e-4 of the largest
  refused   tfmc refuses the configuration by the name of the key, or of the tensor whose shape it would change
  library   the library itself refuses it, or gives no finite results
  large     too many weights to draw: the library's shapes, as holes in a file, fit what tfmc expects
  table     a difference that EXPLAINED has a reason for
  DIFFERS   everything else; the script ends with the count of these, which must be 0
"""
import copy
import hashlib
import json
import math
import os
import re
import struct
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
import numpy
import torch
import transformers as hf
from safetensors.numpy import load_file, save_file
from transformers.core_model_loading import revert_weight_conversion

from command import call
from families import FAMILIES, IDS, LOGITS, HIDDEN, V, bert_like, causal, ends_with_pad, llama_like, rope, seq2seq
from make import how

BOUND = 1e-4
LARGE = 4_000_000  # weights that are drawn


def heads_of(name, ending):
    """The family as a classifier of texts or of tokens; longer texts end with the id of padding."""
    config = copy.deepcopy(FAMILIES[name]["config"])
    config.num_labels = 3
    return {**FAMILIES[name], "kind": "text", "cls": FAMILIES[name]["cls"].replace("ForCausalLM", ending), "config": config, "mark": ends_with_pad,
            "keys": r"pad_token_id|id2label|label2id|num_labels|tie_word_embeddings|classifier_dropout"}


MORE = {
    "llama": causal("LlamaForCausalLM", hf.LlamaConfig(**llama_like(), **rope())),
    "mistral": causal("MistralForCausalLM", hf.MistralConfig(**llama_like(sliding_window=9), **rope())),
    "qwen2": causal("Qwen2ForCausalLM", hf.Qwen2Config(**llama_like(), **rope())),
    "qwen3": causal("Qwen3ForCausalLM", hf.Qwen3Config(**llama_like(num_hidden_layers=3), head_dim=12, use_sliding_window=True, sliding_window=7,
                    max_window_layers=1, **rope())),
    "qwen2_moe_windows": causal("Qwen2MoeForCausalLM", hf.Qwen2MoeConfig(
        **llama_like(num_hidden_layers=3), num_experts=5, num_experts_per_tok=3, moe_intermediate_size=29, shared_expert_intermediate_size=53,
        use_sliding_window=True, sliding_window=7, max_window_layers=2, **rope()), load=dict(experts_implementation="eager")),
    "qwen3_moe_windows": causal("Qwen3MoeForCausalLM", hf.Qwen3MoeConfig(
        **llama_like(num_hidden_layers=3), head_dim=12, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=29, mlp_only_layers=[1],
        use_sliding_window=True, sliding_window=7, **rope()), load=dict(experts_implementation="eager")),
    **{f"{name}_{head}": heads_of(name, cls) for name in ("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss")
       for head, cls in (("classes", "ForSequenceClassification"), ("tags", "ForTokenClassification"))},
    "gemma2": causal("Gemma2ForCausalLM", hf.Gemma2Config(**llama_like(head_dim=12, tie_word_embeddings=True), sliding_window=7, query_pre_attn_scalar=15,
                     **rope()), plus_one=True, table=0.1),
    "gpt2": causal("GPT2LMHeadModel", hf.GPT2Config(vocab_size=V, n_embd=84, n_layer=2, n_head=7, n_positions=41, n_inner=101, **IDS), transposed=True),
    "bloom": causal("BloomForCausalLM", hf.BloomConfig(vocab_size=V, hidden_size=84, n_layer=2, n_head=7, **IDS)),
    "mpt": causal("MptForCausalLM", hf.MptConfig(vocab_size=V, d_model=84, n_heads=7, n_layers=2, max_seq_len=41, tie_word_embeddings=True, **IDS)),
    "opt": causal("OPTForCausalLM", hf.OPTConfig(vocab_size=V, hidden_size=84, ffn_dim=101, num_hidden_layers=2, num_attention_heads=7,
                  max_position_embeddings=41, word_embed_proj_dim=84, **IDS)),
    "bert": dict(kind="text", cls="BertModel", outputs=HIDDEN, types=True, config=hf.BertConfig(**bert_like())),
    "bart": seq2seq("BartForConditionalGeneration", hf.BartConfig(
        vocab_size=V, d_model=84, encoder_layers=2, decoder_layers=3, encoder_attention_heads=7, decoder_attention_heads=6, encoder_ffn_dim=101,
        decoder_ffn_dim=75, max_position_embeddings=41, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2), 2, pad=1),
    "marian": seq2seq("MarianMTModel", hf.MarianConfig(
        vocab_size=V, d_model=84, encoder_layers=2, decoder_layers=3, encoder_attention_heads=7, decoder_attention_heads=6, encoder_ffn_dim=101,
        decoder_ffn_dim=75, max_position_embeddings=41, pad_token_id=192, bos_token_id=0, eos_token_id=2, decoder_start_token_id=192), 192, pad=192),
    "t5": seq2seq("T5ForConditionalGeneration", hf.T5Config(
        vocab_size=V, d_model=84, d_kv=10, d_ff=101, num_layers=2, num_decoder_layers=3, num_heads=7, relative_attention_num_buckets=14,
        relative_attention_max_distance=25, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0), 0, qk=0.6, table=1.0),
    "whisper": dict(kind="speech", cls="WhisperForConditionalGeneration", start=1, config=hf.WhisperConfig(
        vocab_size=V, d_model=84, encoder_layers=2, decoder_layers=2, encoder_attention_heads=7, decoder_attention_heads=7, encoder_ffn_dim=101,
        decoder_ffn_dim=75, num_mel_bins=8, max_source_positions=21, max_target_positions=41, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, begin_suppress_tokens=None)),
    "vit": dict(kind="picture", cls="ViTForImageClassification", image=12, patch=4, outputs=LOGITS, config=hf.ViTConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=12, patch_size=4)),
}
SKIPPED = {"vit_timm": "no configuration"}
# (families, key, kind of change or None: all) -> reason
EXPLAINED = [
    ("mpt.*", r"attn_config\.alibi_bias_max", None, "tfmc follows the code the models were trained with; the library takes 8 for all"),


]
# Keys of all classes, which are tried in one family of each kind.
COMMON = set(hf.PretrainedConfig().to_dict()) | {"use_cache", "initializer_range", "attention_dropout", "hidden_dropout", "dropout", "bos_token_id",
                                                  "eos_token_id", "pad_token_id", "decoder_start_token_id"}
COMMON -= {"tie_word_embeddings", "is_decoder", "add_cross_attention"}
COMMON_IN = {"llama", "bert_classes", "bart", "vit", "roberta"}
ALSO = {"hidden_act": ["relu", "gelu_new"], "activation_function": ["relu", "gelu_new"], "hidden_activation": ["relu", "gelu"]}


def quietly(f, *args, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args, **more)


def leaves(node, path=()):
    for key, value in node.items():
        if isinstance(value, dict) and value and not re.search(r"label", key):
            yield from leaves(value, path + (key,))
        else:
            yield path + (key,), value


def others(key, value):
    """Other values of the same type; of a null none are known."""
    if key in ALSO:
        return [v for v in ALSO[key] if v != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value] if value > 1 else [value + 1]
    if isinstance(value, float):
        return [1.5 * value + 0.1]
    if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
        return [list(reversed(value))] if value != list(reversed(value)) else []
    return []


def at(config, path):
    for key in path[:-1]:
        config = config[key]
    return config


def mutations(full, minimal, common, keys):
    """(what, key, configuration); keys: only these"""
    yield "as it is", "", full
    yield "defaults deleted", "", minimal
    yield HEAD_ALONE, "", {**full, "tie_word_embeddings": True}
    for path, value in leaves(full):
        if (path[0] in common if keys is None else not re.fullmatch(keys, path[0])) or path[-1] in ("model_type", "architectures", "transformers_version", "dtype"):
            continue
        key = ".".join(path)
        config = copy.deepcopy(full)
        del at(config, path)[path[-1]]
        yield "deleted", key, config
        for new in [None] * (value is not None) + others(path[-1], value):
            config = copy.deepcopy(full)
            at(config, path)[path[-1]] = new
            yield f"= {json.dumps(new)}", key, config


# Refusals by what a key makes of the model: they name params, and the note behind them the file they come from.
NO_HEAD = "no tied head"
HEAD_ALONE = "with the tied head stored alone"
TABLES = re.compile(r"embed|wte|shared")  # names of tables of tokens
REFUSALS = ("is not a multiple of", "required condition does not hold:", "it must be even", "is odd", "is stored with values of its own")


class Refused(Exception):
    """By the library."""


def draw(family, name, shape):
    """The same numbers in every run; tables are small where a key is an epsilon, so that it counts."""
    mean, spread = how(family, name, list(shape))
    seed = int.from_bytes(hashlib.sha256(f"{name}{shape}".encode()).digest()[:8], "little")
    return numpy.asarray(mean + spread * numpy.random.default_rng(seed).uniform(-1, 1, shape), numpy.float32)


def keep_head_alone(model, folder):
    """The file of a tied model with the head in place of the table that it is tied to. False: not tied."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    tied = [(head, table) for head, table in model.all_tied_weights_keys.items() if table in tensors and head.endswith("weight") and not TABLES.search(head)]
    if tied:
        head, table = tied[-1]
        tensors[head] = tensors.pop(table)
        save_file(tensors, path, {"format": "pt"})
    return bool(tied)


def library_model(family, folder, alone=False):
    """The library's model for the folder's configuration with drawn weights, which it writes beside it; None and shapes if too large."""
    cls = getattr(hf, family["cls"])
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        text = f.read()
    try:
        config = quietly(cls.config_class.from_pretrained, folder)
        config._attn_implementation = family.get("attention", "eager")
        for k, v in family.get("load", {}).items():
            setattr(config, "_" + k, v)
        with torch.device("meta"):
            model = quietly(cls, config)
        shapes = {k: tuple(v.shape) for k, v in quietly(revert_weight_conversion, model, model.state_dict()).items()}  # as files have them
        if sum(math.prod(s) for s in shapes.values()) > LARGE:
            return None, shapes
        torch.manual_seed(0)
        model = quietly(cls, config)
        with torch.no_grad():
            for name, p in model.named_parameters():  # but sinusoids, which the library computes
                if p.requires_grad:
                    p.copy_(torch.from_numpy(draw(family, name, tuple(p.shape))))
        quietly(model.save_pretrained, folder)
        if alone and not keep_head_alone(model, folder):
            raise Refused(NO_HEAD)
        if alone:
            model = quietly(cls.from_pretrained, folder, config=config, dtype=torch.float32)
    except Refused:
        raise
    except Exception as e:
        raise Refused(f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}") from e
    finally:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            f.write(text)
    return model.double().eval(), shapes


def inputs_of(family, config):
    rng = numpy.random.default_rng(7)
    ids = lambda n, low=4, high=191: rng.integers(low, high, (1, n)).astype(numpy.int32)
    kind = family["kind"]
    if kind in ("text", "causal"):
        out = {"input_ids": ids(family.get("longest", 37))}
        family.get("mark", lambda x, l: None)(out["input_ids"], [out["input_ids"].shape[1]])
        if family.get("types"):
            out["token_type_ids"] = rng.integers(0, 2, out["input_ids"].shape).astype(numpy.int32)
        return out
    if kind == "seq2seq":
        y = ids(19)
        y[:, 0] = family["start"]
        return {"input_ids": ids(37), "decoder_input_ids": y}
    vision = config.get("vision_config", config)
    size, channels = vision.get("image_size", 224), vision.get("num_channels", 3)
    if kind == "speech":
        y = ids(19)
        frames = 2 * config.get("max_source_positions", 1500)
        return {"input_features": rng.standard_normal((1, config.get("num_mel_bins", 80), frames)).astype(numpy.float32), "decoder_input_ids": y}
    out = {"pixel_values": rng.standard_normal((1, channels, size, size)).astype(numpy.float32)}
    if kind == "pair":
        out["input_ids"] = ids(19)
        out["input_ids"][:, -1] = family.get("end", 4)
    return out


def wanted(family):
    if family["kind"] in ("seq2seq", "speech"):
        return {"encoder_last_hidden_state": lambda o: o.encoder_last_hidden_state, "logits": lambda o: o.logits}
    return {k: f for k, f in family["outputs"].items() if k != "sentence_embedding"}


def library_results(family, model, inputs):
    given = {k: torch.from_numpy(v).double() if v.dtype == numpy.float32 else torch.from_numpy(v.astype(numpy.int64)) for k, v in inputs.items()}
    try:
        with torch.no_grad():
            out = quietly(model, **given)
        results = {k: f(out).detach().double().numpy() for k, f in wanted(family).items()}
    except Exception as e:
        raise Refused(f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}") from e
    if not all(numpy.isfinite(v).all() for v in results.values()):
        raise Refused("results that are not finite")
    return results


def write_holes(folder, shapes):
    """A weight file of a header and a hole."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    path = os.path.join(folder, "model.safetensors")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + offset)


def says(result, key):
    """A refusal that names the key or a tensor; its first error."""
    error = next((line for line in result.stderr.splitlines() if "error" in line), "no error")
    named = not key or any(text in result.stderr for text in REFUSALS) or f"'{key}'" in result.stderr or f"'{key}." in result.stderr or "wants [" in result.stderr or "has the tensor" in result.stderr
    return result.returncode in (1, 2) and named, re.sub(r"^\S+ ", "", error)


def model_of(folder):
    """The folder's model as a model file without the place of the folder: one text and the same weights give one result."""
    result = call("expand", folder, "-o", "-")
    return result.stdout.replace(os.path.dirname(folder), "") if result.returncode == 0 else None


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).digest()


def compare(family, config, what, key, folder, known):
    """(verdict, words); known: results of tfmc for models that were run before"""
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    try:
        model, shapes = library_model(family, folder, what == HEAD_ALONE)
        if model is None:
            write_holes(folder, shapes)
            result = call("inspect", folder)
            if result.returncode == 0:
                return "large", ""
            ok, words = says(result, key)
            return "refused" if ok and not re.search(r"wants \[|no weight file has", result.stderr) else "DIFFERS", words
        inputs = inputs_of(family, config)
        results = library_results(family, model, inputs)
    except Refused as e:
        return "library", str(e)
    save_file(inputs, os.path.join(folder, "in.safetensors"))
    out = os.path.join(folder, "out.safetensors")
    command = ["run", folder, "--inputs", os.path.join(folder, "in.safetensors"), "--outputs", out, "--no-cache", "-O0"]
    steps = model_of(folder)
    same = None if steps is None else (steps, *(digest(os.path.join(folder, f)) for f in ("model.safetensors", "in.safetensors")))
    if same not in known:
        result = call(*command)
        if "a session takes" in result.stderr:  # a bound of memory, not of the configuration
            result = call(*command, "--set=ctx=41")
        if result.returncode != 0:
            ok, words = says(result, key)
            return "refused" if ok else "DIFFERS", words
        known[same] = load_file(out)
    found = known.pop(same) if same is None else known[same]
    error = 0.0
    for name, value in results.items():
        got = found[name].astype(numpy.float64)
        if got.size != value.size:
            return "DIFFERS", f"{name} {got.shape}, the library {value.shape}"
        error = max(error, float(numpy.abs(got.reshape(value.shape) - value).max() / max(1e-9, numpy.abs(value).max())))
    deep = config.get("num_hidden_layers", 32) or 32
    return ("same" if error < BOUND * max(1, deep / 8) else "DIFFERS"), f"{error:.1e}"


def explained(name, key, what):
    for families, pattern, change, reason in EXPLAINED:
        if re.fullmatch(families, name) and re.fullmatch(pattern, key) and (change is None or re.fullmatch(change, what)):
            return reason
    return None


def minimal_of(full, config):
    """The configuration without keys that equal the class's default."""
    default = type(config)().to_dict()
    keep = ("model_type", "architectures")
    return {k: v for k, v in full.items() if k in keep or k not in default or default[k] != v}


def one_family(name):
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    family = dict({**FAMILIES, **MORE}[name])
    if name.startswith("falcon"):  # the library's eager attention adds linear biases twice
        family["attention"] = "sdpa"
    full = json.loads(type(family["config"]).to_json_string(family["config"], use_diff=False))
    full["architectures"] = [family["cls"]]
    full = {k: v for k, v in full.items() if not k.startswith("_") and k not in ("experts_implementation", "dtype", "transformers_version")}
    rows = []
    common = set() if name in COMMON_IN else COMMON
    known = {}
    for what, key, config in mutations(full, minimal_of(full, family["config"]), common, family.get("keys")):
        if not re.search(os.environ.get("ONLY", ""), f"{key} {what}"):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            folder = os.path.join(tmp, "model")
            os.mkdir(folder)
            small = {**family, "table": 0.003} if "eps" in key else family
            verdict, words = compare(small, config, what, key, folder, known)
        reason = explained(name, key, what) if verdict == "DIFFERS" else None
        if reason is not None:
            verdict, words = "table", reason
        if os.environ.get("SHOW"):
            print(f"{verdict:8} {name}: {key} {what}: {words}", flush=True)
        if words != NO_HEAD:
            rows.append((verdict, key, what, words))
    return name, rows


def main():
    names = sys.argv[1:] or [n for n in sorted({**FAMILIES, **MORE}) if n not in SKIPPED]
    counted = {}
    with ProcessPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        for name, rows in pool.map(one_family, names):
            for verdict, key, what, words in rows:
                counted[verdict] = counted.get(verdict, 0) + 1
                if verdict in ("DIFFERS", "table") and not os.environ.get("SHOW"):
                    print(f"{verdict:8} {name}: {key} {what}: {words}", flush=True)
            print(f"{name}: {len(rows)} configurations", flush=True)
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counted.items())))
    print(f"{len(names)} settings, {sum(counted.values())} comparisons, {counted.get('DIFFERS', 0)} unexplained differences")
    return 1 if counted.get("DIFFERS") else 0


if __name__ == "__main__":
    sys.exit(main())
