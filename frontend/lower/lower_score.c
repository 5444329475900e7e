/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The function score: decode on a few rows at a time, which returns the log-probability of one given token for
 * each row instead of logits. The number of rows is a dim of its own with a small bound, so that logits of a
 * whole sequence never exist.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */
#include "frontend/lower/lower.h"

const char score_output[] = "log_p";
static const char targets_name[] = "targets";

static bool check_name_is_free(struct lowering *lw, const char *name)
{
	if (model_find_input(&lw->m->inputs, name) < 0)
		return true;
	return lower_fail(lw, lw->m->generate.loc, DIAG_GENERATE,
	                  "an input is called '%s', a name reserved by the entry score", name);
}

bool score_add_targets(struct lowering *lw, int lengths)
{
	const struct ir_func *decode = ir_find_func(lw->module, "decode");
	const struct frontend_input *tokens = &lw->m->inputs.items[lw->m->tokens];
	if (!check_name_is_free(lw, targets_name) || !check_name_is_free(lw, score_output))
		return false;
	const struct ir_op *end = decode->body->ops[decode->body->n_ops - 1]; /* returns the logits first */
	const struct ir_type *logits = ir_type_of(decode, end->operands[0]);
	struct ir_param p = {.name = targets_name, .loc = {lw->m->generate.loc, NULL}, .lengths = lengths};
	if (!ir_dim_is_const(logits->dims[logits->rank - 1], &p.below))
		return lower_fail(lw, lw->m->generate.loc, DIAG_GENERATE,
		                  "the entry score needs a vocabulary of a constant size");
	const struct ir_dim *dims[] = {lower_dim(lw, tokens->dims[0]), lower_dim(lw, tokens->dims[1])};
	struct lowered v =
	        lowered_tensor(irb_param(lw->b, &p, ir_type_tensor(lw->module->types, DT_I32, 2, dims)));
	lower_bind(lw, targets_name, &v);
	return !irb_failed(lw->b);
}

/* x [B, S, V] at the ids [B, S] gives [B, S]. select_rows picks one row of each sequence; here the B S rows stand
 * for the sequences, and the V logits of each for the rows. */
static struct ir_value gather_target(struct lowering *lw, struct ir_value x, struct ir_value at)
{
	const struct ir_type *t = irb_type(lw->b, x);
	const struct ir_dim *rows = ir_dim_mul(lw->module->dims, t->dims[0], t->dims[1]);
	const struct ir_dim *flat[] = {rows, t->dims[2]};
	struct ir_value index = irb_reshape_to(lw->b, at, 1, flat);
	struct ir_value picked = irb_select_rows(lw->b, irb_reshape_to(lw->b, x, 2, flat), index, NULL);
	return irb_reshape_to(lw->b, picked, 2, t->dims);
}

bool score_finish(struct lowering *lw, const char *name)
{
	const struct lowered *x = lower_find(lw, name), *targets = lower_find(lw, targets_name);
	const struct frontend_input *tokens = &lw->m->inputs.items[lw->m->tokens];
	if (x == NULL || x->kind != LOWERED_TENSOR || targets == NULL || irb_type(lw->b, x->v)->rank != 3)
		return lower_fail(lw, LOC_NONE, DIAG_GENERATE, "logits must have the shape [B, S, vocab]");
	irb_set_loc(lw->b, (struct ir_loc){lw->m->generate.loc, NULL});
	struct ir_value log_p = gather_target(lw, irb_log_softmax(lw->b, x->v, NULL), targets->v);
	if (tokens->lengths_at >= 0) { /* padding scores 0 */
		const char *lengths = lw->m->inputs.items[tokens->lengths_at].name;
		log_p = irb_mask_rows(lw->b, log_p, lower_find(lw, lengths)->v, NULL);
	}
	struct lowered v = lowered_tensor(log_p);
	lower_bind(lw, name, &v);
	return !irb_failed(lw->b);
}
