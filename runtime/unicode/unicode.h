/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Characters: UTF-8 that may be damaged, classes, lower case, normalization
 * forms. A byte that is no UTF-8 is a character of its own without any class;
 * it passes every step unchanged.
 */
#ifndef TFMC_RUNTIME_UNICODE_UNICODE_H
#define TFMC_RUNTIME_UNICODE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A byte that is no UTF-8, beside its value. */
#define TOK_INVALID 0x80000000u

enum tok_class {
	TOK_L = 1,      /* letters */
	TOK_N = 2,      /* numbers */
	TOK_M = 4,      /* marks */
	TOK_P = 8,      /* punctuation */
	TOK_SPACE = 16, /* white space */
	TOK_UPPER = 32, /* Lu Lt */
	TOK_LOWER = 64, /* Ll */
	TOK_ND = 128,   /* decimal digits */
	TOK_MN = 256,   /* marks without width */
	TOK_C = 512,    /* controls, formats, private */
	TOK_PC = 1024,  /* connectors such as _ */
	TOK_NL = 2048,  /* letters that are numbers */
};

/* ---- tables, see unicode_gen.c ---- */
struct tok_record {
	uint32_t lower; /* 0: itself */
	uint32_t canon, compat;
	uint8_t n_canon, n_compat, ccc, inert; /* inert: bit of enum tok_form */
};
struct tok_compose {
	uint32_t first, second, both;
};
extern const uint16_t tok_category_index[], tok_record_index[], tok_record_blocks[];
extern const uint8_t tok_category_blocks[];
extern const uint16_t tok_bound_index[];
extern const uint8_t tok_bound_blocks[];
extern const struct tok_record tok_records[];
extern const uint32_t tok_pool[];
extern const struct tok_compose tok_composes[];
extern const uint32_t tok_n_composes;
extern const uint16_t tok_class_masks[31];

/* enum tok_class of a character. */
static inline unsigned tok_class(uint32_t cp)
{
	if (cp >= 0x110000)
		return 0;
	return tok_class_masks[tok_category_blocks[(uint32_t)tok_category_index[cp >> 8] << 8 | (cp & 255)]];
}

/* \w: letters, marks, decimal digits, connectors, joiners, letters in circles. */
bool tok_is_word(uint32_t cp);

static inline const struct tok_record *tok_record(uint32_t cp)
{
	cp = cp < 0x110000 ? cp : 0;
	return &tok_records[tok_record_blocks[(uint32_t)tok_record_index[cp >> 8] << 8 | (cp & 255)]];
}

/* The character at s, of n > 0 bytes that are left; its length. */
size_t tok_decode_long(const unsigned char *s, size_t n, uint32_t *cp);
static inline size_t tok_decode(const char *s, size_t n, uint32_t *cp)
{
	unsigned char c = (unsigned char)s[0];
	if (c < 0x80) {
		*cp = c;
		return 1;
	}
	return tok_decode_long((const unsigned char *)s, n, cp);
}
/* Length of what a reader takes for one character, n > 0: a letter with its marks, an emoji of several. */
size_t tok_grapheme(const char *s, size_t n);
/* Where the character begins that ends at s[n - 1]. */
size_t tok_before(const char *s, size_t n);

/* ---- text that grows ---- */
struct tok_text {
	char *data;
	size_t n, cap;
	size_t most;    /* bytes; 0: any number */
	bool failed;    /* sticky: no memory, or more than `most` */
	bool is_longer; /* more than `most` */
};
void tok_put(struct tok_text *t, const char *bytes, size_t n);

enum tok_form { TOK_NFC = 1, TOK_NFD = 2, TOK_NFKC = 4, TOK_NFKD = 8 };
/* Appends the form of a text. Linear, but for the marks after one character, which are sorted. */
void tok_normal_form(enum tok_form form, const char *s, size_t n, struct tok_text *out);
void tok_lower(const char *s, size_t n, struct tok_text *out);

#endif
