/* SPDX-License-Identifier: Apache-2.0 */
/*
 * center: in a pre-norm residual stream layer_norm becomes rms_norm, because the stream has mean 0.
 *
 * Requires   demand-rows (it moves rows through the stream) and fold-affine (a beta that stays becomes an
 * add). Ensures    matrices and biases of all linears that write the stream have lost their mean over the
 * outputs; so has what enters it: by its tables when only gathers are summed and nothing else reads those
 * rows, else by one subtraction at run time. eps stays: the variance is the mean square. Exactness:
 * reassociate. Counters: `norms`, `writers`, `tables`, `centers` (at run time), `constants`, `bytes`. Example
 * %r = repeat (%x) { %h = layer_norm %r ... %y = linear %t, @w[%l], @c[%l]   %s = add %r, %y }
 *        ->  the same with rms_norm, @w = center(1, W), @c = center(1, C)
 * Refuses    a stream that anything but layer_norm, adds, views, scale, rows and carries reads (a result, the
 * queries of a post-norm layer, rms_norm), that something else than a linear with f32 weights writes inside
 * of the layers, whose weights are used elsewhere in the module, or that one norm reads alone.
 */
#include "passes/folds/center.h"
#include "passes/folds/fold_affine.h"

static unsigned role_of(const struct rebuild *r, const struct ir_op *op)
{
	return streams_role(r->rewrite->user, r->f, op);
}

/* Operand i of op is a weight that gets another provenance. */
static bool is_replaced(unsigned role, size_t i)
{
	return ((role & CENTER_WRITER) != 0 && i > 0) || ((role & CENTER_TABLE) != 0 && i == 0);
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	unsigned role = role_of(r, op);
	if (role == CENTER_NONE)
		return false;
	r->number = streams_number(r->rewrite->user, r->f, op);
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_op *ref = uses_weight_op(r->f, op->operands[i]);
		if (!is_replaced(role, i))
			rebuild_need(r, op->operands[i]);
		for (size_t k = 0; is_replaced(role, i) && ref != NULL && k < ref->n_operands; k++)
			rebuild_need(r, ref->operands[k]);
	}
	return true;
}

/* The weight behind v without its mean over `axis` counted from the end (0: the last one). */
static struct ir_value centered(struct rebuild *r, struct ir_value v, int from_end, bool replaces)
{
	const struct ir_op *ref = uses_weight_op(r->f, v);
	const struct ir_weight *w = uses_weight(r->f, v);
	struct ir_value at[IR_RANK_MAX];
	if (ref == NULL)
		return IR_NO_VALUE;
	const struct ir_wexpr *e = wexpr_center(&r->out->arena, w->init->rank - 1 - from_end, w->init);
	const char *name = replaces ? w->name : arena_printf(r->p->arena, "%s.centered", w->name);
	const struct ir_weight *now = uses_add_weight(r, w, name, e, replaces);
	for (size_t i = 0; i < ref->n_operands; i++)
		at[i] = rebuild_get(r, ref->operands[i]);
	return now == NULL ? IR_NO_VALUE : irb_weight_ref(r->b, now, at, ref->n_operands);
}

static struct ir_value emit_writer(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value w = centered(r, op->operands[1], 1, true), b = centered(r, op->operands[2], 0, true);
	pass_count(r->p, "writers", 1);
	return irb_linear(r->b, rebuild_get(r, op->operands[0]), w, b, NULL);
}

static struct ir_value emit_table(struct rebuild *r, const struct ir_op *op)
{
	const struct streams *s = r->rewrite->user;
	const struct weight_uses *u = module_uses_weight(s->uses, uses_weight(r->f, op->operands[0]));
	pass_count(r->p, "tables", 1);
	return irb_gather(r->b, centered(r, op->operands[0], 0, u->linear == 0),
	                  rebuild_get(r, op->operands[1]), NULL);
}

/* dims of v in the new module */
static int new_dims(struct rebuild *r, struct ir_value v, const struct ir_dim **dims)
{
	const struct ir_type *t = ir_type_of(r->f, v);
	for (int i = 0; i < t->rank; i++)
		dims[i] = ir_import_dim(r->out, t->dims[i]);
	return t->rank;
}

static struct ir_value emit_norm(struct rebuild *r, const struct ir_op *op)
{
	const struct attrs_rms_norm attrs = {.eps = ((const struct attrs_layer_norm *)op->attrs)->eps};
	struct ir_value y =
	        irb_rms_norm(r->b, rebuild_get(r, op->operands[0]), rebuild_get(r, op->operands[1]), &attrs);
	const struct ir_dim *dims[IR_RANK_MAX];
	pass_count(r->p, "norms", 1);
	pass_applied(r->p, streams_number(r->rewrite->user, r->f, op), NULL, op->loc);
	pass_remark(r->p, op->loc, "centered: layer_norm of a stream with mean 0 is rms_norm");
	if (op->operands[2].id == 0)
		return y;
	int rank = new_dims(r, op->results[0], dims);
	return irb_add(r->b, y, irb_broadcast_to(r->b, rebuild_get(r, op->operands[2]), rank, dims), NULL);
}

/* x - mean(x) over the last axis; x the new value of v */
static struct ir_value subtract_mean(struct rebuild *r, struct ir_value v, struct ir_value x)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank = new_dims(r, v, dims);
	int64_t axis = rank - 1;
	const struct attrs_reduce_mean attrs = {.axes = {&axis, 1}, .keep = true};
	struct ir_value mean = irb_reduce_mean(r->b, x, &attrs);
	pass_count(r->p, "centers", 1);
	return irb_sub(r->b, x, irb_broadcast_to(r->b, mean, rank, dims), NULL);
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	unsigned role = role_of(r, op);
	struct ir_value now;
	if (role & CENTER_WRITER)
		now = emit_writer(r, op);
	else if (role & CENTER_TABLE)
		now = emit_table(r, op);
	else if (role & CENTER_NORM)
		now = emit_norm(r, op);
	else {
		irb_clone(r->b, r->f, op, r->map);
		now = rebuild_get(r, op->results[0]);
	}
	if (role & CENTER_CUT)
		now = subtract_mean(r, op->results[0], now);
	rebuild_set(r, op->results[0], now);
}

enum tfmc_status pass_center(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	const struct rewrite rewrite = {
	        .match = match, .emit = emit, .user = streams_collect(p, in), .is_numbered = true};

	if (rewrite.user == NULL)
		return TFMC_NO_MEMORY;
	pass_count(p, "norms", 0);
	return fold_rebuild(p, in, out, &rewrite);
}
