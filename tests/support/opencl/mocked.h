/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mock OpenCL library (tests/opencl_mock/mock.h) in a unit test.
 */
#ifndef TFMC_TESTS_SUPPORT_OPENCL_MOCKED_H
#define TFMC_TESTS_SUPPORT_OPENCL_MOCKED_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/opencl_mock/mock.h"

struct mocked_code {
	int code;
	const char *name;
};
/* Every code of runtime/opencl/codes.def, and one that it lacks. */
extern const struct mocked_code mocked_codes[];
extern const size_t mocked_codes_n;

/* Its file. */
const char *mocked_path(void);
/* Its script, with nothing that happened; it is of this process. */
struct mock *mocked(void);
/* The text is there and has the part. */
bool mocked_has(const char *text, const char *part);
/* The text names the call, the code's name and its number. */
bool mocked_tells(const char *text, const char *call, const struct mocked_code *code);

#endif
