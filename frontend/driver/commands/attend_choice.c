/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The selection of attentions and heads: --attentions, --layers and --heads, and as many as fit on the page.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/driver/commands/attend.h"

#define PAGE_WEIGHTS_MAX (INT64_C(16) << 20)

/* ---- options ---- */

#define BIT(stack) (1u << (stack))

static unsigned parse_stack(const char *word, size_t n)
{
	static const struct {
		const char *word;
		unsigned stacks;
	} words[] = {
	        {"encoder", BIT(ATTEND_ENCODER)},
	        {"decoder", BIT(ATTEND_DECODER)},
	        {"cross", BIT(ATTEND_CROSS)},
	        {"self", BIT(ATTEND_ENCODER) | BIT(ATTEND_DECODER) | BIT(ATTEND_OTHER)},
	};
	for (size_t i = 0; i < TFMC_COUNT(words); i++)
		if (strlen(words[i].word) == n && !memcmp(words[i].word, word, n))
			return words[i].stacks;
	return 0;
}

static bool parse_stacks(const char *text, unsigned *out)
{
	for (;;) {
		size_t n = strcspn(text, ",");
		unsigned stacks = parse_stack(text, n);
		*out |= stacks;
		text += n;
		if (!stacks || !*text++)
			return stacks != 0;
	}
}

static int compare_ints(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return x < y ? -1 : x > y;
}

/* A list of ids, sorted, without repetitions. False: it is not one. */
static bool parse_numbers(struct driver *d, const char *text, const int32_t **out, size_t *n_out)
{
	int32_t *items;
	size_t n, kept = 0;
	if (!parse_id_list(d, text, &items, &n) || !n)
		return false;
	qsort(items, n, sizeof(*items), compare_ints);
	for (size_t i = 0; i < n; i++)
		if (!kept || items[kept - 1] != items[i])
			items[kept++] = items[i];
	*out = items;
	*n_out = kept;
	return true;
}

enum exit_code attend_parse_selection(struct driver *d, struct attend_selection *out)
{
	const struct driver_options *o = &d->options;
	if (o->attentions && !parse_stacks(o->attentions, &out->stacks))
		return driver_usage_error(
		        d, "--attentions is a list of encoder, decoder, cross and self, not %s",
		        o->attentions);
	if (o->layers && !parse_numbers(d, o->layers, &out->layers, &out->n_layers))
		return driver_usage_error(d, "--layers is a list of numbers such as 0,1,2, not %s",
		                          o->layers);
	if (o->heads && !parse_numbers(d, o->heads, &out->heads, &out->n_heads))
		return driver_usage_error(d, "--heads is a list of numbers such as 0,1,2, not %s", o->heads);
	return EXIT_OK;
}

int64_t attend_head(const struct attend *a, int64_t h)
{
	return a->choice.n_heads ? a->choice.heads[h] : h;
}

/* ---- selection ---- */

/* The first number of a path: 3 of encoder.layers.3.self; -1: it has none. */
static int64_t layer_index(const char *path)
{
	while (*path) {
		size_t n = strcspn(path, ".");
		if (n && n < 10 && strspn(path, "0123456789") == n)
			return strtoll(path, NULL, 10);
		path += n + (path[n] != 0);
	}
	return -1;
}

static bool is_selected(const struct attend_selection *c, const struct attend_map *m)
{
	int64_t layer = c->n_layers ? layer_index(m->path) : 0;
	bool found = !c->n_layers;
	for (size_t i = 0; i < c->n_layers; i++)
		found |= c->layers[i] == layer;
	return found && (!c->stacks || (c->stacks & BIT(m->stack)));
}

/* How many of the selected heads an attention with `all` heads has: the first ones, since they are sorted. */
static int64_t count_heads(const struct attend_selection *c, int64_t all)
{
	int64_t n = 0;
	while (n < (int64_t)c->n_heads && c->heads[n] < all)
		n++;
	return c->n_heads ? n : all;
}

/* ---- the limit of a page ---- */

/* As many heads of each attention as fit; cross-attention first, then decoder and encoder. */
static void limit_heads_to_page(struct attend *a)
{
	static const enum attend_stack order[] = {ATTEND_CROSS, ATTEND_DECODER, ATTEND_ENCODER, ATTEND_OTHER};
	double room = (double)PAGE_WEIGHTS_MAX;
	for (size_t s = 0; s < TFMC_COUNT(order); s++)
		for (size_t i = 0; i < a->maps.n; i++) {
			struct attend_map *m = &a->maps.items[i];
			double plane = (double)m->rows * (double)m->columns;
			if (m->stack != order[s])
				continue;
			if ((double)m->heads * plane > room)
				m->heads = (int64_t)(room / plane);
			room -= (double)m->heads * plane;
		}
}

/* In f64: sizes come from the command line, so their product may exceed 64 bits. */
static double count_weights(const struct attend *a)
{
	double total = 0;
	for (size_t i = 0; i < a->maps.n; i++) {
		const struct attend_map *m = &a->maps.items[i];
		total += (double)m->heads * (double)m->rows * (double)m->columns;
	}
	return total;
}

static enum tfmc_status limit_to_page(struct attend *a)
{
	double total = count_weights(a);
	size_t n_chosen = 0, n_shown = 0, n_cut = 0;
	if (total <= (double)PAGE_WEIGHTS_MAX)
		return TFMC_OK;
	for (size_t i = 0; i < a->maps.n; i++)
		n_chosen += a->maps.items[i].heads > 0;
	limit_heads_to_page(a);
	for (size_t i = 0; i < a->maps.n; i++) {
		const struct attend_map *m = &a->maps.items[i];
		n_shown += m->heads > 0;
		n_cut += m->heads > 0 && m->heads < count_heads(&a->choice, m->all_heads);
	}
	if (!n_shown) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_LIMIT,
		           "a page holds at most %lld weights, one head alone has more; --npy=DIR without "
		           "--html has no such limit",
		           (long long)PAGE_WEIGHTS_MAX);
		return TFMC_INVALID;
	}
	a->left_out =
	        arena_printf(&a->d->arena,
	                     "a page holds at most %lld weights, these are %.0f: %zu of %zu attentions "
	                     "are shown, %zu of them with fewer heads; --attentions, --layers and --heads "
	                     "choose others",
	                     (long long)PAGE_WEIGHTS_MAX, total, n_shown, n_chosen, n_cut);
	if (!a->left_out)
		return TFMC_NO_MEMORY;
	diag_warning(&a->d->diag, LOC_NONE, DIAG_LIMIT, "%s", a->left_out);
	return TFMC_OK;
}

enum tfmc_status attend_select(struct attend *a, bool *selected)
{
	size_t n_chosen = 0, n = 0;
	for (size_t i = 0; i < a->maps.n; i++) {
		struct attend_map *m = &a->maps.items[i];
		m->heads = is_selected(&a->choice, m) ? count_heads(&a->choice, m->all_heads) : 0;
		n_chosen += m->heads > 0;
	}
	if (!n_chosen) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_OPTION,
		           "--attentions, --layers and --heads choose none of the %zu attentions, such as %s "
		           "with "
		           "%lld "
		           "heads",
		           a->maps.n, a->maps.items[0].path, (long long)a->maps.items[0].all_heads);
		return TFMC_INVALID;
	}
	if (a->d->options.html)
		TFMC_TRY(limit_to_page(a));
	for (size_t i = 0; i < a->maps.n; i++) {
		selected[i] = a->maps.items[i].heads > 0;
		if (selected[i])
			a->maps.items[n++] = a->maps.items[i];
	}
	a->maps.n = n;
	return TFMC_OK;
}
