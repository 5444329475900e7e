/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers to text and back, independent of the locale.
 */
#ifndef TFMC_IR_SUPPORT_NUMBER_H
#define TFMC_IR_SUPPORT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/compiler.h"

/* Longest text written by number_print_*, with the terminator. */
#define NUMBER_TEXT_MAX 40

/*
 * The shortest decimal that reads back to the same bits; always has a '.', an
 * exponent, or is `inf`, `-inf`, `nan`, so that it reads as a float: `1.0`,
 * `1e-05`, `0.125`, `-0.0`. Returns the length.
 */
size_t number_print_f32(char out[NUMBER_TEXT_MAX], float v);
size_t number_print_f64(char out[NUMBER_TEXT_MAX], double v);

/* The whole text must be a number: decimal with optional sign, point, exponent; `inf`, `nan`. Correctly
 * rounded. */
TFMC_MUST_USE bool number_parse_f64(const char *s, size_t n, double *out);
/* "512 bytes", "1.2 kB", "549.8 GB": powers of 1000, rounded up. */
size_t number_print_bytes(char out[NUMBER_TEXT_MAX], uint64_t bytes);
/* A number from 1, with a unit or not: k, M, G, T, kB and so on, powers of 1000. */
TFMC_MUST_USE bool number_parse_bytes(const char *s, size_t n, uint64_t *out);
/* Decimal or 0x hexadecimal with optional minus; the whole text; range-checked. */
TFMC_MUST_USE bool number_parse_i64(const char *s, size_t n, int64_t *out);

/* The next of a sequence that is the same on every machine; *state may begin with any number. */
uint64_t number_random(uint64_t *state);

#endif
