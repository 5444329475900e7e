#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Weights as NumPy arrays in both orders of axes and of bytes, as f32 and f64, compressed and not, give the bits of the safetensors file
# they were made from. A hub folder of symbolic links with shards works as one without; wrong indices are refused.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support
python3 "$support/make_llama.py" "$tmp/m" llama
cd "$tmp/m"
"$TFMC" run . --inputs inputs.safetensors --outputs a.safetensors -mcpu=native "${quick[@]}"

printf 'tfmc: 1\nname: m\nhf: config.json\nweights: {files: [w.npz]}\n' >npz.yaml
for method in store deflate; do
	python3 -B "$support/to_npz.py" model.safetensors w.npz $method
	"$TFMC" run npz.yaml --inputs inputs.safetensors --outputs b.safetensors -mcpu=native "${quick[@]}"
	cmp a.safetensors b.safetensors
done

# Shards beneath a hub cache: files are links to blobs with other names, so the index names what the folder shows.
python3 - <<'P'
import json, os, struct
data = open("model.safetensors", "rb").read()
n = struct.unpack_from("<Q", data)[0]
header = json.loads(data[8:8 + n])
os.makedirs("../cache/blobs"); os.makedirs("../cache/snapshots/1")
index = {"metadata": {}, "weight_map": {}}
for part in range(3):
    out, body = {}, b""
    shard = f"model-{part + 1:05d}-of-00003.safetensors"
    for name in sorted(header)[part::3]:
        begin, end = (8 + n + at for at in header[name]["data_offsets"])
        out[name] = dict(header[name], data_offsets=[len(body), len(body) + end - begin])
        body += data[begin:end]
        index["weight_map"][name] = shard
    text = json.dumps(out).encode()
    open(f"../cache/blobs/{part}", "wb").write(struct.pack("<Q", len(text)) + text + body)
    os.symlink(f"../../blobs/{part}", f"../cache/snapshots/1/{shard}")
for name, content in (("config.json", open("config.json").read()),
                      ("model.safetensors.index.json", json.dumps(index))):
    open(f"../cache/blobs/{name[0]}", "w").write(content)
    os.symlink(f"../../blobs/{name[0]}", f"../cache/snapshots/1/{name}")
P
cd "$tmp/cache/snapshots/1"
"$TFMC" run . --inputs "$tmp/m/inputs.safetensors" --outputs "$tmp/c.safetensors" -mcpu=native "${quick[@]}"
cmp "$tmp/m/a.safetensors" "$tmp/c.safetensors"

# refuse WHAT MESSAGE: the folder as it is now does not compile and says so
refuse() {
	if "$TFMC" . -o "$tmp/x.o" 2>"$tmp/err"; then echo "$1 is taken" >&2; exit 1; fi
	grep -c "$2" "$tmp/err" >/dev/null || { echo "$1: no '$2' in" >&2; cat "$tmp/err" >&2; exit 1; }
}
shard=model-00002-of-00003.safetensors
cp --remove-destination model.safetensors.index.json "$tmp/index"
edit() { rm model.safetensors.index.json; sed "$1" "$tmp/index" >model.safetensors.index.json; }
mv $shard "$tmp/hidden"
refuse "a missing shard" "$shard.*no such file"
ln -s "$tmp/nowhere" $shard
refuse "a dangling link" "$shard.*no such file"
rm $shard
cp model-00001-of-00003.safetensors $shard
refuse "a tensor in two shards" "is in .*00001.* and in .*00002"
rm $shard
mv "$tmp/hidden" $shard
edit 's/"model.norm.weight": "model-0000.-/"model.norm.weight": "model-0000X-/'
refuse "a shard that is nowhere" "0000X-of-00003.safetensors"
edit 's/"model.norm.weight"/"model.nurm.weight"/'
refuse "a tensor that no shard has" "places the tensor 'model.nurm.weight'"
edit 's/"model.norm.weight": "model-/"model.norm.weight": "..\/model-/'
refuse "a shard outside" "which is not a file name"
edit 's/"weight_map"/"weight_mop"/'
refuse "no map" "'weight_map' is missing"
edit 's/^{/[/'
refuse "no JSON" "index.json"
echo "arrays, shards and links give the same bits"
