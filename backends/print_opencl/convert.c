/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions. f16 goes through vload_half and vstore_half on a private copy of the bits (core OpenCL C, no
 * extension); bf16 is integer code of the record (kb_legalize). Floats saturate into integers, and NaN gives 0
 * explicitly: the standard leaves it to the device.
 */
#include "backends/print_opencl/convert.h"

#include <string.h>

struct conversion {
	struct print *p;
	const struct kb_inst *inst;
	struct buf *out;
	enum kb_scalar from, to;
	int lanes;
};

/* convert_float4( or as_float4( */
static void open_call(const struct conversion *c, const char *what, const char *to)
{
	buf_printf(c->out, "%s_%s", what, to);
	if (c->lanes > 1)
		buf_printf(c->out, "%d", c->lanes);
	buf_char(c->out, '(');
}

static void operand(const struct conversion *c)
{
	print_bare_arg(c->p, c->inst, 0, c->out);
}

/* The operand as a number of C: bools as 0 and 1. (A mask & 1 becomes an extension of a vector of bits, which
 * Oclgrind gets wrong.) */
static void print_number(const struct conversion *c)
{
	if (c->from == KB_BOOL && c->lanes > 1)
		buf_printf(c->out, "select((int%d)(0), (int%d)(1), %s)", c->lanes, c->lanes,
		           print_arg(c->p, c->inst, 0));
	else
		operand(c);
}

static void by_helper(const struct conversion *c, enum opencl_helper h, enum kb_scalar of)
{
	opencl_helper(c->p, h, of, c->lanes, c->out);
	buf_char(c->out, '(');
	operand(c);
	buf_char(c->out, ')');
}

static struct conversion conversion_of(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return (struct conversion){p, i, out, print_arg_type(p, i, 0).scalar, i->type.scalar, i->type.lanes};
}

enum print_level opencl_convert(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct conversion c = conversion_of(p, i, out);
	const char *name = opencl_scalar(c.to, p->options->index_bits);
	if (c.from == KB_F16 || c.to == KB_F16) {
		by_helper(&c, c.to == KB_F16 ? HELPER_F16_OF : HELPER_F16_TO, KB_F32);
	} else if (c.from == KB_F32) {
		by_helper(&c, HELPER_INT_OF, c.to);
	} else if (strcmp(name, opencl_scalar(c.from, p->options->index_bits)) != 0) {
		open_call(&c, "convert", name);
		print_number(&c);
		buf_char(out, ')');
	} else if (c.from != KB_BOOL || c.lanes == 1) {
		return print_same(p, i, 0, out);
	} else {
		print_number(&c);
	}
	return PRINT_PRIMARY;
}

/* Indices are i64 by contract: their bits are their value. */
enum print_level opencl_bitcast(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct conversion c = conversion_of(p, i, out);
	const char *to = opencl_scalar(c.to, p->options->index_bits);
	if (strcmp(opencl_scalar(c.from, p->options->index_bits), to) == 0)
		return print_same(p, i, 0, out);
	open_call(&c, c.from == KB_INDEX || c.to == KB_INDEX ? "convert" : "as", to);
	operand(&c);
	buf_char(out, ')');
	return PRINT_PRIMARY;
}
