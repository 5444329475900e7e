/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of ops of one function into another, through the builder: types are
 * inferred again, trivial ops fold; in a case its symbols are bound. The body of a group is copied literally,
 * so that the position of its root stays true.
 */
#include "ir/builder/builder.h"
#include "ir/builder/case.h"

#include <string.h>

static const struct ir_dim *import_dim(struct ir_builder *b, const struct ir_dim *d)
{
	d = ir_import_dim(b->m, d);
	return d != NULL && b->f->when != NULL ? ir_case_bind(b->m, b->f->when, d) : d;
}

static const struct ir_type *import_type(struct ir_builder *b, const struct ir_type *t)
{
	t = ir_import_type(b->m, t);
	return t != NULL && b->f->when != NULL ? ir_case_bind_type(b->m, b->f->when, t) : t;
}

static const struct ir_weight *import_weight(struct ir_builder *b, const struct ir_weight *w)
{
	if (w == NULL || ir_find_weight(b->m, w->name) == w)
		return w;
	const struct ir_weight *r = ir_add_weight(b->m, w);
	if (r == NULL)
		build_fail(b, DIAG_INTERNAL, "the weight @%s has two meanings", w->name);
	return r;
}

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

/* The attributes of an op of another module, with dims and weights of this one. NULL after failure. */
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

static void map_values(const struct ir_value *from, size_t n, const struct ir_value *map,
                       struct ir_value *out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = from[i].id == 0 ? IR_NO_VALUE : map[from[i].id];
}

/* Results keep their names; a value that has one already keeps its own. */
static void record(struct ir_builder *b, const struct ir_func *from, const struct ir_value *old,
                   const struct ir_value *now, size_t n, struct ir_value *map)
{
	for (size_t i = 0; i < n; i++) {
		map[old[i].id] = now[i];
		irb_name(b, now[i], ir_info(from, old[i])->name);
	}
}

static void clone_body(struct ir_builder *b, const struct ir_func *from, const struct ir_region *r,
                       struct ir_value *map)
{
	for (size_t i = 0; i + 1 < r->n_ops; i++)
		irb_clone(b, from, r->ops[i], map);
}

static void clone_repeat(struct ir_builder *b, const struct ir_func *from, const struct ir_op *op,
                         struct ir_value *map)
{
	const struct attrs_repeat *attrs = op->attrs;
	struct ir_value values[BUILD_LIST_MAX], args[BUILD_LIST_MAX + 1];
	map_values(op->operands, op->n_operands, map, values);
	irb_repeat_begin(b, attrs->count, values, op->n_operands, args);
	record(b, from, op->region->args, args, op->region->n_args, map);
	clone_body(b, from, op->region, map);
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	map_values(yield->operands, yield->n_operands, map, values);
	irb_repeat_end(b, values, yield->n_operands, args);
	record(b, from, op->results, args, op->n_results, map);
}

static void clone_group(struct ir_builder *b, const struct ir_func *from, const struct ir_op *op,
                        struct ir_value *map)
{
	struct ir_value values[BUILD_LIST_MAX], results[BUILD_LIST_MAX];
	const void *attrs = import_attrs(b, op);
	bool literal = b->literal;
	if (attrs == NULL)
		return;
	irb_group_begin(b);
	b->literal = true;
	clone_body(b, from, op->region, map);
	b->literal = literal;
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	map_values(yield->operands, yield->n_operands, map, values);
	irb_group_end(b, attrs, values, yield->n_operands, results);
	record(b, from, op->results, results, op->n_results, map);
}

static void clone_plain(struct ir_builder *b, const struct ir_func *from, const struct ir_op *op,
                        struct ir_value *map)
{
	struct ir_value operands[BUILD_LIST_MAX], results[2];
	const void *attrs = import_attrs(b, op);
	if (attrs == NULL)
		return;
	map_values(op->operands, op->n_operands, map, operands);
	irb_op(b, op->code, operands, op->n_operands, attrs, results, op->n_results);
	record(b, from, op->results, results, op->n_results, map);
}

void irb_clone(struct ir_builder *b, const struct ir_func *from, const struct ir_op *op, struct ir_value *map)
{
	if (b->failed || ir_op_has(op->code, TRAIT_TERMINATOR))
		return;
	struct ir_loc before = b->loc;
	irb_set_loc(b, op->loc);
	if (op->code == OP_repeat)
		clone_repeat(b, from, op, map);
	else if (op->code == OP_group)
		clone_group(b, from, op, map);
	else
		clone_plain(b, from, op, map);
	b->loc = before;
}

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
