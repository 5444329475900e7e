/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc_opencl: a chosen set of small programs on the OpenCL device that is found,
 * launch by launch, for a run under Oclgrind. Prints a line for each trial and
 * ends with 1 when one differs from the interpreter, with 77 without a device.
 *
 *   tfmc_opencl FAMILY ops [SEED [FIRST [LAST]]]   every op (of these numbers)
 *   tfmc_opencl FAMILY programs [SEED]    a random program
 *   tfmc_opencl FAMILY transformers [SEED [COUNT]]   random Transformers
 *   tfmc_opencl FAMILY shared             local memory and barriers
 *   tfmc_opencl - wrong KIND              a wrong kernel: race, bounds or unset
 *
 * --often before the rest: with several numbers of work-groups. -O0: that pipeline.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opencl/trial.h"
#include "tests/opencl/wrong.h"

#define SKIPPED 77

struct command {
	struct opencl_device *device;
	const char *family, *pipeline;
	bool is_often;
	int passed, failed, nothing;
};

static void begin(const struct command *c, struct trial *t)
{
	trial_init(t, c->device, c->family, c->pipeline);
	t->once = !c->is_often;
	t->cap = 3; /* more than one work-group, so that they may race */
}

static void end(struct command *c, struct trial *t, const char *name, enum trial_result result)
{
	c->passed += result == TRIAL_PASSED;
	c->failed += result == TRIAL_FAILED;
	c->nothing += result == TRIAL_NOTHING;
	if (result == TRIAL_PASSED)
		printf("passed %s %s %s\n", c->family, c->pipeline, name);
	if (result == TRIAL_FAILED)
		printf("FAILED %s %s %s\n%s\n", c->family, c->pipeline, name, t->log.data ? t->log.data : "");
	(void)fflush(stdout);
	trial_destroy(t);
}

/* ---- sets ---- */

static void run_ops(struct command *c, uint64_t seed, int first, int last)
{
	for (int i = first; i < IR_N_OPS && i <= last; i++) {
		enum ir_opcode code = (enum ir_opcode)i;
		struct trial t;
		begin(c, &t);
		end(c, &t, ir_op_desc(code)->name, trial_op(&t, code, seed, false));
	}
}

static void run_program(struct command *c, uint64_t seed)
{
	struct trial t;
	begin(c, &t);
	end(c, &t, "program", trial_program(&t, seed, 8));
}

static void run_transformers(struct command *c, uint64_t seed, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct trial t;
		char name[64];
		begin(c, &t);
		(void)snprintf(name, sizeof(name), "transformer %llu", (unsigned long long)(seed + i));
		end(c, &t, name, trial_transformer(&t, seed + i));
	}
}

/* Shapes whose tiles are shared by a work-group: more than one tile of rows, columns and inner axis, all odd.
 */
static const char *const shared[] = {
        "module \"linear\"\ndim M in [1,40]\n"
        "weight @w : f32[37,44] = sinusoid(rows=37, dim=44, layout=halves, spacing=t2t, start=1, "
        "base=100.0)\n"
        "weight @b : f32[37] = full(0.25, [37])\n"
        "func @run(%x: f32[M,44]) -> (y: f32[M,37]) {\n"
        "%y = linear %x, @w, @b : f32[M,37]\nreturn %y\n}\n",
        "module \"matmul\"\n"
        "func @run(%x: f32[2,35,18], %y: f32[2,18,33]) -> (z: f32[2,35,33]) {\n"
        "%z = matmul %x, %y : f32[2,35,33]\nreturn %z\n}\n",
        "module \"softmax\"\ndim M in [1,17]\n"
        "func @run(%x: f32[M,131]) -> (y: f32[M,131]) {\n"
        "%y = softmax %x : f32[M,131]\nreturn %y\n}\n",
        "module \"norm\"\ndim M in [1,17]\n"
        "func @run(%x: f32[M,67]) -> (y: f32[M,67]) {\n"
        "%y = layer_norm %x : f32[M,67]\nreturn %y\n}\n",
        /* a norm behind a product; launches of what takes no shared memory and a product,
         * of two products that meet, of topk and what is made of it */
        "module \"behind\"\ndim M in [1,40]\n"
        "weight @w : f32[70,44] = sinusoid(rows=70, dim=44, layout=halves, spacing=t2t, start=1, "
        "base=100.0)\n"
        "func @run(%x: f32[M,44], %r: f32[M,70]) -> (y: f32[M,70]) {\n"
        "%h = linear %x, @w : f32[M,70]\n%s = add %r, %h : f32[M,70]\n"
        "%y = layer_norm %s : f32[M,70]\nreturn %y\n}\n",
        "module \"after\"\ndim M in [1,40]\n"
        "weight @w : f32[70,44] = sinusoid(rows=70, dim=44, layout=halves, spacing=t2t, start=1, "
        "base=100.0)\n"
        "func @run(%x: f32[M,44], %y: f32[M,31]) -> (z: f32[M,31], u: f32[M,70]) {\n"
        "%c = cumsum %y : f32[M,31]\n%n = layer_norm %x : f32[M,44]\n%l = linear %n, @w : f32[M,70]\n"
        "%z = softmax %c : f32[M,31]\n%u = softmax %l : f32[M,70]\nreturn %z, %u\n}\n",
        "module \"own\"\ndim M in [1,150]\n"
        "weight @a : f32[70,20] = sinusoid(rows=70, dim=20, layout=halves, spacing=t2t, start=1, "
        "base=100.0)\n"
        "weight @b : f32[70,20] = sinusoid(rows=70, dim=20, layout=halves, spacing=t2t, start=2, "
        "base=100.0)\n"
        "func @run(%x: f32[M,20]) -> (z: f32[M,3], u: f32[M,70]) {\n"
        "%p = linear %x, @a : f32[M,70]\n%q = linear %x, @b : f32[M,70]\n%g = silu %q : f32[M,70]\n"
        "%m = mul %g, %p : f32[M,70]\n%t = topk %m {k=3} : f32[M,2,3]\n"
        "%v = slice %t {axis=1 begin=0 size=1} : f32[M,1,3]\n%w = reshape %v {dims=[M,3]} : f32[M,3]\n"
        "%s = softmax %w : f32[M,3]\n%z = log_softmax %s : f32[M,3]\n"
        "%u = tanh %m : f32[M,70]\nreturn %z, %u\n}\n",
        /* one new token, whose keys are several blocks; up to three of them */
        "module \"attention\"\n"
        "func @run(%q: f32[2,4,1,20], %k: f32[2,2,531,20], %v: f32[2,2,531,7]) -> (y: f32[2,4,1,7]) {\n"
        "%y = attention %q, %k, %v {scale=0.3} : f32[2,4,1,7]\nreturn %y\n}\n",
        "module \"attention\"\ndim S in [1,3]\n"
        "func @run(%q: f32[1,2,S,20], %k: f32[1,2,300,20]) -> (y: f32[1,2,S,20]) {\n"
        "%y = attention %q, %k, %k {scale=0.3} : f32[1,2,S,20]\nreturn %y\n}\n",
};

static void run_shared(struct command *c)
{
	for (size_t i = 0; i < TFMC_COUNT(shared); i++) {
		struct trial t;
		begin(c, &t);
		end(c, &t, "shared", trial_text(&t, "shared.tir", shared[i], i + 1));
	}
}

/* ---- the command ---- */

static long number(int argc, char **argv, int i, long otherwise)
{
	return i < argc ? strtol(argv[i], NULL, 10) : otherwise;
}

/* False: wrong usage. */
static bool run(struct command *c, int argc, char **argv)
{
	const char *set = argc > 2 ? argv[2] : "";
	c->family = argc > 1 ? argv[1] : "";
	if (strcmp(set, "wrong") == 0 && argc > 3) {
		c->failed += !wrong_run(c->device, argv[3]);
		return true;
	}
	if (!target_find(c->family))
		return false;
	if (strcmp(set, "ops") == 0)
		run_ops(c, (uint64_t)number(argc, argv, 3, 1), (int)number(argc, argv, 4, 0),
		        (int)number(argc, argv, 5, IR_N_OPS));
	else if (strcmp(set, "programs") == 0)
		run_program(c, (uint64_t)number(argc, argv, 3, 1));
	else if (strcmp(set, "transformers") == 0)
		run_transformers(c, (uint64_t)number(argc, argv, 3, 1), (uint64_t)number(argc, argv, 4, 1));
	else if (strcmp(set, "shared") == 0)
		run_shared(c);
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	struct command c = {.pipeline = "O2"};
	while (argc > 1 && argv[1][0] == '-' && argv[1][1]) {
		c.is_often = c.is_often || strcmp(argv[1], "--often") == 0;
		c.pipeline = strcmp(argv[1], "-O0") == 0 ? "O0" : c.pipeline;
		argc--;
		argv++;
	}
	c.device = opencl_device_open(NULL);
	if (!c.device)
		return SKIPPED;
	bool understood = run(&c, argc, argv);
	printf("%s: %d passed, %d failed, %d without a program\n", opencl_device_name(c.device), c.passed,
	       c.failed, c.nothing);
	opencl_device_close(c.device);
	if (!understood)
		(void)fputs(
		        "usage: tfmc_opencl [--often] [-O0] FAMILY ops|programs|transformers|shared ...\n",
		        stderr);
	return c.failed > 0 || !understood;
}
