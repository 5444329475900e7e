/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints launch plans. A kernel's line lists its areas in the order of its parameters and, for OpenCL, the
 * number of work-groups.
 */
#include "backends/kernels/group.h"
#include "backends/plan/plan.h"

#include <inttypes.h>

static const char *const memory_names[] = {
        [AREA_WEIGHTS] = "weights", [AREA_ARENA] = "arena",   [AREA_STATE] = "state",
        [AREA_INPUT] = "input",     [AREA_OUTPUT] = "output", [AREA_SCRATCH] = "scratch",
};

static void print_dim(struct buf *out, const struct ir_module *m, const struct ir_dim *d)
{
	ir_dim_print(out, m->dims, d, false);
}

/* memory + offset + strides [bytes] */
static void print_area(struct buf *out, const struct ir_module *m, const struct area *p)
{
	if (p->name)
		buf_printf(out, "%s = ", p->name);
	buf_str(out, memory_names[p->memory]);
	if (p->memory == AREA_INPUT || p->memory == AREA_OUTPUT)
		buf_printf(out, " %zu", p->number);
	if (!ir_dim_equals(p->offset, 0)) {
		buf_str(out, " + ");
		print_dim(out, m, p->offset);
	}
	for (int i = 0; i < OBJECT_REPEAT_MAX; i++)
		if (p->stride[i])
			buf_printf(out, " + %" PRId64 "*index%d", p->stride[i], i);
	buf_str(out, " [");
	print_dim(out, m, p->bytes);
	buf_str(out, p->memory == AREA_SCRATCH ? " for each worker]" : "]");
}

static void print_kernel(struct buf *out, const struct ir_module *m, const struct plan_kernel *k)
{
	const char *separator = "";
	buf_printf(out, "%s(", k->name);
	for (size_t i = 0; i < k->n_args; i++) {
		size_t number = k->args[i].number;
		if (k->args[i].kind == PLAN_OFFSET) /* printed with the buffer */
			continue;
		buf_str(out, separator);
		switch (k->args[i].kind) {
		case PLAN_BUFFER: print_area(out, m, &k->areas.items[number]); break;
		case PLAN_OFFSET: break;
		case PLAN_DIM: buf_str(out, ir_dims_sym(m->dims, number)->name); break;
		case PLAN_INDEX: buf_printf(out, "index%zu", number); break;
		case PLAN_WORKER: buf_str(out, "worker"); break;
		case PLAN_WORKERS: buf_str(out, "workers"); break;
		case PLAN_SOURCE_STEP: buf_str(out, "source step"); break;
		}
		separator = ", ";
	}
	buf_char(out, ')');
	if (!k->tasks)
		return;
	buf_str(out, " in ");
	print_dim(out, m, k->tasks);
	buf_printf(out, " groups of %" PRId64 "%s", k->items,
	           k->items > 1 && k->workers == 1 ? " together" : "");
	if (!k->rows)
		return;
	buf_str(out, " when ");
	print_dim(out, m, k->rows);
	buf_printf(out, " %s %d", k->is_skinny ? "<=" : ">", KERNEL_FEW_ROWS_MAX);
}

/* repeats: number of open repeats, the index number of a new one. */
static void print_command(struct buf *out, const struct ir_module *m, const struct plan *p,
                          const struct plan_command *c, size_t repeats)
{
	switch (c->kind) {
	case PLAN_DISPATCH: print_kernel(out, m, c->kernel); break;
	case PLAN_REPEAT: buf_printf(out, "repeat %" PRId64 " as index%zu", c->count, repeats); break;
	case PLAN_IF_WANTED:
		buf_str(out, "for output");
		for (size_t i = 0; i < c->n_outputs; i++)
			buf_printf(out, " %s", p->func->results[c->outputs[i]].name);
		break;
	case PLAN_IF_SPLIT:
		buf_str(out, "when workers divide the blocks of ");
		print_dim(out, m, c->heads);
		buf_str(out, " heads");
		break;
	case PLAN_END: break;
	case PLAN_BARRIER: buf_str(out, "barrier"); break;
	case PLAN_LENGTHS:
		buf_str(out, "new lengths: ");
		print_area(out, m, p->lengths);
		break;
	}
	buf_char(out, '\n');
}

void plan_print(const struct plan *p, const struct ir_module *planned, struct buf *out)
{
	enum plan_command_kind open[OBJECT_REPEAT_MAX + 2] = {0};
	size_t depth = 0, repeats = 0;
	buf_printf(out, "launches of %s: arena ", p->func->name);
	print_dim(out, planned, p->arena_bytes);
	buf_str(out, " bytes\n");
	for (size_t i = 0; i < p->n; i++) {
		const struct plan_command *c = &p->items[i];
		if (c->kind == PLAN_END) {
			repeats -= open[--depth] == PLAN_REPEAT;
			continue;
		}
		buf_fill(out, ' ', 2 * (depth + 1));
		print_command(out, planned, p, c, repeats);
		if (c->kind == PLAN_REPEAT || c->kind == PLAN_IF_WANTED || c->kind == PLAN_IF_SPLIT)
			open[depth++] = c->kind;
		repeats += c->kind == PLAN_REPEAT;
	}
}
