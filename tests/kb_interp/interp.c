/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel interpreter's main loop. Structured control flow is resolved to jump targets once for each call; every
 * value has an array of lanes.
 */
#include "tests/kb_interp/interp_internal.h"

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

bool kb_frame_allowed(struct kb_frame *fr, const void *p, size_t bytes, bool write)
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
	return kb_frame_fail(fr, write ? "stores outside of its memory" : "loads outside of its memory");
}

/* ---- before a call ---- */

/* Jump targets: of LOOP, FOREVER, IF and ELSE their end; of the end of a loop its begin; of BREAK_IF the end of
 * its loop. */
static bool resolve_jumps(struct kb_frame *fr)
{
	size_t depth = 0, loops = 0, n = fr->f->n_insts + 1;
	size_t *open = ARENA_ARRAY(&fr->arena, size_t, n), *loop = ARENA_ARRAY(&fr->arena, size_t, n);
	fr->jump = ARENA_ARRAY(&fr->arena, size_t, n);
	if (arena_failed(&fr->arena))
		return false;
	for (size_t i = 0; i < fr->f->n_insts; i++) {
		enum kb_opcode op = fr->f->insts[i].op;
		bool ends = op == KBO_END_IF || op == KBO_END_LOOP || op == KBO_END_FOREVER;
		if ((op == KBO_ELSE || ends) && depth > 0) {
			fr->jump[open[--depth]] = i;
			fr->jump[i] = open[depth];
		}
		if (op == KBO_LOOP || op == KBO_FOREVER)
			loop[loops++] = i;
		else if ((op == KBO_END_LOOP || op == KBO_END_FOREVER) && loops > 0)
			loops--;
		else if (op == KBO_BREAK_IF)
			fr->jump[i] = loops > 0 ? loop[loops - 1] : i;
		if (op == KBO_LOOP || op == KBO_FOREVER || op == KBO_IF || op == KBO_ELSE)
			open[depth++] = i;
	}
	for (size_t i = 0; i < fr->f->n_insts; i++)
		if (fr->f->insts[i].op == KBO_BREAK_IF)
			fr->jump[i] = fr->jump[fr->jump[i]];
	return true;
}

/* Arrays of lanes for values or variables 1 .. n - 1. */
static union kb_cell **make_lanes(struct arena *a, const struct kb_type *types, size_t n)
{
	size_t lanes = 0;
	for (size_t i = 1; i < n; i++)
		lanes += (size_t)types[i].lanes;
	union kb_cell **at = ARENA_ARRAY(a, union kb_cell *, n + 1);
	union kb_cell *cells = ARENA_ARRAY(a, union kb_cell, lanes + 1);
	for (size_t i = 1; !arena_failed(a) && i < n; i++) {
		at[i] = cells;
		cells += types[i].lanes;
	}
	return at;
}

bool kb_frame_enter(struct kb_frame *fr)
{
	const struct kb_func *f = fr->f;
	arena_init(&fr->arena);
	fr->values = make_lanes(&fr->arena, f->types, f->n_values);
	fr->vars = make_lanes(&fr->arena, f->var_types, f->n_vars);
	if (arena_failed(&fr->arena) || (!fr->jump && !resolve_jumps(fr)))
		return kb_frame_fail(fr, "no memory");
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
	if (!kb_frame_allowed(fr, p, size * (size_t)(splat ? 1 : n), false))
		return false;
	if ((uintptr_t)p % (uintptr_t)inst->align != 0)
		return kb_frame_fail(fr, "load from an unaligned address");
	kb_cells_read(inst->type.scalar, p, splat ? 1 : n, out);
	for (int i = splat ? 1 : n; i < inst->type.lanes; i++)
		out[i] = splat ? out[0] : (union kb_cell){.i = 0}; /* which is 0.0, too */
	return true;
}

/* Changes nothing, but beyond mapped memory it costs a page walk. */
static bool do_prefetch(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)out;
	char *p = (char *)lanes_of(fr, inst->args[0])->p + lanes_of(fr, inst->args[1])->i + inst->imm;
	for (size_t i = 0; fr->in->checks_prefetches && i < fr->in->n_ranges; i++)
		if (inside(&fr->in->ranges[i], p, 1, false))
			return true;
	return !fr->in->checks_prefetches || kb_frame_fail(fr, "prefetches outside of its memory");
}

static bool do_store(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)out;
	size_t size = (size_t)kb_scalar_bytes(inst->type.scalar);
	int n = inst->op == KBO_STORE_PART ? inst->n_lanes : inst->type.lanes;
	char *p = address(fr, inst, 1);
	if (!kb_frame_allowed(fr, p, size * (size_t)n, true))
		return false;
	if ((uintptr_t)p % (uintptr_t)inst->align != 0)
		return kb_frame_fail(fr, "store to an unaligned address");
	for (int i = 0; i < n; i++)
		kb_cell_write(inst->type.scalar, lanes_of(fr, inst->args[0])[i], p + (size_t)i * size);
	return true;
}

static bool do_ptr_opaque(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	*out = *lanes_of(fr, inst->args[0]);
	return true;
}

static bool do_ptr_add(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	out->p = (void *)((uintptr_t)lanes_of(fr, inst->args[0])->p +
	                  (uintptr_t)(lanes_of(fr, inst->args[1])->i + inst->imm));
	return true;
}

static bool do_atomic(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	bool is_load = inst->op == KBO_ATOMIC_LOAD;
	char *p = (char *)lanes_of(fr, inst->args[is_load ? 0 : 1])->p + inst->imm * 4;
	if (!kb_frame_allowed(fr, p, 4, !is_load))
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
	if (inst->op == KBO_SHARED && fr->work)
		return kb_work_shared(fr, out);
	if (!fr->locals)
		fr->locals = ARENA_ARRAY(&fr->arena, struct kb_range, fr->f->n_insts + 1);
	char *p = arena_alloc(&fr->arena, bytes + 64);
	if (!p || !fr->locals)
		return kb_frame_fail(fr, "no memory");
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
	return kb_frame_fail(fr, "a name that nothing defines");
}

/* A function address is the number of the function in the module, from 1. */
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
		return kb_frame_fail(fr, "calls what is no function of the module");
	for (size_t i = first; i < inst->n_args; i++)
		args[i - first] = *lanes_of(fr, inst->args[i]);
	return run_func(fr, callee, args, inst->n_args - first, out);
}

/* ---- lanes ---- */

static bool do_lanes(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	struct kb_lanes l; /* not set to zero: raw is long */
	l.inst = inst;
	l.from = fr->f->types[inst->args[0].id];
	for (size_t i = 0; i < TFMC_COUNT(l.x); i++)
		l.x[i] = i < inst->n_args ? lanes_of(fr, inst->args[i]) : NULL;
	kb_lanes_compute(&l, out);
	return true;
}

/* ---- control ---- */

static void copy_lanes(union kb_cell *to, const union kb_cell *from, int lanes)
{
	memcpy(to, from, (size_t)lanes * sizeof *to);
}

static bool do_loop(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	int64_t lo = lanes_of(fr, inst->args[0])->i, hi = lanes_of(fr, inst->args[1])->i;
	out->i = lo;
	if (lo >= hi && (inst->flags & KB_NONEMPTY))
		return kb_frame_fail(fr, "a loop marked KB_NONEMPTY is empty");
	if (lo >= hi)
		fr->pc = fr->jump[fr->pc];
	return true;
}

static bool do_end_loop(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	(void)out;
	const struct kb_inst *begin = &fr->f->insts[fr->jump[fr->pc]];
	union kb_cell *i = fr->values[begin->result];
	i->i += begin->imm;
	if (i->i < lanes_of(fr, begin->args[1])->i)
		fr->pc = fr->jump[fr->pc];
	return true;
}

static bool do_else(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	(void)out;
	fr->pc = fr->jump[fr->pc];
	return true;
}

static bool do_break_if(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)out;
	if (lanes_of(fr, inst->args[0])->i)
		fr->pc = fr->jump[fr->pc];
	return true;
}

static bool do_if(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)out;
	if (!lanes_of(fr, inst->args[0])->i)
		fr->pc = fr->jump[fr->pc];
	return true;
}

static bool do_return(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)out;
	if (inst->n_args && fr->result)
		*fr->result = *lanes_of(fr, inst->args[0]);
	fr->pc = fr->f->n_insts;
	return true;
}

static bool do_nothing(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)fr;
	(void)inst;
	(void)out;
	return true;
}

static bool do_param(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	if (fr->pc >= fr->n_args)
		return kb_frame_fail(fr, "called with too few arguments");
	*out = fr->args[fr->pc];
	return true;
}

/* ---- variables and constants ---- */

static bool do_var(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)out;
	if (inst->n_args)
		copy_lanes(fr->vars[inst->result], lanes_of(fr, inst->args[0]), inst->type.lanes);
	return true;
}

static bool do_get(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	copy_lanes(out, fr->vars[inst->imm], inst->type.lanes);
	return true;
}

static bool do_set(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)out;
	copy_lanes(fr->vars[inst->imm], lanes_of(fr, inst->args[0]), inst->type.lanes);
	return true;
}

static bool do_const_int(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)fr;
	*out = kb_cell_int(inst->type.scalar, inst->imm);
	return true;
}

static bool do_const_float(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)fr;
	*out = kb_cell_float(inst->type.scalar, inst->fimm);
	return true;
}

static bool do_null(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)fr;
	(void)inst;
	out->p = NULL;
	return true;
}

static bool do_lane_ids(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)fr;
	for (int i = 0; i < inst->type.lanes; i++)
		out[i].i = i;
	return true;
}

/* ---- the processor and work-groups ---- */

static bool do_cpuid(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	const struct kb_interp_cpu *cpu = fr->in->cpu;
	if (!cpu)
		return kb_frame_fail(fr, "cpuid or xgetbv without a mock processor");
	*out = kb_cell_int(KB_I32, cpu->cpuid(cpu->user, (uint32_t)inst->imm, (uint32_t)inst->cpuid.subleaf,
	                                      inst->cpuid.reg));
	return true;
}

static bool do_xgetbv(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	if (!fr->in->cpu)
		return kb_frame_fail(fr, "cpuid or xgetbv without a mock processor");
	*out = kb_cell_int(KB_I32, fr->in->cpu->xcr0);
	return true;
}

static bool do_group_id(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	out->i = fr->work ? fr->work->group : 0;
	return true;
}

static bool do_group_count(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	out->i = fr->work ? fr->work->n_groups : 1;
	return true;
}

static bool do_item_id(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	out->i = fr->work ? fr->work->item : 0;
	return true;
}

static bool do_device_dot(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	out->i = fr->in->has_dot;
	return true;
}

static bool do_barrier(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	(void)out;
	fr->is_waiting = fr->work != NULL;
	return true;
}

/* ---- the table ---- */

#define do_load_splat   do_load
#define do_load_part    do_load
#define do_store_part   do_store
#define do_shared       do_local
#define do_func_addr    do_name
#define do_string       do_name
#define do_symbol       do_name
#define do_call_ptr     do_call
#define do_atomic_load  do_atomic
#define do_atomic_store do_atomic
#define do_atomic_add   do_atomic
#define do_end_forever  do_else
#define do_tile_config  kb_frame_tile_config
#define do_tile_zero    kb_frame_tile_zero
#define do_tile_load    kb_frame_tile_memory
#define do_tile_store   kb_frame_tile_memory
#define do_tile_dot     kb_frame_tile_dot
#define do_tile_release kb_frame_tile_release
#define do_comment      do_nothing
#define do_forever      do_nothing
#define do_end_if       do_nothing
#define do_pause        do_nothing

bool kb_frame_run(struct kb_frame *fr)
{
	static bool (*const ops[])(struct kb_frame *, const struct kb_inst *, union kb_cell *) = {
#define KB_LANES(op, name, effect) [KBO_##op] = do_lanes,
#define KB_OP(op, name, effect)    [KBO_##op] = do_##name,
#include "backends/kb/kb_ops.def"
	};
	uint64_t limit = fr->in->max_steps ? fr->in->max_steps : 10000000000u;
	for (; fr->pc < fr->f->n_insts && !fr->is_waiting; fr->pc++) {
		if (++fr->in->steps > limit)
			return kb_frame_fail(fr, "runs too long");
		const struct kb_inst *inst = &fr->f->insts[fr->pc];
		bool has_value = inst->result && inst->op != KBO_VAR;
		if (!ops[inst->op](fr, inst, has_value ? fr->values[inst->result] : NULL))
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
		return kb_frame_fail(&fr, "calls too deep");
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
