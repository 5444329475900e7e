/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of the language reference (frontend/manual/reference), printed from the tables: keys of each place,
 * parameters of each step, operators, functions, sources of weights, limits. A list is a line with its title, a
 * colon, and an item for each entry; a test looks for each in the pages.
 */
#include <string.h>

#include "frontend/expr/signature.h"
#include "frontend/model/model.h"
#include "frontend/model/schema.h"
#include "frontend/steps/template.h"
#include "frontend/weights/pattern.h"
#include "ir/support/memory.h"

#define WIDEST 128 /* columns of a line */

/* A line with the title of a list. */
static void begin(struct buf *out, const char *title, const char *name)
{
	const char *tick = name[0] == '\0' ? "" : "`";
	buf_printf(out, "%s%s%s%s%s:\n", out->len == 0 ? "" : "\n", title, tick, name, tick);
}

/* One entry of a list, in lines of some length. */
static void item(struct buf *out, const char *text)
{
	size_t column = 0;
	for (const char *word = text; *word != '\0';) {
		size_t n = strcspn(word, " ");
		if (column > 0 && column + 1 + n > WIDEST) {
			buf_str(out, "\n ");
			column = 1;
		}
		buf_printf(out, "%s%.*s", word == text ? "- " : " ", (int)n, word);
		column += n + (word == text ? 2 : 1);
		word += n + (word[n] == ' ');
	}
	buf_char(out, '\n');
}

static void print_item(struct buf *out, const char *fmt, ...) TFMC_PRINTF(2, 3);
static void print_item(struct buf *out, const char *fmt, ...)
{
	struct buf text;
	va_list ap;
	buf_init(&text);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	item(out, text.data);
	buf_destroy(&text);
}

/* ---- keys ---- */

static bool is_activation(const struct schema_key *k)
{
	return strncmp(k->words, "identity ", 9) == 0;
}

/* "int, at least 1"; "float, above 0, at most 1"; "`mlp` `gated`" */
static void print_type(struct buf *out, const struct schema_key *k)
{
	const char *type = schema_type_name(k->type), *words = k->words;
	bool is_number = k->type == KEY_INT || k->type == KEY_FLOAT;
	if (k->type == KEY_WORD && words[0] != '\0' && !is_activation(k)) {
		for (size_t n; *words != '\0'; words += n + (words[n] == ' ')) {
			n = strcspn(words, " ");
			buf_printf(out, "%s`%.*s`", words == k->words ? "" : " ", (int)n, words);
		}
		return;
	}
	buf_str(out, is_activation(k) ? "activation" : type);
	if (!is_number || words[0] == '\0')
		return;
	bool is_open = words[0] == '>';
	size_t n = strcspn(words, " ");
	buf_printf(out, ", %s %.*s", is_open ? "above" : "at least", (int)(n - is_open), words + is_open);
	if (words[n] != '\0')
		buf_printf(out, ", at most %s", words + n + 1);
}

static void print_key(struct buf *out, const struct schema_key *k)
{
	struct buf type, def;
	buf_init(&type);
	buf_init(&def);
	print_type(&type, k);
	if (strcmp(k->def, "!") == 0)
		buf_str(&def, "; required");
	else if (k->def[0] != '\0')
		buf_printf(&def, "; default `%s`", k->def);
	print_item(out, "`%s` (%s%s): %s%s", k->name, type.data, def.data, k->doc,
	           k->now ? "" : "; not supported yet");
	buf_destroy(&type);
	buf_destroy(&def);
}

static void print_keys(struct buf *out, const char *where)
{
	begin(out, "Keys of ", where);
	for (const struct schema_key *k = NULL; (k = schema_next_key(where, k)) != NULL;)
		print_key(out, k);
}

/* A weight and the bias behind it are one entry. */
static void print_params(struct buf *out, const char *kind)
{
	const struct schema_param *p = schema_next_param(kind, NULL);
	if (p == NULL)
		return;
	begin(out, "Parameters of ", kind);
	while (p != NULL) {
		const struct schema_param *bias = schema_next_param(kind, p);
		size_t n = strlen(p->name) - (strlen(p->name) > 6 ? 6 : 0);
		bool joined = bias != NULL && strncmp(bias->name, p->name, n) == 0 &&
		              strcmp(bias->name + n, "bias") == 0;
		const char *when = p->when;
		print_item(out, "`%s` `%s`%s%s%s%s%s%s%s", p->name, p->shape, joined ? ", `" : "",
		           joined ? bias->name : "", joined ? "` `" : "", joined ? bias->shape : "",
		           joined ? "`" : "", when[0] == '\0' ? "" : ": ", when);
		p = schema_next_param(kind, joined ? bias : p);
	}
}

/* The only key of a step, where a value that is no mapping is that key; else NULL. */
static const struct schema_key *only_key(const char *where)
{
	const struct schema_step *s = schema_find_step(where);
	const struct schema_key *k = schema_next_key(where, NULL);
	bool only = s != NULL && k != NULL && s->main[0] != '\0' && schema_next_key(where, k) == NULL;
	return only ? k : NULL;
}

static void print_steps(struct buf *out, const char *const *kinds, size_t n)
{
	begin(out, "The steps", "");
	for (size_t i = 0; i < n; i++) {
		const struct schema_step *s = schema_find_step(kinds[i]);
		const struct schema_key *k = only_key(kinds[i]);
		struct buf type;
		buf_init(&type);
		if (k != NULL)
			print_type(&type, k);
		print_item(out, "`%s%s%s`%s%s%s%s%s: %s", s->kind, s->main[0] == '\0' ? "" : ": ", s->main,
		           k == NULL ? "" : " (", type.data, k == NULL ? "" : ", ", k == NULL ? "" : k->doc,
		           k == NULL ? "" : ")", s->doc);
		buf_destroy(&type);
	}
}

/* ---- calls ---- */

static const struct signature operators[] = {
#define OPERATOR(name, lowering, doc, args) SIGNATURE(name, doc, args),
#include "frontend/expr/calls.def"
};

static const struct signature functions[] = {
#define FORM(name, doc, args)     SIGNATURE(name, doc, args),
#define FUNCTION(name, doc, args) SIGNATURE(name, doc, args),
#include "frontend/expr/calls.def"
};

static const struct signature queries[] = {
#define QUERY(name, doc, args)      SIGNATURE(name, doc, args),
#define QUERY_FORM(name, doc, args) SIGNATURE(name, doc, args),
#include "frontend/expr/calls.def"
};

static void print_signatures(struct buf *out, const char *title, const struct signature *s, size_t n)
{
	begin(out, title, "");
	for (size_t i = 0; i < n; i++) {
		struct buf text;
		buf_init(&text);
		signature_print(&text, &s[i]);
		print_item(out, "`%s`: %s", text.data, s[i].doc);
		buf_destroy(&text);
	}
}

static void print_activations(struct buf *out, struct arena *a)
{
	size_t n;
	const char *const *words = schema_words(a, schema_find_key("act", "kind"), &n);
	struct buf same;
	buf_init(&same);
	begin(out, "Activations", "");
	for (size_t i = 0; words != NULL && i < n; i++) {
		const char *own = activation_name(words[i]);
		if (own != words[i])
			print_item(out, "`%s`: another name of `%s`", words[i], own);
		else
			buf_printf(&same, "%s`%s`", i == 0 ? "" : " ", own);
	}
	print_item(out, "%s: the operators of these names", same.data);
	buf_destroy(&same);
}

/* ---- limits ---- */

static void print_limits(struct buf *out)
{
	static const struct {
		const char *what;
		long long most;
	} limits[] = {
	        {"bytes of a model file", (long long)YAML_FILE_MAX},
	        {"mappings and lists inside of each other", YAML_DEPTH_MAX},
	        {"values and keys of a model file", YAML_NODES_MAX},
	        {"bytes of one text", (long long)YAML_SCALAR_MAX},
	        {"characters of an expression", EXPR_TEXT_MAX},
	        {"operations and brackets inside of each other", EXPR_DEPTH_MAX},
	        {"characters of a name", EXPR_NAME_MAX},
	        {"axes of a tensor", IR_RANK_MAX},
	        {"params", MODEL_PARAMS_MAX},
	        {"dims", MODEL_DIMS_MAX},
	        {"inputs, and outputs", MODEL_VALUES_MAX},
	        {"steps, when all repeats are written out", MODEL_STEPS_MAX},
	        {"rounds of a `repeat`, and elements of one `each`", MODEL_REPEAT_MAX},
	        {"elements that all `each` of a step make, and nodes of one expression of a body",
	         ITEM_SIZE_MAX},
	        {"parameters of a model", MODEL_WEIGHTS_MAX},
	        {"patterns of a weight map", WEIGHT_MAP_PATTERNS_MAX},
	        {"captures of a pattern", WEIGHT_CAPTURES_MAX},
	        {"bytes of a pattern or of a tensor's name in the map", WEIGHT_NAME_MAX},
	};
	struct buf all;
	buf_init(&all);
	begin(out, "Limits", "");
	for (size_t i = 0; i < TFMC_COUNT(limits); i++)
		buf_printf(&all, "%s%s: %lld", i == 0 ? "" : "; ", limits[i].what, limits[i].most);
	print_item(out, "%s", all.data);
	buf_destroy(&all);
}

static bool is_first_of_place(const struct schema_key *key)
{
	return schema_next_key(key->where, NULL) == key;
}

void frontend_reference(struct buf *out)
{
	struct arena a;
	size_t n;
	arena_init(&a);
	const char *const *kinds = schema_step_kinds(&a, &n);
	print_steps(out, kinds, n);
	for (const struct schema_key *k = NULL; (k = schema_next_key(NULL, k)) != NULL;) {
		if (!is_first_of_place(k) || only_key(k->where) != NULL)
			continue;
		print_keys(out, k->where);
		print_params(out, k->where);
	}
	print_activations(out, &a);
	print_signatures(out, "Operators", operators, TFMC_COUNT(operators));
	print_signatures(out, "Functions of expressions", functions, TFMC_COUNT(functions));
	print_signatures(out, "Functions of bodies", queries, TFMC_COUNT(queries));
	begin(out, "Origins and steps of a source", "");
	for (size_t i = 0; weight_source_key(i) != NULL; i++)
		print_item(out, "`%s`: %s", weight_source_key(i), weight_source_doc(i));
	print_limits(out);
	arena_destroy(&a);
}
