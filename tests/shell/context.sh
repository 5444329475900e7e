#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A long context costs what is used of it: opening a session touches no page of the state, --context changes no bit and
# no table of a model, and where memory ends --limit-memory says so and names --context.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
export XDG_CACHE_HOME=$tmp/cache
llama=(python3 "$TFMC_SOURCE/tests/support/make_llama.py")
"${llama[@]}" long llama max_position_embeddings=1048576 num_hidden_layers=4

fails() { # text, command
	local text=$1 status=0
	shift
	"$@" >out 2>&1 || status=$?
	[ $status = 1 ] && grep -q -- "$text" out && return
	echo "$*: status $status, no '$text'" >&2
	cat out >&2
	exit 1
}

# Peak of resident memory in kB of a command, which writes to out.
peak() {
	python3 - "$@" <<'P'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=open("out", "w"))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
P
}

# 48 tokens of a million positions: 268 MB of keys and values, of which pages of 48 rows are written.
generate=("$TFMC" generate long --threads=1 --tokens 1,5,9 --max-tokens 48 --ignore-stop --print-tokens "${quick[@]}")
"${generate[@]}" --context=64 >want
for context in --context=64 --context=100000 --ctx-size=1000000 -v; do
	"${generate[@]}" $context 2>log | cmp - want
	kb=$(peak "${generate[@]}" $context 2>log)
	cmp out want
	[ $context != --context=64 ] || least=$kb
	[ $kb -lt $((least + 16000)) ] || {
		echo "$context: $kb kB resident, $least with --context=64" >&2
		exit 1
	}
done
[ "$("$TFMC" generate long --context=20 --tokens 1,5,9 --ignore-stop --max-tokens 17 --print-tokens "${quick[@]}" | wc -w)" = 17 ]
printf '1,5,9\n1,5\n' >prompts
"$TFMC" generate long --tokens-file prompts --max-tokens 48 --ignore-stop --print-tokens "${quick[@]}" | head -n 1 | cmp - want
"$TFMC" score long --tokens 1,5,9 "${quick[@]}" >of_all
"$TFMC" score long --tokens 1,5,9 "${quick[@]}" --context=8 | cmp - of_all

# Where memory ends: the text, a prompt, a session.
"${generate[@]}" --max-tokens 4000 --limit-memory=1M >short 2>log
grep -q 'warning: the text ends at [0-9]* tokens: memory allows no more' log
grep -q '1.0 MB of memory are enough for [0-9]* tokens of a sequence; --limit-memory=BYTES' log
cut -d ' ' -f 1-48 short | cmp - want
fails 'the prompt has 9000 ids; at most [0-9]* are possible' \
	"$TFMC" generate long --threads=1 "${quick[@]}" --limit-memory=1M --tokens "$(seq -s, 1 9000 | sed 's/[0-9]*/7/g')"
grep -q 'are enough for' out
fails 'a session takes .* for intermediate values .* the limit is 100.0 kB' \
	"${generate[@]}" --limit-memory=100k
grep -q -- 'note: --context=N (tokens of a sequence)' out

# More than the model has, less than its start, nothing that is a sequence of ids.
fails '--context=1048577: a sequence of the model has 1 to 1048576 tokens' "${generate[@]}" --context=1048577
printf '%s\n' 'tfmc: 1' 'name: p' 'dims: {B: 1..8}' 'inputs: {inp: {shape: [B, 3, 64], dtype: f32}}' 'model: [{act: gelu}]' \
	'outputs: {y: x}' >pictures.yaml
fails '--context: no input of the model is a sequence of ids' \
	"$TFMC" plan pictures.yaml --context=4
status=0
"${generate[@]}" --n-ctx=8 2>log || status=$?
[ $status = 2 ] && grep -q 'did you mean --context' log

# Tables of learned positions stay those of the file; source and target are bounded.
seq2seq=$TFMC_SOURCE/tests/golden/torch_seq2seq/model.yaml
"$TFMC" generate "$seq2seq" --tokens 5,6,7 --max-tokens 4 --print-tokens "${quick[@]}" >want
"$TFMC" generate "$seq2seq" --tokens 5,6,7 --max-tokens 4 --print-tokens "${quick[@]}" --context=6 | cmp - want
fails 'the source has 7 ids; 1 to 6 are possible' \
	"$TFMC" generate "$seq2seq" --tokens 5,6,7,8,9,5,6 --context=6 "${quick[@]}"

# A linked program.
"$TFMC" long --name=long_ "${quick[@]}" -o long.o --weights=file
cat >main.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tfmc_rt.h>
#include "long.h"

static long resident(void)
{
	char line[256];
	long kb = -1;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmHWM:", 6))
			kb = atol(line + 6);
	if (f)
		fclose(f);
	return kb;
}

int main(void)
{
	struct tfmc_model m = long__model();
	struct tfmc_session *s;
	struct tfmc_session_options o = {.struct_size = sizeof(o), .weights_path = "long.weights"};
	long before = resident();
	if (m.state_size(1) < 200000000 || tfmc_session_open(&m, &o, &s))
		return 1;
	long opened = resident();
	int32_t prompt[] = {1, 5, 9}, out[48];
	uint64_t n;
	struct tfmc_generate_options g = {.struct_size = sizeof(g), .max_new_tokens = 48, .ignore_stop = 1};
	if (tfmc_generate(s, &g, prompt, 3, NULL, 0, out, 48, &n))
		return 2;
	printf("%ld %ld\n", opened - before, resident() - before);
	tfmc_session_close(s);
	return 0;
}
C
"$CC" -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -I. -I"$TFMC_SOURCE/runtime" main.c long.o \
	"$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread ${TFMC_LINK_FLAGS:-} -o main
./main >out
read -r opened generated <out
[ "$opened" -lt 1000 ] && [ "$generated" -lt 20000 ] || {
	echo "kB after opening and generating: $opened, $generated" >&2
	exit 1
}
