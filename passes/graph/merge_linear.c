/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge-linear: linears of the same input become one linear and slices of its result (horizontal fusion: merged
 * q/k/v and gate/up).
 *
 * Requires   fuse-attention (it matches through single uses, which the slices would hide).
 * Ensures    the input is read once; weights are concatenated by their expressions, widths may differ, a missing
 *            bias becomes zeros. The counter `merged` has the number of merged linears. Two linears of equal width
 *            whose results an elementwise op combines (gate and up) are a pair, the counter `pairs` has their
 *            number; `group` makes one kernel of them and of that op.
 * Example    %q = linear %x, @q.w[%l]  %k = linear %x, @k.w[%l]
 *        ->  %y = linear %x, @q_k.w[%l]  %q = slice %y {axis=2 begin=0 size=32}
 *            %k = slice %y {axis=2 begin=32 size=32}
 * Skips      a weight with other readers (it would be stored twice); other results that are read by an elementwise
 *            op, which is the epilogue of its own linear, or by an exchange, which takes one array; pairs whose width
 *            is not a multiple of the panel.
 * Benefit    without it a call takes, f32 and one thread, up to 1.035 on Sapphire Rapids and 0.964 to 1.016 on Zen 5;
 *            decoding with two threads (Sapphire Rapids, D2, D4, D5): f32 0.996 to 1.025, bf16 1.012 to 1.044, int8
 *            0.975 to 1.043, q4 0.973 to 1.004. The highest are those of D5, whose calls of 10 us have the barriers of
 *            fewer kernels to win; the others are within noise (tests/perf/passes.md).
 */
#include <string.h>

#include "passes/graph/concat_weights.h"

/*
 * Linears that are merged: same region, same input, constant weights at the same indices, and no other reader of
 * the weights. Either all linears whose results no elementwise op reads, or a pair whose results are combined by
 * one (gate and up).
 */
struct merge_set {
	const struct ir_func *f;
	const struct ir_op **items; /* linears in program order */
	size_t n, cap;
	bool is_rejected;
	int64_t number; /* of the application */
	bool is_pair;
};
struct merge_sets {
	struct merge_set *items;
	size_t n, cap;
	size_t *of_value; /* cache for f: [f->n_values] set + 1 by the result of a linear, 0: none */
	const struct ir_func *f;
	struct arena *arena;
};

/* A linear is compared with this many preceding sets. */
#define COMPARED_SETS_MAX 32

struct collector {
	struct pass_context *p;
	const struct ir_module *m;
	struct merge_sets *sets;
	size_t first; /* first set of the function */
	bool *apart;  /* [f->n_values] read by an elementwise op, or by an exchange, which takes one array */
	uint32_t *uses; /* [f->n_values] */
	const struct ir_func *f;
};

/* ---- candidates ---- */

static bool fits_set(const struct collector *c, const struct merge_set *s, const struct ir_op *op)
{
	const struct ir_op *first = s->items[0];
	return ir_same_value(first->operands[0], op->operands[0]) &&
	       ir_value_info(c->f, first->results[0])->region ==
	               ir_value_info(c->f, op->results[0])->region &&
	       can_concat_weights(c->f, first, op);
}

/* Adds a linear to the first set it fits, or to a new one. Only the last COMPARED_SETS_MAX sets of the function
 * are compared: linears of one input are near each other, and the time stays linear. */
static void add_candidate(struct collector *c, const struct ir_op *op)
{
	struct merge_sets *sets = c->sets;
	struct merge_set *s = NULL;

	if (op->code != OP_linear || !can_concat_weights(c->f, op, op) || c->apart[op->results[0].id])
		return;
	size_t from = sets->n - c->first > COMPARED_SETS_MAX ? sets->n - COMPARED_SETS_MAX : c->first;
	for (size_t i = from; i < sets->n && s == NULL; i++)
		if (!sets->items[i].is_pair && fits_set(c, &sets->items[i], op))
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
#define PAIR_COLUMNS   16 /* each half must be full panels: a packed panel has columns of one half */

/* If v = act(linear), a chain of elementwise ops with single uses and constants, returns the linear; else NULL.
 * Single uses: the values between are not needed elsewhere, so `group` can compute them in the kernel of the pair. */
static const struct ir_op *activated_linear(const struct collector *c, struct ir_value v)
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

static int64_t columns_of(const struct ir_func *f, const struct ir_op *linear)
{
	int64_t n = 0;
	ir_dim_is_const(ir_type_of(f, linear->operands[1])->dims[0], &n);
	return n;
}

/* a and b have equal widths of full panels: a packed panel has columns of one of them. */
static bool may_pair(const struct collector *c, const struct ir_op *a, const struct ir_op *b)
{
	int64_t n = columns_of(c->f, a);
	if (n != columns_of(c->f, b))
		return false;
	if (n % PAIR_COLUMNS != 0)
		pass_missed(
		        c->p, a->loc,
		        "not merged: %lld columns of two linears that are combined are not a multiple of %d",
		        (long long)n, PAIR_COLUMNS);
	return n % PAIR_COLUMNS == 0;
}

/* If the elementwise op combines two linears of one input, adds them as a pair, in program order: the merged
 * linear is built at the first. Their results have this reader only, so no other set takes them. */
static void add_pair(struct collector *c, const struct ir_op *op)
{
	if (!ir_op_has(op->code, TRAIT_ELEMENTWISE) || op->n_operands != 2)
		return;
	const struct ir_op *a = activated_linear(c, op->operands[0]),
	                   *b = activated_linear(c, op->operands[1]);
	if (a == b || a == NULL || b == NULL)
		return;
	if (a->results[0].id > b->results[0].id) {
		const struct ir_op *later = a;
		a = b;
		b = later;
	}
	const struct merge_set alone = {.items = &a, .n = 1};
	if (!can_concat_weights(c->f, a, a) || !fits_set(c, &alone, b) ||
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

/* Collects what is merged in a function: pairs (gate and up), and sets of linears of one input. c->apart: values
 * that an elementwise op or exchange reads, whose linears stay apart. */
static void collect_func(struct collector *c, const struct ir_func *f)
{
	c->f = f;
	c->apart = ARENA_ARRAY(c->p->arena, bool, f->n_values);
	c->uses = ir_count_uses(c->p->arena, f);
	if (c->apart == NULL || c->uses == NULL)
		return;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it)) {
		bool is_apart =
		        ir_op_has(it.op->code, TRAIT_ELEMENTWISE) || ir_op_has(it.op->code, TRAIT_EXCHANGE);
		for (size_t i = 0; is_apart && i < it.op->n_operands; i++)
			c->apart[it.op->operands[i].id] = true;
		add_pair(c, it.op);
	}
	c->first = c->sets->n;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		add_candidate(c, it.op);
}

/* ---- weights with other readers ---- */

struct weight_use {
	size_t total, in_sets;
	const struct merge_set *first;
	bool differs; /* two sets with different members contain it */
};

static const struct ir_weight *member_weight(const struct merge_set *s, size_t i)
{
	return ir_weight_of(s->f, s->items[i]->operands[1]);
}

/* Both sets merge the same weights and biases in the same order. */
static bool same_weights(const struct merge_set *a, const struct merge_set *b)
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

/* Counts the uses of each weight in a function. */
static void count_weight_uses(struct pass_context *p, const struct ir_func *f, struct strmap *uses)
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

/* Counts the members of a set as uses of their weights in sets, and notes weights of sets that differ. */
static void count_set_uses(struct merge_set *s, struct strmap *uses)
{
	if (s->is_rejected)
		return;
	for (size_t i = 0; i < s->n; i++) {
		struct weight_use *u = strmap_get(uses, member_weight(s, i)->name);
		u->differs = u->differs || (u->first != NULL && !same_weights(u->first, s));
		u->first = s;
		u->in_sets++;
	}
}

/* Rejects the set if a weight has other readers, or is in a different set. True: rejected now. */
static bool reject_set(struct pass_context *p, struct merge_set *s, struct strmap *uses)
{
	for (size_t i = 0; !s->is_rejected && i < s->n; i++) {
		const struct weight_use *u = strmap_get(uses, member_weight(s, i)->name);
		if (!u->differs && u->in_sets == u->total)
			continue;
		s->is_rejected = true;
		pass_missed(p, s->items[i]->loc, "not merged: @%s is also used elsewhere",
		            member_weight(s, i)->name);
		return true;
	}
	return false;
}

/*
 * Rejects sets until every weight of a remaining set is read by equal sets only: functions that share weights
 * (`run` and `decode`) merge them alike or not at all. Iterates, since a rejected set makes its weights be read
 * elsewhere.
 */
static void reject_shared(struct pass_context *p, const struct ir_module *m, struct merge_sets *sets)
{
	struct strmap uses;
	bool again = true;

	strmap_init(&uses, p->arena);
	for (size_t i = 0; i < m->weights.n; i++)
		strmap_set(&uses, m->weights.items[i]->name, ARENA_NEW(p->arena, struct weight_use));
	for (size_t i = 0; i < m->funcs.n; i++)
		count_weight_uses(p, m->funcs.items[i], &uses);
	for (size_t i = 0; i < sets->n; i++)
		sets->items[i].is_rejected = sets->items[i].n < 2;
	while (again && !arena_failed(p->arena)) {
		again = false;
		for (size_t i = 0; i < uses.n; i++) {
			struct weight_use *u = uses.items[i].value;
			*u = (struct weight_use){.total = u->total};
		}
		for (size_t i = 0; i < sets->n; i++)
			count_set_uses(&sets->items[i], &uses);
		for (size_t i = 0; i < sets->n; i++)
			again = reject_set(p, &sets->items[i], &uses) || again;
	}
}

/* Returns the sets of all functions; NULL when memory ran out. */
static struct merge_sets *collect_sets(struct pass_context *p, const struct ir_module *m)
{
	struct merge_sets *sets = ARENA_NEW(p->arena, struct merge_sets);
	struct collector c = {.p = p, .m = m, .sets = sets};

	if (sets == NULL)
		return NULL;
	sets->arena = p->arena;
	for (size_t i = 0; i < m->funcs.n; i++)
		collect_func(&c, m->funcs.items[i]);
	reject_shared(p, m, sets);
	return arena_failed(p->arena) ? NULL : sets;
}

/* The set that contains op, and its index; NULL: none, or it was rejected. The table of a function is built when it
 * is first asked for: functions are traversed one after another. is_rejected includes sets that are too small, share
 * a weight, or got no fuel. */
static const struct merge_set *find_set(struct merge_sets *s, const struct ir_func *f, const struct ir_op *op,
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
	if (at == 0 || s->items[at - 1].is_rejected)
		return NULL;
	*index = at - 1;
	return &s->items[at - 1];
}

/* ---- the pass ---- */

struct merger {
	struct merge_sets *sets;
	struct ir_value *merged; /* [sets->n] the merged linear once it is built */
};

static const struct merge_set *set_of(const struct rebuild *r, const struct ir_op *op, size_t *index)
{
	const struct merger *g = r->rewrite->user;
	return op->code == OP_linear ? find_set(g->sets, r->f, op, index) : NULL;
}

/* Matches a linear of a set; marks its input and the indices of its weight, which the merged linear reads. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	size_t index;
	const struct merge_set *s = set_of(r, op, &index);
	if (s == NULL)
		return false;
	const struct ir_op *w = ir_def_as(r->f, op->operands[1], OP_weight);
	rebuild_need(r, op->operands[0]);
	for (size_t i = 0; i < w->n_operands; i++)
		rebuild_need(r, w->operands[i]);
	return true;
}

/* ---- rewriting ---- */

/* Builds the merged linear of a set. The remark names the weight, which is absent after an error of
 * concat_weight_ref. */
static struct ir_value build_merged(struct rebuild *r, const struct merge_set *s)
{
	const struct linear_list list = {s->items, s->n};
	struct ir_value w = concat_weight_ref(r, &list, 1, 0), b = concat_weight_ref(r, &list, 2, 0);
	struct ir_value y = irb_linear(r->b, rebuild_get(r, s->items[0]->operands[0]), w, b, NULL);
	pass_count(r->p, "merged", (int64_t)s->n);
	pass_applied(r->p, s->number, NULL, s->items[0]->loc);
	pass_count(r->p, "pairs", s->is_pair);
	if (w.id != 0)
		pass_remark(r->p, s->items[0]->loc, "%zu linears %s @%s", s->n,
		            s->is_pair ? "that are combined merged into" : "merged into",
		            ir_weight_of(irb_func(r->b), w)->name);
	return y;
}

/* Replaces a linear by a slice of the merged one, which is built at the first of them. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct merger *g = r->rewrite->user;
	size_t index;
	const struct merge_set *s = set_of(r, op, &index);
	struct ir_dims *dims = r->out->dims;
	int64_t begin = 0;

	if (g->merged[index].id == 0)
		g->merged[index] = build_merged(r, s);
	for (size_t i = 0; s->items[i] != op; i++)
		begin += columns_of(r->f, s->items[i]);
	int axis = ir_type_of(r->f, op->results[0])->rank - 1;
	if (g->merged[index].id != 0)
		rebuild_set(r, op->results[0],
		            irb_slice_of(r->b, g->merged[index], axis, ir_dim_const(dims, begin),
		                         ir_dim_const(dims, columns_of(r->f, op))));
}

/* Sets are chosen for the whole module before the traversal, since functions share weights; each set is one
 * application of fuel. A set without fuel counts as rejected, so its linears are copied. */
enum tfmc_status pass_merge_linear(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct merge_sets *sets = collect_sets(p, in);
	struct merger g = {.sets = sets};
	size_t errors = p->cx->n_errors;

	if (sets == NULL)
		return TFMC_NO_MEMORY;
	g.merged = ARENA_ARRAY(p->arena, struct ir_value, sets->n + 1);
	if (g.merged == NULL)
		return TFMC_NO_MEMORY;
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &g, .is_numbered = true};
	for (size_t i = 0; i < sets->n; i++) {
		struct merge_set *s = &sets->items[i];
		s->number = s->is_rejected ? 0 : pass_consume_fuel(p); /* a set is one application */
		s->is_rejected = s->number == 0;
	}
	pass_count(p, "merged", 0);
	pass_count(p, "pairs", 0);
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INTERNAL : TFMC_OK;
}
