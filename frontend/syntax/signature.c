/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures of operators and functions: the table made from calls.def, printing (for the language reference, and for
 * the note of an error of a call), and matching of given arguments.
 * A class is a bit, so that one table serves each use of it; a number counts the rows of the wanted classes.
 */
#include "frontend/syntax/signature.h"
#include "ir/support/strmap.h"

#include <string.h>

static const struct {
	enum call_class class;
	struct signature signature;
} calls[] = {
#define OPERATOR(name, lowering, doc, args) {CALL_OPERATOR, SIGNATURE(name, doc, args)},
#define INTERNAL(name, lowering, doc, args) {CALL_INTERNAL, SIGNATURE(name, doc, args)},
#define SCALING(name, kind, doc, args)      {CALL_SCALING, SIGNATURE(name, doc, args)},
#define FUNCTION(name, doc, args)           {CALL_FUNCTION, SIGNATURE(name, doc, args)},
#define FORM(name, doc, args)               {CALL_FORM, SIGNATURE(name, doc, args)},
#define QUERY(name, doc, args)              {CALL_QUERY, SIGNATURE(name, doc, args)},
#define QUERY_FORM(name, doc, args)         {CALL_QUERY_FORM, SIGNATURE(name, doc, args)},
#include "frontend/syntax/calls.def"
};

const struct signature *signature_at(unsigned classes, size_t i)
{
	for (size_t k = 0; k < TFMC_COUNT(calls); k++)
		if ((calls[k].class & classes) != 0 && i-- == 0)
			return &calls[k].signature;
	return NULL;
}

const struct signature *signature_of(unsigned classes, const char *name, size_t *number)
{
	*number = 0;
	for (size_t k = 0; k < TFMC_COUNT(calls); k++) {
		if ((calls[k].class & classes) == 0)
			continue;
		if (strcmp(calls[k].signature.name, name) == 0)
			return &calls[k].signature;
		++*number;
	}
	return NULL;
}

static bool is_variadic(const struct argument *a)
{
	return strcmp(a->name, "..") == 0;
}

size_t signature_length(const struct signature *s)
{
	size_t n = 0;
	while (s->args[n].name != NULL && !is_variadic(&s->args[n]))
		n++;
	return n;
}

int signature_find(const struct signature *s, const char *name)
{
	for (size_t i = 0; i < signature_length(s); i++) {
		if (strcmp(s->args[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

/* Prints the default of an argument, a literal or a word; `none` for an argument that may be absent. */
static void print_default(struct buf *out, const struct expr *e)
{
	struct value v = {.kind = VALUE_NONE};
	if (e->kind == EX_INT)
		v = value_int(e->i);
	else if (e->kind == EX_FLOAT)
		v = value_float(e->f);
	else if (e->kind == EX_BOOL)
		v = value_bool(e->i != 0);
	if (v.kind == VALUE_NONE)
		buf_str(out, e->kind == EX_NAME ? e->text : "none");
	else
		value_print(out, NULL, &v);
}

/* No type is printed for a tensor, the usual argument, nor for `..`. def NULL: required; an argument that may be absent
 * has EX_NONE, printed as `= none`. */
void signature_print(struct buf *out, const struct signature *s)
{
	static const char *const types[] = {
#define TYPE(id, name) [ARGUMENT_##id] = name,
	        ARGUMENT_TYPES(TYPE)
#undef TYPE
	};
	buf_printf(out, "%s(", s->name);
	for (const struct argument *a = s->args; a->name != NULL; a++) {
		buf_printf(out, "%s%s", a == s->args ? "" : ", ", a->name);
		if (a->type != ARGUMENT_TENSOR && !is_variadic(a))
			buf_printf(out, ": %s", types[a->type]);
		if (a->def != NULL) {
			buf_str(out, " = ");
			print_default(out, a->def);
		}
	}
	buf_char(out, ')');
}

/* ---- matching ---- */

/* Reports an error of a call at `at`, or at the call if it has no line. A note has the location of the definition in
 * the model, or the signature of a row of calls.def. Returns false. */
static bool report_bad_use(const struct signature_use *use, const struct signature *s, struct loc at,
                           const char *what)
{
	bool has_path = use->path != NULL && use->path[0] != '\0';
	const char *open = has_path ? " (" : "", *close = has_path ? ")" : "";
	diag_error(use->cx, at.line != 0 ? at : use->loc, DIAG_ARGUMENTS, "'%.63s' %s%s%s%s", s->name, what,
	           open, has_path ? use->path : "", close);
	if (s->loc.line != 0) {
		diag_note(use->cx, s->loc, "it is defined here");
		return false;
	}
	struct buf text;
	buf_init(&text);
	signature_print(&text, s);
	diag_note(use->cx, LOC_NONE, "it is written %s", text.data);
	buf_destroy(&text);
	return false;
}

/* "; did you mean NAME?" of a similar argument of the signature, or "". */
static const char *suggest_argument(const struct signature_use *use, const struct signature *s,
                                    const char *name)
{
	size_t n = signature_length(s);
	const char **names = ARENA_ARRAY(use->arena, const char *, n + 1);
	for (size_t i = 0; names != NULL && i < n; i++)
		names[i] = s->args[i].name;
	return names == NULL ? "" : did_you_mean(use->arena, name, names, n);
}

/* Positional arguments come first (the parser has checked it), then named ones in any order. Missing arguments are
 * reported only if all others fit, as a misspelled name is also a missing one. With `..` further positional ones are
 * left to the caller. */
bool signature_match(const struct signature_use *use, const struct signature *s,
                     const struct given_argument *given, size_t n, const void **values)
{
	struct arena *a = use->arena;
	size_t n_args = signature_length(s), n_placed = 0;
	bool ok = true;
	while (n_placed < n && given[n_placed].name == NULL)
		n_placed++;
	if (n_placed > n_args && s->args[n_args].name == NULL)
		return report_bad_use(use, s, given[n_args].loc,
		                      arena_printf(a, "has %zu argument%s, found %zu", n_args,
		                                   n_args == 1 ? "" : "s", n_placed));
	for (size_t i = 0; i < n_args; i++)
		values[i] = i < n_placed ? given[i].value : NULL;
	for (size_t i = n_placed; i < n; i++) {
		const struct given_argument *g = &given[i];
		int at = signature_find(s, g->name);
		if (at < 0)
			ok = report_bad_use(use, s, g->loc,
			                    arena_printf(a, "has no argument '%s'%s", g->name,
			                                 suggest_argument(use, s, g->name)));
		else if (values[at] != NULL)
			ok = report_bad_use(use, s, g->loc,
			                    arena_printf(a, "gets the argument '%s' twice", g->name));
		else
			values[at] = g->value;
	}
	for (size_t i = 0, n_checked = ok ? n_args : 0; i < n_checked; i++) {
		if (values[i] == NULL && s->args[i].def == NULL)
			ok = report_bad_use(use, s, use->loc,
			                    arena_printf(a, "needs the argument '%s'", s->args[i].name));
	}
	return ok;
}

/* values[i]: argument i or its default. */
const struct expr **signature_match_call(const struct signature_use *use, const struct signature *s,
                                         const struct expr *call)
{
	size_t n = expr_n_children(call), n_args = signature_length(s);
	struct given_argument *given = ARENA_ARRAY(use->arena, struct given_argument, n + 1);
	const void **matched = ARENA_ARRAY(use->arena, const void *, n_args + 1);
	const struct expr **values = ARENA_ARRAY(use->arena, const struct expr *, n_args + 1);
	if (given == NULL || matched == NULL || values == NULL)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		const struct expr *value = expr_child(call, i);
		const struct expr_keyword *k = i < call->n_args ? NULL : &call->keywords[i - call->n_args];
		given[i] = (struct given_argument){k == NULL ? NULL : k->name,
		                                   k == NULL ? value->loc : k->loc, value};
	}
	if (!signature_match(use, s, given, n, matched))
		return NULL;
	for (size_t i = 0; i < n_args; i++)
		values[i] = matched[i] != NULL ? matched[i] : s->args[i].def;
	return values;
}
