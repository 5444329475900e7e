/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preparation of a plan: the launches of each function with repeats unrolled, and the split of the weights
 * into buffers of the size that the device allows.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/model_internal.h"

#define COMMANDS_MAX ((size_t)1 << 17) /* commands of a function, repeats unrolled */
#define ARGS_MAX     ((size_t)1 << 22)
#define TENSORS_MAX  ((int64_t)1 << 16) /* parameters or results of a function */
#define PAGE         4096

/* ---- launches ---- */

struct unroller {
	struct tfmc_cl_model *model;
	struct model_function *f;
	size_t cap, n_args;
	int64_t open[PLAN_DEPTH]; /* open REPEAT and IF_WANTED commands */
	int64_t indices[PLAN_REPEATS];
	int depth, repeats, skipping; /* skipping: open repeats with count 0 */
};

static bool is_repeat(const struct unroller *w, int64_t command)
{
	return model_cell(w->model, PLAN_COMMANDS, command, COMMAND_KIND) == PLAN_REPEAT;
}

/* Appends a launch with the open repeats' indices and conditions. False: no memory. */
static bool add_launch(struct unroller *w, int64_t kernel)
{
	struct model_function *f = w->f;
	if (f->n == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 64;
		struct model_launch *more = realloc(f->launches, cap * sizeof(*more));
		if (!more)
			return false;
		f->launches = more;
		w->cap = cap;
	}
	struct model_launch *l = &f->launches[f->n++];
	*l = (struct model_launch){.kernel = kernel, .first_arg = w->n_args};
	memcpy(l->indices, w->indices, sizeof(l->indices));
	int n = 0;
	for (int i = 0; i < w->depth; i++)
		if (!is_repeat(w, w->open[i]))
			l->wanted[n++] = w->open[i];
	while (n < PLAN_DEPTH)
		l->wanted[n++] = -1;
	w->n_args += (size_t)model_kernel(w->model, l, KERNEL_ARGS_N);
	return true;
}

static void open_block(struct unroller *w, int64_t command)
{
	w->open[w->depth++] = command;
	w->repeats += is_repeat(w, command);
	w->skipping += is_repeat(w, command) && model_cell(w->model, PLAN_COMMANDS, command, COMMAND_B) == 0;
}

/* Ends the innermost block, or an iteration of it. Returns the command before the next one to execute. */
static int64_t close_block(struct unroller *w, int64_t end)
{
	int64_t command = w->open[w->depth - 1],
	        count = model_cell(w->model, PLAN_COMMANDS, command, COMMAND_B);
	if (is_repeat(w, command) && ++w->indices[w->repeats - 1] < count)
		return command;
	w->depth--;
	if (is_repeat(w, command)) {
		w->indices[--w->repeats] = 0;
		w->skipping -= count == 0;
	}
	return end;
}

/* Interprets the commands of a function and collects its launches. */
static int32_t unroll_commands(struct unroller *w, int64_t first, int64_t end)
{
	const struct model_site where = {w->f->name, NULL};
	size_t executed = 0;
	for (int64_t at = first; at < end; at++) {
		if (++executed > COMMANDS_MAX || w->n_args > ARGS_MAX)
			return model_fail(w->model, &where, "there are too many launches");
		switch ((enum plan_command_kind)model_cell(w->model, PLAN_COMMANDS, at, COMMAND_KIND)) {
		case PLAN_DISPATCH:
			if (w->skipping == 0 &&
			    !add_launch(w, model_cell(w->model, PLAN_COMMANDS, at, COMMAND_A)))
				return model_no_memory(w->model);
			break;
		case PLAN_REPEAT:
		case PLAN_IF_WANTED: open_block(w, at); break;
		case PLAN_END: at = close_block(w, at); break;
		case PLAN_LENGTHS: w->f->lengths = model_cell(w->model, PLAN_COMMANDS, at, COMMAND_A); break;
		case PLAN_IF_SPLIT:       /* never in a file */
		case PLAN_BARRIER: break; /* an in-order queue needs none */
		}
	}
	return TFMC_RT_OK;
}

/* Zeroed memory for n + 1 elements: never an allocation of 0 bytes. */
static void *allocate(int64_t n, size_t size)
{
	return calloc((size_t)n + 1, size);
}

static int32_t unroll_function(struct tfmc_cl_model *m, int64_t row)
{
	struct model_function *f = &m->functions[row];
	struct unroller w = {.model = m, .f = f};
	int64_t first = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_FIRST);
	*f = (struct model_function){
	        .name = tfmc_plan_name(&m->plan, model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_NAME)),
	        .lengths = -1,
	        .n_params = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_PARAMS),
	        .n_results = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_RESULTS)};
	const struct model_site where = {f->name, NULL};
	if (f->n_params > TENSORS_MAX || f->n_results > TENSORS_MAX)
		return model_fail(m, &where, "there are too many tensors");
	TRY(unroll_commands(&w, first, first + model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_N)));
	f->args = allocate((int64_t)w.n_args, sizeof(*f->args));
	f->dims = allocate(m->plan.rows[PLAN_DIMS] + f->n_params + f->n_results, sizeof(*f->dims));
	f->wanted = allocate(f->n_results, sizeof(*f->wanted));
	if (!f->args || !f->dims || !f->wanted)
		return model_no_memory(m);
	f->param_bytes = f->dims + m->plan.rows[PLAN_DIMS];
	f->result_bytes = f->param_bytes + f->n_params;
	m->n_params = f->n_params > m->n_params ? f->n_params : m->n_params;
	m->n_results = f->n_results > m->n_results ? f->n_results : m->n_results;
	return TFMC_RT_OK;
}

int32_t model_build_launches(struct tfmc_cl_model *m)
{
	int64_t n = m->plan.rows[PLAN_FUNCTIONS];
	m->functions = allocate(n, sizeof(*m->functions));
	if (!m->functions)
		return model_no_memory(m);
	for (int64_t i = 0; i < n; i++)
		TRY(unroll_function(m, i));
	m->params = allocate(m->n_params, sizeof(*m->params));
	m->results = allocate(m->n_results, sizeof(*m->results));
	return m->params && m->results ? TFMC_RT_OK : model_no_memory(m);
}

/* ---- weights ---- */

/* `end`, or the begin of the first weight area of the launch that contains it. Offsets of weights depend on
 * no dim, so any dims will do; a call reports an area that is in no piece. */
static int64_t before_crossing_area(const struct tfmc_cl_model *m, const struct model_launch *l, int64_t end)
{
	const int64_t *dims = m->functions[0].dims;
	int64_t first = model_kernel(m, l, KERNEL_AREAS_FIRST), at = end, begin, bytes;
	for (int64_t i = first; i < first + model_kernel(m, l, KERNEL_AREAS_N); i++)
		if (model_cell(m, PLAN_AREAS, i, AREA_C_MEMORY) == AREA_WEIGHTS &&
		    tfmc_plan_area(&m->plan, i, dims, l->indices, &begin, &bytes) && begin < at &&
		    at < begin + bytes)
			at = begin;
	return at;
}

/* The largest offset <= end that is inside no weight area of any launch. */
static int64_t find_split(const struct tfmc_cl_model *m, int64_t end)
{
	int64_t before = end + 1;
	while (end < before) {
		before = end;
		for (int64_t i = 0; i < m->plan.rows[PLAN_FUNCTIONS]; i++)
			for (size_t k = 0; k < m->functions[i].n; k++)
				end = before_crossing_area(m, &m->functions[i].launches[k], end);
	}
	return end;
}

static int32_t add_piece(struct tfmc_cl_model *m, int64_t begin, int64_t end)
{
	const char *data = m->code.weights;
	struct model_piece *more = realloc(m->pieces, (m->n_pieces + 1) * sizeof(*more));
	if (!more)
		return model_no_memory(m);
	m->pieces = more;
	struct model_piece *p = &m->pieces[m->n_pieces++];
	*p = (struct model_piece){{NULL, ++m->serial}, begin, end};
	int status = tfmc_cl_buffer_share(m->context, data ? data + begin : NULL, (uint64_t)(end - begin),
	                                  &p->memory.buffer, &m->error);
	return model_status(m, NULL, status);
}

/* Pieces begin at a page boundary, so that they can be shared with the device; adjacent pieces may overlap
 * by a part of a page. */
int32_t model_upload_weights(struct tfmc_cl_model *m)
{
	int64_t bytes = (int64_t)m->code.weights_bytes, begin = 0, end = 0;
	while (end < bytes || m->n_pieces == 0) {
		begin = end / PAGE * PAGE;
		bool is_last = (uint64_t)(bytes - begin) <= m->chosen->largest;
		int64_t split = is_last ? bytes : find_split(m, begin + (int64_t)m->chosen->largest);
		if (split <= end && !is_last)
			return model_fail(m, NULL,
			                  "a kernel reads more weights than the %" PRIu64
			                  " bytes that the device gives at most in one buffer",
			                  m->chosen->largest);
		TRY(add_piece(m, begin, split));
		end = split;
	}
	return TFMC_RT_OK;
}
