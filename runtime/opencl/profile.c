/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of kernels by events, and what a device can do at best.
 */
#include <stdio.h>

#include "runtime/opencl/internal.h"

/* ---- events ---- */

/* Everything that was asked for of the old queue is done when there is a new one. */
static int keep_times(struct tfmc_cl_context *c, struct tfmc_cl_error *error)
{
	cl_int code = CL_SUCCESS;
	if (c->is_timed)
		return TFMC_CL_OK;
	TRY(tfmc_cl_finish(c, error));
	cl_command_queue queue =
	        c->calls->clCreateCommandQueue(c->context, c->entry->id, CL_QUEUE_PROFILING_ENABLE, &code);
	TRY(cl_check_created(queue, code, "clCreateCommandQueue", error));
	(void)c->calls->clReleaseCommandQueue(c->queue);
	c->queue = queue;
	c->is_timed = true;
	return TFMC_CL_OK;
}

int tfmc_cl_launch_timed(struct tfmc_cl_kernel *k, const uint64_t groups[2], const uint64_t items[2],
                         struct tfmc_cl_event **out, struct tfmc_cl_error *error)
{
	cl_event event = NULL;
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "there is no place for the result");
	*out = NULL;
	if (!k)
		return cl_fail(error, TFMC_CL_E_NULL, "there is no kernel");
	TRY(keep_times(k->context, error));
	TRY(cl_launch(k, groups, items, &event, error));
	*out = (struct tfmc_cl_event *)event;
	return TFMC_CL_OK;
}

static int read_time(const struct cl_calls *calls, cl_event event, uint64_t *nanoseconds,
                     struct tfmc_cl_error *error)
{
	struct cl_query q = {
	        calls, CL_QUERY_EVENT, event, NULL, CL_PROFILING_COMMAND_START, "clGetEventProfilingInfo"};
	cl_ulong begin = 0, end = 0;
	TRY(CL_CALL(calls, clWaitForEvents, error, 1, &event));
	TRY(cl_query_value(&q, &begin, sizeof(begin), error));
	q.what = CL_PROFILING_COMMAND_END;
	TRY(cl_query_value(&q, &end, sizeof(end), error));
	if (end < begin)
		return cl_fail(error, TFMC_CL_E_ANSWER, "%s: a kernel ends before it begins", q.name);
	*nanoseconds = end - begin;
	return TFMC_CL_OK;
}

int tfmc_cl_event_wait(const struct tfmc_cl_context *c, struct tfmc_cl_event *event, uint64_t *nanoseconds,
                       struct tfmc_cl_error *error)
{
	if (!c || !event || !nanoseconds)
		return cl_fail(error, TFMC_CL_E_NULL,
		               "there is no context, no event, or no place for the result");
	int status = read_time(c->calls, (cl_event)event, nanoseconds, error);
	(void)c->calls->clReleaseEvent((cl_event)event);
	return status;
}

/* ---- roofs ---- */

#define ITEMS       64
#define GROUPS_CPU  4 /* for each compute unit */
#define GROUPS      16
#define CHAINS      14 /* of a work-item, independent */
#define PLACES      4  /* that it reads at once */
#define BYTES_MAX   ((uint64_t)512 << 20)
#define REPEATS_MAX (1 << 24)
#define RUNS        40 /* that take long enough; one of them is not disturbed */
#define RUNS_MAX    80
#define LONG_ENOUGH 3000000 /* nanoseconds */

/*
 * F is float or a vector of them, I and U integers like it, W what is read at once. Values are not known to the compiler
 * and stay small. `dot` is what kernels have (backends/print_opencl). A group reads PLACES parts of `last` words W.
 */
static const char roofs_text[] =
        "#pragma OPENCL FP_CONTRACT ON\n"
        "#define ALL(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13)\n"
        "#define FLOATS(i) F a##i = x + i;\n"
        "#define WORDS(i) U a##i = as_U(x) + i;\n"
        "#define MULTIPLY(i) a##i = a##i * x + x;\n"
        "#define DOT(i) a##i = dot(a##i, x, a##i);\n"
        "#define SUM(i) s += a##i;\n"
        "static U dot(U s, I x, U y)\n"
        "{\n"
        "	s += as_U(x << 24 >> 24) * (y << 24 >> 24);\n"
        "	s += as_U(x << 16 >> 24) * (y << 16 >> 24);\n"
        "	s += as_U(x << 8 >> 24) * (y << 8 >> 24);\n"
        "	return s + as_U(x >> 24) * (y >> 24);\n"
        "}\n"
        "__kernel void multiply_floats(int n, __global F *to, int last)\n"
        "{\n"
        "	F x = 1.0f / last, s = 0;\n"
        "	ALL(FLOATS)\n"
        "	for (int k = 0; k < n; k++) { ALL(MULTIPLY) }\n"
        "	ALL(SUM)\n"
        "	to[get_global_id(0)] = s;\n"
        "}\n"
        "__kernel void multiply_bytes(int n, __global U *to, int last)\n"
        "{\n"
        "	I x = last * 0x01010101;\n"
        "	U s = 0;\n"
        "	ALL(WORDS)\n"
        "	for (int k = 0; k < n; k++) { ALL(DOT) }\n"
        "	ALL(SUM)\n"
        "	to[get_global_id(0)] = s;\n"
        "}\n"
        "__kernel void read(int n, __global W *to, int last, __global const W *from)\n"
        "{\n"
        "	W a = 0, b = 0, c = 0, d = 0;\n"
        "	int step = get_local_size(0);\n"
        "	from += get_group_id(0) * 4 * (size_t)last + get_local_id(0);\n"
        "	for (int k = 0; k < n; k++)\n"
        "		for (int i = 0; i < last; i += step) {\n"
        "			a += from[i], b += from[i + last];\n"
        "			c += from[i + 2 * last], d += from[i + 3 * last];\n"
        "		}\n"
        "	to[get_global_id(0)] = a + b + c + d;\n"
        "}\n";

struct roofs {
	struct tfmc_cl_context *context;
	struct tfmc_cl_program *program;
	struct tfmc_cl_buffer *to, *from;
	uint64_t groups, items;
	uint64_t lanes, lanes_read; /* 32-bit numbers of F, of W */
};

/* A kernel, and what all its work-groups do in a repeat. */
struct loop {
	const char *name;
	const struct tfmc_cl_buffer *from; /* NULL: it reads nothing */
	uint64_t groups;
	double amount;
	int32_t last;
};

/* Launches a kernel with more and more repeats until it takes long enough. *rate: that of the fastest. */
static int repeat(const struct roofs *r, const struct loop *l, struct tfmc_cl_kernel *k, double *rate,
                  struct tfmc_cl_error *error)
{
	const uint64_t groups[] = {l->groups, 1}, items[] = {r->items, 1};
	int32_t n = 1;
	for (int run = 0, left = RUNS; run < RUNS_MAX && left > 0; run++) {
		struct tfmc_cl_event *event;
		uint64_t spent = 0;
		TRY(tfmc_cl_kernel_set(k, 0, &n, sizeof(n), error));
		TRY(tfmc_cl_launch_timed(k, groups, items, &event, error));
		TRY(tfmc_cl_event_wait(r->context, event, &spent, error));
		double now = spent > 0 ? l->amount * n / ((double)spent * 1e-9) : 0;
		*rate = now > *rate ? now : *rate;
		left -= spent >= LONG_ENOUGH;
		n = spent < LONG_ENOUGH && n < REPEATS_MAX ? 2 * n : n;
	}
	return TFMC_CL_OK;
}

static int measure(const struct roofs *r, const struct loop *l, double *rate, struct tfmc_cl_error *error)
{
	struct tfmc_cl_kernel *k;
	int status = tfmc_cl_kernel_create(r->program, l->name, &k, error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_kernel_set_buffer(k, 1, r->to, error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_kernel_set(k, 2, &l->last, sizeof(l->last), error);
	if (status == TFMC_CL_OK && l->from)
		status = tfmc_cl_kernel_set_buffer(k, 3, l->from, error);
	if (status == TFMC_CL_OK)
		status = repeat(r, l, k, rate, error);
	tfmc_cl_kernel_free(k);
	return status;
}

static int measure_read(const struct roofs *r, double *rate, struct tfmc_cl_error *error)
{
	uint64_t bytes = tfmc_cl_buffer_bytes(r->from);
	uint64_t step = 4 * r->lanes_read * r->items * PLACES; /* bytes of a group at once */
	uint64_t groups = bytes / step < r->groups ? bytes / step : r->groups;
	if (groups == 0)
		return TFMC_CL_OK;
	uint64_t steps = bytes / groups / step;
	const struct loop l = {"read", r->from, groups, (double)(steps * step * groups),
	                       (int32_t)(steps * r->items)};
	return measure(r, &l, rate, error);
}

static int measure_all(const struct roofs *r, struct tfmc_cl_peaks *out, struct tfmc_cl_error *error)
{
	double floats = 2.0 * CHAINS * (double)(r->groups * r->items * r->lanes);
	const struct loop multiply = {"multiply_floats", NULL, r->groups, floats, 2};
	const struct loop dot = {"multiply_bytes", NULL, r->groups, 4 * floats, 1};
	TRY(measure(r, &multiply, &out->f32, error));
	TRY(measure(r, &dot, &out->int8, error));
	return measure_read(r, &out->bytes, error);
}

static int build(struct roofs *r, struct tfmc_cl_error *error)
{
	static const char *const lanes[] = {"", "2", "4", "8", "16"};
	const struct tfmc_cl_device *d = &r->context->entry->device;
	size_t v = 0;
	while (v < 4 && 2u << v <= d->vector_width)
		v++;
	size_t w = v > 2 ? v : 2;
	char options[128];
	(void)snprintf(options, sizeof(options),
	               "-cl-std=CL1.2 -w -DF=float%s -DI=int%s -DU=uint%s -Das_U=as_uint%s -DW=uint%s",
	               lanes[v], lanes[v], lanes[v], lanes[v], lanes[w]);
	const struct tfmc_cl_source source = {roofs_text, sizeof(roofs_text) - 1, options, NULL};
	bool is_cpu = d->type == TFMC_CL_CPU;
	r->lanes = 1u << v;
	r->lanes_read = 1u << w;
	r->groups = (uint64_t)d->compute_units * (is_cpu ? GROUPS_CPU : GROUPS);
	r->items = is_cpu ? 1 : d->group_items < ITEMS ? d->group_items : ITEMS;
	return tfmc_cl_program_build(r->context, &source, &r->program, error);
}

static int make_memory(struct roofs *r, uint64_t bytes, struct tfmc_cl_error *error)
{
	uint64_t largest = r->context->entry->device.largest;
	bytes = bytes < BYTES_MAX ? bytes : BYTES_MAX;
	bytes = bytes < largest ? bytes : largest;
	TRY(tfmc_cl_buffer_create(r->context, 4 * r->lanes_read * r->groups * r->items, &r->to, error));
	TRY(tfmc_cl_buffer_create(r->context, bytes, &r->from, error));
	return tfmc_cl_clear(r->from, 0, bytes, error);
}

int tfmc_cl_peaks(const struct tfmc_cl *cl, size_t number, uint64_t bytes, struct tfmc_cl_peaks *out,
                  struct tfmc_cl_error *error)
{
	struct tfmc_cl_peaks found = {0};
	struct roofs r = {0};
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "there is no place for the result");
	*out = found;
	int status = tfmc_cl_context_open(cl, number, 0, &r.context, error);
	if (status == TFMC_CL_OK)
		status = build(&r, error);
	if (status == TFMC_CL_OK)
		status = make_memory(&r, bytes, error);
	if (status == TFMC_CL_OK)
		status = measure_all(&r, &found, error);
	if (status == TFMC_CL_OK)
		*out = found;
	tfmc_cl_buffer_free(r.from);
	tfmc_cl_buffer_free(r.to);
	tfmc_cl_program_free(r.program);
	tfmc_cl_context_close(r.context);
	return status;
}
