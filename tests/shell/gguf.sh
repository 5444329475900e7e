#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Models of the families as GGUF files, made from those beside the checkout by tests/support/to_gguf.py, pass the same
# checks: the file that `tfmc import` writes for them and the GGUF file itself.
set -euo pipefail
models=$TFMC_SHARED/models
[ -d "$models" ] || { echo "SKIPPED: $models is absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# check NAME FOLDER SETTINGS [OPTION..]: what metadata cannot say comes from the settings
check() {
	local name=$1 folder=$models/$2 settings=$3
	shift 3
	mkdir "$tmp/$name"
	python3 "$TFMC_SOURCE/tests/support/to_gguf.py" "$folder" "$tmp/$name/$name.gguf" "$@"
	local file
	file=$(ls "$tmp/$name/"*.gguf | head -1)
	cp "$folder/cases.safetensors" "$tmp/$name/"
	"$TFMC" import "$file" -o "$tmp/$name/model.yaml"
	[ -z "$settings" ] || echo "set: $settings" >>"$tmp/$name/model.yaml"
	sed -n '/^checks:/,$p' "$folder/model.yaml" >>"$tmp/$name/model.yaml"
	"$TFMC" verify "$tmp/$name/model.yaml" -mcpu=native >"$tmp/out" || { cat "$tmp/out" >&2; exit 1; }
	echo "$name: $(grep -c ' ok$' "$tmp/out") comparisons"
}

check llama variants/llama ""
check llama_parts variants/llama "" --version 2 --parts 3
check mistral variants/mistral ""
check mixtral variants/mixtral ""
check mixtral_separate variants/mixtral "" --separate-experts
check qwen2 variants/qwen2 ""
check qwen3 variants/qwen3 ""
check gemma2 variants/gemma2 "{scalar: 24}" # not stored: by default the width of a head
check gemma3 variants/gemma3 "{scalar: 24, every: 3}"
check gpt2 gpt2-tiny ""
check gpt_neox variants/gpt_neox ""
check phi variants/phi ""
check bloom variants/bloom ""
check mpt variants/mpt ""
check bert bert-tiny ""
check t5 variants/t5 "{reach: 40}"

# The file itself is a model: its interleaved rotary positions and f16 are compiled in.
python3 "$TFMC_SOURCE/tests/support/to_gguf.py" "$models/variants/llama" "$tmp/tiny.gguf" --type f16
"$TFMC" "$tmp/tiny.gguf" -o "$tmp/tiny.o" -mcpu=native
nm "$tmp/tiny.o" | grep -c ' tiny_step$' >/dev/null
"$TFMC" generate "$tmp/tiny.gguf" --tokens=1,5,7 --steps=4 | grep -c . >/dev/null
