#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a hub folder to text: the trained folder of examples/hub becomes a program that writes what PyTorch, transformers and
# tokenizers write, byte for byte, from a plain folder and from a hub cache; what it draws keeps its facts.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
example=$TFMC_SOURCE/examples/hub
runtime=$TFMC_SOURCE/runtime

# The model file that import writes passes the checks, unedited.
cp -r "$example/tales" "$tmp/tales"
cp "$example/cases.safetensors" "$tmp/tales/"
"$TFMC" import "$tmp/tales" -o "$tmp/tales/model.yaml"
cat >>"$tmp/tales/model.yaml" <<'Y'
checks:
  - {file: cases.safetensors, cases: [prompt0, prompt1, prompt2, prompt3, prompt4], rtol: 1e-4, atol: 1e-4}
  - {call: generate, file: cases.safetensors, cases: [greedy0, greedy1, greedy2, greedy3, greedy4]}
Y
"$TFMC" verify "$tmp/tales/model.yaml" -mcpu=native

"$TFMC" "$example/tales" "${quick[@]}" --name=model -o "$tmp/model.o"
bash "$TFMC_SOURCE/tests/object_audit.sh" "$tmp/model.o" model
"$CC" -std=c17 -Wall -Wextra -Werror -I"$tmp" -I"$runtime" -I"$runtime/tokenizer" "$example/main.c" "$tmp/model.o" \
	"$TFMC_BUILD/runtime/libtfmcrt.a" "$TFMC_BUILD/runtime/tokenizer/libtfmctok.a" -lpthread -lm ${TFMC_LINK_FLAGS:-} -o "$tmp/talk"
n=0
while IFS= read -r prompt && IFS= read -r text; do
	n=$((n + 1))
	"$tmp/talk" "$prompt" >"$tmp/got"
	printf '%s\n' "$text" | cmp - "$tmp/got"
	"$tmp/talk" -w 2 "$prompt" | cmp - "$tmp/got"
	"$TFMC" generate "$example/tales" "${quick[@]}" --prompt="$prompt" >"$tmp/command"
	printf '%s\n' "$text" | cmp - "$tmp/command"
done <"$example/expected.txt"
[ $n -eq 5 ]
"$tmp/talk" -n 3 "Once there was a" >"$tmp/short"
[ "$(wc -c <"$tmp/short")" -lt 40 ]

# Facts are kept by tales that were drawn, with any seed; the same seed gives the same tale.
for seed in $(seq 30); do "$tmp/talk" -t 0.8 -s "$seed" ""; done >"$tmp/drawn"
"$tmp/talk" -t 0.8 -s 30 "" | cmp - <(tail -1 "$tmp/drawn")
kept=$(python3 "$example/data.py" --check <"$tmp/drawn" | tee /dev/stderr | cut -d' ' -f1)
[ "$kept" -ge 24 ]

# Help is asked for, and no prompt.
"$tmp/talk" --help | grep -c '^talk \[-n TOKENS\]' >/dev/null
"$tmp/talk" -h | cmp - <("$tmp/talk" --help)

# Unsupported input is reported.
code=0; "$tmp/talk" >/dev/null 2>"$tmp/error" || code=$?
[ $code -eq 1 ] && grep -c '^talk: talk \[-n TOKENS\]' "$tmp/error" >/dev/null
code=0; "$tmp/talk" "$(printf 'word %.0s' $(seq 300))" 2>"$tmp/error" || code=$?
[ $code -eq 1 ] && grep -c '^talk: generation: the prompt has [0-9]* ids; at most 256 are possible$' "$tmp/error" >/dev/null

# Weights in a file are found beside the program and in the current folder, by what is in them; others are not taken.
mkdir "$tmp/apart" "$tmp/away"
"$TFMC" "$example/tales" --name=model --weights=file -O0 -o "$tmp/apart/model.o"
"$CC" -std=c17 -I"$tmp/apart" -I"$runtime" -I"$runtime/tokenizer" "$example/main.c" "$tmp/apart/model.o" \
	"$TFMC_BUILD/runtime/libtfmcrt.a" "$TFMC_BUILD/runtime/tokenizer/libtfmctok.a" -lpthread -lm ${TFMC_LINK_FLAGS:-} -o "$tmp/apart/talk"
(cd "$tmp/away" && ../apart/talk -n 3 "Once there was a") | cmp - "$tmp/short"
mv "$tmp/apart/model.weights" "$tmp/away/any.weights"
(cd "$tmp/away" && ../apart/talk -n 3 "Once there was a") | cmp - "$tmp/short"
"$tmp/apart/talk" -m "$tmp/away/any.weights" -n 3 "Once there was a" | cmp - "$tmp/short"
code=0; (cd "$tmp" && apart/talk "Once") 2>"$tmp/error" || code=$?
[ $code -eq 1 ] && grep -c '^talk: session: the weights are not in this object: ' "$tmp/error" >/dev/null
cp -r "$example/tales" "$tmp/other"
sed 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 1e-4/' "$example/tales/config.json" >"$tmp/other/config.json"
"$TFMC" "$tmp/other" --name=model --weights=file -O0 -o "$tmp/apart/other.o"
code=0; (cd "$tmp" && apart/talk "Once") 2>"$tmp/error" || code=$?
[ $code -eq 1 ] && grep -c 'not in this object' "$tmp/error" >/dev/null
code=0; "$tmp/apart/talk" -m "$tmp/apart/other.weights" "Once" 2>"$tmp/error" || code=$?
[ $code -eq 1 ] && grep -c '^talk: session: the weights are those of another object' "$tmp/error" >/dev/null

# A hub cache: the repository's name is the model's, files are links.
cache=$tmp/hub/models--someone--Short-Tales
mkdir -p "$cache/blobs" "$cache/snapshots/0123456789abcdef"
for file in "$example"/tales/*; do
	blob=$(cksum <"$file" | cut -d' ' -f1)
	cp "$file" "$cache/blobs/$blob"
	ln -s "../../blobs/$blob" "$cache/snapshots/0123456789abcdef/${file##*/}"
done
"$TFMC" "$cache/snapshots/0123456789abcdef/" "${quick[@]}" -o "$tmp/cached.o"
nm "$tmp/cached.o" | grep -c ' short_tales_step$' >/dev/null
"$TFMC" import "$cache/snapshots/0123456789abcdef" --name=other | grep -c '^name: other$' >/dev/null
code=0; "$TFMC" import "$example/tales" --name=no-name >/dev/null 2>"$tmp/error" || code=$?
[ $code -eq 2 ] && grep -c -e '--name is a name' "$tmp/error" >/dev/null

# generation_config.json becomes the section generate, in place of what config.json says; ways to sample are repeated; -MD names the file.
settings() { printf '%s\n' "$2" >"$1/generation_config.json"; "$TFMC" import "$1"; }
cp -r "$example/tales" "$tmp/set"
settings "$tmp/set" '{"bos_token_id": 0, "eos_token_id": [1, 17], "pad_token_id": 5, "do_sample": true, "temperature": 0.6, "top_p": 0.95, "x": null}' >"$tmp/out"
grep -cx 'generate: {start: \[0\], stop: \[1, 17\], pad: 5}' "$tmp/out" >/dev/null
grep -cx '# generation_config.json also says: do_sample true, temperature 0.6, top_p 0.95' "$tmp/out" >/dev/null
"$TFMC" generate "$example/tales" "${quick[@]}" --prompt="Once there was a" --print-tokens | tr ', ' '\n\n' >"$tmp/ids"
stop=$(sed -n 4p "$tmp/ids")
settings "$tmp/set" "{\"eos_token_id\": [1, $stop]}" >"$tmp/out"
"$TFMC" generate "$tmp/set" "${quick[@]}" --prompt="Once there was a" --print-tokens | tr ', ' '\n\n' | cmp - <(sed "/^$stop\$/q" "$tmp/ids")
"$TFMC" "$tmp/set" "${quick[@]}" -o "$tmp/set.o" -MD
grep -c '/set/generation_config.json' "$tmp/set.d" >/dev/null
settings "$tmp/set" '{"eos_token_id": null, "pad_token_id": -1, "repetition_penalty": 1, "unheard_of": "x"}' >"$tmp/out"
grep -cx 'generate: {stop: \[\]}' "$tmp/out" >/dev/null
for wrong in '{"eos_token_id": "1"}' '{"eos_token_id": [1, "2"]}' '{"pad_token_id": 1.5}' '[1]' '{"eos_token_id": 99999999999}' '{"eos_token_id": 1' \
	'{"bad_words_ids": [1]}' '{"bad_words_ids": [[]]}' '{"sequence_bias": [[[1]]]}' '{"num_beams": 0}' '{"early_stopping": "maybe"}' '{"repetition_penalty": 0}' \
	'{"min_length": -1}' '{"exponential_decay_length_penalty": [1]}' '{"forced_bos_token_id": 3}' '{"renormalize_logits": 1}'; do
	code=0; settings "$tmp/set" "$wrong" >/dev/null 2>"$tmp/error" || code=$?
	[ $code -eq 1 ] && grep -c 'generation_config.json' "$tmp/error" >/dev/null || { cat "$tmp/error" >&2; exit 1; }
done
# A decoder begins with its start id and the ids that are forced behind it.
family=$TFMC_SOURCE/tests/golden/families/mbart
mkdir "$tmp/mbart"
cp "$family"/*.json "$tmp/mbart/"
PYTHONPATH=$TFMC_SOURCE/tests/golden/families python3 -B -c "import seeded, sys
seeded.write('mbart', seeded.read_list(sys.argv[1]), sys.argv[2])" "$family/tensors.txt" "$tmp/mbart/model.safetensors"
import_mbart() { settings "$tmp/mbart" "$1" | sed -n 's/^generate: //p'; }
[ "$(import_mbart '{"decoder_start_token_id": 2, "forced_bos_token_id": 9, "eos_token_id": [2, -1, 500], "num_beams": 5, "max_new_tokens": 7}')" = \
	'{start: [2, 9], forced: 1, stop: [2], max_new: 6, search: {beam: 5, early_stopping: false}}' ]
[ "$(import_mbart '{"bos_token_id": 3, "bad_words_ids": [[2, 4], [2]], "eos_token_id": 2, "forced_decoder_ids": [[1, 8]]}')" = '{start: [3], stop: [2], banned: [[2, 4]]}' ]
[ "$(import_mbart '{"eos_token_id": 2}')" = '{start: [], stop: [2]}' ]
