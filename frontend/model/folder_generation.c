/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation settings of hub folders: maps generation_config.json to the section `generate`, so that generated text
 * equals that of `model.generate()` in transformers ("the library" below). generation_config.json replaces the
 * generation keys of config.json; without that file the keys of config.json are used as stored, without class
 * defaults. Sampling is the caller's choice and is only repeated in a comment. g->root is the file that is used;
 * g->keys collects the members of the section. A key that is absent or null writes nothing, so that the preset's value
 * stays.
 */
#include <string.h>

#include "frontend/syntax/files.h"
#include "frontend/syntax/expr.h"
#include "frontend/model/compose.h"
#include "frontend/model/folder.h"
#include "frontend/syntax/json.h"
#include "ir/support/buf.h"

#define FILE_NAME "generation_config.json"

/* Source and output of the mapping. */
struct generation {
	struct parsed_files *f;
	const char *dir, *name; /* name: of the file that is used */
	const struct json_node *root, *config;
	bool has_file;    /* root is generation_config.json, else config.json */
	struct buf *keys; /* output: "stop: [1, 2], pad: 0" */
};

/* Reports a value of the file that is used. Always false. */
static bool reject(const struct generation *g, const char *key, const char *what)
{
	diag_error(g->f->cx, LOC_NONE, DIAG_FILE, "'%s' in '%s' %s", key, g->name, what);
	return false;
}

/* Value of a key; NULL: absent or null. */
static const struct json_node *find(const struct json_node *object, const char *key)
{
	const struct json_node *v = json_find(object, key);
	return v == NULL || v->kind == JSON_NODE_NULL ? NULL : v;
}

static bool is_number(const struct json_node *v)
{
	return v->kind == JSON_NODE_INT || v->kind == JSON_NODE_REAL;
}

static double number_of(const struct json_node *v)
{
	return v->kind == JSON_NODE_REAL ? v->f : (double)v->i;
}

static bool is_id(const struct json_node *n)
{
	return n->kind == JSON_NODE_INT && n->i >= 0 && n->i <= INT32_MAX;
}

/* ---- writing ---- */

/* Begins a member of the section, after a comma if it is not the first one. */
static void begin_key(struct buf *out, const char *key)
{
	buf_printf(out, "%s%s: ", out->len != 0 ? ", " : "", key);
}

/* Appends an int or a float as YAML. */
static void write_number(struct buf *out, const struct json_node *v)
{
	if (v->kind == JSON_NODE_REAL)
		value_print_float(out, v->f);
	else
		buf_printf(out, "%lld", (long long)v->i);
}

/* Appends an id to an open list, after a comma if it is not the first one. */
static void write_id(struct buf *out, int64_t id)
{
	buf_printf(out, "%s%lld", out->data[out->len - 1] == '[' ? "" : ", ", (long long)id);
}

/* ---- ids ---- */

/* Appends the ids of a key, an id or a list, to an open list. Unless `all`, ids that no token has (negative, or from
 * vocab_size on) are dropped, since the library never generates them; start ids are read, and all of them count.
 * False after a diagnostic. */
static bool write_ids(struct generation *g, const char *key, const struct json_node *ids, bool all)
{
	const struct json_node *vocab = find(g->config, "vocab_size");
	int64_t below = !all && vocab != NULL && vocab->kind == JSON_NODE_INT ? vocab->i : INT64_MAX;
	bool is_list = ids->kind == JSON_NODE_ARRAY;
	for (size_t i = 0; i < (is_list ? ids->n : 1); i++) {
		const struct json_node *id = is_list ? &ids->items[i] : ids;
		if (id->kind != JSON_NODE_INT || id->i > INT32_MAX || id->i < (all ? 0 : INT32_MIN))
			return reject(g, key, "is neither an id nor a list of ids");
		if (id->i >= 0 && id->i < below)
			write_id(g->keys, id->i);
	}
	return true;
}

/* Maps a key with ids to the list `name` of the section; nothing if the file does not have the key. All map_
 * functions return false after a diagnostic. */
static bool map_ids(struct generation *g, const char *key, const char *name)
{
	const struct json_node *ids = find(g->root, key);
	if (ids == NULL)
		return true;
	begin_key(g->keys, name);
	buf_char(g->keys, '[');
	bool ok = write_ids(g, key, ids, false);
	buf_char(g->keys, ']');
	return ok;
}

/* Maps a key like map_ids(). If only config.json has the key, writes an empty list, which overrides the list that
 * the preset reads from config.json. */
static bool map_id_list(struct generation *g, const char *key, const char *name)
{
	if (find(g->root, key) == NULL && find(g->config, key) != NULL) {
		begin_key(g->keys, name);
		buf_str(g->keys, "[]");
	}
	return map_ids(g, key, name);
}

/* Maps the padding id; a negative one (-1) means that there is none. */
static bool map_pad(struct generation *g)
{
	const struct json_node *pad = find(g->root, "pad_token_id");
	if (pad == NULL)
		return true;
	if (pad->kind != JSON_NODE_INT || pad->i < INT32_MIN || pad->i > INT32_MAX)
		return reject(g, "pad_token_id", "is not an id");
	if (pad->i >= 0) {
		begin_key(g->keys, "pad");
		write_number(g->keys, pad);
	}
	return true;
}

/* Whether a value is a list of ids with at least one. */
static bool are_ids(const struct json_node *list)
{
	bool ok = list->kind == JSON_NODE_ARRAY && list->n > 0;
	for (size_t i = 0; ok && i < list->n; i++)
		ok = is_id(&list->items[i]);
	return ok;
}

/* Whether the id ends a text: it is eos_token_id, or in its list. */
static bool is_stop(const struct generation *g, int64_t id)
{
	const struct json_node *stop = find(g->root, "eos_token_id");
	if (stop == NULL || stop->kind != JSON_NODE_ARRAY)
		return stop != NULL && stop->kind == JSON_NODE_INT && stop->i == id;
	for (size_t i = 0; i < stop->n; i++)
		if (stop->items[i].kind == JSON_NODE_INT && stop->items[i].i == id)
			return true;
	return false;
}

/* Appends [id, ..] to an open list of lists. */
static void write_list(struct buf *out, const struct json_node *ids)
{
	buf_str(out, out->data[out->len - 1] == '[' ? "[" : ", [");
	for (size_t i = 0; i < ids->n; i++)
		write_id(out, ids->items[i].i);
	buf_char(out, ']');
}

/* Maps bad_words_ids, [[id, ..], ..]; like the library, drops those that are a single stop id. */
static bool map_banned(struct generation *g)
{
	const struct json_node *words = find(g->root, "bad_words_ids");
	if (words == NULL)
		return true;
	if (words->kind != JSON_NODE_ARRAY)
		return reject(g, "bad_words_ids", "is not a list of lists of ids");
	begin_key(g->keys, "banned");
	buf_char(g->keys, '[');
	for (size_t i = 0; i < words->n; i++) {
		const struct json_node *word = &words->items[i];
		if (!are_ids(word))
			return reject(g, "bad_words_ids", "is not a list of lists of ids");
		if (word->n > 1 || !is_stop(g, word->items[0].i))
			write_list(g->keys, word);
	}
	buf_char(g->keys, ']');
	return true;
}

/* Maps sequence_bias, [[[id, ..], number], ..]. */
static bool map_bias(struct generation *g)
{
	const struct json_node *list = find(g->root, "sequence_bias");
	if (list == NULL)
		return true;
	if (list->kind != JSON_NODE_ARRAY)
		return reject(g, "sequence_bias", "is not a list of lists of ids and numbers");
	begin_key(g->keys, "bias");
	buf_char(g->keys, '[');
	for (size_t i = 0; i < list->n; i++) {
		const struct json_node *pair = &list->items[i];
		if (pair->kind != JSON_NODE_ARRAY || pair->n != 2 || !are_ids(&pair->items[0]) ||
		    !is_number(&pair->items[1]))
			return reject(g, "sequence_bias", "is not a list of lists of ids and numbers");
		buf_str(g->keys, i == 0 ? "[" : ", [");
		write_list(g->keys, &pair->items[0]);
		buf_str(g->keys, ", ");
		write_number(g->keys, &pair->items[1]);
		buf_char(g->keys, ']');
	}
	buf_char(g->keys, ']');
	return true;
}

/* ---- start ids ---- */

/* Suffixes of architectures that generate: decoder-only, and encoder-decoder. */
static const char *const decoders[] = {"ForCausalLM", "LMHeadModel"};
static const char *const encoder_decoders[] = {"ForConditionalGeneration", "MTModel"};

/* First of `architectures`, "" without one. */
static const char *architecture(const struct generation *g)
{
	const struct json_node *list = find(g->config, "architectures");
	const struct json_node *first =
	        list != NULL && list->kind == JSON_NODE_ARRAY && list->n > 0 ? list->items : NULL;
	return first != NULL && first->kind == JSON_NODE_STRING ? first->text : "";
}

/* Whether the architecture ends with one of n suffixes. */
static bool has_architecture_suffix(const struct generation *g, const char *const *endings, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (file_ends_with(architecture(g), endings[i]))
			return true;
	return false;
}

/* Sets *id to the token of the target language (tgt_lang), which translation models generate first; -1:
 * tokenizer_config.json has none, or no file has an id for it. False after a diagnostic. */
static bool find_language(const struct generation *g, int64_t *id)
{
	const char *text;
	*id = -1;
	return hub_dir_token_of(g->f, g->dir, "tgt_lang", &text) &&
	       (text == NULL || hub_dir_token_id(g->f, g->dir, text, id));
}

/* ---- speech models ---- */

/* Writes a single-quoted string; false: it has characters that need escapes. */
static bool write_string(struct buf *out, const char *text)
{
	for (const char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c < ' ' || *c == '\'')
			return false;
	buf_printf(out, "'%s'", text);
	return true;
}

/* Maps an object of names and ids to the mapping `name` in `out`; names that need escapes are rejected
 * (write_string). */
static bool map_names(struct generation *g, struct buf *out, const char *key, const char *name)
{
	const struct json_node *map = find(g->root, key);
	if (map == NULL)
		return true;
	if (map->kind != JSON_NODE_OBJECT)
		return reject(g, key, "is not an object of names and ids");
	begin_key(out, name);
	buf_char(out, '{');
	for (size_t i = 0; i < map->n; i++) {
		buf_str(out, i == 0 ? "" : ", ");
		if (!is_id(&map->items[i]) || !write_string(out, map->keys[i]))
			return reject(g, key, "is not an object of names and ids");
		buf_printf(out, ": %lld", (long long)map->items[i].i);
	}
	buf_char(out, '}');
	return true;
}

/* Maps a key with a name to the key of the same name. */
static bool map_keyword(struct generation *g, struct buf *out, const char *key)
{
	const struct json_node *v = find(g->root, key);
	if (v == NULL)
		return true;
	begin_key(out, key);
	return (v->kind == JSON_NODE_STRING && write_string(out, v->text)) || reject(g, key, "is not a name");
}

/* Maps forced_decoder_ids of either file, generation_config.json first, [[1, id or null], [2, id], ..]: the ids after
 * the start id, at positions from 1 on without a gap; null stands for the language to be detected. */
static bool map_forced_ids(struct generation *g, struct buf *out)
{
	const struct json_node *list = find(g->root, "forced_decoder_ids");
	list = list != NULL ? list : find(g->config, "forced_decoder_ids");
	if (list == NULL)
		return true;
	if (list->kind != JSON_NODE_ARRAY)
		return reject(g, "forced_decoder_ids", "is not a list");
	begin_key(out, "forced");
	buf_char(out, '[');
	for (size_t i = 0; i < list->n; i++) {
		const struct json_node *pair = &list->items[i];
		bool is_pair = pair->kind == JSON_NODE_ARRAY && pair->n == 2;
		const struct json_node *at = is_pair ? &pair->items[0] : NULL,
		                       *id = is_pair ? &pair->items[1] : NULL;
		if (!is_pair || at->kind != JSON_NODE_INT || (id->kind != JSON_NODE_NULL && !is_id(id)))
			return reject(g, "forced_decoder_ids",
			              "is not a list of pairs of a position and an id");
		if (i == 0 && at->i != 1)
			break; /* the library uses only lists that begin with position 1 */
		if (at->i != (int64_t)i + 1)
			return reject(g, "forced_decoder_ids", "leaves out a position");
		if (id->kind == JSON_NODE_NULL)
			buf_str(out, i == 0 ? "null" : ", null");
		else
			write_id(out, id->i);
	}
	buf_char(out, ']');
	return true;
}

/* Maps a key with a count, 0 to 2^31 - 1, to `name` in `out`. */
static bool map_count(struct generation *g, struct buf *out, const char *key, const char *name)
{
	const struct json_node *v = find(g->root, key);
	if (v == NULL)
		return true;
	begin_key(out, name);
	buf_printf(out, "%lld", (long long)v->i);
	return is_id(v) || reject(g, key, "is not a count");
}

/* Writes `NAME: true` if the key has this value; the other one is the default. */
static bool map_switch(struct generation *g, struct buf *out, const char *key, const char *name, bool value)
{
	const struct json_node *v = find(g->root, key);
	if (v != NULL && v->kind != JSON_NODE_BOOL)
		return reject(g, key, "is not true or false");
	if (v != NULL && (v->i != 0) == value) {
		begin_key(out, name);
		buf_str(out, "true");
	}
	return true;
}

/* Writes `speech` for Whisper. Of config.json the library uses forced_decoder_ids only, so the other keys count in
 * generation_config.json alone. */
static bool map_speech(struct generation *g)
{
	struct buf keys;
	if (strcmp(architecture(g), "WhisperForConditionalGeneration") != 0)
		return true;
	buf_init(&keys);
	bool ok = map_forced_ids(g, &keys);
	if (g->has_file)
		ok = ok && map_names(g, &keys, "lang_to_id", "languages") &&
		     map_names(g, &keys, "task_to_id", "tasks") && map_keyword(g, &keys, "language") &&
		     map_keyword(g, &keys, "task") &&
		     map_count(g, &keys, "no_timestamps_token_id", "no_timestamps") &&
		     map_count(g, &keys, "max_initial_timestamp_index", "latest_first") &&
		     map_switch(g, &keys, "return_timestamps", "timestamps", true) &&
		     map_switch(g, &keys, "is_multilingual", "english_only", false);
	begin_key(g->keys, "speech");
	buf_printf(g->keys, "{%s}", ok ? keys.data : "");
	buf_destroy(&keys);
	return ok;
}

/* Maps the start ids of an encoder-decoder: decoder_start_token_id, else bos_token_id, then forced_bos_token_id or
 * the target language (*is_forced), unless that is the start id itself. Without generation_config.json the preset's
 * start stays if config.json has neither, as in directories that were never used for generation. */
static bool map_start(struct generation *g, bool *is_forced)
{
	const struct json_node *start = find(g->root, "decoder_start_token_id");
	const struct json_node *first = find(g->root, "forced_bos_token_id");
	int64_t language = -1;
	if (first == NULL && has_architecture_suffix(g, encoder_decoders, TFMC_COUNT(encoder_decoders)) &&
	    !find_language(g, &language))
		return false;
	if (first != NULL && !is_id(first))
		return reject(g, "forced_bos_token_id", "is not an id");
	start = start != NULL ? start : find(g->root, "bos_token_id");
	if (start == NULL && !g->has_file)
		return true;
	begin_key(g->keys, "start");
	buf_char(g->keys, '[');
	if (start != NULL && !write_ids(g, "decoder_start_token_id", start, true))
		return false;
	bool is_start = start != NULL && start->kind == JSON_NODE_INT && start->i == language;
	*is_forced = first != NULL || (language >= 0 && !is_start);
	if (*is_forced)
		write_id(g->keys, first != NULL ? first->i : language);
	buf_char(g->keys, ']');
	if (*is_forced)
		buf_str(g->keys, ", forced: 1");
	return true;
}

/* Maps the stop ids. If neither configuration has any, a causal model stops at the tokenizer's end-of-text token. An
   empty list overrides the preset's. Without generation_config.json the preset takes the ids of config.json. */
static bool map_stop(struct generation *g, bool is_causal)
{
	const char *text = NULL;
	int64_t id = -1;
	if (find(g->root, "eos_token_id") != NULL)
		return !g->has_file || map_ids(g, "eos_token_id", "stop");
	bool needs_default = is_causal && find(g->config, "eos_token_id") == NULL &&
	                     has_architecture_suffix(g, decoders, TFMC_COUNT(decoders));
	if (needs_default && !hub_dir_token_of(g->f, g->dir, "eos_token", &text))
		return false;
	if (text != NULL && !hub_dir_token_id(g->f, g->dir, text, &id))
		return false;
	begin_key(g->keys, "stop");
	buf_char(g->keys, '[');
	if (id >= 0)
		write_id(g->keys, id);
	buf_char(g->keys, ']');
	return true;
}

/* ---- numeric keys ---- */

/* Numeric keys with their neutral value; shift: counts new tokens, one of which is a forced start token. */
static const struct numeric_key {
	const char *key, *name;
	double neutral;
	bool is_int, shift;
} numeric_keys[] = {
        {"max_new_tokens", "max_new", 0, true, true},
        {"max_length", "max_total", 0, true, false},
        {"min_new_tokens", "min_new", 0, true, true},
        {"min_length", "min_total", 0, true, false},
        {"repetition_penalty", "repetition_penalty", 1, false, false},
        {"encoder_repetition_penalty", "source_repetition_penalty", 1, false, false},
        {"no_repeat_ngram_size", "no_repeat_ngram", 0, true, false},
        {"encoder_no_repeat_ngram_size", "source_no_repeat_ngram", 0, true, false},
};

/* True: max_new_tokens or min_new_tokens replaces this bound of the total length. */
static bool is_replaced(const struct generation *g, const char *key)
{
	return (strcmp(key, "max_length") == 0 && find(g->root, "max_new_tokens") != NULL) ||
	       (strcmp(key, "min_length") == 0 && find(g->root, "min_new_tokens") != NULL);
}

/* Maps the numeric keys that differ from their neutral value. is_forced: `start` contains the first token that the
 * library counts as new, so counts of new tokens are one less, but not 0, which would mean no bound. */
static bool map_numbers(struct generation *g, bool is_forced)
{
	for (size_t i = 0; i < TFMC_COUNT(numeric_keys); i++) {
		const struct numeric_key *r = &numeric_keys[i];
		const struct json_node *v = find(g->root, r->key);
		if (v == NULL || is_replaced(g, r->key))
			continue;
		if (r->is_int ? v->kind != JSON_NODE_INT || v->i < 0 : !is_number(v) || !(number_of(v) > 0))
			return reject(g, r->key, r->is_int ? "is not a count" : "is not a number above 0");
		double number = number_of(v) - (r->shift && is_forced && number_of(v) > 1);
		if (number == r->neutral)
			continue;
		begin_key(g->keys, r->name);
		if (r->is_int)
			buf_printf(g->keys, "%lld", (long long)number);
		else
			write_number(g->keys, v);
	}
	return true;
}

/* Maps exponential_decay_length_penalty, [new tokens, factor]. is_forced: as in map_numbers(), and 0 stays. */
static bool map_decay(struct generation *g, bool is_forced)
{
	const struct json_node *pair = find(g->root, "exponential_decay_length_penalty");
	if (pair == NULL)
		return true;
	if (pair->kind != JSON_NODE_ARRAY || pair->n != 2 || pair->items[0].kind != JSON_NODE_INT ||
	    pair->items[0].i < 0 || !is_number(&pair->items[1]))
		return reject(g, "exponential_decay_length_penalty", "is not a pair of a count and a factor");
	begin_key(g->keys, "decay");
	int64_t after = pair->items[0].i - (is_forced && pair->items[0].i > 0);
	buf_printf(g->keys, "{after: %lld, factor: ", (long long)after);
	write_number(g->keys, &pair->items[1]);
	buf_char(g->keys, '}');
	return true;
}

/* Maps beam search: num_beams, length_penalty, early_stopping. Nothing for the defaults of greedy search. With
 * several beams early_stopping is written always: the default of the library is false, that of the section true. */
static bool map_search(struct generation *g)
{
	const struct json_node *beams = find(g->root, "num_beams"),
	                       *penalty = find(g->root, "length_penalty");
	const struct json_node *early = find(g->root, "early_stopping");
	int64_t width = beams == NULL ? 1 : beams->i;
	if (beams != NULL && (beams->kind != JSON_NODE_INT || beams->i < 1))
		return reject(g, "num_beams", "is not a count");
	if (penalty != NULL && !is_number(penalty))
		return reject(g, "length_penalty", "is not a number");
	bool is_never = early != NULL && early->kind == JSON_NODE_STRING && strcmp(early->text, "never") == 0;
	if (early != NULL && early->kind != JSON_NODE_BOOL && !is_never)
		return reject(g, "early_stopping", "is none of true, false, \"never\"");
	if (width == 1 && penalty == NULL && early == NULL)
		return true;
	begin_key(g->keys, "search");
	buf_printf(g->keys, "{beam: %lld", (long long)width);
	if (penalty != NULL) {
		buf_str(g->keys, ", length_penalty: ");
		write_number(g->keys, penalty);
	}
	if (width > 1 || early != NULL)
		buf_printf(g->keys, ", early_stopping: %s",
		           is_never                         ? "never"
		           : early != NULL && early->i != 0 ? "true"
		                                            : "false");
	buf_char(g->keys, '}');
	return true;
}

/* ---- unsupported keys, sampling ---- */

/* Keys that change greedy text or beam search in unsupported ways, with their neutral value. */
static const struct {
	const char *key;
	double neutral;
} unsupported[] = {
        {"guidance_scale", 1}, {"token_healing", 0},     {"watermarking_config", 0}, {"penalty_alpha", 0},
        {"dola_layers", 0},    {"constraints", 0},       {"force_words_ids", 0},     {"num_beam_groups", 1},
        {"stop_strings", 0},   {"diversity_penalty", 0},
};

/* Writes the first unsupported key that is not neutral; generation then fails with its name, while other uses of the
 * model work. A value that is neither number nor bool, such as a list, is not neutral. */
static void report_unsupported(struct generation *g)
{
	for (size_t i = 0; i < TFMC_COUNT(unsupported); i++) {
		const struct json_node *v = find(g->root, unsupported[i].key);
		bool is_plain = v != NULL && (is_number(v) || v->kind == JSON_NODE_BOOL);
		if (v == NULL || (is_plain && number_of(v) == unsupported[i].neutral))
			continue;
		begin_key(g->keys, "unsupported");
		buf_str(g->keys, unsupported[i].key);
		return;
	}
}

/* Returns a comment with the sampling options of generation_config.json; "": none. */
static const char *sampling_comment(const struct generation *g)
{
	static const char *const keys[] = {"do_sample", "temperature", "top_k", "top_p", "min_p"};
	struct buf text;
	buf_init(&text);
	for (size_t i = 0; g->has_file && i < TFMC_COUNT(keys); i++) {
		const struct json_node *v = find(g->root, keys[i]);
		const char *before = text.len != 0 ? ", " : "";
		if (v != NULL && v->kind == JSON_NODE_BOOL)
			buf_printf(&text, "%s%s %s", before, keys[i], v->i != 0 ? "true" : "false");
		else if (v != NULL && is_number(v))
			buf_printf(&text, "%s%s %.6g", before, keys[i], number_of(v));
	}
	const char *comment =
	        text.len == 0 ? "" : arena_printf(g->f->arena, "# " FILE_NAME " also says: %s\n", text.data);
	buf_destroy(&text);
	return comment;
}

/* Maps all keys. A decoder starts with bos_token_id before a prompt, an encoder-decoder with its start ids. Without
 * generation_config.json start and padding stay as the preset reads them from config.json. map_start() comes first,
 * as it sets is_forced for the counts. */
static bool map_all(struct generation *g, bool is_causal)
{
	bool is_forced = false;
	bool ok = is_causal ? !g->has_file || map_ids(g, "bos_token_id", "start") : map_start(g, &is_forced);
	if (is_causal && find(g->root, "forced_bos_token_id") != NULL)
		return reject(g, "forced_bos_token_id", "is for models with a source");
	ok = ok && map_stop(g, is_causal) && (!g->has_file || map_pad(g)) &&
	     map_id_list(g, "suppress_tokens", "suppress") &&
	     map_id_list(g, "begin_suppress_tokens", "suppress_first") &&
	     map_ids(g, "forced_eos_token_id", "forced_last") && map_banned(g) && map_bias(g) &&
	     map_numbers(g, is_forced) && map_decay(g, is_forced) && map_search(g) &&
	     map_switch(g, g->keys, "renormalize_logits", "renormalize", true) && map_speech(g);
	if (ok)
		report_unsupported(g);
	return ok;
}

/* Without a preset that generates (kind NULL) there is nothing to map: "". */
const char *hub_dir_generation(struct parsed_files *f, const char *dir, const struct json_node *config)
{
	struct buf keys;
	const char *text = NULL, *kind = NULL;
	const struct json_node *type = find(config, "model_type");
	struct generation g = {.f = f, .dir = dir, .config = config, .keys = &keys};
	if (type != NULL && type->kind == JSON_NODE_STRING &&
	    !preset_generate_kind(f->arena, f->cx, type->text, architecture(&g), &kind))
		return NULL;
	g.has_file = directory_has_file(f->arena, dir, FILE_NAME);
	g.name = file_join(f->arena, dir, g.has_file ? FILE_NAME : "config.json");
	g.root = g.has_file ? hub_dir_json(f, dir, FILE_NAME) : config;
	if (g.root == NULL || kind == NULL)
		return g.root == NULL ? NULL : "";
	buf_init(&keys);
	if (map_all(&g, strcmp(kind, "causal") == 0))
		text = keys.len == 0 ? sampling_comment(&g)
		                     : arena_printf(f->arena, "%sgenerate: {%s}\n", sampling_comment(&g),
		                                    keys.data);
	buf_destroy(&keys);
	return text;
}
