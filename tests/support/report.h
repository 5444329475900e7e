/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of a run of passes, by name.
 */
#ifndef TFMC_TESTS_SUPPORT_REPORT_H
#define TFMC_TESTS_SUPPORT_REPORT_H

#include <string.h>

#include "passes/framework/pass.h"

/* Value of a counter; 0 when the pass never counted it. */
static inline int64_t report_count(const struct pass_report *r, const char *pass, const char *name)
{
	for (size_t i = 0; i < r->counters.n; i++)
		if (strcmp(r->counters.items[i].pass, pass) == 0 &&
		    strcmp(r->counters.items[i].name, name) == 0)
			return r->counters.items[i].value;
	return 0;
}

#endif
