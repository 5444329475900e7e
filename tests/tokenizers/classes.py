#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer classes of transformers against tfmc_tokens, in each combination of files and flags.

classes.py TOKENS [CLASS..]     with transformers 5.24 (by hand; HF_HUB_OFFLINE=1): every flag absent, true and false, a tokenizer.json whose
                                own flags differ, lists of pieces, both, with and without tokenizer_config.json. Prints what differs and is
                                not explained below; exit 1 then.
"""
import itertools
import json
import os
import subprocess
import sys
import tempfile

import folders

TEXTS = ["Hello world", " two  blanks ", "Café ÀÉÎ naïve", "中文 mixed汉字", "don't STOP 1234.5!", "a <pad> b</s>c <s> d", "x [PAD] y[SEP]z [MASK] w", "<mask> in <mask>",
         "tab\tand\nline", "<|endoftext|>hi", "e\u0301 \u1e69", "</s> after", "a"]
FLAGS = (None, True, False)
END = "<|endoftext|>"


def bert_json(source, **flags):
    return {"tokenizer.json": dict(folders.with_json(source)["tokenizer.json"], normalizer={"type": "BertNormalizer", "clean_text": True, **flags})}


def byte_json(source, prefix, sequence=False, specials=(), normalizer=None):
    level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    return folders.with_json(source, specials=list(specials), normalizer=normalizer, post_processor=None,
                             pre_tokenizer={"type": "Sequence", "pretokenizers": [level]} if sequence else level)


BERT_FILES = {"words": folders.words("bert.json"), "cased words": folders.words("bert_cased.json"),
              "json": bert_json("bert.json", lowercase=True, strip_accents=None, handle_chinese_chars=True),
              "cased json": bert_json("bert_cased.json", lowercase=False, strip_accents=None, handle_chinese_chars=True),
              "odd json": bert_json("bert.json", lowercase=True, strip_accents=False, handle_chinese_chars=False),
              "accents json": bert_json("bert_cased.json", lowercase=False, strip_accents=True, handle_chinese_chars=True)}
BERT_FILES["both"] = {**BERT_FILES["cased json"], **BERT_FILES["words"]}
BERT_FLAGS = ["do_lower_case", "strip_accents", "tokenize_chinese_chars"]
BYTE_FLAGS = ["add_prefix_space", "add_bos_token", "add_eos_token"]


def byte_files(source, specials, normalizer=None):
    return {"lists": folders.bpe_lists(source, specials), "json": byte_json(source, False, False, specials, normalizer), "blank json": byte_json(source, True, False, specials, normalizer),
            "sequence": byte_json(source, False, True, specials, normalizer), "blank sequence": byte_json(source, True, True, specials, normalizer)}


def qwen_files():
    out = {"lists": folders.bpe_lists("qwen2.json", [END])}
    for name, prefix in (("json", False), ("blank json", True)):
        t = folders.with_json("qwen2.json", specials=[END])["tokenizer.json"]
        t["pre_tokenizer"]["pretokenizers"][-1]["add_prefix_space"] = prefix
        t["post_processor"] = None
        out[name] = {"tokenizer.json": t}
    return out


def llama_files():
    return {"pieces": {"tokenizer.model": folders.blob("spm_bpe.model")}, "json": folders.with_json("mistral.json"),
            "byte level": byte_json("gpt2.json", False, True, [END]), "blank byte level": byte_json("gpt2.json", True, False, [END])}


def marked_files():
    out = {}
    for name, scheme in (("json", "always"), ("bare json", "never")):
        t = folders.languages([])["tokenizer.json"]
        t["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}]}
        out[name] = {"tokenizer.json": t}
    return out


def word_files(more):
    """vocab.txt of BERT's words with the tokens of another class in front."""
    pieces = more + [w for w in folders.words("bert.json")["vocab.txt"].split("\n") if w and not w.startswith("[")]
    vocab = {w: i for i, w in enumerate(pieces)}
    t = folders.golden("bert.json")
    t["model"]["vocab"], t["added_tokens"], t["post_processor"] = vocab, [dict(folders.added(w, True), id=vocab[w]) for w in more], None
    t["model"]["unk_token"] = "[UNK]"
    lists = {"vocab.txt": "".join(w + "\n" for w in pieces)}
    return {"words": lists, "json": {"tokenizer.json": t}, "both": {"tokenizer.json": t, **lists}}


def clip_files():
    ends = ["<|startoftext|>", END]
    lists, whole = folders.bpe_lists("clip.json", ends), folders.with_json("clip.json", specials=ends)
    bare = {"tokenizer.json": dict(whole["tokenizer.json"], post_processor=None)}
    return {"lists": lists, "json": whole, "bare json": bare, "both": {**lists, **bare}}


def language_files(kind):
    codes = folders.MBART if kind == "mbart" else folders.NLLB
    whole = folders.languages(codes) if kind == "mbart" else folders.nllb()
    bare = {"tokenizer.json": dict(whole["tokenizer.json"], post_processor=None, normalizer=None)}
    return {"json": whole, "bare json": bare}


MPNET = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
# special_tokens_map.json: none, one that names tokens anew, one that contradicts the others
MAPS = (None, {"mask_token": "<mask>", "pad_token": {"content": "<pad>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}},
        {"sep_token": "</s>", "cls_token": "<s>", "eos_token": "</s>", "bos_token": "<s>"})
# type of config.json, class, files, flags
CLASSES = {
    "bert": ("BertTokenizer", BERT_FILES, BERT_FLAGS),
    "distilbert": ("DistilBertTokenizer", BERT_FILES, BERT_FLAGS),
    "electra": ("ElectraTokenizer", BERT_FILES, BERT_FLAGS),
    "gpt2": ("GPT2Tokenizer", byte_files("gpt2.json", [END]), BYTE_FLAGS),
    "codegen": ("CodeGenTokenizer", byte_files("gpt2.json", [END]), BYTE_FLAGS),
    "gpt_neox": ("GPTNeoXTokenizer", byte_files("gpt2.json", [END], {"type": "NFC"}), BYTE_FLAGS),
    "opt": ("GPT2Tokenizer", byte_files("gpt2.json", [END]), BYTE_FLAGS),
    "qwen2": ("Qwen2Tokenizer", qwen_files(), BYTE_FLAGS),
    "roberta": ("RobertaTokenizer", byte_files("roberta.json", ["<mask>"]), ["add_prefix_space", "trim_offsets"]),
    "bart": ("BartTokenizer", byte_files("roberta.json", ["<mask>"]), ["add_prefix_space", "trim_offsets"]),
    "blenderbot": ("BlenderbotTokenizer", byte_files("roberta.json", ["<mask>"]), BYTE_FLAGS),
    "whisper": ("WhisperTokenizer", byte_files("gpt2.json", folders.WHISPER), ["add_prefix_space", "predict_timestamps"]),
    "llama": ("LlamaTokenizer", llama_files(), BYTE_FLAGS + ["legacy"]),
    "xlm-roberta": ("XLMRobertaTokenizer", {"pieces": {"sentencepiece.bpe.model": folders.blob("spm_unigram.model")}, **marked_files()}, ["add_prefix_space"]),
    "t5": ("T5Tokenizer", {"pieces": {"spiece.model": folders.t5_pieces()}}, ["add_prefix_space", "legacy"]),
    "mistral": ("LlamaTokenizer", {k: v for k, v in llama_files().items() if k != "pieces"}, BYTE_FLAGS + ["legacy"]),
    "mpnet": ("MPNetTokenizer", word_files(MPNET), BERT_FLAGS),
    "clip": ("CLIPTokenizer", clip_files(), ["do_lower_case", "add_prefix_space"]),
    "gemma": ("GemmaTokenizer", {"json": folders.with_json("gemma.json", specials=["<pad>", "<eos>", "<bos>", "<mask>"], post_processor=None)}, BYTE_FLAGS[1:]),
    "mbart": ("MBartTokenizer", language_files("mbart"), ["add_prefix_space"]),
    "m2m_100": ("NllbTokenizer", language_files("nllb"), ["legacy_behaviour"]),
    "albert": ("AlbertTokenizer", {"json": folders.albert()}, ["do_lower_case", "keep_accents", "remove_space"]),
    "camembert": ("CamembertTokenizer", {"json": folders.with_json("xlmr.json", specials=["<pad>", "<mask>"])}, ["add_prefix_space"]),
    "mixtral": ("LlamaTokenizer", {k: v for k, v in llama_files().items() if k != "pieces"}, BYTE_FLAGS + ["legacy"]),
    "qwen3": ("Qwen2Tokenizer", qwen_files(), BYTE_FLAGS),
    "phi3": ("LlamaTokenizer", {"json": folders.with_json("mistral.json")}, BYTE_FLAGS),
    "cohere": ("CohereTokenizer", {k: v for k, v in byte_files("gpt2.json", [END]).items() if k != "lists"}, BYTE_FLAGS),
    "gpt_bigcode": ("GPT2Tokenizer", {k: v for k, v in byte_files("gpt2.json", [END]).items() if k != "lists"}, BYTE_FLAGS),
}


def build(folder, kind, files, config, special):
    everything = {"config.json": {"model_type": kind}, "model.safetensors": b"", **files}
    if config is not None:
        everything["tokenizer_config.json"] = config
    if special is not None:
        everything["special_tokens_map.json"] = special
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    for name, content in everything.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).encode())


def configs(name, flags):
    yield None
    for named in (True, False):
        for values in itertools.product(FLAGS, repeat=len(flags)):
            yield {**({"tokenizer_class": name} if named else {}), **{k: v for k, v in zip(flags, values) if v is not None}}


def ids_of_library(folder):
    from transformers import AutoTokenizer
    t = AutoTokenizer.from_pretrained(folder)
    return [t(x)["input_ids"] for x in TEXTS]


def ids_of_tfmc(tokens, folder):
    done = subprocess.run([tokens, folder, "ids", "special"], input="".join(x + "\0" for x in TEXTS).encode(), capture_output=True)
    return [[int(x) for x in line.split()] for line in done.stdout.decode().split("\n")[:-1]] if done.returncode == 0 else None


def explained(kind, files, config, named, i):
    """Why text i may differ, or None. named: special_tokens_map.json."""
    config = config or {}
    named = [t if isinstance(t, str) else t["content"] for t in (named or {}).values()]
    special = any(t in TEXTS[i] for t in ["<s>", "</s>", *named])
    if kind == "llama" and files in ("json", "pieces") and (special or TEXTS[i].startswith(" ")):
        return "transformers 5 puts a Metaspace of its own in place of what tokenizer.json and tokenizer.model say; these are followed, as by GGUF readers"
    if kind == "llama" and files == "pieces" and "tokenizer_class" not in config and config.get("add_prefix_space") is False:
        return "without the name of a class transformers reads tokenizer.model without its flags"
    if kind == "cohere":
        return "the class puts normalizer and splitter of its own in place of the file's; tfmc follows tokenizer.json, which in published folders has the same"
    if kind == "xlm-roberta" and files == "pieces" and config.get("add_prefix_space") is False:
        return "the class of transformers then drops the marks of all words"
    return None


def main():
    n = refused = bad = 0
    for kind, (name, files, flags) in CLASSES.items():
        if sys.argv[2:] and kind not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for (label, content), config, special in itertools.product(files.items(), configs(name, flags), MAPS):
                if special is not None and any(k in flags for k in config or {}):  # each map with the flags absent
                    continue
                build(folder, kind, content, config, special)
                try:
                    want = ids_of_library(folder)
                except Exception as e:
                    print(kind, label, config, special, "library:", str(e)[:100])
                    continue
                got = ids_of_tfmc(sys.argv[1], folder)
                refused += got is None
                n += 1
                wrong = [i for i in range(len(TEXTS)) if got is not None and got[i] != want[i] and explained(kind, label, config, special, i) is None]
                if wrong:
                    bad += 1
                    print(f"{kind}, {label}, {config}, {special}: {len(wrong)} texts, {TEXTS[wrong[0]]!r}: {got[wrong[0]]}, library {want[wrong[0]]}")
    print(f"{n} folders, {refused} refused, {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
