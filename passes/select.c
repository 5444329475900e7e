/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select: tiles and scratch of every group for the target.
 *
 * Requires   group, and a target record.
 * Ensures    the attributes of every group say how its kernel is made: linear mr x nr register tiles and kc
 * rows of K at a time (br rows of a norm in front of it), attention br queries by bc keys, the lanes of a
 * vector, scratch bytes for each worker (multiples of 64). Example    group linear { .. }  ->  group linear
 * {mr=6 nr=16 kc=512 lanes=8} { .. } Refuses    rows whose largest length does not fit into memory.
 */
#include "ir/support/checked.h"
#include "passes/rebuild.h"

#define QUERY_ROWS    32
#define KEY_ROWS      64
#define DEPTH_ROWS    512
#define PANEL_COLUMNS 16
#define STRIP_COLUMNS 64  /* columns that the kernel of a linear walks over together */
#define SUM_ROWS      256 /* rows whose sums wait while K is walked over in parts */
#define SCRATCH_MAX   ((int64_t)1 << 32)

static bool match(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_group)
		return false;
	rebuild_need_group(r, op);
	return true;
}

/* The norm in front of a linear, computed by its kernel. */
static const struct ir_op *norm_of(const struct rebuild *r, const struct ir_op *group,
                                   const struct ir_op *root)
{
	const struct ir_op *op = ir_def(r->f, root->operands[0]);
	bool inside = op != NULL && ir_info(r->f, root->operands[0])->region == group->region;
	return inside && ir_op_has(op->code, TRAIT_ROWWISE) ? op : NULL;
}

/* Rows of x of a block: whole tiles of what half of the second-level cache holds. */
static bool select_normed(const struct rebuild *r, const struct ir_op *root, int64_t depth,
                          struct attrs_group *a)
{
	const struct target *t = r->p->options->target;
	const struct ir_type *x = ir_type_of(r->f, root->operands[0]);
	int64_t most = ir_dim_hi(r->in->dims, ir_type_count_range(r->in->dims, x, 0, x->rank - 1)), bytes;
	int64_t rows = t->l2_bytes / 2 / (4 * (depth > 0 ? depth : 1));

	rows = rows > a->mr ? rows / a->mr * a->mr : a->mr;
	a->br = rows < most ? rows : most;
	return checked_mul_i64(a->br, 4 * depth, &bytes) && checked_round_up_i64(bytes, 64, &bytes) &&
	       checked_add_i64(a->scratch, bytes, &a->scratch);
}

static bool select_linear(const struct rebuild *r, const struct ir_op *group, const struct ir_op *root,
                          struct attrs_group *a)
{
	const struct target *t = r->p->options->target;
	const struct ir_type *w = ir_type_of(r->f, root->operands[1]);
	int64_t columns = ir_dim_hi(r->in->dims, w->dims[0]), depth = ir_dim_hi(r->in->dims, w->dims[1]);

	a->mr = t->mr;
	a->nr = columns < 2 * PANEL_COLUMNS ? PANEL_COLUMNS : PANEL_COLUMNS * t->panels;
	a->kc = depth < DEPTH_ROWS ? depth : DEPTH_ROWS;
	/* Parts pay when the weights of a strip do not stay in the second-level cache: sums [rows, columns].
	 */
	if (depth >= t->l2_bytes / (4 * STRIP_COLUMNS))
		a->scratch = 4 * SUM_ROWS * STRIP_COLUMNS;
	return norm_of(r, group, root) == NULL || select_normed(r, root, depth, a);
}

/* Keys [E,bc] transposed, scores [br,bc], accumulators [br,V], running max and sum [br]; E and V in whole
 * panels. */
static bool select_attention(const struct rebuild *r, const struct ir_op *root, struct attrs_group *a)
{
	int64_t e = ir_dim_hi(r->in->dims, ir_type_of(r->f, root->operands[0])->dims[3]);
	int64_t v = ir_dim_hi(r->in->dims, ir_type_of(r->f, root->operands[2])->dims[3]);

	a->br = QUERY_ROWS;
	a->bc = KEY_ROWS;
	if (e > SCRATCH_MAX || v > SCRATCH_MAX)
		return false;
	e = (e + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS;
	v = (v + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS;
	a->scratch = 4 * (e * a->bc + a->br * a->bc + a->br * v + 2 * a->br);
	return true;
}

/* One row in f32. */
static bool select_rowwise(const struct rebuild *r, const struct ir_op *root, struct attrs_group *a)
{
	const struct ir_type *x = ir_type_of(r->f, root->operands[0]);
	int64_t row = ir_dim_hi(r->in->dims, x->dims[x->rank - 1]);
	return checked_mul_i64(row, 4, &a->scratch);
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct attrs_group a = *(const struct attrs_group *)op->attrs;
	const struct ir_op *root = op->region->ops[a.root];
	bool fits = true;

	a.mr = a.nr = a.kc = a.br = a.bc = a.scratch = 0;
	a.lanes = r->p->options->target->lanes;
	switch ((enum ir_word_group)a.kind) {
	case GROUP_linear: fits = select_linear(r, op, root, &a); break;
	case GROUP_attention: fits = select_attention(r, root, &a); break;
	case GROUP_rowwise: fits = select_rowwise(r, root, &a); break;
	case GROUP_loops: break;
	}
	fits = fits && checked_round_up_i64(a.scratch, 64, &a.scratch) && a.scratch <= SCRATCH_MAX;
	if (!fits)
		diag_error(r->p->cx, op->loc.at, DIAG_LIMIT, "a row of this step can be too long to compute");
	rebuild_group(r, op, &a);
}

enum tfmc_status pass_select(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	const struct rewrite rewrite = {.match = match, .emit = emit};
	size_t errors = p->cx->n_errors;

	if (p->options->target == NULL) {
		diag_error(p->cx, LOC_NONE, DIAG_PIPELINE, "the pass select needs a target");
		return TFMC_INVALID;
	}
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INVALID : TFMC_OK;
}
