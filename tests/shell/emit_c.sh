#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The dates model as portable C: compiled by gcc alone and by clang alone, with and without vector
# instructions beyond the baseline, it translates as `tfmc generate` does. Text and header are deterministic,
# warnings are errors, and the compiled file has the object's symbols and no others.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=$TFMC_SOURCE/examples/dates/model.yaml
dates=("the 3rd of March, 2021" "3/3/21" "Weds 3 Mar 2021" "july 4 1999")
"$TFMC" "$model" -mcpu=x86-64-v2 --emit=c="$tmp/dates.c",header="$tmp/dates.h"
mkdir "$tmp/again"
"$TFMC" "$model" -mcpu=x86-64-v2 --emit=c="$tmp/again/dates.c",header="$tmp/again/dates.h"
cmp "$tmp/dates.c" "$tmp/again/dates.c"
cmp "$tmp/dates.h" "$tmp/again/dates.h"
for date in "${dates[@]}"; do
	"$TFMC" generate "$model" --prompt "$date"
done >"$tmp/expected"
cat "$tmp/expected"

check() { # compiler and its flags
	"$@" -Wall -Wextra -Werror -Wno-psabi -c "$tmp/dates.c" -o "$tmp/dates.o"
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
	compilers=$((compilers + 1))
fi
if command -v clang-19 >/dev/null; then
	check clang-19 -O2 -std=gnu17
	compilers=$((compilers + 1))
fi
[ "$compilers" -gt 0 ]

# Vectors of eight floats, for processors that have them and, split by the compiler, for those that have not.
if grep -q avx2 /proc/cpuinfo && command -v gcc >/dev/null; then
	"$TFMC" "$model" -mcpu=x86-64-v3 --emit=c="$tmp/dates.c"
	check gcc -O2 -march=x86-64-v3
	check gcc -O1
fi

# Weights in a file: small text, and nobody puts a C file where the model is, or C into an OpenCL family.
"$TFMC" "$model" -mcpu=x86-64-v2 --weights=file --weights-out="$tmp/dates.weights" --emit=c="$tmp/small.c"
[ "$(stat -c %s "$tmp/small.c")" -lt 2000000 ]
[ -s "$tmp/dates.weights" ]
if "$TFMC" "$model" -mcpu=opencl-cpu --emit=c="$tmp/no.c" 2>"$tmp/log"; then exit 1; fi
cat "$tmp/log"
[ ! -e "$tmp/no.c" ]
