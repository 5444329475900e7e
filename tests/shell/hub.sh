#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Hub folders of the models beside the checkout: the file that `tfmc import` writes passes the checks of each model without
# an edit, from a plain folder and from one of symbolic links, as hub caches are; the folder itself compiles.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
models=$TFMC_SHARED/models
[ -d "$models" ] || { echo "SKIPPED: $models is absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
for folder in bert-tiny gpt2-tiny variants/{bart,bloom,clip_text,gemma2,gemma3,gpt_neox,llama,marian,mistral,mixtral,modernbert,mpt,opt,phi,qwen2,qwen3,t5,vit,whisper}; do
	name=${folder##*/}
	n=$((n + 1))
	mkdir "$tmp/$name"
	for file in config.json model.safetensors cases.safetensors; do
		if [ $((n % 2)) = 0 ]; then
			ln -s "$models/$folder/$file" "$tmp/$name/$file"
		else
			cp "$models/$folder/$file" "$tmp/$name/$file"
		fi
	done
	"$TFMC" import "$tmp/$name" -o "$tmp/$name/model.yaml"
	sed -n '/^checks:/,$p' "$models/$folder/model.yaml" >>"$tmp/$name/model.yaml"
	"$TFMC" verify "$tmp/$name/model.yaml" -mcpu=native "${quick[@]}" >"$tmp/out" || { cat "$tmp/out" >&2; exit 1; }
	echo "$name: $(grep -c ' ok$' "$tmp/out") comparisons"
done
"$TFMC" "$tmp/llama" -o "$tmp/llama.o" -mcpu=native "${quick[@]}"
nm "$tmp/llama.o" | grep -c ' llama_step$' >/dev/null
"$TFMC" "$tmp/bert-tiny" -o "$tmp/bert.o" -mcpu=native "${quick[@]}"
nm "$tmp/bert.o" | grep -c ' bert_tiny_run$' >/dev/null
