#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The innermost loops of the key kernels (tests/kernels) keep to the registers: in the assembly for every level of
# x86-64 and for aarch64, no loop that multiplies writes or reads a register that had no place, but for what
# `allowed` lists. A kernel without such loops fails too: then nothing was looked at.
# The short run takes two targets of each kernel in turn.
#   spills.sh          compares; on failure prints FUNCTION LOOPS LARGEST SPILLS of the kernel
#   spills.sh --list   prints that for every kernel and target
set -euo pipefail
: "${TFMC:?}" "${TFMC_SOURCE:?}"
cd "$TFMC_SOURCE"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# KERNEL TARGET SPILLS: what is there and known. Exponentials of several vectors at once and their constants are more than
# 16 registers hold; where rows of a tile of attention see different keys and are not
# even (a tile over the border of two blocks), sums of six rows, a line of values and a mask are more than the registers of
# aarch64 and v3, and addresses wait on the stack. x86-64-v2 has no conversion of f16: integer code, whose
# numbers in between are more than it has registers; the address of prefetches that end with the weights waits there,
# too. Codes of one row take as many panels side by side as hide the latency of sums: the scales of their blocks wait on
# the stack, as operands in memory. Keys or values of 16 bits are converted in halves on aarch64, which takes registers
# that sums have. So do bytes there that no instruction multiplies. A group of 6 bits is unrolled, since its last word
# is in pieces: without an instruction that multiplies bytes, sums wait on the stack, and on x86 factors of super-blocks,
# as operands in memory. Weights of taps, which x86-64-v2
# cannot load into all lanes, are splat before the loop and wait there.
allowed='
log_softmax x86-64-v3 1
softmax x86-64-v2 1
softmax x86-64-v3 3
tanh x86-64-v3 1
attention_any aarch64 18
attention_any x86-64-v3 6
attention_any x86-64-v4 2
attention_causal aarch64 18
attention_causal x86-64-v3 4
attention_causal x86-64-v4 2
attention_narrow aarch64 14
linear_any_bf16 x86-64-v2 1
linear_any_bf16 x86-64-v4 1
linear_rows_12_bf16 x86-64-v2 1
linear_any_f16 x86-64-v2 102
linear_any_q8_integers aarch64 66
linear_any_q4_integers aarch64 134
linear_rows_1_q6_integers x86-64-v2 21
linear_rows_1_q6_integers x86-64-v3 24
linear_rows_1_q6_integers aarch64 55
linear_rows_1_q4 x86-64-v2 14
linear_rows_1_q4 x86-64-v3 125
linear_rows_1_f16 x86-64-v2 54
linear_rows_12_f16 x86-64-v2 70
taps x86-64-v2 11
'
no_products=' embedding argmax '

bad=0 turn=0
for file in tests/kernels/*.tir; do
	kernel=$(basename "$file" .tir)
	[[ $no_products != *" $kernel "* ]] || continue
	turn=$((turn + 1))
	targets=(x86-64-v2 x86-64-v3 x86-64-v4 aarch64)
	[ -n "${TFMC_ALL:-}" ] || [ $# -gt 0 ] || targets=("${targets[turn % 2]}" "${targets[turn % 2 + 2]}")
	for target in "${targets[@]}"; do
		"$TFMC" "$file" --emit=asm="$tmp/asm" -mcpu=$target
		awk -f tests/shell/loops.awk "$tmp/asm" >"$tmp/loops"
		[ "${1:-}" != --list ] || sed "s/^/$target /" "$tmp/loops"
		limit=$(awk -v k="$kernel" -v t=$target '$1 == k && $2 == t { print $3 }' <<<"$allowed")
		read -r spills largest < <(awk '{ s += $4; if ($3 > m) m = $3 } END { print s + 0, m + 0 }' "$tmp/loops")
		if [ "$largest" -lt 4 ] || [ "$spills" -gt "${limit:-0}" ]; then
			echo "$kernel for $target: $spills spills in loops, ${limit:-0} are allowed; $largest products at most" >&2
			cat "$tmp/loops" >&2
			bad=1
		fi
	done
done
exit $bad
