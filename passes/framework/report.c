/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What passes counted and planned, as text for --stats.
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

int64_t pass_report_count(const struct pass_report *r, const char *pass, const char *name)
{
	for (size_t i = 0; i < r->counters.n; i++)
		if (strcmp(r->counters.items[i].pass, pass) == 0 &&
		    strcmp(r->counters.items[i].name, name) == 0)
			return r->counters.items[i].value;
	return 0;
}

/* ---- the map ---- */

static char letter(size_t i)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	return letters[i % (sizeof(letters) - 1)];
}

/* One line: what lies where at time t. Every buffer has at least one column. */
static void map_line(struct buf *out, const struct plan_func *p, size_t lane, size_t t)
{
	char line[MAP_COLUMNS + 1];
	int64_t peak = p->lanes[lane].peak > 0 ? p->lanes[lane].peak : 1;

	memset(line, '.', MAP_COLUMNS);
	line[MAP_COLUMNS] = '\0';
	for (size_t i = 0; i < p->n_buffers; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		if (b->lane != lane || t < b->first || t > b->last)
			continue;
		double scale = (double)MAP_COLUMNS / (double)peak;
		size_t from = (size_t)((double)b->offset * scale);
		size_t to = (size_t)((double)(b->offset + b->size) * scale);
		for (size_t c = from; c < MAP_COLUMNS && (c < to || c == from); c++)
			line[c] = letter(i);
	}
	buf_printf(out, "  %4zu %s\n", t, line);
}

static void print_dim(struct buf *out, const struct plan_func *p, const struct ir_dim *d)
{
	ir_dim_print(out, p->dims, d, false);
}

void plan_print_map(struct buf *out, const struct plan_func *p)
{
	for (size_t lane = 0; lane < p->n_lanes; lane++) {
		const struct plan_lane *l = &p->lanes[lane];
		buf_printf(out, "  lane ");
		print_dim(out, p, l->unit);
		buf_printf(out, ": %lld bytes each, lower bound %lld\n", (long long)l->peak,
		           (long long)l->lower_bound);
		for (size_t i = 0; i < p->n_buffers; i++) {
			const struct plan_buffer *b = &p->buffers[i];
			if (b->lane == lane)
				buf_printf(out, "    %c %%%s: %lld at %lld, groups %zu to %zu\n", letter(i),
				           b->name, (long long)b->size, (long long)b->offset, b->first,
				           b->last);
		}
		for (size_t t = 0; t < p->n_times; t++)
			map_line(out, p, lane, t);
	}
}

/* ---- everything ---- */

static void print_plan(struct buf *out, const struct plan_func *p)
{
	int64_t peak = 0, bound = 0;
	for (size_t i = 0; i < p->n_lanes; i++) {
		peak += p->lanes[i].peak;
		bound += p->lanes[i].lower_bound;
	}
	buf_printf(out, "arena of %s: ", p->name);
	print_dim(out, p, p->arena);
	buf_str(out, " bytes, lower bound ");
	print_dim(out, p, p->lower_bound);
	buf_printf(out, ", gap %lld, %zu buffers, %zu groups\n", (long long)(peak - bound), p->n_buffers,
	           p->n_times);
	plan_print_map(out, p);
}

void pass_report_print(struct buf *out, const struct pass_report *r)
{
	for (size_t i = 0; i < r->counters.n; i++) {
		const struct pass_counter *c = &r->counters.items[i];
		buf_printf(out, "%s: %s %lld\n", c->pass, c->name, (long long)c->value);
	}
	pass_report_print_weights(out, r);
	for (size_t i = 0; i < r->plans.n; i++)
		print_plan(out, &r->plans.items[i]);
}
