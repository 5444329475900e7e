/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of the builder: repeat, group, and the end of a function. The op
 * that owns a region is appended to the enclosing region when its own ends.
 */
#include "ir/builder/builder.h"

#include <string.h>

struct build_scope *build_open(struct ir_builder *b, enum ir_opcode code)
{
	struct build_scope *s = ARENA_NEW(&b->m->arena, struct build_scope);
	struct ir_region *r = ARENA_NEW(&b->m->arena, struct ir_region);
	if (b->failed)
		return NULL;
	if (b->depth >= IR_DEPTH_MAX) {
		build_fail(b, DIAG_LIMIT, "regions are nested deeper than %d", IR_DEPTH_MAX);
		return NULL;
	}
	if (s == NULL || r == NULL) {
		b->failed = true;
		return NULL;
	}
	*s = (struct build_scope){.parent = b->scope, .region = r, .loc = b->loc};
	intern_init(&s->merged, &b->m->arena);
	if (code != OP_return) {
		s->owner = ARENA_NEW(&b->m->arena, struct ir_op);
		if (s->owner == NULL) {
			b->failed = true;
			return NULL;
		}
		*s->owner = (struct ir_op){.code = code, .loc = b->loc, .region = r};
		r->owner = s->owner;
		r->parent = b->scope->region;
	}
	b->scope = s;
	b->depth++;
	return s;
}

/* Ends the region with `end` over the values. NULL after failure. */
static struct ir_op *build_close(struct ir_builder *b, enum ir_opcode end, const struct ir_value *values,
                                 size_t n)
{
	struct build_scope *s = b->scope;
	struct ir_loc inner = b->loc;
	b->loc = s->loc;
	struct ir_op *last = build_append(b, end, values, n);
	if (last == NULL)
		return NULL;
	last->attrs = ir_default_attrs(&b->m->arena, end);
	s->region->ops = s->ops.items;
	s->region->n_ops = s->ops.n;
	b->loc = inner;
	b->scope = s->parent;
	b->depth--;
	if (s->owner == NULL)
		return last;
	struct ir_op **slot = ARENA_PUSH(&b->m->arena, &b->scope->ops);
	if (slot == NULL) {
		b->failed = true;
		return NULL;
	}
	*slot = s->owner;
	return s->owner;
}

/* Reports values that are none, for example from another function. */
static bool check_values(struct ir_builder *b, const char *what, const struct ir_value *values, size_t n)
{
	if (n > BUILD_LIST_MAX) {
		build_fail(b, DIAG_LIMIT, "%s has more than %d values", what, BUILD_LIST_MAX);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (values[i].id == 0 || values[i].id >= b->f->n_values) {
			build_fail(b, DIAG_INTERNAL, "value %zu of %s is no value of function %s", i, what,
			           b->f->name);
			return false;
		}
	}
	return true;
}

static void no_values(struct ir_value *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		values[i] = IR_NO_VALUE;
}

/* The region ended: gives the owner its results, with the types of the yielded values. */
static void finish_owner(struct ir_builder *b, struct ir_op *op, const struct ir_value *yields, size_t n,
                         struct ir_value *results)
{
	const struct ir_type *types[BUILD_LIST_MAX] = {NULL};
	for (size_t i = 0; i < n; i++)
		types[i] = irb_type(b, yields[i]);
	if (build_results(b, op, types, n) && n > 0)
		memcpy(results, op->results, n * sizeof(*results));
}

/* True when the innermost region belongs to an op of that kind. */
static bool inside(struct ir_builder *b, enum ir_opcode code)
{
	if (b->scope->owner != NULL && b->scope->owner->code == code)
		return true;
	build_fail(b, DIAG_INTERNAL, "the innermost region is not that of a %s", ir_op_desc(code)->name);
	return false;
}

/* ---- repeat ---- */

static struct attrs_repeat *repeat_attrs(struct ir_builder *b, int64_t count)
{
	struct attrs_repeat *attrs = ir_default_attrs(&b->m->arena, OP_repeat);
	if (attrs != NULL)
		attrs->count = count;
	return attrs;
}

void irb_repeat_begin(struct ir_builder *b, int64_t count, const struct ir_value *init, size_t n_init,
                      struct ir_value *args)
{
	no_values(args, 1 + n_init);
	if (b->failed || !check_values(b, "repeat", init, n_init))
		return;
	if (count < 0 || count > INT32_MAX) {
		build_fail(b, DIAG_IR_TYPE, "repeat cannot run %lld times", (long long)count);
		return;
	}
	struct build_scope *s = build_open(b, OP_repeat);
	struct ir_value *list = ARENA_ARRAY(&b->m->arena, struct ir_value, 2 * (n_init + 1));
	if (s == NULL || list == NULL || arena_failed(&b->m->arena)) {
		b->failed = true;
		return;
	}
	struct ir_value *operands = list + n_init + 1;
	list[0] = build_value(b, ir_type_tensor(b->m->types, DT_I32, 0, NULL), NULL, 0);
	for (size_t i = 0; i < n_init; i++) {
		operands[i] = init[i];
		list[i + 1] = build_value(b, irb_type(b, init[i]), NULL, (unsigned)i + 1);
	}
	s->region->args = list;
	s->region->n_args = n_init + 1;
	s->owner->operands = operands;
	s->owner->n_operands = n_init;
	s->owner->attrs = repeat_attrs(b, count);
	if (s->owner->attrs == NULL)
		b->failed = true;
	memcpy(args, list, (n_init + 1) * sizeof(*args));
}

static bool yields_fit(struct ir_builder *b, const struct ir_value *yields, size_t n)
{
	const struct ir_op *owner = b->scope->owner;
	if (n != owner->n_operands) {
		build_fail(b, DIAG_IR_TYPE, "repeat carries %zu values, its body yields %zu",
		           owner->n_operands, n);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		const struct ir_type *want = irb_type(b, owner->operands[i]), *got = irb_type(b, yields[i]);
		if (want == got)
			continue;
		build_fail(b, DIAG_IR_TYPE, "carried value %zu of repeat is %s, the body yields %s", i,
		           ir_type_to_string(&b->m->arena, b->m->dims, want),
		           ir_type_to_string(&b->m->arena, b->m->dims, got));
		return false;
	}
	return true;
}

void irb_repeat_end(struct ir_builder *b, const struct ir_value *yields, size_t n, struct ir_value *results)
{
	no_values(results, n);
	if (b->failed || !inside(b, OP_repeat) || !check_values(b, "yield", yields, n) ||
	    !yields_fit(b, yields, n))
		return;
	struct ir_op *op = build_close(b, OP_yield, yields, n);
	if (op != NULL)
		finish_owner(b, op, yields, n, results);
}

/* ---- group ---- */

void irb_group_begin(struct ir_builder *b)
{
	if (!b->failed && build_open(b, OP_group) == NULL)
		b->failed = true;
}

void irb_group_end(struct ir_builder *b, const struct attrs_group *attrs, const struct ir_value *yields,
                   size_t n, struct ir_value *results)
{
	no_values(results, n);
	if (b->failed || !inside(b, OP_group) || !check_values(b, "yield", yields, n))
		return;
	struct ir_op *op = build_close(b, OP_yield, yields, n);
	if (op == NULL)
		return;
	op->attrs = build_copy_attrs(b->m, OP_group, attrs);
	if (op->attrs == NULL)
		b->failed = true;
	else
		finish_owner(b, op, yields, n, results);
}

/* ---- end of the function ---- */

static bool copy_results(struct ir_builder *b, const struct ir_result *results, size_t n)
{
	if (n == 0)
		return true;
	b->f->results = ARENA_ARRAY(&b->m->arena, struct ir_result, n);
	if (b->f->results == NULL)
		return false;
	for (size_t i = 0; i < n; i++) {
		b->f->results[i] = results[i];
		if (results[i].name != NULL)
			b->f->results[i].name =
			        strmap_intern(&b->m->strings, results[i].name, strlen(results[i].name));
	}
	b->f->n_results = n;
	return true;
}

static enum tfmc_status finish_status(const struct ir_builder *b)
{
	return b->cx->n_errors > 0 ? TFMC_INVALID : TFMC_NO_MEMORY;
}

enum tfmc_status irb_finish(struct ir_builder *b, const struct ir_value *values,
                            const struct ir_result *results, size_t n, const struct ir_dim *arena)
{
	if (b->failed || !check_values(b, "return", values, n))
		return finish_status(b);
	if (b->scope->parent != NULL) {
		build_fail(b, DIAG_INTERNAL, "function %s ends inside a region", b->f->name);
		return TFMC_INTERNAL;
	}
	if (build_close(b, OP_return, values, n) == NULL || !copy_results(b, results, n))
		return finish_status(b);
	b->f->arena = arena;
	if (ir_dims_failed(b->m->dims)) {
		build_fail(b, DIAG_OVERFLOW, "a dim of function %s does not fit into 64 bits", b->f->name);
		return TFMC_INVALID;
	}
	struct ir_func **slot = ARENA_PUSH(&b->m->arena, &b->m->funcs);
	if (slot == NULL || !strmap_set(&b->m->func_names, b->f->name, b->f))
		return TFMC_NO_MEMORY;
	*slot = b->f;
	return arena_failed(&b->m->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}
