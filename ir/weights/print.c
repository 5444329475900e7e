/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canonical text of weight expressions. One expression has one text: a stack
 * whose elements differ only by a number that counts up in tensor names is
 * printed once with {i} instead of the number, every other stack as a list.
 * Inside a counted stack nested stacks are lists, so {i} has one meaning; a
 * name that holds the letters {i} itself forces the list.
 */
#include <inttypes.h>
#include <string.h>

#include "ir/support/number.h"
#include "ir/weights/weight.h"

#define PLACEHOLDER "{i}"

/* The number in a tensor name that counts: bytes [begin, end) of the name of element 0. */
struct place {
	size_t begin, end;
	int64_t start;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Where `a` has a number at its first difference from `b`. False when there is no canonical number. */
static bool find_place(const char *a, const char *b, struct place *out)
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

/* True when `name` is `first` with `number` in the place. */
static bool has_number(const char *first, const struct place *p, int64_t number, const char *name)
{
	char digits[24];
	size_t n = 0;
	do
		digits[sizeof(digits) - ++n] = (char)('0' + number % 10);
	while ((number /= 10) > 0);
	return !strncmp(name, first, p->begin) && !strncmp(name + p->begin, digits + sizeof(digits) - n, n) &&
	       !strcmp(name + p->begin + n, first + p->end);
}

/* Leaves of elements 0, 1 and k of a stack: the same tensor, or names that count from *start (-1: not known
 * yet). */
static bool leaves_count(const struct ir_wexpr *e0, const struct ir_wexpr *e1, const struct ir_wexpr *ek,
                         int64_t k, int64_t *start)
{
	struct place p;
	if (strcmp(e0->file, ek->file) != 0 || strstr(e0->tensor, PLACEHOLDER))
		return false;
	if (!strcmp(e0->tensor, e1->tensor))
		return !strcmp(e0->tensor, ek->tensor);
	if (!find_place(e0->tensor, e1->tensor, &p) || (*start >= 0 && *start != p.start))
		return false;
	*start = p.start;
	return has_number(e0->tensor, &p, p.start + 1, e1->tensor) &&
	       has_number(e0->tensor, &p, p.start + k, ek->tensor);
}

/* True when two nodes agree in everything but their arguments and tensor names. */
static bool same_node(const struct ir_wexpr *a, const struct ir_wexpr *b)
{
	return a->kind == b->kind && a->rank == b->rank && a->n_args == b->n_args && a->axis == b->axis &&
	       a->begin == b->begin && a->end == b->end && !memcmp(&a->value, &b->value, sizeof(a->value)) &&
	       a->layout == b->layout && a->spacing == b->spacing && a->stored == b->stored &&
	       !memcmp(a->dims, b->dims, sizeof(a->dims)) && (a->kind != WX_ROTARY || wexpr_equal(a, b));
}

static bool elements_count(const struct ir_wexpr *e0, const struct ir_wexpr *e1, const struct ir_wexpr *ek,
                           int64_t k, int64_t *start)
{
	if (!same_node(e0, e1) || !same_node(e0, ek))
		return false;
	if (e0->kind == WX_TENSOR)
		return leaves_count(e0, e1, ek, k, start);
	for (size_t i = 0; i < e0->n_args; i++)
		if (!elements_count(e0->args[i], e1->args[i], ek->args[i], k, start))
			return false;
	return true;
}

/* True when the stack can be written with {i}; *start is the first number. */
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

/* A tensor; `next`: the same leaf of element 1 of the counted stack around, or NULL. */
static void print_tensor(struct buf *out, const struct ir_wexpr *e, const struct ir_wexpr *next)
{
	struct place p;
	buf_str(out, "tensor ");
	buf_quoted(out, e->file);
	buf_char(out, ':');
	if (next && strcmp(e->tensor, next->tensor) != 0 && find_place(e->tensor, next->tensor, &p)) {
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
	buf_printf(out, " %s", ir_dtype_name(e->stored));
	print_dims(out, e);
}

static void print_sinusoid(struct buf *out, const struct ir_wexpr *e)
{
	buf_printf(out,
	           "sinusoid(rows=%" PRId64 ", dim=%" PRId64 ", layout=%s, spacing=%s, start=%" PRId64
	           ", base=",
	           e->dims[0], e->dims[1], e->layout == SINUSOID_HALVES ? "halves" : "interleaved",
	           e->spacing == SINUSOID_T2T ? "t2t" : "paper", e->begin);
	buf_f64(out, e->value);
	buf_char(out, ')');
}

static void print_rotary(struct buf *out, const struct ir_wexpr *e)
{
	buf_printf(out, "rotary(rows=%" PRId64 ", scale=", e->dims[0]);
	buf_f64(out, e->value);
	buf_str(out, ", frequencies=[");
	for (int64_t i = 0; i < e->dims[1] / 2; i++) {
		buf_str(out, i ? ", " : "");
		buf_f64(out, e->frequencies[i]);
	}
	buf_str(out, "])");
}

/* What is between the parenthesis and the first argument. */
static void print_head(struct buf *out, const struct ir_wexpr *e)
{
	switch (e->kind) {
	case WX_TENSOR:
	case WX_SINUSOID:
	case WX_ROTARY: return;
	case WX_FULL:
		buf_str(out, "full(");
		buf_f64(out, e->value);
		buf_str(out, ", ");
		print_dims(out, e);
		return;
	case WX_STACK: buf_str(out, "stack("); return;
	case WX_CONCAT: buf_printf(out, "concat(%d, ", e->axis); return;
	case WX_INDEX: buf_printf(out, "index(%d, %" PRId64 ", ", e->axis, e->begin); return;
	case WX_SLICE:
		buf_printf(out, "slice(%d, %" PRId64 ", %" PRId64 ", ", e->axis, e->begin, e->end);
		return;
	case WX_TRANSPOSE: buf_str(out, "transpose("); return;
	case WX_RESHAPE:
		buf_str(out, "reshape(");
		print_dims(out, e);
		buf_str(out, ", ");
		return;
	case WX_ROPE_H2I: buf_printf(out, "rope_halves_to_interleaved(%" PRId64 ", ", e->begin); return;
	case WX_ROPE_I2H: buf_printf(out, "rope_interleaved_to_halves(%" PRId64 ", ", e->begin); return;
	case WX_REPEAT: buf_printf(out, "repeat(%d, %" PRId64 ", ", e->axis, e->begin); return;
	case WX_ROUND: buf_printf(out, "round(%s, ", ir_dtype_name(e->stored)); return;
	case WX_MUL: buf_str(out, "mul("); return;
	case WX_DIV: buf_str(out, "div("); return;
	case WX_OFFSET:
		buf_str(out, "offset(");
		buf_f64(out, e->value);
		buf_str(out, ", ");
		return;
	}
}

/* `next` as in print_tensor, the node beside e in element 1. */
static void print(struct buf *out, const struct ir_wexpr *e, const struct ir_wexpr *next)
{
	int64_t start;
	if (e->kind == WX_TENSOR) {
		print_tensor(out, e, next);
	} else if (e->kind == WX_SINUSOID) {
		print_sinusoid(out, e);
	} else if (e->kind == WX_ROTARY) {
		print_rotary(out, e);
	} else if (e->kind == WX_STACK && !next && stack_counts(e, &start)) {
		buf_printf(out, "stack(i in %" PRId64 "..%" PRId64 ", ", start, start + (int64_t)e->n_args);
		print(out, e->args[0], e->args[1]);
		buf_char(out, ')');
	} else {
		print_head(out, e);
		for (size_t i = 0; i < e->n_args; i++) {
			buf_str(out, i ? ", " : "");
			print(out, e->args[i], next ? next->args[i] : NULL);
		}
		buf_char(out, ')');
	}
}

void wexpr_print(struct buf *out, const struct ir_wexpr *e)
{
	print(out, e, NULL);
}
