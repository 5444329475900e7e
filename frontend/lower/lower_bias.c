/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Biases of attention scores: a given tensor, ALiBi, relative position buckets. Positions count from the start
 * of the sequence, with a cache too.
 *
 *   ALiBi (Press et al. 2022, section 3): -m_n |i - j|; m_n falls geometrically
 *   relative positions (Raffel et al. 2020, section 2.1): T[bucket(j - i), n]
 *
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower/lower.h"

#define DISTANCE_MAX 65536
#define HEADS_MAX    65536

struct score_bias {
	const struct call *c;
	struct ir_builder *b;
	struct ir_dims *dims;
	const struct ir_type *scores; /* [B, H, S, T] */
	int64_t heads;
};

/* Adds a term: attention kernels take one bias, the sum of all. */
static bool add_term(const struct score_bias *s, struct ir_value x, struct ir_value *sum)
{
	*sum = sum->id != 0 ? irb_add(s->b, *sum, x, NULL) : x;
	return !irb_failed(s->b);
}

static struct ir_value reshape_and_broadcast(const struct score_bias *s, struct ir_value v, int rank,
                                             const struct ir_dim **dims)
{
	return irb_broadcast_to(s->b, irb_reshape_to(s->b, v, rank, dims), rank, s->scores->dims);
}

/* Key position minus query position, i32 [B or 1, 1, S, T]. */
static struct ir_value distances(const struct score_bias *s)
{
	return lower_distances(s->c->lw, s->scores);
}

/* ---- ALiBi ---- */

/* Slope of head n: with p the largest power of two <= heads, 2^(-max (n + 1) / p) for n < p, then the
 * odd-indexed slopes of 2p heads. */
static double alibi_slope(int64_t n, int64_t heads, double max)
{
	int64_t p = 1;
	while (2 * p <= heads)
		p *= 2;
	if (n < p)
		return pow(2.0, -max * (double)(n + 1) / (double)p);
	return pow(2.0, -max * (double)(2 * (n - p) + 1) / (double)(2 * p));
}

/* The slopes -m_n scale as a constant f32 [H], named by its parameters. max: exponent of the smallest slope, 8 in
 * the paper. */
static bool alibi_slopes(const struct score_bias *s, double max, double scale, struct ir_value *out)
{
	struct arena *a = &s->c->lw->m->arena;
	const struct ir_wexpr **parts = ARENA_ARRAY(a, const struct ir_wexpr *, s->heads);
	for (int64_t n = 0; parts != NULL && n < s->heads; n++)
		parts[n] = wexpr_full(a, -alibi_slope(n, s->heads, max) * scale, 0, NULL);
	if (parts == NULL)
		return false;
	const char *name = arena_printf(s->c->lw->arena, "alibi.%lld", (long long)s->heads);
	if (max != 8.0)
		name = arena_printf(s->c->lw->arena, "%s.max%016llx", name,
		                    (unsigned long long)hash_bytes64(HASH64_SEED, &max, sizeof(max)));
	if (scale != 1.0)
		name = arena_printf(s->c->lw->arena, "%s.scale%016llx", name,
		                    (unsigned long long)hash_bytes64(HASH64_SEED, &scale, sizeof(scale)));
	return lower_const_table(s->c->lw, name, wexpr_stack(a, (size_t)s->heads, parts), out);
}

/* Adds -m_n |i - j|; nothing if the argument alibi is 0, its default. */
static bool add_alibi(const struct score_bias *s, struct ir_value *sum)
{
	double max = 0.0, scale = 0.0;
	struct ir_value m;
	const struct ir_dim *one = ir_dim_const(s->dims, 1);
	if (!call_float(s->c, "alibi_scale", &scale) || !call_float(s->c, "alibi", &max))
		return false;
	if (max == 0.0)
		return true;
	if (!(max > 0.0) || !isfinite(max) || !(scale > 0.0) || !isfinite(scale))
		return lower_fail(s->c->lw, s->c->e->loc, DIAG_VALUE_TYPE,
		                  "alibi wants a positive exponent and a positive scale");
	if (!alibi_slopes(s, max, scale, &m))
		return false;
	struct ir_value d = irb_cast(s->b, distances(s), &(struct attrs_cast){.dtype = s->scores->dtype});
	const struct ir_type *t = irb_type(s->b, d);
	const struct ir_dim *heads[] = {one, s->scores->dims[1], one, one};
	if (t == NULL)
		return false;
	d = reshape_and_broadcast(s, irb_abs(s->b, d, NULL), 4,
	                          (const struct ir_dim *[]){t->dims[0], one, t->dims[2], t->dims[3]});
	return add_term(s, irb_mul(s->b, d, reshape_and_broadcast(s, m, 4, heads), NULL), sum);
}

/* ---- relative positions ---- */

struct bucketing {
	int64_t n, reach;   /* number of buckets; distances >= reach share the last one */
	bool bidirectional; /* bidirectional: keys after the query have half of the buckets */
};

/* Bucket of the distance r = key - query: exact for small distances, logarithmic up to reach. In one direction,
 * keys after the query share the bucket of distance 0. */
static int64_t bucket_of_distance(const struct bucketing *k, int64_t r)
{
	int64_t n = k->bidirectional ? k->n / 2 : k->n, offset = k->bidirectional && r > 0 ? n : 0;
	int64_t exact = n / 2, d = r < 0 ? -r : k->bidirectional ? r : 0;
	if (d < exact)
		return offset + d;
	double part = log((double)d / (double)exact) / log((double)k->reach / (double)exact);
	int64_t far_bucket = exact + (int64_t)floor(part * (double)(n - exact));
	return offset + (far_bucket < n - 1 ? far_bucket : n - 1);
}

/* Expands the table [buckets, H] to one row for each distance -reach .. reach, so that run time needs no logarithm: a
 * gather with a clamped distance. Neighbours of one bucket are one slice, repeated. */
static const struct ir_wexpr *expand_buckets(const struct score_bias *s, const struct bucketing *k,
                                             const struct ir_wexpr *table)
{
	struct arena *a = &s->c->lw->m->arena;
	const struct ir_wexpr **parts = ARENA_ARRAY(a, const struct ir_wexpr *, 2 * k->reach + 1);
	size_t n = 0;
	for (int64_t r = -k->reach; parts != NULL && r <= k->reach;) {
		int64_t row = bucket_of_distance(k, r), from = r;
		while (r <= k->reach && bucket_of_distance(k, r) == row)
			r++;
		const struct ir_wexpr *e = wexpr_slice(a, 0, row, row + 1, table);
		parts[n++] = r - from > 1 ? wexpr_repeat(a, 0, r - from, e) : e;
	}
	return parts == NULL ? NULL : wexpr_concat(a, 0, n, parts);
}

/* Reads and checks the arguments of relative positions: half of the buckets of a direction are exact distances, so
 * there are 2 at least, and max_distance exceeds these. False after a report. */
static bool read_buckets(const struct score_bias *s, struct bucketing *k)
{
	const struct call *c = s->c;
	if (!call_int(c, "buckets", &k->n) || !call_int(c, "max_distance", &k->reach) ||
	    !call_bool(c, "bidirectional", &k->bidirectional))
		return false;
	int64_t n = k->bidirectional ? k->n / 2 : k->n;
	if (k->n < 2 || k->n > DISTANCE_MAX || n < 2)
		return lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE,
		                  "rel_bias wants at least 2 buckets for each direction");
	if (k->reach <= n / 2 || k->reach > DISTANCE_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE,
		                  "max_distance must be above %lld (half of the buckets) and at most %d",
		                  (long long)(n / 2), DISTANCE_MAX);
	return true;
}

static const struct ir_wexpr *bucket_table_by_distance(void *user, const struct ir_wexpr *table)
{
	const void *const *context = user;
	return expand_buckets(context[0], context[1], table);
}

/* Adds relative position biases: a gather from the expanded table at the distances, which it clamps to the table.
 * Nothing if rel_bias is none. */
static bool add_relative(const struct score_bias *s, struct ir_value *sum)
{
	static const int64_t heads_first[] = {0, 3, 1, 2};
	const char *path = NULL;
	struct bucketing k = {.n = 0};
	struct ir_value table;
	if (!call_word(s->c, "rel_bias", &path))
		return false;
	if (path == NULL || strcmp(path, "none") == 0)
		return true;
	if (!read_buckets(s, &k))
		return false;
	const void *context[] = {s, &k};
	struct weight_request need = {.rank = 2,
	                              .dims = {k.n, s->heads},
	                              .form = WEIGHT_DERIVED,
	                              .make = bucket_table_by_distance,
	                              .user = context,
	                              .derived_suffix = arena_printf(s->c->lw->arena, ".distances%lld%s",
	                                                             (long long)k.reach,
	                                                             k.bidirectional ? "" : ".past")};
	need.pattern = arena_printf(s->c->lw->arena, "%s.weight", path);
	if (!lower_weight(s->c->lw, &need, &table))
		return false;
	struct ir_value d = distances(s);
	const struct ir_type *t = irb_type(s->b, d);
	if (t == NULL)
		return false;
	const struct ir_dim *flat[] = {t->dims[0], t->dims[2], t->dims[3]};
	d = irb_reshape_to(s->b, d, 3, flat);
	struct ir_value reach = irb_full_of(s->b, (double)k.reach, DT_I32, 3, flat);
	struct ir_value bias =
	        irb_gather(s->b, table, irb_add(s->b, d, reach, NULL), NULL); /* [B, S, T, H] */
	bias = irb_transpose_by(s->b, bias, 4, heads_first);
	return add_term(s, irb_broadcast_to(s->b, bias, 4, s->scores->dims), sum);
}

/* ---- a given tensor ---- */

/* Adds the argument `bias`, and -inf for keys that are not visible (visible: no value if the mask is applied later). */
static bool add_given_bias(const struct score_bias *s, struct ir_value visible, struct ir_value scores,
                           struct ir_value *sum)
{
	struct ir_value bias = IR_NO_VALUE;
	if (!lower_score_operand(s->c, "bias", scores, s->scores->dtype, &bias))
		return false;
	if (bias.id == 0 && visible.id == 0)
		return true;
	if (visible.id != 0)
		bias = lower_mask_fill(s->c->lw, visible, bias, s->scores->dtype);
	return add_term(s, irb_broadcast_to(s->b, bias, 4, s->scores->dims), sum);
}

/* The number of heads is constant, as repeat_heads() has checked; above HEADS_MAX there is no report but that of
 * lower_body(), of a tensor that is too large. A visible key has the bias 0, an invisible one -inf. */
bool lower_score_bias(const struct call *c, struct ir_value visible, struct ir_value *scores)
{
	struct score_bias s = {.c = c, .b = c->lw->b, .dims = c->lw->module->dims};
	s.scores = irb_type(s.b, *scores);
	if (s.scores == NULL || !ir_dim_is_const(s.scores->dims[1], &s.heads) || s.heads < 1)
		return false;
	if (s.heads > HEADS_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_LIMIT, "attention has at most %d heads, found %lld",
		                  HEADS_MAX, (long long)s.heads);
	struct ir_value sum = IR_NO_VALUE;
	if (!add_given_bias(&s, visible, *scores, &sum) || !add_alibi(&s, &sum) || !add_relative(&s, &sum))
		return false;
	if (sum.id != 0)
		*scores = irb_add(s.b, *scores, sum, NULL);
	return !irb_failed(s.b);
}
