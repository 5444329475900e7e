/* SPDX-License-Identifier: Apache-2.0 */
/* Services for a running pass (pass_impl.h): counters, remarks, fuel, internal errors. */
#include <stdarg.h>
#include <string.h>

#include "ir/support/memory.h"
#include "passes/framework/pass_impl.h"

bool name_list_has(const struct name_list *w, const char *word)
{
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->items[i], word) == 0)
			return true;
	return false;
}

void pass_count(struct pass_context *p, const char *name, int64_t n)
{
	const char *pass = p->step->pass->name;
	for (size_t i = 0; i < p->report->counters.n; i++) {
		struct pass_counter *c = &p->report->counters.items[i];
		if (strcmp(c->pass, pass) == 0 && strcmp(c->name, name) == 0) {
			c->value += n;
			return;
		}
	}
	ARENA_ADD(&p->report->arena, &p->report->counters, (struct pass_counter){pass, name, n});
}

static bool same_remark(const struct recorded_remark *a, const struct recorded_remark *b)
{
	return a->at.source == b->at.source && a->at.line == b->at.line && a->at.col == b->at.col &&
	       a->about.is_missed == b->about.is_missed &&
	       same_string(a->about.function, b->about.function) &&
	       same_string(a->about.path, b->about.path) && same_string(a->about.text, b->about.text);
}

/* Appends a remark, or increments the count of an equal one. */
static void record_remark(struct pass_context *p, struct ir_loc loc, bool is_missed, const char *text)
{
	struct recorded_remark r = {
	        loc.at,
	        {.pass = p->step->pass->name,
	         .function = p->function != NULL ? arena_strdup(p->arena, p->function) : NULL,
	         .path = loc.path != NULL ? arena_strdup(p->arena, loc.path) : NULL,
	         .text = text,
	         .count = 1,
	         .is_missed = is_missed}};
	for (size_t i = 0; i < p->remarks.n; i++) {
		if (same_remark(&p->remarks.items[i], &r)) {
			p->remarks.items[i].about.count++;
			return;
		}
	}
	ARENA_ADD(p->arena, &p->remarks, r);
}

void pass_emit_remarks(const struct pass_context *p)
{
	for (size_t i = 0; i < p->remarks.n; i++)
		diag_remark_about(p->cx, p->remarks.items[i].at, &p->remarks.items[i].about);
}

void pass_remark(struct pass_context *p, struct ir_loc loc, const char *fmt, ...)
{
	if (!p->options->remarks)
		return;
	va_list ap;
	va_start(ap, fmt);
	record_remark(p, loc, false, arena_vprintf(p->arena, fmt, ap));
	va_end(ap);
}

void pass_missed(struct pass_context *p, struct ir_loc loc, const char *fmt, ...)
{
	if (!p->options->remarks)
		return;
	va_list ap;
	va_start(ap, fmt);
	record_remark(p, loc, true, arena_vprintf(p->arena, fmt, ap));
	va_end(ap);
}

int64_t pass_consume_fuel(struct pass_context *p)
{
	if (p->fuel <= 0)
		return 0;
	p->fuel--;
	return ++p->applied;
}

void pass_applied(struct pass_context *p, int64_t number, const char *what, struct ir_loc loc)
{
	const struct pass_sink *s = &p->options->sink;
	if (s->applied != NULL)
		s->applied(s->user, p->step->pass->name, number, what, loc);
}

bool pass_requires(const struct pass_context *p, const char *kind)
{
	return name_list_has(&p->options->require_fusion, kind);
}

enum tfmc_status pass_internal_error(struct pass_context *p, struct ir_loc loc, const char *what)
{
	diag_error(p->cx, loc.at, DIAG_INTERNAL, "%s: %s", p->step->pass->name, what);
	return TFMC_INTERNAL;
}
