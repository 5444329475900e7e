/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pass made of the weights, found by comparing the module before and
 * after it: so no pass has to tell, and none can forget to. A weight counts as
 * formed when its provenance is new; the weights it replaces are those that
 * are gone and whose stored tensors it holds.
 */
#include <math.h>
#include <string.h>

#include "ir/support/checked.h"
#include "ir/support/strmap.h"
#include "passes/framework/manager.h"

/* --- stored tensors ------------------------------------------------------------------------------------- */

/* Adds "file:tensor" of every stored tensor; false when memory ran out. */
static bool collect_tensors(struct arena *a, const struct ir_wexpr *e, struct strmap *out)
{
	if (e->kind == WX_TENSOR)
		return strmap_set(out, arena_printf(a, "%s:%s", e->file, e->tensor), out);
	for (size_t i = 0; i < e->n_args; i++)
		if (!collect_tensors(a, e->args[i], out))
			return false;
	return true;
}

/* Every stored tensor of e is in the set, and there is one. */
static bool holds_all(struct arena *a, const struct ir_wexpr *e, const struct strmap *set)
{
	struct strmap own;
	strmap_init(&own, a);
	if (!collect_tensors(a, e, &own) || own.n == 0)
		return false;
	for (size_t i = 0; i < own.n; i++)
		if (!strmap_has(set, own.items[i].key))
			return false;
	return true;
}

static int64_t bytes_of(const struct ir_weight *w)
{
	int64_t bytes;
	return checked_mul_i64(wexpr_count(w->init), ir_dtype_bytes(ir_weight_dtype(w)), &bytes) ? bytes : 0;
}

/* --- how much elements change --------------------------------------------------------------------------- */

/* The factor that is farthest from 1 among full(f), concat(.., full(f), ..); false for anything else. */
static bool farthest_factor(const struct ir_wexpr *e, double *change)
{
	if (e->kind == WX_FULL) {
		*change = fmax(*change, fabs(e->value - 1));
		return true;
	}
	for (size_t i = 0; i < e->n_args; i++)
		if (e->kind != WX_CONCAT || !farthest_factor(e->args[i], change))
			return false;
	return e->kind == WX_CONCAT;
}

/* Largest relative change of an element from `old` to `now`, when the expressions tell; -1 when not. */
static double largest_change(const struct ir_wexpr *now, const struct ir_wexpr *old)
{
	double change = 0;
	while (old != NULL && !wexpr_equal(now, old)) {
		switch (now->kind) {
		case WX_SCALE: change = fmax(change, fabs(now->value - 1)); break;
		case WX_MUL:
			if (!farthest_factor(now->args[1], &change))
				return -1;
			break;
		case WX_ROPE_H2I:
		case WX_ROPE_I2H:
		case WX_TRANSPOSE: break;
		case WX_TENSOR:
		case WX_FULL:
		case WX_SINUSOID:
		case WX_ROTARY:
		case WX_STACK:
		case WX_CONCAT:
		case WX_INDEX:
		case WX_SLICE:
		case WX_RESHAPE:
		case WX_DIV:
		case WX_ADD:
		case WX_OFFSET:
		case WX_MUL_COLUMNS:
		case WX_MATVEC:
		case WX_CENTER:
		case WX_ROUND:
		case WX_REPEAT: return -1;
		}
		now = now->args[0];
	}
	return old != NULL ? change : -1;
}

/* --- comparison ----------------------------------------------------------------------------------------- */

static bool same_content_before(const struct ir_module *before, const struct ir_weight *w)
{
	const struct ir_weight *old = ir_find_weight(before, w->name);
	if (old != NULL)
		return old->init != NULL && wexpr_equal(old->init, w->init);
	for (size_t i = 0; i < before->weights.n; i++)
		if (before->weights.items[i]->init != NULL &&
		    wexpr_equal(before->weights.items[i]->init, w->init))
			return true;
	return false;
}

static void record(const struct manager *g, struct arena *a, const char *pass, const struct ir_module *before,
                   const struct ir_module *after, const struct ir_weight *w)
{
	struct strmap tensors;
	struct buf text;
	const struct ir_weight *old = ir_find_weight(before, w->name);
	struct pass_formed *f = ARENA_PUSH(&g->report->arena, &g->report->formed);
	strmap_init(&tensors, a);
	if (f == NULL || !collect_tensors(a, w->init, &tensors))
		return;
	*f = (struct pass_formed){.pass = pass,
	                          .weight = arena_strdup(&g->report->arena, w->name),
	                          .constants = tensors.n,
	                          .bytes = bytes_of(w),
	                          .is_new = old == NULL,
	                          .change = largest_change(w->init, old != NULL ? old->init : NULL)};
	for (size_t i = 0; i < before->weights.n; i++) {
		const struct ir_weight *x = before->weights.items[i];
		bool gone = x == old || ir_find_weight(after, x->name) == NULL;
		if (gone && x->init != NULL && (x == old || holds_all(a, x->init, &tensors)))
			f->bytes -= bytes_of(x);
	}
	buf_init(&text);
	wexpr_print(&text, w->init);
	f->text = arena_strdup(&g->report->arena, text.data);
	buf_destroy(&text);
}

void manager_record_weights(const struct manager *g, const char *pass, const struct ir_module *before,
                            const struct ir_module *after)
{
	struct arena arena;
	if (!g->options->provenance)
		return;
	arena_init(&arena);
	for (size_t i = 0; i < after->weights.n; i++) {
		const struct ir_weight *w = after->weights.items[i];
		if (w->init != NULL && !same_content_before(before, w))
			record(g, &arena, pass, before, after, w);
	}
	arena_destroy(&arena);
}

void pass_report_print_weights(struct buf *out, const struct pass_report *r)
{
	for (size_t i = 0; i < r->formed.n; i++) {
		const struct pass_formed *f = &r->formed.items[i];
		buf_printf(out, "formed @%s by %s: %zu stored tensor%s, %+lld bytes, ", f->weight, f->pass,
		           f->constants, f->constants == 1 ? "" : "s", (long long)f->bytes);
		if (f->is_new)
			buf_str(out, "a new weight");
		else if (f->change < 0)
			buf_str(out, "new values");
		else if (f->change == 0)
			buf_str(out, "only moved");
		else
			buf_printf(out, "changed by up to %.3g of itself", f->change);
		buf_printf(out, ": %s\n", f->text != NULL ? f->text : "");
	}
}
