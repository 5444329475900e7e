/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the table: rows, cells, the comparison of one case.
 */
#ifndef TFMC_TESTS_MATRIX_TABLE_H
#define TFMC_TESTS_MATRIX_TABLE_H

#include "tests/matrix/column.h"

#define COLUMNS_MAX 16

enum outcome { OUTCOME_OK, OUTCOME_REFUSED, OUTCOME_FAILED, N_OUTCOMES };

struct cell {
	size_t n[N_OUTCOMES]; /* calls */
	bool differs;         /* some result is not the interpreter's to the bit */
	double worst;         /* fraction of the bound */
};

struct row {
	const char *name;
	int code;     /* of an op; -1: programs, examples */
	bool has_own; /* cases of its own; other ops count where programs and examples contain them */
	struct cell cells[COLUMNS_MAX];
};

struct table {
	struct suite *s;
	struct {
		struct row *items;
		size_t n, cap;
	} rows;
	bool has_column[COLUMNS_MAX];
	size_t n[N_OUTCOMES], n_failed;
	struct buf failures;
};

struct comparison {
	bool differs;
	double worst;
	const char *why; /* the first element beyond its bound; NULL: none */
};

/* `data`: the outputs as the runner wrote them. */
struct comparison compare_case(struct arena *a, const struct matrix_case *c, const char *data);

#endif
