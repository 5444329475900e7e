/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/opencl/device_code.h"

#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "tests/support/planned.h"

#define PAGE 4096

static bool store(void *user, uint64_t offset, const void *bytes, size_t n)
{
	struct device_code *d = user;
	for (size_t i = 0; i < n; i++) {
		uint64_t at = offset + i - TFMC_WEIGHTS_DATA;
		if (offset + i >= TFMC_WEIGHTS_DATA && at < (uint64_t)d->program.object->weights.bytes)
			d->weights[at] = ((const char *)bytes)[i];
	}
	return true;
}

enum tfmc_status device_code_make(struct device_code *d, struct diag_context *cx,
                                  const struct ir_module *planned, const struct target *target,
                                  const struct weight_source *weights, uint64_t batch)
{
	struct backend_sink sink = {store, d};
	*d = (struct device_code){0};
	arena_init(&d->arena);
	buf_init(&d->plan);
	TFMC_TRY(opencl_build(cx, planned, target, NULL, &d->arena, &d->program));
	d->weights = aligned_alloc(PAGE, ((size_t)d->program.object->weights.bytes / PAGE + 1) * PAGE);
	if (!d->weights)
		return TFMC_NO_MEMORY;
	TFMC_TRY(planned_pack(cx, planned, weights, &sink));
	TFMC_TRY(opencl_write_plan(&d->program, &d->plan));
	const struct buf *source = &d->program.source;
	d->code = (struct tfmc_cl_code){d->plan.data,    d->plan.len,
	                                source->data,    source->len,
	                                d->weights,      (uint64_t)d->program.object->weights.bytes,
	                                TFMC_CL_FOR_ANY, batch};
	return TFMC_OK;
}

void device_code_destroy(struct device_code *d)
{
	free(d->weights);
	buf_destroy(&d->plan);
	opencl_program_destroy(&d->program);
	arena_destroy(&d->arena);
	*d = (struct device_code){0};
}

size_t device_code_function(const struct device_code *d, const char *name)
{
	for (size_t i = 0; i < d->program.n_functions; i++)
		if (!strcmp(d->program.functions[i]->func->name, name))
			return i;
	return SIZE_MAX;
}
