/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sizes of an object's memory before anything is emitted: the layout the
 * object will have, read off.
 */
#include "backends/plan/object.h"

struct reads {
	const struct object *object;
	bool *seen; /* [weights] */
	int64_t bytes;
};

static void count_weight(void *user, const struct ir_op *op)
{
	struct reads *r = user;
	if (op->code != OP_weight)
		return;
	const struct weight_place *p =
	        object_weight(r->object, ((const struct attrs_weight *)op->attrs)->weight);
	size_t number = p ? (size_t)(p - r->object->weights.items) : 0;
	if (!p || r->seen[number])
		return;
	r->seen[number] = true;
	r->bytes += p->bytes;
}

static enum tfmc_status measure_function(struct object *o, const struct function *f,
                                         struct backend_function_sizes *out)
{
	struct reads r = {.object = o, .seen = ARENA_ARRAY(o->arena, bool, o->weights.n + 1)};
	if (!r.seen)
		return TFMC_NO_MEMORY;
	ir_walk(f->func->body, count_weight, &r);
	*out = (struct backend_function_sizes){
	        .func = f->func, .arena = f->arena, .weights = (uint64_t)r.bytes};
	return TFMC_OK;
}

enum tfmc_status backend_measure(struct diag_context *cx, const struct ir_module *planned,
                                 const struct target *target, struct arena *arena, struct backend_sizes *out)
{
	static const struct backend_options none;
	struct object o;
	object_init(&o, cx, arena, planned, target, &none);
	TFMC_TRY(layout_weights(&o));
	TFMC_TRY(layout_state(&o));
	TFMC_TRY(layout_functions(&o));
	*out = (struct backend_sizes){.weights = (uint64_t)o.weights.bytes,
	                              .state_fixed = (uint64_t)o.states.fixed_bytes,
	                              .state_batch = (uint64_t)o.states.batch_bytes,
	                              .scratch = (uint64_t)o.scratch,
	                              .context_limit = (uint64_t)o.states.context_limit,
	                              .n_functions = o.functions.n};
	out->functions = ARENA_ARRAY(arena, struct backend_function_sizes, o.functions.n + 1);
	if (!out->functions)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < o.functions.n; i++)
		TFMC_TRY(measure_function(&o, &o.functions.items[i], &out->functions[i]));
	return TFMC_OK;
}
