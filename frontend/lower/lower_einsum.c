/* SPDX-License-Identifier: Apache-2.0 */
/*
 * einsum of one or two tensors: repeated labels become diagonals, labels that occur in one operand only are
 * summed there, the remaining ones are one batched matmul over [shared.., rows.., columns..]. call_mixes_axis declares
 * each axis along which positions influence each other, and the neutral element that padding of an encoder input gets
 * there (FILL_NONE: none is needed, as only results past the end depend on it). Functions return false after a report.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */
#include <string.h>

#include "frontend/lower/lower.h"

struct term {
	struct ir_value v;
	char labels[IR_RANK_MAX + 1];
	int rank;
};

struct einsum {
	const struct call *c;
	struct lowering *lw;
	const char *spec;
	struct term in[2], out;
	int n;
};

static bool report_bad_einsum(const struct einsum *s, const char *why)
{
	return lower_fail(s->lw, s->c->e->loc, DIAG_SHAPE, "einsum \"%s\": %s", s->spec, why);
}

static bool is_label(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
}

/* Reads labels up to ',' , '-' or the end; advances *at. */
static bool read_labels(const struct einsum *s, const char **at, struct term *t)
{
	for (; **at != '\0' && **at != ',' && **at != '-'; (*at)++) {
		if (**at == ' ')
			continue;
		if (!is_label(**at))
			return report_bad_einsum(s, "labels are letters");
		if (t->rank >= IR_RANK_MAX)
			return report_bad_einsum(s, "too many axes");
		t->labels[t->rank++] = **at;
		t->labels[t->rank] = '\0';
	}
	return true;
}

/* Parses s->spec, as "ab,bc->ac", into s->in, s->n and s->out. False after a report. */
static bool read_spec(struct einsum *s)
{
	const char *at = s->spec;
	if (!read_labels(s, &at, &s->in[0]))
		return false;
	s->n = 1;
	if (*at == ',') {
		at++;
		s->n = 2;
		if (!read_labels(s, &at, &s->in[1]))
			return false;
	}
	if (at[0] != '-' || at[1] != '>')
		return report_bad_einsum(s, "wants one or two lists of labels and \"->\"");
	at += 2;
	if (!read_labels(s, &at, &s->out))
		return false;
	if (*at != '\0')
		return report_bad_einsum(s, "text after the labels of the result");
	for (int i = 1; i < s->out.rank; i++)
		if (memchr(s->out.labels, s->out.labels[i], (size_t)i) != NULL)
			return report_bad_einsum(s, "a label occurs twice in the result");
	return true;
}

/* Replaces two axes with the same label by their diagonal: zeroes the elements with i != j and sums one axis, as the
 * IR has no op for a diagonal. Positions past the end stay past the end (FILL_NONE). */
static bool extract_diagonal(const struct einsum *s, struct term *t, int first, int second)
{
	struct ir_builder *b = s->lw->b;
	const struct ir_type *type = irb_type(b, t->v);
	const struct ir_dim_list dims = {(const struct ir_dim **)type->dims, (size_t)type->rank};
	int64_t axis = second;
	if (type->dims[first] != type->dims[second])
		return report_bad_einsum(s, arena_printf(s->lw->arena, "sizes of '%c' differ: %s",
		                                         t->labels[first], type_to_string(s->lw, t->v)));
	if (!call_mixes_axis(s->c, &t->v, first, FILL_NONE))
		return false;
	struct ir_value i = irb_iota(b, &(struct attrs_iota){.dims = dims, .axis = first});
	struct ir_value j = irb_iota(b, &(struct attrs_iota){.dims = dims, .axis = second});
	struct ir_value zero = irb_full_of(b, 0.0, type->dtype, type->rank, type->dims);
	struct ir_value on_diagonal = irb_cmp(b, i, j, &(struct attrs_cmp){.kind = CMP_eq});
	t->v = irb_reduce_sum(b, irb_where(b, on_diagonal, t->v, zero, NULL),
	                      &(struct attrs_reduce_sum){.axes = {&axis, 1}});
	memmove(t->labels + second, t->labels + second + 1, (size_t)(t->rank - second));
	t->rank--;
	return !irb_failed(b);
}

static bool extract_diagonals(const struct einsum *s, struct term *t)
{
	for (int i = 0; i < t->rank; i++)
		for (int k = t->rank - 1; k > i; k--)
			if (t->labels[k] == t->labels[i] && !extract_diagonal(s, t, i, k))
				return false;
	return true;
}

static int axis_of(const struct term *t, char label)
{
	const char *p = label == '\0' ? NULL : strchr(t->labels, label);
	return p == NULL ? -1 : (int)(p - t->labels);
}

/* Size of the axis with this label; NULL: no operand has it. */
static const struct ir_dim *label_size(const struct einsum *s, char label)
{
	for (int i = 0; i < s->n; i++) {
		int axis = axis_of(&s->in[i], label);
		if (axis >= 0)
			return irb_type(s->lw->b, s->in[i].v)->dims[axis];
	}
	return NULL;
}

/* Lowers the operands, extracts their diagonals, and checks that axes with one label have one size. False after a
 * report. call_tensor() and extract_diagonals() fail where the builder has, so the types can be read. */
static bool read_tensors(struct einsum *s)
{
	static const char *const names[] = {"a", "b"};
	if ((call_arg(s->c, "b") != NULL) != (s->n == 2))
		return report_bad_einsum(s, "as many tensors as lists of labels are wanted");
	for (int i = 0; i < s->n; i++) {
		if (!call_tensor(s->c, names[i], &s->in[i].v))
			return false;
		if (irb_type(s->lw->b, s->in[i].v)->rank != s->in[i].rank)
			return report_bad_einsum(s, "a list of labels and its tensor differ in length");
		if (!extract_diagonals(s, &s->in[i]))
			return false;
	}
	for (int i = 0; i < s->in[1].rank; i++) {
		int axis = axis_of(&s->in[0], s->in[1].labels[i]);
		if (axis >= 0 &&
		    irb_type(s->lw->b, s->in[0].v)->dims[axis] != irb_type(s->lw->b, s->in[1].v)->dims[i])
			return report_bad_einsum(
			        s, arena_printf(s->lw->arena, "sizes of '%c' differ: %s and %s",
			                        s->in[1].labels[i], type_to_string(s->lw, s->in[0].v),
			                        type_to_string(s->lw, s->in[1].v)));
	}
	for (int i = 0; i < s->out.rank; i++)
		if (label_size(s, s->out.labels[i]) == NULL)
			return report_bad_einsum(s, "a label of the result occurs in no tensor");
	return true;
}

/* The label occurs in this operand only, so it is summed before the matmul. */
static bool is_summed_alone(const struct einsum *s, int which, char label)
{
	return axis_of(&s->out, label) < 0 && (s->n < 2 || axis_of(&s->in[1 - which], label) < 0);
}

static void cast_term(const struct einsum *s, struct term *t, enum ir_dtype dtype)
{
	t->v = irb_cast(s->lw->b, t->v, &(struct attrs_cast){.dtype = dtype});
}

/* f16 and bf16 operands that are summed twice (before and in the matmul) are cast to f32, so that the result is
 * rounded once. True if they were cast: the caller casts the result back. */
static bool cast_to_f32_for_two_sums(struct einsum *s)
{
	enum ir_dtype t = irb_type(s->lw->b, s->in[0].v)->dtype;
	bool has_unshared = false;
	for (int which = 0; which < s->n; which++)
		for (int i = 0; i < s->in[which].rank; i++)
			has_unshared = has_unshared || is_summed_alone(s, which, s->in[which].labels[i]);
	if (s->n < 2 || !has_unshared || (t != DT_F16 && t != DT_BF16))
		return false;
	cast_term(s, &s->in[0], DT_F32);
	cast_term(s, &s->in[1], DT_F32);
	return true;
}

/* Sums an operand along the axes whose labels are neither in the result nor in the other operand. False after a
 * report. */
static bool sum_unshared_labels(struct einsum *s, int which)
{
	struct term *t = &s->in[which], remaining = {.rank = 0};
	int64_t axes[IR_RANK_MAX];
	size_t n = 0;
	for (int i = 0; i < t->rank; i++) {
		if (!is_summed_alone(s, which, t->labels[i]))
			remaining.labels[remaining.rank++] = t->labels[i];
		else if (!call_mixes_axis(s->c, &t->v, i, FILL_ZERO))
			return false;
		else
			axes[n++] = i;
	}
	remaining.v = t->v;
	if (n > 0)
		remaining.v = irb_reduce_sum(s->lw->b, t->v, &(struct attrs_reduce_sum){.axes = {axes, n}});
	*t = remaining;
	return !irb_failed(s->lw->b);
}

/* Transposes t to the order of `labels`, which must all occur. */
static struct ir_value permute_to(const struct einsum *s, const struct term *t, const char *labels)
{
	int64_t perm[IR_RANK_MAX];
	bool same = true;
	for (int i = 0; i < t->rank; i++) {
		perm[i] = axis_of(t, labels[i]);
		same = same && perm[i] == i;
	}
	return same ? t->v : irb_transpose_by(s->lw->b, t->v, t->rank, perm);
}

/* Selects the labels of t by membership in the result and in the other operand; returns their number. */
static size_t select_labels(const struct einsum *s, const struct term *t, const struct term *other,
                            bool in_out, bool in_other, char *to)
{
	size_t n = 0;
	for (int i = 0; i < t->rank; i++) {
		char l = t->labels[i];
		if ((axis_of(&s->out, l) >= 0) == in_out && (axis_of(other, l) >= 0) == in_other)
			to[n++] = l;
	}
	to[n] = '\0';
	return n;
}

static const struct ir_dim *label_product(const struct einsum *s, const char *labels)
{
	const struct ir_dim *n = ir_dim_const(s->lw->module->dims, 1);
	for (; *labels != '\0'; labels++)
		n = ir_dim_mul(s->lw->module->dims, n, label_size(s, *labels));
	return n;
}

/* t as batched matrices [shared.., product(first), product(second)]; the three strings together have each of its
 * labels once. */
static struct ir_value as_batched_matrix(const struct einsum *s, const struct term *t, const char *shared,
                                         const char *first, const char *second)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	int n = 0;
	struct ir_value v = permute_to(s, t, arena_printf(s->lw->arena, "%s%s%s", shared, first, second));
	for (const char *p = shared; *p != '\0'; p++)
		dims[n++] = label_size(s, *p);
	dims[n++] = label_product(s, first);
	dims[n++] = label_product(s, second);
	return irb_reshape_to(s->lw->b, v, n, dims);
}

/* Declares to call_mixes_axis that the axes with these labels, of either operand, are mixed; it may replace the
 * padding of the operand. */
static bool mix_label_axes(struct einsum *s, const char *labels, enum call_fill fill)
{
	for (; *labels != '\0'; labels++)
		for (int i = 0; i < 2; i++) {
			int axis = axis_of(&s->in[i], *labels);
			if (axis >= 0 && !call_mixes_axis(s->c, &s->in[i].v, axis, fill))
				return false;
		}
	return true;
}

/* Batched matmul of the two operands over [shared.., rows.., columns..]; y gets its labels. Axes of b alone (columns)
 * are declared, too: every row of a meets all of their positions, of which decode has the new ones only. */
static bool multiply(struct einsum *s, struct term *y)
{
	char shared[IR_RANK_MAX + 1], left[IR_RANK_MAX + 1], right[IR_RANK_MAX + 1], sum[IR_RANK_MAX + 1];
	const struct term *a = &s->in[0], *b = &s->in[1];
	const struct ir_dim *dims[IR_RANK_MAX];
	size_t n = select_labels(s, a, b, true, true, shared);
	n += select_labels(s, a, b, true, false, left) + select_labels(s, b, a, true, false, right);
	select_labels(s, a, b, false, true, sum);
	if (strlen(shared) + 2 > IR_RANK_MAX || n > IR_RANK_MAX)
		return report_bad_einsum(s, "too many axes");
	if (!mix_label_axes(s, sum, FILL_ZERO) || !mix_label_axes(s, right, FILL_NONE))
		return false;
	struct ir_value p = as_batched_matrix(s, a, shared, left, sum),
	                q = as_batched_matrix(s, b, shared, sum, right);
	if (irb_failed(s->lw->b))
		return false;
	y->v = irb_matmul(s->lw->b, p, q, &(struct attrs_matmul){.ta = false});
	const char *labels = arena_printf(s->lw->arena, "%s%s%s", shared, left, right);
	y->rank = (int)n;
	memcpy(y->labels, labels, n + 1);
	for (size_t i = 0; i < n; i++)
		dims[i] = label_size(s, labels[i]);
	y->v = irb_reshape_to(s->lw->b, y->v, y->rank, dims);
	return !irb_failed(s->lw->b);
}

/* einsum(spec, a, b): diagonals while the operands are read, sums of labels of one operand, the matmul of two, and
 * the order of the result's labels. */
bool lower_einsum(const struct call *c, struct lowered *out)
{
	struct einsum s = {.c = c, .lw = c->lw};
	struct term y;
	if (!call_word(c, "spec", &s.spec) || !read_spec(&s) || !read_tensors(&s))
		return false;
	enum ir_dtype dtype = irb_type(c->lw->b, s.in[0].v)->dtype;
	bool was_cast = cast_to_f32_for_two_sums(&s);
	for (int i = 0; i < s.n && !irb_failed(c->lw->b); i++)
		if (!sum_unshared_labels(&s, i))
			return false;
	y = s.in[0];
	if (s.n == 2 && !multiply(&s, &y))
		return false;
	if (was_cast)
		cast_term(&s, &y, dtype);
	if (irb_failed(c->lw->b))
		return false;
	*out = lowered_tensor(permute_to(&s, &y, s.out.labels));
	return !irb_failed(c->lw->b);
}
