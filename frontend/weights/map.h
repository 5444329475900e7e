/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight map (frontend/manual/reference/weights.md): canonical parameter paths to
 * weight expressions over stored tensors. Use: create, read the map, find one
 * expression for each parameter, finish.
 *
 * INVARIANT: an expression that is returned has exactly the wanted shape, and
 * every tensor in it exists, is readable, and is marked used.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_MAP_H
#define TFMC_FRONTEND_WEIGHTS_MAP_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/expr/expr.h"
#include "frontend/weights/files.h"
#include "frontend/text/yaml_tree.h"
#include "ir/weights/weight.h"

#define WEIGHT_MAP_PATTERNS_MAX 4096

struct weight_map;

/* The keys of a source, one after the other: optional, steps, where the numbers come from; NULL ends. */
const char *weight_source_key(size_t i);
/* What its value is and does, for an i that has a key. */
const char *weight_source_doc(size_t i);

/*
 * env evaluates the numbers of entries (reshape dims, slice bounds, heads); it
 * and wf must outlive the map. NULL when memory ran out.
 */
struct weight_map *weight_map_create(struct arena *a, struct diag_context *cx, struct weight_files *wf,
                                     const struct expr_env *env);

/*
 * The value of weights.map: `identity`, a file name relative to dir, or a
 * mapping. A parameter that no entry fits is the stored tensor of the same
 * name; identity, or NULL, has no entries. Patterns written in source `main_source` must
 * match a parameter; those of other sources (base, include, preset) and of a
 * map file need not. May be called more than once (include).
 */
TFMC_MUST_USE enum tfmc_status weight_map_read(struct weight_map *m, const struct yaml_node *map,
                                               const char *dir, uint32_t main_source);

struct weight_want {
	const char *path; /* canonical: layers.3.attn.q.weight */
	struct loc loc;   /* the step that owns the parameter */
	int rank;
	int64_t dims[IR_RANK_MAX];
	bool is_vocabulary; /* a row for each id: the tensor may have further rows, which are left out with a warning */
};
/* The expression of a parameter, exactly of the wanted shape; NULL after a diagnostic, or when no tensor fits, which
 * weight_map_report says. */
const struct ir_wexpr *weight_map_find(struct weight_map *m, const struct weight_want *want);

/*
 * Whether a parameter that is tied to another one has values of its own: the map has an entry for it (a tensor that
 * merely has its name is none), the entry's tensors are stored, and they are not a copy of the other's. Hub files
 * whose configuration ties a head may store another head all the same, and the library takes the stored one.
 */
bool weight_map_unties(struct weight_map *m, const char *path, const char *tied);

/* The parameters that no tensor fits, one error for each cause. False when there is one. */
bool weight_map_report(struct weight_map *m);

/*
 * After the last parameter: that, patterns without match and, when every parameter
 * has its tensors, tensors neither used nor ignored (a warning with allow_unused). True when nothing was
 * wrong.
 */
TFMC_MUST_USE bool weight_map_finish(struct weight_map *m, bool allow_unused);

#endif
