/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes in OpenCL C: selects by masks as wide as the lanes, reductions as the one fixed tree: the lower half with the
 * upper half.
 */
#include "backends/print_opencl/internal.h"

/* "(int4)(" */
static void vector_begin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "(%s)(", opencl_type(p, i->type.scalar, i->type.lanes));
}

enum print_level opencl_lane_ids(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (i->type.lanes == 1) {
		buf_char(out, '0');
		return PRINT_PRIMARY;
	}
	vector_begin(p, i, out);
	for (int k = 0; k < i->type.lanes; k++)
		buf_printf(out, "%s%d", k ? ", " : "", k);
	buf_char(out, ')');
	return PRINT_SUM;
}

enum print_level opencl_splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (i->type.lanes == 1)
		return print_same(p, i, 0, out);
	vector_begin(p, i, out);
	buf_printf(out, "%s%s)", i->type.scalar == KB_BOOL ? "-" : "", print_arg(p, i, 0));
	return PRINT_SUM;
}

enum print_level opencl_select(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *c = print_arg(p, i, 0), *a = print_arg(p, i, 1), *b = print_arg(p, i, 2);
	int bytes = opencl_lane_bytes(p, i->type.scalar);
	if (i->type.lanes == 1) {
		buf_printf(out, "%s ? %s : %s", c, a, b);
		return PRINT_LOOSE;
	}
	if (bytes == 4)
		buf_printf(out, "select(%s, %s, %s)", b, a, c);
	else
		buf_printf(out, "select(%s, %s, convert_%s%d(%s))", b, a,
		           bytes == 1   ? "char"
		           : bytes == 2 ? "short"
		                        : "long",
		           i->type.lanes, c);
	return PRINT_PRIMARY;
}

/* ---- shuffles ---- */

static enum print_level lane(const struct kb_inst *i, const char *vector, int number, struct buf *out)
{
	bool is_bool = i->type.scalar == KB_BOOL;
	buf_printf(out, is_bool ? "%s.s%x & 1" : "%s.s%x", vector, (unsigned)number);
	return is_bool ? PRINT_LOOSE : PRINT_PRIMARY;
}

enum print_level opencl_lane(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return lane(i, print_arg(p, i, 0), i->lane, out);
}

/* shuffle_float4_0819, of one vector permute_float4_1032: the lanes in digits of base 32, those of b after those of a */
static const char *need_shuffle(struct print *p, const struct kb_inst *i, int from)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
	bool is_bool = i->type.scalar == KB_BOOL, is_two = i->n_args > 1;
	const char *type = opencl_type(p, i->type.scalar, from);
	const char *name = arena_printf(p->arena, "%s%s%s_", is_two ? "shuffle_" : "permute_",
	                                is_bool ? "bool_" : "", type);
	const char *lanes = "";
	for (int k = 0; k < i->type.lanes; k++) {
		char which = i->lanes[k] < from ? 'a' : 'b';
		name = arena_printf(p->arena, "%s%c", name, digits[i->lanes[k] & 31]);
		lanes = arena_printf(p->arena, "%s%s%s%c", lanes, k ? ", " : "",
		                     from == 1 && is_bool ? "-" : "", which);
		if (from > 1)
			lanes = arena_printf(p->arena, "%s.s%x", lanes, (unsigned)(i->lanes[k] % from));
	}
	const char *params = arena_printf(p->arena, is_two ? "%s a, %s b" : "%s a", type, type);
	return print_helper(p, "shuffle",
	                    &(struct print_helper){name, i->type.scalar, i->type.lanes, {params, lanes}});
}

enum print_level opencl_shuffle(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int from = print_arg_type(p, i, 0).lanes, n = i->type.lanes;
	if (n == 1 && from == 1)
		return print_same(p, i, (size_t)i->lanes[0], out);
	if (n == 1)
		return lane(i, print_arg(p, i, (size_t)(i->lanes[0] / from)), i->lanes[0] % from, out);
	if (i->n_args > 1 || from == 1)
		return print_call_text(p, i, 0, need_shuffle(p, i, from), out);
	buf_printf(out, "%s.s", print_arg(p, i, 0));
	for (int k = 0; k < n; k++)
		buf_printf(out, "%x", (unsigned)i->lanes[k]);
	return PRINT_PRIMARY;
}

enum print_level opencl_lookup16(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return print_call_text(p, i, 0, "shuffle", out);
}

/* ---- reductions ---- */

/* x op y of `lanes` lanes, both plain names. */
static const char *combine(struct print *p, enum kb_bin op, enum kb_scalar s, int lanes)
{
	const char *sign = kb_bin_sign(op), *type = opencl_type(p, s, lanes);
	if (op == KB_ADD && s == KB_F32)
		return "x + y";
	if (op == KB_ADD)
		return arena_printf(p->arena, "as_%s(as_u%s(x) + as_u%s(y))", type, type, type);
	if (s != KB_F32)
		return op == KB_MIN ? "min(x, y)" : "max(x, y)";
	return arena_printf(p->arena, lanes == 1 ? "x %s y ? x : y" : "select(y, x, x %s y)", sign);
}

static const char *need_reduce(struct print *p, enum kb_bin op, enum kb_scalar s, int lanes)
{
	int half = lanes / 2;
	const char *rest = half > 1 ? arena_printf(p->arena, "%s(", need_reduce(p, op, s, half)) : "";
	return opencl_need(p, "reduce",
	                   op == KB_ADD   ? "sum"
	                   : op == KB_MIN ? "least"
	                                  : "most",
	                   (struct print_helper){NULL,
	                                         s,
	                                         lanes,
	                                         {opencl_type(p, s, half), combine(p, op, s, half), rest,
	                                          half > 1 ? ")" : ""}});
}

enum print_level opencl_reduce(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = print_arg_type(p, i, 0).lanes;
	return print_call_text(p, i, 0, need_reduce(p, i->bin, i->type.scalar, lanes), out);
}
