/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of the pickles in files of torch.save, protocols 2 to 4. It executes nothing: a fixed table has the
 * operations that build values, the caller has the globals; anything else is a PICKLE diagnostic that names the
 * operation or the global and its byte in the file. Input is hostile: memory stays below a constant, time in
 * proportion to the bytes.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_PICKLE_H
#define TFMC_FRONTEND_WEIGHTS_PICKLE_H

#include "frontend/weights/stored.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"

enum pickle_kind {
	PICKLE_MARK,
	PICKLE_OTHER, /* None, floats, bytes, sets, text that is not UTF-8 or too long: values that are not needed */
	PICKLE_INT, /* also bool */
	PICKLE_STRING,
	PICKLE_TUPLE,
	PICKLE_LIST,
	PICKLE_DICT,
	PICKLE_FUNCTION, /* globals: called, or an object of the caller */
	PICKLE_TYPE,
	PICKLE_STORAGE, /* objects of the caller */
	PICKLE_TENSOR,
};

struct pickle;
struct pickle_value;

/* Calls a function with a tuple. False after a diagnostic. */
typedef bool pickle_call(struct pickle *p, const struct pickle_value *args, struct pickle_value *out);

/* A value. Values may contain themselves. */
struct pickle_value {
	enum pickle_kind kind;
	union {
		struct {                             /* first: an initializer without a member zeroes it */
			struct pickle_value **items; /* of a dict: key, value, key, value, .. */
			size_t n, cap;
		};
		int64_t i;
		const char *text; /* UTF-8 without zero characters */
		pickle_call *call;
		const void *object;
	};
};

struct pickle_list {
	struct pickle_value **items;
	size_t n, cap;
};

/* A pickle at bytes [at, end) of a file, and the values read so far. */
struct pickle {
	const struct stored_source *s;
	struct arena *arena; /* owns the values */
	size_t at, end;
	/* The value of a global; false: refused. */
	bool (*find)(const char *module, const char *name, struct pickle_value *out);
	pickle_call *persist; /* the value of a persistent id, which is a tuple */
	void *user;
	size_t operation; /* offset of the current operation */
	uint64_t operand; /* its operand */
	size_t pushes;    /* number of values pushed */
	struct pickle_list stack, memo;
};

/* Reads to the end of the first pickle, to which `at` advances. False after a diagnostic, or no memory in the
 * arena of values. */
TFMC_MUST_USE bool pickle_read(struct pickle *p, const struct pickle_value **out);
/* Reports a WEIGHT_FILE error at the current operation; returns false. */
bool pickle_error(const struct pickle *p, const char *fmt, ...) TFMC_PRINTF(2, 3);

#endif
