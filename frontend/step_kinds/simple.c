/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that look at each position alone: embeddings, positions, linear layers,
 * feed-forward, activations, factors. Norms: norm.c.
 */
#include <string.h>

#include "frontend/steps/blocks.h"

void set_width(struct step *st, int64_t width)
{
	struct blocks *b = st->b;
	struct block_value v = st->in;
	v.name = "x";
	v.dims[v.rank - 1] = ir_dim_const(b->m->dims, width);
	b->x = v;
}

bool want_float_input(const struct step *st)
{
	if (ir_dtype_class(st->in.dtype) == DTCLASS_FLOAT && st->in.rank >= 1)
		return true;
	return step_error(st, NULL, DIAG_DTYPE, "%s wants a float tensor, found %s%s", st->kind->kind,
	                  ir_dtype_name(st->in.dtype), shape_text(st->b, st->in.rank, st->in.dims));
}

/* ---- embed ---- */

static bool embed_result(struct step *st, int64_t dim, struct block_value *out)
{
	*out = st->in;
	out->input = 0;
	if (st->in.dtype != DT_I32 || st->in.rank >= IR_RANK_MAX)
		return step_error(st, NULL, DIAG_DTYPE, "embed wants i32 ids, found %s%s",
		                  ir_dtype_name(st->in.dtype), shape_text(st->b, st->in.rank, st->in.dims));
	out->name = "x";
	out->dtype = DT_F32;
	out->dims[out->rank++] = ir_dim_const(st->b->m->dims, dim);
	return true;
}

static bool same_shape(const struct block_value *a, const struct block_value *b)
{
	bool same = a->rank == b->rank && a->dtype == b->dtype;
	for (int i = 0; same && i < a->rank; i++)
		same = a->dims[i] == b->dims[i];
	return same;
}

bool step_embed(struct step *st)
{
	struct blocks *b = st->b;
	int64_t vocab = 0, dim = 0;
	double scale = 1.0;
	bool add = false;
	struct block_value v;
	if (!arg_int(st, "vocab", 1, &vocab) || !arg_int(st, "dim", 1, &dim) ||
	    !arg_float(st, "scale", &scale) || !arg_bool(st, "add", &add) || !embed_result(st, dim, &v))
		return false;
	if (add && arg(st, "from") == NULL)
		return step_error(st, "add", DIAG_MISSING, "embed with add needs 'from'");
	if (add && !same_shape(&v, &b->x))
		return step_error(st, NULL, DIAG_SHAPE, "embed adds %s to %s", shape_text(b, v.rank, v.dims),
		                  shape_text(b, b->x.rank, b->x.dims));
	if (st->in.input > 0) { /* ids of an input are checked at its entry */
		struct model_input *in = &b->m->inputs.items[st->in.input - 1];
		in->below = in->below == 0 || in->below > vocab ? vocab : in->below;
	}
	const char *factor = scale == 1.0 ? "" : arena_printf(b->arena, " * %s", float_text(b, scale));
	if (!emit(st, "x = %sembed(%s, \"%s\", vocab=%lld, dim=%lld)%s", add ? "x + " : "", st->in.name,
	          st->params, (long long)vocab, (long long)dim, factor))
		return false;
	if (add)
		v = (struct block_value){.name = "x",
		                         .dtype = v.dtype,
		                         .rank = v.rank,
		                         .lengths = b->x.lengths,
		                         .grows = b->x.grows || v.grows,
		                         .mixed = b->x.mixed,
		                         .mixed_by = b->x.mixed_by};
	if (add)
		memcpy(v.dims, b->x.dims, sizeof(v.dims));
	b->x = v;
	return true;
}

/* ---- positions ---- */

/* One past the largest position that can occur. */
static int64_t position_bound(const struct step *st)
{
	const struct frontend_model *m = st->b->m;
	int64_t n = ir_dim_hi(m->dims, st->in.dims[1]);
	return st->in.grows && m->generate.max_len > n ? m->generate.max_len : n;
}

/* Row numbers that are an input are checked at its entry. */
static void check_rows(struct step *st, const struct block_value *at, int64_t rows)
{
	struct model_input *in = at->input == 0 ? NULL : &st->b->m->inputs.items[at->input - 1];
	if (in != NULL)
		in->below = in->below == 0 || in->below > rows ? rows : in->below;
}

/* `len`, which positions that are counted must not exceed. */
static bool table_length(struct step *st, const struct block_value *at, int64_t start, int64_t *len)
{
	int64_t bound = position_bound(st);
	if (!arg_int(st, "len", 1, len))
		return false;
	if (at->name == NULL && start + bound > *len)
		return step_error(
		        st, "len", DIAG_TABLE_SHORT,
		        "the table has %lld rows, positions need %lld (start %lld and up to %lld positions)",
		        (long long)*len, (long long)(start + bound), (long long)start, (long long)bound);
	return true;
}

static bool learned(struct step *st, const struct block_value *at, const char *rows, int64_t start,
                    int64_t width, const char *factor)
{
	int64_t len = 0;
	if (arg(st, "len") == NULL)
		return step_error(st, NULL, DIAG_MISSING, "positions of kind learned need 'len'");
	if (!table_length(st, at, start, &len))
		return false;
	check_rows(st, at, len);
	const char *offset = start == 0 ? "" : arena_printf(st->b->arena, " + %lld", (long long)start);
	return emit(st, "x = %s + %sembed(%s%s, \"%s\", vocab=%lld, dim=%lld)", st->in.name, factor, rows,
	            offset, st->params, (long long)len, (long long)width);
}

/* Rows of a sinusoid: as many as there are positions; given row numbers are bounded by `len` or by their
 * input. */
static bool sinusoid_rows(struct step *st, const struct block_value *at, int64_t start, int64_t *rows)
{
	bool given = arg(st, "len") != NULL;
	int64_t below = at->input == 0 ? 0 : st->b->m->inputs.items[at->input - 1].below;
	*rows = 0;
	if (given && !table_length(st, at, start, rows))
		return false;
	if (at->name == NULL) {
		*rows = position_bound(st);
		return true;
	}
	if (!given && below == 0)
		return step_error(st, "at", DIAG_MISSING,
		                  "a sinusoid at given row numbers needs 'len', or 'below' at their input");
	*rows = given ? *rows : below;
	check_rows(st, at, *rows);
	return true;
}

static bool sinusoidal(struct step *st, const struct block_value *at, const char *from, int64_t start,
                       int64_t width, const char *factor)
{
	int64_t rows;
	const char *layout = NULL, *spacing = NULL;
	double base = 10000.0;
	if (!arg_word(st, "layout", &layout) || !arg_word(st, "spacing", &spacing) ||
	    !arg_float(st, "base", &base))
		return false;
	if (layout == NULL || spacing == NULL)
		return step_error(st, NULL, DIAG_MISSING, "positions of kind sinusoidal need '%s'",
		                  layout == NULL ? "layout" : "spacing");
	if (width % 2 != 0 || width < 4)
		return step_error(st, NULL, DIAG_SHAPE,
		                  "a sinusoid needs an even width of at least 4, found %lld",
		                  (long long)width);
	if (!(base > 0.0))
		return step_error(st, "base", DIAG_VALUE_TYPE, "base must be positive");
	if (!sinusoid_rows(st, at, start, &rows))
		return false;
	return emit(st,
	            "x = %s + %sgather(sinusoid(%lld, %lld, layout=%s, spacing=%s, start=%lld, base=%s), %s)",
	            st->in.name, factor, (long long)rows, (long long)width, layout, spacing, (long long)start,
	            float_text(st->b, base), from);
}

/* Arguments of a table that is computed would be left unread by one that is stored. */
static bool position_arguments(struct step *st, bool stored)
{
	static const char *const computed[] = {"layout", "spacing", "base"};
	for (size_t i = 0; stored && i < TFMC_COUNT(computed); i++) {
		if (arg(st, computed[i]) != NULL)
			return step_error(st, computed[i], DIAG_REFUSED,
			                  "'%s' is for positions of kind sinusoidal", computed[i]);
	}
	return true;
}

/* `at`: i32 [B, S], the axes of x; an input where the model generates. */
static bool read_at(struct step *st, struct block_value *at)
{
	if (arg(st, "at") == NULL)
		return true;
	if (!arg_value(st, "at", at))
		return false;
	if (at->dtype != DT_I32 || at->rank != 2 || at->dims[0] != st->in.dims[0] ||
	    at->dims[1] != st->in.dims[1])
		return step_error(st, "at", DIAG_SHAPE, "rows of positions for %s are i32 [B, S], found %s%s",
		                  shape_text(st->b, st->in.rank, st->in.dims), ir_dtype_name(at->dtype),
		                  shape_text(st->b, at->rank, at->dims));
	if (arg(st, "start") != NULL)
		return step_error(st, "start", DIAG_REFUSED, "'at' gives the rows, 'start' would count them");
	if (st->in.grows && at->input == 0)
		return step_error(st, "at", DIAG_GENERATE, "'at' is an input in a generating model");
	return true;
}

bool step_positions(struct step *st)
{
	struct blocks *b = st->b;
	const char *kind = NULL;
	int64_t start = 0, width;
	double scale = 1.0;
	struct block_value at = {.name = NULL};
	if (!arg_word(st, "kind", &kind) || !arg_int(st, "start", 0, &start) ||
	    !arg_float(st, "scale", &scale) || !want_float_input(st) || (width = width_of(st, &st->in)) < 0)
		return false;
	if (st->in.rank != 3)
		return step_error(st, NULL, DIAG_SHAPE, "positions want [B, S, d], found %s",
		                  shape_text(b, st->in.rank, st->in.dims));
	bool stored = strcmp(kind, "learned") == 0;
	if (!position_arguments(st, stored) || !read_at(st, &at))
		return false;
	const char *factor = scale == 1.0 ? "" : arena_printf(b->arena, "%s * ", float_text(b, scale));
	const char *rows = at.name != NULL ? at.name : arena_printf(b->arena, "positions(%s)", st->in.name);
	bool ok = stored ? learned(st, &at, rows, start, width, factor)
	                 : sinusoidal(st, &at, rows, start, width, factor);
	set_width(st, width);
	return ok;
}

/* ---- linear, ffn ---- */

/* Remembered until all steps are known. */
static bool remember_tie(struct step *st, const char *tie)
{
	struct loc *loc = tie == NULL ? NULL : ARENA_NEW(st->b->arena, struct loc);
	if (loc != NULL)
		*loc = arg(st, "tie")->loc;
	return loc == NULL || strmap_set(&st->b->ties, concrete(st->b, tie), loc);
}

bool step_linear(struct step *st)
{
	int64_t out = 0;
	bool bias = true;
	const char *act = NULL, *tie = NULL;
	if (!arg_int(st, "out", 1, &out) || !arg_bool(st, "bias", &bias) || !arg_act(st, "act", &act) ||
	    !arg_path(st, "tie", &tie) || !want_float_input(st) || width_of(st, &st->in) < 0)
		return false;
	const char *act_text =
	        strcmp(act, "identity") == 0 ? "" : arena_printf(st->b->arena, ", act=%s", act);
	const char *tie_text = tie == NULL ? "" : arena_printf(st->b->arena, ", tie=\"%s\"", tie);
	if (!remember_tie(st, tie) || !emit(st, "x = linear(%s, \"%s\", out=%lld, bias=%s%s%s)", st->in.name,
	                                    st->params, (long long)out, bool_text(bias), act_text, tie_text))
		return false;
	set_width(st, out);
	return true;
}

static bool gated(struct step *st, int64_t dim, const char *act, bool bias, const char *fused)
{
	struct blocks *b = st->b;
	const char *g = temp_push(b, "g"), *u = temp_push(b, "u"), *p = st->params, *x = st->in.name;
	bool ok;
	if (strcmp(fused, "none") == 0) {
		ok = emit(st, "%s = linear(%s, \"%s.gate\", out=%lld, bias=%s, act=%s)", g, x, p,
		          (long long)dim, bool_text(bias), act) &&
		     emit(st, "%s = linear(%s, \"%s.up\", out=%lld, bias=%s)", u, x, p, (long long)dim,
		          bool_text(bias));
	} else {
		bool first = strcmp(fused, "gate_up") == 0;
		ok = emit(st, "%s = linear(%s, \"%s.%s\", out=%lld, bias=%s)", g, x, p, fused,
		          (long long)(2 * dim), bool_text(bias)) &&
		     emit(st, "%s, %s = split(%s, axis=-1, sizes=[%lld, %lld])", first ? g : u, first ? u : g,
		          g, (long long)dim, (long long)dim) &&
		     emit(st, "%s = %s(%s)", g, act, g);
	}
	ok = ok && emit(st, "x = %s * %s", g, u);
	temp_pop(b, 2);
	return ok;
}

bool step_ffn(struct step *st)
{
	const char *kind = NULL, *act = NULL, *fused = NULL;
	int64_t dim = 0, out;
	bool bias = true;
	if (!want_float_input(st) || (out = width_of(st, &st->in)) < 0)
		return false;
	if (!arg_word(st, "kind", &kind) || !arg_int(st, "dim", 1, &dim) || !arg_act(st, "act", &act) ||
	    !arg_bool(st, "bias", &bias) || !arg_int(st, "out", 1, &out) || !arg_word(st, "fused", &fused))
		return false;
	bool ok;
	if (strcmp(kind, "gated") == 0) {
		ok = gated(st, dim, act, bias, fused);
	} else {
		if (strcmp(fused, "none") != 0)
			return step_error(st, "fused", DIAG_REFUSED, "fused is for kind gated");
		ok = emit(st, "x = linear(%s, \"%s.up\", out=%lld, bias=%s, act=%s)", st->in.name, st->params,
		          (long long)dim, bool_text(bias), act);
	}
	ok = ok && emit(st, "x = linear(x, \"%s.down\", out=%lld, bias=%s)", st->params, (long long)out,
	                bool_text(bias));
	set_width(st, out);
	return ok;
}

/* ---- act, scale, softcap, normalize ---- */

static bool same_type(struct step *st)
{
	st->b->x = st->in;
	st->b->x.name = "x";
	return true;
}

bool step_act(struct step *st)
{
	const char *kind = NULL;
	return arg_act(st, "kind", &kind) && want_float_input(st) &&
	       emit(st, "x = %s(%s)", kind, st->in.name) && same_type(st);
}

bool step_scale(struct step *st)
{
	double by = 1.0;
	return arg_float(st, "by", &by) && want_float_input(st) &&
	       emit(st, "x = %s * %s", st->in.name, float_text(st->b, by)) && same_type(st);
}

bool step_softcap(struct step *st)
{
	double cap = 0.0;
	if (!arg_float(st, "cap", &cap) || !want_float_input(st))
		return false;
	if (cap < 0.0)
		return step_error(st, "cap", DIAG_VALUE_TYPE, "cap must not be negative");
	const char *c = float_text(st->b, cap);
	bool ok = cap == 0.0 ? emit(st, "x = %s", st->in.name)
	                     : emit(st, "x = %s * tanh(%s / %s)", c, st->in.name, c);
	return ok && same_type(st);
}

bool step_normalize(struct step *st)
{
	int64_t p = 2, axis = -1;
	double eps = 1e-12;
	if (!arg_int(st, "p", 1, &p) || !arg_int(st, "axis", -IR_RANK_MAX, &axis) ||
	    !arg_float(st, "eps", &eps) || !want_float_input(st))
		return false;
	if (!(eps >= 0.0))
		return step_error(st, "eps", DIAG_VALUE_TYPE, "eps must not be negative");
	if (p > 2)
		return step_error(st, "p", DIAG_VALUE_TYPE, "p is 1 or 2, found %lld", (long long)p);
	if (axis >= st->in.rank || axis < -st->in.rank)
		return step_error(st, "axis", DIAG_SHAPE, "axis %lld of %s", (long long)axis,
		                  shape_text(st->b, st->in.rank, st->in.dims));
	const char *x = st->in.name, *e = float_text(st->b, eps);
	bool ok = p == 2 ? emit(st, "x = %s / maximum(sqrt(sum(%s * %s, axis=%lld, keep=true)), %s)", x, x, x,
	                        (long long)axis, e)
	                 : emit(st, "x = %s / maximum(sum(abs(%s), axis=%lld, keep=true), %s)", x, x,
	                        (long long)axis, e);
	same_type(st);
	if (axis != -1 && axis != st->in.rank - 1) {
		st->b->x.lengths = NULL;
		mark_mixed(st, &st->b->x);
	}
	return ok;
}
