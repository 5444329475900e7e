/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Macro expansion of steps with statement bodies: binding of arguments, whose types are those of their rows in
 * schema.def, and the entries of bodies, which macro.h lists. Graphs and functions share its statements.
 * A row (r->key) is the entry of an argument in schema.def: its type, its words, and its default. A partial is known, a
 * value, or a residual expression (tree); absent arguments are known and null. Functions return false after a report.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/lower/macro.h"

/* ---- arguments of the step as names of the body ---- */

bool bind_name(struct macro *t, const char *name, const struct partial *item)
{
	struct partial *copy = ARENA_NEW(t->st->b->arena, struct partial);
	if (copy == NULL)
		return false;
	*copy = *item;
	return strmap_set(&t->names->map, name, copy);
}

struct arg_reader {
	struct macro *t;
	const struct schema_key *key;
	const struct yaml_node *node; /* not NULL */
	const char *name;             /* name of the binding */
};

/* Reads an int. The words of its row are the least value, which makes 2^31 the upper bound; empty: any int. */
static bool read_int_arg(const struct arg_reader *r, struct partial *out)
{
	struct expr_env env = step_env(r->t->st->b, false);
	int64_t v, min = r->key->words[0] == '\0' ? INT64_MIN : strtoll(r->key->words, NULL, 10);
	if (!expr_read_int(&env, r->node, r->key->name, &v))
		return false;
	*out = known_value(value_int(v));
	if (r->key->words[0] == '\0' || (v >= min && v < INT64_C(1) << 31))
		return true;
	return step_error(r->t->st, r->key->name, DIAG_VALUE_TYPE,
	                  "%s is %lld, it must be at least %lld and below 2^31", r->key->name, (long long)v,
	                  (long long)min);
}

/* Reads one of the words of the row; an alias of an activation becomes its canonical name. */
static bool read_word_arg(const struct arg_reader *r, struct partial *out)
{
	struct expr_env env = step_env(r->t->st->b, false);
	size_t n, word;
	const char *const *words = schema_words(r->t->st->b->arena, r->key, &n);
	if (words == NULL || !expr_read_word(&env, r->node, r->key->name, words, n, &word))
		return false;
	*out = known_value(value_string(activation_name(words[word])));
	out->word = true;
	return true;
}

/* Reads the name of a value; `none` leaves *out absent. */
static bool read_value_arg(const struct arg_reader *r, struct partial *out)
{
	struct step_value *v = ARENA_NEW(r->t->st->b->arena, struct step_value);
	if (yaml_is(r->node, "none"))
		return true;
	if (v == NULL || !find_named_value(r->t->st->b, r->node, v))
		return false;
	*out = partial_of_value(r->t, v);
	return true;
}

/* A list of ints, floats and dims; an element may be an expression that evaluates to a list. With the word `float` in
 * the row ints become floats. */
static bool read_list_arg(const struct arg_reader *r, struct partial *out)
{
	struct expander *b = r->t->st->b;
	struct expr_env env = step_env(b, true);
	struct yaml_list list = yaml_as_list(b->arena, r->node);
	struct {
		struct value *items;
		size_t n, cap;
	} all = {NULL, 0, 0};
	for (size_t i = 0; i < list.n; i++) {
		struct value v;
		if (!yaml_expect(b->cx, list.items[i], YAML_SCALAR, r->key->name))
			return false;
		const struct expr *e = expr_parse(b->arena, b->cx, expr_source_of(list.items[i]), EXPR_PLAIN);
		if (e == NULL || !expr_eval(&env, e, &v))
			return false;
		if (v.kind == VALUE_NONE || v.kind == VALUE_STRING || v.kind == VALUE_BOOL) {
			diag_error(b->cx, list.items[i]->loc, DIAG_VALUE_TYPE, "'%s' wants numbers, found %s",
			           r->key->name, value_describe(b->arena, b->m->scope.dims, &v));
			return false;
		}
		for (size_t k = 0; k < (v.kind == VALUE_LIST ? v.n : 1); k++) {
			struct value *slot = ARENA_PUSH(b->arena, &all);
			if (slot == NULL)
				return false;
			*slot = v.kind == VALUE_LIST ? v.items[k] : v;
			if (strcmp(r->key->words, "float") == 0 && slot->kind == VALUE_INT)
				*slot = value_float((double)slot->i);
		}
	}
	*out = known_value((struct value){.kind = VALUE_LIST, .n = all.n, .items = all.items});
	return true;
}

static bool bind_arguments(struct macro *t, const char *where, const struct yaml_node *given,
                           const char *prefix);

/* Binds the argument to true, and each key of the mapping, read by the rows of schema.def for this mapping, as
 * ARGUMENT_KEY. The rows are those of the place that the row's words name, else of the key. If that place is a kind
 * of step, as for `ffn` of moe, keys that every step has are allowed, too. */
static bool bind_mapping_arg(const struct arg_reader *r, struct partial *out)
{
	struct expander *b = r->t->st->b;
	const char *where =
	        r->key->type == KEY_MAP && r->key->words[0] != '\0' ? r->key->words : r->key->name;
	bool kind = schema_find_step(where) != NULL;
	const char *what = kind ? arena_printf(b->arena, "%s of %s", where, r->t->st->kind->kind) : where;
	*out = known_value(value_bool(true));
	if (r->node->kind != YAML_MAPPING)
		return step_error(r->t->st, r->key->name, DIAG_VALUE_TYPE, "%s is a mapping", r->key->name);
	return schema_check(b->arena, b->cx, r->node, where, kind ? "step" : NULL, what) &&
	       bind_arguments(r->t, where, r->node, arena_printf(b->arena, "%s_", r->name));
}

/* KEY_ANY: a value name, or one of the row's words: an int; a bool or a mapping; else a list. The name wins, as
 * values are no ints or bools. */
static bool read_any_arg(const struct arg_reader *r, struct partial *out)
{
	static const struct yaml_node empty = {.kind = YAML_MAPPING};
	struct expander *b = r->t->st->b;
	struct expr_env env = step_env(b, false);
	struct step_value *v = ARENA_NEW(b->arena, struct step_value);
	struct arg_reader defaults = *r;
	int64_t n;
	bool condition;
	if (v == NULL)
		return false;
	if (try_find_value(b, r->node, v)) {
		*out = partial_of_value(r->t, v);
		return true;
	}
	if (strcmp(r->key->words, "int") == 0) {
		if (!expr_read_int(&env, r->node, r->key->name, &n))
			return false;
		*out = known_value(value_int(n));
		return true;
	}
	if (strcmp(r->key->words, "bool") != 0)
		return read_list_arg(r, out);
	if (r->node->kind == YAML_MAPPING)
		return bind_mapping_arg(r, out);
	defaults.node = &empty; /* a bool in place of a mapping: its keys have their defaults */
	if (!expr_read_bool(&env, r->node, r->key->name, &condition) || !bind_mapping_arg(&defaults, out))
		return false;
	*out = known_value(value_bool(condition));
	return true;
}

static bool read_path_arg(const struct arg_reader *r, struct partial *out)
{
	const char *path;
	if (!path_of_node(r->t->st, r->node, r->key->name, &path))
		return false;
	*out = known_value(value_string(path));
	return true;
}

/* Reads an argument as the type of its row in schema.def demands; a number or bool is a constant, read without dims
 * (step_env). Leaves *out as it is for the types that handlers of steps read. False after a report. */
static bool read_argument(const struct arg_reader *r, struct partial *out)
{
	struct expr_env env = step_env(r->t->st->b, false);
	double f;
	bool condition;
	switch (r->key->type) {
	case KEY_INT: return read_int_arg(r, out);
	case KEY_FLOAT:
		if (!expr_read_float(&env, r->node, r->key->name, &f))
			return false;
		*out = known_value(value_float(f));
		return true;
	case KEY_BOOL:
		if (!expr_read_bool(&env, r->node, r->key->name, &condition))
			return false;
		*out = known_value(value_bool(condition));
		return true;
	case KEY_WORD: return read_word_arg(r, out);
	case KEY_VALUE: return read_value_arg(r, out);
	case KEY_PATH: return read_path_arg(r, out);
	case KEY_LIST: return read_list_arg(r, out);
	case KEY_MAP: return bind_mapping_arg(r, out);
	case KEY_ANY: return read_any_arg(r, out);
	case KEY_DIM:
	case KEY_NAME:
	case KEY_TEXT:
	case KEY_STEPS: return true; /* read by the handlers that use them */
	}
	return false;
}

/* The default of the row as a YAML node; NULL: none, or the argument is required ("!"). */
static const struct yaml_node *default_node(struct macro *t, const struct schema_key *key)
{
	struct yaml_node *def = ARENA_NEW(t->st->b->arena, struct yaml_node);
	if (def == NULL || key->def[0] == '\0' || key->def[0] == '!')
		return NULL;
	*def = (struct yaml_node){
	        .kind = YAML_SCALAR, .loc = t->st->loc, .text = key->def, .len = strlen(key->def)};
	return def;
}

/* Binds the arguments that schema.def lists for `where`, each as PREFIX + its key; one without value or default is
 * absent (VALUE_NONE). False after a report. */
static bool bind_arguments(struct macro *t, const char *where, const struct yaml_node *given,
                           const char *prefix)
{
	const struct schema_key *key = NULL;
	while ((key = schema_next_key(where, key)) != NULL) {
		const struct yaml_node *node = yaml_find(given, key->name);
		struct arg_reader r = {t, key, node != NULL ? node : default_node(t, key),
		                       arena_printf(t->st->b->arena, "%s%s", prefix, key->name)};
		struct partial item = known_value((struct value){.kind = VALUE_NONE});
		if (r.node != NULL && !read_argument(&r, &item))
			return false;
		if (!bind_name(t, r.name, &item))
			return false;
	}
	return true;
}

/* Numbers and bools are read without names of a body, so that a macro with the step alone serves. */
bool step_arg_value(struct step *st, const char *key, struct value *out)
{
	struct macro t = {.st = st};
	const struct schema_key *row = schema_find_key(st->kind->kind, key);
	const struct yaml_node *node = step_arg(st, key);
	struct arg_reader r = {&t, row, node != NULL ? node : default_node(&t, row), key};
	struct partial item;
	if (r.node == NULL || !read_argument(&r, &item))
		return false;
	*out = item.v;
	return true;
}

/* ---- definitions of the model ---- */

/* Binds an argument of a definition of the model: to the value of the model that it names, else to its scalar
 * (lookup_scoped evaluates it in the caller's scope). A string that is a name counts as a word, written without
 * quotes. False after a report. */
static bool bind_definition_argument(struct macro *t, const struct argument *a)
{
	struct expander *b = t->st->b;
	const struct yaml_node *node = step_arg(t->st, a->name);
	struct expr_env env = step_env(b, true);
	struct step_value *v = ARENA_NEW(b->arena, struct step_value);
	struct partial item = {.known = true};
	if (v == NULL)
		return false;
	if (node != NULL && try_find_value(b, node, v))
		item = partial_of_value(t, v);
	else if (env.lookup(env.user, a->name, t->st->loc, &item.v) != EXPR_FOUND)
		return false;
	item.word = item.known && item.v.kind == VALUE_STRING && expr_is_name(item.v.s);
	return bind_name(t, a->name, &item);
}

/* Binds the arguments of the definition of the model in use. False after a report. */
static bool bind_definition(struct macro *t)
{
	for (size_t i = 0; i < t->def->n_args; i++) {
		if (!bind_definition_argument(t, &t->def->args[i]))
			return false;
	}
	return true;
}

static bool run_entries(struct macro *t, const struct yaml_node *list);

/* ---- statements ---- */

const char *target_name(struct macro *t, const char *name)
{
	struct expander *b = t->st->b;
	const struct partial *i = find_binding(t, name);
	if (strcmp(name, "x") == 0 && !t->is_graph)
		return name;
	if (i != NULL && !i->known && i->tree->kind == EX_NAME)
		return i->tree->text;
	if (t->is_graph)
		return name;
	const char *temp = temp_push(b, name);
	struct partial item = {.tree = name_tree(b, temp, t->st->loc)};
	t->temps++;
	return bind_name(t, name, &item) ? temp : NULL;
}

/* Records which value a target is a copy of (value->of), so that queries know its type; of a computed value no type
 * is known yet (NULL). x has its own type (set_result). */
static bool record_type(struct macro *t, const char *name, const struct partial *value)
{
	const struct partial *old = find_binding(t, name);
	if (old == NULL || strcmp(name, "x") == 0)
		return true;
	struct partial item = *old;
	item.of = value->of;
	return bind_name(t, name, &item);
}

/* Parses a statement. Those of the prelude are cached by their text, as each step of a kind expands them again; those
 * of a model each have a location of their own. */
static const struct expr_statement *parse_cached_statement(struct macro *t, const struct yaml_node *node)
{
	struct expander *b = t->st->b;
	const struct expr_statement *st = t->is_prelude ? strmap_get(&b->statements, node->text) : NULL;
	if (st != NULL)
		return st;
	st = expr_parse_statement(b->arena, b->cx, expr_source_of(node));
	if (st != NULL && t->is_prelude)
		strmap_set(&b->statements, node->text, (void *)(uintptr_t)st);
	return st;
}

/* Location and path of a statement, for messages. In a graph its own; else those of the step, with the components
 * that a nested `do` has added to `path`: path has the parameters' path as its prefix, for which the step's is put. */
static struct ir_loc statement_loc(struct macro *t, const struct yaml_node *node)
{
	const struct step *st = t->st;
	if (t->is_graph)
		return (struct ir_loc){node->loc, st->b->prefix};
	const struct partial *path = find_binding(t, "path");
	size_t n = strlen(st->params);
	bool is_below = path->known && path->v.kind == VALUE_STRING && strncmp(path->v.s, st->params, n) == 0;
	return (struct ir_loc){st->loc, is_below && path->v.s[n] != '\0'
	                                        ? arena_printf(st->b->arena, "%s%s", st->path, path->v.s + n)
	                                        : st->path};
}

/* The first value of the statement is its only one: `return` is handled by expand_return(). Targets are named after
 * the value, which may read the former binding of the same name. */
bool macro_statement(struct macro *t, const struct yaml_node *node, const struct expr_statement *st)
{
	struct expander *b = t->st->b;
	struct expr_statement *closed = ARENA_NEW(b->arena, struct expr_statement);
	struct partial value;
	if (closed == NULL || !partial_eval(t, st->values[0], &value))
		return false;
	*closed = *st;
	closed->loc = macro_loc(t, st->loc);
	closed->targets = ARENA_ARRAY(b->arena, struct expr_target, st->n_targets);
	closed->values = ARENA_ARRAY(b->arena, const struct expr *, 1);
	if (closed->targets == NULL || closed->values == NULL)
		return false;
	closed->values[0] = partial_tree(t, &value, closed->loc);
	for (size_t i = 0; i < st->n_targets; i++) {
		closed->targets[i] = (struct expr_target){target_name(t, st->targets[i].name), closed->loc};
		if (closed->targets[i].name == NULL)
			return false;
	}
	return graph_push_statement(b->arena, b->out, statement_loc(t, node), closed) &&
	       (st->n_targets > 1 || record_type(t, st->targets[0].name, &value));
}

/* ---- entries ---- */

/* The code that the key `code` of an entry names; DIAG_VALUE_TYPE without one. */
static enum diag_code diag_code_named(const struct yaml_node *name)
{
	static const struct {
		const char *name;
		enum diag_code code;
	} codes[] = {
#define DIAG(name, number) {#name, DIAG_##name},
#include "ir/support/diagnostics.def"
	};
	for (size_t i = 0; name != NULL && i < TFMC_COUNT(codes); i++) {
		if (yaml_is(name, codes[i].name))
			return codes[i].code;
	}
	return DIAG_VALUE_TYPE;
}

/* {require: E, else: TEXT, code: C, at: KEY}: false after the report of TEXT if E is false. */
static bool run_require(struct macro *t, const struct yaml_node *node)
{
	const struct yaml_node *at = yaml_find(node, "at"), *text = yaml_find(node, "else");
	bool holds;
	if (!partial_eval_bool(t, yaml_find(node, "require"), &holds))
		return false;
	if (holds)
		return true;
	const char *message = text == NULL ? yaml_find(node, "require")->text : text->text;
	return step_error(t->st, at == NULL ? NULL : at->text, diag_code_named(yaml_find(node, "code")), "%s",
	                  macro_message(t, message));
}

/* {let: {name: E, ..}}: binds names in the current scope. */
static bool run_let(struct macro *t, const struct yaml_node *map)
{
	if (!yaml_expect(t->st->b->cx, map, YAML_MAPPING, "let"))
		return false;
	for (size_t i = 0; i < map->n; i++) {
		struct partial item;
		if (!partial_eval_node(t, map->pairs[i].value, &item) ||
		    !bind_name(t, map->pairs[i].key->text, &item))
			return false;
	}
	return true;
}

/* {if: E, then: [..], else: [..]}: runs one of the two lists; an absent one is empty. False after a report. */
static bool run_if(struct macro *t, const struct yaml_node *node)
{
	bool condition;
	if (!partial_eval_bool(t, yaml_find(node, "if"), &condition))
		return false;
	const struct yaml_node *body = yaml_find(node, condition ? "then" : "else");
	return body == NULL || run_entries(t, body);
}

/* Expands another body of the prelude; names of `with` are bound in a scope of its own. */
static bool run_do(struct macro *t, const struct yaml_node *node)
{
	struct expander *b = t->st->b;
	const struct yaml_node *with = yaml_find(node, "with"), *name = yaml_find(node, "do");
	const struct yaml_node *body = yaml_find(b->prelude, name->text);
	struct bindings inner = {.outer = t->names};
	if (body == NULL)
		return step_error(t->st, NULL, DIAG_UNKNOWN_NAME, "no body is called '%s'", name->text);
	if (with == NULL)
		return run_entries(t, body);
	strmap_init(&inner.map, b->arena);
	struct macro sub = *t;
	bool ok = true;
	for (size_t i = 0; ok && i < with->n; i++) {
		struct partial item;
		ok = partial_eval_node(t, with->pairs[i].value, &item);
		sub.names = &inner;
		ok = ok && bind_name(&sub, with->pairs[i].key->text, &item);
	}
	ok = ok && run_entries(&sub, body);
	sub.names = t->names;
	*t = sub; /* lengths, mixes and temporaries of the inner body are those of the step */
	return ok;
}

/* {lengths: E}: sets the real lengths of the result. */
static bool run_lengths(struct macro *t, const struct yaml_node *node)
{
	struct expander *b = t->st->b;
	struct partial i;
	if (!partial_eval_node(t, node, &i))
		return false;
	t->lengths = i;
	if (i.known || i.tree->kind == EX_NAME)
		return true;
	/* a computed one gets a permanent name, which later steps may read */
	const char *name = temp_push(b, arena_printf(b->arena, "%s_lengths", t->st->kind->kind));
	temp_pop(b, 1);
	t->lengths = (struct partial){.tree = name_tree(b, name, t->st->loc)};
	return model_declare(&b->m->scope, name, "lengths", t->st->loc) &&
	       push_assignment(b, (struct ir_loc){t->st->loc, t->st->path}, name, i.tree);
}

/* Ids of the input `of` are less than `below`: entry functions check the least of these bounds. */
static bool run_below(struct macro *t, const struct yaml_node *node)
{
	struct partial of, by;
	if (yaml_find(node, "of") == NULL)
		return step_error(t->st, NULL, DIAG_MISSING, "'below' needs 'of'");
	if (!partial_eval_node(t, yaml_find(node, "of"), &of) ||
	    !partial_eval_node(t, yaml_find(node, "below"), &by))
		return false;
	if (of.of == NULL || of.of->input == 0 || by.v.kind != VALUE_INT)
		return true; /* ids that the model computes are not checked */
	struct frontend_input *in = &t->st->b->m->inputs.items[of.of->input - 1];
	in->below = in->below == 0 || in->below > by.v.i ? by.v.i : in->below;
	return true;
}

/* Records a tied path; check_ties checks it when all steps are known. name: of an argument with a path; if it is null
 * there is nothing to check. */
static bool run_known_path(struct macro *t, const struct yaml_node *name)
{
	struct expander *b = t->st->b;
	const struct partial *path = find_binding(t, name->text);
	const struct yaml_node *given = step_arg(t->st, name->text);
	struct loc *loc = ARENA_NEW(b->arena, struct loc);
	if (path == NULL || path->v.kind != VALUE_STRING || loc == NULL)
		return loc != NULL;
	*loc = given != NULL ? given->loc : t->st->loc;
	return strmap_set(&b->ties, fill_loop_indices(b, path->v.s), loc);
}

/* Checks the node kinds of an entry: bodies are lists, `let` and `with` mappings, all others scalars. `else` is a
 * body after `if`, and the message after `require`. */
static bool check_entry_form(struct macro *t, const struct yaml_node *node)
{
	bool chooses = yaml_find(node, "if") != NULL;
	for (size_t i = 0; i < node->n; i++) {
		const struct yaml_node *key = node->pairs[i].key, *value = node->pairs[i].value;
		bool body = yaml_is(key, "then") || (chooses && yaml_is(key, "else"));
		bool map = yaml_is(key, "let") || yaml_is(key, "with");
		enum yaml_kind kind = body ? YAML_SEQUENCE : map ? YAML_MAPPING : YAML_SCALAR;
		if (value->kind != kind)
			return yaml_expect(t->st->b->cx, value, kind, key->text);
	}
	return true;
}

/* Runs one entry of a body: a statement, or a mapping selected by its first key, which definitions of a model may
 * write, too. */
static bool run_entry(struct macro *t, const struct yaml_node *node)
{
	if (node->kind == YAML_SCALAR) {
		const struct expr_statement *st = parse_cached_statement(t, node);
		return st != NULL && macro_statement(t, node, st);
	}
	if (!yaml_expect(t->st->b->cx, node, YAML_MAPPING, "an entry"))
		return false;
	if (node->n == 0) {
		diag_error(t->st->b->cx, node->loc, DIAG_VALUE_TYPE,
		           "'an entry' of a body has a key, found {}");
		return false;
	}
	if (!check_entry_form(t, node))
		return false;
	const struct yaml_node *key = node->pairs[0].key, *value = node->pairs[0].value;
	if (yaml_is(key, "require"))
		return run_require(t, node);
	if (yaml_is(key, "let"))
		return run_let(t, value);
	if (yaml_is(key, "if"))
		return run_if(t, node);
	if (yaml_is(key, "do"))
		return run_do(t, node);
	if (yaml_is(key, "mixes"))
		return partial_eval_bool(t, value, &t->mixes);
	if (yaml_is(key, "lengths"))
		return run_lengths(t, value);
	if (yaml_is(key, "below"))
		return run_below(t, node);
	if (yaml_is(key, "known_path"))
		return run_known_path(t, value);
	if (yaml_is(key, "at")) {
		t->loc =
		        step_arg(t->st, value->text) == NULL ? t->st->loc : step_arg(t->st, value->text)->loc;
		return true;
	}
	static const char *const entries[] = {"require", "let",   "if",         "do", "mixes",
	                                      "lengths", "below", "known_path", "at"};
	yaml_unknown_key(t->st->b->cx, key, entries, TFMC_COUNT(entries), "a body of statements");
	return false;
}

/* Runs the entries of a body in order, up to the first that fails. */
static bool run_entries(struct macro *t, const struct yaml_node *list)
{
	if (!yaml_expect(t->st->b->cx, list, YAML_SEQUENCE, "a body"))
		return false;
	for (size_t i = 0; i < list->n; i++) {
		if (!run_entry(t, list->items[i]))
			return false;
	}
	return true;
}

/* ---- the step ---- */

/* Binds the names that every body has: in, start, path, kind_name. Arguments are bound after them and may hide
 * `start`, so that stack_input is a second name of it. False without memory. */
static bool bind_implicit_names(struct macro *t)
{
	struct expander *b = t->st->b;
	struct partial in = partial_of_value(t, &t->st->in), start = partial_of_value(t, &b->start);
	struct partial path = known_value(value_string(t->st->params));
	struct partial kind = known_value(value_string(t->st->kind->kind));
	return bind_name(t, "in", &in) && bind_name(t, "start", &start) &&
	       bind_name(t, "stack_input", &start) && bind_name(t, "path", &path) &&
	       bind_name(t, "kind_name", &kind);
}

/* Sets type, lengths and mixing of x after the statements from index `from` on. x grows if the input does, or a value
 * with the tokens that the statements read: the x before, or a saved one. Of the steps that mixed positions on the
 * way the first is kept, for the message. */
static bool set_result(struct macro *t, size_t from)
{
	struct expander *b = t->st->b;
	struct graph_body part = {b->out->items + from, b->out->n - from, 0};
	struct step_value v = t->st->in;
	bool reads_x = graph_first_use(&part, 0, "x") == GRAPH_READ;
	v.lengths = t->lengths.known ? NULL : t->lengths.tree->text;
	v.grows = v.grows || (reads_x && t->before.grows) || reads_growing_value(b, &part);
	if (v.mixed_by == NULL && reads_x) {
		v.mixed = t->before.mixed;
		v.mixed_by = t->before.mixed_by;
	}
	if (t->mixes)
		mark_mixing(t->st, &v);
	set_x(b, &v);
	return infer_x_type(b, &part);
}

/* Without an entry `lengths` the result has the lengths of the input. Temporaries of the body are free after it. */
bool macro_expand(struct step *st, const struct definition *def, const struct yaml_node *body)
{
	struct bindings names = {0};
	struct macro t = {.st = st,
	                  .names = &names,
	                  .def = def,
	                  .is_prelude = def == NULL,
	                  .before = st->b->x,
	                  .loc = st->loc};
	size_t from = st->b->out->n;
	strmap_init(&names.map, st->b->arena);
	t.lengths = st->in.lengths == NULL
	                    ? known_value((struct value){.kind = VALUE_NONE})
	                    : (struct partial){.tree = name_tree(st->b, st->in.lengths, st->loc)};
	bool ok = bind_implicit_names(&t) &&
	          (def != NULL ? bind_definition(&t) : bind_arguments(&t, st->kind->kind, st->args, "")) &&
	          run_entries(&t, body);
	temp_pop(st->b, t.temps);
	return ok && set_result(&t, from);
}
