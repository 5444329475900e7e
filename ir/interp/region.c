/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes regions: looks operands up, makes results, calls the handler of the
 * op, rounds, traces, and frees what is not used any more. repeat and group are
 * handlers that execute their own region. A value dies after the last op of
 * its own region that uses it, itself or within a nested region.
 */
#include <assert.h>

#include "ir/interp/interp_internal.h"
#include "ir/support/memory.h"

static interp_handler *const handlers[IR_N_OPS] = {
#define OP(name, traits, operands, attributes, results, axes, formula) [OP_##name] = interp_eval_##name,
#include "ir/core/ops.def"
};

/* ---- lifetimes ---- */

/* A region being walked and the op of the region around it that owns it. */
struct frame {
	const struct frame *outer;
	const struct ir_region *region;
};

static void record_use(struct interp *in, const struct frame *frame, const struct ir_op *op,
                       struct ir_value v)
{
	const struct ir_region *home = ir_value_info(in->f, v)->region;
	for (; frame && frame->region != home; frame = frame->outer)
		op = frame->region->owner;
	in->slots[v.id].last_use = op;
}

static void walk_uses(struct interp *in, const struct frame *outer, const struct ir_region *r)
{
	struct frame frame = {outer, r};
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		for (size_t k = 0; k < op->n_operands; k++)
			if (op->operands[k].id)
				record_use(in, &frame, op, op->operands[k]);
		if (op->region)
			walk_uses(in, &frame, op->region);
	}
}

void interp_find_last_uses(struct interp *in, const struct ir_region *r)
{
	walk_uses(in, NULL, r);
}

/* Frees the operands of `op`, and of ops nested in `inside`, whose last use is `last`. */
static void free_last_uses(struct interp *in, const struct ir_op *op, const struct ir_op *last)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (op->operands[i].id && in->slots[op->operands[i].id].last_use == last)
			interp_slot_free(in, op->operands[i]);
	for (size_t i = 0; op->region && i < op->region->n_ops; i++)
		free_last_uses(in, op->region->ops[i], last);
}

/* ---- one op ---- */

/* More than any op has optional operands: absent ones at the end may be missing from the list. */
#define OPTIONAL_MAX 8

/* What an op reads and writes, gathered for its handler. */
struct call {
	const struct interp_tensor **x; /* [n_operands] */
	struct interp_tensor *out;      /* [n_results] */
	const struct interp_tensor **shown;
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
		c->shown[i] = &in->slots[op->results[i].id].tensor;
	}
	TFMC_TRY(handlers[op->code](in, op, c->x, c->out));
	round_results(in, op);
	if (in->args->trace)
		in->args->trace(in->args->trace_user, in->f, op, c->shown);
	return TFMC_OK;
}

static enum tfmc_status execute(struct interp *in, const struct ir_op *op)
{
	struct call c = {
	        .x = memory_zeroed(op->n_operands + OPTIONAL_MAX, sizeof(*c.x)),
	        .out = memory_zeroed(op->n_results + 1, sizeof(*c.out)),
	        .shown = memory_zeroed(op->n_results + 1, sizeof(*c.shown)),
	};
	enum tfmc_status st = c.x && c.out && c.shown ? call_handler(in, op, &c) : TFMC_NO_MEMORY;
	memory_free(c.x);
	memory_free(c.out);
	memory_free(c.shown);
	if (st != TFMC_OK)
		return st;
	free_last_uses(in, op, op);
	for (size_t i = 0; i < op->n_results; i++)
		if (!in->slots[op->results[i].id].last_use)
			interp_slot_free(in, op->results[i]);
	return TFMC_OK;
}

enum tfmc_status interp_region(struct interp *in, const struct ir_region *r)
{
	for (size_t i = 0; i + 1 < r->n_ops; i++)
		TFMC_TRY(execute(in, r->ops[i]));
	return TFMC_OK;
}

static const struct ir_op *terminator(const struct ir_region *r)
{
	return r->ops[r->n_ops - 1];
}

/* Frees everything that was defined directly in the region. */
static void clear_region(struct interp *in, const struct ir_region *r)
{
	for (size_t i = 0; i < r->n_args; i++)
		interp_slot_free(in, r->args[i]);
	for (size_t i = 0; i < r->n_ops; i++)
		for (size_t k = 0; k < r->ops[i]->n_results; k++)
			interp_slot_free(in, r->ops[i]->results[k]);
}

/* ---- ops with regions ---- */

/* Copies what the region yields into the results of its op. */
static enum tfmc_status take_yields(struct interp *in, const struct ir_op *op)
{
	const struct ir_op *yield = terminator(op->region);
	assert(yield->n_operands == op->n_results);
	for (size_t i = 0; i < op->n_results; i++) {
		TFMC_TRY(interp_slot_copy(in, op, op->results[i], &in->slots[yield->operands[i].id].tensor));
		interp_memory_carry(in, op->results[i], yield->operands[i]);
	}
	return TFMC_OK;
}

/* The carries live in the results between the iterations. */
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
		TFMC_TRY(interp_region(in, r));
		TFMC_TRY(take_yields(in, op));
		clear_region(in, r);
	}
	in->n_at--;
	return TFMC_OK;
}

INTERP_EVAL(group)
{
	TFMC_TRY(interp_memory_read(in, op));
	TFMC_TRY(interp_region(in, op->region));
	TFMC_TRY(take_yields(in, op));
	TFMC_TRY(interp_memory_write(in, op));
	clear_region(in, op->region);
	return TFMC_OK;
}

/* Terminators are read by whoever executes their region. */
INTERP_EVAL(yield)
{
	return interp_error(in, op, "a yield comes before the end of its region");
}

INTERP_EVAL(return )
{
	return interp_error(in, op, "a return comes before the end of its function");
}
