/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names with captures: "layers.{i}.{r:q=query,k=key}.weight". A pattern is matched against a parameter path
 * and binds its captures; a template is filled from them and may restrict and translate the captured strings.
 * Private to the weight map.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_PATTERN_H
#define TFMC_FRONTEND_WEIGHTS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/syntax/yaml_tree.h"

#define WEIGHT_CAPTURES_MAX 16
#define WEIGHT_NAME_MAX     1024 /* bytes of a pattern or template */

/* A choice of a restricted capture: the captured string and its translation. */
struct weight_choice {
	const char *from, *to;
};

/* A literal or a capture. */
struct weight_piece {
	const char *capture; /* name; NULL: literal */
	const char *text;    /* of a literal */
	size_t len;
	bool restricted; /* only the choices may match */
	struct weight_choice *choices;
	size_t n_choices;
};

/* A parsed name; used as pattern or as template. */
struct weight_template {
	const struct yaml_node *node;
	struct weight_piece *pieces;
	size_t n, cap;
	size_t n_captures; /* number of captures */
};

/* A bound capture. */
struct weight_capture {
	const char *name;
	const char *text; /* points into the matched path */
	size_t len;
};

struct weight_captures {
	struct weight_capture items[WEIGHT_CAPTURES_MAX];
	size_t n;
};

/* The templates of one map entry; all must accept a match. */
struct weight_templates {
	const struct weight_template **items;
	size_t n, cap;
};

/* Parses a name. is_pattern: of a pattern, in which choices are an error; else of a template. False after a
 * diagnostic. */
bool weight_template_parse(struct arena *a, struct diag_context *cx, const struct yaml_node *node,
                           bool is_pattern, struct weight_template *out);
/* True: the template has this capture. */
bool weight_template_has(const struct weight_template *t, const char *capture);
/* Finds the first match that every template accepts; shorter captures first. Captures end at dots unless
 * `crosses_dots` (for messages only). */
bool weight_template_match(const struct weight_template *pattern, const struct weight_templates *allow,
                           const char *path, bool crosses_dots, struct weight_captures *out);
/* The name with all captures replaced. */
const char *weight_template_fill(struct arena *a, const struct weight_template *t,
                                 const struct weight_captures *c);

#endif
