/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans before the first call: the launches of each function, and the weights in buffers that its device can give.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/opencl/model/internal.h"

#define WALK_MAX ((size_t)1 << 17) /* steps of a function, repeats expanded */
#define ARGS_MAX ((size_t)1 << 22)
#define TENSORS  ((int64_t)1 << 16) /* parameters or results of a function */
#define PAGE     4096

static int32_t no_memory(const struct tfmc_cl_model *m)
{
	return model_fail(m, NULL, "memory could not be allocated");
}

/* ---- launches ---- */

struct walk {
	struct tfmc_cl_model *model;
	struct model_function *f;
	size_t cap, n_args;
	struct {
		int64_t step, count; /* 0 for what is no repeat */
		bool is_repeat;
	} open[PLAN_DEPTH];
	int depth, repeats, dead; /* dead: repeats of no turn */
	int64_t turns[PLAN_REPEATS];
};

static bool add_launch(struct walk *w, int64_t step)
{
	struct model_function *f = w->f;
	int64_t kernel = model_cell(w->model, PLAN_STEPS, step, STEP_A);
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
	for (int i = 0; i < PLAN_REPEATS; i++)
		l->turns[i] = w->turns[i];
	int n = 0;
	for (int i = 0; i < w->depth; i++)
		if (!w->open[i].is_repeat)
			l->wanted[n++] = w->open[i].step;
	while (n < PLAN_DEPTH)
		l->wanted[n++] = -1;
	w->n_args += (size_t)model_cell(w->model, PLAN_KERNELS, kernel, KERNEL_ARGS_N);
	return true;
}

static void open_step(struct walk *w, int64_t step, bool is_repeat)
{
	int64_t count = is_repeat ? model_cell(w->model, PLAN_STEPS, step, STEP_B) : 0;
	w->open[w->depth].step = step;
	w->open[w->depth].count = count;
	w->open[w->depth++].is_repeat = is_repeat;
	w->repeats += is_repeat;
	w->dead += is_repeat && count == 0;
}

/* The step that comes before the next one. */
static int64_t close_step(struct walk *w, int64_t step)
{
	int64_t count = w->open[w->depth - 1].count;
	bool is_repeat = w->open[w->depth - 1].is_repeat;
	if (is_repeat && ++w->turns[w->repeats - 1] < count)
		return w->open[w->depth - 1].step;
	w->depth--;
	if (is_repeat)
		w->turns[--w->repeats] = 0;
	w->dead -= is_repeat && count == 0;
	return step;
}

static int32_t walk(struct walk *w, int64_t first, int64_t end)
{
	const struct model_where where = {w->f->name, NULL};
	size_t walked = 0;
	for (int64_t at = first; at < end; at++) {
		if (++walked > WALK_MAX || w->n_args > ARGS_MAX)
			return model_fail(w->model, &where, "there are too many launches");
		switch ((enum plan_step_kind)model_cell(w->model, PLAN_STEPS, at, STEP_KIND)) {
		case PLAN_KERNEL:
			if (w->dead == 0 && !add_launch(w, at))
				return no_memory(w->model);
			break;
		case PLAN_REPEAT: open_step(w, at, true); break;
		case PLAN_WANTED: open_step(w, at, false); break;
		case PLAN_SPLIT: return model_fail(w->model, &where, "a step of several workers");
		case PLAN_END: at = close_step(w, at); break;
		case PLAN_LENGTHS: w->f->lengths = model_cell(w->model, PLAN_STEPS, at, STEP_A); break;
		case PLAN_BARRIER: /* one queue, in order */
		case PLAN_FILL:    /* the object's */
		case PLAN_RING:
		case PLAN_ENCODED: break;
		}
	}
	return TFMC_RT_OK;
}

/* Room for n and at least one. */
static void *make(int64_t n, size_t size)
{
	return calloc((size_t)n + 1, size);
}

static int32_t expand(struct tfmc_cl_model *m, int64_t row)
{
	struct model_function *f = &m->functions[row];
	const struct model_where where = {f->name, NULL};
	struct walk w = {.model = m, .f = f};
	int64_t first = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_STEPS_FIRST);
	int64_t n = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_STEPS_N);
	f->n_params = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_PARAMS);
	f->n_results = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_RESULTS);
	if (f->n_params > TENSORS || f->n_results > TENSORS)
		return model_fail(m, &where, "there are too many tensors");
	int32_t status = walk(&w, first, first + n);
	if (status != TFMC_RT_OK)
		return status;
	f->args = make((int64_t)w.n_args, sizeof(*f->args));
	f->dims = make(m->plan.rows[PLAN_DIMS], sizeof(*f->dims));
	f->wanted = make(f->n_results, sizeof(*f->wanted));
	f->param_bytes = make(f->n_params, sizeof(*f->param_bytes));
	f->result_bytes = make(f->n_results, sizeof(*f->result_bytes));
	m->n_params = f->n_params > m->n_params ? f->n_params : m->n_params;
	m->n_results = f->n_results > m->n_results ? f->n_results : m->n_results;
	return f->args && f->dims && f->wanted && f->param_bytes && f->result_bytes ? TFMC_RT_OK
	                                                                            : no_memory(m);
}

int32_t model_expand(struct tfmc_cl_model *m)
{
	int64_t n = m->plan.rows[PLAN_FUNCTIONS];
	int32_t status = TFMC_RT_OK;
	m->functions = make(n, sizeof(*m->functions));
	if (!m->functions)
		return no_memory(m);
	for (int64_t i = 0; status == TFMC_RT_OK && i < n; i++) {
		m->functions[i].name =
		        tfmc_plan_name(&m->plan, model_cell(m, PLAN_FUNCTIONS, i, FUNCTION_NAME));
		m->functions[i].lengths = -1;
		status = expand(m, i);
	}
	if (status != TFMC_RT_OK)
		return status;
	m->params = make(m->n_params, sizeof(*m->params));
	m->results = make(m->n_results, sizeof(*m->results));
	return m->params && m->results ? TFMC_RT_OK : no_memory(m);
}

/* ---- weights ---- */

/* Bytes [begin, end) that a launch reads. */
struct range {
	int64_t begin, end;
};

struct ranges {
	struct range *items;
	size_t n, cap;
};

static bool add_range(struct ranges *r, struct range item)
{
	if (r->n == r->cap) {
		size_t cap = r->cap ? 2 * r->cap : 256;
		struct range *more = realloc(r->items, cap * sizeof(*more));
		if (!more)
			return false;
		r->items = more;
		r->cap = cap;
	}
	r->items[r->n++] = item;
	return true;
}

/* Weights lie where they lie for any dims; where they should not, a call finds that an area is in no piece. */
static bool add_launch_ranges(const struct tfmc_cl_model *m, const struct model_launch *l,
                              const int64_t *dims, struct ranges *out)
{
	int64_t first = model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_AREAS_FIRST);
	int64_t n = model_cell(m, PLAN_KERNELS, l->kernel, KERNEL_AREAS_N);
	bool ok = true;
	for (int64_t i = first; ok && i < first + n; i++) {
		int64_t begin, bytes;
		if (model_cell(m, PLAN_AREAS, i, AREA_C_MEMORY) == AREA_WEIGHTS &&
		    tfmc_plan_area(&m->plan, i, dims, l->turns, &begin, &bytes))
			ok = add_range(out, (struct range){begin, begin + bytes});
	}
	return ok;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a, *y = b;
	return (x->begin > y->begin) - (x->begin < y->begin);
}

static bool collect_ranges(const struct tfmc_cl_model *m, struct ranges *out)
{
	int64_t n_dims = m->plan.rows[PLAN_DIMS];
	int64_t *dims = make(n_dims, sizeof(*dims));
	bool ok = dims != NULL;
	for (int64_t i = 0; ok && i < n_dims; i++)
		dims[i] = model_cell(m, PLAN_DIMS, i, DIM_LO);
	for (int64_t i = 0; ok && i < m->plan.rows[PLAN_FUNCTIONS]; i++)
		for (size_t k = 0; ok && k < m->functions[i].n; k++)
			ok = add_launch_ranges(m, &m->functions[i].launches[k], dims, out);
	free(dims);
	if (ok && out->n > 1)
		qsort(out->items, out->n, sizeof(*out->items), compare_ranges);
	return ok;
}

static int32_t add_piece(struct tfmc_cl_model *m, int64_t begin, int64_t end)
{
	struct tfmc_cl_error error;
	struct model_piece *more = realloc(m->pieces, (m->n_pieces + 1) * sizeof(*more));
	if (!more)
		return no_memory(m);
	m->pieces = more;
	struct model_piece *p = &m->pieces[m->n_pieces++];
	*p = (struct model_piece){.memory.serial = ++m->serial, .begin = begin, .end = end};
	const char *data = m->code.weights;
	int status = tfmc_cl_buffer_share(m->context, data ? data + begin : NULL, (uint64_t)(end - begin),
	                                  &p->memory.buffer, &error);
	return model_checked(m, NULL, status, &error);
}

/* Pieces end where no launch reads over the end, and begin with a page, so that they may be shared. */
static int32_t split(struct tfmc_cl_model *m, const struct ranges *r, int64_t bytes)
{
	int64_t begin = 0, end = 0;
	int32_t status = TFMC_RT_OK;
	for (size_t i = 0, next; status == TFMC_RT_OK && i < r->n; i = next) {
		struct range all = r->items[i]; /* and what overlaps it */
		for (next = i + 1; next < r->n && r->items[next].begin < all.end; next++)
			all.end = r->items[next].end > all.end ? r->items[next].end : all.end;
		if (all.end > bytes)
			return model_fail(m, NULL, "there are weights behind the last one");
		if ((uint64_t)(all.end - begin) > m->chosen->largest && end > begin) {
			status = add_piece(m, begin, end);
			begin = all.begin / PAGE * PAGE;
		}
		end = all.end;
	}
	return status == TFMC_RT_OK ? add_piece(m, begin, end) : status;
}

int32_t model_place_weights(struct tfmc_cl_model *m)
{
	struct ranges ranges = {0};
	int64_t bytes = (int64_t)m->code.weights_bytes;
	if (m->code.weights_bytes <= m->chosen->largest)
		return add_piece(m, 0, bytes);
	int32_t status = collect_ranges(m, &ranges) ? split(m, &ranges, bytes) : no_memory(m);
	free(ranges.items);
	return status;
}
