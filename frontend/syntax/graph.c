/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of the graph level: construction, comparison, rewriting of expression trees, substitution of indices,
 * splitting of repeats.
 * A body is a list of nodes, statements and repeats. A repeat has an index `as`, which strings and paths of its body
 * contain as a placeholder {i} or {2*i+1}; a map is such a form, factor and offset. Before each of its split points a
 * repeat becomes a new one, as the iterations differ there.
 */
#include <string.h>

#include "frontend/syntax/graph.h"
#include "ir/support/number.h"

/* Appends a node, which a repeat gets with split points of its own. Without memory the new place in the list is
 * removed again, so that no list has a NULL. */
struct graph_node *graph_push(struct arena *a, struct graph_body *body, enum graph_kind kind,
                              struct ir_loc loc)
{
	struct graph_node **slot = ARENA_PUSH(a, body);
	struct graph_node *node = ARENA_NEW(a, struct graph_node);
	if (slot == NULL || node == NULL) {
		body->n -= slot != NULL;
		return NULL;
	}
	*slot = node;
	node->kind = kind;
	node->loc = loc;
	if (kind == GRAPH_REPEAT)
		node->split_points = ARENA_NEW(a, struct graph_split_points);
	return kind == GRAPH_REPEAT && node->split_points == NULL ? NULL : node;
}

bool graph_push_statement(struct arena *a, struct graph_body *body, struct ir_loc loc,
                          const struct expr_statement *st)
{
	struct graph_node *node = st == NULL ? NULL : graph_push(a, body, GRAPH_STATEMENT, loc);
	if (node != NULL)
		node->st = st;
	return node != NULL;
}

bool graph_push_assignment(struct arena *a, struct graph_body *body, struct ir_loc loc,
                           const char *const *targets, size_t n, const struct expr *value)
{
	struct expr_statement *st = ARENA_NEW(a, struct expr_statement);
	const struct expr **values = ARENA_ARRAY(a, const struct expr *, 1);
	struct expr_target *to = ARENA_ARRAY(a, struct expr_target, n + 1);
	if (st == NULL || values == NULL || to == NULL || value == NULL)
		return false;
	for (size_t i = 0; i < n; i++)
		to[i] = (struct expr_target){targets[i], loc.at};
	values[0] = value;
	*st = (struct expr_statement){
	        .loc = loc.at, .n_targets = n, .targets = to, .n_values = 1, .values = values};
	return graph_push_statement(a, body, loc, st);
}

const struct expr *expr_make_leaf(struct arena *a, enum expr_kind kind, const char *text, struct loc loc)
{
	struct expr *e = ARENA_NEW(a, struct expr);
	if (e != NULL)
		*e = (struct expr){.kind = kind, .loc = loc, .text = text};
	return e;
}

const struct expr *expr_make_call(struct arena *a, const char *name, struct loc loc,
                                  const struct expr *const *args, size_t n)
{
	struct expr *e = ARENA_NEW(a, struct expr);
	const struct expr **copy = ARENA_ARRAY(a, const struct expr *, n + 1);
	if (e == NULL || copy == NULL || arena_failed(a))
		return NULL;
	memcpy(copy, args, n * sizeof(*args));
	*e = (struct expr){.kind = EX_CALL, .loc = loc, .text = name, .n_args = n, .args = copy};
	return e;
}

/* A placeholder is {TEXT} with one character at least; braces that fn keeps are copied one by one, as they may
 * contain another. */
const char *fill_placeholders(struct arena *a, const char *text, placeholder_fn *fn, void *user)
{
	bool changed = false;
	struct buf out;
	if (text == NULL || strchr(text, '{') == NULL)
		return text;
	buf_init(&out);
	for (const char *p = text; *p != '\0';) {
		size_t len = *p == '{' ? strcspn(p, "}") : 0;
		const char *with =
		        len > 1 && p[len] == '}' ? fn(user, arena_strndup(a, p + 1, len - 1)) : NULL;
		if (with != NULL) {
			buf_str(&out, with);
			p += len + 1;
			changed = true;
		} else {
			buf_char(&out, *p++);
		}
	}
	if (changed)
		text = arena_strdup(a, out.data);
	buf_destroy(&out);
	return text;
}

struct replacement {
	const char *name, *with;
};

static const char *replace_name(void *user, const char *name)
{
	const struct replacement *r = user;
	return strcmp(name, r->name) == 0 ? r->with : NULL;
}

const char *replace_placeholder(struct arena *a, const char *pattern, const char *name, const char *with)
{
	return fill_placeholders(a, pattern, replace_name, &(struct replacement){name, with});
}

/* Structural equality of two trees; locations and parentheses do not count. Floats are compared by bits, so that
 * equal trees print the same. */
static bool expr_equal(const struct expr *a, const struct expr *b)
{
	if (a->kind != b->kind || a->n_args != b->n_args || a->n_keywords != b->n_keywords ||
	    !same_string(a->text, b->text))
		return false;
	bool operates = a->kind == EX_UNARY || a->kind == EX_BINARY;
	if ((operates && a->op != b->op) || a->i != b->i || a->dim != b->dim ||
	    memcmp(&a->f, &b->f, sizeof(a->f)) != 0)
		return false;
	for (size_t i = 0; i < a->n_args; i++) {
		if (!expr_equal(a->args[i], b->args[i]))
			return false;
	}
	for (size_t i = 0; i < a->n_keywords; i++) {
		if (strcmp(a->keywords[i].name, b->keywords[i].name) != 0 ||
		    !expr_equal(a->keywords[i].value, b->keywords[i].value))
			return false;
	}
	return true;
}

/* Whether two statements have the same targets and equal values. */
static bool statement_equal(const struct expr_statement *a, const struct expr_statement *b)
{
	if (a->n_targets != b->n_targets || a->n_values != b->n_values)
		return false;
	for (size_t i = 0; i < a->n_targets; i++) {
		if (strcmp(a->targets[i].name, b->targets[i].name) != 0)
			return false;
	}
	for (size_t i = 0; i < a->n_values; i++) {
		if (!expr_equal(a->values[i], b->values[i]))
			return false;
	}
	return true;
}

/* Whether two nodes are equal, repeats with their bodies. */
static bool node_equal(const struct graph_node *a, const struct graph_node *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == GRAPH_STATEMENT)
		return statement_equal(a->st, b->st);
	return a->count == b->count && a->start == b->start && strcmp(a->as, b->as) == 0 &&
	       graph_equal(&a->body, &b->body);
}

bool graph_equal(const struct graph_body *a, const struct graph_body *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		if (!node_equal(a->items[i], b->items[i]))
			return false;
	}
	return true;
}

const struct expr *expr_map(struct arena *a, const struct expr *e, expr_map_fn *fn, void *user)
{
	const struct expr *with = fn(user, e);
	return with != NULL ? with : expr_map_children(a, e, fn, user);
}

/* A node whose children are all unchanged is shared; e itself without memory. */
const struct expr *expr_map_children(struct arena *a, const struct expr *e, expr_map_fn *fn, void *user)
{
	if (expr_n_children(e) == 0)
		return e;
	struct expr *copy = ARENA_NEW(a, struct expr);
	const struct expr **args = ARENA_ARRAY(a, const struct expr *, e->n_args + 1);
	struct expr_keyword *keywords = ARENA_ARRAY(a, struct expr_keyword, e->n_keywords + 1);
	bool changed = false;
	if (copy == NULL || args == NULL || keywords == NULL)
		return e;
	for (size_t i = 0; i < e->n_args; i++) {
		args[i] = expr_map(a, e->args[i], fn, user);
		changed = changed || args[i] != e->args[i];
	}
	for (size_t i = 0; i < e->n_keywords; i++) {
		keywords[i] = e->keywords[i];
		keywords[i].value = expr_map(a, e->keywords[i].value, fn, user);
		changed = changed || keywords[i].value != e->keywords[i].value;
	}
	if (!changed)
		return e;
	*copy = *e;
	copy->args = args;
	copy->keywords = keywords;
	return copy;
}

/* ---- substitution of an index ---- */

#define MAP_DIGITS 9 /* of factor and offset */

/* [FACTOR*]NAME[+OFFSET] with at most nine digits each, which no statement exceeds, so that sums do not overflow. */
bool index_map_read(const char *text, const char *name, struct index_map *out)
{
	static const char digits[] = "0123456789";
	size_t n = strspn(text, digits), len = strlen(name);
	*out = (struct index_map){1, 0};
	if (n > 0) {
		if (n > MAP_DIGITS || text[n] != '*' || !number_parse_i64(text, n, &out->factor) ||
		    out->factor == 0)
			return false;
		text += n + 1;
	}
	if (strncmp(text, name, len) != 0)
		return false;
	text += len;
	n = text[0] == '+' ? strspn(text + 1, digits) : 0;
	return text[0] == '\0' || (n > 0 && n <= MAP_DIGITS && text[1 + n] == '\0' &&
	                           number_parse_i64(text + 1, n, &out->offset));
}

int64_t index_map_at(struct index_map map, int64_t value)
{
	return (int64_t)((uint64_t)map.factor * (uint64_t)value + (uint64_t)map.offset);
}

struct substitution {
	struct arena *arena;
	const char *name;
	struct index_map by;
};

/* placeholder_fn: composes the map of a placeholder with `by`: f (a i + b) + o = (f a) i + (f b + o). With factor 0
 * the index is a number. */
static const char *compose_maps(void *user, const char *text)
{
	const struct substitution *f = user;
	struct index_map map;
	if (!index_map_read(text, f->name, &map))
		return NULL;
	int64_t factor = map.factor * f->by.factor, offset = index_map_at(map, f->by.offset);
	if (factor == 0)
		return arena_printf(f->arena, "%lld", (long long)offset);
	const char *times = factor == 1 ? "" : arena_printf(f->arena, "%lld*", (long long)factor);
	const char *plus = offset == 0 ? "" : arena_printf(f->arena, "+%lld", (long long)offset);
	return arena_printf(f->arena, "{%s%s%s}", times, f->name, plus);
}

const char *substitute_index(struct arena *a, const char *pattern, const char *name, struct index_map by)
{
	return fill_placeholders(a, pattern, compose_maps, &(struct substitution){a, name, by});
}

bool has_index(struct arena *a, const char *pattern, const char *name)
{
	return substitute_index(a, pattern, name, (struct index_map){0, 0}) != pattern;
}

/* expr_map_fn: replaces the placeholder in a string; NULL: not a string, the children follow. */
static const struct expr *substitute_string(void *user, const struct expr *e)
{
	const struct substitution *f = user;
	if (e->kind != EX_STRING)
		return NULL;
	const char *text = substitute_index(f->arena, e->text, f->name, f->by);
	struct expr *copy = text == e->text ? NULL : ARENA_NEW(f->arena, struct expr);
	if (copy == NULL)
		return e;
	*copy = *e;
	copy->text = text;
	return copy;
}

/* A copy with the placeholder replaced; subtrees without it are shared. NULL: no memory. */
static const struct expr_statement *substitute_statement(struct substitution *f,
                                                         const struct expr_statement *st)
{
	struct expr_statement *copy = ARENA_NEW(f->arena, struct expr_statement);
	const struct expr **values = ARENA_ARRAY(f->arena, const struct expr *, st->n_values);
	if (copy == NULL || values == NULL)
		return NULL;
	for (size_t i = 0; i < st->n_values; i++)
		values[i] = expr_map(f->arena, st->values[i], substitute_string, f);
	*copy = *st;
	copy->values = values;
	return copy;
}

/* Appends a copy with the placeholder replaced in strings and the path. A repeat gets split points of its own, as it
 * is another repeat, with other parameters. False: no memory. */
static bool substitute_node(struct substitution *f, const struct graph_node *node, struct graph_body *out)
{
	struct ir_loc loc = {node->loc.at, substitute_index(f->arena, node->loc.path, f->name, f->by)};
	if (node->kind == GRAPH_STATEMENT)
		return graph_push_statement(f->arena, out, loc, substitute_statement(f, node->st));
	struct graph_node *copy = graph_push(f->arena, out, node->kind, loc);
	if (copy == NULL)
		return false;
	struct graph_split_points *split_points = copy->split_points;
	*copy = *node;
	copy->loc = loc;
	copy->split_points = split_points;
	copy->body = (struct graph_body){NULL, 0, 0};
	return graph_substitute(f->arena, &node->body, f->name, f->by, &copy->body);
}

bool graph_substitute(struct arena *a, const struct graph_body *body, const char *name, struct index_map by,
                      struct graph_body *out)
{
	struct substitution f = {a, name, by};
	for (size_t i = 0; i < body->n; i++) {
		if (!substitute_node(&f, body->items[i], out))
			return false;
	}
	return true;
}

/* ---- splitting of repeats ---- */

#define PERIOD_MAX 16 /* layers whose kinds alternate have periods up to 8 */

/* Tries every period up to PERIOD_MAX; a longer period must cover more iterations than the best so far. alike(to, to
 * - p) extends a run by one iteration; what exceeds whole periods is left to the next run. */
int64_t graph_longest_run(graph_alike_fn *alike, void *user, int64_t count, int64_t from, int64_t *period)
{
	int64_t most = 1;
	*period = 1;
	for (int64_t p = 1; p <= PERIOD_MAX && from + most < count; p++) {
		int64_t to = from + p;
		while (to < count && alike(user, to, to - p))
			to++;
		int64_t n = (to - from) / p * p;
		if (n > p && n > most) {
			most = n;
			*period = p;
		}
	}
	return most;
}

/* A run of period 1 shares its body, as nothing in it is changed, and is marked as a part of the repeat; that of a
 * single iteration has its index written out. With a longer period paths have functions of the index, which name each
 * weight's iterations. */
bool graph_push_iterations(struct arena *a, const struct graph_node *repeat, const struct graph_body *body,
                           int64_t from, int64_t to, int64_t period, struct graph_body *out)
{
	int64_t first = repeat->start + from;
	const struct graph_body *of_first = body != NULL ? &body[from] : &repeat->body;
	if (to - from == 1)
		return graph_substitute(a, of_first, repeat->as, (struct index_map){0, first}, out);
	struct graph_node *node = graph_push(a, out, GRAPH_REPEAT, repeat->loc);
	if (node == NULL)
		return false;
	node->count = (to - from) / period;
	node->as = repeat->as;
	if (period == 1) {
		node->start = first;
		node->body = *of_first;
		node->is_part = true;
		return true;
	}
	bool ok = true;
	for (int64_t k = 0; ok && k < period; k++)
		ok = graph_substitute(a, body != NULL ? &body[from + k] : &repeat->body, repeat->as,
		                      (struct index_map){period, first + k}, &node->body);
	return ok;
}

static bool may_share_body(void *user, int64_t i, int64_t j)
{
	const struct graph_split_points *points = user;
	return points->like[i] == points->like[j];
}

/* Appends a repeat, or its pieces, after splitting those in its body. Without requests (like NULL) it stays whole.
 * False: no memory. */
static bool split_repeat(struct arena *a, const struct graph_node *node, struct graph_body *out)
{
	struct graph_node inner_split = *node;
	inner_split.body = (struct graph_body){NULL, 0, 0};
	if (!graph_split_repeats(a, &node->body, &inner_split.body))
		return false;
	if (node->split_points->like == NULL) {
		struct graph_node *copy = graph_push(a, out, GRAPH_REPEAT, node->loc);
		if (copy != NULL)
			*copy = inner_split;
		return copy != NULL;
	}
	for (int64_t from = 0, n, period; from < node->count; from += n) {
		n = graph_longest_run(may_share_body, node->split_points, node->count, from, &period);
		if (!graph_push_iterations(a, &inner_split, NULL, from, from + n, period, out))
			return false;
	}
	return true;
}

bool graph_split_repeats(struct arena *a, const struct graph_body *body, struct graph_body *out)
{
	bool ok = true;
	for (size_t i = 0; ok && i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		ok = node->kind == GRAPH_REPEAT ? split_repeat(a, node, out)
		                                : graph_push_statement(a, out, node->loc, node->st);
	}
	return ok;
}

size_t graph_count(const struct graph_body *body)
{
	size_t n = 0;
	for (size_t i = 0; i < body->n; i++)
		n += body->items[i]->kind == GRAPH_REPEAT ? graph_count(&body->items[i]->body) : 1;
	return n;
}
