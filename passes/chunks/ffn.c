/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding feed-forward blocks, see ffn.h: from every linear with a weight back
 * through elementwise ops of single readers to linears of one input. Then blocks
 * are struck out until every weight of those that remain is read by them only.
 */
#include "passes/chunks/ffn.h"

struct finder {
	struct pass_context *p;
	const struct ir_func *f;
	const uint32_t *uses; /* [f->n_values] */
	struct ffn_list *list;
	size_t first; /* block of this function */
	int depth;    /* repeats that may be around a block */
	bool failed;
};

/* --- facts --------------------------------------------------------------------------------------------- */

const struct ir_op *ffn_weight_op(const struct ir_func *f, const struct ir_op *linear, size_t i)
{
	bool there = i < linear->n_operands && linear->operands[i].id != 0;
	const struct ir_op *op = there ? ir_def(f, linear->operands[i]) : NULL;
	return op != NULL && op->code == OP_weight ? op : NULL;
}

static const struct ir_weight *weight_of(const struct ir_op *op)
{
	return ((const struct attrs_weight *)op->attrs)->weight;
}

static bool same_dims(const struct ir_func *f, struct ir_value a, struct ir_value b)
{
	const struct ir_type *x = ir_type_of(f, a), *y = ir_type_of(f, b);
	if (x->kind != IR_TENSOR || y->kind != IR_TENSOR || x->rank != y->rank)
		return false;
	for (int i = 0; i < x->rank; i++)
		if (x->dims[i] != y->dims[i])
			return false;
	return true;
}

/* A linear in f32 whose weight, and bias when it has one, are references with a provenance. */
static bool is_constant_linear(const struct ir_func *f, const struct ir_op *op)
{
	const struct ir_op *w = op->code == OP_linear ? ffn_weight_op(f, op, 1) : NULL;
	bool has_bias = w != NULL && op->n_operands > 2 && op->operands[2].id != 0;
	const struct ir_op *b = has_bias ? ffn_weight_op(f, op, 2) : NULL;
	return w != NULL && (!has_bias || b != NULL) && weight_of(w)->init != NULL &&
	       weight_of(w)->encoding == ENC_ROW && (b == NULL || weight_of(b)->init != NULL) &&
	       ir_type_of(f, op->results[0])->dtype == DT_F32 && ir_type_of(f, op->results[0])->rank >= 2;
}

/* --- one block ----------------------------------------------------------------------------------------- */

static bool has_op(const struct ffn *b, const struct ir_op *op)
{
	for (size_t i = 0; i < b->n_ops; i++)
		if (b->ops[i] == op)
			return true;
	for (size_t i = 0; i < b->n_ups; i++)
		if (b->ups[i] == op)
			return true;
	return false;
}

static bool take_up(const struct finder *s, struct ffn *b, const struct ir_op *op)
{
	if (b->n_ups >= FFN_UPS_MAX || !is_constant_linear(s->f, op) ||
	    (b->n_ups > 0 && !ir_same(op->operands[0], b->n)))
		return false;
	b->n = op->operands[0];
	b->ups[b->n_ups++] = op;
	return true;
}

/* v, of the hidden width, is made of linears by elementwise ops. Recursion is bounded by FFN_OPS_MAX. */
static bool take_value(const struct finder *s, struct ffn *b, struct ir_value v, size_t depth)
{
	const struct ir_op *op = v.id == 0 ? NULL : ir_def(s->f, v);
	if (op == NULL || depth > FFN_OPS_MAX ||
	    ir_info(s->f, v)->region != ir_info(s->f, b->down->results[0])->region)
		return false;
	if (has_op(b, op))
		return true;
	if (op->code == OP_linear)
		return take_up(s, b, op);
	if (!ir_op_has(op->code, TRAIT_ELEMENTWISE))
		return false;
	for (size_t i = 0; i < op->n_operands; i++) {
		bool beside = op->code == OP_mask_rows && i > 0;
		if (!beside &&
		    (!same_dims(s->f, op->operands[i], v) || !take_value(s, b, op->operands[i], depth + 1)))
			return false;
	}
	if (b->n_ops >= FFN_OPS_MAX)
		return false;
	b->ops[b->n_ops++] = op;
	return true;
}

static size_t reads_of(const struct ir_op *op, struct ir_value v)
{
	size_t n = 0;
	for (size_t i = 0; i < op->n_operands; i++)
		n += ir_same(op->operands[i], v);
	return n;
}

/* The block itself reads the value as often as anything does. */
static bool is_inner(const struct finder *s, const struct ffn *b, struct ir_value v)
{
	size_t n = reads_of(b->down, v);
	for (size_t i = 0; i < b->n_ops; i++)
		n += reads_of(b->ops[i], v);
	return n == s->uses[v.id];
}

static int repeats_around(const struct ir_func *f, const struct ir_op *op)
{
	int n = 0;
	for (const struct ir_region *r = ir_info(f, op->results[0])->region; r->parent != NULL; r = r->parent)
		n++;
	return n;
}

static bool find_block(const struct finder *s, const struct ir_op *down, struct ffn *b)
{
	*b = (struct ffn){.f = s->f, .down = down, .end = down, .ok = true};
	if (!is_constant_linear(s->f, down) || !take_value(s, b, down->operands[0], 0) || b->n_ops == 0)
		return false;
	for (size_t i = 0; i < b->n_ops; i++)
		if (!is_inner(s, b, b->ops[i]->results[0]))
			return false;
	for (size_t i = 0; i < b->n_ups; i++)
		if (!is_inner(s, b, b->ups[i]->results[0]))
			return false;
	b->ok = repeats_around(s->f, down) <= s->depth;
	if (!b->ok)
		pass_missed(s->p, down->loc,
		            "the hidden columns stay whole: more than %d repeat%s around them", s->depth,
		            s->depth == 1 ? " is" : "s are");
	const struct ir_type *h = ir_type_of(s->f, down->operands[0]);
	return ir_dim_is_const(h->dims[h->rank - 1], &b->hidden);
}

/* op adds something to what a block gives, and nothing else reads that. */
static void take_residual(struct finder *s, const struct ir_op *op)
{
	for (size_t k = s->first; k < s->list->n; k++) {
		struct ffn *b = &s->list->items[k];
		struct ir_value y = b->down->results[0];
		for (size_t i = 0; i < 2 && b->end == b->down; i++) {
			struct ir_value x = op->operands[1 - i];
			if (!ir_same(op->operands[i], y) || ir_same(x, y) || s->uses[y.id] != 1 ||
			    !same_dims(s->f, x, y) ||
			    ir_info(s->f, op->results[0])->region != ir_info(s->f, y)->region)
				continue;
			b->end = op;
			b->residual = x;
		}
	}
}

static void look_at(void *user, const struct ir_op *op)
{
	struct finder *s = user;
	struct ffn b;
	if (op->code == OP_add)
		take_residual(s, op);
	if (op->code != OP_linear || !find_block(s, op, &b))
		return;
	struct ffn *slot = ARENA_PUSH(s->p->arena, s->list);
	if (slot == NULL)
		s->failed = true;
	else
		*slot = b;
}

/* --- weights that others read -------------------------------------------------------------------------- */

/* How often a weight is read, and how often by blocks. */
struct count {
	int64_t all, blocks;
};

struct counter {
	struct pass_context *p;
	struct strmap names;
	const struct ir_func *f;
	bool failed;
};

static struct count *count_of(struct counter *c, const struct ir_weight *w)
{
	struct count *n = strmap_get(&c->names, w->name);
	if (n != NULL)
		return n;
	n = ARENA_ARRAY(c->p->arena, struct count, 1);
	if (n == NULL || !strmap_set(&c->names, w->name, n)) {
		c->failed = true;
		return NULL;
	}
	return n;
}

static void count_reads(void *user, const struct ir_op *op)
{
	struct counter *c = user;
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_op *def = op->operands[i].id == 0 ? NULL : ir_def(c->f, op->operands[i]);
		struct count *n = def != NULL && def->code == OP_weight ? count_of(c, weight_of(def)) : NULL;
		if (n != NULL)
			n->all++;
	}
}

/* The weights that a block cuts into parts, each once for each read; gives their number. */
static size_t weights_of(const struct ffn *b, const struct ir_weight *out[2 * FFN_UPS_MAX + 1])
{
	size_t n = 0;
	for (size_t i = 0; i < b->n_ups; i++)
		for (size_t k = 1; k <= 2; k++) {
			const struct ir_op *w = ffn_weight_op(b->f, b->ups[i], k);
			if (w != NULL)
				out[n++] = weight_of(w);
		}
	out[n++] = weight_of(ffn_weight_op(b->f, b->down, 1));
	return n;
}

static void add_block(struct counter *c, const struct ffn *b, int64_t by)
{
	const struct ir_weight *w[2 * FFN_UPS_MAX + 1];
	size_t n = weights_of(b, w);
	for (size_t i = 0; i < n; i++) {
		struct count *at = count_of(c, w[i]);
		if (at != NULL)
			at->blocks += by;
	}
}

/* The first weight of b that something else reads; NULL: none. */
static const struct ir_weight *shared_weight(struct counter *c, const struct ffn *b)
{
	const struct ir_weight *w[2 * FFN_UPS_MAX + 1];
	size_t n = weights_of(b, w);
	for (size_t i = 0; i < n; i++) {
		const struct count *at = count_of(c, w[i]);
		if (at == NULL || at->all != at->blocks)
			return w[i];
	}
	return NULL;
}

static void strike_out(struct counter *c, struct ffn_list *list)
{
	for (bool again = true; again;) {
		again = false;
		for (size_t i = 0; i < list->n; i++) {
			struct ffn *b = &list->items[i];
			const struct ir_weight *w = b->ok ? shared_weight(c, b) : NULL;
			if (w == NULL)
				continue;
			pass_missed(c->p, b->down->loc,
			            "the hidden columns stay whole: @%s is read elsewhere", w->name);
			add_block(c, b, -1);
			b->ok = false;
			again = true;
		}
	}
}

/* --- all ----------------------------------------------------------------------------------------------- */

bool ffn_find(struct pass_context *p, const struct ir_module *m, int depth, struct ffn_list *out)
{
	struct counter c = {.p = p};
	struct finder s = {.p = p, .list = out, .depth = depth};

	*out = (struct ffn_list){0};
	strmap_init(&c.names, p->arena);
	for (size_t i = 0; i < m->funcs.n; i++) {
		s.f = c.f = m->funcs.items[i];
		s.uses = ir_count_uses(p->arena, s.f);
		s.first = out->n;
		if (s.uses == NULL)
			return false;
		ir_walk(s.f->body, look_at, &s);
		ir_walk(s.f->body, count_reads, &c);
	}
	for (size_t i = 0; i < out->n; i++)
		if (out->items[i].ok)
			add_block(&c, &out->items[i], 1);
	strike_out(&c, out);
	return !s.failed && !c.failed && !arena_failed(p->arena);
}

const struct ffn *ffn_of(const struct ffn_list *list, const struct ir_op *op)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->items[i].end == op)
			return &list->items[i];
	return NULL;
}
