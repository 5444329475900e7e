/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launches as text. Each line is a call of a kernel: what its places are, in
 * the order of its parameters, then how many work-groups there are.
 */
#include "backends/opencl/opencl.h"

#include <inttypes.h>

static const char *memory_name(enum area_memory m)
{
	switch (m) {
	case AREA_WEIGHTS: return "weights";
	case AREA_ARENA: return "arena";
	case AREA_STATE: return "state";
	case AREA_INPUT: return "input";
	case AREA_OUTPUT: return "output";
	case AREA_SCRATCH: return "scratch";
	}
	return "";
}

static void print_dim(struct buf *out, const struct ir_module *m, const struct ir_dim *d)
{
	ir_dim_print(out, m->dims, d, false);
}

/* memory + offset + rounds, and the size. */
static void print_place(struct buf *out, const struct ir_module *m, const struct area *p)
{
	if (p->name)
		buf_printf(out, "%s = ", p->name);
	buf_str(out, memory_name(p->memory));
	if (p->memory == AREA_INPUT || p->memory == AREA_OUTPUT)
		buf_printf(out, " %zu", p->number);
	if (!ir_dim_equals(p->offset, 0)) {
		buf_str(out, " + ");
		print_dim(out, m, p->offset);
	}
	for (int i = 0; i < OBJECT_REPEAT_MAX; i++)
		if (p->step[i])
			buf_printf(out, " + %" PRId64 "*index%d", p->step[i], i);
	buf_str(out, " [");
	print_dim(out, m, p->bytes);
	buf_str(out, p->memory == AREA_SCRATCH ? " for each worker]" : "]");
}

static void print_launch(struct buf *out, const struct ir_module *m, const struct opencl_launch *l)
{
	bool first = true;
	buf_printf(out, "%s(", l->kernel);
	for (size_t i = 0; i < l->n_args; i++) {
		const struct opencl_arg *a = &l->args[i];
		if (a->kind == OPENCL_ARG_OFFSET)
			continue; /* said beside the buffer */
		buf_str(out, first ? "" : ", ");
		first = false;
		if (a->kind == OPENCL_ARG_BUFFER)
			print_place(out, m, &l->places[a->number]);
		else if (a->kind == OPENCL_ARG_DIM)
			buf_str(out, ir_dims_sym(m->dims, a->number)->name);
		else
			buf_printf(out, "index%zu", a->number);
	}
	buf_str(out, ") in ");
	print_dim(out, m, l->tasks);
	buf_printf(out, " groups of %" PRId64 "%s\n", l->items,
	           l->items > 1 && l->workers == 1 ? " together" : "");
}

static void print_function(struct buf *out, const struct ir_module *m, const struct opencl_function *f)
{
	size_t depth = 1;
	buf_printf(out, "launches of %s: arena ", f->func->name);
	print_dim(out, m, f->arena_bytes);
	buf_str(out, " bytes\n");
	for (size_t i = 0; i < f->n_steps; i++) {
		const struct opencl_step *s = &f->steps[i];
		if (s->kind == OPENCL_END_REPEAT) {
			depth--;
			continue;
		}
		buf_fill(out, ' ', 2 * depth);
		if (s->kind == OPENCL_LAUNCH) {
			print_launch(out, m, &s->launch);
			continue;
		}
		buf_printf(out, "repeat %" PRId64 " as index%zu\n", s->count, depth - 1);
		depth++;
	}
	if (!f->past_result)
		return;
	buf_str(out, "  new lengths: ");
	print_place(out, m, f->past_result);
	buf_char(out, '\n');
}

void opencl_print_table(const struct opencl_program *p, const struct ir_module *planned, struct buf *out)
{
	buf_printf(out, "weights %" PRIu64 " bytes; indices of %d bits\n", p->weights_bytes, p->index_bits);
	if (p->state_fixed_bytes)
		buf_printf(out, "state %" PRId64 " bytes and %" PRId64 " for each sequence\n",
		           p->state_fixed_bytes, p->state_batch_bytes);
	for (size_t i = 0; i < ir_dims_count(planned->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(planned->dims, i);
		buf_printf(out, "%s in [%" PRId64 ", %" PRId64 "]\n", s->name, s->lo, s->hi);
	}
	for (size_t i = 0; i < p->n_functions; i++)
		print_function(out, planned, &p->functions[i]);
}
