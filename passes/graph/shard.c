/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard: divides a model among `ranks` processes (tensor parallelism, Shoeybi et al. 2019, Megatron-LM, section 3).
 * reference=1: one object that adds the terms of all ranks in their order; 0: the module that each rank runs.
 *
 * Requires   merge-heads: heads are one axis of one attention.
 * Ensures    each contraction over an axis that linears compute column by column is a sum of partial results, one for
 *            each rank, added as a tree: ((0 + 1) + (2 + 3)) + ... With reference=0 the weights are those of one rank
 *            (`ranks`), axes that are cut have the size of the fullest rank, and all_reduce adds the terms.
 *            With fewer key heads than ranks, the ranks are divided among the key heads: each has one as a whole, in
 *            its state too, and a part of the query heads that read it. Ranks with fewer elements are filled up with
 *            zeros; a bias of a sum is that of rank 0, zeros on the others. Linears with at least `gather` elements
 *            that all ranks would compute as a whole (the head, rows that cannot be cut) have their columns divided at
 *            multiples of 16, and all_gather joins the results.
 * Example    %h = relu (linear %x, @up)   %y = linear %h, @down
 *        ->  %y = add (linear %h[0:F/2], @down[:, 0:F/2]), (linear %h[F/2:F], @down[:, F/2:F])
 * Skips      with a remark: axes that an op needs as a whole (norms, softmax, outputs of the model), quantized rows
 *            that have one scale or end within a block; axes with parts of different sizes where an op does not keep
 *            zeros finite (log, div), or where both factors of a product are values, whose filling need not be zero.
 * Benefit    none by itself: the object has the bits of the model on `ranks` ranks, the reference of every transport.
 *
 * A value is partial if every rank has one term of it, and reduced if it is partial and its terms are added where it is
 * defined. An axis is cut if each rank has some of its elements, else whole; axes that must be cut alike are a class
 * (shard_plan.c), and a rank's part is the range [begin, end), filled up to `local` elements (0: the axis is whole).
 */
#include "passes/graph/shard.h"

#include <string.h>

#include "ir/core/axes.h"
#include "passes/graph/concat_weights.h"

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

/* Whether op maps partial operands to a partial result: it is linear in them, and all other operands are whole. An
 * operand of another region is whole: its terms are added before the repeat reads it. */
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

/* Terms are added before a view, which exchanges nothing: ranks exchange values that are one array. */
static bool is_reduced_view(const struct sharder *s, const struct ir_op *op)
{
	return ir_op_has(op->code, TRAIT_VIEW) && s->reduced[op->results[0].id];
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
			bool keeps = op->n_results == 1 && s->partial[op->results[0].id] &&
			             keeps_partial(s, op) && !is_reduced_view(s, op);
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

/* Prepares the tables of a function. False without memory. match is called op by op; the first op of a function
 * finds them stale. */
static bool enter_function(struct arena *a, struct sharder *s, const struct ir_func *f)
{
	if (s->f == f)
		return true;
	s->f = f;
	s->partial = ARENA_ARRAY(a, bool, f->n_values);
	s->reduced = ARENA_ARRAY(a, bool, f->n_values);
	s->parts = ARENA_ARRAY(a, struct ir_value, f->n_values * (size_t)s->ranks);
	if (arena_failed(a))
		return false;
	find_partials(s);
	return true;
}

/* The value that a rank cuts its elements of operand i from: dynamically quantized activations are quantized after the
 * cut, which is at blocks. */
static struct ir_value source_of(const struct ir_func *f, const struct ir_op *op, size_t i)
{
	const struct ir_op *rounded = ir_def_as(f, op->operands[i], OP_quantize_rows);
	return rounded != NULL ? rounded->operands[0] : op->operands[i];
}

/* Matches ops whose result is partial; marks what the terms of all ranks read: a weight that is cut only by its
 * indices, as it becomes other weights. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct sharder *s = r->rewrite->user;
	if (op->n_results != 1 || !enter_function(r->p->arena, s, r->f) || !s->partial[op->results[0].id])
		return false;
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_op *w = ir_def_as(r->f, op->operands[i], OP_weight);
		int64_t begin, end;
		bool cut = shard_contracted(s->plan, r->f, op, i, 0, &begin, &end) >= 0;
		if (w == NULL || !cut)
			rebuild_need(r, cut ? source_of(r->f, op, i) : op->operands[i]);
		if (w != NULL)
			rebuild_need_operands(r, w);
	}
	return true;
}

/* A reference to elements [begin, end) of axis `axis` (without the axes of the indices) of the value of a
 * weight op, as a weight of the given name; plain if blocks of its format do not end there. No value: without
 * memory. */
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
	const struct ir_weight *added = add_weight_renamed(r->p->arena, r->in, r->out, &part);
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
	const struct ir_op *rounded = ir_def_as(r->f, v, OP_quantize_rows);
	struct ir_value x =
	        irb_slice_of(r->b, rebuild_get(r, source_of(r->f, op, i)), axis,
	                     ir_dim_const(r->out->dims, begin), ir_dim_const(r->out->dims, end - begin));
	return rounded != NULL ? irb_quantize_rows(r->b, x, rounded->attrs) : x;
}

/* Position of the bias among the operands; SIZE_MAX: the op has none. */
static size_t bias_of(const struct ir_op *op)
{
	return op->code == OP_linear          ? OPERAND(linear, b)
	       : op->code == OP_expert_linear ? OPERAND(expert_linear, b)
	                                      : SIZE_MAX;
}

/* The term of a contraction on one rank; no value: its part is empty. Rank 0 alone has the bias, which is added
 * once. */
static struct ir_value emit_contraction(struct rebuild *r, const struct ir_op *op, int64_t rank)
{
	const struct sharder *s = r->rewrite->user;
	struct ir_value in[IR_AXES_OPERANDS_MAX];
	size_t bias = bias_of(op);
	int64_t begin, end;
	if (shard_contracted(s->plan, r->f, op, 0, rank, &begin, &end) >= 0 && begin == end)
		return IR_NO_VALUE;
	for (size_t i = 0; i < op->n_operands; i++)
		in[i] = i == bias && rank > 0 ? IR_NO_VALUE : cut_operand(r, op, i, rank);
	return irb_op1(r->b, op->code, in, op->n_operands, op->attrs);
}

/* The term of operand i on one rank; no value: the rank has none. */
static struct ir_value term_of(const struct sharder *s, const struct ir_op *op, size_t i, int64_t rank)
{
	return s->parts[op->operands[i].id * (size_t)s->ranks + (size_t)rank];
}

/* The result of an op that is linear in the terms of one rank: a clone that reads the term in place of the
 * operand. No value: the rank has none. */
static struct ir_value emit_partial(struct rebuild *r, const struct ir_op *op, int64_t rank)
{
	const struct sharder *s = r->rewrite->user;
	if (op->code == OP_add || op->code == OP_sub) { /* a sum of two terms, each of which may be missing */
		struct ir_value a = term_of(s, op, 0, rank), b = term_of(s, op, 1, rank);
		if (b.id == 0)
			return a;
		if (a.id == 0)
			return op->code == OP_add ? b : irb_scale_by(r->b, b, -1.0);
	}
	for (size_t i = 0; i < op->n_operands; i++) {
		uint32_t id = op->operands[i].id;
		if (!s->partial[id] || s->reduced[id])
			continue;
		r->map[id] = term_of(s, op, i, rank);
		if (r->map[id].id == 0)
			return IR_NO_VALUE;
	}
	irb_clone(r->b, r->f, op, r->map);
	return r->map[op->results[0].id];
}

/* Builds the terms of all ranks, and their sum where the value is reduced: a tree in the order that all_reduce
 * adds in. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct sharder *s = r->rewrite->user;
	size_t n = (size_t)s->ranks;
	struct ir_value *terms = &s->parts[op->results[0].id * (size_t)s->ranks];
	for (int64_t rank = 0; rank < s->ranks; rank++)
		terms[rank] = shard_is_contraction(s->plan, op) ? emit_contraction(r, op, rank)
		                                                : emit_partial(r, op, rank);
	if (!s->reduced[op->results[0].id]) { /* its readers read s->parts */
		rebuild_set(r, op->results[0], terms[0]);
		return;
	}
	for (size_t step = 1; step < n; step *= 2)
		for (size_t i = 0; i + step < n; i += 2 * step)
			if (terms[i + step].id != 0)
				terms[i] = terms[i].id != 0 ? irb_add(r->b, terms[i], terms[i + step], NULL)
				                            : terms[i + step];
	rebuild_set(r, op->results[0], terms[0]);
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

/* Matches a slice of a fused linear; marks the input and the indices of weight and bias. */
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

/* Builds the linear of the rows of the weight that the slice reads, with the rows of the bias. */
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

/* ---- the module of every rank ---- */

struct writer {
	struct sharder s;
	struct pass_context *p;
	const struct ir_module *in;
	struct ir_module *out;
	int64_t tag;      /* of the next exchange of the function */
	int columns_axis; /* of the weight that DIVIDE_COLUMNS divides */
};

/* Which elements of a weight a rank has. */
enum division {
	DIVIDE_CLASSES, /* those of the classes that its axes are in */
	DIVIDE_FIRST,   /* all of them on rank 0 and zeros on the others, for a bias that is added once */
	DIVIDE_COLUMNS /* equal parts of the columns of a matrix, or of its bias, whose results are gathered */
};

#define COLUMNS_UNIT 16 /* a packed panel */

/* The part of axis i of a weight; local, the same on all ranks, is 0 if the axis is whole. Columns: ceil(n / ranks)
 * rounded up to full panels on each rank, so the last ranks may have fewer or none. */
static struct shard_part part_of_axis(const struct writer *w, const struct ir_weight *old, int i,
                                      enum division division, int64_t rank)
{
	struct shard_part p = {0};
	int64_t n = 0, ranks = w->s.ranks;
	if (division == DIVIDE_CLASSES)
		return shard_weight(w->s.plan, old, i, rank);
	if (division == DIVIDE_FIRST || i != w->columns_axis || !ir_dim_is_const(old->type->dims[i], &n))
		return p;
	p.local = ((n + ranks - 1) / ranks + COLUMNS_UNIT - 1) / COLUMNS_UNIT * COLUMNS_UNIT;
	p.begin = rank * p.local < n ? rank * p.local : n;
	p.end = p.begin + p.local < n ? p.begin + p.local : n;
	return p;
}

/* The part of a weight expression that one rank has, padded with zeros; NULL without memory. */
static const struct ir_wexpr *part_of_weight(const struct writer *w, const struct ir_weight *old,
                                             enum division division, int64_t rank)
{
	struct arena *a = &w->out->arena;
	const struct ir_wexpr *e = old->init;
	for (int i = 0; e != NULL && i < old->type->rank; i++) {
		const struct shard_part p = part_of_axis(w, old, i, division, rank);
		int64_t dims[IR_RANK_MAX];
		if (p.local == 0)
			continue;
		memcpy(dims, e->dims, sizeof(dims));
		dims[i] = p.local - (p.end - p.begin);
		const struct ir_wexpr *pieces[] = {p.end > p.begin ? wexpr_slice(a, i, p.begin, p.end, e)
		                                                   : NULL,
		                                   wexpr_full(a, 0, e->rank, dims)};
		e = p.end == p.begin ? pieces[1] : dims[i] > 0 ? wexpr_concat(a, i, 2, pieces) : pieces[0];
	}
	return e;
}

/* The weight with the parts of all ranks; NULL: it is the same on all of them. DIVIDE_CLASSES replaces the weight,
 * under its name, in all functions; the others are weights in addition to it. */
static const struct ir_weight *weight_of_ranks(struct writer *w, const struct ir_weight *old,
                                               enum division division)
{
	static const char *const suffixes[] = {
	        [DIVIDE_CLASSES] = "", [DIVIDE_FIRST] = ".first", [DIVIDE_COLUMNS] = ".columns"};
	const struct ir_wexpr **parts = ARENA_ARRAY(w->p->arena, const struct ir_wexpr *, w->s.ranks);
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_weight new = *old;
	bool is_cut = division == DIVIDE_FIRST;
	for (int i = 0; i < old->type->rank; i++) {
		const struct shard_part p = part_of_axis(w, old, i, division, 0);
		dims[i] = p.local > 0 ? ir_dim_const(w->out->dims, p.local)
		                      : ir_import_dim(w->out, old->type->dims[i]);
		is_cut = is_cut || p.local > 0;
	}
	if (!is_cut || parts == NULL)
		return NULL;
	for (int64_t rank = 0; rank < w->s.ranks; rank++)
		parts[rank] = division == DIVIDE_FIRST && rank > 0
		                      ? wexpr_full(&w->out->arena, 0, old->init->rank, old->init->dims)
		                      : part_of_weight(w, old, division, rank);
	new.name = arena_printf(w->p->arena, "%s%s", old->name, suffixes[division]);
	new.type = ir_type_tensor(w->out->types, old->type->dtype, old->type->rank, dims);
	new.init = wexpr_ranks(&w->out->arena, (size_t)w->s.ranks, parts);
	if (new.type == NULL || new.init == NULL)
		return NULL;
	new.format = wexpr_fits_format(new.init, old->format) ? old->format : FORMAT_PLAIN;
	return division == DIVIDE_CLASSES ? ir_add_weight(w->out, &new)
	                                  : add_weight_renamed(w->p->arena, w->in, w->out, &new);
}

/* A reference to the parts of a weight; no value: it is the same on all ranks. */
static struct ir_value reference_of_ranks(struct ir_copy *c, const struct ir_op *op, enum division division)
{
	struct ir_value index[IR_RANK_MAX];
	const struct ir_weight *w =
	        weight_of_ranks(c->user, ((const struct attrs_weight *)op->attrs)->weight, division);
	ir_copy_values(c, op->operands, op->n_operands, index);
	return w != NULL ? irb_weight_ref(c->b, w, index, op->n_operands) : IR_NO_VALUE;
}

/* The dims of the result on a rank, for attributes; n 0: no axis is cut. All ranks have the same, so those of
 * rank 0. */
static struct ir_dim_list dims_on_rank(const struct writer *w, const struct ir_func *f,
                                       const struct ir_op *op)
{
	const struct ir_type *t = ir_type_of(f, op->results[0]);
	struct ir_dim_list list = {ARENA_ARRAY(w->p->arena, const struct ir_dim *, IR_RANK_MAX), 0};
	bool is_cut = false;
	for (int i = 0; list.items != NULL && i < t->rank; i++) {
		int64_t local = shard_value(w->s.plan, f, op->results[0], i, 0).local;
		is_cut = is_cut || local > 0;
		list.items[list.n++] =
		        local > 0 ? ir_dim_const(w->out->dims, local) : ir_import_dim(w->out, t->dims[i]);
	}
	return is_cut ? list : (struct ir_dim_list){0};
}

/* Builds an op whose attributes hold sizes of its result. False: its result is whole, or it has no such attributes. */
static bool resize_op(struct ir_copy *c, const struct ir_op *op)
{
	union {
		struct attrs_reshape reshape;
		struct attrs_broadcast broadcast;
		struct attrs_full full;
		struct attrs_iota iota;
		struct attrs_dim_value dim_value;
	} a;
	struct ir_value x;
	if (op->code != OP_reshape && op->code != OP_broadcast && op->code != OP_full &&
	    op->code != OP_iota && op->code != OP_dim_value)
		return false;
	const struct ir_dim_list dims = dims_on_rank(c->user, c->from, op);
	if (dims.n == 0)
		return false;
	if (op->code == OP_reshape) {
		a.reshape = (struct attrs_reshape){.dims = dims};
	} else if (op->code == OP_broadcast) {
		a.broadcast = (struct attrs_broadcast){.dims = dims};
	} else if (op->code == OP_full) {
		a.full = *(const struct attrs_full *)op->attrs;
		a.full.dims = dims;
	} else if (op->code == OP_iota) {
		a.iota = *(const struct attrs_iota *)op->attrs;
		a.iota.dims = dims;
	} else {
		const struct ir_dim *dim = ((const struct attrs_dim_value *)op->attrs)->dim;
		a.dim_value =
		        (struct attrs_dim_value){.dim = ir_import_dim(irb_module(c->b), dim), .dims = dims};
	}
	ir_copy_values(c, op->operands, op->n_operands, &x);
	ir_copy_set(c, op->results[0], irb_op1(c->b, op->code, &x, op->n_operands, &a));
	return true;
}

/* The term of a contraction on this rank, whose operands are its parts already; the bias is added once, so it is
 * that of rank 0 and zeros on the others. */
static struct ir_value term_on_rank(struct ir_copy *c, const struct ir_op *op)
{
	struct ir_value in[IR_AXES_OPERANDS_MAX];
	ir_copy_values(c, op->operands, op->n_operands, in);
	size_t bias = bias_of(op);
	if (bias != SIZE_MAX && in[bias].id != 0)
		in[bias] = reference_of_ranks(c, ir_def_as(c->from, op->operands[bias], OP_weight),
		                              DIVIDE_FIRST);
	return irb_op1(c->b, op->code, in, op->n_operands, op->attrs);
}

/*
 * Whether the columns of a linear that all ranks would compute as a whole are divided: the head, and matrices whose
 * rows cannot be cut. It pays from some elements of the matrix on; ranks that wait for each other cost more than small
 * ones.
 */
static bool gathers_columns(const struct writer *w, const struct ir_func *f, const struct ir_op *op)
{
	const struct ir_weight *m = op->code == OP_linear ? ir_weight_of(f, op->operands[OPERAND(linear, w)])
	                                                  : NULL,
	                       *b = m != NULL ? ir_weight_of(f, op->operands[OPERAND(linear, b)]) : NULL;
	const struct ir_type *y = ir_type_of(f, op->results[0]);
	int64_t n, k;
	if (m == NULL || m->init == NULL || m->encoding != ENC_ROW || y->dtype != DT_F32 ||
	    (op->operands[OPERAND(linear, b)].id != 0 && (b == NULL || b->init == NULL)) ||
	    !ir_dim_is_const(m->type->dims[m->type->rank - 2], &n) ||
	    !ir_dim_is_const(m->type->dims[m->type->rank - 1], &k))
		return false;
	for (int i = 0; i < y->rank; i++) /* ranks with rows of their own have nothing to gather */
		if (shard_value(w->s.plan, f, op->results[0], i, 0).local > 0)
			return false;
	return w->s.ranks > 1 && n >= w->s.ranks * COLUMNS_UNIT &&
	       n * k >= w->p->step->settings[SETTING_shard_gather];
}

/* The result of a linear whose columns are divided: each rank computes its own, then all are gathered. Those of the
 * last ranks end in padding unless all have full panels. */
static void gather_columns(struct ir_copy *c, const struct ir_op *op)
{
	struct writer *w = c->user;
	struct ir_value in[OPERAND(linear, b) + 1];
	int64_t n = 0;
	ir_copy_values(c, op->operands, op->n_operands, in);
	for (size_t i = OPERAND(linear, w); i <= OPERAND(linear, b); i++) {
		const struct ir_op *def = ir_def_as(c->from, op->operands[i], OP_weight);
		if (def == NULL)
			continue;
		const struct ir_type *t = ((const struct attrs_weight *)def->attrs)->weight->type;
		w->columns_axis = t->rank - (i == OPERAND(linear, w) ? 2 : 1);
		in[i] = reference_of_ranks(c, def, DIVIDE_COLUMNS);
	}
	const struct attrs_all_gather a = {.ranks = w->s.ranks, .tag = w->tag++};
	struct ir_value y = irb_op1(c->b, OP_linear, in, op->n_operands, op->attrs);
	y = irb_all_gather(c->b, y, &a);
	const struct ir_type *t = ir_type_of(c->from, op->results[0]);
	(void)ir_dim_is_const(t->dims[t->rank - 1], &n);
	if (n % (w->s.ranks * COLUMNS_UNIT) != 0) /* the last columns are padding */
		y = irb_slice_of(c->b, y, t->rank - 1, ir_dim_const(w->out->dims, 0),
		                 ir_dim_const(w->out->dims, n));
	ir_copy_set(c, op->results[0], y);
	pass_count(w->p, "gathers", 1);
}

/* Hook of ir_copy_region: builds what one rank computes in place of op, and all_reduce where a partial result is
 * added up; false: op is cloned. A partial value has whole axes, so its op keeps its sizes. */
static bool copy_on_rank(struct ir_copy *c, const struct ir_op *op)
{
	struct writer *w = c->user;
	if (op->code == OP_weight) {
		struct ir_value v = reference_of_ranks(c, op, DIVIDE_CLASSES);
		if (v.id != 0)
			ir_copy_set(c, op->results[0], v);
		return v.id != 0;
	}
	if (op->n_results == 1 && !w->s.partial[op->results[0].id] && gathers_columns(w, c->from, op)) {
		gather_columns(c, op);
		return true;
	}
	if (op->n_results != 1 || !w->s.partial[op->results[0].id])
		return resize_op(c, op);
	if (shard_is_contraction(w->s.plan, op))
		ir_copy_set(c, op->results[0], term_on_rank(c, op));
	else
		irb_clone(c->b, c->from, op, c->map);
	if (w->s.reduced[op->results[0].id]) {
		const struct attrs_all_reduce a = {.ranks = w->s.ranks, .tag = w->tag++};
		ir_copy_set(c, op->results[0], irb_all_reduce(c->b, c->map[op->results[0].id], &a));
		pass_count(w->p, "sums", 1);
	}
	return true;
}

/* Writes the module that every rank runs: the axes that are cut have the size of the fullest rank. Exchanges are
 * numbered from 0 in each function. */
static enum tfmc_status write_ranks(struct pass_context *p, const struct ir_module *in, struct ir_module *out,
                                    struct sharder s)
{
	struct writer w = {.s = s, .p = p, .in = in, .out = out};
	for (size_t i = 0; i < in->states.n; i++) {
		const struct ir_state_decl *d = in->states.items[i];
		const struct ir_dim *dims[IR_RANK_MAX];
		for (int k = 0; k < d->type->rank; k++) {
			int64_t local = shard_state(s.plan, d, k).local;
			dims[k] = local > 0 ? ir_dim_const(out->dims, local)
			                    : ir_import_dim(out, d->type->dims[k]);
		}
		const struct ir_type *t = ir_type_tensor(out->types, d->type->dtype, d->type->rank, dims);
		if (t == NULL || !ir_set_state_type(out, d->name, t))
			return TFMC_NO_MEMORY;
	}
	for (size_t i = 0; i < in->funcs.n; i++) {
		const struct ir_func *f = in->funcs.items[i];
		struct ir_copy c = {irb_begin(out, p->cx, f->name, f->loc), f,
		                    ARENA_ARRAY(p->arena, struct ir_value, f->n_values), copy_on_rank, &w};
		w.tag = 0;
		if (c.b == NULL || !enter_function(p->arena, &w.s, f) || arena_failed(p->arena))
			return TFMC_NO_MEMORY;
		irb_clone_params(c.b, f, c.map);
		ir_copy_region(&c, f->body);
		TFMC_TRY(ir_copy_finish(&c, NULL));
	}
	return TFMC_OK;
}

/* An op exchanges values between ranks. */
static bool is_divided(const struct ir_module *m)
{
	for (size_t i = 0; i < m->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			if (ir_op_has(it.op->code, TRAIT_EXCHANGE))
				return true;
	return false;
}

/* Separates fused linears, plans, then writes the reference or the module of a rank. */
enum tfmc_status pass_shard(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct sharder s = {.ranks = p->step->settings[SETTING_shard_ranks]};
	const struct rewrite fused = {.match = match_fused, .emit = emit_fused};
	const struct rewrite terms = {.match = match, .emit = emit, .user = &s};
	size_t errors = p->cx->n_errors;
	if (is_divided(in)) {
		diag_error(p->cx, LOC_NONE, DIAG_PIPELINE, "the module is divided among ranks already");
		return TFMC_INVALID;
	}
	struct ir_module *separated = ir_module_create_like(in);
	enum tfmc_status st =
	        separated != NULL ? rebuild_module(p, in, separated, &fused, NULL) : TFMC_NO_MEMORY;
	s.plan = st == TFMC_OK ? shard_plan(p, separated, s.ranks) : NULL;
	if (s.plan != NULL)
		st = p->step->settings[SETTING_shard_reference] != 0
		             ? rebuild_module(p, separated, out, &terms, NULL)
		             : write_ranks(p, separated, out, s);
	else if (st == TFMC_OK)
		st = TFMC_NO_MEMORY;
	ir_module_destroy(separated);
	return st == TFMC_OK && p->cx->n_errors > errors ? TFMC_INTERNAL : st;
}
