/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printing and parsing of reproducer heads (reproducer.h).
 */
#include "passes/framework/reproducer.h"

#include <string.h>

#include "ir/support/utf8.h"

#define MAGIC "; reproducer "
#define HEAD  MAGIC "1\n"

/* `; key |line` for every line of a text. The '|' marks where the line begins, so that its indentation survives. */
static void print_lines(struct buf *out, const char *key, const char *text, size_t len)
{
	for (const char *line = text, *next; line < text + len; line = next) {
		size_t n = utf8_line(line, text + len, &next);
		buf_printf(out, "; %s |", key);
		buf_bytes(out, line, n);
		buf_char(out, '\n');
	}
}

void reproducer_print(struct buf *out, const struct pipeline *p, const struct pass_options *o)
{
	buf_str(out, HEAD "; passes ");
	pipeline_print(out, p);
	buf_char(out, '\n');
	if (o->target != NULL)
		buf_printf(out, "; mcpu %s\n", o->target->name);
	for (size_t i = 0; i < o->disable_rules.n; i++)
		buf_printf(out, "; disable-rule %s\n", o->disable_rules.items[i]);
	if (o->rules_text != NULL)
		print_lines(out, "rule", o->rules_text, o->rules_len);
}

/* ---- reading ---- */

struct head {
	struct arena *arena;
	struct reproducer *out;
	struct {
		const char **items;
		size_t n, cap;
	} disabled;
	struct buf rules;
};

/* The text after `; key ` in the line; NULL: the line has another key. */
static const char *value_of(const char *line, const char *key)
{
	size_t n = strlen(key);
	return strncmp(line + 2, key, n) == 0 && line[2 + n] == ' ' ? line + 3 + n : NULL;
}

/* Parses a line of the head. False: the key is unknown. A string without memory is "", and the arena has failed. */
static bool read_line(struct head *h, const char *line)
{
	const char *v;
	if ((v = value_of(line, "passes")) != NULL) {
		h->out->passes = v;
	} else if ((v = value_of(line, "mcpu")) != NULL) {
		h->out->mcpu = v;
	} else if ((v = value_of(line, "disable-rule")) != NULL) {
		ARENA_ADD(h->arena, &h->disabled, v);
	} else if ((v = value_of(line, "rule")) != NULL && v[0] == '|') {
		buf_str(&h->rules, v + 1);
		buf_char(&h->rules, '\n');
	} else {
		return false;
	}
	return true;
}

/* Another version is an error, not a text without a head: the head would be skipped as a comment and the run would
 * silently use other options. A failure of memory shows at the end, in the arena and the buffer. */
bool reproducer_read(struct arena *a, struct diag_context *cx, const char *text, size_t len,
                     struct reproducer *out, enum tfmc_status *status)
{
	struct head h = {.arena = a, .out = out};
	*out = (struct reproducer){.passes = ""};
	*status = TFMC_OK;
	if (len < strlen(MAGIC) || memcmp(text, MAGIC, strlen(MAGIC)) != 0)
		return false;
	if (len < strlen(HEAD) || memcmp(text, HEAD, strlen(HEAD)) != 0) {
		diag_error(cx, LOC_NONE, DIAG_PIPELINE,
		           "the head of a reproducer has another version than 1");
		*status = TFMC_INVALID;
		return true;
	}
	buf_init(&h.rules);
	const char *at = text + strlen(HEAD), *end = text + len;
	while (at + 2 < end && at[0] == ';' && at[1] == ' ' && *status == TFMC_OK) {
		const char *begin = at;
		const char *line = arena_strndup(a, begin, utf8_line(begin, end, &at));
		if (line != NULL && !read_line(&h, line)) {
			diag_error(cx, LOC_NONE, DIAG_PIPELINE,
			           "the head of a reproducer has an unknown line '%s'", line);
			*status = TFMC_INVALID;
		}
	}
	out->disable_rules = h.disabled.items;
	out->n_disable_rules = h.disabled.n;
	if (h.rules.len > 0) {
		out->rules = arena_strndup(a, h.rules.data, h.rules.len);
		out->rules_len = h.rules.len;
	}
	bool failed = buf_failed(&h.rules) || arena_failed(a);
	buf_destroy(&h.rules);
	*status = *status == TFMC_OK && failed ? TFMC_NO_MEMORY : *status;
	return true;
}
