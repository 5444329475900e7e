/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of facts as text or JSON, written as the calls come; struct report knows the innermost object only.
 * In text an object has a line for each field, a row one line for all.
 */
#include "frontend/driver/commands/report.h"

#include <string.h>

#include "ir/support/utf8.h"

/* Prints a key or a value. In text, control characters and invalid UTF-8 are replaced by dots: they come from
 * files. */
static void print_string(struct report *r, const char *text)
{
	if (r->is_json) {
		buf_json(r->out, text);
		return;
	}
	size_t left = strlen(text), n;
	for (; left > 0; text += n, left -= n) {
		uint32_t cp;
		n = utf8_decode(text, left, &cp);
		if (n == 0 || utf8_is_control(cp)) {
			buf_char(r->out, '.');
			n = n > 0 ? n : 1;
		} else {
			buf_bytes(r->out, text, n);
		}
	}
}

void report_begin(struct report *r, struct buf *out, bool is_json)
{
	*r = (struct report){.out = out, .is_json = is_json, .depth = is_json};
	buf_str(out, is_json ? "{" : "");
}

void report_end(struct report *r)
{
	while (r->depth > r->is_json)
		report_close(r);
	buf_str(r->out, r->is_json ? "\n}\n" : "");
}

/* Begins a field: on a line of its own, or as the next one of a row. */
static void begin_field(struct report *r)
{
	if (r->in_row && !r->is_json) {
		buf_str(r->out, r->has_fields ? ", " : " ");
	} else {
		buf_str(r->out, !r->is_json ? "" : r->has_fields ? ",\n" : "\n");
		buf_fill(r->out, ' ', 2 * (size_t)r->depth);
	}
	r->has_fields = true;
}

/* Begins an object. end: what follows its key in text. */
static void open_object(struct report *r, const char *key, const char *end)
{
	begin_field(r);
	print_string(r, key);
	buf_str(r->out, r->is_json ? ": {" : end);
	r->depth++;
	r->has_fields = false;
}

void report_open(struct report *r, const char *key)
{
	open_object(r, key, ":\n");
}

void report_row(struct report *r, const char *key)
{
	open_object(r, key, ":");
	r->in_row = true;
}

/* Ends the innermost object or row. In JSON the brace is on a line of its own, unless the object is empty. The
 * object around has a field now: this one. */
void report_close(struct report *r)
{
	r->depth--;
	if (r->is_json && r->has_fields) {
		buf_char(r->out, '\n');
		buf_fill(r->out, ' ', 2 * (size_t)r->depth);
	}
	buf_str(r->out, r->is_json ? "}" : r->in_row ? "\n" : "");
	r->in_row = false;
	r->has_fields = true;
}

/* Begins a field with its key. In text a row omits the key "type": a type explains itself. */
static void begin_value(struct report *r, const char *key)
{
	bool in_line = r->in_row && !r->is_json;
	begin_field(r);
	if (in_line && !strcmp(key, "type")) /* a type needs no label */
		return;
	print_string(r, key);
	buf_str(r->out, in_line ? " " : ": ");
}

static void end_value(struct report *r)
{
	buf_str(r->out, r->is_json || r->in_row ? "" : "\n");
}

void report_text(struct report *r, const char *key, const char *fmt, ...)
{
	struct buf text;
	BUF_FROM_ARGS(&text, fmt);
	begin_value(r, key);
	print_string(r, text.data);
	end_value(r);
	buf_destroy(&text);
}

void report_number(struct report *r, const char *key, uint64_t n)
{
	begin_value(r, key);
	buf_printf(r->out, "%llu", (unsigned long long)n);
	end_value(r);
}

void report_flag(struct report *r, const char *key, bool value)
{
	if (!value)
		return;
	begin_field(r);
	print_string(r, key);
	buf_str(r->out, r->is_json ? ": true" : r->in_row ? "" : ": yes");
	end_value(r);
}
