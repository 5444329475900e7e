/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of OpenCL 1.2 that libtfmccl uses, declared here so that neither building nor linking needs OpenCL
 * headers or a library: types, constants, and the functions of calls.def as a struct of pointers. Names and
 * numbers are those of the specification.
 */
#ifndef TFMC_RUNTIME_OPENCL_CALLS_H
#define TFMC_RUNTIME_OPENCL_CALLS_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef struct cl_platform_object *cl_platform_id;
typedef struct cl_device_object *cl_device_id;
typedef struct cl_context_object *cl_context;
typedef struct cl_queue_object *cl_command_queue;
typedef struct cl_memory_object *cl_mem;
typedef struct cl_program_object *cl_program;
typedef struct cl_kernel_object *cl_kernel;
typedef struct cl_event_object *cl_event;
typedef void cl_notify(const char *text, const void *data, size_t n, void *user);
typedef void cl_build_notify(cl_program program, void *user);

enum {
#define CODE(number, name) name = (number),
#include "runtime/opencl/codes.def"
	CL_SUCCESS = 0
};

/* Queries, grouped by the function that takes them. */
enum {
	CL_PLATFORM_VERSION = 0x0901,
	CL_PLATFORM_NAME = 0x0902,

	CL_DEVICE_TYPE = 0x1000,
	CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
	CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
	CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
	CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
	CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
	CL_DEVICE_LOCAL_MEM_TYPE = 0x1022,
	CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
	CL_DEVICE_ENDIAN_LITTLE = 0x1026,
	CL_DEVICE_AVAILABLE = 0x1027,
	CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
	CL_DEVICE_NAME = 0x102B,
	CL_DEVICE_VENDOR = 0x102C,
	CL_DRIVER_VERSION = 0x102D,
	CL_DEVICE_VERSION = 0x102F,
	CL_DEVICE_EXTENSIONS = 0x1030,
	CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
	CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103A,
	CL_DEVICE_OPENCL_C_VERSION = 0x103D,
	CL_DEVICE_INTEGER_DOT_PRODUCT_SPEED = 0x1075, /* .._ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR */

	CL_PROGRAM_BINARY_SIZES = 0x1165,
	CL_PROGRAM_BINARIES = 0x1166,
	CL_PROGRAM_BUILD_LOG = 0x1183,

	CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,

	CL_PROFILING_COMMAND_START = 0x1282,
	CL_PROFILING_COMMAND_END = 0x1283
};

/* Results and flags. */
enum { CL_FALSE = 0, CL_TRUE = 1 };
enum { CL_LOCAL = 1, CL_GLOBAL = 2 };
enum { CL_CONTEXT_PLATFORM = 0x1084 };
enum { CL_QUEUE_PROFILING_ENABLE = 1 << 1 };
enum { CL_MEM_READ_WRITE = 1 << 0, CL_MEM_READ_ONLY = 1 << 2, CL_MEM_USE_HOST_PTR = 1 << 3 };
#define CL_DEVICE_TYPE_CPU         ((cl_ulong)1 << 1)
#define CL_DEVICE_TYPE_GPU         ((cl_ulong)1 << 2)
#define CL_DEVICE_TYPE_ACCELERATOR ((cl_ulong)1 << 3)
#define CL_DEVICE_TYPE_ALL         ((cl_ulong)0xFFFFFFFF)

/* cl_device_integer_dot_product_acceleration_properties_khr: flags, then those of the saturating forms. */
struct cl_dot_speed {
	cl_uint is_fast_signed, is_fast_unsigned, is_fast_mixed, saturating[3];
};

struct cl_calls {
#define CALL(result, name, parameters) result(*name) parameters;
#include "runtime/opencl/calls.def"
};

#endif
