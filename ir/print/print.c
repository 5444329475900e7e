/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of modules and functions, see text.h and the grammar in ir/text.md.
 * Deterministic: order of declaration, no addresses.
 */
#include "ir/builder/case.h"
#include "ir/print/internal.h"

#include <inttypes.h>

void print_loc(struct buf *out, const struct diag_context *cx, const struct ir_module *m, struct ir_loc loc)
{
	bool place = loc.at.source != 0;
	if (cx == NULL || (place && loc.at.source == m->tir_source) || (!place && loc.path == NULL))
		return;
	buf_str(out, " loc(");
	if (place) {
		buf_quoted(out, diag_source_name(cx, loc.at.source));
		buf_printf(out, ":%" PRIu32 ":%" PRIu32, loc.at.line, loc.at.col);
	}
	if (loc.path != NULL) {
		buf_str(out, place ? " " : "");
		buf_quoted(out, loc.path);
	}
	buf_char(out, ')');
}

/* ---- declarations ---- */

static const char *stage_text(enum ir_stage stage)
{
	switch (stage) {
	case STAGE_GRAPH: return "";
	case STAGE_GROUPS: return " stage=groups";
	case STAGE_PLAN: return " stage=plan";
	}
	return "";
}

static void print_weight(struct buf *out, const struct diag_context *cx, const struct ir_module *m,
                         const struct ir_weight *w)
{
	buf_str(out, "weight ");
	ir_print_name(out, '@', w->name);
	buf_str(out, " : ");
	ir_type_print(out, m->dims, w->type);
	if (w->encoding != ENC_ROW)
		buf_printf(out, " #%s", ir_encoding_name(w->encoding));
	if (w->format != FORMAT_PLAIN)
		buf_printf(out, " as %s", ir_format(w->format)->name);
	if (w->init != NULL) {
		buf_str(out, " = ");
		wexpr_print(out, w->init);
	}
	print_loc(out, cx, m, w->loc);
	buf_char(out, '\n');
}

static void print_header(struct buf *out, const struct diag_context *cx, const struct ir_module *m)
{
	buf_str(out, "module ");
	buf_quoted(out, m->name);
	buf_printf(out, "%s\n", stage_text(m->stage));
	for (size_t i = 0; i < ir_dims_count(m->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->dims, i);
		buf_printf(out, "dim %s in [%" PRId64 ",%" PRId64 "]\n", s->name, s->lo, s->hi);
	}
	for (size_t i = 0; i < m->weights.n; i++)
		print_weight(out, cx, m, m->weights.items[i]);
	for (size_t i = 0; i < m->states.n; i++) {
		const struct ir_state_decl *s = m->states.items[i];
		buf_str(out, "state ");
		ir_print_name(out, '@', s->name);
		buf_str(out, " : ");
		ir_type_print(out, m->dims, s->type);
		buf_printf(out, " #%s", ir_encoding_name(s->encoding));
		print_loc(out, cx, m, s->loc);
		buf_char(out, '\n');
	}
}

/* ---- functions ---- */

/* ` {` before the first of a list of properties, ` ` before the others. */
static void property(struct buf *out, bool *any)
{
	buf_str(out, *any ? " " : " {");
	*any = true;
}

static void print_lengths(const struct printer *p, int lengths, bool *any)
{
	if (lengths < 0 || (size_t)lengths >= p->f->n_params)
		return;
	property(p->out, any);
	buf_str(p->out, "lengths=");
	print_value(p, p->f->params[lengths].value);
}

static void print_role(const struct printer *p, enum ir_param_role role, bool *any)
{
	switch (role) {
	case ROLE_INPUT: break;
	case ROLE_PAST:
		property(p->out, any);
		buf_str(p->out, "role=past");
		break;
	}
}

static void print_param(const struct printer *p, const struct ir_param *param)
{
	bool any = false;
	print_value(p, param->value);
	buf_str(p->out, ": ");
	ir_type_print(p->out, p->m->dims, ir_type_of(p->f, param->value));
	print_role(p, param->role, &any);
	if (param->below > 0) {
		property(p->out, &any);
		buf_printf(p->out, "below=%" PRId64, param->below);
	}
	print_lengths(p, param->lengths, &any);
	if (param->has_default && param->default_value != NULL) {
		property(p->out, &any);
		buf_str(p->out, "default=");
		ir_dim_print(p->out, p->m->dims, param->default_value, true);
	}
	if (param->has_default && param->default_value == NULL) {
		property(p->out, &any);
		buf_str(p->out, "fill=");
		buf_f64(p->out, param->fill);
	}
	if (param->max != NULL) {
		property(p->out, &any);
		buf_str(p->out, "max=");
		ir_dim_print(p->out, p->m->dims, param->max, true);
	}
	buf_str(p->out, any ? "}" : "");
}

static bool is_plain_word(const char *s)
{
	struct buf text;
	buf_init(&text);
	ir_print_name(&text, '%', s);
	bool plain = text.len > 1 && text.data[1] != '"';
	buf_destroy(&text);
	return plain;
}

static void print_result(const struct printer *p, size_t i)
{
	const struct ir_result *r = &p->f->results[i];
	const struct ir_op *last = p->f->body->ops[p->f->body->n_ops - 1];
	bool any = false;
	if (r->name != NULL) {
		if (is_plain_word(r->name))
			buf_str(p->out, r->name);
		else
			buf_quoted(p->out, r->name);
		buf_str(p->out, ": ");
	}
	ir_type_print(p->out, p->m->dims, ir_type_of(p->f, last->operands[i]));
	print_role(p, r->role, &any);
	print_lengths(p, r->lengths, &any);
	buf_str(p->out, any ? "}" : "");
}

static void print_signature(const struct printer *p)
{
	const struct ir_func *f = p->f;
	buf_str(p->out, "func ");
	ir_print_name(p->out, '@', f->name);
	buf_char(p->out, '(');
	for (size_t i = 0; i < f->n_params; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print_param(p, &f->params[i]);
	}
	buf_str(p->out, ") -> (");
	for (size_t i = 0; i < f->n_results; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print_result(p, i);
	}
	buf_char(p->out, ')');
	if (f->when != NULL) {
		buf_char(p->out, ' ');
		ir_case_print(p->out, p->m, f->when);
	}
	if (f->arena != NULL) {
		buf_str(p->out, " arena=");
		ir_dim_print(p->out, p->m->dims, f->arena, true);
	}
	print_loc(p->out, p->cx, p->m, f->loc);
}

static void print_func(struct buf *out, const struct diag_context *cx, const struct ir_module *m,
                       const struct ir_func *f, bool is_plain)
{
	struct printer p;
	printer_begin(&p, out, cx, m, f, is_plain);
	print_signature(&p);
	buf_str(out, " {\n");
	print_region(&p, f->body, 2);
	buf_str(out, "}\n");
	printer_end(&p);
}

void ir_print_func(struct buf *out, const struct diag_context *cx, const struct ir_module *m,
                   const struct ir_func *f)
{
	print_func(out, cx, m, f, false);
}

void print_module(struct buf *out, const struct diag_context *cx, const struct ir_module *m, bool is_plain)
{
	print_header(out, cx, m);
	for (size_t i = 0; i < m->funcs.n; i++) {
		buf_char(out, '\n');
		print_func(out, cx, m, m->funcs.items[i], is_plain);
	}
}

void ir_print(struct buf *out, const struct diag_context *cx, const struct ir_module *m)
{
	print_module(out, cx, m, false);
}
