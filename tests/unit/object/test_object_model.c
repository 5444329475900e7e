/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole small model through passes, kernels, LLVM and the object, against the
 * interpreter on the graph it came from: padded batches, prompts in pieces,
 * every target this machine runs, O0 and O2, and the same bits for any number
 * of workers.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "ir/core/case.h"
#include "ir/interp/interp.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "runtime/tfmc_rt.h"
#include "tests/support/mini_model.h"
#include "tests/support/effort.h"
#include "tests/support/tir.h"
#include "tests/support/planned.h"

enum { D = 16, V = 20, MAX_B = 4, MAX_S = 12, MAX_T = 10 };

struct built {
	struct tir graph;
	struct ir_module *planned;
	struct backend_output out;
	struct backend_jit *jit;
	struct tfmc_model model;
};

static void build(struct built *b, const struct target *t, const char *level)
{
	struct arena a;
	struct pipeline p;
	struct pass_options po = {.target = t};
	struct backend_options bo = {.opt_level = effort_of_code()};
	arena_init(&a);
	tir_init(&b->graph);
	tir_load(&b->graph, mini_model);
	struct diag_context *cx = &b->graph.cx;
	ck_assert_int_eq(pipeline_parse(&a, cx, level, &p), TFMC_OK);
	enum tfmc_status status = passes_run(cx, &p, &po, b->graph.m, &b->planned, NULL);
	ck_assert_msg(status == TFMC_OK, "%s %s: %s", t->name, level, b->graph.log.data);
	backend_output_init(&b->out);
	status = planned_compile(cx, b->planned, t, NULL, &bo, &b->out);
	ck_assert_msg(status == TFMC_OK, "%s %s: %s", t->name, level, b->graph.log.data);
	ck_assert_int_eq(backend_jit_load(cx, &b->out.object, &b->jit), TFMC_OK);
	ck_assert(backend_jit_model(b->jit, "mini", &b->model));
	arena_destroy(&a);
}

static void release(struct built *b)
{
	backend_jit_destroy(b->jit);
	backend_output_destroy(&b->out);
	ir_module_destroy(b->planned);
	tir_destroy(&b->graph);
}

/* ---- one conversation, by object and by interpreter ---- */

/* A batch of sources, then prompts of the given lengths, one after another. */
struct talk {
	int64_t batch, source;
	int64_t pieces[4]; /* 0 ends */
};

struct answers {
	float memory[MAX_B * MAX_S * D], run[MAX_B * MAX_S * D], pooled[MAX_B * D];
	float logits[4][MAX_B * V];
};

static void source_of(const struct talk *t, int32_t *ids, int32_t *len)
{
	for (int64_t i = 0; i < t->batch * t->source; i++)
		ids[i] = (int32_t)(i * 7 + 3) % V;
	for (int64_t b = 0; b < t->batch; b++)
		len[b] = (int32_t)(t->source - b * 2 > 1 ? t->source - b * 2 : 1);
}

static void tokens_of(const struct talk *t, int piece, int32_t *ids)
{
	for (int64_t i = 0; i < t->batch * t->pieces[piece]; i++)
		ids[i] = (int32_t)(i * 3 + piece * 5 + 1) % V;
}

static int64_t entry(const struct tfmc_session *s, const char *name)
{
	int64_t n = tfmc_entry_find(tfmc_session_record(s), name);
	ck_assert_int_ge(n, 0);
	return n;
}

static void ask_object(struct tfmc_session *s, const struct talk *t, struct answers *a)
{
	int32_t ids[MAX_B * MAX_S], len[MAX_B], tokens[MAX_B * MAX_T];
	int64_t dims[] = {t->batch, t->source, 1};
	memset(a, 0, sizeof(*a));
	source_of(t, ids, len);
	uint64_t n = (uint64_t)(t->batch * t->source);
	struct tfmc_buffer in[] = {{ids, n}, {len, (uint64_t)t->batch}};
	struct tfmc_buffer out[] = {{a->memory, n * D}};
	struct tfmc_buffer both[] = {{a->run, n * D}, {a->pooled, (uint64_t)t->batch * D}};
	ck_assert_int_eq(tfmc_session_reset(s), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_call(s, entry(s, "run"), dims, in, both), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_call(s, entry(s, "encode"), dims, in, out), TFMC_RT_OK);
	for (int i = 0; i < 4 && t->pieces[i]; i++) {
		struct tfmc_buffer x = {tokens, (uint64_t)(t->batch * t->pieces[i])};
		struct tfmc_buffer y = {a->logits[i], (uint64_t)t->batch * V};
		tokens_of(t, i, tokens);
		dims[2] = t->pieces[i];
		const char *name = t->pieces[i] == 1 ? "step" : "prefill";
		ck_assert_int_eq(tfmc_session_call(s, entry(s, name), dims, &x, &y), TFMC_RT_OK);
	}
}

struct reference {
	struct tir *graph;
	struct arena arena;
	struct interp_state *state;
	int64_t dims[3];
};

/* Runs a function; inputs are i32, in order; outputs are returned. */
static void interpret(struct reference *r, const char *name, const int32_t *const *in,
                      struct interp_tensor *out)
{
	const struct ir_func *f = ir_find_func(r->graph->m, name);
	struct interp_tensor inputs[4];
	for (size_t i = 0, n = 0; i < f->n_params; i++) {
		const struct ir_type *t = ir_type_of(f, f->params[i].value);
		if (t->kind != IR_TENSOR)
			continue;
		ck_assert(interp_tensor_make(&r->arena, t, r->dims, &inputs[n]));
		interp_from_bytes(&inputs[n], in[n]);
		n++;
	}
	struct interp_args args = {
	        .dims = r->dims, .inputs = inputs, .outputs = out, .state = r->state, .arena = &r->arena};
	enum tfmc_status status = interp_run(&r->graph->cx, r->graph->m, f, &args);
	ck_assert_msg(status == TFMC_OK, "%s", r->graph->log.data);
}

static void ask_interpreter(struct tir *graph, const struct talk *t, struct answers *a)
{
	int32_t ids[MAX_B * MAX_S], len[MAX_B], tokens[MAX_B * MAX_T], past[MAX_B] = {0};
	struct reference r = {.graph = graph, .dims = {t->batch, t->source, 1}};
	struct interp_tensor out[4];
	memset(a, 0, sizeof(*a));
	arena_init(&r.arena);
	r.state = interp_state_create(&r.arena, graph->m, t->batch);
	source_of(t, ids, len);
	const int32_t *in[] = {ids, len};
	interpret(&r, "run", in, out);
	interp_to_bytes(&out[0], a->run);
	interp_to_bytes(&out[1], a->pooled);
	interpret(&r, "encode", in, out);
	interp_to_bytes(&out[0], a->memory);
	for (int i = 0; i < 4 && t->pieces[i]; i++) {
		tokens_of(t, i, tokens);
		r.dims[2] = t->pieces[i];
		const int32_t *fed[] = {tokens, past};
		interpret(&r, "decode", fed, out);
		interp_to_bytes(&out[0], a->logits[i]);
		interp_to_bytes(&out[1], past);
	}
	arena_destroy(&r.arena);
}

static void compare(const char *what, const float *x, const float *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(fabsf(x[i] - y[i]) <= 2e-4f * (1 + fabsf(y[i])),
		              "%s: element %zu is %g, expected %g", what, i, (double)x[i], (double)y[i]);
}

static const struct talk talks[] = {
        {1, 1, {1, 1, 1}}, {1, 12, {10}}, {2, 7, {4, 1, 1, 3}}, {4, 12, {1, 5, 1, 2}}, {3, 5, {2, 2, 2, 4}}};

static void check_talks(struct built *b, const char *what)
{
	static struct answers object, interpreter, again;
	struct tfmc_session_options one = {.struct_size = sizeof(one)};
	struct tfmc_session *s;
	ck_assert_int_eq(tfmc_session_open(&b->model, &one, &s), TFMC_RT_OK);
	for (size_t i = 0; i < TFMC_COUNT(talks); i++) {
		ask_object(s, &talks[i], &object);
		ask_interpreter(&b->graph, &talks[i], &interpreter);
		compare(what, object.memory, interpreter.memory, TFMC_COUNT(object.memory));
		compare(what, object.run, interpreter.run, TFMC_COUNT(object.run));
		compare(what, object.pooled, interpreter.pooled, TFMC_COUNT(object.pooled));
		compare(what, object.logits[0], interpreter.logits[0], 4 * TFMC_COUNT(object.logits[0]));
		for (int64_t workers = 2; workers <= 3; workers++) {
			struct tfmc_session *pool;
			struct tfmc_session_options several = {
			        .struct_size = sizeof(several),
			        .workers = workers,
			        .all_workers = 1,
			        .driver = workers == 2 ? TFMC_DRIVER_SPMD : TFMC_DRIVER_PARALLEL_FOR};
			ck_assert_int_eq(tfmc_session_open(&b->model, &several, &pool), TFMC_RT_OK);
			ask_object(pool, &talks[i], &again);
			ck_assert_mem_eq(&object, &again, sizeof(object));
			tfmc_session_close(pool);
		}
	}
	tfmc_session_close(s);
}

static void check_level(const char *level)
{
	for (size_t i = 0; target_level_at(i); i++) {
		struct built b;
		if (!target_runs_on_host(target_level_at(i)))
			continue;
		build(&b, target_level_at(i), level);
		check_talks(&b, target_level_at(i)->name);
		release(&b);
	}
}

#define GENERAL "canonicalize,fuse-softmax,fuse-attention,merge-heads,merge-linear,encode,"

START_TEST(agrees_at_o0)
{
	check_level("O0");
}
END_TEST

START_TEST(agrees_at_o2)
{
	check_level("O2");
}
END_TEST

/* Sizes computed before code generation equal those of the object. */
START_TEST(sizes_are_known_before)
{
	struct built b;
	struct backend_sizes sizes;
	struct arena a;
	const struct target *t = target_native();
	arena_init(&a);
	build(&b, t, "O2");
	ck_assert_int_eq(backend_measure(&b.graph.cx, b.planned, t, &a, &sizes), TFMC_OK);
	ck_assert_uint_eq(sizes.weights, b.out.weights_bytes);
	ck_assert_uint_eq(sizes.state_fixed + 3 * sizes.state_batch, b.model.state_size(3));
	for (int64_t i = 0; i < 12; i++) {
		int64_t dims[] = {1 + i % 3, 1 + i % 5, 1 + i % 2}, arena, most = 0;
		for (size_t f = 0; f < sizes.n_functions; f++) {
			if (ir_select_case(b.planned, sizes.functions[f].func, dims) !=
			    sizes.functions[f].func)
				continue; /* its case takes the call */
			ck_assert(ir_dim_eval(sizes.functions[f].arena, dims, &arena));
			most = arena > most ? arena : most;
		}
		uint64_t want = (uint64_t)most + 2 * sizes.scratch;
		ck_assert_uint_eq(want, b.model.arena_size(dims, 2));
	}
	release(&b);
	arena_destroy(&a);
}
END_TEST

/* A prompt in pieces gives the same logits as the whole prompt. */
START_TEST(pieces_equal_the_whole)
{
	static struct answers whole, pieces;
	const struct talk at_once = {1, 6, {5}};
	struct built b;
	struct tfmc_session *s;
	struct tfmc_session_options one = {.struct_size = sizeof(one)};
	build(&b, target_native(), "O2");
	ck_assert_int_eq(tfmc_session_open(&b.model, &one, &s), TFMC_RT_OK);
	ask_object(s, &at_once, &whole);
	ask_object(s, &(struct talk){1, 6, {0}}, &pieces);
	int32_t all[5];
	int64_t dims[] = {1, 6, 3};
	struct tfmc_buffer out = {pieces.logits[0], V};
	tokens_of(&at_once, 0, all);
	ck_assert_int_eq(tfmc_session_call(s, entry(s, "prefill"), dims, &(struct tfmc_buffer){all, 3}, &out),
	                 TFMC_RT_OK);
	for (int i = 3; i < 5; i++)
		ck_assert_int_eq(
		        tfmc_session_call(s, entry(s, "step"), dims, &(struct tfmc_buffer){&all[i], 1}, &out),
		        TFMC_RT_OK);
	compare("pieces", pieces.logits[0], whole.logits[0], V);
	tfmc_session_close(s);
	release(&b);
}
END_TEST

/* Cases for one token or few: whichever function a call takes, the bits are those of the general one. */
START_TEST(cases_have_the_same_bits)
{
	static const char *const levels[] = {GENERAL "group,select,plan-memory",
	                                     GENERAL "specialize,group,select,plan-memory",
	                                     GENERAL "specialize{buckets=2},group,select,plan-memory"};
	static struct answers answers[3][TFMC_COUNT(talks)];
	const struct talk all_single = {2, 7, {1, 1, 1, 1}};
	struct tfmc_session_options two = {.struct_size = sizeof(two), .workers = 2, .all_workers = 1};
	for (size_t l = 0; l < TFMC_COUNT(levels); l++) {
		struct built b;
		struct tfmc_session *s;
		build(&b, target_native(), levels[l]);
		ck_assert_uint_eq(b.planned->funcs.n, l == 0 ? 3 : l == 1 ? 4 : 8);
		ck_assert_int_eq(tfmc_session_open(&b.model, &two, &s), TFMC_RT_OK);
		for (size_t i = 0; i < TFMC_COUNT(talks); i++) {
			ask_object(s, i == 0 ? &all_single : &talks[i], &answers[l][i]);
			ck_assert_mem_eq(&answers[l][i], &answers[0][i], sizeof(answers[0][i]));
		}
		tfmc_session_close(s);
		release(&b);
	}
}
END_TEST

/* decode before encode, and more sequences than were encoded */
START_TEST(decoding_needs_a_source)
{
	struct built b;
	struct tfmc_session *s;
	struct tfmc_session_options one = {.struct_size = sizeof(one)};
	int32_t ids[4] = {1, 2, 3, 4};
	float logits[2 * V], memory[4 * D];
	int64_t dims[] = {1, 2, 1};
	struct tfmc_buffer token = {ids, 2}, out = {logits, 2 * V}, kept = {memory, 4 * D};
	struct tfmc_buffer source[] = {{ids, 4}, {NULL, 0}};
	build(&b, target_native(), "O2");
	ck_assert_int_eq(tfmc_session_open(&b.model, &one, &s), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_call(s, entry(s, "step"), dims, &token, &out), TFMC_RT_E_STATE);
	ck_assert_int_eq(tfmc_session_call(s, entry(s, "encode"), dims, source, &kept), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_call(s, entry(s, "step"), dims, &token, &out), TFMC_RT_OK);
	dims[0] = 2;
	ck_assert_int_eq(tfmc_session_call(s, entry(s, "step"), dims, &token, &out), TFMC_RT_E_STATE);
	tfmc_session_close(s);
	release(&b);
}
END_TEST

Suite *suite_object_model(void)
{
	Suite *s = suite_create("object_model");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 240);
	tcase_add_test(t, agrees_at_o0);
	tcase_add_test(t, agrees_at_o2);
	tcase_add_test(t, pieces_equal_the_whole);
	tcase_add_test(t, cases_have_the_same_bits);
	tcase_add_test(t, sizes_are_known_before);
	tcase_add_test(t, decoding_needs_a_source);
	suite_add_tcase(s, t);
	return s;
}
