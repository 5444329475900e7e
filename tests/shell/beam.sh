#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The trained transliteration model beside the checkout: the four best results of the beam search for every word,
# strings and scores, as its expected outputs (another implementation of the same search) have them.
set -euo pipefail
model=$TFMC_SHARED/models/aren-transliteration
[ -d "$model" ] || { echo "SKIPPED: $model is absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
read_cases() { # prints what the first argument says: words, or the results of each
	python3 - "$model" "$1" <<-'PY'
		import json, struct, sys
		with open(sys.argv[1] + "/cases.safetensors", "rb") as f:
		    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
		    data = f.read()
		for case in json.load(open(sys.argv[1] + "/cases.json"))["cases"]:
		    if "beam4" not in case:
		        continue
		    if sys.argv[2] == "words":
		        print(case["word"])
		        continue
		    begin, end = header[case["outputs"]["beam4_scores"]]["data_offsets"]
		    scores = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
		    for score, result in zip(scores, case["beam4"]):
		        print(f"{score}\t{result[0]}")
	PY
}
read_cases words >"$tmp/words"
read_cases results >"$tmp/want"
"$TFMC" generate "$model/model.yaml" --prompt-file "$tmp/words" --beam 4 --n-best 4 --threads 2 >"$tmp/have"
cut -f2 "$tmp/want" >"$tmp/want.text"
cut -f2 "$tmp/have" | diff - "$tmp/want.text"
paste "$tmp/have" "$tmp/want" | awk -F '\t' '
	{ d = $1 - $3; d = d < 0 ? -d : d; if (d > worst) worst = d }
	END { print NR " results, scores differ by at most " worst; exit !(NR > 0 && worst < 1e-5) }'
