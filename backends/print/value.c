/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as expressions. A value that is used once is pending: it is folded into the expression that uses it. It is
 * assigned to a name before an effect that could change it: a store, a call or an atomic if it reads memory, a SET of
 * a variable that it reads, or the begin or end of a block. Unused values are not printed.
 */
#include "backends/print/print.h"

#include <string.h>

#define TEXT_MAX 88 /* longer expressions are assigned to a name, for readability */

/* ---- uses ---- */

static bool is_printed(const struct print *p, const struct kb_inst *i)
{
	if (i->op == KBO_VAR)
		return p->vars[i->result].is_read;
	if (i->op == KBO_SET)
		return p->vars[i->imm].is_read;
	return kb_has_side_effect(i->op) || (i->result && p->values[i->result].uses > 0);
}

/* One backward pass, users before definitions. True if another variable was found to be read: then repeat, because
 * its SETs in loops may come later. */
static bool count_once(struct print *p)
{
	bool more = false;
	for (size_t v = 0; v < p->f->n_values; v++)
		p->values[v].uses = 0;
	for (size_t at = p->f->n_insts; at-- > 0;) {
		const struct kb_inst *i = &p->f->insts[at];
		if (!is_printed(p, i))
			continue;
		for (size_t k = 0; k < i->n_args; k++) {
			p->values[i->args[k].id].uses++;
			p->values[i->args[k].id].user = i->op;
		}
		if (i->op == KBO_GET && !p->vars[i->imm].is_read)
			more = p->vars[i->imm].is_read = true;
	}
	return more;
}

void print_count_uses(struct print *p)
{
	while (count_once(p))
		;
}

/* ---- pending values ---- */

static void remove_pending(struct print *p, uint32_t id)
{
	size_t n = 0;
	if (!p->values[id].is_pending)
		return;
	for (size_t i = 0; i < p->n_pending; i++)
		if (p->pending[i] != id)
			p->pending[n++] = p->pending[i];
	p->n_pending = n;
	p->values[id].is_pending = false;
}

void print_consume(struct print *p, const struct kb_inst *i)
{
	for (size_t k = 0; k < i->n_args; k++)
		remove_pending(p, i->args[k].id);
}

static bool reads_var(const struct print_value *v, uint32_t var)
{
	for (size_t i = 0; i < v->n_gets; i++)
		if (v->gets[i] == var)
			return true;
	return false;
}

void print_flush(struct print *p, enum print_flush which, uint32_t var)
{
	size_t n = 0, count = p->n_pending;
	for (size_t i = 0; i < count; i++) {
		uint32_t id = p->pending[i];
		struct print_value *v = &p->values[id];
		bool named = which == FLUSH_ALL || (which == FLUSH_LOADS && v->has_load) ||
		             (which == FLUSH_VAR && reads_var(v, var));
		if (named)
			print_assign_name(p, id, v->bare);
		else
			p->pending[n++] = id;
	}
	p->n_pending = n;
}

static const char *temporary(struct print *p, uint32_t id)
{
	const struct kb_type t = p->f->types[id];
	const char *prefix = t.scalar == KB_PTR ? "p" : t.scalar == KB_BOOL ? "is" : t.lanes > 1 ? "v" : "t";
	return print_local_name(p, arena_printf(p->arena, "%s%u", prefix, ++p->n_temporaries));
}

void print_name_value(struct print *p, uint32_t id, const char *name)
{
	struct print_value *v = &p->values[id];
	*v = (struct print_value){
	        .text = name, .bare = name, .is_name = true, .uses = v->uses, .definition = v->definition};
}

void print_assign_name(struct print *p, uint32_t id, const char *bare)
{
	const char *name = temporary(p, id);
	struct buf line;
	buf_init(&line);
	buf_str(&line, "const ");
	if (p->f->types[id].scalar == KB_PTR)
		buf_clear(&line); /* the const of a pointer type qualifies its target */
	p->dialect->type(p, p->f->types[id], print_value_space(p, id), &line);
	if (line.len && line.data[line.len - 1] != '*')
		buf_char(&line, ' ');
	buf_printf(&line, "%s = %s;", name, bare);
	print_line(p, "%s", line.data);
	p->body.failed |= line.failed;
	buf_destroy(&line);
	print_name_value(p, id, name);
}

/* ---- definitions ---- */

/* v reads the variables that its pending operands read. */
static void collect_gets(struct print *p, struct print_value *v, const struct kb_inst *i)
{
	size_t n = i->op == KBO_GET;
	for (size_t k = 0; k < i->n_args; k++)
		if (p->values[i->args[k].id].is_pending)
			n += p->values[i->args[k].id].n_gets;
	v->gets = n ? ARENA_ARRAY(p->arena, uint32_t, n) : NULL;
	v->n_gets = 0;
	if (n && !v->gets)
		return;
	if (i->op == KBO_GET)
		v->gets[v->n_gets++] = (uint32_t)i->imm;
	for (size_t k = 0; k < i->n_args; k++) {
		const struct print_value *a = &p->values[i->args[k].id];
		for (size_t g = 0; a->is_pending && g < a->n_gets; g++)
			v->gets[v->n_gets++] = a->gets[g];
	}
}

static bool reads_memory(const struct print *p, const struct kb_inst *i)
{
	bool load = i->op == KBO_LOAD || i->op == KBO_LOAD_SPLAT || i->op == KBO_LOAD_PART;
	for (size_t k = 0; k < i->n_args; k++)
		load = load || (p->values[i->args[k].id].is_pending && p->values[i->args[k].id].has_load);
	return load;
}

static bool is_literal(enum kb_opcode op)
{
	return op == KBO_CONST_INT || op == KBO_CONST_FLOAT || op == KBO_NULL || op == KBO_FUNC_ADDR ||
	       op == KBO_STRING || op == KBO_SYMBOL;
}

/* A float product inside of a sum may be contracted to fma by the compiler, which rounds once instead of twice. */
static bool must_have_name(const struct kb_inst *i, const struct print_value *v)
{
	bool product = i->op == KBO_BIN && i->bin == KB_MUL &&
	               (i->type.scalar == KB_F32 || i->type.scalar == KB_F64);
	return product && (v->user == KBO_BIN || v->user == KBO_UN || v->user == KBO_FMA);
}

static void expression(struct print *p, const struct kb_inst *i, struct print_value *v)
{
	if (i->op == KBO_GET) {
		v->text = v->bare = p->vars[i->imm].name;
		v->is_name = true;
		return;
	}
	buf_clear(&p->scratch);
	v->precedence = p->dialect->ops[i->op](p, i, &p->scratch);
	v->text = v->bare = arena_strndup(p->arena, p->scratch.data, p->scratch.len);
	if (v->precedence != PRINT_PRIMARY && !v->inner)
		v->text = arena_printf(p->arena, "(%s)", v->bare);
}

enum print_prec print_converted(struct print *p, const struct kb_inst *i, const char *type, const char *inner,
                                enum print_prec precedence, struct buf *out)
{
	p->values[i->result].inner = arena_strdup(p->arena, inner);
	buf_printf(out, "(%s)(%s)", type, inner);
	return precedence;
}

void print_define(struct print *p, const struct kb_inst *i)
{
	struct print_value *v = &p->values[i->result];
	v->definition = i;
	expression(p, i, v);
	if (is_literal(i->op))
		return;
	v->has_load = reads_memory(p, i);
	collect_gets(p, v, i);
	print_consume(p, i);
	if (v->uses == 1 && strlen(v->text) <= TEXT_MAX && !must_have_name(i, v)) {
		v->is_pending = true;
		p->pending[p->n_pending++] = i->result;
	} else {
		print_assign_name(p, i->result, v->bare);
	}
}

/* ---- operands ---- */

const struct print_value *print_arg_value(const struct print *p, const struct kb_inst *i, size_t k)
{
	return &p->values[i->args[k].id];
}

const char *print_arg(const struct print *p, const struct kb_inst *i, size_t k)
{
	const char *text = p->values[i->args[k].id].text;
	return text ? text : "";
}

struct kb_type print_arg_type(const struct print *p, const struct kb_inst *i, size_t k)
{
	return p->f->types[i->args[k].id];
}

struct space_pointer print_value_space(const struct print *p, uint32_t id)
{
	return p->spaces.funcs && p->f->types[id].scalar == KB_PTR ? p->spaces.funcs[p->f_number].values[id]
	                                                           : (struct space_pointer){SPACE_NONE, true};
}

struct space_pointer print_arg_space(const struct print *p, const struct kb_inst *i, size_t k)
{
	return print_value_space(p, i->args[k].id);
}

const char *print_bare_arg(const struct print *p, const struct kb_inst *i, size_t k)
{
	const char *text = p->values[i->args[k].id].bare;
	return text ? text : "";
}

enum print_prec print_call_text(const struct print *p, const struct kb_inst *i, size_t first,
                                const char *name, struct buf *out)
{
	buf_printf(out, "%s(", name);
	for (size_t k = first; k < i->n_args; k++)
		buf_printf(out, "%s%s", k > first ? ", " : "", print_bare_arg(p, i, k));
	buf_char(out, ')');
	return PRINT_PRIMARY;
}

enum print_prec print_forwarded_arg(const struct print *p, const struct kb_inst *i, size_t k, struct buf *out)
{
	const struct print_value *v = print_arg_value(p, i, k);
	buf_str(out, print_bare_arg(p, i, k));
	return v->inner ? PRINT_PRIMARY : v->precedence;
}

bool print_const_arg(const struct print *p, const struct kb_inst *i, size_t k, int64_t *out)
{
	const struct kb_inst *d = p->values[i->args[k].id].definition;
	if (!d || d->op != KBO_CONST_INT)
		return false;
	*out = d->imm;
	return true;
}

const char *print_value_name(const struct print *p, uint32_t id)
{
	return p->values[id].text;
}

/* Octal escapes, unlike hexadecimal ones, end after three digits; '?' is escaped because of trigraphs. */
void print_string(const char *text, struct buf *out)
{
	buf_char(out, '"');
	for (const char *s = text; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '?')
			buf_printf(out, "\\%03o", c);
		else
			buf_char(out, (char)c);
	}
	buf_char(out, '"');
}
