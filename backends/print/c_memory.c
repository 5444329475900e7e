/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory access in portable C: `load_f32x16(p, i)` loads from element i on. Accesses go through may_alias types with
 * the alignment of the access: prefix aligned_ if the full vector is aligned, none if its elements are, bytes_ if not
 * even these are.
 */
#include "backends/print/c.h"

/* The prefix for an access of known alignment; *out: bytes of alignment of its memory type. */
static const char *alignment_prefix(enum c_element e, int lanes, int align, int *out)
{
	int element = c_bits(e) / 8;
	if (align < element) {
		*out = 1;
		return "bytes_";
	}
	bool is_aligned = lanes > 1 && align >= element * lanes;
	*out = is_aligned ? element * lanes : element;
	return is_aligned ? "aligned_" : "";
}

/* Requests the may_alias type of an access. Returns its name. */
static const char *memory_type(struct print *p, enum c_element e, int lanes, const char *prefix, int align)
{
	const char *name = arena_printf(p->arena, "%s%s_m", prefix, c_suffix(p, e, lanes));
	if (e == C_BOOL || !print_once(p, name))
		return name;
	buf_printf(&p->types, "typedef %s %s __attribute__((", c_element_scalar(e), name);
	if (lanes > 1)
		buf_printf(&p->types, "vector_size(%d), ", c_bits(e) / 8 * lanes);
	buf_printf(&p->types, "aligned(%d), may_alias));\n", align);
	return name;
}

/* Requests the helper of an access. what: load or store. */
static const char *accessor(struct print *p, const char *what, enum c_element e, int lanes, int align)
{
	int bytes;
	const char *prefix = alignment_prefix(e, lanes, align, &bytes);
	const char *name = arena_printf(p->arena, "%s_%s%s", what, prefix, c_suffix(p, e, lanes));
	if (strmap_has(&p->needed, name))
		return name;
	struct print_helper h = {name, e, lanes, {memory_type(p, e, lanes, prefix, bytes)}};
	return print_helper(p, what, &h);
}

/* Requests load_part or store_part. */
static const char *part_accessor(struct print *p, const char *block, enum c_element e, int lanes)
{
	struct print_helper h = {
	        arena_printf(p->arena, "%s_%s", block, c_suffix(p, e, lanes)), e, lanes, {0}};
	return print_helper(p, block, &h);
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
	bool is_loose = v->precedence == PRINT_LOWEST && i->imm != 0;
	buf_printf(out, is_loose ? "(%s)" : "%s", v->inner ? v->inner : v->bare);
	if (i->imm > 0)
		buf_printf(out, " + %lld", (long long)i->imm);
	else if (i->imm < 0)
		buf_printf(out, " - %llu", 0 - (unsigned long long)i->imm);
}

enum print_prec c_load(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	bool part = i->op == KBO_LOAD_PART;
	buf_printf(out, "%s(",
	           part ? part_accessor(p, "load_part", e, i->type.lanes)
	                : accessor(p, "load", e, i->type.lanes, i->align));
	buf_printf(out, "%s, ", print_bare_arg(p, i, 0));
	index_text(p, i, 1, out);
	if (part)
		buf_printf(out, ", %d", i->n_lanes);
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

enum print_prec c_load_splat(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct kb_inst one = *i;
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	one.op = KBO_LOAD;
	one.type.lanes = 1;
	buf_printf(out, "%s(", c_need_splat(p, e, i->type.lanes));
	(void)c_load(p, &one, out);
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

enum print_prec c_store(struct print *p, const struct kb_inst *i, struct buf *out)
{
	enum c_element e = c_element_of(i->type.scalar, i->type.lanes);
	bool part = i->op == KBO_STORE_PART;
	buf_printf(out, "%s(",
	           part ? part_accessor(p, "store_part", e, i->type.lanes)
	                : accessor(p, "store", e, i->type.lanes, i->align));
	buf_printf(out, "%s, ", print_bare_arg(p, i, 1));
	index_text(p, i, 2, out);
	buf_str(out, ", ");
	const struct print_value *v = print_arg_value(p, i, 0);
	buf_str(out, v->inner ? v->inner : v->bare);
	if (part)
		buf_printf(out, ", %d", i->n_lanes);
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

enum print_prec c_prefetch(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "__builtin_prefetch(%s + (", print_arg(p, i, 0));
	index_text(p, i, 1, out);
	buf_str(out, i->flags & KB_L2 ? "), 0, 2)" : "))");
	return PRINT_PRIMARY;
}

enum print_prec c_ptr_opaque(struct print *p, const struct kb_inst *i, struct buf *out)
{
	return print_forwarded_arg(p, i, 0, out);
}

enum print_prec c_ptr_add(struct print *p, const struct kb_inst *i, struct buf *out)
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
	return PRINT_ADDITIVE;
}

/* ---- atomics ---- */

/* atomic_add_i32(p, displacement, x); the prelude block has the name of the operation. */
enum print_prec c_atomic_load(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool is_load = i->op == KBO_ATOMIC_LOAD;
	const char *block = kb_op_name(i->op);
	(void)memory_type(p, C_I32, 1, "", 4);
	struct print_helper h = {arena_printf(p->arena, "%s_i32", block), C_I32, 1, {0}};
	buf_printf(out, "%s(%s, %lld", print_helper(p, block, &h), print_bare_arg(p, i, is_load ? 0 : 1),
	           (long long)i->imm);
	buf_printf(out, is_load ? ")" : ", %s)", print_bare_arg(p, i, 0));
	return PRINT_PRIMARY;
}

enum print_prec c_pause(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)i;
	buf_printf(out, "%s()", print_helper(p, "spin_pause", &(struct print_helper){.name = "spin_pause"}));
	return PRINT_PRIMARY;
}
