/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults planted in recorded kernels, as mistakes in the templates would make
 * them: each is caught by what the tests of kernels do anyway, running the record
 * by the kernel interpreter and comparing with the IR interpreter. A fault that
 * passed would mean that those tests see nothing.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "backends/kb/kernel_ir.h"
#include "backends/kernels/rowwise.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/kernels/group_case.h"
#include "tests/support/kernels/linear_case.h"

/* ---- editing a record ---- */

/* A function whose record a test owns. */
struct record {
	struct kb_inst *insts;
	size_t n;
};

static struct record record_of(const struct kb_module *m, const char *name)
{
	for (size_t i = 0; i < kb_func_count(m); i++)
		if (strcmp(kb_func_at(m, i)->name, name) == 0)
			return (struct record){kb_func_at(m, i)->insts, kb_func_at(m, i)->n_insts};
	ck_abort_msg("no function %s", name);
}

/* The instruction that defines operand `arg` of an instruction. */
static struct kb_inst *def_of(const struct record *r, const struct kb_inst *inst, size_t arg)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->insts[i].result == inst->args[arg].id && r->insts[i].op != KBO_VAR)
			return &r->insts[i];
	return NULL;
}

static bool is_loop(const struct kb_inst *i, const char *name)
{
	return i->op == KBO_LOOP && i->name != NULL && strcmp(i->name, name) == 0;
}

/* The end of the loop that begins at `at`. */
static size_t end_of(const struct record *r, size_t at)
{
	int depth = 0;
	for (size_t i = at; i < r->n; i++) {
		depth += r->insts[i].op == KBO_LOOP;
		depth -= r->insts[i].op == KBO_END_LOOP;
		if (depth == 0)
			return i;
	}
	return r->n;
}

static size_t count_in(const struct record *r, size_t from, size_t to, enum kb_opcode op)
{
	size_t n = 0;
	for (size_t i = from; i < to; i++)
		n += r->insts[i].op == op;
	return n;
}

/* ---- faults: each gives the number of places that it made wrong ---- */

typedef size_t fault_fn(const struct record *r);

/* The loop over the terms of a product ends one too early. */
static size_t drop_last_term(const struct record *r, const char *loop)
{
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++) {
		bool sums = is_loop(&r->insts[i], loop) && count_in(r, i, end_of(r, i), KBO_FMA) > 0 &&
		            count_in(r, i + 1, end_of(r, i), KBO_LOOP) == 0;
		struct kb_inst *hi = sums ? def_of(r, &r->insts[i], 1) : NULL;
		if (hi == NULL || hi->op != KBO_CONST_INT)
			continue;
		hi->imm--;
		n++;
	}
	return n;
}

static size_t drop_last_k(const struct record *r)
{
	return drop_last_term(r, "k");
}

static size_t drop_last_e(const struct record *r)
{
	return drop_last_term(r, "e");
}

/* The last panel is stored with all lanes. */
static size_t store_whole_tail(const struct record *r)
{
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++)
		if (r->insts[i].op == KBO_STORE_PART) {
			r->insts[i].n_lanes = r->insts[i].type.lanes;
			n++;
		}
	return n;
}

/* Integer constants that are factors of an index and have this value. */
static size_t change_factor(const struct record *r, int64_t from, int64_t to)
{
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++) {
		const struct kb_inst *m = &r->insts[i];
		if (m->op != KBO_BIN || m->bin != KB_MUL || m->type.scalar != KB_INDEX)
			continue;
		for (size_t k = 0; k < m->n_args; k++) {
			struct kb_inst *c = def_of(r, m, k);
			if (c == NULL || c->op != KBO_CONST_INT || c->imm != from)
				continue;
			c->imm = to;
			n++;
		}
	}
	return n;
}

/* Panels of 9 x 16 floats lie as if K were rounded up to 10. */
static size_t wrong_panel_stride(const struct record *r)
{
	return change_factor(r, 9 * 16 * 4, 10 * 16 * 4);
}

/* Rows of 13 lie as if they were padded. */
static size_t wrong_row_stride(const struct record *r)
{
	return change_factor(r, 13, 16);
}

static size_t change_float(const struct record *r, double from, double to)
{
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++)
		if (r->insts[i].op == KBO_CONST_FLOAT && fabs(r->insts[i].fimm - from) < 1e-6 * fabs(from)) {
			r->insts[i].fimm = to;
			n++;
		}
	return n;
}

/* One digit of the polynomial of exp. */
static size_t wrong_exp_coefficient(const struct record *r)
{
	return change_float(r, 0.16666576, 0.17666576);
}

static size_t lost_eps(const struct record *r)
{
	return change_float(r, 0.001, 0);
}

/* The lanes of the last vector that count are one too many: `lane < n` becomes `lane <= n`. */
static size_t wrong_tail_mask(const struct record *r)
{
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++) {
		const struct kb_inst *lanes = r->insts[i].op == KBO_CMP ? def_of(r, &r->insts[i], 0) : NULL;
		if (lanes == NULL || lanes->op != KBO_LANE_IDS || r->insts[i].cmp != KB_LT)
			continue;
		r->insts[i].cmp = KB_LE;
		n++;
	}
	return n;
}

/* Online softmax: the sums so far are scaled like those of the new block, not to the new maximum. They join
 * by fma(before, old factor, block * new factor), which is stored. */
static size_t lost_rescale(const struct record *r)
{
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++) {
		const struct kb_inst *fma = r->insts[i].op == KBO_STORE ? def_of(r, &r->insts[i], 0) : NULL;
		const struct kb_inst *product = fma != NULL && fma->op == KBO_FMA ? def_of(r, fma, 2) : NULL;
		if (product == NULL || product->op != KBO_BIN || product->bin != KB_MUL)
			continue;
		const struct kb_inst *factor = def_of(r, product, 1);
		if (factor == NULL || factor->op != KBO_LOAD_SPLAT)
			continue;
		((struct kb_val *)(uintptr_t)fma->args)[1] = product->args[1];
		n++;
	}
	return n;
}

/* The first barrier from instruction i on does nothing. */
static size_t lose_barrier(const struct record *r, size_t i)
{
	for (; i < r->n; i++)
		if (r->insts[i].op == KBO_BARRIER) {
			r->insts[i].op = KBO_COMMENT;
			r->insts[i].name = "";
			return 1;
		}
	return 0;
}

static size_t lost_barrier(const struct record *r)
{
	return lose_barrier(r, 0);
}

/* Work-groups choose their tiles when they run: that of the other ones. */
static size_t lost_barrier_of_else(const struct record *r)
{
	size_t i = 0;
	while (i < r->n && r->insts[i].op != KBO_ELSE)
		i++;
	return lose_barrier(r, i);
}

/* ---- kernels ---- */

#define DIMS "module \"m\" stage=groups dim B in [0,8] dim S in [0,128] "
#define LINEAR                                                                                              \
	DIMS "func @f(%x: f32[B,S,9], %w: f32[21,9], %b: f32[21]) -> (y: f32[B,S,21]) { %y = group linear " \
	     "{ "                                                                                           \
	     "root %h = linear %x, %w, %b : f32[B,S,21] yield %h } : f32[B,S,21] return %y }"
#define ROWS "module \"m\" stage=groups dim R in [0,16] "
#define SOFTMAX                                                                                        \
	ROWS "func @f(%x: f32[R,13]) -> (y: f32[R,13]) { %o = group rowwise { root %n = softmax %x : " \
	     "f32[R,13] yield %n } : f32[R,13] return %o }"
#define NORM                                                                                              \
	ROWS "func @f(%x: f32[R,13], %g: f32[13], %h: f32[13]) -> (y: f32[R,13]) { %o = group rowwise { " \
	     "root "                                                                                      \
	     "%n = layer_norm %x, %g, %h {eps=0.001} : f32[R,13] yield %n } : f32[R,13] return %o }"

/* Right before the fault, wrong after it. */
static void expect_caught(const char *before, size_t places, const char *after)
{
	ck_assert_msg(before == NULL, "wrong without the fault: %s", before);
	ck_assert_uint_gt(places, 0);
	ck_assert_msg(after != NULL, "not caught");
}

static void check_linear(fault_fn *fault, bool is_shared, int64_t b, int64_t s)
{
	struct linear_case c;
	struct linear_call call;
	if (is_shared)
		linear_case_init_shared(&c, LINEAR, "opencl-gpu");
	else
		linear_case_init(&c, LINEAR, "x86-64-v2");
	linear_call_init(&c, &call, b, s);
	const struct record r = record_of(c.kernels, "linear");
	const char *before = linear_complaint(&c, &call, 2);
	size_t places = fault(&r);
	expect_caught(before, places, linear_complaint(&c, &call, 2));
	linear_case_destroy(&c);
}

static void check_rows(fault_fn *fault, const char *text)
{
	static const int64_t dims[] = {3};
	struct group_case c;
	struct group_call call;
	group_case_init(&c, text, "x86-64-v2", rowwise_emit);
	group_call_init(&c, &call, dims);
	const struct record r = record_of(c.kernels, "kernel");
	const char *before = group_case_complaint(&c, &call, 1);
	size_t places = fault(&r);
	expect_caught(before, places, group_case_complaint(&c, &call, 1));
	group_case_destroy(&c);
}

/* Several blocks of keys, so that the online softmax has something to rescale. */
static void check_attention(fault_fn *fault)
{
	static const struct attention_config config = {.heads = 2,
	                                               .key_heads = 1,
	                                               .size = 8,
	                                               .value_size = 8,
	                                               .is_causal = true,
	                                               .bias = BIAS_FULL, /* powers of e, not of 2 */
	                                               .scale = 0.8,
	                                               .br = 4,
	                                               .bc = 16,
	                                               .target = "x86-64-v2"};
	struct attention_case c;
	struct attention_call call;
	attention_case_init(&c, &config);
	attention_call_init(&c, &call, 1, 50, 50);
	const struct record r = record_of(c.kernels, "attend");
	const char *before = attention_complaint(&c, &call, 1);
	size_t places = fault(&r);
	expect_caught(before, places, attention_complaint(&c, &call, 1));
	attention_case_destroy(&c);
}

/* ---- tests ---- */

START_TEST(test_linear)
{
	static fault_fn *const faults[] = {drop_last_k, store_whole_tail, wrong_panel_stride};
	check_linear(faults[_i], false, 2, 5);
}
END_TEST

START_TEST(test_shared)
{
	check_linear(lost_barrier, true, 1, 5);
	check_linear(lost_barrier_of_else, true, 2, 5);
}
END_TEST

START_TEST(test_softmax)
{
	static fault_fn *const faults[] = {wrong_exp_coefficient, wrong_tail_mask, wrong_row_stride};
	check_rows(faults[_i], SOFTMAX);
}
END_TEST

START_TEST(test_norm)
{
	static fault_fn *const faults[] = {lost_eps, wrong_row_stride};
	check_rows(faults[_i], NORM);
}
END_TEST

START_TEST(test_attention)
{
	static fault_fn *const faults[] = {drop_last_e, lost_rescale, wrong_exp_coefficient};
	check_attention(faults[_i]);
}
END_TEST

Suite *suite_planted_kernels(void)
{
	Suite *s = suite_create("planted_kernels");
	TCase *tc = tcase_create("faults");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_linear, 0, 3);
	tcase_add_test(tc, test_shared);
	tcase_add_loop_test(tc, test_softmax, 0, 3);
	tcase_add_loop_test(tc, test_norm, 0, 2);
	tcase_add_loop_test(tc, test_attention, 0, 3);
	suite_add_tcase(s, tc);
	return s;
}
