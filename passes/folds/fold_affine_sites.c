/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sites of fold-affine. A site is a norm and the linears that read it through
 * views. Refusing a site leaves a use of its matrices unfolded, which may make
 * another one too large: so there are rounds until nothing is refused.
 */
#include "passes/folds/fold_affine.h"

#include <stdarg.h>
#include <stdio.h>

#include "ir/support/checked.h"

#define VIEWS_MAX 16 /* length of a chain of views */

struct finder {
	struct pass_context *p;
	struct affine_sites *sites;
	struct func_uses *uses;
	struct affine_site *site;
};

static bool refuse(struct pass_context *p, struct affine_site *s, const char *fmt, ...) TFMC_PRINTF(3, 4);

static bool refuse(struct pass_context *p, struct affine_site *s, const char *fmt, ...)
{
	char why[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	s->refused = true;
	pass_missed(p, s->norm->loc, "not folded: gamma and beta of the %s: %s",
	            ir_op_desc(s->norm->code)->name, why);
	return false;
}

/* --- readers of a norm ---------------------------------------------------------------------------------- */

static bool keeps_last_axis(const struct finder *d, const struct ir_op *op)
{
	bool moves = ir_op_has(op->code, TRAIT_VIEW) || op->code == OP_take_rows || op->code == OP_mask_rows;
	if (!moves)
		return false;
	const struct ir_type *x = ir_type_of(d->uses->f, op->operands[0]);
	const struct ir_type *y = ir_type_of(d->uses->f, op->results[0]);
	if (x->rank < 1 || y->rank < 1 || x->dims[x->rank - 1] != y->dims[y->rank - 1])
		return false;
	if (op->code == OP_transpose)
		return ((const struct attrs_transpose *)op->attrs)->perm.items[x->rank - 1] == x->rank - 1;
	if (op->code == OP_slice)
		return ((const struct attrs_slice *)op->attrs)->axis != x->rank - 1;
	if (op->code == OP_take_rows)
		return x->rank >= 3;
	if (op->code == OP_mask_rows)
		return x->rank >= 3 && d->site->beta == NULL;
	return true;
}

/* gamma or beta `v` (its weight op) at the index of the matrix `w`, or the same for all of them. */
static bool fits_index(const struct finder *d, const struct ir_op *w, size_t operand)
{
	const struct ir_op *v = d->site->norm->n_operands > operand
	                                ? uses_weight_op(d->uses->f, d->site->norm->operands[operand])
	                                : NULL;
	return v == NULL || v->n_operands == 0 || uses_same_indices(d->uses->f, w, v);
}

static bool add_linear(struct finder *d, const struct ir_op *op)
{
	const struct ir_func *f = d->uses->f;
	struct affine_site *s = d->site;
	const struct ir_op *w = uses_weight_op(f, op->operands[1]), *c = uses_weight_op(f, op->operands[2]);
	if (w == NULL || !uses_foldable(uses_weight(f, op->operands[1])))
		return refuse(d->p, s, "a linear reads it whose matrix is no f32 weight");
	if (s->gamma != NULL && !uses_changeable(uses_weight(f, op->operands[1])))
		return refuse(d->p, s, "@%s is kept as %s", uses_weight(f, op->operands[1])->name,
		              ir_dtype_name(uses_weight(f, op->operands[1])->narrow));
	if (s->beta != NULL && op->operands[2].id != 0 &&
	    (c == NULL || !uses_foldable(uses_weight(f, op->operands[2])) || !uses_same_indices(f, w, c)))
		return refuse(d->p, s, "a linear reads it whose bias is no f32 weight of that layer");
	if (!fits_index(d, w, 1) || !fits_index(d, w, 2))
		return refuse(d->p, s, "@%s belongs to another layer", uses_weight(f, op->operands[1])->name);
	if (s->n_linears >= AFFINE_LINEARS_MAX)
		return refuse(d->p, s, "more than %d linears read it", AFFINE_LINEARS_MAX);
	s->linears[s->n_linears++] = op;
	return true;
}

static const char *reader_words(const struct ir_op *op)
{
	if (op->code == OP_repeat || op->code == OP_yield)
		return "the values that the layers carry";
	return op->code == OP_return ? "the results of the function" : ir_op_desc(op->code)->name;
}

static bool follow(struct finder *d, struct ir_value v, int depth)
{
	size_t n;
	const struct value_use *u = uses_of(d->uses, v, &n);
	for (size_t i = 0; i < n; i++) {
		const struct ir_op *op = u[i].op;
		bool ok = false;
		if (op->code == OP_linear && u[i].operand == 0)
			ok = add_linear(d, op);
		else if (u[i].operand == 0 && depth < VIEWS_MAX && keeps_last_axis(d, op))
			ok = follow(d, op->results[0], depth + 1);
		else
			refuse(d->p, d->site, "its result also goes into %s", reader_words(op));
		if (!ok)
			return false;
	}
	return true;
}

/* The weight of operand i of a norm; false when it has one that cannot be folded. */
static bool norm_weight(struct finder *d, size_t i, const struct ir_weight **out)
{
	const struct ir_op *op = d->site->norm;
	*out = NULL;
	if (i >= op->n_operands || op->operands[i].id == 0)
		return true;
	*out = uses_weight(d->uses->f, op->operands[i]);
	return *out != NULL && uses_foldable(*out);
}

static void mark_site(struct finder *d)
{
	struct affine_site **slot = ARENA_PUSH(d->p->arena, d->sites);
	if (slot == NULL)
		return;
	*slot = d->site;
	d->uses->marks[d->site->norm->results[0].id] = d->site;
	for (size_t i = 0; i < d->site->n_linears; i++)
		d->uses->marks[d->site->linears[i]->results[0].id] = d->site;
}

static void find_site(void *user, const struct ir_op *op)
{
	struct finder *d = user;
	bool norm = op->code == OP_layer_norm || op->code == OP_rms_norm;
	if (!norm || (op->operands[1].id == 0 && (op->n_operands < 3 || op->operands[2].id == 0)))
		return;
	d->site = ARENA_NEW(d->p->arena, struct affine_site);
	if (d->site == NULL)
		return;
	*d->site = (struct affine_site){.f = d->uses->f, .norm = op};
	bool constant = norm_weight(d, 1, &d->site->gamma) && norm_weight(d, 2, &d->site->beta);
	if (!constant)
		refuse(d->p, d->site, "they are no f32 weights");
	else
		follow(d, op->results[0], 0);
	mark_site(d);
}

/* --- growth --------------------------------------------------------------------------------------------- */

static bool same_fold(const struct affine_site *a, const struct affine_site *b)
{
	return a->gamma == b->gamma && a->beta == b->beta;
}

static const struct ir_weight *matrix_of(const struct affine_site *s, size_t i)
{
	return uses_weight(s->f, s->linears[i]->operands[1]);
}

/* How w is read by linears of the sites that remain. */
struct folded {
	size_t uses,
	        kinds; /* uses as `operand`; different folds, at most AFFINE_LINEARS_MAX are told apart */
};

static struct folded count_folded(const struct affine_sites *sites, const struct ir_weight *w, size_t operand)
{
	const struct affine_site *kinds[AFFINE_LINEARS_MAX];
	struct folded n = {0};
	for (size_t i = 0; i < sites->n; i++) {
		const struct affine_site *s = sites->items[i];
		for (size_t k = 0; !s->refused && k < s->n_linears; k++) {
			if (uses_weight(s->f, s->linears[k]->operands[operand]) != w)
				continue;
			size_t j = 0;
			while (j < n.kinds && !same_fold(kinds[j], s))
				j++;
			if (j == n.kinds && j < AFFINE_LINEARS_MAX)
				kinds[n.kinds++] = s;
			n.uses++;
		}
	}
	return n;
}

bool affine_folds_all(const struct affine_sites *s, const struct ir_weight *w)
{
	const struct weight_uses *u = module_uses_weight(s->uses, w);
	struct folded as_matrix = count_folded(s, w, 1), as_bias = count_folded(s, w, 2);
	if (as_bias.uses > 0)
		return as_matrix.uses == 0 && u->linear == 0 && as_bias.uses == u->other &&
		       as_bias.kinds == 1;
	return as_matrix.uses == u->linear && u->other == 0 && as_matrix.kinds == 1;
}

/* Entries of w that encode will make, with the folds and without. */
static int64_t new_entries(const struct affine_sites *sites, const struct ir_weight *w)
{
	const struct weight_uses *u = module_uses_weight(sites->uses, w);
	struct folded n = count_folded(sites, w, 1);
	return (int64_t)n.kinds + weight_entries(u, u->linear - n.uses) - weight_entries(u, u->linear);
}

/* Bytes that the site adds: matrices stored once more, biases where there were none. */
static int64_t growth_of(const struct affine_sites *sites, const struct affine_site *s,
                         const struct ir_weight **largest)
{
	int64_t sum = 0, most = 0;
	for (size_t i = 0; i < s->n_linears; i++) {
		const struct ir_weight *w = matrix_of(s, i);
		int64_t bytes = 0, columns = 1, matrix = weight_bytes_of(w);
		if (s->gamma != NULL && !checked_mul_i64(matrix, new_entries(sites, w), &bytes))
			bytes = INT64_MAX;
		ir_dim_is_const(w->type->dims[w->type->rank - 1], &columns);
		if (s->beta != NULL && s->linears[i]->operands[2].id == 0 && columns > 0 &&
		    !checked_add_i64(bytes, matrix / columns, &bytes))
			bytes = INT64_MAX;
		*largest = bytes > most || i == 0 ? w : *largest;
		most = bytes > most ? bytes : most;
		sum = checked_add_i64(sum, bytes, &sum) ? sum : INT64_MAX;
	}
	return sum;
}

/* A norm of the same gamma or beta that was refused. */
static const struct affine_site *refused_partner(const struct affine_sites *sites,
                                                 const struct affine_site *s)
{
	for (size_t i = 0; i < sites->n; i++) {
		const struct affine_site *t = sites->items[i];
		if (t->refused &&
		    ((s->gamma != NULL && t->gamma == s->gamma) || (s->beta != NULL && t->beta == s->beta)))
			return t;
	}
	return NULL;
}

/* A table that the site would store a second time, or NULL. */
static const struct ir_weight *copied_table(const struct affine_sites *sites, const struct affine_site *s)
{
	for (size_t i = 0; s->gamma != NULL && i < s->n_linears; i++) {
		const struct ir_weight *w = matrix_of(s, i);
		if (module_uses_weight(sites->uses, w)->gathers > 0 && new_entries(sites, w) > 0)
			return w;
	}
	return NULL;
}

static bool keep(struct finder *d, struct affine_site *s, int64_t growth)
{
	const struct affine_site *partner = refused_partner(d->sites, s);
	const struct ir_weight *largest = NULL;
	if (partner != NULL)
		return refuse(d->p, s, "@%s is also read in @%s, where it cannot be folded",
		              (s->gamma != NULL ? s->gamma : s->beta)->name, partner->f->name);
	const struct ir_weight *table = copied_table(d->sites, s);
	if (table != NULL)
		return refuse(d->p, s, "rows of @%s are read too: the table would be stored twice",
		              table->name);
	int64_t bytes = growth_of(d->sites, s, &largest);
	if (bytes > growth)
		return refuse(d->p, s, "the weights would grow by %lld bytes, most of them for @%s",
		              (long long)bytes, largest->name);
	return true;
}

/* Refuses until what remains fits. */
static void settle(struct finder *d, int64_t growth)
{
	bool again = true;
	while (again) {
		again = false;
		for (size_t i = 0; i < d->sites->n; i++)
			if (!d->sites->items[i]->refused)
				again = !keep(d, d->sites->items[i], growth) || again;
	}
}

/* Norms with one gamma are one application. False when there was no fuel for some. */
static bool number_sites(struct pass_context *p, struct affine_sites *sites)
{
	bool all = true;
	for (size_t i = 0; i < sites->n; i++) {
		struct affine_site *s = sites->items[i];
		for (size_t k = 0; k < i && s->number == 0; k++)
			if (!sites->items[k]->refused && same_fold(sites->items[k], s))
				s->number = sites->items[k]->number;
		if (!s->refused && s->number == 0)
			s->number = pass_take_fuel(p);
		all = all && (s->refused || s->number > 0);
		s->refused |= s->number == 0;
	}
	return all;
}

struct affine_sites *affine_sites_collect(struct pass_context *p, const struct ir_module *m, int64_t growth)
{
	struct affine_sites *sites = ARENA_NEW(p->arena, struct affine_sites);
	struct finder d = {.p = p, .sites = sites};

	if (sites == NULL)
		return NULL;
	sites->uses = module_uses_collect(p->arena, m);
	for (size_t i = 0; sites->uses != NULL && i < m->funcs.n; i++) {
		d.uses = &sites->uses->funcs[i];
		ir_walk(m->funcs.items[i]->body, find_site, &d);
	}
	if (sites->uses == NULL || arena_failed(p->arena))
		return NULL;
	settle(&d, growth);
	if (!number_sites(p, sites))
		settle(&d, growth);
	return sites;
}
