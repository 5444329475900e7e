#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc quality: its figures are those that Python computes from the logits of `tfmc run`, of a text, of texts that are cut
# into parts, of pairs and of ids; they do not depend on workers. Then the bars: what each format may cost on trained models.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export PYTHONDONTWRITEBYTECODE=1
examples=$TFMC_SOURCE/examples puzzles=$TFMC_SOURCE/tests/quality models=$TFMC_SHARED/models

# variant FOLDER NAME SED: another model file beside the first one, in a copy of its folder
variant() {
	[ -d "$tmp/${1##*/}" ] || cp -r "$1" "$tmp/"
	sed "$3" "$1/model.yaml" >"$tmp/${1##*/}/$2.yaml"
}
# agree MODEL OTHER OPTIONS.. -- PARTS..: the report on the texts of the options is that of Python on the parts
agree() {
	local model=$1 other=$2 options=()
	shift 2
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	"$TFMC" quality "$model" --reference-model "$other" "${quick[@]}" "${options[@]}" --json >"$tmp/report"
	"$TFMC" quality "$model" --reference-model "$other" "${quick[@]}" "${options[@]}" --json --threads 3 | cmp - "$tmp/report"
	python3 "$TFMC_SOURCE/tests/support/distances.py" "$model" "$other" "$tmp/report" "$@"
}

# A word; one of 30 letters, in parts that begin with the start id and predict as many as the state of 24 holds.
variant "$examples/names" bf16 's/^weights:/dtype: {weights: bf16}\n&/'
variant "$examples/names" far 's/eps: 1e-5/eps: 0.05/'
names=$tmp/names
ids() { printf '%s' "$1" | python3 -c "import sys; v = open('$names/vocab.txt').read().split(chr(10)); print(','.join(str(v.index(c)) for c in sys.stdin.read()))"; }
long=marenshikurothurgarnrhukisomar
printf 'maren\n%s\n' $long >"$tmp/words"
maren=$(ids maren) begin=$(ids ${long:0:24}) end=$(ids ${long:24})
for other in bf16 far; do
	agree "$names/$other.yaml" "$names/model.yaml" --prompt-file "$tmp/words" -- \
		"ids=1,$maren,2" 1 "ids=1,$begin" 1 "ids=1,$end,2" 1
done
# Without start ids the first id of a part is read and not predicted.
sed '/^  start: 1$/d' "$names/far.yaml" >"$names/far_alone.yaml"
sed '/^  start: 1$/d' "$names/model.yaml" >"$names/alone.yaml"
agree "$names/far_alone.yaml" "$names/alone.yaml" --prompt-file "$tmp/words" -- \
	"ids=$maren,2" 1 "ids=$(ids ${long:0:25})" 1 "ids=$(ids ${long:25}),2" 1
# By default the other one is the same model with its numbers unrounded; a file of ids has no stop id behind them.
"$TFMC" quality "$names/bf16.yaml" "${quick[@]}" --prompt-file "$tmp/words" --json >"$tmp/own"
"$TFMC" quality "$names/bf16.yaml" "${quick[@]}" --prompt-file "$tmp/words" --json --reference-model "$names/model.yaml" | cmp - "$tmp/own"
printf '%s\n%s\n' "$maren" "$end" >"$tmp/ids"
agree "$names/far.yaml" "$names/model.yaml" --tokens-file "$tmp/ids" -- "ids=1,$maren" 1 "ids=1,$end" 1
# Of more texts than there are sequences each counts, wherever it stands.
for i in $(seq 21); do printf '%s\n' $long | cut -c-$i; done >"$tmp/many"
"$TFMC" quality "$names/far.yaml" "${quick[@]}" --prompt-file "$tmp/many" --reference-model "$names/model.yaml" --json >"$tmp/one"
tac "$tmp/many" >"$tmp/other"
"$TFMC" quality "$names/far.yaml" "${quick[@]}" --prompt-file "$tmp/other" --reference-model "$names/model.yaml" --json >"$tmp/two"
python3 - "$tmp/one" "$tmp/two" <<'P'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["positions"] == b["positions"] == sum(range(2, 23)) and a["kl_999"] == b["kl_999"], (a, b)
assert all(abs(a[k] - b[k]) <= 1e-12 * abs(a[k]) for k in a), (a, b)
P
# The same model twice is no distance at all.
"$TFMC" quality "$names/model.yaml" "${quick[@]}" --prompt-file "$tmp/words" | tee "$tmp/out"
grep -q '^KL divergence   mean 0, 99.9 % 0 nats$' "$tmp/out" && grep -q '^same top token  100.0000 %$' "$tmp/out"

# Pairs: the target is predicted, given its source.
variant "$examples/dates" bf16 's/^weights:/dtype: {weights: bf16}\n&/'
dates=$tmp/dates
printf '3,4,5,6\t3,1,3,2\n7,8\t5,4\n' >"$tmp/pairs"
agree "$dates/bf16.yaml" "$dates/model.yaml" --tokens-file "$tmp/pairs" -- \
	"src=3,4,5,6 tgt=1,3,1,3,2" 1 "src=7,8 tgt=1,5,4" 1

# Models that cannot be compared are rejected.
# refused CODE TEXT OPTIONS..
refused() {
	local code=0
	"$TFMC" "${command:-quality}" "${@:3}" "${quick[@]}" >"$tmp/out" 2>"$tmp/err" || code=$?
	[ "$code" -eq "$1" ] && grep -q -- "$2" "$tmp/err" || { cat "$tmp/err"; echo "not $1, '$2': ${*:3}"; exit 1; }
}
: >"$tmp/empty"
refused 1 'quality: the texts have nothing to predict' "$names/model.yaml" --prompt-file "$tmp/empty"
command=score refused 1 'score: the texts have nothing to predict' "$names/model.yaml" --prompt-file "$tmp/empty"
refused 1 "has a vocabulary of 39 tokens, '.*' one of 512" "$names/model.yaml" --prompt maren --reference-model "$examples/hub/tales"
refused 1 'do not predict tokens from the same' "$names/model.yaml" --prompt-file "$tmp/words" --reference-model "$dates/model.yaml"
refused 1 'quality requires a model file with a generate section' "$examples/embed/model.yaml" --prompt maren
refused 1 'do not predict tokens from the same' "$names/model.yaml" --prompt maren --reference-model "$examples/embed/model.yaml"
refused 1 'id 39, number 2, is outside of the vocabulary of 39' "$names/model.yaml" --tokens 3,39
refused 1 'text 1 has 17 ids after 1; the state has room for 16' "$dates/model.yaml" --tokens 3 --target-tokens 3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3
refused 3 "no-such" "$names/model.yaml" --prompt maren --reference-model "$tmp/no-such.yaml"
refused 2 'one of --prompt, --prompt-file' "$names/model.yaml"

# The bars: bar FOLDER OPTION FILE FORMAT MOST: the mean KL divergence that weights of a format may cost on a trained model:
# a number, or at most that of another format, which was measured before.
bar() {
	local name=${1##*/}
	local section="quantize: $4"
	case $4 in
	bf16 | f16) section="dtype: {weights: $4}" ;;
	products_bf16) section="dtype: {compute: bf16}" ;;
	cache_int8) section="dtype: {cache: int8}" ;;
	esac
	variant "$1" "$4" "s/^weights:/$section\n&/"
	"$TFMC" quality "$tmp/$name/$4.yaml" "$2" "$3" "${quick[@]}" --json >"$tmp/$name.$4.json"
	python3 - "$tmp/$name" "$4" "$5" <<'P'
import json, os, sys
folder, form, most = sys.argv[1:]
r = json.load(open(f"{folder}.{form}.json"))
bound = json.load(open(f"{folder}.{most}.json"))["kl_mean"] if os.path.exists(f"{folder}.{most}.json") else float(most)
print(f"{folder.split('/')[-1]:21} {form:6} KL mean {r['kl_mean']:.3e}, 99.9 % {r['kl_999']:.3e}, "
      f"same top {100 * r['same_top']:.3f} %, RMS of p {r['rms_probability']:.2e}, "
      f"perplexity {r['perplexity']:.4f} beside {r['reference_perplexity']:.4f}, {r['positions']} positions")
assert r["positions"] >= 150 and r["kl_mean"] <= bound, (form, most, bound, r)
P
}
# beside FOLDER OPTION FILE FORMAT TYPE MOST: a format of 4 bits costs no more than what llama.cpp makes of the same weights in
# blocks of as many bytes: measured where it is there, elsewhere MOST, which it was in November 2026 (ggml 0.25.3). `numbers`:
# rows need not be whole blocks of the type, and are multiplied in f32.
beside() {
	local name=${1##*/} most=$6 how=${7-}
	if [ "$peer" = yes ]; then
		variant "$1" "$5" "s/model.safetensors/$5.gguf/; s/{from: \([^,]*\), mul: .*}/\1/"
		python3 "$puzzles/ggml.py" ${how:+--$how} "$1/model.safetensors" "$5" "$tmp/$name/$5.gguf"
		"$TFMC" quality "$tmp/$name/$5.yaml" --reference-model "$1/model.yaml" "$2" "$3" --json >"$tmp/$name.$5.json"
		most=$5
	fi
	bar "$1" "$2" "$3" "$4" "$most"
	[ "$peer" = no ] || python3 -c "import json, sys; print(f'{sys.argv[2]:>28} of llama.cpp: {json.load(open(sys.argv[1]))[\"kl_mean\"]:.3e}')" "$tmp/$name.$5.json" "$5"
}
peer=yes
python3 "$puzzles/ggml.py" --check || peer=no
# gain FOLDER FILE CALIBRATION MOST: 4 bits with a profile cost at most so much of what they cost without
gain() {
	local model=$1/model.yaml
	"$TFMC" calibrate "$model" "${quick[@]}" --prompt-file "$3" -o "$tmp/profile"
	"$TFMC" quality "$model" "${quick[@]}" --prompt-file "$2" --quantize=q4 --json >"$tmp/without.json"
	"$TFMC" quality "$model" "${quick[@]}" --prompt-file "$2" --quantize=q4 --profile="$tmp/profile" --json >"$tmp/with.json"
	python3 - "$tmp/without.json" "$tmp/with.json" "$4" <<'P'
import json, sys
without, known = (json.load(open(f))["kl_mean"] for f in sys.argv[1:3])
print(f"q4: KL mean {without:.3e}, with a profile {known:.3e}, {known / without:.2f} of it")
assert known <= float(sys.argv[3]) * without, sys.argv
P
}
# bars FOLDER OPTION FILE: every format
bars() {
	bar "$@" products_bf16 0.0002
	bar "$@" q8 0.002
	bar "$@" bf16 0.0001
	bar "$@" f16 bf16
	bar "$@" q8_128 0.002
	bar "$@" q8_row 0.003
}
# Keys and values of a cache: a tenth of that, but for heads of 8 elements.
cache_bar() { bar "$1" "$2" "$3" cache_int8 "$4"; }
python3 "$puzzles/data.py" --seed 77 --count 32 >"$tmp/puzzles.txt"
if [ -z "${TFMC_ALL:-}" ]; then # one format of 8 and one of 4 bits
	bar "$puzzles" --prompt-file "$tmp/puzzles.txt" q8 0.002
	bar "$puzzles" --prompt-file "$tmp/puzzles.txt" q4 1.50e-3
	exit 0
fi
python3 "$examples/names/data.py" --seed 77 --count 200 | awk '{ print $1 }' >"$tmp/names.txt"
bars "$puzzles" --prompt-file "$tmp/puzzles.txt"
beside "$puzzles" --prompt-file "$tmp/puzzles.txt" q4 Q4_0 1.50e-3
beside "$puzzles" --prompt-file "$tmp/puzzles.txt" q4s Q4_K 9.52e-4
beside "$puzzles" --prompt-file "$tmp/puzzles.txt" q4_k Q4_K 9.52e-4
beside "$puzzles" --prompt-file "$tmp/puzzles.txt" iq4_nl IQ4_NL 1.09e-3
bars "$examples/names" --prompt-file "$tmp/names.txt"
cache_bar "$puzzles" --prompt-file "$tmp/puzzles.txt" 0.0001
cache_bar "$examples/names" --prompt-file "$tmp/names.txt" 0.0001
beside "$examples/names" --prompt-file "$tmp/names.txt" q4 Q4_0 5.87e-3
beside "$examples/names" --prompt-file "$tmp/names.txt" iq4_nl IQ4_NL 4.96e-3
beside "$examples/names" --prompt-file "$tmp/names.txt" q4s Q4_K 5.19e-3 numbers
# A profile of other texts: 0.86 was measured. On puzzles it is 0.91 to 1.04, by the number of texts, which shows nothing.
python3 "$examples/names/data.py" --seed 5 --count 200 | awk '{ print $1 }' >"$tmp/other_names.txt"
gain "$examples/names" "$tmp/names.txt" "$tmp/other_names.txt" 0.92
[ -d "$models" ] || { echo "SKIPPED in part: $models is absent"; exit 0; }
# Figures of the model itself, and words with the letters that it writes for them.
"$TFMC" generate "$models/stories260k/model.yaml" "${quick[@]}" --prompt "Once upon a time" --temperature 1 --samples 8 --max-tokens 200 \
	--print-tokens | sed 's/.*\t//; s/ /,/g' >"$tmp/stories.ids"
python3 -c "import json, sys
for c in json.load(open(sys.argv[1]))['cases']:
    if 'greedy' in c: print(c['word'], c['greedy'], sep='\t')" "$models/aren-transliteration/cases.json" >"$tmp/aren.txt"
bars "$models/stories260k" --tokens-file "$tmp/stories.ids"
cache_bar "$models/stories260k" --tokens-file "$tmp/stories.ids" 0.003
bars "$models/aren-transliteration" --prompt-file "$tmp/aren.txt"
beside "$models/stories260k" --tokens-file "$tmp/stories.ids" q4s Q4_K 8.41e-2 numbers
beside "$models/aren-transliteration" --prompt-file "$tmp/aren.txt" q4s Q4_K 1.27e-2 numbers
