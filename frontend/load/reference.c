/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the lists of the language reference (frontend/manual/reference) from the tables: keys of each place,
 * parameters of each step, operators, functions, weight sources, limits. A list is a title line with a colon
 * and an item for each entry; a test looks for each in the pages.
 * A place is a mapping of a model file, such as `top` or a kind of step; the schema lists keys by the place that they
 * are in.
 */
#include <string.h>

#include "ir/support/strmap.h"

#include "frontend/syntax/signature.h"
#include "frontend/model/model.h"
#include "frontend/model/schema.h"
#include "frontend/lower/macro.h"
#include "frontend/weights/pattern.h"

#define WIDEST     130 /* maximum columns of a line */
#define SHORT_ITEM 88  /* items up to this length share a line */

/* Prints the title line of a list, `name` in code quotes; name "": the title alone. */
static void print_list_title(struct buf *out, const char *title, const char *name)
{
	const char *tick = name[0] == '\0' ? "" : "`";
	buf_printf(out, "%s%s%s%s%s:\n", out->len == 0 ? "" : "\n", title, tick, name, tick);
}

/* Prints an item; indent 2: of a nested list. */
static void print_item(struct buf *out, size_t indent, const char *text)
{
	buf_fill(out, ' ', indent);
	buf_str(out, "- ");
	buf_wrap(out, text, indent + 2, indent + 2, WIDEST);
}

/* Items of a list; neighbours of at most `pack` characters are joined. */
struct items {
	struct buf *out;
	size_t indent, pack;
	struct buf text; /* pending text */
	bool may_grow;
};

/* Prints the pending items. */
static void items_end(struct items *l)
{
	if (l->text.len > 0)
		print_item(l->out, l->indent, l->text.data);
	buf_destroy(&l->text);
	buf_init(&l->text);
}

/* Adds an item: short ones that follow each other share a line, after a semicolon (pack 0: none do). It is printed
 * when the next one does not join it, or by items_end(). */
static void items_add(struct items *l, const struct buf *text)
{
	bool is_short = text->len <= l->pack;
	if (!is_short || !l->may_grow)
		items_end(l);
	buf_printf(&l->text, "%s%s", l->text.len == 0 ? "" : "; ", text->data);
	l->may_grow = is_short;
}

/* ---- keys ---- */

/* Whether the words of a key are the activations, which the reference lists once, of their own. */
static bool is_activation(const struct schema_key *k)
{
	return strncmp(k->words, "identity ", 9) == 0;
}

/* Prints the type of a key with its range or words: "int, at least 1"; "float, above 0, at most 1"; "`mlp` `gated`".
 * A range is written "[>]MIN [MAX]" in the row. */
static void print_type(struct buf *out, const struct schema_key *k)
{
	const char *type = schema_type_name(k->type), *words = k->words;
	bool is_number = k->type == KEY_INT || k->type == KEY_FLOAT;
	if (k->type == KEY_WORD && words[0] != '\0' && !is_activation(k)) {
		struct word w = {words, 0};
		while (list_word_next(&w))
			buf_printf(out, "%s`%.*s`", w.text == words ? "" : " ", (int)w.n, w.text);
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

/* Prints a key: name, type, default and what it is for. */
static void print_key(struct buf *out, const struct schema_key *k)
{
	buf_printf(out, "`%s` (", k->name);
	print_type(out, k);
	if (strcmp(k->def, "!") == 0)
		buf_str(out, "; required");
	else if (k->def[0] != '\0')
		buf_printf(out, "; default `%s`", k->def);
	buf_printf(out, "): %s%s", k->doc, k->now ? "" : "; not supported yet");
}

/* Returns the place with the keys of this key's value, which are printed below the key; NULL: there are none, or
 * they have a list of their own (keys of steps, and of sections at the top). */
static const char *inner_place(const struct schema_key *k)
{
	const char *place = k->type == KEY_MAP && k->words[0] != '\0' ? k->words : k->name;
	bool is_map = (k->type == KEY_MAP || k->type == KEY_ANY) && strcmp(k->where, "top") != 0;
	return is_map && schema_find_step(place) == NULL && schema_next_key(place, NULL) != NULL ? place
	                                                                                         : NULL;
}

/* Whether the keys of a place are printed below a key, so that they get no list of their own. */
static bool is_inner_place(const char *where)
{
	for (const struct schema_key *k = NULL; (k = schema_next_key(NULL, k)) != NULL;) {
		if (inner_place(k) != NULL && strcmp(inner_place(k), where) == 0)
			return true;
	}
	return false;
}

/* Prints the keys of a place, nested mappings indented. Keys of `top` have an item each (pack 0). */
static void print_keys(struct buf *out, size_t indent, const char *where)
{
	struct items l = {.out = out, .indent = indent, .pack = strcmp(where, "top") == 0 ? 0 : SHORT_ITEM};
	buf_init(&l.text);
	for (const struct schema_key *k = NULL; (k = schema_next_key(where, k)) != NULL;) {
		struct buf text;
		buf_init(&text);
		print_key(&text, k);
		items_add(&l, &text);
		buf_destroy(&text);
		if (inner_place(k) == NULL)
			continue;
		items_end(&l);
		print_keys(out, indent + 2, inner_place(k));
	}
	items_end(&l);
}

/* Prints the parameters of a step; a weight and the bias that follows it, NAME.weight and NAME.bias, are one item. */
static void print_params(struct buf *out, const char *kind)
{
	const struct schema_param *p = schema_next_param(kind, NULL);
	if (p != NULL)
		print_list_title(out, "Parameters of ", kind);
	while (p != NULL) {
		const struct schema_param *bias = schema_next_param(kind, p);
		size_t length = strlen(p->name), n = length - (length < 6 ? 0 : 6) /* "weight" */;
		bool joined = bias != NULL && strncmp(bias->name, p->name, n) == 0 &&
		              strcmp(bias->name + n, "bias") == 0;
		struct buf text;
		buf_init(&text);
		buf_printf(&text, "`%s` `%s`", p->name, p->shape);
		if (joined)
			buf_printf(&text, ", `%s` `%s`", bias->name, bias->shape);
		buf_printf(&text, "%s%s", p->when[0] == '\0' ? "" : ": ", p->when);
		print_item(out, 0, text.data);
		buf_destroy(&text);
		p = schema_next_param(kind, joined ? bias : p);
	}
}

/* Returns the only key of a step whose value may be written directly (`linear: 8`); NULL: the step has others. */
static const struct schema_key *only_key(const char *where)
{
	const struct schema_step *s = schema_find_step(where);
	const struct schema_key *k = schema_next_key(where, NULL);
	bool only = s != NULL && k != NULL && s->main[0] != '\0' && schema_next_key(where, k) == NULL;
	return only ? k : NULL;
}

/* Prints all kinds of steps in one list. */
static void print_steps(struct buf *out, const char *const *kinds, size_t n)
{
	print_list_title(out, "The steps", "");
	for (size_t i = 0; i < n; i++) {
		const struct schema_step *s = schema_find_step(kinds[i]);
		const struct schema_key *k = only_key(kinds[i]);
		struct buf text;
		buf_init(&text);
		buf_printf(&text, "`%s%s%s`", s->kind, s->main[0] == '\0' ? "" : ": ", s->main);
		if (k != NULL) {
			buf_str(&text, " (");
			print_type(&text, k);
			buf_printf(&text, ", %s)", k->doc);
		}
		buf_printf(&text, ": %s", s->doc);
		print_item(out, 0, text.data);
		buf_destroy(&text);
	}
}

/* ---- calls ---- */

/* Prints the rows of calls.def of these classes. */
static void print_signatures(struct buf *out, const char *title, unsigned classes)
{
	struct items l = {.out = out, .pack = SHORT_ITEM};
	const struct signature *s;
	buf_init(&l.text);
	print_list_title(out, title, "");
	for (size_t i = 0; (s = signature_at(classes, i)) != NULL; i++) {
		struct buf text;
		buf_init(&text);
		buf_char(&text, '`');
		signature_print(&text, s);
		buf_printf(&text, "`: %s", s->doc);
		items_add(&l, &text);
		buf_destroy(&text);
	}
	items_end(&l);
}

/* Prints two items: the names of activations that are operators, and other names for them. activation_name() returns
 * a canonical name as it is. */
static void print_activations(struct buf *out, struct arena *a)
{
	size_t n;
	const char *const *words = schema_words(a, schema_find_key("act", "kind"), &n);
	struct buf canonical_names, aliases;
	buf_init(&canonical_names);
	buf_init(&aliases);
	print_list_title(out, "Activations", "");
	for (size_t i = 0; words != NULL && i < n; i++) {
		const char *canonical = activation_name(words[i]);
		if (canonical == words[i])
			buf_printf(&canonical_names, "%s`%s`", i == 0 ? "" : " ", canonical);
		else
			buf_printf(&aliases, "%s`%s`: %s", aliases.len == 0 ? "" : "; ", words[i], canonical);
	}
	buf_str(&canonical_names, ": the operators of these names");
	print_item(out, 0, canonical_names.data);
	print_item(out, 0, aliases.data);
	buf_destroy(&canonical_names);
	buf_destroy(&aliases);
}

/* Prints the keys that make weights of stored tensors. */
static void print_sources(struct buf *out)
{
	struct items l = {.out = out, .pack = SHORT_ITEM};
	buf_init(&l.text);
	print_list_title(out, "Origins and steps of a source", "");
	for (size_t i = 0; weight_source_key(i) != NULL; i++) {
		struct buf text;
		buf_init(&text);
		buf_printf(&text, "`%s`: %s", weight_source_key(i), weight_source_doc(i));
		items_add(&l, &text);
		buf_destroy(&text);
	}
	items_end(&l);
}

/* ---- limits ---- */

/* Prints the limits in one item, from the constants that the code checks. */
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
	         PARTIAL_SIZE_MAX},
	        {"parameters of a model", MODEL_WEIGHTS_MAX},
	        {"patterns of a weight map", WEIGHT_MAP_PATTERNS_MAX},
	        {"captures of a pattern", WEIGHT_CAPTURES_MAX},
	        {"bytes of a pattern or of a tensor's name in the map", WEIGHT_NAME_MAX},
	};
	struct buf all;
	buf_init(&all);
	print_list_title(out, "Limits", "");
	for (size_t i = 0; i < TFMC_COUNT(limits); i++)
		buf_printf(&all, "%s%s: %lld", i == 0 ? "" : "; ", limits[i].what, limits[i].most);
	print_item(out, 0, all.data);
	buf_destroy(&all);
}

void frontend_reference(struct buf *out)
{
	struct arena a;
	size_t n;
	arena_init(&a);
	const char *const *kinds = schema_step_kinds(&a, &n);
	print_steps(out, kinds, n);
	for (const struct schema_key *k = NULL; (k = schema_next_key(NULL, k)) != NULL;) {
		/* Once for each place that has no list elsewhere: nested, or in the list of steps. */
		bool is_first = schema_next_key(k->where, NULL) == k;
		if (!is_first || only_key(k->where) != NULL || is_inner_place(k->where))
			continue;
		print_list_title(out, "Keys of ", k->where);
		print_keys(out, 0, k->where);
		print_params(out, k->where);
	}
	print_activations(out, &a);
	print_signatures(out, "Operators", CALL_OPERATOR);
	print_signatures(out, "Scalings of rotary positions", CALL_SCALING);
	print_signatures(out, "Functions of expressions", CALL_FUNCTION | CALL_FORM);
	print_signatures(out, "Functions of bodies", CALL_QUERY | CALL_QUERY_FORM);
	print_sources(out);
	print_limits(out);
	arena_destroy(&a);
}
