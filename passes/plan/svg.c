/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory map of the arena as SVG: time across (a column for each group), bytes upward, a rectangle for each
 * buffer, the lower bound as a dashed line. Sizes are evaluated at given values of the dims. Buffers are numbered by
 * size; below a plot a list gives number and full name, because a rectangle is often too narrow for a name and tooltips
 * are lost in print. The file contains no script and follows the viewer's light or dark setting.
 */
#include "passes/framework/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/memory.h"

#define WIDTH     960.0
#define LEFT      76.0 /* margin for byte labels */
#define RIGHT     16.0
#define CAPTION   30.0
#define PLOT      240.0 /* height of a plot */
#define ABOVE     46.0  /* title */
#define BELOW     36.0  /* times */
#define ROW       15.0  /* of the list of buffers */
#define LISTED    40    /* buffers in the list, the largest ones */
#define CHARACTER 6.7   /* width of a character of names: monospace of 11 px */
#define TIME      46.0  /* least distance between two times on the axis */
#define COLORS    8

struct ranked {
	size_t buffer;
	double bytes;
};

struct picture {
	struct buf *out;
	const int64_t *dims;
	const struct plan_func *plan;
	const struct ranked *ranked; /* [n_buffers]: the largest first; those from LISTED on have no number */
	double top, peak, bound;     /* of the plot; bytes */
};

static double value_of(const struct picture *p, const struct ir_dim *d)
{
	int64_t v;
	return ir_dim_eval(d, p->dims, &v) ? (double)v : 0;
}

static double begin_of(const struct picture *p, const struct plan_buffer *b)
{
	return value_of(p, b->at);
}

static double bytes_of(const struct picture *p, const struct plan_buffer *b)
{
	return (double)b->size * value_of(p, p->plan->lanes[b->lane].unit);
}

static double x_of(const struct picture *p, size_t t)
{
	size_t n = p->plan->n_times > 0 ? p->plan->n_times : 1;
	return LEFT + (WIDTH - LEFT - RIGHT) * (double)(t < n ? t : n) / (double)n;
}

static double y_of(const struct picture *p, double bytes)
{
	return p->top + PLOT - PLOT * bytes / (p->peak > 0 ? p->peak : 1);
}

/* Writes a string with XML escapes. */
static void put_text(struct buf *out, const char *s, size_t n)
{
	for (const char *end = s + n; s < end; s++) {
		switch (*s) {
		case '<': buf_str(out, "&lt;"); break;
		case '>': buf_str(out, "&gt;"); break;
		case '&': buf_str(out, "&amp;"); break;
		case '"': buf_str(out, "&quot;"); break;
		default:
			buf_char(out,
			         *s < ' ' || *s > '~' ? '.' : *s); /* names may contain arbitrary bytes */
		}
	}
}

static void put_size(struct buf *out, double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	size_t unit = 0;
	for (; bytes >= 1024 && unit + 1 < TFMC_COUNT(units); unit++)
		bytes /= 1024;
	buf_printf(out, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

/* ---- elements ---- */

/* Shortens *name, `layers.ffn.up linear (model.yaml:14)`, to the longest suffix of its path that fits `width`,
 * without the location. Returns its length; 0: not even the last step fits. */
static size_t label_of(const char **name, double width)
{
	const char *place = strstr(*name, " ("), *end = place != NULL ? place : *name + strlen(*name);
	while ((double)(end - *name) * CHARACTER > width) {
		const char *point = memchr(*name, '.', (size_t)(end - *name));
		if (point == NULL)
			return 0;
		*name = point + 1;
	}
	return (size_t)(end - *name);
}

/* `1.5 KiB at 0 B, groups 3 to 7` */
static void put_extent(struct picture *p, const struct plan_buffer *b)
{
	put_size(p->out, bytes_of(p, b));
	buf_str(p->out, " at ");
	put_size(p->out, begin_of(p, b));
	if (b->first == b->last)
		buf_printf(p->out, ", group %zu", b->first);
	else
		buf_printf(p->out, ", groups %zu to %zu", b->first, b->last);
}

/* The number of a buffer, and its name where both fit in the rectangle; nothing where not even the number fits. */
static void put_buffer_label(struct picture *p, const struct plan_buffer *b, size_t rank, double x, double y,
                             double width)
{
	char number[24];
	const char *name = b->name;
	int digits = snprintf(number, sizeof(number), "%zu", rank + 1);
	if ((double)digits * CHARACTER > width)
		return;
	size_t n = label_of(&name, width - (double)(digits + 1) * CHARACTER);
	buf_printf(p->out, "<text class=\"n\" x=\"%.1f\" y=\"%.1f\">%s%s", x, y, number, n > 0 ? " " : "");
	put_text(p->out, name, n);
	buf_str(p->out, "</text>");
}

/* A rectangle with tooltip, and a label if a line of text (11 high) fits. rank: position by size. */
static void put_buffer(struct picture *p, size_t rank)
{
	size_t i = p->ranked[rank].buffer;
	const struct plan_buffer *b = &p->plan->buffers[i];
	double begin = begin_of(p, b), bytes = bytes_of(p, b), x = x_of(p, b->first);
	double width = x_of(p, b->last + 1) - x, y = y_of(p, begin + bytes), height = y_of(p, begin) - y;
	buf_str(p->out, "<g><title>");
	put_text(p->out, b->name, strlen(b->name));
	buf_str(p->out, ": ");
	put_extent(p, b);
	buf_printf(p->out,
	           "</title><rect class=\"c%zu\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
	           i % COLORS, x, y, width, height);
	if (rank < LISTED && height >= 11)
		put_buffer_label(p, b, rank, x + width / 2, y + height / 2 + 4, width - 4);
	buf_str(p->out, "</g>\n");
}

static void put_line(struct picture *p, double bytes, const char *class, const char *what)
{
	double y = y_of(p, bytes);
	buf_printf(p->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"><title>%s ",
	           class, LEFT, y, WIDTH - RIGHT, y, what);
	put_size(p->out, bytes);
	buf_str(p->out, "</title></line>\n");
}

static void put_label(struct picture *p, double x, double y, const char *anchor, const char *text)
{
	buf_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	put_text(p->out, text, strlen(text));
	buf_str(p->out, "</text>\n");
}

static void put_bytes_label(struct picture *p, double bytes)
{
	struct buf text;
	buf_init(&text);
	put_size(&text, bytes);
	put_label(p, LEFT - 6, y_of(p, bytes) + 4, "end", text.data);
	buf_destroy(&text);
}

/* The title of a plot: name, peak, lower bound and counts. */
static void put_title(struct picture *p)
{
	struct buf text;
	buf_init(&text);
	buf_printf(&text, "%s: peak ", p->plan->name);
	put_size(&text, p->peak);
	buf_str(&text, ", lower bound ");
	put_size(&text, p->bound);
	buf_printf(&text, ", %zu buffers, %zu groups", p->plan->n_buffers, p->plan->n_times);
	buf_printf(p->out, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\">", LEFT, p->top - 14);
	put_text(p->out, text.data, text.len);
	buf_str(p->out, "</text>\n");
	buf_destroy(&text);
}

/* Peak and lower bound at the given dims. */
static void measure(struct picture *p)
{
	const struct plan_func *f = p->plan;
	p->peak = p->bound = 0;
	for (size_t i = 0; i < f->n_buffers; i++) {
		double top = begin_of(p, &f->buffers[i]) + bytes_of(p, &f->buffers[i]);
		p->peak = top > p->peak ? top : p->peak;
	}
	for (size_t t = 0; t < f->n_times; t++) {
		double sum = 0;
		for (size_t i = 0; i < f->n_buffers; i++)
			if (f->buffers[i].first <= t && t <= f->buffers[i].last)
				sum += bytes_of(p, &f->buffers[i]);
		p->bound = sum > p->bound ? sum : p->bound;
	}
}

/* The times as numbers below the plot, each in the middle of its column, as many as have space. */
static void put_times(struct picture *p)
{
	size_t n = p->plan->n_times > 0 ? p->plan->n_times : 1, every = 1;
	char number[24];
	while ((x_of(p, every) - x_of(p, 0)) < TIME && every < n)
		every++;
	put_label(p, LEFT - 6, p->top + PLOT + 16, "end", "group");
	for (size_t t = 0; t < n; t += every) {
		(void)snprintf(number, sizeof(number), "%zu", t);
		put_label(p, (x_of(p, t) + x_of(p, t + 1)) / 2, p->top + PLOT + 16, "middle", number);
	}
}

static size_t listed(const struct plan_func *f)
{
	return f->n_buffers < LISTED ? f->n_buffers : LISTED;
}

/* Rows of the list: the numbered buffers, and one that counts the others. */
static size_t list_rows(const struct plan_func *f)
{
	return listed(f) + (f->n_buffers > LISTED);
}

/* The list below the plot: number, name and extent of the LISTED largest buffers. A name that is too long loses its
 * beginning, and two more columns for the dots in its place. */
static void put_list(struct picture *p)
{
	const size_t most = (size_t)((WIDTH - LEFT - RIGHT) / CHARACTER);
	double y = p->top + PLOT + BELOW;
	struct buf extent;
	for (size_t rank = 0; rank < listed(p->plan); rank++, y += ROW) {
		const struct plan_buffer *b = &p->plan->buffers[p->ranked[rank].buffer];
		struct picture alone = *p;
		alone.out = &extent;
		buf_init(&extent);
		buf_str(&extent, ": ");
		put_extent(&alone, b);
		size_t n = strlen(b->name), space = most > extent.len ? most - extent.len : 0,
		       cut = n > space ? n - space + 2 : 0;
		buf_printf(p->out, "<rect class=\"c%zu\" x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\"/>",
		           p->ranked[rank].buffer % COLORS, LEFT - 14, y - 9);
		buf_printf(p->out, "<text class=\"l e\" x=\"%.1f\" y=\"%.1f\">%zu</text>", LEFT - 20, y,
		           rank + 1);
		buf_printf(p->out, "<text class=\"l\" x=\"%.1f\" y=\"%.1f\">%s", LEFT + 2, y,
		           cut > 0 ? ".." : "");
		put_text(p->out, b->name + (cut < n ? cut : n), cut < n ? n - cut : 0);
		put_text(p->out, extent.data, extent.len);
		buf_str(p->out, "</text>\n");
		buf_destroy(&extent);
	}
	if (p->plan->n_buffers > LISTED)
		buf_printf(p->out, "<text class=\"l\" x=\"%.1f\" y=\"%.1f\">and %zu smaller ones</text>\n",
		           LEFT + 2, y, p->plan->n_buffers - LISTED);
}

/* The plot of one function. */
static void put_function(struct picture *p)
{
	measure(p);
	put_title(p);
	buf_printf(p->out, "<rect class=\"f\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", LEFT,
	           p->top, WIDTH - LEFT - RIGHT, PLOT);
	for (size_t i = 0; i < p->plan->n_buffers; i++)
		put_buffer(p, i);
	put_line(p, p->peak, "p", "peak");
	put_line(p, p->bound, "b", "lower bound");
	put_bytes_label(p, 0);
	put_bytes_label(p, p->peak);
	put_times(p);
	put_list(p);
}

/* Fills are pale in light mode and muted in dark mode, so that text is readable in both. */
static void put_style(struct buf *out)
{
	static const char *const light[COLORS] = {"#9ecbff", "#ffd59e", "#b5e8b0", "#f3b6c9",
	                                          "#cfc3f5", "#a9e5e1", "#efe3a0", "#d9d4ce"};
	static const char *const dark[COLORS] = {"#2f5f94", "#8a5a1d", "#3a7035", "#8a3f58",
	                                         "#5d4b9c", "#2d7470", "#756a1f", "#5a5650"};
	buf_str(out, "<style>\nsvg{background:#fff;font:12px sans-serif}\ntext{fill:#222}\n"
	             ".t{font-weight:bold;font-size:13px}\n.h{font-size:14px}\n"
	             ".n,.l{font:11px monospace}\n.n{text-anchor:middle}\n.e{text-anchor:end}\n"
	             "rect{stroke:#444;stroke-width:.6}\n.f{fill:none;stroke:#999}\n"
	             ".p{stroke:#222;stroke-width:1.2}\n"
	             ".b{stroke:#c0261c;stroke-width:1.6;stroke-dasharray:6 4}\n");
	for (size_t i = 0; i < COLORS; i++)
		buf_printf(out, ".c%zu{fill:%s}\n", i, light[i]);
	buf_str(out, "@media (prefers-color-scheme:dark){\nsvg{background:#15181c}\ntext{fill:#e8e8e8}\n"
	             "rect{stroke:#b8b8b8}\n.f{stroke:#666}\n.p{stroke:#e8e8e8}\n.b{stroke:#ff7b6e}\n");
	for (size_t i = 0; i < COLORS; i++)
		buf_printf(out, ".c%zu{fill:%s}\n", i, dark[i]);
	buf_str(out, "}\n</style>\n");
}

/* ---- the picture ---- */

static int compare_ranked(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* The buffers, the largest first, of equal sizes in order. The caller frees them; NULL: no memory. */
static struct ranked *rank_by_size(const struct picture *p)
{
	size_t n = p->plan->n_buffers;
	struct ranked *ranked = memory_zeroed(n + 1, sizeof(*ranked));
	for (size_t i = 0; ranked != NULL && i < n; i++)
		ranked[i] = (struct ranked){i, bytes_of(p, &p->plan->buffers[i])};
	if (ranked != NULL)
		qsort(ranked, n, sizeof(*ranked), compare_ranked);
	return ranked;
}

static double height_of(const struct plan_func *f)
{
	return ABOVE + PLOT + BELOW + ROW * (double)list_rows(f);
}

/* The plots of the functions, one below the other; the height of the picture is known first. Without memory the
 * buffer fails. */
void plan_print_svg(struct buf *out, const char *caption, const struct plan_func *plans, size_t n,
                    const int64_t *dims)
{
	double height = CAPTION + 8, top = CAPTION;
	for (size_t i = 0; i < n; i++)
		height += height_of(&plans[i]);
	buf_printf(
	        out,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
	        "%.0f\" style=\"max-width:100%%;height:auto\">\n",
	        WIDTH, height, WIDTH, height);
	put_style(out);
	buf_printf(out, "<text class=\"h\" x=\"%.1f\" y=\"22\">", LEFT);
	put_text(out, caption, strlen(caption));
	buf_str(out, "</text>\n");
	for (size_t i = 0; i < n; i++) {
		struct picture p = {.out = out, .dims = dims, .plan = &plans[i], .top = top + ABOVE};
		struct ranked *ranked = rank_by_size(&p);
		p.ranked = ranked;
		out->failed = out->failed || ranked == NULL;
		if (ranked != NULL)
			put_function(&p);
		memory_free(ranked);
		top += height_of(&plans[i]);
	}
	buf_str(out, "</svg>\n");
}
