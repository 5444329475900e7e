/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects candidates for each function, then refuses sets until every weight
 * of a remaining set is read by equal sets only (functions that share weights,
 * `run` and `decode` for example, merge them alike or not at all).
 */
#include "passes/weights/merge_sets.h"

#include <string.h>

#include "passes/weights/join_weights.h"

/* A linear is compared with this many sets before it. */
#define LOOK_BACK 32

struct collector {
	struct pass_context *p;
	const struct ir_module *m;
	struct merge_sets *sets;
	size_t first;      /* set of the function */
	bool *elementwise; /* [f->n_values] read by an elementwise op */
	uint32_t *uses;    /* [f->n_values] */
	const struct ir_func *f;
};

/* ---- candidates ---- */

static bool is_candidate(const struct collector *c, const struct ir_op *op)
{
	return op->code == OP_linear && join_fits(c->f, op, op) && !c->elementwise[op->results[0].id];
}

static bool fits(const struct collector *c, const struct merge_set *s, const struct ir_op *op)
{
	const struct ir_op *first = s->items[0];
	return ir_same_value(first->operands[0], op->operands[0]) &&
	       ir_value_info(c->f, first->results[0])->region ==
	               ir_value_info(c->f, op->results[0])->region &&
	       join_fits(c->f, first, op);
}

static void add_candidate(struct collector *c, const struct ir_op *op)
{
	struct merge_sets *sets = c->sets;
	struct merge_set *s = NULL;

	if (!is_candidate(c, op))
		return;
	size_t from = sets->n - c->first > LOOK_BACK ? sets->n - LOOK_BACK : c->first;
	for (size_t i = from; i < sets->n && s == NULL; i++)
		if (!sets->items[i].is_pair && fits(c, &sets->items[i], op))
			s = &sets->items[i];
	if (s == NULL)
		s = ARENA_PUSH(c->p->arena, sets);
	if (s == NULL)
		return;
	s->f = c->f;
	ARENA_ADD(c->p->arena, s, op);
}

/* ---- pairs ---- */

#define PAIR_CHAIN_MAX 8
#define PAIR_COLUMNS   16 /* a panel holds columns of one half */

/* The linear whose columns v is made of, each for itself: v = act(linear), constants beside. */
static const struct ir_op *linear_behind(const struct collector *c, struct ir_value v)
{
	for (int i = 0; i < PAIR_CHAIN_MAX; i++) {
		const struct ir_op *op = c->uses[v.id] == 1 ? ir_def(c->f, v) : NULL;
		if (op == NULL || ir_type_of(c->f, v)->dtype != DT_F32)
			return NULL;
		if (op->code == OP_linear)
			return op;
		if (!ir_op_has(op->code, TRAIT_ELEMENTWISE) || op->n_operands > 2)
			return NULL;
		size_t at = op->n_operands == 2 && ir_def_as(c->f, op->operands[0], OP_full) ? 1 : 0;
		if (op->n_operands == 2 && !ir_def_as(c->f, op->operands[1 - at], OP_full))
			return NULL;
		v = op->operands[at];
	}
	return NULL;
}

static int64_t columns_of(const struct collector *c, const struct ir_op *linear)
{
	int64_t n = 0;
	ir_dim_is_const(ir_type_of(c->f, linear->operands[1])->dims[0], &n);
	return n;
}

static bool may_pair(const struct collector *c, const struct ir_op *a, const struct ir_op *b)
{
	int64_t n = columns_of(c, a);
	if (n != columns_of(c, b))
		return false;
	if (n % PAIR_COLUMNS != 0)
		pass_missed(c->p, a->loc,
		            "not merged: %lld columns of two linears that meet are no whole panels of %d",
		            (long long)n, PAIR_COLUMNS);
	return n % PAIR_COLUMNS == 0;
}

/* op is where two linears of one input meet. */
static void add_pair(struct collector *c, const struct ir_op *op)
{
	if (!ir_op_has(op->code, TRAIT_ELEMENTWISE) || op->n_operands != 2)
		return;
	const struct ir_op *a = linear_behind(c, op->operands[0]), *b = linear_behind(c, op->operands[1]);
	if (a == b || a == NULL || b == NULL)
		return;
	if (a->results[0].id > b->results[0].id) {
		const struct ir_op *later = a;
		a = b;
		b = later;
	}
	const struct merge_set alone = {.items = &a, .n = 1};
	if (!join_fits(c->f, a, a) || !fits(c, &alone, b) ||
	    ir_value_info(c->f, op->results[0])->region != ir_value_info(c->f, a->results[0])->region ||
	    !may_pair(c, a, b))
		return;
	struct merge_set *s = ARENA_PUSH(c->p->arena, c->sets);
	if (s == NULL)
		return;
	*s = (struct merge_set){.f = c->f, .is_pair = true};
	s->items = ARENA_ARRAY(c->p->arena, const struct ir_op *, 2);
	if (s->items == NULL)
		return;
	s->n = s->cap = 2;
	s->items[0] = a;
	s->items[1] = b;
}

static void collect_func(struct collector *c, const struct ir_func *f)
{
	c->f = f;
	c->elementwise = ARENA_ARRAY(c->p->arena, bool, f->n_values);
	c->uses = ir_count_uses(c->p->arena, f);
	if (c->elementwise == NULL || c->uses == NULL)
		return;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it)) {
		for (size_t i = 0; ir_op_has(it.op->code, TRAIT_ELEMENTWISE) && i < it.op->n_operands; i++)
			c->elementwise[it.op->operands[i].id] = true;
		add_pair(c, it.op);
	}
	c->first = c->sets->n;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		add_candidate(c, it.op);
}

/* ---- weights that something else reads ---- */

struct weight_use {
	size_t total, in_sets;
	const struct merge_set *first;
	bool differs; /* two sets with other members */
};

static const struct ir_weight *member_weight(const struct merge_set *s, size_t i)
{
	return ir_weight_of(s->f, s->items[i]->operands[1]);
}

static bool same_members(const struct merge_set *a, const struct merge_set *b)
{
	if (a->n != b->n || a->is_pair != b->is_pair)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		if (member_weight(a, i) != member_weight(b, i) ||
		    ir_weight_of(a->f, a->items[i]->operands[2]) !=
		            ir_weight_of(b->f, b->items[i]->operands[2]))
			return false;
	}
	return true;
}

static void count_func(struct pass_context *p, const struct ir_func *f, struct strmap *uses)
{
	uint32_t *n = ir_count_uses(p->arena, f);
	for (uint32_t v = 1; n != NULL && v < f->n_values; v++) {
		const struct ir_op *op = f->values[v].def;
		if (op == NULL || op->code != OP_weight)
			continue;
		struct weight_use *u =
		        strmap_get(uses, ((const struct attrs_weight *)op->attrs)->weight->name);
		if (u != NULL)
			u->total += n[v];
	}
}

static void count_set(struct merge_set *s, struct strmap *uses)
{
	if (s->refused)
		return;
	for (size_t i = 0; i < s->n; i++) {
		struct weight_use *u = strmap_get(uses, member_weight(s, i)->name);
		u->differs = u->differs || (u->first != NULL && !same_members(u->first, s));
		u->first = s;
		u->in_sets++;
	}
}

static bool refuse_set(struct pass_context *p, struct merge_set *s, struct strmap *uses)
{
	for (size_t i = 0; !s->refused && i < s->n; i++) {
		const struct weight_use *u = strmap_get(uses, member_weight(s, i)->name);
		if (!u->differs && u->in_sets == u->total)
			continue;
		s->refused = true;
		pass_missed(p, s->items[i]->loc, "not merged: @%s is also used elsewhere",
		            member_weight(s, i)->name);
		return true;
	}
	return false;
}

static void refuse_shared(struct pass_context *p, const struct ir_module *m, struct merge_sets *sets)
{
	struct strmap uses;
	bool again = true;

	strmap_init(&uses, p->arena);
	for (size_t i = 0; i < m->weights.n; i++)
		strmap_set(&uses, m->weights.items[i]->name, ARENA_NEW(p->arena, struct weight_use));
	for (size_t i = 0; i < m->funcs.n; i++)
		count_func(p, m->funcs.items[i], &uses);
	for (size_t i = 0; i < sets->n; i++)
		sets->items[i].refused = sets->items[i].n < 2;
	while (again && !arena_failed(p->arena)) {
		again = false;
		for (size_t i = 0; i < uses.n; i++) {
			struct weight_use *u = uses.items[i].value;
			*u = (struct weight_use){.total = u->total};
		}
		for (size_t i = 0; i < sets->n; i++)
			count_set(&sets->items[i], &uses);
		for (size_t i = 0; i < sets->n; i++)
			again = refuse_set(p, &sets->items[i], &uses) || again;
	}
}

struct merge_sets *merge_sets_collect(struct pass_context *p, const struct ir_module *m)
{
	struct merge_sets *sets = ARENA_NEW(p->arena, struct merge_sets);
	struct collector c = {.p = p, .m = m, .sets = sets};

	if (sets == NULL)
		return NULL;
	sets->arena = p->arena;
	for (size_t i = 0; i < m->funcs.n; i++)
		collect_func(&c, m->funcs.items[i]);
	refuse_shared(p, m, sets);
	return arena_failed(p->arena) ? NULL : sets;
}

const struct merge_set *merge_sets_find(struct merge_sets *s, const struct ir_func *f, const struct ir_op *op,
                                        size_t *index)
{
	if (s->f != f) {
		s->f = f;
		s->of_value = ARENA_ARRAY(s->arena, size_t, f->n_values);
		for (size_t i = 0; s->of_value != NULL && i < s->n; i++)
			for (size_t k = 0; s->items[i].f == f && k < s->items[i].n; k++)
				s->of_value[s->items[i].items[k]->results[0].id] = i + 1;
	}
	size_t at = s->of_value != NULL ? s->of_value[op->results[0].id] : 0;
	if (at == 0 || s->items[at - 1].refused)
		return NULL;
	*index = at - 1;
	return &s->items[at - 1];
}

void merge_name_parts(const char *a, const char *b, size_t *head, size_t *tail)
{
	size_t n = strlen(a), k = strlen(b), same = 0, end = 0;

	while (same < *head && same < k && a[same] == b[same])
		same++;
	while (same > 0 && a[same - 1] != '.')
		same--;
	while (end < *tail && end < n - same && end < k - same && a[n - 1 - end] == b[k - 1 - end])
		end++;
	while (end > 0 && a[n - end] != '.')
		end--;
	*head = same;
	*tail = end;
}
