/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse-attention: matmul, softmax and matmul become one attention op.
 *
 * Requires   canonicalize (transposed operands of matmul are flags), fuse-softmax.
 * Ensures    every softmax between two matmuls of rank at most 4 is inside an attention, or a remark gives the
 *            reason why not. The counter `fused` has the number.
 * Example    %s = matmul %q, %k {tb}  %p = masked_softmax %s {scale=0.125}  %o = matmul %p, %v
 *        ->  %o = attention %q, %k, %v {scale=0.125}
 *            Grouped-query attention: keys and values broadcast to the query heads are read without the broadcast.
 *            Operands [B,S,E] and [S,E] become an attention of one head.
 *            Keys and values stored as f16 or bf16, or as i8 with one scale for each position and head, are read as
 *            stored (a KV cache of reduced precision).
 *            If q, k, v and the probabilities are rounded to bf16, the attention rounds them (factors=bf16).
 *            Attention sinks: an additional logit for each head, a column that is cut off after the softmax.
 * Skips      scores or probabilities with other users; rounding of the probabilities alone; operands of more than
 *            4 axes.
 * Benefit    without it a call takes up to 12 times as long, with an arena of up to 119 times the bytes
 *            (tests/perf/passes.md).
 */
#include "passes/graph/scores.h"

#include <math.h>

struct attention_match {
	const struct ir_op *softmax, *qk;
	struct ir_value sinks; /* [1,H,1,1], or the column [B,H,S,1] itself; may be absent */
	struct scores s;
	struct ir_value q, k, v;
	bool is_bf16;                                  /* q, k, v and the probabilities are rounded to bf16 */
	bool q_transposed, k_transposed, v_transposed; /* stored with the last two axes exchanged */
	struct ir_value k_shared,
	        v_shared; /* [B,K,1,T,E] before the broadcast to query heads; may be absent */
	struct ir_value k_stored, v_stored; /* [B,K,T,E] before the conversion to f32; may be absent */
	struct ir_value k_scale, v_scale;   /* [B,K,T,1] scales of i8 values; may be absent */
	const char *reason;                 /* why it cannot be fused; NULL: it can */
};

/* ---- heads ---- */

/* If v [B,H,T,E] = reshape(broadcast(x [B,K,1,T,E] to [B,K,G,T,E])), with H = K G, returns x; else IR_NO_VALUE. */
static struct ir_value before_head_broadcast(const struct rebuild *r, struct ir_value v)
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

/* c, aligned with the last axes of the scores [B,H,S,T], has one value for each head. */
static bool is_by_head(const struct ir_type *c, const struct ir_type *scores)
{
	int head = c->rank - 3;
	for (int i = 0; i < c->rank; i++)
		if (i != head && !ir_dim_equals(c->dims[i], 1))
			return false;
	return head >= 0 ? c->dims[head] == scores->dims[1] : ir_dim_equals(scores->dims[1], 1);
}

/*
 * Attention sinks: p [B,H,S,T] = slice(softmax(concat(scores, column))), where the column [B,H,S,1] has one logit
 * for each head. Sets m->softmax and m->sinks and returns the concat; NULL if p is not of this form.
 */
static const struct ir_op *find_sinks(const struct rebuild *r, struct ir_value p, struct attention_match *m)
{
	const struct ir_op *cut = ir_def_as(r->f, p, OP_slice);
	const struct ir_op *softmax = cut != NULL ? ir_def_as(r->f, cut->operands[0], OP_softmax) : NULL;
	const struct ir_op *concat =
	        softmax != NULL ? ir_def_as(r->f, softmax->operands[0], OP_concat) : NULL;
	if (concat == NULL || concat->n_operands != 2)
		return NULL;
	const struct attrs_slice *s = cut->attrs;
	const struct ir_type *scores = ir_type_of(r->f, concat->operands[0]);
	const struct ir_op *wide = ir_def_as(r->f, concat->operands[1], OP_broadcast);
	struct ir_value column = wide != NULL ? wide->operands[0] : concat->operands[1];
	bool last =
	        scores->rank == 4 && s->axis == 3 && ((const struct attrs_concat *)concat->attrs)->axis == 3;
	if (!last || !ir_dim_equals(s->begin, 0) || s->size != scores->dims[3] ||
	    !ir_dim_equals(ir_type_of(r->f, concat->operands[1])->dims[3], 1) ||
	    !is_by_head(ir_type_of(r->f, column), scores))
		return NULL;
	m->softmax = softmax;
	m->sinks = column;
	return concat;
}

/* Builds the sinks as [H]; IR_NO_VALUE if there are none. */
static struct ir_value build_sinks(struct rebuild *r, const struct attention_match *m)
{
	if (m->sinks.id == 0)
		return m->sinks;
	const struct ir_dim *heads = ir_import_dim(r->out, ir_type_of(r->f, m->s.x)->dims[1]);
	return irb_reshape_to(r->b, rebuild_get(r, m->sinks), 1, &heads);
}

/* ---- matching ---- */

/* The operand of the rounding to bf16 that defines v; IR_NO_VALUE if v is defined otherwise. */
static struct ir_value before_bf16_rounding(const struct rebuild *r, struct ir_value v)
{
	const struct ir_op *op = ir_def_as(r->f, v, OP_quantize_rows);
	bool is_bf16 = op != NULL && ((const struct attrs_quantize_rows *)op->attrs)->to == ROUND_bf16;
	return is_bf16 ? op->operands[0] : IR_NO_VALUE;
}

/* Skips scales on q or k without other users and multiplies *f by them, as a factor on q or k is a factor on the
 * scores; stops at one that would make *f infinite. */
static struct ir_value fold_scales(const struct rebuild *r, struct ir_value v, double *f)
{
	const struct ir_op *op;
	while ((op = ir_def_as(r->f, v, OP_scale)) != NULL && rebuild_has_one_use(r, v)) {
		double more = ((const struct attrs_scale *)op->attrs)->f;
		if (!isfinite(*f * more))
			break;
		*f *= more;
		v = op->operands[0];
	}
	return v;
}

/* Sets m->qk, the matmul that computes the scores (m->s.x is the operand of the folded scale, softcap, bias and
 * mask). Returns the reason why it cannot be fused, or NULL. */
static const char *check_scores(const struct rebuild *r, struct attention_match *m)
{
	if (m->s.blocked != NULL)
		return m->s.blocked;
	m->qk = ir_def_as(r->f, m->s.x, OP_matmul);
	if (m->qk == NULL)
		return "the scores are not a matmul";
	if (!rebuild_has_one_use(r, m->s.x))
		return "the scores are used again";
	return NULL;
}

/* If v [B,K,T,E] = x * broadcast(s [B,K,T,1]), in either order, returns x and sets *factors to s; else returns v. */
static struct ir_value split_row_scales(const struct rebuild *r, struct ir_value v, struct ir_value *factors)
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

/* The value that v [B,K,T,E] or [B,K,1,T,E] is converted from: f16, bf16, or i8 with *scales for each position.
 * It has 4 axes, which a reshape may have given the axis of size 1. Returns IR_NO_VALUE if v is not such a
 * conversion. */
static struct ir_value find_stored(const struct rebuild *r, struct ir_value v, struct ir_value *scales)
{
	const struct ir_op *flat = ir_def_as(r->f, v, OP_reshape);
	struct ir_value factors = IR_NO_VALUE;
	struct ir_value wide = split_row_scales(r, flat != NULL ? flat->operands[0] : v, &factors);
	const struct ir_op *cast = ir_def_as(r->f, wide, OP_cast);
	if (cast == NULL)
		return IR_NO_VALUE;
	const struct ir_type *t = ir_type_of(r->f, v), *x = ir_type_of(r->f, cast->operands[0]);
	bool is_half = x->dtype == DT_F16 || x->dtype == DT_BF16;
	bool dequantizes =
	        t->dtype == DT_F32 && x->rank == 4 && (factors.id != 0 ? x->dtype == DT_I8 : is_half);
	for (int i = 0; dequantizes && i < 4; i++)
		dequantizes = x->dims[i] == t->dims[i < 2 ? i : i + t->rank - 4];
	for (int i = 0; dequantizes && factors.id != 0 && i < 3; i++)
		dequantizes = x->dims[i] == ir_type_of(r->f, factors)->dims[i];
	if (!dequantizes)
		return IR_NO_VALUE;
	*scales = factors;
	return cast->operands[0];
}

/* Sets k_stored, v_stored and their scales. Not behind a transpose, which the stored form would need too; scaled
 * i8 is not rounded to bf16 by the attention op, so the pattern that rounds it keeps its ops. */
static void find_stored_operands(const struct rebuild *r, struct attention_match *m)
{
	if (!m->k_transposed)
		m->k_stored = find_stored(r, m->k_shared.id != 0 ? m->k_shared : m->k, &m->k_scale);
	if (!m->v_transposed)
		m->v_stored = find_stored(r, m->v_shared.id != 0 ? m->v_shared : m->v, &m->v_scale);
	if (m->is_bf16 && m->k_scale.id != 0)
		m->k_stored = m->k_scale = IR_NO_VALUE;
	if (m->is_bf16 && m->v_scale.id != 0)
		m->v_stored = m->v_scale = IR_NO_VALUE;
}

/*
 * Finds q, k and v, undoing in the pattern what the attention op does itself: rounding, scales, transposes, the
 * broadcast of heads, conversions.
 */
static void collect_operands(const struct rebuild *r, const struct ir_op *op, struct attention_match *m)
{
	const struct attrs_matmul *qk = m->qk->attrs, *pv = op->attrs;
	m->q = m->qk->operands[0];
	m->k = m->qk->operands[1];
	m->v = op->operands[1];
	if (m->is_bf16) {
		m->q = before_bf16_rounding(r, m->q);
		m->k = before_bf16_rounding(r, m->k);
		m->v = before_bf16_rounding(r, m->v);
	} else { /* a scale before the rounding to bf16 is not a factor on the scores */
		m->q = fold_scales(r, m->q, &m->s.scale);
		m->k = fold_scales(r, m->k, &m->s.scale);
	}
	m->q_transposed = qk->ta;
	m->k_transposed = !qk->tb;
	m->v_transposed = pv->tb;
	if (!m->k_transposed && !m->v_transposed) { /* build_operand does not transpose these */
		m->k_shared = before_head_broadcast(r, m->k);
		m->v_shared = before_head_broadcast(r, m->v);
	}
	/* The op reads keys and values of the same K heads. */
	bool both = m->k_shared.id != 0 && m->v_shared.id != 0 &&
	            ir_type_of(r->f, m->k_shared)->dims[1] == ir_type_of(r->f, m->v_shared)->dims[1];
	if (!both)
		m->k_shared = m->v_shared = IR_NO_VALUE;
	find_stored_operands(r, m);
}

static bool spans_regions(const struct rebuild *r, const struct ir_op *op, const struct attention_match *m)
{
	const struct ir_region *here = ir_value_info(r->f, op->results[0])->region;
	return ir_value_info(r->f, m->softmax->results[0])->region != here ||
	       ir_value_info(r->f, m->qk->results[0])->region != here;
}

/* p is the result of a softmax, perhaps without its column of sinks: fills m->softmax and m->s. False: p is another
 * value. */
static bool find_softmax(const struct rebuild *r, struct ir_value p, struct attention_match *m)
{
	*m = (struct attention_match){.softmax = ir_def_as(r->f, p, OP_masked_softmax)};
	if (m->softmax == NULL)
		m->softmax = ir_def_as(r->f, p, OP_softmax);
	if (m->softmax != NULL) {
		scores_read(r, m->softmax, true, &m->s);
		return true;
	}
	const struct ir_op *concat = find_sinks(r, p, m);
	if (concat == NULL)
		return false;
	scores_read_from(r, concat->operands[0], &m->s);
	if (!rebuild_has_one_use(r, m->softmax->results[0]) || !rebuild_has_one_use(r, concat->results[0]))
		m->s.blocked = "the probabilities are used again";
	return true;
}

static bool all_rounded(const struct rebuild *r, const struct ir_op *op, const struct attention_match *m)
{
	return before_bf16_rounding(r, m->qk->operands[0]).id != 0 &&
	       before_bf16_rounding(r, m->qk->operands[1]).id != 0 &&
	       before_bf16_rounding(r, op->operands[1]).id != 0;
}

/* op is the second matmul of an attention pattern. With m->reason set the pattern matches but cannot be fused.
 * False: op is no such matmul, which needs no remark. */
static bool match_attention(const struct rebuild *r, const struct ir_op *op, struct attention_match *m)
{
	struct ir_value probabilities = before_bf16_rounding(r, op->operands[0]);
	bool is_bf16 = probabilities.id != 0;
	if (op->code != OP_matmul || !find_softmax(r, is_bf16 ? probabilities : op->operands[0], m))
		return false;
	m->is_bf16 = is_bf16;
	m->reason = check_scores(r, m);
	if (m->reason == NULL && is_bf16 && !all_rounded(r, op, m))
		m->reason = "the probabilities alone are rounded";
	if (m->reason == NULL && is_bf16 && !rebuild_has_one_use(r, probabilities))
		m->reason = "the probabilities are used again";
	if (m->reason == NULL && !rebuild_has_one_use(r, op->operands[0]))
		m->reason = "the probabilities are used again";
	if (m->reason == NULL && ((const struct attrs_matmul *)op->attrs)->ta)
		m->reason = "the probabilities are transposed";
	if (m->reason == NULL && ir_type_of(r->f, op->results[0])->rank > 4)
		m->reason = "the operands have more axes than [B,H,S,E]";
	if (m->reason == NULL && spans_regions(r, op, m))
		m->reason = "its ops are in different regions";
	if (m->reason == NULL)
		collect_operands(r, op, m);
	return true;
}

/* ---- rewriting ---- */

static void report_not_fused(struct rebuild *r, const struct ir_op *op, const char *reason)
{
	pass_count(r->p, "not fused", 1);
	pass_missed(r->p, op->loc, "not fused: %s", reason);
	if (pass_requires(r->p, "attention"))
		diag_error(r->p->cx, op->loc.at, DIAG_FUSION, "attention is not fused: %s", reason);
}

static struct ir_value first_present(struct ir_value a, struct ir_value b, struct ir_value c)
{
	return a.id != 0 ? a : b.id != 0 ? b : c;
}

/* Matches the second matmul of the pattern; marks as needed what the attention op reads, and reports patterns
 * that cannot be fused. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct attention_match m;
	if (op->code != OP_matmul || !match_attention(r, op, &m))
		return false;
	if (m.reason != NULL) {
		report_not_fused(r, op, m.reason);
		return false;
	}
	const struct ir_value reads[] = {m.q,      first_present(m.k_stored, m.k_shared, m.k),
	                                 m.s.bias, first_present(m.v_stored, m.v_shared, m.v),
	                                 m.s.len,  m.s.past,
	                                 m.sinks,  m.k_scale,
	                                 m.v_scale};
	for (size_t i = 0; i < TFMC_COUNT(reads); i++)
		rebuild_need(r, reads[i]);
	return true;
}

/* Builds old as [B,H,S,E], transposing the last two axes if they are stored transposed. [S,E] becomes [1,1,S,E]
 * and [N,S,E] becomes [N,1,S,E]: one head. An absent value stays absent. */
static struct ir_value to_rank_4(struct rebuild *r, struct ir_value old, bool transposed)
{
	static const int64_t perms[5][4] = {{0}, {0}, {1, 0}, {0, 2, 1}, {0, 1, 3, 2}};
	struct ir_value v = rebuild_get(r, old);
	if (v.id == 0)
		return v;
	const struct ir_type *t = irb_type(r->b, v);
	int rank = t->rank;
	if (transposed)
		v = irb_transpose_by(r->b, v, rank, perms[rank]);
	t = irb_type(r->b, v);
	if (rank == 4 || t == NULL)
		return v;
	const struct ir_dim *one = ir_dim_const(r->out->dims, 1);
	const struct ir_dim *dims[4] = {rank == 3 ? t->dims[0] : one, one, t->dims[rank - 2],
	                                t->dims[rank - 1]};
	return irb_reshape_to(r->b, v, 4, dims);
}

/* Builds v with the shape of old, if that has fewer than 4 axes. */
static struct ir_value restore_rank(struct rebuild *r, struct ir_value v, struct ir_value old)
{
	const struct ir_type *t = ir_import_type(r->out, ir_type_of(r->f, old));
	return t == NULL || t->rank == 4 ? v : irb_reshape_to(r->b, v, t->rank, t->dims);
}

static struct ir_value build_operand(struct rebuild *r, struct ir_value v, struct ir_value heads,
                                     struct ir_value stored, bool transposed)
{
	if (stored.id != 0)
		return rebuild_get(r, stored);
	return heads.id != 0 ? drop_group_axis(r, heads) : to_rank_4(r, v, transposed);
}

/* Builds the attention from the same match, which the forward walk finds again. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct attention_match m;
	match_attention(r, op, &m);
	irb_set_loc(r->b, m.softmax->loc);
	struct ir_value k = build_operand(r, m.k, m.k_shared, m.k_stored, m.k_transposed);
	struct ir_value v = build_operand(r, m.v, m.v_shared, m.v_stored, m.v_transposed);
	const struct attrs_attention attrs = {.scale = m.s.scale,
	                                      .softcap = m.s.softcap,
	                                      .mask = m.s.mask,
	                                      .window = m.s.window,
	                                      .factors = m.is_bf16 ? FACTORS_bf16 : FACTORS_f32};
	struct ir_value sinks = build_sinks(r, &m);
	struct ir_value bias = to_rank_4(r, m.s.bias, false);
	struct ir_value y = irb_attention(r->b, to_rank_4(r, m.q, m.q_transposed), k, v, bias,
	                                  rebuild_get(r, m.s.len), rebuild_get(r, m.s.past), sinks,
	                                  rebuild_get(r, m.k_scale), rebuild_get(r, m.v_scale), &attrs);
	rebuild_set(r, op->results[0], restore_rank(r, y, op->results[0]));
	pass_count(r->p, "fused", 1);
	pass_remark(r->p, m.softmax->loc, "fused attention");
}

/* Fuses; an error of kind DIAG_FUSION if --require-fusion=attention finds none in the model or one that is not
 * fused. */
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
