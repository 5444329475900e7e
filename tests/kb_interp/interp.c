/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel interpreter's loop over instructions. Structure is resolved to
 * jumps once for each call; every value has its lanes in an array.
 */
#include "tests/kb_interp/interp_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CALL_DEPTH_MAX 32

static bool run_func(struct kb_frame *caller, const struct kb_func *f, const union kb_cell *args,
                     size_t n_args, union kb_cell *result);

bool kb_frame_fail(struct kb_frame *fr, const char *what)
{
	if (!fr->in->error[0])
		(void)snprintf(fr->in->error, sizeof fr->in->error, "%s: instruction %zu: %s", fr->f->name,
		               fr->pc, what);
	return false;
}

static bool fail(struct kb_frame *fr, const char *what)
{
	return kb_frame_fail(fr, what);
}

static union kb_cell *lanes_of(struct kb_frame *fr, struct kb_val v)
{
	return fr->values[v.id];
}

static bool inside(const struct kb_range *r, const char *p, size_t bytes, bool write)
{
	const char *base = r->base;
	return p >= base && bytes <= r->bytes && (size_t)(p - base) <= r->bytes - bytes &&
	       (!write || r->writable);
}

static bool allowed(struct kb_frame *fr, const void *p, size_t bytes, bool write)
{
	struct kb_watched *watched = fr->work ? kb_work_find(fr->work, p, bytes) : NULL;
	if (watched)
		return kb_work_touch(fr, watched, p, bytes, write);
	for (size_t i = 0; i < fr->in->n_ranges; i++)
		if (inside(&fr->in->ranges[i], p, bytes, write))
			return true;
	for (size_t i = 0; i < fr->n_locals; i++)
		if (inside(&fr->locals[i], p, bytes, write))
			return true;
	return fail(fr, write ? "stores outside of its memory" : "loads outside of its memory");
}

/* ---- before a call ---- */

static size_t matching_end(const struct kb_func *f, size_t at)
{
	int depth = 0;
	for (size_t i = at; i < f->n_insts; i++) {
		enum kb_opcode op = f->insts[i].op;
		bool opens = op == KBO_LOOP || op == KBO_FOREVER || op == KBO_IF;
		bool closes = op == KBO_END_LOOP || op == KBO_END_FOREVER || op == KBO_END_IF;
		if (op == KBO_ELSE && depth == 1 && f->insts[at].op == KBO_IF)
			return i;
		if (op == KBO_ELSE && i == at)
			opens = true;
		depth += opens;
		depth -= closes;
		if (closes && depth == 0)
			return i;
	}
	return f->n_insts;
}

/* LOOP, FOREVER, IF, ELSE: their end; ends of loops: their begin; BREAK_IF: the end of its loop. */
static void resolve_jumps(struct kb_frame *fr, size_t *open)
{
	size_t depth = 0;
	for (size_t i = 0; i < fr->f->n_insts; i++) {
		enum kb_opcode op = fr->f->insts[i].op;
		if (op == KBO_LOOP || op == KBO_FOREVER) {
			size_t end = matching_end(fr->f, i);
			fr->jump[i] = end;
			fr->jump[end] = i;
			open[depth++] = i;
		} else if (op == KBO_IF || op == KBO_ELSE) {
			fr->jump[i] = matching_end(fr->f, i);
		} else if (op == KBO_BREAK_IF) {
			fr->jump[i] = depth ? fr->jump[open[depth - 1]] : i;
		} else if ((op == KBO_END_LOOP || op == KBO_END_FOREVER) && depth) {
			depth--;
		}
	}
}

bool kb_frame_enter(struct kb_frame *fr)
{
	const struct kb_func *f = fr->f;
	arena_init(&fr->arena);
	fr->values = ARENA_ARRAY(&fr->arena, union kb_cell *, f->n_values + 1);
	fr->vars = ARENA_ARRAY(&fr->arena, union kb_cell *, f->n_vars + 1);
	fr->jump = ARENA_ARRAY(&fr->arena, size_t, f->n_insts + 1);
	fr->locals = ARENA_ARRAY(&fr->arena, struct kb_range, f->n_insts + 1);
	size_t *open = ARENA_ARRAY(&fr->arena, size_t, f->n_insts + 1);
	if (arena_failed(&fr->arena))
		return fail(fr, "no memory");
	for (size_t i = 1; i < f->n_values; i++)
		fr->values[i] = ARENA_ARRAY(&fr->arena, union kb_cell, f->types[i].lanes);
	for (size_t i = 1; i < f->n_vars; i++)
		fr->vars[i] = ARENA_ARRAY(&fr->arena, union kb_cell, f->var_types[i].lanes);
	if (arena_failed(&fr->arena))
		return fail(fr, "no memory");
	resolve_jumps(fr, open);
	return true;
}

/* ---- memory ---- */

static char *address(struct kb_frame *fr, const struct kb_inst *inst, size_t at)
{
	char *p = lanes_of(fr, inst->args[at])->p;
	int64_t index = lanes_of(fr, inst->args[at + 1])->i + inst->imm;
	uintptr_t bytes = (uintptr_t)(index * kb_scalar_bytes(inst->type.scalar));
	return (char *)((uintptr_t)p + bytes);
}

static bool do_load(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	size_t size = (size_t)kb_scalar_bytes(inst->type.scalar);
	int n = inst->op == KBO_LOAD_PART ? inst->n_lanes : inst->type.lanes;
	bool splat = inst->op == KBO_LOAD_SPLAT;
	char *p = address(fr, inst, 0);
	if (!allowed(fr, p, size * (size_t)(splat ? 1 : n), false))
		return false;
	if ((uintptr_t)p % (uintptr_t)inst->align != 0)
		return fail(fr, "load from an unaligned address");
	for (int i = 0; i < inst->type.lanes; i++) {
		out[i] = (union kb_cell){.i = 0};
		if (i < n)
			out[i] = kb_cell_read(inst->type.scalar, p + (splat ? 0 : (size_t)i * size));
		else if (kb_is_float(inst->type.scalar))
			out[i].f = 0;
	}
	return true;
}

static bool do_store(struct kb_frame *fr, const struct kb_inst *inst)
{
	size_t size = (size_t)kb_scalar_bytes(inst->type.scalar);
	int n = inst->op == KBO_STORE_PART ? inst->n_lanes : inst->type.lanes;
	char *p = address(fr, inst, 1);
	if (!allowed(fr, p, size * (size_t)n, true))
		return false;
	if ((uintptr_t)p % (uintptr_t)inst->align != 0)
		return fail(fr, "store to an unaligned address");
	for (int i = 0; i < n; i++)
		kb_cell_write(inst->type.scalar, lanes_of(fr, inst->args[0])[i], p + (size_t)i * size);
	return true;
}

static bool do_memory(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	switch (inst->op) {
	case KBO_LOAD:
	case KBO_LOAD_SPLAT:
	case KBO_LOAD_PART: return do_load(fr, inst, out);
	case KBO_STORE:
	case KBO_STORE_PART: return do_store(fr, inst);
	case KBO_PTR_APART: *out = *lanes_of(fr, inst->args[0]); return true;
	case KBO_PTR_ADD:
		out->p = (void *)((uintptr_t)lanes_of(fr, inst->args[0])->p +
		                  (uintptr_t)(lanes_of(fr, inst->args[1])->i + inst->imm));
		return true;
	case KBO_PREFETCH: return true;
	default: return fail(fr, "memory that the interpreter does not know");
	}
}

static bool do_atomic(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	bool is_load = inst->op == KBO_ATOMIC_LOAD;
	char *p = (char *)lanes_of(fr, inst->args[is_load ? 0 : 1])->p + inst->imm * 4;
	if (!allowed(fr, p, 4, !is_load))
		return false;
	union kb_cell old = kb_cell_read(KB_I32, p);
	if (out)
		*out = old;
	if (is_load)
		return true;
	union kb_cell v = *lanes_of(fr, inst->args[0]);
	if (inst->op == KBO_ATOMIC_ADD)
		v = kb_cell_int(KB_I32, v.i + old.i);
	kb_cell_write(KB_I32, v, p);
	return true;
}

static bool do_local(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	size_t bytes = (size_t)inst->imm * (size_t)kb_scalar_bytes(inst->element);
	char *p = arena_alloc(&fr->arena, bytes + 64);
	if (!p)
		return fail(fr, "no memory");
	p += 63 - ((uintptr_t)p + 63) % 64;
	memset(p, 0xff, bytes);
	fr->locals[fr->n_locals++] = (struct kb_range){p, bytes, true};
	out->p = p;
	return true;
}

static bool do_name(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	const struct kb_module *m = fr->in->module;
	for (size_t i = 0; inst->op == KBO_FUNC_ADDR && i < kb_func_count(m); i++)
		if (strcmp(kb_func_at(m, i)->name, inst->name) == 0)
			return out->i = (int64_t)i + 1, true;
	if (inst->op == KBO_STRING)
		return out->p = (void *)(uintptr_t)inst->name, true;
	for (size_t i = 0; inst->op == KBO_SYMBOL && i < kb_data_count(m); i++)
		if (strcmp(kb_data_at(m, i)->name, inst->name) == 0)
			return out->p = (void *)(uintptr_t)kb_data_at(m, i)->bytes, true;
	for (size_t i = 0; inst->op == KBO_SYMBOL && i < fr->in->n_symbols; i++)
		if (strcmp(fr->in->symbols[i].name, inst->name) == 0)
			return out->p = fr->in->symbols[i].address, true;
	return fail(fr, "a name that nothing defines");
}

/* Function addresses are numbers of functions of the module, counted from 1. */
static bool do_call(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	const struct kb_module *m = fr->in->module;
	const struct kb_func *callee = NULL;
	size_t first = inst->op == KBO_CALL_PTR ? 1 : 0;
	union kb_cell args[16];
	for (size_t i = 0; first == 0 && i < kb_func_count(m); i++)
		if (strcmp(kb_func_at(m, i)->name, inst->name) == 0)
			callee = kb_func_at(m, i);
	if (first == 1) {
		int64_t number = lanes_of(fr, inst->args[0])->i;
		if (number >= 1 && number <= (int64_t)kb_func_count(m))
			callee = kb_func_at(m, (size_t)number - 1);
	}
	if (!callee || inst->n_args - first > TFMC_COUNT(args))
		return fail(fr, "calls what is no function of the module");
	for (size_t i = first; i < inst->n_args; i++)
		args[i - first] = *lanes_of(fr, inst->args[i]);
	return run_func(fr, callee, args, inst->n_args - first, out);
}

/* ---- lanes ---- */

static union kb_cell reduce(const struct kb_inst *inst, const union kb_cell *x, int lanes)
{
	union kb_cell tree[KB_LANES_MAX];
	memcpy(tree, x, (size_t)lanes * sizeof *x);
	for (int half = lanes / 2; half >= 1; half /= 2)
		for (int i = 0; i < half; i++)
			tree[i] = kb_cell_bin(inst->bin, inst->type.scalar, tree[i], tree[i + half]);
	return tree[0];
}

static union kb_cell fma_lane(enum kb_scalar s, union kb_cell a, union kb_cell b, union kb_cell c)
{
	if (s == KB_F32)
		return (union kb_cell){.f = (double)fmaf((float)a.f, (float)b.f, (float)c.f)};
	return (union kb_cell){.f = fma(a.f, b.f, c.f)};
}

static union kb_cell bitcast(enum kb_scalar from, enum kb_scalar to, union kb_cell v)
{
	unsigned char raw[8] = {0};
	kb_cell_write(from, v, raw);
	return kb_cell_read(to, raw);
}

/* Arithmetic of lane i; x, y, z: the lanes of the operands. */
static union kb_cell lane_op(struct kb_frame *fr, const struct kb_inst *inst, int i,
                             union kb_cell *const x[3])
{
	struct kb_type from = fr->f->types[inst->args[0].id];
	switch (inst->op) {
	case KBO_BIN: return kb_cell_bin(inst->bin, from.scalar, x[0][i], x[1][i]);
	case KBO_UN: return kb_cell_un(inst->un, from.scalar, x[0][i]);
	case KBO_FMA: return fma_lane(from.scalar, x[0][i], x[1][i], x[2][i]);
	case KBO_CMP: return (union kb_cell){.i = kb_cell_cmp(inst->cmp, from.scalar, x[0][i], x[1][i])};
	case KBO_SELECT: return x[0][i].i ? x[1][i] : x[2][i];
	case KBO_SPLAT: return x[0][0];
	case KBO_LANE: return x[0][inst->lane];
	case KBO_CVT: return kb_cell_cvt(from.scalar, inst->type.scalar, x[0][i]);
	case KBO_BITCAST: return bitcast(from.scalar, inst->type.scalar, x[0][i]);
	case KBO_SHUFFLE:
		return inst->lanes[i] < from.lanes ? x[0][inst->lanes[i]] : x[1][inst->lanes[i] - from.lanes];
	case KBO_REDUCE: return reduce(inst, x[0], from.lanes);
	default: fail(fr, "arithmetic that the interpreter does not know"); return (union kb_cell){.i = 0};
	}
}

static bool do_lanes(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	union kb_cell *x[3] = {NULL, NULL, NULL};
	union kb_cell result[KB_LANES_MAX];
	for (size_t i = 0; i < inst->n_args && i < 3; i++)
		x[i] = lanes_of(fr, inst->args[i]);
	for (int i = 0; i < inst->type.lanes; i++)
		result[i] = lane_op(fr, inst, i, x);
	memcpy(out, result, (size_t)inst->type.lanes * sizeof *out);
	return !fr->in->error[0];
}

/* ---- control ---- */

static void copy_lanes(union kb_cell *to, const union kb_cell *from, int lanes)
{
	memcpy(to, from, (size_t)lanes * sizeof *to);
}

static void do_loop_begin(struct kb_frame *fr, const struct kb_inst *inst)
{
	int64_t lo = lanes_of(fr, inst->args[0])->i, hi = lanes_of(fr, inst->args[1])->i;
	fr->values[inst->result]->i = lo;
	if (lo >= hi)
		fr->pc = fr->jump[fr->pc];
}

static void do_loop_end(struct kb_frame *fr)
{
	const struct kb_inst *begin = &fr->f->insts[fr->jump[fr->pc]];
	union kb_cell *i = fr->values[begin->result];
	i->i += begin->imm;
	if (i->i < lanes_of(fr, begin->args[1])->i)
		fr->pc = fr->jump[fr->pc];
}

/* What is neither arithmetic nor memory. */
static bool ask_processor(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	const struct kb_interp_cpu *cpu = fr->in->cpu;
	if (!cpu)
		return fail(fr, "asks the processor");
	uint32_t word = inst->op == KBO_XGETBV ? cpu->xcr0
	                                       : cpu->cpuid(cpu->user, (uint32_t)inst->imm,
	                                                    (uint32_t)inst->cpuid.subleaf, inst->cpuid.reg);
	*out = kb_cell_int(KB_I32, word);
	return true;
}

static bool do_control(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	switch (inst->op) {
	case KBO_PARAM:
		if (fr->pc >= fr->n_args)
			return fail(fr, "called with too few arguments");
		*out = fr->args[fr->pc];
		return true;
	case KBO_CONST_INT: *out = kb_cell_int(inst->type.scalar, inst->imm); return true;
	case KBO_CONST_FLOAT: *out = kb_cell_float(inst->type.scalar, inst->fimm); return true;
	case KBO_NULL: out->p = NULL; return true;
	case KBO_LANE_IDS:
		for (int i = 0; i < inst->type.lanes; i++)
			out[i].i = i;
		return true;
	case KBO_VAR:
		if (inst->n_args)
			copy_lanes(fr->vars[inst->result], lanes_of(fr, inst->args[0]), inst->type.lanes);
		return true;
	case KBO_GET: copy_lanes(out, fr->vars[inst->imm], inst->type.lanes); return true;
	case KBO_SET:
		copy_lanes(fr->vars[inst->imm], lanes_of(fr, inst->args[0]), inst->type.lanes);
		return true;
	case KBO_LOOP: do_loop_begin(fr, inst); return true;
	case KBO_END_LOOP: do_loop_end(fr); return true;
	case KBO_END_FOREVER: fr->pc = fr->jump[fr->pc]; return true;
	case KBO_BREAK_IF:
		if (lanes_of(fr, inst->args[0])->i)
			fr->pc = fr->jump[fr->pc];
		return true;
	case KBO_IF:
		if (!lanes_of(fr, inst->args[0])->i)
			fr->pc = fr->jump[fr->pc];
		return true;
	case KBO_ELSE: fr->pc = fr->jump[fr->pc]; return true;
	case KBO_RETURN:
		if (inst->n_args && fr->result)
			*fr->result = *lanes_of(fr, inst->args[0]);
		fr->pc = fr->f->n_insts;
		return true;
	case KBO_GROUP_ID: out->i = fr->work ? fr->work->group : 0; return true;
	case KBO_ITEM_ID: out->i = fr->work ? fr->work->item : 0; return true;
	case KBO_GROUP_COUNT: out->i = fr->work ? fr->work->n_groups : 1; return true;
	case KBO_BARRIER: fr->is_waiting = fr->work != NULL; return true;
	case KBO_CPUID:
	case KBO_XGETBV: return ask_processor(fr, inst, out);
	case KBO_COMMENT:
	case KBO_FOREVER:
	case KBO_END_IF:
	case KBO_PAUSE: return true;
	default: return fail(fr, "an operation that the interpreter does not know");
	}
}

static bool step(struct kb_frame *fr, const struct kb_inst *inst)
{
	union kb_cell *out = inst->result && inst->op != KBO_VAR ? fr->values[inst->result] : NULL;
	switch (kb_kind(inst->op)) {
	case KB_KIND_MEMORY: return do_memory(fr, inst, out);
	case KB_KIND_ATOMIC: return do_atomic(fr, inst, out);
	case KB_KIND_ARRAY:
		return inst->op == KBO_SHARED && fr->work ? kb_work_shared(fr, out) : do_local(fr, inst, out);
	case KB_KIND_NAME: return do_name(fr, inst, out);
	case KB_KIND_CALL: return do_call(fr, inst, out);
	case KB_KIND_LANES: return do_lanes(fr, inst, out);
	case KB_KIND_BLOCK:
	case KB_KIND_VARIABLE:
	case KB_KIND_CONSTANT:
	case KB_KIND_MACHINE:
	case KB_KIND_GROUP: return do_control(fr, inst, out);
	}
	return true;
}

bool kb_frame_run(struct kb_frame *fr)
{
	uint64_t limit = fr->in->max_steps ? fr->in->max_steps : 10000000000u;
	for (; fr->pc < fr->f->n_insts && !fr->is_waiting; fr->pc++) {
		if (++fr->in->steps > limit)
			return fail(fr, "runs too long");
		if (!step(fr, &fr->f->insts[fr->pc]))
			return false;
	}
	return true;
}

static bool run_func(struct kb_frame *caller, const struct kb_func *f, const union kb_cell *args,
                     size_t n_args, union kb_cell *result)
{
	struct kb_frame fr = {.in = caller->in,
	                      .f = f,
	                      .args = args,
	                      .n_args = n_args,
	                      .result = result,
	                      .depth = caller->depth + 1,
	                      .work = caller->work};
	if (fr.depth > CALL_DEPTH_MAX)
		return fail(&fr, "calls too deep");
	bool ok = kb_frame_enter(&fr) && kb_frame_run(&fr);
	arena_destroy(&fr.arena);
	return ok;
}

const struct kb_func *kb_interp_begin(struct kb_interp *in, const char *name)
{
	in->error[0] = '\0';
	in->steps = 0;
	for (size_t i = 0; i < kb_func_count(in->module); i++)
		if (strcmp(kb_func_at(in->module, i)->name, name) == 0)
			return kb_func_at(in->module, i);
	(void)snprintf(in->error, sizeof in->error, "no function %s", name);
	return NULL;
}

bool kb_interp_call(struct kb_interp *in, const char *name, const union kb_cell *args, size_t n_args,
                    union kb_cell *result)
{
	const struct kb_func *f = kb_interp_begin(in, name);
	struct kb_frame outside = {.in = in, .f = f, .depth = -1};
	return f && run_func(&outside, f, args, n_args, result);
}
