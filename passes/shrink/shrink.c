/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of a module in the sizes that shrink_shapes.h found: the same ops in
 * the same order, built literally; where anything does not fit the module is
 * not shrunk.
 */
#include "passes/shrink/shrink.h"

#include "ir/builder/build.h"
#include "ir/verify/verify.h"
#include "passes/shrink/shrink_weights.h"

#define BOUND_MAX 12 /* of a symbolic size */

struct copier {
	struct shapes shapes;
	struct ir_module *out;
	struct diag_context mute;
	struct buf log; /* the first mistake, as a reason */
	struct arena *arena;
	struct axes *axes;   /* of the values of the function */
	struct ir_copy copy; /* of the function */
};

/* ---- ops ---- */

static const struct ir_type *new_type(struct copier *c, struct ir_value old)
{
	const struct ir_type *t = ir_type_of(c->copy.from, old);
	return t->kind == IR_TENSOR ? shapes_type(&c->shapes, &c->axes[old.id], t)
	                            : ir_import_type(c->out, t);
}

/* The shape of the result as attribute. */
static struct ir_dim_list result_dims(struct copier *c, const struct ir_op *op)
{
	const struct ir_type *t = new_type(c, op->results[0]);
	struct ir_dim_list list = {ARENA_ARRAY(c->arena, const struct ir_dim *, IR_RANK_MAX), 0};
	for (int i = 0; t != NULL && list.items != NULL && i < t->rank; i++)
		list.items[list.n++] = t->dims[i];
	return list;
}

static struct attrs_slice slice_attrs(struct copier *c, const struct ir_op *op)
{
	struct attrs_slice a = *(const struct attrs_slice *)op->attrs;
	const struct cut *cut = shapes_cut(&c->shapes, op);
	const struct ir_type *t = new_type(c, op->results[0]);
	int64_t begin = cut != NULL ? shapes_pieces(&c->shapes, cut, 0, cut->first) : 0;
	a.begin = cut != NULL ? ir_dim_const(c->out->dims, begin) : ir_import_dim(c->out, a.begin);
	a.size = t != NULL ? t->dims[a.axis] : NULL;
	return a;
}

static struct attrs_pad pad_attrs(struct copier *c, const struct ir_op *op)
{
	struct attrs_pad a = *(const struct attrs_pad *)op->attrs;
	const struct cut *cut = shapes_cut(&c->shapes, op);
	if (cut != NULL) {
		a.before = shapes_pieces(&c->shapes, cut, 0, cut->first);
		a.after = shapes_pieces(&c->shapes, cut, cut->last, cut->n_pieces);
	}
	return a;
}

static void build(struct copier *c, const struct ir_op *op, const void *attrs)
{
	struct ir_value operands[BUILD_LIST_MAX], results[2] = {{0}, {0}};
	ir_copy_values(&c->copy, op->operands, op->n_operands, operands);
	irb_op(c->copy.b, op->code, operands, op->n_operands, attrs, results, op->n_results);
	for (size_t i = 0; i < op->n_results; i++)
		ir_copy_set(&c->copy, op->results[i], results[i]);
}

/* Ops whose attributes hold sizes or weights; false: op is none. */
static bool build_sized(struct copier *c, const struct ir_op *op)
{
	if (op->code == OP_weight) {
		const char *name = ((const struct attrs_weight *)op->attrs)->weight->name;
		build(c, op, &(struct attrs_weight){.weight = ir_find_weight(c->out, name)});
	} else if (op->code == OP_full) {
		struct attrs_full a = *(const struct attrs_full *)op->attrs;
		a.dims = result_dims(c, op);
		build(c, op, &a);
	} else if (op->code == OP_iota) {
		struct attrs_iota a = *(const struct attrs_iota *)op->attrs;
		a.dims = result_dims(c, op);
		build(c, op, &a);
	} else if (op->code == OP_reshape) {
		build(c, op, &(struct attrs_reshape){.dims = result_dims(c, op)});
	} else if (op->code == OP_broadcast) {
		build(c, op, &(struct attrs_broadcast){.dims = result_dims(c, op)});
	} else if (op->code == OP_last_at) {
		struct ir_dim_list dims = result_dims(c, op);
		build(c, op, &(struct attrs_last_at){.size = dims.n > 0 ? dims.items[0] : NULL});
	} else if (op->code == OP_slice) {
		struct attrs_slice a = slice_attrs(c, op);
		build(c, op, &a);
	} else if (op->code == OP_pad) {
		struct attrs_pad a = pad_attrs(c, op);
		build(c, op, &a);
	} else if (op->code == OP_dim_value) {
		const struct ir_dim *d = ((const struct attrs_dim_value *)op->attrs)->dim;
		build(c, op,
		      &(struct attrs_dim_value){.dim = ir_import_dim(c->out, d), .dims = result_dims(c, op)});
	} else {
		return false;
	}
	return true;
}

static bool copy_op(struct ir_copy *copy, const struct ir_op *op)
{
	struct copier *c = copy->user;
	if (op->code == OP_repeat) {
		size_var count = c->shapes.counts[c->shapes.func][op->region->args[REPEAT_INDEX].id];
		ir_copy_repeat(copy, op, size_of(&c->shapes.sizes, count)->now);
	} else if (!build_sized(c, op)) {
		build(c, op, op->attrs);
	}
	return true;
}

/* ---- functions ---- */

static void copy_params(struct copier *c)
{
	const struct ir_func *f = c->copy.from;
	for (size_t i = 0; i < f->n_params; i++) {
		struct ir_param p = f->params[i];
		size_var below = c->shapes.below[c->shapes.func][i];
		p.default_value = ir_import_dim(c->out, p.default_value);
		p.max = ir_import_dim(c->out, p.max);
		p.loc = ir_import_loc(c->out, p.loc);
		if (below != 0)
			p.below = size_of(&c->shapes.sizes, below)->now;
		c->copy.map[p.value.id] = irb_param(c->copy.b, &p, new_type(c, p.value));
	}
}

static bool copy_func(struct copier *c, size_t at)
{
	const struct ir_func *f = c->shapes.m->funcs.items[at];
	c->shapes.func = at;
	c->axes = c->shapes.values[at];
	c->copy = (struct ir_copy){irb_begin(c->out, &c->mute, f->name, f->loc), f,
	                           ARENA_ARRAY(c->arena, struct ir_value, f->n_values + 1), copy_op, c};
	if (c->copy.b == NULL || arena_failed(c->arena))
		return false;
	irb_set_literal(c->copy.b, true);
	copy_params(c);
	ir_copy_region(&c->copy, f->body);
	return ir_copy_finish(&c->copy, NULL) == TFMC_OK;
}

/* ---- modules ---- */

static bool declare(const struct ir_module *m, struct ir_module *out)
{
	out->tir_source = m->tir_source;
	for (size_t i = 0; i < ir_dims_count(m->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->dims, i);
		int64_t most = s->lo > BOUND_MAX ? s->lo : BOUND_MAX;
		if (!ir_dims_declare(out->dims, s->name, s->lo, s->hi < most ? s->hi : most))
			return false;
	}
	return true;
}

static bool add_states(struct copier *c)
{
	const struct ir_module *m = c->shapes.m;
	for (size_t i = 0; i < m->states.n; i++) {
		const struct ir_state_decl *s = m->states.items[i];
		const struct ir_type *t = shapes_type(&c->shapes, &c->shapes.states[i], s->type);
		if (t == NULL || ir_add_state(c->out, s->name, t, ir_import_loc(c->out, s->loc)) == NULL ||
		    !ir_set_state_encoding(c->out, s->name, s->encoding))
			return false;
	}
	return true;
}

static bool copy_module(struct copier *c, const struct ir_module *m, struct weight_source *weights)
{
	bool ok = declare(m, c->out) && shapes_solve(&c->shapes, m, c->out, c->arena) && add_states(c) &&
	          shrink_weights(&c->shapes, c->arena, weights);
	for (size_t i = 0; i < m->funcs.n && ok; i++)
		ok = copy_func(c, i);
	return ok && ir_verify(c->out, &c->mute) == TFMC_OK;
}

enum tfmc_status module_shrink(const struct ir_module *m, struct arena *arena, struct shrunk *out)
{
	struct copier c = {.arena = arena};
	*out = (struct shrunk){.why = m->stage != STAGE_GRAPH ? "it has kernels already" : NULL};
	if (out->why != NULL)
		return TFMC_OK;
	c.out = ir_module_create(m->name);
	if (c.out == NULL)
		return TFMC_NO_MEMORY;
	buf_init(&c.log);
	diag_init(&c.mute, diag_render_text, &c.log);
	bool ok = copy_module(&c, m, &out->weights);
	if (ok)
		out->module = c.out;
	else
		out->why =
		        c.log.len > 0 ? arena_strdup(arena, c.log.data) : "its sizes do not fit each other";
	if (!ok)
		ir_module_destroy(c.out);
	diag_destroy(&c.mute);
	buf_destroy(&c.log);
	return arena_failed(arena) ? TFMC_NO_MEMORY : TFMC_OK;
}
