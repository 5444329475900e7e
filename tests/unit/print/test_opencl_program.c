/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of OpenCL launches, before any text is printed: every op can be
 * recorded, steps follow the plan, places stay inside their
 * memory for all dims, and equal layers share their kernels.
 */
#include <check.h>
#include <string.h>

#include "backends/kb/kernel_ir.h"
#include "backends/plan/opencl.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/mini_model.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/tir.h"

struct recorded {
	struct arena arena;
	struct tir graph;
	struct ir_module *planned;
	struct opencl_program p;
};

static void recorded_init(struct recorded *r)
{
	*r = (struct recorded){0};
	arena_init(&r->arena);
	tir_init(&r->graph);
}

static void recorded_destroy(struct recorded *r)
{
	opencl_program_destroy(&r->p);
	if (r->planned)
		ir_module_destroy(r->planned);
	tir_destroy(&r->graph);
	arena_destroy(&r->arena);
}

/* r->graph.m through the passes and the recorder. */
static enum tfmc_status record(struct recorded *r, const char *level)
{
	struct diag_context *cx = &r->graph.cx;
	const struct target *t = target_find("opencl-gpu");
	struct pipeline passes;
	ck_assert(t != NULL);
	struct pass_options po = {.target = t};
	ck_assert_int_eq(pipeline_parse(&r->arena, cx, level, &passes), TFMC_OK);
	enum tfmc_status st = passes_run(cx, &passes, &po, r->graph.m, &r->planned, NULL);
	ck_assert_msg(st == TFMC_OK, "%s", r->graph.log.data);
	return opencl_build(cx, r->planned, t, NULL, &r->arena, &r->p);
}

static void record_text(struct recorded *r, const char *text, const char *level)
{
	recorded_init(r);
	tir_load(&r->graph, text);
	enum tfmc_status st = record(r, level);
	ck_assert_msg(st == TFMC_OK, "%s", r->graph.log.data);
}

/* ---- what holds for every program ---- */

static int64_t value(const struct ir_dim *d, const int64_t *dims)
{
	int64_t out = -1;
	ck_assert(ir_dim_eval(d, dims, &out));
	return out;
}

static int64_t memory_bytes(const struct recorded *r, const struct plan *f, const struct area *p,
                            const int64_t *dims)
{
	struct ir_dims *t = r->planned->dims;
	struct ir_value v = {0};
	switch (p->memory) {
	case AREA_WEIGHTS: return (int64_t)r->p.object->weights.bytes;
	case AREA_ARENA: return value(f->arena_bytes, dims);
	case AREA_STATE:
		return r->p.object->states.fixed_bytes +
		       r->p.object->states.batch_bytes * dims[r->p.object->states.batch_dim];
	case AREA_INPUT: v = f->func->params[p->number].value; break;
	case AREA_OUTPUT: v = func_result(f->func, p->number); break;
	case AREA_SCRATCH: return INT64_MAX;
	}
	const struct ir_type *type = ir_type_of(f->func, v);
	return value(ir_type_count(t, type), dims) * ir_dtype_bytes(type->dtype);
}

static void check_place(const struct recorded *r, const struct plan *f, const struct area *p,
                        const int64_t *turns, const int64_t *dims)
{
	int64_t at = value(p->offset, dims), bytes = value(p->bytes, dims), far = at;
	for (int d = 0; d < OBJECT_REPEAT_MAX; d++)
		far += p->stride[d] * turns[d];
	ck_assert_int_ge(at, 0);
	ck_assert_int_ge(far, at);
	ck_assert_int_ge(bytes, 0);
	ck_assert_msg(far + bytes <= memory_bytes(r, f, p, dims), "%s: %lld + %lld", p->name, (long long)far,
	              (long long)bytes);
	ck_assert(!p->is_written || p->memory != AREA_WEIGHTS);
	ck_assert(!p->is_written || p->memory != AREA_INPUT);
}

static const struct kb_func *find_kernel(const struct recorded *r, const char *name)
{
	for (size_t i = 0; i < kb_func_count(r->p.object->kb); i++)
		if (!strcmp(kb_func_at(r->p.object->kb, i)->name, name))
			return kb_func_at(r->p.object->kb, i);
	ck_abort_msg("no kernel %s", name);
	return NULL;
}

/* The arguments are what the kernel takes. */
static void check_args(const struct recorded *r, const struct plan_kernel *l, size_t depth)
{
	const struct kb_func *f = find_kernel(r, l->name);
	size_t n = 0;
	while (n < f->n_insts && f->insts[n].op == KBO_PARAM)
		n++;
	ck_assert_uint_eq(n, l->n_args);
	ck_assert_int_eq(f->group_size, l->items);
	for (size_t i = 0; i < n; i++) {
		bool is_buffer = l->args[i].kind == PLAN_BUFFER;
		ck_assert_int_eq(f->insts[i].type.scalar, is_buffer ? KB_PTR : KB_INDEX);
		if (is_buffer || l->args[i].kind == PLAN_OFFSET)
			ck_assert_uint_lt(l->args[i].number, l->areas.n);
		if (l->args[i].kind == PLAN_DIM)
			ck_assert_uint_lt(l->args[i].number, ir_dims_count(r->planned->dims));
		if (l->args[i].kind == PLAN_INDEX)
			ck_assert_uint_lt(l->args[i].number, depth);
	}
}

static void check_kernel(const struct recorded *r, const struct plan *p, const struct plan_kernel *k,
                         const int64_t *turns, size_t depth, const int64_t *dims)
{
	check_args(r, k, depth);
	ck_assert_int_ge(value(k->tasks, dims), 0);
	for (size_t i = 0; i < k->areas.n; i++)
		check_place(r, p, &k->areas.items[i], turns, dims);
}

/* Every repeat and condition has its end. */
static void check_function(const struct recorded *r, const struct plan *p, const int64_t *dims)
{
	int64_t turns[OBJECT_REPEAT_MAX] = {0};
	enum plan_command_kind open[OBJECT_REPEAT_MAX + 1];
	size_t repeats = 0, depth = 0;
	for (size_t i = 0; i < p->n; i++) {
		const struct plan_command *s = &p->items[i];
		if (s->kind == PLAN_REPEAT || s->kind == PLAN_IF_REQUESTED) {
			ck_assert_uint_le(depth, OBJECT_REPEAT_MAX);
			open[depth++] = s->kind;
		}
		if (s->kind == PLAN_REPEAT) {
			ck_assert_uint_lt(repeats, OBJECT_REPEAT_MAX);
			turns[repeats++] = s->count > 0 ? s->count - 1 : 0;
		} else if (s->kind == PLAN_END) {
			ck_assert_uint_gt(depth, 0);
			if (open[--depth] == PLAN_REPEAT)
				turns[--repeats] = 0;
		} else if (s->kind == PLAN_DISPATCH) {
			check_kernel(r, p, s->kernel, turns, repeats, dims);
		}
	}
	ck_assert_uint_eq(depth, 0);
}

/* For the smallest and the largest dims. */
static void check_program(const struct recorded *r)
{
	size_t n = ir_dims_count(r->planned->dims);
	int64_t lo[16] = {0}, hi[16] = {0};
	ck_assert_uint_lt(n, 16);
	for (size_t i = 0; i < n; i++) {
		lo[i] = ir_dims_sym(r->planned->dims, i)->lo;
		hi[i] = ir_dims_sym(r->planned->dims, i)->hi;
	}
	for (size_t i = 0; i < r->p.n_functions; i++) {
		check_function(r, r->p.functions[i], lo);
		check_function(r, r->p.functions[i], hi);
	}
}

/* ---- every op ---- */

/* Random modules index weights and state by parameters, which no program can; the model below has them. */
static bool cannot_run(enum ir_opcode code)
{
	return code == OP_weight || code == OP_state_append || code == OP_state_write ||
	       code == OP_state_read;
}

static void check_op(enum ir_opcode code, uint64_t seed, bool all_dtypes)
{
	struct recorded r;
	struct random_options options = {.all_dtypes = all_dtypes};
	recorded_init(&r);
	r.graph.m = cannot_run(code) ? NULL : random_module_for_op(&r.graph.cx, code, seed, &options);
	if (r.graph.m) {
		enum tfmc_status st = record(&r, seed % 2 ? "O2" : "O0");
		bool refused = st == TFMC_INVALID && strstr(r.graph.log.data, "not supported yet");
		ck_assert_msg(st == TFMC_OK || (all_dtypes && refused), "%s: %s", ir_op_desc(code)->name,
		              r.graph.log.data);
		if (st == TFMC_OK)
			check_program(&r);
	}
	recorded_destroy(&r);
}

START_TEST(every_op)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		check_op((enum ir_opcode)_i, seed, seed > 2);
}
END_TEST

/* ---- whole models ---- */

START_TEST(model_of_states)
{
	struct recorded r;
	record_text(&r, mini_model, _i == 0 ? "O2" : "O0");
	check_program(&r);
	ck_assert_uint_eq(r.p.n_functions, 3);
	ck_assert_int_eq(r.p.index_bits, 32);
	ck_assert_ptr_null(r.p.functions[0]->lengths);
	ck_assert_ptr_nonnull(r.p.functions[1]->lengths);
	ck_assert_int_eq(r.p.functions[1]->lengths->memory, AREA_ARENA);
	size_t repeats = 0, reads_past = 0;
	/* With O2 the last of both layers is after the loop. */
	int64_t count = _i == 0 ? 1 : 2;
	for (size_t i = 0; i < r.p.functions[1]->n; i++) {
		const struct plan_command *s = &r.p.functions[1]->items[i];
		repeats += s->kind == PLAN_REPEAT && s->count == count;
		for (size_t p = 0; s->kind == PLAN_DISPATCH && p < s->kernel->areas.n; p++) {
			const struct area *x = &s->kernel->areas.items[p];
			reads_past += x->memory == AREA_STATE && ir_dim_equals(x->offset, STATE_PAST);
		}
	}
	ck_assert_uint_eq(repeats, 1);
	ck_assert_uint_gt(reads_past, 0);
	recorded_destroy(&r);
}
END_TEST

#define LAYER(n, x)                                                \
	"%n" n " = layer_norm %" x ", @g" n " : f32[B,32]\n"       \
	"%l" n " = linear %n" n ", @w" n ", @b" n " : f32[B,32]\n" \
	"%s" n " = softmax %l" n " : f32[B,32]\n"
#define WEIGHTS(n)                                                                            \
	"weight @g" n " : f32[32] = full(1." n ", [32])\n"                                    \
	"weight @b" n " : f32[32] = full(2." n ", [32])\n"                                    \
	"weight @w" n " : f32[32,32] = sinusoid(rows=32, dim=32, layout=halves, spacing=t2t," \
	" start=" n ", base=100.0)\n"

START_TEST(equal_layers_share_kernels)
{
	static const char text[] = "module \"layers\"\ndim B in [1,64]\n" WEIGHTS("1") WEIGHTS("2")
	        WEIGHTS("3") "func @run(%x: f32[B,32]) -> (y: f32[B,32]) {\n" LAYER("1", "x") LAYER("2", "s1")
	                LAYER("3", "s2") "return %s3\n}\n";
	struct recorded r;
	/* A kernel that writes over what it reads is another one. */
	record_text(&r, text, "encode,group,select,plan-memory{in_place=0}");
	check_program(&r);
	const struct plan_kernel *kernels[16];
	size_t n = 0, per_layer;
	for (size_t i = 0; i < r.p.functions[0]->n; i++)
		if (r.p.functions[0]->items[i].kind == PLAN_DISPATCH) {
			ck_assert_uint_lt(n, 16);
			kernels[n++] = r.p.functions[0]->items[i].kernel;
		}
	per_layer = n / 3;
	ck_assert_uint_eq(n % 3, 0);
	ck_assert_uint_eq(kb_func_count(r.p.object->kb), per_layer);
	for (size_t i = per_layer; i < n; i++) {
		const struct plan_kernel *a = kernels[i - per_layer], *b = kernels[i];
		ck_assert_str_eq(a->name, b->name);
		for (size_t k = 0; k < a->areas.n; k++)
			ck_assert(a->areas.items[k].memory != AREA_WEIGHTS ||
			          a->areas.items[k].offset != b->areas.items[k].offset);
	}
	recorded_destroy(&r);
}
END_TEST

START_TEST(other_shapes_do_not_share)
{
	static const char text[] =
	        "module \"shapes\"\ndim B in [1,64]\n"
	        "func @run(%x: f32[B,32], %y: f32[B,33]) -> (a: f32[B,32], b: f32[B,33], c: f32[B,32]) {\n"
	        "%a = exp %x : f32[B,32]\n%b = exp %y : f32[B,33]\n%c = neg %x : f32[B,32]\n"
	        "return %a, %b, %c\n}\n";
	struct recorded r;
	record_text(&r, text, "O2");
	check_program(&r);
	ck_assert_uint_eq(kb_func_count(r.p.object->kb), 3);
	recorded_destroy(&r);
}
END_TEST

/* Signatures have nothing that is not used. */
START_TEST(signature)
{
	static const char text[] =
	        "module \"one\"\ndim B in [1,64]\ndim S in [1,8]\n"
	        "func @run(%src: f32[B,32], %other: f32[S]) -> (out: f32[B,32], rest: f32[S]) {\n"
	        "%a = exp %src : f32[B,32]\n%b = neg %other : f32[S]\nreturn %a, %b\n}\n";
	struct recorded r;
	record_text(&r, text, "O2");
	const struct plan_command *step = r.p.functions[0]->items;
	while (step->kind != PLAN_DISPATCH)
		step++;
	const struct plan_kernel *l = step->kernel;
	const struct kb_func *f = find_kernel(&r, l->name);
	const char *const names[] = {"src", "src_at", "out", "out_at", "B"};
	ck_assert_str_eq(f->name, "exp_0");
	ck_assert_uint_eq(l->n_args, 5);
	for (size_t i = 0; i < 5; i++)
		ck_assert_str_eq(f->insts[i].name, names[i]);
	ck_assert(l->args[4].kind == PLAN_DIM && l->args[4].number == 0);
	recorded_destroy(&r);
}
END_TEST

START_TEST(f64_is_refused_with_its_place)
{
	struct recorded r;
	recorded_init(&r);
	tir_load(&r.graph, "module \"wide\"\ndim B in [1,64]\n"
	                   "func @run(%x: f64[B]) -> (y: f64[B]) {\n%a = exp %x : f64[B]\nreturn %a\n}\n");
	ck_assert_int_eq(record(&r, "O2"), TFMC_INVALID);
	tir_says(&r.graph, "test.tir:4:");
	tir_says(&r.graph, "not supported yet: ");
	tir_says(&r.graph, "f64");
	recorded_destroy(&r);
}
END_TEST

START_TEST(large_buffers_have_wide_indices)
{
	struct recorded r;
	record_text(&r,
	            "module \"large\"\ndim B in [1,65536]\n"
	            "func @run(%x: f32[B,32768]) -> (y: f32[B,32768]) {\n"
	            "%a = exp %x : f32[B,32768]\nreturn %a\n}\n",
	            "O2");
	ck_assert_int_eq(r.p.index_bits, 64);
	recorded_destroy(&r);
}
END_TEST

START_TEST(table)
{
	struct recorded r;
	struct buf out;
	buf_init(&out);
	record_text(&r, mini_model, "O2");
	opencl_print_plans(&r.p, &out);
	ck_assert_ptr_nonnull(strstr(out.data, "indices of 32 bits\n"));
	ck_assert_ptr_nonnull(strstr(out.data, "B in [1, 4]\n"));
	ck_assert_ptr_nonnull(strstr(out.data, "launches of decode: arena "));
	ck_assert_ptr_nonnull(strstr(out.data, "  repeat 2 as index0\n    "));
	ck_assert_ptr_nonnull(strstr(out.data, "*index0 ["));
	ck_assert_ptr_nonnull(strstr(out.data, "new lengths: "));
	ck_assert_ptr_null(strstr(out.data, "*/"));
	buf_destroy(&out);
	recorded_destroy(&r);
}
END_TEST

Suite *suite_opencl_program(void);
Suite *suite_opencl_program(void)
{
	Suite *s = suite_create("opencl_program");
	TCase *t = tcase_create("programs");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, every_op, 0, IR_N_OPS);
	tcase_add_loop_test(t, model_of_states, 0, 2);
	tcase_add_test(t, equal_layers_share_kernels);
	tcase_add_test(t, other_shapes_do_not_share);
	tcase_add_test(t, signature);
	tcase_add_test(t, f64_is_refused_with_its_place);
	tcase_add_test(t, large_buffers_have_wide_indices);
	tcase_add_test(t, table);
	suite_add_tcase(s, t);
	return s;
}
