/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/opencl/mocked.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct mocked_code mocked_codes[] = {
#define CODE(number, name) {number, #name},
#include "runtime/opencl/codes.def"
        {-9999, "unknown code"},
};
const size_t mocked_codes_n = sizeof(mocked_codes) / sizeof(mocked_codes[0]);

const char *mocked_path(void)
{
	const char *path = getenv("MOCK_OPENCL_PATH");
	ck_assert_msg(path, "MOCK_OPENCL_PATH is not set");
	return path;
}

struct mock *mocked(void)
{
	void *library = dlopen(mocked_path(), RTLD_NOW);
	ck_assert_msg(library, "%s", dlerror());
	struct mock *mock = dlsym(library, "mock");
	ck_assert(mock);
	*mock = (struct mock){.platforms = MOCK_PLATFORMS};
	return mock;
}

bool mocked_has(const char *text, const char *part)
{
	return text && strstr(text, part) != NULL;
}

bool mocked_tells(const char *text, const char *call, const struct mocked_code *code)
{
	char number[32];
	(void)snprintf(number, sizeof(number), "(%d)", code->code);
	return mocked_has(text, call) && mocked_has(text, code->name) && mocked_has(text, number);
}
