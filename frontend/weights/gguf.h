/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict reader of GGUF, versions 2 and 3, little-endian, in memory: typed metadata and tensors. Input is
 * hostile: every count, length and offset is compared with the size of the file, names are unique, tensors
 * follow each other in order with nothing but alignment padding between them. Every rejection is a
 * WEIGHT_FILE diagnostic with file, name and byte.
 *
 * The file stores dims innermost first; the result has them outermost first.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_GGUF_H
#define TFMC_FRONTEND_WEIGHTS_GGUF_H

#include "frontend/weights/stored.h"
#include "ir/weights/weight.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/support/diag.h"

#define GGUF_ENTRIES_MAX 65536   /* metadata entries in one file */
#define GGUF_TENSORS_MAX 1000000 /* tensors in one file */
#define GGUF_NAME_MAX    255     /* bytes of a tensor name; the specification says 64 */
#define GGUF_RANK_MAX    4

/* Numbered as in the format. */
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

/* A metadata value; the members in use depend on the type. */
struct gguf_value {
	enum gguf_type type;
	int64_t i;                  /* integers (at most INT64_MAX); bool: 0 or 1 */
	double f;                   /* F32, F64 */
	const char *text;           /* STRING: points into the file, not terminated; any bytes */
	size_t len;                 /* STRING */
	enum gguf_type element;     /* ARRAY: element type, not ARRAY */
	size_t n;                   /* ARRAY */
	const unsigned char *bytes; /* ARRAY: the encoded elements, validated */
	size_t n_bytes;
};

struct gguf_entry {
	const char *key; /* printable ASCII */
	struct gguf_value value;
};

/* A parsed file. */
struct gguf {
	uint32_t version;
	const struct gguf_entry *entries; /* in file order */
	size_t n_entries;
	struct stored_tensors tensors;
};

/* True: the bytes begin with the magic of GGUF. */
bool gguf_has_magic(const unsigned char *bytes, size_t len);

/* Parses a file. TFMC_INVALID after a diagnostic. */
TFMC_MUST_USE enum tfmc_status gguf_read(const struct stored_source *s, struct gguf *out);

/* Value of a metadata key, or NULL. Linear search. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);

/* Iterates over an array; *at is 0 at first. False after the last element. */
bool gguf_next_element(const struct gguf_value *array, size_t *at, struct gguf_value *out);

/* True for integer types, whose value is in `i`; false for bool. */
bool gguf_is_integer_type(enum gguf_type type);

/* "u8", "string" */
const char *gguf_type_name(enum gguf_type type);

/*
 * Dequantization of GGUF block formats. For each QUANTS type of gguf_types.def
 *
 *   gguf_elements_NAME  reads its elements as f32 values
 *   gguf_rows_NAME      reads its rows as quants, scales and offsets of the format of its row there; exact
 *
 * Blocks divide rows. An infinite f16 scale is read as NaN.
 */
#define QUANTS(number, name, block, bytes, format)   \
	extern weight_elements gguf_elements_##name; \
	extern weight_rows gguf_rows_##name;
#include "frontend/weights/gguf_types.def"

#endif
