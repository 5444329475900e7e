/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts that score, quality and calibrate evaluate: a single one of --prompt, --tokens and the target options, or
 * one on each line of --prompt-file and --tokens-file. For a sequence-to-sequence model a text is a source and a
 * target: "source TAB target" on a line, or a target alone for each row of --inputs.
 */
#ifndef TFMC_FRONTEND_DRIVER_QUALITY_TEXTS_H
#define TFMC_FRONTEND_DRIVER_QUALITY_TEXTS_H

#include "frontend/driver/commands/prompts.h"

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
