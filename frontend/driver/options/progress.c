/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress as a bar or as lines.
 * A stage is known by its name; a bar replaces the one before it on its line.
 */
#include "frontend/driver/options/progress.h"

#include <string.h>

#include "ir/support/number.h"

#define WAIT  1.0  /* seconds from the start of a stage to its bar */
#define EACH  0.1  /* seconds between two updates of the bar */
#define LINES 10.0 /* seconds between two lines */
#define WIDTH 20   /* characters of the bar */
#define CLEAR "\r\x1b[K"

enum progress_form progress_form_of(enum when_word when, bool is_terminal)
{
	switch (when) {
	case WHEN_AUTO: return is_terminal ? PROGRESS_BAR : PROGRESS_NEVER;
	case WHEN_ALWAYS: return is_terminal ? PROGRESS_BAR : PROGRESS_LINES;
	case WHEN_NEVER: return PROGRESS_NEVER;
	}
	return PROGRESS_NEVER;
}

/* Prints a count, or without unit a number of bytes. */
static void print_amount(struct buf *out, uint64_t n, const char *unit)
{
	char text[NUMBER_TEXT_MAX];
	number_print_bytes(text, n);
	if (unit)
		buf_printf(out, "%llu", (unsigned long long)n);
	else
		buf_str(out, text);
}

/* Prints amount, rate and remaining time: "1.2 GB of 4.0 GB, 350 MB/s, 8 s left". */
static void print_amounts(struct buf *out, const struct progress_view *v, const struct progress_state *s,
                          double seconds)
{
	uint64_t fresh = s->done > v->first ? s->done - v->first : 0;
	double rate = seconds > 0 ? (double)fresh / seconds : 0;
	print_amount(out, s->done, s->unit);
	if (s->total > 0) {
		buf_str(out, " of ");
		print_amount(out, s->total, s->unit);
	}
	if (s->unit)
		buf_printf(out, " %s", s->unit);
	if (!s->unit && rate >= 1) {
		buf_str(out, ", ");
		print_amount(out, (uint64_t)rate, NULL);
		buf_str(out, "/s");
	}
	if (s->total > s->done && rate > 0)
		buf_printf(out, ", %.0f s left", (double)(s->total - s->done) / rate);
	else
		buf_printf(out, ", %.0f s", seconds);
}

/* Prints the whole bar in place of the last one, or a line. */
static void print_progress(struct buf *out, const struct progress_view *v, const struct progress_state *s,
                           double seconds)
{
	double part = s->total > 0 ? (double)s->done / (double)s->total : 0;
	int full = (int)((part < 1 ? part : 1) * WIDTH);
	if (v->form == PROGRESS_BAR)
		buf_str(out, CLEAR);
	buf_printf(out, "%s: ", s->name);
	if (v->form == PROGRESS_BAR && s->total > 0) {
		buf_char(out, '[');
		for (int i = 0; i < WIDTH; i++)
			buf_char(out, i < full ? '#' : '.');
		buf_str(out, "] ");
	}
	if (s->total > 0)
		buf_printf(out, "%d %%, ", (int)(part * 100));
	print_amounts(out, v, s, seconds);
	if (v->form == PROGRESS_LINES)
		buf_char(out, '\n');
}

void progress_hide(struct progress_view *v)
{
	if (v->is_drawn)
		v->write(v->user, CLEAR, strlen(CLEAR));
	v->is_drawn = false;
}

/* A bar is drawn each EACH seconds, from WAIT after the start of its stage on, a line each LINES seconds. The end of
 * a stage erases its bar. */
void progress_show(void *user, const struct progress_state *s)
{
	struct progress_view *v = user;
	struct buf text;
	if (v->form == PROGRESS_NEVER)
		return;
	double now = v->clock(v->user);
	if (!v->stage || strcmp(v->stage, s->name) != 0) {
		progress_hide(v);
		v->stage = s->name;
		v->begin = v->shown = now;
		v->first = s->done;
		/* The first bar is due after WAIT, the first line after LINES. */
		v->shown += v->form == PROGRESS_BAR ? WAIT - EACH : 0;
	}
	if (s->total > 0 && s->done >= s->total) {
		progress_hide(v);
		v->stage = NULL;
		return;
	}
	if (now - v->shown < (v->form == PROGRESS_BAR ? EACH : LINES))
		return;
	v->shown = now;
	buf_init(&text);
	print_progress(&text, v, s, now - v->begin);
	if (!buf_failed(&text))
		v->write(v->user, text.data, text.len);
	v->is_drawn = v->form == PROGRESS_BAR;
	buf_destroy(&text);
}
