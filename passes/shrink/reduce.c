/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which edits are tried, in which order: one round goes over all of them,
 * rounds follow until one keeps nothing. Ops are taken from the last to the
 * first, because what only a removed op read goes with it.
 */
#include "passes/shrink/reduce.h"

#define ROUNDS_MAX   64
#define OPERANDS_MAX 9

struct reducer {
	struct ir_module *now;
	reduce_keep *keep;
	void *user;
	struct reduce_report *report;
	bool changed; /* in this round */
};

/* True when the edit was kept: r->now is another module then. */
static bool try_edit(struct reducer *r, struct reduce_edit edit)
{
	struct ir_module *next = reduce_apply(r->now, &edit);
	if (next == NULL)
		return false;
	r->report->tried++;
	if (!r->keep(r->user, next)) {
		ir_module_destroy(next);
		return false;
	}
	r->report->kept++;
	r->changed = true;
	ir_module_destroy(r->now);
	r->now = next;
	return true;
}

static size_t count_ops(const struct ir_func *f)
{
	size_t n = 0;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		n++;
	return n;
}

/* The first of the ways to do without one op that is kept. */
static bool try_op(struct reducer *r, size_t func, size_t at)
{
	if (try_edit(r, (struct reduce_edit){REDUCE_COUNT, func, at, 0}) ||
	    try_edit(r, (struct reduce_edit){REDUCE_OPEN, func, at, 0}))
		return true;
	for (int64_t i = 0; i < OPERANDS_MAX; i++)
		if (try_edit(r, (struct reduce_edit){REDUCE_OPERAND, func, at, i}))
			return true;
	return try_edit(r, (struct reduce_edit){REDUCE_ONES, func, at, 0}) ||
	       try_edit(r, (struct reduce_edit){REDUCE_INPUT, func, at, 0});
}

/* One op earlier. */
static bool try_earlier(struct reducer *r, size_t func, size_t result)
{
	for (int64_t i = 0; i < OPERANDS_MAX; i++)
		if (try_edit(r, (struct reduce_edit){REDUCE_EARLIER, func, result, i}))
			return true;
	return false;
}

static void try_func(struct reducer *r, size_t func)
{
	for (size_t i = r->now->funcs.items[func]->n_results; i-- > 0;)
		(void)try_edit(r, (struct reduce_edit){REDUCE_RESULT, func, i, 0});
	for (size_t i = r->now->funcs.items[func]->n_results; i-- > 0;)
		while (try_earlier(r, func, i))
			continue;
	for (size_t at = count_ops(r->now->funcs.items[func]); at-- > 0;) {
		(void)try_op(r, func, at);
		size_t n = count_ops(r->now->funcs.items[func]);
		at = at < n ? at : n;
	}
	for (size_t i = r->now->funcs.items[func]->n_params; i-- > 0;)
		(void)try_edit(r, (struct reduce_edit){REDUCE_PARAM, func, i, 0});
}

/* The smallest bound that is kept: the lower one, then by halves. */
static void try_bounds(struct reducer *r)
{
	for (size_t i = 0; i < ir_dims_count(r->now->dims); i++) {
		int64_t lo = ir_dims_sym(r->now->dims, i)->lo;
		while (lo < ir_dims_sym(r->now->dims, i)->hi) {
			if (try_edit(r, (struct reduce_edit){REDUCE_BOUND, 0, i, lo}))
				break;
			lo += (ir_dims_sym(r->now->dims, i)->hi - lo + 1) / 2;
		}
	}
}

enum tfmc_status module_reduce(const struct ir_module *in, reduce_keep *keep, void *user,
                               struct ir_module **out, struct reduce_report *report)
{
	/* An edit that changes nothing: the copy has only what is read. */
	const struct reduce_edit none = {REDUCE_BOUND, 0, ir_dims_count(in->dims), 0};
	struct reducer r = {.keep = keep, .user = user, .report = report, .changed = true};
	*report = (struct reduce_report){0};
	*out = NULL;
	r.now = reduce_apply(in, &none);
	if (r.now == NULL)
		return TFMC_NO_MEMORY;
	for (int round = 0; round < ROUNDS_MAX && r.changed; round++) {
		r.changed = false;
		for (size_t i = r.now->funcs.n; i-- > 0 && r.now->funcs.n > 1;)
			(void)try_edit(&r, (struct reduce_edit){REDUCE_FUNC, i, 0, 0});
		for (size_t i = 0; i < r.now->funcs.n; i++)
			try_func(&r, i);
		try_bounds(&r);
		for (size_t i = r.now->states.n; i-- > 0;)
			(void)try_edit(&r, (struct reduce_edit){REDUCE_STATE, 0, i, 0});
	}
	(void)try_edit(&r, none);
	*out = r.now;
	return TFMC_OK;
}
