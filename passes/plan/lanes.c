/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes in one arena. Nothing is known about the sizes of two lanes relative to
 * each other, so a block lies on top of those below it: its base is, coefficient
 * by coefficient, the largest top of what is alive below it in its own time.
 * Blocks that are never alive together share bytes whatever their sizes. Bases
 * are polynomials; the arena is the maximum of the tops.
 */
#include "passes/plan/plan.h"

#include <string.h>

#define LANES_PERMUTED 3 /* so many lanes or fewer are tried in every order */
#define TOPS_MAX       8 /* sides of the maximum in the size of an arena */

/* ---- points ---- */

static int64_t at_point(const struct ir_dim_sym *s, size_t index, int point)
{
	switch (point) {
	case 0: return s->hi;
	case 1: return s->lo;
	case 2: return s->lo + (s->hi - s->lo) / 2;
	default: return index % 2 == 0 ? s->hi : s->lo;
	}
}

static bool find_units(struct plan_stack *s, const struct ir_dims *dims)
{
	size_t n = ir_dims_count(dims);
	int64_t *values = ARENA_ARRAY(s->arena, int64_t, n + 1), v;
	if (values == NULL)
		return false;
	for (int point = 0; point < PLAN_POINTS; point++) {
		for (size_t i = 0; i < n; i++)
			values[i] = at_point(ir_dims_sym(dims, i), i, point);
		for (size_t i = 0; i < s->plan->n_lanes; i++)
			s->unit[i][point] = ir_dim_eval(s->plan->lanes[i].unit, values, &v) ? (double)v : 0;
	}
	return true;
}

/* ---- the lower bound of the whole ---- */

static double bytes_at(const struct plan_stack *s, const int64_t *sum, int point)
{
	double bytes = 0;
	for (size_t i = 0; i < s->plan->n_lanes; i++)
		bytes += (double)sum[i] * s->unit[i][point];
	return bytes;
}

/* change[t][lane]: what begins at t less what ended before. */
static int64_t *find_changes(const struct plan_stack *s)
{
	const struct plan_func *p = s->plan;
	int64_t *change = ARENA_ARRAY(s->arena, int64_t, (p->n_times + 2) * (p->n_lanes + 1));
	for (size_t i = 0; change != NULL && i < p->n_buffers; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		change[b->first * p->n_lanes + b->lane] += b->size;
		change[(b->last + 1) * p->n_lanes + b->lane] -= b->size;
	}
	return change;
}

/* Calls see for the sums at every time. */
static bool each_time(struct plan_stack *s, void (*see)(struct plan_stack *s, const int64_t *sum, void *user),
                      void *user)
{
	const struct plan_func *p = s->plan;
	int64_t *change = find_changes(s), *sum = ARENA_ARRAY(s->arena, int64_t, p->n_lanes + 1);
	if (change == NULL || sum == NULL)
		return false;
	for (size_t t = 0; t < p->n_times; t++) {
		for (size_t i = 0; i < p->n_lanes; i++)
			sum[i] += change[t * p->n_lanes + i];
		see(s, sum, user);
	}
	return true;
}

static void raise_bound(struct plan_stack *s, const int64_t *sum, void *user)
{
	(void)user;
	for (int point = 0; point < PLAN_POINTS; point++) {
		double bytes = bytes_at(s, sum, point);
		s->bound[point] = bytes > s->bound[point] ? bytes : s->bound[point];
	}
}

/* B*T is at least 1 times B where T is at least 1. */
static void find_least(struct plan_stack *s, struct ir_dims *dims)
{
	const struct plan_lane *l = s->plan->lanes;
	size_t n = s->plan->n_lanes;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++) {
			const struct ir_dim *q = i != k ? ir_dim_divide(dims, l[i].unit, l[k].unit) : NULL;
			int64_t least = q != NULL ? ir_dim_lo(dims, q) : 0;
			s->least[i * n + k] = least > 0 ? least : 0;
		}
}

bool plan_stack_begin(struct plan_stack *s, struct arena *a, struct ir_dims *dims, struct plan_func *plan)
{
	size_t n = plan->n_blocks, lanes = plan->n_lanes;
	*s = (struct plan_stack){.plan = plan, .arena = a};
	s->order = ARENA_ARRAY(a, size_t, n + 1);
	s->base = ARENA_ARRAY(a, int64_t, n * lanes + 1);
	s->unit = arena_alloc(a, (lanes + 1) * sizeof(*s->unit));
	s->least = ARENA_ARRAY(a, int64_t, lanes * lanes + 1);
	if (s->order == NULL || s->base == NULL || s->unit == NULL || s->least == NULL ||
	    !find_units(s, dims))
		return false;
	find_least(s, dims);
	return each_time(s, raise_bound, NULL);
}

/* ---- laying blocks ---- */

size_t plan_stack_turns(const struct plan_stack *s)
{
	size_t n = s->plan->n_lanes, turns = 1;
	for (size_t i = 2; n <= LANES_PERMUTED && i <= n; i++)
		turns *= i;
	return turns;
}

/* The permutation number `turn` of n <= LANES_PERMUTED lanes; more: by bytes at the largest dims. */
static void order_lanes(const struct plan_stack *s, size_t turn, size_t *lanes)
{
	const struct plan_lane *l = s->plan->lanes;
	size_t n = s->plan->n_lanes;
	for (size_t i = 0; i < n; i++) {
		size_t k = i;
		double bytes = (double)l[i].peak * s->unit[i][0];
		for (; k > 0 && (double)l[lanes[k - 1]].peak * s->unit[lanes[k - 1]][0] < bytes; k--)
			lanes[k] = lanes[k - 1];
		lanes[k] = i;
	}
	for (size_t i = 0; n <= LANES_PERMUTED && i + 1 < n; i++) {
		size_t k = i + turn % (n - i), lane = lanes[k];
		turn /= n - i;
		memmove(&lanes[i + 1], &lanes[i], (k - i) * sizeof(*lanes));
		lanes[i] = lane;
	}
}

/* Blocks in the order of their lanes, then in time. */
static void order_blocks(struct plan_stack *s, const size_t *lanes)
{
	size_t n = 0;
	for (size_t i = 0; i < s->plan->n_lanes; i++)
		for (size_t b = 0; b < s->plan->n_blocks; b++)
			if (s->plan->blocks[b].lane == lanes[i])
				s->order[n++] = b;
}

/* The highest top of buffers of the block that are alive in [first, last]; -1: none. */
static int64_t height(const struct plan_func *p, size_t block, size_t first, size_t last)
{
	int64_t top = -1;
	for (size_t i = 0; i < p->n_buffers; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		if (b->block == block && b->first <= last && first <= b->last && b->offset + b->size > top)
			top = b->offset + b->size;
	}
	return top;
}

static void lay_block(struct plan_stack *s, size_t at)
{
	const struct plan_func *p = s->plan;
	const struct plan_block *x = &p->blocks[s->order[at]];
	int64_t *base = s->base + s->order[at] * p->n_lanes;
	for (size_t i = 0; i < p->n_lanes; i++)
		base[i] = 0;
	for (size_t k = 0; k < at; k++) {
		const struct plan_block *y = &p->blocks[s->order[k]];
		const int64_t *under = s->base + s->order[k] * p->n_lanes;
		int64_t top = -1;
		if (y->lane != x->lane && y->first <= x->last && x->first <= y->last)
			top = height(p, s->order[k], x->first, x->last);
		for (size_t i = 0; top >= 0 && i < p->n_lanes; i++) {
			int64_t need = under[i] + (i == y->lane ? top : 0);
			base[i] = need > base[i] ? need : base[i];
		}
	}
}

static void top_of(const struct plan_stack *s, size_t block, int64_t *top)
{
	const struct plan_func *p = s->plan;
	memcpy(top, s->base + block * p->n_lanes, p->n_lanes * sizeof(*top));
	top[p->blocks[block].lane] += p->blocks[block].peak;
}

double plan_stack_try(struct plan_stack *s, size_t turn)
{
	const struct plan_func *p = s->plan;
	size_t *lanes = ARENA_ARRAY(s->arena, size_t, p->n_lanes + 1);
	int64_t *top = ARENA_ARRAY(s->arena, int64_t, p->n_lanes + 1);
	double worst = 0;
	if (lanes == NULL || top == NULL)
		return 0;
	order_lanes(s, turn, lanes);
	order_blocks(s, lanes);
	memset(s->arena_bytes, 0, sizeof(s->arena_bytes));
	for (size_t i = 0; i < p->n_blocks; i++) {
		lay_block(s, i);
		top_of(s, s->order[i], top);
		for (int point = 0; point < PLAN_POINTS; point++) {
			double bytes = bytes_at(s, top, point);
			s->arena_bytes[point] = bytes > s->arena_bytes[point] ? bytes : s->arena_bytes[point];
		}
	}
	for (int point = 0; point < PLAN_POINTS; point++) {
		double over = s->arena_bytes[point] - s->bound[point];
		double gap = s->bound[point] > 0 ? over / s->bound[point] : 0;
		gap *= point == 0 ? PLAN_LARGEST_WEIGHT : 1;
		worst = gap > worst ? gap : worst;
	}
	return worst;
}

/* ---- sizes ---- */

/* Vectors of coefficients of which none is below another one. */
struct tops {
	struct ir_dims *dims;
	int64_t *items; /* [TOPS_MAX][n_lanes] */
	size_t n;
};

static bool below(const int64_t *a, const int64_t *b, size_t n)
{
	bool all = true;
	for (size_t i = 0; i < n; i++)
		all = all && a[i] <= b[i];
	return all;
}

/* False: there is no room; what is there stays. */
static bool add_top(struct plan_stack *s, struct tops *t, const int64_t *top)
{
	size_t n = s->plan->n_lanes, kept = 0;
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

static void see_time(struct plan_stack *s, const int64_t *sum, void *user)
{
	/* A bound without some of its times is a bound, too. */
	(void)add_top(s, user, sum);
}

/* Sum of coefficients (multiples of 64) times units, divided by 64. */
static const struct ir_dim *lines_of(const struct plan_stack *s, struct ir_dims *dims, const int64_t *top)
{
	const struct ir_dim *sum = ir_dim_const(dims, 0);
	for (size_t i = 0; i < s->plan->n_lanes; i++)
		sum = ir_dim_add(
		        dims, sum,
		        ir_dim_mul(dims, ir_dim_const(dims, top[i] / PLAN_ALIGN), s->plan->lanes[i].unit));
	return sum;
}

static const struct ir_dim *bytes_of(struct ir_dims *dims, const struct ir_dim *lines)
{
	return ir_dim_mul(dims, ir_dim_const(dims, PLAN_ALIGN), lines);
}

static const struct ir_dim *largest(const struct plan_stack *s, const struct tops *t)
{
	const struct ir_dim *most = ir_dim_const(t->dims, 0);
	for (size_t i = 0; i < t->n; i++)
		most = ir_dim_max(t->dims, most, lines_of(s, t->dims, t->items + i * s->plan->n_lanes));
	return bytes_of(t->dims, most);
}

/* Every top fits below: where there are too many sides, the last one covers all others of them. */
static void add_all_tops(struct plan_stack *s, struct tops *t, int64_t *top)
{
	size_t n = s->plan->n_lanes;
	for (size_t i = 0; i < s->plan->n_blocks; i++) {
		top_of(s, i, top);
		if (add_top(s, t, top))
			continue;
		int64_t *last = t->items + (t->n - 1) * n;
		for (size_t k = 0; k < n; k++)
			last[k] = top[k] > last[k] ? top[k] : last[k];
	}
}

void plan_stack_keep(struct plan_stack *s, struct ir_dims *dims)
{
	struct plan_func *p = s->plan;
	struct tops tops = {dims, ARENA_ARRAY(s->arena, int64_t, TOPS_MAX * p->n_lanes + 1), 0};
	struct tops times = {dims, ARENA_ARRAY(s->arena, int64_t, TOPS_MAX * p->n_lanes + 1), 0};
	int64_t *top = ARENA_ARRAY(s->arena, int64_t, p->n_lanes + 1);
	if (tops.items == NULL || times.items == NULL || top == NULL || !each_time(s, see_time, &times))
		return;
	for (size_t i = 0; i < p->n_blocks; i++)
		p->blocks[i].base = bytes_of(dims, lines_of(s, dims, s->base + i * p->n_lanes));
	add_all_tops(s, &tops, top);
	p->arena = largest(s, &tops);
	p->lower_bound = largest(s, &times);
	for (int point = 0; point < PLAN_POINTS; point++)
		p->gap[point] =
		        s->bound[point] > 0 ? (s->arena_bytes[point] - s->bound[point]) / s->bound[point] : 0;
}
