/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sections besides the computation: generate, weights, dtype, quantize, tokenizer, target; and --context.
 *
 * generate.speech is for speech models (Whisper): the decoder prompt for language, task and timestamps, in the order of
 * transformers. quantize is one format for everything that is usually quantized, or a mapping from path patterns to
 * formats; it applies to matrices of linears and tables of embed. A function that returns false has reported an error.
 * schema_read() with a node NULL reads the defaults of all keys; `given` of a section is whether the file has it.
 */
#include "frontend/model/model.h"

#include <ctype.h>
#include <string.h>

#include "frontend/model/schema.h"
#include "ir/support/glob.h"
#include "ir/support/strmap.h"

/* ---- generate.speech ---- */

/* Checks that a number is a token id; `what` names its key. */
static bool check_id(const struct expr_env *env, const struct yaml_node *node, const char *what, int64_t id)
{
	bool ok = id >= 0 && id <= INT32_MAX;
	if (!ok)
		diag_error(env->cx, node->loc, DIAG_VALUE_TYPE, "%s has the id %lld", what, (long long)id);
	return ok;
}

/* Reads a mapping {name: id, ..} in file order; map NULL: none. */
static bool read_names(const struct expr_env *env, const struct yaml_node *map, const char *what,
                       struct frontend_names *out)
{
	if (map == NULL)
		return true;
	if (!yaml_expect(env->cx, map, YAML_MAPPING, what))
		return false;
	const char **names = ARENA_ARRAY(env->arena, const char *, map->n + 1);
	int64_t *ids = ARENA_ARRAY(env->arena, int64_t, map->n + 1);
	for (size_t i = 0; names != NULL && ids != NULL && i < map->n; i++) {
		names[i] = map->pairs[i].key->text;
		if (!expr_read_int(env, map->pairs[i].value, what, &ids[i]) ||
		    !check_id(env, map->pairs[i].value, what, ids[i]))
			return false;
	}
	*out = (struct frontend_names){names, ids, map->n};
	return names != NULL && ids != NULL;
}

/* Reads [id or null, ..]; null stands for the language to be detected. The limit leaves room in the decoder prompt
 * for start, language, task and no_timestamps. */
static bool read_forced(const struct expr_env *env, const struct yaml_node *list, struct frontend_ids *out)
{
	if (list == NULL)
		return true;
	if (!yaml_expect(env->cx, list, YAML_SEQUENCE, "forced"))
		return false;
	if (list->n > SPEECH_START_MAX - 4) {
		diag_error(env->cx, list->loc, DIAG_LIMIT, "forced has more than %d ids",
		           SPEECH_START_MAX - 4);
		return false;
	}
	int64_t *ids = ARENA_ARRAY(env->arena, int64_t, list->n + 1);
	for (size_t i = 0; ids != NULL && i < list->n; i++) {
		const struct yaml_node *node = list->items[i];
		ids[i] = SPEECH_DETECTED;
		if (node->kind == YAML_SCALAR && node->null)
			continue;
		if (!expr_read_int(env, node, "forced", &ids[i]) || !check_id(env, node, "forced", ids[i]))
			return false;
	}
	*out = (struct frontend_ids){ids, list->n};
	return ids != NULL;
}

/* Reads generate.speech, and replaces the start ids by the default decoder prompt; if its second id is a language to
 * be detected when the source is known, by the first id alone. `start` must have been read. NULL: not a model of
 * speech. */
static bool model_read_speech(const struct expr_env *env, const struct yaml_node *node,
                              struct frontend_generate *g)
{
	static const struct schema_member members[] = {
	        SCHEMA_MEMBER(frontend_speech, language),      SCHEMA_MEMBER(frontend_speech, task),
	        SCHEMA_MEMBER(frontend_speech, no_timestamps), SCHEMA_MEMBER(frontend_speech, timestamps),
	        SCHEMA_MEMBER(frontend_speech, latest_first),  SCHEMA_MEMBER(frontend_speech, english_only)};
	struct frontend_speech *s = &g->speech;
	*s = (struct frontend_speech){.given = node != NULL, .no_timestamps = -1, .latest_first = -1};
	if (node == NULL)
		return true;
	if (!schema_read(env, node, "speech", "speech", members, TFMC_COUNT(members), s) ||
	    !read_names(env, yaml_find(node, "languages"), "languages", &s->languages) ||
	    !read_names(env, yaml_find(node, "tasks"), "tasks", &s->tasks) ||
	    !read_forced(env, yaml_find(node, "forced"), &s->forced))
		return false;
	if (g->start.n == 0)
		return true;
	s->start = g->start.items[0];
	const struct speech_request wish = {NULL, NULL, false};
	int64_t *ids = ARENA_ARRAY(env->arena, int64_t, SPEECH_START_MAX);
	size_t n;
	const char *wrong = ids == NULL ? NULL : frontend_speech_start(env->arena, s, &wish, ids, &n);
	if (wrong != NULL)
		diag_error(env->cx, node->loc, DIAG_GENERATE, "%s", wrong);
	if (ids == NULL || wrong != NULL)
		return false;
	bool is_open = n > 1 && ids[1] == SPEECH_DETECTED;
	g->start = (struct frontend_ids){ids, is_open ? 1 : n};
	return true;
}

/* ---- the decoder prompt ---- */

static const struct {
	const char *name, *code;
} languages[] = {
#define LANGUAGE(name, code) {name, code},
#include "frontend/model/languages.def"
};

/* The id of a name; NULL: it is not in the list. */
static const int64_t *find_name(const struct frontend_names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (strcmp(names->names[i], name) == 0)
			return &names->ids[i];
	return NULL;
}

/* Finds the id of a language given as token (<|fr|>), code (fr) or name (French), in any case; NULL: unknown to the
 * model. The model's tokens have codes: a name is translated by languages.def. */
static const int64_t *find_language(struct arena *a, const struct frontend_speech *s, const char *text)
{
	size_t bytes = strlen(text);
	char *name = arena_alloc(a, bytes + 1);
	for (size_t i = 0; name != NULL && i <= bytes; i++)
		name[i] = (char)tolower((unsigned char)text[i]);
	if (name == NULL || find_name(&s->languages, name) != NULL)
		return name == NULL ? NULL : find_name(&s->languages, name);
	for (size_t i = 0; i < TFMC_COUNT(languages); i++)
		if (strcmp(languages[i].name, name) == 0 || strcmp(languages[i].code, name) == 0)
			return find_name(&s->languages, arena_printf(a, "<|%s|>", languages[i].code));
	return NULL;
}

/* Whether one of n ids is that of a task. */
static bool has_task(const struct frontend_speech *s, const int64_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < s->tasks.n; k++)
			if (ids[i] == s->tasks.ids[k])
				return true;
	return false;
}

/* A request's language or task replaces that of the file, and with either of them the forced ids. The order is that
 * of Whisper: start, language, task, no_timestamps. A language without a task means transcription. */
const char *frontend_speech_start(struct arena *a, const struct frontend_speech *s,
                                  const struct speech_request *w, int64_t out[SPEECH_START_MAX], size_t *n)
{
	const char *language = w->language != NULL ? w->language : s->language;
	const char *task = w->task != NULL ? w->task : s->task;
	bool with_timestamps = w->timestamps || s->timestamps,
	     is_requested = w->language != NULL || w->task != NULL;
	const int64_t *language_id = NULL, *task_id = NULL;
	*n = 0;
	if (is_requested && s->english_only)
		return "the model is English-only and accepts neither a language nor a task";
	if (with_timestamps && s->no_timestamps < 0)
		return "the model has no id for timestamps (no_timestamps_token_id)";
	if (language != NULL && (language_id = find_language(a, s, language)) == NULL)
		return arena_printf(a, "'%s' is not a language of the model", language);
	if (task != NULL && (task_id = find_name(&s->tasks, task)) == NULL)
		return arena_printf(a, "'%s' is not a task of the model", task);
	out[(*n)++] = s->start;
	for (size_t i = 0; language == NULL && task == NULL && i < s->forced.n; i++)
		/* The ids of the file are for its own language and task. */
		out[(*n)++] = s->forced.items[i];
	bool is_open = *n == 1 || out[1] == SPEECH_DETECTED; /* the place of the language is free */
	if (language_id != NULL || (is_open && s->languages.n > 0)) {
		out[1] = language_id != NULL ? *language_id : SPEECH_DETECTED;
		*n = *n > 1 ? *n : 2;
	}
	if (task_id != NULL)
		out[(*n)++] = *task_id;
	else if (language != NULL && !has_task(s, out, *n) && find_name(&s->tasks, "transcribe") != NULL)
		out[(*n)++] = *find_name(&s->tasks, "transcribe");
	bool ends = s->no_timestamps >= 0 && out[*n - 1] == s->no_timestamps; /* `forced` may contain it */
	if (!with_timestamps && s->no_timestamps >= 0 && !ends)
		out[(*n)++] = s->no_timestamps;
	else if (with_timestamps && ends)
		--*n;
	size_t kept = 1; /* remove placeholders that no language fills */
	for (size_t i = 1; i < *n; i++)
		if (out[i] != SPEECH_DETECTED || (i == 1 && s->languages.n > 0))
			out[kept++] = out[i];
	*n = kept;
	return NULL;
}

/* ---- quantize ---- */

/* Paths that a single format does not quantize: quantization errors of positions and of expert routing are
 * large compared to the bytes saved. */
static const char *const left_out[] = {"*position*", "*.router.*"};

/* Parses a format of weights as options write it. */
static bool read_format(struct frontend_model *m, const char *word, struct loc loc, enum ir_format *out)
{
	size_t n;
	const char *const *words = ir_format_options(&n);
	if (ir_format_from_option(word, out))
		return true;
	diag_error(m->cx, loc, DIAG_VALUE_TYPE, "quantize: no format is called '%.60s'%s", word,
	           did_you_mean_or_known(&m->arena, word, words, n));
	return false;
}

static bool add_rule(struct frontend_model *m, const char *pattern, struct loc loc, enum ir_format format,
                     bool used)
{
	return ARENA_ADDED(&m->arena, &m->quantize, (struct quantize_rule){pattern, loc, format, used});
}

/* Adds the rules for a single format: some paths are left out, all others get it; the first rule that matches
 * decides, so these come first. They count as used, since the user named no pattern. */
static bool add_default_rules(struct frontend_model *m, const char *word, struct loc loc)
{
	enum ir_format format;
	bool ok = read_format(m, word, loc, &format);
	for (size_t i = 0; ok && i < TFMC_COUNT(left_out); i++)
		ok = add_rule(m, left_out[i], loc, FORMAT_PLAIN, true);
	return ok && add_rule(m, "*", loc, format, true);
}

/* Adds the rule of one entry {pattern: format}. */
static bool add_pattern_rule(struct frontend_model *m, const struct yaml_pair *pair)
{
	enum ir_format format;
	if (!yaml_expect(m->cx, pair->value, YAML_SCALAR, "quantize: a pattern"))
		return false;
	if (pair->key->len > GLOB_BYTES_MAX) {
		diag_error(m->cx, pair->key->loc, DIAG_LIMIT, "the pattern has more than %d bytes",
		           GLOB_BYTES_MAX);
		return false;
	}
	return read_format(m, pair->value->text, pair->value->loc, &format) &&
	       add_rule(m, pair->key->text, pair->key->loc, format, false);
}

/* Reads the section: a format, or a mapping of patterns and the key `profile`, whose path is relative to the model
 * file. */
static bool read_quantize_section(struct frontend_model *m, const struct yaml_node *node)
{
	bool ok = true;
	if (node->kind == YAML_SCALAR && !node->null)
		return add_default_rules(m, node->text, node->loc);
	if (!yaml_expect(m->cx, node, YAML_MAPPING, "quantize"))
		return false;
	for (size_t i = 0; i < node->n; i++) {
		const struct yaml_node *value = node->pairs[i].value;
		if (!yaml_is(node->pairs[i].key, "profile")) {
			ok = add_pattern_rule(m, &node->pairs[i]) && ok;
			continue;
		}
		if (!yaml_expect(m->cx, value, YAML_SCALAR, "quantize: profile")) {
			ok = false;
			continue;
		}
		m->quantize.profile = value->text;
		m->quantize.profile_dir = m->doc.dir;
		m->quantize.profile_loc = value->loc;
	}
	return ok;
}

/* Reads the section quantize. options.quantize overrides its formats, options.profile its profile, relative to the
 * current directory; options.unrounded ignores all of them. A profile without a format has no use. */
static bool model_read_quantize(struct frontend_model *m)
{
	const struct yaml_node *node = model_section(m, "quantize");
	struct model_quantize *q = &m->quantize;
	bool ok = node == NULL || read_quantize_section(m, node);
	if (m->options.unrounded) {
		*q = (struct model_quantize){0};
		return ok;
	}
	if (m->options.quantize != NULL) {
		q->n = 0;
		ok = add_default_rules(m, m->options.quantize, LOC_NONE) && ok;
	}
	if (m->options.profile != NULL) {
		q->profile = m->options.profile;
		q->profile_dir = NULL;
		q->profile_loc = LOC_NONE;
	}
	if (!ok || q->profile == NULL || q->n > 0)
		return ok;
	diag_error(
	        m->cx, q->profile_loc, DIAG_MISSING,
	        "the profile '%.200s' serves quantized formats, and none is requested: --quantize=q4, or a "
	        "format "
	        "under 'quantize'",
	        q->profile);
	return false;
}

const struct quantize_rule *model_quantize_rule(struct model_quantize *q, const char *path)
{
	for (size_t i = 0; i < q->n; i++)
		if (glob_match(q->items[i].pattern, path)) {
			q->items[i].used = true;
			return &q->items[i];
		}
	return NULL;
}

/* A pattern without effect is a mistake of the file. Rules without any effect, as the files are quantized already,
 * are worth a warning. */
bool model_quantize_finish(struct frontend_model *m)
{
	bool ok = true;
	for (size_t i = 0; i < m->quantize.n; i++) {
		const struct quantize_rule *rule = &m->quantize.items[i];
		if (rule->used)
			continue;
		diag_error(m->cx, rule->loc, DIAG_MISSING,
		           "quantize: '%.200s' decides about no matrix of a linear and no table",
		           rule->pattern);
		ok = false;
	}
	if (ok && m->quantize.keeps_quants && !m->quantize.quantizes_floats)
		diag_warning(m->cx, m->options.quantize != NULL ? LOC_NONE : m->quantize.items[0].loc,
		             DIAG_UNSUPPORTED,
		             "quantize changes nothing: the weights are quantized in the files already, and "
		             "stay so");
	return ok;
}

/* ---- generate ---- */

/* `greedy` is the default: NULL. */
static const struct yaml_node *null_if_greedy(const struct yaml_node *node)
{
	return yaml_is(node, "greedy") ? NULL : node;
}

/* Reads generate.sample, or its defaults for greedy generation (NULL). */
static bool read_sample(const struct expr_env *env, const struct yaml_node *node, struct frontend_sample *out)
{
	static const struct schema_member members[] = {
	        SCHEMA_MEMBER(frontend_sample, temperature), SCHEMA_MEMBER(frontend_sample, top_k),
	        SCHEMA_MEMBER(frontend_sample, top_p), SCHEMA_MEMBER(frontend_sample, min_p),
	        SCHEMA_MEMBER(frontend_sample, seed)};
	out->given = node != NULL;
	return schema_read(env, node, "sample", "sample", members, TFMC_COUNT(members), out);
}

/* Reads generate.search, or a beam of 1 for greedy generation (NULL). */
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

/* Reads a list of one or more ids. */
static bool read_sequence(const struct expr_env *env, const struct yaml_node *node, const char *what,
                          struct frontend_ids *out)
{
	int64_t *items = ARENA_ARRAY(env->arena, int64_t, node->n + 1);
	if (items == NULL || !yaml_expect(env->cx, node, YAML_SEQUENCE, what))
		return false;
	for (size_t i = 0; i < node->n; i++) {
		if (!expr_read_int(env, node->items[i], what, &items[i]) ||
		    !check_id(env, node->items[i], what, items[i]))
			return false;
	}
	*out = (struct frontend_ids){items, node->n};
	if (node->n == 0)
		diag_error(env->cx, node->loc, DIAG_VALUE_TYPE, "%s has a list without ids", what);
	return node->n != 0;
}

/* Reads a list of [id, ..], or with has_number of [[id, ..], number]; NULL: none. */
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

/* Finds an input by name; *out is -1 for name NULL, which is no error. node: of the name. */
static bool find_named_input(struct frontend_model *m, const struct yaml_node *node, const char *name,
                             int *out)
{
	*out = name == NULL ? -1 : model_find_input(&m->inputs, name);
	if (*out < 0 && name != NULL)
		model_unknown_input(&m->scope, &m->inputs, node->loc, name, DIAG_UNKNOWN_INPUT);
	return *out >= 0 || name == NULL;
}

/* Finds the input that grows by generated tokens, i32 [B, S]: the named one; a causal model takes the first such
 * input. Checks source; max_len is by default the most tokens of that input. */
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

/* Checks what the schema cannot: keys of `generate` against each other and against the outputs. The ids themselves
 * are checked when the vocabulary is known (check_generate_ids). */
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

/* Every part is read, also after an error, so that all mistakes are reported; only speech needs the parts before
   it. */
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
	/* it replaces g->start, which has to be read */
	ok = ok && model_read_speech(&env, yaml_find(node, "speech"), g);
	return ok && find_tokens(m, node) && check_generate(m, node);
}

/* ---- --context ---- */

/* Returns the index of the symbol that the dim is; -1: it is constant or a formula. */
static int symbol_of(struct ir_dims *dims, const struct ir_dim *d)
{
	for (size_t i = 0; i < ir_dims_count(dims); i++)
		if (ir_dim_sym(dims, ir_dims_sym(dims, i)->name) == d)
			return (int)i;
	return -1;
}

/* Whether axis 1 of an input is the sequence: token ids i32 [B, S], and inputs with lengths. */
static bool is_sequence(const struct frontend_input *in)
{
	return in->rank >= 2 && (in->lengths != NULL || (in->dtype == DT_I32 && in->rank == 2));
}

/* Only bounds of dims change, not params: tables of learned positions and rotary scalings stay as in the file. The
 * context is at most the longest sequence of the file, and at least the start ids. */
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

/* Parses --dtype=KEY=VALUE,.. as a mapping, as if it were written in YAML on lines of its own, so that errors are
 * those of the section; *out is NULL without it. */
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

/* Reads the section dtype and overrides it by the keys that --dtype has; both are complete, with defaults of the
 * schema. Enum members count words from 1 (schema_read). */
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

/* Reads the head of the section `tokenizer`; frontend_tokenizer reads the other keys and the files on first use.
 * Without the section *out stays zero, which equals the defaults of the schema. */
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

/* Reads the list `variants`. */
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

/* Reads the section `target`, or its defaults (NULL). Several levels are variants of one object, so a single
 * processor beside them contradicts them. */
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

/* Keys of `weights` are checked only; the lowering reads them (weights_open). options.unrounded replaces dtype after
 * it has been checked. */
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
