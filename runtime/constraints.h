/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: logit constraints (excluded ids, score changes, ends of sequences) and stop strings in streamed
 * text. Greedy generation, sampling and beam search share them.
 */
#ifndef TFMC_RUNTIME_CONSTRAINTS_H
#define TFMC_RUNTIME_CONSTRAINTS_H

#include <stdbool.h>

#include "tfmc_rt.h"

/* The constraints of one sequence at a time, with the buffers that every row needs. */
struct constraints {
	const struct tfmc_record *record;
	struct tfmc_constraints given; /* the caller's constraints; zeros: none */
	int64_t vocab;
	uint64_t n_first; /* ids before the new ones (prompt or start) */
	uint64_t n_most;  /* length bound of the sequence */
	struct tfmc_ids source;
	bool ignore_stop;
	bool is_last; /* set by constraints_mark_excluded: the id must be one of given.forced_last */
	double decay; /* set by constraints_mark_excluded: scores s of stop ids grow by |s| decay; 0: off */
	double *bias; /* [vocab], set by constraints_mark_excluded; NULL: none */
	int32_t *counts; /* [vocab], set by constraints_mark_excluded: occurrences of each id; NULL: no
			   penalty */
	unsigned char *in_source;   /* [vocab]: 1: the id occurs in the source; NULL: no penalty */
	float *scores;              /* [vocab], written by constraints_scores; NULL: no score changes */
	unsigned char *always;      /* [vocab]: ids excluded in every sequence */
	unsigned char *excluded;    /* [vocab], set by constraints_mark_excluded: ids excluded as the next
				       one */
	char *tail;                 /* [tail_cap]: buffer for the end of the new text */
	uint64_t tail_cap, longest; /* bytes of the longest stop or banned string */
};

/* Checks and copies the constraints. TFMC_RT_E_CONSTRAINTS: one cannot be followed. Call constraints_close also
 * after a failure. */
int constraints_open(struct constraints *c, const struct tfmc_record *record,
                     const struct tfmc_constraints *given, int64_t vocab);
void constraints_close(struct constraints *c);
/* Starts a sequence of n_first ids before the new ones, bounded by n_most. The caller owns the source. */
void constraints_begin(struct constraints *c, uint64_t n_first, uint64_t n_most, struct tfmc_ids source);
/* Length bound of a sequence: the smaller of max_tokens of the constraints (NULL: none) and
 * session_max_len. */
int64_t max_sequence_length(const struct tfmc_constraints *constraints, const struct tfmc_session *session);

/* Calls on_logits on a row of logits, then checks it: TFMC_RT_E_LOGITS for NaN and +infinity,
 * TFMC_RT_E_CANCELLED when the callback returned nonzero. */
int constraints_logits(const struct constraints *c, float *logits, const int32_t *ids, uint64_t n);
/* Marks in c->excluded the ids that may not follow ids[0..n), of which n - n_first are new, and updates
 * the state of the score changes. */
void constraints_mark_excluded(struct constraints *c, const int32_t *ids, uint64_t n);
/* Whisper's timestamp rule: excludes all text ids if the timestamps together are more likely than the best
 * text id. shift is subtracted from logits to make scores. */
void constraints_prefer_timestamps(struct constraints *c, const float *logits, double shift);
/* The score of an id, and those of a whole row (logits itself if nothing changes), after all score
 * changes. For the sequence last given to constraints_mark_excluded. */
double constraints_score(const struct constraints *c, int32_t id, double score);
const float *constraints_scores(struct constraints *c, const float *logits);
/* True: a stop id of the constraints or the model, unless stops are ignored. */
bool constraints_is_stop(const struct constraints *c, int32_t id);
/* True: a stop string ends within the text of the last id of ids[0..n), which is new. */
bool constraints_ends_with_stop_text(struct constraints *c, const int32_t *ids, uint64_t n);

/* True: the object or the caller can turn ids into strings. */
bool constraints_have_text(const struct constraints *c);
/* True for start and stop ids of the model. */
bool token_is_start_or_stop(const struct tfmc_record *record, int32_t id);
/* String of a token, not terminated; *bytes 0 for start, stop and pad ids. NULL: not in the vocabulary. */
const char *token_string(const struct tfmc_record *record, int32_t id, size_t *bytes);

/* ---- streamed text ---- */
struct stream {
	const struct constraints *constraints;
	int (*emit)(void *user, const char *text, uint64_t bytes); /* on_text; NULL: no text is emitted */
	void *user;
	char *held; /* [n]: withheld, may be the beginning of a stop string */
	uint64_t n, cap;
	bool is_stopped, is_ended; /* a stop string was found; emit returned nonzero */
};

/* Appends the text of one token and emits what is decided. */
int stream_token(struct stream *s, int32_t id);
/* End of the sequence: emits the withheld text. */
void stream_end(struct stream *s);
void stream_close(struct stream *s);

#endif
