/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/opencl/model_code.h"

#include <check.h>
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"

static enum tfmc_status compile(struct model_code *m, const char *family, const char *level, uint64_t batch)
{
	struct diag_context *cx = &m->graph.cx;
	const struct target *target = target_find(family);
	struct pipeline passes;
	const struct pass_options options = {.target = target};
	TFMC_TRY(pipeline_parse(&m->arena, cx, level, &passes));
	TFMC_TRY(passes_run(cx, &passes, &options, m->graph.m, &m->planned, NULL));
	return device_code_make(&m->device, cx, m->planned, target, NULL, batch);
}

void model_code_make(struct model_code *m, const char *text, const char *family, const char *level,
                     uint64_t batch)
{
	*m = (struct model_code){0};
	arena_init(&m->arena);
	tir_init(&m->graph);
	tir_load(&m->graph, text);
	enum tfmc_status status = compile(m, family, level, batch);
	ck_assert_msg(status == TFMC_OK, "%s", m->graph.log.data);
}

void model_code_destroy(struct model_code *m)
{
	device_code_destroy(&m->device);
	ir_module_destroy(m->planned);
	tir_destroy(&m->graph);
	arena_destroy(&m->arena);
}

size_t model_code_function(const struct model_code *m, const char *name)
{
	size_t i = device_code_function(&m->device, name);
	ck_assert_msg(i < SIZE_MAX, "there is no function %s", name);
	return i;
}
