/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group: fuses ops into kernels, every op into exactly one.
 *
 * Requires   encode (linears with packed weights have their own kind of kernel).
 * Ensures    outside groups there are only views, weights and constants that views read, state_read, repeat and
 *            terminators. A group has one last op; a linear whose column ranges have different uses (q, k, v) has
 *            one for each. All operands of a group can be addressed by strides; interior values have no reader
 *            outside. A carry, its initial value and the yielded value can share one buffer; returned values have
 *            no other reader. Copies are inserted as groups where that needs them. A loop-invariant group runs
 *            before its repeat.
 * Example    %h = linear %x, @up.w  %a = relu %h
 *        ->  %a = group linear { root %h = linear %x, @up.w   post %a = relu %h   yield %a }
 * Skips      fusion that would compute a value twice: an op with readers in two groups ends its own group.
 *            Exceptions are constants, the indices of a gather, quantize_rows before quantized or bf16 weights and,
 *            on devices, norms before linears.
 *
 * A cluster (fusion.h) is the set of ops that becomes one group. g->map has the new value of each old one and
 * IR_NO_VALUE for those whose group is not emitted yet.
 */
#include "passes/group/fusion.h"

#include "ir/core/view.h"

struct grouper {
	struct pass_context *p;
	const struct ir_module *in;
	struct ir_module *out;
	const struct ir_func *f;
	struct ir_builder *b;
	struct fusion_plan plan;
	struct ir_value *map;    /* [f->n_values] */
	struct ir_value *inside; /* [f->n_values] clones inside the open group */
	size_t *stamp;           /* [f->n_values] number of the group in which `inside` was set */
	size_t n_groups;
	int64_t copies, hoisted;
};

/* ---- groups ---- */

/* Operand i of a member must be cloned into its group: a constant, or a rounding of its rows. */
static bool belongs_inside(const struct grouper *g, const struct ir_op *op, size_t i, const struct ir_op *def)
{
	return rounds_inside_linear(g->p, g->f, op, def) ||
	       (fusion_is_constant(def) && fusion_constant_in_place(g->f, op, i));
}

/* Returns the clone of op inside the open group; clones it at its first use there (g->stamp has the number of
 * the group) and increments *position. Outside of the group the old value stays. */
static struct ir_value clone_inside(struct grouper *g, const struct ir_op *op, int64_t *position)
{
	struct ir_value old = op->results[0], outside = g->map[old.id];
	if (g->stamp[old.id] != g->n_groups) {
		irb_clone(g->b, g->f, op, g->map);
		g->inside[old.id] = g->map[old.id];
		g->stamp[old.id] = g->n_groups;
		g->map[old.id] = outside;
		++*position;
	}
	return g->inside[old.id];
}

/* Clones a member and the operands that belong inside; the map has those for this op only. They are restored
 * backward: an operand that occurs twice was saved last with its clone. Returns the position of op in the group. */
static int64_t clone_member(struct grouper *g, const struct ir_op *op, int64_t position)
{
	struct ir_value saved[BUILD_LIST_MAX];
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = op->operands[i];
		const struct ir_op *def = ir_def(g->f, v);
		saved[i] = g->map[v.id];
		if (def != NULL && belongs_inside(g, op, i, def))
			g->map[v.id] = clone_inside(g, def, &position);
	}
	irb_clone(g->b, g->f, op, g->map);
	for (size_t i = op->n_operands; i-- > 0;)
		g->map[op->operands[i].id] = saved[i];
	return position;
}

static void emit_op(struct grouper *g, const struct ir_op *op);

/*
 * A linear with column ranges is emitted at its root; constants, weights and views that come later are emitted
 * before it.
 */
static void emit_before_root(struct grouper *g, struct ir_value v)
{
	const struct ir_op *op = v.id == 0 || g->map[v.id].id != 0 ? NULL : ir_def(g->f, v);
	if (op == NULL || fusion_cluster_of(&g->plan, op) != NULL)
		return;
	for (size_t i = 0; i < op->n_operands; i++)
		emit_before_root(g, op->operands[i]);
	emit_op(g, op);
}

static void emit_operands(struct grouper *g, size_t number)
{
	const struct fusion_plan *plan = &g->plan;
	for (size_t i = plan->first_member[number - 1]; i < plan->n_ops; i = plan->next_member[i])
		for (size_t k = 0; k < plan->ops[i]->n_operands; k++)
			emit_before_root(g, plan->ops[i]->operands[k]);
}

/* Lists the results of the cluster in order; returns their number. */
static size_t list_results(const struct cluster *c, struct ir_value *out)
{
	const struct ir_op *const *outputs = c->n_outputs > 0 ? c->outputs : &c->last;
	size_t n = 0;
	for (size_t i = 0; i < (c->n_outputs > 0 ? c->n_outputs : 1); i++)
		for (size_t k = 0; k < outputs[i]->n_results; k++)
			out[n++] = outputs[i]->results[k];
	return n;
}

/* Emits one op as a group of kind loops; its operands have been emitted. */
static void emit_alone(struct grouper *g, const struct ir_op *op)
{
	const struct attrs_group attrs = {.kind = GROUP_loops};
	struct ir_value old = op->results[0], inner;

	irb_group_begin(g->b);
	g->n_groups++;
	irb_clone(g->b, g->f, op, g->map);
	inner = g->map[old.id];
	irb_group_end(g->b, &attrs, &inner, 1, &g->map[old.id]);
	irb_name(g->b, g->map[old.id], ir_value_info(g->f, old)->name);
}

/* A group that copies v: a reshape to the same shape. */
static struct ir_value emit_copy(struct grouper *g, struct ir_value v, struct ir_loc loc)
{
	const struct attrs_group attrs = {.kind = GROUP_loops};
	const struct ir_type *t = irb_type(g->b, v);
	struct ir_value result;

	if (irb_failed(g->b) || t == NULL)
		return IR_NO_VALUE;
	irb_set_loc(g->b, loc);
	irb_group_begin(g->b);
	g->n_groups++;
	g->copies++;
	struct ir_value copy = irb_reshape_to(g->b, v, t->rank, t->dims);
	irb_group_end(g->b, &attrs, &copy, 1, &result);
	return result;
}

/*
 * Emits the members of a cluster as one group, and maps its results. The values that an exchange sends are copied
 * where they are a part of an array, since the table of an application takes whole arrays.
 */
static void emit_cluster(struct grouper *g, const struct cluster *c)
{
	const struct fusion_plan *plan = &g->plan;
	size_t number = plan->cluster_of[fusion_op_index(plan, c->root)];
	struct attrs_group attrs = {.kind = c->kind};
	struct ir_value leaving[2 * RANGES_MAX], yields[2 * RANGES_MAX], results[2 * RANGES_MAX];
	size_t n = list_results(c, leaving);
	int64_t position = 0;
	struct ir_value *sent = c->kind == GROUP_exchange ? &g->map[c->root->operands[0].id] : NULL,
	                whole = {0};

	if (c->n_outputs > 0)
		emit_operands(g, number);
	if (sent != NULL) {
		whole = *sent;
		if (!ir_is_one_array(irb_func(g->b), whole))
			*sent = emit_copy(g, whole, c->root->loc);
	}

	irb_set_loc(g->b, c->root->loc);
	irb_group_begin(g->b);
	g->n_groups++;
	for (size_t i = plan->first_member[number - 1]; i < plan->n_ops; i = plan->next_member[i]) {
		position = clone_member(g, plan->ops[i], position);
		if (plan->ops[i] == c->root)
			attrs.root = position;
		position++;
	}
	for (size_t i = 0; i < n; i++)
		yields[i] = g->map[leaving[i].id];
	irb_set_loc(g->b, c->root->loc);
	irb_group_end(g->b, &attrs, yields, n, results);
	for (size_t i = 0; i < n; i++) {
		g->map[leaving[i].id] = results[i];
		irb_name(g->b, results[i], ir_value_info(g->f, leaving[i])->name);
	}
	if (sent != NULL)
		*sent = whole;
}

/* ---- copies for carries and results ---- */

/*
 * A carry has one buffer, shared by its initial value, the argument of the body, the yielded value and the result;
 * the backend relies on that and copies nothing. Copies are inserted here where it would not hold.
 */

/* The new value of `old` is the result of a group in a buffer of its own, not in a state. */
static bool has_own_buffer(const struct grouper *g, struct ir_value old)
{
	const struct ir_func *f = irb_func(g->b);
	struct ir_value new_value = g->map[old.id];
	const struct ir_op *op = ir_def(f, new_value);
	return op != NULL && op->code == OP_group && !ir_is_state_slice(f, new_value);
}

/* out[i]: initial value of carry i, the result of a group in the same region without other use, since the body
 * writes over it; a copy where it is not. */
static void build_carry_inits(struct grouper *g, const struct ir_op *op, struct ir_value *out)
{
	const struct ir_region *here = op->n_results > 0 ? ir_value_info(g->f, op->results[0])->region : NULL;
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = op->operands[i];
		bool direct = has_own_buffer(g, v) && g->plan.uses[v.id] == 1 &&
		              ir_value_info(g->f, v)->region == here;
		out[i] =
		        direct || !ir_is_tensor(g->f, v) ? g->map[v.id] : emit_copy(g, g->map[v.id], op->loc);
	}
}

/* ---- readers of the old carry ---- */

struct carry_readers {
	const struct grouper *g;
	struct ir_value carry, yielded;
	size_t at;  /* position in the body of the op being visited */
	bool reads; /* it reads the old carry at other elements than the one it writes */
};

/* Position in the body at which op, or the group that contains it, is executed. */
static size_t execution_position(const struct carry_readers *s, const struct ir_op *op,
                                 const struct ir_region *body)
{
	const struct cluster *c = op->n_results > 0 ? fusion_cluster_of(&s->g->plan, op) : NULL;
	size_t from =
	        c != NULL && c->n_outputs > 0 ? 0 : s->at; /* column ranges are computed at their root */
	for (size_t i = from; c != NULL && i < body->n_ops; i++)
		if (body->ops[i] == c->emit_at)
			return i;
	return s->at;
}

/*
 * The group of op computes each element of the yielded value from the same element of the carry: it is
 * elementwise, or op is in the elementwise epilogue of a linear.
 */
static bool is_elementwise_group(const struct carry_readers *s, const struct ir_op *op)
{
	const struct fusion_plan *plan = &s->g->plan;
	const struct cluster *c = fusion_cluster_of(plan, op);
	bool is_epilogue = c != NULL && c->kind == GROUP_linear &&
	                   plan->role_of[fusion_op_index(plan, op)] == MEMBER_POST;
	if (c == NULL || (c->kind != GROUP_loops && !is_epilogue) ||
	    !ir_same_value(c->last->results[0], s->yielded))
		return false;
	size_t number = plan->cluster_of[fusion_op_index(plan, op)];
	for (size_t i = plan->first_member[number - 1]; i < plan->n_ops; i = plan->next_member[i])
		if (!ir_op_has(plan->ops[i]->code, TRAIT_ELEMENTWISE) &&
		    (!is_epilogue || plan->role_of[i] == MEMBER_POST))
			return false;
	return true;
}

/*
 * The value that op reads in memory as operand i: looks through a rounding or norm that is computed inside its
 * kernel.
 */
static struct ir_value read_in_memory(const struct carry_readers *s, const struct ir_op *op, size_t i)
{
	const struct ir_op *def = ir_def(s->g->f, op->operands[i]);
	bool belongs_inside = def != NULL && (def->code == OP_quantize_rows || ir_is_norm(def->code)) &&
	                      fusion_cluster_of(&s->g->plan, def) == NULL;
	return belongs_inside ? read_in_memory(s, def, 0) : op->operands[i];
}

/* Sets s->reads if op reads the old carry and its group does not work elementwise in place. */
static void visit_op(struct carry_readers *s, const struct ir_op *op)
{
	if (ir_op_has(op->code, TRAIT_VIEW) && fusion_cluster_of(&s->g->plan, op) == NULL)
		return;
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = read_in_memory(s, op, i);
		if (v.id == 0 || !ir_same_value(ir_view_base(s->g->f, v), s->carry))
			continue;
		bool same_element = ir_same_value(v, s->carry) &&
		                    ir_type_of(s->g->f, v) == ir_type_of(s->g->f, s->yielded);
		bool in_place = same_element && op->n_results > 0 && op->region == NULL &&
		                is_elementwise_group(s, op);
		s->reads = s->reads || !in_place;
	}
}

/* Yielded value i may be written over the old carry: all readers of that have been executed before, in another
 * group. Positions count from 1, so that 0 is none. */
static bool may_overwrite(struct grouper *g, const struct ir_op *op, size_t i)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	struct carry_readers s = {.g = g, .carry = body->args[i + 1], .yielded = yield->operands[i]};
	size_t written = 0, last = 0;

	for (size_t k = 0; k + 1 < body->n_ops; k++) {
		const struct ir_op *at = body->ops[k];
		s.at = k;
		s.reads = false;
		visit_op(&s, at);
		if (at->region != NULL)
			for (struct ir_iter it = ir_iter_begin(at->region); it.op != NULL; ir_iter_next(&it))
				visit_op(&s, it.op);
		size_t runs = s.reads ? execution_position(&s, at, body) + 1 : 0;
		last = runs > last ? runs : last;
		for (size_t n = 0; n < at->n_results; n++)
			if (ir_same_value(at->results[n], s.yielded))
				written = execution_position(&s, at, body) + 1;
	}
	for (size_t k = 0; k < yield->n_operands; k++)
		if (k != i && ir_same_value(ir_view_base(g->f, yield->operands[k]), s.carry))
			return false;
	return written > last;
}

/* ---- initial and yielded values ---- */

static bool yielded_once(const struct ir_op *yield, struct ir_value v)
{
	size_t n = 0;
	for (size_t i = 0; i < yield->n_operands; i++)
		n += ir_same_value(yield->operands[i], v);
	return n == 1;
}

/* v is a carry argument of the body of the repeat. */
static bool is_carry(const struct ir_op *op, struct ir_value v)
{
	for (size_t i = 1; i < op->region->n_args; i++)
		if (ir_same_value(op->region->args[i], v))
			return true;
	return false;
}

/* Yielded value i needs no copy: it can be written into the buffer of its carry, or is there already. */
static bool direct_yield(struct grouper *g, const struct ir_op *op, size_t i)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	struct ir_value v = yield->operands[i];
	if (!ir_is_tensor(g->f, v) || ir_same_value(v, op->region->args[i + 1]))
		return true;
	return has_own_buffer(g, v) && ir_value_info(g->f, v)->region == op->region &&
	       yielded_once(yield, v) && !is_carry(op, ir_view_base(g->f, v)) && may_overwrite(g, op, i);
}

/*
 * The values that the new body yields. A value that cannot be written over its carry is copied at the end of the
 * body. A value that is itself stored in a carry is copied to a temporary first (a parallel copy: an earlier copy
 * may overwrite it).
 */
static void build_yields(struct grouper *g, const struct ir_op *op, struct ir_value *out)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	bool *direct = ARENA_ARRAY(g->p->arena, bool, op->n_operands + 1);

	for (size_t i = 0; i < yield->n_operands; i++)
		out[i] = g->map[yield->operands[i].id];
	for (size_t i = 0; direct != NULL && i < yield->n_operands; i++) {
		direct[i] = direct_yield(g, op, i);
		if (!direct[i] && is_carry(op, ir_view_base(g->f, yield->operands[i])))
			out[i] = emit_copy(g, out[i], op->loc);
	}
	for (size_t i = 0; direct != NULL && i < yield->n_operands; i++)
		if (!direct[i])
			out[i] = emit_copy(g, out[i], op->loc);
}

/* ---- results of the function ---- */

/* out[i]: returned value i, the result of a group without other readers, which writes it to the buffer of the
 * caller; a copy where it is not. */
static void build_results(struct grouper *g, const struct ir_op *ret, struct ir_value *out)
{
	for (size_t i = 0; i < ret->n_operands; i++) {
		struct ir_value v = ret->operands[i];
		bool direct = has_own_buffer(g, v) && g->plan.uses[v.id] == 1 &&
		              ir_value_info(g->f, v)->region == g->f->body;
		out[i] = direct || !ir_is_tensor(g->f, v) ? g->map[v.id]
		                                          : emit_copy(g, g->map[v.id], ret->loc);
	}
}

/* ---- ops outside groups ---- */

/* Emits weight or state_read; an index that is a constant is cloned next to it, since constants are emitted only
 * where a reader needs them. */
static void emit_with_indices(struct grouper *g, const struct ir_op *op)
{
	struct ir_value saved[BUILD_LIST_MAX];
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_op *def = ir_def(g->f, op->operands[i]);
		saved[i] = g->map[op->operands[i].id];
		if (fusion_is_constant(def))
			irb_clone(g->b, g->f, def, g->map);
	}
	irb_clone(g->b, g->f, op, g->map);
	/* backward: an operand that occurs twice was saved last with its clone */
	for (size_t i = op->n_operands; i-- > 0;)
		if (fusion_is_constant(ir_def(g->f, op->operands[i])))
			g->map[op->operands[i].id] = saved[i];
}

/* Emits a view, or a group that copies if it cannot be expressed by strides. */
static void emit_view(struct grouper *g, const struct ir_op *op)
{
	struct ir_value new_value;
	struct ir_view view;

	irb_clone(g->b, g->f, op, g->map);
	new_value = g->map[op->results[0].id];
	if (irb_failed(g->b) || ir_view_resolve(g->out, irb_func(g->b), new_value, &view))
		return;
	pass_missed(g->p, op->loc, "%s becomes a copy: it cannot be expressed by strides",
	            ir_op_desc(op->code)->name);
	g->copies++;
	emit_alone(g, op);
}

/* ---- loop-invariant code motion ---- */

/* v is available before the repeat that is emitted next, or is a view or constant of such values. */
static bool is_available(const struct grouper *g, struct ir_value v)
{
	const struct ir_op *op = v.id == 0 ? NULL : ir_def(g->f, v);
	if (v.id == 0 || g->map[v.id].id != 0)
		return true;
	if (op == NULL || !(ir_op_has(op->code, TRAIT_VIEW) || ir_op_has(op->code, TRAIT_CONST)))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!is_available(g, op->operands[i]))
			return false;
	return true;
}

/* All operands of the cluster are available before the repeat. */
static bool is_loop_invariant(const struct grouper *g, const struct cluster *c)
{
	const struct fusion_plan *plan = &g->plan;
	size_t first = plan->first_member[plan->cluster_of[fusion_op_index(plan, c->root)] - 1];
	for (size_t i = first; i < plan->n_ops; i = plan->next_member[i])
		for (size_t k = 0; k < plan->ops[i]->n_operands; k++) {
			const struct ir_op *def = ir_def(g->f, plan->ops[i]->operands[k]);
			bool is_member = def != NULL && fusion_cluster_of(plan, def) == c;
			if (!is_member && !is_available(g, plan->ops[i]->operands[k]))
				return false;
		}
	return true;
}

/* A result of the cluster is yielded or carried: it shares the buffer of a carry, which every iteration overwrites,
 * so it is computed in every iteration. */
static bool is_carried(const struct grouper *g, const struct ir_region *r, const struct cluster *c)
{
	for (struct ir_iter it = ir_iter_begin(r); it.op != NULL; ir_iter_next(&it))
		for (size_t i = 0; i < it.op->n_operands; i++) {
			const struct ir_op *def = ir_def(g->f, ir_view_base(g->f, it.op->operands[i]));
			bool is_passed_on = it.op->region != NULL || ir_op_has(it.op->code, TRAIT_TERMINATOR);
			if (is_passed_on && def != NULL && fusion_cluster_of(&g->plan, def) == c)
				return true;
		}
	return false;
}

/* Emits the loop-invariant clusters of a region before its repeat. */
static void hoist_invariants(struct grouper *g, const struct ir_region *r)
{
	for (struct ir_iter it = ir_iter_begin(r); it.op != NULL; ir_iter_next(&it)) {
		const struct cluster *c = fusion_cluster_of(&g->plan, it.op);
		if (c == NULL || c->emit_at != it.op || g->map[it.op->results[0].id].id != 0 ||
		    !is_loop_invariant(g, c) || is_carried(g, r, c))
			continue;
		emit_operands(g, g->plan.cluster_of[fusion_op_index(&g->plan, it.op)]);
		emit_cluster(g, c);
		g->hoisted++;
		pass_remark(g->p, c->root->loc, "%s is loop-invariant: computed once, before the loop",
		            ir_op_desc(c->root->code)->name);
	}
}

/* Emits the repeat after its loop-invariant groups, with copies where a carry could not have one buffer. */
static void emit_repeat(struct grouper *g, struct ir_copy *c, const struct ir_op *op)
{
	struct ir_value values[BUILD_LIST_MAX], args[BUILD_LIST_MAX + 1];
	hoist_invariants(g, op->region);
	build_carry_inits(g, op, values);
	ir_copy_repeat_begin(c, op, ((const struct attrs_repeat *)op->attrs)->count, values, op->n_operands,
	                     args);
	ir_copy_region(c, op->region);
	build_yields(g, op, values);
	ir_copy_repeat_end(c, op, values, op->n_operands, args);
}

/* Emits the cluster that ends at op, or an op outside groups: views, indexed references, constants in memory. */
static void emit_op(struct grouper *g, const struct ir_op *op)
{
	irb_set_loc(g->b, op->loc);
	if (op->n_results > 0 && g->map[op->results[0].id].id != 0)
		return; /* emit_before_root */
	const struct cluster *c = fusion_cluster_of(&g->plan, op);
	if (c != NULL) {
		if (c->emit_at == op)
			emit_cluster(g, c);
		return;
	}
	if (ir_op_has(op->code, TRAIT_VIEW))
		emit_view(g, op);
	else if (op->code == OP_state_read || op->code == OP_weight)
		emit_with_indices(g, op);
	else if (g->plan.needs_memory[fusion_op_index(&g->plan, op)])
		emit_alone(g, op);
}

static bool emit_op_or_repeat(struct ir_copy *c, const struct ir_op *op)
{
	if (op->code == OP_repeat)
		emit_repeat(c->user, c, op);
	else
		emit_op(c->user, op);
	return true;
}

/* ---- functions ---- */

/* Forms the clusters of g->f and writes it with groups. The builder is literal: folding would remove the copies,
 * which are reshapes to the same shape. */
static enum tfmc_status group_func(struct grouper *g)
{
	const struct ir_func *f = g->f;
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	struct ir_value *values = ARENA_ARRAY(g->p->arena, struct ir_value, ret->n_operands + 1);

	g->map = ARENA_ARRAY(g->p->arena, struct ir_value, f->n_values);
	g->inside = ARENA_ARRAY(g->p->arena, struct ir_value, f->n_values);
	g->stamp = ARENA_ARRAY(g->p->arena, size_t, f->n_values);
	g->b = irb_begin(g->out, g->p->cx, f->name, f->loc);
	if (g->b == NULL || arena_failed(g->p->arena) || !form_clusters(g->p, g->in, f, &g->plan))
		return TFMC_NO_MEMORY;
	irb_set_literal(g->b, true);
	irb_clone_params(g->b, f, g->map);
	ir_copy_region(&(struct ir_copy){g->b, f, g->map, emit_op_or_repeat, g}, f->body);
	build_results(g, ret, values);
	irb_set_loc(g->b, ret->loc);
	return irb_finish(g->b, values, f->results, ret->n_operands, NULL);
}

/* ---- check: nothing is computed twice ---- */

static void count_ops(const struct ir_module *m, int64_t *n)
{
	for (size_t i = 0; i < m->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			n[it.op->code]++;
}

static bool costs_work(enum ir_opcode code)
{
	return ir_op_has(code, TRAIT_CONTRACT) || ir_op_has(code, TRAIT_REDUCE) ||
	       ir_op_has(code, TRAIT_ROWWISE) || ir_op_has(code, TRAIT_ELEMENTWISE) || code == OP_rope;
}

/* Norms may be, and roundings are, computed by every linear that reads them. */
static bool may_be_recomputed(enum ir_opcode code)
{
	return ir_is_norm(code) || code == OP_quantize_rows;
}

/* Every op with a cost occurs in `out` as often as in `in`, so that fusion neither repeats nor drops work; norms and
 * roundings may be repeated (may_be_recomputed). */
static enum tfmc_status check_op_counts(struct pass_context *p, const struct ir_module *in,
                                        const struct ir_module *out)
{
	int64_t before[IR_N_OPS] = {0}, after[IR_N_OPS] = {0};
	count_ops(in, before);
	count_ops(out, after);
	for (int code = 0; code < IR_N_OPS; code++)
		if (costs_work((enum ir_opcode)code) && before[code] != after[code] &&
		    (!may_be_recomputed((enum ir_opcode)code) || after[code] < before[code]))
			return pass_internal_error(p, in->funcs.items[0]->loc,
			                           "an op is in two groups, or in none");
	return TFMC_OK;
}

/* Groups all functions and checks that nothing is computed twice. */
enum tfmc_status pass_group(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	static const char *const kinds[] = {[GROUP_loops] = "loops",
	                                    [GROUP_rowwise] = "rowwise",
	                                    [GROUP_linear] = "linear",
	                                    [GROUP_attention] = "attention",
	                                    [GROUP_exchange] = "exchange"};
	struct grouper g = {.p = p, .in = in, .out = out};

	out->stage = STAGE_GROUPS;
	for (size_t i = 0; i < in->funcs.n; i++) {
		g.f = in->funcs.items[i];
		g.n_groups = 0;
		TFMC_TRY(group_func(&g));
		for (size_t k = 0; k < g.plan.clusters.n; k++)
			pass_count(p, kinds[g.plan.clusters.items[k].kind], 1);
	}
	pass_count(p, "copies", g.copies);
	pass_count(p, "hoisted", g.hoisted);
	return check_op_counts(p, in, out);
}
