/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Padded batches in tests of kernels: results of real rows have the bits that they have where all rows are computed,
 * and those of padding are left as they were, all bytes 0xff.
 */
#ifndef TFMC_TESTS_SUPPORT_KERNELS_PADDED_H
#define TFMC_TESTS_SUPPORT_KERNELS_PADDED_H

#include <check.h>
#include <string.h>

#include "ir/core/module.h"

/* The parameter named lengths, or none. */
static inline struct ir_value padded_lengths(const struct ir_func *f)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (strcmp(f->params[i].name, "lengths") == 0)
			return f->params[i].value;
	return IR_NO_VALUE;
}

/* The text of a function f with one more parameter, the lengths. */
static inline void padded_text(struct buf *out, const char *text)
{
	const char *end = strstr(text, ") -> (");
	buf_printf(out, "%.*s, %%lengths: i32[B]%s", (int)(end - text), text, end);
}

/* Row s of sequence b is real; the first one always is. */
static inline bool padded_is_real(const int32_t *lengths, int64_t b, int64_t s)
{
	return s < (lengths[b] > 1 ? lengths[b] : 1);
}

/* Lengths of `batch` sequences of at most `most` positions: 0, all of them, one, then others in between. */
static inline void padded_fill(int32_t *lengths, int64_t batch, int64_t most)
{
	const int64_t first[] = {0, most, 1};
	for (int64_t b = 0; b < batch; b++)
		lengths[b] = (int32_t)(b < 3 && first[b] <= most ? first[b] : (b * 7 + 2) % (most + 1));
}

/* got: f32, in which some rows are not computed; all: the same with all of them. type: of both, over the dims B and S,
 * whose values are dims[0] and dims[1]. */
static inline void padded_expect(const struct ir_module *m, const struct ir_type *type, const int64_t *dims,
                                 const int32_t *lengths, const float *got, const float *all)
{
	const struct ir_dim *batch = ir_dim_sym(m->dims, "B"), *positions = ir_dim_sym(m->dims, "S");
	int64_t size[IR_RANK_MAX], n = 1;
	for (int i = 0; i < type->rank; i++) {
		ck_assert(ir_dim_eval(type->dims[i], dims, &size[i]));
		n *= size[i];
	}
	for (int64_t i = 0; i < n; i++) {
		int64_t left = i, b = 0, s = 0, none;
		for (int axis = type->rank - 1; axis >= 0; axis--) {
			int64_t at = left % size[axis];
			left /= size[axis];
			if (type->dims[axis] == batch)
				b = at;
			else if (type->dims[axis] == positions)
				s = at;
			else if (!ir_dim_is_const(type->dims[axis], &none)) { /* B*S */
				b = at / dims[1];
				s = at % dims[1];
			}
		}
		uint32_t bits;
		memcpy(&bits, &got[i], 4);
		if (padded_is_real(lengths, b, s))
			ck_assert_msg(memcmp(&got[i], &all[i], 4) == 0, "row %d of %d: %.9g is not %.9g",
			              (int)s, (int)b, (double)got[i], (double)all[i]);
		else
			ck_assert_msg(bits == UINT32_MAX, "row %d of %d, padding, is computed", (int)s,
			              (int)b);
	}
}

#endif
