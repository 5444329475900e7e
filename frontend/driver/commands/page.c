/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Escapes, numbers and templates of pages, see page.h. The style sheet and the script that all pages share are
 * embedded (embed.cmake).
 * The common template has marks such as @NAME@; the template of a command has parts, each after a line that names it in
 * a comment of HTML, which replace marks of the common one.
 */
#include "frontend/driver/commands/page.h"

#include <string.h>

#include "ir/support/utf8.h"

/* embed.cmake: the files of page/, zero-terminated. */
extern const unsigned char light_css[], dark_css[], page_css[], page_js[], page_html[];

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
			if (bytes == 0 || utf8_is_control(cp) || (cp & 0xFFFE) == 0xFFFE) /* noncharacters */
				buf_str(out, REPLACEMENT);
			else
				buf_bytes(out, s, bytes);
		}
		s += bytes > 0 ? bytes : 1;
	}
}

/* ---- templates ---- */

/* Returns the mark that the text begins with; NULL: none. */
static const struct page_mark *find_mark(const char *text, const struct page_mark *marks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (marks[i].mark && !strncmp(text, marks[i].mark, strlen(marks[i].mark)))
			return &marks[i];
	return NULL;
}

/* Appends n_text bytes of a template, with marks[n] replaced. */
static void fill(struct buf *out, const char *text, size_t n_text, const struct page_mark *marks, size_t n)
{
	for (const char *end = text + n_text; text < end;) {
		const char *at = memchr(text, '@', (size_t)(end - text));
		at = at ? at : end;
		buf_bytes(out, text, (size_t)(at - text));
		const struct page_mark *m = at < end ? find_mark(at, marks, n) : NULL;
		if (m)
			buf_str(out, m->text);
		else if (at < end)
			buf_char(out, '@');
		text = at + (m ? strlen(m->mark) : at < end);
	}
}

/* The part of that name, with the page's marks replaced; empty where the template has none. */
static void fill_part(struct buf *out, const struct page *p, const char *name)
{
	static const char begin[] = "<!-- part ";
	for (const char *at = strstr(p->parts, begin); at; at = strstr(at, begin)) {
		at += strlen(begin);
		bool is_it = !strncmp(at, name, strlen(name)) && at[strlen(name)] == ' ';
		at = strchr(at, '\n') + 1;
		const char *next = strstr(at, begin);
		if (is_it)
			fill(out, at, next ? (size_t)(next - at) : strlen(at), p->marks,
			     TFMC_COUNT(p->marks));
	}
}

/* Appends a page: the common template with its marks, of which those for parts get the parts of the command's
 * template (style, notes, bar, body, help). */
void page_write(struct buf *out, const struct page *p)
{
	static const char *const parts[][2] = {{"@PARTSTYLE@", "style"},
	                                       {"@NOTES@", "notes"},
	                                       {"@BAR@", "bar"},
	                                       {"@BODY@", "body"},
	                                       {"@HELP@", "help"}};
	struct buf texts[TFMC_COUNT(parts)], style, name;
	buf_init(&style);
	buf_init(&name);
	buf_printf(&style, "%s%s", (const char *)light_css, (const char *)page_css);
	page_text(&name, p->name, strlen(p->name));
	struct page_mark marks[TFMC_COUNT(parts) + 7] = {{"@NAME@", name.data},
	                                                 {"@TITLE@", p->title},
	                                                 {"@STYLE@", style.data},
	                                                 {"@THEME@", (const char *)dark_css},
	                                                 {"@COMMON@", (const char *)page_js},
	                                                 {"@DATA@", p->data},
	                                                 {"@SCRIPT@", p->script}};
	for (size_t i = 0; i < TFMC_COUNT(parts); i++) {
		buf_init(&texts[i]);
		fill_part(&texts[i], p, parts[i][1]);
		marks[7 + i] = (struct page_mark){parts[i][0], texts[i].data};
	}
	fill(out, (const char *)page_html, strlen((const char *)page_html), marks, TFMC_COUNT(marks));
	out->failed = out->failed || buf_failed(&style) || buf_failed(&name);
	for (size_t i = 0; i < TFMC_COUNT(parts); i++) {
		out->failed = out->failed || buf_failed(&texts[i]);
		buf_destroy(&texts[i]);
	}
	buf_destroy(&style);
	buf_destroy(&name);
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
