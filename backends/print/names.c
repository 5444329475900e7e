/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifiers in the text. Exported names are unchanged; in others, characters other than letters and digits become
 * underscores, and a number makes them distinct from all identifiers that are visible in the same scope.
 */
#include "backends/print/print.h"

#include <string.h>

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

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* `name` as an identifier. */
static const char *sanitize(struct print *p, const char *name)
{
	size_t n = strlen(name);
	char *text = arena_alloc(p->arena, n + 2);
	if (!text)
		return "_";
	size_t at = 0;
	if (!is_letter(name[0]))
		text[at++] = '_';
	for (size_t i = 0; i < n; i++)
		text[at++] = is_letter(name[i]) || (name[i] >= '0' && name[i] <= '9') ? name[i] : '_';
	text[at] = '\0';
	return text;
}

/* ---- file scope ---- */

/* A new identifier at file scope. */
static const char *print_file_name(struct print *p, const char *name)
{
	const char *base = sanitize(p, name), *text = base;
	for (int i = 2; strmap_has(&p->taken, text) || is_reserved(p, text); i++)
		text = arena_printf(p->arena, "%s_%d", base, i);
	(void)strmap_set(&p->taken, text, p);
	return text;
}

static void add_global(struct print *p, const char *name, bool is_exported)
{
	if (strmap_has(&p->globals, name))
		return;
	const char *text = is_exported ? name : print_file_name(p, name);
	if (is_exported)
		(void)strmap_set(&p->taken, name, p);
	(void)strmap_set(&p->globals, name, (void *)(uintptr_t)text);
}

/* Exported names are added first, so that no internal one is given the same identifier. */
bool print_names_begin(struct print *p)
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

bool print_locals_begin(struct print *p)
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
		text = arena_printf(p->arena, "%s%s%d", base, is_letter(base[strlen(base) - 1]) ? "" : "_",
		                    i);
	(void)strmap_set(&p->locals, text, p->blocks[p->depth]);
	return text;
}

void print_open(struct print *p)
{
	open_block(p, p->depth + 1);
}

void print_close(struct print *p)
{
	bool *is_open = p->blocks[p->depth--];
	if (is_open)
		*is_open = false;
}
