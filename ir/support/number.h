/* SPDX-License-Identifier: Apache-2.0 */
/* Formatting and parsing of numbers, independent of the locale. */
#ifndef TFMC_IR_SUPPORT_NUMBER_H
#define TFMC_IR_SUPPORT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/compiler.h"

/* Size of the buffers of number_print_*, with the terminator. */
#define NUMBER_TEXT_MAX 40

/* The shortest decimal that parses to the same bits, always recognizable as a float: `1.0`, `1e-05`, `0.125`, `-0.0`,
 * `inf`, `-inf`, `nan`. Returns the length. */
size_t number_print_f32(char out[NUMBER_TEXT_MAX], float v);
size_t number_print_f64(char out[NUMBER_TEXT_MAX], double v);

/* Parses all of s: decimal with optional sign, fraction and exponent, or `inf`, `nan`. Correctly rounded. */
TFMC_MUST_USE bool number_parse_f64(const char *s, size_t n, double *out);
/* "512 bytes", "1.2 kB", "549.8 GB": powers of 1000, rounded up. Returns the length. */
size_t number_print_bytes(char out[NUMBER_TEXT_MAX], uint64_t bytes);
/* Parses a size >= 1 with an optional unit: k, M, G, T, P, E, also with B; powers of 1000. */
TFMC_MUST_USE bool number_parse_bytes(const char *s, size_t n, uint64_t *out);
/* Parses all of s: decimal or 0x hexadecimal with optional minus. False if out of range. */
TFMC_MUST_USE bool number_parse_i64(const char *s, size_t n, int64_t *out);

/* The remainder of floor division, which has the sign of b, as in Python: a == floor(a / b) * b + the remainder. */
double number_floor_mod(double a, double b);

/* Sorts ascending; no NaN. */
void number_sort_f64(double *items, size_t n);

/* Pseudo-random numbers (splitmix64); *state: any seed. */
uint64_t number_random(uint64_t *state);

#endif
