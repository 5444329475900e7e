/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of single groups, see bench_groups.h. The object hands each group to
 * parallel_for as a task whose first word is the address of the group's
 * function; that address is what tells groups apart. The context is opened for
 * two workers, since one alone never asks for parallel_for; the tasks are told
 * that they are the only one.
 */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#include "frontend/driver/bench_groups.h"

#include <stdlib.h>
#include <string.h>

#include "ir/cost.h"

#define MAX_GROUPS 1024
#define MAX_WORDS  (16 + 4 * 64)

struct timed {
	uint64_t function; /* address */
	double seconds;    /* of the running call, over all its executions */
	int64_t times;     /* executions in the running call */
	double least;      /* of all calls; 0: none yet */
};

struct bench_groups {
	struct tfmc_model model;
	void *context, *state, *arena;
	struct timed groups[MAX_GROUPS];
	size_t n;
	bool timing;
};

static void run_group(void *user, int64_t n, tfmc_task_fn *fn, void *arg)
{
	struct bench_groups *g = user;
	uint64_t function;
	size_t i = 0;
	(void)n;
	memcpy(&function, arg, sizeof(function));
	double start = driver_clock(NULL);
	fn(arg, 0, 1);
	double seconds = driver_clock(NULL) - start;
	while (i < g->n && g->groups[i].function != function)
		i++;
	if (!g->timing || i == MAX_GROUPS)
		return;
	if (i == g->n)
		g->groups[g->n++] = (struct timed){.function = function};
	g->groups[i].seconds += seconds;
	g->groups[i].times++;
}

/* Zeroed, aligned to a line; NULL for 0 bytes. */
static int line_memory(uint64_t bytes, void **out)
{
	if (!bytes)
		return TFMC_RT_OK;
	if (bytes > SIZE_MAX - 64 || posix_memalign(out, 64, (size_t)bytes))
		return TFMC_RT_E_MEMORY;
	memset(*out, 0, (size_t)bytes);
	return TFMC_RT_OK;
}

static int open_memory(struct bench_groups *g, const int64_t *dims, struct tfmc_config *c)
{
	const struct tfmc_record *r = g->model.record;
	bool has_state = r->state_batch_bytes || r->state_fixed_bytes;
	c->arena_bytes = g->model.arena_size(dims, c->workers);
	c->state_bytes = has_state ? g->model.state_size(c->batch) : 0;
	int status = line_memory(r->context_bytes, &g->context);
	if (status == TFMC_RT_OK)
		status = line_memory(c->arena_bytes, &g->arena);
	if (status == TFMC_RT_OK)
		status = line_memory(c->state_bytes, &g->state);
	c->arena = g->arena;
	c->state = g->state;
	return status;
}

int bench_groups_open(const struct tfmc_model *model, const int64_t *dims, const char *variant,
                      struct bench_groups **out)
{
	struct bench_groups *g = calloc(1, sizeof(*g));
	*out = NULL;
	if (!g)
		return TFMC_RT_E_MEMORY;
	g->model = *model;
	struct tfmc_config c = {.struct_size = sizeof(c), .workers = 2, .parallel_for = run_group, .user = g};
	c.batch = model->record->n_dims ? dims[0] : 1;
	int64_t number = variant ? tfmc_variant_find(model->record, variant) : -1;
	c.variants = number >= 0 ? (uint64_t)1 << number : 0;
	int status = open_memory(g, dims, &c);
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
	free(g->context);
	free(g->state);
	free(g->arena);
	free(g);
}

int bench_groups_reset(struct bench_groups *g)
{
	return g->model.reset(g->context);
}

int bench_groups_call(struct bench_groups *g, int64_t entry, const int64_t *dims,
                      const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(g->model.record, entry);
	uint64_t words[MAX_WORDS], n = 0;
	if (!e || e->n_dims + 2 * (e->n_inputs + e->n_outputs) > MAX_WORDS)
		return TFMC_RT_E_RECORD;
	const uint64_t *numbers = (const void *)((const char *)g->model.record + e->dims);
	for (uint64_t i = 0; i < e->n_dims; i++)
		words[n++] = (uint64_t)dims[numbers[i]];
	for (uint64_t i = 0; i < e->n_inputs + e->n_outputs; i++) {
		const struct tfmc_buffer *b = i < e->n_inputs ? &inputs[i] : &outputs[i - e->n_inputs];
		words[n++] = (uint64_t)(uintptr_t)b->data;
		words[n++] = b->count;
	}
	return g->model.call(g->context, (uint64_t)entry, words, -1);
}

void bench_groups_begin(struct bench_groups *g)
{
	g->timing = true;
	for (size_t i = 0; i < g->n; i++) {
		g->groups[i].seconds = 0;
		g->groups[i].times = 0;
	}
}

void bench_groups_end(struct bench_groups *g)
{
	g->timing = false;
	for (size_t i = 0; i < g->n; i++) {
		struct timed *t = &g->groups[i];
		t->least = t->least > 0 && t->least < t->seconds ? t->least : t->seconds;
	}
}

/* --- the table ---------------------------------------------------------------------------------------------
 */

struct table {
	const struct bench_groups *g;
	struct buf *out;
	const struct ir_module *m;
	const struct ir_func *func;
	const int64_t *values;
	double roof, total;
	size_t next; /* group */
};

static void count_group(void *user, const struct ir_op *op)
{
	size_t *n = user;
	*n += op->code == OP_group;
}

static void print_figures(const struct table *t, const struct timed *g, double flops)
{
	double rate = g->least > 0 ? flops * (double)g->times / g->least : 0;
	buf_printf(t->out, "%8.4f ms %5.1f %%  %3lld x", g->least * 1e3,
	           t->total > 0 ? 100 * g->least / t->total : 0.0, (long long)g->times);
	if (flops <= 0)
		buf_printf(t->out, "%24s", "");
	else
		buf_printf(t->out, " %8.1f GFLOP/s %4.0f %%", rate * 1e-9,
		           t->roof > 0 ? 100 * rate / t->roof : 0.0);
}

/* `linear 14x32x384: layer_norm linear gelu` */
static void print_name(const struct table *t, const struct ir_op *op)
{
	const struct attrs_group *a = op->attrs;
	buf_printf(t->out, "  %s", ir_word(WORDS_GROUP, a->kind));
	if (a->mr > 0)
		buf_printf(t->out, " %lldx%lldx%lld", (long long)a->mr, (long long)a->nr, (long long)a->kc);
	if (a->br > 0)
		buf_printf(t->out, " %lldx%lld", (long long)a->br, (long long)a->bc);
	buf_str(t->out, ":");
	for (size_t i = 0; op->region && i < op->region->n_ops; i++) {
		const struct ir_op *inner = op->region->ops[i];
		if (inner->code != OP_weight && !ir_op_has(inner->code, TRAIT_TERMINATOR))
			buf_printf(t->out, " %s", ir_op_desc(inner->code)->name);
	}
	buf_str(t->out, " -> ");
	if (op->n_results > 0)
		ir_type_print(t->out, t->m->dims, ir_type_of(t->func, op->results[0]));
}

static void print_group(void *user, const struct ir_op *op)
{
	struct table *t = user;
	int64_t flops = 0;
	if (op->code != OP_group)
		return;
	if (!ir_dim_eval(ir_op_flops(t->m, t->func, op), t->values, &flops))
		flops = 0;
	print_figures(t, &t->g->groups[t->next++], (double)flops);
	print_name(t, op);
	buf_char(t->out, '\n');
}

void bench_groups_print(const struct bench_groups *g, struct buf *out, const struct ir_module *m,
                        const struct ir_func *func, const int64_t *values, double roof)
{
	struct table t = {g, out, m, func, values, roof, 0, 0};
	size_t known = 0;
	for (size_t i = 0; i < g->n; i++)
		t.total += g->groups[i].least;
	if (func)
		ir_walk(func->body, count_group, &known);
	if (known == g->n) {
		ir_walk(func->body, print_group, &t);
	} else {
		for (size_t i = 0; i < g->n; i++) {
			print_figures(&t, &g->groups[i], 0);
			buf_char(out, '\n');
		}
	}
	buf_printf(out, "%8.4f ms in %zu groups\n", t.total * 1e3, g->n);
}
