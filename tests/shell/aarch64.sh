#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Objects for aarch64, made on any machine: the dates program, with a cross compiler and under an emulator,
# says what `tfmc generate` says here; the results have the same bits for every number of workers.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do
	if ! command -v "$tool" >/dev/null; then
		echo "SKIPPED: $tool is absent (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)"
		exit 77
	fi
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=$TFMC_SOURCE/examples/dates/model.yaml
warnings='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wvla -Werror'

"$TFMC" "$model" --target=aarch64-linux-gnu -o "$tmp/dates.o"
cp "$tmp/dates.o" "$tmp/first.o"
"$TFMC" "$model" -mcpu=aarch64 -o "$tmp/dates.o"
cmp "$tmp/first.o" "$tmp/dates.o"
bash "$TFMC_SOURCE/tests/object_audit.sh" "$tmp/dates.o" dates

# shellcheck disable=SC2086
cross() { aarch64-linux-gnu-gcc -std=c17 -O2 -ffp-contract=off $warnings -I"$TFMC_SOURCE" -I"$TFMC_SOURCE/runtime" -I"$tmp" "$@"; }
mkdir "$tmp/runtime"
(cd "$tmp/runtime" && cross -c "$TFMC_SOURCE"/runtime/*.c)
build() { cross -static -pthread "$1" "$tmp/dates.o" "$tmp"/runtime/*.o -o "$2"; } # SOURCE PROGRAM
build "$TFMC_SOURCE/examples/dates/main.c" "$tmp/dates"

cat >"$tmp/samples" <<'TEXT'
the 3rd of March, 2021
3/3/21
Weds 3 Mar 2021
December 31, 1999
1 Jan 2000
29 February 2024
Sunday, 7 July 1985
07.07.1985
4 Oct 57
the 11th of November, 1918
2001-09-09
5 May 2005
June 1st, 2010
30.11.1963
TEXT
"$TFMC" generate "${quick[@]}" "$model" --prompt-file "$tmp/samples" >"$tmp/here"
qemu-aarch64-static "$tmp/dates" <"$tmp/samples" >"$tmp/printed"
sed 's/.* -> //' "$tmp/printed" >"$tmp/there"
diff "$tmp/here" "$tmp/there"
[ "$(wc -l <"$tmp/there")" -eq "$(wc -l <"$tmp/samples")" ]

# All positions of three sequences of different lengths: hidden states and logits as bits.
cat >"$tmp/bits.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tfmc_rt.h"
#include "dates.h"
enum { B = 3, S = 23, T = 9 };
static int32_t src[B * S], tgt[B * T], lengths[B] = {S, 1, 14}, decoder_lengths[B] = {5, T, 1};
static float memory[B * S * 96], logits[B * T * 15];
int main(int argc, char **argv)
{
	struct tfmc_model model = dates_model();
	struct tfmc_session_options options = {.struct_size = sizeof(options), .batch = B};
	struct tfmc_session *session;
	const int64_t dims[] = {B, S, T};
	struct tfmc_buffer in[] = {
	        {src, B * S}, {tgt, B * T}, {lengths, B}, {decoder_lengths, B}};
	struct tfmc_buffer out[] = {{memory, B * S * 96}, {logits, B * T * 15}};
	options.workers = argc > 1 ? atoi(argv[1]) : 1;
	options.driver = argc > 2 ? TFMC_DRIVER_PARALLEL_FOR : TFMC_DRIVER_SPMD;
	for (int i = 0; i < B * S; i++)
		src[i] = i * 31 % 74;
	for (int i = 0; i < B * T; i++)
		tgt[i] = i * 7 % 15;
	int status = tfmc_session_open(&model, &options, &session);
	if (!status)
		status = tfmc_session_call(session, tfmc_entry_find(model.record, "run"), dims, in, out);
	for (int i = 0; i < B * S * 96; i++) {
		uint32_t bits;
		memcpy(&bits, &memory[i], 4);
		printf("%08x\n", bits);
	}
	for (int i = 0; i < B * T * 15; i++)
		printf("%a\n", (double)logits[i]);
	fprintf(stderr, "%s %s\n", tfmc_rt_status_text(status), tfmc_session_variant(session));
	tfmc_session_close(session);
	return status;
}
C
build "$tmp/bits.c" "$tmp/bits"
qemu-aarch64-static "$tmp/bits" 1 >"$tmp/bits.1"
qemu-aarch64-static "$tmp/bits" 3 >"$tmp/bits.3"
cmp "$tmp/bits.1" "$tmp/bits.3"
if [ -n "${TFMC_ALL:-}" ]; then
	qemu-aarch64-static "$tmp/bits" 2 parallel >"$tmp/bits.2"
	cmp "$tmp/bits.1" "$tmp/bits.2"
fi
[ "$(sort -u "$tmp/bits.1" | wc -l)" -gt 3000 ] # they are numbers, not one value

# Levels: the words of the system decide, in the object and in tfmc itself; the same bits where only f32 is computed.
"$TFMC" "$model" --target=aarch64-linux-gnu "${quick[@]}" --variants=aarch64,armv8.2-dotprod,armv8.6 -o "$tmp/dates.o"
build "$tmp/bits.c" "$tmp/levels"
cat >"$tmp/native.c" <<'C'
#include <stdio.h>
#include "ir/target/target.h"
int main(void)
{
	puts(target_native()->name);
	return 0;
}
C
# shellcheck disable=SC2086
aarch64-linux-gnu-gcc -std=c17 -O2 $warnings -I"$TFMC_SOURCE" -static "$tmp/native.c" \
	"$TFMC_SOURCE"/ir/{target,types,support}/*.c -lm -o "$tmp/native"
for row in cortex-a72:aarch64 cortex-a76:armv8.2-dotprod max:armv8.6; do
	qemu-aarch64-static -cpu "${row%:*}" "$tmp/levels" 1 >"$tmp/bits.level" 2>"$tmp/said"
	cmp "$tmp/bits.1" "$tmp/bits.level"
	[ "$(awk '{ print $NF }' "$tmp/said")" = "${row#*:}" ] || { cat "$tmp/said" >&2; exit 1; }
	said=$(qemu-aarch64-static -cpu "${row%:*}" "$tmp/native")
	[ "$said" = "${row#*:}" ] || { echo "tfmc on ${row%:*} is $said" >&2; exit 1; }
done
