/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work-groups in the kernel builder: what the verifier refuses, and that the
 * kernel interpreter runs items from barrier to barrier and finds races, reads of
 * unwritten shared memory, and barriers that some items miss.
 */
#include <check.h>
#include <string.h>

#include "tests/kb_interp/interp.h"
#include "backends/kb/kernel_ir.h"
#include "ir/support/compiler.h"

#define ITEMS        8
#define GROUPS       3
#define SHARED_BYTES 512

struct fixture {
	struct arena arena;
	struct buf log;
	struct diag_context cx;
	struct kb_module *m;
	int32_t out[ITEMS * GROUPS];
	struct kb_range range;
};

/* Use of a kernel's parameters: out, and this item in its group. */
typedef void body_fn(struct kb *k, struct kb_val out, struct kb_val item);

static void setup(struct fixture *t, body_fn *body)
{
	const struct kb_caps caps = {
	        .lanes = 4, .registers = 64, .has_fma = true, .shared_bytes = SHARED_BYTES};
	*t = (struct fixture){.m = NULL};
	arena_init(&t->arena);
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
	t->m = kb_module_create(&t->arena, &caps);
	struct kb *k = kb_begin(t->m, "f", KB_KERNEL, KB_VOID);
	struct kb_val out = kb_param(k, "out", KB_PTR_T, 0);
	kb_group_size(k, ITEMS);
	body(k, out, kb_item_id(k));
	kb_end(k);
}

static void teardown(struct fixture *t)
{
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
	arena_destroy(&t->arena);
}

static bool launch(struct fixture *t, int64_t groups, struct kb_interp *in)
{
	const union kb_cell args[] = {{.p = t->out}};
	t->range = (struct kb_range){t->out, sizeof t->out, true};
	*in = (struct kb_interp){.module = t->m, .ranges = &t->range, .n_ranges = 1};
	return kb_interp_launch(in, "f", args, 1, groups);
}

static struct kb_val number(struct kb *k, struct kb_val i)
{
	return kb_cvt(k, i, KB_I32);
}

/* ---- what works ---- */

/* Each item writes, all wait, each reads its mirror: twice, so that the array is used again. */
static void mirror(struct kb *k, struct kb_val out, struct kb_val item)
{
	struct kb_val shared = kb_shared(k, "numbers", KB_I32, ITEMS), last = kb_index(k, ITEMS - 1);
	struct kb_val group = kb_mul(k, kb_group_id(k), kb_index(k, ITEMS));
	struct kb_val at = kb_add(k, group, item), other = kb_sub(k, last, item);
	struct kb_val turn = kb_loop(k, "turn", kb_index(k, 0), kb_index(k, 2), 1, 0);
	kb_store(k, number(k, kb_add(k, at, turn)), shared, item, 0, 0);
	kb_barrier(k);
	kb_store(k, kb_load(k, KB_I32_T, shared, other, 0, 0), out, at, 0, 0);
	kb_barrier(k);
	kb_end_loop(k);
}

START_TEST(items_exchange)
{
	struct fixture t;
	struct kb_interp in;
	setup(&t, mirror);
	ck_assert_msg(kb_verify(t.m, &t.cx) == TFMC_OK, "%s", t.log.data);
	ck_assert_msg(launch(&t, GROUPS, &in), "%s", in.error);
	for (int i = 0; i < ITEMS * GROUPS; i++)
		ck_assert_int_eq(t.out[i], i / ITEMS * ITEMS + (ITEMS - 1 - i % ITEMS) + 1);
	teardown(&t);
}
END_TEST

static void mirror_again(struct kb *k, struct kb_val out, struct kb_val item)
{
	mirror(k, out, item);
	kb_reuse_shared(k);
	mirror(k, out, item);
	kb_shared(k, "more", KB_I32, ITEMS);
	kb_shared(k, "most", KB_I32, 2 * ITEMS);
	kb_reuse_shared(k);
	kb_shared(k, "longer", KB_I32, 3 * ITEMS);
}

/* Arrays lie where those from before did, which are as long as the longest one there. */
START_TEST(arrays_are_used_again)
{
	struct fixture t;
	struct kb_interp in;
	int64_t counts[3] = {0};
	size_t n = 0;
	setup(&t, mirror_again);
	ck_assert_msg(kb_verify(t.m, &t.cx) == TFMC_OK, "%s", t.log.data);
	ck_assert_msg(launch(&t, GROUPS, &in), "%s", in.error);
	for (int i = 0; i < ITEMS * GROUPS; i++)
		ck_assert_int_eq(t.out[i], i / ITEMS * ITEMS + (ITEMS - 1 - i % ITEMS) + 1);
	const struct kb_func *f = kb_func_at(t.m, 0);
	for (size_t i = 0; i < f->n_insts; i++)
		if (f->insts[i].op == KBO_SHARED && n < 3)
			counts[n++] = f->insts[i].imm;
	ck_assert_uint_eq(n, 3);
	ck_assert_int_eq(counts[0], 3 * ITEMS);
	ck_assert_int_eq(counts[1], ITEMS);
	ck_assert_int_eq(counts[2], 2 * ITEMS);
	teardown(&t);
}
END_TEST

/* No barrier: items may leave early, and at different places. */
static void leave_early(struct kb *k, struct kb_val out, struct kb_val item)
{
	struct kb_val at = kb_add(k, kb_mul(k, kb_group_id(k), kb_index(k, ITEMS)), item);
	kb_if(k, kb_cmp(k, KB_GE, at, kb_index(k, 10)));
	kb_return(k, (struct kb_val){0});
	kb_end_if(k);
	kb_store(k, number(k, kb_group_count(k)), out, at, 0, 0);
}

START_TEST(items_leave)
{
	struct fixture t;
	struct kb_interp in;
	setup(&t, leave_early);
	ck_assert_msg(kb_verify(t.m, &t.cx) == TFMC_OK, "%s", t.log.data);
	ck_assert_msg(launch(&t, GROUPS, &in), "%s", in.error);
	for (int i = 0; i < ITEMS * GROUPS; i++)
		ck_assert_int_eq(t.out[i], i < 10 ? GROUPS : 0);
	teardown(&t);
}
END_TEST

/* ---- what fails ---- */

static void all_write_one(struct kb *k, struct kb_val out, struct kb_val item)
{
	kb_store(k, number(k, item), out, kb_index(k, 0), 0, 0);
}

static void reads_without_barrier(struct kb *k, struct kb_val out, struct kb_val item)
{
	struct kb_val shared = kb_shared(k, "numbers", KB_I32, ITEMS);
	kb_store(k, number(k, item), shared, item, 0, 0);
	struct kb_val first = kb_load(k, KB_I32_T, shared, kb_index(k, 0), 0, 0);
	kb_store(k, first, out, item, 0, 0);
}

/* Item 0 overwrites what the others have read since the last barrier. */
static void writes_behind_readers(struct kb *k, struct kb_val out, struct kb_val item)
{
	struct kb_val shared = kb_shared(k, "numbers", KB_I32, ITEMS);
	(void)out;
	kb_store(k, number(k, item), shared, item, 0, 0);
	kb_barrier(k);
	kb_load(k, KB_I32_T, shared, kb_index(k, ITEMS - 1), 0, 0);
	kb_if(k, kb_cmp(k, KB_EQ, item, kb_index(k, ITEMS - 1)));
	kb_store(k, number(k, item), shared, item, 0, 0);
	kb_end_if(k);
}

static void groups_share(struct kb *k, struct kb_val out, struct kb_val item)
{
	kb_if(k, kb_cmp(k, KB_EQ, item, kb_index(k, 0)));
	kb_store(k, number(k, item), out, kb_index(k, 3), 0, 0);
	kb_end_if(k);
}

static void reads_unwritten(struct kb *k, struct kb_val out, struct kb_val item)
{
	struct kb_val shared = kb_shared(k, "numbers", KB_I32, ITEMS + 1);
	(void)out;
	kb_store(k, number(k, item), shared, item, 0, 0);
	kb_barrier(k);
	kb_load(k, KB_I32_T, shared, item, 1, 0);
}

static void some_wait(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out;
	kb_if(k, kb_cmp(k, KB_LT, item, kb_index(k, 3)));
	kb_barrier(k);
	kb_end_if(k);
}

static void wait_at_two(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out;
	kb_if(k, kb_cmp(k, KB_LT, item, kb_index(k, 3)));
	kb_barrier(k);
	kb_else(k);
	kb_barrier(k);
	kb_end_if(k);
}

/* The same number of barriers for all, but in other turns. */
static void wait_in_other_turns(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out;
	struct kb_val two = kb_index(k, 2);
	struct kb_val turn = kb_loop(k, "turn", kb_index(k, 0), two, 1, 0);
	kb_if(k, kb_cmp(k, KB_EQ, turn, kb_bin(k, KB_REM, item, two)));
	kb_barrier(k);
	kb_end_if(k);
	kb_end_loop(k);
}

static void outside_of_shared(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out;
	kb_store(k, number(k, item), kb_shared(k, "numbers", KB_I32, ITEMS), item, 1, 0);
}

static const struct failure {
	body_fn *body;
	int64_t groups;
	const char *says;
} failures[] = {
        {all_write_one, 1, "a race"},
        {reads_without_barrier, 1, "a race"},
        {writes_behind_readers, 1, "a race"},
        {groups_share, 2, "a race"},
        {reads_unwritten, 1, "nobody has written"},
        {some_wait, 1, "part before a barrier"},
        {wait_at_two, 1, "part before a barrier"},
        {wait_in_other_turns, 1, "part before a barrier"},
        {outside_of_shared, 1, "outside of its memory"},
};

START_TEST(wrong_groups_fail)
{
	struct fixture t;
	struct kb_interp in;
	setup(&t, failures[_i].body);
	ck_assert_msg(kb_verify(t.m, &t.cx) == TFMC_OK, "%s", t.log.data);
	ck_assert(!launch(&t, failures[_i].groups, &in));
	ck_assert_msg(strstr(in.error, failures[_i].says) != NULL, "%s", in.error);
	teardown(&t);
}
END_TEST

/* One item or one group less, and the same is right. */
START_TEST(one_group_races_with_none)
{
	struct fixture t;
	struct kb_interp in;
	setup(&t, groups_share);
	ck_assert_msg(launch(&t, 1, &in), "%s", in.error);
	teardown(&t);
}
END_TEST

/* ---- what the verifier refuses ---- */

static void returns_before_barrier(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out;
	kb_if(k, kb_cmp(k, KB_LT, item, kb_index(k, 3)));
	kb_return(k, (struct kb_val){0});
	kb_end_if(k);
	kb_barrier(k);
}

static void shares_too_much(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out, (void)item;
	kb_shared(k, "a", KB_F32, SHARED_BYTES / 8);
	kb_shared(k, "b", KB_F32, SHARED_BYTES / 8 + 1);
}

static void shares_all(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out, (void)item;
	kb_shared(k, "a", KB_F32, SHARED_BYTES / 8);
	kb_shared(k, "b", KB_F32, SHARED_BYTES / 8);
}

static void shares_in_a_loop(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out;
	kb_loop(k, "i", item, item, 1, 0);
	kb_shared(k, "a", KB_F32, 4);
	kb_end_loop(k);
}

static void calls_itself(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)item;
	kb_call(k, "f", KB_VOID, &out, 1);
}

/* Memory that is used again has the same limits as a new array. */
static void reuses_for_nothing(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out, (void)item;
	kb_shared(k, "a", KB_F32, 4);
	kb_reuse_shared(k);
	kb_shared(k, "b", KB_F32, 0);
}

static void reuses_in_a_loop(struct kb *k, struct kb_val out, struct kb_val item)
{
	(void)out;
	kb_shared(k, "a", KB_F32, 4);
	kb_reuse_shared(k);
	kb_loop(k, "i", item, item, 1, 0);
	kb_shared(k, "b", KB_F32, 4);
	kb_end_loop(k);
}

static body_fn *const refused[] = {returns_before_barrier, shares_too_much,    shares_in_a_loop,
                                   calls_itself,           reuses_for_nothing, reuses_in_a_loop};

START_TEST(verifier_refuses)
{
	struct fixture t;
	setup(&t, refused[_i]);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_INTERNAL);
	teardown(&t);
}
END_TEST

START_TEST(all_of_the_memory_may_be_shared)
{
	struct fixture t;
	setup(&t, shares_all);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	teardown(&t);
}
END_TEST

START_TEST(functions_have_no_groups)
{
	struct fixture t;
	setup(&t, leave_early);
	struct kb *k = kb_begin(t.m, "g", KB_INTERNAL, KB_VOID);
	kb_barrier(k);
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_INTERNAL);
	teardown(&t);
}
END_TEST

Suite *suite_kb_group(void);

Suite *suite_kb_group(void)
{
	Suite *s = suite_create("kb_group");
	TCase *t = tcase_create("all");
	tcase_add_test(t, items_exchange);
	tcase_add_test(t, arrays_are_used_again);
	tcase_add_test(t, items_leave);
	tcase_add_loop_test(t, wrong_groups_fail, 0, (int)TFMC_COUNT(failures));
	tcase_add_test(t, one_group_races_with_none);
	tcase_add_loop_test(t, verifier_refuses, 0, (int)TFMC_COUNT(refused));
	tcase_add_test(t, all_of_the_memory_may_be_shared);
	tcase_add_test(t, functions_have_no_groups);
	suite_add_tcase(s, t);
	return s;
}
