/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of ONNX: tensors in every encoding, external data, messages that lie, and damage; and the import of a graph
 * whose shape arithmetic is folded, as it is and damaged.
 */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "frontend/onnx/onnx.h"
#include "frontend/weights/files.h"
#include "frontend/weights/onnx.h"
#include "tests/support/random/rng.h"
#include "tests/support/reading.h"

Suite *suite_onnx(void);

static struct reading r;

static void setup(void)
{
	reading_init(&r);
}

static void teardown(void)
{
	reading_destroy(&r);
}

/* ---- messages ---- */

static void put_varint(struct buf *out, uint64_t v)
{
	for (; v > 127; v >>= 7)
		buf_char(out, (char)((v & 127) | 128));
	buf_char(out, (char)v);
}

static void put_int(struct buf *out, unsigned number, int64_t v)
{
	put_varint(out, number << 3);
	put_varint(out, (uint64_t)v);
}

static void put_bytes(struct buf *out, unsigned number, const void *bytes, size_t n)
{
	put_varint(out, number << 3 | 2);
	put_varint(out, n);
	buf_bytes(out, bytes, n);
}

static void put_text(struct buf *out, unsigned number, const char *text)
{
	put_bytes(out, number, text, strlen(text));
}

/* A message, which is then empty again. */
static void put_message(struct buf *out, unsigned number, struct buf *message)
{
	put_bytes(out, number, message->data, message->len);
	buf_clear(message);
}

static struct buf model, graph, message, inner;

static void begin(void)
{
	struct buf *const all[] = {&model, &graph, &message, &inner};
	for (size_t i = 0; i < TFMC_COUNT(all); i++)
		buf_init(all[i]);
	put_int(&model, 1, 8);
	put_int(&message, 2, 17);
	put_message(&model, 8, &message);
}

static void end(void)
{
	buf_destroy(&model);
	buf_destroy(&graph);
	buf_destroy(&message);
	buf_destroy(&inner);
}

/* The head of a tensor in `message`. */
static void put_tensor(const char *name, int type, const int64_t *dims, size_t rank)
{
	for (size_t i = 0; i < rank; i++)
		put_int(&message, 1, dims[i]);
	put_int(&message, 2, type);
	put_text(&message, 8, name);
}

#define DIMS(...) (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

static enum tfmc_status read_graph(struct stored_tensors *out)
{
	put_message(&model, 7, &graph);
	const struct stored_source s = {
	        &r.arena, &r.cx, "m.onnx", LOC_NONE, (const unsigned char *)model.data, model.len, false};
	return onnx_read(&s, out);
}

static const float floats[] = {1.5F, -2.0F, 3.25F};

/* ---- tensors ---- */

START_TEST(tensors_of_every_encoding)
{
	struct stored_tensors st;
	begin();
	put_tensor("raw", 1, DIMS(3));
	put_bytes(&message, 9, floats, sizeof(floats));
	put_message(&graph, 5, &message);
	put_tensor("packed", 1, DIMS(3));
	put_bytes(&message, 4, floats, sizeof(floats));
	put_message(&graph, 5, &message);
	put_bytes(&message, 1, "\1\2", 2); /* packed dims */
	put_tensor("longs", 7, NULL, 0);
	put_int(&message, 7, -5);
	put_int(&message, 7, INT64_MAX);
	put_message(&graph, 5, &message);
	put_tensor("halves", 10, DIMS(2));
	put_bytes(&message, 5, "\x80\x78\x80\x80\x03", 5); /* 0x3c00, 0xc000 */
	put_message(&graph, 5, &message);
	put_text(&inner, 1, "value");
	put_tensor("", 9, DIMS(2));
	put_bytes(&message, 5, "\1\0", 2);
	put_message(&inner, 5, &message);
	put_int(&inner, 20, 4);
	put_message(&message, 5, &inner);
	put_text(&message, 4, "Constant");
	put_text(&message, 2, "c");
	put_message(&graph, 1, &message);
	ck_assert_int_eq(read_graph(&st), TFMC_OK);
	ck_assert_uint_eq(st.n, 5);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_double_eq(stored_element(&st.items[0], i), (double)floats[i]);
		ck_assert_double_eq(stored_element(&st.items[1], i), (double)floats[i]);
	}
	ck_assert_int_eq(st.items[2].rank, 2);
	ck_assert_double_eq(stored_element(&st.items[2], 0), -5);
	ck_assert_double_eq(stored_element(&st.items[3], 0), 1);
	ck_assert_double_eq(stored_element(&st.items[3], 1), -2);
	ck_assert_str_eq(st.items[4].name, "c");
	ck_assert_double_eq(stored_element(&st.items[4], 0), 1);
	end();
}
END_TEST

static void put_external(const char *location, const char *offset, const char *length)
{
	const char *const entries[][2] = {{"location", location}, {"offset", offset}, {"length", length}};
	for (size_t i = 0; i < TFMC_COUNT(entries); i++) {
		put_text(&inner, 1, entries[i][0]);
		put_text(&inner, 2, entries[i][1]);
		put_message(&message, 13, &inner);
	}
	put_int(&message, 14, 1);
}

/* Data in another file of the directory: found, too short, and outside of it. */
START_TEST(external_data)
{
	static const struct {
		const char *location, *offset, *length, *says;
	} rows[] = {
	        {"w.bin", "4", "12", NULL},
	        {"w.bin", "8", "12", "its 12 bytes at byte 8 of 'w.bin' are not there"},
	        {"w.bin", "4", "8", "its 12 bytes at byte 4 of 'w.bin' are not there"},
	        {"w.bin", "-4", "12", "its offset '-4' is no number"},
	        {"w.bin", "18446744073709551612", "12", "is no number"},
	        {"../w.bin", "4", "12", "the file name '../w.bin'"},
	        {"/etc/passwd", "0", "12", "the file name '/etc/passwd'"},
	        {"none.bin", "4", "12", "there is no such file"},
	};
	char bytes[16] = "head";
	memcpy(bytes + 4, floats, sizeof(floats));
	reading_write(&r, "w.bin", bytes, sizeof(bytes));
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		begin();
		put_tensor("w", 1, DIMS(3));
		put_external(rows[i].location, rows[i].offset, rows[i].length);
		put_message(&graph, 5, &message);
		put_message(&model, 7, &graph);
		reading_write(&r, "m.onnx", model.data, model.len);
		struct weight_files *wf = weight_files_create(&r.arena, &r.cx, NULL);
		enum tfmc_status st = weight_files_open(wf, r.dir, "m.onnx", LOC_NONE);
		if (rows[i].says == NULL) {
			ck_assert_int_eq(st, TFMC_OK);
			ck_assert_double_eq(stored_element(weight_files_find(wf, "w"), 2), 3.25);
		} else {
			ck_assert_int_ne(st, TFMC_OK);
			ck_assert_msg(reading_says(&r, rows[i].says), "%s, found %s", rows[i].says,
			              r.log.data);
		}
		weight_files_destroy(wf);
		reading_clear(&r);
		end();
	}
}
END_TEST

/* ---- messages that lie ---- */

START_TEST(refused)
{
	static const char *const says[] = {"it has 12 bytes, its shape 16",
	                                   "its shape is too large",
	                                   "negative size",
	                                   "rank is above 8",
	                                   "it has the unknown type 99",
	                                   "it has 3 elements, its shape 2",
	                                   "is there twice",
	                                   "a tensor in segments",
	                                   "it has no graph",
	                                   "it has two graphs",
	                                   "is no UTF-8 text",
	                                   "cut off",
	                                   "in a file without a name",
	                                   "a tensor in it has no name"};
	for (int i = 0; i < (int)TFMC_COUNT(says); i++) {
		struct stored_tensors st;
		begin();
		static const int64_t many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
		const int64_t size = i == 0 ? 4 : i == 1 ? INT64_MAX : i == 2 ? -1 : i == 5 ? 2 : 3;
		put_tensor(i == 10   ? "\xff"
		           : i == 13 ? ""
		                     : "w",
		           i == 4 ? 99 : 1, i == 3 ? many : &size, i == 3 ? 9 : 1);
		if (i == 7)
			put_text(&message, 3, "");
		if (i == 12)
			put_int(&message, 14, 1);
		put_bytes(&message, i == 5 ? 4 : 9, floats, sizeof(floats));
		struct buf again;
		buf_init(&again);
		buf_append(&again, &message);
		put_message(&graph, 5, &message);
		if (i == 6)
			put_message(&graph, 5, &again);
		buf_destroy(&again);
		if (i == 9) {
			put_bytes(&model, 7, "", 0);
		}
		if (i == 11)
			put_varint(&graph, 5 << 3 | 2), put_varint(&graph, 1 << 20);
		if (i == 8) {
			const struct stored_source s = {
			        &r.arena,  &r.cx, "m.onnx", LOC_NONE, (const unsigned char *)model.data,
			        model.len, false};
			ck_assert_int_eq(onnx_read(&s, &st), TFMC_INVALID);
		} else
			ck_assert_int_eq(read_graph(&st), TFMC_INVALID);
		ck_assert_msg(reading_says(&r, says[i]) ||
		                      (i == 5 && reading_says(&r, "more elements than its shape")),
		              "%s, found %s", says[i], r.log.data);
		reading_clear(&r);
		end();
	}
}
END_TEST

/* A ninth axis of an input, as a message and as a number: the reader has memory for eight. */
START_TEST(input_with_nine_axes)
{
	struct stored_tensors st;
	struct buf shape, tensor;
	begin();
	buf_init(&shape);
	buf_init(&tensor);
	for (int i = 0; i < 8 + (_i == 0); i++)
		put_bytes(&shape, 1, "", 0);
	if (_i == 1)
		put_int(&shape, 1, 1);
	put_int(&tensor, 1, 1);
	put_message(&tensor, 2, &shape);
	put_message(&inner, 1, &tensor);
	put_text(&message, 1, "x");
	put_message(&message, 2, &inner);
	put_message(&graph, 11, &message);
	ck_assert_int_eq(read_graph(&st), TFMC_INVALID);
	ck_assert(reading_says(&r, _i == 0 ? "more than 8 axes" : "its field 1 is no message"));
	buf_destroy(&shape);
	buf_destroy(&tensor);
	end();
}
END_TEST

/* ---- import ---- */

static void put_value(unsigned number, const char *name, int type, const char *const *sizes, size_t rank)
{
	struct buf shape, size, tensor;
	buf_init(&shape);
	buf_init(&size);
	buf_init(&tensor);
	for (size_t i = 0; i < rank; i++) {
		if (sizes[i][0] >= '0' && sizes[i][0] <= '9')
			put_int(&size, 1, sizes[i][0] - '0');
		else
			put_text(&size, 2, sizes[i]);
		put_message(&shape, 1, &size);
	}
	put_int(&tensor, 1, type);
	put_message(&tensor, 2, &shape);
	put_message(&inner, 1, &tensor);
	put_text(&message, 1, name);
	put_message(&message, 2, &inner);
	put_message(&graph, number, &message);
	buf_destroy(&shape);
	buf_destroy(&size);
	buf_destroy(&tensor);
}

/* A node: operands and result separated by blanks; attribute: an int, or NULL. */
static void put_node(const char *op, const char *inputs, const char *output, const char *attribute,
                     int64_t value)
{
	struct word w = {inputs, 0};
	while (list_word_next(&w))
		put_bytes(&message, 1, w.text, w.n);
	put_text(&message, 2, output);
	put_text(&message, 3, "/block/node");
	put_text(&message, 4, op);
	if (attribute != NULL) {
		put_text(&inner, 1, attribute);
		put_int(&inner, 3, value);
		put_int(&inner, 20, 2);
		put_message(&message, 5, &inner);
	}
	put_message(&graph, 1, &message);
}

static void put_longs(const char *name, const int64_t *values, size_t n, size_t rank)
{
	const int64_t size = (int64_t)n;
	put_tensor(name, 7, &size, rank);
	put_bytes(&message, 9, values, n * sizeof(*values));
	put_message(&graph, 5, &message);
}

/* A linear layer, and a reshape to heads by the arithmetic that exporters write. */
static void put_heads(void)
{
	static const char *const sizes[] = {"batch size", "seq", "4"}, *const out[] = {"batch size", "seq",
	                                                                               "2", "2"};
	static const float weight[16] = {1, 2, 3, 4, 5, 6, 7, 8}, bias[4] = {1};
	put_value(11, "x", 1, sizes, 3);
	put_value(12, "y", 1, out, 4);
	put_tensor("onnx::MatMul_7", 1, DIMS(4, 4));
	put_bytes(&message, 9, weight, sizeof(weight));
	put_message(&graph, 5, &message);
	put_tensor("query.bias", 1, DIMS(4));
	put_bytes(&message, 9, bias, sizeof(bias));
	put_message(&graph, 5, &message);
	put_longs("zero", (const int64_t[]){0}, 1, 0);
	put_longs("one", (const int64_t[]){1}, 1, 0);
	put_longs("axis", (const int64_t[]){0}, 1, 1);
	put_longs("heads", (const int64_t[]){2, -1}, 2, 1);
	put_node("MatMul", "x onnx::MatMul_7", "product", NULL, 0);
	put_node("Add", "query.bias product", "sum", NULL, 0);
	put_node("Shape", "x", "shape", NULL, 0);
	put_node("Gather", "shape zero", "b", "axis", 0);
	put_node("Gather", "shape one", "s", "axis", 0);
	put_node("Unsqueeze", "b axis", "b1", NULL, 0);
	put_node("Unsqueeze", "s axis", "s1", NULL, 0);
	put_node("Concat", "b1 s1 heads", "list", "axis", 0);
	put_node("Reshape", "sum list", "split", NULL, 0);
	put_node("Softmax", "split", "y", "axis", -1);
	put_message(&model, 7, &graph);
}

static const char *import_model(enum tfmc_status *st)
{
	static const char *const dims[] = {"batch size=1..4", "seq=1..64"};
	const struct frontend_options options = {.dims = dims, .n_dims = 2};
	reading_write(&r, "m.onnx", model.data, model.len);
	return onnx_model_text(&r.arena, &r.cx, arena_printf(&r.arena, "%s/m.onnx", r.dir), "", &options, st);
}

START_TEST(import_of_a_graph)
{
	enum tfmc_status st;
	begin();
	put_heads();
	const char *text = import_model(&st);
	ck_assert_msg(text != NULL, "%s", r.log.data);
	ck_assert_str_eq(text, "tfmc: 1\nname: m\ndims:\n  batch_size: 1..4\n  seq: 1..64\ninputs:\n"
	                       "  x_in: {shape: [batch_size, seq, 4], dtype: f32}\ngraph:\n  # /block\n"
	                       "  - sum = linear(x_in, \"block\", out=4)\n"
	                       "  - split = reshape(sum, [batch_size, seq, 2, 2])\n"
	                       "  - y = softmax(split, axis=3)\n"
	                       "outputs:\n  y: y\nweights:\n  files: ['m.onnx']\n  map:\n"
	                       "    'block.weight': {from: 'onnx::MatMul_7', transpose: true}\n"
	                       "    'block.bias': 'query.bias'\n"
	                       "  ignore: ['zero',\n    'one',\n    'axis',\n    'heads']\n");
	end();
}
END_TEST

/* Known remainders have the sign of the divisor, with fmod that of the dividend. */
START_TEST(import_of_known_remainders)
{
	static const char *const sizes[] = {"batch size", "seq", "4"};
	for (int fmod = 0; fmod < 2; fmod++) {
		enum tfmc_status st;
		begin();
		put_value(11, "x", 7, sizes, 3);
		put_value(12, "y", 7, sizes, 3);
		put_longs("a", (const int64_t[]){-1}, 1, 0);
		put_longs("b", (const int64_t[]){3}, 1, 0);
		put_node("Mod", "a b", "m", "fmod", fmod);
		put_node("Add", "x m", "y", NULL, 0);
		put_message(&model, 7, &graph);
		const char *text = import_model(&st);
		ck_assert_msg(text != NULL, "%s", r.log.data);
		ck_assert_msg(strstr(text, fmod ? "x_in + (-1)" : "x_in + 2") != NULL, "%s", text);
		end();
	}
}
END_TEST

/* The least of unsigned bytes; the lesser of two known numbers, of which one is NaN, is NaN, which no constant is. */
START_TEST(import_of_least_numbers)
{
	static const char *const sizes[] = {"batch size", "seq", "4"};
	static const float nan[4] = {NAN, 1, 2, 3}, ones[4] = {1, 1, 1, 1};
	for (int round = 0; round < 2; round++) {
		enum tfmc_status st;
		begin();
		put_value(11, "x", 2, sizes, 3);
		put_value(12, "y", 7, sizes + 1, 2);
		put_node("ArgMin", "x", "y", "keepdims", 0);
		for (int i = 0; i < 2 && round == 1; i++) {
			put_tensor(i == 0 ? "a" : "b", 1, DIMS(4));
			put_bytes(&message, 9, i == 0 ? nan : ones, sizeof(nan));
			put_message(&graph, 5, &message);
		}
		if (round == 1) {
			put_value(12, "least", 1, sizes + 2, 1);
			put_node("Min", "a b", "least", NULL, 0);
		}
		put_message(&model, 7, &graph);
		const char *text = import_model(&st);
		ck_assert_msg(text == NULL || strstr(text, "argmax((neg(x_in) - 1), axis=0)") != NULL, "%s",
		              text);
		ck_assert_int_eq(text != NULL, round == 0);
		ck_assert(round == 0 || reading_says(&r, "a constant that is NaN"));
		reading_clear(&r);
		end();
	}
}
END_TEST

/* Four of five axes are repeated, one after another: an axis beside all of them would exceed the rank. */
START_TEST(import_of_tiles)
{
	static const char *const sizes[] = {"batch size", "seq", "4", "2", "3"};
	enum tfmc_status st;
	begin();
	put_value(11, "x", 1, sizes, 5);
	put_value(12, "y", 1, sizes, 5);
	put_longs("times", (const int64_t[]){2, 1, 3, 2, 2}, 5, 1);
	put_node("Tile", "x times", "y", NULL, 0);
	put_message(&model, 7, &graph);
	const char *text = import_model(&st);
	ck_assert_msg(text != NULL, "%s", r.log.data);
	ck_assert_msg(strstr(text, "[1, batch_size, seq, 4, 2, 3]), [2, batch_size, seq, 4, 2, 3])") !=
	                              NULL &&
	                      strstr(text, "[2*batch_size, seq, 12, 4, 6])\noutputs") != NULL,
	              "%s", text);
	end();
}
END_TEST

/* Attention written out, with casts between floats before and behind each node, as mixed precision has them. */
START_TEST(import_of_attention_with_casts)
{
	static const char *const sizes[] = {"batch size", "2", "seq", "4"}, *const keys[] = {"batch size",
	                                                                                     "2", "4", "seq"};
	static const float half = 0.5F;
	enum tfmc_status st;
	begin();
	put_value(11, "q", 1, sizes, 4);
	put_value(11, "k", 1, keys, 4);
	put_value(11, "v", 1, sizes, 4);
	put_value(11, "mask", 1, (const char *const[]){"batch size", "1", "seq", "seq"}, 4);
	put_value(12, "y", 1, sizes, 4);
	put_tensor("half", 1, NULL, 0);
	put_bytes(&message, 9, &half, sizeof(half));
	put_message(&graph, 5, &message);
	put_node("Cast", "q", "q_half", "to", 10);
	put_node("Cast", "k", "k_half", "to", 10);
	put_node("MatMul", "q_half k_half", "product", NULL, 0);
	put_node("Cast", "product", "product_float", "to", 1);
	put_node("Mul", "product_float half", "scaled", NULL, 0);
	put_node("Cast", "scaled", "scaled_half", "to", 10);
	put_node("Add", "scaled_half mask", "scores", NULL, 0);
	put_node("Cast", "scores", "scores_float", "to", 1);
	put_node("Softmax", "scores_float", "p", "axis", -1);
	put_node("Cast", "p", "p_half", "to", 10);
	put_node("MatMul", "p_half v", "y_half", NULL, 0);
	put_node("Cast", "y_half", "y", "to", 1);
	put_message(&model, 7, &graph);
	const char *text = import_model(&st);
	ck_assert_msg(text != NULL, "%s", r.log.data);
	ck_assert_msg(
	        strstr(text,
	               "graph:\n  # /block\n  - y_half = sdpa(q, transpose(k, [0, 1, 3, 2]), v, scale=0.5, "
	               "bias=mask)\noutputs:\n  y: y_half\n") != NULL,
	        "%s", text);
	end();
}
END_TEST

/* Attention of ONNX Runtime with a past of three axes. */
static void put_flat_past(void)
{
	static const char *const operands[] = {"x", "x", "x", "", "", "", "x", "x"};
	for (size_t i = 0; i < TFMC_COUNT(operands); i++)
		put_text(&message, 1, operands[i]);
	put_text(&message, 7, "com.microsoft");
	put_node("MultiHeadAttention", "", "y", "num_heads", 2);
}

/* Graphs that mutated files had: two whose text did not load, and a crash. */
START_TEST(graphs_refused)
{
	static const char *const sizes[] = {"batch size", "seq", "4"},
	                         *const says[] = {"a graph without outputs",
	                                          "MatMul of rows of 4 and a matrix of 2 rows",
	                                          "a past that is not keys and values of four axes"};
	static const float weight[8] = {1};
	for (size_t i = 0; i < TFMC_COUNT(says); i++) {
		enum tfmc_status st;
		begin();
		put_value(11, "x", 1, sizes, 3);
		if (i > 0)
			put_value(12, "y", 1, sizes, 3);
		put_tensor("w", 1, DIMS(2, 4));
		put_bytes(&message, 9, weight, sizeof(weight));
		put_message(&graph, 5, &message);
		if (i == 2)
			put_flat_past();
		else
			put_node("MatMul", "x w", "y", NULL, 0);
		put_message(&model, 7, &graph);
		ck_assert_ptr_null(import_model(&st));
		ck_assert_msg(reading_says(&r, says[i]), "%s, found %s", says[i], r.log.data);
		reading_clear(&r);
		end();
	}
}
END_TEST

/* Damage to the file: any answer but a crash, a hang, or a text after an error. */
START_TEST(random_damage)
{
	struct rng rng = rng_seed((uint64_t)_i + 1);
	int good = 0;
	begin();
	put_heads();
	struct buf whole;
	buf_init(&whole);
	buf_append(&whole, &model);
	for (int round = 0; round < 400; round++) {
		struct arena_mark mark = arena_mark(&r.arena);
		enum tfmc_status st;
		buf_clear(&model);
		buf_append(&model, &whole);
		for (int k = 0; k <= round % 3; k++) {
			size_t at = rng_next(&rng) % model.len, n = rng_next(&rng) % 9;
			size_t from = rng_next(&rng) % model.len, most = model.len - (at > from ? at : from);
			if (round % 4 == 0)
				memmove(model.data + at, model.data + from, n < most ? n : most);
			else
				model.data[at] =
				        (char)(round % 2 ? rng_next(&rng) : (uint64_t)(model.data[at] + 1));
		}
		model.len -= round % 11 == 0 ? rng_next(&rng) % model.len : 0;
		size_t errors = r.cx.n_errors;
		const char *text = import_model(&st);
		ck_assert_int_eq(text != NULL, st == TFMC_OK);
		ck_assert(text == NULL || r.cx.n_errors == errors);
		ck_assert(text != NULL || r.cx.n_errors > errors || st == TFMC_NO_MEMORY);
		good += text != NULL;
		reading_clear(&r);
		arena_release(&r.arena, mark);
	}
	ck_assert_int_gt(good, 0);
	buf_destroy(&whole);
	end();
}
END_TEST

Suite *suite_onnx(void)
{
	Suite *s = suite_create("onnx");
	TCase *t = tcase_create("onnx");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, tensors_of_every_encoding);
	tcase_add_test(t, external_data);
	tcase_add_test(t, refused);
	tcase_add_loop_test(t, input_with_nine_axes, 0, 2);
	tcase_add_test(t, import_of_a_graph);
	tcase_add_test(t, import_of_known_remainders);
	tcase_add_test(t, import_of_least_numbers);
	tcase_add_test(t, import_of_tiles);
	tcase_add_test(t, import_of_attention_with_casts);
	tcase_add_test(t, graphs_refused);
	tcase_add_loop_test(t, random_damage, 0, 4);
	suite_add_tcase(s, t);
	return s;
}
