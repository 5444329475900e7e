/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk-ffn: feed-forward blocks compute their hidden columns in parts, one after another.
 *
 * Requires   fuse-attention; merge-linear comes later and joins gate and up of a part.
 * Ensures    a repeat carries the sum [.., D] over parts of at most `columns` hidden columns, so that no
 * buffer of all F exists. Its first value is the residual and the bias. Weights are the same tensors, cut by
 * their provenance. Where F is no multiple of a size near `columns`, the rest follows the repeat. Example %h
 * = linear %n, @up[%l]  %a = gelu %h  %d = linear %a, @down[%l]  %y = add %x, %d
 *        ->  %y = repeat 6 (%c, %s = %x) { %h = linear %n, @up.parts[%l][%c]  %a = gelu %h
 *            %d = linear %a, @down.parts[%l][%c]  %t = add %s, %d  yield %t }
 * Refuses    blocks whose weights something else reads (they would be stored twice), blocks that are as small
 * as a part, and blocks inside of more than one repeat.
 */
#include "passes/chunks/ffn.h"
#include "passes/weights/join_weights.h"

#define PANEL       16 /* columns of a panel of packed weights */
#define DEPTH_MAX   1  /* repeats around a block: objects nest two */
#define SMALLER_MAX 2  /* parts are made smaller, down to this part of `columns`, to divide F */

/* F = count * columns + rest */
struct parts {
	int64_t columns, count, rest;
};

struct chunker {
	struct ffn_list blocks;
	int64_t columns;
};

/* --- which ---------------------------------------------------------------------------------------------- */

static struct parts parts_of(int64_t hidden, int64_t columns)
{
	int64_t most = columns / PANEL * PANEL;
	for (int64_t c = most; c >= most / SMALLER_MAX && c >= PANEL; c -= PANEL)
		if (hidden % c == 0)
			return (struct parts){c, hidden / c, 0};
	return (struct parts){most, hidden / most, hidden % most};
}

/* Blocks that share weights are equally wide; what differs between them is where they stand. */
static bool is_cut(const struct chunker *c, const struct ffn *b)
{
	return b != NULL && b->ok && b->hidden > c->columns;
}

static const struct ffn *block_of(const struct rebuild *r, const struct ir_op *op)
{
	const struct chunker *c = r->rewrite->user;
	const struct ffn *b = ffn_of(&c->blocks, op);
	return is_cut(c, b) ? b : NULL;
}

static void need_linear(struct rebuild *r, const struct ir_op *linear)
{
	for (size_t i = 1; i <= 2; i++) {
		const struct ir_op *w = ffn_weight_op(r->f, linear, i);
		for (size_t k = 0; w != NULL && k < w->n_operands; k++)
			rebuild_need(r, w->operands[k]);
	}
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	const struct ffn *b = block_of(r, op);
	if (b == NULL)
		return false;
	rebuild_need(r, b->n);
	rebuild_need(r, b->residual);
	rebuild_need(r, b->down->operands[2]);
	need_linear(r, b->down);
	for (size_t i = 0; i < b->n_ups; i++)
		need_linear(r, b->ups[i]);
	for (size_t i = 0; i < b->n_ops; i++)
		if (b->ops[i]->code == OP_mask_rows)
			rebuild_need(r, b->ops[i]->operands[1]);
	return true;
}

/* --- weights -------------------------------------------------------------------------------------------- */

/* The part of a weight: rows [N] of its last axes but `behind`, for the repeat or the rest. */
struct cut {
	const struct parts *parts;
	bool is_rest;
	bool is_down; /* K is cut, not N */
};

/* [lead.., F, behind..] -> [lead.., count, columns, behind..], or [lead.., rest, behind..] */
static const struct ir_wexpr *cut_rows(struct arena *a, const struct ir_wexpr *e, int axis,
                                       const struct cut *c)
{
	const struct parts *p = c->parts;
	int64_t whole = p->count * p->columns, dims[IR_RANK_MAX];
	if (c->is_rest)
		return wexpr_slice(a, axis, whole, whole + p->rest, e);
	if (p->rest > 0)
		e = wexpr_slice(a, axis, 0, whole, e);
	if (e == NULL || e->rank >= IR_RANK_MAX)
		return NULL;
	for (int i = 0; i <= e->rank; i++)
		dims[i] = i == axis ? p->count : i == axis + 1 ? p->columns : e->dims[i > axis ? i - 1 : i];
	return wexpr_reshape(a, e->rank + 1, dims, e);
}

/* Columns of [lead.., D, F] are the rows of its transpose. */
static const struct ir_wexpr *cut_weight(struct arena *a, const struct ir_weight *w, int lead,
                                         const struct cut *c)
{
	const struct ir_wexpr *e = c->is_down ? wexpr_transpose(a, w->init) : w->init;
	e = e == NULL ? NULL : cut_rows(a, e, lead, c);
	return e != NULL && c->is_down ? wexpr_transpose(a, e) : e;
}

static const struct ir_weight *add_part(struct rebuild *r, const struct ir_op *ref, const struct cut *c)
{
	const struct ir_weight *w = ((const struct attrs_weight *)ref->attrs)->weight;
	const struct ir_wexpr *e = cut_weight(&r->out->arena, w, (int)ref->n_operands, c);
	const struct ir_dim *dims[IR_RANK_MAX];
	if (e == NULL)
		return NULL;
	for (int i = 0; i < e->rank; i++)
		dims[i] = ir_dim_const(r->out->dims, e->dims[i]);
	struct ir_weight part = {
	        .name = arena_printf(r->p->arena, "%s.%s", w->name, c->is_rest ? "rest" : "parts"),
	        .type = ir_type_tensor(r->out->types, w->type->dtype, e->rank, dims),
	        .encoding = ENC_ROW,
	        .narrow = w->narrow,
	        .init = e,
	        .loc = w->loc};
	return join_add_weight(r, &part);
}

/* Operand i of a linear, cut; `at` is the index of the part. IR_NO_VALUE for a bias that is not there. */
static struct ir_value part_of(struct rebuild *r, const struct ir_op *linear, size_t i, const struct cut *c,
                               struct ir_value at)
{
	const struct ir_op *ref = ffn_weight_op(r->f, linear, i);
	struct ir_value index[IR_RANK_MAX];
	if (ref == NULL)
		return IR_NO_VALUE;
	const struct ir_weight *w = add_part(r, ref, c);
	if (w == NULL) {
		diag_error(r->p->cx, linear->loc.at, DIAG_INTERNAL, "chunk-ffn: a weight cannot be cut");
		return IR_NO_VALUE;
	}
	for (size_t k = 0; k < ref->n_operands; k++)
		index[k] = rebuild_get(r, ref->operands[k]);
	index[ref->n_operands] = at;
	return irb_weight_ref(r->b, w, index, ref->n_operands + !c->is_rest);
}

/* --- ops ------------------------------------------------------------------------------------------------ */

/* sum + down(act(up(n))) for one part. */
static struct ir_value build_part(struct rebuild *r, const struct ffn *b, struct cut c, struct ir_value at,
                                  struct ir_value sum)
{
	for (size_t i = 0; i < b->n_ups; i++) {
		const struct ir_op *up = b->ups[i];
		struct ir_value w = part_of(r, up, 1, &c, at), bias = part_of(r, up, 2, &c, at);
		irb_set_loc(r->b, up->loc);
		rebuild_set(r, up->results[0], irb_linear(r->b, rebuild_get(r, b->n), w, bias, NULL));
	}
	for (size_t i = 0; i < b->n_ops; i++) {
		irb_set_loc(r->b, b->ops[i]->loc);
		irb_clone(r->b, r->f, b->ops[i], r->map);
	}
	c.is_down = true;
	irb_set_loc(r->b, b->down->loc);
	struct ir_value w = part_of(r, b->down, 1, &c, at);
	struct ir_value y = irb_linear(r->b, rebuild_get(r, b->down->operands[0]), w, IR_NO_VALUE, NULL);
	irb_set_loc(r->b, b->end->loc);
	return irb_add(r->b, sum, y, NULL);
}

/* The residual and the bias, or zeros. */
static struct ir_value first_sum(struct rebuild *r, const struct ffn *b)
{
	const struct ir_type *y = ir_type_of(r->f, b->down->results[0]);
	struct ir_value x = rebuild_get(r, b->residual), bias = rebuild_get(r, b->down->operands[2]);
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < y->rank; i++)
		dims[i] = ir_import_dim(r->out, y->dims[i]);
	if (bias.id != 0)
		bias = irb_broadcast_to(r->b, bias, y->rank, dims);
	if (x.id != 0)
		return bias.id != 0 ? irb_add(r->b, x, bias, NULL) : x;
	return bias.id != 0 ? bias : irb_full_of(r->b, 0, DT_F32, y->rank, dims);
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	const struct chunker *g = r->rewrite->user;
	const struct ffn *b = block_of(r, op);
	const struct parts p = parts_of(b->hidden, g->columns);
	struct ir_value sum = first_sum(r, b), args[2], part;

	irb_repeat_begin(r->b, p.count, &sum, 1, args);
	part = build_part(r, b, (struct cut){.parts = &p}, args[0], args[1]);
	irb_repeat_end(r->b, &part, 1, &sum);
	if (p.rest > 0)
		sum = build_part(r, b, (struct cut){.parts = &p, .is_rest = true}, IR_NO_VALUE, sum);
	rebuild_set(r, op->results[0], sum);
	pass_count(r->p, "blocks", 1);
	pass_remark(r->p, b->down->loc, "%lld hidden columns in parts of %lld", (long long)b->hidden,
	            (long long)p.columns);
}

/* --- all ------------------------------------------------------------------------------------------------ */

enum tfmc_status pass_chunk_ffn(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct chunker g = {.columns = p->step->settings[0]};
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &g};
	size_t errors = p->cx->n_errors;

	if (!ffn_find(p, in, DEPTH_MAX, &g.blocks))
		return TFMC_NO_MEMORY;
	pass_count(p, "blocks", 0);
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INTERNAL : TFMC_OK;
}
