/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that change shapes or names: pool, reshape, transpose, save, x.
 */
#include <string.h>

#include "frontend/steps/blocks.h"

/* ---- pool ---- */

/* x at the real rows, as text. */
static const char *real_rows(struct step *st, const char *lengths)
{
	if (lengths == NULL)
		return st->in.name;
	return arena_printf(st->b->arena, "mask_rows(%s, %s)", st->in.name, lengths);
}

/* The dims of x without `axis`; as 1 from the second of them on when `ones`. */
static const char *rest_text(struct step *st, int64_t axis, bool ones)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	int n = 0;
	for (int i = 0; i < st->in.rank; i++) {
		if (i != axis)
			dims[n++] = ones && i > 0 ? ir_dim_const(st->b->m->dims, 1) : st->in.dims[i];
	}
	return shape_text(st->b, n, dims);
}

static bool pool_mean(struct step *st, const char *lengths, int64_t axis)
{
	if (lengths == NULL)
		return emit(st, "x = mean(%s, axis=%lld)", st->in.name, (long long)axis);
	return emit(st, "x = sum(%s, axis=1) / maximum(reshape(cast(%s, f32), %s), 1.0)",
	            real_rows(st, lengths), lengths, rest_text(st, axis, true));
}

static bool pool_max(struct step *st, const char *lengths, int64_t axis)
{
	struct blocks *b = st->b;
	const char *batch = dim_text(b, st->in.dims[0]), *ones = "";
	if (lengths == NULL)
		return emit(st, "x = max(%s, axis=%lld)", st->in.name, (long long)axis);
	for (int i = 2; i < st->in.rank; i++)
		ones = arena_printf(b->arena, "%s, 1", ones);
	const char *t = temp_push(b, "t");
	bool ok = emit(st, "%s = reshape(positions(%s) < reshape(%s, [%s, 1]), [%s, %s%s])", t, st->in.name,
	               lengths, batch, batch, dim_text(b, st->in.dims[1]), ones) &&
	          emit(st, "x = max(where(%s, %s, -3.4028234663852886e+38), axis=1)", t, st->in.name) &&
	          emit(st, "x = where(reshape(%s, %s) > 0, x, 0.0)", lengths, rest_text(st, axis, true));
	temp_pop(b, 1);
	return ok;
}

static bool pool_row(struct step *st, const char *lengths, int64_t axis, const char *begin, const char *end)
{
	return emit(st, "x = reshape(slice(%s, axis=%lld, begin=%s, end=%s), %s)", real_rows(st, lengths),
	            (long long)axis, begin, end, rest_text(st, axis, false));
}

static bool pool_index(struct step *st, const char *lengths, int64_t axis)
{
	struct blocks *b = st->b;
	int64_t at = -1;
	if (arg(st, "at") == NULL)
		return step_error(st, NULL, DIAG_MISSING, "pool of kind index needs 'at'");
	if (!arg_int(st, "at", 0, &at))
		return false;
	if (at >= ir_dim_lo(b->m->dims, st->in.dims[axis]))
		return step_error(st, "at", DIAG_SHAPE, "row %lld of %s, which may have fewer rows",
		                  (long long)at, shape_text(b, st->in.rank, st->in.dims));
	return pool_row(st, lengths, axis, arena_printf(b->arena, "%lld", (long long)at),
	                arena_printf(b->arena, "%lld", (long long)at + 1));
}

static bool pool_last(struct step *st, const char *lengths, int64_t axis)
{
	const char *n = dim_text(st->b, st->in.dims[axis]);
	if (lengths == NULL)
		return pool_row(st, NULL, axis, arena_printf(st->b->arena, "%s - 1", n), n);
	return emit(st, "x = take_rows(%s, %s - 1)", real_rows(st, lengths), lengths);
}

/* The first real position with ids = token, row 0 if there is none. */
static bool pool_token(struct step *st, const char *lengths, int64_t axis)
{
	struct blocks *b = st->b;
	struct block_value ids = b->start;
	int64_t token = 0;
	if (axis != 1)
		return step_error(st, "axis", DIAG_REFUSED,
		                  "pool of kind token is over axis 1, that of the ids");
	if (arg(st, "token") == NULL)
		return step_error(st, NULL, DIAG_MISSING, "pool of kind token needs 'token'");
	if (!arg_int(st, "token", 0, &token) || !arg_value(st, "ids", &ids))
		return false;
	if (ids.dtype != DT_I32 || ids.rank != 2 || ids.dims[0] != st->in.dims[0] ||
	    ids.dims[1] != st->in.dims[1])
		return step_error(st, "ids", DIAG_SHAPE, "pool over %s wants ids i32[B, S], found %s%s",
		                  shape_text(b, st->in.rank, st->in.dims), ir_dtype_name(ids.dtype),
		                  shape_text(b, ids.rank, ids.dims));
	const char *found = arena_printf(b->arena, "cast(%s == %lld, f32)", ids.name, (long long)token);
	if (lengths != NULL)
		found = arena_printf(b->arena, "%s * cast(positions(%s) < reshape(%s, [%s, 1]), f32)", found,
		                     st->in.name, lengths, dim_text(b, st->in.dims[0]));
	return emit(st, "x = take_rows(%s, argmax(%s, axis=1))", real_rows(st, lengths), found);
}

/* Arguments of other kinds would be left unread. */
static bool pool_arguments(struct step *st, const char *kind)
{
	static const char *const of[][2] = {{"at", "index"}, {"token", "token"}, {"ids", "token"}};
	for (size_t i = 0; i < TFMC_COUNT(of); i++) {
		if (arg(st, of[i][0]) != NULL && strcmp(kind, of[i][1]) != 0)
			return step_error(st, of[i][0], DIAG_REFUSED, "'%s' is for pool of kind %s", of[i][0],
			                  of[i][1]);
	}
	return true;
}

static bool pool_of_kind(struct step *st, const char *kind, const char *lengths, int64_t axis)
{
	if (strcmp(kind, "mean") == 0)
		return pool_mean(st, lengths, axis);
	if (strcmp(kind, "max") == 0)
		return pool_max(st, lengths, axis);
	if (strcmp(kind, "cls") == 0)
		return pool_row(st, lengths, axis, "0", "1");
	if (strcmp(kind, "last") == 0)
		return pool_last(st, lengths, axis);
	if (strcmp(kind, "token") == 0)
		return pool_token(st, lengths, axis);
	return pool_index(st, lengths, axis);
}

static void drop_axis(struct step *st, int64_t axis)
{
	struct block_value v = st->in;
	v.name = "x";
	v.lengths = NULL;
	for (int i = (int)axis; i + 1 < v.rank; i++)
		v.dims[i] = v.dims[i + 1];
	v.rank--;
	mark_mixed(st, &v);
	st->b->x = v;
}

bool step_pool(struct step *st)
{
	const char *kind = NULL, *lengths = st->in.lengths;
	int64_t axis = 1;
	if (!arg_word(st, "kind", &kind) || !arg_int(st, "axis", -IR_RANK_MAX, &axis) ||
	    !arg_lengths(st, "lengths", &lengths))
		return false;
	if (axis < 0)
		axis += st->in.rank;
	if (axis < 0 || axis >= st->in.rank)
		return step_error(st, "axis", DIAG_SHAPE, "pool over axis %lld of %s", (long long)axis,
		                  shape_text(st->b, st->in.rank, st->in.dims));
	if (axis != 1 && arg(st, "lengths") != NULL && lengths != NULL)
		return step_error(st, "lengths", DIAG_REFUSED,
		                  "lengths count positions of axis 1; pool over axis %lld has none",
		                  (long long)axis);
	if (axis != 1)
		lengths = NULL;
	bool ok = want_float_input(st) && pool_arguments(st, kind) && pool_of_kind(st, kind, lengths, axis);
	drop_axis(st, axis);
	return ok;
}

/* ---- reshape, transpose ---- */

static const struct ir_dim *count_of(struct blocks *b, int rank, const struct ir_dim *const *dims)
{
	const struct ir_dim *n = ir_dim_const(b->m->dims, 1);
	for (int i = 0; i < rank; i++)
		n = ir_dim_mul(b->m->dims, n, dims[i]);
	return n;
}

bool step_reshape(struct step *st)
{
	struct blocks *b = st->b;
	struct expr_env env = blocks_env(b, true);
	struct yaml_list list = yaml_as_list(b->arena, arg(st, "shape"));
	struct block_value v = st->in;
	if (list.n > IR_RANK_MAX)
		return step_error(st, "shape", DIAG_LIMIT, "more than %d axes", IR_RANK_MAX);
	v.rank = (int)list.n;
	for (size_t i = 0; i < list.n; i++) {
		if (!expr_read_dim(&env, list.items[i], "shape", &v.dims[i]))
			return false;
	}
	if (count_of(b, v.rank, v.dims) != count_of(b, st->in.rank, st->in.dims))
		return step_error(st, "shape", DIAG_SHAPE,
		                  "reshape of %s to %s changes the number of elements",
		                  shape_text(b, st->in.rank, st->in.dims), shape_text(b, v.rank, v.dims));
	v.name = "x";
	v.lengths = NULL;
	mark_mixed(st, &v);
	b->x = v;
	return emit(st, "x = reshape(%s, %s)", st->in.name, shape_text(b, v.rank, v.dims));
}

bool step_transpose(struct step *st)
{
	struct blocks *b = st->b;
	struct expr_env env = blocks_env(b, false);
	struct yaml_list list = yaml_as_list(b->arena, arg(st, "perm"));
	struct block_value v = st->in;
	const char *text = "";
	unsigned seen = 0;
	if ((int)list.n != st->in.rank)
		return step_error(st, "perm", DIAG_SHAPE, "perm has %zu axes for %s", list.n,
		                  shape_text(b, st->in.rank, st->in.dims));
	for (size_t i = 0; i < list.n; i++) {
		int64_t axis;
		if (!expr_read_int(&env, list.items[i], "perm", &axis))
			return false;
		if (axis < 0 || axis >= st->in.rank || (seen & 1u << axis) != 0)
			return step_error(st, "perm", DIAG_SHAPE, "perm must name every axis once");
		seen |= 1u << axis;
		v.dims[i] = st->in.dims[axis];
		text = arena_printf(b->arena, "%s%s%lld", text, i > 0 ? ", " : "", (long long)axis);
	}
	v.name = "x";
	v.lengths = NULL;
	mark_mixed(st, &v);
	b->x = v;
	return emit(st, "x = transpose(%s, [%s])", st->in.name, text);
}

/* ---- save, x ---- */

bool step_save(struct step *st)
{
	struct blocks *b = st->b;
	const struct yaml_node *node = arg(st, "name");
	if (!yaml_expect(b->cx, node, YAML_SCALAR, "save"))
		return false;
	const char *name = concrete(b, node->text);
	for (const struct block_scope *s = b->scope; s != NULL; s = s->outer) {
		if (s->def == NULL && strstr(node->text, arena_printf(b->arena, "{%s}", s->loop)) == NULL)
			return step_error(st, "name", DIAG_NAME,
			                  "a value saved inside a repeat needs '{%s}' in its name", s->loop);
	}
	if (strcmp(name, "x") == 0 || strcmp(name, "none") == 0)
		return step_error(st, "name", DIAG_NAME,
		                  "'%s' is a word of the language; the value needs another name", name);
	if (!model_declare(b->m, name, "saved value", node->loc))
		return false;
	struct block_value *v = ARENA_NEW(b->arena, struct block_value);
	if (v == NULL)
		return false;
	*v = st->in;
	v->name = name;
	if (!emit(st, "%s = %s", name, st->in.name))
		return false;
	return strmap_set(&b->values, name, v);
}

bool step_x(struct step *st)
{
	struct block_value v;
	if (!find_value(st->b, arg(st, "name"), &v) || !emit(st, "x = %s", v.name))
		return false;
	v.name = "x";
	st->b->x = v;
	return true;
}
