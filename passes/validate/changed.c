/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces one call on two modules and walks the second trace for the first value
 * that the first trace does not have (changed.h).
 */
#include "passes/validate/changed.h"

#include <string.h>

#define TRACE_ELEMENTS_MAX ((int64_t)1 << 24) /* of all values that are kept */

struct traced {
	const char *name; /* hint, may be NULL */
	enum ir_opcode code;
	struct ir_loc loc;
	struct interp_tensor value;
};
struct trace {
	struct arena *arena;
	int64_t elements;
	struct traced *items;
	size_t n, cap;
};

static void record(void *user, const struct ir_func *f, const struct ir_op *op,
                   const struct interp_tensor *const *results)
{
	struct trace *t = user;
	for (size_t i = 0; i < op->n_results && op->region == NULL; i++) {
		const struct interp_tensor *v = results[i];
		int64_t n = v->data != NULL ? interp_count(v) : 0;
		if (n <= 0 || t->elements + n > TRACE_ELEMENTS_MAX)
			continue;
		struct traced *slot = ARENA_PUSH(t->arena, t);
		struct interp_tensor copy;
		if (slot == NULL || !interp_tensor_copy(t->arena, v, &copy))
			return;
		t->elements += n;
		*slot = (struct traced){ir_value_info(f, op->results[i])->name, op->code, op->loc, copy};
	}
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Named values by name, others by op; both by place and shape. */
static bool same_key(const struct traced *a, const struct traced *b)
{
	bool same = same_text(a->name, b->name) && (a->name != NULL || a->code == b->code) &&
	            a->loc.at.source == b->loc.at.source && a->loc.at.line == b->loc.at.line &&
	            a->loc.at.col == b->loc.at.col && same_text(a->loc.path, b->loc.path) &&
	            a->value.rank == b->value.rank;
	for (int i = 0; same && i < a->value.rank; i++)
		same = a->value.dims[i] == b->value.dims[i];
	return same;
}

static bool is_changed(const struct trace *before, const struct traced *v, double bound)
{
	bool known = false;
	for (size_t i = 0; i < before->n; i++) {
		if (!same_key(&before->items[i], v))
			continue;
		if (trial_tensor_difference(&v->value, &before->items[i].value) <= bound)
			return false;
		known = true;
	}
	return known;
}

static void find(const struct trace *before, const struct trace *after, double bound, struct arena *arena,
                 struct changed *out)
{
	for (size_t i = 0; i < after->n; i++) {
		const struct traced *v = &after->items[i];
		if (!is_changed(before, v, bound))
			continue;
		out->op = ir_op_desc(v->code)->name;
		out->value = v->name != NULL ? arena_strdup(arena, v->name) : "";
		out->loc = (struct ir_loc){v->loc.at,
		                           v->loc.path != NULL ? arena_strdup(arena, v->loc.path) : NULL};
		return;
	}
}

enum tfmc_status changed_find(const struct trial *t, struct diag_context *cx, const struct ir_module *before,
                              const struct ir_module *after, size_t call, double bound, struct arena *arena,
                              struct changed *out)
{
	struct arena scratch;
	struct trial_outputs results;
	*out = (struct changed){0};
	arena_init(&scratch);
	struct trace a = {.arena = &scratch}, b = {.arena = &scratch};
	struct trial_mode mode = {.wide = true, .trace = record, .trace_user = &a, .trace_call = call};
	enum tfmc_status st = trial_execute(t, cx, before, &mode, &scratch, &results);
	mode.trace_user = &b;
	if (st == TFMC_OK)
		st = trial_execute(t, cx, after, &mode, &scratch, &results);
	if (st == TFMC_OK)
		find(&a, &b, bound, arena, out);
	arena_destroy(&scratch);
	return st;
}
