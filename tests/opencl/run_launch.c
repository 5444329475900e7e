/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of the test host: places and arguments with numbers, steps in order.
 */
#include <inttypes.h>

#include "tests/opencl/run_internal.h"
#include "tests/support/plan_rows.h"

/* ---- numbers ---- */

int64_t run_groups(const struct run *r, const struct plan_kernel *l)
{
	int64_t n;
	if (!ir_dim_eval(l->tasks, r->call->dims, &n) || n < 1)
		return 1;
	return n < r->cap ? n : r->cap;
}

static struct region *region_of(struct run *r, const struct area *p)
{
	switch (p->memory) {
	case AREA_WEIGHTS: return &r->weights;
	case AREA_ARENA: return &r->arena;
	case AREA_STATE: return NULL;
	case AREA_SCRATCH: return &r->scratch;
	case AREA_INPUT: return &r->inputs[p->number];
	case AREA_OUTPUT: return &r->outputs[p->number];
	}
	return NULL;
}

bool run_piece(struct run *r, const struct plan_kernel *l, const struct area *p, struct piece *out)
{
	int64_t begin, bytes;
	struct region *region = region_of(r, p);
	if (!region)
		return run_fail(r, l, "'%s' is memory of a state", p->name) == TFMC_OK;
	if (!ir_dim_eval(p->offset, r->call->dims, &begin) || !ir_dim_eval(p->bytes, r->call->dims, &bytes))
		return false;
	for (size_t i = 0; i < r->n_turns; i++)
		begin += r->turns[i] * p->stride[i];
	if (p->memory == AREA_SCRATCH && l)
		bytes *= l->workers * run_groups(r, l);
	*out = (struct piece){region, (size_t)begin, (size_t)(begin + bytes)};
	if (begin >= 0 && bytes >= 0 && out->end <= region->n)
		return true;
	(void)run_fail(r, l, "'%s' is bytes %" PRId64 " to %" PRId64 " of a memory of %zu", p->name, begin,
	               begin + bytes, region->n);
	return false;
}

bool run_args(struct run *r, const struct plan_kernel *l, const struct piece *pieces, const size_t *base,
              const struct opencl_device_buffer *const *buffers, struct opencl_device_arg *out)
{
	enum opencl_device_arg_kind index =
	        r->host->program.index_bits == 64 ? OPENCL_DEVICE_LONG : OPENCL_DEVICE_INT;
	for (size_t i = 0; i < l->n_args; i++) {
		size_t n = l->args[i].number;
		out[i] = (struct opencl_device_arg){.kind = index};
		switch (l->args[i].kind) {
		case PLAN_BUFFER:
			out[i].kind = OPENCL_DEVICE_BUFFER;
			out[i].buffer = buffers[n];
			break;
		case PLAN_OFFSET: out[i].number = (int64_t)(pieces[n].begin - base[n]); break;
		case PLAN_DIM: out[i].number = r->call->dims[n]; break;
		case PLAN_INDEX:
			if (n >= r->n_turns)
				return false;
			out[i].number = r->turns[n];
			break;
		case PLAN_SOURCE_STEP: out[i].number = 1; break;
		case PLAN_RANKS: break;
		case PLAN_WORKER:
		case PLAN_WORKERS: return false;
		}
	}
	return true;
}

/* ---- steps ---- */

/* After the end of the repeat that begins at i. */
static size_t behind(const struct plan *f, size_t i)
{
	size_t depth = 0;
	for (; i < f->n; i++) {
		enum plan_command_kind kind = f->items[i].kind;
		depth += kind == PLAN_REPEAT || kind == PLAN_IF_REQUESTED || kind == PLAN_IF_SPLIT;
		depth -= f->items[i].kind == PLAN_END;
		if (depth == 0)
			return i + 1;
	}
	return i;
}

static enum tfmc_status run_range(struct run *r, size_t from, size_t to, run_launch *launch);

static enum tfmc_status run_repeat(struct run *r, size_t at, size_t end, run_launch *launch)
{
	size_t level = r->n_turns;
	if (level == OBJECT_REPEAT_MAX)
		return run_fail(r, NULL, "repeats are too deep");
	r->n_turns++;
	for (int64_t turn = 0; turn < r->f->items[at].count; turn++) {
		r->turns[level] = turn;
		TFMC_TRY(run_range(r, at + 1, end - 1, launch));
	}
	r->n_turns = level;
	return TFMC_OK;
}

static enum tfmc_status run_range(struct run *r, size_t from, size_t to, run_launch *launch)
{
	for (size_t i = from; i < to; i++) {
		const struct plan_command *s = &r->f->items[i];
		if (s->kind == PLAN_DISPATCH) {
			if (s->kernel->areas.n > PLACES_MAX || s->kernel->n_args > ARGS_MAX)
				return run_fail(r, s->kernel, "too many arguments");
			if (plan_has_its_rows(s->kernel, r->call->dims))
				TFMC_TRY(launch(r, s->kernel));
		} else if (s->kind == PLAN_REPEAT) {
			size_t end = behind(r->f, i);
			TFMC_TRY(run_repeat(r, i, end, launch));
			i = end - 1;
		} else if (s->kind == PLAN_IF_SPLIT) {
			return run_fail(r, NULL, "no kernel of OpenCL has a second step");
		} /* all outputs are wanted; launches are in order */
	}
	return TFMC_OK;
}

enum tfmc_status run_steps(struct run *r, run_launch *launch)
{
	return run_range(r, 0, r->f->n, launch);
}
