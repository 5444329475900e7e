/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select: tile sizes and scratch of every group for the target.
 *
 * Requires   group, and a target record.
 * Ensures    the attributes of every group describe its kernel: for a linear the mr x nr register tile, the K
 *            block kc, and br rows that a norm, rounding or concat prologue computes at a time; for attention br
 *            queries by bc keys; the vector lanes; scratch bytes for each worker (a multiple of 64); row padding (pad)
 *            against cache-set conflicts where only linears read the result. ir/target/tile.h computes the sizes
 *            from the target record alone. The setting bc replaces the keys of a block of attention (0: computed),
 *            for tests with short sequences.
 * Example    group linear { .. }  ->  group linear {mr=6 nr=16 kc=512 lanes=8} { .. }
 * Skips      (an error) rows whose maximum length does not fit into memory.
 */
#include "ir/core/view.h"
#include "ir/support/checked.h"
#include "passes/framework/rebuild.h"
#include "passes/group/fusion.h"

#define SPLIT_ROWS_MAX   16   /* query heads for each key head, in a decode step */
#define SPLIT_BLOCKS_MIN 4    /* blocks of keys, on CPUs */
#define SPLIT_BLOCKS_MAX 2048 /* 131 072 keys in blocks of 64: 8 MiB of partial results for each worker */
#define SPLIT_GROUPS_MIN 2    /* blocks of keys, on devices */
#define SCRATCH_MAX      ((int64_t)1 << 32)

struct selector {
	const struct ir_func *f; /* the function of `reads` */
	uint32_t *reads;         /* [f->n_values] uses as x of a linear */
};

/* ---- rows that conflict in the cache ---- */

/* reads[v.id]: number of linears of f that read v as their input x. NULL without memory. */
static uint32_t *count_linear_reads(struct arena *a, const struct ir_func *f)
{
	uint32_t *reads = ARENA_ARRAY(a, uint32_t, f->n_values);
	for (struct ir_iter it = ir_iter_begin(f->body); reads != NULL && it.op != NULL; ir_iter_next(&it)) {
		const struct attrs_group *a_group = it.op->attrs;
		if (it.op->code == OP_group && a_group->kind == GROUP_linear)
			reads[it.op->region->ops[a_group->root]->operands[OPERAND(linear, x)].id]++;
	}
	return reads;
}

/*
 * Whether rows of the result of `group` may be padded: they map to the same cache set, a register tile reads more
 * of them than the cache has ways, and only linears read the result.
 */
static bool may_pad(struct rebuild *r, const struct ir_op *group)
{
	struct selector *s = r->rewrite->user;
	const struct target *t = r->p->options->target;
	if (group == NULL || group->code != OP_group || group->n_results != 1 || t->group_size > 1 ||
	    target_register_tile(t).mr <= target_l1_ways(t))
		return false;
	struct ir_value v = group->results[0];
	const struct ir_type *y = ir_type_of(r->f, v);
	int64_t row;
	if (y->kind != IR_TENSOR || y->dtype != DT_F32 || y->rank < 2 ||
	    !ir_dim_is_const(y->dims[y->rank - 1], &row) || !tile_rows_collide(row) ||
	    ir_dim_hi(r->in->dims, ir_type_count_range(r->in->dims, y, 0, y->rank - 1)) <= target_l1_ways(t))
		return false;
	if (s->f != r->f) {
		s->f = r->f;
		s->reads = count_linear_reads(r->p->arena, r->f);
	}
	return s->reads != NULL && s->reads[v.id] > 0 && s->reads[v.id] == r->uses[v.id];
}

/* mr of a linear: at most the number of cache ways if rows of x conflict in one cache set. */
static int64_t select_mr(struct rebuild *r, const struct ir_op *root, int64_t depth, bool in_scratch)
{
	const struct target *t = r->p->options->target;
	int mr = target_register_tile(t).mr, ways = target_l1_ways(t);
	bool is_conflict_free =
	        in_scratch || !tile_rows_collide(depth) || may_pad(r, ir_def(r->f, root->operands[0]));
	return is_conflict_free || mr < ways ? mr : ways;
}

/* ---- sizes ---- */

/* K, N and M of a linear or matmul; features of queries, of values, and queries of an attention. Maxima over the
 * dims. */
struct problem {
	int64_t k, n, rows;
};

/* Sizes of a linear or attention at the largest dims. */
static struct problem problem_of(const struct rebuild *r, const struct ir_op *root)
{
	struct ir_dims *dims = r->in->dims;
	const struct ir_type *x = ir_type_of(r->f, root->operands[0]),
	                     *y = ir_type_of(r->f, root->results[0]);
	const struct ir_dim *rows =
	        root->code == OP_attention ? x->dims[2] : ir_type_count_range(dims, x, 0, x->rank - 1);
	bool is_transposed = root->code == OP_matmul && ((const struct attrs_matmul *)root->attrs)->ta;
	return (struct problem){.k = ir_dim_hi(dims, x->dims[x->rank - (is_transposed ? 2 : 1)]),
	                        .n = ir_dim_hi(dims, y->dims[y->rank - 1]),
	                        .rows = ir_dim_hi(dims, rows)};
}

/* Matches every group, which emit replaces by itself with other attributes; marks what its ops read. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_group)
		return false;
	rebuild_need_group(r, op);
	return true;
}

/* The norm, rounding or concat that computes v inside the group (the prologue of a linear), or NULL. */
static const struct ir_op *prologue_of(const struct rebuild *r, const struct ir_op *group, struct ir_value v)
{
	const struct ir_op *op = ir_def(r->f, v);
	bool inside = op != NULL && ir_value_info(r->f, v)->region == group->region;
	return inside && (ir_op_has(op->code, TRAIT_ROWWISE) || op->code == OP_concat) ? op : NULL;
}

/* Storage format of the weight. */
static enum ir_format weight_format(const struct rebuild *r, const struct ir_op *root)
{
	const struct ir_weight *w = ir_weight_of(r->f, root->operands[1]);
	return w != NULL ? w->format : FORMAT_PLAIN;
}

/* Bytes of a row that the prologue stores in scratch. Quantized rows have the layout of ir/target; others are f32
 * with the stride of tile_row_stride(). */
static int64_t row_bytes(const struct rebuild *r, const struct ir_op *root, const struct ir_op *rows,
                         int64_t depth)
{
	if (rows->code != OP_quantize_rows)
		return 4 * tile_row_stride(depth);
	return activation_row_layout(weight_format(r, root), rounding_of(rows), depth).bytes;
}

/* The kernel uses the matrix unit (AMX tiles). */
static bool uses_matrix_unit(const struct rebuild *r, const struct ir_op *root, const struct ir_op *before,
                             int64_t depth)
{
	return before != NULL && before->code == OP_quantize_rows &&
	       tile_uses_amx(r->p->options->target, weight_format(r, root), rounding_of(before), depth);
}

/* Adds scratch for a block of unpacked rows of x and for the unpacked panels of one N block, gate and up. */
static bool add_unpacked_scratch(const struct tile_unpacked_bytes *of, struct attrs_group *a)
{
	int64_t panel, rows;
	return checked_mul_i64(a->br, of->row, &rows) && checked_add_i64(a->scratch, rows, &a->scratch) &&
	       checked_mul_i64(of->panel, 2 * TILE_PANELS_MAX, &panel) &&
	       checked_add_i64(a->scratch, panel, &a->scratch);
}

/* Sets br, the rows of x of a block: full tiles, as many as L2 holds; adds their scratch. `before` is the prologue
 * that makes the rows, one_row their bytes in scratch; is_matrix: AMX multiplies whole rows, and reads some after
 * the last. From UNPACK_MIN_ROWS rows on operands may be converted once, in scratch of its own (ir/target/tile.h).
 * False: too large. */
static bool select_row_block(const struct rebuild *r, const struct ir_op *root, const struct ir_op *before,
                             int64_t depth, struct attrs_group *a)
{
	const struct target *t = r->p->options->target;
	const struct ir_type *x = ir_type_of(r->f, root->operands[0]);
	int64_t rows_max = ir_dim_hi(r->in->dims, ir_type_count_range(r->in->dims, x, 0, x->rank - 1)), bytes;
	bool is_matrix = uses_matrix_unit(r, root, before, depth);
	int64_t one_row = row_bytes(r, root, before, depth);
	bool rounds = before->code == OP_quantize_rows;
	struct activation_quant to = rounds ? rounding_of(before) : (struct activation_quant){0};
	bool amx_per_block = rounds && tile_blocks_use_amx(t, weight_format(r, root), to, depth);
	int64_t rows = target_gemm_mc(t, is_matrix || amx_per_block ? one_row / 4 : depth);
	int64_t mr = amx_per_block ? UNPACK_MIN_ROWS : a->mr;

	rows = rows > mr ? rows / mr * mr : a->mr;
	a->br = rows < rows_max ? rows : rows_max;
	int64_t f32_row = rounds ? 4 * depth : 0; /* f32 row before rounding */
	int64_t spare = is_matrix ? AMX_OVERREAD_ROWS : 0,
	        c_buffer = is_matrix ? AMX_C_BUFFER_BYTES(a->br) : 0;
	if (!checked_mul_i64(a->br + spare, one_row, &bytes) ||
	    !checked_add_i64(bytes, f32_row + c_buffer, &bytes) || !checked_round_up_i64(bytes, 64, &bytes) ||
	    !checked_add_i64(a->scratch, bytes, &a->scratch))
		return false;
	if (!rounds || rows_max < UNPACK_MIN_ROWS)
		return true;
	struct tile_unpacked_bytes of;
	return tile_unpacked_bytes(t, weight_format(r, root), to, depth, &of) && add_unpacked_scratch(&of, a);
}

/*
 * Scratch for the dequantized, or packed, f32 panels of one N block: all of K if that takes at most half of L2, else a
 * K block.
 */
static void select_dequantized_panels(const struct target *t, int64_t depth, struct attrs_group *a)
{
	int64_t row_bytes = TILE_PANELS_MAX * PANEL_ROW_BYTES;
	if (depth <= t->l2_bytes / 2 / row_bytes)
		a->scratch = depth * row_bytes;
	else
		a->scratch = C_BUFFER_BYTES + a->kc * row_bytes;
}

/* Op matmul: panels of its operand b, of `depth` K elements. A view that is not resolved counts as not adjacent. */
static struct value_panels value_panels_of(const struct rebuild *r, const struct ir_op *root, int64_t depth)
{
	struct ir_dims *dims = r->in->dims;
	const struct ir_type *y = ir_type_of(r->f, root->results[0]);
	int n_axis = y->rank - (((const struct attrs_matmul *)root->attrs)->tb ? 2 : 1);
	int64_t n;
	struct value_panels v = {.depth = depth};
	struct ir_view b;
	if (!ir_view_resolve(r->in, r->f, root->operands[1], &b))
		return v;
	bool is_repeated = true; /* then rows of all products may be rows of one */
	for (int i = 0; i < y->rank - 2; i++)
		is_repeated = is_repeated && (ir_dim_equals(b.size[i], 1) || ir_dim_equals(b.stride[i], 0));
	v.rows = ir_dim_hi(dims,
	                   is_repeated ? ir_type_count_range(dims, y, 0, y->rank - 1) : y->dims[y->rank - 2]);
	v.is_n_adjacent = ir_dim_equals(b.stride[n_axis], 1);
	v.has_partial = !ir_dim_is_const(y->dims[y->rank - 1], &n) || n % PANEL_COLUMNS != 0;
	return v;
}

/* Scratch of a product of two values: panels of an N block, or the partial one of a value that is read in place. */
static void select_value_panels(const struct rebuild *r, const struct ir_op *root, const struct problem *w,
                                struct attrs_group *a)
{
	const struct target *t = r->p->options->target;
	const struct value_panels b = value_panels_of(r, root, w->k);
	if (value_is_read_unpacked(&b, a->mr, t->l2_bytes / 2))
		a->scratch = b.has_partial ? b.depth * PANEL_ROW_BYTES : 0;
	else
		select_dequantized_panels(t, w->k, a);
}

/* Largest mr of a kernel with quantized or bf16 activations. Accumulators of i16, or of f32 in addition to i32 for
 * blocks, take other numbers of registers for each row. */
static int64_t rounded_mr_max(const struct rebuild *r, const struct ir_op *root, const struct ir_op *before,
                              int64_t depth)
{
	const struct target *t = r->p->options->target;
	const struct activation_quant to = rounding_of(before);
	if (!to.bf16 && tile_accumulates_i16(t, weight_format(r, root)))
		return register_tile_mr_i16(t, target_register_tile(t));
	bool has_blocks = activation_row_layout(weight_format(r, root), to, depth).blocks > 1;
	return register_tile_mr_quantized(t, target_register_tile(t), has_blocks);
}

/*
 * Tile of a linear. A matrix of one panel gets nr of one panel and the usual mr, so it needs no further
 * microkernels.
 */
static bool select_linear(struct rebuild *r, const struct ir_op *group, const struct ir_op *root,
                          struct attrs_group *a)
{
	const struct problem w = problem_of(r, root);
	const struct target *t = r->p->options->target;
	const struct register_tile tile = target_register_tile(t);
	const struct ir_op *before = prologue_of(r, group, root->operands[0]);
	if (root->code == OP_matmul && t->group_size > 1)
		return true; /* work-groups pack no values */
	bool is_matrix = uses_matrix_unit(r, root, before, w.k);
	int64_t mr = select_mr(r, root, w.k, before != NULL);
	a->nr = w.n < 2 * PANEL_COLUMNS ? PANEL_COLUMNS : tile.nr;
	bool rounds = before != NULL && before->code == OP_quantize_rows;
	enum ir_format format = weight_format(r, root);
	int64_t mr_max = rounds ? rounded_mr_max(r, root, before, w.k)
	                        : register_tile_mr(t, tile, ir_format(format)->dtype);
	a->mr = is_matrix ? AMX_TILE_ROWS : mr < mr_max ? mr : mr_max;
	int64_t kc = target_gemm_kc(t);
	a->kc = w.k < kc || rounds ? w.k : kc;
	/* Dividing K pays when the weights of an N block exceed L2: the accumulators [rows, columns] are then in
	 * scratch. */
	bool divides = root->code == OP_linear && !rounds; /* expert kernels do not block K */
	if (divides && target_blocks_k(t, w.k))
		a->scratch = C_BUFFER_BYTES;
	if (root->code == OP_matmul)
		select_value_panels(r, root, &w, a);
	else if (!rounds && ir_format_is_quantized(format))
		select_dequantized_panels(t, w.k, a);
	return before == NULL || select_row_block(r, root, before, w.k, a);
}

/* Upper bound of the query rows that share one key head (GQA group times tokens); 0: unknown. Unknown also if the
 * product overflows. */
static int64_t query_rows(const struct rebuild *r, const struct ir_op *root, int64_t tokens)
{
	int64_t heads = ir_dim_hi(r->in->dims, ir_type_of(r->f, root->operands[0])->dims[1]);
	int64_t key_heads = ir_dim_hi(r->in->dims, ir_type_of(r->f, root->operands[1])->dims[1]), rows;
	bool fits = heads > 0 && key_heads > 0 && checked_mul_i64(tokens, heads / key_heads, &rows);
	return fits ? rows : 0;
}

/*
 * Split-KV (flash decoding): number of key blocks of a head that workers may share, for one new token and a long
 * context; 0: not split. Blocks and the order in which partial results are combined are the same without the
 * split, so the bits are, too. On CPUs all query heads of a key head are then one task.
 */
static int64_t select_split(const struct rebuild *r, const struct ir_op *root, int64_t rows, int64_t br,
                            int64_t bc)
{
	const struct ir_type *key = ir_type_of(r->f, root->operands[1]);
	const struct ir_type *q = ir_type_of(r->f, root->operands[0]);
	const struct target *t = r->p->options->target;
	int64_t keys = ir_dim_hi(r->in->dims, key->dims[2]), heads, blocks_min = SPLIT_BLOCKS_MIN;
	bool is_decode_step = ir_dim_equals(q->dims[2], 1);
	if (t->group_size >
	    1) { /* the same kernel has a path for calls of one token, with the keys of a cache */
		is_decode_step = q->dims[2] != key->dims[2] && ir_dim_is_const(q->dims[1], &heads);
		rows = query_rows(r, root, 1);
		blocks_min = SPLIT_GROUPS_MIN;
	} else if (rows > br) {
		return 0;
	}
	if (!is_decode_step || rows < 1 || rows > SPLIT_ROWS_MAX || !ir_dim_is_const(key->dims[1], &heads))
		return 0;
	int64_t blocks = keys / bc + (keys % bc != 0);
	if (blocks > SPLIT_BLOCKS_MAX)
		pass_missed(r->p, root->loc,
		            "not divided: %lld blocks of keys are more than the %d that workers may share, "
		            "so one "
		            "worker computes a head",
		            (long long)blocks, SPLIT_BLOCKS_MAX);
	return blocks >= blocks_min && blocks <= SPLIT_BLOCKS_MAX ? blocks : 0;
}

/*
 * Blocks of attention. bc determines the order of sums, so it must be the same in all entries of a model; limiting
 * it to the number of keys is no exception, since there is then one block whatever bc is.
 */
static bool select_attention(const struct rebuild *r, const struct ir_op *root, struct attrs_group *a)
{
	const struct problem w = problem_of(r, root);
	const struct target *t = r->p->options->target;
	int64_t keys = ir_dim_hi(r->in->dims, ir_type_of(r->f, root->operands[1])->dims[2]);
	int64_t rows = query_rows(r, root, w.rows);
	struct target_attention_scratch s;

	if (w.k > SCRATCH_MAX || w.n > SCRATCH_MAX)
		return false;
	target_attention_blocks(t, w.k, w.n, &a->br, &a->bc);
	int64_t bc = r->p->step->settings[SETTING_select_bc];
	a->bc = bc > 0 ? panel_round_up(bc) : a->bc;
	a->br = rows > 0 && rows < a->br ? rows : a->br;
	a->bc = keys > 0 && keys < a->bc ? panel_round_up(keys) : a->bc;
	a->split = select_split(r, root, rows, a->br, a->bc);
	const struct target_attention_sizes sizes = {a->br, a->bc, a->split,
	                                             root->operands[OPERAND(attention, k_scale)].id != 0,
	                                             root->operands[OPERAND(attention, v_scale)].id != 0};
	target_attention_scratch(t, w.k, w.n, &sizes, &s);
	a->scratch = 4 * s.end;
	return true;
}

/* Scratch of one row in f32. */
static bool select_rowwise(const struct rebuild *r, const struct ir_op *root, struct attrs_group *a)
{
	const struct ir_type *x = ir_type_of(r->f, root->operands[0]);
	int64_t row = ir_dim_hi(r->in->dims, x->dims[x->rank - 1]);
	return checked_mul_i64(row, 4, &a->scratch);
}

/* Sets the sizes for the kind of the group; an error if its scratch does not fit. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct attrs_group a = *(const struct attrs_group *)op->attrs;
	const struct ir_op *root = op->region->ops[a.root];
	bool fits = true;

	a.mr = a.nr = a.kc = a.br = a.bc = a.split = a.scratch = 0;
	a.pad = may_pad(r, op) ? TILE_PAD : 0;
	a.lanes = r->p->options->target->lanes;
	switch ((enum ir_keyword_group)a.kind) {
	case GROUP_linear: fits = select_linear(r, op, root, &a); break;
	case GROUP_attention: fits = select_attention(r, root, &a); break;
	case GROUP_rowwise: fits = select_rowwise(r, root, &a); break;
	case GROUP_exchange: a.lanes = 0; break;
	case GROUP_loops: break;
	}
	fits = fits && checked_round_up_i64(a.scratch, 64, &a.scratch) && a.scratch <= SCRATCH_MAX;
	if (!fits)
		diag_error(r->p->cx, op->loc.at, DIAG_LIMIT, "a row of this step can be too long to compute");
	rebuild_group(r, op, &a);
}

/* Sets the attributes of all groups; without a target there are no sizes to select. */
enum tfmc_status pass_select(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct selector s = {.f = NULL};
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &s};
	size_t errors = p->cx->n_errors;

	if (p->options->target == NULL) {
		diag_error(p->cx, LOC_NONE, DIAG_PIPELINE, "the pass select needs a target");
		return TFMC_INVALID;
	}
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INVALID : TFMC_OK;
}
