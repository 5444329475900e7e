/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files that form clusters share: the state of the walk and the facts
 * about ops (form.c), and linears whose column ranges go different ways
 * (parts.c).
 */
#ifndef TFMC_PASSES_GROUP_PARTS_H
#define TFMC_PASSES_GROUP_PARTS_H

#include "passes/group/form.h"

struct user_list {
	const struct ir_op **items;
	size_t n, cap;
};

struct former {
	struct pass_context *p;
	const struct ir_module *m;
	const struct ir_func *f;
	struct formed *g;
	struct user_list *users; /* [n_values], one entry per operand */
	size_t max_ops;
	bool norms; /* may be part of linears */
	bool failed;
};

bool former_same_dims(const struct ir_type *a, const struct ir_type *b);
bool former_is_elementwise(const struct ir_op *op);
/* Operand i of an elementwise op is read at the element that is computed. */
bool former_same_element(const struct ir_func *f, const struct ir_op *op, size_t i);
/* Absent values are. */
bool former_is_f32(const struct ir_func *f, struct ir_value v);
/* Cheap enough to be computed again for every element that needs it. */
bool former_is_cheap_index(const struct ir_func *f, const struct ir_op *op);
/* No view, constant or region, and in no cluster. */
bool former_is_free(const struct former *s, const struct ir_op *op);
void former_join(struct former *s, const struct ir_op *op, size_t cluster, enum member_role role);
/* Kind of the group that op begins: kernels with their own template; everything else is GROUP_loops. */
int former_kind_of(const struct ir_func *f, const struct ir_op *op);
const struct ir_region *former_region_of(const struct former *s, const struct ir_op *op);
/* The one op that reads v (perhaps twice), in the same region; NULL when there are more, or others. */
const struct ir_op *former_only_reader(const struct former *s, struct ir_value v);

/* Column ranges of a part begin at multiples of this, whole panels; on devices anywhere where all columns lie in one
 * strip. */
#define PART_COLUMNS 16
/* Heads of a part lie in strips of at most this many columns. */
#define PART_STRIP_MAX 256
#define PARTS_MAX      8

/*
 * Gives the linear that begins `cluster` all ops of its parts: slices of its result along the last axis (or
 * the result itself), what follows each of them, two that meet in one elementwise op, heads, rope, and writes
 * into states. False, with nothing taken, when it has no parts or they cannot be computed together.
 */
bool group_take_parts(struct former *s, size_t cluster);

#endif
