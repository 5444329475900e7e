/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of objects and of OpenCL: barriers are where kernels meet in memory, found by running the steps with numbers,
 * and nowhere else; a plan as bytes says the same as the plan; bytes that are no plan are refused, and what is not
 * refused can be walked.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backends/plan/opencl.h"
#include "ir/support/strmap.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "runtime/opencl/plan_read.h"
#include "tests/support/mini_model.h"
#include "tests/support/plan_rows.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/tir.h"

#define DIMS_MAX 16

static const char *const targets[] = {"x86-64-v3", "x86-64-v2", "opencl-gpu"};
#define N_TARGETS TFMC_COUNT(targets)

struct made {
	struct arena arena;
	struct tir graph;
	struct ir_module *planned;
	struct object object;          /* of a processor */
	struct opencl_program program; /* of any target */
	int64_t lo[DIMS_MAX], hi[DIMS_MAX];
};

/* The plans of an object as those of a program. */
static enum tfmc_status make_object(struct object *o, struct opencl_program *out)
{
	struct kb_caps caps = kb_caps_of(o->target);
	out->object = o;
	o->kb = kb_module_create(o->arena, &caps);
	TFMC_TRY(layout_weights(o));
	TFMC_TRY(layout_state(o));
	TFMC_TRY(layout_functions(o));
	out->functions = ARENA_ARRAY(o->arena, const struct plan *, o->functions.n);
	for (; out->n_functions < o->functions.n; out->n_functions++) {
		TFMC_TRY(plan_make(o, &o->functions.items[out->n_functions]));
		out->functions[out->n_functions] = o->functions.items[out->n_functions].plan;
	}
	return TFMC_OK;
}

static void begin(struct made *m)
{
	*m = (struct made){0};
	arena_init(&m->arena);
	tir_init(&m->graph);
}

/* m->graph.m through the passes, with the plans of its functions. */
static enum tfmc_status plan_all(struct made *m, const char *target, const char *level)
{
	static const struct backend_options none;
	struct pipeline passes;
	struct pass_options po = {.target = target_find(target)};
	ck_assert_int_eq(pipeline_parse(&m->arena, &m->graph.cx, level, &passes), TFMC_OK);
	ck_assert_int_eq(passes_run(&m->graph.cx, &passes, &po, m->graph.m, &m->planned, NULL), TFMC_OK);
	ck_assert_uint_le(ir_dims_count(m->planned->dims), DIMS_MAX);
	for (size_t i = 0; i < ir_dims_count(m->planned->dims); i++) {
		m->lo[i] = ir_dims_sym(m->planned->dims, i)->lo;
		m->hi[i] = ir_dims_sym(m->planned->dims, i)->hi;
	}
	if (po.target->arch == ARCH_OPENCL)
		return opencl_build(&m->graph.cx, m->planned, po.target, NULL, &m->arena, &m->program);
	object_init(&m->object, &m->graph.cx, &m->arena, m->planned, po.target, &none);
	return make_object(&m->object, &m->program);
}

static void make(struct made *m, const char *target, const char *level)
{
	begin(m);
	tir_load(&m->graph, mini_model);
	enum tfmc_status status = plan_all(m, target, level);
	ck_assert_msg(status == TFMC_OK, "%s", m->graph.log.data);
}

static void destroy(struct made *m)
{
	opencl_program_destroy(&m->program);
	if (m->planned)
		ir_module_destroy(m->planned);
	tir_destroy(&m->graph);
	arena_destroy(&m->arena);
}

static int64_t value(const struct ir_dim *d, const int64_t *dims)
{
	int64_t out = -1;
	ck_assert(ir_dim_eval(d, dims, &out));
	return out;
}

/* ---- barriers ---- */

/* A kernel in one turn of the repeats around it. */
struct event {
	const struct plan_kernel *kernel;
	int64_t turns[OBJECT_REPEAT_MAX];
};

struct execution {
	const struct plan *plan;
	const int64_t *dims;
	uint64_t wants;  /* a bit for each output */
	bool *is_needed; /* [plan->n]: something waited at the barrier, in this or another execution */
	int64_t turns[OBJECT_REPEAT_MAX];
	size_t depth;
	struct event open[256]; /* since the last barrier that all wait at */
	size_t n_open;
};

static bool overlap(const struct execution *x, const struct event *a, const struct area *p,
                    const struct event *b, const struct area *q)
{
	if (p->memory != q->memory || p->memory == AREA_SCRATCH || (!p->is_written && !q->is_written))
		return false;
	if (p->memory == AREA_OUTPUT)
		return p->number == q->number;
	int64_t from = value(p->offset, x->dims), to = value(q->offset, x->dims);
	for (size_t i = 0; i < OBJECT_REPEAT_MAX; i++) {
		from += p->stride[i] * a->turns[i];
		to += q->stride[i] * b->turns[i];
	}
	if (p->memory == AREA_STATE && p->state != q->state)
		return false; /* of every sequence other bytes */
	return from < to + value(q->bytes, x->dims) && to < from + value(p->bytes, x->dims);
}

static bool kernels_meet(const struct execution *x, const struct event *a, const struct event *b)
{
	for (size_t i = 0; i < a->kernel->areas.n; i++)
		for (size_t k = 0; k < b->kernel->areas.n; k++)
			if (overlap(x, a, &a->kernel->areas.items[i], b, &b->kernel->areas.items[k]))
				return true;
	return false;
}

/* Kernels that this one meets. */
static size_t count_meets(const struct execution *x, const struct event *e)
{
	size_t n = 0;
	for (size_t i = 0; i < x->n_open; i++)
		n += kernels_meet(x, &x->open[i], e);
	return n;
}

static struct event event_of(const struct execution *x, const struct plan_kernel *k)
{
	struct event e = {.kernel = k};
	memcpy(e.turns, x->turns, sizeof(e.turns));
	return e;
}

/* Behind a repeat's last kernel any kernel of the next turn waits. */
static void pass_barrier(struct execution *x, size_t at)
{
	const struct plan_command *next = &x->plan->items[at + 1];
	ck_assert_uint_lt(at + 1, x->plan->n);
	struct event e = {0};
	if (next->kind == PLAN_DISPATCH)
		e = event_of(x, next->kernel);
	if (next->kind == PLAN_REPEAT || next->kind == PLAN_END || (e.kernel && count_meets(x, &e) > 0))
		x->is_needed[at] = true;
	x->n_open = 0;
}

static void run_kernel(struct execution *x, const struct plan_kernel *k)
{
	struct event e = event_of(x, k);
	ck_assert_msg(count_meets(x, &e) == 0, "%s: nothing waits", k->name);
	ck_assert_uint_lt(x->n_open, TFMC_COUNT(x->open));
	x->open[x->n_open++] = e;
}

static bool is_wanted(const struct execution *x, const struct plan_command *s)
{
	bool any = false;
	for (size_t i = 0; i < s->n_outputs; i++)
		any = any || (x->wants >> s->outputs[i] & 1);
	return any;
}

/* Of what begins at a step. */
static size_t end_of(const struct plan *p, size_t at)
{
	size_t depth = 0;
	for (; at < p->n; at++) {
		enum plan_command_kind kind = p->items[at].kind;
		depth += kind == PLAN_REPEAT || kind == PLAN_IF_REQUESTED || kind == PLAN_IF_SPLIT;
		depth -= kind == PLAN_END;
		if (depth == 0)
			break;
	}
	return at;
}

/* All turns of all repeats; returns the step after the end. */
static size_t execute(struct execution *x, size_t at)
{
	for (; at < x->plan->n; at++) {
		const struct plan_command *s = &x->plan->items[at];
		switch (s->kind) {
		case PLAN_DISPATCH:
			if (plan_has_its_rows(s->kernel, x->dims))
				run_kernel(x, s->kernel);
			break;
		case PLAN_REPEAT:
			x->depth++;
			for (int64_t turn = 0; turn < s->count; turn++) {
				x->turns[x->depth - 1] = turn;
				(void)execute(x, at + 1);
			}
			x->turns[--x->depth] = 0;
			at = end_of(x->plan, at);
			break;
		case PLAN_IF_REQUESTED:
			if (is_wanted(x, s))
				(void)execute(x, at + 1);
			at = end_of(x->plan, at);
			break;
		case PLAN_IF_SPLIT: at = execute(x, at + 1); break;
		case PLAN_END: return at;
		case PLAN_BARRIER: pass_barrier(x, at); break;
		case PLAN_LENGTHS: break;
		}
	}
	return at;
}

/* Every execution is safe; gives where something waited in one of them, [p->n]. */
static bool *execute_all(struct made *m, const struct plan *p)
{
	const int64_t *dims[] = {m->lo, m->hi};
	bool *is_needed = ARENA_ARRAY(&m->arena, bool, p->n + 1);
	ck_assert_uint_lt(p->func->n_results, 8);
	for (uint64_t wants = 0; wants < (uint64_t)1 << p->func->n_results; wants++)
		for (size_t i = 0; i < TFMC_COUNT(dims); i++) {
			struct execution x = {
			        .plan = p, .dims = dims[i], .wants = wants, .is_needed = is_needed};
			ck_assert_uint_eq(execute(&x, 0), p->n);
		}
	return is_needed;
}

/* Every barrier is needed; returns how many there are. */
static size_t check_plan(struct made *m, const struct plan *p)
{
	size_t n = 0;
	const bool *is_needed = execute_all(m, p);
	for (size_t i = 0; i < p->n; i++) {
		bool is_barrier = p->items[i].kind == PLAN_BARRIER;
		ck_assert_msg(!is_barrier || is_needed[i], "%s: step %zu is a barrier for nothing",
		              p->func->name, i);
		n += is_barrier;
	}
	return n;
}

START_TEST(barriers)
{
	struct made m;
	size_t n = 0;
	make(&m, targets[_i % (int)N_TARGETS], _i < (int)N_TARGETS ? "O2" : "O0");
	for (size_t i = 0; i < m.program.n_functions; i++)
		n += check_plan(&m, m.program.functions[i]);
	ck_assert_uint_gt(n, 0);
	destroy(&m);
}
END_TEST

/* Of random modules with the op; bounds of their dims may hide that a barrier is not needed. */
START_TEST(every_op_waits)
{
	const enum ir_opcode code = (enum ir_opcode)_i;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct made m;
		struct random_options options = {0};
		bool has_memory = code == OP_weight || code == OP_state_append || code == OP_state_write ||
		                  code == OP_state_read; /* at indices that no plan can say */
		begin(&m);
		m.graph.m = has_memory ? NULL : random_module_for_op(&m.graph.cx, code, seed, &options);
		if (m.graph.m) {
			enum tfmc_status status =
			        plan_all(&m, targets[seed / 2 % 2 * 2], seed % 2 ? "O2" : "O0");
			ck_assert_msg(status == TFMC_OK, "%s", m.graph.log.data);
			for (size_t i = 0; i < m.program.n_functions; i++)
				(void)execute_all(&m, m.program.functions[i]);
		}
		destroy(&m);
	}
}
END_TEST

/* ---- as bytes ---- */

static void same_area(const struct made *m, const struct tfmc_plan *p, int64_t row, const struct area *a)
{
	const int64_t turns[PLAN_REPEATS] = {1, 2, 3, 4}, *dims[] = {m->lo, m->hi};
	ck_assert_str_eq(tfmc_plan_name(p, tfmc_plan_cell(p, PLAN_AREAS, row, AREA_C_NAME)), a->name);
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_AREAS, row, AREA_C_MEMORY), a->memory);
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_AREAS, row, AREA_C_NUMBER), (int64_t)a->number);
	for (size_t i = 0; i < TFMC_COUNT(dims); i++) {
		int64_t begin, bytes, want = value(a->offset, dims[i]);
		for (int d = 0; d < PLAN_REPEATS; d++)
			want += a->stride[d] * turns[d];
		ck_assert(tfmc_plan_area(p, row, dims[i], turns, &begin, &bytes));
		ck_assert_int_eq(begin, want);
		ck_assert_int_eq(bytes, value(a->bytes, dims[i]));
	}
}

static void same_kernel(const struct made *m, const struct tfmc_plan *p, int64_t row,
                        const struct plan_kernel *k)
{
	int64_t area = tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_AREAS_FIRST);
	int64_t arg = tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_ARGS_FIRST), tasks;
	ck_assert_str_eq(tfmc_plan_name(p, tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_NAME)), k->name);
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_WORK_ITEMS), k->items);
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_WORKERS), k->workers);
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_SCRATCH), k->scratch);
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_GROUP), (int64_t)k->number);
	ck_assert(tfmc_plan_eval(p, tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_TASKS), m->hi, &tasks));
	ck_assert_int_eq(tasks, value(k->tasks, m->hi));
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_AREAS_N), (int64_t)k->areas.n);
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_ARGS_N), (int64_t)k->n_args);
	for (size_t i = 0; i < k->areas.n; i++)
		same_area(m, p, area + (int64_t)i, &k->areas.items[i]);
	for (size_t i = 0; i < k->n_args; i++) {
		ck_assert_int_eq(tfmc_plan_cell(p, PLAN_ARGS, arg + (int64_t)i, ARG_KIND), k->args[i].kind);
		ck_assert_int_eq(tfmc_plan_cell(p, PLAN_ARGS, arg + (int64_t)i, ARG_NUMBER),
		                 (int64_t)k->args[i].number);
	}
}

static void same_step(const struct made *m, const struct tfmc_plan *p, int64_t row, const struct plan *of,
                      const struct plan_command *s)
{
	int64_t a = tfmc_plan_cell(p, PLAN_COMMANDS, row, COMMAND_A),
	        b = tfmc_plan_cell(p, PLAN_COMMANDS, row, COMMAND_B);
	ck_assert_int_eq(tfmc_plan_cell(p, PLAN_COMMANDS, row, COMMAND_KIND), s->kind);
	if (s->kind == PLAN_DISPATCH)
		same_kernel(m, p, a, s->kernel);
	if (s->kind == PLAN_REPEAT)
		ck_assert_int_eq(b, s->count);
	if (s->kind == PLAN_LENGTHS)
		same_area(m, p, a, of->lengths);
	for (size_t i = 0; s->kind == PLAN_IF_REQUESTED && i < s->n_outputs; i++)
		ck_assert_int_eq(tfmc_plan_cell(p, PLAN_OUTPUTS, a + (int64_t)i, OUTPUT_NUMBER),
		                 (int64_t)s->outputs[i]);
}

static void write_plan(struct made *m, struct buf *out)
{
	buf_init(out);
	ck_assert_int_eq(opencl_write_plan(&m->program, out), TFMC_OK);
}

START_TEST(bytes_say_the_same)
{
	struct made m;
	struct buf bytes;
	struct tfmc_plan p;
	make(&m, "opencl-gpu", _i == 0 ? "O2" : "O0");
	write_plan(&m, &bytes);
	ck_assert_ptr_null(tfmc_plan_open(bytes.data, bytes.len, &p));
	ck_assert_int_eq(tfmc_plan_header(&p, PLAN_H_INDEX_BITS), m.program.index_bits);
	ck_assert_int_eq(tfmc_plan_header(&p, PLAN_H_WEIGHTS), (int64_t)m.program.object->weights.bytes);
	ck_assert_int_eq(p.rows[PLAN_FUNCTIONS], (int64_t)m.program.n_functions);
	for (size_t i = 0; i < m.program.n_functions; i++) {
		const struct plan *f = m.program.functions[i];
		int64_t row = (int64_t)i,
		        first = tfmc_plan_cell(&p, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_FIRST);
		int64_t arena = tfmc_plan_cell(&p, PLAN_FUNCTIONS, row, FUNCTION_ARENA), need;
		ck_assert_str_eq(tfmc_plan_name(&p, tfmc_plan_cell(&p, PLAN_FUNCTIONS, row, FUNCTION_NAME)),
		                 f->func->name);
		ck_assert(tfmc_plan_eval(&p, arena, m.hi, &need));
		ck_assert_int_eq(need, value(f->arena_bytes, m.hi));
		ck_assert_int_eq(tfmc_plan_cell(&p, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_N), (int64_t)f->n);
		for (size_t k = 0; k < f->n; k++)
			same_step(&m, &p, first + (int64_t)k, f, &f->items[k]);
	}
	buf_destroy(&bytes);
	destroy(&m);
}
END_TEST

/* ---- bytes of anybody ---- */

/* All that a host reads, with any dims. */
static void read_all(const struct tfmc_plan *p, const int64_t *dims)
{
	const int64_t turns[PLAN_REPEATS] = {INT64_MAX, 1, INT64_MIN, 3};
	int64_t begin, bytes;
	size_t letters = 0;
	for (int64_t i = 0; i < p->rows[PLAN_AREAS]; i++) {
		(void)tfmc_plan_area(p, i, dims, turns, &begin, &bytes);
		letters += strlen(tfmc_plan_name(p, tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_NAME)));
	}
	for (int64_t i = 0; i < p->rows[PLAN_KERNELS]; i++) {
		(void)tfmc_plan_eval(p, tfmc_plan_cell(p, PLAN_KERNELS, i, KERNEL_TASKS), dims, &begin);
		letters += strlen(tfmc_plan_name(p, tfmc_plan_cell(p, PLAN_KERNELS, i, KERNEL_NAME)));
	}
	for (int64_t i = 0; i < p->rows[PLAN_FORMULAS]; i++)
		(void)tfmc_plan_eval(p, i, dims, &begin);
	ck_assert_uint_lt(letters, SIZE_MAX);
}

static void sum_again(char *bytes, size_t n)
{
	const size_t summed = 8 * (PLAN_H_CHECKSUM + 1);
	uint64_t sum = hash_bytes64(HASH64_SEED, bytes + summed, n - summed);
	for (int i = 0; i < 8; i++)
		bytes[8 * PLAN_H_CHECKSUM + i] = (char)(sum >> (8 * i) & 0xff);
}

/* A copy of exactly n bytes, so that reading beyond them is found by a checker of memory. */
static const char *open_copy(const char *bytes, size_t n, const int64_t *dims)
{
	struct tfmc_plan p;
	char *copy = malloc(n > 0 ? n : 1);
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, n);
	const char *wrong = tfmc_plan_open(copy, n, &p);
	if (!wrong)
		read_all(&p, dims);
	free(copy);
	return wrong;
}

START_TEST(changed_bytes_are_refused)
{
	struct made m;
	struct buf b;
	make(&m, "opencl-gpu", "O2");
	write_plan(&m, &b);
	ck_assert_ptr_null(open_copy(b.data, b.len, m.lo));
	for (size_t n = 0; n < b.len; n += n < 512 ? 1 : 61)
		ck_assert_ptr_nonnull(open_copy(b.data, n, m.lo));
	for (size_t i = 0; i < b.len; i += i < 512 ? 1 : 61) {
		b.data[i] ^= 0x10;
		ck_assert_ptr_nonnull(open_copy(b.data, b.len, m.lo));
		b.data[i] ^= 0x10;
	}
	buf_destroy(&b);
	destroy(&m);
}
END_TEST

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* With a sum that fits: every check is asked. Numbers that were somewhere else in the file are the most likely ones
 * to pass. */
START_TEST(any_numbers_are_safe)
{
	static const int64_t odd[] = {-1, 0, 1, 2, 3, 7, 8, 9, 31, 255, INT32_MAX, INT64_MAX, INT64_MIN};
	struct made m;
	struct buf b;
	size_t accepted = 0, refused = 0;
	uint64_t state = (uint64_t)_i + 1;
	make(&m, "opencl-gpu", "O2");
	write_plan(&m, &b);
	char *bytes = malloc(b.len);
	ck_assert_ptr_nonnull(bytes);
	for (int turn = 0; turn < 4000; turn++) {
		memcpy(bytes, b.data, b.len);
		for (uint64_t n = 1 + next_random(&state) % 3; n > 0; n--) {
			size_t at = 8 * (PLAN_H_INDEX_BITS +
			                 next_random(&state) % (b.len / 8 - PLAN_H_INDEX_BITS));
			int64_t v = odd[next_random(&state) % TFMC_COUNT(odd)];
			if (next_random(&state) % 2)
				memcpy(&v, b.data + 8 * (next_random(&state) % (b.len / 8)), 8);
			memcpy(bytes + at, &v, 8);
		}
		sum_again(bytes, b.len);
		*(open_copy(bytes, b.len, m.hi) ? &refused : &accepted) += 1;
	}
	ck_assert_uint_gt(refused, 0);
	ck_assert_uint_gt(accepted, 0);
	free(bytes);
	buf_destroy(&b);
	destroy(&m);
}
END_TEST

/* A row that refers to what is not there, each with its reason. */
START_TEST(reasons)
{
	static const struct {
		enum plan_section section;
		int column;
		int64_t value;
		const char *wrong;
	} rows[] = {
	        {PLAN_DIMS, DIM_NAME, 1 << 20, "a name is outside the names"},
	        {PLAN_DIMS, DIM_LO, -1, "a dim has no bounds"},
	        {PLAN_CODE, CODE_OP, PLAN_ADD, "a formula has a wrong operation"},
	        {PLAN_FORMULAS, FORMULA_N, 0, "a formula does not leave one value"},
	        {PLAN_AREAS, AREA_C_MEMORY, 6, "there is no such memory"},
	        {PLAN_AREAS, AREA_C_BYTES, 1 << 20, "there is no such formula"},
	        {PLAN_AREAS, AREA_C_SPARE, INT64_MIN, "there is no such formula"},
	        {PLAN_AREAS, AREA_C_STRIDE + 3, 64, "an area depends on a repeat that is not open"},
	        {PLAN_ARGS, ARG_KIND, PLAN_WORKER, "an argument is nothing that the kernel may have"},
	        {PLAN_KERNELS, KERNEL_ROWS, 1 << 20, "there is no such formula"},
	        {PLAN_KERNELS, KERNEL_WORK_ITEMS, 0, "a kernel has no work-items"},
	        {PLAN_KERNELS, KERNEL_AREAS_FIRST, 1, "rows do not follow the ones before"},
	        {PLAN_COMMANDS, COMMAND_KIND, PLAN_END, "an end without a repeat or condition"},
	        {PLAN_COMMANDS, COMMAND_KIND, 99, "there is no such command"},
	        {PLAN_FUNCTIONS, FUNCTION_COMMANDS_N, 0, "rows do not follow the ones before"},
	};
	struct made m;
	struct buf b;
	struct tfmc_plan p;
	make(&m, "opencl-gpu", "O2");
	write_plan(&m, &b);
	ck_assert_ptr_null(tfmc_plan_open(b.data, b.len, &p));
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		char kept[8], *at = b.data + (p.section[rows[i].section] - p.bytes) + 8 * rows[i].column;
		memcpy(kept, at, 8);
		for (int k = 0; k < 8; k++)
			at[k] = (char)((uint64_t)rows[i].value >> (8 * k) & 0xff);
		sum_again(b.data, b.len);
		const char *wrong = open_copy(b.data, b.len, m.lo);
		ck_assert_msg(wrong && !strcmp(wrong, rows[i].wrong), "%s: %s", rows[i].wrong,
		              wrong ? wrong : "read");
		memcpy(at, kept, 8);
	}
	buf_destroy(&b);
	destroy(&m);
}
END_TEST

/* ---- text ---- */

START_TEST(text)
{
	struct made m;
	struct buf out;
	make(&m, "x86-64-v3", "O2");
	buf_init(&out);
	opencl_print_plans(&m.program, &out);
	ck_assert_ptr_nonnull(strstr(out.data, "launches of decode: arena "));
	ck_assert_ptr_nonnull(strstr(out.data, "\n  barrier\n  repeat "));
	ck_assert_ptr_nonnull(strstr(out.data, ", worker, workers"));
	ck_assert_ptr_nonnull(strstr(out.data, "new lengths: "));
	ck_assert_ptr_null(strstr(out.data, " groups of "));
	buf_destroy(&out);
	destroy(&m);
}
END_TEST

Suite *suite_plan(void);
Suite *suite_plan(void)
{
	Suite *s = suite_create("plan");
	TCase *t = tcase_create("plans");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, barriers, 0, 2 * (int)N_TARGETS);
	tcase_add_loop_test(t, every_op_waits, 0, IR_N_OPS);
	tcase_add_loop_test(t, bytes_say_the_same, 0, 2);
	tcase_add_test(t, changed_bytes_are_refused);
	tcase_add_loop_test(t, any_numbers_are_safe, 0, 4);
	tcase_add_test(t, reasons);
	tcase_add_test(t, text);
	suite_add_tcase(s, t);
	return s;
}
