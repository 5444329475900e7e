/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL C printer against the kernel interpreter: vectors, memory, control,
 * work-groups with shared memory and barriers; the look of the text; and what is
 * refused (arithmetic: test_opencl_arith.c). Each text is also checked by clang
 * without extensions.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/support/opencl/opencl_numbers.h"

/* ---- vectors ---- */

static void shuffles(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const int back[] = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
	static const int zip[] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
	static const int even[] = {0, 2, 4, 6}, one[] = {9}, ten[] = {0, 1, 0, 1};
	struct kb_val none = {0}, wide = load(k, in, 16, 0);
	struct kb_val a = load(k, in, 8, 0), b = load(k, in, 8, 1);
	int64_t at = put(k, kb_shuffle(k, wide, none, back, 16), out, 0);
	at = put(k, kb_shuffle(k, a, b, zip, 16), out, at);
	at = put(k, kb_shuffle(k, a, none, even, 4), out, at);
	at = put(k, kb_shuffle(k, a, b, one, 1), out, at);
	at = put(k, kb_shuffle(k, kb_lane(k, a, 2), kb_lane(k, b, 3), ten, 4), out, at);
	struct kb_val mask = kb_cmp(k, KB_LT, a, b);
	at = put(k, kb_shuffle(k, mask, none, even, 4), out, at);
	at = put(k, kb_shuffle(k, kb_lane(k, mask, 0), kb_lane(k, mask, 1), ten, 4), out, at);
	for (int i = 0; i < 16; i += 3)
		at = put(k, kb_lane(k, wide, i), out, at);
}

START_TEST(shuffles_lanes)
{
	struct opencl_case c = {
	        .body = shuffles, .in = &numbers, .in_bytes = sizeof(numbers), .out_bytes = 4 * 55};
	opencl_case_check(&c);
}
END_TEST

static void reductions(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_bin ops[] = {KB_ADD, KB_MIN, KB_MAX};
	int64_t at = 0;
	for (size_t i = 1; i < TFMC_COUNT(all_lanes); i++)
		for (size_t o = 0; o < TFMC_COUNT(ops); o++) {
			struct kb_val v = load(k, in, all_lanes[i], 0);
			at = put(k, kb_reduce(k, ops[o], v), out, at);
			struct kb_val n = kb_bitcast(k, v, KB_I32);
			at = put(k, kb_reduce(k, ops[o], n), out, at);
			at = put(k, kb_reduce(k, ops[o], kb_cvt(k, n, KB_I64)), out, at);
		}
}

/* The order of the tree shows in the last bits. */
START_TEST(reduces_by_one_tree)
{
	struct floats in = numbers;
	for (int i = 0; i < LANES; i++)
		in.a[i] = ldexpf(1.0f + (float)i * 0x1p-23f, (i * 7) % 11);
	struct opencl_case c = {.body = reductions, .in = &in, .in_bytes = sizeof(in), .out_bytes = 4 * 36};
	opencl_case_check(&c);
}
END_TEST

/* ---- memory ---- */

/* Parts of vectors, elements in all lanes, displacements before and after, odd places. */
static void moves(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val i = kb_loop(k, "i", kb_index(k, 1), kb_index(k, 3), 1, KB_NONEMPTY);
	struct kb_val at = kb_mul(k, i, kb_index(k, 16));
	kb_store_part(k, kb_load_part(k, KB_TYPE(KB_F32, 4), 3, in, i, -1), 3, out, at, -16);
	kb_store(k, kb_load_splat(k, KB_TYPE(KB_F32, 8), in, i, 2), out, at, -13, 4);
	kb_store_part(k, kb_load_part(k, KB_TYPE(KB_F32, 16), 1, in, i, 5), 1, out, at, -5);
	struct kb_val far = kb_ptr_add(k, in, kb_mul(k, i, kb_index(k, 4)), 8);
	kb_store(k, kb_load(k, KB_F32_T, kb_ptr_opaque(k, far), zero(k), 1, 4), out, at, -4, 4);
	struct kb_val bytes = kb_load(k, KB_TYPE(KB_U8, 8), far, zero(k), -3, 1);
	kb_store(k, bytes, kb_ptr_add(k, out, kb_mul(k, at, kb_index(k, 4)), -12), zero(k), 0, 1);
	kb_prefetch(k, in, at, 64);
	kb_end_loop(k);
}

START_TEST(moves_memory)
{
	struct opencl_case c = {
	        .body = moves, .in = &numbers, .in_bytes = sizeof(numbers), .out_bytes = 4 * 32};
	opencl_case_check(&c);
}
END_TEST

/* Arrays of the function, data of the module, pointers in variables. */
static void pointers(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val room = kb_local(k, "room", KB_F32, 24);
	struct kb_val table = kb_symbol(k, "table");
	struct kb_var walk = kb_var(k, "walk", KB_PTR_T, in);
	struct kb_val i = kb_loop(k, "i", zero(k), kb_index(k, 24), 1, 0);
	struct kb_val p = kb_get(k, walk);
	struct kb_val odd = kb_cmp(k, KB_EQ, kb_bin(k, KB_REM, i, kb_index(k, 2)), kb_index(k, 1));
	struct kb_val from = kb_select(k, odd, p, in);
	struct kb_val factor = kb_cvt(k, kb_load(k, KB_TYPE(KB_U8, 1), table, i, 0, 1), KB_F32);
	kb_store(k, kb_mul(k, kb_load(k, KB_F32_T, from, zero(k), 0, 4), factor), room, i, 0, 4);
	kb_set(k, walk, kb_ptr_add(k, p, zero(k), 4));
	kb_end_loop(k);
	for (int n = 0; n < 24; n += 8)
		kb_store(k, kb_load(k, KB_TYPE(KB_F32, 8), room, zero(k), n, 32), out, zero(k), n, 4);
	struct kb_val same = kb_cmp(k, KB_EQ, kb_get(k, walk), kb_null(k));
	put(k, same, out, 24);
}

static void table_data(struct kb_module *m)
{
	static const unsigned char table[24] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
	                                        13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 255};
	kb_data(m, "table", KB_INTERNAL, table, sizeof(table), 16);
}

START_TEST(follows_pointers)
{
	struct opencl_case c = {.body = pointers,
	                        .functions = table_data,
	                        .in = &numbers,
	                        .in_bytes = sizeof(numbers),
	                        .out_bytes = 4 * 25};
	opencl_case_check(&c);
}
END_TEST

static void read_string(struct kb *k, struct kb_val in, struct kb_val out)
{
	(void)in;
	struct kb_val text = kb_string(k, "a \"?\x01"
	                                  "2\n");
	kb_store(k, kb_load(k, KB_TYPE(KB_I8, 8), text, zero(k), 0, 1), out, zero(k), 0, 1);
}

START_TEST(reads_strings)
{
	struct opencl_case c = {.body = read_string,
	                        .in = &numbers,
	                        .in_bytes = 4,
	                        .out_bytes = 8,
	                        .expected = "a \"?\x01"
	                                    "2\n"};
	opencl_case_check(&c);
}
END_TEST

/* ---- control and functions ---- */

static void add_functions(struct kb_module *m)
{
	struct kb *k = kb_begin(m, "scale.row", KB_INTERNAL, KB_VOID);
	struct kb_val from = kb_param(k, "from", KB_PTR_T, KB_NOALIAS | KB_READONLY);
	struct kb_val to = kb_param(k, "to", KB_PTR_T, KB_NOALIAS);
	struct kb_val n = kb_param(k, "n", KB_INDEX_T, 0);
	struct kb_val by = kb_param(k, "by", KB_F32_T, 0);
	kb_if(k, kb_cmp(k, KB_LE, n, zero(k)));
	kb_return(k, (struct kb_val){0});
	kb_end_if(k);
	struct kb_val i = kb_loop(k, "i", zero(k), n, 1, 0);
	kb_store(k, kb_mul(k, kb_load(k, KB_F32_T, from, i, 0, 4), by), to, i, 0, 4);
	kb_end_loop(k);
	kb_end(k);
	k = kb_begin(m, "collatz", KB_INTERNAL, KB_I32);
	struct kb_var x = kb_var(k, "x", KB_I32_T, kb_param(k, "x", KB_I32_T, 0));
	struct kb_var steps = kb_var(k, "steps", KB_I32_T, kb_i32(k, 0));
	kb_forever(k);
	struct kb_val now = kb_get(k, x);
	kb_break_if(k, kb_cmp(k, KB_LE, now, kb_i32(k, 1)));
	kb_if(k, kb_cmp(k, KB_EQ, kb_bin(k, KB_AND, now, kb_i32(k, 1)), kb_i32(k, 0)));
	kb_set(k, x, kb_bin(k, KB_DIV, now, kb_i32(k, 2)));
	kb_else(k);
	kb_set(k, x, kb_add(k, kb_mul(k, now, kb_i32(k, 3)), kb_i32(k, 1)));
	kb_end_if(k);
	kb_set(k, steps, kb_add(k, kb_get(k, steps), kb_i32(k, 1)));
	kb_end_forever(k);
	kb_return(k, kb_get(k, steps));
	kb_end(k);
}

static void calls(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val first[] = {in, out, kb_index(k, 7), kb_f32(k, 3)};
	kb_call(k, "scale.row", KB_VOID, first, 4);
	struct kb_val second[] = {kb_ptr_add(k, in, zero(k), 64), kb_ptr_add(k, out, zero(k), 28),
	                          kb_index(k, 0), kb_f32(k, 3)};
	kb_call(k, "scale.row", KB_VOID, second, 4);
	struct kb_val start = kb_i32(k, 27);
	put(k, kb_call(k, "collatz", KB_I32, &start, 1), out, 7);
	kb_pause(k);
}

START_TEST(calls_functions)
{
	struct opencl_case c = {.body = calls,
	                        .functions = add_functions,
	                        .in = &numbers,
	                        .in_bytes = sizeof(numbers),
	                        .out_bytes = 4 * 8};
	opencl_case_check(&c);
}
END_TEST

/* ---- work-groups ---- */

#define ITEMS  32
#define GROUPS 5

/* Each group reverses its part through shared memory. */
static void reverse(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val shared = kb_shared(k, "shared", KB_F32, ITEMS);
	struct kb_val item = kb_item_id(k);
	struct kb_val base = kb_mul(k, kb_group_id(k), kb_index(k, ITEMS));
	kb_store(k, kb_load(k, KB_F32_T, in, kb_add(k, base, item), 0, 4), shared, item, 0, 4);
	kb_barrier(k);
	struct kb_val other = kb_sub(k, kb_index(k, ITEMS - 1), item);
	kb_store(k, kb_load(k, KB_F32_T, shared, other, 0, 4), out, kb_add(k, base, item), 0, 4);
}

/* Sums of each group by a tree; the first item writes it, and how many groups there are. */
static void tree_sum(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val shared = kb_shared(k, "partial", KB_F32, ITEMS);
	struct kb_val item = kb_item_id(k), group = kb_group_id(k);
	struct kb_val at = kb_add(k, kb_mul(k, group, kb_index(k, ITEMS)), item);
	kb_store(k, kb_load(k, KB_F32_T, in, at, 0, 4), shared, item, 0, 4);
	for (int64_t half = ITEMS / 2; half >= 1; half /= 2) {
		kb_barrier(k);
		kb_if(k, kb_cmp(k, KB_LT, item, kb_index(k, half)));
		struct kb_val sum = kb_add(k, kb_load(k, KB_F32_T, shared, item, 0, 4),
		                           kb_load(k, KB_F32_T, shared, item, half, 4));
		kb_store(k, sum, shared, item, 0, 4);
		kb_end_if(k);
	}
	kb_if(k, kb_cmp(k, KB_EQ, item, zero(k)));
	kb_store(k, kb_load(k, KB_F32_T, shared, zero(k), 0, 4), out, group, 0, 4);
	kb_store(k, kb_cvt(k, kb_group_count(k), KB_F32), out, group, GROUPS, 4);
	kb_end_if(k);
}

START_TEST(shares_memory)
{
	float in[GROUPS * ITEMS];
	for (int i = 0; i < GROUPS * ITEMS; i++)
		in[i] = (float)(i * i % 1000);
	struct opencl_case c = {.body = reverse,
	                        .in = in,
	                        .in_bytes = sizeof(in),
	                        .out_bytes = sizeof(in),
	                        .groups = GROUPS,
	                        .items = ITEMS};
	opencl_case_check(&c);
	c.body = tree_sum;
	c.out_bytes = 2 * GROUPS * sizeof(float);
	opencl_case_check(&c);
}
END_TEST

/* ---- the text ---- */

static void text_body(struct kb *k, struct kb_val in, struct kb_val out)
{
	kb_source_loc(k, &(struct kb_loc){"model.yaml", "encoder.up", 12, 3});
	struct kb_val a = load(k, in, 4, 0);
	kb_store(k, kb_fma(k, a, a, kb_splat(k, kb_f32(k, 0.1f), 4)), out, zero(k), 0, 4);
}

static void check_has(const struct buf *text, const char *part)
{
	ck_assert_msg(strstr(text->data, part), "no `%s` in\n%s", part, text->data);
}

START_TEST(reads_well)
{
	static const char *const parts[] = {
	        "typedef int idx;",
	        "#pragma OPENCL FP_CONTRACT OFF",
	        "#line 1 \"model.yaml:12:3 encoder.up\"\n__kernel",
	        "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))",
	        "__global const uchar *restrict in",
	        "__global uchar *restrict out",
	        "((__global const struct packed4_float4 *)((__global const float *)in))->v",
	        "0x1.99999ap-4f",
	};
	struct opencl_case c = {.body = text_body, .in = &numbers, .in_bytes = 16, .out_bytes = 16};
	struct buf text;
	opencl_case_print(&c, &text);
	for (size_t i = 0; i < TFMC_COUNT(parts); i++)
		check_has(&text, parts[i]);
	buf_destroy(&text);
}
END_TEST

/* ---- what is refused ---- */

static void doubles(struct kb *k, struct kb_val in, struct kb_val out)
{
	kb_store(k, kb_load(k, KB_TYPE(KB_F64, 1), in, zero(k), 0, 8), out, zero(k), 0, 8);
}

static void atomics(struct kb *k, struct kb_val in, struct kb_val out)
{
	kb_atomic_store(k, kb_atomic_load(k, in, 0), out, 0);
}

static void stored_pointers(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val p = kb_load(k, KB_PTR_T, in, zero(k), 0, 8);
	kb_store(k, kb_load(k, KB_F32_T, p, zero(k), 0, 4), out, zero(k), 0, 4);
}

static void two_spaces(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val room = kb_local(k, "room", KB_F32, 4);
	struct kb_val which = kb_cmp(k, KB_EQ, kb_load(k, KB_I32_T, in, zero(k), 0, 4), kb_i32(k, 0));
	struct kb_val p = kb_select(k, which, in, room);
	kb_store(k, kb_load(k, KB_F32_T, p, zero(k), 0, 4), out, zero(k), 0, 4);
}

static void wide_vectors(struct kb *k, struct kb_val in, struct kb_val out)
{
	kb_store(k, kb_load(k, KB_TYPE(KB_F32, 32), in, zero(k), 0, 4), out, zero(k), 0, 4);
}

static void exported(struct kb_module *m)
{
	kb_end(kb_begin(m, "entry", KB_EXPORTED, KB_VOID));
}

static void nothing(struct kb *k, struct kb_val in, struct kb_val out)
{
	(void)k, (void)in, (void)out;
}

START_TEST(refuses_what_the_language_lacks)
{
	static const struct {
		opencl_case_body *body;
		opencl_case_module *functions;
		const char *message;
	} rows[] = {
	        {doubles, NULL, "case_kernel"},
	        {atomics, NULL, "case_kernel"},
	        {stored_pointers, NULL, "case_kernel loads a pointer"},
	        {two_spaces, NULL, "case_kernel uses one pointer for two address spaces"},
	        {wide_vectors, NULL, "case_kernel"},
	        {nothing, exported, "entry"},
	};
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		struct opencl_case c = {.body = rows[i].body,
		                        .functions = rows[i].functions,
		                        .in = &numbers,
		                        .in_bytes = sizeof(numbers),
		                        .out_bytes = 4};
		opencl_case_refused(&c, rows[i].message);
	}
}
END_TEST

Suite *suite_cfamily_opencl(void);
Suite *suite_cfamily_opencl(void)
{
	Suite *s = suite_create("cfamily_opencl");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 300);
	tcase_add_test(t, reads_strings);
	tcase_add_test(t, shares_memory);
	tcase_add_test(t, reads_well);
	tcase_add_test(t, refuses_what_the_language_lacks);
	tcase_add_test(t, shuffles_lanes);
	tcase_add_test(t, reduces_by_one_tree);
	tcase_add_test(t, moves_memory);
	tcase_add_test(t, follows_pointers);
	tcase_add_test(t, calls_functions);
	suite_add_tcase(s, t);
	return s;
}
