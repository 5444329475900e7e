/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory access in OpenCL C. Scalars are accessed through pointers to the element type. A vector is the member of a
 * packed struct with the known alignment of the access (kb_access_align): GPU compilers split a load into scalar ones
 * if less than the full vector is aligned. Not vload and vstore, which assume the alignment of an element, and which
 * drivers implement as library functions: a program that uses them takes twice as long to compile. Masked accesses
 * are scalar, because the memory after the last lane belongs to other data.
 */
#include "backends/print/opencl.h"

#include <inttypes.h>

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

/* ((__global const struct packed16_float4 *)((__global const float *)p + i))->v; operand k is the pointer */
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

/* LOAD_PART: (float4)(p[0], p[1], 0, 0); LOAD_SPLAT: one element in all lanes */
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

enum print_prec opencl_load(struct print *p, const struct kb_inst *i, struct buf *out)
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

enum print_prec opencl_store(struct print *p, const struct kb_inst *i, struct buf *out)
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

enum print_prec opencl_store_part(struct print *p, const struct kb_inst *i, struct buf *out)
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

enum print_prec opencl_ptr_add(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_str(out, print_arg(p, i, 0));
	size_t len = out->len;
	print_index(p, i, 1, out);
	return out->len > len ? PRINT_ADDITIVE : PRINT_PRIMARY;
}

enum print_prec opencl_ptr_opaque(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return print_forwarded_arg(p, i, 0, out);
}
