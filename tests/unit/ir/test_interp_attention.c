/* SPDX-License-Identifier: Apache-2.0 */
/*
* Attention ops in the interpreter: rows of weights sum to 1 (to 0 where
 * no key is seen), the weighted values are the op's result, the weights are those
 * of the definition, and rounds of repeats are told apart.
 */
#include <check.h>
#include <math.h>

#include "ir/interp/interp.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"

#define B     2
#define H     4 /* query heads */
#define K     2 /* key heads */
#define S     5
#define T     5
#define E     3
#define N_OUT (B * H * S * E)

/* f(q, k, v, len, s): attention 2 x 3 times in nested loops, each round reads what the one before wrote. */
static const char text[] =
        "module \"m\"\n"
        "func @f(%q: f32[2,4,5,3], %k: f32[2,2,5,3], %v: f32[2,2,5,3], %len: i32[2], %s: f32[4]) "
        "-> (y: f32[2,4,5,3]) {\n"
        "  %y = repeat %i = 0 to 2 carry (%x = %q) {\n"
        "    %z = repeat %j = 0 to 3 carry (%w = %x) {\n"
        "      %a = attention %w, %k, %v, len=%len, sinks=%s {scale=0.75 softcap=5.0 mask=causal} : "
        "f32[2,4,5,3]\n"
        "      yield %a\n"
        "    } : f32[2,4,5,3]\n"
        "    yield %z\n"
        "  } : f32[2,4,5,3]\n"
        "  return %y\n"
        "}\n";

struct seen {
	int n;
	const double *k, *len, *sinks;
	double q[N_OUT]; /* of the next round: what the last one wrote, rounded */
};

static double weight(const struct seen *s, int b, int h, int i, int j)
{
	double sum = 0;
	if (j > i || (double)j >= s->len[b])
		return 0;
	for (int e = 0; e < E; e++)
		sum += s->q[((b * H + h) * S + i) * E + e] * s->k[((b * K + h / (H / K)) * T + j) * E + e];
	return exp(5.0 * tanh(0.75 * sum / 5.0));
}

static void check_row(const struct seen *s, const struct interp_attention *a, int b, int h, int i)
{
	const double *p = a->p->data + ((b * H + h) * S + i) * T;
	const double *out = a->out->data + ((b * H + h) * S + i) * E;
	double sum = 0, keys = 0, mixed[E] = {0};
	for (int j = 0; j < T; j++) {
		sum += p[j];
		keys += weight(s, b, h, i, j);
		for (int e = 0; e < E; e++)
			mixed[e] += p[j] * a->v->data[((b * K + h / (H / K)) * T + j) * E + e];
	}
	double norm = keys + exp(s->sinks[h]); /* a sink takes its part of every row */
	ck_assert_double_eq_tol(sum, norm > 0 ? keys / norm : 0, 1e-14);
	for (int j = 0; j < T; j++)
		ck_assert_double_eq_tol(p[j], norm > 0 ? weight(s, b, h, i, j) / norm : 0, 1e-13);
	for (int e = 0; e < E; e++)
		ck_assert_double_eq_tol(out[e], mixed[e], 1e-14);
}

static void check_attention(void *user, const struct interp_attention *a)
{
	struct seen *s = user;
	ck_assert_uint_eq(a->n_at, 2);
	ck_assert_int_eq(a->at[0], s->n / 3);
	ck_assert_int_eq(a->at[1], s->n % 3);
	ck_assert(a->op->code == OP_attention && a->p->rank == 4 && a->p->dims[3] == T);
	for (int row = 0; row < B * H * S; row++)
		check_row(s, a, row / (H * S), row / S % H, row % S);
	for (int i = 0; i < N_OUT; i++)
		s->q[i] = ir_round(DT_F32, a->out->data[i]);
	s->n++;
}

static void run(double keys_of_second, double *sinks, struct seen *s)
{
	static double q[N_OUT], k[B * K * T * E], v[B * K * T * E];
	double len[B] = {4, keys_of_second};
	struct diag_context cx;
	struct arena arena;
	struct ir_module *m;
	struct interp_tensor in[] = {{.dtype = DT_F32, .rank = 4, .dims = {B, H, S, E}, .data = q},
	                             {.dtype = DT_F32, .rank = 4, .dims = {B, K, T, E}, .data = k},
	                             {.dtype = DT_F32, .rank = 4, .dims = {B, K, T, E}, .data = v},
	                             {.dtype = DT_I32, .rank = 1, .dims = {B}, .data = len},
	                             {.dtype = DT_F32, .rank = 1, .dims = {H}, .data = sinks}},
	                     out;
	for (int i = 0; i < N_OUT; i++)
		s->q[i] = q[i] = (i * 37 % 23 - 11) * 0.125;
	for (int i = 0; i < B * K * T * E; i++) {
		k[i] = (i * 29 % 19 - 9) * 0.25;
		v[i] = (i * 41 % 31 - 15) * 0.5;
	}
	s->k = k;
	s->len = len;
	s->sinks = sinks;
	arena_init(&arena);
	diag_init(&cx, NULL, NULL);
	ck_assert_int_eq(ir_parse(&cx, "m.tir", text, sizeof(text) - 1, &m), TFMC_OK);
	ck_assert_int_eq(ir_verify(m, &cx), TFMC_OK);
	struct interp_args args = {.inputs = in, .outputs = &out, .arena = &arena};
	args.attention = check_attention;
	args.attention_user = s;
	ck_assert_int_eq(interp_run(&cx, m, ir_find_func(m, "f"), &args), TFMC_OK);
	ck_assert_int_eq(s->n, 6);
	ck_assert_mem_eq(out.data, s->q, sizeof(s->q));
	ir_module_destroy(m);
	arena_destroy(&arena);
	diag_destroy(&cx);
}

#define NONE                                               \
	{                                                  \
		-HUGE_VAL, -HUGE_VAL, -HUGE_VAL, -HUGE_VAL \
	}

START_TEST(shows_rows_that_sum_to_one)
{
	run(5, (double[])NONE, &(struct seen){0});
}
END_TEST

START_TEST(shows_rows_without_keys_as_zero)
{
	run(0, (double[])NONE, &(struct seen){0});
	run(0, (double[]){0.5, -3, 40, 1}, &(struct seen){0});
}
END_TEST

START_TEST(shows_what_sinks_leave)
{
	run(5, (double[]){0.5, -3, -HUGE_VAL, 2.25}, &(struct seen){0});
}
END_TEST

Suite *suite_interp_attention(void)
{
	Suite *s = suite_create("interp_attention");
	TCase *t = tcase_create("all");
	tcase_add_test(t, shows_rows_that_sum_to_one);
	tcase_add_test(t, shows_rows_without_keys_as_zero);
	tcase_add_test(t, shows_what_sinks_leave);
	suite_add_tcase(s, t);
	return s;
}
