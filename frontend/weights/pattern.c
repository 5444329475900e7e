/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing, matching and filling of names with captures, as the weight map has them: a key is a pattern, which is
 * matched with the path of a parameter; the tensor names of its value are templates, which are filled from the
 * captures. Matching backtracks over the lengths of captures, and fails after MATCH_BUDGET calls; in the usual
 * case, one capture in each dotted part, matching never backtracks.
 * In a template, {x:a=b,c} lists the choices of a captured string: a is written as b, c as it is.
 */
#include "frontend/weights/pattern.h"

#include <string.h>

#include "frontend/syntax/expr.h"
#include "ir/support/buf.h"

#define MATCH_BUDGET 20000 /* calls of match_from in one match */

struct parser {
	struct arena *arena;
	struct diag_context *cx;
	const struct yaml_node *node;
	bool is_pattern;
	struct weight_template *out;
};

/* Reports an error at `len` bytes from byte `at` of the name. Returns false. */
static bool report(const struct parser *p, size_t at, size_t len, const char *what)
{
	diag_error(p->cx, yaml_loc_at(p->node, at, len), DIAG_MAP, "'%.200s': %s", p->node->text, what);
	return false;
}

/* Adds a choice `from=to` or `from` to a capture. `to` may be empty, `from` not: captures have a character at least. */
static bool add_choice(const struct parser *p, struct weight_piece *piece, const char *s, size_t n)
{
	const char *equals = memchr(s, '=', n);
	size_t from = equals == NULL ? n : (size_t)(equals - s);
	struct weight_choice *grown =
	        arena_grow(p->arena, piece->choices, piece->n_choices, piece->n_choices + 1, sizeof(*grown));
	if (grown == NULL || arena_failed(p->arena))
		return false;
	if (from == 0)
		return report(p, (size_t)(s - p->node->text), n == 0 ? 1 : n,
		              "a choice is empty; write {x:a=b,c}");
	piece->choices = grown;
	struct weight_choice *c = &grown[piece->n_choices++];
	c->from = arena_strndup(p->arena, s, from);
	c->to = equals == NULL ? c->from : arena_strndup(p->arena, equals + 1, n - from - 1);
	for (size_t i = 0; i + 1 < piece->n_choices; i++) {
		if (strcmp(grown[i].from, c->from) == 0)
			return report(p, (size_t)(s - p->node->text), n, "a choice is given twice");
	}
	return true;
}

/* Adds the choices of a capture: `a=b,c=d`, `a,c`, or `gamma_beta`, the names of a layer norm's weight and bias in old
   checkpoints of TensorFlow. */
static bool parse_choices(const struct parser *p, struct weight_piece *piece, const char *s, size_t n)
{
	static const char gamma_beta[] = "weight=gamma,bias=beta";
	if (p->is_pattern)
		return report(p, (size_t)(s - p->node->text), n,
		              "a list of choices belongs into the source, not the pattern");
	piece->restricted = true;
	if (n == strlen("gamma_beta") && memcmp(s, "gamma_beta", n) == 0) {
		s = gamma_beta;
		n = strlen(gamma_beta);
	}
	for (const char *end = s + n;; s++) {
		size_t len = 0;
		while (s + len < end && s[len] != ',')
			len++;
		if (!add_choice(p, piece, s, len))
			return false;
		s += len;
		if (s == end)
			return true;
	}
}

static struct weight_piece *add_piece(const struct parser *p)
{
	return arena_list_push(p->arena, (void **)&p->out->pieces, &p->out->n, &p->out->cap,
	                       sizeof(struct weight_piece));
}

/* Adds the string between captures; none if it is empty. A '}' in it was opened by no '{'. */
static bool add_literal(const struct parser *p, const char *s, size_t n)
{
	struct weight_piece *piece = n == 0 ? NULL : add_piece(p);
	if (n == 0)
		return true;
	if (memchr(s, '}', n) != NULL)
		return report(p, (size_t)(s - p->node->text), n, "a '}' has no '{'");
	if (piece == NULL)
		return false;
	piece->text = arena_strndup(p->arena, s, n);
	piece->len = n;
	return true;
}

/* Adds a capture, the string between braces: NAME or NAME:choices. Their number is limited to the array that a match
   fills. */
static bool add_capture(const struct parser *p, const char *s, size_t n)
{
	struct weight_piece *piece = add_piece(p);
	const char *colon = memchr(s, ':', n);
	size_t len = colon == NULL ? n : (size_t)(colon - s);
	if (piece == NULL)
		return false;
	piece->capture = arena_strndup(p->arena, s, len);
	if (!expr_is_name(piece->capture))
		return report(p, (size_t)(s - p->node->text), n == 0 ? 1 : n, "braces hold a name: {i}");
	if (++p->out->n_captures > WEIGHT_CAPTURES_MAX)
		return report(p, (size_t)(s - p->node->text), n, "too many braces");
	return colon == NULL || parse_choices(p, piece, colon + 1, n - len - 1);
}

/* Splits a name into literals and captures {NAME} or {NAME:choices}. Only a template has choices: they restrict and
 * translate the string that the pattern has captured. WEIGHT_NAME_MAX is a limit of the language. */
bool weight_template_parse(struct arena *a, struct diag_context *cx, const struct yaml_node *node,
                           bool is_pattern, struct weight_template *out)
{
	struct parser p = {a, cx, node, is_pattern, out};
	*out = (struct weight_template){.node = node};
	if (node->len > WEIGHT_NAME_MAX || node->len == 0)
		return report(&p, 0, 1, node->len == 0 ? "a name is empty" : "the name is too long");
	for (const char *s = node->text; *s != '\0';) {
		const char *open = strchr(s, '{');
		size_t literal = open == NULL ? strlen(s) : (size_t)(open - s);
		if (!add_literal(&p, s, literal))
			return false;
		if (open == NULL)
			break;
		const char *close = strchr(open, '}');
		if (close == NULL)
			return report(&p, (size_t)(open - node->text), 1, "a '{' has no '}'");
		if (!add_capture(&p, open + 1, (size_t)(close - open - 1)))
			return false;
		s = close + 1;
	}
	return !arena_failed(a);
}

bool weight_template_has(const struct weight_template *t, const char *capture)
{
	for (size_t i = 0; i < t->n; i++) {
		if (t->pieces[i].capture != NULL && strcmp(t->pieces[i].capture, capture) == 0)
			return true;
	}
	return false;
}

/* ---- matching ---- */

static const struct weight_capture *find_capture(const struct weight_captures *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++) {
		if (strcmp(c->items[i].name, name) == 0)
			return &c->items[i];
	}
	return NULL;
}

/* The choice of a piece for the captured string; NULL: none. */
static const struct weight_choice *find_choice(const struct weight_piece *piece,
                                               const struct weight_capture *c)
{
	for (size_t i = 0; i < piece->n_choices; i++) {
		const char *from = piece->choices[i].from;
		if (strlen(from) == c->len && memcmp(from, c->text, c->len) == 0)
			return &piece->choices[i];
	}
	return NULL;
}

/* True: all restricted captures of the template have an allowed choice. */
static bool accepts(const struct weight_template *t, const struct weight_captures *captures)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct weight_piece *piece = &t->pieces[i];
		if (!piece->restricted)
			continue;
		const struct weight_capture *c = find_capture(captures, piece->capture);
		if (c == NULL || find_choice(piece, c) == NULL)
			return false;
	}
	return true;
}

/* State of one match. */
struct matcher {
	const struct weight_template *pattern;
	const struct weight_templates *allow;
	struct weight_captures *captures;
	unsigned budget;
	bool crosses_dots;
};

static bool match_from(struct matcher *m, size_t i, const char *text);

/* Matches a capture: a bound one (the same name again) by its string, else by growing lengths, of one character at
   least. Without a match it is unbound again. */
static bool match_capture(struct matcher *m, size_t i, const char *text)
{
	const struct weight_piece *piece = &m->pattern->pieces[i];
	const struct weight_capture *bound = find_capture(m->captures, piece->capture);
	if (bound != NULL)
		return strncmp(text, bound->text, bound->len) == 0 && match_from(m, i + 1, text + bound->len);
	struct weight_capture *c = &m->captures->items[m->captures->n++];
	*c = (struct weight_capture){piece->capture, text, 0};
	while (text[c->len] != '\0' && (m->crosses_dots || text[c->len] != '.') && m->budget > 0) {
		c->len++;
		if (match_from(m, i + 1, text + c->len))
			return true;
	}
	m->captures->n--;
	return false;
}

/* Matches pieces from index i on against all of `text`, with backtracking. Templates are asked at the end, when all
   captures are bound: a choice that one does not have makes the search go on. */
static bool match_from(struct matcher *m, size_t i, const char *text)
{
	if (m->budget == 0)
		return false;
	m->budget--;
	if (i == m->pattern->n) {
		for (size_t k = 0; text[0] == '\0' && k < m->allow->n; k++) {
			if (!accepts(m->allow->items[k], m->captures))
				return false;
		}
		return text[0] == '\0';
	}
	const struct weight_piece *piece = &m->pattern->pieces[i];
	if (piece->capture != NULL)
		return match_capture(m, i, text);
	return strncmp(text, piece->text, piece->len) == 0 && match_from(m, i + 1, text + piece->len);
}

bool weight_template_match(const struct weight_template *pattern, const struct weight_templates *allow,
                           const char *path, bool crosses_dots, struct weight_captures *out)
{
	struct matcher m = {pattern, allow, out, MATCH_BUDGET, crosses_dots};
	out->n = 0;
	return match_from(&m, 0, path);
}

const char *weight_template_fill(struct arena *a, const struct weight_template *t,
                                 const struct weight_captures *c)
{
	struct buf out;
	buf_init(&out);
	for (size_t i = 0; i < t->n; i++) {
		const struct weight_piece *piece = &t->pieces[i];
		if (piece->capture == NULL) {
			buf_bytes(&out, piece->text, piece->len);
			continue;
		}
		const struct weight_capture *capture = find_capture(c, piece->capture);
		const struct weight_choice *choice = capture == NULL ? NULL : find_choice(piece, capture);
		if (choice != NULL)
			buf_str(&out, choice->to);
		else if (capture != NULL)
			buf_bytes(&out, capture->text, capture->len);
	}
	if (buf_failed(&out))
		a->failed = true; /* callers check the arena alone */
	const char *text = arena_strndup(a, out.data, out.len);
	buf_destroy(&out);
	return text;
}
