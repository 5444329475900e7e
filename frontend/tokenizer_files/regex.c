/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions of splitters that the library has a scanner for, each by its text. An expression that is
 * not in the table is compiled to an automaton (json_text.c, split_regex).
 */
#include <string.h>

#include "frontend/tokenizer_files/json.h"

/* clang-format off: one part of an expression on each line */
#define CONTRACTED  "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CONTRACTED2 "'(?i:[sdmt]|ll|ve|re)"
#define CONTRACTED3 "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define LETTERS     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define PUNCTUATION "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define BLANKS      "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define POSSESSIVE(digits)                                    \
	CONTRACTED2 "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|" digits \
	            "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define CASED_1   "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
#define CASED_2   "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
#define CASED_END "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" BLANKS
#define GPT2_END  "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* clang-format on */

struct known {
	const char *regex;
	enum tfmc_tok_split kind;
	uint32_t flags;
};

static const struct known table[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d" GPT2_END, TFMC_TOK_SCAN_GPT2, 0},
        {"'(?:[sdmt]|ll|ve|re)" GPT2_END, TFMC_TOK_SCAN_GPT2, 0},
        {CONTRACTED LETTERS "|\\p{N}{1,3}" PUNCTUATION BLANKS, TFMC_TOK_SCAN_WORDS, TFMC_TOK_W_CASELESS | 3},
        {CONTRACTED3 LETTERS "|\\p{N}{1,3}" PUNCTUATION BLANKS, TFMC_TOK_SCAN_WORDS, TFMC_TOK_W_CASELESS | 3},
        {CONTRACTED LETTERS "|\\p{N}" PUNCTUATION BLANKS, TFMC_TOK_SCAN_WORDS, TFMC_TOK_W_CASELESS | 1},
        {CONTRACTED3 LETTERS "|\\p{N}" PUNCTUATION BLANKS, TFMC_TOK_SCAN_WORDS, TFMC_TOK_W_CASELESS | 1},
        {CONTRACTED LETTERS "|\\p{N}+" PUNCTUATION BLANKS, TFMC_TOK_SCAN_WORDS, TFMC_TOK_W_CASELESS},
        {POSSESSIVE("\\p{N}{1,3}"), TFMC_TOK_SCAN_WORDS, TFMC_TOK_W_CASELESS | 3},
        {POSSESSIVE("\\p{N}"), TFMC_TOK_SCAN_WORDS, TFMC_TOK_W_CASELESS | 1},
        {CONTRACTED
         "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" BLANKS,
         TFMC_TOK_SCAN_WORDS, TFMC_TOK_W_CASELESS | TFMC_TOK_W_MARKS | 1},
        {CASED_1 CONTRACTED "?|" CASED_2 CONTRACTED "?|\\p{N}{1,3}" CASED_END, TFMC_TOK_SCAN_CASED,
         TFMC_TOK_W_CASELESS | 3},
        {CASED_1 "|" CASED_2 "|\\p{N}" CASED_END, TFMC_TOK_SCAN_CASED, TFMC_TOK_W_NO_CONTRACT | 1},
        {"'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+", TFMC_TOK_SCAN_CLIP, 0},
        {" ?[^(\\s|[.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c])]+",
         TFMC_TOK_SCAN_BLOOM, 0},
        {"\\s+", TFMC_TOK_MATCH_SPACES, 0},
        {"\\s", TFMC_TOK_MATCH_SPACE, 0},
        {"[0-9][0-9][0-9]", TFMC_TOK_MATCH_DIGITS3, 0},
        {"[\\r\\n]", TFMC_TOK_MATCH_NEWLINE, 0},
        {"\\p{N}{1,3}", TFMC_TOK_MATCH_NUMBERS, 3},
        {"\\p{N}", TFMC_TOK_MATCH_DIGIT, 0},
        {"\\d", TFMC_TOK_MATCH_DECIMAL, 0},
};

bool tokenizer_known_regex(const char *regex, struct tokenizer_op *out)
{
	for (size_t i = 0; i < TFMC_COUNT(table); i++) {
		if (!strcmp(table[i].regex, regex)) {
			*out = (struct tokenizer_op){
			        (uint32_t)table[i].kind, table[i].flags, {"", 0}, {"", 0}};
			return true;
		}
	}
	return false;
}
