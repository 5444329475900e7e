/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random valid modules and inputs for differential tests: the interpreter
 * against an object, a pass against doing nothing, a text against its reading.
 *
 *   struct ir_module *m = random_module(&cx, seed, NULL);          // or random_module_for_op
 *   const struct ir_func *f = ir_find_func(m, "f");
 *   struct random_call call;
 *   random_call_make(&arena, m, f, seed, &call);
 *   random_call_run(&cx, m, f, &arena, &call);                     // the meaning: call.outputs
 *   const char *why = random_compare(&arena, &mine, &call.outputs[0], 1e-5);
 *
 * A seed gives the same module and inputs everywhere. Every module verifies and
 * has one function "f" whose results are p0, p1, ... -> y0, y1, ... Sizes are
 * small and odd: axes of 1 to 17, symbols B in [1,5], S and T in [1,17], at most
 * RANDOM_ELEMENTS_MAX elements a tensor. Weights have tables as contents, no files.
 */
#ifndef TFMC_TESTS_SUPPORT_RANDOM_RANDOM_IR_H
#define TFMC_TESTS_SUPPORT_RANDOM_RANDOM_IR_H

#include "ir/interp/interp.h"

#define RANDOM_ELEMENTS_MAX 16384

struct random_options {
	size_t n_ops;       /* ops of a random module; 0: 12 */
	bool constant_dims; /* no symbols in shapes */
	bool no_repeat;
	bool smooth;     /* no ops that turn a tiny difference into a large one (floor, cmp of floats, ...) */
	bool all_dtypes; /* beside f32, i32, bool also the other types */
};

/*
 * A random program of elementwise, rowwise, reducing, moving and contracting
 * ops, weights and repeats. Operands are kept in ranges where values stay
 * finite and differences small. NULL after a diagnostic.
 */
struct ir_module *random_module(struct diag_context *cx, uint64_t seed, const struct random_options *options);
/*
 * The op with random types and attributes, its operands being the parameters
 * (for constants: none). NULL without a diagnostic for group, yield and return.
 */
struct ir_module *random_module_for_op(struct diag_context *cx, enum ir_opcode code, uint64_t seed,
                                       const struct random_options *options);

/* Dim values, inputs and results of one call. */
struct random_call {
	int64_t *dims;                 /* of the symbols, in the module's order */
	struct interp_tensor *inputs;  /* [n_inputs], tensor parameters in order */
	struct interp_tensor *outputs; /* [n_outputs], filled by random_call_run */
	size_t n_inputs, n_outputs;
};

/* Picks dim values within their bounds, and inputs that fit the parameters' checks. False when memory ran
 * out. */
bool random_call_make(struct arena *a, const struct ir_module *m, const struct ir_func *f, uint64_t seed,
                      struct random_call *out);
/* Interprets the call; state, if any, starts as zeros for dims[0] sequences and is forgotten. */
enum tfmc_status random_call_run(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                                 struct arena *a, struct random_call *call);
/*
 * NULL when both tensors have one shape and type and all elements agree: ints
 * and bools exactly, floats up to tolerance * max(1, largest finite |want|),
 * NaN and infinities equal. Otherwise a text that names the first difference.
 */
const char *random_compare(struct arena *a, const struct interp_tensor *have,
                           const struct interp_tensor *want, double tolerance);

#endif
