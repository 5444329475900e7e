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
/* A page: its parts of the frame that all share (page/page.html). */
struct page {
	const char *name;  /* of the model; any bytes */
	const char *title; /* what the page shows */
	/* Its template: each part (style, notes, bar, body, help) begins after a line <!-- part NAME --> and ends
	 * before the next one. */
	const char *parts;
	struct page_mark marks[2]; /* of the parts style and body; mark NULL: none */
	const char *data, *script; /* JSON without < > & and '; JavaScript */
};
void page_write(struct buf *out, const struct page *p);
/* Appends the style of a picture outside of a page: colors, light and dark. */
void page_svg_style(struct buf *out, const char *style);

/* "1.5 KiB"; "2.0 MFLOP" */
void print_bytes(struct buf *out, double bytes);
void print_flops(struct buf *out, double flops);

#endif
