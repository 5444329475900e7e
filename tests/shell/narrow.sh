#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Weights stored as bf16 or f16 stay narrow in the object: about half of its bytes, and results have the bits of
# `dtype: {weights: f32}`, in every variant, with threads. Wider ones that
# `dtype: {weights: bf16}` or f16 rounds are those of a file whose matrices were rounded before.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support
say() { echo "$1" >&2; exit 1; }

python3 "$support/make_llama.py" "$tmp/f32" llama num_key_value_heads=3 intermediate_size=41 >/dev/null
"$TFMC" import "$tmp/f32" >"$tmp/f32/keep.yaml"
for kind in BF16 F16; do
	at=$tmp/$kind
	mkdir "$at"
	cp "$tmp/f32/config.json" "$at"
	python3 "$support/to_narrow.py" "$tmp/f32/model.safetensors" "$at/model.safetensors" $kind
	"$TFMC" import "$at" >"$at/keep.yaml"
	{ cat "$at/keep.yaml"; echo "dtype: {weights: f32}"; } >"$at/wide.yaml"
	threads=2
	for form in keep wide; do
		"$TFMC" "$at/$form.yaml" -o "$at/$form.o" --weights=file --variants="${levels// /,}" "${quick[@]}"
		for variant in $levels; do
			"$TFMC" run "${quick[@]}" "$at/$form.yaml" --inputs "$tmp/f32/inputs.safetensors" --threads=$threads \
				--outputs "$at/$form.$variant.safetensors" -mcpu=x86-64-$variant
		done
		threads=1
	done
	for variant in $levels; do
		cmp "$at/keep.$variant.safetensors" "$at/wide.$variant.safetensors" ||
			say "$kind, $variant: other bits than with f32"
	done
	narrow=$(stat -c %s "$at/keep.weights") wide=$(stat -c %s "$at/wide.weights")
	[ $((narrow * 100)) -lt $((wide * 62)) ] || say "$kind: $narrow bytes of weights, $wide as f32"
	"$TFMC" verify "${quick[@]}" "$at/keep.yaml" >"$at/verify" || { cat "$at/verify" >&2; exit 1; }
	echo "$kind: $narrow bytes of weights, $wide as f32"
done

# compute: bf16 keeps matrices as bf16; what x is rounded to does not depend on threads.
{ cat "$tmp/f32/keep.yaml"; echo "dtype: {compute: bf16}"; } >"$tmp/f32/bf16.yaml"
"$TFMC" "$tmp/f32/bf16.yaml" -o "$tmp/f32/bf16.o" --name=m --weights=file "${quick[@]}"
[ "$(stat -c %s "$tmp/f32/bf16.weights")" = "$(stat -c %s "$tmp/BF16/keep.weights")" ] || say "compute: bf16: bytes of weights"
"$TFMC" verify "${quick[@]}" "$tmp/f32/bf16.yaml" >"$tmp/verify" || { cat "$tmp/verify" >&2; exit 1; }
for threads in 1 3; do
	"$TFMC" run "${quick[@]}" "$tmp/f32/bf16.yaml" --inputs "$tmp/f32/inputs.safetensors" --threads=$threads --outputs "$tmp/bf16.$threads"
done
cmp "$tmp/bf16.1" "$tmp/bf16.3" || say "compute: bf16: other bits with more threads"
! cmp -s "$tmp/bf16.1" "$tmp/BF16/wide.${levels##* }.safetensors" || say "compute: bf16 changes nothing"

# rounds KIND WORD STORED TIED: `dtype: {weights: WORD}` on wider tensors beside a file with matrices of KIND
rounds() {
	local at=$tmp/rounded.$1 form
	python3 "$support/make_llama.py" "$at" llama num_key_value_heads=3 intermediate_size=41 "tie_word_embeddings=$4" >/dev/null
	"$TFMC" import "$at" >"$at/keep.yaml"
	{ cat "$at/keep.yaml"; echo "dtype: {weights: $2}"; } >"$at/round.yaml"
	mv "$at/model.safetensors" "$at/f32"
	cp "$at/f32" "$at/F32"
	python3 "$support/to_narrow.py" "$at/f32" "$at/F64" F64
	python3 "$support/to_narrow.py" "$at/f32" "$at/$1" "$1" matrices
	for form in round keep; do
		if [ $form = keep ]; then cp "$at/$1" "$at/model.safetensors"; else cp "$at/$3" "$at/model.safetensors"; fi
		"$TFMC" "$at/$form.yaml" -o "$at/$form.o" --name=m --weights=file -mcpu=x86-64-v3 "${quick[@]}"
		"$TFMC" run "${quick[@]}" "$at/$form.yaml" --inputs "$tmp/f32/inputs.safetensors" --backend interp \
			--outputs "$at/$form.safetensors"
	done
	for file in o weights safetensors; do
		cmp "$at/round.$file" "$at/keep.$file" || say "$1: $file of rounded weights"
	done
}
rounds BF16 bf16 F32 false
rounds F16 f16 F64 true

# A finite weight beyond the type ends the compilation, whole and embedded.
python3 - "$tmp/f32/model.safetensors" "$tmp/F16/model.safetensors" <<-'END'
	import struct, sys
	data = bytearray(open(sys.argv[1], "rb").read())
	data[-4:] = struct.pack("<f", -65520.0)
	open(sys.argv[2], "wb").write(data)
END
mkdir "$tmp/none"
{ cat "$tmp/F16/keep.yaml"; echo "dtype: {weights: f16}"; } >"$tmp/F16/round.yaml"
for where in embed file; do
	code=0
	"$TFMC" "$tmp/F16/round.yaml" -o "$tmp/none/m.o" --weights=$where 2>"$tmp/err" || code=$?
	[ $code = 1 ] || say "an infinite weight: exit code $code"
	[ "$(grep -c "error: -65520 in tensor '.*' of 'model.safetensors' is too large for f16" "$tmp/err")" = 1 ] || say "$(cat "$tmp/err")"
	[ -z "$(ls "$tmp/none")" ] || say "an infinite weight: $(ls "$tmp/none")"
done

# So is one whose scale, as a number of 16 bits, is beyond its type; a row that has a scale in f32 holds it.
# full FORMAT NUMBER: a linear by a matrix that is NUMBER everywhere
full() {
	cat <<TIR
module "large"
weight @w : f32[16,64] as $1 = quantize($1, full($2, [16,64]))
func @run(%x: f32[4,64]) -> (y: f32[4,16]) {
  %y = linear %x, @w : f32[4,16]
  return %y
}
TIR
}
for row in 'q8 1e+09' 'q4s 1e+09' 'q4s 30000'; do
	# shellcheck disable=SC2086
	full $row >"$tmp/large.tir"
	code=0
	"$TFMC" "$tmp/large.tir" -o "$tmp/none/m.o" 2>"$tmp/err" || code=$?
	[ $code = 1 ] && [ ! -e "$tmp/none/m.o" ] || say "a scale beyond its type: $row: exit code $code"
	grep -q "error: the weight ${row#* } is too large for ${row% *}" "$tmp/err" || say "$row: $(cat "$tmp/err")"
done
for row in 'q8_row 1e+09' 'q8 30000' 'q4s 15000'; do
	# shellcheck disable=SC2086
	full $row >"$tmp/row.tir"
	"$TFMC" "$tmp/row.tir" -o "$tmp/row.o" || say "$row is refused"
done

# plan reports the formats of the file.
bytes=$("$TFMC" plan "$tmp/BF16/keep.yaml" | sed -n 's/^weights *\([0-9]*\).*/\1/p' | head -1)
[ "$((bytes + 4096))" -eq "$(stat -c %s "$tmp/BF16/keep.weights")" ] || say "plan: $bytes bytes of weights"
