/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a model (plan, device, launches, program, weights, state) and closing it.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/model_internal.h"

/* ---- errors ---- */

int32_t model_fail(const struct tfmc_cl_model *m, const struct model_site *where, const char *fmt, ...)
{
	static const struct model_site nowhere;
	const struct model_site *w = where ? where : &nowhere;
	char text[TFMC_CL_TEXT];
	va_list ap;
	if (!m->device.message || m->device.message_bytes == 0)
		return TFMC_RT_E_DEVICE;
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = 0;
	va_end(ap);
	(void)snprintf(m->device.message, (size_t)m->device.message_bytes, "%s%s%s%s%s%s",
	               w->function ? w->function : "", w->function ? ": " : "", w->kernel ? "kernel " : "",
	               w->kernel ? w->kernel : "", w->kernel ? ": " : "", text);
	return TFMC_RT_E_DEVICE;
}

int32_t model_status(const struct tfmc_cl_model *m, const struct model_site *where, int status)
{
	return status == TFMC_CL_OK ? TFMC_RT_OK : model_fail(m, where, "%s", m->error.text);
}

int32_t model_no_memory(const struct tfmc_cl_model *m)
{
	return model_fail(m, NULL, "memory could not be allocated");
}

/* ---- memory ---- */

int32_t model_grow(struct tfmc_cl_model *m, const struct model_site *where, struct model_memory *memory,
                   int64_t bytes)
{
	if (memory->buffer && tfmc_cl_buffer_bytes(memory->buffer) >= (uint64_t)bytes)
		return TFMC_RT_OK;
	tfmc_cl_buffer_free(memory->buffer);
	memory->serial = ++m->serial;
	int status = tfmc_cl_buffer_create(m->context, (uint64_t)bytes, &memory->buffer, &m->error);
	return model_status(m, where, status);
}

static int32_t allocate_state(struct tfmc_cl_model *m)
{
	int64_t fixed = tfmc_plan_header(&m->plan, PLAN_H_STATE_FIXED), bytes = 0;
	uint64_t batch = m->code.batch;
	if (batch > 0 &&
	    (batch > SIZE_MAX / sizeof(*m->n_readers) ||
	     __builtin_mul_overflow(tfmc_plan_header(&m->plan, PLAN_H_STATE_BATCH), batch, &bytes) ||
	     __builtin_add_overflow(bytes, fixed, &bytes)))
		return model_fail(m, NULL, "a state of %" PRIu64 " sequences is too large", batch);
	m->lengths = calloc((size_t)batch + 1, sizeof(*m->lengths));
	m->n_readers = calloc((size_t)batch + 1, sizeof(*m->n_readers));
	if (!m->lengths || !m->n_readers)
		return model_no_memory(m);
	TRY(model_grow(m, NULL, &m->state, bytes));
	return model_status(m, NULL, tfmc_cl_clear(m->state.buffer, 0, (uint64_t)bytes, &m->error));
}

/* ---- device and plan ---- */

static int32_t open_device(struct tfmc_cl_model *m)
{
	size_t number;
	int status = tfmc_cl_open(m->device.library, &m->cl, &m->error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_choose(m->cl, (int)m->code.devices, m->device.name, &number, &m->error);
	if (status != TFMC_CL_OK)
		return model_status(m, NULL, status);
	m->chosen = tfmc_cl_device(m->cl, number);
	status = tfmc_cl_context_open(m->cl, number, 0, &m->context, &m->error);
	m->has_dot = status == TFMC_CL_OK && model_has_dot(m);
	return model_status(m, NULL, status);
}

/* Checks and opens the plan; its weights must have the size of the code's. */
static int32_t read_plan(struct tfmc_cl_model *m)
{
	const char *wrong = m->code.plan && m->code.source && (m->code.weights || !m->code.weights_bytes)
	                            ? tfmc_plan_open(m->code.plan, (size_t)m->code.plan_bytes, &m->plan)
	                            : "there is none, or no source, or no weights";
	if (wrong)
		return model_fail(m, NULL, "plan: %s", wrong);
	uint64_t weights = (uint64_t)tfmc_plan_header(&m->plan, PLAN_H_WEIGHTS);
	if (weights != m->code.weights_bytes)
		return model_fail(m, NULL, "the plan has %" PRIu64 " bytes of weights, there are %" PRIu64,
		                  weights, m->code.weights_bytes);
	return TFMC_RT_OK;
}

/* ---- programs ---- */

static const char *kernel_name(const struct tfmc_cl_model *m, int64_t row)
{
	return tfmc_plan_name(&m->plan, model_cell(m, PLAN_KERNELS, row, KERNEL_NAME));
}

/* Counts the kernels of f that no program has, and sets them in is_unbuilt (may be NULL). Rows of KERNELS
 * with one name are one kernel. */
static size_t find_unbuilt(const struct tfmc_cl_model *m, const struct model_function *f, bool *is_unbuilt)
{
	int64_t row = f - m->functions, first = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_FIRST);
	size_t n = 0;
	for (int64_t i = first; i < first + model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_N); i++) {
		int64_t kernel = model_cell(m, PLAN_COMMANDS, i, COMMAND_A);
		if (model_cell(m, PLAN_COMMANDS, i, COMMAND_KIND) != PLAN_DISPATCH || m->programs[kernel])
			continue;
		n++;
		for (int64_t k = 0; is_unbuilt && k < m->plan.rows[PLAN_KERNELS]; k++)
			is_unbuilt[k] = is_unbuilt[k] || !strcmp(kernel_name(m, k), kernel_name(m, kernel));
	}
	return n;
}

/* Build options with a macro WITHOUT_kernel for each kernel to leave out (backends/plan/README.md). NULL:
 * no memory. */
static char *build_options(const struct tfmc_cl_model *m, const bool *is_unbuilt)
{
	static const char plain[] = MODEL_LANGUAGE, dots[] = MODEL_LANGUAGE " -DTFMC_DOT=1",
	                  without[] = " -DWITHOUT_";
	const char *standard = m->has_dot ? dots : plain;
	size_t at = strlen(standard), bytes = at + 1;
	for (int64_t i = 0; i < m->plan.rows[PLAN_KERNELS]; i++)
		bytes += sizeof(without) + strlen(kernel_name(m, i));
	char *text = malloc(bytes);
	if (!text)
		return NULL;
	memcpy(text, standard, at + 1);
	for (int64_t i = 0; i < m->plan.rows[PLAN_KERNELS]; i++)
		if (!is_unbuilt[i])
			at += (size_t)snprintf(text + at, bytes - at, "%s%s", without, kernel_name(m, i));
	return text;
}

/* Builds one program of the kernels in is_unbuilt. */
static int32_t build_kernels(struct tfmc_cl_model *m, struct model_function *f, const bool *is_unbuilt)
{
	const struct model_site where = {f->name, NULL};
	char *options = build_options(m, is_unbuilt);
	if (!options)
		return model_no_memory(m);
	const struct tfmc_cl_source source = {m->code.source, m->code.source_bytes, options, m->device.cache};
	int status = tfmc_cl_program_build(m->context, &source, &f->program, &m->error);
	free(options);
	for (int64_t i = 0; status == TFMC_CL_OK && i < m->plan.rows[PLAN_KERNELS]; i++)
		m->programs[i] = is_unbuilt[i] ? f->program : m->programs[i];
	return model_status(m, &where, status);
}

int32_t model_build(struct tfmc_cl_model *m, struct model_function *f)
{
	bool *is_unbuilt = calloc((size_t)m->plan.rows[PLAN_KERNELS] + 1, sizeof(*is_unbuilt));
	if (!is_unbuilt)
		return model_no_memory(m);
	int32_t status = find_unbuilt(m, f, is_unbuilt) > 0 ? build_kernels(m, f, is_unbuilt) : TFMC_RT_OK;
	f->is_built = status == TFMC_RT_OK;
	free(is_unbuilt);
	return status;
}

/* Building the function with most kernels shows at once whether the device's compiler accepts the code;
 * other functions are built at their first call. */
static int32_t build_largest(struct tfmc_cl_model *m)
{
	struct model_function *largest = &m->functions[0];
	m->programs = calloc((size_t)m->plan.rows[PLAN_KERNELS] + 1, sizeof(*m->programs));
	if (!m->programs)
		return model_no_memory(m);
	for (int64_t i = 1; i < m->plan.rows[PLAN_FUNCTIONS]; i++)
		if (find_unbuilt(m, &m->functions[i], NULL) > find_unbuilt(m, largest, NULL))
			largest = &m->functions[i];
	return m->plan.rows[PLAN_FUNCTIONS] > 0 ? model_build(m, largest) : TFMC_RT_OK;
}

/* ---- opening ---- */

static int32_t open_parts(struct tfmc_cl_model *m)
{
	TRY(read_plan(m));
	TRY(open_device(m));
	TRY(model_build_launches(m));
	TRY(build_largest(m));
	TRY(model_upload_weights(m));
	return allocate_state(m);
}

int32_t tfmc_cl_model_open(const struct tfmc_cl_code *code, const struct tfmc_device *device,
                           struct tfmc_cl_model **out)
{
	const struct tfmc_device any_device = {0};
	struct tfmc_cl_model initial = {.device = device ? *device : any_device};
	if (out)
		*out = NULL;
	if (!code || !out)
		return model_fail(&initial, NULL, "the code or the result pointer is null");
	struct tfmc_cl_model *m = malloc(sizeof(*m));
	if (!m)
		return model_no_memory(&initial);
	*m = initial;
	m->code = *code;
	int32_t status = open_parts(m);
	if (status == TFMC_RT_OK)
		*out = m;
	else
		tfmc_cl_model_close(m);
	return status;
}

/* ---- closing ---- */

static void free_function(struct model_function *f)
{
	for (size_t i = 0; i < f->n; i++)
		tfmc_cl_kernel_free(f->launches[i].handle);
	tfmc_cl_program_free(f->program);
	free(f->launches);
	free(f->args);
	free(f->dims);
	free(f->wanted);
}

static void free_buffers(struct model_memory *list, int64_t n)
{
	for (int64_t i = 0; list && i < n; i++)
		tfmc_cl_buffer_free(list[i].buffer);
}

void tfmc_cl_model_close(struct tfmc_cl_model *m)
{
	if (!m)
		return;
	for (int64_t i = 0; m->functions && i < m->plan.rows[PLAN_FUNCTIONS]; i++)
		free_function(&m->functions[i]);
	for (size_t i = 0; i < m->n_pieces; i++)
		tfmc_cl_buffer_free(m->pieces[i].memory.buffer);
	struct model_memory single[] = {m->arena, m->scratch, m->state, m->permute_buffer};
	free_buffers(single, sizeof(single) / sizeof(single[0]));
	free_buffers(m->params, m->n_params);
	free_buffers(m->results, m->n_results);
	tfmc_cl_context_close(m->context);
	tfmc_cl_close(m->cl);
	free(m->functions);
	free(m->programs);
	free(m->pieces);
	free(m->params);
	free(m->results);
	free(m->lengths);
	free(m->n_readers);
	free(m);
}
