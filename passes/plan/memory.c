/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan-memory: assigns every buffer an offset in the arena.
 *
 * Requires   group (its copies let the buffers of a carry coincide and give every returned value one reader).
 * Ensures    `at` of every group: the byte offset of each result as a dim polynomial whose coefficients are
 *            multiples of 64, or -1 for memory of the caller (outputs, state). The function has its arena size.
 *            Values share bytes if they are never live at the same time, or if a group writes one over the other
 *            (alias.c).
 * Example    group linear { .. }  ->  group linear { .. } at [128*B*S]
 * Skips      (error) buffers beyond what 64 bits can address.
 *
 * There is one buffer for each class of values that share memory, live from the first to the last group that uses
 * a member. The bytes of a buffer are an integer size times a symbolic unit, such as B*S; buffers with one unit are a
 * lane. raw is the size before it was rounded up to cache lines.
 */
#include "passes/plan/plan.h"

#include "ir/core/view.h"
#include "ir/support/checked.h"
#include "passes/framework/rebuild.h"

#define PADDING_PAGE 4096

/* The plan of a function at stage groups. */
struct function_plan {
	struct plan_func *plan; /* buffers with lane and size, lanes with unit, n_times; dims of m */
	size_t *buffer_of;      /* [f->n_values] buffer + 1; 0: not in the arena */
};

struct buffer_builder {
	struct pass_context *p;
	const struct ir_module *m;
	const struct ir_func *f;
	const struct plan_classes *classes;
	struct function_plan *out;
	int64_t total; /* sum of all coefficients */
};

/* ---- buffers and lanes ---- */

static enum tfmc_status too_large(const struct buffer_builder *s, struct ir_value v)
{
	const struct ir_op *op = ir_def(s->f, v);
	diag_error(s->p->cx, op != NULL ? op->loc.at : s->f->loc.at, DIAG_LIMIT,
	           "a buffer of function %s is too large", s->f->name);
	return TFMC_INVALID;
}

/* Bytes of a value: raw * unit, and size * unit with padding to cache lines. */
struct extent {
	int64_t raw, size;
	const struct ir_dim *unit;
};

/*
 * Pads to PLAN_ALIGN. Rounding up the coefficient pads every unit: 4*B*S bytes become 64*B*S. If that adds more
 * than an eighth to a coefficient below 64, and more than a page at the largest dims, the size is rounded up as a
 * whole: 64 * ((4*B*S + 63)//64). Not in general, because the packer can compare simple units only.
 */
static void pad_extent(struct ir_dims *dims, const struct ir_dim *bytes, struct extent *x)
{
	int64_t padding, most = ir_dim_hi(dims, x->unit);
	x->size = (x->raw + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
	padding = x->size - x->raw;
	/* padding > 0 in the last test: otherwise raw is 0 or at least PLAN_ALIGN. */
	if (x->raw >= PLAN_ALIGN || padding <= x->raw / 8 || most <= PADDING_PAGE / padding)
		return;
	const struct ir_dim *up = ir_dim_add(dims, bytes, ir_dim_const(dims, PLAN_ALIGN - 1));
	x->unit = ir_dim_floordiv(dims, up, PLAN_ALIGN);
	x->raw = x->size = PLAN_ALIGN;
}

/* Splits the bytes of v into coefficient and unit: the greatest common divisor of the coefficients of the
 * polynomial, and the quotient. A unit that is not provably >= 0 is replaced by a constant maximum, since the packer
 * (is_above) relies on units >= 0. A quarter of int64_t leaves headroom for offset + size + padding. */
static enum tfmc_status find_extent(struct buffer_builder *s, struct ir_value v, struct extent *out)
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
	pad_extent(dims, bytes, &x);
	*out = x;
	return TFMC_OK;
}

/* Index of the lane with this unit, which it adds if there is none; dims are interned, so equal units have one
 * address. 0 without memory, which the arena remembers. */
static size_t lane_of(struct buffer_builder *s, const struct ir_dim *unit)
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

/* Lifetime of the buffer: from the first to the last group of any member of the class. Members that are never in
 * memory (first > last) do not count. */
static void find_lifetime(struct buffer_builder *s, uint32_t class, struct plan_buffer *b)
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

/* Adds the buffer of the class of v: its size, lane, name and lifetime. All members have the bytes of v: carries
 * have one type, and a group writes over a value of equal size only (ir/core/inplace.h). Their number is bounded, as
 * the packer compares all pairs. */
static enum tfmc_status add_buffer(struct buffer_builder *s, uint32_t v)
{
	struct plan_func *plan = s->out->plan;
	struct extent x;
	if (plan->n_buffers >= PLAN_BUFFERS_MAX) {
		diag_error(s->p->cx, s->f->loc.at, DIAG_LIMIT, "function %s has more than %d buffers",
		           s->f->name, PLAN_BUFFERS_MAX);
		return TFMC_INVALID;
	}
	struct plan_buffer *b = &plan->buffers[plan->n_buffers++];
	TFMC_TRY(find_extent(s, (struct ir_value){v}, &x));
	b->size = x.size;
	b->raw = x.raw;
	/* The packer adds coefficients, which must not overflow. */
	if (!checked_add_i64(s->total, b->size, &s->total) || s->total >= INT64_MAX / 4)
		return too_large(s, (struct ir_value){v});
	const char *name = plan_value_text(s->p, s->f, (struct ir_value){v});
	b->name = arena_strdup(&s->p->report->arena, name != NULL ? name : "");
	b->lane = lane_of(s, x.unit);
	find_lifetime(s, s->classes->class_of[v], b);
	return TFMC_OK;
}

/* Adds a buffer for each class with a value in the arena. number [class]: its buffer + 1, which every member gets. */
static enum tfmc_status add_buffers(struct buffer_builder *s)
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

/* ---- preconditions that the pass group ensures ---- */

struct carry_check {
	const struct buffer_builder *s;
	uint32_t *uses;
	enum tfmc_status status;
};

/* Reports the first precondition that does not hold; further ones only repeat it. */
static void report_broken(struct carry_check *e, const struct ir_op *op, const char *what)
{
	if (e->status == TFMC_OK)
		diag_error(e->s->p->cx, op->loc.at, DIAG_IR_VERIFY,
		           "plan-memory: %s; the pass group makes it so", what);
	e->status = TFMC_INVALID;
}

/* v is the result of a group of that region, not in a state. */
static bool is_group_result(const struct buffer_builder *s, struct ir_value v, const struct ir_region *region)
{
	const struct ir_op *op = ir_def(s->f, v);
	return op != NULL && op->code == OP_group && !ir_is_state_slice(s->f, v) &&
	       ir_value_info(s->f, v)->region == region;
}

/* The initial value and the yielded value of each carry are results of groups, so that they can be computed in the
 * buffer of the carry. The repeat is the only reader of the initial value: the body writes over it. args[0] is the
 * index of the iteration. */
static void check_carries(struct carry_check *e, const struct ir_op *op)
{
	if (op->code != OP_repeat)
		return;
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value init = op->operands[i], next = yield->operands[i];
		if (!ir_is_tensor(e->s->f, init))
			continue;
		if (!is_group_result(e->s, init, ir_value_info(e->s->f, op->results[i])->region) ||
		    e->uses[init.id] != 1)
			report_broken(e, op,
			              "the first value of a carry must be a result of a group and read once");
		if (!ir_same_value(next, body->args[i + 1]) && !is_group_result(e->s, next, body))
			report_broken(e, op, "a body must yield results of its groups");
	}
}

/* Checks the carries of all repeats and the returned values, which are written to memory of the caller and not of
 * the arena. */
static enum tfmc_status check_carries_and_results(struct buffer_builder *s)
{
	const struct ir_op *ret = s->f->body->ops[s->f->body->n_ops - 1];
	struct carry_check e = {.s = s, .uses = ir_count_uses(s->p->arena, s->f)};
	if (e.uses == NULL)
		return TFMC_NO_MEMORY;
	for (struct ir_iter it = ir_iter_begin(s->f->body); it.op != NULL; ir_iter_next(&it))
		check_carries(&e, it.op);
	for (size_t i = 0; i < ret->n_operands; i++) {
		struct ir_value v = ret->operands[i];
		if (ir_is_tensor(s->f, v) && (!is_group_result(s, v, s->f->body) || e.uses[v.id] != 1))
			report_broken(&e, ret, "a returned value must be a result of a group and read once");
	}
	return e.status;
}

/* Inputs and outputs are not in the arena, but their sizes obey the same limit: kernels address them with the same
 * 64-bit arithmetic. The extents themselves are not used. */
static enum tfmc_status check_input_and_output_sizes(struct buffer_builder *s)
{
	const struct ir_op *ret = s->f->body->ops[s->f->body->n_ops - 1];
	struct extent x;
	for (size_t i = 0; i < ret->n_operands + s->f->n_params; i++) {
		struct ir_value v =
		        i < ret->n_operands ? ret->operands[i] : s->f->body->args[i - ret->n_operands];
		if (ir_is_tensor(s->f, v))
			TFMC_TRY(find_extent(s, v, &x));
	}
	return TFMC_OK;
}

/* Computes the buffers of f: classes of values, sizes and lifetimes. The checks come first, since plan_classes
 * relies on what they check. */
static enum tfmc_status plan_buffers(struct pass_context *p, const struct ir_module *m,
                                     const struct ir_func *f, struct function_plan *out)
{
	struct plan_classes classes;
	struct buffer_builder s = {.p = p, .m = m, .f = f, .classes = &classes, .out = out};

	out->buffer_of = ARENA_ARRAY(p->arena, size_t, f->n_values);
	if (out->buffer_of == NULL)
		return TFMC_NO_MEMORY;
	TFMC_TRY(check_carries_and_results(&s));
	TFMC_TRY(check_input_and_output_sizes(&s));
	TFMC_TRY(plan_classes(p, m, f, p->step->settings[SETTING_plan_memory_in_place] != 0, &classes));
	out->plan->n_times = classes.life.n_times;
	return add_buffers(&s);
}

/* ---- the pass ---- */

/* Matches every group, which emit replaces by itself with offsets; marks what its ops read. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	if (op->code != OP_group)
		return false;
	rebuild_need_group(r, op);
	return true;
}

/* The plan of the function that is rebuilt. */
static const struct function_plan *plan_of(struct rebuild *r)
{
	const struct function_plan *plans = r->rewrite->user;
	for (size_t i = 0; i < r->in->funcs.n; i++)
		if (r->in->funcs.items[i] == r->f)
			return &plans[i];
	return NULL;
}

static const struct ir_dim *offset_of(struct ir_module *m, const struct function_plan *f, struct ir_value v)
{
	size_t at = f->buffer_of[v.id];
	if (at == 0)
		return ir_dim_const(m->dims, -1);
	return ir_import_dim(m, f->plan->buffers[at - 1].at);
}

/* Sets the offset of each result of the group: that of its buffer, or -1 (a result in memory of the caller). */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	const struct function_plan *f = plan_of(r);
	struct attrs_group a = *(const struct attrs_group *)op->attrs;
	a.at.items = ARENA_ARRAY(r->p->arena, const struct ir_dim *, op->n_results + 1);
	a.at.n = op->n_results;
	if (a.at.items == NULL || f == NULL)
		return;
	for (size_t i = 0; i < op->n_results; i++)
		a.at.items[i] = offset_of(r->out, f, op->results[i]);
	rebuild_group(r, op, &a);
}

/* Computes buffers and offsets of one function; the plan is in the arena of the report, which prints it. */
static enum tfmc_status plan_function(struct pass_context *p, const struct ir_module *m,
                                      const struct ir_func *f, struct function_plan *out)
{
	out->plan = ARENA_NEW(&p->report->arena, struct plan_func);
	if (out->plan == NULL)
		return TFMC_NO_MEMORY;
	out->plan->name = arena_strdup(&p->report->arena, f->name);
	TFMC_TRY(plan_buffers(p, m, f, out));
	return plan_pack(p->arena, m->dims, out->plan) ? TFMC_OK : TFMC_NO_MEMORY;
}

/* Copies the plan into the report, with dims of the result module, which outlives the pass. */
static void add_report(struct pass_context *p, struct ir_module *out, const struct plan_func *plan)
{
	struct plan_func *copy = ARENA_PUSH(&p->report->arena, &p->report->plans);
	if (copy == NULL)
		return;
	*copy = *plan;
	copy->dims = out->dims;
	copy->arena = ir_import_dim(out, plan->arena);
	copy->lower_bound = ir_import_dim(out, plan->lower_bound);
	for (size_t i = 0; i < copy->n_lanes; i++)
		copy->lanes[i].unit = ir_import_dim(out, copy->lanes[i].unit);
	for (size_t i = 0; i < copy->n_buffers; i++)
		copy->buffers[i].at = ir_import_dim(out, copy->buffers[i].at);
}

/* Plans all functions first, then writes the offsets into the groups. An overflow of the dims, which is sticky,
 * means that some arena is too large. */
enum tfmc_status pass_plan_memory(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct function_plan *plans = ARENA_ARRAY(p->arena, struct function_plan, in->funcs.n + 1);
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = plans};

	if (plans == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < in->funcs.n; i++)
		TFMC_TRY(plan_function(p, in, in->funcs.items[i], &plans[i]));
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	/* The report describes the last plan-memory of the pipeline. */
	p->report->plans.n = 0;
	for (size_t i = 0; i < out->funcs.n; i++) {
		out->funcs.items[i]->arena = ir_import_dim(out, plans[i].plan->arena);
		add_report(p, out, plans[i].plan);
	}
	if (ir_dims_failed(out->dims)) {
		diag_error(p->cx, LOC_NONE, DIAG_LIMIT, "the arena is larger than 64 bits can address");
		return TFMC_INVALID;
	}
	return TFMC_OK;
}
