/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What generate and score read: texts and ids from options and from files with
 * one prompt on each line, and features as sources. All lie in the arena of the driver.
 */
#ifndef TFMC_FRONTEND_DRIVER_RUN_PROMPTS_H
#define TFMC_FRONTEND_DRIVER_RUN_PROMPTS_H

#include "frontend/driver/compile/driver.h"

struct ids {
	int32_t *items;
	size_t n, cap;
	size_t line; /* of the file they come from; 0: none */
};

/* A status of the runtime library as a diagnostic "COMMAND: TEXT" and its status; TFMC_OK for 0. session: who
 * gave it, which knows the numbers of a prompt that was refused; or NULL. */
TFMC_MUST_USE enum tfmc_status prompt_status(struct driver *d, const struct tfmc_session *session,
                                             const char *command, int status);

/* SOURCE: a whole prompt, with the tokens that its tokenizer puts around it; the others without. */
enum prompt_vocabulary { PROMPT_SOURCE, PROMPT_TARGET, PROMPT_PLAIN };
/* Appends the ids of a text, by the tokenizer or one for each code point. */
TFMC_MUST_USE enum tfmc_status prompt_text(struct driver *d, const struct tfmc_record *r, const char *command,
                                           enum prompt_vocabulary which, const char *text, struct ids *out);
/* Appends n ids. */
TFMC_MUST_USE enum tfmc_status prompt_append(struct driver *d, const int32_t *ids, uint64_t n,
                                             struct ids *out);
/* Appends "1,2,3"; TFMC_INVALID after a diagnostic when it is no such list. */
TFMC_MUST_USE enum tfmc_status prompt_list(struct driver *d, const char *command, const char *text,
                                           struct ids *out);
/* Appends ids of the record. */
TFMC_MUST_USE enum tfmc_status prompt_facts(struct driver *d, const struct tfmc_record *r, int64_t at,
                                            int64_t n, struct ids *out);

/* ---- sources that are no ids: features of sounds, pictures ---- */

/* The input that --inputs gives, NULL: the model reads ids; TFMC_INVALID when the option is missing, or there
 * in vain. */
TFMC_MUST_USE enum tfmc_status prompt_features(struct driver *d, const struct frontend_model *m,
                                               const struct frontend_input **out);
/* The tensor of --inputs for it, each row of which is a source; of a rank from 1, in the arena. */
TFMC_MUST_USE enum tfmc_status prompt_rows(struct driver *d, const struct frontend_input *in,
                                           const struct named_tensor **out);
/* Has the session take a row of the tensor as its source, until the next one. */
TFMC_MUST_USE enum tfmc_status prompt_set_row(struct driver *d, struct tfmc_session *session,
                                              const char *command, const struct named_tensor *rows,
                                              int64_t row);

/*
 * Appends the ids that the decoder of a model of speech begins with, for the session's source; nothing for other
 * models. TFMC_INVALID when the model does not have what --language, --task or --timestamps ask for.
 */
TFMC_MUST_USE enum tfmc_status driver_speech_start(struct driver *d, struct tfmc_session *session,
                                                   const struct frontend_generate *g, struct ids *out);

/* Calls each(user, line, number from 1) for every line of a file until one fails; lines are in the arena, without their
 * end (a line feed, or carriage return and line feed), the first without a byte order mark. */
typedef enum tfmc_status prompt_line(void *user, const char *line, size_t number);
/* Gives st; where it is TFMC_INVALID, after its error, says which line of --prompt-file or --tokens-file that is about;
 * number 0: none. */
TFMC_MUST_USE enum tfmc_status prompt_at_line(struct driver *d, size_t number, enum tfmc_status st);
TFMC_MUST_USE enum tfmc_status prompt_lines(struct driver *d, const char *path, prompt_line *each,
                                            void *user);

/* ---- with d->tokenizer, in tokenizer.c ---- */
TFMC_MUST_USE enum tfmc_status driver_text_ids(struct driver *d, enum prompt_vocabulary which,
                                               const char *text, int32_t **ids, uint64_t *n);
/* Zero-terminated; flags of tfmc_tokenizer_decode. */
TFMC_MUST_USE enum tfmc_status driver_ids_text(struct driver *d, const int32_t *ids, uint64_t n,
                                               unsigned flags, const char **text);
/* For tfmc_constraints.token_text; user is a struct token_text. */
struct token_text {
	const struct tfmc_tokenizer *tokenizer;
	char text[1024];
};
const char *driver_token_text(void *user, int32_t id, uint64_t *bytes);

#endif
