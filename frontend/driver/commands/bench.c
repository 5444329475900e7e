/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc bench: time of one entry on seeded inputs, beside the peak of the machine (roofline: multiply-adds, and
 * reading weights) measured in the same run. Calls are timed one by one; prerequisites of a call (an encoded source,
 * a prompt) are prepared untimed. Decode steps follow each other as in a generation, each trimmed back to the same
 * context: a prompt between them would change what the caches hold.
 */
#include "frontend/driver/commands/bench_groups.h"
#include "frontend/driver/commands/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "ir/core/case.h"
#include "ir/core/cost.h"
#include "ir/support/number.h"

#define MAX_CALLS   1000
#define MIN_CALLS   5
#define WARM_UP     2
#define SECONDS     1.0 /* of timed calls, once there are MIN_CALLS */
#define TENSORS_MAX 128
#define RECORD_DIMS 16

struct bench {
	struct driver *d;
	const struct compiled *compiled;
	const struct ir_module *planned;
	const struct tfmc_record *record;
	struct tfmc_session *session;
	struct bench_groups *groups; /* --groups: calls go here, not to the session */
	int64_t dims[RECORD_DIMS];
	uint64_t random; /* state of SplitMix64 */
	double seconds[MAX_CALLS];
	size_t n_calls;
	int64_t threads;
};

struct call {
	int64_t entry;
	const char *name;
	int64_t dims[RECORD_DIMS];
	struct tfmc_buffer inputs[TENSORS_MAX], outputs[TENSORS_MAX];
};

/* ---- inputs ---- */

/* Floats uniform in [-1, 1), ids below their bound, other integers 0. */
static void fill_random(struct bench *b, const struct tfmc_record_tensor *t, void *data, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint64_t r = number_random(&b->random);
		if (t->dtype == DT_F32)
			((float *)data)[i] = (float)((double)(r >> 11) * 0x1p-52 - 1);
		else if (t->dtype == DT_I32 && t->below > 0)
			((int32_t *)data)[i] = (int32_t)(r % (uint64_t)t->below);
	}
}

static bool alloc_buffer(struct bench *b, const struct tfmc_record_tensor *t, struct tfmc_buffer *out)
{
	int64_t n = tfmc_tensor_count(b->record, t, b->dims);
	size_t width = (size_t)tfmc_dtype_bytes(t->dtype);
	out->data = n >= 0 ? arena_alloc(&b->d->arena, ((size_t)n + 1) * width) : NULL;
	out->count = (uint64_t)n;
	if (out->data)
		memset(out->data, 0, (size_t)n * width);
	return out->data;
}

/* Buffers for a call of an entry. Optional inputs are left out: no position is padding. */
static enum tfmc_status prepare_call(struct bench *b, const char *name, struct call *c)
{
	memset(c, 0, sizeof(*c));
	c->name = name;
	memcpy(c->dims, b->dims, sizeof(c->dims));
	c->entry = caller_find_entry(b->d, b->record, name);
	if (c->entry < 0)
		return TFMC_INVALID;
	const struct tfmc_record_entry *e = tfmc_entry_at(b->record, c->entry);
	if (e->n_inputs > TENSORS_MAX || e->n_outputs > TENSORS_MAX)
		return TFMC_INTERNAL;
	for (uint64_t i = 0; i < e->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(b->record, c->entry, i);
		if (t->has_default)
			continue;
		if (!alloc_buffer(b, t, &c->inputs[i]))
			return TFMC_NO_MEMORY;
		fill_random(b, t, c->inputs[i].data, (int64_t)c->inputs[i].count);
	}
	for (uint64_t i = 0; i < e->n_outputs; i++)
		if (!alloc_buffer(b, tfmc_entry_output(b->record, c->entry, i), &c->outputs[i]))
			return TFMC_NO_MEMORY;
	return TFMC_OK;
}

static enum tfmc_status check_status(struct bench *b, const char *entry, int status)
{
	if (status == TFMC_RT_OK)
		return TFMC_OK;
	bool is_device = status == TFMC_RT_E_DEVICE && *b->compiled->device_message;
	return driver_runtime_error(b->d, LOC_NONE, DIAG_INPUT, status, "entry %s: %s", entry,
	                            is_device ? b->compiled->device_message : tfmc_rt_status_text(status));
}

static enum tfmc_status run_call(struct bench *b, const struct call *c)
{
	return check_status(
	        b, c->name,
	        b->groups ? bench_groups_call(b->groups, c->entry, c->dims, c->inputs, c->outputs)
	                  : tfmc_session_call(b->session, c->entry, c->dims, c->inputs, c->outputs));
}

/* ---- dims ---- */

/* The upper bounds, but one sequence: the first dim is the batch. --dim overrides. */
static enum tfmc_status choose_bench_dims(struct bench *b)
{
	for (uint64_t i = 0; i < b->record->n_dims; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(b->record, i);
		b->dims[i] = i == 0 ? dim->lo : dim->hi;
	}
	return driver_apply_dim_options(b->d, b->planned->dims, b->dims);
}

/* ---- timing ---- */

/* Resets the session, then encodes the source and reads the prompt when the entry needs them. */
static enum tfmc_status prepare_state(struct bench *b, const struct call *main, const struct call *encode,
                                      const struct call *prompt)
{
	bool decodes =
	        !strcmp(main->name, "prefill") || !strcmp(main->name, "step") || !strcmp(main->name, "score");
	TFMC_TRY(check_status(b, main->name,
	                      b->groups ? bench_groups_reset(b->groups) : tfmc_session_reset(b->session)));
	if (decodes && encode->name)
		TFMC_TRY(run_call(b, encode));
	return prompt->name ? run_call(b, prompt) : TFMC_OK;
}

/* After a decode step: removes its token from the caches. False: the caller prepares the state again (a ring
 * buffer that has lost tokens, another entry). */
static bool trim_to_past(struct bench *b, const struct call *main)
{
	int64_t past = option_int(b->d->options.past, 1), n = b->record->n_dims ? main->dims[0] : 1;
	bool back = !strcmp(main->name, "step");
	for (int64_t i = 0; back && i < n; i++)
		back = (b->groups ? bench_groups_trim(b->groups, i, past)
		                  : tfmc_session_trim(b->session, i, past)) == TFMC_RT_OK;
	return back;
}

static enum tfmc_status time_calls(struct bench *b, const struct call *main, const struct call *encode,
                                   const struct call *prompt)
{
	double total = 0;
	for (size_t i = 0; i < MAX_CALLS + WARM_UP && (b->n_calls < MIN_CALLS || total < SECONDS); i++) {
		if (i == 0 || !trim_to_past(b, main))
			TFMC_TRY(prepare_state(b, main, encode, prompt));
		if (b->groups)
			bench_groups_begin(b->groups);
		double start = driver_clock(NULL);
		TFMC_TRY(run_call(b, main));
		double seconds = driver_clock(NULL) - start;
		if (b->groups)
			bench_groups_end(b->groups);
		if (i < WARM_UP)
			continue;
		b->seconds[b->n_calls++] = seconds;
		total += seconds;
	}
	return TFMC_OK;
}

/* Whether dim i of the record is an argument of the entry. */
static bool entry_has_dim(const struct bench *b, const char *entry, uint64_t i)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(b->record, tfmc_entry_find(b->record, entry));
	const uint64_t *numbers = (const void *)((const char *)b->record + e->dims);
	for (uint64_t k = 0; k < e->n_dims; k++)
		if (numbers[k] == i)
			return true;
	return false;
}

/* The call before a decode step: one token by `step`, or --past tokens by `prefill`, whose token dim `step`
 * does not have. */
static enum tfmc_status prepare_prompt(struct bench *b, struct call *c)
{
	const char *name = "prefill";
	int64_t n = option_int(b->d->options.past, 1), before[RECORD_DIMS];
	memcpy(before, b->dims, sizeof(before));
	if (!b->d->options.past)
		return prepare_call(b, "step", c);
	for (uint64_t i = 0; i < b->record->n_dims && tfmc_entry_find(b->record, name) >= 0; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(b->record, i);
		if (!entry_has_dim(b, name, i) || entry_has_dim(b, "step", i))
			continue;
		if (n < dim->lo || n > dim->hi) {
			diag_error(&b->d->diag, LOC_NONE, DIAG_OPTION,
			           "--past is a number from %lld to %lld, not %lld", (long long)dim->lo,
			           (long long)dim->hi, (long long)n);
			return TFMC_INVALID;
		}
		b->dims[i] = n;
	}
	enum tfmc_status st = prepare_call(b, name, c);
	memcpy(b->dims, before, sizeof(before));
	return st;
}

static enum tfmc_status measure(struct bench *b, const char *entry)
{
	struct call *calls = ARENA_ARRAY(&b->d->arena, struct call, 3);
	if (!calls)
		return TFMC_NO_MEMORY;
	if (b->d->options.past && strcmp(entry, "step")) {
		diag_error(&b->d->diag, LOC_NONE, DIAG_OPTION, "--past is of the entry step, not of %s",
		           entry);
		return TFMC_INVALID;
	}
	TFMC_TRY(prepare_call(b, entry, &calls[0]));
	if (tfmc_entry_find(b->record, "encode") >= 0)
		TFMC_TRY(prepare_call(b, "encode", &calls[1]));
	if (!strcmp(entry, "step"))
		TFMC_TRY(prepare_prompt(b, &calls[2]));
	return time_calls(b, &calls[0], &calls[1], &calls[2]);
}

/* ---- the report ---- */

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static const struct ir_func *entry_func(const struct bench *b, const char *entry)
{
	bool decodes = !strcmp(entry, "prefill") || !strcmp(entry, "step");
	return ir_find_func(b->planned, decodes ? "decode" : entry);
}

/* Values for the module's dims; those that are not arguments of the entry (tokens of step) are 1. */
static void entry_dims(const struct bench *b, const char *entry, int64_t *values)
{
	for (uint64_t i = 0; i < b->record->n_dims; i++)
		values[i] = entry_has_dim(b, entry, i) ? b->dims[i] : 1;
}

/* Tokens in the KV cache before a call. */
static int64_t past_tokens(const struct bench *b, const char *entry)
{
	return strcmp(entry, "step") ? 0 : option_int(b->d->options.past, 1);
}

/* FLOP of dot products in a call, by kind. */
static void count_flops(const struct bench *b, const char *entry, double out[MAC_ALL])
{
	const struct ir_func *f = entry_func(b, entry);
	int64_t values[RECORD_DIMS];
	entry_dims(b, entry, values);
	for (enum ir_mac_type kind = 0; kind < MAC_ALL; kind++) {
		out[kind] = 0;
		for (size_t i = 0; f && i < f->body->n_ops; i++)
			out[kind] += ir_op_flops_at(b->planned, f, f->body->ops[i], kind, values,
			                            past_tokens(b, entry));
	}
}

static double count_weight_bytes(const struct bench *b, const char *entry)
{
	const struct ir_func *f = entry_func(b, entry);
	int64_t values[RECORD_DIMS];
	entry_dims(b, entry, values);
	return f ? ir_func_weight_bytes(f, values) : 0;
}

static void print_groups(struct bench *b, const char *entry, struct backend_peak peak)
{
	const struct ir_func *f = entry_func(b, entry);
	int64_t values[RECORD_DIMS];
	entry_dims(b, entry, values);
	if (f)
		f = ir_select_case(b->planned, f, values);
	bench_groups_print(b->groups, &b->d->out, &b->d->diag, b->planned, f, values, past_tokens(b, entry),
	                   peak, b->d->options.json);
}

struct figures {
	double min, median, flops, weights; /* seconds of a call; FLOP of dot products; bytes */
	double ideal;                       /* seconds of the dot products at their peaks */
	struct backend_peak peak;
	int64_t threads;
	const char *target;
};

/* Fractions of the peak, 0 without one. */
static double flops_fraction(const struct figures *f)
{
	return f->ideal / f->min;
}

static double weights_fraction(const struct figures *f)
{
	return f->peak.bytes > 0 ? f->weights / f->min / f->peak.bytes : 0;
}

static void print_rate(struct buf *out, const char *what, double rate, const char *unit, double part,
                       bool bound)
{
	buf_printf(out, "%-9s %12.3f %s", what, rate * 1e-9, unit);
	if (part > 0)
		buf_printf(out, ", %.0f %% of %.1f measured%s", 100 * part, rate / part * 1e-9,
		           bound ? ", the bound" : "");
	buf_str(out, "\n");
}

static void print_text(struct bench *b, const char *entry, const struct figures *f)
{
	struct buf *out = &b->d->out;
	buf_printf(out, "%s", entry);
	for (uint64_t i = 0; i < b->record->n_dims; i++)
		if (entry_has_dim(b, entry, i))
			buf_printf(out, " %s=%lld",
			           tfmc_record_text(b->record, tfmc_record_dim_at(b->record, i)->name),
			           (long long)b->dims[i]);
	if (b->d->options.device)
		buf_printf(out, ", a device by %s, %zu calls\n", f->target, b->n_calls);
	else
		buf_printf(out, ", %lld threads, %zu calls\n", (long long)f->threads, b->n_calls);
	buf_printf(out, "min       %12.6f ms\nmedian    %12.6f ms\n", f->min * 1e3, f->median * 1e3);
	bool reading = weights_fraction(f) > flops_fraction(f);
	print_rate(out, "products", f->flops / f->min, "GFLOP/s", flops_fraction(f), !reading);
	print_rate(out, "weights", f->weights / f->min, "GB/s", weights_fraction(f), reading);
}

static void print_json(struct bench *b, const char *entry, const struct figures *f)
{
	struct buf *out = &b->d->out;
	buf_printf(out, "{\"entry\": \"%s\", \"target\": \"%s\", \"dims\": {", entry, f->target);
	const char *separator = "";
	for (uint64_t i = 0; i < b->record->n_dims; i++) {
		if (!entry_has_dim(b, entry, i))
			continue;
		buf_printf(out, "%s\"%s\": %lld", separator,
		           tfmc_record_text(b->record, tfmc_record_dim_at(b->record, i)->name),
		           (long long)b->dims[i]);
		separator = ", ";
	}
	buf_printf(out, "}, \"threads\": %lld, \"calls\": %zu, \"min_ms\": %.6f, \"median_ms\": %.6f",
	           (long long)f->threads, b->n_calls, f->min * 1e3, f->median * 1e3);
	buf_printf(out, ", \"flops\": %.0f, \"gflops\": %.3f, \"weight_bytes\": %.0f, \"weights_gbs\": %.3f",
	           f->flops, f->flops / f->min * 1e-9, f->weights, f->weights / f->min * 1e-9);
	buf_printf(out, ", \"roof_gflops\": %.3f, \"roof_gbs\": %.3f",
	           f->ideal > 0 ? f->flops / f->ideal * 1e-9 : 0, f->peak.bytes * 1e-9);
	buf_printf(out, ", \"bound\": \"%s\"",
	           weights_fraction(f) > flops_fraction(f) ? "weights" : "products");
}

/* With as many workers as the calls, reading the model's weights: as many bytes as a call reads. */
static enum tfmc_status measure_peak(struct bench *b, const struct compiled *c, const struct target *target,
                                     const double flops[MAC_ALL], struct figures *f)
{
	struct tfmc_pool *pool = NULL;
	const struct tfmc_mapping *weights = &c->weights.map;
	if (b->threads > 1 && tfmc_pool_create(b->threads, &pool) != TFMC_RT_OK)
		return TFMC_NO_MEMORY;
	struct backend_peak_options o = {.target = target,
	                                 .data = weights->data,
	                                 .n_bytes = weights->bytes,
	                                 .workers = b->threads,
	                                 .parallel_for = tfmc_pool_parallel_for,
	                                 .user = pool,
	                                 .clock = driver_clock};
	for (int kind = 0; kind < MAC_ALL; kind++)
		o.products[kind] = flops[kind] > 0;
	if (f->weights < (double)o.n_bytes)
		o.n_bytes = (uint64_t)f->weights;
	enum tfmc_status st = target->arch == ARCH_OPENCL ? driver_device_peak(b->d, o.n_bytes, &f->peak)
	                                                  : backend_peak(&b->d->diag, &o, &f->peak);
	tfmc_pool_destroy(pool);
	for (int kind = 0; kind < MAC_ALL; kind++) {
		f->flops += flops[kind];
		f->ideal += f->peak.flops[kind] > 0 ? flops[kind] / f->peak.flops[kind] : 0;
	}
	return st;
}

static enum tfmc_status report(struct bench *b, const char *entry, const struct compiled *c,
                               const struct target *target)
{
	struct figures f = {.threads = b->threads, .target = target->name};
	double flops[MAC_ALL];
	f.weights = count_weight_bytes(b, entry);
	count_flops(b, entry, flops);
	TFMC_TRY(measure_peak(b, c, target, flops, &f));
	qsort(b->seconds, b->n_calls, sizeof(double), compare_doubles);
	f.min = b->seconds[0];
	f.median = b->seconds[b->n_calls / 2];
	if (b->d->options.json)
		print_json(b, entry, &f);
	else
		print_text(b, entry, &f);
	if (b->groups && b->d->options.json)
		buf_str(&b->d->out, ", \"groups\": [");
	if (b->groups)
		print_groups(b, entry, f.peak);
	if (b->d->options.json)
		buf_str(&b->d->out, b->groups ? "]}\n" : "}\n");
	return TFMC_OK;
}

static enum tfmc_status open_session_or_groups(struct bench *b, const char *entry, struct compiled *c,
                                               const struct target *target)
{
	if (!b->d->options.groups) {
		TFMC_TRY(driver_open_session(b->d, c, 0));
		b->session = c->session;
		return TFMC_OK;
	}
	struct tfmc_device device = driver_device(b->d, c);
	struct bench_groups_options o = {
	        .variant = c->forced, .threads = b->threads, .weights = &c->weights.map};
	if (target->arch == ARCH_OPENCL)
		o.device = &device;
	return check_status(b, entry, bench_groups_open(&c->model, b->dims, &o, &b->groups));
}

static enum tfmc_status bench_model(void *user, struct compiled *c, const struct target *target)
{
	struct bench *b = user;
	const char *entry = b->d->options.entry ? b->d->options.entry : "run";
	b->compiled = c;
	b->planned = c->planned;
	b->n_calls = 0;
	b->groups = NULL;
	b->session = NULL;
	if (b->d->options.variants && !b->d->options.json)
		buf_printf(&b->d->out, "variant %s\n", target->name);
	b->record = c->model.record;
	if (b->record->n_dims > RECORD_DIMS)
		return TFMC_INTERNAL;
	b->threads = option_int(b->d->options.threads, 1);
	TFMC_TRY(choose_bench_dims(b));
	TFMC_TRY(open_session_or_groups(b, entry, c, target));
	enum tfmc_status st = measure(b, entry);
	if (st == TFMC_OK)
		st = report(b, entry, c, target);
	bench_groups_close(b->groups);
	return st;
}

enum exit_code command_bench(struct driver *d)
{
	struct loaded l;
	struct compiled c = {0};
	struct bench *b = ARENA_NEW(&d->arena, struct bench);
	if (!b)
		return EXIT_ENVIRONMENT;
	b->d = d;
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = driver_compile_jit(d, &l, (struct entry_names){0}, &c);
	if (st == TFMC_OK)
		st = driver_for_each_variant(d, &c, bench_model, b);
	compiled_destroy(&c);
	loaded_destroy(&l);
	return exit_code_of(st);
}
