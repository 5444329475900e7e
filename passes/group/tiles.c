/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing, look-up and printing of tile files. A line is checked when it is read: its sizes are possible for its
 * target, or it is rejected with the limit that it exceeds. bc changes the order of sums and must be the same in
 * all entries of a model, so a line with bc cannot depend on rows.
 */
#include "passes/group/tiles.h"

#include <string.h>

#include "ir/support/number.h"
#include "ir/support/utf8.h"

#define LINES_MAX        65536
#define FIELDS_MAX       16
#define FIELD_LENGTH_MAX 64

struct fields {
	const char *text[FIELDS_MAX];
	uint32_t col[FIELDS_MAX];
	size_t n;
	bool too_many;
};

struct reader {
	struct arena *arena;
	struct diag_context *cx;
	const struct target *target;
	uint32_t source, line;
	bool failed;
};

static const struct {
	const char *name;
	int kind;
	int64_t lo, hi, step;
} sizes[N_TILE_SIZES] = {
        [TILE_MR] = {"mr", GROUP_linear, 1, TILE_MR_MAX, 1},
        [TILE_NR] = {"nr", GROUP_linear, PANEL_COLUMNS, PANEL_COLUMNS *TILE_PANELS_MAX, PANEL_COLUMNS},
        [TILE_KC] = {"kc", GROUP_linear, PANEL_COLUMNS, TILE_KC_MAX, PANEL_COLUMNS},
        [TILE_BR] = {"br", GROUP_attention, 1, ATTENTION_BLOCK_MAX, 1},
        [TILE_BC] = {"bc", GROUP_attention, PANEL_COLUMNS, ATTENTION_BLOCK_MAX, PANEL_COLUMNS},
};

/* ---- reading ---- */

static struct loc field_loc(const struct reader *r, const struct fields *w, size_t i)
{
	if (i >= w->n)
		return (struct loc){r->source, r->line, w->n > 0 ? w->col[w->n - 1] : 1, 1};
	return (struct loc){r->source, r->line, w->col[i], (uint32_t)strlen(w->text[i])};
}

#define REJECT(r, w, i, ...)                                                      \
	do {                                                                      \
		diag_error((r)->cx, field_loc(r, w, i), DIAG_TILES, __VA_ARGS__); \
		(r)->failed = true;                                               \
	} while (0)

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Splits a line into fields, up to a comment. */
static void split_fields(struct reader *r, const char *line, size_t len, struct fields *w)
{
	*w = (struct fields){.n = 0};
	for (size_t at = 0; at < len && line[at] != '#';) {
		size_t from = at;
		while (at < len && !is_blank(line[at]) && line[at] != '#')
			at++;
		if (at > from && w->n < FIELDS_MAX && at - from <= FIELD_LENGTH_MAX) {
			w->col[w->n] = (uint32_t)(from + 1);
			w->text[w->n] = arena_strndup(r->arena, line + from, at - from);
			r->failed = r->failed || w->text[w->n] == NULL;
			w->n += w->text[w->n] != NULL;
		} else if (at > from) {
			w->too_many = true;
		}
		while (at < len && is_blank(line[at]))
			at++;
	}
}

/* Parses a number above 0, or `*` as -1. */
static int64_t read_key(struct reader *r, const struct fields *w, size_t i, const char *what)
{
	int64_t v = -1;
	if (strcmp(w->text[i], "*") == 0)
		return -1;
	if (!number_parse_i64(w->text[i], strlen(w->text[i]), &v) || v < 1)
		REJECT(r, w, i, "%s is a number above 0 or *, not '%s'", what, w->text[i]);
	return v;
}

static void read_kind(struct reader *r, const struct fields *w, struct tile_line *out)
{
	const char *name = w->text[0];
	if (strcmp(name, "linear") == 0)
		out->kind = GROUP_linear;
	else if (strcmp(name, "attention") == 0)
		out->kind = GROUP_attention;
	else
		REJECT(r, w, 0, "there are tiles of linear and attention, not of '%s'", name);
}

/* Parses `mr=6`: a size of the kind of the line, within its limits. */
static void read_size(struct reader *r, const struct fields *w, size_t i, struct tile_line *out)
{
	const char *text = w->text[i], *equals = strchr(text, '=');
	size_t n = equals != NULL ? (size_t)(equals - text) : strlen(text);
	int64_t v;
	size_t s = 0;
	while (s < N_TILE_SIZES && (strlen(sizes[s].name) != n || memcmp(sizes[s].name, text, n) != 0))
		s++;
	if (equals == NULL || s == N_TILE_SIZES) {
		REJECT(r, w, i, "expected mr=, nr=, kc=, br= or bc=, not '%s'", text);
		return;
	}
	if (sizes[s].kind != out->kind) {
		REJECT(r, w, i, "%s has no %s", w->text[0], sizes[s].name);
		return;
	}
	if (!number_parse_i64(equals + 1, strlen(equals + 1), &v) || v < sizes[s].lo || v > sizes[s].hi ||
	    v % sizes[s].step != 0) {
		REJECT(r, w, i, "%s is a multiple of %lld from %lld to %lld, not '%s'", sizes[s].name,
		       (long long)sizes[s].step, (long long)sizes[s].lo, (long long)sizes[s].hi, equals + 1);
		return;
	}
	if (out->size[s] != 0)
		REJECT(r, w, i, "%s is given twice", sizes[s].name);
	out->size[s] = v;
}

/* The tile fits the registers of the target, and the line obeys the rule for bc. */
static void check_line(struct reader *r, const struct fields *w, const struct tile_line *line)
{
	const struct target *t = r->target;
	const struct register_tile model = target_register_tile(t);
	int mr = (int)(line->size[TILE_MR] != 0 ? line->size[TILE_MR] : model.mr);
	int nr = (int)(line->size[TILE_NR] != 0 ? line->size[TILE_NR] : model.nr);
	int need = target_tile_registers(t, mr, nr);
	bool is_tile = line->size[TILE_MR] != 0 || line->size[TILE_NR] != 0;

	if (nr != PANEL_COLUMNS && nr != 2 * PANEL_COLUMNS && nr != TILE_PANELS_MAX * PANEL_COLUMNS)
		REJECT(r, w, 5, "nr is %d, %d or %d", PANEL_COLUMNS, 2 * PANEL_COLUMNS,
		       TILE_PANELS_MAX * PANEL_COLUMNS);
	else if (is_tile && need > t->registers)
		REJECT(r, w, 5, "a tile of %d x %d needs %d vector registers, %s has %d", mr, nr, need,
		       t->name, t->registers);
	if (line->size[TILE_BC] != 0 && line->rows >= 0)
		REJECT(r, w, 4,
		       "bc changes the order of sums and cannot depend on the number of rows, so rows is *");
}

/* Parses a line and appends it to *out if it is for the target. */
static void read_line(struct reader *r, const struct fields *w, struct tile_file *out)
{
	struct tile_line line = {.loc = field_loc(r, w, 0), .kind = -1};
	if (w->too_many || w->n < 6) {
		REJECT(r, w, 0, "a line is: kind target k n rows, then sizes (mr=6 nr=16), at most %d fields",
		       FIELDS_MAX);
		return;
	}
	read_kind(r, w, &line);
	if (strcmp(w->text[1], "*") != 0) {
		line.target = w->text[1];
		if (target_find(line.target) == NULL)
			REJECT(r, w, 1, "there is no target '%s'", line.target);
	}
	line.k = read_key(r, w, 2, "k");
	line.n = read_key(r, w, 3, "n");
	line.rows = read_key(r, w, 4, "rows");
	for (size_t i = 5; i < w->n && line.kind >= 0; i++)
		read_size(r, w, i, &line);
	if (r->failed || (line.target != NULL && strcmp(line.target, r->target->name) != 0))
		return;
	check_line(r, w, &line);
	ARENA_ADD(r->arena, out, line);
}

static void read_head(struct reader *r, const struct fields *w)
{
	int64_t version = 0;
	if (w->n != 2 || strcmp(w->text[0], "tiles") != 0 ||
	    !number_parse_i64(w->text[1], strlen(w->text[1]), &version))
		REJECT(r, w, 0, "a file of tiles begins with 'tiles 1'");
	else if (version != 1)
		REJECT(r, w, 1, "version %s of files of tiles is not known, only 1", w->text[1]);
}

enum tfmc_status tiles_read(struct arena *a, struct diag_context *cx, const struct target *target,
                            const char *name, const char *text, size_t len, struct tile_file *out)
{
	struct reader r = {a, cx, target, diag_add_source(cx, name, text, len), 0, false};
	struct fields w = {.n = 0};
	bool has_head = false;

	if (r.source == 0)
		return TFMC_NO_MEMORY;
	const char *next, *end = text + len;
	for (; text < end && r.line < LINES_MAX; text = next) {
		size_t n = utf8_line(text, end, &next);
		bool failed = r.failed;
		r.failed = false;
		r.line++;
		split_fields(&r, text, n, &w);
		if (w.n > 0 && !has_head)
			read_head(&r, &w);
		else if (w.n > 0)
			read_line(&r, &w, out);
		if (w.n > 0 && !has_head && r.failed)
			return TFMC_INVALID;
		has_head = has_head || w.n > 0;
		r.failed = (r.failed || failed) && has_head;
	}
	if (!has_head) {
		r.line = 1;
		w.n = 0;
		REJECT(&r, &w, 0, "a file of tiles begins with 'tiles 1'");
	}
	return arena_failed(a) ? TFMC_NO_MEMORY : r.failed ? TFMC_INVALID : TFMC_OK;
}

/* ---- look-up and printing ---- */

static bool matches(int64_t key, int64_t value)
{
	return key < 0 || key == value;
}

int64_t tiles_find(const struct tile_file *t, int kind, int64_t k, int64_t n, int64_t rows,
                   enum tile_size size)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct tile_line *l = &t->items[i];
		if (l->kind == kind && l->size[size] != 0 && matches(l->k, k) && matches(l->n, n) &&
		    (l->rows < 0 || rows <= l->rows))
			return l->size[size];
	}
	return 0;
}

bool tiles_key(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group, int64_t *k,
               int64_t *n, int64_t *rows)
{
	const struct attrs_group *a = group->attrs;
	const struct ir_op *root = group->region->ops[a->root];
	bool attention = root->code == OP_attention;
	if (root->code != OP_linear && root->code != OP_expert_linear && !attention)
		return false;
	const struct ir_type *x = ir_type_of(f, root->operands[0]);
	const struct ir_type *y = ir_type_of(f, root->results[0]);
	const struct ir_dim *count = attention ? x->dims[2] : ir_type_count_range(m->dims, x, 0, x->rank - 1);
	*k = ir_dim_hi(m->dims, x->dims[x->rank - 1]);
	*n = ir_dim_hi(m->dims, y->dims[y->rank - 1]);
	*rows = ir_dim_hi(m->dims, count);
	return true;
}

void tiles_of(const struct ir_op *group, int64_t k, int64_t *size)
{
	const struct attrs_group *a = group->attrs;
	bool is_linear = a->kind == GROUP_linear, is_attention = a->kind == GROUP_attention;
	/* K is divided only if there is scratch for accumulators in addition to the rows of a norm. */
	bool divided = a->kc < k && a->scratch / 4 - a->br * tile_row_stride(k) >= C_BUFFER_BYTES / 4;

	size[TILE_MR] = is_linear ? a->mr : 0;
	size[TILE_NR] = is_linear ? a->nr : 0;
	size[TILE_KC] = is_linear && divided ? a->kc : 0;
	size[TILE_BR] = is_attention ? a->br : 0;
	size[TILE_BC] = is_attention ? a->bc : 0;
}

void tiles_print_sizes(struct buf *out, const int64_t *size)
{
	for (size_t i = 0; i < N_TILE_SIZES; i++)
		if (size[i] != 0)
			buf_printf(out, " %s=%lld", sizes[i].name, (long long)size[i]);
}

/* Prints one line, unless a group with the same key was printed before. */
static void print_group(struct buf *out, const struct target *target, const struct ir_module *m,
                        const struct ir_func *f, const struct ir_op *op)
{
	const struct attrs_group *a = op->attrs;
	struct buf line;
	int64_t k, n, rows, size[N_TILE_SIZES];

	if (op->code != OP_group || !tiles_key(m, f, op, &k, &n, &rows))
		return;
	if (a->kind == GROUP_linear && a->mr == AMX_TILE_ROWS)
		return; /* matrix tiles have one size */
	buf_init(&line);
	buf_printf(&line, "\n%s %s %lld %lld *", ir_keyword(KEYWORDS_GROUP, a->kind), target->name,
	           (long long)k, (long long)n);
	bool is_new = line.data != NULL && (out->data == NULL || strstr(out->data, line.data) == NULL);
	tiles_of(op, k, size);
	tiles_print_sizes(&line, size);
	if (is_new && (a->kind == GROUP_linear || a->kind == GROUP_attention))
		buf_append(out, &line);
	buf_destroy(&line);
}

void tiles_print(struct buf *out, const struct ir_module *m, const struct target *target)
{
	buf_str(out, "tiles 1\n# kind target k n rows sizes");
	for (size_t i = 0; i < m->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			print_group(out, target, m, m->funcs.items[i], it.op);
	buf_char(out, '\n');
}
