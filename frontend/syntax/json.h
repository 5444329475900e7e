/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON parser; the only reader of JSON. Rejects duplicate keys, text after the value, depth above
 * JSON_DEPTH_MAX, integers beyond int64, invalid UTF-8 and zero characters in strings. Errors are reported with
 * the code, name and byte offset of the source. Nodes live in the arena.
 */
#ifndef TFMC_FRONTEND_SYNTAX_JSON_H
#define TFMC_FRONTEND_SYNTAX_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/diag.h"

#define JSON_DEPTH_MAX 64
#define JSON_BYTES_MAX ((size_t)100 << 20)

enum json_kind {
	JSON_NODE_NULL,
	JSON_NODE_BOOL,
	JSON_NODE_INT,
	JSON_NODE_REAL,
	JSON_NODE_STRING,
	JSON_NODE_ARRAY,
	JSON_NODE_OBJECT
};

struct json_node {
	enum json_kind kind;
	int64_t i;                     /* int; bool: 0 or 1 */
	double f;                      /* real */
	const char *text;              /* string, zero-terminated */
	size_t n;                      /* array, object */
	const struct json_node *items; /* array: elements; object: values */
	const char *const *keys;       /* object, in the order of the text */
};

/* Where a JSON text comes from, for messages. */
struct json_source {
	const char *name;    /* file name as shown */
	struct loc loc;      /* where the file is named */
	enum diag_code code; /* of errors */
	size_t base;         /* byte offset of the text in its file */
};

/* NULL after a diagnostic. */
const struct json_node *json_parse(struct arena *a, struct diag_context *cx, const struct json_source *src,
                                   const char *text, size_t len);
/* A copy of the text in which integers are truncated to 18 digits: some tokenizer files write an unlimited
 * length as 1000000000000000019884624838656, beyond int64; truncated, it still exceeds the length of any
 * text. NULL: no memory. */
const char *json_truncate_long_ints(struct arena *a, const char *text, size_t len);
/* The value of a key; NULL if it is absent or `object` is NULL or not an object. */
const struct json_node *json_find(const struct json_node *object, const char *key);

/* Finds the byte range [*at, *at + *n) of a key, with its quotes, in a text that json_parse accepted. `path`:
 * keys of nested objects joined by dots. False if it does not exist or is written with escapes. */
bool json_key_offset(const char *text, size_t len, const char *path, size_t *at, size_t *n);
/* Its location in a source with this text; `otherwise` if source is 0 or json_key_offset finds none. */
struct loc json_key_loc(const char *text, size_t len, uint32_t source, const char *path,
                        struct loc otherwise);

#endif
