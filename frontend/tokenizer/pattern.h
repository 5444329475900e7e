/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions of tokenizers: parsed into a tree over character sets, compiled to a deterministic
 * automaton that libtfmctok runs (runtime/tokenizer/format.h). Matches are those of a backtracking matcher
 * with Oniguruma's syntax; expressions that no automaton can express are rejected with the reason.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_PATTERN_H
#define TFMC_FRONTEND_TOKENIZER_PATTERN_H

#include "frontend/tokenizer/build.h"

/* ---- sets of characters ---- */

/* An invalid UTF-8 byte counts as one more character, without a category. */
#define PATTERN_CHAR_LAST 0x110000u

/* A range of characters. */
struct pattern_range {
	uint32_t from, to; /* inclusive */
};

/* A set of characters. */
struct pattern_set {
	struct pattern_range *items; /* sorted, disjoint and not adjacent after normalization */
	size_t n, cap;
};

/* Adds a range; false: no memory. */
bool pattern_set_add(struct arena *a, struct pattern_set *s, uint32_t from, uint32_t to);
bool pattern_set_union(struct arena *a, struct pattern_set *s, const struct pattern_set *other);
/* Sorts and merges the ranges. */
void pattern_set_normalize(struct pattern_set *s);
/* For normalized sets. */
bool pattern_set_complement(struct arena *a, struct pattern_set *s);
bool pattern_set_intersect(struct arena *a, struct pattern_set *s, const struct pattern_set *other);
/* True: the normalized set contains the character. */
bool pattern_set_has(const struct pattern_set *s, uint32_t cp);
/* Adds both cases of ASCII letters, and what folds to them; false: other characters would have to fold. */
bool pattern_set_fold(struct arena *a, struct pattern_set *s);
/* Consecutive characters of one general category. */
struct pattern_run {
	uint32_t from, to;
	unsigned category;
};
struct pattern_runs {
	struct pattern_run *items; /* sorted; computed at the first use */
	size_t n, cap;
};
/* Adds \p{NAME}: general categories and Han; false: unknown. */
bool pattern_set_property(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, const char *name,
                          size_t n);
/* Adds \s, \d, \w or \h; false for other names. */
bool pattern_set_class(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, char name);

/* ---- trees ---- */

enum pattern_kind {
	PATTERN_SET,         /* one character of the set */
	PATTERN_LOOKAHEAD,   /* empty, if a character of the set follows; negative: if none does */
	PATTERN_CONCAT,      /* children in sequence; no children: empty */
	PATTERN_ALTERNATION, /* ordered alternatives */
	PATTERN_REPEAT,      /* child repeated */
};

/* A node of the tree. */
struct pattern {
	enum pattern_kind kind;
	struct pattern_set set;
	bool negative, lazy;
	uint32_t min, max; /* UINT32_MAX: unbounded */
	struct pattern *child, *next;
};

/* Parses an expression; NULL, and the reason in *why. */
struct pattern *pattern_parse(struct arena *a, const char *text, const char **why);
/* Compiles an expression to the packed automaton; n = 0, and the reason in *why. */
struct tokenizer_string pattern_compile(struct arena *a, const char *text, const char **why);

#endif
