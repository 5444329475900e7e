/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the weight expression of one parameter from its map entry. The
 * constructors of ir/weights/weight.h check shapes; here their refusal is put into the
 * user's words.
 */
#include <string.h>

#include "frontend/weights/entry.h"
#include "ir/support/number.h"

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

static bool name_exists(struct weight_build *b, const struct weight_template *t)
{
	const char *name = t == NULL ? NULL : weight_template_fill(b->arena, t, b->captures);
	if (name == NULL || weight_files_find(b->files, name) != NULL)
		return true;
	if (b->missing == NULL)
		b->missing = name;
	return false;
}

static bool all_exist(struct weight_build *b, const struct weight_entry *e)
{
	for (size_t i = 0; i < e->n_of; i++) {
		if (!weight_entry_exists(b, e->of[i]))
			return false;
	}
	return true;
}

static const struct weight_entry *first_existing(struct weight_build *b, const struct weight_entry *e)
{
	for (size_t i = 0; i < e->n_of; i++) {
		if (weight_entry_exists(b, e->of[i]))
			return e->of[i];
	}
	return NULL;
}

bool weight_entry_exists(struct weight_build *b, const struct weight_entry *e)
{
	bool ok = true;
	for (size_t i = 0; i < e->steps.n; i++) {
		const struct weight_step *s = &e->steps.items[i];
		ok = (s->kind == WEIGHT_INDEX || name_exists(b, s->name)) && ok;
	}
	switch (e->kind) {
	case ENTRY_FROM: return name_exists(b, e->name) && ok;
	case ENTRY_ANY: return first_existing(b, e) != NULL && ok;
	case ENTRY_CONCAT:
	case ENTRY_STACK: return all_exist(b, e) && ok;
	}
	return false;
}

/* ---- building ---- */

static const struct ir_wexpr *misfit(struct weight_build *b, const struct weight_step *s, const char *what,
                                     const struct ir_wexpr *x)
{
	if (arena_failed(b->arena))
		return NULL;
	diag_error(b->cx, s->loc, DIAG_WEIGHT_SHAPE,
	           "'%s' does not fit the shape %s (for parameter '%.200s')", what,
	           weight_shape_text(b->arena, x->rank, x->dims), b->want->path);
	return NULL;
}

/* The product of some sizes of a shape that fits. */
static int64_t product(const int64_t *dims, const int *axes, int n)
{
	int64_t p = 1;
	for (int i = 0; i < n; i++)
		p *= dims[axes[i]];
	return p;
}

/*
 * Axis i of the result is axis from[i]. Only two neighbouring axes that end the shape change places in an
 * expression, so the axes that have no place yet go round until the wanted one is in front.
 */
static const struct ir_wexpr *permute_axes(struct arena *a, const struct ir_wexpr *x, const int64_t *from)
{
	int order[IR_RANK_MAX], turned[IR_RANK_MAX], rank = x->rank;
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
			turned[k] = order[i + (at - i + k) % n];
		memcpy(order + i, turned, (size_t)n * sizeof(*order));
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

static const char *const block_types[] = {
#define PLAIN(number, name, bytes, dtype)
#define WIDER(number, name, bytes, read)
#define BLOCKS(number, name, block, bytes) #name,
#include "frontend/formats/gguf_types.def"
};

static void refuse_type(struct weight_build *b, const struct weight_template *t,
                        const struct stored_tensor *w)
{
	bool blocks = false;
	for (size_t i = 0; i < TFMC_COUNT(block_types); i++)
		blocks = blocks || strcmp(block_types[i], w->type_name) == 0;
	if (blocks)
		diag_error(b->cx, t->node->loc, DIAG_STORED_TYPE,
		           "the tensor '%.200s' of '%s' has type %s: not supported yet", w->key, w->file,
		           w->type_name);
	else
		diag_error(b->cx, t->node->loc, DIAG_STORED_TYPE,
		           "the tensor '%.200s' of '%s' is stored as %s; weights are numbers of 8 to 64 bits",
		           w->key, w->file, w->type_name);
}

static const struct ir_wexpr *leaf(struct weight_build *b, const struct weight_template *t)
{
	const char *name = weight_template_fill(b->arena, t, b->captures);
	struct stored_tensor *w = weight_files_find(b->files, name);
	struct weight_bytes bytes;
	if (w == NULL)
		return NULL;
	w->used = true;
	if (!w->readable) {
		refuse_type(b, t, w);
		return NULL;
	}
	weight_tensor_bytes(w, &bytes);
	const struct ir_wexpr *x =
	        wexpr_tensor(b->arena, w->file, w->name, bytes.dtype, bytes.rank, bytes.dims);
	return x == NULL || !w->reversed ? x : reverse_axes(b->arena, x);
}

static const struct ir_wexpr *join(struct weight_build *b, const struct weight_entry *e)
{
	const struct ir_wexpr **args = ARENA_ARRAY(b->arena, const struct ir_wexpr *, e->n_of);
	for (size_t i = 0; args != NULL && i < e->n_of; i++) {
		args[i] = weight_entry_build(b, e->of[i]);
		if (args[i] == NULL)
			return NULL;
	}
	if (args == NULL || arena_failed(b->arena))
		return NULL;
	const struct ir_wexpr *x = NULL;
	if (e->kind == ENTRY_STACK)
		x = wexpr_stack(b->arena, e->n_of, args);
	else if (e->axis >= 0 && e->axis < IR_RANK_MAX)
		x = wexpr_concat(b->arena, (int)e->axis, e->n_of, args);
	if (x != NULL || arena_failed(b->arena))
		return x;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "the sources of '%s' do not fit together (for parameter '%.200s')",
	           e->kind == ENTRY_STACK ? "stack" : "concat", b->want->path);
	for (size_t i = 0; i < e->n_of; i++)
		diag_note(b->cx, e->of[i]->loc, "this part is %s",
		          weight_shape_text(b->arena, args[i]->rank, args[i]->dims));
	return NULL;
}

static const struct ir_wexpr *origin(struct weight_build *b, const struct weight_entry *e)
{
	const struct weight_entry *first;
	switch (e->kind) {
	case ENTRY_FROM: return leaf(b, e->name);
	case ENTRY_ANY:
		first = first_existing(b, e);
		return first == NULL ? NULL : weight_entry_build(b, first);
	case ENTRY_CONCAT:
	case ENTRY_STACK: return join(b, e);
	}
	return NULL;
}

static bool axis_fits(const struct ir_wexpr *x, int64_t axis)
{
	return axis >= 0 && axis < x->rank;
}

static const struct ir_wexpr *apply_index(struct weight_build *b, const struct weight_step *s,
                                          const struct ir_wexpr *x)
{
	int64_t at = s->begin;
	if (s->name != NULL) {
		const char *text = weight_template_fill(b->arena, s->name, b->captures);
		if (!number_parse_i64(text, strlen(text), &at)) {
			diag_error(b->cx, s->name->node->loc, DIAG_MAP, "the index '%.60s' is no int", text);
			return NULL;
		}
	}
	const struct ir_wexpr *y = axis_fits(x, s->axis) ? wexpr_index(b->arena, (int)s->axis, at, x) : NULL;
	return y != NULL ? y : misfit(b, s, "index", x);
}

static const struct ir_wexpr *apply_slice(struct weight_build *b, const struct weight_step *s,
                                          const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = NULL;
	if (axis_fits(x, s->axis))
		y = wexpr_slice(b->arena, (int)s->axis, s->begin, s->end, x);
	return y != NULL ? y : misfit(b, s, "slice", x);
}

static const struct ir_wexpr *apply_split(struct weight_build *b, const struct weight_step *s,
                                          const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = NULL;
	if (axis_fits(x, s->axis) && x->dims[s->axis] % s->end == 0) {
		int64_t size = x->dims[s->axis] / s->end; /* part < of: no product can overflow */
		y = wexpr_slice(b->arena, (int)s->axis, s->begin * size, (s->begin + 1) * size, x);
	}
	return y != NULL ? y : misfit(b, s, "split", x);
}

static const struct ir_wexpr *apply_transpose(struct weight_build *b, const struct weight_step *s,
                                              const struct ir_wexpr *x)
{
	if (s->rank < 0)
		return x;
	if (s->rank == 0)
		return wexpr_transpose(b->arena, x);
	return s->rank == x->rank ? permute_axes(b->arena, x, s->dims) : misfit(b, s, "transpose", x);
}

static const struct ir_wexpr *apply_reshape(struct weight_build *b, const struct weight_step *s,
                                            const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = wexpr_reshape(b->arena, s->rank, s->dims, x);
	if (y != NULL || arena_failed(b->arena))
		return y;
	diag_error(b->cx, s->loc, DIAG_WEIGHT_SHAPE, "%s cannot be reshaped to %s (for parameter '%.200s')",
	           weight_shape_text(b->arena, x->rank, x->dims),
	           weight_shape_text(b->arena, s->rank, s->dims), b->want->path);
	return NULL;
}

static const struct ir_wexpr *apply_factor(struct weight_build *b, const struct weight_step *s,
                                           const struct ir_wexpr *x)
{
	bool mul = s->kind == WEIGHT_MUL;
	const struct ir_wexpr *factor = leaf(b, s->name);
	const struct ir_wexpr *y =
	        factor == NULL ? NULL : wexpr_binary(b->arena, mul ? WX_MUL : WX_DIV, x, factor);
	if (y != NULL || factor == NULL || arena_failed(b->arena))
		return y;
	diag_error(b->cx, s->loc, DIAG_WEIGHT_SHAPE,
	           "'%s' by a tensor of shape %s does not fit %s (for '%.200s')", mul ? "mul" : "div",
	           weight_shape_text(b->arena, factor->rank, factor->dims),
	           weight_shape_text(b->arena, x->rank, x->dims), b->want->path);
	return NULL;
}

static const struct ir_wexpr *apply_permute(struct weight_build *b, const struct weight_step *s,
                                            const struct ir_wexpr *x)
{
	enum ir_wexpr_kind kind = s->kind == WEIGHT_HALVES_TO_INTERLEAVED ? WX_ROPE_H2I : WX_ROPE_I2H;
	const struct ir_wexpr *y = s->heads < 1 ? NULL : wexpr_rope(b->arena, kind, s->heads, x);
	return y != NULL ? y : misfit(b, s, "permute", x);
}

static const struct ir_wexpr *apply(struct weight_build *b, const struct weight_step *s,
                                    const struct ir_wexpr *x)
{
	switch (s->kind) {
	case WEIGHT_INDEX: return apply_index(b, s, x);
	case WEIGHT_SLICE: return apply_slice(b, s, x);
	case WEIGHT_SPLIT: return apply_split(b, s, x);
	case WEIGHT_TRANSPOSE: return apply_transpose(b, s, x);
	case WEIGHT_RESHAPE: return apply_reshape(b, s, x);
	case WEIGHT_HALVES_TO_INTERLEAVED:
	case WEIGHT_INTERLEAVED_TO_HALVES: return apply_permute(b, s, x);
	case WEIGHT_MUL:
	case WEIGHT_DIV: return apply_factor(b, s, x);
	case WEIGHT_ADD: return wexpr_offset(b->arena, s->add, x);
	}
	return NULL;
}

/* The constructors refuse what is nested too deeply without a word. */
static const struct ir_wexpr *too_deep(struct weight_build *b, const struct weight_step *s, size_t errors)
{
	if (!arena_failed(b->arena) && b->cx->n_errors == errors)
		diag_error(b->cx, s->loc, DIAG_LIMIT,
		           "the source of the parameter '%.200s' has too many steps", b->want->path);
	return NULL;
}

const struct ir_wexpr *weight_entry_build(struct weight_build *b, const struct weight_entry *e)
{
	const struct ir_wexpr *x = origin(b, e);
	for (size_t i = 0; x != NULL && i < e->steps.n; i++) {
		size_t errors = b->cx->n_errors;
		const struct ir_wexpr *y = apply(b, &e->steps.items[i], x);
		x = y != NULL ? y : too_deep(b, &e->steps.items[i], errors);
	}
	return x;
}
