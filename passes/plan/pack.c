/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing: buffers are intervals of time, offsets are polynomials with a
 * coefficient for the unit of each lane. Buffers are placed one after another,
 * each at 0, on top of one that is alive with it, or on top of all of them
 * (coefficient by coefficient); of those places that are apart from everything
 * alive with it, for all values of the dims, it takes the one with the lowest
 * top at the points of the dims. Several orders are tried; in each of them the
 * buffer at the peak moves toward the front and everything is placed again
 * ("squeaky wheel" optimization, Joslin and Clements 1999).
 */
#include "passes/plan/plan.h"

#include <string.h>

#include "ir/support/checked.h"

#define MANY_BUFFERS 256 /* above this, one order, once */
#define PROMOTIONS   12  /* of buffers at the peak, for each order */
#define TOPS_MAX     8   /* sides of the maximum in the size of an arena */
/* A gap at the largest dims counts so much: those are the bytes that callers have. */
#define LARGEST_WEIGHT 8
/* Bytes above the lower bound count so much more than those below it when a place is chosen. */
#define OVER_BOUND 100

enum order { LARGE_FIRST, LONG_FIRST, AREA_FIRST, CROWDED_FIRST, EARLY_FIRST, LATE_FIRST, N_ORDERS };

struct packer {
	struct plan_func *plan;
	struct ir_dims *dims;
	size_t n_lanes;
	double (*unit)[PLAN_POINTS]; /* [n_lanes] bytes for each coefficient at the points */
	int64_t *least; /* [n_lanes][n_lanes] unit i is at least so many times unit j; 0: not known */
	int64_t *alive; /* [n_times + 2][n_lanes] sums of sizes */
	int64_t *raw;   /* [n_times + 2][n_lanes] the same without padding */
	double bound[PLAN_POINTS]; /* bytes that are alive at once, at least */
	int64_t *at;               /* [n_buffers][n_lanes] offsets */
	size_t *order;             /* [n_buffers] of placement */
	size_t *near;              /* [n_near] placed, alive with the buffer at hand */
	size_t n_near;
	int64_t *place, *best, *rest; /* [n_lanes] candidate, the best one so far, of a comparison */
};

/* ---- sizes at the points of the dims ---- */

static int64_t at_point(const struct ir_dim_sym *s, size_t index, int point)
{
	switch (point) {
	case 0: return s->hi;
	case 1: return s->lo;
	case 2: return s->lo + (s->hi - s->lo) / 2;
	default: return index % 2 == 0 ? s->hi : s->lo;
	}
}

static bool find_units(struct packer *k, struct arena *a)
{
	size_t n = ir_dims_count(k->dims);
	int64_t *values = ARENA_ARRAY(a, int64_t, n + 1), v;
	if (values == NULL)
		return false;
	for (int point = 0; point < PLAN_POINTS; point++) {
		for (size_t i = 0; i < n; i++)
			values[i] = at_point(ir_dims_sym(k->dims, i), i, point);
		for (size_t i = 0; i < k->n_lanes; i++)
			k->unit[i][point] = ir_dim_eval(k->plan->lanes[i].unit, values, &v) ? (double)v : 0;
	}
	return true;
}

static double bytes_at(const struct packer *k, const int64_t *coefficients, int point)
{
	double bytes = 0;
	for (size_t i = 0; i < k->n_lanes; i++)
		bytes += (double)coefficients[i] * k->unit[i][point];
	return bytes;
}

/* B*T is at least 1 times B where T is at least 1. */
static void find_least(struct packer *k)
{
	const struct plan_lane *l = k->plan->lanes;
	for (size_t i = 0; i < k->n_lanes; i++)
		for (size_t j = 0; j < k->n_lanes; j++) {
			const struct ir_dim *q = i != j ? ir_dim_divide(k->dims, l[i].unit, l[j].unit) : NULL;
			int64_t least = q != NULL ? ir_dim_lo(k->dims, q) : 0;
			k->least[i * k->n_lanes + j] = least > 0 ? least : 0;
		}
}

static void find_alive(struct packer *k)
{
	const struct plan_func *p = k->plan;
	for (size_t i = 0; i < p->n_buffers; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		for (size_t t = b->first; t <= b->last; t++) {
			k->alive[t * k->n_lanes + b->lane] += b->size;
			k->raw[t * k->n_lanes + b->lane] += b->raw;
		}
	}
	for (size_t t = 0; t <= p->n_times; t++)
		for (int point = 0; point < PLAN_POINTS; point++) {
			double bytes = bytes_at(k, k->alive + t * k->n_lanes, point);
			k->bound[point] = bytes > k->bound[point] ? bytes : k->bound[point];
		}
}

/* ---- one buffer ---- */

static int64_t *at_of(const struct packer *k, size_t buffer)
{
	return k->at + buffer * k->n_lanes;
}

static void top_of(const struct packer *k, size_t buffer, int64_t *top)
{
	const struct plan_buffer *b = &k->plan->buffers[buffer];
	memcpy(top, at_of(k, buffer), k->n_lanes * sizeof(*top));
	top[b->lane] += b->size;
}

/* What is missing in lane i is there in lanes whose units are multiples of its unit; taken away there. */
static bool covered(const struct packer *k, int64_t *rest, size_t i)
{
	for (size_t j = 0; j < k->n_lanes && rest[i] < 0; j++) {
		int64_t least = k->least[j * k->n_lanes + i];
		if (least <= 0 || rest[j] <= 0)
			continue;
		int64_t need = -rest[i] / least + (-rest[i] % least != 0);
		int64_t taken = need < rest[j] ? need : rest[j];
		rest[j] -= taken;
		rest[i] = taken == need ? 0 : rest[i] + taken * least;
	}
	return rest[i] >= 0;
}

/* a >= b + size of the buffer `under`, for all values of the dims. */
static bool above(const struct packer *k, const int64_t *a, const int64_t *b, const struct plan_buffer *under)
{
	bool all = true, some = false;
	for (size_t i = 0; i < k->n_lanes; i++) {
		k->rest[i] = a[i] - b[i] - (i == under->lane ? under->size : 0);
		all = all && k->rest[i] >= 0;
		some = some || k->rest[i] > 0;
	}
	for (size_t i = 0; !all && some && i < k->n_lanes; i++)
		some = covered(k, k->rest, i);
	return all || some;
}

/* The neighbors from number `from` on come first: who lies on the buffer of a candidate was often placed
 * next. */
static bool fits(const struct packer *k, const struct plan_buffer *b, size_t from)
{
	for (size_t i = 0; i < k->n_near; i++) {
		size_t other = k->near[(from + i) % k->n_near];
		const struct plan_buffer *x = &k->plan->buffers[other];
		if (!above(k, k->place, at_of(k, other), x) && !above(k, at_of(k, other), k->place, b))
			return false;
	}
	return true;
}

/* How high the top of the candidate is, relative to the lower bounds. */
static double height(const struct packer *k, const struct plan_buffer *b)
{
	double sum = 0;
	for (int point = 0; point < PLAN_POINTS; point++) {
		double top = bytes_at(k, k->place, point) + (double)b->size * k->unit[b->lane][point];
		double part = k->bound[point] > 0 ? top / k->bound[point] : 0;
		sum += part > 1 ? OVER_BOUND * part : part;
	}
	return sum;
}

/* k->place becomes the best one if it is the lowest so far. */
static void consider(struct packer *k, const struct plan_buffer *b, size_t from, double *lowest)
{
	double h = height(k, b);
	if ((*lowest >= 0 && h >= *lowest) || !fits(k, b, from))
		return;
	*lowest = h;
	memcpy(k->best, k->place, k->n_lanes * sizeof(*k->best));
}

/* Places the buffer apart from those before number n_placed of the order. */
static void place_one(struct packer *k, size_t n_placed)
{
	size_t here = k->order[n_placed], n = k->n_lanes;
	const struct plan_buffer *b = &k->plan->buffers[here];
	int64_t *all = at_of(k, here); /* above everything that is alive with it */
	double lowest = -1;

	k->n_near = 0;
	for (size_t i = 0; i < n_placed; i++) {
		const struct plan_buffer *x = &k->plan->buffers[k->order[i]];
		if (x->first <= b->last && b->first <= x->last)
			k->near[k->n_near++] = k->order[i];
	}
	memset(all, 0, n * sizeof(*all));
	memset(k->place, 0, n * sizeof(*all));
	consider(k, b, 0, &lowest);
	for (size_t i = 0; i < k->n_near; i++) {
		top_of(k, k->near[i], k->place);
		for (size_t j = 0; j < n; j++)
			all[j] = k->place[j] > all[j] ? k->place[j] : all[j];
		consider(k, b, i + 1, &lowest);
	}
	memcpy(k->place, all, n * sizeof(*all));
	consider(k, b, 0, &lowest);
	/* Where a unit is a multiple of another one: above 4*B*S and 32*B is 4*B*S + 28*B. */
	for (size_t i = 0; i < n * n; i++) {
		size_t from = i / n, to = i % n;
		if (k->least[i] <= 0 || all[from] <= 0 || all[to] <= 0)
			continue;
		memcpy(k->place, all, n * sizeof(*all));
		k->place[to] = all[from] > all[to] / k->least[i] ? 0 : all[to] - k->least[i] * all[from];
		consider(k, b, 0, &lowest);
	}
	memcpy(all, k->best, n * sizeof(*all));
}

/* ---- orders ---- */

static double key_of(const struct packer *k, const struct plan_buffer *b, enum order order, int point)
{
	double length = (double)(b->last - b->first + 1);
	double bytes = (double)b->size * k->unit[b->lane][point], most = 0;
	switch (order) {
	case LARGE_FIRST: return bytes;
	case LONG_FIRST: return length;
	case AREA_FIRST: return bytes * length;
	case EARLY_FIRST: return -(double)b->first;
	case LATE_FIRST: return (double)b->last;
	case CROWDED_FIRST:
		for (size_t t = b->first; t <= b->last; t++) {
			double sum = bytes_at(k, k->alive + t * k->n_lanes, point);
			most = sum > most ? sum : most;
		}
		return most;
	case N_ORDERS: break;
	}
	return 0;
}

/* The largest keys first; equal ones in the order of definition. */
static void sort(struct packer *k, double *key, enum order order, int point)
{
	for (size_t i = 0; i < k->plan->n_buffers; i++) {
		size_t j = i;
		key[i] = key_of(k, &k->plan->buffers[i], order, point);
		for (; j > 0 && key[k->order[j - 1]] < key[i]; j--)
			k->order[j] = k->order[j - 1];
		k->order[j] = i;
	}
}

/* Places all in their order. Gives the largest weighted gap of the points, its buffer and the gaps. */
static double place_all(struct packer *k, size_t *highest, double gap[PLAN_POINTS])
{
	double worst = 0, peak[PLAN_POINTS] = {0};
	size_t at_peak[PLAN_POINTS] = {0};
	for (size_t i = 0; i < k->plan->n_buffers; i++) {
		place_one(k, i);
		top_of(k, k->order[i], k->place);
		for (int point = 0; point < PLAN_POINTS; point++) {
			double top = bytes_at(k, k->place, point);
			if (top > peak[point]) {
				peak[point] = top;
				at_peak[point] = i;
			}
		}
	}
	for (int point = 0; point < PLAN_POINTS; point++) {
		gap[point] = k->bound[point] > 0 ? (peak[point] - k->bound[point]) / k->bound[point] : 0;
		double weighted = gap[point] * (point == 0 ? LARGEST_WEIGHT : 1);
		if (weighted > worst) {
			worst = weighted;
			*highest = at_peak[point];
		}
	}
	return worst;
}

/* Moves number i of the order half the way to the front: closer to it, the same few would take turns. */
static void promote(struct packer *k, size_t i)
{
	size_t buffer = k->order[i], to = i / 2;
	memmove(k->order + to + 1, k->order + to, (i - to) * sizeof(*k->order));
	k->order[to] = buffer;
}

/* The best of all orders is in `best` [n_buffers][n_lanes], its gaps are in the plan. */
static void try_orders(struct packer *k, double *key, int64_t *best)
{
	size_t n = k->plan->n_buffers, highest = 0;
	bool many = n > MANY_BUFFERS;
	double least = -1, gap[PLAN_POINTS];
	for (int turn = 0; turn < (many ? 1 : 2 * N_ORDERS); turn++) {
		sort(k, key, (enum order)(turn % N_ORDERS), turn / N_ORDERS);
		for (int i = 0; i <= (many ? 0 : PROMOTIONS); i++) {
			double now = place_all(k, &highest, gap);
			if (least < 0 || now < least) {
				least = now;
				memcpy(best, k->at, n * k->n_lanes * sizeof(*best));
				memcpy(k->plan->gap, gap, sizeof(gap));
			}
			if (!(least > 0))
				return;
			promote(k, highest);
		}
	}
}

/* ---- sizes ---- */

/* Vectors of coefficients of which none is below another one. */
struct tops {
	int64_t *items; /* [TOPS_MAX][n_lanes] */
	size_t n, n_lanes;
};

static bool below(const int64_t *a, const int64_t *b, size_t n)
{
	bool all = true;
	for (size_t i = 0; i < n; i++)
		all = all && a[i] <= b[i];
	return all;
}

/* False: there is no room; what is there stays. */
static bool add_top(struct tops *t, const int64_t *top)
{
	size_t n = t->n_lanes, kept = 0;
	for (size_t i = 0; i < t->n; i++)
		if (below(top, t->items + i * n, n))
			return true;
	for (size_t i = 0; i < t->n; i++)
		if (!below(t->items + i * n, top, n))
			memmove(t->items + kept++ * n, t->items + i * n, n * sizeof(*top));
	t->n = kept;
	if (kept == TOPS_MAX)
		return false;
	memcpy(t->items + t->n++ * n, top, n * sizeof(*top));
	return true;
}

/* Sum of coefficients (multiples of `quantum`) times units, divided by it. */
static const struct ir_dim *sum_of(const struct packer *k, const int64_t *top, int64_t quantum)
{
	const struct ir_dim *sum = ir_dim_const(k->dims, 0);
	for (size_t i = 0; i < k->n_lanes; i++) {
		const struct ir_dim *times = ir_dim_const(k->dims, top[i] / quantum);
		sum = ir_dim_add(k->dims, sum, ir_dim_mul(k->dims, times, k->plan->lanes[i].unit));
	}
	return sum;
}

static const struct ir_dim *bytes_of(const struct packer *k, const struct ir_dim *sum, int64_t quantum)
{
	return ir_dim_mul(k->dims, ir_dim_const(k->dims, quantum), sum);
}

static const struct ir_dim *largest(const struct packer *k, const struct tops *t)
{
	const struct ir_dim *most = ir_dim_const(k->dims, 0);
	int64_t quantum = PLAN_ALIGN;
	for (size_t i = 0; i < t->n * k->n_lanes; i++)
		quantum = gcd_i64(quantum, t->items[i]);
	for (size_t i = 0; i < t->n; i++)
		most = ir_dim_max(k->dims, most, sum_of(k, t->items + i * k->n_lanes, quantum));
	return bytes_of(k, most, quantum);
}

static void keep(struct packer *k, struct tops *tops, struct tops *times)
{
	struct plan_func *p = k->plan;
	bool is_proved = true;
	for (size_t i = 0; i < p->n_buffers; i++) {
		p->buffers[i].at = bytes_of(k, sum_of(k, at_of(k, i), PLAN_ALIGN), PLAN_ALIGN);
		top_of(k, i, k->place);
		if (add_top(tops, k->place))
			continue;
		/* Too many sides of the maximum: the last one covers all others. */
		int64_t *last = tops->items + (tops->n - 1) * k->n_lanes;
		for (size_t j = 0; j < k->n_lanes; j++)
			last[j] = k->place[j] > last[j] ? k->place[j] : last[j];
	}
	/* A bound without some of its times is a bound, too. */
	for (size_t t = 0; t <= p->n_times; t++)
		(void)add_top(times, k->raw + t * k->n_lanes);
	p->arena = largest(k, tops);
	for (size_t i = 0; i < p->n_buffers; i++) {
		top_of(k, i, k->place);
		for (size_t j = 0; j < k->n_lanes; j++)
			k->rest[j] = i > 0 && k->rest[j] > k->place[j] ? k->rest[j] : k->place[j];
		/* As the verifier asks: its bytes, without the padding of the coefficient. */
		k->place[p->buffers[i].lane] -= p->buffers[i].size - p->buffers[i].raw;
		is_proved = is_proved && ir_dim_le(k->dims, sum_of(k, k->place, 1), p->arena);
	}
	/* Order of quotients does not follow from order to a third one: then the arena is the sum of all lanes. */
	if (!is_proved)
		p->arena = bytes_of(k, sum_of(k, k->rest, PLAN_ALIGN), PLAN_ALIGN);
	p->lower_bound = largest(k, times);
}

bool plan_pack(struct arena *a, struct ir_dims *dims, struct plan_func *plan)
{
	size_t n = plan->n_buffers, lanes = plan->n_lanes, cells = n * lanes + 1;
	struct packer k = {.plan = plan, .dims = dims, .n_lanes = lanes};
	struct tops tops = {ARENA_ARRAY(a, int64_t, TOPS_MAX * lanes + 1), 0, lanes};
	struct tops times = {ARENA_ARRAY(a, int64_t, TOPS_MAX * lanes + 1), 0, lanes};
	double *key = ARENA_ARRAY(a, double, n + 1);
	int64_t *best = ARENA_ARRAY(a, int64_t, cells);
	k.unit = arena_alloc(a, (lanes + 1) * sizeof(*k.unit));
	k.least = ARENA_ARRAY(a, int64_t, lanes * lanes + 1);
	k.alive = ARENA_ARRAY(a, int64_t, (plan->n_times + 2) * (lanes + 1));
	k.raw = ARENA_ARRAY(a, int64_t, (plan->n_times + 2) * (lanes + 1));
	k.at = ARENA_ARRAY(a, int64_t, cells);
	k.order = ARENA_ARRAY(a, size_t, n + 1);
	k.near = ARENA_ARRAY(a, size_t, n + 1);
	k.place = ARENA_ARRAY(a, int64_t, lanes + 1);
	k.best = ARENA_ARRAY(a, int64_t, lanes + 1);
	k.rest = ARENA_ARRAY(a, int64_t, lanes + 1);
	if (arena_failed(a) || !find_units(&k, a))
		return false;
	find_least(&k);
	find_alive(&k);
	try_orders(&k, key, best);
	k.at = best;
	keep(&k, &tops, &times);
	return !arena_failed(a);
}
