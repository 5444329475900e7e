/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sections besides the computation: generate, weights, dtype, tokenizer, target; and --context. Vocabulary
 * files are read on first use.
 */
#include <string.h>

#include "frontend/syntax/files.h"
#include "frontend/model/model.h"
#include "frontend/model/schema.h"
#include "ir/support/utf8.h"

#define VOCAB_FILE_MAX ((size_t)64 << 20)

/* ---- generate ---- */

/* `greedy` is the default: NULL. */
static const struct yaml_node *null_if_greedy(const struct yaml_node *node)
{
	return yaml_is(node, "greedy") ? NULL : node;
}

static bool read_sample(const struct expr_env *env, const struct yaml_node *node, struct frontend_sample *out)
{
	static const struct schema_member members[] = {
	        SCHEMA_MEMBER(frontend_sample, temperature), SCHEMA_MEMBER(frontend_sample, top_k),
	        SCHEMA_MEMBER(frontend_sample, top_p), SCHEMA_MEMBER(frontend_sample, min_p),
	        SCHEMA_MEMBER(frontend_sample, seed)};
	out->given = node != NULL;
	return schema_read(env, node, "sample", "sample", members, TFMC_COUNT(members), out);
}

static bool read_search(const struct expr_env *env, const struct yaml_node *node, struct frontend_search *out)
{
	static const struct schema_member members[] = {
	        SCHEMA_MEMBER(frontend_search, beam), SCHEMA_MEMBER(frontend_search, length_penalty),
	        SCHEMA_MEMBER(frontend_search, penalty), SCHEMA_MEMBER(frontend_search, early_stopping)};
	*out = (struct frontend_search){
	        .given = node != NULL, .beam = 1, .loc = node != NULL ? node->loc : LOC_NONE};
	return schema_read(env, node, "search", "search", members, TFMC_COUNT(members), out);
}

static bool read_decay(const struct expr_env *env, const struct yaml_node *node, struct frontend_decay *out)
{
	static const struct schema_member members[] = {SCHEMA_MEMBER(frontend_decay, after),
	                                               SCHEMA_MEMBER(frontend_decay, factor)};
	return node == NULL || schema_read(env, node, "decay", "decay", members, TFMC_COUNT(members), out);
}

static bool read_sequence(const struct expr_env *env, const struct yaml_node *node, const char *what,
                          struct frontend_ids *out)
{
	int64_t *items = ARENA_ARRAY(env->arena, int64_t, node->n + 1);
	if (items == NULL || !yaml_expect(env->cx, node, YAML_SEQUENCE, what))
		return false;
	for (size_t i = 0; i < node->n; i++) {
		if (!expr_read_int(env, node->items[i], what, &items[i]))
			return false;
		if (items[i] < 0 || items[i] > INT32_MAX) {
			diag_error(env->cx, node->items[i]->loc, DIAG_VALUE_TYPE, "%s has the id %lld", what,
			           (long long)items[i]);
			return false;
		}
	}
	*out = (struct frontend_ids){items, node->n};
	if (node->n == 0)
		diag_error(env->cx, node->loc, DIAG_VALUE_TYPE, "%s has a list without ids", what);
	return node->n != 0;
}

/* Reads a list of [id, ..], or with has_number of [[id, ..], number]. */
static bool read_sequences(const struct expr_env *env, const struct yaml_node *list, const char *what,
                           bool has_number, struct frontend_sequences *out)
{
	if (list == NULL)
		return true;
	struct frontend_sequence *items = ARENA_ARRAY(env->arena, struct frontend_sequence, list->n + 1);
	if (items == NULL || !yaml_expect(env->cx, list, YAML_SEQUENCE, what))
		return false;
	for (size_t i = 0; i < list->n; i++) {
		const struct yaml_node *node = list->items[i];
		if (!yaml_expect(env->cx, node, YAML_SEQUENCE, what))
			return false;
		if (has_number && node->n != 2) {
			diag_error(env->cx, node->loc, DIAG_VALUE_TYPE, "%s wants pairs of ids and a number",
			           what);
			return false;
		}
		if (!read_sequence(env, has_number ? node->items[0] : node, what, &items[i].ids) ||
		    (has_number && !expr_read_float(env, node->items[1], what, &items[i].by)))
			return false;
	}
	*out = (struct frontend_sequences){items, list->n};
	return true;
}

/* Finds an input by name; *out is -1 for name NULL. */
static bool find_named_input(struct frontend_model *m, const struct yaml_node *node, const char *name,
                             int *out)
{
	*out = name == NULL ? -1 : model_find_input(&m->inputs, name);
	if (*out < 0 && name != NULL)
		model_unknown_input(&m->scope, &m->inputs, node->loc, name, DIAG_UNKNOWN_INPUT);
	return *out >= 0 || name == NULL;
}

/* Finds the input that grows by generated tokens, i32 [B, S], and checks source and max_len. */
static bool find_tokens(struct frontend_model *m, const struct yaml_node *node)
{
	int tokens, source;
	struct frontend_generate *g = &m->generate;
	if (!find_named_input(m, yaml_find(node, "tokens"), g->tokens, &tokens) ||
	    !find_named_input(m, yaml_find(node, "source"), g->source, &source))
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
	if (!pair)
		g->source = NULL;
	if (g->max_len == 0)
		g->max_len = ir_dim_hi(m->scope.dims, in->dims[1]);
	return true;
}

static bool check_generate(struct frontend_model *m, const struct yaml_node *node)
{
	const struct frontend_generate *g = &m->generate;
	if (g->kind == GENERATE_SEQ2SEQ && yaml_find(node, "start") == NULL) {
		diag_error(m->cx, node->loc, DIAG_MISSING, "generate of kind seq2seq needs 'start'");
		return false;
	}
	if (model_find_output(&m->outputs, g->logits) < 0) {
		diag_error(m->cx, node->loc, DIAG_GENERATE,
		           "no output is called '%s', which generate takes as logits", g->logits);
		return false;
	}
	if (g->forced > (int64_t)g->start.n) {
		diag_error(m->cx, yaml_find(node, "forced")->loc, DIAG_GENERATE,
		           "forced is %lld of %zu start ids", (long long)g->forced, g->start.n);
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
	static const struct schema_member members[] = {
	        SCHEMA_MEMBER(frontend_generate, kind),
	        SCHEMA_MEMBER(frontend_generate, tokens),
	        SCHEMA_MEMBER(frontend_generate, source),
	        SCHEMA_MEMBER(frontend_generate, logits),
	        SCHEMA_MEMBER(frontend_generate, start),
	        SCHEMA_MEMBER(frontend_generate, stop),
	        SCHEMA_MEMBER(frontend_generate, suppress),
	        SCHEMA_MEMBER(frontend_generate, suppress_first),
	        SCHEMA_MEMBER(frontend_generate, pad),
	        SCHEMA_MEMBER(frontend_generate, max_len),
	        SCHEMA_MEMBER(frontend_generate, forced),
	        SCHEMA_MEMBER(frontend_generate, forced_last),
	        SCHEMA_MEMBER(frontend_generate, min_new),
	        SCHEMA_MEMBER(frontend_generate, min_total),
	        SCHEMA_MEMBER(frontend_generate, max_new),
	        SCHEMA_MEMBER(frontend_generate, max_total),
	        SCHEMA_MEMBER(frontend_generate, repetition_penalty),
	        SCHEMA_MEMBER(frontend_generate, source_repetition_penalty),
	        SCHEMA_MEMBER(frontend_generate, no_repeat_ngram),
	        SCHEMA_MEMBER(frontend_generate, source_no_repeat_ngram),
	        SCHEMA_MEMBER(frontend_generate, renormalize),
	        SCHEMA_MEMBER(frontend_generate, unsupported),
	        SCHEMA_MEMBER(frontend_generate, reread)};
	const struct yaml_node *node = model_section(m, "generate");
	struct frontend_generate *g = &m->generate;
	struct expr_env env = model_env(&m->scope, false);
	if (node == NULL)
		return true;
	g->loc = node->loc;
	bool ok = schema_read(&env, node, "generate", "generate", members, TFMC_COUNT(members), g);
	ok = read_sample(&env, null_if_greedy(yaml_find(node, "sample")), &g->sample) && ok;
	ok = read_search(&env, null_if_greedy(yaml_find(node, "search")), &g->search) && ok;
	ok = read_decay(&env, yaml_find(node, "decay"), &g->decay) && ok;
	ok = read_sequences(&env, yaml_find(node, "banned"), "banned", false, &g->banned) && ok;
	ok = read_sequences(&env, yaml_find(node, "bias"), "bias", true, &g->bias) && ok;
	ok = ok && model_read_speech(&env, yaml_find(node, "speech"), g);
	return ok && find_tokens(m, node) && check_generate(m, node);
}

/* ---- --context ---- */

/* Index of the symbol that the dim is; -1: it is constant or a formula. */
static int symbol_of(struct ir_dims *dims, const struct ir_dim *d)
{
	for (size_t i = 0; i < ir_dims_count(dims); i++)
		if (ir_dim_sym(dims, ir_dims_sym(dims, i)->name) == d)
			return (int)i;
	return -1;
}

/* True for token ids i32 [B, S] and inputs with lengths. */
static bool is_sequence(const struct frontend_input *in)
{
	return in->rank >= 2 && (in->lengths != NULL || (in->dtype == DT_I32 && in->rank == 2));
}

/* Only bounds change, not params: tables of learned positions and rotary scalings stay as in the file. */
bool model_limit_context(struct frontend_model *m)
{
	struct ir_dims *dims = m->scope.dims;
	int64_t context = m->options.context, max = m->generate.max_len, min = (int64_t)m->generate.start.n;
	if (context == 0)
		return true;
	for (size_t i = 0; i < m->inputs.n; i++) {
		const struct frontend_input *in = &m->inputs.items[i];
		if (!is_sequence(in))
			continue;
		int64_t hi = ir_dim_hi(dims, in->dims[1]);
		max = hi > max ? hi : max;
	}
	if (max == 0) {
		diag_error(m->cx, LOC_NONE, DIAG_OPTION,
		           "--context: no input of the model is a sequence of ids");
		return false;
	}
	if (context > max || context < min) {
		diag_error(m->cx, LOC_NONE, DIAG_OPTION,
		           "--context=%lld: a sequence of the model has %lld to %lld tokens",
		           (long long)context, (long long)(min > 1 ? min : 1), (long long)max);
		return false;
	}
	for (size_t i = 0; i < m->inputs.n; i++) {
		const struct frontend_input *in = &m->inputs.items[i];
		if (!is_sequence(in) || ir_dim_hi(dims, in->dims[1]) <= context)
			continue;
		int symbol = symbol_of(dims, in->dims[1]);
		if (symbol < 0 || !ir_dims_set_hi(dims, (size_t)symbol, context)) {
			diag_error(m->cx, in->loc, DIAG_OPTION,
			           "--context=%lld: axis 1 of '%s' is not one dim whose bounds allow it",
			           (long long)context, in->name);
			return false;
		}
	}
	if (m->generate.max_len > context)
		m->generate.max_len = context;
	return true;
}

/* ---- weights, dtype, tokenizer, target ---- */

struct dtype_words {
	int weights, compute, cache;
};

/* Parses --dtype as a mapping; *out is NULL without it. */
static bool dtype_option(struct frontend_model *m, const struct yaml_node **out)
{
	struct buf text;
	*out = NULL;
	if (m->options.dtype == NULL)
		return true;
	buf_init(&text);
	for (const char *p = m->options.dtype; *p; p++)
		buf_str(&text, *p == '=' ? ": " : *p == ',' ? "\n" : (const char[]){*p, 0});
	enum tfmc_status status =
	        buf_failed(&text) ? TFMC_NO_MEMORY
	                          : yaml_parse(&m->arena, m->cx, "--dtype", text.data, text.len, true, out);
	buf_destroy(&text);
	return status == TFMC_OK;
}

/* Reads the section dtype and overrides it by --dtype. */
static bool read_dtypes(struct frontend_model *m, const struct expr_env *env, struct model_dtypes *out)
{
	static const struct schema_member members[] = {SCHEMA_MEMBER(dtype_words, weights),
	                                               SCHEMA_MEMBER(dtype_words, compute),
	                                               SCHEMA_MEMBER(dtype_words, cache)};
	static const enum ir_dtype types[] = {DT_F32,  DT_F32, DT_F32, DT_F16,
	                                      DT_BF16, DT_I8}; /* absent, keep, f32, f16, bf16, int8 */
	struct dtype_words words = {0}, given = {0};
	const struct yaml_node *option;
	if (!schema_read(env, model_section(m, "dtype"), "dtype", "dtype", members, TFMC_COUNT(members),
	                 &words) ||
	    !dtype_option(m, &option) ||
	    !schema_read(env, option, "dtype", "dtype", members, TFMC_COUNT(members), &given))
		return false;
	words.weights = yaml_find(option, "weights") ? given.weights : words.weights;
	words.compute = yaml_find(option, "compute") ? given.compute : words.compute;
	words.cache = yaml_find(option, "cache") ? given.cache : words.cache;
	if (words.compute == 1 + COMPUTE_BF16 && words.weights == 1)
		words.weights = 4; /* compute: bf16 with weights: keep stores weights in bf16 */
	*out = (struct model_dtypes){.keeps_weights = words.weights == 1,
	                             .weights = ir_format_from_dtype(types[words.weights]),
	                             .compute = (enum model_compute)(words.compute - 1),
	                             .cache = types[1 + words.cache]};
	return true;
}

static bool read_tokenizer(const struct expr_env *env, const struct yaml_node *node,
                           struct frontend_tokenizer *out)
{
	static const struct schema_member members[] = {SCHEMA_MEMBER(frontend_tokenizer, kind),
	                                               SCHEMA_MEMBER(frontend_tokenizer, embed),
	                                               SCHEMA_MEMBER(frontend_tokenizer, optional)};
	if (node == NULL)
		return true;
	out->given = true;
	out->loc = node->loc;
	return schema_read(env, node, "tokenizer", "tokenizer", members, TFMC_COUNT(members), out);
}

static bool read_variants(const struct expr_env *env, const struct yaml_node *list, struct frontend_target *t)
{
	const char **names = ARENA_ARRAY(env->arena, const char *, list->n + 1);
	if (names == NULL || !yaml_expect(env->cx, list, YAML_SEQUENCE, "a list of levels"))
		return false;
	for (size_t i = 0; i < list->n; i++) {
		if (!yaml_expect(env->cx, list->items[i], YAML_SCALAR, "a level, such as v3"))
			return false;
		names[i] = list->items[i]->text;
	}
	t->variants = names;
	t->n_variants = list->n;
	t->variants_loc = list->loc;
	return true;
}

static bool read_target(const struct expr_env *env, const struct yaml_node *node, struct frontend_target *t)
{
	static const struct schema_member members[] = {SCHEMA_MEMBER(frontend_target, triple),
	                                               SCHEMA_MEMBER(frontend_target, cpu),
	                                               SCHEMA_MEMBER(frontend_target, opt)};
	const struct yaml_node *variants = yaml_find(node, "variants");
	if (node != NULL)
		t->loc = node->loc;
	if (!schema_read(env, node, "target", "target", members, TFMC_COUNT(members), t) ||
	    (variants != NULL && !read_variants(env, variants, t)))
		return false;
	const char *wrong = t->cpu != NULL && variants != NULL
	                            ? "target: 'cpu' names one processor, 'variants' several"
	                    : variants != NULL && t->n_variants == 0 ? "target: 'variants' is empty"
	                                                             : NULL;
	if (wrong != NULL)
		diag_error(env->cx, node->loc, DIAG_VALUE_TYPE, "%s", wrong);
	return wrong == NULL;
}

bool model_read_sections(struct frontend_model *m)
{
	struct expr_env env = model_env(&m->scope, false);
	bool ok = schema_read(&env, model_section(m, "weights"), "weights", "weights", NULL, 0, NULL);
	ok = read_dtypes(m, &env, &m->dtypes) && ok;
	if (m->options.unrounded)
		m->dtypes = (struct model_dtypes){
		        .keeps_weights = true, .weights = FORMAT_PLAIN, .cache = DT_F32};
	ok = model_read_quantize(m) && ok;
	ok = read_tokenizer(&env, model_section(m, "tokenizer"), &m->tokenizer) && ok;
	return read_target(&env, model_section(m, "target"), &m->target) && ok;
}

/* ---- vocabularies ---- */

static bool add_vocab_line(struct frontend_model *m, struct loc loc, const char *line, size_t len,
                           struct frontend_vocab *v)
{
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
	size_t len, lines = 1;
	if (!yaml_expect(m->cx, name, YAML_SCALAR, "a vocabulary"))
		return TFMC_INVALID;
	path = file_path_any(&m->arena, m->cx, m->doc.dir, name->text, name->loc);
	if (path == NULL)
		return TFMC_INVALID;
	document_record_file(&m->doc, path);
	TFMC_TRY(file_read(&m->arena, m->cx, path, VOCAB_FILE_MAX, name->loc, &text, &len));
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	*v = (struct frontend_vocab){ARENA_ARRAY(&m->arena, const char *, lines), 0, -1};
	if (v->tokens == NULL)
		return TFMC_NO_MEMORY;
	for (const char *line = text, *next; line < text + len; line = next) {
		size_t n = utf8_line(line, text + len, &next);
		if (!add_vocab_line(m, name->loc, line, n, v))
			return TFMC_INVALID;
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
	if (m->tokenizer.kind != TOKENIZER_CHARS) {
		bool is_optional = m->tokenizer.optional && !needed;
		size_t errors = m->cx->n_errors;
		enum tfmc_status st = model_read_tokenizer(&m->doc, node, m->tokenizer.kind, is_optional,
		                                           &m->tokenizer.packed);
		m->tokenizer_read = st == TFMC_OK;
		return is_optional && st == TFMC_INVALID && m->cx->n_errors == errors ? TFMC_OK : st;
	}
	TFMC_TRY(read_chars(m, node));
	m->tokenizer_read = true;
	return TFMC_OK;
}
