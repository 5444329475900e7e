/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc devices: the OpenCL devices that libtfmccl finds.
 */
#include "frontend/driver/compile/jit.h"

#include "frontend/driver/commands/report.h"
#include "runtime/opencl/tfmc_cl.h"

static const char *type_name(enum tfmc_cl_type type)
{
	switch (type) {
	case TFMC_CL_CPU: return "cpu";
	case TFMC_CL_ACCELERATOR: return "accelerator";
	case TFMC_CL_GPU: return "gpu";
	case TFMC_CL_OTHER: return "other";
	}
	return "other";
}

static void report_device(struct report *r, const struct tfmc_cl_device *d, bool is_best)
{
	report_text(r, "name", "%s", d->name);
	report_text(r, "platform", "%s", d->platform);
	report_text(r, "vendor", "%s", d->vendor);
	report_text(r, "driver", "%s", d->driver);
	report_text(r, "version", "%s", d->version);
	report_text(r, "language", "%s", d->c_version);
	report_text(r, "type", "%s", type_name(d->type));
	report_number(r, "compute units", d->compute_units);
	report_number(r, "MHz", d->clock);
	report_number(r, "floats of a vector", d->vector_width);
	report_number(r, "bytes of memory", d->memory);
	report_number(r, "bytes of a buffer", d->largest);
	report_number(r, "bytes of local memory", d->local_memory);
	report_number(r, "items of a work-group", d->group_items);
	report_flag(r, "own local memory", d->has_own_local);
	report_flag(r, "memory of the host", d->is_unified);
	report_flag(r, "fp16", d->has_fp16);
	report_flag(r, "fp64", d->has_fp64);
	report_flag(r, "subgroups", d->has_subgroups);
	report_flag(r, "integer dot product", d->has_integer_dot);
	report_flag(r, "best", is_best);
}

/* Lists the devices, and why drivers or devices were left out. why: the reason when there is no device; NULL:
 * unknown. */
static void print_devices(struct driver *d, const struct tfmc_cl *cl, const char *why)
{
	struct report r;
	size_t best = 0;
	(void)tfmc_cl_choose(cl, 0, NULL, &best, NULL);
	report_begin(&r, &d->out, d->options.json);
	report_open(&r, "devices");
	for (size_t i = 0; i < tfmc_cl_count(cl); i++) {
		report_open(&r, arena_printf(&d->arena, "%zu", i));
		report_device(&r, tfmc_cl_device(cl, i), i == best);
		report_close(&r);
	}
	report_close(&r);
	bool is_none = tfmc_cl_count(cl) == 0;
	if (is_none)
		report_text(&r, "none", "%s", why ? why : "no driver has a device");
	for (size_t i = is_none; /* fault 0 is `why` already */ tfmc_cl_fault(cl, i); i++)
		report_text(&r, arena_printf(&d->arena, "left out %zu", i), "%s", tfmc_cl_fault(cl, i));
	report_end(&r);
}

/* Without OpenCL the machine has no devices, which is a success. A library named by TFMC_OPENCL that cannot be
 * used is an error. */
enum exit_code command_devices(struct driver *d)
{
	struct tfmc_cl *cl;
	struct tfmc_cl_error error;
	const char *library = driver_opencl_library();
	int status = tfmc_cl_open(library, &cl, &error);
	if (status != TFMC_CL_OK && (library || status != TFMC_CL_E_LIBRARY)) {
		diag_environment_error(&d->diag, LOC_NONE, DIAG_FILE, "%s", error.text);
		return EXIT_ENVIRONMENT;
	}
	print_devices(d, cl, status == TFMC_CL_OK ? tfmc_cl_fault(cl, 0) : error.text);
	tfmc_cl_close(cl);
	return EXIT_OK;
}
