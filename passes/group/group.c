/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group: every op becomes part of one kernel.
 *
 * Requires   encode (linears with packed weights are kernels of their own kind).
 * Ensures    outside groups there are only views, weights and constants that views read, state_read, repeat
 *            and terminators. A group has one last op; a linear whose columns have different uses (q, k, v) has
 *            one for each use. What a group reads can be addressed by strides; interior values have no reader
 *            outside. Carries, their first values and what bodies yield can share one buffer; returned values
 *            have no other reader. Copies that this needs are groups of their own. A group that needs nothing of
 *            the repeat it is in runs before it.
 * Example    %h = linear %x, @up.w  %a = relu %h
 *        ->  %a = group linear { root %h = linear %x, @up.w   post %a = relu %h   yield %a }
 * Refuses    computing a value twice: an op with readers in two groups ends its own group. Constants, the
 *            indices of a gather, round_rows before weights of codes and, on devices, norms before linears are the
 *            exceptions.
 */
#include "passes/group/emit.h"
#include "passes/group/parts.h"

#include "ir/core/view.h"

/* ---- groups ---- */

/* Operand i of a member is a constant, rounds rows for it, or is a norm that it repeats: cloned into its group. */
static bool is_inside(const struct grouper *g, const struct ir_op *op, size_t i, const struct ir_op *def)
{
	return group_rounds_for(g->p, g->f, op, def) ||
	       (i == 0 && g->formed.repeats_norm[formed_index(&g->formed, op)]) ||
	       (group_is_constant(def) && group_constant_inside(g->f, op, i));
}

/* The value inside the open group of such an op; cloned when it is read first. */
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

/* One member with the constants that it reads; gives its position in the group. */
static int64_t clone_member(struct grouper *g, const struct ir_op *op, int64_t position)
{
	struct ir_value saved[BUILD_LIST_MAX];
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = op->operands[i];
		const struct ir_op *def = ir_def(g->f, v);
		saved[i] = g->map[v.id];
		if (def != NULL && is_inside(g, op, i, def))
			g->map[v.id] = clone_inside(g, def, &position);
	}
	irb_clone(g->b, g->f, op, g->map);
	for (size_t i = op->n_operands; i-- > 0;)
		g->map[op->operands[i].id] = saved[i];
	return position;
}

static void emit_op(struct grouper *g, const struct ir_op *op);

/* What a linear with parts reads may be named after it: constants, weights, views of what is there. */
static void emit_early(struct grouper *g, struct ir_value v)
{
	const struct ir_op *op = v.id == 0 || g->map[v.id].id != 0 ? NULL : ir_def(g->f, v);
	if (op == NULL || formed_cluster(&g->formed, op) != NULL)
		return;
	for (size_t i = 0; i < op->n_operands; i++)
		emit_early(g, op->operands[i]);
	emit_op(g, op);
}

static void emit_reads(struct grouper *g, size_t number)
{
	const struct formed *d = &g->formed;
	for (size_t i = d->first_of[number - 1]; i < d->n_ops; i = d->next_of[i])
		for (size_t k = 0; k < d->ops[i]->n_operands; k++)
			emit_early(g, d->ops[i]->operands[k]);
}

/* The values that leave the cluster, in order; gives their number. */
static size_t list_results(const struct cluster *c, struct ir_value *out)
{
	const struct ir_op *const *ends = c->n_ends > 0 ? c->ends : &c->last;
	size_t n = 0;
	for (size_t i = 0; i < (c->n_ends > 0 ? c->n_ends : 1); i++)
		for (size_t k = 0; k < ends[i]->n_results; k++)
			out[n++] = ends[i]->results[k];
	return n;
}

static void emit_cluster(struct grouper *g, const struct cluster *c)
{
	const struct formed *d = &g->formed;
	size_t number = d->cluster_of[formed_index(d, c->root)];
	struct attrs_group attrs = {.kind = c->kind};
	struct ir_value leave[2 * PARTS_MAX], yields[2 * PARTS_MAX], results[2 * PARTS_MAX];
	size_t n = list_results(c, leave);
	int64_t position = 0;

	if (c->n_ends > 0)
		emit_reads(g, number);

	irb_set_loc(g->b, c->root->loc);
	irb_group_begin(g->b);
	g->n_groups++;
	for (size_t i = d->first_of[number - 1]; i < d->n_ops; i = d->next_of[i]) {
		position = clone_member(g, d->ops[i], position);
		if (d->ops[i] == c->root)
			attrs.root = position;
		position++;
	}
	for (size_t i = 0; i < n; i++)
		yields[i] = g->map[leave[i].id];
	irb_set_loc(g->b, c->root->loc);
	irb_group_end(g->b, &attrs, yields, n, results);
	for (size_t i = 0; i < n; i++) {
		g->map[leave[i].id] = results[i];
		irb_name(g->b, results[i], ir_value_info(g->f, leave[i])->name);
	}
}

/* One op alone in a group of kind loops: what it reads was emitted before. */
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

struct ir_value group_copy(struct grouper *g, struct ir_value v, struct ir_loc loc)
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

/* ---- ops outside groups ---- */

/* weight and state_read: their indices are the index of a repeat or constants beside them. */
static void emit_indexed(struct grouper *g, const struct ir_op *op)
{
	struct ir_value saved[BUILD_LIST_MAX];
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_op *def = ir_def(g->f, op->operands[i]);
		saved[i] = g->map[op->operands[i].id];
		if (group_is_constant(def))
			irb_clone(g->b, g->f, def, g->map);
	}
	irb_clone(g->b, g->f, op, g->map);
	for (size_t i = op->n_operands; i-- > 0;)
		if (group_is_constant(ir_def(g->f, op->operands[i])))
			g->map[op->operands[i].id] = saved[i];
}

static void emit_view(struct grouper *g, const struct ir_op *op)
{
	struct ir_value from = g->map[op->operands[0].id], now;
	struct ir_view view;

	irb_clone(g->b, g->f, op, g->map);
	now = g->map[op->results[0].id];
	if (irb_failed(g->b) || ir_view_resolve(g->out, irb_func(g->b), now, &view))
		return;
	pass_missed(g->p, op->loc, "%s becomes a copy: it cannot be expressed by strides",
	            ir_op_desc(op->code)->name);
	g->map[op->operands[0].id] = from;
	g->copies++;
	emit_alone(g, op);
}

/* ---- what is the same in every turn ---- */

/* v is there before the repeat that is emitted next, or is made of what is. */
static bool is_before(const struct grouper *g, struct ir_value v)
{
	const struct ir_op *op = v.id == 0 ? NULL : ir_def(g->f, v);
	if (v.id == 0 || g->map[v.id].id != 0)
		return true;
	if (op == NULL || !(ir_op_has(op->code, TRAIT_VIEW) || ir_op_has(op->code, TRAIT_CONST)))
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!is_before(g, op->operands[i]))
			return false;
	return true;
}

static bool reads_before(const struct grouper *g, const struct cluster *c)
{
	const struct formed *d = &g->formed;
	size_t first = d->first_of[d->cluster_of[formed_index(d, c->root)] - 1];
	for (size_t i = first; i < d->n_ops; i = d->next_of[i])
		for (size_t k = 0; k < d->ops[i]->n_operands; k++) {
			const struct ir_op *def = ir_def(g->f, d->ops[i]->operands[k]);
			bool is_member = def != NULL && formed_cluster(d, def) == c;
			if (!is_member && !is_before(g, d->ops[i]->operands[k]))
				return false;
		}
	return true;
}

/* Its memory becomes that of a carry, which every turn writes. */
static bool is_carried(const struct grouper *g, const struct ir_region *r, const struct cluster *c)
{
	for (struct ir_iter it = ir_iter_begin(r); it.op != NULL; ir_iter_next(&it))
		for (size_t i = 0; i < it.op->n_operands; i++) {
			const struct ir_op *def = ir_def(g->f, ir_view_base(g->f, it.op->operands[i]));
			bool hands_on = it.op->region != NULL || ir_op_has(it.op->code, TRAIT_TERMINATOR);
			if (hands_on && def != NULL && formed_cluster(&g->formed, def) == c)
				return true;
		}
	return false;
}

/* Kernels that need nothing of the repeat run once, before it. */
static void hoist(struct grouper *g, const struct ir_region *r)
{
	for (struct ir_iter it = ir_iter_begin(r); it.op != NULL; ir_iter_next(&it)) {
		const struct cluster *c = formed_cluster(&g->formed, it.op);
		if (c == NULL || c->at != it.op || g->map[it.op->results[0].id].id != 0 ||
		    !reads_before(g, c) || is_carried(g, r, c))
			continue;
		emit_reads(g, g->formed.cluster_of[formed_index(&g->formed, it.op)]);
		emit_cluster(g, c);
		g->hoisted++;
		pass_remark(g->p, c->root->loc, "%s is the same in every turn: computed once, before them",
		            ir_op_desc(c->root->code)->name);
	}
}

static void emit_repeat(struct grouper *g, struct ir_copy *c, const struct ir_op *op)
{
	struct ir_value values[BUILD_LIST_MAX], args[BUILD_LIST_MAX + 1];
	hoist(g, op->region);
	group_carry_inits(g, op, values);
	ir_copy_repeat_begin(c, op, ((const struct attrs_repeat *)op->attrs)->count, values, op->n_operands,
	                     args);
	ir_copy_region(c, op->region);
	group_carry_yields(g, op, values);
	ir_copy_repeat_end(c, op, values, op->n_operands, args);
}

static void emit_op(struct grouper *g, const struct ir_op *op)
{
	irb_set_loc(g->b, op->loc);
	if (op->n_results > 0 && g->map[op->results[0].id].id != 0)
		return; /* emit_early */
	const struct cluster *c = formed_cluster(&g->formed, op);
	if (c != NULL) {
		if (c->at == op)
			emit_cluster(g, c);
		return;
	}
	if (ir_op_has(op->code, TRAIT_VIEW))
		emit_view(g, op);
	else if (op->code == OP_state_read || op->code == OP_weight)
		emit_indexed(g, op);
	else if (g->formed.in_memory[formed_index(&g->formed, op)])
		emit_alone(g, op);
}

static bool copy_op(struct ir_copy *c, const struct ir_op *op)
{
	if (op->code == OP_repeat)
		emit_repeat(c->user, c, op);
	else
		emit_op(c->user, op);
	return true;
}

/* ---- functions ---- */

static enum tfmc_status group_func(struct grouper *g)
{
	const struct ir_func *f = g->f;
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	struct ir_value *values = ARENA_ARRAY(g->p->arena, struct ir_value, ret->n_operands + 1);

	g->map = ARENA_ARRAY(g->p->arena, struct ir_value, f->n_values);
	g->inside = ARENA_ARRAY(g->p->arena, struct ir_value, f->n_values);
	g->stamp = ARENA_ARRAY(g->p->arena, size_t, f->n_values);
	g->b = irb_begin(g->out, g->p->cx, f->name, f->loc);
	if (g->b == NULL || arena_failed(g->p->arena) ||
	    !group_form(g->p, g->in, f, (size_t)g->p->step->settings[0], &g->formed))
		return TFMC_NO_MEMORY;
	irb_set_literal(g->b, true);
	irb_clone_params(g->b, f, g->map);
	ir_copy_region(&(struct ir_copy){g->b, f, g->map, copy_op, g}, f->body);
	group_results(g, ret, values);
	irb_set_loc(g->b, ret->loc);
	return irb_finish(g->b, values, f->results, ret->n_operands, NULL);
}

/* ---- nothing is computed twice ---- */

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

/* Norms of rows may be computed by each linear that reads them, and rounding them is. */
static bool may_repeat(enum ir_opcode code)
{
	return ir_is_norm(code) || code == OP_round_rows;
}

/* Every other op that works is in one group: as often as before. */
static enum tfmc_status check_census(struct pass_context *p, const struct ir_module *in,
                                     const struct ir_module *out)
{
	int64_t before[IR_N_OPS] = {0}, after[IR_N_OPS] = {0};
	count_ops(in, before);
	count_ops(out, after);
	for (int code = 0; code < IR_N_OPS; code++)
		if (costs_work((enum ir_opcode)code) && before[code] != after[code] &&
		    (!may_repeat((enum ir_opcode)code) || after[code] < before[code]))
			return pass_internal(p, in->funcs.items[0]->loc,
			                     "an op is in two groups, or in none");
	return TFMC_OK;
}

enum tfmc_status pass_group(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	static const char *const kinds[] = {[GROUP_loops] = "loops",
	                                    [GROUP_rowwise] = "rowwise",
	                                    [GROUP_linear] = "linear",
	                                    [GROUP_attention] = "attention"};
	struct grouper g = {.p = p, .in = in, .out = out};

	out->stage = STAGE_GROUPS;
	for (size_t i = 0; i < in->funcs.n; i++) {
		g.f = in->funcs.items[i];
		g.n_groups = 0;
		TFMC_TRY(group_func(&g));
		for (size_t k = 0; k < g.formed.clusters.n; k++)
			pass_count(p, kinds[g.formed.clusters.items[k].kind], 1);
	}
	pass_count(p, "copies", g.copies);
	pass_count(p, "hoisted", g.hoisted);
	return check_census(p, in, out);
}
