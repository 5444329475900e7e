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

# The same bits as with f32 in memory, where no repeat is divided.
python3 -B - "$support" "$tmp" <<'P'
import random, struct, sys
sys.path.insert(0, sys.argv[1])
import quantized
ids = [random.Random(1).randrange(64) for _ in range(10)]
quantized.write_safetensors(sys.argv[2] + "/ids.safetensors", {"input_ids": ("I32", [2, 5], struct.pack("<10i", *ids))})
P
for model in Q4_K_M.gguf gpt2_Q4_K_M.gguf qwen3moe_Q4_K_M.gguf floats.gguf; do
	for weights in keep f32; do
		"$TFMC" run "$tmp/$model" --inputs "$tmp/ids.safetensors" --outputs "$tmp/$weights.out" -mcpu=native "${quick[@]}" \
			--dtype="weights=$weights,compute=f32"
	done
	cmp "$tmp/keep.out" "$tmp/f32.out" || say "$model: other numbers than those of f32"
done
