/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form of the kernel IR, for debugging and tests. It cannot be parsed back.
 *
 *   internal @scale(%1: ptr x noalias, %2: i64 n) -> void {
 *     loop %5 i = %3 to %2 step 16 {
 *       %6 = load 16 x f32 [%1 + %5 + 0] align 4
 *       store 16 x f32 %6 [%1 + %5 + 0] align 4
 *     }
 *   }
 *
 * Deterministic; values are numbered in order of definition.
 */
#include "backends/kb/internal.h"

#include <inttypes.h>
#include <string.h>

static void print_type(struct buf *out, struct kb_type t)
{
	if (t.lanes > 1)
		buf_printf(out, "%d x ", t.lanes);
	buf_str(out, kb_scalar_name(t.scalar));
}

/* Operands from `from` on: the printers of some operations write the first ones themselves. */
static void print_args(struct buf *out, const struct kb_inst *inst, size_t from)
{
	for (size_t i = from; i < inst->n_args; i++)
		buf_printf(out, "%s%%%u", i > from ? ", " : " ", inst->args[i].id);
}

/* Lane count, stored value, address and alignment of a load or store. A store has its value as operand 0, before
 * pointer and index. */
static void print_access(struct buf *out, const struct kb_inst *inst)
{
	bool is_store = inst->op == KBO_STORE || inst->op == KBO_STORE_PART;
	bool is_part = inst->op == KBO_LOAD_PART || inst->op == KBO_STORE_PART;
	if (is_part)
		buf_printf(out, " first %d", inst->n_lanes);
	if (is_store)
		buf_printf(out, " %%%u", inst->args[0].id);
	const struct kb_val *address = &inst->args[is_store ? 1 : 0];
	buf_printf(out, " [%%%u + %%%u + %" PRId64 "] align %d", address[0].id, address[1].id, inst->imm,
	           inst->align);
}

/* The value of a constant; floats as the shortest text that reads back as the same bits. */
static void print_const(struct buf *out, const struct kb_inst *inst)
{
	if (inst->op == KBO_CONST_INT)
		buf_printf(out, " %" PRId64, inst->imm);
	else if (inst->type.scalar == KB_F32)
		buf_char(out, ' '), buf_f32(out, (float)inst->fimm);
	else
		buf_char(out, ' '), buf_f64(out, inst->fimm);
}

static void print_shuffle(struct buf *out, const struct kb_inst *inst)
{
	print_args(out, inst, 0);
	for (int i = 0; i < inst->type.lanes; i++)
		buf_printf(out, "%s%d", i ? " " : " [", inst->lanes[i]);
	buf_char(out, ']');
}

static void print_loop(struct buf *out, const struct kb_inst *inst)
{
	buf_printf(out, "loop %%%u %s = %%%u to %%%u step %" PRId64 "%s {", inst->result, inst->name,
	           inst->args[0].id, inst->args[1].id, inst->imm,
	           inst->flags & KB_NONEMPTY ? " nonempty" : "");
}

/* `%7 = name type` of an instruction that print_structure does not print; BIN, UN and DOT print the name of their
 * operator in place of the opcode, CMP and REDUCE after it. */
static void print_result_and_name(struct buf *out, const struct kb_inst *inst)
{
	if (inst->result)
		buf_printf(out, "%%%u = ", inst->result);
	if (inst->op == KBO_BIN)
		buf_str(out, kb_bin_name(inst->bin));
	else if (inst->op == KBO_UN)
		buf_str(out, kb_un_name(inst->un));
	else if (inst->op == KBO_DOT)
		buf_str(out, kb_dot_name(inst->dot));
	else
		buf_str(out, kb_op_name(inst->op));
	if (inst->op == KBO_CMP)
		buf_printf(out, " %s", kb_cmp_name(inst->cmp));
	if (inst->op == KBO_REDUCE)
		buf_printf(out, " %s", kb_bin_name(inst->bin));
	if (inst->type.scalar != KB_VOID) {
		buf_char(out, ' ');
		print_type(out, inst->type);
	}
}

/* The operands as the text form has them: accesses, constants, immediates and names of each operation; others as
 * values. */
static void print_operands(struct buf *out, const struct kb_func *f, const struct kb_inst *inst)
{
	switch (inst->op) {
	case KBO_LOAD:
	case KBO_STORE:
	case KBO_LOAD_SPLAT:
	case KBO_LOAD_PART:
	case KBO_STORE_PART: print_access(out, inst); return;
	case KBO_CONST_INT:
	case KBO_CONST_FLOAT: print_const(out, inst); return;
	case KBO_SHUFFLE: print_shuffle(out, inst); return;
	case KBO_GET: buf_printf(out, " $%" PRId64, inst->imm); return;
	case KBO_LOCAL:
	case KBO_SHARED:
		buf_printf(out, " %s %" PRId64 " x %s", inst->name, inst->imm, kb_scalar_name(inst->element));
		return;
	case KBO_STRING:
		buf_char(out, ' ');
		buf_quoted(out, inst->name);
		return;
	case KBO_CALL:
	case KBO_FUNC_ADDR:
	case KBO_SYMBOL:
		buf_printf(out, " @%s", inst->name);
		print_args(out, inst, 0);
		return;
	case KBO_CVT:
	case KBO_BITCAST:
		print_args(out, inst, 0);
		buf_str(out, " from ");
		print_type(out, f->types[inst->args[0].id]);
		return;
	case KBO_LANE:
		print_args(out, inst, 0);
		buf_printf(out, " [%d]", inst->lane);
		return;
	case KBO_PTR_ADD:
	case KBO_PREFETCH:
	case KBO_ATOMIC_LOAD:
	case KBO_ATOMIC_STORE:
	case KBO_ATOMIC_ADD:
		print_args(out, inst, 0);
		buf_printf(out, " + %" PRId64, inst->imm);
		return;
	case KBO_TILE_ZERO:
	case KBO_TILE_LOAD:
	case KBO_TILE_STORE:
		buf_printf(out, " tile %" PRId64, inst->imm);
		print_args(out, inst, 0);
		return;
	case KBO_TILE_DOT:
		buf_printf(out, " %s tiles %d %d %d", kb_dot_name(inst->dot), (int)(inst->imm & 7),
		           (int)(inst->imm >> 3 & 7), (int)(inst->imm >> 6 & 7));
		return;
	case KBO_CPUID:
		buf_printf(out, " leaf %" PRId64 " subleaf %d register %d", inst->imm, inst->cpuid.subleaf,
		           inst->cpuid.reg);
		return;
	default: print_args(out, inst, 0); return;
	}
}

/* Control flow, variables and comments. False, and prints nothing, for all other instructions. */
static bool print_structure(struct buf *out, const struct kb_inst *inst)
{
	switch (inst->op) {
	case KBO_COMMENT: buf_printf(out, "; %s", inst->name); return true;
	case KBO_RETURN:
		buf_str(out, "return");
		print_args(out, inst, 0);
		return true;
	case KBO_VAR:
		buf_printf(out, "var $%u %s ", inst->result, inst->name);
		print_type(out, inst->type);
		if (inst->n_args)
			buf_printf(out, " = %%%u", inst->args[0].id);
		return true;
	case KBO_SET: buf_printf(out, "set $%" PRId64 " = %%%u", inst->imm, inst->args[0].id); return true;
	case KBO_LOOP: print_loop(out, inst); return true;
	case KBO_FOREVER: buf_str(out, "forever {"); return true;
	case KBO_BREAK_IF: buf_printf(out, "break_if %%%u", inst->args[0].id); return true;
	case KBO_IF: buf_printf(out, "if %%%u {", inst->args[0].id); return true;
	case KBO_ELSE: buf_str(out, "} else {"); return true;
	case KBO_END_LOOP:
	case KBO_END_FOREVER:
	case KBO_END_IF: buf_char(out, '}'); return true;
	default: return false;
	}
}

/* The line of the function up to its `{`: linkage, name, parameters (the first instructions), result,
 * work-items. */
static void print_head(struct buf *out, const struct kb_func *f)
{
	static const char *const linkage[] = {
	        [KB_INTERNAL] = "internal", [KB_EXPORTED] = "exported", [KB_KERNEL] = "kernel"};
	buf_printf(out, "%s @%s(", linkage[f->linkage], f->name);
	for (size_t i = 0; i < f->n_insts && f->insts[i].op == KBO_PARAM; i++) {
		const struct kb_inst *p = &f->insts[i];
		buf_printf(out, "%s%%%u: ", i ? ", " : "", p->result);
		print_type(out, p->type);
		buf_printf(out, " %s%s%s", p->name, p->flags & KB_NOALIAS ? " noalias" : "",
		           p->flags & KB_READONLY ? " readonly" : "");
	}
	buf_printf(out, ") -> %s ", kb_scalar_name(f->result));
	if (f->group_size > 1)
		buf_printf(out, "items %" PRId64 " ", f->group_size);
	buf_str(out, "{\n");
}

/* One instruction on a line, indented by the loops and conditionals around it. Parameters are in the head; an ELSE
 * closes and opens a body. */
static void print_func(struct buf *out, const struct kb_func *f)
{
	size_t depth = 1;
	print_head(out, f);
	for (size_t i = 0; i < f->n_insts; i++) {
		const struct kb_inst *inst = &f->insts[i];
		if (inst->op == KBO_PARAM)
			continue;
		bool ends = inst->op == KBO_END_LOOP || inst->op == KBO_END_FOREVER ||
		            inst->op == KBO_END_IF || inst->op == KBO_ELSE;
		bool begins = inst->op == KBO_LOOP || inst->op == KBO_FOREVER || inst->op == KBO_IF ||
		              inst->op == KBO_ELSE;
		depth -= ends;
		buf_fill(out, ' ', 2 * depth);
		if (!print_structure(out, inst)) {
			print_result_and_name(out, inst);
			print_operands(out, f, inst);
		}
		buf_char(out, '\n');
		depth += begins;
	}
	buf_str(out, "}\n");
}

void kb_dump(struct buf *out, const struct kb_module *m, const char *name)
{
	for (size_t i = 0; i < kb_func_count(m); i++) {
		const struct kb_func *f = kb_func_at(m, i);
		if (!name || strcmp(name, f->name) == 0)
			print_func(out, f);
	}
}
