/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees of regular expressions into automata. Characters that no set tells
 * apart are one class; a state is the list of places, the preferred first,
 * where a backtracking matcher would go on; a step knows the class of the next
 * character, so that looks at it cost nothing. A match that is preferred to
 * what is after it in the list ends that list.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/pattern.h"

#define PLACES_MAX  8000u
#define SETS_MAX    64u
#define CLASSES_MAX 250u
#define STATES_MAX  4000u
#define WORK_MAX    ((uint64_t)1 << 28)

enum step { STEP_CHAR, STEP_LOOK, STEP_SPLIT, STEP_GO, STEP_MATCH };
struct place {
	enum step step;
	bool negative;
	uint32_t set;  /* CHAR, LOOK */
	uint32_t a, b; /* SPLIT: a is preferred; GO: a */
};

struct state {
	uint32_t *places;
	uint32_t n, hash;
};

struct compiler {
	struct arena *arena;
	const char *why; /* sticky */
	uint64_t work;
	struct {
		struct place *items;
		size_t n, cap;
	} places;
	const struct pattern_set *sets[SETS_MAX];
	uint32_t n_sets;
	/* Characters from starts[i] on are of class of[i]. */
	uint32_t *starts, *of;
	size_t n_starts;
	uint64_t masks[CLASSES_MAX]; /* sets that the class belongs to */
	uint32_t n_classes;          /* the end of the text is one more */
	struct {
		struct state *items;
		size_t n, cap;
	} states;
	struct {
		uint16_t *items;
		size_t n, cap;
	} next;
	uint32_t *seen, *stack, *list; /* [places] */
	uint32_t round, n_list;
};

static bool refuse(struct compiler *c, const char *why)
{
	if (c->why == NULL)
		c->why = why;
	return false;
}

/* ---- places ---- */

static uint32_t put(struct compiler *c, struct place place)
{
	struct place *p = c->places.n < PLACES_MAX ? ARENA_PUSH(c->arena, &c->places) : NULL;
	if (p == NULL) {
		refuse(c, "it has more than 8000 steps with its repetitions written out");
		return 0;
	}
	*p = place;
	return (uint32_t)c->places.n - 1;
}

static uint32_t set_index(struct compiler *c, const struct pattern_set *s)
{
	for (uint32_t i = 0; i < c->n_sets; i++)
		if (c->sets[i]->n == s->n &&
		    (s->n == 0 || !memcmp(c->sets[i]->items, s->items, s->n * sizeof(*s->items))))
			return i;
	if (c->n_sets == SETS_MAX) {
		refuse(c, "it has too many sets of characters");
		return 0;
	}
	c->sets[c->n_sets] = s;
	return c->n_sets++;
}

static void emit(struct compiler *c, const struct pattern *n);

#define NO_PLACE UINT32_MAX

/* The split at `at` goes on with the child after it, or leaves for here. */
static void join(struct compiler *c, uint32_t at, bool lazy)
{
	struct place *p = &c->places.items[at];
	uint32_t inside = at + 1, behind = (uint32_t)c->places.n;
	p->a = lazy ? behind : inside;
	p->b = lazy ? inside : behind;
}

static void emit_any_number(struct compiler *c, const struct pattern *n)
{
	uint32_t split = put(c, (struct place){.step = STEP_SPLIT});
	emit(c, n->child);
	put(c, (struct place){.step = STEP_GO, .a = split});
	if (c->why == NULL)
		join(c, split, n->lazy);
}

/* X(X(X)?)?: leaving one leaves all. Until that place is known, each split holds the one before. */
static void emit_at_most(struct compiler *c, const struct pattern *n, uint32_t most)
{
	uint32_t last = NO_PLACE;
	for (uint32_t i = 0; i < most && c->why == NULL; i++) {
		last = put(c, (struct place){.step = STEP_SPLIT, .a = last});
		emit(c, n->child);
	}
	while (c->why == NULL && last != NO_PLACE) {
		uint32_t before = c->places.items[last].a;
		join(c, last, n->lazy);
		last = before;
	}
}

static bool may_be_nothing(const struct pattern *n)
{
	bool all = true, any = false;
	for (const struct pattern *child = n->child; child != NULL; child = child->next) {
		bool nothing = may_be_nothing(child);
		all = all && nothing;
		any = any || nothing;
	}
	switch (n->kind) {
	case PATTERN_SET: return false;
	case PATTERN_LOOK: return true;
	case PATTERN_CONCAT: return all;
	case PATTERN_ANY_OF: return any;
	case PATTERN_REPEAT: return any || n->least == 0;
	}
	return true;
}

/* Matchers do not agree on what follows a repetition that was nothing. */
static void emit_repeat(struct compiler *c, const struct pattern *n)
{
	if (n->most > 1 && may_be_nothing(n->child))
		refuse(c, "more than one of what may be nothing");
	for (uint32_t i = 0; i < n->least && c->why == NULL; i++)
		emit(c, n->child);
	if (n->most == UINT32_MAX)
		emit_any_number(c, n);
	else
		emit_at_most(c, n, n->most - n->least);
}

static void emit_any_of(struct compiler *c, const struct pattern *n)
{
	struct {
		uint32_t *items;
		size_t n, cap;
	} ends = {0};
	for (const struct pattern *child = n->child; child != NULL && c->why == NULL; child = child->next) {
		uint32_t split = child->next != NULL ? put(c, (struct place){.step = STEP_SPLIT}) : 0;
		emit(c, child);
		if (child->next == NULL || c->why != NULL)
			break;
		uint32_t *end = ARENA_PUSH(c->arena, &ends);
		uint32_t go = put(c, (struct place){.step = STEP_GO});
		if (end == NULL || c->why != NULL) {
			refuse(c, "no memory");
			return;
		}
		*end = go;
		c->places.items[split].a = split + 1;
		c->places.items[split].b = (uint32_t)c->places.n;
	}
	for (size_t i = 0; c->why == NULL && i < ends.n; i++)
		c->places.items[ends.items[i]].a = (uint32_t)c->places.n;
}

static void emit(struct compiler *c, const struct pattern *n)
{
	struct place p = {.step = n->kind == PATTERN_SET ? STEP_CHAR : STEP_LOOK, .negative = n->negative};
	switch (n->kind) {
	case PATTERN_SET:
	case PATTERN_LOOK:
		p.set = set_index(c, &n->set);
		put(c, p);
		break;
	case PATTERN_CONCAT:
		for (const struct pattern *child = n->child; child != NULL && c->why == NULL;
		     child = child->next)
			emit(c, child);
		break;
	case PATTERN_ANY_OF: emit_any_of(c, n); break;
	case PATTERN_REPEAT: emit_repeat(c, n); break;
	}
}

/* ---- classes of characters ---- */

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* Every character at which a set begins, or after which one ends; and where ASCII ends. */
static bool find_starts(struct compiler *c)
{
	size_t n = 2, kept = 0;
	for (uint32_t i = 0; i < c->n_sets; i++)
		n += 2 * c->sets[i]->n;
	c->starts = ARENA_ARRAY(c->arena, uint32_t, n);
	c->of = ARENA_ARRAY(c->arena, uint32_t, n);
	if (c->starts == NULL || c->of == NULL)
		return refuse(c, "no memory");
	size_t at = 0;
	c->starts[at++] = 0;
	c->starts[at++] = 0x80;
	for (uint32_t i = 0; i < c->n_sets; i++) {
		for (size_t k = 0; k < c->sets[i]->n; k++) {
			c->starts[at++] = c->sets[i]->items[k].from;
			c->starts[at++] = c->sets[i]->items[k].to + 1;
		}
	}
	qsort(c->starts, n, sizeof(*c->starts), compare);
	for (size_t i = 0; i < n; i++)
		if ((kept == 0 || c->starts[kept - 1] != c->starts[i]) && c->starts[i] <= PATTERN_CHAR_LAST)
			c->starts[kept++] = c->starts[i];
	c->n_starts = kept;
	return true;
}

static bool find_classes(struct compiler *c)
{
	if (!find_starts(c))
		return false;
	for (size_t i = 0; i < c->n_starts; i++) {
		uint64_t mask = 0;
		uint32_t k = 0;
		for (uint32_t s = 0; s < c->n_sets; s++)
			mask |= pattern_set_has(c->sets[s], c->starts[i]) ? (uint64_t)1 << s : 0;
		while (k < c->n_classes && c->masks[k] != mask)
			k++;
		if (k == CLASSES_MAX)
			return refuse(c, "it tells too many classes of characters apart");
		c->masks[k] = mask;
		c->n_classes = k == c->n_classes ? k + 1 : c->n_classes;
		c->of[i] = k;
	}
	size_t kept = 0; /* neighbours of one class are one range, but for the end of ASCII */
	for (size_t i = 0; i < c->n_starts; i++) {
		if (kept && c->of[kept - 1] == c->of[i] && c->starts[i] != 0x80)
			continue;
		c->starts[kept] = c->starts[i];
		c->of[kept++] = c->of[i];
	}
	c->n_starts = kept;
	return true;
}

/* ---- states ---- */

static uint32_t state_of(struct compiler *c, const uint32_t *places, uint32_t n)
{
	uint32_t hash = 2166136261u;
	for (uint32_t i = 0; i < n; i++)
		hash = (hash ^ places[i]) * 16777619u;
	for (uint32_t i = 0; i < c->states.n; i++) {
		const struct state *s = &c->states.items[i];
		if (s->hash == hash && s->n == n && !memcmp(s->places, places, n * sizeof(*places)))
			return i;
	}
	struct state *s = c->states.n < STATES_MAX ? ARENA_PUSH(c->arena, &c->states) : NULL;
	uint32_t *copy = ARENA_ARRAY(c->arena, uint32_t, n + 1);
	if (s == NULL || copy == NULL) {
		refuse(c, "its automaton is too large");
		return 0;
	}
	memcpy(copy, places, n * sizeof(*places));
	*s = (struct state){copy, n, hash};
	return (uint32_t)c->states.n - 1;
}

static bool holds(const struct compiler *c, const struct place *p, uint32_t class)
{
	bool in = class < c->n_classes && c->masks[class] >> p->set & 1;
	return in != p->negative;
}

/* Follows one place to those that read characters, into the list; true: it comes to the end of the
 * expression. */
static bool follow(struct compiler *c, uint32_t place, uint32_t class)
{
	uint32_t depth = 0;
	c->stack[depth++] = place;
	while (depth) {
		uint32_t at = c->stack[--depth];
		const struct place *p = &c->places.items[at];
		if (c->seen[at] == c->round)
			continue;
		c->seen[at] = c->round;
		c->work++;
		switch (p->step) {
		case STEP_CHAR:
			if (holds(c, p, class))
				c->list[c->n_list++] = at + 1;
			break;
		case STEP_LOOK:
			if (holds(c, p, class))
				c->stack[depth++] = at + 1;
			break;
		case STEP_SPLIT:
			c->stack[depth++] = p->b;
			c->stack[depth++] = p->a;
			break;
		case STEP_GO: c->stack[depth++] = p->a; break;
		case STEP_MATCH: return true;
		}
	}
	return false;
}

/* What a state does when a character of the class follows. */
static bool add_step(struct compiler *c, uint32_t state, uint32_t class)
{
	bool matches = false;
	const struct state *s = &c->states.items[state];
	c->round++;
	c->n_list = 0;
	for (uint32_t i = 0; i < s->n && !matches; i++)
		matches = follow(c, s->places[i], class);
	uint32_t to = c->n_list ? state_of(c, c->list, c->n_list) : TFMC_TOK_A_DEAD;
	if (!ARENA_ADDED(c->arena, &c->next, (uint16_t)(to | (matches ? TFMC_TOK_A_MATCH : 0u))))
		return refuse(c, "no memory");
	if (matches && state == 0)
		return refuse(c, "it may match nothing");
	if (c->work > WORK_MAX)
		return refuse(c, "its automaton is too large");
	return c->why == NULL;
}

static bool find_states(struct compiler *c)
{
	size_t n = c->places.n;
	uint32_t first = 0;
	c->seen = ARENA_ARRAY(c->arena, uint32_t, n);
	c->stack = ARENA_ARRAY(c->arena, uint32_t, 2 * n + 2);
	c->list = ARENA_ARRAY(c->arena, uint32_t, n);
	if (c->seen == NULL || c->stack == NULL || c->list == NULL)
		return refuse(c, "no memory");
	(void)state_of(c, &first, 1);
	for (uint32_t s = 0; c->why == NULL && s < c->states.n; s++)
		for (uint32_t class = 0; class <= c->n_classes; class ++)
			if (!add_step(c, s, class))
				return false;
	return c->why == NULL;
}

/* ---- bytes ---- */

static struct tokenizer_string write(struct compiler *c)
{
	struct buf out;
	buf_init(&out);
	buf_u32le(&out, (uint32_t)c->states.n);
	buf_u32le(&out, c->n_classes + 1);
	buf_u32le(&out, (uint32_t)c->n_starts);
	for (size_t i = 0; i < c->n_starts; i++)
		buf_u32le(&out, c->starts[i]);
	for (uint32_t cp = 0, i = 0; cp < 128; cp++) {
		while (i + 1 < c->n_starts && c->starts[i + 1] <= cp)
			i++;
		buf_char(&out, (char)c->of[i]);
	}
	for (size_t i = 0; i < c->n_starts; i++)
		buf_char(&out, (char)c->of[i]);
	buf_fill(&out, 0, (0 - out.len) % 4);
	for (size_t i = 0; i < c->next.n; i++) {
		buf_char(&out, (char)(c->next.items[i] & 0xff));
		buf_char(&out, (char)(c->next.items[i] >> 8));
	}
	struct tokenizer_string bytes = {NULL, out.len};
	char *copy = buf_failed(&out) ? NULL : arena_alloc(c->arena, out.len);
	if (copy != NULL)
		memcpy(copy, out.data, out.len);
	bytes.text = copy;
	buf_destroy(&out);
	return copy != NULL ? bytes : (struct tokenizer_string){NULL, 0};
}

struct tokenizer_string pattern_compile(struct arena *a, const char *text, const char **why)
{
	struct compiler *c = ARENA_NEW(a, struct compiler);
	const struct pattern *tree = pattern_parse(a, text, why);
	struct tokenizer_string none = {NULL, 0};
	if (c == NULL || tree == NULL)
		return none;
	c->arena = a;
	emit(c, tree);
	put(c, (struct place){.step = STEP_MATCH});
	bool ok = c->why == NULL && find_classes(c) && find_states(c);
	*why = c->why != NULL ? c->why : "no memory";
	return ok ? write(c) : none;
}
