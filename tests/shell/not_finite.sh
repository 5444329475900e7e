#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A weight that is not finite: compiling names its tensor and place once (not of masks), run says which outputs are not finite, verify fails. A
# norm's weight that is stored as ints is refused; more steps than the context has room for, and probes that fit nothing, are said.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$TFMC" new "$tmp/m" -q
cp "$tmp/m/model.safetensors" "$tmp/whole"
# damage VALUE: element 100 of a matrix, of 32 columns
damage() {
	python3 - "$tmp/whole" "$tmp/m/model.safetensors" "$1" <<-'END'
		import json, struct, sys
		data = bytearray(open(sys.argv[1], "rb").read())
		n = struct.unpack("<Q", data[:8])[0]
		t = json.loads(data[8:8 + n])["layers.0.self.attention.q.weight"]
		struct.pack_into("<f", data, 8 + n + t["data_offsets"][0] + 400, float(sys.argv[3]))
		open(sys.argv[2], "wb").write(data)
		print(100 // t["shape"][1], 100 % t["shape"][1], sep=",")
	END
}
quick=(-O0 --passes=O2)
"$TFMC" "$tmp/m/model.yaml" -o "$tmp/m.o" "${quick[@]}" 2>"$tmp/said"
if grep finite "$tmp/said"; then exit 1; fi
while read -r value word; do
	at=$(damage "$value")
	"$TFMC" "$tmp/m/model.yaml" -o "$tmp/m.o" "${quick[@]}" 2>"$tmp/said"
	grep -c "the tensor 'layers.0.self.attention.q.weight' of 'model.safetensors' has $word at \[$at\]" "$tmp/said" | grep -qx 1
	"$TFMC" run "$tmp/m/model.yaml" "${quick[@]}" --input ids=4,5,6,7 --outputs "$tmp/out" --no-cache 2>"$tmp/said"
	grep -q 'the output logits is not finite in [0-9]* of [0-9]* elements, the first NaN at \[0,[0-9],0\]' "$tmp/said"
	status=0
	"$TFMC" verify "$tmp/m/model.yaml" "${quick[@]}" >"$tmp/log" 2>&1 || status=$?
	[ $status -eq 4 ]
	grep -q 'run logits is not finite in' "$tmp/log"
done <<'END'
nan NaN
inf infinity
-inf -infinity
END

# -infinity in the bias of attention hides keys, unless something else reads it; NaN is none.
cat >"$tmp/mask.yaml" <<'END'
tfmc: 1
name: mask
inputs: {q: "f32[1, 2, 4, 8]"}
graph:
  - near = param("near", [1, 1, 4, 4])
  - x = sdpa(q, q, q, bias=near)
outputs: {x: x}
weights: {files: [mask.safetensors]}
END
sed 's/- x = .*/&\n  - n = near + 1.0/; s/{x: x}/{x: x, n: n}/' "$tmp/mask.yaml" >"$tmp/read.yaml"
# A number beyond f32 hides a key if it is negative, else it is a fault.
for case in 'mask -inf 0 F32' 'mask nan 1 F32' 'read -inf 1 F32' 'mask -inf 0 F64' 'mask -1e300 0 F64' 'mask 1e300 1 F64'; do
	read -r name value count dtype <<<"$case"
	python3 - "$tmp/mask.safetensors" "$value" "$dtype" <<'END'
import json, struct, sys
size, code = {"F32": (4, "f"), "F64": (8, "d")}[sys.argv[3]]
head = json.dumps({"near": {"dtype": sys.argv[3], "shape": [1, 1, 4, 4], "data_offsets": [0, 16 * size]}}).encode()
rows = [0.0 if abs(i // 4 - i % 4) < 2 else float("-inf") for i in range(16)]
rows[3] = float(sys.argv[2])
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + struct.pack(f"<16{code}", *rows))
END
	"$TFMC" "$tmp/$name.yaml" -o "$tmp/m.o" "${quick[@]}" 2>"$tmp/said"
	[ "$(grep -c "the weight 'near' is not finite" "$tmp/said")" = "$count" ]
done

# The same bytes, called ints.
python3 - "$tmp/whole" "$tmp/m/model.safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
name = next(k for k in head if k.endswith("norm.weight"))
head[name]["dtype"] = "I32"
text = json.dumps(head).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
END
status=0
"$TFMC" "$tmp/m/model.yaml" -o "$tmp/m.o" "${quick[@]}" 2>"$tmp/said" || status=$?
[ $status -eq 1 ]
grep -q "error: the parameter '.*norm.weight' wants floats, the tensor '.*norm.weight' of 'model.safetensors' holds i32" "$tmp/said"
cp "$tmp/whole" "$tmp/m/model.safetensors"

"$TFMC" generate "$tmp/m/model.yaml" "${quick[@]}" --tokens 4,5 --max-tokens 100000 --print-tokens >"$tmp/log" 2>"$tmp/said"
grep -c 'warning: --max-tokens 100000: a sequence has at most' "$tmp/said" | grep -qx 1
"$TFMC" generate "$tmp/m/model.yaml" "${quick[@]}" --tokens 4,5 --max-tokens 3 --print-tokens >"$tmp/log" 2>"$tmp/said"
if grep -q 'warning' "$tmp/said"; then exit 1; fi
status=0
"$TFMC" inspect "$tmp/m/model.yaml" --probe tokens --probe 'none*' >"$tmp/log" 2>"$tmp/said" || status=$?
[ $status -eq 1 ] && grep -q "no value of the model matches 'none\*'" "$tmp/said"
