/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights take no more than what is stored, each tensor once, and the
 * padding of their layout: nothing that the passes form, merge, peel or
 * specialize is a second copy, nor is a table that is also the matrix of a
 * linear. A linear that had no bias may get one.
 */
#include <check.h>

#include "backends/backend.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/random/random_transformer.h"
#include "tests/support/tir.h"

#define PANEL 16
#define ALIGN 64
#define SEEDS 60

Suite *suite_packed_bytes(void);

static int64_t elements(const struct ir_type *t)
{
	int64_t n = 1, d = 0;
	for (int i = 0; i < t->rank; i++) {
		ck_assert(ir_dim_is_const(t->dims[i], &d));
		n *= d;
	}
	return n;
}

/* Zero rows to whole panels, the alignment, and the bias that a matrix [.., N, K] may get. */
static int64_t padding(const struct ir_weight *w)
{
	int64_t k = 1, n = 1;
	if (w->type->rank < 2 || w->encoding == ENC_ROW)
		return ALIGN;
	ck_assert(ir_dim_is_const(w->type->dims[w->type->rank - 1], &k));
	ck_assert(ir_dim_is_const(w->type->dims[w->type->rank - 2], &n));
	int64_t stacked = elements(w->type) / (n * k), rows = (n + PANEL - 1) / PANEL * PANEL;
	return ALIGN + 4 * stacked * ((rows - n) * k + n) + ALIGN;
}

/* Bytes stored by the module as written. */
static int64_t stored_bytes(const struct ir_module *m)
{
	int64_t sum = 0;
	for (size_t i = 0; i < m->weights.n; i++)
		sum += 4 * elements(m->weights.items[i]->type);
	return sum;
}

START_TEST(no_more_than_stored)
{
	const struct pass_options options = {.target = target_find("x86-64-v3")};
	struct pipeline p;
	struct backend_sizes sizes;
	struct arena arena;
	struct buf text;
	struct tir t;
	struct ir_module *planned = NULL;

	arena_init(&arena);
	buf_init(&text);
	tir_init(&t);
	random_transformer(&text, (uint64_t)_i + 1, true);
	tir_load(&t, text.data);
	ck_assert_int_eq(pipeline_parse(&arena, &t.cx, "O2", &p), TFMC_OK);
	ck_assert_msg(passes_run(&t.cx, &p, &options, t.m, &planned, NULL) == TFMC_OK, "%s", t.log.data);
	ck_assert_int_eq(backend_measure(&t.cx, planned, options.target, &arena, &sizes), TFMC_OK);
	int64_t allowed = stored_bytes(t.m);
	for (size_t i = 0; i < planned->weights.n; i++)
		allowed += padding(planned->weights.items[i]);
	ck_assert_msg((int64_t)sizes.weights <= allowed, "%lld bytes packed, %lld allowed\n%s",
	              (long long)sizes.weights, (long long)allowed, tir_text(&arena, &t.cx, planned));
	ir_module_destroy(planned);
	tir_destroy(&t);
	buf_destroy(&text);
	arena_destroy(&arena);
}
END_TEST

Suite *suite_packed_bytes(void)
{
	Suite *s = suite_create("packed_bytes");
	TCase *t = tcase_create("bytes");
	tcase_add_loop_test(t, no_more_than_stored, 0, SEEDS);
	suite_add_tcase(s, t);
	return s;
}
