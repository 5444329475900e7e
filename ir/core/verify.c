/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier, see verify.h. It traverses every region once with the set of visible values, and trusts nothing that
 * a pass could have set wrong. Checks report and continue; functions that return a bool return false after a report
 * that makes further checks of the same thing meaningless.
 */
#include "ir/core/verify.h"
#include "ir/core/build.h"
#include "ir/core/case.h"
#include "ir/core/inplace.h"
#include "ir/core/lifetime.h"
#include "ir/core/names.h"
#include "ir/core/view.h"

#include <string.h>

struct verifier {
	struct ir_module *m;
	struct diag_context *cx;
	const struct ir_func *f;
	struct arena arena;
	const bool *sound; /* [functions]: the structure was verified */
	bool *visible;     /* [n_values] */
	uint32_t *uses;    /* [n_values] */
	size_t n_failed;
};

static void verify_fail(struct verifier *v, struct ir_loc loc, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* Reports an error in v->f (in the module if NULL) and counts it. */
static void verify_fail(struct verifier *v, struct ir_loc loc, const char *fmt, ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, &v->arena, fmt);
	v->n_failed++;
	if (v->f != NULL)
		diag_error(v->cx, loc.at, DIAG_IR_VERIFY, "in @%s: %s", v->f->name, text);
	else
		diag_error(v->cx, loc.at, DIAG_IR_VERIFY, "%s", text);
}

/* ---- cases ---- */

/* Verification of cases: the base, the conditions, and the signature, which is the base's with bound symbols
 * replaced. */

static const char *dim_string(struct verifier *v, const struct ir_dim *d)
{
	return ir_dim_to_string(&v->arena, v->m->dims, d, true);
}

static const char *sym_name(const struct verifier *v, int sym)
{
	return ir_dims_sym(v->m->dims, (size_t)sym)->name;
}

/* ---- conditions ---- */

static bool params_have(const struct ir_func *f, int sym)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (ir_type_has_symbol(ir_type_of(f, f->params[i].value), sym))
			return true;
	return false;
}

/* All symbols of d occur in the parameters of the base: the entry, which tests conditions, knows only these. */
static bool is_over_base(struct verifier *v, const struct ir_func *base, const struct ir_dim *d)
{
	for (size_t i = 0; i < ir_dims_count(v->m->dims); i++) {
		if (!ir_dim_has_symbol(d, (int)i) || params_have(base, (int)i))
			continue;
		verify_fail(v, v->f->loc, "the condition on %s: @%s has no dim %s", dim_string(v, d),
		            base->name, sym_name(v, (int)i));
		return false;
	}
	return true;
}

static bool binds(const struct ir_condition *x)
{
	return x->relation == IR_EQUAL && ir_dim_as_symbol(x->dim) >= 0;
}

/* Condition n does not contain a symbol that another condition binds: the bound symbol is a constant, so the
 * condition should say that. */
static void check_not_bound(struct verifier *v, size_t n)
{
	const struct ir_case *c = v->f->when;
	for (size_t i = 0; i < c->n; i++) {
		int sym = ir_dim_as_symbol(c->conditions[i].dim);
		if (i != n && binds(&c->conditions[i]) && ir_dim_has_symbol(c->conditions[n].dim, sym))
			verify_fail(v, v->f->loc, "the condition on %s: %s is bound by another one",
			            dim_string(v, c->conditions[n].dim), sym_name(v, sym));
	}
}

/* Condition n of the case is over dims of the base, binds a symbol if it is an equation, and can hold within the
 * bounds of its dim. */
static void check_condition(struct verifier *v, const struct ir_func *base, size_t n)
{
	const struct ir_condition *x = &v->f->when->conditions[n];
	int64_t lo = ir_dim_lo(v->m->dims, x->dim), hi = ir_dim_hi(v->m->dims, x->dim);
	bool equal = x->relation == IR_EQUAL;
	if (!is_over_base(v, base, x->dim))
		return;
	check_not_bound(v, n);
	if (equal && !binds(x))
		verify_fail(v, v->f->loc, "the condition %s = %lld: only a symbol can be bound",
		            dim_string(v, x->dim), (long long)x->value);
	else if (x->value < lo || (equal && x->value > hi))
		verify_fail(v, v->f->loc, "the condition %s %s %lld never holds: it is in [%lld,%lld]",
		            dim_string(v, x->dim), equal ? "=" : "<=", (long long)x->value, (long long)lo,
		            (long long)hi);
}

/* ---- the function ---- */

static bool same_text(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_dim(struct verifier *v, const struct ir_dim *mine, const struct ir_dim *theirs)
{
	if (mine == NULL || theirs == NULL)
		return mine == theirs;
	return mine == ir_case_bind_dim(v->m, v->f->when, theirs);
}

static bool same_type(struct verifier *v, struct ir_value mine, const struct ir_func *base,
                      struct ir_value theirs)
{
	return ir_type_of(v->f, mine) == ir_case_bind_type(v->m, v->f->when, ir_type_of(base, theirs));
}

/* The parameters of the case are those of its base, with bound symbols replaced: the entry passes the same arguments
 * to either. */
static void check_params(struct verifier *v, const struct ir_func *base)
{
	const struct ir_func *f = v->f;
	if (f->n_params != base->n_params) {
		verify_fail(v, f->loc, "%zu parameters, its base @%s has %zu", f->n_params, base->name,
		            base->n_params);
		return;
	}
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *a = &f->params[i], *b = &base->params[i];
		bool same = same_text(a->name, b->name) && same_type(v, a->value, base, b->value) &&
		            a->role == b->role && a->below == b->below && a->lengths == b->lengths &&
		            a->has_default == b->has_default && a->fill == b->fill &&
		            same_dim(v, a->max, b->max) && same_dim(v, a->default_value, b->default_value);
		if (!same)
			verify_fail(v, a->loc, "the parameter '%s' is not that of its base @%s",
			            a->name != NULL ? a->name : "", base->name);
	}
}

/* The results of the case are those of its base, with bound symbols replaced. */
static void check_results(struct verifier *v, const struct ir_func *base)
{
	const struct ir_func *f = v->f;
	const struct ir_op *mine = f->body->ops[f->body->n_ops - 1];
	const struct ir_op *theirs = base->body->ops[base->body->n_ops - 1];
	bool same = f->n_results == base->n_results && mine->n_operands == f->n_results &&
	            theirs->n_operands == f->n_results;
	for (size_t i = 0; same && i < f->n_results; i++) {
		const struct ir_result *a = &f->results[i], *b = &base->results[i];
		same = same_text(a->name, b->name) && a->role == b->role && a->lengths == b->lengths &&
		       same_type(v, mine->operands[i], base, theirs->operands[i]);
	}
	if (!same)
		verify_fail(v, f->loc, "the results are not those of its base @%s", base->name);
}

/* ---- the case ---- */

static bool same_conditions(const struct ir_case *a, const struct ir_case *b)
{
	bool same = strcmp(a->of, b->of) == 0 && a->n == b->n;
	for (size_t i = 0; same && i < a->n; i++)
		same = a->conditions[i].dim == b->conditions[i].dim &&
		       a->conditions[i].relation == b->conditions[i].relation &&
		       a->conditions[i].value == b->conditions[i].value;
	return same;
}

/* No earlier case has the same conditions: cases are tried in order, so this one would never be taken. Dims are
 * interned. */
static void check_reachable(struct verifier *v)
{
	for (size_t i = 0; i < v->m->funcs.n && v->m->funcs.items[i] != v->f; i++) {
		const struct ir_func *f = v->m->funcs.items[i];
		if (f->when != NULL && same_conditions(f->when, v->f->when))
			verify_fail(v, v->f->loc, "this case is never taken: @%s has the same conditions",
			            f->name);
	}
}

/* The structure of f, a function of the module, was verified. */
static bool is_sound(const struct verifier *v, const struct ir_func *f)
{
	for (size_t i = 0; i < v->m->funcs.n; i++)
		if (v->m->funcs.items[i] == f)
			return v->sound[i];
	return false;
}

/* The case v->f, if it is one. A bound symbol that still occurs in it would be a symbol without value. A base whose
 * structure is wrong has been reported, and is not compared. */
static void verify_case(struct verifier *v)
{
	const struct ir_case *c = v->f->when;
	if (c == NULL)
		return;
	const struct ir_func *base = ir_find_func(v->m, c->of);
	if (base == NULL || base == v->f || base->when != NULL) {
		verify_fail(v, v->f->loc,
		            base == NULL ? "a case of @%s, which does not exist"
		                         : "a case of @%s, which is a case itself",
		            c->of);
		return;
	}
	if (!is_sound(v, base))
		return;
	if (c->n == 0)
		verify_fail(v, v->f->loc, "a case of @%s without conditions", c->of);
	for (size_t i = 0; i < c->n; i++) {
		check_condition(v, base, i);
		int bound = binds(&c->conditions[i]) ? ir_dim_as_symbol(c->conditions[i].dim) : -1;
		if (bound >= 0 && ir_func_has_symbol(v->f, bound))
			verify_fail(v, v->f->loc, "%s is bound by this case, but occurs in it",
			            sym_name(v, bound));
	}
	check_params(v, base);
	check_results(v, base);
	check_reachable(v);
}

/* ---- memory plans ---- */

/*
 * Proves that a memory plan is right for all values of the dims: values whose live ranges overlap occupy disjoint
 * bytes, all values are inside the arena, the values of a carry have one offset, and a group overwrites a buffer it
 * reads only if its kernel allows that (ir/core/inplace.h). All comparisons are proofs over the bounds of the
 * dims (ir_dim_le); what cannot be proved is an error.
 *
 * Then every read sees the right value: SSA orders the definition before its uses, and nothing else is written to the
 * bytes until the last use.
 */

/* Bytes [at, end) of the arena. */
struct slot {
	struct ir_value value;
	const struct ir_dim *at, *end;
	const struct ir_dim *line_end; /* end rounded up to a multiple of 64 */
};

struct plan_verifier {
	struct verifier *v;
	struct ir_lifetimes life;
	const struct ir_dim **at; /* [n_values] offset, by carry; NULL: not in the arena */
	struct {
		struct slot *items;
		size_t n, cap;
	} slots; /* in order of the beginning of their live range */
	struct {
		size_t *items;
		size_t n, cap;
	} alive; /* indices of slots that may still be live */
};

/* ---- offsets of all values ---- */

/* Records the offset of result i of a group for its carry, whose values share memory and so need one offset. -1: not
 * in the arena. */
static void record_offset(struct plan_verifier *p, const struct ir_op *group, size_t i)
{
	const struct ir_dim *at = ((const struct attrs_group *)group->attrs)->at.items[i];
	const struct ir_dim **slot = &p->at[p->life.carry[group->results[i].id]];
	if (ir_type_of(p->v->f, group->results[i])->kind != IR_TENSOR || ir_dim_equals(at, -1))
		return;
	if (*slot != NULL && *slot != at)
		verify_fail(p->v, group->loc, "the values of a carry have different offsets");
	*slot = at;
}

/* Adds value v to the slots to be compared; not values outside of the arena, views, which are in their base's bytes,
 * and values that are never alive (an empty range). */
static void add_slot(struct plan_verifier *p, uint32_t v)
{
	struct ir_value value = {v};
	const struct ir_type *t = ir_type_of(p->v->f, value);
	const struct ir_dim *at = p->at[p->life.carry[v]];
	const struct ir_op *def = ir_def(p->v->f, value);
	bool is_view = def != NULL && ir_op_has(def->code, TRAIT_VIEW);
	if (at == NULL || t->kind != IR_TENSOR || is_view || p->life.first[v] > p->life.last[v])
		return;
	struct ir_dims *dims = p->v->m->dims;
	const struct ir_dim *bytes = ir_value_bytes(p->v->m, p->v->f, value), *line = ir_dim_const(dims, 64);
	const struct ir_dim *lines =
	        ir_dim_floordiv(dims, ir_dim_add(dims, bytes, ir_dim_const(dims, 63)), 64);
	ARENA_ADD(&p->v->arena, &p->slots,
	          (struct slot){value, at, ir_dim_add(dims, at, bytes),
	                        ir_dim_add(dims, at, ir_dim_mul(dims, line, lines))});
}

/* ---- comparisons ---- */

/* Proves that slot a ends at or before `at`. Offsets are multiples of 64, so the rounded end may be used as well. */
static bool ends_before(const struct plan_verifier *p, const struct slot *a, const struct ir_dim *at)
{
	struct ir_dims *dims = p->v->m->dims;
	return ir_dim_le(dims, a->end, at) || ir_dim_le(dims, a->line_end, at);
}

/* NULL if b may overwrite a in place: the group that defines b is the last user of a, at the same offset, and
 * its kernel allows it. Else the reason. */
static const char *inplace_refusal(const struct plan_verifier *p, const struct slot *a, const struct slot *b)
{
	size_t t = p->life.first[b->value.id];
	if (p->life.last[a->value.id] != t || t >= p->life.n_times)
		return "both are alive";
	const struct ir_op *group = p->life.groups[t];
	if (ir_def(p->v->f, b->value) != group || a->at != b->at || !ir_group_reads(p->v->f, group, a->value))
		return "both are alive";
	return ir_inplace_conflict(p->v->m, p->v->f, group, a->value);
}

/* `%name`, not made unique; in the verifier's arena. */
static const char *verify_value_string(struct verifier *v, struct ir_value value)
{
	const char *name = value.id < v->f->n_values ? ir_value_name(&v->arena, v->f, value) : NULL;
	return name != NULL ? arena_printf(&v->arena, "%%%s", name)
	                    : arena_printf(&v->arena, "value %u", value.id);
}

/* Reports b, which begins to live at or after a, if it may overlap a in time and memory: neither ends before the
 * other begins, and neither may overwrite the other in place. */
static void check_disjoint(struct plan_verifier *p, const struct slot *a, const struct slot *b)
{
	const struct ir_op *op = ir_def(p->v->f, b->value);
	const char *why;
	if (!ir_lifetimes_overlap(&p->life, a->value, b->value) || ends_before(p, a, b->at) ||
	    ends_before(p, b, a->at) || inplace_refusal(p, b, a) == NULL)
		return;
	why = inplace_refusal(p, a, b);
	if (why != NULL)
		verify_fail(p->v, op != NULL ? op->loc : p->v->f->loc, "%s may share bytes with %s: %s",
		            verify_value_string(p->v, b->value), verify_value_string(p->v, a->value), why);
}

/* ---- all pairs ---- */

/* Counting sort by the beginning of the live range, the order that check_all() needs. Equal times stay in order of
 * definition, so that the message is at the later one. add_slot() has left out values that are never alive. */
static bool sort_slots(struct plan_verifier *p)
{
	size_t n = p->life.n_times + 2, *start = ARENA_ARRAY(&p->v->arena, size_t, n + 1);
	struct slot *sorted = ARENA_ARRAY(&p->v->arena, struct slot, p->slots.n + 1);
	if (start == NULL || sorted == NULL)
		return false;
	for (size_t i = 0; i < p->slots.n; i++)
		start[p->life.first[p->slots.items[i].value.id] + 1]++;
	for (size_t t = 0; t < n; t++)
		start[t + 1] += start[t];
	for (size_t i = 0; i < p->slots.n; i++)
		sorted[start[p->life.first[p->slots.items[i].value.id]]++] = p->slots.items[i];
	p->slots.items = sorted;
	return true;
}

/* Checks every pair of values that are alive at one time, each when the later one begins; so a chain of in-place
 * updates needs no check of its own. Values that have died are dropped from the list on the way. */
static void check_all(struct plan_verifier *p)
{
	for (size_t i = 0; i < p->slots.n; i++) {
		struct slot *s = &p->slots.items[i];
		size_t kept = 0;
		if (!ends_before(p, s, p->v->f->arena))
			verify_fail(p->v, p->v->f->loc, "%s may lie outside of the arena",
			            verify_value_string(p->v, s->value));
		for (size_t k = 0; k < p->alive.n; k++) {
			const struct slot *a = &p->slots.items[p->alive.items[k]];
			if (p->life.last[a->value.id] < p->life.first[s->value.id])
				continue;
			check_disjoint(p, a, s);
			p->alive.items[kept++] = p->alive.items[k];
		}
		p->alive.n = kept;
		ARENA_ADD(&p->v->arena, &p->alive, i);
	}
}

/* The memory plan of v->f, whose structure has been verified. Without memory nothing is checked: ir_verify then
 * fails. */
static void verify_plan(struct verifier *v)
{
	struct plan_verifier p = {.v = v,
	                          .at = ARENA_ARRAY(&v->arena, const struct ir_dim *, v->f->n_values)};
	if (p.at == NULL || !ir_lifetimes(&v->arena, v->f, &p.life))
		return;
	for (size_t t = 0; t < p.life.n_times; t++)
		for (size_t i = 0; i < p.life.groups[t]->n_results; i++)
			record_offset(&p, p.life.groups[t], i);
	for (uint32_t i = 1; i < v->f->n_values; i++)
		add_slot(&p, i);
	if (!arena_failed(&v->arena) && sort_slots(&p))
		check_all(&p);
}

/* ---- modules, functions, ops ---- */

static const char *type_string(struct verifier *v, const struct ir_type *t)
{
	return t == NULL ? "without type" : ir_type_to_string(&v->arena, v->m->dims, t);
}

/* ---- declarations ---- */

/* Adds a name; reports a duplicate. Without memory the function has failed. NULL: no name. */
static void check_unique(struct verifier *v, struct strmap *names, const char *what, const char *name,
                         struct ir_loc loc)
{
	if (name == NULL)
		return;
	if (strmap_has(names, name))
		verify_fail(v, loc, "two %s are named '%s'", what, name);
	if (!strmap_set(names, name, NULL))
		v->n_failed++;
}

static bool is_constant(const struct ir_type *t)
{
	for (int i = 0; i < t->rank; i++)
		if (!ir_dim_is_const(t->dims[i], NULL))
			return false;
	return true;
}

/* The type is a tensor with constant dims, fits encoding and format, and has the shape of the weight's expression
 * (NULL: text without data). */
static void verify_weight(struct verifier *v, const struct ir_weight *w)
{
	if (w->type == NULL || w->type->kind != IR_TENSOR || !is_constant(w->type)) {
		verify_fail(v, w->loc, "the weight @%s is %s: weights have constant dims", w->name,
		            w->type == NULL ? "without type" : type_string(v, w->type));
		return;
	}
	if (w->encoding == ENC_PANEL16 && w->type->rank < 2)
		verify_fail(v, w->loc, "the weight @%s is %s: panels need two axes", w->name,
		            type_string(v, w->type));
	if (w->format != FORMAT_PLAIN && w->type->dtype != DT_F32)
		verify_fail(v, w->loc, "the weight @%s is %s: only f32 is stored as %s", w->name,
		            type_string(v, w->type), ir_format(w->format)->name);
	if (ir_format_is_quantized(w->format) && w->type->rank < 2)
		verify_fail(v, w->loc, "the weight @%s is %s: %s needs two axes", w->name,
		            type_string(v, w->type), ir_format(w->format)->name);
	if (w->init == NULL)
		return;
	if (w->format != FORMAT_PLAIN && !wexpr_fits_format(w->init, w->format))
		verify_fail(v, w->loc,
		            "the weight @%s is stored as %s, which does not represent its expression",
		            w->name, ir_format(w->format)->name);
	bool same = w->init->rank == w->type->rank;
	for (int i = 0; same && i < w->type->rank; i++)
		same = ir_dim_equals(w->type->dims[i], w->init->dims[i]);
	if (same)
		return;
	struct buf text;
	buf_init(&text);
	for (int i = 0; i < w->init->rank; i++)
		buf_printf(&text, "%s%lld", i > 0 ? "," : "", (long long)w->init->dims[i]);
	verify_fail(v, w->loc, "the weight @%s is %s, its expression has the shape [%s]", w->name,
	            type_string(v, w->type), text.data);
	buf_destroy(&text);
}

/* Axis 0 of a state is the batch, a symbol; packed panels need matrices (two axes after the batch) of a type that
 * kernels read from panels. */
static void verify_state(struct verifier *v, const struct ir_state_decl *s)
{
	if (s->type == NULL || s->type->kind != IR_TENSOR || s->type->rank < 1 ||
	    ir_dim_as_symbol(s->type->dims[0]) < 0)
		verify_fail(v, s->loc, "the state @%s is %s: its axis 0 must be a batch dim", s->name,
		            s->type == NULL ? "without type" : type_string(v, s->type));
	else if (s->encoding == ENC_PANEL16 && (s->type->rank < 3 || !ir_dtype_allows_panels(s->type->dtype)))
		verify_fail(v, s->loc,
		            "the state @%s is %s: only matrices of f32, f16, bf16 and i8 are #panel16",
		            s->name, type_string(v, s->type));
}

/* Names of weights, states and functions are unique; weights and states are valid. */
static void verify_declarations(struct verifier *v)
{
	struct strmap weights, states, funcs;
	strmap_init(&weights, &v->arena);
	strmap_init(&states, &v->arena);
	strmap_init(&funcs, &v->arena);
	for (size_t i = 0; i < v->m->weights.n; i++) {
		check_unique(v, &weights, "weights", v->m->weights.items[i]->name,
		             v->m->weights.items[i]->loc);
		verify_weight(v, v->m->weights.items[i]);
	}
	for (size_t i = 0; i < v->m->states.n; i++) {
		check_unique(v, &states, "states", v->m->states.items[i]->name, v->m->states.items[i]->loc);
		verify_state(v, v->m->states.items[i]);
	}
	for (size_t i = 0; i < v->m->funcs.n; i++)
		check_unique(v, &funcs, "functions", v->m->funcs.items[i]->name, v->m->funcs.items[i]->loc);
}

/* ---- signatures ---- */

static bool is_counts(const struct ir_type *t)
{
	return t != NULL && t->kind == IR_TENSOR && t->dtype == DT_I32 && t->rank == 1;
}

/* `lengths` of a parameter or result names a parameter i32[B]. */
static void verify_lengths(struct verifier *v, int lengths, const char *of, struct ir_loc loc)
{
	const struct ir_func *f = v->f;
	if (lengths < 0)
		return;
	if ((size_t)lengths >= f->n_params || !is_counts(ir_type_of(f, f->params[lengths].value)))
		verify_fail(v, loc, "the lengths of '%s' are not a parameter i32[B]", of);
}

/* A default is a dim for ints, a constant for bools and floats; of the two fields the other one must be unset. */
static bool default_fits(const struct ir_param *p, const struct ir_type *t)
{
	if (t->kind != IR_TENSOR)
		return false;
	switch (ir_dtype_class(t->dtype)) {
	case DTCLASS_BOOL: return p->default_value == NULL && (p->fill == 0.0 || p->fill == 1.0);
	case DTCLASS_INT: return p->default_value != NULL && p->fill == 0.0;
	case DTCLASS_FLOAT: return p->default_value == NULL || p->fill == 0.0;
	}
	return false;
}

/* The properties of a parameter suit its type: past lengths are i32[B], only i32 has bounds (ids and counts are
 * i32), a default is of its class. */
static void verify_param(struct verifier *v, const struct ir_param *p)
{
	const struct ir_type *t = ir_type_of(v->f, p->value);
	const char *name = p->name != NULL ? p->name : "";
	bool counts = is_counts(t);
	verify_lengths(v, p->lengths, name, p->loc);
	if (p->role == ROLE_PAST && !counts)
		verify_fail(v, p->loc, "the past length '%s' is %s, not i32[B]", name, type_string(v, t));
	if ((p->below > 0 || p->max != NULL) && (t->kind != IR_TENSOR || t->dtype != DT_I32))
		verify_fail(v, p->loc, "'%s' is %s: only i32 has checked values", name, type_string(v, t));
	if (p->has_default && !default_fits(p, t))
		verify_fail(v, p->loc, "'%s' is %s, which cannot be filled with its default", name,
		            type_string(v, t));
}

/* Names and states are unique; states come after all other parameters, which generated functions rely on. */
static void verify_params(struct verifier *v)
{
	const struct ir_func *f = v->f;
	struct strmap names, states;
	bool state = false;
	strmap_init(&names, &v->arena);
	strmap_init(&states, &v->arena);
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		const struct ir_type *t = ir_type_of(f, p->value);
		check_unique(v, &names, "parameters", p->name, p->loc);
		verify_param(v, p);
		if (t->kind == IR_STATE)
			check_unique(v, &states, "parameters for states", t->state->name, p->loc);
		else if (state)
			verify_fail(v, p->loc, "the parameter '%s' comes after a state",
			            p->name ? p->name : "");
		state = state || t->kind == IR_STATE;
	}
}

/* Parameters and results with unique names and valid properties; results as many as are returned, else they cannot
 * be matched. */
static void verify_signature(struct verifier *v)
{
	const struct ir_func *f = v->f;
	const struct ir_op *last = f->body->ops[f->body->n_ops - 1];
	struct strmap names;
	verify_params(v);
	strmap_init(&names, &v->arena);
	if (last->n_operands != f->n_results) {
		verify_fail(v, f->loc, "%zu results are declared, %zu are returned", f->n_results,
		            last->n_operands);
		return;
	}
	for (size_t i = 0; i < f->n_results; i++) {
		const struct ir_result *r = &f->results[i];
		const struct ir_type *t = ir_type_of(f, last->operands[i]);
		check_unique(v, &names, "results", r->name, f->loc);
		verify_lengths(v, r->lengths, r->name != NULL ? r->name : "", f->loc);
		if (r->role == ROLE_PAST && !is_counts(t))
			verify_fail(v, f->loc, "the past length among the results is %s, not i32[B]",
			            type_string(v, t));
	}
}

/* ---- stages ---- */

#define PAD_MAX 1024

static const char *stage_name(enum ir_stage s)
{
	switch (s) {
	case STAGE_GRAPH: return "graph";
	case STAGE_GROUPS: return "groups";
	case STAGE_PLAN: return "plan";
	}
	return "";
}

/* An arena offset that is a multiple of 64 (a cache line) for all values of the symbols, by its coefficients; or -1:
 * memory of the caller (an output, a state). */
static bool is_offset(const struct ir_dims *dims, const struct ir_dim *d)
{
	if (ir_dim_equals(d, -1))
		return true;
	for (size_t i = 0; i < d->n_terms; i++)
		if (d->terms[i].coeff % 64 != 0)
			return false;
	return ir_dim_lo(dims, d) >= 0;
}

/* In stage plan a group has one arena offset for each result, else none. */
static void verify_offsets(struct verifier *v, const struct ir_op *op, const struct attrs_group *a)
{
	if (v->m->stage != STAGE_PLAN) {
		if (a->at.n > 0)
			verify_fail(v, op->loc, "a group has offsets before the stage plan");
		return;
	}
	if (a->at.n != op->n_results) {
		verify_fail(v, op->loc, "a group has %zu results and %zu offsets", op->n_results, a->at.n);
		return;
	}
	for (size_t i = 0; i < a->at.n; i++)
		if (!is_offset(v->m->dims, a->at.items[i]))
			verify_fail(v, op->loc, "offset %zu of a group is neither a multiple of 64 nor -1",
			            i);
}

/* Only a group with one result, in memory of its own, may pad its rows, by `pad` elements after each, so that rows do
 * not meet in one cache set; this is decided when compiling, so rows have a constant length. Row padding is an
 * attribute of the group, and a state slice has the layout of the state; returned and carried values:
 * verify_stage(). */
static void verify_pad(struct verifier *v, const struct ir_op *op, const struct attrs_group *a)
{
	const struct ir_type *t = op->n_results == 1 ? ir_type_of(v->f, op->results[0]) : NULL;
	int64_t row;
	if (a->pad == 0)
		return;
	if (a->pad < 0 || a->pad > PAD_MAX || t == NULL || t->kind != IR_TENSOR || t->rank < 2 ||
	    !ir_dim_is_const(t->dims[t->rank - 1], &row) || ir_is_state_slice(v->f, op->results[0]))
		verify_fail(
		        v, op->loc,
		        "pad=%lld: it may be up to %d, in a group whose one result has rows of a constant "
		        "length",
		        (long long)a->pad, PAD_MAX);
}

/* Bounds of a group's sizes, with which generators compute without overflow: those of select, rounded up. */
#define GROUP_SIZE_MAX ((int64_t)1 << 32)
#define SPLIT_MAX      4096

/* A group has the attributes that kernels of its kind read. What else bounds the sizes, target and format, is checked
 * when its nest is chosen (backends/kernels/nest.h). */
static void verify_schedule(struct verifier *v, const struct ir_op *op, const struct attrs_group *a)
{
	for (const struct ir_attr_desc *d = ir_op_desc(OP_group)->attrs; d->name != NULL; d++) {
		const void *at = (const char *)op->attrs + d->offset;
		int64_t size = d->kind == ATTR_INT ? *(const int64_t *)at : 0;
		bool is_read = d->kinds == 0 || (d->kinds >> a->kind & 1) != 0;
		if (size < 0 || size > GROUP_SIZE_MAX)
			verify_fail(v, op->loc, "%s=%lld of a group: it may be 0 to 2^32", d->name,
			            (long long)size);
		if (!is_read && !ir_attr_is_default(d, at))
			verify_fail(v, op->loc, "%s of a group %s: no kernel of this kind reads it", d->name,
			            ir_keyword(KEYWORDS_GROUP, a->kind));
	}
	if (a->split > SPLIT_MAX)
		verify_fail(v, op->loc, "split=%lld of a group: it may be up to %d", (long long)a->split,
		            SPLIT_MAX);
}

static bool is_softmax(enum ir_opcode code)
{
	return code == OP_softmax || code == OP_log_softmax || code == OP_masked_softmax;
}

/*
 * Contractions and softmaxes are roots. In a prologue or epilogue they would be recomputed: a contraction for every
 * element that reads it, a softmax in every pass over its row.
 */
static void verify_roots(struct verifier *v, const struct ir_op *group, const struct ir_op *root)
{
	const struct ir_region *r = group->region;
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i] != root &&
		    (is_softmax(r->ops[i]->code) || ir_op_has(r->ops[i]->code, TRAIT_CONTRACT)))
			verify_fail(v, r->ops[i]->loc, "%s is not the root of its group",
			            ir_op_desc(r->ops[i]->code)->name);
}

/* The root is an op of the group (before the yield, no weight reference), no op has a region, offsets and padding
 * are valid, and contractions are roots. */
static void verify_group(struct verifier *v, const struct ir_op *op)
{
	const struct attrs_group *a = op->attrs;
	const struct ir_region *r = op->region;
	if (a->root < 0 || (size_t)a->root + 1 >= r->n_ops || r->ops[a->root]->code == OP_weight)
		verify_fail(v, op->loc, "the root of a group (position %lld) is not one of its %zu ops",
		            (long long)a->root, r->n_ops - 1);
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->region != NULL)
			verify_fail(v, r->ops[i]->loc, "%s inside a group",
			            ir_op_desc(r->ops[i]->code)->name);
	verify_offsets(v, op, a);
	verify_pad(v, op, a);
	verify_schedule(v, op, a);
	if (a->root < 0 || (size_t)a->root + 1 >= r->n_ops)
		return;
	verify_roots(v, op, r->ops[a->root]);
}

/* Regions, terminators, views, weights and constants that views read, and state_read, whose slice is read in place:
 * none of them needs a kernel. */
static bool allowed_outside(enum ir_opcode code)
{
	return code == OP_state_read || ir_op_has(code, TRAIT_REGION) || ir_op_has(code, TRAIT_TERMINATOR) ||
	       ir_op_has(code, TRAIT_VIEW) || ir_op_has(code, TRAIT_CONST);
}

/* The stage allows op outside of groups: from the stage groups on every computation is in a group, which becomes a
 * kernel. */
static void verify_stage(struct verifier *v, const struct ir_op *op)
{
	if (op->code == OP_group && v->m->stage == STAGE_GRAPH)
		verify_fail(v, op->loc, "a group in the stage graph");
	else if (op->code == OP_group)
		verify_group(v, op);
	else if (v->m->stage != STAGE_GRAPH && !allowed_outside(op->code))
		verify_fail(v, op->loc, "%s outside of a group in the stage %s", ir_op_desc(op->code)->name,
		            stage_name(v->m->stage));
	if (op->code == OP_repeat || ir_op_has(op->code, TRAIT_TERMINATOR)) {
		/* Carried and returned values, in memory of a carry or of the caller, have no padded rows. */
		for (size_t i = 0; i < op->n_operands; i++)
			if (op->operands[i].id != 0 &&
			    ir_row_pad(v->f, ir_view_base(v->f, op->operands[i])) != 0)
				verify_fail(v, op->loc, "%s of a value with padded rows (pad)",
				            ir_op_desc(op->code)->name);
	}
}

/* ---- operands ---- */

/* Operand i of op may have id 0: it is optional. Variadic operands are all there. */
static bool may_be_absent(const struct ir_op *op, size_t i)
{
	const struct ir_operand_desc *d = ir_op_desc(op->code)->operands;
	for (size_t k = 0; d->name != NULL; k++, d++) {
		if (d->kind == OPERAND_VARIADIC)
			return false;
		if (k == i)
			return d->kind == OPERAND_OPTIONAL;
	}
	return false;
}

/* A state may be used inside of a group, but not of a repeat, which would use it once per iteration. from: the
 * region that defines it, to: that of the user. */
static bool state_may_cross(const struct ir_region *from, const struct ir_region *to)
{
	while (to != from && to->owner != NULL && to->owner->code == OP_group)
		to = to->parent;
	return to == from;
}

/* Operand i is a value that is visible here, unless it is absent. False if it is not, since types cannot be
 * checked then. */
static bool verify_operand(struct verifier *v, const struct ir_region *r, const struct ir_op *op, size_t i)
{
	struct ir_value x = op->operands[i];
	const char *name = ir_op_desc(op->code)->name;
	if (x.id == 0 && may_be_absent(op, i))
		return true;
	if (x.id == 0 || x.id >= v->f->n_values) {
		verify_fail(v, op->loc, "operand %zu of %s is no value", i, name);
		return false;
	}
	if (!v->visible[x.id]) {
		verify_fail(v, op->loc, "operand %zu of %s (%s) is not defined before it, or not visible", i,
		            name, verify_value_string(v, x));
		return false;
	}
	if (ir_type_of(v->f, x)->kind == IR_STATE && !state_may_cross(ir_value_info(v->f, x)->region, r))
		verify_fail(v, op->loc, "%s uses the state %s of an enclosing region: carry it", name,
		            verify_value_string(v, x));
	const struct ir_op *def = ir_def(v->f, x);
	if (op->code == OP_weight && def != NULL && def->code == OP_weight)
		verify_fail(v, op->loc, "an index of the weight reference is itself a weight");
	return true;
}

/* ---- types ---- */

static void expect_type(struct verifier *v, const struct ir_op *op, const char *what, size_t i,
                        const struct ir_type *a, const struct ir_type *b)
{
	if (a != b)
		verify_fail(v, op->loc, "%s %zu of %s is %s, it should be %s", what, i,
		            ir_op_desc(op->code)->name, type_string(v, a), type_string(v, b));
}

/* An op without region: infers its types again, from operands whose visibility is verified. False if that fails
 * (ir_infer reports by itself): what follows may read operands that the op does not have. */
static bool verify_plain(struct verifier *v, const struct ir_op *op)
{
	const struct ir_type *got[2] = {NULL, NULL};
	const struct ir_type **in = ARENA_ARRAY(&v->arena, const struct ir_type *, op->n_operands + 1);
	const char *name = ir_op_desc(op->code)->name;
	if (op->attrs == NULL || op->n_results != ir_op_desc(op->code)->results || op->n_results > 2) {
		verify_fail(v, op->loc, "%s has no attributes or %zu results", name, op->n_results);
		return false;
	}
	for (size_t i = 0; in != NULL && i < op->n_operands; i++)
		in[i] = op->operands[i].id == 0 ? NULL : ir_type_of(v->f, op->operands[i]);
	if (op->code == OP_weight) {
		const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
		if (w == NULL || ir_find_weight(v->m, w->name) != w) {
			verify_fail(v, op->loc, "a reference to a weight that is not in the module");
			return false;
		}
	}
	if (in == NULL || !ir_infer(v->m, v->cx, op->loc, op->code, in, op->n_operands, op->attrs, got)) {
		v->n_failed++;
		return false;
	}
	for (size_t i = 0; i < op->n_results; i++)
		expect_type(v, op, "result", i, ir_type_of(v->f, op->results[i]), got[i]);
	return true;
}

/* Inits, arguments after the index, yields and results of a repeat are equal in number and types. */
static void verify_repeat(struct verifier *v, const struct ir_op *op, const struct ir_op *yield)
{
	const struct ir_region *r = op->region;
	size_t n = op->n_operands;
	if (r->n_args != n + 1 || op->n_results != n || yield->n_operands != n) {
		verify_fail(v, op->loc, "repeat has %zu inits, %zu arguments, %zu yields and %zu results", n,
		            r->n_args, yield->n_operands, op->n_results);
		return;
	}
	expect_type(v, op, "argument", 0, ir_type_of(v->f, r->args[0]),
	            ir_type_tensor(v->m->types, DT_I32, 0, NULL));
	for (size_t i = 0; i < n; i++) {
		const struct ir_type *t = ir_type_of(v->f, op->operands[i]);
		expect_type(v, op, "argument", i + 1, ir_type_of(v->f, r->args[i + 1]), t);
		expect_type(v, op, "yield", i, ir_type_of(v->f, yield->operands[i]), t);
		expect_type(v, op, "result", i, ir_type_of(v->f, op->results[i]), t);
	}
}

/* A group has no operands and arguments: its ops use outer values. Its results have the types of the yields. */
static void verify_group_types(struct verifier *v, const struct ir_op *op, const struct ir_op *yield)
{
	if (op->region->n_args != 0 || op->n_operands != 0 || op->n_results != yield->n_operands) {
		verify_fail(v, op->loc, "group has %zu arguments, %zu yields and %zu results",
		            op->region->n_args, yield->n_operands, op->n_results);
		return;
	}
	for (size_t i = 0; i < op->n_results; i++)
		expect_type(v, op, "result", i, ir_type_of(v->f, op->results[i]),
		            ir_type_of(v->f, yield->operands[i]));
}

/* ---- regions ---- */

/* The values exist, each once, and their records say where they are defined. False if not: nothing may read them. */
static bool check_records(struct verifier *v, const struct ir_value *values, size_t n,
                          const struct ir_op *def, const struct ir_region *r, struct ir_loc loc)
{
	for (size_t i = 0; i < n; i++) {
		struct ir_value x = values[i];
		if (x.id == 0 || x.id >= v->f->n_values || v->visible[x.id]) {
			verify_fail(v, loc, "a value is defined twice or does not exist");
			return false;
		}
		const struct ir_value_info *info = ir_value_info(v->f, x);
		if (info->type == NULL || info->def != def || info->index != i || info->region != r) {
			verify_fail(v, loc, "the record of %s is wrong", verify_value_string(v, x));
			return false;
		}
	}
	return true;
}

/* Makes values with valid records visible; states are linear: they must be used exactly once. */
static void define(struct verifier *v, const struct ir_value *values, size_t n, struct ir_loc loc)
{
	for (size_t i = 0; i < n; i++) {
		struct ir_value x = values[i];
		v->visible[x.id] = true;
		if (ir_type_of(v->f, x)->kind == IR_STATE && v->uses[x.id] != 1)
			verify_fail(v, loc, "the state %s is used %u times: it must be used once",
			            verify_value_string(v, x), v->uses[x.id]);
	}
}

static void hide(struct verifier *v, const struct ir_value *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (values[i].id < v->f->n_values)
			v->visible[values[i].id] = false;
}

static bool verify_region(struct verifier *v, const struct ir_region *r, struct ir_loc loc, bool in_group);

/* Operands, then the region with the values before it visible, then types; results become visible at the end. False
 * if later ops of the region cannot be checked. */
static bool verify_op(struct verifier *v, const struct ir_region *r, const struct ir_op *op, bool in_group)
{
	bool ok = true;
	for (size_t i = 0; i < op->n_operands; i++)
		ok = verify_operand(v, r, op, i) && ok;
	if (!ok || !check_records(v, op->results, op->n_results, op, r, op->loc))
		return false;
	bool has_region = ir_op_has(op->code, TRAIT_REGION);
	if (has_region &&
	    (op->region == NULL || op->region->owner != op || op->region->parent != r || op->attrs == NULL)) {
		verify_fail(v, op->loc, "%s has no region", ir_op_desc(op->code)->name);
		return false;
	}
	if (!in_group)
		verify_stage(v, op);
	if (has_region) {
		if (!verify_region(v, op->region, op->loc, in_group || op->code == OP_group))
			return false;
		const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
		if (op->code == OP_repeat)
			verify_repeat(v, op, yield);
		else
			verify_group_types(v, op, yield);
	} else if (!ir_op_has(op->code, TRAIT_TERMINATOR) && !verify_plain(v, op)) {
		return false;
	}
	define(v, op->results, op->n_results, op->loc);
	return true;
}

/* A region ends in return (function) or yield, and has no other terminator; false after a report. So the last op of
 * a region may be read without a test. */
static bool check_terminator(struct verifier *v, const struct ir_region *r, struct ir_loc loc)
{
	enum ir_opcode end = r->owner == NULL ? OP_return : OP_yield;
	bool ok = r->n_ops > 0 && r->ops[r->n_ops - 1]->code == end;
	for (size_t i = 0; ok && i + 1 < r->n_ops; i++)
		ok = !ir_op_has(r->ops[i]->code, TRAIT_TERMINATOR);
	if (!ok)
		verify_fail(v, loc, "a region does not end in its only '%s'", ir_op_desc(end)->name);
	return ok;
}

/* Checks ops in order, with the values defined so far visible, and hides the region's values after it. False if
 * the enclosing op cannot be checked. */
static bool verify_region(struct verifier *v, const struct ir_region *r, struct ir_loc loc, bool in_group)
{
	if (!check_terminator(v, r, loc) || !check_records(v, r->args, r->n_args, NULL, r, loc))
		return false;
	define(v, r->args, r->n_args, loc);
	bool ok = true;
	for (size_t i = 0; ok && i < r->n_ops; i++)
		ok = verify_op(v, r, r->ops[i], in_group);
	hide(v, r->args, r->n_args);
	for (size_t i = 0; i < r->n_ops; i++)
		hide(v, r->ops[i]->results, r->ops[i]->n_results);
	return ok;
}

/* The parameters are the arguments of the body. */
static bool params_are_args(const struct ir_func *f)
{
	bool same = f->n_params == f->body->n_args;
	for (size_t i = 0; same && i < f->n_params; i++)
		same = ir_same_value(f->params[i].value, f->body->args[i]);
	return same;
}

/* Regions, operands, values and types of v->f. False after a report, or without memory. */
static bool verify_structure(struct verifier *v)
{
	const struct ir_func *f = v->f;
	if (f->body == NULL || f->body->owner != NULL || f->body->parent != NULL || !params_are_args(f)) {
		verify_fail(v, f->loc, "the function has no body with its parameters");
		return false;
	}
	v->visible = ARENA_ARRAY(&v->arena, bool, f->n_values + 1);
	v->uses = ir_count_uses(&v->arena, f);
	return v->visible != NULL && v->uses != NULL && verify_region(v, f->body, f->loc, false);
}

/* Signature, case and plan of v->f, which rely on the structure of all functions. */
static void verify_func(struct verifier *v)
{
	verify_signature(v);
	verify_case(v);
	if (v->m->stage == STAGE_PLAN && v->f->arena == NULL)
		verify_fail(v, v->f->loc, "no arena in the stage plan");
	if (v->m->stage == STAGE_PLAN && v->n_failed == 0)
		verify_plan(v);
}

/* One arena for all functions; a failed allocation counts only if nothing was reported. */
enum tfmc_status ir_verify(struct ir_module *m, struct diag_context *cx)
{
	struct verifier v = {.m = m, .cx = cx};
	arena_init(&v.arena);
	verify_declarations(&v);
	bool *sound = ARENA_ARRAY(&v.arena, bool, m->funcs.n + 1);
	v.sound = sound;
	for (size_t i = 0; sound != NULL && i < m->funcs.n; i++) {
		v.f = m->funcs.items[i];
		sound[i] = verify_structure(&v);
	}
	for (size_t i = 0; sound != NULL && i < m->funcs.n; i++) {
		v.f = m->funcs.items[i];
		if (sound[i])
			verify_func(&v);
	}
	bool memory = !arena_failed(&v.arena);
	arena_destroy(&v.arena);
	if (v.n_failed > 0)
		return TFMC_INVALID;
	return memory ? TFMC_OK : TFMC_NO_MEMORY;
}
