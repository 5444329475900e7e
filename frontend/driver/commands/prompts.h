/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts: texts and token ids of options and of files with one prompt a line, the model's tokenizer, encoder sources
 * that are features instead of ids, and the texts that score, quality and calibrate evaluate. Lists are in the arena of
 * the driver.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_PROMPTS_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_PROMPTS_H

#include "frontend/driver/commands/tensors.h"

struct ids {
	int32_t *items;
	size_t n, cap;
	size_t line; /* of the prompt file, from 1; 0: not from a file */
};

/* Parses "1,2,3" or "1 2 3". False when it is not such a list. */
bool parse_id_list(struct driver *d, const char *text, int32_t **items, size_t *n);
/* Resolves --file and --prompt=-: options.prompt becomes the content, without its last newline. */
TFMC_MUST_USE enum tfmc_status driver_read_prompt_option(struct driver *d);
/* Reports a runtime status as "COMMAND: TEXT"; TFMC_OK for TFMC_RT_OK. session: the one that returned it, which adds
 * the limits that a prompt exceeded; or NULL. */
TFMC_MUST_USE enum tfmc_status prompt_check_status(struct driver *d, const struct tfmc_session *session,
                                                   const char *command, int status);

/* Which tokenizer encodes a text. SOURCE also adds its special tokens (BOS, EOS, [CLS], ..), the others do not. */
enum prompt_vocabulary { PROMPT_SOURCE, PROMPT_TARGET, PROMPT_PLAIN };
/* Appends the ids of a text, by the tokenizer or one for each code point. */
TFMC_MUST_USE enum tfmc_status prompt_append_text(struct driver *d, const struct tfmc_record *r,
                                                  const char *command, enum prompt_vocabulary which,
                                                  const char *text, struct ids *out);
/* Appends n ids. */
TFMC_MUST_USE enum tfmc_status prompt_append_ids(struct driver *d, const int32_t *ids, uint64_t n,
                                                 struct ids *out);
/* Appends "1,2,3"; TFMC_INVALID after a diagnostic when it is not such a list. */
TFMC_MUST_USE enum tfmc_status prompt_append_list(struct driver *d, const char *command, const char *text,
                                                  struct ids *out);
/* Appends n ids at byte offset `at` of the record. */
TFMC_MUST_USE enum tfmc_status prompt_append_record_ids(struct driver *d, const struct tfmc_record *r,
                                                        int64_t at, int64_t n, struct ids *out);
/*
 * Appends the decoder prefix of a speech model (start, language, task, timestamps) for the session's source, whose
 * language is detected when none is given; nothing for other models. TFMC_INVALID if the model does not
 * support the given --language, --task or --timestamps.
 */
TFMC_MUST_USE enum tfmc_status prompt_append_speech_start(struct driver *d, struct tfmc_session *session,
                                                          const struct frontend_generate *g, struct ids *out);

/* ---- features as sources: audio, images ---- */

/* The encoder input that --inputs gives; NULL: the model reads ids. TFMC_INVALID when the model needs the option and
 * it is not given, or the other way round. */
TFMC_MUST_USE enum tfmc_status prompt_find_feature_input(struct driver *d, const struct frontend_model *m,
                                                         const struct frontend_input **out);
/* The tensor of --inputs for it, [sources, ..], in the arena. */
TFMC_MUST_USE enum tfmc_status prompt_read_features(struct driver *d, const struct frontend_input *in,
                                                    const struct named_tensor **out);
/* Makes one row of the tensor the session's source, until the next one is set. */
TFMC_MUST_USE enum tfmc_status prompt_set_source_row(struct driver *d, struct tfmc_session *session,
                                                     const char *command, const struct named_tensor *rows,
                                                     int64_t row);

/* ---- prompt files ---- */

/* Calls each(user, line, number from 1) for every line of a file until one fails. Lines are in the arena, without
 * their LF or CR LF; a byte order mark is skipped. */
typedef enum tfmc_status prompt_line_fn(void *user, const char *line, size_t number);
TFMC_MUST_USE enum tfmc_status prompt_for_each_line(struct driver *d, const char *path, prompt_line_fn *each,
                                                    void *user);
/* Returns st; after TFMC_INVALID adds a note with the line of --prompt-file or --tokens-file (0: none). */
TFMC_MUST_USE enum tfmc_status prompt_note_line(struct driver *d, size_t number, enum tfmc_status st);

/* ---- the tokenizer ---- */

/* Opens the model's tokenizer once. d->tokenizer stays NULL when the model has none, or one that is not supported
 * and not `needed`. */
TFMC_MUST_USE enum tfmc_status driver_open_tokenizer(struct driver *d, struct frontend_model *m, bool needed);
/* Encodes text to ids, in the arena. TFMC_INVALID after a diagnostic. */
TFMC_MUST_USE enum tfmc_status driver_tokenize(struct driver *d, enum prompt_vocabulary which,
                                               const char *text, int32_t **ids, uint64_t *n);
/* Decodes ids with the target's tokenizer to zero-terminated text, in the arena; flags of tfmc_tokenizer_decode.
 * TFMC_INVALID after a diagnostic. */
TFMC_MUST_USE enum tfmc_status driver_detokenize(struct driver *d, const int32_t *ids, uint64_t n,
                                                 unsigned flags, const char **text);
/* For tfmc_constraints.token_text; user is a struct token_text. */
struct token_text {
	const struct tfmc_tokenizer *tokenizer;
	char text[1024];
};
const char *driver_token_text(void *user, int32_t id, uint64_t *bytes);

/* ---- texts to be evaluated ---- */

/*
 * The texts that score, quality and calibrate evaluate: a single one of --prompt, --tokens and the target options, or
 * one on each line of --prompt-file and --tokens-file. For a sequence-to-sequence model a text is a source and a
 * target: "source TAB target" on a line, or a target alone for each row of --inputs.
 */
struct text {
	const char *line;  /* of the file; NULL: from options */
	struct ids source; /* encoder input of a sequence-to-sequence model that reads ids */
	struct ids ids;    /* tokens to be predicted; of a text, followed by a stop id of the model */
	int64_t row;       /* of texts.rows, its source; -1: none */
};

struct texts {
	struct driver *d;
	const char *command; /* name in messages */
	bool accepts_any;    /* set by the caller: accept models that do not generate */
	enum frontend_generate_kind kind;
	bool reads_source;               /* as ids */
	const struct named_tensor *rows; /* feature sources; NULL: none */
	int64_t n_rows;                  /* rows that texts have used so far */
	const struct tfmc_record
	        *record; /* vocabulary and stop ids; set by the caller when the model is compiled */
};

/* EXIT_USAGE after a message unless the options give texts in exactly one way. */
enum exit_code texts_check_options(struct driver *d);
/* Sets all fields but record, and opens the tokenizer when text is read. TFMC_INVALID after a diagnostic: the
 * model does not generate, or the options do not fit it. */
TFMC_MUST_USE enum tfmc_status texts_open(struct texts *t, const struct loaded *l);
/* Calls each(user, text) for every text until one fails; its lists are in the arena of the driver. */
typedef enum tfmc_status text_fn(void *user, const struct text *text);
TFMC_MUST_USE enum tfmc_status texts_each(struct texts *t, text_fn *each, void *user);
/* TFMC_INVALID after a diagnostic when n, the number of predicted tokens of all texts, is 0. */
TFMC_MUST_USE enum tfmc_status texts_check_count(const struct texts *t, int64_t n);

#endif
