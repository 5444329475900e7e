/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report of facts, as indented lines of text or as one JSON object, by the same calls. In text an object is its key
 * and indented lines, a row is an object on one line.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_REPORT_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/support/buf.h"
#include "ir/support/compiler.h"

struct report {
	struct buf *out;
	bool is_json;
	int depth;
	bool in_row, has_fields; /* of the innermost object */
};

/* Keys and texts may hold any bytes. */
void report_begin(struct report *r, struct buf *out, bool is_json);
/* Closes open objects, too. */
void report_end(struct report *r);
/* Begins an object or a row, which report_close() ends; in a row there is no other object. */
void report_open(struct report *r, const char *key);
void report_row(struct report *r, const char *key);
void report_close(struct report *r);
/* Adds a field to the innermost object. In a row the key "type" is not shown as text. */
void report_text(struct report *r, const char *key, const char *fmt, ...) TFMC_PRINTF(3, 4);
void report_number(struct report *r, const char *key, uint64_t n);
/* A field that is present only when it is true. */
void report_flag(struct report *r, const char *key, bool value);

#endif
