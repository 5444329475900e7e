/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints blocks of a dialect's text of helpers, which says what their placeholders are.
 */
#include "backends/print/print.h"

#include <string.h>

/* The text of the block whose heading, up to a colon, is `block`; *n its bytes. */
static const char *find(const char *text, const char *block, size_t *n)
{
	const char *at = strstr(text, "\n@@ ");
	size_t len = strlen(block);
	for (; at; at = strstr(at + 1, "\n@@ ")) {
		const char *heading = at + strlen("\n@@ ");
		if (strncmp(heading, block, len) != 0 || !strchr(":\n", heading[len]))
			continue;
		const char *end = strstr(heading, "\n\n@@ "), *first = strchr(heading, '\n') + 1;
		*n = end ? (size_t)(end + 1 - first) : strlen(first);
		return first;
	}
	*n = 0;
	return "";
}

void print_block(struct print *p, const char *block, const struct print_helper *h, struct buf *out)
{
	size_t n;
	const char *text = find(p->dialect->helpers, block, &n);
	for (size_t i = 0; i < n; i++) {
		if (text[i] != '$') {
			buf_char(out, text[i]);
			continue;
		}
		char letter = text[++i];
		const char *value = letter == 'N'                    ? h->name
		                    : letter >= '1' && letter <= '9' ? h->args[letter - '1']
		                                                     : p->dialect->placeholder(p, h, letter);
		size_t len = strlen(value);
		buf_bytes(out, value, len);
		if (len && value[len - 1] == '*' && text[i + 1] == ' ')
			i++;
	}
}

const char *print_helper(struct print *p, const char *block, const struct print_helper *h)
{
	if (print_need(p, h->name))
		print_block(p, block, h, &p->helpers);
	return h->name;
}
