/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traversal of stacks and steps: scopes, temporaries, paths, dispatch to the handlers of the kinds, outputs;
 * and the checks that still run after an error.
 * The path of a step, its ids from the root joined by dots with `{i}` for an index, names its parameters; two steps
 * may share one by `share` alone. `lengths` of a value names its real lengths, or NULL; `cut` is set where rows past
 * them may hold anything, so that value_ref() reads the value through mask_rows. A value grows if it depends on the
 * tokens of a generating model. has_x: there is a current value x.
 */
#include <string.h>

#include "frontend/lower/lower.h"
#include "frontend/lower/macro.h"
#include "frontend/lower/steps.h"
#include "ir/support/strmap.h"

/* ---- strings ---- */

const char *shape_to_string(struct expander *b, int rank, const struct ir_dim *const *dims)
{
	struct buf t;
	buf_init(&t);
	buf_char(&t, '[');
	for (int i = 0; i < rank; i++) {
		buf_str(&t, i > 0 ? ", " : "");
		ir_dim_print(&t, b->m->scope.dims, dims[i], false);
	}
	buf_char(&t, ']');
	const char *s = arena_strdup(b->arena, t.data);
	buf_destroy(&t);
	return s;
}

const char *path_join(struct expander *b, const char *prefix, const char *id)
{
	if (prefix[0] == '\0' || id[0] == '\0')
		return prefix[0] == '\0' ? id : prefix;
	return arena_printf(b->arena, "%s.%s", prefix, id);
}

bool is_loop_index(const struct expander *b, const char *name)
{
	const struct step_scope *s = b->scope;
	while (s != NULL && (s->def != NULL || strcmp(s->loop, name) != 0))
		s = s->outer;
	return s != NULL;
}

const char *fill_loop_indices(struct expander *b, const char *pattern)
{
	for (const struct step_scope *s = b->scope; s != NULL; s = s->outer)
		if (s->def == NULL)
			pattern = substitute_index(b->arena, pattern, s->loop,
			                           (struct index_map){0, s->value.i});
	return pattern;
}

bool push_value(const struct step *st, const char *target, const struct expr *value)
{
	return push_typed_assignment(st->b, (struct ir_loc){st->loc, st->path}, target, value);
}

void set_x(struct expander *b, const struct step_value *v)
{
	b->x = *v;
	b->x.name = "x";
	b->x.cut = NULL;
}

/* ---- temporaries ---- */

/* True if a temporary may not have this name: x, a name of the model's namespace, a value, a name that a graph
 * assigns, a live temporary, or an index. */
static bool name_is_used(struct expander *b, const char *name)
{
	if (strcmp(name, "x") == 0 || strmap_has(&b->m->scope.names, name) || strmap_has(&b->values, name) ||
	    strmap_has(&b->graph_names, name))
		return true;
	for (size_t i = 0; i < b->temps.n; i++) {
		if (strcmp(b->temps.items[i], name) == 0)
			return true;
	}
	return is_loop_index(b, name);
}

const char *temp_push(struct expander *b, const char *stem)
{
	const char *name = stem;
	for (int i = 2; name_is_used(b, name); i++)
		name = arena_printf(b->arena, "%s%d", stem, i);
	ARENA_ADD(b->arena, &b->temps, name);
	return name;
}

void temp_pop(struct expander *b, size_t n)
{
	b->temps.n -= n;
}

/* ---- errors ---- */

void note_use_chain(struct expander *b)
{
	for (const struct use_chain *c = b->noted ? NULL : b->chain; c != NULL; c = c->outer)
		diag_note(b->cx, c->loc, "in the use of '%s' here", c->name);
	b->noted = true;
}

bool step_error(const struct step *st, const char *key, enum diag_code code, const char *fmt, ...)
{
	const struct yaml_node *node = key == NULL ? NULL : step_arg(st, key);
	const char *text;
	ARENA_FROM_ARGS(text, st->b->arena, fmt);
	struct loc loc = node != NULL ? node->loc : st->loc;
	if (st->path[0] == '\0') /* of a whole graph */
		diag_error(st->b->cx, loc, code, "%s", text);
	else
		diag_error(st->b->cx, loc, code, "%s (step %s)", text, fill_loop_indices(st->b, st->path));
	return false;
}

void mark_mixing(struct step *st, struct step_value *v)
{
	if (!v->grows || v->mixed_by != NULL)
		return;
	v->mixed = st->loc;
	v->mixed_by = st->kind->kind;
}

/* ---- checks after an error ---- */

static void steps_check_remaining(struct expander *b, const struct yaml_node *steps, size_t from);

static void check_word(struct expander *b, const struct schema_key *key, const struct yaml_node *node)
{
	struct expr_env env = step_env(b, false);
	size_t n, word;
	const char *const *words = schema_words(b->arena, key, &n);
	if (words != NULL)
		(void)expr_read_word(&env, node, key->name, words, n, &word);
}

/* Evaluates an argument as its row in schema.def demands, for its reports alone. Types that refer to values are
 * not checked. */
static void check_argument(struct expander *b, const struct schema_key *key, const struct yaml_node *node)
{
	struct expr_env env = step_env(b, false);
	int64_t i;
	double f;
	bool flag;
	switch (key->type) {
	case KEY_INT: (void)expr_read_int(&env, node, key->name, &i); return;
	case KEY_FLOAT: (void)expr_read_float(&env, node, key->name, &f); return;
	case KEY_BOOL: (void)expr_read_bool(&env, node, key->name, &flag); return;
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

/* Checks the bodies of a compound step once; the index of a repeat is bound to 0, as mistakes in keys and types are
 * the same for every index. */
static void check_bodies(const struct step *st)
{
	const struct yaml_node *body = step_arg(st, "body"), *branches = step_arg(st, "branches"),
	                       *as = step_arg(st, "as");
	bool repeats = strcmp(st->kind->kind, "repeat") == 0;
	struct step_scope scope = {.outer = st->b->scope, .loop = "i", .value = value_int(0)};
	if (as != NULL && as->kind == YAML_SCALAR)
		scope.loop = as->text;
	st->b->scope = repeats ? &scope : scope.outer;
	steps_check_remaining(st->b, body, 0);
	for (size_t i = 0; branches != NULL && branches->kind == YAML_SEQUENCE && i < branches->n; i++)
		steps_check_remaining(st->b, branches->items[i], 0);
	st->b->scope = scope.outer;
}

/* Checks kind, keys and types of arguments of a step whose input type is unknown, since a step before it failed.
 * Checks that need shapes are skipped: they would only repeat the first error. A step whose `when` is false or wrong
 * is not checked further. */
static void check_step(struct step *st)
{
	struct expr_env env = step_env(st->b, false);
	bool when = true;
	if (step_arg(st, "when") != NULL &&
	    (!expr_read_bool(&env, step_arg(st, "when"), "when", &when) || !when))
		return;
	for (size_t i = 0; i < st->args->n; i++) {
		const struct yaml_pair *p = &st->args->pairs[i];
		const struct schema_key *key = schema_find_key(st->kind->kind, p->key->text);
		if (key != NULL)
			check_argument(st->b, key, p->value);
	}
	check_bodies(st);
}

/* Checks the steps from index `from` on and those in their bodies, so that mistakes of a file are reported in one
 * run. Not in a graph, whose entries are statements. */
static void steps_check_remaining(struct expander *b, const struct yaml_node *steps, size_t from)
{
	for (size_t i = from;
	     steps != NULL && steps->kind == YAML_SEQUENCE && b->graph == NULL && i < steps->n; i++) {
		struct step st;
		if (read_step(b, steps->items[i], &st))
			check_step(&st);
	}
}

void steps_check(struct frontend_model *m)
{
	struct expander b = {.m = m, .arena = &m->arena, .cx = m->cx, .out = &m->graph, .prefix = ""};
	const struct yaml_node *model = model_section(m, "model");
	steps_check_remaining(&b, model, 0);
	for (size_t i = 0; model != NULL && model->kind == YAML_MAPPING && i < model->n; i++)
		steps_check_remaining(&b, yaml_find(model->pairs[i].value, "body"), 0);
}

/* ---- steps ---- */

static const struct {
	const char *kind;
	step_handler *run;
} handlers[] = {
        {"residual", step_residual}, {"repeat", step_repeat}, {"save", step_save}, {"x", step_x},
        {"use", step_use},           {"graph", step_graph},
};

/* Runs the handler of the kind, else expands its definition in the model, else its body in the prelude. */
static bool run_step_kind(struct step *st)
{
	const struct yaml_node *body = yaml_find(st->b->prelude, st->kind->kind);
	for (size_t i = 0; i < TFMC_COUNT(handlers); i++) {
		if (strcmp(handlers[i].kind, st->kind->kind) == 0)
			return handlers[i].run(st);
	}
	if (st->def != NULL)
		return use_definition(st, st->def);
	if (body != NULL)
		return macro_expand(st, NULL, body);
	return step_error(st, NULL, DIAG_UNSUPPORTED, "not supported yet: %s", st->kind->kind);
}

static void report_unknown_step(struct expander *b, const struct yaml_node *key)
{
	size_t n;
	const char *const *kinds = schema_step_kinds(b->arena, &n);
	yaml_unknown_key(b->cx, key, kinds, n, "a list of steps");
}

/* The schema row of a kind (`now`: it is implemented). For a definition of the model that is not a function, *def is
 * set and a row is made: its main argument is the first one, and only a body of statements has parameters at the
 * step's own path. NULL: unknown kind. */
static const struct schema_step *find_step_kind(struct expander *b, const char *name,
                                                const struct definition **def)
{
	const struct schema_step *row = schema_find_step(name);
	struct schema_step *own = ARENA_NEW(b->arena, struct schema_step);
	*def = row == NULL ? model_find_definition(&b->m->definitions, name) : NULL;
	if (*def == NULL || (*def)->function || own == NULL)
		return row;
	*own = (struct schema_step){.kind = (*def)->name,
	                            .main = (*def)->n_args > 0 ? (*def)->args[0].name : "",
	                            .params = (*def)->statements,
	                            .now = true};
	return own;
}

/* Finds the pair of a step whose key is its kind; NULL after a report. A step has one kind; only `body` and
 * `branches` may stand next to it. `use` is exempt, as the arguments of the definition may stand next to it. */
static const struct yaml_pair *find_kind_key(struct expander *b, const struct yaml_node *node)
{
	const struct definition *def;
	const struct yaml_pair *found = yaml_find_pair(node, "use");
	for (size_t i = 0; found == NULL && i < node->n; i++) {
		const char *key = node->pairs[i].key->text;
		if (strcmp(key, "body") != 0 && strcmp(key, "branches") != 0)
			found = &node->pairs[i];
	}
	if (found == NULL || find_step_kind(b, found->key->text, &def) == NULL) {
		if (found != NULL)
			report_unknown_step(b, found->key);
		else
			diag_error(b->cx, node->loc, DIAG_MISSING, "a step needs a kind");
		return NULL;
	}
	for (size_t i = 0; strcmp(found->key->text, "use") != 0 && i < node->n; i++) {
		const struct yaml_pair *p = &node->pairs[i];
		bool is_body_key = strcmp(p->key->text, "body") == 0 || strcmp(p->key->text, "branches") == 0;
		if (p == found || is_body_key)
			continue;
		diag_error(b->cx, found->key->loc, DIAG_REFUSED,
		           "'%s' has '%s' next to it; a step has one kind, its arguments belong into {...}",
		           found->key->text, p->key->text);
		return NULL;
	}
	return found;
}

/* Enters the path of a step with parameters. Two steps with parameters of their own may not have the same path,
   unless they are iterations of a shared repeat, whose first one has claimed it (paths_claimed). False after a
   report. */
static bool claim_path(struct step *st)
{
	struct expander *b = st->b;
	if (st->kind->params)
		strmap_set(&b->paths, fill_loop_indices(b, st->params), b);
	if (!st->kind->params || b->paths_claimed || step_arg(st, "share") != NULL)
		return true;
	const char *path = fill_loop_indices(b, st->path);
	const struct loc *old = strmap_get(&b->owned, path);
	if (old != NULL) {
		diag_error(b->cx, st->loc, DIAG_DUPLICATE_PATH, "two steps have the path '%s'; give them ids",
		           path);
		diag_note(b->cx, *old, "the first one is here");
		return false;
	}
	struct loc *loc = ARENA_NEW(b->arena, struct loc);
	if (loc == NULL)
		return false;
	*loc = st->loc;
	return strmap_set(&b->owned, path, loc);
}

/* Sets path and parameter path of a step from `id` (default: its kind) and `share`, the path of the step whose
 * parameters it uses. A bare `use` adds no component, so that its steps are those of the body around it. */
static bool set_path(struct step *st)
{
	struct expander *b = st->b;
	const struct yaml_node *id = step_arg(st, "id");
	if (id != NULL) {
		if (id->kind != YAML_SCALAR || !expr_is_name(id->text)) {
			diag_error(b->cx, id->loc, DIAG_NAME,
			           "an id is letters, digits and underscores, found %s",
			           yaml_describe(b->arena, id));
			return false;
		}
		st->path = path_join(b, b->prefix, id->text);
	}
	bool plain = strcmp(st->kind->kind, "use") == 0 && id == NULL;
	if (plain) /* adds no component to the path */
		st->path = b->prefix;
	st->params = st->path;
	bool shares = strcmp(st->kind->kind, "repeat") != 0; /* in repeat, `share` is a bool */
	return (!shares || path_of_node(st, step_arg(st, "share"), "share", &st->params)) && claim_path(st);
}

/* Evaluates `when`, path and `from` of a step, then runs its handler. */
static bool run_step(struct step *st)
{
	struct expander *b = st->b;
	bool when = true; /* a step that is left out claims no path and needs no input */
	struct expr_env env = step_env(b, false);
	st->path = path_join(b, b->prefix, st->kind->kind);
	if (step_arg(st, "when") != NULL && !expr_read_bool(&env, step_arg(st, "when"), "when", &when))
		return false;
	if (!when)
		return true;
	if (++b->n_steps > MODEL_STEPS_MAX)
		return step_error(st, NULL, DIAG_LIMIT, "more than %d steps after expansion",
		                  MODEL_STEPS_MAX);
	if (!set_path(st))
		return false;
	st->in = b->x;
	const struct yaml_node *from = step_arg(st, "from");
	if (from != NULL && !find_named_value(b, from, &st->in))
		return false;
	if (from == NULL && !b->has_x)
		return step_error(st, NULL, DIAG_UNKNOWN_VALUE, "there is no current value yet");
	return run_step_kind(st);
}

/* A step is a bare word, its kind, or a mapping with its kind as a key. In a graph the only mapping is a repeat.
 * Arguments are checked against the definition or the schema row of the kind; step_use() checks those of `use`. */
bool read_step(struct expander *b, const struct yaml_node *node, struct step *st)
{
	static const struct yaml_node nothing = {.kind = YAML_MAPPING};
	const struct yaml_node *value = NULL;
	*st = (struct step){.b = b, .loc = node->loc};
	if (node->kind == YAML_SCALAR) {
		st->kind = find_step_kind(b, node->text, &st->def);
		if (st->kind == NULL) {
			report_unknown_step(b, node);
			return false;
		}
	} else {
		if (!yaml_expect(b->cx, node, YAML_MAPPING, "a step"))
			return false;
		const struct yaml_pair *pair = find_kind_key(b, node);
		if (pair == NULL)
			return false;
		if (b->graph != NULL && strcmp(pair->key->text, "repeat") != 0) {
			diag_error(b->cx, pair->key->loc, DIAG_STATEMENT,
			           "a graph has statements and repeats, found '%s'", pair->key->text);
			return false;
		}
		st->kind = find_step_kind(b, pair->key->text, &st->def);
		st->loc = pair->key->loc;
		value = pair->value;
	}
	if (!st->kind->now) {
		diag_error(b->cx, st->loc, DIAG_UNSUPPORTED, "not supported yet: %s", st->kind->kind);
		return false;
	}
	st->args = merge_args(b, st->kind, node->kind == YAML_MAPPING ? node : &nothing, value);
	if (st->args == NULL)
		return false;
	if (st->args->loc.line == 0) /* no argument is written: errors point at the kind */
		((struct yaml_node *)(uintptr_t)st->args)->loc = st->loc;
	if (st->def != NULL)
		return check_use(st, st->def);
	return strcmp(st->kind->kind, "use") == 0 ||
	       schema_check(b->arena, b->cx, st->args, st->kind->kind, "step",
	                    arena_printf(b->arena, "step '%s'", st->kind->kind));
}

/* After a step that failed the remaining ones are checked as far as their types are not needed. */
bool expand_body(struct expander *b, const struct yaml_node *steps)
{
	if (!yaml_expect(b->cx, steps, YAML_SEQUENCE, "a body"))
		return false;
	for (size_t i = 0; i < steps->n; i++) {
		const struct yaml_node *node = steps->items[i];
		struct step st;
		bool ok = b->graph != NULL && node->kind == YAML_SCALAR
		                  ? expand_graph_statement(b, node)
		                  : read_step(b, node, &st) && run_step(&st);
		if (!ok) {
			note_use_chain(b);
			steps_check_remaining(b, steps, i + 1);
			return false;
		}
	}
	return true;
}

/* ---- stacks and outputs ---- */

static bool add_value(struct expander *b, const char *name, const struct step_value *v)
{
	struct step_value *copy = ARENA_NEW(b->arena, struct step_value);
	if (copy == NULL)
		return false;
	*copy = *v;
	return strmap_set(&b->values, name, copy);
}

/* Declares the inputs as values: the tokens of a generating model grow; rows past the lengths of an input read as 0
 * (cut), as a caller may leave anything there. */
static void declare_inputs(struct expander *b)
{
	const struct frontend_model *m = b->m;
	for (size_t i = 0; i < m->inputs.n; i++) {
		const struct frontend_input *in = &m->inputs.items[i];
		struct step_value v = {
		        .name = in->name, .dtype = in->dtype, .rank = in->rank, .lengths = in->lengths};
		memcpy(v.dims, in->dims, sizeof(v.dims));
		v.grows = m->tokens == (int)i;
		v.input = (int)i + 1;
		v.cut = v.lengths;
		add_value(b, in->name, &v);
	}
}

/* Appends x = v and makes v the input of the stack. */
static bool start_stack(struct expander *b, const struct step_value *v, struct loc loc, const char *path)
{
	b->start = *v;
	b->has_x = true;
	set_x(b, v);
	return push_typed_assignment(b, (struct ir_loc){loc, path}, "x", value_ref(b, v, loc));
}

/* Expands one stack: its input becomes x, its result a value with the name of the stack. `lengths` replaces the
 * lengths of the input, `none` removes them. */
static bool expand_stack(struct expander *b, const struct yaml_pair *pair)
{
	const struct yaml_node *spec = pair->value;
	const char *name = pair->key->text;
	struct step_value v;
	if (!model_declare(&b->m->scope, name, "stack", pair->key->loc) ||
	    !yaml_expect(b->cx, spec, YAML_MAPPING, "a stack") ||
	    !schema_check(b->arena, b->cx, spec, "stack", NULL, "a stack"))
		return false;
	if (strcmp(name, "x") == 0 || strcmp(name, "none") == 0) {
		diag_error(b->cx, pair->key->loc, DIAG_NAME,
		           "'%s' is a word of the language; a stack needs another name", name);
		return false;
	}
	b->has_x = false; /* the x of the stack before is not visible */
	if (!find_named_value(b, yaml_find(spec, "input"), &v))
		return false;
	const struct yaml_node *lengths = yaml_find(spec, "lengths");
	struct step_value len = {.lengths = NULL};
	if (lengths != NULL && !yaml_is(lengths, "none") && !find_named_value(b, lengths, &len))
		return false;
	if (lengths != NULL) { /* `none`: NULL */
		v.lengths = len.name;
		v.cut = len.name;
	}
	b->prefix = name;
	if (!start_stack(b, &v, pair->key->loc, name) || !expand_body(b, yaml_find(spec, "body")))
		return false;
	v = b->x;
	v.name = name;
	return push_typed_assignment(b, (struct ir_loc){pair->key->loc, name}, name,
	                             name_tree(b, "x", pair->key->loc)) &&
	       add_value(b, name, &v);
}

/* A list of steps begins with the first input that is not the lengths of another one. */
static bool expand_step_list(struct expander *b, const struct yaml_node *steps)
{
	for (size_t i = 0; i < b->m->inputs.n; i++) {
		const struct frontend_input *in = &b->m->inputs.items[i];
		if (in->measures >= 0)
			continue;
		const struct step_value *v = strmap_get(&b->values, in->name);
		return v != NULL && start_stack(b, v, in->loc, "") && expand_body(b, steps);
	}
	diag_error(b->cx, model_section(b->m, "inputs")->loc, DIAG_MISSING, "no input starts the model");
	return false;
}

/* Appends the value of an output under a free name, which is its own or NAME_out where a value has that. Checks that
   logits of a generating model depend on the tokens, and that no step mixed positions on the way: with a cache each
   call computes new positions alone. */
static bool expand_output(struct expander *b, struct model_output *o)
{
	struct step_value v;
	const struct yaml_node *node = yaml_find(model_section(b->m, "outputs"), o->name);
	if (!find_named_value(b, node, &v))
		return false;
	bool logits = b->m->tokens >= 0 && strcmp(o->name, b->m->generate.logits) == 0;
	if (logits && v.mixed_by != NULL) {
		diag_error(b->cx, v.mixed, DIAG_GENERATE,
		           "'%s' between tokens and logits of a generating model: only steps that treat each "
		           "position alone, causal attention and cross-attention are possible",
		           v.mixed_by);
		return false;
	}
	if (logits && (!v.grows || v.rank != 3)) {
		diag_error(b->cx, o->loc, DIAG_GENERATE,
		           "logits must depend on tokens and have the shape [B, S, vocab], found %s",
		           shape_to_string(b, v.rank, v.dims));
		return false;
	}
	const char *name = name_is_used(b, o->name) ? temp_push(b, arena_printf(b->arena, "%s_out", o->name))
	                                            : temp_push(b, o->name);
	v.cut = v.lengths; /* steps leave anything in rows past the length; an output has 0 there */
	o->value = name;
	o->lengths = v.lengths;
	return push_assignment(b, (struct ir_loc){o->loc, NULL}, name, value_ref(b, &v, o->loc));
}

/* Checks that every key of `defaults` is a kind of step with known arguments; those of a kind that is not implemented
 * are not checked, as the step itself is rejected. */
static bool check_defaults(struct expander *b)
{
	const struct yaml_node *defaults = model_section(b->m, "defaults");
	bool ok = true;
	if (defaults == NULL)
		return true;
	if (!yaml_expect(b->cx, defaults, YAML_MAPPING, "defaults"))
		return false;
	for (size_t i = 0; i < defaults->n; i++) {
		const struct yaml_pair *p = &defaults->pairs[i];
		const struct schema_step *kind = schema_find_step(p->key->text);
		if (kind == NULL)
			report_unknown_step(b, p->key);
		if (kind == NULL || !yaml_expect(b->cx, p->value, YAML_MAPPING, "defaults of a kind")) {
			ok = false;
			continue;
		}
		ok = schema_check_present(b->arena, b->cx, p->value, kind->now ? kind->kind : NULL, "step",
		                          arena_printf(b->arena, "step '%s'", kind->kind)) &&
		     ok;
	}
	return ok;
}

/* Expands the section `model`: a list of steps, whose x an output may name, or a mapping of stacks, whose results have
 * the names of the stacks. The stacks after a wrong one are still checked. False after a report. */
static bool expand_model(struct expander *b, const struct yaml_node *model)
{
	if (model->kind == YAML_SEQUENCE)
		return expand_step_list(b, model);
	bool ok = yaml_expect(b->cx, model, YAML_MAPPING, "model");
	if (!ok)
		return false;
	for (size_t i = 0; i < model->n; i++) {
		if (ok)
			ok = expand_stack(b, &model->pairs[i]);
		else
			steps_check_remaining(b, yaml_find(model->pairs[i].value, "body"), 0);
	}
	b->has_x = false;
	return ok;
}

/* Checks that every tied path belongs to a step with parameters or to a part of one (`layers.0.ffn.up`). */
static bool check_ties(struct expander *b)
{
	bool ok = true;
	const char **names = ARENA_ARRAY(b->arena, const char *, b->paths.n + 1);
	for (size_t i = 0; names != NULL && i < b->paths.n; i++)
		names[i] = b->paths.items[i].key;
	for (size_t i = 0; i < b->ties.n; i++) {
		const char *path = b->ties.items[i].key;
		const char *dot = strrchr(path, '.');
		if (strmap_has(&b->paths, path) ||
		    (dot != NULL &&
		     strmap_has(&b->paths, arena_strndup(b->arena, path, (size_t)(dot - path)))))
			continue;
		diag_error(b->cx, *(const struct loc *)b->ties.items[i].value, DIAG_UNKNOWN_PATH,
		           "no step has parameters at the path '%s'%s", path,
		           did_you_mean(b->arena, path, names, names == NULL ? 0 : b->paths.n));
		ok = false;
	}
	return ok;
}

/* Parses the bodies of the built-in kinds. */
static bool read_prelude(struct expander *b)
{
	extern const unsigned char preset_prelude[];
	const char *text = (const char *)preset_prelude;
	strmap_init(&b->parsed, b->arena);
	strmap_init(&b->statements, b->arena);
	return yaml_parse(b->arena, b->cx, "prelude", text, strlen(text), false, &b->prelude) == TFMC_OK;
}

bool steps_expand(struct frontend_model *m)
{
	struct expander b = {.m = m, .arena = &m->arena, .cx = m->cx, .out = &m->graph, .prefix = ""};
	const struct yaml_node *model = model_section(m, "model");
	if (model == NULL)
		return expand_graph_model(m);
	strmap_init(&b.values, &m->arena);
	strmap_init(&b.owned, &m->arena);
	strmap_init(&b.paths, &m->arena);
	strmap_init(&b.ties, &m->arena);
	strmap_init(&b.biased, &m->arena);
	strmap_init(&b.graph_names, &m->arena);
	declare_inputs(&b);
	b.types = lower_begin_inference(m);
	bool ok = b.types != NULL && read_prelude(&b) && check_defaults(&b) && expand_model(&b, model);
	lower_end_inference(b.types); /* outputs are names of values and need no types inferred */
	if (!ok)
		return false;
	b.prefix = "";
	for (size_t i = 0; i < m->outputs.n; i++)
		ok = expand_output(&b, &m->outputs.items[i]) && ok;
	return check_ties(&b) && ok;
}
