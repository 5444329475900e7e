#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tokenizers of hub folders: with tokenizer_config.json, special_tokens_map.json and added_tokens.json, with and without a
# tokenizer.json, ids are those that transformers gives (tests/tokenizers/folders.py); damaged files are refused where they are wrong.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tokens=$TFMC_BUILD/tests/tfmc_tokens
python3 -B "$TFMC_SOURCE/tests/tokenizers/folders.py" "$tmp"
bad=0 n=0
for folder in "$tmp"/*/; do
	folder=${folder%/} name=$(basename "$folder")
	for kind in plain whole; do
		flags=(ids)
		[ $kind = plain ] || flags+=(special)
		"$tokens" "$folder" "${flags[@]}" <"$folder.texts" >"$tmp/ids" 2>"$tmp/error" || { echo "$name:" >&2; cat "$tmp/error" >&2; bad=1; continue; }
		diff "$folder.$kind" "$tmp/ids" >"$tmp/diff" || { echo "$name, $kind:" >&2; head -8 "$tmp/diff" >&2; bad=1; }
		n=$((n + $(wc -l <"$tmp/ids")))
	done
done
[ $bad = 0 ]
echo "$n texts"

# Llama's tokenizer.model gives the same ids with a class as alone: those of SentencePiece, a mark also after added tokens and before blanks.
printf '%s\0' ' two  blanks ' 'a</s>b <s> c' 'Hello' '  ' >"$tmp/texts"
"$tokens" "$TFMC_SOURCE/tests/golden/tokenizers/spm_bpe.model" ids <"$tmp/texts" >"$tmp/alone"
for folder in llama_pieces llama_pieces_legacy; do
	"$tokens" "$tmp/$folder" ids <"$tmp/texts" | diff "$tmp/alone" -
done

# A flag that a class reads is above tokenizer.json, and so is its default; a type whose file is read as it is has neither.
one() {
	rm -rf "$tmp/one"
	mkdir "$tmp/one"
	: >"$tmp/one/model.safetensors"
	echo "{\"model_type\": \"$1\"}" >"$tmp/one/config.json"
	[ "$2" = - ] || echo "$2" >"$tmp/one/tokenizer_config.json"
}
# prefix TYPE CONFIG FLAG: whether a blank goes before the text, where tokenizer.json says FLAG
prefix() {
	one "$1" "$2"
	sed "s/\"add_prefix_space\":[a-z]*/\"add_prefix_space\":$3/" "$TFMC_SOURCE/tests/golden/tokenizers/gpt2.json" >"$tmp/one/tokenizer.json"
	[ "$(printf 'a\0' | "$tokens" "$tmp/one" ids)" = "$(printf ' a\0' | "$tokens" "$tmp/one" ids)" ] && echo yes || echo no
}
[ "$(prefix gpt2 - true)" = no ]
[ "$(prefix gpt2 '{}' true)" = no ]
[ "$(prefix gpt2 '{"add_prefix_space": true}' false)" = yes ]
[ "$(prefix gpt2 '{"tokenizer_class": "PreTrainedTokenizerFast"}' true)" = yes ]
[ "$(prefix gpt2 '{"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": true}' false)" = no ]
[ "$(prefix mistral '{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true}' false)" = no ]
[ "$(prefix llama '{"tokenizer_class": "LlamaTokenizer", "add_prefix_space": true}' false)" = no ]
[ "$(prefix llama '{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true}' false)" = yes ]
[ "$(prefix blenderbot '{}' false)" = yes ]
# lower TYPE CONFIG FLAG: what BERT's class makes of "Éa", where tokenizer.json says FLAG (-: words alone)
lower() {
	one "$1" "$2"
	printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' Éa éa ea Ea >"$tmp/one/vocab.txt"
	[ "$3" = - ] || printf '{"normalizer": {"type": "BertNormalizer", "lowercase": %s}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model":
		{"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "Éa": 5, "éa": 6, "ea": 7, "Ea": 8}}}' "$3" >"$tmp/one/tokenizer.json"
	printf 'Éa\0' | "$tokens" "$tmp/one" ids
}
for flag in - true false; do
	[ "$(lower bert - $flag)" = 7 ]
	[ "$(lower bert '{}' $flag)" = 7 ]
	[ "$(lower bert '{"do_lower_case": false}' $flag)" = 5 ]
	[ "$(lower bert '{"strip_accents": false}' $flag)" = 6 ]
	[ "$(lower bert '{"strip_accents": true, "do_lower_case": false}' $flag)" = 8 ]
done
[ "$(lower bert '{"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true}' false)" = 5 ]
[ "$(lower modernbert '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}' false)" = 5 ]

# Normalizers that make a text longer and longer: refused when the text is read, or with an added token.
for normalizer in '{"type": "Replace", "pattern": {"String": "a"}, "content": "'"$(printf 'b%.0s' {1..70000})"'"}' \
	"{\"type\": \"Sequence\", \"normalizers\": [$(printf '{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},%.0s' {1..23}){\"type\": \"NFC\"}]}"; do
	one gpt2 -
	sed "s/\"normalizer\":null/\"normalizer\":NORMALIZER/" "$TFMC_SOURCE/tests/golden/tokenizers/gpt2.json" | python3 -c '
import sys
sys.stdout.write(sys.stdin.read().replace("NORMALIZER", sys.argv[1]))' "$normalizer" >"$tmp/one/tokenizer.json"
	printf 'b\0' | "$tokens" "$tmp/one" ids >/dev/null
	if printf 'a\0' | "$tokens" "$tmp/one" ids >/dev/null 2>"$tmp/error"; then echo "a normalizer without a limit" >&2; exit 1; fi
done

# import FOLDER KEY=VALUE..: what `tfmc import` writes for the folder with these members in its config.json
import() {
	local folder=$tmp/$1
	shift
	python3 - "$folder/config.json" "$@" <<'P'
import json
import sys
with open(sys.argv[1]) as f:
    config = json.load(f)
for pair in sys.argv[2:]:
    key, value = pair.split("=", 1)
    config[key] = json.loads(value)
with open(sys.argv[1], "w") as f:
    json.dump(config, f)
P
	"$TFMC" import "$folder"
}
# has TEXT PATTERN
has() { grep -c -- "$2" <<<"$1" >/dev/null || { printf 'no "%s" in:\n%s\n' "$2" "$1" >&2; exit 1; }; }
lacks() { [ "$(grep -c -- "$2" <<<"$1")" = 0 ] || { printf '"%s" in:\n%s\n' "$2" "$1" >&2; exit 1; }; }

# The tokenizer's end stops a model that no configuration stops; encoders stop nowhere.
has "$(import llama_json_map 'architectures=["LlamaForCausalLM"]')" '^tokenizer: {file: tokenizer.json, config: tokenizer_config.json, special: special_tokens_map.json, embed: true,'
has "$(import llama_json_map)" '^generate: {stop: \[\]}$' # no eos_token is named
has "$(import fast_decoder 'architectures=["LlamaForCausalLM"]')" '^generate: {stop: \[2\]}$'
lacks "$(import fast_decoder 'eos_token_id=5')" stop:
has "$(import opt_lists 'architectures=["OPTForCausalLM"]')" '^generate: {stop: \[2\]}$'
lacks "$(import roberta_json 'architectures=["RobertaModel"]')" generate:

# The language to write stands behind the start, unless an id is forced.
target=$(import nllb_json 'architectures=["M2M100ForConditionalGeneration"]' 'decoder_start_token_id=2')
eng=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["model"]["vocab"]["eng_Latn"])' "$tmp/nllb_json/tokenizer.json")
has "$target" "^generate: {start: \\[2, $eng\\], forced: 1, stop: \\[\\]}\$"
has "$(import nllb_json 'forced_bos_token_id=7')" '^generate: {start: \[2, 7\], forced: 1, stop: \[\]}$'
echo '{"decoder_start_token_id": 3}' >"$tmp/nllb_json/generation_config.json"
has "$(import nllb_json 'forced_bos_token_id=null')" "^generate: {start: \\[3, $eng\\], forced: 1, stop: \\[\\]}\$"

# refuse FOLDER TEXT MESSAGE: tokenizer_config.json with that text
refuse() {
	printf '%s' "$2" >"$tmp/$1/tokenizer_config.json"
	if "$tokens" "$tmp/$1" ids </dev/null >/dev/null 2>"$tmp/error"; then echo "taken: $2" >&2; exit 1; fi
	has "$(cat "$tmp/error")" "$3"
}
refuse bert_words '{"do_lower_case": "yes"}' "tokenizer_config.json': do_lower_case: is not true or false"
refuse bert_words '{"split_special_tokens": true}' "split_special_tokens: not supported yet: true"
refuse bert_words '{"never_split": ["a"]}' "never_split: not supported yet"
refuse bert_words '{"tokenizer_class": "BertJapaneseTokenizer"}' "not supported yet: the class 'BertJapaneseTokenizer' without a tokenizer.json"
refuse bert_words '{"added_tokens_decoder": {"-1": {"content": "x"}}}' "added_tokens_decoder: '-1' is not a usable id"
refuse bert_words '{"added_tokens_decoder": {"1": {"content": 7}}}' "added_tokens_decoder: is not a token"
refuse bert_words '{"cls_token": null}' "cls_token: not supported yet: a vocabulary without it"
refuse bert_words '[' "tokenizer_config.json"
refuse bert_words "{\"additional_special_tokens\": [$(seq -f '"t%.0f"' -s , 40000)]}" "is one more than the 32768 added tokens"
refuse whisper_json '{"tokenizer_class": "WhisperTokenizer", "language": "klingon"}' "not supported yet: '<|klingon|>'"
refuse nllb_json '{"tokenizer_class": "NllbTokenizer", "src_lang": "tlh_Latn"}' "src_lang: not supported yet: 'tlh_Latn'"
# Contradictions are said; what is unknown says nothing of ids.
echo '{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "chat_template": "x", "unheard_of": 3}' >"$tmp/llama_json_map/tokenizer_config.json"
"$tokens" "$tmp/llama_json_map" ids </dev/null 2>"$tmp/error"
has "$(cat "$tmp/error")" "add_bos_token is false, but post_processor"
lacks "$(cat "$tmp/error")" unheard_of

# Files with damage anywhere are taken or refused.
python3 -B "$TFMC_SOURCE/tests/tokenizers/fuzz.py" "$tokens" 60

# Regular expressions of splitters find what a backtracking matcher finds, or are refused.
python3 -B "$TFMC_SOURCE/tests/tokenizers/patterns.py" "$tokens" 200
