/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Use lists of a module that is only read, see module_uses.h.
 */
#include "passes/weights/module_uses.h"

#include "ir/support/checked.h"
#include "passes/weights/join_weights.h"

/* Deeper expressions stay: all passes that fold add a few levels. */
#define FOLD_DEPTH_MAX (WEXPR_DEPTH_MAX / 2)

static bool collect_func(struct arena *a, const struct ir_func *f, struct func_uses *u)
{
	u->f = f;
	u->marks = ARENA_ARRAY(a, void *, f->n_values);
	return u->marks != NULL && value_uses_of(a, f, &u->values);
}

static void count_weights(struct module_uses *u, const struct func_uses *fu)
{
	for (uint32_t v = 1; v < fu->f->n_values; v++) {
		const struct ir_weight *w = uses_weight(fu->f, (struct ir_value){v});
		struct weight_uses *count = w != NULL ? module_uses_weight(u, w) : NULL;
		size_t n;
		const struct value_use *use = uses_of(fu, (struct ir_value){v}, &n);
		for (size_t i = 0; count != NULL && i < n; i++) {
			bool matrix = use[i].op->code == OP_linear && use[i].operand == 1;
			count->linear += matrix;
			count->other += !matrix;
			count->gathers += use[i].op->code == OP_gather && use[i].operand == 0;
		}
	}
}

struct module_uses *module_uses_collect(struct arena *a, const struct ir_module *m)
{
	struct module_uses *u = ARENA_NEW(a, struct module_uses);
	if (u == NULL)
		return NULL;
	u->m = m;
	u->funcs = ARENA_ARRAY(a, struct func_uses, m->funcs.n + 1);
	u->weights = ARENA_ARRAY(a, struct weight_uses, m->weights.n + 1);
	strmap_init(&u->by_name, a);
	if (u->funcs == NULL || u->weights == NULL)
		return NULL;
	for (size_t i = 0; i < m->weights.n; i++) {
		u->weights[i].weight = m->weights.items[i];
		strmap_set(&u->by_name, m->weights.items[i]->name, &u->weights[i]);
	}
	for (size_t i = 0; i < m->funcs.n; i++) {
		if (!collect_func(a, m->funcs.items[i], &u->funcs[i]))
			return NULL;
		count_weights(u, &u->funcs[i]);
	}
	return arena_failed(a) ? NULL : u;
}

struct func_uses *module_uses_func(const struct module_uses *u, const struct ir_func *f)
{
	for (size_t i = 0; i < u->m->funcs.n; i++)
		if (u->funcs[i].f == f)
			return &u->funcs[i];
	return NULL;
}

struct weight_uses *module_uses_weight(const struct module_uses *u, const struct ir_weight *w)
{
	return strmap_get(&u->by_name, w->name);
}

const struct value_use *uses_of(const struct func_uses *u, struct ir_value v, size_t *n)
{
	*n = u->values.first[v.id + 1] - u->values.first[v.id];
	return &u->values.items[u->values.first[v.id]];
}

void *uses_mark(const struct module_uses *u, const struct ir_func *f, const struct ir_op *op)
{
	const struct func_uses *fu = module_uses_func(u, f);
	return fu == NULL || op->n_results == 0 ? NULL : fu->marks[op->results[0].id];
}

/* ---- weights ---- */

int64_t weight_bytes_of(const struct ir_weight *w)
{
	int64_t n = 1;
	for (int i = 0; i < w->type->rank; i++) {
		int64_t d = 0;
		if (!ir_dim_is_const(w->type->dims[i], &d) || !checked_mul_i64(n, d, &n))
			return INT64_MAX;
	}
	return checked_mul_i64(n, ir_dtype_bytes(ir_weight_dtype(w)), &n) ? n : INT64_MAX;
}

int64_t weight_entries(const struct weight_uses *u, size_t linear)
{
	return (linear > 0) + (u->other > (linear > 0 ? u->gathers : 0));
}

int64_t module_weight_bytes(struct arena *a, const struct ir_module *m)
{
	const struct module_uses *u = module_uses_collect(a, m);
	int64_t sum = 0;
	for (size_t i = 0; u != NULL && i < m->weights.n; i++) {
		const struct weight_uses *w = &u->weights[i];
		int64_t bytes = weight_bytes_of(w->weight);
		for (int64_t k = weight_entries(w, w->linear); k > 0; k--)
			sum = checked_add_i64(sum, bytes, &sum) ? sum : INT64_MAX;
	}
	return sum;
}

const struct ir_op *uses_weight_op(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = v.id == 0 ? NULL : ir_def(f, v);
	return op != NULL && op->code == OP_weight ? op : NULL;
}

const struct ir_weight *uses_weight(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = uses_weight_op(f, v);
	return op == NULL ? NULL : ((const struct attrs_weight *)op->attrs)->weight;
}

bool uses_foldable(const struct ir_weight *w)
{
	return w->init != NULL && w->init->depth <= FOLD_DEPTH_MAX && w->encoding == ENC_ROW &&
	       w->type->dtype == DT_F32;
}

bool uses_changeable(const struct ir_weight *w)
{
	return uses_foldable(w) && w->narrow == DT_F32;
}

bool uses_same_index(const struct ir_func *f, struct ir_value a, struct ir_value b)
{
	const struct ir_op *x = ir_def(f, a), *y = ir_def(f, b);
	if (ir_same(a, b))
		return true;
	return x != NULL && y != NULL && x->code == OP_full && y->code == OP_full &&
	       ((const struct attrs_full *)x->attrs)->value == ((const struct attrs_full *)y->attrs)->value;
}

bool uses_same_indices(const struct ir_func *f, const struct ir_op *a, const struct ir_op *b)
{
	for (size_t i = 0; i < a->n_operands && i < b->n_operands; i++)
		if (!uses_same_index(f, a->operands[i], b->operands[i]))
			return false;
	return a->n_operands == b->n_operands;
}

const struct ir_weight *uses_add_weight(struct rebuild *r, const struct ir_weight *like, const char *name,
                                        const struct ir_wexpr *init, bool replaces)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	const struct ir_weight *added = NULL;
	if (init != NULL) {
		for (int i = 0; i < init->rank; i++)
			dims[i] = ir_dim_const(r->out->dims, init->dims[i]);
		struct ir_weight w = {
		        .name = name,
		        .type = ir_type_tensor(r->out->types, like->type->dtype, init->rank, dims),
		        .encoding = ENC_ROW,
		        .narrow = wexpr_holds(init, like->narrow) ? like->narrow : DT_F32,
		        .init = init,
		        .loc = like->loc};
		added = replaces ? ir_add_weight(r->out, &w) : NULL;
		added = added != NULL ? added : join_add_weight(r, &w);
	}
	if (added == NULL)
		diag_error(r->p->cx, like->loc.at, DIAG_INTERNAL, "the folded weight @%s cannot be made",
		           name);
	return added;
}
