/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helper functions of a file of OpenCL C: one for each operation without an
 * operator, type and lane count that the module uses, printed once before the
 * functions. The file forbids contraction, so that products are rounded where
 * templates do not ask for a fused multiply-add; only the helper for that
 * operation allows it (`mad` rounds twice on some devices that have fma, and
 * `fma` is emulated on those that do not).
 */
#include "backends/print_opencl/text.h"

#include <string.h>

#include "ir/support/compiler.h"

struct helpers {
	struct print *p;
	struct buf *out; /* the helpers of the file */
	int index_bits;
};

static void type_of(struct buf *out, const char *scalar, int lanes)
{
	buf_str(out, scalar);
	if (lanes > 1)
		buf_printf(out, "%d", lanes);
}

static const char *const prefixes[] = {
        [HELPER_FMA] = "fma_",       [HELPER_LESSER] = "lesser_", [HELPER_GREATER] = "greater_",
        [HELPER_SUM] = "sum_",       [HELPER_LEAST] = "least_",   [HELPER_MOST] = "most_",
        [HELPER_F16_OF] = "f16_of_", [HELPER_F16_TO] = "f16_to_", [HELPER_INT_OF] = "trunc_",
};

/* float, int8, ...: the name of an element, and nothing or a number of lanes. */
bool opencl_is_type(const char *name)
{
	static const char *const scalars[] = {"char", "uchar", "short", "ushort", "int", "uint",
	                                      "long", "ulong", "float", "double", "half"};
	static const char *const lanes[] = {"", "2", "3", "4", "8", "16"};
	for (size_t i = 0; i < TFMC_COUNT(scalars); i++) {
		size_t n = strlen(scalars[i]);
		for (size_t k = 0; strncmp(name, scalars[i], n) == 0 && k < TFMC_COUNT(lanes); k++)
			if (strcmp(name + n, lanes[k]) == 0)
				return true;
	}
	return false;
}

bool opencl_is_helper(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(prefixes); i++) {
		size_t n = strlen(prefixes[i]);
		if (strncmp(name, prefixes[i], n) == 0 && opencl_is_type(name + n))
			return true;
	}
	return false;
}

static void helper_name(struct buf *out, enum opencl_helper h, enum kb_scalar s, int lanes, int index_bits)
{
	buf_str(out, prefixes[h]);
	type_of(out, opencl_scalar(s, index_bits), lanes);
}

/* ---- texts ---- */

/* static RESULT NAME(PARAM x */
static void open_function(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes,
                          const char *result, const char *param)
{
	buf_str(p->out, "static ");
	type_of(p->out, result, lanes);
	buf_char(p->out, ' ');
	helper_name(p->out, h, s, lanes, p->index_bits);
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

/* The rule for NaN is in the order of the operands. */
static void print_pick(struct helpers *p, enum opencl_helper h, int lanes)
{
	char op = h == HELPER_LESSER ? '<' : '>';
	open_function(p, h, KB_F32, lanes, "float", "float");
	buf_str(p->out, " a, ");
	type_of(p->out, "float", lanes);
	buf_printf(p->out,
	           lanes == 1 ? " b)\n{\n\treturn a %c b ? a : b;\n}\n\n"
	                      : " b)\n{\n\treturn select(b, a, a %c b);\n}\n\n",
	           op);
}

/* x op y of two parts of a reduction, both plain names. */
static void combine(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes)
{
	const char *op = h == HELPER_LEAST ? "<" : ">";
	const char *scalar = opencl_scalar(s, p->index_bits);
	if (h == HELPER_SUM && s != KB_F32) {
		buf_printf(p->out, "as_");
		type_of(p->out, scalar, lanes);
		buf_printf(p->out, "(as_u");
		type_of(p->out, scalar, lanes);
		buf_str(p->out, "(x) + as_u");
		type_of(p->out, scalar, lanes);
		buf_str(p->out, "(y))");
	} else if (h == HELPER_SUM) {
		buf_str(p->out, "x + y");
	} else if (s != KB_F32) {
		buf_str(p->out, h == HELPER_LEAST ? "min(x, y)" : "max(x, y)");
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
	helper_name(p->out, h, s, lanes, p->index_bits);
	buf_char(p->out, '(');
	type_of(p->out, scalar, lanes);
	buf_str(p->out, " v)\n{\n\t");
	type_of(p->out, scalar, half);
	buf_str(p->out, " x = v.lo, y = v.hi;\n\treturn ");
	if (half > 1) {
		helper_name(p->out, h, s, half, p->index_bits);
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

/* ---- asking ---- */

static bool is_new(struct helpers *h, const struct buf *name)
{
	return !buf_failed(name) && print_need(h->p, name->data);
}

static void print_helper(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes);

/* A helper and before it what it calls. */
static void need(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes)
{
	struct buf name;
	buf_init(&name);
	helper_name(&name, h, s, lanes, p->index_bits);
	bool wanted = is_new(p, &name);
	buf_destroy(&name);
	if (wanted)
		print_helper(p, h, s, lanes);
}

static void print_helper(struct helpers *p, enum opencl_helper h, enum kb_scalar s, int lanes)
{
	switch (h) {
	case HELPER_FMA: print_fma(p, lanes); return;
	case HELPER_LESSER:
	case HELPER_GREATER: print_pick(p, h, lanes); return;
	case HELPER_SUM:
	case HELPER_LEAST:
	case HELPER_MOST:
		if (lanes > 2)
			need(p, h, s, lanes / 2);
		print_reduce(p, h, s, lanes);
		return;
	case HELPER_F16_OF:
	case HELPER_F16_TO: print_f16(p, h, lanes); return;
	case HELPER_INT_OF: print_int_of(p, s, lanes); return;
	}
}

static struct helpers helpers_of(struct print *p)
{
	return (struct helpers){p, &p->helpers, p->options->index_bits};
}

void opencl_helper(struct print *p, enum opencl_helper h, enum kb_scalar s, int lanes, struct buf *out)
{
	struct helpers all = helpers_of(p);
	need(&all, h, s, lanes);
	helper_name(out, h, s, lanes, p->options->index_bits);
}

/* ---- shuffles of two operands ---- */

/* shuffle_float4_0819, of one vector permute_float4_1032: the lanes in digits of base 32, those of b after those of a */
static void shuffle_name(struct buf *out, const struct kb_inst *i, int from, int index_bits)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
	buf_str(out, i->n_args > 1 ? "shuffle_" : "permute_");
	if (i->type.scalar == KB_BOOL)
		buf_str(out, "bool_");
	type_of(out, opencl_scalar(i->type.scalar, index_bits), from);
	buf_char(out, '_');
	for (int k = 0; k < i->type.lanes; k++)
		buf_char(out, digits[i->lanes[k] & 31]);
}

static void print_shuffle(struct helpers *p, const struct kb_inst *i, int from, const char *name)
{
	const char *scalar = opencl_scalar(i->type.scalar, p->index_bits);
	const char *sign = from == 1 && i->type.scalar == KB_BOOL ? "-" : "";
	buf_str(p->out, "static ");
	type_of(p->out, scalar, i->type.lanes);
	buf_printf(p->out, " %s(", name);
	type_of(p->out, scalar, from);
	buf_str(p->out, " a");
	if (i->n_args > 1) {
		buf_str(p->out, ", ");
		type_of(p->out, scalar, from);
		buf_str(p->out, " b");
	}
	buf_str(p->out, ")\n{\n\treturn (");
	type_of(p->out, scalar, i->type.lanes);
	buf_str(p->out, ")(");
	for (int k = 0; k < i->type.lanes; k++) {
		buf_printf(p->out, "%s%s%c", k ? ", " : "", sign, i->lanes[k] < from ? 'a' : 'b');
		if (from > 1)
			buf_printf(p->out, ".s%x", (unsigned)(i->lanes[k] % from));
	}
	buf_str(p->out, ");\n}\n\n");
}

void opencl_shuffle_helper(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct helpers all = helpers_of(p);
	struct buf name;
	int from = print_arg_type(p, i, 0).lanes;
	buf_init(&name);
	shuffle_name(&name, i, from, all.index_bits);
	if (is_new(&all, &name))
		print_shuffle(&all, i, from, name.data);
	buf_str(out, name.data);
	buf_destroy(&name);
}
