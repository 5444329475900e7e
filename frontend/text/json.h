/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON into plain nodes in an arena; the only reader. Refused:
 * duplicate keys, text after the value, depth above JSON_DEPTH_MAX, integers
 * that do not fit into 64 bits, invalid UTF-8, zero characters in strings.
 * Errors go to the diagnostics with the given code, name and byte offset.
 */
#ifndef TFMC_FRONTEND_TEXT_JSON_H
#define TFMC_FRONTEND_TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/diag/diag.h"

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
	struct loc loc;      /* who asked for the file */
	enum diag_code code; /* of errors */
	size_t base;         /* byte offset of the text in its file */
};

/* NULL after a diagnostic. */
const struct json_node *json_parse(struct arena *a, struct diag_context *cx, const struct json_source *src,
                                   const char *text, size_t len);
/*
 * A copy of a text whose numbers have at most 18 digits: some libraries write a length without a bound as
 * 1000000000000000019884624838656. NULL: no memory.
 */
const char *json_truncate_long_ints(struct arena *a, const char *text, size_t len);
/* The value of a key, or NULL; NULL also when `object` is none. */
const struct json_node *json_find(const struct json_node *object, const char *key);

/*
 * The key of a member in a text that json_parse took: `path` is keys of nested objects with dots between
 * them. False when there is none, or when it is written with escapes. [*at, *at + *n): the key in its quotes.
 */
bool json_key_offset(const char *text, size_t len, const char *path, size_t *at, size_t *n);

#endif
