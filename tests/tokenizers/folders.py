#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hub folders around the golden tokenizers: what tokenizer_config.json and its like say, with and without a tokenizer.json.

folders.py OUT              writes OUT/NAME with config.json, files of a tokenizer and an empty model.safetensors, and OUT/NAME.texts, .plain, .whole:
                            texts ended by zero bytes, their ids without and with what stands around them (tests/golden/tokenizers/folders.json)
folders.py OUT --expect     writes that file anew: the ids that transformers gives (AutoTokenizer; sentencepiece models want protobuf)
"""
import json
import os
import shutil
import sys

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "tokenizers")
TEXTS = ["Hello world", " two  blanks ", "Café ÀÉÎ naïve Größe", "中文 mixed汉字", "don't STOP, it's 1234.5!", "a <pad> b</s>c <s> d", "x [PAD] y[SEP]z [MASK] w",
         "foo<tool> bar <|end|>baz", "<mask> in <mask>", "the compiler reads", "Ünïcode Straße", "<extra_id_0> gap <extra_id_1>", "tab\tand\nline",
         "<|endoftext|> <|startoftranscript|>hi", "fr_XX fra_Latn x", "e\u0301 \u1e69"]


def golden(name):
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as f:
        return json.load(f)


def bpe_lists(source, more=()):
    """vocab.json and merges.txt, further tokens behind."""
    t = golden(source)
    vocab = dict(t["model"]["vocab"])
    for token in more:
        vocab.setdefault(token, len(vocab))
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    return {"vocab.json": vocab, "merges.txt": "#version: 0.2\n" + "".join(m + "\n" for m in merges)}


def words(source):
    vocab = golden(source)["model"]["vocab"]
    return {"vocab.txt": "".join(w + "\n" for w in sorted(vocab, key=vocab.get))}


def with_json(source, more=(), specials=(), **changes):
    """A tokenizer.json, further pieces behind its vocabulary, further added tokens."""
    t = golden(source)
    vocab = t["model"]["vocab"]
    if specials:  # they stand where added tokens of the fixture stood
        t["added_tokens"] = [a for a in t["added_tokens"] if a["content"] in vocab]
    for token in list(more) + list(specials):
        if isinstance(vocab, list):
            if token not in [p for p, _ in vocab]:
                vocab.append([token, 0.0])
        else:
            vocab.setdefault(token, len(vocab))
    ids = {p: i for i, (p, _) in enumerate(vocab)} if isinstance(vocab, list) else vocab
    for token in specials:
        t["added_tokens"].append({"id": ids[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
    t.update(changes)
    return {"tokenizer.json": t}


def blob(name):
    with open(os.path.join(GOLDEN, name), "rb") as f:
        return f.read()


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def t5_pieces():
    """The pieces of a model of SentencePiece behind <pad> </s> <unk> in place of <unk> <s> </s>."""
    data, at, out = blob("spm_unigram.model"), 0, b""
    for text, kind in (("<pad>", 3), ("</s>", 3), ("<unk>", 2)):
        piece = b"\x0a" + varint(len(text)) + text.encode() + b"\x15\0\0\0\0" + b"\x18" + varint(kind)
        out += b"\x0a" + varint(len(piece)) + piece
    for _ in range(3):
        assert data[at] == 0x0a and data[at + 1] < 128
        at += 2 + data[at + 1]
    return out + data[at:]


def added(content, special=False, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": not special, "special": special, **flags}


BART = {"model_type": "mbart"}
WHISPER = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|zh|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>"]
NLLB = ["eng_Latn", "fra_Latn"]
UNIGRAM4 = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]]


def nllb():
    """BPE whose first ids are <s> <pad> </s> <unk>."""
    t = with_json("llama2.json")["tokenizer.json"]
    model = t["model"]
    rest = [p for p in sorted(model["vocab"], key=model["vocab"].get) if p not in ("<unk>", "<s>", "</s>") and not p.startswith("<0x")]
    model["vocab"] = {p: i for i, p in enumerate(["<s>", "<pad>", "</s>", "<unk>"] + rest)}
    for token in NLLB + ["<mask>"]:
        model["vocab"].setdefault(token, len(model["vocab"]))
    model["byte_fallback"] = False
    specials = ["<s>", "<pad>", "</s>", "<unk>"] + NLLB
    t["added_tokens"] = [dict(added(s, True), id=model["vocab"][s]) for s in specials] + [dict(added("<mask>", True, lstrip=True), id=model["vocab"]["<mask>"])]
    t["normalizer"] = None
    t["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    t["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "eng_Latn", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                           "special_tokens": {"eng_Latn": {"id": "eng_Latn", "ids": [model["vocab"]["eng_Latn"]], "tokens": ["eng_Latn"]}}}
    return {"tokenizer.json": t}


def languages(codes):
    """Unigram of mBART with languages behind the pieces."""
    t = golden("mbart.json")
    pieces = [p for p in t["model"]["vocab"] if p[0] not in ("<unk>", "<s>", "</s>")]
    t["model"]["vocab"] = UNIGRAM4 + pieces + [[c, 0.0] for c in codes + ["<mask>"]]
    t["model"]["unk_id"] = 3
    ids = {p: i for i, (p, _) in enumerate(t["model"]["vocab"])}
    t["normalizer"] = None
    t["added_tokens"] = [dict(added(s, True), id=ids[s]) for s in ["<s>", "<pad>", "</s>", "<unk>"] + codes] + [dict(added("<mask>", True, lstrip=True), id=ids["<mask>"])]
    t["post_processor"] = None
    return {"tokenizer.json": t}


def albert():
    """<unk> at 1, as the class has it."""
    t = golden("albert.json")
    front = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    t["model"]["vocab"], t["model"]["unk_id"] = [[w, 0.0] for w in front] + t["model"]["vocab"][3:], 1
    t["added_tokens"] = [dict(added(w, True, lstrip=w == "[MASK]"), id=i) for i, w in enumerate(front)]
    return {"tokenizer.json": t}


MBART = "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN".split()

# name: (config.json, files, tokenizer_config.json or None, further files)
FOLDERS = {
    "llama_json_flags": ({"model_type": "llama"}, with_json("mistral.json"), {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True, "legacy": False}, {}),
    "llama_json_pad": ({"model_type": "llama"}, with_json("mistral.json"), {"tokenizer_class": "LlamaTokenizerFast", "pad_token": "[PAD]", "legacy": False, "extra_special_tokens": ["<tool>"]}, {}),
    "llama_json_map": ({"model_type": "llama"}, with_json("mistral.json"), {"tokenizer_class": "LlamaTokenizer", "legacy": False},
                       {"special_tokens_map.json": {"bos_token": added("<s>"), "pad_token": "<pad>", "additional_special_tokens": ["<tool>"]}}),
    "fast_decoder": ({"model_type": "llama"}, with_json("mistral.json"), {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1000000000000000019884624838656, "bos_token": "<s>", "eos_token": "</s>",
                     "added_tokens_decoder": {"0": added("<unk>", True), "1": added("<s>", True), "2": added("</s>", True, lstrip=True), "700": added("<tool>", lstrip=True, rstrip=True, normalized=False)}}, {}),
    "bert_json_cased": ({"model_type": "bert"}, with_json("bert.json"), {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, {}),
    "bert_json_accents": ({"model_type": "bert"}, with_json("bert.json"), {"tokenizer_class": "BertTokenizerFast", "strip_accents": False, "tokenize_chinese_chars": False}, {}),
    "bert_words": ({"model_type": "bert"}, words("bert.json"), {"tokenizer_class": "BertTokenizer"}, {}),
    "bert_words_cased": ({"model_type": "bert"}, words("bert_cased.json"), {"do_lower_case": False, "tokenize_chinese_chars": True}, {}),
    "bert_words_alone": ({"model_type": "distilbert"}, words("bert.json"), None, {}),
    "bert_words_added": ({"model_type": "bert"}, words("bert.json"), {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
                         {"added_tokens.json": {"<tool>": 700, "foo": 701}, "special_tokens_map.json": {"additional_special_tokens": ["<tool>"]}}),
    "gpt2_json_blank": ({"model_type": "gpt2"}, with_json("gpt2.json", specials=["<|endoftext|>"]), {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, {}),
    "roberta_json": ({"model_type": "roberta"}, with_json("roberta.json", specials=["<mask>"]), {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False,
                     "mask_token": added("<mask>", True, lstrip=True, __type="AddedToken")}, {}),
    "gpt2_lists": ({"model_type": "gpt2"}, bpe_lists("gpt2.json", ["<|endoftext|>"]), {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1000000000000000019884624838656}, {}),
    "gpt2_lists_blank": ({"model_type": "gpt2"}, bpe_lists("gpt2.json", ["<|endoftext|>"]), {"add_prefix_space": True, "pad_token": "[PAD]"}, {}),
    "opt_lists": ({"model_type": "opt"}, bpe_lists("roberta.json"), {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "errors": "replace", "bos_token": added("</s>", __type="AddedToken"),
                  "eos_token": added("</s>", __type="AddedToken"), "unk_token": added("</s>", __type="AddedToken"), "pad_token": added("<pad>", __type="AddedToken")}, {}),
    "roberta_lists": ({"model_type": "roberta"}, bpe_lists("roberta.json", ["<mask>"]), None, {}),
    "qwen2_lists": ({"model_type": "qwen2"}, bpe_lists("qwen2.json", ["<|endoftext|>"]), {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False,
                    "added_tokens_decoder": {"421": added("<|im_start|>", True)}}, {}),
    "clip_lists": ({"model_type": "clip_text_model", "eos_token_id": 2}, bpe_lists("clip.json", ["<|startoftext|>", "<|endoftext|>"]), {"tokenizer_class": "CLIPTokenizer", "do_lower_case": True, "model_max_length": 77}, {}),
    "whisper_lists": ({"model_type": "whisper"}, bpe_lists("gpt2.json", WHISPER), {"tokenizer_class": "WhisperTokenizer", "language": "de", "task": "translate"}, {}),
    "whisper_json": ({"model_type": "whisper"}, with_json("gpt2.json", specials=WHISPER), {"tokenizer_class": "WhisperTokenizer", "language": "zh", "task": "transcribe", "predict_timestamps": True}, {}),
    "nllb_json": ({"model_type": "m2m_100"}, nllb(), {"tokenizer_class": "NllbTokenizer", "src_lang": "fra_Latn", "tgt_lang": "eng_Latn", "extra_special_tokens": NLLB}, {}),
    "nllb_json_legacy": ({"model_type": "m2m_100"}, nllb(), {"tokenizer_class": "NllbTokenizer", "src_lang": "fra_Latn", "legacy_behaviour": True, "extra_special_tokens": NLLB}, {}),
    "mbart_json": ({"model_type": "mbart"}, languages(MBART), {"tokenizer_class": "MBartTokenizer", "src_lang": "fr_XX", "tgt_lang": "de_DE"}, {}),
    "llama_pieces_legacy": ({"model_type": "llama"}, {"tokenizer.model": blob("spm_bpe.model")}, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": True}, {}),
    "llama_pieces": ({"model_type": "llama"}, {"tokenizer.model": blob("spm_bpe.model")}, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True, "legacy": False}, {}),
    "xlmr_pieces": ({"model_type": "xlm-roberta"}, {"sentencepiece.bpe.model": blob("spm_unigram.model")}, {"tokenizer_class": "XLMRobertaTokenizer"}, {}),
    "t5_pieces": ({"model_type": "t5"}, {"spiece.model": t5_pieces()}, {"tokenizer_class": "T5Tokenizer", "extra_ids": 2, "added_tokens_decoder":
                  {"0": added("<pad>", True), "1": added("</s>", True), "2": added("<unk>", True), "361": added("<extra_id_0>", True), "360": added("<extra_id_1>", True)}}, {}),
    "albert_json": ({"model_type": "albert"}, albert(), None, {}),
    "albert_json_cased": ({"model_type": "albert"}, albert(), {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False, "keep_accents": True}, {}),
    "camembert_json": ({"model_type": "camembert"}, with_json("xlmr.json", specials=["<pad>", "<mask>"]), {"tokenizer_class": "CamembertTokenizerFast", "add_prefix_space": False}, {}),
    "mbart_pieces": ({"model_type": "mbart"}, {"sentencepiece.bpe.model": blob("spm_unigram.model")}, {"tokenizer_class": "MBartTokenizer", "src_lang": "fr_XX"}, {}),
    "mbart50_pieces": ({"model_type": "mbart"}, {"sentencepiece.bpe.model": blob("spm_unigram.model")}, {"tokenizer_class": "MBart50Tokenizer", "src_lang": "gl_ES"}, {}),
}


# A model of SentencePiece says itself that blanks at the ends fall away and which characters it maps, which transformers 5 leaves out.
MARKS = [i for i, x in enumerate(TEXTS) if x.startswith(" ") or x.endswith(" ") or any(s in x for s in ("<s>", "<pad>", "</s>", "<mask>", "\u0301", "_id_", "fr_XX", "\n"))]


def skipped(name):
    return MARKS if "_pieces" in name else []


def build(out, name):
    config, files, tokenizer, more = FOLDERS[name]
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    everything = {"config.json": config, "model.safetensors": b"", **files, **more}
    if tokenizer is not None:
        everything["tokenizer_config.json"] = tokenizer
    for file, content in everything.items():
        with open(os.path.join(folder, file), "wb") as f:
            f.write(content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).encode())
    return folder


def expect(out):
    from transformers import AutoTokenizer
    cases = {}
    for name in FOLDERS:
        t = AutoTokenizer.from_pretrained(build(out, name))
        cases[name] = {"class": type(t).__name__, "plain": [t(x, add_special_tokens=False)["input_ids"] for x in TEXTS], "whole": [t(x)["input_ids"] for x in TEXTS]}
        print(name, type(t).__name__)
    with open(os.path.join(GOLDEN, "folders.json"), "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f'"{n}": {json.dumps(c)}' for n, c in cases.items()) + "\n}\n")


def main():
    if len(sys.argv) > 2:
        expect(sys.argv[1])
        return
    cases = golden("folders.json")
    assert set(cases) == set(FOLDERS)
    for name in FOLDERS:
        path = build(sys.argv[1], name)
        kept = [i for i in range(len(TEXTS)) if i not in skipped(name)]
        assert len(kept) >= 8
        with open(path + ".texts", "wb") as f:
            f.write(b"".join(TEXTS[i].encode() + b"\0" for i in kept))
        for kind in ("plain", "whole"):
            with open(f"{path}.{kind}", "w") as f:
                f.writelines(" ".join(map(str, cases[name][kind][i])) + "\n" for i in kept)


if __name__ == "__main__":
    main()
