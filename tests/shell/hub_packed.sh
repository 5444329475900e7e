#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Hub folders whose matrices are packed into 4 or 8 bits (GPTQ, AWQ, compressed-tensors, MXFP4) are the same models as folders
# with the numbers that they stand for; parts that do not fit together, and methods that are not read, are refused.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support
say() { echo "$1" >&2; exit 1; }

python3 "$support/make_llama.py" "$tmp/llama" llama hidden_size=64 intermediate_size=128 num_attention_heads=4 num_key_value_heads=2 head_dim=16 num_hidden_layers=1
python3 "$support/make_llama.py" "$tmp/oss" gpt_oss hidden_size=64 intermediate_size=96 num_attention_heads=4 num_key_value_heads=2 head_dim=16 num_hidden_layers=1 num_local_experts=4 num_experts_per_tok=2 'rope_scaling={"rope_type":"yarn","factor":4.0,"truncate":false}'
run() { # FOLDER
	"$TFMC" run "${quick[@]}" "$1" --inputs "$tmp/llama/inputs.safetensors" --outputs "$1/out.safetensors" -mcpu=native --dtype=compute=f32
}
same() { # NAME KIND OPTION..: 4 bits add what a block multiplies and what it adds one by one
	local at=$tmp/$1
	shift
	python3 -B "$support/to_packed.py" "$tmp/$from" "$at" "$@"
	run "$at/packed"
	run "$at/plain"
	found=$(python3 "$support/near.py" "$at/packed/out.safetensors" "$at/plain/out.safetensors" 2e-5) || say "$(basename "$at"): $found"
	echo "$(basename "$at"): $found"
}
from=oss
same mxfp4 mxfp4
from=llama
same gptq gptq
same gptq_v2 gptq_v2 --group 64
same gptq_small gptq --group 16
same gptq_order gptq --shuffle
same gptq_bytes gptq --bits 8 --symmetric
same gptq_bytes_zero gptq_v2 --bits 8
same awq awq
same awq_symmetric awq --symmetric --group 64 --scales BF16
same words words --symmetric --scales BF16
same words_float words --symmetric --scales F32 --bits 8
same bytes bytes --symmetric --bits 8 --group -1 --scales F32
same bytes_groups bytes --symmetric --bits 8

for kept in gptq=q4g_32 awq_symmetric=q4g_64 gptq_bytes=q8 bytes=q8_row bytes_groups=q8; do
	"$TFMC" inspect "$tmp/${kept%=*}/packed" | grep -c "layers.0.mlp.ffn.down.weight: .* stored ${kept#*=}$" >/dev/null || say "$kept: not kept"
done
n=$("$TFMC" inspect "$tmp/mxfp4/packed" | grep -c "layers.0.mlp.moe.experts.all.\(gate\|up\|down\).weight: .* stored mxfp4$" || true)
[ "$n" = 3 ] || say "experts are not kept as blocks"

# The first version of GPTQ stores zero points less one: read as the other one, the model is another.
sed 's/"checkpoint_format": "gptq"/"checkpoint_format": "gptq_v2"/' "$tmp/gptq/packed/config.json" >"$tmp/config"
mkdir "$tmp/other"
cp "$tmp/config" "$tmp/other/config.json"
cp "$tmp/gptq/packed/model.safetensors" "$tmp/other/"
run "$tmp/other"
python3 "$support/near.py" "$tmp/other/out.safetensors" "$tmp/gptq/plain/out.safetensors" 1e-3 >/dev/null 2>&1 && say "zero points of both versions are the same"

# refuse KIND PYTHON MESSAGE: the folder with tensors T (name: (type, shape, bytes)) and configuration Q changed
refuse() {
	rm -rf "$tmp/wrong"
	mkdir "$tmp/wrong"
	python3 -B - "$support" "$tmp/$1/packed" "$tmp/wrong" "$2" <<'P'
import json, struct, sys
sys.path.insert(0, sys.argv[1])
from make_llama import write
with open(sys.argv[2] + "/model.safetensors", "rb") as f:
    data = f.read()
n = struct.unpack_from("<Q", data)[0]
T = {name: (e["dtype"], e["shape"], data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]]) for name, e in json.loads(data[8:8 + n]).items()}
with open(sys.argv[2] + "/config.json") as f:
    config = json.load(f)
Q, X, E = config["quantization_config"], "model.layers.0.mlp.up_proj.", "model.layers.0.mlp.experts.down_proj_"
exec(sys.argv[4])
write(sys.argv[3] + "/model.safetensors", T)
with open(sys.argv[3] + "/config.json", "w") as f:
    json.dump(config, f, indent=1)
P
	local rc=0
	"$TFMC" "$tmp/wrong" -o "$tmp/wrong.o" 2>"$tmp/err" || rc=$?
	[ "$rc" = 1 ] && [ ! -e "$tmp/wrong.o" ] || { cat "$tmp/err" >&2; say "$2: exit code $rc"; }
	grep -c "$3" "$tmp/err" >/dev/null || { cat "$tmp/err" >&2; say "$2 is not refused with: $3"; }
}
refuse gptq 'del T[X + "qzeros"]' "'model.layers.0.mlp.up_proj.qweight' of 'model.safetensors' has no 'model.layers.0.mlp.up_proj.qzeros'"
refuse gptq 'T[X + "qzeros"] = ("I32", [1, 16], bytes(64))' "up_proj.qzeros' I32 \[1, 16\]: zero points of scales \[2, 128\]"
refuse gptq 'T[X + "qzeros"] = ("I32", [2, 10], bytes(80))' "zero points of 128 rows are not of 4 or 8 bits"
refuse gptq 'T[X + "qweight"] = ("I32", [8], bytes(32))' "up_proj.qweight' I32 \[8\]: it must be I32 with 2 axes"
refuse gptq 'T[X + "qweight"] = ("I32", [0, 128], b"")' "it must be I32 with 2 axes that are not empty"
refuse gptq 'T[X + "scales"] = ("I16", [2, 128], bytes(512))' "scales are F16, BF16 or F32"
refuse gptq 'T[X + "scales"] = ("F16", [2, 64], bytes(256))' "scales of 128 rows are \[groups, 128\]"
refuse gptq 'T[X + "scales"] = ("F16", [3, 128], bytes(768)); T[X + "qzeros"] = ("I32", [3, 16], bytes(192))' "64 columns are not whole groups"
refuse gptq 'T[X + "g_idx"] = ("I32", [63], bytes(252))' "the groups of columns are I32 \[64\]"
refuse gptq 'T[X + "g_idx"] = ("I32", [64], struct.pack("<64i", *[2] * 64))' "a column is in a group that has no scales"
refuse gptq 'T[X + "g_idx"] = ("I32", [64], struct.pack("<64i", *[-1] * 64))' "a column is in a group that has no scales"
refuse gptq 'T[X + "weight"] = ("F32", [1], bytes(4))' "up_proj.weight' is in"
refuse gptq 'T[X + "qweight"] = ("I32", [16, 128], bytes(8192)); del T[X + "g_idx"]' "up_proj.weight' of 'model.safetensors' is \[128, 128\]"
refuse gptq 'Q["bits"] = 3' "config.json:.*'quantization_config.bits' is 3 in config.json"
refuse gptq 'Q["dynamic"] = {"a": {"bits": 8}}' "quantization_config.dynamic.a.bits' is 8 in config.json; it may change what the weights mean"
refuse gptq 'Q["quant_method"] = "bitsandbytes"' "config.json:.*not supported yet: quantized weights ('bitsandbytes')"
refuse awq 'Q["version"] = "gemv"' "'quantization_config.version' is gemv"
refuse words 'T[X + "weight_shape"] = ("I64", [2], struct.pack("<2q", 128, 1 << 62))' "not the numbers of 4 or 8 bits of the stored shape"
refuse words 'T[X + "weight_shape"] = ("I64", [1], bytes(8))' "it must be the two sizes of a matrix"
refuse mxfp4 'del T[E + "scales"]' "down_proj_blocks' of 'model.safetensors' has no 'model.layers.0.mlp.experts.down_proj_scales'"
refuse mxfp4 'T[E + "scales"] = ("U8", [4, 64, 2], bytes(512))' "down_proj_scales' U8 \[4, 64, 2\]: blocks \[4, 64, 3, 16\] are not 16 bytes for each scale"
refuse mxfp4 'T[E + "blocks"] = ("U8", [4, 64, 3, 8], bytes(6144))' "are not 16 bytes for each scale"
refuse mxfp4 'T[E + "blocks"] = ("U8", [4, 64, 48], bytes(12288))' "it must be U8 with 4 axes that are not empty"
refuse mxfp4 'Q["dequantize"] = True' "quantization_config.dequantize' is true"
refuse bytes 'T[X + "weight_scale"] = ("F32", [7], bytes(28))' "scales of 128 rows are"
refuse bytes 'Q["config_groups"]["group_0"]["weights"]["symmetric"] = False' "group_0.weights.symmetric' is false"
echo "parts and keys that do not fit are refused"
