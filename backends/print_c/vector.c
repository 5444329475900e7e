/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes in portable C: selects as bit masks (gcc has no ?: of vectors in C),
 * splats as literals, shuffles by the builtin both compilers have, and
 * reductions as the one fixed tree: the lower half with the upper half.
 */
#include "backends/print_c/internal.h"

const char *c_need_select(struct print *p, enum c_element e, int lanes)
{
	struct print_helper h = {arena_printf(p->arena, "select_%s", c_suffix(p, e, lanes)), e, lanes, {0}};
	return print_helper(p, c_bits(e) == 32 ? "select of 32 bits" : "select", &h);
}

const char *c_need_splat(struct print *p, enum c_element e, int lanes)
{
	const char *name = arena_printf(p->arena, "splat_%s", c_suffix(p, e, lanes));
	if (strmap_has(&p->needed, name))
		return name;
	struct print_helper h = {name, e, lanes, {c_fill(p, "x", lanes)}};
	return print_helper(p, "splat", &h);
}

enum print_level c_splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *name = c_need_splat(p, c_element_of(i->type.scalar, i->type.lanes), i->type.lanes);
	if (i->type.scalar != KB_BOOL)
		return print_call_text(p, i, 0, name, out);
	buf_printf(out, "%s(-(int32_t)%s)", name, print_arg(p, i, 0));
	return PRINT_PRIMARY;
}

enum print_level c_select(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	if (lanes == 1) {
		buf_printf(out, "%s ? %s : %s", print_arg(p, i, 0), print_arg(p, i, 1), print_arg(p, i, 2));
		return PRINT_LOOSE;
	}
	return print_call_text(p, i, 0, c_need_select(p, c_element_of(i->type.scalar, lanes), lanes), out);
}

static enum print_level lane(const struct print *p, const struct kb_inst *i, size_t k, int number,
                             struct buf *out)
{
	const struct print_value *v = print_arg_value(p, i, k);
	bool is_bool = i->type.scalar == KB_BOOL;
	buf_printf(out, v->is_name || v->text != v->bare ? "%s[%d]" : "(%s)[%d]", v->text, number);
	buf_str(out, is_bool ? " != 0" : "");
	return is_bool ? PRINT_LOOSE : PRINT_PRIMARY;
}

enum print_level c_lane(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return lane(p, i, 0, i->lane, out);
}

/* Lanes of scalars, one after another. */
static enum print_level shuffle_scalars(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	bool is_bool = i->type.scalar == KB_BOOL && i->type.lanes > 1;
	if (i->type.lanes == 1)
		return print_same(p, i, (size_t)i->lanes[0], out);
	buf_printf(out, "(%s)", c_type(p, e, i->type.lanes));
	for (int k = 0; k < i->type.lanes; k++)
		buf_printf(out, "%s%s%s", k ? ", " : "{", is_bool ? "-(int32_t)" : "",
		           print_arg(p, i, (size_t)i->lanes[k]));
	buf_char(out, '}');
	return PRINT_PRIMARY;
}

enum print_level c_shuffle(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int from = print_arg_type(p, i, 0).lanes;
	if (from == 1)
		return shuffle_scalars(p, i, out);
	if (i->type.lanes == 1)
		return lane(p, i, i->lanes[0] < from ? 0 : 1, i->lanes[0] % from, out);
	(void)c_type(p, c_element_of(i->type.scalar, i->type.lanes), i->type.lanes);
	buf_printf(out, "__builtin_shufflevector(%s, %s", print_arg(p, i, 0), print_arg(p, i, i->n_args > 1));
	for (int k = 0; k < i->type.lanes; k++)
		buf_printf(out, ", %d", i->lanes[k]);
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

enum print_level c_lookup16(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	struct print_helper h = {arena_printf(p->arena, "lookup16_%s", c_suffix(p, C_U8, lanes)),
	                         C_U8,
	                         lanes,
	                         {c_type(p, C_U8, 16)}};
	return print_call_text(p, i, 0, print_helper(p, "lookup16", &h), out);
}

/* ---- reductions ---- */

static const char *lane_list(struct print *p, int first, int n)
{
	const char *text = arena_printf(p->arena, "%d", first);
	for (int k = 1; k < n; k++)
		text = arena_printf(p->arena, "%s, %d", text, first + k);
	return text;
}

/* a op b of n lanes. */
static const char *combine(struct print *p, enum kb_bin op, enum c_element e, int n)
{
	if (op != KB_ADD)
		return arena_printf(p->arena, "%s(a, b)", c_need_extreme(p, op, e, n));
	if (c_is_float(e))
		return "a + b";
	const char *words = c_type(p, c_unsigned(e), n);
	return arena_printf(p->arena, "(%s)((%s)a + (%s)b)", c_type(p, e, n), words, words);
}

static const char *need_reduce(struct print *p, enum kb_bin op, enum c_element e, int lanes)
{
	int n = lanes / 2;
	const char *name = arena_printf(p->arena, "reduce_%s_%s", kb_bin_name(op), c_suffix(p, e, lanes));
	if (strmap_has(&p->needed, name))
		return name;
	const char *both = combine(p, op, e, n);
	if (n == 1)
		return print_helper(p, "reduce to one", &(struct print_helper){name, e, lanes, {both}});
	const char *rest = need_reduce(p, op, e, n);
	struct print_helper h = {
	        name, e, lanes, {c_type(p, e, n), lane_list(p, 0, n), lane_list(p, n, n), both, rest}};
	return print_helper(p, "reduce", &h);
}

enum print_level c_reduce(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = print_arg_type(p, i, 0).lanes;
	return print_call_text(p, i, 0, need_reduce(p, i->bin, c_element_of(i->type.scalar, 1), lanes), out);
}
