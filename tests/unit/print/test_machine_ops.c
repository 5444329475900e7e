/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that are one instruction of some machines: the code for each level of them holds it, computes what the
 * interpreter does where it can run, and what is written out on other machines means the same.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "backends/object/llvm.h"
#include "ir/support/compiler.h"
#include "tests/kb_interp/interp.h"
#include "tests/support/cross.h"
#include "tests/support/random/dot_case.h"
#include "tests/support/kernels/c_case.h"

/* ---- levels of machines ---- */

/* A row of targets.def with more features. */
struct level {
	const char *target;
	uint64_t more;
};

enum { V4, VNNI, AVX_VNNI, VNNI_INT8, BF16, DOTPROD, I8MM, ARM_BF16, AMX, N_LEVELS };

#define HAS(feature) ((uint64_t)1 << FEATURE_##feature)
static const struct level levels[] = {
        [V4] = {"x86-64-v4", 0},
        [VNNI] = {"x86-64-v4", HAS(AVX512VNNI)},
        [AVX_VNNI] = {"x86-64-v3-vnni", 0},
        [VNNI_INT8] = {"x86-64-v3-vnni", HAS(AVXVNNIINT8)},
        [BF16] = {"x86-64-v4-bf16", 0},
        [DOTPROD] = {"armv8.2-dotprod", 0},
        [I8MM] = {"armv8.2-dotprod", HAS(I8MM)},
        [ARM_BF16] = {"armv8.6", 0},
        [AMX] = {"x86-64-v4-amx", 0},
};

static struct target target_of(const struct level *l)
{
	struct target t = *target_find(l->target);
	t.features |= l->more;
	return t;
}

/* ---- the code holds the instruction ---- */

typedef struct kb_val one_op(struct kb *k, struct kb_val in, int lanes);

static struct kb_val u8s8(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_U8S8, in, lanes);
}

/* The template says u8; that the highest bits are 0 is seen. */
static struct kb_val small(struct kb *k, struct kb_val in, int lanes)
{
	struct kb_type t = KB_TYPE(KB_I32, lanes);
	struct kb_val sum = kb_load(k, t, in, kb_index(k, 0), 0, 4),
	              a = kb_load(k, t, in, kb_index(k, 0), 16, 4);
	struct kb_val low = kb_bin(k, KB_AND, a, kb_splat(k, kb_i32(k, 0x0f0f0f0f), lanes));
	return kb_dot_u8s8(k, sum, low, kb_load(k, t, in, kb_index(k, 0), 32, 4));
}

static struct kb_val s8s8(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_S8S8, in, lanes);
}

static struct kb_val s16s16(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_S16S16, in, lanes);
}

static struct kb_val halves(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_U7S8_I16, in, lanes);
}

static struct kb_val bf16(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_BF16, in, lanes);
}

static struct kb_val bf16_odd(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_BF16_ODD, in, lanes);
}

static struct kb_val u8s8_2x2(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_U8S8_2X2, in, lanes);
}

static struct kb_val s8s8_2x2(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_S8S8_2X2, in, lanes);
}

static struct kb_val bf16_odd_2x2(struct kb *k, struct kb_val in, int lanes)
{
	return dot_of_numbers(k, KB_DOT_BF16_ODD_2X2, in, lanes);
}

static struct kb_val nearest(struct kb *k, struct kb_val in, int lanes)
{
	return kb_cvt_nearest(k, kb_load(k, KB_TYPE(KB_F32, lanes), in, kb_index(k, 0), 48, 4));
}

/* The weights in a register, the activation in all lanes from memory. */
static struct kb_val broadcast(struct kb *k, struct kb_val in, int lanes)
{
	struct kb_type t = KB_TYPE(KB_I32, lanes);
	struct kb_val sum = kb_load(k, t, in, kb_index(k, 0), 0, 4),
	              a = kb_load(k, t, in, kb_index(k, 0), 16, 4);
	return kb_dot_u8s8(k, sum, a, kb_load_splat(k, t, in, kb_index(k, 0), 32));
}

static const uint8_t codes[16] = {0, 24, 43, 59, 73, 85, 97, 108, 118, 129, 140, 153, 167, 184, 205, 255};

static struct kb_val look_up(struct kb *k, struct kb_val in, int lanes)
{
	struct kb_val table = kb_load(k, KB_TYPE(KB_U8, 16), in, kb_index(k, 0), 0, 1);
	struct kb_val bytes = kb_load(k, KB_TYPE(KB_U8, lanes), in, kb_index(k, 0), 16, 1);
	return kb_lookup16(k, table, bytes);
}

/* 4 bits from lines of 64 bytes: a line loaded as words, both nibbles looked up, two dot products. */
static struct kb_val codebook(struct kb *k, struct kb_val in, int lanes)
{
	struct kb_val zero = kb_index(k, 0), table = kb_const_u8x16(k, codes),
	              sum = kb_splat(k, kb_i32(k, 0), lanes);
	struct kb_val line = kb_load(k, KB_TYPE(KB_I32, lanes), in, zero, 0, 4);
	for (int high = 0; high < 2; high++) {
		struct kb_val by = kb_splat(k, kb_i32(k, 4 * high), lanes);
		struct kb_val codes_of = kb_bin(k, KB_SHR, line, by);
		struct kb_val bytes = kb_lookup16(k, table, kb_bitcast(k, codes_of, KB_U8));
		struct kb_val x = kb_load_splat(k, KB_TYPE(KB_I32, lanes), in, zero, 16 + high);
		sum = kb_dot_u8s8(k, sum, kb_bitcast(k, bytes, KB_I32), x);
	}
	return sum;
}

/* Every operation of tiles; the value is another. */
static struct kb_val tiles(struct kb *k, struct kb_val in, int lanes)
{
	struct kb_val stride = kb_index(k, 64);
	kb_tile_config(k, in);
	kb_tile_zero(k, 0);
	kb_tile_load(k, 1, in, stride);
	kb_tile_load(k, 2, kb_ptr_add(k, in, stride, 0), stride);
	kb_tile_dot(k, KB_DOT_U8S8, 0, 1, 2);
	kb_tile_dot(k, KB_DOT_S8S8, 0, 1, 2);
	kb_tile_dot(k, KB_DOT_BF16, 3, 1, 2);
	kb_tile_store(k, 0, in, stride);
	kb_tile_release(k);
	return kb_load(k, KB_TYPE(KB_I32, lanes), in, kb_index(k, 0), 0, 4);
}

/* The assembly of a function that stores the value. */
static void assemble(const struct target *t, const struct kb_caps *caps, one_op *op, int lanes,
                     struct buf *out)
{
	struct arena a;
	struct buf log;
	struct diag_context cx;
	arena_init(&a);
	buf_init(&log);
	buf_init(out);
	diag_init(&cx, diag_render_text, &log);
	struct kb_module *m = kb_module_create(&a, caps);
	struct kb *k = kb_begin(m, "one", KB_EXPORTED, KB_VOID);
	struct kb_val in = kb_param(k, "in", KB_PTR_T, 0), result = kb_param(k, "out", KB_PTR_T, 0);
	kb_store(k, op(k, in, lanes), result, kb_index(k, 0), 0, 0);
	kb_end(k);
	ck_assert_msg(kb_verify(m, &cx) == TFMC_OK, "%s", log.data);
	struct llvm_options options = {.target = t, .opt_level = 2};
	struct llvm_output outputs = {.assembly = out};
	enum tfmc_status status = llvm_compile(&cx, m, "m", &options, &outputs);
	ck_assert_msg(status == TFMC_OK, "%s", log.data);
	diag_destroy(&cx);
	buf_destroy(&log);
	arena_destroy(&a);
}

static int count(const char *text, const char *what)
{
	int n = 0;
	for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
		n++;
	return n;
}

static const struct {
	int level;
	one_op *op;
	int lanes;
	const char *instruction;
	int n;
	const char *operand; /* how its first operand looks; NULL: any way */
} expected[] = {
        {VNNI, u8s8, 16, "vpdpbusd\t", 1, "%zmm"},
        {VNNI, u8s8, 8, "vpdpbusd\t", 1, "%ymm"},
        {VNNI, u8s8, 4, "vpdpbusd\t", 1, "%xmm"},
        {VNNI, s8s8, 16, "vpdpbusd\t", 2, "%zmm"},
        {VNNI, broadcast, 16, "vpdpbusd\t", 1, "{1to16}"},
        {VNNI, nearest, 16, "vcvtps2dq\t", 1, "%zmm"},
        {AVX_VNNI, u8s8, 16, "vpdpbusd\t", 2, "%ymm"},
        {AVX_VNNI, nearest, 8, "vcvtps2dq\t", 1, "%ymm"},
        {VNNI_INT8, s8s8, 8, "vpdpbssd\t", 1, "%ymm"},
        {VNNI_INT8, s8s8, 16, "vpdpbssd\t", 2, "%ymm"},
        {BF16, bf16, 16, "vdpbf16ps\t", 1, "%zmm"},
        {BF16, bf16, 8, "vdpbf16ps\t", 1, "%ymm"},
        {V4, s16s16, 16, "vpmaddwd\t", 1, "%zmm"},
        {VNNI, s16s16, 16, "vpdpwssd\t", 1, "%zmm"},
        {DOTPROD, s8s8, 4, "sdot\t", 1, NULL},
        {V4, small, 16, "vpmaddubsw\t", 1, "%zmm"},
        {V4, small, 16, "vpmaddwd\t", 1, NULL},
        {V4, halves, 16, "vpmaddubsw\t", 1, "%zmm"},
        {V4, halves, 8, "vpaddw\t", 1, "%ymm"},
        {VNNI, small, 16, "vpdpbusd\t", 1, "%zmm"},
        {DOTPROD, small, 4, "sdot\t", 1, NULL},
        {V4, look_up, 64, "vpshufb\t", 1, "%zmm"},
        {V4, look_up, 32, "vpshufb\t", 1, "%ymm"},
        {DOTPROD, look_up, 16, "tbl\t", 1, NULL},
        {VNNI, codebook, 16, "vpshufb\t", 2, "%zmm"},
        {BF16, codebook, 16, "vpermb\t", 2, "%zmm"},
        {BF16, look_up, 32, "vpermb\t", 1, "%ymm"},
        {VNNI, codebook, 16, "vpdpbusd\t", 2, "{1to16}"},
        {VNNI, codebook, 16, "vpand", 2, NULL},
        {AMX, tiles, 16, "ldtilecfg\t(%rdi)", 1, NULL},
        {AMX, tiles, 16, "tilezero\t%tmm0", 1, NULL},
        {AMX, tiles, 16, "tileloadd\t", 2, "(%rdi,"},
        {AMX, tiles, 16, "tdpbsud\t%tmm1, %tmm2, %tmm0", 1, NULL},
        {AMX, tiles, 16, "tdpbssd\t%tmm1, %tmm2, %tmm0", 1, NULL},
        {AMX, tiles, 16, "tdpbf16ps\t%tmm1, %tmm2, %tmm3", 1, NULL},
        {AMX, tiles, 16, "tilestored\t%tmm0, (%rdi,", 1, NULL},
        {AMX, tiles, 16, "tilerelease\n", 1, NULL},
        {DOTPROD, s8s8, 16, "sdot\t", 4, NULL},
        {DOTPROD, u8s8, 4, "sdot\t", 2, NULL},
        {I8MM, u8s8, 4, "usdot\t", 1, NULL},
        {I8MM, u8s8_2x2, 4, "usmmla\t", 1, NULL},
        {I8MM, s8s8_2x2, 8, "smmla\t", 2, NULL},
        {DOTPROD, s8s8_2x2, 4, "sdot\t", 2, NULL},
        {ARM_BF16, bf16_odd, 4, "bfdot\t", 1, NULL},
        {ARM_BF16, bf16_odd_2x2, 16, "bfmmla\t", 4, NULL},
        {DOTPROD, nearest, 4, "fcvtns\t", 1, NULL},
};

START_TEST(code_holds_the_instruction)
{
	const struct level *l = &levels[expected[_i].level];
	struct target t = target_of(l);
	struct kb_caps caps = kb_caps_of(&t);
	struct buf text;
	assemble(&t, &caps, expected[_i].op, expected[_i].lanes, &text);
	const char *at = strstr(text.data, expected[_i].instruction);
	ck_assert_msg(count(text.data, expected[_i].instruction) == expected[_i].n, "%s\n%s",
	              expected[_i].instruction, text.data);
	const char *operand = expected[_i].operand ? strstr(at, expected[_i].operand) : at;
	ck_assert_msg(operand && operand < at + strcspn(at, "\n"), "%s", text.data);
	buf_destroy(&text);
}
END_TEST

/* Without the feature: pairs of 16 bits, which do not saturate. */
START_TEST(code_without_the_instruction)
{
	const struct target *t = target_find("x86-64-v3");
	struct kb_caps caps = kb_caps_of(t);
	struct buf text;
	assemble(t, &caps, u8s8, 8, &text);
	ck_assert_int_eq(count(text.data, "vpmaddwd"), 2);
	ck_assert_int_eq(count(text.data, "vpmaddubsw"), 0);
	buf_destroy(&text);
}
END_TEST

/* ---- it computes the same ---- */

START_TEST(machines_compute_what_the_interpreter_does)
{
	struct dot_numbers in;
	dot_numbers_fill(&in);
	struct llvm_case c = {dot_case_body, NULL, &in, sizeof(in), DOT_OUT_BYTES};
	llvm_case_check(&c);
	for (int i = VNNI; i < N_LEVELS; i++) {
		const struct level *l = &levels[i];
		struct target t = target_of(l);
		struct kb_caps caps = kb_caps_of(&t);
		if (target_runs_on_host(&t) || (t.arch == ARCH_AARCH64 && cross_has_tools()))
			llvm_case_check_on(&c, &t, &caps);
		else
			(void)fprintf(stderr, "%s, level %d, cannot run here\n", l->target, i);
	}
}
END_TEST

static void look_up_all(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val zero = kb_index(k, 0), four = kb_splat(k, kb_cvt(k, kb_i32(k, 4), KB_U8), 16);
	for (int lanes = 16, at = 0; lanes <= 64; at += lanes, lanes *= 2)
		kb_store(k, look_up(k, in, lanes), out, zero, at, 1);
	struct kb_val high = kb_bin(k, KB_SHR, kb_load(k, KB_TYPE(KB_U8, 16), in, zero, 80, 1), four);
	kb_store(k, kb_lookup16(k, kb_const_u8x16(k, codes), high), out, zero, 16 + 32 + 64, 1);
}

START_TEST(machines_look_up)
{
	struct dot_numbers in;
	dot_numbers_fill(&in);
	struct llvm_case c = {look_up_all, NULL, &in, sizeof(in), 16 + 32 + 64 + 16};
	llvm_case_check(&c);
}
END_TEST

START_TEST(c_computes_what_the_interpreter_does)
{
	struct dot_numbers in;
	dot_numbers_fill(&in);
	const struct llvm_case cases[] = {{dot_case_body, NULL, &in, sizeof(in), DOT_OUT_BYTES},
	                                  {look_up_all, NULL, &in, sizeof(in), 16 + 32 + 64 + 16}};
	c_case_check(cases, TFMC_COUNT(cases));
}
END_TEST

static void least_results(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val zero = kb_index(k, 0), sum = kb_load(k, KB_TYPE(KB_F32, 4), in, zero, 0, 4);
	struct kb_val a = kb_load(k, KB_TYPE(KB_I32, 4), in, zero, 4, 4),
	              b = kb_load(k, KB_TYPE(KB_I32, 4), in, zero, 8, 4);
	kb_store(k, kb_dot_bf16(k, sum, a, b), out, zero, 0, 4);
}

/* 2^-126 less 3 to 24 quarters of its last bit: below 2^-126 with 24 bits it is zero, though it would be rounded up. */
START_TEST(machines_flush_before_they_round)
{
	static const struct {
		float sum[4];
		uint32_t a[4], b[4];
	} in = {{0x1p-126f, 0x1p-126f, 0x1p-126f, -0x1p-126f},
	        {0x19800000, 0x19800000, 0x19800000, 0x19800000},  /* 2^-76, 0 */
	        {0x9b400000, 0x9a400000, 0x99c00000, 0x1a400000}}; /* -1.5 2^-73, -75, -76; 2^-75 */
	struct llvm_case c = {least_results, NULL, &in, sizeof(in), 16};
	struct target t = target_of(&levels[BF16]);
	struct kb_caps caps = kb_caps_of(&t);
	if (target_runs_on_host(&t))
		llvm_case_check_on(&c, &t, &caps);
	else
		(void)fprintf(stderr, "%s cannot run here\n", t.name);
}
END_TEST

static void interpret(const struct kb_module *m, const struct dot_numbers *in, void *out)
{
	struct kb_range ranges[] = {{(void *)(uintptr_t)in, sizeof(*in), false},
	                            {out, DOT_OUT_BYTES + 64, true}};
	struct kb_interp interp = {.module = m, .ranges = ranges, .n_ranges = 2};
	union kb_cell args[] = {{.p = ranges[0].base}, {.p = out}};
	bool ok = kb_interp_call(&interp, "case", args, 2, NULL);
	ck_assert_msg(ok, "%s", interp.error);
}

/* Machines with some of the instructions: bit n of _i is row n of KB_DOT, the last one all that follow. */
START_TEST(what_is_written_out_means_the_same)
{
	struct arena a;
	struct dot_numbers in;
	unsigned char wanted[DOT_OUT_BYTES + 64], got[DOT_OUT_BYTES + 64];
	struct kb_caps caps = {.lanes = 16, .registers = 32, .has_fma = true};
	dot_numbers_fill(&in);
	arena_init(&a);
	struct kb_module *m = kb_module_create(&a, &caps);
	struct kb *k = kb_begin(m, "case", KB_EXPORTED, KB_VOID);
	struct kb_val from = kb_param(k, "in", KB_PTR_T, 0);
	struct kb_val to = kb_param(k, "out", KB_PTR_T, 0);
	dot_case_body(k, from, to);
	kb_store(k, small(k, from, 16), to, kb_index(k, 0), DOT_OUT_BYTES / 4, 4);
	kb_end(k);
	interpret(m, &in, wanted);
	int bit = 0;
#define KB_DOT(op, name)                   \
	caps.has_##name = (_i >> bit) & 1; \
	bit += bit < 5;
#include "backends/kb/kb_ops.def"
	struct kb_func *f = (struct kb_func *)(uintptr_t)kb_func_at(m, 0);
	*f = *kb_legalize(f, &a, &caps);
	for (size_t i = 0; i < f->n_insts; i++)
		if (f->insts[i].op == KBO_DOT)
			ck_assert(kb_has_dot(&caps, f->insts[i].dot) && f->insts[i].type.lanes >= 4);
	interpret(m, &in, got);
	ck_assert_mem_eq(got, wanted, sizeof(got));
	arena_destroy(&a);
}
END_TEST

Suite *suite_machine_ops(void);
Suite *suite_machine_ops(void)
{
	Suite *s = suite_create("machine_ops");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, code_holds_the_instruction, 0, (int)TFMC_COUNT(expected));
	tcase_add_test(t, code_without_the_instruction);
	tcase_add_test(t, machines_compute_what_the_interpreter_does);
	tcase_add_test(t, machines_look_up);
	tcase_add_test(t, c_computes_what_the_interpreter_does);
	tcase_add_test(t, machines_flush_before_they_round);
	tcase_add_loop_test(t, what_is_written_out_means_the_same, 0, 64);
	suite_add_tcase(s, t);
	return s;
}
