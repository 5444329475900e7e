/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many tokens a call may bring: all that the model's inputs say, fewer for
 * the entry score and where caches are rings, which need room for the window
 * beside them. The bound is a dim of its own in that function.
 */
#include "frontend/lower/lower.h"

/* Rows of one call of score: the logits of a whole sequence never exist, and products of 64 rows run at the
 * speed of arithmetic (they do from 15 rows on). */
#define SCORE_ROWS 64

#define CACHE_ROWS 16 /* rings are whole panels of keys */

/* ---- lengths of caches ---- */

int64_t cache_rows(int64_t len, int64_t max_len)
{
	int64_t rows = (len + CACHE_ROWS - 1) / CACHE_ROWS * CACHE_ROWS;
	return len >= max_len ? len : rows < max_len ? rows : max_len;
}

const char *cache_refusal(struct arena *a, const struct cache_use *use, int64_t len, int64_t max_len)
{
	if (len >= max_len)
		return NULL;
	if (use->window == 0 || !use->is_causal)
		return arena_printf(
		        a,
		        "a cache of %lld positions, fewer than max_len (%lld), is for causal attention "
		        "with a window",
		        (long long)len, (long long)max_len);
	if (len >= use->window)
		return NULL;
	return arena_printf(
	        a,
	        "a cache of %lld positions does not hold the window of %lld: calls of n tokens need "
	        "%lld + n positions",
	        (long long)len, (long long)use->window, (long long)use->window - 1);
}

/* ---- rows of a call ---- */

static int64_t least_of_rings(const struct state_types *types)
{
	int64_t least = INT64_MAX;
	for (size_t i = 0; i < types->n; i++)
		if (types->items[i].call_rows > 0 && types->items[i].call_rows < least)
			least = types->items[i].call_rows;
	return least;
}

/* The symbol that the new tokens of a sequence are counted by, or -1. */
static int only_symbol(const struct ir_dim *d)
{
	bool is_symbol = d->n_terms == 1 && d->terms[0].coeff == 1 && d->terms[0].n_atoms == 1;
	return is_symbol ? d->terms[0].atoms[0]->sym : -1;
}

static bool bind(struct lowering *lw, const struct ir_dim *d, const char *name, int64_t most)
{
	struct ir_dims *dims = lw->module->dims;
	const char *free = name;
	for (int i = 2; ir_dims_find(dims, free) >= 0; i++)
		free = arena_printf(lw->arena, "%s%d", name, i);
	int64_t lo = ir_dim_lo(dims, d);
	if (only_symbol(d) < 0 || lo > most || !ir_dims_declare(dims, free, lo, most))
		return false;
	lw->bound = ir_dim_sym(dims, free);
	lw->bound_sym = only_symbol(d);
	return true;
}

bool lower_bind_rows(struct lowering *lw, bool scores)
{
	if (lw->mode != LOWER_DECODE || lw->m->tokens < 0)
		return true;
	const struct ir_dim *d = ir_import_dim(lw->module, lw->m->inputs.items[lw->m->tokens].dims[1]);
	int64_t rings = least_of_rings(lw->types), most = scores && rings > SCORE_ROWS ? SCORE_ROWS : rings;
	bool is_needed = most == rings || only_symbol(d) >= 0;
	if (ir_dim_hi(lw->module->dims, d) <= most || !is_needed ||
	    bind(lw, d, scores ? "rows" : "part", most))
		return true;
	return lower_fail(lw, lw->m->generate.loc, DIAG_GENERATE,
	                  "%s up to %lld tokens at once, the model at least %lld",
	                  most == rings ? "caches shorter than max_len take" : "the entry score takes",
	                  (long long)most, (long long)ir_dim_lo(lw->module->dims, d));
}
