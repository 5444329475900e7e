/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope-style: interleaved pairs become halves, by another order of the rows that make queries and keys.
 *
 * Requires   fuse-attention. Before merge-linear, which moves the rows into wider weights.
 * Ensures    a rope whose result goes into attentions only, as queries or keys, also by way of a cache, is in
 *            halves: the kernels then read both elements of a pair by vectors. Queries and keys of one
 *            attention change alike, so do all functions that touch the same cache. Norms before the rope
 *            change their gamma. Features behind the table's width stay. Counters: `ropes`, `refused`.
 * Example    %q = linear %x, @q.w  ..  %r = rope %q, @table, %at {layout=interleaved}
 *        ->  @q.w = rope_interleaved_to_halves(8, E)   %r = rope %q, @table, %at
 * Refuses    where queries or keys do not come from weights, are read by something else, or where one of both
 *            is not turned in the same way.
 */
#include <string.h>

#include "ir/core/view.h"
#include "passes/folds/feature_rows.h"
#include "passes/folds/weight_changes.h"

enum { Q, K };
#define X        0 /* of rope */
#define APPENDED 1 /* of state_append, state_write */

struct finder {
	struct weight_changes *c;
	const struct ir_func *f;
	const struct value_uses *uses;
	struct strmap *states; /* by name: unit + 1 */
};

static bool is_interleaved(const struct ir_op *op)
{
	return op != NULL && op->code == OP_rope &&
	       ((const struct attrs_rope *)op->attrs)->layout == ROPE_interleaved;
}

/* v is a view of `base` that keeps its last axis. */
static bool keeps_features(struct finder *x, struct ir_value v, struct ir_value *base)
{
	const struct ir_func *f = x->f;
	int64_t n, all;
	*base = ir_view_base(f, v);
	if (!feature_count(f, v, &n) || !feature_count(f, *base, &all) || n != all)
		return false;
	while (!ir_same(v, *base)) {
		const struct ir_op *op = ir_def(f, v);
		const struct ir_type *from = ir_type_of(f, op->operands[0]), *to = ir_type_of(f, v);
		const struct ir_int_list *perm = &((const struct attrs_transpose *)op->attrs)->perm;
		if (from->rank < 1 || from->dims[from->rank - 1] != to->dims[to->rank - 1] ||
		    (op->code == OP_transpose && perm->items[perm->n - 1] != (int64_t)perm->n - 1))
			return false;
		v = op->operands[0];
	}
	return true;
}

/* --- units ----------------------------------------------------------------------------------------------
 * Turned values are of three kinds: ropes, attentions that read them, states that keep them. The tag of a
 * unit is the number of turned features, 0: not known yet.
 */

static size_t unit_of(struct finder *x, const struct ir_op *op)
{
	struct change_unit *u = weight_changes_find(x->c, x->f, op);
	return u != NULL ? (size_t)(u - x->c->units.items) : weight_changes_unit(x->c, x->f, op);
}

static size_t state_unit(struct finder *x, const struct ir_type *state)
{
	size_t *number = strmap_get(x->states, state->state->name);
	if (number != NULL)
		return *number;
	number = ARENA_NEW(x->c->p->arena, size_t);
	if (number == NULL || !strmap_set(x->states, state->state->name, number))
		return 0;
	*number = weight_changes_unit(x->c, NULL, NULL);
	return *number;
}

static bool is_state_value(const struct ir_op *op)
{
	return op != NULL && (op->code == OP_state_append || op->code == OP_state_read);
}

/* The unit that makes v, which must be turned; false when nothing turns it. */
static bool source_unit(struct finder *x, struct ir_value v, size_t *out)
{
	struct ir_value base;
	if (!keeps_features(x, v, &base))
		return false;
	const struct ir_op *op = ir_def(x->f, base);
	if (is_interleaved(op)) {
		*out = unit_of(x, op);
		return true;
	}
	if (!is_state_value(op) || !ir_same(op->results[0], base))
		return false;
	*out = state_unit(x, ir_type_of(x->f, op->operands[0]));
	return true;
}

/* --- readers of turned values -------------------------------------------------------------------------- */

struct reader_check {
	struct finder *x;
	size_t unit;
	struct ir_value base;
};

static bool reads_turned(void *user, struct ir_value leaf, const struct value_use *use)
{
	struct reader_check *k = user;
	struct ir_value base;
	bool is_attention = use->op->code == OP_attention && use->operand <= K;
	bool is_state = (use->op->code == OP_state_append || use->op->code == OP_state_write) &&
	                use->operand == APPENDED;
	if (!keeps_features(k->x, leaf, &base) || !(is_attention || is_state))
		return false;
	size_t to = is_attention ? unit_of(k->x, use->op)
	                         : state_unit(k->x, ir_type_of(k->x->f, use->op->operands[0]));
	weight_changes_link(k->x->c, k->unit, to);
	return true;
}

static void check_readers(struct finder *x, size_t unit, struct ir_value v)
{
	struct reader_check k = {x, unit, v};
	if (!value_uses_behind_views(x->uses, v, reads_turned, &k))
		weight_changes_refuse(x->c, unit, "something else than an attention reads what is turned");
}

/* --- finding ------------------------------------------------------------------------------------------- */

static void find_rope(struct finder *x, const struct ir_op *op)
{
	size_t unit = unit_of(x, op);
	int64_t turned;
	if (!feature_count(x->f, op->operands[1], &turned))
		return;
	x->c->units.items[unit].tag = turned;
	const struct weight_change change = {.kind = CHANGE_HALVES, .rows = feature_rows_all(turned)};
	const struct value_use reader = {op, X};
	const char *why = weight_changes_trace(x->c, unit, x->f, &reader, &change, TRACE_LINEAR | TRACE_NORM);
	if (why != NULL)
		weight_changes_refuse(x->c, unit, arena_printf(x->c->p->arena, "what it turns: %s", why));
	check_readers(x, unit, op->results[0]);
}

/* Both sides of the scores must be turned. */
static void find_attention(struct finder *x, const struct ir_op *op)
{
	size_t unit = unit_of(x, op), q, k;
	x->c->units.items[unit].silent = true;
	if (!source_unit(x, op->operands[Q], &q) || !source_unit(x, op->operands[K], &k)) {
		weight_changes_refuse(x->c, unit, "only one side of the scores is turned");
		return;
	}
	weight_changes_link(x->c, unit, q);
	weight_changes_link(x->c, unit, k);
}

/* What goes into a state is turned, what comes out is read as keys. */
static void find_state(struct finder *x, const struct ir_op *op)
{
	size_t unit = state_unit(x, ir_type_of(x->f, op->operands[0])), from;
	if (op->code != OP_state_read) {
		if (source_unit(x, op->operands[APPENDED], &from))
			weight_changes_link(x->c, unit, from);
		else
			weight_changes_refuse(x->c, unit, "its cache also keeps what is not turned");
	}
	if (op->code != OP_state_write)
		check_readers(x, unit, op->results[0]);
}

static void find(void *user, const struct ir_op *op)
{
	struct finder *x = user;
	if (is_interleaved(op))
		find_rope(x, op);
	else if (op->code == OP_attention)
		find_attention(x, op);
	else if (op->code == OP_state_append || op->code == OP_state_write || op->code == OP_state_read)
		find_state(x, op);
}

/* Linked units turn the same number of features. */
static void compare_widths(struct weight_changes *c)
{
	bool moved = true;
	while (moved) {
		moved = false;
		for (size_t i = 0; i < c->links.n; i++) {
			struct change_unit *a = &c->units.items[c->links.items[i].a];
			struct change_unit *b = &c->units.items[c->links.items[i].b];
			if (a->tag != 0 && b->tag != 0 && a->tag != b->tag && a->why == NULL) {
				a->why = "queries and keys are turned in different widths";
				moved = true;
			} else if ((a->tag == 0) != (b->tag == 0)) {
				a->tag = b->tag = a->tag + b->tag;
				moved = true;
			}
		}
	}
}

/* --- rewriting ----------------------------------------------------------------------------------------- */

static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct weight_changes *c = r->rewrite->user;
	if (weight_changes_match(c, r, op))
		return true;
	if (!is_interleaved(op) || weight_changes_find(c, r->f, op)->why != NULL)
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		rebuild_need(r, op->operands[i]);
	return true;
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct weight_changes *c = r->rewrite->user;
	if (op->code == OP_weight) {
		weight_changes_emit(c, r, op);
		return;
	}
	rebuild_set(r, op->results[0],
	            irb_rope(r->b, rebuild_get(r, op->operands[0]), rebuild_get(r, op->operands[1]),
	                     rebuild_get(r, op->operands[2]), &(struct attrs_rope){.layout = ROPE_halves}));
	pass_count(r->p, "ropes", 1);
	pass_remark(r->p, op->loc, "pairs are halves by the order of the rows of %s",
	            weight_changes_names(c, weight_changes_find(c, r->f, op)));
}

enum tfmc_status pass_rope_style(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct weight_changes c;
	struct strmap states;
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &c, .is_numbered = true};
	size_t errors = p->cx->n_errors;

	strmap_init(&states, p->arena);
	TFMC_TRY(weight_changes_init(&c, p, in));
	pass_count(p, "ropes", 0);
	for (size_t i = 0; i < in->funcs.n; i++) {
		struct finder x = {&c, in->funcs.items[i], &c.uses[i], &states};
		ir_walk(x.f->body, find, &x);
	}
	compare_widths(&c);
	TFMC_TRY(weight_changes_resolve(&c));
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INTERNAL : TFMC_OK;
}
