/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to the tables of schema.def: keys of a place, kinds of steps, and the check of a mapping against them.
 *
 * INVARIANT: a key of the language that is not implemented is reported as UNSUPPORTED, never as unknown.
 */
#ifndef TFMC_FRONTEND_MODEL_SCHEMA_H
#define TFMC_FRONTEND_MODEL_SCHEMA_H

#include <stddef.h>

#include "frontend/syntax/expr.h"
#include "frontend/syntax/yaml_tree.h"

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
	const char *words; /* see schema.def */
	const char *def;   /* "!": required, "": absent */
	bool now;
	const char *doc;
};

struct schema_step {
	const char *kind;
	const char *main; /* "": none */
	bool params;
	bool now;
	const char *doc;
};

/* A parameter of a step. */
struct schema_param {
	const char *kind;
	const char *name;  /* below the path of the step; N stands for a number */
	const char *shape; /* "[out, d]" */
	const char *when;  /* "": always */
};

const struct schema_step *schema_find_step(const char *kind);
const struct schema_key *schema_find_key(const char *where, const char *name);
/* Iterates over the rows of a place (NULL: of all places); NULL begins and ends. */
const struct schema_key *schema_next_key(const char *where, const struct schema_key *key);
/* Kinds of all steps, in table order. */
const char *const *schema_step_kinds(struct arena *a, size_t *n);

/* Checks the keys of a mapping: reports keys that the place `where` (and, if not NULL, `also`) does not have,
 * unsupported keys, null values, and missing required keys. `what` names the place in messages. */
bool schema_check(struct arena *a, struct diag_context *cx, const struct yaml_node *map, const char *where,
                  const char *also, const char *what);

/* The same without required keys, for `defaults`; `where` NULL: no check. */
bool schema_check_present(struct arena *a, struct diag_context *cx, const struct yaml_node *map,
                          const char *where, const char *also, const char *what);

/*
 * A struct member named like a key. Its type follows from that of the row: INT int64_t, FLOAT double, BOOL
 * bool; WORD an enum (0 absent, then the words from 1 on); NAME, TEXT and a WORD without words const char *; a
 * LIST of ids struct frontend_ids; all others const struct yaml_node *.
 */
struct schema_member {
	const char *key;
	size_t at;
};
#define SCHEMA_MEMBER(type, key)                 \
	{                                        \
#key, offsetof(struct type, key) \
	}

/* Checks a mapping with schema_check and sets the members of *out. An absent key has the default of its row;
 * without a default the member is left unchanged. `map` NULL: all keys are absent. Reports every mistake. */
bool schema_read(const struct expr_env *env, const struct yaml_node *map, const char *where, const char *what,
                 const struct schema_member *members, size_t n, void *out);

/* The words of a WORD key. */
const char *const *schema_words(struct arena *a, const struct schema_key *key, size_t *n);

/* Iterates over the parameters of a step; NULL begins and ends. */
const struct schema_param *schema_next_param(const char *kind, const struct schema_param *param);

/* Name of a key's type in the reference. */
const char *schema_type_name(enum schema_type type);

#endif
