/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over rings: the bits of attention over keys and values of all
 * positions, from the first token to several rounds later.
 */
#include <check.h>

#include "ir/support/compiler.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/effort.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "opencl-gpu"};

static const struct attention_config rings[] = {
        {.heads = 4,
         .key_heads = 2,
         .size = 16,
         .value_size = 16,
         .panel_keys = true,
         .window = 21,
         .ring = 64,
         .bc = 16},
        {.heads = 4,
         .key_heads = 2,
         .size = 12,
         .value_size = 32,
         .panel_keys = true,
         .window = 30,
         .ring = 48,
         .bc = 32,
         .split = 10},
        {.heads = 3,
         .key_heads = 1,
         .size = 20,
         .value_size = 7,
         .panel_keys = true,
         .window = 5,
         .ring = 16,
         .bc = 48},
        {.heads = 2, .key_heads = 2, .size = 9, .value_size = 16, .window = 33, .ring = 80, .bc = 32},
        {.heads = 2,
         .key_heads = 1,
         .size = 24,
         .value_size = 20,
         .is_bf16 = true,
         .window = 16,
         .ring = 32,
         .bc = 16},
        {.heads = 4,
         .key_heads = 2,
         .size = 12,
         .value_size = 32,
         .kv = DT_F16,
         .panel_keys = true,
         .window = 21,
         .ring = 48,
         .bc = 32,
         .split = 10},
        {.heads = 3,
         .key_heads = 1,
         .size = 20,
         .value_size = 16,
         .kv = DT_BF16,
         .panel_keys = true,
         .window = 30,
         .ring = 48,
         .bc = 16},
        {.heads = 2,
         .key_heads = 2,
         .size = 9,
         .value_size = 7,
         .kv = DT_F16,
         .window = 33,
         .ring = 80,
         .bc = 32},
        {.heads = 4,
         .key_heads = 2,
         .size = 12,
         .value_size = 32,
         .kv = DT_I8,
         .panel_keys = true,
         .window = 21,
         .ring = 48,
         .bc = 32,
         .split = 10},
        {.heads = 2,
         .key_heads = 2,
         .size = 9,
         .value_size = 7,
         .kv = DT_I8,
         .window = 33,
         .ring = 80,
         .bc = 32},
};

/* Keys and values of a ring are read where they lie, and where the ring begins again: the same bits. */
START_TEST(rings_have_the_same_bits)
{
	struct attention_config config = rings[_i / (int)TFMC_COUNT(targets)];
	struct attention_case whole, ring;
	config.target = targets[_i % (int)TFMC_COUNT(targets)];
	config.is_causal = config.has_past = true;
	config.scale = 0.3;
	attention_case_init(&ring, &config);
	int64_t most = config.ring - config.window + 1;
	config.ring = 0;
	attention_case_init(&whole, &config);
	for (int32_t past = 0; past < 140; past += past % 3 == 0 ? 7 : 12) {
		int64_t s = past % 2 || config.split > 0 ? 1 : 1 + past % most;
		struct attention_call a, b;
		attention_call_init(&whole, &a, 2, s, 200);
		attention_call_init(&ring, &b, 2, s, 200);
		a.past[0] = b.past[0] = past;
		a.past[1] = b.past[1] = past / 2;
		attention_run(&whole, &a, 1);
		attention_run(&ring, &b, 1 + past % 3);
		ck_assert_mem_eq(a.out, b.out, (size_t)a.n_out * 4);
		if (past % 4 == 0)
			attention_run_checked(&ring, &b, 3);
		attention_expect(&ring, &b);
	}
	attention_case_destroy(&whole);
	attention_case_destroy(&ring);
}
END_TEST

Suite *suite_kernel_rings(void)
{
	Suite *s = suite_create("kernel_rings");
	TCase *t = tcase_create("kernel_rings");
	tcase_set_timeout(t, 120);
	effort_add_loop(t, rings_have_the_same_bits, (int)(TFMC_COUNT(rings) * TFMC_COUNT(targets)), 3);
	suite_add_tcase(s, t);
	return s;
}
