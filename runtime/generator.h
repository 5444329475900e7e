/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: one growing sequence, from logits to ids to the reason for its end. The logits come from a
 * session with one sequence (generate.c) or from slots with many (many.c).
 */
#ifndef TFMC_RUNTIME_GENERATE_GENERATOR_H
#define TFMC_RUNTIME_GENERATE_GENERATOR_H

#include "runtime/constraints.h"

/* One growing sequence. */
struct generator {
	struct tfmc_session *session;
	const struct tfmc_record *record;
	int64_t vocab;
	struct tfmc_generate_options options;
	struct constraints constraints;
	struct stream stream;
	struct tfmc_sampler *sampler; /* NULL: greedy */
	int32_t *ids;                 /* ids before the new ones, then new ones */
	uint64_t n, n_first;
	int64_t limit; /* bound of the number of new ids */
	enum tfmc_finish finish;
};

/* options may be NULL. Call generator_close also after a failure. */
int generator_open(struct generator *g, struct tfmc_session *session, int64_t vocab,
                   const struct tfmc_generate_options *options);
void generator_close(struct generator *g);
/* Starts the sequence with the ids before the new ones, of which there are at most cap. The caller owns
 * the source ids. */
int generator_begin(struct generator *g, const int32_t *first, uint64_t n_first, struct tfmc_ids source,
                    uint64_t cap);
/*
 * Chooses and reports the next id, from logits [vocab], which on_logits may change. log_p: NULL, or receives
 * its log-probability. *ends: it is the last one, for the reason in g->finish. When a callback fails, the id
 * still counts as new: g->n has grown.
 */
int generator_next(struct generator *g, float *logits, double *log_p, bool *ends);

#endif
