/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonicalize: one spelling for equal computations.
 *
 * Requires   nothing.
 * Ensures    no rewrite rule (rules/) matches any more: multiplications by a constant are `scale` and no
 *            scale follows a scale, transposed operands of matmul are flags, a bias row added to a linear is
 *            its operand, activations, norms and softmax are one op however they were spelled; a
 *            transposed weight is a weight; take_rows comes as early as it can; no dead op, no two equal
 *            pure ops in a region (the builder merges and folds).
 * Example    %s = div %x, %c8   %t = scale %s {f=2.0}
 *        ->  %t = scale %x {f=0.25}
 * Refuses    what a rule refuses; moving take_rows over a value that has other uses: it would be computed
 *            twice.
 *
 * The rules are in this pass and not in one of their own because each makes room for the other: a rule
 * leaves a value with one use, over which take_rows moves, and what take_rows built matches again. Rows are
 * taken in rounds before which the rules had nothing left to do: in the middle of a norm that is still written
 * out, take_rows would split what becomes one op.
 */
#include "passes/rules/rule.h"
#include "passes/graph/take_rows.h"
#include "passes/graph/turn_weight.h"

/* Enough for the longest ladder of spellings; each round removes at least one op of what it rewrites. */
#define ROUNDS_MAX 32

struct canonicalizer {
	struct rewriter rules;
	bool takes_rows; /* in this round */
};

static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct canonicalizer *c = r->rewrite->user;
	struct rewriter *w = &c->rules;
	r->number = 0;
	if (rewriter_match(w, r, op))
		return true;
	bool turns = op->code == OP_transpose && w->fuel > 0 && turn_weight_match(r, op);
	bool takes = op->code == OP_take_rows && w->fuel > 0 && c->takes_rows;
	if (!turns && !(takes && take_rows_match(r, op)))
		return false;
	w->fuel--;
	r->number = ++w->matched;
	return true;
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct canonicalizer *c = r->rewrite->user;
	if (rewriter_emit(&c->rules, r, op))
		return;
	const char *what = op->code == OP_transpose ? "a transposed weight" : "rows taken earlier";
	pass_applied(r->p, r->replaced[op->results[0].id], what, op->loc);
	if (op->code == OP_transpose)
		turn_weight_emit(r, op);
	else
		take_rows_emit(r, op);
}

/*
 * A round may make room for the next one (a folded operand, a value with one use left), so there are rounds
 * until nothing is replaced. The first one also folds what the parser keeps as written.
 */
static enum tfmc_status rewrite_all(struct pass_context *p, const struct rule_set *set,
                                    const struct ir_module *in, struct ir_module *out)
{
	struct canonicalizer c = {
	        .rules = {.set = set, .fuel = p->step->settings[0], .nonempty = p->step->settings[1] != 0}};
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &c, .is_numbered = true};
	struct ir_module *last = NULL;
	int64_t changes = 1;
	enum tfmc_status st = TFMC_OK;

	for (int round = 0; round < ROUNDS_MAX && (changes > 0 || !c.takes_rows) && st == TFMC_OK; round++) {
		struct ir_module *next = ir_module_create_like(in);
		c.takes_rows = changes == 0;
		c.rules.f = NULL;
		if (next == NULL)
			st = TFMC_NO_MEMORY;
		else
			st = rebuild_module(p, last != NULL ? last : in, next, &rewrite, &changes);
		enum tfmc_status rules = rewriter_status(&c.rules, p);
		st = rules != TFMC_OK ? rules : st;
		pass_count(p, "rewrites", changes);
		ir_module_destroy(last);
		last = next;
	}
	if (st == TFMC_OK)
		st = rebuild_module(p, last, out, &(const struct rewrite){.match = NULL}, NULL);
	ir_module_destroy(last);
	return st;
}

enum tfmc_status pass_canonicalize(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct rule_set set;
	rule_set_init(&set);
	enum tfmc_status st = rule_set_load(&set, p->cx, p->options);
	if (st == TFMC_OK)
		st = rewrite_all(p, &set, in, out);
	rule_set_destroy(&set);
	return st;
}
