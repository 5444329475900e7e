/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices of constant bounds, and what pads leave as it is: all cuts of one axis
 * divide it into pieces, whose sizes add up to the axis; a slice is a run of
 * pieces, so that slices that meet or overlap still do in other sizes.
 */
#include <string.h>

#include "passes/shrink/shrink_shapes.h"

#define LIST_MAX 64

void shapes_add_cut(struct shapes *s, const struct ir_op *op, size_var whole, size_var part, int64_t begin)
{
	int64_t size = size_of(&s->sizes, part)->old;
	ARENA_ADD(s->sizes.arena, &s->cuts,
	          (struct cut){.op = op, .whole = whole, .part = part, .begin = begin, .end = begin + size});
}

/* The ends of all slices of one axis, ascending, without repetition. False: too many. */
static size_t cut_points(const struct shapes *s, size_var whole, int64_t *points)
{
	size_t n = 0;
	for (size_t i = 0; i < s->cuts.n; i++) {
		const struct cut *c = &s->cuts.items[i];
		int64_t ends[] = {0, c->begin, c->end, s->sizes.vars.items[whole].old};
		if (size_find(&s->sizes, c->whole) != whole)
			continue;
		for (size_t k = 0; k < TFMC_COUNT(ends); k++) {
			size_t at = 0;
			while (at < n && points[at] < ends[k])
				at++;
			if (at < n && points[at] == ends[k])
				continue;
			if (n == LIST_MAX)
				return 0;
			memmove(points + at + 1, points + at, (n - at) * sizeof(*points));
			points[at] = ends[k];
			n++;
		}
	}
	return n;
}

static void use_pieces(struct shapes *s, struct cut *c, const int64_t *points, const size_var *pieces,
                       size_t n)
{
	size_t first = 0, last = 0;
	while (points[first] < c->begin)
		first++;
	for (last = first; points[last] < c->end;)
		last++;
	c->pieces = pieces;
	c->n_pieces = n;
	c->first = first;
	c->last = last;
	if (last - first == 1)
		size_merge(&s->sizes, c->part, pieces[first]);
	else
		size_relate(&s->sizes, SIZE_SUM, pieces + first, last - first, &c->part, 1);
}

static void cut_axis(struct shapes *s, size_var whole)
{
	int64_t points[LIST_MAX + 1];
	size_t n = cut_points(s, whole, points);
	size_var *pieces = ARENA_ARRAY(s->sizes.arena, size_var, n + 1);
	for (size_t i = 0; i + 1 < n && pieces != NULL; i++)
		pieces[i] = size_new(&s->sizes, points[i + 1] - points[i]);
	if (n < 2 || pieces == NULL)
		size_fix(&s->sizes, whole);
	else
		size_relate(&s->sizes, SIZE_SUM, pieces, n - 1, &whole, 1);
	for (size_t i = 0; i < s->cuts.n; i++) {
		struct cut *c = &s->cuts.items[i];
		if (c->pieces != NULL || size_find(&s->sizes, c->whole) != whole)
			continue;
		if (n < 2 || pieces == NULL)
			size_fix(&s->sizes, c->part);
		else
			use_pieces(s, c, points, pieces, n - 1);
	}
}

void shapes_cut_axes(struct shapes *s)
{
	for (size_t i = 0; i < s->cuts.n; i++)
		if (s->cuts.items[i].pieces == NULL)
			cut_axis(s, size_find(&s->sizes, s->cuts.items[i].whole));
}

const struct cut *shapes_cut(const struct shapes *s, const struct ir_op *op)
{
	for (size_t i = 0; i < s->cuts.n; i++)
		if (s->cuts.items[i].op == op)
			return s->cuts.items[i].pieces != NULL ? &s->cuts.items[i] : NULL;
	return NULL;
}

int64_t shapes_pieces(struct shapes *s, const struct cut *c, size_t from, size_t to)
{
	int64_t size = 0;
	for (size_t i = from; i < to; i++)
		size += size_of(&s->sizes, c->pieces[i])->now;
	return size;
}
