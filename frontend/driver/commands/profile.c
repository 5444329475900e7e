/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of a calibration profile, and its file.
 */
#include "frontend/driver/commands/profile.h"

#include <math.h>

bool profile_begin(struct driver *d, const struct probe_columns *columns, struct profile *out)
{
	*out = (struct profile){0};
	strmap_init(&out->numbers, &d->arena);
	for (size_t i = 0; i < columns->n; i++) {
		const struct probe_column *c = &columns->items[i];
		if (strmap_get(&out->numbers, c->weight))
			continue;
		struct profile_entry *e = ARENA_PUSH(&d->arena, out);
		double *sums = ARENA_ARRAY(&d->arena, double, (size_t)c->rows *(size_t)(2 * c->k + 1));
		if (!e || !sums || !strmap_set(&out->numbers, c->weight, (void *)(uintptr_t)out->n))
			return false;
		*e = (struct profile_entry){.name = c->weight, .rows = c->rows, .k = c->k, .sums = sums};
	}
	return true;
}

enum tfmc_status profile_add(struct driver *d, const struct probe_columns *columns,
                             const struct named_tensors *results, struct profile *p)
{
	for (size_t i = 0; i < columns->n; i++) {
		const struct probe_column *c = &columns->items[i];
		const struct named_tensor *t = tensors_find(results, c->result);
		struct profile_entry *e =
		        &p->items[(size_t)(uintptr_t)strmap_get(&p->numbers, c->weight) - 1];
		int64_t row = 2 * c->k + 1, n = c->rows * row;
		if (!t || e->k != c->k || e->rows != c->rows || t->count < (c->first + c->rows) * row)
			return TFMC_INTERNAL;
		const float *sums = (const float *)t->data + c->first * row;
		for (int64_t j = 0; j < n; j++) {
			if (!isfinite(sums[j])) {
				diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
				           "calibrate: an input of %s is NaN or infinite, or its square is",
				           e->name);
				return TFMC_INVALID;
			}
			e->sums[j] += (double)sums[j];
		}
	}
	return TFMC_OK;
}

enum tfmc_status profile_write(struct driver *d, const struct profile *p, const char *path)
{
	struct named_tensors out = {0};
	for (size_t i = 0; i < p->n; i++) {
		const struct profile_entry *e = &p->items[i];
		const int64_t dims[] = {e->rows, 2, e->k};
		const char *name = arena_printf(&d->arena, "%s" FRONTEND_INPUTS, e->name);
		struct named_tensor *t = tensors_add(d, &out, name, DT_F32, e->rows > 1 ? 3 : 2,
		                                     e->rows > 1 ? dims : dims + 1);
		if (!t)
			return TFMC_NO_MEMORY;
		for (int64_t r = 0; r < e->rows; r++) {
			const double *sums = e->sums + r * (2 * e->k + 1), n = sums[2 * e->k];
			for (int64_t j = 0; j < 2 * e->k; j++)
				((float *)t->data)[r * 2 * e->k + j] = n > 0 ? (float)(sums[j] / n) : 0;
		}
	}
	return tensors_write(d, path, &out);
}
