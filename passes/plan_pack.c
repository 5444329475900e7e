/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing of one lane: buffers are intervals of time with a height. Greedy in
 * several orders, each buffer into the smallest gap between those that are
 * alive with it; the best order wins, and the search stops at the lower bound
 * (the largest sum of what is alive at once).
 */
#include "passes/plan.h"

#include <stdlib.h>
#include <string.h>

/* Above this, one order only. */
#define MANY_BUFFERS 2000

enum order { BY_SIZE, BY_AREA, BY_START, BY_END, N_ORDERS };

struct item {
	struct plan_buffer *b;
	int64_t offset;
	double area;
};

struct packer {
	struct arena *arena;
	struct item *items;  /* [n] in the order of placement */
	struct item **alive; /* [n] placed, alive with the one at hand, by offset */
	size_t n;
};

static int compare_i64(int64_t a, int64_t b)
{
	return a < b ? -1 : a > b;
}

/* Ties: earlier first, then the order of definition (the address in the array of buffers). */
static int tie(const struct item *a, const struct item *b)
{
	if (a->b->first != b->b->first)
		return a->b->first < b->b->first ? -1 : 1;
	return a->b < b->b ? -1 : a->b > b->b;
}

static int by_size(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	int order = compare_i64(b->b->size, a->b->size);
	return order != 0 ? order : tie(a, b);
}

static int by_area(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	return a->area != b->area ? (a->area > b->area ? -1 : 1) : tie(a, b);
}

static int by_start(const void *x, const void *y)
{
	return tie(x, y);
}

static int by_end(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	if (a->b->last != b->b->last)
		return a->b->last > b->b->last ? -1 : 1;
	return tie(a, b);
}

static int by_offset(const void *x, const void *y)
{
	const struct item *a = *(const struct item *const *)x, *b = *(const struct item *const *)y;
	int order = compare_i64(a->offset, b->offset);
	return order != 0 ? order : tie(a, b);
}

static bool together(const struct plan_buffer *a, const struct plan_buffer *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* The smallest gap that holds item i, or the end of what is alive with it. */
static int64_t best_gap(struct packer *k, size_t i)
{
	int64_t size = k->items[i].b->size, end = 0, best = -1, best_gap = 0;
	size_t n = 0;

	for (size_t j = 0; j < i; j++)
		if (together(k->items[j].b, k->items[i].b))
			k->alive[n++] = &k->items[j];
	if (n > 0)
		qsort(k->alive, n, sizeof(*k->alive), by_offset);
	for (size_t j = 0; j < n; j++) {
		int64_t gap = k->alive[j]->offset - end, top = k->alive[j]->offset + k->alive[j]->b->size;
		if (gap >= size && (best < 0 || gap < best_gap)) {
			best = end;
			best_gap = gap;
		}
		end = top > end ? top : end;
	}
	return best >= 0 ? best : end;
}

/* Places everything in one order; gives the peak. */
static int64_t place(struct packer *k, enum order order)
{
	static int (*const compare[])(const void *, const void *) = {
	        [BY_SIZE] = by_size, [BY_AREA] = by_area, [BY_START] = by_start, [BY_END] = by_end};
	int64_t peak = 0;

	qsort(k->items, k->n, sizeof(*k->items), compare[order]);
	for (size_t i = 0; i < k->n; i++) {
		k->items[i].offset = best_gap(k, i);
		int64_t top = k->items[i].offset + k->items[i].b->size;
		peak = top > peak ? top : peak;
	}
	return peak;
}

/* The largest sum of sizes alive at once. */
static int64_t lower_bound(struct arena *a, const struct packer *k, size_t n_times)
{
	int64_t *change = ARENA_ARRAY(a, int64_t, n_times + 2), sum = 0, most = 0;
	if (change == NULL)
		return 0;
	for (size_t i = 0; i < k->n; i++) {
		change[k->items[i].b->first] += k->items[i].b->size;
		change[k->items[i].b->last + 1] -= k->items[i].b->size;
	}
	for (size_t t = 0; t <= n_times; t++) {
		sum += change[t];
		most = sum > most ? sum : most;
	}
	return most;
}

static bool pack_lane(struct arena *a, struct plan_func *plan, size_t lane)
{
	struct packer k = {.arena = a, .items = ARENA_ARRAY(a, struct item, plan->n_buffers)};
	struct plan_lane *l = &plan->lanes[lane];

	k.alive = ARENA_ARRAY(a, struct item *, plan->n_buffers);
	if (k.items == NULL || k.alive == NULL)
		return false;
	for (size_t i = 0; i < plan->n_buffers; i++) {
		struct plan_buffer *b = &plan->buffers[i];
		if (b->lane == lane)
			k.items[k.n++] =
			        (struct item){b, 0, (double)b->size * (double)(b->last - b->first + 1)};
	}
	l->lower_bound = lower_bound(a, &k, plan->n_times);
	for (enum order order = BY_SIZE; order < N_ORDERS; order++) {
		int64_t peak = place(&k, order);
		if (order != BY_SIZE && peak >= l->peak)
			continue;
		l->peak = peak;
		for (size_t i = 0; i < k.n; i++)
			k.items[i].b->offset = k.items[i].offset;
		if (peak == l->lower_bound || k.n > MANY_BUFFERS)
			break;
	}
	return true;
}

bool plan_pack(struct arena *a, struct plan_func *plan)
{
	for (size_t i = 0; i < plan->n_lanes; i++)
		if (!pack_lane(a, plan, i))
			return false;
	return true;
}

const char *plan_check(struct arena *a, const struct plan_func *plan)
{
	for (size_t i = 0; i < plan->n_buffers; i++) {
		const struct plan_buffer *x = &plan->buffers[i];
		if (x->first > x->last || x->last > plan->n_times)
			return arena_printf(a, "buffer %zu (%s) has no lifetime", i, x->name);
		if (x->offset < 0 || x->offset % PLAN_ALIGN != 0 ||
		    x->offset + x->size > plan->lanes[x->lane].peak)
			return arena_printf(a, "buffer %zu (%s) lies outside of its lane", i, x->name);
		for (size_t j = i + 1; j < plan->n_buffers; j++) {
			const struct plan_buffer *y = &plan->buffers[j];
			if (x->lane == y->lane && together(x, y) && x->offset < y->offset + y->size &&
			    y->offset < x->offset + x->size)
				return arena_printf(a, "buffers %zu (%s) and %zu (%s) overlap", i, x->name, j,
				                    y->name);
		}
	}
	return NULL;
}
