#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A small model as a hub folder and as GGUF files gives the same logits: with a head of its own and a tied one, with
# factors of frequencies as a tensor, in parts, in half precision. What cannot be read is refused by name.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support
say() { echo "$1" >&2; exit 1; }

run() { # MODEL INPUTS OUTPUTS [ENTRY OPTIONS..]
	"$TFMC" run "${quick[@]}" "$1" --inputs "$2" --outputs "$3" -mcpu=native
}

# compare NAME TYPE TOLERANCE "OPTIONS OF to_gguf.py" [KEY=JSON ..]
compare() {
	local at=$tmp/$1 kind=$2 tolerance=$3 options=$4
	shift 4
	python3 "$support/make_llama.py" "$at" "$kind" "$@"
	# shellcheck disable=SC2086
	python3 "$support/to_gguf.py" "$at" "$at/file.gguf" $options
	run "$at" "$at/inputs.safetensors" "$at/a.safetensors"
	run "$(ls "$at"/*.gguf | head -1)" "$at/inputs.safetensors" "$at/b.safetensors"
	found=$(python3 "$support/near.py" "$at/a.safetensors" "$at/b.safetensors" "$tolerance") || { echo "$at: $found" >&2; exit 1; }
	echo "$(basename "$at"): $found"
}

compare qwen2 qwen2 0 ""
compare qwen2_tied qwen2 0 "--version 2" tie_word_embeddings=true
compare llama llama 2e-5 ""
compare llama_tied llama 2e-5 "" tie_word_embeddings=true
compare llama_parts llama 2e-5 "--parts 2"
compare llama3 llama 2e-5 "" 'rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
	"high_freq_factor": 4.0, "original_max_position_embeddings": 20}'

# Half precision: what the stored numbers are, not what they were made from.
python3 "$support/to_gguf.py" "$tmp/llama" "$tmp/half.gguf" --type bf16
run "$tmp/half.gguf" "$tmp/llama/inputs.safetensors" "$tmp/half.safetensors"
python3 "$support/near.py" "$tmp/llama/a.safetensors" "$tmp/half.safetensors" 1 >/dev/null
"$TFMC" inspect "$tmp/half.gguf" | grep -c 'blk.0.attn_q.weight: BF16\[24,24\]' >/dev/null

# Without a base of frequencies it is the one that every reader takes.
python3 "$support/make_llama.py" "$tmp/base" qwen2 rope_theta=10000.0
python3 "$support/to_gguf.py" "$tmp/base" "$tmp/base/named.gguf"
sed 's/qwen2.rope.freq_base/general.not_the_base/' "$tmp/base/named.gguf" >"$tmp/base.gguf"
run "$tmp/base/named.gguf" "$tmp/base/inputs.safetensors" "$tmp/named.safetensors"
run "$tmp/base.gguf" "$tmp/base/inputs.safetensors" "$tmp/none.safetensors"
cmp "$tmp/named.safetensors" "$tmp/none.safetensors"

# The description, and what a build system must know.
"$TFMC" import "$tmp/half.gguf" | diff - <(printf "tfmc: 1\nname: half\nhf: 'half.gguf'\nweights: {files: ['half.gguf']}\n")
"$TFMC" "${quick[@]}" "$tmp/half.gguf" -o "$tmp/half.o" -MD
grep -c "half.gguf" "$tmp/half.d" >/dev/null
for name in null "it's"; do # names that YAML reads as something else
	cp "$tmp/half.gguf" "$tmp/$name.gguf"
	"$TFMC" "${quick[@]}" "$tmp/$name.gguf" -o "$tmp/named.o" >/dev/null
done

# A tokenizer in the metadata is the model's.
python3 "$support/to_gguf.py" "$tmp/llama" "$tmp/letters.gguf" --letters
"$TFMC" import "$tmp/letters.gguf" | grep -c "^tokenizer: {kind: gguf, file: 'letters.gguf', embed: true, optional: true}" >/dev/null
"$TFMC" tokenize "$tmp/letters.gguf" --prompt "ab z" >"$tmp/ids"
[ "$(cat "$tmp/ids")" = "1 3 4 5 3 29" ] || { cat "$tmp/ids" >&2; exit 1; }

# An architecture that no preset knows, a key that may change the computation.
sed 's/llama/lamma/g' "$tmp/half.gguf" >"$tmp/other.gguf"
"$TFMC" "${quick[@]}" "$tmp/other.gguf" -o "$tmp/other.o" 2>"$tmp/err" && say "an unknown architecture is taken"
grep -c "not supported yet: .*lamma" "$tmp/err" >/dev/null || { cat "$tmp/err" >&2; exit 1; }
sed 's/rope.freq_base/rope.freq_bass/' "$tmp/half.gguf" >"$tmp/key.gguf"
"$TFMC" "${quick[@]}" "$tmp/key.gguf" -o "$tmp/key.o" 2>"$tmp/err" && say "an unknown key is taken"
grep -c "'rope.freq_bass' .* may change the computation" "$tmp/err" >/dev/null || { cat "$tmp/err" >&2; exit 1; }
[ ! -e "$tmp/other.o" ] && [ ! -e "$tmp/key.o" ]

# It is described all the same, in JSON as well; bytes that are no characters do not reach a terminal.
"$TFMC" inspect "$tmp/other.gguf" --json >"$tmp/json" 2>"$tmp/err" && say "an unknown architecture is a model"
python3 -c "import json, sys; d = json.load(open(sys.argv[1])); assert d['metadata']['general.architecture'] == 'lamma' and d['tensors']" "$tmp/json"
LC_ALL=C sed 's/general.architecture\(....\)\(........\)llama/general.architecture\1\2ll\xff\x1b\xc2/' "$tmp/half.gguf" >"$tmp/bytes.gguf"
"$TFMC" inspect "$tmp/bytes.gguf" >"$tmp/text" 2>"$tmp/err" && say "an unknown architecture is a model"
grep -c 'architecture: ll\.\.\.' "$tmp/text" >/dev/null || { head -3 "$tmp/text" >&2; exit 1; }
