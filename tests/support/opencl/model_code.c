/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/opencl/model_code.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "passes/framework/pass.h"

#define PAGE 4096

static bool store(void *user, uint64_t offset, const void *bytes, size_t n)
{
	struct model_code *m = user;
	for (size_t i = 0; i < n; i++) {
		uint64_t at = offset + i - TFMC_WEIGHTS_DATA;
		if (offset + i >= TFMC_WEIGHTS_DATA && at < m->program.weights_bytes)
			m->weights[at] = ((const char *)bytes)[i];
	}
	return true;
}

static enum tfmc_status compile(struct model_code *m, const struct target *target, const char *level)
{
	struct diag_context *cx = &m->graph.cx;
	struct pipeline passes;
	struct backend_sink sink = {store, m};
	const struct pass_options options = {.target = target};
	TFMC_TRY(pipeline_parse(&m->arena, cx, level, &passes));
	TFMC_TRY(passes_run(cx, &passes, &options, m->graph.m, &m->planned, NULL));
	TFMC_TRY(opencl_build(cx, m->planned, target, &m->arena, &m->program));
	m->weights = aligned_alloc(PAGE, ((size_t)m->program.weights_bytes / PAGE + 1) * PAGE);
	ck_assert_ptr_nonnull(m->weights);
	TFMC_TRY(backend_pack(cx, m->planned, NULL, &sink));
	return opencl_write_plan(cx, &m->program, m->planned, &m->plan);
}

void model_code_make(struct model_code *m, const char *text, const char *family, const char *level,
                     uint64_t batch)
{
	*m = (struct model_code){0};
	arena_init(&m->arena);
	tir_init(&m->graph);
	buf_init(&m->plan);
	tir_load(&m->graph, text);
	enum tfmc_status status = compile(m, target_find(family), level);
	ck_assert_msg(status == TFMC_OK, "%s", m->graph.log.data);
	m->code = (struct tfmc_cl_code){m->plan.data,          m->plan.len, m->program.source.data,
	                                m->program.source.len, m->weights,  m->program.weights_bytes,
	                                TFMC_CL_FOR_ANY,       batch};
}

void model_code_destroy(struct model_code *m)
{
	free(m->weights);
	buf_destroy(&m->plan);
	opencl_program_destroy(&m->program);
	ir_module_destroy(m->planned);
	tir_destroy(&m->graph);
	arena_destroy(&m->arena);
}

size_t model_code_function(const struct model_code *m, const char *name)
{
	size_t i = 0;
	while (i < m->program.n_functions && strcmp(m->program.functions[i]->func->name, name) != 0)
		i++;
	ck_assert_msg(i < m->program.n_functions, "there is no function %s", name);
	return i;
}
