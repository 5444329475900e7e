/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps in front of a stack: patches of an image, convolutions along the
 * sequence, learned rows in front of the positions.
 */
#include <string.h>

#include "frontend/steps/blocks.h"

static bool want_float(struct step *st, int rank, const char *what)
{
	if (ir_dtype_class(st->in.dtype) == DTCLASS_FLOAT && st->in.rank == rank)
		return true;
	return step_error(st, NULL, DIAG_SHAPE, "%s wants a float tensor %s, found %s%s", st->kind->kind,
	                  what, ir_dtype_name(st->in.dtype), shape_text(st->b, st->in.rank, st->in.dims));
}

/* Other lengths get a name of their own, which stays. */
static bool set_lengths(struct step *st, struct block_value *v, const char *value)
{
	const char *name = temp_push(st->b, arena_printf(st->b->arena, "%s_lengths", st->kind->kind));
	if (!model_declare(st->b->m, name, "lengths", st->loc))
		return false;
	temp_pop(st->b, 1);
	v->lengths = name;
	return emit(st, "%s = %s", name, value);
}

/* ---- patchify ---- */

static bool patch_size(struct step *st, int64_t *h, int64_t *w)
{
	struct expr_env env = blocks_env(st->b, false);
	struct yaml_list list = yaml_as_list(st->b->arena, arg(st, "size"));
	if (list.n != 1 && list.n != 2)
		return step_error(st, "size", DIAG_VALUE_TYPE, "size is a number or [height, width]");
	if (!expr_read_int(&env, list.items[0], "size", h) ||
	    !expr_read_int(&env, list.items[list.n - 1], "size", w))
		return false;
	if (*h < 1 || *w < 1 || *h > INT32_MAX || *w > INT32_MAX)
		return step_error(st, "size", DIAG_VALUE_TYPE, "a patch has at least one row and column");
	return true;
}

bool step_patchify(struct step *st)
{
	struct blocks *b = st->b;
	int64_t h = 0, w = 0, out = 0, height, width;
	bool bias = true;
	struct block_value v = st->in;
	if (!want_float(st, 4, "[B, C, H, W]") || !patch_size(st, &h, &w) || !arg_int(st, "out", 1, &out) ||
	    !arg_bool(st, "bias", &bias))
		return false;
	if (!ir_dim_is_const(v.dims[2], &height) || !ir_dim_is_const(v.dims[3], &width) || height % h != 0 ||
	    width % w != 0)
		return step_error(st, "size", DIAG_SHAPE, "patches of %lld x %lld do not tile %s",
		                  (long long)h, (long long)w, shape_text(b, v.rank, v.dims));
	v.name = "x";
	v.lengths = NULL;
	v.rank = 3;
	v.dims[1] = ir_dim_const(b->m->dims, height / h * (width / w));
	v.dims[2] = ir_dim_const(b->m->dims, out);
	mark_mixed(st, &v);
	b->x = v;
	return emit(st, "x = conv2d(%s, \"%s\", out=%lld, kernel=[%lld, %lld], stride=[%lld, %lld], bias=%s)",
	            st->in.name, st->params, (long long)out, (long long)h, (long long)w, (long long)h,
	            (long long)w, bool_text(bias)) &&
	       emit(st, "x = reshape(transpose(x, [0, 2, 3, 1]), %s)", shape_text(b, v.rank, v.dims));
}

/* ---- conv1d ---- */

struct conv1d {
	int64_t out, kernel, stride, padding, dilation, groups;
	bool bias;
	const char *act;
};

static bool read_conv1d(struct step *st, struct conv1d *c)
{
	*c = (struct conv1d){.stride = 1, .dilation = 1, .groups = 1, .bias = true, .act = "identity"};
	return arg_int(st, "out", 1, &c->out) && arg_int(st, "kernel", 1, &c->kernel) &&
	       arg_int(st, "stride", 1, &c->stride) && arg_int(st, "padding", 0, &c->padding) &&
	       arg_int(st, "dilation", 1, &c->dilation) && arg_int(st, "groups", 1, &c->groups) &&
	       arg_bool(st, "bias", &c->bias) && arg_act(st, "act", &c->act);
}

/* (n + 2 padding - dilation (kernel - 1) - 1) // stride + 1; every argument is below 2^31. */
static int64_t reach(const struct conv1d *c)
{
	return 2 * c->padding - c->dilation * (c->kernel - 1) - 1;
}

static bool conv_lengths(struct step *st, const struct conv1d *c, struct block_value *v)
{
	struct arena *a = st->b->arena;
	const char *n = v->lengths;
	long long r = (long long)reach(c);
	if (n == NULL)
		return true;
	if (c->stride == 1)
		return set_lengths(st, v, arena_printf(a, "maximum(%s + (%lld), 0)", n, r + 1));
	return set_lengths(st, v,
	                   arena_printf(a,
	                                "maximum(cast(floor(cast(%s + (%lld), f32) / %lld.0), i32) + 1, 0)",
	                                n, r, (long long)c->stride));
}

bool step_conv1d(struct step *st)
{
	struct blocks *b = st->b;
	struct conv1d c;
	struct block_value v = st->in;
	if (!want_float(st, 3, "[B, L, C]") || !read_conv1d(st, &c))
		return false;
	const struct ir_dim *span = ir_dim_add(b->m->dims, v.dims[1], ir_dim_const(b->m->dims, reach(&c)));
	if (ir_dim_lo(b->m->dims, span) < 0)
		return step_error(st, "kernel", DIAG_SHAPE, "the kernel is larger than the padded input %s",
		                  shape_text(b, v.rank, v.dims));
	const char *in =
	        v.lengths == NULL ? v.name : arena_printf(b->arena, "mask_rows(%s, %s)", v.name, v.lengths);
	if (!emit(st,
	          "x = conv1d(%s, \"%s\", out=%lld, kernel=%lld, stride=%lld, padding=%lld, dilation=%lld, "
	          "groups=%lld, bias=%s)",
	          in, st->params, (long long)c.out, (long long)c.kernel, (long long)c.stride,
	          (long long)c.padding, (long long)c.dilation, (long long)c.groups, bool_text(c.bias)))
		return false;
	v.name = "x";
	v.dims[1] = ir_dim_add(b->m->dims, ir_dim_floordiv(b->m->dims, span, c.stride),
	                       ir_dim_const(b->m->dims, 1));
	v.dims[2] = ir_dim_const(b->m->dims, c.out);
	mark_mixed(st, &v);
	bool ok = conv_lengths(st, &c, &v);
	b->x = v;
	return ok && (strcmp(c.act, "identity") == 0 || emit(st, "x = %s(x)", c.act));
}

/* ---- prepend ---- */

bool step_prepend(struct step *st)
{
	struct blocks *b = st->b;
	int64_t tokens = 1, width;
	struct block_value v = st->in;
	if (!want_float(st, 3, "[B, S, d]") || !arg_int(st, "tokens", 1, &tokens) ||
	    (width = width_of(st, &v)) < 0)
		return false;
	if (!emit(st,
	          "x = concat([broadcast(param(\"%s.weight\", [%lld, %lld]), [%s, %lld, %lld]), %s], axis=1)",
	          st->params, (long long)tokens, (long long)width, dim_text(b, v.dims[0]), (long long)tokens,
	          (long long)width, v.name))
		return false;
	v.name = "x";
	v.dims[1] = ir_dim_add(b->m->dims, v.dims[1], ir_dim_const(b->m->dims, tokens));
	mark_mixed(st, &v);
	bool ok = v.lengths == NULL ||
	          set_lengths(st, &v, arena_printf(b->arena, "%s + %lld", v.lengths, (long long)tokens));
	b->x = v;
	return ok;
}
