/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints blocks of prelude.c.in, which says what their placeholders are.
 */
#include "backends/print_c/internal.h"

#include <string.h>

extern const unsigned char c_prelude[]; /* prelude.c.in */

/* The text of the block whose heading, up to a colon, is `block`; *n its bytes. */
static const char *find(const char *block, size_t *n)
{
	const char *text = (const char *)c_prelude, *at = strstr(text, "\n@@ ");
	size_t len = strlen(block);
	for (; at; at = strstr(at + 1, "\n@@ ")) {
		const char *heading = at + strlen("\n@@ ");
		if (strncmp(heading, block, len) != 0 || !strchr(":\n", heading[len]))
			continue;
		const char *end = strstr(heading, "\n\n@@ "), *first = strchr(heading, '\n') + 1;
		while (*first != '#' && strncmp(first, "TFMC_INLINE", strlen("TFMC_INLINE")) != 0)
			first = strchr(first, '\n') + 1; /* the heading goes on */
		*n = end ? (size_t)(end + 1 - first) : strlen(first);
		return first;
	}
	*n = 0;
	return "";
}

static const char *placeholder(struct print *p, const struct c_helper *h, char letter)
{
	switch (letter) {
	case 'N': return h->name;
	case 'V': return c_type(p, h->element, h->lanes);
	case 'S': return c_element_scalar(h->element);
	case 'I': return c_type(p, c_signed(h->element), h->lanes);
	case 'U': return c_type(p, c_unsigned(h->element), h->lanes);
	case 'M': return c_type(p, C_I32, h->lanes);
	case 'B': return arena_printf(p->arena, "%d", c_bits(h->element) / 8);
	case 'L': return arena_printf(p->arena, "%d", h->lanes);
	case 'F': return h->element == C_F32 ? "f" : "";
	default: return h->args[letter - '1'];
	}
}

void c_print_block(struct print *p, const char *block, const struct c_helper *h, struct buf *out)
{
	size_t n;
	const char *text = find(block, &n);
	for (size_t i = 0; i < n; i++) {
		if (text[i] != '$') {
			buf_char(out, text[i]);
			continue;
		}
		const char *value = placeholder(p, h, text[++i]);
		size_t len = strlen(value);
		buf_bytes(out, value, len);
		if (len && value[len - 1] == '*' && text[i + 1] == ' ')
			i++;
	}
}

const char *c_need(struct print *p, const char *block, const struct c_helper *h)
{
	if (print_need(p, h->name))
		c_print_block(p, block, h, &p->helpers);
	return h->name;
}
