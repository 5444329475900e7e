/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps after one that failed: their kinds, keys and the types of their
 * arguments, so that the mistakes of a file come in one run. What needs the
 * shape of a value is left alone, for it would be said because of the first
 * mistake.
 */
#include <string.h>

#include "frontend/steps/blocks.h"

static void check_word(struct blocks *b, const struct schema_key *key, const struct yaml_node *node)
{
	struct expr_env env = blocks_env(b, false);
	size_t n, word;
	const char *const *words = schema_words(b->arena, key, &n);
	if (words != NULL)
		(void)expr_read_word(&env, node, key->name, words, n, &word);
}

static void check_argument(struct blocks *b, const struct schema_key *key, const struct yaml_node *node)
{
	struct expr_env env = blocks_env(b, false);
	int64_t i;
	double f;
	bool yes;
	switch (key->type) {
	case KEY_INT: (void)expr_read_int(&env, node, key->name, &i); return;
	case KEY_FLOAT: (void)expr_read_float(&env, node, key->name, &f); return;
	case KEY_BOOL: (void)expr_read_bool(&env, node, key->name, &yes); return;
	case KEY_WORD: check_word(b, key, node); return;
	case KEY_DIM:
	case KEY_NAME:
	case KEY_VALUE:
	case KEY_PATH:
	case KEY_TEXT:
	case KEY_LIST:
	case KEY_MAP:
	case KEY_STEPS:
	case KEY_ANY: return;
	}
}

static void check_bodies(const struct step *st)
{
	const struct yaml_node *body = arg(st, "body"), *branches = arg(st, "branches"), *as = arg(st, "as");
	bool repeats = strcmp(st->kind->kind, "repeat") == 0;
	struct block_scope scope = {.outer = st->b->scope, .loop = "i", .value = value_int(0)};
	if (as != NULL && as->kind == YAML_SCALAR)
		scope.loop = as->text;
	st->b->scope = repeats ? &scope : scope.outer;
	blocks_check_rest(st->b, body, 0);
	for (size_t i = 0; branches != NULL && branches->kind == YAML_SEQUENCE && i < branches->n; i++)
		blocks_check_rest(st->b, branches->items[i], 0);
	st->b->scope = scope.outer;
}

static void check_step(struct step *st)
{
	struct expr_env env = blocks_env(st->b, false);
	bool when = true;
	if (arg(st, "when") != NULL && (!expr_read_bool(&env, arg(st, "when"), "when", &when) || !when))
		return;
	for (size_t i = 0; i < st->args->n; i++) {
		const struct yaml_pair *p = &st->args->pairs[i];
		const struct schema_key *key = schema_find_key(st->kind->kind, p->key->text);
		if (key != NULL)
			check_argument(st->b, key, p->value);
	}
	check_bodies(st);
}

void blocks_check_rest(struct blocks *b, const struct yaml_node *steps, size_t from)
{
	for (size_t i = from;
	     steps != NULL && steps->kind == YAML_SEQUENCE && b->locals == NULL && i < steps->n; i++) {
		struct step st;
		if (read_step(b, steps->items[i], &st))
			check_step(&st);
	}
}

void blocks_check(struct frontend_model *m)
{
	struct blocks b = {.m = m, .arena = &m->arena, .cx = m->cx, .out = &m->graph, .prefix = ""};
	const struct yaml_node *model = model_section(m, "model");
	blocks_check_rest(&b, model, 0);
	for (size_t i = 0; model != NULL && model->kind == YAML_MAPPING && i < model->n; i++)
		blocks_check_rest(&b, yaml_find(model->pairs[i].value, "body"), 0);
}
