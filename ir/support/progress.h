/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long operations: the operation calls progress_report after each piece, the callback decides whether and
 * how it is shown. */
#ifndef TFMC_IR_SUPPORT_PROGRESS_H
#define TFMC_IR_SUPPORT_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

struct progress_state {
	const char *name; /* of the stage, a literal */
	const char *unit; /* of done and total, in the plural; NULL: bytes */
	uint64_t done, total;
};

struct progress {
	void (*report)(void *user, const struct progress_state *s);
	void *user;
};

/* progress may be NULL. */
static inline void progress_report(const struct progress *progress, const char *name, const char *unit,
                                   uint64_t done, uint64_t total)
{
	const struct progress_state s = {name, unit, done, total};
	if (progress != NULL)
		progress->report(progress->user, &s);
}

#endif
