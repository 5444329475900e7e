/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel builder: modules, functions, constants, variables, control flow; memory, arithmetic, vectors, atomics,
 * matrix tiles. Operand types are checked when an instruction is appended; the first error is stored in the module and
 * reported by kb_verify, so a module with an error is never emitted. Index arithmetic on constants is folded when it is
 * emitted, so that generators write plain formulas and emitters still see constant displacements and strides.
 *
 * A value (kb_val) is the number of the instruction's result. After an error functions return a value of the right
 * type all the same, without memory none (id 0), which every call accepts: a generator need not check. Variables have
 * numbers of their own: KBO_VAR has its number in `result`, GET and SET in `imm`. `disp` is a constant displacement in
 * elements. kb_ops.def lists the operands and fields of each instruction.
 */
#include "backends/kb/internal.h"
#include "ir/support/checked.h"
#include "ir/target/target.h"

#include <stdarg.h>
#include <string.h>

#define GROUP_SIZE_MAX 1024

/* The capabilities of a target, for generators that choose among operations and for legalization. u7s8 and s16s16
 * are pmaddubsw and pmaddwd, which every x86-64 level of tfmc has. Tiles need the int8 and the bf16 extension, so
 * that kb_tile_dot has each of its dot products. */
struct kb_caps kb_caps_of(const struct target *t)
{
	return (struct kb_caps){
	        .lanes = t->lanes,
	        .registers = t->registers,
	        .has_fma = t->has_fma,
	        .has_f16 = t->has_fma, /* x86 with FMA has F16C; base instructions of aarch64 */
	        .has_nearest = t->arch != ARCH_OPENCL,
	        .has_dot_u8s8 = target_has(t, FEATURE_AVXVNNI) || target_has(t, FEATURE_AVX512VNNI) ||
	                        target_has(t, FEATURE_I8MM),
	        .has_dot_s8s8 = target_has(t, FEATURE_AVXVNNIINT8) || target_has(t, FEATURE_DOTPROD),
	        .has_dot_u7s8 = t->arch == ARCH_X86_64,
	        .has_dot_s16s16 = t->arch == ARCH_X86_64,
	        .has_dot_u7s8_i16 = t->arch == ARCH_X86_64,
	        .has_dot_bf16 = target_has(t, FEATURE_AVX512BF16),
	        .has_dot_bf16_odd = target_has(t, FEATURE_BF16),
	        .has_dot_u8s8_2x2 = target_has(t, FEATURE_I8MM),
	        .has_dot_s8s8_2x2 = target_has(t, FEATURE_I8MM),
	        .has_dot_bf16_odd_2x2 = target_has(t, FEATURE_BF16),
	        .has_tiles = target_has(t, FEATURE_AMX_INT8) && target_has(t, FEATURE_AMX_BF16),
	        .short_bytes = t->arch == ARCH_OPENCL,
	        .shared_bytes = t->shared_bytes,
	};
}

struct kb_module *kb_module_create(struct arena *arena, const struct kb_caps *caps)
{
	struct kb_module *m = ARENA_NEW(arena, struct kb_module);
	if (!m)
		return NULL;
	m->arena = arena;
	m->caps = *caps;
	return m;
}

void kb_module_set_variant(struct kb_module *m, int number, const struct kb_caps *caps)
{
	m->variant = number;
	m->caps = *caps;
}

bool kb_module_has_tiles(const struct kb_module *m, int number)
{
	return m->tiled >> number & 1;
}

const struct kb_caps *kb_caps(const struct kb *k)
{
	return &k->caps;
}

bool kb_module_failed(const struct kb_module *m)
{
	return m->error || arena_failed(m->arena);
}

size_t kb_func_count(const struct kb_module *m)
{
	return m->funcs.n;
}

const struct kb_func *kb_func_at(const struct kb_module *m, size_t i)
{
	return m->funcs.items[i]->func;
}

size_t kb_data_count(const struct kb_module *m)
{
	return m->data.n;
}

const struct kb_data_item *kb_data_at(const struct kb_module *m, size_t i)
{
	return &m->data.items[i];
}

bool kb_require(struct kb *k, bool ok, const char *what)
{
	if (!ok && !k->module->error)
		k->module->error = arena_printf(k->module->arena, "%s: instruction %zu: %s", k->func->name,
		                                k->insts.n, what);
	return ok;
}

struct kb_type kb_type_of(const struct kb *k, struct kb_val v)
{
	if (v.id == 0 || v.id >= k->types.n)
		return KB_TYPE(KB_VOID, 1);
	return k->types.items[v.id];
}

/* A new value id, defined by the next instruction. 0 without memory. */
static uint32_t new_value(struct kb *k, struct kb_type type)
{
	struct kb_type *t = ARENA_PUSH(k->module->arena, &k->types);
	uint32_t *def = ARENA_PUSH(k->module->arena, &k->defs);
	if (!t || !def)
		return 0;
	*t = type;
	*def = (uint32_t)k->insts.n;
	return (uint32_t)(k->types.n - 1);
}

/* Appends an instruction, its operands copied; returns its result, or 0 if it has none or there is no memory. */
struct kb_val kb_emit(struct kb *k, struct kb_inst inst, const struct kb_val *args, size_t n, bool has_result)
{
	struct arena *a = k->module->arena;
	struct kb_val *copy = n ? ARENA_ARRAY(a, struct kb_val, n) : NULL;
	if (n && !copy)
		return (struct kb_val){0};
	for (size_t i = 0; i < n; i++)
		copy[i] = args[i];
	inst.args = copy;
	inst.n_args = n;
	inst.loc = k->loc;
	if (has_result)
		inst.result = new_value(k, inst.type);
	if (!ARENA_ADDED(a, &k->insts, inst))
		return (struct kb_val){0};
	return (struct kb_val){has_result ? inst.result : 0};
}

/* Sets the module's error and returns a valid value of the type (zeros), so that generation goes on without checks. */
static struct kb_val kb_poison(struct kb *k, struct kb_type type)
{
	kb_require(k, false, "operand types do not match the operation");
	struct kb_inst zero = {.op = KBO_CONST_INT, .type = KB_TYPE(type.scalar, 1)};
	struct kb_val v = kb_emit(k, zero, NULL, 0, true);
	if (type.lanes == 1)
		return v;
	struct kb_inst splat = {.op = KBO_SPLAT, .type = type};
	return kb_emit(k, splat, &v, 1, true);
}

/* ---- functions ---- */

/* Begins a function. Without memory it goes on in module->lost, so that generators need not check; kb_verify reports
 * it. */
struct kb *kb_begin(struct kb_module *m, const char *name, enum kb_linkage linkage, enum kb_scalar result)
{
	struct kb *k = ARENA_NEW(m->arena, struct kb), **slot = ARENA_PUSH(m->arena, &m->funcs);
	struct kb_func *f = ARENA_NEW(m->arena, struct kb_func);
	k = k ? k : &m->lost;
	f = f ? f : &m->lost_func;
	*k = (struct kb){.module = m, .caps = m->caps, .func = f};
	*f = (struct kb_func){.variant = m->variant,
	                      .caps = m->caps,
	                      .name = arena_strdup(m->arena, name),
	                      .linkage = linkage,
	                      .result = result,
	                      .group_size = 1};
	if (slot)
		*slot = k;
	/* ids begin at 1 */
	(void)ARENA_PUSH(m->arena, &k->types);
	(void)ARENA_PUSH(m->arena, &k->defs);
	(void)ARENA_PUSH(m->arena, &k->vars);
	bool fits = result == KB_VOID || result == KB_I32 || result == KB_INDEX || result == KB_PTR;
	kb_require(k, fits, "the result type is not void, i32, index or ptr");
	kb_require(k, linkage != KB_KERNEL || result == KB_VOID, "a kernel with a result");
	return k;
}

void kb_group_size(struct kb *k, int64_t items)
{
	kb_require(k, k->func->linkage == KB_KERNEL, "an operation of work-groups outside of a kernel");
	kb_require(k, items >= 1 && items <= GROUP_SIZE_MAX, "the size of a work-group is out of range");
	k->func->group_size = items;
}

struct kb_val kb_param(struct kb *k, const char *name, struct kb_type type, unsigned flags)
{
	bool first = k->insts.n == 0 || k->insts.items[k->insts.n - 1].op == KBO_PARAM;
	kb_require(k, first, "a parameter after other instructions");
	struct kb_inst inst = {
	        .op = KBO_PARAM, .type = type, .flags = flags, .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, NULL, 0, true);
}

void kb_assume_multiple(struct kb *k, struct kb_val param, int align)
{
	if (param.id == 0) /* no memory for the parameter: defs may be empty */
		return;
	struct kb_inst *inst = &k->insts.items[k->defs.items[param.id]];
	if (kb_require(k, inst->op == KBO_PARAM && align > 0 && (align & (align - 1)) == 0,
	               "not a parameter, or not a power of two"))
		inst->align = align;
}

void kb_comment(struct kb *k, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	struct kb_inst inst = {.op = KBO_COMMENT, .name = arena_vprintf(k->module->arena, fmt, ap)};
	va_end(ap);
	kb_emit(k, inst, NULL, 0, false);
}

/* A comment instruction, marked as a location: emitters print it above the code that follows. */
void kb_source_loc(struct kb *k, const struct kb_loc *p)
{
	struct kb_inst inst = {.op = KBO_COMMENT,
	                       .flags = KB_SOURCE_LOC,
	                       .name = arena_printf(k->module->arena, "%s:%u:%u%s%s", p->file, p->line,
	                                            p->col, *p->path ? " " : "", p->path)};
	kb_emit(k, inst, NULL, 0, false);
}

/* ---- locations ---- */

void kb_module_keep_locs(struct kb_module *m)
{
	m->keeps_locs = true;
}

size_t kb_loc_count(const struct kb_module *m)
{
	return m->locs.n;
}

const struct kb_loc *kb_loc_at(const struct kb_module *m, size_t number)
{
	return &m->locs.items[number - 1];
}

static bool same_loc(const struct kb_loc *a, const struct kb_loc *b)
{
	return a->line == b->line && a->col == b->col && !strcmp(a->file, b->file) &&
	       !strcmp(a->path, b->path);
}

/* Makes location p that of the instructions that follow. Locations are stored once and numbered from 1 (0: none), so
 * that equal ones of two functions have one number, which kb_dedup_last compares. Returns the number before, for
 * kb_reset_loc. Without kb_module_keep_locs nothing changes. */
uint32_t kb_set_loc(struct kb *k, const struct kb_loc *p)
{
	struct kb_module *m = k->module;
	uint32_t before = k->loc;
	size_t i = 0;
	if (!m->keeps_locs || !p->file)
		return before;
	while (i < m->locs.n && !same_loc(&m->locs.items[i], p))
		i++;
	if (i < m->locs.n || ARENA_ADDED(m->arena, &m->locs, *p))
		k->loc = (uint32_t)(i + 1);
	return before;
}

void kb_reset_loc(struct kb *k, uint32_t number)
{
	k->loc = number;
}

/* v: none in a function without result. */
void kb_return(struct kb *k, struct kb_val v)
{
	bool none = v.id == 0;
	kb_require(k, none == (k->func->result == KB_VOID),
	           "the returned value does not match the result type");
	if (!none)
		kb_require(k, kb_same_type(kb_type_of(k, v), KB_TYPE(k->func->result, 1)),
		           "the returned value does not match the result type");
	struct kb_inst inst = {.op = KBO_RETURN};
	kb_emit(k, inst, &v, none ? 0 : 1, false);
}

/* Ends the function: its lists become those of the finished kb_func, which analyses and emitters read. */
void kb_end(struct kb *k)
{
	kb_require(k, k->open.n == 0, "a loop or condition is open at the end of the function");
	kb_require(k, !k->ended, "the function is finished already");
	k->ended = true;
	struct kb_func *f = k->func;
	f->insts = k->insts.items;
	f->n_insts = k->insts.n;
	k->module->n_insts += k->insts.n;
	f->types = k->types.items;
	f->n_values = k->types.n;
	f->var_types = k->vars.items;
	f->n_vars = k->vars.n;
}

static struct kb_val emit_call(struct kb *k, const char *name, unsigned flags, enum kb_scalar result,
                               const struct kb_val *args, size_t n)
{
	struct kb_inst inst = {.op = KBO_CALL,
	                       .type = KB_TYPE(result, 1),
	                       .flags = flags,
	                       .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, args, n, result != KB_VOID);
}

struct kb_val kb_call(struct kb *k, const char *name, enum kb_scalar result, const struct kb_val *args,
                      size_t n)
{
	return emit_call(k, name, 0, result, args, n);
}

struct kb_val kb_call_external(struct kb *k, const char *name, enum kb_scalar result,
                               const struct kb_val *args, size_t n)
{
	return emit_call(k, name, KB_EXTERNAL, result, args, n);
}

/* The called address is operand 0, before the arguments. */
struct kb_val kb_call_ptr(struct kb *k, struct kb_val fn, enum kb_scalar result, const struct kb_val *args,
                          size_t n)
{
	kb_require(k, kb_same_type(kb_type_of(k, fn), KB_PTR_T), "the callee is not a pointer");
	struct kb_val *all = ARENA_ARRAY(k->module->arena, struct kb_val, n + 1);
	if (!all)
		return (struct kb_val){0};
	all[0] = fn;
	for (size_t i = 0; i < n; i++)
		all[i + 1] = args[i];
	struct kb_inst inst = {.op = KBO_CALL_PTR, .type = KB_TYPE(result, 1)};
	return kb_emit(k, inst, all, n + 1, result != KB_VOID);
}

/* An address by name: FUNC_ADDR, STRING, SYMBOL. */
static struct kb_val emit_address(struct kb *k, enum kb_opcode op, const char *name)
{
	struct kb_inst inst = {.op = op, .type = KB_PTR_T, .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_func_addr(struct kb *k, const char *name)
{
	return emit_address(k, KBO_FUNC_ADDR, name);
}

/* ---- constants ---- */

static struct kb_val const_int(struct kb *k, enum kb_scalar s, int64_t v)
{
	struct kb_inst inst = {.op = KBO_CONST_INT, .type = KB_TYPE(s, 1), .imm = v};
	return kb_emit(k, inst, NULL, 0, true);
}

static struct kb_val const_float(struct kb *k, enum kb_scalar s, double v)
{
	struct kb_inst inst = {.op = KBO_CONST_FLOAT, .type = KB_TYPE(s, 1), .fimm = v};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_f32(struct kb *k, float v)
{
	return const_float(k, KB_F32, (double)v);
}

struct kb_val kb_f64(struct kb *k, double v)
{
	return const_float(k, KB_F64, v);
}

struct kb_val kb_i32(struct kb *k, int32_t v)
{
	return const_int(k, KB_I32, v);
}

struct kb_val kb_index(struct kb *k, int64_t v)
{
	return const_int(k, KB_INDEX, v);
}

struct kb_val kb_i64(struct kb *k, int64_t v)
{
	return const_int(k, KB_I64, v);
}

struct kb_val kb_bool(struct kb *k, bool v)
{
	return const_int(k, KB_BOOL, v);
}

struct kb_val kb_null(struct kb *k)
{
	struct kb_inst inst = {.op = KBO_NULL, .type = KB_PTR_T};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_string(struct kb *k, const char *text)
{
	return emit_address(k, KBO_STRING, text);
}

struct kb_val kb_symbol(struct kb *k, const char *name)
{
	return emit_address(k, KBO_SYMBOL, name);
}

void kb_data(struct kb_module *m, const char *name, enum kb_linkage linkage, const void *bytes, size_t n,
             int align)
{
	struct kb_data_item *d = ARENA_PUSH(m->arena, &m->data);
	char *copy = arena_alloc(m->arena, n ? n : 1); /* of 0 bytes it would be NULL */
	if (!d || !copy)
		return;
	if (n)
		memcpy(copy, bytes, n);
	*d = (struct kb_data_item){arena_strdup(m->arena, name), linkage, copy, n, align};
}

struct kb_val kb_lane_ids(struct kb *k, int lanes)
{
	struct kb_inst inst = {.op = KBO_LANE_IDS, .type = KB_TYPE(KB_I32, lanes)};
	kb_require(k, lanes >= 1 && lanes <= KB_LANES_MAX, "lane_ids with an invalid number of lanes");
	return kb_emit(k, inst, NULL, 0, true);
}

/* The defining instruction tells whether v is constant. id 0, a value without memory, has none. */
bool kb_const_index(const struct kb *k, struct kb_val v, int64_t *out)
{
	if (v.id == 0 || v.id >= k->defs.n)
		return false;
	const struct kb_inst *d = &k->insts.items[k->defs.items[v.id]];
	if (d->op != KBO_CONST_INT || d->type.scalar != KB_INDEX)
		return false;
	*out = d->imm;
	return true;
}

/* Undoes kb_add_const, which has the constant on the right. */
struct kb_val kb_split_index(const struct kb *k, struct kb_val v, int64_t *plus)
{
	int64_t c;
	if (kb_const_index(k, v, &c))
		return checked_add_i64(*plus, c, plus) ? (struct kb_val){0} : v;
	while (v.id > 0 && v.id < k->defs.n) {
		const struct kb_inst *d = &k->insts.items[k->defs.items[v.id]];
		if (d->op != KBO_BIN || d->bin != KB_ADD || !kb_const_index(k, d->args[1], &c) ||
		    !checked_add_i64(*plus, c, plus))
			break;
		v = d->args[0];
	}
	return v;
}

/* ---- variables, local arrays ---- */

/* Numbers the variable, and emits its declaration with the initial value, if any, as operand. */
struct kb_var kb_var(struct kb *k, const char *name, struct kb_type type, struct kb_val init)
{
	if (!ARENA_ADDED(k->module->arena, &k->vars, type))
		return (struct kb_var){0};
	struct kb_var v = {(uint32_t)(k->vars.n - 1)};
	if (init.id)
		kb_require(k, kb_same_type(kb_type_of(k, init), type),
		           "the initial value does not match the type of the variable");
	struct kb_inst inst = {
	        .op = KBO_VAR, .type = type, .result = v.id, .name = arena_strdup(k->module->arena, name)};
	kb_emit(k, inst, &init, init.id ? 1 : 0, false);
	return v;
}

static struct kb_type var_type(struct kb *k, struct kb_var v)
{
	if (kb_require(k, v.id > 0 && v.id < k->vars.n, "no such variable"))
		return k->vars.items[v.id];
	return KB_F32_T;
}

struct kb_val kb_get(struct kb *k, struct kb_var v)
{
	struct kb_inst inst = {.op = KBO_GET, .type = var_type(k, v), .imm = v.id};
	return kb_emit(k, inst, NULL, 0, true);
}

void kb_set(struct kb *k, struct kb_var v, struct kb_val value)
{
	struct kb_inst inst = {.op = KBO_SET, .type = var_type(k, v), .imm = v.id};
	kb_require(k, kb_same_type(kb_type_of(k, value), inst.type),
	           "the value does not match the type of the variable");
	kb_emit(k, inst, &value, 1, false);
}

static void require_array(struct kb *k, enum kb_scalar type, int64_t count)
{
	kb_require(k, k->open.n == 0, "an array inside of a loop or condition");
	kb_require(k, count > 0 && count <= 65536 && kb_scalar_bytes(type) > 0,
	           "size or element type of an array");
}

/* An array on the stack or in shared memory (op): its address. 64-byte alignment is that of cache lines and of the
 * longest vector. */
static struct kb_val emit_array(struct kb *k, enum kb_opcode op, const char *name, enum kb_scalar type,
                                int64_t count)
{
	struct kb_inst inst = {.op = op,
	                       .type = KB_PTR_T,
	                       .imm = count,
	                       .element = type,
	                       .align = 64,
	                       .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_local(struct kb *k, const char *name, enum kb_scalar type, int64_t count)
{
	require_array(k, type, count);
	return emit_array(k, KBO_LOCAL, name, type, count);
}

/* After kb_reuse_shared takes the next earlier array of the same type, enlarged if needed, else declares a new one:
 * phases of a kernel that run one after the other share the small memory of a work-group. */
struct kb_val kb_shared(struct kb *k, const char *name, enum kb_scalar type, int64_t count)
{
	kb_require(k, k->func->linkage == KB_KERNEL, "an operation of work-groups outside of a kernel");
	require_array(k, type, count);
	while (k->reused < k->reused_end) {
		struct kb_inst *array = &k->insts.items[k->reused++];
		if (array->op != KBO_SHARED || array->element != type)
			continue;
		array->imm = count > array->imm ? count : array->imm; /* before kb_end sizes may change */
		return (struct kb_val){array->result};
	}
	return emit_array(k, KBO_SHARED, name, type, count);
}

void kb_reuse_shared(struct kb *k)
{
	kb_barrier(k);
	k->reused = 0;
	k->reused_end = k->insts.n;
}

/* ---- control flow ---- */

static void open_scope(struct kb *k, enum kb_opcode op)
{
	ARENA_ADD(k->module->arena, &k->open, op);
}

/* Closes the innermost scope, which must be op or or_op (END_IF ends an IF or an ELSE). False after an error
 * otherwise; the caller then emits nothing. */
static bool close_scope(struct kb *k, enum kb_opcode op, enum kb_opcode or_op)
{
	size_t n = k->open.n;
	bool fits = n > 0 && (k->open.items[n - 1] == op || k->open.items[n - 1] == or_op);
	if (kb_require(k, fits, "the end of a loop or condition that is not open"))
		k->open.n--;
	return fits;
}

/* The loop index is the result of the instruction, visible until kb_end_loop. */
struct kb_val kb_loop(struct kb *k, const char *name, struct kb_val lo, struct kb_val hi, int64_t step,
                      unsigned flags)
{
	struct kb_val args[] = {lo, hi};
	for (int i = 0; i < 2; i++)
		kb_require(k, kb_same_type(kb_type_of(k, args[i]), KB_INDEX_T),
		           "a loop bound is not of type index");
	kb_require(k, step > 0, "the loop step is not positive");
	open_scope(k, KBO_LOOP);
	struct kb_inst inst = {.op = KBO_LOOP,
	                       .type = KB_INDEX_T,
	                       .imm = step,
	                       .flags = flags,
	                       .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, args, 2, true);
}

static void emit_bracket(struct kb *k, enum kb_opcode op)
{
	struct kb_inst inst = {.op = op};
	kb_emit(k, inst, NULL, 0, false);
}

void kb_end_loop(struct kb *k)
{
	if (close_scope(k, KBO_LOOP, KBO_LOOP))
		emit_bracket(k, KBO_END_LOOP);
}

void kb_forever(struct kb *k)
{
	open_scope(k, KBO_FOREVER);
	emit_bracket(k, KBO_FOREVER);
}

/* IF or BREAK_IF */
static void emit_conditional(struct kb *k, enum kb_opcode op, struct kb_val cond)
{
	kb_require(k, kb_same_type(kb_type_of(k, cond), KB_BOOL_T), "the condition is not a scalar bool");
	struct kb_inst inst = {.op = op};
	kb_emit(k, inst, &cond, 1, false);
}

void kb_break_if(struct kb *k, struct kb_val cond)
{
	bool inside = k->open.n > 0 && k->open.items[k->open.n - 1] == KBO_FOREVER;
	if (kb_require(k, inside, "break_if outside of forever"))
		emit_conditional(k, KBO_BREAK_IF, cond);
}

void kb_end_forever(struct kb *k)
{
	if (close_scope(k, KBO_FOREVER, KBO_FOREVER))
		emit_bracket(k, KBO_END_FOREVER);
}

void kb_if(struct kb *k, struct kb_val cond)
{
	open_scope(k, KBO_IF);
	emit_conditional(k, KBO_IF, cond);
}

/* Turns the open IF into an ELSE, so that a second kb_else is an error. */
void kb_else(struct kb *k)
{
	if (!close_scope(k, KBO_IF, KBO_IF))
		return;
	open_scope(k, KBO_ELSE);
	emit_bracket(k, KBO_ELSE);
}

void kb_end_if(struct kb *k)
{
	if (close_scope(k, KBO_IF, KBO_ELSE))
		emit_bracket(k, KBO_END_IF);
}

size_t kb_module_inst_count(const struct kb_module *m)
{
	return m->n_insts;
}

/* ---- memory, arithmetic, vectors, tiles ---- */

/* ---- memory ---- */

static void check_address(struct kb *k, enum kb_scalar s, struct kb_val ptr, struct kb_val index)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	kb_require(k, kb_same_type(kb_type_of(k, index), KB_INDEX_T), "the index is not of type index");
	kb_require(k, kb_scalar_bytes(s) > 0, "the type cannot be stored");
}

static bool is_lane_count(int lanes)
{
	return lanes >= 1 && lanes <= KB_LANES_MAX && (lanes & (lanes - 1)) == 0;
}

/* Moves a constant index into *disp, where addressing modes have it for free. Returns the remaining index. */
static struct kb_val fold_into_disp(struct kb *k, struct kb_val index, int64_t *disp)
{
	int64_t c, sum;
	if (!kb_const_index(k, index, &c) || c == 0 || !checked_add_i64(*disp, c, &sum))
		return index;
	*disp = sum;
	return kb_index(k, 0);
}

/* inst: opcode, type, displacement (imm) and alignment. Checks operands and moves a constant index into imm. */
static struct kb_val emit_load(struct kb *k, struct kb_inst inst, struct kb_val ptr, struct kb_val index)
{
	check_address(k, inst.type.scalar, ptr, index);
	kb_require(k, is_lane_count(inst.type.lanes), "the number of lanes is not a power of two up to 64");
	struct kb_val args[] = {ptr, fold_into_disp(k, index, &inst.imm)};
	return kb_emit(k, inst, args, 2, true);
}

static int default_align(enum kb_scalar s, int align)
{
	return align ? align : kb_scalar_bytes(s);
}

struct kb_val kb_load(struct kb *k, struct kb_type type, struct kb_val ptr, struct kb_val index, int64_t disp,
                      int align)
{
	struct kb_inst inst = {
	        .op = KBO_LOAD, .type = type, .imm = disp, .align = default_align(type.scalar, align)};
	return emit_load(k, inst, ptr, index);
}

/* With one lane there is nothing to broadcast: a plain load. */
struct kb_val kb_load_splat(struct kb *k, struct kb_type type, struct kb_val ptr, struct kb_val index,
                            int64_t disp)
{
	struct kb_inst inst = {
	        .op = KBO_LOAD_SPLAT, .type = type, .imm = disp, .align = kb_scalar_bytes(type.scalar)};
	if (type.lanes == 1)
		inst.op = KBO_LOAD;
	return emit_load(k, inst, ptr, index);
}

/* The access to the first n lanes of a vector: op_part (masked), or op_all if n is all of them. A remainder begins
 * at any element, so only the alignment of a scalar is known. */
static struct kb_inst part_access(struct kb *k, enum kb_opcode op_part, enum kb_opcode op_all,
                                  struct kb_type type, int n, int64_t disp)
{
	kb_require(k, n >= 1 && n <= type.lanes, "more lanes than the vector has, or none");
	return (struct kb_inst){.op = n == type.lanes ? op_all : op_part,
	                        .type = type,
	                        .n_lanes = n,
	                        .imm = disp,
	                        .align = kb_scalar_bytes(type.scalar)};
}

struct kb_val kb_load_part(struct kb *k, struct kb_type type, int n, struct kb_val ptr, struct kb_val index,
                           int64_t disp)
{
	return emit_load(k, part_access(k, KBO_LOAD_PART, KBO_LOAD, type, n, disp), ptr, index);
}

/* As emit_load; value: the stored one, operand 0. */
static void emit_store(struct kb *k, struct kb_inst inst, struct kb_val value, struct kb_val ptr,
                       struct kb_val index)
{
	check_address(k, inst.type.scalar, ptr, index);
	kb_require(k, is_lane_count(inst.type.lanes), "the number of lanes is not a power of two up to 64");
	struct kb_val args[] = {value, ptr, fold_into_disp(k, index, &inst.imm)};
	kb_emit(k, inst, args, 3, false);
}

void kb_store(struct kb *k, struct kb_val value, struct kb_val ptr, struct kb_val index, int64_t disp,
              int align)
{
	struct kb_type type = kb_type_of(k, value);
	struct kb_inst inst = {
	        .op = KBO_STORE, .type = type, .imm = disp, .align = default_align(type.scalar, align)};
	emit_store(k, inst, value, ptr, index);
}

void kb_store_part(struct kb *k, struct kb_val value, int n, struct kb_val ptr, struct kb_val index,
                   int64_t disp)
{
	emit_store(k, part_access(k, KBO_STORE_PART, KBO_STORE, kb_type_of(k, value), n, disp), value, ptr,
	           index);
}

/* Without anything to add it is the pointer itself. */
struct kb_val kb_ptr_add(struct kb *k, struct kb_val ptr, struct kb_val bytes, int64_t disp_bytes)
{
	struct kb_inst inst = {.op = KBO_PTR_ADD, .type = KB_PTR_T, .imm = disp_bytes};
	check_address(k, KB_I8, ptr, bytes);
	struct kb_val args[] = {ptr, fold_into_disp(k, bytes, &inst.imm)};
	int64_t zero;
	if (inst.imm == 0 && kb_const_index(k, args[1], &zero) && zero == 0)
		return ptr;
	return kb_emit(k, inst, args, 2, true);
}

struct kb_val kb_ptr_opaque(struct kb *k, struct kb_val ptr)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	return kb_emit(k, (struct kb_inst){.op = KBO_PTR_OPAQUE, .type = KB_PTR_T}, &ptr, 1, true);
}

/* A prefetch into all levels, or with KB_L2 in flags from the second on; any address is allowed, since it never
 * faults. */
static void emit_prefetch(struct kb *k, unsigned flags, struct kb_val ptr, struct kb_val index_bytes,
                          int64_t disp_bytes)
{
	struct kb_inst inst = {.op = KBO_PREFETCH, .flags = flags, .imm = disp_bytes};
	check_address(k, KB_I8, ptr, index_bytes);
	struct kb_val args[] = {ptr, index_bytes};
	kb_emit(k, inst, args, 2, false);
}

void kb_prefetch(struct kb *k, struct kb_val ptr, struct kb_val index_bytes, int64_t disp_bytes)
{
	emit_prefetch(k, 0, ptr, index_bytes, disp_bytes);
}

void kb_prefetch_l2(struct kb *k, struct kb_val ptr, struct kb_val index_bytes, int64_t disp_bytes)
{
	emit_prefetch(k, KB_L2, ptr, index_bytes, disp_bytes);
}

/* ---- arithmetic ---- */

/* x op y of two constant indices; division rounds toward zero, as KB_DIV. False on overflow, for divisors below 1 (0
 * traps, INT64_MIN / -1 overflows), and for bit operations, which generators do not apply to constant indices. */
static bool fold_consts(enum kb_bin op, int64_t x, int64_t y, int64_t *out)
{
	switch (op) {
	case KB_ADD: return checked_add_i64(x, y, out);
	case KB_SUB: return checked_sub_i64(x, y, out);
	case KB_MUL: return checked_mul_i64(x, y, out);
	case KB_DIV:
		if (y <= 0)
			return false;
		*out = x / y;
		return true;
	case KB_REM:
		if (y <= 0)
			return false;
		*out = x % y;
		return true;
	case KB_MIN: *out = x < y ? x : y; return true;
	case KB_MAX: *out = x > y ? x : y; return true;
	default: return false;
	}
}

/* x op c for x + 0, x - 0, x * 1, x / 1 (identities) and x * 0, x % 1 (zero). False for other constants. */
static bool fold_identity(struct kb *k, enum kb_bin op, struct kb_val x, int64_t c, struct kb_val *out)
{
	bool same = (c == 0 && (op == KB_ADD || op == KB_SUB)) || (c == 1 && (op == KB_MUL || op == KB_DIV));
	bool zero = (c == 0 && op == KB_MUL) || (c == 1 && op == KB_REM);
	if (!same && !zero)
		return false;
	*out = same ? x : kb_index(k, 0);
	return true;
}

/* Constant folding of index arithmetic; an identity with the constant on the left only for the commutative
 * operators. False if a op b must be emitted. */
static bool fold_index(struct kb *k, enum kb_bin op, struct kb_val a, struct kb_val b, struct kb_val *out)
{
	int64_t x = 0, y = 0, c;
	bool ca = kb_const_index(k, a, &x), cb = kb_const_index(k, b, &y);
	if (ca && cb && fold_consts(op, x, y, &c)) {
		*out = kb_index(k, c);
		return true;
	}
	if (cb)
		return fold_identity(k, op, a, y, out);
	return ca && (op == KB_ADD || op == KB_MUL) && fold_identity(k, op, b, x, out);
}

struct kb_val kb_bin(struct kb *k, enum kb_bin op, struct kb_val a, struct kb_val b)
{
	struct kb_type type = kb_type_of(k, a);
	if (!kb_same_type(type, kb_type_of(k, b)) || !kb_bin_fits(op, type.scalar))
		return kb_poison(k, type);
	struct kb_val folded;
	if (type.scalar == KB_INDEX && type.lanes == 1 && fold_index(k, op, a, b, &folded))
		return folded;
	struct kb_inst inst = {.op = KBO_BIN, .type = type, .bin = op};
	struct kb_val args[] = {a, b};
	return kb_emit(k, inst, args, 2, true);
}

struct kb_val kb_un(struct kb *k, enum kb_un op, struct kb_val a)
{
	struct kb_type type = kb_type_of(k, a);
	if (!kb_un_fits(op, type.scalar))
		return kb_poison(k, type);
	struct kb_inst inst = {.op = KBO_UN, .type = type, .un = op};
	return kb_emit(k, inst, &a, 1, true);
}

/* Only of f32 or f64; integers take kb_mul and kb_add. */
struct kb_val kb_fma(struct kb *k, struct kb_val a, struct kb_val b, struct kb_val c)
{
	struct kb_type type = kb_type_of(k, a);
	bool fits = kb_same_type(type, kb_type_of(k, b)) && kb_same_type(type, kb_type_of(k, c));
	if (!fits || (type.scalar != KB_F32 && type.scalar != KB_F64))
		return kb_poison(k, type);
	struct kb_inst inst = {.op = KBO_FMA, .type = type};
	struct kb_val args[] = {a, b, c};
	return kb_emit(k, inst, args, 3, true);
}

/* A 2 x 2 matrix is four lanes. */
struct kb_val kb_dot(struct kb *k, enum kb_dot dot, struct kb_val acc, struct kb_val a, struct kb_val b)
{
	struct kb_type type = kb_type_of(k, acc), packed = KB_TYPE(KB_I32, type.lanes);
	bool fits = kb_same_type(packed, kb_type_of(k, a)) && kb_same_type(packed, kb_type_of(k, b)) &&
	            type.scalar == (kb_dot_is_float(dot) ? KB_F32 : KB_I32) &&
	            (type.lanes >= 4 || !kb_dot_is_2x2(dot));
	struct kb_inst inst = {.op = KBO_DOT, .type = type, .dot = dot};
	struct kb_val args[] = {acc, a, b};
	return fits ? kb_emit(k, inst, args, 3, true) : kb_poison(k, type);
}

#define KB_DOT(op, name)                                                                           \
	struct kb_val kb_##name(struct kb *k, struct kb_val acc, struct kb_val a, struct kb_val b) \
	{                                                                                          \
		return kb_dot(k, KB_##op, acc, a, b);                                              \
	}
#include "backends/kb/kb_ops.def"

struct kb_val kb_lookup16(struct kb *k, struct kb_val table, struct kb_val indices)
{
	struct kb_type type = kb_type_of(k, indices);
	bool fits = kb_same_type(kb_type_of(k, table), KB_TYPE(KB_U8, 16)) && type.scalar == KB_U8 &&
	            type.lanes >= 16;
	struct kb_val args[] = {table, indices};
	return fits ? kb_emit(k, (struct kb_inst){.op = KBO_LOOKUP16, .type = type}, args, 2, true)
	            : kb_poison(k, type);
}

/* The IR has scalar constants only: selects four u32 constants by lane number. LLVM folds it to one vector
 * constant. */
struct kb_val kb_const_u8x16(struct kb *k, const uint8_t bytes[16])
{
	struct kb_val ids = kb_lane_ids(k, 4), packed = {0};
	for (int i = 0; i < 4; i++) {
		uint32_t word = 0;
		for (int at = 3; at >= 0; at--) /* little-endian */
			word = word << 8 | bytes[4 * i + at];
		struct kb_val all = kb_splat(k, kb_i32(k, (int32_t)word), 4);
		struct kb_val is_here = kb_cmp(k, KB_EQ, ids, kb_splat(k, kb_i32(k, i), 4));
		packed = i ? kb_select(k, is_here, all, packed) : all;
	}
	return kb_bitcast(k, packed, KB_U8);
}

/* Numbers in any order, addresses only for equality. */
struct kb_val kb_cmp(struct kb *k, enum kb_cmp op, struct kb_val a, struct kb_val b)
{
	struct kb_type type = kb_type_of(k, a);
	struct kb_inst inst = {.op = KBO_CMP, .type = KB_TYPE(KB_BOOL, type.lanes), .cmp = op};
	bool number = type.scalar == KB_F32 || type.scalar == KB_F64 || kb_is_int(type.scalar);
	bool equality = (op == KB_EQ || op == KB_NE) && type.scalar == KB_PTR;
	if (!kb_same_type(type, kb_type_of(k, b)) || !(number || equality))
		return kb_poison(k, inst.type);
	struct kb_val args[] = {a, b};
	return kb_emit(k, inst, args, 2, true);
}

/* A scalar condition is broadcast first: the instruction has a lane of it for each lane. */
struct kb_val kb_select(struct kb *k, struct kb_val cond, struct kb_val a, struct kb_val b)
{
	struct kb_type type = kb_type_of(k, a);
	struct kb_type c = kb_type_of(k, cond);
	bool fits = kb_same_type(type, kb_type_of(k, b)) && c.scalar == KB_BOOL &&
	            (c.lanes == type.lanes || c.lanes == 1);
	if (!fits)
		return kb_poison(k, type);
	struct kb_inst inst = {.op = KBO_SELECT, .type = type};
	struct kb_val args[] = {kb_splat(k, cond, type.lanes), a, b};
	return kb_emit(k, inst, args, 3, true);
}

/* A value of as many lanes stays as it is, so that generators need not ask. Addresses have no vectors in the IR. */
struct kb_val kb_splat(struct kb *k, struct kb_val scalar, int lanes)
{
	struct kb_type type = kb_type_of(k, scalar);
	if (type.lanes == lanes)
		return scalar;
	struct kb_inst inst = {.op = KBO_SPLAT, .type = KB_TYPE(type.scalar, lanes)};
	if (type.lanes != 1 || type.scalar == KB_PTR || !is_lane_count(lanes))
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &scalar, 1, true);
}

/* Lane 0 of a scalar is the scalar, so that generators work with one lane, too. */
struct kb_val kb_lane(struct kb *k, struct kb_val vector, int lane)
{
	struct kb_type type = kb_type_of(k, vector);
	if (type.lanes == 1 && lane == 0)
		return vector;
	struct kb_inst inst = {.op = KBO_LANE, .type = KB_TYPE(type.scalar, 1), .lane = lane};
	if (lane < 0 || lane >= type.lanes)
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &vector, 1, true);
}

/* A constant index is converted to i32 here, so that it stays a constant. */
struct kb_val kb_cvt(struct kb *k, struct kb_val v, enum kb_scalar to)
{
	struct kb_type from = kb_type_of(k, v);
	if (from.scalar == to)
		return v;
	struct kb_inst inst = {.op = KBO_CVT, .type = KB_TYPE(to, from.lanes)};
	bool source = kb_is_float(from.scalar) || kb_is_int(from.scalar) || from.scalar == KB_BOOL;
	bool float_to_u16 = kb_is_float(from.scalar) && to == KB_U16; /* no emitter has it */
	if (!source || float_to_u16 || !(kb_is_float(to) || kb_is_int(to)))
		return kb_poison(k, inst.type);
	int64_t c;
	if (kb_const_index(k, v, &c) && to == KB_I32 && c == (int32_t)c)
		return kb_i32(k, (int32_t)c);
	return kb_emit(k, inst, &v, 1, true);
}

struct kb_val kb_cvt_bf16_ftz(struct kb *k, struct kb_val v)
{
	struct kb_type from = kb_type_of(k, v);
	struct kb_inst inst = {.op = KBO_CVT, .flags = KB_FTZ, .type = KB_TYPE(KB_BF16, from.lanes)};
	if (from.scalar != KB_F32)
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &v, 1, true);
}

struct kb_val kb_cvt_nearest(struct kb *k, struct kb_val v)
{
	struct kb_type from = kb_type_of(k, v);
	struct kb_inst inst = {.op = KBO_NEAREST, .type = KB_TYPE(KB_I32, from.lanes)};
	if (from.scalar != KB_F32)
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &v, 1, true);
}

/* The bytes of the vector stay, so the number of lanes changes; fewer bytes than one element do not fit. The size of
 * addresses depends on the emitter. */
struct kb_val kb_bitcast(struct kb *k, struct kb_val v, enum kb_scalar to)
{
	struct kb_type from = kb_type_of(k, v);
	int before = kb_scalar_bytes(from.scalar), after = kb_scalar_bytes(to), bytes = before * from.lanes;
	bool fits = after > 0 && bytes >= after && from.scalar != KB_PTR && to != KB_PTR;
	struct kb_inst inst = {.op = KBO_BITCAST, .type = KB_TYPE(to, fits ? bytes / after : 1)};
	if (!fits || !is_lane_count(inst.type.lanes))
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &v, 1, true);
}

/* The lane numbers are checked and copied; without b they must be below the lanes of a. */
struct kb_val kb_shuffle(struct kb *k, struct kb_val a, struct kb_val b, const int *lanes, int n)
{
	struct kb_type type = kb_type_of(k, a);
	struct kb_inst inst = {.op = KBO_SHUFFLE, .type = KB_TYPE(type.scalar, n)};
	int limit = b.id ? 2 * type.lanes : type.lanes;
	bool fits = is_lane_count(n) && (!b.id || kb_same_type(type, kb_type_of(k, b)));
	int *copy = ARENA_ARRAY(k->module->arena, int, n);
	for (int i = 0; fits && copy && i < n; i++) {
		fits = lanes[i] >= 0 && lanes[i] < limit;
		copy[i] = lanes[i];
	}
	if (!fits)
		return kb_poison(k, inst.type);
	inst.lanes = copy;
	struct kb_val args[] = {a, b};
	return kb_emit(k, inst, args, b.id ? 2 : 1, true);
}

/* Elements of 4 or 8 bytes only: the IR has no reductions of shorter ones. One lane is its own reduction. */
struct kb_val kb_reduce(struct kb *k, enum kb_bin op, struct kb_val vector)
{
	struct kb_type type = kb_type_of(k, vector);
	struct kb_inst inst = {.op = KBO_REDUCE, .type = KB_TYPE(type.scalar, 1), .bin = op};
	bool is_wide = kb_scalar_bytes(type.scalar) >= 4;
	bool fits = (op == KB_ADD || op == KB_MIN || op == KB_MAX) && is_wide && kb_bin_fits(op, type.scalar);
	if (!fits)
		return kb_poison(k, inst.type);
	if (type.lanes == 1)
		return vector;
	return kb_emit(k, inst, &vector, 1, true);
}

/* ---- atomics ---- */

struct kb_val kb_atomic_load(struct kb *k, struct kb_val ptr, int64_t disp)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	struct kb_inst inst = {.op = KBO_ATOMIC_LOAD, .type = KB_I32_T, .imm = disp, .align = 4};
	return kb_emit(k, inst, &ptr, 1, true);
}

static void check_atomic(struct kb *k, struct kb_val value, struct kb_val ptr)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	kb_require(k, kb_same_type(kb_type_of(k, value), KB_I32_T), "the value of an atomic is not i32");
}

void kb_atomic_store(struct kb *k, struct kb_val value, struct kb_val ptr, int64_t disp)
{
	check_atomic(k, value, ptr);
	struct kb_inst inst = {.op = KBO_ATOMIC_STORE, .type = KB_I32_T, .imm = disp, .align = 4};
	struct kb_val args[] = {value, ptr};
	kb_emit(k, inst, args, 2, false);
}

struct kb_val kb_atomic_add(struct kb *k, struct kb_val value, struct kb_val ptr, int64_t disp)
{
	check_atomic(k, value, ptr);
	struct kb_inst inst = {.op = KBO_ATOMIC_ADD, .type = KB_I32_T, .imm = disp, .align = 4};
	struct kb_val args[] = {value, ptr};
	return kb_emit(k, inst, args, 2, true);
}

/* ---- matrix tiles ---- */

/* The layout of ldtilecfg: byte 0 the palette, from 16 on the bytes of a row of each tile (u16), from 48 on its rows
 * (u8). */
void kb_tile_shape(uint8_t config[KB_TILE_CONFIG], int tile, int rows, int bytes)
{
	config[0] = 1; /* palette 1: eight tiles of 1 KiB */
	config[16 + 2 * tile] = (uint8_t)bytes;
	config[48 + tile] = (uint8_t)rows;
}

/* Emits an instruction on tile `number`; ptr none: it accesses no memory. */
static void emit_tile(struct kb *k, struct kb_inst inst, int number, struct kb_val ptr, struct kb_val stride)
{
	struct kb_val args[] = {ptr, stride};
	kb_require(k, number >= 0 && number < KB_TILES, "no such tile");
	if (ptr.id)
		check_address(k, KB_U8, ptr, stride);
	inst.imm = number;
	kb_emit(k, inst, args, ptr.id ? 2 : 0, false);
}

/* Marks the variant, except the baseline, as one that uses AMX: its check at start (NAME.cpu) requires AMX, and
 * requests the tile state from the system, only then (kb_module_has_tiles). */
void kb_tile_config(struct kb *k, struct kb_val ptr)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	kb_emit(k, (struct kb_inst){.op = KBO_TILE_CONFIG}, &ptr, 1, false);
	if (k->module->variant != KB_BASELINE)
		k->module->tiled |= UINT64_C(1) << k->module->variant;
}

/* Emits the shapes of all tiles for a GEMM (kb.h) to memory at ptr, and loads them. bytes: of K in a row of x; a row
 * of weights has 4 of them for each of its 16 columns, so there are bytes / 4 rows. */
void kb_tile_config_gemm(struct kb *k, struct kb_val ptr, int bytes)
{
	uint8_t config[KB_TILE_CONFIG] = {0};
	int32_t dwords[KB_TILE_CONFIG / 4];
	for (int i = 0; i < KB_TILES; i++)
		kb_tile_shape(config, i, i < KB_TILE_WEIGHTS ? KB_TILE_ROWS : bytes / 4,
		              i < KB_TILE_X || i >= KB_TILE_WEIGHTS ? KB_TILE_BYTES : bytes);
	memcpy(dwords, config, sizeof(dwords));
	for (size_t i = 0; i < TFMC_COUNT(dwords); i++)
		kb_store(k, kb_i32(k, dwords[i]), ptr, kb_index(k, (int64_t)i), 0, 0);
	kb_tile_config(k, ptr);
}

void kb_tile_zero(struct kb *k, int number)
{
	emit_tile(k, (struct kb_inst){.op = KBO_TILE_ZERO}, number, (struct kb_val){0}, (struct kb_val){0});
}

void kb_tile_load(struct kb *k, int number, struct kb_val ptr, struct kb_val stride)
{
	emit_tile(k, (struct kb_inst){.op = KBO_TILE_LOAD}, number, ptr, stride);
}

void kb_tile_store(struct kb *k, int number, struct kb_val ptr, struct kb_val stride)
{
	emit_tile(k, (struct kb_inst){.op = KBO_TILE_STORE}, number, ptr, stride);
}

/* imm holds the three tile numbers, three bits each. */
void kb_tile_dot(struct kb *k, enum kb_dot dot, int acc, int a, int b)
{
	bool are_tiles = ((acc | a | b) & ~(KB_TILES - 1)) == 0 && acc != a && acc != b && a != b;
	kb_require(k, are_tiles, "the tiles of a dot product are not three different ones");
	kb_require(k, dot == KB_DOT_U8S8 || dot == KB_DOT_S8S8 || dot == KB_DOT_BF16,
	           "a dot product that tiles do not have");
	struct kb_inst inst = {.op = KBO_TILE_DOT, .dot = dot, .imm = acc | a << 3 | b << 6};
	kb_emit(k, inst, NULL, 0, false);
}

/* ---- x86 processors ---- */

/* Registers are numbered in the order of cpuid: eax, ebx, ecx, edx. */
struct kb_val kb_cpuid(struct kb *k, int64_t leaf, int subleaf, int reg)
{
	kb_require(k, reg >= 0 && reg < 4, "no such register of cpuid");
	struct kb_inst inst = {
	        .op = KBO_CPUID, .type = KB_I32_T, .imm = leaf, .cpuid = {(int16_t)subleaf, (int16_t)reg}};
	return kb_emit(k, inst, NULL, 0, true);
}

/* ---- operations without operands ---- */

static struct kb_val emit_nullary(struct kb *k, enum kb_opcode op, enum kb_scalar result, bool in_kernels)
{
	kb_require(k, !in_kernels || k->func->linkage == KB_KERNEL,
	           "an operation of work-groups outside of a kernel");
	struct kb_inst inst = {.op = op, .type = KB_TYPE(result, result != KB_VOID)};
	return kb_emit(k, inst, NULL, 0, result != KB_VOID);
}

#define KB_NULLARY(op, name, effect, result, in_kernels)                   \
	struct kb_val kb_##name(struct kb *k)                              \
	{                                                                  \
		return emit_nullary(k, KBO_##op, KB_##result, in_kernels); \
	}
#include "backends/kb/kb_ops.def"
