/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A padded batch in an object: each sequence has the bits that it has alone, whatever is beside it, however long it is
 * and whoever computes it; padding reads as 0. Weights of f32, bf16 and codes; every level this machine runs.
 */
#include <check.h>
#include <string.h>

#include "backends/backend.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "runtime/tfmc_rt.h"
#include "tests/support/effort.h"
#include "tests/support/planned.h"
#include "tests/support/tir.h"

enum { D = 32, V = 30, MAX_B = 6, MAX_S = 40 };

/* ---- the model ---- */

/* The type that matrices are stored as, and the rounding of their inputs. */
struct precision {
	const char *as, *open, *close, *rounding;
};
static const struct precision precisions[] = {
        {"", "", "", NULL},
        {" as bf16", "round(bf16, ", ")", NULL},
        {" as bf16", "round(bf16, ", ")", "to=bf16"},
        {" as q8", "quantize(q8, ", ")", "block=32"},
        {" as q4", "quantize(q4, ", ")", "block=32"},
};

static void write_matrix(struct buf *text, const struct precision *p, const char *name, int rows, int depth)
{
	buf_printf(text,
	           "weight @%s : f32[2,%d,%d]%s = %sreshape([2,%d,%d], sinusoid(rows=%d, dim=%d, "
	           "layout=halves, spacing=t2t, start=%d, base=100.0))%s\n",
	           name, rows, depth, p->as, p->open, rows, depth, 2 * rows, depth, (int)strlen(name),
	           p->close);
}

/* %y = linear of %x, rounded if the precision says so. */
static void write_linear(struct buf *text, const struct precision *p, const char *y, const char *x,
                         const char *w, int rows, int depth)
{
	if (p->rounding)
		buf_printf(text, "%%%s_x = quantize_rows %%%s {%s} : f32[B,S,%d]\n", y, x, p->rounding,
		           depth);
	buf_printf(text, "%%%s = linear %%%s%s, @%s[%%l] : f32[B,S,%d]\n", y, p->rounding ? y : x,
	           p->rounding ? "_x" : "", w, rows);
}

static void write_head(struct buf *text, const char *name, int begin)
{
	buf_printf(text,
	           "%%%s1 = slice %%p {axis=2 begin=%d size=32} : f32[B,S,32]\n"
	           "%%%s2 = reshape %%%s1 {dims=[B,S,4,8]} : f32[B,S,4,8]\n"
	           "%%%s = transpose %%%s2 {perm=[0,2,1,3]} : f32[B,4,S,8]\n",
	           name, begin, name, name, name, name);
}

/* Two layers; all rows, their mean, the first and the last one, and scores of all. */
static void write_model(struct buf *text, const struct precision *p)
{
	buf_str(text,
	        "module \"padded\"\ndim B in [1,6]\ndim S in [1,40]\n"
	        "weight @emb : f32[30,32] = sinusoid(rows=30, dim=32, layout=halves, spacing=t2t, start=3, "
	        "base=10.0)\n"
	        "weight @pos : f32[40,32] = sinusoid(rows=40, dim=32, layout=halves, spacing=t2t, start=0, "
	        "base=50.0)\n");
	write_matrix(text, p, "w", 96, 32);
	write_matrix(text, p, "wo", 32, 32);
	write_matrix(text, p, "wup", 64, 32);
	write_matrix(text, p, "down", 32, 64);
	buf_str(text, "func @run(%ids: i32[B,S] {below=30 lengths=%len}, %len: i32[B] {default=S max=S}) -> "
	              "(hidden: f32[B,S,32] {lengths=%len}, mean: f32[B,32], first: f32[B,32], last: "
	              "f32[B,32], logits: f32[B,S,30]) {\n"
	              "%e = gather @emb, %ids : f32[B,S,32]\n"
	              "%at = iota {dims=[B,S] axis=1} : i32[B,S]\n"
	              "%pe = gather @pos, %at : f32[B,S,32]\n"
	              "%x = add %e, %pe : f32[B,S,32]\n"
	              "%r = repeat %l = 0 to 2 carry (%c = %x) {\n"
	              "%n = layer_norm %c : f32[B,S,32]\n");
	write_linear(text, p, "p", "n", "w", 96, 32);
	write_head(text, "q", 0);
	write_head(text, "k", 32);
	write_head(text, "v", 64);
	buf_str(text, "%a = attention %q, %k, %v, len=%len {scale=0.35} : f32[B,4,S,8]\n"
	              "%a1 = transpose %a {perm=[0,2,1,3]} : f32[B,S,4,8]\n"
	              "%a2 = reshape %a1 {dims=[B,S,32]} : f32[B,S,32]\n");
	write_linear(text, p, "o", "a2", "wo", 32, 32);
	buf_str(text, "%y = add %c, %o : f32[B,S,32]\n"
	              "%m = layer_norm %y : f32[B,S,32]\n");
	write_linear(text, p, "u", "m", "wup", 64, 32);
	buf_str(text, "%g = gelu %u : f32[B,S,64]\n");
	write_linear(text, p, "d", "g", "down", 32, 64);
	buf_str(text, "%z = add %m, %d : f32[B,S,32]\n"
	              "%f = layer_norm %z : f32[B,S,32]\n"
	              "yield %f\n} : f32[B,S,32]\n"
	              "%h = mask_rows %r, %len : f32[B,S,32]\n"
	              "%sum = reduce_sum %h {axes=[1]} : f32[B,32]\n"
	              "%mean = scale %sum {f=0.25} : f32[B,32]\n"
	              "%cls = slice %r {axis=1 begin=0 size=1} : f32[B,1,32]\n"
	              "%first = reshape %cls {dims=[B,32]} : f32[B,32]\n"
	              "%one = full {value=1.0 dims=[B] dtype=i32} : i32[B]\n"
	              "%end = sub %len, %one : i32[B]\n"
	              "%last = select_rows %r, %end : f32[B,32]\n"
	              "%scores = linear %r, @emb : f32[B,S,30]\n"
	              "%logits = mask_rows %scores, %len : f32[B,S,30]\n"
	              "return %h, %mean, %first, %last, %logits\n}\n");
}

struct built {
	struct tir graph;
	struct ir_module *planned;
	struct backend_output out;
	struct backend_jit *jit;
	struct tfmc_model model;
};

static void build(struct built *b, const struct target *t, const struct precision *precision,
                  const char *level)
{
	struct arena a;
	struct pipeline p;
	struct buf text;
	const struct pass_options po = {.target = t};
	const struct backend_options bo = {.opt_level = effort_of_code()};
	arena_init(&a);
	buf_init(&text);
	tir_init(&b->graph);
	write_model(&text, precision);
	tir_load(&b->graph, text.data);
	struct diag_context *cx = &b->graph.cx;
	ck_assert_int_eq(pipeline_parse(&a, cx, level, &p), TFMC_OK);
	enum tfmc_status status = passes_run(cx, &p, &po, b->graph.m, &b->planned, NULL);
	ck_assert_msg(status == TFMC_OK, "%s %s: %s", t->name, level, b->graph.log.data);
	backend_output_init(&b->out);
	status = planned_compile(cx, b->planned, t, NULL, &bo, &b->out);
	ck_assert_msg(status == TFMC_OK, "%s %s: %s", t->name, level, b->graph.log.data);
	ck_assert_int_eq(backend_jit_load(cx, &b->out.object, &b->jit), TFMC_OK);
	ck_assert(backend_jit_model(b->jit, "padded", &b->model));
	buf_destroy(&text);
	arena_destroy(&a);
}

static void release(struct built *b)
{
	backend_jit_destroy(b->jit);
	backend_output_destroy(&b->out);
	ir_module_destroy(b->planned);
	tir_destroy(&b->graph);
}

/* ---- calls ---- */

struct answer {
	float hidden[MAX_B * MAX_S * D], mean[MAX_B * D], first[MAX_B * D], last[MAX_B * D];
	float logits[MAX_B * MAX_S * V];
};

/* Id of position s of sequence b; of padding, too. */
static int32_t id_of(int64_t b, int64_t s)
{
	return (int32_t)((b * 11 + s * 7 + 3) % V);
}

/* Sequences [first, first + batch) as a batch of rows of `size` positions; lengths NULL: all are real. */
static void ask(struct tfmc_session *s, int64_t first, int64_t batch, int64_t size, const int32_t *lengths,
                struct answer *a)
{
	int32_t ids[MAX_B * MAX_S];
	const int64_t dims[] = {batch, size};
	for (int64_t i = 0; i < batch * size; i++)
		ids[i] = id_of(first + i / size, i % size);
	uint64_t n = (uint64_t)(batch * size), rows = (uint64_t)batch;
	const struct tfmc_buffer in[] = {{ids, n}, {(void *)(uintptr_t)lengths, lengths ? rows : 0}};
	const struct tfmc_buffer out[] = {{a->hidden, n * D},
	                                  {a->mean, rows * D},
	                                  {a->first, rows * D},
	                                  {a->last, rows * D},
	                                  {a->logits, n * V}};
	memset(a, 0xff, sizeof(*a));
	int64_t entry = tfmc_entry_find(tfmc_session_record(s), "run");
	ck_assert_int_eq(tfmc_session_call(s, entry, dims, in, out), TFMC_RT_OK);
}

/* Sequence b of the batch is what it is alone, without padding. */
static void expect_alone(struct tfmc_session *s, const struct answer *batch, int64_t b, int64_t size,
                         int32_t n)
{
	static struct answer alone;
	static const float zero[D];
	ask(s, b, 1, n > 1 ? n : 1, &n, &alone);
	const float *hidden = batch->hidden + b * size * D, *logits = batch->logits + b * size * V;
	ck_assert_mem_eq(hidden, alone.hidden, (size_t)n * D * 4);
	ck_assert_mem_eq(logits, alone.logits, (size_t)n * V * 4);
	for (int64_t i = n; i < size; i++) {
		ck_assert_mem_eq(hidden + i * D, zero, D * 4);
		ck_assert_mem_eq(logits + i * V, zero, V * 4);
	}
	ck_assert_mem_eq(batch->mean + b * D, alone.mean, D * 4);
	ck_assert_mem_eq(batch->first + b * D, alone.first, D * 4);
	ck_assert_mem_eq(batch->last + b * D, alone.last, D * 4);
}

static void check_batches(struct built *b)
{
	static const struct {
		int64_t batch, size;
		int32_t lengths[MAX_B];
	} batches[] = {{6, 40, {5, 0, 40, 1, 17, 33}},
	               {3, 40, {0, 0, 0}},
	               {1, 40, {3}},
	               {5, 7, {7, 7, 7, 7, 7}},
	               {2, 1, {0, 1}}};
	static struct answer answer, again;
	const struct tfmc_session_options one = {.struct_size = sizeof(one)},
	                                  three = {.struct_size = sizeof(three),
	                                           .workers = 3,
	                                           .all_workers = 1};
	struct tfmc_session *s, *pool;
	ck_assert_int_eq(tfmc_session_open(&b->model, &one, &s), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_open(&b->model, &three, &pool), TFMC_RT_OK);
	for (size_t i = 0; i < TFMC_COUNT(batches); i++) {
		ask(s, 0, batches[i].batch, batches[i].size, batches[i].lengths, &answer);
		ask(pool, 0, batches[i].batch, batches[i].size, batches[i].lengths, &again);
		ck_assert_mem_eq(&answer, &again, sizeof(answer));
		for (int64_t k = 0; k < batches[i].batch; k++)
			expect_alone(s, &answer, k, batches[i].size, batches[i].lengths[k]);
	}
	/* omitted lengths are full ones */
	ask(s, 0, batches[3].batch, batches[3].size, batches[3].lengths, &answer);
	ask(s, 0, batches[3].batch, batches[3].size, NULL, &again);
	ck_assert_mem_eq(&answer, &again, sizeof(answer));
	tfmc_session_close(pool);
	tfmc_session_close(s);
}

START_TEST(sequences_have_the_bits_that_they_have_alone)
{
	for (size_t i = 0; target_level_at(i); i++) {
		struct built b;
		if (!target_runs_on_host(target_level_at(i)))
			continue;
		build(&b, target_level_at(i), &precisions[_i], "O2");
		check_batches(&b);
		release(&b);
	}
}
END_TEST

START_TEST(without_optimization_too)
{
	struct built b;
	build(&b, target_native(), &precisions[0], "O0");
	check_batches(&b);
	release(&b);
}
END_TEST

Suite *suite_padded(void);

Suite *suite_padded(void)
{
	Suite *s = suite_create("padded");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, sequences_have_the_bits_that_they_have_alone, 0, (int)TFMC_COUNT(precisions));
	tcase_add_test(t, without_optimization_too);
	suite_add_tcase(s, t);
	return s;
}
