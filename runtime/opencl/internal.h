/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of libtfmccl: errors, queries, the device list, and the objects behind the opaque
 * types.
 */
#ifndef TFMC_RUNTIME_OPENCL_INTERNAL_H
#define TFMC_RUNTIME_OPENCL_INTERNAL_H

#include <stdbool.h>

#include "runtime/opencl/calls.h"
#include "runtime/opencl/tfmc_cl.h"
#include "runtime/try.h"

/* Workarounds for drivers (drivers.def), bits. */
enum cl_quirk { CL_NO_BINARIES = 1 /* do not query program binaries */ };

/* A device of the list: its properties and handles. */
struct cl_entry {
	struct tfmc_cl_device device; /* owns its strings, except the platform's */
	size_t platform;              /* index into platforms */
	cl_device_id id;
	unsigned quirks; /* bits of enum cl_quirk */
};

struct cl_platform {
	cl_platform_id id;
	char *name, *version;
};

struct tfmc_cl {
	void *handle; /* from dlopen */
	struct cl_calls calls;
	struct cl_platform *platforms;
	size_t n_platforms;
	struct cl_entry *entries;
	size_t n;
	char **faults;
	size_t n_faults;
};

#if defined(__GNUC__)
#define CL_PRINTF(text, arguments) __attribute__((format(printf, text, arguments)))
#else
#define CL_PRINTF(text, arguments)
#endif

/* ---- errors: each function fills *error, which may be NULL, and returns the status ---- */
int cl_fail(struct tfmc_cl_error *error, int status, const char *fmt, ...) CL_PRINTF(3, 4);
int cl_no_memory(struct tfmc_cl_error *error);
/* "clCreateBuffer: CL_OUT_OF_RESOURCES (-5)" */
int cl_call_failed(struct tfmc_cl_error *error, const char *call, cl_int code);

/* TFMC_CL_OK for CL_SUCCESS, else cl_call_failed. */
int cl_check(cl_int code, const char *call, struct tfmc_cl_error *error);
/* Calls an OpenCL function and checks its code. */
#define CL_CALL(calls, name, error, ...) cl_check((calls)->name(__VA_ARGS__), #name, error)
/* The same for a call that creates an object, which must not be null after success. */
int cl_check_created(const void *object, cl_int code, const char *call, struct tfmc_cl_error *error);

/* ---- queries ---- */
/* The clGet..Info function to call. BUILD and KERNEL take a program or kernel and a device. */
enum cl_query_kind {
	CL_QUERY_PLATFORM,
	CL_QUERY_DEVICE,
	CL_QUERY_PROGRAM,
	CL_QUERY_BUILD,
	CL_QUERY_KERNEL,
	CL_QUERY_EVENT
};
/* A query; `name` stands in messages: "clGetDeviceInfo(CL_DEVICE_NAME)". */
struct cl_query {
	const struct cl_calls *calls;
	enum cl_query_kind of;
	void *object;        /* NULL: the query is of the device alone */
	cl_device_id device; /* NULL: the query takes no device */
	cl_uint what;
	const char *name;
};
/* Queries a string of at most max_bytes bytes, which the caller frees. Drivers may omit the final zero.
 * Control characters become blanks, line feeds only if one_line. */
int cl_query_string(const struct cl_query *q, size_t max_bytes, bool one_line, char **out,
                    struct tfmc_cl_error *error);
/* Queries a value of exactly `size` bytes. */
int cl_query_value(const struct cl_query *q, void *value, size_t size, struct tfmc_cl_error *error);

/* ---- a device in use ---- */
struct tfmc_cl_context {
	const struct tfmc_cl *cl;
	const struct cl_calls *calls;
	const struct cl_entry *entry;
	cl_context context;
	cl_command_queue queue;
	uint64_t piece;
	bool is_timed; /* the queue records profiling times */
};

struct tfmc_cl_buffer {
	struct tfmc_cl_context *context;
	cl_mem memory;
	uint64_t bytes;
	bool is_shared;
	void *pages; /* a mapping that the buffer owns and is stored in; NULL: none */
};

struct tfmc_cl_program {
	struct tfmc_cl_context *context;
	cl_program program;
	bool is_cached; /* created from a cached binary */
};

struct tfmc_cl_kernel {
	struct tfmc_cl_context *context;
	cl_kernel kernel;
	char *name;
};

/* As tfmc_cl_launch. *event: of the launch, owned by the caller after success; event NULL: none is created. */
int cl_launch(struct tfmc_cl_kernel *k, const uint64_t groups[2], const uint64_t items[2], cl_event *event,
              struct tfmc_cl_error *error);

/* ---- cache of program binaries (cache.c): any failure acts as a cache miss ---- */
struct cl_cache_key {
	char *bytes; /* the caller frees them */
	size_t n;
};
/* The identity of a binary: the strings of the device, the options and the source. False: no memory, or the source
 * is too long. */
bool cl_cache_key_make(const struct tfmc_cl_context *c, const struct tfmc_cl_source *source,
                       struct cl_cache_key *out);
/* The cached file of the key, which the caller frees; the binary is its bytes [*at, *n). NULL: a miss. */
unsigned char *cl_cache_read(const char *directory, const struct cl_cache_key *key, size_t *at, size_t *n);
void cl_cache_write(const char *directory, const struct cl_cache_key *key, const unsigned char *binary,
                    size_t n);
/* Removes the least recently used files of an open directory until at most `limit` bytes remain; `except`
 * is not removed. */
void cl_cache_trim(int dir, const char *except, uint64_t limit);

/* ---- the list ---- */

#endif
