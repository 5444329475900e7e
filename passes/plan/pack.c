/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing of the blocks of a lane: buffers are intervals of time with a height.
 * Greedy in several orders, each buffer into the smallest gap between those that
 * are alive with it, among equal ones where bytes were freed last (they are in
 * the caches); branch and bound (search.c) where no order meets the lower
 * bound (the largest sum of what is alive at once). Of packings with the same
 * peak that one wins which stacks best on the other lanes (lanes.c), then
 * the one whose bytes were freed most recently.
 */
#include "passes/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* Above this, one order only. */
#define MANY_BUFFERS 2000
/* Up to this, lanes are packed into each other's gaps. */
#define MIXED_BUFFERS 256

enum order { BY_SIZE, BY_AREA, BY_START, BY_END, BY_CROWD, N_ORDERS };
#define SEARCHED N_ORDERS /* the packing that branch and bound found */
#define N_WAYS   (N_ORDERS + 1)

struct item {
	struct plan_buffer *b;
	int64_t offset;
	double area;
	int64_t crowd; /* the largest sum of what is alive together with it */
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

/* What is alive in the fullest groups first, there the large ones. */
static int by_crowd(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	int order = compare_i64(b->crowd, a->crowd);
	return order != 0 ? order : by_size(x, y);
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

/* Groups since the bytes [at, at + size) held something before item i; many when they never did. */
static size_t idle(const struct packer *k, size_t i, int64_t at)
{
	const struct plan_buffer *b = k->items[i].b;
	size_t least = b->first + 1;
	for (size_t j = 0; j < i; j++) {
		const struct item *x = &k->items[j];
		bool shares = x->offset < at + b->size && at < x->offset + x->b->size;
		if (shares && x->b->last < b->first && b->first - x->b->last < least)
			least = b->first - x->b->last;
	}
	return least;
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
		bool better = best < 0 || gap < best_gap;
		if (gap >= size && (better || (gap == best_gap && idle(k, i, end) < idle(k, i, best)))) {
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
	static int (*const compare[])(const void *, const void *) = {[BY_SIZE] = by_size,
	                                                             [BY_AREA] = by_area,
	                                                             [BY_START] = by_start,
	                                                             [BY_END] = by_end,
	                                                             [BY_CROWD] = by_crowd};
	int64_t peak = 0;

	qsort(k->items, k->n, sizeof(*k->items), compare[order]);
	for (size_t i = 0; i < k->n; i++) {
		k->items[i].offset = best_gap(k, i);
		int64_t top = k->items[i].offset + k->items[i].b->size;
		peak = top > peak ? top : peak;
	}
	return peak;
}

/* alive[t]: the sum of sizes alive at t; the largest of them is the lower bound. */
static int64_t *sums(struct arena *a, const struct packer *k, size_t n_times)
{
	int64_t *alive = ARENA_ARRAY(a, int64_t, n_times + 2);
	for (size_t i = 0; alive != NULL && i < k->n; i++) {
		alive[k->items[i].b->first] += k->items[i].b->size;
		alive[k->items[i].b->last + 1] -= k->items[i].b->size;
	}
	for (size_t t = 0; alive != NULL && t <= n_times; t++)
		alive[t + 1] += alive[t];
	return alive;
}

/* ---- blocks ---- */

static int by_lane_and_start(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	if (a->b->lane != b->b->lane)
		return a->b->lane < b->b->lane ? -1 : 1;
	return tie(a, b);
}

/* Begins a block where nothing of its lane is alive before. items: all buffers, [n_buffers]. */
static bool make_blocks(struct arena *keep, struct plan_func *plan, struct item *items)
{
	plan->blocks = ARENA_ARRAY(keep, struct plan_block, plan->n_buffers + 1);
	if (plan->blocks == NULL)
		return false;
	for (size_t i = 0; i < plan->n_buffers; i++)
		items[i] = (struct item){.b = &plan->buffers[i]};
	if (plan->n_buffers > 0)
		qsort(items, plan->n_buffers, sizeof(*items), by_lane_and_start);
	plan->n_blocks = 0;
	for (size_t i = 0; i < plan->n_buffers; i++) {
		struct plan_buffer *b = items[i].b;
		struct plan_block *x = plan->n_blocks > 0 ? &plan->blocks[plan->n_blocks - 1] : NULL;
		if (x == NULL || x->lane != b->lane || x->last < b->first) {
			x = &plan->blocks[plan->n_blocks++];
			*x = (struct plan_block){.lane = b->lane, .first = b->first, .last = b->last};
		}
		x->last = b->last > x->last ? b->last : x->last;
		b->block = plan->n_blocks - 1;
	}
	return true;
}

/* ---- one block ---- */

/* What was tried: offsets of all buffers in every way, and the peak of every block. */
struct ways {
	struct plan_func *plan;
	struct arena *arena;
	int64_t *offset; /* [N_WAYS][n_buffers] */
	int64_t *peak;   /* [N_WAYS][n_blocks], INT64_MAX: not tried */
	bool *proved;    /* [n_blocks] */
};

static void remember(struct ways *w, size_t way, const struct packer *k, size_t block, int64_t peak)
{
	w->peak[way * w->plan->n_blocks + block] = peak;
	for (size_t i = 0; i < k->n; i++)
		w->offset[way * w->plan->n_buffers + (size_t)(k->items[i].b - w->plan->buffers)] =
		        k->items[i].offset;
}

/* Branch and bound below the best peak so far, which is that of `way`. */
static bool search(struct ways *w, struct packer *k, size_t block, size_t way)
{
	struct plan_func *plan = w->plan;
	int64_t best = w->peak[way * plan->n_blocks + block], peak = 0;
	struct plan_buffer **buffers = ARENA_ARRAY(w->arena, struct plan_buffer *, k->n + 1);
	if (buffers == NULL)
		return false;
	for (size_t i = 0; i < k->n; i++) {
		buffers[i] = k->items[i].b;
		buffers[i]->offset = w->offset[way * plan->n_buffers + (size_t)(buffers[i] - plan->buffers)];
	}
	w->proved[block] =
	        plan_search(w->arena, buffers, k->n, plan->n_times, best, plan->blocks[block].lower_bound);
	for (size_t i = 0; i < k->n; i++) {
		k->items[i].offset = k->items[i].b->offset;
		int64_t top = k->items[i].offset + k->items[i].b->size;
		peak = top > peak ? top : peak;
	}
	remember(w, SEARCHED, k, block, peak);
	return true;
}

static bool begin_block(struct ways *w, struct packer *k, size_t block)
{
	struct plan_func *plan = w->plan;
	for (size_t i = 0; i < plan->n_buffers; i++) {
		struct plan_buffer *b = &plan->buffers[i];
		if (b->block == block)
			k->items[k->n++] = (struct item){
			        .b = b, .area = (double)b->size * (double)(b->last - b->first + 1)};
	}
	const int64_t *alive = sums(w->arena, k, plan->n_times);
	if (alive == NULL)
		return false;
	for (size_t i = 0; i < k->n; i++)
		for (size_t t = k->items[i].b->first; t <= k->items[i].b->last; t++)
			k->items[i].crowd = alive[t] > k->items[i].crowd ? alive[t] : k->items[i].crowd;
	for (size_t t = 0; t <= plan->n_times; t++)
		if (alive[t] > plan->blocks[block].lower_bound)
			plan->blocks[block].lower_bound = alive[t];
	return true;
}

static bool pack_block(struct ways *w, size_t block)
{
	struct plan_func *plan = w->plan;
	struct packer k = {.arena = w->arena, .items = ARENA_ARRAY(w->arena, struct item, plan->n_buffers)};
	size_t best = BY_SIZE;
	k.alive = ARENA_ARRAY(w->arena, struct item *, plan->n_buffers);
	if (k.items == NULL || k.alive == NULL || !begin_block(w, &k, block))
		return false;
	for (size_t way = 0; way < N_WAYS; way++)
		w->peak[way * plan->n_blocks + block] = INT64_MAX;
	for (enum order order = BY_SIZE; order < N_ORDERS && (order == BY_SIZE || k.n <= MANY_BUFFERS);
	     order++) {
		int64_t peak = place(&k, order);
		remember(w, order, &k, block, peak);
		if (w->peak[order * plan->n_blocks + block] < w->peak[best * plan->n_blocks + block])
			best = order;
	}
	w->proved[block] = w->peak[best * plan->n_blocks + block] == plan->blocks[block].lower_bound;
	return w->proved[block] || search(w, &k, block, best);
}

/* ---- the best combination ---- */

static size_t best_way(const struct ways *w, size_t block)
{
	size_t best = 0, n = w->plan->n_blocks;
	for (size_t way = 1; way < N_WAYS; way++)
		if (w->peak[way * n + block] < w->peak[best * n + block])
			best = way;
	return best;
}

/* Offsets of `way` wherever it is as good as the best one of a block, else of that. */
static void choose(struct ways *w, size_t way)
{
	struct plan_func *plan = w->plan;
	for (size_t i = 0; i < plan->n_buffers; i++) {
		size_t block = plan->buffers[i].block, best = best_way(w, block), n = plan->n_blocks;
		size_t from = w->peak[way * n + block] == w->peak[best * n + block] ? way : best;
		plan->buffers[i].offset = w->offset[from * plan->n_buffers + i];
		plan->blocks[block].peak = w->peak[best * n + block];
	}
}

/* Groups between the last use of bytes and the next, over all buffers: small is good for the caches. */
static double staleness(const struct plan_func *plan)
{
	double sum = 0;
	for (size_t i = 0; i < plan->n_buffers; i++) {
		const struct plan_buffer *x = &plan->buffers[i];
		size_t least = x->first + 1;
		for (size_t j = 0; j < plan->n_buffers; j++) {
			const struct plan_buffer *y = &plan->buffers[j];
			bool shares = x->block == y->block && y->last < x->first &&
			              x->offset < y->offset + y->size && y->offset < x->offset + x->size;
			least = shares && x->first - y->last < least ? x->first - y->last : least;
		}
		sum += (double)least;
	}
	return sum;
}

static bool combine(struct ways *w, struct arena *keep, struct ir_dims *dims)
{
	struct plan_stack s;
	double best_gap = 0, best_stale = 0;
	size_t best_way_of_all = 0, best_turn = 0;
	bool any = false, many = w->plan->n_buffers > MANY_BUFFERS;
	if (!plan_stack_begin(&s, w->arena, dims, w->plan))
		return false;
	for (size_t way = 0; way < (many ? 1 : N_WAYS); way++) {
		choose(w, way);
		double stale = many ? 0 : staleness(w->plan);
		for (size_t turn = 0; turn < plan_stack_turns(&s); turn++) {
			double gap = plan_stack_try(&s, turn);
			if (any && (gap > best_gap || (!(gap < best_gap) && stale >= best_stale)))
				continue;
			any = true;
			best_gap = gap;
			best_stale = stale;
			best_way_of_all = way;
			best_turn = turn;
		}
	}
	choose(w, best_way_of_all);
	best_gap = plan_stack_try(&s, best_turn);
	if (w->plan->n_lanes > 1 && best_gap > 0 && w->plan->n_buffers <= MIXED_BUFFERS)
		(void)plan_mixed(&s, keep, best_gap);
	plan_stack_keep(&s, dims);
	return !arena_failed(w->arena);
}

static void sum_lanes(struct ways *w)
{
	struct plan_func *plan = w->plan;
	for (size_t i = 0; i < plan->n_lanes; i++)
		plan->lanes[i].proved = true;
	for (size_t i = 0; i < plan->n_blocks; i++) {
		const struct plan_block *b = &plan->blocks[i];
		struct plan_lane *l = &plan->lanes[b->lane];
		l->peak = b->peak > l->peak ? b->peak : l->peak;
		l->lower_bound = b->lower_bound > l->lower_bound ? b->lower_bound : l->lower_bound;
		l->proved = l->proved && w->proved[i];
	}
}

bool plan_pack(struct arena *a, struct arena *keep, struct ir_dims *dims, struct plan_func *plan)
{
	struct ways w = {.plan = plan, .arena = a};
	struct item *items = ARENA_ARRAY(a, struct item, plan->n_buffers + 1);
	if (items == NULL || !make_blocks(keep, plan, items))
		return false;
	w.offset = ARENA_ARRAY(a, int64_t, N_WAYS * plan->n_buffers + 1);
	w.peak = ARENA_ARRAY(a, int64_t, N_WAYS * plan->n_blocks + 1);
	w.proved = ARENA_ARRAY(a, bool, plan->n_blocks + 1);
	if (arena_failed(a))
		return false;
	for (size_t i = 0; i < plan->n_blocks; i++)
		if (!pack_block(&w, i))
			return false;
	choose(&w, 0);
	sum_lanes(&w);
	return combine(&w, keep, dims);
}

const char *plan_check(struct arena *a, const struct plan_func *plan)
{
	for (size_t i = 0; i < plan->n_buffers; i++) {
		const struct plan_buffer *x = &plan->buffers[i];
		if (x->first > x->last || x->last > plan->n_times)
			return arena_printf(a, "buffer %zu (%s) has no lifetime", i, x->name);
		if (x->offset < 0 || x->offset % PLAN_ALIGN != 0 ||
		    x->offset + x->size > plan->blocks[x->block].peak)
			return arena_printf(a, "buffer %zu (%s) lies outside of its block", i, x->name);
		for (size_t j = i + 1; j < plan->n_buffers; j++) {
			const struct plan_buffer *y = &plan->buffers[j];
			if (x->block == y->block && together(x, y) && x->offset < y->offset + y->size &&
			    y->offset < x->offset + x->size)
				return arena_printf(a, "buffers %zu (%s) and %zu (%s) overlap", i, x->name, j,
				                    y->name);
		}
	}
	return NULL;
}
