/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splitters: each passes its parts to the next one, the last one passes words to the model. The split
 * behavior says how matches and the text between them are combined.
 *
 * Patterns are deterministic automata (format.h): characters have classes, of which the last one stands for the end of
 * the text; a step gives the next state, DEAD if no match can follow, and whether a match ends before the character
 * just read. Suffix sets: for each position the set of states from which a match still follows, as an index of
 * distinct sets. A level is the index of a splitter.
 */
#include "runtime/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

/* ---- automata ---- */

/*
 * Matching of regular expressions by deterministic automata: one walk over the characters finds the match at
 * a position. Walks that fail far beyond their match would make repeated matching quadratic (`\s+$`). So the
 * first walk that goes FAR beyond its match computes once, from the end of the text backwards, from which
 * states a match still follows at each position; later walks stop as soon as none does.
 */

#define MAX_OVERSHOOT  32u        /* bytes that a walk may go beyond its match */
#define NOT_FIRST_BYTE UINT16_MAX /* a position inside of a character */

/* Maximum number of distinct sets of states; few occur in practice. */
#define SETS_MAX  256u
#define SET_ALL   0u /* all states: used beyond SETS_MAX, prunes nothing */
#define SET_EMPTY 1u

/* Tables of a packed automaton, see format.h. */
struct automaton {
	uint32_t states, classes, ranges;
	const uint32_t *starts;
	const unsigned char *ascii, *of;
	const uint16_t *steps;
};

/* Size in bytes of an automaton; all arguments are below 2^16. */
static uint64_t automaton_bytes(uint64_t states, uint64_t classes, uint64_t ranges)
{
	return ((12 + 4 * ranges + 128 + ranges + 3) & ~UINT64_C(3)) + 2 * states * classes;
}

/* Pointers to the tables of a packed automaton: three u32, the begins of the ranges, classes of ASCII and of the
 * ranges, steps. */
static struct automaton automaton_view(const char *a)
{
	const uint32_t *head = (const void *)a;
	struct automaton v = {head[0], head[1], head[2], head + 3, NULL, NULL, NULL};
	v.ascii = (const unsigned char *)(v.starts + v.ranges);
	v.of = v.ascii + 128;
	v.steps = (const void *)(a + automaton_bytes(0, 0, v.ranges));
	return v;
}

/* Checks sizes, ascending ranges, classes and next states once, so that matching needs no checks. */
bool tok_automaton_is_valid(const char *a, uint64_t offset, uint64_t n)
{
	uint32_t head[3];
	if (offset % 4 || n < sizeof(head))
		return false;
	memcpy(head, a, sizeof(head));
	if (head[0] < 1 || head[0] >= TFMC_TOK_A_DEAD || head[1] < 2 || head[1] > 256 || head[2] < 1 ||
	    head[2] > 1u << 16 || automaton_bytes(head[0], head[1], head[2]) != n)
		return false;
	struct automaton v = automaton_view(a);
	bool ok = v.starts[0] == 0;
	for (uint32_t i = 1; ok && i < v.ranges; i++)
		ok = v.starts[i] > v.starts[i - 1];
	for (uint32_t i = 0; ok && i < 128 + v.ranges; i++)
		ok = v.ascii[i] < v.classes;
	for (uint64_t i = 0; ok && i < (uint64_t)v.states * v.classes; i++) {
		uint32_t to = v.steps[i] & TFMC_TOK_A_DEAD;
		ok = to < v.states || to == TFMC_TOK_A_DEAD;
	}
	return ok;
}

/* Class of a character: a table for ASCII, binary search over ranges. */
static uint32_t char_class(const struct automaton *v, uint32_t cp)
{
	uint32_t low = 0, high = v->ranges;
	if (cp < 128)
		return v->ascii[cp];
	while (high - low > 1) {
		uint32_t mid = (low + high) / 2;
		if (v->starts[mid] <= cp)
			low = mid;
		else
			high = mid;
	}
	return v->of[low];
}

/* The character by which byte-level vocabularies (GPT-2) write a byte: printable Latin-1 is itself, the other 68 bytes
 * are U+0100 and following, in order. */
static uint32_t tok_byte_letter(unsigned char b)
{
	if ((b >= 33 && b <= 126) || (b >= 161 && b != 173))
		return b;
	return 256u + (b <= 32 ? b : b <= 160 ? b - 127u + 33u : 67u);
}

/* Class of the character at s, of the end of the text for n = 0. Returns its length. With LETTERS the pattern is for
 * text in GPT-2 letters, one for each byte. An invalid byte has the class beyond the last character. */
static size_t next_class(const struct automaton *v, uint32_t flags, const char *s, size_t n, uint32_t *class)
{
	uint32_t cp;
	size_t len = 1;
	if (n == 0) {
		*class = v->classes - 1;
		return 0;
	}
	if (flags & TFMC_TOK_LETTERS)
		cp = tok_byte_letter((unsigned char)s[0]);
	else
		len = tok_decode(s, n, &cp);
	*class = char_class(v, cp & TOK_INVALID ? 0x110000u : cp);
	return len;
}

/* ---- backward analysis ---- */

static uint64_t *set_at(const struct tok_suffix_sets *a, const struct automaton *v, size_t id)
{
	return a->sets + id * ((v->states + 63) / 64);
}

static bool set_contains(const struct tok_suffix_sets *a, const struct automaton *v, size_t id,
                         uint32_t state)
{
	return set_at(a, v, id)[state / 64] >> state % 64 & 1;
}

/* Allocates the sets of states, of which SET_ALL and SET_EMPTY exist, and `before`, a cache of predecessor_set (index
 * + 1; 0: not yet computed). False: no memory. */
static bool alloc_sets(struct tok_suffix_sets *a, const struct automaton *v)
{
	size_t bytes = (v->states + 63) / 64 * sizeof(*a->sets);
	a->sets = calloc(SETS_MAX + 1, bytes); /* one more for the candidate set */
	a->before = calloc((size_t)SETS_MAX * v->classes, sizeof(*a->before));
	if (!a->sets || !a->before)
		return false;
	memset(set_at(a, v, SET_ALL), 0xff, bytes);
	a->n_sets = SET_EMPTY + 1;
	return true;
}

/* Index of the candidate set, which is at index n_sets: an equal one, a new one, or SET_ALL when there are too many,
 * which prunes nothing but is never wrong. */
static uint16_t intern_set(struct tok_suffix_sets *a, const struct automaton *v)
{
	size_t bytes = (v->states + 63) / 64 * sizeof(*a->sets);
	const uint64_t *candidate = set_at(a, v, a->n_sets);
	for (size_t id = 0; id < a->n_sets; id++)
		if (!memcmp(set_at(a, v, id), candidate, bytes))
			return (uint16_t)id;
	return a->n_sets == SETS_MAX ? SET_ALL : (uint16_t)a->n_sets++;
}

/* Set of states from which a match follows before a character of `class`, given the set `id` after the
 * character. */
static uint16_t predecessor_set(struct tok_suffix_sets *a, const struct automaton *v, uint16_t id,
                                uint32_t class)
{
	uint16_t *known = &a->before[id * v->classes + class];
	if (*known)
		return (uint16_t)(*known - 1);
	uint64_t *candidate = set_at(a, v, a->n_sets);
	memset(candidate, 0, (v->states + 63) / 64 * sizeof(*candidate));
	for (uint32_t state = 0; state < v->states; state++) {
		uint32_t next_class = v->steps[state * v->classes + class], to = next_class & TFMC_TOK_A_DEAD;
		if (next_class & TFMC_TOK_A_MATCH || (to != TFMC_TOK_A_DEAD && set_contains(a, v, id, to)))
			candidate[state / 64] |= UINT64_C(1) << state % 64;
	}
	a->n_steps += v->states;
	uint16_t found = intern_set(a, v);
	*known = (uint16_t)(found + 1);
	return found;
}

/* Computes the sets for all positions of s[from .. n), first the class of each character (in the same array), then the
 * sets from the end. False: no memory. */
static bool analyze_suffixes(struct tok_suffix_sets *a, const struct automaton *v, uint32_t flags,
                             const char *s, size_t n, size_t from)
{
	uint32_t class;
	if (n >= a->cap) {
		uint16_t *grown = n < SIZE_MAX / 4 ? realloc(a->at, (n + 1) * sizeof(*grown)) : NULL;
		if (!grown)
			return false;
		a->at = grown;
		a->cap = n + 1;
	}
	if (!a->sets && !alloc_sets(a, v))
		return false;
	for (size_t at = from, end; at < n; at = end) {
		end = at + next_class(v, flags, s + at, n - at, &class);
		for (size_t i = at; i < end; i++)
			a->at[i] = i == at ? (uint16_t) class : NOT_FIRST_BYTE;
	}
	uint16_t id = a->at[n] = predecessor_set(a, v, SET_EMPTY, v->classes - 1);
	for (size_t at = n; at-- > from;)
		if (a->at[at] != NOT_FIRST_BYTE)
			a->at[at] = id = predecessor_set(a, v, id, a->at[at]);
	a->n_steps += 2 * (n - from);
	a->is_known = true;
	a->from = from;
	return true;
}

/* ---- matches ---- */

/* Length of the match that begins at s[at]; 0: none. The longest one counts: the automaton goes on until no match can
 * follow. Without suffix sets that may be far beyond the match, so they are computed then. */
static size_t match_length(const struct automaton *v, uint32_t flags, struct tok_suffix_sets *a,
                           const char *s, size_t n, size_t at)
{
	uint32_t state = 0, class;
	size_t match = at, from = at;
	for (;;) {
		if (!a->is_known && at - match > MAX_OVERSHOOT && !analyze_suffixes(a, v, flags, s, n, at)) {
			a->failed = true;
			break;
		}
		if (a->is_known && at >= a->from && !set_contains(a, v, a->at[at], state))
			break;
		size_t len = next_class(v, flags, s + at, n - at, &class);
		uint32_t to = v->steps[state * v->classes + class];
		match = to & TFMC_TOK_A_MATCH ? at : match;
		state = to & TFMC_TOK_A_DEAD;
		a->n_steps++;
		if (state == TFMC_TOK_A_DEAD || len == 0)
			break;
		at += len;
	}
	return match - from;
}

void tok_suffix_sets_free(struct tok_suffix_sets *a)
{
	free(a->at);
	free(a->sets);
	free(a->before);
}

/* Positions where the first step is DEAD are passed without a walk. */
size_t tok_find_match(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op,
                      struct tok_suffix_sets *suffixes, const char *s, size_t n, size_t at, size_t *len)
{
	struct automaton v = automaton_view(t->texts + op->a);
	uint32_t flags = op->kind == TFMC_TOK_MATCH_PATTERN ? op->flags : 0, class;
	for (*len = 0; at < n && !suffixes->failed;) {
		size_t width = next_class(&v, flags, s + at, n - at, &class);
		suffixes->n_steps++;
		if ((v.steps[class] & TFMC_TOK_A_DEAD) != TFMC_TOK_A_DEAD)
			*len = match_length(&v, flags, suffixes, s, n, at);
		if (*len)
			return at;
		at += width;
	}
	return n;
}

/* ---- matches ---- */

static bool is_punctuation(uint32_t cp, unsigned c)
{
	return c & TOK_P || (cp > 32 && cp < 127 && !(c & (TOK_L | TOK_N)));
}

/* Whether a match of the operation may contain the character. */
static bool matches_char(const struct tfmc_tok_op *op, uint32_t cp)
{
	unsigned c = tok_class(cp);
	switch (op->kind) {
	case TFMC_TOK_MATCH_SPACE:
	case TFMC_TOK_MATCH_SPACES: return c & TOK_SPACE;
	case TFMC_TOK_MATCH_PUNCTUATION: return is_punctuation(cp, c);
	case TFMC_TOK_MATCH_DIGIT:
	case TFMC_TOK_MATCH_NUMBERS: return c & TOK_N;
	case TFMC_TOK_MATCH_DECIMAL: return c & TOK_ND;
	case TFMC_TOK_MATCH_DIGITS3: return cp >= '0' && cp <= '9';
	case TFMC_TOK_MATCH_NEWLINE: return cp == '\r' || cp == '\n';
	default: return false;
	}
}

/* Reads the character at s, or its first byte as a GPT-2 letter. */
static size_t next_char(const struct tfmc_tok_op *op, const char *s, size_t n, uint32_t *cp)
{
	if (!(op->flags & TFMC_TOK_LETTERS))
		return tok_decode(s, n, cp);
	*cp = tok_byte_letter((unsigned char)s[0]);
	return 1;
}

/* End of the piece at s: a match, which is a run of characters with the minimum and maximum of its kind, or the text
 * before one (*is_match). A run that is shorter than the minimum belongs to the text. */
static size_t next_chars_match(const struct tfmc_tok_op *op, const char *s, size_t n, bool *is_match)
{
	unsigned min, max;
	size_t at = 0;
	/* Minimum and maximum characters of a match. */
	min = op->kind == TFMC_TOK_MATCH_DIGITS3 ? 3 : 1;
	max = op->kind == TFMC_TOK_MATCH_DIGITS3 || op->kind == TFMC_TOK_MATCH_NUMBERS ? 3
	      : op->kind == TFMC_TOK_MATCH_SPACES                                      ? UINT32_MAX
	                                                                               : 1;
	while (at < n) {
		size_t end = at, len = 0;
		unsigned count = 0;
		uint32_t cp;
		for (; end < n && count < max; end += len, count++) {
			len = next_char(op, s + end, n - end, &cp);
			if (!matches_char(op, cp))
				break;
		}
		if (count >= min) {
			*is_match = at == 0;
			return at ? at : end;
		}
		at = count ? end : end + len;
	}
	*is_match = false;
	return n;
}

/* End of the piece at s for the expression \w+|[^\w\s]+, or of the white space before it (*is_match). */
static size_t next_words_match(const char *s, size_t n, bool *is_match)
{
	uint32_t cp;
	size_t at = tok_decode(s, n, &cp), len;
	unsigned c = tok_class(cp);
	bool word = tok_is_word(cp), space = c & TOK_SPACE && !word;
	*is_match = !space;
	for (; at < n; at += len) {
		len = tok_decode(s + at, n - at, &cp);
		c = tok_class(cp);
		bool w = tok_is_word(cp);
		if (w != word || (c & TOK_SPACE && !w) != space)
			break;
	}
	return at;
}

/* End of the piece at s: a match, or the text before one (*is_match), for operations without an automaton. */
static size_t tok_next_match(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s,
                             size_t n, bool *is_match)
{
	if (op->kind == TFMC_TOK_SPLIT_WORDS)
		return next_words_match(s, n, is_match);
	if (op->kind != TFMC_TOK_MATCH_TEXT)
		return next_chars_match(op, s, n, is_match);
	const char *a = t->texts + op->a;
	for (size_t at = 0; n - at >= op->n_a; at++) {
		const char *hit = memchr(s + at, a[0], n - at - op->n_a + 1);
		if (!hit)
			break;
		at = (size_t)(hit - s);
		if (!memcmp(hit, a, op->n_a)) {
			*is_match = at == 0;
			return at ? at : op->n_a;
		}
	}
	*is_match = false;
	return n;
}

/* ---- splitters ---- */

/* A part of the text whose end is not yet known. */
struct part {
	struct tok_run *r;
	uint32_t next;
	const char *s;
	size_t from, to;
};

/* Passes the collected part to the next splitter; an empty one is dropped. After any text, also if it was removed, the
 * next part is not the start of the text (is_start, for METASPACE). */
static void flush_part(struct part *p)
{
	if (p->to > p->from)
		tok_split(p->r, p->next, p->s + p->from, p->to - p->from);
	if (p->to)
		p->r->is_start = false;
	p->from = p->to;
}

/* Adds the piece [p->to, end), a match or the text between two, to the part, or passes the part on first, as the
 * behavior says (that of Hugging Face's Split). */
static void add_piece(struct part *p, size_t end, bool is_match, bool was_match, uint32_t behavior)
{
	switch ((enum tfmc_tok_behavior)behavior) {
	case TFMC_TOK_REMOVED:
		flush_part(p);
		p->to = end;
		if (is_match)
			p->from = end;
		break;
	case TFMC_TOK_ISOLATED:
		flush_part(p);
		p->to = end;
		break;
	case TFMC_TOK_WITH_PREVIOUS: /* a match belongs to the text before it */
		if (!is_match || was_match)
			flush_part(p);
		p->to = end;
		break;
	case TFMC_TOK_WITH_NEXT: /* a match belongs to the text after it */
		if (is_match || !was_match)
			flush_part(p);
		p->to = end;
		break;
	case TFMC_TOK_CONTIGUOUS:
		if (is_match != was_match)
			flush_part(p);
		p->to = end;
		break;
	case TFMC_TOK_N_BEHAVIORS: break;
	}
}

/* End of the match at `at`, or of the text before the next match; *match: length of a match that was found in advance,
 * kept for the next call, which begins there. */
static size_t next_match(struct tok_run *r, const struct tfmc_tok_op *op, const char *s, size_t n, size_t at,
                         size_t *match, bool *is_match)
{
	struct tok_suffix_sets *suffixes = &r->suffixes[op - r->t->split.items];
	size_t len = *match, from = len ? at : tok_find_match(r->t, op, suffixes, s, n, at, &len);
	r->failed = r->failed || suffixes->failed;
	*is_match = from == at;
	*match = *is_match ? 0 : len;
	return *is_match ? at + len : from;
}

/* Splits by matches with a behavior. INVERT: matches are the text, and the text between them the delimiters; words are
 * split so. The suffix sets of this splitter are of the text before. */
static void split_matches(struct tok_run *r, const struct tfmc_tok_op *op, uint32_t next, const char *s,
                          size_t n)
{
	struct part p = {r, next, s, 0, 0};
	bool is_words = op->kind == TFMC_TOK_SPLIT_WORDS, was = false;
	uint32_t behavior = is_words ? TFMC_TOK_REMOVED : op->flags & TFMC_TOK_BEHAVIOR_MASK;
	bool invert = is_words || op->flags & TFMC_TOK_INVERT;
	r->suffixes[next - 1].is_known = false;
	for (size_t at = 0, match = 0; at < n && !r->failed;) {
		bool is_match;
		if (op->kind == TFMC_TOK_MATCH_PATTERN)
			at = next_match(r, op, s, n, at, &match, &is_match);
		else
			at += tok_next_match(r->t, op, s + at, n - at, &is_match);
		is_match = is_match != invert;
		add_piece(&p, at, is_match, was, behavior);
		was = is_match;
	}
	flush_part(&p);
}

static bool begins_with(const char *s, size_t n, const char *with, size_t n_with)
{
	return n >= n_with && !memcmp(s, with, n_with);
}

/* Replaces spaces by the mark, which may also be prepended (flags 2: to each part, 1: at the start of the text), unless
 * the part begins with it or with a space, which becomes it. Splitting at marks is the next splitter's. level_limit:
 * bytes that splitters may still write, against texts that grow without end. */
static void metaspace(struct tok_run *r, const struct tfmc_tok_op *op, uint32_t level, const char *s,
                      size_t n)
{
	struct tok_text *out = &r->level[level];
	const char *mark = r->t->texts + op->a;
	bool leads = op->flags == 2 || (op->flags == 1 && r->is_start);
	tok_begin_rewrite(out, r->level_limit);
	if (leads && !begins_with(s, n, " ", 1) && !begins_with(s, n, mark, op->n_a))
		tok_append(out, mark, op->n_a);
	for (size_t at = 0; at < n;) {
		const char *space = memchr(s + at, ' ', n - at);
		size_t end = space ? (size_t)(space - s) : n;
		tok_append(out, s + at, end - at);
		if (space)
			tok_append(out, mark, op->n_a);
		at = end + (space != NULL);
	}
	tok_end_rewrite(r, out, &r->level_limit);
	if (!r->failed && out->n)
		tok_split(r, level + 1, out->data, out->n);
}

/* Prepends a space unless the part, which is not empty (tok_split), begins with one. */
static void prefix_space(struct tok_run *r, uint32_t level, const char *s, size_t n)
{
	struct tok_text *out = &r->level[level];
	if (s[0] == ' ') {
		tok_split(r, level + 1, s, n);
		return;
	}
	tok_begin_rewrite(out, r->level_limit);
	tok_append(out, " ", 1);
	tok_append(out, s, n);
	tok_end_rewrite(r, out, &r->level_limit);
	if (!r->failed)
		tok_split(r, level + 1, out->data, out->n);
}

/* A part that reaches the end of the list of splitters is a word. The functions for one kind of splitter pass
 * their parts to tok_split of the next level. */
void tok_split(struct tok_run *r, uint32_t level, const char *s, size_t n)
{
	if (n == 0 || r->failed)
		return;
	if (level == r->t->split.n) {
		tok_word(r, s, n);
		return;
	}
	const struct tfmc_tok_op *op = &r->t->split.items[level];
	if (op->kind == TFMC_TOK_METASPACE)
		metaspace(r, op, level, s, n);
	else if (op->kind == TFMC_TOK_PREFIX_SPACE)
		prefix_space(r, level, s, n);
	else
		split_matches(r, op, level + 1, s, n);
}
