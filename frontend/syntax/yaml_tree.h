/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML parser with source locations: libyaml's events become nodes in an arena. The only user of libyaml.
 * Constructs that the model language never allows (duplicate keys, anchors, aliases, merge keys, tags,
 * directives, a second document, non-scalar keys) are rejected here. Scalars are untyped: a node holds their
 * text.
 *
 * INVARIANT: keys of a mapping are unique and in source order.
 */
#ifndef TFMC_FRONTEND_SYNTAX_YAML_TREE_H
#define TFMC_FRONTEND_SYNTAX_YAML_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/support/diag.h"

#define YAML_FILE_MAX   ((size_t)4 << 20)  /* bytes of a document */
#define YAML_DEPTH_MAX  64                 /* nested sequences and mappings */
#define YAML_SCALAR_MAX ((size_t)64 << 10) /* bytes of a scalar */
#define YAML_KEY_MAX    1024               /* characters of a key */
#define YAML_NODES_MAX  1000000            /* nodes of a document, keys included */

enum yaml_kind { YAML_SCALAR, YAML_SEQUENCE, YAML_MAPPING };

struct yaml_node {
	enum yaml_kind kind;
	struct loc loc; /* scalar: its text in the source (first line); else the first character */
	/* scalar */
	const char
	        *text; /* zero-terminated, never contains a zero byte; "" when empty; NULL for other kinds */
	size_t len;    /* bytes of text */
	bool quoted;   /* written as '..', "..", | or >: a string in params, an ordinary scalar elsewhere */
	bool null;     /* plain and empty, `~` or `null` */
	bool exact; /* the source contains text verbatim on one line, so columns inside it can be computed */
	/* sequence: items; mapping: pairs */
	size_t n;
	const struct yaml_node **items;
	struct yaml_pair *pairs;
};

struct yaml_pair {
	const struct yaml_node *key; /* a scalar */
	const struct yaml_node *value;
};

/*
 * Parses one document. `name` is shown in diagnostics; the text is copied into the diagnostic context as a new
 * source. The root must be a mapping unless any_root is set (fragments such as a `--set` value; an empty
 * fragment is the null scalar). Returns TFMC_INVALID after diagnostics with *out NULL.
 */
TFMC_MUST_USE enum tfmc_status yaml_parse(struct arena *a, struct diag_context *cx, const char *name,
                                          const char *text, size_t len, bool any_root,
                                          const struct yaml_node **out);
/* Reads and parses a file; `path` is opened, `name` is shown. A file that cannot be read (TFMC_IO) is reported
 * at `from` (LOC_NONE for the command line). */
TFMC_MUST_USE enum tfmc_status yaml_read(struct arena *a, struct diag_context *cx, const char *path,
                                         const char *name, struct loc from, const struct yaml_node **out);

/* The value or pair of a key; NULL if absent or `map` is NULL or not a mapping. */
const struct yaml_node *yaml_find(const struct yaml_node *map, const char *key);
const struct yaml_pair *yaml_find_pair(const struct yaml_node *map, const char *key);
bool yaml_is(const struct yaml_node *scalar,
             const char *text); /* true for a scalar with this text; false for NULL */

/* Location of `len` bytes from byte `offset` of a scalar's text; the whole scalar if it is written with escapes
 * or over several lines. */
struct loc yaml_loc_at(const struct yaml_node *scalar, size_t offset, size_t len);

/*
 * Reports every key of `map` that is not in `allowed` (UNKNOWN_KEY with the nearest name; training-only keys as
 * INFERENCE_ONLY). `what` names the mapping in messages: "attention", "weights". True when all keys are
 * allowed.
 */
bool yaml_check_keys(struct diag_context *cx, const struct yaml_node *map, const char *const *allowed,
                     size_t n, const char *what);
/* Reports one unknown key as above, for callers that iterate over the keys themselves. */
void yaml_unknown_key(struct diag_context *cx, const struct yaml_node *key, const char *const *allowed,
                      size_t n, const char *what);
/* True when the node has the kind; else false after VALUE_TYPE or NULL_VALUE "WHAT wants a mapping, found a
 * list". */
bool yaml_expect(struct diag_context *cx, const struct yaml_node *node, enum yaml_kind kind,
                 const char *what);
/* For messages: "a list", "a mapping", "null", or the truncated text in quotes. */
const char *yaml_describe(struct arena *a, const struct yaml_node *node);

struct yaml_list {
	const struct yaml_node *const *items;
	size_t n;
};
/* The items of a sequence; any other node is a list of one item. */
struct yaml_list yaml_as_list(struct arena *a, const struct yaml_node *node);

#endif
