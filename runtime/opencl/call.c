/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: the memory ranges that each launch accesses, its arguments, and the launches in order. Arguments are
 * computed again only if their inputs (dims, sequences, requested outputs, buffers) changed since the last
 * call, and set only if their values changed.
 *
 * The plan (plan_format.h) is a table of rows: kernels, launches, areas (the bytes of a memory that a kernel accesses,
 * as formulas of the dims), arguments. A worker is a work-group; its tasks are divided among as many as are launched.
 * An output without a buffer of the caller is not requested: launches that only serve it are left out, and kernels
 * that also write it write to spare memory. past: i32 lengths of the sequences, which the caller owns and the kernels
 * read and update.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/opencl/model_internal.h"

/* Most work-groups per compute unit. On a CPU a work-group is a task of a thread; other devices run several
 * at once, to hide latency. */
#define GROUPS_CPU 4
#define GROUPS     16
/* Launches between flushes: drivers that batch commands start with these while the host enqueues the others. */
#define FLUSH_EVERY 8

struct call_state {
	struct tfmc_cl_model *model;
	struct model_function *f;
	const struct tfmc_cl_call *call;
	int64_t scratch; /* scratch bytes that the launches need */
};

/* Leaves a message that names the function and the launch's kernel (l NULL: no kernel). */
static int32_t call_error(const struct call_state *r, const struct model_launch *l, const char *what)
{
	const struct tfmc_cl_model *m = r->model;
	const char *kernel = l ? tfmc_plan_name(&m->plan, model_kernel(m, l, KERNEL_NAME)) : NULL;
	const struct model_site where = {r->f->name, kernel};
	return model_fail(m, &where, "%s", what);
}

static int32_t rt_status(const struct call_state *r, const struct model_launch *l, int status)
{
	return status == TFMC_CL_OK ? TFMC_RT_OK : call_error(r, l, r->model->error.text);
}

/* ---- areas ---- */

/* The bytes of an area in a buffer. */
struct buffer_range {
	const struct model_memory *memory;
	int64_t begin, bytes;
};

static int64_t area_cell(const struct call_state *r, int64_t area, int column)
{
	return model_cell(r->model, PLAN_AREAS, area, column);
}

/* Multiplies bytes per worker by the workers of the launch. False: overflow. */
static bool scale_to_workers(const struct call_state *r, const struct model_launch *l, int64_t *bytes)
{
	return !__builtin_mul_overflow(*bytes, model_kernel(r->model, l, KERNEL_WORKERS), bytes) &&
	       !__builtin_mul_overflow(*bytes, l->groups, bytes);
}

/* The plan describes the areas of sequence 0: moves one to the call's first sequence, or to the source. The lengths
 * (PLAN_STATE_NONE) have i32 steps. A source that all rows share is one block, not one per row. False: overflow. */
static bool locate_state(const struct call_state *r, int64_t area, struct buffer_range *s)
{
	int64_t step = tfmc_plan_header(&r->model->plan, PLAN_H_STATE_BATCH), by, first = r->call->first;
	int64_t state = area_cell(r, area, AREA_C_STATE);
	s->memory = &r->model->state;
	if (state == PLAN_STATE_NONE)
		step = sizeof(int32_t);
	if (state == PLAN_STATE_SOURCE && r->call->source >= 0) {
		first = r->call->source;
		/* of n rows the area spans n - 1 steps and one block: the block alone */
		s->bytes = step > 0 && s->bytes > 0 ? (s->bytes - 1) % step + 1 : s->bytes;
	}
	return !__builtin_mul_overflow(first, step, &by) && !__builtin_add_overflow(s->begin, by, &s->begin);
}

/* Finds the weight buffer that contains the range: weights are divided among buffers, since a device bounds their
 * size, and each area is in one. False: none contains it. */
static bool locate_weights(const struct tfmc_cl_model *m, struct buffer_range *s)
{
	for (size_t i = 0; i < m->n_pieces; i++) {
		const struct model_piece *p = &m->pieces[i];
		if (s->begin < p->begin || s->begin > p->end || s->bytes > p->end - s->begin)
			continue;
		s->memory = &p->memory;
		s->begin -= p->begin;
		return true;
	}
	return false;
}

/* An output that the caller does not request uses spare memory in the arena where the plan has some (AREA_C_SPARE: 1 +
 * its formula; 0: none), else a buffer like a requested one, which is not transferred. False: overflow. */
static bool locate_output(const struct call_state *r, int64_t area, struct buffer_range *s)
{
	int64_t number = area_cell(r, area, AREA_C_NUMBER), spare = area_cell(r, area, AREA_C_SPARE), at;
	bool is_spare = !r->f->wanted[number] && spare > 0;
	s->memory = is_spare ? &r->model->arena : &r->model->results[number];
	return !is_spare || (tfmc_plan_eval(&r->model->plan, spare - 1, r->f->dims, &at) &&
	                     !__builtin_add_overflow(s->begin, at, &s->begin));
}

/* Finds the memory of an area in a launch (l NULL: an area of no kernel). False: the plan's formulas overflow, or it
 * cannot be in its memory. Whether it is inside is checked later, when the buffers have their sizes (is_inside). */
static bool locate_area(const struct call_state *r, const struct model_launch *l, int64_t area,
                        struct buffer_range *s)
{
	static const int64_t zeros[PLAN_REPEATS];
	struct tfmc_cl_model *m = r->model;
	bool ok = tfmc_plan_area(&m->plan, area, r->f->dims, l ? l->indices : zeros, &s->begin, &s->bytes);
	int64_t end;
	if (!ok)
		return false;
	switch ((enum area_memory)area_cell(r, area, AREA_C_MEMORY)) {
	case AREA_WEIGHTS: ok = locate_weights(m, s); break;
	case AREA_ARENA: s->memory = &m->arena; break;
	case AREA_STATE: ok = locate_state(r, area, s); break;
	case AREA_INPUT: s->memory = &m->params[area_cell(r, area, AREA_C_NUMBER)]; break;
	case AREA_OUTPUT: ok = locate_output(r, area, s); break;
	case AREA_SCRATCH:
		s->memory = &m->scratch;
		ok = l && scale_to_workers(r, l, &s->bytes);
		break;
	}
	return ok && s->begin >= 0 && !__builtin_add_overflow(s->begin, s->bytes, &end);
}

static bool is_inside(const struct buffer_range *s)
{
	const struct tfmc_cl_buffer *b = s->memory->buffer;
	return (uint64_t)(s->begin + s->bytes) <= (b ? tfmc_cl_buffer_bytes(b) : 0);
}

/* ---- sizes ---- */

static void raise_to(int64_t *to, int64_t bytes)
{
	*to = bytes > *to ? bytes : *to;
}

/* Records how many bytes of the caller's tensors, and which lengths, the kernels access: as much is transferred, and
 * the caller's buffers must have as much. past_begin: all areas of the lengths are one. */
static int32_t measure_area(const struct call_state *r, const struct model_launch *l, int64_t area)
{
	struct model_function *f = r->f;
	struct buffer_range s;
	if (!locate_area(r, l, area, &s))
		return call_error(r, l, "the plan has an area outside of its memory");
	int64_t number = area_cell(r, area, AREA_C_NUMBER), memory = area_cell(r, area, AREA_C_MEMORY);
	if (memory == AREA_INPUT)
		raise_to(&f->param_bytes[number], s.begin + s.bytes);
	if (memory == AREA_OUTPUT && s.memory != &r->model->arena)
		raise_to(&f->result_bytes[number], s.begin + s.bytes);
	if (memory == AREA_STATE && area_cell(r, area, AREA_C_STATE) == PLAN_STATE_NONE) {
		f->past_begin = s.begin;
		f->past_bytes = s.bytes;
	}
	return TFMC_RT_OK;
}

/* Sets the number of work-groups (the tasks at these dims, at most some per compute unit, since each loops over its
 * tasks), and adds the needs of the launch. */
static int32_t size_launch(struct call_state *r, struct model_launch *l)
{
	const struct tfmc_cl_model *m = r->model;
	int64_t first = model_kernel(m, l, KERNEL_AREAS_FIRST), n = model_kernel(m, l, KERNEL_AREAS_N);
	int64_t max_groups =
	        (int64_t)m->chosen->compute_units * (m->chosen->type == TFMC_CL_CPU ? GROUPS_CPU : GROUPS);
	int64_t scratch = model_kernel(m, l, KERNEL_SCRATCH);
	if (!tfmc_plan_eval(&m->plan, model_kernel(m, l, KERNEL_TASKS), r->f->dims, &l->groups))
		return call_error(r, l, "there are too many tasks");
	l->groups = l->groups < max_groups ? l->groups : max_groups;
	l->groups = l->groups > 1 ? l->groups : 1; /* OpenCL rejects launches of 0 groups */
	if (!scale_to_workers(r, l, &scratch))
		return call_error(r, l, "there is too much scratch");
	raise_to(&r->scratch, scratch);
	for (int64_t i = first; i < first + n; i++)
		TRY(measure_area(r, l, i));
	return TFMC_RT_OK;
}

/* Whether the caller requests an output of an IF_REQUESTED command. */
static bool is_any_output_requested(const struct call_state *r, int64_t step)
{
	int64_t first = model_cell(r->model, PLAN_COMMANDS, step, COMMAND_A);
	int64_t end = first + model_cell(r->model, PLAN_COMMANDS, step, COMMAND_B);
	bool any = false;
	for (int64_t i = first; i < end; i++)
		any = any || r->f->wanted[model_cell(r->model, PLAN_OUTPUTS, i, OUTPUT_NUMBER)];
	return any;
}

/* Whether the number of rows selects the kernel (skinny or general); an overflow counts as many rows. */
static bool rows_select_kernel(const struct call_state *r, const struct model_launch *l)
{
	const struct tfmc_cl_model *m = r->model;
	int64_t formula = model_kernel(m, l, KERNEL_ROWS), rows = INT64_MAX;
	if (formula == 0)
		return true;
	(void)tfmc_plan_eval(&m->plan, formula - 1, r->f->dims, &rows);
	return rows >= model_kernel(m, l, KERNEL_ROWS_LO) && rows <= model_kernel(m, l, KERNEL_ROWS_HI);
}

/* Finds the launches that the call needs (the number of rows selects their kernel, all open conditions have a
 * requested output), and sizes these. */
static int32_t size_launches(struct call_state *r)
{
	struct model_function *f = r->f;
	memset(f->param_bytes, 0, (size_t)f->n_params * sizeof(*f->param_bytes));
	memset(f->result_bytes, 0, (size_t)f->n_results * sizeof(*f->result_bytes));
	f->past_begin = f->past_bytes = 0;
	for (size_t i = 0; i < f->n; i++) {
		struct model_launch *l = &f->launches[i];
		l->is_wanted = rows_select_kernel(r, l);
		for (int k = 0; k < PLAN_DEPTH && l->wanted[k] >= 0; k++)
			l->is_wanted = l->is_wanted && is_any_output_requested(r, l->wanted[k]);
		if (l->is_wanted)
			TRY(size_launch(r, l));
	}
	return f->lengths >= 0 ? measure_area(r, NULL, f->lengths) : TFMC_RT_OK;
}

/* Grows the device's memory to the sizes of the call. Functions share it, and a larger call replaces a buffer, whose
 * new serial makes arguments be set again. */
static int32_t allocate_memory(const struct call_state *r)
{
	struct tfmc_cl_model *m = r->model;
	const struct model_function *f = r->f;
	const struct model_site where = {f->name, NULL};
	int64_t row = model_cell(m, PLAN_FUNCTIONS, (int64_t)r->call->function, FUNCTION_ARENA), arena;
	if (!tfmc_plan_eval(&m->plan, row, f->dims, &arena) || arena < 0)
		return call_error(r, NULL, "the arena is too large");
	TRY(model_grow(m, &where, &m->arena, arena));
	TRY(model_grow(m, &where, &m->scratch, r->scratch));
	for (int64_t i = 0; i < f->n_params; i++)
		if (f->param_bytes[i] > 0)
			TRY(model_grow(m, &where, &m->params[i], f->param_bytes[i]));
	for (int64_t i = 0; i < f->n_results; i++)
		if (f->result_bytes[i] > 0)
			TRY(model_grow(m, &where, &m->results[i], f->result_bytes[i]));
	return TFMC_RT_OK;
}

/* ---- arguments ---- */

/* A tensor without elements has no buffer: null is set. */
static int set_memory(const struct call_state *r, struct model_launch *l, uint32_t index,
                      const struct model_memory *memory)
{
	static const void *const nothing;
	return memory->buffer
	               ? tfmc_cl_kernel_set_buffer(l->handle, index, memory->buffer, &r->model->error)
	               : tfmc_cl_kernel_set(l->handle, index, &nothing, sizeof(nothing), &r->model->error);
}

/* Sets an argument unless it has the value already: a buffer, or a number if memory is NULL. A buffer's value is its
 * serial number, which changes when it is replaced. Kernels index with 32 bits where the plan says that all fits. */
static int32_t set_value(const struct call_state *r, struct model_launch *l, uint32_t index, int64_t number,
                         const struct model_memory *memory)
{
	struct model_arg *a = &r->f->args[l->first_arg + index];
	int64_t value = memory ? (int64_t)memory->serial : number;
	int32_t value32 = (int32_t)number;
	bool is_32 = tfmc_plan_header(&r->model->plan, PLAN_H_INDEX_BITS) == 32;
	if (a->is_set && a->value == value)
		return TFMC_RT_OK;
	if (is_32 && value32 != number)
		return call_error(r, l, "a number of more than 32 bits");
	int status =
	        memory  ? set_memory(r, l, index, memory)
	        : is_32 ? tfmc_cl_kernel_set(l->handle, index, &value32, sizeof(value32), &r->model->error)
	                : tfmc_cl_kernel_set(l->handle, index, &number, sizeof(number), &r->model->error);
	*a = (struct model_arg){value, status == TFMC_CL_OK};
	return rt_status(r, l, status);
}

static int32_t set_area_arg(const struct call_state *r, struct model_launch *l, uint32_t index, int64_t area,
                            bool is_offset)
{
	struct buffer_range s;
	if (!locate_area(r, l, area, &s) || !is_inside(&s))
		return call_error(r, l, "the plan has an area outside of its memory");
	return is_offset ? set_value(r, l, index, s.begin, NULL) : set_value(r, l, index, 0, s.memory);
}

/* Sets the argument `index` of a launch as its row of ARGS says. */
static int32_t set_arg(const struct call_state *r, struct model_launch *l, uint32_t index)
{
	const struct tfmc_cl_model *m = r->model;
	int64_t row = model_kernel(m, l, KERNEL_ARGS_FIRST) + index;
	int64_t number = model_cell(m, PLAN_ARGS, row, ARG_NUMBER);
	int64_t area = model_kernel(m, l, KERNEL_AREAS_FIRST) + number;
	switch ((enum plan_arg_kind)model_cell(m, PLAN_ARGS, row, ARG_KIND)) {
	case PLAN_BUFFER: return set_area_arg(r, l, index, area, false);
	case PLAN_OFFSET: return set_area_arg(r, l, index, area, true);
	case PLAN_DIM: return set_value(r, l, index, r->f->dims[number], NULL);
	case PLAN_INDEX: return set_value(r, l, index, l->indices[number], NULL);
	case PLAN_RANKS: break;
	case PLAN_SOURCE_STEP: return set_value(r, l, index, r->call->source < 0, NULL);
	case PLAN_WORKER: /* never in a file */
	case PLAN_WORKERS: break;
	}
	return call_error(r, l, "an argument that no kernel has");
}

/* Creates the kernel of a launch when it is first needed, and sets its arguments. */
static int32_t set_launch_args(const struct call_state *r, struct model_launch *l)
{
	struct tfmc_cl_model *m = r->model;
	const char *name = tfmc_plan_name(&m->plan, model_kernel(m, l, KERNEL_NAME));
	if (!l->handle)
		TRY(rt_status(r, l,
		              tfmc_cl_kernel_create(m->programs[l->kernel], name, &l->handle, &m->error)));
	for (int64_t i = 0; i < model_kernel(m, l, KERNEL_ARGS_N); i++)
		TRY(set_arg(r, l, (uint32_t)i));
	return TFMC_RT_OK;
}

/* The last call of the function had these dims, sequences and requested outputs, and no buffer was replaced
 * since. */
static bool is_prepared(const struct call_state *r)
{
	const struct model_function *f = r->f;
	size_t n = (size_t)r->model->plan.rows[PLAN_DIMS] * sizeof(*f->dims);
	bool same = f->is_ready && f->serial == r->model->serial && f->first == r->call->first &&
	            f->source == r->call->source && !memcmp(f->dims, r->call->dims, n);
	for (int64_t i = 0; same && i < f->n_results; i++)
		same = f->wanted[i] == (r->call->results[i].data != NULL);
	return same;
}

/* Builds kernels, allocates memory and sets arguments, unless the last call of the function has left all that this one
 * needs. is_ready stays false after a failure. Sizes come before memory, and memory before arguments, which are
 * buffers. */
static int32_t prepare_call(struct call_state *r)
{
	struct model_function *f = r->f;
	if (is_prepared(r))
		return TFMC_RT_OK;
	f->is_ready = false;
	f->first = r->call->first;
	f->source = r->call->source;
	for (int64_t i = 0; i < r->model->plan.rows[PLAN_DIMS]; i++)
		f->dims[i] = r->call->dims[i];
	for (int64_t i = 0; i < f->n_results; i++)
		f->wanted[i] = r->call->results[i].data != NULL;
	if (!f->is_built)
		TRY(model_build(r->model, f));
	TRY(size_launches(r));
	TRY(allocate_memory(r));
	for (size_t i = 0; i < f->n; i++)
		if (f->launches[i].is_wanted)
			TRY(set_launch_args(r, &f->launches[i]));
	f->serial = r->model->serial;
	f->is_ready = true;
	return TFMC_RT_OK;
}

/* ---- the caller's memory ---- */

/* The range of the new lengths; bytes 0: there are none. Both they and the old ones fit the sequences from `first` on,
 * as many as m->lengths has. */
static int32_t locate_lengths(const struct call_state *r, struct buffer_range *s)
{
	const struct model_function *f = r->f;
	int64_t max_bytes = ((int64_t)r->model->code.batch - r->call->first) * (int64_t)sizeof(int32_t);
	*s = (struct buffer_range){0};
	if ((f->lengths >= 0 && (!locate_area(r, NULL, f->lengths, s) || !is_inside(s))) ||
	    s->bytes > max_bytes || f->past_bytes > max_bytes)
		return call_error(r, NULL, "the plan has lengths outside of their memory");
	bool has_past = r->call->past || (s->bytes == 0 && f->past_bytes == 0);
	return has_past ? TFMC_RT_OK : call_error(r, NULL, "the call has no lengths");
}

/* Checks that the caller's tensors have as many bytes as the launches access. */
static int32_t check_tensors(const struct call_state *r)
{
	const struct model_function *f = r->f;
	for (int64_t i = 0; i < f->n_params; i++) {
		const struct tfmc_buffer *p = &r->call->params[i];
		if (f->param_bytes[i] > 0 && (!p->data || p->count < (uint64_t)f->param_bytes[i]))
			return call_error(r, NULL, "a parameter is smaller than what is read of it");
	}
	for (int64_t i = 0; i < f->n_results; i++)
		if (f->wanted[i] && r->call->results[i].count < (uint64_t)f->result_bytes[i])
			return call_error(r, NULL, "a result is smaller than what is written to it");
	return TFMC_RT_OK;
}

/* Enqueues the transfers of lengths and inputs to the device. */
static int enqueue_uploads(const struct call_state *r)
{
	struct tfmc_cl_model *m = r->model;
	const struct model_function *f = r->f;
	TRY(tfmc_cl_upload_async(m->state.buffer, (uint64_t)f->past_begin, r->call->past,
	                         (uint64_t)f->past_bytes, &m->error));
	for (int64_t i = 0; i < f->n_params; i++)
		if (f->param_bytes[i] > 0)
			TRY(tfmc_cl_upload_async(m->params[i].buffer, 0, r->call->params[i].data,
			                         (uint64_t)f->param_bytes[i], &m->error));
	return TFMC_CL_OK;
}

/* Enqueues the transfers of requested outputs to the caller, and of the new lengths to m->lengths. */
static int enqueue_downloads(const struct call_state *r, const struct buffer_range *lengths)
{
	struct tfmc_cl_model *m = r->model;
	const struct model_function *f = r->f;
	for (int64_t i = 0; i < f->n_results; i++)
		if (f->wanted[i] && f->result_bytes[i] > 0)
			TRY(tfmc_cl_download_async(m->results[i].buffer, 0, r->call->results[i].data,
			                           (uint64_t)f->result_bytes[i], &m->error));
	if (lengths->bytes > 0)
		TRY(tfmc_cl_download_async(lengths->memory->buffer, (uint64_t)lengths->begin, m->lengths,
		                           (uint64_t)lengths->bytes, &m->error));
	return TFMC_CL_OK;
}

/* ---- calls ---- */

/* Enqueues a launch that the call needs, with an event if times are measured. */
static int32_t enqueue_launch(const struct call_state *r, struct model_launch *l)
{
	const uint64_t groups[] = {(uint64_t)l->groups, 1};
	const uint64_t items[] = {(uint64_t)model_kernel(r->model, l, KERNEL_WORK_ITEMS), 1};
	if (!l->is_wanted)
		return TFMC_RT_OK;
	int status = r->model->device.launched
	                     ? tfmc_cl_launch_timed(l->handle, groups, items, &l->event, &r->model->error)
	                     : tfmc_cl_launch(l->handle, groups, items, &r->model->error);
	return rt_status(r, l, status);
}

/* Reports the time of each launch, after all are done. After a failure it only releases their events. */
static int32_t report_launch_times(const struct call_state *r, int32_t status)
{
	struct tfmc_cl_model *m = r->model;
	const struct tfmc_device *d = &m->device;
	for (size_t i = 0; d->launched && i < r->f->n; i++) {
		struct model_launch *l = &r->f->launches[i];
		uint64_t nanoseconds;
		if (!l->event)
			continue;
		int taken = tfmc_cl_event_wait(m->context, l->event, &nanoseconds, &m->error);
		l->event = NULL;
		if (status == TFMC_RT_OK)
			status = rt_status(r, l, taken);
		if (status == TFMC_RT_OK)
			d->launched(d->user, (uint64_t)l->kernel, (uint64_t)model_kernel(m, l, KERNEL_GROUP),
			            nanoseconds);
	}
	return status;
}

/* Enqueues transfers and launches. The caller's memory is in use until the queue is finished. */
static int32_t enqueue_call(const struct call_state *r, const struct buffer_range *lengths)
{
	TRY(rt_status(r, NULL, enqueue_uploads(r)));
	for (size_t i = 0; i < r->f->n; i++) {
		TRY(enqueue_launch(r, &r->f->launches[i]));
		if (i % FLUSH_EVERY == FLUSH_EVERY - 1)
			TRY(rt_status(r, NULL, tfmc_cl_flush(r->model->context, &r->model->error)));
	}
	return rt_status(r, NULL, enqueue_downloads(r, lengths));
}

/* Prepares, enqueues and finishes a call. The caller's memory is checked after prepare_call, which finds how much is
 * accessed. */
static int32_t execute_call(struct call_state *r)
{
	struct buffer_range lengths;
	TRY(prepare_call(r));
	TRY(locate_lengths(r, &lengths));
	TRY(check_tensors(r));
	int32_t status = enqueue_call(r, &lengths);
	/* wait after a failure, too: transfers in flight still use the caller's memory */
	int finished = tfmc_cl_finish(r->model->context, &r->model->error);
	if (status == TFMC_RT_OK)
		status = rt_status(r, NULL, finished);
	status = report_launch_times(r, status);
	/* The caller's lengths change last, when nothing can fail any more. */
	if (status == TFMC_RT_OK && lengths.bytes > 0)
		memcpy(r->call->past, r->model->lengths, (size_t)lengths.bytes);
	return status;
}

/* first may be the batch: without state both are 0. Whether all rows of the call are in the state is checked with
 * the areas (is_inside, locate_lengths). */
int32_t tfmc_cl_model_call(struct tfmc_cl_model *m, const struct tfmc_cl_call *call)
{
	int64_t batch = (int64_t)m->code.batch;
	if (call->function >= (uint64_t)m->plan.rows[PLAN_FUNCTIONS])
		return model_fail(m, NULL, "there is no function %" PRIu64, call->function);
	struct call_state r = {m, &m->functions[call->function], call, 0};
	if (call->first < 0 || call->first > batch || call->source < -1 ||
	    (call->source >= batch && batch > 0))
		return call_error(&r, NULL, "there are no such sequences");
	return execute_call(&r);
}
