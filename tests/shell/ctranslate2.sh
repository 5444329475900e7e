#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Matrices of CTranslate2, int8 with a number for each row that its elements were multiplied with (weights.packed): they
# have exactly the elements that CTranslate2 reads, q times 1 / scale in f32, and stay codes in the object. With weights of
# a trained model the texts are those that were computed from its numbers elsewhere.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support models=$TFMC_SHARED/models/aren-transliteration
say() { echo "$1" >&2; exit 1; }

python3 -B - "$support" "$tmp" <<'P'
import random, struct, sys
sys.path.insert(0, sys.argv[1])
from quantized import write_safetensors
tmp, rng, n, k = sys.argv[2], random.Random(11), 21, 96
f32 = lambda values: struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values))
codes = [rng.randrange(-127, 128) for _ in range(n * k)]
scales = f32([127 / rng.uniform(0.01, 3) for _ in range(n)])
inverse = f32([1 / s for s in scales])
elements = f32([codes[i] * inverse[i // k] for i in range(n * k)])
parts = {"a/weight": ("I8", [n, k], struct.pack(f"<{n * k}b", *codes)), "a/weight_scale": ("F32", [n], struct.pack(f"<{n}f", *scales))}
write_safetensors(f"{tmp}/w.safetensors", parts)
write_safetensors(f"{tmp}/few.safetensors", {**parts, "a/weight_scale": ("F32", [n - 1], struct.pack(f"<{n - 1}f", *scales[1:]))})
write_safetensors(f"{tmp}/half.safetensors", {**parts, "a/weight_scale": ("F16", [n], bytes(2 * n))})
write_safetensors(f"{tmp}/rows.want", {"y": ("F32", [1, n, k], struct.pack(f"<{n * k}f", *elements))})
transposed = [elements[r * k + c] for c in range(k) for r in range(n)]
write_safetensors(f"{tmp}/columns.want", {"y": ("F32", [k, n], struct.pack(f"<{n * k}f", *transposed))})
write_safetensors(f"{tmp}/rows.in", {"ids": ("I32", [1, n], struct.pack(f"<{n}i", *range(n)))})
write_safetensors(f"{tmp}/columns.in", {"v": ("F32", [k, k], struct.pack(f"<{k * k}f", *(float(i == j) for i in range(k) for j in range(k))))})
P
# model NAME DTYPE FILE INPUT STEP
model() {
	cat >"$tmp/$1.yaml" <<-Y
		tfmc: 1
		name: one
		dims: {B: 1..96, S: 1..32}
		inputs: {$4}
		model: [$5]
		outputs: {y: x}
		dtype: {$2}
		weights: {files: [$3.safetensors], packed: ctranslate2, map: {w.weight: a/weight}}
	Y
}
embed=("ids: {shape: [B, S], dtype: i32}" "embed: {id: w, vocab: 21, dim: 96}")
linear=("v: {shape: [B, 96], dtype: f32}" "{x: v}, linear: {id: w, out: 21, bias: false}")
model rows "weights: keep" w "${embed[@]}"
model rows_plain "weights: f32" w "${embed[@]}"
model columns "compute: f32" w "${linear[@]}"
for name in rows rows_plain columns; do
	"$TFMC" run "${quick[@]}" "$tmp/$name.yaml" --inputs "$tmp/${name%_*}.in" --outputs "$tmp/$name.out" -mcpu=native
	python3 -B - "$support" "$tmp/$name.out" "$tmp/${name%_*}.want" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
from to_gguf import read_safetensors
got, want = (read_safetensors(path)["y"] for path in sys.argv[2:])
assert got == want, f"{sys.argv[2]}: elements differ"
P
done
for name in rows columns; do
	"$TFMC" inspect "$tmp/$name.yaml" | grep -c 'w.weight: f32\[21,96\], stored q8_row' >/dev/null || say "$name: not kept"
done
# refused FILE MESSAGE
refused() {
	local rc=0
	model wrong "weights: keep" "$1" "${embed[@]}"
	"$TFMC" "$tmp/wrong.yaml" -o "$tmp/wrong.o" 2>"$tmp/err" || rc=$?
	[ "$rc" = 1 ] && grep -c "$2" "$tmp/err" >/dev/null || { cat "$tmp/err" >&2; say "$1: exit code $rc, not: $2"; }
}
refused few "'a/weight_scale' F32 \[20\]: scales of 21 rows are"
refused half "'a/weight_scale' F16 \[21\]: it must be F32 with 1 axes"

[ -d "$models" ] || { echo "SKIPPED in part: $models is absent"; exit 0; }
cp "$models"/*.txt "$models"/*.safetensors "$tmp/"
int8='s/files: .*/files: [model-int8.safetensors]\n  packed: ctranslate2/; /^checks:/,$d'
sed "$int8" "$models/model.yaml" >"$tmp/int8.yaml"
for dtype in compute weights; do
	sed "$int8; s/^weights:/dtype: {$dtype: f32}\n&/" "$models/model.yaml" >"$tmp/$dtype.yaml"
done
python3 -c "import json, sys
cases = [c for c in json.load(open(sys.argv[1]))['cases'] if 'int8_greedy' in c]
for name, key in (('words', 'word'), ('want', 'int8_greedy')):
    open(sys.argv[2] + '/' + name, 'w').writelines(c[key] + '\n' for c in cases)" "$models/cases.json" "$tmp"
for name in int8 compute; do
	"$TFMC" generate "${quick[@]}" "$tmp/$name.yaml" --prompt-file "$tmp/words" --beam=1 >"$tmp/got"
	diff "$tmp/want" "$tmp/got" || say "$name: other texts"
done
bytes_of() { "$TFMC" "$tmp/$1.yaml" -o "$tmp/$1.o" 2>/dev/null; "$TFMC" inspect "$tmp/$1.o" | sed -n 's/^weights: .* bytes \([0-9]*\).*/\1/p'; }
codes=$(bytes_of int8) floats=$(bytes_of weights)
[ $((3 * codes)) -lt "$floats" ] || say "weights of $codes bytes, $floats as f32"
echo "31 words as expected; weights of $codes bytes, $floats as f32"
