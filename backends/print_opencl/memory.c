/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory in OpenCL C. Vectors go through vload and vstore, which ask only for
 * the alignment of an element; parts of vectors element by element, because the
 * memory after them is not ours to touch.
 */
#include "backends/print_opencl/memory.h"

#include <inttypes.h>

void opencl_pointer_type(struct buf *out, struct space_pointer p)
{
	enum space space = p.space == SPACE_NONE ? SPACE_GLOBAL : p.space; /* a null pointer */
	bool is_const = !p.is_written && space != SPACE_CONSTANT;
	buf_printf(out, "%s %suchar *", space_qualifier(space), is_const ? "const " : "");
}

/* (__global const float *)p */
static void element_pointer(struct buf *out, enum kb_scalar s, const struct opencl_address *at)
{
	const char *is_const = !at->pointer.is_written && at->pointer.space != SPACE_CONSTANT ? "const " : "";
	buf_printf(out, "(%s %s%s *)%s", space_qualifier(at->pointer.space), is_const,
	           opencl_memory_scalar(s), at->ptr);
}

static void print_disp(struct buf *out, int64_t disp)
{
	if (disp > 0)
		buf_printf(out, " + %" PRId64, disp);
	else if (disp < 0)
		buf_printf(out, " - %" PRIu64, 0 - (uint64_t)disp);
}

/* pointer + i + 3 */
static void vector_pointer(struct buf *out, enum kb_scalar s, const struct opencl_address *at)
{
	element_pointer(out, s, at);
	if (at->index)
		buf_printf(out, " + %s", at->index);
	print_disp(out, at->disp);
}

/* ((__global const float *)p)[i + 3] */
static void element(struct buf *out, enum kb_scalar s, const struct opencl_address *at, int64_t lane)
{
	int64_t disp = (int64_t)((uint64_t)at->disp + (uint64_t)lane);
	buf_char(out, '(');
	element_pointer(out, s, at);
	buf_str(out, ")[");
	if (at->index && disp == 0) {
		buf_str(out, at->bare_index);
	} else if (at->index) {
		buf_str(out, at->index);
		print_disp(out, disp);
	} else {
		buf_printf(out, "%" PRId64, disp);
	}
	buf_char(out, ']');
}

/* Indices in memory are long and may be carried as int. */
static bool is_narrowed(enum kb_scalar s, int index_bits)
{
	return s == KB_INDEX && index_bits != 64;
}

static void open_conversion(struct buf *out, const char *to, int lanes)
{
	buf_printf(out, "convert_%s", to);
	if (lanes > 1)
		buf_printf(out, "%d", lanes);
	buf_char(out, '(');
}

/* (float4)(p[0], p[1], 0, 0), or one element in all lanes */
static void load_elements(struct buf *out, const struct kb_inst *i, const struct opencl_address *at)
{
	bool is_splat = i->op == KBO_LOAD_SPLAT;
	int n = is_splat ? 1 : i->type.lanes;
	buf_printf(out, "(%s%d)(", opencl_memory_scalar(i->type.scalar), i->type.lanes);
	for (int k = 0; k < n; k++) {
		buf_str(out, k ? ", " : "");
		if (is_splat || k < i->n_lanes)
			element(out, i->type.scalar, at, k);
		else
			buf_char(out, '0');
	}
	buf_char(out, ')');
}

enum print_level opencl_load(struct buf *out, const struct kb_inst *i, const struct opencl_address *at,
                             int index_bits)
{
	enum kb_scalar s = i->type.scalar;
	bool narrow = is_narrowed(s, index_bits);
	if (narrow)
		open_conversion(out, "int", i->type.lanes);
	if (i->type.lanes == 1) {
		element(out, s, at, 0);
	} else if (i->op == KBO_LOAD) {
		buf_printf(out, "vload%d(0, ", i->type.lanes);
		vector_pointer(out, s, at);
		buf_char(out, ')');
	} else {
		load_elements(out, i, at);
	}
	buf_str(out, narrow ? ")" : "");
	return narrow || i->type.lanes == 1 || i->op == KBO_LOAD ? PRINT_PRIMARY : PRINT_SUM;
}

static void stored_value(struct buf *out, struct kb_type t, const char *value, int index_bits)
{
	bool narrow = is_narrowed(t.scalar, index_bits);
	if (narrow)
		open_conversion(out, "long", t.lanes);
	buf_printf(out, "%s%s", value, narrow ? ")" : "");
}

void opencl_store(struct buf *out, const struct kb_inst *i, const struct opencl_address *at,
                  const char *value, int index_bits, const char *indent)
{
	enum kb_scalar s = i->type.scalar;
	if (i->op == KBO_STORE && i->type.lanes > 1) {
		buf_printf(out, "%svstore%d(", indent, i->type.lanes);
		stored_value(out, i->type, value, index_bits);
		buf_str(out, ", 0, ");
		vector_pointer(out, s, at);
		buf_str(out, ");\n");
		return;
	}
	int n = i->op == KBO_STORE ? 1 : i->n_lanes;
	for (int k = 0; k < n; k++) {
		buf_str(out, indent);
		element(out, s, at, k);
		buf_printf(out, " = %s", value);
		if (i->type.lanes > 1)
			buf_printf(out, ".s%x", (unsigned)k);
		buf_str(out, ";\n");
	}
}

enum print_level opencl_ptr_add(struct buf *out, const struct opencl_address *at)
{
	buf_str(out, at->ptr);
	if (at->index)
		buf_printf(out, " + %s", at->index);
	print_disp(out, at->disp);
	return at->index || at->disp ? PRINT_SUM : PRINT_PRIMARY;
}

void opencl_array(struct buf *out, const struct kb_inst *i, const char *name)
{
	bool is_shared = i->op == KBO_SHARED;
	buf_printf(out, "%s %s %s[%" PRId64 "] __attribute__((aligned(64)));",
	           is_shared ? "__local" : "__private", opencl_memory_scalar(i->element), name, i->imm);
}

void opencl_data(struct buf *out, const struct kb_data_item *d, const char *name)
{
	const unsigned char *bytes = d->bytes;
	buf_printf(out, "__constant uchar %s[%zu] __attribute__((aligned(%d))) = {", name, d->n ? d->n : 1,
	           d->align > 0 ? d->align : 1);
	for (size_t i = 0; i < d->n; i++)
		buf_printf(out, "%s%u,", i % 24 ? " " : "\n\t", (unsigned)bytes[i]);
	buf_str(out, d->n ? "\n};\n" : "0};\n");
}
