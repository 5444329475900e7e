/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a model as threads of this process, and the times of exchanges. */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_RANKS_H
#define TFMC_FRONTEND_DRIVER_COMPILE_RANKS_H

#include "frontend/driver/compile/jit.h"

struct rank_threads;
/*
 * Starts a thread for each rank but 0 of an object for several ranks, with the weights parts[rank].map; they wait
 * for the session of rank 0, which the caller opens with .ranks = rank_threads_leader(*out). link: what exchanges
 * take in addition; NULL: nothing. Also after a failure the caller ends *out, after closing that session.
 */
int rank_threads_begin(const struct tfmc_model *model, const struct tfmc_session_options *options,
                       const struct packed *parts, const struct tfmc_link *link, struct rank_threads **out);
/* Rank 0 alone: no thread, all others are taken to have its values. */
int rank_threads_begin_alone(const struct tfmc_model *model, const struct tfmc_link *link,
                             struct rank_threads **out);
const struct tfmc_ranks *rank_threads_leader(const struct rank_threads *g);
/* Waits for the threads. NULL is allowed. */
void rank_threads_end(struct rank_threads *g);

/* The link of --latency and --link-rate. */
struct tfmc_link driver_link(const struct driver *d);

/* out->ranks does what `base` does, and adds up the time of the exchanges of worker 0, waiting for other ranks
 * included. *out must not be moved. */
void timed_ranks_init(struct timed_ranks *out, const struct tfmc_ranks *base);

#endif
