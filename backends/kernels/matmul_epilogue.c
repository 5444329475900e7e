/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epilogue from the C buffer, row by row: a row of the buffer is bound as the storage of the root's value, so
 * that the evaluator finds every element that the ops after the product read.
 *
 * Block ops (block_argmax, block_log_softmax) replace logits that only an arg-max or a log-probability reads: of
 * each block of MATMUL_NC panels a row leaves two or three values. Blocks begin at multiples of their width,
 * whoever computes them, so values do not depend on the division of work.
 *
 * Fused projections (q k v; gate and up): ranges of columns (slices of the root's result) are traced through the ops
 * after the product to outputs or writes into states (KV cache), by heads after head norms and RoPE where the group has
 * them. A trace says of which ranges (mask: a bit set) a value is computed, and how its axes follow from those of
 * [.., size / head, head]. An N block has whole heads of all ranges. gate and up (mats 2) are combined element by
 * element: the C buffer has the columns of both, side by side.
 *
 * Terms: s is the block of rows and panels (an N block) whose accumulators are in the C buffer, without bias; `first`
 * is the row of the result at row 0 of the buffer, or of the list of rows. Work-items of a GPU group share a row: each
 * takes a piece of its columns; piece_id none (CPUs): the whole row. eval_mark and eval_release bracket what is cached
 * in one scope of the emitted code.
 */
#include "backends/kernels/matmul_internal.h"
#include "backends/kernels/rowwise.h"
#include "ir/core/view.h"

#include <string.h>

/* ---- rows of the C buffer ---- */

/* Binds row `row` of the C buffer as the storage of the root's value. skip cancels the columns before the N block, so
 * that the evaluator uses columns of the result; leading axes have stride 0, since only this row is read. The bias is
 * added at each load, since the buffer is without it. */
static void bind_c_row(const struct linear *l, const struct matmul_block *s, struct kb_val row)
{
	struct kb *k = l->k;
	int last = l->rank - 1;
	struct eval_tensor at = {.t = {.ptr = l->buf.c, .dtype = DT_F32, .rank = l->rank}};
	struct eval_bias bias = {.v = l->bias, .expert = s->expert};
	struct kb_val first = kb_mul_const(k, s->begin, MATMUL_PANEL);
	at.skip = kb_sub(k, kb_mul_const(k, row, l->nest.c.width), first);
	for (int i = 0; i <= last; i++) {
		at.t.size[i] = (struct kb_size){.v = l->size[i]};
		at.t.stride[i] = (struct kb_size){true, i == last, kb_index(k, i == last)};
	}
	bias.step[last] = 1;
	eval_set_tensor(l->eval, eval_result(l->g->root), &at, &bias);
}

/* Evaluates and stores `lanes` columns, of which `valid` exist. */
static void store_vector(const struct linear *l, const struct eval_output *out, const struct eval_point *at,
                         int lanes, int valid)
{
	size_t mark = eval_mark(l->eval);
	struct eval_width before = eval_width(l->eval, lanes, valid);
	eval_store_output(l->eval, out, at);
	eval_width(l->eval, before.lanes, before.valid);
	eval_release(l->eval, mark);
}

/* Evaluates and stores columns r of a row of an output of `size` columns: full vectors, then the partial one, if r
 * reaches the row's end; r.lo is a multiple of the lanes. One by one if the output does not vectorize. Row offsets are
 * emitted before the loop (eval_hoist). */
static void matmul_store_row(const struct linear *l, const struct eval_output *out, int64_t size,
                             struct matmul_range r, const struct eval_point *row)
{
	struct kb *k = l->k;
	int last = l->rank - 1, lanes = eval_vectorizes(l->eval, out->value, last) ? l->nest.lanes : 1;
	int64_t full = size / lanes * lanes;
	size_t mark = eval_mark(l->eval);
	struct eval_point at = *row;
	at.vec = last;
	at.index[last] = r.lo;
	eval_hoist(l->eval, out->value, &at);
	at.index[last] = kb_loop(k, "column", r.lo, kb_min(k, r.hi, kb_index(k, full)), lanes, 0);
	store_vector(l, out, &at, lanes, lanes);
	kb_end_loop(k);
	if (full < size) {
		struct kb_val has_end = kb_cmp(k, KB_EQ, r.hi, kb_index(k, size));
		kb_if(k, kb_bin(k, KB_AND, has_end, kb_cmp(k, KB_LT, r.lo, r.hi)));
		at.index[last] = kb_index(k, full);
		store_vector(l, out, &at, lanes, (int)(size - full));
		kb_end_if(k);
	}
	eval_release(l->eval, mark);
}

/* ---- block ops ---- */

#define BLOCK_WIDTH  ((int64_t)MATMUL_NC * MATMUL_PANEL)
#define UNROLLED_MAX 8 /* vectors */

/* Looks for a block op at the end of the group, after elementwise ops only. True: it is set up and N blocks become its
 * blocks (unit). False: the group has none, or one that this epilogue cannot compute: of another width or type, or
 * among work-items, which would share a block. */
bool matmul_bind_block_op(struct linear *l)
{
	const struct kernel *g = l->g;
	const struct ir_region *r = g->job->group->region;
	const struct ir_op *last = NULL;
	for (size_t i = (size_t)g->attrs->root + 1; i < r->n_ops; i++) {
		enum ir_opcode code = r->ops[i]->code;
		if (code == OP_block_argmax || code == OP_block_log_softmax)
			last = r->ops[i];
		else if (last && code != OP_yield)
			return false;
		else if (!ir_op_has(code, TRAIT_ELEMENTWISE) && !ir_op_has(code, TRAIT_CONST) &&
		         code != OP_yield)
			return false;
	}
	if (!last || g->out.n != 1 || g->job->items > 1 || eval_block_width(last) != BLOCK_WIDTH ||
	    g->out.items[0].value.id != eval_result(last).id || g->out.items[0].to.t.dtype != DT_F32 ||
	    ir_type_of(l->job->func, last->operands[0])->dtype != DT_F32)
		return false;
	l->block_op = last;
	l->norm.after = NULL;
	l->out = g->out.items[0];
	l->gemm.columns.unit = MATMUL_NC;
	l->gemm.columns.is_nc_fixed = true;
	return true;
}

/* Evaluates the block op over columns c and stores its values (2 or 3) in the output, whose last two axes are [values,
 * blocks] in place of the root's columns. */
static void store_block_values(const struct linear *l, const struct eval_columns *c)
{
	struct kb *k = l->k;
	struct kb_val value[EVAL_BLOCK_VALUES];
	size_t mark = eval_mark(l->eval);
	int n = eval_block_values(l->eval, l->block_op, c, value);
	struct eval_point p = c->row;
	p.rank = l->rank + 1;
	p.vec = -1;
	p.flat = (struct kb_val){0};
	p.index[l->rank] = kb_div_const(k, c->first, BLOCK_WIDTH);
	for (int i = 0; i < n; i++) {
		p.index[l->rank - 1] = kb_index(k, i);
		kb_store(k, value[i], l->out.to.t.ptr, eval_offset(l->eval, &l->out.to, &p), 0, 0);
	}
	eval_release(l->eval, mark);
}

/* Stores the values of the block of columns r. Full blocks of few vectors are unrolled; only the last block can be
 * partial, and is looped over. */
static void store_block(const struct linear *l, struct matmul_range r, const struct eval_point *row)
{
	struct kb *k = l->k;
	struct eval_columns c = {l->block_op->operands[0], *row, r.lo, r.hi, l->nest.lanes, 0};
	bool is_unrolled = BLOCK_WIDTH / l->nest.lanes <= UNROLLED_MAX && l->gemm.columns.n >= BLOCK_WIDTH;
	bool has_partial = l->gemm.columns.n % BLOCK_WIDTH != 0;
	if (!is_unrolled) {
		store_block_values(l, &c);
		return;
	}
	if (has_partial) {
		kb_if(k, kb_cmp(k, KB_LT, kb_sub(k, r.hi, r.lo), kb_index(k, BLOCK_WIDTH)));
		store_block_values(l, &c);
		kb_else(k);
	}
	c.unrolled = BLOCK_WIDTH;
	store_block_values(l, &c);
	if (has_partial)
		kb_end_if(k);
}

/* ---- fused projections ---- */

#define RANGES_MAX  8
#define OUTPUTS_MAX (2 * RANGES_MAX)

struct column_range {
	struct ir_value value;
	int64_t begin, size; /* columns of the root's result */
};

/* How a value of the group is derived from ranges. */
struct trace {
	unsigned mask;      /* bit set of the ranges it depends on */
	int range;          /* the lowest of them */
	bool in_c_buf;      /* a range, a view of one, or a norm of its heads */
	bool is_normalized; /* a norm of heads or a view of it: the bias is included */
	int64_t head;       /* > 0: the last axis was split into [.., size / head, head] */
	/* Axis i of the value is axis from[i] of [.., size / head, head]; the last axis stays last. */
	unsigned char from[IR_RANK_MAX];
};

/* A result of the group, or a write into a state. */
struct output {
	struct eval_output *out; /* NULL: `write` */
	struct kernel_write write;
	struct ir_value value;
	const struct trace *trace;
};

struct matmul_ranges {
	struct kernel *g;
	struct trace *traces; /* [n_values] */
	struct column_range items[RANGES_MAX];
	int n;
	struct output outputs[OUTPUTS_MAX];
	int n_outputs;
	const struct ir_op *norms[RANGES_MAX]; /* of heads, in order */
	int n_norms;
};

static const struct ir_type *type_of(const struct matmul_ranges *p, struct ir_value v)
{
	return ir_type_of(p->g->job->func, v);
}

/* ---- tracing values to ranges ---- */

/* Adds columns [begin, begin + size) of the root's result, with value v, as a range, stored in the C buffer. False: too
 * many ranges. */
static bool add_range(struct matmul_ranges *p, struct ir_value v, int64_t begin, int64_t size)
{
	if (p->n == RANGES_MAX)
		return false;
	p->traces[v.id] = (struct trace){.mask = 1u << p->n, .range = p->n, .in_c_buf = true};
	p->items[p->n++] = (struct column_range){v, begin, size};
	return true;
}

/* A slice of the root's last axis is a range. */
static bool trace_slice(struct matmul_ranges *p, const struct ir_op *op)
{
	const struct attrs_slice *a = op->attrs;
	int64_t begin, size;
	return ir_same_value(op->operands[0], eval_result(p->g->root)) &&
	       a->axis == type_of(p, op->operands[0])->rank - 1 && ir_dim_is_const(a->begin, &begin) &&
	       ir_dim_is_const(a->size, &size) && add_range(p, eval_result(op), begin, size);
}

/* A reshape that splits the last axis into heads: from[] says for each axis of the result which one of [.., size /
 * head, head] it is. The heads may stand at `axis` instead of before the last one, the axes between (of size 1) one
 * later. False: another reshape, or heads are split already. */
static bool trace_reshape(struct matmul_ranges *p, const struct ir_op *op, struct trace *t)
{
	const struct ir_type *from = type_of(p, op->operands[0]), *to = type_of(p, eval_result(op));
	int axis;
	if (t->head > 0 || !ir_view_splits_heads(from, to, &axis, &t->head))
		return false;
	for (int i = 0; i < to->rank; i++)
		t->from[i] = (unsigned char)(i == axis                      ? to->rank - 2
		                             : i > axis && i + 1 < to->rank ? i - 1
		                                                            : i);
	return true;
}

/* A transpose of heads: permutes from[]. False: no heads yet, or the last axis (elements of a head) does not stay last,
 * along which the epilogue stores vectors. */
static bool trace_transpose(const struct ir_op *op, struct trace *t)
{
	const struct ir_int_list *perm = &((const struct attrs_transpose *)op->attrs)->perm;
	const struct trace before = *t;
	if (t->head == 0 || perm->items[perm->n - 1] != (int64_t)perm->n - 1)
		return false;
	for (size_t i = 0; i < perm->n; i++)
		t->from[i] = before.from[perm->items[i]];
	return true;
}

/* Elementwise ops and rope: the trace of their operands, whose heads and axes must agree, so that one point serves all;
 * the mask is the union. Operands without ranges (constants, memory) do not count. The result is computed where it is
 * read, so it is not in the C buffer. */
static bool trace_value(struct matmul_ranges *p, const struct ir_op *op)
{
	struct trace *t = &p->traces[eval_result(op).id];
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct trace *x = &p->traces[op->operands[i].id];
		if (!op->operands[i].id || !x->mask)
			continue;
		if (t->mask && (x->head != t->head || memcmp(x->from, t->from, sizeof(t->from)) != 0))
			return false;
		unsigned mask = t->mask | x->mask;
		int range = t->mask && t->range < x->range ? t->range : x->range;
		*t = *x;
		t->mask = mask;
		t->range = range;
		t->in_c_buf = t->is_normalized = false;
	}
	return true;
}

/* A norm of heads: overwrites its range in the C buffer, bias included, before outputs are stored. False: not of one
 * range split into heads, or its other operands (gamma, beta) depend on ranges. */
static bool trace_norm(struct matmul_ranges *p, const struct ir_op *op)
{
	struct trace t = p->traces[op->operands[0].id];
	if (t.head == 0 || (t.mask & (t.mask - 1)) != 0 || p->n_norms == RANGES_MAX)
		return false;
	for (size_t i = 1; i < op->n_operands; i++)
		if (p->traces[op->operands[i].id].mask)
			return false;
	t.in_c_buf = t.is_normalized = true;
	p->traces[eval_result(op).id] = t;
	p->norms[p->n_norms++] = op;
	return true;
}

/* A reshape or transpose; without ranges in its operand nothing is traced. False: ranges cannot be followed. */
static bool trace_view(struct matmul_ranges *p, const struct ir_op *op)
{
	struct trace t = p->traces[op->operands[0].id];
	if (!t.mask)
		return true;
	p->traces[eval_result(op).id] = t;
	struct trace *now = &p->traces[eval_result(op).id];
	return op->code == OP_reshape ? trace_reshape(p, op, now)
	                              : op->code == OP_transpose && trace_transpose(op, now);
}

/* Adds an output of value v. False: it depends on no range, or there are too many. */
static bool add_output(struct matmul_ranges *p, struct ir_value v)
{
	const struct trace *t = &p->traces[v.id];
	if (!t->mask || p->n_outputs == OUTPUTS_MAX)
		return false;
	p->outputs[p->n_outputs++] = (struct output){.value = v, .trace = t};
	return true;
}

/* Traces the result of an op. A write into a state is an output, of heads only: columns without heads are stored in
 * outputs alone. False: ranges cannot be computed through the op. */
static bool trace_op(struct matmul_ranges *p, const struct ir_op *op)
{
	if (op->code == OP_slice)
		return trace_slice(p, op);
	if (op->code == OP_state_append || op->code == OP_state_write) {
		if (!add_output(p, op->operands[1]) || p->outputs[p->n_outputs - 1].trace->head == 0)
			return false;
		return kernel_make_write(p->g, op, &p->outputs[p->n_outputs - 1].write);
	}
	if (ir_op_has(op->code, TRAIT_VIEW))
		return trace_view(p, op);
	if (ir_is_norm(op->code))
		return trace_norm(p, op);
	return ir_op_has(op->code, TRAIT_CONST) || ir_op_has(op->code, TRAIT_TERMINATOR) ||
	       ((ir_op_has(op->code, TRAIT_ELEMENTWISE) || op->code == OP_rope) && trace_value(p, op));
}

/* True if a slice of the root is in the group. */
static bool has_slices(const struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->code == OP_slice &&
		    ir_same_value(r->ops[i]->operands[0], eval_result(g->root)))
			return true;
	return false;
}

/* Traces all ops after the root and lists the outputs. Without slices all columns are one range. False: the epilogue
 * cannot compute them. */
static bool trace_ops(struct matmul_ranges *p, const struct linear *l)
{
	const struct ir_region *r = p->g->job->group->region;
	if (!has_slices(p->g) && !add_range(p, eval_result(l->g->root), 0, l->gemm.columns.n))
		return false;
	for (size_t i = (size_t)p->g->attrs->root + 1; i < r->n_ops; i++)
		if (!trace_op(p, r->ops[i]))
			return false;
	for (size_t i = 0; i < p->g->out.n; i++) {
		if (!add_output(p, p->g->out.items[i].value))
			return false;
		p->outputs[p->n_outputs - 1].out = &p->g->out.items[i];
	}
	return true;
}

/* ---- N blocks ---- */

/* Least common multiple of a, b > 0, by Euclid's algorithm. */
static int64_t lcm(int64_t a, int64_t b)
{
	int64_t x = a, y = b;
	while (y != 0) {
		int64_t r = x % y;
		x = y;
		y = r;
	}
	return a / x * b;
}

/* Detects gate and up: the only output, not split into heads, is of two ranges that halve the columns (full panels).
 * Then N is that of one projection, and panels of both are multiplied for each N block. True, too, if every output has
 * a single range; false: an output reads columns of ranges that are in different N blocks. */
static bool find_gate_up(struct linear *l, const struct matmul_ranges *p)
{
	bool any = false;
	for (int i = 0; i < p->n_outputs; i++)
		any = any ||
		      (p->outputs[i].trace->mask & (p->outputs[i].trace->mask - 1)) != 0; /* two bits */
	if (!any)
		return true;
	const struct column_range *a = &p->items[0], *b = &p->items[1];
	if (p->n != 2 || p->n_outputs != 1 || a->size != b->size || a->begin + b->begin != a->size ||
	    (a->begin != 0 && b->begin != 0) || a->size % MATMUL_PANEL != 0 ||
	    2 * a->size != l->gemm.columns.n || p->outputs[0].trace->head > 0)
		return false;
	l->gemm.columns.mats = 2;
	l->gemm.columns.n = a->size;
	l->gemm.columns.panels = a->size / MATMUL_PANEL;
	return true;
}

#define UNIT_MAX (256 / MATMUL_PANEL)

/* N blocks of whole heads of all ranges: unit is the least common multiple of panels and heads; all columns if a range
 * begins inside a panel or a head. False: blocks would be too wide (UNIT_MAX: 256 columns). */
static bool choose_n_block(struct linear *l, const struct matmul_ranges *p)
{
	int64_t unit = 1;
	for (int i = 0; i < p->n_outputs && unit < l->gemm.columns.panels; i++) {
		const struct trace *t = p->outputs[i].trace;
		int64_t columns = lcm(MATMUL_PANEL, t->head > 0 ? t->head : 1);
		unit = lcm(unit, columns / MATMUL_PANEL);
		if (p->items[t->range].begin % columns != 0 || unit > UNIT_MAX)
			unit = l->gemm.columns.panels;
	}
	if (unit > UNIT_MAX)
		return false;
	l->gemm.columns.unit = unit;
	l->gemm.columns.nc = (int)(ceil_div(MATMUL_NC, unit) * unit);
	return true;
}

/* True: the outputs are found and l is set up for them; the C buffer is then required. False: the group has no such
 * form, or no memory: another epilogue or generator applies. */
bool matmul_find_ranges(struct linear *l)
{
	struct kernel *g = l->g;
	struct matmul_ranges *p = ARENA_NEW(g->job->arena, struct matmul_ranges);
	if (!p || l->rank < 2)
		return false;
	p->g = g;
	p->traces = ARENA_ARRAY(g->job->arena, struct trace, g->job->func->n_values);
	if (!p->traces || !trace_ops(p, l) || p->n_outputs == 0 || !find_gate_up(l, p) ||
	    !choose_n_block(l, p))
		return false;
	l->ranges = p;
	l->norm.after = NULL;
	return true;
}

/* ---- binding values to the C buffer ---- */

/* Strides of the root's axes before the last in the C buffer, as if it had all rows of the result, `width` elements
 * from row to row; c_buf_origin subtracts the rows before. */
static void leading_strides(const struct linear *l, struct kb_size *stride)
{
	struct kb *k = l->k;
	struct kb_val row_step = kb_index(k, l->nest.c.width);
	for (int i = l->rank - 2; i >= 0; i--) {
		stride[i] = (struct kb_size){i == l->rank - 2, l->nest.c.width, row_step};
		row_step = kb_mul(k, row_step, l->size[i]);
	}
}

static struct kb_size constant(const struct linear *l, int64_t c)
{
	return (struct kb_size){true, c, kb_index(l->k, c)};
}

/* Binds v, a range or a view of one, to the C buffer: the strides of [.., size / head, head] in the order of v's axes
 * (from[]). skip: its element 0. bias.step: how far an index moves along the columns, so that the bias of a column is
 * found from v's indices; none after a norm, which has included it. */
static void bind_view(const struct linear *l, struct ir_value v, const struct trace *t, struct kb_val skip)
{
	struct eval_tensor at = {.t = {.ptr = l->buf.c, .dtype = DT_F32}, .skip = skip};
	struct eval_bias bias = {.v = t->is_normalized ? IR_NO_VALUE : l->bias,
	                         .begin = l->ranges->items[t->range].begin};
	struct kb_size stride[IR_RANK_MAX];
	int64_t column_step[IR_RANK_MAX] = {0};
	int rank = l->rank + (t->head > 0);
	leading_strides(l, stride);
	if (t->head > 0) {
		stride[l->rank - 1] = constant(l, t->head);
		column_step[l->rank - 1] = t->head;
	}
	stride[rank - 1] = constant(l, 1);
	column_step[rank - 1] = 1;
	at.t.rank = rank;
	at.is_flat = t->head == 0;
	for (int i = 0; i < rank; i++) {
		int from = t->head > 0 ? t->from[i] : i;
		at.t.stride[i] = stride[from];
		bias.step[i] = column_step[from];
	}
	struct kb_val size[IR_RANK_MAX];
	eval_sizes(l->eval, v, size);
	for (int i = 0; i < rank; i++)
		at.t.size[i] = (struct kb_size){.v = size[i]};
	eval_set_tensor(l->eval, v, &at, &bias);
}

/* Element of the C buffer where column 0 of the range in row 0 would be, if the buffer had all rows and columns: row
 * `row` and column s->begin * 16 are at its beginning. up begins at half of the width. */
static struct kb_val c_buf_origin(const struct linear *l, const struct matmul_block *s, struct kb_val row,
                                  const struct column_range *range)
{
	struct kb *k = l->k;
	struct kb_val before = kb_mul_const(k, row, l->nest.c.width);
	before = kb_add(k, before, kb_mul_const(k, s->begin, MATMUL_PANEL));
	int64_t begin = range->begin;
	if (l->gemm.columns.mats > 1)
		begin = range->begin > 0 ? l->nest.c.width / l->gemm.columns.mats : 0;
	return kb_sub(k, kb_index(k, begin), before);
}

/* Binds all ranges, views and norms to the C buffer, so that the evaluator loads them; row 0 of the C buffer is row
 * `row` of the result. */
static void bind_views(const struct linear *l, const struct matmul_block *s, struct kb_val row)
{
	const struct ir_region *r = l->job->group->region;
	struct matmul_ranges *p = l->ranges;
	struct kb_val skip[RANGES_MAX];
	for (int i = 0; i < p->n; i++) {
		struct ir_value v = p->items[i].value;
		skip[i] = c_buf_origin(l, s, row, &p->items[i]);
		bind_view(l, v, &p->traces[v.id], skip[i]);
	}
	for (size_t i = (size_t)l->g->attrs->root + 1; i + 1 < r->n_ops; i++) {
		struct ir_value v = eval_result(r->ops[i]);
		const struct trace *t = &p->traces[v.id];
		if (t->in_c_buf && r->ops[i]->code != OP_slice)
			bind_view(l, v, t, skip[t->range]);
	}
}

/* ---- storing ---- */

/* Columns of a range, counted from its begin, that the N block has; empty (lo >= hi) if it has none. Each of gate and
 * up counts from 0. */
static struct matmul_range clip_to_block(const struct linear *l, const struct matmul_block *s,
                                         const struct column_range *range)
{
	struct kb *k = l->k;
	int64_t begin = l->gemm.columns.mats > 1 ? 0 : range->begin;
	struct kb_val width = kb_index(k, MATMUL_PANEL), zero = kb_index(k, 0);
	struct kb_val lo = kb_add_const(k, kb_mul(k, s->begin, width), -begin);
	struct kb_val hi = kb_add_const(k, kb_mul(k, s->end, width), -begin);
	lo = kb_max(k, lo, zero);
	return (struct matmul_range){lo, kb_min(k, hi, kb_index(k, range->size))};
}

/* Heads [first, end) of columns r; blocks have whole heads. */
static struct matmul_range heads_of_range(const struct linear *l, const struct trace *t,
                                          struct matmul_range r)
{
	struct kb_val width = kb_index(l->k, t->head);
	struct kb_val first = kb_bin(l->k, KB_DIV, r.lo, width);
	return (struct matmul_range){first, kb_bin(l->k, KB_DIV, r.hi, width)};
}

/* Evaluator point of element 0 of a head of the row, on the value's axes, which views may have permuted. */
static struct eval_point head_point(const struct linear *l, const struct trace *t,
                                    const struct eval_point *row, struct kb_val head)
{
	struct kb_val before[IR_RANK_MAX]; /* on the axes of [.., size / head, head] */
	for (int i = 0; i + 1 < l->rank; i++)
		before[i] = row->index[i];
	before[l->rank - 1] = head;
	before[l->rank] = kb_index(l->k, 0);
	struct eval_point at = {.rank = l->rank + 1, .vec = l->rank};
	for (int i = 0; i < at.rank; i++)
		at.index[i] = before[t->from[i]];
	return at;
}

/* Normalizes the heads of one row of the N block, in place in the C buffer; work-items take whole heads, since each
 * head has statistics of its own. */
static void norm_heads_of_row(const struct linear *l, const struct matmul_block *s, const struct ir_op *norm,
                              const struct eval_point *row, struct kb_val c_row, struct kb_val piece_id)
{
	struct kb *k = l->k;
	const struct trace *t = &l->ranges->traces[eval_result(norm).id];
	const struct column_range *range = &l->ranges->items[t->range];
	const struct matmul_range r = heads_of_range(l, t, clip_to_block(l, s, range));
	struct kb_val begin = piece_id.id ? kb_add(k, r.lo, piece_id) : r.lo;
	struct kb_val head = kb_loop(k, "head", begin, r.hi, piece_id.id ? MATMUL_PIECES : 1, 0);
	const struct eval_point at = head_point(l, t, row, head);
	struct kb_val to = kb_add_const(k, kb_mul_const(k, head, t->head), range->begin);
	to = kb_sub(k, to, kb_mul_const(k, s->begin, MATMUL_PANEL));
	to = kb_add(k, to, kb_mul_const(k, c_row, l->nest.c.width));
	rowwise_norm_row(l->eval, norm, &at, kb_ptr_add(k, l->buf.c, kb_mul_const(k, to, 4), 0));
	kb_end_loop(k);
}

/* The piece of a row of `width` columns that work-item `piece_id` has: equal pieces of full vectors, so there may be
 * fewer pieces than items (`any`: bool, the item has one); piece_id none: the row. */
static struct matmul_piece matmul_piece(const struct linear *l, struct kb_val piece_id, int64_t width)
{
	struct kb *k = l->k;
	int64_t n = MATMUL_PIECES;
	struct matmul_piece p = {kb_index(k, 0), kb_index(k, width), kb_bool(k, true)};
	while (width % (n * l->nest.lanes) != 0 && n > 1)
		n /= 2;
	if (!piece_id.id)
		return p;
	p.any = kb_cmp(k, KB_LT, piece_id, kb_index(k, n));
	p.lo = kb_mul_const(k, piece_id, width / n);
	p.hi = kb_add_const(k, p.lo, width / n);
	return p;
}

/* Stores the heads of one row of the N block, in an output or a state; each work-item its piece of every head. */
static void store_heads(const struct linear *l, struct output *s, struct matmul_range r,
                        const struct eval_point *row, struct kb_val piece_id)
{
	struct kb *k = l->k;
	const struct matmul_piece piece = matmul_piece(l, piece_id, s->trace->head);
	r = heads_of_range(l, s->trace, r);
	if (piece_id.id)
		r.hi = kb_select(k, piece.any, r.hi, r.lo);
	struct eval_point at = head_point(l, s->trace, row, kb_loop(k, "head", r.lo, r.hi, 1, 0));
	if (s->out)
		kernel_output_row(l->ranges->g, s->out, &at, piece.lo, piece.hi);
	else
		kernel_write_row(l->ranges->g, &s->write, &at, piece.lo, piece.hi);
	kb_end_loop(k);
}

/* The part of r, counted from column `begin` of the result, that the piece of the N block's columns has; an empty range
 * if the item has none. */
static struct matmul_range matmul_clip_to_piece(const struct linear *l, const struct matmul_block *s,
                                                struct matmul_range r, int64_t begin, struct kb_val piece_id)
{
	struct kb *k = l->k;
	if (!piece_id.id)
		return r;
	const struct matmul_piece piece = matmul_piece(l, piece_id, l->nest.c.width / l->gemm.columns.mats);
	int64_t aligned = begin / l->nest.lanes *
	                  l->nest.lanes; /* vectors of a piece begin at multiples of the lanes */
	struct kb_val first = kb_add_const(k, kb_mul_const(k, s->begin, MATMUL_PANEL), -aligned);
	r.lo = kb_max(k, r.lo, kb_add(k, first, piece.lo));
	r.hi = kb_min(k, r.hi, kb_add(k, first, piece.hi));
	r.hi = kb_select(k, piece.any, r.hi, r.lo);
	return r;
}

/* Evaluates RoPE positions [B, S] once for each row: they stay in the evaluator's cache, where each head finds them.
 * Only for results [B, S, N], whose row has one position. */
static void hoist_rope_positions(const struct linear *l, const struct eval_point *row)
{
	const struct ir_region *r = l->job->group->region;
	const struct ir_type *y = type_of(l->ranges, eval_result(l->g->root));
	struct eval_point at = {.rank = 2, .vec = -1, .index = {row->index[0], row->index[1]}};
	for (size_t i = 0; i < r->n_ops; i++) {
		if (r->ops[i]->code != OP_rope || l->rank != 3)
			continue;
		const struct ir_type *t = type_of(l->ranges, r->ops[i]->operands[2]);
		if (t->dims[0] == y->dims[0] && t->dims[1] == y->dims[1])
			(void)eval_value(l->eval, r->ops[i]->operands[2], &at);
	}
}

/* Normalizes the heads of row `row` of the C buffer, for all norms in order. */
static void apply_norms(const struct linear *l, const struct matmul_block *s, struct kb_val first,
                        struct kb_val row, struct kb_val piece_id)
{
	struct kb *k = l->k;
	const struct eval_point at = matmul_point(l, kb_add(k, first, row), kb_index(k, 0));
	for (int i = 0; i < l->ranges->n_norms; i++)
		norm_heads_of_row(l, s, l->ranges->norms[i], &at, row, piece_id);
}

/* Opens a loop over the first `rows` rows of the C buffer, and over pieces where work-items share rows: items take
 * pairs (row, piece) in turn. Returns the row. The caller closes the loop. */
static struct kb_val matmul_loop_rows(const struct linear *l, struct kb_val rows, struct kb_val *piece_id)
{
	struct kb *k = l->k;
	*piece_id = (struct kb_val){0};
	if (l->job->items <= 1)
		return kb_loop(k, "row", kb_index(k, 0), rows, 1, KB_NONEMPTY);
	struct kb_val n = kb_index(k, MATMUL_PIECES), all = kb_mul(k, rows, n);
	struct kb_val i = kb_loop(k, "i", kb_item_id(k), all, (int)l->job->items, 0);
	*piece_id = kb_bin(k, KB_REM, i, n);
	return kb_bin(k, KB_DIV, i, n);
}

/* matmul_epilogue, range by range: norms of heads first, in the buffer, then each output or state. Values are bound to
 * the buffer once, or for each row where rows are listed. */
static void matmul_ranges_epilogue(const struct linear *l, const struct matmul_block *s, struct kb_val first,
                                   struct kb_val rows)
{
	struct kb *k = l->k;
	struct matmul_ranges *p = l->ranges;
	struct matmul_range in_block[OUTPUTS_MAX];
	struct kb_val piece_id;
	size_t mark = eval_mark(l->eval);
	if (!l->row_list.id)
		bind_views(l, s, first);
	for (int i = 0; i < p->n_outputs; i++)
		in_block[i] = clip_to_block(l, s, &p->items[p->outputs[i].trace->range]);
	if (p->n_norms > 0 && l->job->items > 1) { /* an item reads heads that others normalize */
		struct kb_val normed = matmul_loop_rows(l, rows, &piece_id);
		apply_norms(l, s, first, normed, piece_id);
		kb_end_loop(k);
		kb_barrier(k);
	}
	struct kb_val row = matmul_loop_rows(l, rows, &piece_id);
	if (l->row_list.id) /* neighbours in the buffer need not be neighbours in the result */
		bind_views(l, s, kb_sub(k, matmul_listed_row(l, kb_add(k, first, row)), row));
	if (l->job->items <= 1)
		apply_norms(l, s, first, row, piece_id);
	struct eval_point at = matmul_point(l, kb_add(k, first, row), kb_index(k, 0));
	hoist_rope_positions(l, &at);
	for (int i = 0; i < p->n_outputs; i++) {
		struct output *o = &p->outputs[i];
		const struct column_range *range = &p->items[o->trace->range];
		int64_t begin = l->gemm.columns.mats > 1 ? 0 : range->begin;
		if (o->trace->head > 0)
			store_heads(l, o, in_block[i], &at, piece_id);
		else
			matmul_store_row(l, o->out, range->size,
			                 matmul_clip_to_piece(l, s, in_block[i], begin, piece_id), &at);
	}
	kb_end_loop(k);
	eval_release(l->eval, mark);
}

/* ---- the epilogue ---- */

/* Row by row: binds a row of the C buffer and stores what the group computes from it: by ranges, by blocks, or all
 * columns (kernel_output_row if N is that of the call, which has no constant remainder). */
void matmul_epilogue(const struct linear *l, const struct matmul_block *s, struct kb_val first,
                     struct kb_val rows)
{
	struct kb *k = l->k;
	if (l->ranges) {
		matmul_ranges_epilogue(l, s, first, rows);
		return;
	}
	struct kb_val width = kb_index(k, MATMUL_PANEL);
	struct matmul_range r = {.lo = kb_mul(k, s->begin, width)};
	r.hi = kb_min(k, kb_mul(k, s->end, width),
	              l->value.n.id ? l->value.n : kb_index(k, l->gemm.columns.n));
	struct kb_val piece_id, row = matmul_loop_rows(l, rows, &piece_id);
	size_t mark = eval_mark(l->eval);
	r = matmul_clip_to_piece(l, s, r, 0, piece_id);
	bind_c_row(l, s, row);
	struct eval_point at = matmul_point(l, kb_add(k, first, row), r.lo);
	struct eval_output out = l->out;
	if (l->block_op)
		store_block(l, r, &at);
	else if (l->value.n.id)
		kernel_output_row(l->g, &out, &at, r.lo, r.hi);
	else
		matmul_store_row(l, &l->out, l->gemm.columns.n, r, &at);
	eval_release(l->eval, mark);
	kb_end_loop(k);
}
