/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which features of a value a view of it shows. Features are the places of the
 * last axis; a change of some features of x is a change of the same rows of the
 * weight that makes x. Heads [B,H,S,E] over [B,S,H*E] are rows [h E, (h + 1) E).
 * Ops that only choose rows (take_rows, mask_rows) have all their inner axes as features, flattened.
 */
#ifndef TFMC_PASSES_FOLDS_FEATURE_ROWS_H
#define TFMC_PASSES_FOLDS_FEATURE_ROWS_H

#include "ir/core/module.h"

/* Values with more features are left alone. */
#define FEATURES_MAX (INT64_C(1) << 24)

/* How many of the last axes are features of what op makes; op may be NULL. */
int feature_axes(const struct ir_func *f, const struct ir_op *op);
/* The size of the last axis; false for scalars, sizes that are not constant or too large. */
bool feature_count(const struct ir_func *f, struct ir_value v, int64_t *out);
/*
 * Features `in` of v, whose last `axes` axes they number, as features of the value behind its views. False
 * when they are not heads of equal distance there.
 */
bool feature_rows_behind_views(const struct ir_module *m, const struct ir_func *f, struct ir_value v,
                               int axes, const struct wexpr_rows *in, struct ir_value *base,
                               struct wexpr_rows *out);
/* All n features. */
struct wexpr_rows feature_rows_all(int64_t n);
/* True when a feature belongs to both. */
bool feature_rows_meet(const struct wexpr_rows *a, const struct wexpr_rows *b);
bool feature_rows_equal(const struct wexpr_rows *a, const struct wexpr_rows *b);

#endif
