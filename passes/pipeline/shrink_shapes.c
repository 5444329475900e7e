/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constraints between sizes (shrink_shapes.h). A size_var is the variable of a constant size of the model, 0 of a
 * symbolic one, which keeps its symbol. Constraints: two sizes are merged (tie), one keeps its old value (fix), or
 * products, sums or an upper bound relate several (size_relate); `want` is a preferred size (prefer_size).
 *
 * They follow the rules of type inference: sizes that those require to be equal are merged. All slices and pads of an
 * axis divide it into pieces whose sizes add up; a slice is a run of pieces, so slices that touch or overlap still do
 * in other sizes.
 */
#include "passes/pipeline/shrink_shapes.h"

#include <string.h>

#include "ir/core/axes.h"

/* ---- slices and pads of constant bounds ---- */

#define LIST_MAX 64

/* Adds a cut: `part` is the range of `whole` that begins at `begin`. Its pieces follow when all cuts of the axis are
 * known (divide_axis). */
static void add_cut(struct shapes *s, const struct ir_op *op, size_var whole, size_var part, int64_t begin)
{
	int64_t size = size_of(&s->sizes, part)->old;
	ARENA_ADD(s->sizes.arena, &s->cuts,
	          (struct cut){.op = op, .whole = whole, .part = part, .begin = begin, .end = begin + size});
}

/* The distinct ends of the axis and of all its slices, ascending by insertion, in points[LIST_MAX]. False:
 * there are more. */
static bool cut_points(const struct shapes *s, size_var whole, int64_t *points, size_t *n_out)
{
	size_t n = 0;
	for (size_t i = 0; i < s->cuts.n; i++) {
		const struct cut *c = &s->cuts.items[i];
		int64_t ends[] = {0, c->begin, c->end, s->sizes.vars.items[whole].old};
		if (size_find(&s->sizes, c->whole) != whole)
			continue;
		for (size_t k = 0; k < TFMC_COUNT(ends); k++) {
			size_t at = 0;
			while (at < n && points[at] < ends[k])
				at++;
			if (at < n && points[at] == ends[k])
				continue;
			if (n == LIST_MAX)
				return false;
			memmove(points + at + 1, points + at, (n - at) * sizeof(*points));
			points[at] = ends[k];
			n++;
		}
	}
	*n_out = n;
	return true;
}

/* The slice has the size of its pieces [first, last), which the points at its ends delimit; its ends are among the
 * points. pieces [n]: between the points. */
static void constrain_cut(struct shapes *s, struct cut *c, const int64_t *points, const size_var *pieces,
                          size_t n)
{
	size_t first = 0, last = 0;
	while (points[first] < c->begin)
		first++;
	for (last = first; points[last] < c->end;)
		last++;
	c->pieces = pieces;
	c->n_pieces = n;
	c->first = first;
	c->last = last;
	if (last - first == 1)
		size_merge(&s->sizes, c->part, pieces[first]);
	else
		size_relate(&s->sizes, SIZE_SUM, pieces + first, last - first, &c->part, 1);
}

/* Divides an axis into the pieces between its cuts, and constrains all its cuts. With too many cuts, or without
 * elements (n = 1: a single point), the axis keeps its size. */
static void divide_axis(struct shapes *s, size_var whole)
{
	int64_t points[LIST_MAX];
	size_t n = 0;
	bool divides = cut_points(s, whole, points, &n) && n >= 2;
	size_var *pieces = divides ? ARENA_ARRAY(s->sizes.arena, size_var, n) : NULL;
	for (size_t i = 0; i + 1 < n && pieces != NULL; i++)
		pieces[i] = size_new(&s->sizes, points[i + 1] - points[i]);
	if (pieces == NULL)
		size_fix(&s->sizes, whole);
	else
		size_relate(&s->sizes, SIZE_SUM, pieces, n - 1, &whole, 1);
	for (size_t i = 0; i < s->cuts.n; i++) {
		struct cut *c = &s->cuts.items[i];
		if (c->pieces != NULL || size_find(&s->sizes, c->whole) != whole)
			continue;
		if (pieces == NULL)
			size_fix(&s->sizes, c->part);
		else
			constrain_cut(s, c, points, pieces, n - 1);
	}
}

const struct cut *shapes_cut(const struct shapes *s, const struct ir_op *op)
{
	for (size_t i = 0; i < s->cuts.n; i++)
		if (s->cuts.items[i].op == op)
			return s->cuts.items[i].pieces != NULL ? &s->cuts.items[i] : NULL;
	return NULL;
}

int64_t shapes_pieces(struct shapes *s, const struct cut *c, size_t from, size_t to)
{
	int64_t size = 0;
	for (size_t i = from; i < to; i++)
		size += size_of(&s->sizes, c->pieces[i])->now;
	return size;
}

/* ---- axes ---- */

#define CONTEXT_SIZE 14 /* positions of a cache or table */
#define VOCAB_SIZE   11
#define LAYERS_SIZE  2

static struct axes *axes_of(const struct shapes *s, struct ir_value v)
{
	return &s->values[s->func][v.id];
}

static const struct ir_type *type_of(const struct shapes *s, struct ir_value v)
{
	return ir_type_of(s->f, v);
}

static void new_axes(struct shapes *s, const struct ir_type *t, struct axes *out)
{
	int64_t n;
	for (int i = 0; t->kind == IR_TENSOR && i < t->rank; i++)
		out->of[i] = ir_dim_is_const(t->dims[i], &n) ? size_new(&s->sizes, n) : 0;
}

/* Axis i of a has the size of axis j of b. */
static void tie(struct shapes *s, struct axes *a, int i, struct axes *b, int j)
{
	size_merge(&s->sizes, a->of[i], b->of[j]);
}

static void tie_all(struct shapes *s, struct ir_value a, struct ir_value b)
{
	const struct ir_type *t = type_of(s, a);
	for (int i = 0; t->kind == IR_TENSOR && i < t->rank; i++)
		tie(s, axes_of(s, a), i, axes_of(s, b), i);
}

/* Ties all axes but one. */
static void tie_others(struct shapes *s, struct ir_value a, struct ir_value b, int64_t axis)
{
	for (int i = 0; i < type_of(s, a)->rank; i++)
		if (i != axis)
			tie(s, axes_of(s, a), i, axes_of(s, b), i);
}

static void prefer_size(struct shapes *s, size_var v, int64_t size)
{
	if (v != 0)
		size_of(&s->sizes, v)->want = size;
}

/* ---- indices ---- */

/* An axis that is indexed by a value has the count of the repeat whose index that is; otherwise its size is fixed. */
static void tie_index(struct shapes *s, struct ir_value index, size_var axis)
{
	size_merge(&s->sizes, axis, s->counts[s->func][index.id]);
}

/* Operand i of op is an index of a weight or state, so it only selects. */
static bool is_index_operand(const struct ir_op *op, size_t i)
{
	size_t first = op->code == OP_weight         ? OPERAND(weight, index)
	               : op->code == OP_state_append ? OPERAND(state_append, at)
	               : op->code == OP_state_write  ? OPERAND(state_write, at)
	               : op->code == OP_state_read   ? OPERAND(state_read, at)
	                                             : SIZE_MAX;
	return i >= first;
}

/* ---- reshape ---- */

/* Axes from[0] to to[0] of a and from[1] to to[1] of b have the same number of elements. With a symbolic axis in the
 * group no equation of constants follows, so its constant sizes stay. */
static void tie_group(struct shapes *s, struct ir_value a, const int from[2], struct ir_value b,
                      const int to[2])
{
	size_var left[IR_RANK_MAX], right[IR_RANK_MAX];
	size_t n = 0, k = 0;
	bool symbolic = false;
	for (int i = from[0]; i < to[0]; i++) {
		left[n++] = axes_of(s, a)->of[i];
		symbolic = symbolic || left[n - 1] == 0;
	}
	for (int i = from[1]; i < to[1]; i++) {
		right[k++] = axes_of(s, b)->of[i];
		symbolic = symbolic || right[k - 1] == 0;
	}
	for (size_t i = 0; i < n && symbolic; i++)
		size_fix(&s->sizes, left[i]);
	for (size_t i = 0; i < k && symbolic; i++)
		size_fix(&s->sizes, right[i]);
	if (symbolic || n == 0 || k == 0)
		return;
	if (n == 1 && k == 1)
		size_merge(&s->sizes, left[0], right[0]);
	else
		size_relate(&s->sizes, SIZE_PRODUCT, left, n, right, k);
}

/* Divides both shapes into the smallest groups of consecutive axes with equal products: x of a, y of b. The next
 * axis is one of a unless x is already a proper multiple of y. Axes of size 1 join the group after them, or the last
 * one. */
static void visit_reshape(struct shapes *s, const struct ir_op *op)
{
	struct ir_value a = op->operands[0], b = op->results[0];
	const struct ir_type *t = type_of(s, a), *u = type_of(s, b);
	struct ir_dims *dims = s->m->dims;
	const struct ir_dim *one = ir_dim_const(dims, 1), *x = one, *y = one;
	int from[2] = {0, 0}, to[2] = {0, 0};
	while (to[0] < t->rank || to[1] < u->rank) {
		bool left = to[0] < t->rank &&
		            (to[1] == u->rank || (x == y && ir_dim_equals(t->dims[to[0]], 1)) ||
		             ir_dim_divide(dims, x, y) == NULL || x == y);
		if (left)
			x = ir_dim_mul(dims, x, t->dims[to[0]++]);
		else
			y = ir_dim_mul(dims, y, u->dims[to[1]++]);
		if (x != y || (x == one && to[0] < t->rank && to[1] < u->rank))
			continue;
		tie_group(s, a, from, b, to);
		memcpy(from, to, sizeof(from));
		x = y = one;
	}
	if (from[0] < to[0] || from[1] < to[1])
		tie_group(s, a, from, b, to);
}

/* ---- slices, concat, pad ---- */

/* v is at least the maximum of a symbolic size of the new module, whose symbols have lower bounds. */
static void require_at_least(struct shapes *s, size_var v, const struct ir_dim *size)
{
	struct size_info *info = size_of(&s->sizes, v);
	int64_t hi = ir_dim_hi(s->out->dims, size);
	info->least = hi > info->least ? hi : info->least;
}

/* A slice with constant bounds is a cut of its axis. If a bound is symbolic, the sizes stay; a slice of
 * symbolic size only needs an axis that is at least as large as it can end. */
static void visit_slice(struct shapes *s, const struct ir_op *op)
{
	const struct attrs_slice *a = op->attrs;
	size_var whole = axes_of(s, op->operands[0])->of[a->axis],
	         part = axes_of(s, op->results[0])->of[a->axis];
	int64_t begin, size;
	if (whole == 0) {
		size_fix(&s->sizes, part);
		return;
	}
	if (part == 0) {
		const struct ir_dim *end = ir_dim_add(s->out->dims, ir_import_dim(s->out, a->begin),
		                                      ir_import_dim(s->out, a->size));
		require_at_least(s, whole, end);
		return;
	}
	if (!ir_dim_is_const(a->begin, &begin) || !ir_dim_is_const(a->size, &size)) {
		size_fix(&s->sizes, whole);
		size_fix(&s->sizes, part);
		return;
	}
	add_cut(s, op, whole, part, begin);
}

/* The sizes of the operands add up to that of the result. */
static void visit_concat(struct shapes *s, const struct ir_op *op)
{
	int64_t axis = ((const struct attrs_concat *)op->attrs)->axis;
	size_var *parts = ARENA_ARRAY(s->sizes.arena, size_var, op->n_operands + 1);
	size_var whole = axes_of(s, op->results[0])->of[axis];
	bool symbolic = whole == 0;
	for (size_t i = 0; i < op->n_operands && parts != NULL; i++) {
		tie_others(s, op->operands[i], op->results[0], axis);
		parts[i] = axes_of(s, op->operands[i])->of[axis];
		symbolic = symbolic || parts[i] == 0;
	}
	for (size_t i = 0; i < op->n_operands && parts != NULL && symbolic; i++)
		size_fix(&s->sizes, parts[i]);
	if (symbolic)
		size_fix(&s->sizes, whole);
	else if (parts != NULL)
		size_relate(&s->sizes, SIZE_SUM, parts, op->n_operands, &whole, 1);
}

/* The operand is a cut of the result, as a slice is of its operand; next to a symbolic size the constant one stays.
 */
static void visit_pad(struct shapes *s, const struct ir_op *op)
{
	const struct attrs_pad *a = op->attrs;
	size_var whole = axes_of(s, op->results[0])->of[a->axis],
	         part = axes_of(s, op->operands[0])->of[a->axis];
	if (whole == 0 || part == 0) {
		size_fix(&s->sizes, whole);
		size_fix(&s->sizes, part);
		return;
	}
	add_cut(s, op, whole, part, a->before);
}

/* x [..,V] -> [..,2,k]: 2 and k are fixed, V is at least k. visit_axes ties the axes before them. */
static void visit_topk(struct shapes *s, const struct ir_op *op)
{
	int last = type_of(s, op->operands[0])->rank - 1;
	size_var width = axes_of(s, op->operands[0])->of[last];
	size_fix(&s->sizes, axes_of(s, op->results[0])->of[last]);
	size_fix(&s->sizes, axes_of(s, op->results[0])->of[last + 1]);
	if (width != 0)
		size_relate(&s->sizes, SIZE_AT_MOST, &axes_of(s, op->results[0])->of[last + 1], 1, &width, 1);
}

/* ---- tables ---- */

/* The parameter whose elements the ids v of a gather are, so that its bound is theirs: views keep them, a mask adds 0,
 * always an id. NULL: v is computed otherwise. */
static const struct ir_param *ids_from(const struct shapes *s, struct ir_value v)
{
	const struct ir_op *op;
	while ((op = ir_def(s->f, v)) != NULL && op->n_operands > 0 &&
	       (op->code == OP_mask_rows || ir_op_has(op->code, TRAIT_VIEW)))
		v = op->operands[0];
	for (size_t i = 0; op == NULL && i < s->f->n_params; i++)
		if (ir_same_value(s->f->params[i].value, v))
			return &s->f->params[i];
	return NULL;
}

/* A table has at least as many rows as the bound of the ids that select from it; ids without a bound are positions. */
static void visit_gather(struct shapes *s, const struct ir_op *op)
{
	struct axes *rows = axes_of(s, op->operands[OPERAND(gather, table)]);
	const struct ir_param *p = ids_from(s, op->operands[OPERAND(gather, ids)]);
	if (p == NULL || p->below <= 0) {
		prefer_size(s, rows->of[0], CONTEXT_SIZE);
		return;
	}
	size_var *below = &s->below[s->func][p - s->f->params];
	if (*below == 0)
		*below = size_new(&s->sizes, p->below);
	prefer_size(s, *below, VOCAB_SIZE);
	prefer_size(s, rows->of[0], VOCAB_SIZE);
	if (rows->of[0] != 0)
		size_relate(&s->sizes, SIZE_AT_MOST, below, 1, &rows->of[0], 1);
}

static struct axes *axes_of_weight(const struct shapes *s, const struct ir_weight *w)
{
	for (size_t i = 0; i < s->m->weights.n; i++)
		if (s->m->weights.items[i] == w)
			return &s->weights[i];
	return NULL;
}

static struct axes *axes_of_state(const struct shapes *s, const struct ir_state_decl *d)
{
	for (size_t i = 0; i < s->m->states.n; i++)
		if (s->m->states.items[i] == d)
			return &s->states[i];
	return NULL;
}

/* The axes of a weight after its indices are those of the reference. */
static void visit_weight(struct shapes *s, const struct ir_op *op)
{
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	struct axes *axes = axes_of_weight(s, w);
	for (size_t i = 0; i < op->n_operands; i++)
		tie_index(s, op->operands[i], axes->of[i]);
	for (int i = 0; i < type_of(s, op->results[0])->rank; i++)
		tie(s, axes_of(s, op->results[0]), i, axes, i + (int)op->n_operands);
}

/* ---- rows and contractions ---- */

/* A table as wide as x, or at most (partial rotary). Widths are even: rope rotates pairs. */
static void visit_rope(struct shapes *s, const struct ir_op *op)
{
	struct axes *table = axes_of(s, op->operands[OPERAND(rope, table)]);
	struct axes *x = axes_of(s, op->operands[OPERAND(rope, x)]);
	int last = type_of(s, op->operands[OPERAND(rope, x)])->rank - 1;
	if (size_of(&s->sizes, table->of[1])->old == size_of(&s->sizes, x->of[last])->old)
		tie(s, table, 1, x, last);
	else
		size_relate(&s->sizes, SIZE_AT_MOST, &table->of[1], 1, &x->of[last], 1);
	prefer_size(s, table->of[0], CONTEXT_SIZE);
	size_of(&s->sizes, table->of[1])->even = true;
	size_of(&s->sizes, x->of[last])->even = true;
}

/* The heads of q are those of k, or a multiple: q heads = k heads x a size of its own. */
static void visit_attention(struct shapes *s, const struct ir_op *op)
{
	struct axes *q = axes_of(s, op->operands[OPERAND(attention, q)]);
	struct axes *k = axes_of(s, op->operands[OPERAND(attention, k)]);
	int64_t heads = size_of(&s->sizes, q->of[1])->old, keys = size_of(&s->sizes, k->of[1])->old;
	if (heads == keys) {
		tie(s, q, 1, k, 1);
	} else if (keys > 0) {
		size_var parts[] = {k->of[1], size_new(&s->sizes, heads / keys)};
		size_relate(&s->sizes, SIZE_PRODUCT, parts, 2, &q->of[1], 1);
	}
}

/* ---- state ---- */

/* Ties a slice [B, ..] of a state [B, indices.., ..] at its indices, operands from `first_at` on, except for axis
 * `skip`. Axis 0, the batch, is symbolic. */
static void tie_slice(struct shapes *s, const struct ir_op *op, size_t first_at, struct ir_value slice,
                      int skip)
{
	const struct ir_state_decl *d = type_of(s, op->operands[0])->state;
	struct axes *axes = axes_of_state(s, d);
	int n = (int)(op->n_operands - first_at);
	for (int i = 0; i < n; i++)
		tie_index(s, op->operands[first_at + (size_t)i], axes->of[1 + i]);
	for (int i = 1; i < type_of(s, slice)->rank; i++)
		if (i != skip)
			tie(s, axes_of(s, slice), i, axes, i + n);
}

/* The result is the slice of the state with all T positions; x has the new tokens on that axis alone, so their
 * number is not tied to T. */
static void visit_append(struct shapes *s, const struct ir_op *op)
{
	int t = type_of(s, op->results[0])->rank - 2;
	tie_slice(s, op, OPERAND(state_append, at), op->results[0], -1);
	tie_slice(s, op, OPERAND(state_append, at), op->operands[OPERAND(state_append, x)], t);
	prefer_size(s, axes_of(s, op->results[0])->of[t], CONTEXT_SIZE);
}

/* Each axis of x is at most that of the slice; equal sizes stay equal. Axis 0, the batch, is symbolic in both. */
static void visit_write(struct shapes *s, const struct ir_op *op)
{
	const size_t at = OPERAND(state_write, at);
	struct ir_value given = op->operands[OPERAND(state_write, x)];
	const struct ir_type *x = type_of(s, given);
	struct axes *state = axes_of_state(s, type_of(s, op->operands[0])->state);
	int n = (int)(op->n_operands - at);
	for (int i = 0; i < n; i++)
		tie_index(s, op->operands[at + (size_t)i], state->of[1 + i]);
	for (int i = 1; i < x->rank; i++) {
		size_var v = axes_of(s, given)->of[i], w = state->of[i + n];
		if (v == 0 && w != 0)
			require_at_least(s, w, ir_import_dim(s->out, x->dims[i]));
		else if (v != 0 && size_of(&s->sizes, v)->old == size_of(&s->sizes, w)->old)
			size_merge(&s->sizes, v, w);
		else if (v != 0)
			size_relate(&s->sizes, SIZE_AT_MOST, &v, 1, &w, 1);
	}
}

/* ---- repeat ---- */

/* The count of a repeat is a size; the axes of a carry are the same everywhere. */
static void visit_repeat(struct shapes *s, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	size_var *count = &s->counts[s->func][body->args[REPEAT_INDEX].id];
	*count = size_new(&s->sizes, ((const struct attrs_repeat *)op->attrs)->count);
	prefer_size(s, *count, LAYERS_SIZE);
	for (size_t i = 0; i < op->n_operands; i++) {
		tie_all(s, op->operands[i], op->results[i]);
		tie_all(s, op->operands[i], body->args[1 + i]);
		tie_all(s, op->operands[i], yield->operands[i]);
	}
}

/* If the index of a repeat is used other than as an index, its count is fixed. */
static void visit_operands(struct shapes *s, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (!is_index_operand(op, i))
			size_fix(&s->sizes, s->counts[s->func][op->operands[i].id]);
}

/* ---- axes in ops.def ---- */

/* Ties each axis to the first one with its name; axes without one (IR_AXIS_NEW) are independent. named [name]: that
 * axis, valid where known [name]. */
static void tie_names(struct shapes *s, const struct ir_axes *a, const struct ir_axis_list *list,
                      struct axes *axes, size_var *named, bool *known)
{
	int rank = ir_axes_rank(a, list);
	for (int i = 0; i < rank; i++) {
		int name = ir_axis_name(a, list, i);
		if (name == IR_AXIS_NEW)
			continue;
		if (known[name])
			size_merge(&s->sizes, named[name], axes->of[i]);
		else
			named[name] = axes->of[i];
		known[name] = true;
	}
}

/* Ties axes of operands and result that have the same name in ops.def. Ops with more operands, or which ops.def
 * describes not at all, are left to the other visitors of visit_op. */
static void visit_axes(struct shapes *s, const struct ir_op *op)
{
	const struct ir_type *types[IR_AXES_OPERANDS_MAX];
	size_var named[IR_AXIS_NAMES];
	bool known[IR_AXIS_NAMES] = {false};
	struct ir_axes a;
	size_t misfit;
	for (size_t i = 0; i < op->n_operands && i < IR_AXES_OPERANDS_MAX; i++)
		types[i] = op->operands[i].id != 0 ? type_of(s, op->operands[i]) : NULL;
	if (op->n_operands > IR_AXES_OPERANDS_MAX ||
	    !ir_axes(op->code, op->attrs, types, op->n_operands, &a, &misfit))
		return;
	for (size_t i = 0; i < a.n_in; i++)
		if (types[i] != NULL)
			tie_names(s, &a, &a.in[i], axes_of(s, op->operands[i]), named, known);
	tie_names(s, &a, &a.out, axes_of(s, op->results[0]), named, known);
}

/* ---- dispatch ---- */

typedef void visit_fn(struct shapes *s, const struct ir_op *op);

static void visit_read(struct shapes *s, const struct ir_op *op)
{
	tie_slice(s, op, OPERAND(state_read, at), op->results[0], -1);
}

/* Adds the constraints of op: the axes of ops.def, and those that ops.def cannot express. */
static void visit_op(struct shapes *s, const struct ir_op *op)
{
	static visit_fn *const special[IR_N_OPS] = {
	        [OP_reshape] = visit_reshape,     [OP_slice] = visit_slice,
	        [OP_concat] = visit_concat,       [OP_pad] = visit_pad,
	        [OP_gather] = visit_gather,       [OP_weight] = visit_weight,
	        [OP_rope] = visit_rope,           [OP_attention] = visit_attention,
	        [OP_state_append] = visit_append, [OP_state_write] = visit_write,
	        [OP_state_read] = visit_read,     [OP_repeat] = visit_repeat,
	        [OP_topk] = visit_topk,
	};
	visit_operands(s, op);
	visit_axes(s, op);
	if (special[op->code] != NULL)
		special[op->code](s, op);
}

/* ---- solution ---- */

/* The size of an axis in the new module. */
static const struct ir_dim *shapes_dim(struct shapes *s, size_var v, const struct ir_dim *old)
{
	return v == 0 ? ir_import_dim(s->out, old) : ir_dim_const(s->out->dims, size_of(&s->sizes, v)->now);
}

const struct ir_type *shapes_type(struct shapes *s, const struct axes *axes, const struct ir_type *old)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < old->rank; i++)
		dims[i] = shapes_dim(s, axes->of[i], old->dims[i]);
	return ir_type_tensor(s->out->types, old->dtype, old->rank, dims);
}

/* Adds the variables and constraints of a function. */
static bool visit_function(struct shapes *s, size_t at)
{
	const struct ir_func *f = s->m->funcs.items[at];
	struct arena *a = s->sizes.arena;
	s->values[at] = ARENA_ARRAY(a, struct axes, f->n_values + 1);
	s->counts[at] = ARENA_ARRAY(a, size_var, f->n_values + 1);
	s->below[at] = ARENA_ARRAY(a, size_var, f->n_params + 1);
	if (arena_failed(a))
		return false;
	for (size_t v = 1; v < f->n_values; v++)
		new_axes(s, f->values[v].type, &s->values[at][v]);
	s->f = f;
	s->func = at;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		visit_op(s, it.op);
	return true;
}

/* Constraints of the formula of a table: wexpr_sinusoid needs an even number of columns, and at least 4 for spacing
 * T2T. */
static void visit_formula(struct shapes *s, const struct ir_weight *w, const struct axes *axes)
{
	if (w->init == NULL || w->init->kind != WX_SINUSOID)
		return;
	struct size_info *columns = size_of(&s->sizes, axes->of[1]);
	columns->even = true;
	columns->least = w->init->spacing == SINUSOID_T2T ? 4 : 2;
}

bool shapes_solve(struct shapes *s, const struct ir_module *m, struct ir_module *out, struct arena *arena)
{
	*s = (struct shapes){.m = m, .out = out};
	sizes_init(&s->sizes, arena);
	s->values = ARENA_ARRAY(arena, struct axes *, m->funcs.n + 1);
	s->counts = ARENA_ARRAY(arena, size_var *, m->funcs.n + 1);
	s->below = ARENA_ARRAY(arena, size_var *, m->funcs.n + 1);
	s->weights = ARENA_ARRAY(arena, struct axes, m->weights.n + 1);
	s->states = ARENA_ARRAY(arena, struct axes, m->states.n + 1);
	if (arena_failed(arena))
		return false;
	for (size_t i = 0; i < m->weights.n; i++) {
		new_axes(s, m->weights.items[i]->type, &s->weights[i]);
		visit_formula(s, m->weights.items[i], &s->weights[i]);
	}
	for (size_t i = 0; i < m->states.n; i++)
		new_axes(s, m->states.items[i]->type, &s->states[i]);
	for (size_t i = 0; i < m->funcs.n; i++)
		if (!visit_function(s, i))
			return false;
	/* Last: all slices of an axis are known, and equal axes are merged. */
	for (size_t i = 0; i < s->cuts.n; i++)
		if (s->cuts.items[i].pieces == NULL)
			divide_axis(s, size_find(&s->sizes, s->cuts.items[i].whole));
	sizes_solve(&s->sizes);
	return !arena_failed(arena);
}
