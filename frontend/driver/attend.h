/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tfmc attend gathers: the tokens of a run, and for every attention op that was
 * executed its weights p [H,S,T], query rows by key columns. The command (attend.c) fills
 * the sequences, attend_maps.c the maps, attend_page.c and npy.c write them.
 */
#ifndef TFMC_DRIVER_ATTEND_H
#define TFMC_DRIVER_ATTEND_H

#include "frontend/driver/driver.h"

/* Tokens that attention goes between. */
struct attend_sequence {
	const char *name;  /* "source", "target", "tokens" */
	const char *input; /* of the model */
	int32_t *ids;
	size_t n, cap;
	const struct frontend_vocab *vocab; /* n = 0: none */
	bool is_source;
};

enum attend_stack { ATTEND_ENCODER, ATTEND_DECODER, ATTEND_CROSS, ATTEND_OTHER };

struct attend_map {
	const char *path; /* layer path with indices, unique: encoder.layers.0.self */
	enum attend_stack stack;
	int queries, keys; /* which sequence, -1: rows that are no tokens of the inputs */
	int64_t heads, rows, columns;
	float *p; /* [heads, rows, columns] */
};

struct attend {
	struct driver *d;
	struct loaded *l;
	struct attend_sequence sequences[2]; /* seq2seq: source and target */
	size_t n_sequences;                  /* none: pictures alone */
	struct named_tensors given;          /* --inputs */
	struct {
		struct attend_map *items;
		size_t n, cap;
	} maps; /* in order of execution */
};

/* attend_maps.c: the input takes as many tokens, or a diagnostic at the input. */
TFMC_MUST_USE enum tfmc_status attend_check(const struct attend *a, const struct attend_sequence *s);
/* attend_maps.c: runs the compiled model on the sequences and takes the weights of every attention.
 */
TFMC_MUST_USE enum tfmc_status attend_run(struct attend *a);
/* attend_page.c: appends the page. TFMC_INVALID after a diagnostic when it would be too large. */
TFMC_MUST_USE enum tfmc_status attend_page(const struct attend *a, struct buf *out);

/* npy.c: a NumPy file, format 1.0: f32, little-endian, row-major. */
void npy_write(struct buf *out, const float *data, size_t rank, const int64_t *dims);

#endif
