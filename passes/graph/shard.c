/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard: sums every row-parallel linear in `ranks` parts, in the order in which the ranks would add them (tensor
 * parallelism, Shoeybi et al. 2019, Megatron-LM, section 3).
 *
 * Requires   merge-heads: heads are one axis of one attention.
 * Ensures    each contraction over an axis that linears compute column by column is a sum of partial results, one for
 *            each rank, added as a tree: ((0 + 1) + (2 + 3)) + ..; the parts are those of shard_contracted.
 * Example    %h = relu (linear %x, @up)   %y = linear %h, @down
 *        ->  %y = add (linear %h[0:F/2], @down[:, 0:F/2]), (linear %h[F/2:F], @down[:, F/2:F])
 * Skips      axes that an op needs as a whole (norms, softmax, outputs of the model), with a remark.
 * Benefit    none by itself: the object has the bits of the model on `ranks` ranks, the reference of every transport.
 */
#include "passes/graph/shard.h"

#include "ir/core/axes.h"
#include "passes/graph/concat_weights.h"

#define RANKS 0 /* setting */

struct sharder {
	const struct shard_plan *plan;
	int64_t ranks;
	const struct ir_func *f; /* function that the tables below are of */
	bool *partial;           /* [n_values] the value is one of several terms that are still to be added */
	bool *reduced;           /* [n_values] partial, and added where it is defined */
	struct ir_value
	        *parts; /* [n_values][ranks] the terms, of the new function; no value: the part is empty */
};

/* Position of the operand that may stay partial through op; SIZE_MAX: the op needs whole operands. */
static size_t linear_operand(const struct sharder *s, const struct ir_op *op)
{
	switch (op->code) {
	case OP_scale:
	case OP_reduce_sum:
	case OP_reshape:
	case OP_transpose:
	case OP_select_rows:
	case OP_mask_rows:
	case OP_div: return 0;
	case OP_mul: return s->partial[op->operands[0].id] ? 0 : 1;
	default: return SIZE_MAX;
	}
}

/* Whether op maps partial operands to a partial result: it is linear in them, and all other operands are whole. */
static bool keeps_partial(const struct sharder *s, const struct ir_op *op)
{
	if (op->n_results != 1 || op->n_operands == 0)
		return false;
	bool both = op->code == OP_add || op->code == OP_sub;
	size_t at = both ? 0 : linear_operand(s, op);
	for (size_t i = 0; i < op->n_operands && at != SIZE_MAX; i++) {
		struct ir_value v = op->operands[i];
		bool is_term = s->partial[v.id] && !s->reduced[v.id] &&
		               ir_value_info(s->f, v)->region == ir_value_info(s->f, op->results[0])->region;
		if (is_term != (both || i == at))
			return false;
	}
	return at != SIZE_MAX;
}

/*
 * Finds the values that stay partial. A term is added where it is defined unless every reader keeps it partial, so no
 * value is exchanged twice; readers that lose one operand lose the others, until nothing changes.
 */
static void find_partials(struct sharder *s)
{
	bool changed = true;
	for (struct ir_iter it = ir_iter_begin(s->f->body); it.op != NULL; ir_iter_next(&it))
		if (it.op->n_results == 1 &&
		    (shard_is_contraction(s->plan, it.op) || keeps_partial(s, it.op)))
			s->partial[it.op->results[0].id] = true;
	while (changed) {
		changed = false;
		for (struct ir_iter it = ir_iter_begin(s->f->body); it.op != NULL; ir_iter_next(&it)) {
			const struct ir_op *op = it.op;
			bool keeps =
			        op->n_results == 1 && s->partial[op->results[0].id] && keeps_partial(s, op);
			if (op->n_results == 1 && s->partial[op->results[0].id] && !keeps &&
			    !shard_is_contraction(s->plan, op)) {
				s->partial[op->results[0].id] = false;
				changed = true;
			}
			for (size_t i = 0; i < op->n_operands && !keeps; i++) {
				uint32_t id = op->operands[i].id;
				changed = changed || (s->partial[id] && !s->reduced[id]);
				s->reduced[id] = s->partial[id];
			}
		}
	}
}

/* Prepares the tables of the function that is being rewritten. False without memory. */
static bool enter_function(struct rebuild *r)
{
	struct sharder *s = r->rewrite->user;
	if (s->f == r->f)
		return true;
	s->f = r->f;
	s->partial = ARENA_ARRAY(r->p->arena, bool, r->f->n_values);
	s->reduced = ARENA_ARRAY(r->p->arena, bool, r->f->n_values);
	s->parts = ARENA_ARRAY(r->p->arena, struct ir_value, r->f->n_values * (size_t)s->ranks);
	if (arena_failed(r->p->arena))
		return false;
	find_partials(s);
	return true;
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct sharder *s = r->rewrite->user;
	if (op->n_results != 1 || !enter_function(r) || !s->partial[op->results[0].id])
		return false;
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_op *w = ir_def_as(r->f, op->operands[i], OP_weight);
		int64_t begin, end;
		if (w == NULL || shard_contracted(s->plan, r->f, op, i, 0, &begin, &end) < 0)
			rebuild_need(r, op->operands[i]);
		if (w != NULL)
			rebuild_need_operands(r, w);
	}
	return true;
}

/* A reference to elements [begin, end) of axis `axis` of the value of a weight op, under the given name. */
static struct ir_value cut_weight(struct rebuild *r, const struct ir_op *op, int axis, int64_t begin,
                                  int64_t end, const char *name)
{
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	struct ir_weight part = *w;
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_value index[IR_RANK_MAX];
	axis += (int)op->n_operands;
	for (int i = 0; i < w->type->rank; i++)
		dims[i] = i == axis ? ir_dim_const(r->out->dims, end - begin)
		                    : ir_import_dim(r->out, w->type->dims[i]);
	for (size_t i = 0; i < op->n_operands; i++)
		index[i] = rebuild_get(r, op->operands[i]);
	part.name = name;
	part.type = ir_type_tensor(r->out->types, w->type->dtype, w->type->rank, dims);
	part.init = wexpr_slice(&r->out->arena, axis, begin, end, w->init);
	if (part.type == NULL || part.init == NULL)
		return IR_NO_VALUE;
	part.format = wexpr_fits_format(part.init, w->format) ? w->format : FORMAT_PLAIN;
	const struct ir_weight *added = add_weight_renamed(r, &part);
	return added != NULL ? irb_weight_ref(r->b, added, index, op->n_operands) : IR_NO_VALUE;
}

/* Operand i of a contraction, the elements of one rank along the axes that are cut. */
static struct ir_value cut_operand(struct rebuild *r, const struct ir_op *op, size_t i, int64_t rank)
{
	const struct sharder *s = r->rewrite->user;
	struct ir_value v = op->operands[i];
	const struct ir_op *w = ir_def_as(r->f, v, OP_weight);
	int64_t begin, end;
	int axis = shard_contracted(s->plan, r->f, op, i, rank, &begin, &end);
	if (axis < 0)
		return rebuild_get(r, v);
	if (w != NULL)
		return cut_weight(r, w, axis, begin, end,
		                  arena_printf(r->p->arena, "%s.rank%lld",
		                               ((const struct attrs_weight *)w->attrs)->weight->name,
		                               (long long)rank));
	return irb_slice_of(r->b, rebuild_get(r, v), axis, ir_dim_const(r->out->dims, begin),
	                    ir_dim_const(r->out->dims, end - begin));
}

/* The term of a contraction on one rank; no value: its part is empty. */
static struct ir_value emit_contraction(struct rebuild *r, const struct ir_op *op, int64_t rank)
{
	const struct sharder *s = r->rewrite->user;
	struct ir_value in[IR_AXES_OPERANDS_MAX];
	size_t bias = op->code == OP_linear          ? OPERAND(linear, b)
	              : op->code == OP_expert_linear ? OPERAND(expert_linear, b)
	                                             : SIZE_MAX;
	int64_t begin, end;
	if (shard_contracted(s->plan, r->f, op, 0, rank, &begin, &end) >= 0 && begin == end)
		return IR_NO_VALUE;
	for (size_t i = 0; i < op->n_operands; i++)
		in[i] = i == bias && rank > 0 ? IR_NO_VALUE : cut_operand(r, op, i, rank);
	return irb_op1(r->b, op->code, in, op->n_operands, op->attrs);
}

/* The result of an op that is linear in the terms of one rank; no value: the rank has none. */
static struct ir_value emit_partial(struct rebuild *r, const struct ir_op *op, int64_t rank)
{
	const struct sharder *s = r->rewrite->user;
	for (size_t i = 0; i < op->n_operands; i++) {
		uint32_t id = op->operands[i].id;
		if (!s->partial[id] || s->reduced[id])
			continue;
		r->map[id] = s->parts[id * (size_t)s->ranks + (size_t)rank];
		if (r->map[id].id == 0)
			return IR_NO_VALUE;
	}
	irb_clone(r->b, r->f, op, r->map);
	return r->map[op->results[0].id];
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct sharder *s = r->rewrite->user;
	size_t n = 0;
	struct ir_value *terms = &s->parts[op->results[0].id * (size_t)s->ranks];
	for (int64_t rank = 0; rank < s->ranks; rank++)
		terms[rank] = shard_is_contraction(s->plan, op) ? emit_contraction(r, op, rank)
		                                                : emit_partial(r, op, rank);
	if (!s->reduced[op->results[0].id]) {
		rebuild_set(r, op->results[0], terms[0]);
		return;
	}
	struct ir_value *sum = ARENA_ARRAY(r->p->arena, struct ir_value, (size_t)s->ranks);
	for (int64_t rank = 0; sum != NULL && rank < s->ranks; rank++)
		if (terms[rank].id != 0)
			sum[n++] = terms[rank];
	for (size_t step = 1; step < n; step *= 2)
		for (size_t i = 0; i + step < n; i += 2 * step)
			sum[i] = irb_add(r->b, sum[i], sum[i + step], NULL);
	if (n > 0)
		rebuild_set(r, op->results[0], sum[0]);
	pass_count(r->p, "sums", 1);
}

/* ---- fused projections ---- */

/*
 * The linear of one weight that slice op reads columns of, if nothing reads all columns (q, k and v, or gate and up, as
 * one matrix); else NULL. Each slice becomes a linear of its own rows of the weight, so that each is cut by itself.
 */
static const struct ir_op *fused_linear(const struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *linear =
	        op->code == OP_slice ? ir_def_as(r->f, op->operands[0], OP_linear) : NULL;
	const struct attrs_slice *a = op->attrs;
	if (linear == NULL || a->axis != ir_type_of(r->f, op->results[0])->rank - 1 ||
	    !ir_dim_is_const(a->begin, NULL) || !ir_dim_is_const(a->size, NULL))
		return NULL;
	const struct ir_weight *w = ir_weight_of(r->f, linear->operands[OPERAND(linear, w)]),
	                       *b = ir_weight_of(r->f, linear->operands[OPERAND(linear, b)]);
	if (w == NULL || w->init == NULL || w->encoding != ENC_ROW ||
	    (linear->operands[OPERAND(linear, b)].id != 0 && (b == NULL || b->init == NULL)))
		return NULL;
	uint32_t n = 0;
	for (struct ir_iter it = ir_iter_begin(r->f->body); it.op != NULL; ir_iter_next(&it))
		n += it.op->code == OP_slice && ir_same_value(it.op->operands[0], op->operands[0]) &&
		     ((const struct attrs_slice *)it.op->attrs)->axis == a->axis;
	return n == r->uses[op->operands[0].id] && wexpr_fits_format(w->init, w->format) ? linear : NULL;
}

static bool match_fused(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *linear = fused_linear(r, op);
	if (linear == NULL)
		return false;
	rebuild_need(r, linear->operands[OPERAND(linear, x)]);
	for (size_t i = OPERAND(linear, w); i <= OPERAND(linear, b); i++) {
		const struct ir_op *w = ir_def_as(r->f, linear->operands[i], OP_weight);
		if (w != NULL)
			rebuild_need_operands(r, w);
	}
	return true;
}

static void emit_fused(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *linear = fused_linear(r, op);
	const struct attrs_slice *a = op->attrs;
	int64_t begin = 0, size = 0;
	struct ir_value in[OPERAND(linear, b) + 1] = {rebuild_get(r, linear->operands[OPERAND(linear, x)])};
	(void)ir_dim_is_const(a->begin, &begin);
	(void)ir_dim_is_const(a->size, &size);
	for (size_t i = OPERAND(linear, w); i <= OPERAND(linear, b); i++) {
		const struct ir_op *w = ir_def_as(r->f, linear->operands[i], OP_weight);
		if (w != NULL)
			in[i] = cut_weight(r, w, 0, begin, begin + size,
			                   arena_printf(r->p->arena, "%s.%lld_%lld",
			                                ((const struct attrs_weight *)w->attrs)->weight->name,
			                                (long long)begin, (long long)(begin + size)));
	}
	rebuild_set(r, op->results[0], irb_op1(r->b, OP_linear, in, TFMC_COUNT(in), linear->attrs));
}

enum tfmc_status pass_shard(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct sharder s = {.ranks = p->step->settings[RANKS]};
	struct ir_module *apart = ir_module_create_like(in);
	const struct rewrite fused = {.match = match_fused, .emit = emit_fused};
	const struct rewrite terms = {.match = match, .emit = emit, .user = &s};
	size_t errors = p->cx->n_errors;
	enum tfmc_status st = apart != NULL ? rebuild_module(p, in, apart, &fused, NULL) : TFMC_NO_MEMORY;
	s.plan = st == TFMC_OK ? shard_plan(p, apart, s.ranks) : NULL;
	if (s.plan != NULL)
		st = rebuild_module(p, apart, out, &terms, NULL);
	else if (st == TFMC_OK)
		st = TFMC_NO_MEMORY;
	ir_module_destroy(apart);
	return st == TFMC_OK && p->cx->n_errors > errors ? TFMC_INTERNAL : st;
}
