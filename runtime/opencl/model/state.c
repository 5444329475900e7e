/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of the state, for who forks, reorders, saves or restores sequences.
 */
#include <string.h>

#include "runtime/opencl/model/internal.h"

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
	int64_t n, begin, step, bytes; /* block i is `bytes` at begin + i x step */
	int64_t aside;                 /* the block that is in the model's memory aside; -1: none */
};

static uint64_t place(const struct permutation *p, int64_t i)
{
	return (uint64_t)(p->begin + i * p->step);
}

/*
 * A block that nobody reads any more gets its own; so does then, perhaps, the one that it read. readers[i]: blocks that
 * still read block i, less than 0 when it has its own.
 */
static int32_t fill_from(const struct permutation *p, int64_t i)
{
	struct tfmc_cl_model *m = p->model;
	while (i < p->n && p->from[i] != i && m->readers[i] == 0) {
		bool is_aside = p->from[i] == p->aside;
		int status = tfmc_cl_copy(is_aside ? m->aside.buffer : m->state.buffer,
		                          is_aside ? 0 : place(p, p->from[i]), m->state.buffer, place(p, i),
		                          (uint64_t)p->bytes, &m->error);
		TRY(model_status(m, &state, status));
		m->readers[i] = -1;
		i = p->from[i];
		m->readers[i]--;
	}
	return TFMC_RT_OK;
}

/* What is left are circles: one block is put aside, and nobody reads it in its place. */
static int32_t turn_circle(struct permutation *p, int64_t i)
{
	struct tfmc_cl_model *m = p->model;
	TRY(model_grow(m, &state, &m->aside, p->bytes));
	int status =
	        tfmc_cl_copy(m->state.buffer, place(p, i), m->aside.buffer, 0, (uint64_t)p->bytes, &m->error);
	TRY(model_status(m, &state, status));
	p->aside = i;
	m->readers[i] = 0;
	return fill_from(p, i);
}

static int32_t permute(struct permutation *p)
{
	int64_t *readers = p->model->readers;
	memset(readers, 0, (size_t)p->model->code.batch * sizeof(*readers));
	for (int64_t i = 0; i < p->n; i++)
		readers[p->from[i]] += p->from[i] != i;
	for (int64_t i = 0; i < p->n; i++)
		TRY(fill_from(p, i));
	for (int64_t i = 0; i < p->n; i++)
		if (readers[i] > 0 && p->from[i] != i)
			TRY(turn_circle(p, i));
	return TFMC_RT_OK;
}

int32_t tfmc_cl_model_permute(struct tfmc_cl_model *m, const int64_t *from, int64_t n, int64_t at,
                              int64_t bytes)
{
	int64_t batch = (int64_t)m->code.batch, step = tfmc_plan_header(&m->plan, PLAN_H_STATE_BATCH);
	struct permutation p = {m,    from,  n, tfmc_plan_header(&m->plan, PLAN_H_STATE_FIXED) + at,
	                        step, bytes, -1};
	bool ok = n >= 0 && n <= batch && at >= 0 && at <= step && bytes >= 0 && bytes <= step - at;
	for (int64_t i = 0; ok && i < n; i++)
		ok = from[i] >= 0 && from[i] < batch;
	return ok ? permute(&p) : model_fail(m, &state, "there are no such sequences, or bytes of one");
}
