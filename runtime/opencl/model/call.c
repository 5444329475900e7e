/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: what each launch of a function touches, its arguments, and the launches in order. Arguments are set when what
 * they depend on has changed, and then only those that have another value.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/opencl/model/internal.h"

/* Work-groups for each compute unit. Of a processor one group is a task of a thread, of others some are under way at
 * a time. */
#define GROUPS_CPU 4
#define GROUPS     16

struct run {
	struct tfmc_cl_model *model;
	struct model_function *f;
	const struct tfmc_cl_call *call;
};

static int32_t fail_at(const struct run *r, const struct model_launch *l, const char *what)
{
	const struct tfmc_cl_model *m = r->model;
	const struct model_where where = {
	        r->f->name,
	        l ? tfmc_plan_name(&m->plan, model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_NAME)) : NULL};
	return model_fail(m, &where, "%s", what);
}

static int32_t checked_at(const struct run *r, const struct model_launch *l, int status,
                          const struct tfmc_cl_error *error)
{
	return status == TFMC_CL_OK ? TFMC_RT_OK : fail_at(r, l, error->text);
}

/* ---- areas ---- */

/* Where an area lies. */
struct span {
	const struct model_memory *memory;
	int64_t begin, bytes;
};

/* Areas of the state are those of sequence 0. A source that all rows share is one block, not one for each row. */
static bool shift_state(const struct run *r, int64_t area, struct span *s)
{
	int64_t step = tfmc_plan_header(&r->model->plan, PLAN_H_STATE_BATCH), by, first = r->call->first;
	int64_t state = model_cell(r->model, PLAN_AREAS, area, AREA_C_STATE);
	if (state == PLAN_STATE_NONE)
		step = sizeof(int32_t);
	if (state == PLAN_STATE_SOURCE && r->call->source >= 0) {
		first = r->call->source;
		s->bytes = step > 0 && s->bytes > 0 ? (s->bytes - 1) % step + 1 : s->bytes;
	}
	return !__builtin_mul_overflow(first, step, &by) && !__builtin_add_overflow(s->begin, by, &s->begin);
}

static bool find_piece(const struct tfmc_cl_model *m, struct span *s)
{
	size_t i = 0;
	while (i < m->n_pieces && (s->begin < m->pieces[i].begin || s->bytes > m->pieces[i].end - s->begin))
		i++;
	if (i == m->n_pieces)
		return false;
	s->memory = &m->pieces[i].memory;
	s->begin -= m->pieces[i].begin;
	return true;
}

/* An output that is not wanted may lie in the arena. */
static bool find_output(const struct run *r, int64_t area, int64_t number, struct span *s)
{
	int64_t spare = model_cell(r->model, PLAN_AREAS, area, AREA_C_SPARE), at;
	s->memory = &r->model->results[number];
	if (r->f->wanted[number] || spare == 0)
		return true;
	s->memory = &r->model->arena;
	return tfmc_plan_value(&r->model->plan, spare - 1, r->f->dims, &at) && at >= 0 &&
	       !__builtin_add_overflow(s->begin, at, &s->begin);
}

/* `l` NULL: of an area of no kernel. False: it can be nowhere. */
static bool find_span(const struct run *r, const struct model_launch *l, int64_t area, struct span *s)
{
	static const int64_t no_turns[PLAN_REPEATS];
	struct tfmc_cl_model *m = r->model;
	int64_t number = model_cell(m, PLAN_AREAS, area, AREA_C_NUMBER), end;
	bool ok = tfmc_plan_area(&m->plan, area, r->f->dims, l ? l->turns : no_turns, &s->begin, &s->bytes);
	if (!ok)
		return false;
	switch ((enum area_memory)model_cell(m, PLAN_AREAS, area, AREA_C_MEMORY)) {
	case AREA_WEIGHTS: ok = find_piece(m, s); break;
	case AREA_ARENA: s->memory = &m->arena; break;
	case AREA_STATE:
		s->memory = &m->state;
		ok = shift_state(r, area, s);
		break;
	case AREA_INPUT: s->memory = &m->params[number]; break;
	case AREA_OUTPUT: ok = find_output(r, area, number, s); break;
	case AREA_SCRATCH: /* of all workers */
		s->memory = &m->scratch;
		ok = l &&
		     !__builtin_mul_overflow(s->bytes, model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_WORKERS),
		                             &s->bytes) &&
		     !__builtin_mul_overflow(s->bytes, l->groups, &s->bytes);
		break;
	}
	return ok && s->begin >= 0 && !__builtin_add_overflow(s->begin, s->bytes, &end);
}

static bool is_inside(const struct span *s)
{
	return s->memory->buffer &&
	       (uint64_t)(s->begin + s->bytes) <= tfmc_cl_buffer_bytes(s->memory->buffer);
}

/* ---- what the launches of a call need ---- */

struct need {
	int64_t scratch, arena;
};

static void grow(int64_t *to, int64_t bytes)
{
	*to = bytes > *to ? bytes : *to;
}

/* Tensors of the caller as far as kernels go, and lengths that they read. */
static int32_t measure_area(const struct run *r, const struct model_launch *l, int64_t area)
{
	const struct tfmc_cl_model *m = r->model;
	struct model_function *f = r->f;
	struct span s;
	if (!find_span(r, l, area, &s))
		return fail_at(r, l, "the plan has an area outside of its memory");
	int64_t number = model_cell(m, PLAN_AREAS, area, AREA_C_NUMBER), end = s.begin + s.bytes;
	enum area_memory memory = (enum area_memory)model_cell(m, PLAN_AREAS, area, AREA_C_MEMORY);
	if (memory == AREA_INPUT)
		grow(&f->param_bytes[number], end);
	if (memory == AREA_OUTPUT && s.memory != &m->arena)
		grow(&f->result_bytes[number], end);
	if (memory != AREA_STATE || model_cell(m, PLAN_AREAS, area, AREA_C_STATE) != PLAN_STATE_NONE)
		return TFMC_RT_OK;
	f->past_begin = f->past_end == 0 || s.begin < f->past_begin ? s.begin : f->past_begin;
	grow(&f->past_end, end);
	return TFMC_RT_OK;
}

/* Work-groups, and scratch for them. */
static bool measure_groups(const struct run *r, struct model_launch *l, struct need *need)
{
	const struct tfmc_cl_model *m = r->model;
	int64_t most =
	        (int64_t)m->chosen->compute_units * (m->chosen->type == TFMC_CL_CPU ? GROUPS_CPU : GROUPS);
	int64_t tasks, scratch = model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_SCRATCH);
	if (!tfmc_plan_value(&m->plan, model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_TASKS), r->f->dims,
	                     &tasks))
		return false;
	l->groups = tasks > most ? most : tasks;
	l->groups = l->groups < 1 ? 1 : l->groups;
	bool ok = !__builtin_mul_overflow(scratch, model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_WORKERS),
	                                  &scratch) &&
	          !__builtin_mul_overflow(scratch, l->groups, &scratch);
	grow(&need->scratch, scratch);
	return ok;
}

static int32_t measure_launch(const struct run *r, struct model_launch *l, struct need *need)
{
	const struct tfmc_cl_model *m = r->model;
	int64_t first = model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_AREAS_FIRST);
	int64_t n = model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_AREAS_N);
	int32_t status = measure_groups(r, l, need) ? TFMC_RT_OK : fail_at(r, l, "too many work-groups");
	for (int64_t i = first; status == TFMC_RT_OK && i < first + n; i++)
		status = measure_area(r, l, i);
	return status;
}

/* Of a step WANTED. */
static bool is_any_wanted(const struct run *r, int64_t step)
{
	int64_t first = model_cell(r->model, PLAN_STEPS, step, STEP_A);
	int64_t end = first + model_cell(r->model, PLAN_STEPS, step, STEP_B);
	bool any = false;
	for (int64_t i = first; i < end; i++)
		any = any || r->f->wanted[model_cell(r->model, PLAN_OUTPUTS, i, OUTPUT_NUMBER)];
	return any;
}

static int32_t measure(const struct run *r, struct need *need)
{
	struct model_function *f = r->f;
	int64_t arena = model_cell(r->model, PLAN_FUNCTIONS, (int64_t)r->call->function, FUNCTION_ARENA);
	int32_t status = TFMC_RT_OK;
	memset(f->param_bytes, 0, (size_t)f->n_params * sizeof(*f->param_bytes));
	memset(f->result_bytes, 0, (size_t)f->n_results * sizeof(*f->result_bytes));
	f->past_begin = f->past_end = 0;
	if (!tfmc_plan_value(&r->model->plan, arena, f->dims, &need->arena) || need->arena < 0)
		return fail_at(r, NULL, "the arena is too large");
	for (size_t i = 0; status == TFMC_RT_OK && i < f->n; i++) {
		struct model_launch *l = &f->launches[i];
		l->is_wanted = true;
		for (int k = 0; k < PLAN_DEPTH && l->wanted[k] >= 0; k++)
			l->is_wanted = l->is_wanted && is_any_wanted(r, l->wanted[k]);
		if (l->is_wanted)
			status = measure_launch(r, l, need);
	}
	if (status == TFMC_RT_OK && f->lengths >= 0)
		status = measure_area(r, NULL, f->lengths);
	return status;
}

static int32_t make_room(const struct run *r, const struct need *need)
{
	struct tfmc_cl_model *m = r->model;
	const struct model_where where = {r->f->name, NULL};
	int32_t status = model_grow(m, &where, &m->arena, need->arena);
	if (status == TFMC_RT_OK)
		status = model_grow(m, &where, &m->scratch, need->scratch);
	for (int64_t i = 0; status == TFMC_RT_OK && i < r->f->n_params; i++)
		if (r->f->param_bytes[i] > 0)
			status = model_grow(m, &where, &m->params[i], r->f->param_bytes[i]);
	for (int64_t i = 0; status == TFMC_RT_OK && i < r->f->n_results; i++)
		if (r->f->result_bytes[i] > 0)
			status = model_grow(m, &where, &m->results[i], r->f->result_bytes[i]);
	return status;
}

/* ---- arguments ---- */

static int32_t set_number(const struct run *r, struct model_launch *l, uint32_t index, int64_t value)
{
	struct model_arg *a = &r->f->args[l->first_arg + index];
	bool is_wide = tfmc_plan_header(&r->model->plan, PLAN_H_INDEX_BITS) == 64;
	int32_t narrow = (int32_t)value;
	struct tfmc_cl_error error;
	if (a->is_set && a->value == value)
		return TFMC_RT_OK;
	if (!is_wide && narrow != value)
		return fail_at(r, l, "a number of more than 32 bits");
	int status = is_wide ? tfmc_cl_kernel_set(l->handle, index, &value, sizeof(value), &error)
	                     : tfmc_cl_kernel_set(l->handle, index, &narrow, sizeof(narrow), &error);
	*a = (struct model_arg){value, status == TFMC_CL_OK};
	return checked_at(r, l, status, &error);
}

static int32_t set_memory(const struct run *r, struct model_launch *l, uint32_t index,
                          const struct model_memory *memory)
{
	struct model_arg *a = &r->f->args[l->first_arg + index];
	int64_t value = (int64_t)memory->serial;
	struct tfmc_cl_error error;
	if (a->is_set && a->value == value)
		return TFMC_RT_OK;
	int status = tfmc_cl_kernel_set_buffer(l->handle, index, memory->buffer, &error);
	*a = (struct model_arg){value, status == TFMC_CL_OK};
	return checked_at(r, l, status, &error);
}

static int32_t set_area(const struct run *r, struct model_launch *l, uint32_t index, bool is_offset,
                        int64_t area)
{
	struct span s;
	if (!find_span(r, l, area, &s) || !is_inside(&s))
		return fail_at(r, l, "the plan has an area outside of its memory");
	return is_offset ? set_number(r, l, index, s.begin) : set_memory(r, l, index, s.memory);
}

static int32_t set_arg(const struct run *r, struct model_launch *l, uint32_t index)
{
	const struct tfmc_cl_model *m = r->model;
	int64_t row = model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_ARGS_FIRST) + index;
	int64_t number = model_cell(m, PLAN_ARGS, row, ARG_NUMBER);
	int64_t area = model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_AREAS_FIRST) + number;
	switch ((enum plan_arg_kind)model_cell(m, PLAN_ARGS, row, ARG_KIND)) {
	case PLAN_BUFFER: return set_area(r, l, index, false, area);
	case PLAN_OFFSET: return set_area(r, l, index, true, area);
	case PLAN_DIM: return set_number(r, l, index, r->f->dims[number]);
	case PLAN_INDEX: return set_number(r, l, index, l->turns[number]);
	case PLAN_SOURCE_STEP: return set_number(r, l, index, r->call->source < 0);
	case PLAN_WORKER:
	case PLAN_WORKERS: break;
	}
	return fail_at(r, l, "an argument that no kernel of OpenCL has");
}

static int32_t set_launch(const struct run *r, struct model_launch *l)
{
	struct tfmc_cl_error error;
	int64_t n = model_cell(r->model, PLAN_KERNELS, l->kernel, KERNEL_ARGS_N);
	const char *name =
	        tfmc_plan_name(&r->model->plan, model_cell(r->model, PLAN_KERNELS, l->kernel, KERNEL_NAME));
	int32_t status = TFMC_RT_OK;
	if (!l->handle)
		status = checked_at(r, l, tfmc_cl_kernel_create(r->model->program, name, &l->handle, &error),
		                    &error);
	for (int64_t i = 0; status == TFMC_RT_OK && i < n; i++)
		status = set_arg(r, l, (uint32_t)i);
	return status;
}

static bool is_wanted(const struct tfmc_cl_call *call, int64_t result)
{
	return call->results[result].data != NULL;
}

static bool is_prepared(const struct run *r)
{
	const struct model_function *f = r->f;
	size_t n = (size_t)r->model->plan.rows[PLAN_DIMS] * sizeof(*f->dims);
	bool same = f->is_ready && f->serial == r->model->serial && f->first == r->call->first &&
	            f->source == r->call->source && !memcmp(f->dims, r->call->dims, n);
	for (int64_t i = 0; same && i < f->n_results; i++)
		same = f->wanted[i] == is_wanted(r->call, i);
	return same;
}

/* Afterwards the launches of this call need nothing but to be asked for. */
static int32_t prepare(const struct run *r)
{
	struct model_function *f = r->f;
	struct need need = {0};
	if (is_prepared(r))
		return TFMC_RT_OK;
	f->is_ready = false;
	f->first = r->call->first;
	f->source = r->call->source;
	for (int64_t i = 0; i < r->model->plan.rows[PLAN_DIMS]; i++)
		f->dims[i] = r->call->dims[i];
	for (int64_t i = 0; i < f->n_results; i++)
		f->wanted[i] = is_wanted(r->call, i);
	int32_t status = measure(r, &need);
	if (status == TFMC_RT_OK)
		status = make_room(r, &need);
	for (size_t i = 0; status == TFMC_RT_OK && i < f->n; i++)
		if (f->launches[i].is_wanted)
			status = set_launch(r, &f->launches[i]);
	f->serial = r->model->serial;
	f->is_ready = status == TFMC_RT_OK;
	return status;
}

/* ---- tensors of the caller ---- */

static int32_t check_tensors(const struct run *r)
{
	const struct model_function *f = r->f;
	const struct tfmc_cl_call *call = r->call;
	for (int64_t i = 0; i < f->n_params; i++)
		if (f->param_bytes[i] > 0 &&
		    (!call->params[i].data || call->params[i].count < (uint64_t)f->param_bytes[i]))
			return fail_at(r, NULL, "a parameter is smaller than what is read of it");
	for (int64_t i = 0; i < f->n_results; i++)
		if (f->wanted[i] && call->results[i].count < (uint64_t)f->result_bytes[i])
			return fail_at(r, NULL, "a result is smaller than what is written to it");
	return TFMC_RT_OK;
}

static int32_t upload(const struct run *r)
{
	struct tfmc_cl_model *m = r->model;
	const struct model_function *f = r->f;
	struct tfmc_cl_error error;
	int status = TFMC_CL_OK;
	if (f->past_end > f->past_begin)
		status = tfmc_cl_upload(m->state.buffer, (uint64_t)f->past_begin, r->call->past,
		                        (uint64_t)(f->past_end - f->past_begin), &error);
	for (int64_t i = 0; status == TFMC_CL_OK && i < f->n_params; i++)
		if (f->param_bytes[i] > 0)
			status = tfmc_cl_upload(m->params[i].buffer, 0, r->call->params[i].data,
			                        (uint64_t)f->param_bytes[i], &error);
	return checked_at(r, NULL, status, &error);
}

static int32_t download(const struct run *r)
{
	const struct model_function *f = r->f;
	struct tfmc_cl_error error;
	int status = TFMC_CL_OK;
	for (int64_t i = 0; status == TFMC_CL_OK && i < f->n_results; i++)
		if (f->wanted[i] && f->result_bytes[i] > 0)
			status = tfmc_cl_download(r->model->results[i].buffer, 0, r->call->results[i].data,
			                          (uint64_t)f->result_bytes[i], &error);
	return checked_at(r, NULL, status, &error);
}

/* The last that happens: the caller's lengths change when nothing can fail any more. */
static int32_t take_lengths(const struct run *r, const struct span *s)
{
	struct tfmc_cl_error error;
	if (s->bytes == 0)
		return checked_at(r, NULL, tfmc_cl_finish(r->model->context, &error), &error);
	int status = tfmc_cl_download(s->memory->buffer, (uint64_t)s->begin, r->model->lengths,
	                              (uint64_t)s->bytes, &error);
	if (status == TFMC_CL_OK)
		memcpy(r->call->past, r->model->lengths, (size_t)s->bytes);
	return checked_at(r, NULL, status, &error);
}

/* ---- calls ---- */

static int32_t launch_all(const struct run *r)
{
	struct tfmc_cl_error error;
	int status = TFMC_CL_OK;
	const struct model_launch *l = NULL;
	for (size_t i = 0; status == TFMC_CL_OK && i < r->f->n; i++) {
		l = &r->f->launches[i];
		if (!l->is_wanted)
			continue;
		const uint64_t groups[] = {(uint64_t)l->groups, 1};
		const uint64_t items[] = {
		        (uint64_t)model_cell(r->model, PLAN_KERNELS, l->kernel, KERNEL_ITEMS), 1};
		status = tfmc_cl_launch(l->handle, groups, items, &error);
	}
	return checked_at(r, l, status, &error);
}

/* Where the new lengths are; bytes 0: nowhere. */
static int32_t find_lengths(const struct run *r, struct span *s)
{
	const struct model_function *f = r->f;
	int64_t room = ((int64_t)r->model->code.batch - r->call->first) * (int64_t)sizeof(int32_t);
	*s = (struct span){0};
	if (f->lengths >= 0 && (!find_span(r, NULL, f->lengths, s) || !is_inside(s) || s->bytes > room))
		return fail_at(r, NULL, "the plan has lengths outside of their memory");
	if (f->past_end - f->past_begin > room)
		return fail_at(r, NULL, "the plan has more lengths than sequences");
	if ((s->bytes > 0 || f->past_end > 0) && !r->call->past)
		return fail_at(r, NULL, "the call has no lengths");
	return TFMC_RT_OK;
}

static int32_t run(const struct run *r)
{
	struct span lengths;
	int32_t status = prepare(r);
	if (status == TFMC_RT_OK)
		status = check_tensors(r);
	if (status == TFMC_RT_OK)
		status = find_lengths(r, &lengths);
	if (status == TFMC_RT_OK)
		status = upload(r);
	if (status == TFMC_RT_OK)
		status = launch_all(r);
	if (status == TFMC_RT_OK)
		status = download(r);
	if (status == TFMC_RT_OK)
		status = take_lengths(r, &lengths);
	return status;
}

int32_t tfmc_cl_model_call(struct tfmc_cl_model *m, const struct tfmc_cl_call *call)
{
	static const struct model_where nowhere;
	int64_t batch = (int64_t)m->code.batch;
	if (call->function >= (uint64_t)m->plan.rows[PLAN_FUNCTIONS])
		return model_fail(m, &nowhere, "there is no function %" PRIu64, call->function);
	const struct run r = {m, &m->functions[call->function], call};
	if (call->first < 0 || call->first > batch || call->source < -1 ||
	    (call->source >= batch && batch > 0))
		return fail_at(&r, NULL, "there are no such sequences");
	return run(&r);
}
