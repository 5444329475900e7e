/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speech models (Whisper): the section `generate.speech`, and the decoder prompt for language, task and
 * timestamps, in the order of transformers.
 */
#include <ctype.h>
#include <string.h>

#include "frontend/model/model.h"
#include "frontend/model/schema.h"

/* ---- the section ---- */

static bool check_id(const struct expr_env *env, const struct yaml_node *node, const char *what, int64_t id)
{
	bool ok = id >= 0 && id <= INT32_MAX;
	if (!ok)
		diag_error(env->cx, node->loc, DIAG_VALUE_TYPE, "%s has the id %lld", what, (long long)id);
	return ok;
}

/* {name: id, ..} */
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

/* Reads [id or null, ..]; null stands for the language to be detected. */
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

bool model_read_speech(const struct expr_env *env, const struct yaml_node *node, struct frontend_generate *g)
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

static const int64_t *find_name(const struct frontend_names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (strcmp(names->names[i], name) == 0)
			return &names->ids[i];
	return NULL;
}

/*
 * Finds the id of a language given as token (<|fr|>), code (fr) or name (French); NULL: unknown to the model.
 */
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

static bool has_task(const struct frontend_speech *s, const int64_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < s->tasks.n; k++)
			if (ids[i] == s->tasks.ids[k])
				return true;
	return false;
}

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
		out[(*n)++] = s->forced.items[i];
	bool is_open = *n == 1 || out[1] == SPEECH_DETECTED;
	if (language_id != NULL || (is_open && s->languages.n > 0)) {
		out[1] = language_id != NULL ? *language_id : SPEECH_DETECTED;
		*n = *n > 1 ? *n : 2;
	}
	if (task_id != NULL)
		out[(*n)++] = *task_id;
	else if (language != NULL && !has_task(s, out, *n) && find_name(&s->tasks, "transcribe") != NULL)
		out[(*n)++] = *find_name(&s->tasks, "transcribe");
	bool ends = s->no_timestamps >= 0 && out[*n - 1] == s->no_timestamps;
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
