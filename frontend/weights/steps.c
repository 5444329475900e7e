/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a source of the weight map, each as it is read from YAML and as it is put on a weight
 * expression. The constructors of ir/weights/weight.h check shapes; here their refusal is put into the user's
 * words.
 */
#include <string.h>

#include "frontend/weights/entry.h"
#include "ir/support/number.h"

static const struct ir_wexpr *misfit(struct weight_build *b, const struct weight_entry *e,
                                     const struct ir_wexpr *x)
{
	if (arena_failed(b->arena))
		return NULL;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "'%s' does not fit the shape %s (for parameter '%.200s')", e->op->key,
	           weight_shape_text(b->arena, x->rank, x->dims), b->want->path);
	return NULL;
}

static bool axis_fits(const struct ir_wexpr *x, int64_t axis)
{
	return axis >= 0 && axis < x->rank;
}

/* ---- index, slice, split ---- */

static bool read_index(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct yaml_node *at = yaml_find(node, "at");
	bool filled = at != NULL && at->kind == YAML_SCALAR && strchr(at->text, '{') != NULL;
	const struct weight_int members[] = {{"axis", &e->axis}, {"at", filled ? NULL : &e->begin}};
	if (!weight_read_ints(r, node, "index", members, 2))
		return false;
	if (filled)
		e->name = weight_read_name(r, at, "at");
	return !filled || e->name != NULL;
}

static const struct ir_wexpr *apply_index(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	int64_t at = e->begin;
	if (e->name != NULL) {
		const char *text = weight_template_fill(b->arena, e->name, b->captures);
		if (!number_parse_i64(text, strlen(text), &at)) {
			diag_error(b->cx, e->name->node->loc, DIAG_MAP, "the index '%.60s' is no int", text);
			return NULL;
		}
	}
	const struct ir_wexpr *y = axis_fits(x, e->axis) ? wexpr_index(b->arena, (int)e->axis, at, x) : NULL;
	return y != NULL ? y : misfit(b, e, x);
}

static bool read_slice(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct weight_int members[] = {{"axis", &e->axis}, {"begin", &e->begin}, {"end", &e->end}};
	return weight_read_ints(r, node, "slice", members, 3);
}

static const struct ir_wexpr *apply_slice(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = NULL;
	if (axis_fits(x, e->axis))
		y = wexpr_slice(b->arena, (int)e->axis, e->begin, e->end, x);
	return y != NULL ? y : misfit(b, e, x);
}

static bool read_split(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct weight_int members[] = {{"axis", &e->axis}, {"part", &e->begin}, {"of", &e->end}};
	if (!weight_read_ints(r, node, "split", members, 3))
		return false;
	if (e->end < 1 || e->begin < 0 || e->begin >= e->end)
		return weight_fail(r, node->loc, "'split' wants part from 0 to of - 1");
	return true;
}

static const struct ir_wexpr *apply_split(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = NULL;
	if (axis_fits(x, e->axis) && x->dims[e->axis] % e->end == 0) {
		int64_t size = x->dims[e->axis] / e->end; /* part < of: no product can overflow */
		y = wexpr_slice(b->arena, (int)e->axis, e->begin * size, (e->begin + 1) * size, x);
	}
	return y != NULL ? y : misfit(b, e, x);
}

/* ---- order and shape ---- */

static bool read_dims(struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      struct weight_entry *e)
{
	bool ok = true;
	if (!yaml_expect(r->cx, node, YAML_SEQUENCE, what))
		return false;
	if (node->n > IR_RANK_MAX)
		return weight_fail(r, node->loc,
		                   arena_printf(r->arena, "'%s' wants at most %d dims", what, IR_RANK_MAX));
	e->rank = (int)node->n;
	for (size_t i = 0; i < node->n; i++)
		ok = expr_read_int(r->env, node->items[i], what, &e->dims[i]) && ok;
	return ok;
}

/* A list of axes in their new order; true: the last two change places, false: nothing does. */
static bool read_transpose(struct weight_entry_reader *r, const struct yaml_node *node,
                           struct weight_entry *e)
{
	unsigned seen = 0;
	bool swap = false;
	if (node->kind != YAML_SEQUENCE) {
		if (!expr_read_bool(r->env, node, "transpose", &swap))
			return false;
		e->rank = swap ? 0 : -1;
		return true;
	}
	if (!read_dims(r, node, "transpose", e))
		return false;
	for (int i = 0; i < e->rank; i++)
		seen |= e->dims[i] >= 0 && e->dims[i] < e->rank ? 1U << e->dims[i] : 0;
	if (e->rank == 0 || seen != (1U << e->rank) - 1)
		return weight_fail(r, node->loc,
		                   "'transpose' wants true or every axis once, as in [0, 2, 1]");
	return true;
}

/* The product of some sizes of a shape that fits. */
static int64_t product(const int64_t *dims, const int *axes, int n)
{
	int64_t p = 1;
	for (int i = 0; i < n; i++)
		p *= dims[axes[i]];
	return p;
}

/*
 * Axis i of the result is axis from[i]. Only two neighbouring axes that end the shape change places in an
 * expression, so the axes that have no place yet rotate until the wanted one is first.
 */
const struct ir_wexpr *weight_permute_axes(struct arena *a, const struct ir_wexpr *x, const int64_t *from)
{
	int order[IR_RANK_MAX], turned[IR_RANK_MAX], rank = x->rank;
	int64_t dims[IR_RANK_MAX], result[IR_RANK_MAX], front = 1;
	memcpy(dims, x->dims, sizeof(dims));
	for (int i = 0; i < rank; i++) {
		order[i] = i;
		result[i] = dims[from[i]];
	}
	for (int i = 0; x != NULL && i < rank && wexpr_count(x) > 0; i++) {
		int at = i, n = rank - i;
		while (order[at] != from[i])
			at++;
		const int64_t parts[] = {front, product(dims, order + i, at - i),
		                         product(dims, order + at, rank - at)};
		if (at != i)
			x = wexpr_transpose(a, wexpr_reshape(a, 3, parts, x));
		for (int k = 0; k < n; k++)
			turned[k] = order[i + (at - i + k) % n];
		memcpy(order + i, turned, (size_t)n * sizeof(*order));
		front *= result[i];
	}
	return x == NULL ? NULL : wexpr_reshape(a, rank, result, x);
}

static const struct ir_wexpr *apply_transpose(struct weight_build *b, const struct weight_entry *e,
                                              const struct ir_wexpr *x)
{
	if (e->rank < 0)
		return x;
	if (e->rank == 0)
		return wexpr_transpose(b->arena, x);
	return e->rank == x->rank ? weight_permute_axes(b->arena, x, e->dims) : misfit(b, e, x);
}

static bool read_reshape(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	return read_dims(r, node, "reshape", e);
}

static const struct ir_wexpr *apply_reshape(struct weight_build *b, const struct weight_entry *e,
                                            const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = wexpr_reshape(b->arena, e->rank, e->dims, x);
	if (y != NULL || arena_failed(b->arena))
		return y;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE, "%s cannot be reshaped to %s (for parameter '%.200s')",
	           weight_shape_text(b->arena, x->rank, x->dims),
	           weight_shape_text(b->arena, e->rank, e->dims), b->want->path);
	return NULL;
}

/* rope_halves_to_interleaved(heads) or rope_interleaved_to_halves(heads). */
static bool read_permute(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	struct value heads;
	if (!yaml_expect(r->cx, node, YAML_SCALAR, "permute"))
		return false;
	const struct expr *call = expr_parse(r->arena, r->cx, expr_source_of(node), EXPR_GRAPH);
	if (call == NULL)
		return false;
	bool to_halves = call->kind == EX_CALL && strcmp(call->text, "rope_interleaved_to_halves") == 0;
	bool known =
	        to_halves || (call->kind == EX_CALL && strcmp(call->text, "rope_halves_to_interleaved") == 0);
	if (to_halves)
		e->kind = WX_ROPE_I2H;
	if (!known || call->n_args != 1 || call->n_keywords != 0)
		return weight_fail(r, node->loc,
		                   "'permute' wants rope_halves_to_interleaved(heads) or "
		                   "rope_interleaved_to_halves(heads); axes change places with 'transpose'");
	return expr_eval(r->env, call->args[0], &heads) &&
	       expr_require_int(r->env, call->args[0]->loc, "permute", &heads, &e->heads);
}

static const struct ir_wexpr *apply_permute(struct weight_build *b, const struct weight_entry *e,
                                            const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = e->heads < 1 ? NULL : wexpr_rope(b->arena, e->kind, e->heads, x);
	return y != NULL ? y : misfit(b, e, x);
}

/* ---- arithmetic ---- */

static bool read_factor(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->name = weight_read_name(r, node, e->op->key);
	return e->name != NULL;
}

static const struct ir_wexpr *apply_factor(struct weight_build *b, const struct weight_entry *e,
                                           const struct ir_wexpr *x)
{
	const struct ir_wexpr *factor = weight_leaf(b, e->name);
	const struct ir_wexpr *y = factor == NULL ? NULL : wexpr_binary(b->arena, e->kind, x, factor);
	if (y != NULL || factor == NULL || arena_failed(b->arena))
		return y;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "'%s' by a tensor of shape %s does not fit %s (for '%.200s')", e->op->key,
	           weight_shape_text(b->arena, factor->rank, factor->dims),
	           weight_shape_text(b->arena, x->rank, x->dims), b->want->path);
	return NULL;
}

static bool read_add(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	return expr_read_float(r->env, node, "add", &e->add);
}

static const struct ir_wexpr *apply_add(struct weight_build *b, const struct weight_entry *e,
                                        const struct ir_wexpr *x)
{
	return wexpr_offset(b->arena, e->add, x);
}

const struct weight_op weight_steps[WEIGHT_N_STEPS] = {
        {"index",
         "`{axis: A, at: I}`: the element I of an axis, which goes away; I may be `\"{name}\"`, a capture",
         WX_INDEX, true, read_index, apply_index},
        {"slice", "`{axis: A, begin: I, end: J}`: elements I .. J - 1 of an axis", WX_SLICE, true, read_slice,
         apply_slice},
        {"split", "`{axis: A, part: I, of: N}`: part I of N equal ones of an axis", WX_SLICE, true,
         read_split, apply_split},
        {"transpose", "`true`: the last two axes change places; a list says for each axis which one it was",
         WX_TRANSPOSE, true, read_transpose, apply_transpose},
        {"reshape", "a list of sizes: the same elements in this shape", WX_RESHAPE, true, read_reshape,
         apply_reshape},
        {"permute",
         "`rope_halves_to_interleaved(heads)` or `rope_interleaved_to_halves(heads)`: the other order of "
         "rotary rows",
         WX_ROPE_H2I, true, read_permute, apply_permute},
        {"mul", "the name of a tensor of the same shape, or of one element: elementwise product", WX_MUL,
         true, read_factor, apply_factor},
        {"div", "the same, divided by it", WX_DIV, true, read_factor, apply_factor},
        {"add", "a number that is added to each element", WX_OFFSET, true, read_add, apply_add},
};
