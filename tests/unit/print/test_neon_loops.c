/* SPDX-License-Identifier: Apache-2.0 */
/*
* Inner loops of the fast kernels on aarch64, read from the
 * assembly: multiply-adds by an element of a vector, no broadcast (dup, ld1r),
 * and nothing of theirs on the stack. Needs no such machine.
 */
#include <check.h>
#include <string.h>

#include "backends/object/llvm.h"
#include "ir/support/compiler.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/kernels/linear_case.h"

/* An innermost loop: the lines from a label to the branch back to it. */
struct loop {
	int instructions;
	int by_element; /* fmla v.4s, v.4s, v.s[i] */
	int by_vector;
	int dots;       /* sdot, usdot, bfdot by an element; usmmla, bfmmla */
	int broadcasts; /* dup, ld1r */
	int loads;      /* of vector registers; ldp counts as two */
	int on_stack;   /* instructions that name the stack pointer */
};

struct line {
	const char *text;
	int length;
};

static bool contains(struct line l, const char *what)
{
	size_t n = strlen(what);
	for (int i = 0; i + (int)n <= l.length; i++)
		if (!memcmp(l.text + i, what, n))
			return true;
	return false;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Without its comment and the white space around it. */
static struct line next_line(const char **at)
{
	struct line l = {.text = *at, .length = (int)strcspn(*at, "\n")};
	*at += l.length + ((*at)[l.length] != 0);
	while (l.length > 0 && is_blank(*l.text)) {
		l.text++;
		l.length--;
	}
	for (int i = 0; i + 1 < l.length; i++)
		if (l.text[i] == '/' && l.text[i + 1] == '/')
			l.length = i;
	while (l.length > 0 && is_blank(l.text[l.length - 1]))
		l.length--;
	return l;
}

static bool is_label(struct line l)
{
	return l.length > 0 && l.text[l.length - 1] == ':';
}

static void count_line(struct loop *loop, struct line l)
{
	bool is_code = l.length > 0 && *l.text >= 'a' && *l.text <= 'z';
	bool is_fmla = is_code && !strncmp(l.text, "fmla\t", 5);
	bool by_element = is_fmla && contains(l, ".s[");
	loop->instructions += is_code;
	loop->by_element += by_element;
	loop->by_vector += is_fmla && !by_element;
	bool is_dot = contains(l, "dot\t") && (contains(l, "b[") || contains(l, "h["));
	loop->dots += is_code && (is_dot || contains(l, "mmla\t"));
	loop->broadcasts += is_code && (!strncmp(l.text, "dup\t", 4) || !strncmp(l.text, "ld1r\t", 5));
	loop->loads += is_code && !strncmp(l.text, "ldr\tq", 5);
	loop->loads += is_code && !strncmp(l.text, "ldp\tq", 5) ? 2 : 0;
	loop->on_stack += is_code && (contains(l, "[sp") || contains(l, " sp"));
}

/* Goes to the next innermost loop of the text. False at the end. */
static bool next_loop(const char **at, struct loop *out)
{
	struct line label = {0};
	while (**at) {
		struct line l = next_line(at);
		if (is_label(l)) {
			label = l;
			label.length--; /* the colon */
			*out = (struct loop){0};
			continue;
		}
		count_line(out, l);
		bool branches = l.length > 0 && *l.text == 'b' && l.length > label.length && label.length > 0;
		if (branches && !memcmp(l.text + l.length - label.length, label.text, (size_t)label.length))
			return true;
	}
	return false;
}

static void assemble_for(const char *target, struct diag_context *cx, const struct kb_module *kernels,
                         struct buf *out)
{
	struct llvm_options options = {.target = target_find(target), .opt_level = 2};
	struct llvm_output outputs = {.assembly = out};
	buf_init(out);
	ck_assert_int_eq(llvm_compile(cx, kernels, "m", &options, &outputs), TFMC_OK);
}

static void assemble(struct diag_context *cx, const struct kb_module *kernels, struct buf *out)
{
	assemble_for("aarch64", cx, kernels, out);
}

/* Loops with products: every one of them keeps to the registers; gives how many have `products`. */
static int count_loops(const char *assembly, int products, int loads)
{
	struct loop loop;
	int n = 0;
	for (const char *at = assembly; next_loop(&at, &loop);) {
		if (loop.by_element == 0)
			continue;
		ck_assert_int_eq(loop.on_stack, 0);
		if (loop.by_element < products)
			continue;
		ck_assert_int_eq(loop.by_element, products);
		ck_assert_int_eq(loop.by_vector, 0);
		ck_assert_int_eq(loop.broadcasts, 0);
		ck_assert_int_le(loop.loads, loads);
		ck_assert_int_le(loop.instructions, products + loads + 6);
		n++;
	}
	return n;
}

#define LINEAR                                                                                      \
	"module \"m\" stage=groups dim B in [0,8] dim S in [0,128] "                                \
	"func @f(%x: f32[B,S,768], %w: f32[768,768], %b: f32[768]) -> (y: f32[B,S,768]) { "         \
	"%y = group linear { root %h = linear %x, %w, %b : f32[B,S,768] yield %h } : f32[B,S,768] " \
	"return %y }"

/* 6 rows x 16 columns: for 4 neighbours along K, 6 vectors of x, 16 of weights, 96 products. */
START_TEST(tile_of_a_linear)
{
	struct linear_case c;
	struct buf text;
	linear_case_init(&c, LINEAR, "aarch64");
	assemble(&c.tir.cx, c.kernels, &text);
	ck_assert_int_eq(count_loops(text.data, 96, 6 + 16), 1);
	buf_destroy(&text);
	linear_case_destroy(&c);
}
END_TEST

/* No height of a tile broadcasts: K is a multiple of the lanes. */
START_TEST(low_tiles_of_a_linear)
{
	struct linear_case c;
	struct buf text;
	struct loop loop;
	int n = 0;
	linear_case_init(&c, LINEAR, "aarch64");
	assemble(&c.tir.cx, c.kernels, &text);
	for (const char *at = text.data; next_loop(&at, &loop);) {
		if (loop.by_element + loop.by_vector == 0)
			continue;
		ck_assert_int_eq(loop.by_vector + loop.broadcasts + loop.on_stack, 0);
		n++;
	}
	ck_assert_int_ge(n, 4); /* heights 6, 4, 2, 1 */
	buf_destroy(&text);
	linear_case_destroy(&c);
}
END_TEST

#define ROUNDED                                                                                         \
	"module \"m\" stage=groups dim B in [0,8] dim S in [0,128] "                                    \
	"func @f(%%x: f32[B,S,768], %%w: f32[768,768], %%b: f32[768]) -> (y: f32[B,S,768]) { "          \
	"%%y = group linear {mr=%d nr=16 br=64 scratch=131072} { pre %%r = quantize_rows %%x "          \
	"{to=%s block=%d} : f32[B,S,768] root %%h = linear %%r, %%w, %%b : f32[B,S,768] yield %%h } : " \
	"f32[B,S,768] return %%y }"

/* Tiles of 16 columns whose rows are rounded: dot products of a turn for each row and vector, half as many where they
 * are of two rows. */
static const struct rounded_tile {
	const char *target;
	enum ir_format format;
	int block, rows, dots, on_stack;
} rounded_tiles[] = {
        {"armv8.2-dotprod", FORMAT_Q8_ROW, 0, 5, 4 * 5 * 4, 0},
        {"armv8.2-dotprod", FORMAT_Q8_ROW, 0, 2, 8 * 2 * 4, 0},
        {"armv8.2-dotprod", FORMAT_Q8, 32, 2, 8 * 2 * 4, 0},
        {"armv8.2-dotprod", FORMAT_Q4, 32, 2, 8 * 2 * 4, 2}, /* one row over two panels, too */
        {"armv8.6", FORMAT_Q8, 32, 1, 8 * 4, 0},
        {"armv8.6", FORMAT_Q4, 32, 1, 8 * 4, 0},
        {"armv8.6", FORMAT_Q8_ROW, 0, 4, 2 * 4 * 4 / 2, 0},
        /* the compiler loads lines ahead, for which there are no registers left */
        {"armv8.6", FORMAT_Q8_ROW, 0, 6, 2 * 6 * 4 / 2, 3},
        {"armv8.6", FORMAT_BF16, 0, 6, 2 * 6 * 4 / 2, 3},
        {"armv8.6", FORMAT_BF16, 0, 4, 2 * 4 * 4 / 2, 0},
};

START_TEST(tiles_of_rounded_rows)
{
	const struct rounded_tile *t = &rounded_tiles[_i];
	struct linear_weights w = {.format = t->format};
	struct linear_case c;
	struct buf text, assembly;
	struct loop loop;
	int n = 0;
	bool is_bf16 = t->format == FORMAT_BF16;
	if (is_bf16)
		w = (struct linear_weights){.rounded = DT_BF16, .kept = DT_BF16};
	buf_init(&text);
	buf_printf(&text, ROUNDED, t->rows, is_bf16 ? "bf16" : "int8", t->block);
	linear_case_init_kept(&c, text.data, t->target, &w);
	assemble_for(t->target, &c.tir.cx, c.kernels, &assembly);
	for (const char *at = assembly.data; next_loop(&at, &loop);) {
		if (loop.dots != t->dots)
			continue;
		ck_assert_int_le(loop.on_stack, t->on_stack);
		ck_assert_int_le(loop.broadcasts, t->block ? t->rows : 0); /* what sums begin with */
		n++;
	}
	ck_assert_msg(n > 0, "%s", assembly.data);
	linear_case_destroy(&c);
	buf_destroy(&assembly);
	buf_destroy(&text);
}
END_TEST

/* 6 queries x 4 vectors of keys, and 6 weights x 4 vectors of values, for 4 neighbours each. */
START_TEST(tiles_of_attention)
{
	struct attention_config config = {.heads = 2, .key_heads = 2, .size = 64, .value_size = 64};
	struct attention_case c;
	struct buf text;
	config.scale = 0.125;
	config.target = "aarch64";
	attention_case_init(&c, &config);
	assemble(&c.cx, c.kernels, &text);
	ck_assert_int_ge(count_loops(text.data, 96, 6 + 16), 2);
	buf_destroy(&text);
	attention_case_destroy(&c);
}
END_TEST

Suite *suite_neon_loops(void);

Suite *suite_neon_loops(void)
{
	Suite *s = suite_create("neon_loops");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, tile_of_a_linear);
	tcase_add_test(t, low_tiles_of_a_linear);
	tcase_add_test(t, tiles_of_attention);
	tcase_add_loop_test(t, tiles_of_rounded_rows, 0, (int)TFMC_COUNT(rounded_tiles));
	suite_add_tcase(s, t);
	return s;
}
