/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select: tile sizes and scratch of every group for the target.
 *
 * Requires   group, and a target record.
 * Ensures    the attributes of every group say how its kernel is made: for a linear the mr x nr register tile and
 *            kc rows of K at a time (and br rows that a norm or rounding makes before it), for attention br
 *            queries by bc keys; the lanes of a vector; scratch bytes for each worker (multiples of 64); room behind
 *            the rows of a result that meet in the cache, when only linears read them. The sizes are computed
 *            by ir/target/tile.h from the target record alone, unless a line of a tile file (tiles.h) fits.
 * Example    group linear { .. }  ->  group linear {mr=6 nr=16 kc=512 lanes=8} { .. }
 * Refuses    rows whose largest length does not fit into memory; tiles that want more registers than there are.
 */
#include "ir/support/checked.h"
#include "passes/framework/rebuild.h"
#include "passes/group/form.h"
#include "passes/group/tiles.h"

#define SPLIT_ROWS_MAX   16   /* query heads of a head of keys, in a step */
#define SPLIT_BLOCKS_MIN 4    /* of keys */
#define SPLIT_BLOCKS_MAX 2048 /* 131 072 keys in blocks of 64: 8 MiB of partial results for each worker */
#define SPLIT_GROUPS_MIN 2    /* blocks that work-groups divide */
#define SCRATCH_MAX      ((int64_t)1 << 32)

struct selector {
	struct panel_row_count lines; /* of --tiles */
	const struct ir_func *f;      /* the function that is open */
	uint32_t *reads;              /* [f->n_values]: uses of a value as x of a linear */
};

/* ---- rows that would meet in the cache ---- */

static uint32_t *count_reads(struct arena *a, const struct ir_func *f)
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
 * The result of `group` has rows that meet in the cache, a tile takes more of them than it has ways, and nothing
 * but linears reads it: then they need not lie side by side.
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
		s->reads = count_reads(r->p->arena, r->f);
	}
	return s->reads != NULL && s->reads[v.id] > 0 && s->reads[v.id] == r->uses[v.id];
}

/* Rows of a tile: where those of x meet, no more than the cache holds. */
static int64_t height_of(struct rebuild *r, const struct ir_op *root, int64_t depth, bool in_scratch)
{
	const struct target *t = r->p->options->target;
	int height = target_register_tile(t).mr, ways = target_l1_ways(t);
	bool apart = in_scratch || !tile_rows_collide(depth) || may_pad(r, ir_def(r->f, root->operands[0]));
	return apart || height < ways ? height : ways;
}

/* ---- sizes ---- */

/* What the file of tiles says about a group, by its k, n and rows. */
struct wanted {
	const struct panel_row_count *lines;
	int64_t k, n, rows;
};

static bool match(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_group)
		return false;
	rebuild_need_group(r, op);
	return true;
}

/* The op on rows before the one that reads v, computed by the kernel of the group. */
static const struct ir_op *rows_of(const struct rebuild *r, const struct ir_op *group, struct ir_value v)
{
	const struct ir_op *op = ir_def(r->f, v);
	bool inside = op != NULL && ir_value_info(r->f, v)->region == group->region;
	return inside && ir_op_has(op->code, TRAIT_ROWWISE) ? op : NULL;
}

/* What the matrix lies in memory as. */
static enum ir_format stored_as(const struct rebuild *r, const struct ir_op *root)
{
	const struct ir_weight *w = ir_weight_of(r->f, root->operands[1]);
	return w != NULL ? w->format : FORMAT_PLAIN;
}

/* Bytes of a row of x in scratch. */
static int64_t row_bytes(const struct rebuild *r, const struct ir_op *root, const struct ir_op *rows,
                         int64_t depth)
{
	if (rows->code != OP_round_rows)
		return 4 * tile_row_stride(depth);
	return activation_row_layout(stored_as(r, root), group_rounding(rows), depth).bytes;
}

/* By matrix tiles. */
static bool by_matrix(const struct rebuild *r, const struct ir_op *root, const struct ir_op *before,
                      int64_t depth)
{
	return before != NULL && before->code == OP_round_rows &&
	       tile_uses_amx(r->p->options->target, stored_as(r, root), group_rounding(before), depth);
}

/* Room for the rows of a block and for a strip of panels, of gates and what they multiply, unpacked. */
static bool select_unpacked(const struct tile_unpacked_bytes *of, struct attrs_group *a)
{
	int64_t panel, rows;
	return checked_mul_i64(a->br, of->row, &rows) && checked_add_i64(a->scratch, rows, &a->scratch) &&
	       checked_mul_i64(of->panel, 2 * TILE_PANELS_MAX, &panel) &&
	       checked_add_i64(a->scratch, panel, &a->scratch);
}

/* Rows of x of a block: whole tiles of what the second-level cache holds. */
static bool select_rows(const struct rebuild *r, const struct ir_op *root, const struct ir_op *before,
                        int64_t depth, struct attrs_group *a)
{
	const struct target *t = r->p->options->target;
	const struct ir_type *x = ir_type_of(r->f, root->operands[0]);
	int64_t most = ir_dim_hi(r->in->dims, ir_type_count_range(r->in->dims, x, 0, x->rank - 1)), bytes;
	bool is_matrix = by_matrix(r, root, before, depth);
	int64_t one_row = row_bytes(r, root, before, depth);
	bool rounds = before->code == OP_round_rows;
	struct activation_quant to = rounds ? group_rounding(before) : (struct activation_quant){0};
	bool by_steps = rounds && tile_blocks_use_amx(t, stored_as(r, root), to, depth);
	int64_t rows = target_gemm_mc(t, is_matrix || by_steps ? one_row / 4 : depth);
	int64_t height = by_steps ? UNPACK_MIN_ROWS : a->mr;

	rows = rows > height ? rows / height * height : a->mr;
	a->br = rows < most ? rows : most;
	int64_t one = rounds ? 4 * depth : 0; /* what is rounded, row by row */
	int64_t spare = is_matrix ? AMX_OVERREAD_ROWS : 0, stage = is_matrix ? AMX_C_BUFFER_BYTES(a->br) : 0;
	if (!checked_mul_i64(a->br + spare, one_row, &bytes) ||
	    !checked_add_i64(bytes, one + stage, &bytes) || !checked_round_up_i64(bytes, 64, &bytes) ||
	    !checked_add_i64(a->scratch, bytes, &a->scratch))
		return false;
	if (!rounds || most < UNPACK_MIN_ROWS)
		return true;
	struct tile_unpacked_bytes of;
	return tile_unpacked_bytes(t, stored_as(r, root), to, depth, &of) && select_unpacked(&of, a);
}

static int64_t choose(const struct wanted *w, int kind, enum tile_size size, int64_t by_model)
{
	int64_t v = tiles_find(w->lines, kind, w->k, w->n, w->rows, size);
	return v != 0 ? v : by_model;
}

/* Room for the strip of codes that is open, as f32: all of K where that leaves half of L2. */
static void select_copy(const struct target *t, int64_t depth, struct attrs_group *a)
{
	int64_t line = TILE_PANELS_MAX * PANEL_ROW_BYTES;
	if (depth <= t->l2_bytes / 2 / line)
		a->scratch = depth * line;
	else
		a->scratch = C_BUFFER_BYTES + a->kc * line;
}

static int64_t rounded_height(const struct rebuild *r, const struct ir_op *root, const struct ir_op *before,
                              int64_t depth)
{
	const struct target *t = r->p->options->target;
	const struct activation_quant to = group_rounding(before);
	if (!to.bf16 && tile_accumulates_i16(t, stored_as(r, root)))
		return register_tile_mr_i16(t, target_register_tile(t));
	bool has_steps = activation_row_layout(stored_as(r, root), to, depth).steps > 1;
	return register_tile_mr_quantized(t, target_register_tile(t), has_steps);
}

/* A matrix of one panel takes tiles of one panel, with as many rows as others have: no more code. */
static bool select_linear(struct rebuild *r, const struct ir_op *group, const struct ir_op *root,
                          const struct wanted *w, struct attrs_group *a)
{
	const struct target *t = r->p->options->target;
	const struct register_tile tile = target_register_tile(t);
	int64_t nr = w->n < 2 * PANEL_COLUMNS ? PANEL_COLUMNS : tile.nr;

	const struct ir_op *before = rows_of(r, group, root->operands[0]);
	bool is_matrix = by_matrix(r, root, before, w->k);
	int64_t mr = height_of(r, root, w->k, before != NULL);
	a->nr = is_matrix ? nr : choose(w, GROUP_linear, TILE_NR, nr);
	bool rounds = before != NULL && before->code == OP_round_rows;
	enum ir_format format = stored_as(r, root);
	int64_t most = rounds ? rounded_height(r, root, before, w->k)
	                      : register_tile_mr(t, tile, ir_format(format)->dtype);
	a->mr = is_matrix ? AMX_TILE_ROWS : choose(w, GROUP_linear, TILE_MR, mr < most ? mr : most);
	int64_t named = tiles_find(w->lines, GROUP_linear, w->k, w->n, w->rows, TILE_KC);
	int64_t kc = named != 0 ? named : target_gemm_kc(t);
	a->kc = w->k < kc || rounds ? w->k : kc;
	/* Parts pay when the weights of a strip do not stay in the second-level cache: sums [rows, columns].
	 */
	bool divides = root->code == OP_linear && !rounds; /* experts walk over all of K */
	if (divides && (target_blocks_k(t, w->k) || (named != 0 && named < w->k)))
		a->scratch = C_BUFFER_BYTES;
	if (!rounds && ir_format_is_quantized(format))
		select_copy(t, w->k, a);
	return before == NULL || select_rows(r, root, before, w->k, a);
}

/* Lines of a file that are possible each may not be so together. */
static void check_linear(struct rebuild *r, const struct ir_op *op, const struct ir_op *root,
                         const struct wanted *w, const struct attrs_group *a)
{
	const struct target *t = r->p->options->target;
	int need = target_tile_registers(t, (int)a->mr, (int)a->nr);
	if (need > t->registers && !by_matrix(r, root, rows_of(r, op, root->operands[0]), w->k))
		diag_error(r->p->cx, op->loc.at, DIAG_TILES,
		           "lines of tiles give this step %lld x %lld, which wants %d vector registers, %s "
		           "has %d",
		           (long long)a->mr, (long long)a->nr, need, t->name, t->registers);
}

/* Rows of the query heads that read one head of keys; the most there can be. 0: not known. */
static int64_t attention_rows(const struct rebuild *r, const struct ir_op *root, int64_t tokens)
{
	int64_t heads = ir_dim_hi(r->in->dims, ir_type_of(r->f, root->operands[0])->dims[1]);
	int64_t key_heads = ir_dim_hi(r->in->dims, ir_type_of(r->f, root->operands[1])->dims[1]), rows;
	bool fits = heads > 0 && key_heads > 0 && checked_mul_i64(tokens, heads / key_heads, &rows);
	return fits ? rows : 0;
}

/*
 * Blocks of keys of a head, where dividing them among workers may pay: one new token, long contexts. The
 * blocks and the order in which they join are the same without it. On processors all query heads of a head of keys are
 * one task then. 0: they are not divided.
 */
static int64_t split_of(const struct rebuild *r, const struct ir_op *root, int64_t rows, int64_t br,
                        int64_t bc)
{
	const struct ir_type *key = ir_type_of(r->f, root->operands[1]);
	const struct ir_type *q = ir_type_of(r->f, root->operands[0]);
	const struct target *t = r->p->options->target;
	int64_t keys = ir_dim_hi(r->in->dims, key->dims[2]), heads, least = SPLIT_BLOCKS_MIN;
	bool is_step = ir_dim_equals(q->dims[2], 1);
	if (t->group_size > 1) { /* calls of one token take another way in the same kernel */
		is_step = q->dims[2] != key->dims[2] && ir_dim_is_const(q->dims[1], &heads);
		rows = attention_rows(r, root, 1);
		least = SPLIT_GROUPS_MIN;
	} else if (rows > br) {
		return 0;
	}
	if (t->group_size == 1 || !is_step || rows < 1 || rows > SPLIT_ROWS_MAX ||
	    !ir_dim_is_const(key->dims[1], &heads))
		return 0;
	int64_t blocks = keys / bc + (keys % bc != 0);
	if (blocks > SPLIT_BLOCKS_MAX)
		pass_missed(r->p, root->loc,
		            "not divided: %lld blocks of keys are more than the %d that workers may share, "
		            "so one "
		            "worker computes a head",
		            (long long)blocks, SPLIT_BLOCKS_MAX);
	return blocks >= least && blocks <= SPLIT_BLOCKS_MAX ? blocks : 0;
}

static int scales_of(const struct ir_op *root)
{
	return (root->operands[OPERAND(attention, k_scale)].id != 0) +
	       (root->operands[OPERAND(attention, v_scale)].id != 0);
}

/*
 * bc depends on nothing that differs between entries, except that it is never more than there are keys: then
 * there is one block, whatever bc is.
 */
static bool select_attention(const struct rebuild *r, const struct ir_op *root, const struct wanted *w,
                             struct attrs_group *a)
{
	const struct target *t = r->p->options->target;
	int64_t keys = ir_dim_hi(r->in->dims, ir_type_of(r->f, root->operands[1])->dims[2]);
	int64_t rows = attention_rows(r, root, w->rows);
	struct target_attention_scratch s;

	if (w->k > SCRATCH_MAX || w->n > SCRATCH_MAX)
		return false;
	target_attention_blocks(t, w->k, w->n, &a->br, &a->bc);
	a->br = choose(w, GROUP_attention, TILE_BR, a->br);
	a->bc = choose(w, GROUP_attention, TILE_BC, a->bc);
	a->br = rows > 0 && rows < a->br ? rows : a->br;
	a->bc = keys > 0 && keys < a->bc ? panel_round_up(keys) : a->bc;
	a->split = split_of(r, root, rows, a->br, a->bc);
	const struct target_attention_sizes sizes = {a->br, a->bc, a->split, scales_of(root)};
	target_attention_scratch(t, w->k, w->n, &sizes, &s);
	a->scratch = s.bytes;
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
	struct selector *s = r->rewrite->user;
	const struct ir_op *root = op->region->ops[a.root];
	struct wanted w = {.lines = &s->lines};
	bool fits = true;

	(void)tiles_key(r->in, r->f, op, &w.k, &w.n, &w.rows);

	a.mr = a.nr = a.kc = a.br = a.bc = a.split = a.scratch = 0;
	a.pad = may_pad(r, op) ? TILE_PAD : 0;
	a.lanes = r->p->options->target->lanes;
	switch ((enum ir_keyword_group)a.kind) {
	case GROUP_linear:
		fits = select_linear(r, op, root, &w, &a);
		check_linear(r, op, root, &w, &a);
		break;
	case GROUP_attention: fits = select_attention(r, root, &w, &a); break;
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
	const struct pass_options *o = p->options;
	struct selector s = {.lines = {0}};
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &s};
	size_t errors = p->cx->n_errors;

	if (p->options->target == NULL) {
		diag_error(p->cx, LOC_NONE, DIAG_PIPELINE, "the pass select needs a target");
		return TFMC_INVALID;
	}
	if (o->tiles_text != NULL)
		TFMC_TRY(tiles_read(p->arena, p->cx, o->target, o->tiles_name, o->tiles_text, o->tiles_len,
		                    &s.lines));
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INVALID : TFMC_OK;
}
