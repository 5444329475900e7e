/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogue of a linear whose columns nobody reads but arg-max, or the
 * log-probability of a given id: of each strip of MATMUL_STRIP panels a row
 * leaves two or three numbers (strip_argmax, strip_score) instead of its columns. Strips
 * begin at multiples of their width whoever computes them, so that the numbers
 * do not depend on the division of work.
 */
#include "backends/linear/matmul_internal.h"

#define WIDTH        ((int64_t)MATMUL_STRIP * MATMUL_PANEL)
#define UNROLLED_MAX 8 /* vectors */

bool matmul_find_strips(struct linear *l)
{
	const struct kernel *g = l->g;
	const struct ir_region *r = g->job->group->region;
	const struct ir_op *last = NULL;
	for (size_t i = (size_t)g->attrs->root + 1; i < r->n_ops; i++) {
		enum ir_opcode code = r->ops[i]->code;
		if (code == OP_strip_argmax || code == OP_strip_score)
			last = r->ops[i];
		else if (last && code != OP_yield)
			return false;
		else if (!ir_op_has(code, TRAIT_ELEMENTWISE) && !ir_op_has(code, TRAIT_CONST) &&
		         code != OP_yield)
			return false;
	}
	if (!last || g->out.n != 1 || g->job->items > 1 || eval_strip_width(last) != WIDTH ||
	    g->out.items[0].value.id != eval_result(last).id || g->out.items[0].to.t.dtype != DT_F32 ||
	    ir_type_of(l->job->func, last->operands[0])->dtype != DT_F32)
		return false;
	l->strips = last;
	l->norm.after = NULL;
	l->out = g->out.items[0];
	l->columns.unit = MATMUL_STRIP;
	return true;
}

static void store_numbers(const struct linear *l, const struct eval_columns *c)
{
	struct kb *k = l->k;
	struct kb_val number[EVAL_STRIP_VALUES];
	size_t mark = eval_mark(l->eval);
	int n = eval_strip_values(l->eval, l->strips, c, number);
	struct eval_point p = c->row;
	p.rank = l->rank + 1;
	p.vec = -1;
	p.flat = (struct kb_val){0};
	p.index[l->rank] = kb_div_const(k, c->first, WIDTH);
	for (int i = 0; i < n; i++) {
		p.index[l->rank - 1] = kb_index(k, i);
		kb_store(k, number[i], l->out.to.t.ptr, eval_offset(l->eval, &l->out.to, &p), 0, 0);
	}
	eval_release(l->eval, mark);
}

/* Whole strips of few vectors have a walk of their own. */
void matmul_strips_row(const struct linear *l, struct matmul_range r, const struct eval_point *row)
{
	struct kb *k = l->k;
	struct eval_columns c = {l->strips->operands[0], *row, r.lo, r.hi, l->lanes, 0};
	bool unrolls = WIDTH / l->lanes <= UNROLLED_MAX && l->columns.n >= WIDTH;
	bool has_part = l->columns.n % WIDTH != 0;
	if (!unrolls) {
		store_numbers(l, &c);
		return;
	}
	if (has_part) {
		kb_if(k, kb_cmp(k, KB_LT, kb_sub(k, r.hi, r.lo), kb_index(k, WIDTH)));
		store_numbers(l, &c);
		kb_else(k);
	}
	c.unrolled = WIDTH;
	store_numbers(l, &c);
	if (has_part)
		kb_end_if(k);
}
