/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of control flow, calls and variables, equal in both dialects. All pending values are assigned to names
 * before a block begins or ends, so that each is evaluated where the IR computes it.
 */
#include "backends/print/print.h"

void print_line(struct print *p, const char *fmt, ...)
{
	va_list ap;
	buf_fill(&p->body, '\t', (size_t)p->depth);
	va_start(ap, fmt);
	buf_vprintf(&p->body, fmt, ap);
	va_end(ap);
	buf_char(&p->body, '\n');
}

void print_fail(struct print *p, const char *what)
{
	if (!p->failed)
		diag_error(p->cx, LOC_NONE, DIAG_UNSUPPORTED, "not supported yet: function %s: %s",
		           p->f->name, what);
	p->failed = true;
}

enum print_prec print_unsupported(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)out;
	print_fail(p, arena_printf(p->arena, "%s in %s", kb_op_name(i->op), p->dialect->name));
	return PRINT_PRIMARY;
}

/* Comment delimiters inside the comment get a space, so that they do not end it. */
void print_comment(struct print *p, const struct kb_inst *i)
{
	if (p->dialect->source_loc && i->flags & KB_SOURCE_LOC) {
		p->dialect->source_loc(p, i->name);
		return;
	}
	buf_fill(&p->body, '\t', (size_t)p->depth);
	buf_str(&p->body, "/* ");
	for (const char *s = i->name; *s; s++) {
		bool breaks = (s[0] == '*' && s[1] == '/') || (s[0] == '/' && s[1] == '*');
		buf_char(&p->body, *s == '\n' || *s == '\r' ? ' ' : *s);
		if (breaks)
			buf_char(&p->body, ' ');
	}
	buf_str(&p->body, " */\n");
}

/* ---- blocks ---- */

static void print_loop(struct print *p, const struct kb_inst *i)
{
	struct buf head;
	struct print_value *hi = &p->values[i->args[1].id];
	if (hi->is_pending) /* evaluate the bound once, not in each iteration */
		print_flush(p, FLUSH_ALL, 0);
	print_consume(p, i);
	print_flush(p, FLUSH_ALL, 0);
	print_open(p);
	const char *name = print_local_name(p, i->name);
	print_name_value(p, i->result, name);
	p->depth--; /* where the head stands */
	buf_init(&head);
	buf_str(&head, "for (");
	p->dialect->type(p, i->type, (struct space_pointer){SPACE_NONE, false}, &head);
	buf_printf(&head, " %s = %s; %s < %s; ", name, print_bare_arg(p, i, 0), name, print_arg(p, i, 1));
	if (i->imm == 1)
		buf_printf(&head, "%s++) {", name);
	else
		buf_printf(&head, "%s += %lld) {", name, (long long)i->imm);
	print_line(p, "%s", head.data);
	p->body.failed |= head.failed;
	buf_destroy(&head);
	p->depth++;
}

static void with_condition(struct print *p, const struct kb_inst *i, const char *after)
{
	print_consume(p, i);
	print_flush(p, FLUSH_ALL, 0);
	print_line(p, "if (%s)%s", print_bare_arg(p, i, 0), after);
}

static void print_forever(struct print *p, const struct kb_inst *i)
{
	(void)i;
	print_flush(p, FLUSH_ALL, 0);
	print_line(p, "for (;;) {");
	print_open(p);
}

static void print_break_if(struct print *p, const struct kb_inst *i)
{
	with_condition(p, i, "");
	p->depth++;
	print_line(p, "break;");
	p->depth--;
}

static void print_if(struct print *p, const struct kb_inst *i)
{
	with_condition(p, i, " {");
	print_open(p);
}

static void print_end(struct print *p, const struct kb_inst *i)
{
	print_flush(p, FLUSH_ALL, 0);
	print_close(p);
	print_line(p, i->op == KBO_ELSE ? "} else {" : "}");
}

static void print_else(struct print *p, const struct kb_inst *i)
{
	print_end(p, i);
	print_open(p);
}

/* ---- calls ---- */

static void print_return(struct print *p, const struct kb_inst *i)
{
	print_consume(p, i);
	print_flush(p, FLUSH_ALL, 0);
	print_line(p, i->n_args ? "return %s;" : "return;", i->n_args ? print_bare_arg(p, i, 0) : "");
}

/* An instruction with a side effect: pending loads are evaluated before it. */
static void print_ordered(struct print *p, const struct kb_inst *i)
{
	print_consume(p, i);
	print_flush(p, FLUSH_LOADS, 0);
	buf_clear(&p->scratch);
	if (i->op == KBO_CALL)
		(void)print_call_text(p, i, 0, print_global(p, i->name), &p->scratch);
	else
		(void)p->dialect->ops[i->op](p, i, &p->scratch);
	const char *text = arena_strndup(p->arena, p->scratch.data, p->scratch.len);
	if (i->result && p->values[i->result].uses)
		print_assign_name(p, i->result, text);
	else if (p->scratch.len > 0)
		print_line(p, i->result ? "(void)%s;" : "%s;", text);
}

/* An instruction that the dialect emits. */
static void print_value(struct print *p, const struct kb_inst *i)
{
	if (kb_has_side_effect(i->op))
		print_ordered(p, i);
	else if (p->values[i->result].uses)
		print_define(p, i);
}

/* ---- variables ---- */

static struct space_pointer var_space(const struct print *p, uint32_t var)
{
	return p->spaces.funcs ? p->spaces.funcs[p->f_number].vars[var]
	                       : (struct space_pointer){SPACE_NONE, true};
}

/* Initial value of a variable without one. OpenCL C has no {0} for vectors. */
static void print_zero(struct print *p, struct kb_type type, struct buf *line)
{
	if (type.lanes == 1) {
		buf_char(line, '0');
	} else if (p->options->dialect == CFAMILY_C) {
		buf_str(line, "{0}");
	} else {
		buf_char(line, '(');
		p->dialect->type(p, type, (struct space_pointer){SPACE_NONE, false}, line);
		buf_str(line, ")(0)");
	}
}

static void print_var(struct print *p, const struct kb_inst *i)
{
	struct print_var *v = &p->vars[i->result];
	struct buf line;
	if (!v->is_read)
		return;
	print_consume(p, i);
	v->name = print_local_name(p, i->name ? i->name : "x");
	buf_init(&line);
	p->dialect->type(p, i->type, var_space(p, i->result), &line);
	if (line.len && line.data[line.len - 1] != '*')
		buf_char(&line, ' ');
	buf_printf(&line, "%s = ", v->name);
	if (i->n_args)
		buf_str(&line, print_bare_arg(p, i, 0));
	else
		print_zero(p, i->type, &line);
	print_line(p, "%s;", line.data);
	p->body.failed |= line.failed;
	buf_destroy(&line);
}

static void print_set(struct print *p, const struct kb_inst *i)
{
	if (!p->vars[i->imm].is_read)
		return;
	print_consume(p, i);
	print_flush(p, FLUSH_VAR, (uint32_t)i->imm);
	print_line(p, "%s = %s;", p->vars[i->imm].name, print_bare_arg(p, i, 0));
}

static void print_array(struct print *p, const struct kb_inst *i)
{
	const char *name;
	if (!p->values[i->result].uses)
		return;
	name = print_local_name(p, i->name);
	p->dialect->array(p, i, name);
	buf_clear(&p->scratch);
	p->dialect->array_text(p, i, name, &p->scratch);
	print_name_value(p, i->result, arena_strndup(p->arena, p->scratch.data, p->scratch.len));
}

/* ---- dispatch ---- */

static void print_param(struct print *p, const struct kb_inst *i)
{
	(void)p;
	(void)i;
}
#define print_end_loop    print_end
#define print_end_forever print_end
#define print_end_if      print_end
#define print_get         print_value
#define print_call        print_ordered
#define print_local       print_array
#define print_shared      print_array

void print_control(struct print *p, const struct kb_inst *i)
{
	static void (*const print[])(struct print *, const struct kb_inst *) = {
#define KB_CFAMILY(op, name, effect) [KBO_##op] = print_##name,
#define KB_OP(op, name, effect)      [KBO_##op] = print_value,
#include "backends/kb/kb_ops.def"
	};
	print[i->op](p, i);
}
