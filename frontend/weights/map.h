/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight map (frontend/manual/reference/weights.md): canonical parameter paths to weight expressions over
 * stored tensors. Use: create, read the map, find one expression for each parameter, finish.
 *
 * INVARIANT: a returned expression has exactly the requested shape, and its tensors exist, are readable, and
 * are marked used.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_MAP_H
#define TFMC_FRONTEND_WEIGHTS_MAP_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/syntax/expr.h"
#include "frontend/weights/files.h"
#include "frontend/syntax/yaml_tree.h"
#include "ir/weights/weight.h"

#define WEIGHT_MAP_PATTERNS_MAX 4096

struct weight_map;

/* Key i of a source (optional, steps, origins), for the reference; NULL after the last one. */
const char *weight_source_key(size_t i);
/* Its value and effect, for an i that has a key. */
const char *weight_source_doc(size_t i);

/*
 * env evaluates the integers of entries (reshape dims, slice bounds, heads); env and wf must outlive the map.
 * NULL: no memory.
 */
struct weight_map *weight_map_create(struct arena *a, struct diag_context *cx, struct weight_files *wf,
                                     const struct expr_env *env);

/*
 * Reads weights.map: `identity`, a file name relative to dir, or a mapping. A parameter that no entry matches
 * is the stored tensor of the same name; identity, or NULL, has no entries. Patterns written in source
 * `main_source` must match a parameter; those of other sources (base, include, preset) and of a map file need
 * not. May be called repeatedly (include).
 */
TFMC_MUST_USE enum tfmc_status weight_map_read(struct weight_map *m, const struct yaml_node *map,
                                               const char *dir, uint32_t main_source);

/* A parameter of the model that needs a weight. */
struct parameter_request {
	const char *path; /* canonical: layers.3.attn.q.weight */
	struct loc loc;   /* the step that has the parameter */
	int rank;
	int64_t dims[IR_RANK_MAX];
	bool is_vocabulary; /* a row for each id: further rows of the tensor are dropped with a warning */
};
/* Expression of a parameter, exactly of the requested shape; NULL after a diagnostic, or when no tensor
 * fits, which weight_map_report reports. */
const struct ir_wexpr *weight_map_find(struct weight_map *m, const struct parameter_request *request);

/*
 * Ties the parameter `path` to `tied`: where the files store only the entry of `path`, `tied` reads it. transformers
 * ties in both directions (PreTrainedModel.tie_weights). To be called before the first weight_map_find.
 */
void weight_map_tie(struct weight_map *m, const char *path, const char *tied);

/*
 * True: a tied parameter has values of its own: the map has an entry for it (a tensor of its name is not
 * enough), the entry's tensors are stored, and they are not a copy of the other's. Hub files whose
 * configuration ties a head may store a different head, and transformers uses the stored one.
 */
bool weight_map_unties(struct weight_map *m, const char *path, const char *tied);

/* Reports the parameters that no tensor fits, one error for each cause. False if there is one. */
bool weight_map_report(struct weight_map *m);

/*
 * After the last parameter: weight_map_report, then patterns without match and, if every parameter has its
 * tensors, tensors neither used nor ignored (allow_unused: a warning). True: no error.
 */
TFMC_MUST_USE bool weight_map_finish(struct weight_map *m, bool allow_unused);

#endif
