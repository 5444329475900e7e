/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse-softmax: scale, softcap, mask and softmax become one masked_softmax.
 *
 * Requires   canonicalize (multiplications by a constant are `scale`).
 * Ensures    no `softmax` whose operand is a `scale`, `softcap` or `mask` with one use.
 * Example    %s = scale %x {f=0.125}  %m = mask %s, %len {mask=causal}  %p = softmax %m
 *        ->  %p = masked_softmax %x, %len {scale=0.125 mask=causal}
 * Skips      masked scores with other users, which would be computed twice; negative scales.
 * Benefit    that of fuse-attention, which requires it (tests/perf/passes.md).
 */
#include "passes/graph/scores.h"

/* Matches a softmax with at least one op to fold (s.n_peeled of them, see scores.h). s.blocked without such an op:
 * one was found that cannot be folded, which is reported. masked_softmax needs the axes of queries and keys, so two.
 */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct scores s;
	if (op->code != OP_softmax || ir_type_of(r->f, op->operands[0])->rank < 2)
		return false;
	scores_read(r, op, false, &s);
	if (s.n_peeled == 0) {
		if (s.blocked != NULL) {
			pass_count(r->p, "not fused", 1);
			pass_missed(r->p, op->loc, "not fused: %s", s.blocked);
			if (pass_requires(r->p, "softmax"))
				diag_error(r->p->cx, op->loc.at, DIAG_FUSION, "softmax is not fused: %s",
				           s.blocked);
		}
		return false;
	}
	rebuild_need(r, s.x);
	rebuild_need(r, s.len);
	rebuild_need(r, s.past);
	return true;
}

/* Builds the masked_softmax from the same scores, which the forward walk finds again. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct scores s;
	scores_read(r, op, false, &s);
	const struct attrs_masked_softmax attrs = {
	        .scale = s.scale, .softcap = s.softcap, .mask = s.mask, .window = s.window};
	rebuild_set(r, op->results[0],
	            irb_masked_softmax(r->b, rebuild_get(r, s.x), rebuild_get(r, s.len),
	                               rebuild_get(r, s.past), &attrs));
	pass_count(r->p, "fused", 1);
	pass_remark(r->p, op->loc, "fused %zu ops into masked_softmax", s.n_peeled + 1);
}

enum tfmc_status pass_fuse_softmax(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	const struct rewrite rewrite = {.match = match, .emit = emit};
	size_t errors = p->cx->n_errors;
	pass_count(p, "fused", 0);
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INVALID : TFMC_OK;
}
