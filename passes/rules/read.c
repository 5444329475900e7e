/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading rules: the frame of a rule, its predicates, and what can only be
 * checked when it is complete. The grammar is in README.md. The first mistake
 * ends the text; a set that was read without one holds only rules whose names
 * are all known.
 */
#include "passes/rules/read.h"

#include <string.h>

#define RULES_TEXT_MAX (1u << 20)

/* ---- head ---- */

static bool read_class(struct rule_reader *r)
{
	static const enum rule_class all[] = {RULE_BITS, RULE_ROUND, RULE_REASSOCIATE, RULE_APPROXIMATE};
	const char *names[TFMC_COUNT(all)];
	int i;
	for (size_t k = 0; k < TFMC_COUNT(all); k++)
		names[k] = rule_class_name(all[k]);
	if (!parse_one_of(&r->p, "bits, round, reassociate or approximate", "exactness", names,
	                  TFMC_COUNT(all), &i))
		return false;
	r->rule->class = all[i];
	return all[i] != RULE_APPROXIMATE || parse_float(&r->p, &r->rule->tolerance);
}

static bool read_exceptions(struct rule_reader *r)
{
	static const char *const words[] = {"nan", "inf", "empty"};
	bool *const exceptions[] = {&r->rule->except_nan, &r->rule->except_inf, &r->rule->except_empty};
	int i;
	if (!parse_accept_word(&r->p, "except"))
		return true;
	do {
		if (!parse_one_of(&r->p, "nan, inf or empty", "word", words, TFMC_COUNT(words), &i))
			return false;
		*exceptions[i] = true;
	} while (parse_accept(&r->p, ','));
	return true;
}

/* ---- where ---- */

/* Facts about a value; below them, predicates over expressions. */
enum { VALUE_SHARED, VALUE_CONST, VALUE_UNMASKED, VALUE_FACTS };

static const char *const pred_names[] = {"shared",   "const",       "unmasked", "equal", "near",
                                         "positive", "nonnegative", "nonzero",  "finite"};

/* shared(%v), const(%v), unmasked(%v): facts about a value. */
static bool read_value_pred(struct rule_reader *r, int fact)
{
	struct tok t;
	int v;
	if (!parse_expect(&r->p, '(') || !parse_take(&r->p, TOK_VALUE, "%name", &t) ||
	    !read_known_value(r, &t, &v))
		return false;
	struct rule_value *value = &r->rule->values[v];
	if (fact != VALUE_SHARED && value->op >= 0)
		return parse_fail(&r->p, t.loc, DIAG_TIR_SYNTAX, "%s is said of an operand, %%%s is a result",
		                  pred_names[fact], t.text);
	value->is_shared |= fact == VALUE_SHARED;
	value->is_const |= fact == VALUE_CONST;
	value->is_unmasked |= fact == VALUE_UNMASKED;
	return parse_expect(&r->p, ')');
}

static bool read_pred(struct rule_reader *r)
{
	struct loc at = r->p.tok.loc;
	int i;
	if (!parse_one_of(&r->p, "a predicate or '}'", "predicate", pred_names, TFMC_COUNT(pred_names), &i))
		return false;
	if (i < VALUE_FACTS)
		return read_value_pred(r, i);
	if (r->rule->n_preds == RULE_PREDS_MAX)
		return parse_fail(&r->p, at, DIAG_LIMIT, "a rule has at most %d predicates", RULE_PREDS_MAX);
	struct rule_pred *p = &r->rule->preds[r->rule->n_preds++];
	p->kind = (enum rule_pred_kind)(i - VALUE_FACTS);
	bool has_two = p->kind == PRED_EQUAL || p->kind == PRED_NEAR;
	return parse_expect(&r->p, '(') && read_expr(r, &p->args[0]) &&
	       (!has_two || (parse_expect(&r->p, ',') && read_expr(r, &p->args[1]))) &&
	       parse_expect(&r->p, ')');
}

/* ---- the whole rule ---- */

/* Every op reads operands of the rule or results above it; `into` does not read the root. */
static bool check_order(struct rule_reader *r, const struct rule_op *ops, int n, bool into)
{
	const struct rule *rule = r->rule;
	for (int i = 0; i < n; i++) {
		for (size_t k = 0; k < ops[i].n_operands; k++) {
			const struct rule_operand *x = &ops[i].operands[k];
			if (x->kind != ARG_VALUE)
				continue;
			const struct rule_value *v = &rule->values[x->index];
			bool above = v->from_into == into ? v->op < i && (v->op >= 0 || !into)
			                                  : x->index != rule->root;
			if (!above)
				return parse_fail(&r->p, ops[i].loc, DIAG_TIR_NAME,
				                  "the op reads its own result, or one that comes later");
		}
	}
	return true;
}

/* Only the root of a side may lack readers. */
static bool check_used(struct rule_reader *r, const struct rule_op *ops, int n)
{
	for (int i = 0; i + 1 < n; i++) {
		bool used = false;
		for (int j = i + 1; j < n && !used; j++)
			for (size_t k = 0; k < ops[j].n_operands; k++)
				used |= ops[j].operands[k].kind == ARG_VALUE &&
				        ops[j].operands[k].index == ops[i].result;
		if (!used)
			return parse_fail(&r->p, ops[i].loc, DIAG_TIR_NAME, "nothing reads this result");
	}
	return true;
}

static bool check_rule(struct rule_reader *r)
{
	const struct rule *rule = r->rule;
	if (rule->result < 0)
		return parse_fail(&r->p, r->p.tok.loc, DIAG_TIR_NAME, "into does not give %%%s",
		                  rule->values[rule->root].name);
	if (rule->result == rule->root)
		return parse_fail(&r->p, rule->loc, DIAG_TIR_NAME, "the rule replaces a value by itself");
	if (rule->n_into > 0 && rule->into[rule->n_into - 1].result != rule->result)
		return parse_fail(&r->p, rule->loc, DIAG_TIR_NAME, "the last line of into must give %%%s",
		                  rule->values[rule->root].name);
	return check_order(r, rule->match, rule->n_match, false) &&
	       check_order(r, rule->into, rule->n_into, true) && check_used(r, rule->match, rule->n_match) &&
	       check_used(r, rule->into, rule->n_into);
}

static bool read_lines(struct rule_reader *r, bool into)
{
	r->in_into = into;
	if (!parse_expect(&r->p, '{'))
		return false;
	while (!parse_at(&r->p, '}'))
		if (!read_line(r))
			return false;
	parse_next(&r->p);
	return true;
}

static bool read_match(struct rule_reader *r)
{
	struct rule *rule = r->rule;
	struct loc at = r->p.tok.loc;
	if (!parse_expect_word(&r->p, "match") || !read_lines(r, false))
		return false;
	if (rule->n_match == 0)
		return parse_fail(&r->p, at, DIAG_TIR_SYNTAX, "match has no op");
	rule->root = rule->match[rule->n_match - 1].result;
	return rule->values[rule->root].name != NULL ||
	       parse_fail(&r->p, at, DIAG_TIR_SYNTAX, "the last op of match needs a name");
}

static bool read_where(struct rule_reader *r)
{
	if (!parse_accept_word(&r->p, "where"))
		return true;
	if (!parse_expect(&r->p, '{'))
		return false;
	while (!parse_at(&r->p, '}'))
		if (!read_pred(r))
			return false;
	parse_next(&r->p);
	return true;
}

static void *keep(struct rule_reader *r, const void *list, int n, size_t size)
{
	void *copy = arena_calloc(r->arena, (size_t)n + 1, size);
	if (copy != NULL)
		memcpy(copy, list, (size_t)n * size);
	return copy;
}

/* The rule's own copies of the lists that the reader lent it. */
static bool keep_lists(struct rule_reader *r)
{
	struct rule *rule = r->rule;
	rule->values = keep(r, r->values, rule->n_values, sizeof(*r->values));
	rule->match = keep(r, r->match, rule->n_match, sizeof(*r->match));
	rule->into = keep(r, r->into, rule->n_into, sizeof(*r->into));
	return rule->values != NULL && rule->match != NULL && rule->into != NULL;
}

/* rule NAME : CLASS [except ...] { match {...} where {...} into {...} } */
static bool read_rule(struct rule_reader *r, struct rule_set *set)
{
	struct tok name;
	if (!parse_expect_word(&r->p, "rule") || !parse_take(&r->p, TOK_WORD, "the name of the rule", &name))
		return false;
	if (rule_set_find(set, name.text) != NULL)
		return parse_fail(&r->p, name.loc, DIAG_NAME_CLASH, "there are two rules %s", name.text);
	r->rule = ARENA_NEW(r->arena, struct rule);
	if (r->rule == NULL)
		return false;
	r->rule->name = arena_strdup(r->arena, name.text);
	r->rule->loc = name.loc;
	r->rule->root = r->rule->result = -1;
	r->rule->values = r->values;
	r->rule->match = r->match;
	r->rule->into = r->into;
	if (!parse_expect(&r->p, ':') || !read_class(r) || !read_exceptions(r) || !parse_expect(&r->p, '{') ||
	    !read_match(r) || !read_where(r) || !parse_expect_word(&r->p, "into") || !read_lines(r, true) ||
	    !check_rule(r) || !keep_lists(r) || !parse_expect(&r->p, '}'))
		return false;
	return ARENA_ADDED(r->arena, &set->rules, r->rule);
}

enum tfmc_status rule_set_read(struct rule_set *s, struct diag_context *cx, const char *file_name,
                               const char *text, size_t len)
{
	struct rule_reader r;
	uint32_t source = diag_add_source(cx, file_name, text, len);
	if (source == 0)
		return TFMC_NO_MEMORY;
	if (len > RULES_TEXT_MAX) {
		diag_error(cx, (struct loc){source, 0, 0, 0}, DIAG_LIMIT, "the text has more than %u bytes",
		           RULES_TEXT_MAX);
		return TFMC_INVALID;
	}
	r.p = (struct parser){.cx = cx};
	r.arena = &s->arena;
	arena_init(&r.p.arena);
	lex_init(&r.p.lex, cx, &r.p.arena, source, text, len);
	r.p.lex.variables = true;
	parse_next(&r.p);
	bool ok = true;
	while (ok && r.p.tok.kind != TOK_END)
		ok = read_rule(&r, s);
	bool memory = !arena_failed(&r.p.arena) && !arena_failed(&s->arena);
	ok = ok && !r.p.lex.failed;
	arena_destroy(&r.p.arena);
	return ok && memory ? TFMC_OK : memory ? TFMC_INVALID : TFMC_NO_MEMORY;
}
