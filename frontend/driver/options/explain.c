/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/driver/options/diagnostics.h"

#include <string.h>

#include "ir/support/strmap.h"

#define HEADING "\n## E"

extern const unsigned char diagnostics_md[];

/* From `from` to the first `stop` or the end of the page. */
static const char *until(struct arena *a, const char *from, const char *stop)
{
	const char *end = strstr(from, stop);
	return arena_strndup(a, from, end != NULL ? (size_t)(end - from) : strlen(from));
}

/* The section whose heading is at `at` (NULL: the first one). Returns the heading after it, or NULL. */
static const char *read_section(struct arena *a, const char *at, struct explanation *e)
{
	const char *code = strchr(at, 'E'), *title = strchr(code, ' ') + 1, *text = strchr(title, '\n') + 1;
	*e = (struct explanation){until(a, code, ":"), until(a, title, "\n"), until(a, text, "\n- "),
	                          until(a, text, HEADING)};
	return strstr(text, HEADING);
}

static const char *first_section(void)
{
	return strstr((const char *)diagnostics_md, HEADING);
}

bool explain_find(struct arena *a, const char *code, struct explanation *out, const char **nearest)
{
	struct {
		const char **items;
		size_t n, cap;
	} codes = {NULL, 0, 0};
	const char *wanted = arena_printf(a, "E%s", code + (code[0] == 'E' || code[0] == 'e'));
	for (const char *at = first_section(); at != NULL;) {
		at = read_section(a, at, out);
		const char **slot = ARENA_PUSH(a, &codes);
		if (arena_failed(a))
			break;
		if (strcmp(out->code, wanted) == 0)
			return true;
		*slot = out->code;
	}
	*nearest = arena_failed(a) ? NULL : nearest_name(wanted, codes.items, codes.n);
	return false;
}

/* An empty line in place of a fence. */
static void print_lines(struct buf *out, const char *text)
{
	bool was_empty = true;
	for (size_t len; *text != '\0'; text += len) {
		len = strcspn(text, "\n");
		len += text[len] == '\n';
		bool is_empty = len == 1 || strncmp(text, "```", 3) == 0;
		if (!is_empty)
			buf_bytes(out, text, len);
		else if (!was_empty)
			buf_char(out, '\n');
		was_empty = is_empty;
	}
}

void explain_print(struct buf *out, const struct explanation *e)
{
	buf_printf(out, "%s: %s\n\n%s\n", e->code, e->title, e->text);
	if (strstr(e->text, "\n- wrong: ") != NULL)
		buf_str(out, "\n(`tfmc explain` prints the model that is changed.)\n");
}

void explain_list(struct arena *a, struct buf *out)
{
	struct explanation e;
	const char *page = (const char *)diagnostics_md;
	print_lines(out, until(a, strchr(page, '\n') + 1, HEADING));
	buf_char(out, '\n');
	for (const char *at = first_section(); at != NULL && !arena_failed(a);) {
		at = read_section(a, at, &e);
		buf_printf(out, "%s  %s\n", e.code, e.title);
	}
}
