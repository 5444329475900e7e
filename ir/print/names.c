/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of values in the text: the hint, made unique by `.1`, `.2`; a number
 * for values without hint. Assigned in the order in which the text defines
 * them, so that reading the text back gives the same names. Weight references
 * have no name: they are printed where they are used.
 */
#include "ir/print/internal.h"

#include <stdlib.h>
#include <string.h>

struct naming {
	struct printer *p;
	struct strmap used; /* name -> number of the last suffix, plus 1 */
	unsigned next;
};

static bool is_number(const char *name)
{
	return name[0] == '\0' || strspn(name, "0123456789") == strlen(name);
}

static const char *unique(struct naming *n, const char *hint)
{
	struct arena *a = &n->p->arena;
	uintptr_t suffix = (uintptr_t)strmap_get(&n->used, hint);
	const char *name = hint;
	if (suffix != 0) {
		do
			name = arena_printf(a, "%s.%zu", hint, (size_t)suffix++);
		while (strmap_has(&n->used, name) && !arena_failed(a));
	}
	/* a counter, not an address: strmap holds pointers */
	strmap_set(&n->used, hint, (void *)(suffix == 0 ? 1 : suffix));
	if (name != hint)
		strmap_set(&n->used, name, (void *)(uintptr_t)1);
	return name;
}

static void name_value(struct naming *n, struct ir_value v)
{
	const char *hint = ir_value_info(n->p->f, v)->name;
	if (v.id == 0 || v.id >= n->p->f->n_values || n->p->names == NULL)
		return;
	if (hint == NULL || n->p->is_plain || is_number(hint))
		n->p->names[v.id] = arena_printf(&n->p->arena, "%u", n->next++);
	else
		n->p->names[v.id] = unique(n, hint);
}

static void name_region(struct naming *n, const struct ir_region *r)
{
	for (size_t i = 0; i < r->n_args; i++)
		name_value(n, r->args[i]);
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		if (op->code == OP_weight)
			continue;
		for (size_t k = 0; k < op->n_results; k++)
			name_value(n, op->results[k]);
		if (op->region != NULL)
			name_region(n, op->region);
	}
}

void printer_begin(struct printer *p, struct buf *out, const struct diag_context *cx,
                   const struct ir_module *m, const struct ir_func *f, bool is_plain)
{
	*p = (struct printer){.out = out, .cx = cx, .m = m, .f = f, .is_plain = is_plain};
	arena_init(&p->arena);
	p->names = ARENA_ARRAY(&p->arena, const char *, f->n_values);
	struct naming n = {.p = p};
	strmap_init(&n.used, &p->arena);
	if (f->body != NULL)
		name_region(&n, f->body);
}

void printer_end(struct printer *p)
{
	if (arena_failed(&p->arena))
		p->out->failed = true;
	arena_destroy(&p->arena);
}

static bool is_weight_ref(const struct printer *p, struct ir_value v)
{
	const struct ir_op *def = ir_def(p->f, v);
	return def != NULL && def->code == OP_weight;
}

static void print_plain(const struct printer *p, struct ir_value v)
{
	const char *name = p->names != NULL ? p->names[v.id] : NULL;
	if (name != NULL && is_number(name))
		buf_printf(p->out, "%%%s", name);
	else
		ir_print_name(p->out, '%', name != NULL ? name : "?");
}

/* @name[%l] #panel16 */
static void print_weight_ref(const struct printer *p, const struct ir_op *op)
{
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	ir_print_name(p->out, '@', w->name);
	for (size_t i = 0; i < op->n_operands; i++) {
		buf_char(p->out, i == 0 ? '[' : ',');
		print_plain(p, op->operands[i]);
	}
	if (op->n_operands > 0)
		buf_char(p->out, ']');
	if (w->encoding != ENC_ROW)
		buf_printf(p->out, " #%s", ir_encoding_name(w->encoding));
}

void print_value(const struct printer *p, struct ir_value v)
{
	if (v.id == 0 || v.id >= p->f->n_values)
		buf_str(p->out, "%\"?\"");
	else if (is_weight_ref(p, v))
		print_weight_ref(p, ir_def(p->f, v));
	else
		print_plain(p, v);
}

void print_values(const struct printer *p, const struct ir_value *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print_value(p, v[i]);
	}
}
