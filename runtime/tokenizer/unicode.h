/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 that may be invalid, character classes, lower case, normalization forms. An invalid byte is a
 * character of its own without class and passes every step unchanged.
 */
#ifndef TFMC_RUNTIME_TOKENIZER_UNICODE_H
#define TFMC_RUNTIME_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Flag of an invalid byte, or-ed with its value. */
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
	TOK_MN = 256,   /* nonspacing marks */
	TOK_C = 512,    /* control, format, private use */
	TOK_PC = 1024,  /* connectors such as _ */
	TOK_NL = 2048,  /* letter numbers */
};

/* ---- tables, see unicode_gen.c ---- */
struct tok_record {
	uint32_t lower; /* 0: unchanged */
	uint32_t canon, compat;
	uint8_t n_canon, n_compat, ccc, inert; /* inert: set of enum tok_form that leave it unchanged */
};
/* Canonical composition of two characters; the table is sorted by (first, second). */
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

/* Set of enum tok_class of a character. */
static inline unsigned tok_class(uint32_t cp)
{
	if (cp >= 0x110000)
		return 0;
	return tok_class_masks[tok_category_blocks[(uint32_t)tok_category_index[cp >> 8] << 8 | (cp & 255)]];
}

/* \w: letters, marks, decimal digits, connectors, joiners, circled letters. */
bool tok_is_word(uint32_t cp);

static inline const struct tok_record *tok_record(uint32_t cp)
{
	cp = cp < 0x110000 ? cp : 0;
	return &tok_records[tok_record_blocks[(uint32_t)tok_record_index[cp >> 8] << 8 | (cp & 255)]];
}

/* Decodes the character at s, n > 0; returns its length (1 for an invalid byte). */
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
/* Length of the extended grapheme cluster at s, n > 0. */
size_t tok_grapheme(const char *s, size_t n);
/* Offset of the last character of s[0 .. n). */
size_t tok_last_char(const char *s, size_t n);

/* ---- growing string ---- */
struct tok_text {
	char *data;
	size_t n, cap;
	size_t limit;   /* size limit in bytes; 0: none */
	bool failed;    /* sticky: no memory, or larger than `limit` */
	bool is_longer; /* larger than `limit` */
};
/* Appends bytes; sets `failed` instead of exceeding the limit. */
void tok_append(struct tok_text *t, const char *bytes, size_t n);

enum tok_form { TOK_NFC = 1, TOK_NFD = 2, TOK_NFKC = 4, TOK_NFKD = 8 };
/* Appends the normalization form of a text. Linear: long runs of marks are sorted by counting. */
void tok_append_normal_form(enum tok_form form, const char *s, size_t n, struct tok_text *out);
/* Appends the lower case of a text. */
void tok_append_lower(const char *s, size_t n, struct tok_text *out);

#endif
