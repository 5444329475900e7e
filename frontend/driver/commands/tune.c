/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc tune: tile sizes by measuring. For every shape of linears and attentions of the model, a small module of that
 * step alone is compiled with each candidate. Candidates are called in alternation, each with weights of its own, so
 * that weights come from memory as in a model. No candidate changes a result: the order of accumulation stays.
 */
#include "frontend/driver/commands/tune.h"

#include <string.h>

#include "frontend/driver/compile/jit.h"
#include "ir/target/tile.h"
#include "ir/text/text.h"
#include "passes/group/tiles.h"

/* ---- the choice ---- */

double tune_least(const double *seconds, size_t n_rounds, size_t n, size_t candidate)
{
	double least = seconds[candidate];
	for (size_t r = 1; r < n_rounds; r++)
		least = seconds[r * n + candidate] < least ? seconds[r * n + candidate] : least;
	return least;
}

size_t tune_choose(const double *seconds, size_t n_rounds, size_t n)
{
	size_t best = 0;
	double bound = n_rounds > 0 ? tune_least(seconds, n_rounds, n, 0) * (1 - TUNE_GAIN) : 0;
	for (size_t c = 1; c < n && n_rounds > 0; c++) {
		double least = tune_least(seconds, n_rounds, n, c);
		size_t won = 0;
		for (size_t r = 0; r < n_rounds; r++)
			won += seconds[r * n + c] < seconds[r * n] * (1 - TUNE_GAIN);
		if (least >= bound || won * 4 < n_rounds * TUNE_TIMES)
			continue;
		bound = least;
		best = c;
	}
	return best;
}

/* ---- shapes and candidates ---- */

#define SECONDS        30                 /* default of --seconds */
#define ROWS_MAX       512                /* of a call */
#define WEIGHTS_MAX    ((int64_t)8 << 20) /* elements of a matrix; larger ones lose columns */
#define CANDIDATES_MAX 16
#define ROUNDS_MAX     200
#define ROUNDS_MIN     4
#define SLICE          0.002 /* seconds for a candidate in a round, at least one call */
#define TENSORS        4

/* A shape, and the tile sizes that the cost model chooses for it. */
struct shape {
	int kind; /* enum ir_keyword_group */
	int64_t k, n, rows;
	int64_t heads, key_heads; /* of an attention */
	int mask;
	int64_t size[N_TILE_SIZES];
};

struct candidate {
	int64_t size[N_TILE_SIZES]; /* 0: the default */
	struct loaded loaded;
	struct compiled compiled;
};

struct tune {
	struct driver *d;
	const struct target *target;
	struct {
		struct shape *items;
		size_t n, cap;
	} shapes;
	struct buf file;
	double end; /* driver_clock() when all must be done */
	struct candidate candidates[CANDIDATES_MAX];
	size_t n;
	struct tfmc_buffer tensors[TENSORS]; /* inputs, then the output */
	double seconds[ROUNDS_MAX * CANDIDATES_MAX];
	size_t n_rounds;
};

/* ---- shapes ---- */

/* Matrices stored as f32: other formats have kernels of their own, which are not tuned. */
static bool is_f32_linear(const struct ir_func *f, const struct ir_op *root)
{
	const struct ir_weight *w = ir_weight_of(f, root->operands[OPERAND(linear, w)]);
	return root->code == OP_linear && w != NULL &&
	       ir_weight_stored_format(w) == ir_format_from_dtype(DT_F32);
}

static bool make_shape(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                       struct shape *s)
{
	const struct attrs_group *a = op->attrs;
	const struct ir_op *root = op->region->ops[a->root];
	*s = (struct shape){.kind = a->kind};
	if (!tiles_key(m, f, op, &s->k, &s->n, &s->rows) || s->rows < 2 || s->k < 1 || s->n < 1)
		return false;
	tiles_of(op, s->k, s->size);
	if (a->kind == GROUP_linear)
		return is_f32_linear(f, root);
	if (a->kind != GROUP_attention || root->code != OP_attention)
		return false;
	s->mask = ((const struct attrs_attention *)root->attrs)->mask;
	return ir_dim_is_const(ir_type_of(f, root->operands[OPERAND(attention, q)])->dims[1], &s->heads) &&
	       ir_dim_is_const(ir_type_of(f, root->operands[OPERAND(attention, k)])->dims[1], &s->key_heads);
}

static enum tfmc_status add_shape(struct tune *t, const struct shape *s)
{
	for (size_t i = 0; i < t->shapes.n; i++) {
		struct shape *old = &t->shapes.items[i];
		if (old->kind != s->kind || old->k != s->k || old->n != s->n)
			continue;
		*old = s->rows > old->rows ? *s : *old;
		return TFMC_OK;
	}
	return ARENA_ADDED(&t->d->arena, &t->shapes, *s) ? TFMC_OK : TFMC_NO_MEMORY;
}

static enum tfmc_status find_shapes(struct tune *t, const struct ir_module *m)
{
	for (size_t i = 0; i < m->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it)) {
			struct shape s;
			if (it.op->code == OP_group && make_shape(m, m->funcs.items[i], it.op, &s))
				TFMC_TRY(add_shape(t, &s));
		}
	return TFMC_OK;
}

/* ---- candidates ---- */

/* Adds a candidate: the default sizes, overridden by those of `other` that are not 0. No effect if such a candidate
 * exists or the table is full. */
static void add_candidate(struct tune *t, const struct shape *s, const int64_t *other)
{
	int64_t size[N_TILE_SIZES];
	bool is_new = t->n < CANDIDATES_MAX;
	for (int i = 0; i < N_TILE_SIZES; i++)
		size[i] = other[i] != 0 ? other[i] : s->size[i];
	for (size_t i = 0; i < t->n; i++)
		is_new = is_new && memcmp(size, t->candidates[i].size, sizeof(size)) != 0;
	if (is_new)
		memcpy(t->candidates[t->n++].size, size, sizeof(size));
}

/* The largest mr of a register tile of that width. */
static int max_tile_rows(const struct target *t, int nr)
{
	int rows = 1, vectors = nr > t->lanes ? nr / t->lanes : 1;
	while (rows < TILE_MR_MAX && target_tile_registers(t, rows + 1, nr) <= t->registers &&
	       (rows + 1) * vectors <= t->max_accumulators)
		rows++;
	return rows;
}

/* Each width of a register tile with the most rows and with three quarters of them; then K blocks (kc). */
static void linear_candidates(struct tune *t, const struct shape *s)
{
	for (int nr = PANEL_COLUMNS;
	     nr <= TILE_PANELS_MAX * PANEL_COLUMNS && (nr == PANEL_COLUMNS || nr <= s->n); nr *= 2) {
		int most = max_tile_rows(t->target, nr), fewer = most > 4 ? most * 3 / 4 / 2 * 2 : most;
		add_candidate(t, s, (const int64_t[N_TILE_SIZES]){[TILE_MR] = most, [TILE_NR] = nr});
		add_candidate(t, s, (const int64_t[N_TILE_SIZES]){[TILE_MR] = fewer, [TILE_NR] = nr});
	}
	for (int64_t kc = 512; kc < s->k && kc <= 2048; kc *= 2)
		add_candidate(t, s, (const int64_t[N_TILE_SIZES]){[TILE_KC] = kc});
}

static void print_line(struct buf *out, const struct tune *t, const struct shape *s, const int64_t *size)
{
	buf_printf(out, "%s %s %lld %lld *", ir_keyword(KEYWORDS_GROUP, s->kind), t->target->name,
	           (long long)s->k, (long long)s->n);
	tiles_print_sizes(out, size);
	buf_str(out, "\n");
}

/* ---- one candidate ---- */

static int64_t call_rows(const struct shape *s)
{
	return s->rows < ROWS_MAX ? s->rows : ROWS_MAX;
}

static void print_linear(struct buf *out, const struct shape *s)
{
	long long k = (long long)s->k, rows = (long long)call_rows(s), n = (long long)s->n;
	if (s->n > WEIGHTS_MAX / s->k) {
		n = (long long)(WEIGHTS_MAX / s->k / (TILE_PANELS_MAX * PANEL_COLUMNS) *
		                (TILE_PANELS_MAX * PANEL_COLUMNS));
		n = n > 0 ? n : TILE_PANELS_MAX * PANEL_COLUMNS;
	}
	buf_printf(out, "module \"tune\"\nweight @w : f32[%lld,%lld] = full(0.5, [%lld,%lld])\n", n, k, n, k);
	buf_printf(out, "func @run(%%x: f32[%lld,%lld]) -> (y: f32[%lld,%lld]) {\n", rows, k, rows, n);
	/* Rows that would share cache sets are padded when an op of the model writes them: hence the relu. */
	bool made = tile_rows_collide(s->k);
	if (made)
		buf_printf(out, "  %%r = relu %%x : f32[%lld,%lld]\n", rows, k);
	buf_printf(out, "  %%y = linear %s, @w : f32[%lld,%lld]\n  return %%y\n}\n", made ? "%r" : "%x", rows,
	           n);
}

static void print_attention(struct buf *out, const struct shape *s)
{
	long long h = (long long)s->heads, kv = (long long)s->key_heads, rows = (long long)call_rows(s);
	long long e = (long long)s->k, v = (long long)s->n;
	buf_printf(out, "module \"tune\"\nfunc @run(%%q: f32[1,%lld,%lld,%lld], %%k: f32[1,%lld,%lld,%lld], ",
	           h, rows, e, kv, rows, e);
	buf_printf(out, "%%v: f32[1,%lld,%lld,%lld]) -> (y: f32[1,%lld,%lld,%lld]) {\n", kv, rows, v, h, rows,
	           v);
	buf_printf(out, "  %%y = attention %%q, %%k, %%v {scale=0.125 mask=%s} : f32[1,%lld,%lld,%lld]\n",
	           ir_keyword(KEYWORDS_MASK, s->mask), h, rows, v);
	buf_str(out, "  return %y\n}\n");
}

static enum tfmc_status compile_candidate(struct tune *t, const char *text, struct candidate *c)
{
	struct driver *d = t->d;
	TFMC_TRY(ir_parse(&d->diag, "tune", text, strlen(text), &c->loaded.module));
	TFMC_TRY(driver_compile_jit(d, &c->loaded, (struct entry_names){0}, &c->compiled));
	return driver_open_session(d, &c->compiled, 0);
}

static enum tfmc_status open_candidate(struct tune *t, const struct shape *s, struct candidate *c)
{
	struct buf module, tiles;
	buf_init(&module);
	buf_init(&tiles);
	if (s->kind == GROUP_linear)
		print_linear(&module, s);
	else
		print_attention(&module, s);
	buf_str(&tiles, "tiles 1\n");
	if (c != &t->candidates[0])
		print_line(&tiles, t, s, c->size);
	t->d->options.tiles = "candidate";
	t->d->tiles_text = tiles.data;
	t->d->tiles_len = tiles.len;
	enum tfmc_status st = buf_failed(&module) || buf_failed(&tiles)
	                              ? TFMC_NO_MEMORY
	                              : compile_candidate(t, module.data, c);
	t->d->options.tiles = NULL;
	t->d->tiles_text = NULL;
	t->d->tiles_len = 0;
	buf_destroy(&module);
	buf_destroy(&tiles);
	return st;
}

/* Inputs and the output, shared by all candidates. */
static enum tfmc_status make_tensors(struct tune *t)
{
	const struct tfmc_record *r = t->candidates[0].compiled.model.record;
	const struct tfmc_record_entry *e = tfmc_entry_at(r, 0);
	for (uint64_t i = 0; i < e->n_inputs + e->n_outputs && i < TENSORS; i++) {
		const struct tfmc_record_tensor *x = i < e->n_inputs
		                                             ? tfmc_entry_input(r, 0, i)
		                                             : tfmc_entry_output(r, 0, i - e->n_inputs);
		int64_t count = tfmc_tensor_count(r, x, NULL);
		float *data = ARENA_ARRAY(&t->d->arena, float, (size_t)count + 1);
		if (!data)
			return TFMC_NO_MEMORY;
		for (int64_t k = 0; k < count; k++)
			data[k] = (float)(k % 64) / 64 - 0.5f;
		t->tensors[i] = (struct tfmc_buffer){.data = data, .count = (uint64_t)count};
	}
	return TFMC_OK;
}

/* The mean of n calls, in seconds. */
static enum tfmc_status time_calls(struct tune *t, struct candidate *c, int64_t n, double *seconds)
{
	uint64_t inputs = tfmc_entry_at(c->compiled.model.record, 0)->n_inputs;
	double start = driver_clock(NULL);
	for (int64_t i = 0; i < n; i++) {
		int status = tfmc_session_call(c->compiled.session, 0, NULL, t->tensors, t->tensors + inputs);
		if (status != TFMC_RT_OK)
			return driver_runtime_error(t->d, LOC_NONE, DIAG_INTERNAL, status, "a candidate: %s",
			                            tfmc_session_status_text(c->compiled.session, status));
	}
	*seconds = (driver_clock(NULL) - start) / (double)n;
	return TFMC_OK;
}

/* ---- one shape ---- */

static void close_candidates(struct tune *t)
{
	for (size_t i = 0; i < t->n; i++) {
		compiled_destroy(&t->candidates[i].compiled);
		loaded_destroy(&t->candidates[i].loaded);
	}
	memset(t->candidates, 0, sizeof(t->candidates));
	t->n = t->n_rounds = 0;
}

/* Compiles candidates for half of the time, at least two. */
static enum tfmc_status open_candidates(struct tune *t, const struct shape *s, double end)
{
	double begin = driver_clock(NULL);
	memcpy(t->candidates[0].size, s->size, sizeof(s->size));
	t->n = 1;
	if (s->kind == GROUP_linear)
		linear_candidates(t, s);
	else /* query rows of a task (br); key blocks (bc) would change the order of accumulation */
		for (int64_t br = 64; br <= 2 * s->size[TILE_BR] && br <= 1024; br *= 2)
			add_candidate(t, s, (const int64_t[N_TILE_SIZES]){[TILE_BR] = br});
	size_t n_candidates = t->n;
	for (t->n = 0; t->n < n_candidates && (t->n < 2 || driver_clock(NULL) < (begin + end) / 2);)
		TFMC_TRY(open_candidate(t, s, &t->candidates[t->n++]));
	return make_tensors(t);
}

static enum tfmc_status measure(struct tune *t, double end)
{
	double once;
	TFMC_TRY(time_calls(t, &t->candidates[0], 2, &once));
	int64_t calls = once > 0 && once < SLICE ? (int64_t)(SLICE / once) : 1;
	while (t->n_rounds < ROUNDS_MAX && (t->n_rounds < ROUNDS_MIN || driver_clock(NULL) < end)) {
		double *row = &t->seconds[t->n_rounds * t->n];
		for (size_t i = 0; i < t->n; i++) {
			size_t c = (i + t->n_rounds) % t->n;
			TFMC_TRY(time_calls(t, &t->candidates[c], calls, &row[c]));
		}
		t->n_rounds++;
	}
	return TFMC_OK;
}

/* A comment with the measured times, and a line of sizes where they beat the default. */
static void print_choice(struct tune *t, const struct shape *s)
{
	size_t best = tune_choose(t->seconds, t->n_rounds, t->n);
	struct buf *out = &t->file;
	buf_printf(out, "# %s %lld -> %lld, %lld rows:", ir_keyword(KEYWORDS_GROUP, s->kind), (long long)s->k,
	           (long long)s->n, (long long)call_rows(s));
	for (size_t i = 0; i < t->n; i++) {
		buf_str(out, i > 0 ? ";" : "");
		tiles_print_sizes(out, t->candidates[i].size);
		buf_printf(out, " %.4f ms", tune_least(t->seconds, t->n_rounds, t->n, i) * 1e3);
	}
	buf_str(out, "\n");
	if (best > 0)
		print_line(out, t, s, t->candidates[best].size);
}

static enum tfmc_status tune_shape(struct tune *t, const struct shape *s, double end)
{
	enum tfmc_status st = open_candidates(t, s, end);
	if (st == TFMC_OK)
		st = measure(t, end);
	if (st == TFMC_OK)
		print_choice(t, s);
	close_candidates(t);
	return st;
}

/* ---- the command ---- */

/* Plans the model and collects its shapes. Weights are not read. */
static enum tfmc_status read_model(struct tune *t)
{
	struct driver *d = t->d;
	struct variant_set set = {0};
	struct loaded l;
	enum tfmc_status st = driver_load(d, &l);
	t->target = st == TFMC_OK ? driver_best_target(d, d->options.mcpu) : NULL;
	if (st == TFMC_OK)
		st = t->target ? driver_find_variants(d, &set) : TFMC_INVALID;
	if (st == TFMC_OK)
		st = driver_plan_variants(d, l.module, driver_pipeline(d), &set);
	if (st == TFMC_OK)
		st = find_shapes(t, set.items[0].planned);
	variant_set_destroy(&set);
	loaded_destroy(&l);
	return st;
}

enum exit_code command_tune(struct driver *d)
{
	struct tune *t = ARENA_NEW(&d->arena, struct tune);
	if (!t)
		return EXIT_ENVIRONMENT;
	t->d = d;
	d->options.no_cache = true;
	buf_init(&t->file);
	t->end = driver_clock(NULL) + (double)option_int(d->options.seconds, SECONDS);
	enum tfmc_status st = read_model(t);
	buf_str(&t->file, "tiles 1\n# kind target k n rows sizes; least time of a call with each, the first "
	                  "as without this file\n");
	for (size_t i = 0; st == TFMC_OK && i < t->shapes.n; i++) {
		double now = driver_clock(NULL), left = t->end > now ? t->end - now : 0;
		st = tune_shape(t, &t->shapes.items[i], now + left / (double)(t->shapes.n - i));
	}
	if (st == TFMC_OK)
		st = driver_write_main_output(d, &t->file);
	buf_destroy(&t->file);
	return exit_code_of(st);
}
