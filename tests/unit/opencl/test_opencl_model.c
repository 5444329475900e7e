/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of libtfmccl on the mock library: launches and their arguments are those of the plan, memory and arguments are
 * made once, weights that are too large for one buffer lie in several, and plans of anybody are safe to run.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/strmap.h"
#include "runtime/opencl/calls.h"
#include "runtime/opencl/model.h"
#include "runtime/opencl/plan_format.h"
#include "tests/support/mini_model.h"
#include "tests/support/plan_rows.h"
#include "tests/support/opencl/mocked.h"
#include "tests/support/opencl/model_code.h"

#define BATCH    4
#define LAUNCHES 256
#define TENSORS  16
#define BYTES    (1 << 16) /* of any tensor */

static struct mock *mock;
static struct model_code code;
static struct tfmc_cl_model *model;
static char message[512];
static const struct tfmc_device gpu = {.name = "2", .message = message, .message_bytes = sizeof(message)};
static int32_t past[BATCH];
static tfmc_launched_fn *wants_times; /* of devices; NULL: they do not */
static struct {
	uint64_t kernel, group, nanoseconds;
} told[LAUNCHES];
static size_t n_told;

static void tell(void *user, uint64_t kernel, uint64_t group, uint64_t nanoseconds)
{
	ck_assert(user == told && n_told < LAUNCHES);
	told[n_told].kernel = kernel;
	told[n_told].group = group;
	told[n_told++].nanoseconds = nanoseconds;
}

static struct tfmc_device device(void)
{
	struct tfmc_device d = gpu;
	d.library = mocked_path();
	d.launched = wants_times;
	d.user = told;
	return d;
}

static void open_model(void)
{
	struct tfmc_device d = device();
	int32_t status = tfmc_cl_model_open(&code.device.code, &d, &model);
	ck_assert_msg(status == TFMC_RT_OK, "%s", message);
}

static void begin(void)
{
	mock = mocked();
	message[0] = 0;
	memset(past, 0, sizeof(past));
	model = NULL;
	wants_times = NULL;
	model_code_make(&code, mini_model, "opencl-gpu", "O2", BATCH);
}

static void end(void)
{
	tfmc_cl_model_close(model);
	model_code_destroy(&code);
	ck_assert_int_eq(mock->live, 0);
	ck_assert_int_eq(mock->misuse, 0);
}

static int64_t count(const char *call)
{
	int64_t n = 0;
	ck_assert_int_lt(mock->calls, MOCK_CALLS);
	for (int64_t i = 0; i < mock->calls; i++)
		n += !strcmp(mock->log[i], call);
	return n;
}

/* ---- calls ---- */

struct asked {
	const char *name;
	int64_t dims[8]; /* B, S, T; more in plans of anybody */
	int64_t first, source;
	uint64_t wants; /* a bit for each result */
};

static char given[TENSORS][BYTES], got[TENSORS][BYTES];

static int32_t ask(const struct asked *a)
{
	static struct tfmc_buffer params[1 << 16], results[1 << 16]; /* as many as a plan can name */
	for (size_t i = 0; i < TENSORS; i++) {
		params[i] = (struct tfmc_buffer){given[i], BYTES};
		bool wants = a->wants >> i & 1;
		results[i] = wants ? (struct tfmc_buffer){got[i], BYTES} : (struct tfmc_buffer){0};
	}
	const struct tfmc_cl_call call = {model_code_function(&code, a->name),
	                                  past + a->first,
	                                  a->first,
	                                  a->source,
	                                  a->dims,
	                                  params,
	                                  results};
	mock->calls = 0;
	int32_t status = tfmc_cl_model_call(model, &call);
	ck_assert_int_eq(mock->later, 0); /* the caller's memory is the caller's again */
	return status;
}

static void run(const struct asked *a)
{
	ck_assert_msg(ask(a) == TFMC_RT_OK, "%s: %s", a->name, message);
}

/* ---- launches as the plan has them ---- */

/* Expected launches of a call, reported by the mock one by one. */
struct expected {
	const struct asked *asked;
	struct {
		const struct plan_kernel *kernel;
		int64_t turns[PLAN_REPEATS];
	} launches[LAUNCHES];
	size_t n, next;
	const char *memories[AREA_SCRATCH + 1][TENSORS]; /* where they are */
	int64_t turns[PLAN_REPEATS];
	size_t depth;
};

static int64_t value(const struct ir_dim *d, const int64_t *dims)
{
	int64_t out = -1;
	ck_assert(ir_dim_eval(d, dims, &out));
	return out;
}

static bool is_wanted(const struct asked *a, const struct plan_command *s)
{
	bool any = s->kind != PLAN_IF_REQUESTED;
	for (size_t i = 0; i < s->n_outputs; i++)
		any = any || (a->wants >> s->outputs[i] & 1);
	return any;
}

/* Returns the step behind the END. */
static size_t expect(struct expected *x, const struct plan *p, size_t at, bool is_run)
{
	for (; at < p->n && p->items[at].kind != PLAN_END; at++) {
		const struct plan_command *s = &p->items[at];
		if (s->kind == PLAN_DISPATCH && is_run && plan_has_its_rows(s->kernel, x->asked->dims)) {
			ck_assert_uint_lt(x->n, LAUNCHES);
			x->launches[x->n].kernel = s->kernel;
			memcpy(x->launches[x->n++].turns, x->turns, sizeof(x->turns));
		}
		if (s->kind == PLAN_IF_REQUESTED)
			at = expect(x, p, at + 1, is_run && is_wanted(x->asked, s)) - 1;
		if (s->kind != PLAN_REPEAT)
			continue;
		size_t behind = 0, level = x->depth++;
		for (int64_t turn = 0; turn < s->count; turn++) {
			x->turns[level] = turn;
			behind = expect(x, p, at + 1, is_run);
		}
		x->turns[level] = 0;
		x->depth--;
		at = behind - 1;
	}
	return at + 1;
}

static int64_t number(const struct mock_arg *a)
{
	int32_t narrow;
	int64_t wide;
	ck_assert_uint_eq(a->size, (size_t)code.device.program.index_bits / 8);
	memcpy(&narrow, a->value, sizeof(narrow));
	memcpy(&wide, a->value, sizeof(wide));
	return code.device.program.index_bits == 32 ? narrow : wide;
}

static int64_t place(const struct expected *x, const struct area *a)
{
	const struct asked *c = x->asked;
	int64_t at = value(a->offset, c->dims), batch = code.device.program.object->states.batch_bytes;
	for (int i = 0; i < PLAN_REPEATS; i++)
		at += a->stride[i] * x->launches[x->next].turns[i];
	if (a->memory == AREA_STATE)
		at += !a->state ? 4 * c->first
		                : batch * (a->is_source && c->source >= 0 ? c->source : c->first);
	return at;
}

/* Memory is the same for all areas in it, and other memory than the rest; weights are where they should be. */
static void check_memory(struct expected *x, const struct area *a, const struct mock_arg *arg, int64_t at)
{
	bool is_spare = a->memory == AREA_OUTPUT && a->spare && !(x->asked->wants >> a->number & 1);
	enum area_memory memory = is_spare ? AREA_ARENA : a->memory;
	size_t n = memory == AREA_INPUT || memory == AREA_OUTPUT ? a->number : 0;
	int64_t bytes = value(a->bytes, x->asked->dims);
	ck_assert_msg(arg->bytes, "%s is no memory", a->name);
	if (memory != AREA_SCRATCH && !(a->is_source && x->asked->source >= 0))
		ck_assert_msg(at >= 0 && (size_t)(at + bytes) <= arg->n, "%s is outside of its memory",
		              a->name);
	if (memory == AREA_WEIGHTS) {
		const char *want = code.device.weights + place(x, a);
		ck_assert_int_eq(memcmp(arg->bytes + at, want, (size_t)bytes), 0);
		return;
	}
	if (!x->memories[memory][n])
		x->memories[memory][n] = arg->bytes;
	ck_assert_ptr_eq(x->memories[memory][n], arg->bytes);
	for (int m = 0; m <= AREA_SCRATCH; m++)
		for (size_t i = 0; i < TENSORS; i++)
			ck_assert((m == (int)memory && i == n) || x->memories[m][i] != arg->bytes);
	ck_assert_int_eq(at, is_spare ? place(x, a) + value(a->spare, x->asked->dims) : place(x, a));
}

static void check_arg(struct expected *x, const struct plan_kernel *k, size_t i, const struct mock_arg *args)
{
	const struct plan_arg *a = &k->args[i];
	switch (a->kind) {
	case PLAN_BUFFER: break; /* with its offset */
	case PLAN_OFFSET:
		ck_assert(i > 0 && k->args[i - 1].kind == PLAN_BUFFER && k->args[i - 1].number == a->number);
		check_memory(x, &k->areas.items[a->number], &args[i - 1], number(&args[i]));
		break;
	case PLAN_DIM: ck_assert_int_eq(number(&args[i]), x->asked->dims[a->number]); break;
	case PLAN_INDEX: ck_assert_int_eq(number(&args[i]), x->launches[x->next].turns[a->number]); break;
	case PLAN_SOURCE_STEP: ck_assert_int_eq(number(&args[i]), x->asked->source < 0); break;
	case PLAN_RANKS: ck_abort_msg("an argument of objects"); break;
	case PLAN_WORKER:
	case PLAN_WORKERS: ck_abort_msg("no argument of OpenCL");
	}
}

static void launched(void *user, const char *kernel, const struct mock_arg args[MOCK_ARGS])
{
	struct expected *x = user;
	ck_assert_uint_lt(x->next, x->n);
	const struct plan_kernel *k = x->launches[x->next].kernel;
	ck_assert_str_eq(kernel, k->name);
	ck_assert_int_eq(mock->items[0], k->items);
	ck_assert_int_ge(mock->groups[0], 1);
	for (size_t i = 0; i < k->n_args; i++)
		check_arg(x, k, i, args);
	for (size_t i = k->n_args; i < MOCK_ARGS; i++)
		ck_assert_uint_eq(args[i].size, 0);
	x->next++;
}

/* Returns the number of launches. */
static size_t run_as_planned(const struct asked *a)
{
	static struct expected x;
	x = (struct expected){.asked = a};
	(void)expect(&x, code.device.program.functions[model_code_function(&code, a->name)], 0, true);
	mock->launched = launched;
	mock->user = &x;
	run(a);
	mock->launched = NULL;
	ck_assert_uint_eq(x.next, x.n);
	ck_assert_int_eq(count("clEnqueueNDRangeKernel"), (int64_t)x.n);
	return x.n;
}

#define ALL UINT64_MAX

START_TEST(as_planned)
{
	static const struct asked rows[] = {
	        {"encode", {4, 12, 1}, 0, -1, ALL}, {"decode", {4, 1, 10}, 0, -1, ALL},
	        {"decode", {1, 1, 1}, 0, -1, ALL},  {"decode", {1, 1, 1}, 3, -1, ALL},
	        {"decode", {3, 1, 1}, 1, 0, ALL},   {"decode", {2, 1, 1}, 2, 3, ALL},
	        {"run", {2, 5, 1}, 0, -1, ALL},     {"run", {2, 5, 1}, 0, -1, 1},
	        {"run", {2, 5, 1}, 0, -1, 2},       {"decode", {1, 1, 4}, 0, -1, 0},
	        {"encode", {1, 3, 1}, 2, -1, 0},
	};
	open_model();
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		size_t n = run_as_planned(&rows[i]);
		ck_assert_uint_gt(n, 0);
		ck_assert_uint_eq(run_as_planned(&rows[i]), n);
		ck_assert_int_eq(count("clSetKernelArg") + count("clCreateKernel") + count("clCreateBuffer"),
		                 0);
	}
}
END_TEST

START_TEST(wanted)
{
	struct asked all = {"run", {2, 5, 1}, 0, -1, ALL}, some = all, none = all;
	some.wants = 2;
	none.wants = 0;
	open_model();
	size_t n = run_as_planned(&all);
	ck_assert_int_eq(count("clEnqueueReadBuffer"), 2);
	ck_assert_int_eq(count("clFlush"), (int)n / 8);
	size_t fewer = run_as_planned(&some);
	ck_assert_uint_le(fewer, n);
	ck_assert_int_eq(count("clEnqueueReadBuffer"), 1);
	ck_assert_uint_lt(run_as_planned(&none), n);
	ck_assert_int_eq(count("clEnqueueReadBuffer"), 0);
	ck_assert_int_eq(count("clFinish"), 1);
}
END_TEST

START_TEST(memory_grows_only)
{
	struct asked small = {"decode", {1, 1, 2}, 0, -1, ALL}, large = {"decode", {4, 1, 10}, 0, -1, ALL};
	open_model();
	(void)run_as_planned(&small);
	(void)run_as_planned(&large);
	ck_assert_int_gt(count("clCreateBuffer"), 0);
	int64_t live = mock->live;
	(void)run_as_planned(&small);
	ck_assert_int_gt(count("clSetKernelArg"), 0);
	ck_assert_int_eq(count("clCreateKernel"), 0);
	ck_assert_int_eq(count("clCreateBuffer"), 0);
	ck_assert_int_eq(mock->live, live);
}
END_TEST

/* The largest function is built when the model is opened; each kernel once, when a function of it is called. */
START_TEST(built_when_called)
{
	struct asked decode = {"decode", {1, 1, 2}, 0, -1, ALL}, whole = {"run", {1, 4, 1}, 0, -1, ALL};
	mock->calls = 0;
	open_model();
	ck_assert_int_eq(count("clBuildProgram"), 1);
	run(&decode);
	ck_assert_int_eq(count("clBuildProgram"), 0);
	mock->fail_at = 1;
	mock->code = CL_OUT_OF_RESOURCES;
	ck_assert_int_eq(ask(&whole), TFMC_RT_E_DEVICE);
	ck_assert_msg(!strncmp(message, "run: clCreateProgramWithSource: ", 32), "%s", message);
	mock->fail_at = 0;
	run(&whole);
	ck_assert_int_eq(count("clBuildProgram"), 1);
	whole.dims[1] = 3;
	run(&whole);
	ck_assert_int_eq(count("clBuildProgram"), 0);
	run(&decode);
	ck_assert_int_eq(count("clBuildProgram"), 0);
}
END_TEST

/* Another sequence: offsets in the state, and nothing else. */
START_TEST(what_changed_is_set)
{
	struct asked a = {"decode", {1, 1, 1}, 0, -1, ALL};
	int64_t offsets = 0;
	open_model();
	(void)run_as_planned(&a);
	const struct plan *p = code.device.program.functions[model_code_function(&code, "decode")];
	static struct expected x;
	x = (struct expected){.asked = &a};
	(void)expect(&x, p, 0, true);
	for (size_t i = 0; i < x.n; i++)
		for (size_t k = 0; k < x.launches[i].kernel->n_args; k++) {
			const struct plan_arg *arg = &x.launches[i].kernel->args[k];
			offsets += arg->kind == PLAN_OFFSET &&
			           x.launches[i].kernel->areas.items[arg->number].memory == AREA_STATE;
		}
	a.first = 2;
	(void)run_as_planned(&a);
	ck_assert_int_gt(offsets, 0);
	ck_assert_int_eq(count("clSetKernelArg"), offsets);
}
END_TEST

/* The lengths go to the state of the rows' sequences and come back from where the plan has them. */
START_TEST(lengths)
{
	struct asked a = {"decode", {2, 1, 1}, 1, -1, 0};
	int32_t there[BATCH], before[] = {7, 8, 9, 10};
	open_model();
	memcpy(past, before, sizeof(past));
	run(&a);
	ck_assert_int_eq(tfmc_cl_model_fetch(model, 64, there, sizeof(there)), TFMC_RT_OK);
	ck_assert(there[0] == 0 && there[1] == 8 && there[2] == 9 && there[3] == 0);
	ck_assert(past[0] == 7 && past[1] == 0 && past[2] == 0 &&
	          past[3] == 10); /* the mock computes nothing */
}
END_TEST

/* ---- times ---- */

/* One for each launch, with the group that the plan says. */
START_TEST(times)
{
	static const struct asked rows[] = {{"encode", {4, 12, 1}, 0, -1, ALL},
	                                    {"decode", {3, 1, 1}, 1, 0, ALL},
	                                    {"run", {2, 5, 1}, 0, -1, 2}};
	static struct expected x;
	wants_times = tell;
	mock->nanoseconds = 500;
	open_model();
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		(void)run_as_planned(&rows[i]);
		int64_t live = mock->live;
		n_told = 0;
		size_t n = run_as_planned(&rows[i]);
		ck_assert_uint_eq(n_told, n);
		ck_assert_int_eq(mock->live, live);
		ck_assert_int_eq(count("clSetKernelArg") + count("clCreateCommandQueue"), 0);
		x = (struct expected){.asked = &rows[i]};
		(void)expect(&x, code.device.program.functions[model_code_function(&code, rows[i].name)], 0,
		             true);
		for (size_t k = 0; k < n; k++) {
			bool is_same = k > 0 && x.launches[k].kernel == x.launches[k - 1].kernel;
			ck_assert_uint_eq(told[k].group, x.launches[k].kernel->number);
			ck_assert_uint_eq(told[k].nanoseconds, 500);
			ck_assert(k == 0 || (told[k].kernel == told[k - 1].kernel) == is_same);
		}
	}
	int64_t live = mock->live;
	mock->odd = MOCK_BACKWARDS;
	n_told = 0;
	ck_assert_int_eq(ask(&rows[0]), TFMC_RT_E_DEVICE);
	ck_assert_msg(strstr(message, ": clGetEventProfilingInfo: a kernel ends before it begins") &&
	                      !strncmp(message, "encode: kernel ", 15),
	              "%s", message);
	ck_assert(n_told == 0 && mock->live == live);
}
END_TEST

START_TEST(no_times)
{
	struct asked a = {"decode", {4, 1, 10}, 0, -1, ALL};
	open_model();
	(void)run_as_planned(&a);
	ck_assert_int_eq(count("clWaitForEvents") + count("clReleaseEvent") + count("clCreateCommandQueue"),
	                 0);
}
END_TEST

/* ---- weights in pieces ---- */

START_TEST(weights_in_pieces)
{
	static const char text[] =
	        "module \"wide\"\n"
	        "dim B in [1,2]\n"
	        "weight @a : f32[3,64,64] = reshape([3,64,64], sinusoid(rows=192, dim=64, layout=halves,"
	        " spacing=t2t, start=1, base=100.0))\n"
	        "weight @b : f32[64,64] = sinusoid(rows=64, dim=64, layout=halves, spacing=t2t, start=7,"
	        " base=10.0)\n"
	        "func @run(%x: f32[B,64]) -> (y: f32[B,64]) {\n"
	        "%r = repeat %l = 0 to 3 carry (%c = %x) {\n"
	        "%n = linear %c, @a[%l] : f32[B,64]\n"
	        "yield %n\n"
	        "} : f32[B,64]\n"
	        "%y = linear %r, @b : f32[B,64]\n"
	        "return %y\n"
	        "}\n";
	static const int64_t most[] = {1 << 18, 40000, 20000};
	struct asked a = {"run", {1, 0, 0}, 0, -1, ALL};
	int64_t before = 0;
	model_code_destroy(&code);
	model_code_make(&code, text, "opencl-gpu", "O2", 0);
	for (size_t i = 0; i < TFMC_COUNT(most); i++) {
		mock->largest = most[i];
		mock->calls = 0;
		open_model();
		ck_assert_int_gt(count("clCreateBuffer"), before);
		before = count("clCreateBuffer");
		ck_assert_uint_ge(run_as_planned(&a), 4);
		tfmc_cl_model_close(model);
		model = NULL;
	}
	struct tfmc_device d = device();
	mock->largest = 10000;
	ck_assert_int_eq(tfmc_cl_model_open(&code.device.code, &d, &model), TFMC_RT_E_DEVICE);
	ck_assert_msg(strstr(message, "the 10000 bytes that the device gives at most"), "%s", message);
}
END_TEST

/* ---- plans of anybody ---- */

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static void sum_again(char *bytes, size_t n)
{
	const size_t summed = 8 * (PLAN_H_CHECKSUM + 1);
	uint64_t sum = hash_bytes64(HASH64_SEED, bytes + summed, n - summed);
	for (int i = 0; i < 8; i++)
		bytes[8 * PLAN_H_CHECKSUM + i] = (char)(sum >> (8 * i) & 0xff);
}

/* Whatever the plan says: a status, and the mock, which has as many bytes as were asked for, was not misused. */
START_TEST(any_plan_is_safe)
{
	static const int64_t odd[] = {-1, 0, 1, 2, 3, 5, 8, 64, 4096, INT32_MAX, INT64_MAX, INT64_MIN};
	static const struct asked calls[] = {{"encode", {2, 3, 1}, 1, -1, ALL},
	                                     {"decode", {2, 1, 2}, 1, 3, 1},
	                                     {"run", {2, 3, 1}, 0, -1, 0}};
	struct tfmc_device d = device();
	uint64_t state = (uint64_t)_i + 1;
	size_t opened = 0, ran = 0, failed = 0, n = code.device.plan.len;
	char *bytes = malloc(n);
	ck_assert_ptr_nonnull(bytes);
	for (int turn = 0; turn < 1500; turn++) {
		memcpy(bytes, code.device.plan.data, n);
		for (uint64_t more = 1 + next_random(&state) % 2; more > 0; more--) {
			size_t at =
			        8 * (PLAN_H_INDEX_BITS + next_random(&state) % (n / 8 - PLAN_H_INDEX_BITS));
			int64_t v = odd[next_random(&state) % TFMC_COUNT(odd)];
			if (next_random(&state) % 2)
				memcpy(&v, code.device.plan.data + 8 * (next_random(&state) % (n / 8)), 8);
			memcpy(bytes + at, &v, 8);
		}
		sum_again(bytes, n);
		struct tfmc_cl_code c = code.device.code;
		c.plan = bytes;
		mock->calls = 0;
		if (tfmc_cl_model_open(&c, &d, &model) != TFMC_RT_OK)
			continue;
		opened++;
		for (size_t i = 0; i < TFMC_COUNT(calls); i++)
			*(ask(&calls[i]) == TFMC_RT_OK ? &ran : &failed) += 1;
		tfmc_cl_model_close(model);
		model = NULL;
		ck_assert_int_eq(mock->misuse, 0);
	}
	ck_assert(opened > 0 && ran > 0 && failed > 0);
	free(bytes);
}
END_TEST

Suite *suite_opencl_model(void);
Suite *suite_opencl_model(void)
{
	Suite *s = suite_create("opencl_model");
	TCase *t = tcase_create("models");
	tcase_add_checked_fixture(t, begin, end);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, as_planned);
	tcase_add_test(t, wanted);
	tcase_add_test(t, memory_grows_only);
	tcase_add_test(t, built_when_called);
	tcase_add_test(t, what_changed_is_set);
	tcase_add_test(t, lengths);
	tcase_add_test(t, times);
	tcase_add_test(t, no_times);
	tcase_add_test(t, weights_in_pieces);
	tcase_add_loop_test(t, any_plan_is_safe, 0, 4);
	suite_add_tcase(s, t);
	return s;
}
