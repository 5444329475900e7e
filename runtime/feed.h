/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: calls of the entries encode, prefill, step and score with token ids, and facts of the record
 * about ids. Greedy generation, sampling, beam search, slots and scoring are built on it.
 */
#ifndef TFMC_RUNTIME_FEED_H
#define TFMC_RUNTIME_FEED_H

#include "tfmc_rt.h"
#include "try.h"

#define MODEL_WORKERS_MAX 4096

/* Arguments of a call of an entry. */
struct session_call {
	int64_t entry;
	int64_t dims[TFMC_DIMS_MAX]; /* of the record; those that the entry does not use are ignored */
	struct tfmc_buffer inputs[TFMC_TENSORS_MAX], outputs[TFMC_TENSORS_MAX];
};
/*
 * Calls entries one after another, as tfmc_session_call, until one fails. Other ranks get all `n` calls before the
 * first one begins, so that stages of a pipeline work at different calls at the same time.
 */
int session_run(struct tfmc_session *session, const struct session_call *calls, uint64_t n);
/* Calls that one run of the session should have at most: 1 in one process. A run is not cancelled in the middle. */
uint64_t session_run_calls(const struct tfmc_session *session);

/* Calls of a generating session: the arguments that stay from call to call, and the logits. */
struct feeder {
	struct tfmc_session *session;
	const struct tfmc_record *record;
	int64_t dims[TFMC_DIMS_MAX]; /* dim values of the next call, indexed as in the record */
	int64_t batch;               /* rows of a call */
	int64_t vocab;
	float *logits; /* [batch, V]: logits after the last token of each row, written by prefill and step;
		          NULL: the entries have none */
	uint64_t score_rows;    /* tokens of one call of `score`; 0: the object has no such entry */
	const int32_t *lengths; /* [batch]: number of real tokens of each row of the next calls; NULL: all.
				   Requires feeder_has_lengths */
	int32_t call_end;       /* batch 1: length after the last chunk of a prompt that is read in several
			     calls; 0: length after the call. Selects the long or short rotary frequencies
			     (longrope) */
};

/* Initializes *f. TFMC_RT_E_NULL: no session; TFMC_RT_E_GENERATE: the object does not generate; TFMC_RT_E_MEMORY. A
 * batch beyond the bound of the object is found by the calls (TFMC_RT_E_BEAM). Call feeder_close also after a
 * failure. */
int feeder_open(struct feeder *f, struct tfmc_session *session, int64_t batch);
void feeder_close(struct feeder *f);
/* encode: ids [batch, n] of the source, ignored where the session has one (tfmc_session_set_source).
 * prefill, step: the tokens that follow, ids [batch, n] and [batch]. A single sequence is prefilled in as
 * many calls as its tokens need (chunked prefill), in runs; when a later call fails, the earlier tokens stay. */
int feeder_encode(struct feeder *f, const int32_t *ids, uint64_t n);
int feeder_prefill(struct feeder *f, const int32_t *ids, uint64_t n);
int feeder_step(struct feeder *f, const int32_t *ids);
/* True: the sequence is at the longrope border, where one more token changes the rotary frequencies of
 * all, and the model requires that all tokens be read again. */
int feeder_must_reread(const struct feeder *f, int64_t sequence);
/* Returns TFMC_RT_E_PROMPT, with a message, if one of n ids is outside of the vocabulary of entry
 * `prefill` or `step`. */
int feeder_check_ids(const struct feeder *f, const char *entry, const int32_t *ids, uint64_t n);
/* True: entry `step` takes lengths, so that rows of length 0 are left unchanged. */
int feeder_has_lengths(const struct feeder *f);
/* Calls `score` with ids [batch, n]: n <= score_rows, or batch 1 and n <= feeder_score_ids, in one run. log_p [batch,
 * n]: log-probability of targets [batch, n], each as the successor of its id. */
int feeder_score(struct feeder *f, const int32_t *ids, const int32_t *targets, uint64_t n, float *log_p);
/* Ids of one sequence that a run of `score` should have at most. */
uint64_t feeder_score_ids(const struct feeder *f);

/* The arguments of tfmc_session_set_source; data NULL: not set. */
struct session_source {
	const void *data;
	uint64_t rank, n; /* n: number of elements */
	int64_t sizes[TFMC_SOURCE_RANK_MAX];
};
/* The source of the session; data NULL: none. */
const struct session_source *session_source(const struct tfmc_session *session);

/* Tokens of the sequence of row 0. */
int64_t session_first_length(const struct tfmc_session *session);
/* Tokens that a sequence may have: the bound of the object or `context` of the session options. */
uint64_t session_context(const struct tfmc_session *session);
/* Bound of a sequence with prompt and new tokens: the smaller of max_len of the record and
 * session_context. */
int64_t session_max_len(const struct tfmc_session *session);
/* Tokens of each of `batch` sequences in one call of the session, from call_tokens of the options. */
uint64_t session_max_call_tokens(const struct tfmc_session *session, int64_t batch);

/* True: tfmc_session_cancel was called since the last time. Consumes the request. */
int session_consume_cancel(struct tfmc_session *session);
/* End of a generation: drops a cancel request that came after it had succeeded, so that it does not hit
 * the next one. */
static inline int session_end_generation(struct tfmc_session *session, int status)
{
	if (status == TFMC_RT_OK)
		(void)session_consume_cancel(session);
	return status;
}
/* tfmc_session_trim without the check of the bidirectional prefix. */
int session_trim(struct tfmc_session *session, int64_t sequence, int64_t length);
/* True: `encode` has written the source of the sequence, or the model has none. */
int session_has_source(const struct tfmc_session *session, int64_t sequence);

/* Formats the message of tfmc_session_status_text for an invalid prompt (truncated to SESSION_ERROR_BYTES
 * - 1 bytes) and returns TFMC_RT_E_PROMPT. */
#define SESSION_ERROR_BYTES 192
int session_prompt_error(struct tfmc_session *session, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
/* The last message; "": none. */
const char *session_prompt_error_text(const struct tfmc_session *session);
/* Clears the message, at the beginning of each public call. */
void session_clear_prompt_error(struct tfmc_session *session);
/* TFMC_RT_E_PROMPT, with a message, unless 1 <= n_first <= max. */
int feed_check_prompt(struct tfmc_session *session, uint64_t n_first, int64_t max);
/* TFMC_RT_E_PROMPT, with a message, unless all ids are in [0, below); below <= 0: no check. what: subject
 * of the message, such as "the prompt". */
int feed_check_ids(struct tfmc_session *session, const char *what, const int32_t *ids, uint64_t n,
                   int64_t below);

/* True: id is one of the n int64 values at byte offset `ids` of the record. */
int record_has_id(const struct tfmc_record *r, int64_t ids, int64_t n, int64_t id);
/* The first id at byte offset `ids` of the record. */
int64_t record_first_id(const struct tfmc_record *r, int64_t ids);
/* False: the model suppresses the id, everywhere or as the first new one (first != 0). */
int record_allows_id(const struct tfmc_record *r, int64_t id, int first);
/* The model's start ids as i32; the caller frees. NULL: no memory. */
int32_t *record_start_ids(const struct tfmc_record *r, uint64_t *n);

#endif
