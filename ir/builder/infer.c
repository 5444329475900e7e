/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Result types: one infer_<op> for every row of ir/core/ops.def, after the operand
 * classes of the row were checked. The builder and the verifier share it, so
 * what is built is what is verified.
 */
#include "ir/builder/build.h"

#include <inttypes.h>
#include <string.h>

#include "ir/builder/infer_internal.h"

typedef bool infer_fn(const struct infer *c);
#define OP(name, traits, operands, attributes, formula) static infer_fn infer_##name;
#include "ir/core/ops.def"

/* ---- constants ---- */

static bool infer_weight(const struct infer *c)
{
	const struct ir_weight *w = ((const struct attrs_weight *)c->attrs)->weight;
	if (w == NULL)
		return infer_fail(c, DIAG_IR_TYPE, "no weight is named");
	if (c->n_in > (size_t)w->type->rank)
		return infer_fail(c, DIAG_SHAPE, "%zu indices into the weight @%s, which is %s", c->n_in,
		                  w->name, infer_text(c, w->type));
	for (size_t i = 0; i < c->n_in; i++)
		if (!infer_rank(c, i, 0))
			return false;
	return infer_result(c, w->type->dtype, w->type->rank - (int)c->n_in, w->type->dims + c->n_in);
}

static bool result_dims(const struct infer *c, enum ir_dtype dtype, const struct ir_dim_list *dims)
{
	if (dims->n > IR_RANK_MAX)
		return infer_fail(c, DIAG_SHAPE, "%zu axes, at most %d are possible", dims->n, IR_RANK_MAX);
	return infer_result(c, dtype, (int)dims->n, dims->items);
}

static bool infer_full(const struct infer *c)
{
	const struct attrs_full *a = c->attrs;
	return result_dims(c, a->dtype, &a->dims);
}

static bool infer_iota(const struct infer *c)
{
	const struct attrs_iota *a = c->attrs;
	if (!result_dims(c, DT_I32, &a->dims))
		return false;
	return infer_axis(c, a->axis, c->out[0]->rank);
}

static bool infer_dim_value(const struct infer *c)
{
	const struct attrs_dim_value *a = c->attrs;
	if (a->dim == NULL || ir_dim_lo(c->m->dims, a->dim) < INT32_MIN ||
	    ir_dim_hi(c->m->dims, a->dim) > INT32_MAX)
		return infer_fail(c, DIAG_IR_TYPE, "the dim is missing or may not fit into i32");
	return infer_result(c, DT_I32, 0, NULL);
}

/* ---- elementwise ---- */

static bool as_x(const struct infer *c)
{
	c->out[0] = c->in[0];
	return true;
}

#define AS_X(name)                                      \
	static bool infer_##name(const struct infer *c) \
	{                                               \
		return as_x(c);                         \
	}
AS_X(neg)
AS_X(abs)
AS_X(exp)
AS_X(log)
AS_X(sqrt)
AS_X(rsqrt)
AS_X(sin)
AS_X(cos)
AS_X(tanh)
AS_X(erf)
AS_X(floor)
AS_X(ceil)
AS_X(sigmoid)
AS_X(relu)
AS_X(relu2)
AS_X(gelu)
AS_X(gelu_tanh)
AS_X(gelu_quick)
AS_X(silu)
AS_X(scale)
AS_X(not )

static bool infer_softcap(const struct infer *c)
{
	const struct attrs_softcap *a = c->attrs;
	if (!(a->c > 0.0))
		return infer_fail(c, DIAG_IR_TYPE, "c must be positive");
	return as_x(c);
}

static bool infer_cast(const struct infer *c)
{
	const struct attrs_cast *a = c->attrs;
	return infer_result(c, a->dtype, c->in[0]->rank, c->in[0]->dims);
}

static bool same_shapes(const struct infer *c, size_t a, size_t b)
{
	const struct ir_type *x = c->in[a], *y = c->in[b];
	if (x->rank == y->rank &&
	    (x->rank == 0 || memcmp(x->dims, y->dims, (size_t)x->rank * sizeof(x->dims[0])) == 0))
		return true;
	return infer_mismatch(c, DIAG_SHAPE, a, b, "the shapes differ (only broadcast repeats axes)");
}

static bool same_types(const struct infer *c)
{
	if (!same_shapes(c, 0, 1) || !infer_same_dtype(c, 0, 1))
		return false;
	return as_x(c);
}

#define SAME_TYPES(name)                                \
	static bool infer_##name(const struct infer *c) \
	{                                               \
		return same_types(c);                   \
	}
SAME_TYPES(add)
SAME_TYPES(sub)
SAME_TYPES(mul)
SAME_TYPES(div)
SAME_TYPES(floor_div)
SAME_TYPES(mod)
SAME_TYPES(pow)
SAME_TYPES(min)
SAME_TYPES(max)
SAME_TYPES(and)
SAME_TYPES(or)

static bool infer_cmp(const struct infer *c)
{
	return same_types(c) && infer_result(c, DT_BOOL, c->in[0]->rank, c->in[0]->dims);
}

static bool infer_where(const struct infer *c)
{
	if (!same_shapes(c, 0, 1) || !same_shapes(c, 1, 2) || !infer_same_dtype(c, 1, 2))
		return false;
	c->out[0] = c->in[1];
	return true;
}

static bool infer_mask_rows(const struct infer *c)
{
	return infer_rank_min(c, 0, 2) && infer_per_batch(c, 1, 0) && as_x(c);
}

/* ---- rows ---- */

static bool infer_softmax(const struct infer *c)
{
	return infer_rank_min(c, 0, 1) && as_x(c);
}

static bool infer_log_softmax(const struct infer *c)
{
	return infer_rank_min(c, 0, 1) && as_x(c);
}

/* Positions and windows together stay far below 2^31. */
static bool is_window(const struct infer *c, int64_t window)
{
	if (window >= 0 && window <= IR_WINDOW_MAX)
		return true;
	return infer_fail(c, DIAG_IR_TYPE, "window is 0 (none) to 2^30");
}

static bool infer_mask(const struct infer *c)
{
	return is_window(c, ((const struct attrs_mask *)c->attrs)->window) && infer_mask_rule(c);
}

static bool infer_masked_softmax(const struct infer *c)
{
	return is_window(c, ((const struct attrs_masked_softmax *)c->attrs)->window) && infer_mask_rule(c);
}

static bool infer_rope(const struct infer *c)
{
	return infer_rope_rule(c);
}

static bool infer_layer_norm(const struct infer *c)
{
	return infer_norm_rule(c);
}

static bool infer_rms_norm(const struct infer *c)
{
	return infer_norm_rule(c);
}

/* ---- reductions ---- */

/* Axes ascend; each goes, or becomes 1 with keep. */
static bool reduce(const struct infer *c, const struct ir_int_list *axes, bool keep)
{
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	size_t next = 0;
	int rank = 0;
	for (size_t i = 0; i < axes->n; i++) {
		if (!infer_axis(c, axes->items[i], x->rank))
			return false;
		if (i > 0 && axes->items[i] <= axes->items[i - 1])
			return infer_fail(c, DIAG_IR_TYPE, "axes must ascend");
	}
	for (int i = 0; i < x->rank; i++) {
		bool gone = next < axes->n && axes->items[next] == i;
		next += gone;
		if (!gone || keep)
			dims[rank++] = gone ? ir_dim_const(c->m->dims, 1) : x->dims[i];
	}
	return infer_result(c, x->dtype, rank, dims);
}

#define REDUCE(name)                                     \
	static bool infer_##name(const struct infer *c)  \
	{                                                \
		const struct attrs_##name *a = c->attrs; \
		return reduce(c, &a->axes, a->keep);     \
	}
REDUCE(reduce_sum)
REDUCE(reduce_mean)
REDUCE(reduce_max)
REDUCE(reduce_min)

static bool infer_argmax(const struct infer *c)
{
	const struct attrs_argmax *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	int64_t axis = a->axis == -1 ? x->rank - 1 : a->axis;
	int rank = 0;
	if (!infer_rank_min(c, 0, 1) || !infer_axis(c, axis, x->rank))
		return false;
	for (int i = 0; i < x->rank; i++)
		if (i != axis)
			dims[rank++] = x->dims[i];
	return infer_result(c, DT_I32, rank, dims);
}

/* ---- strips of the last axis ---- */

/* x [..,V] -> [..,numbers,n]; V is constant, and its columns are exact as f32. */
static bool infer_strips(const struct infer *c, int64_t width, int64_t numbers)
{
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX + 1];
	int64_t columns;
	if (!infer_rank_min(c, 0, 1))
		return false;
	if (width < 1 || !ir_dim_is_const(x->dims[x->rank - 1], &columns) || columns < 1 || columns > 1 << 24)
		return infer_fail(c, DIAG_SHAPE,
		                  "width is at least 1 and the last axis of x a constant from 1 to 2^24");
	for (int i = 0; i < x->rank; i++)
		dims[i] = x->dims[i];
	dims[x->rank - 1] = ir_dim_const(c->m->dims, numbers);
	dims[x->rank] = ir_dim_const(c->m->dims, (columns - 1) / width + 1);
	return infer_result(c, x->dtype, x->rank + 1, dims);
}

static bool infer_strip_argmax(const struct infer *c)
{
	return infer_strips(c, ((const struct attrs_strip_argmax *)c->attrs)->width, 2);
}

static bool infer_strip_score(const struct infer *c)
{
	int rank = c->in[0]->rank - 1;
	if (!infer_rank_min(c, 0, 1) || !infer_rank(c, 1, rank))
		return false;
	for (int i = 0; i < rank; i++)
		if (!infer_axes_equal(c, 1, i, 0, i))
			return false;
	return infer_strips(c, ((const struct attrs_strip_score *)c->attrs)->width, 3);
}

/* ---- rows in order ---- */

static bool infer_cumsum(const struct infer *c)
{
	return infer_rank_min(c, 0, 1) && as_x(c);
}

/* x [..,V] -> [..,2,k]; indices are exact as f32. */
static bool infer_topk(const struct infer *c)
{
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX + 1];
	int64_t k = ((const struct attrs_topk *)c->attrs)->k;
	bool is_narrow = ir_dtype_bytes(x->dtype) < 4;
	if (!infer_rank_min(c, 0, 1))
		return false;
	if (is_narrow || x->rank >= IR_RANK_MAX)
		return infer_fail(c, DIAG_IR_TYPE, "x is f32, f64, i32 or i64 with less than %d axes",
		                  IR_RANK_MAX);
	const struct ir_dim *width = x->dims[x->rank - 1];
	if (k < 1 || k > ir_dim_lo(c->m->dims, width) || ir_dim_hi(c->m->dims, width) > 1 << 24)
		return infer_fail(c, DIAG_SHAPE,
		                  "k is 1 to the size of the last axis, which is at most 2^24");
	for (int i = 0; i < x->rank; i++)
		dims[i] = x->dims[i];
	dims[x->rank - 1] = ir_dim_const(c->m->dims, 2);
	dims[x->rank] = ir_dim_const(c->m->dims, k);
	return infer_result(c, x->dtype, x->rank + 1, dims);
}

static bool infer_last_at(const struct infer *c)
{
	const struct attrs_last_at *a = c->attrs;
	if (!infer_rank(c, 0, 1))
		return false;
	if (a->size == NULL || ir_dim_lo(c->m->dims, a->size) < 0 ||
	    ir_dim_hi(c->m->dims, a->size) > INT32_MAX ||
	    ir_dim_hi(c->m->dims, c->in[0]->dims[0]) > INT32_MAX)
		return infer_fail(c, DIAG_IR_TYPE, "the size is missing or does not fit into i32");
	return infer_result(c, DT_I32, 1, &a->size);
}

/* ---- movement ---- */

static bool infer_reshape(const struct infer *c)
{
	const struct attrs_reshape *a = c->attrs;
	const struct ir_type *x = c->in[0];
	if (!result_dims(c, x->dtype, &a->dims))
		return false;
	const struct ir_dim *from = ir_type_count(c->m->dims, x), *to = ir_type_count(c->m->dims, c->out[0]);
	if (from == to)
		return true;
	return infer_fail(c, DIAG_SHAPE, "x is %s, the result is %s: %s and %s elements", infer_text(c, x),
	                  infer_text(c, c->out[0]), infer_dim_text(c, from), infer_dim_text(c, to));
}

static bool infer_transpose(const struct infer *c)
{
	const struct attrs_transpose *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	unsigned seen = 0;
	if (a->perm.n != (size_t)x->rank)
		return infer_fail(c, DIAG_SHAPE, "perm has %zu axes, x is %s", a->perm.n, infer_text(c, x));
	for (size_t i = 0; i < a->perm.n; i++) {
		int64_t axis = a->perm.items[i];
		if (!infer_axis(c, axis, x->rank))
			return false;
		if (seen & (1u << axis))
			return infer_fail(c, DIAG_IR_TYPE, "perm names axis %" PRId64 " twice", axis);
		seen |= 1u << axis;
		dims[i] = x->dims[axis];
	}
	return infer_result(c, x->dtype, x->rank, dims);
}

static bool infer_broadcast(const struct infer *c)
{
	const struct attrs_broadcast *a = c->attrs;
	const struct ir_type *x = c->in[0];
	if (!result_dims(c, x->dtype, &a->dims))
		return false;
	const struct ir_type *to = c->out[0];
	bool fits = to->rank >= x->rank;
	for (int i = 0; fits && i < x->rank; i++)
		fits = x->dims[i] == to->dims[i + to->rank - x->rank] || ir_dim_equals(x->dims[i], 1);
	return fits || infer_fail(c, DIAG_SHAPE, "x is %s, which does not repeat to %s", infer_text(c, x),
	                          infer_text(c, to));
}

static bool infer_slice(const struct infer *c)
{
	return infer_slice_rule(c);
}

static bool infer_concat(const struct infer *c)
{
	return infer_concat_rule(c);
}

static bool infer_pad(const struct infer *c)
{
	const struct attrs_pad *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_axis(c, a->axis, x->rank))
		return false;
	if (a->before < 0 || a->after < 0 || a->before > INT32_MAX || a->after > INT32_MAX)
		return infer_fail(c, DIAG_IR_TYPE,
		                  "before (%" PRId64 ") and after (%" PRId64
		                  ") cannot be negative or so large",
		                  a->before, a->after);
	memcpy(dims, x->dims, sizeof(dims));
	dims[a->axis] = ir_dim_add(c->m->dims, dims[a->axis], ir_dim_const(c->m->dims, a->before + a->after));
	return infer_result(c, x->dtype, x->rank, dims);
}

/* table [V,...], ids [...] -> [ids..., ...] */
static bool infer_gather(const struct infer *c)
{
	const struct ir_type *table = c->in[0], *ids = c->in[1];
	const struct ir_dim *dims[2 * IR_RANK_MAX];
	if (!infer_rank_min(c, 0, 1))
		return false;
	int rank = ids->rank;
	for (int i = 0; i < ids->rank; i++)
		dims[i] = ids->dims[i];
	for (int i = 1; i < table->rank; i++)
		dims[rank++] = table->dims[i];
	return infer_result(c, table->dtype, rank, dims);
}

/* x [B,S,...], at [B] -> [B,...] */
static bool infer_take_rows(const struct infer *c)
{
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_rank_min(c, 0, 2) || !infer_per_batch(c, 1, 0))
		return false;
	for (int i = 0; i + 1 < x->rank; i++)
		dims[i] = x->dims[i == 0 ? 0 : i + 1];
	return infer_result(c, x->dtype, x->rank - 1, dims);
}

/* ---- contractions and state ---- */

static bool infer_matmul(const struct infer *c)
{
	return infer_matmul_rule(c);
}

static bool infer_linear(const struct infer *c)
{
	return infer_linear_rule(c);
}

static bool infer_expert_linear(const struct infer *c)
{
	return infer_expert_linear_rule(c);
}

static bool infer_attention(const struct infer *c)
{
	return is_window(c, ((const struct attrs_attention *)c->attrs)->window) && infer_attention_rule(c);
}

static bool infer_state_append(const struct infer *c)
{
	return infer_state_append_rule(c);
}

static bool infer_state_write(const struct infer *c)
{
	return infer_state_write_rule(c);
}

static bool infer_state_read(const struct infer *c)
{
	return infer_state_read_rule(c);
}

/* ---- structure: the types follow from the region, not from here ---- */

static bool by_region(const struct infer *c)
{
	return infer_fail(c, DIAG_INTERNAL, "is built by the calls for regions");
}

#define BY_REGION(name)                                 \
	static bool infer_##name(const struct infer *c) \
	{                                               \
		return by_region(c);                    \
	}
BY_REGION(repeat)
BY_REGION(group)
BY_REGION(yield)
BY_REGION(return )

/* ---- operand classes ---- */

static bool class_fits(const struct ir_type *t, enum ir_operand_class class)
{
	bool tensor = t->kind == IR_TENSOR;
	switch (class) {
	case CLASS_ANY: return tensor;
	case CLASS_FLOAT: return tensor && ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
	case CLASS_INT: return tensor && ir_dtype_class(t->dtype) == DTCLASS_INT;
	case CLASS_I32: return tensor && t->dtype == DT_I32;
	case CLASS_BOOL: return tensor && t->dtype == DT_BOOL;
	case CLASS_NUMBER: return tensor && ir_dtype_class(t->dtype) != DTCLASS_BOOL;
	case CLASS_STATE: return t->kind == IR_STATE;
	}
	return false;
}

static const char *class_words(enum ir_operand_class class)
{
	switch (class) {
	case CLASS_ANY: return "a tensor";
	case CLASS_FLOAT: return "a tensor of floats";
	case CLASS_INT: return "a tensor of ints";
	case CLASS_I32: return "a tensor of i32";
	case CLASS_BOOL: return "a tensor of bool";
	case CLASS_NUMBER: return "a tensor of numbers";
	case CLASS_STATE: return "a state";
	}
	return "";
}

static bool operand_fits(const struct infer *c, const struct ir_operand_desc *d, size_t i)
{
	const struct ir_type *t = i < c->n_in ? c->in[i] : NULL;
	if (t == NULL)
		return d->kind == OPERAND_OPTIONAL ||
		       infer_fail(c, DIAG_IR_TYPE, "operand %s is missing", d->name);
	if (class_fits(t, d->class))
		return true;
	return infer_fail(c, DIAG_DTYPE, "%s is %s, it must be %s", d->name, infer_text(c, t),
	                  class_words(d->class));
}

static bool operands_fit(const struct infer *c)
{
	const struct ir_operand_desc *d = c->desc->operands;
	size_t i = 0;
	for (; d->name != NULL && d->kind != OPERAND_VARIADIC; d++, i++)
		if (!operand_fits(c, d, i))
			return false;
	if (d->name == NULL && i < c->n_in)
		return infer_fail(c, DIAG_IR_TYPE, "%zu operands, it has %zu", c->n_in, i);
	for (; i < c->n_in; i++)
		if (!operand_fits(c, d, i))
			return false;
	return true;
}

bool ir_infer(struct ir_module *m, struct diag_context *cx, struct ir_loc loc, enum ir_opcode code,
              const struct ir_type *const *operands, size_t n_operands, const void *attrs,
              const struct ir_type **results, size_t n_results)
{
	static infer_fn *const rules[] = {
#define OP(name, traits, op_operands, attributes, formula) [OP_##name] = infer_##name,
#include "ir/core/ops.def"
	};
	struct infer c = {m, cx, loc, ir_op_desc(code), operands, n_operands, attrs, results};
	(void)n_results;
	return operands_fit(&c) && rules[code](&c);
}
