/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of shard (shard.h), which axes are divided among ranks: union-find over all axes of all values, weights
 * and states. An op joins the axes that it relates element by element into a class, which is cut as one, and makes
 * those whole that it needs as a whole; contractions are noted. The count of atoms of a class is the greatest common
 * divisor of its sizes, so an axis of H heads and one of H x E features are cut alike: an atom is size / atoms
 * elements. Cuts are at multiples of `unit` atoms. A rank with fewer elements than the fullest is filled up with
 * zeros; a class is fragile if an op has wrong results from these.
 */
#include <float.h>
#include <string.h>

#include "ir/core/axes.h"
#include "ir/support/checked.h"
#include "passes/graph/shard.h"

/* An axis: index into the table of classes. Axes of symbolic size and of size 1 are not in it. */
typedef uint32_t axis_id;
#define NO_AXIS UINT32_MAX

#define PANEL 16 /* columns of a packed panel */

struct axis_class {
	axis_id parent; /* union-find; the fields below are those of the root */
	int64_t atoms;  /* greatest common divisor of the sizes; 0: the axis has no constant size */
	const struct ir_op *whole; /* an op that needs the axis as a whole; NULL: none */
	bool is_whole;             /* needed as a whole, by an op or by the interface of a function */
	int n_contractions;
	int64_t unit; /* atoms are cut at multiples of this; 0: of 1 */
	/*
	 * With fewer key heads than ranks: their number, 0 otherwise. Ranks are divided among the key heads; those of
	 * one key head each have it whole (is_key), and a part of the query heads that read it.
	 */
	int64_t key_heads;
	bool is_key;
	const struct ir_op
	        *fragile; /* an op whose result is wrong where zeros fill the axis up; NULL: none */
};

/* Boundaries along an axis fall on multiples of `multiple` elements (blocks of a quantized format). */
struct boundary {
	axis_id axis;
	int64_t size, multiple;
};

struct contraction {
	const struct ir_func *f;
	const struct ir_op *op;
	axis_id axis;
	int64_t size;
};

/* The heads of an attention with fewer key heads than ranks; key NO_AXIS: one key head. */
struct head_link {
	axis_id query, key;
	int64_t key_heads;
};

struct shard_plan {
	const struct ir_module *m;
	int64_t ranks;
	struct axis_class *axes;
	axis_id *first_value; /* by function: axis 0 of value 0 */
	axis_id first_weight, first_state;
	struct arena *arena;
	struct {
		struct boundary *items;
		size_t n, cap;
	} boundaries;
	struct {
		struct contraction *items;
		size_t n, cap;
	} contractions;
	struct {
		struct head_link *items;
		size_t n, cap;
	} links;
	struct strmap weights, states; /* name -> index + 1 */
};

/* ---- axes ---- */

static int64_t unit_of(const struct axis_class *c)
{
	return c->unit > 0 ? c->unit : 1;
}

static axis_id root_of(const struct shard_plan *s, axis_id a)
{
	while (s->axes[a].parent != a) {
		s->axes[a].parent = s->axes[s->axes[a].parent].parent; /* path halving */
		a = s->axes[a].parent;
	}
	return a;
}

static size_t index_of_func(const struct shard_plan *s, const struct ir_func *f)
{
	size_t i = 0;
	while (s->m->funcs.items[i] != f)
		i++;
	return i;
}

/* The axis if its size is a constant above 1, else NO_AXIS. */
static axis_id sized(const struct ir_type *t, int axis, axis_id id)
{
	int64_t size;
	return t->kind == IR_TENSOR && ir_dim_is_const(t->dims[axis], &size) && size > 1 ? id : NO_AXIS;
}

static axis_id axis_of_value(const struct shard_plan *s, const struct ir_func *f, struct ir_value v, int axis)
{
	return sized(ir_type_of(f, v), axis,
	             s->first_value[index_of_func(s, f)] + v.id * IR_RANK_MAX + (axis_id)axis);
}

static axis_id axis_of_weight(const struct shard_plan *s, const struct ir_weight *w, int axis)
{
	uintptr_t i = (uintptr_t)strmap_get(&s->weights, w->name);
	return sized(w->type, axis, s->first_weight + (axis_id)(i - 1) * IR_RANK_MAX + (axis_id)axis);
}

static axis_id axis_of_state(const struct shard_plan *s, const struct ir_state_decl *d, int axis)
{
	uintptr_t i = (uintptr_t)strmap_get(&s->states, d->name);
	return sized(d->type, axis, s->first_state + (axis_id)(i - 1) * IR_RANK_MAX + (axis_id)axis);
}

/* The two axes are cut at the same fractions of their sizes: they become one class, with the constraints of both.
 * NO_AXIS, an axis of size 1 or of a symbolic size, joins nothing. is_whole may be true without `whole`, the op for a
 * remark. Units and key heads are set after all ops are visited. */
static void join(struct shard_plan *s, axis_id a, axis_id b)
{
	if (a == NO_AXIS || b == NO_AXIS)
		return;
	struct axis_class *x = &s->axes[root_of(s, a)], *y = &s->axes[root_of(s, b)];
	if (x == y)
		return;
	y->parent = x->parent;
	x->atoms = gcd_i64(x->atoms, y->atoms);
	x->whole = x->whole != NULL ? x->whole : y->whole;
	x->is_whole = x->is_whole || y->is_whole;
	x->n_contractions += y->n_contractions;
	x->fragile = x->fragile != NULL ? x->fragile : y->fragile;
}

static void need_whole(struct shard_plan *s, axis_id a, const struct ir_op *op)
{
	if (a == NO_AXIS)
		return;
	struct axis_class *c = &s->axes[root_of(s, a)];
	c->whole = c->whole != NULL ? c->whole : op;
	c->is_whole = true;
}

/* Zeros that fill the axis up would change results of op. */
static void need_even(struct shard_plan *s, axis_id a, const struct ir_op *op)
{
	if (a != NO_AXIS)
		s->axes[root_of(s, a)].fragile = op;
}

static void need_whole_value(struct shard_plan *s, const struct ir_func *f, struct ir_value v,
                             const struct ir_op *op)
{
	const struct ir_type *t = ir_type_of(f, v);
	for (int i = 0; t->kind == IR_TENSOR && i < t->rank; i++)
		need_whole(s, axis_of_value(s, f, v, i), op);
}

static void join_values(struct shard_plan *s, const struct ir_func *f, struct ir_value a, struct ir_value b)
{
	const struct ir_type *t = ir_type_of(f, a);
	for (int i = 0; t->kind == IR_TENSOR && i < t->rank; i++)
		join(s, axis_of_value(s, f, a, i), axis_of_value(s, f, b, i));
}

static void add_boundary(struct shard_plan *s, axis_id a, const struct ir_dim *size, int64_t multiple)
{
	int64_t n;
	if (a != NO_AXIS && multiple > 1 && ir_dim_is_const(size, &n))
		ARENA_ADD(s->arena, &s->boundaries, (struct boundary){a, n, multiple});
}

/* ---- ops ---- */

/* op has no bias, or one that is a weight with a value: then one rank can have it and the others zeros. */
static bool adds_bias_once(const struct ir_func *f, const struct ir_op *op)
{
	size_t at = op->code == OP_linear          ? OPERAND(linear, b)
	            : op->code == OP_expert_linear ? OPERAND(expert_linear, b)
	                                           : op->n_operands;
	if (at >= op->n_operands || op->operands[at].id == 0)
		return true;
	const struct ir_weight *b = ir_weight_of(f, op->operands[at]);
	return b != NULL && b->init != NULL;
}

/* An axis that op contracts, `name` in its row of ops.def. K of a product may be cut, then the ranks have terms
 * of the sum; any other must be whole. */
static void contract(struct shard_plan *s, const struct ir_func *f, const struct ir_op *op, int name,
                     axis_id a, const struct ir_dim *size)
{
	bool sums = name == 'K' - 'A' &&
	            (op->code == OP_linear || op->code == OP_expert_linear || op->code == OP_matmul);
	if (a == NO_AXIS)
		return;
	if (!sums || !adds_bias_once(f, op)) {
		need_whole(s, a, op);
		return;
	}
	s->axes[root_of(s, a)].n_contractions++;
	int64_t n = 1;
	(void)ir_dim_is_const(size, &n);
	ARENA_ADD(s->arena, &s->contractions, (struct contraction){f, op, a, n});
	const struct ir_weight *w = ir_weight_of(f, op->operands[1]);
	if (w ==
	    NULL) /* zeros of a weight stay zeros; what fills up a value need not be zero, sigmoid(0) is not */
		need_even(s, a, op);
	if (w == NULL || !ir_format_is_quantized(w->format))
		return;
	const struct ir_format_desc *d = ir_format(w->format);
	int64_t block = (int64_t)d->block * d->super;
	int last = w->type->rank - 1;
	const struct ir_wexpr *cut = block > 0 && w->init != NULL && block <= w->init->dims[last]
	                                     ? wexpr_slice(s->arena, last, 0, block, w->init)
	                                     : NULL;
	/* A scale of the whole row, permuted columns, or a last block that zeros cannot fill up to the fullest rank. */
	if (cut != NULL && wexpr_fits_format(cut, w->format) && w->init->dims[last] % block == 0)
		add_boundary(s, a, w->type->dims[last], block);
	else
		need_whole(s, a, op);
}

/* Whether zeros among the operands can give results that are not finite: 0 / 0, or a norm of zeros, which
 * divides by sqrt(eps). */
static bool is_fragile(const struct ir_op *op)
{
	if (op->code == OP_rms_norm)
		return ((const struct attrs_rms_norm *)op->attrs)->eps < FLT_MIN;
	if (op->code == OP_layer_norm)
		return ((const struct attrs_layer_norm *)op->attrs)->eps < FLT_MIN;
	return op->code == OP_log || op->code == OP_rsqrt || op->code == OP_div || op->code == OP_pow ||
	       op->code == OP_mod || op->code == OP_floor_div || op->code == OP_log_softmax;
}

/* Joins the axes of equal names; axes that marks or a missing name declare as needed are whole. */
static void visit_named_axes(struct shard_plan *s, const struct ir_func *f, const struct ir_op *op)
{
	const struct ir_type *types[IR_AXES_OPERANDS_MAX];
	struct ir_axes a;
	size_t misfit;
	axis_id first[IR_AXIS_NAMES];
	const struct ir_dim *size[IR_AXIS_NAMES] = {NULL};
	bool in_result[IR_AXIS_NAMES] = {false};
	struct ir_value y = op->results[0];
	memset(first, 0xff, sizeof(first)); /* NO_AXIS */
	bool named = op->n_results == 1 && op->n_operands <= IR_AXES_OPERANDS_MAX;
	for (size_t i = 0; named && i < op->n_operands; i++)
		types[i] = op->operands[i].id != 0 ? ir_type_of(f, op->operands[i]) : NULL;
	if (!named || !ir_axes(op->code, op->attrs, types, op->n_operands, &a, &misfit)) {
		for (size_t i = 0; i < op->n_operands + op->n_results; i++) {
			struct ir_value v =
			        i < op->n_operands ? op->operands[i] : op->results[i - op->n_operands];
			if (v.id != 0)
				need_whole_value(s, f, v, op);
		}
		return;
	}
	for (size_t i = 0; i < op->n_operands; i++) {
		if (types[i] != NULL && i >= a.n_in)
			need_whole_value(s, f, op->operands[i], op);
		for (int k = 0; types[i] != NULL && i < a.n_in && k < types[i]->rank; k++) {
			int name = ir_axis_name(&a, &a.in[i], k);
			axis_id at = axis_of_value(s, f, op->operands[i], k);
			if (name == IR_AXIS_NEW)
				need_whole(s, at, op);
			else if (first[name] == NO_AXIS)
				first[name] = at, size[name] = types[i]->dims[k];
			else
				join(s, first[name], at);
		}
	}
	const struct attrs_quantize_rows *rounded = op->code == OP_quantize_rows ? op->attrs : NULL;
	int64_t block = rounded != NULL ? rounded->block : 0;
	bool one_by_one = rounded != NULL && rounded->to == ROUND_bf16; /* no element depends on another */
	for (int axis = 0; axis < ir_axes_rank(&a, &a.out); axis++) {
		int name = ir_axis_name(&a, &a.out, axis);
		char mark = ir_axis_mark(&a, &a.out, axis);
		axis_id at = axis_of_value(s, f, y, axis);
		bool heads = op->code == OP_attention && axis == 1; /* a head reads its key head only */
		if (mark == '!' && block > 0 && !one_by_one)
			add_boundary(s, at, ir_type_of(f, y)->dims[axis], block);
		if (name == IR_AXIS_NEW || mark == '@' ||
		    (mark == '!' && !heads && block == 0 && !one_by_one))
			need_whole(s, at, op);
		if (name == IR_AXIS_NEW)
			continue;
		in_result[name] = true;
		join(s, first[name], at);
		if (is_fragile(op))
			need_even(s, at, op);
	}
	if (op->code == OP_attention) {
		axis_id query = axis_of_value(s, f, op->operands[0], 1),
		        key = axis_of_value(s, f, op->operands[1], 1);
		int64_t key_heads = 1;
		(void)ir_dim_is_const(types[1]->dims[1], &key_heads);
		if (key_heads >= s->ranks)
			join(s, query, key);
		else if (query != NO_AXIS)
			ARENA_ADD(s->arena, &s->links, (struct head_link){query, key, key_heads});
		in_result['K' - 'A'] = true;
	}
	for (int name = 0; name < IR_AXIS_NAMES; name++)
		if (!in_result[name])
			contract(s, f, op, name, first[name], size[name]);
}

/* Axes of a reshape: groups of neighbouring axes with equal products. Of a group only the first axes, which vary
 * slowest, are joined: [.., H E] is cut where [.., H, E] is cut along H. The others must be whole: a cut of the
 * first falls between their elements. */
static void visit_reshape(struct shard_plan *s, const struct ir_func *f, const struct ir_op *op)
{
	struct ir_value x = op->operands[0], y = op->results[0];
	const struct ir_type *from = ir_type_of(f, x), *to = ir_type_of(f, y);
	int i = 0, k = 0;
	while (i < from->rank && k < to->rank) {
		int64_t a = 0, b = 0;
		if (from->dims[i] == to->dims[k]) {
			join(s, axis_of_value(s, f, x, i++), axis_of_value(s, f, y, k++));
			continue;
		}
		if (ir_dim_equals(from->dims[i], 1) || ir_dim_equals(to->dims[k], 1)) {
			if (ir_dim_equals(from->dims[i], 1))
				i++;
			else
				k++;
			continue;
		}
		if (!ir_dim_is_const(from->dims[i], &a) || !ir_dim_is_const(to->dims[k], &b))
			break;
		join(s, axis_of_value(s, f, x, i), axis_of_value(s, f, y, k));
		i++;
		k++;
		while (a != b) {
			int64_t next;
			bool left = a < b;
			if ((left ? i : k) >= (left ? from : to)->rank ||
			    !ir_dim_is_const((left ? from : to)->dims[left ? i : k], &next))
				break;
			need_whole(s, axis_of_value(s, f, left ? x : y, left ? i : k), op);
			*(left ? &a : &b) *= next; /* below the count of elements, which is checked */
			*(left ? &i : &k) += 1;
		}
		if (a != b)
			break;
	}
	for (; i < from->rank; i++)
		need_whole(s, axis_of_value(s, f, x, i), op);
	for (; k < to->rank; k++)
		need_whole(s, axis_of_value(s, f, y, k), op);
}

/* Joins the axes of tensor v with those of the slice of a state at n indices: axis 0, then those after the indices.
 * An axis of another size (tokens against context) is whole in both. */
static void visit_state_slice(struct shard_plan *s, const struct ir_func *f, const struct ir_op *op,
                              struct ir_value v, size_t n)
{
	const struct ir_state_decl *d = ir_type_of(f, op->operands[0])->state;
	const struct ir_type *t = ir_type_of(f, v);
	for (int i = 0; i < t->rank; i++) {
		int at = i == 0 ? 0 : i + (int)n;
		axis_id a = axis_of_value(s, f, v, i), b = axis_of_state(s, d, at);
		int64_t x = 0, y = 0;
		bool same =
		        ir_dim_is_const(t->dims[i], &x) && ir_dim_is_const(d->type->dims[at], &y) && x == y;
		if (same) {
			join(s, a, b);
		} else {
			need_whole(s, a, op);
			need_whole(s, b, op);
		}
	}
}

/* A carry has one division: its initial value, argument, yielded value and result. */
static void visit_repeat(struct shard_plan *s, const struct ir_func *f, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++) {
		join_values(s, f, op->operands[i], op->region->args[1 + i]);
		join_values(s, f, op->operands[i], yield->operands[i]);
		join_values(s, f, op->operands[i], op->results[i]);
	}
}

/* Joins and blocks axes by the code of op; ops without a case by their named axes. Returned values are whole,
 * since each rank returns them. */
static void visit_op(struct shard_plan *s, const struct ir_func *f, const struct ir_op *op)
{
	switch (op->code) {
	case OP_weight: {
		const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
		if (w->init == NULL || w->encoding != ENC_ROW)
			need_whole_value(s, f, op->results[0], op);
		for (int i = 0; i < ir_type_of(f, op->results[0])->rank; i++)
			join(s, axis_of_value(s, f, op->results[0], i),
			     axis_of_weight(s, w, i + (int)op->n_operands));
		break;
	}
	case OP_full:
	case OP_dim_value:
	case OP_yield: break;
	case OP_iota:
		need_whole(s,
		           axis_of_value(s, f, op->results[0],
		                         (int)((const struct attrs_iota *)op->attrs)->axis),
		           op);
		break;
	case OP_reshape: visit_reshape(s, f, op); break;
	case OP_repeat: visit_repeat(s, f, op); break;
	case OP_state_append:
		visit_state_slice(s, f, op, op->operands[1], op->n_operands - OPERAND(state_append, at));
		visit_state_slice(s, f, op, op->results[0], op->n_operands - OPERAND(state_append, at));
		break;
	case OP_state_write:
		visit_state_slice(s, f, op, op->operands[1], op->n_operands - OPERAND(state_write, at));
		break;
	case OP_state_read:
		visit_state_slice(s, f, op, op->results[0], op->n_operands - OPERAND(state_read, at));
		break;
	case OP_return:
		for (size_t i = 0; i < op->n_operands; i++)
			need_whole_value(s, f, op->operands[i], op);
		break;
	default: visit_named_axes(s, f, op); break;
	}
}

/* ---- the plan ---- */

/* Sets the sizes of the axes of a type, whose table entries begin at `at`. */
static void init_axes(struct shard_plan *s, const struct ir_type *t, axis_id at)
{
	for (int i = 0; t != NULL && t->kind == IR_TENSOR && i < t->rank; i++)
		if (!ir_dim_is_const(t->dims[i], &s->axes[at + (axis_id)i].atoms))
			s->axes[at + (axis_id)i].atoms = 0;
}

/* Numbers the axes of all weights, states and values, each a class of its own. False without memory, or with too
 * many. */
static bool init_plan(struct shard_plan *s)
{
	const struct ir_module *m = s->m;
	size_t n = (m->weights.n + m->states.n) * IR_RANK_MAX;
	s->first_value = ARENA_ARRAY(s->arena, axis_id, m->funcs.n + 1);
	if (s->first_value == NULL)
		return false;
	s->first_weight = 0;
	s->first_state = (axis_id)(m->weights.n * IR_RANK_MAX);
	for (size_t i = 0; i < m->funcs.n; i++) {
		s->first_value[i] = (axis_id)n;
		n += m->funcs.items[i]->n_values * IR_RANK_MAX;
	}
	s->axes = n < NO_AXIS ? ARENA_ARRAY(s->arena, struct axis_class, n + 1) : NULL;
	if (s->axes == NULL)
		return false;
	for (size_t i = 0; i <= n; i++)
		s->axes[i].parent = (axis_id)i;
	strmap_init(&s->weights, s->arena);
	strmap_init(&s->states, s->arena);
	for (size_t i = 0; i < m->weights.n; i++) {
		strmap_set(&s->weights, m->weights.items[i]->name, (void *)(uintptr_t)(i + 1));
		init_axes(s, m->weights.items[i]->type, s->first_weight + (axis_id)(i * IR_RANK_MAX));
	}
	for (size_t i = 0; i < m->states.n; i++) {
		strmap_set(&s->states, m->states.items[i]->name, (void *)(uintptr_t)(i + 1));
		init_axes(s, m->states.items[i]->type, s->first_state + (axis_id)(i * IR_RANK_MAX));
	}
	for (size_t i = 0; i < m->funcs.n; i++)
		for (size_t v = 1; v < m->funcs.items[i]->n_values; v++)
			init_axes(s, m->funcs.items[i]->values[v].type,
			          s->first_value[i] + (axis_id)(v * IR_RANK_MAX));
	return !arena_failed(s->arena);
}

/* Sets the unit of every class: the fewest atoms whose elements are whole blocks along all axes of the class
 * (the least common multiple over its boundaries). */
static void set_units(struct shard_plan *s)
{
	for (size_t i = 0; i < s->boundaries.n; i++) {
		const struct boundary *b = &s->boundaries.items[i];
		struct axis_class *c = &s->axes[root_of(s, b->axis)];
		int64_t elements = b->size / c->atoms, atoms = b->multiple / gcd_i64(b->multiple, elements);
		c->unit = unit_of(c) / gcd_i64(unit_of(c), atoms) * atoms;
	}
}

/* Classes of query heads with fewer key heads than ranks: they can be divided only if each key head has equally many
 * whole units of query heads, and only if all attentions agree. A class of key heads must have one atom for each of
 * them, no contraction and no unit: a rank has whole key heads. */
static void set_key_heads(struct shard_plan *s)
{
	for (size_t i = 0; i < s->links.n; i++) {
		const struct head_link *l = &s->links.items[i];
		struct axis_class *q = &s->axes[root_of(s, l->query)];
		q->is_whole = q->is_whole || (q->key_heads > 0 && q->key_heads != l->key_heads) ||
		              q->atoms % l->key_heads != 0 || q->atoms / l->key_heads % unit_of(q) != 0;
		q->key_heads = l->key_heads;
		if (l->key == NO_AXIS)
			continue;
		struct axis_class *k = &s->axes[root_of(s, l->key)];
		k->is_key = true;
		k->key_heads = l->key_heads;
		k->is_whole = k->is_whole || k == q || k->n_contractions > 0 || k->atoms != l->key_heads ||
		              unit_of(k) > 1;
	}
}

/* Cuts query heads and their key heads, or neither: a rank reads key heads by their position among those that
 * it has. Query heads are cut only if a linear contracts them and there are several units. Repeats, since a
 * class can be in several links. */
static void link_heads(struct shard_plan *s)
{
	bool changed = true;
	while (changed) {
		changed = false;
		for (size_t i = 0; i < s->links.n; i++) {
			const struct head_link *l = &s->links.items[i];
			struct axis_class *q = &s->axes[root_of(s, l->query)],
			                  *k = l->key != NO_AXIS ? &s->axes[root_of(s, l->key)] : q;
			bool whole = q->is_whole || k->is_whole || q->n_contractions == 0 ||
			             q->atoms <= unit_of(q);
			changed = changed || q->is_whole != whole || k->is_whole != whole;
			q->is_whole = k->is_whole = whole;
		}
	}
}

/* The class of the axis if it is cut, else NULL. */
static const struct axis_class *cut_class(const struct shard_plan *s, axis_id a)
{
	const struct axis_class *c = a != NO_AXIS ? &s->axes[root_of(s, a)] : NULL;
	bool cut = c != NULL && !c->is_whole && (c->n_contractions > 0 || c->is_key) && s->ranks > 1;
	return cut && c->atoms > unit_of(c) ? c : NULL;
}

/* Part i of n when `units` are divided as evenly as possible: [*from, *to). The first parts have one more. */
static void divide(int64_t units, int64_t n, int64_t i, int64_t *from, int64_t *to)
{
	int64_t each = units / n, more = units % n;
	*from = i * each + (i < more ? i : more);
	*to = *from + each + (i < more);
}

/* Elements of an axis of the class with `size` elements that a rank has; returns those of the fullest rank.
 * Ranks are divided among the key heads (groups; 1 without), units of the query heads among the ranks [first,
 * last) of theirs. */
static int64_t part_of(const struct shard_plan *s, const struct axis_class *c, int64_t size, int64_t rank,
                       int64_t *begin, int64_t *end)
{
	int64_t unit = unit_of(c), atom = size / c->atoms, groups = c->key_heads > 0 ? c->key_heads : 1;
	int64_t units =
	        ((c->is_key ? 1 : c->atoms / groups) + unit - 1) / unit; /* of the ranks of a key head */
	int64_t group = 0, first = 0, last = 0, from = 0, to = units;
	for (; group < groups; group++) {
		divide(s->ranks, groups, group, &first, &last);
		if (rank < last)
			break;
	}
	if (!c->is_key)
		divide(units, last - first, rank - first, &from, &to);
	from = group * units * unit + from * unit;
	to = group * units * unit + to * unit;
	*begin = (from < c->atoms ? from : c->atoms) * atom;
	*end = (to < c->atoms ? to : c->atoms) * atom;
	int64_t fewest = s->ranks / groups; /* ranks of a key head */
	return c->is_key ? atom : (units + fewest - 1) / fewest * unit * atom;
}

/*
 * Cuts contracted axes at packed panels, if every rank can have one and the fullest rank computes no more panels: four
 * heads of 12 features, which fill three panels, are no unit where a rank would have 8 heads in place of 5.
 */
static void prefer_panels(struct shard_plan *s)
{
	for (size_t i = 0; i < s->contractions.n; i++) {
		const struct contraction *contraction = &s->contractions.items[i];
		struct axis_class *c = &s->axes[root_of(s, contraction->axis)];
		int64_t begin, end, before = c->unit, size = contraction->size;
		int64_t atoms = PANEL / gcd_i64(PANEL, size / c->atoms);
		int64_t groups = c->key_heads > 0 ? c->key_heads : 1;
		int64_t unaligned = part_of(s, c, size, 0, &begin, &end);
		c->unit = unit_of(c) / gcd_i64(unit_of(c), atoms) * atoms;
		if (c->atoms / c->unit < s->ranks || c->atoms / groups % c->unit != 0 ||
		    part_of(s, c, size, 0, &begin, &end) > (unaligned + PANEL - 1) / PANEL * PANEL)
			c->unit = before;
	}
}

/* Results of a contraction that is cut are sums of whole rows: their axes are not cut as well. */
static void exclude_results(struct shard_plan *s)
{
	for (size_t i = 0; i < s->contractions.n; i++) {
		const struct contraction *c = &s->contractions.items[i];
		if (cut_class(s, c->axis) != NULL)
			need_whole_value(s, c->f, c->op->results[0], c->op);
	}
}

/* Classes that would be filled up, where an op does not bear the zeros, are not cut. Counted in atoms: a rank
 * with fewer than the fullest one would be filled up. */
static void exclude_fragile(struct shard_plan *s)
{
	for (size_t i = 0; i < s->contractions.n; i++) {
		struct axis_class *c = &s->axes[root_of(s, s->contractions.items[i].axis)];
		for (int64_t rank = 0; c->fragile != NULL && rank < s->ranks; rank++) {
			int64_t begin, end, most = part_of(s, c, c->atoms, rank, &begin, &end);
			c->is_whole = c->is_whole || end - begin < most;
		}
	}
}

/* Visits all functions before anything is decided, since they share weights and states. Parameters are whole: the
 * callers of all ranks pass the same. */
const struct shard_plan *shard_plan(struct pass_context *p, const struct ir_module *m, int64_t ranks)
{
	struct shard_plan *s = ARENA_NEW(p->arena, struct shard_plan);
	if (s == NULL)
		return NULL;
	s->m = m;
	s->ranks = ranks;
	s->arena = p->arena;
	if (!init_plan(s))
		return NULL;
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct ir_func *f = m->funcs.items[i];
		for (size_t k = 0; k < f->n_params; k++)
			need_whole_value(s, f, f->params[k].value, NULL);
		for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
			visit_op(s, f, it.op);
	}
	if (arena_failed(p->arena))
		return NULL;
	/* Units are conditions of the others; heads are linked again, since excluded results may be heads. */
	set_units(s);
	set_key_heads(s);
	prefer_panels(s);
	exclude_fragile(s);
	link_heads(s);
	exclude_results(s);
	link_heads(s);
	for (size_t i = 0; i < s->contractions.n; i++) {
		const struct contraction *c = &s->contractions.items[i];
		const struct axis_class *class = &s->axes[root_of(s, c->axis)];
		if (class->is_whole && class->whole != NULL)
			pass_missed(p, c->op->loc, "not divided among ranks: %s needs the whole axis",
			            ir_op_desc(class->whole->code)->name);
		else if (class->is_whole && class->fragile != NULL)
			pass_missed(p, c->op->loc,
			            "not divided among ranks: the parts are not equal, and %s does not bear "
			            "zeros",
			            ir_op_desc(class->fragile->code)->name);
	}
	return s;
}

static const struct contraction *contraction_of(const struct shard_plan *s, const struct ir_op *op)
{
	for (size_t i = 0; i < s->contractions.n; i++)
		if (s->contractions.items[i].op == op)
			return cut_class(s, s->contractions.items[i].axis) != NULL ? &s->contractions.items[i]
			                                                           : NULL;
	return NULL;
}

bool shard_is_contraction(const struct shard_plan *s, const struct ir_op *op)
{
	return contraction_of(s, op) != NULL;
}

/* At most one axis of an operand is of the class: a contraction names it once. */
int shard_contracted(const struct shard_plan *s, const struct ir_func *f, const struct ir_op *op,
                     size_t operand, int64_t rank, int64_t *begin, int64_t *end)
{
	const struct contraction *c = contraction_of(s, op);
	struct ir_value v = op->operands[operand];
	const struct ir_type *t = v.id != 0 ? ir_type_of(f, v) : NULL;
	for (int i = 0; c != NULL && t != NULL && t->kind == IR_TENSOR && i < t->rank; i++) {
		axis_id a = axis_of_value(s, f, v, i);
		int64_t size;
		if (a == NO_AXIS || root_of(s, a) != root_of(s, c->axis) ||
		    !ir_dim_is_const(t->dims[i], &size))
			continue;
		(void)part_of(s, cut_class(s, a), size, rank, begin, end);
		return i;
	}
	return -1;
}

/* The part of axis `a` with `size` elements. */
static struct shard_part part_of_axis(const struct shard_plan *s, axis_id a, const struct ir_dim *size,
                                      int64_t rank)
{
	const struct axis_class *c = cut_class(s, a);
	struct shard_part p = {0};
	int64_t n;
	if (c == NULL || !ir_dim_is_const(size, &n))
		return p;
	p.local = part_of(s, c, n, rank, &p.begin, &p.end);
	return p;
}

struct shard_part shard_value(const struct shard_plan *s, const struct ir_func *f, struct ir_value v,
                              int axis, int64_t rank)
{
	return part_of_axis(s, axis_of_value(s, f, v, axis), ir_type_of(f, v)->dims[axis], rank);
}

struct shard_part shard_weight(const struct shard_plan *s, const struct ir_weight *w, int axis, int64_t rank)
{
	return part_of_axis(s, axis_of_weight(s, w, axis), w->type->dims[axis], rank);
}

struct shard_part shard_state(const struct shard_plan *s, const struct ir_state_decl *d, int axis)
{
	return part_of_axis(s, axis_of_state(s, d, axis), d->type->dims[axis], 0);
}
