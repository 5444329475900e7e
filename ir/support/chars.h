/* SPDX-License-Identifier: Apache-2.0 */
/* Characters of ASCII, independent of the locale. */
#ifndef TFMC_IR_SUPPORT_CHARS_H
#define TFMC_IR_SUPPORT_CHARS_H

#include <stdbool.h>

/* A letter or `_`, with which identifiers of C begin. */
static inline bool char_is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static inline bool char_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* A letter, a digit or `_`: identifiers of C and names of the language continue with these. */
static inline bool char_is_word(char c)
{
	return char_is_letter(c) || char_is_digit(c);
}

static inline bool char_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The value of a hexadecimal digit; -1: another character. */
static inline int char_hex_value(char c)
{
	if (char_is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
