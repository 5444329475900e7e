#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc attend of pictures and sounds: inputs from a file. The arrays are what `tfmc run --probe` gives for the same inputs, rows
# sum to 1; a file that does not fit is refused, and nothing is written.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
models=$TFMC_SHARED/models/variants
[ -d "$models" ] || { echo "SKIPPED: $models is absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/check.py" <<'PY'
import ast, glob, json, os, struct, sys


def tensors(path):
    raw = open(path, "rb").read()
    n, = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    return {k: (v["shape"], struct.unpack(f"<{(v['data_offsets'][1] - v['data_offsets'][0]) // 4}f", raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]))
            for k, v in head.items() if k != "__metadata__" and v["dtype"] == "F32"}


def array(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<H", data[8:10])
    body = data[10 + n:]
    return ast.literal_eval(data[10:10 + n].decode())["shape"], struct.unpack(f"<{len(body) // 4}f", body)


probed = {k: v for k, v in tensors(sys.argv[1]).items() if k.endswith(".weights")}
shown = {os.path.basename(f)[:-4]: array(f) for f in glob.glob(sys.argv[2] + "/*.npy")}
assert len(shown) == len(probed) == int(sys.argv[3]), (shown.keys(), probed.keys())
left = list(probed.values())
for name, (shape, values) in shown.items():
    for at in range(0, len(values), shape[2]):
        assert abs(sum(values[at:at + shape[2]]) - 1) < 1e-5, (name, at)
    match = [p for p in left if tuple(p[0][1:]) == tuple(shape) and max(abs(x - y) for x, y in zip(p[1], values)) < 1e-5]
    assert len(match) == 1, (name, shape)
    left.remove(match[0])
page = open(sys.argv[4], encoding="utf-8").read()
data = json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])
assert [s["name"] for s in data["sequences"]] == sys.argv[5].split(), data["sequences"]
assert sorted({m["stack"] for m in data["maps"]}) == sys.argv[6].split(), {m["stack"] for m in data["maps"]}
print(len(shown), "attentions are those of run")
PY
# attend MODEL PREFIX COUNT SEQUENCES STACKS ARGUMENTS..
attend() {
	rm -rf "$tmp/arrays"
	"$TFMC" run "$models/$1/model.yaml" "${quick[@]}" --inputs "$models/$1/cases.safetensors" --prefix "$2" --probe '*.weights' --outputs "$tmp/probed.safetensors" 2>/dev/null
	"$TFMC" attend "${quick[@]:0:1}" "$models/$1/model.yaml" "${@:6}" --html="$tmp/page.html" --npy="$tmp/arrays" 2>/dev/null
	PYTHONDONTWRITEBYTECODE=1 python3 "$tmp/check.py" "$tmp/probed.safetensors" "$tmp/arrays" "$3" "$tmp/page.html" "$4" "$5"
}
# array NAME MODEL TENSOR: a tensor of the cases as a NumPy array
array() {
	python3 - "$tmp/$1.npy" "$models/$2/cases.safetensors" "$3" <<'PY'
import json, struct, sys
raw = open(sys.argv[2], "rb").read()
n, = struct.unpack("<Q", raw[:8])
t = json.loads(raw[8:8 + n])[sys.argv[3]]
text = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }" % ", ".join(map(str, t["shape"]))
text += " " * (-(len(text) + 11) % 64) + "\n"
open(sys.argv[1], "wb").write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text.encode() + raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
PY
}
layers=$(sed -n 's/.*"num_hidden_layers": *\([0-9]*\).*/\1/p' "$models/vit/config.json")
attend vit one. "$layers" "" attention --inputs "$models/vit/cases.safetensors" --prefix one.
array pixel_values vit one.pixel_values
attend vit one. "$layers" "" attention --inputs "$tmp/pixel_values.npy"
sounds=$(python3 -c 'import json, sys; c = json.load(open(sys.argv[1])); print(c["encoder_layers"] + 2 * c["decoder_layers"])' "$models/whisper/config.json")
attend whisper len7. "$sounds" target "cross decoder encoder" --inputs "$models/whisper/cases.safetensors" --prefix len7.

# refused CODE TEXT ARGUMENTS..
refused() {
	rm -rf "$tmp/arrays"
	local code=0
	"$TFMC" attend "${quick[@]:0:1}" "${@:3}" --npy="$tmp/arrays" >/dev/null 2>"$tmp/err" || code=$?
	[ "$code" -eq "$1" ] && grep -ac -- "$2" "$tmp/err" >/dev/null && [ ! -e "$tmp/arrays" ] || { echo "exit code $code, wanted $1 and '$2':" >&2; cat "$tmp/err" >&2; exit 1; }
}
refused 2 "or --inputs" "$models/vit/model.yaml"
refused 1 "attend takes one sequence; 'pixel_values' has 3" "$models/vit/model.yaml" --inputs "$models/vit/cases.safetensors" --prefix batch3.
refused 1 "has no default; --inputs gives it" "$models/vit/model.yaml" --inputs "$models/whisper/cases.safetensors" --prefix len7.
array input_features whisper len7.input_features
refused 1 "requires --target-text or --target-tokens, too" "$models/whisper/model.yaml" --inputs "$tmp/input_features.npy"
"$TFMC" attend "${quick[@]:0:1}" "$models/whisper/model.yaml" --inputs "$tmp/input_features.npy" --target-tokens 1,2,3 --npy="$tmp/arrays"
[ "$(find "$tmp/arrays" -name '*.npy' | wc -l)" -eq "$sounds" ]
mv "$tmp/input_features.npy" "$tmp/pixel_values.npy"
refused 1 "input 'pixel_values' has 4 axes, not 3" "$models/vit/model.yaml" --inputs "$tmp/pixel_values.npy"
printf x >"$tmp/none.npy"
refused 1 "none.npy" "$models/vit/model.yaml" --inputs "$tmp/none.npy"
