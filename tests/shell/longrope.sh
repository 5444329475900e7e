#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two lists of longrope: the length of each call chooses. A text that grows past the original length of Phi 3 is read again, alone,
# among others and by a beam of one, so that it goes on as from a prompt of that length; Llama keeps its cached keys. Both say so
# once. A score that takes several calls has the frequencies of one.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
families=$TFMC_SOURCE/tests/golden/families
# folder NAME: the family NAME for 160 positions, 70 of them the original ones
folder() {
	mkdir "$tmp/$1"
	PYTHONPATH=$families python3 -B - "$families/$1" "$tmp/$1" "$1" <<-'END'
		import json, sys
		import seeded
		given, out, name = sys.argv[1:]
		config = json.load(open(given + "/config.json"))
		config["max_position_embeddings"] = 160
		for where in (config, config["rope_parameters"]):
		    if "original_max_position_embeddings" in where:
		        where["original_max_position_embeddings"] = 70
		json.dump(config, open(out + "/config.json", "w"))
		seeded.write(name, seeded.read_list(given + "/tensors.txt"), out + "/model.safetensors")
	END
}
run() { "$TFMC" "$1" "$tmp/$2" -O0 --passes=O2 "${@:3}"; }
ids=$(seq 4 3 180 | paste -sd,) # 59
folder phi3_long
run generate phi3_long --tokens "$ids" --max-tokens 30 --ignore-stop --print-tokens >"$tmp/one" 2>"$tmp/said"
grep -c 'grew past 70 tokens.*read again' "$tmp/said" | grep -qx 1
read -ra new <"$tmp/one"
[ ${#new[@]} -eq 30 ]
start=$(IFS=,; echo "${new[*]:0:20}")
run generate phi3_long --tokens "$ids,$start" --max-tokens 10 --ignore-stop --print-tokens >"$tmp/rest" 2>"$tmp/said"
if grep "grew past" "$tmp/said"; then exit 1; fi
[ "$(cat "$tmp/rest")" = "${new[*]:20}" ]
printf '%s\n' "$ids" 5,6 "$ids" >"$tmp/lines"
run generate phi3_long --tokens-file "$tmp/lines" --max-tokens 30 --ignore-stop --print-tokens >"$tmp/three" 2>"$tmp/said"
sed -n '1p;3p' "$tmp/three" | cmp - <(cat "$tmp/one" "$tmp/one")
grep -c 'grew past' "$tmp/said" | grep -qx 1
# Beams are read again, too.
run generate phi3_long --tokens "$ids" --max-tokens 30 --beam 2 --n-best 1 --print-tokens >"$tmp/beam" 2>"$tmp/said"
grep -q 'read again' "$tmp/said"

folder llama_long
run generate llama_long --tokens "$ids" --max-tokens 30 --ignore-stop --print-tokens >"$tmp/one" 2>"$tmp/said"
grep -c 'grew past 70 tokens.*keep the rotation' "$tmp/said" | grep -qx 1

long=$(seq 4 183 | head -150 | paste -sd,)
run score phi3_long --tokens "$long" >"$tmp/scores"
run run phi3_long --input "input_ids=1,$long" --outputs "$tmp/out.safetensors" >"$tmp/log"
python3 -B - "$tmp/out.safetensors" "$tmp/scores" "1,$long" <<'END'
import json, math, re, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
t = json.loads(data[8:8 + n])["logits"]
ids = [int(i) for i in sys.argv[3].split(",")]
vocab = t["shape"][-1]
rows = struct.unpack_from(f"<{len(ids) * vocab}f", data, 8 + n + t["data_offsets"][0])
want = 0.0
for i, next_id in enumerate(ids[1:]): # after the start id
    row = rows[i * vocab:(i + 1) * vocab]
    want += row[next_id] - max(row) - math.log(sum(math.exp(v - max(row)) for v in row))
got = float(re.search(r"log p (-[0-9.]+)", open(sys.argv[2]).read())[1])
print("log p in calls of 64 rows", got, "in one call", want)
sys.exit(not abs(got - want) < 1e-3)
END
