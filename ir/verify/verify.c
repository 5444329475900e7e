/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier, see verify.h for what it checks. It walks every region once,
 * with the set of visible values; nothing is trusted that a pass could have
 * set.
 */

#include "ir/builder/build.h"
#include "ir/verify/internal.h"

void verify_fail(struct verifier *v, struct ir_loc loc, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	const char *text = arena_vprintf(&v->arena, fmt, ap);
	va_end(ap);
	v->n_failed++;
	if (v->f != NULL)
		diag_error(v->cx, loc.at, DIAG_IR_VERIFY, "in @%s: %s", v->f->name, text);
	else
		diag_error(v->cx, loc.at, DIAG_IR_VERIFY, "%s", text);
}

const char *verify_type_text(struct verifier *v, const struct ir_type *t)
{
	return t == NULL ? "without type" : ir_type_to_string(&v->arena, v->m->dims, t);
}

const char *verify_value_text(struct verifier *v, struct ir_value value)
{
	const char *name = value.id < v->f->n_values ? ir_value_info(v->f, value)->name : NULL;
	return name != NULL ? arena_printf(&v->arena, "%%%s", name)
	                    : arena_printf(&v->arena, "value %u", value.id);
}

/* ---- operands ---- */

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

/* A state crosses into the body of a group, but not of a repeat: that would use it again and again. */
static bool state_may_cross(const struct ir_region *from, const struct ir_region *to)
{
	while (to != from && to->owner != NULL && to->owner->code == OP_group)
		to = to->parent;
	return to == from;
}

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
		            name, verify_value_text(v, x));
		return false;
	}
	if (ir_type_of(v->f, x)->kind == IR_STATE && !state_may_cross(ir_value_info(v->f, x)->region, r))
		verify_fail(v, op->loc, "%s uses the state %s of an enclosing region: carry it", name,
		            verify_value_text(v, x));
	const struct ir_op *def = ir_def(v->f, x);
	if (op->code == OP_weight && def != NULL && def->code == OP_weight)
		verify_fail(v, op->loc, "an index of the weight reference is itself a weight");
	return true;
}

static bool verify_operands(struct verifier *v, const struct ir_region *r, const struct ir_op *op)
{
	bool ok = true;
	for (size_t i = 0; i < op->n_operands; i++)
		ok = verify_operand(v, r, op, i) && ok;
	return ok;
}

/* ---- types ---- */

static void same_type(struct verifier *v, const struct ir_op *op, const char *what, size_t i,
                      const struct ir_type *a, const struct ir_type *b)
{
	if (a != b)
		verify_fail(v, op->loc, "%s %zu of %s is %s, it should be %s", what, i,
		            ir_op_desc(op->code)->name, verify_type_text(v, a), verify_type_text(v, b));
}

static void verify_plain(struct verifier *v, const struct ir_op *op)
{
	const struct ir_type *got[2] = {NULL, NULL};
	const struct ir_type **in = ARENA_ARRAY(&v->arena, const struct ir_type *, op->n_operands + 1);
	const char *name = ir_op_desc(op->code)->name;
	if (op->attrs == NULL || op->n_results != ir_op_desc(op->code)->results || op->n_results > 2) {
		verify_fail(v, op->loc, "%s has no attributes or %zu results", name, op->n_results);
		return;
	}
	for (size_t i = 0; in != NULL && i < op->n_operands; i++)
		in[i] = op->operands[i].id == 0 ? NULL : ir_type_of(v->f, op->operands[i]);
	if (op->code == OP_weight) {
		const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
		if (w == NULL || ir_find_weight(v->m, w->name) != w) {
			verify_fail(v, op->loc, "a reference to a weight that is not in the module");
			return;
		}
	}
	if (in == NULL || !ir_infer(v->m, v->cx, op->loc, op->code, in, op->n_operands, op->attrs, got)) {
		v->n_failed++;
		return;
	}
	for (size_t i = 0; i < op->n_results; i++)
		same_type(v, op, "result", i, ir_type_of(v->f, op->results[i]), got[i]);
}

static void verify_repeat(struct verifier *v, const struct ir_op *op, const struct ir_op *yield)
{
	const struct ir_region *r = op->region;
	size_t n = op->n_operands;
	if (r->n_args != n + 1 || op->n_results != n || yield->n_operands != n) {
		verify_fail(v, op->loc, "repeat has %zu inits, %zu arguments, %zu yields and %zu results", n,
		            r->n_args, yield->n_operands, op->n_results);
		return;
	}
	same_type(v, op, "argument", 0, ir_type_of(v->f, r->args[0]),
	          ir_type_tensor(v->m->types, DT_I32, 0, NULL));
	for (size_t i = 0; i < n; i++) {
		const struct ir_type *t = ir_type_of(v->f, op->operands[i]);
		same_type(v, op, "argument", i + 1, ir_type_of(v->f, r->args[i + 1]), t);
		same_type(v, op, "yield", i, ir_type_of(v->f, yield->operands[i]), t);
		same_type(v, op, "result", i, ir_type_of(v->f, op->results[i]), t);
	}
}

static void verify_group_types(struct verifier *v, const struct ir_op *op, const struct ir_op *yield)
{
	if (op->region->n_args != 0 || op->n_operands != 0 || op->n_results != yield->n_operands) {
		verify_fail(v, op->loc, "group has %zu arguments, %zu yields and %zu results",
		            op->region->n_args, yield->n_operands, op->n_results);
		return;
	}
	for (size_t i = 0; i < op->n_results; i++)
		same_type(v, op, "result", i, ir_type_of(v->f, op->results[i]),
		          ir_type_of(v->f, yield->operands[i]));
}

/* ---- regions ---- */

static void define(struct verifier *v, const struct ir_value *values, size_t n, const struct ir_op *def,
                   const struct ir_region *r, struct ir_loc loc)
{
	for (size_t i = 0; i < n; i++) {
		struct ir_value x = values[i];
		if (x.id == 0 || x.id >= v->f->n_values || v->visible[x.id]) {
			verify_fail(v, loc, "a value is defined twice or does not exist");
			continue;
		}
		const struct ir_value_info *info = ir_value_info(v->f, x);
		v->visible[x.id] = true;
		if (info->type == NULL || info->def != def || info->index != i || info->region != r)
			verify_fail(v, loc, "the record of %s is wrong", verify_value_text(v, x));
		else if (info->type->kind == IR_STATE && v->uses[x.id] != 1)
			verify_fail(v, loc, "the state %s is used %u times: it must be used once",
			            verify_value_text(v, x), v->uses[x.id]);
	}
}

static void hide(struct verifier *v, const struct ir_value *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (values[i].id < v->f->n_values)
			v->visible[values[i].id] = false;
}

static bool verify_region(struct verifier *v, const struct ir_region *r, struct ir_loc loc, bool in_group);

static bool verify_op(struct verifier *v, const struct ir_region *r, const struct ir_op *op, bool in_group)
{
	if (!verify_operands(v, r, op))
		return false;
	if (!in_group)
		verify_stage_of(v, op);
	if (ir_op_has(op->code, TRAIT_REGION)) {
		if (op->region == NULL || op->region->owner != op || op->attrs == NULL) {
			verify_fail(v, op->loc, "%s has no region", ir_op_desc(op->code)->name);
			return false;
		}
		if (!verify_region(v, op->region, op->loc, in_group || op->code == OP_group))
			return false;
		const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
		if (op->code == OP_repeat)
			verify_repeat(v, op, yield);
		else
			verify_group_types(v, op, yield);
	} else if (!ir_op_has(op->code, TRAIT_TERMINATOR)) {
		verify_plain(v, op);
	}
	define(v, op->results, op->n_results, op, r, op->loc);
	return true;
}

static bool ends_well(struct verifier *v, const struct ir_region *r, struct ir_loc loc)
{
	enum ir_opcode end = r->owner == NULL ? OP_return : OP_yield;
	bool ok = r->n_ops > 0 && r->ops[r->n_ops - 1]->code == end;
	for (size_t i = 0; ok && i + 1 < r->n_ops; i++)
		ok = !ir_op_has(r->ops[i]->code, TRAIT_TERMINATOR);
	if (!ok)
		verify_fail(v, loc, "a region does not end in its only '%s'", ir_op_desc(end)->name);
	return ok;
}

static bool verify_region(struct verifier *v, const struct ir_region *r, struct ir_loc loc, bool in_group)
{
	if (!ends_well(v, r, loc))
		return false;
	define(v, r->args, r->n_args, NULL, r, loc);
	bool ok = true;
	for (size_t i = 0; ok && i < r->n_ops; i++)
		ok = verify_op(v, r, r->ops[i], in_group);
	hide(v, r->args, r->n_args);
	for (size_t i = 0; i < r->n_ops; i++)
		hide(v, r->ops[i]->results, r->ops[i]->n_results);
	return ok;
}

static void verify_func(struct verifier *v)
{
	const struct ir_func *f = v->f;
	if (f->body == NULL || f->body->owner != NULL || !ends_well(v, f->body, f->loc))
		return;
	v->visible = ARENA_ARRAY(&v->arena, bool, f->n_values + 1);
	v->uses = ir_count_uses(&v->arena, f);
	if (v->visible == NULL || v->uses == NULL)
		return;
	if (verify_region(v, f->body, f->loc, false)) {
		verify_signature(v);
		verify_case(v);
	}
	if (v->m->stage == STAGE_PLAN && f->arena == NULL)
		verify_fail(v, f->loc, "no arena in the stage plan");
	if (v->m->stage == STAGE_PLAN && v->n_failed == 0)
		verify_plan(v);
}

enum tfmc_status ir_verify(struct ir_module *m, struct diag_context *cx)
{
	struct verifier v = {.m = m, .cx = cx};
	arena_init(&v.arena);
	verify_declarations(&v);
	for (size_t i = 0; i < m->funcs.n; i++) {
		v.f = m->funcs.items[i];
		verify_func(&v);
	}
	bool memory = !arena_failed(&v.arena);
	arena_destroy(&v.arena);
	if (v.n_failed > 0)
		return TFMC_INVALID;
	return memory ? TFMC_OK : TFMC_NO_MEMORY;
}
