/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors as messages, and queries of the clGet..Info functions, whose results are checked.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/internal.h"

/* ---- errors ---- */

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

static bool is_printable(char c)
{
	return (unsigned char)c >= 0x20 && c != 0x7f;
}

/* Replaces control characters by blanks (line feeds only if one_line) and trims both ends. */
static void clean_string(char *text, bool one_line)
{
	size_t n = 0, from = strspn(text, " \t\r\n");
	for (const char *p = text + from; *p; p++)
		text[n++] = is_printable(*p) || (*p == '\n' && !one_line) ? *p : ' ';
	while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\n'))
		n--;
	text[n] = 0;
}

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
