/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packer of plan-memory on random lifetimes: no overlap, never below the
 * lower bound, and the check finds overlaps that are put there.
 */
#include <check.h>
#include <string.h>

#include "passes/plan/plan.h"
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

/* ---- branch and bound ---- */

#define SMALL_MAX 7

struct small {
	struct plan_buffer buffers[SMALL_MAX];
	size_t n;
	int64_t best; /* of all orders */
};

/* The peak of placing every buffer as low as it goes on those before it. */
static int64_t drop(const struct small *t, const size_t *order, int64_t *offset)
{
	int64_t peak = 0;
	for (size_t i = 0; i < t->n; i++) {
		const struct plan_buffer *x = &t->buffers[order[i]];
		int64_t at = 0;
		bool moved = true;
		while (moved) {
			moved = false;
			for (size_t k = 0; k < i; k++) {
				const struct plan_buffer *y = &t->buffers[order[k]];
				bool meet = x->first <= y->last && y->first <= x->last;
				if (meet && at < offset[order[k]] + y->size &&
				    offset[order[k]] < at + x->size) {
					at = offset[order[k]] + y->size;
					moved = true;
				}
			}
		}
		offset[order[i]] = at;
		peak = at + x->size > peak ? at + x->size : peak;
	}
	return peak;
}

/* Every order of placement at the lowest free place: one of them is optimal. */
static void try_orders(struct small *t, size_t *order, size_t depth)
{
	int64_t offset[SMALL_MAX];
	if (depth == t->n) {
		int64_t peak = drop(t, order, offset);
		t->best = peak < t->best ? peak : t->best;
		return;
	}
	for (size_t i = depth; i < t->n; i++) {
		size_t x = order[depth];
		order[depth] = order[i];
		order[i] = x;
		try_orders(t, order, depth + 1);
		order[i] = order[depth];
		order[depth] = x;
	}
}

static int64_t sum_at_most(const struct plan_buffer *b, size_t n, size_t n_times)
{
	int64_t most = 0;
	for (size_t t = 0; t < n_times; t++) {
		int64_t sum = 0;
		for (size_t i = 0; i < n; i++)
			sum += b[i].first <= t && t <= b[i].last ? b[i].size : 0;
		most = sum > most ? sum : most;
	}
	return most;
}

static int64_t peak_of(struct arena *a, struct plan_buffer *b, size_t n, size_t n_times)
{
	struct plan_block block = {.peak = INT64_MAX};
	struct plan_lane lane = {0};
	struct plan_func plan = {.buffers = b,
	                         .n_buffers = n,
	                         .blocks = &block,
	                         .n_blocks = 1,
	                         .lanes = &lane,
	                         .n_lanes = 1,
	                         .n_times = n_times};
	int64_t peak = 0;
	const char *wrong = plan_check(a, &plan);
	ck_assert_msg(wrong == NULL, "%s", wrong);
	for (size_t i = 0; i < n; i++)
		peak = b[i].offset + b[i].size > peak ? b[i].offset + b[i].size : peak;
	return peak;
}

START_TEST(test_search_is_exact)
{
	struct rng rng = rng_seed((uint64_t)_i + 500);
	struct small t = {.n = 2 + (size_t)rng_below(&rng, SMALL_MAX - 1), .best = INT64_MAX};
	struct plan_buffer *list[SMALL_MAX];
	size_t order[SMALL_MAX];
	struct arena arena;
	int64_t at = 0;
	arena_init(&arena);
	for (size_t i = 0; i < t.n; i++) {
		size_t first = (size_t)rng_below(&rng, 6), last = first + (size_t)rng_below(&rng, 4);
		t.buffers[i] = (struct plan_buffer){.name = "s",
		                                    .size = 64 * (1 + (int64_t)rng_below(&rng, 6)),
		                                    .first = first,
		                                    .last = last,
		                                    .offset = at};
		at += t.buffers[i].size;
		list[i] = &t.buffers[i];
		order[i] = i;
	}
	try_orders(&t, order, 0);
	ck_assert(plan_search(&arena, list, t.n, 10, at, sum_at_most(t.buffers, t.n, 10)));
	ck_assert_int_eq(peak_of(&arena, t.buffers, t.n, 10), t.best);
	arena_destroy(&arena);
}
END_TEST

/* Cuts a rectangle of time and bytes into buffers: the bound is its height and can be met. */
static size_t cut(struct rng *rng, struct plan_buffer *b, size_t n, size_t max)
{
	while (n < max) {
		size_t i = (size_t)rng_below(rng, (int64_t)n);
		struct plan_buffer *x = &b[i];
		bool in_time = rng_below(rng, 2) == 0;
		if (in_time && x->last > x->first) {
			b[n] = *x;
			x->last = x->first + (size_t)rng_below(rng, (int64_t)(x->last - x->first));
			b[n++].first = x->last + 1;
		} else if (!in_time && x->size > 64) {
			int64_t low = 64 * (1 + rng_below(rng, x->size / 64 - 1));
			b[n] = *x;
			b[n++].size = x->size - low;
			x->size = low;
		}
	}
	return n;
}

/* Instances on which greedy orders leave gaps: most meet the bound after the search, and it says which. */
START_TEST(test_search_closes_gaps)
{
	size_t met = 0, honest = 0;
	for (uint64_t seed = 0; seed < 60; seed++) {
		struct rng rng = rng_seed(seed + 9000);
		struct fixture t;
		make(&t, 1);
		t.buffers[0] = (struct plan_buffer){.name = "r", .size = 64 * 24, .first = 0, .last = 15};
		t.plan.n_buffers = cut(&rng, t.buffers, 1, 14);
		t.plan.n_times = 16;
		t.plan.n_lanes = 1;
		ck_assert(plan_pack(&t.arena, &t.arena, t.dims, &t.plan));
		ck_assert_int_eq(t.lanes[0].lower_bound, 64 * 24);
		const char *wrong = plan_check(&t.arena, &t.plan);
		ck_assert_msg(wrong == NULL, "%s", wrong);
		met += t.lanes[0].peak == t.lanes[0].lower_bound;
		honest += t.lanes[0].proved == (t.lanes[0].peak == t.lanes[0].lower_bound);
		arena_destroy(&t.arena);
	}
	ck_assert_uint_ge(met, 57);
	ck_assert_uint_eq(honest, 60);
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
	tcase_add_loop_test(tc, test_search_is_exact, 0, 150);
	tcase_add_test(tc, test_search_closes_gaps);
	suite_add_tcase(s, tc);
	return s;
}
