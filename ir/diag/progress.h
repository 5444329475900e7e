/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What long work tells while it goes on. Who works calls progress_report after each piece; who listens decides
 * whether and how it is shown.
 */
#ifndef TFMC_IR_DIAG_PROGRESS_H
#define TFMC_IR_DIAG_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

/* What is done of one stage. `name` is that of the stage, a literal. */
struct progress_state {
	const char *name;
	const char *unit; /* of done and total, in the plural; NULL: bytes */
	uint64_t done, total;
};

struct progress {
	void (*tell)(void *user, const struct progress_state *s);
	void *user;
};

/* progress NULL: nobody listens. */
static inline void progress_report(const struct progress *progress, const char *name, const char *unit,
                                   uint64_t done, uint64_t total)
{
	const struct progress_state s = {name, unit, done, total};
	if (progress != NULL)
		progress->tell(progress->user, &s);
}

#endif
