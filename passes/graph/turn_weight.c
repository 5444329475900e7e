/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transpose(@w) with its last two axes exchanged becomes @w.turned, whose
 * provenance is transpose(E). Refused when something reads @w as it is stored:
 * both forms would be kept.
 */
#include "passes/graph/turn_weight.h"

#include "passes/weights/join_weights.h"

static bool exchanges_last_two(const struct ir_op *op)
{
	return ir_is_matrix_transpose(&((const struct attrs_transpose *)op->attrs)->perm);
}

static bool reads_weight(const struct ir_func *f, const struct ir_op *op, const struct ir_weight *w)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (ir_weight_of(f, op->operands[i]) == w)
			return true;
	return false;
}

/* By any op but such a transpose. */
static bool read_as_stored(const struct ir_module *m, const struct ir_weight *w)
{
	for (size_t i = 0; i < m->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			if (reads_weight(m->funcs.items[i], it.op, w) &&
			    (it.op->code != OP_transpose || !exchanges_last_two(it.op)))
				return true;
	return false;
}

bool turn_weight_match(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *def = ir_def_as(r->f, op->operands[0], OP_weight);
	if (def == NULL || !exchanges_last_two(op))
		return false;
	const struct ir_weight *w = ((const struct attrs_weight *)def->attrs)->weight;
	if (w->init == NULL || w->init->depth >= WEXPR_DEPTH_MAX || w->encoding != ENC_ROW ||
	    read_as_stored(r->in, w))
		return false;
	for (size_t i = 0; i < def->n_operands; i++)
		rebuild_need(r, def->operands[i]);
	return true;
}

static const struct ir_weight *turned(struct rebuild *r, const struct ir_weight *w)
{
	struct ir_weight t = *w;
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank = w->type->rank;
	for (int i = 0; i < rank; i++)
		dims[i] = ir_import_dim(r->out, w->type->dims[i < rank - 2 ? i : 2 * rank - 3 - i]);
	t.name = arena_printf(&r->out->arena, "%s.turned", w->name);
	t.type = ir_type_tensor(r->out->types, w->type->dtype, rank, dims);
	t.init = wexpr_transpose(&r->out->arena, w->init);
	/* Codes are of rows, which are columns now. */
	t.format = ir_format_is_quantized(w->format) ? FORMAT_PLAIN : w->format;
	if (t.format != w->format && ir_find_weight(r->out, t.name) == NULL)
		diag_warning(r->p->cx, w->loc.at, DIAG_UNSUPPORTED,
		             "the weight '%s' of %s becomes f32: it is multiplied from the other side",
		             w->name, ir_format(w->format)->name);
	return t.type != NULL && t.init != NULL ? join_add_weight(r, &t) : NULL;
}

void turn_weight_emit(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_op *def = ir_def_as(r->f, op->operands[0], OP_weight);
	const struct ir_weight *w = turned(r, ir_weight_of(r->f, op->operands[0]));
	struct ir_value index[IR_RANK_MAX];
	for (size_t i = 0; i < def->n_operands && i < IR_RANK_MAX; i++)
		index[i] = rebuild_get(r, def->operands[i]);
	if (w == NULL)
		return;
	rebuild_set(r, op->results[0], irb_weight_ref(r->b, w, index, def->n_operands));
	pass_count(r->p, "weights turned", 1);
}
