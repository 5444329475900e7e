/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel times by profiling events, and measured peaks of a device (roofline model): f32 multiply-adds, i8
 * dot products, memory reads.
 */
#include <stdio.h>

#include "runtime/opencl/internal.h"

/* ---- events ---- */

/* Profiling is a property of the queue: finishes the old queue and replaces it, once for each context, so that calls
 * that measure nothing do not pay for it. */
static int enable_profiling(struct tfmc_cl_context *c, struct tfmc_cl_error *error)
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

/* Launches a kernel with an event, whose times tfmc_cl_event_wait() reads. The first timed launch of a context
 * replaces its queue (enable_profiling). */
int tfmc_cl_launch_timed(struct tfmc_cl_kernel *k, const uint64_t groups[2], const uint64_t items[2],
                         struct tfmc_cl_event **out, struct tfmc_cl_error *error)
{
	cl_event event = NULL;
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	if (!k)
		return cl_fail(error, TFMC_CL_E_NULL, "the kernel is null");
	TRY(enable_profiling(k->context, error));
	TRY(cl_launch(k, groups, items, &event, error));
	*out = (struct tfmc_cl_event *)event;
	return TFMC_CL_OK;
}

/* Waits for the event of a launch; *nanoseconds: from its begin to its end on the device, without the time in the
 * queue. */
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
		return cl_fail(error, TFMC_CL_E_NULL, "the context, the event or the result pointer is null");
	int status = read_time(c->calls, (cl_event)event, nanoseconds, error);
	(void)c->calls->clReleaseEvent((cl_event)event);
	return status;
}

/* ---- peaks ---- */

#define ITEMS       64
#define GROUPS_CPU  4 /* per compute unit */
#define GROUPS      16
#define CHAINS      14 /* independent accumulators of a work-item */
#define STREAMS     4  /* streams that a work-item reads at once */
#define BYTES_MAX   ((uint64_t)512 << 20)
#define REPEATS_MAX (1 << 24)
#define LONG_RUNS   40 /* runs of at least LONG_ENOUGH; the fastest one is undisturbed */
#define RUNS_MAX    80
#define LONG_ENOUGH 3000000 /* nanoseconds */

/* F: float or a float vector; I, U: i32 and u32 of the same size; W: the type that is read at once.
 * Operands come from arguments, so the compiler does not know them, and stay small. dot() is the one of
 * emitted kernels (backends/print). A work-group reads STREAMS parts of `last` W each. */
static const char peak_source[] =
        "#pragma OPENCL FP_CONTRACT ON\n"
        "#define ALL(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13)\n"
        "#define FLOATS(i) F a##i = x + i;\n"
        "#define ACC(i) U a##i = as_U(x) + i;\n"
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
        "	ALL(ACC)\n"
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

struct peak_setup {
	struct tfmc_cl_context *context;
	struct tfmc_cl_program *program;
	struct tfmc_cl_buffer *to, *from;
	uint64_t groups, items;
	uint64_t lanes, read_lanes; /* lanes of F, of W (32 bits each) */
};

/* A kernel to measure. amount: operations or bytes of all work-groups per repetition. */
struct measurement {
	const char *name;
	const struct tfmc_cl_buffer *from; /* NULL: reads no memory */
	uint64_t groups;
	double amount;
	int32_t last;
};

/* Launches a kernel repeatedly, doubling the repetitions n (argument 0) until a run takes LONG_ENOUGH, of which
 * LONG_RUNS count. *rate: amount per second of the fastest run, since noise only slows runs down. */
static int fastest_rate(const struct peak_setup *r, const struct measurement *l, struct tfmc_cl_kernel *k,
                        double *rate, struct tfmc_cl_error *error)
{
	const uint64_t groups[] = {l->groups, 1}, items[] = {r->items, 1};
	int32_t n = 1;
	for (int run = 0, left = LONG_RUNS; run < RUNS_MAX && left > 0; run++) {
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

/* Creates a kernel of peak_source, sets its arguments (number of repetitions, 0, is set at each launch; then to, last,
 * from) and measures its fastest rate. */
static int measure_kernel(const struct peak_setup *r, const struct measurement *l, double *rate,
                          struct tfmc_cl_error *error)
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
		status = fastest_rate(r, l, k, rate, error);
	tfmc_cl_kernel_free(k);
	return status;
}

/* Measures reads of the whole buffer, divided among the work-groups; fewer of them where it has less than a chunk for
 * each. Leaves the rate 0 if the buffer is too small for one. */
static int measure_reads(const struct peak_setup *r, double *rate, struct tfmc_cl_error *error)
{
	uint64_t bytes = tfmc_cl_buffer_bytes(r->from);
	uint64_t chunk = 4 * r->read_lanes * r->items * STREAMS; /* bytes that a work-group reads at once */
	uint64_t groups = bytes / chunk < r->groups ? bytes / chunk : r->groups;
	if (groups == 0)
		return TFMC_CL_OK;
	uint64_t chunks = bytes / groups / chunk;
	const struct measurement l = {"read", r->from, groups, (double)(chunks * chunk * groups),
	                              (int32_t)(chunks * r->items)};
	return measure_kernel(r, &l, rate, error);
}

/* Measures multiply-adds, dot products and reads. A multiply-add is two operations, a dot product of four bytes eight,
 * hence four times `floats`. `last` of multiply (x = 1 / 2) keeps values finite. */
static int measure_all(const struct peak_setup *r, struct tfmc_cl_peaks *out, struct tfmc_cl_error *error)
{
	double floats = 2.0 * CHAINS * (double)(r->groups * r->items * r->lanes);
	const struct measurement multiply = {"multiply_floats", NULL, r->groups, floats, 2};
	const struct measurement dot = {"multiply_bytes", NULL, r->groups, 4 * floats, 1};
	TRY(measure_kernel(r, &multiply, &out->f32, error));
	TRY(measure_kernel(r, &dot, &out->int8, error));
	return measure_reads(r, &out->bytes, error);
}

/* Builds the kernels for the device's vectors: F, I, U of its native width, W of 4 lanes (16 bytes) at least. A CPU's
 * work-group has one item, as in emitted kernels, a GPU's ITEMS. */
static int build_kernels(struct peak_setup *r, struct tfmc_cl_error *error)
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
	const struct tfmc_cl_source source = {peak_source, sizeof(peak_source) - 1, options, NULL};
	bool is_cpu = d->type == TFMC_CL_CPU;
	r->lanes = 1u << v;
	r->read_lanes = 1u << w;
	r->groups = (uint64_t)d->compute_units * (is_cpu ? GROUPS_CPU : GROUPS);
	r->items = is_cpu ? 1 : d->group_items < ITEMS ? d->group_items : ITEMS;
	return tfmc_cl_program_build(r->context, &source, &r->program, error);
}

/* Allocates results and the memory that is read, at most BYTES_MAX. */
static int allocate_buffers(struct peak_setup *r, uint64_t bytes, struct tfmc_cl_error *error)
{
	uint64_t largest = r->context->entry->device.largest;
	bytes = bytes < BYTES_MAX ? bytes : BYTES_MAX;
	bytes = bytes < largest ? bytes : largest;
	TRY(tfmc_cl_buffer_create(r->context, 4 * r->read_lanes * r->groups * r->items, &r->to, error));
	TRY(tfmc_cl_buffer_create(r->context, bytes, &r->from, error));
	return tfmc_cl_clear(r->from, 0, bytes, error);
}

int tfmc_cl_peaks(const struct tfmc_cl *cl, size_t number, uint64_t bytes, struct tfmc_cl_peaks *out,
                  struct tfmc_cl_error *error)
{
	struct tfmc_cl_peaks peaks = {0};
	struct peak_setup r = {0};
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = peaks;
	int status = tfmc_cl_context_open(cl, number, 0, &r.context, error);
	if (status == TFMC_CL_OK)
		status = build_kernels(&r, error);
	if (status == TFMC_CL_OK)
		status = allocate_buffers(&r, bytes, error);
	if (status == TFMC_CL_OK)
		status = measure_all(&r, &peaks, error);
	if (status == TFMC_CL_OK)
		*out = peaks;
	tfmc_cl_buffer_free(r.from);
	tfmc_cl_buffer_free(r.to);
	tfmc_cl_program_free(r.program);
	tfmc_cl_context_close(r.context);
	return status;
}
