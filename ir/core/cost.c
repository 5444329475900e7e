/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs from the shapes of operands and results, see cost.h; the formulas follow from the definitions in ops.def. And
 * descriptions of ops for reports (timings, plans).
 */
#include "ir/core/cost.h"

#include <string.h>

#include "ir/support/number.h"

static const struct ir_dim *axis_from_end(const struct ir_func *f, struct ir_value v, int back)
{
	const struct ir_type *t = ir_type_of(f, v);
	return t->dims[t->rank - back];
}

/* 2 * elements of the result * terms of each sum. */
static const struct ir_dim *contraction_flops(const struct ir_module *m, const struct ir_func *f,
                                              const struct ir_op *op, const struct ir_dim *terms)
{
	struct ir_dims *dims = m->dims;
	const struct ir_dim *count = ir_type_count(dims, ir_type_of(f, op->results[0]));
	return ir_dim_mul(dims, ir_dim_const(dims, 2), ir_dim_mul(dims, count, terms));
}

/* 2 B H S T (E + Ev): every query with every key and value, masked or not. Axes before the last of q are B, H and S. */
static const struct ir_dim *attention_flops(const struct ir_module *m, const struct ir_func *f,
                                            const struct ir_op *op)
{
	struct ir_dims *dims = m->dims;
	struct ir_value q = op->operands[OPERAND(attention, q)], v = op->operands[OPERAND(attention, v)];
	const struct ir_dim *rows =
	        ir_type_count_range(dims, ir_type_of(f, q), 0, ir_type_of(f, q)->rank - 1);
	const struct ir_dim *keys = axis_from_end(f, v, 2);
	const struct ir_dim *width = ir_dim_add(dims, axis_from_end(f, q, 1), axis_from_end(f, v, 1));
	return ir_dim_mul(dims, ir_dim_mul(dims, ir_dim_const(dims, 2), rows), ir_dim_mul(dims, keys, width));
}

static const struct ir_dim *region_flops(const struct ir_module *m, const struct ir_func *f,
                                         const struct ir_region *r, enum ir_mac_type kind)
{
	const struct ir_dim *sum = ir_dim_const(m->dims, 0);
	for (size_t i = 0; i < r->n_ops; i++)
		sum = ir_dim_add(m->dims, sum, ir_op_flops(m, f, r->ops[i], kind));
	return sum;
}

/* The type of the multiply-accumulates of op, MAC_F32 for ops without. A linear after quantize_rows multiplies
 * quantized operands; other ops read the rounded values as f32. An attention states its factors. */
static enum ir_mac_type mac_type_of(const struct ir_func *f, const struct ir_op *op)
{
	if (op->code == OP_attention && ((const struct attrs_attention *)op->attrs)->factors == FACTORS_bf16)
		return MAC_BF16;
	const struct ir_op *x = op->n_operands > 0 ? ir_def(f, op->operands[0]) : NULL;
	if (x == NULL || x->code != OP_quantize_rows ||
	    (op->code != OP_linear && op->code != OP_expert_linear))
		return MAC_F32;
	return ((const struct attrs_quantize_rows *)x->attrs)->to == ROUND_bf16 ? MAC_BF16 : MAC_INT8;
}

/* K, the axis that is summed over, is the last of the first operand, of a transposed one the axis before. The kind
 * is filtered at ops, so regions are always entered. */
const struct ir_dim *ir_op_flops(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                                 enum ir_mac_type kind)
{
	struct ir_dims *dims = m->dims;
	if (!op->region && kind != MAC_ALL && kind != mac_type_of(f, op))
		return ir_dim_const(dims, 0);
	if (op->code == OP_linear || op->code == OP_expert_linear)
		return contraction_flops(m, f, op, axis_from_end(f, op->operands[0], 1));
	if (op->code == OP_matmul) {
		bool ta = ((const struct attrs_matmul *)op->attrs)->ta;
		return contraction_flops(m, f, op, axis_from_end(f, op->operands[0], ta ? 2 : 1));
	}
	if (op->code == OP_attention)
		return attention_flops(m, f, op);
	if (!op->region)
		return ir_dim_const(dims, 0);
	const struct ir_dim *body = region_flops(m, f, op->region, kind);
	if (op->code == OP_repeat)
		body = ir_dim_mul(dims, body,
		                  ir_dim_const(dims, ((const struct attrs_repeat *)op->attrs)->count));
	return body;
}

const struct ir_dim *ir_func_flops(const struct ir_module *m, const struct ir_func *f, enum ir_mac_type kind)
{
	return region_flops(m, f, f->body, kind);
}

/* Calls each() for the exchanges of a region; `times`: executions of the region. One operand is exchanged. */
static void visit_exchanges(const struct ir_module *m, const struct ir_func *f, const struct ir_region *r,
                            int64_t times, ir_exchange_fn *each, void *user)
{
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		int64_t count = op->code == OP_repeat ? ((const struct attrs_repeat *)op->attrs)->count : 1;
		if (op->region != NULL)
			visit_exchanges(m, f, op->region, times * count, each, user);
		else if (ir_op_has(op->code, TRAIT_EXCHANGE))
			each(user, &(struct ir_exchange){
			                   .code = op->code,
			                   .count = ir_type_count(m->dims, ir_type_of(f, op->operands[0])),
			                   .times = times});
	}
}

void ir_visit_exchanges(const struct ir_module *m, const struct ir_func *f, ir_exchange_fn *each, void *user)
{
	visit_exchanges(m, f, f->body, 1, each, user);
}

/* ir_op_flops of an attention times the fraction of visible (query, key) pairs; query i is at position past + i. A
 * window reaches as far forward as back unless the mask is causal. Without the operand past, positions begin at 0. */
static double attention_flops_at(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                                 const int64_t *values, int64_t past)
{
	const struct attrs_attention *a = op->attrs;
	int64_t rows, keys, all;
	double visible = 0;
	if (!ir_dim_eval(axis_from_end(f, op->operands[OPERAND(attention, q)], 2), values, &rows) ||
	    !ir_dim_eval(axis_from_end(f, op->operands[OPERAND(attention, v)], 2), values, &keys) ||
	    !ir_dim_eval(attention_flops(m, f, op), values, &all) || rows == 0 || keys == 0)
		return 0;
	if (op->operands[OPERAND(attention, past)].id == 0)
		past = 0;
	for (int64_t i = 0; i < rows; i++) {
		int64_t first = a->window > 0 ? past + i - a->window + 1 : 0;
		int64_t end = a->mask == MASK_causal ? past + i + 1
		              : a->window > 0        ? past + i + a->window
		                                     : keys;
		first = first < 0 ? 0 : first;
		end = end > keys ? keys : end;
		visible += first < end ? (double)(end - first) : 0;
	}
	return (double)all / ((double)rows * (double)keys) * visible;
}

/* Recursive, since attention in a region counts differently. */
double ir_op_flops_at(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                      enum ir_mac_type kind, const int64_t *values, int64_t past)
{
	int64_t flops;
	double sum = 0;
	if (op->code == OP_attention)
		return kind == MAC_ALL || kind == mac_type_of(f, op)
		               ? attention_flops_at(m, f, op, values, past)
		               : 0;
	if (!op->region)
		return ir_dim_eval(ir_op_flops(m, f, op, kind), values, &flops) ? (double)flops : 0;
	for (size_t i = 0; i < op->region->n_ops; i++)
		sum += ir_op_flops_at(m, f, op->region->ops[i], kind, values, past);
	return op->code == OP_repeat ? sum * (double)((const struct attrs_repeat *)op->attrs)->count : sum;
}

/* Elements of the axes from `first` on; 0 on overflow of a dim. values NULL: constant dims (weights). */
static double elements(const struct ir_type *t, int first, const int64_t *values)
{
	double n = 1;
	int64_t size;
	for (int i = first; i < t->rank; i++)
		n *= ir_dim_eval(t->dims[i], values, &size) ? (double)size : 0;
	return n;
}

/* Stored bytes of an element of a weight, for a quantized format with its share of the scales of a row: hence not an
 * integer. */
static double element_bytes(const struct ir_weight *w)
{
	enum ir_format stored = ir_weight_stored_format(w);
	int64_t k;
	if (!ir_format_is_quantized(stored) || !ir_dim_is_const(w->type->dims[w->type->rank - 1], &k) ||
	    k == 0)
		return (double)ir_dtype_bytes(stored != FORMAT_PLAIN ? ir_format(stored)->dtype
		                                                     : w->type->dtype);
	return (double)ir_format_row_bytes(stored, k) / (double)k;
}

double ir_weight_bytes(const struct ir_weight *w)
{
	return elements(w->type, 0, NULL) * element_bytes(w);
}

/* Bytes of weight v that one execution of op reads; 0 if v is no weight. Ops that select rows by ids (experts, RoPE
 * tables, TRAIT_MOVE: gather) read a row for each id, at most the whole weight. */
static double operand_bytes(const struct ir_func *f, const struct ir_op *op, struct ir_value v,
                            const int64_t *values)
{
	const struct ir_weight *w = ir_weight_of(f, v);
	if (w == NULL)
		return 0;
	const struct ir_type *t = ir_type_of(f, v);
	double all = elements(t, 0, values), read = all;
	if (op->code == OP_expert_linear)
		read = elements(t, 1, values) *
		       elements(ir_type_of(f, op->operands[OPERAND(expert_linear, ids)]), 0, values);
	else if (op->code == OP_rope)
		read = elements(t, 1, values) *
		       elements(ir_type_of(f, op->operands[OPERAND(rope, at)]), 0, values);
	else if (ir_op_desc(op->code)->traits & TRAIT_MOVE)
		read = elements(ir_type_of(f, op->results[0]), 0, values);
	return (read < all ? read : all) * element_bytes(w);
}

static double region_weight_bytes(const struct ir_func *f, const struct ir_region *r, const int64_t *values)
{
	double sum = 0;
	for (size_t i = 0; i < r->n_ops; i++)
		sum += ir_op_weight_bytes(f, r->ops[i], values);
	return sum;
}

/* Weights are operands of the ops in a region, so a region op has only those of its body. */
double ir_op_weight_bytes(const struct ir_func *f, const struct ir_op *op, const int64_t *values)
{
	double sum = op->region ? region_weight_bytes(f, op->region, values) : 0;
	if (op->code == OP_repeat)
		sum *= (double)((const struct attrs_repeat *)op->attrs)->count;
	for (size_t i = 0; i < op->n_operands; i++)
		sum += operand_bytes(f, op, op->operands[i], values);
	return sum;
}

double ir_func_weight_bytes(const struct ir_func *f, const int64_t *values)
{
	return region_weight_bytes(f, f->body, values);
}

/* ---- descriptions ---- */

/* Name of the first weight that op reads, and its length without the last component (`.weight`, `.bias`): the path
 * of the module in the checkpoint; NULL if none. */
static const char *weight_path(const struct ir_func *f, const struct ir_op *op, size_t *len)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_weight *w = ir_weight_of(f, op->operands[i]);
		if (w == NULL)
			continue;
		const char *last = strrchr(w->name, '.');
		*len = last != NULL ? (size_t)(last - w->name) : strlen(w->name);
		return w->name;
	}
	return NULL;
}

#define RANGE_DIGITS 9 /* of a number in a range */

/* Reads .FIRST_LAST, or .FIRST_SECOND_LAST for a step other than 1. A range is a whole component: a point, a blank
 * or the end follows. */
size_t ir_path_range(const char *path, int64_t *first, int64_t *step)
{
	int64_t at[3] = {0, 0, 0};
	size_t n = 0, len = 0;
	for (; n < 3 && path[len] == (n == 0 ? '.' : '_'); n++) {
		size_t digits = strspn(path + len + 1, "0123456789");
		if (digits > RANGE_DIGITS || !number_parse_i64(path + len + 1, digits, &at[n]))
			break;
		len += 1 + digits;
	}
	bool is_range = n >= 2 && strchr(". ", path[len]) != NULL; /* or the end */
	*first = is_range ? at[0] : 0;
	*step = is_range && n == 3 ? at[1] - at[0] : 1;
	return is_range ? len : 0;
}

static const struct ir_op *described_op(const struct ir_op *op)
{
	return op->code == OP_group ? op->region->ops[((const struct attrs_group *)op->attrs)->root] : op;
}

/* Path and name of an op that is no group. The path of a weight is preferred: it tells linears of one step apart. */
static void print_title(struct buf *out, const struct ir_func *f, const struct ir_op *op)
{
	size_t len = 0;
	const char *path = weight_path(f, op, &len);
	if (path == NULL && op->loc.path != NULL) {
		path = op->loc.path;
		len = strlen(path);
	}
	buf_bytes(out, path, len);
	buf_printf(out, "%s%s", len > 0 ? " " : "", ir_op_desc(op->code)->name);
}

/* Inserts the marks of a region's repeats, outermost first, into the title, in place of ranges; the result: bytes of
 * it that were printed. A repeat counts if its path begins the title, longer than that of the outer one. */
static size_t print_marks(struct buf *out, const struct ir_region *r, const struct buf *title)
{
	if (r == NULL || r->owner == NULL)
		return 0;
	size_t done = print_marks(out, r->parent, title);
	const char *path = r->owner->code == OP_repeat ? r->owner->loc.path : NULL;
	size_t k = path != NULL ? strlen(path) : 0;
	if (k == 0 || k < done || k >= title->len || title->data[k] != '.' ||
	    strncmp(title->data, path, k) != 0)
		return done;
	int64_t first, step;
	size_t range = ir_path_range(title->data + k, &first, &step);
	buf_bytes(out, title->data + done, k - done);
	buf_printf(out, ".#%lld", (long long)((const struct attrs_repeat *)r->owner->attrs)->count);
	if (range > 0)
		buf_printf(out, "*%lld+%lld", (long long)step, (long long)first);
	buf_char(out, '#');
	return k + range;
}

/* The region of the op is that of its results. */
void ir_op_title(struct buf *out, const struct ir_func *f, const struct ir_op *op, bool marked)
{
	struct buf title;
	buf_init(&title);
	print_title(&title, f, described_op(op));
	const struct ir_region *region = op->n_results > 0 ? ir_value_info(f, op->results[0])->region : NULL;
	size_t done = marked ? print_marks(out, region, &title) : 0;
	buf_bytes(out, title.data + done, title.len - done);
	out->failed = out->failed || buf_failed(&title);
	buf_destroy(&title);
}

void ir_op_line(struct buf *out, const struct diag_context *cx, const struct ir_op *op)
{
	struct loc at = described_op(op)->loc.at;
	const char *file = diag_source_name(cx, at.source), *slash = strrchr(file, '/');
	if (at.line != 0)
		buf_printf(out, "%s:%u", slash != NULL ? slash + 1 : file, (unsigned)at.line);
}

void ir_op_describe(struct buf *out, const struct diag_context *cx, const struct ir_func *f,
                    const struct ir_op *op)
{
	struct buf line;
	buf_init(&line);
	print_title(out, f, described_op(op));
	ir_op_line(&line, cx, op);
	if (line.len > 0)
		buf_printf(out, " (%s)", line.data);
	out->failed = out->failed || buf_failed(&line);
	buf_destroy(&line);
}

/* Sizes that are 0 do not belong to the kind of the group. */
void ir_group_kernel(struct buf *out, const struct ir_op *group)
{
	const struct attrs_group *a = group->attrs;
	buf_str(out, ir_keyword(KEYWORDS_GROUP, a->kind));
	if (a->mr > 0)
		buf_printf(out, " %lldx%lldx%lld", (long long)a->mr, (long long)a->nr, (long long)a->kc);
	if (a->br > 0)
		buf_printf(out, " %lldx%lld", (long long)a->br, (long long)a->bc);
}
