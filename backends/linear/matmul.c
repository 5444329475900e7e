/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matmul template: reads the group, chooses tiles, divides rows and panels
 * of columns among workers, and walks over both. A strip of a few panels stays
 * in the cache while the rows of a block pass by. Rows that do not fill a tile
 * go through lower ones; the results do not depend on which.
 */
#include "backends/linear/matmul_internal.h"
#include "backends/rows/rowwise.h"
#include "ir/builder/case.h"

/* Operands of OP_linear. */
enum { X = OPERAND(linear, x), W = OPERAND(linear, w), BIAS = OPERAND(linear, b) };

#define BLOCKS_TO_SHARE 8  /* of rows at most, so that all workers have as much to do */
#define TASKS_TO_SHARE  16 /* for each worker: one more or less does not matter */

/* ---- the group ---- */

/* A norm after the root needs whole rows: what it reads is left where the result goes, until a row is
 * complete. */
static bool bind_norm_behind(struct linear *l)
{
	const struct ir_region *r = l->job->group->region;
	for (size_t i = (size_t)l->g->attrs->root + 1; i < r->n_ops; i++)
		if (ir_is_norm(r->ops[i]->code))
			l->norm.after = r->ops[i];
	l->out = l->g->out.items[0];
	if (!l->norm.after)
		return true;
	l->out.value = l->norm.after->operands[0];
	return l->out.to.t.dtype == DT_F32 && l->out.to.t.encoding == ENC_ROW;
}

static bool bind_operands(struct linear *l)
{
	const struct ir_op *root = l->g->root;
	l->bias = root->n_operands > BIAS ? root->operands[BIAS] : IR_NO_VALUE;
	l->w = eval_tensor(l->eval, root->operands[W]);
	return l->w && l->w->t.encoding == ENC_PANEL16 && matmul_find_rows(l);
}

bool matmul_find_panels(struct linear *l)
{
	const struct kb_tensor *w = &l->w->t;
	for (int i = 0; i < w->rank; i++)
		if (!w->size[i].is_const || w->size[i].c > INT32_MAX)
			return false;
	l->columns.n = w->size[w->rank - 2].c;
	l->columns.panels = (l->columns.n + MATMUL_PANEL - 1) / MATMUL_PANEL;
	l->depth = w->size[w->rank - 1].c;
	l->panel = panel_of(w->format != FORMAT_PLAIN ? w->format : ir_format_from_dtype(w->dtype), l->depth);
	return true;
}

static bool find_sizes(struct linear *l)
{
	const struct ir_type *type = ir_type_of(l->job->func, eval_result(l->g->root));
	struct ir_dims *dims = l->job->module->dims;
	const struct ir_dim *rows = ir_type_count_range(dims, type, 0, type->rank - 1);
	if (type->rank < 1 || !matmul_find_panels(l))
		return false;
	l->rank = type->rank;
	eval_sizes(l->eval, eval_result(l->g->root), l->size);
	l->rows = eval_dim(l->eval, rows);
	l->rows_lo = ir_dim_lo(dims, rows);
	l->rows_hi = ir_func_dim_hi(l->job->module, l->job->func, rows);
	return true;
}

#define SHORT_OPS_MAX 6

/* Long programs are emitted once, not for every accumulator. */
bool matmul_wants_stage(const struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	size_t n = 0;
	for (size_t i = (size_t)g->attrs->root + 1; i < r->n_ops; i++)
		n += ir_op_has(r->ops[i]->code, TRAIT_ELEMENTWISE);
	return n > SHORT_OPS_MAX || kernel_has_functions(g);
}

bool matmul_choose_schedule(struct linear *l)
{
	const struct attrs_group *s = l->g->attrs;
	const struct target *t = l->job->target;
	const struct register_tile tile = target_register_tile(t);
	int64_t lanes = s->lanes > 0 ? s->lanes : t->lanes,
	        mr = s->mr > 0 ? s->mr : register_tile_mr(t, tile, ir_format(l->panel.format)->dtype);
	int64_t nr = s->nr > 0 ? s->nr : tile.nr;
	lanes = lanes < MATMUL_PANEL ? lanes : MATMUL_PANEL;
	if (mr > MATMUL_ROWS_MAX || nr % MATMUL_PANEL != 0 || nr > MATMUL_STRIP * MATMUL_PANEL ||
	    MATMUL_PANEL % lanes != 0 || mr * (nr / lanes) > MATMUL_ACC_MAX)
		return false;
	l->lanes = (int)lanes;
	l->mr = (int)mr;
	l->nr = (int)(nr / MATMUL_PANEL);
	return true;
}

/* K is divided when there is scratch for the sums of a few tiles of rows. */
static struct matmul_stage choose_stage(const struct linear *l, bool is_wanted, bool is_few)
{
	const struct attrs_group *s = l->g->attrs;
	struct matmul_stage stage = {.width = (int64_t)l->columns.halves * l->columns.strip * MATMUL_PANEL};
	int64_t bytes = stage.width * 4, before = matmul_rows_bytes(l);
	int64_t rows = (s->scratch - before) / bytes;
	int64_t kc = s->kc / l->panel.per_line * l->panel.per_line;
	bool divide = l->panel.lines != PANEL_CODES && !is_few && kc > 0 && kc < l->depth &&
	              l->rows_hi > l->mr && rows >= l->mr;
	stage.kc = divide ? kc : 0;
	stage.rows = divide ? rows : is_few ? l->rows_hi : matmul_tile_height(l);
	if (divide)
		stage.at = kb_ptr_add(l->k, l->job->scratch, kb_index(l->k, before), 0);
	else if (is_wanted)
		stage.at = kb_local(l->k, "stage", KB_F32, stage.rows * stage.width);
	return stage;
}

/* ---- tiles ---- */

/* Panels of a tile of so many rows: as many as registers hold beside one line of weights and a broadcast. */
static int panels_of(const struct linear *l, int rows)
{
	const struct kb_caps *caps = kb_caps(l->k);
	int units = matmul_units(l);
	int sums = matmul_sum_registers(l) * rows * units;
	int64_t whole = l->columns.n / MATMUL_PANEL;
	bool is_low = rows != l->mr && !matmul_of_many(l, rows);
	int n = is_low && (rows == 1 || !matmul_is_short(l)) ? MATMUL_STRIP : l->nr;
	if (matmul_reads_codes(l))
		n = is_low ? matmul_panels_of_codes(l, rows) : l->nr;
	for (; n > 1; n /= 2) {
		int lines = rows > 1 ? n * units : 1;
		bool fits = rows == l->mr || matmul_reads_codes(l) || n * sums + lines + 1 < caps->registers;
		if (fits && n <= whole && rows * n * (MATMUL_PANEL / l->lanes) <= MATMUL_ACC_MAX)
			break;
	}
	return n;
}

/* Panels that stay together when there are many rows: whole tiles of whole heads. */
static int64_t matmul_unit_of_many(const struct linear *l)
{
	return l->columns.unit % l->nr == 0 ? l->columns.unit : l->columns.unit * l->nr;
}

/* Strips of many rows are whole tiles of main width. */
static bool has_single_panels(const struct linear *l, const struct matmul_tile *t)
{
	if (!matmul_of_many(l, t->rows) && !(matmul_is_short(l) && matmul_unit_of_many(l) % t->panels == 0))
		return true;
	return l->columns.n % ((int64_t)t->panels * MATMUL_PANEL) != 0 || l->columns.strip % t->panels != 0;
}

struct kb_val matmul_whole_panels(const struct linear *l, const struct matmul_strip *s, int panels)
{
	struct kb *k = l->k;
	struct kb_val end = kb_min(k, s->end, kb_index(k, l->columns.n / MATMUL_PANEL));
	struct kb_val n = kb_div_const(k, kb_sub(k, end, s->begin), panels);
	return kb_add(k, s->begin, kb_mul_const(k, n, panels));
}

void matmul_walk_panels(const struct linear *l, const struct matmul_strip *s, struct matmul_tile t,
                        bool has_single)
{
	struct kb *k = l->k;
	struct kb_val whole = s->begin;
	if (t.panels > 1) {
		whole = matmul_whole_panels(l, s, t.panels);
		t.panel = kb_loop(k, "panel", s->begin, whole, t.panels, has_single ? 0 : KB_NONEMPTY);
		matmul_tile(l, s, &t);
		kb_end_loop(k);
	}
	if (t.panels > 1 && !has_single)
		return;
	t.panels = 1;
	t.panel = kb_loop(k, "panel", whole, s->end, 1, 0);
	matmul_tile(l, s, &t);
	kb_end_loop(k);
}

/* All tiles of the height and width of t in the strip. */
static void emit_height(const struct linear *l, const struct matmul_strip *s, struct matmul_tile t)
{
	struct kb *k = l->k;
	if (l->columns.halves == 1) {
		matmul_walk_panels(l, s, t, has_single_panels(l, &t));
		return;
	}
	t.half = kb_loop(k, "half", kb_index(k, 0), kb_index(k, l->columns.halves), 1, KB_NONEMPTY);
	matmul_walk_panels(l, s, t, has_single_panels(l, &t));
	kb_end_loop(k);
}

/* if (most >= height[0]) ..; else if (most >= height[1]) ..; the last one always fits. */
static void emit_heights(const struct linear *l, const struct matmul_strip *s, struct matmul_tile t,
                         const int *height, int n, struct kb_val most, struct kb_var done)
{
	struct kb *k = l->k;
	if (n > 1)
		kb_if(k, kb_cmp(k, KB_GE, most, kb_index(k, height[0])));
	t.rows = height[0];
	t.panels = panels_of(l, t.rows);
	emit_height(l, s, t);
	kb_set(k, done, kb_index(k, height[0]));
	if (n > 1) {
		kb_else(k);
		emit_heights(l, s, t, height + 1, n - 1, most, done);
		kb_end_if(k);
	}
}

/* The rows of the strip from `first` on, over one part of K. */
static void emit_rows(const struct linear *l, const struct matmul_strip *s, struct kb_val first)
{
	struct kb *k = l->k;
	int height[MATMUL_HEIGHTS_MAX], n = matmul_heights(l, height);
	struct kb_var row = kb_var(k, "row", KB_INDEX_T, first);
	struct kb_var done = kb_var(k, "done", KB_INDEX_T, kb_index(k, 0));
	struct matmul_tile t = {.ahead = matmul_begin_ahead(l, kb_sub(k, s->row_end, s->row), l->mr, l->nr)};
	kb_forever(k);
	t.row = kb_get(k, row);
	t.stage_row = l->stage.kc ? kb_sub(k, t.row, s->row) : kb_index(k, 0);
	kb_break_if(k, kb_cmp(k, KB_GE, t.row, s->row_end));
	struct kb_val most = matmul_height(l, s->rows, kb_sub(k, s->row_end, t.row));
	emit_heights(l, s, t, height, n, most, done);
	if (l->stage.at.id && !l->stage.kc)
		matmul_epilogue(l, s, t.row, kb_get(k, done));
	matmul_end_turn(l, &t.ahead);
	kb_set(k, row, kb_add(k, t.row, kb_get(k, done)));
	kb_end_forever(k);
}

/* The rows of the strip that fill matrix tiles; gives the first one that does not. */
static struct kb_val emit_by_steps(const struct linear *l, struct matmul_strip s)
{
	struct kb *k = l->k;
	struct matmul_tile t = {.rows = KB_TILE_ROWS, .panels = 1, .stage_row = kb_index(k, 0)};
	struct kb_val height = kb_index(k, KB_TILE_ROWS), rows = kb_sub(k, s.row_end, s.row),
	              whole = kb_mul(k, kb_bin(k, KB_DIV, rows, height), height);
	struct kb_var first = kb_var(k, "first", KB_INDEX_T, s.row);
	kb_if(k, kb_cmp(k, KB_GE, rows, kb_index(k, UNPACK_MIN_ROWS)));
	matmul_unpack_strip(l, &s);
	s.is_unpacked = true;
	t.ahead = matmul_begin_ahead(l, rows, t.rows, t.panels);
	kb_set(k, first, kb_add(k, s.row, whole));
	t.row = kb_loop(k, "row", s.row, kb_get(k, first), KB_TILE_ROWS, KB_NONEMPTY);
	emit_height(l, &s, t);
	if (l->stage.at.id)
		matmul_epilogue(l, &s, t.row, height);
	matmul_end_turn(l, &t.ahead);
	kb_end_loop(k);
	kb_end_if(k);
	return kb_get(k, first);
}

/* A few panels after the other, so that widened they stay in the first-level cache. */
static void emit_wide(const struct linear *l, const struct matmul_strip *s)
{
	struct kb *k = l->k;
	struct matmul_strip part = *s;
	part.is_unpacked = true;
	part.begin = kb_loop(k, "wide", s->begin, s->end, l->unpacked.step, 0);
	part.end = kb_min(k, kb_add_const(k, part.begin, l->unpacked.step), s->end);
	matmul_unpack_strip(l, &part);
	emit_rows(l, &part, s->row);
	kb_end_loop(k);
}

static void clear_stage(const struct linear *l, struct kb_val rows)
{
	struct kb *k = l->k;
	struct kb_val n = kb_mul_const(k, rows, l->stage.width);
	struct kb_val at = kb_loop(k, "clear", kb_index(k, 0), n, l->lanes, 0);
	kb_store(k, kb_splat(k, kb_f32(k, 0), l->lanes), l->stage.at, at, 0, 0);
	kb_end_loop(k);
}

void matmul_strip(const struct linear *l, const struct matmul_strip *s)
{
	struct kb *k = l->k;
	struct matmul_strip part = *s;
	struct kb_val rows = kb_sub(k, s->row_end, s->row), depth = kb_index(k, l->depth);
	if (l->matrix.config.id) {
		matmul_matrix_strip(l, s);
		return;
	}
	part.k_lo = kb_index(k, 0);
	part.k_hi = depth;
	if (l->unpacked.sums.id) {
		emit_rows(l, &part, emit_by_steps(l, part));
		return;
	}
	if (!l->stage.kc && l->unpacked.panels.id) {
		kb_if(k, kb_cmp(k, KB_GE, rows, kb_index(k, UNPACK_MIN_ROWS)));
		emit_wide(l, &part);
		kb_else(k);
		emit_rows(l, &part, s->row);
		kb_end_if(k);
		return;
	}
	if (!l->stage.kc) {
		part = matmul_copy_strip(l, &part);
		emit_rows(l, &part, s->row);
		return;
	}
	/* A tile of rows alone has nothing to gain from parts: its weights are read once. A copy has no room for more. */
	struct kb_val few = kb_cmp(k, KB_LE, rows, kb_index(k, l->copy.at.id ? 0 : l->mr));
	clear_stage(l, rows);
	struct kb_val end = kb_select(k, few, kb_index(k, 1), depth);
	part.k_lo = kb_loop(k, "part", part.k_lo, end, l->stage.kc, KB_NONEMPTY);
	part.k_hi = kb_select(k, few, depth, kb_min(k, kb_add_const(k, part.k_lo, l->stage.kc), depth));
	part = matmul_copy_strip(l, &part);
	emit_rows(l, &part, s->row);
	kb_end_loop(k);
	matmul_epilogue(l, s, s->row, rows);
}

/* ---- the division of work ---- */

struct division {
	struct kb_val unit;   /* panels of a group of columns */
	struct kb_val groups; /* of columns */
	struct kb_val block;  /* rows of a block */
	struct kb_val blocks; /* of rows */
};

static struct kb_val div_up(struct kb *k, struct kb_val a, struct kb_val b)
{
	return kb_bin(k, KB_DIV, kb_add_const(k, kb_add(k, a, b), -1), b);
}

/* Rows of x that stay in the second-level cache beside two strips of weights: all of them, or whole tiles. */
static int64_t rows_of_block(const struct linear *l)
{
	int64_t depth = l->stage.kc ? l->stage.kc : l->depth > 0 ? l->depth : 1;
	int64_t height = matmul_tile_height(l), rows = target_gemm_mc(l->job->target, depth);
	rows = l->matrix.config.id ? l->stage.rows : l->unpacked.sums.id ? l->norm.rows : rows;
	rows = l->stage.kc && rows > l->stage.rows ? l->stage.rows : rows;
	rows = matmul_makes_rows(l) && rows > l->norm.rows ? l->norm.rows : rows;
	int64_t whole = rows > height ? rows / height * height : l->mr;
	return whole < l->rows_hi && l->rows_hi <= rows ? l->rows_hi : whole;
}

/* Whole rows: each worker takes as many. */
static struct division divide_rows(const struct linear *l)
{
	struct kb *k = l->k;
	struct kb_val block = div_up(k, l->rows, l->job->n_workers);
	struct division d = {.unit = kb_index(k, l->columns.panels)};
	d.groups = kb_index(k, 1);
	d.block = kb_min(k, kb_max(k, block, d.groups), kb_index(k, rows_of_block(l)));
	d.blocks = div_up(k, l->rows, d.block);
	return d;
}

/*
 * Blocks of rows, at least `least`, that give all workers as much: with `groups` of columns each, one block
 * when they divide evenly, or 2, 4 or 8. A block reads all weights, so there are no more than that takes.
 */
static struct kb_val even_blocks(const struct linear *l, struct kb_val groups, struct kb_val least)
{
	struct kb *k = l->k;
	struct kb_val n = l->job->n_workers, blocks = kb_index(k, BLOCKS_TO_SHARE);
	struct kb_var all = kb_var(k, "blocks", KB_INDEX_T, least);
	kb_if(k, kb_cmp(k, KB_GT, n, kb_index(k, 1)));
	struct kb_val many = kb_mul_const(k, n, TASKS_TO_SHARE);
	for (int64_t i = BLOCKS_TO_SHARE / 2; i > 0; i /= 2) {
		struct kb_val tasks = kb_mul_const(k, groups, i);
		struct kb_val rest = kb_bin(k, KB_REM, tasks, n);
		struct kb_val even = kb_cmp(k, KB_EQ, rest, kb_index(k, 0));
		even = kb_bin(k, KB_OR, even, kb_cmp(k, KB_GE, tasks, many));
		blocks = kb_select(k, even, kb_index(k, i), blocks);
	}
	kb_set(k, all, kb_max(k, least, blocks));
	kb_end_if(k);
	return kb_get(k, all);
}

#define COLUMNS_OF_ROW 4 /* weights of so many columns are read by all workers while they make one row */

/*
 * Blocks of rows at least. Where matrix tiles multiply, making the rows takes a worker longer than reading weights:
 * blocks for all of them, where there are rows enough.
 */
static struct kb_val least_blocks(const struct linear *l)
{
	struct kb *k = l->k;
	struct kb_val most = kb_index(k, rows_of_block(l));
	struct kb_val least = div_up(k, kb_max(k, l->rows, kb_index(k, 1)), most);
	if (!l->matrix.config.id)
		return least;
	struct kb_val tiles = div_up(k, l->rows, kb_index(k, AMX_TILE_ROWS));
	struct kb_val all = kb_max(k, least, kb_min(k, l->job->n_workers, tiles));
	struct kb_val columns = kb_index(k, l->columns.n * l->columns.halves / COLUMNS_OF_ROW);
	return kb_select(k, kb_cmp(k, KB_GE, l->rows, columns), all, least);
}

/* Rows of matrix tiles where these multiply, no more than there is room for. */
static struct kb_val whole_tiles(const struct linear *l, struct kb_val rows)
{
	struct kb *k = l->k;
	struct kb_val height = kb_index(k, KB_TILE_ROWS), most = kb_index(k, rows_of_block(l));
	if (!l->matrix.config.id && !l->unpacked.sums.id)
		return rows;
	return kb_min(k, kb_mul(k, div_up(k, rows, height), height), most);
}

/* Few rows: single panels, unless code is to be short. Many: whole tiles, and blocks of rows as small as it takes to
 * keep all workers busy. */
static struct division divide(const struct linear *l)
{
	struct kb *k = l->k;
	if (l->norm.after)
		return divide_rows(l);
	struct kb_val many = kb_index(k, matmul_unit_of_many(l)), mr = kb_index(k, l->mr);
	struct kb_val one = matmul_is_short(l) ? many : kb_index(k, l->columns.unit);
	struct kb_val panels = kb_index(k, l->columns.panels);
	struct division d = {.unit = one, .blocks = kb_index(k, 1), .block = mr};
	if (l->rows_lo <= 0)
		d.blocks = kb_min(k, l->rows, d.blocks);
	if (l->rows_hi > l->mr) {
		d.unit = kb_select(k, kb_cmp(k, KB_LE, l->rows, mr), one, many);
		struct kb_val least = least_blocks(l);
		d.blocks = even_blocks(l, div_up(k, panels, d.unit), least);
		d.block = kb_max(k, whole_tiles(l, div_up(k, l->rows, d.blocks)), mr);
		d.blocks = div_up(k, l->rows, d.block);
	}
	d.groups = div_up(k, panels, d.unit);
	return d;
}

/* This worker's tasks [lo, hi) of blocks x groups: in each block a run of groups. */
static void emit_blocks(const struct linear *l)
{
	struct kb *k = l->k;
	struct division d = divide(l);
	struct kb_val hi, zero = kb_index(k, 0);
	struct kb_val lo = eval_worker_range(l->eval, kb_mul(k, d.blocks, d.groups), &hi);
	struct kb_val first_block = kb_bin(k, KB_DIV, lo, d.groups);
	struct kb_val block = kb_loop(k, "block", first_block, div_up(k, hi, d.groups), 1, 0);
	struct kb_val before = kb_mul(k, block, d.groups), row = kb_mul(k, block, d.block);
	struct kb_val first = kb_max(k, kb_sub(k, lo, before), zero);
	struct kb_val end = kb_min(k, kb_sub(k, hi, before), d.groups);
	struct kb_val panel_end = kb_min(k, kb_mul(k, end, d.unit), kb_index(k, l->columns.panels));
	struct kb_val panel = kb_mul(k, first, d.unit);
	struct matmul_strip s = {.rows = l->rows, .row = row, .weights = l->w->t.ptr};
	s.row_end = kb_min(k, kb_add(k, row, d.block), l->rows);
	matmul_make_rows(l, row, s.row_end, panel, panel_end);
	s.begin = kb_loop(k, "strip", panel, panel_end, l->columns.strip, 0);
	s.end = kb_min(k, kb_add_const(k, s.begin, l->columns.strip), panel_end);
	matmul_strip(l, &s);
	kb_end_loop(k);
	const struct rowwise_after after = {l->norm.after, &l->g->out, row, s.row_end};
	if (after.norm) /* the rows of the block are complete */
		rowwise_norm_after(l->eval, &after);
	kb_end_loop(k);
}

struct linear matmul_new(struct kernel *g)
{
	return (struct linear){.g = g,
	                       .job = g->job,
	                       .k = g->k,
	                       .eval = g->e,
	                       .columns = {.unit = 1, .strip = MATMUL_STRIP, .halves = 1}};
}

static bool begin(struct linear *l, struct kernel *g)
{
	*l = matmul_new(g);
	return bind_operands(l) && find_sizes(l);
}

/* One result of the root's rank, elementwise but for a norm. */
static bool is_plain(const struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	for (size_t i = (size_t)g->attrs->root + 1; i < r->n_ops; i++)
		if (!ir_op_has(r->ops[i]->code, TRAIT_ELEMENTWISE) &&
		    !ir_op_has(r->ops[i]->code, TRAIT_CONST) && r->ops[i]->code != OP_reshape &&
		    r->ops[i]->code != OP_transpose && r->ops[i]->code != OP_yield &&
		    !ir_is_norm(r->ops[i]->code))
			return false;
	return g->out.n == 1;
}

bool matmul_bind_result(struct linear *l)
{
	if (!is_plain(l->g) || !bind_norm_behind(l))
		return false;
	return ir_type_of(l->job->func, l->out.value)->rank == l->rank;
}

bool matmul_begin(struct linear *l, struct kernel *g)
{
	return begin(l, g) && (matmul_bind_result(l) || matmul_find_parts(l));
}

bool kernel_linear(struct kernel *g)
{
	struct linear l;
	if (!begin(&l, g) || (!matmul_bind_result(&l) && !matmul_find_strips(&l) && !matmul_find_parts(&l)) ||
	    !matmul_choose_schedule(&l) || !matmul_place_rows(&l))
		return false;
	matmul_begin_matrix(&l);
	bool is_few = matmul_is_few(&l);
	if (!l.matrix.config.id)
		l.stage = choose_stage(&l, l.parts || l.strips || matmul_wants_stage(g), is_few);
	matmul_choose_copy(&l, is_few, matmul_rows_bytes(&l));
	if (!is_few)
		matmul_choose_unpacked(&l, matmul_rows_bytes(&l));
	if (l.columns.panels > 0 && l.rows_hi > 0 && is_few)
		matmul_few(&l);
	else if (l.columns.panels > 0 && l.rows_hi > 0)
		emit_blocks(&l);
	matmul_end_matrix(&l);
	return true;
}
