/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tfmc attend gathers: the tokens of a run, and for the chosen attention ops that were
 * executed their weights p [H,S,T], query rows by key columns. The command (attend.c) fills
 * the sequences, maps.c the maps, page.c and npy.c write them.
 */
#ifndef TFMC_FRONTEND_DRIVER_ATTEND_ATTEND_H
#define TFMC_FRONTEND_DRIVER_ATTEND_ATTEND_H

#include "frontend/driver/run/prompts.h"

/* Tokens that attention goes between. */
struct attend_sequence {
	const char *name;  /* "source", "target", "tokens" */
	const char *input; /* of the model */
	struct ids ids;
	const struct frontend_vocab *vocab; /* n = 0: none */
	bool is_source;
};

enum attend_stack { ATTEND_ENCODER, ATTEND_DECODER, ATTEND_CROSS, ATTEND_OTHER };

struct attend_map {
	const char *path; /* layer path with indices, unique: encoder.layers.0.self */
	enum attend_stack stack;
	int queries, keys;            /* which sequence, -1: rows that are no tokens of the inputs */
	int64_t heads, rows, columns; /* heads that are taken, the first ones of attend_head */
	int64_t all_heads;
	float *p; /* [heads, rows, columns]; NULL before the run */
};

/* What --attentions, --layers and --heads choose; nothing: everything. */
struct attend_selection {
	unsigned stacks;               /* 1 << enum attend_stack */
	const int32_t *layers, *heads; /* heads: ascending, each once */
	size_t n_layers, n_heads;
};

struct attend {
	struct driver *d;
	struct loaded *l;
	struct attend_sequence sequences[2]; /* seq2seq: source and target */
	size_t n_sequences;                  /* none: pictures alone */
	struct named_tensors given;          /* --inputs */
	struct attend_selection choice;
	struct {
		struct attend_map *items;
		size_t n, cap;
	} maps;               /* in order of execution */
	const char *left_out; /* what the page says of attentions that it has no room for; NULL: nothing */
};

/* choice.c: EXIT_OK, or that of a usage error. */
enum exit_code attend_parse_selection(struct driver *d, struct attend_selection *out);
/* choice.c: keeps of a->maps (without p) and of their heads what is chosen and, where a page is
 * written, what it has room for; taken[i] says it of each that was there. TFMC_INVALID after a diagnostic
 * when nothing is left. */
TFMC_MUST_USE enum tfmc_status attend_select(struct attend *a, bool *taken);
/* Which head of the model a map's head h is. */
int64_t attend_head(const struct attend *a, int64_t h);

/* maps.c: the input takes as many tokens, or a diagnostic at the input. */
TFMC_MUST_USE enum tfmc_status attend_check_length(const struct attend *a, const struct attend_sequence *s);
/* maps.c: runs the compiled model on the sequences and takes the weights of the chosen attentions. */
TFMC_MUST_USE enum tfmc_status attend_run(struct attend *a);
/* page.c: appends the page. */
TFMC_MUST_USE enum tfmc_status attend_page(const struct attend *a, struct buf *out);

/* npy.c: a NumPy file, format 1.0: f32, little-endian, row-major. */
void npy_write(struct buf *out, const float *data, size_t rank, const int64_t *dims);

#endif
