/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory map of the arena as SVG: time across (a column for each group), bytes upward, a rectangle for each
 * buffer, the lower bound as a dashed line. Sizes are evaluated at given values of the dims. The file contains no
 * script and follows the viewer's light or dark setting.
 */
#include "passes/framework/pass.h"

#include <string.h>

#define WIDTH     960.0
#define LEFT      76.0 /* margin for byte labels */
#define RIGHT     16.0
#define PLOT      240.0 /* height of a plot */
#define ABOVE     46.0  /* title */
#define BELOW     30.0  /* times */
#define CHARACTER 6.6   /* width of a character of names */
#define COLORS    8

struct picture {
	struct buf *out;
	const int64_t *dims;
	const struct plan_func *plan;
	double top, peak, bound; /* of the plot; bytes */
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

/*
 * Shortens *name to the longest suffix of its path that fits `width`, without the location. Returns its length;
 * 0: none.
 */
static size_t label_of(const char **name, double width)
{
	const char *place = strstr(*name, " ("), *end = place != NULL ? place : *name + strlen(*name);
	while ((double)(end - *name) * CHARACTER >= width) {
		const char *point = memchr(*name, '.', (size_t)(end - *name));
		if (point == NULL)
			return 0;
		*name = point + 1;
	}
	return (size_t)(end - *name);
}

/* A rectangle with tooltip, and a label if it fits. */
static void put_buffer(struct picture *p, size_t i)
{
	const struct plan_buffer *b = &p->plan->buffers[i];
	double begin = begin_of(p, b), bytes = bytes_of(p, b), x = x_of(p, b->first);
	double width = x_of(p, b->last + 1) - x, y = y_of(p, begin + bytes), height = y_of(p, begin) - y;
	const char *name = b->name;
	size_t n = label_of(&name, width - 4);
	buf_str(p->out, "<g><title>");
	put_text(p->out, b->name, strlen(b->name));
	buf_str(p->out, ": ");
	put_size(p->out, bytes);
	buf_str(p->out, " at ");
	put_size(p->out, begin);
	buf_printf(p->out, ", groups %zu to %zu</title>", b->first, b->last);
	buf_printf(p->out, "<rect class=\"c%zu\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
	           i % COLORS, x, y, width, height);
	if (n > 0 && height >= 11) {
		buf_printf(p->out, "<text class=\"n\" x=\"%.1f\" y=\"%.1f\">", x + width / 2,
		           y + height / 2 + 4);
		put_text(p->out, name, n);
		buf_str(p->out, "</text>");
	}
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

/* The plot of one function. */
static void put_function(struct picture *p)
{
	struct buf last;
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
	put_label(p, LEFT, p->top + PLOT + 16, "start", "group 0");
	buf_init(&last);
	buf_printf(&last, "%zu", p->plan->n_times > 0 ? p->plan->n_times - 1 : 0);
	put_label(p, WIDTH - RIGHT, p->top + PLOT + 16, "end", last.data);
	buf_destroy(&last);
}

/* Fills are pale in light mode and muted in dark mode, so that text is readable in both. */
static void put_style(struct buf *out)
{
	static const char *const light[COLORS] = {"#9ecbff", "#ffd59e", "#b5e8b0", "#f3b6c9",
	                                          "#cfc3f5", "#a9e5e1", "#efe3a0", "#d9d4ce"};
	static const char *const dark[COLORS] = {"#2f5f94", "#8a5a1d", "#3a7035", "#8a3f58",
	                                         "#5d4b9c", "#2d7470", "#756a1f", "#5a5650"};
	buf_str(out, "<style>\nsvg{background:#fff;font:12px sans-serif}\ntext{fill:#222}\n"
	             ".t{font-weight:bold;font-size:13px}\n.n{font-size:11px;text-anchor:middle}\n"
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

void plan_print_svg(struct buf *out, const struct plan_func *plans, size_t n, const int64_t *dims)
{
	double height = (double)n * (ABOVE + PLOT + BELOW) + 8;
	buf_printf(
	        out,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
	        "%.0f\">\n",
	        WIDTH, height, WIDTH, height);
	put_style(out);
	for (size_t i = 0; i < n; i++) {
		struct picture p = {.out = out, .dims = dims, .plan = &plans[i]};
		p.top = (double)i * (ABOVE + PLOT + BELOW) + ABOVE;
		put_function(&p);
	}
	buf_str(out, "</svg>\n");
}
