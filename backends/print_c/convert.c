/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions in portable C: floats saturate into integers, NaN gives 0. Those of small floats are integer code of
 * the record (kb_legalize).
 */
#include "backends/print_c/internal.h"

/* ---- float to integer ---- */

struct limits {
	const char *lo, *hi;         /* as floats: outside them is saturated */
	const char *least, *largest; /* as integers */
};

static struct limits limits_of(enum c_element e, bool wide)
{
	switch (e) {
	case C_I8: return (struct limits){"-128.0", "127.0", "INT8_MIN", "INT8_MAX"};
	case C_U8: return (struct limits){"0.0", "255.0", "0", "UINT8_MAX"};
	case C_I16: return (struct limits){"-32768.0", "32767.0", "INT16_MIN", "INT16_MAX"};
	case C_I32:
		return (struct limits){"-2147483648.0", wide ? "2147483647.0" : "2147483648.0", "INT32_MIN",
		                       "INT32_MAX"};
	default: return (struct limits){"-0x1p63", "0x1p63", "INT64_MIN", "INT64_MAX"};
	}
}

static const char *need_saturating(struct print *p, enum c_element from, enum c_element to, int lanes)
{
	struct limits l = limits_of(to, from == C_F64);
	const char *name = arena_printf(p->arena, "%s_to_%s", c_element_name(from), c_suffix(p, to, lanes));
	const char *f = from == C_F32 ? "f" : "";
	bool is_one = lanes == 1;
	struct print_helper h = {
	        name,
	        to,
	        lanes,
	        {c_type(p, from, lanes), arena_printf(p->arena, "%s%s", l.lo, f),
	         arena_printf(p->arena, "%s%s", l.hi, f), is_one ? l.least : c_fill(p, l.least, lanes),
	         is_one ? l.largest : c_fill(p, l.largest, lanes), c_type(p, c_signed(from), lanes)}};
	return print_helper(p, is_one ? "saturating conversion of one" : "saturating conversion", &h);
}

/* ---- the operations ---- */

/* Of one lane by a cast, of vectors by a builtin. */
static enum print_level cast(const char *type, int lanes, const char *text, struct buf *out)
{
	if (lanes > 1)
		buf_printf(out, "__builtin_convertvector(%s, %s)", text, type);
	else
		buf_printf(out, "(%s)%s", type, text);
	return lanes > 1 ? PRINT_PRIMARY : PRINT_SUM;
}

enum print_level c_cvt(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type from = print_arg_type(p, i, 0), to = i->type;
	enum c_element before = c_element_of(from.scalar, from.lanes),
	               after = c_element_of(to.scalar, to.lanes);
	bool is_mask = from.scalar == KB_BOOL && from.lanes > 1;
	const char *text = print_arg(p, i, 0);
	if (is_mask)
		text = arena_printf(p->arena, "(%s & 1)", text);
	if (before == after && is_mask) {
		buf_printf(out, "%s & 1", print_arg(p, i, 0));
		return PRINT_LOOSE;
	}
	if (before == after)
		return print_same(p, i, 0, out);
	if (!c_is_float(before) || c_is_float(after))
		return cast(c_type(p, after, to.lanes), to.lanes, text, out);
	buf_printf(out, "%s(%s)", need_saturating(p, before, after, to.lanes), text);
	return PRINT_PRIMARY;
}

enum print_level c_bitcast(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int before = print_arg_type(p, i, 0).lanes, lanes = i->type.lanes;
	enum c_element from = c_element_of(print_arg_type(p, i, 0).scalar, before),
	               to = c_element_of(i->type.scalar, lanes);
	bool are_ints = before == 1 && lanes == 1 && !c_is_float(from) && !c_is_float(to);
	if (from == to)
		return print_same(p, i, 0, out);
	if (are_ints || (before > 1 && lanes > 1)) {
		buf_printf(out, "(%s)%s", c_type(p, to, lanes), print_arg(p, i, 0));
		return PRINT_SUM;
	}
	const char *name =
	        arena_printf(p->arena, "%s_bits_%s", c_suffix(p, from, before), c_suffix(p, to, lanes));
	(void)print_helper(p, "bits", &(struct print_helper){name, to, lanes, {c_type(p, from, before)}});
	return print_call_text(p, i, 0, name, out);
}
