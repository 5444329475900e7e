/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the states of a model hold, as a number: names, element types, sizes but
 * for the room, windows of rings, and what is done between the last product and the cache (rope,
 * a bias that passes have moved after attention, ..). Saved sequences carry it,
 * beside the hash of the packed weights; how states lie is no part of it.
 */
#include <string.h>

#include "backends/plan/object.h"
#include "ir/support/strmap.h"

#define CHAIN_MAX 64

/* Operations from a value back to the first product, through groups; views say nothing. */
static uint64_t add_chain(uint64_t h, const struct ir_func *f, struct ir_value v)
{
	for (int n = 0; n < CHAIN_MAX; n++) {
		const struct ir_op *op = ir_def(f, v);
		if (!op)
			break;
		if (op->code == OP_group) {
			v = op->region->ops[op->region->n_ops - 1]->operands[ir_value_info(f, v)->index];
			continue;
		}
		if (!ir_op_has(op->code, TRAIT_VIEW))
			h = object_hash_text(h, ir_op_desc(op->code)->name);
		if (op->code == OP_linear || op->code == OP_matmul || op->n_operands == 0)
			break;
		v = op->operands[0];
	}
	return h;
}

/* Of the state and of the first statement that writes it, which speaks for all. */
static uint64_t add_state(uint64_t h, const struct object *o, const struct state_layout *p)
{
	const struct ir_type *t = p->decl->type;
	h = object_hash_text(h, p->decl->name);
	h = object_hash_number(h, (int64_t)t->dtype);
	h = object_hash_number(h, t->rank);
	for (int i = 1; i < t->rank; i++) {
		int64_t d = 0;
		bool is_room = p->grows && i == t->rank - 2;
		h = object_hash_number(h, !is_room && ir_dim_is_const(t->dims[i], &d) ? d : 0);
	}
	if (p->window > 0)
		h = object_hash_number(h, p->window);
	for (size_t i = 0; i < o->module->funcs.n; i++) {
		const struct ir_func *f = o->module->funcs.items[i];
		for (struct ir_iter it = ir_iter_begin(f->body); it.op; ir_iter_next(&it))
			if ((it.op->code == OP_state_append || it.op->code == OP_state_write) &&
			    !strcmp(ir_type_of(f, it.op->operands[0])->state->name, p->decl->name))
				return add_chain(h, f, it.op->operands[1]);
	}
	return h;
}

uint64_t state_content_hash(const struct object *o)
{
	uint64_t h = HASH64_SEED;
	for (size_t i = 0; i < o->states.n; i++)
		h = add_state(h, o, &o->states.items[i]);
	return h;
}
