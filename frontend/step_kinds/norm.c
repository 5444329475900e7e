/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over the last axis: the step `norm`, and what `qk_norm` of attention
 * shares with it.
 */
#include <string.h>

#include "frontend/steps/blocks.h"

/* The weight of kind scale is one number: x / sqrt(mean(x^2) + eps) * w */
static bool emit_scale(const struct step *st, const struct norm *n, const char *to, const char *x,
                       const char *path)
{
	const char *eps = float_text(st->b, n->eps);
	const char *w = !n->weight ? ""
	                           : arena_printf(st->b->arena,
	                                          n->plus_one ? " * (1.0 + param(\"%s.weight\", []))"
	                                                      : " * param(\"%s.weight\", [])",
	                                          path);
	return emit(st, "%s = %s * rsqrt(mean(%s * %s, axis=-1, keep=true) + %s)%s", to, x, x, x, eps, w);
}

bool emit_norm(const struct step *st, const struct norm *n, const char *to, const char *from,
               const char *path, int64_t width)
{
	struct arena *a = st->b->arena;
	const char *eps = float_text(st->b, n->eps), *plus_one = n->plus_one ? ", plus_one=true" : "";
	const char *where = n->weight ? arena_printf(a, "\"%s\"", path) : "none";
	bool layer = strcmp(n->kind, "layer") == 0;
	if (layer) {
		const char *bias = n->weight ? arena_printf(a, ", bias=%s", bool_text(n->bias)) : "";
		return emit(st, "%s = layer_norm(%s, %s, eps=%s%s%s)", to, from, where, eps, bias, plus_one);
	}
	bool ok = strcmp(n->kind, "scale") == 0
	                  ? emit_scale(st, n, to, from, path)
	                  : emit(st, "%s = rms_norm(%s, %s, eps=%s%s)", to, from, where, eps, plus_one);
	return ok &&
	       (!n->bias || emit(st, "%s = %s + param(\"%s.bias\", [%lld])", to, to, path, (long long)width));
}

bool step_norm(struct step *st)
{
	struct norm n = {.weight = true};
	int64_t width;
	if (!arg_bool(st, "plus_one", &n.plus_one) || !arg_word(st, "kind", &n.kind) ||
	    !arg_float(st, "eps", &n.eps) || !arg_bool(st, "affine", &n.weight) || !want_float_input(st) ||
	    (width = width_of(st, &st->in)) < 0)
		return false;
	if (!(n.eps >= 0.0))
		return step_error(st, "eps", DIAG_VALUE_TYPE, "eps must not be negative");
	n.bias = n.weight && strcmp(n.kind, "layer") == 0;
	if (!arg_bool(st, "bias", &n.bias))
		return false;
	if (!n.weight && (n.bias || n.plus_one))
		return step_error(st, n.bias ? "bias" : "plus_one", DIAG_REFUSED,
		                  "a norm with affine: false has no %s", n.bias ? "bias" : "weight");
	if (!emit_norm(st, &n, "x", st->in.name, st->params, width))
		return false;
	set_width(st, width);
	return true;
}
