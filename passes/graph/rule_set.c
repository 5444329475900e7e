/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule sets: built-in files, rules of the options, and buckets by the opcode of the root. The order is that of
 * reading, so results never depend on hash values.
 */
#include <string.h>

#include "passes/graph/rule.h"
#include "ir/support/strmap.h"

void rule_set_init(struct rule_set *s)
{
	*s = (struct rule_set){0};
	arena_init(&s->arena);
}

void rule_set_destroy(struct rule_set *s)
{
	arena_destroy(&s->arena);
}

const struct rule *rule_set_find(const struct rule_set *s, const char *name)
{
	for (size_t i = 0; i < s->rules.n; i++)
		if (strcmp(s->rules.items[i]->name, name) == 0)
			return s->rules.items[i];
	return NULL;
}

enum tfmc_status rule_set_read_builtin(struct rule_set *s, struct diag_context *cx)
{
	for (const struct rule_file *f = rule_files; f->name != NULL; f++)
		TFMC_TRY(rule_set_read(s, cx, f->name, (const char *)f->text, f->len));
	return TFMC_OK;
}

/* Reports a name of --disable-rule that no rule has. */
static enum tfmc_status unknown_rule(const struct rule_set *s, struct diag_context *cx, const char *name)
{
	struct arena scratch;
	arena_init(&scratch);
	const char **names = ARENA_ARRAY(&scratch, const char *, s->rules.n + 1);
	for (size_t i = 0; names != NULL && i < s->rules.n; i++)
		names[i] = s->rules.items[i]->name;
	diag_error(cx, LOC_NONE, DIAG_PIPELINE, "disable rule: there is no rule '%s'%s", name,
	           did_you_mean_or_known(&scratch, name, names, names != NULL ? s->rules.n : 0));
	arena_destroy(&scratch);
	return TFMC_INVALID;
}

/* A disabled rule stays in the set, where its name is known, but in no bucket. Rules of the user come first in the
 * buckets. */
enum tfmc_status rule_set_load(struct rule_set *s, struct diag_context *cx,
                               const struct pass_options *options)
{
	if (options->rules_text != NULL)
		TFMC_TRY(rule_set_read(s, cx, options->rules_name, options->rules_text, options->rules_len));
	TFMC_TRY(rule_set_read_builtin(s, cx));
	for (size_t i = 0; i < options->disable_rules.n; i++)
		if (rule_set_find(s, options->disable_rules.items[i]) == NULL)
			return unknown_rule(s, cx, options->disable_rules.items[i]);
	for (size_t i = 0; i < s->rules.n; i++) {
		const struct rule *rule = s->rules.items[i];
		struct rule_bucket *bucket = &s->by_root[rule->match[rule->n_match - 1].code];
		const struct rule **slot = name_list_has(&options->disable_rules, rule->name)
		                                   ? NULL
		                                   : ARENA_PUSH(&s->arena, bucket);
		if (slot != NULL)
			*slot = rule;
	}
	return arena_failed(&s->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}
