/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packer of plan-memory on random lifetimes: no overlap, never below the
 * lower bound, and the check finds overlaps that are put there.
 */
#include <check.h>
#include <string.h>

#include "passes/plan.h"
#include "tests/support/rng.h"

#define N_MAX 60

struct fixture {
	struct arena arena;
	struct plan_buffer buffers[N_MAX];
	struct plan_lane lanes[2];
	struct plan_block block;
	struct plan_func plan;
	struct ir_dims *dims;
};

static void make(struct fixture *t, uint64_t seed)
{
	struct rng rng = rng_seed(seed);
	arena_init(&t->arena);
	memset(&t->plan, 0, sizeof(t->plan));
	memset(t->lanes, 0, sizeof(t->lanes));
	t->plan.n_buffers = 1 + (size_t)rng_below(&rng, N_MAX);
	t->plan.n_times = 40;
	for (size_t i = 0; i < t->plan.n_buffers; i++) {
		size_t first = (size_t)rng_below(&rng, 40), last = first + (size_t)rng_below(&rng, 10);
		t->buffers[i] = (struct plan_buffer){.name = "x",
		                                     .lane = (size_t)rng_below(&rng, 2),
		                                     .size = 64 * (1 + (int64_t)rng_below(&rng, 9)),
		                                     .first = first,
		                                     .last = last < 40 ? last : 39};
	}
	t->plan.buffers = t->buffers;
	t->plan.lanes = t->lanes;
	t->plan.n_lanes = 2;
	t->dims = ir_dims_create(&t->arena);
	ck_assert(ir_dims_declare(t->dims, "B", 1, 8));
	t->lanes[0].unit = ir_dim_const(t->dims, 1);
	t->lanes[1].unit = ir_dim_sym(t->dims, "B");
}

START_TEST(test_random)
{
	struct fixture t;
	make(&t, (uint64_t)_i + 1);
	ck_assert(plan_pack(&t.arena, &t.arena, t.dims, &t.plan));
	const char *wrong = plan_check(&t.arena, &t.plan);
	ck_assert_msg(wrong == NULL, "%s", wrong);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_ge(t.lanes[i].peak, t.lanes[i].lower_bound);
		ck_assert_int_le(t.lanes[i].peak, t.lanes[i].lower_bound * 5 / 4);
	}
	arena_destroy(&t.arena);
}
END_TEST

START_TEST(test_chain_meets_bound)
{
	struct fixture t;
	make(&t, 1);
	t.plan.n_buffers = 30;
	for (size_t i = 0; i < 30; i++)
		t.buffers[i] = (struct plan_buffer){
		        .name = "c", .size = 64 * (1 + (int64_t)(i % 4)), .first = i, .last = i + 1};
	ck_assert(plan_pack(&t.arena, &t.arena, t.dims, &t.plan));
	ck_assert_int_eq(t.lanes[0].peak, t.lanes[0].lower_bound);
	ck_assert_int_eq(t.lanes[0].peak, 64 * 7);
	arena_destroy(&t.arena);
}
END_TEST

START_TEST(test_finds_overlap)
{
	struct fixture t;
	make(&t, 1);
	t.plan.n_buffers = 2;
	t.buffers[0] = (struct plan_buffer){.name = "a", .size = 128, .first = 0, .last = 3};
	t.buffers[1] = (struct plan_buffer){.name = "b", .size = 64, .offset = 64, .first = 3, .last = 4};
	t.block = (struct plan_block){.peak = 128};
	t.plan.blocks = &t.block;
	t.plan.n_blocks = 1;
	ck_assert_str_eq(plan_check(&t.arena, &t.plan), "buffers 0 (a) and 1 (b) overlap");
	t.buffers[1].first = 4;
	ck_assert_ptr_null(plan_check(&t.arena, &t.plan));
	t.buffers[1].offset = 128;
	ck_assert_ptr_nonnull(plan_check(&t.arena, &t.plan));
	arena_destroy(&t.arena);
}
END_TEST

START_TEST(test_map)
{
	struct arena arena;
	struct buf out;
	struct plan_buffer buffers[2] = {{.name = "x", .size = 64, .first = 0, .last = 0},
	                                 {.name = "y", .size = 64, .offset = 64, .first = 0, .last = 1}};
	struct plan_lane lane = {.peak = 128, .lower_bound = 128};
	struct plan_func plan = {
	        .name = "f", .lanes = &lane, .n_lanes = 1, .buffers = buffers, .n_buffers = 2, .n_times = 2};
	arena_init(&arena);
	buf_init(&out);
	struct ir_dims *dims = ir_dims_create(&arena);
	plan.dims = dims;
	lane.unit = ir_dim_const(dims, 1);
	plan_print_map(&out, &plan);
	ck_assert_ptr_nonnull(strstr(out.data, "a %x: 64 at 0, groups 0 to 0"));
	ck_assert_ptr_nonnull(
	        strstr(out.data, "   0 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"));
	ck_assert_ptr_nonnull(
	        strstr(out.data, "   1 ................................bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"));
	buf_destroy(&out);
	arena_destroy(&arena);
}
END_TEST

Suite *suite_pass_plan(void)
{
	Suite *s = suite_create("pass_plan");
	TCase *tc = tcase_create("plan");
	tcase_add_loop_test(tc, test_random, 0, 200);
	tcase_add_test(tc, test_chain_meets_bound);
	tcase_add_test(tc, test_finds_overlap);
	tcase_add_test(tc, test_map);
	suite_add_tcase(s, tc);
	return s;
}
