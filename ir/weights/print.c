/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canonical text of weight expressions: each has exactly one. A stack whose elements differ only in a number of their
 * tensor names that counts up (layers) is printed once, with {i} for the number; every other stack as a list. Stacks
 * inside of a counted stack are lists, so that {i} has one meaning; a tensor name that contains "{i}" forces the list.
 */
#include <inttypes.h>
#include <string.h>

#include "ir/support/number.h"
#include "ir/weights/weight.h"

#define PLACEHOLDER "{i}"

/* The number in a tensor name that counts: bytes [begin, end) of the name of element 0, and its value there. */
struct counter {
	size_t begin, end;
	int64_t start;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The number of name `a` at its first difference from `b`. False if there is none in canonical form. */
static bool find_counter(const char *a, const char *b, struct counter *out)
{
	size_t at = 0;
	while (a[at] && a[at] == b[at])
		at++;
	while (at > 0 && is_digit(a[at - 1]))
		at--;
	out->begin = at;
	while (is_digit(a[at]))
		at++;
	out->end = at;
	size_t n = out->end - out->begin;
	if (n == 0 || n > 9 || (n > 1 && a[out->begin] == '0'))
		return false;
	return number_parse_i64(a + out->begin, n, &out->start);
}

/* True if `name` is `first` with `number` in place of the counter. */
static bool has_number(const char *first, const struct counter *p, int64_t number, const char *name)
{
	char digits[24];
	size_t n = 0;
	do
		digits[sizeof(digits) - ++n] = (char)('0' + number % 10);
	while ((number /= 10) > 0);
	return !strncmp(name, first, p->begin) && !strncmp(name + p->begin, digits + sizeof(digits) - n, n) &&
	       !strcmp(name + p->begin + n, first + p->end);
}

/* Leaves of elements 0, 1 and k of a stack: true if they are the same tensor, or their names count from *start (-1:
 * not known yet). */
static bool leaves_count(const struct ir_wexpr *e0, const struct ir_wexpr *e1, const struct ir_wexpr *ek,
                         int64_t k, int64_t *start)
{
	struct counter p;
	if (strstr(e0->tensor, PLACEHOLDER))
		return false;
	if (!strcmp(e0->tensor, e1->tensor))
		return !strcmp(e0->tensor, ek->tensor);
	if (!find_counter(e0->tensor, e1->tensor, &p) || (*start >= 0 && *start != p.start))
		return false;
	*start = p.start;
	return has_number(e0->tensor, &p, p.start + 1, e1->tensor) &&
	       has_number(e0->tensor, &p, p.start + k, ek->tensor);
}

static bool elements_count(const struct ir_wexpr *e0, const struct ir_wexpr *e1, const struct ir_wexpr *ek,
                           int64_t k, int64_t *start)
{
	if (!wexpr_same_node(e0, e1) || !wexpr_same_node(e0, ek))
		return false;
	if (e0->kind == WX_TENSOR)
		return leaves_count(e0, e1, ek, k, start);
	for (size_t i = 0; i < e0->n_args; i++)
		if (!elements_count(e0->args[i], e1->args[i], ek->args[i], k, start))
			return false;
	return true;
}

/* True if the stack can be written with {i}; *start is the first number. */
static bool stack_counts(const struct ir_wexpr *e, int64_t *start)
{
	*start = -1;
	for (size_t k = 1; k < e->n_args; k++)
		if (!elements_count(e->args[0], e->args[1], e->args[k], (int64_t)k, start))
			return false;
	return *start >= 0;
}

static void print_dims(struct buf *out, const struct ir_wexpr *e)
{
	buf_char(out, '[');
	for (int i = 0; i < e->rank; i++)
		buf_printf(out, "%s%" PRId64, i ? "," : "", e->dims[i]);
	buf_char(out, ']');
}

/* A leaf; `next`: the same leaf in element 1 of the enclosing counted stack, which shows the counter; NULL: none. */
static void print_tensor(struct buf *out, const struct ir_wexpr *e, const struct ir_wexpr *next)
{
	struct counter p;
	buf_str(out, "tensor ");
	buf_quoted(out, e->file);
	buf_char(out, ':');
	if (next && strcmp(e->tensor, next->tensor) != 0 && find_counter(e->tensor, next->tensor, &p)) {
		struct buf name;
		buf_init(&name);
		buf_bytes(&name, e->tensor, p.begin);
		buf_str(&name, PLACEHOLDER);
		buf_str(&name, e->tensor + p.end);
		buf_quoted(out, name.data);
		out->failed |= buf_failed(&name);
		buf_destroy(&name);
	} else {
		buf_quoted(out, e->tensor);
	}
	buf_printf(out, " %s",
	           e->format != FORMAT_PLAIN ? ir_format(e->format)->name : ir_dtype_name(e->stored));
	print_dims(out, e);
}

static void print_frequencies(struct buf *out, const struct ir_wexpr *e)
{
	buf_str(out, "frequencies=[");
	for (int64_t i = 0; i < e->dims[1] / 2; i++) {
		buf_str(out, i ? ", " : "");
		buf_f64(out, e->frequencies[i]);
	}
	buf_char(out, ']');
}

/* `next`: the node of element 1 that corresponds to e, as in print_tensor. */
static void print(struct buf *out, const struct ir_wexpr *e, const struct ir_wexpr *next);

static void print_args(struct buf *out, const struct ir_wexpr *e, size_t from, size_t to,
                       const struct ir_wexpr *next)
{
	for (size_t i = from; i < to; i++) {
		buf_str(out, i > from ? ", " : "");
		print(out, e->args[i], next ? next->args[i] : NULL);
	}
}

/* One field of kinds.def; *arg: the next argument. */
static void print_field(struct buf *out, const struct ir_wexpr *e, char field, size_t *arg,
                        const struct ir_wexpr *next)
{
	switch (field) {
	case 'a': buf_printf(out, "%d", e->axis); return;
	case 'b': buf_printf(out, "%" PRId64, e->begin); return;
	case 'e': buf_printf(out, "%" PRId64, e->end); return;
	case 'v': buf_f64(out, e->value); return;
	case 'd': print_dims(out, e); return;
	case 't': buf_str(out, ir_dtype_name(e->stored)); return;
	case 'q': buf_str(out, ir_format(e->format)->name); return;
	case '1':
		print_args(out, e, *arg, *arg + 1, next);
		++*arg;
		return;
	case '*': print_args(out, e, 0, e->n_args, next); return;
	case 'r': buf_printf(out, "rows=%" PRId64, e->dims[0]); return;
	case 'c': buf_printf(out, "dim=%" PRId64, e->dims[1]); return;
	case 'l':
		buf_printf(out, "layout=%s", e->layout == SINUSOID_HALVES ? "halves" : "interleaved");
		return;
	case 's': buf_printf(out, "spacing=%s", e->spacing == SINUSOID_T2T ? "t2t" : "paper"); return;
	case 'n': buf_printf(out, "start=%" PRId64, e->begin); return;
	case 'o':
		buf_str(out, "base=");
		buf_f64(out, e->value);
		return;
	case 'x':
		buf_str(out, "scale=");
		buf_f64(out, e->value);
		return;
	case 'f': print_frequencies(out, e); return;
	}
}

static void print(struct buf *out, const struct ir_wexpr *e, const struct ir_wexpr *next)
{
	const char *fields = wexpr_fields(e->kind);
	int64_t start;
	size_t arg = 0;
	if (e->kind == WX_TENSOR) {
		print_tensor(out, e, next);
		return;
	}
	buf_printf(out, "%s(", wexpr_keyword(e->kind));
	if (e->kind == WX_STACK && !next && stack_counts(e, &start)) {
		buf_printf(out, "i in %" PRId64 "..%" PRId64 ", ", start, start + (int64_t)e->n_args);
		next = e->args[1];
		print(out, e->args[0], next);
	} else {
		for (size_t i = 0; fields[i] != '\0'; i++) {
			buf_str(out, i > 0 ? ", " : "");
			print_field(out, e, fields[i], &arg, next);
		}
	}
	buf_char(out, ')');
}

void wexpr_print(struct buf *out, const struct ir_wexpr *e)
{
	print(out, e, NULL);
}
