#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A weight that is not finite: compiling names its tensor and place once, run says which outputs are not finite, verify fails.
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
