#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How many instructions the key kernels (tests/kernels, those of constant size) execute for x86-64-v3, by
# callgrind, function by function: each within 3 % of instruction_counts.expected. Counts are exact and know
# nothing of caches or of clocks: a change is a change of the code. Fewer is progress, but the table must say so:
# `instruction_counts.sh --write` writes it.
set -euo pipefail
: "${TFMC:?}" "${TFMC_SOURCE:?}" "${TFMC_BUILD:?}"
expected=$TFMC_SOURCE/tests/shell/instruction_counts.expected
if ! command -v valgrind >/dev/null; then
	echo "SKIPPED: no valgrind, instructions of kernels are not counted" >&2
	exit 0
fi
if ! grep -qw avx2 /proc/cpuinfo || ! grep -qw fma /proc/cpuinfo; then
	echo "SKIPPED: this processor does not run x86-64-v3, instructions of kernels are not counted" >&2
	exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

rows=()
for file in "$TFMC_SOURCE"/tests/kernels/*.tir; do
	kernel=$(basename "$file" .tir)
	! grep -q '^dim ' "$file" || continue
	"$TFMC" "$file" -o "$tmp/$kernel.o" -mcpu=x86-64-v3 --weights=embed
	${CC:-cc} -shared "$tmp/$kernel.o" -o "$tmp/$kernel.so"
	rows+=("$kernel,$tmp/$kernel.so,$kernel,1")
done
valgrind -q --tool=callgrind --callgrind-out-file="$tmp/out" "$TFMC_BUILD/tests/tfmc_rowwise" 0 "${rows[@]}"
# KERNEL INSTRUCTIONS, of the kernel's own function and what it calls.
callgrind_annotate --inclusive=yes --threshold=100 "$tmp/out" |
	sed -nE 's/^ *([0-9,]+) .*[:?]([a-z_0-9]+)\.run\.0\.[a-z]+\.kernel.*/\2 \1/p' | tr -d , | sort -u >"$tmp/now"
[ "$(wc -l <"$tmp/now")" -eq "${#rows[@]}" ] || { echo "a kernel was not counted:" >&2; cat "$tmp/now" >&2; exit 1; }
if [ "${1:-}" = --write ]; then
	cp "$tmp/now" "$expected"
	exit 0
fi
join -a1 -a2 -e- -o 0,1.2,2.2 "$expected" "$tmp/now" | awk '
	$2 == "-" || $3 == "-" { print $1 ": " $2 " expected, " $3 " now"; bad = 1; next }
	$3 > 1.03 * $2 || $3 < 0.97 * $2 {
		printf "%s: %d instructions, expected are %d (%+.1f %%)\n", $1, $3, $2, 100 * ($3 / $2 - 1); bad = 1
	}
	END { exit bad }' >&2
