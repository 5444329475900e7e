/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns of OpenCL: models of libtfmccl in this process, on PoCL; the results go
 * to the same file as the runner's.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/model.h"
#include "runtime/opencl/tfmc_cl.h"
#include "tests/matrix/column.h"
#include "tests/matrix/files.h"
#include "tests/support/opencl/device_code.h"

struct device_run {
	struct column_job job;
	struct suite *s;
	struct device_code code;
	struct tfmc_cl_model *model;
	struct ir_module *part, *planned;
	struct buf out;
	struct tfmc_device device;
	char message[TFMC_CL_TEXT];
};

static bool build_only(struct column_job *j, const struct ir_module *planned)
{
	struct opencl_program p = {0};
	enum tfmc_status st = opencl_build(j->cx, planned, j->target, NULL, &j->arena, &p);
	if (st == TFMC_OK)
		opencl_program_destroy(&p);
	return st == TFMC_OK;
}

static bool open_batch(struct device_run *d, const struct batch *b)
{
	d->job.batch = b;
	d->part = column_graph(&d->job, b, build_only);
	if (!d->part && d->job.log.len > 0)
		return false;
	d->planned = column_plan(d->job.cx, d->part ? d->part : b->graph, b->pipeline, d->job.target);
	if (!d->planned || device_code_make(&d->code, d->job.cx, d->planned, d->job.target, &b->weights,
	                                    MATRIX_SEQUENCES) != TFMC_OK)
		return false;
	if (tfmc_cl_model_open(&d->code.code, &d->device, &d->model) == TFMC_RT_OK)
		return true;
	buf_str(&d->job.log, d->message);
	return false;
}

static void close_batch(struct device_run *d)
{
	tfmc_cl_model_close(d->model);
	device_code_destroy(&d->code);
	ir_module_destroy(d->planned);
	ir_module_destroy(d->part);
	d->model = NULL;
	d->planned = d->part = NULL;
}

/* ---- calls ---- */

static struct tfmc_buffer buffer_for(struct arena *a, const struct interp_tensor *t)
{
	uint64_t n = (uint64_t)interp_count(t) * (uint64_t)ir_dtype_bytes(t->dtype);
	return (struct tfmc_buffer){arena_calloc(a, (size_t)n + 1, 1), n};
}

/* Tensors of the caller, in the rows of the function's parameters; lengths of the state. */
static bool make_params(struct arena *a, const struct matrix_case *c, struct tfmc_buffer *params,
                        int32_t *past)
{
	for (size_t i = 0, next = 0; i < c->f->n_params; i++) {
		if (ir_type_of(c->f, c->f->params[i].value)->kind != IR_TENSOR)
			continue;
		const struct interp_tensor *t = &c->inputs[next++];
		struct tfmc_buffer b = buffer_for(a, t);
		if (!b.data)
			return false;
		interp_to_bytes(t, b.data);
		if (c->f->params[i].role == ROLE_PAST)
			memcpy(past, b.data, (size_t)b.count);
		else
			params[i] = b;
	}
	return true;
}

static bool make_results(struct arena *a, const struct matrix_case *c, struct tfmc_buffer *results)
{
	const struct ir_op *ret = c->f->body->ops[c->f->body->n_ops - 1];
	for (size_t i = 0, next = 0; i < ret->n_operands; i++) {
		if (ir_type_of(c->f, ret->operands[i])->kind != IR_TENSOR)
			continue;
		const struct interp_tensor *t = &c->outputs[next++];
		if (c->f->results[i].role == ROLE_PAST)
			continue;
		results[i] = buffer_for(a, t);
		if (!results[i].data)
			return false;
	}
	return true;
}

static bool reset(struct device_run *d, struct arena *a)
{
	const struct opencl_program *p = &d->code.program;
	int64_t bytes = p->object->states.fixed_bytes + MATRIX_SEQUENCES * p->object->states.batch_bytes;
	void *zeros = arena_calloc(a, (size_t)bytes + 1, 1);
	return zeros && (bytes == 0 || tfmc_cl_model_store(d->model, 0, zeros, bytes) == TFMC_RT_OK);
}

static bool call(struct device_run *d, const struct matrix_case *c, struct arena *a)
{
	int32_t past[MATRIX_SEQUENCES] = {0};
	struct tfmc_buffer *params = ARENA_ARRAY(a, struct tfmc_buffer, c->f->n_params + 1);
	struct tfmc_buffer *results = ARENA_ARRAY(a, struct tfmc_buffer, c->f->n_results + 1);
	if (!params || !results || !make_params(a, c, params, past) || !make_results(a, c, results) ||
	    (c->reset && !reset(d, a)))
		return false;
	const struct tfmc_cl_call call = {.function = device_code_function(&d->code, c->f->name),
	                                  .past = past,
	                                  .source = -1,
	                                  .dims = c->dims,
	                                  .params = params,
	                                  .results = results};
	if (tfmc_cl_model_call(d->model, &call) != TFMC_RT_OK)
		return false;
	for (size_t i = 0; i < c->f->n_results; i++)
		if (results[i].data)
			put_bytes(&d->out, results[i].data, (size_t)results[i].count);
	return true;
}

static bool run_case(struct device_run *d, const struct matrix_case *c)
{
	struct arena a;
	bool ok = ir_find_func(d->planned, c->f->name) != NULL;
	buf_u64le(&d->out, ok ? 0 : MATRIX_ABSENT);
	if (!ok)
		return true;
	arena_init(&a);
	ok = call(d, c, &a);
	if (!ok)
		buf_str(&d->job.log, d->message);
	arena_destroy(&a);
	return ok;
}

static bool run_batches(struct device_run *d)
{
	size_t open = SIZE_MAX;
	bool ok = true;
	for (size_t i = 0; ok && i < d->s->cases.n; i++) {
		const struct matrix_case *c = &d->s->cases.items[i];
		const struct batch *b = &d->s->batches.items[c->batch];
		if (!column_takes(d->job.column, b, c->f)) {
			buf_u64le(&d->out, MATRIX_ABSENT);
			continue;
		}
		if (c->batch != open) {
			close_batch(d);
			open = c->batch;
			ok = open_batch(d, b);
		}
		ok = ok && run_case(d, c);
		if (!ok)
			fprintf(stderr, "matrix: %s %s:\n%s", d->job.column->name, c->what, d->job.log.data);
	}
	close_batch(d);
	return ok;
}

static bool has_device(const char *name)
{
	struct tfmc_cl *cl;
	size_t number;
	bool has = tfmc_cl_open(NULL, &cl, NULL) == TFMC_CL_OK &&
	           tfmc_cl_choose(cl, 0, name, &number, NULL) == TFMC_CL_OK;
	tfmc_cl_close(cl);
	return has;
}

int column_run_opencl(struct suite *s, const struct column *column, const char *dir)
{
	struct device_run d = {.s = s, .device = {.name = "Portable Computing Language"}};
	d.device.message = d.message;
	d.device.message_bytes = sizeof(d.message);
	if (column->unoptimized || !getenv("TFMC_ALL"))
		(void)setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 1);
	if (!has_device(d.device.name))
		return 77;
	buf_init(&d.out);
	bool ok = column_job_begin(&d.job, column) && run_batches(&d);
	ok = file_put(arena_printf(s->arena, "%s/%s.out", dir, column->name), d.out.data, d.out.len) && ok;
	ok = file_put(arena_printf(s->arena, "%s/%s.refused", dir, column->name), d.job.refused.data,
	              d.job.refused.len) &&
	     ok;
	buf_destroy(&d.out);
	column_job_end(&d.job);
	return ok ? 0 : 4;
}
