/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cloning of ops and functions through the builder: types are inferred again, ops are simplified, and in a case its
 * symbols are replaced. The body of a group is copied without simplification, so that the position of its root stays
 * right. map[id]: the new value for each value of the copied function. Failures are sticky in the builder.
 */
#include "ir/core/builder.h"
#include "ir/core/case.h"

static const struct ir_dim *import_dim(struct ir_builder *b, const struct ir_dim *d)
{
	d = ir_import_dim(b->m, d);
	return d != NULL && b->bound != NULL ? ir_case_bind_dim(b->m, b->bound, d) : d;
}

static const struct ir_type *import_type(struct ir_builder *b, const struct ir_type *t)
{
	t = ir_import_type(b->m, t);
	return t != NULL && b->bound != NULL ? ir_case_bind_type(b->m, b->bound, t) : t;
}

/* The weight of the new function's module that is equal to w, added if it is absent. NULL after a report: another
 * weight has its name. */
static const struct ir_weight *import_weight(struct ir_builder *b, const struct ir_weight *w)
{
	if (w == NULL || ir_find_weight(b->m, w->name) == w)
		return w;
	const struct ir_weight *r = ir_add_weight(b->m, w);
	if (r == NULL)
		build_fail(b, DIAG_INTERNAL, "the weight @%s has two meanings", w->name);
	return r;
}

/* Replaces the dims of a list by those of the new function's module, as import_dim does, in a new array. False
 * without memory or for a dim that cannot be imported. */
static bool import_dims(struct ir_builder *b, struct ir_dim_list *list)
{
	const struct ir_dim **items =
	        list->n == 0 ? NULL : ARENA_ARRAY(&b->m->arena, const struct ir_dim *, list->n);
	for (size_t i = 0; items != NULL && i < list->n; i++) {
		items[i] = import_dim(b, list->items[i]);
		if (items[i] == NULL)
			return false;
	}
	list->items = items;
	return list->n == 0 || items != NULL;
}

/* A copy of the attributes with dims and weights imported into the module; NULL after failure. A dim may be NULL
 * (absent). */
static void *import_attrs(struct ir_builder *b, const struct ir_op *op)
{
	char *copy = build_copy_attrs(b->m, op->code, op->attrs);
	bool ok = copy != NULL;
	for (const struct ir_attr_desc *d = ir_op_desc(op->code)->attrs; ok && d->name != NULL; d++) {
		void *at = copy + d->offset;
		if (d->kind == ATTR_DIM) {
			const struct ir_dim **dim = at;
			*dim = import_dim(b, *dim);
		} else if (d->kind == ATTR_DIMS) {
			ok = import_dims(b, at);
		} else if (d->kind == ATTR_WEIGHT) {
			const struct ir_weight **w = at;
			*w = import_weight(b, *w);
			ok = *w != NULL;
		}
	}
	if (!ok)
		build_fail(b, DIAG_INTERNAL, "attributes of %s cannot be copied", ir_op_desc(op->code)->name);
	return ok ? copy : NULL;
}

/* ---- ops ---- */

void ir_copy_values(const struct ir_copy *c, const struct ir_value *old, size_t n, struct ir_value *out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = old[i].id == 0 ? IR_NO_VALUE : c->map[old[i].id];
}

void ir_copy_set(struct ir_copy *c, struct ir_value old, struct ir_value now)
{
	c->map[old.id] = now;
	irb_name(c->b, now, ir_value_info(c->from, old)->name);
}

static void record_all(struct ir_copy *c, const struct ir_value *old, const struct ir_value *now, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ir_copy_set(c, old[i], now[i]);
}

void ir_copy_repeat_begin(struct ir_copy *c, const struct ir_op *op, int64_t count,
                          const struct ir_value *init, size_t n, struct ir_value *args)
{
	irb_set_loc(c->b, op->loc);
	irb_repeat_begin(c->b, count, init, n, args);
	record_all(c, op->region->args, args, op->region->n_args);
}

void ir_copy_repeat_end(struct ir_copy *c, const struct ir_op *op, const struct ir_value *yields, size_t n,
                        struct ir_value *results)
{
	irb_set_loc(c->b, op->loc);
	irb_repeat_end(c->b, yields, n, results);
	record_all(c, op->results, results, op->n_results);
}

/* The yields are looked up after the body is copied, when map has them. args is used again for the results. */
void ir_copy_repeat(struct ir_copy *c, const struct ir_op *op, int64_t count)
{
	struct ir_value values[BUILD_LIST_MAX], args[BUILD_LIST_MAX + 1];
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	ir_copy_values(c, op->operands, op->n_operands, values);
	ir_copy_repeat_begin(c, op, count, values, op->n_operands, args);
	ir_copy_region(c, op->region);
	ir_copy_values(c, yield->operands, yield->n_operands, values);
	ir_copy_repeat_end(c, op, values, yield->n_operands, args);
}

/* `inside` has no hook, and the builder keeps ops literally while the body is copied: attrs->root is a position in
 * it. */
void ir_copy_group(struct ir_copy *c, const struct ir_op *op, const struct attrs_group *attrs)
{
	struct ir_value values[BUILD_LIST_MAX], results[BUILD_LIST_MAX];
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	struct ir_copy inside = {c->b, c->from, c->map, NULL, NULL};
	bool literal = c->b->literal;
	irb_set_loc(c->b, op->loc);
	irb_group_begin(c->b);
	c->b->literal = true;
	ir_copy_region(&inside, op->region);
	c->b->literal = literal;
	ir_copy_values(c, yield->operands, yield->n_operands, values);
	irb_group_end(c->b, attrs, values, yield->n_operands, results);
	record_all(c, op->results, results, op->n_results);
}

/* Copies op with its region; the hook applies in the region of a repeat, not in a group, whose root is known by its
 * position. The new op may be simplified to another value, which the results then map to. */
static void copy_op(struct ir_copy *c, const struct ir_op *op)
{
	struct ir_value operands[BUILD_LIST_MAX], results[2];
	if (op->code == OP_repeat) {
		ir_copy_repeat(c, op, ((const struct attrs_repeat *)op->attrs)->count);
		return;
	}
	const void *attrs = import_attrs(c->b, op);
	if (attrs == NULL)
		return;
	if (op->code == OP_group) {
		ir_copy_group(c, op, attrs);
		return;
	}
	ir_copy_values(c, op->operands, op->n_operands, operands);
	irb_op(c->b, op->code, operands, op->n_operands, attrs, results, op->n_results);
	record_all(c, op->results, results, op->n_results);
}

/* Copies all ops of r but its terminator, until a failure. */
void ir_copy_region(struct ir_copy *c, const struct ir_region *r)
{
	for (size_t i = 0; i + 1 < r->n_ops && !c->b->failed; i++) {
		irb_set_loc(c->b, r->ops[i]->loc);
		if (c->hook == NULL || !c->hook(c, r->ops[i]))
			copy_op(c, r->ops[i]);
	}
}

/* Terminators are built at the end of regions. The location of the builder is that of the caller again afterwards. */
void irb_clone(struct ir_builder *b, const struct ir_func *from, const struct ir_op *op, struct ir_value *map)
{
	struct ir_copy c = {b, from, map, NULL, NULL};
	if (b->failed || ir_op_has(op->code, TRAIT_TERMINATOR))
		return;
	struct ir_loc before = b->loc;
	irb_set_loc(b, op->loc);
	copy_op(&c, op);
	b->loc = before;
}

/* ---- functions ---- */

/* The case is set first, as the types of parameters have its symbols replaced. */
void irb_clone_params(struct ir_builder *b, const struct ir_func *from, struct ir_value *map)
{
	if (from->when != NULL && b->f->when == NULL)
		irb_case(b, from->when);
	for (size_t i = 0; i < from->n_params; i++) {
		struct ir_param p = from->params[i];
		p.default_value = import_dim(b, p.default_value);
		p.max = import_dim(b, p.max);
		map[p.value.id] = irb_param(b, &p, import_type(b, ir_type_of(from, p.value)));
	}
}

/* The operands of the old return, mapped, are returned. */
enum tfmc_status ir_copy_finish(struct ir_copy *c, const struct ir_dim *arena)
{
	const struct ir_op *ret = c->from->body->ops[c->from->body->n_ops - 1];
	struct ir_value values[BUILD_LIST_MAX];
	ir_copy_values(c, ret->operands, ret->n_operands, values);
	irb_set_loc(c->b, ret->loc);
	return irb_finish(c->b, values, c->from->results, ret->n_operands, arena);
}
