/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc attend: tokens of a run and, for the chosen attention ops, their probabilities p [H, S, T], query rows by key
 * columns. attend.c reads the tokens, selects and computes the attentions; attend_page.c prints the page.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_ATTEND_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_ATTEND_H

#include "frontend/driver/commands/prompts.h"

/* A sequence of tokens that attend. */
struct attend_sequence {
	const char *name;  /* "source", "target", "tokens" */
	const char *input; /* its input of the model */
	struct ids ids;
	const struct frontend_vocab *vocab; /* n = 0: none */
	bool is_source;
};

enum attend_stack { ATTEND_ENCODER, ATTEND_DECODER, ATTEND_CROSS, ATTEND_OTHER };

struct attend_map {
	const char *path; /* layer path with indices, unique: encoder.layers.0.self */
	enum attend_stack stack;
	int queries, keys; /* indices in attend.sequences; -1: rows that are not tokens of an input */
	int64_t heads, rows, columns; /* heads: number of selected heads, in the order of attend_head() */
	int64_t all_heads;            /* of the model */
	float *p;                     /* [heads, rows, columns]; NULL before the run */
};

/* --attentions, --layers and --heads; nothing: everything. */
struct attend_selection {
	unsigned stacks;               /* 1 << enum attend_stack */
	const int32_t *layers, *heads; /* ascending, without repetitions */
	size_t n_layers, n_heads;
};

struct attend {
	struct driver *d;
	struct loaded *l;
	struct attend_sequence sequences[2]; /* seq2seq: source and target */
	size_t n_sequences;                  /* 0: images alone */
	struct named_tensors given;          /* tensors of --inputs */
	struct attend_selection choice;
	struct {
		struct attend_map *items;
		size_t n, cap;
	} maps;               /* in order of execution */
	const char *left_out; /* the page's note of attentions that were left out; NULL: none */
};

/* The model's index of head h of a map. */
int64_t attend_head(const struct attend *a, int64_t h);

/* attend_page.c: appends the page. */
TFMC_MUST_USE enum tfmc_status attend_page(const struct attend *a, struct buf *out);

#endif
