/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the libraries: chains of calls that give a status, 0 where all is well.
 */
#ifndef TFMC_RUNTIME_TRY_H
#define TFMC_RUNTIME_TRY_H

/* Returns the status from the enclosing function unless it is 0: where nothing has to be given back. */
#define TRY(expr)                       \
	do {                            \
		int status_ = (expr);   \
		if (status_ != 0)       \
			return status_; \
	} while (0)

#endif
