/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix tiles of the builder in the kernel interpreter: products of matrices of any shape, the order of the sums of
 * bf16, the errors of a processor; and that printers without tiles refuse them.
 */
#include <check.h>
#include <string.h>

#include "backends/object/llvm.h"
#include "backends/print/cfamily.h"
#include "ir/support/compiler.h"
#include "tests/kb_interp/interp.h"

enum { M = 5, N = 7, K = 3 }; /* rows of x, columns, words along K */

struct matrices {
	uint8_t config[KB_TILE_CONFIG];
	uint8_t a[K][4 * N], b[M][4 * K + 4]; /* rows of b are apart */
	int32_t sum[M][N];
};

struct fixture {
	struct arena arena;
	struct buf log;
	struct diag_context cx;
	struct kb_module *m;
	struct matrices x;
};

static void setup(struct fixture *t)
{
	const struct kb_caps caps = {.lanes = 16, .registers = 32, .has_fma = true};
	*t = (struct fixture){0};
	arena_init(&t->arena);
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
	t->m = kb_module_create(&t->arena, &caps);
	kb_tile_shape(t->x.config, 0, M, 4 * N);
	kb_tile_shape(t->x.config, 1, K, 4 * N);
	kb_tile_shape(t->x.config, 2, M, 4 * K);
}

static void teardown(struct fixture *t)
{
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
	arena_destroy(&t->arena);
}

/* config, then sum = sum + a . b */
static void record(struct fixture *t, enum kb_dot dot)
{
	struct kb *k = kb_begin(t->m, "multiply", KB_EXPORTED, KB_VOID);
	struct kb_val p = kb_param(k, "x", KB_PTR_T, 0), zero = kb_index(k, 0);
	struct kb_val a = kb_ptr_add(k, p, zero, offsetof(struct matrices, a));
	struct kb_val b = kb_ptr_add(k, p, zero, offsetof(struct matrices, b));
	struct kb_val sum = kb_ptr_add(k, p, zero, offsetof(struct matrices, sum));
	kb_tile_config(k, p);
	kb_tile_load(k, 0, sum, kb_index(k, 4 * N));
	kb_tile_load(k, 1, a, kb_index(k, 4 * N));
	kb_tile_load(k, 2, b, kb_index(k, 4 * K + 4));
	kb_tile_dot(k, dot, 0, 1, 2);
	kb_tile_store(k, 0, sum, kb_index(k, 4 * N));
	kb_tile_release(k);
	kb_end(k);
	ck_assert_msg(kb_verify(t->m, &t->cx) == TFMC_OK, "%s", t->log.data);
}

static bool run(struct fixture *t, struct kb_interp *interp)
{
	static struct kb_range range;
	range = (struct kb_range){&t->x, sizeof(t->x), true};
	*interp = (struct kb_interp){.module = t->m, .ranges = &range, .n_ranges = 1};
	union kb_cell arg = {.p = &t->x};
	return kb_interp_call(interp, "multiply", &arg, 1, NULL);
}

static void fill(struct matrices *x)
{
	uint32_t r = 12345;
	for (size_t i = 0; i < sizeof(x->a); i++)
		(&x->a[0][0])[i] = (uint8_t)((r = r * 1103515245u + 12345u) >> 16);
	for (size_t i = 0; i < sizeof(x->b); i++)
		(&x->b[0][0])[i] = (uint8_t)((r = r * 1103515245u + 12345u) >> 16);
	for (int i = 0; i < M * N; i++)
		(&x->sum[0][0])[i] = i * 1000 - 17;
}

START_TEST(multiplies_bytes)
{
	struct fixture t;
	struct kb_interp interp;
	setup(&t);
	fill(&t.x);
	struct matrices before = t.x;
	bool is_signed = _i != 0;
	record(&t, is_signed ? KB_DOT_S8S8 : KB_DOT_U8S8);
	ck_assert_msg(run(&t, &interp), "%s", interp.error);
	for (int m = 0; m < M; m++)
		for (int n = 0; n < N; n++) {
			int32_t wanted = before.sum[m][n];
			for (int k = 0; k < 4 * K; k++) {
				uint8_t a = before.a[k / 4][4 * n + k % 4];
				wanted += (is_signed ? (int8_t)a : (int)a) * (int8_t)before.b[m][k];
			}
			ck_assert_int_eq(t.x.sum[m][n], wanted);
		}
	ck_assert_mem_eq(&t.x, &before, offsetof(struct matrices, sum));
	teardown(&t);
}
END_TEST

/* 2^24, then 1 three times: the sums of even and odd places are 2^24 (the 1 is lost) and 2. */
START_TEST(bf16_sums_pairs_apart)
{
	static const uint16_t values[] = {0x4b80, 0x3f80, 0x3f80, 0x3f80}, one = 0x3f80;
	struct fixture t;
	struct kb_interp interp;
	float sum;
	setup(&t);
	for (size_t k = 0; k < TFMC_COUNT(values); k++) {
		memcpy(&t.x.a[k / 2][2 * (k % 2)], &values[k], 2);
		memcpy(&t.x.b[0][2 * k], &one, 2);
	}
	record(&t, KB_DOT_BF16);
	ck_assert_msg(run(&t, &interp), "%s", interp.error);
	memcpy(&sum, &t.x.sum[0][0], 4);
	ck_assert_float_eq(sum, 0x1p24f + 2);
	teardown(&t);
}
END_TEST

static void check_fails(struct fixture *t, const char *message)
{
	struct kb_interp interp;
	ck_assert(!run(t, &interp));
	ck_assert_msg(strstr(interp.error, message), "%s", interp.error);
	teardown(t);
}

static const enum kb_dot dots[] = {
#define KB_DOT(op, name) KB_##op,
#include "backends/kb/kb_ops.def"
};

/* Every other dot product is rejected: the processor has no instruction for its tiles. */
START_TEST(other_dots_are_refused)
{
	struct fixture t;
	setup(&t);
	struct kb *k = kb_begin(t.m, "multiply", KB_EXPORTED, KB_VOID);
	kb_tile_dot(k, dots[_i], 0, 1, 2);
	kb_end(k);
	bool has = dots[_i] == KB_DOT_U8S8 || dots[_i] == KB_DOT_S8S8 || dots[_i] == KB_DOT_BF16;
	ck_assert_int_eq(kb_verify(t.m, &t.cx), has ? TFMC_OK : TFMC_INTERNAL);
	ck_assert(has || strstr(t.log.data, "a dot product that tiles do not have"));
	teardown(&t);
}
END_TEST

START_TEST(the_processor_would_fail)
{
	struct fixture t;
	setup(&t);
	record(&t, KB_DOT_U8S8);
	kb_tile_shape(t.x.config, 1, K + 1, 4 * N);
	check_fails(&t, "do not fit");
	setup(&t);
	record(&t, KB_DOT_U8S8);
	t.x.config[48] = 17;
	check_fails(&t, "no shapes");
	setup(&t);
	record(&t, KB_DOT_U8S8);
	kb_tile_shape(t.x.config, 2, 0, 0);
	check_fails(&t, "without a shape");
	setup(&t);
	record(&t, KB_DOT_U8S8);
	kb_tile_shape(t.x.config, 0, 16, 64);
	check_fails(&t, "outside of its memory");
}
END_TEST

START_TEST(printers_refuse_tiles)
{
	struct fixture t;
	struct buf text;
	struct cfamily_options c = {.dialect = CFAMILY_C, .index_bits = 64};
	struct llvm_options machine = {.target = target_find("x86-64-v4"), .opt_level = 2};
	struct llvm_output out = {.text = &text};
	setup(&t);
	buf_init(&text);
	record(&t, KB_DOT_U8S8);
	ck_assert_int_eq(cfamily_print(&t.cx, t.m, &c, &text), TFMC_INVALID);
	ck_assert_msg(strstr(t.log.data, "matrix tiles in C"), "%s", t.log.data);
	ck_assert_int_ne(llvm_compile(&t.cx, t.m, "m", &machine, &out), TFMC_OK);
	ck_assert_msg(strstr(t.log.data, "tiles that the machine does not have"), "%s", t.log.data);
	buf_destroy(&text);
	teardown(&t);
}
END_TEST

START_TEST(dump_tells_tiles)
{
	struct fixture t;
	struct buf text;
	setup(&t);
	buf_init(&text);
	record(&t, KB_DOT_BF16);
	kb_dump(&text, t.m, "multiply");
	ck_assert_msg(strstr(text.data, "tile_dot dot_bf16 tiles 0 1 2\n"), "%s", text.data);
	ck_assert_msg(strstr(text.data, "tile_load tile 2 %"), "%s", text.data);
	buf_destroy(&text);
	teardown(&t);
}
END_TEST

Suite *suite_tiles(void);
Suite *suite_tiles(void)
{
	Suite *s = suite_create("tiles");
	TCase *t = tcase_create("all");
	tcase_add_loop_test(t, multiplies_bytes, 0, 2);
	tcase_add_loop_test(t, other_dots_are_refused, 0, (int)TFMC_COUNT(dots));
	tcase_add_test(t, bf16_sums_pairs_apart);
	tcase_add_test(t, the_processor_would_fail);
	tcase_add_test(t, printers_refuse_tiles);
	tcase_add_test(t, dump_tells_tiles);
	suite_add_tcase(s, t);
	return s;
}
