/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts and texts as token ids: the tokenizer of a model, parsing and encoding, files with one prompt a line, feature
 * sources, the decoder prefix of speech models, and the texts that score, quality and calibrate evaluate.
 */
#include "frontend/driver/commands/prompts.h"

#include <errno.h>
#include <string.h>

#include "frontend/syntax/files.h"
#include "ir/support/number.h"
#include "ir/support/utf8.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

/* ---- the tokenizer ---- */

/* Reports a status of libtfmctok. TFMC_OK for TFMC_TOKENIZER_OK. */
static enum tfmc_status check_tokenizer_status(struct driver *d, int status)
{
	if (status == TFMC_TOKENIZER_OK)
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, DIAG_TOKENIZER, "%s", tfmc_tokenizer_status_text(status));
	return status == TFMC_TOKENIZER_E_MEMORY ? TFMC_NO_MEMORY : TFMC_INVALID;
}

/* A tokenizer of kind chars needs no library: the record has its vocabulary. The target's tokenizer is the second
 * one, if there are two (Marian), else the same. */
enum tfmc_status driver_open_tokenizer(struct driver *d, struct frontend_model *m, bool needed)
{
	const struct frontend_tokenizer *t = frontend_tokenizer_head(m);
	if (!t->given || t->kind == TOKENIZER_CHARS || d->tokenizer)
		return TFMC_OK;
	TFMC_TRY(frontend_tokenizer(m, needed, &t));
	driver_end_stage(d, "tokenizer");
	/* Not supported, and not needed. */
	if (t->packed.data == NULL)
		return TFMC_OK;
	TFMC_TRY(check_tokenizer_status(d,
	                                tfmc_tokenizer_open(t->packed.data, t->packed.bytes, &d->tokenizer)));
	return check_tokenizer_status(
	        d, tfmc_tokenizer_open_target(t->packed.data, t->packed.bytes, &d->target_tokenizer));
}

enum tfmc_status driver_tokenize(struct driver *d, enum prompt_vocabulary which, const char *text,
                                 int32_t **ids, uint64_t *n)
{
	const struct tfmc_tokenizer *t = which == PROMPT_TARGET ? d->target_tokenizer : d->tokenizer;
	unsigned flags = which == PROMPT_SOURCE ? TFMC_TOKENIZE_SPECIAL : 0;
	size_t len = strlen(text);
	TFMC_TRY(check_tokenizer_status(d, tfmc_tokenizer_encode(t, text, len, flags, NULL, 0, n)));
	*ids = ARENA_ARRAY(&d->arena, int32_t, *n + 1);
	if (!*ids)
		return TFMC_NO_MEMORY;
	return check_tokenizer_status(d, tfmc_tokenizer_encode(t, text, len, flags, *ids, *n, n));
}

enum tfmc_status driver_detokenize(struct driver *d, const int32_t *ids, uint64_t n, unsigned flags,
                                   const char **text)
{
	uint64_t bytes;
	TFMC_TRY(check_tokenizer_status(
	        d, tfmc_tokenizer_decode(d->target_tokenizer, ids, n, flags, NULL, 0, &bytes)));
	char *out = arena_alloc(&d->arena, (size_t)bytes + 1); /* zeroed: the last byte ends the text */
	if (!out)
		return TFMC_NO_MEMORY;
	*text = out;
	return check_tokenizer_status(
	        d, tfmc_tokenizer_decode(d->target_tokenizer, ids, n, flags, out, bytes, &bytes));
}

/* tfmc_constraints.token_text: the text of one token as it is inside a text, with its leading blank. NULL: an id
 * without text. */
const char *driver_token_text(void *user, int32_t id, uint64_t *bytes)
{
	struct token_text *t = user;
	int status = tfmc_tokenizer_decode(t->tokenizer, &id, 1, TFMC_DETOKENIZE_AFTER, t->text,
	                                   sizeof(t->text), bytes);
	if (*bytes > sizeof(t->text)) /* truncated: stop strings do not look beyond */
		*bytes = sizeof(t->text);
	return status == TFMC_TOKENIZER_OK ? t->text : NULL;
}

/* ---- ids ---- */

#define PROMPT_FILE_LIMIT ((size_t)64 << 20) /* bytes */

/* Commas or blanks separate ids: blanks may repeat, a comma stands between two ids. */
bool parse_id_list(struct driver *d, const char *text, int32_t **items, size_t *n)
{
	struct ids out = {0};
	for (const char *s = text; *s;) {
		size_t length = strcspn(s, ", ");
		int64_t id;
		if (length) {
			int32_t *slot = ARENA_PUSH(&d->arena, &out);
			if (!number_parse_i64(s, length, &id) || id < 0 || id > INT32_MAX || !slot)
				return false;
			*slot = (int32_t)id;
			/* Commas separate ids, so none may be missing; blanks may repeat. */
		} else if (*s == ',' && (s == text || s[-1] == ',')) {
			return false;
		}
		s += length;
		if (*s == ',' && !s[1])
			return false;
		s += *s != 0;
	}
	*items = out.items;
	*n = out.n;
	return true;
}

enum tfmc_status prompt_check_status(struct driver *d, const struct tfmc_session *session,
                                     const char *command, int status)
{
	if (status == TFMC_RT_OK)
		return TFMC_OK;
	enum tfmc_status st = driver_runtime_error(d, LOC_NONE, DIAG_INPUT, status, "%s: %s", command,
	                                           tfmc_session_status_text(session, status));
	/* The prompt may be too long only because --limit-memory shortens the context. */
	if (status == TFMC_RT_E_PROMPT || status == TFMC_RT_E_FULL)
		driver_note_context_limit(d);
	return st;
}

enum tfmc_status prompt_append_ids(struct driver *d, const int32_t *ids, uint64_t n, struct ids *out)
{
	for (uint64_t i = 0; i < n; i++) {
		if (!ARENA_ADDED(&d->arena, out, ids[i]))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}

/* Without a tokenizer each code point is a token of the record's vocabulary. The first call counts the ids: where a
 * character has no token, n is the number of characters before it. */
enum tfmc_status prompt_append_text(struct driver *d, const struct tfmc_record *r, const char *command,
                                    enum prompt_vocabulary which, const char *text, struct ids *out)
{
	int (*encode)(const struct tfmc_record *, const char *, int32_t *, uint64_t, uint64_t *) =
	        which == PROMPT_TARGET ? tfmc_text_encode_target : tfmc_text_encode;
	uint64_t n;
	int32_t *ids;
	if (d->tokenizer) {
		TFMC_TRY(driver_tokenize(d, which, text, &ids, &n));
		return prompt_append_ids(d, ids, n, out);
	}
	int status = encode(r, text, NULL, 0, &n);
	if (status == TFMC_RT_E_TEXT && !r->vocabulary && !r->source_vocabulary) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
		           "%s: the model has no tokenizer for the text '%.60s'", command, text);
		diag_note(&d->diag, LOC_NONE, "give token ids, as in --tokens 1,2,3");
		return TFMC_INVALID;
	}
	if (status == TFMC_RT_E_TEXT) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "%s: the text is not UTF-8", command);
		return TFMC_INVALID;
	}
	if (status == TFMC_RT_E_PROMPT) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
		           "%s: character %llu of the text is not in the vocabulary", command,
		           (unsigned long long)n + 1);
		return TFMC_INVALID;
	}
	TFMC_TRY(prompt_check_status(d, NULL, command, status));
	ids = ARENA_ARRAY(&d->arena, int32_t, n + 1);
	if (!ids)
		return TFMC_NO_MEMORY;
	TFMC_TRY(prompt_check_status(d, NULL, command, encode(r, text, ids, n, &n)));
	return prompt_append_ids(d, ids, n, out);
}

enum tfmc_status prompt_append_list(struct driver *d, const char *command, const char *text, struct ids *out)
{
	int32_t *ids;
	size_t n;
	if (parse_id_list(d, text, &ids, &n))
		return prompt_append_ids(d, ids, n, out);
	diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "%s: a list of ids is such as 1,2,3, not %s", command,
	           text);
	return TFMC_INVALID;
}

enum tfmc_status prompt_append_record_ids(struct driver *d, const struct tfmc_record *r, int64_t at,
                                          int64_t n, struct ids *out)
{
	const int64_t *ids = (const void *)((const char *)r + at);
	for (int64_t i = 0; i < n; i++) {
		int32_t id = (int32_t)ids[i];
		TFMC_TRY(prompt_append_ids(d, &id, 1, out));
	}
	return TFMC_OK;
}

/* ---- feature sources ---- */

/* The source of a sequence-to-sequence model is features unless it is i32 [B, S]; --inputs is for those alone. */
enum tfmc_status prompt_find_feature_input(struct driver *d, const struct frontend_model *m,
                                           const struct frontend_input **out)
{
	const struct frontend_generate *gen = frontend_generate(m);
	const struct frontend_input *in =
	        gen->kind == GENERATE_SEQ2SEQ ? frontend_find_input(m, gen->source) : NULL;
	*out = in && (in->dtype != DT_I32 || in->rank != 2) ? in : NULL;
	if (!*out == !d->options.inputs)
		return TFMC_OK;
	if (*out) {
		diag_error(&d->diag, (*out)->loc, DIAG_OPTION,
		           "the source '%s' is features, not ids; --inputs gives it", (*out)->name);
		return TFMC_INVALID;
	}
	diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
	           "--inputs gives a source of features; this model reads ids, which --prompt and --tokens "
	           "give");
	return TFMC_INVALID;
}

enum tfmc_status prompt_read_features(struct driver *d, const struct frontend_input *in,
                                      const struct named_tensor **out)
{
	struct named_tensors file = {0};
	TFMC_TRY(tensors_read(d, d->options.inputs, d->options.prefix, &file));
	struct named_tensor *t = tensors_find(&file, in->name);
	if (!t || t->dtype != in->dtype || t->rank != in->rank || !t->rank) {
		diag_error(&d->diag, in->loc, DIAG_INPUT, "%s has no tensor %s of type %s and rank %d",
		           d->options.inputs, in->name, ir_dtype_name(in->dtype), in->rank);
		return TFMC_INVALID;
	}
	if (t->dims[0] == 0) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "%s has no sources", d->options.inputs);
		return TFMC_INVALID;
	}
	for (size_t i = 0; i < file.n; i++)
		if (&file.items[i] != t)
			diag_warning(&d->diag, LOC_NONE, DIAG_INPUT, "tensor %s is not the source",
			             file.items[i].name);
	*out = t;
	const struct named_tensor *lengths = in->lengths ? tensors_find(&file, in->lengths) : NULL;
	/* Rows are set one by one, all as long as the tensor: lengths in the file may only repeat that. */
	bool is_full = !lengths || (lengths->dtype == DT_I32 && t->rank > 1);
	for (int64_t i = 0; lengths && is_full && i < lengths->count; i++)
		is_full = ((const int32_t *)lengths->data)[i] == t->dims[1];
	if (is_full)
		return TFMC_OK;
	diag_error(&d->diag, in->loc, DIAG_INPUT,
	           "'%s' is not supported: put sources of different lengths into a file each", in->lengths);
	return TFMC_INVALID;
}

enum tfmc_status prompt_set_source_row(struct driver *d, struct tfmc_session *session, const char *command,
                                       const struct named_tensor *rows, int64_t row)
{
	size_t bytes = (size_t)(rows->count / rows->dims[0]) * (size_t)ir_dtype_bytes(rows->dtype);
	int64_t sizes[IR_RANK_MAX];
	memcpy(sizes, rows->dims, sizeof(sizes));
	sizes[0] = 1;
	return prompt_check_status(d, session, command,
	                           tfmc_session_set_source(session,
	                                                   (const char *)rows->data + (size_t)row * bytes,
	                                                   sizes, (uint64_t)rows->rank));
}

/* ---- files ---- */

enum tfmc_status prompt_note_line(struct driver *d, size_t number, enum tfmc_status st)
{
	const struct driver_options *o = &d->options;
	if (st == TFMC_INVALID && number > 0)
		diag_note(&d->diag, LOC_NONE, "line %zu of %s", number,
		          o->prompt_file ? o->prompt_file : o->tokens_file);
	return st;
}

/* Calls each() for every line of a file, without its line end and a byte order mark. A zero byte is rejected: lines
 * are zero-terminated from here on. */
enum tfmc_status prompt_for_each_line(struct driver *d, const char *path, prompt_line_fn *each, void *user)
{
	const char *text;
	size_t len, number = 0;
	outputs_add_input(&d->outputs, path);
	TFMC_TRY(file_read(&d->arena, &d->diag, path, PROMPT_FILE_LIMIT, LOC_NONE, &text, &len));
	if (memchr(text, 0, len)) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "%s has a zero byte: prompts are UTF-8 text",
		           path);
		return TFMC_INVALID;
	}
	const char *end = text + len;
	if (!strncmp(text, "\xEF\xBB\xBF", 3)) /* UTF-8 byte order mark */
		text += 3;
	for (const char *next; text < end; text = next) {
		size_t n = utf8_line(text, end, &next);
		const char *line = arena_strndup(&d->arena, text, n);
		if (!line)
			return TFMC_NO_MEMORY;
		TFMC_TRY(each(user, line, ++number));
	}
	return TFMC_OK;
}

/* Reads stdin to its end as the prompt, without its last newline. TFMC_INVALID after a diagnostic: too long, or a
 * zero byte. */
static enum tfmc_status read_prompt_from_stdin(struct driver *d, const char **out)
{
	struct buf text;
	char block[4096];
	size_t n;
	buf_init(&text);
	while ((n = fread(block, 1, sizeof(block), stdin)) > 0 && text.len <= PROMPT_FILE_LIMIT)
		buf_bytes(&text, block, n);
	if (text.len > 0 && text.data[text.len - 1] == '\n')
		text.data[--text.len] = 0;
	bool is_text = text.len <= PROMPT_FILE_LIMIT && !memchr(text.data, 0, text.len);
	enum tfmc_status st = ferror(stdin) ? TFMC_IO : !is_text ? TFMC_INVALID : TFMC_OK;
	if (st == TFMC_OK && (buf_failed(&text) || !(*out = arena_strdup(&d->arena, text.data))))
		st = TFMC_NO_MEMORY;
	else if (st == TFMC_IO)
		diag_environment_error(&d->diag, LOC_NONE, DIAG_FILE, "cannot read the prompt from stdin: %s",
		                       strerror(errno));
	else if (st == TFMC_INVALID)
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
		           "the prompt from stdin is not a text of at most %zu bytes", PROMPT_FILE_LIMIT);
	buf_destroy(&text);
	return st;
}

enum tfmc_status driver_read_prompt_option(struct driver *d)
{
	const char **prompt = &d->options.prompt, *file = d->options.file, *text;
	size_t len;
	if (file && *prompt) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "only one of --prompt, --file");
		return TFMC_INVALID;
	}
	if (file && strcmp(file, "-")) {
		outputs_add_input(&d->outputs, file);
		TFMC_TRY(file_read(&d->arena, &d->diag, file, PROMPT_FILE_LIMIT, LOC_NONE, &text, &len));
		if (memchr(text, 0, len)) {
			diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
			           "%s has a zero byte: prompts are UTF-8 text", file);
			return TFMC_INVALID;
		}
		*prompt = arena_strndup(&d->arena, text, len - (len > 0 && text[len - 1] == '\n'));
		return *prompt ? TFMC_OK : TFMC_NO_MEMORY;
	}
	*prompt = file ? file : *prompt;
	return *prompt && !strcmp(*prompt, "-") ? read_prompt_from_stdin(d, prompt) : TFMC_OK;
}

/* ---- models of speech ---- */

/* Collects the likeliest language token. */
struct language_detection {
	const struct frontend_names *languages;
	int64_t best; /* -1: not called yet */
};

/* on_logits: the likeliest of the language tokens, of equals the lowest id. Returns 1 to end the generation. */
static int pick_language(void *user, float *logits, int64_t vocab, const int32_t *ids, uint64_t n)
{
	struct language_detection *detection = user;
	(void)ids;
	(void)n;
	for (size_t i = 0; i < detection->languages->n; i++) {
		int64_t id = detection->languages->ids[i];
		if (id >= vocab)
			continue;
		bool is_equal = detection->best >= 0 && logits[id] == logits[detection->best];
		if (detection->best < 0 || logits[id] > logits[detection->best] ||
		    (is_equal && id < detection->best))
			detection->best = id;
	}
	return 1;
}

/* Sets *id to the language token that a decode step after the start token finds likeliest, as in Whisper. The step
 * ends with pick_language(), so the generation itself has no result. */
static enum tfmc_status detect_language(struct driver *d, struct tfmc_session *session,
                                        const struct frontend_speech *s, int64_t *id)
{
	struct language_detection detection = {&s->languages, -1};
	const struct tfmc_constraints constraints = {
	        .struct_size = sizeof(constraints), .on_logits = pick_language, .user = &detection};
	const struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .max_new_tokens = 1, .constraints = &constraints};
	int32_t first = (int32_t)s->start, out;
	uint64_t n;
	int status = tfmc_generate(session, &o, NULL, 0, &first, 1, &out, 1, &n);
	*id = detection.best;
	return detection.best >= 0 ? TFMC_OK : prompt_check_status(d, session, "generate", status);
}

/* The second token is the language; SPEECH_DETECTED stands for the one that the model finds likeliest for the
 * session's source. */
enum tfmc_status prompt_append_speech_start(struct driver *d, struct tfmc_session *session,
                                            const struct frontend_generate *g, struct ids *out)
{
	const struct driver_options *o = &d->options;
	const struct speech_request request = {o->language, o->task, o->timestamps};
	int64_t ids[SPEECH_START_MAX];
	size_t n;
	if (!g->speech.given || g->start.n == 0)
		return TFMC_OK;
	const char *wrong = frontend_speech_start(&d->arena, &g->speech, &request, ids, &n);
	if (wrong) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s", wrong);
		return TFMC_INVALID;
	}
	if (n > 1 && ids[1] == SPEECH_DETECTED)
		TFMC_TRY(detect_language(d, session, &g->speech, &ids[1]));
	for (size_t i = 0; i < n; i++)
		TFMC_TRY(prompt_append_ids(d, &(int32_t){(int32_t)ids[i]}, 1, out));
	return TFMC_OK;
}

/* ---- texts to be evaluated ---- */

struct text_reader {
	struct texts *texts;
	text_fn *each;
	void *user;
};

/* With --inputs the sources are features, and a file may have their targets; else exactly one of the four options
 * gives the texts. */
enum exit_code texts_check_options(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct ids ids = {0};
	int n_files = !!o->prompt_file + !!o->tokens_file, n_given = !!o->tokens + !!o->prompt;
	if (o->inputs ? n_given || n_files > 1 : n_given + n_files != 1)
		return driver_usage_error(
		        d, "one of --prompt, --prompt-file, --tokens, --tokens-file is required%s",
		        o->inputs ? "; with --inputs none, or a file of targets" : "");
	if (o->target_text && o->target_tokens)
		return driver_usage_error(d, "only one of --target-text, --target-tokens");
	if (o->tokens && !parse_id_list(d, o->tokens, &ids.items, &ids.n))
		return driver_usage_error(d, "--tokens is a list of ids such as 1,2,3, not %s", o->tokens);
	return EXIT_OK;
}

/* --target-text and --target-tokens belong to the one pair of the options; in a file targets follow a tab. */
enum tfmc_status texts_open(struct texts *t, const struct loaded *l)
{
	struct driver *d = t->d;
	const struct frontend_input *source;
	const struct driver_options *o = &d->options;
	bool has_target = o->target_text || o->target_tokens, has_file = o->prompt_file || o->tokens_file;
	t->kind = l->model ? frontend_generate(l->model)->kind : GENERATE_NONE;
	bool is_pair = t->kind == GENERATE_SEQ2SEQ;
	if (!l->model || (t->kind == GENERATE_NONE && !t->accepts_any))
		diag_error(&d->diag, LOC_NONE, DIAG_GENERATE, "%s requires a model file%s", t->command,
		           t->accepts_any ? "" : " with a generate section");
	else if (is_pair && !has_file && !has_target)
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "what is scored is given by --target-text or --target-tokens");
	else if (has_target && (!is_pair || has_file))
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s",
		           has_file ? "targets are in the file, after a tab"
		                    : "the model has no target, only tokens");
	else {
		TFMC_TRY(prompt_find_feature_input(d, l->model, &source));
		t->reads_source = is_pair && !source;
		if (source)
			TFMC_TRY(prompt_read_features(d, source, &t->rows));
		bool reads_text = o->prompt || o->prompt_file || o->target_text;
		return reads_text ? driver_open_tokenizer(d, l->model, true) : TFMC_OK;
	}
	return TFMC_INVALID;
}

/* Returns in *row the features that are the source of the next target, in order; -1: the model reads ids.
 * TFMC_INVALID after a diagnostic: there are none left. */
static enum tfmc_status next_row(struct texts *t, int64_t *row)
{
	*row = t->rows ? t->n_rows++ : -1;
	if (!t->rows || *row < t->rows->dims[0])
		return TFMC_OK;
	diag_error(&t->d->diag, LOC_NONE, DIAG_INPUT, "%s: %s has %lld sources; there are more targets",
	           t->command, t->d->options.inputs, (long long)t->rows->dims[0]);
	return TFMC_INVALID;
}

/* A source or a target as a text or as a list of ids; the other is NULL. */
struct given_text {
	const char *text, *list;
};

/* Encodes a source and a target, and calls r->each(). A target given as text ends with the first stop id, as
 * generated text does; it gets special tokens only of a model that does not generate, since others have start ids of
 * their own. line NULL: they come from options. */
static enum tfmc_status read_pair(struct text_reader *r, const char *line, struct given_text source,
                                  struct given_text target)
{
	struct texts *t = r->texts;
	struct text text = {.line = line};
	if (t->reads_source)
		TFMC_TRY(source.list ? prompt_append_list(t->d, t->command, source.list, &text.source)
		                     : prompt_append_text(t->d, t->record, t->command, PROMPT_SOURCE,
		                                          source.text, &text.source));
	if (target.list) {
		TFMC_TRY(prompt_append_list(t->d, t->command, target.list, &text.ids));
	} else {
		static const enum prompt_vocabulary which[] = {[GENERATE_NONE] = PROMPT_SOURCE,
		                                               [GENERATE_CAUSAL] = PROMPT_PLAIN,
		                                               [GENERATE_SEQ2SEQ] = PROMPT_TARGET};
		TFMC_TRY(prompt_append_text(t->d, t->record, t->command, which[t->kind], target.text,
		                            &text.ids));
		TFMC_TRY(prompt_append_record_ids(t->d, t->record, t->record->stop, t->record->n_stop > 0,
		                                  &text.ids));
	}
	TFMC_TRY(next_row(t, &text.row));
	return r->each(r->user, &text);
}

enum tfmc_status texts_check_count(const struct texts *t, int64_t n)
{
	if (n > 0)
		return TFMC_OK;
	diag_error(&t->d->diag, LOC_NONE, DIAG_INPUT, "%s: the texts have nothing to predict", t->command);
	return TFMC_INVALID;
}

/* Parses a line of a file: "source TAB target", or a target alone if the model has no source of ids. */
static enum tfmc_status parse_line(struct text_reader *r, const char *line)
{
	struct texts *t = r->texts;
	const char *tab = t->reads_source ? strchr(line, '\t') : NULL;
	if (t->reads_source && !tab) {
		diag_error(&t->d->diag, LOC_NONE, DIAG_INPUT, "%s: a line is source, tab, target, not: %s",
		           t->command, line);
		return TFMC_INVALID;
	}
	const char *source = tab ? arena_strndup(&t->d->arena, line, (size_t)(tab - line)) : "";
	const char *text = tab ? tab + 1 : line;
	if (!source)
		return TFMC_NO_MEMORY;
	return t->d->options.tokens_file ? read_pair(r, line, (struct given_text){.list = source},
	                                             (struct given_text){.list = text})
	                                 : read_pair(r, line, (struct given_text){source, NULL},
	                                             (struct given_text){text, NULL});
}

static enum tfmc_status read_line(void *user, const char *line, size_t number)
{
	struct text_reader *r = user;
	return prompt_note_line(r->texts->d, number, parse_line(r, line));
}

/* Calls each() for the texts of the options or of the lines of a file. Every row of features must have a target:
 * rows that are left are an error. */
enum tfmc_status texts_each(struct texts *t, text_fn *each, void *user)
{
	const struct driver_options *o = &t->d->options;
	const char *file = o->prompt_file ? o->prompt_file : o->tokens_file;
	struct text_reader r = {t, each, user};
	struct given_text prompt = {o->prompt, o->tokens}, target = {o->target_text, o->target_tokens};
	bool is_pair = t->kind == GENERATE_SEQ2SEQ; /* else the prompt is predicted */
	TFMC_TRY(file ? prompt_for_each_line(t->d, file, read_line, &r)
	              : read_pair(&r, NULL, prompt, is_pair ? target : prompt));
	if (!t->rows || t->n_rows == t->rows->dims[0])
		return TFMC_OK;
	diag_error(&t->d->diag, LOC_NONE, DIAG_INPUT, "%s: %s has %lld sources for %lld targets", t->command,
	           o->inputs, (long long)t->rows->dims[0], (long long)t->n_rows);
	return TFMC_INVALID;
}
