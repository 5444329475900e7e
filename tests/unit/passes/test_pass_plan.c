/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packer of plan-memory on random lifetimes: what is alive together lies apart for every value of the
 * dims, and the arena is as small as it can be, or nearly.
 */
#include <check.h>
#include <string.h>

#include "passes/plan/plan.h"
#include "tests/support/random/rng.h"

#define N_MAX 60

struct fixture {
	struct arena arena;
	struct plan_buffer buffers[N_MAX];
	struct plan_lane lanes[2]; /* 1 and B */
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

/* Sizes that are multiples of a line have no padding. */
static bool pack(struct fixture *t)
{
	for (size_t i = 0; i < t->plan.n_buffers; i++)
		t->buffers[i].raw = t->buffers[i].size;
	return plan_pack(&t->arena, t->dims, &t->plan);
}

static int64_t value_of(const struct ir_dim *d, int64_t batch)
{
	int64_t v;
	ck_assert(ir_dim_eval(d, &batch, &v));
	return v;
}

/* Packs, and looks at the places for that B: all inside the arena, apart while alive. Gives the arena. */
static int64_t check_places(const struct fixture *t, int64_t batch)
{
	int64_t arena = value_of(t->plan.arena, batch), peak = 0;
	for (size_t i = 0; i < t->plan.n_buffers; i++) {
		const struct plan_buffer *x = &t->buffers[i];
		int64_t at = value_of(x->at, batch),
		        end = at + x->size * value_of(t->lanes[x->lane].unit, batch);
		ck_assert(at >= 0 && at % PLAN_ALIGN == 0 && end <= arena);
		peak = end > peak ? end : peak;
		for (size_t j = 0; j < i; j++) {
			const struct plan_buffer *y = &t->buffers[j];
			int64_t other = value_of(y->at, batch);
			bool meet = x->first <= y->last && y->first <= x->last;
			ck_assert_msg(!meet || end <= other ||
			                      other + y->size * value_of(t->lanes[y->lane].unit, batch) <= at,
			              "buffers %zu and %zu overlap at B=%lld", i, j, (long long)batch);
		}
	}
	ck_assert_int_ge(peak, value_of(t->plan.lower_bound, batch));
	return arena;
}

START_TEST(test_random)
{
	struct fixture t;
	make(&t, (uint64_t)_i + 1);
	ck_assert(pack(&t));
	for (int64_t batch = 1; batch <= 8; batch++) {
		int64_t bound = value_of(t.plan.lower_bound, batch);
		ck_assert_int_le(check_places(&t, batch), bound + bound / 4);
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
	ck_assert(pack(&t));
	ck_assert_int_eq(check_places(&t, 1), 64 * 7);
	arena_destroy(&t.arena);
}
END_TEST

/* ---- what can be known to be best ---- */

#define SMALL_MAX 7

struct small {
	const struct plan_buffer *buffers;
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

START_TEST(test_small_is_exact)
{
	struct rng rng = rng_seed((uint64_t)_i + 500);
	struct fixture t;
	make(&t, 1);
	struct small small = {
	        .buffers = t.buffers, .n = 2 + (size_t)rng_below(&rng, SMALL_MAX - 1), .best = INT64_MAX};
	size_t order[SMALL_MAX];
	for (size_t i = 0; i < small.n; i++) {
		size_t first = (size_t)rng_below(&rng, 6), last = first + (size_t)rng_below(&rng, 4);
		t.buffers[i] = (struct plan_buffer){.name = "s",
		                                    .size = 64 * (1 + (int64_t)rng_below(&rng, 6)),
		                                    .first = first,
		                                    .last = last};
		order[i] = i;
	}
	t.plan.n_buffers = small.n;
	try_orders(&small, order, 0);
	ck_assert(pack(&t));
	ck_assert_int_eq(check_places(&t, 1), small.best);
	arena_destroy(&t.arena);
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

/* Instances on which one order alone leaves gaps: most meet the bound. */
START_TEST(test_closes_gaps)
{
	size_t met = 0;
	for (uint64_t seed = 0; seed < 60; seed++) {
		struct rng rng = rng_seed(seed + 9000);
		struct fixture t;
		make(&t, 1);
		t.buffers[0] = (struct plan_buffer){.name = "r", .size = 64 * 24, .first = 0, .last = 15};
		t.plan.n_buffers = cut(&rng, t.buffers, 1, 14);
		t.plan.n_times = 16;
		ck_assert(pack(&t));
		ck_assert_int_eq(value_of(t.plan.lower_bound, 1), 64 * 24);
		met += check_places(&t, 1) == 64 * 24;
		arena_destroy(&t.arena);
	}
	ck_assert_uint_ge(met, 57);
}
END_TEST

START_TEST(test_map)
{
	struct fixture t;
	struct buf out;
	make(&t, 1);
	buf_init(&out);
	t.buffers[0] = (struct plan_buffer){.name = "x", .size = 64, .first = 0, .last = 0};
	t.buffers[1] = (struct plan_buffer){.name = "y", .size = 64, .first = 0, .last = 1};
	t.plan.n_buffers = t.plan.n_times = 2;
	t.plan.dims = t.dims;
	ck_assert(pack(&t));
	plan_print_map(&out, &t.plan);
	ck_assert_ptr_nonnull(strstr(out.data, "a %x: 64 x 1 bytes at 0, groups 0 to 0"));
	ck_assert_ptr_nonnull(
	        strstr(out.data, "   0 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"));
	ck_assert_ptr_nonnull(
	        strstr(out.data, "   1 ................................bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"));
	buf_destroy(&out);
	arena_destroy(&t.arena);
}
END_TEST

Suite *suite_pass_plan(void)
{
	Suite *s = suite_create("pass_plan");
	TCase *tc = tcase_create("plan");
	tcase_add_loop_test(tc, test_random, 0, 200);
	tcase_add_test(tc, test_chain_meets_bound);
	tcase_add_test(tc, test_map);
	tcase_add_loop_test(tc, test_small_is_exact, 0, 150);
	tcase_add_test(tc, test_closes_gaps);
	suite_add_tcase(s, tc);
	return s;
}
