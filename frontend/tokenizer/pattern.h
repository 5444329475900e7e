/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions of tokenizers: parsed into a tree over character sets, compiled to a deterministic
 * automaton that libtfmctok runs (runtime/tokenizer/format.h). Matches are those of a backtracking matcher
 * with Oniguruma's syntax; expressions that no automaton can express are rejected with the reason.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_PATTERN_H
#define TFMC_FRONTEND_TOKENIZER_PATTERN_H

#include "frontend/tokenizer/build.h"

/* ---- expressions of GGUF files and ByteLevel, which have names there ---- */

#define REGEX_CONTRACTED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REGEX_BLANKS     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REGEX_UPPER      "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define REGEX_LOWER      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define REGEX_GPT2       "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* Llama 3, Qwen and relatives; digits: of a number. */
#define REGEX_WORDS(digits)                                       \
	REGEX_CONTRACTED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
	                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" REGEX_BLANKS
/* Qwen 3.5: letters may be followed by marks. */
#define REGEX_MARKS                                                      \
	REGEX_CONTRACTED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}" \
	                 "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" REGEX_BLANKS
/* o200k: words by letter case; contracted: after a word. */
#define REGEX_CASED(contracted, digits)                                                 \
	"[^\\r\\n\\p{L}\\p{N}]?" REGEX_UPPER "*" REGEX_LOWER "+" contracted             \
	"|[^\\r\\n\\p{L}\\p{N}]?" REGEX_UPPER "+" REGEX_LOWER "*" contracted "|" digits \
	"| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" REGEX_BLANKS
#define REGEX_BLOOM \
	" ?[^(\\s|[.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c])]+"

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

/* True: the normalized set contains the character. */
bool pattern_set_has(const struct pattern_set *s, uint32_t cp);

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
