#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tokenizers in the metadata of GGUF files beside the checkout: the ids of every text of FILE.inp are those of FILE.out,
# and files whose metadata are damaged are refused.
set -euo pipefail
data=$TFMC_SHARED/data/tokenizers
[ -d "$data" ] || { echo "SKIPPED: $data is absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tokens=$TFMC_BUILD/tests/tfmc_tokens
n=0
for file in "$data"/*.gguf; do
	python3 - "$file.inp" "$tmp/texts" <<'P'
import sys
texts = open(sys.argv[1], "rb").read().split(b"\n__ggml_vocab_test__\n")
if texts[-1] == b"":
    del texts[-1]
open(sys.argv[2], "wb").write(b"".join(text + b"\0" for text in texts))
P
	"$tokens" "$file" ids <"$tmp/texts" | sed 's/^ *//; s/ *$//' >"$tmp/ids"
	sed 's/^ *//; s/ *$//' "$file.out" >"$tmp/want"
	diff "$tmp/want" "$tmp/ids" >"$tmp/diff" || { echo "$file:" >&2; head -20 "$tmp/diff" >&2; exit 1; }
	echo "$(basename "$file"): $(wc -l <"$tmp/ids") texts"
	n=$((n + 1))
	# Wrong types of keys, lists of different lengths: said by name.
	for edit in 's/tokenizer.ggml.tokens/tokenizer.ggml.tokenz/' 's/tokenizer.ggml.model/tokenizer.ggml.modle/'; do
		LC_ALL=C sed "$edit" "$file" >"$tmp/wrong.gguf"
		if "$tokens" "$tmp/wrong.gguf" ids </dev/null >/dev/null 2>"$tmp/error"; then echo "$edit is taken" >&2; exit 1; fi
		grep -c "tokenizer.ggml" "$tmp/error" >/dev/null || { cat "$tmp/error" >&2; exit 1; }
	done
done
[ $n -ge 2 ]
