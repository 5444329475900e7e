/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logits of a prompt and of as many greedy steps after it as an argument says: `steps COUNT ID..`, one line of numbers
 * for each call. For the object m.o of a model with the tokens input_ids (tests/onnx/exports.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m.h"

static int32_t print_best(const float *logits, int n)
{
	int best = 0;
	for (int i = 0; i < n; i++) {
		printf("%s%.9g", i > 0 ? " " : "", (double)logits[i]);
		best = logits[i] > logits[best] ? i : best;
	}
	printf("\n");
	return best;
}

int main(int argc, char **argv)
{
	enum { VOCAB = 101, IDS = 64 };
	float logits[VOCAB];
	int32_t ids[IDS], n = 0;
	struct m_context context;
	for (int i = 2; i < argc && n < IDS; i++)
		ids[n++] = (int32_t)atoi(argv[i]);
	struct tfmc_config config = {.struct_size = sizeof(config), .batch = 1};
	config.state_bytes = m_state_size(1);
	config.arena_bytes = m_arena_size(1, IDS, 1);
	config.state = aligned_alloc(64, (config.state_bytes + 63) / 64 * 64);
	config.arena = aligned_alloc(64, (config.arena_bytes + 63) / 64 * 64);
	if (argc < 3 || config.state == NULL || config.arena == NULL || m_init(&context, &config) != 0)
		return 1;
	const struct m_prefill_args prompt = {.batch = 1,
	                                      .seq = n,
	                                      .input_ids = ids,
	                                      .input_ids_count = (uint64_t)n,
	                                      .logits = logits,
	                                      .logits_count = VOCAB};
	int status = m_prefill(&context, &prompt);
	for (int i = 0; status == 0 && i < atoi(argv[1]); i++) {
		int32_t next = print_best(logits, VOCAB);
		const struct m_step_args step = {.batch = 1,
		                                 .input_ids = &next,
		                                 .input_ids_count = 1,
		                                 .logits = logits,
		                                 .logits_count = VOCAB};
		status = m_step(&context, &step);
	}
	if (status == 0)
		print_best(logits, VOCAB);
	free(config.state);
	free(config.arena);
	return status;
}
