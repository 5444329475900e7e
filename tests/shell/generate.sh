#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Generation and scoring as commands. The dates: readings by a beam of four, scored as the search scored them, line
# after line from files. The trained models beside the checkout: transliterations that must begin with something, or
# must not contain something; stories from a seed, the same for any number of workers.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# The lines of the second file are log p of what the first one's lines "SCORE <tab> TEXT" say (SCORE times the number of
# tokens with the stop token), within what f32 can tell.
same_scores() {
	paste "$1" "$2" | awk -F '\t' '
		{ split($3, part, /[ ,]+/); n = part[4]; d = $1 * n - part[3]; d = d < 0 ? -d : d
		  if (d > worst) worst = d; if (n < 2 || n > 64) wrong = 1 }
		END { print NR " sequences, log p differ by at most " worst; exit !(NR > 0 && !wrong && worst < 1e-4) }'
}
# beams MODEL WORDS ARGUMENTS...: four results for each word to $tmp/beams, checked by tfmc score
beams() {
	"$TFMC" generate "${quick[@]}" "$1" -mcpu=x86-64-v2 --prompt-file "$2" --beam 4 --n-best 4 "${@:3}" >"$tmp/beams"
	[ "$(wc -l <"$tmp/beams")" -eq $((4 * $(wc -l <"$2"))) ]
	paste <(sed 'p;p;p' "$2") <(cut -f2 "$tmp/beams") >"$tmp/pairs"
	"$TFMC" score "${quick[@]}" "$1" -mcpu=x86-64-v2 --prompt-file "$tmp/pairs" >"$tmp/scores"
	tail -1 "$tmp/scores" | grep -c '^all: log p -[0-9.]*, [0-9]* tokens, perplexity [0-9.]*$' >"$tmp/count"
	sed '$d' "$tmp/scores" >"$tmp/each"
	same_scores "$tmp/beams" "$tmp/each"
}

dates=$TFMC_SOURCE/examples/dates/model.yaml
printf '%s\n' 3/3/21 'Weds 3 Mar 2021' 'the 3rd of March, 2021' 'xyz' >"$tmp/words"
beams "$dates" "$tmp/words"
[ "$(cut -f2 "$tmp/beams" | sed -n '1p;5p;9p' | sort -u)" = 2021-03-03 ]
# One by one, with stop texts: the same tokens, cut; ids go through --tokens-file.
"$TFMC" generate "${quick[@]}" "$dates" -mcpu=x86-64-v2 --prompt-file "$tmp/words" --stop=-0 --stop=03-03 >"$tmp/cut"
[ "$(head -3 "$tmp/cut" | sort -u)" = 2021 ]
"$TFMC" generate "${quick[@]}" "$dates" -mcpu=x86-64-v2 --prompt-file "$tmp/words" --print-tokens >"$tmp/ids"
[ "$(head -3 "$tmp/ids" | sort -u)" = "6 4 6 5 3 4 7 3 4 7 2" ]
# A file as Windows writes it.
{ printf '\357\273\277' && sed 's/$/\r/' "$tmp/words"; } >"$tmp/windows"
"$TFMC" generate "${quick[@]}" "$dates" -mcpu=x86-64-v2 --prompt-file "$tmp/windows" --print-tokens | cmp - "$tmp/ids"

# side_by_side MODEL OPTION FILE ARGUMENTS...: a file of prompts is what its lines are one by one (--prompt, --tokens)
side_by_side() {
	"$TFMC" generate "${quick[@]}" "$1" -mcpu=x86-64-v2 "$2-file" "$3" "${@:4}" >"$tmp/together"
	while IFS= read -r line; do
		"$TFMC" generate "${quick[@]}" "$1" -mcpu=x86-64-v2 "$2" "$line" "${@:4}"
	done <"$3" >"$tmp/alone"
	cmp "$tmp/together" "$tmp/alone"
}
printf '%s\n' 3/3/21 'Weds 3 Mar 2021' 3 'the 3rd of March, 2021' >"$tmp/few"
side_by_side "$dates" --prompt "$tmp/few" --beam 1
side_by_side "$dates" --prompt "$tmp/few" --beam 1 --stop=-0
side_by_side "$dates" --prompt "$tmp/few" --temperature 2 --seed 3 --print-tokens
decoder=$TFMC_SOURCE/tests/golden/torch_decoder/model.yaml
# More prompts than sequences fit into the session, of all lengths.
for i in 1 2 3 4 5 6 7; do
	seq -s, 3 $((2 + i * 3))
done >"$tmp/lists"
side_by_side "$decoder" --tokens "$tmp/lists" --print-tokens --ignore-stop --max-tokens 9
# A line that is wrong: those before it, and no others.
printf '5,6\n7,8,9\n5,99\n4\n' >"$tmp/lists"
if "$TFMC" generate "${quick[@]}" "$decoder" --tokens-file "$tmp/lists" --print-tokens --max-tokens 3 >"$tmp/out" 2>"$tmp/err"; then exit 1; fi
[ "$(wc -l <"$tmp/out")" -eq 2 ]
grep -q "generate: id 99, number 2 of the prompt, is outside of the vocabulary of [0-9]*" "$tmp/err"
if "$TFMC" generate "${quick[@]}" "$decoder" --inputs "$tmp/lists" --max-tokens 3 2>"$tmp/err"; then exit 1; fi
grep -q 'this model reads ids, which --prompt and --tokens give' "$tmp/err"

# Features of a recording as the source.
whisper=$TFMC_SHARED/models/variants/whisper
if [ -d "$whisper" ]; then
	"$TFMC" generate "${quick[@]}" "$whisper/model.yaml" --inputs "$whisper/cases.safetensors" --prefix greedy_a. --print-tokens \
		--ignore-stop --max-tokens 9 >"$tmp/ids" 2>"$tmp/err"
	[ "$(cat "$tmp/ids")" = "39 39 81 81 8 8 8 8 8" ]
	if "$TFMC" generate "${quick[@]}" "$whisper/model.yaml" --tokens 1 2>"$tmp/err"; then exit 1; fi
	grep -q "'input_features' is features, not ids; --inputs gives it" "$tmp/err"
	# Scored as they were drawn, each with its row, and as the beam search scored them.
	features=("$whisper/model.yaml" --inputs "$whisper/cases.safetensors" --prefix)
	"$TFMC" generate "${quick[@]}" "${features[@]}" batch2. --print-tokens --max-tokens 6 --samples 1 --temperature 1 --seed 4 >"$tmp/drawn" 2>"$tmp/err"
	cut -f2 "$tmp/drawn" >"$tmp/lists"
	"$TFMC" score "${quick[@]}" "${features[@]}" batch2. --tokens-file "$tmp/lists" >"$tmp/scores" 2>"$tmp/err"
	head -2 "$tmp/scores" | paste "$tmp/drawn" - | awk -F '\t' '
		{ split($3, part, /[ ,]+/); d = $1 - part[3]; d = d < 0 ? -d : d; if (d > worst) worst = d; if (part[4] != 6) wrong = 1; seen[$1] = 1 }
		END { print "features: log p differ by at most " worst + 0; exit !(NR == 2 && !wrong && worst < 1e-4 && length(seen) == 2) }'
	"$TFMC" generate "${quick[@]}" "${features[@]}" greedy_a. --print-tokens --max-tokens 9 --beam 3 --n-best 1 >"$tmp/beams" 2>"$tmp/err"
	"$TFMC" score "${quick[@]}" "${features[@]}" greedy_a. --target-tokens "$(cut -f2 "$tmp/beams")" 2>"$tmp/err" | tail -1 >"$tmp/scores"
	same_scores "$tmp/beams" "$tmp/scores"
	# As many targets as sources.
	for targets in 3 '3\n3\n3'; do
		printf "$targets\n" >"$tmp/lists"
		if "$TFMC" score "${quick[@]}" "${features[@]}" batch2. --tokens-file "$tmp/lists" >"$tmp/out" 2>"$tmp/err"; then exit 1; fi
		grep -qe 'has 2 sources for 1 targets' -e 'has 2 sources; there are more targets' "$tmp/err"
	done
	python3 - "$tmp/none" <<'P'
import json, struct, sys
head = json.dumps({"input_features": {"dtype": "F32", "shape": [0, 16, 48], "data_offsets": [0, 0]}}).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
P
	for command in score quality "calibrate -o $tmp/profile"; do
		if "$TFMC" $command "$whisper/model.yaml" --inputs "$tmp/none" --target-tokens 3 >"$tmp/out" 2>"$tmp/err"; then exit 1; fi
		grep -q "error: $tmp/none has no sources" "$tmp/err"
	done
	[ ! -e "$tmp/profile" ]
	if "$TFMC" generate "${quick[@]}" "$whisper/model.yaml" --inputs "$tmp/none" --print-tokens >"$tmp/out" 2>"$tmp/err"; then exit 1; fi
	grep -q "error: $tmp/none has no sources" "$tmp/err"
else
	echo "SKIPPED, features alone: $whisper is absent"
fi

# A source of ids of rank 3 is given like one of features: a row of it says which id is written again and again.
mkdir "$tmp/rank3"
cat >"$tmp/rank3/model.yaml" <<'Y'
tfmc: 1
name: sources
dims: {B: 1..2, S: 1..4, T: 1..6}
inputs:
  src: {shape: [B, S, 2], dtype: i32, below: 9}
  tgt: {shape: [B, T], dtype: i32, below: 5}
model:
  encoder:
    input: src
    body:
      - graph: ['x = cast(x, "f32")']
  decoder:
    input: tgt
    body:
      - embed: {id: emb, vocab: 5, dim: 2}
      - attention: {id: a, heads: 1, mask: causal, bias: false}
      - attention: {id: c, heads: 1, memory: encoder, bias: false}
      - linear: {id: head, out: 5, bias: false}
outputs: {logits: decoder}
generate: {kind: seq2seq, source: src, tokens: tgt, start: [1], stop: [2], max_len: 6}
weights: {files: [w.safetensors]}
Y
PYTHONPATH=$TFMC_SOURCE/tests/support python3 -B - "$tmp/rank3" <<'P'
import struct, sys
from quantized import write_safetensors
def f32(shape, numbers):
    return "F32", shape, struct.pack(f"<{len(numbers)}f", *numbers)
write_safetensors(sys.argv[1] + "/w.safetensors", {
    "decoder.emb.weight": f32([5, 2], [0] * 10), "decoder.head.weight": f32([5, 2], [0, 0, 0, 0, 0, 0, 1, 0, 0, 1]),
    **{f"decoder.{at}.{r}.weight": f32([2, 2], [1, 0, 0, 1]) for at in "ac" for r in "qkvo"}})
write_safetensors(sys.argv[1] + "/in.safetensors", {"src": ("I32", [2, 1, 2], struct.pack("<4i", 7, 3, 3, 7))})
P
"$TFMC" generate "${quick[@]}" "$tmp/rank3/model.yaml" --inputs "$tmp/rank3/in.safetensors" --max-tokens 3 --print-tokens >"$tmp/out"
printf '3 3 3\n4 4 4\n' | cmp - "$tmp/out"
printf '3\n4\n' >"$tmp/lists"
"$TFMC" score "${quick[@]}" "$tmp/rank3/model.yaml" --inputs "$tmp/rank3/in.safetensors" --tokens-file "$tmp/lists" >"$tmp/out"
[ "$(wc -l <"$tmp/out")" -ge 2 ]

stories=$TFMC_SHARED/models/stories260k
if [ -d "$stories" ]; then
	for workers in 1 2 3; do
		"$TFMC" generate "${quick[@]}" "$stories/model.yaml" --tokens 1 --max-tokens 60 --samples 4 --temperature 0.9 --top-p 0.9 --seed 5 \
			--threads "$workers" >"$tmp/story$workers"
	done
	cmp "$tmp/story1" "$tmp/story2"
	cmp "$tmp/story1" "$tmp/story3"
	[ "$(cut -f2 "$tmp/story1" | sort -u | wc -l)" -eq 4 ]
	# Longer than one call of score takes: the same as drawn.
	"$TFMC" generate "${quick[@]}" "$stories/model.yaml" --tokens 1 --max-tokens 150 --samples 2 --temperature 1 --seed 9 --ignore-stop --print-tokens >"$tmp/long"
	cut -f2 "$tmp/long" >"$tmp/lists" # the start id, 1, stands before what is scored
	"$TFMC" score "${quick[@]}" "$stories/model.yaml" --tokens-file "$tmp/lists" --threads 2 >"$tmp/scores"
	head -2 "$tmp/scores" | paste "$tmp/long" - | awk -F '\t' '
		{ split($3, part, /[ ,]+/); d = $1 - part[3]; d = d < 0 ? -d : d; if (d > worst) worst = d; n = part[4] }
		END { print n " tokens, log p differ by at most " worst; exit !(NR == 2 && n == 150 && worst < 2e-3) }'
else
	echo "SKIPPED, the stories alone: $stories is absent"
fi

aren=$TFMC_SHARED/models/aren-transliteration/model.yaml
[ -f "$aren" ] || { echo "SKIPPED, the transliterations alone: $aren is absent"; exit 0; }
printf '%s\n' محمد عمر خالد يوسف مريم موسكو >"$tmp/words"
beams "$aren" "$tmp/words" --forced-text mo
[ "$(cut -f2 "$tmp/beams" | grep -c '^mo')" -eq 24 ]
beams "$aren" "$tmp/words" --bad-words a --bad-words os --suppress 4 --no-repeat-ngram 2
if cut -f2 "$tmp/beams" | grep -e a -e os; then exit 1; fi
"$TFMC" generate "${quick[@]}" "$aren" -mcpu=x86-64-v2 --prompt عمر --print-tokens --suppress 4 >"$tmp/ids"
[ -s "$tmp/ids" ]
if grep -w 4 "$tmp/ids"; then exit 1; fi
