/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selection of a device from the list.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strcasestr */
#endif
#include <stdbool.h>
#include <string.h>

#include "runtime/abi.h"
#include "runtime/opencl/internal.h"

size_t tfmc_cl_count(const struct tfmc_cl *cl)
{
	return cl ? cl->n : 0;
}

const struct tfmc_cl_device *tfmc_cl_device(const struct tfmc_cl *cl, size_t number)
{
	return number < tfmc_cl_count(cl) ? &cl->entries[number].device : NULL;
}

const char *tfmc_cl_fault(const struct tfmc_cl *cl, size_t number)
{
	return cl && number < cl->n_faults ? cl->faults[number] : NULL;
}

static bool matches(const struct tfmc_cl_device *d, const char *wanted)
{
	return strcasestr(d->name, wanted) || strcasestr(d->platform, wanted) ||
	       strcasestr(d->vendor, wanted);
}

/* Parses a string of digits only; saturates on overflow. */
static bool parse_number(const char *text, size_t *number)
{
	size_t n = 0;
	for (const char *p = text; *p; p++) {
		if (*p < '0' || *p > '9')
			return false;
		n = n > SIZE_MAX / 10 - 1 ? SIZE_MAX / 10 : 10 * n + (size_t)(*p - '0');
	}
	*number = n;
	return *text != 0;
}

#define WIDE_LANES 16 /* floats of a native vector */

/* devices: enum tfmc_cl_for, the kind of device that the kernels were compiled for. */
static bool is_suitable(int devices, const struct tfmc_cl_device *d)
{
	switch ((enum tfmc_cl_for)devices) {
	case TFMC_CL_FOR_ANY: return true;
	case TFMC_CL_FOR_WIDE_CPU: return d->type == TFMC_CL_CPU && d->vector_width >= WIDE_LANES;
	case TFMC_CL_FOR_GPU: return d->type == TFMC_CL_GPU || d->type == TFMC_CL_ACCELERATOR;
	}
	return false;
}

/* Suitable devices first, then by type (GPU, accelerator, CPU), then by compute units x clock. */
static bool is_better(int devices, const struct tfmc_cl_device *a, const struct tfmc_cl_device *b)
{
	if (is_suitable(devices, a) != is_suitable(devices, b))
		return is_suitable(devices, a);
	if (a->type != b->type)
		return a->type > b->type;
	return (uint64_t)a->compute_units * a->clock > (uint64_t)b->compute_units * b->clock;
}

static int check_suitable(const struct tfmc_cl *cl, int devices, size_t number, struct tfmc_cl_error *error)
{
	const struct tfmc_cl_device *d = &cl->entries[number].device;
	if (is_suitable(devices, d))
		return TFMC_CL_OK;
	return cl_fail(error, TFMC_CL_E_DEVICE, "the kernels are for %s, '%.200s' is none",
	               devices == TFMC_CL_FOR_GPU ? "GPUs" : "processors with vectors of 16 floats", d->name);
}

int tfmc_cl_choose(const struct tfmc_cl *cl, int devices, const char *wanted, size_t *number,
                   struct tfmc_cl_error *error)
{
	size_t n;
	const struct tfmc_cl_device *best = NULL;
	if (!cl || !number)
		return cl_fail(error, TFMC_CL_E_NULL, "the list of devices or the result pointer is null");
	*number = 0;
	if (cl->n == 0)
		return cl_fail(error, TFMC_CL_E_DEVICE, "there is no OpenCL device%s%s",
		               cl->n_faults ? ": " : "", cl->n_faults ? cl->faults[0] : "");
	if (parse_number(wanted ? wanted : "", &n)) {
		*number = n < cl->n ? n : 0;
		return n < cl->n ? check_suitable(cl, devices, n, error)
		                 : cl_fail(error, TFMC_CL_E_DEVICE,
		                           "there is no OpenCL device %s, they are 0 to %zu", wanted,
		                           cl->n - 1);
	}
	for (size_t i = 0; i < cl->n; i++) {
		const struct tfmc_cl_device *d = &cl->entries[i].device;
		if (matches(d, wanted ? wanted : "") && (!best || is_better(devices, d, best))) {
			best = d;
			*number = i;
		}
	}
	return best ? check_suitable(cl, devices, *number, error)
	            : cl_fail(error, TFMC_CL_E_DEVICE,
	                      "no OpenCL device has '%.200s' in its name, vendor or platform; 0 is '%.200s'",
	                      wanted, cl->entries[0].device.name);
}
