#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc calibrate: the profile is what Python computes from the values of `tfmc run --probe`, of texts and their parts, and of
# pairs; the same bytes for any number of workers. Experts have a row each, of models whose layers are of several kinds, too.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export PYTHONDONTWRITEBYTECODE=1
examples=$TFMC_SOURCE/examples

cat >"$tmp/check.py" <<'P'
"""check.py PROFILE MODEL PATHS CALL ..: PATHS pairs "parameter=value" of what a matrix reads; each CALL inputs of `run`"""
import math, os, subprocess, sys
sys.path.insert(0, os.environ["TFMC_SOURCE"] + "/tests/support")
import near

profile, model, paths, *calls = sys.argv[1:]
pairs = [p.split("=") for p in paths.split()]
sums, count = {}, {}
for call in calls:
    subprocess.run([os.environ["TFMC"], "run", model, "--outputs", profile + ".values",
                    *(w for i in call.split() for w in ("--input", i)),
                    *(w for _, v in pairs for w in ("--probe", v))], check=True)
    values = near.read(profile + ".values")
    for parameter, value in pairs:
        shape, flat = values[value]
        if len(shape) == 4:  # [1, H, S, E]: heads are adjacent
            _, heads, size, width = shape
            rows = [[flat[(h * size + s) * width + e] for h in range(heads) for e in range(width)] for s in range(size)]
        else:
            rows = [flat[i:i + shape[-1]] for i in range(0, len(flat), shape[-1])]
        sums.setdefault(parameter, [[] for _ in rows[0]])
        for row in rows:
            for k, x in enumerate(row):
                sums[parameter][k].append(x)
        count[parameter] = count.get(parameter, 0) + len(rows)
got, worst = near.read(profile), 0.0
for parameter, columns in sums.items():
    shape, means = got[parameter + ".inputs"]
    assert shape == [2, len(columns)], (parameter, shape)
    for k, column in enumerate(columns):
        square, mean = math.fsum(x * x for x in column) / count[parameter], math.fsum(column) / count[parameter]
        worst = max(worst, abs(means[k] - square) / (square + 1e-6),
                    abs(means[len(columns) + k] - mean) / (square ** 0.5 + 1e-6))
print(f"{len(sums)} of {len(got)} tensors checked, largest relative difference {worst:.1e}")
assert worst <= 1e-5 and len(sums) >= 3
P

# Parts: the model reads 24 ids, of which each part has the start id and 23 others; the last id of a text is not read.
printf 'maren\nmarenshikurothurgarnrhukisomar\n' >"$tmp/words"
ids() { printf '%s' "$1" | python3 -c "import sys; v = open('$examples/names/vocab.txt').read().split(chr(10)); print(','.join(str(v.index(c)) for c in sys.stdin.read()))"; }
paths="tokens.weight=final"
for i in 0 1 2; do
	paths+=" layers.$i.self.attention.qkv.weight=layers.$i.self.norm layers.$i.self.attention.o.weight=layers.$i.self.attention.context"
	paths+=" layers.$i.ff.ffn.up.weight=layers.$i.ff.norm layers.$i.ff.ffn.down.weight=layers.$i.ff.ffn.gelu"
done
"$TFMC" calibrate "${quick[@]}" "$examples/names/model.yaml" --prompt-file "$tmp/words" -o "$tmp/names"
python3 "$tmp/check.py" "$tmp/names" "$examples/names/model.yaml" "$paths" \
	"ids=1,$(ids maren)" "ids=1,$(ids marenshikurothurgarnrhu)" "ids=1,$(ids kisomar)"
for threads in 2 3; do
	"$TFMC" calibrate "${quick[@]}" "$examples/names/model.yaml" --prompt-file "$tmp/words" --threads $threads -o "$tmp/other"
	cmp "$tmp/names" "$tmp/other"
done
# The numbers are those of the model unrounded.
cp -r "$examples/names" "$tmp/copy"
sed -i 's/^weights:/dtype: {weights: bf16}\n&/' "$tmp/copy/model.yaml"
"$TFMC" calibrate "${quick[@]}" "$tmp/copy/model.yaml" --prompt-file "$tmp/words" -o "$tmp/other"
cmp "$tmp/names" "$tmp/other"

# Pairs of ids: the encoder reads the source, cross-attention what the encoder made of it.
printf '3,4,5,6\t3,1,3,2\n7,8\t5,4\n' >"$tmp/pairs"
paths="encoder.layers.0.ff.ffn.down.weight=encoder.layers.0.ff.ffn.relu decoder.layers.1.ff.ffn.down.weight=decoder.layers.1.ff.ffn.relu"
paths+=" decoder.head.weight=decoder.layers.1.norm3 decoder.layers.1.cross.attention.k.weight=encoder.layers.1.norm2"
"$TFMC" calibrate "${quick[@]}" "$examples/dates/model.yaml" --tokens-file "$tmp/pairs" -o "$tmp/dates"
python3 "$tmp/check.py" "$tmp/dates" "$examples/dates/model.yaml" "$paths" "src=3,4,5,6 tgt=1,3,1,3" "src=7,8 tgt=1,5"

# Families with experts, layers of several kinds, parameters that layers share, and encoders that do not generate: the names
# are those of parameters.
family() {
	local folder=$TFMC_SOURCE/tests/golden/families/$1
	cp -r "$folder" "$tmp/$1"
	PYTHONPATH=$TFMC_SOURCE/tests/golden/families python3 -c "import seeded, sys
seeded.write('$1', seeded.read_list(sys.argv[1]), sys.argv[2])" "$folder/tensors.txt" "$tmp/$1/model.safetensors"
	"$TFMC" calibrate "${quick[@]}" "$tmp/$1" --tokens 3,4,5,6,7,8,9 -o "$tmp/$1.profile"
	"$TFMC" inspect "$tmp/$1.profile" >"$tmp/tensors"
	for name in "${@:2}"; do
		grep -qF "  $name.inputs: F32[2," "$tmp/tensors" || { cat "$tmp/tensors"; echo "$1: no $name"; exit 1; }
	done
}
family qwen2_moe layers.0.mlp.ffn.down.weight layers.1.mlp.moe.experts.4.up.weight layers.1.mlp.moe.shared.down.weight layers.2.self.attention.o.weight
family gemma3 layers.0.self.attention.q.weight layers.2.mlp.ffn.gate.weight tokens.weight
family albert groups.1.layers.mlp.ffn.down.weight widen.weight
family phi3 layers.1.self.attention.qkv.weight layers.0.mlp.ffn.gate_up.weight

# Readers of the profile: each matrix is quantized by the numbers of its own name, also where layers, experts or a head share one; a
# profile changes codes, and the cache knows it.
export XDG_CACHE_HOME=$tmp/cache
names=$examples/names/model.yaml
# by_inputs MODEL PROFILE NAME..: these matrices
by_inputs() {
	"$TFMC" "$1" --name=m --quantize=q4 --profile="$2" --passes= --emit=tir=- >"$tmp/tir"
	for name in "${@:3}"; do
		grep -qF "tensor \"$2\":\"$name.weight.inputs\" f32[2," "$tmp/tir" || { cat "$tmp/tir"; echo "no inputs of $name"; exit 1; }
	done
}
by_inputs "$names" "$tmp/names" tokens 'layers.{i}.self.attention.qkv' 'layers.{i}.ff.ffn.down'
by_inputs "$tmp/qwen2_moe" "$tmp/qwen2_moe.profile" 'layers.1.mlp.moe.experts.{i}.down' layers.1.mlp.moe.shared.down
by_inputs "$tmp/phi3" "$tmp/phi3.profile" 'layers.{i}.self.attention.qkv'
by_inputs "$tmp/albert" "$tmp/albert.profile" 'groups.{i}.layers.mlp.ffn.down'
score() { "$TFMC" score "${quick[@]}" "$names" --tokens 3,4,5,6,7,8 --quantize=q4 "$@"; }
score >"$tmp/plain"
score --profile="$tmp/names" >"$tmp/first"
if cmp -s "$tmp/plain" "$tmp/first"; then echo "a profile changes nothing"; exit 1; fi
cp "$tmp/names" "$tmp/keep"
"$TFMC" calibrate "${quick[@]}" "$names" --tokens 9,10,11,12,13 -o "$tmp/names"
score --profile="$tmp/names" >"$tmp/second"
if cmp -s "$tmp/first" "$tmp/second"; then echo "another profile changes nothing"; exit 1; fi
score --profile="$tmp/names" --no-cache | cmp - "$tmp/second"
cp "$tmp/keep" "$tmp/names"
score --profile="$tmp/names" | cmp - "$tmp/first"
# The file names it from where it lies, and IR text from its own folder.
cp "$tmp/names" "$tmp/copy/by_profile"
sed 's/^weights:/quantize: {profile: by_profile, "*position*": keep, "*": q4}\n&/' "$names" >"$tmp/copy/model.yaml"
"$TFMC" score "${quick[@]}" "$tmp/copy/model.yaml" --tokens 3,4,5,6,7,8 | cmp - "$tmp/first"
"$TFMC" "$tmp/copy/model.yaml" --emit=tir="$tmp/copy/m.tir" --passes=
"$TFMC" "${quick[@]}" "$tmp/copy/m.tir" -o "$tmp/m.o" --weights=file
"$TFMC" "${quick[@]}" "$tmp/copy/model.yaml" -o "$tmp/n.o" --weights=file
tail -c +4097 "$tmp/m.weights" | cmp - <(tail -c +4097 "$tmp/n.weights")

# wrong CODE TEXT PROFILE: with that profile names is refused, or warned of
wrong() {
	local code=0
	"$TFMC" "$names" --quantize=q4 --profile="$3" --emit=tir=- >"$tmp/out" 2>"$tmp/err" || code=$?
	[ "$code" -eq "$1" ] && grep -q -- "$2" "$tmp/err" || { cat "$tmp/err"; echo "not $1, '$2': $3"; exit 1; }
}
cat >"$tmp/change.py" <<'P'
"""change.py FROM TO CODE: CODE changes t, names to [shape, numbers]"""
import json, os, struct, sys
sys.path.insert(0, os.environ["TFMC_SOURCE"] + "/tests/support")
import near

t = {name: [shape, list(numbers)] for name, (shape, numbers) in near.read(sys.argv[1]).items()}
exec(sys.argv[3])
head, data = {}, b""
for name, (shape, numbers) in t.items():
    more = struct.pack(f"<{len(numbers)}f", *numbers)
    head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(more)]}
    data += more
head = json.dumps(head).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(head)) + head + data)
P
# changed CODE TEXT PYTHON: a profile of names that was changed so
changed() {
	python3 "$tmp/change.py" "$tmp/names" "$tmp/changed" "$3"
	wrong "$1" "$2" "$tmp/changed"
}
changed 0 "warning: the profile '.*' has no statistics of 2 of the 13 quantized matrices, such as 'layers.2.ff.ffn.up.weight'" \
	't["layers.2.ff.ffn.up.weight.inputs"][1] = [0.0] * 128; del t["layers.1.ff.ffn.up.weight.inputs"]'
changed 1 "another model: 1 of its 14 parameters are not in this one, such as 'other.weight'" \
	't["other.weight.inputs"] = t["tokens.weight.inputs"]'
changed 1 "tensor 'tokens.weight.inputs' has 32 columns, the parameter 64" 't["tokens.weight.inputs"] = [[2, 32], [1.0] * 64]'
changed 1 "'tokens.weight.inputs' is not F32 \[2, columns" 't["tokens.weight.inputs"][0] = [128]'
changed 1 "'tokens.weight.inputs' has a number that is infinite" 't["tokens.weight.inputs"][1][0] = -1.0'
changed 1 "'tokens.weight.inputs' has a number that is infinite" 't["tokens.weight.inputs"][1][70] = float("nan")'
changed 1 "'tokens' is not one that tfmc calibrate writes" 't["tokens"] = t["tokens.weight.inputs"]'
wrong 1 'another model' "$tmp/dates"
head -c 1000 "$tmp/names" >"$tmp/changed"
wrong 1 "'$tmp/changed'" "$tmp/changed"
wrong 3 'there is no such file' "$tmp/no-such"
code=0
"$TFMC" "$names" --profile="$tmp/names" --emit=tir=- 2>"$tmp/err" || code=$?
[ "$code" -eq 1 ] && grep -q 'serves quantized formats, and none is requested' "$tmp/err"

# refused CODE TEXT OPTIONS..
refused() {
	local code=0
	"$TFMC" calibrate "${quick[@]}" "${@:3}" >"$tmp/out" 2>"$tmp/err" || code=$?
	[ "$code" -eq "$1" ] && grep -q -- "$2" "$tmp/err" || { cat "$tmp/err"; echo "not $1, '$2': ${*:3}"; exit 1; }
}
: >"$tmp/empty"
refused 1 'calibrate: the texts have no ids' "$TFMC_SOURCE/tests/golden/torch_decoder/model.yaml" --tokens-file "$tmp/empty" -o "$tmp/none"
refused 1 'reads no rows of ids' "$TFMC_SOURCE/tests/golden/torch_experts/model.yaml" --tokens 1 -o "$tmp/none"
refused 1 'S is 49, 1..48 is possible' "$examples/dates/model.yaml" --tokens "$(seq -s, 49)" --target-tokens 3 -o "$tmp/none"
refused 2 'calibrate requires -o FILE' "$examples/names/model.yaml" --prompt maren
refused 2 'one of --prompt, --prompt-file' "$examples/names/model.yaml" -o "$tmp/none"
[ ! -e "$tmp/none" ]
