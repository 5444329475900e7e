/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL C 1.2 dialect, without extensions. Parameters of kernels point to global memory; the address spaces of
 * other pointers are inferred (backends/print/space.h). A source location of the model is printed as a #line
 * directive, so that compiler messages name the step of the model and the line in its kernel. Types of values: f16 and
 * bf16 as their bits (ushort), bool as int 0 or 1, vectors of bools as intN with lanes 0 or -1, pointers as uchar * in
 * their address space. An expression uses each operand once.
 *
 * The functions opencl_OPERATION are the rows of `ops`: they print the expression of an instruction to `out` and return
 * its precedence, by which the expression that uses it decides about parentheses. need_HELPER requests a helper and
 * returns its name.
 *
 * A helper is a function of the emitted file, made from a block of the prelude for an element type and a number of
 * lanes; a helper is requested after those that it calls. idx is the type of indices, int or long (index_bits); in
 * memory an index is always long. to: address space of a pointer's target. Operand k of an instruction is printed by
 * print_arg (in parentheses where needed) or print_bare_arg; imm is a constant displacement in elements.
 *
 * Memory: scalars through pointers to the element type. A vector is the member of a packed struct with the known
 * alignment of the access: GPU compilers split a load into scalar ones if less than the full vector is aligned. Not
 * vload and vstore, which assume the alignment of an element, and which drivers implement as library functions that
 * double the time to compile. Masked accesses are scalar, because the memory after the last lane belongs to other
 * data.
 *
 * Signed arithmetic that may wrap goes through the unsigned type; indices never wrap by contract. min and max of
 * floats are compare and select, because fmin has another NaN rule. Floats saturate into integers, and NaN becomes 0
 * explicitly: the standard leaves it to the device. f16 goes through vload_half and vstore_half on a private copy of
 * the bits.
 */
#include "backends/print/print.h"
#include "ir/support/compiler.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define OPENCL_LANES_MAX 16

/* ---- types ---- */

/* The type of a scalar value: "int", "float", "ushort"; KB_INDEX by index_bits. */
static const char *opencl_scalar(const struct print *p, enum kb_scalar s)
{
	switch (s) {
	case KB_VOID: return "void";
	case KB_BOOL: return "int";
	case KB_I8: return "char";
	case KB_U8: return "uchar";
	case KB_I16: return "short";
	case KB_I32: return "int";
	case KB_I64: return "long";
	case KB_INDEX: return p->options->index_bits == 64 ? "long" : "int";
	case KB_U16:
	case KB_F16:
	case KB_BF16: return "ushort";
	case KB_F32: return "float";
	case KB_F64: return "double";
	case KB_PTR: return "uchar *";
	}
	return "";
}

/* The type of an element in memory: as opencl_scalar, but KB_INDEX is long. */
static const char *opencl_memory_scalar(const struct print *p, enum kb_scalar s)
{
	return s == KB_INDEX ? "long" : opencl_scalar(p, s);
}

/* `name` with a number of lanes: "float8"; `name` for one lane. In p->arena. */
static const char *opencl_lanes(const struct print *p, const char *name, int lanes)
{
	return lanes > 1 ? arena_printf(p->arena, "%s%d", name, lanes) : name;
}

static const char *opencl_type(const struct print *p, enum kb_scalar s, int lanes)
{
	return opencl_lanes(p, opencl_scalar(p, s), lanes);
}

/* Bytes of a lane of a value. */
static int opencl_lane_bytes(const struct print *p, enum kb_scalar s)
{
	return s == KB_BOOL ? 4 : s == KB_INDEX ? p->options->index_bits / 8 : kb_scalar_bytes(s);
}

/* Prints the qualifiers of a pointer's target: "__global const ". */
static void opencl_qualifiers(struct space_pointer to, struct buf *out)
{
	buf_printf(out, "%s %s", space_qualifier(to.space),
	           !to.is_written && to.space != SPACE_CONSTANT ? "const " : "");
}

/* ---- memory ---- */

/* (__global const float *)p; operand k is the pointer. */
static void element_pointer(struct print *p, const struct kb_inst *i, size_t k, struct buf *out)
{
	buf_char(out, '(');
	opencl_qualifiers(print_arg_space(p, i, k), out);
	buf_printf(out, "%s *)%s", opencl_memory_scalar(p, i->type.scalar), print_arg(p, i, k));
}

static void print_disp(int64_t disp, struct buf *out)
{
	if (disp > 0)
		buf_printf(out, " + %" PRId64, disp);
	else if (disp < 0)
		buf_printf(out, " - %" PRIu64, 0 - (uint64_t)disp);
}

/* " + i + 3": operand k and the displacement */
static void print_index(struct print *p, const struct kb_inst *i, size_t k, struct buf *out)
{
	int64_t c;
	if (!print_const_arg(p, i, k, &c) || c != 0)
		buf_printf(out, " + %s", print_arg(p, i, k));
	print_disp(i->imm, out);
}

/* ((__global const float *)p)[i + 3]; operand k is the pointer, the next one the index; lane: added to the
 * displacement. */
static void element(struct print *p, const struct kb_inst *i, size_t k, int lane, struct buf *out)
{
	int64_t c, disp = (int64_t)((uint64_t)i->imm + (uint64_t)lane);
	bool is_zero = print_const_arg(p, i, k + 1, &c) && c == 0;
	buf_char(out, '(');
	element_pointer(p, i, k, out);
	buf_str(out, ")[");
	if (is_zero)
		buf_printf(out, "%" PRId64, disp);
	else if (disp == 0)
		buf_str(out, print_bare_arg(p, i, k + 1));
	else
		buf_str(out, print_arg(p, i, k + 1));
	if (!is_zero)
		print_disp(disp, out);
	buf_char(out, ']');
}

/* ((__global const struct packed16_float4 *)((__global const float *)p + i))->v; operand k is the pointer. The
 * struct's alignment is what is known of the access, at most the vector's size. */
static void packed_vector(struct print *p, const struct kb_inst *i, size_t k, struct buf *out)
{
	const char *type = opencl_lanes(p, opencl_memory_scalar(p, i->type.scalar), i->type.lanes);
	int align = kb_access_align(p->alignments, i),
	    bytes = kb_scalar_bytes(i->type.scalar) * i->type.lanes;
	const char *text = arena_printf(p->arena, "%d", align < bytes ? align : bytes);
	struct print_helper h = {arena_printf(p->arena, "packed%s_%s", text, type),
	                         i->type.scalar,
	                         i->type.lanes,
	                         {type, text}};
	buf_str(out, "((");
	opencl_qualifiers(print_arg_space(p, i, k), out);
	buf_printf(out, "struct %s *)(", print_helper(p, "vector in memory", &h));
	element_pointer(p, i, k, out);
	print_index(p, i, k + 1, out);
	buf_str(out, "))->v");
}

/* KB_INDEX is long in memory; true if values of it are int. */
static bool is_narrowed(const struct print *p, enum kb_scalar s)
{
	return s == KB_INDEX && p->options->index_bits != 64;
}

static void check_alignment(struct print *p, const struct kb_inst *i)
{
	if (i->align < kb_scalar_bytes(i->type.scalar))
		print_fail(p, "misaligned elements in OpenCL C");
}

/* LOAD_PART: (float4)(p[0], p[1], 0, 0), lanes that are not loaded 0; LOAD_SPLAT: (float4)(p[0]), which OpenCL C
 * broadcasts. */
static void load_elements(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int n = i->op == KBO_LOAD_SPLAT ? 1 : i->type.lanes;
	buf_printf(out, "(%s%d)(", opencl_memory_scalar(p, i->type.scalar), i->type.lanes);
	for (int k = 0; k < n && k < KB_LANES_MAX; k++) {
		buf_str(out, k ? ", " : "");
		if (n == 1 || k < i->n_lanes)
			element(p, i, 0, k, out);
		else
			buf_char(out, '0');
	}
	buf_char(out, ')');
}

/* One element, a packed vector, or for masked and broadcast loads a vector literal of elements. Indices, which are long
 * in memory, are converted where idx is int. */
static enum print_prec opencl_load(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool narrow = is_narrowed(p, i->type.scalar), is_full = i->op == KBO_LOAD;
	check_alignment(p, i);
	if (narrow)
		buf_printf(out, "convert_%s(", opencl_lanes(p, "int", i->type.lanes));
	if (i->type.lanes == 1) {
		element(p, i, 0, 0, out);
	} else if (is_full) {
		packed_vector(p, i, 0, out);
	} else {
		load_elements(p, i, out);
	}
	buf_str(out, narrow ? ")" : "");
	return narrow || i->type.lanes == 1 || is_full ? PRINT_PRIMARY : PRINT_ADDITIVE;
}

/* An element or a packed vector; indices are converted to long. */
static enum print_prec opencl_store(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	bool narrow = is_narrowed(p, i->type.scalar) && lanes > 1;
	check_alignment(p, i);
	if (lanes == 1) {
		element(p, i, 1, 0, out);
		buf_printf(out, " = %s", print_bare_arg(p, i, 0));
		return PRINT_LOWEST;
	}
	packed_vector(p, i, 1, out);
	if (narrow)
		buf_printf(out, " = convert_long%d(%s)", lanes, print_bare_arg(p, i, 0));
	else
		buf_printf(out, " = %s", print_bare_arg(p, i, 0));
	return PRINT_LOWEST;
}

/* The stored value as a name, since it is used in several statements. */
static const char *named_value(struct print *p, const struct kb_inst *i)
{
	const char *value = print_arg(p, i, 0);
	if (print_arg_value(p, i, 0)->is_name)
		return value;
	const char *name = print_local_name(p, "part");
	print_line(p, "const %s %s = %s;", opencl_type(p, i->type.scalar, i->type.lanes), name, value);
	return name;
}

/* One statement for each lane that is stored; prints them itself, so `out` stays empty. */
static enum print_prec opencl_store_part(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *value = named_value(p, i);
	for (int k = 0; k < i->n_lanes; k++) {
		buf_clear(out);
		element(p, i, 1, k, out);
		print_line(p, "%s = %s.s%x;", out->data, value, (unsigned)k);
	}
	buf_clear(out);
	return PRINT_PRIMARY;
}

static enum print_prec opencl_ptr_add(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_str(out, print_arg(p, i, 0));
	size_t len = out->len;
	print_index(p, i, 1, out);
	return out->len > len ? PRINT_ADDITIVE : PRINT_PRIMARY;
}

static enum print_prec opencl_ptr_opaque(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return print_forwarded_arg(p, i, 0, out);
}

/* ---- values ---- */

/* Requests the block of prelude.cl.in for the type of h, under the name PREFIX_type. Returns the name. */
static const char *opencl_need(struct print *p, const char *block, const char *prefix, struct print_helper h)
{
	const char *type = opencl_type(p, (enum kb_scalar)h.element, h.lanes);
	h.name = arena_printf(p->arena, "%s_%s", prefix, type);
	return print_helper(p, block, &h);
}

/* ---- arithmetic ---- */

static bool is_wrapping(enum kb_scalar s)
{
	return s == KB_I32 || s == KB_I64;
}

static bool is_narrow(enum kb_scalar s)
{
	return kb_scalar_bytes(s) == 1 || kb_scalar_bytes(s) == 2;
}

/* The integer of the same width with a sign, or without. */
static const char *integer_type(struct print *p, struct kb_type t, bool is_signed)
{
	const char *type = opencl_type(p, t.scalar, t.lanes);
	if (is_signed)
		return *type == 'u' ? type + 1 : type;
	return *type == 'u' ? type : arena_printf(p->arena, "u%s", type);
}

/* as_int4(as_uint4(a) + as_uint4(b)); SAR in the signed type. Scalar integers below 32 bits, which are promoted to int,
 * are computed as uint, which no product of two overflows, and truncated; vectors are not promoted. */
static enum print_prec wrapping_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *type = opencl_type(p, i->type.scalar, i->type.lanes), *sign = kb_bin_sign(i->bin);
	const char *as = integer_type(p, i->type, i->bin == KB_SAR);
	const char *a = print_arg(p, i, 0), *b = print_arg(p, i, 1);
	if (i->type.lanes > 1 || !is_narrow(i->type.scalar))
		buf_printf(out, "as_%s(as_%s(%s) %s as_%s(%s))", type, as, a, sign, as, b);
	else
		buf_printf(out, "(%s)((%s)as_%s(%s) %s as_%s(%s))", type, i->bin == KB_SAR ? "int" : "uint",
		           as, a, sign, as, b);
	return PRINT_PRIMARY;
}

/* True if the operator must be computed in the unsigned type (SAR: in the signed one). */
static bool needs_unsigned(enum kb_bin op, enum kb_scalar s)
{
	bool shifts = op == KB_SHL || op == KB_SHR || (op == KB_SAR && is_narrow(s));
	bool wraps = op == KB_ADD || op == KB_SUB || op == KB_MUL;
	return shifts || (wraps && (is_wrapping(s) || is_narrow(s)));
}

/* a op b; index + (-1) is printed as index - 1. Narrow scalars are promoted to int by C, so they are cast back. */
static enum print_prec plain_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_bin op = i->bin;
	bool is_int = i->type.lanes == 1 && is_narrow(i->type.scalar); /* promoted to int by C */
	bool is_sum = op == KB_ADD && i->type.scalar == KB_INDEX && i->type.lanes == 1;
	int64_t c;
	if (is_sum && print_const_arg(p, i, 1, &c) && c < 0 && c != INT64_MIN)
		buf_printf(out, "%s - %lld%s", print_arg(p, i, 0), (long long)-c,
		           p->options->index_bits == 64 ? "L" : "");
	else if (is_int)
		buf_printf(out, "(%s)(%s %s %s)", opencl_scalar(p, i->type.scalar), print_arg(p, i, 0),
		           kb_bin_sign(op), print_arg(p, i, 1));
	else
		buf_printf(out, "%s %s %s", print_arg(p, i, 0), kb_bin_sign(op), print_arg(p, i, 1));
	return is_int                                                        ? PRINT_PRIMARY
	       : op == KB_AND || op == KB_OR || op == KB_XOR || op == KB_SAR ? PRINT_LOWEST
	                                                                     : PRINT_ADDITIVE;
}

/* Requests the helper of min or max of floats. */
static const char *need_min_max(struct print *p, enum kb_bin op, int lanes)
{
	return opencl_need(p, lanes == 1 ? "min or max, scalar" : "min or max",
	                   op == KB_MIN ? "lesser" : "greater",
	                   (struct print_helper){NULL, KB_F32, lanes, {kb_bin_sign(op)}});
}

/* MIN and MAX by helpers (floats) or built-in functions, others plainly or in the unsigned type. */
static enum print_prec opencl_bin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool picks = i->bin == KB_MIN || i->bin == KB_MAX;
	if (picks && i->type.scalar == KB_F32)
		return print_call_text(p, i, 0, need_min_max(p, i->bin, i->type.lanes), out);
	if (picks)
		return print_call_text(p, i, 0, kb_bin_name(i->bin), out);
	return needs_unsigned(i->bin, i->type.scalar) ? wrapping_bin(p, i, out) : plain_bin(p, i, out);
}

/* Logical of a scalar bool, else bitwise. */
static enum print_prec print_not(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type t = i->type;
	bool is_one = t.scalar == KB_BOOL && t.lanes == 1;
	/* C promotes narrow scalars to int: convert back */
	if (!is_one && t.lanes == 1 && !is_wrapping(t.scalar))
		buf_printf(out, "(%s)", opencl_scalar(p, t.scalar));
	buf_printf(out, "%s%s", is_one ? "!" : "~", print_arg(p, i, 0));
	return PRINT_ADDITIVE;
}

/* Negation of integers in the unsigned type, so that the least one wraps; others by built-in functions. */
static enum print_prec opencl_un(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool is_float = i->type.scalar == KB_F32;
	const char *a = print_arg(p, i, 0), *type = opencl_type(p, i->type.scalar, i->type.lanes);
	switch (i->un) {
	case KB_NEG:
		if (is_float)
			buf_printf(out, "-%s", a);
		else
			buf_printf(out, "as_%s(-as_u%s(%s))", type, type, a);
		return is_float ? PRINT_ADDITIVE : PRINT_PRIMARY;
	case KB_ABS:
		if (is_float)
			buf_printf(out, "fabs(%s)", a);
		else
			buf_printf(out, "as_%s(abs(%s))", type, a);
		return PRINT_PRIMARY;
	case KB_SQRT:
	case KB_FLOOR:
	case KB_CEIL: buf_printf(out, "%s(%s)", kb_un_name(i->un), a); return PRINT_PRIMARY;
	case KB_NOT: return print_not(p, i, out);
	}
	return PRINT_PRIMARY;
}

static enum print_prec opencl_fma(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct print_helper h = {NULL, KB_F32, i->type.lanes, {0}};
	return print_call_text(p, i, 0, opencl_need(p, "fma", "fma", h), out);
}

/* The body of a dot_s8s8 helper by the device's instruction (cl_khr_integer_dot_product), one lane after the
 * other, compiled only if the host defines TFMC_DOT; the generic body follows it. Sums wrap in the unsigned type. */
static const char *device_dot_body(struct print *p, const char *type, const char *unsigned_type, int lanes)
{
	const char *all = "";
	for (int i = 0; i < lanes; i++)
		all = arena_printf(p->arena, "%s%sdot_4x8packed_ss_int(as_uint(a.s%x), as_uint(b.s%x))", all,
		                   i ? ", " : "", (unsigned)i, (unsigned)i);
	return arena_printf(p->arena, "#if TFMC_DOT\n\treturn as_%s(as_%s(sum) + as_%s((%s)(%s)));\n#endif\n",
	                    type, unsigned_type, unsigned_type, type, all);
}

/* Prints a call of the helper for the dot product, such as dot_u8s8_int4(acc, a, b); others have been legalized to
 * those of bytes and i16. s8s8 has a body for devices with an instruction, too. */
static enum print_prec opencl_dot(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *type = opencl_type(p, KB_I32, i->type.lanes),
	           *unsigned_type = integer_type(p, i->type, false);
	struct print_helper h = {NULL,
	                         KB_I32,
	                         i->type.lanes,
	                         {unsigned_type, i->dot == KB_DOT_U8S8 ? unsigned_type : type, ""}};
	if (i->dot == KB_DOT_S8S8)
		h.args[2] = device_dot_body(p, type, unsigned_type, i->type.lanes);
	const char *block = i->dot == KB_DOT_S16S16 ? "dot of i16" : "dot of bytes";
	return print_call_text(p, i, 0, opencl_need(p, block, kb_dot_name(i->dot), h), out);
}

/* An int of scalars, a mask of int lanes of vectors. */
static enum print_prec opencl_cmp(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type t = print_arg_type(p, i, 0);
	const char *a = print_arg(p, i, 0), *b = print_arg(p, i, 1), *sign = kb_cmp_sign(i->cmp);
	/* a comparison gives a mask of lanes as wide as its operands */
	bool converts = t.lanes > 1 && opencl_lane_bytes(p, t.scalar) != 4;
	if (converts)
		buf_printf(out, "convert_int%d(%s %s %s)", t.lanes, a, sign, b);
	else
		buf_printf(out, "%s %s %s", a, sign, b);
	return converts ? PRINT_PRIMARY : PRINT_LOWEST;
}

/* ---- constants ---- */

/* An integer literal. There is no literal of the least int, which would be the negation of one that does not
 * fit. */
static enum print_prec opencl_const_int(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int64_t v = i->imm;
	bool is_wide = opencl_lane_bytes(p, i->type.scalar) == 8;
	if (i->type.scalar == KB_INDEX && !is_wide && v != (int32_t)v)
		print_fail(p, "an index beyond 32 bits");
	if (v == INT64_MIN)
		buf_str(out, "-0x7fffffffffffffffL - 1");
	else if (v == INT32_MIN && !is_wide)
		buf_str(out, "-0x7fffffff - 1");
	else
		buf_printf(out, "%lld%s", (long long)v, is_wide ? "L" : "");
	return v < 0 ? PRINT_ADDITIVE : PRINT_PRIMARY;
}

/* Small integers in decimal, other floats as hexadecimal literals, which are exact: the 23 bits of the fraction as six
 * digits (24 bits, shifted by one). Denormals have no implicit one and the exponent -126. bits: without sign. */
static void print_magnitude(struct buf *out, uint32_t bits)
{
	int exponent = (int)(bits >> 23) - 127;
	uint32_t fraction = bits & 0x7fffff, one = exponent < -126 ? 0 : 1;
	float v;
	memcpy(&v, &bits, sizeof v);
	if (v < 65536 && v == (float)(int)v)
		buf_printf(out, "%d.0f", (int)v);
	else
		buf_printf(out, "0x%u.%06xp%df", (unsigned)one, (unsigned)fraction << 1,
		           one ? exponent : -126);
}

/* Infinities and NaN are given by their bits: compilers with -cl-finite-math-only may assume that literals are
 * finite. */
static enum print_prec opencl_const_float(struct print *p, const struct kb_inst *i, struct buf *out)
{
	uint32_t bits;
	float v = (float)i->fimm;
	(void)p;
	memcpy(&bits, &v, sizeof bits);
	if (!isfinite(v)) {
		buf_printf(out, "as_float(0x%08xu)", (unsigned)bits);
		return PRINT_PRIMARY;
	}
	buf_str(out, bits >> 31 ? "-" : "");
	print_magnitude(out, bits & 0x7fffffff);
	return bits >> 31 ? PRINT_ADDITIVE : PRINT_PRIMARY;
}

static enum print_prec opencl_null(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	buf_char(out, '0');
	return PRINT_PRIMARY;
}

/* Number of the work-group, count of groups, or number of the item in its group, all in dimension 0. OpenCL returns
 * size_t: a cast makes it an index. */
static enum print_prec opencl_group_id(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	buf_printf(out, "(idx)%s(0)",
	           i->op == KBO_GROUP_ID      ? "get_group_id"
	           : i->op == KBO_GROUP_COUNT ? "get_num_groups"
	                                      : "get_local_id");
	return PRINT_ADDITIVE;
}

/* ---- conversions ---- */

/* Operand 0 as a number: vectors of bools as 0 and 1. Not `mask & 1`, which becomes a zext of a vector of i1, which
 * Oclgrind computes wrongly. */
static void print_number(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = i->type.lanes;
	if (print_arg_type(p, i, 0).scalar == KB_BOOL && lanes > 1)
		buf_printf(out, "select((int%d)(0), (int%d)(1), %s)", lanes, lanes, print_arg(p, i, 0));
	else
		buf_str(out, print_bare_arg(p, i, 0));
}

/* The helper between f16 bits and f32. is_to: from bits to f32. */
static const char *need_f16(struct print *p, bool is_to, int lanes)
{
	struct print_helper h = {NULL, KB_F32, lanes, {opencl_type(p, is_to ? KB_F16 : KB_F32, lanes)}};
	if (is_to)
		return opencl_need(p, "f16 from bits", "f16_to", h);
	h.name = arena_printf(p->arena, "f16_of_%s", opencl_type(p, KB_F32, lanes));
	h.element = KB_F16;
	return print_helper(p, "f16 to bits", &h);
}

/* The helper that converts f32 to integers: truncates, saturates, NaN gives 0 (isnan as a mask as wide as the
 * result). */
static const char *need_int(struct print *p, enum kb_scalar to, int lanes)
{
	const char *mask = to == KB_U8 ? "char" : opencl_scalar(p, to);
	const char *nan = strcmp(mask, "int") == 0 ? "isnan(x)"
	                                           : arena_printf(p->arena, "convert_%s(isnan(x))",
	                                                          opencl_lanes(p, mask, lanes));
	struct print_helper h = {NULL, to, lanes, {opencl_type(p, KB_F32, lanes), nan}};
	return opencl_need(p, lanes == 1 ? "float to integer, scalar" : "float to integer", "trunc", h);
}

/* By a helper for f16 and from floats, else convert_TYPE; nothing where both types are the same in OpenCL C, except for
 * vectors of bools, whose true is -1 and becomes 1. */
static enum print_prec opencl_cvt(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_scalar from = print_arg_type(p, i, 0).scalar, to = i->type.scalar;
	int lanes = i->type.lanes;
	const char *type = opencl_type(p, to, lanes);
	if (from == KB_F16 || to == KB_F16)
		return print_call_text(p, i, 0, need_f16(p, from == KB_F16, lanes), out);
	if (from == KB_F32)
		return print_call_text(p, i, 0, need_int(p, to, lanes), out);
	if (strcmp(type, opencl_type(p, from, lanes)) != 0) {
		buf_printf(out, "convert_%s(", type);
		print_number(p, i, out);
		buf_char(out, ')');
	} else if (from != KB_BOOL || lanes == 1) {
		return print_forwarded_arg(p, i, 0, out);
	} else {
		print_number(p, i, out);
	}
	return PRINT_PRIMARY;
}

/* A bitcast from or to KB_INDEX is one of i64 by contract, whatever the width of idx: it converts the value. */
static enum print_prec opencl_bitcast(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum kb_scalar from = print_arg_type(p, i, 0).scalar, to = i->type.scalar;
	const char *type = opencl_type(p, to, i->type.lanes), *how = "as";
	if (strcmp(type, opencl_type(p, from, i->type.lanes)) == 0)
		return print_forwarded_arg(p, i, 0, out);
	if (from == KB_INDEX || to == KB_INDEX)
		how = "convert";
	return print_call_text(p, i, 0, arena_printf(p->arena, "%s_%s", how, type), out);
}

/* ---- lanes ---- */

/* "(int4)(" */
static void vector_begin(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "(%s)(", opencl_type(p, i->type.scalar, i->type.lanes));
}

/* (int4)(0, 1, 2, 3) */
static enum print_prec opencl_lane_ids(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (i->type.lanes == 1) {
		buf_char(out, '0');
		return PRINT_PRIMARY;
	}
	vector_begin(p, i, out);
	for (int k = 0; k < i->type.lanes; k++)
		buf_printf(out, "%s%d", k ? ", " : "", k);
	buf_char(out, ')');
	return PRINT_ADDITIVE;
}

/* (float4)(x); true of a bool becomes the mask -1. */
static enum print_prec opencl_splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (i->type.lanes == 1)
		return print_forwarded_arg(p, i, 0, out);
	vector_begin(p, i, out);
	buf_printf(out, "%s%s)", i->type.scalar == KB_BOOL ? "-" : "", print_arg(p, i, 0));
	return PRINT_ADDITIVE;
}

/* ?: of scalars; select() of vectors, whose condition must be as wide as the lanes. */
static enum print_prec opencl_select(struct print *p, const struct kb_inst *i, struct buf *out)
{
	const char *c = print_arg(p, i, 0), *a = print_arg(p, i, 1), *b = print_arg(p, i, 2);
	int bytes = opencl_lane_bytes(p, i->type.scalar);
	if (i->type.lanes == 1) {
		buf_printf(out, "%s ? %s : %s", c, a, b);
		return PRINT_LOWEST;
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

static enum print_prec lane(const struct kb_inst *i, const char *vector, int number, struct buf *out)
{
	bool is_bool = i->type.scalar == KB_BOOL;
	buf_printf(out, is_bool ? "%s.s%x & 1" : "%s.s%x", vector, (unsigned)number);
	return is_bool ? PRINT_LOWEST : PRINT_PRIMARY;
}

static enum print_prec opencl_lane(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return lane(i, print_arg(p, i, 0), i->lane, out);
}

/* Requests the helper of a shuffle: shuffle_float4_0819 of two vectors, permute_float4_1032 of one; the lanes in
 * base 32, numbered through a and b. Bools, scalars of which become masks, have names of their own. */
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

/* A swizzle of one vector (v.s1032); one lane; else a helper, as an expression uses each operand once. */
static enum print_prec opencl_shuffle(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int from = print_arg_type(p, i, 0).lanes, n = i->type.lanes;
	if (n == 1 && from == 1)
		return print_forwarded_arg(p, i, (size_t)i->lanes[0], out);
	if (n == 1)
		return lane(i, print_arg(p, i, (size_t)(i->lanes[0] / from)), i->lanes[0] % from, out);
	if (i->n_args > 1 || from == 1)
		return print_call_text(p, i, 0, need_shuffle(p, i, from), out);
	buf_printf(out, "%s.s", print_arg(p, i, 0));
	for (int k = 0; k < n; k++)
		buf_printf(out, "%x", (unsigned)i->lanes[k]);
	return PRINT_PRIMARY;
}

static enum print_prec opencl_lookup16(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return print_call_text(p, i, 0, "shuffle", out);
}

/* ---- reductions ---- */

/* The expression x op y of `lanes` lanes, in a reduce helper. */
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

/* The helper that combines the two halves of a vector and calls the helper of the half, down to one lane: the tree of
 * kb_reduce. */
static const char *need_reduce(struct print *p, enum kb_bin op, enum kb_scalar s, int lanes)
{
	int half = lanes / 2;
	const char *next = half > 1 ? arena_printf(p->arena, "%s(", need_reduce(p, op, s, half)) : "";
	return opencl_need(p, "reduce",
	                   op == KB_ADD   ? "sum"
	                   : op == KB_MIN ? "least"
	                                  : "most",
	                   (struct print_helper){NULL,
	                                         s,
	                                         lanes,
	                                         {opencl_type(p, s, half), combine(p, op, s, half), next,
	                                          half > 1 ? ")" : ""}});
}

static enum print_prec opencl_reduce(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int lanes = print_arg_type(p, i, 0).lanes;
	return print_call_text(p, i, 0, need_reduce(p, i->bin, i->type.scalar, lanes), out);
}

/* ---- types, functions, the file ---- */

extern const unsigned char opencl_prelude[]; /* prelude.cl.in */

static const char *placeholder(struct print *p, const struct print_helper *h, char letter)
{
	switch (letter) {
	case 'V': return opencl_type(p, (enum kb_scalar)h->element, h->lanes);
	case 'S': return opencl_scalar(p, (enum kb_scalar)h->element);
	default: return opencl_lanes(p, "", h->lanes);
	}
}

/* ---- functions ---- */

static void prelude(struct print *p, struct buf *out)
{
	struct print_helper h = {.name = "", .args = {opencl_scalar(p, KB_INDEX)}};
	print_block(p, "begin", &h, out);
}

/* The type of a value: of pointers with address space and const, "__global const uchar *". */
static void print_type(struct print *p, struct kb_type t, struct space_pointer to, struct buf *out)
{
	if (t.scalar != KB_PTR) {
		buf_str(out,
		        t.scalar == KB_INDEX && t.lanes == 1 ? "idx" : opencl_type(p, t.scalar, t.lanes));
		return;
	}
	if (to.space == SPACE_NONE) /* always null: any space */
		to.space = SPACE_GLOBAL;
	opencl_qualifiers(to, out);
	buf_str(out, "uchar *");
}

/* The head of a function: a kernel states the size of its work-groups, so that compilers can allocate registers
 * for it. The hint of vectors of 4 is that of kernels whose items share tasks. Unused functions are marked, against
 * warnings. */
static void print_head(struct print *p, const struct kb_func *f, bool is_used, struct buf *out)
{
	if (f->linkage == KB_KERNEL)
		buf_printf(out, "__kernel __attribute__((reqd_work_group_size(%" PRId64 ", 1, 1)%s)) ",
		           f->group_size, f->group_size > 1 ? ", vec_type_hint(float4)" : "");
	else
		buf_str(out, is_used ? "static " : "__attribute__((unused)) static ");
	print_type(p, KB_TYPE(f->result, 1), p->spaces.funcs[p->f_number].result, out);
	buf_printf(out, "%s%s(", f->result == KB_PTR ? "" : " ", print_global(p, f->name));
	print_params(p, "\n\t\t", ",\n\t\t", out);
}

/* ---- missing features ---- */

static const char *missing_type(struct kb_type t)
{
	if (t.scalar == KB_F64)
		return "f64 in OpenCL C";
	return t.lanes > OPENCL_LANES_MAX ? "vectors of more than 16 lanes in OpenCL C" : NULL;
}

/* The feature that the function needs and OpenCL C lacks, for the message; NULL: none. */
static const char *missing_feature(const struct print *p, const struct kb_func *f)
{
	const char *why = f->linkage == KB_EXPORTED ? "exported functions in OpenCL C" : NULL;
	(void)p;
	for (size_t i = 0; i < f->n_insts && !why; i++) {
		const struct kb_inst *inst = &f->insts[i];
		bool is_array = inst->op == KBO_LOCAL || inst->op == KBO_SHARED;
		why = missing_type(is_array ? KB_TYPE(inst->element, 1) : inst->type);
	}
	return why;
}

/* ---- names and arrays ---- */

static enum print_prec opencl_string(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	buf_str(out, "(__constant uchar *)");
	print_string(i->name, out);
	return PRINT_PRIMARY;
}

static enum print_prec opencl_symbol(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (!strmap_has(&p->globals, i->name))
		print_fail(p, "data outside of the file in OpenCL C");
	buf_str(out, print_global(p, i->name));
	return PRINT_PRIMARY;
}

/* TFMC_DOT is a macro that the host may define when it compiles the program. */
static enum print_prec opencl_device_dot(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)i;
	buf_str(out, print_helper(p, "device dot", &(struct print_helper){.name = "TFMC_DOT"}));
	return PRINT_PRIMARY;
}

static enum print_prec opencl_barrier(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	buf_str(out, "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)");
	return PRINT_PRIMARY;
}

/* PREFETCH and PAUSE are hints: nothing is emitted. */
static enum print_prec no_statement(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	(void)out;
	return PRINT_PRIMARY;
}

static void print_array(struct print *p, const struct kb_inst *i, const char *name)
{
	print_line(p, "%s %s %s[%" PRId64 "] __attribute__((aligned(64)));",
	           i->op == KBO_SHARED ? "__local" : "__private", opencl_memory_scalar(p, i->element), name,
	           i->imm);
}

static void array_text(struct print *p, const struct kb_inst *i, const char *name, struct buf *out)
{
	(void)p;
	buf_printf(out, "((%s uchar *)%s)",
	           space_qualifier(i->op == KBO_SHARED ? SPACE_LOCAL : SPACE_PRIVATE), name);
}

/* Read-only data as an array of bytes in constant memory; of one byte if empty, as C has no empty arrays. */
static void print_data(struct print *p, const struct kb_data_item *d, const char *name, struct buf *out)
{
	const unsigned char *bytes = d->bytes;
	(void)p;
	buf_printf(out, "__constant uchar %s[%zu] __attribute__((aligned(%d))) = {", name, d->n ? d->n : 1,
	           d->align > 0 ? d->align : 1);
	for (size_t i = 0; i < d->n; i++)
		buf_printf(out, "%s%u,", i % 24 ? " " : "\n\t", (unsigned)bytes[i]);
	buf_str(out, d->n ? "\n};\n" : "0};\n");
}

/* ---- source locations ---- */

static const char *digits(const char *s)
{
	while (*s >= '0' && *s <= '9')
		s++;
	return s;
}

/* #line with the location as the file name, without characters that a string literal would need to escape. */
static void print_source_loc(struct print *p, const char *text)
{
	struct buf clean;
	buf_init(&clean);
	for (const char *s = text; *s; s++)
		buf_char(&clean, (unsigned char)*s < ' ' || strchr("\"\\?", *s) ? ' ' : *s);
	print_line(p, "#line 1 \"%s\"", clean.data);
	p->body.failed |= clean.failed;
	buf_destroy(&clean);
}

/* ---- names ---- */

/* Keywords of OpenCL C, and built-in functions that an identifier of ours would hide or collide with. */
static const char *const reserved[] = {"kernel",
                                       "global",
                                       "local",
                                       "constant",
                                       "private",
                                       "half",
                                       "uchar",
                                       "ushort",
                                       "uint",
                                       "ulong",
                                       "idx",
                                       "size_t",
                                       "quad",
                                       "pipe",
                                       "generic",
                                       "read_only",
                                       "write_only",
                                       "read_write",
                                       "select",
                                       "min",
                                       "max",
                                       "abs",
                                       "fabs",
                                       "sqrt",
                                       "floor",
                                       "ceil",
                                       "isnan",
                                       "barrier",
                                       "all",
                                       "any",
                                       "dot",
                                       "cross",
                                       "length",
                                       "distance",
                                       "normalize",
                                       "step",
                                       "mix",
                                       "clamp",
                                       "sign",
                                       "exp",
                                       "log",
                                       "pow",
                                       "sin",
                                       "cos",
                                       "tan",
                                       "tanh",
                                       "erf",
                                       "round",
                                       "rint",
                                       "trunc",
                                       "fract",
                                       "fma",
                                       "mad",
                                       "shuffle",
                                       "shuffle2",
                                       "prefetch",
                                       "rotate",
                                       "popcount",
                                       "clz",
                                       "bitselect",
                                       "mad24",
                                       "mul24",
                                       "hypot",
                                       "remainder",
                                       "exp2",
                                       "log2",
                                       "rsqrt",
                                       "degrees",
                                       "radians",
                                       "smoothstep",
                                       "sinh",
                                       "cosh",
                                       "get_group_id",
                                       "get_num_groups",
                                       "get_local_id",
                                       "mem_fence",
                                       "read_mem_fence",
                                       "write_mem_fence",
                                       "wait_group_events",
                                       "printf",
                                       "complex",
                                       "imaginary",
                                       "TFMC_DOT",
                                       "dot_4x8packed_ss_int",
                                       NULL};

/* float, int8, ...: an element type and perhaps a number of lanes. */
static bool is_type(const char *name)
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

/* A name that a helper may have: a prefix of ours and a type. */
static bool is_helper(const char *name)
{
	static const char *const prefixes[] = {
	        "fma_",     "lesser_",  "greater_",  "sum_",      "least_",      "most_",     "f16_of_",
	        "f16_to_",  "trunc_",   "dot_u8s8_", "dot_s8s8_", "dot_s16s16_", "packed1_",  "packed2_",
	        "packed4_", "packed8_", "packed16_", "packed32_", "packed64_",   "packed128_"};
	for (size_t i = 0; i < TFMC_COUNT(prefixes); i++) {
		size_t n = strlen(prefixes[i]);
		if (strncmp(name, prefixes[i], n) == 0 && is_type(name + n))
			return true;
	}
	return false;
}

/* Whether the identifier is taken: a type, a helper, or a built-in function of a prefix with a type or a number
 * of lanes, such as convert_float4 and vload16. With more than two digits it is free, so that print_local_name,
 * which appends digits, finds one. */
static bool is_reserved(const char *name)
{
	static const char *const prefixes[] = {"as_",    "convert_",   "vload",
	                                       "vstore", "vload_half", "vstore_half"};
	if (is_type(name) || is_helper(name))
		return true;
	for (size_t i = 0; i < TFMC_COUNT(prefixes); i++) {
		size_t n = strlen(prefixes[i]);
		const char *suffix = name + n;
		if (strncmp(name, prefixes[i], n) == 0 && (is_type(suffix) || digits(suffix) > suffix))
			return is_type(suffix) || strlen(suffix) < 3;
	}
	return false;
}

#define opencl_load_splat   opencl_load
#define opencl_load_part    opencl_load
#define opencl_group_count  opencl_group_id
#define opencl_item_id      opencl_group_id
#define opencl_prefetch     no_statement
#define opencl_pause        no_statement
#define opencl_call_ptr     print_unsupported
#define opencl_func_addr    print_unsupported
#define opencl_atomic_load  print_unsupported
#define opencl_atomic_store print_unsupported
#define opencl_atomic_add   print_unsupported
#define opencl_nearest      print_unsupported
#define opencl_tile_config  print_unsupported
#define opencl_tile_zero    print_unsupported
#define opencl_tile_load    print_unsupported
#define opencl_tile_store   print_unsupported
#define opencl_tile_dot     print_unsupported
#define opencl_tile_release print_unsupported
#define opencl_cpuid        print_unsupported
#define opencl_xgetbv       print_unsupported

static print_op *const ops[] = {
#define KB_CFAMILY(op, name, effect)
#define KB_OP(op, name, effect) [KBO_##op] = opencl_##name,
#include "backends/kb/kb_ops.def"
};

/* Of the operations that a target may lack (`has`), this dialect has half and helpers for dot products of integers. */
const struct cfamily_dialect_table *cfamily_opencl(void)
{
	static const struct cfamily_dialect_table table = {
	        .name = "OpenCL C",
	        .helpers = (const char *)opencl_prelude,
	        .placeholder = placeholder,
	        .has_spaces = true,
	        .has = {.has_f16 = true, .has_dot_u8s8 = true, .has_dot_s8s8 = true, .has_dot_s16s16 = true},
	        .prelude = prelude,
	        .missing_feature = missing_feature,
	        .type = print_type,
	        .head = print_head,
	        .ops = ops,
	        .array = print_array,
	        .array_text = array_text,
	        .data = print_data,
	        .source_loc = print_source_loc,
	        .reserved = reserved,
	        .is_reserved = is_reserved,
	};
	return &table;
}
