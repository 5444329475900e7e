/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the library: one sequence that grows, from logits to ids to the reason why
 * it ends. Who computes the logits is another matter: a session with one sequence
 * (generate.c), or slots with many (many.c); both ask the same functions.
 */
#ifndef TFMC_RUNTIME_GENERATE_GENERATOR_H
#define TFMC_RUNTIME_GENERATE_GENERATOR_H

#include "runtime/generate/rules.h"

struct generator {
	struct tfmc_session *session;
	const struct tfmc_record *record;
	int64_t vocab;
	struct tfmc_generate_options options;
	struct rules rules;
	struct stream stream;
	struct tfmc_sampler *sampler; /* NULL: greedy */
	int32_t *ids;                 /* first ids, then new ones */
	uint64_t n, n_first;
	int64_t limit; /* new ids that may follow the first ones */
	enum tfmc_finish finish;
};

/* options may be NULL. Close it also after a failure. */
int generator_open(struct generator *g, struct tfmc_session *session, int64_t vocab,
                   const struct tfmc_generate_options *options);
void generator_close(struct generator *g);
/* The ids before the new ones, which are at most cap. The source, if it is ids, stays the caller's. */
int generator_begin(struct generator *g, const int32_t *first, uint64_t n_first, struct tfmc_ids source,
                    uint64_t cap);
/*
 * The next id, from logits [vocab], which the caller's function may change. log_p: NULL or where its log p
 * goes. *ends: it is the last one, for the reason in g->finish. The id counts as new also when telling of it
 * failed: g->n has grown.
 */
int generator_next(struct generator *g, float *logits, double *log_p, bool *ends);

#endif
