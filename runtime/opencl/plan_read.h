/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads serialized plans (plan_format.h) in place: nothing is copied or allocated. The bytes are not trusted: once
 * tfmc_plan_open accepts them, all functions here are safe to call, and the commands are safe to execute.
 */
#ifndef TFMC_RUNTIME_OPENCL_PLAN_READ_H
#define TFMC_RUNTIME_OPENCL_PLAN_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/opencl/plan_format.h"

/* Columns of each section. */
extern const int tfmc_plan_columns[PLAN_SECTIONS];

struct tfmc_plan {
	const unsigned char *bytes; /* the caller's memory, of any alignment */
	const unsigned char *section[PLAN_SECTIONS];
	int64_t rows[PLAN_SECTIONS];
	const char *names;
};

/* Checks a plan and opens it. Returns NULL, or a message about the first error. Every row, name, area and
 * formula that is referred to exists; commands are properly nested; arguments of each kernel are its areas,
 * dims, and indices of open repeats. */
const char *tfmc_plan_open(const void *bytes, size_t n, struct tfmc_plan *out);

int64_t tfmc_plan_header(const struct tfmc_plan *p, enum plan_header word);
/* row in [0, p->rows[s]), column in [0, tfmc_plan_columns[s]). */
int64_t tfmc_plan_cell(const struct tfmc_plan *p, enum plan_section s, int64_t row, int column);
const char *tfmc_plan_name(const struct tfmc_plan *p, int64_t name);
/* Evaluates a formula at `dims` [rows of DIMS]. False: overflow. */
bool tfmc_plan_eval(const struct tfmc_plan *p, int64_t formula, const int64_t *dims, int64_t *out);
/* The bytes [*begin, *begin + *bytes) of an area in its memory, at the indices of the enclosing repeats
 * [PLAN_REPEATS]; of scratch *bytes is per worker. False: overflow, or negative. */
bool tfmc_plan_area(const struct tfmc_plan *p, int64_t area, const int64_t *dims, const int64_t *indices,
                    int64_t *begin, int64_t *bytes);

#endif
