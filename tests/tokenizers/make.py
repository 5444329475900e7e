# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of every kind with what Hugging Face's `tokenizers` and `sentencepiece` make of texts.

make.py OUT [--random N]: trains on a text of its own and writes OUT/NAME.json (or .model), unless it lies there, and
OUT/NAME.cases.json. With --random N no files but cases are written, with N random texts each, for tests/tokenizers/compare.sh.
"""
import base64
import io
import json
import os
import random
import struct
import sys
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """The compiler reads the model, and the model reads the text; no one reads the compiler's mind.
A tokenizer cuts words into pieces: un-believ-able, 1234567 pieces, or 3.14159 of them!
It's what we'll do, isn't it? They've said I'm late, you're early, he'd wait. IT'S LOUD, WE'LL SHOUT.
Größere Häuser stehen in schönen Straßen; der Fluß fließt über Köln nach Süden. Das kostet 12,50 €.
Le garçon a mangé un gâteau près de l'école où naïfs élèves étudient. Où ça ? À Noël, peut-être.
El niño comió piñas y mañana será otro día. ¿Qué? ¡Sí! Camión, pingüino, corazón.
Быстрая лиса прыгает через ленивую собаку. Съешь ещё этих мягких булок да выпей чаю.
Η γρήγορη αλεπού πηδά πάνω από το σκυλί. Ελληνικά γράμματα, τόνοι και πνεύματα.
素早い狐は怠け者の犬を飛び越える。東京は大きな都市です。カタカナとひらがな。
快速的狐狸跳过懒狗。编译器读取模型。机器学习很有意思。
빠른 갈색 여우가 게으른 개를 뛰어넘는다. 컴파일러가 모델을 읽는다.
तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। हिन्दी में लिखा हुआ वाक्य।
الثعلب البني السريع يقفز فوق الكلب الكسول. مرحبا بالعالم.
השועל החום המהיר קופץ מעל הכלב העצלן. שלום עולם.
def f(x):\n\treturn x ** 2 + 1  # a comment\nfor (int i = 0; i < n; i++) { sum += a[i]; }
Emoji 🙂🙃 👩‍💻 🏳️‍🌈 and symbols ½ ² ™ © → ∑ ∞ ﬁ ﬂ Ⅷ ① ㎏ ａｂｃ １２３.
"""

EXTRA = ["", " ", "  ", "\n", "\n\n \n", "\t x", "Hello world", " Hello  world ", "hello\r\nworld\n\n\nagain  ",
         "don't DON'T can't we'LL I'M you've 'tis ''s 'ſ", "12345678901 1,234.5 ٣٤٥ ½²③", "a" * 70, "ab" * 40 + " " + "x" * 33,
         "e\u0301a\u0300o\u0308 \u1e69 s\u0323\u0307 s\u0307\u0323 \u212b \u2126 \ufb01 \ufdfa \u1100\u1161\u11a8 \uac01 \u0344",
         "İstanbul ISTANBUL ıi ẞß Σς ΑΣ ǅ", "zero\u200bwidth\u200djoin\ufeff nbsp\u00a0thin\u2009ideo\u3000line\u2028par\u2029nel\u0085",
         "control\u0001\u0007\u007f\u009f \ufffd \u00ad soft", "中文字符𠀀𪜀 mixed汉字and漢字", "🙂👩‍💻🏳️‍🌈 🤷🏽‍♂️", "x²y ∑∞ ≠ `~^$+<=>|",
         "CamelCaseWordsHTTPServer iPhoneX ÜberGroß ǅungla", "path/to/file\\n $100.00 50% @user #tag a_b __init__ (x)[y]{z}",
         "...!!!??? -- — – … «quote» “curly” ‘single’", "a  b   c    d     e", "tab\ttab\t\ttab", "नमस्ते दुनिया คนไทย ភាសា",
         "foo bar foobar foo  x afoo", "one two twoone two one two", "Straße strasse STRASSE ABC abc Xy xy Café café cafés",
         "a lft b  lftx rgt  c both  xboth both rgt  both", "<Sp> <sp> [CLS] [CL", "▁in in  bar baz  baz qux  qux", "``x''  y", "e\u0301\u0308 e\u0301\u0323\u0308\u0302 \ufb01\u0308 \r\n x \xbd\u200d\u0308",
         "<s>hello</s> [MASK]x [CLS] <|end|>y  <|end|>", "▁under ▁▁ lower", "\U0001f9e0\U000e0001\U0010ffff \u0378 unassigned"]

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"


def byte_level(regex=None, prefix=False, digits=False, normalizer=None, specials=("<|end|>",), ignore=False, size=420, parts=None):
    t = Tokenizer(models.BPE(ignore_merges=ignore))
    if normalizer:
        t.normalizer = normalizer
    if parts:
        t.pre_tokenizer = pre_tokenizers.Sequence(parts)
    elif regex:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated", False),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    elif digits:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(TEXT.splitlines(True), trainer)
    return t


def gpt2():
    t = byte_level()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def roberta():
    t = byte_level(prefix=True, specials=("<s>", "<pad>", "</s>", "<unk>"))
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t


def llama3():
    t = byte_level(LLAMA3, ignore=True, specials=("<s>", "</s>"))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                                          special_tokens=[("<s>", t.token_to_id("<s>"))])])
    return t


def qwen2():
    t = byte_level(QWEN2, normalizer=normalizers.NFC())
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("word", single_word=True, normalized=False),
                  AddedToken("rs", rstrip=True, normalized=False, single_word=True)])
    return t


def falcon():
    parts = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
             pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]
    return byte_level(parts=parts)


def bloom():
    return byte_level(BLOOM)


def clip():
    t = Tokenizer(models.BPE(unk_token="<|end|>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(TEXT.splitlines(True), trainers.BpeTrainer(vocab_size=700, end_of_word_suffix="</w>", show_progress=False,
                          initial_alphabet=alphabet, special_tokens=["<|end|>"] + [c + "</w>" for c in alphabet]))
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if not a["content"].endswith("</w>")]
    return Tokenizer.from_str(json.dumps(state))


def spm(kind, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT.splitlines()), model_writer=out, model_type=kind,
                                             num_threads=1, minloglevel=2, **options)
    return out.getvalue()


def spm_bpe():
    return spm("bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
               character_coverage=0.98, user_defined_symbols=["<tool>", "    "])


def with_rules(kind, **options):
    rules = [("\ufb01", "fi"), ("\ufb02", "fl"), ("\xbd", "1/2"), ("e\u0301", "\xe9"), ("\u3000", " "), ("\t", " "), ("\xa0", " "),
             ("\u2167", "VIII"), ("\uff41", "a"), ("\uff42", "b"), ("\u200b", " "), ("\ufeff", ""), ("\r", " "), ("\n", " ")]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        for a, b in rules:
            f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        f.flush()
        return spm(kind, normalization_rule_tsv=f.name, character_coverage=0.98, **options)


def spm_unigram():
    return with_rules("unigram", vocab_size=360)


# Symbols of users that the rules would change, and runs of spaces where spaces are removed.
USER = ["<code>", "\xbd", "\ufb01", "  ", "\u2581\u2581", "\u2581\u2581\u2581\u2581"]
USER_TEXTS = ["tb\xbd", "x\xbdy\xbd", "\xbd \xbd", " \xbd", "a  b", "a    b", "  a  ", "a   b", "\u2581\u2581a", "a \u2581\u2581 b", "a <code> b", "<code>a", "a<code>", "<CODE>", "\ufb01x \ufb01",
              "\ufb02x", "  \xbd  a", "a \xa0b", "  ", "\xbd", "e\u0301\xbd\u3000\u3000x"]


def merges_of(pieces):
    """BPE of scores as merges of tokenizer.json."""
    vocab = {p: i for i, (p, _) in enumerate(pieces)}
    merges = []
    for piece, score in pieces:
        for at in range(1, len(piece)):
            if piece[:at] in vocab and piece[at:] in vocab:
                merges.append((score, piece[:at], piece[at:]))
    merges.sort(key=lambda m: -m[0])
    return vocab, [(a, b) for _, a, b in merges]


def spm_pieces(blob):
    sp = sentencepiece.SentencePieceProcessor(model_proto=blob)
    return [(sp.id_to_piece(i), sp.get_score(i)) for i in range(sp.get_piece_size())]


def llama2():
    vocab, merges = merges_of(spm_pieces(spm_bpe()))
    t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken(s, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                     special_tokens=[("<s>", vocab["<s>"])])
    return t


def mistral():
    t = llama2()
    t.normalizer = None
    state = json.loads(t.to_str())
    state["normalizer"] = None
    t = Tokenizer.from_str(json.dumps(state))
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    return t


def gemma():
    t = llama2()
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


def t5():
    sp = spm_unigram()
    t = Tokenizer(models.Unigram([(p, s) for p, s in spm_pieces(sp)], 0, False))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    t.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    t.add_special_tokens([AddedToken(s, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                     special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def xlmr():
    sp = spm_unigram()
    t = Tokenizer(models.Unigram([(p, s) for p, s in spm_pieces(sp)], 0, False))
    t.normalizer = normalizers.Precompiled(charsmap(sp))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="always")])
    t.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    t.add_special_tokens([AddedToken(s, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    return t


def charsmap(blob):
    """Field 2 of field 3 of the protobuf."""
    def fields(data):
        at = 0
        while at < len(data):
            key, shift = 0, 0
            while True:
                b = data[at]; at += 1
                key |= (b & 127) << shift; shift += 7
                if b < 128:
                    break
            wire = key & 7
            if wire == 2:
                n, shift = 0, 0
                while True:
                    b = data[at]; at += 1
                    n |= (b & 127) << shift; shift += 7
                    if b < 128:
                        break
                yield key >> 3, data[at:at + n]
                at += n
            elif wire == 0:
                while data[at] >= 128:
                    at += 1
                at += 1
            else:
                at += 8 if wire == 1 else 4
    for number, value in fields(blob):
        if number == 3:
            for inner, map_bytes in fields(value):
                if inner == 2:
                    return map_bytes
    return b""


def bert(cased=False):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(TEXT.splitlines(), trainers.WordPieceTrainer(vocab_size=700, special_tokens=specials, show_progress=False))
    ids = {s: t.token_to_id(s) for s in specials}
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])])
    return t


def words():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(TEXT.splitlines(), trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[UNK]"], show_progress=False))
    return t


HF = {"gpt2": gpt2, "roberta": roberta, "llama3": llama3, "qwen2": qwen2, "qwen35": lambda: byte_level(QWEN35),
      "o200k": lambda: byte_level(CASED), "falcon": falcon, "starcoder": lambda: byte_level(digits=True), "bloom": bloom, "clip": clip,
      "llama2": llama2, "mistral": mistral, "gemma": gemma, "t5": t5, "xlmr": xlmr, "bert": bert, "bert_cased": lambda: bert(True),
      "words": words}
SPM = {"spm_bpe": spm_bpe, "spm_unigram": spm_unigram, "spm_user_bpe": lambda: with_rules("bpe", vocab_size=420, user_defined_symbols=USER),
       "spm_user_unigram": lambda: with_rules("unigram", vocab_size=360, user_defined_symbols=USER)}


# ---- components as popular families have them; sizes are small, the texts many ----

DEEPSEEK_LLM = ["[\r\n]", "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿͰ-ͳͶͷΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ𐐀-𐑏]+", "\\s?[!-/:-~！-／：-～\u2018-\u201f\u3000-\u3002]+",
                "\\s+$", "[一-龥ࠀ-一가-퟿]+"]
DEEPSEEK_CODER = ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
DEEPSEEK_V3 = ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
               "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
               " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
HAN = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
       r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
       r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
POSSESSIVE = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"


def splits(regexes, *more):
    parts = [pre_tokenizers.Split(Regex(r), "isolated") for r in regexes] + list(more)
    return byte_level(parts=parts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def marked(normalizer, before=(), scheme="always"):
    """Unigram with a mark in front of words: XLM-R, mBART, ALBERT, DeBERTa v2."""
    t = Tokenizer(models.Unigram([(p, s) for p, s in spm_pieces(spm_unigram())], 0, False))
    if normalizer:
        t.normalizer = normalizers.Sequence(normalizer)
    t.pre_tokenizer = pre_tokenizers.Sequence(list(before) + [pre_tokenizers.Metaspace("▁", prepend_scheme=scheme)])
    t.decoder = decoders.Metaspace("▁", prepend_scheme=scheme)
    t.add_special_tokens([AddedToken(s, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    return t


def mbart():
    """The language stands behind the text."""
    t = marked([normalizers.Precompiled(charsmap(spm_unigram())), normalizers.Replace(Regex(" {2,}"), " ")], [pre_tokenizers.WhitespaceSplit()])
    t.add_special_tokens(["en_XX", AddedToken("<mask>", lstrip=True, normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="$A </s> en_XX", pair="$A $B </s> en_XX",
                                                     special_tokens=[(s, t.token_to_id(s)) for s in ("</s>", "en_XX")])
    return t


def albert():
    sp = spm_unigram()
    t = marked([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                normalizers.Lowercase(), normalizers.Precompiled(charsmap(sp)), normalizers.Replace(Regex(" {2,}"), " ")],
               [pre_tokenizers.WhitespaceSplit()])
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    return t


def deberta():
    return marked([normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(), normalizers.Strip(left=False, right=True)],
                  [pre_tokenizers.Punctuation("isolated")], "first")


def added():
    """Added tokens of every kind behind normalizers that change them."""
    t = bert()
    t.add_tokens([AddedToken("Straße"), AddedToken("ABC", normalized=True), AddedToken("Xy", normalized=False),
                  AddedToken("café", single_word=True), AddedToken("lft", lstrip=True), AddedToken("rgt", rstrip=True),
                  AddedToken("both", lstrip=True, rstrip=True, single_word=True), AddedToken("lftx"), AddedToken("  ")])
    t.add_special_tokens([AddedToken("<Sp>", normalized=True), AddedToken("[CL", normalized=False)])
    return t


def added_marked():
    t = llama2()
    t.add_tokens([AddedToken("foo"), AddedToken(" bar"), AddedToken("baz", lstrip=True), AddedToken("qux", rstrip=True, normalized=False),
                  AddedToken("one two", single_word=True), AddedToken("a"), AddedToken("▁in", normalized=False)])
    return t


def added_bytes():
    t = gpt2()
    t.add_tokens([AddedToken("foo"), AddedToken("foo bar"), AddedToken("foobar", normalized=False), AddedToken("é"),
                  AddedToken(" x", lstrip=True, single_word=True), AddedToken("\n\n")])
    return t


def word_level():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(TEXT.splitlines(), trainers.WordLevelTrainer(vocab_size=100, special_tokens=["[UNK]"], show_progress=False))
    return t


FAMILIES = {"deepseek_llm": lambda: splits(DEEPSEEK_LLM, pre_tokenizers.Digits(individual_digits=True)),
            "deepseek_coder": lambda: splits(DEEPSEEK_CODER, pre_tokenizers.Digits(individual_digits=True)),
            "deepseek_v3": lambda: splits(DEEPSEEK_V3), "han": lambda: byte_level(HAN), "possessive": lambda: byte_level(POSSESSIVE),
            "mbart": mbart, "albert": albert, "deberta": deberta, "added": added, "added_marked": added_marked, "added_bytes": added_bytes,
            "word_level": word_level}
HF.update(FAMILIES)


def random_text(rng):
    pools = ["abcdefghij  ", "ABC def 'sS'tT", " \t\n\r\u00a0", "0123456789 .,", "äöüéèñçß", "абвгд ", "中文字 。", "가각힣", "e\u0301\u0323\u0308 ", "हिन्दी ",
             "🙂👩‍💻\ufe0f", "!?()[]-_/\\'\"", "αβγΣς", "\u200b\u200d\ufeff\u00ad", "ﬁ½²①ａ"]
    out = []
    for _ in range(rng.randrange(1, 12)):
        if rng.random() < 0.3:
            at = rng.randrange(len(TEXT))
            out.append(TEXT[at:at + rng.randrange(1, 30)])
        elif rng.random() < 0.9:
            pool = rng.choice(pools)
            out.append("".join(rng.choice(pool) for _ in range(rng.randrange(1, 9))))
        else:
            out.append(chr(rng.choice([rng.randrange(1, 0xd800), rng.randrange(0xe000, 0x110000)])))
    return "".join(out)


def texts(n):
    if n:
        rng = random.Random(n)
        return [random_text(rng) for _ in range(n)]
    return EXTRA + TEXT.splitlines()


def main():
    out, n = sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else 0
    os.makedirs(out, exist_ok=True)
    for name, make in HF.items():
        path = os.path.join(out, name + ".json")
        kept = os.path.exists(path)
        t = Tokenizer.from_file(path) if kept else make()
        if not kept:
            with open(path, "w", encoding="utf-8") as f:
                json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
                f.write("\n")
            t = Tokenizer.from_file(path)
        cases = []
        for text in texts(n) if n or name not in FAMILIES else EXTRA:
            ids = t.encode(text, add_special_tokens=False).ids
            back = t.decode(ids, skip_special_tokens=False)
            if name == "clip":  # transformers does this behind the decoder
                back = back.replace("</w>", " ").rstrip(" ")
            cases.append({"text": text, "ids": ids, "all": t.encode(text).ids, "back": back})
        write_cases(out, name, cases)
    for name, make in SPM.items():
        path = os.path.join(out, name + ".model")
        kept = os.path.exists(path)
        blob = open(path, "rb").read() if kept else make()
        if not kept:
            with open(path, "wb") as f:
                f.write(blob)
        sp = sentencepiece.SentencePieceProcessor(model_proto=blob)
        write_cases(out, name, [{"text": x, "ids": sp.encode(x), "all": sp.encode(x), "back": sp.decode(sp.encode(x)).replace(" \u2047 ", "<unk>")} for x in (USER_TEXTS if "user" in name and not n else []) + texts(n)])
    write_scored(out, n)
    if not n:
        write_marian(out)


# ---- llama2.c: pieces with scores, in two files; the ids by its own way: characters, then the pair of the best score ----

def scored_pieces():
    pieces = [("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0)] + [(f"<0x{b:02X}>", 0.0) for b in range(256)]
    kept = [(p.replace("▁", " "), s) for p, s in spm_pieces(spm_bpe())[3:] if not (p.startswith("<") and p.endswith(">"))]
    return pieces + [(p, s) for p, s in kept if len(p.encode()) < 16][:300] + [(c, -1e6) for c in " abcdefghijklmnopqrstuvwxyz" if c not in dict(kept)]


def scored_encode(pieces, text):
    scores = {p: (s, i) for i, (p, s) in reversed(list(enumerate(pieces))) if i >= 259}
    units = []
    for c in (" " if text else "") + text:
        units += [scores[c][1]] if c in scores else [b + 3 for b in c.encode()]
    name = lambda i: pieces[i][0] if i >= 259 else "\0"
    while True:
        pairs = [(scores[name(a) + name(b)][0], -k) for k, (a, b) in enumerate(zip(units, units[1:])) if name(a) + name(b) in scores]
        if not pairs:
            return units
        k = -max(pairs)[1]
        units[k:k + 2] = [scores[name(units[k]) + name(units[k + 1])][1]]


def scored_decode(pieces, ids):
    raw = b"".join(bytes([i - 3]) if 3 <= i < 259 else pieces[i][0].encode() for i in ids)
    return raw[1:].decode() if raw.startswith(b" ") else raw.decode()


def write_scored(out, rng):
    path = os.path.join(out, "llama2c.tsv")
    if os.path.exists(path):
        rows = [line.split("\t") for line in open(path).read().splitlines()]
        pieces = [(bytes.fromhex(r[2]).decode(), float(r[1])) for r in rows]
    else:
        pieces = scored_pieces()
        with open(path, "w") as f:
            f.writelines(f"{i}\t{s}\t{p.encode().hex()}\n" for i, (p, s) in enumerate(pieces))
    with open(os.path.join(out, "llama2c.bin"), "wb") as f:
        f.write(struct.pack("<I", max(len(p.encode()) for p, _ in pieces)))
        for p, s in pieces:
            f.write(struct.pack("<fI", s, len(p.encode())) + p.encode())
    cases = [(x, scored_encode(pieces, x)) for x in (texts(rng) if rng else EXTRA)]
    write_cases(out, "llama2c", [{"text": x, "ids": ids, "all": ids, "back": scored_decode(pieces, ids)} for x, ids in cases])


# ---- Marian: two SentencePiece models, ids of their own; what `transformers` makes of texts of both sides ----

def marian_vocab(models_of):
    """All pieces but every seventh, in an order of neither model."""
    pieces = sorted({p for m in models_of for p, _ in spm_pieces(m)[3:]}, key=lambda p: (len(p), p))
    names = ["</s>", "<unk>"] + [p for i, p in enumerate(pieces) if i % 7 != 3] + [">>fr<<", ">>de<<", "<pad>"]
    return {p: i for i, p in enumerate(names)}


# A code is one at the beginning of a text or after an added token; unknown ones are <unk>, others are plain text.
MARIAN_TEXTS = [">>fr<< Hello world", ">>de<<Hello", ">>xx<< Hello", " >>fr<< Hello", "Hello >>fr<< world", ">>fr<<>>de<< a", ">>xx<< >>fr<< a", ">><< a", ">>fr", "</s>>>fr<< a",
                "a</s> >>fr<<", "<unk>>>xx<<b", ">>a\nb<< c", ">>>fr<< a", ">>fr<<<< a"]


def write_marian(out):
    from transformers import MarianTokenizer
    folder = os.path.join(out, "marian")
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, n) for n in ("source.spm", "target.spm", "vocab.json")]
    if not os.path.exists(paths[2]):
        blobs = [spm("unigram", vocab_size=380, normalization_rule_name="identity"),
                 spm("unigram", vocab_size=340, normalization_rule_name="identity", character_coverage=0.98)]
        for path, blob in zip(paths, blobs):
            open(path, "wb").write(blob)
        with open(paths[2], "w", encoding="utf-8") as f:
            json.dump(marian_vocab(blobs), f, ensure_ascii=True, separators=(",", ":"))
    t = MarianTokenizer(*paths)
    texts_of = [x for x in EXTRA + TEXT.splitlines() + MARIAN_TEXTS if x in MARIAN_TEXTS or "</s>" not in x and "\ufeff" not in x and "\u0001" not in x]
    cases = []
    for x in texts_of:
        ids = t(x).input_ids
        cases.append({"text": x, "source": ids, "target": t(text_target=x).input_ids[:-1], "back": t.decode(ids, skip_special_tokens=True)})
    write_cases(folder, "marian", cases)


def write_cases(out, name, cases):
    with open(os.path.join(out, name + ".cases.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
