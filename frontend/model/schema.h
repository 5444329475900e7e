/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookup in the tables of schema.def: which keys a place has, which kinds of
 * steps there are, and the check of a mapping against them.
 *
 * INVARIANT: a key of the language that is not built yet is reported as
 * UNSUPPORTED, never as unknown.
 */
#ifndef TFMC_FRONTEND_MODEL_SCHEMA_H
#define TFMC_FRONTEND_MODEL_SCHEMA_H

#include <stddef.h>

#include "frontend/expr/expr.h"
#include "frontend/text/yaml_tree.h"

enum schema_type {
	KEY_INT,
	KEY_FLOAT,
	KEY_BOOL,
	KEY_DIM,
	KEY_WORD,
	KEY_NAME,
	KEY_VALUE,
	KEY_PATH,
	KEY_TEXT,
	KEY_LIST,
	KEY_MAP,
	KEY_STEPS,
	KEY_ANY
};

struct schema_key {
	const char *where, *name;
	enum schema_type type;
	const char *words; /* as schema.def says */
	const char *def;   /* "!": required, "": absent */
	bool now;
	const char *doc;
};

struct schema_step {
	const char *kind;
	const char *main; /* "" : none */
	bool params;
	bool now;
	const char *doc;
};

/* A parameter of a step. */
struct schema_param {
	const char *kind;
	const char *name;  /* behind the path of the step; N is a number */
	const char *shape; /* "[out, d]" */
	const char *when;  /* "": always */
};

const struct schema_step *schema_find_step(const char *kind);
const struct schema_key *schema_find_key(const char *where, const char *name);
/* The rows of a place (NULL: of all) one after another; NULL begins and ends. */
const struct schema_key *schema_next_key(const char *where, const struct schema_key *key);
/* Kinds of all steps, in table order. */
const char *const *schema_step_kinds(struct arena *a, size_t *n);

/*
 * Reports keys of `map` that `where` (and, if not NULL, `also`) does not have, keys that are not supported
 * yet, null values, and required keys that are absent. `what` names the place in messages.
 */
bool schema_check(struct arena *a, struct diag_context *cx, const struct yaml_node *map, const char *where,
                  const char *also, const char *what);

/* The same without required keys (defaults); `where` NULL: nothing is checked. */
bool schema_check_some(struct arena *a, struct diag_context *cx, const struct yaml_node *map,
                       const char *where, const char *also, const char *what);

/*
 * A member of a struct that has the name of a key, and a type by that of its row: INT int64_t, FLOAT double, BOOL
 * bool; WORD an enum, 0 and then the words; NAME, TEXT and a WORD without words a string; a LIST of ids struct
 * frontend_ids; all others the node itself.
 */
struct schema_member {
	const char *key;
	size_t at;
};
#define SCHEMA_MEMBER(type, key)                 \
	{                                        \
#key, offsetof(struct type, key) \
	}

/*
 * Checks a mapping as schema_check does and fills the members of *out. A key that is absent has the default of
 * its row; without one its member is left as it is. `map` NULL: all are absent. Every mistake is reported.
 */
bool schema_read(const struct expr_env *env, const struct yaml_node *map, const char *where, const char *what,
                 const struct schema_member *members, size_t n, void *out);

/* The words of a WORD key. */
const char *const *schema_words(struct arena *a, const struct schema_key *key, size_t *n);

/* The parameters of a step one after another; NULL begins and ends. */
const struct schema_param *schema_next_param(const char *kind, const struct schema_param *param);

/* What the type of a key is called. */
const char *schema_type_name(enum schema_type type);

#endif
