/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass_report: counters of passes, and memory plans as text for --stats. A buffer of a plan has `size` times the unit
 * of its lane in bytes, and is alive from group `first` to group `last`; gap[0] is that at the largest dims.
 */
#include "passes/framework/pass.h"

#include <string.h>

#define MAP_COLUMNS 64

void pass_report_init(struct pass_report *r)
{
	*r = (struct pass_report){0};
	arena_init(&r->arena);
}

void pass_report_destroy(struct pass_report *r)
{
	arena_destroy(&r->arena);
}

/* ---- memory map ---- */

static char buffer_letter(size_t i)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	return letters[i % (sizeof(letters) - 1)];
}

/*
 * One line of the map: the buffers that are alive at group t, scaled to the largest dims; at least one column
 * each.
 */
static void print_map_line(struct buf *out, const struct plan_func *p, size_t t)
{
	char line[MAP_COLUMNS + 1];
	int64_t arena = ir_dim_hi(p->dims, p->arena);
	/* an arena of 0 bytes has buffers of values without elements, all in the first column */
	double scale = arena > 0 ? (double)MAP_COLUMNS / (double)arena : 0;

	memset(line, '.', MAP_COLUMNS);
	line[MAP_COLUMNS] = '\0';
	for (size_t i = 0; i < p->n_buffers; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		if (t < b->first || t > b->last)
			continue;
		double at = (double)ir_dim_hi(p->dims, b->at);
		double bytes = (double)b->size * (double)ir_dim_hi(p->dims, p->lanes[b->lane].unit);
		size_t from = (size_t)(at * scale), to = (size_t)((at + bytes) * scale + 0.5);
		for (size_t c = from; c < MAP_COLUMNS && (c < to || c == from); c++)
			line[c] = buffer_letter(i);
	}
	buf_printf(out, "  %4zu %s\n", t, line);
}

static void print_dim(struct buf *out, const struct plan_func *p, const struct ir_dim *d)
{
	ir_dim_print(out, p->dims, d, false);
}

void plan_print_map(struct buf *out, const struct plan_func *p)
{
	for (size_t i = 0; i < p->n_buffers; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		buf_printf(out, "  %c %%%s: %lld x ", buffer_letter(i), b->name, (long long)b->size);
		print_dim(out, p, p->lanes[b->lane].unit);
		buf_str(out, " bytes at ");
		print_dim(out, p, b->at);
		buf_printf(out, ", groups %zu to %zu\n", b->first, b->last);
	}
	for (size_t t = 0; t < p->n_times; t++)
		print_map_line(out, p, t);
}

/* ---- report ---- */

/* Size, lower bound, gap and map of the arena of one function. */
static void print_plan(struct buf *out, const struct plan_func *p)
{
	buf_printf(out, "arena of %s: ", p->name);
	print_dim(out, p, p->arena);
	buf_str(out, " bytes, lower bound ");
	print_dim(out, p, p->lower_bound);
	buf_printf(out, ", gap %.1f %%, %zu buffers, %zu groups\n", 100 * p->gap[0], p->n_buffers,
	           p->n_times);
	plan_print_map(out, p);
}

/* Counters in the order in which passes first added to them, then the plans. */
void pass_report_print(struct buf *out, const struct pass_report *r)
{
	for (size_t i = 0; i < r->counters.n; i++) {
		const struct pass_counter *c = &r->counters.items[i];
		buf_printf(out, "%s: %s %lld\n", c->pass, c->name, (long long)c->value);
	}
	for (size_t i = 0; i < r->plans.n; i++)
		print_plan(out, &r->plans.items[i]);
}
