/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One op on literal tensors: builds a function with a parameter for every
 * operand and a return of every result, verifies it, and interprets it.
 *
 *   struct op_case c;
 *   op_case_begin(&c);
 *   op_case_run(&c, OP_add, NULL, INS(TENSOR(F32, (2), 1, 2), TENSOR(F32, (2), 10, 20)));
 *   op_case_expect(&c, TENSOR(F32, (2), 11, 22));
 *   op_case_end(&c);
 */
#ifndef TFMC_TESTS_SUPPORT_KERNELS_OP_CASE_H
#define TFMC_TESTS_SUPPORT_KERNELS_OP_CASE_H

#include "ir/core/build.h"
#include "ir/interp/interp.h"

/* A literal tensor; rank -1 stands for an absent operand. */
struct literal {
	enum ir_dtype dtype;
	int rank;
	const int64_t *dims;
	const double *values;
	size_t n_values;
};

#define LITERAL_DIMS(...)    ((const int64_t[]){__VA_ARGS__})
#define LITERAL_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define LITERAL_VALUES(...)  ((const double[]){__VA_ARGS__})
#define TENSOR(dt, shape, ...)                                                                 \
	((struct literal){DT_##dt, (int)LITERAL_COUNT(LITERAL_DIMS shape), LITERAL_DIMS shape, \
	                  LITERAL_VALUES(__VA_ARGS__), LITERAL_COUNT(LITERAL_VALUES(__VA_ARGS__))})
#define SCALAR(dt, value) ((struct literal){DT_##dt, 0, NULL, LITERAL_VALUES(value), 1})
/* A tensor without elements. */
#define EMPTY(dt, shape) \
	((struct literal){DT_##dt, (int)LITERAL_COUNT(LITERAL_DIMS shape), LITERAL_DIMS shape, NULL, 0})
#define ABSENT ((struct literal){DT_F32, -1, NULL, NULL, 0})
/* Two arguments: the operands and their number. */
#define INS(...) \
	((const struct literal[]){__VA_ARGS__}), LITERAL_COUNT(((const struct literal[]){__VA_ARGS__}))
#define NO_INS NULL, 0

struct op_case {
	struct diag_context cx;
	struct buf messages;
	struct ir_module *m;
	struct arena arena;
	struct interp_tensor out; /* the first result */
};

void op_case_begin(struct op_case *c);
void op_case_end(struct op_case *c);
/* Runs the op; fails the test when it cannot be built. Attributes NULL: the defaults. */
void op_case_run(struct op_case *c, enum ir_opcode code, const void *attrs, const struct literal *in,
                 size_t n_in);
/* The result has this type and these values, to 1e-6 relative; NaN equals NaN. */
void op_case_expect(const struct op_case *c, struct literal want);
/* Status of running the op, for inputs that are refused. */
enum tfmc_status op_case_try(struct op_case *c, enum ir_opcode code, const void *attrs,
                             const struct literal *in, size_t n_in);
/* Constant dims for attributes, in the module. */
struct ir_dim_list op_case_dims(struct op_case *c, size_t n, const int64_t *dims);

/* begin, run, expect, end. */
void op_case_check(enum ir_opcode code, const void *attrs, const struct literal *in, size_t n_in,
                   struct literal want);

#endif
