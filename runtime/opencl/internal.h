/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of libtfmccl share: failures, queries, and the list of devices.
 */
#ifndef TFMC_RUNTIME_OPENCL_INTERNAL_H
#define TFMC_RUNTIME_OPENCL_INTERNAL_H

#include <stdbool.h>

#include "runtime/opencl/calls.h"
#include "runtime/opencl/tfmc_cl.h"
#include "runtime/try.h"

/* What is done about faults and habits of drivers (drivers.def), bits. */
enum cl_quirk { CL_NO_BINARIES = 1 /* binaries of programs are not asked for */ };

/* A device of the list: what is said of it, and its handles. */
struct cl_entry {
	struct tfmc_cl_device device; /* its texts but for those of the platform are owned */
	size_t platform;              /* of the list of platforms */
	cl_device_id id;
	unsigned quirks; /* of enum cl_quirk */
};

struct cl_platform {
	cl_platform_id id;
	char *name, *version;
};

struct tfmc_cl {
	void *handle; /* of dlopen */
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

/* ---- failures: each fills *error, which may be NULL, and returns the status ---- */
int cl_fail(struct tfmc_cl_error *error, int status, const char *fmt, ...) CL_PRINTF(3, 4);
int cl_no_memory(struct tfmc_cl_error *error);
/* "clCreateBuffer: CL_OUT_OF_RESOURCES (-5)" */
int cl_call_failed(struct tfmc_cl_error *error, const char *call, cl_int code);

/* The same for a code that may be success. */
int cl_check(cl_int code, const char *call, struct tfmc_cl_error *error);
#define CL_CALL(calls, name, error, ...) cl_check((calls)->name(__VA_ARGS__), #name, error)
/* What a call has created; one that succeeds must give something. */
int cl_check_created(const void *object, cl_int code, const char *call, struct tfmc_cl_error *error);

/* ---- answers of any length ---- */
/* Which of the OpenCL functions of the name clGet..Info is asked; BUILD and KERNEL are of a program or kernel and a device. */
enum cl_query_kind {
	CL_QUERY_PLATFORM,
	CL_QUERY_DEVICE,
	CL_QUERY_PROGRAM,
	CL_QUERY_BUILD,
	CL_QUERY_KERNEL,
	CL_QUERY_EVENT
};
/* What is asked for, and how messages name it: "clGetDeviceInfo(CL_DEVICE_NAME)". */
struct cl_query {
	const struct cl_calls *calls;
	enum cl_query_kind of;
	void *object;        /* NULL: the device */
	cl_device_id device; /* NULL where the question is of no device */
	cl_uint what;
	const char *name;
};
/*
 * A text of at most `cap` bytes, which the caller frees; that of the driver may lack its end. Control characters
 * become blanks, line feeds only when it shall be one line.
 */
int cl_query_string(const struct cl_query *q, size_t cap, bool one_line, char **out,
                    struct tfmc_cl_error *error);
/* A value of exactly `size` bytes. */
int cl_query_value(const struct cl_query *q, void *value, size_t size, struct tfmc_cl_error *error);

/* ---- a device in use ---- */
struct tfmc_cl_context {
	const struct tfmc_cl *cl;
	const struct cl_calls *calls;
	const struct cl_entry *entry;
	cl_context context;
	cl_command_queue queue;
	uint64_t piece;
	bool is_timed; /* the queue keeps times */
};

struct tfmc_cl_buffer {
	struct tfmc_cl_context *context;
	cl_mem memory;
	uint64_t bytes;
	bool is_shared;
};

struct tfmc_cl_program {
	struct tfmc_cl_context *context;
	cl_program program;
	bool is_cached; /* made of a binary */
};

struct tfmc_cl_kernel {
	struct tfmc_cl_context *context;
	cl_kernel kernel;
	char *name;
};

/* As tfmc_cl_launch. `event` NULL: none; else it is the caller's after success. */
int cl_launch(struct tfmc_cl_kernel *k, const uint64_t groups[2], const uint64_t items[2], cl_event *event,
              struct tfmc_cl_error *error);

/* ---- binaries of programs on disk; whatever fails there is as if nothing were there ---- */
struct cl_cache_key {
	char *bytes; /* the caller frees them */
	size_t n;
};
/* False: there is no memory, or the source is too long. */
bool cl_cache_key_make(const struct tfmc_cl_context *c, const struct tfmc_cl_source *source,
                       struct cl_cache_key *out);
/* A file with bytes [*at, *n) of its binary, which the caller frees; NULL: there is none that fits the key. */
unsigned char *cl_cache_read(const char *folder, const struct cl_cache_key *key, size_t *at, size_t *n);
void cl_cache_write(const char *folder, const struct cl_cache_key *key, const unsigned char *binary,
                    size_t n);
/* Binaries in the open directory down to so many bytes, the least recently used first; `kept` stays. */
void cl_cache_trim(int dir, const char *kept, uint64_t limit);

/* ---- the list ---- */
/* Frees the texts that belong to it. */
void cl_free_device(struct tfmc_cl_device *d);
/* Fills platforms, entries and faults of an opened library. Only memory and the loader make it fail. */
int cl_list_devices(struct tfmc_cl *cl, struct tfmc_cl_error *error);

#endif
