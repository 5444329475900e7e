#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The dates model as portable C: compiled by gcc alone and by clang alone, with and without vector
# instructions beyond the baseline, it translates as `tfmc generate` does. Text and header are deterministic,
# warnings are errors, and the compiled file has the object's symbols and no others. Without -mcpu it is for every
# machine of the arch: gcc compiles it without a word in at most five times what the object takes.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=$TFMC_SOURCE/examples/dates/model.yaml
dates=("the 3rd of March, 2021" "3/3/21" "Weds 3 Mar 2021" "july 4 1999")
"$TFMC" "$model" -mcpu=x86-64-v2 --emit=c="$tmp/dates.c",header="$tmp/dates.h"
mkdir "$tmp/again"
"$TFMC" "$model" -mcpu=x86-64-v2 --emit=c="$tmp/again/dates.c",header="$tmp/again/dates.h"
cmp "$tmp/dates.c" "$tmp/again/dates.c"
cmp "$tmp/dates.h" "$tmp/again/dates.h"
# Without -mcpu the text is that for the least processor; beside an object it is for the object's.
least=x86-64-v2
[ "$(uname -m)" = x86_64 ] || least=aarch64
"$TFMC" "$model" -mcpu=$least --emit=c="$tmp/least.c"
"$TFMC" "$model" --emit=c="$tmp/plain.c",header="$tmp/plain.h"
cmp "$tmp/plain.c" "$tmp/least.c"
"$TFMC" "$model" -mcpu=native "${quick[@]}" --emit=c="$tmp/native.c",obj="$tmp/native.o"
"$TFMC" "$model" "${quick[@]}" --emit=c="$tmp/both.c",obj="$tmp/both.o"
cmp "$tmp/native.c" "$tmp/both.c"
# C has no matrix tiles: alone it is for the level below, beside code with tiles it is refused.
rounded=("$model" --target=x86_64-linux-gnu --quantize=q8_row)
"$TFMC" "${rounded[@]}" -mcpu=x86-64-v4-amx --emit=c="$tmp/tiles.c"
"$TFMC" "${rounded[@]}" -mcpu=x86-64-v4-bf16 --emit=c="$tmp/level.c"
cmp "$tmp/tiles.c" "$tmp/level.c"
code=0
"$TFMC" "${rounded[@]}" -mcpu=x86-64-v4-amx --emit=c="$tmp/no.c",obj="$tmp/no.o" 2>"$tmp/refused" || code=$?
[ $code = 1 ] && [ ! -e "$tmp/no.c" ] && [ ! -e "$tmp/no.o" ]
grep -q "matrix tiles in C: choose a level without them, such as -mcpu=x86-64-v4-bf16 \[E700\]" "$tmp/refused"
for date in "${dates[@]}"; do
	"$TFMC" generate "$model" "${quick[@]}" --prompt "$date"
done >"$tmp/expected"
cat "$tmp/expected"

# seconds FILE COMMAND: the time of the processor that the command took goes to the file, what it says to $tmp/said
seconds() {
	local TIMEFORMAT=%U to=$1
	shift
	{ time "$@" >"$tmp/said" 2>&1; } 2>"$to" || { cat "$tmp/said"; return 1; }
}

check() { # compiler and its flags
	seconds "$tmp/c_time" "$@" -Wall -Wextra -Werror -c "$tmp/dates.c" -o "$tmp/dates.o"
	[ ! -s "$tmp/said" ] || { cat "$tmp/said"; exit 1; }
	"$CC" -std=c17 -I"$TFMC_SOURCE/runtime" -I"$tmp" "$TFMC_SOURCE/examples/dates/main.c" "$tmp/dates.o" \
		"$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/dates"
	"$tmp/dates" "${dates[@]}" | sed 's/.*-> //' >"$tmp/out"
	diff "$tmp/expected" "$tmp/out"
	nm -g --defined-only "$tmp/dates.o" | awk '{print $3}' | { ! grep -v '^dates_'; }
	nm -u "$tmp/dates.o" | awk '{print $2}' | { ! grep -vx 'memcpy\|memset'; }
	for symbol in record init reset trim fork select reorder call arena_bytes state_bytes status_text; do
		nm -g --defined-only "$tmp/dates.o" | grep -q " dates_$symbol\$"
	done
}

compilers=0
if command -v gcc >/dev/null; then
	check gcc -O2 -std=c17
	seconds "$tmp/object_time" "$TFMC" "$model" -o "$tmp/object.o"
	awk -v c="$(cat "$tmp/c_time")" -v object="$(cat "$tmp/object_time")" \
		'BEGIN { print "gcc -O2: " c " s, the object: " object " s"; exit !(c <= 5 * object) }'
	compilers=$((compilers + 1))
fi
if command -v clang-19 >/dev/null; then
	check clang-19 "$optimize" -std=gnu17
	compilers=$((compilers + 1))
fi
[ "$compilers" -gt 0 ]

# Vectors of eight floats, for processors that have them and, split by the compiler, for those that have not.
if grep -q avx2 /proc/cpuinfo && command -v gcc >/dev/null; then
	"$TFMC" "$model" -mcpu=x86-64-v3 --emit=c="$tmp/dates.c"
	[ -z "${TFMC_ALL:-}" ] || check gcc "$optimize" -march=x86-64-v3
	check gcc "$optimize" -Wno-psabi
fi

# Weights in a file: small text, and no C file is written next to the model, or C for OpenCL.
"$TFMC" "$model" -mcpu=x86-64-v2 --weights=file --weights-out="$tmp/dates.weights" --emit=c="$tmp/small.c"
[ "$(stat -c %s "$tmp/small.c")" -lt 2000000 ]
[ -s "$tmp/dates.weights" ]
if "$TFMC" "$model" -mcpu=opencl-gpu --emit=c="$tmp/no.c" 2>"$tmp/log"; then exit 1; fi
cat "$tmp/log"
[ ! -e "$tmp/no.c" ]
