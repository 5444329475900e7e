/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory packing: buffers are intervals of time, offsets are polynomials with one coefficient for each lane, a unit of
 * sizes such as B*S. Sample points are values of the dims, at which sizes are compared as numbers.
 * Greedy placement (as in TFLite's and TVM's memory planners, but symbolic): a buffer is tried at 0, on top of
 * each placed buffer that is alive with it, and on top of all of them (coefficient by coefficient); of the
 * candidates that overlap none of those for any value of the dims, the one with the lowest top at the sample
 * points is taken. Six placement orders are tried, and in each the buffer at the peak is repeatedly moved toward
 * the front ("squeaky wheel" optimization, Joslin and Clements 1999).
 */
#include "passes/plan/plan.h"

#include <string.h>

#include "ir/support/checked.h"

#define MANY_BUFFERS 256 /* with more, only one order, without promotions */
#define PROMOTIONS   12  /* moves of the buffer at the peak, for each order */
#define TOPS_MAX     8   /* operands of max() in the size of an arena */
/* Weight of the gap at the largest dims, which determine the memory that callers allocate. */
#define LARGEST_WEIGHT 8
/* Weight of bytes above the lower bound against bytes below it when an offset is chosen. */
#define OVER_BOUND 100

enum order { LARGE_FIRST, LONG_FIRST, AREA_FIRST, CROWDED_FIRST, EARLY_FIRST, LATE_FIRST, N_ORDERS };

struct packer {
	struct plan_func *plan;
	struct ir_dims *dims;
	size_t n_lanes;
	double (*unit)[PLAN_POINTS]; /* [n_lanes] value of the unit at the sample points */
	int64_t *least;              /* [n_lanes][n_lanes] unit i >= least * unit j; 0: unknown */
	int64_t *alive;              /* [n_times + 2][n_lanes] sum of the sizes that are alive */
	int64_t *raw;                /* [n_times + 2][n_lanes] the same without padding */
	double bound[PLAN_POINTS];   /* lower bound: maximum of the bytes alive at once */
	int64_t *at;                 /* [n_buffers][n_lanes] offsets */
	size_t *order;               /* [n_buffers] of placement */
	size_t *near;                /* [n_near] placed buffers that are alive with the current one */
	size_t n_near;
	int64_t *candidate, *best, *scratch; /* [n_lanes] candidate offset, best candidate, scratch */
};

/* ---- sizes at the sample points ---- */

/* Returns the value of dim number `index` at a sample point: the upper bounds, the lower bounds, the middle, and upper
 * and lower bounds in turn. */
static int64_t sample_dim(const struct ir_dim_sym *s, size_t index, int point)
{
	switch (point) {
	case 0: return s->hi;
	case 1: return s->lo;
	case 2: return s->lo + (s->hi - s->lo) / 2;
	default: return index % 2 == 0 ? s->hi : s->lo;
	}
}

/* Evaluates the units of all lanes at the sample points; 0 where one overflows. False: memory ran out. That only
 * worsens the choice of a placement: overlaps are excluded for all dims. */
static bool eval_units(struct packer *k, struct arena *a)
{
	size_t n = ir_dims_count(k->dims);
	int64_t *values = ARENA_ARRAY(a, int64_t, n + 1), v;
	if (values == NULL)
		return false;
	for (int point = 0; point < PLAN_POINTS; point++) {
		for (size_t i = 0; i < n; i++)
			values[i] = sample_dim(ir_dims_sym(k->dims, i), i, point);
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

/* Lower bounds of the quotients of units, for is_above: B*T >= 1 * B if T >= 1. 0 where the quotient is no
 * polynomial. */
static void compare_units(struct packer *k)
{
	const struct plan_lane *l = k->plan->lanes;
	for (size_t i = 0; i < k->n_lanes; i++)
		for (size_t j = 0; j < k->n_lanes; j++) {
			const struct ir_dim *q = i != j ? ir_dim_divide(k->dims, l[i].unit, l[j].unit) : NULL;
			int64_t least = q != NULL ? ir_dim_lo(k->dims, q) : 0;
			k->least[i * k->n_lanes + j] = least > 0 ? least : 0;
		}
}

/* Sums the sizes that are alive at each time, with padding and without, and from them the lower bound at each sample
 * point. The bound of the padded sizes is what a packing can reach; `raw` gives the lower bound of the report. */
static void sum_alive(struct packer *k)
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

static int64_t *offset_of(const struct packer *k, size_t buffer)
{
	return k->at + buffer * k->n_lanes;
}

static void top_of(const struct packer *k, size_t buffer, int64_t *top)
{
	const struct plan_buffer *b = &k->plan->buffers[buffer];
	memcpy(top, offset_of(k, buffer), k->n_lanes * sizeof(*top));
	top[b->lane] += b->size;
}

/* A negative coefficient in lane i is covered by lanes whose units are known multiples of unit i; subtracts it
 * there. False: a part of it remains negative. `scratch` is changed. */
static bool cover_deficit(const struct packer *k, int64_t *scratch, size_t i)
{
	for (size_t j = 0; j < k->n_lanes && scratch[i] < 0; j++) {
		int64_t least = k->least[j * k->n_lanes + i];
		if (least <= 0 || scratch[j] <= 0)
			continue;
		int64_t need = -scratch[i] / least + (-scratch[i] % least != 0);
		int64_t taken = need < scratch[j] ? need : scratch[j];
		scratch[j] -= taken;
		scratch[i] = taken == need ? 0 : scratch[i] + taken * least;
	}
	return scratch[i] >= 0;
}

/* Offset a >= offset b + size of `under` is proved for all values of the dims. The difference is a vector of
 * coefficients of units >= 0: proved if none is negative, or if positive ones cover the negative ones. */
static bool is_above(const struct packer *k, const int64_t *a, const int64_t *b,
                     const struct plan_buffer *under)
{
	bool all = true, some = false;
	for (size_t i = 0; i < k->n_lanes; i++) {
		k->scratch[i] = a[i] - b[i] - (i == under->lane ? under->size : 0);
		all = all && k->scratch[i] >= 0;
		some = some || k->scratch[i] > 0;
	}
	for (size_t i = 0; !all && some && i < k->n_lanes; i++)
		some = cover_deficit(k, k->scratch, i);
	return all || some;
}

/*
 * The candidate overlaps no neighbor. Tests neighbor `from` first: the buffer that was placed next after the base
 * of the candidate is often on top of it, which rejects the candidate early.
 */
static bool overlaps_nothing(const struct packer *k, const struct plan_buffer *b, size_t from)
{
	for (size_t i = 0; i < k->n_near; i++) {
		size_t other = k->near[(from + i) % k->n_near];
		const struct plan_buffer *x = &k->plan->buffers[other];
		if (!is_above(k, k->candidate, offset_of(k, other), x) &&
		    !is_above(k, offset_of(k, other), k->candidate, b))
			return false;
	}
	return true;
}

/* Cost of the candidate: its top relative to the lower bounds, summed over the sample points. Below the lower bound
 * all placements fit, so bytes above it weigh OVER_BOUND times as much. */
static double candidate_cost(const struct packer *k, const struct plan_buffer *b)
{
	double sum = 0;
	for (int point = 0; point < PLAN_POINTS; point++) {
		double top = bytes_at(k, k->candidate, point) + (double)b->size * k->unit[b->lane][point];
		double part = k->bound[point] > 0 ? top / k->bound[point] : 0;
		sum += part > 1 ? OVER_BOUND * part : part;
	}
	return sum;
}

/* Makes k->candidate the best one if its cost is the lowest so far and it overlaps nothing. */
static void try_candidate(struct packer *k, const struct plan_buffer *b, size_t from, double *lowest)
{
	double h = candidate_cost(k, b);
	if ((*lowest >= 0 && h >= *lowest) || !overlaps_nothing(k, b, from))
		return;
	*lowest = h;
	memcpy(k->best, k->candidate, k->n_lanes * sizeof(*k->best));
}

/* Places buffer number n_placed of the order, given those before it. Its neighbours (k->near) are the placed buffers
 * that are alive with it. The candidate on top of all of them never overlaps, so there always is a best one. */
static void place_one(struct packer *k, size_t n_placed)
{
	size_t here = k->order[n_placed], n = k->n_lanes;
	const struct plan_buffer *b = &k->plan->buffers[here];
	int64_t *all = offset_of(k, here); /* on top of all neighbors */
	double lowest = -1;

	k->n_near = 0;
	for (size_t i = 0; i < n_placed; i++) {
		const struct plan_buffer *x = &k->plan->buffers[k->order[i]];
		if (x->first <= b->last && b->first <= x->last)
			k->near[k->n_near++] = k->order[i];
	}
	memset(all, 0, n * sizeof(*all));
	memset(k->candidate, 0, n * sizeof(*all));
	try_candidate(k, b, 0, &lowest);
	for (size_t i = 0; i < k->n_near; i++) {
		top_of(k, k->near[i], k->candidate);
		for (size_t j = 0; j < n; j++)
			all[j] = k->candidate[j] > all[j] ? k->candidate[j] : all[j];
		try_candidate(k, b, i + 1, &lowest);
	}
	memcpy(k->candidate, all, n * sizeof(*all));
	try_candidate(k, b, 0, &lowest);
	/* Lower than `all` if one unit is a multiple of another (S >= 1): 4*B*S + 28*B is above 4*B*S and 32*B. */
	for (size_t i = 0; i < n * n; i++) {
		size_t from = i / n, to = i % n;
		if (k->least[i] <= 0 || all[from] <= 0 || all[to] <= 0)
			continue;
		memcpy(k->candidate, all, n * sizeof(*all));
		k->candidate[to] = all[from] > all[to] / k->least[i] ? 0 : all[to] - k->least[i] * all[from];
		try_candidate(k, b, 0, &lowest);
	}
	memcpy(all, k->best, n * sizeof(*all));
}

/* ---- orders ---- */

/* Sort key of a buffer; the largest is placed first: the most bytes, the longest life, the product of both, the
 * earliest begin, the latest end, or the most bytes alive at one time of its life. */
static double order_key(const struct packer *k, const struct plan_buffer *b, enum order order, int point)
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

/* Sorts k->order by descending key; ties in the order of definition. Insertion sort: PLAN_BUFFERS_MAX bounds its
 * cost. */
static void sort_buffers(struct packer *k, double *key, enum order order, int point)
{
	for (size_t i = 0; i < k->plan->n_buffers; i++) {
		size_t j = i;
		key[i] = order_key(k, &k->plan->buffers[i], order, point);
		for (; j > 0 && key[k->order[j - 1]] < key[i]; j--)
			k->order[j] = k->order[j - 1];
		k->order[j] = i;
	}
}

/* Places all buffers in order. Returns the largest weighted gap; *highest: position of the buffer at that peak.
 * *highest is unchanged if all gaps are 0. The largest dims weigh LARGEST_WEIGHT times as much: callers allocate for
 * them. */
static double place_all(struct packer *k, size_t *highest, double gap[PLAN_POINTS])
{
	double worst = 0, peak[PLAN_POINTS] = {0};
	size_t at_peak[PLAN_POINTS] = {0};
	for (size_t i = 0; i < k->plan->n_buffers; i++) {
		place_one(k, i);
		top_of(k, k->order[i], k->candidate);
		for (int point = 0; point < PLAN_POINTS; point++) {
			double top = bytes_at(k, k->candidate, point);
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

/* Moves number i of the order halfway to the front; moved all the way, the same few buffers would alternate. */
static void promote_buffer(struct packer *k, size_t i)
{
	size_t buffer = k->order[i], to = i / 2;
	memmove(k->order + to + 1, k->order + to, (i - to) * sizeof(*k->order));
	k->order[to] = buffer;
}

/* Tries all orders, each by the sizes at the first two sample points, and in each moves the buffer at the peak
 * forward. best [n_buffers][n_lanes]: offsets of the best; its gaps go into the plan. Ends when no gap is left. With
 * many buffers one placement only, as its time grows with their square. */
static void try_orders(struct packer *k, double *key, int64_t *best)
{
	size_t n = k->plan->n_buffers, highest = 0;
	bool is_large = n > MANY_BUFFERS;
	double least = -1, gap[PLAN_POINTS];
	for (int pass = 0; pass < (is_large ? 1 : 2 * N_ORDERS); pass++) {
		sort_buffers(k, key, (enum order)(pass % N_ORDERS), pass / N_ORDERS);
		for (int i = 0; i <= (is_large ? 0 : PROMOTIONS); i++) {
			double now = place_all(k, &highest, gap);
			if (least < 0 || now < least) {
				least = now;
				memcpy(best, k->at, n * k->n_lanes * sizeof(*best));
				memcpy(k->plan->gap, gap, sizeof(gap));
			}
			if (!(least > 0))
				return;
			promote_buffer(k, highest);
		}
	}
}

/* ---- size of the arena ---- */

/* Pareto front: coefficient vectors of which none is <= another in all lanes. */
struct tops {
	int64_t *items; /* [TOPS_MAX][n_lanes] */
	size_t n, n_lanes;
};

/* True if a <= b in all lanes. */
static bool is_covered_by(const int64_t *a, const int64_t *b, size_t n)
{
	bool all = true;
	for (size_t i = 0; i < n; i++)
		all = all && a[i] <= b[i];
	return all;
}

/* Adds a vector unless another covers it. False: the set is full and unchanged. Vectors that the new one covers are
 * removed. */
static bool add_top(struct tops *t, const int64_t *top)
{
	size_t n = t->n_lanes, kept = 0;
	for (size_t i = 0; i < t->n; i++)
		if (is_covered_by(top, t->items + i * n, n))
			return true;
	for (size_t i = 0; i < t->n; i++)
		if (!is_covered_by(t->items + i * n, top, n))
			memmove(t->items + kept++ * n, t->items + i * n, n * sizeof(*top));
	t->n = kept;
	if (kept == TOPS_MAX)
		return false;
	memcpy(t->items + t->n++ * n, top, n * sizeof(*top));
	return true;
}

/* Sum of coefficient / quantum * unit over the lanes. The quantum divides all coefficients. */
static const struct ir_dim *lane_sum(const struct packer *k, const int64_t *top, int64_t quantum)
{
	const struct ir_dim *sum = ir_dim_const(k->dims, 0);
	for (size_t i = 0; i < k->n_lanes; i++) {
		const struct ir_dim *times = ir_dim_const(k->dims, top[i] / quantum);
		sum = ir_dim_add(k->dims, sum, ir_dim_mul(k->dims, times, k->plan->lanes[i].unit));
	}
	return sum;
}

/* Returns quantum * sum. */
static const struct ir_dim *bytes_of(const struct packer *k, const struct ir_dim *sum, int64_t quantum)
{
	return ir_dim_mul(k->dims, ir_dim_const(k->dims, quantum), sum);
}

/* Returns the maximum of the vectors in bytes, as quantum * max(..). The quantum, at most PLAN_ALIGN, divides all
 * coefficients; in front of the maximum, which is an atom, it shows that the bytes are a multiple of it. */
static const struct ir_dim *max_of_tops(const struct packer *k, const struct tops *t)
{
	const struct ir_dim *most = ir_dim_const(k->dims, 0);
	int64_t quantum = PLAN_ALIGN;
	for (size_t i = 0; i < t->n * k->n_lanes; i++)
		quantum = gcd_i64(quantum, t->items[i]);
	for (size_t i = 0; i < t->n; i++)
		most = ir_dim_max(k->dims, most, lane_sum(k, t->items + i * k->n_lanes, quantum));
	return bytes_of(k, most, quantum);
}

/* Writes offsets, size and lower bound of the arena into the plan: the size is a proved upper bound, max() over the
 * Pareto front of the ends of buffers (tops); the lower bound is max() over that of the live bytes (live). The
 * verifier needs a size that it can prove, so the fallback may be larger than the placement needs. */
static void write_plan(struct packer *k, struct tops *tops, struct tops *live)
{
	struct plan_func *p = k->plan;
	bool is_proved = true;
	for (size_t i = 0; i < p->n_buffers; i++) {
		p->buffers[i].at = bytes_of(k, lane_sum(k, offset_of(k, i), PLAN_ALIGN), PLAN_ALIGN);
		top_of(k, i, k->candidate);
		if (add_top(tops, k->candidate))
			continue;
		/* Too many operands of max(): merge into the last one. */
		int64_t *last = tops->items + (tops->n - 1) * k->n_lanes;
		for (size_t j = 0; j < k->n_lanes; j++)
			last[j] = k->candidate[j] > last[j] ? k->candidate[j] : last[j];
	}
	/* A lower bound that omits some positions is still a lower bound. */
	for (size_t t = 0; t <= p->n_times; t++)
		(void)add_top(live, k->raw + t * k->n_lanes);
	p->arena = max_of_tops(k, tops);
	for (size_t i = 0; i < p->n_buffers; i++) {
		top_of(k, i, k->candidate);
		for (size_t j = 0; j < k->n_lanes; j++)
			k->scratch[j] =
			        i > 0 && k->scratch[j] > k->candidate[j] ? k->scratch[j] : k->candidate[j];
		/* The verifier checks the bytes without padding. */
		k->candidate[p->buffers[i].lane] -= p->buffers[i].size - p->buffers[i].raw;
		is_proved = is_proved && ir_dim_le(k->dims, lane_sum(k, k->candidate, 1), p->arena);
	}
	/* Comparisons of floor divisions are not transitive for the prover: use the sum of the maxima of all lanes. */
	if (!is_proved)
		p->arena = bytes_of(k, lane_sum(k, k->scratch, PLAN_ALIGN), PLAN_ALIGN);
	p->lower_bound = max_of_tops(k, live);
}

/* Sizes at the sample points and relations of units first, which the placement compares; then the best of all
 * orders, written as dims. */
bool plan_pack(struct arena *a, struct ir_dims *dims, struct plan_func *plan)
{
	size_t n = plan->n_buffers, lanes = plan->n_lanes, cells = n * lanes + 1;
	struct packer k = {.plan = plan, .dims = dims, .n_lanes = lanes};
	struct tops tops = {ARENA_ARRAY(a, int64_t, TOPS_MAX * lanes + 1), 0, lanes};
	struct tops live = {ARENA_ARRAY(a, int64_t, TOPS_MAX * lanes + 1), 0, lanes};
	double *key = ARENA_ARRAY(a, double, n + 1);
	int64_t *best = ARENA_ARRAY(a, int64_t, cells);
	k.unit = arena_alloc(a, (lanes + 1) * sizeof(*k.unit));
	k.least = ARENA_ARRAY(a, int64_t, lanes * lanes + 1);
	k.alive = ARENA_ARRAY(a, int64_t, (plan->n_times + 2) * (lanes + 1));
	k.raw = ARENA_ARRAY(a, int64_t, (plan->n_times + 2) * (lanes + 1));
	k.at = ARENA_ARRAY(a, int64_t, cells);
	k.order = ARENA_ARRAY(a, size_t, n + 1);
	k.near = ARENA_ARRAY(a, size_t, n + 1);
	k.candidate = ARENA_ARRAY(a, int64_t, lanes + 1);
	k.best = ARENA_ARRAY(a, int64_t, lanes + 1);
	k.scratch = ARENA_ARRAY(a, int64_t, lanes + 1);
	if (arena_failed(a) || !eval_units(&k, a))
		return false;
	compare_units(&k);
	sum_alive(&k);
	try_orders(&k, key, best);
	k.at = best;
	write_plan(&k, &tops, &live);
	return !arena_failed(a);
}
