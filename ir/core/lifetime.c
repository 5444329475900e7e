/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live ranges, see lifetime.h, in two traversals: the first numbers groups and records the time span of each region,
 * the second extends ranges at every use. Regions are numbered in order of their beginning, the same in both
 * traversals. A carry is the init, argument, yield and result of a repeat at one position, which share a buffer: their
 * values are one set of a union-find, whose representative is carry[v]. A view has no memory: its uses are uses of its
 * base. A range is inclusive, in group numbers; first > last is empty.
 */
#include "ir/core/lifetime.h"

#include "ir/core/view.h"

/* Times of a region. */
struct span {
	size_t parent, depth;
	size_t first, last; /* of its groups, inclusive */
	bool is_empty;      /* no groups */
};

struct liveness {
	struct arena *arena;
	const struct ir_func *f;
	struct ir_lifetimes *out;
	struct {
		struct span *items;
		size_t n, cap;
	} spans;
	struct {
		const struct ir_op **items;
		size_t n, cap;
	} groups;
	size_t *span_of; /* [n_values] region that defines the value */
	size_t time;     /* of the next group */
	size_t here;     /* the region being traversed */
};

/* ---- numbering ---- */

/* First traversal: numbers the groups of r and of the repeats inside, and records the span of r and which region
 * defines each value. The bodies of groups are not entered: their values are in no memory of the plan. s->spans may
 * move, hence indices. */
static void number_region(struct liveness *s, const struct ir_region *r)
{
	struct span *span = ARENA_PUSH(s->arena, &s->spans);
	size_t here = s->spans.n - 1, outer = s->here;
	if (span == NULL)
		return;
	*span = (struct span){.parent = outer, .depth = here == 0 ? 0 : s->spans.items[outer].depth + 1};
	size_t first = s->groups.n;
	s->here = here;
	for (size_t i = 0; i < r->n_args; i++)
		s->span_of[r->args[i].id] = here;
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		for (size_t k = 0; k < op->n_results; k++)
			s->span_of[op->results[k].id] = here;
		if (op->code == OP_repeat)
			number_region(s, op->region);
		const struct ir_op **slot = op->code == OP_group ? ARENA_PUSH(s->arena, &s->groups) : NULL;
		if (slot != NULL)
			*slot = op;
	}
	s->spans.items[here].first = first;
	s->spans.items[here].is_empty = s->groups.n == first;
	s->spans.items[here].last = s->groups.n > 0 ? s->groups.n - 1 : 0;
	s->here = outer;
}

/* ---- carries: union-find over value ids ---- */

/* The representative of the set of v; halves the path on the way, so that later calls are short. */
static uint32_t find_carry(struct ir_lifetimes *l, uint32_t v)
{
	while (l->carry[v] != v) {
		l->carry[v] = l->carry[l->carry[v]];
		v = l->carry[v];
	}
	return v;
}

static void unite(struct ir_lifetimes *l, struct ir_value a, struct ir_value b)
{
	l->carry[find_carry(l, a.id)] = find_carry(l, b.id);
}

/* The values of a carry of a repeat (init, argument, yield, result) share memory: unites them, as bases of views.
 * States are not planned. */
static void unite_carries(struct liveness *s, const struct ir_op *op)
{
	if (op->code != OP_repeat)
		return;
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++) {
		if (!ir_is_tensor(s->f, op->operands[i]))
			continue;
		unite(s->out, ir_view_base(s->f, op->operands[i]), op->results[i]);
		unite(s->out, op->region->args[i + 1], op->results[i]);
		unite(s->out, ir_view_base(s->f, yield->operands[i]), op->results[i]);
	}
}

/* ---- uses ---- */

static void extend(struct liveness *s, struct ir_value v, size_t first, size_t last)
{
	struct ir_lifetimes *l = s->out;
	l->first[v.id] = first < l->first[v.id] ? first : l->first[v.id];
	l->last[v.id] = last > l->last[v.id] ? last : l->last[v.id];
}

/* Extends v to a use at time t in the current region: over all enclosing repeats up to the region that defines v,
 * since each of their iterations may read it again. */
static void add_use(struct liveness *s, struct ir_value v, size_t t)
{
	size_t home, first = t, last = t;
	if (v.id == 0 || !ir_is_tensor(s->f, v))
		return;
	v = ir_view_base(s->f, v);
	home = s->span_of[v.id];
	for (size_t r = s->here; r != home && s->spans.items[r].depth > s->spans.items[home].depth;
	     r = s->spans.items[r].parent) {
		const struct span *span = &s->spans.items[r];
		first = span->first < first ? span->first : first;
		last = span->last > last ? span->last : last;
	}
	extend(s, v, first, last);
}

/* Group number s->time: its results are defined, and the operands of its ops used, at that time. Values inside of
 * the group get ranges, too, which no plan uses. */
static void visit_group(struct liveness *s, const struct ir_op *op)
{
	size_t t = s->time++;
	for (size_t i = 0; i < op->n_results; i++)
		if (ir_is_tensor(s->f, op->results[i]))
			extend(s, op->results[i], t, t);
	for (size_t k = 0; k < op->region->n_ops; k++)
		for (size_t i = 0; i < op->region->ops[k]->n_operands; i++)
			add_use(s, op->region->ops[k]->operands[i], t);
}

static void visit_region(struct liveness *s, const struct ir_region *r);

/* Ranges of inits, arguments, yields and results of a repeat, then of its body. A repeat whose body has no groups
 * takes no time: its carries pass through it. s->spans.n is the number of the body, which visit_region enters next;
 * yields are uses inside of the body. */
static void visit_repeat(struct liveness *s, const struct ir_op *op)
{
	size_t body = s->spans.n, outer = s->here;
	const struct span span = s->spans.items[body];
	size_t before = span.first > 0 ? span.first - 1 : 0, end = span.is_empty ? before : span.last;
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];

	/* The init is used before the first group of the body; the result is defined after the last. */
	for (size_t i = 0; i < op->n_operands; i++) {
		add_use(s, op->operands[i], before);
		if (!ir_is_tensor(s->f, op->operands[i]))
			continue;
		if (!span.is_empty && span.first > 0) { /* an empty range, until a use extends it */
			s->out->first[op->region->args[i + 1].id] = span.first;
			s->out->last[op->region->args[i + 1].id] = span.first - 1;
		}
		s->out->first[op->results[i].id] = span.is_empty ? span.first : span.last + 1;
		s->out->last[op->results[i].id] = end;
	}
	visit_region(s, op->region);
	s->here = body;
	for (size_t i = 0; i < yield->n_operands; i++)
		if (!span.is_empty || ir_value_info(s->f, yield->operands[i])->region != op->region)
			add_use(s, yield->operands[i], end);
	s->here = outer;
}

/* Second traversal: extends live ranges by all uses in r. Regions get the numbers of number_region again. */
static void visit_region(struct liveness *s, const struct ir_region *r)
{
	size_t outer = s->here;
	s->here = s->spans.n++;
	for (size_t i = 0; i < r->n_ops; i++) {
		if (r->ops[i]->code == OP_repeat)
			visit_repeat(s, r->ops[i]);
		else if (r->ops[i]->code == OP_group)
			visit_group(s, r->ops[i]);
	}
	s->here = outer;
}

/* Unites the carries, numbers groups and regions, extends ranges by all uses, and by the return to the last group. */
bool ir_lifetimes(struct arena *a, const struct ir_func *f, struct ir_lifetimes *out)
{
	struct liveness s = {.arena = a, .f = f, .out = out};

	*out = (struct ir_lifetimes){.first = ARENA_ARRAY(a, size_t, f->n_values),
	                             .last = ARENA_ARRAY(a, size_t, f->n_values),
	                             .carry = ARENA_ARRAY(a, uint32_t, f->n_values)};
	s.span_of = ARENA_ARRAY(a, size_t, f->n_values);
	if (arena_failed(a))
		return false;
	for (uint32_t v = 0; v < f->n_values; v++) {
		out->first[v] = SIZE_MAX;
		out->carry[v] = v;
	}
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		unite_carries(&s, it.op);
	number_region(&s, f->body);
	if (arena_failed(a))
		return false;
	s.here = s.spans.n = 0; /* the spans are kept: n numbers the regions again */
	visit_region(&s, f->body);
	/* returned values are live to the end */
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	s.here = 0;
	for (size_t i = 0; i < ret->n_operands; i++)
		add_use(&s, ret->operands[i], s.time > 0 ? s.time - 1 : 0);
	for (uint32_t v = 1; v < f->n_values; v++)
		out->carry[v] = find_carry(out, v);
	out->groups = s.groups.items;
	out->n_times = s.groups.n;
	return !arena_failed(a);
}
