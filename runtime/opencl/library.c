/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading of the OpenCL library with dlopen, when a program runs.
 */
#define _GNU_SOURCE /* RTLD_NODELETE */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/internal.h"

/* NODELETE: drivers start threads, which crash when their code is unloaded. */
#define MODE (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

/* A library that the process has already comes first: a tool may interpose one with LD_PRELOAD. The name
 * without version exists only where OpenCL is installed for development. */
static void *open_default(struct tfmc_cl_error *error)
{
	void *process = dlopen(NULL, RTLD_NOW);
	if (process && dlsym(process, "clGetPlatformIDs"))
		return process;
	if (process)
		dlclose(process);
	void *found = dlopen("libOpenCL.so.1", MODE);
	if (found)
		return found;
	const char *reason = dlerror();
	cl_fail(error, TFMC_CL_E_LIBRARY, "there is no OpenCL library: %s",
	        reason ? reason : "libOpenCL.so.1 cannot be loaded");
	return dlopen("libOpenCL.so", MODE);
}

static void *open_named(const char *path, struct tfmc_cl_error *error)
{
	void *found = dlopen(path, MODE);
	const char *reason = found ? NULL : dlerror();
	if (!found)
		cl_fail(error, TFMC_CL_E_LIBRARY, "the OpenCL library cannot be loaded: %s",
		        reason ? reason : path);
	return found;
}

/* POSIX lets dlsym return functions as data pointers; memcpy avoids the cast. */
static void lookup_symbol(void *library, const char *name, void *to)
{
	void *address = dlsym(library, name);
	memcpy(to, &address, sizeof(address));
}

static int lookup_calls(struct tfmc_cl *cl, struct tfmc_cl_error *error)
{
#define CALL(result, name, parameters)                     \
	lookup_symbol(cl->handle, #name, &cl->calls.name); \
	if (!cl->calls.name)                               \
		return cl_fail(error, TFMC_CL_E_LIBRARY, "the OpenCL library has no function %s", #name);
#include "runtime/opencl/calls.def"
	return TFMC_CL_OK;
}

int tfmc_cl_open(const char *library, struct tfmc_cl **out, struct tfmc_cl_error *error)
{
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	struct tfmc_cl *cl = calloc(1, sizeof(*cl));
	if (!cl)
		return cl_no_memory(error);
	cl->handle = library ? open_named(library, error) : open_default(error);
	int status = cl->handle ? lookup_calls(cl, error) : TFMC_CL_E_LIBRARY;
	if (status == TFMC_CL_OK)
		status = cl_list_devices(cl, error);
	if (status == TFMC_CL_OK)
		*out = cl;
	else
		tfmc_cl_close(cl);
	return status;
}

void cl_free_device(struct tfmc_cl_device *d)
{
	const char *strings[] = {d->name, d->vendor, d->driver, d->version, d->c_version, d->extensions};
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		free((char *)(uintptr_t)strings[i]);
}

void tfmc_cl_close(struct tfmc_cl *cl)
{
	if (!cl)
		return;
	for (size_t i = 0; i < cl->n; i++)
		cl_free_device(&cl->entries[i].device);
	for (size_t i = 0; i < cl->n_platforms; i++) {
		free(cl->platforms[i].name);
		free(cl->platforms[i].version);
	}
	for (size_t i = 0; i < cl->n_faults; i++)
		free(cl->faults[i]);
	free(cl->entries);
	free(cl->platforms);
	free(cl->faults);
	if (cl->handle)
		dlclose(cl->handle);
	free(cl);
}
