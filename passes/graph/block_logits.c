/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block-logits: logits that are read only by an arg-max or by the log-probability of given ids are never stored;
 * the kernel of their linear reduces each block of columns in its epilogue (online softmax statistics).
 *
 * Requires   encode (the linear has packed weights; its kernel works on blocks of columns).
 * Ensures    the linear's kernel ends in a block op that stores two or three values for each block of columns; the
 *            ops that combine the blocks read 1/20 of the bytes. Counters: `argmax`, `scores`.
 * Example    %y = linear %x, @head : f32[B,S,32000]  %i = argmax %y
 *        ->  %s = block_argmax %y : f32[B,S,2,500]
 *            %i = the index stored for the block that argmax finds in %s[..,0,:]
 *            %y = linear ..  %p = log_softmax %y  %r = select_rows of the rows of %p, one element of each
 *        ->  %s = block_log_softmax %y, %ids
 *            %r = the maximum of log_softmax(m + log(sum)) + d - log(sum) over the blocks, with the three stored
 *            values: m the largest logit of the block, sum of exp(x - m), d the logit of the id less m. The first
 *            addend is the log-probability of the block, the others that of the id within it: -inf in all blocks
 *            but the one that contains the id
 * Skips      logits with other users; fewer columns than the setting; targets whose kernels are work-groups
 *            (target.group_size).
 * Benefit    a sixteenth of the arena of `score` at 50000 ids: 12544 bytes a token for 201024
 *            (tests/perf/passes.md).
 */
#include "ir/target/target.h"
#include "ir/target/tile.h"
#include "passes/framework/rebuild.h"

#define CHAIN_MAX 8 /* elementwise ops after the linear */

enum { BLOCK_COLUMNS = TILE_PANELS_MAX * PANEL_COLUMNS }; /* columns of a block: nc of the kernel */

static bool is_packed(const struct rebuild *r, const struct ir_op *linear)
{
	const struct ir_weight *w = ir_weight_of(r->f, linear->operands[1]);
	return w != NULL && w->encoding == ENC_PANEL16 &&
	       ir_type_of(r->f, linear->operands[0])->dtype == DT_F32;
}

/* x is a linear with packed weights and many columns, perhaps followed by elementwise ops. Without other users:
 * with one, the logits are stored anyway. At most 2^24 columns: block_argmax stores their indices as f32. Below
 * IR_RANK_MAX: block ops add an axis. */
static bool is_logits(const struct rebuild *r, struct ir_value x)
{
	const struct ir_type *t = ir_type_of(r->f, x);
	int64_t columns;
	if (t->dtype != DT_F32 || t->rank < 1 || t->rank >= IR_RANK_MAX ||
	    !ir_dim_is_const(t->dims[t->rank - 1], &columns) ||
	    columns < r->p->step->settings[SETTING_block_logits_columns] || columns > 1 << 24)
		return false;
	for (size_t i = 0; i < CHAIN_MAX && rebuild_has_one_use(r, x); i++) {
		const struct ir_op *op = ir_def(r->f, x);
		if (op == NULL || op->code == OP_linear)
			return op != NULL && is_packed(r, op);
		if (!ir_op_has(op->code, TRAIT_ELEMENTWISE) || ir_type_of(r->f, op->operands[0]) != t)
			return false;
		x = op->operands[0];
	}
	return false;
}

/* op = select_rows(reshape(log_softmax(x)), ids) picks one log-probability of each row: returns the
 * log_softmax; NULL if op is not of this form, its values have other users, or x is not is_logits. */
static const struct ir_op *find_score(const struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *flat = ir_def_as(r->f, op->operands[0], OP_reshape), *p;
	if (ir_type_of(r->f, op->operands[0])->rank != 2 || !rebuild_has_one_use(r, op->operands[0]))
		return NULL;
	p = ir_def_as(r->f, flat != NULL ? flat->operands[0] : op->operands[0], OP_log_softmax);
	if (p == NULL || !rebuild_has_one_use(r, p->results[0]))
		return NULL;
	const struct ir_type *x = ir_type_of(r->f, p->operands[0]);
	bool same_rows = x->dims[x->rank - 1] == ir_type_of(r->f, op->operands[0])->dims[1];
	return same_rows && is_logits(r, p->operands[0]) ? p : NULL;
}

static bool has_work_groups(const struct rebuild *r)
{
	const struct target *t = r->p->options->target;
	return t != NULL && t->group_size > 1;
}

/* Matches argmax along the last axis and scored logits. Marks the logits, and for a score the ids, as needed:
 * emit computes all else from these. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *p = op->code == OP_select_rows && !has_work_groups(r) ? find_score(r, op) : NULL;
	if (p != NULL) {
		rebuild_need(r, p->operands[0]);
		rebuild_need(r, op->operands[1]);
		return true;
	}
	if (op->code != OP_argmax || has_work_groups(r))
		return false;
	int64_t axis = ((const struct attrs_argmax *)op->attrs)->axis;
	int rank = ir_type_of(r->f, op->operands[0])->rank;
	if ((axis != -1 && axis != rank - 1) || !is_logits(r, op->operands[0]))
		return false;
	rebuild_need(r, op->operands[0]);
	return true;
}

/* Value `which` of every block, with the rows as one axis: s [..,values,n] -> [rows,n]. */
static struct ir_value block_values(struct rebuild *r, struct ir_value s, int64_t which)
{
	struct ir_dims *dims = r->out->dims;
	const struct ir_type *t = irb_type(r->b, s);
	const struct ir_dim *one = ir_dim_const(dims, 1);
	const struct ir_dim *flat[] = {ir_type_count_range(dims, t, 0, t->rank - 2), t->dims[t->rank - 1]};
	return irb_reshape_to(r->b, irb_slice_of(r->b, s, t->rank - 2, ir_dim_const(dims, which), one), 2,
	                      flat);
}

/* Reshapes ids to the leading axes of x. */
static struct ir_value ids_like(struct rebuild *r, struct ir_value ids, struct ir_value x)
{
	const struct ir_type *t = irb_type(r->b, x);
	return irb_reshape_to(r->b, ids, t->rank - 1, t->dims);
}

/* log p(id) = max over blocks of (log-softmax over blocks + log-probability within the block). */
static void emit_score(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x = rebuild_get(r, find_score(r, op)->operands[0]);
	struct ir_value ids = ids_like(r, rebuild_get(r, op->operands[1]), x);
	struct ir_value s = irb_block_log_softmax(r->b, x, ids,
	                                          &(struct attrs_block_log_softmax){.width = BLOCK_COLUMNS});
	struct ir_value sum = irb_log(r->b, block_values(r, s, 1), NULL);
	struct ir_value blocks = irb_log_softmax(r->b, irb_add(r->b, block_values(r, s, 0), sum, NULL), NULL);
	struct ir_value all = irb_sub(r->b, irb_add(r->b, blocks, block_values(r, s, 2), NULL), sum, NULL);
	int64_t last = 1;
	const struct attrs_reduce_max max = {.axes = {&last, 1}};
	rebuild_set(r, op->results[0], irb_reduce_max(r->b, all, &max));
	pass_count(r->p, "scores", 1);
	pass_remark(r->p, op->loc, "fused: log_softmax of one id into the linear before it");
}

/* The arg-max over blocks of the block maxima selects the index that the block stored. */
static void emit_argmax(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x = rebuild_get(r, op->operands[0]);
	struct ir_value s = irb_block_argmax(r->b, x, &(struct attrs_block_argmax){.width = BLOCK_COLUMNS});
	struct ir_value at = irb_argmax(r->b, block_values(r, s, 0), &(struct attrs_argmax){.axis = 1});
	struct ir_value index = irb_select_rows(r->b, block_values(r, s, 1), at, NULL);
	index = irb_cast(r->b, index, &(struct attrs_cast){.dtype = DT_I32});
	const struct ir_type *t = irb_type(r->b, x);
	rebuild_set(r, op->results[0], irb_reshape_to(r->b, index, t->rank - 1, t->dims));
	pass_count(r->p, "argmax", 1);
	pass_remark(r->p, op->loc, "fused: argmax into the linear before it");
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	if (op->code == OP_argmax)
		emit_argmax(r, op);
	else
		emit_score(r, op);
}

enum tfmc_status pass_block_logits(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	const struct rewrite rewrite = {.match = match, .emit = emit};
	pass_count(p, "argmax", 0);
	pass_count(p, "scores", 0);
	return rebuild_module(p, in, out, &rewrite, NULL);
}
