/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory in portable C: `load_f32x16(p, i)` reads from element i on. Vectors in
 * memory have types of their own, which may alias and whose alignment is that of
 * the access: aligned_ when the whole vector is, bytes_ when not even elements are.
 */
#include "backends/print_c/internal.h"

/* "", "aligned_" or "bytes_" */
static const char *alignment(enum c_element e, int lanes, int align, int *out)
{
	int element = c_bits(e) / 8;
	if (align < element) {
		*out = 1;
		return "bytes_";
	}
	bool whole = lanes > 1 && align >= element * lanes;
	*out = whole ? element * lanes : element;
	return whole ? "aligned_" : "";
}

/* The type that memory is accessed through. */
static const char *memory_type(struct print *p, enum c_element e, int lanes, const char *prefix, int align)
{
	const char *name = arena_printf(p->arena, "%s%s_m", prefix, c_suffix(p, e, lanes));
	if (e == C_BOOL || !print_need(p, name))
		return name;
	buf_printf(&p->types, "typedef %s %s __attribute__((", c_element_scalar(e), name);
	if (lanes > 1)
		buf_printf(&p->types, "vector_size(%d), ", c_bits(e) / 8 * lanes);
	buf_printf(&p->types, "aligned(%d), may_alias));\n", align);
	return name;
}

/* Name of the accessor for an access: load or store. */
static const char *accessor(struct print *p, const char *what, enum c_element e, int lanes, int align)
{
	int bytes;
	const char *prefix = alignment(e, lanes, align, &bytes);
	const char *name = arena_printf(p->arena, "%s_%s%s", what, prefix, c_suffix(p, e, lanes));
	if (strmap_has(&p->needed, name))
		return name;
	struct c_helper h = {name, e, lanes, {memory_type(p, e, lanes, prefix, bytes)}};
	return c_need(p, what, &h);
}

/* The first n lanes. */
static const char *part_accessor(struct print *p, const char *block, enum c_element e, int lanes)
{
	struct c_helper h = {arena_printf(p->arena, "%s_%s", block, c_suffix(p, e, lanes)), e, lanes, {0}};
	return c_need(p, block, &h);
}

/* Operand k and the displacement: "i * 4 + 3". */
static void index_text(const struct print *p, const struct kb_inst *i, size_t k, struct buf *out)
{
	int64_t c = 0;
	if (print_const_arg(p, i, k, &c) && c == 0) {
		buf_printf(out, "%lld", (long long)i->imm);
		return;
	}
	const struct print_value *v = print_arg_value(p, i, k);
	bool is_loose = v->level == PRINT_LOOSE && i->imm != 0;
	buf_printf(out, is_loose ? "(%s)" : "%s", v->inner ? v->inner : v->bare);
	if (i->imm > 0)
		buf_printf(out, " + %lld", (long long)i->imm);
	else if (i->imm < 0)
		buf_printf(out, " - %llu", 0 - (unsigned long long)i->imm);
}

static void load(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type t = i->type;
	enum c_element e = c_element_of(t.scalar, t.lanes);
	bool part = i->op == KBO_LOAD_PART;
	const char *name =
	        part ? part_accessor(p, "load_part", e, t.lanes) : accessor(p, "load", e, t.lanes, i->align);
	buf_printf(out, "%s(", name);
	print_bare_arg(p, i, 0, out);
	buf_str(out, ", ");
	index_text(p, i, 1, out);
	if (part)
		buf_printf(out, ", %d", i->n_lanes);
	buf_char(out, ')');
}

static void load_splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_inst one = *i;
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	one.op = KBO_LOAD;
	one.type.lanes = 1;
	buf_printf(out, "%s(", c_need_splat(p, e, i->type.lanes));
	load(p, &one, out);
	buf_char(out, ')');
}

static const char *need_atomic(struct print *p, const char *block)
{
	(void)memory_type(p, C_I32, 1, "", 4);
	return c_need(p, block, &(struct c_helper){arena_printf(p->arena, "%s_i32", block), C_I32, 1, {0}});
}

static enum print_level ptr_add(struct print *p, const struct kb_inst *i, struct buf *out)
{
	int64_t c = 0;
	bool only_disp = print_const_arg(p, i, 1, &c) && c == 0;
	buf_printf(out, "%s + ", print_arg(p, i, 0));
	if (!only_disp && i->imm == 0) {
		buf_str(out, print_arg(p, i, 1));
	} else {
		buf_str(out, only_disp && i->imm >= 0 ? "" : "(");
		index_text(p, i, 1, out);
		buf_str(out, only_disp && i->imm >= 0 ? "" : ")");
	}
	return PRINT_SUM;
}

enum print_level c_memory(struct print *p, const struct kb_inst *i, struct buf *out)
{
	switch (i->op) {
	case KBO_PTR_APART: return print_same(p, i, 0, out);
	case KBO_PTR_ADD: return ptr_add(p, i, out);
	case KBO_LOAD_SPLAT: load_splat(p, i, out); break;
	case KBO_ATOMIC_LOAD:
		buf_printf(out, "%s(", need_atomic(p, "atomic_load"));
		print_bare_arg(p, i, 0, out);
		buf_printf(out, ", %lld)", (long long)i->imm);
		break;
	case KBO_ATOMIC_ADD:
		buf_printf(out, "%s(", need_atomic(p, "atomic_add"));
		print_bare_arg(p, i, 1, out);
		buf_printf(out, ", %lld, ", (long long)i->imm);
		print_bare_arg(p, i, 0, out);
		buf_char(out, ')');
		break;
	default: load(p, i, out);
	}
	return PRINT_PRIMARY;
}

/* ---- statements ---- */

static void store(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_type t = i->type;
	enum c_element e = c_element_of(t.scalar, t.lanes);
	bool part = i->op == KBO_STORE_PART;
	buf_printf(out, "%s(",
	           part ? part_accessor(p, "store_part", e, t.lanes)
	                : accessor(p, "store", e, t.lanes, i->align));
	print_bare_arg(p, i, 1, out);
	buf_str(out, ", ");
	index_text(p, i, 2, out);
	buf_str(out, ", ");
	const struct print_value *v = print_arg_value(p, i, 0);
	buf_str(out, v->inner ? v->inner : v->bare);
	if (part)
		buf_printf(out, ", %d", i->n_lanes);
	buf_str(out, ");");
}

void c_stmt(struct print *p, const struct kb_inst *i)
{
	struct buf line;
	buf_init(&line);
	if (i->op == KBO_STORE || i->op == KBO_STORE_PART) {
		store(p, i, &line);
	} else if (i->op == KBO_PREFETCH) {
		buf_printf(&line, "__builtin_prefetch(%s + (", print_arg(p, i, 0));
		index_text(p, i, 1, &line);
		buf_str(&line, "));");
	} else if (i->op == KBO_ATOMIC_STORE) {
		buf_printf(&line, "%s(", need_atomic(p, "atomic_store"));
		print_bare_arg(p, i, 1, &line);
		buf_printf(&line, ", %lld, ", (long long)i->imm);
		print_bare_arg(p, i, 0, &line);
		buf_str(&line, ");");
	} else if (i->op == KBO_PAUSE) {
		buf_printf(&line, "%s();", c_need(p, "spin_pause", &(struct c_helper){.name = "spin_pause"}));
	} else {
		print_fail(p, "barriers of work-groups in C");
	}
	print_line(p, "%s", line.data);
	p->body.failed |= line.failed;
	buf_destroy(&line);
}
