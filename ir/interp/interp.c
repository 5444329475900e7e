/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of the interpreter: checks what the entry of an object would check
 * (dims, shapes, ids, bounds), places the inputs, executes the body and copies
 * the results out. Memory of intermediates is freed on every way out.
 */
#include "ir/interp/interp.h"

#include <inttypes.h>

#include "ir/interp/interp_internal.h"
#include "ir/support/memory.h"

#define DEFAULT_LIMIT ((size_t)8 << 30)

enum tfmc_status interp_error(struct interp *in, const struct ir_op *op, const char *fmt, ...)
{
	struct buf text;
	va_list ap;
	buf_init(&text);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	diag_error(in->cx, op ? op->loc.at : in->f->loc.at, DIAG_INPUT, "%s", text.data);
	buf_destroy(&text);
	return TFMC_INVALID;
}

static enum tfmc_status check_dims(struct interp *in)
{
	for (size_t i = 0; i < ir_dims_count(in->m->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(in->m->dims, i);
		int64_t v = in->args->dims[i];
		if (v < s->lo || v > s->hi)
			return interp_error(in, NULL,
			                    "dim %s is %" PRId64 ", not in [%" PRId64 ",%" PRId64 "]",
			                    s->name, v, s->lo, s->hi);
	}
	return TFMC_OK;
}

/* Ids below their bound, counts in [0, max]. */
static enum tfmc_status check_values(struct interp *in, const struct ir_param *p,
                                     const struct interp_tensor *t)
{
	int64_t hi = p->below > 0 ? p->below - 1 : -1;
	if (p->max)
		hi = interp_dim(in, p->max);
	if (p->below <= 0 && !p->max)
		return TFMC_OK;
	for (int64_t i = 0; i < interp_size(t); i++)
		if (!(t->data[i] >= 0 && t->data[i] <= (double)hi))
			return interp_error(in, NULL,
			                    "input '%s' has the value %" PRId64 " at %" PRId64
			                    ", not in [0,%" PRId64 "]",
			                    p->name, interp_int(t->data[i]), i, hi);
	return TFMC_OK;
}

static enum tfmc_status check_shape(struct interp *in, const struct ir_param *p,
                                    const struct interp_tensor *have, const struct interp_tensor *want)
{
	bool same = have->dtype == want->dtype && have->rank == want->rank;
	for (int i = 0; same && i < want->rank; i++)
		same = have->dims[i] == want->dims[i];
	if (same)
		return TFMC_OK;
	if (have->dtype != want->dtype || have->rank != want->rank)
		return interp_error(in, NULL, "input '%s' is %s of rank %d, the function wants %s of rank %d",
		                    p->name, ir_dtype_name(have->dtype), have->rank,
		                    ir_dtype_name(want->dtype), want->rank);
	int axis = 0;
	while (have->dims[axis] == want->dims[axis])
		axis++;
	return interp_error(in, NULL, "axis %d of input '%s' is %" PRId64 ", the function wants %" PRId64,
	                    axis, p->name, have->dims[axis], want->dims[axis]);
}

/* Fills an input that was left out. */
static enum tfmc_status fill_default(struct interp *in, const struct ir_param *p, struct interp_tensor *t)
{
	if (!p->has_default)
		return interp_error(in, NULL, "input '%s' is missing", p->name);
	double v = p->default_value ? (double)interp_dim(in, p->default_value) : p->fill;
	for (int64_t i = 0; i < interp_size(t); i++)
		t->data[i] = v;
	for (int64_t i = 0; t->exact && p->default_value && i < interp_size(t); i++)
		interp_put(t, i, interp_dim(in, p->default_value));
	return TFMC_OK;
}

static enum tfmc_status place_inputs(struct interp *in)
{
	size_t next = 0;
	for (size_t i = 0; i < in->f->n_params; i++) {
		const struct ir_param *p = &in->f->params[i];
		TFMC_TRY(interp_slot_make(in, NULL, p->value));
		struct interp_tensor *t = &in->slots[p->value.id].tensor;
		if (!t->data) { /* a state */
			if (!in->args->state)
				return interp_error(in, NULL, "function '%s' needs state", in->f->name);
			continue;
		}
		const struct interp_tensor *given = &in->args->inputs[next++];
		if (given->data) {
			TFMC_TRY(check_shape(in, p, given, t));
			interp_move(t, 0, given, 0, interp_size(t));
		} else {
			TFMC_TRY(fill_default(in, p, t));
		}
		TFMC_TRY(check_values(in, p, t));
	}
	return TFMC_OK;
}

static enum tfmc_status take_outputs(struct interp *in)
{
	const struct ir_region *body = in->f->body;
	const struct ir_op *ret = body->ops[body->n_ops - 1];
	size_t next = 0;
	for (size_t i = 0; i < ret->n_operands; i++) {
		const struct interp_tensor *from = &in->slots[ret->operands[i].id].tensor;
		if (!from->data)
			continue;
		struct interp_tensor *to = &in->args->outputs[next++];
		if (!interp_tensor_copy(in->args->arena, from, to))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}

static enum tfmc_status run(struct interp *in)
{
	TFMC_TRY(check_dims(in));
	interp_find_last_uses(in, in->f->body);
	if (in->args->planned && in->m->stage == STAGE_PLAN)
		TFMC_TRY(interp_memory_begin(in));
	TFMC_TRY(place_inputs(in));
	TFMC_TRY(interp_region(in, in->f->body));
	return take_outputs(in);
}

enum tfmc_status interp_run(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                            const struct interp_args *args)
{
	struct interp in = {.cx = cx, .m = m, .f = f, .args = args};
	in.limit_bytes = args->memory_limit ? args->memory_limit : DEFAULT_LIMIT;
	in.slots = memory_zeroed(f->n_values + 1, sizeof(*in.slots));
	if (!in.slots)
		return TFMC_NO_MEMORY;
	enum tfmc_status st = run(&in);
	for (size_t i = 0; i < f->n_values; i++)
		memory_free(in.slots[i].tensor.data);
	memory_free(in.slots);
	interp_memory_end(&in);
	return st;
}
