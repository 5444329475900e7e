#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Quantized tensors of GGUF files have exactly the elements that an independent decoder finds in random blocks of every
# type, where the object has f32. Where it keeps their codes, a product is that of these elements, also where what it
# multiplies is rounded.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support
python3 -B "$support/quantized.py" --compare
python3 -B "$support/quantized.py" "$tmp/w.gguf" "$tmp/expected.safetensors" 7 512

python3 -B - "$support" "$tmp" <<'P'
import os, struct, sys
sys.path.insert(0, sys.argv[1])
import quantized
tmp = sys.argv[2]
quantized.write_safetensors(tmp + "/rows.safetensors", {"ids": ("I32", [1, 7], struct.pack("<7i", *range(7)))})
one = [float(i == k) for i in range(512) for k in range(512)]
quantized.write_safetensors(tmp + "/columns.safetensors", {"v": ("F32", [512, 512], struct.pack(f"<{512 * 512}f", *one))})
dtypes = {"rows": "{weights: f32}", "columns": "{weights: keep}", "integers": "{compute: int8}"}
for name in quantized.TYPES:
    for kind, what in (("rows", "dims: {B: 1..1, S: 1..8}\ninputs: {ids: {shape: [B, S], dtype: i32}}\nmodel: [embed: {id: w, vocab: 7, dim: 512}]"),
                       ("integers", "dims: {B: 1..512}\ninputs: {v: {shape: [B, 512], dtype: f32}}\nmodel: [{x: v}, linear: {id: w, out: 7, bias: false}]"),
                       ("columns", "dims: {B: 1..512}\ninputs: {v: {shape: [B, 512], dtype: f32}}\nmodel: [{x: v}, linear: {id: w, out: 7, bias: false}]")):
        with open(f"{tmp}/{name}.{kind}.yaml", "w") as f:
            f.write(f"tfmc: 1\nname: blocks\n{what}\noutputs: {{y: x}}\ndtype: {dtypes[kind]}\nweights: {{files: [w.gguf], ignore: ['*'], map: {{w.weight: {name}}}}}\n")
P
cp "$tmp/columns.safetensors" "$tmp/integers.safetensors"
"$TFMC" "$tmp/Q4_K.integers.yaml" --emit=tir >"$tmp/integers.tir"
grep -q "pre .* quantize_rows %v : f32\[B,512\]" "$tmp/integers.tir"
for model in "$tmp"/*.yaml; do
	inputs=${model%.yaml}
	"$TFMC" run "$model" --inputs "$tmp/${inputs##*.}.safetensors" --outputs "${model%.yaml}.out" -mcpu=native
done
python3 -B - "$support" "$tmp" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
import quantized, to_gguf
tmp = sys.argv[2]
expected = to_gguf.read_safetensors(tmp + "/expected.safetensors")
for name, (_, want) in expected.items():
    rows = to_gguf.read_safetensors(f"{tmp}/{name}.rows.out")["y"][1]
    columns, integers = (to_gguf.transpose(to_gguf.read_safetensors(f"{tmp}/{name}.{kind}.out")["y"])[1] for kind in ("columns", "integers"))
    assert len(set(want)) > 10 and rows == want, f"{name}: rows of a table differ"
    # A product adds what a block multiplies and what it adds, which may be rounded one by one.
    far = max(map(abs, want))
    worst = max(abs(a - b) for a, b in zip(columns + integers, want + want))
    assert worst <= far * 2 ** -22, f"{name}: columns of a matrix differ by {worst}, the largest is {far}"
print(f"{len(expected)} types")
P
[ "$("$TFMC" inspect "$tmp/Q4_K.columns.yaml" | grep -c 'w.weight: f32\[7,512\], stored q4_k')" = 1 ]
[ "$("$TFMC" inspect "$tmp/Q4_K.rows.yaml" | grep -c 'w.weight: f32\[7,512\]$')" = 1 ]
