/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sites of fold-bias. First what reads the slices of each state, then what each
 * linear is read by, column by column; then the attentions are checked. Nodes
 * are joined along the way, a reason against one is one against its whole set.
 */
#include "ir/core/view.h"
#include "passes/fold_bias/fold_bias_internal.h"

#define COLUMNS_MAX (1 << 22)

/* n[kind]: linears with this bias that have columns of the kind. */
struct weight_info {
	struct bias_node node[BIAS_KINDS];
	size_t n[BIAS_KINDS];
	struct bias_columns at[BIAS_KINDS];
	size_t n_outs; /* projections that add to it */
};

#define OTHER 4

/* --- sets --------------------------------------------------------------------------------------------- */

static struct bias_node *root_of(struct bias_node *n)
{
	while (n->parent != NULL)
		n = n->parent;
	return n;
}

void bias_refuse(struct bias_node *n, const char *why)
{
	n = root_of(n);
	n->why = n->why != NULL ? n->why : why;
}

static void join(struct bias_node *a, struct bias_node *b)
{
	a = root_of(a);
	b = root_of(b);
	if (a == b)
		return;
	if (a->why != NULL)
		bias_refuse(b, a->why);
	if (b->loc.at.line == 0)
		b->loc = a->loc;
	a->parent = b;
}

bool bias_node_accepted(struct bias_node *n)
{
	return root_of(n)->why == NULL;
}

struct bias_state *bias_info_of(struct bias_finder *d, struct ir_value state)
{
	const struct ir_state_decl *s = ir_type_of(d->uses->f, state)->state;
	for (size_t i = 0; i < d->m->states.n; i++)
		if (d->states[i].state == s)
			return &d->states[i];
	return NULL;
}

static bool same_columns(const struct bias_columns *a, const struct bias_columns *b)
{
	return a->heads == b->heads && a->stride == b->stride && a->begin == b->begin && a->width == b->width;
}

bool bias_same_values(const struct bias_finder *d, const struct ir_value *a, size_t n,
                      const struct ir_value *b, size_t k)
{
	for (size_t i = 0; i < n && i < k; i++)
		if (!uses_same_index(d->uses->f, a[i], b[i]))
			return false;
	return n == k;
}

/* The indices of an op on state. */
const struct ir_value *bias_state_indices(const struct ir_op *op, size_t *n)
{
	size_t first = op->code == OP_state_append ? 3 : op->code == OP_state_write ? 2 : 1;
	*n = op->n_operands - first;
	return op->operands + first;
}

/* --- columns ------------------------------------------------------------------------------------------ */

/* The axis of a view of [.., N] goes over rows: its step is a multiple of N. */
static bool over_rows(const struct ir_view *v, int axis, int64_t n)
{
	int64_t step, size;
	if (ir_dim_is_const(v->size[axis], &size) && size == 1)
		return true;
	return !ir_dim_is_const(v->stride[axis], &step) || (step > 0 && step % n == 0);
}

/* v [B,K,T,E] is a view of the linear: which columns it shows. */
static bool find_columns(struct bias_finder *d, struct ir_value v, struct bias_columns *out)
{
	struct ir_view view;
	int64_t offset, heads, width, head_step, step, n = d->n_columns;
	if (!ir_view_resolve(d->m, d->uses->f, v, &view) || view.rank != 4 ||
	    !ir_same(view.base, d->linear->results[0]) || !over_rows(&view, 0, n) || !over_rows(&view, 2, n))
		return false;
	if (!ir_dim_is_const(view.offset, &offset) || !ir_dim_is_const(view.size[1], &heads) ||
	    !ir_dim_is_const(view.size[3], &width) || heads < 1 || width < 1)
		return false;
	if (width == 1)
		step = 1;
	else if (!ir_dim_is_const(view.stride[3], &step))
		return false;
	if (heads == 1)
		head_step = width;
	else if (!ir_dim_is_const(view.stride[1], &head_step))
		return false;
	if (step != 1 || offset < 0 || head_step < width)
		return false;
	*out = head_step == width ? (struct bias_columns){1, n, offset, heads * width}
	                          : (struct bias_columns){heads, head_step, offset, width};
	return out->heads * out->stride == n && out->begin + out->width <= out->stride;
}

static void mark_columns(struct bias_finder *d, const struct bias_columns *at, unsigned char bit)
{
	for (int64_t h = 0; h < at->heads; h++)
		for (int64_t e = 0; e < at->width; e++)
			d->columns[h * at->stride + at->begin + e] |= bit;
}

bool bias_keeps_last_axis(const struct bias_finder *d, const struct ir_op *op)
{
	const struct ir_type *x, *y;
	if (!ir_op_has(op->code, TRAIT_VIEW) && op->code != OP_take_rows)
		return false;
	x = ir_type_of(d->uses->f, op->operands[0]);
	y = ir_type_of(d->uses->f, op->results[0]);
	if (op->code == OP_transpose)
		return ((const struct attrs_transpose *)op->attrs)->perm.items[x->rank - 1] == x->rank - 1;
	if (op->code == OP_slice)
		return ((const struct attrs_slice *)op->attrs)->axis != x->rank - 1;
	return y->rank > 0 && x->dims[x->rank - 1] == y->dims[y->rank - 1] &&
	       (op->code != OP_take_rows || x->rank >= 3);
}

/* The columns that a chain of views can show: [begin, begin + width); exact: they are its last axis. */
struct shown {
	int64_t begin, width;
	bool exact;
};

static struct shown through(const struct bias_finder *d, const struct ir_op *op, struct shown s)
{
	const struct attrs_slice *a = op->code == OP_slice ? op->attrs : NULL;
	int64_t begin, size;
	if (!s.exact || bias_keeps_last_axis(d, op))
		return s;
	s.exact = a != NULL && ir_dim_is_const(a->begin, &begin) && ir_dim_is_const(a->size, &size) &&
	          begin >= 0 && size <= s.width - begin;
	if (s.exact) {
		s.begin += begin;
		s.width = size;
	}
	return s;
}

/* Marks the columns that v shows to something else. */
static void mark_other(struct bias_finder *d, struct ir_value v, struct shown s)
{
	struct bias_columns at;
	if (!find_columns(d, v, &at))
		at = (struct bias_columns){1, d->n_columns, s.begin, s.width};
	mark_columns(d, &at, OTHER);
}

/* --- leaves: what reads a linear or a slice, behind views -------------------------------------------------
 */

struct bias_linear *bias_linear_mark(struct bias_finder *d, const struct ir_op *op)
{
	void **mark = &d->uses->marks[op->results[0].id];
	if (*mark == NULL)
		*mark = ARENA_NEW(d->p->arena, struct bias_linear);
	return *mark;
}

struct bias_site *bias_site_mark(struct bias_finder *d, const struct ir_op *op)
{
	void **mark = &d->uses->marks[op->results[0].id];
	if (*mark != NULL)
		return *mark;
	struct bias_site *s = ARENA_NEW(d->p->arena, struct bias_site);
	if (s != NULL) {
		*s = (struct bias_site){.f = d->uses->f, .attention = op};
		s->node[BIAS_K].loc = s->node[BIAS_V].loc = op->loc;
	}
	*mark = s;
	return s;
}

/* The linear has columns of that kind; returns its node, NULL when it has no bias or nothing is known. */
static struct bias_node *add_kind(struct bias_finder *d, enum bias_kind kind, const struct bias_columns *at)
{
	struct bias_source *s = &bias_linear_mark(d, d->linear)->source;
	const struct ir_weight *c = uses_weight(d->uses->f, d->linear->operands[2]);
	struct weight_info *w;
	if (c == NULL || !uses_foldable(c) || c->type->rank >= IR_RANK_MAX - 1)
		return NULL;
	w = module_uses_weight(d->sites->uses, c)->user;
	s->bias = c;
	if (s->has[kind] && !same_columns(&s->at[kind], at))
		bias_refuse(&w->node[kind], "two attentions read other columns of one linear");
	if (!s->has[kind] && w->n[kind]++ > 0 && !same_columns(&w->at[kind], at))
		bias_refuse(&w->node[kind], "two linears with one bias are split otherwise");
	s->has[kind] = true;
	s->at[kind] = w->at[kind] = *at;
	s->node[kind] = &w->node[kind];
	mark_columns(d, at, (unsigned char)(1 << kind));
	return &w->node[kind];
}

static void leaf_of_linear(struct bias_finder *d, struct ir_value v, struct shown shown,
                           const struct ir_op *op, enum bias_kind kind)
{
	struct bias_columns at;
	struct bias_site *s = bias_site_mark(d, op);
	struct bias_node *n = s != NULL && find_columns(d, v, &at) ? add_kind(d, kind, &at) : NULL;
	if (n == NULL) {
		mark_other(d, v, shown);
		return;
	}
	join(n, &s->node[kind]);
	if (kind == BIAS_V) {
		s->values = uses_weight(d->uses->f, d->linear->operands[2]);
		s->at = at;
	}
}

/* The linear is stored in a state. */
static void leaf_in_state(struct bias_finder *d, struct ir_value v, struct shown shown,
                          const struct ir_op *op)
{
	struct bias_state *s = bias_info_of(d, op->operands[0]);
	enum bias_kind kind = s->keys ? BIAS_K : BIAS_V;
	struct bias_columns at;
	size_t n_at;
	const struct ir_value *index = bias_state_indices(op, &n_at);
	const struct ir_op *c = uses_weight_op(d->uses->f, d->linear->operands[2]);
	struct bias_node *n = find_columns(d, v, &at) ? add_kind(d, kind, &at) : NULL;
	if (n == NULL || !bias_same_values(d, index, n_at, c->operands, c->n_operands)) {
		bias_refuse(&s->node, "what is stored has no bias of that layer");
		mark_other(d, v, shown);
		return;
	}
	if (s->has_writer &&
	    (s->bias != uses_weight(d->uses->f, d->linear->operands[2]) || !same_columns(&s->at, &at)))
		bias_refuse(&s->node, "what is stored has different biases");
	s->has_writer = true;
	s->bias = uses_weight(d->uses->f, d->linear->operands[2]);
	s->at = at;
	join(n, &s->node);
}

static bool is_role_past(const struct ir_func *f, struct ir_value v)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (v.id != 0 && ir_same(f->params[i].value, v))
			return f->params[i].role == ROLE_PAST;
	return false;
}

/* An attention reads a slice of a state: only rows that were written may be visible. */
static void leaf_of_state(struct bias_finder *d, const struct ir_op *op, enum bias_kind kind)
{
	struct bias_site *s = bias_site_mark(d, op);
	bool stored = d->access->code == OP_state_append && bias_sees_stored(d->m, d->uses->f, op, d->access);
	if (s == NULL)
		return;
	d->state->keys |= kind == BIAS_K;
	d->state->values |= kind == BIAS_V;
	d->state->open_reader |= !stored;
	join(&d->state->node, &s->node[kind]);
}

static void see_leaf(struct bias_finder *d, struct ir_value v, struct shown shown, const struct value_use *u)
{
	const struct ir_op *op = u->op;
	bool read = op->code == OP_attention && (u->operand == 1 || u->operand == 2);
	enum bias_kind kind = u->operand == 1 ? BIAS_K : BIAS_V;
	bool stored = (op->code == OP_state_append || op->code == OP_state_write) && u->operand == 1;
	if (d->linear == NULL) {
		if (read)
			leaf_of_state(d, op, kind);
		else
			bias_refuse(&d->state->node, "something else than attention reads what is stored");
	} else if (read) {
		leaf_of_linear(d, v, shown, op, kind);
	} else if (stored) {
		leaf_in_state(d, v, shown, op);
	} else {
		mark_other(d, v, shown);
	}
}

static void see_leaves(struct bias_finder *d, struct ir_value v, struct shown shown, int depth)
{
	size_t n;
	const struct value_use *u = uses_of(d->uses, v, &n);
	for (size_t i = 0; i < n; i++) {
		const struct ir_op *op = u[i].op;
		bool rows = d->linear != NULL && op->code == OP_take_rows && u[i].operand == 0 &&
		            ir_type_of(d->uses->f, v)->rank >= 3;
		if ((ir_op_has(op->code, TRAIT_VIEW) || rows) && depth < BIAS_VIEWS_MAX)
			see_leaves(d, op->results[0], through(d, op, shown), depth + 1);
		else
			see_leaf(d, v, shown, &u[i]);
	}
}

/* --- states --------------------------------------------------------------------------------------------- */

static void see_slice(void *user, const struct ir_op *op)
{
	struct bias_finder *d = user;
	bool access = op->code == OP_state_append || op->code == OP_state_read;
	if (!access && op->code != OP_state_write)
		return;
	d->state = bias_info_of(d, op->operands[0]);
	if (d->state == NULL)
		return;
	d->state->appended |= op->code == OP_state_append;
	d->state->written |= op->code == OP_state_write;
	if (op->code == OP_state_append && !is_role_past(d->uses->f, op->operands[2]))
		bias_refuse(&d->state->node, "rows that were never stored may be visible");
	d->linear = NULL;
	d->access = op;
	if (access)
		see_leaves(d, op->results[0], (struct shown){0}, 0);
}

/* Rows [0, L) are written where L is written beside them: L is at most the number of rows. */
static bool writes_lengths(const struct module_uses *u, const struct ir_func *f, const struct ir_op *op)
{
	const struct ir_type *x = ir_type_of(f, op->operands[1]);
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *q = &f->params[i];
		const struct ir_state_decl *beside =
		        q->role == ROLE_INPUT && q->max != NULL && x->rank == 4 && q->max == x->dims[2]
		                ? bias_lengths_beside(f, q->value)
		                : NULL;
		if (beside != NULL && bias_state_masked(u, ir_type_of(f, op->operands[0])->state, beside))
			return true;
	}
	return false;
}

static void see_write(void *user, const struct ir_op *op)
{
	struct bias_finder *d = user;
	if (op->code == OP_state_write && !writes_lengths(d->sites->uses, d->uses->f, op))
		bias_refuse(&bias_info_of(d, op->operands[0])->node,
		            "rows that were never stored may be visible");
}

static void check_states(struct bias_finder *d)
{
	for (size_t i = 0; i < d->m->states.n; i++) {
		struct bias_state *s = &d->states[i];
		if (s->keys && s->values)
			bias_refuse(&s->node, "keys and values are stored in one state");
		if (!s->keys && !s->values)
			bias_refuse(&s->node, "nothing reads what is stored");
		if (s->appended && s->written)
			bias_refuse(&s->node, "a state is appended to and written");
		if (s->appended && s->open_reader)
			bias_refuse(&s->node, "rows that were never stored may be visible");
	}
}

/* --- linears -------------------------------------------------------------------------------------------- */

static void check_columns(struct bias_finder *d)
{
	struct bias_source *s = &bias_linear_mark(d, d->linear)->source;
	for (int kind = 0; kind < BIAS_KINDS; kind++)
		for (int64_t i = 0; s->has[kind] && i < d->n_columns; i++)
			if ((d->columns[i] & (1 << kind)) != 0 && d->columns[i] != 1 << kind)
				bias_refuse(s->node[kind], "something else reads the same columns");
}

static void see_linear(void *user, const struct ir_op *op)
{
	struct bias_finder *d = user;
	const struct ir_type *y;
	if (op->code != OP_linear)
		return;
	y = ir_type_of(d->uses->f, op->results[0]);
	if (!ir_dim_is_const(y->dims[y->rank - 1], &d->n_columns) || d->n_columns < 1 ||
	    d->n_columns > COLUMNS_MAX || bias_linear_mark(d, op) == NULL)
		return;
	d->linear = op;
	d->columns = ARENA_ARRAY(d->p->arena, unsigned char, (size_t)d->n_columns);
	if (d->columns == NULL)
		return;
	see_leaves(d, op->results[0], (struct shown){0, d->n_columns, true}, 0);
	check_columns(d);
}

/* --- weights -------------------------------------------------------------------------------------------- */

static void check_weights(struct bias_finder *d)
{
	struct module_uses *u = d->sites->uses;
	for (size_t i = 0; i < d->m->weights.n; i++) {
		struct weight_info *w = u->weights[i].user;
		for (int kind = 0; kind < BIAS_KINDS; kind++)
			if (w->n[kind] > 0 && (w->n[kind] != u->weights[i].other || u->weights[i].linear > 0))
				bias_refuse(&w->node[kind], "the bias is also used elsewhere");
	}
}

/* Takes fuel for each set that is left. */
static void number_sets(struct bias_finder *d)
{
	for (size_t i = 0; i < 2 * d->m->weights.n; i++) {
		struct weight_info *w = d->sites->uses->weights[i / 2].user;
		struct bias_node *root = root_of(&w->node[i % 2]);
		if (w->n[i % 2] == 0 || root->why != NULL || root->number > 0)
			continue;
		root->number = pass_take_fuel(d->p);
		root->said = root->number == 0;
		if (root->number == 0)
			root->why = "there is no fuel";
	}
}

int64_t bias_node_number(struct bias_node *n)
{
	return root_of(n)->number;
}

/* Which biases of projections change everywhere they are used. */
static void count_out(void *user, const struct ir_op *op)
{
	struct bias_finder *d = user;
	const struct bias_linear *mark = op->code == OP_linear ? d->uses->marks[op->results[0].id] : NULL;
	struct bias_site *s = mark != NULL ? mark->out : NULL;
	if (s == NULL || s->values == NULL || !bias_node_accepted(&s->node[BIAS_V]))
		return;
	const struct ir_weight *c = uses_weight(d->uses->f, op->operands[2]);
	((struct weight_info *)module_uses_weight(d->sites->uses, c)->user)->n_outs++;
}

bool bias_changes_everywhere(const struct bias_sites *s, const struct ir_weight *w)
{
	const struct weight_uses *u = module_uses_weight(s->uses, w);
	return u->linear == 0 && u->other == ((const struct weight_info *)u->user)->n_outs;
}

static void say(struct bias_finder *d, struct bias_node *n, const char *what)
{
	struct bias_node *root = root_of(n);
	if (root->why == NULL || root->said)
		return;
	root->said = true;
	pass_missed(d->p, root->loc, "not folded: %s: %s", what, root->why);
}

static void say_refusals(struct bias_finder *d)
{
	for (size_t i = 0; i < d->m->weights.n; i++) {
		struct weight_info *w = d->sites->uses->weights[i].user;
		const char *name = d->m->weights.items[i]->name;
		if (w->n[BIAS_K] > 0)
			say(d, &w->node[BIAS_K], arena_printf(d->p->arena, "bias of keys @%s", name));
		if (w->n[BIAS_V] > 0)
			say(d, &w->node[BIAS_V], arena_printf(d->p->arena, "bias of values @%s", name));
	}
}

/* --- the module ------------------------------------------------------------------------------------------
 */

static void walk_all(struct bias_finder *d, ir_visit *visit)
{
	for (size_t i = 0; i < d->m->funcs.n && !arena_failed(d->p->arena); i++) {
		d->uses = &d->sites->uses->funcs[i];
		ir_walk(d->m->funcs.items[i]->body, visit, d);
	}
}

static bool allocate(struct bias_finder *d)
{
	struct arena *a = d->p->arena;
	d->sites->uses = module_uses_collect(a, d->m);
	d->states = ARENA_ARRAY(a, struct bias_state, d->m->states.n + 1);
	if (d->sites->uses == NULL || d->states == NULL)
		return false;
	for (size_t i = 0; i < d->m->states.n; i++)
		d->states[i].state = d->m->states.items[i];
	for (size_t i = 0; i < d->m->weights.n; i++)
		d->sites->uses->weights[i].user = ARENA_NEW(a, struct weight_info);
	return !arena_failed(a);
}

struct bias_sites *bias_sites_collect(struct pass_context *p, const struct ir_module *m)
{
	struct bias_sites *sites = ARENA_NEW(p->arena, struct bias_sites);
	struct bias_finder d = {.p = p, .m = m, .sites = sites};

	if (sites == NULL || !allocate(&d))
		return NULL;
	walk_all(&d, see_slice);
	check_states(&d);
	walk_all(&d, see_write);
	walk_all(&d, see_linear);
	walk_all(&d, bias_see_attention);
	check_weights(&d);
	number_sets(&d);
	walk_all(&d, count_out);
	say_refusals(&d);
	return arena_failed(p->arena) ? NULL : sites;
}
