/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units, demands and the decision. A weight is changed when every one of its
 * uses demands the same list of changes; refusing a unit takes its demands away,
 * which may refuse others, until nothing moves.
 */
#include "passes/folds/weight_changes.h"

#include <math.h>
#include <string.h>

#include "passes/folds/feature_rows.h"

#define CHANGES_MAX 16 /* of one weight */

struct changed_weight {
	const struct ir_weight *weight;
	size_t uses; /* in all functions */
	struct {
		size_t *items;
		size_t n, cap;
	} demands;                   /* numbers, in order */
	const struct ir_wexpr *init; /* decided */
	const char *name;
};

enum tfmc_status weight_changes_init(struct weight_changes *c, struct pass_context *p,
                                     const struct ir_module *in)
{
	*c = (struct weight_changes){.p = p, .in = in};
	strmap_init(&c->by_name, p->arena);
	c->uses = ARENA_ARRAY(p->arena, struct value_uses, in->funcs.n + 1);
	if (c->uses == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < in->funcs.n; i++)
		if (!value_uses_of(p->arena, in->funcs.items[i], &c->uses[i]))
			return TFMC_NO_MEMORY;
	return TFMC_OK;
}

size_t weight_changes_unit(struct weight_changes *c, const struct ir_func *f, const struct ir_op *op)
{
	struct change_unit *u = ARENA_PUSH(c->p->arena, &c->units);
	if (u == NULL)
		return 0;
	*u = (struct change_unit){.f = f, .op = op};
	if (op != NULL && c->f == f && c->of_value != NULL)
		c->of_value[op->results[0].id] = c->units.n;
	return c->units.n - 1;
}

void weight_changes_refuse(struct weight_changes *c, size_t unit, const char *why)
{
	if (unit < c->units.n && c->units.items[unit].why == NULL)
		c->units.items[unit].why = why;
}

void weight_changes_link(struct weight_changes *c, size_t a, size_t b)
{
	struct unit_link *l = ARENA_PUSH(c->p->arena, &c->links);
	if (l != NULL)
		*l = (struct unit_link){a, b};
}

struct change_unit *weight_changes_find(struct weight_changes *c, const struct ir_func *f,
                                        const struct ir_op *op)
{
	if (op->n_results == 0)
		return NULL;
	if (c->f != f) {
		c->f = f;
		c->of_value = ARENA_ARRAY(c->p->arena, size_t, f->n_values);
		for (size_t i = 0; c->of_value != NULL && i < c->units.n; i++)
			if (c->units.items[i].f == f)
				c->of_value[c->units.items[i].op->results[0].id] = i + 1;
	}
	size_t at = c->of_value != NULL ? c->of_value[op->results[0].id] : 0;
	return at > 0 ? &c->units.items[at - 1] : NULL;
}

/* --- demands ------------------------------------------------------------------------------------------- */

bool change_is_exact(double f)
{
	int exponent;
	return isfinite(f) && fabs(frexp(f, &exponent)) == 0.5 && exponent > -64 && exponent < 64;
}

static const struct ir_weight *weight_of(const struct ir_op *op)
{
	return ((const struct attrs_weight *)op->attrs)->weight;
}

const struct ir_op *weight_changes_constant(const struct ir_func *f, const struct ir_op *op, size_t i)
{
	if (i >= op->n_operands || op->operands[i].id == 0)
		return NULL;
	const struct ir_op *def = ir_def(f, op->operands[i]);
	return def != NULL && def->code == OP_weight ? def : NULL;
}

static size_t count_uses(const struct weight_changes *c, const struct ir_weight *w)
{
	size_t n = 0;
	for (size_t i = 0; i < c->in->funcs.n; i++) {
		const struct value_uses *u = &c->uses[i];
		for (uint32_t v = 1; v < u->f->n_values; v++) {
			const struct ir_op *def = u->f->values[v].def;
			if (def != NULL && def->code == OP_weight && weight_of(def) == w)
				n += u->first[v + 1] - u->first[v];
		}
	}
	return n;
}

static struct changed_weight *changed_weight(struct weight_changes *c, const struct ir_weight *w)
{
	struct changed_weight *x = strmap_get(&c->by_name, w->name);
	if (x != NULL)
		return x;
	x = ARENA_NEW(c->p->arena, struct changed_weight);
	if (x == NULL || !strmap_set(&c->by_name, w->name, x))
		return NULL;
	x->weight = w;
	x->uses = count_uses(c, w);
	return x;
}

/* Rounding once more than the model does is nothing in f32, but much in short types. */
static bool rounds_badly(const struct ir_weight *w, const struct weight_change *change)
{
	bool is_long = w->type->dtype == DT_F32 || w->type->dtype == DT_F64;
	return change->kind == CHANGE_SCALE && !is_long && !change_is_exact(change->factor);
}

const char *weight_changes_demand(struct weight_changes *c, size_t unit, const struct ir_func *f,
                                  const struct value_use *use, const struct weight_change *change)
{
	const struct ir_op *ref = weight_changes_constant(f, use->op, use->operand);
	int64_t rows;
	if (ref == NULL)
		return "it does not come from weights";
	const struct ir_weight *w = weight_of(ref);
	int axis = (int)ref->n_operands;
	if (w->init == NULL || w->encoding != ENC_ROW || axis >= w->type->rank ||
	    !ir_dim_is_const(w->type->dims[axis], &rows) || !wexpr_rows_fit(&change->rows, rows))
		return arena_printf(c->p->arena, "@%s has no provenance", w->name);
	if (change->kind != CHANGE_HALVES && w->narrow != DT_F32)
		return arena_printf(c->p->arena, "@%s is kept as %s", w->name, ir_dtype_name(w->narrow));
	if (rounds_badly(w, change))
		return arena_printf(c->p->arena, "@%s is %s, and the factor is no power of two", w->name,
		                    ir_dtype_name(w->type->dtype));
	struct changed_weight *x = changed_weight(c, w);
	struct weight_demand *d = ARENA_PUSH(c->p->arena, &c->demands);
	if (x == NULL || d == NULL)
		return "memory ran out";
	*d = (struct weight_demand){unit, w, axis, *use, *change};
	size_t *slot = ARENA_PUSH(c->p->arena, &x->demands);
	if (slot == NULL)
		return "memory ran out";
	*slot = c->demands.n - 1;
	return NULL;
}

void weight_changes_drop(struct weight_changes *c, size_t from)
{
	while (c->demands.n > from) {
		const struct weight_demand *d = &c->demands.items[--c->demands.n];
		struct changed_weight *x = strmap_get(&c->by_name, d->weight->name);
		x->demands.n--;
	}
}

/* --- decision ------------------------------------------------------------------------------------------ */

static bool same_change(const struct weight_change *a, const struct weight_change *b)
{
	return a->kind == b->kind && feature_rows_equal(&a->rows, &b->rows) && a->factor == b->factor &&
	       (a->addend == b->addend ||
	        (a->addend != NULL && b->addend != NULL && wexpr_equal(a->addend, b->addend)));
}

static bool is_live(const struct weight_changes *c, size_t demand)
{
	return c->units.items[c->demands.items[demand].unit].why == NULL;
}

/* What one use of a weight wants. */
struct wish {
	struct value_use use;
	const struct weight_demand *items[CHANGES_MAX]; /* by their first row */
	size_t n;
};

static bool same_use(const struct value_use *a, const struct value_use *b)
{
	return a->op == b->op && a->operand == b->operand;
}

static bool add_wish(struct wish *w, const struct weight_demand *d)
{
	size_t at = w->n;
	if (w->n == CHANGES_MAX)
		return false;
	while (at > 0 && w->items[at - 1]->change.rows.start > d->change.rows.start) {
		w->items[at] = w->items[at - 1];
		at--;
	}
	w->items[at] = d;
	w->n++;
	return true;
}

static bool read_wish(const struct weight_changes *c, const struct changed_weight *x,
                      const struct value_use *use, struct wish *out)
{
	*out = (struct wish){.use = *use};
	for (size_t i = 0; i < x->demands.n; i++) {
		const struct weight_demand *d = &c->demands.items[x->demands.items[i]];
		if (is_live(c, x->demands.items[i]) && same_use(&d->use, use) && !add_wish(out, d))
			return false;
	}
	return true;
}

static bool same_wish(const struct wish *a, const struct wish *b)
{
	bool same = a->n == b->n;
	for (size_t i = 0; same && i < a->n; i++)
		same = same_change(&a->items[i]->change, &b->items[i]->change) &&
		       a->items[i]->axis == b->items[i]->axis;
	return same;
}

/* The common wish of all uses; false when they differ or some have none. n 0: nobody wants anything. */
static bool common_wish(const struct weight_changes *c, const struct changed_weight *x, struct wish *out)
{
	size_t n_uses = 0;
	*out = (struct wish){.n = 0};
	for (size_t i = 0; i < x->demands.n; i++) {
		const struct value_use *use = &c->demands.items[x->demands.items[i]].use;
		struct wish w;
		bool seen = false;
		for (size_t k = 0; k < i && !seen; k++)
			seen = is_live(c, x->demands.items[k]) &&
			       same_use(&c->demands.items[x->demands.items[k]].use, use);
		if (!is_live(c, x->demands.items[i]) || seen)
			continue;
		if (!read_wish(c, x, use, &w) || (n_uses > 0 && !same_wish(out, &w)))
			return false;
		if (n_uses++ == 0)
			*out = w;
	}
	return n_uses == 0 || n_uses == x->uses;
}

/* n rows of the axis, all v, with the leading axes of w. */
static const struct ir_wexpr *rows_of(struct arena *a, const struct ir_wexpr *w, int axis, int64_t n,
                                      double v)
{
	int64_t dims[IR_RANK_MAX] = {0};
	for (int i = 0; i < axis; i++)
		dims[i] = w->dims[i];
	dims[axis] = n;
	return wexpr_full(a, v, axis + 1, dims);
}

struct wexpr_parts {
	const struct ir_wexpr **items;
	size_t n, cap;
};

static void add_rows(struct arena *a, struct wexpr_parts *parts, const struct ir_wexpr *rows)
{
	const struct ir_wexpr **slot = ARENA_PUSH(a, parts);
	if (slot != NULL)
		*slot = rows;
}

/* w with some rows of the axis times f: mul(w, the factors of all rows). */
static const struct ir_wexpr *scale_rows(struct arena *a, const struct ir_wexpr *w, int axis,
                                         const struct weight_change *change)
{
	struct wexpr_rows r = change->rows;
	struct wexpr_parts parts = {0};
	int64_t at = 0, n = w->dims[axis];
	if (r.step == r.size)
		r = (struct wexpr_rows){r.start, 1, r.heads * r.size, r.heads * r.size};
	if (r.start == 0 && r.size == n)
		return wexpr_unary(a, WX_SCALE, change->factor, w);
	for (int64_t h = 0; h < r.heads; h++) {
		int64_t begin = r.start + h * r.step;
		if (begin > at)
			add_rows(a, &parts, rows_of(a, w, axis, begin - at, 1));
		add_rows(a, &parts, rows_of(a, w, axis, r.size, change->factor));
		at = begin + r.size;
	}
	if (at < n)
		add_rows(a, &parts, rows_of(a, w, axis, n - at, 1));
	if (arena_failed(a))
		return NULL;
	return wexpr_binary(a, WX_MUL, w, wexpr_concat(a, axis, parts.n, parts.items));
}

static const struct ir_wexpr *apply(struct arena *a, const struct ir_wexpr *w, const struct weight_demand *d)
{
	const struct wexpr_rows *r = &d->change.rows;
	switch (d->change.kind) {
	case CHANGE_SCALE: return scale_rows(a, w, d->axis, &d->change);
	case CHANGE_ADD: return wexpr_binary(a, WX_ADD, w, d->change.addend);
	case CHANGE_HALVES:
		if (d->axis == 0 && r->start == 0 && r->step == r->size && r->heads * r->size == w->dims[0])
			return wexpr_rope(a, WX_ROPE_I2H, r->heads, w);
		return wexpr_rope_rows(a, WX_ROPE_I2H, d->axis, r, w);
	}
	return NULL;
}

/* Refuses the units of all live demands. */
static void refuse_weight(struct weight_changes *c, const struct changed_weight *x, const char *why)
{
	for (size_t i = 0; i < x->demands.n; i++)
		weight_changes_refuse(c, c->demands.items[x->demands.items[i]].unit, why);
}

/* False when units were refused. */
static bool decide_weight(struct weight_changes *c, struct changed_weight *x)
{
	struct wish w;
	x->init = NULL;
	if (!common_wish(c, x, &w)) {
		refuse_weight(c, x, arena_printf(c->p->arena, "@%s is also used elsewhere", x->weight->name));
		return false;
	}
	if (w.n == 0)
		return true;
	const struct ir_wexpr *e = x->weight->init;
	x->name = x->weight->name;
	for (size_t i = 0; i < w.n && e != NULL; i++) {
		e = apply(c->p->arena, e, w.items[i]);
		if (w.items[i]->change.name != NULL)
			x->name = w.items[i]->change.name;
	}
	if (e == NULL) {
		refuse_weight(c, x, "the provenance of its weights would nest too deep");
		return false;
	}
	x->init = e;
	return true;
}

static bool spread(struct weight_changes *c)
{
	bool moved = false;
	for (size_t i = 0; i < c->links.n; i++) {
		struct change_unit *a = &c->units.items[c->links.items[i].a];
		struct change_unit *b = &c->units.items[c->links.items[i].b];
		if ((a->why == NULL) == (b->why == NULL))
			continue;
		if (a->why == NULL)
			a->why = b->why;
		else
			b->why = a->why;
		moved = true;
	}
	return moved;
}

/* --- applications: sets of units that stand and fall together ------------------------------------------- */

static size_t root_of(size_t *parent, size_t i)
{
	while (parent[i] != i)
		i = parent[i] = parent[parent[i]];
	return i;
}

static void join(size_t *parent, size_t a, size_t b)
{
	a = root_of(parent, a);
	b = root_of(parent, b);
	/* The first unit of a set stands for it. */
	parent[a > b ? a : b] = a > b ? b : a;
}

/* parent[i]: a smaller unit of the same application, or i. */
static size_t *applications(struct weight_changes *c)
{
	size_t *parent = ARENA_ARRAY(c->p->arena, size_t, c->units.n + 1);
	if (parent == NULL)
		return NULL;
	for (size_t i = 0; i < c->units.n; i++)
		parent[i] = i;
	for (size_t i = 0; i < c->links.n; i++)
		join(parent, c->links.items[i].a, c->links.items[i].b);
	for (size_t i = 0; i < c->by_name.n; i++) {
		const struct changed_weight *x = c->by_name.items[i].value;
		for (size_t k = 1; x->init != NULL && k < x->demands.n; k++)
			if (is_live(c, x->demands.items[k]) && is_live(c, x->demands.items[0]))
				join(parent, c->demands.items[x->demands.items[0]].unit,
				     c->demands.items[x->demands.items[k]].unit);
	}
	return parent;
}

/* Without fuel an application is left out as a whole. */
static void take_fuel(struct weight_changes *c)
{
	size_t *parent = applications(c);
	for (size_t i = 0; parent != NULL && i < c->units.n; i++) {
		struct change_unit *u = &c->units.items[i], *first = &c->units.items[root_of(parent, i)];
		if (u->why != NULL)
			continue;
		if (u == first) {
			u->number = pass_take_fuel(c->p);
			if (u->number > 0)
				pass_applied(c->p, u->number, NULL,
				             u->op != NULL ? u->op->loc : (struct ir_loc){0});
		}
		u->number = first->number;
		if (u->number == 0) {
			u->why = "no fuel is left";
			u->silent = true;
		}
	}
	for (size_t i = 0; i < c->by_name.n; i++)
		decide_weight(c, c->by_name.items[i].value);
}

static void decide(struct weight_changes *c)
{
	bool again = true;
	while (again && !arena_failed(c->p->arena)) {
		again = spread(c);
		for (size_t i = 0; i < c->by_name.n; i++)
			again = !decide_weight(c, c->by_name.items[i].value) || again;
	}
}

enum tfmc_status weight_changes_resolve(struct weight_changes *c)
{
	decide(c);
	take_fuel(c);
	for (size_t i = 0; i < c->units.n; i++) {
		const struct change_unit *u = &c->units.items[i];
		if (u->why == NULL || u->silent || u->op == NULL)
			continue;
		c->p->function = u->f->name;
		pass_count(c->p, "refused", 1);
		pass_missed(c->p, u->op->loc, "not folded: %s", u->why);
	}
	c->p->function = NULL;
	return arena_failed(c->p->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* --- rewriting ----------------------------------------------------------------------------------------- */

static const struct changed_weight *change_of(const struct weight_changes *c, const struct ir_op *op)
{
	const struct changed_weight *x =
	        op->code == OP_weight ? strmap_get(&c->by_name, weight_of(op)->name) : NULL;
	return x != NULL && x->init != NULL ? x : NULL;
}

bool weight_changes_match(struct weight_changes *c, struct rebuild *r, const struct ir_op *op)
{
	if (change_of(c, op) == NULL)
		return false;
	for (size_t i = 0; i < op->n_operands; i++)
		rebuild_need(r, op->operands[i]);
	return true;
}

void weight_changes_emit(struct weight_changes *c, struct rebuild *r, const struct ir_op *op)
{
	const struct changed_weight *x = change_of(c, op);
	struct ir_weight w = *x->weight;
	struct ir_value at[IR_RANK_MAX];

	w.init = x->init;
	w.name = x->name;
	for (size_t i = 0; i < op->n_operands && i < IR_RANK_MAX; i++)
		at[i] = rebuild_get(r, op->operands[i]);
	const struct ir_weight *added = ir_add_weight(r->out, &w);
	if (added == NULL) {
		pass_internal(r->p, op->loc, "a changed weight has two meanings");
		return;
	}
	rebuild_set(r, op->results[0], irb_weight_ref(r->b, added, at, op->n_operands));
}

const char *weight_changes_names(struct weight_changes *c, const struct change_unit *unit)
{
	size_t number = (size_t)(unit - c->units.items);
	const char *text = "";
	for (size_t i = 0; i < c->demands.n; i++)
		if (c->demands.items[i].unit == number)
			text = arena_printf(c->p->arena, "%s%s@%s", text, text[0] != '\0' ? ", " : "",
			                    c->demands.items[i].weight->name);
	return text;
}
