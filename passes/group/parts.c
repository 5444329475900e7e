/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A linear with parts: every range of columns that a slice takes goes its own
 * way, through elementwise ops, the turn to heads, norms of heads and rope, to a buffer or a
 * state of its own; two ranges of equal width may meet (gate and up). The walk
 * follows single readers, all parts in turn, and commits at the end. What parts
 * read besides must be there when the root runs, so the group is at its
 * place: nothing a member reads depends on the root but through members.
 */
#include "passes/group/parts.h"

#include "ir/support/buf.h"
#include "ir/support/checked.h"
#include "ir/core/view.h"

#define TAKEN_MAX   64
#define INDEX_DEPTH 8

struct part {
	int64_t begin, size; /* columns of the root's result */
	const struct ir_op *end;
	struct ir_value v;    /* what `end` gives, or the root's result */
	bool turned;          /* v has heads as an axis of its own */
	size_t n_views;       /* on the way */
	bool met, done, sank; /* met: another part went into this one */
	bool gone;            /* into another one */
};

struct parts {
	struct former *s;
	const struct ir_op *root;
	struct part items[PARTS_MAX];
	size_t n;
	int64_t columns; /* of the root's result */
	int64_t align;   /* columns that stay together: whole heads of all parts and whole panels */
	const struct ir_op *taken[TAKEN_MAX];
	size_t n_taken, n_work; /* n_work: without views */
	size_t n_norms, n_ropes, n_states;
	bool has_slices, no_rope, no_pairs;
};

/* ---- facts ---- */

static bool is_taken(const struct parts *p, const struct ir_op *op)
{
	for (size_t i = 0; i < p->n_taken; i++)
		if (p->taken[i] == op)
			return true;
	return false;
}

static bool take(struct parts *p, const struct ir_op *op)
{
	bool is_view = ir_op_has(op->code, TRAIT_VIEW);
	if (is_taken(p, op))
		return true;
	if (p->n_taken == TAKEN_MAX || (!is_view && p->n_work + 1 >= p->s->max_ops))
		return false;
	p->taken[p->n_taken++] = op;
	p->n_work += !is_view;
	return true;
}

/* v is there when the root runs. Ids count in order of definition. */
static bool is_outside(const struct parts *p, struct ir_value v)
{
	for (int depth = 0; depth < IR_VIEW_CHAIN_MAX; depth++) {
		const struct ir_op *op = ir_def(p->s->f, v);
		if (op == NULL || v.id < p->root->results[0].id || ir_op_has(op->code, TRAIT_CONST))
			return true;
		if (!ir_op_has(op->code, TRAIT_VIEW))
			return false;
		v = op->operands[0];
	}
	return false;
}

static bool is_in_cluster(const struct parts *p, const struct ir_op *op)
{
	return op->n_results == 0 || p->s->g->cluster_of[formed_index(p->s->g, op)] != 0;
}

/* Integer arithmetic that is computed where it is read; its readers are checked at the end. */
static bool take_index(struct parts *p, struct ir_value v, int depth)
{
	if (is_outside(p, v))
		return true;
	const struct ir_op *op = ir_def(p->s->f, v);
	if (depth == INDEX_DEPTH || op->region != NULL || !former_is_cheap_index(p->s->f, op) ||
	    is_in_cluster(p, op))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!take_index(p, op->operands[i], depth + 1))
			return false;
	return take(p, op);
}

/* ---- steps of a part ---- */

static struct part *part_at(struct parts *p, struct ir_value v)
{
	for (size_t i = 0; i < p->n; i++)
		if (!p->items[i].gone && !p->items[i].done && ir_same_value(p->items[i].v, v))
			return &p->items[i];
	return NULL;
}

static void advance(struct part *x, const struct ir_op *op)
{
	x->end = op;
	x->v = op->results[0];
}

/* x may be read at the element that op computes; *other: the part that ends there. */
static bool may_read(struct parts *p, const struct part *x, const struct ir_op *op, size_t i,
                     struct part **other)
{
	struct ir_value v = op->operands[i];
	bool reads_element = former_same_element(p->s->f, op, i);
	bool is_condition = op->code == OP_where && i == 0;
	if (ir_same_value(v, x->v))
		return reads_element && !is_condition;
	if (reads_element && !is_condition && !former_is_f32(p->s->f, v))
		return false;
	struct part *y = part_at(p, v);
	if (y == NULL)
		return is_outside(p, v);
	*other = y;
	return reads_element && !is_condition && !p->no_pairs && !x->turned && !y->turned &&
	       former_only_reader(p->s, v) == op;
}

static bool step_elementwise(struct parts *p, struct part *x, const struct ir_op *op)
{
	struct part *other = NULL;
	if (!former_is_elementwise(op) || !former_is_free(p->s, op) ||
	    !former_is_f32(p->s->f, op->results[0]) ||
	    !former_same_dims(ir_type_of(p->s->f, op->results[0]), ir_type_of(p->s->f, x->v)))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!may_read(p, x, op, i, &other))
			return false;
	if (!take(p, op))
		return false;
	if (other != NULL) {
		other->gone = true;
		x->met = true;
	}
	advance(x, op);
	return true;
}

/* What a state keeps may have fewer bits: rounded where it is stored. */
static bool step_narrow(struct parts *p, struct part *x, const struct ir_op *op)
{
	enum ir_dtype to = op->code == OP_cast ? ir_type_of(p->s->f, op->results[0])->dtype : DT_F32;
	const struct ir_op *next = former_only_reader(p->s, op->results[0]);
	bool is_kept = next != NULL && (next->code == OP_state_append || next->code == OP_state_write);
	if ((to != DT_F16 && to != DT_BF16) || !is_kept || !former_is_free(p->s, op) || !take(p, op))
		return false;
	advance(x, op);
	return true;
}

static int64_t lcm(int64_t a, int64_t b)
{
	return a / gcd_i64(a, b) * b;
}

/* All columns lie in one strip, wherever parts begin: one launch is worth that nobody shares its rows. On a processor,
 * copies of the columns are quicker. */
static bool is_one_strip(const struct parts *p)
{
	const struct target *t = p->s->p->options->target;
	return t != NULL && t->arch == ARCH_OPENCL && p->columns <= PART_STRIP_MAX;
}

/* [.., n] becomes [.., H, E] with heads that lie in one strip each. */
static bool splits_heads(struct parts *p, const struct part *x, const struct ir_op *op)
{
	const struct ir_type *from = ir_type_of(p->s->f, x->v), *to = ir_type_of(p->s->f, op->results[0]);
	int64_t width;
	int axis;
	if (x->turned || x->met || !ir_view_splits_heads(from, to, &axis, &width) || width > PART_STRIP_MAX)
		return false;
	int64_t unit = lcm(width, PART_COLUMNS);
	if (is_one_strip(p))
		return true;
	if (unit > PART_STRIP_MAX || x->begin % unit != 0 || lcm(unit, p->align) > PART_STRIP_MAX)
		return false;
	p->align = lcm(unit, p->align);
	return true;
}

static bool step_view(struct parts *p, struct part *x, const struct ir_op *op)
{
	const struct attrs_transpose *t = op->attrs;
	bool turns = op->code == OP_transpose && x->turned && x->n_views == 1 &&
	             t->perm.items[t->perm.n - 1] == (int64_t)t->perm.n - 1;
	if (is_in_cluster(p, op) || (!turns && (op->code != OP_reshape || !splits_heads(p, x, op))) ||
	    !take(p, op))
		return false;
	x->turned = true;
	x->n_views++;
	advance(x, op);
	return true;
}

/* A norm of heads, which are whole in a strip. */
static bool step_norm(struct parts *p, struct part *x, const struct ir_op *op)
{
	if (!ir_is_norm(op->code) || !p->s->norms || !x->turned || !former_is_free(p->s, op) ||
	    !ir_same_value(op->operands[0], x->v) || !former_is_f32(p->s->f, op->results[0]))
		return false;
	for (size_t i = 1; i < op->n_operands; i++)
		if (op->operands[i].id != 0 &&
		    (ir_same_value(op->operands[i], x->v) || !is_outside(p, op->operands[i]) ||
		     !former_is_f32(p->s->f, op->operands[i])))
			return false;
	if (!take(p, op))
		return false;
	p->n_norms++;
	advance(x, op);
	return true;
}

static bool step_rope(struct parts *p, struct part *x, const struct ir_op *op)
{
	if (op->code != OP_rope || p->no_rope || !x->turned || !former_is_free(p->s, op) ||
	    !ir_same_value(op->operands[0], x->v) || !is_outside(p, op->operands[1]) ||
	    !former_is_f32(p->s->f, op->operands[1]) || !take_index(p, op->operands[2], 0) || !take(p, op))
		return false;
	p->n_ropes++;
	advance(x, op);
	return true;
}

/* Something between the root and op reads states, and would do so after the write instead of before. */
static bool state_is_read_between(const struct parts *p, const struct ir_op *op)
{
	const struct former *s = p->s;
	for (size_t i = formed_index(s->g, p->root) + 1; i < formed_index(s->g, op); i++) {
		const struct ir_op *at = s->g->ops[i];
		for (size_t k = 0; k < at->n_operands && !is_taken(p, at); k++) {
			struct ir_value v = at->operands[k];
			const struct ir_type *t = v.id == 0 ? NULL : ir_type_of(s->f, v);
			if (t == NULL)
				continue;
			bool same =
			        t->kind == IR_STATE && t->state == ir_type_of(s->f, op->operands[0])->state;
			if (same || ir_is_state_slice(s->f, ir_view_base(s->f, v)))
				return true;
		}
	}
	return false;
}

static bool step_state(struct parts *p, struct part *x, const struct ir_op *op)
{
	if ((op->code != OP_state_append && op->code != OP_state_write) || !x->turned ||
	    !former_is_free(p->s, op) || !ir_same_value(op->operands[1], x->v) ||
	    state_is_read_between(p, op))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (i != 1 && (ir_same_value(op->operands[i], x->v) || !is_outside(p, op->operands[i])))
			return false;
	if (!take(p, op))
		return false;
	p->n_states++;
	advance(x, op);
	x->done = x->sank = true;
	return true;
}

static bool step(struct parts *p, struct part *x)
{
	const struct ir_op *op = x->done || x->gone ? NULL : former_only_reader(p->s, x->v);
	if (op == NULL || op->region != NULL)
		return false;
	return step_elementwise(p, x, op) || step_view(p, x, op) || step_norm(p, x, op) ||
	       step_rope(p, x, op) || step_narrow(p, x, op) || step_state(p, x, op);
}

/* ---- all parts ---- */

static bool add_slice(struct parts *p, const struct ir_op *op)
{
	const struct attrs_slice *a = op->attrs;
	const struct ir_type *y = ir_type_of(p->s->f, p->root->results[0]);
	int64_t begin, size;
	for (size_t i = 0; i < p->n; i++)
		if (p->items[i].end == op)
			return true;
	if (op->code != OP_slice || a->axis != y->rank - 1 || p->n == PARTS_MAX ||
	    !ir_dim_is_const(a->begin, &begin) || !ir_dim_is_const(a->size, &size) ||
	    ir_value_info(p->s->f, op->results[0])->region !=
	            ir_value_info(p->s->f, p->root->results[0])->region)
		return false;
	for (size_t i = 0; i < p->n; i++) /* a norm of heads changes what another part would read */
		if (begin < p->items[i].begin + p->items[i].size && p->items[i].begin < begin + size)
			return false;
	p->items[p->n++] = (struct part){begin, size, op, op->results[0], .turned = false};
	return (begin % PART_COLUMNS == 0 || is_one_strip(p)) && size > 0 && take(p, op);
}

static bool find_parts(struct parts *p)
{
	struct ir_value y = p->root->results[0];
	const struct user_list *u = &p->s->users[y.id];
	const struct ir_type *t = ir_type_of(p->s->f, y);
	if (t->rank < 2 || u->n == 0 || !ir_dim_is_const(t->dims[t->rank - 1], &p->columns))
		return false;
	p->has_slices = u->items[0]->code == OP_slice;
	if (!p->has_slices) {
		p->items[p->n++] = (struct part){0, p->columns, p->root, y, .turned = false};
		return true;
	}
	for (size_t i = 0; i < u->n; i++)
		if (!add_slice(p, u->items[i]))
			return false;
	return p->n > 1;
}

/* All readers of the integers that ropes compute in place are members. */
static bool owns_indices(const struct parts *p)
{
	for (size_t i = 0; i < p->n_taken; i++) {
		const struct ir_op *op = p->taken[i];
		if (ir_type_of(p->s->f, op->results[0])->dtype != DT_I32 ||
		    ir_type_of(p->s->f, op->results[0])->kind != IR_TENSOR)
			continue;
		const struct user_list *u = &p->s->users[op->results[0].id];
		for (size_t k = 0; k < u->n; k++)
			if (!is_taken(p, u->items[k]))
				return false;
	}
	return true;
}

/* Two parts that meet are the two halves of the columns. */
static bool pairs_are_halves(const struct parts *p)
{
	bool any = false;
	for (size_t i = 0; i < p->n; i++)
		any = any || p->items[i].met;
	const struct part *a = &p->items[0], *b = &p->items[1];
	if (!any)
		return true;
	return p->n == 2 && a->size == b->size && a->size % PART_COLUMNS == 0 &&
	       a->begin + b->begin == a->size && (a->begin == 0 || b->begin == 0);
}

static bool walk(struct former *s, const struct ir_op *root, bool no_rope, bool no_pairs, struct parts *p)
{
	*p = (struct parts){
	        .s = s, .root = root, .align = PART_COLUMNS, .no_rope = no_rope, .no_pairs = no_pairs};
	if (!find_parts(p))
		return false;
	for (bool again = true; again;) {
		again = false;
		for (size_t i = 0; i < p->n; i++)
			while (step(p, &p->items[i]))
				again = true;
	}
	return true;
}

static int by_columns(const struct part *a, const struct part *b)
{
	return (a->begin > b->begin) - (a->begin < b->begin);
}

static void sort(struct parts *p)
{
	for (size_t i = 1; i < p->n; i++)
		for (size_t k = i; k > 0 && by_columns(&p->items[k - 1], &p->items[k]) > 0; k--) {
			struct part x = p->items[k];
			p->items[k] = p->items[k - 1];
			p->items[k - 1] = x;
		}
}

static void remark(const struct parts *p)
{
	struct buf text;
	buf_init(&text);
	bool met = false;
	for (size_t i = 0; i < p->n; i++) {
		met = met || p->items[i].met;
		buf_printf(&text, "%s%lld", i > 0 ? " + " : "", (long long)p->items[i].size);
	}
	pass_count(p->s->p, met ? "pairs" : "parts", met ? 1 : (int64_t)p->n);
	pass_count(p->s->p, "norms of heads", (int64_t)p->n_norms);
	pass_count(p->s->p, "ropes", (int64_t)p->n_ropes);
	pass_count(p->s->p, "state writes", (int64_t)p->n_states);
	if (met)
		pass_remark(p->s->p, p->root->loc, "fused: %s columns of a linear meet in its epilogue",
		            text.data);
	else
		pass_remark(
		        p->s->p, p->root->loc,
		        "fused: a linear stores %s columns separately, with %zu rope%s and %zu write%s into "
		        "states",
		        text.data, p->n_ropes, pass_plural(p->n_ropes), p->n_states,
		        pass_plural(p->n_states));
	buf_destroy(&text);
}

static bool commit(struct parts *p, size_t cluster)
{
	struct cluster *c = &p->s->g->clusters.items[cluster];
	c->ends = ARENA_ARRAY(p->s->p->arena, const struct ir_op *, p->n);
	if (c->ends == NULL) {
		p->s->failed = true;
		return false;
	}
	sort(p);
	for (size_t i = 0; i < p->n_taken; i++)
		former_join(p->s, p->taken[i], cluster, MEMBER_POST);
	for (size_t i = 0; i < p->n; i++)
		if (!p->items[i].gone)
			c->ends[c->n_ends++] = p->items[i].end;
	c->at = c->root;
	remark(p);
	return true;
}

bool group_take_parts(struct former *s, size_t cluster)
{
	const struct ir_op *root = s->g->clusters.items[cluster].root;
	struct parts p;
	bool no_rope = false, no_pairs = false;
	if (root->code != OP_linear)
		return false;
	for (int tries = 0; tries < 3; tries++) {
		if (!walk(s, root, no_rope, no_pairs, &p)) {
			if (p.has_slices)
				pass_missed(
				        s->p, root->loc,
				        "not fused: column ranges of a linear are copied from its result, "
				        "they are "
				        "not whole panels of %d columns that nothing else reads",
				        PART_COLUMNS);
			return false;
		}
		if (owns_indices(&p) && pairs_are_halves(&p))
			break;
		no_rope = no_rope || !owns_indices(&p);
		no_pairs = no_pairs || !pairs_are_halves(&p);
	}
	if (!p.has_slices && p.n_norms + p.n_ropes + p.n_states == 0)
		return false;
	return commit(&p, cluster);
}
