/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight files: opening beneath a directory, name clashes, indices, stripping,
 * ignoring, suggestions, globs.
 */
#include <check.h>
#include <string.h>

#include "frontend/weights/safetensors.h"
#include "frontend/weights/files.h"
#include "ir/support/glob.h"
#include "tests/support/reading.h"

Suite *suite_weight_files(void);

static struct reading r;
static struct weight_files *wf;

static void setup(void)
{
	reading_init(&r);
	wf = weight_files_create(&r.arena, &r.cx, NULL);
}

static void teardown(void)
{
	weight_files_destroy(wf);
	reading_destroy(&r);
}

/* A file of f32 tensors [2] with these names. */
static void write_tensors(const char *file, const char *const *names, size_t n)
{
	static const float data[2] = {1, 2};
	struct stored_tensor items[8];
	struct buf out;
	buf_init(&out);
	for (size_t i = 0; i < n; i++)
		items[i] = (struct stored_tensor){
		        .name = names[i], .dtype = DT_F32, .rank = 1, .dims = {2}, .data = data, .bytes = 8};
	ck_assert(safetensors_write(&out, items, n));
	reading_write(&r, file, out.data, out.len);
	buf_destroy(&out);
}

#define WRITE(file, ...)                                        \
	write_tensors(file, (const char *const[]){__VA_ARGS__}, \
	              TFMC_COUNT(((const char *const[]){__VA_ARGS__})))

static enum tfmc_status open_all(const char *yaml)
{
	return weight_files_open_all(wf, r.dir, reading_yaml(&r, yaml));
}

START_TEST(two_files)
{
	WRITE("a.safetensors", "x.w", "x.b");
	WRITE("b.safetensors", "y.w");
	ck_assert_int_eq(open_all("[a.safetensors, b.safetensors]"), TFMC_OK);
	ck_assert_uint_eq(weight_files_count(wf), 3);
	const struct stored_tensor *t = weight_files_find(wf, "y.w");
	ck_assert_str_eq(t->file, "b.safetensors");
	ck_assert_uint_eq(t->loc.col, 17);
	ck_assert(t->readable && t->bytes == 8 && !t->used);
	struct weight_source src = weight_files_source(wf);
	struct weight_bytes bytes;
	ck_assert_int_eq(src.read(src.user, &r.cx, "b.safetensors", "y.w", &bytes), TFMC_OK);
	ck_assert_mem_eq(bytes.data, ((const float[]){1, 2}), 8);
	ck_assert_int_eq(src.read(src.user, &r.cx, "a.safetensors", "y.w", &bytes), TFMC_IO);
	ck_assert_ptr_null(weight_files_find(wf, "z"));
}
END_TEST

START_TEST(same_tensor_twice)
{
	WRITE("a.safetensors", "x.w");
	WRITE("b.safetensors", "x.w");
	ck_assert_int_eq(open_all("[a.safetensors, b.safetensors]"), TFMC_INVALID);
	ck_assert(reading_says(&r, "the tensor 'x.w' is in 'a.safetensors' and in 'b.safetensors'"));
}
END_TEST

static const char *const bad_names[][2] = {
        {"../a.safetensors", "there is no such file"},
        {"/a.safetensors", "cannot read '/a.safetensors': there is no such file"},
        {"''", "is empty"},
        {"none.safetensors", "there is no such file"},
        {"a.bin", "'a.bin' is of no known format"},
        {"a.h5", "not supported: weight files of format '.h5'"},
        {"a.txt", "of no known format"},
        {"a.gguf", "'a.gguf': at byte"},
        {"a.npz", "no end record"},
        {"{a: b}", "wants a single value"},
        {"~", "[E115]"},
};

START_TEST(names_of_files)
{
	WRITE("a.safetensors", "x.w");
	reading_write(&r, "a.bin", "anything at all", 15);
	reading_write(&r, "a.h5", "anything at all", 15);
	reading_write(&r, "a.txt", "anything at all", 15);
	reading_write(&r, "a.gguf", "GGUF", 4);
	reading_write(&r, "a.npz", "PK\3\4", 4);
	ck_assert_int_ne(open_all(bad_names[_i][0]), TFMC_OK);
	ck_assert_msg(reading_says(&r, bad_names[_i][1]), "%s", r.log.data);
}
END_TEST

START_TEST(empty_files)
{
	reading_write(&r, "e.safetensors", "", 0);
	ck_assert_int_eq(open_all("e.safetensors"), TFMC_INVALID);
	ck_assert(reading_says(&r, "'e.safetensors': it has 0 bytes"));
}
END_TEST

/* The format of a file is determined by its bytes. */
START_TEST(formats_by_their_bytes)
{
	static const char npy[] =
	        "\x93NUMPY\1\0\x39\0{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}\n"
	        "abcdefghijklmnopqrstuvwx";
	static const char gguf[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
	struct weight_bytes bytes;
	WRITE("a.gguf", "x.w");
	reading_write(&r, "b.safetensors", gguf, 24);
	reading_write(&r, "y", npy, sizeof(npy) - 1);
	ck_assert_msg(open_all("[a.gguf, b.safetensors, y]") == TFMC_OK, "%s", r.log.data);
	ck_assert_uint_eq(weight_files_count(wf), 2);
	const struct stored_tensor *t = weight_files_find(wf, "y");
	ck_assert(t->reversed && t->dims[0] == 2);
	weight_tensor_data(t, &bytes);
	ck_assert(bytes.dims[0] == 3 && bytes.dims[1] == 2);
}
END_TEST

static enum tfmc_status open_index(const char *json)
{
	WRITE("s1.safetensors", "x.w", "x.b");
	WRITE("s2.safetensors", "y.w");
	reading_write(&r, "m.safetensors.index.json", json, strlen(json));
	return open_all("m.safetensors.index.json");
}

START_TEST(index_of_shards)
{
	ck_assert_int_eq(open_index("{\"metadata\":{},\"weight_map\":{\"x.w\":\"s1.safetensors\",\"x.b\":"
	                            "\"s1.safetensors\","
	                            "\"y.w\":\"s2.safetensors\"}}"),
	                 TFMC_OK);
	ck_assert_uint_eq(weight_files_count(wf), 3);
	ck_assert_str_eq(weight_files_find(wf, "y.w")->file, "s2.safetensors");
}
END_TEST

static const char *const bad_indices[] = {
        "{}",
        "{\"weight_map\":{\"x.w\":3}}",
        "{\"weight_map\":{\"x.w\":\"../s1.safetensors\"}}",
        "{\"weight_map\":{\"x.w\":\"s2.safetensors\"}}",
        "{\"weight_map\":{\"nope\":\"s1.safetensors\"}}",
        "{\"weight_map\":{\"x.w\":\"..\"}}",
        "nonsense",
};

START_TEST(wrong_indices)
{
	ck_assert_int_eq(open_index(bad_indices[_i]), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, "[E406]"), "%s", r.log.data);
}
END_TEST

START_TEST(strip_and_ignore)
{
	WRITE("a.safetensors", "model.x.w", "model.x.b", "head.w", "pos_ids");
	ck_assert_int_eq(open_all("a.safetensors"), TFMC_OK);
	ck_assert_int_eq(weight_files_strip(wf, reading_yaml(&r, "[bert., model.]")), TFMC_OK);
	ck_assert_ptr_nonnull(weight_files_find(wf, "x.w"));
	ck_assert_ptr_null(weight_files_find(wf, "model.x.w"));
	ck_assert_str_eq(weight_files_find(wf, "x.w")->name, "model.x.w");
	ck_assert_ptr_nonnull(weight_files_find(wf, "head.w"));
	ck_assert_int_eq(weight_files_ignore(wf, reading_yaml(&r, "['x.*', pos_ids]")), TFMC_OK);
	ck_assert(weight_files_find(wf, "x.w")->ignored && weight_files_find(wf, "pos_ids")->ignored);
	ck_assert(!weight_files_find(wf, "head.w")->ignored);
	ck_assert_int_eq(weight_files_strip(wf, reading_yaml(&r, "[bert.]")), TFMC_INVALID);
	ck_assert(reading_says(&r, "no tensor name begins with 'bert.'"));
	ck_assert_int_eq(weight_files_strip(wf, reading_yaml(&r, "[bert., '']")), TFMC_OK);
	ck_assert_ptr_nonnull(weight_files_find(wf, "x.w"));
}
END_TEST

START_TEST(stripping_to_equal_names)
{
	WRITE("a.safetensors", "model.x.w", "x.w");
	ck_assert_int_eq(open_all("a.safetensors"), TFMC_OK);
	ck_assert_int_eq(weight_files_strip(wf, reading_yaml(&r, "model.")), TFMC_INVALID);
	ck_assert(reading_says(&r, "have the same name [E207]"));
}
END_TEST

START_TEST(suggestions)
{
	WRITE("a.safetensors", "layers.0.attn.q.weight", "layers.1.attn.q.weight", "embed",
	      "layers.0.mlp.up.weight");
	ck_assert_int_eq(open_all("a.safetensors"), TFMC_OK);
	ck_assert_ptr_nonnull(
	        strstr(weight_files_nearest(wf, "layers.0.attention.q.weight"), "layers.0.attn.q.weight"));
	ck_assert_str_eq(weight_files_nearest(wf, "completely.different_thing"), "");
	struct stored_tensor added = {.name = "completely.different_things", .file = "a.safetensors"};
	ck_assert(weight_files_add(wf, &added));
	ck_assert_str_eq(weight_files_nearest(wf, "completely.different_thing"), added.name);
	ck_assert_uint_eq(weight_name_similarity("abXcd", "abYYcd"), 4);
}
END_TEST

static const struct glob_case {
	const char *glob, *text;
	bool matches;
} globs[] = {
        {"a.b", "a.b", true},
        {"a.*.c", "a.b.c", true},
        {"a.*.c", "a.b.b.c", true},
        {"a.**.c", "a.b.b.c", true},
        {"cls.**", "cls.x.y", true},
        {"cls.*", "cls.x.y", true},
        {"*.bias", "a.b.bias", true},
        {"*.pe", "encoder.0.pe", true},
        {"**.bias", "a.b.bias", true},
        {"h.*.attn.{bias,masked_bias}", "h.0.attn.masked_bias", true},
        {"h.*.attn.{bias,masked_bias}", "h.0.attn.weight", false},
        {"{a,b}{c,}", "b", true},
        {"{a,b}{c,}", "bc", true},
        {"*a*b*", "xaYYbz", true},
        {"*a*b*", "xbYYaz", false},
        {"*a", "aaaa", true},
        {"**a.b", "a.b.a.b", true},
        {"*", "a.b", true},
        {"*", "", true},
        {"h.?", "h.3", true},
        {"h.?", "h.13", false},
        {"*a*b", "aabab", true},
        {"*a*b", "aabaa", false},
        {"h", "h.0", false},
        {"h.0", "h", false},
        {"**", "a.b", true},
        {"", "", true},
        {"", "a", false},
        {"{a", "{a", true},
        {"a.*", "a", false},
};

START_TEST(glob_matching)
{
	ck_assert_msg(glob_match(globs[_i].glob, globs[_i].text) == globs[_i].matches, "%s %s",
	              globs[_i].glob, globs[_i].text);
}
END_TEST

START_TEST(hostile_globs_end)
{
	char glob[900], text[2000];
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (size_t i = 0; i < 890; i += 3)
		memcpy(glob + i, "**a", 4);
	glob[888] = 'b';
	glob[889] = '\0';
	ck_assert(!glob_match(glob, text));
	glob[0] = '\0';
	for (size_t i = 0; i < 150; i++)
		memcpy(glob + i * 5, "{a,a}", 6);
	ck_assert(!glob_match(glob, text));
}
END_TEST

Suite *suite_weight_files(void)
{
	Suite *s = suite_create("weight_files");
	TCase *t = tcase_create("weight_files");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, two_files);
	tcase_add_test(t, same_tensor_twice);
	tcase_add_loop_test(t, names_of_files, 0, (int)TFMC_COUNT(bad_names));
	tcase_add_test(t, empty_files);
	tcase_add_test(t, formats_by_their_bytes);
	tcase_add_test(t, index_of_shards);
	tcase_add_loop_test(t, wrong_indices, 0, (int)TFMC_COUNT(bad_indices));
	tcase_add_test(t, strip_and_ignore);
	tcase_add_test(t, stripping_to_equal_names);
	tcase_add_test(t, suggestions);
	tcase_add_loop_test(t, glob_matching, 0, (int)TFMC_COUNT(globs));
	tcase_add_test(t, hostile_globs_end);
	suite_add_tcase(s, t);
	return s;
}
