/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of the state: copies, permutations, and transfers, for fork, reorder, store and fetch.
 */
#include <string.h>

#include "runtime/opencl/model_internal.h"

static const struct model_site state = {"state", NULL};

int32_t tfmc_cl_model_copy(struct tfmc_cl_model *m, int64_t from, int64_t to, int64_t bytes)
{
	int status = tfmc_cl_copy(m->state.buffer, (uint64_t)from, m->state.buffer, (uint64_t)to,
	                          (uint64_t)bytes, &m->error);
	return model_status(m, &state, status);
}

int32_t tfmc_cl_model_fetch(struct tfmc_cl_model *m, int64_t at, void *to, int64_t bytes)
{
	int status = tfmc_cl_download(m->state.buffer, (uint64_t)at, to, (uint64_t)bytes, &m->error);
	return model_status(m, &state, status);
}

int32_t tfmc_cl_model_store(struct tfmc_cl_model *m, int64_t at, const void *from, int64_t bytes)
{
	int status = tfmc_cl_upload(m->state.buffer, (uint64_t)at, from, (uint64_t)bytes, &m->error);
	return model_status(m, &state, status);
}

/* ---- permutations ---- */

struct permutation {
	struct tfmc_cl_model *model;
	const int64_t *from;
	int64_t n, begin, stride, bytes; /* block i: `bytes` bytes at begin + i * stride */
	int64_t saved; /* the block that is copied to the model's permute_buffer; -1: none */
};

static uint64_t block_offset(const struct permutation *p, int64_t i)
{
	return (uint64_t)(p->begin + i * p->stride);
}

/* Fills block i if no other block reads it any more, then, along the chain, the block that it read.
 * n_readers[i]: number of blocks that still read block i, -1 when it is filled. */
static int32_t fill_from(const struct permutation *p, int64_t i)
{
	struct tfmc_cl_model *m = p->model;
	while (i < p->n && p->from[i] != i && m->n_readers[i] == 0) {
		bool is_saved = p->from[i] == p->saved;
		int status = tfmc_cl_copy(is_saved ? m->permute_buffer.buffer : m->state.buffer,
		                          is_saved ? 0 : block_offset(p, p->from[i]), m->state.buffer,
		                          block_offset(p, i), (uint64_t)p->bytes, &m->error);
		TRY(model_status(m, &state, status));
		m->n_readers[i] = -1;
		i = p->from[i];
		m->n_readers[i]--;
	}
	return TFMC_RT_OK;
}

/* Only cycles of the permutation remain. Copies block i to the permute_buffer and fills the rest of its
 * cycle; the block whose source is i reads the copy. */
static int32_t break_cycle(struct permutation *p, int64_t i)
{
	struct tfmc_cl_model *m = p->model;
	TRY(model_grow(m, &state, &m->permute_buffer, p->bytes));
	int status = tfmc_cl_copy(m->state.buffer, block_offset(p, i), m->permute_buffer.buffer, 0,
	                          (uint64_t)p->bytes, &m->error);
	TRY(model_status(m, &state, status));
	p->saved = i;
	m->n_readers[i] = 0;
	return fill_from(p, i);
}

static int32_t permute(struct permutation *p)
{
	int64_t *n_readers = p->model->n_readers;
	memset(n_readers, 0, (size_t)p->model->code.batch * sizeof(*n_readers));
	for (int64_t i = 0; i < p->n; i++)
		n_readers[p->from[i]] += p->from[i] != i;
	for (int64_t i = 0; i < p->n; i++)
		TRY(fill_from(p, i));
	for (int64_t i = 0; i < p->n; i++)
		if (n_readers[i] > 0 && p->from[i] != i)
			TRY(break_cycle(p, i));
	return TFMC_RT_OK;
}

int32_t tfmc_cl_model_permute(struct tfmc_cl_model *m, const int64_t *from, int64_t n, int64_t at,
                              int64_t bytes)
{
	int64_t batch = (int64_t)m->code.batch, stride = tfmc_plan_header(&m->plan, PLAN_H_STATE_BATCH);
	struct permutation p = {m,      from,  n, tfmc_plan_header(&m->plan, PLAN_H_STATE_FIXED) + at,
	                        stride, bytes, -1};
	bool ok = n >= 0 && n <= batch && at >= 0 && at <= stride && bytes >= 0 && bytes <= stride - at;
	for (int64_t i = 0; ok && i < n; i++)
		ok = from[i] >= 0 && from[i] < batch;
	return ok ? permute(&p) : model_fail(m, &state, "there are no such sequences, or bytes of one");
}
