/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/steps/template.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/steps/graph_close.h"

static bool run_list(struct template *t, const struct yaml_node *list);

/* ---- statements ---- */

/* x, what a name stands for that is one, else a free name that the body calls so from now on. */
static const char *target_name(struct template *t, const char *name)
{
	struct blocks *b = t->st->b;
	const struct item *i = item_find(t, name);
	if (strcmp(name, "x") == 0)
		return name;
	if (i != NULL && !i->known && i->tree->kind == EX_NAME)
		return i->tree->text;
	const char *own = temp_push(b, name);
	struct item item = {.tree = graph_name(b, own, t->st->loc)};
	t->temps++;
	return bind(t, name, &item) ? own : NULL;
}

/* The type of a value that gets another name is known. */
static bool note_type(struct template *t, const char *name, const struct item *value)
{
	const struct item *old = item_find(t, name);
	if (old == NULL || strcmp(name, "x") == 0)
		return true;
	struct item item = *old;
	item.of = value->of;
	return bind(t, name, &item);
}

static const struct expr_statement *parsed(struct template *t, const struct yaml_node *node)
{
	struct blocks *b = t->st->b;
	const struct expr_statement *st = t->def != NULL ? NULL : strmap_get(&b->statements, node->text);
	if (st != NULL)
		return st;
	st = expr_parse_statement(b->arena, b->cx, expr_source_of(node));
	if (st != NULL && t->def == NULL)
		strmap_set(&b->statements, node->text, (void *)(uintptr_t)st);
	return st;
}

/* The path of the step, with what `path` has beyond that of its parameters. */
static const char *place(struct template *t)
{
	const struct step *st = t->st;
	const struct item *path = item_find(t, "path");
	size_t n = strlen(st->params);
	bool deeper = path->known && path->v.kind == VALUE_STRING && strncmp(path->v.s, st->params, n) == 0;
	return deeper && path->v.s[n] != '\0' ? arena_printf(st->b->arena, "%s%s", st->path, path->v.s + n)
	                                      : st->path;
}

static bool run_statement(struct template *t, const struct yaml_node *node)
{
	struct blocks *b = t->st->b;
	const struct expr_statement *st = parsed(t, node);
	struct expr_statement *closed = ARENA_NEW(b->arena, struct expr_statement);
	struct item value;
	if (st == NULL || closed == NULL || !item_close(t, st->values[0], &value))
		return false;
	*closed = *st;
	closed->loc = template_loc(t, st->loc);
	closed->targets = ARENA_ARRAY(b->arena, struct expr_target, st->n_targets);
	closed->values = ARENA_ARRAY(b->arena, const struct expr *, 1);
	if (closed->targets == NULL || closed->values == NULL)
		return false;
	closed->values[0] = item_tree(t, &value, closed->loc);
	for (size_t i = 0; i < st->n_targets; i++) {
		closed->targets[i] = (struct expr_target){target_name(t, st->targets[i].name), closed->loc};
		if (closed->targets[i].name == NULL)
			return false;
	}
	return graph_push_statement(b->arena, b->out, (struct ir_loc){t->st->loc, place(t)}, closed) &&
	       (st->n_targets > 1 || note_type(t, st->targets[0].name, &value));
}

/* ---- entries ---- */

static enum diag_code code_of(const struct yaml_node *name)
{
	static const struct {
		const char *name;
		enum diag_code code;
	} codes[] = {
#define DIAG(name, number) {#name, DIAG_##name},
#include "ir/diag/diagnostics.def"
	};
	for (size_t i = 0; name != NULL && i < TFMC_COUNT(codes); i++) {
		if (yaml_is(name, codes[i].name))
			return codes[i].code;
	}
	return DIAG_VALUE_TYPE;
}

static bool run_require(struct template *t, const struct yaml_node *node)
{
	const struct yaml_node *at = yaml_find(node, "at"), *text = yaml_find(node, "else");
	bool holds;
	if (!item_bool(t, yaml_find(node, "require"), &holds))
		return false;
	if (holds)
		return true;
	const char *message = text == NULL ? yaml_find(node, "require")->text : text->text;
	return step_error(t->st, at == NULL ? NULL : at->text, code_of(yaml_find(node, "code")), "%s",
	                  template_message(t, message));
}

static bool run_let(struct template *t, const struct yaml_node *map)
{
	if (!yaml_expect(t->st->b->cx, map, YAML_MAPPING, "let"))
		return false;
	for (size_t i = 0; i < map->n; i++) {
		struct item item;
		if (!item_read(t, map->pairs[i].value, &item) || !bind(t, map->pairs[i].key->text, &item))
			return false;
	}
	return true;
}

static bool run_if(struct template *t, const struct yaml_node *node)
{
	bool yes;
	if (!item_bool(t, yaml_find(node, "if"), &yes))
		return false;
	const struct yaml_node *body = yaml_find(node, yes ? "then" : "else");
	return body == NULL || run_list(t, body);
}

/* With names of its own the body has a scope of its own. */
static bool run_do(struct template *t, const struct yaml_node *node)
{
	struct blocks *b = t->st->b;
	const struct yaml_node *with = yaml_find(node, "with"), *name = yaml_find(node, "do");
	const struct yaml_node *body = yaml_find(b->prelude, name->text);
	struct names inner = {.outer = t->names};
	if (body == NULL)
		return step_error(t->st, NULL, DIAG_UNKNOWN_NAME, "no body is called '%s'", name->text);
	if (with == NULL)
		return run_list(t, body);
	strmap_init(&inner.map, b->arena);
	struct template sub = *t;
	bool ok = true;
	for (size_t i = 0; ok && i < with->n; i++) {
		struct item item;
		ok = item_read(t, with->pairs[i].value, &item);
		sub.names = &inner;
		ok = ok && bind(&sub, with->pairs[i].key->text, &item);
	}
	ok = ok && run_list(&sub, body);
	sub.names = t->names;
	*t = sub;
	return ok;
}

static bool run_lengths(struct template *t, const struct yaml_node *node)
{
	struct blocks *b = t->st->b;
	struct item i;
	if (!item_read(t, node, &i))
		return false;
	t->lengths = i;
	if (i.known || i.tree->kind == EX_NAME)
		return true;
	/* others get a name of their own, which stays */
	const char *name = temp_push(b, arena_printf(b->arena, "%s_lengths", t->st->kind->kind));
	temp_pop(b, 1);
	t->lengths = (struct item){.tree = graph_name(b, name, t->st->loc)};
	return model_declare(&b->m->scope, name, "lengths", t->st->loc) &&
	       push_assignment(b, (struct ir_loc){t->st->loc, t->st->path}, name, i.tree);
}

/* Ids of an input are checked at its entry. */
static bool run_below(struct template *t, const struct yaml_node *node)
{
	struct item of, by;
	if (yaml_find(node, "of") == NULL)
		return step_error(t->st, NULL, DIAG_MISSING, "'below' needs 'of'");
	if (!item_read(t, yaml_find(node, "of"), &of) || !item_read(t, yaml_find(node, "below"), &by))
		return false;
	if (of.of == NULL || of.of->input == 0 || by.v.kind != VALUE_INT)
		return true;
	struct frontend_input *in = &t->st->b->m->inputs.items[of.of->input - 1];
	in->below = in->below == 0 || in->below > by.v.i ? by.v.i : in->below;
	return true;
}

/* Remembered until all steps are known. */
static bool run_known_path(struct template *t, const struct yaml_node *name)
{
	struct blocks *b = t->st->b;
	const struct item *path = item_find(t, name->text);
	const struct yaml_node *given = arg(t->st, name->text);
	struct loc *loc = ARENA_NEW(b->arena, struct loc);
	if (path == NULL || path->v.kind != VALUE_STRING || loc == NULL)
		return loc != NULL;
	*loc = given != NULL ? given->loc : t->st->loc;
	return strmap_set(&b->ties, concrete(b, path->v.s), loc);
}

/* Bodies are lists, `let` and `with` are mappings, everything else is one text. */
static bool is_formed(struct template *t, const struct yaml_node *node)
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

static bool run_entry(struct template *t, const struct yaml_node *node)
{
	if (node->kind == YAML_SCALAR)
		return run_statement(t, node);
	if (!yaml_expect(t->st->b->cx, node, YAML_MAPPING, "an entry") || node->n == 0 || !is_formed(t, node))
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
		return item_bool(t, value, &t->mixes);
	if (yaml_is(key, "lengths"))
		return run_lengths(t, value);
	if (yaml_is(key, "below"))
		return run_below(t, node);
	if (yaml_is(key, "known_path"))
		return run_known_path(t, value);
	if (yaml_is(key, "at")) {
		t->loc = arg(t->st, value->text) == NULL ? t->st->loc : arg(t->st, value->text)->loc;
		return true;
	}
	static const char *const entries[] = {"require", "let",   "if",         "do", "mixes",
	                                      "lengths", "below", "known_path", "at"};
	yaml_unknown_key(t->st->b->cx, key, entries, TFMC_COUNT(entries), "a body of statements");
	return false;
}

static bool run_list(struct template *t, const struct yaml_node *list)
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

static bool bind_own(struct template *t)
{
	struct blocks *b = t->st->b;
	struct item in = item_named(t, &t->st->in), start = item_named(t, &b->start);
	struct item path = item_value(value_string(t->st->params));
	struct item kind = item_value(value_string(t->st->kind->kind));
	/* stack_input: the same for the bodies of steps with an argument that is called start */
	return bind(t, "in", &in) && bind(t, "start", &start) && bind(t, "stack_input", &start) &&
	       bind(t, "path", &path) && bind(t, "kind_name", &kind);
}

/* x after the statements from `from` on. */
static bool set_result(struct template *t, size_t from)
{
	struct blocks *b = t->st->b;
	struct graph_body part = {b->out->items + from, b->out->n - from, 0};
	struct block_value v = t->st->in;
	bool reads_x = graph_first_use(&part, 0, "x") == GRAPH_READ;
	v.lengths = t->lengths.known ? NULL : t->lengths.tree->text;
	v.grows = v.grows || (reads_x && t->before.grows) || values_grow(b, &part);
	if (v.mixed_by == NULL && reads_x) {
		v.mixed = t->before.mixed;
		v.mixed_by = t->before.mixed_by;
	}
	if (t->mixes)
		mark_mixed(t->st, &v);
	set_x(b, &v);
	return probe_x(b, &t->before, &part);
}

bool template_run(struct step *st, const struct definition *def, const struct yaml_node *body)
{
	struct names names = {0};
	struct template t = {.st = st, .names = &names, .def = def, .before = st->b->x, .loc = st->loc};
	size_t from = st->b->out->n;
	strmap_init(&names.map, st->b->arena);
	t.lengths = st->in.lengths == NULL
	                    ? item_value((struct value){.kind = VALUE_NONE})
	                    : (struct item){.tree = graph_name(st->b, st->in.lengths, st->loc)};
	bool ok = bind_own(&t) &&
	          (def != NULL ? bind_definition(&t) : bind_arguments(&t, st->kind->kind, st->args, "")) &&
	          run_list(&t, body);
	temp_pop(st->b, t.temps);
	return ok && set_result(&t, from);
}
