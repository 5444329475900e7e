#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Repeats three deep (tests/golden/torch_nested) through the other driver: a parallel_for that runs the workers of every
# group one after the other, the last one first, gives the bits of a single worker; as an object and as C.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=$TFMC_SOURCE/tests/golden/torch_nested/model.yaml
"$TFMC" "$model" "${quick[@]}" -o "$tmp/torch_nested.o"
"$TFMC" "$model" -mcpu=x86-64-v2 --emit=c="$tmp/torch_nested.c"
cat >"$tmp/main.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "torch_nested.h"

static void backwards(void *user, int64_t n, tfmc_task_fn *fn, void *arg)
{
	++*(int *)user;
	for (int64_t i = n; i-- > 0;)
		fn(arg, i, n);
}

static int run(int64_t workers, int *calls, float *out)
{
	static const int32_t ids[] = {1, 9, 4, 17, 3, 22, 8};
	struct torch_nested_context context = {{0}};
	struct tfmc_config c = {.struct_size = sizeof(c), .workers = workers, .parallel_for = backwards, .user = calls};
	c.arena_bytes = TORCH_NESTED_ARENA_BYTES_MAX(workers);
	c.state_bytes = TORCH_NESTED_STATE_BYTES(1);
	c.arena = aligned_alloc(64, (c.arena_bytes + 63) / 64 * 64);
	c.state = aligned_alloc(64, (c.state_bytes + 63) / 64 * 64);
	struct torch_nested_run_args all = {.B = 1, .S = 7, .input_ids = ids, .input_ids_count = 7, .logits = out, .logits_count = 7 * 31};
	int status = torch_nested_init(&context, &c);
	if (!status)
		status = torch_nested_run(&context, &all);
	for (int i = 0; !status && i < 7; i++) {
		struct torch_nested_step_args one = {.B = 1, .input_ids = ids + i, .input_ids_count = 1,
		                                     .logits = out + (7 + i) * 31, .logits_count = 31};
		status = torch_nested_step(&context, &one);
	}
	free(c.arena);
	free(c.state);
	return status;
}

int main(void)
{
	static float want[14 * 31], got[14 * 31];
	int calls = 0;
	if (run(1, &calls, want) || calls != 0)
		return 1;
	for (int64_t workers = 2; workers <= 5; workers++)
		if (run(workers, &calls, got) || calls == 0 || memcmp(want, got, sizeof(want))) {
			printf("%d workers: other bits, or none\n", (int)workers);
			return 1;
		}
	for (int i = 0; i < 7 * 31; i++)
		if (want[i] - want[7 * 31 + i] > 1e-4f || want[7 * 31 + i] - want[i] > 1e-4f) {
			printf("step differs from run at %d: %g, %g\n", i, (double)want[i], (double)want[7 * 31 + i]);
			return 1;
		}
	return 0;
}
C
for form in torch_nested.o torch_nested.c; do
	"$CC" -std=c17 -O0 -w -Wno-psabi -I"$tmp" "$tmp/main.c" "$tmp/$form" -lm -o "$tmp/main"
	"$tmp/main"
done
