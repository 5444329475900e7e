/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Branch and bound for what greedy packing leaves above the lower bound. A
 * solution can be pushed down until every buffer rests on another one or on 0,
 * so buffers are placed by increasing offset, each on the highest of those
 * below it (its floor); only such sequences are tried. A branch ends when
 *   - somewhere in time the lowest floor plus all that is left exceeds the wanted peak,
 *   - a buffer that is not placed fits completely below the offset at hand,
 *   - the same set of placements was reached in another order (equal offsets by
 *     index, equal buffers by index).
 * Every solution lowers the wanted peak; the optimum is proved when the tree ends before the limit of nodes.
 */
#include "passes/plan/plan.h"

#include <string.h>

#define NODES_MAX   100000
#define WORK_MAX    ((size_t)30000000) /* steps of all nodes together */
#define BUFFERS_MAX 256

struct box {
	struct plan_buffer *b;
	size_t first, last; /* sections */
	int64_t offset;
	bool placed;
};

struct search {
	struct box *boxes;
	size_t n, n_sections;
	int64_t *floor; /* [n_sections] top of what is placed there */
	int64_t *rest;  /* [n_sections] sizes of what is not placed */
	int64_t wanted; /* the peak must not exceed it */
	int64_t target; /* no solution is below it */
	size_t nodes, work;
	bool stopped;   /* at a limit */
	int64_t *saved; /* [depth][n_sections] floors before a placement */
};

/* ---- sections: stretches of time in which the same buffers are alive ---- */

/* Where buffers begin or end cuts time; section_of[t] is the number of the section of time t. */
static size_t make_sections(struct search *s, size_t *section_of, size_t n_times)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n; i++) {
		section_of[s->boxes[i].b->first] = 1;
		section_of[s->boxes[i].b->last + 1] = 1;
	}
	for (size_t t = 0; t < n_times; t++) {
		n += section_of[t] != 0;
		section_of[t] = n;
	}
	for (size_t i = 0; i < s->n; i++) {
		s->boxes[i].first = section_of[s->boxes[i].b->first];
		s->boxes[i].last = section_of[s->boxes[i].b->last];
	}
	return n + 1;
}

/* ---- one node ---- */

static int64_t floor_of(const struct search *s, const struct box *x)
{
	int64_t top = 0;
	for (size_t i = x->first; i <= x->last; i++)
		top = s->floor[i] > top ? s->floor[i] : top;
	return top;
}

/* What cannot be reached: the lowest place of anything alive in a section, plus all that must still lie
 * there. */
static bool is_hopeless(struct search *s, int64_t level)
{
	for (size_t i = 0; i < s->n_sections; i++) {
		int64_t low = s->floor[i] > level ? s->floor[i] : level;
		if (s->rest[i] > 0 && low + s->rest[i] > s->wanted)
			return true;
	}
	return false;
}

/* Equal in all that counts. */
static bool are_twins(const struct box *a, const struct box *b)
{
	return a->b->size == b->b->size && a->first == b->first && a->last == b->last;
}

static bool has_earlier_twin(const struct search *s, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!s->boxes[k].placed && are_twins(&s->boxes[k], &s->boxes[i]))
			return true;
	return false;
}

/* The lowest top that a buffer that is not placed can have: nothing else goes at or above it before. */
static int64_t lowest_top(const struct search *s)
{
	int64_t least = INT64_MAX;
	for (size_t i = 0; i < s->n; i++) {
		const struct box *x = &s->boxes[i];
		int64_t top = x->placed ? INT64_MAX : floor_of(s, x) + x->b->size;
		least = top < least ? top : least;
	}
	return least;
}

static void change_rest(struct search *s, const struct box *x, int64_t by)
{
	for (size_t i = x->first; i <= x->last; i++)
		s->rest[i] += by;
}

static void keep(struct search *s)
{
	int64_t peak = 0;
	for (size_t i = 0; i < s->n; i++) {
		struct box *x = &s->boxes[i];
		x->b->offset = x->offset;
		peak = x->offset + x->b->size > peak ? x->offset + x->b->size : peak;
	}
	s->wanted = peak - PLAN_ALIGN;
}

static bool place(struct search *s, size_t depth, int64_t level, size_t after);

/* Places box i on its floor and goes on; true when nothing better is wanted. */
static bool try_box(struct search *s, size_t depth, size_t i, int64_t offset)
{
	struct box *x = &s->boxes[i];
	int64_t *before = s->saved + depth * s->n_sections;
	memcpy(before, s->floor, s->n_sections * sizeof(*before));
	for (size_t k = x->first; k <= x->last; k++)
		s->floor[k] = offset + x->b->size;
	x->placed = true;
	x->offset = offset;
	change_rest(s, x, -x->b->size);
	bool done = place(s, depth + 1, offset, i);
	change_rest(s, x, x->b->size);
	x->placed = false;
	memcpy(s->floor, before, s->n_sections * sizeof(*before));
	return done;
}

/* The candidate at the lowest offset of all at or above (level, after), larger ones first; n: none. */
static size_t next_candidate(const struct search *s, const bool *tried, int64_t level, size_t after,
                             int64_t top)
{
	size_t best = s->n;
	int64_t best_offset = 0;
	for (size_t i = 0; i < s->n; i++) {
		const struct box *x = &s->boxes[i];
		if (x->placed || tried[i])
			continue;
		int64_t offset = floor_of(s, x);
		bool ordered = offset > level || (offset == level && (after == s->n || i > after));
		if (!ordered || offset >= top || offset + x->b->size > s->wanted || has_earlier_twin(s, i))
			continue;
		if (best == s->n || offset < best_offset ||
		    (offset == best_offset && x->b->size > s->boxes[best].b->size)) {
			best = i;
			best_offset = offset;
		}
	}
	return best;
}

static bool place(struct search *s, size_t depth, int64_t level, size_t after)
{
	bool tried[BUFFERS_MAX] = {false};
	if (depth == s->n) {
		keep(s);
		return s->wanted < s->target;
	}
	s->work += s->n * 8;
	if (++s->nodes > NODES_MAX || s->work > WORK_MAX) {
		s->stopped = true;
		return true;
	}
	if (is_hopeless(s, level))
		return false;
	int64_t top = lowest_top(s);
	for (;;) {
		size_t i = next_candidate(s, tried, level, after, top);
		s->work += s->n;
		if (i == s->n)
			return false;
		tried[i] = true;
		if (try_box(s, depth, i, floor_of(s, &s->boxes[i])))
			return true;
		if (is_hopeless(s, level)) /* a better peak is wanted by now */
			return false;
	}
}

/* ---- all ---- */

static bool begin(struct search *s, struct arena *a, struct plan_buffer **buffers, size_t n, size_t n_times)
{
	size_t *section_of = ARENA_ARRAY(a, size_t, n_times + 2);
	s->boxes = ARENA_ARRAY(a, struct box, n);
	if (section_of == NULL || s->boxes == NULL)
		return false;
	for (size_t i = 0; i < n; i++)
		s->boxes[i].b = buffers[i];
	s->n = n;
	s->n_sections = make_sections(s, section_of, n_times + 2);
	s->floor = ARENA_ARRAY(a, int64_t, s->n_sections);
	s->rest = ARENA_ARRAY(a, int64_t, s->n_sections);
	s->saved = ARENA_ARRAY(a, int64_t, (n + 1) * s->n_sections);
	if (s->floor == NULL || s->rest == NULL || s->saved == NULL)
		return false;
	for (size_t i = 0; i < n; i++)
		change_rest(s, &s->boxes[i], buffers[i]->size);
	return true;
}

bool plan_search(struct arena *a, struct plan_buffer **buffers, size_t n, size_t n_times, int64_t peak,
                 int64_t bound)
{
	struct search s = {.wanted = peak - PLAN_ALIGN, .target = bound};
	if (peak <= bound)
		return true;
	if (n > BUFFERS_MAX || !begin(&s, a, buffers, n, n_times))
		return false;
	(void)place(&s, 0, 0, n);
	return !s.stopped;
}
