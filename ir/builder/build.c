/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder: functions, parameters, ops. Every op passes through irb_op,
 * which infers types, folds, merges, and appends to the innermost region.
 * Invariant: after a failure nothing is added any more.
 */
#include "ir/builder/builder.h"

#include <string.h>

/* ---- state ---- */

struct ir_module *irb_module(const struct ir_builder *b)
{
	return b->m;
}

const struct ir_func *irb_func(const struct ir_builder *b)
{
	return b->f;
}

bool irb_failed(const struct ir_builder *b)
{
	return b->failed;
}

void irb_set_loc(struct ir_builder *b, struct ir_loc loc)
{
	b->loc = ir_import_loc(b->m, loc);
}

void irb_set_literal(struct ir_builder *b, bool literal)
{
	b->literal = literal;
}

void build_report_at(struct ir_builder *b, struct loc at)
{
	b->report_at = at;
}

struct loc build_at(const struct ir_builder *b)
{
	return b->report_at.source != 0 ? b->report_at : b->loc.at;
}

void build_fail(struct ir_builder *b, enum diag_code code, const char *fmt, ...)
{
	if (b->failed)
		return;
	b->failed = true;
	va_list ap;
	va_start(ap, fmt);
	diag_error(b->cx, build_at(b), code, "%s", arena_vprintf(&b->m->arena, fmt, ap));
	va_end(ap);
}

/* ---- values and ops ---- */

struct ir_value build_value(struct ir_builder *b, const struct ir_type *type, const struct ir_op *def,
                            unsigned index)
{
	struct ir_func *f = b->f;
	if (f->n_values == f->cap_values) {
		size_t want = f->cap_values == 0 ? 64 : f->cap_values * 2;
		void *values = arena_grow(&b->m->arena, f->values, f->n_values, want, sizeof(*f->values));
		if (values == NULL || f->n_values > UINT32_MAX / 4) {
			build_fail(b, DIAG_LIMIT, "too many values in function %s", f->name);
			return IR_NO_VALUE;
		}
		f->values = values;
		f->cap_values = want;
	}
	struct ir_value v = {(uint32_t)f->n_values++};
	f->values[v.id] = (struct ir_value_info){type, NULL, def, b->scope->region, index};
	return v;
}

struct ir_op *build_append(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                           size_t n)
{
	struct ir_op *op = ARENA_NEW(&b->m->arena, struct ir_op);
	struct ir_value *list = n == 0 ? NULL : ARENA_ARRAY(&b->m->arena, struct ir_value, n);
	if (b->failed)
		return NULL;
	if (b->n_ops++ >= BUILD_OPS_MAX) {
		build_fail(b, DIAG_LIMIT, "function %s has more than %d ops", b->f->name, BUILD_OPS_MAX);
		return NULL;
	}
	struct ir_op **slot = ARENA_PUSH(&b->m->arena, &b->scope->ops);
	if (op == NULL || (n > 0 && list == NULL) || slot == NULL) {
		b->failed = true;
		return NULL;
	}
	if (n > 0)
		memcpy(list, operands, n * sizeof(*list));
	*op = (struct ir_op){.code = code, .loc = b->loc, .operands = list, .n_operands = n};
	*slot = op;
	return op;
}

bool build_results(struct ir_builder *b, struct ir_op *op, const struct ir_type *const *types, size_t n)
{
	struct ir_value *list = n == 0 ? NULL : ARENA_ARRAY(&b->m->arena, struct ir_value, n);
	if (n > 0 && list == NULL) {
		b->failed = true;
		return false;
	}
	for (size_t i = 0; i < n; i++)
		list[i] = build_value(b, types[i], op, (unsigned)i);
	op->results = list;
	op->n_results = n;
	return !b->failed;
}

/* ---- functions and parameters ---- */

struct ir_builder *irb_begin(struct ir_module *m, struct diag_context *cx, const char *name,
                             struct ir_loc loc)
{
	struct ir_builder *b = ARENA_NEW(&m->arena, struct ir_builder);
	if (b == NULL)
		return NULL;
	*b = (struct ir_builder){.m = m, .cx = cx, .f = ARENA_NEW(&m->arena, struct ir_func)};
	irb_set_loc(b, loc);
	if (b->f == NULL || build_open(b, OP_return) == NULL) {
		b->failed = true;
		return b;
	}
	b->f->name = strmap_intern(&m->strings, name, strlen(name));
	b->f->loc = b->loc;
	b->f->body = b->scope->region;
	build_value(b, NULL, NULL, 0); /* id 0 is no value */
	if (ir_find_func(m, name) != NULL)
		build_fail(b, DIAG_NAME_CLASH, "there is already a function @%s", name);
	return b;
}

static struct ir_param *push_param(struct ir_builder *b)
{
	struct {
		struct ir_param *items;
		size_t n, cap;
	} list = {b->f->params, b->f->n_params, b->cap_params};
	struct ir_param *p = ARENA_PUSH(&b->m->arena, &list);
	b->f->params = list.items;
	b->f->n_params = list.n;
	b->cap_params = list.cap;
	return p;
}

/* Adds v to the arguments of the body. */
static bool push_argument(struct ir_builder *b, struct ir_value v)
{
	struct ir_region *r = b->f->body;
	struct ir_value *args = arena_grow(&b->m->arena, r->args, r->n_args, r->n_args + 1, sizeof(*args));
	if (args == NULL)
		return false;
	args[r->n_args++] = v;
	r->args = args;
	return true;
}

struct ir_value irb_param(struct ir_builder *b, const struct ir_param *p, const struct ir_type *type)
{
	if (b->failed)
		return IR_NO_VALUE;
	if (type == NULL || b->scope->parent != NULL || b->scope->ops.n > 0) {
		build_fail(b, DIAG_IR_TYPE, "parameter %s has no type or comes after an op",
		           p->name != NULL ? p->name : "");
		return IR_NO_VALUE;
	}
	struct ir_value v = build_value(b, type, NULL, (unsigned)b->f->n_params);
	struct ir_param *copy = push_param(b);
	if (copy == NULL || !push_argument(b, v)) {
		b->failed = true;
		return IR_NO_VALUE;
	}
	*copy = *p;
	copy->value = v;
	copy->loc = ir_import_loc(b->m, p->loc);
	if (p->name != NULL) {
		copy->name = strmap_intern(&b->m->strings, p->name, strlen(p->name));
		b->f->values[v.id].name = copy->name;
	}
	return v;
}

void irb_name(struct ir_builder *b, struct ir_value v, const char *name)
{
	if (v.id == 0 || v.id >= b->f->n_values || name == NULL || b->f->values[v.id].name != NULL)
		return;
	b->f->values[v.id].name = strmap_intern(&b->m->strings, name, strlen(name));
}

const struct ir_type *irb_type(const struct ir_builder *b, struct ir_value v)
{
	return v.id < b->f->n_values ? b->f->values[v.id].type : NULL;
}

/* ---- ops ---- */

/* An equal op of this or an enclosing region. */
static struct ir_op *find_merged(const struct ir_builder *b, uint64_t hash, const struct op_key *key)
{
	for (const struct build_scope *s = b->scope; s != NULL; s = s->parent) {
		struct ir_op *op = intern_find(&s->merged, hash, op_key_equal, key);
		if (op != NULL)
			return op;
	}
	return NULL;
}

/* Absent optional operands at the end become explicit, so that every op has all its slots. */
static size_t fill_slots(enum ir_opcode code, const struct ir_value *given, size_t n, struct ir_value *slots)
{
	const struct ir_operand_desc *d = ir_op_desc(code)->operands;
	size_t fixed = 0;
	while (d[fixed].name != NULL && d[fixed].kind != OPERAND_VARIADIC)
		fixed++;
	for (size_t i = 0; i < n && i < BUILD_LIST_MAX; i++)
		slots[i] = given[i];
	for (; n < fixed; n++)
		slots[n] = IR_NO_VALUE;
	return n;
}

static bool gather_types(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands, size_t n,
                         const struct ir_type **types)
{
	if (n > BUILD_LIST_MAX) {
		build_fail(b, DIAG_LIMIT, "%s has more than %d operands", ir_op_desc(code)->name,
		           BUILD_LIST_MAX);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (operands[i].id >= b->f->n_values) {
			build_fail(b, DIAG_INTERNAL, "operand %zu of %s is not a value of function %s", i,
			           ir_op_desc(code)->name, b->f->name);
			return false;
		}
		types[i] = irb_type(b, operands[i]);
	}
	return true;
}

static void emit(struct ir_builder *b, const struct op_key *key, const struct ir_type *const *types,
                 size_t n_results, struct ir_value *results)
{
	struct ir_op *op = build_append(b, key->code, key->operands, key->n_operands);
	if (op == NULL)
		return;
	op->attrs = build_copy_attrs(b->m, key->code, key->attrs);
	if (op->attrs == NULL || !build_results(b, op, types, n_results)) {
		b->failed = true;
		return;
	}
	memcpy(results, op->results, n_results * sizeof(*results));
	if (ir_op_has(key->code, TRAIT_PURE) && !b->literal)
		if (!intern_add(&b->scope->merged, op_key_hash(key), op))
			b->failed = true;
}

/* The result of an op that need not be emitted; false when it must. */
static bool reuse(struct ir_builder *b, const struct op_key *key, const struct ir_type *type,
                  struct ir_value *results)
{
	if (b->literal || !ir_op_has(key->code, TRAIT_PURE))
		return false;
	results[0] = build_fold(b, key->code, key->operands, type, key->attrs);
	if (results[0].id != 0 || b->failed)
		return true;
	const struct ir_op *op = find_merged(b, op_key_hash(key), key);
	if (op != NULL)
		results[0] = op->results[0];
	return op != NULL;
}

void irb_op(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands, size_t n_operands,
            const void *attrs, struct ir_value *results, size_t n_results)
{
	const struct ir_type *types[BUILD_LIST_MAX], *out[2] = {NULL, NULL};
	struct ir_value slots[BUILD_LIST_MAX];
	for (size_t i = 0; i < n_results; i++)
		results[i] = IR_NO_VALUE;
	n_operands = fill_slots(code, operands, n_operands, slots);
	operands = slots;
	if (b->failed || !gather_types(b, code, operands, n_operands, types))
		return;
	if (n_results == 0 || n_results != ir_op_desc(code)->results) {
		build_fail(b, DIAG_INTERNAL, "%s has %zu results, %zu were asked for", ir_op_desc(code)->name,
		           ir_op_desc(code)->results, n_results);
		return;
	}
	if (attrs == NULL)
		attrs = ir_default_attrs(&b->m->arena, code);
	struct ir_loc loc = {build_at(b), NULL};
	if (attrs == NULL || !ir_infer(b->m, b->cx, loc, code, types, n_operands, attrs, out)) {
		b->failed = true;
		return;
	}
	struct op_key key = {code, operands, n_operands, attrs};
	if (!reuse(b, &key, out[0], results))
		emit(b, &key, out, n_results, results);
}

struct ir_value irb_op1(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                        size_t n_operands, const void *attrs)
{
	struct ir_value v;
	irb_op(b, code, operands, n_operands, attrs, &v, 1);
	return v;
}
