/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of single groups, see bench_groups.h. The object passes each group to parallel_for as a task; the address of
 * the task's function identifies the group. The context is opened for at least two workers, since a single one never
 * calls parallel_for; tasks are told the real number. On a device, libtfmccl reports the time of each kernel. Two
 * kernels may compute one group, and one kernel several groups, which are then reported under the first.
 */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#include "frontend/driver/commands/bench_groups.h"

#include <stdlib.h>
#include <string.h>

#include "ir/core/cost.h"
#include "ir/core/describe.h"
#include "ir/support/memory.h"

#define MAX_GROUPS 1024
#define MAX_ARGS   (16 + 4 * 64)

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

/* Padded to 128 bytes: workers write to different cache lines (no false sharing). */
struct worker_time {
	double seconds;
	char pad[128 - sizeof(double)];
};

/* The argument of run_worker. */
struct parallel_task {
	tfmc_task_fn *fn;
	void *arg;
	struct worker_time *stamps; /* [workers] */
};

struct bench_groups {
	struct tfmc_model model;
	struct tfmc_device device;
	void *context, *state, *arena;
	struct tfmc_pool *pool;     /* NULL: one worker */
	struct worker_time *stamps; /* [threads] */
	int64_t threads;
	struct timed_group groups[MAX_GROUPS];
	size_t n;
	bool timing;
};

/* The share of one worker, with the clock around it. */
static void run_worker(void *user, int64_t worker, int64_t n)
{
	const struct parallel_task *r = user;
	double start = driver_clock(NULL);
	r->fn(r->arg, worker, n);
	r->stamps[worker].seconds = driver_clock(NULL) - start;
}

/* Runs a task by all workers and returns its times. */
static struct group_time run_timed(struct bench_groups *g, tfmc_task_fn *fn, void *arg)
{
	struct parallel_task r = {fn, arg, g->stamps};
	struct group_time s = {0};
	double start = driver_clock(NULL);
	if (g->pool)
		tfmc_pool_run(g->pool, run_worker, &r);
	else
		run_worker(&r, 0, 1);
	s.seconds = driver_clock(NULL) - start;
	for (int64_t i = 0; i < g->threads; i++) {
		s.busy += g->stamps[i].seconds;
		s.longest = g->stamps[i].seconds > s.longest ? g->stamps[i].seconds : s.longest;
	}
	return s;
}

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

/* The parallel_for of the context; tasks get the real number of workers in place of n. */
static void run_group(void *user, int64_t n, tfmc_task_fn *fn, void *arg)
{
	struct bench_groups *g = user;
	(void)n;
	struct group_time s = run_timed(g, fn, arg);
	struct timed_group *t = find_timed_group(g, (uint64_t)(uintptr_t)fn);
	if (t)
		add_time(t, s);
}

static void add_kernel_time(void *user, uint64_t kernel, uint64_t group, uint64_t nanoseconds)
{
	double seconds = (double)nanoseconds * 1e-9;
	struct timed_group *t = find_timed_group(user, kernel);
	if (!t)
		return;
	t->group = group;
	add_time(t, (struct group_time){seconds, seconds, seconds});
}

/* Zeroed, aligned to 64 bytes; NULL for 0 bytes. */
static int alloc_aligned(uint64_t bytes, void **out)
{
	if (!bytes)
		return TFMC_RT_OK;
	if (bytes > SIZE_MAX - 64 || posix_memalign(out, 64, (size_t)bytes)) {
		memory_failed((size_t)bytes);
		return TFMC_RT_E_MEMORY;
	}
	memset(*out, 0, (size_t)bytes);
	return TFMC_RT_OK;
}

static int alloc_memory(struct bench_groups *g, const int64_t *dims, struct tfmc_config *c)
{
	const struct tfmc_record *r = g->model.record;
	bool has_state = r->state_batch_bytes || r->state_fixed_bytes;
	c->arena_bytes = g->model.arena_size(dims, c->workers);
	c->state_bytes = has_state ? g->model.state_size(c->batch) : 0;
	int status = alloc_aligned(r->context_bytes, &g->context);
	if (status == TFMC_RT_OK)
		status = alloc_aligned(c->arena_bytes, &g->arena);
	if (status == TFMC_RT_OK)
		status = alloc_aligned(c->state_bytes, &g->state);
	c->arena = g->arena;
	c->state = g->state;
	return status;
}

static int create_workers(struct bench_groups *g)
{
	g->stamps = memory_zeroed((size_t)g->threads, sizeof(*g->stamps));
	if (!g->stamps)
		return TFMC_RT_E_MEMORY;
	return g->threads > 1 ? tfmc_pool_create(g->threads, &g->pool) : TFMC_RT_OK;
}

int bench_groups_open(const struct tfmc_model *model, const int64_t *dims,
                      const struct bench_groups_options *o, struct bench_groups **out)
{
	struct bench_groups *g = memory_zeroed(1, sizeof(*g));
	*out = NULL;
	if (!g)
		return TFMC_RT_E_MEMORY;
	g->model = *model;
	g->threads = o->threads;
	struct tfmc_config c = {.struct_size = sizeof(c), .parallel_for = run_group, .user = g};
	c.workers = o->threads > 1 ? o->threads : 2;
	c.batch = model->record->n_dims ? dims[0] : 1;
	c.weights = o->weights->data;
	c.weights_bytes = o->weights->bytes;
	int64_t number = o->variant ? tfmc_variant_find(model->record, o->variant) : -1;
	c.variants = number >= 0 ? (uint64_t)1 << number : 0;
	tfmc_system_words(model->record, c.system);
	if (o->device) {
		g->device = *o->device;
		g->device.launched = add_kernel_time;
		g->device.user = g;
		c.device = &g->device;
	}
	int status = create_workers(g);
	if (status == TFMC_RT_OK)
		status = alloc_memory(g, dims, &c);
	if (status == TFMC_RT_OK)
		status = model->init(g->context, &c);
	if (status == TFMC_RT_OK)
		*out = g;
	else
		bench_groups_close(g);
	return status;
}

void bench_groups_close(struct bench_groups *g)
{
	if (!g)
		return;
	tfmc_pool_destroy(g->pool);
	if (g->context)
		(void)g->model.close(g->context);
	memory_free(g->stamps);
	free(g->context);
	free(g->state);
	free(g->arena);
	memory_free(g);
}

int bench_groups_reset(struct bench_groups *g)
{
	return g->model.reset(g->context);
}

int bench_groups_trim(struct bench_groups *g, int64_t sequence, int64_t length)
{
	return g->model.trim(g->context, sequence, length);
}

int bench_groups_call(struct bench_groups *g, int64_t entry, const int64_t *dims,
                      const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(g->model.record, entry);
	uint64_t args[MAX_ARGS], n = 0;
	if (!e || e->n_dims + 2 * (e->n_inputs + e->n_outputs) > MAX_ARGS)
		return TFMC_RT_E_RECORD;
	const uint64_t *numbers = (const void *)((const char *)g->model.record + e->dims);
	for (uint64_t i = 0; i < e->n_dims; i++)
		args[n++] = (uint64_t)dims[numbers[i]];
	for (uint64_t i = 0; i < e->n_inputs + e->n_outputs; i++) {
		const struct tfmc_buffer *b = i < e->n_inputs ? &inputs[i] : &outputs[i - e->n_inputs];
		args[n++] = (uint64_t)(uintptr_t)b->data;
		args[n++] = b->count;
	}
	return g->model.call(g->context, (uint64_t)entry, args, -1);
}

void bench_groups_begin(struct bench_groups *g)
{
	g->timing = true;
	for (size_t i = 0; i < g->n; i++) {
		g->groups[i].now = (struct group_time){0};
		g->groups[i].times = 0;
	}
}

void bench_groups_end(struct bench_groups *g)
{
	g->timing = false;
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

static void count_group_op(void *user, const struct ir_op *op)
{
	size_t *n = user;
	*n += op->code == OP_group;
}

static double fraction_of(double rate, double peak)
{
	return peak > 0 ? rate / peak : 0;
}

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

/* Time that several workers lose: to uneven shares, and to barriers. */
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

/* `layers.mlp.ffn.up linear (model.yaml:22), kernel linear 14x32x384` */
static void print_name(const struct table *t, struct buf *out, const struct ir_op *op)
{
	const struct attrs_group *a = op->attrs;
	ir_op_describe(out, t->cx, t->func, op);
	buf_printf(out, ", kernel %s", ir_keyword(KEYWORDS_GROUP, a->kind));
	if (a->mr > 0)
		buf_printf(out, " %lldx%lldx%lld", (long long)a->mr, (long long)a->nr, (long long)a->kc);
	if (a->br > 0)
		buf_printf(out, " %lldx%lld", (long long)a->br, (long long)a->bc);
}

/* op NULL: unknown. */
static void print_row(struct table *t, const struct timed_group *g, const struct ir_op *op, struct work a)
{
	struct buf name;
	buf_init(&name);
	if (op)
		print_name(t, &name, op);
	if (t->is_json) {
		buf_printf(t->out,
		           "%s{\"ms\": %.6f, \"times\": %lld, \"busy_ms\": %.6f, \"flops\": %.0f, "
		           "\"weight_bytes\": %.0f, \"group\": ",
		           t->n_printed ? ", " : "", g->least.seconds * 1e3, (long long)g->times,
		           g->least.busy * 1e3, a.flops * (double)g->times, a.bytes * (double)g->times);
		buf_json(t->out, name.data);
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

/* Rows of all kernels of the pending group. The first gets the work: a second one merges partial results. */
static void print_pending(struct table *t)
{
	for (size_t i = 0; t->op && i < t->g->n; i++) {
		if (t->g->groups[i].group != t->pending_group)
			continue;
		print_row(t, &t->g->groups[i], t->op, t->work);
		t->work = (struct work){0};
	}
}

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

void bench_groups_print(const struct bench_groups *g, struct buf *out, const struct diag_context *cx,
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
	bool is_known = func && (g->device.launched || known == g->n);
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
