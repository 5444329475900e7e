/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op on random shapes, and random programs, through passes, kernels, LLVM
 * and the object, against the interpreter on the graph: fused and unfused, for all
 * targets this machine runs (ops: for one of them in turn). The same bits come out for one, two and three
 * workers.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "ir/text/text.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "runtime/tfmc_rt.h"
#include "tests/support/tir.h"
#include "tests/support/effort.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/random/random_transformer.h"
#include "tests/support/random/rng.h"
#include "tests/support/planned.h"

#define TOLERANCE   2e-4
#define BUFFERS_MAX 32
#ifndef SEEDS
#define SEEDS    3
#define PROGRAMS 24
#endif

struct fixture {
	struct arena arena;
	struct buf log;
	struct diag_context cx;
	struct ir_module *graph, *planned;
	const struct ir_func *f;
	struct backend_output out;
	struct backend_jit *jit;
	struct tfmc_model model;
	struct random_call call; /* with the interpreter's results */
	bool may_refuse;         /* with a diagnostic that says so */
};

static void setup(struct fixture *t)
{
	*t = (struct fixture){0};
	arena_init(&t->arena);
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
	backend_output_init(&t->out);
}

static void drop_code(struct fixture *t)
{
	backend_jit_destroy(t->jit);
	t->jit = NULL;
	backend_output_destroy(&t->out);
	backend_output_init(&t->out);
	ir_module_destroy(t->planned);
	t->planned = NULL;
}

static void teardown(struct fixture *t)
{
	drop_code(t);
	backend_output_destroy(&t->out);
	ir_module_destroy(t->graph);
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
	arena_destroy(&t->arena);
}

/* The module with its function named as an entry of an object. */
static void take(struct fixture *t, struct ir_module *m)
{
	struct buf text;
	const char *from = tir_text(&t->arena, &t->cx, m), *at = strstr(from, "func @f(");
	ck_assert(at != NULL);
	buf_init(&text);
	buf_bytes(&text, from, (size_t)(at - from));
	buf_printf(&text, "func @run(%s", at + strlen("func @f("));
	enum tfmc_status st = ir_parse(&t->cx, "random.tir", text.data, text.len, &t->graph);
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t->log.data, text.data);
	t->f = ir_find_func(t->graph, "run");
	buf_destroy(&text);
	ir_module_destroy(m);
}

/* The size function of the object gives what the plan uses, for dims from their smallest to their largest. */
static void compare_sizes(struct fixture *t, const struct target *target)
{
	struct backend_sizes sizes;
	size_t n = ir_dims_count(t->planned->dims);
	int64_t *dims = ARENA_ARRAY(&t->arena, int64_t, n + 1);
	ck_assert(dims != NULL);
	ck_assert_int_eq(backend_measure(&t->cx, t->planned, target, &t->arena, &sizes), TFMC_OK);
	for (int64_t step = 0; step < 12; step++) {
		uint64_t most = 0;
		for (size_t i = 0; i < n; i++) {
			const struct ir_dim_sym *s = ir_dims_sym(t->planned->dims, i);
			dims[i] = s->lo + (s->hi - s->lo) * ((step * (int64_t)(i + 1)) % 12) / 11;
		}
		for (size_t i = 0; i < sizes.n_functions; i++) {
			const struct ir_func *f = sizes.functions[i].func;
			int64_t planned, all;
			ck_assert(ir_dim_eval(f->arena, dims, &planned));
			ck_assert(ir_dim_eval(sizes.functions[i].arena, dims, &all));
			ck_assert_int_le(planned, all);
			most = (uint64_t)all > most ? (uint64_t)all : most;
		}
		for (int64_t workers = 1; workers < 4; workers++)
			ck_assert_uint_eq(t->model.arena_size(dims, workers),
			                  most + (uint64_t)workers * sizes.scratch);
	}
}

/* False when something is not supported yet, where that is allowed. */
static bool compile(struct fixture *t, const char *pipeline, const struct target *target)
{
	const struct pass_options po = {.target = target};
	const struct backend_options bo = {.opt_level = effort_of_code()};
	struct pipeline p;
	ck_assert_int_eq(pipeline_parse(&t->arena, &t->cx, pipeline, &p), TFMC_OK);
	enum tfmc_status st = passes_run(&t->cx, &p, &po, t->graph, &t->planned, NULL);
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t->log.data, tir_text(&t->arena, &t->cx, t->graph));
	st = planned_compile(&t->cx, t->planned, target, NULL, &bo, &t->out);
	if (t->may_refuse && st == TFMC_INVALID && strstr(t->log.data, "not supported yet"))
		return false;
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t->log.data, tir_text(&t->arena, &t->cx, t->planned));
	ck_assert_int_eq(backend_jit_load(&t->cx, &t->out.object, &t->jit), TFMC_OK);
	ck_assert(backend_jit_model(t->jit, t->graph->name, &t->model));
	compare_sizes(t, target);
	return true;
}

/* Memory of a tensor, with its elements when `fill`. */
static struct tfmc_buffer memory_of(struct fixture *t, const struct interp_tensor *x, bool fill)
{
	size_t n = (size_t)interp_count(x), bytes = n * (size_t)ir_dtype_bytes(x->dtype);
	void *p = arena_alloc(&t->arena, bytes + 1);
	ck_assert(p != NULL);
	if (fill)
		interp_to_bytes(x, p);
	return (struct tfmc_buffer){p, n};
}

static void call_object(struct fixture *t, int64_t workers, struct tfmc_buffer *out)
{
	struct tfmc_buffer in[BUFFERS_MAX];
	struct tfmc_session *s;
	struct tfmc_session_options options = {.struct_size = sizeof options,
	                                       .workers = workers,
	                                       .all_workers = 1,
	                                       .driver = workers == 2 ? TFMC_DRIVER_SPMD
	                                                              : TFMC_DRIVER_PARALLEL_FOR};
	ck_assert(t->call.n_inputs < BUFFERS_MAX && t->call.n_outputs < BUFFERS_MAX);
	for (size_t i = 0; i < t->call.n_inputs; i++)
		in[i] = memory_of(t, &t->call.inputs[i], true);
	for (size_t i = 0; i < t->call.n_outputs; i++)
		out[i] = memory_of(t, &t->call.outputs[i], false);
	ck_assert_int_eq(tfmc_session_open(&t->model, &options, &s), TFMC_RT_OK);
	int64_t entry = tfmc_entry_find(tfmc_session_record(s), "run");
	ck_assert_int_ge(entry, 0);
	ck_assert_int_eq(tfmc_session_call(s, entry, t->call.dims, in, out), TFMC_RT_OK);
	tfmc_session_close(s);
}

/* Of floats: a unit in the last place or two for the narrow ones. */
static double tolerance_of(enum ir_dtype t)
{
	return t == DT_F16 ? 2e-3 : t == DT_BF16 ? 1.6e-2 : TOLERANCE;
}

static void compare(struct fixture *t, const char *what, const struct tfmc_buffer *out)
{
	for (size_t i = 0; i < t->call.n_outputs; i++) {
		struct interp_tensor have = t->call.outputs[i];
		ck_assert(interp_tensor_alloc(&t->arena, &have));
		interp_from_bytes(&have, out[i].data);
		const char *why =
		        random_compare(&t->arena, &have, &t->call.outputs[i], tolerance_of(have.dtype));
		ck_assert_msg(why == NULL, "%s: result %zu: %s\n%s\n%s", what, i, why ? why : "",
		              tir_text(&t->arena, &t->cx, t->graph), tir_text(&t->arena, &t->cx, t->planned));
	}
}

static void check_code(struct fixture *t, const char *pipeline, const struct target *target)
{
	struct tfmc_buffer one[BUFFERS_MAX], several[BUFFERS_MAX];
	if (!compile(t, pipeline, target)) {
		drop_code(t);
		return;
	}
	call_object(t, 1, one);
	compare(t, arena_printf(&t->arena, "%s at %s", target->name, pipeline), one);
	for (int64_t workers = 2; workers <= 3; workers++) {
		call_object(t, workers, several);
		for (size_t i = 0; i < t->call.n_outputs; i++)
			ck_assert_mem_eq(one[i].data, several[i].data,
			                 one[i].count * (size_t)ir_dtype_bytes(t->call.outputs[i].dtype));
	}
	drop_code(t);
}

/* only: one target, by number modulo those this machine runs; -1: all. */
static void check(struct fixture *t, uint64_t seed, int only)
{
	const struct target *here[32];
	int n_targets = 0;
	for (size_t i = 0; target_level_at(i) && n_targets < (int)TFMC_COUNT(here); i++)
		if (target_runs_on_host(target_level_at(i)))
			here[n_targets++] = target_level_at(i);
	static const char *const pipelines[] = {"O0", "O2"};
	ck_assert(random_call_make(&t->arena, t->graph, t->f, seed, &t->call));
	enum tfmc_status st = random_call_run(&t->cx, t->graph, t->f, &t->arena, &t->call);
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t->log.data, tir_text(&t->arena, &t->cx, t->graph));
	for (size_t i = 0; i < TFMC_COUNT(pipelines); i++)
		for (int n = 0; n < n_targets; n++)
			if (only < 0 || n == only % n_targets)
				check_code(t, pipelines[i], here[n]);
}

/* ---- parts of linears ---- */

#define HEAD                                                                                              \
	"module \"m\"\ndim B in [1,3]\ndim S in [1,40]\n"                                                 \
	"weight @t : f32[40,24] = rotary(rows=40, scale=1.0, frequencies=[1.0, 0.7, 0.5, 0.3, 0.2, 0.1, " \
	"0.07, "                                                                                          \
	"0.05, 0.03, 0.02, 0.01, 0.005])\n"                                                               \
	"weight @q.b : f32[96] = full(0.25, [96])\n"
#define WEIGHT(name, rows)                                             \
	"weight @" #name " : f32[" #rows ",20] = sinusoid(rows=" #rows \
	", dim=20, layout=halves, spacing=t2t, start=1, base=100.0)\n"
#define HEADS(v, rows, heads, width)                                                                      \
	"  %" #v ".l = linear %x, @" #v " : f32[B,S," #rows "]\n"                                         \
	"  %" #v ".r = reshape %" #v ".l {dims=[B,S," #heads "," #width "]} : f32[B,S," #heads "," #width \
	"]\n"                                                                                             \
	"  %" #v ".t = transpose %" #v ".r {perm=[0,2,1,3]} : f32[B," #heads ",S," #width "]\n"
#define TURN(v, heads, width, layout) \
	"  %" #v ".z = rope %" #v ".t, @t, %at {layout=" #layout "} : f32[B," #heads ",S," #width "]\n"
#define AT                                                \
	"  %i = iota {dims=[B,S] axis=1} : i32[B,S]\n"    \
	"  %p1 = reshape %past {dims=[B,1]} : i32[B,1]\n" \
	"  %pb = broadcast %p1 {dims=[B,S]} : i32[B,S]\n" \
	"  %at = add %i, %pb : i32[B,S]\n"
#define ONE(v)                                             \
	"  %" #v ".l = linear %x, @" #v " : f32[B,1,96]\n" \
	"  %" #v " = reshape %" #v ".l {dims=[B,4,1,24]} : f32[B,4,1,24]\n"
#define PAIR(width, act, meet)                                                                            \
	HEAD WEIGHT(g, width)                                                                             \
	        WEIGHT(u, width) "func @f(%x: f32[B,S,20], %len: i32[B]) -> (y: f32[B,S," #width "]) {\n" \
	                         "  %g = linear %x, @g : f32[B,S," #width "]\n"                           \
	                         "  %u = linear %x, @u : f32[B,S," #width "]\n"                           \
	                         "  %a = " #act " %g : f32[B,S," #width "]\n"                             \
	                         "  %m = " #meet " %u, %a : f32[B,S," #width "]\n"                        \
	                         "  %y = mask_rows %m, %len : f32[B,S," #width "]\n  return %y\n}\n"

static const char *const part_texts[] = {
        /* 24 columns a head: two panels hold no whole head, three hold two */
        HEAD WEIGHT(q, 96) WEIGHT(k, 48) WEIGHT(
                v, 32) "func @f(%x: f32[B,S,20], %past: i32[B]) -> (q: f32[B,4,S,24], k: f32[B,2,S,24], v: "
                       "f32[B,S,32]) {\n"
                       "  %q.l = linear %x, @q, @q.b : f32[B,S,96]\n"
                       "  %q.r = reshape %q.l {dims=[B,S,4,24]} : f32[B,S,4,24]\n"
                       "  %q.t = transpose %q.r {perm=[0,2,1,3]} : f32[B,4,S,24]\n" HEADS(
                               k, 48, 2, 24) "  %v = linear %x, @v : f32[B,S,32]\n" AT TURN(q, 4, 24,
                                                                                            interleaved)
                               TURN(k, 2, 24, interleaved) "  return %q.z, %k.z, %v\n}\n",
        /* features behind the table; a whole vector of pairs; one head of eight panels */
        HEAD WEIGHT(q, 64) WEIGHT(k, 32)
                WEIGHT(v, 128) "func @f(%x: f32[B,S,20], %past: i32[B]) -> (q: f32[B,2,S,32], k: "
                               "f32[B,1,S,32], v: f32[B,1,S,128]) "
                               "{\n" HEADS(q, 64, 2, 32) HEADS(k, 32, 1, 32) HEADS(v, 128, 1, 128)
                                       AT TURN(q, 2, 32, halves)
                                               TURN(k, 1, 32, halves) "  return %q.z, %k.z, %v.t\n}\n",
        /* ranges of odd width, each with its own chain */
        HEAD WEIGHT(w, 53) "func @f(%x: f32[B,S,20], %r: f32[B,S,16]) -> (a: f32[B,S,16], b: f32[B,S,32], c: "
                           "f32[B,S,5]) {\n"
                           "  %h = linear %x, @w : f32[B,S,53]\n"
                           "  %a0 = slice %h {axis=2 begin=0 size=16} : f32[B,S,16]\n"
                           "  %b0 = slice %h {axis=2 begin=16 size=32} : f32[B,S,32]\n"
                           "  %c0 = slice %h {axis=2 begin=48 size=5} : f32[B,S,5]\n"
                           "  %a = add %r, %a0 : f32[B,S,16]\n  %b = gelu %b0 : f32[B,S,32]\n  %c = tanh %c0 "
                           ": f32[B,S,5]\n"
                           "  return %a, %b, %c\n}\n",
        /* one token: heads are an axis in front without a transpose */
        HEAD WEIGHT(q, 96) WEIGHT(
                k, 48) "func @f(%x: f32[B,1,20], %at: i32[B,1]) -> (q: f32[B,4,1,24], k: f32[B,2,1,24]) {\n"
                       "  %q.l = linear %x, @q, @q.b : f32[B,1,96]\n"
                       "  %q.t = reshape %q.l {dims=[B,4,1,24]} : f32[B,4,1,24]\n"
                       "  %k.l = linear %x, @k : f32[B,1,48]\n"
                       "  %k.t = reshape %k.l {dims=[B,2,1,24]} : f32[B,2,1,24]\n"
                       "  %q.z = rope %q.t, @t, %at : f32[B,4,1,24]\n"
                       "  %k.z = rope %k.t, @t, %at : f32[B,2,1,24]\n  return %q.z, %k.z\n}\n",
        /* one token of many sequences: tiles are two panels, the heads of two workers end inside of one */
        "module \"m\"\ndim B in [29,42]\n" WEIGHT(q, 96) WEIGHT(k, 96)
                WEIGHT(v, 96) "func @f(%x: f32[B,1,20]) -> (y: f32[B,4,1,24]) {\n" ONE(q) ONE(k)
                        ONE(v) "  %y = attention %q, %k, %v {scale=0.3} : f32[B,4,1,24]\n  return %y\n}\n",
        /* pads of two axes: along rows of the row kernel, and in the other order; a pad that is read twice */
        "module \"m\"\ndim B in [1,3]\ndim S in [1,40]\n"
        "func @f(%x: f32[B,S,21]) -> (y: f32[B,S+3,26], z: f32[B,S+5,22], u: f32[B,S+1,23], v: "
        "f32[B,S+1,21]) {\n"
        "  %a = pad %x {axis=1 before=2 after=1 value=0.5} : f32[B,S+3,21]\n"
        "  %y = pad %a {axis=2 before=1 after=4 value=-2.0} : f32[B,S+3,26]\n"
        "  %c = pad %x {axis=2 before=1} : f32[B,S,22]\n  %z = pad %c {axis=1 after=5} : f32[B,S+5,22]\n"
        "  %d = pad %x {axis=1 after=1} : f32[B,S+1,21]\n  %u = pad %d {axis=2 before=2} : f32[B,S+1,23]\n"
        "  %v = exp %d : f32[B,S+1,21]\n  return %y, %z, %u, %v\n}\n",
        PAIR(48, silu, mul), PAIR(160, gelu_tanh, mul), PAIR(16, relu, add), PAIR(64, sigmoid, div),
        PAIR(20, gelu, mul), /* no whole panels: two kernels */
};

/* ---- experts: rows of a call by the matrix that each one names ---- */

#define WAVES(count, shape)                        \
	"reshape(" shape ", sinusoid(rows=" #count \
	", dim=2, layout=halves, spacing=paper, start=1, base=3.0))"
/* weights: e n k / 2 rows of two numbers, biases: e n / 2 */
#define EXPERTS(e, n, k, weights, biases, rows)                                                         \
	"module \"experts\"\ndim B in [1,3]\ndim S in [1," #rows "]\nweight @w : f32[" #e "," #n "," #k \
	"] = " WAVES(weights, "[" #e "," #n "," #k "]") "\nweight @b : f32[" #e "," #n                  \
	                                                "] = " WAVES(biases, "[" #e "," #n "]") "\n"
/* the same, of a format of codes */
#define CODES(e, n, k, weights, biases, rows, format)                                                   \
	"module \"experts\"\ndim B in [1,3]\ndim S in [1," #rows "]\nweight @w : f32[" #e "," #n "," #k \
	"] as " #format " = quantize(" #format                                                          \
	", " WAVES(weights, "[" #e "," #n "," #k "]") ") \nweight @b : f32[" #e "," #n                  \
	                                              "] = " WAVES(biases, "[" #e "," #n "]") "\n"

static const char *const expert_texts[] = {
        /* every row of x for three experts of its own, with what follows */
        EXPERTS(6, 37, 19, 2109, 111,
                70) "func @f(%x: f32[B,S,19], %i: i32[B,S,3] {below=6}, %r: f32[B,S,3,37]) -> (y: "
                    "f32[B,S,3,37]) {\n"
                    "  %x1 = reshape %x {dims=[B,S,1,19]} : f32[B,S,1,19]\n"
                    "  %x3 = broadcast %x1 {dims=[B,S,3,19]} : f32[B,S,3,19]\n"
                    "  %h = expert_linear %x3, @w, %i, @b : f32[B,S,3,37]\n"
                    "  %g = silu %h : f32[B,S,3,37]\n  %y = mul %g, %r : f32[B,S,3,37]\n"
                    "  return %y\n}\n",
        /* more rows than a block has; whole panels, none of them partial */
        EXPERTS(2, 96, 33, 3168, 96, 400) "func @f(%x: f32[B,S,33], %i: i32[B,S]) -> (y: f32[B,S,96]) {\n"
                                          "  %y = expert_linear %x, @w, %i : f32[B,S,96]\n  return %y\n}\n",
        /* less than a panel, more experts than rows, a long epilogue */
        EXPERTS(10, 5, 70, 1750, 25,
                2) "func @f(%x: f32[B,S,70], %i: i32[B,S] {below=10}) -> (y: f32[B,S,5]) {\n"
                   "  %h = expert_linear %x, @w, %i, @b : f32[B,S,5]\n"
                   "  %g = gelu %h : f32[B,S,5]\n  %t = tanh %g : f32[B,S,5]\n"
                   "  %y = mul %t, %h : f32[B,S,5]\n  return %y\n}\n",
        /* one expert is a linear */
        EXPERTS(1, 50, 17, 425, 25, 9) "func @f(%x: f32[B,S,17], %i: i32[B,S]) -> (y: f32[B,S,50]) {\n"
                                       "  %y = expert_linear %x, @w, %i, @b : f32[B,S,50]\n  return %y\n}\n",
        /* rows are rounded, matrices codes: sums of integers */
        CODES(6, 37, 70, 7770, 111, 70,
              q4_k) "func @f(%x: f32[B,S,70], %i: i32[B,S,3] {below=6}) -> (y: f32[B,S,3,37]) {\n"
                    "  %x1 = reshape %x {dims=[B,S,1,70]} : f32[B,S,1,70]\n"
                    "  %x3 = broadcast %x1 {dims=[B,S,3,70]} : f32[B,S,3,70]\n"
                    "  %r = quantize_rows %x3 : f32[B,S,3,70]\n"
                    "  %h = expert_linear %r, @w, %i, @b : f32[B,S,3,37]\n"
                    "  %y = silu %h : f32[B,S,3,37]\n  return %y\n}\n",
        CODES(2, 96, 34, 3264, 96, 400,
              q8_row) "func @f(%x: f32[B,S,34], %i: i32[B,S]) -> (y: f32[B,S,96]) {\n"
                      "  %r = quantize_rows %x {block=0} : f32[B,S,34]\n"
                      "  %y = expert_linear %r, @w, %i : f32[B,S,96]\n  return %y\n}\n",
        CODES(3, 20, 64, 1920, 30, 9,
              iq4_nl) "func @f(%x: f32[B,S,64], %i: i32[B,S]) -> (y: f32[B,S,20], z: f32[B,S,20]) {\n"
                      "  %r = quantize_rows %x : f32[B,S,64]\n"
                      "  %y = expert_linear %r, @w, %i, @b : f32[B,S,20]\n"
                      "  %z = expert_linear %r, @w, %i : f32[B,S,20]\n  return %y, %z\n}\n",
        /* two matrices in the loop over layers */
        "module \"experts\"\ndim B in [1,3]\ndim S in [1,11]\n"
        "weight @u : f32[3,4,24,21] = " WAVES(3024, "[3,4,24,21]") "\nweight @d : f32[3,4,21,24] = " WAVES(
                3024,
                "[3,4,21,24]") "\n"
                               "func @f(%x: f32[B,S,21], %i: i32[B,S] {below=4}) -> (y: f32[B,S,21]) {\n"
                               "  %y = repeat %l = 0 to 3 carry (%h = %x) {\n"
                               "    %a = expert_linear %h, @u[%l], %i : f32[B,S,24]\n    %b = relu %a : "
                               "f32[B,S,24]\n"
                               "    %c = expert_linear %b, @d[%l], %i : f32[B,S,21]\n    %e = add %h, %c : "
                               "f32[B,S,21]\n"
                               "    yield %e\n  } : f32[B,S,21]\n  return %y\n}\n",
};

START_TEST(experts)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct fixture t;
		struct ir_module *m = NULL;
		setup(&t);
		enum tfmc_status st =
		        ir_parse(&t.cx, "experts.tir", expert_texts[_i], strlen(expert_texts[_i]), &m);
		ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
		take(&t, m);
		check(&t, seed, seed == 1 && effort_is_all() ? -1 : (int)seed);
		teardown(&t);
	}
}
END_TEST

START_TEST(parts)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct fixture t;
		struct ir_module *m = NULL;
		setup(&t);
		enum tfmc_status st =
		        ir_parse(&t.cx, "parts.tir", part_texts[_i], strlen(part_texts[_i]), &m);
		ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
		take(&t, m);
		check(&t, seed, seed == 1 && effort_is_all() ? -1 : (int)seed);
		teardown(&t);
	}
}
END_TEST

/* ---- attention of one token, few heads ---- */

static const char *const divided_texts[] = {
        "module \"m\"\ndim B in [1,2]\ndim T in [1,2000]\n"
        "func @f(%q: f32[B,4,1,8], %k: f32[B,1,T,8], %v: f32[B,1,T,8], %past: i32[B], %r: f32[B,300]) -> (y: "
        "f32[B,4,1,8], z: f32[B,300], u: f32[B,4,1,8]) {\n"
        "  %a = attention %q, %k, %v, past=%past {scale=0.3 mask=causal} : f32[B,4,1,8]\n"
        "  %z = softmax %r : f32[B,300]\n"
        "  %c = attention %a, %k, %v {scale=0.2 softcap=4.0} : f32[B,4,1,8]\n"
        "  %u = layer_norm %c {eps=0.001} : f32[B,4,1,8]\n"
        "  return %a, %z, %u\n}\n",
        "module \"m\"\ndim T in [1,4000]\n"
        "func @f(%q: f32[1,3,1,12], %k: f32[1,3,T,12], %v: f32[1,3,T,20], %len: i32[1], %past: i32[1]) -> "
        "(y: "
        "f32[1,3,1,20]) {\n"
        "  %y = attention %q, %k, %v, len=%len, past=%past {scale=0.3 mask=causal window=1500} : "
        "f32[1,3,1,20]\n"
        "  return %y\n}\n",
};

START_TEST(divided_heads)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct fixture t;
		struct ir_module *m = NULL;
		const char *text = divided_texts[_i];
		setup(&t);
		enum tfmc_status st = ir_parse(&t.cx, "heads.tir", text, strlen(text), &m);
		ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
		take(&t, m);
		check(&t, seed, seed == 1 && effort_is_all() ? -1 : (int)seed);
		teardown(&t);
	}
}
END_TEST

/* ---- chains of elementwise ops ---- */

/* Sizes of the last axis: below a vector, around several, of the call. */
static const char *const chain_sizes[] = {"1", "7", "33", "80", "131", "C"};

/* n ops, each on the one before it: with an operand of any kind, then halved so that values stay bounded. */
static void chain_text(struct buf *out, struct rng *r, int n, const char *columns)
{
	static const char *const with[] = {"add", "sub", "max", "min"}, *const alone[] = {"neg", "abs",
	                                                                                  "relu"};
	static const char *const operands[] = {"%x", "%r", "%wb", "%sb"};
	buf_printf(out,
	           "module \"m\"\ndim B in [1,5]\ndim C in [1,150]\n"
	           "func @run(%%x: f32[B,%s], %%r: f32[B,%s], %%w: f32[%s], %%s: f32[B,1], %%c: f32[C]) -> "
	           "(y: f32[B,%s], d: f32[C]) {\n"
	           "  %%wb = broadcast %%w {dims=[B,%s]} : f32[B,%s]\n"
	           "  %%sb = broadcast %%s {dims=[B,%s]} : f32[B,%s]\n  %%d = neg %%c : f32[C]\n",
	           columns, columns, columns, columns, columns, columns, columns, columns);
	for (int i = 0; i < n; i++) {
		char before[16] = "%x";
		if (i > 0)
			snprintf(before, sizeof before, "%%v%d", i - 1);
		bool is_shared = i > 1 && rng_below(r, 4) == 0;
		if (i % 2 == 1) {
			buf_printf(out, "  %%v%d = scale %s {f=0.5}", i, before);
		} else if (rng_below(r, 4) == 0) {
			buf_printf(out, "  %%v%d = %s %s", i, alone[rng_below(r, 3)], before);
		} else {
			buf_printf(out, "  %%v%d = %s %s, ", i, with[rng_below(r, 4)], before);
			if (is_shared)
				buf_printf(out, "%%v%d", (int)rng_below(r, i - 1));
			else
				buf_str(out, operands[rng_below(r, 4)]);
		}
		buf_printf(out, " : f32[B,%s]\n", columns);
	}
	buf_printf(out, "  return %%v%d, %%d\n}\n", n - 1);
}

/* Chains in one kernel, in kernels of few ops and of one op: the interpreter's results, and the same bits. */
START_TEST(chains)
{
	static const char *const pipelines[] = {"group{max_ops=1},select,plan-memory",
	                                        "group{max_ops=7},select,plan-memory",
	                                        "group,select,plan-memory"};
	struct tfmc_buffer first[BUFFERS_MAX], out[BUFFERS_MAX];
	struct fixture t;
	struct rng r = rng_seed((uint64_t)_i + 1);
	struct buf text;
	const struct target *host = NULL;
	for (size_t i = 0; target_level_at(i); i++)
		if (target_runs_on_host(target_level_at(i)) && (!host || i <= (size_t)_i % 4))
			host = target_level_at(i);
	buf_init(&text);
	chain_text(&text, &r, (int)rng_between(&r, 4, 70), chain_sizes[(size_t)_i % TFMC_COUNT(chain_sizes)]);
	setup(&t);
	enum tfmc_status st = ir_parse(&t.cx, "chain.tir", text.data, text.len, &t.graph);
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t.log.data, text.data);
	t.f = ir_find_func(t.graph, "run");
	ck_assert(random_call_make(&t.arena, t.graph, t.f, (uint64_t)_i + 1, &t.call));
	ck_assert_int_eq(random_call_run(&t.cx, t.graph, t.f, &t.arena, &t.call), TFMC_OK);
	for (size_t i = 0; i < TFMC_COUNT(pipelines); i++) {
		ck_assert(compile(&t, pipelines[i], host));
		call_object(&t, (int64_t)i + 1, i == 0 ? first : out);
		compare(&t, pipelines[i], i == 0 ? first : out);
		for (size_t k = 0; i > 0 && k < t.call.n_outputs; k++)
			ck_assert_mem_eq(first[k].data, out[k].data, first[k].count * sizeof(float));
		drop_code(&t);
	}
	teardown(&t);
	buf_destroy(&text);
}
END_TEST

START_TEST(programs)
{
	struct fixture t;
	uint64_t seed = (uint64_t)_i + 1;
	struct random_options options = {.n_ops = 8 + (size_t)_i % 24, .smooth = true};
	setup(&t);
	struct ir_module *m = random_module(&t.cx, seed, &options);
	ck_assert_msg(m != NULL, "%s", t.log.data);
	take(&t, m);
	check(&t, seed, effort_is_all() ? -1 : _i);
	teardown(&t);
}
END_TEST

START_TEST(transformers)
{
	struct fixture t;
	struct buf text;
	uint64_t seed = (uint64_t)_i + 1;
	buf_init(&text);
	random_transformer(&text, seed, false);
	setup(&t);
	enum tfmc_status st = ir_parse(&t.cx, "random.tir", text.data, text.len, &t.graph);
	ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
	t.f = ir_find_func(t.graph, "run");
	check(&t, seed, effort_is_all() ? -1 : _i);
	teardown(&t);
	buf_destroy(&text);
}
END_TEST

/* State belongs to other entries; weights are indexed by repeats only, which programs have. */
static bool cannot_run(enum ir_opcode code)
{
	return ir_op_has(code, TRAIT_STATEFUL) || code == OP_weight;
}

static void check_op(enum ir_opcode code, uint64_t seed, bool all_dtypes)
{
	const struct random_options options = {.all_dtypes = all_dtypes};
	struct fixture t;
	setup(&t);
	t.may_refuse = all_dtypes;
	struct ir_module *m = cannot_run(code) ? NULL : random_module_for_op(&t.cx, code, seed, &options);
	if (m) {
		take(&t, m);
		check(&t, seed, (int)(code + seed));
	}
	teardown(&t);
}

START_TEST(ops)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		check_op((enum ir_opcode)_i, seed, false);
}
END_TEST

START_TEST(ops_of_all_dtypes)
{
	check_op((enum ir_opcode)_i, (uint64_t)_i + 1, true);
}
END_TEST

Suite *suite_kernel_random(void);

Suite *suite_kernel_random(void)
{
	Suite *s = suite_create("kernel_random");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, ops, 0, IR_N_OPS);
	tcase_add_loop_test(t, ops_of_all_dtypes, 0, IR_N_OPS);
	effort_add_loop(t, programs, PROGRAMS, 4);
	effort_add_loop(t, transformers, PROGRAMS, 4);
	tcase_add_loop_test(t, parts, 0, (int)TFMC_COUNT(part_texts));
	tcase_add_loop_test(t, experts, 0, (int)TFMC_COUNT(expert_texts));
	tcase_add_loop_test(t, divided_heads, 0, (int)TFMC_COUNT(divided_texts));
	suite_add_tcase(s, t);
	t = tcase_create("chains");
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, chains, 0, effort_is_all() ? 120 : 12);
	suite_add_tcase(s, t);
	return s;
}
