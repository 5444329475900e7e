/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of commands: one HTML file each, with style, scripts and data inside, and no reference to the network. Names,
 * tokens and source lines of models are untrusted: they are escaped here, in JSON and in markup.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_PAGE_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_PAGE_H

#include "ir/support/buf.h"

/* A mark of a template, "@DATA@", and the text in its place. */
struct page_mark {
	const char *mark, *text;
};

/* A JSON string; also escapes < > & and ', which could end the script or the markup. */
void page_json_string(struct buf *out, const char *text);
/* n bytes as text of XML or HTML: markup is escaped; invalid UTF-8 and control characters become U+FFFD. */
void page_text(struct buf *out, const char *text, size_t n);
/* Appends the template with its marks replaced: those of every page (@STYLE@, @THEME@, @COMMON@, from page/) and
 * marks[n]. */
void page_fill(struct buf *out, const char *template, const struct page_mark *marks, size_t n);
/* Appends the style of a picture outside of a page: colors, light and dark. */
void page_svg_style(struct buf *out, const char *style);

/* "1.5 KiB"; "2.0 MFLOP" */
void print_bytes(struct buf *out, double bytes);
void print_flops(struct buf *out, double flops);

#endif
