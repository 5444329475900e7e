/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled code against the interpreter on seeded inputs, and incremental decoding (prefill and step) against `run`.
 *
 * Metric: relative L2 error of each output, ||got - want|| / ||want||. Bound: f32 results of up to twelve layers stay
 * within 1e-5 of f64 evaluation when every reduction keeps its own bound (gamma_k with k up to some thousands,
 * averaged by the norms between the layers). A larger error is compared with the effect of rounding on this very
 * value, to first order: four times the distance between the interpreter and itself with f32 accumulators (which add
 * one after the other, no better than kernels do).
 *
 * Where values are rounded to f16 or bf16 (a reduced-precision cache) or to integers (dynamically quantized
 * activations), a difference of one f32 unit may round them to neighbors, and everything after them differs. There
 * the bound is the interpreter's own distance to itself without float rounding, plus 1.5 times the largest such
 * distance of any output so far: the distance of a single output, of few elements, may be small by chance.
 *
 * The interpreter's work is bounded: for a large model only some of the seeded inputs are compared, and the report
 * tells which.
 */
#include "frontend/driver/commands/tensors.h"
#include "frontend/driver/commands/verify.h"

#include <math.h>
#include <string.h>

#include "ir/core/cost.h"
#include "passes/pipeline/random.h"
#include "passes/pipeline/trial.h"

#define REL_L2_BOUND   1e-5
#define ROUNDED_FACTOR 1.5  /* of two results whose values were rounded to different neighbors */
#define F32_FACTOR     4    /* of two results with f32 accumulators, added in different orders */
#define F32_ERROR_MAX  1e-2 /* a value that rounding changes more is too ill-conditioned to be bounded so */
#define MAX_DIMS       16
#define N_INPUT_SETS   4
#define WORK_MAX       INT64_C(10000000000) /* multiply-adds of the interpreter for an entry: some seconds */
#define WEIGHT_WORK    4.0                  /* cost of reading a weight element, in multiply-adds */

/* NaN on one side is an infinite error. The element's number, in row-major order, is printed as indices of the axes.
 * NaN on one side is an infinite error. The element's number, in row-major order, is printed as indices of the axes. */
const char *tensor_difference(struct driver *d, const struct named_tensor *got,
                              const struct named_tensor *expected)
{
	int64_t at = 0;
	double largest = -1;
	for (int64_t i = 0; i < expected->count; i++) {
		double w = tensor_value(expected, i), g = tensor_value(got, i), error = fabs(g - w);
		if (w == g || (isnan(w) && isnan(g)))
			continue;
		if (isnan(error))
			error = INFINITY;
		if (error > largest) {
			largest = error;
			at = i;
		}
	}
	struct buf text;
	buf_init(&text);
	int64_t inner = expected->count;
	for (int k = 0; k < expected->rank; k++) {
		inner = expected->dims[k] ? inner / expected->dims[k] : 0;
		buf_printf(&text, "%s%lld", k ? "," : "",
		           (long long)(inner ? at / inner % expected->dims[k] : 0));
	}
	const char *out = arena_printf(&d->arena, "largest error %.3g at [%s], %.9g in place of %.9g",
	                               largest < 0 ? 0 : largest, expected->rank ? text.data : "",
	                               expected->count ? tensor_value(got, at) : 0,
	                               expected->count ? tensor_value(expected, at) : 0);
	buf_destroy(&text);
	return out;
}

/* Equal infinities, and NaN in both, are in neither sum. A difference from zeros alone is infinite. */
double tensor_relative_l2(const struct named_tensor *got, const struct named_tensor *expected)
{
	double difference = 0, norm = 0;
	for (int64_t i = 0; i < expected->count; i++) {
		double w = tensor_value(expected, i), g = tensor_value(got, i);
		bool equal = w == g || (isnan(w) && isnan(g));
		if (!equal)
			difference += (g - w) * (g - w);
		if (!equal || isfinite(w))
			norm += w * w;
	}
	return difference == 0 ? 0 : sqrt(difference / norm);
}

/* The interpreter as reference, and a second one to learn the effect of rounding. */
struct interpreter {
	struct caller rounded, other; /* other: without float rounding (is_lowp), or with f32 accumulators */
	bool is_lowp;                 /* a function rounds to less than f32, or to integers */
	double largest;               /* distance between the two, of any output so far */
	int64_t batch;                /* sequences of the state */
};

/* Sets up the second interpreter: without float rounding if the module rounds to less than f32, otherwise
 * with f32 accumulators (the bounds in the head of this file). */
static void interpreter_init(struct interpreter *x, const struct caller *interp)
{
	*x = (struct interpreter){
	        .rounded = *interp, .other = *interp, .is_lowp = trial_uses_lowp(interp->module)};
	x->other.wide = x->is_lowp;
	x->other.single = !x->is_lowp;
}

/* Sets *bound for the relative L2 error of output i. The second interpreter runs on the first output that
 * needs it; `other` keeps its outputs for the following ones. */
static enum tfmc_status error_bound(struct interpreter *x, const char *entry, struct named_tensors *in,
                                    const struct named_tensors *got, const struct named_tensors *expected,
                                    struct named_tensors *other, size_t i, double *bound)
{
	*bound = REL_L2_BOUND;
	if (!x->is_lowp && tensor_relative_l2(&got->items[i], &expected->items[i]) <= REL_L2_BOUND)
		return TFMC_OK;
	if (!other->n)
		TFMC_TRY(caller_run(&x->other, entry, in, other));
	double distance = tensor_relative_l2(&other->items[i], &expected->items[i]);
	x->largest = distance > x->largest ? distance : x->largest;
	distance = x->is_lowp ? distance + ROUNDED_FACTOR * x->largest : F32_FACTOR * distance;
	if (distance > REL_L2_BOUND && (x->is_lowp || distance <= F32_ERROR_MAX))
		*bound = distance;
	return TFMC_OK;
}

/* ---- seeded inputs ---- */
/* One of the seeded inputs: its dims and its random numbers. */
struct input_set {
	struct random random;
	int number;
	int64_t dims[MAX_DIMS];
};

/* Sets the dims of a seeded input: small sizes, in the first input 1 each, clamped to the bounds of the dims. The
   first dim of the record is the batch. Dims after the third get the size of that. */
static void choose_set_dims(const struct tfmc_record *r, struct input_set *input_set)
{
	static const int64_t sizes[N_INPUT_SETS][3] = {{1, 1, 1}, {2, 5, 4}, {3, 8, 7}, {1, 7, 3}};
	for (uint64_t i = 0; i < r->n_dims; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(r, i);
		int64_t expected = sizes[input_set->number][i < 3 ? i : 2];
		input_set->dims[i] = expected < dim->lo ? dim->lo : expected > dim->hi ? dim->hi : expected;
	}
}

/* The input sets that are compared, and the interpreter's multiply-adds for all of them. */
struct sample {
	bool chosen[N_INPUT_SETS];
	double work;
};

/* Estimates the interpreter's cost of a call with these dims, in multiply-adds: those of the entry, and WEIGHT_WORK for
 * each element of the module's weights, which are read. FLOPs that overflow count as INT64_MAX. 0: no such entry. */
static double interpreter_work(const struct ir_module *m, const char *entry, const int64_t *dims)
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

/* Chooses all input sets, or as many as fit into --limit-work: first those with several sequences of different
 * lengths; the cheapest when none fits. */
static struct sample choose_sample(const struct interpreter *x, const char *const *entries, size_t n)
{
	const struct driver_options *o = &x->rounded.d->options;
	static const int order[N_INPUT_SETS] = {1, 3, 2, 0};
	const struct ir_module *m = x->rounded.module;
	double work[N_INPUT_SETS] = {0}, used = 0;
	struct sample s = {.work = 0};
	int64_t budget = option_int(o->limit_work, WORK_MAX);
	int least = 0;
	for (int i = 0; i < N_INPUT_SETS; i++) {
		struct input_set input_set = {.number = i};
		choose_set_dims(x->rounded.record, &input_set);
		for (size_t k = 0; k < n; k++)
			/* with is_lowp the second interpreter always runs, too */
			work[i] += interpreter_work(m, entries[k], input_set.dims) * (x->is_lowp ? 2 : 1);
		s.work += work[i];
		least = work[i] < work[least] ? i : least;
	}
	for (int i = 0; i < N_INPUT_SETS; i++) {
		bool fits = o->exhaustive || used + work[order[i]] <= (double)budget;
		s.chosen[order[i]] = fits;
		used += fits ? work[order[i]] : 0;
	}
	if (used == 0) /* verify compares at least one */
		s.chosen[least] = true;
	return s;
}

/* Prints which seeded inputs were compared, unless all were. */
static void report_sample(struct driver *d, const char *entry, const struct sample *s)
{
	struct buf list;
	int n = 0;
	buf_init(&list);
	for (int i = 0; i < N_INPUT_SETS; i++)
		if (s->chosen[i])
			buf_printf(&list, "%s%d", n++ ? ", " : "", i + 1);
	if (n < N_INPUT_SETS)
		buf_printf(&d->out,
		           "%s: compared seeded inputs %s of 1 to %d; all would take the interpreter %.2g "
		           "multiply-adds, --exhaustive takes them\n",
		           entry, list.data, N_INPUT_SETS, s->work);
	buf_destroy(&list);
}

/* Creates the interpreters' states for as many sequences as the largest input set has. */
static void create_states(struct interpreter *x)
{
	const struct ir_module *m = x->rounded.module;
	int64_t n;
	x->batch = 1;
	for (int i = 0; i < N_INPUT_SETS; i++) {
		struct input_set input_set = {.number = i};
		choose_set_dims(x->rounded.record, &input_set);
		for (size_t k = 0; k < m->states.n; k++)
			if (ir_dim_eval(m->states.items[k]->type->dims[0], input_set.dims, &n) &&
			    n > x->batch)
				x->batch = n;
	}
	x->rounded.state = interp_state_create(&x->rounded.d->arena, m, x->batch);
	x->other.state = interp_state_create(&x->rounded.d->arena, m, x->batch);
}

#define INT_VALUES 9 /* exclusive bound of integers without a bound of their own */

/* Fills an input: normal floats, and ints below their bound (the record's, or p->max at these dims for
 * lengths; p NULL: none). values: room for v->count. */
static void fill_random(struct input_set *input_set, const struct tfmc_record_tensor *t,
                        const struct ir_param *p, struct named_tensor *v, double *values)
{
	int64_t max_value = 0, below = t->below;
	bool is_float = ir_dtype_class(v->dtype) == DTCLASS_FLOAT,
	     is_bool = ir_dtype_class(v->dtype) == DTCLASS_BOOL;
	if (p && p->max && ir_dim_eval(p->max, input_set->dims, &max_value))
		below = max_value + 1;
	for (int64_t i = 0; i < v->count; i++)
		values[i] = is_float ? random_normal(&input_set->random)
		                     : (double)random_below(&input_set->random, below > 0 ? below
		                                                                : is_bool ? 2
		                                                                          : INT_VALUES);
	tensor_set_values(v, values);
}

const struct ir_param *verify_find_param(const struct ir_func *f, const char *name)
{
	for (size_t i = 0; f && i < f->n_params; i++)
		if (!strcmp(f->params[i].name, name))
			return &f->params[i];
	return NULL;
}

/* Makes all inputs of an entry, random, in the dims of the set. */
static enum tfmc_status make_inputs(const struct interpreter *x, const char *entry,
                                    struct input_set *input_set, struct named_tensors *in)
{
	const struct tfmc_record *r = x->rounded.record;
	const struct ir_func *f = ir_find_func(x->rounded.module, entry_function(entry));
	int64_t number = tfmc_entry_find(r, entry);
	const struct tfmc_record_entry *e = tfmc_entry_at(r, number);
	for (uint64_t i = 0; i < e->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(r, number, i);
		int64_t dims[IR_RANK_MAX];
		for (uint64_t k = 0; k < t->rank; k++)
			dims[k] = tfmc_tensor_size(r, t, k, input_set->dims);
		struct named_tensor *v = tensors_add(x->rounded.d, in, tfmc_record_text(r, t->name),
		                                     (enum ir_dtype)t->dtype, (int)t->rank, dims);
		double *values = v ? ARENA_ARRAY(&x->rounded.d->arena, double, v->count + 1) : NULL;
		if (!values)
			return TFMC_NO_MEMORY;
		fill_random(input_set, t, verify_find_param(f, v->name), v, values);
	}
	return TFMC_OK;
}

/* ---- object against interpreter ---- */
/* Of each probed value the largest ratio of error to bound over all input sets. */
struct probe_errors {
	struct probe_error {
		const struct probe_value *probe;
		double error, bound;
		int input_set;
		const char *description;
	} * items;
	size_t n, cap;
};

/* Records the error of a probed value if its ratio to the bound is the largest so far. False: no memory. */
static bool record_probe_error(struct driver *d, struct probe_errors *errors, const struct named_tensor *got,
                               const struct named_tensor *expected, double bound, int input_set)
{
	struct probe_error *e = NULL;
	for (size_t i = 0; i < errors->n && !e; i++)
		if (errors->items[i].probe == got->probe)
			e = &errors->items[i];
	if (!e && !(e = ARENA_PUSH(&d->arena, errors)))
		return false;
	double error = tensor_relative_l2(got, expected);
	if (e->probe && error * e->bound <= e->error * bound)
		return true;
	*e = (struct probe_error){got->probe, error, bound, input_set, ""};
	if (!(error <= bound)) /* also for NaN */
		e->description = tensor_difference(d, got, expected);
	return true;
}

/* Prints a line for each probed value, in the order of computation. The first beyond its bound is an error at its
 * step: later ones follow from it. */
static void report_probes(struct driver *d, const char *entry, const struct probe_errors *errors,
                          bool *failed)
{
	bool reported = false;
	for (size_t i = 0; i < errors->n; i++) {
		const struct probe_error *e = &errors->items[i];
		bool ok = e->error <= e->bound;
		verify_print_line(
		        d, arena_printf(&d->arena, "%s %s, against interpreter", entry, e->probe->name),
		        e->error, e->bound, ok);
		*failed = *failed || !ok;
		if (ok || reported)
			continue;
		reported = true;
		diag_error(
		        &d->diag, e->probe->op->loc.at, DIAG_CHECK_FAILED,
		        "%s is the first value of %s that differs from the interpreter: %s, seeded inputs %d",
		        e->probe->name, entry, e->description, e->input_set + 1);
	}
}

/* NaN or +infinity in an output, even when both results agree; -infinity is valid (a mask). NULL: none. */
static const char *describe_not_finite(struct driver *d, const struct named_tensor *t)
{
	for (int64_t i = 0; ir_dtype_class(t->dtype) == DTCLASS_FLOAT && i < t->count; i++)
		if (!(tensor_value(t, i) < INFINITY))
			return tensor_not_finite(d, t);
	return NULL;
}

/* Compares an entry of the object with the interpreter on one seeded input: outputs get a line of the report,
 * probed values go to `errors`. */
static enum tfmc_status compare_input_set(struct driver *d, struct caller *object, struct interpreter *interp,
                                          const char *entry, struct input_set *input_set,
                                          struct probe_errors *errors, bool *failed)
{
	struct named_tensors in = {0}, got = {0}, expected = {0}, other = {0};
	TFMC_TRY(make_inputs(interp, entry, input_set, &in));
	TFMC_TRY(caller_run(object, entry, &in, &got));
	TFMC_TRY(caller_run(&interp->rounded, entry, &in, &expected));
	for (size_t i = 0; i < got.n; i++) {
		double bound;
		TFMC_TRY(error_bound(interp, entry, &in, &got, &expected, &other, i, &bound));
		if (got.items[i].probe) {
			if (!record_probe_error(d, errors, &got.items[i], &expected.items[i], bound,
			                        input_set->number))
				return TFMC_NO_MEMORY;
			continue;
		}
		double error = tensor_relative_l2(&got.items[i], &expected.items[i]);
		const char *not_finite = describe_not_finite(d, &got.items[i]);
		bool ok = error <= bound && !not_finite;
		const char *what = arena_printf(&d->arena, "%s %s, seeded inputs %d, against interpreter",
		                                entry, got.items[i].name, input_set->number + 1);
		verify_print_line(d, what, error, bound, ok);
		if (not_finite)
			diag_error(&d->diag, LOC_NONE, DIAG_CHECK_FAILED,
			           "%s %s is not finite in %s, seeded inputs %d", entry, got.items[i].name,
			           not_finite, input_set->number + 1);
		*failed = *failed || !ok;
	}
	return TFMC_OK;
}

/* Compares an entry on all chosen seeded inputs, then reports its probed values. */
static enum tfmc_status compare_input_sets(struct driver *d, struct caller *object,
                                           struct interpreter *interp, const char *entry, bool *failed)
{
	struct probe_errors errors = {0};
	struct sample sample = choose_sample(interp, &entry, 1);
	for (int i = 0; i < N_INPUT_SETS; i++) {
		progress_report(&d->progress, "seeded inputs", "calls", (uint64_t)i, N_INPUT_SETS);
		if (!sample.chosen[i])
			continue;
		struct input_set input_set = {.random = {(uint64_t)i * 977 + 1}, .number = i};
		choose_set_dims(object->record, &input_set);
		TFMC_TRY(compare_input_set(d, object, interp, entry, &input_set, &errors, failed));
	}
	report_probes(d, entry, &errors, failed);
	report_sample(d, entry, &sample);
	return TFMC_OK;
}

/* ---- prefill and step against run ---- */
/* Returns the logits of `run` at one position of sequence b, as a tensor [V] that shares the data. */
static struct named_tensor logits_row(const struct named_tensor *all, int64_t b, int64_t row)
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

/* Adds the other inputs as given to run, but no lengths: all sequences are full. */
static enum tfmc_status add_other_inputs(const struct incremental *x, struct named_tensors *in)
{
	for (size_t i = 0; i < x->in->n; i++) {
		const struct ir_param *p = verify_find_param(x->run, x->in->items[i].name);
		bool is_other = &x->in->items[i] != x->tokens && p && !p->max;
		if (is_other && !ARENA_ADDED(&x->d->arena, in, x->in->items[i]))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}

/* Feeds tokens [from, to) of every sequence to the entry and compares the logits, which are those after the last
 * token, with those of `run` at position to - 1. */
static enum tfmc_status feed_tokens(struct incremental *x, const char *entry, int64_t from, int64_t to)
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
	TFMC_TRY(add_other_inputs(x, &in));
	if (x->g->long_from > 0) { /* longrope: the frequencies of all calls are those for the full length */
		struct named_tensor *end = tensors_add(x->d, &in, "call_end", DT_I32, 1, &batch);
		if (!end)
			return TFMC_NO_MEMORY;
		for (int64_t b = 0; b < batch; b++)
			((int32_t *)end->data)[b] = (int32_t)x->tokens->dims[1];
	}
	TFMC_TRY(caller_run(x->object, entry, &in, &out));
	const struct named_tensor *got = tensors_find(&out, x->g->logits);
	for (int64_t b = 0; got && b < batch; b++) {
		struct named_tensor expected = logits_row(x->logits, b, to - 1), row = expected;
		row.data = (float *)got->data + b * expected.count;
		double error = tensor_relative_l2(&row, &expected);
		/* a NaN is the worst from then on */
		x->worst = error <= x->worst ? x->worst : error;
	}
	return TFMC_OK;
}

/* Makes all sequences full: compare_input_sets() covers ragged ones. */
static void set_full_lengths(struct named_tensors *in, const struct ir_func *f, const int64_t *dims)
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

/* Feeds the tokens of `run` again, the first half (and at least a prefix that attends to itself) by prefill,
 * the others one by one, and compares the logits after each call: x->worst. */
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
	TFMC_TRY(feed_tokens(x, "prefill", 0, first));
	for (int64_t i = first; i < n; i++)
		TFMC_TRY(feed_tokens(x, "step", i, i + 1));
	return TFMC_OK;
}

/* Sets the bound for the logits of run; it needs the interpreter only where values are rounded to less than
 * f32. */
static enum tfmc_status incremental_bound(struct interpreter *interp, const char *logits,
                                          struct named_tensors *in, const struct named_tensors *got,
                                          double *out)
{
	struct named_tensors expected = {0}, other = {0};
	*out = REL_L2_BOUND;
	if (!interp->is_lowp)
		return TFMC_OK;
	TFMC_TRY(caller_run(&interp->rounded, "run", in, &expected));
	for (size_t i = 0; i < expected.n; i++)
		if (strcmp(expected.items[i].name, logits) == 0)
			TFMC_TRY(error_bound(interp, "run", in, got, &expected, &other, i, out));
	return TFMC_OK;
}

/* Compares prefill and step with `run` on the same tokens, on each seeded input but the first, which has one
 * token only. */
static enum tfmc_status compare_incremental(struct driver *d, struct loaded *l, struct caller *object,
                                            struct interpreter *interp, bool *failed)
{
	static const char *const run = "run";
	const struct frontend_generate *g = frontend_generate(l->model);
	struct sample sample = choose_sample(interp, &run, 1);
	for (int i = 1; i < N_INPUT_SETS; i++) {
		if (interp->is_lowp && !sample.chosen[i])
			continue; /* its bound needs the interpreter, too */
		struct input_set input_set = {.random = {(uint64_t)i * 331 + 7}, .number = i};
		struct named_tensors in = {0}, out = {0};
		choose_set_dims(object->record, &input_set);
		TFMC_TRY(make_inputs(interp, "run", &input_set, &in));
		const struct ir_func *f = ir_find_func(l->module, run);
		set_full_lengths(&in, f, input_set.dims);
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

/* Interpreters have states only for `encode`, which writes one; `run` uses none. prefill and step are compared with
 * `run` of the object: they need the interpreter for their bound at most. */
enum tfmc_status verify_differential(struct driver *d, struct loaded *l, struct compiled *c, bool *failed)
{
	if (!ir_find_func(l->module, "run")) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "verify requires a function @run in IR text");
		return TFMC_INVALID;
	}
	TFMC_TRY(driver_open_session(d, c, 0));
	struct caller object = {
	        .d = d, .session = c->session, .record = c->model.record, .probes = &l->probes};
	struct caller interp = {
	        .d = d, .record = c->model.record, .module = l->module, .weights = &l->weights};
	interp.probes = &l->probes;
	struct interpreter interpreter;
	interpreter_init(&interpreter, &interp);
	if (ir_find_func(l->module, "encode"))
		create_states(&interpreter);
	enum tfmc_status st = compare_input_sets(d, &object, &interpreter, "run", failed);
	if (st == TFMC_OK && ir_find_func(l->module, "encode"))
		st = compare_input_sets(d, &object, &interpreter, "encode", failed);
	if (st == TFMC_OK && l->model && ir_find_func(l->module, "decode"))
		st = compare_incremental(d, l, &object, &interpreter, failed);
	return st;
}

/* ---- the planned module in its arena ---- */

/* Compares the planned module, which computes in the bytes of its memory plan, with the plain one. The report
 * has one line, of the output nearest to its bound or farthest beyond it. */
static enum tfmc_status compare_in_arena(struct driver *d, struct caller *planned, struct interpreter *plain,
                                         const char *entry, struct input_set *input_set, bool *failed)
{
	struct named_tensors in = {0}, got = {0}, expected = {0}, other = {0};
	double worst = 0, bound = REL_L2_BOUND;
	if (tfmc_entry_find(planned->record, entry) < 0 ||
	    !ir_find_func(plain->rounded.module, entry_function(entry)))
		return TFMC_OK;
	TFMC_TRY(make_inputs(plain, entry, input_set, &in));
	TFMC_TRY(caller_run(planned, entry, &in, &got));
	TFMC_TRY(caller_run(&plain->rounded, entry, &in, &expected));
	for (size_t i = 0; i < got.n; i++) {
		double error = tensor_relative_l2(&got.items[i], &expected.items[i]), output_bound;
		TFMC_TRY(error_bound(plain, entry, &in, &got, &expected, &other, i, &output_bound));
		if (error * bound <= worst * output_bound)
			continue;
		worst = error;
		bound = output_bound;
	}
	bool ok = worst <= bound;
	const char *what = arena_printf(&d->arena, "%s, seeded inputs %d, in the bytes of the plan", entry,
	                                input_set->number + 1);
	verify_print_line(d, what, worst, bound, ok);
	*failed = *failed || !ok;
	return TFMC_OK;
}

/* The planned module and the plain one run on states of their own. */
enum tfmc_status verify_poison(struct driver *d, struct loaded *l, struct compiled *c, bool *failed)
{
	static const char *const entries[] = {"run", "encode", "prefill"};
	struct caller plain = {
	        .d = d, .record = c->model.record, .module = l->module, .weights = &l->weights};
	struct caller planned = plain;
	struct interpreter interpreter;
	enum tfmc_status st = TFMC_OK;
	planned.module = c->planned;
	planned.planned = true;
	interpreter_init(&interpreter, &plain);
	create_states(&interpreter);
	planned.state = interp_state_create(&d->arena, planned.module, interpreter.batch);
	struct sample sample = choose_sample(&interpreter, entries, TFMC_COUNT(entries));
	for (int i = 0; i < N_INPUT_SETS; i++) {
		if (!sample.chosen[i])
			continue;
		struct input_set input_set = {.random = {(uint64_t)i * 577 + 3}, .number = i};
		choose_set_dims(c->model.record, &input_set);
		for (size_t k = 0; k < TFMC_COUNT(entries) && st == TFMC_OK; k++)
			st = compare_in_arena(d, &planned, &interpreter, entries[k], &input_set, failed);
	}
	report_sample(d, "--poison", &sample);
	return st;
}
