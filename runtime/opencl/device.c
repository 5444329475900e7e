/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL library, loaded when a program runs; its platforms and devices, and the choice of one; errors of its
 * calls as messages.
 *
 * A platform or device that fails is left out and becomes a fault, a string with the reason, so that it does not hide
 * the others. A query is one value that a clGet..Info function returns (object, constant, and its name for messages).
 * A driver's answers are not trusted: sizes are checked, and strings are cleaned.
 */
#define _GNU_SOURCE /* RTLD_NODELETE */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strcasestr */
#endif

#include "runtime/abi.h"
#include "runtime/opencl/internal.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors and queries ---- */

/*
 * Errors as messages, and queries of the clGet..Info functions, whose results are checked.
 */

/* ---- errors ---- */

/* error NULL: no message is wanted. code 0: no OpenCL function failed; cl_call_failed() sets it. */
int cl_fail(struct tfmc_cl_error *error, int status, const char *fmt, ...)
{
	va_list ap;
	if (!error)
		return status;
	error->code = 0;
	va_start(ap, fmt);
	if (vsnprintf(error->text, sizeof(error->text), fmt, ap) < 0)
		error->text[0] = 0;
	va_end(ap);
	return status;
}

int cl_no_memory(struct tfmc_cl_error *error)
{
	return cl_fail(error, TFMC_CL_E_MEMORY, "memory could not be allocated");
}

/* Name of an error code of OpenCL. */
static const char *code_name(cl_int code)
{
	static const struct {
		cl_int code;
		const char *name;
	} names[] = {
#define CODE(number, name) {number, #name},
#include "runtime/opencl/codes.def"
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].code == code)
			return names[i].name;
	return "unknown code";
}

int cl_call_failed(struct tfmc_cl_error *error, const char *call, cl_int code)
{
	cl_fail(error, TFMC_CL_E_CALL, "%s: %s (%" PRId32 ")", call, code_name(code), code);
	if (error)
		error->code = code;
	return TFMC_CL_E_CALL;
}

int cl_check(cl_int code, const char *call, struct tfmc_cl_error *error)
{
	return code == CL_SUCCESS ? TFMC_CL_OK : cl_call_failed(error, call, code);
}

int cl_check_created(const void *object, cl_int code, const char *call, struct tfmc_cl_error *error)
{
	int status = cl_check(code, call, error);
	if (status == TFMC_CL_OK && !object)
		status = cl_fail(error, TFMC_CL_E_ANSWER, "%s: a null pointer", call);
	return status;
}

/* ---- queries ---- */

/* Replaces control characters by blanks (line feeds only if one_line) and trims both ends. */
static void clean_string(char *text, bool one_line)
{
	size_t n = 0, from = strspn(text, " \t\r\n");
	for (const char *p = text + from; *p; p++) {
		bool is_printable = (unsigned char)*p >= 0x20 && *p != 0x7f;
		text[n++] = is_printable || (*p == '\n' && !one_line) ? *p : ' ';
	}
	while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\n'))
		n--;
	text[n] = 0;
}

/* Calls the clGet..Info function of the query; needed: NULL, or receives the size of the value. An object's kind
 * decides the function; a kernel or build is asked about on a device. */
static cl_int query(const struct cl_query *q, size_t size, void *value, size_t *needed)
{
	const struct cl_calls *c = q->calls;
	switch (q->of) {
	case CL_QUERY_PLATFORM: return c->clGetPlatformInfo(q->object, q->what, size, value, needed);
	case CL_QUERY_DEVICE: return c->clGetDeviceInfo(q->device, q->what, size, value, needed);
	case CL_QUERY_PROGRAM: return c->clGetProgramInfo(q->object, q->what, size, value, needed);
	case CL_QUERY_BUILD:
		return c->clGetProgramBuildInfo(q->object, q->device, q->what, size, value, needed);
	case CL_QUERY_KERNEL:
		return c->clGetKernelWorkGroupInfo(q->object, q->device, q->what, size, value, needed);
	case CL_QUERY_EVENT: return c->clGetEventProfilingInfo(q->object, q->what, size, value, needed);
	}
	return CL_INVALID_VALUE;
}

/* The size is queried first. One byte more is allocated, zeroed: drivers may omit the terminator. */
int cl_query_string(const struct cl_query *q, size_t max_bytes, bool one_line, char **out,
                    struct tfmc_cl_error *error)
{
	size_t n = 0;
	*out = NULL;
	cl_int code = query(q, 0, NULL, &n);
	if (code != CL_SUCCESS)
		return cl_call_failed(error, q->name, code);
	if (n > max_bytes)
		return cl_fail(error, TFMC_CL_E_ANSWER, "%s: a result of %zu bytes, at most %zu are read",
		               q->name, n, max_bytes);
	char *text = calloc(n + 1, 1);
	if (!text)
		return cl_no_memory(error);
	code = n ? query(q, n, text, NULL) : CL_SUCCESS;
	if (code != CL_SUCCESS) {
		free(text);
		return cl_call_failed(error, q->name, code);
	}
	clean_string(text, one_line);
	*out = text;
	return TFMC_CL_OK;
}

int cl_query_value(const struct cl_query *q, void *value, size_t size, struct tfmc_cl_error *error)
{
	size_t n = 0;
	cl_int code = query(q, size, value, &n);
	if (code != CL_SUCCESS)
		return cl_call_failed(error, q->name, code);
	if (n != size)
		return cl_fail(error, TFMC_CL_E_ANSWER, "%s: a result of %zu bytes, not %zu", q->name, n,
		               size);
	return TFMC_CL_OK;
}

/* ---- platforms and devices ---- */

/*
 * Enumeration of platforms and devices with their properties. A platform or device that fails is left out
 * with a reason and does not hide the others.
 */

#define PLATFORMS_MAX 64
#define DEVICES_MAX   256 /* per platform */
#define STRING_MAX    65536

/* ---- faults ---- */

/* Lack of memory is returned as a failure; any other failure is recorded as a fault of `platform`, or of a device of
 * it (`which`: ", device 2"). Both "": of OpenCL as a whole. */
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

/* Queries a property of the device into its field, which has a type of the public header: a size_t becomes u64, a
 * cl_bool int. */
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

/* Whether a blank-separated list has the name as a whole word: cl_khr_fp16 is part of longer names. */
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

/* Whether the device emulates dot products of signed bytes, where plain arithmetic is as fast. Only the second version
 * of the extension reports the speed: without an answer it counts as fast. */
static bool is_slow_dot(struct tfmc_cl *cl, cl_device_id id)
{
	struct cl_dot_speed speed;
	return QUERY(cl, id, CL_DEVICE_INTEGER_DOT_PRODUCT_SPEED, &speed, NULL) == TFMC_CL_OK &&
	       !speed.is_fast_signed;
}

/* Queries the kinds of the device and of its local memory. A device may have several bits of type; has_own_local:
 * local memory is not emulated in global memory. */
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

/* TFMC_CL_E_DEVICE, with a message, if the device cannot run the kernels: sources are compiled on it, weights and
 * state are little-endian bytes. */
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

/* Queries all properties of a device, and checks that it is supported. */
static int read_device(struct tfmc_cl *cl, struct cl_entry *e, struct tfmc_cl_error *error)
{
	if (!e->id)
		return cl_fail(error, TFMC_CL_E_ANSWER, "clGetDeviceIDs: a device is a null pointer");
	for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++)
		TRY(read_property(cl, e, &properties[i], error));
	TRY(read_type(cl, e, error));
	TRY(check_supported(cl, e, error));
	struct tfmc_cl_device *d = &e->device;
	const char *all = d->extensions;
	d->has_fp16 = has_extension(all, "cl_khr_fp16");
	d->has_fp64 = has_extension(all, "cl_khr_fp64");
	d->has_subgroups = has_extension(all, "cl_khr_subgroups") || has_extension(all, "cl_intel_subgroups");
	d->has_integer_dot = has_extension(all, "cl_khr_integer_dot_product") && !is_slow_dot(cl, e->id);
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

/* Frees the strings that the device owns. */
static void cl_free_device(struct tfmc_cl_device *d)
{
	const char *strings[] = {d->name, d->vendor, d->driver, d->version, d->c_version, d->extensions};
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		free((char *)(uintptr_t)strings[i]);
}

/* Adds the devices of a platform; those that fail become faults, and their entry is used again. Fails only for lack of
 * memory. */
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

/* Lists the devices of a platform. Fails only for lack of memory. */
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

/* Queries name and version of a platform, each as one line, for messages and lists. Strings that were read before a
 * failure stay in *p, which tfmc_cl_close() frees. */
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

/* Lists a platform with its devices; a failure becomes a fault. */
static int list_platform(struct tfmc_cl *cl, size_t number, struct tfmc_cl_error *error)
{
	struct tfmc_cl_error why;
	char which[32];
	(void)snprintf(which, sizeof(which), "platform %zu", number);
	int status = read_platform(cl, &cl->platforms[number], &why);
	return status == TFMC_CL_OK ? list_devices(cl, number, error)
	                            : add_fault(cl, status, "", which, &why, error);
}

/* Fills platforms, entries and faults of an opened library. No platform is a fault, not a failure: the list is empty.
 * Fails only for lack of memory, or if the loader fails. */
static int cl_list_devices(struct tfmc_cl *cl, struct tfmc_cl_error *error)
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

/* ---- the library ---- */

/*
 * Loading of the OpenCL library with dlopen, when a program runs.
 */

/* NODELETE: drivers start threads, which crash when their code is unloaded. */
#define MODE (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

/* The library of the process comes first: a tool may interpose one with LD_PRELOAD. The name without version exists
 * only where OpenCL is installed for development. The message is about the usual name; it is set even if the second
 * one is found. */
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

/* Loads the library of this path; NULL, and a message: it cannot be loaded. */
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

/* Looks up all functions of calls.def; one that is missing is a failure, so that later calls need no check. */
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

/* ---- choice ---- */

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

/* A number selects by index, other text by name, vendor or platform, NULL or "" any; of several the best one
 * (is_better). The chosen one must fit the kernels: an unsuitable one is refused rather than replaced. */
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
