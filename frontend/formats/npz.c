/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npz: a zip archive of .npy files. Read through the central directory; each local entry must say the same.
 * With zip64, which numpy writes for large arrays. Compressed entries (numpy.savez_compressed) become memory.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/formats/npy.h"
#include "frontend/formats/stored.h"
#include "frontend/formats/zip_inflate.h"
#include "ir/support/memory.h"
#include "ir/support/strmap.h"

#define LOCAL_BYTES    30
#define CENTRAL_BYTES  46
#define END_BYTES      22
#define END64_BYTES    56
#define LOCATOR_BYTES  20
#define COMMENT_MAX    65535
#define ENTRY_NAME_MAX 1024 /* bytes of an entry's name */

struct zip {
	const struct stored_source *s;
	const unsigned char *bytes;
	size_t len;
	uint64_t entries, directory, directory_bytes; /* directory: its offset */
	uint64_t inflated;                            /* bytes that compressed entries became */
};

/* An entry of the directory. */
struct zip_entry {
	const char *name;
	uint64_t size, packed, local; /* bytes, bytes as stored, offset of the local entry */
	unsigned flags, method;
	uint32_t crc;        /* of the data, not compressed */
	size_t begin, index; /* of the data; in the directory */
};

static uint64_t number(const struct zip *z, size_t at, size_t n)
{
	return stored_little(z->bytes + at, n);
}

static bool is(const struct zip *z, size_t at, const char *magic)
{
	return memcmp(z->bytes + at, magic, 4) == 0;
}

/* ---- the end of the archive ---- */

/* The record at the end, after which only its comment is. */
static bool find_end(const struct zip *z, size_t *at)
{
	for (size_t comment = 0; comment <= COMMENT_MAX && comment + END_BYTES <= z->len; comment++) {
		*at = z->len - END_BYTES - comment;
		if (is(z, *at, "PK\5\6") && number(z, *at + 20, 2) == comment)
			return true;
	}
	return stored_bad(z->s, "the archive has no end record: cut off, or no archive");
}

static bool read_end64(struct zip *z, size_t end)
{
	if (end < LOCATOR_BYTES || !is(z, end - LOCATOR_BYTES, "PK\6\7"))
		return true;
	uint64_t at = number(z, end - LOCATOR_BYTES + 8, 8);
	if (at > z->len || z->len - at < END64_BYTES || !is(z, (size_t)at, "PK\6\6"))
		return stored_bad(z->s, "the 64-bit end record is not where it should be");
	z->entries = number(z, (size_t)at + 32, 8);
	z->directory_bytes = number(z, (size_t)at + 40, 8);
	z->directory = number(z, (size_t)at + 48, 8);
	return true;
}

static bool read_end(struct zip *z)
{
	size_t end = 0;
	if (!find_end(z, &end))
		return false;
	if (number(z, end + 4, 2) != 0 || number(z, end + 6, 2) != 0)
		return stored_bad(z->s, "not supported: an archive in several files");
	z->entries = number(z, end + 10, 2);
	z->directory_bytes = number(z, end + 12, 4);
	z->directory = number(z, end + 16, 4);
	if (!read_end64(z, end))
		return false;
	if (z->entries > NPZ_ENTRIES_MAX)
		return stored_bad(z->s, "it has more than 65535 entries");
	if (z->directory > end || z->directory_bytes > end - z->directory)
		return stored_bad(z->s, "its directory is outside of the file");
	return true;
}

/* ---- entries ---- */

/* Sizes that did not fit into 32 bits are in the extra field 1, in this order. */
static bool read_extra(const struct zip *z, struct zip_entry *e, size_t at, size_t len)
{
	uint64_t *const wide[] = {&e->size, &e->packed, &e->local};
	while (len >= 4) {
		uint64_t id = number(z, at, 2), n = number(z, at + 2, 2);
		if (n > len - 4)
			return stored_bad_item(z->s, "entry", e->name, "its extra field is damaged");
		size_t p = at + 4, left = (size_t)n;
		for (size_t i = 0; id == 1 && i < 3; i++) {
			if (*wide[i] != UINT32_MAX)
				continue;
			if (left < 8)
				return stored_bad_item(z->s, "entry", e->name, "its extra field is damaged");
			*wide[i] = number(z, p, 8);
			p += 8;
			left -= 8;
		}
		at += 4 + (size_t)n;
		len -= 4 + (size_t)n;
	}
	return true;
}

/* The entry at *at of the directory; *at moves after it. */
static bool read_central(const struct zip *z, size_t *at, struct zip_entry *e)
{
	size_t end = (size_t)(z->directory + z->directory_bytes);
	if (end - *at < CENTRAL_BYTES || !is(z, *at, "PK\1\2"))
		return stored_bad(z->s, "its directory is damaged");
	size_t name = (size_t)number(z, *at + 28, 2), extra = (size_t)number(z, *at + 30, 2),
	       comment = (size_t)number(z, *at + 32, 2);
	if (name + extra + comment > end - *at - CENTRAL_BYTES)
		return stored_bad(z->s, "its directory is damaged");
	const char *text = (const char *)z->bytes + *at + CENTRAL_BYTES;
	if (name == 0 || name > ENTRY_NAME_MAX || memchr(text, '\0', name) != NULL)
		return stored_bad(z->s, "the name of an entry is empty, too long, or has a zero character");
	e->name = arena_strndup(z->s->arena, text, name);
	e->flags = (unsigned)number(z, *at + 8, 2);
	e->method = (unsigned)number(z, *at + 10, 2);
	e->crc = (uint32_t)number(z, *at + 16, 4);
	e->packed = number(z, *at + 20, 4);
	e->size = number(z, *at + 24, 4);
	e->local = number(z, *at + 42, 4);
	if (!read_extra(z, e, *at + CENTRAL_BYTES + name, extra))
		return false;
	*at += CENTRAL_BYTES + name + extra + comment;
	return true;
}

/* The data lie after the local entry, which must have the same name and way of storing, before the
 * directory. */
static bool read_local(const struct zip *z, struct zip_entry *e)
{
	if (e->local > z->directory || z->directory - e->local < LOCAL_BYTES ||
	    !is(z, (size_t)e->local, "PK\3\4"))
		return stored_bad_item(z->s, "entry", e->name, "its data are not where the directory says");
	size_t at = (size_t)e->local, room = (size_t)z->directory - at - LOCAL_BYTES;
	size_t name = (size_t)number(z, at + 26, 2), extra = (size_t)number(z, at + 28, 2);
	if (name + extra > room || name != strlen(e->name) ||
	    memcmp(z->bytes + at + LOCAL_BYTES, e->name, name) != 0 || number(z, at + 8, 2) != e->method)
		return stored_bad_item(z->s, "entry", e->name, "its data and the directory do not agree");
	e->begin = at + LOCAL_BYTES + name + extra;
	if (e->packed > room - name - extra)
		return stored_bad_item(z->s, "entry", e->name, "its data reach beyond the directory");
	return true;
}

static bool check_kind(const struct zip *z, const struct zip_entry *e)
{
	size_t n = strlen(e->name);
	if (n <= 4 || strcmp(e->name + n - 4, ".npy") != 0)
		return stored_bad_item(
		        z->s, "entry", e->name,
		        "not supported: it is no .npy array (a checkpoint of PyTorch? convert it to "
		        "safetensors)");
	if (e->flags & 1)
		return stored_bad_item(z->s, "entry", e->name, "not supported: it is encrypted");
	if (e->method != 0 && e->method != ZIP_DEFLATE)
		return stored_bad_item(
		        z->s, "entry", e->name,
		        "not supported: it is compressed by another method than deflate, which "
		        "numpy.savez_compressed uses");
	if (e->method == 0 ? e->packed != e->size : !zip_inflate_can(e->packed, e->size))
		return stored_bad_item(z->s, "entry", e->name,
		                       "it cannot have the size that the directory names");
	return true;
}

/* Its data, which are `data` bytes behind the header. */
static bool inflate_array(struct zip *z, const struct zip_entry *e, size_t data, struct stored_tensor *t)
{
	const char *why;
	if (e->size > ZIP_INFLATED_MAX - z->inflated)
		return stored_bad_item(
		        z->s, "entry", e->name,
		        "with it more than 4 GiB of the archive are compressed, which would be held in "
		        "memory; "
		        "numpy.savez stores arrays as they are");
	z->inflated += e->size;
	const unsigned char *bytes = zip_inflate(z->s->arena, z->bytes + e->begin, (size_t)e->packed,
	                                         (size_t)e->size, e->crc, &why);
	if (bytes == NULL && why != NULL)
		return stored_bad_item(z->s, "entry", e->name, "%s", why);
	t->data = bytes != NULL && t->bytes > 0 ? bytes + data : NULL;
	return bytes != NULL;
}

/* The header of a compressed array is read before memory for its data is taken. */
static bool read_array(struct zip *z, const struct zip_entry *e, struct stored_tensor *t)
{
	const unsigned char *from = z->bytes + e->begin;
	unsigned char *head;
	size_t data, have = e->size < NPY_HEAD_MAX ? (size_t)e->size : NPY_HEAD_MAX;
	if (e->method == 0) {
		if (!npy_header(z->s, from, (size_t)e->size, (size_t)e->size, t, &data))
			return false;
		t->data = t->bytes > 0 ? from + data : NULL;
		return true;
	}
	head = memory_alloc(have);
	if (head == NULL)
		return false;
	bool ok = zip_inflate_head(from, (size_t)e->packed, head, have) == have;
	if (!ok)
		stored_bad_item(z->s, "entry", e->name, "its compressed data are damaged");
	ok = ok && npy_header(z->s, head, have, (size_t)e->size, t, &data);
	memory_free(head);
	return ok && (z->s->headers_only || inflate_array(z, e, data, t));
}

static int by_place(const void *a, const void *b)
{
	const struct zip_entry *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* In the order of their data, which must not overlap. */
static bool make_tensors(struct zip *z, struct zip_entry *entries, size_t n, struct stored_tensors *out)
{
	struct stored_tensor *items = ARENA_ARRAY(z->s->arena, struct stored_tensor, n + 1);
	struct strmap names;
	if (items == NULL || arena_failed(z->s->arena))
		return false;
	qsort(entries, n, sizeof(*entries), by_place);
	strmap_init(&names, z->s->arena);
	for (size_t i = 0; i < n; i++) {
		const struct zip_entry *e = &entries[i];
		if (i > 0 && e->local < entries[i - 1].begin + entries[i - 1].packed)
			return stored_bad_item(z->s, "entry", e->name,
			                       "its data lie in those of another entry");
		if (strmap_has(&names, e->name))
			return stored_bad_item(z->s, "entry", e->name, "is there twice");
		strmap_set(&names, e->name, &items[i]);
		items[i].name = arena_strndup(z->s->arena, e->name, strlen(e->name) - 4);
		if (!read_array(z, e, &items[i]))
			return false;
	}
	*out = (struct stored_tensors){items, n};
	return true;
}

static bool read_archive(struct zip *z, struct stored_tensors *out)
{
	if (!read_end(z))
		return false;
	size_t n = (size_t)z->entries, at = (size_t)z->directory;
	struct zip_entry *entries = ARENA_ARRAY(z->s->arena, struct zip_entry, n + 1);
	if (entries == NULL || arena_failed(z->s->arena))
		return false;
	for (size_t i = 0; i < n; i++) {
		entries[i].index = i;
		if (!read_central(z, &at, &entries[i]) || !check_kind(z, &entries[i]) ||
		    !read_local(z, &entries[i]))
			return false;
	}
	if (at != z->directory + z->directory_bytes)
		return stored_bad(z->s, "its directory is damaged");
	return make_tensors(z, entries, n, out);
}

bool npz_is(const unsigned char *bytes, size_t len)
{
	return len >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

enum tfmc_status npz_read(const struct stored_source *s, struct stored_tensors *out)
{
	struct zip z = {.s = s, .bytes = s->bytes, .len = s->len};
	*out = (struct stored_tensors){NULL, 0};
	bool ok = read_archive(&z, out);
	if (arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	return ok ? TFMC_OK : TFMC_INVALID;
}
