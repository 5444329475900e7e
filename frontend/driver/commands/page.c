/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Escapes, numbers and templates of pages, see page.h. The style sheet and the script that all pages share are
 * embedded (embed.cmake).
 */
#include "frontend/driver/commands/page.h"

#include <string.h>

#include "ir/support/utf8.h"

/* embed.cmake: the files of page/, zero-terminated. */
extern const unsigned char light_css[], dark_css[], page_css[], page_js[];

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

void page_json_string(struct buf *out, const char *text)
{
	struct buf plain;
	buf_init(&plain);
	buf_json(&plain, text);
	for (const char *s = plain.data; *s;) {
		size_t n = strcspn(s, "<>&'");
		buf_bytes(out, s, n);
		s += n;
		if (*s)
			buf_printf(out, "\\u%04x", (unsigned)*s++);
	}
	out->failed = out->failed || buf_failed(&plain);
	buf_destroy(&plain);
}

void page_text(struct buf *out, const char *text, size_t n)
{
	for (const char *s = text, *end = text + n; s < end;) {
		uint32_t cp = 0;
		size_t bytes = utf8_decode(s, (size_t)(end - s), &cp);
		switch (cp) {
		case '<': buf_str(out, "&lt;"); break;
		case '>': buf_str(out, "&gt;"); break;
		case '&': buf_str(out, "&amp;"); break;
		case '"': buf_str(out, "&quot;"); break;
		default:
			if (bytes == 0 || utf8_is_control(cp) || (cp & 0xFFFE) == 0xFFFE)
				buf_str(out, REPLACEMENT);
			else
				buf_bytes(out, s, bytes);
		}
		s += bytes > 0 ? bytes : 1;
	}
}

/* Returns the mark that the text begins with; NULL: none. */
static const struct page_mark *find_mark(const char *text, const struct page_mark *marks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strncmp(text, marks[i].mark, strlen(marks[i].mark)))
			return &marks[i];
	return NULL;
}

void page_fill(struct buf *out, const char *template, const struct page_mark *marks, size_t n)
{
	struct buf style;
	buf_init(&style);
	buf_printf(&style, "%s%s", (const char *)light_css, (const char *)page_css);
	const struct page_mark common[] = {{"@STYLE@", style.data},
	                                   {"@THEME@", (const char *)dark_css},
	                                   {"@COMMON@", (const char *)page_js}};
	for (const char *text = template; *text;) {
		size_t plain = strcspn(text, "@");
		buf_bytes(out, text, plain);
		text += plain;
		const struct page_mark *m = find_mark(text, marks, n);
		m = m ? m : find_mark(text, common, TFMC_COUNT(common));
		if (m)
			buf_str(out, m->text);
		else if (*text)
			buf_char(out, *text);
		text += m ? strlen(m->mark) : *text != 0;
	}
	out->failed = out->failed || buf_failed(&style);
	buf_destroy(&style);
}

void page_svg_style(struct buf *out, const char *style)
{
	buf_printf(out, "<style>\n%s%s</style>\n<style media=\"(prefers-color-scheme: dark)\">\n%s</style>\n",
	           (const char *)light_css, style, (const char *)dark_css);
}

/* Prints a value in the largest of n units, each `factor` times the one before, in which it is at least 1. */
static void print_scaled(struct buf *out, double value, double factor, const char *const *units, size_t n)
{
	size_t unit = 0;
	for (; value >= factor && unit + 1 < n; unit++)
		value /= factor;
	buf_printf(out, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void print_bytes(struct buf *out, double bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	print_scaled(out, bytes, 1024, units, TFMC_COUNT(units));
}

void print_flops(struct buf *out, double flops)
{
	static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
	print_scaled(out, flops, 1000, units, TFMC_COUNT(units));
}
