/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linears with column ranges (a merged q/k/v or gate/up linear): each slice of the result along its columns has
 * its own epilogue of elementwise ops, split into heads, norms of heads and rope, and ends in its own buffer or
 * state; two ranges of equal width may be combined in one elementwise op (gate and up). All ranges are extended
 * along single readers until nothing changes, then the members are committed. The group is emitted where its root
 * is, so every other operand of a member must be available there: it depends on the root only through members.
 * A range is absorbed when an op combines it with another one (a pair), and complete when it ends in a state. If the
 * index arithmetic of a rope turns out to have other readers, or a pair not to be gate and up, all is repeated without
 * ropes (without_rope) or pairs (without_pairs).
 */
#include "passes/group/fusion.h"

#include "ir/support/buf.h"
#include "ir/support/checked.h"
#include "ir/core/view.h"

#define MEMBERS_MAX 64
#define INDEX_DEPTH 8

struct column_range {
	int64_t begin, size;     /* columns of the root's result */
	const struct ir_op *end; /* last op so far */
	struct ir_value v;       /* its result, or that of the root */
	bool has_heads;          /* v has a head axis: [.., H, E] */
	size_t n_views;          /* reshape and transpose so far */
	bool is_pair;            /* another range was combined into this one */
	bool is_absorbed;        /* combined into another range */
	bool is_complete;        /* written into a state */
};

struct column_ranges {
	struct fuser *s;
	const struct ir_op *root;
	struct column_range items[RANGES_MAX];
	size_t n;
	int64_t columns; /* of the root's result */
	int64_t align;   /* blocks of columns are multiples of this: complete heads and panels */
	const struct ir_op *members[MEMBERS_MAX];
	size_t n_members, n_work; /* n_work: members that are not views */
	size_t n_norms, n_ropes, n_states;
	bool has_slices, without_rope, without_pairs;
};

/* ---- members ---- */

/* op is a member of the group under construction. */
static bool is_member(const struct column_ranges *p, const struct ir_op *op)
{
	for (size_t i = 0; i < p->n_members; i++)
		if (p->members[i] == op)
			return true;
	return false;
}

/* Adds op to the members. False: there are too many; views cost nothing and do not count for max_ops. The root
 * counts as one op. */
static bool add_member(struct column_ranges *p, const struct ir_op *op)
{
	bool is_view = ir_op_has(op->code, TRAIT_VIEW);
	if (is_member(p, op))
		return true;
	if (p->n_members == MEMBERS_MAX || (!is_view && p->n_work + 1 >= fusion_ops_max(p->s, GROUP_linear)))
		return false;
	p->members[p->n_members++] = op;
	p->n_work += !is_view;
	return true;
}

/* v is computed before the root, or is a view or constant of such values. Value ids are in order of definition. */
static bool precedes_root(const struct column_ranges *p, struct ir_value v)
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

static bool is_in_cluster(const struct column_ranges *p, const struct ir_op *op)
{
	return op->n_results == 0 || p->s->g->cluster_of[fusion_op_index(p->s->g, op)] != 0;
}

/*
 * Adds the index arithmetic that computes v to the members, unless it precedes the root. index_ops_are_private()
 * checks for other readers at the end.
 */
static bool add_index_ops(struct column_ranges *p, struct ir_value v, int depth)
{
	if (precedes_root(p, v))
		return true;
	const struct ir_op *op = ir_def(p->s->f, v);
	if (depth == INDEX_DEPTH || op->region != NULL || !fusion_is_index_arithmetic(p->s->f, op) ||
	    is_in_cluster(p, op))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!add_index_ops(p, op->operands[i], depth + 1))
			return false;
	return add_member(p, op);
}

/* ---- extending one range ---- */

/* The unfinished range that ends in v, or NULL. */
static struct column_range *range_ending_in(struct column_ranges *p, struct ir_value v)
{
	for (size_t i = 0; i < p->n; i++)
		if (!p->items[i].is_absorbed && !p->items[i].is_complete && ir_same_value(p->items[i].v, v))
			return &p->items[i];
	return NULL;
}

static void set_end(struct column_range *x, const struct ir_op *op)
{
	x->end = op;
	x->v = op->results[0];
}

/* Operand i of op can be read in the epilogue of x: the end of x at the same element, a value computed before
 * the root, or the end of another range, which *other is set to, if the two may be a pair. */
static bool may_read(struct column_ranges *p, const struct column_range *x, const struct ir_op *op, size_t i,
                     struct column_range **other)
{
	struct ir_value v = op->operands[i];
	bool reads_element = fusion_reads_same_element(p->s->f, op, i);
	bool is_condition = op->code == OP_where && i == 0;
	if (ir_same_value(v, x->v))
		return reads_element && !is_condition;
	if (reads_element && !is_condition && !fusion_is_f32(p->s->f, v))
		return false;
	struct column_range *y = range_ending_in(p, v);
	if (y == NULL)
		return precedes_root(p, v);
	*other = y;
	return reads_element && !is_condition && !p->without_pairs && !x->has_heads && !y->has_heads &&
	       fusion_single_reader(p->s, v) == op;
}

/* Extends the range by an elementwise op, perhaps combining it with another range. */
static bool extend_elementwise(struct column_ranges *p, struct column_range *x, const struct ir_op *op)
{
	struct column_range *other = NULL;
	if (!fusion_is_elementwise(op) || !fusion_is_unassigned(p->s, op) ||
	    !fusion_is_f32(p->s->f, op->results[0]) ||
	    !ir_same_dims(ir_type_of(p->s->f, op->results[0]), ir_type_of(p->s->f, x->v)))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!may_read(p, x, op, i, &other))
			return false;
	if (!add_member(p, op))
		return false;
	if (other != NULL) {
		other->is_absorbed = true;
		x->is_pair = true;
	}
	set_end(x, op);
	return true;
}

/* A cast to f16 or bf16 before a write into a state: the epilogue converts when it stores. */
static bool extend_cast(struct column_ranges *p, struct column_range *x, const struct ir_op *op)
{
	enum ir_dtype to = op->code == OP_cast ? ir_type_of(p->s->f, op->results[0])->dtype : DT_F32;
	const struct ir_op *next = fusion_single_reader(p->s, op->results[0]);
	bool is_state_write = next != NULL && (next->code == OP_state_append || next->code == OP_state_write);
	if ((to != DT_F16 && to != DT_BF16) || !is_state_write || !fusion_is_unassigned(p->s, op) ||
	    !add_member(p, op))
		return false;
	set_end(x, op);
	return true;
}

static int64_t lcm(int64_t a, int64_t b)
{
	return a / gcd_i64(a, b) * b;
}

/*
 * On a device, all columns are one block, so ranges may begin anywhere: one launch is worth more than dividing the
 * columns among work-groups. On a CPU, copies of the columns are faster.
 */
static bool is_one_block(const struct column_ranges *p)
{
	const struct target *t = p->s->p->options->target;
	return t != NULL && t->arch == ARCH_OPENCL && p->columns <= RANGE_BLOCK_MAX;
}

/* op reshapes [.., n] to [.., H, E] such that each head is within one block of columns: blocks become multiples
 * of whole heads and panels (p->align). */
static bool splits_heads(struct column_ranges *p, const struct column_range *x, const struct ir_op *op)
{
	const struct ir_type *from = ir_type_of(p->s->f, x->v), *to = ir_type_of(p->s->f, op->results[0]);
	int64_t width;
	int axis;
	if (x->has_heads || x->is_pair || !ir_view_splits_heads(from, to, &axis, &width) ||
	    width > RANGE_BLOCK_MAX)
		return false;
	int64_t unit = lcm(width, RANGE_ALIGN);
	if (is_one_block(p))
		return true;
	if (unit > RANGE_BLOCK_MAX || x->begin % unit != 0 || lcm(unit, p->align) > RANGE_BLOCK_MAX)
		return false;
	p->align = lcm(unit, p->align);
	return true;
}

/* Extends the range by the reshape into heads, or by one transpose after it that preserves the last axis. */
static bool extend_view(struct column_ranges *p, struct column_range *x, const struct ir_op *op)
{
	const struct attrs_transpose *t = op->attrs;
	bool moves_heads = op->code == OP_transpose && x->has_heads && x->n_views == 1 &&
	                   t->perm.items[t->perm.n - 1] == (int64_t)t->perm.n - 1;
	if (is_in_cluster(p, op) || (!moves_heads && (op->code != OP_reshape || !splits_heads(p, x, op))) ||
	    !add_member(p, op))
		return false;
	x->has_heads = true;
	x->n_views++;
	set_end(x, op);
	return true;
}

/* Extends the range by a norm of each head; all of a head is in one block of columns. */
static bool extend_norm(struct column_ranges *p, struct column_range *x, const struct ir_op *op)
{
	if (!ir_is_norm(op->code) || !p->s->norms || !x->has_heads || !fusion_is_unassigned(p->s, op) ||
	    !ir_same_value(op->operands[0], x->v) || !fusion_is_f32(p->s->f, op->results[0]))
		return false;
	for (size_t i = 1; i < op->n_operands; i++)
		if (op->operands[i].id != 0 &&
		    (ir_same_value(op->operands[i], x->v) || !precedes_root(p, op->operands[i]) ||
		     !fusion_is_f32(p->s->f, op->operands[i])))
			return false;
	if (!add_member(p, op))
		return false;
	p->n_norms++;
	set_end(x, op);
	return true;
}

/* Extends the range by RoPE: table and positions are available at the root, or are index arithmetic that moves
 * into the group. */
static bool extend_rope(struct column_ranges *p, struct column_range *x, const struct ir_op *op)
{
	if (op->code != OP_rope || p->without_rope || !x->has_heads || !fusion_is_unassigned(p->s, op) ||
	    !ir_same_value(op->operands[0], x->v) || !precedes_root(p, op->operands[1]) ||
	    !fusion_is_f32(p->s->f, op->operands[1]) || !add_index_ops(p, op->operands[2], 0) ||
	    !add_member(p, op))
		return false;
	p->n_ropes++;
	set_end(x, op);
	return true;
}

/* An op between the root and op reads a state: it would read other values if op wrote at the root. A read through a
 * slice of any state counts, not only of the one that op writes. */
static bool state_is_read_between(const struct column_ranges *p, const struct ir_op *op)
{
	const struct fuser *s = p->s;
	for (size_t i = fusion_op_index(s->g, p->root) + 1; i < fusion_op_index(s->g, op); i++) {
		const struct ir_op *at = s->g->ops[i];
		for (size_t k = 0; k < at->n_operands && !is_member(p, at); k++) {
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

/* Ends the range in a write into a state. */
static bool extend_state_write(struct column_ranges *p, struct column_range *x, const struct ir_op *op)
{
	if ((op->code != OP_state_append && op->code != OP_state_write) || !x->has_heads ||
	    !fusion_is_unassigned(p->s, op) || !ir_same_value(op->operands[1], x->v) ||
	    state_is_read_between(p, op))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (i != 1 && (ir_same_value(op->operands[i], x->v) || !precedes_root(p, op->operands[i])))
			return false;
	if (!add_member(p, op))
		return false;
	p->n_states++;
	set_end(x, op);
	x->is_complete = true;
	return true;
}

static bool extend(struct column_ranges *p, struct column_range *x)
{
	const struct ir_op *op = x->is_complete || x->is_absorbed ? NULL : fusion_single_reader(p->s, x->v);
	if (op == NULL || op->region != NULL)
		return false;
	return extend_elementwise(p, x, op) || extend_view(p, x, op) || extend_norm(p, x, op) ||
	       extend_rope(p, x, op) || extend_cast(p, x, op) || extend_state_write(p, x, op);
}

/* ---- all ranges ---- */

/* Adds the range of a slice of the root's result; true also if it has been added before. False: the slice
 * cannot be a range, so that the linear has none. */
static bool add_slice(struct column_ranges *p, const struct ir_op *op)
{
	const struct attrs_slice *a = op->attrs;
	const struct ir_type *y = ir_type_of(p->s->f, p->root->results[0]);
	int64_t begin, size;
	for (size_t i = 0; i < p->n; i++)
		if (p->items[i].end == op)
			return true;
	if (op->code != OP_slice || a->axis != y->rank - 1 || p->n == RANGES_MAX ||
	    !ir_dim_is_const(a->begin, &begin) || !ir_dim_is_const(a->size, &size) ||
	    ir_value_info(p->s->f, op->results[0])->region !=
	            ir_value_info(p->s->f, p->root->results[0])->region)
		return false;
	/* Ranges must not overlap: a norm of heads would change the other range. */
	for (size_t i = 0; i < p->n; i++)
		if (begin < p->items[i].begin + p->items[i].size && p->items[i].begin < begin + size)
			return false;
	p->items[p->n++] = (struct column_range){begin, size, op, op->results[0], .has_heads = false};
	return (begin % RANGE_ALIGN == 0 || is_one_block(p)) && size > 0 && add_member(p, op);
}

/* Finds the ranges: the slices of the root's result, which must be its only readers and several, or the complete
 * result as one range. */
static bool find_ranges(struct column_ranges *p)
{
	struct ir_value y = p->root->results[0];
	const struct user_list *u = &p->s->users[y.id];
	const struct ir_type *t = ir_type_of(p->s->f, y);
	if (t->rank < 2 || u->n == 0 || !ir_dim_is_const(t->dims[t->rank - 1], &p->columns))
		return false;
	p->has_slices = u->items[0]->code == OP_slice;
	if (!p->has_slices) {
		p->items[p->n++] = (struct column_range){0, p->columns, p->root, y, .has_heads = false};
		return true;
	}
	for (size_t i = 0; i < u->n; i++)
		if (!add_slice(p, u->items[i]))
			return false;
	return p->n > 1;
}

/* All readers of the index arithmetic that is computed in place (the i32 members) are members: it has no value
 * outside of the group. */
static bool index_ops_are_private(const struct column_ranges *p)
{
	for (size_t i = 0; i < p->n_members; i++) {
		const struct ir_op *op = p->members[i];
		if (ir_type_of(p->s->f, op->results[0])->dtype != DT_I32 ||
		    ir_type_of(p->s->f, op->results[0])->kind != IR_TENSOR)
			continue;
		const struct user_list *u = &p->s->users[op->results[0].id];
		for (size_t k = 0; k < u->n; k++)
			if (!is_member(p, u->items[k]))
				return false;
	}
	return true;
}

/* If two ranges are combined, they are the two halves of the columns (gate and up), the only form that the kernel
 * knows. */
static bool pairs_are_gate_and_up(const struct column_ranges *p)
{
	bool any = false;
	for (size_t i = 0; i < p->n; i++)
		any = any || p->items[i].is_pair;
	const struct column_range *a = &p->items[0], *b = &p->items[1];
	if (!any)
		return true;
	return p->n == 2 && a->size == b->size && a->size % RANGE_ALIGN == 0 &&
	       a->begin + b->begin == a->size && (a->begin == 0 || b->begin == 0);
}

/* Extends all ranges until nothing changes. False: the linear has no ranges. */
static bool extend_all(struct fuser *s, const struct ir_op *root, bool without_rope, bool without_pairs,
                       struct column_ranges *p)
{
	*p = (struct column_ranges){.s = s,
	                            .root = root,
	                            .align = RANGE_ALIGN,
	                            .without_rope = without_rope,
	                            .without_pairs = without_pairs};
	if (!find_ranges(p))
		return false;
	for (bool again = true; again;) {
		again = false;
		for (size_t i = 0; i < p->n; i++)
			while (extend(p, &p->items[i]))
				again = true;
	}
	return true;
}

/* Insertion sort of the ranges by their first column. */
static void sort_by_column(struct column_ranges *p)
{
	for (size_t i = 1; i < p->n; i++)
		for (size_t k = i; k > 0 && p->items[k - 1].begin > p->items[k].begin; k--) {
			struct column_range x = p->items[k];
			p->items[k] = p->items[k - 1];
			p->items[k - 1] = x;
		}
}

/* Counters and remarks. */
static void report(const struct column_ranges *p)
{
	struct buf text;
	buf_init(&text);
	bool is_pair = false;
	for (size_t i = 0; i < p->n; i++) {
		is_pair = is_pair || p->items[i].is_pair;
		buf_printf(&text, "%s%lld", i > 0 ? " + " : "", (long long)p->items[i].size);
	}
	pass_count(p->s->p, is_pair ? "pairs" : "parts", is_pair ? 1 : (int64_t)p->n);
	pass_count(p->s->p, "norms of heads", (int64_t)p->n_norms);
	pass_count(p->s->p, "ropes", (int64_t)p->n_ropes);
	pass_count(p->s->p, "state writes", (int64_t)p->n_states);
	if (is_pair)
		pass_remark(p->s->p, p->root->loc,
		            "fused: %s columns of a linear are combined in its epilogue", text.data);
	else
		pass_remark(
		        p->s->p, p->root->loc,
		        "fused: a linear stores %s columns separately, with %zu rope%s and %zu write%s into "
		        "states",
		        text.data, p->n_ropes, pass_plural(p->n_ropes), p->n_states,
		        pass_plural(p->n_states));
	buf_destroy(&text);
}

/* Assigns all members to the cluster; the ends of the ranges become its outputs. The group is emitted at its root
 * (head of the file). */
static bool commit(struct column_ranges *p, size_t cluster)
{
	struct cluster *c = &p->s->g->clusters.items[cluster];
	c->outputs = ARENA_ARRAY(p->s->p->arena, const struct ir_op *, p->n);
	if (c->outputs == NULL) {
		p->s->failed = true;
		return false;
	}
	sort_by_column(p);
	for (size_t i = 0; i < p->n_members; i++)
		fusion_assign(p->s, p->members[i], cluster, MEMBER_POST);
	for (size_t i = 0; i < p->n; i++)
		if (!p->items[i].is_absorbed)
			c->outputs[c->n_outputs++] = p->items[i].end;
	c->emit_at = c->root;
	report(p);
	return true;
}

bool fuse_column_ranges(struct fuser *s, size_t cluster)
{
	const struct ir_op *root = s->g->clusters.items[cluster].root;
	struct column_ranges p;
	bool without_rope = false, without_pairs = false;
	if (root->code != OP_linear)
		return false;
	/* Rope or pairs that turn out to be impossible are left out of the next try; the third has neither. */
	for (int tries = 0; tries < 3; tries++) {
		if (!extend_all(s, root, without_rope, without_pairs, &p)) {
			if (p.has_slices)
				pass_missed(
				        s->p, root->loc,
				        "not fused: column ranges of a linear are copied from its result, "
				        "they are "
				        "not whole panels of %d columns that nothing else reads",
				        RANGE_ALIGN);
			return false;
		}
		if (index_ops_are_private(&p) && pairs_are_gate_and_up(&p))
			break;
		without_rope = without_rope || !index_ops_are_private(&p);
		without_pairs = without_pairs || !pairs_are_gate_and_up(&p);
	}
	/* Elementwise ops after the whole result are an ordinary epilogue (fuse_epilogue). */
	if (!p.has_slices && p.n_norms + p.n_ropes + p.n_states == 0)
		return false;
	return commit(&p, cluster);
}
