/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helper functions of a file of OpenCL C: one for each operation without an
 * operator, type and lane count that the module uses, printed once before the
 * functions. The file forbids contraction, so that products are rounded where
 * templates do not ask for a fused multiply-add; only the helper for that
 * operation allows it (`mad` rounds twice on some devices that have fma, and
 * `fma` is emulated on those that do not).
 */
#include "backends/cfamily/opencl_text.h"

#include <string.h>

#include "backends/cfamily/opencl_convert.h"

#define HELPER_COUNT (HELPER_ODD_FLOAT + 1)

struct helpers {
	struct buf *out;
	int index_bits;
	bool seen[HELPER_COUNT][KB_PTR + 1][OPENCL_LANES_MAX + 1];
};

static void type_of(struct buf *out, const char *scalar, int lanes)
{
	buf_str(out, scalar);
	if (lanes > 1)
		buf_printf(out, "%d", lanes);
}

void opencl_helper_name(struct buf *out, enum opencl_helper h, enum kb_scalar s, int lanes, int index_bits)
{
	const char *scalar = opencl_scalar(s, index_bits);
	switch (h) {
	case HELPER_FMA: buf_str(out, "fma_"); break;
	case HELPER_ADD: buf_str(out, "sum_"); break;
	case HELPER_MIN: buf_str(out, "min_"); break;
	case HELPER_MAX: buf_str(out, "max_"); break;
	case HELPER_F16_OF: buf_str(out, "f16_of_"); break;
	case HELPER_F16_TO: buf_str(out, "f16_to_"); break;
	case HELPER_BF16_OF: buf_str(out, "bf16_of_"); break;
	case HELPER_INT_OF: buf_str(out, "trunc_"); break;
	case HELPER_ODD_FLOAT: buf_str(out, "odd_"); break;
	}
	type_of(out, scalar, lanes);
}

/* --- texts ------------------------------------------------------------------------------------------- */

/* static RESULT NAME(PARAM x */
static void open_function(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes,
                          const char *result, const char *param)
{
	buf_str(p->out, "static ");
	type_of(p->out, result, lanes);
	buf_char(p->out, ' ');
	opencl_helper_name(p->out, h, s, lanes, p->index_bits);
	buf_char(p->out, '(');
	type_of(p->out, param, lanes);
}

static void print_fma(struct helpers *p, int lanes)
{
	open_function(p, HELPER_FMA, KB_F32, lanes, "float", "float");
	buf_str(p->out, " a, ");
	type_of(p->out, "float", lanes);
	buf_str(p->out, " b, ");
	type_of(p->out, "float", lanes);
	buf_str(p->out, " c)\n{\n#pragma OPENCL FP_CONTRACT ON\n\treturn a * b + c;\n}\n\n");
}

/* x op y of two parts of a reduction, both plain names. */
static void combine(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes)
{
	const char *op = h == HELPER_MIN ? "<" : ">";
	const char *scalar = opencl_scalar(s, p->index_bits);
	if (h == HELPER_ADD && s != KB_F32) {
		buf_printf(p->out, "as_");
		type_of(p->out, scalar, lanes);
		buf_printf(p->out, "(as_u");
		type_of(p->out, scalar, lanes);
		buf_str(p->out, "(x) + as_u");
		type_of(p->out, scalar, lanes);
		buf_str(p->out, "(y))");
	} else if (h == HELPER_ADD) {
		buf_str(p->out, "x + y");
	} else if (s != KB_F32) {
		buf_str(p->out, h == HELPER_MIN ? "min(x, y)" : "max(x, y)");
	} else if (lanes == 1) {
		buf_printf(p->out, "x %s y ? x : y", op);
	} else {
		buf_printf(p->out, "select(y, x, x %s y)", op);
	}
}

/* The lower half op the upper half; what is left, by the helper of half the lanes. */
static void print_reduce(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes)
{
	const char *scalar = opencl_scalar(s, p->index_bits);
	int half = lanes / 2;
	buf_printf(p->out, "static %s ", scalar);
	opencl_helper_name(p->out, h, s, lanes, p->index_bits);
	buf_char(p->out, '(');
	type_of(p->out, scalar, lanes);
	buf_str(p->out, " v)\n{\n\t");
	type_of(p->out, scalar, half);
	buf_str(p->out, " x = v.lo, y = v.hi;\n\treturn ");
	if (half > 1) {
		opencl_helper_name(p->out, h, s, half, p->index_bits);
		buf_char(p->out, '(');
	}
	combine(p, h, s, half);
	buf_printf(p->out, "%s;\n}\n\n", half > 1 ? ")" : "");
}

static void print_f16(struct helpers *p, enum opencl_helper h, int lanes)
{
	struct buf *out = p->out;
	bool is_of = h == HELPER_F16_OF;
	open_function(p, h, KB_F32, lanes, is_of ? "ushort" : "float", is_of ? "float" : "ushort");
	buf_str(out, " x)\n{\n\t");
	if (is_of) {
		type_of(out, "ushort", lanes);
		buf_str(out, " bits;\n\t");
		type_of(out, "vstore_half", lanes);
		buf_str(out, "_rte(x, 0, (__private half *)&bits);\n\treturn bits;\n}\n\n");
	} else {
		buf_str(out, "return ");
		type_of(out, "vload_half", lanes);
		buf_str(out, "(0, (__private const half *)&x);\n}\n\n");
	}
}

/* Adds half of the last kept bit, less one when that bit is even; NaN keeps its sign and becomes quiet. */
static void print_bf16(struct helpers *p, int lanes)
{
	struct buf *out = p->out;
	open_function(p, HELPER_BF16_OF, KB_F32, lanes, "ushort", "float");
	buf_str(out, " x)\n{\n\t");
	type_of(out, "uint", lanes);
	buf_str(out, " bits = as_");
	type_of(out, "uint", lanes);
	buf_str(out, "(x), high = bits >> 16;\n\t");
	type_of(out, "uint", lanes);
	buf_str(out, " near = (bits + 0x7fffu + (high & 1u)) >> 16;\n\treturn convert_");
	type_of(out, "ushort", lanes);
	buf_str(out, lanes == 1 ? "((bits & 0x7fffffffu) > 0x7f800000u ? high | 0x40u : near);\n}\n\n"
	                        : "(select(near, high | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u));\n}\n\n");
}

/* Lanes of a mask for integers of the type: as wide as they. */
static void print_is_nan(struct helpers *p, enum kb_scalar to, int lanes)
{
	const char *scalar = opencl_scalar(to, p->index_bits);
	if (to == KB_U8)
		scalar = "char";
	if (strcmp(scalar, "int") == 0 || lanes == 1) {
		buf_str(p->out, "isnan(x)");
		return;
	}
	buf_str(p->out, "convert_");
	type_of(p->out, scalar, lanes);
	buf_str(p->out, "(isnan(x))");
}

static void print_int_of(struct helpers *p, enum kb_scalar to, int lanes)
{
	const char *scalar = opencl_scalar(to, p->index_bits);
	struct buf *out = p->out;
	open_function(p, HELPER_INT_OF, to, lanes, scalar, "float");
	buf_str(out, " x)\n{\n\treturn ");
	if (lanes == 1) {
		buf_printf(out, "isnan(x) ? (%s)0 : convert_%s_sat(x);\n}\n\n", scalar, scalar);
		return;
	}
	buf_str(out, "select(convert_");
	type_of(out, scalar, lanes);
	buf_str(out, "_sat(x), (");
	type_of(out, scalar, lanes);
	buf_str(out, ")(0), ");
	print_is_nan(p, to, lanes);
	buf_str(out, ");\n}\n\n");
}

/* The float next to x toward zero, its last bit set when anything was lost. */
static void print_odd_float(struct helpers *p, enum kb_scalar from, int lanes)
{
	const char *scalar = opencl_scalar(from, p->index_bits);
	struct buf *out = p->out;
	bool is_long = strcmp(scalar, "long") == 0;
	const char *mask_open = is_long && lanes > 1 ? "convert_int" : "";
	open_function(p, HELPER_ODD_FLOAT, from, lanes, "float", scalar);
	buf_str(out, " x)\n{\n\t");
	type_of(out, "float", lanes);
	buf_str(out, " near = convert_");
	type_of(out, "float", lanes);
	buf_str(out, "(x);\n\t");
	type_of(out, scalar, lanes);
	buf_str(out, " back = convert_");
	type_of(out, scalar, lanes);
	buf_str(out, "_sat(near);\n\t");
	type_of(out, "int", lanes);
	buf_str(out, " away = ");
	type_of(out, mask_open, *mask_open ? lanes : 1);
	buf_str(out, "(abs(back) > abs(x)) & 1, lost = ");
	type_of(out, mask_open, *mask_open ? lanes : 1);
	buf_str(out, "(back != x) & 1;\n\treturn as_");
	type_of(out, "float", lanes);
	buf_str(out, "((as_");
	type_of(out, "int", lanes);
	buf_str(out, "(near) - away) | lost);\n}\n\n");
}

/* --- what a module needs ----------------------------------------------------------------------------- */

static void need(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes)
{
	bool *seen = &p->seen[h][s][lanes];
	if (*seen)
		return;
	*seen = true;
	switch (h) {
	case HELPER_FMA: print_fma(p, lanes); return;
	case HELPER_ADD:
	case HELPER_MIN:
	case HELPER_MAX:
		if (lanes > 2)
			need(p, h, s, lanes / 2);
		print_reduce(p, h, s, lanes);
		return;
	case HELPER_F16_OF:
	case HELPER_F16_TO: print_f16(p, h, lanes); return;
	case HELPER_BF16_OF: print_bf16(p, lanes); return;
	case HELPER_INT_OF: print_int_of(p, s, lanes); return;
	case HELPER_ODD_FLOAT: print_odd_float(p, s, lanes); return;
	}
}

/* Index has the helpers of the integer that carries it. */
static enum kb_scalar carried(const struct helpers *p, enum kb_scalar s)
{
	if (s != KB_INDEX)
		return s;
	return p->index_bits == 64 ? KB_I64 : KB_I32;
}

static void need_of_inst(struct helpers *p, const struct kb_func *f, const struct kb_inst *i)
{
	struct opencl_call calls[OPENCL_CONVERT_CALLS];
	struct kb_type from = i->n_args ? f->types[i->args[0].id] : i->type;
	if (from.lanes > OPENCL_LANES_MAX)
		return; /* refused elsewhere */
	if (i->op == KBO_FMA)
		need(p, HELPER_FMA, KB_F32, from.lanes);
	if (i->op == KBO_REDUCE)
		need(p,
		     i->sub == KB_ADD   ? HELPER_ADD
		     : i->sub == KB_MIN ? HELPER_MIN
		                        : HELPER_MAX,
		     carried(p, from.scalar), from.lanes);
	if (i->op != KBO_CVT)
		return;
	size_t n = opencl_convert_calls(from.scalar, i->type.scalar, calls);
	for (size_t c = 0; c < n; c++)
		need(p, calls[c].helper, carried(p, calls[c].scalar), from.lanes);
}

void opencl_helpers(struct buf *out, const struct kb_module *m, int index_bits)
{
	struct helpers p = {.out = out, .index_bits = index_bits};
	for (size_t i = 0; i < kb_func_count(m); i++) {
		const struct kb_func *f = kb_func_at(m, i);
		for (size_t k = 0; k < f->n_insts; k++)
			need_of_inst(&p, f, &f->insts[k]);
	}
}
