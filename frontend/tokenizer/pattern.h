/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions of tokenizers: parsed into a tree over sets of characters,
 * compiled into an automaton that libtfmctok runs (runtime/tokenizer/format.h).
 * What matches is what a backtracking matcher in the syntax of Oniguruma finds;
 * expressions that no automaton can follow are refused with the reason.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_PATTERN_H
#define TFMC_FRONTEND_TOKENIZER_PATTERN_H

#include "frontend/tokenizer/build.h"

/* ---- sets of characters ---- */

/* A byte that is no UTF-8 counts as one more character, which belongs to no category. */
#define PATTERN_CHAR_LAST 0x110000u

struct pattern_range {
	uint32_t from, to; /* both belong to it */
};

struct pattern_set {
	struct pattern_range *items; /* in order, with gaps between, after pattern_set_tidy */
	size_t n, cap;
};

bool pattern_set_add(struct arena *a, struct pattern_set *s, uint32_t from, uint32_t to);
bool pattern_set_union(struct arena *a, struct pattern_set *s, const struct pattern_set *other);
void pattern_set_tidy(struct pattern_set *s);
/* Of tidy sets. */
bool pattern_set_complement(struct arena *a, struct pattern_set *s);
bool pattern_set_intersect(struct arena *a, struct pattern_set *s, const struct pattern_set *other);
bool pattern_set_has(const struct pattern_set *s, uint32_t cp);
/* Letters of ASCII in both cases, with what folds to them; false when other characters would have to fold. */
bool pattern_set_fold(struct arena *a, struct pattern_set *s);
/* Characters of one category that follow each other. */
struct pattern_run {
	uint32_t from, to;
	unsigned category;
};
struct pattern_runs {
	struct pattern_run *items; /* in order; empty until a name is asked for */
	size_t n, cap;
};
/* \p{NAME}: categories and Han; false: not known. */
bool pattern_set_property(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, const char *name,
                          size_t n);
/* 's' 'd' 'w' 'h', false for others. */
bool pattern_set_class(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, char name);

/* ---- trees ---- */

enum pattern_kind {
	PATTERN_SET,    /* one character of the set */
	PATTERN_LOOK,   /* nothing, where a character of the set follows; negative: where none does */
	PATTERN_CONCAT, /* children in turn; without any: nothing */
	PATTERN_ANY_OF, /* the first child that leads to a match */
	PATTERN_REPEAT, /* least to most times the child */
};

struct pattern {
	enum pattern_kind kind;
	struct pattern_set set;
	bool negative, lazy;
	uint32_t least, most; /* UINT32_MAX: any number */
	struct pattern *child, *next;
};

/* NULL with *why: what is not supported, or wrong. */
struct pattern *pattern_parse(struct arena *a, const char *text, const char **why);
/* The automaton as bytes; n = 0 with *why. */
struct tokenizer_string pattern_compile(struct arena *a, const char *text, const char **why);

#endif
