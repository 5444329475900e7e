/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of sequences of length 0. What an attention gives for them flows on
 * through ops that keep sequences apart (axis 0), until mask_rows or an
 * attention with the same lengths makes it 0 again, or a caller could see it.
 * Invariant: a value that is not marked is the same whatever these rows hold.
 */
#include "passes/fold_bias/fold_bias.h"

#define VIEWS_MAX 16

struct flow {
	const struct module_uses *u;
	const struct ir_func *f;
	struct ir_value len;
	bool *marked; /* [n_values] */
	bool changed;
	const char *leak;
};

/* --- states ------------------------------------------------------------------------------------------- */

struct finder {
	const struct ir_func *f;
	struct ir_value len;
	const struct ir_state_decl *found;
};

static void find_write(void *user, const struct ir_op *op)
{
	struct finder *s = user;
	if (op->code == OP_state_write && ir_same(op->operands[1], s->len))
		s->found = ir_type_of(s->f, op->operands[0])->state;
}

const struct ir_state_decl *bias_lengths_beside(const struct ir_func *f, struct ir_value len)
{
	struct finder s = {.f = f, .len = len};
	ir_walk(f->body, find_write, &s);
	return s.found;
}

/* v is the content of that state. */
static bool is_read_of(const struct ir_func *f, struct ir_value v, const struct ir_state_decl *s)
{
	const struct ir_op *def = v.id == 0 ? NULL : ir_def(f, v);
	return def != NULL && def->code == OP_state_read && ir_same(def->results[0], v) &&
	       ir_type_of(f, def->operands[0])->state == s;
}

/* All readers of v are keys or values of attentions with these lengths. */
static bool only_masked_keys(const struct func_uses *u, struct ir_value v,
                             const struct ir_state_decl *lengths, int depth)
{
	size_t n;
	const struct value_use *use = uses_of(u, v, &n);
	for (size_t i = 0; i < n; i++) {
		const struct ir_op *op = use[i].op;
		bool key = op->code == OP_attention && (use[i].operand == 1 || use[i].operand == 2) &&
		           is_read_of(u->f, op->operands[4], lengths);
		bool view = ir_op_has(op->code, TRAIT_VIEW) && depth < VIEWS_MAX &&
		            only_masked_keys(u, op->results[0], lengths, depth + 1);
		if (!key && !view)
			return false;
	}
	return true;
}

bool bias_state_masked(const struct module_uses *u, const struct ir_state_decl *s,
                       const struct ir_state_decl *lengths)
{
	for (size_t i = 0; i < u->m->funcs.n; i++) {
		const struct ir_func *f = u->m->funcs.items[i];
		for (uint32_t v = 1; v < f->n_values; v++) {
			const struct ir_op *def = f->values[v].def;
			bool slice = def != NULL && f->values[v].index == 0 &&
			             (def->code == OP_state_read || def->code == OP_state_append) &&
			             ir_type_of(f, def->operands[0])->state == s;
			if (slice && !only_masked_keys(&u->funcs[i], (struct ir_value){v}, lengths, 0))
				return false;
		}
	}
	return true;
}

/* --- ops ---------------------------------------------------------------------------------------------- */

static bool has_axis(const struct ir_int_list *axes, int64_t axis, int rank)
{
	for (size_t i = 0; i < axes->n; i++)
		if (axes->items[i] == axis || axes->items[i] + rank == axis)
			return true;
	return axes->n == 0;
}

/* Element [b, ...] of the result depends on elements [b, ...] of operand i only. */
static bool keeps_sequences(const struct ir_func *f, const struct ir_op *op, size_t i)
{
	const struct ir_type *x = ir_type_of(f, op->operands[i]), *y = ir_type_of(f, op->results[0]);
	if (op->n_results != 1 || x->kind != IR_TENSOR || x->rank < 1 || y->rank < 1 ||
	    x->dims[0] != y->dims[0])
		return false;
	if (ir_op_has(op->code, TRAIT_ELEMENTWISE))
		return op->code != OP_mask_rows || i == 0;
	if (op->code == OP_transpose)
		return ((const struct attrs_transpose *)op->attrs)->perm.items[0] == 0;
	if (op->code == OP_slice)
		return ((const struct attrs_slice *)op->attrs)->axis != 0;
	if (op->code == OP_broadcast)
		return x->rank == y->rank;
	if (op->code == OP_reduce_sum)
		return !has_axis(&((const struct attrs_reduce_sum *)op->attrs)->axes, 0, x->rank);
	if (op->code == OP_reduce_mean)
		return !has_axis(&((const struct attrs_reduce_mean *)op->attrs)->axes, 0, x->rank);
	if (op->code == OP_reshape || op->code == OP_attention)
		return true;
	if (op->code == OP_take_rows || op->code == OP_linear || op->code == OP_rope)
		return i == 0 && x->rank >= 2;
	return (op->code == OP_layer_norm || op->code == OP_rms_norm || op->code == OP_softmax) && i == 0 &&
	       x->rank >= 2;
}

static void leak(struct flow *s, const char *what)
{
	s->leak = s->leak != NULL ? s->leak : what;
}

static void mark(struct flow *s, struct ir_value v)
{
	if (v.id == 0 || s->marked[v.id])
		return;
	s->marked[v.id] = true;
	s->changed = true;
}

static void flow_repeat(struct flow *s, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++) {
		if (s->marked[op->operands[i].id] || s->marked[yield->operands[i].id]) {
			mark(s, op->region->args[i + 1]);
			mark(s, op->results[i]);
		}
	}
}

/* The rows go to a state: nothing sees them when its readers mask by these lengths, which lie beside it. */
static void flow_write(struct flow *s, const struct ir_op *op)
{
	const struct ir_state_decl *beside = bias_lengths_beside(s->f, s->len);
	const struct ir_state_decl *to = ir_type_of(s->f, op->operands[0])->state;
	if (op->code != OP_state_write || beside == NULL || !bias_state_masked(s->u, to, beside))
		leak(s, "a state keeps its rows");
}

static void flow_op(void *user, const struct ir_op *op)
{
	struct flow *s = user;
	bool cleans = (op->code == OP_mask_rows && ir_same(op->operands[1], s->len)) ||
	              (op->code == OP_attention && ir_same(op->operands[4], s->len));
	if (op->code == OP_repeat) {
		flow_repeat(s, op);
		return;
	}
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id == 0 || !s->marked[op->operands[i].id] || op->code == OP_yield)
			continue;
		if (op->code == OP_return)
			leak(s, "a result of the function has its rows");
		else if (ir_op_has(op->code, TRAIT_STATEFUL))
			flow_write(s, op);
		else if (!keeps_sequences(s->f, op, i))
			leak(s, ir_op_desc(op->code)->name);
		else if (!cleans)
			mark(s, op->results[0]);
	}
}

const char *bias_dead_rows(struct arena *a, const struct module_uses *u, const struct ir_func *f,
                           const struct ir_op *attention)
{
	struct flow s = {.u = u, .f = f, .len = attention->operands[4], .changed = true};
	s.marked = ARENA_ARRAY(a, bool, f->n_values);
	if (s.marked == NULL)
		return "memory ran out";
	s.marked[attention->results[0].id] = true;
	while (s.changed && s.leak == NULL) {
		s.changed = false;
		ir_walk(f->body, flow_op, &s);
	}
	return s.leak;
}

/* --- positions -------------------------------------------------------------------------------------------
 */

#define OFFSET_DEPTH_MAX 8

static bool is_constant_zero_up(const struct ir_op *def)
{
	return def->code == OP_full && ((const struct attrs_full *)def->attrs)->value >= 0;
}

static bool not_negative(const struct ir_func *f, struct ir_value v, int depth)
{
	const struct ir_op *def = ir_def(f, v);
	if (depth > OFFSET_DEPTH_MAX)
		return false;
	for (size_t i = 0; def == NULL && i < f->n_params; i++)
		if (ir_same(f->params[i].value, v))
			return f->params[i].role == ROLE_PAST || f->params[i].max != NULL;
	if (def == NULL)
		return false;
	if (def->code == OP_broadcast || def->code == OP_reshape)
		return not_negative(f, def->operands[0], depth + 1);
	bool sum = def->code == OP_add || def->code == OP_min, max = def->code == OP_max;
	if (!sum && !max)
		return is_constant_zero_up(def);
	bool a = not_negative(f, def->operands[0], depth + 1),
	     b = not_negative(f, def->operands[1], depth + 1);
	return max ? a || b : a && b;
}

bool bias_not_negative(const struct ir_func *f, struct ir_value v)
{
	return v.id == 0 || not_negative(f, v, 0);
}

/* A dim that v is never above, or NULL. */
static const struct ir_dim *upper(const struct ir_module *m, const struct ir_func *f, struct ir_value v,
                                  int depth)
{
	const struct ir_op *def = ir_def(f, v);
	if (def == NULL || depth > OFFSET_DEPTH_MAX)
		return NULL;
	if (def->code == OP_dim_value)
		return ((const struct attrs_dim_value *)def->attrs)->dim;
	if (def->code == OP_broadcast || def->code == OP_reshape)
		return upper(m, f, def->operands[0], depth + 1);
	if (def->code != OP_min && def->code != OP_max)
		return NULL;
	const struct ir_dim *a = upper(m, f, def->operands[0], depth + 1);
	const struct ir_dim *b = upper(m, f, def->operands[1], depth + 1);
	if (def->code == OP_min)
		return a != NULL ? a : b;
	/* max(x, 0) is no more than x's bound when that is not negative */
	const struct ir_dim *bound = a != NULL ? a : b;
	const struct ir_op *other = ir_def(f, def->operands[a != NULL ? 1 : 0]);
	bool zero = other != NULL && other->code == OP_full &&
	            ((const struct attrs_full *)other->attrs)->value == 0;
	return bound != NULL && zero && ir_dim_lo(m->dims, bound) >= 0 ? bound : NULL;
}

bool bias_sees_stored(const struct ir_module *m, const struct ir_func *f, const struct ir_op *attention,
                      const struct ir_op *append)
{
	const struct ir_dim *queries = ir_type_of(f, attention->operands[0])->dims[2];
	const struct ir_dim *rows = ir_type_of(f, append->operands[1])->dims[2];
	struct ir_value past = attention->operands[5], base = append->operands[2];
	if (((const struct attrs_attention *)attention->attrs)->mask != MASK_causal || past.id == 0)
		return false;
	if (ir_same(past, base))
		return ir_dim_le(m->dims, queries, rows);
	const struct ir_op *sum = ir_def(f, past);
	if (sum == NULL || sum->code != OP_add)
		return false;
	bool first = ir_same(sum->operands[0], base);
	if (!first && !ir_same(sum->operands[1], base))
		return false;
	const struct ir_dim *most = upper(m, f, sum->operands[first ? 1 : 0], 0);
	return most != NULL && ir_dim_le(m->dims, ir_dim_add(m->dims, most, queries), rows);
}
