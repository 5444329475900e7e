#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Weights stored as bf16 or f16 stay narrow in the object: about half of its bytes, and where no pass folds
# anything into them the bits of `dtype: {weights: f32}`, in every variant, with threads.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support
say() { echo "$1" >&2; exit 1; }

python3 "$support/make_llama.py" "$tmp/f32" llama num_key_value_heads=3 intermediate_size=41 >/dev/null
for kind in BF16 F16; do
	at=$tmp/$kind
	mkdir "$at"
	cp "$tmp/f32/config.json" "$at"
	python3 "$support/to_narrow.py" "$tmp/f32/model.safetensors" "$at/model.safetensors" $kind
	"$TFMC" import "$at" >"$at/keep.yaml"
	{ cat "$at/keep.yaml"; echo "dtype: {weights: f32}"; } >"$at/wide.yaml"
	threads=2
	for form in keep wide; do
		"$TFMC" "$at/$form.yaml" -o "$at/$form.o" --weights=file --variants=v2,v3,v4
		for variant in v2 v3 v4; do
			"$TFMC" run "$at/$form.yaml" --inputs "$tmp/f32/inputs.safetensors" -O0 --threads=$threads \
				--outputs "$at/$form.$variant.safetensors" -mcpu=x86-64-$variant
		done
		threads=1
	done
	for variant in v2 v3 v4; do
		cmp "$at/keep.$variant.safetensors" "$at/wide.$variant.safetensors" ||
			say "$kind, $variant: other bits than with f32"
	done
	narrow=$(stat -c %s "$at/keep.weights") wide=$(stat -c %s "$at/wide.weights")
	[ $((narrow * 100)) -lt $((wide * 62)) ] || say "$kind: $narrow bytes of weights, $wide as f32"
	"$TFMC" verify "$at/keep.yaml" >"$at/verify" || { cat "$at/verify" >&2; exit 1; }
	echo "$kind: $narrow bytes of weights, $wide as f32"
done

# What plan says is what the file has.
bytes=$("$TFMC" plan "$tmp/BF16/keep.yaml" | sed -n 's/^weights *\([0-9]*\).*/\1/p' | head -1)
[ "$((bytes + 4096))" -eq "$(stat -c %s "$tmp/BF16/keep.weights")" ] || say "plan: $bytes bytes of weights"
