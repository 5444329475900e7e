/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of a source file. Function bodies are printed first, because they request the types, helpers and
 * declarations that the file needs; then the parts are put in order. Helpers are instantiated from blocks of the
 * dialect's prelude.
 *
 * A value has a text (its expression, or a name) with a precedence; it is pending as long as its text has not been
 * printed. An effect is what must stay in order: stores, calls, sets. A dialect (struct cfamily_dialect_table) has the
 * functions for what C and OpenCL C print differently. A block is a pair of braces; its identifiers are free again
 * when it ends.
 *
 * Values: one that is used once is pending and folded into the expression that uses it. It is assigned to a name
 * before an effect that could change it: a store, a call or an atomic if it reads memory, a SET of a variable that it
 * reads, or the begin or end of a block, so that each is evaluated where the IR computes it. Unused values are not
 * printed. `bare` is the text without outer parentheses. Strings are in an arena: of one function, or of the file. The
 * first failure is reported once (p->failed); buffers remember lack of memory.
 *
 * Names: exported ones are unchanged; in others, characters other than letters and digits become underscores, and a
 * number makes them distinct from all identifiers that are visible in the same scope.
 */
#include "backends/print/print.h"

#include <string.h>

#include "ir/support/chars.h"

/* ---- names ---- */

static const char *const keywords[] = {
        "asm",           "auto",     "bool",      "break",    "case",    "char",          "const",
        "continue",      "default",  "do",        "double",   "else",    "enum",          "extern",
        "false",         "float",    "for",       "goto",     "if",      "inline",        "int",
        "long",          "register", "return",    "restrict", "short",   "signed",        "sizeof",
        "static",        "struct",   "switch",    "true",     "typedef", "typeof",        "union",
        "unsigned",      "void",     "volatile",  "while",    "linux",   "unix",          "i386",
        "main",          "nullptr",  "constexpr", "alignas",  "alignof", "static_assert", "thread_local",
        "typeof_unqual", "NULL",     NULL};

static bool is_in(const char *const *list, const char *name)
{
	for (; list && *list; list++)
		if (strcmp(*list, name) == 0)
			return true;
	return false;
}

bool cfamily_is_keyword(const char *name)
{
	return is_in(keywords, name);
}

static bool is_reserved(const struct print *p, const char *name)
{
	return cfamily_is_keyword(name) || is_in(p->dialect->reserved, name) || p->dialect->is_reserved(name);
}

/* `name` as an identifier: _ for other characters, and before a first one that is no letter; "_" without memory. */
static const char *sanitize(struct print *p, const char *name)
{
	size_t n = strlen(name);
	char *text = arena_alloc(p->arena, n + 2);
	if (!text)
		return "_";
	size_t at = 0;
	if (!char_is_letter(name[0]))
		text[at++] = '_';
	for (size_t i = 0; i < n; i++)
		text[at++] = char_is_word(name[i]) ? name[i] : '_';
	text[at] = '\0';
	return text;
}

/* ---- file scope ---- */

/* A new identifier at file scope: `name`, with a number if it is taken or reserved. */
static const char *print_file_name(struct print *p, const char *name)
{
	const char *base = sanitize(p, name), *text = base;
	for (int i = 2; strmap_has(&p->taken, text) || is_reserved(p, text); i++)
		text = arena_printf(p->arena, "%s_%d", base, i);
	(void)strmap_set(&p->taken, text, p);
	return text;
}

/* Gives a function or data of the module its identifier: its own name if it is exported, else a free one. */
static void add_global(struct print *p, const char *name, bool is_exported)
{
	if (strmap_has(&p->globals, name))
		return;
	const char *text = is_exported ? name : print_file_name(p, name);
	if (is_exported)
		(void)strmap_set(&p->taken, name, p);
	(void)strmap_set(&p->globals, name, (void *)(uintptr_t)text);
}

/* Gives every function and data item its identifier. Exported names come first, so that no internal one is given the
 * identifier of one. False without memory. `needed` are helpers and declarations that have been printed. */
static bool print_names_begin(struct print *p)
{
	strmap_init(&p->globals, p->arena);
	strmap_init(&p->taken, p->arena);
	strmap_init(&p->needed, p->arena);
	for (int internal = 0; internal < 2; internal++) {
		for (size_t i = 0; i < kb_func_count(p->m); i++) {
			const struct kb_func *f = kb_func_at(p->m, i);
			if ((f->linkage == KB_INTERNAL) == internal)
				add_global(p, f->name, !internal);
		}
		for (size_t i = 0; i < kb_data_count(p->m); i++) {
			const struct kb_data_item *d = kb_data_at(p->m, i);
			if ((d->linkage == KB_INTERNAL) == internal)
				add_global(p, d->name, !internal);
		}
	}
	for (size_t i = 0; i < p->options->n_data; i++)
		add_global(p, p->options->data[i].name, false);
	return !arena_failed(p->arena);
}

const char *print_global(struct print *p, const char *name)
{
	const char *text = strmap_get(&p->globals, name);
	return text ? text : name;
}

/* ---- functions ---- */

static void open_block(struct print *p, int depth)
{
	bool *is_open = ARENA_NEW(p->arena, bool);
	if (is_open)
		*is_open = true;
	p->blocks[depth] = is_open;
	p->depth = depth;
}

/* Prepares the identifiers of the function p->f. False without memory. */
static bool print_locals_begin(struct print *p)
{
	strmap_init(&p->locals, p->arena);
	p->blocks = ARENA_ARRAY(p->arena, bool *, p->f->n_insts + 2);
	p->n_temporaries = 0;
	if (p->blocks)
		open_block(p, 0);
	return p->blocks;
}

static bool is_free(const struct print *p, const char *name)
{
	const bool *is_used = strmap_get(&p->locals, name);
	return !(is_used && *is_used) && !strmap_has(&p->taken, name) && !is_reserved(p, name);
}

const char *print_local_name(struct print *p, const char *name)
{
	const char *base = sanitize(p, name), *text = base;
	for (int i = 1; !is_free(p, text); i++)
		text = arena_printf(p->arena, "%s%s%d", base,
		                    char_is_letter(base[strlen(base) - 1]) ? "" : "_", i);
	(void)strmap_set(&p->locals, text, p->blocks[p->depth]);
	return text;
}

static void print_open(struct print *p)
{
	open_block(p, p->depth + 1);
}

/* Closes the block: its identifiers may be used again. */
static void print_close(struct print *p)
{
	bool *is_open = p->blocks[p->depth--];
	if (is_open)
		*is_open = false;
}

/* ---- values ---- */

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

/* Fills uses and is_read: only used values are printed. */
static void print_count_uses(struct print *p)
{
	while (count_once(p))
		;
}

/* ---- pending values ---- */

/* The value is no longer pending: its text is used, or it has a name. The others keep their order. */
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

/* The operands become part of the text of this instruction: they are no longer pending. */
static void print_consume(struct print *p, const struct kb_inst *i)
{
	for (size_t k = 0; k < i->n_args; k++)
		remove_pending(p, i->args[k].id);
}

/* Uses `name` as the text of the value from now on. */
static void print_name_value(struct print *p, uint32_t id, const char *name)
{
	struct print_value *v = &p->values[id];
	*v = (struct print_value){
	        .text = name, .bare = name, .is_name = true, .uses = v->uses, .definition = v->definition};
}

/* The type of a declaration, and a blank before the name except after a `*`. */
static void type_before_name(struct print *p, struct kb_type t, struct space_pointer to, struct buf *out)
{
	p->dialect->type(p, t, to, out);
	if (out->len && out->data[out->len - 1] != '*')
		buf_char(out, ' ');
}

/* Prints `const type name = bare;` and uses the name for the value from now on. */
static void print_assign_name(struct print *p, uint32_t id, const char *bare)
{
	const struct kb_type t = p->f->types[id];
	const char *prefix = t.scalar == KB_PTR ? "p" : t.scalar == KB_BOOL ? "is" : t.lanes > 1 ? "v" : "t";
	const char *name = print_local_name(p, arena_printf(p->arena, "%s%u", prefix, ++p->n_temporaries));
	struct buf line;
	buf_init(&line);
	buf_str(&line, "const ");
	if (t.scalar == KB_PTR)
		buf_clear(&line); /* the const of a pointer type qualifies its target */
	type_before_name(p, t, print_value_space(p, id), &line);
	buf_printf(&line, "%s = %s;", name, bare);
	print_line(p, "%s", line.data);
	p->body.failed |= line.failed;
	buf_destroy(&line);
	print_name_value(p, id, name);
}

static bool reads_var(const struct print_value *v, uint32_t var)
{
	for (size_t i = 0; i < v->n_gets; i++)
		if (v->gets[i] == var)
			return true;
	return false;
}

/* Assigns pending values to names, in order of definition, so that an effect that follows cannot change them: all,
 * those that read memory, or those that read a variable. */
static void print_flush(struct print *p, enum print_flush which, uint32_t var)
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

/* ---- definitions ---- */

/* Sets the variables that v reads: those of its pending operands, whose text becomes part of its own, and that of a
 * GET. An operand with a name was evaluated before. Without memory none; the arena reports it. */
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

/* True if the text of the instruction's value reads memory: a load, or a pending operand that does. */
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

/* True for float products that are an operand of arithmetic: inside of a sum's expression the compiler might contract
 * them to fma, which rounds once instead of twice. */
static bool must_have_name(const struct kb_inst *i, const struct print_value *v)
{
	bool product = i->op == KBO_BIN && i->bin == KB_MUL &&
	               (i->type.scalar == KB_F32 || i->type.scalar == KB_F64);
	return product && (v->user == KBO_BIN || v->user == KBO_UN || v->user == KBO_FMA);
}

/* Sets the texts of v by the dialect's function for the operation: `bare` for places that take any expression, `text`
 * with parentheses where it is not primary. */
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

/* Defines a value by its expression: pending if it is used once and short, so that it becomes a part of its user;
 * otherwise assigned to a name. Literals are repeated at each use. */
static void print_define(struct print *p, const struct kb_inst *i)
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

/* ---- control flow ---- */

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

/* A comment on one line. Comment delimiters inside it get a space, so that they do not end it. */
static void comment(const char *text, struct buf *out)
{
	buf_str(out, "/* ");
	for (const char *s = text; *s; s++) {
		bool is_delimiter = (s[0] == '*' && s[1] == '/') || (s[0] == '/' && s[1] == '*');
		buf_char(out, *s == '\n' || *s == '\r' ? ' ' : *s);
		if (is_delimiter)
			buf_char(out, ' ');
	}
	buf_str(out, " */\n");
}

/* A comment of the generator, or by the dialect the location in the model. */
static void print_comment(struct print *p, const struct kb_inst *i)
{
	if (p->dialect->source_loc && i->flags & KB_SOURCE_LOC) {
		p->dialect->source_loc(p, i->name);
		return;
	}
	buf_fill(&p->body, '\t', (size_t)p->depth);
	comment(i->name, &p->body);
}

/* ---- blocks ---- */

/* The head of a for loop. A bound that is pending is assigned to a name first, to be evaluated once, not in each
 * iteration; the begin is evaluated once anyway. The index belongs to the block inside, so its name is taken after the
 * block is opened. */
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
	type_before_name(p, i->type, (struct space_pointer){SPACE_NONE, false}, &head);
	buf_printf(&head, "%s = %s; %s < %s; ", name, print_bare_arg(p, i, 0), name, print_arg(p, i, 1));
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

/* Prints an instruction with a side effect as a statement; pending loads, but for its own operands, are evaluated
 * before it, since it may write what they read. A result is assigned to a name at once, or cast to void if unused. */
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

/* Declares a variable that is read (others are left out); without an initial value as 0, since C forbids reading it
 * otherwise. */
static void print_var(struct print *p, const struct kb_inst *i)
{
	struct print_var *v = &p->vars[i->result];
	struct buf line;
	if (!v->is_read)
		return;
	print_consume(p, i);
	v->name = print_local_name(p, i->name ? i->name : "x");
	buf_init(&line);
	type_before_name(p, i->type,
	                 p->spaces.funcs ? p->spaces.funcs[p->f_number].vars[i->result]
	                                 : (struct space_pointer){SPACE_NONE, true},
	                 &line);
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

/* Declares an array; its value is the text of its address. */
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

/* Prints an instruction by the function of its opcode. */
static void print_control(struct print *p, const struct kb_inst *i)
{
	static void (*const print[])(struct print *, const struct kb_inst *) = {
#define KB_CFAMILY(op, name, effect) [KBO_##op] = print_##name,
#define KB_OP(op, name, effect)      [KBO_##op] = print_value,
#include "backends/kb/kb_ops.def"
	};
	print[i->op](p, i);
}

/* ---- the file ---- */

bool print_once(struct print *p, const char *name)
{
	if (strmap_has(&p->needed, name))
		return false;
	return strmap_set(&p->needed, name, p);
}

/* ---- functions ---- */

/* A function of the module calls it or takes its address; else it is marked unused, against compilers' warnings. */
static bool is_used(const struct print *p, const char *name)
{
	for (size_t i = 0; i < kb_func_count(p->m); i++) {
		const struct kb_func *f = kb_func_at(p->m, i);
		for (size_t k = 0; k < f->n_insts; k++) {
			const struct kb_inst *inst = &f->insts[k];
			bool names = inst->op == KBO_CALL || inst->op == KBO_FUNC_ADDR;
			if (names && strcmp(inst->name, name) == 0)
				return true;
		}
	}
	return false;
}

/* Legalizes function `number` for the dialect (operations that it lacks) and prepares its tables and parameter names.
 * False without memory. */
static bool begin_function(struct print *p, size_t number)
{
	const struct kb_func *f = kb_legalize(kb_func_at(p->m, number), p->arena, &p->dialect->has);
	p->f = f;
	p->f_number = number;
	p->values = ARENA_ARRAY(p->arena, struct print_value, f->n_values + 1);
	p->vars = ARENA_ARRAY(p->arena, struct print_var, f->n_vars + 1);
	p->pending = ARENA_ARRAY(p->arena, uint32_t, f->n_values + 1);
	p->alignments = kb_alignments(f, p->arena);
	p->n_pending = 0;
	if (!p->alignments || !p->values || !p->vars || !p->pending || !print_locals_begin(p))
		return false;
	for (size_t i = 0; i < f->n_insts && f->insts[i].op == KBO_PARAM; i++)
		print_name_value(p, f->insts[i].result, print_local_name(p, f->insts[i].name));
	return true;
}

void print_params(struct print *p, const char *first, const char *next, struct buf *out)
{
	size_t n = 0;
	for (; n < p->f->n_insts && p->f->insts[n].op == KBO_PARAM; n++) {
		const struct kb_inst *i = &p->f->insts[n];
		buf_str(out, n ? next : first);
		type_before_name(p, i->type, print_value_space(p, i->result), out);
		if (i->type.scalar == KB_PTR && i->flags & KB_NOALIAS)
			buf_str(out, "restrict ");
		buf_str(out, print_value_name(p, i->result));
	}
	buf_str(out, n ? ")" : "void)");
}

/* Prints the head of the function; comments that follow the parameters go before it. Declares it, except kernels, which
 * nothing calls; marks an internal one without references as unused, against compilers' warnings. Returns the position
 * of the first instruction after parameters and comments. */
static size_t print_head(struct print *p, struct buf *declarations)
{
	struct buf head;
	size_t at = 0;
	while (at < p->f->n_insts && p->f->insts[at].op == KBO_PARAM)
		at++;
	for (; at < p->f->n_insts && p->f->insts[at].op == KBO_COMMENT; at++)
		print_comment(p, &p->f->insts[at]);
	buf_init(&head);
	p->dialect->head(p, p->f, p->f->linkage != KB_INTERNAL || is_used(p, p->f->name), &head);
	print_line(p, "%s", head.data);
	print_line(p, "{");
	if (p->f->linkage != KB_KERNEL)
		buf_printf(declarations, "%s;\n", head.data);
	p->body.failed |= head.failed;
	buf_destroy(&head);
	return at;
}

/* Prints the instructions from `at` on. Unused parameters are cast to void, since compilers warn about them; a
 * function that does not end with a return gets one, which is never reached. */
static void print_body(struct print *p, size_t at)
{
	const struct kb_func *f = p->f;
	print_open(p);
	for (size_t i = 0; i < f->n_insts && f->insts[i].op == KBO_PARAM; i++)
		if (p->values[f->insts[i].result].uses == 0)
			print_line(p, "(void)%s;", p->values[f->insts[i].result].text);
	for (; at < f->n_insts && !p->failed; at++)
		print_control(p, &f->insts[at]);
	print_flush(p, FLUSH_ALL, 0);
	bool ends_with_return = f->n_insts > 0 && f->insts[f->n_insts - 1].op == KBO_RETURN;
	if (f->result != KB_VOID && !ends_with_return)
		print_line(p, "return 0;");
	print_close(p);
	print_line(p, "}\n");
}

/* Prints one function; its strings are freed at its end. Each kernel is inside of #ifndef WITHOUT_name, so that a host
 * can leave out kernels that it does not run. */
static void print_func(struct print *p, size_t number, struct buf *declarations)
{
	struct arena local, *arena = p->arena;
	arena_init(&local);
	/* for strings of one function; identifiers of the file are in the arena of their maps */
	p->arena = &local;
	if (begin_function(p, number)) {
		const char *missing = p->dialect->missing_feature(p, p->f);
		bool is_kernel = p->f->linkage == KB_KERNEL;
		if (missing)
			print_fail(p, missing);
		print_count_uses(p);
		if (is_kernel)
			print_line(p, "#ifndef WITHOUT_%s", print_global(p, p->f->name));
		size_t at = print_head(p, declarations);
		print_body(p, at);
		if (is_kernel)
			print_line(p, "#endif\n");
	}
	p->body.failed |= arena_failed(&local);
	arena_destroy(&local);
	p->arena = arena;
}

/* ---- the file ---- */

/* All data of the module and of the options. */
static void print_data(struct print *p, struct buf *out)
{
	for (size_t i = 0; i < kb_data_count(p->m); i++) {
		const struct kb_data_item *d = kb_data_at(p->m, i);
		p->dialect->data(p, d, print_global(p, d->name), out);
	}
	for (size_t i = 0; i < p->options->n_data; i++) {
		const struct cfamily_data *d = &p->options->data[i];
		struct kb_data_item item = {d->name, KB_INTERNAL, d->bytes, d->n, 64};
		p->dialect->data(p, &item, print_global(p, d->name), out);
	}
}

static void append_part(struct buf *out, const struct buf *text)
{
	if (text->len == 0 && !buf_failed(text))
		return;
	buf_char(out, '\n');
	buf_append(out, text);
}

/* Prints the functions first, as they request types and helpers, then puts the parts of the file together in the order
 * that C requires. */
static enum tfmc_status print_file(struct print *p, struct buf *out)
{
	struct buf declarations, prelude;
	if (!print_names_begin(p))
		return TFMC_NO_MEMORY;
	buf_init(&declarations);
	buf_init(&prelude);
	for (size_t i = 0; i < kb_func_count(p->m) && !p->failed; i++)
		print_func(p, i, &declarations);
	if (!p->failed) {
		p->dialect->prelude(p, &prelude);
		if (p->options->title)
			comment(p->options->title, out);
		buf_append(out, &prelude);
		append_part(out, &p->types);
		append_part(out, &p->helpers);
		append_part(out, &declarations);
		buf_char(out, '\n');
		print_data(p, out);
		append_part(out, &p->body);
	}
	bool failed = buf_failed(out) || buf_failed(&prelude) || p->scratch.failed || arena_failed(p->arena);
	buf_destroy(&declarations);
	buf_destroy(&prelude);
	return failed ? TFMC_NO_MEMORY : p->failed ? TFMC_INVALID : TFMC_OK;
}

enum tfmc_status cfamily_print(struct diag_context *cx, const struct kb_module *m,
                               const struct cfamily_options *options, struct buf *out)
{
	struct arena arena;
	struct print p = {.cx = cx, .m = m, .options = options, .arena = &arena};
	p.dialect = options->dialect == CFAMILY_C ? cfamily_c() : cfamily_opencl();
	arena_init(&arena);
	buf_init(&p.types);
	buf_init(&p.helpers);
	buf_init(&p.body);
	buf_init(&p.scratch);
	enum tfmc_status status = TFMC_OK;
	if (p.dialect->has_spaces)
		status = space_infer(cx, m, &arena, &p.spaces);
	if (status == TFMC_OK)
		status = print_file(&p, out);
	buf_destroy(&p.types);
	buf_destroy(&p.helpers);
	buf_destroy(&p.body);
	buf_destroy(&p.scratch);
	arena_destroy(&arena);
	return status;
}

/* The block under the line "@@ NAME: .." or "@@ NAME", up to the blank line before the next; *n: its length. "" if
 * there is none. */
static const char *find_block(const char *text, const char *block, size_t *n)
{
	const char *at = strstr(text, "\n@@ ");
	size_t len = strlen(block);
	for (; at; at = strstr(at + 1, "\n@@ ")) {
		const char *heading = at + strlen("\n@@ ");
		if (strncmp(heading, block, len) != 0 || !strchr(":\n", heading[len]))
			continue;
		const char *end = strstr(heading, "\n\n@@ "), *first = strchr(heading, '\n') + 1;
		*n = end ? (size_t)(end + 1 - first) : strlen(first);
		return first;
	}
	*n = 0;
	return "";
}

/* $N: the helper's name; $1 .. $9: its arguments; other letters: the dialect's. A pointer type, which ends in *, takes
 * the blank after it. */
void print_block(struct print *p, const char *block, const struct print_helper *h, struct buf *out)
{
	size_t n;
	const char *text = find_block(p->dialect->helpers, block, &n);
	for (size_t i = 0; i < n; i++) {
		if (text[i] != '$') {
			buf_char(out, text[i]);
			continue;
		}
		char letter = text[++i];
		const char *value = letter == 'N'                    ? h->name
		                    : letter >= '1' && letter <= '9' ? h->args[letter - '1']
		                                                     : p->dialect->placeholder(p, h, letter);
		size_t len = strlen(value);
		buf_bytes(out, value, len);
		if (len && value[len - 1] == '*' && text[i + 1] == ' ')
			i++;
	}
}

const char *print_helper(struct print *p, const char *block, const struct print_helper *h)
{
	if (print_once(p, h->name))
		print_block(p, block, h, &p->helpers);
	return h->name;
}
