/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of the interpreter: checks what the entry of an object checks (dims, shapes, ids, bounds), sets the inputs,
 * executes the body and copies the results. For each op operands are looked up, results allocated, the handler
 * called, results rounded and traced, and dead values freed. A value dies after the last op of its own region that
 * uses it, directly or in a nested region. All memory of intermediates is freed on every return.
 */
#include "ir/interp/interp.h"

#include <assert.h>
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

static interp_handler *const handlers[IR_N_OPS] = {
#define OP(name, traits, operands, attributes, results, axes, formula) [OP_##name] = interp_eval_##name,
#include "ir/core/ops.def"
};

/* ---- last uses ---- */

/* The region being traversed, and those around it. */
struct frame {
	const struct frame *outer;
	const struct ir_region *region;
};

/* op uses v: the op of v's own region that is or contains op becomes its last use. */
static void record_use(struct interp *in, const struct frame *frame, const struct ir_op *op,
                       struct ir_value v)
{
	const struct ir_region *home = ir_value_info(in->f, v)->region;
	for (; frame && frame->region != home; frame = frame->outer)
		op = frame->region->owner;
	in->slots[v.id].last_use = op;
}

static void record_uses(struct interp *in, const struct frame *outer, const struct ir_region *r)
{
	struct frame frame = {outer, r};
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		for (size_t k = 0; k < op->n_operands; k++)
			if (op->operands[k].id)
				record_use(in, &frame, op, op->operands[k]);
		if (op->region)
			record_uses(in, &frame, op->region);
	}
}

/* Frees operands of `op`, and of ops nested in it, whose last use is `last`. */
static void free_last_uses(struct interp *in, const struct ir_op *op, const struct ir_op *last)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (op->operands[i].id && in->slots[op->operands[i].id].last_use == last)
			interp_slot_free(in, op->operands[i]);
	for (size_t i = 0; op->region && i < op->region->n_ops; i++)
		free_last_uses(in, op->region->ops[i], last);
}

/* ---- one op ---- */

/* At least the number of optional operands of any op: handlers may read absent ones after the end of the operands. */
#define OPTIONAL_MAX 8

/* Operands and results of an op for its handler and the trace. */
struct call {
	const struct interp_tensor **x; /* [n_operands + OPTIONAL_MAX] */
	struct interp_tensor *out;      /* [n_results] */
	const struct interp_tensor **traced;
};

static void round_results(struct interp *in, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_results; i++) {
		struct interp_tensor *t = &in->slots[op->results[i].id].tensor;
		int64_t n = t->data ? interp_size(t) : 0;
		if (in->args->wide && ir_dtype_class(t->dtype) == DTCLASS_FLOAT)
			continue;
		for (int64_t k = 0; k < n && t->dtype == DT_F32; k++)
			t->data[k] = (double)(float)t->data[k];
		for (int64_t k = 0; k < n && t->dtype != DT_F32; k++)
			t->data[k] = ir_round(t->dtype, t->data[k]);
	}
}

static enum tfmc_status call_handler(struct interp *in, const struct ir_op *op, struct call *c)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		struct interp_slot *s = &in->slots[op->operands[i].id];
		c->x[i] = op->operands[i].id && s->tensor.data ? &s->tensor : NULL;
	}
	for (size_t i = 0; i < op->n_results; i++) {
		TFMC_TRY(interp_slot_make(in, op, op->results[i]));
		c->out[i] = in->slots[op->results[i].id].tensor;
		c->traced[i] = &in->slots[op->results[i].id].tensor;
	}
	TFMC_TRY(handlers[op->code](in, op, c->x, c->out));
	round_results(in, op);
	if (in->args->trace)
		in->args->trace(in->args->trace_user, in->f, op, c->traced);
	return TFMC_OK;
}

static enum tfmc_status execute(struct interp *in, const struct ir_op *op)
{
	struct call c = {
	        .x = memory_zeroed(op->n_operands + OPTIONAL_MAX, sizeof(*c.x)),
	        .out = memory_zeroed(op->n_results + 1, sizeof(*c.out)),
	        .traced = memory_zeroed(op->n_results + 1, sizeof(*c.traced)),
	};
	enum tfmc_status st = c.x && c.out && c.traced ? call_handler(in, op, &c) : TFMC_NO_MEMORY;
	memory_free(c.x);
	memory_free(c.out);
	memory_free(c.traced);
	if (st != TFMC_OK)
		return st;
	free_last_uses(in, op, op);
	for (size_t i = 0; i < op->n_results; i++)
		if (!in->slots[op->results[i].id].last_use)
			interp_slot_free(in, op->results[i]);
	return TFMC_OK;
}

/* Executes the ops before the terminator. */
static enum tfmc_status execute_region(struct interp *in, const struct ir_region *r)
{
	for (size_t i = 0; i + 1 < r->n_ops; i++)
		TFMC_TRY(execute(in, r->ops[i]));
	return TFMC_OK;
}

/* Frees all values that the region defines, without nested regions. */
static void clear_region(struct interp *in, const struct ir_region *r)
{
	for (size_t i = 0; i < r->n_args; i++)
		interp_slot_free(in, r->args[i]);
	for (size_t i = 0; i < r->n_ops; i++)
		for (size_t k = 0; k < r->ops[i]->n_results; k++)
			interp_slot_free(in, r->ops[i]->results[k]);
}

/* ---- ops with regions ---- */

/* Copies the yielded values to the results of op. */
static enum tfmc_status copy_yields(struct interp *in, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	assert(yield->n_operands == op->n_results);
	for (size_t i = 0; i < op->n_results; i++) {
		TFMC_TRY(interp_slot_copy(in, op, op->results[i], &in->slots[yield->operands[i].id].tensor));
		interp_memory_carry(in, op->results[i], yield->operands[i]);
	}
	return TFMC_OK;
}

/* Between iterations the carries are in the results of the repeat. */
INTERP_EVAL(repeat)
{
	const struct attrs_repeat *a = op->attrs;
	const struct ir_region *r = op->region;
	for (size_t i = 0; i < op->n_results; i++) {
		TFMC_TRY(interp_slot_copy(in, op, op->results[i], &in->slots[op->operands[i].id].tensor));
		interp_memory_carry(in, op->results[i], op->operands[i]);
	}
	size_t depth = in->n_at++;
	for (int64_t n = 0; n < a->count; n++) {
		if (depth < INTERP_DEPTH_MAX)
			in->at[depth] = n;
		TFMC_TRY(interp_slot_make(in, op, r->args[REPEAT_INDEX]));
		in->slots[r->args[REPEAT_INDEX].id].tensor.data[0] = (double)n;
		for (size_t i = 0; i < op->n_results; i++) {
			TFMC_TRY(interp_slot_copy(in, op, r->args[1 + i],
			                          &in->slots[op->results[i].id].tensor));
			interp_memory_carry(in, r->args[1 + i], op->results[i]);
		}
		TFMC_TRY(execute_region(in, r));
		TFMC_TRY(copy_yields(in, op));
		clear_region(in, r);
	}
	in->n_at--;
	return TFMC_OK;
}

INTERP_EVAL(group)
{
	TFMC_TRY(interp_memory_read(in, op));
	TFMC_TRY(execute_region(in, op->region));
	TFMC_TRY(copy_yields(in, op));
	TFMC_TRY(interp_memory_write(in, op));
	clear_region(in, op->region);
	return TFMC_OK;
}

/* The caller of execute_region reads the terminator. */
INTERP_EVAL(yield)
{
	return interp_error(in, op, "a yield comes before the end of its region");
}

INTERP_EVAL(return )
{
	return interp_error(in, op, "a return comes before the end of its function");
}

/* ---- a run ---- */

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

/* Ids are below their bound, counts in [0, max]. */
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
			                    p->name, interp_to_int(t->data[i]), i, hi);
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
		return interp_error(
		        in, NULL, "input '%s' is %s of rank %d, the function expects %s of rank %d", p->name,
		        ir_dtype_name(have->dtype), have->rank, ir_dtype_name(want->dtype), want->rank);
	int axis = 0;
	while (have->dims[axis] == want->dims[axis])
		axis++;
	return interp_error(in, NULL, "axis %d of input '%s' is %" PRId64 ", the function expects %" PRId64,
	                    axis, p->name, have->dims[axis], want->dims[axis]);
}

/* Fills an omitted input with its default. */
static enum tfmc_status fill_default(struct interp *in, const struct ir_param *p, struct interp_tensor *t)
{
	if (!p->has_default)
		return interp_error(in, NULL, "input '%s' is missing", p->name);
	double v = p->default_value ? (double)interp_dim(in, p->default_value) : p->fill;
	for (int64_t i = 0; i < interp_size(t); i++)
		t->data[i] = v;
	for (int64_t i = 0; t->exact && p->default_value && i < interp_size(t); i++)
		interp_set_int(t, i, interp_dim(in, p->default_value));
	return TFMC_OK;
}

/* Copies or fills all inputs. */
static enum tfmc_status set_inputs(struct interp *in)
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
			interp_copy(t, 0, given, 0, interp_size(t));
		} else {
			TFMC_TRY(fill_default(in, p, t));
		}
		TFMC_TRY(check_values(in, p, t));
	}
	return TFMC_OK;
}

static enum tfmc_status copy_outputs(struct interp *in)
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

static enum tfmc_status execute_func(struct interp *in)
{
	TFMC_TRY(check_dims(in));
	record_uses(in, NULL, in->f->body);
	if (in->args->planned && in->m->stage == STAGE_PLAN)
		TFMC_TRY(interp_memory_begin(in));
	TFMC_TRY(set_inputs(in));
	TFMC_TRY(execute_region(in, in->f->body));
	return copy_outputs(in);
}

enum tfmc_status interp_run(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                            const struct interp_args *args)
{
	struct interp in = {.cx = cx, .m = m, .f = f, .args = args};
	in.limit_bytes = args->memory_limit ? args->memory_limit : DEFAULT_LIMIT;
	in.slots = memory_zeroed(f->n_values + 1, sizeof(*in.slots));
	if (!in.slots)
		return TFMC_NO_MEMORY;
	enum tfmc_status st = execute_func(&in);
	for (size_t i = 0; i < f->n_values; i++)
		memory_free(in.slots[i].tensor.data);
	memory_free(in.slots);
	interp_memory_end(&in);
	return st;
}
