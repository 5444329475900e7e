/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: one for each class of values that share memory, alive from the first
 * to the last group that one of them is needed for. Bytes are split into a
 * coefficient and a unit, and equal units make a lane.
 */
#include "passes/plan/plan.h"

#include "ir/support/checked.h"
#include "ir/core/view.h"

#define PADDING_PAGE 4096

struct liver {
	struct pass_context *p;
	const struct ir_module *m;
	const struct ir_func *f;
	const struct plan_classes *classes;
	struct plan_live *out;
	int64_t total; /* of all coefficients */
};

/* ---- buffers and lanes ---- */

static enum tfmc_status too_large(const struct liver *s, struct ir_value v)
{
	const struct ir_op *op = ir_def(s->f, v);
	diag_error(s->p->cx, op != NULL ? op->loc.at : s->f->loc.at, DIAG_LIMIT,
	           "a buffer of function %s is too large", s->f->name);
	return TFMC_INVALID;
}

/* Bytes of a value as `raw` times a unit, and with the padding to lines as `size` times the same. */
struct extent {
	int64_t raw, size;
	const struct ir_dim *unit;
};

/*
 * Rounding the coefficient pads each unit: 4*B*S bytes would become 64*B*S. Where that adds more than an eighth of units
 * below a line, and a page at the largest dims, the unit is lines of the whole, 64 * ((4*B*S + 63)//64); elsewhere buffers
 * keep the units that the packer knows to compare.
 */
static void pad(struct ir_dims *dims, const struct ir_dim *bytes, struct extent *x)
{
	int64_t padding, most = ir_dim_hi(dims, x->unit);
	x->size = (x->raw + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
	padding = x->size - x->raw;
	if (x->raw >= PLAN_ALIGN || padding <= x->raw / 8 || most <= PADDING_PAGE / padding)
		return;
	const struct ir_dim *up = ir_dim_add(dims, bytes, ir_dim_const(dims, PLAN_ALIGN - 1));
	x->unit = ir_dim_floordiv(dims, up, PLAN_ALIGN);
	x->raw = x->size = PLAN_ALIGN;
}

/* A unit that might be negative as far as the bounds tell is replaced by a constant. */
static enum tfmc_status find_extent(struct liver *s, struct ir_value v, struct extent *out)
{
	struct ir_dims *dims = s->m->dims;
	const struct ir_dim *bytes = ir_value_bytes(s->m, s->f, v);
	struct extent x = {0};

	for (size_t i = 0; i < bytes->n_terms; i++)
		x.raw = gcd_i64(x.raw, bytes->terms[i].coeff);
	x.unit = x.raw > 0 ? ir_dim_divide(dims, bytes, ir_dim_const(dims, x.raw)) : ir_dim_const(dims, 1);
	if (x.unit == NULL || ir_dim_lo(dims, x.unit) < 0) {
		x.raw = ir_dim_hi(dims, bytes);
		x.unit = ir_dim_const(dims, 1);
	}
	if (ir_dims_failed(dims) || ir_dim_hi(dims, bytes) >= INT64_MAX / 4 || x.raw >= INT64_MAX / 4)
		return too_large(s, v);
	pad(dims, bytes, &x);
	*out = x;
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

/* From the first to the last time of any member. */
static void find_span(struct liver *s, uint32_t class, struct plan_buffer *b)
{
	const struct ir_lifetimes *l = &s->classes->life;
	uint32_t v = class;
	b->first = SIZE_MAX;
	b->last = 0;
	do {
		if (l->first[v] <= l->last[v]) {
			b->first = l->first[v] < b->first ? l->first[v] : b->first;
			b->last = l->last[v] > b->last ? l->last[v] : b->last;
		}
		v = s->classes->next[v];
	} while (v != class);
}

static enum tfmc_status add_buffer(struct liver *s, uint32_t v)
{
	struct plan_func *plan = s->out->plan;
	struct extent x;
	if (plan->n_buffers >= PLAN_BUFFERS_MAX)
		return too_many(s);
	struct plan_buffer *b = &plan->buffers[plan->n_buffers++];
	TFMC_TRY(find_extent(s, (struct ir_value){v}, &x));
	b->size = x.size;
	b->raw = x.raw;
	/* So sums of coefficients do not overflow. */
	if (!checked_add_i64(s->total, b->size, &s->total) || s->total >= INT64_MAX / 4)
		return too_large(s, (struct ir_value){v});
	const char *name = plan_value_text(s->p, s->f, (struct ir_value){v});
	b->name = arena_strdup(&s->p->report->arena, name != NULL ? name : "");
	b->lane = lane_of(s, x.unit);
	find_span(s, s->classes->class_of[v], b);
	return TFMC_OK;
}

static enum tfmc_status number_buffers(struct liver *s)
{
	const struct plan_classes *c = s->classes;
	s->out->plan->buffers = ARENA_ARRAY(&s->p->report->arena, struct plan_buffer, s->f->n_values);
	size_t *number = ARENA_ARRAY(s->p->arena, size_t, s->f->n_values);
	if (s->out->plan->buffers == NULL || number == NULL)
		return TFMC_NO_MEMORY;
	for (uint32_t v = 1; v < s->f->n_values; v++) {
		if (!c->in_arena[v])
			continue;
		if (number[c->class_of[v]] == 0) {
			TFMC_TRY(add_buffer(s, v));
			number[c->class_of[v]] = s->out->plan->n_buffers;
		}
		s->out->buffer_of[v] = number[c->class_of[v]];
	}
	return arena_failed(&s->p->report->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- what group promised ---- */

static bool is_tensor(const struct liver *s, struct ir_value v)
{
	return ir_type_of(s->f, v)->kind == IR_TENSOR;
}

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
	       ir_value_info(s->f, v)->region == region;
}

static void check_carries(struct edges *e, const struct ir_op *op)
{
	if (op->code != OP_repeat)
		return;
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value init = op->operands[i], next = yield->operands[i];
		if (!is_tensor(e->s, init))
			continue;
		if (!from_group(e->s, init, ir_value_info(e->s->f, op->results[i])->region) ||
		    e->uses[init.id] != 1)
			refuse_edge(e, op,
			            "the first value of a carry must be a result of a group and read once");
		if (!ir_same_value(next, body->args[i + 1]) && !from_group(e->s, next, body))
			refuse_edge(e, op, "a body must yield results of its groups");
	}
}

static enum tfmc_status check_edges(struct liver *s)
{
	const struct ir_op *ret = s->f->body->ops[s->f->body->n_ops - 1];
	struct edges e = {.s = s, .uses = ir_count_uses(s->p->arena, s->f)};
	if (e.uses == NULL)
		return TFMC_NO_MEMORY;
	for (struct ir_iter it = ir_iter_begin(s->f->body); it.op != NULL; ir_iter_next(&it))
		check_carries(&e, it.op);
	for (size_t i = 0; i < ret->n_operands; i++) {
		struct ir_value v = ret->operands[i];
		if (is_tensor(s, v) && (!from_group(s, v, s->f->body) || e.uses[v.id] != 1))
			refuse_edge(&e, ret, "a returned value must be a result of a group and read once");
	}
	return e.status;
}

/* Inputs and outputs are in nobody's buffer; their bytes are bounded like those of one. */
static enum tfmc_status check_ends(struct liver *s)
{
	const struct ir_op *ret = s->f->body->ops[s->f->body->n_ops - 1];
	struct extent x;
	for (size_t i = 0; i < ret->n_operands + s->f->n_params; i++) {
		struct ir_value v =
		        i < ret->n_operands ? ret->operands[i] : s->f->body->args[i - ret->n_operands];
		if (is_tensor(s, v))
			TFMC_TRY(find_extent(s, v, &x));
	}
	return TFMC_OK;
}

enum tfmc_status plan_live(struct pass_context *p, const struct ir_module *m, const struct ir_func *f,
                           struct plan_live *out)
{
	struct plan_classes classes;
	struct liver s = {.p = p, .m = m, .f = f, .classes = &classes, .out = out};

	out->buffer_of = ARENA_ARRAY(p->arena, size_t, f->n_values);
	if (out->buffer_of == NULL)
		return TFMC_NO_MEMORY;
	TFMC_TRY(check_edges(&s));
	TFMC_TRY(check_ends(&s));
	TFMC_TRY(plan_classes(p, m, f, p->step->settings[0] != 0, &classes));
	out->plan->n_times = classes.life.n_times;
	return number_buffers(&s);
}
