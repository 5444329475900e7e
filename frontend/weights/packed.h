/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantized matrices [N, K] of 4 or 8 bits as GPTQ, AWQ, compressed-tensors, CTranslate2 and gpt-oss store
 * them: integers q packed into words, a scale and a zero point for each group of columns of a row, or indices
 * into the E2M1 values (OCP Microscaling Formats 1.0):
 *
 *   element = scale (q - zero)          rounded once to f32; a NaN or infinite scale is preserved. If the format has
 *                                       offsets and f32 scales: scale (q - m) + (scale (m - zero) rounded to f32), m:
 *                                       the zero point of the format
 *   element = 2^(e - 127) E2M1[q]       MXFP4; e: the byte of the scale
 *
 * A word contains q of several columns of a row, or of several rows of a column. The file is hostile: sizes
 * must have been checked against the fields of packed_matrix.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_PACKED_H
#define TFMC_FRONTEND_WEIGHTS_PACKED_H

#include "frontend/weights/stored.h"
#include "ir/weights/weight.h"

/* Little-endian words of `bytes` bytes (1 or 4). The q at (r, c) is in word (r >> down) * row_words + (c
 * >> across), in field order[i] of `bits` bits, i: the low bits of r or c that were shifted out (down or
 * across is 0). The bits of `flip` are inverted. */
struct packed_words {
	const unsigned char *data;
	int bytes, bits;
	int down, across;
	int64_t row_words;
	const uint8_t *order; /* [32 / bits]; NULL: identity */
	uint32_t flip;
};

/* A packed matrix with its scales and zero points. */
struct packed_matrix {
	int64_t n, k;
	int64_t group;         /* columns of a group, which share a scale; k: one scale for a row */
	struct packed_words q; /* indexed (k, n) if `by_column`, else (n, k) */
	bool by_column;
	struct packed_words zeros; /* indexed (group, n); data NULL: all are `zero` */
	int zero;                  /* with zeros.data: added to each zero point */
	const unsigned char *scales;
	enum ir_dtype scale_dtype;      /* DT_U8: MXFP4 */
	bool inverse_scales;            /* stored as 1 / scale; the f32 scale is rounded once */
	int64_t scale_row, scale_group; /* strides in elements between rows and between groups; 0: shared */
	const unsigned char *group_of;  /* i32 [K]: group of each column (act-order); NULL: k / group */
	const int32_t *order;           /* [K]: column of q for each column, set by packed_sort_columns; NULL:
			          identity */
	enum ir_format format; /* format written by packed_rows; PLAIN: no format represents the elements
			          exactly */
};

/* The smallest quantized format that represents the elements exactly, or PLAIN. */
enum ir_format packed_format(const struct packed_matrix *m);
/* True: all groups of group_of exist; *in_order: group_of is k / group. */
bool packed_groups_exist(const struct packed_matrix *m, bool *in_order);
/* Sorts the columns by group, stable, and clears group_of. False, and nothing has changed: groups differ
 * in size, or no memory. */
bool packed_sort_columns(struct arena *a, struct packed_matrix *m);

/* Makes the tensor, of at least two axes, read the matrix, of which it gets a copy in `a`; false: no memory. */
bool packed_describe(struct arena *a, struct stored_tensor *t, const struct packed_matrix *m);

/* Readers whose data is a struct packed_matrix. */
weight_elements packed_elements;
weight_rows packed_rows;

#endif
