/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices [N, K] of 4 or 8 bits as files of other makers store them: whole numbers q packed into words, a scale for
 * each group of columns of a row and a zero point, or the numbers that q count (OCP Microscaling Formats 1.0):
 *
 *   element = scale (q - zero)          rounded once to f32; a scale that is NaN or infinite stays what it is. Where the format
 *                                       has offsets and scales are f32: scale (q - m) + (scale (m - zero) rounded to f32),
 *                                       m what the format adds to codes
 *   element = 2^(e - 127) E2M1[q]       MXFP4: e is what the scale's byte says
 *
 * A word has the q of several columns of a row, or of several rows of a column. Data of hostile files: sizes must have
 * been checked against what packed_matrix says of them.
 */
#ifndef TFMC_FRONTEND_QUANTIZED_PACKED_H
#define TFMC_FRONTEND_QUANTIZED_PACKED_H

#include "ir/weights/weight.h"

/* Little-endian words of `bytes` bytes (1 or 4); q of place (r, c) is in word (r >> down) * row_words + (c >> across), as
 * the field order[i] of `bits` bits, i = the low bits of r or c that were shifted out (one of down and across is 0).
 * The bits of `flip` are inverted. */
struct packed_words {
	const unsigned char *data;
	int bytes, bits;
	int down, across;
	int64_t row_words;
	const uint8_t *order; /* [32 / bits], NULL: 0, 1, .. */
	uint32_t flip;
};

struct packed_matrix {
	int64_t n, k;
	int64_t group;         /* columns that have one scale; all of a row when it has one */
	struct packed_words q; /* places (k, n) if `by_column`, else (n, k) */
	bool by_column;
	struct packed_words zeros; /* places (group, n); data NULL: all are `zero` */
	int zero;                  /* with data: what is added to them */
	const unsigned char *scales;
	enum ir_dtype scale_dtype; /* DT_U8: MXFP4 */
	bool inverse_scales;       /* what is stored is 1 / scale; scales are f32 then, rounded once */
	int64_t scale_row,
	        scale_group; /* elements from that of a row, of a group to the next; 0: it is the same */
	const unsigned char
	        *group_of;     /* i32 [K]: numbers of groups that columns belong to; NULL: k / group */
	const int32_t *order;  /* [K]: places of columns in q, by packed_sort_columns; NULL: k */
	enum ir_format format; /* of packed_rows; PLAIN: no format holds the elements exactly */
};

/* The format of codes that holds the elements, or PLAIN. */
enum ir_format packed_format(const struct packed_matrix *m);
/* group_of names groups that exist; *in_order: it is k / group. */
bool packed_groups_exist(const struct packed_matrix *m, bool *in_order);
/* Columns in the order of their groups, those of a group as they are: group_of becomes NULL. False: a group has more
 * columns than others, or memory ran out; nothing has changed. */
bool packed_sort_columns(struct arena *a, struct packed_matrix *m);

/* Data: a struct packed_matrix. */
weight_elements packed_elements;
weight_rows packed_rows;

#endif
