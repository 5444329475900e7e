/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax of regular expressions, as Oniguruma has it, into a tree. Taking
 * as much as possible without giving back becomes a look at the next character,
 * which says the same; what looks behind or far ahead is refused.
 */
#include <string.h>

#include "frontend/tokenizer/pattern.h"
#include "ir/support/utf8.h"

#define NEST_MAX   24
#define REPEAT_MAX 100000u /* that of Oniguruma */

struct parser {
	struct arena *arena;
	const char *at, *end;
	const char *why; /* sticky */
	unsigned depth;
	bool caseless;
	struct pattern_runs runs;
};

/* How often something is there. */
struct quantity {
	uint32_t least, most; /* UINT32_MAX: any number */
	bool in_braces, may_be_lazy;
};

static struct pattern *refuse(struct parser *p, const char *why)
{
	if (p->why == NULL)
		p->why = why;
	return NULL;
}

static struct pattern *new_node(struct parser *p, enum pattern_kind kind)
{
	struct pattern *n = ARENA_NEW(p->arena, struct pattern);
	if (n == NULL)
		return refuse(p, "no memory");
	n->kind = kind;
	return n;
}

static bool eat(struct parser *p, const char *text)
{
	size_t n = strlen(text);
	if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0)
		return false;
	p->at += n;
	return true;
}

static bool peek(const struct parser *p, char c)
{
	return p->at < p->end && *p->at == c;
}

static bool read_char(struct parser *p, uint32_t *cp)
{
	size_t n = p->at < p->end ? utf8_decode(p->at, (size_t)(p->end - p->at), cp) : 0;
	if (n == 0)
		refuse(p, "it ends too early, or is not UTF-8");
	p->at += n;
	return n != 0;
}

/* ---- escapes ---- */

static bool read_hex(struct parser *p, unsigned least, unsigned most, uint32_t *cp)
{
	unsigned n = 0;
	*cp = 0;
	for (; n < most && p->at < p->end; n++, p->at++) {
		char c = *p->at;
		int digit = c >= '0' && c <= '9'   ? c - '0'
		            : c >= 'a' && c <= 'f' ? c - 'a' + 10
		            : c >= 'A' && c <= 'F' ? c - 'A' + 10
		                                   : -1;
		if (digit < 0)
			break;
		*cp = *cp * 16 + (uint32_t)digit;
	}
	if (n < least || *cp >= PATTERN_CHAR_LAST)
		refuse(p, "a character in hexadecimal is wrong");
	return p->why == NULL;
}

static bool read_property(struct parser *p, bool negative, struct pattern_set *set)
{
	struct pattern_set own = {0};
	if (!eat(p, "{"))
		return refuse(p, "\\p without a name") != NULL;
	negative = negative != eat(p, "^");
	const char *name = p->at;
	while (p->at < p->end && *p->at != '}')
		p->at++;
	if (!pattern_set_property(p->arena, &p->runs, &own, name, (size_t)(p->at - name)) || !eat(p, "}"))
		return refuse(p, arena_printf(p->arena, "the property '%.*s'", (int)(p->at - name), name)) !=
		       NULL;
	pattern_set_tidy(&own);
	return (!negative || pattern_set_complement(p->arena, &own)) &&
	       pattern_set_union(p->arena, set, &own);
}

static bool read_named_class(struct parser *p, char c, struct pattern_set *set)
{
	struct pattern_set own = {0};
	bool negative = c < 'a';
	return pattern_set_class(p->arena, &p->runs, &own, (char)(c | 32)) &&
	       (!negative || pattern_set_complement(p->arena, &own)) &&
	       pattern_set_union(p->arena, set, &own);
}

/* After a backslash. *is_set: characters were added to the set, else *cp is the one. */
static bool read_escape(struct parser *p, struct pattern_set *set, bool *is_set, uint32_t *cp)
{
	static const char names[] = "ntrfvae", values[] = "\n\t\r\f\v\a\x1b";
	*is_set = false;
	if (p->at == p->end)
		return refuse(p, "it ends with a backslash") != NULL;
	char c = *p->at;
	const char *name = strchr(names, c);
	if (strchr("sSdDwWhH", c) != NULL) {
		p->at++;
		*is_set = true;
		return read_named_class(p, c, set) || (refuse(p, "no memory"), false);
	}
	if (c == 'p' || c == 'P') {
		p->at++;
		*is_set = true;
		return p->caseless ? refuse(p, "a property without regard to case") != NULL
		                   : read_property(p, c == 'P', set);
	}
	if (name != NULL && *name) {
		p->at++;
		*cp = (uint32_t)(unsigned char)values[name - names];
		return true;
	}
	if (eat(p, "x{"))
		return read_hex(p, 1, 6, cp) && (eat(p, "}") || refuse(p, "\\x{ without }") != NULL);
	if (eat(p, "x"))
		return read_hex(p, 1, 2, cp);
	if (eat(p, "u"))
		return read_hex(p, 4, 4, cp);
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
		return refuse(p, arena_printf(p->arena, "\\%c", c)) != NULL;
	return read_char(p, cp);
}

/* ---- sets in brackets ---- */

static bool read_set(struct parser *p, struct pattern_set *out);

/* One character, a range, or a named class. */
static bool read_member(struct parser *p, struct pattern_set *set)
{
	uint32_t from, to;
	bool is_set = false;
	bool ok = eat(p, "\\") ? read_escape(p, set, &is_set, &from) : read_char(p, &from);
	if (!ok || is_set)
		return ok;
	to = from;
	if (peek(p, '-') && p->end - p->at > 1 && p->at[1] != ']') {
		struct pattern_set none = {0};
		p->at++;
		if (peek(p, '['))
			return refuse(p, "a set as the end of a range") != NULL;
		ok = eat(p, "\\") ? read_escape(p, &none, &is_set, &to) : read_char(p, &to);
		if (!ok || is_set || to < from)
			return refuse(p, "a range of characters is wrong") != NULL;
	}
	return pattern_set_add(p->arena, set, from, to) || refuse(p, "no memory") != NULL;
}

/* What is before && so far, and after it. */
static bool close_part(struct parser *p, struct pattern_set *all, struct pattern_set *part, bool is_first)
{
	pattern_set_tidy(part);
	if (p->caseless && !pattern_set_fold(p->arena, part))
		return refuse(p, "a set of other than letters of ASCII without regard to case") != NULL;
	if (is_first)
		*all = *part;
	else if (!pattern_set_intersect(p->arena, all, part))
		return refuse(p, "no memory") != NULL;
	*part = (struct pattern_set){0};
	return true;
}

static bool read_members(struct parser *p, struct pattern_set *out)
{
	struct pattern_set part = {0};
	bool negative = eat(p, "^"), is_first = true, ok = true;
	for (bool empty = true; ok && (empty || !peek(p, ']')); empty = false) {
		if (eat(p, "&&")) {
			ok = close_part(p, out, &part, is_first);
			is_first = false;
		} else if (eat(p, "[")) {
			struct pattern_set inner = {0};
			ok = !peek(p, ':') || refuse(p, "a class such as [:alpha:]") != NULL;
			ok = ok && read_set(p, &inner) && pattern_set_union(p->arena, &part, &inner);
		} else {
			ok = read_member(p, &part);
		}
	}
	ok = ok && eat(p, "]") && close_part(p, out, &part, is_first);
	return ok && (!negative || pattern_set_complement(p->arena, out));
}

/* After the bracket. */
static bool read_set(struct parser *p, struct pattern_set *out)
{
	if (p->depth >= NEST_MAX)
		return refuse(p, "sets in sets in sets") != NULL;
	p->depth++;
	bool ok = read_members(p, out);
	p->depth--;
	return ok || (refuse(p, "a set in brackets is wrong"), false);
}

/* ---- atoms ---- */

static struct pattern *any_of(struct parser *p);

static struct pattern *look_node(struct parser *p, struct pattern_set set, bool negative)
{
	struct pattern *n = new_node(p, PATTERN_LOOK);
	if (n != NULL) {
		n->set = set;
		n->negative = negative;
	}
	return n;
}

/* Characters of a tree that is one character; false for others. */
static bool as_set(struct parser *p, const struct pattern *n, struct pattern_set *out)
{
	if (n->kind == PATTERN_SET)
		return pattern_set_union(p->arena, out, &n->set);
	if (n->kind == PATTERN_CONCAT)
		return n->child != NULL && n->child->next == NULL && as_set(p, n->child, out);
	if (n->kind != PATTERN_ANY_OF)
		return false;
	for (const struct pattern *c = n->child; c != NULL; c = c->next)
		if (!as_set(p, c, out))
			return false;
	return true;
}

static struct pattern *look_ahead(struct parser *p, bool negative)
{
	struct pattern_set set = {0};
	struct pattern *inner = any_of(p);
	if (inner == NULL || !eat(p, ")"))
		return refuse(p, "a parenthesis is not closed");
	if (!as_set(p, inner, &set))
		return refuse(p, "looking further than at the next character");
	pattern_set_tidy(&set);
	return look_node(p, set, negative);
}

/* After the parenthesis. */
static struct pattern *group(struct parser *p)
{
	bool caseless = p->caseless;
	if (eat(p, "?=") || eat(p, "?!"))
		return look_ahead(p, p->at[-1] == '!');
	if (eat(p, "?i:"))
		p->caseless = true;
	else if (!eat(p, "?:") && peek(p, '?'))
		return refuse(p, arena_printf(p->arena, "a group that begins with (%.3s", p->at));
	struct pattern *n = any_of(p);
	p->caseless = caseless;
	if (n == NULL || !eat(p, ")"))
		return refuse(p, "a parenthesis is not closed");
	return n;
}

static struct pattern *one_char(struct parser *p)
{
	struct pattern *n = new_node(p, PATTERN_SET);
	uint32_t cp = 0;
	bool is_set = false;
	if (n == NULL)
		return NULL;
	if (eat(p, "[")) {
		return read_set(p, &n->set) ? n : NULL;
	} else if (eat(p, ".")) {
		is_set = pattern_set_add(p->arena, &n->set, '\n', '\n') &&
		         pattern_set_complement(p->arena, &n->set);
	} else if (!(eat(p, "\\") ? read_escape(p, &n->set, &is_set, &cp) : read_char(p, &cp))) {
		return NULL;
	}
	if (!is_set && !pattern_set_add(p->arena, &n->set, cp, cp))
		return refuse(p, "no memory");
	if (p->caseless && !is_set && !pattern_set_fold(p->arena, &n->set))
		return refuse(p, "a character outside of ASCII without regard to case");
	return n;
}

/* ---- quantities ---- */

static bool read_count(struct parser *p, uint32_t *out)
{
	const char *from = p->at;
	for (*out = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
		*out = *out > REPEAT_MAX ? *out : *out * 10 + (uint32_t)(*p->at - '0');
	if (*out > REPEAT_MAX)
		refuse(p, arena_printf(p->arena, "%.*s repetitions, at most %u are possible",
		                       (int)(p->at - from), from, REPEAT_MAX));
	return p->at > from;
}

/* How often: {n}, {n,}, {n,m}, {,m}. False, with nothing read, for a brace that is a character. */
static bool read_braces(struct parser *p, struct quantity *q)
{
	const char *from = p->at;
	bool ok = eat(p, "{"), low = ok && read_count(p, &q->least), comma = ok && eat(p, ",");
	q->least = low ? q->least : 0;
	q->most = q->least;
	if (comma && !read_count(p, &q->most))
		q->most = UINT32_MAX;
	ok = ok && (low || (comma && q->most != UINT32_MAX)) && eat(p, "}");
	if (!ok)
		p->at = from;
	else if (q->most < q->least)
		refuse(p,
		       arena_printf(p->arena, "at least %u and at most %u repetitions", q->least, q->most));
	q->in_braces = ok;
	q->may_be_lazy = comma;
	return ok && p->why == NULL;
}

static bool read_quantity(struct parser *p, struct quantity *q)
{
	*q = (struct quantity){peek(p, '+'), peek(p, '?') ? 1 : UINT32_MAX, false, true};
	return eat(p, "*") || eat(p, "+") || eat(p, "?") || read_braces(p, q);
}

static struct pattern *atom(struct parser *p)
{
	struct pattern_set set = {0};
	struct quantity quantity;
	const char *from = p->at;
	if (eat(p, "("))
		return group(p);
	if (eat(p, "\\z")) {
		(void)pattern_set_complement(p->arena, &set);
		return look_node(p, set, true);
	}
	if (eat(p, "$")) { /* at the end of a line */
		(void)(pattern_set_add(p->arena, &set, '\n', '\n') && pattern_set_complement(p->arena, &set));
		return look_node(p, set, true);
	}
	if (p->at < p->end && (strchr("^*+?)", *p->at) != NULL || read_braces(p, &quantity)))
		return refuse(p, arena_printf(p->arena, "'%.*s' at this place",
		                              p->at > from ? (int)(p->at - from) : 1, from));
	return one_char(p);
}

/* ---- repetitions ---- */

/* X*+ is X* where no X follows; X?+ is X, or nothing where no X follows. */
static struct pattern *possessive(struct parser *p, struct pattern *n)
{
	struct pattern_set set = {0};
	struct pattern *both = new_node(p, n->most == 1 ? PATTERN_ANY_OF : PATTERN_CONCAT);
	if (both == NULL || !as_set(p, n->child, &set))
		return refuse(p, "a group that gives nothing back");
	pattern_set_tidy(&set);
	both->child = n->most == 1 ? n->child : n;
	both->child->next = look_node(p, set, true);
	return both;
}

/* X{n}? is X{n} or nothing, and a + after braces repeats what they say. */
static struct pattern *repeated(struct parser *p)
{
	struct pattern *n = atom(p);
	struct quantity quantity;
	for (unsigned depth = 0; n != NULL && read_quantity(p, &quantity); depth++) {
		struct pattern *r = depth < NEST_MAX ? new_node(p, PATTERN_REPEAT)
		                                     : refuse(p, "repetitions of repetitions of repetitions");
		if (r == NULL)
			return NULL;
		r->least = quantity.least;
		r->most = quantity.most;
		r->child = n;
		r->lazy = quantity.may_be_lazy && eat(p, "?");
		n = !r->lazy && !quantity.in_braces && eat(p, "+") ? possessive(p, r) : r;
	}
	return p->why == NULL ? n : NULL;
}

static struct pattern *concat(struct parser *p)
{
	struct pattern *all = new_node(p, PATTERN_CONCAT), **last = all != NULL ? &all->child : NULL;
	while (all != NULL && p->at < p->end && *p->at != '|' && *p->at != ')') {
		*last = repeated(p);
		if (*last == NULL)
			return NULL;
		last = &(*last)->next;
	}
	return all;
}

static struct pattern *any_of(struct parser *p)
{
	struct pattern *all = new_node(p, PATTERN_ANY_OF), **last = all != NULL ? &all->child : NULL;
	if (p->depth >= NEST_MAX)
		return refuse(p, "groups in groups in groups");
	p->depth++;
	bool more = all != NULL;
	while (more) {
		*last = concat(p);
		if (*last == NULL)
			return NULL;
		last = &(*last)->next;
		more = eat(p, "|");
	}
	p->depth--;
	return all;
}

struct pattern *pattern_parse(struct arena *a, const char *text, const char **why)
{
	struct parser p = {.arena = a, .at = text, .end = text + strlen(text)};
	struct pattern *n = any_of(&p);
	if (n != NULL && p.at != p.end)
		n = refuse(&p, "a parenthesis is closed that was not opened");
	*why = p.why != NULL ? p.why : "no memory";
	return n;
}
