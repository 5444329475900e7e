#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Weights that one command has quantized serve the others, to the same bytes: what `generate` keeps serves `-o`, in a file and
# embedded, and the other way round. Damaged entries, other formats and changed files are packed again.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset TFMC_CACHE_LIMIT
python3 "$TFMC_SOURCE/tests/support/make_llama.py" "$tmp/m" llama hidden_size=64 num_attention_heads=2 num_key_value_heads=1 \
	head_dim=32 intermediate_size=96
quick=(--quantize=q4 --passes=O2 -O0 -q)
# compile NAME ARGUMENTS: to NAME.o. A file counts as changed by this command until the clock has moved behind its times.
compile() { sleep 0.02 && "$TFMC" "$tmp/m" -o "$tmp/$1.o" "${quick[@]}" "${@:2}"; }
generate() { sleep 0.02 && "$TFMC" generate "$tmp/m" --tokens=5,6,7 --max-tokens=4 "${quick[@]}"; }
# packed KIND: how many files the cache has, and when the weights were written
kept() { (cd "$XDG_CACHE_HOME/tfmc" && ls | grep -c "^$1-" || true); }
when() { stat -c %i:%Y "$XDG_CACHE_HOME"/tfmc/weights-*; }

export XDG_CACHE_HOME=$tmp/none
compile plain --weights=file --no-cache
[ ! -e "$tmp/none" ]
export XDG_CACHE_HOME=$tmp/first
generate >"$tmp/said"
[ "$(kept weights)" = 1 ] && [ "$(kept packed)" = 1 ]
made=$(when)
# Bytes in the cache are used as they are, not packed again.
compile out --weights=file
cmp "$tmp/plain.weights" "$tmp/out.weights"
compile embedded --weights=embed
compile embedded_plain --weights=embed --no-cache
cmp "$tmp/embedded.o" "$tmp/embedded_plain.o"
[ "$(when)" = "$made" ] && [ "$(kept weights)" = 1 ]

export XDG_CACHE_HOME=$tmp/second
for place in file embed; do
	rm -rf "$XDG_CACHE_HOME"
	compile out --weights=$place
	[ "$(kept weights)" = 1 ] && [ "$(kept packed)" = 1 ] && [ "$(kept code)" = 0 ]
	made=$(when)
	generate | cmp - "$tmp/said"
	[ "$(when)" = "$made" ] && [ "$(kept weights)" = 1 ] && [ "$(kept code)" = 1 ]
done
cmp "$tmp/first"/tfmc/weights-* "$tmp/second"/tfmc/weights-*

# Damage is seen, and mended; another format has other weights.
printf '\x55\x55\x55' | dd of="$(ls "$XDG_CACHE_HOME"/tfmc/weights-*)" bs=1 seek=3000 conv=notrunc status=none
compile out --weights=file
cmp "$tmp/plain.weights" "$tmp/out.weights"
echo damage >"$(ls "$XDG_CACHE_HOME"/tfmc/packed-*)"
compile out --weights=file
cmp "$tmp/plain.weights" "$tmp/out.weights"
compile out --weights=file --quantize=q8
! cmp -s "$tmp/plain.weights" "$tmp/out.weights"
[ "$(kept weights)" = 2 ]
# Other contents under the same name and time.
cp -p "$tmp/m/model.safetensors" "$tmp/before"
printf '\x7e' | dd of="$tmp/m/model.safetensors" bs=1 seek=$(($(stat -c %s "$tmp/before") - 3)) conv=notrunc status=none
touch -r "$tmp/before" "$tmp/m/model.safetensors"
compile out --weights=file
compile plain --weights=file --no-cache
cmp "$tmp/plain.weights" "$tmp/out.weights"
[ "$(kept weights)" = 3 ]
