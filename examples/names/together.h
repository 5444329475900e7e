/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many names at once, on the slots of a session: together.c.
 */
#ifndef TFMC_EXAMPLES_NAMES_TOGETHER_H
#define TFMC_EXAMPLES_NAMES_TOGETHER_H

#include "tfmc_rt.h"

#define MADE_MAX 32

/* A name: its letters, the stop id included. */
struct made {
	int32_t ids[MADE_MAX];
	uint64_t n;
};

/* `count` names to out [count], with the seeds sample->seed and so on; as many at a time as the session has
 * sequences. Gives a status code. */
int make_together(struct tfmc_session *session, const struct tfmc_sample_options *sample, uint64_t count,
                  struct made *out);

#endif
