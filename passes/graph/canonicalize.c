/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonicalize: brings equal computations to one canonical form.
 *
 * Requires   nothing.
 * Ensures    no rewrite rule (rules/) matches any more: multiplications by a constant are `scale`, at most one in
 *            a chain; transposed operands of matmul are flags; a bias added to a linear is its operand;
 *            activations, norms and softmax are single ops in whatever form they were written; a transposed weight
 *            is a weight of its own; select_rows is as close to the inputs as possible; there are no dead ops and no
 *            two equal pure ops in a region (the builder folds and numbers values).
 * Example    %s = div %x, %c8   %t = scale %s {f=2.0}
 *        ->  %t = scale %x {f=0.25}
 * Skips      matches that fail the conditions of their rule; select_rows over a value with other users, which would
 *            be computed twice.
 *
 * Rules, select_rows and transposed weights share one fixpoint, since each enables the others: a rule leaves a value
 * with one use, over which select_rows moves, and the ops that it rebuilds match rules again. select_rows moves only
 * in iterations in which no rule applied: inside a norm that is still a pattern of ops it would break the pattern.
 */
#include "ir/core/axes.h"
#include "passes/graph/rule.h"
#include "passes/graph/concat_weights.h"

/* ---- select_rows moves toward the inputs ---- */

/*
 * select_rows(f(x), at) = f(select_rows(x, at)) when row [b, s] of f(x) depends only on row [b, s] of x; then only the
 * taken rows are computed. The same recursion serves the backward walk (marks needed values) and the forward walk
 * (builds); both must take the same branches. Single uses make the visited ops a tree; DEPTH_MAX bounds it.
 */

#define DEPTH_MAX    64
#define OPERANDS_MAX IR_AXES_OPERANDS_MAX

struct row_taker {
	struct rebuild *r;
	const struct ir_op *take;
	bool building; /* forward walk; else the backward walk */
	size_t moved;
};

/*
 * op is mask_rows x, len and the taken row len - 1, the last one that is not masked. Then it is mask_rows of the taken
 * row alone by the same len, also where no row is real: row 0 is taken and masked.
 */
static bool takes_last_real_row(const struct row_taker *t, const struct ir_op *op)
{
	const struct ir_func *f = t->r->f;
	const struct ir_op *at = ir_def_as(f, t->take->operands[OPERAND(select_rows, at)], OP_sub);
	const struct ir_op *one = at != NULL ? ir_def_as(f, at->operands[1], OP_full) : NULL;
	return op->code == OP_mask_rows && one != NULL &&
	       ((const struct attrs_full *)one->attrs)->value == 1.0 &&
	       ir_same_value(at->operands[0], op->operands[OPERAND(mask_rows, len)]);
}

/* select_rows may move over op, which defines v: op works row by row and is valid without the row axis
 * (WILDCARD). Not into or out of the region of another value, where it might be computed more often. from[i] >
 * 0: operand i has the rows of the result. quantize_rows may have other users: every linear quantizes its rows
 * itself (pass group), so nothing is computed twice. */
static bool can_move(const struct row_taker *t, struct ir_value v, const struct ir_op *op, int *from)
{
	const struct rebuild *r = t->r;
	return op != NULL && op->n_operands > 0 && op->n_operands <= OPERANDS_MAX &&
	       (rebuild_has_one_use(r, v) || op->code == OP_quantize_rows) &&
	       (ir_axis_dependence(r->f, op, 1, from) == IR_AXIS_WILDCARD || takes_last_real_row(t, op)) &&
	       ir_value_info(r->f, v)->region == ir_value_info(r->f, t->take->results[0])->region;
}

/* Dims of v without axis 1, imported into the new module. Returns their number. */
static int dims_without_rows(const struct row_taker *t, struct ir_value v, const struct ir_dim **dims)
{
	const struct ir_type *type = ir_type_of(t->r->f, v);
	int n = 0;
	for (int i = 0; i < type->rank; i++)
		if (i != 1)
			dims[n++] = ir_import_dim(t->r->out, type->dims[i]);
	return n;
}

/* op defines a value that is equal in all rows: a constant, or a broadcast that adds both axis 0 and the row axis 1.
 * If it added axis 0 alone, axis 1 would be an axis of the operand. */
static bool is_uniform(const struct row_taker *t, const struct ir_op *op)
{
	if (op == NULL)
		return false;
	if (op->code == OP_full)
		return true;
	return op->code == OP_broadcast &&
	       ir_type_of(t->r->f, op->operands[0])->rank + 2 <= ir_type_of(t->r->f, op->results[0])->rank;
}

/* A value that is equal in all rows, without the row axis. The backward walk marks the operand and returns no
 * value. */
static struct ir_value build_uniform(struct row_taker *t, struct ir_value v, const struct ir_op *op)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank = dims_without_rows(t, v, dims);

	if (op->code == OP_full) {
		const struct attrs_full *a = op->attrs;
		return t->building ? irb_full_of(t->r->b, a->value, a->dtype, rank, dims) : IR_NO_VALUE;
	}
	if (t->building)
		return irb_broadcast_to(t->r->b, rebuild_get(t->r, op->operands[0]), rank, dims);
	rebuild_need(t->r, op->operands[0]);
	return IR_NO_VALUE;
}

/* mask_rows of one row of each sequence, x [B, ..]. The op masks along axis 1, so x gets such an axis of size
 * 1. */
static struct ir_value build_mask(struct row_taker *t, struct ir_value v, struct ir_value x,
                                  struct ir_value len)
{
	const struct ir_dim *dims[IR_RANK_MAX], *rows[IR_RANK_MAX];
	struct ir_builder *b = t->r->b;
	int rank = dims_without_rows(t, v, dims);
	rows[0] = dims[0];
	rows[1] = ir_dim_const(t->r->out->dims, 1);
	for (int i = 1; i < rank; i++)
		rows[i + 1] = dims[i];
	x = irb_mask_rows(b, irb_reshape_to(b, x, rank + 1, rows), len, NULL);
	return irb_reshape_to(b, x, rank, dims);
}

/* Ends the recursion of push_take: selects rows of v itself, or in the backward walk marks v and the row numbers
 * as needed. */
static struct ir_value take_here(struct row_taker *t, struct ir_value v)
{
	if (t->building)
		return irb_select_rows(t->r->b, rebuild_get(t->r, v), rebuild_get(t->r, t->take->operands[1]),
		                       NULL);
	rebuild_need(t->r, v);
	rebuild_need(t->r, t->take->operands[1]);
	return IR_NO_VALUE;
}

/* Builds the taken rows of v, moving over ops as far as possible. The backward walk marks the values that this
 * reads and returns no value. */
static struct ir_value push_take(struct row_taker *t, struct ir_value v, int depth)
{
	const struct ir_op *op = ir_def(t->r->f, v);
	struct ir_value operands[OPERANDS_MAX];
	int from[OPERANDS_MAX];

	if (is_uniform(t, op))
		return build_uniform(t, v, op);
	if (depth >= DEPTH_MAX || !can_move(t, v, op, from))
		return take_here(t, v);
	t->moved++;
	for (size_t i = 0; i < op->n_operands; i++) {
		operands[i] = IR_NO_VALUE;
		if (op->operands[i].id == 0)
			continue;
		if (from[i] > 0)
			operands[i] = push_take(t, op->operands[i], depth + 1);
		else if (t->building)
			operands[i] = rebuild_get(t->r, op->operands[i]);
		else
			rebuild_need(t->r, op->operands[i]);
	}
	if (!t->building)
		return IR_NO_VALUE;
	irb_set_loc(t->r->b, op->loc);
	struct ir_value new_value = op->code == OP_mask_rows
	                                    ? build_mask(t, v, operands[0], operands[1])
	                                    : irb_op1(t->r->b, op->code, operands, op->n_operands, op->attrs);
	irb_name(t->r->b, new_value, ir_value_info(t->r->f, v)->name);
	return new_value;
}

/* select_rows can move over at least one op, or reads a value that is equal in all rows. */
static bool select_rows_match(struct rebuild *r, const struct ir_op *op)
{
	struct row_taker t = {.r = r, .take = op};
	const struct ir_op *def = ir_def(r->f, op->operands[0]);
	int from[OPERANDS_MAX];
	if (!is_uniform(&t, def) && !can_move(&t, op->operands[0], def, from))
		return false;
	push_take(&t, op->operands[0], 0);
	return true;
}

static void select_rows_emit(struct rebuild *r, const struct ir_op *op)
{
	struct row_taker t = {.r = r, .take = op, .building = true};
	rebuild_set(r, op->results[0], push_take(&t, op->operands[0], 0));
	pass_count(r->p, "select_rows moved", (int64_t)t.moved);
	pass_remark(r->p, op->loc, "select_rows moved over %zu ops", t.moved);
}

/* ---- transposed weights ---- */

/*
 * transpose(@w) of the last two axes becomes the weight @w.transposed with the expression transpose(E), so packing
 * performs the transpose, not the run time. Not when another op reads @w untransposed: both would be stored.
 */

static bool swaps_last_two_axes(const struct ir_op *op)
{
	return ir_is_matrix_transpose(&((const struct attrs_transpose *)op->attrs)->perm);
}

static bool reads_weight(const struct ir_func *f, const struct ir_op *op, const struct ir_weight *w)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (ir_weight_of(f, op->operands[i]) == w)
			return true;
	return false;
}

/* Some op reads w that is no transpose of its last two axes. */
static bool has_untransposed_reader(const struct ir_module *m, const struct ir_weight *w)
{
	for (size_t i = 0; i < m->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			if (reads_weight(m->funcs.items[i], it.op, w) &&
			    (it.op->code != OP_transpose || !swaps_last_two_axes(it.op)))
				return true;
	return false;
}

/* Matches a transpose of a weight that no op reads untransposed. The weight must have an expression that can
 * still be wrapped, in row-major order. The new reference has the same indices, which are marked as needed. */
static bool transpose_weight_match(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *def = ir_def_as(r->f, op->operands[0], OP_weight);
	if (def == NULL || !swaps_last_two_axes(op))
		return false;
	const struct ir_weight *w = ((const struct attrs_weight *)def->attrs)->weight;
	if (w->init == NULL || w->init->depth >= WEXPR_DEPTH_MAX || w->encoding != ENC_ROW ||
	    has_untransposed_reader(r->in, w))
		return false;
	for (size_t i = 0; i < def->n_operands; i++)
		rebuild_need(r, def->operands[i]);
	return true;
}

/* Adds the transposed weight to r->out. The warning appears once, when the name is new. NULL: memory or names
 * ran out. */
static const struct ir_weight *transposed_weight(struct rebuild *r, const struct ir_weight *w)
{
	struct ir_weight t = *w;
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank = w->type->rank;
	for (int i = 0; i < rank; i++)
		dims[i] = ir_import_dim(r->out, w->type->dims[i < rank - 2 ? i : 2 * rank - 3 - i]);
	t.name = arena_printf(&r->out->arena, "%s.transposed", w->name);
	t.type = ir_type_tensor(r->out->types, w->type->dtype, rank, dims);
	t.init = wexpr_transpose(&r->out->arena, w->init);
	/* Quantization blocks run along rows, which become columns: fall back to plain storage. */
	t.format = ir_format_is_quantized(w->format) ? FORMAT_PLAIN : w->format;
	if (t.format != w->format && ir_find_weight(r->out, t.name) == NULL)
		diag_warning(r->p->cx, w->loc.at, DIAG_UNSUPPORTED,
		             "the weight '%s' of %s becomes f32: it is multiplied from the other side",
		             w->name, ir_format(w->format)->name);
	return t.type != NULL && t.init != NULL ? add_weight_renamed(r->p->arena, r->in, r->out, &t) : NULL;
}

/* Replaces the transpose by a reference to the transposed weight, at the indices of the reference that it read. */
static void transpose_weight_emit(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *def = ir_def_as(r->f, op->operands[0], OP_weight);
	const struct ir_weight *w = transposed_weight(r, ir_weight_of(r->f, op->operands[0]));
	struct ir_value index[IR_RANK_MAX];
	for (size_t i = 0; i < def->n_operands && i < IR_RANK_MAX; i++)
		index[i] = rebuild_get(r, def->operands[i]);
	if (w == NULL)
		return;
	rebuild_set(r, op->results[0], irb_weight_ref(r->b, w, index, def->n_operands));
	pass_count(r->p, "weights transposed", 1);
}

/* ---- the pass ---- */

/* Bound of the fixpoint iteration; every iteration removes at least one op of each match, so fewer suffice. */
#define ITERATIONS_MAX 32

struct canonicalizer {
	struct rewriter rules;
	bool selects_rows; /* in this iteration: the rules have converged */
};

/* A rule first; else a transposed weight, or (when the rules have converged) a select_rows that can move. Each
 * match consumes a unit of fuel and gets the next number, by which a bisection names it. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct canonicalizer *c = r->rewrite->user;
	struct rewriter *w = &c->rules;
	r->number = 0;
	if (rewriter_match(w, r, op))
		return true;
	bool transposes = op->code == OP_transpose && w->fuel > 0 && transpose_weight_match(r, op);
	bool takes = op->code == OP_select_rows && w->fuel > 0 && c->selects_rows;
	if (!transposes && !(takes && select_rows_match(r, op)))
		return false;
	w->fuel--;
	r->number = ++w->matched;
	return true;
}

/* Emits what match() has found by op->code: a transposed weight or a moved select_rows. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct canonicalizer *c = r->rewrite->user;
	if (rewriter_emit(&c->rules, r, op))
		return;
	const char *what = op->code == OP_transpose ? "a transposed weight" : "select_rows moved";
	pass_applied(r->p, r->replaced[op->results[0].id], what, op->loc);
	if (op->code == OP_transpose)
		transpose_weight_emit(r, op);
	else
		select_rows_emit(r, op);
}

/*
 * Iterates to a fixpoint: a rewrite may enable others (a folded operand, a value that is left with one use). The
 * first iteration also folds constants, which the parser leaves as written. The last copy drops dead ops.
 */
static enum tfmc_status rewrite_all(struct pass_context *p, const struct rule_set *set,
                                    const struct ir_module *in, struct ir_module *out)
{
	struct canonicalizer c = {
	        .rules = {.set = set,
	                  .fuel = p->step->settings[SETTING_canonicalize_fuel],
	                  .nonempty = p->step->settings[SETTING_canonicalize_nonempty] != 0}};
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &c, .is_numbered = true};
	struct ir_module *last = NULL;
	int64_t changes = 1;
	enum tfmc_status st = TFMC_OK;

	/* Ends after an iteration with select_rows that changes nothing. */
	for (int iteration = 0;
	     iteration < ITERATIONS_MAX && (changes > 0 || !c.selects_rows) && st == TFMC_OK; iteration++) {
		struct ir_module *next = ir_module_create_like(in);
		c.selects_rows = changes == 0;
		/* The rewriter keeps the matches of a function, and one of the next module may have its address. */
		c.rules.f = NULL;
		if (next == NULL)
			st = TFMC_NO_MEMORY;
		else
			st = rebuild_module(p, last != NULL ? last : in, next, &rewrite, &changes);
		enum tfmc_status rules = rewriter_status(&c.rules, p);
		st = rules != TFMC_OK ? rules : st;
		pass_count(p, "rewrites", changes);
		ir_module_destroy(last);
		last = next;
	}
	if (st == TFMC_OK)
		st = rebuild_module(p, last, out, &(const struct rewrite){.match = NULL}, NULL);
	ir_module_destroy(last);
	return st;
}

/* The rules are parsed anew in each run, since options may add some and disable others. */
enum tfmc_status pass_canonicalize(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct rule_set set;
	rule_set_init(&set);
	enum tfmc_status st = rule_set_load(&set, p->cx, p->options);
	if (st == TFMC_OK)
		st = rewrite_all(p, &set, in, out);
	rule_set_destroy(&set);
	return st;
}
