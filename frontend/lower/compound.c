/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps with bodies of steps (residual, repeat, use) and steps that name values (save, x). A repeat expands its
 * body for every index, since `when` and expressions may depend on it, and rolls consecutive iterations that are
 * equal, or equal to those a period before, into one loop of the graph level.
 * b->x is the current value while steps are expanded; names that temp_push() gives are unused names of the graph.
 */
#include <string.h>

#include "frontend/lower/macro.h"
#include "ir/support/strmap.h"

/* Dims are interned, so that equal ones are the same pointer. */
static bool same_type(const struct step_value *a, const struct step_value *b)
{
	bool same = a->rank == b->rank && a->dtype == b->dtype;
	for (int i = 0; same && i < a->rank; i++)
		same = a->dims[i] == b->dims[i];
	return same;
}

/* ---- residual ---- */

/* Expands a body whose paths are below the path of `st`, starting from x, which is its result, too. */
static bool expand_steps_under(struct step *st, const struct yaml_node *steps)
{
	struct expander *b = st->b;
	const char *prefix = b->prefix;
	b->prefix = st->path;
	bool ok = expand_body(b, steps);
	b->prefix = prefix;
	return ok;
}

/* The expression l op r; l itself without memory. */
static const struct expr *binary_tree(struct expander *b, enum expr_op op, const struct expr *l,
                                      const struct expr *r)
{
	struct expr *e = ARENA_NEW(b->arena, struct expr);
	const struct expr **args = ARENA_ARRAY(b->arena, const struct expr *, 2);
	if (e == NULL || args == NULL)
		return l;
	args[0] = l;
	args[1] = r;
	*e = (struct expr){.kind = EX_BINARY, .op = op, .loc = l->loc, .n_args = 2, .args = args};
	return e;
}

static bool push_name(const struct step *st, const char *target, const char *name)
{
	return push_value(st, target, name_tree(st->b, name, st->loc));
}

bool start_from_input(struct step *st)
{
	bool ok = step_arg(st, "from") == NULL || push_value(st, "x", value_ref(st->b, &st->in, st->loc));
	set_x(st->b, &st->in);
	return ok;
}

/* x = r + scale * x, where r is the input of the residual and base its type. False after a report if the body changed
 * the type, since the sum does not broadcast. */
static bool add_residual(struct step *st, const struct step_value *base, const char *r)
{
	struct expander *b = st->b;
	struct value scale;
	if (!step_arg_value(st, "scale", &scale))
		return false;
	if (!same_type(base, &b->x))
		return step_error(st, NULL, DIAG_SHAPE, "residual adds %s to %s",
		                  shape_to_string(b, b->x.rank, b->x.dims),
		                  shape_to_string(b, base->rank, base->dims));
	const struct expr *x = name_tree(b, "x", st->loc);
	if (scale.f != 1.0)
		x = binary_tree(b, EXPR_MUL, x, expr_of_value(b->arena, &scale, st->loc));
	return push_value(st, "x", binary_tree(b, EXPR_ADD, name_tree(b, r, st->loc), x));
}

/* x = sum of the branches, each applied to the same input y. Before the first branch x is y already. */
static bool expand_branches(struct step *st, const struct yaml_node *list)
{
	struct expander *b = st->b;
	struct step_value y = b->x;
	const char *in = temp_push(b, "y"), *sum = temp_push(b, "s");
	bool ok = yaml_expect(b->cx, list, YAML_SEQUENCE, "branches") &&
	          (list->n > 0 ||
	           step_error(st, "branches", DIAG_MISSING, "'branches' needs at least one body")) &&
	          push_name(st, in, "x");
	for (size_t i = 0; ok && i < list->n; i++) {
		b->x = y;
		ok = (i == 0 || push_name(st, "x", in)) && expand_steps_under(st, list->items[i]);
		if (ok && i > 0)
			ok = push_value(st, sum,
			                binary_tree(b, EXPR_ADD, name_tree(b, sum, st->loc),
			                            name_tree(b, "x", st->loc)));
		else if (ok)
			ok = push_name(st, sum, "x");
		if (ok && !same_type(&y, &b->x))
			ok = step_error(st, NULL, DIAG_SHAPE, "a branch gives %s for %s",
			                shape_to_string(b, b->x.rank, b->x.dims),
			                shape_to_string(b, y.rank, y.dims));
	}
	ok = ok && push_name(st, "x", sum);
	temp_pop(b, 2);
	return ok;
}

/* x = in + scale * body(in), or with branches in + scale * their sum. The input is kept in r, since the body assigns
 * x; its rows past the length are masked by value_ref() once. */
bool step_residual(struct step *st)
{
	struct expander *b = st->b;
	const struct yaml_node *body = step_arg(st, "body"), *list = step_arg(st, "branches");
	struct step_value base = st->in;
	if (body == NULL && list == NULL)
		return step_error(st, NULL, DIAG_MISSING, "residual needs 'body' or 'branches'");
	const char *r = temp_push(b, "r");
	bool ok = push_value(st, r, value_ref(b, &st->in, st->loc)) &&
	          (step_arg(st, "from") == NULL || push_name(st, "x", r));
	set_x(b, &st->in);
	ok = ok && (body == NULL || expand_steps_under(st, body)) &&
	     (list == NULL || expand_branches(st, list)) && add_residual(st, &base, r);
	temp_pop(b, 1);
	/* the sum has the rows of the input, also if the body does not report lengths */
	if (b->x.lengths == NULL)
		b->x.lengths = base.lengths;
	return ok;
}

/* ---- repeat ---- */

struct iterations {
	const char *as;
	int64_t start, count;
	bool share;
	struct step_value before; /* x before the first */
	struct graph_body *body;
	struct step_value *out; /* x after each iteration */
};

/* Expands the body for index start + k into its own graph body. Its path has `{i}` in place of the number (none if
 * the iterations share their parameters), so that equal iterations compare equal in roll_iterations(). */
static bool expand_iteration(struct step *st, const struct iterations *r, int64_t k)
{
	struct expander *b = st->b;
	struct step_scope scope = {.outer = b->scope, .loop = r->as, .value = value_int(r->start + k)};
	struct graph_body *out = b->out;
	const char *prefix = b->prefix;
	bool paths_claimed = b->paths_claimed;
	b->scope = &scope;
	b->out = &r->body[k];
	/* with `share` all iterations have the paths of the first, which has claimed them (claim_path) */
	b->paths_claimed = paths_claimed || (r->share && k > 0);
	b->prefix = r->share ? st->path : arena_printf(b->arena, "%s.{%s}", st->path, r->as);
	bool ok = expand_body(b, step_arg(st, "body"));
	b->scope = scope.outer;
	b->out = out;
	b->paths_claimed = paths_claimed;
	b->prefix = prefix;
	r->out[k] = b->x;
	return ok;
}

/* graph_alike_fn: iterations i and j have equal bodies, and x has the same type before both, as a loop carries x. */
static bool are_equal_iterations(void *user, int64_t i, int64_t j)
{
	const struct iterations *r = user;
	return same_type(&r->out[i - 1], j > 0 ? &r->out[j - 1] : &r->before) &&
	       graph_equal(&r->body[i], &r->body[j]);
}

/* Rolls runs of equal iterations, and runs that are periodic, into loops: greedily, the longest run from each
 * iteration on (graph_longest_run). graph_push_iterations() marks each loop as a part of the repeat. */
static bool roll_iterations(struct step *st, struct iterations *r)
{
	struct expander *b = st->b;
	const struct graph_node all = {.loc = {st->loc, st->path}, .start = r->start, .as = r->as};
	for (int64_t from = 0, n, period; from < r->count; from += n) {
		n = graph_longest_run(are_equal_iterations, r, r->count, from, &period);
		if (!graph_push_iterations(b->arena, &all, r->body, from, from + n, period, b->out))
			return false;
		bool is_whole = n == r->count && !(b->graph != NULL && r->start > 0);
		/* Names of weights have the range of indices, so that those of other parts differ; not of the whole.
		 * A repeat of a graph with another start may itself be a part, as expand writes them. */
		if (is_whole && n > 1)
			b->out->items[b->out->n - 1]->is_part = false;
	}
	return true;
}

/* Checks count, and that the index hides no other name: an expression of the body could mean either. */
static bool check_repeat(struct step *st, const struct iterations *r)
{
	struct expander *b = st->b;
	if (r->count > MODEL_REPEAT_MAX)
		return step_error(st, "count", DIAG_LIMIT, "count is %lld, at most %d is possible",
		                  (long long)r->count, MODEL_REPEAT_MAX);
	const char *old = strmap_get(&b->m->scope.names, r->as);
	if (old == NULL && strmap_has(&b->values, r->as))
		old = "a value";
	if (old == NULL && b->graph != NULL && b->graph->results != NULL &&
	    find_binding(b->graph, r->as) != NULL)
		old = "an argument or a name of the function";
	if (old == NULL && is_loop_index(b, r->as))
		old = "an outer index";
	if (old != NULL)
		return step_error(st, "as", DIAG_NAME_CLASH,
		                  "the index '%s' has the name of %s; give another one with 'as'", r->as,
		                  old);
	return true;
}

/* Expands the body for each index start .. start + count - 1, as `when` and expressions may depend on it, then rolls
 * equal iterations into loops. Of count 0 the input stays. */
bool step_repeat(struct step *st)
{
	struct expander *b = st->b;
	struct iterations r = {.as = "i"};
	const struct yaml_node *as = step_arg(st, "as");
	struct value count, start, share; /* in repeat, `share` is a bool */
	if (!step_arg_value(st, "count", &count) || !step_arg_value(st, "start", &start) ||
	    !step_arg_value(st, "share", &share))
		return false;
	r.count = count.i;
	r.start = start.i;
	r.share = share.b;
	if (as != NULL) {
		if (as->kind != YAML_SCALAR || !expr_is_name(as->text))
			return step_error(st, "as", DIAG_NAME, "the index needs a name");
		r.as = as->text;
	}
	if (!check_repeat(st, &r))
		return false;
	r.before = st->in;
	if (!start_from_input(st))
		return false;
	r.body = ARENA_ARRAY(b->arena, struct graph_body, r.count);
	r.out = ARENA_ARRAY(b->arena, struct step_value, r.count);
	if ((r.body == NULL || r.out == NULL) && r.count > 0)
		return false;
	for (int64_t k = 0; k < r.count; k++) {
		if (!expand_iteration(st, &r, k))
			return false;
	}
	return roll_iterations(st, &r);
}

/* ---- use ---- */

/* Keys that every step has (id, when, from, share), which are not arguments of the definition. */
static bool is_step_key(const struct step *st, const struct definition *d, const char *key)
{
	const struct schema_key *own = schema_find_key("step", key);
	return (st->def == NULL && strcmp(key, "name") == 0) ||
	       (own != NULL && (d->statements || strcmp(key, "share") != 0));
}

/* Matches the keys of the step as named arguments, without those that every step has. */
bool check_use(struct step *st, const struct definition *d)
{
	struct arena *a = st->b->arena;
	const struct signature_use use = {a, st->b->cx, st->loc, NULL};
	const struct signature signature = definition_signature(d);
	struct given_argument *given = ARENA_ARRAY(a, struct given_argument, st->args->n + 1);
	const void **values = ARENA_ARRAY(a, const void *, d->n_args + 1);
	size_t n = 0;
	for (size_t i = 0; given != NULL && i < st->args->n; i++) {
		const struct yaml_pair *p = &st->args->pairs[i];
		if (!is_step_key(st, d, p->key->text))
			given[n++] = (struct given_argument){p->key->text, p->key->loc, p->value};
	}
	return given != NULL && values != NULL && signature_match(&use, &signature, given, n, values);
}

/* The definition that a step `use` names; NULL after a report. A function has no input x, and is not used as a step. */
static const struct definition *find_used_definition(struct step *st, const struct yaml_node *name)
{
	struct expander *b = st->b;
	if (name == NULL)
		step_error(st, NULL, DIAG_MISSING, "'use' needs the name of a definition");
	if (name == NULL || !yaml_expect(b->cx, name, YAML_SCALAR, "use"))
		return NULL;
	const struct definition *d = model_find_definition(&b->m->definitions, name->text);
	const char **names = ARENA_ARRAY(b->arena, const char *, b->m->definitions.n);
	for (size_t i = 0; names != NULL && i < b->m->definitions.n; i++)
		names[i] = b->m->definitions.items[i].name;
	if (d == NULL)
		step_error(
		        st, "name", DIAG_UNKNOWN_NAME, "no definition is called '%s'%s", name->text,
		        did_you_mean(b->arena, name->text, names, names == NULL ? 0 : b->m->definitions.n));
	else if (d->function)
		step_error(st, "name", DIAG_ARGUMENTS, "'%s' is a function; use it in a graph statement",
		           name->text);
	else
		return d;
	return NULL;
}

bool step_use(struct step *st)
{
	const struct definition *d = find_used_definition(st, step_arg(st, "name"));
	return d != NULL && check_use(st, d) && use_definition(st, d);
}

bool use_definition(struct step *st, const struct definition *d)
{
	struct expander *b = st->b;
	for (const struct use_chain *c = b->chain; c != NULL; c = c->outer) {
		if (strcmp(c->name, d->name) == 0)
			return step_error(st, NULL, DIAG_CYCLE, "the definition '%s' uses itself", d->name);
	}
	struct use_chain link = {b->chain, d->name, st->loc};
	struct step_scope scope = {.outer = b->scope, .def = d, .args = st->args};
	if (!d->statements && !start_from_input(st)) /* statements read their input by the name `in` */
		return false;
	b->has_x = true; /* the input may come from `from` where there was no x yet */
	b->chain = &link;
	b->scope = &scope;
	bool ok = d->statements ? macro_expand(st, d, d->body) : expand_steps_under(st, d->body);
	if (!ok)
		note_use_chain(b);
	b->chain = link.outer;
	b->scope = scope.outer;
	return ok;
}

/* ---- save, x ---- */

/* Names the input of the step. Inside a repeat the name must contain every index, so that no iteration overwrites
 * a value. */
bool step_save(struct step *st)
{
	struct expander *b = st->b;
	const struct yaml_node *node = step_arg(st, "name");
	if (!yaml_expect(b->cx, node, YAML_SCALAR, "save"))
		return false;
	const char *name = fill_loop_indices(b, node->text);
	for (const struct step_scope *s = b->scope; s != NULL; s = s->outer) {
		if (s->def == NULL && !has_index(b->arena, node->text, s->loop))
			return step_error(st, "name", DIAG_NAME,
			                  "a value saved inside a repeat needs '{%s}' in its name", s->loop);
	}
	if (strcmp(name, "x") == 0 || strcmp(name, "none") == 0)
		return step_error(st, "name", DIAG_NAME,
		                  "'%s' is a word of the language; the value needs another name", name);
	if (!model_declare(&b->m->scope, name, "saved value", node->loc))
		return false;
	struct step_value *v = ARENA_NEW(b->arena, struct step_value);
	if (v == NULL)
		return false;
	*v = st->in;
	v->name = name;
	v->cut = NULL; /* value_ref() masks the rows here, once */
	if (!push_value(st, name, value_ref(b, &st->in, st->loc)))
		return false;
	return strmap_set(&b->values, name, v);
}

/* Makes a named value the current one. */
bool step_x(struct step *st)
{
	struct step_value v;
	if (!find_named_value(st->b, step_arg(st, "name"), &v) ||
	    !push_value(st, "x", value_ref(st->b, &v, st->loc)))
		return false;
	set_x(st->b, &v);
	return true;
}
