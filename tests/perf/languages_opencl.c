/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL row of languages.c: compiles, lays out the memory of one call on
 * the device, and enqueues the launches of the function again and again.
 */
#include "tests/perf/languages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "backends/plan/opencl.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/opencl/opencl_device.h"
#include "tests/support/planned.h"

#define ARGS_MAX     32
#define GROUPS_MAX   64 /* work-groups of a launch */
#define TIR_BYTES    65536
#define MEMORY_KINDS (AREA_SCRATCH + 1)

struct opencl_row {
	struct diag_context cx;
	struct arena arena;
	struct buf log, weights;
	struct ir_module *module, *planned;
	struct opencl_program program;
	struct opencl_device *device;
	struct opencl_device_buffer memory[MEMORY_KINDS];
	size_t y_bytes;
};

static int64_t constant(const struct ir_dim *d)
{
	int64_t v = 0;
	return ir_dim_is_const(d, &v) ? v : 0;
}

/* ---- compiling ---- */

static bool write_weights(void *user, uint64_t offset, const void *bytes, size_t n)
{
	struct buf *b = user;
	while (b->len < offset && !buf_failed(b))
		buf_char(b, '\0');
	if (offset + n <= b->len)
		memcpy(b->data + offset, bytes, n);
	else if (offset == b->len)
		buf_bytes(b, bytes, n);
	return !buf_failed(b);
}

static enum tfmc_status read_module(struct opencl_row *r, const char *path)
{
	char *text = arena_alloc(&r->arena, TIR_BYTES);
	FILE *f = fopen(path, "rb");
	size_t n = f && text ? fread(text, 1, TIR_BYTES, f) : 0;
	if (f)
		(void)fclose(f);
	TFMC_TRY(ir_parse(&r->cx, path, text ? text : "", n, &r->module));
	return ir_verify(r->module, &r->cx);
}

static enum tfmc_status compile(struct opencl_row *r, const char *path, const char *target)
{
	struct pipeline pipeline;
	struct pass_options options = {.target = target_find(target)};
	struct backend_sink sink = {write_weights, &r->weights};
	struct weight_source none = {0};
	if (!options.target)
		return TFMC_INVALID;
	TFMC_TRY(read_module(r, path));
	TFMC_TRY(pipeline_parse(&r->arena, &r->cx, "O2", &pipeline));
	TFMC_TRY(passes_run(&r->cx, &pipeline, &options, r->module, &r->planned, NULL));
	TFMC_TRY(planned_pack(&r->cx, r->planned, &none, &sink));
	return opencl_build(&r->cx, r->planned, options.target, NULL, &r->arena, &r->program);
}

/* ---- the device ---- */

static void allocate(struct opencl_row *r, const float *x)
{
	const struct plan *f = r->program.functions[0];
	const struct ir_type *in = ir_type_of(f->func, f->func->params[0].value);
	int64_t scratch = 0;
	for (size_t i = 0; i < f->n; i++) {
		const struct plan_kernel *l = f->items[i].kernel;
		int64_t bytes = l ? l->scratch * l->workers * GROUPS_MAX : 0;
		scratch = bytes > scratch ? bytes : scratch;
	}
	size_t x_bytes = (size_t)constant(ir_type_count(r->planned->dims, in)) * sizeof(float);
	const char *weights = r->weights.len > TFMC_WEIGHTS_DATA ? r->weights.data + TFMC_WEIGHTS_DATA : NULL;
	r->memory[AREA_WEIGHTS] =
	        opencl_device_alloc(r->device, (size_t)r->program.object->weights.bytes, weights);
	r->memory[AREA_ARENA] = opencl_device_alloc(r->device, (size_t)constant(f->arena_bytes), NULL);
	r->memory[AREA_STATE] = opencl_device_alloc(r->device, 1, NULL);
	r->memory[AREA_INPUT] = opencl_device_alloc(r->device, x_bytes, x);
	r->memory[AREA_OUTPUT] = opencl_device_alloc(r->device, r->y_bytes, NULL);
	r->memory[AREA_SCRATCH] = opencl_device_alloc(r->device, (size_t)scratch, NULL);
}

static bool launch(struct opencl_row *r, const struct plan_kernel *l)
{
	struct opencl_device_arg args[ARGS_MAX];
	enum opencl_device_arg_kind index =
	        r->program.index_bits == 64 ? OPENCL_DEVICE_LONG : OPENCL_DEVICE_INT;
	if (l->n_args > ARGS_MAX)
		return false;
	for (size_t i = 0; i < l->n_args; i++) {
		const struct plan_arg *a = &l->args[i];
		args[i] = (struct opencl_device_arg){.kind = index};
		if (a->kind == PLAN_BUFFER)
			args[i] = (struct opencl_device_arg){
			        .kind = OPENCL_DEVICE_BUFFER,
			        .buffer = &r->memory[l->areas.items[a->number].memory]};
		else if (a->kind == PLAN_OFFSET && l->areas.items[a->number].offset)
			args[i].number = constant(l->areas.items[a->number].offset);
	}
	int64_t groups = constant(l->tasks);
	groups = groups < 1 ? 1 : groups > GROUPS_MAX ? GROUPS_MAX : groups;
	return opencl_device_launch(r->device, l->name, args, l->n_args, groups, l->items);
}

bool opencl_row_call(struct opencl_row *r, int64_t n)
{
	const struct plan *f = r->program.functions[0];
	bool ok = true;
	for (int64_t k = 0; ok && k < n; k++)
		for (size_t i = 0; ok && i < f->n; i++)
			ok = !f->items[i].kernel || launch(r, f->items[i].kernel);
	ok = ok && opencl_device_finish(r->device);
	if (!ok)
		fprintf(stderr, "%s\n", opencl_device_error(r->device));
	return ok;
}

bool opencl_row_read(struct opencl_row *r, float *y)
{
	return opencl_device_read(r->device, &r->memory[AREA_OUTPUT], 0, y, r->y_bytes);
}

/* ---- opening ---- */

static bool open_device(struct opencl_row *r, const float *x)
{
	const struct plan *f = r->program.functions[0];
	const struct ir_type *out =
	        ir_type_of(f->func, f->func->body->ops[f->func->body->n_ops - 1]->operands[0]);
	r->y_bytes = (size_t)constant(ir_type_count(r->planned->dims, out)) * sizeof(float);
	r->device = opencl_device_open(NULL);
	if (!r->device)
		return false;
	opencl_device_build(r->device, r->program.source.data, r->program.source.len, "-cl-std=CL1.2");
	allocate(r, x);
	if (!opencl_device_error(r->device)[0])
		return true;
	fprintf(stderr, "%s\n", opencl_device_error(r->device));
	return false;
}

struct opencl_row *opencl_row_open(const char *tir, const char *target, const float *x)
{
	struct opencl_row *r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	arena_init(&r->arena);
	buf_init(&r->log);
	buf_init(&r->weights);
	diag_init(&r->cx, diag_render_text, &r->log);
	if (compile(r, tir, target) == TFMC_OK && r->program.n_functions == 1 && open_device(r, x))
		return r; /* lives as long as the program */
	fprintf(stderr, "%s", r->log.data ? r->log.data : "");
	return NULL;
}
