/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases in an object: which function serves a call. The cases of this module
 * compute something else than their base, which the verifier cannot see, so
 * that results tell who was called. That real cases
 * give the same bits as their base is tested in test_object_model.c.
 */
#include <check.h>
#include <string.h>

#include "backends/backend.h"
#include "ir/core/case.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "runtime/tfmc_rt.h"
#include "tests/support/tir.h"
#include "tests/support/planned.h"

Suite *suite_object_case(void);

#define DECODE(name, rows, when, factor)                                                 \
	"func @" name "(%past: i32[B] {role=past}, %x: f32[B," rows ",4], %k: state @k)" \
	" -> (o: f32[B," rows ",4], state @k, i32[B] {role=past})" when " {\n"           \
	"  %xv = reshape %x {dims=[B,1," rows ",4]} : f32[B,1," rows ",4]\n"             \
	"  %sl, %k2 = state_append %k, %xv, %past : f32[B,1,30,4], state @k\n"           \
	"  %oo = scale %x {f=" factor "} : f32[B," rows ",4]\n"                          \
	"  %8 = dim_value {dim=" rows "} : i32[]\n"                                      \
	"  %9 = broadcast %8 {dims=[B]} : i32[B]\n"                                      \
	"  %np = add %past, %9 : i32[B]\n"                                               \
	"  return %oo, %k2, %np\n"                                                       \
	"}\n"
#define RUN(name, rows, when, factor)                                                 \
	"func @" name "(%x: f32[B," rows ",4]) -> (y: f32[B," rows ",4])" when " {\n" \
	"  %y = scale %x {f=" factor "} : f32[B," rows ",4]\n"                        \
	"  return %y\n"                                                               \
	"}\n"

static const char liar[] =
        "module \"toy\"\n"
        "dim B in [1,4]\n"
        "dim S in [1,6]\n"
        "state @k : f32[B,1,30,4] #row\n" RUN("run.one", "1", " case of @run when S = 1", "3.0")
                RUN("run", "S", "", "2.0") RUN("run.few", "S", " case of @run when B*S <= 4", "4.0")
                        DECODE("decode", "S", "", "10.0")
                                DECODE("decode.pair", "1", " case of @decode when S = 1, B <= 2", "30.0")
                                        DECODE("decode.one", "1", " case of @decode when S = 1", "20.0");

struct loaded {
	struct tir tir;
	struct arena arena;
	struct ir_module *planned;
	struct backend_output out;
	struct backend_jit *jit;
	struct tfmc_model model;
};

static void load(struct loaded *l, const char *text, const char *passes, const struct backend_options *bo)
{
	const struct pass_options po = {.target = target_native()};
	struct pipeline p;
	tir_init(&l->tir);
	tir_load(&l->tir, text);
	arena_init(&l->arena);
	backend_output_init(&l->out);
	struct diag_context *cx = &l->tir.cx;
	ck_assert_int_eq(pipeline_parse(&l->arena, cx, passes, &p), TFMC_OK);
	enum tfmc_status status = passes_run(cx, &p, &po, l->tir.m, &l->planned, NULL);
	ck_assert_msg(status == TFMC_OK, "%s", l->tir.log.data);
	status = planned_compile(cx, l->planned, po.target, NULL, bo, &l->out);
	ck_assert_msg(status == TFMC_OK, "%s", l->tir.log.data);
	ck_assert_int_eq(backend_jit_load(cx, &l->out.object, &l->jit), TFMC_OK);
	ck_assert(backend_jit_model(l->jit, "toy", &l->model));
}

static void unload(struct loaded *l)
{
	backend_jit_destroy(l->jit);
	backend_output_destroy(&l->out);
	ir_module_destroy(l->planned);
	arena_destroy(&l->arena);
	tir_destroy(&l->tir);
}

/* Result of the entry for inputs of ones. */
static float factor(struct tfmc_session *s, const char *name, int64_t b, int64_t n)
{
	float x[4 * 6 * 4], y[4 * 6 * 4] = {0};
	int64_t dims[] = {b, n}, number = tfmc_entry_find(tfmc_session_record(s), name);
	struct tfmc_buffer in = {x, (uint64_t)(b * n * 4)}, out = {y, (uint64_t)(b * n * 4)};
	for (size_t i = 0; i < TFMC_COUNT(x); i++)
		x[i] = 1;
	ck_assert_int_ge(number, 0);
	ck_assert_int_eq(tfmc_session_reset(s), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_call(s, number, dims, &in, &out), TFMC_RT_OK);
	for (int64_t i = 1; i < b * n * 4; i++)
		ck_assert_float_eq(y[i], y[0]);
	return y[0];
}

static const char pipeline[] = "group,select,plan-memory";
static const struct backend_options options = {.opt_level = 1, .needs_kernels = true};

/* In every form of a call, the first case whose conditions hold. */
START_TEST(the_first_case_that_holds)
{
	static const struct tfmc_session_options forms[] = {
	        {.struct_size = sizeof(forms[0])},
	        {.struct_size = sizeof(forms[0]), .workers = 2, .all_workers = 1, .driver = TFMC_DRIVER_SPMD},
	        {.struct_size = sizeof(forms[0]),
	         .workers = 2,
	         .all_workers = 1,
	         .driver = TFMC_DRIVER_PARALLEL_FOR}};
	struct loaded l;
	struct tfmc_session *s;
	load(&l, liar, pipeline, &options);
	ck_assert_int_eq(tfmc_session_open(&l.model, &forms[_i], &s), TFMC_RT_OK);
	ck_assert_float_eq(factor(s, "run", 2, 3), 2);
	ck_assert_float_eq(factor(s, "run", 4, 1), 3);
	ck_assert_float_eq(factor(s, "run", 1, 1), 3);
	ck_assert_float_eq(factor(s, "run", 1, 4), 4);
	ck_assert_float_eq(factor(s, "run", 2, 2), 4);
	ck_assert_float_eq(factor(s, "run", 1, 5), 2);
	ck_assert_float_eq(factor(s, "prefill", 3, 2), 10);
	ck_assert_float_eq(factor(s, "prefill", 3, 1), 20);
	ck_assert_float_eq(factor(s, "prefill", 2, 1), 30);
	ck_assert_float_eq(factor(s, "step", 3, 1), 20);
	ck_assert_float_eq(factor(s, "step", 2, 1), 30);
	tfmc_session_close(s);
	unload(&l);
}
END_TEST

/* A call that fits into the first state and not into a smaller second one writes nothing. */
START_TEST(the_smallest_state_is_the_limit)
{
	static const char two_states[] =
	        "module \"toy\"\n"
	        "dim B in [1,4]\n"
	        "dim S in [1,6]\n"
	        "state @k : f32[B,1,30,4] #row\n"
	        "state @v : f32[B,1,8,4] #row\n"
	        "func @decode(%past: i32[B] {role=past}, %x: f32[B,S,4], %k: state @k, %v: state @v)"
	        " -> (o: f32[B,S,4], state @k, state @v, i32[B] {role=past}) {\n"
	        "  %xv = reshape %x {dims=[B,1,S,4]} : f32[B,1,S,4]\n"
	        "  %sk, %k2 = state_append %k, %xv, %past : f32[B,1,30,4], state @k\n"
	        "  %sv, %v2 = state_append %v, %xv, %past : f32[B,1,8,4], state @v\n"
	        "  %oo = scale %x {f=2.0} : f32[B,S,4]\n"
	        "  %8 = dim_value {dim=S} : i32[]\n"
	        "  %9 = broadcast %8 {dims=[B]} : i32[B]\n"
	        "  %np = add %past, %9 : i32[B]\n"
	        "  return %oo, %k2, %v2, %np\n"
	        "}\n";
	struct loaded l;
	struct tfmc_session *s;
	float x[5 * 4] = {0}, y[5 * 4];
	const int64_t dims[] = {1, 5};
	const struct tfmc_buffer in = {x, TFMC_COUNT(x)}, out = {y, TFMC_COUNT(y)};
	load(&l, two_states, pipeline, &options);
	ck_assert_int_eq(tfmc_session_open(&l.model, NULL, &s), TFMC_RT_OK);
	int64_t prefill = tfmc_entry_find(tfmc_session_record(s), "prefill");
	ck_assert_int_eq(tfmc_session_call(s, prefill, dims, &in, &out), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_call(s, prefill, dims, &in, &out), TFMC_RT_E_FULL);
	ck_assert_int_eq(tfmc_session_length(s, 0), 5);
	tfmc_session_close(s);
	unload(&l);
}
END_TEST

/* The interpreter's choice is the same. */
START_TEST(the_interpreter_agrees)
{
	static const struct {
		int64_t dims[2];
		const char *name;
	} rows[] = {{{2, 3}, "run"}, {{4, 1}, "run.one"}, {{1, 4}, "run.few"}, {{2, 2}, "run.few"}};
	struct tir t;
	tir_init(&t);
	tir_load(&t, liar);
	const struct ir_func *run = ir_find_func(t.m, "run"), *decode = ir_find_func(t.m, "decode");
	for (size_t i = 0; i < TFMC_COUNT(rows); i++)
		ck_assert_str_eq(ir_select_case(t.m, run, rows[i].dims)->name, rows[i].name);
	ck_assert_str_eq(ir_select_case(t.m, decode, (int64_t[]){2, 1})->name, "decode.pair");
	ck_assert_str_eq(ir_select_case(t.m, decode, (int64_t[]){3, 1})->name, "decode.one");
	ck_assert_ptr_eq(ir_select_case(t.m, decode, (int64_t[]){3, 2}), decode);
	ck_assert_ptr_eq(ir_case_base(t.m, ir_find_func(t.m, "decode.one")), decode);
	tir_destroy(&t);
}
END_TEST

/* Which dims are arguments does not depend on cases: the same words, and nothing beside the entries. */
START_TEST(callers_see_no_cases)
{
	struct loaded l;
	load(&l, liar, pipeline, &options);
	ck_assert_uint_eq(l.model.record->n_entries, 3);
	ck_assert_ptr_nonnull(
	        strstr(l.out.header.data, "struct toy_prefill_args {\n\tint64_t B;\n\tint64_t S;\n"));
	ck_assert_ptr_nonnull(
	        strstr(l.out.header.data, "struct toy_step_args {\n\tint64_t B;\n\tconst float *x;"));
	ck_assert_ptr_null(strstr(l.out.header.data, "toy_decode"));
	unload(&l);
}
END_TEST

/* An object whose only entry is step has no code for calls of several tokens. */
START_TEST(only_what_is_reached)
{
	const char *const entries[] = {"step"};
	struct backend_options step = options;
	struct loaded l;
	step.entries = entries;
	step.n_entries = 1;
	load(&l, liar, pipeline, &step);
	ck_assert_ptr_nonnull(strstr(l.out.kernels.data, "toy.decode.one.body"));
	ck_assert_ptr_nonnull(strstr(l.out.kernels.data, "toy.decode.pair.body"));
	ck_assert_ptr_null(strstr(l.out.kernels.data, "toy.decode.body"));
	ck_assert_ptr_null(strstr(l.out.kernels.data, "toy.run.body"));
	unload(&l);
}
END_TEST

/* ---- memory ---- */

#define CHAIN(name, rows, when, op)                                                     \
	"func @" name "(%x: f32[B," rows ",64]) -> (y: f32[B," rows ",64])" when " {\n" \
	"  %a = softmax %x : f32[B," rows ",64]\n"                                      \
	"  %b = " op " %a : f32[B," rows ",64]\n"                                       \
	"  return %b\n"                                                                 \
	"}\n"

#define RUN64(name, rows, when)                                                         \
	"func @" name "(%x: f32[B," rows ",64]) -> (y: f32[B," rows ",64])" when " {\n" \
	"  %y = softmax %x : f32[B," rows ",64]\n"                                      \
	"  return %y\n"                                                                 \
	"}\n"

/* The base needs 256 B S bytes; its case for S = 1 needs nothing or 256 B. */
static uint64_t arena_for(const char *text, int64_t b, int64_t s)
{
	struct loaded l;
	int64_t dims[] = {b, s};
	load(&l, text, "group{max_ops=1},select,plan-memory", &options);
	uint64_t scratch = l.model.record->scratch_bytes, n = l.model.arena_size(dims, 1);
	ck_assert_uint_eq(l.model.record->arena_bytes_max, 256 * 4 * 6);
	unload(&l);
	return n - scratch;
}

START_TEST(the_arena_is_what_is_taken)
{
	static const char same[] =
	        "module \"toy\"\ndim B in [1,4]\ndim S in [1,6]\n" CHAIN("run", "S", "", "softmax")
	                CHAIN("run.one", "1", " case of @run when S = 1", "softmax");
	static const char less[] =
	        "module \"toy\"\ndim B in [1,4]\ndim S in [1,6]\n" CHAIN("run", "S", "", "softmax")
	                RUN64("run.one", "1", " case of @run when S = 1");
	ck_assert_uint_eq(arena_for(same, 3, 5), 256 * 3 * 5);
	ck_assert_uint_eq(arena_for(same, 3, 1), 256 * 3);
	ck_assert_uint_eq(arena_for(less, 3, 5), 256 * 3 * 5);
	ck_assert_uint_eq(arena_for(less, 3, 1), 0);
}
END_TEST

Suite *suite_object_case(void)
{
	Suite *s = suite_create("object_case");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	tcase_add_test(t, the_smallest_state_is_the_limit);
	tcase_add_loop_test(t, the_first_case_that_holds, 0, 3);
	tcase_add_test(t, the_interpreter_agrees);
	tcase_add_test(t, callers_see_no_cases);
	tcase_add_test(t, only_what_is_reached);
	tcase_add_test(t, the_arena_is_what_is_taken);
	suite_add_tcase(s, t);
	return s;
}
