/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts that score, quality and calibrate read: of --prompt, --tokens and the target options one, of
 * --prompt-file and --tokens-file one on each line. Of a sequence-to-sequence model a text is a source and a
 * target: "source TAB target" on a line, or a target alone for each row of --inputs.
 */
#ifndef TFMC_FRONTEND_DRIVER_QUALITY_TEXTS_H
#define TFMC_FRONTEND_DRIVER_QUALITY_TEXTS_H

#include "frontend/driver/run/prompts.h"

struct text {
	const char *line;  /* as the file has it; NULL: from options */
	struct ids source; /* of a sequence-to-sequence model that reads ids */
	struct ids ids;    /* what is scored: of a text with the stop ids of the model behind it */
	int64_t row;       /* of texts.rows that is its source; -1: none */
};

struct texts {
	struct driver *d;
	const char *command; /* for messages */
	bool takes_any;      /* said before: also models that do not generate */
	enum frontend_generate_kind kind;
	bool reads_source;                /* as ids */
	const struct named_tensor *rows;  /* sources that are no ids; NULL: none */
	int64_t n_rows;                   /* of them, given to texts so far */
	const struct tfmc_record *record; /* set after the model was compiled: vocabulary, stop ids */
};

/* EXIT_USAGE after a message when the options do not name texts in one way; else EXIT_OK. */
enum exit_code texts_check_options(struct driver *d);
/* Sets the fields but record. TFMC_INVALID after a diagnostic: the model does not generate, or the options do
 * not fit it. Opens the tokenizer where text is read. */
TFMC_MUST_USE enum tfmc_status texts_open(struct texts *t, const struct loaded *l);
/* Calls each(user, text) for every text until one fails; lists lie in the arena of the driver until then. */
typedef enum tfmc_status text_fn(void *user, const struct text *text);
TFMC_MUST_USE enum tfmc_status texts_each(struct texts *t, text_fn *each, void *user);
/* TFMC_INVALID after a diagnostic when n, the tokens of all texts that were predicted, is 0. */
TFMC_MUST_USE enum tfmc_status texts_predicted(const struct texts *t, int64_t n);

#endif
