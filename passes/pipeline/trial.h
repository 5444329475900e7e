/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials: seeded calls of the functions of a module, made once and executed by the interpreter on any module that
 * should be equivalent.
 *
 * Functions without state are called on their own, with several sizes and ragged lengths, 0 among them. Functions
 * with state are called as a session would: first those that only write (an encoder), then a prefill, single
 * decode steps and a chunk, each on the state that the previous calls left.
 */
#ifndef TFMC_PASSES_PIPELINE_TRIAL_H
#define TFMC_PASSES_PIPELINE_TRIAL_H

#include "ir/interp/interp.h"

struct trial_input {
	const char *name;           /* of the parameter */
	struct interp_tensor value; /* data NULL: omitted, the default is used */
};

struct trial_call {
	const char *func;
	bool starts;   /* begins a session: zero state, past 0 */
	int64_t *dims; /* values of the dim symbols */
	struct trial_input *inputs;
	size_t n_inputs;
};

struct trial {
	struct arena *arena;
	const struct weight_source *weights;
	struct {
		struct trial_call *items;
		size_t n, cap;
	} calls;
	int64_t batch; /* maximum of all calls */
};

/* One result of one call. */
struct trial_output {
	const char *name, *func;
	size_t call;
	struct interp_tensor value;
};
struct trial_outputs {
	struct trial_output *items;
	size_t n, cap;
};

/* Options of an execution. */
struct trial_mode {
	bool wide;           /* f64 throughout (interp_args.wide) */
	interp_trace *trace; /* of call `trace_call`, may be NULL */
	void *trace_user;
	size_t trace_call;
};

/* Creates the calls for the functions of m. The arena and the weights must outlive the trial. */
TFMC_MUST_USE enum tfmc_status trial_make(struct trial *t, struct arena *arena,
                                          const struct weight_source *weights, const struct ir_module *m);
/* Executes all calls on m, whose functions and parameters have the same names. Results are allocated in `arena`. */
TFMC_MUST_USE enum tfmc_status trial_execute(const struct trial *t, struct diag_context *cx,
                                             const struct ir_module *m, const struct trial_mode *mode,
                                             struct arena *arena, struct trial_outputs *out);
/* An op that reads v requires a positive value: a logarithm, root, power or division. */
bool trial_is_positive(const struct ir_func *f, struct ir_value v);
/*
 * The module rounds values to f16, bf16 or 8-bit integers: a difference of one f32 ulp may become one of those,
 * and grow from there.
 */
bool trial_uses_lowp(const struct ir_module *m);

/*
 * Largest difference of an element, relative to the largest magnitude in b; infinity if infinities, NaN or
 * shapes differ.
 */
double trial_tensor_difference(const struct interp_tensor *a, const struct interp_tensor *b);

#endif
