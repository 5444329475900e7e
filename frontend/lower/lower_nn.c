/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers with parameters (linear, expert_linear, embed, norms) and operators that depend on positions or rows
 * of sequences.
 * A subset of experts are those of one storage format, stacked in one weight; a slot is the index of an expert in it.
 * Functions return false after a report; call_mixes_axis declares axes along which positions influence each other.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */
#include <string.h>

#include "frontend/lower/lower.h"

#define EXPERTS_MAX 1024
#define ACTIVATION_BLOCK_MIN \
	32 /* minimum number of neighbouring activations that share one scale when they are quantized */

/* Sets *out to the size of the last axis of x. False after a diagnostic: rank 0, or a size that depends on a dim. */
static bool constant_width(const struct call *c, struct ir_value x, int64_t *out)
{
	const struct ir_type *t = call_type(c, x);
	if (t != NULL && t->rank > 0 && ir_dim_is_const(t->dims[t->rank - 1], out))
		return true;
	return lower_fail(c->lw, c->e->loc, DIAG_SHAPE, "%s wants a last axis of constant size, found %s",
	                  c->e->text, type_to_string(c->lw, x));
}

/* Sets *out to the weight of the parameter PATH.ROLE; shape: the request for it, without the pattern. */
static bool parameter_of(const struct call *c, const char *path, const char *role,
                         const struct weight_request *shape, struct ir_value *out)
{
	struct weight_request need = *shape;
	need.pattern = arena_printf(c->lw->arena, "%s.%s", path, role);
	return lower_weight(c->lw, &need, out);
}

/* ---- linear, embed, norms ---- */

/*
 * Replaces *v by the value of the operator that the argument `act` names, applied to *v; `identity` leaves *v
 * unchanged. lower_call() takes operands as expressions, so the call is act(x) with the variable x bound to *v during
 * the call; the previous binding of x is restored (NULL: x was unbound). After a failure *v has no meaning.
 */
static bool apply_activation(const struct call *c, struct ir_value *v)
{
	const char *act = NULL;
	if (!call_word(c, "act", &act))
		return false;
	if (strcmp(act, "identity") == 0)
		return true;
	const struct expr name = {.kind = EX_NAME, .text = "x", .loc = c->e->loc};
	const struct expr *args[] = {&name};
	struct expr call = {.kind = EX_CALL, .text = act, .loc = c->e->loc, .n_args = 1, .args = args};
	const struct lowered *old = strmap_get(&c->lw->vars, "x");
	struct lowered x = lowered_tensor(*v), r;
	strmap_set(&c->lw->vars, "x", &x);
	bool ok = lower_call(c->lw, &call, &r);
	strmap_set(&c->lw->vars, "x", (void *)(uintptr_t)old);
	*v = r.v;
	return ok;
}

/*
 * Block size for dynamic quantization of activations that meet weights of a format: at least
 * ACTIVATION_BLOCK_MIN, larger blocks as in the weights, 0 (one scale a row) for weights with one scale a row.
 * Larger blocks mean fewer accumulators to scale.
 */
static int64_t activation_block(const struct ir_format_desc *f)
{
	return f->block == 0 || f->block > ACTIVATION_BLOCK_MIN ? f->block : ACTIVATION_BLOCK_MIN;
}

/* Quantizes the input of a linear dynamically if its matrix is quantized and dtype.compute is int8 or bf16, so that
 * the kernel multiplies ints; or rounds it to bf16 for bf16 matrices with compute bf16; else returns x. f->bits is 0
 * for formats of floats. */
static struct ir_value quantize_activations(const struct lowering *lw, struct ir_value x, struct ir_value w)
{
	const struct ir_weight *weight = ir_weight_of(irb_func(lw->b), w);
	const struct ir_format_desc *f = weight != NULL ? ir_format(weight->format) : NULL;
	enum model_compute compute = lw->m->dtypes.compute;
	if (compute == COMPUTE_BF16 && weight != NULL && weight->format == FORMAT_BF16)
		return irb_quantize_rows(lw->b, x, &(struct attrs_quantize_rows){.to = ROUND_bf16});
	if (compute == COMPUTE_F32 || f == NULL || f->bits == 0)
		return x;
	return irb_quantize_rows(lw->b, x, &(struct attrs_quantize_rows){.block = activation_block(f)});
}

/* Gathers columns of x [.., K] into the stored order of a matrix; x itself if it has none. */
static struct ir_value gather_columns(struct lowering *lw, struct ir_value x, struct ir_value order)
{
	const struct ir_type *t = irb_type(lw->b, x);
	return t == NULL || order.id == IR_NO_VALUE.id ? x : lower_gather_axis(lw, x, t->rank - 1, order);
}

/*
 * act(x W^T + b). With `of` the parameter has `of` rows, and W is its rows [first, first + out); with `groups` its
 * rows are divided into equal groups, and W is rows [first, first + out / groups) of each. `tie` names the path whose
 * weight is used in place of that of `path`, unless the files store different values for the two.
 */
bool lower_linear(const struct call *c, struct lowered *out)
{
	struct ir_value x, w, b = IR_NO_VALUE, order = IR_NO_VALUE;
	const char *path = NULL, *tie = NULL;
	struct weight_request need = {.rank = 2, .is_quantizable = true};
	int64_t rows = 0, first = 0, of = 0, groups = 0;
	bool bias = false;
	if (!call_tensor(c, "x", &x) || !call_word(c, "path", &path) || !call_int(c, "out", &rows) ||
	    !call_bool(c, "bias", &bias) || !call_word(c, "tie", &tie) || !call_int(c, "first", &first) ||
	    !call_int(c, "of", &of) || !call_int(c, "groups", &groups) ||
	    !constant_width(c, x, &need.dims[1]))
		return false;
	need.dims[0] = of > 0 ? of : rows;
	need.first = first;
	need.rows = of > 0 ? rows : 0;
	need.groups = groups;
	need.column_order = &order;
	if (!parameter_of(c, tie == NULL || lower_is_untied(c->lw, path, tie) ? path : tie, "weight", &need,
	                  &w))
		return false;
	need.rank = 1;
	need.column_order = NULL;
	if (bias && !parameter_of(c, path, "bias", &need, &b))
		return false;
	struct ir_value y = irb_linear(
	        c->lw->b, quantize_activations(c->lw, gather_columns(c->lw, x, order), w), w, b, NULL);
	return apply_activation(c, &y) && call_return(c, out, y);
}

/* Index of each row's expert within a weight that stacks a subset of experts, -1 for others: i32 with the shape of
 * ids, by a gather from a table [experts], a weight of the module, which holds small ints exactly in f32. */
static bool expert_slots(const struct call *c, const struct weight_request *need, const char *weight,
                         struct ir_value ids, struct ir_value *out)
{
	struct lowering *lw = c->lw;
	const struct ir_wexpr **parts = ARENA_ARRAY(lw->arena, const struct ir_wexpr *, need->experts);
	double slot = 0;
	for (int64_t k = 0; parts != NULL && k < need->experts; k++)
		parts[k] = wexpr_full(lw->arena, need->subset[k] ? slot++ : -1, 0, NULL);
	const struct ir_wexpr *e =
	        parts == NULL ? NULL : wexpr_stack(lw->arena, (size_t)need->experts, parts);
	struct ir_value table;
	if (e == NULL || !lower_const_table(lw, arena_printf(lw->arena, "%s.places", weight), e, &table))
		return false;
	*out = irb_cast(lw->b, irb_gather(lw->b, table, ids, NULL), &(struct attrs_cast){.dtype = DT_I32});
	return !irb_failed(lw->b);
}

/* y for rows whose expert is of this format (its slot is not -1, see expert_slots()), for others `before`: the result
 * of the formats before. */
static struct ir_value select_expert_rows(const struct call *c, struct ir_value slots, struct ir_value y,
                                          struct ir_value before)
{
	struct ir_builder *b = c->lw->b;
	const struct ir_type *t = irb_type(b, slots), *to = irb_type(b, y);
	const struct ir_dim *dims[IR_RANK_MAX];
	if (t == NULL || to == NULL || t->rank + 1 != to->rank)
		return y; /* the builder has failed already */
	struct ir_value zero = irb_full_of(b, 0.0, DT_I32, t->rank, t->dims);
	struct ir_value in_subset = irb_cmp(b, slots, zero, &(struct attrs_cmp){.kind = CMP_ge});
	for (int i = 0; i < t->rank; i++)
		dims[i] = t->dims[i];
	dims[t->rank] = ir_dim_const(c->lw->module->dims, 1);
	in_subset = irb_broadcast_to(b, irb_reshape_to(b, in_subset, to->rank, dims), to->rank, to->dims);
	return irb_where(b, in_subset, y, before, NULL);
}

/* Multiplies each row of x by the matrix of its expert among those of `need` and adds their bias. *slots is set if
 * `need` has a subset, and then replaces the ids; a slot of -1 is clamped to the first matrix (select_expert_rows). */
static bool expert_product(const struct call *c, struct ir_value x, struct ir_value ids, const char *path,
                           const char *role, struct weight_request need, bool bias, struct ir_value *slots,
                           struct ir_value *out)
{
	struct lowering *lw = c->lw;
	struct ir_value w, b = IR_NO_VALUE;
	path = arena_printf(lw->arena, "%s." LOWER_EXPERT ".%s", path, role);
	if (!parameter_of(c, path, "weight", &need, &w))
		return false;
	const char *name = ir_weight_of(irb_func(lw->b), w)->name;
	if (need.subset != NULL && !expert_slots(c, &need, name, ids, slots))
		return false;
	ids = need.subset != NULL ? *slots : ids;
	need.rank = 1;
	if (bias && !parameter_of(c, path, "bias", &need, &b))
		return false;
	*out = irb_expert_linear(lw->b, quantize_activations(lw, x, w), w, ids, b, NULL);
	return !irb_failed(lw->b);
}

/*
 * Each row is multiplied by the matrix of the expert named by its id: parameters PATH.N.ROLE. Experts of one
 * format are stacked into one weight. With several formats, each weight multiplies all rows (rows of other
 * experts use its first matrix), and each row selects the result of its own expert: this reads one more matrix
 * per format, but no weight changes its format.
 */
bool lower_expert_linear(const struct call *c, struct lowered *out)
{
	struct lowering *lw = c->lw;
	struct ir_value x, ids, y = IR_NO_VALUE;
	const char *path = NULL, *role = NULL;
	struct weight_request need = {.rank = 2, .is_quantizable = true};
	bool bias = false;
	if (!call_tensor(c, "x", &x) || !call_tensor(c, "ids", &ids) || !call_word(c, "path", &path) ||
	    !call_word(c, "role", &role) || !call_int(c, "experts", &need.experts) ||
	    !call_int(c, "out", &need.dims[0]) || !call_bool(c, "bias", &bias) ||
	    !constant_width(c, x, &need.dims[1]))
		return false;
	if (need.experts < 1 || need.experts > EXPERTS_MAX || need.dims[0] < 1)
		return lower_fail(lw, c->e->loc, DIAG_VALUE_TYPE,
		                  "expert_linear has 1 to %d experts and a positive width", EXPERTS_MAX);
	enum ir_format formats[EXPERTS_MAX];
	need.pattern = arena_printf(lw->arena, "%s." LOWER_EXPERT ".%s.weight", path, role);
	if (!lower_expert_formats(lw, &need, formats))
		return false;
	/* one product for each format; `first` is its first expert, `seen` the experts of all formats so far */
	for (int64_t first = 0, seen = 0; seen < need.experts; first++) {
		struct ir_value slots = IR_NO_VALUE, before = y;
		bool *subset = ARENA_ARRAY(lw->arena, bool, need.experts), is_new = subset != NULL;
		for (int64_t k = 0; is_new && k < first; k++)
			is_new = formats[k] != formats[first];
		if (subset == NULL)
			return false;
		if (!is_new)
			continue;
		for (int64_t k = first; k < need.experts; k++)
			seen += subset[k] = formats[k] == formats[first];
		bool covers_all = first == 0 && seen == need.experts;
		need.subset = covers_all ? NULL : subset;
		need.subset_name = covers_all                       ? NULL
		                   : formats[first] == FORMAT_PLAIN ? "f32"
		                                                    : ir_format(formats[first])->name;
		if (!expert_product(c, x, ids, path, role, need, bias, &slots, &y))
			return false;
		y = before.id != 0 ? select_expert_rows(c, slots, y, before) : y;
	}
	return apply_activation(c, &y) && call_return(c, out, y);
}

/* Rows of path.weight [vocab, dim] at the ids: a table that `quantize` may name. */
bool lower_embed(const struct call *c, struct lowered *out)
{
	struct ir_value ids, w;
	const char *path = NULL;
	struct weight_request need = {.rank = 2, .is_quantizable = true, .is_table = true};
	if (!call_tensor(c, "ids", &ids) || !call_word(c, "path", &path) ||
	    !call_int(c, "vocab", &need.dims[0]) || !call_int(c, "dim", &need.dims[1]) ||
	    !parameter_of(c, path, "weight", &need, &w))
		return false;
	return call_return(c, out, irb_gather(c->lw->b, w, ids, NULL));
}

/* layer_norm or rms_norm of the last axis; with path none it has neither weight nor bias. plus_one concerns the
 * weight alone. rms_norm has no bias in its signature. */
bool lower_norm(const struct call *c, struct lowered *out)
{
	struct ir_value x, w = IR_NO_VALUE, b = IR_NO_VALUE;
	const char *path = NULL;
	bool layer = strcmp(c->e->text, "layer_norm") == 0, bias = false, plus_one = false;
	double eps = 0.0;
	struct weight_request need = {.rank = 1};
	if (!call_tensor(c, "x", &x) || !call_word(c, "path", &path) || !call_float(c, "eps", &eps) ||
	    !constant_width(c, x, &need.dims[0]))
		return false;
	if (!call_bool(c, "plus_one", &plus_one) || (layer && !call_bool(c, "bias", &bias)))
		return false;
	bool affine = strcmp(path, "none") != 0;
	need.plus_one = plus_one;
	if (affine && !parameter_of(c, path, "weight", &need, &w))
		return false;
	need.plus_one = false;
	if (affine && layer && bias && !parameter_of(c, path, "bias", &need, &b))
		return false;
	if (layer)
		return call_return(c, out,
		                   irb_layer_norm(c->lw->b, x, w, b, &(struct attrs_layer_norm){.eps = eps}));
	return call_return(c, out, irb_rms_norm(c->lw->b, x, w, &(struct attrs_rms_norm){.eps = eps}));
}

/* ---- positions and rows ---- */

/*
 * Positions for sequences with padding inside: rows with `real` (bool [B, n]) are counted from 0 within the
 * call, others are at -1. Tokens of earlier calls all count, as cache_length does in transformers: a prompt
 * with inner padding that is read in several calls gets larger positions than one that is read at once.
 */
static bool count_real_rows(const struct call *c, const struct ir_dim *const dims[2], struct ir_value *real,
                            struct ir_value *count)
{
	struct lowering *lw = c->lw;
	if (!call_tensor(c, "real", real))
		return false;
	const struct ir_type *t = call_type(c, *real);
	if (t->dtype != DT_BOOL || t->rank != 2 || t->dims[0] != dims[0] || t->dims[1] != dims[1])
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "'real' of positions wants a bool for each row, found %s",
		                  type_to_string(lw, *real));
	*count = irb_cumsum(lw->b, irb_cast(lw->b, *real, &(struct attrs_cast){.dtype = DT_I32}), NULL);
	*count = irb_sub(lw->b, *count, irb_full_of(lw->b, 1.0, DT_I32, 2, dims), NULL);
	return true;
}

/* Absolute position of each row of axis 1, i32 [B, n]: its index, after the `past` rows of earlier calls in decode;
 * with `real` only real rows are counted. */
bool lower_positions(const struct call *c, struct lowered *out)
{
	struct ir_value x, p, real;
	struct lowering *lw = c->lw;
	if (!call_tensor(c, "x", &x))
		return false;
	const struct ir_type *t = call_type(c, x);
	if (t->rank < 2)
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "positions wants the axes batch and sequence, found %s",
		                  type_to_string(lw, x));
	const struct ir_dim *dims[] = {t->dims[0], t->dims[1]};
	bool counts = !lower_is_none(call_arg(c, "real"));
	if (counts && !count_real_rows(c, dims, &real, &p))
		return false;
	if (!counts)
		p = irb_iota(lw->b, &(struct attrs_iota){.dims = {dims, 2}, .axis = 1});
	if (t->dims[1] == lw->grows) { /* tokens of decode follow those of earlier calls */
		const struct ir_dim *column[] = {t->dims[0], ir_dim_const(lw->module->dims, 1)};
		struct ir_value past = irb_reshape_to(lw->b, lw->past, 2, column);
		p = irb_add(lw->b, p, irb_broadcast_to(lw->b, past, 2, dims), NULL);
	}
	if (counts)
		p = irb_where(lw->b, real, p, irb_full_of(lw->b, -1.0, DT_I32, 2, dims), NULL);
	return call_return(c, out, p);
}

bool lower_mask_rows(const struct call *c, struct lowered *out)
{
	struct ir_value x, len;
	return call_tensor(c, "x", &x) && call_tensor(c, "lengths", &len) &&
	       call_return(c, out, irb_mask_rows(c->lw->b, x, len, NULL));
}

bool lower_select_rows(const struct call *c, struct lowered *out)
{
	struct ir_value x, at;
	return call_tensor(c, "x", &x) && call_tensor(c, "at", &at) && call_mixes_axis(c, &x, 1, FILL_NONE) &&
	       call_return(c, out, irb_select_rows(c->lw->b, x, at, NULL));
}

/* expect(x, f32[B, n, d]): x; an error if it has another type. Dims are interned: equal ones are the same pointer. */
bool lower_expect(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	struct lowering *lw = c->lw;
	const struct expr *e = call_arg(c, "type");
	enum ir_dtype dtype;
	if (!call_tensor(c, "x", &x))
		return false;
	if (e->kind != EX_INDEX || e->args[0]->kind != EX_NAME ||
	    !ir_dtype_parse(e->args[0]->text, strlen(e->args[0]->text), &dtype))
		return lower_fail(lw, e->loc, DIAG_VALUE_TYPE, "expect wants a type such as f32[B, 3]");
	const struct ir_type *t = call_type(c, x);
	bool same = t->dtype == dtype && (size_t)t->rank == e->n_args - 1;
	for (size_t i = 1; same && i < e->n_args; i++) {
		struct value v;
		const struct ir_dim *d;
		if (!expr_eval(&lw->env, e->args[i], &v) ||
		    !expr_require_dim(&lw->env, e->args[i]->loc, "type", &v, &d))
			return false;
		same = t->dims[i - 1] == lower_dim(lw, d);
	}
	if (!same) {
		struct buf text;
		buf_init(&text);
		expr_print(&text, lw->m->scope.dims, e);
		lower_fail(lw, e->loc, DIAG_SHAPE, "expected %s, found %s", text.data, type_to_string(lw, x));
		buf_destroy(&text);
		return false;
	}
	return call_return(c, out, x);
}
