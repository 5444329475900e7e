#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Models of the families as GGUF files, made from those beside the checkout by tests/support/to_gguf.py, pass the same
# checks: the file that `tfmc import` writes for them and the GGUF file itself. Every key of their metadata counts.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
models=$TFMC_SHARED/models
[ -d "$models" ] || { echo "SKIPPED: $models is absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

python=(python3 -B "$TFMC_SOURCE/tests/golden/families/gguf.py")

# check FOLDER [SETTINGS]: the file alone, its checks, every key of it; what metadata cannot say comes from the settings
check() {
	"${python[@]}" "$models/$1" "${2:-}" >"$tmp/out" || { cat "$tmp/out" >&2; exit 1; }
	tail -1 "$tmp/out"
}

# other NAME FOLDER OPTION..: the same checks of files that other converters write
other() {
	local name=$1 folder=$models/$2 file
	shift 2
	mkdir "$tmp/$name"
	python3 "$TFMC_SOURCE/tests/support/to_gguf.py" "$folder" "$tmp/$name/$name.gguf" "$@"
	file=$(ls "$tmp/$name/"*.gguf | head -1)
	cp "$folder/cases.safetensors" "$tmp/$name/"
	"$TFMC" import "$file" -o "$tmp/$name/model.yaml"
	sed -n '/^checks:/,$p' "$folder/model.yaml" >>"$tmp/$name/model.yaml"
	"$TFMC" verify "$tmp/$name/model.yaml" -mcpu=native "${quick[@]}" >"$tmp/out" || { cat "$tmp/out" >&2; exit 1; }
	echo "$name: $(grep -c ' ok$' "$tmp/out") comparisons"
}

check variants/llama
check variants/mistral
check variants/mixtral
check variants/qwen2
check variants/qwen3
check variants/gemma2 "{scalar: 24}" # not stored: by default the width of a head
check variants/gemma3 "{scalar: 24, every: 3}"
check gpt2-tiny
check variants/gpt_neox
check variants/phi
check variants/bloom
check variants/mpt
check bert-tiny
check variants/t5 "{reach: 40}"
other llama_parts variants/llama --version 2 --parts 3
other mixtral_separate variants/mixtral --separate-experts

# The file itself is a model: its interleaved rotary positions and f16 are compiled in.
python3 "$TFMC_SOURCE/tests/support/to_gguf.py" "$models/variants/llama" "$tmp/tiny.gguf" --type f16
"$TFMC" "$tmp/tiny.gguf" -o "$tmp/tiny.o" -mcpu=native "${quick[@]}"
nm "$tmp/tiny.o" | grep -c ' tiny_step$' >/dev/null
"$TFMC" generate "$tmp/tiny.gguf" --tokens=1,5,7 --max-tokens=4 | grep -c . >/dev/null
