/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the manager shows of the modules between passes: texts, differences,
 * dumps and reproducers. All of it goes to the sink.
 */
#include "passes/framework/manager.h"

#include <string.h>

#include "ir/algorithms/diff.h"
#include "ir/print/text.h"
#include "passes/framework/reproducer.h"

bool pass_words_have(const struct pass_words *w, const char *word)
{
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->items[i], word) == 0)
			return true;
	return false;
}

static void show(const struct manager *g, const char *when, const char *pass, const struct buf *text)
{
	struct buf title;
	buf_init(&title);
	buf_printf(&title, "%s %s", when, pass);
	g->options->sink.print(g->options->sink.user, title.data, text);
	buf_destroy(&title);
}

/* With its locations, unless the options say otherwise. */
static void print_module(const struct manager *g, struct buf *out, const struct ir_module *m)
{
	ir_print(out, g->options->no_locations ? NULL : g->cx, m);
}

static void show_module(const struct manager *g, const char *when, const char *pass,
                        const struct ir_module *m)
{
	struct buf text;
	buf_init(&text);
	print_module(g, &text, m);
	show(g, when, pass, &text);
	buf_destroy(&text);
}

/* Without locations: they would make every moved line a changed one. */
static void show_diff(const struct manager *g, const char *pass, const struct ir_module *before,
                      const struct ir_module *after)
{
	struct buf a, b, text;
	buf_init(&a);
	buf_init(&b);
	buf_init(&text);
	ir_print(&a, NULL, before);
	ir_print(&b, NULL, after);
	const struct diff_text old = {"before", a.data, a.len}, now = {pass, b.data, b.len};
	if (diff_unified(&text, &old, &now))
		show(g, "diff of", pass, &text);
	buf_destroy(&a);
	buf_destroy(&b);
	buf_destroy(&text);
}

void manager_show_before(const struct manager *g, const char *pass, const struct ir_module *m)
{
	const struct pass_words *w = &g->options->print_before;
	if (g->options->sink.print != NULL && (pass_words_have(w, "all") || pass_words_have(w, pass)))
		show_module(g, "before", pass, m);
}

void manager_show_after(const struct manager *g, const char *pass, const struct ir_module *before,
                        const struct ir_module *after)
{
	const struct pass_words *print = &g->options->print_after, *diff = &g->options->diff;
	bool is_wanted = pass_words_have(print, "all") || pass_words_have(print, pass);
	bool is_diff = pass_words_have(diff, "all") || pass_words_have(diff, pass);
	bool is_changed = pass_words_have(print, "changed") || is_diff;

	if (g->options->sink.print == NULL)
		return;
	is_changed = is_changed && ir_structure_hash(before) != ir_structure_hash(after);
	if (is_wanted || (is_changed && pass_words_have(print, "changed")))
		show_module(g, "after", pass, after);
	if (is_changed && is_diff)
		show_diff(g, pass, before, after);
}

void manager_dump(struct manager *g, const char *pass, const struct ir_module *m)
{
	struct buf text, name;
	size_t number = g->number++;
	if (g->options->sink.dump == NULL)
		return;
	buf_init(&text);
	buf_init(&name);
	const char *variant = g->options->variant;
	buf_printf(&name, "%02zu-%s%s%s.tir", number, pass, variant != NULL ? "." : "",
	           variant != NULL ? variant : "");
	print_module(g, &text, m);
	g->options->sink.dump(g->options->sink.user, name.data, &text);
	buf_destroy(&name);
	buf_destroy(&text);
}

void manager_reproduce(const struct manager *g, size_t step, const struct ir_module *m)
{
	const struct pipeline rest = {g->pipeline->items + step, g->pipeline->n - step, 0};
	struct buf text;
	if (g->options->sink.reproducer == NULL)
		return;
	buf_init(&text);
	reproducer_print(&text, &rest, g->options);
	ir_print(&text, g->cx, m);
	g->options->sink.reproducer(g->options->sink.user, &text);
	buf_destroy(&text);
}
