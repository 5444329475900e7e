/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing without blocks, for functions whose lanes are alive in each other's
 * gaps: one buffer after another, each at an offset that is a polynomial with a
 * coefficient for every lane. A buffer goes to 0, on top of one that is alive
 * with it, or on top of all of them (coefficient by coefficient); of those
 * places that are apart from everything alive with it, for all values of the
 * dims, it takes the one with the lowest top at the points of the dims.
 */
#include "passes/plan/plan.h"

#include <stdlib.h>
#include <string.h>

struct mixed {
	struct plan_stack *s;
	const struct plan_func *plan;
	size_t n_lanes;
	int64_t *at;    /* [n_buffers][n_lanes] */
	int64_t *place; /* [n_lanes] candidate */
	int64_t *best;  /* [n_lanes] */
	int64_t *rest;  /* [n_lanes] of a comparison */
	size_t *order;  /* [n_buffers] */
	double *key;    /* [n_buffers] the larger, the earlier */
	const struct plan_buffer *buffer;
};

enum mixed_order { LONG_FIRST, LARGE_FIRST, AREA_FIRST, CROWDED_FIRST, EARLY_FIRST, LATE_FIRST, N_MIXED };

static const int64_t *at_of(const struct mixed *m, size_t i)
{
	return m->at + i * m->n_lanes;
}

static bool together(const struct plan_buffer *a, const struct plan_buffer *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* What is missing in lane i is there in lanes whose units are multiples of its unit; taken away there. */
static bool covered(const struct mixed *m, int64_t *rest, size_t i)
{
	for (size_t k = 0; k < m->n_lanes && rest[i] < 0; k++) {
		int64_t least = m->s->least[k * m->n_lanes + i];
		if (least <= 0 || rest[k] <= 0)
			continue;
		int64_t need = -rest[i] / least + (-rest[i] % least != 0);
		int64_t taken = need < rest[k] ? need : rest[k];
		rest[k] -= taken;
		rest[i] = taken == need ? 0 : rest[i] + taken * least;
	}
	return rest[i] >= 0;
}

/* a >= b + size of a buffer of that lane, for all values of the dims. */
static bool above(const struct mixed *m, const int64_t *a, const int64_t *b, const struct plan_buffer *under)
{
	bool all = true, some = false;
	for (size_t i = 0; i < m->n_lanes; i++) {
		m->rest[i] = a[i] - b[i] - (i == under->lane ? under->size : 0);
		all = all && m->rest[i] >= 0;
		some = some || m->rest[i] > 0;
	}
	for (size_t i = 0; !all && some && i < m->n_lanes; i++)
		some = covered(m, m->rest, i);
	return all || some;
}

static bool fits(const struct mixed *m, size_t n_placed)
{
	for (size_t k = 0; k < n_placed; k++) {
		const struct plan_buffer *x = &m->plan->buffers[m->order[k]];
		const int64_t *at = at_of(m, m->order[k]);
		if (together(x, m->buffer) && !above(m, m->place, at, x) &&
		    !above(m, at, m->place, m->buffer))
			return false;
	}
	return true;
}

/* How high the top of the candidate is, relative to the lower bounds. */
static double height(const struct mixed *m)
{
	double sum = 0;
	for (int point = 0; point < PLAN_POINTS; point++) {
		double top = (double)m->buffer->size * m->s->unit[m->buffer->lane][point];
		for (size_t i = 0; i < m->n_lanes; i++)
			top += (double)m->place[i] * m->s->unit[i][point];
		double part = m->s->bound[point] > 0 ? top / m->s->bound[point] : 0;
		sum += part > 1 ? 100 * part : part; /* beyond the bound it costs */
	}
	return sum;
}

static void consider(struct mixed *m, size_t n_placed, double *lowest)
{
	double h = height(m);
	if ((*lowest >= 0 && h >= *lowest) || !fits(m, n_placed))
		return;
	*lowest = h;
	memcpy(m->best, m->place, m->n_lanes * sizeof(*m->best));
}

/* On top of everything, but where a unit is a multiple of another one: above 4*B*S and 32*B is 4*B*S + 28*B.
 */
static void consider_tight(struct mixed *m, size_t n_placed, const int64_t *all, double *lowest)
{
	size_t n = m->n_lanes;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++) {
			int64_t least = m->s->least[k * n + i];
			if (all[i] <= 0 || all[k] <= 0 || least <= 0)
				continue;
			memcpy(m->place, all, n * sizeof(*all));
			m->place[i] = all[k] > all[i] / least ? 0 : all[i] - least * all[k];
			consider(m, n_placed, lowest);
		}
}

static void place_one(struct mixed *m, size_t n_placed)
{
	size_t here = m->order[n_placed], bytes = m->n_lanes * sizeof(*m->place);
	double lowest = -1;
	int64_t *all = m->at + here * m->n_lanes;
	m->buffer = &m->plan->buffers[here];
	memset(all, 0, bytes);
	memset(m->place, 0, bytes);
	consider(m, n_placed, &lowest);
	for (size_t k = 0; k < n_placed; k++) {
		const struct plan_buffer *x = &m->plan->buffers[m->order[k]];
		if (!together(x, m->buffer))
			continue;
		memcpy(m->place, at_of(m, m->order[k]), bytes);
		m->place[x->lane] += x->size;
		for (size_t i = 0; i < m->n_lanes; i++)
			all[i] = m->place[i] > all[i] ? m->place[i] : all[i];
		consider(m, n_placed, &lowest);
	}
	memcpy(m->place, all, bytes);
	consider(m, n_placed, &lowest);
	consider_tight(m, n_placed, all, &lowest);
	memcpy(all, m->best, bytes);
}

/* ---- orders ---- */

/* The fullest time of the buffer, in bytes at a point of the dims. */
static double crowd(const struct mixed *m, size_t i, int point)
{
	const struct plan_func *p = m->plan;
	const struct plan_buffer *b = &p->buffers[i];
	double most = 0;
	for (size_t k = 0; k < p->n_buffers; k++) {
		const struct plan_buffer *x = &p->buffers[k];
		size_t t = x->first > b->first ? x->first : b->first;
		double sum = 0;
		if (!together(x, b))
			continue;
		for (size_t j = 0; j < p->n_buffers; j++)
			if (p->buffers[j].first <= t && t <= p->buffers[j].last)
				sum += (double)p->buffers[j].size * m->s->unit[p->buffers[j].lane][point];
		most = sum > most ? sum : most;
	}
	return most;
}

static double key_of(const struct mixed *m, size_t i, enum mixed_order order, int point)
{
	const struct plan_buffer *b = &m->plan->buffers[i];
	double length = (double)(b->last - b->first + 1);
	double bytes = (double)b->size * m->s->unit[b->lane][point];
	switch (order) {
	case LONG_FIRST: return length;
	case LARGE_FIRST: return bytes;
	case AREA_FIRST: return bytes * length;
	case CROWDED_FIRST: return crowd(m, i, point);
	case EARLY_FIRST: return -(double)b->first;
	case LATE_FIRST: return (double)b->last;
	case N_MIXED: break;
	}
	return 0;
}

/* Insertion: stable, and there are few buffers. */
static void sort(struct mixed *m, enum mixed_order order, int point)
{
	for (size_t i = 0; i < m->plan->n_buffers; i++)
		m->key[i] = key_of(m, i, order, point);
	for (size_t i = 0; i < m->plan->n_buffers; i++) {
		size_t k = i;
		for (; k > 0 && m->key[m->order[k - 1]] < m->key[i]; k--)
			m->order[k] = m->order[k - 1];
		m->order[k] = i;
	}
}

/* The largest gap of the packing at the points. */
static double measure(struct mixed *m)
{
	double worst = 0;
	for (int point = 0; point < PLAN_POINTS; point++) {
		double most = 0;
		for (size_t k = 0; k < m->plan->n_buffers; k++) {
			const struct plan_buffer *b = &m->plan->buffers[k];
			double top = (double)b->size * m->s->unit[b->lane][point];
			for (size_t i = 0; i < m->n_lanes; i++)
				top += (double)at_of(m, k)[i] * m->s->unit[i][point];
			most = top > most ? top : most;
		}
		double bound = m->s->bound[point], gap = bound > 0 ? (most - bound) / bound : 0;
		m->s->arena_bytes[point] = most;
		gap *= point == 0 ? PLAN_LARGEST_WEIGHT : 1;
		worst = gap > worst ? gap : worst;
	}
	return worst;
}

/* Every buffer becomes a block of its own. */
static bool keep(struct mixed *m, struct arena *keep, const int64_t *at)
{
	struct plan_func *p = m->s->plan;
	p->blocks = ARENA_ARRAY(keep, struct plan_block, p->n_buffers + 1);
	if (p->blocks == NULL)
		return false;
	for (size_t i = 0; i < p->n_buffers; i++) {
		struct plan_buffer *b = &p->buffers[i];
		p->blocks[i] = (struct plan_block){.lane = b->lane,
		                                   .first = b->first,
		                                   .last = b->last,
		                                   .peak = b->size,
		                                   .lower_bound = b->size};
		b->block = i;
		b->offset = 0;
	}
	p->n_blocks = p->n_buffers;
	memcpy(m->at, at, p->n_buffers * m->n_lanes * sizeof(*at));
	m->s->base = m->at;
	(void)measure(m);
	return true;
}

double plan_mixed(struct plan_stack *s, struct arena *keep_in, double gap)
{
	struct mixed m = {.s = s, .plan = s->plan, .n_lanes = s->plan->n_lanes};
	size_t n = s->plan->n_buffers, cells = n * m.n_lanes;
	int64_t *best = ARENA_ARRAY(s->arena, int64_t, cells + 1);
	bool any = false;
	m.at = ARENA_ARRAY(s->arena, int64_t, cells + 1);
	m.place = ARENA_ARRAY(s->arena, int64_t, m.n_lanes + 1);
	m.best = ARENA_ARRAY(s->arena, int64_t, m.n_lanes + 1);
	m.rest = ARENA_ARRAY(s->arena, int64_t, m.n_lanes + 1);
	m.order = ARENA_ARRAY(s->arena, size_t, n + 1);
	m.key = ARENA_ARRAY(s->arena, double, n + 1);
	if (arena_failed(s->arena))
		return gap;
	for (int turn = 0; turn < 2 * N_MIXED; turn++) {
		sort(&m, (enum mixed_order)(turn % N_MIXED), turn / N_MIXED);
		for (size_t i = 0; i < n; i++)
			place_one(&m, i);
		double now = measure(&m);
		if (now >= gap)
			continue;
		gap = now;
		any = true;
		memcpy(best, m.at, cells * sizeof(*best));
	}
	return any && keep(&m, keep_in, best) ? gap : -1;
}
