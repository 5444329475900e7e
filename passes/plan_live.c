/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lifetimes over the program order of groups. Values that share memory are one
 * class: the carry of a repeat with its first value, its yield and its result.
 * A class has a home, the outermost region of its members; whatever touches it
 * from inside a repeat below its home keeps it alive for the whole repeat.
 */
#include "passes/plan.h"

#include "ir/view.h"

struct span {
	size_t parent; /* index of the enclosing region */
	size_t depth;
	size_t first, last; /* times of its groups; last < first: none */
};

struct class
{
	bool is_buffer;
	size_t home;
	size_t first, last;
	size_t buffer; /* + 1 once numbered */
};

struct liver {
	struct pass_context *p;
	const struct ir_module *m;
	const struct ir_func *f;
	struct {
		struct span *items;
		size_t n, cap;
	} spans;
	size_t *span_of;       /* [n_values] region that defines the value */
	uint32_t *parent;      /* [n_values] union-find */
	struct class *classes; /* [n_values] by representative */
	size_t time, here;     /* next group; region that is walked */
	struct plan_live *out;
};

/* --- classes ------------------------------------------------------------------------------------------- */

static uint32_t find(struct liver *s, uint32_t v)
{
	while (s->parent[v] != v) {
		s->parent[v] = s->parent[s->parent[v]];
		v = s->parent[v];
	}
	return v;
}

static void unite(struct liver *s, struct ir_value a, struct ir_value b)
{
	s->parent[find(s, a.id)] = find(s, b.id);
}

static bool is_tensor(const struct liver *s, struct ir_value v)
{
	return ir_type_of(s->f, v)->kind == IR_TENSOR;
}

static void unite_carries(void *user, const struct ir_op *op)
{
	struct liver *s = user;
	if (op->code != OP_repeat)
		return;
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++) {
		if (!is_tensor(s, op->operands[i]))
			continue;
		unite(s, op->operands[i], op->results[i]);
		unite(s, op->region->args[i + 1], op->results[i]);
		unite(s, yield->operands[i], op->results[i]);
	}
}

/* --- times --------------------------------------------------------------------------------------------- */

static void number_region(struct liver *s, const struct ir_region *r)
{
	struct span *span = ARENA_PUSH(s->p->arena, &s->spans);
	size_t here = s->spans.n - 1, outer = s->here;
	if (span == NULL)
		return;
	*span = (struct span){.parent = outer, .depth = here == 0 ? 0 : s->spans.items[outer].depth + 1};
	span->first = s->time;
	s->here = here;
	for (size_t i = 0; i < r->n_args; i++)
		s->span_of[r->args[i].id] = here;
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		for (size_t k = 0; k < op->n_results; k++)
			s->span_of[op->results[k].id] = here;
		if (op->code == OP_repeat)
			number_region(s, op->region);
		else if (op->code == OP_group)
			s->time++;
	}
	s->spans.items[here].last = s->time;
	s->here = outer;
}

static void find_homes(struct liver *s)
{
	for (uint32_t v = 1; v < s->f->n_values; v++) {
		struct class *c = &s->classes[find(s, v)];
		size_t span = s->span_of[v];
		if (c->home == SIZE_MAX || s->spans.items[span].depth < s->spans.items[c->home].depth)
			c->home = span;
	}
}

/* The class of v is alive at time t, seen from region `here`. */
static void touch(struct liver *s, struct ir_value v, size_t t)
{
	struct class *c = &s->classes[find(s, v.id)];
	size_t first = t, last = t;

	for (size_t r = s->here; r != c->home && s->spans.items[r].depth > s->spans.items[c->home].depth;
	     r = s->spans.items[r].parent) {
		const struct span *span = &s->spans.items[r];
		first = span->first < first ? span->first : first;
		last = span->last > last + 1 ? span->last - 1 : last;
	}
	c->first = first < c->first ? first : c->first;
	c->last = last > c->last ? last : c->last;
}

static bool in_arena(const struct liver *s, struct ir_value v, const bool *returned)
{
	return is_tensor(s, v) && !ir_is_state_slice(s->f, v) && !returned[v.id];
}

static void live_group(struct liver *s, const struct ir_op *op, const bool *returned)
{
	size_t t = s->time++;
	for (size_t i = 0; i < op->n_results; i++) {
		if (!in_arena(s, op->results[i], returned))
			continue;
		s->classes[find(s, op->results[i].id)].is_buffer = true;
		touch(s, op->results[i], t);
	}
	for (size_t k = 0; k < op->region->n_ops; k++)
		for (size_t i = 0; i < op->region->ops[k]->n_operands; i++)
			if (op->region->ops[k]->operands[i].id != 0)
				touch(s, ir_view_base(s->f, op->region->ops[k]->operands[i]), t);
}

/* Regions are numbered in the order in which they begin, here as before. */
static void live_region(struct liver *s, const struct ir_region *r, const bool *returned)
{
	size_t here = s->spans.n++, outer = s->here;
	s->here = here;
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		if (op->code == OP_repeat) {
			size_t first = s->time;
			live_region(s, op->region, returned);
			for (size_t k = 0; k < op->n_results; k++) {
				touch(s, op->results[k], first);
				touch(s, op->results[k], s->time > first ? s->time - 1 : first);
			}
		} else if (op->code == OP_group) {
			live_group(s, op, returned);
		}
	}
	s->here = outer;
}

/* --- buffers and lanes --------------------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b)
{
	while (b != 0) {
		int64_t r = a % b;
		a = b;
		b = r;
	}
	return a < 0 ? -a : a;
}

/* bytes = size * unit; a unit that might be negative as far as the bounds tell is replaced by a constant. */
static enum tfmc_status split_size(struct liver *s, struct ir_value v, int64_t *size,
                                   const struct ir_dim **unit)
{
	struct ir_dims *dims = s->m->dims;
	const struct ir_type *t = ir_type_of(s->f, v);
	const struct ir_dim *bytes =
	        ir_dim_mul(dims, ir_type_count(dims, t), ir_dim_const(dims, ir_dtype_bytes(t->dtype)));

	*size = 0;
	for (size_t i = 0; i < bytes->n_terms; i++)
		*size = gcd(*size, bytes->terms[i].coeff);
	*unit = *size > 0 ? ir_dim_divide(dims, bytes, ir_dim_const(dims, *size)) : ir_dim_const(dims, 1);
	if (*unit == NULL || ir_dim_lo(dims, *unit) < 0) {
		*size = ir_dim_hi(dims, bytes);
		*unit = ir_dim_const(dims, 1);
	}
	if (ir_dim_hi(dims, bytes) >= INT64_MAX / 4 || *size >= INT64_MAX / 4) {
		diag_error(s->p->cx, s->f->loc.at, DIAG_LIMIT, "a buffer of function %s is too large",
		           s->f->name);
		return TFMC_INVALID;
	}
	*size = (*size + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
	return TFMC_OK;
}

static size_t lane_of(struct liver *s, const struct ir_dim *unit)
{
	struct plan_func *plan = s->out->plan;
	for (size_t i = 0; i < plan->n_lanes; i++)
		if (plan->lanes[i].unit == unit)
			return i;
	struct plan_lane *lanes = arena_grow(&s->p->report->arena, plan->lanes, plan->n_lanes,
	                                     plan->n_lanes + 1, sizeof(*lanes));
	if (lanes == NULL)
		return 0;
	plan->lanes = lanes;
	plan->lanes[plan->n_lanes] = (struct plan_lane){.unit = unit};
	return plan->n_lanes++;
}

static enum tfmc_status too_many(const struct liver *s)
{
	diag_error(s->p->cx, s->f->loc.at, DIAG_LIMIT, "function %s has more than %d buffers", s->f->name,
	           PLAN_BUFFERS_MAX);
	return TFMC_INVALID;
}

static enum tfmc_status number_buffers(struct liver *s)
{
	struct plan_func *plan = s->out->plan;
	plan->buffers = ARENA_ARRAY(&s->p->report->arena, struct plan_buffer, s->f->n_values);
	if (plan->buffers == NULL)
		return TFMC_NO_MEMORY;
	for (uint32_t v = 1; v < s->f->n_values; v++) {
		struct class *c = &s->classes[find(s, v)];
		const struct ir_dim *unit;
		if (!c->is_buffer)
			continue;
		if (c->buffer == 0) {
			if (plan->n_buffers >= PLAN_BUFFERS_MAX)
				return too_many(s);
			struct plan_buffer *b = &plan->buffers[plan->n_buffers++];
			const char *name = s->f->values[v].name;
			TFMC_TRY(split_size(s, (struct ir_value){v}, &b->size, &unit));
			b->name = arena_strdup(&s->p->report->arena, name != NULL ? name : "");
			b->lane = lane_of(s, unit);
			b->first = c->first;
			b->last = c->last;
			c->buffer = plan->n_buffers;
		}
		s->out->buffer_of[v] = c->buffer;
	}
	return arena_failed(&s->p->report->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* --- what group promised -------------------------------------------------------------------------------- */

struct edges {
	const struct liver *s;
	uint32_t *uses;
	enum tfmc_status status;
};

static void refuse_edge(struct edges *e, const struct ir_op *op, const char *what)
{
	if (e->status == TFMC_OK)
		diag_error(e->s->p->cx, op->loc.at, DIAG_IR_VERIFY,
		           "plan-memory: %s; the pass group makes it so", what);
	e->status = TFMC_INVALID;
}

/* v is computed by a group of that region into memory of the arena. */
static bool from_group(const struct liver *s, struct ir_value v, const struct ir_region *region)
{
	const struct ir_op *op = ir_def(s->f, v);
	return op != NULL && op->code == OP_group && !ir_is_state_slice(s->f, v) &&
	       ir_info(s->f, v)->region == region;
}

static void check_carries(void *user, const struct ir_op *op)
{
	struct edges *e = user;
	if (op->code != OP_repeat)
		return;
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value init = op->operands[i], next = yield->operands[i];
		if (!is_tensor(e->s, init))
			continue;
		if (!from_group(e->s, init, ir_info(e->s->f, op->results[i])->region) ||
		    e->uses[init.id] != 1)
			refuse_edge(e, op,
			            "the first value of a carry must be a result of a group and read once");
		if (!ir_same(next, body->args[i + 1]) && !from_group(e->s, next, body))
			refuse_edge(e, op, "a body must yield results of its groups");
	}
}

static enum tfmc_status check_edges(struct liver *s)
{
	const struct ir_op *ret = s->f->body->ops[s->f->body->n_ops - 1];
	struct edges e = {.s = s, .uses = ir_count_uses(s->p->arena, s->f)};
	if (e.uses == NULL)
		return TFMC_NO_MEMORY;
	ir_walk(s->f->body, check_carries, &e);
	for (size_t i = 0; i < ret->n_operands; i++) {
		struct ir_value v = ret->operands[i];
		if (is_tensor(s, v) && (!from_group(s, v, s->f->body) || e.uses[v.id] != 1))
			refuse_edge(&e, ret, "a returned value must be a result of a group and read once");
	}
	return e.status;
}

enum tfmc_status plan_live(struct pass_context *p, const struct ir_module *m, const struct ir_func *f,
                           struct plan_live *out)
{
	struct liver s = {.p = p, .m = m, .f = f, .out = out};
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	bool *returned = ARENA_ARRAY(p->arena, bool, f->n_values);

	s.span_of = ARENA_ARRAY(p->arena, size_t, f->n_values);
	s.parent = ARENA_ARRAY(p->arena, uint32_t, f->n_values);
	s.classes = ARENA_ARRAY(p->arena, struct class, f->n_values);
	out->buffer_of = ARENA_ARRAY(p->arena, size_t, f->n_values);
	if (arena_failed(p->arena))
		return TFMC_NO_MEMORY;
	for (uint32_t v = 0; v < f->n_values; v++) {
		s.parent[v] = v;
		s.classes[v] = (struct class){.home = SIZE_MAX, .first = SIZE_MAX};
	}
	TFMC_TRY(check_edges(&s));
	for (size_t i = 0; i < ret->n_operands; i++)
		returned[ret->operands[i].id] = true;
	ir_walk(f->body, unite_carries, &s);
	number_region(&s, f->body);
	find_homes(&s);
	out->plan->n_times = s.time;
	s.time = s.here = s.spans.n = 0;
	live_region(&s, f->body, returned);
	return number_buffers(&s);
}
