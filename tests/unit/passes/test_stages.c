/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreters of all ranks, as threads, with the parts of the weights that shard and stages give them: the ranks of
 * the last stage have the bits of the module that adds in the same order.
 */
#define _POSIX_C_SOURCE 200809L
#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "ir/interp/interp.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/tir.h"

Suite *suite_stages(void);

enum { MAX_RANKS = 8, ROWS = 3, COLUMNS = 8, LIMIT_S = 60 };

/* Five layers, none of which is the identity where its weights are zeros: two matrices and a bias. */
static const char layers[] =
        "module \"t\"\n"
        "dim S in [1,8]\n"
        "weight @up : f32[5,64,8] = reshape([5,64,8], sinusoid(rows=320, dim=8, layout=halves, spacing=t2t, "
        "start=2, base=100.0))\n"
        "weight @down : f32[5,8,64] = reshape([5,8,64], sinusoid(rows=40, dim=64, layout=halves, "
        "spacing=t2t, start=3, base=100.0))\n"
        "weight @last : f32[8,8] = sinusoid(rows=8, dim=8, layout=halves, spacing=t2t, start=5, base=100.0)\n"
        "func @f(%x: f32[S,8]) -> (y: f32[S,8]) {\n"
        "  %g = gelu %x : f32[S,8]\n"
        "  %l = repeat %i = 0 to 5 carry (%c = %g) {\n"
        "    %u = linear %c, @up[%i] : f32[S,64]\n"
        "    %h = relu %u : f32[S,64]\n"
        "    %d = linear %h, @down[%i] : f32[S,8]\n"
        "    %e = add %c, %d : f32[S,8]\n"
        "    %n = rms_norm %e : f32[S,8]\n"
        "    %o = exp %n : f32[S,8]\n"
        "    yield %o\n"
        "  } : f32[S,8]\n"
        "  %y = linear %l, @last : f32[S,8]\n"
        "  return %y\n"
        "}\n";

/* ---- ranks as threads ---- */

struct hall {
	struct ir_module *m;
	int64_t n, group;
	pthread_barrier_t stages[MAX_RANKS];     /* of the first rank of each */
	double given[MAX_RANKS][ROWS * COLUMNS]; /* to an exchange */
	const double *terms[MAX_RANKS];
	sem_t sent[MAX_RANKS]; /* a message to this rank */
	double messages[MAX_RANKS][ROWS * COLUMNS];
	double outputs[MAX_RANKS][ROWS * COLUMNS];
	bool failed[MAX_RANKS];
};

static const double *const *exchange(void *user, int64_t rank, int64_t first, int64_t n, const double *x,
                                     int64_t count)
{
	struct hall *h = user;
	ck_assert_int_eq(n, h->group);
	ck_assert_int_eq(first, rank / n * n);
	ck_assert_int_eq(count, ROWS * COLUMNS);
	pthread_barrier_wait(&h->stages[first]); /* the values of the last one have been read */
	memcpy(h->given[rank], x, sizeof(h->given[rank]));
	h->terms[rank] = h->given[rank];
	pthread_barrier_wait(&h->stages[first]);
	return &h->terms[first];
}

static bool send_values(void *user, int64_t rank, int64_t to, const double *x, int64_t count)
{
	struct hall *h = user;
	ck_assert_int_eq(to, (rank + h->group) % h->n);
	ck_assert_int_eq(count, ROWS * COLUMNS);
	memcpy(h->messages[to], x, sizeof(h->messages[to]));
	sem_post(&h->sent[to]);
	return true;
}

static const double *receive_values(void *user, int64_t rank, int64_t from, int64_t count)
{
	struct hall *h = user;
	ck_assert_int_eq((from + h->group) % h->n, rank);
	ck_assert_int_eq(count, ROWS * COLUMNS);
	sem_wait(&h->sent[rank]);
	return h->messages[rank];
}

/* Runs f of m as a rank; ranks NULL: as one process. */
static bool interpret(const struct ir_module *m, int64_t rank, const struct interp_ranks *ranks, double *out)
{
	const int64_t dims[] = {ROWS};
	const struct ir_func *f = ir_find_func(m, "f");
	const struct weight_source source = {.rank = rank};
	struct interp_tensor input, output;
	struct diag_context cx;
	struct arena a;
	arena_init(&a);
	diag_init(&cx, NULL, NULL);
	bool ok = interp_tensor_make(&a, ir_type_of(f, f->params[0].value), dims, &input);
	for (int i = 0; ok && i < ROWS * COLUMNS; i++)
		input.data[i] = (float)(i * 7 % 11) / 8 - 0.5f;
	struct interp_args args = {.dims = dims,
	                           .inputs = &input,
	                           .outputs = &output,
	                           .weights = &source,
	                           .arena = &a,
	                           .ranks = ranks};
	ok = ok && interp_run(&cx, m, f, &args) == TFMC_OK;
	if (ok)
		memcpy(out, output.data, ROWS * COLUMNS * sizeof(*out));
	diag_destroy(&cx);
	arena_destroy(&a);
	return ok;
}

struct member {
	struct hall *hall;
	int64_t rank;
};

static void *run_rank(void *arg)
{
	const struct member *m = arg;
	struct hall *h = m->hall;
	const struct interp_ranks ranks = {h->n, exchange, send_values, receive_values, h};
	h->failed[m->rank] = !interpret(h->m, m->rank, &ranks, h->outputs[m->rank]);
	return NULL;
}

static void run_ranks(struct hall *h)
{
	pthread_t threads[MAX_RANKS];
	struct member members[MAX_RANKS];
	for (int64_t i = 0; i < h->n; i++) {
		members[i] = (struct member){h, i};
		sem_init(&h->sent[i], 0, 0);
		pthread_barrier_init(&h->stages[i], NULL, (unsigned)h->group);
	}
	for (int64_t i = 0; i < h->n; i++)
		ck_assert(!pthread_create(&threads[i], NULL, run_rank, &members[i]));
	for (int64_t i = 0; i < h->n; i++) {
		pthread_join(threads[i], NULL);
		ck_assert(!h->failed[i]);
		sem_destroy(&h->sent[i]);
		pthread_barrier_destroy(&h->stages[i]);
	}
}

/* ---- tests ---- */

static struct ir_module *run_passes(struct tir *t, const char *list)
{
	const struct pass_options options = {.target = target_find("x86-64-v3")};
	struct ir_module *out = NULL;
	struct pipeline p;
	struct arena a;
	arena_init(&a);
	ck_assert_int_eq(pipeline_parse(&a, &t->cx, list, &p), TFMC_OK);
	ck_assert_msg(passes_run(&t->cx, &p, &options, t->m, &out, NULL) == TFMC_OK, "%s", t->log.data);
	arena_destroy(&a);
	return out;
}

static const struct {
	int64_t group, stages;
	const char *passes, *reference;
} shapes[] = {
        {1, 2, "stages{stages=2}", "canonicalize"},
        {1, 3, "stages{stages=3}", "canonicalize"},
        {1, 5, "stages{stages=5}", "canonicalize"},
        {2, 2, "shard{ranks=2 reference=0},stages{ranks=2 stages=2}", "shard{ranks=2}"},
        {3, 2, "shard{ranks=3 reference=0},stages{ranks=3 stages=2}", "shard{ranks=3}"},
        {2, 4, "shard{ranks=2 reference=0},stages{ranks=2 stages=4}", "shard{ranks=2}"},
};

START_TEST(the_last_stage_has_the_bits_of_one_process)
{
	static struct hall h;
	double expected[ROWS * COLUMNS];
	struct tir t;
	tir_init(&t);
	tir_load(&t, layers);
	struct ir_module *reference = run_passes(&t, shapes[_i].reference);
	ck_assert(interpret(reference, 0, NULL, expected));
	h = (struct hall){.m = run_passes(&t, shapes[_i].passes),
	                  .n = shapes[_i].group * shapes[_i].stages,
	                  .group = shapes[_i].group};
	run_ranks(&h);
	for (int64_t i = 0; i < h.n; i++) {
		bool same = !memcmp(h.outputs[i], expected, sizeof(expected));
		ck_assert_msg(same == (i < h.group), "rank %lld of %lld", (long long)i, (long long)h.n);
	}
	ir_module_destroy(h.m);
	ir_module_destroy(reference);
	tir_destroy(&t);
}
END_TEST

Suite *suite_stages(void)
{
	Suite *s = suite_create("stages");
	TCase *t = tcase_create("interpreters");
	tcase_set_timeout(t, LIMIT_S);
	tcase_add_loop_test(t, the_last_stage_has_the_bits_of_one_process, 0, TFMC_COUNT(shapes));
	suite_add_tcase(s, t);
	return s;
}
