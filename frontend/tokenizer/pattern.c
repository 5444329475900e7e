/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parser of regular expressions with the syntax of Oniguruma. Possessive repetition becomes a lookahead at
 * the next character, which is equivalent; lookbehind and longer lookahead are rejected. Character sets are sorted
 * ranges; named sets follow from Unicode properties.
 * Functions that parse return NULL or false with a reason in p->why, and the first reason is kept. Since reject
 * returns NULL, `reject(..) != NULL` is a false that records one.
 */
#include "frontend/tokenizer/pattern.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "ir/support/utf8.h"

/* ---- sets of characters ---- */

/* Adds a range; false: no memory. */
static bool pattern_set_add(struct arena *a, struct pattern_set *s, uint32_t from, uint32_t to)
{
	return ARENA_ADDED(a, s, (struct pattern_range){from, to});
}

static bool pattern_set_union(struct arena *a, struct pattern_set *s, const struct pattern_set *other)
{
	for (size_t i = 0; i < other->n; i++)
		if (!pattern_set_add(a, s, other->items[i].from, other->items[i].to))
			return false;
	return true;
}

static int compare(const void *pa, const void *pb)
{
	const struct pattern_range *a = pa, *b = pb;
	return a->from < b->from ? -1 : a->from > b->from;
}

/* Sorts and merges the ranges. */
static void pattern_set_normalize(struct pattern_set *s)
{
	size_t n = 0;
	if (s->n > 1)
		qsort(s->items, s->n, sizeof(*s->items), compare);
	for (size_t i = 0; i < s->n; i++) {
		struct pattern_range r = s->items[i];
		if (n == 0 || r.from > s->items[n - 1].to + 1)
			s->items[n++] = r;
		else if (r.to > s->items[n - 1].to)
			s->items[n - 1].to = r.to;
	}
	s->n = n;
}

/* Replaces a normalized set by its complement; false: no memory. */
static bool pattern_set_complement(struct arena *a, struct pattern_set *s)
{
	struct pattern_set out = {0};
	uint32_t from = 0;
	for (size_t i = 0; i < s->n; i++) {
		if (s->items[i].from > from && !pattern_set_add(a, &out, from, s->items[i].from - 1))
			return false;
		from = s->items[i].to + 1;
	}
	if (from <= PATTERN_CHAR_LAST && !pattern_set_add(a, &out, from, PATTERN_CHAR_LAST))
		return false;
	*s = out;
	return true;
}

/* Replaces s by its intersection with another set, both normalized; false: no memory. */
static bool pattern_set_intersect(struct arena *a, struct pattern_set *s, const struct pattern_set *other)
{
	struct pattern_set out = {0};
	for (size_t i = 0, k = 0; i < s->n && k < other->n;) {
		struct pattern_range x = s->items[i], y = other->items[k];
		uint32_t from = x.from > y.from ? x.from : y.from, to = x.to < y.to ? x.to : y.to;
		if (from <= to && !pattern_set_add(a, &out, from, to))
			return false;
		if (x.to < y.to)
			i++;
		else
			k++;
	}
	*s = out;
	return true;
}

bool pattern_set_has(const struct pattern_set *s, uint32_t cp)
{
	size_t low = 0, high = s->n;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (s->items[mid].to < cp)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->n && s->items[low].from <= cp; /* low: the first range that ends at cp or after */
}

/* Adds both cases of ASCII letters, and characters that fold to them; false: other characters would have to fold. */
static bool pattern_set_fold(struct arena *a, struct pattern_set *s)
{
	static const uint32_t folds[][2] = {{'s', 0x17f}, {'k', 0x212a}};
	if (s->n && s->items[s->n - 1].to > 0x7f)
		return false;
	struct pattern_set old = *s;
	*s = (struct pattern_set){0};
	bool ok = pattern_set_union(a, s, &old);
	for (uint32_t c = 'a'; ok && c <= 'z'; c++) {
		uint32_t upper = c - 32;
		if (!pattern_set_has(&old, c) && !pattern_set_has(&old, upper))
			continue;
		ok = pattern_set_add(a, s, c, c) && pattern_set_add(a, s, upper, upper);
		for (size_t i = 0; ok && i < TFMC_COUNT(folds); i++)
			ok = folds[i][0] != c || pattern_set_add(a, s, folds[i][1], folds[i][1]);
	}
	pattern_set_normalize(s);
	return ok;
}

/* ---- named sets ---- */

/* Consecutive characters of one general category. */
struct pattern_run {
	uint32_t from, to;
	unsigned category;
};
struct pattern_runs {
	struct pattern_run *items; /* sorted; computed at the first use */
	size_t n, cap;
};

static const char categories[][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                     "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                     "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

/* Computes the runs of equal categories over all characters (PATTERN_CHAR_LAST, an invalid byte, has none). */
static bool compute_runs(struct arena *a, struct pattern_runs *runs)
{
	for (uint32_t cp = 0; runs->n == 0 || cp < PATTERN_CHAR_LAST; cp++) {
		unsigned category = (unsigned)utf8proc_category((utf8proc_int32_t)cp);
		struct pattern_run *r = runs->n ? &runs->items[runs->n - 1] : NULL;
		if (r == NULL || r->category != category) {
			r = ARENA_PUSH(a, runs);
			if (r == NULL)
				return false;
			*r = (struct pattern_run){cp, cp, category};
		}
		r->to = cp;
	}
	return true;
}

/* Adds characters whose category has its bit in the mask. */
static bool add_categories(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, uint32_t mask)
{
	bool ok = runs->n || compute_runs(a, runs);
	for (size_t i = 0; ok && i < runs->n; i++)
		if (mask >> runs->items[i].category & 1)
			ok = pattern_set_add(a, s, runs->items[i].from, runs->items[i].to);
	return ok;
}

/* Bits of the categories whose name begins with `name` (L, Lu, ..); 0: none. */
static uint32_t category_mask(const char *name, size_t n)
{
	uint32_t mask = 0;
	for (uint32_t i = 0; n && n <= 2 && i < TFMC_COUNT(categories); i++)
		mask |= memcmp(categories[i], name, n) == 0 ? 1u << i : 0u;
	return mask;
}

/* Script Han. */
static const struct pattern_range han[] = {
        {0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},   {0x3007, 0x3007},
        {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfa6d},
        {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3}, {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739},
        {0x2b740, 0x2b81d}, {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2ebf0, 0x2ee5d}, {0x2f800, 0x2fa1d},
        {0x30000, 0x3134a}, {0x31350, 0x323af},
};

/* Adds \p{NAME}: general categories and Han; false: unknown. */
static bool pattern_set_property(struct arena *a, struct pattern_runs *runs, struct pattern_set *s,
                                 const char *name, size_t n)
{
	uint32_t mask = category_mask(name, n);
	bool ok = true;
	if (mask)
		return add_categories(a, runs, s, mask);
	if (n != 3 || memcmp(name, "Han", 3) != 0)
		return false;
	for (size_t i = 0; ok && i < TFMC_COUNT(han); i++)
		ok = pattern_set_add(a, s, han[i].from, han[i].to);
	return ok;
}

/* Adds \s, \d, \w or \h; false for other names. */
static bool pattern_set_class(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, char name)
{
	static const struct pattern_range space[] = {{9, 13}, {0x85, 0x85}};
	static const struct pattern_range word[] = {{0xb2, 0xb3},      {0xb9, 0xb9},       {0xbc, 0xbe},
	                                            {0x24b6, 0x24e9},  {0x1f130, 0x1f149}, {0x1f150, 0x1f169},
	                                            {0x1f170, 0x1f189}};
	static const struct pattern_range hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
	/* characters of the class beside those of its categories */
	const struct pattern_range *more = name == 's' ? space : name == 'w' ? word : hex;
	size_t n = name == 's'   ? TFMC_COUNT(space)
	           : name == 'w' ? TFMC_COUNT(word)
	           : name == 'h' ? TFMC_COUNT(hex)
	                         : 0;
	uint32_t mask = name == 's'   ? category_mask("Z", 1)
	                : name == 'd' ? category_mask("Nd", 2)
	                : name == 'w'
	                        ? category_mask("L", 1) | category_mask("M", 1) | category_mask("Nd", 2) |
	                                  category_mask("Nl", 2) | category_mask("Pc", 2)
	                        : 0;
	bool ok = name == 'h' || (mask && add_categories(a, runs, s, mask));
	for (size_t i = 0; ok && i < n; i++)
		ok = pattern_set_add(a, s, more[i].from, more[i].to);
	if (ok)
		pattern_set_normalize(s);
	return ok;
}

/* ---- the parser ---- */

#define NEST_MAX   24
#define REPEAT_MAX 100000u /* limit of Oniguruma */

/* Parser state. */
struct parser {
	struct arena *arena;
	const char *at, *end;
	const char *why; /* first error */
	unsigned depth;
	bool caseless;
	struct pattern_runs runs;
};

/* A quantifier. */
struct quantifier {
	uint32_t min, max; /* UINT32_MAX: unbounded */
	bool in_braces, may_be_lazy;
};

/* Records the first reason; returns NULL. */
static struct pattern *reject(struct parser *p, const char *why)
{
	if (p->why == NULL)
		p->why = why;
	return NULL;
}

static struct pattern *new_node(struct parser *p, enum pattern_kind kind)
{
	struct pattern *n = ARENA_NEW(p->arena, struct pattern);
	if (n == NULL)
		return reject(p, "no memory");
	n->kind = kind;
	return n;
}

/* Consumes `text` if it is next. */
static bool match(struct parser *p, const char *text)
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
		reject(p, "it ends too early, or is not UTF-8");
	p->at += n;
	return n != 0;
}

/* ---- escapes ---- */

/* Reads min to max hexadecimal digits; false, and a reason, if there are fewer or the value is no character. */
static bool read_hex(struct parser *p, unsigned min, unsigned max, uint32_t *cp)
{
	unsigned n = 0;
	*cp = 0;
	for (; n < max && p->at < p->end; n++, p->at++) {
		char c = *p->at;
		int digit = c >= '0' && c <= '9'   ? c - '0'
		            : c >= 'a' && c <= 'f' ? c - 'a' + 10
		            : c >= 'A' && c <= 'F' ? c - 'A' + 10
		                                   : -1;
		if (digit < 0)
			break;
		*cp = *cp * 16 + (uint32_t)digit;
	}
	if (n < min || *cp >= PATTERN_CHAR_LAST)
		reject(p, "a character in hexadecimal is wrong");
	return p->why == NULL;
}

/* Parses {NAME} after \p or \P. */
static bool read_property(struct parser *p, bool negative, struct pattern_set *set)
{
	struct pattern_set local = {0};
	if (!match(p, "{"))
		return reject(p, "\\p without a name") != NULL;
	negative = negative != match(p, "^");
	const char *name = p->at;
	while (p->at < p->end && *p->at != '}')
		p->at++;
	if (!pattern_set_property(p->arena, &p->runs, &local, name, (size_t)(p->at - name)) || !match(p, "}"))
		return reject(p, arena_printf(p->arena, "the property '%.*s'", (int)(p->at - name), name)) !=
		       NULL;
	pattern_set_normalize(&local);
	return (!negative || pattern_set_complement(p->arena, &local)) &&
	       pattern_set_union(p->arena, set, &local);
}

/* Parses the escape after a backslash. *is_set: characters were added to the set; else *cp is the character.
 * False, and a reason, for escapes that are not supported. */
static bool read_escape(struct parser *p, struct pattern_set *set, bool *is_set, uint32_t *cp)
{
	static const char names[] = "ntrfvae", values[] = "\n\t\r\f\v\a\x1b";
	*is_set = false;
	if (p->at == p->end)
		return reject(p, "it ends with a backslash") != NULL;
	char c = *p->at;
	const char *name = strchr(names, c);
	if (strchr("sSdDwWhH", c) != NULL) {
		struct pattern_set local = {0};
		bool negative = c < 'a';
		p->at++;
		*is_set = true;
		return (pattern_set_class(p->arena, &p->runs, &local, (char)(c | 32)) &&
		        (!negative || pattern_set_complement(p->arena, &local)) &&
		        pattern_set_union(p->arena, set, &local)) ||
		       (reject(p, "no memory"), false);
	}
	if (c == 'p' || c == 'P') {
		p->at++;
		*is_set = true;
		return p->caseless ? reject(p, "a property without regard to case") != NULL
		                   : read_property(p, c == 'P', set);
	}
	if (name != NULL && *name) {
		p->at++;
		*cp = (uint32_t)(unsigned char)values[name - names];
		return true;
	}
	if (match(p, "x{"))
		return read_hex(p, 1, 6, cp) && (match(p, "}") || reject(p, "\\x{ without }") != NULL);
	if (match(p, "x"))
		return read_hex(p, 1, 2, cp);
	if (match(p, "u"))
		return read_hex(p, 4, 4, cp);
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
		return reject(p, arena_printf(p->arena, "\\%c", c)) != NULL;
	return read_char(p, cp);
}

/* ---- sets in brackets ---- */

static bool read_set(struct parser *p, struct pattern_set *out);

/* Parses one character, a range, or a named class. */
static bool read_member(struct parser *p, struct pattern_set *set)
{
	uint32_t from, to;
	bool is_set = false;
	bool ok = match(p, "\\") ? read_escape(p, set, &is_set, &from) : read_char(p, &from);
	if (!ok || is_set)
		return ok;
	to = from;
	if (peek(p, '-') && p->end - p->at > 1 && p->at[1] != ']') {
		struct pattern_set none = {0};
		p->at++;
		if (peek(p, '['))
			return reject(p, "a set as the end of a range") != NULL;
		ok = match(p, "\\") ? read_escape(p, &none, &is_set, &to) : read_char(p, &to);
		if (!ok || is_set || to < from)
			return reject(p, "a range of characters is wrong") != NULL;
	}
	return pattern_set_add(p->arena, set, from, to) || reject(p, "no memory") != NULL;
}

/* Ends a part of a set, before && or at its end: intersects the set so far with it (the first part is the set) and
 * empties it. Without regard to case, each part gets both cases before it is intersected or complemented. */
static bool intersect_part(struct parser *p, struct pattern_set *all, struct pattern_set *part, bool is_first)
{
	pattern_set_normalize(part);
	if (p->caseless && !pattern_set_fold(p->arena, part))
		return reject(p, "a set of other than letters of ASCII without regard to case") != NULL;
	if (is_first)
		*all = *part;
	else if (!pattern_set_intersect(p->arena, all, part))
		return reject(p, "no memory") != NULL;
	*part = (struct pattern_set){0};
	return true;
}

/* Parses the members of a set up to its closing bracket, which is a member where it comes first. ^ complements the
 * whole set, after all intersections. */
static bool read_members(struct parser *p, struct pattern_set *out)
{
	struct pattern_set part = {0};
	bool negative = match(p, "^"), is_first = true, ok = true;
	for (bool empty = true; ok && (empty || !peek(p, ']')); empty = false) {
		if (match(p, "&&")) {
			ok = intersect_part(p, out, &part, is_first);
			is_first = false;
		} else if (match(p, "[")) {
			struct pattern_set inner = {0};
			ok = !peek(p, ':') || reject(p, "a class such as [:alpha:]") != NULL;
			ok = ok && read_set(p, &inner) && pattern_set_union(p->arena, &part, &inner);
		} else {
			ok = read_member(p, &part);
		}
	}
	ok = ok && match(p, "]") && intersect_part(p, out, &part, is_first);
	return ok && (!negative || pattern_set_complement(p->arena, out));
}

/* Parses a set after its bracket; sets nest by recursion, so their depth is limited. */
static bool read_set(struct parser *p, struct pattern_set *out)
{
	if (p->depth >= NEST_MAX)
		return reject(p, "sets in sets in sets") != NULL;
	p->depth++;
	bool ok = read_members(p, out);
	p->depth--;
	return ok || (reject(p, "a set in brackets is wrong"), false);
}

/* ---- atoms ---- */

static struct pattern *parse_alternation(struct parser *p);

/* A lookahead at one character of the set; NULL: no memory. */
static struct pattern *lookahead_node(struct parser *p, struct pattern_set set, bool negative)
{
	struct pattern *n = new_node(p, PATTERN_LOOKAHEAD);
	if (n != NULL) {
		n->set = set;
		n->negative = negative;
	}
	return n;
}

/* Set of a tree that matches exactly one character; false for others. */
static bool char_set_of(struct parser *p, const struct pattern *n, struct pattern_set *out)
{
	if (n->kind == PATTERN_SET)
		return pattern_set_union(p->arena, out, &n->set);
	if (n->kind == PATTERN_CONCAT)
		return n->child != NULL && n->child->next == NULL && char_set_of(p, n->child, out);
	if (n->kind != PATTERN_ALTERNATION)
		return false;
	for (const struct pattern *c = n->child; c != NULL; c = c->next)
		if (!char_set_of(p, c, out))
			return false;
	return true;
}

/* Parses (?=X) or (?!X), X one character. */
static struct pattern *parse_lookahead(struct parser *p, bool negative)
{
	struct pattern_set set = {0};
	struct pattern *inner = parse_alternation(p);
	if (inner == NULL || !match(p, ")"))
		return reject(p, "a parenthesis is not closed");
	if (!char_set_of(p, inner, &set))
		return reject(p, "looking further than at the next character");
	pattern_set_normalize(&set);
	return lookahead_node(p, set, negative);
}

/* Parses a group after its parenthesis. */
static struct pattern *parse_group(struct parser *p)
{
	bool caseless = p->caseless;
	if (match(p, "?=") || match(p, "?!"))
		return parse_lookahead(p, p->at[-1] == '!');
	if (match(p, "?i:"))
		p->caseless = true;
	else if (!match(p, "?:") && peek(p, '?'))
		return reject(p, arena_printf(p->arena, "a group that begins with (%.3s", p->at));
	struct pattern *n = parse_alternation(p);
	p->caseless = caseless;
	if (n == NULL || !match(p, ")"))
		return reject(p, "a parenthesis is not closed");
	return n;
}

/* Parses a set in brackets, a dot (all but a newline), an escape or a character. Without regard to case a character
 * becomes both; a set in brackets has been folded by its parts, and a dot and \s, \d, \w, \h have both cases. */
static struct pattern *parse_char(struct parser *p)
{
	struct pattern *n = new_node(p, PATTERN_SET);
	uint32_t cp = 0;
	bool is_set = false;
	if (n == NULL)
		return NULL;
	if (match(p, "[")) {
		return read_set(p, &n->set) ? n : NULL;
	} else if (match(p, ".")) {
		is_set = pattern_set_add(p->arena, &n->set, '\n', '\n') &&
		         pattern_set_complement(p->arena, &n->set);
	} else if (!(match(p, "\\") ? read_escape(p, &n->set, &is_set, &cp) : read_char(p, &cp))) {
		return NULL;
	}
	if (!is_set && !pattern_set_add(p->arena, &n->set, cp, cp))
		return reject(p, "no memory");
	if (p->caseless && !is_set && !pattern_set_fold(p->arena, &n->set))
		return reject(p, "a character outside of ASCII without regard to case");
	return n;
}

/* ---- quantities ---- */

/* Reads digits; false: there are none. Counts above the limit are rejected. */
static bool read_count(struct parser *p, uint32_t *out)
{
	const char *from = p->at;
	for (*out = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
		*out = *out > REPEAT_MAX ? *out : *out * 10 + (uint32_t)(*p->at - '0');
	if (*out > REPEAT_MAX)
		reject(p, arena_printf(p->arena, "%.*s repetitions, at most %u are possible",
		                       (int)(p->at - from), from, REPEAT_MAX));
	return p->at > from;
}

/* Parses {n}, {n,}, {n,m}, {,m}. False, and nothing consumed: the brace is a literal. */
static bool read_braces(struct parser *p, struct quantifier *q)
{
	const char *from = p->at;
	bool ok = match(p, "{"), low = ok && read_count(p, &q->min), comma = ok && match(p, ",");
	q->min = low ? q->min : 0;
	q->max = q->min;
	if (comma && !read_count(p, &q->max))
		q->max = UINT32_MAX;
	ok = ok && (low || (comma && q->max != UINT32_MAX)) && match(p, "}");
	if (!ok)
		p->at = from;
	else if (q->max < q->min)
		reject(p, arena_printf(p->arena, "at least %u and at most %u repetitions", q->min, q->max));
	q->in_braces = ok;
	q->may_be_lazy = comma;
	return ok && p->why == NULL;
}

/* Reads *, +, ? or braces; false: there is none. The initializer already fits the first three. */
static bool read_quantifier(struct parser *p, struct quantifier *q)
{
	*q = (struct quantifier){peek(p, '+'), peek(p, '?') ? 1 : UINT32_MAX, false, true};
	return match(p, "*") || match(p, "+") || match(p, "?") || read_braces(p, q);
}

/* Parses a group, an anchor or a character. \z and $ are lookaheads that no character (other than a newline)
 * follows. */
static struct pattern *parse_atom(struct parser *p)
{
	struct pattern_set set = {0};
	struct quantifier quantifier;
	const char *from = p->at;
	if (match(p, "("))
		return parse_group(p);
	if (match(p, "\\z")) {
		(void)pattern_set_complement(p->arena, &set);
		return lookahead_node(p, set, true);
	}
	if (match(p, "$")) { /* $: at the end of a line */
		(void)(pattern_set_add(p->arena, &set, '\n', '\n') && pattern_set_complement(p->arena, &set));
		return lookahead_node(p, set, true);
	}
	if (p->at < p->end && (strchr("^*+?)", *p->at) != NULL || read_braces(p, &quantifier)))
		return reject(p, arena_printf(p->arena, "'%.*s' at this place",
		                              p->at > from ? (int)(p->at - from) : 1, from));
	return parse_char(p);
}

/* ---- repetitions ---- */

/* Possessive quantifiers: X*+ is X*(?!X), X?+ is X|(?!X), where the lookahead rejects fewer matches of the character X.
 * Groups have no such equivalent: they are rejected. */
static struct pattern *make_possessive(struct parser *p, struct pattern *n)
{
	struct pattern_set set = {0};
	struct pattern *both = new_node(p, n->max == 1 ? PATTERN_ALTERNATION : PATTERN_CONCAT);
	if (both == NULL || !char_set_of(p, n->child, &set))
		return reject(p, "a group that gives nothing back");
	pattern_set_normalize(&set);
	both->child = n->max == 1 ? n->child : n;
	both->child->next = lookahead_node(p, set, true);
	return both;
}

/* X{n}? is (X{n})? and not lazy; + after braces is another repetition, not possessive. Repetitions of repetitions are
 * limited, as the compiler recurses over the tree. */
static struct pattern *parse_repetition(struct parser *p)
{
	struct pattern *n = parse_atom(p);
	struct quantifier quantifier;
	for (unsigned depth = 0; n != NULL && read_quantifier(p, &quantifier); depth++) {
		struct pattern *r = depth < NEST_MAX ? new_node(p, PATTERN_REPEAT)
		                                     : reject(p, "repetitions of repetitions of repetitions");
		if (r == NULL)
			return NULL;
		r->min = quantifier.min;
		r->max = quantifier.max;
		r->child = n;
		r->lazy = quantifier.may_be_lazy && match(p, "?");
		n = !r->lazy && !quantifier.in_braces && match(p, "+") ? make_possessive(p, r) : r;
	}
	return p->why == NULL ? n : NULL;
}

/* Parses repetitions up to | or a closing parenthesis. */
static struct pattern *parse_concat(struct parser *p)
{
	struct pattern *all = new_node(p, PATTERN_CONCAT), **last = all != NULL ? &all->child : NULL;
	while (all != NULL && p->at < p->end && *p->at != '|' && *p->at != ')') {
		*last = parse_repetition(p);
		if (*last == NULL)
			return NULL;
		last = &(*last)->next;
	}
	return all;
}

/* Parses alternatives up to a closing parenthesis or the end. */
static struct pattern *parse_alternation(struct parser *p)
{
	struct pattern *all = new_node(p, PATTERN_ALTERNATION), **last = all != NULL ? &all->child : NULL;
	if (p->depth >= NEST_MAX)
		return reject(p, "groups in groups in groups");
	p->depth++;
	bool more = all != NULL;
	while (more) {
		*last = parse_concat(p);
		if (*last == NULL)
			return NULL;
		last = &(*last)->next;
		more = match(p, "|");
	}
	p->depth--;
	return all;
}

struct pattern *pattern_parse(struct arena *a, const char *text, const char **why)
{
	struct parser p = {.arena = a, .at = text, .end = text + strlen(text)};
	struct pattern *n = parse_alternation(&p);
	if (n != NULL && p.at != p.end)
		n = reject(&p, "a parenthesis is closed that was not opened");
	*why = p.why != NULL ? p.why : "no memory";
	return n;
}
