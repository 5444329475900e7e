/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled code against the interpreter on seeded inputs, and cached generation
 * against one-shot evaluation.
 *
 * Metric: relative L2 error of each output, ||got - want|| / ||want||. Bound: f32
 * results of up to twelve layers stay within 1e-5 of f64 evaluation when every
 * reduction keeps its own bound (gamma_k with k up to some thousands, averaged by
 * the norms between the layers). What exceeds it is compared with what rounding makes of
 * this very value, in the first order: the distance to the interpreter with sums of f32
 * (one after the other, no better than those of kernels), four times. Where values are
 * rounded to f16 or bf16 (a narrow cache) or to integers, a difference of one f32 unit may
 * round them to neighbours, and what follows to others: there a result may be once and a half as far from the
 * interpreter's result without rounding of floats as rounding has taken any output of this model so far, the
 * interpreter's own distance from it added. (Of one output alone, perhaps of few elements, that may be little by chance.)
 *
 * What the interpreter takes is bounded: of the rounds of a large model some are compared,
 * and the report says which.
 */
#include "frontend/driver/run/probes.h"
#include "frontend/driver/check/verify.h"

#include <math.h>
#include <string.h>

#include "ir/analysis/cost.h"
#include "passes/validate/random.h"
#include "passes/validate/trial.h"

#define REL_L2_BOUND 1e-5
#define ROUNDED      1.5  /* of two results that are rounded to other neighbours */
#define SUMS_FACTOR  4    /* of two results with sums of f32, each in an order of its own */
#define SUMS_MOST    1e-2 /* a value that rounding moves farther says nothing */
#define MAX_DIMS     16
#define N_ROUNDS     4
#define WORK_MAX     INT64_C(10000000000) /* multiply-adds of the interpreter for an entry, some seconds */
#define WEIGHT_WORK  4.0 /* multiply-adds that reading an element of a weight takes as long as */

/* "1.5e-3 at [0,4,17], 0.25 instead of 0.2485": the element with the largest difference. */
const char *tensor_difference(struct driver *d, const struct named_tensor *got,
                              const struct named_tensor *want)
{
	int64_t at = 0;
	double most = -1;
	for (int64_t i = 0; i < want->count; i++) {
		double w = tensor_value(want, i), g = tensor_value(got, i), error = fabs(g - w);
		if (w == g || (isnan(w) && isnan(g)))
			continue;
		if (isnan(error))
			error = INFINITY;
		if (error > most) {
			most = error;
			at = i;
		}
	}
	struct buf text;
	buf_init(&text);
	int64_t inner = want->count;
	for (int k = 0; k < want->rank; k++) {
		inner = want->dims[k] ? inner / want->dims[k] : 0;
		buf_printf(&text, "%s%lld", k ? "," : "",
		           (long long)(inner ? at / inner % want->dims[k] : 0));
	}
	const char *out = arena_printf(&d->arena, "largest error %.3g at [%s], %.9g in place of %.9g",
	                               most < 0 ? 0 : most, want->rank ? text.data : "",
	                               want->count ? tensor_value(got, at) : 0,
	                               want->count ? tensor_value(want, at) : 0);
	buf_destroy(&text);
	return out;
}

double tensor_relative_l2(const struct named_tensor *got, const struct named_tensor *want)
{
	double difference = 0, norm = 0;
	for (int64_t i = 0; i < want->count; i++) {
		double w = tensor_value(want, i), g = tensor_value(got, i);
		bool equal = w == g || (isnan(w) && isnan(g));
		if (!equal)
			difference += (g - w) * (g - w);
		if (!equal || isfinite(w))
			norm += w * w;
	}
	return difference == 0 ? 0 : sqrt(difference / norm);
}

/* The interpreter, and as it is without rounding of floats, or with sums of f32. */
struct reference {
	struct caller rounded, other;
	bool is_narrow; /* a function rounds to less than f32, or to integers: `other` rounds no floats */
	double most;    /* that rounding has made of an output so far */
	int64_t batch;  /* sequences of the state */
};

static void reference_init(struct reference *x, const struct caller *interp)
{
	*x = (struct reference){
	        .rounded = *interp, .other = *interp, .is_narrow = trial_uses_lowp(interp->module)};
	x->other.wide = x->is_narrow;
	x->other.single = !x->is_narrow;
}

/* The bound of result i; `other` is filled when it is needed and empty. */
static enum tfmc_status bound_of(struct reference *x, const char *entry, struct named_tensors *in,
                                 const struct named_tensors *got, const struct named_tensors *want,
                                 struct named_tensors *other, size_t i, double *bound)
{
	*bound = REL_L2_BOUND;
	if (!x->is_narrow && tensor_relative_l2(&got->items[i], &want->items[i]) <= REL_L2_BOUND)
		return TFMC_OK;
	if (!other->n)
		TFMC_TRY(caller_run(&x->other, entry, in, other));
	double own = tensor_relative_l2(&other->items[i], &want->items[i]);
	x->most = own > x->most ? own : x->most;
	own = x->is_narrow ? own + ROUNDED * x->most : SUMS_FACTOR * own;
	if (own > REL_L2_BOUND && (x->is_narrow || own <= SUMS_MOST))
		*bound = own;
	return TFMC_OK;
}

/* ---- seeded inputs ---- */
struct round {
	struct random random;
	int number;
	int64_t dims[MAX_DIMS];
};

static void choose_dims(const struct tfmc_record *r, struct round *round)
{
	static const int64_t sizes[N_ROUNDS][3] = {{1, 1, 1}, {2, 5, 4}, {3, 8, 7}, {1, 7, 3}};
	for (uint64_t i = 0; i < r->n_dims; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(r, i);
		int64_t want = sizes[round->number][i < 3 ? i : 2];
		round->dims[i] = want < dim->lo ? dim->lo : want > dim->hi ? dim->hi : want;
	}
}

/* Rounds that are compared, and how many multiply-adds the interpreter would take for all. */
struct sample {
	bool chosen[N_ROUNDS];
	double work;
};

/* Of the interpreter for a call of a function in the dims of a round. */
static double work_of(const struct ir_module *m, const char *entry, const int64_t *dims)
{
	const struct ir_func *f = ir_find_func(m, entry_function(entry));
	int64_t flops = 0;
	double elements = 0;
	if (!f)
		return 0;
	if (!ir_dim_eval(ir_func_flops(m, f, MAC_ALL), dims, &flops))
		flops = INT64_MAX;
	for (size_t i = 0; i < m->weights.n; i++) {
		const struct ir_type *type = m->weights.items[i]->type;
		double n = 1;
		for (int k = 0; k < type->rank; k++)
			n *= (double)ir_dim_lo(m->dims, type->dims[k]);
		elements += n;
	}
	return (double)flops / 2 + WEIGHT_WORK * elements;
}

/*
 * All rounds, or those that fit: several sequences of different lengths first. The one that takes least
 * when none fits.
 */
static struct sample choose_rounds(const struct reference *x, const char *const *entries, size_t n)
{
	const struct driver_options *o = &x->rounded.d->options;
	static const int order[N_ROUNDS] = {1, 3, 2, 0};
	const struct ir_module *m = x->rounded.module;
	double work[N_ROUNDS] = {0}, taken = 0;
	struct sample s = {.work = 0};
	int64_t most = option_int(o->limit_work, WORK_MAX);
	int least = 0;
	for (int i = 0; i < N_ROUNDS; i++) {
		struct round round = {.number = i};
		choose_dims(x->rounded.record, &round);
		for (size_t k = 0; k < n; k++)
			work[i] += work_of(m, entries[k], round.dims) * (x->is_narrow ? 2 : 1);
		s.work += work[i];
		least = work[i] < work[least] ? i : least;
	}
	for (int i = 0; i < N_ROUNDS; i++) {
		bool fits = o->exhaustive || taken + work[order[i]] <= (double)most;
		s.chosen[order[i]] = fits;
		taken += fits ? work[order[i]] : 0;
	}
	if (taken == 0)
		s.chosen[least] = true;
	return s;
}

static void tell_sample(struct driver *d, const char *entry, const struct sample *s)
{
	struct buf list;
	int n = 0;
	buf_init(&list);
	for (int i = 0; i < N_ROUNDS; i++)
		if (s->chosen[i])
			buf_printf(&list, "%s%d", n++ ? ", " : "", i + 1);
	if (n < N_ROUNDS)
		buf_printf(&d->out,
		           "%s: compared seeded inputs %s of 1 to %d; all would take the interpreter %.2g "
		           "multiply-adds, --exhaustive takes them\n",
		           entry, list.data, N_ROUNDS, s->work);
	buf_destroy(&list);
}

/* Contents of the states, for as many sequences as the largest round has. */
static void reference_states(struct reference *x)
{
	const struct ir_module *m = x->rounded.module;
	int64_t n;
	x->batch = 1;
	for (int i = 0; i < N_ROUNDS; i++) {
		struct round round = {.number = i};
		choose_dims(x->rounded.record, &round);
		for (size_t k = 0; k < m->states.n; k++)
			if (ir_dim_eval(m->states.items[k]->type->dims[0], round.dims, &n) && n > x->batch)
				x->batch = n;
	}
	x->rounded.state = interp_state_create(&x->rounded.d->arena, m, x->batch);
	x->other.state = interp_state_create(&x->rounded.d->arena, m, x->batch);
}

#define INTS 9 /* below it are integers of which nothing is said */

/* values: [v->count] */
static void fill(struct round *round, const struct tfmc_record_tensor *t, const struct ir_param *p,
                 struct named_tensor *v, double *values)
{
	int64_t most = 0, below = t->below;
	bool is_float = ir_dtype_class(v->dtype) == DTCLASS_FLOAT,
	     is_bool = ir_dtype_class(v->dtype) == DTCLASS_BOOL;
	if (p && p->max && ir_dim_eval(p->max, round->dims, &most))
		below = most + 1;
	for (int64_t i = 0; i < v->count; i++)
		values[i] = is_float ? random_normal(&round->random)
		                     : (double)random_below(&round->random, below > 0 ? below
		                                                            : is_bool ? 2
		                                                                      : INTS);
	tensor_set_values(v, values);
}

const struct ir_param *verify_find_param(const struct ir_func *f, const char *name)
{
	for (size_t i = 0; f && i < f->n_params; i++)
		if (!strcmp(f->params[i].name, name))
			return &f->params[i];
	return NULL;
}

/* All inputs of an entry in the dims of the round. */
static enum tfmc_status make_inputs(const struct reference *x, const char *entry, struct round *round,
                                    struct named_tensors *in)
{
	const struct tfmc_record *r = x->rounded.record;
	const struct ir_func *f = ir_find_func(x->rounded.module, entry_function(entry));
	int64_t number = tfmc_entry_find(r, entry);
	const struct tfmc_record_entry *e = tfmc_entry_at(r, number);
	for (uint64_t i = 0; i < e->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(r, number, i);
		int64_t dims[IR_RANK_MAX];
		for (uint64_t k = 0; k < t->rank; k++)
			dims[k] = tfmc_tensor_size(r, t, k, round->dims);
		struct named_tensor *v = tensors_add(x->rounded.d, in, tfmc_record_text(r, t->name),
		                                     (enum ir_dtype)t->dtype, (int)t->rank, dims);
		double *values = v ? ARENA_ARRAY(&x->rounded.d->arena, double, v->count + 1) : NULL;
		if (!values)
			return TFMC_NO_MEMORY;
		fill(round, t, verify_find_param(f, v->name), v, values);
	}
	return TFMC_OK;
}

/* ---- object against interpreter ---- */
/* Largest error of each probe over all rounds, and where it was. */
struct probe_errors {
	struct probe_error {
		const struct probe_value *probe;
		double error, bound;
		int round;
		const char *place;
	} * items;
	size_t n, cap;
};

static bool note_probe(struct driver *d, struct probe_errors *errors, const struct named_tensor *got,
                       const struct named_tensor *want, double bound, int round)
{
	struct probe_error *e = NULL;
	for (size_t i = 0; i < errors->n && !e; i++)
		if (errors->items[i].probe == got->probe)
			e = &errors->items[i];
	if (!e && !(e = ARENA_PUSH(&d->arena, errors)))
		return false;
	double error = tensor_relative_l2(got, want);
	if (e->probe && error * e->bound <= e->error * bound)
		return true;
	*e = (struct probe_error){got->probe, error, bound, round, ""};
	if (!(error <= bound))
		e->place = tensor_difference(d, got, want);
	return true;
}

/* A line for each probe, in the order of computation; the first beyond its bound is an error at its step. */
static void report_probes(struct driver *d, const char *entry, const struct probe_errors *errors,
                          bool *failed)
{
	bool told = false;
	for (size_t i = 0; i < errors->n; i++) {
		const struct probe_error *e = &errors->items[i];
		bool ok = e->error <= e->bound;
		verify_print_line(
		        d, arena_printf(&d->arena, "%s %s, against interpreter", entry, e->probe->name),
		        e->error, e->bound, ok);
		*failed = *failed || !ok;
		if (ok || told)
			continue;
		told = true;
		diag_error(
		        &d->diag, e->probe->op->loc.at, DIAG_CHECK_FAILED,
		        "%s is the first value of %s that differs from the interpreter: %s, seeded inputs %d",
		        e->probe->name, entry, e->place, e->round + 1);
	}
}

/* NaN and infinity in an output are no results, however alike they are; -infinity is one (a mask). NULL: there are none. */
static const char *not_a_result(struct driver *d, const struct named_tensor *t)
{
	for (int64_t i = 0; ir_dtype_class(t->dtype) == DTCLASS_FLOAT && i < t->count; i++)
		if (!(tensor_value(t, i) < INFINITY))
			return tensor_not_finite(d, t);
	return NULL;
}

static enum tfmc_status compare_entry(struct driver *d, struct caller *object, struct reference *interp,
                                      const char *entry, struct round *round, struct probe_errors *errors,
                                      bool *failed)
{
	struct named_tensors in = {0}, got = {0}, want = {0}, other = {0};
	TFMC_TRY(make_inputs(interp, entry, round, &in));
	TFMC_TRY(caller_run(object, entry, &in, &got));
	TFMC_TRY(caller_run(&interp->rounded, entry, &in, &want));
	for (size_t i = 0; i < got.n; i++) {
		double bound;
		TFMC_TRY(bound_of(interp, entry, &in, &got, &want, &other, i, &bound));
		if (got.items[i].probe) {
			if (!note_probe(d, errors, &got.items[i], &want.items[i], bound, round->number))
				return TFMC_NO_MEMORY;
			continue;
		}
		double error = tensor_relative_l2(&got.items[i], &want.items[i]);
		const char *wide = not_a_result(d, &got.items[i]);
		bool ok = error <= bound && !wide;
		const char *what = arena_printf(&d->arena, "%s %s, seeded inputs %d, against interpreter",
		                                entry, got.items[i].name, round->number + 1);
		verify_print_line(d, what, error, bound, ok);
		if (wide)
			diag_error(&d->diag, LOC_NONE, DIAG_CHECK_FAILED,
			           "%s %s is not finite in %s, seeded inputs %d", entry, got.items[i].name,
			           wide, round->number + 1);
		*failed = *failed || !ok;
	}
	return TFMC_OK;
}

static enum tfmc_status compare_rounds(struct driver *d, struct caller *object, struct reference *interp,
                                       const char *entry, bool *failed)
{
	struct probe_errors errors = {0};
	struct sample sample = choose_rounds(interp, &entry, 1);
	for (int i = 0; i < N_ROUNDS; i++) {
		progress_report(&d->progress, "seeded inputs", "calls", (uint64_t)i, N_ROUNDS);
		if (!sample.chosen[i])
			continue;
		struct round round = {.random = {(uint64_t)i * 977 + 1}, .number = i};
		choose_dims(object->record, &round);
		TFMC_TRY(compare_entry(d, object, interp, entry, &round, &errors, failed));
	}
	report_probes(d, entry, &errors, failed);
	tell_sample(d, entry, &sample);
	return TFMC_OK;
}

/* ---- cache against one shot ---- */
/* The logits row of `run` at one position of a sequence as a tensor of its own. */
static struct named_tensor row_of(const struct named_tensor *all, int64_t b, int64_t row)
{
	struct named_tensor t = *all;
	int64_t v = all->dims[2];
	t.rank = 1;
	t.count = t.dims[0] = v;
	t.data = (float *)all->data + (b * all->dims[1] + row) * v;
	return t;
}

struct incremental {
	struct driver *d;
	struct caller *object;
	const struct frontend_generate *g;
	const struct ir_func *run;
	const struct named_tensors *in; /* of run */
	const struct named_tensor *tokens, *logits;
	double worst;
};

/* What an entry is given beside tokens: whatever run was, but for how much of it is real. */
static enum tfmc_status add_others(const struct incremental *x, struct named_tensors *in)
{
	for (size_t i = 0; i < x->in->n; i++) {
		const struct ir_param *p = verify_find_param(x->run, x->in->items[i].name);
		bool is_other = &x->in->items[i] != x->tokens && p && !p->max;
		if (is_other && !ARENA_ADDED(&x->d->arena, in, x->in->items[i]))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}

/* Parts of a text turn by the frequencies of the whole. */
static enum tfmc_status add_call_end(const struct incremental *x, struct named_tensors *in)
{
	int64_t batch = x->tokens->dims[0];
	struct named_tensor *t = tensors_add(x->d, in, "call_end", DT_I32, 1, &batch);
	for (int64_t b = 0; t && b < batch; b++)
		((int32_t *)t->data)[b] = (int32_t)x->tokens->dims[1];
	return t ? TFMC_OK : TFMC_NO_MEMORY;
}

/* Feeds tokens [from, to) of every sequence and compares the last logits. */
static enum tfmc_status feed(struct incremental *x, const char *entry, int64_t from, int64_t to)
{
	struct named_tensors in = {0}, out = {0};
	int64_t batch = x->tokens->dims[0], n = to - from;
	struct named_tensor *t = ARENA_PUSH(&x->d->arena, &in);
	int32_t *ids = ARENA_ARRAY(&x->d->arena, int32_t, batch * n + 1);
	if (!t || !ids)
		return TFMC_NO_MEMORY;
	for (int64_t b = 0; b < batch; b++)
		for (int64_t i = 0; i < n; i++)
			ids[b * n + i] =
			        ((const int32_t *)x->tokens->data)[b * x->tokens->dims[1] + from + i];
	*t = (struct named_tensor){
	        .name = x->g->tokens, .dtype = DT_I32, .rank = 2, .dims = {batch, n}, .data = ids};
	t->count = batch * n;
	TFMC_TRY(add_others(x, &in));
	if (x->g->long_from > 0)
		TFMC_TRY(add_call_end(x, &in));
	TFMC_TRY(caller_run(x->object, entry, &in, &out));
	const struct named_tensor *got = tensors_find(&out, x->g->logits);
	for (int64_t b = 0; got && b < batch; b++) {
		struct named_tensor want = row_of(x->logits, b, to - 1), row = want;
		row.data = (float *)got->data + b * want.count;
		double error = tensor_relative_l2(&row, &want);
		x->worst = error <= x->worst ? x->worst : error;
	}
	return TFMC_OK;
}

/* Whole sequences only: ragged inputs are compared by compare_rounds. */
static void use_full_lengths(struct named_tensors *in, const struct ir_func *f, const int64_t *dims)
{
	for (size_t i = 0; i < in->n; i++) {
		struct named_tensor *v = &in->items[i];
		const struct ir_param *p = verify_find_param(f, v->name);
		int64_t full;
		if (!p || !p->max || !ir_dim_eval(p->max, dims, &full))
			continue;
		for (int64_t k = 0; k < v->count; k++)
			((int32_t *)v->data)[k] = (int32_t)full;
	}
}

static enum tfmc_status run_incremental(struct incremental *x)
{
	struct named_tensors encoded = {0}, source = {0};
	int64_t n = x->tokens->dims[1], first = n > 2 ? n / 2 : 1;
	int64_t together = x->g->prefix < n ? x->g->prefix : n;
	first = first > together ? first : together;
	(void)tfmc_session_reset(x->object->session);
	if (x->g->kind == GENERATE_SEQ2SEQ) {
		for (size_t i = 0; i < x->in->n; i++) {
			if (!ARENA_ADDED(&x->d->arena, &source, x->in->items[i]))
				return TFMC_NO_MEMORY;
		}
		TFMC_TRY(caller_run(x->object, "encode", &source, &encoded));
	}
	TFMC_TRY(feed(x, "prefill", 0, first));
	for (int64_t i = first; i < n; i++)
		TFMC_TRY(feed(x, "step", i, i + 1));
	return TFMC_OK;
}

/* What the logits of run may differ by. */
static enum tfmc_status incremental_bound(struct reference *interp, const char *logits,
                                          struct named_tensors *in, const struct named_tensors *got,
                                          double *out)
{
	struct named_tensors want = {0}, other = {0};
	*out = REL_L2_BOUND;
	if (!interp->is_narrow)
		return TFMC_OK;
	TFMC_TRY(caller_run(&interp->rounded, "run", in, &want));
	for (size_t i = 0; i < want.n; i++)
		if (strcmp(want.items[i].name, logits) == 0)
			TFMC_TRY(bound_of(interp, "run", in, got, &want, &other, i, out));
	return TFMC_OK;
}

static enum tfmc_status compare_incremental(struct driver *d, struct loaded *l, struct caller *object,
                                            struct reference *interp, bool *failed)
{
	static const char *const run = "run";
	const struct frontend_generate *g = frontend_generate(l->model);
	struct sample sample = choose_rounds(interp, &run, 1);
	for (int i = 1; i < N_ROUNDS; i++) {
		if (interp->is_narrow && !sample.chosen[i])
			continue; /* the bound wants the interpreter */
		struct round round = {.random = {(uint64_t)i * 331 + 7}, .number = i};
		struct named_tensors in = {0}, out = {0};
		choose_dims(object->record, &round);
		TFMC_TRY(make_inputs(interp, "run", &round, &in));
		const struct ir_func *f = ir_find_func(l->module, run);
		use_full_lengths(&in, f, round.dims);
		TFMC_TRY(caller_run(object, "run", &in, &out));
		struct incremental x = {.d = d,
		                        .object = object,
		                        .g = g,
		                        .run = f,
		                        .in = &in,
		                        .tokens = tensors_find(&in, g->tokens),
		                        .logits = tensors_find(&out, g->logits)};
		if (!x.tokens || !x.logits || x.logits->rank != 3)
			return TFMC_OK;
		double bound;
		TFMC_TRY(run_incremental(&x));
		TFMC_TRY(incremental_bound(interp, g->logits, &in, &out, &bound));
		bool ok = x.worst <= bound;
		verify_print_line(
		        d, arena_printf(&d->arena, "prefill and step, seeded inputs %d, against run", i + 1),
		        x.worst, bound, ok);
		*failed = *failed || !ok;
	}
	return TFMC_OK;
}

enum tfmc_status verify_differential(struct driver *d, struct loaded *l, struct compiled *c, bool *failed)
{
	if (!ir_find_func(l->module, "run")) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "verify wants a function @run in IR text");
		return TFMC_INVALID;
	}
	TFMC_TRY(driver_open_session(d, c, 0));
	struct caller object = {
	        .d = d, .session = c->session, .record = c->model.record, .probes = &l->probes};
	struct caller interp = {
	        .d = d, .record = c->model.record, .module = l->module, .weights = &l->weights};
	interp.probes = &l->probes;
	struct reference reference;
	reference_init(&reference, &interp);
	if (ir_find_func(l->module, "encode"))
		reference_states(&reference);
	enum tfmc_status st = compare_rounds(d, &object, &reference, "run", failed);
	if (st == TFMC_OK && ir_find_func(l->module, "encode"))
		st = compare_rounds(d, &object, &reference, "encode", failed);
	if (st == TFMC_OK && l->model && ir_find_func(l->module, "decode"))
		st = compare_incremental(d, l, &object, &reference, failed);
	return st;
}

/* ---- the plan's bytes ---- */
static enum tfmc_status compare_planned(struct driver *d, struct caller *planned, struct reference *plain,
                                        const char *entry, struct round *round, bool *failed)
{
	struct named_tensors in = {0}, got = {0}, want = {0}, other = {0};
	double worst = 0, bound = REL_L2_BOUND;
	if (tfmc_entry_find(planned->record, entry) < 0 ||
	    !ir_find_func(plain->rounded.module, entry_function(entry)))
		return TFMC_OK;
	TFMC_TRY(make_inputs(plain, entry, round, &in));
	TFMC_TRY(caller_run(planned, entry, &in, &got));
	TFMC_TRY(caller_run(&plain->rounded, entry, &in, &want));
	for (size_t i = 0; i < got.n; i++) {
		double error = tensor_relative_l2(&got.items[i], &want.items[i]), most;
		TFMC_TRY(bound_of(plain, entry, &in, &got, &want, &other, i, &most));
		if (error * bound <= worst * most)
			continue;
		worst = error;
		bound = most;
	}
	bool ok = worst <= bound;
	const char *what = arena_printf(&d->arena, "%s, seeded inputs %d, in the bytes of the plan", entry,
	                                round->number + 1);
	verify_print_line(d, what, worst, bound, ok);
	*failed = *failed || !ok;
	return TFMC_OK;
}

enum tfmc_status verify_poison(struct driver *d, struct loaded *l, struct compiled *c, bool *failed)
{
	static const char *const entries[] = {"run", "encode", "prefill"};
	struct caller plain = {
	        .d = d, .record = c->model.record, .module = l->module, .weights = &l->weights};
	struct caller planned = plain;
	struct reference reference;
	enum tfmc_status st = TFMC_OK;
	planned.module = c->planned;
	planned.planned = true;
	reference_init(&reference, &plain);
	reference_states(&reference);
	planned.state = interp_state_create(&d->arena, planned.module, reference.batch);
	struct sample sample = choose_rounds(&reference, entries, TFMC_COUNT(entries));
	for (int i = 0; i < N_ROUNDS; i++) {
		if (!sample.chosen[i])
			continue;
		struct round round = {.random = {(uint64_t)i * 577 + 3}, .number = i};
		choose_dims(c->model.record, &round);
		for (size_t k = 0; k < TFMC_COUNT(entries) && st == TFMC_OK; k++)
			st = compare_planned(d, &planned, &reference, entries[k], &round, failed);
	}
	tell_sample(d, "--poison", &sample);
	return st;
}
