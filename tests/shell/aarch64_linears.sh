#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Linears of every kind of quantized activations on every level of aarch64, under an emulator: sums of integers have the same bits
# on all of them and on the machine of the test, but for Q2_K and Q3_K there, whose blocks x86 without VNNI merges before it rounds
# (tile_merges_dot_blocks); products of bf16 are near those of f32. Sizes fill no line, panel or tile.
set -euo pipefail
for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do
	if ! command -v "$tool" >/dev/null; then
		echo "SKIPPED: $tool is absent (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)"
		exit 77
	fi
done
: "${TFMC:?}" "${TFMC_SOURCE:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

# NAME FORMAT N K ROUNDING: a linear of up to 19 rows of K elements.
cases='row q8_row 37 94 {block=0}
row_odd q8_row 21 98 {block=0}
q8 q8 37 94
q6 q6_k 20 70
q5 q5 37 94
q5a q5a 21 70
q3 q3_k 33 70
q2 q2_k 37 70
q4 q4 53 94
q4_k q4_k 33 134
nl iq4_nl 37 70
shifted q4s 37 94
pairs bf16 37 94 {to=bf16}
pairs_odd bf16 21 98 {to=bf16}'
{
	echo 'module "linears"'
	echo 'dim B in [0,19]'
	while read -r name format n k rounding; do
		numbers="sinusoid(rows=$n, dim=$k, layout=halves, spacing=t2t, start=1, base=100.0)"
		made="quantize($format, $numbers)"
		[ "$format" != bf16 ] || made="round(bf16, $numbers)"
		cat <<TIR
weight @$name : f32[$n,$k] as $format = $made
func @$name(%x: f32[B,$k]) -> (y: f32[B,$n]) {
  %r = quantize_rows %x $rounding : f32[B,$k]
  %y = linear %r, @$name : f32[B,$n]
  return %y
}
TIR
	done <<<"$cases"
} >linears.tir

cat >main.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include "tfmc_rt.h"
#include "linears.h"
enum { ROWS = 19, MOST = 200 };
static float x[ROWS * MOST], y[ROWS * MOST];
int main(int argc, char **argv)
{
	struct tfmc_model model = linears_model();
	struct tfmc_session_options options = {.struct_size = sizeof(options), .batch = ROWS};
	struct tfmc_session *session;
	if (argc < 4)
		return 2;
	const int n = atoi(argv[2]), k = atoi(argv[3]);
	options.workers = 2;
	options.driver = TFMC_DRIVER_SPMD;
	int status = tfmc_session_open(&model, &options, &session);
	for (int i = 0; i < ROWS * k; i++)
		x[i] = (float)((i * 37 + i / k) % 101 - 50) / 16;
	for (int64_t rows = 1; !status && rows <= ROWS; rows += rows < 7 ? 1 : 6) {
		struct tfmc_buffer in = {x, rows * k}, out = {y, rows * n};
		status = tfmc_session_call(session, tfmc_entry_find(model.record, argv[1]), &rows, &in, &out);
		for (int64_t i = 0; i < rows * n; i++)
			printf("%d %d %.9g\n", (int)rows, (int)i, (double)y[i]);
	}
	fprintf(stderr, "%s %s\n", tfmc_rt_status_text(status), tfmc_session_variant(session));
	tfmc_session_close(session);
	return status;
}
C
build() { # COMPILER PROGRAM
	"$1" -std=c17 -O2 -ffp-contract=off -I"$TFMC_SOURCE" -I"$TFMC_SOURCE/runtime" -I. -static -pthread main.c linears.o \
		"$TFMC_SOURCE"/runtime/*.c -o "$2"
}
"$TFMC" linears.tir --quiet --target=aarch64-linux-gnu --variants=aarch64,armv8.2-dotprod,armv8.6 -o linears.o
build aarch64-linux-gnu-gcc levels
levels='cortex-a72:aarch64 cortex-a76:armv8.2-dotprod max:armv8.6'
if grep -qw fma /proc/cpuinfo; then
	"$TFMC" linears.tir --quiet -o linears.o
	build "${CC:-cc}" here
	levels="$levels here:"
fi

checked=0
while read -r name format n k _; do
	for level in $levels; do
		cpu=${level%:*}
		run=(./here)
		[ "$cpu" = here ] || run=(qemu-aarch64-static -cpu "$cpu" ./levels)
		"${run[@]}" "$name" "$n" "$k" >"$name.$cpu" 2>said
		[ -z "${level#*:}" ] || [ "$(awk '{ print $NF }' said)" = "${level#*:}" ] || { cat said >&2; exit 1; }
		[ "$(sort -u -k3 "$name.$cpu" | wc -l)" -gt 200 ] # they are numbers, not one value
		# Sums of up to 98 products of numbers below 4 and 1: of parts with 8 bits; or with two roundings of 2^-24 for each of up
		# to 5 blocks in either order.
		case $format:$cpu in
		bf16:*) bound=1e-3 ;;
		q[23]_k:here) bound=$(awk "BEGIN { print 2 * 2 * 5 * $k * 4 / 2 ^ 24 }") ;;
		*) bound=0 ;;
		esac
		if [ "$bound" != 0 ]; then
			paste "$name.cortex-a72" "$name.$cpu" |
				awk -v bound="$bound" '{ d = $3 - $6; if (d > bound || d < -bound) { print; bad = 1 } } END { exit bad }'
		else
			cmp "$name.cortex-a72" "$name.$cpu"
		fi
		checked=$((checked + 1))
	done
	# The same rows give the same bits, however many there are.
	awk -v n="$n" '{ at = $2; if (at in seen && seen[at] != $3) { print "row", $0, seen[at]; bad = 1 } seen[at] = $3 }
		END { exit bad }' "$name.max"
done <<<"$cases"
echo "$checked results on levels"
