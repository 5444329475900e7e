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
for model in Q4_K_M.gguf gpt2_Q4_K_M.gguf qwen3moe_Q4_K_M.gguf floats.gguf experts; do
	for weights in keep f32; do
		"$TFMC" run "$tmp/$model" --inputs "$tmp/ids.safetensors" --outputs "$tmp/$weights.out" -mcpu=native "${quick[@]}" \
			--dtype="weights=$weights,compute=f32"
	done
	cmp "$tmp/keep.out" "$tmp/f32.out" || say "$model: other numbers than those of f32"
done

# What is kept as what is listed, and what becomes f32 all the same has a warning.
"$TFMC" plan "$tmp/down_f16" --remarks >"$tmp/plan" 2>"$tmp/remarks"
grep -q "remark: quantize: layers.2.mlp.ffn.down.weight is f16" "$tmp/remarks" || say "remarks do not say what is f16"
grep -q '^layers.2.mlp.ffn.down.weight  *f16 ' "$tmp/plan" || say "plan does not list what is f16"
grep -q '^layers.3.mlp.ffn.down.weight  *bf16 ' "$tmp/plan" || say "plan does not list what is bf16"
"$TFMC" plan "$tmp/first_f32" | grep -q '^layers.0.mlp.ffn.down.weight  *f32: its numbers are f32$' || say "plan does not list what is f32"
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

# A packed folder with a layer that was not converted: the others keep their codes.
python3 "$support/make_llama.py" "$tmp/llama" llama hidden_size=64 intermediate_size=128 num_attention_heads=4 num_key_value_heads=2 head_dim=16 num_hidden_layers=3
python3 -B "$support/to_packed.py" "$tmp/llama" "$tmp/awq" awq
python3 -B - "$support" "$tmp/awq" <<'P'
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import quantized

def tensors(path):
    data = open(path, "rb").read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return {k: (v["dtype"], v["shape"], data[begin + v["data_offsets"][0]:begin + v["data_offsets"][1]])
            for k, v in json.loads(data[8:begin]).items()}

packed, plain = (tensors(f"{sys.argv[2]}/{kind}/model.safetensors") for kind in ("packed", "plain"))
one = {k: v for k, v in packed.items() if ".layers.0." not in k}
one.update({k: v for k, v in plain.items() if ".layers.0." in k})
quantized.write_safetensors(sys.argv[2] + "/packed/model.safetensors", one)
P
"$TFMC" plan "$tmp/awq/packed" >"$tmp/plan"
grep -q '^layers.1_2.mlp.ffn.down.weight  *q4g_32 ' "$tmp/plan" || say "layers beside one that was not converted lost their codes"
for kind in packed plain; do
	"$TFMC" run "$tmp/awq/$kind" --inputs "$tmp/llama/inputs.safetensors" --outputs "$tmp/$kind.out" -mcpu=native "${quick[@]}" --dtype=compute=f32
done
python3 "$support/near.py" "$tmp/packed.out" "$tmp/plain.out" 2e-5
