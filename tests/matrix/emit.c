/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a column: an object or a C file for every batch, and models.h, the
 * list of models that the runner links.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/matrix/column.h"
#include "tests/support/planned.h"

/* LLVM only where its bytes are wanted: an attempt asks what the layers above it refuse (LLVM refuses
 * nothing). */
static bool compile(struct column_job *j, const struct ir_module *planned, bool is_text)
{
	bool needs_object = j->out && !is_text;
	const struct backend_options options = {.weights = BACKEND_WEIGHTS_EMBED,
	                                        .opt_level = getenv("TFMC_ALL") ? 1 : 0,
	                                        .no_object = !needs_object,
	                                        .needs_c = !needs_object};
	struct backend_output out;
	backend_output_init(&out);
	enum tfmc_status st = planned_compile(j->cx, planned, j->target, &j->batch->weights, &options, &out);
	const struct buf *made = is_text ? &out.c : &out.object;
	if (st == TFMC_OK && j->out)
		buf_bytes(j->out, made->data, made->len);
	backend_output_destroy(&out);
	return st == TFMC_OK;
}

static bool compile_object(struct column_job *j, const struct ir_module *planned)
{
	return compile(j, planned, false);
}

static bool compile_c(struct column_job *j, const struct ir_module *planned)
{
	return compile(j, planned, true);
}

static bool emit_batch(struct column_job *j, const struct batch *b, const char *dir)
{
	column_try *attempt = j->column->kind == COLUMN_C ? compile_c : compile_object;
	struct buf made;
	j->batch = b;
	j->out = NULL;
	struct ir_module *part = column_graph(j, b, attempt);
	if (!part && j->log.len > 0)
		return false;
	struct ir_module *planned = column_plan(j->cx, part ? part : b->graph, b->pipeline, j->target);
	buf_init(&made);
	j->out = &made;
	bool ok = planned && attempt(j, planned) &&
	          file_put(arena_printf(&j->arena, "%s/%s/%s.%s", dir, j->column->name, b->name,
	                                j->column->kind == COLUMN_C ? "c" : "o"),
	                   made.data, made.len);
	j->out = NULL;
	buf_destroy(&made);
	ir_module_destroy(planned);
	ir_module_destroy(part);
	return ok;
}

bool column_emit(struct suite *s, const struct column *column, const char *dir)
{
	struct column_job j;
	struct buf models;
	buf_init(&models);
	bool ok = column_job_begin(&j, column);
	for (size_t i = 0; ok && i < s->batches.n; i++) {
		const struct batch *b = &s->batches.items[i];
		if (!column_has(column, b))
			continue;
		buf_printf(&models, "MODEL(%s)\n", b->name);
		ok = emit_batch(&j, b, dir);
		if (!ok)
			fprintf(stderr, "matrix: %s %s:\n%s", column->name, b->name, j.log.data);
	}
	ok = ok &&
	     file_put(arena_printf(&j.arena, "%s/%s/models.h", dir, column->name), models.data, models.len) &&
	     file_put(arena_printf(&j.arena, "%s/%s.refused", dir, column->name), j.refused.data,
	              j.refused.len);
	buf_destroy(&models);
	column_job_end(&j);
	return ok;
}
