/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formatting and parsing without locale: strtod and printf depend on the locale only in the decimal point, so the C
 * library parses only DIGITSe[-]DIGITS, and its output is split into digits and exponent.
 */
#include "ir/support/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/chars.h"
#include "ir/support/checked.h"

/* 767 significant digits can decide the rounding of a double; further ones become one sticky digit. */
#define DIGITS_MAX     800
#define EXPONENT_CLAMP 100000

struct decimal {
	char digits[24]; /* without point, no trailing zeros (except a single digit) */
	int n_digits;
	int exponent; /* of the first digit: d.ddd * 10^exponent */
};

/* Splits "d.ddde+XX", printed in any locale: the decimal point is skipped, whichever character it is. */
static void split_scientific(const char *s, struct decimal *out)
{
	out->n_digits = 0;
	out->exponent = 0;
	for (; *s != '\0' && *s != 'e'; s++) {
		if (char_is_digit(*s))
			out->digits[out->n_digits++] = *s;
	}
	if (*s == 'e')
		out->exponent = (int)strtol(s + 1, NULL, 10);
	while (out->n_digits > 1 && out->digits[out->n_digits - 1] == '0')
		out->n_digits--;
	out->digits[out->n_digits] = '\0';
}

/* True if reading the text gives v again, as f32 or as f64. */
static bool round_trips(const struct decimal *d, double v, bool single)
{
	char text[48];
	/* The value as DIGITSe[-]DIGITS. */
	snprintf(text, sizeof(text), "%se%d", d->digits, d->exponent - (d->n_digits - 1));
	return single ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v;
}

/* The shortest decimal that round-trips, by trying precisions; v is finite and positive. 9 digits of an f32 and 17
 * of an f64 always do. */
static void find_shortest(double v, bool single, struct decimal *out)
{
	char text[64];
	int last = single ? 8 : 16;
	for (int precision = 0; precision <= last; precision++) {
		snprintf(text, sizeof(text), "%.*e", precision, v);
		split_scientific(text, out);
		if (round_trips(out, v, single))
			return;
	}
}

/* Positional notation from 1e-4 to 1e16, with at least one digit after the point, else scientific with at least two
 * exponent digits: as Python prints floats. */
static size_t format_decimal(char *out, const struct decimal *d, bool negative)
{
	char *p = out;
	int e = d->exponent;
	if (negative)
		*p++ = '-';
	if (e < -4 || e >= 16) {
		*p++ = d->digits[0];
		if (d->n_digits > 1) {
			*p++ = '.';
			memcpy(p, d->digits + 1, (size_t)d->n_digits - 1);
			p += d->n_digits - 1;
		}
		p += snprintf(p, 8, "e%c%02d", e < 0 ? '-' : '+', abs(e));
		return (size_t)(p - out);
	}
	int last = d->n_digits - 1 < e + 1 ? e + 1 : d->n_digits - 1;
	for (int i = e < 0 ? e : 0; i <= last; i++) {
		if (i == e + 1)
			*p++ = '.';
		*p++ = i >= 0 && i < d->n_digits ? d->digits[i] : '0';
	}
	*p = '\0';
	return (size_t)(p - out);
}

static size_t copy(char *out, const char *s)
{
	size_t n = strlen(s);
	memcpy(out, s, n + 1);
	return n;
}

/* Writes v as `inf`, `nan`, `0.0` or the shortest decimal; single: that round-trips as f32, else as f64. Returns
 * the length. */
static size_t print(char *out, double v, bool single)
{
	struct decimal d;
	if (isnan(v) || isinf(v)) {
		return copy(out, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
	}
	if (v == 0) {
		return copy(out, signbit(v) ? "-0.0" : "0.0");
	}
	find_shortest(fabs(v), single, &d);
	return format_decimal(out, &d, v < 0);
}

size_t number_print_f32(char out[NUMBER_TEXT_MAX], float v)
{
	return print(out, (double)v, true);
}

size_t number_print_f64(char out[NUMBER_TEXT_MAX], double v)
{
	return print(out, v, false);
}

struct scan {
	char text[DIGITS_MAX + 32]; /* significant digits */
	size_t n;
	int64_t exponent; /* of ten, for the digits as an integer */
	bool sticky;      /* a dropped digit is not zero */
};

/* Consumes digits into sc->text, the first DIGITS_MAX of them; those of a fraction lower the exponent. Of further
 * ones only their number counts, and whether one is not 0 (sticky). Leading zeros are not stored: they are not
 * significant. Returns the number of digits. */
static size_t scan_digits(struct scan *sc, const char *s, size_t n, bool fraction)
{
	size_t i = 0;
	for (; i < n && char_is_digit(s[i]); i++) {
		if (sc->n == 0 && s[i] == '0') {
			sc->exponent -= fraction;
		} else if (sc->n < DIGITS_MAX) {
			sc->text[sc->n++] = s[i];
			sc->exponent -= fraction;
		} else {
			sc->sticky = sc->sticky || s[i] != '0';
			sc->exponent += !fraction;
		}
	}
	return i;
}

/* [eE][+-]digits at s; false when malformed. Large exponents are clamped, far beyond the range of f64, so that they
 * cannot overflow. */
static bool scan_exponent(struct scan *sc, const char *s, size_t n)
{
	size_t i = 1;
	bool negative = false;
	int64_t e = 0;
	if (s[0] != 'e' && s[0] != 'E')
		return false;
	if (i < n && (s[i] == '+' || s[i] == '-'))
		negative = s[i++] == '-';
	if (i == n)
		return false;
	for (; i < n && char_is_digit(s[i]); i++)
		e = e > EXPONENT_CLAMP ? e : 10 * e + (s[i] - '0');
	sc->exponent += negative ? -e : e;
	return i == n;
}

/* The value of the scanned digits, rounded once, by strtod, which sees no decimal point and so no locale. A digit 1
 * in place of dropped digits keeps a value just above a tie from being rounded as the tie. */
static double scan_value(struct scan *sc)
{
	int64_t e = sc->exponent;
	if (sc->n == 0)
		return 0.0;
	if (sc->sticky) {
		sc->text[sc->n++] = '1';
		e--;
	}
	if (e > EXPONENT_CLAMP)
		e = EXPONENT_CLAMP;
	if (e < -EXPONENT_CLAMP)
		e = -EXPONENT_CLAMP;
	snprintf(sc->text + sc->n, sizeof(sc->text) - sc->n, "e%d", (int)e);
	return strtod(sc->text, NULL);
}

/* Parses all of s as digits [. digits] [e digits], unsigned. False if it is malformed. */
static bool parse_decimal(const char *s, size_t n, double *out)
{
	struct scan sc;
	sc.n = 0;
	sc.exponent = 0;
	sc.sticky = false;
	size_t at = scan_digits(&sc, s, n, false);
	if (at == 0)
		return false;
	if (at < n && s[at] == '.') {
		size_t fraction = scan_digits(&sc, s + at + 1, n - at - 1, true);
		if (fraction == 0)
			return false;
		at += 1 + fraction;
	}
	if (at < n && !scan_exponent(&sc, s + at, n - at))
		return false;
	*out = scan_value(&sc);
	return true;
}

/* `inf` and `nan` take a sign, too. */
bool number_parse_f64(const char *s, size_t n, double *out)
{
	bool negative = false;
	double v;
	if (n > 0 && (s[0] == '-' || s[0] == '+')) {
		negative = s[0] == '-';
		s++;
		n--;
	}
	if (n == 3 && memcmp(s, "inf", 3) == 0)
		v = (double)INFINITY;
	else if (n == 3 && memcmp(s, "nan", 3) == 0)
		v = (double)NAN;
	else if (!parse_decimal(s, n, &v))
		return false;
	*out = negative ? -v : v;
	return true;
}

bool number_parse_i64(const char *s, size_t n, int64_t *out)
{
	bool negative = n > 0 && s[0] == '-';
	int base = 10;
	int64_t v = 0;
	size_t at = negative ? 1 : 0;
	if (n - at > 2 && s[at] == '0' && (s[at + 1] == 'x' || s[at + 1] == 'X')) {
		base = 16;
		at += 2;
	}
	if (at >= n)
		return false;
	/* accumulated as a negative number, whose range is larger */
	for (; at < n; at++) {
		int digit = char_hex_value(s[at]);
		if (digit < 0 || digit >= base || !checked_mul_i64(v, base, &v) ||
		    !checked_sub_i64(v, digit, &v))
			return false;
	}
	if (!negative && !checked_sub_i64(0, v, &v))
		return false;
	*out = v;
	return true;
}

static const char units[] = "kMGTPE";

/* Counts in tenths of the unit, rounded up at each step: the result is the exact value rounded up. */
size_t number_print_bytes(char out[NUMBER_TEXT_MAX], uint64_t bytes)
{
	uint64_t tenths = bytes;
	size_t unit = 0;
	if (bytes < 1000)
		return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%" PRIu64 " bytes", bytes);
	for (tenths = bytes / 100 + (bytes % 100 > 0); tenths >= 10000; unit++)
		tenths = tenths / 1000 + (tenths % 1000 > 0);
	return (size_t)snprintf(out, NUMBER_TEXT_MAX, "%" PRIu64 ".%u %cB", tenths / 10,
	                        (unsigned)(tenths % 10), units[unit]);
}

/* strchr would find the terminator of `units`, hence the test for a zero byte. */
bool number_parse_bytes(const char *s, size_t n, uint64_t *out)
{
	double value, scale = 1;
	n -= n > 1 && s[n - 1] == 'B';
	const char *unit = n > 0 && s[n - 1] != '\0' ? strchr(units, s[n - 1]) : NULL;
	for (const char *u = units; unit && u <= unit; u++)
		scale *= 1000;
	n -= unit != NULL;
	if (!number_parse_f64(s, n, &value) || !(value * scale >= 1 && value * scale < 0x1p63))
		return false;
	*out = (uint64_t)(value * scale);
	return true;
}

double number_floor_mod(double a, double b)
{
	double r = fmod(a, b);
	return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

uint64_t number_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static int compare_f64(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

void number_sort_f64(double *items, size_t n)
{
	qsort(items, n, sizeof(*items), compare_f64);
}
