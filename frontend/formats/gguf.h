/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict reader of GGUF, versions 2 and 3, little-endian, over bytes in memory: typed metadata and tensors.
 * Nothing is believed: every count, length and offset is compared with the bytes that are there, names are
 * unique, tensors follow each other in their order with nothing between them but padding to the alignment.
 * Every refusal is a WEIGHT_FILE diagnostic with the file, the name and the byte.
 *
 * Dims of the file run from the innermost axis out; those of the result run from the outermost in.
 */
#ifndef TFMC_FRONTEND_FORMATS_GGUF_H
#define TFMC_FRONTEND_FORMATS_GGUF_H

#include "frontend/formats/stored.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/diag/diag.h"

#define GGUF_ENTRIES_MAX 65536   /* of metadata */
#define GGUF_TENSORS_MAX 1000000 /* in one file */
#define GGUF_NAME_MAX    255     /* bytes of a tensor's name; the format says 64 */
#define GGUF_RANK_MAX    4

/* In the order of the numbers of the format. */
enum gguf_type {
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64
};

struct gguf_value {
	enum gguf_type type;
	int64_t i;                  /* whole numbers (at most INT64_MAX), bool: 0 or 1 */
	double f;                   /* F32, F64 */
	const char *text;           /* STRING: into the file, not terminated; any bytes */
	size_t len;                 /* STRING */
	enum gguf_type element;     /* ARRAY: no array again */
	size_t n;                   /* ARRAY */
	const unsigned char *bytes; /* ARRAY: its elements; they have been checked */
	size_t n_bytes;
};

struct gguf_entry {
	const char *key; /* printable ASCII */
	struct gguf_value value;
};

struct gguf {
	uint32_t version;
	const struct gguf_entry *entries; /* in the order of the file */
	size_t n_entries;
	struct stored_tensors tensors;
};

/* The file begins with the magic of the format. */
bool gguf_is(const unsigned char *bytes, size_t len);

/* TFMC_INVALID after a diagnostic. */
TFMC_MUST_USE enum tfmc_status gguf_read(const struct stored_source *s, struct gguf *out);

/* The value of a key, or NULL. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);

/* One element after the other: *at is 0 at first. False after the last one. */
bool gguf_next(const struct gguf_value *array, size_t *at, struct gguf_value *out);

/* Its value is in `i`, and it is no bool. */
bool gguf_is_whole(enum gguf_type type);

/* "u8", "string" */
const char *gguf_type_name(enum gguf_type type);

#endif
