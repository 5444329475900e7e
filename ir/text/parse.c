/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser of the text form: tokens, declarations of a module, the entry ir_parse. Text may be hostile: depth,
 * counts and sizes are limited, and the first error ends the parse.
 */
#include "ir/text/text.h"

#include <string.h>

#include "ir/text/parser.h"
#include "ir/support/number.h"
#include "ir/support/utf8.h"
#include "ir/support/strmap.h"

/* ---- tokens ---- */

bool parse_fail(struct parser *p, struct loc at, enum diag_code code, const char *fmt, ...)
{
	va_list ap;
	if (p->failed || p->lex.failed) {
		p->failed = true;
		return false;
	}
	p->failed = true;
	va_start(ap, fmt);
	diag_error(p->cx, at, code, "%s", arena_vprintf(&p->arena, fmt, ap));
	va_end(ap);
	return false;
}

bool parse_unknown(struct parser *p, const struct tok *t, const char *what, const char *const *candidates,
                   size_t n)
{
	return parse_fail(p, t->loc, DIAG_TIR_NAME, "unknown %s '%s'%s", what, t->text,
	                  did_you_mean(&p->arena, t->text, candidates, n));
}

int parse_lookup(struct parser *p, const struct tok *t, const char *what, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], t->text) == 0)
			return (int)i;
	parse_unknown(p, t, what, names, n);
	return -1;
}

bool parse_one_of(struct parser *p, const char *expected, const char *what, const char *const *names,
                  size_t n, int *out)
{
	struct tok t;
	*out = 0;
	return parse_token(p, TOK_WORD, expected, &t) && (*out = parse_lookup(p, &t, what, names, n)) >= 0;
}

void parse_next(struct parser *p)
{
	p->tok = lex_next(&p->lex);
}

bool parse_at(const struct parser *p, int punct)
{
	return p->tok.kind == TOK_PUNCT && p->tok.punct == punct;
}

bool parse_at_word(const struct parser *p, const char *word)
{
	return p->tok.kind == TOK_WORD && strcmp(p->tok.text, word) == 0;
}

bool parse_accept(struct parser *p, int punct)
{
	bool found = parse_at(p, punct);
	if (found)
		parse_next(p);
	return found;
}

bool parse_accept_word(struct parser *p, const char *word)
{
	bool found = parse_at_word(p, word);
	if (found)
		parse_next(p);
	return found;
}

static bool fail_expected(struct parser *p, const char *what)
{
	if (p->tok.kind == TOK_END)
		return parse_fail(p, p->tok.loc, DIAG_TIR_SYNTAX, "expected %s, the text ends here", what);
	return parse_fail(p, p->tok.loc, DIAG_TIR_SYNTAX, "expected %s, found '%s'", what, p->tok.text);
}

bool parse_expect(struct parser *p, int punct)
{
	char single[] = {'\'', (char)punct, '\'', '\0'};
	if (parse_accept(p, punct))
		return true;
	return fail_expected(p, punct == PUNCT_ARROW ? "'->'" : punct == PUNCT_RANGE ? "'..'" : single);
}

bool parse_expect_word(struct parser *p, const char *word)
{
	return parse_accept_word(p, word) || fail_expected(p, arena_printf(&p->arena, "'%s'", word));
}

bool parse_token(struct parser *p, enum tok_kind kind, const char *what, struct tok *out)
{
	*out = p->tok;
	if (p->tok.kind != kind)
		return fail_expected(p, what);
	parse_next(p);
	return true;
}

bool parse_int(struct parser *p, int64_t *out)
{
	bool minus = parse_accept(p, '-');
	struct tok t;
	*out = 0;
	if (!parse_token(p, TOK_NUMBER, "an integer", &t))
		return false;
	const char *text = minus ? arena_printf(&p->arena, "-%s", t.text) : t.text;
	if (number_parse_i64(text, strlen(text), out))
		return true;
	return parse_fail(p, t.loc, DIAG_TIR_SYNTAX, "'%s' is not an integer of 64 bits", text);
}

bool parse_float(struct parser *p, double *out)
{
	bool minus = parse_accept(p, '-');
	struct tok t = p->tok;
	*out = 0.0;
	if (t.kind != TOK_NUMBER && !parse_at_word(p, "inf") && !parse_at_word(p, "nan"))
		return fail_expected(p, "a number");
	parse_next(p);
	const char *text = minus ? arena_printf(&p->arena, "-%s", t.text) : t.text;
	if (number_parse_f64(text, strlen(text), out))
		return true;
	return parse_fail(p, t.loc, DIAG_TIR_SYNTAX, "'%s' is not a number", text);
}

bool parse_enter(struct parser *p)
{
	if (p->depth++ < PARSE_DEPTH_MAX)
		return true;
	return parse_fail(p, p->tok.loc, DIAG_LIMIT, "expressions are nested deeper than %d",
	                  PARSE_DEPTH_MAX);
}

void parse_leave(struct parser *p)
{
	p->depth--;
}

/* ---- declarations ---- */

static bool parse_dim_decl(struct parser *p)
{
	struct tok name;
	int64_t lo, hi;
	if (!parse_token(p, TOK_WORD, "the name of a dim", &name) || !parse_expect_word(p, "in") ||
	    !parse_expect(p, '[') || !parse_int(p, &lo) || !parse_expect(p, ',') || !parse_int(p, &hi) ||
	    !parse_expect(p, ']'))
		return false;
	if (strchr(name.text, '.') != NULL)
		return parse_fail(p, name.loc, DIAG_NAME, "a dim's name has no point");
	if (ir_dims_find(p->m->dims, name.text) >= 0)
		return parse_fail(p, name.loc, DIAG_NAME_CLASH, "the dim %s is declared twice", name.text);
	if (!ir_dims_declare(p->m->dims, name.text, lo, hi))
		return parse_fail(p, name.loc, DIAG_DIM_BOUND,
		                  "bounds [%lld,%lld] of dim %s: 0 <= low <= high < 2147483648 must hold",
		                  (long long)lo, (long long)hi, name.text);
	return true;
}

/* `as bf16`, if present. */
static bool parse_as_format(struct parser *p, enum ir_format *out)
{
	*out = FORMAT_PLAIN;
	return !parse_accept_word(p, "as") || parse_format(p, out);
}

static bool parse_weight_decl(struct parser *p)
{
	struct ir_weight w = {.loc = {.at = p->tok.loc}};
	struct tok name;
	if (!parse_token(p, TOK_SYMBOL, "@name", &name) || !parse_expect(p, ':') || !parse_type(p, &w.type) ||
	    !parse_encoding(p, &w.encoding) || !parse_as_format(p, &w.format))
		return false;
	w.name = name.text;
	if (w.type->kind != IR_TENSOR)
		return parse_fail(p, name.loc, DIAG_IR_TYPE, "the weight @%s is not a tensor", name.text);
	if (ir_find_weight(p->m, name.text) != NULL)
		return parse_fail(p, name.loc, DIAG_NAME_CLASH, "the weight @%s is declared twice",
		                  name.text);
	if (parse_accept(p, '=') && !parse_wexpr(p, &w.init))
		return false;
	if (!parse_loc(p, &w.loc))
		return false;
	return ir_add_weight(p->m, &w) != NULL || parse_fail(p, name.loc, DIAG_INTERNAL, "out of memory");
}

static bool parse_state_decl(struct parser *p)
{
	struct ir_loc loc = {.at = p->tok.loc};
	const struct ir_type *type;
	enum ir_encoding encoding;
	struct tok name;
	if (!parse_token(p, TOK_SYMBOL, "@name", &name) || !parse_expect(p, ':') || !parse_type(p, &type))
		return false;
	if (!parse_encoding(p, &encoding) || !parse_loc(p, &loc))
		return false;
	if (type->kind != IR_TENSOR)
		return parse_fail(p, name.loc, DIAG_IR_TYPE, "the state @%s is not a tensor", name.text);
	if (encoding == ENC_PANEL16 && (type->rank < 3 || !ir_dtype_allows_panels(type->dtype)))
		return parse_fail(p, name.loc, DIAG_UNSUPPORTED,
		                  "not supported yet: a state #panel16 that is no f32, f16 or bf16 of three "
		                  "axes or more");
	if (ir_find_state(p->m, name.text) != NULL)
		return parse_fail(p, name.loc, DIAG_NAME_CLASH, "the state @%s is declared twice", name.text);
	return (ir_add_state(p->m, name.text, type, loc) != NULL &&
	        ir_set_state_encoding(p->m, name.text, encoding)) ||
	       parse_fail(p, name.loc, DIAG_INTERNAL, "out of memory");
}

static bool parse_declaration(struct parser *p)
{
	static const char *const words[] = {"dim", "weight", "state", "func"};
	struct tok t;
	if (!parse_token(p, TOK_WORD, "'dim', 'weight', 'state' or 'func'", &t))
		return false;
	if (strcmp(t.text, "dim") == 0)
		return parse_dim_decl(p);
	if (strcmp(t.text, "weight") == 0)
		return parse_weight_decl(p);
	if (strcmp(t.text, "state") == 0)
		return parse_state_decl(p);
	if (strcmp(t.text, "func") == 0)
		return parse_func(p);
	return parse_unknown(p, &t, "declaration", words, TFMC_COUNT(words));
}

static bool parse_stage(struct parser *p, enum ir_stage *out)
{
	static const char *const words[] = {"graph", "groups", "plan"};
	int i;
	if (!parse_accept_word(p, "stage"))
		return true;
	if (!parse_expect(p, '=') || !parse_one_of(p, "a stage", "stage", words, TFMC_COUNT(words), &i))
		return false;
	*out = (enum ir_stage)i;
	return true;
}

/* `module "name" stage=..`, which may be absent. */
static bool parse_header(struct parser *p)
{
	struct tok name = {.text = "module"};
	enum ir_stage stage = STAGE_GRAPH;
	if (parse_accept_word(p, "module"))
		if (!parse_token(p, TOK_STRING, "the name of the module in quotes", &name) ||
		    !parse_stage(p, &stage))
			return false;
	p->m = ir_module_create(name.text);
	if (p->m == NULL)
		return parse_fail(p, p->tok.loc, DIAG_INTERNAL, "out of memory");
	p->m->stage = stage;
	p->m->tir_source = p->lex.source;
	return true;
}

/* ---- the text ---- */

static bool check_text(struct diag_context *cx, uint32_t source, const char *text, size_t len)
{
	size_t bad = utf8_check(text, len);
	if (bad == len)
		return true;
	uint32_t line = 1;
	for (size_t i = 0; i < bad; i++)
		line += text[i] == '\n';
	diag_error(cx, (struct loc){source, line, 1, 0}, DIAG_ENCODING, "a byte that is not UTF-8");
	return false;
}

static enum tfmc_status parse_text(struct parser *p, struct ir_module **out)
{
	parse_next(p);
	bool ok = parse_header(p);
	while (ok && p->tok.kind != TOK_END)
		ok = parse_declaration(p);
	bool memory = !arena_failed(&p->arena) && (p->m == NULL || !arena_failed(&p->m->arena));
	if (ok && !p->lex.failed && memory) {
		*out = p->m;
		return TFMC_OK;
	}
	ir_module_destroy(p->m);
	return memory ? TFMC_INVALID : TFMC_NO_MEMORY;
}

enum tfmc_status ir_parse(struct diag_context *cx, const char *file_name, const char *text, size_t len,
                          struct ir_module **out)
{
	struct parser p = {.cx = cx};
	*out = NULL;
	uint32_t source = diag_add_source(cx, file_name, text, len);
	if (source == 0)
		return TFMC_NO_MEMORY;
	if (len > PARSE_TEXT_MAX) {
		diag_error(cx, (struct loc){source, 0, 0, 0}, DIAG_LIMIT, "the text has more than %u bytes",
		           PARSE_TEXT_MAX);
		return TFMC_INVALID;
	}
	if (!check_text(cx, source, text, len))
		return TFMC_INVALID;
	arena_init(&p.arena);
	strmap_init(&p.names, &p.arena);
	lex_init(&p.lex, cx, &p.arena, source, text, len);
	enum tfmc_status status = parse_text(&p, out);
	arena_destroy(&p.arena);
	return status;
}
