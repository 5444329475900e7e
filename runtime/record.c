/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accessors of the record of an object: names, entries, tensors, and sizes as polynomials of the dims. The
 * record is part of the object; it is trusted once tfmc_session_open has checked magic and version.
 *
 * Each member that refers to something is a byte offset from the record's beginning. A polynomial is u64 words: the
 * number of terms, then of each term the coefficient, the number of factors, and the indices of their dims.
 */
#include "tfmc_rt.h"

#include <string.h>

static const void *at(const struct tfmc_record *r, uint64_t offset)
{
	return (const char *)r + offset;
}

const char *tfmc_record_text(const struct tfmc_record *record, uint64_t offset)
{
	return record ? at(record, offset) : NULL;
}

const char *tfmc_variant_name(const struct tfmc_record *record, int64_t variant)
{
	if (!record || variant < 0 || (uint64_t)variant >= record->n_variants)
		return NULL;
	return tfmc_record_text(record, ((const uint64_t *)at(record, record->variants))[variant]);
}

int64_t tfmc_variant_find(const struct tfmc_record *record, const char *name)
{
	for (uint64_t i = 0; record && name && i < record->n_variants; i++)
		if (!strcmp(tfmc_variant_name(record, (int64_t)i), name))
			return (int64_t)i;
	return -1;
}

const struct tfmc_record_entry *tfmc_entry_at(const struct tfmc_record *record, int64_t entry)
{
	if (!record || entry < 0 || (uint64_t)entry >= record->n_entries)
		return NULL;
	return (const struct tfmc_record_entry *)at(record, record->entries) + entry;
}

int64_t tfmc_entry_find(const struct tfmc_record *record, const char *name)
{
	for (uint64_t i = 0; record && name && i < record->n_entries; i++)
		if (!strcmp(tfmc_record_text(record, tfmc_entry_at(record, (int64_t)i)->name), name))
			return (int64_t)i;
	return -1;
}

const struct tfmc_record_tensor *tfmc_entry_input(const struct tfmc_record *record, int64_t entry, uint64_t i)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(record, entry);
	return e && i < e->n_inputs ? (const struct tfmc_record_tensor *)at(record, e->inputs) + i : NULL;
}

const struct tfmc_record_tensor *tfmc_entry_output(const struct tfmc_record *record, int64_t entry,
                                                   uint64_t i)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(record, entry);
	return e && i < e->n_outputs ? (const struct tfmc_record_tensor *)at(record, e->outputs) + i : NULL;
}

const struct tfmc_record_dim *tfmc_record_dim_at(const struct tfmc_record *record, uint64_t dim)
{
	return record && dim < record->n_dims ? (const struct tfmc_record_dim *)at(record, record->dims) + dim
	                                      : NULL;
}

uint64_t tfmc_dtype_bytes(uint64_t dtype)
{
	static const uint8_t bytes[] = {
	        4, 2, 2, 8, 1,
	        1, 4, 8, 1, 2}; /* rows of ir/types/dtypes.def, see struct tfmc_record_tensor */
	return dtype < sizeof(bytes) ? bytes[dtype] : 0;
}

/* One term of a polynomial: coeff * product of dims. Advances *poly past it. 0: overflow, or no dims for a factor. */
static int eval_poly_term(const uint64_t **poly, const int64_t *dims, int64_t *out)
{
	const uint64_t *term = *poly;
	int64_t value = (int64_t)term[0];
	uint64_t n = term[1];
	for (uint64_t i = 0; i < n; i++)
		if (!dims || __builtin_mul_overflow(value, dims[term[2 + i]], &value))
			return 0;
	*poly = term + 2 + n;
	*out = value;
	return 1;
}

/* Value of a struct tfmc_record_poly; -1 on overflow. */
static int64_t eval_poly(const uint64_t *poly, const int64_t *dims)
{
	uint64_t n = *poly++;
	int64_t sum = 0;
	for (uint64_t i = 0; i < n; i++) {
		int64_t term;
		if (!eval_poly_term(&poly, dims, &term) || __builtin_add_overflow(sum, term, &sum))
			return -1;
	}
	return sum;
}

int64_t tfmc_tensor_size(const struct tfmc_record *record, const struct tfmc_record_tensor *t, uint64_t axis,
                         const int64_t *dims)
{
	return record && t && axis < t->rank ? eval_poly(at(record, t->sizes[axis]), dims) : -1;
}

/* A worker more is used as long as each of n + 1 would still have n times TFMC_STEP_FLOPS of a launch (flops / steps):
 * a launch ends with a barrier, whose cost grows with the workers. Without flops, or with an overflow, all of them. */
int64_t tfmc_entry_workers(const struct tfmc_record *record, int64_t entry, const int64_t *dims, int64_t max)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(record, entry);
	int64_t flops = e && e->flops ? eval_poly(at(record, e->flops), dims) : -1, n = 1;
	if (flops < 0)
		return max;
	double per_step = (double)flops / (double)(e->steps ? e->steps : 1);
	while (n < max && per_step >= (double)(n * (n + 1)) * TFMC_STEP_FLOPS)
		n++;
	return n;
}

/* -1: no tensor, or an overflow. */
int64_t tfmc_tensor_count(const struct tfmc_record *record, const struct tfmc_record_tensor *t,
                          const int64_t *dims)
{
	int64_t count = record && t ? 1 : -1;
	for (uint64_t i = 0; count >= 0 && i < t->rank; i++) {
		int64_t size = tfmc_tensor_size(record, t, i, dims);
		if (size < 0 || __builtin_mul_overflow(count, size, &count))
			return -1;
	}
	return count;
}

const void *tfmc_record_tokenizer(const struct tfmc_record *record, uint64_t *bytes)
{
	if (bytes)
		*bytes = record ? record->tokenizer_bytes : 0;
	return record && record->tokenizer ? at(record, record->tokenizer) : NULL;
}
