/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program around the kernels: a planned module of elementwise groups is
 * compiled for every target this machine runs, loaded, and called through the
 * runtime library: results, driver forms, numbers of workers, checks of
 * arguments, state, cancelling, weights in a file.
 */
#define _POSIX_C_SOURCE 200809L
#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "ir/interp/interp.h"
#include "runtime/tfmc_rt.h"
#include "tests/support/tir.h"
#include "tests/support/planned.h"

static const char toy[] =
        "module \"toy\" stage=plan\n"
        "dim B in [1,4]\n"
        "dim S in [1,6]\n"
        "weight @w : f32[3,4] = sinusoid(rows=3, dim=4, layout=halves, spacing=t2t, start=1, base=10000.0)\n"
        "state @k : f32[B,2,1,6,4] #row\n"
        "\n"
        "func @run(%x: f32[B,S,4], %len: i32[B] {default=S max=S}, %ids: i32[B,S] {below=10 lengths=%len})"
        " -> (y: f32[B,S,4], z: f32[B,S]) arena=64*B*S {\n"
        "  %a = group loops {\n"
        "    root %1 = scale %x {f=3.0} : f32[B,S,4]\n"
        "    yield %1\n"
        "  } at [0] : f32[B,S,4]\n"
        "  %r = repeat %l = 0 to 3 carry (%c = %a) {\n"
        "    %wb = broadcast @w[%l] {dims=[B,S,4]} : f32[B,S,4]\n"
        "    %n = group loops {\n"
        "      root %2 = add %c, %wb : f32[B,S,4]\n"
        "      yield %2\n"
        "    } at [0] : f32[B,S,4]\n"
        "    yield %n\n"
        "  } : f32[B,S,4]\n"
        "  %y = group loops {\n"
        "    root %3 = scale %r {f=1.0} : f32[B,S,4]\n"
        "    yield %3\n"
        "  } at [-1] : f32[B,S,4]\n"
        "  %lb = reshape %len {dims=[B,1]} : i32[B,1]\n"
        "  %lc = broadcast %lb {dims=[B,S]} : i32[B,S]\n"
        "  %z = group loops {\n"
        "    pre %4 = cast %ids {dtype=f32} : f32[B,S]\n"
        "    pre %6 = cast %lc {dtype=f32} : f32[B,S]\n"
        "    root %5 = add %4, %6 : f32[B,S]\n"
        "    yield %5\n"
        "  } at [-1] : f32[B,S]\n"
        "  return %y, %z\n"
        "}\n"
        "\n"
        "func @decode(%past: i32[B] {role=past}, %x: f32[B,S,4], %k: state @k)"
        " -> (o: f32[B,6,4], state @k, i32[B] {role=past}) arena=64*B {\n"
        "  %one = full {value=1.0 dtype=i32} : i32[]\n"
        "  %xv = reshape %x {dims=[B,1,S,4]} : f32[B,1,S,4]\n"
        "  %sl, %k2 = group loops {\n"
        "    root %s, %k1 = state_append %k, %xv, %past, %one : f32[B,1,6,4], state @k\n"
        "    yield %s, %k1\n"
        "  } at [-1, -1] : f32[B,1,6,4], state @k\n"
        "  %o = reshape %sl {dims=[B,6,4]} : f32[B,6,4]\n"
        "  %oo = group loops {\n"
        "    root %q = scale %o {f=10.0} : f32[B,6,4]\n"
        "    yield %q\n"
        "  } at [-1] : f32[B,6,4]\n"
        "  %np = group loops {\n"
        "    pre %8 = dim_value {dim=S} : i32[]\n"
        "    pre %9 = broadcast %8 {dims=[B]} : i32[B]\n"
        "    root %7 = add %past, %9 : i32[B]\n"
        "    yield %7\n"
        "  } at [0] : i32[B]\n"
        "  return %oo, %k2, %np\n"
        "}\n";

enum { RUN, PREFILL, STEP };

struct loaded {
	struct tir tir;
	struct backend_output out;
	struct backend_jit *jit;
	struct tfmc_model model;
};

static void load(struct loaded *l, const struct target *t, const struct backend_options *o)
{
	tir_init(&l->tir);
	tir_load(&l->tir, toy);
	backend_output_init(&l->out);
	enum tfmc_status status = planned_compile(&l->tir.cx, l->tir.m, t, NULL, o, &l->out);
	ck_assert_msg(status == TFMC_OK, "%s: %s", t->name, l->tir.log.data);
	ck_assert_int_eq(backend_jit_load(&l->tir.cx, &l->out.object, &l->jit), TFMC_OK);
	ck_assert(backend_jit_model(l->jit, "toy", &l->model));
}

static void unload(struct loaded *l)
{
	backend_jit_destroy(l->jit);
	backend_output_destroy(&l->out);
	tir_destroy(&l->tir);
}

/* ---- run: against the interpreter ---- */

struct run_case {
	int64_t dims[2];
	float x[4 * 6 * 4], y[4 * 6 * 4], z[4 * 6];
	int32_t len[4], ids[4 * 6];
	struct tfmc_buffer inputs[3], outputs[2];
};

static void fill(struct run_case *c, int64_t b, int64_t s)
{
	memset(c, 0, sizeof(*c));
	c->dims[0] = b, c->dims[1] = s;
	for (int i = 0; i < 4 * 6 * 4; i++)
		c->x[i] = (float)(i * 7 % 31) / 4 - 3;
	for (int i = 0; i < 4 * 6; i++)
		c->ids[i] = i * 3 % 10;
	for (int i = 0; i < 4; i++)
		c->len[i] = (int32_t)(s - i % s);
	c->inputs[0] = (struct tfmc_buffer){c->x, (uint64_t)(b * s * 4)};
	c->inputs[1] = (struct tfmc_buffer){c->len, (uint64_t)b};
	c->inputs[2] = (struct tfmc_buffer){c->ids, (uint64_t)(b * s)};
	c->outputs[0] = (struct tfmc_buffer){c->y, (uint64_t)(b * s * 4)};
	c->outputs[1] = (struct tfmc_buffer){c->z, (uint64_t)(b * s)};
}

static void interpret(struct loaded *l, struct run_case *c, float *y, float *z)
{
	const struct ir_func *f = ir_find_func(l->tir.m, "run");
	const void *bytes[] = {c->x, c->len, c->ids};
	struct interp_tensor inputs[3], outputs[2];
	struct arena a;
	arena_init(&a);
	for (size_t i = 0; i < 3; i++) {
		ck_assert(interp_tensor_make(&a, ir_type_of(f, f->params[i].value), c->dims, &inputs[i]));
		interp_from_bytes(&inputs[i], bytes[i]);
	}
	struct interp_args args = {.dims = c->dims, .inputs = inputs, .outputs = outputs, .arena = &a};
	ck_assert_int_eq(interp_run(&l->tir.cx, l->tir.m, f, &args), TFMC_OK);
	interp_to_bytes(&outputs[0], y);
	interp_to_bytes(&outputs[1], z);
	arena_destroy(&a);
}

static struct tfmc_session *open_session(const struct loaded *l, int64_t workers, enum tfmc_driver driver)
{
	struct tfmc_session *s;
	struct tfmc_session_options o = {
	        .struct_size = sizeof(o), .workers = workers, .driver = driver, .all_workers = 1};
	ck_assert_int_eq(tfmc_session_open(&l->model, &o, &s), TFMC_RT_OK);
	return s;
}

static void check_run(struct loaded *l, struct tfmc_session *s, int64_t b, int64_t n)
{
	struct run_case c;
	float y[4 * 6 * 4], z[4 * 6];
	fill(&c, b, n);
	interpret(l, &c, y, z);
	ck_assert_int_eq(tfmc_session_call(s, RUN, c.dims, c.inputs, c.outputs), TFMC_RT_OK);
	for (int64_t i = 0; i < b * n * 4; i++)
		ck_assert_float_eq_tol(c.y[i], y[i], 1e-6f);
	ck_assert_mem_eq(c.z, z, (size_t)(b * n) * sizeof(float));
}

/* ---- decode: the cache grows ---- */

static void feed(struct tfmc_session *s, int64_t entry, int64_t n, const float *x, float *o, int expected)
{
	int64_t dims[] = {2, n};
	struct tfmc_buffer in = {(void *)(uintptr_t)x, (uint64_t)(2 * n * 4)}, out = {o, 2 * 6 * 4};
	ck_assert_int_eq(tfmc_session_call(s, entry, dims, &in, &out), expected);
}

static void check_decode(struct tfmc_session *s)
{
	float x[2 * 6 * 4], o[2 * 6 * 4];
	for (int i = 0; i < 2 * 6 * 4; i++)
		x[i] = (float)i;
	ck_assert_int_eq(tfmc_session_reset(s), TFMC_RT_OK);
	feed(s, PREFILL, 3, x, o, TFMC_RT_OK);
	ck_assert_float_eq(o[11], 110);
	ck_assert_float_eq(o[12], 0);
	ck_assert_float_eq(o[24], 120);
	feed(s, STEP, 1, x, o, TFMC_RT_OK);
	ck_assert_float_eq(o[11], 110);
	ck_assert_float_eq(o[13], 10);
	ck_assert_float_eq(o[24 + 12], 40);
	feed(s, PREFILL, 3, x, o, TFMC_RT_E_FULL);
	feed(s, PREFILL, 2, x, o, TFMC_RT_OK);
	feed(s, STEP, 1, x, o, TFMC_RT_E_FULL);
}

START_TEST(computes_what_the_interpreter_computes)
{
	struct backend_options o = {.opt_level = 2};
	for (size_t i = 0; target_level_at(i); i++) {
		struct loaded l;
		if (!target_runs_on_host(target_level_at(i)))
			continue;
		load(&l, target_level_at(i), &o);
		for (int64_t workers = 1; workers <= 3; workers++)
			for (int driver = TFMC_DRIVER_SPMD; driver <= TFMC_DRIVER_PARALLEL_FOR; driver++) {
				struct tfmc_session *s = open_session(&l, workers, (enum tfmc_driver)driver);
				check_run(&l, s, 1, 1);
				check_run(&l, s, 3, 5);
				check_run(&l, s, 4, 6);
				check_decode(s);
				tfmc_session_close(s);
			}
		unload(&l);
	}
}
END_TEST

/* ---- wrong calls ---- */

static int call(struct tfmc_session *s, const struct run_case *c)
{
	return tfmc_session_call(s, RUN, c->dims, c->inputs, c->outputs);
}

START_TEST(refuses_wrong_arguments)
{
	struct backend_options o = {.opt_level = 2};
	struct loaded l;
	struct run_case c;
	load(&l, target_native(), &o);
	struct tfmc_session *s = open_session(&l, 2, TFMC_DRIVER_SPMD);
	fill(&c, 2, 3);
	c.inputs[0].data = NULL;
	ck_assert_int_eq(call(s, &c), TFMC_RT_E_NULL);
	fill(&c, 2, 3);
	c.dims[1] = 7;
	ck_assert_int_eq(call(s, &c), TFMC_RT_E_DIM);
	fill(&c, 2, 3);
	c.outputs[1].count--;
	ck_assert_int_eq(call(s, &c), TFMC_RT_E_SIZE);
	fill(&c, 2, 3);
	c.len[1] = 4;
	ck_assert_int_eq(call(s, &c), TFMC_RT_E_LENGTH);
	c.len[1] = -1;
	ck_assert_int_eq(call(s, &c), TFMC_RT_E_LENGTH);
	fill(&c, 2, 3);
	c.ids[1] = 10;
	ck_assert_int_eq(call(s, &c), TFMC_RT_E_TOKEN);
	c.len[0] = 1; /* what is after the length does not matter */
	ck_assert_int_eq(call(s, &c), TFMC_RT_OK);
	tfmc_session_close(s);
	unload(&l);
}
END_TEST

START_TEST(left_out_buffers)
{
	struct backend_options o = {.opt_level = 2};
	struct loaded l;
	struct run_case c;
	load(&l, target_native(), &o);
	for (int64_t workers = 1; workers <= 3; workers++) {
		struct tfmc_session *s = open_session(&l, workers, TFMC_DRIVER_SPMD);
		fill(&c, 2, 3);
		c.inputs[1].data = NULL;
		c.outputs[0].data = NULL;
		ck_assert_int_eq(call(s, &c), TFMC_RT_OK);
		ck_assert_float_eq(c.y[0], 0);
		for (int i = 0; i < 6; i++)
			ck_assert_float_eq(c.z[i], (float)c.ids[i] + 3);
		tfmc_session_close(s);
	}
	unload(&l);
}
END_TEST

/* ---- contexts without the runtime's session ---- */

struct memory {
	_Alignas(64) unsigned char arena[8192], state[4096];
	uint64_t context[1024];
	struct tfmc_config config;
};

static void prepare(struct memory *m)
{
	memset(m, 0, sizeof(*m));
	m->config = (struct tfmc_config){.struct_size = sizeof(struct tfmc_config),
	                                 .state = m->state,
	                                 .state_bytes = sizeof(m->state),
	                                 .arena = m->arena,
	                                 .arena_bytes = sizeof(m->arena),
	                                 .workers = 1};
}

START_TEST(init_checks_the_config)
{
	struct backend_options o = {.opt_level = 2};
	struct loaded l;
	static struct memory m;
	load(&l, target_native(), &o);
	prepare(&m);
	ck_assert_int_eq(l.model.reset(m.context), TFMC_RT_E_CONTEXT);
	ck_assert_int_eq(l.model.init(NULL, &m.config), TFMC_RT_E_NULL);
	ck_assert_int_eq(l.model.init(m.context, NULL), TFMC_RT_E_NULL);
	m.config.struct_size = 8;
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_E_ABI);
	prepare(&m);
	m.config.arena = m.arena + 1;
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_E_ALIGN);
	prepare(&m);
	m.config.state_bytes = 100;
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_E_SIZE);
	prepare(&m);
	m.config.weights = m.arena;
	m.config.weights_bytes = 1;
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_E_WEIGHTS);
	prepare(&m);
	m.config.batch = 5;
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_E_DIM);
	ck_assert_int_eq(l.model.reset(m.context), TFMC_RT_E_CONTEXT); /* nothing was written */
	prepare(&m);
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_OK);
	ck_assert_int_eq(l.model.trim(m.context, 4, 0), TFMC_RT_E_DIM);
	ck_assert_int_eq(l.model.trim(m.context, 0, 1), TFMC_RT_E_LENGTH);
	ck_assert_int_eq(l.model.trim(m.context, 3, 0), TFMC_RT_OK);
	uint64_t words[16] = {0};
	ck_assert_int_eq(l.model.call(m.context, 9, words, -1), TFMC_RT_E_ENTRY);
	ck_assert_int_eq(l.model.call(m.context, RUN, words, 1), TFMC_RT_E_WORKER);
	unload(&l);
}
END_TEST

START_TEST(sizes_follow_the_dims)
{
	struct backend_options o = {.opt_level = 2};
	struct loaded l;
	load(&l, target_native(), &o);
	const int64_t small[] = {1, 1}, large[] = {4, 6}, wrong[] = {4, 7};
	ck_assert_uint_eq(l.model.arena_size(large, 1),
	                  l.model.record->arena_bytes_max + l.model.record->scratch_bytes);
	ck_assert_uint_lt(l.model.arena_size(small, 1), l.model.arena_size(large, 1));
	ck_assert_uint_eq(l.model.arena_size(wrong, 1), 0);
	ck_assert_uint_eq(l.model.state_size(2),
	                  l.model.record->state_fixed_bytes + 2 * l.model.record->state_batch_bytes);
	ck_assert_uint_eq(l.model.state_size(5), 0);
	ck_assert_uint_eq(l.model.record->context_limit, 6);
	unload(&l);
}
END_TEST

/* ---- cancelling ---- */

#define CANCEL_WORKERS 9 /* three clusters at their barriers */

struct cancelling {
	const struct loaded *loaded;
	struct memory *memory;
	uint64_t words[16];
	int stop;         /* the hook says so */
	atomic_int asked; /* how often it was called */
	int patience;     /* it says so from then on */
	int32_t status[CANCEL_WORKERS];
};

static int32_t maybe_stop(void *user)
{
	struct cancelling *c = user;
	int asked = atomic_fetch_add(&c->asked, 1) + 1;
	sched_yield();
	return c->stop && asked > c->patience;
}

/* Worker 0 comes when the others have waited so long that they were asked. */
static void cancel_worker(void *arg, int64_t worker, int64_t n_workers)
{
	struct cancelling *c = arg;
	(void)n_workers;
	while (worker == 0 && c->stop && atomic_load(&c->asked) <= c->patience)
		sched_yield();
	c->status[worker] = c->loaded->model.call(c->memory->context, PREFILL, c->words, worker);
}

static struct tfmc_pool *begin_cancelling(struct cancelling *c, int64_t workers, float *x, size_t n)
{
	struct backend_options o = {.opt_level = 2};
	struct tfmc_pool *pool;
	static struct loaded l;
	static struct memory m;
	load(&l, target_native(), &o);
	prepare(&m);
	*c = (struct cancelling){.loaded = &l, .memory = &m};
	m.config.workers = workers;
	m.config.yield = maybe_stop;
	m.config.user = c;
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(i % 7) * 0.25f;
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_pool_create(workers, &pool), TFMC_RT_OK);
	return pool;
}

static void end_cancelling(struct cancelling *c, struct tfmc_pool *pool)
{
	tfmc_pool_destroy(pool);
	unload((struct loaded *)(uintptr_t)c->loaded);
}

START_TEST(cancelled_calls_change_no_length)
{
	struct backend_options o = {.opt_level = 2};
	struct loaded l;
	static struct memory m;
	static float x[2 * 6 * 4], out[2 * 6 * 4];
	struct tfmc_pool *pool;
	load(&l, target_native(), &o);
	prepare(&m);
	struct cancelling c = {.loaded = &l, .memory = &m};
	m.config.workers = 3;
	m.config.yield = maybe_stop;
	m.config.user = &c;
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_pool_create(3, &pool), TFMC_RT_OK);
	const uint64_t words[] = {2, 5, (uintptr_t)x, 48, (uintptr_t)out, 48};
	memcpy(c.words, words, sizeof(words));
	for (int round = 0; round < 4; round++) {
		c.stop = round != 3;
		atomic_store(&c.asked, 0);
		tfmc_pool_run(pool, cancel_worker, &c);
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(c.status[i], c.stop ? TFMC_RT_E_CANCELLED : TFMC_RT_OK);
	}
	c.stop = 0; /* five of six rows are taken now, and were not before */
	ck_assert_int_eq(l.model.trim(m.context, 1, 5), TFMC_RT_OK);
	tfmc_pool_run(pool, cancel_worker, &c);
	ck_assert_int_eq(c.status[0], TFMC_RT_E_FULL);
	tfmc_pool_destroy(pool);
	unload(&l);
}
END_TEST

/* Workers are told to stop after any number of looks, more workers than this machine has: all get the same
 * status, and the calls after compute as ever. */
START_TEST(calls_are_cancelled_anywhere)
{
	static float x[48], out[48], first[48];
	struct cancelling c;
	struct tfmc_pool *pool = begin_cancelling(&c, CANCEL_WORKERS, x, 48);
	const uint64_t words[] = {2, 5, (uintptr_t)x, 48, (uintptr_t)out, 48};
	int n_cancelled = 0;
	memcpy(c.words, words, sizeof(words));
	for (int round = 0; round < 60; round++) {
		c.patience = round % 13;
		c.stop = round % 3 != 0;
		atomic_store(&c.asked, 0);
		ck_assert_int_eq(c.loaded->model.reset(c.memory->context), TFMC_RT_OK);
		tfmc_pool_run(pool, cancel_worker, &c);
		for (int i = 1; i < CANCEL_WORKERS; i++)
			ck_assert_int_eq(c.status[i], c.status[0]);
		ck_assert(c.status[0] == TFMC_RT_OK || (c.stop && c.status[0] == TFMC_RT_E_CANCELLED));
		n_cancelled += c.status[0] != TFMC_RT_OK;
		if (round == 0)
			memcpy(first, out, sizeof(out));
		if (!c.stop)
			ck_assert_mem_eq(first, out, sizeof(out));
	}
	ck_assert_int_gt(n_cancelled, 0);
	end_cancelling(&c, pool);
}
END_TEST

/* Later calls have other numbers of workers; never more than the context was made for. */
START_TEST(workers_change_between_calls)
{
	static const int64_t sequence[] = {1, 2, 7, 5, 1, 9, 4, 3, 8, 6, 2};
	static float x[48], out[48], first[48];
	struct cancelling c;
	struct tfmc_pool *pool = begin_cancelling(&c, CANCEL_WORKERS, x, 48);
	const struct tfmc_model *model = &c.loaded->model;
	const uint64_t words[] = {2, 5, (uintptr_t)x, 48, (uintptr_t)out, 48};
	memcpy(c.words, words, sizeof(words));
	ck_assert_int_eq(model->set_workers(c.memory->context, 0), TFMC_RT_E_WORKER);
	ck_assert_int_eq(model->set_workers(c.memory->context, CANCEL_WORKERS + 1), TFMC_RT_E_WORKER);
	ck_assert_int_eq(model->set_workers(NULL, 1), TFMC_RT_E_NULL);
	for (size_t i = 0; i < TFMC_COUNT(sequence); i++) {
		ck_assert_int_eq(model->reset(c.memory->context), TFMC_RT_OK);
		ck_assert_int_eq(model->set_workers(c.memory->context, sequence[i]), TFMC_RT_OK);
		memset(out, 0, sizeof(out));
		tfmc_pool_run_some(pool, sequence[i], cancel_worker, &c);
		for (int64_t w = 0; w < sequence[i]; w++)
			ck_assert_int_eq(c.status[w], TFMC_RT_OK);
		if (i == 0)
			memcpy(first, out, sizeof(out));
		ck_assert_mem_eq(first, out, sizeof(out));
	}
	end_cancelling(&c, pool);
}
END_TEST

/* ---- weights ---- */

struct file {
	unsigned char bytes[8192];
	size_t n;
};

static bool write_at(void *user, uint64_t offset, const void *bytes, size_t n)
{
	struct file *f = user;
	if (offset > sizeof(f->bytes) || n > sizeof(f->bytes) - offset)
		return false;
	memcpy(f->bytes + offset, bytes, n);
	f->n = offset + n > f->n ? offset + n : f->n;
	return true;
}

START_TEST(weights_in_a_file)
{
	static struct file f;
	static _Alignas(64) unsigned char weights[4096];
	static struct memory m;
	struct backend_sink sink = {write_at, &f};
	struct backend_options o = {.opt_level = 2, .weights = BACKEND_WEIGHTS_FILE, .weights_sink = &sink};
	struct tfmc_weights_header header;
	struct loaded l;
	load(&l, target_native(), &o);
	memcpy(&header, f.bytes, sizeof(header));
	ck_assert(!l.out.embedded);
	ck_assert_uint_eq(header.magic, TFMC_WEIGHTS_MAGIC);
	ck_assert_uint_eq(header.structure_hash, l.model.record->structure_hash);
	ck_assert_uint_eq(header.weights_hash, l.model.record->weights_hash);
	ck_assert_uint_eq(header.bytes, l.model.record->weights_bytes);
	ck_assert_uint_eq(f.n, TFMC_WEIGHTS_DATA + header.bytes);
	prepare(&m);
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_E_NO_WEIGHTS);
	memcpy(weights, f.bytes + TFMC_WEIGHTS_DATA, header.bytes);
	m.config.weights = weights;
	m.config.weights_bytes = header.bytes;
	ck_assert_int_eq(l.model.init(m.context, &m.config), TFMC_RT_OK);
	unload(&l);
}
END_TEST

Suite *suite_object(void)
{
	Suite *s = suite_create("object");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	tcase_add_test(t, computes_what_the_interpreter_computes);
	tcase_add_test(t, refuses_wrong_arguments);
	tcase_add_test(t, left_out_buffers);
	tcase_add_test(t, init_checks_the_config);
	tcase_add_test(t, sizes_follow_the_dims);
	tcase_add_test(t, cancelled_calls_change_no_length);
	tcase_add_test(t, calls_are_cancelled_anywhere);
	tcase_add_test(t, workers_change_between_calls);
	tcase_add_test(t, weights_in_a_file);
	suite_add_tcase(s, t);
	return s;
}
