/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns of OpenCL: programs run in this process, on the device that
 * tests/opencl finds; the results go to the same file as the runner's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "tests/matrix/column.h"
#include "tests/matrix/files.h"
#include "tests/opencl/run.h"

struct device_run {
	struct column_job job;
	struct suite *s;
	struct opencl_device *device;
	struct opencl_host *host;
	struct ir_module *part, *planned;
	struct buf out;
};

static bool build_only(struct column_job *j, const struct ir_module *planned)
{
	struct opencl_program p = {0};
	enum tfmc_status st = opencl_build(j->cx, planned, j->target, &j->arena, &p);
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
	if (d->planned)
		d->host = opencl_host_open(d->job.cx, d->device, d->planned, d->job.target, &b->weights,
		                           MATRIX_SEQUENCES);
	return d->host != NULL;
}

static void close_batch(struct device_run *d)
{
	opencl_host_close(d->host);
	ir_module_destroy(d->planned);
	ir_module_destroy(d->part);
	d->host = NULL;
	d->planned = d->part = NULL;
}

static bool run_case(struct device_run *d, const struct matrix_case *c)
{
	struct arena a;
	bool ok = ir_find_func(d->planned, c->f->name) != NULL;
	buf_u64le(&d->out, ok ? 0 : MATRIX_ABSENT);
	if (!ok)
		return true;
	arena_init(&a);
	struct interp_tensor *outputs = ARENA_ARRAY(&a, struct interp_tensor, c->n_outputs + 1);
	const struct opencl_call call = {.function = c->f->name,
	                                 .dims = c->dims,
	                                 .inputs = c->inputs,
	                                 .outputs = outputs,
	                                 .arena = &a,
	                                 .mode = OPENCL_WHOLE};
	if (c->reset)
		opencl_host_reset(d->host);
	ok = opencl_run_function(d->host, &call) == TFMC_OK;
	for (size_t i = 0; ok && i < c->n_outputs; i++)
		if (output_is_caller(c->f, i))
			ok = put_tensor(&a, &d->out, &outputs[i]);
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

int column_run_opencl(struct suite *s, const struct column *column, const char *dir)
{
	struct device_run d = {.s = s, .device = opencl_device_open("Portable Computing Language")};
	if (!d.device)
		return 77;
	if (column->unoptimized || !getenv("TFMC_ALL"))
		opencl_device_unoptimized(d.device);
	buf_init(&d.out);
	bool ok = column_job_begin(&d.job, column) && run_batches(&d);
	ok = file_put(arena_printf(s->arena, "%s/%s.out", dir, column->name), d.out.data, d.out.len) && ok;
	ok = file_put(arena_printf(s->arena, "%s/%s.refused", dir, column->name), d.job.refused.data,
	              d.job.refused.len) &&
	     ok;
	buf_destroy(&d.out);
	column_job_end(&d.job);
	opencl_device_close(d.device);
	return ok ? 0 : 4;
}
