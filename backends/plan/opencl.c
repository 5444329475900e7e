/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the OpenCL program of a module: launch plans with their kernels, the width of index arguments, the OpenCL C
 * source; and prints source and plans as one file (--emit=opencl).
 */
#include "backends/plan/opencl.h"
#include "backends/kernels/group.h"
#include "backends/print/cfamily.h"
#include "ir/support/strmap.h"
#include "runtime/opencl/plan_read.h"

#include <inttypes.h>
#include <string.h>

/* ---- serialized plans ---- */

/*
 * Serializes launch plans (runtime/opencl/plan_format.h). Each section is collected in a buffer of its own; equal
 * formulas are written once.
 */

struct plan_writer {
	const struct opencl_program *program;
	struct buf sections[PLAN_SECTIONS], names;
	struct arena arena;
	struct {
		const struct ir_dim **items; /* [rows of FORMULAS] */
		size_t n, cap;
	} formulas;
};

static int64_t count_rows(const struct plan_writer *w, enum plan_section s)
{
	return (int64_t)(w->sections[s].len / 8) / tfmc_plan_columns[s];
}

/* Appends a row; returns its number. */
static int64_t add_row(struct plan_writer *w, enum plan_section s, const int64_t *cells)
{
	for (int i = 0; i < tfmc_plan_columns[s]; i++)
		buf_u64le(&w->sections[s], (uint64_t)cells[i]);
	return count_rows(w, s) - 1;
}

static int64_t add_name(struct plan_writer *w, const char *name)
{
	int64_t at = (int64_t)w->names.len;
	buf_bytes(&w->names, name ? name : "", (name ? strlen(name) : 0) + 1);
	return at;
}

/* ---- formulas ---- */

static void add_code(struct plan_writer *w, enum plan_op op, int64_t value)
{
	const int64_t cells[CODE_COLUMNS] = {[CODE_OP] = op, [CODE_VALUE] = value};
	(void)add_row(w, PLAN_CODE, cells);
}

/* Appends stack code (reverse Polish) for a dim: a sum of products of a coefficient and atoms (symbol, maximum of two,
 * floor division). */
static void add_dim(struct plan_writer *w, const struct ir_dim *d)
{
	if (d->n_terms == 0)
		add_code(w, PLAN_CONST, 0);
	for (size_t i = 0; i < d->n_terms; i++) {
		const struct ir_dim_term *t = &d->terms[i];
		add_code(w, PLAN_CONST, t->coeff);
		for (size_t k = 0; k < t->n_atoms; k++) {
			const struct ir_dim_atom *a = t->atoms[k];
			if (a->sym < 0)
				add_dim(w, a->of);
			if (a->other)
				add_dim(w, a->other);
			add_code(w,
			         a->sym >= 0 ? PLAN_SYMBOL
			         : a->other  ? PLAN_MAX
			                     : PLAN_FLOOR_DIV,
			         a->sym >= 0 ? a->sym : a->by);
			add_code(w, PLAN_MULTIPLY, 0);
		}
		if (i > 0)
			add_code(w, PLAN_ADD, 0);
	}
}

/* The row of FORMULAS for a dim expression; ir_dims are unique, so equal ones have equal addresses. */
static int64_t add_formula(struct plan_writer *w, const struct ir_dim *d)
{
	for (size_t i = 0; i < w->formulas.n; i++)
		if (w->formulas.items[i] == d)
			return (int64_t)i;
	int64_t first = count_rows(w, PLAN_CODE);
	add_dim(w, d);
	const int64_t cells[FORMULA_COLUMNS] = {
	        [FORMULA_FIRST] = first, [FORMULA_N] = count_rows(w, PLAN_CODE) - first};
	ARENA_ADD(&w->arena, &w->formulas, d);
	return add_row(w, PLAN_FORMULAS, cells);
}

/* ---- kernels ---- */

/* Appends an area; returns its row. A formula that may be absent is stored as 1 + its row, 0: none. */
static int64_t add_area(struct plan_writer *w, const struct area *a)
{
	int64_t cells[AREA_C_COLUMNS] = {[AREA_C_NAME] = add_name(w, a->name),
	                                 [AREA_C_MEMORY] = a->memory,
	                                 [AREA_C_NUMBER] = (int64_t)a->number,
	                                 [AREA_C_OFFSET] = add_formula(w, a->offset),
	                                 [AREA_C_BYTES] = add_formula(w, a->bytes)};
	if (a->state)
		cells[AREA_C_STATE] = a->is_source ? PLAN_STATE_SOURCE : PLAN_STATE_OWN;
	if (a->spare)
		cells[AREA_C_SPARE] = 1 + add_formula(w, a->spare);
	for (int i = 0; i < OBJECT_REPEAT_MAX; i++)
		cells[AREA_C_STRIDE + i] = a->stride[i];
	return add_row(w, PLAN_AREAS, cells);
}

/* Appends a kernel with its areas and arguments, whose rows are consecutive; returns its row. KERNEL_ROWS_LO and _HI:
 * for which row counts. */
static int64_t add_kernel(struct plan_writer *w, const struct plan_kernel *k)
{
	const int64_t cells[KERNEL_COLUMNS] = {
	        [KERNEL_NAME] = add_name(w, k->name),
	        [KERNEL_AREAS_FIRST] = count_rows(w, PLAN_AREAS),
	        [KERNEL_AREAS_N] = (int64_t)k->areas.n,
	        [KERNEL_ARGS_FIRST] = count_rows(w, PLAN_ARGS),
	        [KERNEL_ARGS_N] = (int64_t)k->n_args,
	        [KERNEL_TASKS] = add_formula(w, k->tasks),
	        [KERNEL_WORK_ITEMS] = k->items,
	        [KERNEL_WORKERS] = k->workers,
	        [KERNEL_SCRATCH] = k->scratch,
	        [KERNEL_ROWS] = k->rows ? 1 + add_formula(w, k->rows) : 0,
	        [KERNEL_ROWS_LO] = k->is_skinny ? 0 : KERNEL_FEW_ROWS_MAX + 1,
	        [KERNEL_ROWS_HI] = k->is_skinny ? KERNEL_FEW_ROWS_MAX : INT64_MAX,
	        [KERNEL_GROUP] = (int64_t)k->number,
	};
	for (size_t i = 0; i < k->areas.n; i++)
		(void)add_area(w, &k->areas.items[i]);
	for (size_t i = 0; i < k->n_args; i++) {
		const int64_t arg[ARG_COLUMNS] = {k->args[i].kind, (int64_t)k->args[i].number};
		(void)add_row(w, PLAN_ARGS, arg);
	}
	return add_row(w, PLAN_KERNELS, cells);
}

/* ---- commands ---- */

/* Appends a command, after the kernel or outputs that it names. */
static void add_command(struct plan_writer *w, const struct plan *p, const struct plan_command *c)
{
	int64_t cells[COMMAND_COLUMNS] = {[COMMAND_KIND] = c->kind};
	switch (c->kind) {
	case PLAN_DISPATCH: cells[COMMAND_A] = add_kernel(w, c->kernel); break;
	case PLAN_REPEAT: cells[COMMAND_B] = c->count; break;
	case PLAN_IF_REQUESTED:
		cells[COMMAND_A] = count_rows(w, PLAN_OUTPUTS);
		cells[COMMAND_B] = (int64_t)c->n_outputs;
		for (size_t i = 0; i < c->n_outputs; i++)
			(void)add_row(w, PLAN_OUTPUTS, (const int64_t[]){(int64_t)c->outputs[i]});
		break;
	case PLAN_IF_SPLIT:
	case PLAN_END:
	case PLAN_BARRIER: break;
	case PLAN_LENGTHS: cells[COMMAND_A] = add_area(w, p->lengths); break;
	}
	(void)add_row(w, PLAN_COMMANDS, cells);
}

/* Appends a function and its commands. */
static void add_function(struct plan_writer *w, const struct plan *p)
{
	const int64_t cells[FUNCTION_COLUMNS] = {
	        [FUNCTION_NAME] = add_name(w, p->func->name),
	        [FUNCTION_COMMANDS_FIRST] = count_rows(w, PLAN_COMMANDS),
	        [FUNCTION_COMMANDS_N] = (int64_t)p->n,
	        [FUNCTION_ARENA] = add_formula(w, p->arena_bytes),
	        [FUNCTION_PARAMS] = (int64_t)p->func->n_params,
	        [FUNCTION_RESULTS] = (int64_t)p->func->n_results,
	};
	for (size_t i = 0; i < p->n; i++)
		add_command(w, p, &p->items[i]);
	(void)add_row(w, PLAN_FUNCTIONS, cells);
}

/* ---- the file ---- */

/* Appends the header (magic, version, bytes, hash of the body) and the body: sizes, rows of each section,
 * sections, names. */
static void concatenate_sections(struct plan_writer *w, struct buf *out)
{
	const struct object *o = w->program->object;
	struct buf body;
	buf_init(&body);
	const int64_t known[] = {w->program->index_bits, o->weights.bytes, o->states.fixed_bytes,
	                         o->states.batch_bytes, (int64_t)w->names.len};
	for (size_t i = 0; i < TFMC_COUNT(known); i++)
		buf_u64le(&body, (uint64_t)known[i]);
	for (int s = 0; s < PLAN_SECTIONS; s++)
		buf_u64le(&body, (uint64_t)count_rows(w, (enum plan_section)s));
	for (int s = 0; s < PLAN_SECTIONS; s++)
		buf_append(&body, &w->sections[s]);
	buf_append(&body, &w->names);
	buf_u64le(out, PLAN_MAGIC);
	buf_u64le(out, PLAN_VERSION);
	buf_u64le(out, 8 * PLAN_H_INDEX_BITS + body.len);
	buf_u64le(out, buf_failed(&body) ? 0 : hash_bytes64(HASH64_SEED, body.data, body.len));
	buf_append(out, &body);
	buf_destroy(&body);
}

/* Sections are collected separately, since rows of one kind are consecutive but made in turn. The result is checked as
 * a host would. */
enum tfmc_status opencl_write_plan(const struct opencl_program *p, struct buf *out)
{
	struct plan_writer w = {.program = p};
	struct tfmc_plan read;
	const struct ir_dims *dims = p->object->module->dims;
	size_t from = out->len;
	arena_init(&w.arena);
	buf_init(&w.names);
	for (int s = 0; s < PLAN_SECTIONS; s++)
		buf_init(&w.sections[s]);
	for (size_t i = 0; i < ir_dims_count(dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(dims, i);
		const int64_t cells[DIM_COLUMNS] = {
		        [DIM_NAME] = add_name(&w, s->name), [DIM_LO] = s->lo, [DIM_HI] = s->hi};
		(void)add_row(&w, PLAN_DIMS, cells);
	}
	for (size_t i = 0; i < p->n_functions; i++)
		add_function(&w, p->functions[i]);
	(void)add_name(&w, "");
	concatenate_sections(&w, out);
	bool failed = buf_failed(out) || buf_failed(&w.names) || arena_failed(&w.arena);
	for (int s = 0; s < PLAN_SECTIONS; s++) {
		failed = failed || buf_failed(&w.sections[s]);
		buf_destroy(&w.sections[s]);
	}
	buf_destroy(&w.names);
	arena_destroy(&w.arena);
	if (failed)
		return TFMC_NO_MEMORY;
	/* the checks of the reader, here where they give a diagnostic */
	const char *wrong = tfmc_plan_open(out->data + from, out->len - from, &read);
	if (!wrong)
		return TFMC_OK;
	diag_error(p->object->cx, LOC_NONE, DIAG_LIMIT, "no host could read the plan of this model: %s",
	           wrong);
	return TFMC_INVALID;
}

/* ---- the program ---- */

/* ---- plans ---- */

/* Plans of the functions that entries of an object reach. Without entries hosts call functions by name: all
 * functions but cases. */
static enum tfmc_status make_plans(struct object *o, struct opencl_program *out)
{
	out->functions = ARENA_ARRAY(o->arena, const struct plan *, o->functions.n + 1);
	if (!out->functions)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < o->functions.n; i++) {
		struct function *f = &o->functions.items[i];
		if (o->entries.n > 0 ? !f->reached : f->func->when != NULL)
			continue;
		TFMC_TRY(plan_make(o, f));
		f->row = out->n_functions;
		out->functions[out->n_functions++] = f->plan;
	}
	return TFMC_OK;
}

/* ---- index width ---- */

/* Index arguments have 64 bits if any intermediate value of a kernel may reach 2^31: byte offsets into
 * buffers, element numbers, and products of tasks and workers in the division of work. */

/* Bounds that kernel generators keep: tasks per worker, and elements of a piece of a long row. */
#define TASK_FACTOR 4
#define ROW_PIECE   1024

/* In double: no overflow, and exact below 2^53. */
static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double upper_bound(const struct object *o, const struct ir_dim *d)
{
	return (double)ir_dim_hi(o->module->dims, d);
}

/* A bound of the intermediate values of a kernel's indices: task times worker, and the ends of its areas.
 * TASK_FACTOR and ROW_PIECE are bounds that kernel generators keep (tasks per worker, elements of a piece of a long
 * row). In double, so that it cannot overflow. */
static double largest_index(const struct object *o, const struct ir_func *f, const struct plan_kernel *l)
{
	struct ir_dims *dims = o->module->dims;
	double tasks = upper_bound(o, l->tasks) * (double)l->workers, each = tasks;
	for (size_t n = 0; n < l->n_groups; n++)
		/* tasks may be rows, or pieces of long rows */
		for (size_t i = 0; i < l->groups[n]->n_results; i++) {
			const struct ir_type *type = ir_type_of(f, l->groups[n]->results[i]);
			if (type->kind != IR_TENSOR || type->rank == 0)
				continue;
			double rows = upper_bound(o, ir_type_count_range(dims, type, 0, type->rank - 1));
			each = larger(each, rows + upper_bound(o, ir_type_count(dims, type)) / ROW_PIECE);
		}
	each = larger(each, larger((double)(TASK_FACTOR * l->workers), (double)l->scratch));
	double number = (tasks + 1) * each;
	for (size_t i = 0; i < l->areas.n; i++) {
		const struct area *p = &l->areas.items[i];
		double end = upper_bound(o, p->offset) + upper_bound(o, p->bytes);
		for (int d = 0; d < OBJECT_REPEAT_MAX && l->repeat_counts[d] > 0; d++)
			end += (double)(l->repeat_counts[d] - 1) * (double)p->stride[d];
		number = larger(number, end);
	}
	return number;
}

/* 32, or 64 if a value may not fit; kernels of a program share the width. 32-bit arithmetic is cheaper on GPUs. */
static int choose_index_bits(const struct object *o, const struct opencl_program *p)
{
	double state = (double)o->states.batch_bytes * (double)o->states.batch_max;
	double number = larger((double)o->weights.bytes, state + (double)o->states.fixed_bytes);
	for (size_t i = 0; i < p->n_functions; i++) {
		const struct plan *f = p->functions[i];
		number = larger(number, upper_bound(o, f->arena_bytes));
		for (size_t k = 0; k < f->n; k++)
			if (f->items[k].kind == PLAN_DISPATCH)
				number = larger(number, largest_index(o, f->func, f->items[k].kernel));
	}
	return number < 0x1p31 ? 32 : 64;
}

/* ---- the program ---- */

/* Emits all plans and kernels of an object that is laid out, and prints the source. All kernels come before the
 * choice of the index width, which is one for the program and decided by the largest of them. */
static enum tfmc_status build_program(struct object *o, struct opencl_program *out)
{
	struct kb_caps caps = kb_caps_of(o->target);
	struct cfamily_options options = {.dialect = CFAMILY_OPENCL};
	out->object = o;
	o->kb = kb_module_create(o->arena, &caps);
	if (!o->kb)
		return TFMC_NO_MEMORY;
	TFMC_TRY(make_plans(o, out));
	out->index_bits = options.index_bits = choose_index_bits(o, out);
	options.title = arena_printf(o->arena, "%s for %s", o->name, o->target->name);
	if (ir_dims_failed(o->module->dims) || arena_failed(o->arena))
		return TFMC_NO_MEMORY;
	TFMC_TRY(kb_verify(o->kb, o->cx));
	TFMC_TRY(cfamily_print(o->cx, o->kb, &options, &out->source));
	return buf_failed(&out->source) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* No entries are laid out, so the program has all functions (make_plans). */
enum tfmc_status opencl_build(struct diag_context *cx, const struct ir_module *planned,
                              const struct target *target, const struct backend_options *options,
                              struct arena *arena, struct opencl_program *out)
{
	static const struct backend_options none;
	struct object *o = ARENA_NEW(arena, struct object);
	*out = (struct opencl_program){0};
	buf_init(&out->source);
	if (planned->stage != STAGE_PLAN || target->arch != ARCH_OPENCL) {
		diag_error(cx, LOC_NONE, DIAG_INTERNAL,
		           planned->stage == STAGE_PLAN ? "the target is none of OpenCL"
		                                        : "the module is not of stage plan");
		return TFMC_INTERNAL;
	}
	if (!o)
		return TFMC_NO_MEMORY;
	object_init(o, cx, arena, planned, target, options ? options : &none);
	TFMC_TRY(layout_weights(o));
	TFMC_TRY(layout_state(o));
	TFMC_TRY(layout_functions(o));
	return build_program(o, out);
}

/* The kernels are OpenCL C, so they get a module of their own; o->kb then is again that of the functions of the
 * host. */
enum tfmc_status opencl_compile(struct object *o, struct opencl_program *out, struct buf *plan)
{
	struct kb_module *host_module = o->kb;
	*out = (struct opencl_program){0};
	buf_init(&out->source);
	enum tfmc_status status = build_program(o, out);
	o->kb = host_module;
	return status == TFMC_OK ? opencl_write_plan(out, plan) : status;
}

void opencl_print_plans(const struct opencl_program *p, struct buf *out)
{
	const struct object *o = p->object;
	const struct ir_module *planned = o->module;
	buf_printf(out, "weights %" PRId64 " bytes; indices of %d bits\n", o->weights.bytes, p->index_bits);
	if (o->states.fixed_bytes)
		buf_printf(out, "state %" PRId64 " bytes and %" PRId64 " for each sequence\n",
		           o->states.fixed_bytes, o->states.batch_bytes);
	for (size_t i = 0; i < ir_dims_count(planned->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(planned->dims, i);
		buf_printf(out, "%s in [%" PRId64 ", %" PRId64 "]\n", s->name, s->lo, s->hi);
	}
	for (size_t i = 0; i < p->n_functions; i++)
		plan_print(p->functions[i], planned, out);
}

void opencl_program_destroy(struct opencl_program *p)
{
	buf_destroy(&p->source);
	*p = (struct opencl_program){0};
}

/* The plans follow as a comment, so that the file is still OpenCL C. */
enum tfmc_status backend_opencl(struct diag_context *cx, const struct ir_module *planned,
                                const struct target *target, bool remarks, struct buf *out)
{
	struct arena arena;
	struct opencl_program p;
	arena_init(&arena);
	const struct backend_options options = {.remarks = remarks};
	enum tfmc_status status = opencl_build(cx, planned, target, &options, &arena, &p);
	if (status == TFMC_OK) {
		buf_append(out, &p.source);
		buf_str(out, "\n/*\n");
		opencl_print_plans(&p, out);
		buf_str(out, "*/\n");
	}
	opencl_program_destroy(&p);
	arena_destroy(&arena);
	return status == TFMC_OK && buf_failed(out) ? TFMC_NO_MEMORY : status;
}
