/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splitters: each passes its parts to the next one, the last one passes words to the model. The split
 * behavior says how matches and the text between them are combined.
 */
#include <string.h>

#include "runtime/tokenizer/tok.h"

/* A part of the text whose end is not yet known. */
struct part {
	struct tok_run *r;
	uint32_t next;
	const char *s;
	size_t from, to;
};

/* Passes the collected part to the next splitter. */
static void flush_part(struct part *p)
{
	if (p->to > p->from)
		tok_split(p->r, p->next, p->s + p->from, p->to - p->from);
	if (p->to)
		p->r->is_start = false;
	p->from = p->to;
}

/* Adds the piece [p->to, end), a match or the text between two. */
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

/* End of the match at `at`, or of the text before the next match; *match: length of a match that was found
 * in advance, kept for the next call. */
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

/* Splits by matches with a behavior. */
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

/* Splits by a scanner. */
static void split_scan(struct tok_run *r, const struct tfmc_tok_op *op, uint32_t next, const char *s,
                       size_t n)
{
	for (size_t at = 0; at < n && !r->failed;) {
		bool is_part;
		size_t len = tok_next_piece(op, s + at, n - at, &is_part);
		if (is_part)
			tok_split(r, next, s + at, len);
		r->is_start = false;
		at += len;
	}
}

static bool begins_with(const char *s, size_t n, const char *with, size_t n_with)
{
	return n >= n_with && !memcmp(s, with, n_with);
}

/* Replaces spaces by the mark, which may also be prepended. */
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

/* Prepends a space unless the part begins with one. */
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
	else if (op->kind < TFMC_TOK_MATCH_TEXT)
		split_scan(r, op, level + 1, s, n);
	else
		split_matches(r, op, level + 1, s, n);
}
