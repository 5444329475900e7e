/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc bench: time of one entry on seeded inputs, beside the peak of the machine (roofline: multiply-adds, and reading
 * weights) measured in the same run. Calls are timed one by one; prerequisites of a call (an encoded source, a prompt)
 * are prepared untimed. Decode steps follow each other as in a generation, each trimmed back to the same context: a
 * prompt between them would change what the caches hold.
 *
 * --groups: the time of each fused group of an entry, by a session with a trace (tfmc_rt.h), which runs one group after
 * another. Cache misses that neighboring groups cause are included, and with several workers the barrier after each
 * group (an entry itself omits barriers that no group needs). The address of a task's function identifies the group. On
 * a device the times are those that OpenCL profiling reports for the kernels. Two kernels may compute one group, and
 * one kernel several groups, which are then reported under the first. Of several ranks the groups of one alone are
 * timed.
 *
 * --trace: the same session, and a timeline of its first calls after the warm-up. --html: the table of --groups as a
 * page with the roofline.
 *
 * --shards: the time of exchanges with other ranks is that of rank 0, waiting for the others included.
 * A group is ops of the IR that were fused; an entry is a function of the object that programs call; `past` counts the
 * tokens that the caches hold before a call.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/driver/commands/page.h"
#include "frontend/driver/commands/tensors.h"
#include "frontend/driver/compile/ranks.h"
#include "ir/core/case.h"
#include "ir/core/cost.h"
#include "ir/support/number.h"

/* ---- times of groups ---- */

/* embed.cmake: the files, zero-terminated. */
extern const unsigned char bench_html[], bench_js[];

#define MAX_GROUPS 1024
#define TRACED     16 /* calls of --trace: some hundred groups each */

/* Sums over the executions of a group in one call. */
struct group_time {
	double seconds; /* from begin to end, including the barrier */
	double busy;    /* inside the group, of all workers together */
	double longest; /* of the slowest worker of each execution */
};

struct timed_group {
	uint64_t function;       /* address of the task's function, or number of a device's kernel */
	uint64_t group;          /* its number, in order, in the IR function that runs */
	struct group_time now;   /* the running call */
	int64_t times;           /* executions in the current call */
	struct group_time least; /* the call with the least seconds; 0: none yet */
};

struct bench_groups {
	struct tfmc_trace trace;        /* of the session */
	struct tfmc_timeline *timeline; /* NULL: no --trace */
	int64_t threads, n_traced;      /* calls in the timeline */
	struct timed_group groups[MAX_GROUPS];
	size_t n;
	bool timing, is_traced;
	bool is_device; /* kernels say which group they compute */
};

/* Returns the times of a task's function or a device's kernel, added when it is new. On a CPU the groups first run in
 * order, so the index is the group; a device reports the group. NULL: the call is not between bench_groups_begin and
 * bench_groups_end, or the table is full. */
static struct timed_group *find_timed_group(struct bench_groups *g, uint64_t function)
{
	size_t i = 0;
	while (i < g->n && g->groups[i].function != function)
		i++;
	if (!g->timing || i == MAX_GROUPS)
		return NULL;
	if (i == g->n)
		g->groups[g->n++] = (struct timed_group){.function = function, .group = i};
	return &g->groups[i];
}

static void add_time(struct timed_group *t, struct group_time s)
{
	t->now.seconds += s.seconds;
	t->now.busy += s.busy;
	t->now.longest += s.longest;
	t->times++;
}

/* Hook of the session's trace: adds the times of one execution of a group, and passes it on to the timeline. */
static void add_group_run(void *user, const struct tfmc_group_run *r)
{
	struct bench_groups *g = user;
	struct group_time s = {.seconds = (double)(r->span.end - r->span.begin) * 1e-9};
	for (int64_t i = 0; i < r->n_workers; i++) {
		double share = (double)(r->workers[i].end - r->workers[i].begin) * 1e-9;
		s.busy += share;
		s.longest = share > s.longest ? share : s.longest;
	}
	struct timed_group *t = find_timed_group(g, (uint64_t)(uintptr_t)r->group);
	if (t)
		add_time(t, s);
	const struct tfmc_trace *to = tfmc_timeline_trace(g->timeline);
	if (to && g->is_traced)
		to->group(to->user, r);
}

/* Hook of the session's trace: passes a call on to the timeline, and counts it. */
static void add_call_run(void *user, const struct tfmc_call_run *r)
{
	struct bench_groups *g = user;
	const struct tfmc_trace *to = tfmc_timeline_trace(g->timeline);
	if (!to || !g->is_traced)
		return;
	to->call(to->user, r);
	g->n_traced++;
}

/* The device's report of one finished kernel (tfmc_device.launched). A device counts as one worker, so all
 * three times are equal. */
static void add_kernel_time(void *user, uint64_t kernel, uint64_t group, uint64_t nanoseconds)
{
	double seconds = (double)nanoseconds * 1e-9;
	struct timed_group *t = find_timed_group(user, kernel);
	if (!t)
		return;
	t->group = group;
	add_time(t, (struct group_time){seconds, seconds, seconds});
}

/* Makes later sessions of *c timed ones. The table's shares and rates are of all workers, so that with --groups or
 * --html small calls take all of them, too. Of the arena; NULL: no memory. */
static struct bench_groups *bench_groups_create(struct driver *d, struct compiled *c, int64_t threads)
{
	struct bench_groups *g = ARENA_NEW(&d->arena, struct bench_groups);
	if (!g)
		return NULL;
	g->trace = (struct tfmc_trace){g, add_group_run, add_call_run};
	g->threads = threads;
	c->trace = &g->trace;
	c->launched = add_kernel_time;
	c->launched_user = g;
	c->all_workers = d->options.groups || d->options.html;
	return g;
}

/* Between begin and end the groups of one call are timed. is_traced: not a warm-up call; the first TRACED of these
 * are recorded in the timeline. */
static void bench_groups_begin(struct bench_groups *g, bool is_traced)
{
	g->timing = true;
	g->is_traced = is_traced && g->n_traced < TRACED;
	for (size_t i = 0; i < g->n; i++) {
		g->groups[i].now = (struct group_time){0};
		g->groups[i].times = 0;
	}
}

/* Ends the timing of a call. Of each group the call with its least time is kept: longer ones were disturbed. */
static void bench_groups_end(struct bench_groups *g)
{
	g->timing = g->is_traced = false;
	for (size_t i = 0; i < g->n; i++) {
		struct timed_group *t = &g->groups[i];
		if (t->least.seconds <= 0 || t->now.seconds < t->least.seconds)
			t->least = t->now;
	}
}

/* ---- the table ---- */

/* The work of one execution of a group. */
struct work {
	double flops, bytes,
	        ideal; /* FLOP of dot products; bytes of weights; seconds of the dot products at their peaks */
};

struct table {
	const struct bench_groups *g;
	struct buf *out;
	const struct diag_context *cx;
	const struct ir_module *m;
	const struct ir_func *func;
	const int64_t *values;
	int64_t past;
	struct backend_peak peak;
	double total;
	bool is_json;
	size_t n_printed;
	uint64_t group; /* the next one of func */
	/* The last group with a timed kernel. Its row waits for the following groups that the same kernel computes. */
	const struct ir_op *op;
	uint64_t pending_group;
	struct work work;
};

/* ir_visit_ops callback: counts the groups. */
static void count_group_op(void *user, const struct ir_op *op)
{
	size_t *n = user;
	*n += op->code == OP_group;
}

static double fraction_of(double rate, double peak)
{
	return peak > 0 ? rate / peak : 0;
}

/* The numbers of a row: time, share of all groups, executions, and one rate, of weights read or of dot
 * products, whichever is nearer to its peak. */
static void print_figures(const struct table *t, const struct timed_group *g, struct work a)
{
	double seconds = g->least.seconds, threads = (double)t->g->threads;
	double times = seconds > 0 ? (double)g->times / seconds : 0;
	double products = a.ideal * times;
	double weights = fraction_of(a.bytes * times, t->peak.bytes);
	buf_printf(t->out, "%8.4f ms %5.1f %%  %3lld x", seconds * 1e3,
	           t->total > 0 ? 100 * seconds / t->total : 0.0, (long long)g->times);
	if (t->g->threads > 1)
		buf_printf(t->out, "  busy %3.0f %%",
		           seconds > 0 ? 100 * g->least.busy / seconds / threads : 0.0);
	if (weights > products)
		buf_printf(t->out, " %8.1f GB/s    %4.0f %%", a.bytes * times * 1e-9, 100 * weights);
	else if (a.flops > 0)
		buf_printf(t->out, " %8.1f GFLOP/s %4.0f %%", a.flops * times * 1e-9, 100 * products);
	else
		buf_printf(t->out, "%24s", "");
}

/* Prints the time that several workers lose to uneven shares and to barriers: the sum of the slowest worker of each
 * group, and the mean of all workers. */
static void print_imbalance(const struct table *t)
{
	double busy = 0, longest = 0, threads = (double)t->g->threads;
	int64_t rounds = 0;
	for (size_t i = 0; i < t->g->n; i++) {
		busy += t->g->groups[i].least.busy;
		longest += t->g->groups[i].least.longest;
		rounds += t->g->groups[i].times;
	}
	buf_printf(t->out, "%8.4f ms the longest worker of each, %.4f ms if all were equal; %lld rounds\n",
	           longest * 1e3, busy / threads * 1e3, (long long)rounds);
}

/* Prints where a group comes from, and its tile sizes: `layers.mlp.ffn.up linear (model.yaml:22), kernel linear
 * 14x32x384`. */
static void print_name(const struct table *t, struct buf *out, const struct ir_op *op)
{
	ir_op_describe(out, t->cx, t->func, op);
	buf_str(out, ", kernel ");
	ir_group_kernel(out, op);
}

/* Appends a field of JSON whose value is the text, which is cleared. */
static void print_part(struct buf *out, const char *name, struct buf *text)
{
	buf_printf(out, ", \"%s\": ", name);
	page_json_string(out, text->data);
	out->failed = out->failed || buf_failed(text);
	buf_clear(text);
}

/* The parts of the name, as fields of JSON. */
static void print_parts(const struct table *t, const struct ir_op *op)
{
	struct buf text;
	buf_init(&text);
	ir_op_title(&text, t->func, op, false);
	print_part(t->out, "title", &text);
	ir_group_kernel(&text, op);
	print_part(t->out, "kernel", &text);
	ir_op_line(&text, t->cx, op);
	print_part(t->out, "line", &text);
	buf_destroy(&text);
}

/* A row of the table, or an object of the JSON list. op NULL: the group could not be found in the IR. */
static void print_row(struct table *t, const struct timed_group *g, const struct ir_op *op, struct work a)
{
	struct buf name;
	buf_init(&name);
	if (op)
		print_name(t, &name, op);
	if (t->is_json) {
		buf_printf(t->out,
		           "%s{\"ms\": %.6f, \"times\": %lld, \"busy_ms\": %.6f, \"flops\": %.0f, "
		           "\"weight_bytes\": %.0f, \"peak_gflops\": %.3f, \"group\": ",
		           t->n_printed ? ", " : "", g->least.seconds * 1e3, (long long)g->times,
		           g->least.busy * 1e3, a.flops * (double)g->times, a.bytes * (double)g->times,
		           a.ideal > 0 ? a.flops / a.ideal * 1e-9 : 0);
		page_json_string(t->out, name.data);
		if (op)
			print_parts(t, op);
		buf_str(t->out, "}");
	} else {
		print_figures(t, g, a);
		buf_str(t->out, op ? "  " : "");
		buf_append(t->out, &name);
		buf_str(t->out, "\n");
	}
	t->n_printed++;
	t->out->failed |= name.failed;
	buf_destroy(&name);
}

/* Prints the rows of all kernels of the pending group. The first gets the work: a second one merges partial
 * results. */
static void print_pending(struct table *t)
{
	for (size_t i = 0; t->op && i < t->g->n; i++) {
		if (t->g->groups[i].group != t->pending_group)
			continue;
		print_row(t, &t->g->groups[i], t->op, t->work);
		t->work = (struct work){0};
	}
}

/* ir_visit_ops callback, in order of groups. A group with a timed kernel becomes the pending row; one without
 * was computed by the kernel of the pending row, which gets its work, too. */
static void print_group(void *user, const struct ir_op *op)
{
	struct table *t = user;
	bool is_timed = false;
	if (op->code != OP_group)
		return;
	for (size_t i = 0; i < t->g->n; i++)
		is_timed = is_timed || t->g->groups[i].group == t->group;
	if (is_timed) {
		print_pending(t);
		t->op = op;
		t->pending_group = t->group;
		t->work = (struct work){0};
	}
	t->work.bytes += ir_op_weight_bytes(t->func, op, t->values);
	for (enum ir_mac_type kind = 0; kind < MAC_ALL; kind++) {
		double flops = ir_op_flops_at(t->m, t->func, op, kind, t->values, t->past);
		t->work.flops += flops;
		t->work.ideal += fraction_of(flops, t->peak.flops[kind]);
	}
	t->group++;
}

/*
 * Prints a row for each group of `func` (the function or case that the calls ran) in order, with the model step
 * it comes from (cx: names of files). values: of the module's dims; past: cached tokens of each sequence; peak:
 * of the machine with as many workers. A row shows the rate that is closer to its peak, FLOP of dot products or
 * bytes of weights. With several workers "busy" is the share of their time inside the group. is_json: objects,
 * separated by commas.
 */
static void bench_groups_print(const struct bench_groups *g, struct buf *out, const struct diag_context *cx,
                               const struct ir_module *m, const struct ir_func *func, const int64_t *values,
                               int64_t past, struct backend_peak peak, bool is_json)
{
	struct table t = {.g = g,
	                  .out = out,
	                  .cx = cx,
	                  .m = m,
	                  .func = func,
	                  .values = values,
	                  .past = past,
	                  .peak = peak,
	                  .is_json = is_json};
	size_t known = 0;
	for (size_t i = 0; i < g->n; i++)
		t.total += g->groups[i].least.seconds;
	if (func)
		ir_visit_ops(func->body, count_group_op, &known);
	if (!is_json)
		buf_printf(out, "%11s %7s %6s%s %16s %8s  %s\n", "time", "of all", "times",
		           g->threads > 1 ? "       busy" : "", "rate", "of peak", "group");
	/* A CPU's groups are numbered by their first runs, which is the IR's order only if every group of
	 * `func` ran. */
	bool is_known = func && (g->is_device || known == g->n);
	if (is_known)
		ir_visit_ops(func->body, print_group, &t);
	print_pending(&t);
	if (!is_known)
		for (size_t i = 0; i < g->n; i++)
			print_row(&t, &g->groups[i], NULL, (struct work){0});
	if (is_json)
		return;
	buf_printf(out, "%8.4f ms in %zu groups\n", t.total * 1e3, g->n);
	if (g->threads > 1)
		print_imbalance(&t);
}

#define MAX_CALLS 1000
#define MIN_CALLS 5
#define WARM_UP   2
#define SECONDS   1.0 /* of timed calls, once there are MIN_CALLS */

struct bench {
	struct driver *d;
	const struct compiled *compiled;
	const struct ir_module *planned;
	const struct tfmc_record *record;
	struct tfmc_session *session;
	struct bench_groups *groups; /* --groups, --trace, --html; NULL: none */
	int64_t dims[TFMC_DIMS_MAX];
	uint64_t random; /* state of SplitMix64 */
	double seconds[MAX_CALLS];
	double exchanges[MAX_CALLS]; /* seconds of a call that are exchanges with other ranks */
	size_t n_calls;
	int64_t threads;
};

struct call {
	int64_t entry;
	const char *name;
	int64_t dims[TFMC_DIMS_MAX];
	struct tfmc_buffer inputs[TFMC_TENSORS_MAX], outputs[TFMC_TENSORS_MAX];
};

/* ---- inputs ---- */

/* Fills a tensor of n elements: floats uniform in [-1, 1), ids below their bound, other integers 0. */
static void fill_random(struct bench *b, const struct tfmc_record_tensor *t, void *data, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint64_t r = number_random(&b->random);
		if (t->dtype == DT_F32)
			/* 53 random bits times 2^-52 are in [0, 2) */
			((float *)data)[i] = (float)((double)(r >> 11) * 0x1p-52 - 1);
		else if (t->dtype == DT_I32 && t->below > 0)
			((int32_t *)data)[i] = (int32_t)(r % (uint64_t)t->below);
	}
}

/* Allocates the zeroed buffer of a tensor at b->dims. False: no memory, or a size overflows. */
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

/* Prepares a call of an entry with random inputs and zeroed outputs. Optional inputs are left out: no position is
 * padding. */
static enum tfmc_status prepare_call(struct bench *b, const char *name, struct call *c)
{
	memset(c, 0, sizeof(*c));
	c->name = name;
	memcpy(c->dims, b->dims, sizeof(c->dims));
	c->entry = caller_find_entry(b->d, b->record, name);
	if (c->entry < 0)
		return TFMC_INVALID;
	const struct tfmc_record_entry *e = tfmc_entry_at(b->record, c->entry);
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

/* Reports a failed call, with the device's own reason if it has one. TFMC_OK for TFMC_RT_OK. */
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
	return check_status(b, c->name,
	                    tfmc_session_call(b->session, c->entry, c->dims, c->inputs, c->outputs));
}

/* ---- timing ---- */

/* Resets the session, then encodes the source and reads the prompt when the entry needs them. */
static enum tfmc_status prepare_state(struct bench *b, const struct call *main, const struct call *encode,
                                      const struct call *prompt)
{
	bool decodes =
	        !strcmp(main->name, "prefill") || !strcmp(main->name, "step") || !strcmp(main->name, "score");
	TFMC_TRY(check_status(b, main->name, tfmc_session_reset(b->session)));
	if (decodes && encode->name)
		TFMC_TRY(run_call(b, encode));
	return prompt->name ? run_call(b, prompt) : TFMC_OK;
}

/* Removes the token of a decode step from the caches. False: the caller must prepare the state again (a ring buffer
 * that has lost tokens, another entry). */
static bool trim_to_past(struct bench *b, const struct call *main)
{
	int64_t past = option_int(b->d->options.past, 1), n = b->record->n_dims ? main->dims[0] : 1;
	bool back = !strcmp(main->name, "step");
	for (int64_t i = 0; back && i < n; i++)
		back = tfmc_session_trim(b->session, i, past) == TFMC_RT_OK;
	return back;
}

/* Waits until the other ranks have received the message of a trim, so that the timed call does not include
 * its latency: a generation has no trims between steps. */
static void wait_for_ranks(const struct bench *b)
{
	const struct tfmc_link link = driver_link(b->d);
	double until = driver_clock(NULL) + 1e-9 * tfmc_link_broadcast_ns(&link, driver_ranks(b->d), 0);
	while (driver_clock(NULL) < until)
		continue;
}

/* Times calls of `main` into b->seconds: after WARM_UP calls at least MIN_CALLS, then until they took
 * SECONDS, at most MAX_CALLS. The state is prepared before each, unless a trim restores it. */
static enum tfmc_status time_calls(struct bench *b, const struct call *main, const struct call *encode,
                                   const struct call *prompt)
{
	double total = 0;
	for (size_t i = 0; i < MAX_CALLS + WARM_UP && (b->n_calls < MIN_CALLS || total < SECONDS); i++) {
		if (i == 0 || !trim_to_past(b, main))
			TFMC_TRY(prepare_state(b, main, encode, prompt));
		wait_for_ranks(b);
		if (b->groups)
			bench_groups_begin(b->groups, i >= WARM_UP);
		double start = driver_clock(NULL), before = b->compiled->exchanges.seconds;
		TFMC_TRY(run_call(b, main));
		double seconds = driver_clock(NULL) - start;
		if (b->groups)
			bench_groups_end(b->groups);
		if (i < WARM_UP)
			continue;
		b->exchanges[b->n_calls] = b->compiled->exchanges.seconds - before;
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

/* Prepares the call before a decode step: one token by `step`, or --past tokens by `prefill`, whose token dim
 * `step` does not have. */
static enum tfmc_status prepare_prompt(struct bench *b, struct call *c)
{
	const char *name = "prefill";
	int64_t n = option_int(b->d->options.past, 1), before[TFMC_DIMS_MAX];
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

/* Prepares and times the calls of an entry, with those it depends on: encode of a seq2seq model, and the prompt
 * before a decode step. A call without a name, as the array begins, is not made. */
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

struct figures {
	double min, median, flops, weights; /* seconds of a call; FLOP of dot products; bytes */
	double exchanges;                   /* median seconds of a call */
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

/* Prints a rate (per second, as 1e9 of `unit`). part: its fraction of the measured peak, 0: unknown. bound:
 * it limits the call. */
static void print_rate(struct buf *out, const char *what, double rate, const char *unit, double part,
                       bool bound)
{
	buf_printf(out, "%-9s %12.3f %s", what, rate * 1e-9, unit);
	if (part > 0)
		buf_printf(out, ", %.0f %% of %.1f measured%s", 100 * part, rate / part * 1e-9,
		           bound ? ", the bound" : "");
	buf_str(out, "\n");
}

/* Prints the entry with its dims, the times, and both rates, of which the one nearer to its peak bounds the call. */
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
	if (f->exchanges > 0)
		buf_printf(out, "exchanges %12.6f ms, %.1f %% of the median\n", f->exchanges * 1e3,
		           100 * f->exchanges / f->median);
	bool reading = weights_fraction(f) > flops_fraction(f);
	print_rate(out, "products", f->flops / f->min, "GFLOP/s", flops_fraction(f), !reading);
	print_rate(out, "weights", f->weights / f->min, "GB/s", weights_fraction(f), reading);
}

/* Leaves the object open: print_report() adds the groups and closes it. */
static void print_json(struct bench *b, struct buf *out, const char *entry, const struct figures *f)
{
	static const char *const types[MAC_ALL] = {
	        [MAC_F32] = "f32", [MAC_INT8] = "int8", [MAC_BF16] = "bf16"};
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
	if (f->exchanges > 0)
		buf_printf(out, ", \"exchanges_ms\": %.6f", f->exchanges * 1e3);
	buf_printf(out, ", \"flops\": %.0f, \"gflops\": %.3f, \"weight_bytes\": %.0f, \"weights_gbs\": %.3f",
	           f->flops, f->flops / f->min * 1e-9, f->weights, f->weights / f->min * 1e-9);
	buf_printf(out, ", \"peak_gflops\": %.3f, \"peak_gbs\": %.3f",
	           f->ideal > 0 ? f->flops / f->ideal * 1e-9 : 0, f->peak.bytes * 1e-9);
	buf_printf(out, ", \"bound\": \"%s\", \"peaks\": {",
	           weights_fraction(f) > flops_fraction(f) ? "weights" : "products");
	separator = "";
	for (enum ir_mac_type kind = 0; kind < MAC_ALL; kind++) {
		if (!(f->peak.flops[kind] > 0))
			continue;
		buf_printf(out, "%s\"%s\": %.3f", separator, types[kind], f->peak.flops[kind] * 1e-9);
		separator = ", ";
	}
	buf_char(out, '}');
}

/* Sets f->peak, measured with as many workers as the calls, reading as many bytes of the model's weights as a
 * call reads; then f->flops, and f->ideal from the peak of each type of multiply-adds (flops, of a call). */
static enum tfmc_status measure_peak(struct bench *b, const struct compiled *c, const struct target *target,
                                     const double flops[MAC_ALL], struct figures *f)
{
	struct tfmc_pool *pool = NULL;
	const struct tfmc_mapping *weights = &c->weights->map;
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
		o.mac_types[kind] = flops[kind] > 0;
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

/* ---- the timeline ---- */

/* The groups of a function, in the order of their numbers, and the last label. */
struct labels {
	const struct bench *b;
	const struct ir_func *func;
	const int64_t *values; /* of the module's dims */
	int64_t past;
	const struct ir_op *groups[MAX_GROUPS];
	size_t n;
	struct buf path, line, kernel;
};

/* Appends a group; those beyond MAX_GROUPS are only counted. */
static void add_label_group(void *user, const struct ir_op *op)
{
	struct labels *l = user;
	if (op->code == OP_group && l->n++ < MAX_GROUPS)
		l->groups[l->n - 1] = op;
}

/* Label of struct tfmc_timeline_options: finds a group by its function; the groups have first run in their order. 0:
   no label, as the function is unknown or other groups ran than the IR has. */
static int label_group(void *user, const struct tfmc_group_query *q, struct tfmc_group_label *out)
{
	struct labels *l = user;
	const struct bench_groups *g = l->b->groups;
	size_t i = 0;
	while (i < g->n && g->groups[i].function != (uint64_t)(uintptr_t)q->group)
		i++;
	if (i == g->n || l->n != g->n)
		return 0;
	const struct ir_op *op = l->groups[g->groups[i].group];
	buf_clear(&l->path);
	buf_clear(&l->line);
	buf_clear(&l->kernel);
	ir_op_title(&l->path, l->func, op, true);
	ir_op_line(&l->line, &l->b->d->diag, op);
	ir_group_kernel(&l->kernel, op);
	*out = (struct tfmc_group_label){.path = l->path.data,
	                                 .line = l->line.len ? l->line.data : NULL,
	                                 .kernel = l->kernel.data,
	                                 .bytes = ir_op_weight_bytes(l->func, op, l->values)};
	for (enum ir_mac_type kind = 0; kind < MAC_ALL; kind++)
		out->flops += ir_op_flops_at(l->b->planned, l->func, op, kind, l->values, l->past);
	return 1;
}

/* Appends to the buffer; 1: no memory. */
static int write_text(void *user, const char *text, uint64_t bytes)
{
	buf_bytes(user, text, (size_t)bytes);
	return buf_failed(user);
}

/* Writes the timeline to the file of --trace. func: the function or case that ran; NULL: groups have no names. */
static enum tfmc_status write_trace(struct bench *b, const struct ir_func *func, const int64_t *values,
                                    int64_t past)
{
	struct labels *l = ARENA_NEW(&b->d->arena, struct labels);
	struct buf text;
	if (!l)
		return TFMC_NO_MEMORY;
	*l = (struct labels){.b = b, .func = func, .values = values, .past = past};
	struct tfmc_timeline_options o = {.struct_size = sizeof(o),
	                                  .label = label_group,
	                                  .label_user = l,
	                                  .write = write_text,
	                                  .write_user = &text};
	buf_init(&l->path);
	buf_init(&l->line);
	buf_init(&l->kernel);
	buf_init(&text);
	if (func)
		ir_visit_ops(func->body, add_label_group, l);
	int status = tfmc_timeline_write(b->groups->timeline, &o);
	bool failed = status != TFMC_RT_OK || buf_failed(&l->path) || buf_failed(&l->line) ||
	              buf_failed(&l->kernel);
	enum tfmc_status st = failed ? TFMC_NO_MEMORY : driver_write_output(b->d, b->d->options.trace, &text);
	buf_destroy(&l->path);
	buf_destroy(&l->line);
	buf_destroy(&l->kernel);
	buf_destroy(&text);
	return st;
}

/* Writes the report to stdout, and the page of --html, whose data is the object of --json. */
static enum tfmc_status print_report(struct bench *b, const char *entry, const struct figures *f,
                                     const struct ir_func *func, const int64_t *values, int64_t past)
{
	const struct driver_options *o = &b->d->options;
	struct buf data, page;
	buf_init(&data);
	buf_init(&page);
	if (!o->json)
		print_text(b, entry, f);
	if (!o->json && o->groups)
		bench_groups_print(b->groups, &b->d->out, &b->d->diag, b->planned, func, values, past,
		                   f->peak, false);
	print_json(b, &data, entry, f);
	if (o->groups || o->html) {
		buf_str(&data, ", \"groups\": [");
		bench_groups_print(b->groups, &data, &b->d->diag, b->planned, func, values, past, f->peak,
		                   true);
		buf_char(&data, ']');
	}
	buf_str(&data, "}\n");
	if (o->json)
		buf_append(&b->d->out, &data);
	if (o->html)
		page_write(&page, &(struct page){.name = b->planned->name,
		                                 .title = "roofline",
		                                 .parts = (const char *)bench_html,
		                                 .data = data.data,
		                                 .script = (const char *)bench_js});
	enum tfmc_status st = buf_failed(&data) || buf_failed(&page) ? TFMC_NO_MEMORY : TFMC_OK;
	if (st == TFMC_OK && o->html)
		st = driver_write_output(b->d, o->html, &page);
	buf_destroy(&data);
	buf_destroy(&page);
	return st;
}

/* Prints the times of an entry beside its work, which follows from the IR, and the measured peak. The entries
 * prefill and step are both the function decode; groups are those of the case that these dims select, which is the
 * one that ran. */
static enum tfmc_status report(struct bench *b, const char *entry, const struct compiled *c,
                               const struct target *target)
{
	struct figures f = {.threads = b->threads, .target = target->name};
	bool decodes = !strcmp(entry, "prefill") || !strcmp(entry, "step");
	const struct ir_func *func = ir_find_func(b->planned, decodes ? "decode" : entry);
	/* Of the module's dims; those that are not arguments of the entry (tokens of step) are 1. */
	int64_t values[TFMC_DIMS_MAX];
	int64_t past = strcmp(entry, "step")
	                       ? 0
	                       : option_int(b->d->options.past, 1); /* tokens in the KV cache before a call */
	double flops[MAC_ALL] = {0};                                /* of dot products in a call */
	for (uint64_t i = 0; i < b->record->n_dims; i++)
		values[i] = entry_has_dim(b, entry, i) ? b->dims[i] : 1;
	f.weights = func ? ir_func_weight_bytes(func, values) : 0;
	for (enum ir_mac_type kind = 0; kind < MAC_ALL; kind++)
		for (size_t i = 0; func && i < func->body->n_ops; i++)
			flops[kind] +=
			        ir_op_flops_at(b->planned, func, func->body->ops[i], kind, values, past);
	TFMC_TRY(measure_peak(b, c, target, flops, &f));
	number_sort_f64(b->seconds, b->n_calls);
	number_sort_f64(b->exchanges, b->n_calls);
	f.exchanges = b->exchanges[b->n_calls / 2];
	f.min = b->seconds[0];
	f.median = b->seconds[b->n_calls / 2];
	if (func)
		func = ir_select_case(b->planned, func, values);
	TFMC_TRY(print_report(b, entry, &f, func, values, past));
	return b->d->options.trace ? write_trace(b, func, values, past) : TFMC_OK;
}

/* Opens a session for the upper bounds of the dims, with a trace for --groups and --trace. */
static enum tfmc_status open_session(struct bench *b, struct compiled *c, const struct target *target)
{
	const struct driver_options *o = &b->d->options;
	c->trace = NULL;
	b->groups = NULL;
	if (o->groups || o->trace || o->html) {
		b->groups = bench_groups_create(b->d, c, b->threads);
		if (!b->groups)
			return TFMC_NO_MEMORY;
		b->groups->is_device = target->arch == ARCH_OPENCL;
	}
	if (o->trace)
		TFMC_TRY(check_status(b, "trace", tfmc_timeline_create(b->record, 0, &b->groups->timeline)));
	TFMC_TRY(driver_open_session(b->d, c, 0));
	b->session = c->session;
	return TFMC_OK;
}

/* variant_fn: benches the entry of --entry on one variant, at the upper bounds of the dims but with one sequence
 * (the first dim is the batch); --dim overrides. */
static enum tfmc_status bench_model(void *user, struct compiled *c, const struct target *target)
{
	struct bench *b = user;
	const char *entry = b->d->options.entry ? b->d->options.entry : "run";
	b->compiled = c;
	b->planned = c->planned;
	b->n_calls = 0;
	b->session = NULL;
	if (b->d->options.variants && !b->d->options.json)
		buf_printf(&b->d->out, "variant %s\n", target->name);
	b->record = c->model.record;
	TFMC_TRY(driver_check_session_limits(b->d, b->record));
	b->threads = option_int(b->d->options.threads, 1);
	/* The upper bounds, but one sequence: the first dim is the batch. --dim overrides. */
	for (uint64_t i = 0; i < b->record->n_dims; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(b->record, i);
		b->dims[i] = i == 0 ? dim->lo : dim->hi;
	}
	TFMC_TRY(driver_apply_dim_options(b->d, b->planned->dims, b->dims));
	enum tfmc_status st = open_session(b, c, target);
	if (st == TFMC_OK)
		st = measure(b, entry);
	if (st == TFMC_OK)
		st = report(b, entry, c, target);
	tfmc_timeline_destroy(b->groups ? b->groups->timeline : NULL);
	return st;
}

/* All entries are compiled, since the timed one may depend on others (encode, prefill). A timeline has the lanes of
 * a processor's workers; a page or timeline is one file, of one variant. */
enum exit_code command_bench(struct driver *d)
{
	struct loaded l;
	struct compiled c = {0};
	struct bench *b = ARENA_NEW(&d->arena, struct bench);
	if (!b)
		return EXIT_ENVIRONMENT;
	b->d = d;
	if (d->options.trace && d->options.device)
		return driver_usage_error(d, "--trace goes with the processor, not with --device");
	if (d->options.variants && (d->options.trace || d->options.html))
		return driver_usage_error(d, "--%s goes with one variant, not with --variants",
		                          d->options.trace ? "trace" : "html");
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = driver_compile_jit(d, &l, (struct entry_names){0}, &c);
	if (st == TFMC_OK)
		st = driver_for_each_variant(d, &c, bench_model, b);
	compiled_destroy(&c);
	loaded_destroy(&l);
	return exit_code_of(st);
}
