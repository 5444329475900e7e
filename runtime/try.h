/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: early return for functions that return a status code (0: success).
 */
#ifndef TFMC_RUNTIME_TRY_H
#define TFMC_RUNTIME_TRY_H

/* Returns the status of expr from the enclosing function unless it is 0. Only where nothing has to be
 * released. */
#define TRY(expr)                       \
	do {                            \
		int status_ = (expr);   \
		if (status_ != 0)       \
			return status_; \
	} while (0)

#endif
