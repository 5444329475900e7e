/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.save, new and old: views of storages, the dict that is read, every operation and global that is
 * refused, pickles and archives that lie, and damage.
 */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "frontend/weights/torch.h"
#include "ir/support/memory.h"
#include "tests/support/random/rng.h"
#include "tests/support/reading.h"

Suite *suite_torch(void);

static struct reading r;

static void setup(void)
{
	reading_init(&r);
}

static void teardown(void)
{
	reading_destroy(&r);
}

/* ---- pickles ---- */

#define BYTES(text) text, sizeof(text) - 1

/* A pickle; every part of it is an operation or several. */
static void put(struct buf *out, const char *bytes, size_t n)
{
	buf_bytes(out, bytes, n);
}

static void put_text(struct buf *out, const char *text)
{
	buf_char(out, 'X');
	buf_u32le(out, (uint32_t)strlen(text));
	buf_str(out, text);
}

/* The storage of this key: n elements of torch.CLASS. */
static void put_storage(struct buf *out, const char *class, const char *key, int n, bool is_old)
{
	buf_char(out, '(');
	put_text(out, "storage");
	buf_printf(out, "ctorch%s\n%s\n", strcmp(class, "UntypedStorage") == 0 ? ".storage" : "", class);
	put_text(out, key);
	put_text(out, "cuda:0");
	buf_char(out, 'K');
	buf_char(out, (char)n);
	buf_str(out, is_old ? "NtQ" : "tQ");
}

/* Shape and strides: operations that push two tuples. */
static void put_view(struct buf *out, const char *class, const char *key, int n, int offset,
                     const char *tuples, size_t len)
{
	buf_str(out, "ctorch._utils\n_rebuild_tensor_v2\n(");
	put_storage(out, class, key, n, false);
	buf_char(out, 'K');
	buf_char(out, (char)offset);
	put(out, tuples, len);
	buf_str(out, "\x89"
	             "ccollections\nOrderedDict\n)RtR");
}

#define MATRIX     BYTES("K\2K\3\x86K\3K\1\x86")
#define TRANSPOSED BYTES("K\3K\2\x86K\1K\3\x86")
#define VECTOR2    BYTES("K\2\x85K\1\x85")
#define SCALAR     BYTES("))")

/* ---- archives ---- */

struct entry {
	const char *name, *bytes;
	size_t n;
	unsigned method;
};

static void put_u16(struct buf *out, unsigned v)
{
	buf_char(out, (char)v);
	buf_char(out, (char)(v >> 8));
}

/* Fields of an entry in both directories. */
static void put_common(struct buf *out, const struct entry *e)
{
	put_u16(out, 20);
	put_u16(out, 0);
	put_u16(out, e->method);
	buf_fill(out, 0, 8); /* time, date, checksum */
	buf_u32le(out, (uint32_t)e->n);
	buf_u32le(out, (uint32_t)e->n);
	put_u16(out, (unsigned)strlen(e->name));
	put_u16(out, 0);
}

static void put_archive(struct buf *out, const struct entry *entries, size_t n)
{
	size_t places[8];
	for (size_t i = 0; i < n; i++) {
		places[i] = out->len;
		buf_bytes(out, "PK\3\4", 4);
		put_common(out, &entries[i]);
		buf_str(out, entries[i].name);
		buf_bytes(out, entries[i].bytes, entries[i].n);
	}
	size_t directory = out->len;
	for (size_t i = 0; i < n; i++) {
		buf_bytes(out, "PK\1\2\0\0", 6);
		put_common(out, &entries[i]);
		buf_fill(out, 0, 10); /* comment, disk, attributes */
		buf_u32le(out, (uint32_t)places[i]);
		buf_str(out, entries[i].name);
	}
	size_t bytes = out->len - directory;
	buf_bytes(out, "PK\5\6\0\0\0\0", 8);
	put_u16(out, (unsigned)n);
	put_u16(out, (unsigned)n);
	buf_u32le(out, (uint32_t)bytes);
	buf_u32le(out, (uint32_t)directory);
	put_u16(out, 0);
}

static const float six[6] = {0, 1, 2, 3, 4, 5};

/* Reads bytes in memory of exactly their length. Elements are read, too, so that a sanitizer sees where they are. */
static enum tfmc_status read_bytes(const struct buf *file, struct stored_tensors *out)
{
	unsigned char *bytes = memory_alloc(file->len);
	unsigned sum = 0;
	memcpy(bytes, file->data, file->len);
	enum tfmc_status st = torch_read(
	        &(struct stored_source){&r.arena, &r.cx, "w.pt", LOC_NONE, bytes, file->len, false}, out);
	for (size_t i = 0; i < out->n; i++) {
		struct stored_tensor *t = &out->items[i];
		unsigned char *copy = arena_alloc(&r.arena, t->bytes);
		for (size_t k = 0; k < t->bytes; k++)
			sum += copy[k] = ((const unsigned char *)t->data)[k];
		t->data = copy; /* the file goes */
	}
	ck_assert(sum < UINT32_MAX);
	ck_assert(st == TFMC_OK || (out->n == 0 && r.cx.n_errors > 0));
	memory_free(bytes);
	return st;
}

/* Reads an archive of this pickle, with the storage 0 of six floats and the empty storage 1. */
static enum tfmc_status read_pickle(const char *pickle, size_t n, struct stored_tensors *out)
{
	const struct entry entries[] = {{"m/data.pkl", pickle, n, 0},
	                                {"m/byteorder", "little", 6, 0},
	                                {"m/data/0", (const char *)six, sizeof(six), 0},
	                                {"m/data/1", "", 0, 0}};
	struct buf file;
	buf_init(&file);
	put_archive(&file, entries, 4);
	ck_assert(torch_has_magic((const unsigned char *)file.data, file.len));
	enum tfmc_status st = read_bytes(&file, out);
	buf_destroy(&file);
	return st;
}

static const struct stored_tensor *find(const struct stored_tensors *st, const char *name)
{
	for (size_t i = 0; i < st->n; i++)
		if (strcmp(st->items[i].name, name) == 0)
			return &st->items[i];
	ck_abort_msg("no tensor '%s'", name);
}

static void check_values(const struct stored_tensors *st, const char *name, const float *values, size_t n)
{
	const struct stored_tensor *t = find(st, name);
	ck_assert(t->readable && t->dtype == DT_F32 && t->bytes == 4 * n);
	ck_assert_mem_eq(t->data, values, 4 * n);
}

/* A dict of views that share a storage, as attributes of a module besides. */
static void put_views(struct buf *out)
{
	put(out, BYTES("\x80\2"
	               "ccollections\nOrderedDict\n)R("));
	put_text(out, "turned");
	put_view(out, "FloatStorage", "0", 6, 0, TRANSPOSED);
	put_text(out, "matrix");
	put_view(out, "FloatStorage", "0", 6, 0, MATRIX);
	put(out, BYTES("q\1"));
	put_text(out, "tied");
	put(out, BYTES("h\1"));
	put_text(out, "end");
	put_view(out, "FloatStorage", "0", 6, 4, VECTOR2);
	put_text(out, "scalar");
	put_view(out, "FloatStorage", "0", 6, 3, SCALAR);
	put_text(out, "every_second");
	put_view(out, "FloatStorage", "0", 6, 1, BYTES("K\3\x85K\2\x85"));
	put_text(out, "rows_of_one");
	put_view(out, "FloatStorage", "0", 6, 2, BYTES("K\2K\1\x86K\1K\7\x86"));
	put_text(out, "empty");
	put_view(out, "FloatStorage", "1", 0, 9, BYTES("K\0K\3\x86K\3K\1\x86"));
	put_text(out, "steps");
	put(out, BYTES("K\7"));
	put(out, BYTES("u}X\11\0\0\0_metadata}sb."));
}

START_TEST(views)
{
	struct stored_tensors st;
	struct buf pickle;
	buf_init(&pickle);
	put_views(&pickle);
	ck_assert_msg(read_pickle(pickle.data, pickle.len, &st) == TFMC_OK, "%s", r.log.data);
	buf_destroy(&pickle);
	ck_assert_uint_eq(st.n, 8);
	check_values(&st, "matrix", six, 6);
	check_values(&st, "tied", six, 6);
	check_values(&st, "turned", (const float[]){0, 3, 1, 4, 2, 5}, 6);
	check_values(&st, "end", six + 4, 2);
	check_values(&st, "scalar", six + 3, 1);
	check_values(&st, "every_second", (const float[]){1, 3, 5}, 3);
	check_values(&st, "rows_of_one", six + 2, 2);
	ck_assert(find(&st, "empty")->rank == 2 && find(&st, "empty")->dims[1] == 3);
	ck_assert(find(&st, "matrix")->rank == 2 && find(&st, "matrix")->dims[0] == 2);
	ck_assert_str_eq(st.items[st.n - 1].name, "end"); /* data order */
}
END_TEST

/* Types that have no class of storages; parameters; protocol 4. */
START_TEST(types_and_parameters)
{
	struct stored_tensors st;
	struct buf pickle;
	buf_init(&pickle);
	put(&pickle, BYTES("\x80\4\x95\1\0\0\0\0\0\0\0}\x94\x8c\1p\x8c\x0ctorch._utils\x8c\x12_rebuild_"
	                   "parameter\x93"));
	put_view(&pickle, "FloatStorage", "0", 6, 0, MATRIX);
	put(&pickle, BYTES("\x88}\x87Rs\x8c\1qctorch._utils\n_rebuild_tensor_v3\n("));
	put_storage(&pickle, "UntypedStorage", "1", 0, false);
	put(&pickle, BYTES("K\0K\0\x85K\1\x85\x89}ctorch\nfloat8_e4m3fn\nNtRs."));
	ck_assert_msg(read_pickle(pickle.data, pickle.len, &st) == TFMC_OK, "%s", r.log.data);
	ck_assert_uint_eq(st.n, 2);
	check_values(&st, "p", six, 6);
	ck_assert_str_eq(find(&st, "q")->type_name, "float8_e4m3fn");
	buf_destroy(&pickle);
}
END_TEST

/* A dict of one matrix under `key`, in a dict with another under `other`; NULL: no such entry. */
static enum tfmc_status read_nested(const char *key, const char *other, struct stored_tensors *out)
{
	struct buf pickle;
	buf_init(&pickle);
	put(&pickle, BYTES("\x80\2}("));
	for (int i = 0; i < 2; i++) {
		if ((i == 0 ? key : other) == NULL)
			continue;
		put_text(&pickle, i == 0 ? key : other);
		buf_char(&pickle, '}');
		put_text(&pickle, "w");
		put_view(&pickle, "FloatStorage", "0", 6, 3 * i, BYTES("K\3\x85K\1\x85"));
		buf_char(&pickle, 's');
	}
	put_text(&pickle, "step");
	put_view(&pickle, "FloatStorage", "0", 6, 0, SCALAR);
	put(&pickle, BYTES("K\1\x8a\x9\0\0\0\0\0\0\0\0\1u."));
	enum tfmc_status st = read_pickle(pickle.data, pickle.len, out);
	buf_destroy(&pickle);
	return st;
}

START_TEST(checkpoints)
{
	struct stored_tensors st;
	static const char *const keys[] = {"state_dict", "model_state_dict", "model"};
	for (size_t i = 0; i < TFMC_COUNT(keys); i++) {
		ck_assert_msg(read_nested(keys[i], "optimizer", &st) == TFMC_OK, "%s", r.log.data);
		ck_assert_uint_eq(st.n, 1);
		check_values(&st, "w", six, 3);
	}
	ck_assert_int_eq(read_nested("model", "state_dict", &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "it holds tensors under 'state_dict' and under 'model'"));
	ck_assert_int_eq(read_nested("net", NULL, &st), TFMC_OK); /* the scalar of the outer dict */
	ck_assert(st.n == 1 && st.items[0].rank == 0);
}
END_TEST

static const struct lie {
	const char *bytes;
	size_t n;
	const char *says;
} lies[] = {
        {BYTES("\x80\5}."), "at byte 40: its pickle has protocol 5, not 2 to 4, which is not read [E409]"},
        {BYTES("\x80\2cos\nsystem\nX\2\0\0\0id\x85R."), "at byte 42: its pickle has the global 'os.system'"},
        {BYTES("\x80\4\x8c\10builtins\x8c\4eval\x93."),
         "the global 'builtins.eval', which is not read [E409]"},
        {BYTES("ctorch\n_utils._rebuild_tensor_v2\n."), "the global 'torch._utils._rebuild_tensor_v2'"},
        {BYTES("ctorch._utils\nFloatStorage\n."), "the global 'torch._utils.FloatStorage'"},
        {BYTES("ccollections\nOrderedDict"), "the name of a global is no line of text"},
        {BYTES("cx\0y\nz\n."), "the name of a global is no line of text"},
        {BYTES("K\1K\2\x93."), "the name of a global is not text"},
        {BYTES("\xff."), "0xff is no operation"},
        {BYTES("}"), "it is cut off"},
        {BYTES("}J\1\2"), "it is cut off"},
        {BYTES("X\xff\xff\xff\xff."), "it is cut off"},
        {BYTES("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), "it is cut off"},
        {BYTES("\x8a\x4"
               "a."),
         "it is cut off"},
        {BYTES("\x95\xff\xff\xff\xff\xff\xff\xff\xff}."), "it is cut off"},
        {BYTES("."), "it ends with 0 values"},
        {BYTES("(."), "it ends with 1 values"},
        {BYTES("NN."), "it ends with 2 values"},
        {BYTES("}.}"), "bytes follow its end"},
        {BYTES("t."), "TUPLE takes values that are not there"},
        {BYTES("(\x85."), "TUPLE1 takes values that are not there"},
        {BYTES("}K\1s."), "SETITEM takes values that are not there"},
        {BYTES("}(K\1u."), "SETITEMS stores into another kind of value"},
        {BYTES("](K\1K\1u."), "SETITEMS stores into another kind of value"},
        {BYTES("((u."), "SETITEMS takes values that are not there"},
        {BYTES("}K\1a."), "APPEND stores into another kind of value"},
        {BYTES("q\0."), "BINPUT takes values that are not there"},
        {BYTES("}q\5."), "BINPUT has the number 5"},
        {BYTES("}r\xff\xff\xff\xff."), "LONG_BINPUT has the number 4294967295"},
        {BYTES("h\0."), "BINGET has the number 0 of no value"},
        {BYTES("}q\1h\0."), "BINGET has the number 0 of no value"},
        {BYTES("})R."), "REDUCE calls no function with a tuple"},
        {BYTES("ccollections\nOrderedDict\n]R."), "REDUCE calls no function with a tuple"},
        {BYTES("ccollections\nOrderedDict\nK\1\x85R."), "OrderedDict has other arguments than pairs"},
        {BYTES("ctorch\nFloatStorage\n)R."), "REDUCE calls no function with a tuple"},
        {BYTES("K\1}b."), "BUILD gives attributes to another kind of value"},
        {BYTES("K\1Q."), "a persistent id is no tuple"},
        {BYTES("K\1\x85Q."), "a persistent id is not that of a storage"},
        {BYTES("ctorch._utils\n_rebuild_tensor_v2\n)R."), "rebuilt from other arguments"},
        {BYTES("ctorch._utils\n_rebuild_tensor_v3\n)R."), "rebuilt from other arguments"},
        {BYTES("ctorch._utils\n_rebuild_parameter\nNNN\x87R."), "_rebuild_parameter has other arguments"},
        {BYTES("}."), "it holds no dict of tensors by their names, alone or under"},
        {BYTES("}q\0X\1\0\0\0ah\0sX\1\0\0\0bNsK\1Ns."), "its keys: 'a', 'b' [E406]"},
        {BYTES("]."), "its keys: none [E406]"},
        {BYTES("N."), "its keys: none [E406]"},
        {BYTES("ccollections\nCounter\n)R."), "its keys: none [E406]"},
        {BYTES("c_codecs\nencode\nX\1\0\0\0aX\6\0\0\0latin1\x86R."), "its keys: none [E406]"},
};

START_TEST(pickles_that_lie)
{
	struct stored_tensors st;
	ck_assert_int_eq(read_pickle(lies[_i].bytes, lies[_i].n, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, lies[_i].says), "%s, not: %s", r.log.data, lies[_i].says);
	ck_assert_uint_eq(r.cx.n_errors, 1);
}
END_TEST

/* Every operation that would call, build objects or read otherwise is refused by name. */
START_TEST(refused_operations)
{
	static const struct {
		char code;
		const char *name;
	} refused[] = {{'P', "PERSID"},
	               {'i', "INST"},
	               {'o', "OBJ"},
	               {'\x81', "NEWOBJ"},
	               {'\x92', "NEWOBJ_EX"},
	               {'\x82', "EXT1"},
	               {'\x83', "EXT2"},
	               {'\x84', "EXT4"},
	               {'0', "POP"},
	               {'1', "POP_MARK"},
	               {'2', "DUP"},
	               {'F', "FLOAT"},
	               {'I', "INT"},
	               {'L', "LONG"},
	               {'\x8b', "LONG4"},
	               {'S', "STRING"},
	               {'V', "UNICODE"},
	               {'l', "LIST"},
	               {'d', "DICT"},
	               {'p', "PUT"},
	               {'g', "GET"},
	               {'\x91', "FROZENSET"},
	               {'\x96', "BYTEARRAY8"},
	               {'\x97', "NEXT_BUFFER"},
	               {'\x98', "READONLY_BUFFER"}};
	struct stored_tensors st;
	for (size_t i = 0; i < TFMC_COUNT(refused); i++) {
		char pickle[] = "\x80\2}}?.";
		pickle[4] = refused[i].code;
		ck_assert_int_eq(read_pickle(pickle, 6, &st), TFMC_INVALID);
		ck_assert_msg(reading_says(&r, arena_printf(&r.arena,
		                                            "at byte 44: its pickle has the operation %s,",
		                                            refused[i].name)),
		              "%s", r.log.data);
		reading_clear(&r);
	}
}
END_TEST

static const struct wrong_view {
	const char *class, *key;
	int n, offset;
	const char *tuples;
	size_t len;
	const char *says;
} wrong_views[] = {
        {"FloatStorage", "00000000000000000000000000000000000000000000000000000000000000000", 6, 0, MATRIX,
         "a persistent id is not that of a storage"},
        {"FloatStorage", "0", 6, 1, MATRIX, "tensor 'w': it reaches beyond its storage of 24 bytes"},
        {"FloatStorage", "0", 6, 0, BYTES("K\2K\3\x86K\4K\1\x86"), "it reaches beyond its storage"},
        {"FloatStorage", "0", 6, 7, SCALAR, "it reaches beyond its storage"},
        {"FloatStorage", "0", 6, 0, BYTES("K\2K\3\x86\x8a\10\xff\xff\xff\xff\xff\xff\xff\x7fK\1\x86"),
         "beyond its storage"},
        {"FloatStorage", "0", 6, 0, BYTES("\x8a\10\xff\xff\xff\xff\xff\xff\xff\x7f\x85K\0\x85"),
         "not a possible number"},
        {"FloatStorage", "0", 6, 0, BYTES("\x8a\5\0\0\0\0\1\x85K\0\x85"),
         "copies would be larger than the file"},
        {"FloatStorage", "0", 6, 0, BYTES("K\2\x85J\xff\xff\xff\xff\x85"),
         "not storage, offset, size and strides"},
        {"FloatStorage", "0", 6, 0, BYTES("J\xff\xff\xff\xff\x85K\1\x85"),
         "not storage, offset, size and strides"},
        {"FloatStorage", "0", 6, 0, BYTES("K\2K\3\x86K\1\x85"), "not storage, offset, size and strides"},
        {"FloatStorage", "0", 6, 0, BYTES("K\2N\x86K\1K\1\x86"), "not storage, offset, size and strides"},
        {"FloatStorage", "0", 6, 0, BYTES("(K\1K\1K\1K\1K\1K\1K\1K\1K\1t)"),
         "a tensor of rank 9, the limit is 8"},
        {"FloatStorage", "0", 5, 0, VECTOR2, "entry 'm/data/0': it has 24 bytes, its storage 20"},
        {"DoubleStorage", "0", 6, 0, VECTOR2, "entry 'm/data/0': it has 24 bytes, its storage 48"},
        {"FloatStorage", "2", 6, 0, VECTOR2, "it has no entry 'm/data/2'"},
        {"FloatStorage", "../0", 6, 0, VECTOR2, "it has no entry 'm/data/../0'"},
        {"QInt8Storage", "0", 6, 0, VECTOR2, "the global 'torch.QInt8Storage'"},
        {"UntypedStorage", "0", 24, 0, VECTOR2, "rebuilt from other arguments"},
};

START_TEST(views_that_lie)
{
	const struct wrong_view *w = &wrong_views[_i];
	struct stored_tensors st;
	struct buf pickle;
	buf_init(&pickle);
	buf_char(&pickle, '}');
	put_text(&pickle, "w");
	put_view(&pickle, w->class, w->key, w->n, w->offset, w->tuples, w->len);
	buf_str(&pickle, "s.");
	ck_assert_int_eq(read_pickle(pickle.data, pickle.len, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, w->says), "%s, not: %s", r.log.data, w->says);
	buf_destroy(&pickle);
}
END_TEST

/* A vector 'a' and a second one: the operations of its name, the class of its storage. */
static const struct wrong_name {
	const char *name;
	size_t len;
	const char *class, *says;
} wrong_names[] = {
        {BYTES("U\1a"), "FloatStorage", "tensor 'a': is there twice"},
        {BYTES("U\1b"), "IntStorage", "the storage '0' has two types or sizes"},
        {BYTES("K\1"), "FloatStorage", "the name of a tensor is not text"},
        {BYTES("U\1\xff"), "FloatStorage", "the name of a tensor is not text"},
        {BYTES("U\1\0"), "FloatStorage", "the name of a tensor is not text"},
        {BYTES("U\0"), "FloatStorage", "a tensor needs a name"},
};

START_TEST(names_that_lie)
{
	const struct wrong_name *w = &wrong_names[_i];
	struct stored_tensors st;
	struct buf pickle;
	buf_init(&pickle);
	buf_str(&pickle, "}(");
	put_text(&pickle, "a");
	put_view(&pickle, "FloatStorage", "0", 6, 0, VECTOR2);
	put(&pickle, w->name, w->len);
	put_view(&pickle, w->class, "0", 6, 0, VECTOR2);
	buf_str(&pickle, "u.");
	ck_assert_int_eq(read_pickle(pickle.data, pickle.len, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, w->says), "%s, not: %s", r.log.data, w->says);
	buf_destroy(&pickle);
}
END_TEST

START_TEST(negated_tensors)
{
	struct stored_tensors st;
	struct buf pickle;
	buf_init(&pickle);
	buf_str(&pickle, "}");
	put_text(&pickle, "w");
	buf_str(&pickle, "ctorch._utils\n_rebuild_tensor_v2\n(");
	put_storage(&pickle, "FloatStorage", "0", 6, false);
	put(&pickle, BYTES("K\0K\2\x85K\1\x85\x89}}X\3\0\0\0neg\x88stRs."));
	ck_assert_int_eq(read_pickle(pickle.data, pickle.len, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "not supported: a tensor with metadata"));
	buf_destroy(&pickle);
}
END_TEST

/* Entries that are not as torch.save writes them. */
START_TEST(archives_that_lie)
{
	static const struct {
		struct entry entry;
		size_t at;
		const char *says;
	} changes[] = {
	        {{"m/data.pkl", "}.", 2, 8}, 0, "entry 'm/data.pkl': not supported: it is compressed"},
	        {{"m/data.pkl", "}.", 2, 12}, 0, "compressed by another method"},
	        {{"m/other", "}.", 2, 0}, 0, "its first entry is not the pickle of torch.save"},
	        {{"n/data/0", (const char *)six, 24, 0}, 2, "it has no entry 'm/data/0'"},
	        {{"m/data/0", (const char *)six, 24, 8},
	         2,
	         "entry 'm/data/0': not supported: it is compressed"},
	        {{"m/data/0", (const char *)six, 20, 0},
	         2,
	         "entry 'm/data/0': it has 20 bytes, its storage 24"},
	        {{"m/byteorder", "big", 3, 0}, 1, "not supported: its byte order is not little-endian"},
	};
	struct buf pickle;
	struct stored_tensors st;
	buf_init(&pickle);
	put_views(&pickle);
	for (size_t i = 0; i < TFMC_COUNT(changes); i++) {
		struct entry entries[] = {{"m/data.pkl", pickle.data, pickle.len, 0},
		                          {"m/byteorder", "little", 6, 0},
		                          {"m/data/0", (const char *)six, sizeof(six), 0},
		                          {"m/data/1", "", 0, 0}};
		struct buf file;
		buf_init(&file);
		entries[changes[i].at] = changes[i].entry;
		put_archive(&file, entries, 4);
		ck_assert_int_eq(read_bytes(&file, &st), TFMC_INVALID);
		ck_assert_msg(reading_says(&r, changes[i].says), "%s, not: %s", r.log.data, changes[i].says);
		reading_clear(&r);
		buf_destroy(&file);
	}
	buf_destroy(&pickle);
}
END_TEST

/* Values are counted, whatever pushes them: a file cannot take more memory than a constant. */
START_TEST(many_values)
{
	struct stored_tensors st;
	struct buf pickle;
	buf_init(&pickle);
	buf_str(&pickle, _i == 0 ? "((" : "((Nq\1");
	for (size_t i = 0; i < (size_t)1 << 23; i++)
		put(&pickle, BYTES("h\1"));
	if (_i == 0) { /* each value is new */
		memset(pickle.data, ')', pickle.len);
	}
	ck_assert_int_eq(read_pickle(pickle.data, pickle.len, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, "its pickle has more than 8388608 values [E106]"), "%s", r.log.data);
	buf_destroy(&pickle);
}
END_TEST

/* ---- before PyTorch 1.6 ---- */

static void put_old(struct buf *out, const char *order)
{
	put(out,
	    BYTES("\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M\xe9\3.\x80\2}X\15\0\0\0little_endian"));
	buf_printf(out, "%ss.", order);
	put(out, BYTES("\x80\2ccollections\nOrderedDict\n](]("));
	put_text(out, "w");
	buf_str(out, "ctorch._utils\n_rebuild_tensor_v2\n(");
	put_storage(out, "FloatStorage", "9", 6, true);
	put(out, BYTES("K\0K\2K\3\x86K\3K\1\x86\x89}tRee\x85R.\x80\2]X\1\0\0\0"
	               "9a."));
	buf_u64le(out, 6);
	buf_bytes(out, (const char *)six, sizeof(six));
}

START_TEST(old_files)
{
	struct stored_tensors st;
	struct buf file;
	buf_init(&file);
	put_old(&file, "\x88");
	ck_assert(torch_has_magic((const unsigned char *)file.data, file.len));
	ck_assert_msg(read_bytes(&file, &st) == TFMC_OK, "%s", r.log.data);
	ck_assert_uint_eq(st.n, 1);
	check_values(&st, "w", six, 6);
	size_t n = file.len;
	for (file.len = 15; file.len < n; file.len++) {
		ck_assert_int_eq(read_bytes(&file, &st), TFMC_INVALID);
		reading_clear(&r);
	}
	teardown(); /* diagnostics that were reported are not again */
	setup();
	buf_char(&file, 0);
	ck_assert_int_eq(read_bytes(&file, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, "bytes from here on belong to no storage"), "%s", r.log.data);
	file.data[n - 32]++;
	ck_assert_int_eq(read_bytes(&file, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "the storage '9' of 6 elements is not there"));
	file.data[n - 35]++;
	ck_assert_int_eq(read_bytes(&file, &st), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, "its list of storages is not that of its tensors"), "%s", r.log.data);
	file.data[18]++;
	ck_assert_int_eq(read_bytes(&file, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "not supported: its protocol is not 1001"));
	buf_clear(&file);
	put_old(&file, "\x89");
	ck_assert_int_eq(read_bytes(&file, &st), TFMC_INVALID);
	ck_assert(reading_says(&r, "or its byte order not little-endian"));
	buf_destroy(&file);
}
END_TEST

/* Random damage to good files, at single bytes or by operations in other places: any answer but a crash, a read outside
 * of the file, or tensors after an error. */
START_TEST(random_damage)
{
	struct rng rng = rng_seed((uint64_t)_i + 1);
	struct buf pickle;
	int good = 0;
	buf_init(&pickle);
	for (int round = 0; round < 5000; round++) {
		struct arena_mark mark = arena_mark(&r.arena);
		struct stored_tensors st;
		buf_clear(&pickle);
		if (_i % 2 == 0)
			put_views(&pickle);
		else
			put_old(&pickle, "\x88");
		for (int k = 0; k <= round % 4; k++) {
			size_t from = rng_next(&rng) % pickle.len, to = rng_next(&rng) % pickle.len;
			size_t most = pickle.len - (from > to ? from : to), n = rng_next(&rng) % 12;
			if (round % 3 == 0)
				memmove(pickle.data + to, pickle.data + from, n < most ? n : most);
			else
				pickle.data[to] = (char)rng_next(&rng);
		}
		pickle.len -= round % 7 == 0 ? rng_next(&rng) % pickle.len : 0;
		good += (_i % 2 == 0 ? read_pickle(pickle.data, pickle.len, &st)
		                     : read_bytes(&pickle, &st)) == TFMC_OK;
		reading_clear(&r);
		arena_release(&r.arena, mark);
	}
	ck_assert_int_gt(good, 0);
	buf_destroy(&pickle);
}
END_TEST

Suite *suite_torch(void)
{
	Suite *s = suite_create("torch");
	TCase *t = tcase_create("torch");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, views);
	tcase_add_test(t, types_and_parameters);
	tcase_add_test(t, checkpoints);
	tcase_add_loop_test(t, pickles_that_lie, 0, (int)TFMC_COUNT(lies));
	tcase_add_test(t, refused_operations);
	tcase_add_loop_test(t, views_that_lie, 0, (int)TFMC_COUNT(wrong_views));
	tcase_add_loop_test(t, names_that_lie, 0, (int)TFMC_COUNT(wrong_names));
	tcase_add_test(t, negated_tensors);
	tcase_add_test(t, archives_that_lie);
	tcase_add_loop_test(t, many_values, 0, 2);
	tcase_add_test(t, old_files);
	tcase_add_loop_test(t, random_damage, 0, 6);
	suite_add_tcase(s, t);
	return s;
}
