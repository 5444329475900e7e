/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the weight expression of one parameter from its map entry. The
 * constructors of ir/weight.h check shapes; here their refusal is put into the
 * user's words.
 */
#include <string.h>

#include "frontend/weight_entry.h"
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
	bool ok = name_exists(b, e->mul) && name_exists(b, e->div);
	switch (e->kind) {
	case ENTRY_FROM: return name_exists(b, e->name) && ok;
	case ENTRY_ANY: return first_existing(b, e) != NULL && ok;
	case ENTRY_CONCAT:
	case ENTRY_STACK: return all_exist(b, e) && ok;
	}
	return false;
}

/* ---- building ---- */

static const struct ir_wexpr *misfit(struct weight_build *b, const struct weight_entry *e, const char *what,
                                     const struct ir_wexpr *x)
{
	if (arena_failed(b->arena))
		return NULL;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "'%s' does not fit the shape %s (for parameter '%.200s')", what,
	           weight_shape_text(b->arena, x->rank, x->dims), b->want->path);
	return NULL;
}

/* The axes in reverse order: the last one moves in front of all that have not moved yet, again and again. */
static const struct ir_wexpr *reverse_axes(struct arena *a, const struct ir_wexpr *x)
{
	int64_t front = 1, rest = wexpr_count(x), dims[IR_RANK_MAX];
	for (int i = 0; i < x->rank; i++)
		dims[i] = x->dims[x->rank - 1 - i];
	int rank = x->rank;
	for (int i = 0; x != NULL && i + 1 < rank && rest > 0; i++) {
		const int64_t parts[] = {front, rest / dims[i], dims[i]};
		x = wexpr_transpose(a, wexpr_reshape(a, 3, parts, x));
		front *= dims[i];
		rest /= dims[i];
	}
	return x == NULL ? NULL : wexpr_reshape(a, rank, dims, x);
}

static const char *const block_types[] = {
#define PLAIN(number, name, bytes, dtype)
#define WIDER(number, name, bytes, read)
#define BLOCKS(number, name, block, bytes) #name,
#include "frontend/gguf_types.def"
};

static void refuse_type(struct weight_build *b, const struct weight_template *t,
                        const struct weight_tensor *w)
{
	bool blocks = false;
	for (size_t i = 0; i < TFMC_COUNT(block_types); i++)
		blocks = blocks || strcmp(block_types[i], w->type_name) == 0;
	if (blocks)
		diag_error(b->cx, t->node->loc, DIAG_STORED_TYPE,
		           "the tensor '%.200s' of '%s' has type %s: not supported yet", w->name, w->file,
		           w->type_name);
	else
		diag_error(b->cx, t->node->loc, DIAG_STORED_TYPE,
		           "the tensor '%.200s' of '%s' is stored as %s; weights are numbers of 8 to 64 bits",
		           w->name, w->file, w->type_name);
}

static const struct ir_wexpr *leaf(struct weight_build *b, const struct weight_template *t)
{
	const char *name = weight_template_fill(b->arena, t, b->captures);
	struct weight_tensor *w = weight_files_find(b->files, name);
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
	        wexpr_tensor(b->arena, w->file, w->stored, bytes.dtype, bytes.rank, bytes.dims);
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
	           "the parts of '%s' do not fit together (for parameter '%.200s')",
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

static const struct ir_wexpr *apply_index(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	int64_t at = e->index_at;
	if (e->index_template != NULL) {
		const char *text = weight_template_fill(b->arena, e->index_template, b->captures);
		if (!number_parse_i64(text, strlen(text), &at)) {
			diag_error(b->cx, e->index_template->node->loc, DIAG_MAP,
			           "the index '%.60s' is no int", text);
			return NULL;
		}
	}
	const struct ir_wexpr *y =
	        axis_fits(x, e->index_axis) ? wexpr_index(b->arena, (int)e->index_axis, at, x) : NULL;
	return y != NULL ? y : misfit(b, e, "index", x);
}

static const struct ir_wexpr *apply_slice(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = NULL;
	if (axis_fits(x, e->slice_axis))
		y = wexpr_slice(b->arena, (int)e->slice_axis, e->slice_begin, e->slice_end, x);
	return y != NULL ? y : misfit(b, e, "slice", x);
}

static const struct ir_wexpr *apply_split(struct weight_build *b, const struct weight_entry *e,
                                          const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = NULL;
	if (axis_fits(x, e->split_axis) && x->dims[e->split_axis] % e->split_of == 0) {
		int64_t size = x->dims[e->split_axis] / e->split_of; /* part < of: no product can overflow */
		y = wexpr_slice(b->arena, (int)e->split_axis, e->split_part * size,
		                (e->split_part + 1) * size, x);
	}
	return y != NULL ? y : misfit(b, e, "split", x);
}

static const struct ir_wexpr *apply_reshape(struct weight_build *b, const struct weight_entry *e,
                                            const struct ir_wexpr *x)
{
	const struct ir_wexpr *y = wexpr_reshape(b->arena, e->reshape_rank, e->reshape_dims, x);
	if (y != NULL || arena_failed(b->arena))
		return y;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE, "%s cannot be reshaped to %s (for parameter '%.200s')",
	           weight_shape_text(b->arena, x->rank, x->dims),
	           weight_shape_text(b->arena, e->reshape_rank, e->reshape_dims), b->want->path);
	return NULL;
}

static const struct ir_wexpr *apply_binary(struct weight_build *b, const struct weight_entry *e,
                                           enum ir_wexpr_kind kind, const struct ir_wexpr *x)
{
	const struct ir_wexpr *scale = leaf(b, kind == WX_MUL ? e->mul : e->div);
	const struct ir_wexpr *y = scale == NULL ? NULL : wexpr_binary(b->arena, kind, x, scale);
	if (y != NULL || scale == NULL || arena_failed(b->arena))
		return y;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "'%s' by a tensor of shape %s does not fit %s (for '%.200s')",
	           kind == WX_MUL ? "mul" : "div", weight_shape_text(b->arena, scale->rank, scale->dims),
	           weight_shape_text(b->arena, x->rank, x->dims), b->want->path);
	return NULL;
}

static const struct ir_wexpr *apply_permute(struct weight_build *b, const struct weight_entry *e,
                                            const struct ir_wexpr *x)
{
	enum ir_wexpr_kind kind = e->permute == PERMUTE_HALVES_TO_INTERLEAVED ? WX_ROPE_H2I : WX_ROPE_I2H;
	const struct ir_wexpr *y =
	        e->permute_heads < 1 ? NULL : wexpr_rope(b->arena, kind, e->permute_heads, x);
	return y != NULL ? y : misfit(b, e, "permute", x);
}

const struct ir_wexpr *weight_entry_build(struct weight_build *b, const struct weight_entry *e)
{
	const struct ir_wexpr *x = origin(b, e);
	if (x != NULL && e->has_index)
		x = apply_index(b, e, x);
	if (x != NULL && e->has_slice)
		x = apply_slice(b, e, x);
	if (x != NULL && e->has_split)
		x = apply_split(b, e, x);
	if (x != NULL && e->transpose)
		x = wexpr_transpose(b->arena, x);
	if (x != NULL && e->has_reshape)
		x = apply_reshape(b, e, x);
	if (x != NULL && e->permute != PERMUTE_NONE)
		x = apply_permute(b, e, x);
	if (x != NULL && e->mul != NULL)
		x = apply_binary(b, e, WX_MUL, x);
	if (x != NULL && e->div != NULL)
		x = apply_binary(b, e, WX_DIV, x);
	if (x != NULL && e->has_add)
		x = wexpr_unary(b->arena, WX_OFFSET, e->add, x);
	return x;
}
