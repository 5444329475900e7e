#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Readers of reduced-precision weights other than plain linears: experts, the blocks of a last linear, a table that is the head as well,
# products that are merged. The same numbers as f32 in memory give the same bits, in every variant, with threads.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. "$TFMC_SOURCE/tests/support/effort.sh"
say() { echo "$1" >&2; exit 1; }

# matrix ROWS COLUMNS START: numbers of KIND
matrix() { echo "round(KIND, sinusoid(rows=$1, dim=$2, layout=halves, spacing=paper, start=$3, base=70.0))"; }

cat >"$tmp/text" <<END
module "m"
dim B in [1,3]
dim S in [1,9]
weight @t : f32[4130,26]KEPT = $(matrix 4130 26 3)
weight @q : f32[26,26]KEPT = $(matrix 26 26 11)
weight @k : f32[13,26]KEPT = $(matrix 13 26 5)
weight @v : f32[13,26]KEPT = $(matrix 13 26 90)
weight @e : f32[3,37,26]KEPT = stack($(matrix 37 26 1), $(matrix 37 26 40), $(matrix 37 26 80))
func @run(%ids: i32[B,S] {below=4130}, %chosen: i32[B,S] {below=3}) -> (best: i32[B,S], q: f32[B,S,26], k: f32[B,S,13], v: f32[B,S,13], experts: f32[B,S,37]) {
  %x = gather @t, %ids : f32[B,S,26]
  %q = linear %x, @q : f32[B,S,26]
  %k = linear %x, @k : f32[B,S,13]
  %v = linear %x, @v : f32[B,S,13]
  %a = tanh %q : f32[B,S,26]
  %y = expert_linear %a, @e, %chosen : f32[B,S,37]
  %l = linear %a, @t : f32[B,S,4130]
  %i = argmax %l : i32[B,S]
  return %i, %q, %k, %v, %y
}
END

# inputs B S
inputs() {
	python3 - "$1" "$2" "$tmp/$1x$2.safetensors" <<-'END'
		import json, struct, sys
		b, s, n = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[1]) * int(sys.argv[2])
		head = json.dumps({"ids": {"dtype": "I32", "shape": [b, s], "data_offsets": [0, 4 * n]},
		                   "chosen": {"dtype": "I32", "shape": [b, s], "data_offsets": [4 * n, 8 * n]}}).encode()
		numbers = [i * 977 % 4130 for i in range(n)] + [i * i % 3 for i in range(n)]
		with open(sys.argv[3], "wb") as f:
		    f.write(struct.pack("<Q", len(head)) + head + struct.pack(f"<{2 * n}i", *numbers))
	END
}

# The forms are there: merged keys and values, the argmax in its linear, one table for its rows and the linear.
expect_forms() {
	"$TFMC" "$tmp/narrow.tir" -o "$tmp/m.o" --emit=tir="$tmp/tir" -mcpu=x86-64-v3
	for form in "weight @k_v : f32\[26,26\] #panel16 as $1 = concat(0, round($1, " "weight @e : f32\[3,37,26\] #panel16 as $1 " \
		"weight @t.* : f32\[4130,26\]" "weight @t : f32\[4130,26\] #panel16 as $1 " "block_argmax" "root .* = expert_linear"; do
		[ "$(grep -c "$form" "$tmp/tir")" = 1 ] || say "$1: no '$form'"
	done
}

inputs 1 1
inputs 3 7
for kind in bf16 f16; do
	sed "s/KIND/$kind/g; s/KEPT/ as $kind/" "$tmp/text" >"$tmp/narrow.tir"
	sed "s/KIND/$kind/g; s/KEPT//" "$tmp/text" >"$tmp/wide.tir"
	expect_forms $kind
	for variant in $levels; do
		for size in 1x1 3x7; do
			threads=2
			for form in narrow wide; do
				"$TFMC" run "$tmp/$form.tir" --inputs "$tmp/$size.safetensors" --threads=$threads \
					--outputs "$tmp/$form.safetensors" -mcpu=x86-64-$variant
				threads=1
			done
			cmp "$tmp/narrow.safetensors" "$tmp/wide.safetensors" || say "$kind, $variant, $size: other bits than as f32"
		done
	done
	"$TFMC" verify "$tmp/narrow.tir" >"$tmp/verify" || { cat "$tmp/verify" >&2; exit 1; }
	echo "$kind: $(grep -c ' ok$' "$tmp/verify") comparisons"
done
