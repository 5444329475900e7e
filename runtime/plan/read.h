/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a plan (format.h) where it lies: nothing is copied or allocated. Bytes may come from anywhere: what
 * tfmc_plan_open accepts is safe to read by all functions here, and its steps are safe to walk.
 */
#ifndef TFMC_RUNTIME_PLAN_READ_H
#define TFMC_RUNTIME_PLAN_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/plan/format.h"

/* Cells of a row. */
extern const int tfmc_plan_columns[PLAN_SECTIONS];

struct tfmc_plan {
	const unsigned char *bytes; /* the caller's, in any alignment */
	const unsigned char *section[PLAN_SECTIONS];
	int64_t rows[PLAN_SECTIONS];
	const char *names;
};

/*
 * NULL when the bytes are a whole plan: every row, name, area and formula that anything refers to exists; steps are
 * nested, each kernel's arguments are its areas, dims and repeats that are open around it. Otherwise what is wrong.
 */
const char *tfmc_plan_open(const void *bytes, size_t n, struct tfmc_plan *out);

int64_t tfmc_plan_header(const struct tfmc_plan *p, enum plan_header word);
/* row in [0, p->rows[s]), column one of those of the section. */
int64_t tfmc_plan_cell(const struct tfmc_plan *p, enum plan_section s, int64_t row, int column);
const char *tfmc_plan_name(const struct tfmc_plan *p, int64_t name);
/* The formula for these dims, one for each row of DIMS. False: it overflows. */
bool tfmc_plan_eval(const struct tfmc_plan *p, int64_t formula, const int64_t *dims, int64_t *out);
/* Bytes [*begin, *begin + *bytes) of the area's memory in these turns of the repeats around it [PLAN_REPEATS]; of
 * scratch the bytes are for one worker. False: they overflow, or are negative. */
bool tfmc_plan_area(const struct tfmc_plan *p, int64_t area, const int64_t *dims, const int64_t *turns,
                    int64_t *begin, int64_t *bytes);

#endif
