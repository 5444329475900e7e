/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sections beside the computation: generate, weights, dtype, tokenizer,
 * target. Vocabulary files are read on first use.
 */
#include <string.h>

#include "frontend/text/files.h"
#include "frontend/model/model.h"
#include "frontend/model/schema.h"
#include "ir/support/utf8.h"

#define VOCAB_FILE_MAX ((size_t)64 << 20)

static bool check_id(struct model_scope *s, const struct yaml_node *node, const char *what, int64_t id)
{
	if (id >= 0 && id <= INT32_MAX)
		return true;
	diag_error(s->cx, node->loc, DIAG_VALUE_TYPE, "%s has the id %lld", what, (long long)id);
	return false;
}

/* An expression may be a list of ids: a param that holds one. */
static bool read_id_list(struct model_scope *s, const struct yaml_node *node, const char *what,
                         struct frontend_ids *out)
{
	struct expr_env env = model_env(s, false);
	struct value v;
	if (!expr_read_value(&env, node, what, &v))
		return false;
	size_t n = v.kind == VALUE_LIST ? v.n : 1;
	int64_t *items = ARENA_ARRAY(s->arena, int64_t, n);
	for (size_t i = 0; i < n; i++) {
		const struct value *one = v.kind == VALUE_LIST ? &v.items[i] : &v;
		if (items == NULL || !expr_want_int(&env, node->loc, what, one, &items[i]) ||
		    !check_id(s, node, what, items[i]))
			return false;
	}
	*out = (struct frontend_ids){items, n};
	return true;
}

bool model_read_ids(struct model_scope *s, const struct yaml_node *node, const char *what,
                    struct frontend_ids *out)
{
	struct expr_env env = model_env(s, false);
	if (node == NULL)
		return true;
	if (node->kind == YAML_SCALAR && !node->quoted && expr_is_name(node->text) && !node->null)
		return read_id_list(s, node, what, out);
	struct yaml_list list = yaml_as_list(s->arena, node);
	int64_t *items = ARENA_ARRAY(s->arena, int64_t, list.n);
	for (size_t i = 0; i < list.n; i++) {
		if (items == NULL || !expr_read_int(&env, list.items[i], what, &items[i]) ||
		    !check_id(s, list.items[i], what, items[i]))
			return false;
	}
	*out = (struct frontend_ids){items, list.n};
	return true;
}

/* ---- generate ---- */

static bool read_word(struct frontend_model *m, const struct yaml_node *map, const char *where,
                      const char *name, size_t *out)
{
	struct expr_env env = model_env(&m->scope, false);
	const struct schema_key *key = schema_find_key(where, name);
	const struct yaml_node *node = yaml_find(map, name);
	size_t n;
	const char *const *words = schema_words(&m->arena, key, &n);
	for (size_t i = 0; node == NULL && i < n; i++) {
		if (strcmp(words[i], key->def) == 0)
			*out = i;
	}
	return node == NULL || expr_read_word(&env, node, name, words, n, out);
}

static bool read_int(struct frontend_model *m, const struct yaml_node *map, const char *name, int64_t lo,
                     int64_t *out)
{
	struct expr_env env = model_env(&m->scope, false);
	const struct yaml_node *node = yaml_find(map, name);
	if (node == NULL)
		return true;
	if (!expr_read_int(&env, node, name, out))
		return false;
	if (*out >= lo && *out <= INT32_MAX)
		return true;
	diag_error(m->cx, node->loc, DIAG_VALUE_TYPE, "%s is %lld, it must be at least %lld", name,
	           (long long)*out, (long long)lo);
	return false;
}

static bool read_float(struct frontend_model *m, const struct yaml_node *map, const char *name, double lo,
                       double *out)
{
	struct expr_env env = model_env(&m->scope, false);
	const struct yaml_node *node = yaml_find(map, name);
	if (node == NULL)
		return true;
	if (!expr_read_float(&env, node, name, out))
		return false;
	if (*out >= lo)
		return true;
	diag_error(m->cx, node->loc, DIAG_VALUE_TYPE, "%s is %g, it must be at least %g", name, *out, lo);
	return false;
}

static bool read_sample(struct frontend_model *m, const struct yaml_node *node)
{
	struct frontend_sample *s = &m->generate.sample;
	*s = (struct frontend_sample){false, 1.0, 1.0, 0.0, 0, 0};
	if (node == NULL || (node->kind == YAML_SCALAR && yaml_is(node, "greedy")))
		return true;
	if (!yaml_expect(m->cx, node, YAML_MAPPING, "sample") ||
	    !schema_check(&m->arena, m->cx, node, "sample", NULL, "sample"))
		return false;
	s->given = true;
	if (!read_float(m, node, "temperature", 0.0, &s->temperature) ||
	    !read_int(m, node, "top_k", 0, &s->top_k) || !read_float(m, node, "top_p", 0.0, &s->top_p) ||
	    !read_float(m, node, "min_p", 0.0, &s->min_p) || !read_int(m, node, "seed", 0, &s->seed))
		return false;
	if (s->top_p > 0.0 && s->top_p <= 1.0 && s->min_p <= 1.0)
		return true;
	bool top = !(s->top_p > 0.0 && s->top_p <= 1.0);
	diag_error(m->cx, yaml_find(node, top ? "top_p" : "min_p")->loc, DIAG_VALUE_TYPE,
	           top ? "top_p is %g, it must be above 0 and at most 1"
	               : "min_p is %g, it must be at most 1",
	           top ? s->top_p : s->min_p);
	return false;
}

static bool read_search(struct frontend_model *m, const struct yaml_node *node)
{
	struct frontend_search *s = &m->generate.search;
	size_t penalty = 0;
	*s = (struct frontend_search){false, LOC_NONE, 1, 1.0, false};
	if (node == NULL || (node->kind == YAML_SCALAR && yaml_is(node, "greedy")))
		return true;
	s->loc = node->loc;
	if (!yaml_expect(m->cx, node, YAML_MAPPING, "search") ||
	    !schema_check(&m->arena, m->cx, node, "search", NULL, "search"))
		return false;
	s->given = true;
	if (!read_word(m, node, "search", "penalty", &penalty))
		return false;
	s->gnmt = penalty == 1;
	return read_int(m, node, "beam", 1, &s->beam) &&
	       read_float(m, node, "length_penalty", 0.0, &s->length_penalty);
}

/* An input by name; `key` absent gives -1. */
static bool read_input_name(struct frontend_model *m, const struct yaml_node *map, const char *key, int *out)
{
	const struct yaml_node *node = yaml_find(map, key);
	*out = -1;
	if (node == NULL)
		return true;
	if (!yaml_expect(m->cx, node, YAML_SCALAR, key))
		return false;
	*out = model_find_input(&m->inputs, node->text);
	if (*out >= 0)
		return true;
	model_unknown_input(&m->scope, &m->inputs, node->loc, node->text, DIAG_UNKNOWN_INPUT);
	return false;
}

/* The input that grows: i32 [B, S]. */
static bool find_tokens(struct frontend_model *m, const struct yaml_node *node)
{
	int tokens, source;
	struct frontend_generate *g = &m->generate;
	if (!read_input_name(m, node, "tokens", &tokens) || !read_input_name(m, node, "source", &source))
		return false;
	bool pair = g->kind == GENERATE_SEQ2SEQ;
	for (size_t i = 0; !pair && tokens < 0 && i < m->inputs.n; i++) {
		if (m->inputs.items[i].dtype == DT_I32 && m->inputs.items[i].rank == 2)
			tokens = (int)i;
	}
	if (tokens < 0 || (pair && source < 0)) {
		diag_error(m->cx, node->loc, DIAG_MISSING, "generate needs '%s'",
		           tokens < 0 ? "tokens" : "source");
		return false;
	}
	const struct frontend_input *in = &m->inputs.items[tokens];
	if (in->dtype != DT_I32 || in->rank != 2 || source == tokens) {
		diag_error(
		        m->cx, node->loc, DIAG_GENERATE,
		        "tokens '%s' must be another input than source, i32 with the axes batch and sequence",
		        in->name);
		return false;
	}
	m->tokens = tokens;
	g->tokens = in->name;
	g->source = pair ? m->inputs.items[source].name : NULL;
	g->max_len = ir_dim_hi(m->scope.dims, in->dims[1]);
	return true;
}

static bool check_generate(struct frontend_model *m, const struct yaml_node *node)
{
	const struct frontend_generate *g = &m->generate;
	if (g->kind == GENERATE_SEQ2SEQ && g->start.n == 0) {
		diag_error(m->cx, node->loc, DIAG_MISSING, "generate of kind seq2seq needs 'start'");
		return false;
	}
	if (model_find_output(&m->outputs, g->logits) < 0) {
		diag_error(m->cx, node->loc, DIAG_GENERATE,
		           "no output is called '%s', which generate takes as logits", g->logits);
		return false;
	}
	const struct yaml_pair *p = yaml_find_pair(node, "max_len");
	if (p != NULL && g->max_len < (int64_t)g->start.n) {
		diag_error(m->cx, p->value->loc, DIAG_GENERATE, "max_len %lld is shorter than start",
		           (long long)g->max_len);
		return false;
	}
	return true;
}

bool model_read_generate(struct frontend_model *m)
{
	const struct yaml_node *node = model_section(m, "generate");
	struct frontend_generate *g = &m->generate;
	size_t kind = 0;
	if (node == NULL)
		return true;
	if (!yaml_expect(m->cx, node, YAML_MAPPING, "generate") ||
	    !schema_check(&m->arena, m->cx, node, "generate", NULL, "generate") ||
	    !read_word(m, node, "generate", "kind", &kind))
		return false;
	g->loc = node->loc;
	g->kind = kind == 0 ? GENERATE_CAUSAL : GENERATE_SEQ2SEQ;
	const struct yaml_node *logits = yaml_find(node, "logits");
	g->logits = logits != NULL && logits->kind == YAML_SCALAR ? logits->text : "logits";
	if (!find_tokens(m, node))
		return false;
	bool ok = model_read_ids(&m->scope, yaml_find(node, "start"), "start", &g->start);
	ok = model_read_ids(&m->scope, yaml_find(node, "stop"), "stop", &g->stop) && ok;
	ok = model_read_ids(&m->scope, yaml_find(node, "suppress"), "suppress", &g->suppress) && ok;
	ok = model_read_ids(&m->scope, yaml_find(node, "suppress_first"), "suppress_first",
	                    &g->suppress_first) &&
	     ok;
	ok = read_int(m, node, "pad", 0, &g->pad) && read_int(m, node, "max_len", 1, &g->max_len) && ok;
	ok = read_sample(m, yaml_find(node, "sample")) && read_search(m, yaml_find(node, "search")) && ok;
	return ok && check_generate(m, node);
}

/* ---- weights, dtype, tokenizer, target ---- */

static bool check_keys(struct frontend_model *m, const char *name)
{
	const struct yaml_node *node = model_section(m, name);
	if (node == NULL)
		return true;
	return yaml_expect(m->cx, node, YAML_MAPPING, name) &&
	       schema_check(&m->arena, m->cx, node, name, NULL, name);
}

static bool check_dtype(struct frontend_model *m)
{
	const struct yaml_node *node = model_section(m, "dtype");
	static const enum ir_dtype types[] = {DT_F32, DT_F32, DT_F16, DT_BF16}; /* keep, f32, f16, bf16 */
	size_t weights = 0, compute = 0, cache = 0;
	m->dtypes.keeps_weights = true;
	if (node == NULL)
		return true;
	if (!read_word(m, node, "dtype", "weights", &weights) ||
	    !read_word(m, node, "dtype", "compute", &compute) ||
	    !read_word(m, node, "dtype", "cache", &cache))
		return false;
	m->dtypes.keeps_weights = weights == 0;
	m->dtypes.weights = types[weights];
	m->dtypes.cache = types[1 + cache];
	return true;
}

static bool read_text(struct frontend_model *m, const struct yaml_node *map, const char *name,
                      const char **out)
{
	const struct yaml_node *node = yaml_find(map, name);
	if (node == NULL)
		return true;
	if (!yaml_expect(m->cx, node, YAML_SCALAR, name))
		return false;
	*out = node->text;
	return true;
}

static bool read_variants(struct frontend_model *m, const struct yaml_node *list, struct frontend_target *t)
{
	const char **names = ARENA_ARRAY(&m->arena, const char *, list->n + 1);
	if (names == NULL || !yaml_expect(m->cx, list, YAML_SEQUENCE, "a list of levels"))
		return false;
	for (size_t i = 0; i < list->n; i++) {
		if (!yaml_expect(m->cx, list->items[i], YAML_SCALAR, "a level, such as v3"))
			return false;
		names[i] = list->items[i]->text;
	}
	t->variants = names;
	t->n_variants = list->n;
	t->variants_loc = list->loc;
	return true;
}

static bool check_target(struct frontend_model *m)
{
	const struct yaml_node *node = model_section(m, "target");
	struct frontend_target *t = &m->target;
	t->opt = 2;
	if (node == NULL)
		return true;
	t->loc = node->loc;
	const struct yaml_node *variants = yaml_find(node, "variants");
	if (!read_text(m, node, "triple", &t->triple) || !read_text(m, node, "cpu", &t->cpu) ||
	    !read_int(m, node, "opt", 0, &t->opt) || (variants != NULL && !read_variants(m, variants, t)))
		return false;
	const char *wrong = t->opt > 2 ? "target: opt is 0, 1 or 2"
	                    : t->cpu != NULL && variants != NULL
	                            ? "target: 'cpu' names one processor, 'variants' several"
	                    : variants != NULL && t->n_variants == 0 ? "target: 'variants' is empty"
	                                                             : NULL;
	if (wrong != NULL)
		diag_error(m->cx, node->loc, DIAG_VALUE_TYPE, "%s", wrong);
	return wrong == NULL;
}

static bool check_tokenizer(struct frontend_model *m)
{
	const struct yaml_node *node = model_section(m, "tokenizer");
	struct expr_env env = model_env(&m->scope, false);
	size_t kind = 0;
	if (node == NULL)
		return true;
	m->tokenizer.given = true;
	m->tokenizer.loc = node->loc;
	const struct yaml_node *embed = yaml_find(node, "embed");
	if (embed != NULL && !expr_read_bool(&env, embed, "embed", &m->tokenizer.embed))
		return false;
	const struct yaml_node *optional = yaml_find(node, "optional");
	if (optional != NULL && !expr_read_bool(&env, optional, "optional", &m->tokenizer.optional))
		return false;
	m->tokenizer.is_chars = yaml_find(node, "kind") != NULL && yaml_is(yaml_find(node, "kind"), "chars");
	return read_word(m, node, "tokenizer", "kind", &kind);
}

bool model_read_sections(struct frontend_model *m)
{
	static const char *const sections[] = {"weights", "dtype", "tokenizer", "target"};
	bool ok = true;
	for (size_t i = 0; i < TFMC_COUNT(sections); i++)
		ok = check_keys(m, sections[i]) && ok;
	return ok && check_dtype(m) && check_tokenizer(m) && check_target(m);
}

/* ---- vocabularies ---- */

static bool add_line(struct frontend_model *m, struct loc loc, const char *line, size_t len,
                     struct frontend_vocab *v)
{
	if (len > 0 && line[len - 1] == '\r')
		len--;
	size_t bad = utf8_check(line, len);
	if (bad != len) {
		diag_error(m->cx, loc, DIAG_ENCODING, "line %zu of the vocabulary is not valid UTF-8",
		           v->n + 1);
		return false;
	}
	((const char **)(uintptr_t)v->tokens)[v->n++] = arena_strndup(&m->arena, line, len);
	return true;
}

static enum tfmc_status read_vocab(struct frontend_model *m, const struct yaml_node *name,
                                   struct frontend_vocab *v)
{
	const char *path, *text;
	size_t len, lines = 1, at = 0;
	if (!yaml_expect(m->cx, name, YAML_SCALAR, "a vocabulary"))
		return TFMC_INVALID;
	path = file_named(&m->arena, m->cx, m->doc.dir, name->text, name->loc);
	if (path == NULL)
		return TFMC_INVALID;
	document_note_file(&m->doc, path);
	TFMC_TRY(file_read(&m->arena, m->cx, path, VOCAB_FILE_MAX, name->loc, &text, &len));
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	*v = (struct frontend_vocab){ARENA_ARRAY(&m->arena, const char *, lines), 0, -1};
	if (v->tokens == NULL)
		return TFMC_NO_MEMORY;
	while (at < len) {
		const char *nl = memchr(text + at, '\n', len - at);
		size_t n = nl == NULL ? len - at : (size_t)(nl - (text + at));
		if (!add_line(m, name->loc, text + at, n, v))
			return TFMC_INVALID;
		at += n + 1;
	}
	return TFMC_OK;
}

static bool find_unknown(struct frontend_model *m, const struct yaml_node *unknown, struct frontend_vocab *v)
{
	if (unknown == NULL || v->n == 0)
		return true;
	for (size_t i = 0; i < v->n; i++) {
		if (unknown->kind == YAML_SCALAR && strcmp(v->tokens[i], unknown->text) == 0) {
			v->unknown = (int64_t)i;
			return true;
		}
	}
	diag_error(m->cx, unknown->loc, DIAG_UNKNOWN_NAME, "the vocabulary has no token '%s'",
	           unknown->kind == YAML_SCALAR ? unknown->text : "");
	return false;
}

static enum tfmc_status read_chars(struct frontend_model *m, const struct yaml_node *node)
{
	struct frontend_tokenizer *t = &m->tokenizer;
	const struct yaml_node *file = yaml_find(node, "file");
	const struct yaml_node *source = yaml_find(node, "source"), *target = yaml_find(node, "target");
	if ((file == NULL) == (source == NULL) || (source == NULL) != (target == NULL)) {
		diag_error(m->cx, node->loc, DIAG_MISSING,
		           "a tokenizer of kind chars wants 'file', or 'source' and 'target'");
		return TFMC_INVALID;
	}
	TFMC_TRY(read_vocab(m, file != NULL ? file : source, &t->source));
	t->target = t->source;
	if (target != NULL)
		TFMC_TRY(read_vocab(m, target, &t->target));
	const struct yaml_node *unknown = yaml_find(node, "unknown");
	bool ok = find_unknown(m, unknown, &t->source) && find_unknown(m, unknown, &t->target);
	return ok ? TFMC_OK : TFMC_INVALID;
}

const struct frontend_tokenizer *frontend_tokenizer_head(const struct frontend_model *m)
{
	return &m->tokenizer;
}

enum tfmc_status frontend_tokenizer(struct frontend_model *m, bool needed,
                                    const struct frontend_tokenizer **out)
{
	const struct yaml_node *node = model_section(m, "tokenizer");
	*out = &m->tokenizer;
	if (!m->tokenizer.given || m->tokenizer_read)
		return TFMC_OK;
	if (!m->tokenizer.is_chars) {
		bool may_lack = m->tokenizer.optional && !needed;
		size_t errors = m->cx->n_errors;
		enum tfmc_status st = model_read_tokenizer(&m->doc, node, may_lack, &m->tokenizer.packed);
		m->tokenizer_read = st == TFMC_OK;
		return may_lack && st == TFMC_INVALID && m->cx->n_errors == errors ? TFMC_OK : st;
	}
	TFMC_TRY(read_chars(m, node));
	m->tokenizer_read = true;
	return TFMC_OK;
}
