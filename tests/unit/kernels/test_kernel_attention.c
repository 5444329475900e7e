/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attention template against the IR interpreter on odd shapes, and its
 * promises: nothing beyond the visible keys is read, and a row has the same bits
 * for every number of workers, chunk of queries, batch and capacity.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "ir/support/compiler.h"
#include "tests/support/effort.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/kernels/padded.h"
#include "tests/unit/kernels/attention_configs.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "opencl-gpu"};

/* Keys the last of `rows` rows sees, by causality or window. */
static int64_t reach_of(const struct attention_config *config, int64_t rows)
{
	return rows - 1 + (config->is_causal ? 1 : config->window);
}

/* Lengths, pasts and poison that fit a shape, the first sequence shortest. */
static void vary(const struct attention_case *c, struct attention_call *call)
{
	for (int64_t b = 0; b < call->b; b++) {
		int64_t visible = call->t, past = 0;
		if (c->config.has_past)
			past = call->t > call->s ? (call->t - call->s) * (b + 1) / call->b : b;
		int64_t reach = reach_of(&c->config, past + call->s);
		bool is_near = c->config.is_causal || c->config.window > 0;
		if (is_near && reach < visible)
			visible = reach;
		int64_t len = b * call->t / call->b;
		if (c->config.has_len && len < visible)
			visible = len;
		call->len[b] = (int32_t)len;
		call->past[b] = (int32_t)past;
		attention_poison(c, call, b, visible < 0 ? 0 : visible, call->t);
		if (c->config.window > 0 && past + 1 > c->config.window)
			attention_poison(c, call, b, 0, past + 1 - c->config.window);
	}
}

/* Targets take turns. */
static void check_shapes(struct attention_case *c, int turn)
{
	static const int64_t rows[] = {0, 1, 3, 17, 37, 70}, keys[] = {1, 5, 16, 65, 130, 300};
	for (size_t i = 0; i < TFMC_COUNT(rows) * TFMC_COUNT(keys); i++) {
		struct attention_call call;
		if (!effort_is_all() && (int)i % 2 != turn % 2)
			continue;
		attention_call_init(c, &call, 1 + (int64_t)i % 3, rows[i / TFMC_COUNT(keys)],
		                    keys[i % TFMC_COUNT(keys)]);
		vary(c, &call);
		attention_run(c, &call, 1 + (int64_t)i % 5);
		attention_expect(c, &call);
	}
}

START_TEST(equals_the_interpreter)
{
	struct attention_config config = configs[_i / (int)TFMC_COUNT(targets)];
	config.target = targets[_i % (int)TFMC_COUNT(targets)];
	struct attention_case c;
	attention_case_init(&c, &config);
	if (c.jit)
		check_shapes(&c, _i);
	attention_case_destroy(&c);
}
END_TEST

/* Rows from the length on are padding: they are left as they were, all bytes 0xff. */
static void expect_padding(const struct attention_case *c, const struct attention_call *got,
                           const struct attention_call *all)
{
	size_t width = (size_t)(c->config.heads * c->config.value_size), row = 0;
	float untouched;
	memset(&untouched, 0xff, sizeof(untouched));
	for (int64_t b = 0; b < got->b; b++)
		for (int64_t s = 0; s < got->s; s++, row++) {
			const float *x = got->out + row * width;
			if (padded_is_real(got->len, b, s))
				ck_assert_mem_eq(x, all->out + row * width, width * 4);
			for (size_t e = 0; !padded_is_real(got->len, b, s) && e < width; e++)
				ck_assert_mem_eq(x + e, &untouched, 4);
		}
}

START_TEST(padding_is_left_alone)
{
	static const int64_t shapes[][2] = {{4, 7}, {3, 37}, {1, 5}, {2, 70}, {5, 0}};
	struct attention_config config = configs[_i / (int)TFMC_COUNT(targets)];
	config.target = targets[_i % (int)TFMC_COUNT(targets)];
	if (!config.has_len || config.split > 0 || config.is_bf16 ||
	    target_find(config.target)->group_size > 1)
		return;
	struct attention_case all, some;
	attention_case_init(&all, &config);
	config.is_padded = true;
	attention_case_init(&some, &config);
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++) {
		int64_t b = shapes[i][0], s = shapes[i][1];
		struct attention_call expected, got;
		attention_call_init(&all, &expected, b, s, s);
		attention_call_init(&some, &got, b, s, s);
		padded_fill(expected.len, b, s);
		padded_fill(got.len, b, s);
		bool is_checked = s < 10; /* both: the kernel interpreter rounds a multiply-add once */
		if (is_checked)
			attention_run_checked(&all, &expected, 1);
		else
			attention_run(&all, &expected, 1);
		for (int64_t workers = 1; workers <= 5; workers += 2) {
			if (is_checked)
				attention_run_checked(&some, &got, workers);
			else
				attention_run(&some, &got, workers);
			expect_padding(&some, &got, &expected);
		}
	}
	attention_case_destroy(&some);
	attention_case_destroy(&all);
}
END_TEST

START_TEST(stays_inside_its_memory)
{
	static const int64_t shapes[][3] = {{1, 1, 1},   {2, 7, 5}, {1, 3, 65}, {2, 5, 17},
	                                    {1, 17, 37}, {0, 4, 4}, {1, 0, 3},  {2, 2, 0}};
	struct attention_config config = configs[_i / (int)TFMC_COUNT(targets)];
	config.target = targets[_i % (int)TFMC_COUNT(targets)];
	struct attention_case c;
	attention_case_init(&c, &config);
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++) {
		struct attention_call call;
		attention_call_init(&c, &call, shapes[i][0], shapes[i][1], shapes[i][2]);
		vary(&c, &call);
		attention_run_checked(&c, &call, 2);
		attention_expect(&c, &call);
	}
	attention_case_destroy(&c);
}
END_TEST

/* Rows [from, from + n) of a call as a call of their own: same bits. */
static void expect_chunk(struct attention_case *c, const struct attention_call *whole, int64_t from,
                         int64_t n)
{
	int64_t width = c->config.heads * c->config.size, out = c->config.heads * c->config.value_size;
	struct attention_call part;
	attention_call_init(c, &part, 1, n, whole->t);
	memcpy(part.q, whole->q + from * width, (size_t)(n * width) * 4);
	memcpy(part.k, whole->k, (size_t)whole->n_k * 4);
	memcpy(part.v, whole->v, (size_t)whole->n_v * 4);
	memcpy(part.sinks, whole->sinks, (size_t)c->config.heads * 4);
	memcpy(part.k_scale, whole->k_scale, (size_t)whole->n_scales * 4);
	memcpy(part.v_scale, whole->v_scale, (size_t)whole->n_scales * 4);
	part.past[0] = (int32_t)from;
	attention_poison(c, &part, 0, reach_of(&c->config, from + n), part.t);
	if (c->config.window > 0 && from + 1 > c->config.window)
		attention_poison(c, &part, 0, 0, from + 1 - c->config.window);
	attention_run(c, &part, 1);
	ck_assert_mem_eq(part.out, whole->out + from * out, (size_t)(n * out) * 4);
}

START_TEST(chunks_have_the_same_bits)
{
	/* one query head for each key head, three; windows: both sides, causal ones of both widths; sinks */
	static const int grouped[] = {4,         12,     WINDOWS,    WINDOWS + 2, WINDOWS + 3, SINKS + 1,
	                              SINKS + 2, NARROW, NARROW + 1, SCALED,      SCALED + 1};
	struct attention_config config = configs[grouped[_i % 11]];
	config.has_len = false;
	config.bias = BIAS_NONE;
	config.target = targets[_i / 11];
	struct attention_case c;
	attention_case_init(&c, &config);
	struct attention_call whole;
	attention_call_init(&c, &whole, 1, c.jit ? 300 : 70, c.jit ? 300 : 70);
	attention_run(&c, &whole, 1);
	for (int64_t from = 0, n = 1; from < whole.s; from += n, n = n * 2 + 1)
		expect_chunk(&c, &whole, from, from + n <= whole.s ? n : whole.s - from);
	attention_case_destroy(&c);
}
END_TEST

/* One new token, whose blocks work-groups divide: the bits of its row among others. */
START_TEST(divided_blocks_have_the_same_bits)
{
	static const int which[] = {4,         12,     WINDOWS,    WINDOWS + 2, WINDOWS + 3, SINKS + 1,
	                            SINKS + 2, NARROW, NARROW + 1, SCALED,      SCALED + 1};
	struct attention_config config = configs[which[_i / 2]];
	config.has_len = false;
	config.bias = BIAS_NONE;
	config.target = "opencl-gpu";
	config.bc = _i % 2 ? 48 : 32;
	config.split = 3;
	struct attention_case c;
	attention_case_init(&c, &config);
	struct attention_call whole;
	attention_call_init(&c, &whole, 1, 81, 81);
	attention_run(&c, &whole, 2);
	const int64_t tokens[] = {0, 31, 32, 79, 80};
	for (size_t i = 0; i < TFMC_COUNT(tokens); i++)
		expect_chunk(&c, &whole, tokens[i], 1);
	attention_case_destroy(&c);
}
END_TEST

/* Values of later tokens, even NaN, change no bit of a row. */
START_TEST(later_tokens_do_not_matter)
{
	struct attention_config config = configs[12];
	config.has_len = config.has_past = false;
	config.target = targets[_i];
	struct attention_case c;
	attention_case_init(&c, &config);
	struct attention_call clean, spoiled;
	attention_call_init(&c, &clean, 1, 41, 41);
	attention_call_init(&c, &spoiled, 1, 41, 41);
	attention_poison(&c, &spoiled, 0, 23, spoiled.t);
	attention_run(&c, &clean, 1);
	attention_run(&c, &spoiled, 2);
	size_t bytes = (size_t)(23 * config.heads * config.value_size) * 4;
	ck_assert_mem_eq(clean.out, spoiled.out, bytes);
	ck_assert(isnan(spoiled.out[23 * config.heads * config.value_size]));
	attention_case_destroy(&c);
}
END_TEST

START_TEST(workers_have_the_same_bits)
{
	static const int64_t workers[] = {2, 3, 7, 16};
	static const int which[] = {12, 5, WINDOWS + 1, WINDOWS + 2, SINKS + 1, SCALED};
	struct attention_config config = configs[which[_i % 6]];
	config.target = targets[_i / 6];
	struct attention_case c;
	attention_case_init(&c, &config);
	struct attention_call one, more;
	attention_call_init(&c, &one, 3, 70, 90);
	attention_call_init(&c, &more, 3, 70, 90);
	vary(&c, &one);
	vary(&c, &more);
	attention_run(&c, &one, 1);
	for (size_t i = 0; i < (c.jit ? TFMC_COUNT(workers) : 1); i++) {
		attention_run(&c, &more, workers[i]);
		ck_assert_mem_eq(one.out, more.out, (size_t)one.n_out * 4);
	}
	attention_case_destroy(&c);
}
END_TEST

/* One new token, blocks of heads divided among workers: the bits of one worker, by machine code and checked.
 */
START_TEST(divided_heads_have_the_same_bits)
{
	static const struct {
		int config;
		int64_t heads, key_heads;
	} cases[] = {{4, 1, 1},           {12, 9, 3},           {11, 5, 1},
	             {WINDOWS + 2, 4, 1}, {WINDOWS + 3, 16, 1}, {3, 2, 2},
	             {SINKS + 1, 6, 2},   {SINKS, 1, 1},        {NARROW, 6, 2},
	             {NARROW + 1, 3, 1},  {SCALED, 6, 2}};
	static const int64_t workers[] = {2, 3, 4, 7, 16};
	struct attention_config config = configs[cases[_i % 11].config];
	config.heads = cases[_i % 11].heads;
	config.key_heads = cases[_i % 11].key_heads;
	config.target = targets[_i / 11];
	config.bc = 16;
	config.br = config.heads / config.key_heads;
	config.split = 10;
	struct attention_case c;
	attention_case_init(&c, &config);
	for (int64_t b = 1; b <= 3; b++) {
		struct attention_call one, more;
		attention_call_init(&c, &one, b, 1, 131 + b * 7);
		attention_call_init(&c, &more, b, 1, 131 + b * 7);
		vary(&c, &one);
		vary(&c, &more);
		attention_run(&c, &one, 1);
		attention_expect(&c, &one);
		for (size_t i = 0; i < TFMC_COUNT(workers); i++) {
			if (!c.jit && !effort_is_all() && (int64_t)i % 3 != b - 1)
				continue; /* each number of workers once */
			attention_run(&c, &more, workers[i]);
			ck_assert_mem_eq(one.out, more.out, (size_t)one.n_out * 4);
		}
		attention_run_checked(&c, &more, workers[b]);
		attention_expect(&c, &more);
	}
	attention_case_destroy(&c);
}
END_TEST

/* Keys in panels are multiplied as they lie, others are brought into panels: the same products. */
START_TEST(panels_have_the_same_bits)
{
	struct attention_config config = configs[15];
	struct attention_case rows, panels;
	struct attention_call a, b;
	config.target = targets[_i];
	attention_case_init(&panels, &config);
	config.panel_keys = false;
	attention_case_init(&rows, &config);
	attention_call_init(&rows, &a, 2, 9, 70);
	attention_call_init(&panels, &b, 2, 9, 70);
	vary(&rows, &a);
	vary(&panels, &b);
	attention_run(&rows, &a, 1);
	attention_run(&panels, &b, 2);
	ck_assert_mem_eq(a.out, b.out, (size_t)a.n_out * 4);
	attention_case_destroy(&rows);
	attention_case_destroy(&panels);
}
END_TEST

/* Padding a sequence, and others beside it, changes no bit. */
START_TEST(lengths_have_the_same_bits)
{
	int n = (int)TFMC_COUNT(targets);
	struct attention_config config = configs[0];
	config.target = _i < n ? targets[_i] : "x86-64-v4-bf16";
	config.rounds = _i >= n;
	struct attention_case c;
	attention_case_init(&c, &config);
	struct attention_call alone, padded;
	attention_call_init(&c, &padded, 2, 9, 130);
	attention_call_init(&c, &alone, 1, 9, 67);
	memcpy(alone.q, padded.q, (size_t)alone.n_q * 4);
	for (int64_t h = 0; h < config.heads; h++) {
		size_t bytes = (size_t)(67 * config.size) * 4;
		memcpy(alone.k + h * 67 * config.size, padded.k + h * 130 * config.size, bytes);
		memcpy(alone.v + h * 67 * config.size, padded.v + h * 130 * config.size, bytes);
	}
	alone.len[0] = padded.len[0] = 67;
	padded.len[1] = 130;
	attention_poison(&c, &padded, 0, 67, padded.t);
	attention_run(&c, &alone, 1);
	attention_run(&c, &padded, 2);
	ck_assert_mem_eq(alone.out, padded.out, (size_t)alone.n_out * 4);
	attention_case_destroy(&c);
}
END_TEST

/* Masks that come as bias: -inf hides a key, a row of -inf gives 0, and NaN is not lost. */
START_TEST(extreme_scores)
{
	struct attention_config config = configs[3];
	config.target = targets[_i / 2];
	config.has_sinks = _i % 2;
	struct attention_case c;
	attention_case_init(&c, &config);
	struct attention_call call;
	attention_call_init(&c, &call, 3, 3, 70);
	for (int64_t t = 0; t < 70; t++) {
		call.bias[t] = t < 66 ? -HUGE_VALF : 0;
		call.bias[70 + t] = -HUGE_VALF;
		call.bias[140 + t] = t % 2 ? -3.0e38f : -100.0f;
	}
	attention_run(&c, &call, 1);
	attention_expect(&c, &call);
	call.bias[69] = NAN;
	attention_run(&c, &call, 1);
	ck_assert(isnan(call.out[0]));
	attention_case_destroy(&c);
}
END_TEST

/* A key or a value of NaN, as its scale says it, is not lost where it is seen; a key of zeros is one. */
START_TEST(extreme_scales)
{
	struct attention_config config = configs[SCALED];
	config.target = targets[_i];
	config.has_len = false;
	struct attention_case c;
	attention_case_init(&c, &config);
	struct attention_call call;
	attention_call_init(&c, &call, 1, 9, 9);
	call.k_scale[0] = 0;
	attention_run(&c, &call, 1);
	attention_expect(&c, &call);
	int64_t row = config.heads * config.value_size;
	call.k_scale[5] = call.v_scale[9 + 7] = NAN;
	attention_run(&c, &call, 1);
	for (int64_t i = 0; i < call.n_out; i++) {
		int64_t token = i / row, key_head = i % row / config.value_size / 2;
		bool is_nan = (key_head == 0 && token >= 5) || (key_head == 1 && token >= 7);
		ck_assert_int_eq(isnan(call.out[i]) != 0, is_nan);
	}
	attention_case_destroy(&c);
}
END_TEST

/* A sink of -inf is none, bit for bit; one that is far above all scores takes everything. */
START_TEST(extreme_sinks)
{
	struct attention_config config = configs[SINKS];
	struct attention_case with, without;
	struct attention_call a, b;
	config.target = targets[_i];
	attention_case_init(&with, &config);
	config.has_sinks = false;
	attention_case_init(&without, &config);
	attention_call_init(&with, &a, 2, 9, 70);
	attention_call_init(&without, &b, 2, 9, 70);
	a.len[1] = b.len[1] = 70; /* the first sequence sees nothing */
	for (int h = 0; h < 3; h++)
		a.sinks[h] = -HUGE_VALF;
	attention_run(&with, &a, 1);
	attention_run(&without, &b, 1);
	ck_assert_mem_eq(a.out, b.out, (size_t)a.n_out * 4);
	for (int h = 0; h < 3; h++)
		a.sinks[h] = 2e38f;
	attention_run(&with, &a, 1);
	attention_expect(&with, &a);
	a.sinks[1] = NAN;
	attention_run(&with, &a, 1);
	ck_assert(isnan(a.out[9 * 60 + 20]) && !isnan(a.out[9 * 60]));
	attention_case_destroy(&with);
	attention_case_destroy(&without);
}
END_TEST

/* In pairs of bf16, and by matrix tiles: against the interpreter, inside their memory, for any number of workers. */
START_TEST(pairs)
{
	static const int64_t shapes[][3] = {{1, 1, 1},   {2, 7, 5}, {1, 3, 65},
	                                    {2, 17, 34}, {0, 4, 4}, {1, 0, 3}};
	struct attention_config config = configs[ROUNDED + _i / 2];
	struct attention_call call, more;
	struct attention_case c;
	config.target = _i % 2 ? "x86-64-v4-amx" : "x86-64-v4-bf16";
	attention_case_init(&c, &config);
	if (c.jit)
		check_shapes(&c, _i);
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++) {
		attention_call_init(&c, &call, shapes[i][0], shapes[i][1], shapes[i][2]);
		vary(&c, &call);
		attention_run_checked(&c, &call, 2);
		attention_expect(&c, &call);
	}
	attention_call_init(&c, &call, 2, 70, 90);
	attention_call_init(&c, &more, 2, 70, 90);
	vary(&c, &call);
	vary(&c, &more);
	attention_run(&c, &call, 1);
	attention_run(&c, &more, 7);
	ck_assert_mem_eq(call.out, more.out, (size_t)call.n_out * 4);
	attention_case_destroy(&c);
}
END_TEST

/* One key has the weight 1: the result is the nearest bf16 of its values, exactly, on every target. */
START_TEST(one_key_is_rounded)
{
	static const char *const all[] = {"x86-64-v2", "x86-64-v4", "x86-64-v4-bf16", "aarch64"};
	struct attention_config config = configs[0];
	config.rounds = true;
	config.has_len = false;
	config.target = all[_i];
	struct attention_call call;
	struct attention_case c;
	attention_case_init(&c, &config);
	attention_call_init(&c, &call, 1, 3, 1);
	attention_run_checked(&c, &call, 1);
	attention_expect(&c, &call);
	ck_assert(call.out[1] != call.v[1] && fabsf(call.out[1] - call.v[1]) < 0x1p-7F);
	call.v[0] = INFINITY;
	attention_run_checked(&c, &call, 1);
	ck_assert(isinf(call.out[0]) && isfinite(call.out[1]));
	attention_case_destroy(&c);
}
END_TEST

/* Scores are products of rounded numbers: what is less than half a unit away changes no bit. */
START_TEST(queries_and_keys_are_rounded)
{
	struct attention_config config = configs[ROUNDED];
	config.has_len = false;
	config.target = _i > 0 ? "x86-64-v4-bf16" : "x86-64-v4";
	struct attention_call whole, near;
	struct attention_case c;
	attention_case_init(&c, &config);
	attention_call_init(&c, &whole, 1, 9, 21);
	attention_call_init(&c, &near, 1, 9, 21);
	for (int64_t i = 0; i < whole.n_q; i++) {
		whole.q[i] = (float)(i % 11) / 8;
		near.q[i] = whole.q[i] * (1 + 0x1p-10F);
	}
	for (int64_t i = 0; i < whole.n_k; i++) {
		whole.k[i] = (float)(i % 13 - 6) / 16;
		near.k[i] = whole.k[i] * (1 - 0x1p-11F);
	}
	attention_run_checked(&c, &whole, 1);
	attention_run_checked(&c, &near, 1);
	ck_assert_mem_eq(whole.out, near.out, (size_t)whole.n_out * 4);
	attention_case_destroy(&c);
}
END_TEST

Suite *suite_kernel_attention(void)
{
	Suite *s = suite_create("kernel_attention");
	TCase *t = tcase_create("kernel_attention"), *padding = tcase_create("padding");
	int n_targets = (int)TFMC_COUNT(targets), n_configs = (int)TFMC_COUNT(configs);
	tcase_set_timeout(t, 120);
	effort_add_loop(t, equals_the_interpreter, n_configs * n_targets, 9);
	effort_add_loop(t, stays_inside_its_memory, n_configs * n_targets, 9);
	effort_add_loop(t, chunks_have_the_same_bits, 11 * n_targets, 9);
	effort_add_loop(t, divided_blocks_have_the_same_bits, 22, 3);
	tcase_add_loop_test(t, workers_have_the_same_bits, 0, 6 * n_targets);
	effort_add_loop(t, divided_heads_have_the_same_bits, 11 * n_targets, 9);
	tcase_add_loop_test(t, extreme_scales, 0, n_targets);
	tcase_add_loop_test(t, later_tokens_do_not_matter, 0, n_targets);
	tcase_add_loop_test(t, panels_have_the_same_bits, 0, n_targets);
	tcase_add_loop_test(t, lengths_have_the_same_bits, 0, n_targets + 1);
	tcase_add_loop_test(t, extreme_scores, 0, 2 * n_targets);
	tcase_add_loop_test(t, extreme_sinks, 0, n_targets);
	effort_add_loop(t, pairs, 2 * (n_configs - ROUNDED), 3);
	tcase_add_loop_test(t, one_key_is_rounded, 0, 4);
	tcase_add_loop_test(t, queries_and_keys_are_rounded, 0, 2);
	tcase_set_timeout(padding, 240);
	effort_add_loop(padding, padding_is_left_alone, n_configs * n_targets, 7);
	suite_add_tcase(s, padding);
	suite_add_tcase(s, t);
	return s;
}
