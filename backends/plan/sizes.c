/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes and limits. backend_measure: the memory of an object, from its layout, without emitting it.
 * check_*_limit: a few lines of a model can ask for unbounded computed weights or code, so both are bounded
 * by the options before they are written.
 */
#include "backends/plan/emit.h"

#include "ir/support/strmap.h"
#include "ir/support/number.h"

#define INSTRUCTION_BYTES 8 /* estimated machine code bytes of one kb instruction */

/* Bytes of the stored tensors that e reads, each counted once (`seen`). */
static uint64_t stored_bytes(struct arena *a, struct strmap *seen, const struct ir_wexpr *e)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < e->n_args; i++)
		sum += stored_bytes(a, seen, e->args[i]);
	if (e->kind != WX_TENSOR)
		return sum;
	const char *name = arena_printf(a, "%s\n%s", e->file, e->tensor);
	if (strmap_has(seen, name))
		return sum;
	strmap_set(seen, name, seen);
	return sum + (uint64_t)wexpr_count(e) * (uint64_t)ir_dtype_bytes(e->stored);
}

/* Rejects weights of which far more would be written than is read (BACKEND_WEIGHTS_FACTOR times and the limit):
 * computed ones can have any size. Limit 0: none. Tensors that are read several times count once. */
enum tfmc_status check_weights_limit(struct object *o)
{
	const struct weight_layout *largest = NULL;
	char packed[NUMBER_TEXT_MAX], stored[NUMBER_TEXT_MAX], limit[NUMBER_TEXT_MAX], one[NUMBER_TEXT_MAX];
	struct strmap seen;
	uint64_t sum = 0, most = o->options->weights_limit;
	if (most == 0)
		return TFMC_OK;
	strmap_init(&seen, o->arena);
	for (size_t i = 0; i < o->weights.n; i++) {
		const struct weight_layout *w = &o->weights.items[i];
		sum += w->weight->init ? stored_bytes(o->arena, &seen, w->weight->init) : 0;
		largest = largest && largest->bytes >= w->bytes ? largest : w;
	}
	uint64_t allowed = sum > (UINT64_MAX - most) / BACKEND_WEIGHTS_FACTOR
	                           ? UINT64_MAX
	                           : sum * BACKEND_WEIGHTS_FACTOR + most;
	if (arena_failed(o->arena))
		return TFMC_NO_MEMORY;
	if (!largest || (uint64_t)o->weights.bytes <= allowed)
		return TFMC_OK;
	number_print_bytes(packed, (uint64_t)o->weights.bytes);
	number_print_bytes(stored, sum);
	number_print_bytes(limit, most);
	number_print_bytes(one, (uint64_t)largest->bytes);
	diag_error(
	        o->cx, largest->weight->loc.at, DIAG_LIMIT,
	        "weights of %s would be written, %s of them for '%s'; tensors of %s are read, and the limit "
	        "is %d times that and %s",
	        packed, one, largest->weight->name, stored, BACKEND_WEIGHTS_FACTOR, limit);
	diag_note(o->cx, LOC_NONE, "--limit-weights=%lld raises it", (long long)o->weights.bytes);
	return TFMC_INVALID;
}

/* Estimates the code of the kernels so far; called after each group, so that emission ends near the limit. Limit 0:
 * none. */
enum tfmc_status check_code_limit(const struct object *o, const struct ir_op *group)
{
	char bytes[NUMBER_TEXT_MAX], limit[NUMBER_TEXT_MAX];
	uint64_t some = (uint64_t)kb_module_inst_count(o->kb) * INSTRUCTION_BYTES;
	if (o->options->code_limit == 0 || some <= o->options->code_limit)
		return TFMC_OK;
	number_print_bytes(bytes, some);
	number_print_bytes(limit, o->options->code_limit);
	diag_error(o->cx, group->loc.at, DIAG_LIMIT,
	           "the code of the steps up to here has about %s, the limit is %s", bytes, limit);
	diag_note(o->cx, LOC_NONE, "--limit-code=%llu raises it", (unsigned long long)some * 2);
	return TFMC_INVALID;
}

/* ---- memory ---- */

/* Weights of a function are those that its ops read, each counted once however many ops do. */
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
	/* 1 + the function that counted the weight last. */
	size_t *last = ARENA_ARRAY(arena, size_t, o.weights.n + 1);
	if (!out->functions || !last)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < o.functions.n; i++) {
		const struct function *f = &o.functions.items[i];
		struct backend_function_sizes *sizes = &out->functions[i];
		*sizes = (struct backend_function_sizes){.func = f->func, .arena = f->arena};
		for (struct ir_iter it = ir_iter_begin(f->func->body); it.op; ir_iter_next(&it)) {
			const struct weight_layout *p =
			        it.op->code == OP_weight
			                ? object_weight(&o,
			                                ((const struct attrs_weight *)it.op->attrs)->weight)
			                : NULL;
			if (!p || last[p - o.weights.items] == i + 1)
				continue;
			last[p - o.weights.items] = i + 1;
			sizes->weights += (uint64_t)p->bytes;
		}
	}
	return TFMC_OK;
}
