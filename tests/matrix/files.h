/* SPDX-License-Identifier: Apache-2.0 */
/*
* File format shared by tfmc_matrix and the runner, see frontend/syntax/files.c. The runner sees the
 * constants only.
 */
#ifndef TFMC_TESTS_MATRIX_FILES_H
#define TFMC_TESTS_MATRIX_FILES_H

#define MATRIX_MAGIC     0x3178697274616dull /* "matrix1" */
#define MATRIX_SEQUENCES 3                   /* of a state */

/* Statuses beside those of runtime/abi.h. */
#define MATRIX_ABSENT   1000 /* the column has no such model or entry */
#define MATRIX_GUARD    1001 /* memory beside a buffer was written */
#define MATRIX_INPUT    1002 /* an input was written */
#define MATRIX_MISMATCH 1003 /* the record says other sizes than the module */

#ifndef MATRIX_RUNNER
#include "ir/interp/interp.h"

void put_bytes(struct buf *b, const void *bytes, size_t n);
bool put_tensor(struct arena *a, struct buf *b, const struct interp_tensor *t);
#endif

#endif
