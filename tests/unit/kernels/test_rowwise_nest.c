/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chooser of schedules of rowwise groups, on random groups for all targets: each pass covers every element of a row
 * once, in accumulators that are reduced; elements between passes are in a buffer that can hold them and that the
 * passes write, or in none where none can. Results that are computed element by element: several vectors at once are
 * those of a chain whose values fit the registers. Faults that are planted in a nest are found by the same checks.
 */
#include <check.h>
#include <string.h>

#include "backends/kernels/rowwise_nest.h"
#include "ir/support/checked.h"
#include "ir/target/target.h"
#include "tests/support/random/rng.h"

#define CASES   2000 /* of each target */
#define PLANTED 4    /* every fourth nest has faults planted */
#define WIDTH   600  /* of a row, at most */
#define ITEMS   64

#define REQUIRE(condition)                 \
	do {                               \
		if (!(condition))          \
			return #condition; \
	} while (0)

/* Rows; a: the attributes of their group. */
static struct rowwise_shape random_rows(struct rng *s, const struct target *t, struct attrs_group *a)
{
	static const enum ir_opcode roots[] = {OP_softmax,    OP_masked_softmax, OP_log_softmax,  OP_mask,
	                                       OP_layer_norm, OP_rms_norm,       OP_quantize_rows};
	static const int64_t short_rows = 40;
	struct rowwise_shape x = {.caps = kb_caps_of(t), .attrs = a};
	x.root = roots[rng_next(s) % TFMC_COUNT(roots)];
	x.longest = rng_between(s, 0, rng_next(s) % 2 ? short_rows : WIDTH);
	x.longest *= rng_next(s) % 8 ? 1 : 10;
	x.width = rng_next(s) % 3 ? x.longest : -1;
	x.items = t->group_size > 1 && rng_next(s) % 4 ? ITEMS : 1;
	x.has_one_pass = x.root == OP_mask || (x.root == OP_quantize_rows && rng_next(s) % 2);
	x.x_is_stored = rng_next(s) % 2;
	x.x_vectorizes = rng_next(s) % 4;
	x.results_vectorize = rng_next(s) % 4;
	x.scales_x = x.root == OP_masked_softmax && rng_next(s) % 2;
	x.fits_result = rng_next(s) % 2;
	x.is_producer = ir_is_norm(x.root) && x.items == 1 && rng_next(s) % 2;
	if (x.root == OP_quantize_rows && !x.has_one_pass && x.longest > 1 && rng_next(s) % 2)
		x.quant_block = rng_between(s, 1, x.longest - 1);
	*a = (struct attrs_group){.lanes = rng_next(s) % 4 ? 0 : (int64_t)1 << rng_between(s, 0, 4),
	                          .scratch = rng_next(s) % 3 ? ceil_div(4 * x.longest, 64) * 64
	                                                     : rng_between(s, 0, 8 * x.longest)};
	return x;
}

/* ---- coverage ---- */

/* The elements of a row that a pass covers. */
struct covered {
	unsigned char times[WIDTH * 10 + ROWWISE_REGISTER_VECTORS * KB_LANES_MAX];
	int64_t end;      /* after the last element that is read or written, whether it exists or not */
	int accumulators; /* that are used */
	int64_t vectors;  /* values, if they stay in registers */
};

/* `n` lanes from element `at` on, of which `valid` exist, in an accumulator; 0: that of the tail. */
static void cover(struct covered *c, int64_t at, int n, int64_t valid, int accumulator)
{
	for (int64_t i = at; i < at + valid; i++)
		c->times[i]++;
	c->end = max_i64(c->end, at + n);
	c->accumulators = (int)max_i64(c->accumulators, accumulator);
}

/* The loops of rowwise_loop over the parts of a range of n elements, constant or not. */
static void cover_row(struct covered *c, const struct rowwise_range *r, int64_t n, bool is_const)
{
	int64_t at = 0;
	*c = (struct covered){.end = 0};
	for (const struct rowwise_part *p = r->part; p < r->part + ROWWISE_PARTS; p++) {
		int64_t step = p->vectors * p->lanes, least = p->is_masked || p->is_tail ? 1 : step;
		for (int64_t i = 0; step > 0 && (is_const ? i < p->iterations : n - at >= least);
		     i++, at += step)
			for (int64_t v = 0, x = at; v < p->vectors; v++, x += p->lanes)
				cover(c, x, p->valid, p->is_masked && p->valid > n - x ? n - x : p->valid,
				      p->is_tail ? 0 : 1 + (int)((p->first + v) % r->vectors));
		c->vectors += is_const && p->iterations > 1 ? step * ROWWISE_REGISTER_VECTORS : p->vectors;
	}
}

/* The condition that the loops of a range of all elements violate, or NULL. */
static const char *fault_of_range(const struct rowwise_shape *s, const struct rowwise_nest *n,
                                  enum rowwise_pass pass, const struct rowwise_range *r, bool is_const)
{
	static struct covered c;
	cover_row(&c, r, s->longest, is_const);
	for (int64_t at = 0; at < s->longest; at++)
		REQUIRE(c.times[at] == 1);
	REQUIRE((pass != ROWWISE_REDUCE && pass != ROWWISE_EXP) || c.accumulators <= n->accumulators);
	REQUIRE(!is_const || n->buffer != ROWWISE_REGISTERS || c.vectors <= ROWWISE_REGISTER_VECTORS);
	REQUIRE(c.end <= s->longest || (n->buffer == ROWWISE_SCRATCH && 4 * c.end <= s->attrs->scratch));
	return NULL;
}

static const char *fault_of_pass(const struct rowwise_shape *s, const struct rowwise_nest *n,
                                 enum rowwise_pass pass)
{
	const struct rowwise_range any = rowwise_divide(n, pass, -1),
	                           row = rowwise_divide(n, pass, s->longest);
	const char *fault = fault_of_range(s, n, pass, &any, false);
	return fault || s->width < 0 ? fault : fault_of_range(s, n, pass, &row, true);
}

#define N_RANGE_FAULTS 4

/* Plants a fault in the range. */
static void plant_in_range(struct rowwise_range *r, int fault)
{
	struct rowwise_part *part = r->part;
	switch (fault) {
	case 0: part[0].valid--; break;
	case 1: part[1].valid--; break;
	case 2: part[2].vectors = 0; break;
	case 3: part[2] = part[1]; break;
	}
}

/* ---- elements between passes ---- */

static bool is_softmax(const struct rowwise_shape *s)
{
	return s->root == OP_softmax || s->root == OP_masked_softmax;
}

static bool has_exponentials(const struct rowwise_shape *s)
{
	return is_softmax(s) || s->root == OP_log_softmax;
}

static const char *fault_of_buffer(const struct rowwise_shape *s, const struct rowwise_nest *n)
{
	int64_t vectors = ceil_div(s->longest, n->lanes);
	bool in_registers = n->buffer == ROWWISE_REGISTERS, in_local = n->buffer == ROWWISE_LOCAL_MEMORY;
	bool fits_scratch = 4 * s->longest <= s->attrs->scratch;
	bool has_buffer = n->buffer != ROWWISE_NO_BUFFER;
	bool fits_local = s->items > 1 && s->longest <= ROWWISE_SHARED;
	bool holds_any = s->is_producer || fits_local || fits_scratch || s->fits_result;
	REQUIRE(n->buffer >= ROWWISE_NO_BUFFER && n->buffer <= ROWWISE_CALLER);
	REQUIRE(!in_registers || (s->width >= 0 && s->items == 1 && 2 * vectors <= s->caps.registers &&
	                          n->store_lanes == n->lanes && s->quant_block == 0 && s->root != OP_mask &&
	                          s->root != OP_masked_softmax && n->keeps_x));
	REQUIRE(!in_local || (fits_local && 4 * (s->longest + s->items) <= s->caps.shared_bytes));
	REQUIRE(n->buffer != ROWWISE_SCRATCH || (fits_scratch && !fits_local));
	REQUIRE(n->buffer != ROWWISE_RESULT || (s->fits_result && !fits_scratch));
	REQUIRE(n->buffer != ROWWISE_CALLER || s->is_producer);
	REQUIRE(has_buffer || !(n->keeps_x || n->keeps_exp || n->is_staged));
	REQUIRE(!has_buffer || n->keeps_x || n->keeps_exp || n->is_staged);
	/* x without lanes: copied, or all passes have one lane */
	REQUIRE(n->is_staged == (n->lanes > 1 && !s->x_vectorizes));
	REQUIRE(!n->is_staged || n->keeps_x);
	/* computed once if any buffer holds a row; a scaled x is not the x in memory */
	REQUIRE(!holds_any || n->keeps_x || s->has_one_pass || (s->x_is_stored && !s->scales_x));
	REQUIRE(n->keeps_exp == (is_softmax(s) && (holds_any || in_registers)));
	/* a masked tail is a vector of the buffer, which the pass before has stored */
	REQUIRE(!n->masks_tail || (n->keeps_x && n->keeps_exp));
	return NULL;
}

/* The condition that a nest violates, or NULL. */
static const char *fault_of(const struct rowwise_shape *s, const struct rowwise_nest *n)
{
	const bool is_on[] = {[ROWWISE_COPY] = n->is_staged,
	                      [ROWWISE_REDUCE] = !s->has_one_pass,
	                      [ROWWISE_EXP] = has_exponentials(s),
	                      [ROWWISE_STORE] = true};
	REQUIRE(n->lanes >= 1 && n->lanes <= 16 && (n->lanes & (n->lanes - 1)) == 0);
	REQUIRE(n->lanes <= (s->attrs->lanes > 0 ? s->attrs->lanes : s->caps.lanes));
	REQUIRE(s->width < 0 || n->lanes == 1 || n->lanes / 2 < s->width);
	REQUIRE(n->store_lanes == (s->results_vectorize ? n->lanes : 1));
	REQUIRE(n->exp_vectors >= 1 && n->exp_vectors <= ROWWISE_UNROLL);
	REQUIRE(s->root != OP_log_softmax || s->caps.registers >= 32 || n->exp_vectors <= 2);
	REQUIRE(n->accumulators <= ROWWISE_UNROLL);
	REQUIRE(s->items == 1 || (n->lanes == 1 && n->accumulators == 1));
	const char *fault = fault_of_buffer(s, n);
	for (int i = ROWWISE_COPY; !fault && s->items == 1 && i <= ROWWISE_STORE; i++)
		fault = is_on[i] ? fault_of_pass(s, n, (enum rowwise_pass)i) : NULL;
	return fault;
}

/* ---- planted faults ---- */

#define N_FAULTS 11

/* Plants a fault in the nest; false: this nest cannot have it. */
static bool plant(const struct rowwise_shape *s, struct rowwise_nest *n, int fault)
{
	bool rereads = s->x_is_stored && !s->scales_x && !n->is_staged;
	switch (fault) {
	case 0: n->lanes *= 2; return true;
	case 1: n->store_lanes = n->store_lanes == 1 ? 2 : 1; return true;
	case 2: n->exp_vectors *= 4; return true;
	case 3: n->accumulators = ROWWISE_UNROLL + 1; return true;
	case 4:
		n->accumulators--;
		return s->items > 1 ||
		       (!s->has_one_pass &&
		        (s->width < 0 ? s->longest >= ROWWISE_UNROLL * n->lanes : s->width > n->lanes));
	case 5:
		n->masks_tail = true;
		return !(n->keeps_x && n->keeps_exp) || (n->buffer != ROWWISE_SCRATCH && s->width < 0 &&
		                                         s->longest % n->lanes > 0 && s->items == 1);
	case 6: n->buffer = (enum rowwise_buffer)(n->buffer + 1); return true;
	case 7: n->is_staged = !n->is_staged; return true;
	case 8:
		n->keeps_x = !n->keeps_x;
		return n->keeps_x ? n->buffer == ROWWISE_NO_BUFFER : !rereads && !s->has_one_pass;
	case 9: n->keeps_exp = !n->keeps_exp; return true;
	case 10:
		n->buffer = ROWWISE_REGISTERS;
		return s->width > ROWWISE_REGISTER_VECTORS * n->lanes && s->items == 1;
	}
	return false;
}

START_TEST(covers_and_fits)
{
	const struct target *t = target_level_at((size_t)_i);
	struct rng s = rng_seed((uint64_t)_i);
	int planted[N_FAULTS] = {0}, buffers[ROWWISE_CALLER + 1] = {0}, found[2][N_RANGE_FAULTS] = {0};
	for (int i = 0; i < CASES; i++) {
		struct attrs_group a;
		const struct rowwise_shape x = random_rows(&s, t, &a);
		struct rowwise_nest n;
		rowwise_nest_choose(&x, &n);
		const char *fault = fault_of(&x, &n);
		ck_assert_msg(!fault, "rows %d: not %s", i, fault);
		buffers[n.buffer]++;
		struct rowwise_nest bad = n;
		for (int f = 0; i % PLANTED == 0 && f < N_FAULTS; bad = n, f++) {
			if (!plant(&x, &bad, f))
				continue;
			ck_assert_msg(fault_of(&x, &bad), "rows %d: planted fault %d is not found", i, f);
			planted[f]++;
		}
		for (int f = 0; i % PLANTED == 0 && x.items == 1 && f < 2 * N_RANGE_FAULTS; f++) {
			struct rowwise_range r = rowwise_divide(&n, ROWWISE_REDUCE, f % 2 ? x.longest : -1);
			plant_in_range(&r, f / 2);
			found[f % 2][f / 2] += fault_of_range(&x, &n, ROWWISE_REDUCE, &r, f % 2) != NULL;
		}
	}
	for (int f = 0; f < 2 * N_RANGE_FAULTS; f++)
		ck_assert_msg(found[f % 2][f / 2] > CASES / PLANTED / 64, "fault %d of ranges is found in %d",
		              f, found[f % 2][f / 2]);
	for (int f = 0; f < N_FAULTS; f++)
		ck_assert_msg(planted[f] > CASES / PLANTED / 128, "fault %d is planted in %d nests", f,
		              planted[f]);
	for (int b = ROWWISE_NO_BUFFER; b <= ROWWISE_CALLER; b++)
		ck_assert_msg(buffers[b] > CASES / 128 || (b == ROWWISE_LOCAL_MEMORY && t->group_size <= 1),
		              "buffer %d in %d nests", b, buffers[b]);
}
END_TEST

/* ---- element by element ---- */

static struct loops_shape random_result(struct rng *s, const struct target *t)
{
	static const struct attrs_group none;
	struct loops_shape x = {.target = t, .caps = kb_caps_of(t), .attrs = &none};
	x.vectorizes = rng_next(s) % 4;
	x.has_functions = rng_next(s) % 4 == 0;
	x.ops = (int)rng_between(s, 0, 80);
	x.depth = (int)(x.ops - rng_between(s, 0, 2 * x.ops / 3));
	x.loads = (int)rng_between(s, 0, 40);
	x.shared = (int)rng_between(s, 0, 12);
	return x;
}

/* The condition that a nest violates, or NULL. */
static const char *fault_of_result(const struct loops_shape *s, const struct loops_nest *n)
{
	bool is_chain = !s->has_functions && s->depth >= 8 && 2 * s->depth > s->ops;
	int live = 2 + s->shared, most = LOOPS_VECTORS_MAX;
	REQUIRE(n->lanes == (s->vectorizes ? s->caps.lanes : 1));
	REQUIRE(n->vectors == 1 || n->vectors == 2 || n->vectors == most);
	REQUIRE(n->vectors == 1 || (n->lanes > 1 && is_chain && s->target->arch != ARCH_OPENCL));
	REQUIRE(n->vectors == 1 || n->vectors * live <= s->caps.registers);
	REQUIRE(n->vectors < most || n->vectors * s->loads <= 64);
	/* as many as fit */
	bool may_double = n->lanes > 1 && is_chain && s->target->arch != ARCH_OPENCL && n->vectors < most &&
	                  2 * n->vectors * live <= s->caps.registers &&
	                  (n->vectors == 1 || 2 * n->vectors * s->loads <= 64);
	REQUIRE(!may_double);
	return NULL;
}

#define N_RESULT_FAULTS 3

/* Plants a fault in the nest. */
static void plant_in_result(struct loops_nest *n, int fault)
{
	switch (fault) {
	case 0: n->lanes *= 2; break;
	case 1: n->vectors *= 2; break;
	case 2: n->vectors = n->vectors > 1 ? n->vectors / 2 : 3; break;
	}
}

START_TEST(chains_fit)
{
	const struct target *t = target_level_at((size_t)_i);
	struct rng s = rng_seed((uint64_t)_i);
	int vectors[LOOPS_VECTORS_MAX + 1] = {0};
	for (int i = 0; i < CASES; i++) {
		const struct loops_shape x = random_result(&s, t);
		struct loops_nest n;
		loops_nest_choose(&x, &n);
		const char *fault = fault_of_result(&x, &n);
		ck_assert_msg(!fault, "result %d: not %s", i, fault);
		vectors[n.vectors]++;
		for (int f = 0; i % PLANTED == 0 && f < N_RESULT_FAULTS; f++) {
			struct loops_nest bad = n;
			plant_in_result(&bad, f);
			ck_assert_msg(fault_of_result(&x, &bad), "result %d: planted fault %d is not found",
			              i, f);
		}
	}
	ck_assert(vectors[1] > CASES / 4 &&
	          (t->arch == ARCH_OPENCL || (vectors[2] > CASES / 64 && vectors[4] > CASES / 64)));
}
END_TEST

Suite *suite_rowwise_nest(void)
{
	Suite *s = suite_create("rowwise_nest");
	TCase *c = tcase_create("rowwise_nest");
	int n = 0;
	while (target_level_at((size_t)n))
		n++;
	tcase_add_loop_test(c, covers_and_fits, 0, n);
	tcase_add_loop_test(c, chains_fit, 0, n);
	suite_add_tcase(s, c);
	return s;
}
