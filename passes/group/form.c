/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three steps: roots of kernels with their own template take the elementwise
 * chain after them, a linear the norm that only it reads; then, from the last op to the first, an op joins
 * the cluster of its readers when all of them are in one and may evaluate it in place, else it begins its
 * own; at last, clusters that can store through a view take the views after them that could not be read as
 * strides.
 */
#include "passes/group/norms.h"

#include "ir/core/view.h"

size_t formed_index(const struct formed *g, const struct ir_op *op)
{
	return g->index_of[op->results[0].id] - 1;
}

const struct cluster *formed_cluster(const struct formed *g, const struct ir_op *op)
{
	size_t at = op->n_results == 0 || op->region != NULL ? 0 : g->cluster_of[formed_index(g, op)];
	return at == 0 ? NULL : &g->clusters.items[at - 1];
}

/* ---- facts ---- */

bool group_is_constant(const struct ir_op *op)
{
	return op != NULL && (op->code == OP_full || op->code == OP_iota || op->code == OP_dim_value);
}

/* Ops that stay outside groups. */
static bool stays_outside(const struct ir_op *op)
{
	return op->region != NULL || op->code == OP_state_read || op->code == OP_weight ||
	       group_is_constant(op) || ir_op_has(op->code, TRAIT_VIEW) ||
	       ir_op_has(op->code, TRAIT_TERMINATOR);
}

bool former_same_dims(const struct ir_type *a, const struct ir_type *b)
{
	if (a->rank != b->rank)
		return false;
	for (int i = 0; i < a->rank; i++)
		if (a->dims[i] != b->dims[i])
			return false;
	return true;
}

bool former_is_elementwise(const struct ir_op *op)
{
	return ir_op_has(op->code, TRAIT_ELEMENTWISE);
}

/* Operand i of an elementwise op is read at the element that is computed. */
bool former_same_element(const struct ir_func *f, const struct ir_op *op, size_t i)
{
	return former_is_elementwise(op) &&
	       former_same_dims(ir_type_of(f, op->operands[i]), ir_type_of(f, op->results[0]));
}

bool group_constant_inside(const struct ir_func *f, const struct ir_op *op, size_t i)
{
	if (op->code == OP_state_append || op->code == OP_state_write)
		return i >= (op->code == OP_state_append ? 3 : 2);
	return former_same_element(f, op, i) ||
	       ((op->code == OP_gather || op->code == OP_take_rows) && i == 1) ||
	       (op->code == OP_rope && i == 2);
}

bool former_is_f32(const struct ir_func *f, struct ir_value v)
{
	return v.id == 0 || ir_type_of(f, v)->dtype == DT_F32;
}

struct activation_quant group_rounding(const struct ir_op *op)
{
	const struct attrs_round_rows *a = op->attrs;
	return (struct activation_quant){.bf16 = a->to == ROUND_bf16, .block = a->block};
}

bool group_rounds_for(const struct pass_context *p, const struct ir_func *f, const struct ir_op *linear,
                      const struct ir_op *op)
{
	const struct target *t = p->options->target;
	int64_t depth;
	if (op == NULL || op->code != OP_round_rows || !ir_same_value(linear->operands[0], op->results[0]) ||
	    former_kind_of(f, linear) != GROUP_linear || (t != NULL && t->group_size > 1))
		return false;
	const struct ir_type *w = ir_type_of(f, linear->operands[1]);
	struct activation_quant to = group_rounding(op);
	if (to.bf16 && t != NULL && !target_has(t, FEATURE_AVX512BF16) && !target_has(t, FEATURE_BF16))
		return false; /* f32 is faster */
	return ir_dim_is_const(w->dims[w->rank - 1], &depth) &&
	       quant_dot_block(ir_weight_of(f, linear->operands[1])->format, to, depth) >= 0;
}

/* All that read op round, or compute the norm, for themselves. */
static bool is_repeated_inside(const struct former *s, const struct ir_op *op)
{
	bool may_be = op->code == OP_round_rows || ir_is_norm(op->code);
	const struct user_list *u = &s->users[op->results[0].id];
	for (size_t i = 0; may_be && i < u->n; i++)
		if (!group_rounds_for(s->p, s->f, u->items[i], op) && !group_repeats_norm(s, u->items[i], op))
			return false;
	return may_be && u->n > 0;
}

static bool packed_linear(const struct ir_func *f, const struct ir_op *op)
{
	const struct ir_weight *w = ir_weight_of(f, op->operands[1]);
	struct ir_value bias = op->operands[op->code == OP_expert_linear ? 3 : 2];
	return w != NULL && w->encoding == ENC_PANEL16 && former_is_f32(f, op->operands[0]) &&
	       former_is_f32(f, op->operands[1]) && former_is_f32(f, bias);
}

/* Kernels with their own template; everything else is GROUP_loops. */
int former_kind_of(const struct ir_func *f, const struct ir_op *op)
{
	if ((op->code == OP_linear || op->code == OP_expert_linear) && packed_linear(f, op))
		return GROUP_linear;
	if (op->code == OP_attention)
		return GROUP_attention;
	if (ir_op_has(op->code, TRAIT_ROWWISE) && former_is_f32(f, op->operands[0]))
		return GROUP_rowwise;
	return GROUP_loops;
}

/* ---- operations on clusters ---- */

static size_t index_of(const struct former *s, const struct ir_op *op)
{
	return formed_index(s->g, op);
}

bool former_is_free(const struct former *s, const struct ir_op *op)
{
	return !stays_outside(op) && !is_repeated_inside(s, op) && s->g->cluster_of[index_of(s, op)] == 0;
}

void former_join(struct former *s, const struct ir_op *op, size_t cluster, enum member_role role)
{
	s->g->cluster_of[index_of(s, op)] = cluster + 1;
	s->g->role_of[index_of(s, op)] = role;
	s->g->clusters.items[cluster].n_ops++;
}

static size_t begin(struct former *s, const struct ir_op *op)
{
	struct cluster *c = ARENA_PUSH(s->p->arena, &s->g->clusters);
	if (c == NULL) {
		s->failed = true;
		return 0;
	}
	*c = (struct cluster){.kind = former_kind_of(s->f, op), .root = op, .last = op, .at = op};
	former_join(s, op, s->g->clusters.n - 1, MEMBER_ROOT);
	return s->g->clusters.n - 1;
}

const struct ir_region *former_region_of(const struct former *s, const struct ir_op *op)
{
	return ir_value_info(s->f, op->results[0])->region;
}

/* The one op that reads v (perhaps twice), in the same region; NULL when there are more, or others. */
const struct ir_op *former_only_reader(const struct former *s, struct ir_value v)
{
	const struct user_list *u = &s->users[v.id];
	if (u->n == 0)
		return NULL;
	for (size_t i = 1; i < u->n; i++)
		if (u->items[i] != u->items[0])
			return NULL;
	const struct ir_op *op = u->items[0];
	return op->n_results > 0 && former_region_of(s, op) == ir_value_info(s->f, v)->region ? op : NULL;
}

/* ---- step 1: epilogues ---- */

/* op computes on f32 (masks, lengths and conditions beside) at the elements of v. */
static bool can_follow(const struct former *s, const struct ir_op *op, struct ir_value v)
{
	if (!former_is_elementwise(op) || !former_is_free(s, op) || !former_is_f32(s->f, op->results[0]) ||
	    !former_same_dims(ir_type_of(s->f, op->results[0]), ir_type_of(s->f, v)))
		return false;
	for (size_t i = 0; i < op->n_operands; i++) {
		bool reads_element = former_same_element(s->f, op, i);
		bool is_condition = op->code == OP_where && i == 0;
		if (ir_same_value(op->operands[i], v) && (!reads_element || is_condition))
			return false;
		if (reads_element && !is_condition && !former_is_f32(s->f, op->operands[i]))
			return false;
	}
	return true;
}

/* What is read of many columns by strips: the end of a linear's kernel. */
static bool can_strip(const struct former *s, const struct cluster *c, const struct ir_op *op,
                      struct ir_value v)
{
	return c->kind == GROUP_linear && c->root->code == OP_linear && !c->has_norm &&
	       (op->code == OP_strip_argmax || op->code == OP_strip_score) && former_is_free(s, op) &&
	       ir_same_value(op->operands[0], v) && former_is_f32(s->f, v);
}

static void take_epilogue(struct former *s, size_t cluster)
{
	for (;;) {
		struct cluster *c = &s->g->clusters.items[cluster];
		struct ir_value v = c->last->results[0];
		const struct ir_op *op = former_only_reader(s, v);
		if (op == NULL || c->n_ops >= s->max_ops)
			return;
		bool strips = can_strip(s, c, op, v);
		if (!strips && !can_follow(s, op, v) && !group_norm_can_follow(s, c, op))
			return;
		former_join(s, op, cluster, MEMBER_POST);
		c->last = c->at = op;
		if (strips)
			return;
		if (!ir_is_norm(op->code))
			continue;
		c->has_norm = true;
		pass_count(s->p, "norm_epilogues", 1);
		pass_remark(s->p, op->loc, "fused: %s into the linear before it", ir_op_desc(op->code)->name);
	}
}

static void form_roots(struct former *s)
{
	for (size_t i = 0; i < s->g->n_ops && !s->failed; i++) {
		const struct ir_op *op = s->g->ops[i];
		if (!former_is_free(s, op) || former_kind_of(s->f, op) == GROUP_loops)
			continue;
		if (ir_is_norm(op->code) && former_kind_of(s->f, op) == GROUP_rowwise &&
		    group_linear_behind(s, op) != NULL)
			continue;
		size_t cluster = begin(s, op);
		if (s->failed)
			return;
		int kind = s->g->clusters.items[cluster].kind;
		if (kind == GROUP_linear)
			group_take_norm(s, cluster);
		if (kind == GROUP_linear && s->max_ops > 1 && group_take_parts(s, cluster))
			continue;
		if (kind != GROUP_attention)
			take_epilogue(s, cluster);
	}
}

/* ---- step 2: prologues ---- */

/* Indices of a gather: computed again for every element of the row that is read, so only integer arithmetic.
 */
bool former_is_cheap_index(const struct ir_func *f, const struct ir_op *op)
{
	return former_is_elementwise(op) && ir_type_of(f, op->results[0])->dtype == DT_I32;
}

/*
 * Before a linear is a norm, whose rows several workers compute for themselves: rows may be picked
 * on the way, nothing else is computed again.
 */
static bool may_move_inside(const struct former *s, const struct ir_op *reader, size_t i,
                            const struct ir_op *op)
{
	if (ir_is_norm(reader->code))
		return i == 0 && (op->code == OP_gather || op->code == OP_take_rows) &&
		       former_is_f32(s->f, op->results[0]);
	if (former_is_elementwise(reader))
		return former_is_cheap_index(s->f, reader) && former_is_cheap_index(s->f, op) &&
		       former_same_element(s->f, reader, i);
	return i == 1 && former_is_cheap_index(s->f, op);
}

/* The reader may evaluate `op`, its operand i, in place. */
static bool may_read_inside(const struct former *s, const struct ir_op *reader, size_t i,
                            const struct ir_op *op)
{
	const struct cluster *c = formed_cluster(s->g, reader);
	enum member_role role = s->g->role_of[index_of(s, reader)];

	if (c->kind == GROUP_attention || role == MEMBER_POST)
		return false;
	if (c->kind == GROUP_linear)
		return role == MEMBER_PRE && may_move_inside(s, reader, i, op);
	if (former_is_elementwise(reader))
		return former_same_element(s->f, reader, i);
	if (reader->code == OP_gather || reader->code == OP_take_rows)
		return i == 1 && former_is_cheap_index(s->f, op);
	if (reader->code == OP_rope)
		return i == 2 && former_is_cheap_index(s->f, op);
	if (c->kind == GROUP_rowwise)
		return i == 0 && former_is_f32(s->f, op->results[0]);
	return ir_op_has(reader->code, TRAIT_REDUCE) && i == 0;
}

/* The cluster that all readers of op are in, when all of them may evaluate it; 0: none, else cluster + 1. */
static size_t common_cluster(const struct former *s, const struct ir_op *op)
{
	const struct user_list *u = &s->users[op->results[0].id];
	size_t common = 0;

	for (size_t i = 0; i < u->n; i++) {
		const struct ir_op *reader = u->items[i];
		const struct cluster *c = formed_cluster(s->g, reader);
		if (c == NULL || former_region_of(s, reader) != former_region_of(s, op))
			return 0;
		size_t at = s->g->cluster_of[index_of(s, reader)];
		if (common != 0 && common != at)
			return 0;
		common = at;
		for (size_t k = 0; k < reader->n_operands; k++)
			if (ir_same_value(reader->operands[k], op->results[0]) &&
			    !may_read_inside(s, reader, k, op))
				return 0;
	}
	return common;
}

/* A reduction, once for each element of what its reader computes from it. */
static bool is_reduced_once(const struct former *s, const struct ir_op *op, size_t cluster)
{
	const struct ir_op *root = s->g->clusters.items[cluster - 1].root;
	return ir_op_has(op->code, TRAIT_REDUCE) && former_is_elementwise(root) &&
	       former_only_reader(s, op->results[0]) == root;
}

static bool can_join(const struct former *s, const struct ir_op *op, size_t cluster)
{
	return former_is_elementwise(op) || op->code == OP_gather || op->code == OP_take_rows ||
	       is_reduced_once(s, op, cluster);
}

static void form_rest(struct former *s)
{
	for (size_t i = s->g->n_ops; i-- > 0 && !s->failed;) {
		const struct ir_op *op = s->g->ops[i];
		if (!former_is_free(s, op))
			continue;
		size_t cluster = common_cluster(s, op);
		if (cluster != 0 && can_join(s, op, cluster) &&
		    s->g->clusters.items[cluster - 1].n_ops < s->max_ops)
			former_join(s, op, cluster - 1, MEMBER_PRE);
		else
			begin(s, op);
	}
}

/* ---- step 3: views that are stored, and constants in memory ---- */

static bool is_turning_view(const struct ir_op *op)
{
	return op != NULL && (op->code == OP_reshape || op->code == OP_transpose);
}

/* The cluster stays at its place: a group between it and the view may read what the view gives. */
static void take_views(struct former *s, size_t cluster)
{
	struct cluster *c = &s->g->clusters.items[cluster];
	const struct ir_op *chain[IR_VIEW_CHAIN_MAX];
	struct ir_view view;
	size_t n = 0;

	const struct ir_op *op = c->last->n_results == 1 ? former_only_reader(s, c->last->results[0]) : NULL;
	for (; is_turning_view(op) && n < IR_VIEW_CHAIN_MAX; op = former_only_reader(s, op->results[0])) {
		chain[n++] = op;
		if (ir_view_resolve(s->m, s->f, op->results[0], &view))
			continue;
		if (!ir_view_inverse(s->m, s->f, op->results[0], 0, &view))
			return;
		for (size_t i = 0; i < n; i++)
			former_join(s, chain[i], cluster, MEMBER_POST);
		c->last = op;
		return;
	}
}

/* The only use of v is as a result of the function or a region, or as the first value of a carry. */
static bool is_handed_on(const struct former *s, struct ir_value v)
{
	const struct user_list *u = &s->users[v.id];
	return u->n == 1 &&
	       (ir_op_has(u->items[0]->code, TRAIT_TERMINATOR) || u->items[0]->code == OP_repeat);
}

/* Reshapes before a value that must be the result of a group: the same bytes under another type. */
static void take_reshapes(struct former *s, size_t cluster)
{
	struct cluster *c = &s->g->clusters.items[cluster];
	const struct ir_op *chain[IR_VIEW_CHAIN_MAX];
	size_t n = 0;

	const struct ir_op *op = c->last->n_results == 1 ? former_only_reader(s, c->last->results[0]) : NULL;
	for (; op != NULL && op->code == OP_reshape && n < IR_VIEW_CHAIN_MAX;
	     op = former_only_reader(s, op->results[0]))
		chain[n++] = op;
	if (n == 0 || !is_handed_on(s, chain[n - 1]->results[0]))
		return;
	for (size_t i = 0; i < n; i++)
		former_join(s, chain[i], cluster, MEMBER_POST);
	c->last = chain[n - 1];
}

static void take_all_views(struct former *s)
{
	for (size_t i = 0; i < s->g->clusters.n && s->max_ops > 1; i++) {
		int kind = s->g->clusters.items[i].kind;
		if (s->g->clusters.items[i].n_ends > 0)
			continue;
		if (kind == GROUP_attention || kind == GROUP_loops)
			take_views(s, i);
		take_reshapes(s, i);
	}
}

/* `reader` reads the constant from memory: a view, a repeat, or a template. */
static bool reads_memory(const struct former *s, const struct ir_op *reader, struct ir_value constant)
{
	if (reader->code == OP_weight || reader->code == OP_state_read)
		return false;
	if (formed_cluster(s->g, reader) == NULL || ir_op_has(reader->code, TRAIT_VIEW))
		return true;
	for (size_t i = 0; i < reader->n_operands; i++)
		if (ir_same_value(reader->operands[i], constant) && !group_constant_inside(s->f, reader, i))
			return true;
	return false;
}

static void find_memory(struct former *s)
{
	for (size_t i = 0; i < s->g->n_ops; i++) {
		const struct ir_op *op = s->g->ops[i];
		const struct user_list *u = &s->users[op->results[0].id];
		for (size_t k = 0; group_is_constant(op) && k < u->n; k++)
			s->g->in_memory[i] =
			        s->g->in_memory[i] || reads_memory(s, u->items[k], op->results[0]);
	}
}

/* ---- all ---- */

static void number_op(struct former *s, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		ARENA_ADD(s->p->arena, &s->users[op->operands[i].id], op);
	if (op->region != NULL || op->n_results == 0)
		return;
	struct {
		const struct ir_op **items;
		size_t n, cap;
	} list = {s->g->ops, s->g->n_ops, s->g->cap_ops};
	const struct ir_op **slot = ARENA_PUSH(s->p->arena, &list);
	if (slot == NULL)
		return;
	*slot = op;
	s->g->ops = list.items;
	s->g->n_ops = list.n;
	s->g->cap_ops = list.cap;
	for (size_t i = 0; i < op->n_results; i++)
		s->g->index_of[op->results[i].id] = list.n;
}

/* A linear that rounds rows, or computes a norm, for itself reads what others do, too. */
static void add_readers(struct former *s, const struct ir_op *op)
{
	const struct user_list *u = &s->users[op->results[0].id];
	for (size_t i = 0; i < u->n; i++) {
		bool repeats = group_repeats_norm(s, u->items[i], op);
		if (repeats)
			s->g->repeats_norm[index_of(s, u->items[i])] = true;
		if (repeats || group_rounds_for(s->p, s->f, u->items[i], op))
			ARENA_ADD(s->p->arena, &s->users[op->operands[0].id], u->items[i]);
	}
}

/* Lists of members, in program order. */
static void link_members(struct former *s)
{
	struct formed *g = s->g;
	g->first_of = ARENA_ARRAY(s->p->arena, size_t, g->clusters.n + 1);
	g->next_of = ARENA_ARRAY(s->p->arena, size_t, g->n_ops + 1);
	for (size_t i = 0; g->first_of != NULL && i < g->clusters.n; i++)
		g->first_of[i] = g->n_ops;
	for (size_t i = g->n_ops; g->first_of != NULL && g->next_of != NULL && i-- > 0;) {
		if (g->cluster_of[i] == 0)
			continue;
		g->next_of[i] = g->first_of[g->cluster_of[i] - 1];
		g->first_of[g->cluster_of[i] - 1] = i;
	}
}

bool group_form(struct pass_context *p, const struct ir_module *m, const struct ir_func *f, size_t max_ops,
                struct formed *out)
{
	struct former s = {
	        .p = p, .m = m, .f = f, .g = out, .max_ops = max_ops, .norms = p->step->settings[1] != 0};

	*out = (struct formed){0};
	out->uses = ir_count_uses(p->arena, f);
	out->index_of = ARENA_ARRAY(p->arena, size_t, f->n_values);
	s.users = ARENA_ARRAY(p->arena, struct user_list, f->n_values);
	if (arena_failed(p->arena))
		return false;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		number_op(&s, it.op);
	out->repeats_norm = ARENA_ARRAY(p->arena, bool, out->n_ops + 1);
	if (arena_failed(p->arena))
		return false;
	for (size_t i = 0; i < out->n_ops; i++) {
		const struct ir_op *op = out->ops[i];
		if (ir_is_norm(op->code) || (op->code == OP_round_rows && !is_repeated_inside(&s, op)))
			add_readers(&s, op);
	}
	out->cluster_of = ARENA_ARRAY(p->arena, size_t, out->n_ops + 1);
	out->role_of = ARENA_ARRAY(p->arena, enum member_role, out->n_ops + 1);
	out->in_memory = ARENA_ARRAY(p->arena, bool, out->n_ops + 1);
	if (arena_failed(p->arena))
		return false;
	form_roots(&s);
	form_rest(&s);
	take_all_views(&s);
	find_memory(&s);
	link_members(&s);
	return !s.failed && !arena_failed(p->arena);
}
