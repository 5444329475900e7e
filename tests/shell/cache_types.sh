#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Models whose caches keep f16, bf16 and int8, those of an encoder's keys and values too: their functions agree with the interpreter, and prompts in calls and in
# steps with the whole, bit for bit; results do not depend on workers; a sequence takes half of the memory, with int8 a
# byte for each number and four for each head and position. Objects of
# every variant, as C and for aarch64 generate the same ids, greedily and with beams, also in rings. stories260k
# against a reference that rounds what it appends.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
: "${TFMC:?}" "${TFMC_SOURCE:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "cache_types: $*" >&2; exit 1; }

# bytes of state for each sequence
state() {
	"$TFMC" "$1" --emit=header="$tmp/x.h" || fail "$1: no header"
	sed -nE 's/.*_STATE_BYTES\(batch\) .*\(batch\) \* ([0-9]+)u.*/\1/p' "$tmp/x.h"
}
golden=$TFMC_SOURCE/tests/golden
narrow() { # MODEL TYPE FOLDER: the model with such a cache
	mkdir -p "$3"
	cp "$golden/$1"/*.safetensors "$3"
	{ echo "dtype: {cache: $2}"; sed '/^checks:/,$d; /^dtype:/d' "$golden/$1/model.yaml"; } >"$3/model.yaml"
}

# Models and types take turns in the short run.
turn=0
for model in torch_sinks torch_decoder torch_rotary torch_seq2seq; do
	wide=$(state "$golden/$model/model.yaml")
	for type in f16 bf16 int8; do
		narrow $model $type "$tmp/$model.$type"
		file=$tmp/$model.$type/model.yaml
		narrow=$(state "$file")
		[ $((narrow * 100)) -le $((wide * 60)) ] || fail "$model $type: $narrow bytes of state, $wide of f32"
		turn=$((turn + 1))
		[ -n "${TFMC_ALL:-}" ] || [ $((turn % 4)) = 1 ] || continue
		[ $type != bf16 ] && levels="--mcpu=x86-64-v2 --mcpu=native -O0" || levels="--mcpu=x86-64-v3"
		for level in $levels; do
			options=()
			[ "$level" = -O0 ] || options=("${quick[@]}")
			"$TFMC" verify "$file" $level "${options[@]}" >"$tmp/log" || { cat "$tmp/log"; fail "$model $type $level"; }
			steps=$(grep 'prefill and step' "$tmp/log")
			[ $level = -O0 ] || [ "$(grep -c ' 0  *[0-9.e-]*  ok$' <<<"$steps")" = "$(wc -l <<<"$steps")" ] ||
				fail "$model $type $level: $steps"
		done
	done
done

# Every value inside, fused or not: the weights of attention beside scales too.
for barrier in '' --probe-barrier; do
	"$TFMC" verify "$tmp/torch_rotary.int8/model.yaml" --mcpu=x86-64-v3 "${quick[@]}" --probe='*' $barrier >"$tmp/log" || { cat "$tmp/log"; fail "probes"; }
	[ "$(grep -c 'attention.weights, against interpreter .* ok$' "$tmp/log")" -ge 3 ] || { cat "$tmp/log"; fail "no weights"; }
done

# Text of an encoder-decoder, greedy and with beams, any number of workers: as with f32.
dates=$TFMC_SOURCE/examples/dates
cp "$dates"/* "$tmp"
printf '%s\n' 'the 3rd of March, 2021' '3/3/21' 'Monday 14 July 1997' '2 Feb 1986' >"$tmp/dates.txt"
for type in f32 f16 bf16 int8; do
	sed "s/^checks:/dtype: {cache: $type}\n&/" "$dates/model.yaml" >"$tmp/dates.yaml"
	for options in "--beam=1 --threads=1" "--beam=1 --threads=3" "--beam=3"; do
		# shellcheck disable=SC2086
		"$TFMC" generate "$tmp/dates.yaml" --prompt-file "$tmp/dates.txt" "${quick[@]}" $options >>"$tmp/dates.$type"
	done
	cmp "$tmp/dates.f32" "$tmp/dates.$type" || { cat "$tmp/dates.$type" >&2; fail "dates, $type"; }
done
grep -qx 2021-03-03 "$tmp/dates.int8" || fail "dates"

# Ids of a prompt by greedy search, by the same in a second sequence that was forked and saved, by beams.
cat >"$tmp/ids.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tfmc_rt.h"
#include "torch_rotary.h"
#define COUNT(x) (sizeof(x) / sizeof((x)[0]))
static const int32_t prompt[] = {1, 4, 2, 7, 3};
static float logits[31];
static unsigned char saved[1 << 16];

static void check(int status)
{
	if (status == TFMC_RT_OK)
		return;
	fprintf(stderr, "%s\n", tfmc_rt_status_text(status));
	exit(1);
}

static void call(struct tfmc_session *s, int64_t sequence, const int32_t *ids, int64_t n)
{
	const struct tfmc_record *r = tfmc_session_record(s);
	int32_t lengths[] = {(int32_t)n};
	const int64_t dims[4] = {1, n, n, n};
	struct tfmc_buffer in[] = {{(void *)(uintptr_t)ids, (uint64_t)n}, {lengths, 1}}, out[] = {{logits, 31}};
	check(tfmc_session_select(s, sequence, -1));
	check(tfmc_session_call(s, tfmc_entry_find(r, n == 1 ? "step" : "prefill"), dims, in, out));
}

int main(int argc, char **argv)
{
	struct tfmc_model model = torch_rotary_model();
	struct tfmc_session_options o = {.struct_size = sizeof(o), .batch = 3};
	struct tfmc_generate_options g = {.struct_size = sizeof(g), .max_new_tokens = 12, .ignore_stop = 1};
	struct tfmc_beam_options b = {.struct_size = sizeof(b), .beam = 3, .length_penalty = 1};
	static int32_t beams[3][32];
	struct tfmc_hypothesis best[3] = {{0}};
	struct tfmc_session *s;
	int32_t ids[32];
	uint64_t n, bytes;
	o.workers = argc > 1 ? atoi(argv[1]) : 1;
	for (int i = 0; i < 3; i++)
		best[i] = (struct tfmc_hypothesis){.tokens = beams[i], .cap = 32};
	check(tfmc_session_open(&model, &o, &s));
	check(tfmc_generate(s, &g, prompt, COUNT(prompt), NULL, 0, ids, 32, &n));
	for (uint64_t i = 0; i < n; i++)
		printf("%d ", ids[i]);
	check(tfmc_session_reset(s));
	call(s, 0, prompt, 5);
	check(tfmc_session_save(s, 0, saved, sizeof(saved), &bytes));
	check(tfmc_session_fork(s, 0, 1));
	check(tfmc_session_restore(s, 2, saved, bytes));
	static float first[31];
	for (int k = 0; k < 3; k++) {
		call(s, k, ids, 1);
		if (k == 0)
			memcpy(first, logits, sizeof(first));
		if (memcmp(first, logits, sizeof(first)))
			printf("sequence %d has other bits\n", k);
	}
	for (int i = 0; argc > 2 && i < 31; i++)
		printf("%a ", (double)logits[i]);
	check(tfmc_session_select(s, 0, -1));
	check(tfmc_beam_search(s, &b, prompt, COUNT(prompt), NULL, 0, best, 3, &n));
	for (uint64_t i = 0; i < n; i++)
		for (uint64_t k = 0; k < best[i].n; k++)
			printf(k ? "%d " : "\n%d ", best[i].tokens[k]);
	printf("\n");
	tfmc_session_close(s);
	return 0;
}
C
library=$TFMC_BUILD/runtime/libtfmcrt.a sources=("$TFMC_SOURCE"/runtime/*.c)
build() { # PROGRAM OBJECT RUNTIME COMPILER.., where RUNTIME is its library, or "" to compile its sources
	local program=$1 object=$2 runtime=("$3")
	[ -n "$3" ] || runtime=("${sources[@]}")
	shift 3
	"$@" -std=c17 -O1 -Wall -Wextra -Werror -ffp-contract=off -I"$TFMC_SOURCE" -I"$TFMC_SOURCE/runtime" -I"$tmp" "$tmp/ids.c" "$object" \
		"${runtime[@]}" -pthread -o "$program"
}
same() { # WHAT COMMAND..: the ids that the first one had, and for every number of workers the same bits
	local what=$1
	shift
	"$@" 1 >"$tmp/now"
	[ -s "$tmp/want" ] || cp "$tmp/now" "$tmp/want"
	diff "$tmp/want" "$tmp/now" >&2 || fail "$what: other ids"
	"$@" 1 bits >"$tmp/bits.1"
	"$@" 3 bits >"$tmp/bits.3"
	cmp "$tmp/bits.1" "$tmp/bits.3" || fail "$what: workers"
}

# Heads of 64 numbers, 192 positions: nothing is added to the sizes.
puzzles=$TFMC_SOURCE/tests/quality
cp -r "$puzzles" "$tmp/puzzles"
wide=$(state "$puzzles/model.yaml")
sed 's/^weights:/dtype: {cache: int8}\n&/' "$puzzles/model.yaml" >"$tmp/puzzles/int8.yaml"
narrow=$(state "$tmp/puzzles/int8.yaml")
[ $((narrow * 64 * 4)) -eq $((wide * (64 + 4))) ] || fail "puzzles int8: $narrow bytes of state, $wide of f32"

types="bf16 f16 int8"
[ -n "${TFMC_ALL:-}" ] || types="int8"
for type in $types; do
	at=$tmp/torch_rotary.$type
	narrow torch_rotary $type "$at"
	[ $type = bf16 ] || sed -i "s/kv_heads: kv_heads, /&window: 7, cache: {len: 16}, /" "$at/model.yaml"
	rm -f "$tmp/want"
	for cpu in x86-64-v2 native; do
		"$TFMC" "$at/model.yaml" -mcpu=$cpu "${quick[@]}" -o "$tmp/torch_rotary.o"
		# shellcheck disable=SC2086
		build "$tmp/ids" "$tmp/torch_rotary.o" "$library" "${CC:-cc}" ${TFMC_LINK_FLAGS:-}
		same "$type $cpu" "$tmp/ids"
	done
	[ "$(wc -l <"$tmp/want")" -eq 4 ] || { cat "$tmp/want" >&2; fail "$type: no four lines"; }
	"$TFMC" "$at/model.yaml" -mcpu=x86-64-v2 --emit=c="$tmp/c.c"
	"${CC:-cc}" -std=c17 "$optimize" -c "$tmp/c.c" -o "$tmp/c.o"
	# shellcheck disable=SC2086
	build "$tmp/ids" "$tmp/c.o" "$library" "${CC:-cc}" ${TFMC_LINK_FLAGS:-}
	same "$type C" "$tmp/ids"
	if command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null; then
		"$TFMC" "$at/model.yaml" --target=aarch64-linux-gnu "${quick[@]}" -o "$tmp/torch_rotary.o"
		build "$tmp/ids" "$tmp/torch_rotary.o" "" aarch64-linux-gnu-gcc -static
		same "$type aarch64" qemu-aarch64-static "$tmp/ids"
	fi
done

# 31 words of a trained encoder-decoder with heads of 4 numbers: as another system writes them, of int8 all but one.
aren=${TFMC_SHARED:-}/models/aren-transliteration
[ -d "$aren" ] || { echo "SKIPPED in part: $aren is absent"; exit 0; }
mkdir "$tmp/aren"
cp -L "$aren"/* "$tmp/aren"
python3 - "$aren/cases.json" "$tmp/words" "$tmp/want.words" <<-'PY'
	import json, sys
	cases = [c for c in json.load(open(sys.argv[1]))["cases"] if c["kind"] == "transliterate"]
	for path, key in zip(sys.argv[2:], ("word", "greedy")):
	    open(path, "w").writelines(c[key] + "\n" for c in cases)
PY
for row in "f16 0" "bf16 0" "int8 1"; do
	read -r type most <<<"$row"
	sed "s/^checks:/dtype: {cache: $type}\n&/" "$aren/model.yaml" >"$tmp/aren/$type.yaml"
	"$TFMC" generate "$tmp/aren/$type.yaml" --prompt-file "$tmp/words" "${quick[@]}" --beam=1 >"$tmp/now.words"
	[ "$(wc -l <"$tmp/now.words")" -eq 31 ] || fail "aren $type: not 31 words"
	other=$(paste -d' ' "$tmp/want.words" "$tmp/now.words" | awk '$1 != $2' | wc -l)
	[ "$other" -le "$most" ] || fail "aren $type: $other words are others"
done

# 200 tokens of a trained model: the ids that the reference finds likeliest, logits nearer to it than without rounding.
stories=${TFMC_SHARED:-}/models/stories260k
[ -d "$stories" ] || { echo "SKIPPED in part: $stories is absent"; exit 0; }
run_ids() { # MODEL IDS OUT
	python3 - "$2" "$tmp/in.safetensors" <<-'PY'
		import json, struct, sys
		ids = [int(i) for i in sys.argv[1].split()]
		data = struct.pack(f"<{len(ids)}i", *ids)
		head = {"input_ids": {"dtype": "I32", "shape": [1, len(ids)], "data_offsets": [0, len(data)]}}
		head = json.dumps(head).encode()
		open(sys.argv[2], "wb").write(struct.pack("<Q", len(head)) + head + data)
	PY
	"$TFMC" run "$1" "${quick[@]}" --inputs "$tmp/in.safetensors" --outputs "$3"
}
cp -rL "$stories" "$tmp/stories"
# Allowed difference: f32 values on both sides of a rounding border of the reduced type.
for row in "f16 70" "bf16 20" "int8 20"; do
	read -r type most <<<"$row"
	{ echo "dtype: {cache: $type}"; grep -v '^dtype:' "$stories/model.yaml"; } >"$tmp/stories/$type.yaml"
	new=$("$TFMC" generate "$tmp/stories/$type.yaml" "${quick[@]}" --prompt "Once upon a time" --max-tokens 200 --ignore-stop --print-tokens)
	ids="1 403 407 261 378 ${new//,/ }"
	run_ids "$tmp/stories/$type.yaml" "$ids" "$tmp/narrow.safetensors"
	run_ids "$tmp/stories/model.yaml" "$ids" "$tmp/wide.safetensors"
	python3 "$TFMC_SOURCE/tests/support/cached_llama.py" "$tmp/stories" $type "$ids" "$tmp/narrow.safetensors" \
		"$tmp/wide.safetensors" >"$tmp/log"
	{ read -r near; read -r far; read -r likeliest; } <"$tmp/log"
	echo "stories260k $type: $near from the reference ($far without rounding), $likeliest of 204 ids likeliest"
	awk -v n="$near" -v f="$far" -v m="$most" 'BEGIN { exit !(f > 1e-4 && n * 100 < f * m) }' || fail "$type: $near"
	[ "$likeliest" -ge 203 ] || fail "$type: $likeliest ids of 204 are the reference's"
done
