/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: a session on several ranks (struct tfmc_ranks). Rank 0 leads: before it changes its context or state it
 * broadcasts an act, and the followers repeat it, so that all ranks enter the same exchanges in the same order and
 * keep equal lengths.
 */
#ifndef TFMC_RUNTIME_LEAD_H
#define TFMC_RUNTIME_LEAD_H

#include "runtime/feed.h"

enum act_kind {
	ACT_CALLS,   /* a: number of calls, of which none follows one that fails. Payload: of each call
			struct call_head, then the inputs */
	ACT_RESET,   /* of all sequences */
	ACT_TRIM,    /* a: sequence, b: length */
	ACT_FORK,    /* a: from, b: to */
	ACT_SELECT,  /* a: first sequence, b: source */
	ACT_REORDER, /* a: number of sequences. Payload: i64 [a] */
	ACT_CLOSE    /* the leader closes its session */
};

/* One change of context or state, as broadcast. */
struct act {
	int64_t kind; /* enum act_kind */
	int64_t a, b;
	uint64_t bytes; /* of the payload; 0: none */
};

/* The ranks of a session; zeros: one process. */
struct lead {
	const struct tfmc_ranks *ranks; /* NULL: one process, nothing is sent */
	void *payload;                  /* [capacity], 64-byte aligned: of the last act; owned */
	uint64_t capacity;
};
void lead_close(struct lead *l);

/* ---- opening ---- */

/*
 * Compares object, library and options of all ranks; every rank must call it. TFMC_RT_E_RANKS on all of them:
 * o->message names the first difference and a rank that has it. TFMC_RT_E_ABI, TFMC_RT_E_NULL: o->ranks is incomplete,
 * nothing was sent. TFMC_RT_E_RANK: another rank failed or is gone.
 */
int lead_compare(const struct tfmc_session_options *o, const struct tfmc_record *r);
/* How a rank has opened. */
struct lead_opened {
	int status;
	int64_t variant;       /* code variant that its processor runs */
	int64_t weights_rank;  /* whose weights it has */
	uint64_t weights_hash; /* of the weights that all ranks have */
};
/*
 * Collects `own` of all ranks; every rank must call it. Returns the status of the first rank that failed, or
 * TFMC_RT_E_RANKS where a rank has weights of another rank or of another set; o->message names the rank. *lowest,
 * *highest: least and most demanding variant of all ranks.
 */
int lead_collect(const struct tfmc_session_options *o, const struct lead_opened *own, int64_t *lowest,
                 int64_t *highest);

/* ---- acts ---- */

/* Broadcasts an act with its payload [act->bytes]; nothing on one process. TFMC_RT_E_RANKS: this rank follows;
 * TFMC_RT_E_RANK: another rank failed or is gone. */
int lead_send(struct lead *l, const struct act *act, const void *payload);
/*
 * Broadcasts n calls with their inputs. Checks before that dims and buffers pass in the object, which no follower could
 * know of the outputs of the leader: TFMC_RT_E_DIM, TFMC_RT_E_SIZE, and nothing is sent. Others as lead_send.
 */
int lead_send_calls(struct lead *l, const struct tfmc_record *r, const struct session_call *calls,
                    uint64_t n);
/* Waits for the next act; its payload is l->payload until the next one. TFMC_RT_E_RANK: the leader failed or is gone,
 * or sent something else than an act; TFMC_RT_E_MEMORY. */
int lead_receive(struct lead *l, struct act *act);
/*
 * Arguments of call i of the received ones, without outputs; inputs point into l->payload. *at: where the call begins
 * in the payload, then where it ends; 0 for the first one. TFMC_RT_E_RANK: they are not those of an entry of the
 * record, or the payload does not end with the last call.
 */
int lead_read_call(const struct lead *l, const struct tfmc_record *r, const struct act *act, int64_t i,
                   uint64_t *at, struct session_call *out);

#endif
