/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enumeration of platforms and devices with their properties. A platform or device that fails is left out
 * with a reason and does not hide the others.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/internal.h"

#define PLATFORMS_MAX 64
#define DEVICES_MAX   256 /* per platform */
#define STRING_MAX    65536

/* ---- faults ---- */

/* Lack of memory is returned as a failure; any other failure is recorded as a fault of "platform" or
 * "platform, device 2". */
static int add_fault(struct tfmc_cl *cl, int status, const char *platform, const char *which,
                     const struct tfmc_cl_error *why, struct tfmc_cl_error *error)
{
	if (status == TFMC_CL_E_MEMORY)
		return cl_no_memory(error);
	char **more = realloc(cl->faults, (cl->n_faults + 1) * sizeof(*more));
	if (!more)
		return cl_no_memory(error);
	cl->faults = more;
	size_t n = strlen(platform) + strlen(which) + strlen(why->text) + sizeof(": ");
	char *text = malloc(n);
	if (!text)
		return cl_no_memory(error);
	(void)snprintf(text, n, "%s%s%s%s", platform, which, *platform || *which ? ": " : "", why->text);
	cl->faults[cl->n_faults++] = text;
	return TFMC_CL_OK;
}

/* ---- device properties ---- */

enum property_kind { STRING, UINT, ULONG, SIZE, BOOL };
struct property {
	enum property_kind kind;
	cl_uint what;
	const char *name;
	size_t offset; /* in struct tfmc_cl_device */
};
#define PROPERTY(kind, what, field)                                                              \
	{                                                                                        \
		kind, what, "clGetDeviceInfo(" #what ")", offsetof(struct tfmc_cl_device, field) \
	}
static const struct property properties[] = {
        PROPERTY(STRING, CL_DEVICE_NAME, name),
        PROPERTY(STRING, CL_DEVICE_VENDOR, vendor),
        PROPERTY(STRING, CL_DRIVER_VERSION, driver),
        PROPERTY(STRING, CL_DEVICE_VERSION, version),
        PROPERTY(STRING, CL_DEVICE_OPENCL_C_VERSION, c_version),
        PROPERTY(STRING, CL_DEVICE_EXTENSIONS, extensions),
        PROPERTY(UINT, CL_DEVICE_MAX_COMPUTE_UNITS, compute_units),
        PROPERTY(UINT, CL_DEVICE_MAX_CLOCK_FREQUENCY, clock),
        PROPERTY(UINT, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, vector_width),
        PROPERTY(ULONG, CL_DEVICE_GLOBAL_MEM_SIZE, memory),
        PROPERTY(ULONG, CL_DEVICE_MAX_MEM_ALLOC_SIZE, largest),
        PROPERTY(ULONG, CL_DEVICE_LOCAL_MEM_SIZE, local_memory),
        PROPERTY(SIZE, CL_DEVICE_MAX_WORK_GROUP_SIZE, group_items),
        PROPERTY(BOOL, CL_DEVICE_HOST_UNIFIED_MEMORY, is_unified),
};

/* Queries a property that is not stored as it is. */
#define QUERY(cl, id, what, value, error)                                                \
	cl_query_value(&(struct cl_query){&(cl)->calls, CL_QUERY_DEVICE, NULL, id, what, \
	                                  "clGetDeviceInfo(" #what ")"},                 \
	               value, sizeof(*(value)), error)

static int read_property(struct tfmc_cl *cl, struct cl_entry *e, const struct property *p,
                         struct tfmc_cl_error *error)
{
	struct cl_query q = {&cl->calls, CL_QUERY_DEVICE, NULL, e->id, p->what, p->name};
	char *field = (char *)&e->device + p->offset, *text = NULL;
	cl_uint value = 0;
	size_t size = 0;
	uint64_t number;
	int flag, status = TFMC_CL_OK;
	switch (p->kind) {
	case STRING:
		status = cl_query_string(&q, STRING_MAX, true, &text, error);
		memcpy(field, &text, sizeof(text));
		break;
	case UINT: status = cl_query_value(&q, field, sizeof(cl_uint), error); break;
	case ULONG: status = cl_query_value(&q, field, sizeof(cl_ulong), error); break;
	case SIZE:
		status = cl_query_value(&q, &size, sizeof(size), error);
		number = size;
		memcpy(field, &number, sizeof(number));
		break;
	case BOOL:
		status = cl_query_value(&q, &value, sizeof(value), error);
		flag = value != 0;
		memcpy(field, &flag, sizeof(flag));
		break;
	}
	return status;
}

/* Whether a blank-separated list has the name. */
static bool has_extension(const char *list, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = list; (p = strstr(p, name)); p += n) {
		bool begins = p == list || p[-1] == ' ';
		if (begins && (p[n] == ' ' || !p[n]))
			return true;
	}
	return false;
}

/* Only the second version of the extension reports the speed. */
static bool is_slow_dot(struct tfmc_cl *cl, cl_device_id id)
{
	struct cl_dot_speed speed;
	return QUERY(cl, id, CL_DEVICE_INTEGER_DOT_PRODUCT_SPEED, &speed, NULL) == TFMC_CL_OK &&
	       !speed.is_fast_signed;
}

static void read_extensions(struct tfmc_cl *cl, struct cl_entry *e)
{
	struct tfmc_cl_device *d = &e->device;
	const char *all = d->extensions;
	d->has_fp16 = has_extension(all, "cl_khr_fp16");
	d->has_fp64 = has_extension(all, "cl_khr_fp64");
	d->has_subgroups = has_extension(all, "cl_khr_subgroups") || has_extension(all, "cl_intel_subgroups");
	d->has_integer_dot = has_extension(all, "cl_khr_integer_dot_product") && !is_slow_dot(cl, e->id);
}

static int read_type(struct tfmc_cl *cl, struct cl_entry *e, struct tfmc_cl_error *error)
{
	struct tfmc_cl_device *d = &e->device;
	cl_ulong type = 0;
	cl_uint local = 0;
	TRY(QUERY(cl, e->id, CL_DEVICE_TYPE, &type, error));
	TRY(QUERY(cl, e->id, CL_DEVICE_LOCAL_MEM_TYPE, &local, error));
	d->type = type & CL_DEVICE_TYPE_GPU           ? TFMC_CL_GPU
	          : type & CL_DEVICE_TYPE_ACCELERATOR ? TFMC_CL_ACCELERATOR
	          : type & CL_DEVICE_TYPE_CPU         ? TFMC_CL_CPU
	                                              : TFMC_CL_OTHER;
	d->has_own_local = local == CL_LOCAL;
	return TFMC_CL_OK;
}

/* Whether a version string is "OpenCL 1.2 .." or newer. */
static bool is_new_enough(const char *version)
{
	static const char begin[] = "OpenCL ";
	const char *p = version + sizeof(begin) - 1;
	if (strncmp(version, begin, sizeof(begin) - 1) != 0 || *p < '1' || *p > '9')
		return false;
	return *p > '1' || (p[1] == '.' && p[2] >= '2' && p[2] <= '9') || (p[1] >= '0' && p[1] <= '9');
}

static int check_supported(struct tfmc_cl *cl, struct cl_entry *e, struct tfmc_cl_error *error)
{
	const struct tfmc_cl_device *d = &e->device;
	cl_uint available = 0, compiler = 0, little = 0;
	TRY(QUERY(cl, e->id, CL_DEVICE_AVAILABLE, &available, error));
	TRY(QUERY(cl, e->id, CL_DEVICE_COMPILER_AVAILABLE, &compiler, error));
	TRY(QUERY(cl, e->id, CL_DEVICE_ENDIAN_LITTLE, &little, error));
	if (!available || !compiler || !little)
		return cl_fail(error, TFMC_CL_E_DEVICE, "'%.200s' %s", d->name,
		               !available  ? "is not available"
		               : !compiler ? "has no compiler"
		                           : "is big-endian");
	if (!is_new_enough(d->version))
		return cl_fail(error, TFMC_CL_E_DEVICE, "'%.200s' says it is '%.200s', OpenCL 1.2 is needed",
		               d->name, d->version);
	return TFMC_CL_OK;
}

static int read_device(struct tfmc_cl *cl, struct cl_entry *e, struct tfmc_cl_error *error)
{
	if (!e->id)
		return cl_fail(error, TFMC_CL_E_ANSWER, "clGetDeviceIDs: a device is a null pointer");
	for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++)
		TRY(read_property(cl, e, &properties[i], error));
	TRY(read_type(cl, e, error));
	TRY(check_supported(cl, e, error));
	read_extensions(cl, e);
	return TFMC_CL_OK;
}

/* The quirks of all rows of drivers.def whose name is a part of the platform's. */
static unsigned quirks(const char *platform)
{
	static const struct {
		const char *platform;
		unsigned quirks;
	} drivers[] = {
#define DRIVER(platform, quirks) {platform, quirks},
#include "runtime/opencl/drivers.def"
	};
	unsigned all = 0;
	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
		all |= strstr(platform, drivers[i].platform) ? drivers[i].quirks : 0;
	return all;
}

/* ---- lists ---- */

static int add_devices(struct tfmc_cl *cl, size_t platform, const cl_device_id *ids, cl_uint n,
                       struct tfmc_cl_error *error)
{
	const struct cl_platform *p = &cl->platforms[platform];
	struct cl_entry *more = realloc(cl->entries, (cl->n + n) * sizeof(*more));
	if (!more)
		return cl_no_memory(error);
	cl->entries = more;
	int result = TFMC_CL_OK;
	for (cl_uint i = 0; result == TFMC_CL_OK && i < n; i++) {
		struct tfmc_cl_error why;
		char which[32];
		struct cl_entry *e = &cl->entries[cl->n];
		*e = (struct cl_entry){.platform = platform, .id = ids[i], .quirks = quirks(p->name)};
		e->device.platform = p->name;
		e->device.platform_version = p->version;
		int status = read_device(cl, e, &why);
		(void)snprintf(which, sizeof(which), ", device %u", (unsigned)i);
		if (status == TFMC_CL_OK) {
			cl->n++;
		} else {
			result = add_fault(cl, status, p->name, which, &why, error);
			cl_free_device(&e->device);
		}
	}
	return result;
}

static int list_devices(struct tfmc_cl *cl, size_t platform, struct tfmc_cl_error *error)
{
	const struct cl_platform *p = &cl->platforms[platform];
	struct tfmc_cl_error why;
	cl_device_id ids[DEVICES_MAX] = {0};
	cl_uint n = 0;
	cl_int code = cl->calls.clGetDeviceIDs(p->id, CL_DEVICE_TYPE_ALL, DEVICES_MAX, ids, &n);
	if (code == CL_DEVICE_NOT_FOUND || (code == CL_SUCCESS && n == 0))
		return TFMC_CL_OK;
	int status = TFMC_CL_OK;
	if (code != CL_SUCCESS)
		status = cl_call_failed(&why, "clGetDeviceIDs", code);
	else if (n > DEVICES_MAX)
		status = cl_fail(&why, TFMC_CL_E_ANSWER, "clGetDeviceIDs: %u devices, at most %d are read",
		                 (unsigned)n, DEVICES_MAX);
	return status == TFMC_CL_OK ? add_devices(cl, platform, ids, n, error)
	                            : add_fault(cl, status, p->name, "", &why, error);
}

static int read_platform(struct tfmc_cl *cl, struct cl_platform *p, struct tfmc_cl_error *error)
{
	struct cl_query name = {&cl->calls, CL_QUERY_PLATFORM, p->id,
	                        NULL,       CL_PLATFORM_NAME,  "clGetPlatformInfo(CL_PLATFORM_NAME)"};
	struct cl_query version = {&cl->calls, CL_QUERY_PLATFORM,   p->id,
	                           NULL,       CL_PLATFORM_VERSION, "clGetPlatformInfo(CL_PLATFORM_VERSION)"};
	if (!p->id)
		return cl_fail(error, TFMC_CL_E_ANSWER, "clGetPlatformIDs: a platform is a null pointer");
	TRY(cl_query_string(&name, STRING_MAX, true, &p->name, error));
	return cl_query_string(&version, STRING_MAX, true, &p->version, error);
}

static int list_platform(struct tfmc_cl *cl, size_t number, struct tfmc_cl_error *error)
{
	struct tfmc_cl_error why;
	char which[32];
	(void)snprintf(which, sizeof(which), "platform %zu", number);
	int status = read_platform(cl, &cl->platforms[number], &why);
	return status == TFMC_CL_OK ? list_devices(cl, number, error)
	                            : add_fault(cl, status, "", which, &why, error);
}

int cl_list_devices(struct tfmc_cl *cl, struct tfmc_cl_error *error)
{
	static const struct tfmc_cl_error none = {.text = "no OpenCL driver (ICD) is installed"};
	cl_platform_id ids[PLATFORMS_MAX] = {0};
	cl_uint n = 0;
	cl_int code = cl->calls.clGetPlatformIDs(PLATFORMS_MAX, ids, &n);
	if (code == CL_PLATFORM_NOT_FOUND_KHR || (code == CL_SUCCESS && n == 0))
		return add_fault(cl, TFMC_CL_E_DEVICE, "", "", &none, error);
	if (code != CL_SUCCESS)
		return cl_call_failed(error, "clGetPlatformIDs", code);
	if (n > PLATFORMS_MAX)
		return cl_fail(error, TFMC_CL_E_ANSWER, "clGetPlatformIDs: %u platforms, at most %d are read",
		               (unsigned)n, PLATFORMS_MAX);
	cl->platforms = calloc(n, sizeof(*cl->platforms));
	if (!cl->platforms)
		return cl_no_memory(error);
	cl->n_platforms = n;
	for (cl_uint i = 0; i < n; i++)
		cl->platforms[i].id = ids[i];
	for (cl_uint i = 0; i < n; i++)
		TRY(list_platform(cl, i, error));
	return TFMC_CL_OK;
}
