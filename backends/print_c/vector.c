/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes in portable C: selects as bit masks (gcc has no ?: of vectors in C),
 * splats as literals, shuffles by the builtin both compilers have, and
 * reductions as the one fixed tree: the lower half with the upper half.
 */
#include "backends/print_c/internal.h"

#include <string.h>

const char *c_need_select(struct print *p, enum c_element e, int lanes)
{
	const char *name = arena_printf(p->arena, "select_%s", c_suffix(p, e, lanes));
	if (!print_need(p, name))
		return name;
	const char *type = c_type(p, e, lanes), *mask = c_type(p, C_I32, lanes);
	const char *wide = c_type(p, c_signed(e), lanes);
	buf_printf(&p->helpers, C_INLINE "%s %s(%s is, %s a, %s b)\n{\n", type, name, mask, type, type);
	if (c_bits(e) != 32)
		buf_printf(&p->helpers, "\tconst %s m = __builtin_convertvector(is, %s);\n", wide, wide);
	const char *m = c_bits(e) == 32 ? "is" : "m";
	buf_printf(&p->helpers, "\treturn (%s)((%s & (%s)a) | (~%s & (%s)b));\n}\n", type, m, wide, m, wide);
	return name;
}

const char *c_need_splat(struct print *p, enum c_element e, int lanes)
{
	const char *name = arena_printf(p->arena, "splat_%s", c_suffix(p, e, lanes));
	if (!print_need(p, name))
		return name;
	const char *type = c_type(p, e, lanes);
	buf_printf(&p->helpers, C_INLINE "%s %s(%s x)\n{\n\treturn (%s)", type, name, c_element_scalar(e),
	           type);
	c_fill(&p->helpers, "x", lanes);
	buf_str(&p->helpers, ";\n}\n");
	return name;
}

static void splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "%s(", c_need_splat(p, c_element_of(i->type.scalar, i->type.lanes), i->type.lanes));
	if (i->type.scalar == KB_BOOL)
		buf_printf(out, "-(int32_t)%s", print_arg(p, i, 0));
	else
		print_bare_arg(p, i, 0, out);
	buf_char(out, ')');
}

static enum print_level select(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	if (lanes == 1) {
		buf_printf(out, "%s ? %s : %s", print_arg(p, i, 0), print_arg(p, i, 1), print_arg(p, i, 2));
		return PRINT_LOOSE;
	}
	buf_printf(out, "%s(", c_need_select(p, c_element_of(i->type.scalar, lanes), lanes));
	for (size_t k = 0; k < 3; k++) {
		buf_str(out, k ? ", " : "");
		print_bare_arg(p, i, k, out);
	}
	buf_char(out, ')');
	return PRINT_PRIMARY;
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

static enum print_level shuffle(struct print *p, const struct kb_inst *i, struct buf *out)
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

/* ---- reductions ---- */

static void half(struct buf *out, const char *from, int first, int n)
{
	buf_printf(out, "__builtin_shufflevector(%s, %s", from, from);
	for (int k = 0; k < n; k++)
		buf_printf(out, ", %d", first + k);
	buf_char(out, ')');
}

/* a op b of n lanes, where a and b are names. */
static void combine(struct print *p, enum kb_bin op, enum c_element e, int n, const char *extreme)
{
	struct buf *out = &p->helpers;
	const char *type = c_type(p, e, n);
	if (op != KB_ADD)
		buf_printf(out, "%s(a%d, b%d)", extreme, n, n);
	else if (c_is_float(e))
		buf_printf(out, "a%d + b%d", n, n);
	else
		buf_printf(out, "(%s)((%s)a%d + (%s)b%d)", type, c_type(p, c_unsigned(e), n), n,
		           c_type(p, c_unsigned(e), n), n);
}

static void reduce_tree(struct print *p, enum kb_bin op, enum c_element e, int lanes)
{
	struct buf *out = &p->helpers;
	const char *from = "x";
	for (int n = lanes / 2; n >= 1; n /= 2) {
		const char *type = c_type(p, e, n);
		const char *extreme = op == KB_ADD ? "" : c_need_extreme(p, op, e, n);
		buf_printf(out, "\tconst %s a%d = ", type, n);
		if (n == 1)
			buf_printf(out, "%s[0], b1 = %s[1]", from, from);
		else
			half(out, from, 0, n);
		if (n > 1) {
			buf_printf(out, ";\n\tconst %s b%d = ", type, n);
			half(out, from, n, n);
		}
		buf_printf(out, ";\n\tconst %s s%d = ", type, n);
		combine(p, op, e, n, extreme);
		buf_str(out, ";\n");
		from = arena_printf(p->arena, "s%d", n);
	}
	buf_printf(out, "\treturn %s;\n}\n", from);
}

static void reduce(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_bin op = i->bin;
	int lanes = print_arg_type(p, i, 0).lanes;
	enum c_element e = c_element_of(i->type.scalar, 1);
	const char *name = arena_printf(p->arena, "reduce_%s_%s", kb_bin_name(op), c_suffix(p, e, lanes));
	if (print_need(p, name)) {
		/* what it calls comes before it */
		for (int n = lanes / 2; n >= 1 && op != KB_ADD; n /= 2)
			(void)c_need_extreme(p, op, e, n);
		buf_printf(&p->helpers, C_INLINE "%s %s(%s x)\n{\n", c_element_scalar(e), name,
		           c_type(p, e, lanes));
		reduce_tree(p, op, e, lanes);
	}
	buf_printf(out, "%s(", name);
	print_bare_arg(p, i, 0, out);
	buf_char(out, ')');
}

enum print_level c_lanes(struct print *p, const struct kb_inst *i, struct buf *out)
{
	switch (i->op) {
	case KBO_SELECT: return select(p, i, out);
	case KBO_SPLAT: splat(p, i, out); return PRINT_PRIMARY;
	case KBO_LANE: return lane(p, i, 0, i->lane, out);
	case KBO_SHUFFLE: return shuffle(p, i, out);
	case KBO_REDUCE: reduce(p, i, out); return PRINT_PRIMARY;
	case KBO_CVT: return c_convert(p, i, out);
	case KBO_BITCAST: return c_bitcast(p, i, out);
	default: return c_arith(p, i, out);
	}
}
