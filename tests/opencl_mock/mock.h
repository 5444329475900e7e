/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An OpenCL library without devices, for tests of libtfmccl and of the command: it counts and records calls, fails
 * the one that it is told to, and gives odd answers. A test loads the same file and changes its script:
 *
 *	struct mock *mock = dlsym(dlopen(MOCK_OPENCL_PATH, RTLD_NOW), "mock");
 *	*mock = (struct mock){.platforms = 2, .fail_at = 3, .code = CL_OUT_OF_RESOURCES};
 *
 * Programs are not run; `launched` is told what would be. A source with the word WRONG does not compile; a kernel is
 * found when its name is in the source. For a command the script is the environment variable MOCK_OPENCL,
 * "platforms=2,fail_at=3,code=-5,odd=4".
 */
#ifndef TFMC_TESTS_OPENCL_MOCK_MOCK_H
#define TFMC_TESTS_OPENCL_MOCK_MOCK_H

#include <stddef.h>
#include <stdint.h>

#define MOCK_PLATFORMS 2
#define MOCK_DEVICES   3 /* of all platforms: a processor on the first, a small and a large GPU on the second */
#define MOCK_CALLS     8192

#define MOCK_ARGS 64

/* An argument of a kernel as it was set last. */
struct mock_arg {
	size_t size; /* 0: it was not set */
	unsigned char value[8];
	char *bytes; /* of memory that exists: [n] */
	size_t n;
};
typedef void mock_launched(void *user, const char *kernel, const struct mock_arg args[MOCK_ARGS]);

enum mock_odd {
	MOCK_USUAL,
	MOCK_NO_END,       /* texts lack the zero at their end */
	MOCK_CONTROLS,     /* texts hold control characters and bytes that are not UTF-8 */
	MOCK_EMPTY,        /* texts are of 0 bytes */
	MOCK_HUGE,         /* texts are said to be of 2^40 bytes */
	MOCK_LONG,         /* texts are of 60000 bytes */
	MOCK_SHORT_VALUES, /* numbers are said to be of 1 byte */
	MOCK_NULL_IDS,     /* all platforms are null pointers */
	MOCK_NULL_DEVICES, /* all devices */
	MOCK_NO_DEVICES,   /* success, and 0 devices */
	MOCK_MANY,         /* 4 billion platforms */
	MOCK_OLD,          /* OpenCL 1.1 */
	MOCK_NO_COMPILER,
	MOCK_TINY,         /* all numbers are 1 */
	MOCK_NULL_OBJECTS, /* what is created is a null pointer */
	MOCK_POCL,         /* platforms have the name of PoCL */
	MOCK_BACKWARDS,    /* kernels end before they begin */
	MOCK_ODDS
};

/* Properties of dot products of bytes that the large GPU reports. */
enum mock_dot { MOCK_NO_DOT, MOCK_DOT, MOCK_DOT_SLOW, MOCK_DOT_OLD };

struct mock {
	int64_t platforms;
	int64_t fail_at; /* the call of this number, from 1, fails; 0: none */
	int64_t code;    /* with this code */
	int64_t odd;     /* enum mock_odd */
	int64_t largest; /* bytes of a buffer; 0: 2^18 */
	enum mock_dot dot;
	int64_t nanoseconds;     /* that a kernel runs */
	mock_launched *launched; /* at each launch that succeeds; may be NULL */
	void *user;
	/* Counters of calls. */
	int64_t calls;
	const char *log[MOCK_CALLS]; /* names of the first calls */
	int64_t live;                /* objects that are not released */
	int64_t groups[2], items[2]; /* of the last launch */
	int64_t dots;                /* programs built with the macro TFMC_DOT */
	int64_t shared;              /* buffers in memory of the caller so far */
	int64_t later;               /* copies without a wait */
	int64_t misuse;              /* calls with an argument that no caller may give */
};

#endif
