/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources of the weight map: read from YAML, where integers are expressions over the parameters of the model that
 * are evaluated once, and built into a weight expression for each parameter. The constructors of
 * ir/weights/weight.h check shapes; here their failures become messages for users. read_KEY reads the value of a
 * key, false after a diagnostic; apply_KEY applies it to the expression x, NULL after a diagnostic. `steps` and
 * `origins` list them.
 * An origin makes an expression of tensors, and its x is NULL; a step changes the x of the source before it, its only
 * e->of. Captures are the strings that the pattern of the entry has matched; they fill the names of tensors.
 * weight_entry_build() runs only after weight_entry_exists(), so the tensors of an entry are there when it is applied.
 */
#include "frontend/weights/entry.h"

#include <string.h>

#include "ir/support/number.h"

#define ENTRY_DEPTH_MAX 16 /* nested any, concat, stack */
#define ENTRY_CHAIN_MAX 64 /* a source and its steps in a list */

/* Receives an integer of a mapping. */
struct weight_int {
	const char *key;
	int64_t *out; /* NULL: required, but read by the caller */
};

static bool report(const struct weight_entry_reader *r, struct loc loc, const char *what)
{
	diag_error(r->cx, loc, DIAG_MAP, "%s", what);
	return false;
}

/* Parses a tensor name with captures, and adds it to the templates of the entry: the pattern matches a path only if all
   of them accept the captures. NULL after a diagnostic. */
static const struct weight_template *read_name(struct weight_entry_reader *r, const struct yaml_node *node,
                                               const char *what)
{
	struct weight_template *t = ARENA_NEW(r->arena, struct weight_template);
	if (!yaml_expect(r->cx, node, YAML_SCALAR, what) || t == NULL ||
	    !weight_template_parse(r->arena, r->cx, node, false, t))
		return NULL;
	if (!ARENA_ADDED(r->arena, &r->templates, t))
		return NULL;
	return t;
}

/* ---- integers in mappings ---- */

/* Reads a mapping that has exactly these members (at most four), all of them integers except those without `out`, which
   the caller reads. All mistakes are reported, not only the first. */
static bool read_ints(const struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      const struct weight_int *members, size_t n)
{
	const char *keys[4];
	bool ok = true;
	if (!yaml_expect(r->cx, node, YAML_MAPPING, what))
		return false;
	for (size_t i = 0; i < n; i++)
		keys[i] = members[i].key;
	ok = yaml_check_keys(r->cx, node, keys, n, what);
	for (size_t i = 0; i < n; i++) {
		const struct yaml_node *value = yaml_find(node, members[i].key);
		if (value == NULL) {
			diag_error(r->cx, node->loc, DIAG_MISSING, "'%s' wants '%s'", what, members[i].key);
			ok = false;
		} else if (members[i].out != NULL) {
			ok = expr_read_int(r->env, value, members[i].key, members[i].out) && ok;
		}
	}
	return ok;
}

/* Reads `optional`, which is allowed in the outermost mapping only (depth 1): it replaces the whole parameter where a
   tensor is absent, not a part of it. */
static bool read_optional(struct weight_entry_reader *r, const struct yaml_node *node)
{
	static const char *const keywords[] = {"zeros", "ones"};
	size_t keyword;
	if (r->depth != 1)
		return report(r, node->loc, "'optional' belongs to the outermost mapping of an entry");
	if (!expr_read_word(r->env, node, "optional", keywords, 2, &keyword))
		return false;
	r->optional = keyword == 0 ? OPTIONAL_ZEROS : OPTIONAL_ONES;
	return true;
}

/* ---- origins: from, any, concat, stack ---- */

/* Reads a list of sources, not empty, to e->of. */
static bool read_list(struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      struct weight_entry *e)
{
	if (!yaml_expect(r->cx, node, YAML_SEQUENCE, what))
		return false;
	if (node->n == 0)
		return report(r, node->loc, "the list of sources is empty");
	e->of = ARENA_ARRAY(r->arena, const struct weight_entry *, node->n);
	if (e->of == NULL || arena_failed(r->arena))
		return false;
	e->n_of = node->n;
	for (size_t i = 0; i < node->n; i++) {
		e->of[i] = weight_entry_read(r, node->items[i]);
		if (e->of[i] == NULL)
			return false;
	}
	return true;
}

static bool read_from(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->name = read_name(r, node, "from");
	return e->name != NULL;
}

static bool read_sources(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	return read_list(r, node, e->op->key, e);
}

static bool read_concat(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct weight_int members[] = {{"axis", &e->axis}, {"of", NULL}};
	return read_ints(r, node, "concat", members, 2) && read_list(r, yaml_find(node, "of"), "concat", e);
}

/* ---- building ---- */

const char *weight_shape_text(struct arena *a, int rank, const int64_t *dims)
{
	struct buf out;
	buf_init(&out);
	buf_char(&out, '[');
	for (int i = 0; i < rank; i++)
		buf_printf(&out, "%s%lld", i == 0 ? "" : ", ", (long long)dims[i]);
	buf_char(&out, ']');
	const char *text = arena_strdup(a, out.data);
	buf_destroy(&out);
	return text;
}

/* ---- existence ---- */

/* True: the tensor of a name exists, or there is no name; else sets b->missing. */
static bool name_exists(struct weight_build *b, const struct weight_template *t)
{
	const char *name = t == NULL ? NULL : weight_template_fill(b->arena, t, b->captures);
	if (name == NULL || weight_files_find(b->files, name) != NULL)
		return true;
	if (b->missing == NULL)
		b->missing = name;
	return false;
}

/* First source of `any` whose tensors exist; NULL: none. */
static const struct weight_entry *first_existing(struct weight_build *b, const struct weight_entry *e)
{
	for (size_t i = 0; i < e->n_of; i++) {
		if (weight_entry_exists(b, e->of[i]))
			return e->of[i];
	}
	return NULL;
}

static const struct ir_wexpr *apply_any(struct weight_build *b, const struct weight_entry *e,
                                        const struct ir_wexpr *x)
{
	(void)x;
	return weight_entry_build(b, first_existing(b, e));
}

bool weight_entry_exists(struct weight_build *b, const struct weight_entry *e)
{
	bool ok = true;
	if (e->op->apply == apply_any) /* one suffices */
		return first_existing(b, e) != NULL;
	for (size_t i = 0; ok && i < e->n_of; i++)
		ok = weight_entry_exists(b, e->of[i]);
	/* the name of an index is a number, of no tensor */
	return (e->kind == WX_INDEX || name_exists(b, e->name)) && ok;
}

struct stored_tensor *weight_entry_tensor(struct weight_build *b, const struct weight_entry *e)
{
	while (e != NULL && e->op->apply == apply_any)
		e = first_existing(b, e);
	bool is_one = e != NULL && e->kind == WX_TENSOR && e->name != NULL && e->n_of == 0;
	const char *name = is_one ? weight_template_fill(b->arena, e->name, b->captures) : NULL;
	return name == NULL ? NULL : weight_files_find(b->files, name);
}

/* Product of the sizes of n axes of a valid shape, whose product does not overflow. */
static int64_t product(const int64_t *dims, const int *axes, int n)
{
	int64_t p = 1;
	for (int i = 0; i < n; i++)
		p *= dims[axes[i]];
	return p;
}

/*
 * x with its axes permuted: axis i of the result is axis from[i] of x. Weight expressions only swap the last two axes
 * of a shape. So for each axis of the result, the axes that are not yet in order are grouped as [front, before, from
 * the required axis on], and a transpose rotates the required one to their front. `order` lists the axes of x as they
 * are now. Of an empty tensor only the shape changes.
 */
static const struct ir_wexpr *permute_axes(struct arena *a, const struct ir_wexpr *x, const int64_t *from)
{
	int order[IR_RANK_MAX], rotated[IR_RANK_MAX], rank = x->rank;
	int64_t dims[IR_RANK_MAX], result[IR_RANK_MAX], front = 1;
	memcpy(dims, x->dims, sizeof(dims));
	for (int i = 0; i < rank; i++) {
		order[i] = i;
		result[i] = dims[from[i]];
	}
	for (int i = 0; x != NULL && i < rank && wexpr_count(x) > 0; i++) {
		int at = i, n = rank - i;
		while (order[at] != from[i])
			at++;
		const int64_t parts[] = {front, product(dims, order + i, at - i),
		                         product(dims, order + at, rank - at)};
		if (at != i)
			x = wexpr_transpose(a, wexpr_reshape(a, 3, parts, x));
		for (int k = 0; k < n; k++)
			rotated[k] = order[i + (at - i + k) % n];
		memcpy(order + i, rotated, (size_t)n * sizeof(*order));
		front *= result[i];
	}
	return x == NULL ? NULL : wexpr_reshape(a, rank, result, x);
}

static const struct ir_wexpr *reverse_axes(struct arena *a, const struct ir_wexpr *x)
{
	int64_t from[IR_RANK_MAX];
	for (int i = 0; i < x->rank; i++)
		from[i] = x->rank - 1 - i;
	return permute_axes(a, x, from);
}

static const struct ir_wexpr *leaf(struct weight_build *b, const struct stored_tensor *t)
{
	return wexpr_tensor(b->arena, t->file, t->name, t->dtype, t->rank, t->dims);
}

/*
 * A tensor of floats, or its replacement, with the updates of adapters, rounded once to its stored type. A table or a
 * replaced tensor must have one reader: PEFT lets one module read the updated copy and leaves others that share it,
 * such as a tied head, with the stored one.
 */
static const struct ir_wexpr *adapt_tensor(struct weight_build *b, struct stored_tensor *w, struct loc loc)
{
	const struct stored_tensor *values = w->replaced_by != NULL ? w->replaced_by : w;
	const struct ir_wexpr *x = leaf(b, values);
	const char *reader = b->request != NULL ? b->request->path : "";
	if ((w->is_table || w->replaced_by != NULL) && w->reader != NULL && strcmp(w->reader, reader) != 0) {
		diag_error(b->cx, loc, DIAG_UNSUPPORTED,
		           "not supported yet: an adapter changes '%.200s', which is read as '%.200s' and as "
		           "'%.200s'",
		           w->key, w->reader, reader);
		return NULL;
	}
	w->reader = reader;
	for (const struct weight_update *u = w->updates; u != NULL; u = u->next) {
		x = u->transposed ? wexpr_transpose(b->arena, x) : x;
		x = wexpr_lowrank(b->arena, u->scale, x, leaf(b, u->b), leaf(b, u->a));
		x = u->transposed ? wexpr_transpose(b->arena, x) : x;
	}
	return w->dtype == DT_BF16 || w->dtype == DT_F16 ? wexpr_round(b->arena, w->dtype, x) : x;
}

/* Adapters change floats alone, so they come first; then a tensor that cannot be read is an error, and quants keep
   their format. */
const struct ir_wexpr *weight_tensor(struct weight_build *b, const char *name, struct loc loc)
{
	struct stored_tensor *w = weight_files_find(b->files, name);
	struct weight_bytes bytes;
	if (w == NULL)
		return NULL;
	w->used = true;
	if (w->updates != NULL || w->replaced_by != NULL)
		return adapt_tensor(b, w, loc);
	if (!w->readable) {
		diag_error(b->cx, loc, DIAG_STORED_TYPE,
		           "the tensor '%.200s' of '%s' is stored as %s, which is not supported yet", w->key,
		           w->file, w->type_name);
		return NULL;
	}
	weight_tensor_data(w,
	                   &bytes); /* dims as stored: of Fortran order reversed, which reverse_axes undoes */
	const struct ir_wexpr *x =
	        bytes.format != FORMAT_PLAIN
	                ? wexpr_tensor_quants(b->arena, w->file, w->name, bytes.format, bytes.rank,
	                                      bytes.dims)
	                : wexpr_tensor(b->arena, w->file, w->name, bytes.dtype, bytes.rank, bytes.dims);
	if (x != NULL && w->order != NULL) /* columns are stored by group (act-order) */
		return wexpr_columns(
		        b->arena, x,
		        wexpr_tensor(b->arena, w->order->file, w->order->name, DT_I32, 1, w->order->dims));
	return x == NULL || !w->reversed ? x : reverse_axes(b->arena, x);
}

/* Expression of the tensor with a filled name. */
static const struct ir_wexpr *build_named_tensor(struct weight_build *b, const struct weight_template *t)
{
	return weight_tensor(b, weight_template_fill(b->arena, t, b->captures), t->node->loc);
}

static const struct ir_wexpr *apply_from(struct weight_build *b, const struct weight_entry *e,
                                         const struct ir_wexpr *x)
{
	(void)x;
	return build_named_tensor(b, e->name);
}

/* Builds concat or stack; a shape mismatch lists the shapes of all sources. */
static const struct ir_wexpr *apply_concat_or_stack(struct weight_build *b, const struct weight_entry *e,
                                                    const struct ir_wexpr *x)
{
	const struct ir_wexpr **args = ARENA_ARRAY(b->arena, const struct ir_wexpr *, e->n_of);
	for (size_t i = 0; args != NULL && i < e->n_of; i++) {
		args[i] = weight_entry_build(b, e->of[i]);
		if (args[i] == NULL)
			return NULL;
	}
	if (args == NULL || arena_failed(b->arena))
		return NULL;
	if (e->kind == WX_STACK)
		x = wexpr_stack(b->arena, e->n_of, args);
	else if (e->axis >= 0 && e->axis < IR_RANK_MAX)
		x = wexpr_concat(b->arena, (int)e->axis, e->n_of, args);
	if (x != NULL || arena_failed(b->arena))
		return x;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "the sources of '%s' do not fit together (for parameter '%.200s')", e->op->key,
	           b->request->path);
	for (size_t i = 0; i < e->n_of; i++)
		diag_note(b->cx, e->of[i]->loc, "this part is %s",
		          weight_shape_text(b->arena, args[i]->rank, args[i]->dims));
	return NULL;
}

const struct ir_wexpr *weight_entry_build(struct weight_build *b, const struct weight_entry *e)
{
	const struct ir_wexpr *x = NULL;
	if (e->op->is_step && (x = weight_entry_build(b, e->of[0])) == NULL)
		return NULL;
	size_t errors = b->cx->n_errors;
	const struct ir_wexpr *y = e->op->apply(b, e, x);
	/* The constructors fail silently when the expression is nested too deeply. */
	if (y == NULL && !arena_failed(b->arena) && b->cx->n_errors == errors)
		diag_error(b->cx, e->loc, DIAG_LIMIT,
		           "the source of the parameter '%.200s' has too many steps", b->request->path);
	return y;
}

/* Reports that a step does not fit the shape; returns NULL. Without memory it is not the shape, and nothing is
   reported. */
static const struct ir_wexpr *report_misfit(struct weight_build *b, const struct weight_entry *e,
                                            const struct ir_wexpr *x)
{
	if (arena_failed(b->arena))
		return NULL;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "'%s' does not fit the shape %s (for parameter '%.200s')", e->op->key,
	           weight_shape_text(b->arena, x->rank, x->dims), b->request->path);
	return NULL;
}

static bool axis_fits(const struct ir_wexpr *x, int64_t axis)
{
	return axis >= 0 && axis < x->rank;
}

/* ---- index, slice, split ---- */

/* {axis, at}: `at` is an integer, or a template with a capture, which apply_index fills. */
static bool read_index(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct yaml_node *at = yaml_find(node, "at");
	bool filled = at != NULL && at->kind == YAML_SCALAR && strchr(at->text, '{') != NULL;
	const struct weight_int members[] = {{"axis", &e->axis}, {"at", filled ? NULL : &e->begin}};
	if (!read_ints(r, node, "index", members, 2))
		return false;
	if (filled)
		e->name = read_name(r, at, "at");
	return !filled || e->name != NULL;
}

/* A capture as the index: an entry for each layer, or expert, reads its element of one stacked tensor. */
static const struct ir_wexpr *apply_index(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	int64_t at = e->begin;
	if (e->name != NULL) {
		const char *text = weight_template_fill(b->arena, e->name, b->captures);
		if (!number_parse_i64(text, strlen(text), &at)) {
			diag_error(b->cx, e->name->node->loc, DIAG_MAP, "the index '%.60s' is not an int",
			           text);
			return NULL;
		}
	}
	const struct ir_wexpr *y = axis_fits(x, e->axis) ? wexpr_index(b->arena, (int)e->axis, at, x) : NULL;
	return y != NULL ? y : report_misfit(b, e, x);
}

static bool read_slice(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct weight_int members[] = {{"axis", &e->axis}, {"begin", &e->begin}, {"end", &e->end}};
	return read_ints(r, node, "slice", members, 3);
}

static const struct ir_wexpr *apply_slice(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = NULL;
	if (axis_fits(x, e->axis))
		y = wexpr_slice(b->arena, (int)e->axis, e->begin, e->end, x);
	return y != NULL ? y : report_misfit(b, e, x);
}

/* {axis, part, of}: `part` is stored as begin, `of` as end. */
static bool read_split(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct weight_int members[] = {{"axis", &e->axis}, {"part", &e->begin}, {"of", &e->end}};
	if (!read_ints(r, node, "split", members, 3))
		return false;
	if (e->end < 1 || e->begin < 0 || e->begin >= e->end)
		return report(r, node->loc, "'split' wants part from 0 to of - 1");
	return true;
}

/* Part `begin` of `end` equal parts of an axis, as a slice; the size of the axis must be a multiple of `end`. */
static const struct ir_wexpr *apply_split(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = NULL;
	if (axis_fits(x, e->axis) && x->dims[e->axis] % e->end == 0) {
		int64_t size = x->dims[e->axis] / e->end; /* part < of: cannot overflow */
		y = wexpr_slice(b->arena, (int)e->axis, e->begin * size, (e->begin + 1) * size, x);
	}
	return y != NULL ? y : report_misfit(b, e, x);
}

/* ---- order and shape ---- */

/* Reads a list of at most IR_RANK_MAX integers. */
static bool read_dims(struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      struct weight_entry *e)
{
	bool ok = true;
	if (!yaml_expect(r->cx, node, YAML_SEQUENCE, what))
		return false;
	if (node->n > IR_RANK_MAX)
		return report(r, node->loc,
		              arena_printf(r->arena, "'%s' wants at most %d dims", what, IR_RANK_MAX));
	e->rank = (int)node->n;
	for (size_t i = 0; i < node->n; i++)
		ok = expr_read_int(r->env, node->items[i], what, &e->dims[i]) && ok;
	return ok;
}

/* Reads a list of source axes; true: swaps the last two axes, false: identity. */
static bool read_transpose(struct weight_entry_reader *r, const struct yaml_node *node,
                           struct weight_entry *e)
{
	unsigned seen = 0;
	bool swap = false;
	if (node->kind != YAML_SEQUENCE) {
		if (!expr_read_bool(r->env, node, "transpose", &swap))
			return false;
		e->rank = swap ? 0 : -1;
		return true;
	}
	if (!read_dims(r, node, "transpose", e))
		return false;
	for (int i = 0; i < e->rank; i++)
		seen |= e->dims[i] >= 0 && e->dims[i] < e->rank ? 1U << e->dims[i] : 0;
	if (e->rank == 0 || seen != (1U << e->rank) - 1)
		return report(r, node->loc, "'transpose' wants true or every axis once, as in [0, 2, 1]");
	return true;
}

/* rank -1: no change, 0: swaps the last two axes, else the list of axes. A quantized tensor whose transpose is stored
   as rows of quants is replaced by that (stored_tensor.transposed), which keeps the quants. */
static const struct ir_wexpr *apply_transpose(struct weight_build *b, const struct weight_entry *e,
                                              const struct ir_wexpr *x)
{
	if (e->rank < 0)
		return x;
	const struct stored_tensor *t =
	        x->kind == WX_TENSOR ? weight_files_stored(b->files, x->file, x->tensor) : NULL;
	const struct stored_tensor *rows = t != NULL && t->transposed != NULL
	                                           ? weight_files_stored(b->files, t->file, t->transposed)
	                                           : NULL;
	if (e->rank == 0 && rows != NULL)
		return weight_tensor(b, rows->key, e->loc);
	if (e->rank == 0)
		return wexpr_transpose(b->arena, x);
	return e->rank == x->rank ? permute_axes(b->arena, x, e->dims) : report_misfit(b, e, x);
}

static bool read_reshape(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	return read_dims(r, node, "reshape", e);
}

static const struct ir_wexpr *apply_reshape(struct weight_build *b, const struct weight_entry *e,
                                            const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = wexpr_reshape(b->arena, e->rank, e->dims, x);
	if (y != NULL || arena_failed(b->arena))
		return y;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE, "%s cannot be reshaped to %s (for parameter '%.200s')",
	           weight_shape_text(b->arena, x->rank, x->dims),
	           weight_shape_text(b->arena, e->rank, e->dims), b->request->path);
	return NULL;
}

/* Reads rope_halves_to_interleaved(heads), the kind that the row of `steps` has, or
   rope_interleaved_to_halves(heads). */
static bool read_permute(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	struct value heads;
	if (!yaml_expect(r->cx, node, YAML_SCALAR, "permute"))
		return false;
	const struct expr *call = expr_parse(r->arena, r->cx, expr_source_of(node), EXPR_GRAPH);
	if (call == NULL)
		return false;
	bool to_halves = call->kind == EX_CALL && strcmp(call->text, "rope_interleaved_to_halves") == 0;
	bool known =
	        to_halves || (call->kind == EX_CALL && strcmp(call->text, "rope_halves_to_interleaved") == 0);
	if (to_halves)
		e->kind = WX_ROPE_I2H;
	if (!known || call->n_args != 1 || call->n_keywords != 0)
		return report(r, node->loc,
		              "'permute' wants rope_halves_to_interleaved(heads) or "
		              "rope_interleaved_to_halves(heads); axes change places with 'transpose'");
	return expr_eval(r->env, call->args[0], &heads) &&
	       expr_require_int(r->env, call->args[0]->loc, "permute", &heads, &e->heads);
}

static const struct ir_wexpr *apply_permute(struct weight_build *b, const struct weight_entry *e,
                                            const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = e->heads < 1 ? NULL : wexpr_rope(b->arena, e->kind, e->heads, x);
	return y != NULL ? y : report_misfit(b, e, x);
}

/* ---- arithmetic ---- */

static bool read_factor(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->name = read_name(r, node, e->op->key);
	return e->name != NULL;
}

/* mul, div: by a stored tensor. */
static const struct ir_wexpr *apply_factor(struct weight_build *b, const struct weight_entry *e,
                                           const struct ir_wexpr *x)
{
	const struct ir_wexpr *factor = build_named_tensor(b, e->name);
	const struct ir_wexpr *y = factor == NULL ? NULL : wexpr_binary(b->arena, e->kind, x, factor);
	if (y != NULL || factor == NULL || arena_failed(b->arena))
		return y;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "'%s' by a tensor of shape %s does not fit %s (for '%.200s')", e->op->key,
	           weight_shape_text(b->arena, factor->rank, factor->dims),
	           weight_shape_text(b->arena, x->rank, x->dims), b->request->path);
	return NULL;
}

static bool read_add(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	return expr_read_float(r->env, node, "add", &e->add);
}

static const struct ir_wexpr *apply_add(struct weight_build *b, const struct weight_entry *e,
                                        const struct ir_wexpr *x)
{
	return wexpr_offset(b->arena, e->add, x);
}

static const struct weight_op steps[] = {
        {"index",
         "`{axis: A, at: I}`: the element I of an axis, which goes away; I may be `\"{name}\"`, a capture",
         WX_INDEX, true, read_index, apply_index},
        {"slice", "`{axis: A, begin: I, end: J}`: elements I .. J - 1 of an axis", WX_SLICE, true, read_slice,
         apply_slice},
        {"split", "`{axis: A, part: I, of: N}`: part I of N equal ones of an axis", WX_SLICE, true,
         read_split, apply_split},
        {"transpose", "`true`: the last two axes change places; a list says for each axis which one it was",
         WX_TRANSPOSE, true, read_transpose, apply_transpose},
        {"reshape", "a list of sizes: the same elements in this shape", WX_RESHAPE, true, read_reshape,
         apply_reshape},
        {"permute",
         "`rope_halves_to_interleaved(heads)` or `rope_interleaved_to_halves(heads)`: the other order of "
         "rotary rows",
         WX_ROPE_H2I, true, read_permute, apply_permute},
        {"mul", "the name of a tensor of the same shape, or of one element: elementwise product", WX_MUL,
         true, read_factor, apply_factor},
        {"div", "the same, divided by it", WX_DIV, true, read_factor, apply_factor},
        {"add", "a number that is added to each element", WX_OFFSET, true, read_add, apply_add},
};

/* ---- reading ---- */

static const struct weight_op origins[] = {
        {"from", "the name of a tensor", WX_TENSOR, false, read_from, apply_from},
        {"any", "a list of sources: the first one whose tensors exist", WX_TENSOR, false, read_sources,
         apply_any},
        {"concat", "`{axis: A, of: [..]}`: sources one after another along an axis", WX_CONCAT, false,
         read_concat, apply_concat_or_stack},
        {"stack", "a list of sources of one shape, along a new first axis", WX_STACK, false, read_sources,
         apply_concat_or_stack},
};

/* In this order: optional, steps, origins, as a step in a list has the first two alone (check_members). */
const char *weight_source_key(size_t i)
{
	if (i == 0)
		return "optional";
	if (i <= TFMC_COUNT(steps))
		return steps[i - 1].key;
	i -= 1 + TFMC_COUNT(steps);
	return i < TFMC_COUNT(origins) ? origins[i].key : NULL;
}

const char *weight_source_doc(size_t i)
{
	if (i == 0)
		return "`zeros` or `ones`: what the parameter is when the tensors are absent; outermost "
		       "mapping only";
	return i <= TFMC_COUNT(steps) ? steps[i - 1].doc : origins[i - 1 - TFMC_COUNT(steps)].doc;
}

/* Checks the keys of a mapping: `optional`, steps and, in a source, exactly one origin; weight_source_key lists them in
   this order. `optional` is accepted in a step also; read_optional() refuses it where the mapping is nested. */
static bool check_members(struct weight_entry_reader *r, const struct yaml_node *node, bool is_source)
{
	const char *keys[TFMC_COUNT(origins) + TFMC_COUNT(steps) + 1];
	size_t n = 0, found = 0;
	while (weight_source_key(n) != NULL && (is_source || n < 1 + TFMC_COUNT(steps))) {
		keys[n] = weight_source_key(n);
		n++;
	}
	for (size_t i = 1 + TFMC_COUNT(steps); i < n; i++)
		found += yaml_find(node, keys[i]) != NULL;
	if (!yaml_check_keys(r->cx, node, keys, n,
	                     is_source ? "the source of a weight" : "a step of a source"))
		return false;
	return !is_source || found == 1 ||
	       report(r, node->loc, "a source wants exactly one of 'from', 'any', 'concat', 'stack'");
}

/* Reads an origin (before NULL), or a step applied to `before`. */
static struct weight_entry *read_op(struct weight_entry_reader *r, const struct weight_op *op, struct loc loc,
                                    const struct yaml_node *value, const struct weight_entry *before)
{
	struct weight_entry *e = ARENA_NEW(r->arena, struct weight_entry);
	const struct weight_entry **of = ARENA_NEW(r->arena, const struct weight_entry *);
	if (e == NULL || of == NULL || arena_failed(r->arena))
		return NULL;
	*of = before;
	*e = (struct weight_entry){.op = op, .kind = op->kind, .loc = loc, .of = of, .n_of = before != NULL};
	return op->read(r, value, e) ? e : NULL;
}

/* Reads a mapping: an origin with steps (before NULL), or further steps of the source `before`. The origin comes first
   wherever it is written; steps are applied in the order of their keys. */
static const struct weight_entry *read_members(struct weight_entry_reader *r, const struct yaml_node *node,
                                               const struct weight_entry *before)
{
	const struct yaml_node *optional = yaml_find(node, "optional");
	const struct weight_entry *e = before;
	if (!check_members(r, node, before == NULL) || (optional != NULL && !read_optional(r, optional)))
		return NULL;
	for (size_t i = 0; before == NULL && i < TFMC_COUNT(origins); i++) {
		const struct yaml_node *value = yaml_find(node, origins[i].key);
		if (value != NULL)
			e = read_op(r, &origins[i], node->loc, value, NULL);
	}
	for (size_t i = 0; i < node->n; i++) {
		const struct yaml_pair *pair = &node->pairs[i];
		for (size_t k = 0; e != NULL && k < TFMC_COUNT(steps); k++)
			if (strcmp(steps[k].key, pair->key->text) == 0)
				e = read_op(r, &steps[k], pair->key->loc, pair->value, e);
	}
	return e;
}

/* A source that is no list: a mapping, or the name of a tensor as a short form of `from`. */
static const struct weight_entry *read_source(struct weight_entry_reader *r, const struct yaml_node *node)
{
	return node->kind == YAML_MAPPING ? read_members(r, node, NULL)
	                                  : read_op(r, &origins[0], node->loc, node, NULL);
}

/* Reads a list: a source and its steps, for repeated steps, which a mapping cannot have: [stft, reshape:
 * [..], transpose: [..]]. */
static const struct weight_entry *read_chain(struct weight_entry_reader *r, const struct yaml_node *node)
{
	bool ok = (node->n != 0 || report(r, node->loc, "the list wants a source and its steps")) &&
	          (node->n <= ENTRY_CHAIN_MAX || report(r, node->loc, "the list has too many steps"));
	for (size_t i = 1; ok && i < node->n; i++) {
		if (node->items[i]->kind != YAML_MAPPING)
			ok = report(r, node->items[i]->loc,
			            "a list is one source and steps like 'transpose: true'; several sources "
			            "are any, stack or concat");
	}
	const struct weight_entry *e = ok ? read_source(r, node->items[0]) : NULL;
	for (size_t i = 1; e != NULL && i < node->n; i++)
		e = read_members(r, node->items[i], e);
	return e;
}

/* depth counts nested lists of any, concat and stack, by which this function recurses; 1 is the outermost mapping. */
const struct weight_entry *weight_entry_read(struct weight_entry_reader *r, const struct yaml_node *node)
{
	const struct weight_entry *e = NULL;
	if (++r->depth > ENTRY_DEPTH_MAX)
		report(r, node->loc, "the source is nested too deeply");
	else
		e = node->kind == YAML_SEQUENCE ? read_chain(r, node) : read_source(r, node);
	r->depth--;
	return arena_failed(r->arena) ? NULL : e;
}
