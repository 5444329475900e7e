/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules: creation, weights and states by name, import of dims and types of another module, iteration over ops.
 * Invariant: everything a module points to is in its own arena.
 */
#include "ir/core/module.h"

#include <string.h>

#include "ir/support/chars.h"
#include "ir/support/memory.h"

/* The module itself is outside of its arena, so that it can be destroyed after a failure. */
struct ir_module *ir_module_create(const char *name)
{
	struct ir_module *m = memory_zeroed(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	arena_init(&m->arena);
	m->name = arena_strdup(&m->arena, name);
	strmap_init(&m->strings, &m->arena);
	strmap_init(&m->weight_names, &m->arena);
	strmap_init(&m->state_names, &m->arena);
	strmap_init(&m->func_names, &m->arena);
	m->dims = ir_dims_create(&m->arena);
	m->types = ir_types_create(&m->arena, m->dims);
	if (m->dims == NULL || m->types == NULL || arena_failed(&m->arena)) {
		ir_module_destroy(m);
		return NULL;
	}
	return m;
}

void ir_module_destroy(struct ir_module *m)
{
	if (m == NULL)
		return;
	arena_destroy(&m->arena);
	memory_free(m);
}

/* Dims come first, since the types of states need them; declared in the same order, symbols have the same indices. */
struct ir_module *ir_module_create_like(const struct ir_module *m)
{
	struct ir_module *like = ir_module_create(m->name);
	if (like == NULL)
		return NULL;
	like->stage = m->stage;
	like->tir_source = m->tir_source;
	for (size_t i = 0; i < ir_dims_count(m->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->dims, i);
		if (!ir_dims_declare(like->dims, s->name, s->lo, s->hi))
			goto failed;
	}
	for (size_t i = 0; i < m->states.n; i++) {
		const struct ir_state_decl *s = m->states.items[i];
		if (ir_add_state(like, s->name, s->type, s->loc) == NULL ||
		    !ir_set_state_encoding(like, s->name, s->encoding))
			goto failed;
	}
	return like;
failed:
	ir_module_destroy(like);
	return NULL;
}

enum ir_format ir_weight_stored_format(const struct ir_weight *w)
{
	return ir_format_is_quantized(w->format) && w->encoding != ENC_PANEL16 ? FORMAT_PLAIN : w->format;
}

const char *ir_encoding_name(enum ir_encoding e)
{
	switch (e) {
	case ENC_ROW: return "row";
	case ENC_PANEL16: return "panel16";
	}
	return "";
}

const struct ir_weight *ir_find_weight(const struct ir_module *m, const char *name)
{
	return strmap_get(&m->weight_names, name);
}

bool ir_weight_has_value(struct diag_context *cx, const struct ir_weight *w)
{
	if (w->init == NULL)
		diag_error(cx, w->loc.at, DIAG_MISSING_TENSOR,
		           "the weight @%s has no value: write '= EXPRESSION' after its type", w->name);
	return w->init != NULL;
}

const struct ir_state_decl *ir_find_state(const struct ir_module *m, const char *name)
{
	return strmap_get(&m->state_names, name);
}

const struct ir_func *ir_find_func(const struct ir_module *m, const char *name)
{
	return strmap_get(&m->func_names, name);
}

struct ir_loc ir_import_loc(struct ir_module *m, struct ir_loc loc)
{
	if (loc.path != NULL)
		loc.path = strmap_intern(&m->strings, loc.path, strlen(loc.path));
	return loc;
}

/* ---- weights and states ---- */

static const double *copy_frequencies(struct ir_module *m, const struct ir_wexpr *e)
{
	size_t n = (size_t)e->dims[1] / 2;
	double *r = ARENA_ARRAY(&m->arena, double, n + 1);
	if (r != NULL)
		memcpy(r, e->frequencies, n * sizeof(*r));
	return r;
}

/* A deep copy of a weight expression in the arena of m; NULL without memory or for NULL. File names are few, so they
 * are interned. */
static const struct ir_wexpr *copy_wexpr(struct ir_module *m, const struct ir_wexpr *e)
{
	struct ir_wexpr *r = ARENA_NEW(&m->arena, struct ir_wexpr);
	if (e == NULL || r == NULL)
		return NULL;
	*r = *e;
	if (e->file != NULL)
		r->file = strmap_intern(&m->strings, e->file, strlen(e->file));
	if (e->tensor != NULL)
		r->tensor = arena_strdup(&m->arena, e->tensor);
	if (e->frequencies != NULL)
		r->frequencies = copy_frequencies(m, e);
	if (e->n_args == 0)
		return arena_failed(&m->arena) ? NULL : r;
	const struct ir_wexpr **args = ARENA_ARRAY(&m->arena, const struct ir_wexpr *, e->n_args);
	for (size_t i = 0; args != NULL && i < e->n_args; i++) {
		args[i] = copy_wexpr(m, e->args[i]);
		if (args[i] == NULL)
			return NULL;
	}
	r->args = args;
	return args == NULL ? NULL : r;
}

static bool same_init(const struct ir_wexpr *a, const struct ir_wexpr *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return wexpr_equal(a, b);
}

/* Passes that copy functions add the same weight again: it is found by name. The list is extended only when the copy
 * is complete. */
const struct ir_weight *ir_add_weight(struct ir_module *m, const struct ir_weight *w)
{
	const struct ir_type *type = ir_import_type(m, w->type);
	const struct ir_weight *old = ir_find_weight(m, w->name);
	if (old != NULL) {
		bool same = old->type == type && old->encoding == w->encoding && old->format == w->format &&
		            same_init(old->init, w->init);
		return same ? old : NULL;
	}
	struct ir_weight *r = ARENA_NEW(&m->arena, struct ir_weight);
	if (r == NULL || type == NULL)
		return NULL;
	*r = *w;
	r->name = strmap_intern(&m->strings, w->name, strlen(w->name));
	r->type = type;
	r->loc = ir_import_loc(m, w->loc);
	if (w->init != NULL) {
		r->init = copy_wexpr(m, w->init);
		if (r->init == NULL)
			return NULL;
	}
	struct ir_weight **slot = ARENA_PUSH(&m->arena, &m->weights);
	if (slot == NULL || !strmap_set(&m->weight_names, r->name, r))
		return NULL;
	*slot = r;
	return r;
}

/* As ir_add_weight; the encoding is row until it is set. */
const struct ir_state_decl *ir_add_state(struct ir_module *m, const char *name, const struct ir_type *type,
                                         struct ir_loc loc)
{
	type = ir_import_type(m, type);
	const struct ir_state_decl *old = ir_find_state(m, name);
	if (old != NULL)
		return old->type == type ? old : NULL;
	struct ir_state_decl *r = ARENA_NEW(&m->arena, struct ir_state_decl);
	if (r == NULL || type == NULL)
		return NULL;
	*r = (struct ir_state_decl){strmap_intern(&m->strings, name, strlen(name)), type,
	                            ir_import_loc(m, loc), ENC_ROW};
	struct ir_state_decl **slot = ARENA_PUSH(&m->arena, &m->states);
	if (slot == NULL || !strmap_set(&m->state_names, r->name, r))
		return NULL;
	*slot = r;
	return r;
}

bool ir_set_state_type(struct ir_module *m, const char *name, const struct ir_type *type)
{
	struct ir_state_decl *d = strmap_get(&m->state_names, name);
	if (d != NULL)
		d->type = type;
	return d != NULL;
}

bool ir_set_state_encoding(struct ir_module *m, const char *name, enum ir_encoding encoding)
{
	for (size_t i = 0; i < m->states.n; i++) {
		if (strcmp(m->states.items[i]->name, name) != 0)
			continue;
		m->states.items[i]->encoding = encoding;
		return true;
	}
	return false;
}

/* ---- dims and types of another module ---- */

/* The atom of another dim table, rebuilt in t, where symbols have the same indices; NULL if t lacks the symbol.
 * Floors and maxima are built again, since t may have other bounds. */
static const struct ir_dim *import_atom(struct ir_dims *t, const struct ir_dim_atom *a)
{
	if (a->other != NULL)
		return ir_dim_max(t, ir_dim_import(t, a->of), ir_dim_import(t, a->other));
	if (a->sym < 0)
		return ir_dim_floordiv(t, ir_dim_import(t, a->of), a->by);
	if ((size_t)a->sym >= ir_dims_count(t))
		return NULL;
	return ir_dim_sym(t, ir_dims_sym(t, (size_t)a->sym)->name);
}

/* The polynomial is built again, term by term, in the table t. */
const struct ir_dim *ir_dim_import(struct ir_dims *t, const struct ir_dim *d)
{
	const struct ir_dim *r = ir_dim_const(t, 0);
	if (d == NULL)
		return NULL;
	for (size_t i = 0; i < d->n_terms; i++) {
		const struct ir_dim *x = ir_dim_const(t, d->terms[i].coeff);
		for (size_t k = 0; k < d->terms[i].n_atoms; k++) {
			const struct ir_dim *factor = import_atom(t, d->terms[i].atoms[k]);
			if (factor == NULL)
				return NULL;
			x = ir_dim_mul(t, x, factor);
		}
		r = ir_dim_add(t, r, x);
	}
	return r;
}

const struct ir_dim *ir_import_dim(struct ir_module *m, const struct ir_dim *d)
{
	return ir_dim_import(m->dims, d);
}

/* States are found by name; m must declare them. A dim that cannot be imported makes the type NULL. */
const struct ir_type *ir_import_type(struct ir_module *m, const struct ir_type *t)
{
	if (t == NULL)
		return NULL;
	if (t->kind == IR_STATE) {
		const struct ir_state_decl *s = ir_find_state(m, t->state->name);
		return s == NULL ? NULL : ir_type_state(m->types, s);
	}
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < t->rank; i++)
		dims[i] = ir_import_dim(m, t->dims[i]);
	return ir_type_tensor(m->types, t->dtype, t->rank, dims);
}

/* ---- iteration ---- */

/* Sets it->op to the op at the top of the stack, leaving regions that are exhausted, except the outermost: its end
 * is the end of the iteration. */
static void iter_settle(struct ir_iter *it)
{
	while (it->depth > 0 && it->stack[it->depth].at == it->stack[it->depth].region->n_ops)
		it->stack[--it->depth].at++;
	const struct ir_region *r = it->stack[it->depth].region;
	size_t at = it->stack[it->depth].at;
	it->op = at < r->n_ops ? r->ops[at] : NULL;
}

struct ir_iter ir_iter_begin(const struct ir_region *r)
{
	struct ir_iter it;
	it.depth = 0;
	it.stack[0].region = r;
	it.stack[0].at = 0;
	iter_settle(&it);
	return it;
}

/* Pre-order: into the region of the op, if it has one, else to the next op. The builder limits the depth to
 * IR_DEPTH_MAX. */
void ir_iter_next(struct ir_iter *it)
{
	if (it->op->region != NULL && it->depth < IR_DEPTH_MAX) {
		it->depth++;
		it->stack[it->depth].region = it->op->region;
		it->stack[it->depth].at = 0;
	} else {
		it->stack[it->depth].at++;
	}
	iter_settle(it);
}

void ir_visit_ops(const struct ir_region *r, ir_op_visitor *visit, void *user)
{
	for (struct ir_iter it = ir_iter_begin(r); it.op != NULL; ir_iter_next(&it))
		visit(user, it.op);
}

/* Absent operands count for id 0, which is then reset. */
uint32_t *ir_count_uses(struct arena *a, const struct ir_func *f)
{
	uint32_t *uses = ARENA_ARRAY(a, uint32_t, f->n_values + 1);
	if (uses == NULL)
		return NULL;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		for (size_t i = 0; i < it.op->n_operands; i++)
			if (it.op->operands[i].id < f->n_values)
				uses[it.op->operands[i].id]++;
	uses[0] = 0;
	return uses;
}

static bool is_name_char(char c, bool first)
{
	return char_is_letter(c) || (!first && (char_is_digit(c) || c == '.'));
}

void ir_print_name(struct buf *out, char sigil, const char *name)
{
	bool plain = name[0] != '\0';
	for (size_t i = 0; plain && name[i] != '\0'; i++)
		plain = is_name_char(name[i], i == 0);
	buf_char(out, sigil);
	if (plain)
		buf_str(out, name);
	else
		buf_quoted(out, name);
}

/* A state is printed by its name, since its type is that of the declaration. */
void ir_type_print(struct buf *out, const struct ir_dims *dims, const struct ir_type *type)
{
	if (type->kind == IR_STATE) {
		buf_str(out, "state ");
		ir_print_name(out, '@', type->state->name);
		return;
	}
	buf_str(out, ir_dtype_name(type->dtype));
	buf_char(out, '[');
	for (int i = 0; i < type->rank; i++) {
		buf_str(out, i > 0 ? "," : "");
		ir_dim_print(out, dims, type->dims[i], true);
	}
	buf_char(out, ']');
}

const char *ir_type_to_string(struct arena *a, const struct ir_dims *dims, const struct ir_type *type)
{
	struct buf text;
	buf_init(&text);
	ir_type_print(&text, dims, type);
	const char *copy = arena_strdup(a, text.data);
	buf_destroy(&text);
	return copy;
}
