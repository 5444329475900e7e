/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse-attention: matmul, softmax and matmul become one attention.
 *
 * Requires   canonicalize (transposed operands of matmul are flags), fuse-softmax.
 * Ensures    every softmax between two matmuls of rank 4 is inside an attention, or a remark says why not; the
 *            counter `fused` has the exact number.
 * Example    %s = matmul %q, %k {tb}  %p = masked_softmax %s {scale=0.125}  %o = matmul %p, %v
 *        ->  %o = attention %q, %k, %v {scale=0.125}
 *            Keys and values of fewer heads that are broadcast to the query heads are read as they are.
 *            Operands [B,S,E] and [S,E] are one head of an attention.
 *            Keys and values of f16 or bf16 that are widened for it are read as they are, and those of i8 that
 *            are multiplied with one scale for each position and head.
 *            Where all that is multiplied is rounded to bf16 before, the attention rounds it.
 *            An additional logit for each head, in a column that is cut off after the softmax, becomes its sinks.
 * Refuses    when scores or probabilities are used again, when the probabilities alone are rounded, when operands
 *            have more than 4 axes.
 * Pays       a call takes up to 12 times as long without it, its arena up to 119 times the bytes (tests/perf/passes.md).
 */
#include "passes/graph/scores.h"

#include <math.h>

struct found {
	const struct ir_op *softmax, *qk;
	struct ir_value sinks; /* [1,H,1,1] as the axes of the column broadcast from it; none: no such */
	struct scores s;
	struct ir_value q, k, v;
	bool is_rounded;                    /* q, k, v and the weights, to bf16 */
	bool q_turned, k_turned, v_turned;  /* stored with the last two axes exchanged */
	struct ir_value k_heads, v_heads;   /* operands of the broadcasts over query groups; none: no such */
	struct ir_value k_narrow, v_narrow; /* [B,K,T,E], what was widened; none: no such */
	struct ir_value k_scale, v_scale;   /* [B,K,T,1], factors of what was widened; none: no such */
	const char *why;                    /* not fused: reason */
};

/* ---- heads ---- */

/*
 * v [B,H,T,E] = reshape(broadcast(x [B,K,1,T,E] to [B,K,G,T,E])): gives x.
 */
static struct ir_value few_heads(const struct rebuild *r, struct ir_value v)
{
	const struct ir_op *flat = ir_def_as(r->f, v, OP_reshape);
	const struct ir_op *wide = flat != NULL ? ir_def_as(r->f, flat->operands[0], OP_broadcast) : NULL;
	if (wide == NULL)
		return IR_NO_VALUE;
	const struct ir_type *to = ir_type_of(r->f, v), *w = ir_type_of(r->f, wide->results[0]);
	const struct ir_type *x = ir_type_of(r->f, wide->operands[0]);
	if (to->rank != 4 || w->rank != 5 || x->rank != 5 || !ir_dim_equals(x->dims[2], 1))
		return IR_NO_VALUE;
	bool same = x->dims[0] == to->dims[0] && x->dims[3] == to->dims[2] && x->dims[4] == to->dims[3] &&
	            w->dims[0] == x->dims[0] && w->dims[1] == x->dims[1] && w->dims[3] == x->dims[3] &&
	            w->dims[4] == x->dims[4];
	return same ? wide->operands[0] : IR_NO_VALUE;
}

/* x [B,K,1,T,E] as [B,K,T,E] */
static struct ir_value drop_group_axis(struct rebuild *r, struct ir_value x)
{
	const struct ir_type *t = ir_type_of(r->f, x);
	const struct ir_dim *dims[4] = {t->dims[0], t->dims[1], t->dims[3], t->dims[4]};
	for (int i = 0; i < 4; i++)
		dims[i] = ir_import_dim(r->out, dims[i]);
	return irb_reshape_to(r->b, rebuild_get(r, x), 4, dims);
}

/* ---- sinks ---- */

/* c, with axes that stand for the last ones of scores [B,H,S,T], is one number for each head. */
static bool is_by_head(const struct ir_type *c, const struct ir_type *scores)
{
	int head = c->rank - 3;
	for (int i = 0; i < c->rank; i++)
		if (i != head && !ir_dim_equals(c->dims[i], 1))
			return false;
	return head >= 0 ? c->dims[head] == scores->dims[1] : ir_dim_equals(scores->dims[1], 1);
}

/*
 * p [B,H,S,T] = slice(softmax(concat(scores, column))), the column [B,H,S,1] a logit for each head that is
 * cut off again: gives the softmax and the concat.
 */
static const struct ir_op *find_sinks(const struct rebuild *r, struct ir_value p, struct found *m)
{
	const struct ir_op *cut = ir_def_as(r->f, p, OP_slice);
	const struct ir_op *softmax = cut != NULL ? ir_def_as(r->f, cut->operands[0], OP_softmax) : NULL;
	const struct ir_op *both = softmax != NULL ? ir_def_as(r->f, softmax->operands[0], OP_concat) : NULL;
	if (both == NULL || both->n_operands != 2)
		return NULL;
	const struct attrs_slice *s = cut->attrs;
	const struct ir_type *scores = ir_type_of(r->f, both->operands[0]);
	const struct ir_op *wide = ir_def_as(r->f, both->operands[1], OP_broadcast);
	struct ir_value column = wide != NULL ? wide->operands[0] : both->operands[1];
	bool last =
	        scores->rank == 4 && s->axis == 3 && ((const struct attrs_concat *)both->attrs)->axis == 3;
	if (!last || !ir_dim_equals(s->begin, 0) || s->size != scores->dims[3] ||
	    !ir_dim_equals(ir_type_of(r->f, both->operands[1])->dims[3], 1) ||
	    !is_by_head(ir_type_of(r->f, column), scores))
		return NULL;
	m->softmax = softmax;
	m->sinks = column;
	return both;
}

/* [1,H,1,1] as [H]. */
static struct ir_value sinks_of(struct rebuild *r, const struct found *m)
{
	if (m->sinks.id == 0)
		return m->sinks;
	const struct ir_dim *heads = ir_import_dim(r->out, ir_type_of(r->f, m->s.x)->dims[1]);
	return irb_reshape_to(r->b, rebuild_get(r, m->sinks), 1, &heads);
}

/* ---- finding ---- */

/* What was rounded to bf16 to give v; none: v was not. */
static struct ir_value before_rounding(const struct rebuild *r, struct ir_value v)
{
	const struct ir_op *op = ir_def_as(r->f, v, OP_round_rows);
	bool is_bf16 = op != NULL && ((const struct attrs_round_rows *)op->attrs)->to == ROUND_bf16;
	return is_bf16 ? op->operands[0] : IR_NO_VALUE;
}

/* A factor on q or k is a factor on the scores. */
static struct ir_value without_scale(const struct rebuild *r, struct ir_value v, double *f)
{
	const struct ir_op *op;
	while ((op = ir_def_as(r->f, v, OP_scale)) != NULL && rebuild_once(r, v)) {
		double more = ((const struct attrs_scale *)op->attrs)->f;
		if (!isfinite(*f * more))
			break;
		*f *= more;
		v = op->operands[0];
	}
	return v;
}

static const char *check_scores(const struct rebuild *r, struct found *m)
{
	if (m->s.blocked != NULL)
		return m->s.blocked;
	m->qk = ir_def_as(r->f, m->s.x, OP_matmul);
	if (m->qk == NULL)
		return "the scores are not a matmul";
	if (!rebuild_once(r, m->s.x))
		return "the scores are used again";
	return NULL;
}

/* v [B,K,T,E] = x broadcast([B,K,T,1]), in either order: gives x and sets the factors; else v. */
static struct ir_value without_factors(const struct rebuild *r, struct ir_value v, struct ir_value *factors)
{
	const struct ir_op *mul = ir_def_as(r->f, v, OP_mul);
	for (size_t i = 0; mul != NULL && i < 2; i++) {
		const struct ir_op *wide = ir_def_as(r->f, mul->operands[i], OP_broadcast);
		const struct ir_type *t = wide != NULL ? ir_type_of(r->f, wide->operands[0]) : NULL;
		if (t == NULL || t->rank != 4 || !ir_dim_equals(t->dims[3], 1))
			continue;
		*factors = wide->operands[0];
		return mul->operands[1 - i];
	}
	return v;
}

/* v [B,K,T,E] or [B,K,1,T,E], widened from f16 or bf16, or from i8 and multiplied by a factor for each position:
 * what was widened. */
static struct ir_value narrow_of(const struct rebuild *r, struct ir_value v, struct ir_value *scales)
{
	const struct ir_op *flat = ir_def_as(r->f, v, OP_reshape);
	struct ir_value factors = IR_NO_VALUE;
	struct ir_value wide = without_factors(r, flat != NULL ? flat->operands[0] : v, &factors);
	const struct ir_op *cast = ir_def_as(r->f, wide, OP_cast);
	if (cast == NULL)
		return IR_NO_VALUE;
	const struct ir_type *t = ir_type_of(r->f, v), *x = ir_type_of(r->f, cast->operands[0]);
	bool is_half = x->dtype == DT_F16 || x->dtype == DT_BF16;
	bool widens = t->dtype == DT_F32 && x->rank == 4 && (factors.id != 0 ? x->dtype == DT_I8 : is_half);
	for (int i = 0; widens && i < 4; i++)
		widens = x->dims[i] == t->dims[i < 2 ? i : i + t->rank - 4];
	for (int i = 0; widens && factors.id != 0 && i < 3; i++)
		widens = x->dims[i] == ir_type_of(r->f, factors)->dims[i];
	if (!widens)
		return IR_NO_VALUE;
	*scales = factors;
	return cast->operands[0];
}

static void read_narrow(const struct rebuild *r, struct found *m)
{
	if (!m->k_turned)
		m->k_narrow = narrow_of(r, m->k_heads.id != 0 ? m->k_heads : m->k, &m->k_scale);
	if (!m->v_turned)
		m->v_narrow = narrow_of(r, m->v_heads.id != 0 ? m->v_heads : m->v, &m->v_scale);
	if (m->is_rounded && m->k_scale.id != 0)
		m->k_narrow = m->k_scale = IR_NO_VALUE;
	if (m->is_rounded && m->v_scale.id != 0)
		m->v_narrow = m->v_scale = IR_NO_VALUE;
}

static void read_operands(const struct rebuild *r, const struct ir_op *op, struct found *m)
{
	const struct attrs_matmul *qk = m->qk->attrs, *pv = op->attrs;
	m->q = m->qk->operands[0];
	m->k = m->qk->operands[1];
	m->v = op->operands[1];
	if (m->is_rounded) {
		m->q = before_rounding(r, m->q);
		m->k = before_rounding(r, m->k);
		m->v = before_rounding(r, m->v);
	} else {
		m->q = without_scale(r, m->q, &m->s.scale);
		m->k = without_scale(r, m->k, &m->s.scale);
	}
	m->q_turned = qk->ta;
	m->k_turned = !qk->tb;
	m->v_turned = pv->tb;
	if (!m->k_turned && !m->v_turned) {
		m->k_heads = few_heads(r, m->k);
		m->v_heads = few_heads(r, m->v);
	}
	bool both = m->k_heads.id != 0 && m->v_heads.id != 0 &&
	            ir_type_of(r->f, m->k_heads)->dims[1] == ir_type_of(r->f, m->v_heads)->dims[1];
	if (!both)
		m->k_heads = m->v_heads = IR_NO_VALUE;
	read_narrow(r, m);
}

static bool spans_regions(const struct rebuild *r, const struct ir_op *op, const struct found *m)
{
	const struct ir_region *here = ir_value_info(r->f, op->results[0])->region;
	return ir_value_info(r->f, m->softmax->results[0])->region != here ||
	       ir_value_info(r->f, m->qk->results[0])->region != here;
}

/* p is what a softmax gives, as it is or without the column of sinks. */
static bool find_softmax(const struct rebuild *r, struct ir_value p, struct found *m)
{
	*m = (struct found){.softmax = ir_def_as(r->f, p, OP_masked_softmax)};
	if (m->softmax == NULL)
		m->softmax = ir_def_as(r->f, p, OP_softmax);
	if (m->softmax != NULL) {
		scores_read(r, m->softmax, true, &m->s);
		return true;
	}
	const struct ir_op *both = find_sinks(r, p, m);
	if (both == NULL)
		return false;
	scores_read_from(r, both->operands[0], &m->s);
	if (!rebuild_once(r, m->softmax->results[0]) || !rebuild_once(r, both->results[0]))
		m->s.blocked = "the probabilities are used again";
	return true;
}

static bool rounds_all(const struct rebuild *r, const struct ir_op *op, const struct found *m)
{
	return before_rounding(r, m->qk->operands[0]).id != 0 &&
	       before_rounding(r, m->qk->operands[1]).id != 0 && before_rounding(r, op->operands[1]).id != 0;
}

/* op is the second matmul of an attention; with m->why set it looks like one but cannot be fused. */
static bool find(const struct rebuild *r, const struct ir_op *op, struct found *m)
{
	struct ir_value weights = before_rounding(r, op->operands[0]);
	bool is_rounded = weights.id != 0;
	if (op->code != OP_matmul || !find_softmax(r, is_rounded ? weights : op->operands[0], m))
		return false;
	m->is_rounded = is_rounded;
	m->why = check_scores(r, m);
	if (m->why == NULL && is_rounded && !rounds_all(r, op, m))
		m->why = "the probabilities alone are rounded";
	if (m->why == NULL && is_rounded && !rebuild_once(r, weights))
		m->why = "the probabilities are used again";
	if (m->why == NULL && !rebuild_once(r, op->operands[0]))
		m->why = "the probabilities are used again";
	if (m->why == NULL && ((const struct attrs_matmul *)op->attrs)->ta)
		m->why = "the probabilities are transposed";
	if (m->why == NULL && ir_type_of(r->f, op->results[0])->rank > 4)
		m->why = "the operands have more axes than [B,H,S,E]";
	if (m->why == NULL && spans_regions(r, op, m))
		m->why = "its ops are in different regions";
	if (m->why == NULL)
		read_operands(r, op, m);
	return true;
}

/* ---- rewriting ---- */

static void refuse(struct rebuild *r, const struct ir_op *op, const char *why)
{
	pass_count(r->p, "refused", 1);
	pass_missed(r->p, op->loc, "not fused: %s", why);
	if (pass_requires(r->p, "attention"))
		diag_error(r->p->cx, op->loc.at, DIAG_FUSION, "attention is not fused: %s", why);
}

static struct ir_value first_of(struct ir_value a, struct ir_value b, struct ir_value c)
{
	return a.id != 0 ? a : b.id != 0 ? b : c;
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct found m;
	if (op->code != OP_matmul || !find(r, op, &m))
		return false;
	if (m.why != NULL) {
		refuse(r, op, m.why);
		return false;
	}
	const struct ir_value reads[] = {m.q,      first_of(m.k_narrow, m.k_heads, m.k),
	                                 m.s.bias, first_of(m.v_narrow, m.v_heads, m.v),
	                                 m.s.len,  m.s.past,
	                                 m.sinks,  m.k_scale,
	                                 m.v_scale};
	for (size_t i = 0; i < TFMC_COUNT(reads); i++)
		rebuild_need(r, reads[i]);
	return true;
}

/* v with the last two axes exchanged when they are stored so, and with the axes [B,H,S,E]. */
static struct ir_value four_axes(struct rebuild *r, struct ir_value old, bool turned)
{
	static const int64_t perms[5][4] = {{0}, {0}, {1, 0}, {0, 2, 1}, {0, 1, 3, 2}};
	struct ir_value v = rebuild_get(r, old);
	if (v.id == 0)
		return v;
	const struct ir_type *t = irb_type(r->b, v);
	int rank = t->rank;
	if (turned)
		v = irb_transpose_by(r->b, v, rank, perms[rank]);
	t = irb_type(r->b, v);
	if (rank == 4 || t == NULL)
		return v;
	const struct ir_dim *one = ir_dim_const(r->out->dims, 1);
	const struct ir_dim *dims[4] = {rank == 3 ? t->dims[0] : one, one, t->dims[rank - 2],
	                                t->dims[rank - 1]};
	return irb_reshape_to(r->b, v, 4, dims);
}

static struct ir_value with_type_of(struct rebuild *r, struct ir_value v, struct ir_value old)
{
	const struct ir_type *t = ir_import_type(r->out, ir_type_of(r->f, old));
	return t == NULL || t->rank == 4 ? v : irb_reshape_to(r->b, v, t->rank, t->dims);
}

static struct ir_value operand_of(struct rebuild *r, struct ir_value v, struct ir_value heads,
                                  struct ir_value narrow, bool turned)
{
	if (narrow.id != 0)
		return rebuild_get(r, narrow);
	return heads.id != 0 ? drop_group_axis(r, heads) : four_axes(r, v, turned);
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct found m;
	find(r, op, &m);
	irb_set_loc(r->b, m.softmax->loc);
	struct ir_value k = operand_of(r, m.k, m.k_heads, m.k_narrow, m.k_turned);
	struct ir_value v = operand_of(r, m.v, m.v_heads, m.v_narrow, m.v_turned);
	const struct attrs_attention attrs = {.scale = m.s.scale,
	                                      .softcap = m.s.softcap,
	                                      .mask = m.s.mask,
	                                      .window = m.s.window,
	                                      .factors = m.is_rounded ? FACTORS_bf16 : FACTORS_f32};
	struct ir_value sinks = sinks_of(r, &m);
	struct ir_value bias = four_axes(r, m.s.bias, false);
	struct ir_value y = irb_attention(r->b, four_axes(r, m.q, m.q_turned), k, v, bias,
	                                  rebuild_get(r, m.s.len), rebuild_get(r, m.s.past), sinks,
	                                  rebuild_get(r, m.k_scale), rebuild_get(r, m.v_scale), &attrs);
	rebuild_set(r, op->results[0], with_type_of(r, y, op->results[0]));
	pass_count(r->p, "fused", 1);
	pass_remark(r->p, m.softmax->loc, "fused attention");
}

enum tfmc_status pass_fuse_attention(struct pass_context *p, const struct ir_module *in,
                                     struct ir_module *out)
{
	const struct rewrite rewrite = {.match = match, .emit = emit};
	size_t n = 0, errors = p->cx->n_errors;

	pass_count(p, "fused", 0);
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	for (size_t i = 0; i < out->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(out->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			n += it.op->code == OP_attention;
	if (n == 0 && p->cx->n_errors == errors && pass_requires(p, "attention"))
		diag_error(p->cx, LOC_NONE, DIAG_FUSION, "the model has no attention");
	return p->cx->n_errors > errors ? TFMC_INVALID : TFMC_OK;
}
