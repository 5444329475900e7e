#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A prefix whose positions see each other comes in one call, however small calls were asked to be: the logits behind
# a prompt of 7 ids (the first 4 of tests/golden/torch_sinks are such a prefix) are those of a single call.
# Fewer ids than the prefix has are refused.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$TFMC" "$TFMC_SOURCE/tests/golden/torch_sinks/model.yaml" -o "$tmp/torch_sinks.o"
cat >"$tmp/main.c" <<'C'
#include <stdio.h>
#include <string.h>
#include "tfmc_rt.h"
#include "torch_sinks.h"

/* 0: the logits behind the prompt in calls of so many tokens are in `out` */
static int behind(int64_t call_tokens, uint64_t n, float *out)
{
	static const int32_t prompt[] = {1, 9, 4, 17, 3, 22, 8};
	struct tfmc_model model = torch_sinks_model();
	struct tfmc_session_options o = {.struct_size = sizeof(o), .batch = 1, .call_tokens = call_tokens};
	struct tfmc_session *session = NULL;
	struct tfmc_slots *slots = NULL;
	int64_t slot;
	int status = tfmc_session_open(&model, &o, &session);
	if (!status)
		status = tfmc_slots_open(session, &slots);
	if (!status)
		status = tfmc_slots_join(slots, prompt, n, NULL, 0, &slot);
	if (!status)
		memcpy(out, tfmc_slots_logits(slots, slot), 31 * sizeof(*out));
	tfmc_slots_close(slots);
	tfmc_session_close(session);
	return status;
}

int main(void)
{
	float want[31], got[31];
	if (behind(0, 7, want))
		return 1;
	for (int64_t tokens = 1; tokens <= 7; tokens++)
		if (behind(tokens, 7, got) || memcmp(want, got, sizeof(want))) {
			printf("calls of %d tokens differ\n", (int)tokens);
			return 1;
		}
	return behind(0, 3, got) != TFMC_RT_E_PROMPT;
}
C
"$CC" -std=c17 -Wall -Wextra -Werror -I"$TFMC_SOURCE/runtime" -I"$tmp" "$tmp/main.c" "$tmp/torch_sinks.o" \
	"$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread -lm ${TFMC_LINK_FLAGS:-} -o "$tmp/main"
"$tmp/main"
