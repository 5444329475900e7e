#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Models whose layers differ in the format of a matrix (mixtures of quantizers, folders with matrices that were not
# converted): in memory every layer has the bytes of its own format, and results are those of the same numbers in f32.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support
say() { echo "$1" >&2; exit 1; }

python3 -B "$support/mixtures.py" "$tmp" >"$tmp/list"
while read -r model want; do
	"$TFMC" plan "$tmp/$model" >"$tmp/plan" 2>"$tmp/warnings"
	[ ! -s "$tmp/warnings" ] || say "$model: $(cat "$tmp/warnings")"
	packed=$(sed -n 's/^weights  *\([0-9]*\) bytes.*/\1/p' "$tmp/plan")
	[ "$packed" -ge "$want" ] && [ $((packed * 100)) -le $((want * 102)) ] ||
		say "$model: weights of $packed bytes, its tensors have $want"
	# A step reads each byte once, but for the table, of which it takes a row; of experts it takes some.
	sed -n 's/^  weights  *\([0-9.]*\) \([KM]\)iB are read$/\1 \2/p' "$tmp/plan" |
		awk -v want="$want" '{ read = $1 * ($2 == "K" ? 1024 : 1048576) } END { exit !(NR > 0 && read < 1.02 * want) }' ||
		say "$model: a step reads more than its tensors have"
	echo "$model: $packed bytes, its tensors $want"
done <"$tmp/list"

# A step reads the file once: all but the table, whose row it takes.
"$TFMC" bench "$tmp/Q4_K_M.gguf" --entry=step --json -mcpu=native "${quick[@]}" >"$tmp/bench.json"
python3 - "$tmp" <<'P'
import json, sys
want = int(dict(line.split() for line in open(sys.argv[1] + "/list"))["Q4_K_M.gguf"])
read = json.load(open(sys.argv[1] + "/bench.json"))["weight_bytes"]
assert 0.9 * want < read < 1.02 * want, f"a step reads {read} bytes, the tensors have {want}"
P

# Layers whose formats alternate are one loop over their period, those behind it another one.
"$TFMC" plan "$tmp/Q4_K_M.gguf" --quantize=q8 | sed -n 's/^layers\.\([0-9_]*\)\.mlp\.ffn\.down\.weight  *\([a-z0-9_]*\)[: ].*/\1=\2/p' | sort -u | tr '\n' ' ' >"$tmp/parts"
[ "$(cat "$tmp/parts")" = "0_3_3=q6_k 1_4_4=q4_k 2_5_5=q4_k 6_7=q6_k " ] || say "Q4_K_M is divided into $(cat "$tmp/parts")"

# The same bits as with f32 in memory, where no repeat is divided.
python3 -B - "$support" "$tmp" <<'P'
import random, struct, sys
sys.path.insert(0, sys.argv[1])
import quantized
ids = [random.Random(1).randrange(64) for _ in range(10)]
quantized.write_safetensors(sys.argv[2] + "/ids.safetensors", {"input_ids": ("I32", [2, 5], struct.pack("<10i", *ids))})
P
for model in Q4_K_M.gguf Q3_K_M.gguf Q2_K.gguf Q5.gguf gpt2_Q4_K_M.gguf qwen3moe_Q4_K_M.gguf floats.gguf experts; do
	for weights in keep f32; do
		"$TFMC" run "$tmp/$model" --inputs "$tmp/ids.safetensors" --outputs "$tmp/$weights.out" -mcpu=native "${quick[@]}" \
			--dtype="weights=$weights,compute=f32"
	done
	cmp "$tmp/keep.out" "$tmp/f32.out" || say "$model: other numbers than those of f32"
done

# The format of each stored weight is listed, and a weight that becomes f32 all the same has a warning.
"$TFMC" plan "$tmp/down_f16" --remarks >"$tmp/plan" 2>"$tmp/remarks"
grep -q "remark: quantize: layers.2.mlp.ffn.down.weight is f16" "$tmp/remarks" || say "remarks do not say what is f16"
grep -q '^layers.2.mlp.ffn.down.weight  *f16 ' "$tmp/plan" || say "plan does not list what is f16"
grep -q '^layers.3.mlp.ffn.down.weight  *bf16 ' "$tmp/plan" || say "plan does not list what is bf16"
"$TFMC" plan "$tmp/first_f32" | grep -q '^layers.0.mlp.ffn.down.weight  *f32: its values are f32$' || say "plan does not list what is f32"
cat >"$tmp/halves.yaml" <<'Y'
tfmc: 1
name: halves
dims: {B: 1..4}
inputs: {v: {shape: [B, 512], dtype: f32}}
model: [{x: v}, linear: {id: both, out: 576, bias: false}]
outputs: {y: x}
weights:
  files: [Q4_K_M.gguf]
  ignore: ['*']
  map: {both.weight: {concat: {axis: 0, of: [blk.0.attn_q.weight, blk.0.attn_v.weight]}}}
Y
"$TFMC" plan "$tmp/halves.yaml" 2>&1 >"$tmp/plan" | grep -q "warning: the weight 'both.weight' of q4_k becomes f32: its parts have different formats" ||
	say "a weight that became f32 is not told"

# Codes of files stay, which is said where another format is wanted.
"$TFMC" plan "$tmp/Q4_K_M.gguf" --quantize=q8 --remarks >"$tmp/plan" 2>"$tmp/remarks"
grep -q "^warning: quantize changes nothing: the weights are quantized in the files already, and stay so" "$tmp/remarks" || say "--quantize says nothing of codes"
grep -q "layers.0_3_3.mlp.ffn.down.weight is q6_k: quantized values of files stay, also where '\*' says q8" "$tmp/remarks" || say "remarks do not say why q6_k is no q8"
grep -q "^layers.0_3_3.mlp.ffn.up.weight  *q4_k: quantized values of files stay" "$tmp/plan" || say "plan does not say why q4_k is no q8"
"$TFMC" plan "$tmp/floats.gguf" --quantize=q8 2>&1 | grep -q "changes nothing" && say "floats become codes, and this is denied"

# Packed folders: each matrix keeps the bits of its file, also beside others and where columns are in another order, and the model is
# that of the same numbers in f32.
python3 "$support/make_llama.py" "$tmp/llama" llama hidden_size=128 intermediate_size=256 num_attention_heads=4 num_key_value_heads=2 head_dim=32 num_hidden_layers=3
turn=0
packed() { # NAME WANT OPTION..: WANT: weight=format, with commas. In the short run each third folder, and those that are used again.
	turn=$((turn + 1))
	[ -n "${TFMC_ALL:-}" ] || [ $((turn % 3)) = 1 ] || [ "$1" = order ] || return 0
	local at=$tmp/$1 wanted=${2//,/ } kind want
	shift 2
	python3 -B "$support/to_packed.py" "$tmp/llama" "$at" "$@"
	"$TFMC" plan "$at/packed" >"$at/plan" 2>"$at/warnings"
	[ ! -s "$at/warnings" ] || say "$*: $(cat "$at/warnings")"
	for want in $wanted; do
		grep -q "^layers\(.[0-9_]*\|\).${want%=*}.weight  *${want#*=}[: ]" "$at/plan" || say "$*: ${want%=*} is not ${want#*=}: $(cat "$at/plan")"
	done
	for kind in packed plain; do
		"$TFMC" run "$at/$kind" --inputs "$tmp/llama/inputs.safetensors" --outputs "$at/$kind.out" -mcpu=native "${quick[@]}" --dtype=compute=f32
	done
	echo "$*: $(python3 "$support/near.py" "$at/packed.out" "$at/plain.out" 6e-5)" || say "$*: other numbers"
}
one='0.self.attention.q' two='1_2.mlp.ffn.down'
packed awq_first "$one=f32,$two=q4g_32" awq --keep 'layers\.0\.'
packed gptq_one "1.mlp.ffn.down=f32,0.mlp.ffn.down=q4g_128,mlp.ffn.up=q4g_128" gptq --group 128 --keep 'layers\.1\.mlp\.down'
packed eight "2.mlp.ffn.down=q8,0_1.mlp.ffn.down=q4,2.mlp.ffn.gate=q4" words --symmetric --eight 'layers\.2\.mlp\.down'
packed order "self.attention.v=q4g_32,mlp.ffn.down=q4g_32" gptq --shuffle
packed order_one "$one=f32,1_2.self.attention.q=q4g_64" gptq --group 64 --shuffle shared --keep 'layers\.0\.'
packed order_some "0.mlp.ffn.up=q4g_32,1_2.mlp.ffn.up=q4g_32" gptq --shuffle shared --still 'layers\.0\.'
packed order_words "self.attention.q=q8f_32" words --bits 8 --symmetric --scales BF16 --shuffle
packed eight_zero "self.attention.q=q8g_128" gptq --bits 8 --group 128
packed eight_float "mlp.ffn.up=q8g_64" gptq_v2 --bits 8 --group 64 --scales F32
packed eight_bytes "mlp.ffn.up=q8_row,mlp.ffn.down=q8f_128" bytes --bits 8 --symmetric --group 128 --scales BF16
packed float "mlp.ffn.up=q4g_128" gptq --group 128 --scales F32
packed weight "mlp.ffn.up=q4" words --symmetric --actorder weight

# An order that q, k and v share is gathered once.
gathers() { "$TFMC" "$tmp/$1/packed" --emit=tir=- -O2 --stop-after=merge-linear | sed -n '/^func @run/,/^}/p' | grep -c "= gather .*f32\[128,B,S\]"; }
python3 -B "$support/to_packed.py" "$tmp/llama" "$tmp/order_shared" gptq --shuffle shared
[ "$(gathers order)" = 6 ] && [ "$(gathers order_shared)" = 3 ] || say "$(gathers order) and $(gathers order_shared) gathers for 6 and 3 orders"

# Codes of packed matrices stay, too; groups that no format has become f32, which is said once for each weight.
"$TFMC" plan "$tmp/order/packed" --quantize=q8 >"$tmp/plan"
grep -q "^layers.mlp.ffn.up.weight  *q4g_32: quantized values of files stay, also where '\*' says q8" "$tmp/plan" || say "plan does not say why packed codes are no q8"
python3 -B "$support/to_packed.py" "$tmp/llama" "$tmp/small" gptq --group 16
"$TFMC" plan "$tmp/small/packed" --diagnostics=short >"$tmp/plan" 2>"$tmp/warnings"
[ "$(grep -c "warning: the weight 'layers.*' becomes f32: no format has 4 bits, groups of 16 columns" "$tmp/warnings")" = 7 ] || say "$(cat "$tmp/warnings")"
grep -q "^layers.mlp.ffn.up.weight  *f32: no format has 4 bits, groups of 16 columns" "$tmp/plan" || say "plan does not say why packed matrices are f32"
"$TFMC" inspect "$tmp/order/packed" | grep -c "layers.mlp.ffn.down.weight: .* stored q4g_32$" >/dev/null || say "inspect does not say q4g_32"
