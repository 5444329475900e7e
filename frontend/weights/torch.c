/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.save: the pickle builds views of storages; then each storage is located in the file, and each named
 * view becomes a tensor. Functions return false or NULL after a diagnostic, or without memory. Pickle values are in an
 * arena of their own, which is freed before torch_read returns; names and copies that tensors keep are in that of the
 * source.
 */
#include "frontend/weights/torch.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/weights/pickle.h"
#include "frontend/weights/zip.h"
#include "ir/support/checked.h"
#include "ir/support/strmap.h"

#define KEYS_SHOWN  5
#define KEY_MAX     64                /* bytes of the key of a storage, which torch.save numbers */
#define TENSORS_MAX ((size_t)1 << 20) /* in a file */

/* Element types: dtype, class of storages (NULL: storages are untyped), bytes of an element. */
static const struct type {
	const char *name, *storage;
	int64_t bytes;
	bool readable;
	enum ir_dtype dtype;
	weight_elements *read;
} types[] = {
        {"float32", "FloatStorage", 4, true, DT_F32, NULL},
        {"float16", "HalfStorage", 2, true, DT_F16, NULL},
        {"bfloat16", "BFloat16Storage", 2, true, DT_BF16, NULL},
        {"float64", "DoubleStorage", 8, true, DT_F64, NULL},
        {"int64", "LongStorage", 8, true, DT_I64, NULL},
        {"int32", "IntStorage", 4, true, DT_I32, NULL},
        {"int16", "ShortStorage", 2, true, DT_I16, NULL},
        {"int8", "CharStorage", 1, true, DT_I8, NULL},
        {"uint8", "ByteStorage", 1, true, DT_U8, NULL},
        {"bool", "BoolStorage", 1, true, DT_BOOL, NULL},
        {"uint16", NULL, 2, true, DT_F64, stored_read_u16},
        {"uint32", NULL, 4, true, DT_F64, stored_read_u32},
        {"uint64", NULL, 8, true, DT_F64, stored_read_u64},
        {"float8_e4m3fn", NULL, 1, true, DT_F16, stored_read_f8_e4m3},
        {"float8_e5m2", NULL, 1, true, DT_F16, stored_read_f8_e5m2},
        {"float8_e4m3fnuz", NULL, 1, true, DT_F16, stored_read_f8_e4m3fnuz},
        {"float8_e5m2fnuz", NULL, 1, true, DT_F16, stored_read_f8_e5m2fnuz},
        {"float8_e8m0fnu", NULL, 1, true, DT_BF16, stored_read_f8_e8m0},
        {"complex64", "ComplexFloatStorage", 8, false, DT_F32, NULL},
        {"complex128", "ComplexDoubleStorage", 16, false, DT_F64, NULL},
};

/* Storages of bytes, of which views have types of their own. */
static const struct type untyped = {"bytes", "UntypedStorage", 1, false, DT_U8, NULL};

struct storage {
	const char *key;
	const struct type *type;
	int64_t n, bytes;          /* n: elements */
	const unsigned char *data; /* NULL: not located yet */
};

/* A tensor of the pickle; offset and strides count elements. */
struct view {
	const struct storage *storage;
	const struct type *type;
	int rank;
	int64_t offset, dims[IR_RANK_MAX], strides[IR_RANK_MAX];
};

struct reader {
	const struct stored_source *s;
	struct arena arena; /* values of the pickle */
	struct strmap storages;
	size_t copied; /* bytes of views that are not contiguous */
};

/* A tensor before sorting by data. */
struct item {
	struct stored_tensor t;
	const unsigned char *begin;
	size_t index;
};

/* ---- globals of the pickle ---- */

/* Reads `n` non-negative integers; false, without a diagnostic, for another value. */
static bool read_sizes(const struct pickle_value *v, int64_t *out, size_t n)
{
	bool ok = v->kind == PICKLE_TUPLE && v->n == n;
	for (size_t i = 0; ok && i < n; i++) {
		ok = v->items[i]->kind == PICKLE_INT && v->items[i]->i >= 0;
		out[i] = ok ? v->items[i]->i : 0;
	}
	return ok;
}

/* Makes a view of arguments (storage, offset, size, strides, requires_grad, hooks[, dtype][, metadata]): the dtype
 * where the storage is untyped; metadata say that the elements are negated or conjugated, which is not supported. The
 * other arguments do not change values. */
static bool make_view(struct pickle *p, const struct pickle_value *args, bool has_dtype,
                      struct pickle_value *out)
{
	const size_t dtype = 6, metadata = has_dtype ? 7 : 6;
	struct view *v = ARENA_NEW(p->arena, struct view);
	if (v == NULL)
		return false;
	bool ok = args->n >= metadata && args->n <= metadata + 1 && args->items[0]->kind == PICKLE_STORAGE &&
	          (!has_dtype || args->items[dtype]->kind == PICKLE_TYPE);
	v->storage = ok ? args->items[0]->object : NULL;
	v->type = !ok ? NULL : has_dtype ? args->items[dtype]->object : v->storage->type;
	if (!ok || v->type == &untyped || (v->storage->type == &untyped) != has_dtype)
		return pickle_error(p, "a tensor is rebuilt from other arguments than a storage and a type");
	const struct pickle_value *offset = args->items[1], *size = args->items[2];
	ok = offset->kind == PICKLE_INT && offset->i >= 0 && size->kind == PICKLE_TUPLE;
	if (ok && size->n > IR_RANK_MAX)
		return weight_file_error_at(p->s, p->operation, "a tensor of rank %zu, the limit is %d",
		                            size->n, IR_RANK_MAX);
	if (!ok || !read_sizes(size, v->dims, size->n) || !read_sizes(args->items[3], v->strides, size->n))
		return pickle_error(p, "the arguments of a tensor are not storage, offset, size and strides");
	const struct pickle_value *more = args->n > metadata ? args->items[metadata] : NULL;
	if (more != NULL && more->kind != PICKLE_OTHER && (more->kind != PICKLE_DICT || more->n > 0))
		return weight_file_error_at(p->s, p->operation,
		                            "not supported: a tensor with metadata (negated or conjugated)");
	v->rank = (int)size->n;
	v->offset = offset->i;
	*out = (struct pickle_value){.kind = PICKLE_TENSOR};
	out->object = v;
	return true;
}

static bool rebuild_tensor_v2(struct pickle *p, const struct pickle_value *args, struct pickle_value *out)
{
	return make_view(p, args, false, out);
}

static bool rebuild_tensor_v3(struct pickle *p, const struct pickle_value *args, struct pickle_value *out)
{
	return make_view(p, args, true, out);
}

/* (tensor, requires_grad, hooks[, state]): the tensor, since only its values matter. */
static bool rebuild_parameter(struct pickle *p, const struct pickle_value *args, struct pickle_value *out)
{
	if (args->n < 3 || args->items[0]->kind != PICKLE_TENSOR)
		return pickle_error(p, "_rebuild_parameter has other arguments than it takes");
	*out = *args->items[0];
	return true;
}

/* (), or a list of pairs as Python 2 writes it. */
static bool make_dict(struct pickle *p, const struct pickle_value *args, struct pickle_value *out)
{
	const struct pickle_value *pairs = args->n == 1 ? args->items[0] : NULL;
	bool ok = args->n == 0 || (pairs != NULL && pairs->kind == PICKLE_LIST);
	*out = (struct pickle_value){.kind = PICKLE_DICT};
	p->pushes += pairs != NULL ? pairs->n
	                           : 0; /* counted again: one list may be given many times, for each dict */
	for (size_t i = 0; ok && pairs != NULL && i < pairs->n; i++) {
		const struct pickle_value *pair = pairs->items[i];
		ok = (pair->kind == PICKLE_LIST || pair->kind == PICKLE_TUPLE) && pair->n == 2;
		for (size_t k = 0; ok && k < 2; k++)
			ARENA_ADD(p->arena, out, pair->items[k]);
	}
	return ok ? !arena_failed(p->arena) : pickle_error(p, "OrderedDict has other arguments than pairs");
}

/* A value that is not needed. */
static bool skip(struct pickle *p, const struct pickle_value *args, struct pickle_value *out)
{
	(void)p, (void)args;
	*out = (struct pickle_value){.kind = PICKLE_OTHER};
	return true;
}

/* The function or element type that a global of the pickle names; false: another global, which pickle.c then refuses.
 * The table is what state dicts and training checkpoints contain; `skip` makes values that are not needed. */
static bool find_global(const char *module, const char *name, struct pickle_value *out)
{
	static const struct {
		const char *module, *name;
		pickle_call *call;
	} functions[] = {{"collections", "OrderedDict", make_dict},
	                 {"torch._utils", "_rebuild_tensor_v2", rebuild_tensor_v2},
	                 {"torch._utils", "_rebuild_tensor_v3", rebuild_tensor_v3},
	                 {"torch._utils", "_rebuild_parameter", rebuild_parameter},
	                 {"torch._utils", "_rebuild_parameter_with_state", rebuild_parameter},
	                 {"torch", "Size", skip},
	                 {"torch", "device", skip},
	                 {"torch.serialization", "_get_layout", skip},
	                 {"collections", "Counter", skip},
	                 {"_codecs", "encode", skip}, /* bytes, in protocol 2 */
	                 {"__builtin__", "set", skip},
	                 {"builtins", "set", skip},
	                 {"__builtin__", "bytearray", skip},
	                 {"builtins", "bytearray", skip},
	                 {"__builtin__", "complex", skip},
	                 {"builtins", "complex", skip}};
	*out = (struct pickle_value){.kind = PICKLE_FUNCTION};
	for (size_t i = 0; i < TFMC_COUNT(functions); i++) {
		out->call = functions[i].call;
		if (strcmp(module, functions[i].module) == 0 && strcmp(name, functions[i].name) == 0)
			return true;
	}
	out->kind = PICKLE_TYPE;
	out->object = &untyped;
	if (strcmp(name, untyped.storage) == 0)
		return strcmp(module, "torch.storage") == 0 || strcmp(module, "torch") == 0;
	for (size_t i = 0; i < TFMC_COUNT(types); i++) {
		out->object = &types[i];
		if (strcmp(name, types[i].name) == 0 ||
		    (types[i].storage != NULL && strcmp(name, types[i].storage) == 0))
			return strcmp(module, "torch") == 0;
	}
	return false;
}

/* ('storage', type, key, device, elements[, None]): the storage of this key, the same object each time it is named, so
 * that views share it. Its data are located when the pickle has been read. */
static bool find_storage(struct pickle *p, const struct pickle_value *id, struct pickle_value *out)
{
	struct reader *r = p->user;
	bool ok = (id->n == 5 || (id->n == 6 && id->items[5]->kind == PICKLE_OTHER)) &&
	          id->items[0]->kind == PICKLE_STRING && strcmp(id->items[0]->text, "storage") == 0 &&
	          id->items[1]->kind == PICKLE_TYPE && id->items[2]->kind == PICKLE_STRING &&
	          strlen(id->items[2]->text) <= KEY_MAX && id->items[4]->kind == PICKLE_INT &&
	          id->items[4]->i >= 0;
	if (!ok)
		return pickle_error(p, "a persistent id is not that of a storage with type, key and size");
	struct storage is = {.key = id->items[2]->text, .type = id->items[1]->object, .n = id->items[4]->i};
	if (!checked_mul_i64(is.n, is.type->bytes, &is.bytes))
		return pickle_error(p, "the size of the storage '%.80s' is not a possible number of bytes",
		                    is.key);
	struct storage *storage = strmap_get(&r->storages, is.key);
	if (storage != NULL && (storage->type != is.type || storage->n != is.n))
		return pickle_error(p, "the storage '%.80s' has two types or sizes", is.key);
	if (storage == NULL) {
		storage = ARENA_NEW(&r->arena, struct storage);
		if (storage == NULL)
			return false;
		*storage = is;
		strmap_set(&r->storages, is.key, storage);
	}
	*out = (struct pickle_value){.kind = PICKLE_STORAGE};
	out->object = storage;
	return true;
}

/* ---- views ---- */

/* Size of a view; false after a diagnostic, also if its last element (strides are not negative) is beyond its storage.
 * A view without elements needs none. */
static bool check_view(const struct reader *r, const struct view *v, const char *name, int64_t *bytes)
{
	int64_t count, end = v->offset, last;
	if (!checked_product_i64(v->dims, (size_t)v->rank, &count) ||
	    !checked_mul_i64(count, v->type->bytes, bytes))
		return weight_file_error_in(r->s, "tensor", name,
		                            "the size of its shape is not a possible number of bytes");
	if (count == 0)
		return true;
	bool ok = true;
	for (int k = 0; ok && k < v->rank; k++)
		ok = checked_mul_i64(v->dims[k] - 1, v->strides[k], &last) &&
		     checked_add_i64(end, last, &end);
	ok = ok && checked_add_i64(end, 1, &end) && checked_mul_i64(end, v->type->bytes, &end);
	return (ok && end <= v->storage->bytes) ||
	       weight_file_error_in(r->s, "tensor", name, "it reaches beyond its storage of %lld bytes",
	                            (long long)v->storage->bytes);
}

/* True: the elements of the view are stored in the order of their indices. Strides of axes of size 1 do not count. */
static bool is_contiguous(const struct view *v)
{
	int64_t stride = 1;
	for (int k = v->rank - 1; k >= 0; k--) {
		if (v->dims[k] != 1 && v->strides[k] != stride)
			return false;
		stride *= v->dims[k];
	}
	return true;
}

/* Copies the elements of a view in the order of their indices. Views may repeat elements (stride 0), so that a small
 * file could ask for any amount of memory: all copies together are limited by its size. */
static bool copy_view(struct reader *r, const struct view *v, struct stored_tensor *t)
{
	size_t width = (size_t)v->type->bytes;
	if (t->bytes > r->s->len - r->copied)
		return weight_file_error_in(
		        r->s, "tensor", t->name,
		        "not supported: its elements are not stored in order, and with it copies would be "
		        "larger than the file; save TENSOR.contiguous()");
	r->copied += t->bytes;
	unsigned char *to = r->s->headers_only ? NULL : arena_alloc(r->s->arena, t->bytes);
	for (size_t i = 0; to != NULL && i < t->bytes / width; i++) {
		int64_t at = v->offset, index = (int64_t)i;
		for (int k = v->rank - 1; k >= 0; k--) {
			at += index % v->dims[k] * v->strides[k];
			index /= v->dims[k];
		}
		memcpy(to + i * width, v->storage->data + (size_t)at * width, width);
	}
	t->data = to;
	return to != NULL || r->s->headers_only;
}

/* Makes the tensor of a named view: in place if it is contiguous, else a copy. item->begin is where the view begins in
 * the file, also of a copy, for the order of tensors. */
static bool make_tensor(struct reader *r, const struct view *v, const char *name, struct item *item)
{
	struct stored_tensor *t = &item->t;
	int64_t bytes;
	if (name[0] == '\0')
		return weight_file_error_in(r->s, "tensor", name, "a tensor needs a name");
	if (!check_view(r, v, name, &bytes))
		return false;
	*t = (struct stored_tensor){.name = arena_strdup(r->s->arena, name),
	                            .type_name = v->type->name,
	                            .readable = v->type->readable,
	                            .dtype = v->type->dtype,
	                            .read = v->type->read,
	                            .rank = v->rank,
	                            .bytes = (size_t)bytes};
	memcpy(t->dims, v->dims, sizeof(t->dims));
	if (bytes == 0)
		return true;
	item->begin = v->storage->data + v->offset * v->type->bytes;
	t->data = item->begin;
	return is_contiguous(v) || copy_view(r, v, t);
}

/* Order by data, so that readers go through the file in order; the index makes it total, as tensors may share data
   and qsort is not stable. */
static int compare_begin(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* ---- the dict ---- */

/* The value of a dict under a key, the last one as in Python; NULL: none. */
static const struct pickle_value *find_key(const struct pickle_value *dict, const char *key)
{
	for (size_t i = dict->kind == PICKLE_DICT ? dict->n : 0; i > 0; i -= 2)
		if (dict->items[i - 2]->kind == PICKLE_STRING && strcmp(dict->items[i - 2]->text, key) == 0)
			return dict->items[i - 1];
	return NULL;
}

static size_t count_tensors(const struct pickle_value *v)
{
	size_t n = 0;
	for (size_t i = 1; v->kind == PICKLE_DICT && i < v->n; i += 2)
		n += v->items[i]->kind == PICKLE_TENSOR;
	return n;
}

/* Reports a file without tensors, with its first keys. */
static void report_no_tensors(const struct reader *r, const struct pickle_value *root)
{
	const char *keys = "";
	for (size_t i = 0, shown = 0; root->kind == PICKLE_DICT && i < root->n && shown < KEYS_SHOWN; i += 2)
		if (root->items[i]->kind == PICKLE_STRING)
			keys = arena_printf(r->s->arena, "%s%s'%.80s'", keys, shown++ > 0 ? ", " : "",
			                    root->items[i]->text);
	weight_file_error(r->s,
	                  "it holds no dict of tensors by their names, alone or under 'state_dict', "
	                  "'model_state_dict' or "
	                  "'model'; its keys: %s",
	                  keys[0] != '\0' ? keys : "none");
}

/* The dict of tensors: the one under a well-known key, else the root; NULL after a diagnostic. Two different dicts
 * (weights and their moving average) are an error: none is known to be meant. */
static const struct pickle_value *find_tensors(const struct reader *r, const struct pickle_value *root)
{
	static const char *const wrappers[] = {"state_dict", "model_state_dict", "model"};
	const struct pickle_value *found = NULL;
	const char *key = NULL;
	for (size_t k = 0; k < TFMC_COUNT(wrappers); k++) {
		const struct pickle_value *v = find_key(root, wrappers[k]);
		if (v == NULL || v == found || count_tensors(v) == 0)
			continue;
		if (found != NULL) {
			weight_file_error(r->s,
			                  "it holds tensors under '%s' and under '%s'; save one of them", key,
			                  wrappers[k]);
			return NULL;
		}
		found = v;
		key = wrappers[k];
	}
	if (found != NULL || count_tensors(root) > 0)
		return found != NULL ? found : root;
	report_no_tensors(r, root);
	return NULL;
}

/* Makes the tensors of a dict, in data order. */
static bool make_tensors(struct reader *r, const struct pickle_value *dict, struct stored_tensors *out)
{
	size_t most = count_tensors(dict), n = 0;
	if (most > TENSORS_MAX) {
		diag_error(r->s->cx, r->s->loc, DIAG_LIMIT, "'%s': it has %zu tensors, at most %zu are read",
		           r->s->name, most, TENSORS_MAX);
		return false;
	}
	struct item *items = ARENA_ARRAY(&r->arena, struct item, most);
	struct stored_tensor *tensors = ARENA_ARRAY(r->s->arena, struct stored_tensor, most);
	struct strmap names;
	strmap_init(&names, &r->arena);
	if (items == NULL || tensors == NULL)
		return false;
	for (size_t i = 0; i < dict->n; i += 2) {
		const struct pickle_value *key = dict->items[i], *value = dict->items[i + 1];
		if (value->kind != PICKLE_TENSOR)
			continue;
		if (key->kind != PICKLE_STRING)
			return weight_file_error(r->s, "the name of a tensor is not text");
		if (strmap_has(&names, key->text))
			return weight_file_error_in(r->s, "tensor", key->text, "is there twice");
		strmap_set(&names, key->text, &items[n]);
		items[n].index = n;
		if (!make_tensor(r, value->object, key->text, &items[n]))
			return false;
		n++;
	}
	qsort(items, n, sizeof(*items), compare_begin);
	for (size_t i = 0; i < n; i++)
		tensors[i] = items[i].t;
	*out = (struct stored_tensors){tensors, n};
	return true;
}

/* ---- the archive ---- */

static const char pickle_entry[] = "/data.pkl";

static bool ends_with(const char *text, size_t n, const char *end)
{
	size_t len = strlen(end);
	return n > len && memcmp(text + n - len, end, len) == 0;
}

/* An entry DIRECTORY/name, not compressed, since it is read in place; NULL after a diagnostic. */
static const struct zip_entry *stored_entry(const struct zip *z, const char *directory, const char *name)
{
	const char *path = arena_printf(z->s->arena, "%s/%s", directory, name);
	const struct zip_entry *e = strmap_get(&z->by_name, path);
	if (e == NULL)
		weight_file_error(z->s, "it has no entry '%.200s'", path);
	if (e == NULL || !zip_check_method(z, e))
		return NULL;
	if (e->method == ZIP_STORED)
		return e;
	weight_file_error_in(z->s, "entry", e->name,
	                     "not supported: it is compressed, which torch.save never does");
	return NULL;
}

/* The entry `byteorder` must be "little": elements are read as stored. */
static bool check_byte_order(const struct zip *z, const char *directory)
{
	if (!strmap_has(&z->by_name, arena_printf(z->s->arena, "%s/byteorder", directory)))
		return true; /* before PyTorch 2.1 */
	const struct zip_entry *e = stored_entry(z, directory, "byteorder");
	return e != NULL && ((e->size == 6 && memcmp(z->bytes + e->begin, "little", 6) == 0) ||
	                     weight_file_error(z->s, "not supported: its byte order is not little-endian"));
}

/* Locates all storages, each the entry data/KEY of its size. */
static bool locate_entries(struct reader *r, const struct zip *z, const char *directory)
{
	for (size_t i = 0; i < r->storages.n; i++) {
		struct storage *storage = r->storages.items[i].value;
		const struct zip_entry *e =
		        stored_entry(z, directory, arena_printf(&r->arena, "data/%s", storage->key));
		if (e == NULL)
			return false;
		if (e->size != (uint64_t)storage->bytes)
			return weight_file_error_in(z->s, "entry", e->name,
			                            "it has %llu bytes, its storage %lld",
			                            (unsigned long long)e->size, (long long)storage->bytes);
		storage->data = z->bytes + e->begin;
	}
	return true;
}

/* The saved value of an archive DIRECTORY/data.pkl, with its storages located. torch.save writes the pickle first, by
 * which torch_has_magic() has recognized the file; its name gives the directory. */
static const struct pickle_value *read_archive(struct reader *r, struct pickle *p)
{
	struct zip z;
	const struct pickle_value *root = NULL;
	if (!zip_read(r->s, &z))
		return NULL;
	const char *first = z.n > 0 ? z.entries[0].name : "";
	if (!ends_with(first, strlen(first), pickle_entry)) {
		weight_file_error(r->s, "its first entry is not the pickle of torch.save");
		return NULL;
	}
	const char *directory = arena_strndup(&r->arena, first, strlen(first) - strlen(pickle_entry));
	const struct zip_entry *e = stored_entry(&z, directory, pickle_entry + 1);
	if (e == NULL || !check_byte_order(&z, directory))
		return NULL;
	p->at = e->begin;
	p->end = e->begin + (size_t)e->size;
	if (!pickle_read(p, &root))
		return NULL;
	if (p->at != p->end)
		pickle_error(p, "bytes follow its end");
	return p->at == p->end && locate_entries(r, &z, directory) ? root : NULL;
}

/* ---- before PyTorch 1.6 ---- */

/* Magic number, the first of five pickles: protocol of the file, system, the saved value, keys of storages. */
static const unsigned char old_magic[] = "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
#define OLD_MAGIC_BYTES (sizeof(old_magic) - 1)
#define OLD_PROTOCOL    1001

/* Locates the storages, which follow the pickles in the order of their keys, each after its number of elements. */
static bool locate_in_order(struct reader *r, const struct pickle_value *keys, size_t at)
{
	const struct stored_source *s = r->s;
	if (keys->kind != PICKLE_LIST || keys->n != r->storages.n)
		return weight_file_error(s, "its list of storages is not that of its tensors");
	for (size_t i = 0; i < keys->n; i++) {
		const struct pickle_value *key = keys->items[i];
		struct storage *storage =
		        key->kind == PICKLE_STRING ? strmap_get(&r->storages, key->text) : NULL;
		if (storage == NULL || storage->data != NULL)
			return weight_file_error(s, "its list of storages is not that of its tensors");
		if (s->len - at < 8 || (uint64_t)storage->bytes > s->len - at - 8 ||
		    read_little_endian(s->bytes + at, 8) != (uint64_t)storage->n)
			return weight_file_error_at(s, at,
			                            "the storage '%.80s' of %lld elements is not there",
			                            storage->key, (long long)storage->n);
		storage->data = s->bytes + at + 8;
		at += 8 + (size_t)storage->bytes;
	}
	return at == s->len || weight_file_error_at(s, at, "bytes from here on belong to no storage");
}

/* The saved value of an old file, with its storages located. The pickles follow the magic number one after another;
 * pickle_read leaves p->at after each. */
static const struct pickle_value *read_old(struct reader *r, struct pickle *p)
{
	const struct pickle_value *protocol, *system, *root, *keys;
	p->at = OLD_MAGIC_BYTES;
	p->end = r->s->len;
	if (!pickle_read(p, &protocol) || !pickle_read(p, &system))
		return NULL;
	const struct pickle_value *order = find_key(system, "little_endian");
	if (protocol->kind != PICKLE_INT || protocol->i != OLD_PROTOCOL || order == NULL ||
	    order->kind != PICKLE_INT || order->i != 1) {
		weight_file_error(
		        r->s, "not supported: its protocol is not %d, or its byte order not little-endian",
		        OLD_PROTOCOL);
		return NULL;
	}
	return pickle_read(p, &root) && pickle_read(p, &keys) && locate_in_order(r, keys, p->at) ? root
	                                                                                         : NULL;
}

/* ---- the file ---- */

static bool is_old(const unsigned char *bytes, size_t len)
{
	return len >= OLD_MAGIC_BYTES && memcmp(bytes, old_magic, OLD_MAGIC_BYTES) == 0;
}

/* New files are archives whose first local header (name length at byte 26, name at 30) is that of the pickle. */
bool torch_has_magic(const unsigned char *bytes, size_t len)
{
	if (is_old(bytes, len))
		return true;
	if (len < 30 || !zip_has_magic(bytes, len))
		return false;
	size_t name = (size_t)read_little_endian(bytes + 26, 2);
	return name <= len - 30 && ends_with((const char *)bytes + 30, name, pickle_entry);
}

enum tfmc_status torch_read(const struct stored_source *s, struct stored_tensors *out)
{
	struct reader r = {.s = s};
	struct pickle p = {
	        .s = s, .arena = &r.arena, .find = find_global, .persist = find_storage, .user = &r};
	*out = (struct stored_tensors){NULL, 0};
	arena_init(&r.arena);
	strmap_init(&r.storages, &r.arena);
	const struct pickle_value *root = is_old(s->bytes, s->len) ? read_old(&r, &p) : read_archive(&r, &p);
	const struct pickle_value *dict = root != NULL ? find_tensors(&r, root) : NULL;
	bool ok = dict != NULL && make_tensors(&r, dict, out);
	bool no_memory = arena_failed(s->arena) || arena_failed(&r.arena);
	arena_destroy(&r.arena);
	if (no_memory)
		return TFMC_NO_MEMORY;
	return ok ? TFMC_OK : TFMC_INVALID;
}
