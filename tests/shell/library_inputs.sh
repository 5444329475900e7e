#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Inputs by the names of the library: a mask of padding behind the tokens is the same as lengths, a mask of ones and counted
# positions say nothing, anything else that would change the result is refused by name.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
families=$TFMC_SOURCE/tests/golden/families
cp -r "$families/llama_classes" "$tmp/m"
PYTHONPATH=$families python3 -B - "$tmp" <<'END'
import json, struct, sys
import seeded
tmp = sys.argv[1]
seeded.write("llama_classes", seeded.read_list(tmp + "/m/tensors.txt"), tmp + "/m/model.safetensors")
IDS = {"input_ids": [[4, 5, 6, 7, 8, 9], [20, 21, 22, 4, 4, 4]]}
ONES = [[1] * 6] * 2
CASES = {"lengths": {"lengths": [[6, 3]]}, "mask": {"attention_mask": [[1] * 6, [1, 1, 1, 0, 0, 0]]}, "plain": {},
         "ones": {"attention_mask": ONES, "position_ids": [list(range(6))] * 2, "token_type_ids": [[0] * 6] * 2},
         "left": {"attention_mask": [[0, 1, 1, 1, 1, 1], [1] * 6]}, "hole": {"attention_mask": [[1, 0, 1, 1, 1, 1], [1] * 6]},
         "other": {"attention_mask": [[1] * 6, [1, 1, 1, 0, 0, 0]], "lengths": [[6, 4]]}, "shape": {"attention_mask": [[1, 1, 0]] * 2},
         "moved": {"position_ids": [list(range(1, 7))] * 2}, "types": {"token_type_ids": [[0] * 5 + [1]] * 2}}
for case, more in CASES.items():
    head, data = {}, b""
    for name, rows in {**IDS, **more}.items():
        part = struct.pack(f"<{len(rows) * len(rows[0])}i", *(x for row in rows for x in row))
        shape = [len(rows[0])] if name == "lengths" else [len(rows), len(rows[0])]
        head[name] = {"dtype": "I32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(head).encode()
    open(f"{tmp}/{case}.in", "wb").write(struct.pack("<Q", len(text)) + text + data)
END
run() { "$TFMC" run "$tmp/m" -O0 --passes=O2 --inputs "$tmp/$1.in" --outputs "$tmp/$1.out"; }
for case in lengths mask plain ones; do run $case 2>"$tmp/said" && ! grep -q warning "$tmp/said"; done
cmp "$tmp/lengths.out" "$tmp/mask.out"
cmp "$tmp/plain.out" "$tmp/ones.out"
if cmp -s "$tmp/lengths.out" "$tmp/plain.out"; then exit 1; fi
while read -r case says; do
	status=0
	run "$case" 2>"$tmp/said" || status=$?
	[ $status -eq 1 ] && grep -q "error: the input $says" "$tmp/said"
done <<'END'
left attention_mask has tokens after padding in row 0
hole attention_mask has tokens after padding in row 0
other attention_mask contradicts lengths
shape attention_mask has not the shape of input_ids
moved position_ids changes what is computed
types token_type_ids changes what is computed
END
# the same as numbers on the command line
ids='4,5,6,7,8,9;20,21,22,4,4,4'
"$TFMC" run "$tmp/m" -O0 --passes=O2 --input "input_ids=$ids" --input 'attention_mask=1,1,1,1,1,1;1,1,1,0,0,0' --outputs "$tmp/typed.out"
cmp "$tmp/lengths.out" "$tmp/typed.out"
status=0
"$TFMC" run "$tmp/m" -O0 --passes=O2 --input "input_ids=$ids" --input 'attention_mask=0,1,1,1,1,1;1,1,1,0,0,0' 2>"$tmp/said" || status=$?
[ $status -eq 1 ] && grep -q 'error: the input attention_mask has tokens after padding in row 0' "$tmp/said"
