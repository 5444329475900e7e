/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogue of a linear whose columns go different ways: ranges of columns
 * (slices of the root's result) end in buffers or states of their own, by heads
 * and after rope where the group says so; the two halves of the columns may meet
 * element by element (gate and up). Finished products wait in the stage, where
 * the values of the parts are placed, so that the evaluator finds whatever
 * element it asks for. Strips are whole heads of all parts.
 */
#include "backends/linear/matmul_internal.h"
#include "backends/rows/rowwise.h"
#include "ir/core/view.h"

#include <string.h>

#define PARTS_MAX 8
#define SINKS_MAX (2 * PARTS_MAX)

struct part {
	struct ir_value value;
	int64_t begin, size; /* columns of the root's result */
};

/* What an op of the group makes of a part. */
struct trace {
	unsigned parts; /* those it is made of, by bits */
	int part;       /* the lowest of them */
	bool is_placed; /* the part itself, a view of it, or a norm of its heads: lies in the stage */
	bool is_normed; /* the norm, or a view of it: has been put there, without bias */
	int64_t head;   /* > 0: the last axis became [.., size / head, head] */
	/* Axis i of the value is axis from[i] of [.., size / head, head]; the last one stays. */
	unsigned char from[IR_RANK_MAX];
};

/* A result of the group or a write into a state. */
struct sink {
	struct eval_output *out; /* NULL: a write */
	struct kernel_write write;
	struct ir_value value;
	const struct trace *trace;
};

struct matmul_parts {
	struct kernel *g;
	struct trace *traces; /* [n_values] */
	struct part items[PARTS_MAX];
	int n;
	struct sink sinks[SINKS_MAX];
	int n_sinks;
	const struct ir_op *norms[PARTS_MAX]; /* of heads */
	int n_norms;
};

static const struct ir_type *type_of(const struct matmul_parts *p, struct ir_value v)
{
	return ir_type_of(p->g->job->func, v);
}

/* ---- what the group says ---- */

static bool add_part(struct matmul_parts *p, struct ir_value v, int64_t begin, int64_t size)
{
	if (p->n == PARTS_MAX)
		return false;
	p->traces[v.id] = (struct trace){.parts = 1u << p->n, .part = p->n, .is_placed = true};
	p->items[p->n++] = (struct part){v, begin, size};
	return true;
}

static bool trace_slice(struct matmul_parts *p, const struct ir_op *op)
{
	const struct attrs_slice *a = op->attrs;
	int64_t begin, size;
	return ir_same_value(op->operands[0], eval_result(p->g->root)) &&
	       a->axis == type_of(p, op->operands[0])->rank - 1 && ir_dim_is_const(a->begin, &begin) &&
	       ir_dim_is_const(a->size, &size) && add_part(p, eval_result(op), begin, size);
}

static bool trace_reshape(struct matmul_parts *p, const struct ir_op *op, struct trace *t)
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

/* Elementwise ops and rope: as their operands. */
static bool trace_value(struct matmul_parts *p, const struct ir_op *op)
{
	struct trace *t = &p->traces[eval_result(op).id];
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct trace *x = &p->traces[op->operands[i].id];
		if (!op->operands[i].id || !x->parts)
			continue;
		if (t->parts && (x->head != t->head || memcmp(x->from, t->from, sizeof(t->from)) != 0))
			return false;
		unsigned parts = t->parts | x->parts;
		int part = t->parts && t->part < x->part ? t->part : x->part;
		*t = *x;
		t->parts = parts;
		t->part = part;
		t->is_placed = t->is_normed = false;
	}
	return true;
}

/* Takes the place of the part. */
static bool trace_norm(struct matmul_parts *p, const struct ir_op *op)
{
	struct trace t = p->traces[op->operands[0].id];
	if (t.head == 0 || (t.parts & (t.parts - 1)) != 0 || p->n_norms == PARTS_MAX)
		return false;
	for (size_t i = 1; i < op->n_operands; i++)
		if (p->traces[op->operands[i].id].parts)
			return false;
	t.is_placed = t.is_normed = true;
	p->traces[eval_result(op).id] = t;
	p->norms[p->n_norms++] = op;
	return true;
}

static bool trace_view(struct matmul_parts *p, const struct ir_op *op)
{
	struct trace t = p->traces[op->operands[0].id];
	if (!t.parts)
		return true;
	p->traces[eval_result(op).id] = t;
	struct trace *now = &p->traces[eval_result(op).id];
	return op->code == OP_reshape ? trace_reshape(p, op, now)
	                              : op->code == OP_transpose && trace_transpose(op, now);
}

static bool add_sink(struct matmul_parts *p, struct ir_value v)
{
	const struct trace *t = &p->traces[v.id];
	if (!t->parts || p->n_sinks == SINKS_MAX)
		return false;
	p->sinks[p->n_sinks++] = (struct sink){.value = v, .trace = t};
	return true;
}

static bool trace_op(struct matmul_parts *p, const struct ir_op *op)
{
	if (op->code == OP_slice)
		return trace_slice(p, op);
	if (op->code == OP_state_append || op->code == OP_state_write) {
		if (!add_sink(p, op->operands[1]) || p->sinks[p->n_sinks - 1].trace->head == 0)
			return false;
		return kernel_make_write(p->g, op, &p->sinks[p->n_sinks - 1].write);
	}
	if (ir_op_has(op->code, TRAIT_VIEW))
		return trace_view(p, op);
	if (ir_is_norm(op->code))
		return trace_norm(p, op);
	return ir_op_has(op->code, TRAIT_CONST) || ir_op_has(op->code, TRAIT_TERMINATOR) ||
	       ((ir_op_has(op->code, TRAIT_ELEMENTWISE) || op->code == OP_rope) && trace_value(p, op));
}

static bool has_slices(const struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->code == OP_slice &&
		    ir_same_value(r->ops[i]->operands[0], eval_result(g->root)))
			return true;
	return false;
}

static bool trace_ops(struct matmul_parts *p, const struct linear *l)
{
	const struct ir_region *r = p->g->job->group->region;
	if (!has_slices(p->g) && !add_part(p, eval_result(l->g->root), 0, l->columns.n))
		return false;
	for (size_t i = (size_t)p->g->attrs->root + 1; i < r->n_ops; i++)
		if (!trace_op(p, r->ops[i]))
			return false;
	for (size_t i = 0; i < p->g->out.n; i++) {
		if (!add_sink(p, p->g->out.items[i].value))
			return false;
		p->sinks[p->n_sinks - 1].out = &p->g->out.items[i];
	}
	return true;
}

/* ---- strips ---- */

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

/* One result of two parts, the halves of the columns; every other one is of a single part. */
static bool find_halves(struct linear *l, const struct matmul_parts *p)
{
	bool any = false;
	for (int i = 0; i < p->n_sinks; i++)
		any = any || (p->sinks[i].trace->parts & (p->sinks[i].trace->parts - 1)) != 0;
	if (!any)
		return true;
	const struct part *a = &p->items[0], *b = &p->items[1];
	if (p->n != 2 || p->n_sinks != 1 || a->size != b->size || a->begin + b->begin != a->size ||
	    (a->begin != 0 && b->begin != 0) || a->size % MATMUL_PANEL != 0 || 2 * a->size != l->columns.n ||
	    p->sinks[0].trace->head > 0)
		return false;
	l->columns.halves = 2;
	l->columns.n = a->size;
	l->columns.panels = a->size / MATMUL_PANEL;
	return true;
}

#define UNIT_MAX (256 / MATMUL_PANEL)

/* Whole heads of all parts; all columns where a part begins inside a panel or a head, or strips would be too wide. */
static bool find_strips(struct linear *l, const struct matmul_parts *p)
{
	int64_t unit = 1;
	for (int i = 0; i < p->n_sinks && unit < l->columns.panels; i++) {
		const struct trace *t = p->sinks[i].trace;
		int64_t columns = lcm(MATMUL_PANEL, t->head > 0 ? t->head : 1);
		unit = lcm(unit, columns / MATMUL_PANEL);
		if (p->items[t->part].begin % columns != 0 || unit > UNIT_MAX)
			unit = l->columns.panels;
	}
	if (unit > UNIT_MAX)
		return false;
	l->columns.unit = unit;
	l->columns.strip = (int)((MATMUL_STRIP + unit - 1) / unit * unit);
	return true;
}

bool matmul_find_parts(struct linear *l)
{
	struct kernel *g = l->g;
	struct matmul_parts *p = ARENA_NEW(g->job->arena, struct matmul_parts);
	if (!p || l->rank < 2)
		return false;
	p->g = g;
	p->traces = ARENA_ARRAY(g->job->arena, struct trace, g->job->func->n_values);
	if (!p->traces || !trace_ops(p, l) || p->n_sinks == 0 || !find_halves(l, p) || !find_strips(l, p))
		return false;
	l->parts = p;
	l->norm.after = NULL;
	return true;
}

/* ---- places in the stage ---- */

/* Axes before the last: rows of the stage. */
static void lead_strides(const struct linear *l, struct kb_size *stride)
{
	struct kb *k = l->k;
	struct kb_val step = kb_index(k, l->stage.width);
	for (int i = l->rank - 2; i >= 0; i--) {
		stride[i] = (struct kb_size){i == l->rank - 2, l->stage.width, step};
		step = kb_mul(k, step, l->size[i]);
	}
}

static struct kb_size constant(const struct linear *l, int64_t c)
{
	return (struct kb_size){true, c, kb_index(l->k, c)};
}

/* v, which is the part or a view of it, as it lies in the stage from element `skip` on. */
static void place(const struct linear *l, struct ir_value v, const struct trace *t, struct kb_val skip)
{
	struct eval_tensor at = {.t = {.ptr = l->stage.at, .dtype = DT_F32}, .skip = skip};
	struct eval_bias bias = {.v = t->is_normed ? IR_NO_VALUE : l->bias,
	                         .begin = l->parts->items[t->part].begin};
	struct kb_size stride[IR_RANK_MAX];
	int64_t step[IR_RANK_MAX] = {0};
	int rank = l->rank + (t->head > 0);
	lead_strides(l, stride);
	if (t->head > 0) {
		stride[l->rank - 1] = constant(l, t->head);
		step[l->rank - 1] = t->head;
	}
	stride[rank - 1] = constant(l, 1);
	step[rank - 1] = 1;
	at.t.rank = rank;
	at.is_flat = t->head == 0;
	for (int i = 0; i < rank; i++) {
		int from = t->head > 0 ? t->from[i] : i;
		at.t.stride[i] = stride[from];
		bias.step[i] = step[from];
	}
	struct kb_val size[IR_RANK_MAX];
	eval_sizes(l->eval, v, size);
	for (int i = 0; i < rank; i++)
		at.t.size[i] = (struct kb_size){.v = size[i]};
	eval_set_tensor(l->eval, v, &at, &bias);
}

/* Element of the stage at which column 0 of the part in row 0 would lie. */
static struct kb_val first_element(const struct linear *l, const struct matmul_strip *s, struct kb_val row,
                                   const struct part *part)
{
	struct kb *k = l->k;
	struct kb_val before = kb_mul_const(k, row, l->stage.width);
	before = kb_add(k, before, kb_mul_const(k, s->begin, MATMUL_PANEL));
	int64_t begin = part->begin;
	if (l->columns.halves > 1)
		begin = part->begin > 0 ? l->stage.width / l->columns.halves : 0;
	return kb_sub(k, kb_index(k, begin), before);
}

/* Row 0 of the stage is row `row` of the result. */
static void place_all(const struct linear *l, const struct matmul_strip *s, struct kb_val row)
{
	const struct ir_region *r = l->job->group->region;
	struct matmul_parts *p = l->parts;
	struct kb_val skip[PARTS_MAX];
	for (int i = 0; i < p->n; i++) {
		struct ir_value v = p->items[i].value;
		skip[i] = first_element(l, s, row, &p->items[i]);
		place(l, v, &p->traces[v.id], skip[i]);
	}
	for (size_t i = (size_t)l->g->attrs->root + 1; i + 1 < r->n_ops; i++) {
		struct ir_value v = eval_result(r->ops[i]);
		const struct trace *t = &p->traces[v.id];
		if (t->is_placed && r->ops[i]->code != OP_slice)
			place(l, v, t, skip[t->part]);
	}
}

/* ---- storing ---- */

/* Columns of a part in the strip. */
static struct matmul_range range_in_strip(const struct linear *l, const struct matmul_strip *s,
                                          const struct part *part)
{
	struct kb *k = l->k;
	int64_t begin = l->columns.halves > 1 ? 0 : part->begin;
	struct kb_val width = kb_index(k, MATMUL_PANEL), zero = kb_index(k, 0);
	struct kb_val lo = kb_add_const(k, kb_mul(k, s->begin, width), -begin);
	struct kb_val hi = kb_add_const(k, kb_mul(k, s->end, width), -begin);
	lo = kb_max(k, lo, zero);
	return (struct matmul_range){lo, kb_min(k, hi, kb_index(k, part->size))};
}

static struct matmul_range heads_in(const struct linear *l, const struct trace *t, struct matmul_range r)
{
	struct kb_val width = kb_index(l->k, t->head);
	struct kb_val first = kb_bin(l->k, KB_DIV, r.lo, width);
	return (struct matmul_range){first, kb_bin(l->k, KB_DIV, r.hi, width)};
}

/* Element 0 of a head of the row. */
static struct eval_point head_point(const struct linear *l, const struct trace *t,
                                    const struct eval_point *row, struct kb_val head)
{
	struct kb_val before[IR_RANK_MAX]; /* the turn */
	for (int i = 0; i + 1 < l->rank; i++)
		before[i] = row->index[i];
	before[l->rank - 1] = head;
	before[l->rank] = kb_index(l->k, 0);
	struct eval_point at = {.rank = l->rank + 1, .vec = l->rank};
	for (int i = 0; i < at.rank; i++)
		at.index[i] = before[t->from[i]];
	return at;
}

/* A norm of the heads of one row in the strip, in their places; items of a work-group take whole heads. */
static void norm_heads(const struct linear *l, const struct matmul_strip *s, const struct ir_op *norm,
                       const struct eval_point *row, struct kb_val stage_row, struct kb_val number)
{
	struct kb *k = l->k;
	const struct trace *t = &l->parts->traces[eval_result(norm).id];
	const struct part *part = &l->parts->items[t->part];
	const struct matmul_range r = heads_in(l, t, range_in_strip(l, s, part));
	struct kb_val begin = number.id ? kb_add(k, r.lo, number) : r.lo;
	struct kb_val head = kb_loop(k, "head", begin, r.hi, number.id ? MATMUL_PIECES : 1, 0);
	const struct eval_point at = head_point(l, t, row, head);
	struct kb_val to = kb_add_const(k, kb_mul_const(k, head, t->head), part->begin);
	to = kb_sub(k, to, kb_mul_const(k, s->begin, MATMUL_PANEL));
	to = kb_add(k, to, kb_mul_const(k, stage_row, l->stage.width));
	rowwise_norm_row(l->eval, norm, &at, kb_ptr_add(k, l->stage.at, kb_mul_const(k, to, 4), 0));
	kb_end_loop(k);
}

/* The heads of one row in the strip, which are whole. */
static void head_rows(const struct linear *l, struct sink *s, struct matmul_range r,
                      const struct eval_point *row, struct kb_val number)
{
	struct kb *k = l->k;
	const struct matmul_piece piece = matmul_piece(l, number, s->trace->head);
	r = heads_in(l, s->trace, r);
	if (number.id)
		r.hi = kb_select(k, piece.any, r.hi, r.lo);
	struct eval_point at = head_point(l, s->trace, row, kb_loop(k, "head", r.lo, r.hi, 1, 0));
	if (s->out)
		kernel_output_row(l->parts->g, s->out, &at, piece.lo, piece.hi);
	else
		kernel_write_row(l->parts->g, &s->write, &at, piece.lo, piece.hi);
	kb_end_loop(k);
}

/* The columns of one row in the strip. */
static void plain_row(const struct linear *l, const struct matmul_strip *strip, const struct sink *s,
                      struct matmul_range r, const struct eval_point *row, struct kb_val number)
{
	const struct part *part = &l->parts->items[s->trace->part];
	r = matmul_piece_of(l, strip, r, l->columns.halves > 1 ? 0 : part->begin, number);
	matmul_store_row(l, s->out, part->size, r, row);
}

/* Positions, once for a row. */
static void find_positions(const struct linear *l, const struct eval_point *row)
{
	const struct ir_region *r = l->job->group->region;
	const struct ir_type *y = type_of(l->parts, eval_result(l->g->root));
	struct eval_point at = {.rank = 2, .vec = -1, .index = {row->index[0], row->index[1]}};
	for (size_t i = 0; i < r->n_ops; i++) {
		if (r->ops[i]->code != OP_rope || l->rank != 3)
			continue;
		const struct ir_type *t = type_of(l->parts, r->ops[i]->operands[2]);
		if (t->dims[0] == y->dims[0] && t->dims[1] == y->dims[1])
			(void)eval_value(l->eval, r->ops[i]->operands[2], &at);
	}
}

static const struct part *part_of(const struct matmul_parts *p, int sink)
{
	return &p->items[p->sinks[sink].trace->part];
}

static void norm_rows(const struct linear *l, const struct matmul_strip *s, struct kb_val first,
                      struct kb_val row, struct kb_val number)
{
	struct kb *k = l->k;
	const struct eval_point at = matmul_point(l, kb_add(k, first, row), kb_index(k, 0));
	for (int i = 0; i < l->parts->n_norms; i++)
		norm_heads(l, s, l->parts->norms[i], &at, row, number);
}

void matmul_parts_epilogue(const struct linear *l, const struct matmul_strip *s, struct kb_val first,
                           struct kb_val rows)
{
	struct kb *k = l->k;
	struct matmul_parts *p = l->parts;
	struct matmul_range range[SINKS_MAX];
	struct kb_val number;
	size_t mark = eval_mark(l->eval);
	place_all(l, s, first);
	for (int i = 0; i < p->n_sinks; i++)
		range[i] = range_in_strip(l, s, part_of(p, i));
	if (p->n_norms > 0 && l->job->items > 1) { /* each item needs what others leave */
		struct kb_val normed = matmul_open_rows(l, rows, &number);
		norm_rows(l, s, first, normed, number);
		kb_end_loop(k);
		kb_barrier(k);
	}
	struct kb_val row = matmul_open_rows(l, rows, &number);
	if (l->job->items <= 1)
		norm_rows(l, s, first, row, number);
	struct eval_point at = matmul_point(l, kb_add(k, first, row), kb_index(k, 0));
	find_positions(l, &at);
	for (int i = 0; i < p->n_sinks; i++) {
		if (p->sinks[i].trace->head > 0)
			head_rows(l, &p->sinks[i], range[i], &at, number);
		else
			plain_row(l, s, &p->sinks[i], range[i], &at, number);
	}
	kb_end_loop(k);
	eval_release(l->eval, mark);
}
