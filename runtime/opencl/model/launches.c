/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans before the first call: the launches of each function, and the weights in buffers that its device can give.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/model/internal.h"

#define WALK_MAX ((size_t)1 << 17) /* steps of a function, repeats expanded */
#define ARGS_MAX ((size_t)1 << 22)
#define TENSORS  ((int64_t)1 << 16) /* parameters or results of a function */
#define PAGE     4096

/* ---- launches ---- */

struct walk {
	struct tfmc_cl_model *model;
	struct model_function *f;
	size_t cap, n_args;
	int64_t open[PLAN_DEPTH]; /* steps REPEAT and WANTED */
	int64_t turns[PLAN_REPEATS];
	int depth, repeats, dead; /* dead: repeats of no turn */
};

static bool is_repeat(const struct walk *w, int64_t step)
{
	return model_cell(w->model, PLAN_COMMANDS, step, COMMAND_KIND) == PLAN_REPEAT;
}

static bool add_launch(struct walk *w, int64_t kernel)
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
	memcpy(l->turns, w->turns, sizeof(l->turns));
	int n = 0;
	for (int i = 0; i < w->depth; i++)
		if (!is_repeat(w, w->open[i]))
			l->wanted[n++] = w->open[i];
	while (n < PLAN_DEPTH)
		l->wanted[n++] = -1;
	w->n_args += (size_t)model_kernel(w->model, l, KERNEL_ARGS_N);
	return true;
}

static void open_step(struct walk *w, int64_t step)
{
	w->open[w->depth++] = step;
	w->repeats += is_repeat(w, step);
	w->dead += is_repeat(w, step) && model_cell(w->model, PLAN_COMMANDS, step, COMMAND_B) == 0;
}

/* Ends what was opened last, or its turn. Returns the step before the next one. */
static int64_t close_step(struct walk *w, int64_t end)
{
	int64_t step = w->open[w->depth - 1], count = model_cell(w->model, PLAN_COMMANDS, step, COMMAND_B);
	if (is_repeat(w, step) && ++w->turns[w->repeats - 1] < count)
		return step;
	w->depth--;
	if (is_repeat(w, step)) {
		w->turns[--w->repeats] = 0;
		w->dead -= count == 0;
	}
	return end;
}

static int32_t walk(struct walk *w, int64_t first, int64_t end)
{
	const struct model_site where = {w->f->name, NULL};
	size_t walked = 0;
	for (int64_t at = first; at < end; at++) {
		if (++walked > WALK_MAX || w->n_args > ARGS_MAX)
			return model_fail(w->model, &where, "there are too many launches");
		switch ((enum plan_command_kind)model_cell(w->model, PLAN_COMMANDS, at, COMMAND_KIND)) {
		case PLAN_DISPATCH:
			if (w->dead == 0 &&
			    !add_launch(w, model_cell(w->model, PLAN_COMMANDS, at, COMMAND_A)))
				return model_no_memory(w->model);
			break;
		case PLAN_REPEAT:
		case PLAN_IF_WANTED: open_step(w, at); break;
		case PLAN_END: at = close_step(w, at); break;
		case PLAN_LENGTHS: w->f->lengths = model_cell(w->model, PLAN_COMMANDS, at, COMMAND_A); break;
		case PLAN_IF_SPLIT:       /* in no file */
		case PLAN_BARRIER: break; /* one queue, in order */
		}
	}
	return TFMC_RT_OK;
}

/* Room for n, and one more. */
static void *make(int64_t n, size_t size)
{
	return calloc((size_t)n + 1, size);
}

static int32_t expand(struct tfmc_cl_model *m, int64_t row)
{
	struct model_function *f = &m->functions[row];
	struct walk w = {.model = m, .f = f};
	int64_t first = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_FIRST);
	*f = (struct model_function){
	        .name = tfmc_plan_name(&m->plan, model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_NAME)),
	        .lengths = -1,
	        .n_params = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_PARAMS),
	        .n_results = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_RESULTS)};
	const struct model_site where = {f->name, NULL};
	if (f->n_params > TENSORS || f->n_results > TENSORS)
		return model_fail(m, &where, "there are too many tensors");
	TRY(walk(&w, first, first + model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_N)));
	f->args = make((int64_t)w.n_args, sizeof(*f->args));
	f->dims = make(m->plan.rows[PLAN_DIMS] + f->n_params + f->n_results, sizeof(*f->dims));
	f->wanted = make(f->n_results, sizeof(*f->wanted));
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
	m->functions = make(n, sizeof(*m->functions));
	if (!m->functions)
		return model_no_memory(m);
	for (int64_t i = 0; i < n; i++)
		TRY(expand(m, i));
	m->params = make(m->n_params, sizeof(*m->params));
	m->results = make(m->n_results, sizeof(*m->results));
	return m->params && m->results ? TFMC_RT_OK : model_no_memory(m);
}

/* ---- weights ---- */

/*
 * `end`, or where the first area begins that reaches over it; weights lie at the same places for all dims. Where they do
 * not, a call finds that an area lies in no piece.
 */
static int64_t before_areas(const struct tfmc_cl_model *m, const struct model_launch *l, int64_t end)
{
	const int64_t *dims = m->functions[0].dims;
	int64_t first = model_kernel(m, l, KERNEL_AREAS_FIRST), at = end, begin, bytes;
	for (int64_t i = first; i < first + model_kernel(m, l, KERNEL_AREAS_N); i++)
		if (model_cell(m, PLAN_AREAS, i, AREA_C_MEMORY) == AREA_WEIGHTS &&
		    tfmc_plan_area(&m->plan, i, dims, l->turns, &begin, &bytes) && begin < at &&
		    at < begin + bytes)
			at = begin;
	return at;
}

/* The last place up to `end` that no launch reads over. */
static int64_t find_cut(const struct tfmc_cl_model *m, int64_t end)
{
	int64_t before = end + 1;
	while (end < before) {
		before = end;
		for (int64_t i = 0; i < m->plan.rows[PLAN_FUNCTIONS]; i++)
			for (size_t k = 0; k < m->functions[i].n; k++)
				end = before_areas(m, &m->functions[i].launches[k], end);
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

/* Pieces begin with a page, so that they may be shared; a part of it may be in two. */
int32_t model_upload_weights(struct tfmc_cl_model *m)
{
	int64_t bytes = (int64_t)m->code.weights_bytes, begin = 0, end = 0;
	while (end < bytes || m->n_pieces == 0) {
		begin = end / PAGE * PAGE;
		bool is_last = (uint64_t)(bytes - begin) <= m->chosen->largest;
		int64_t cut = is_last ? bytes : find_cut(m, begin + (int64_t)m->chosen->largest);
		if (cut <= end && !is_last)
			return model_fail(m, NULL,
			                  "a kernel reads more weights than the %" PRIu64
			                  " bytes that the device gives at most in one buffer",
			                  m->chosen->largest);
		TRY(add_piece(m, begin, cut));
		end = cut;
	}
	return TFMC_RT_OK;
}
