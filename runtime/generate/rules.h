/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the library: which ids may come next, what ends a sequence, and text
 * that is held back until no stop text can begin in it. Generation and beam
 * search ask the same functions.
 */
#ifndef TFMC_RUNTIME_GENERATE_RULES_H
#define TFMC_RUNTIME_GENERATE_RULES_H

#include <stdbool.h>

#include "tfmc_rt.h"

struct rules {
	const struct tfmc_record *record;
	struct tfmc_rules given; /* zeros: none */
	int64_t vocab;
	uint64_t n_first; /* ids before the new ones */
	uint64_t n_most;  /* ids that the sequence may have */
	struct tfmc_ids source;
	bool ignore_stop;
	bool is_last;               /* of rules_mark: the id is one of given.forced_last */
	double decay;               /* of rules_mark: scores of stop ids grow by this part; 0: they do not */
	double *bias;               /* [vocab], of rules_mark; NULL: none */
	int32_t *counts;            /* [vocab], of rules_mark: how often each id occurred; NULL: no penalty */
	unsigned char *in_source;   /* [vocab]; NULL: no penalty */
	float *scores;              /* [vocab]: of rules_scores; NULL: logits stay as they are */
	unsigned char *always;      /* [vocab]: ids that are never chosen */
	unsigned char *excluded;    /* [vocab]: those of rules_mark */
	char *tail;                 /* [tail_cap]: the end of the new text */
	uint64_t tail_cap, longest; /* longest stop or banned text, bytes */
};

/* TFMC_RT_E_RULES for what cannot be followed. Close it also after a failure. */
int rules_open(struct rules *r, const struct tfmc_record *record, const struct tfmc_rules *given,
               int64_t vocab);
void rules_close(struct rules *r);
/* Sequences begin with n_first ids and have n_most at the end. The source stays the caller's. */
void rules_begin(struct rules *r, uint64_t n_first, uint64_t n_most, struct tfmc_ids source);
/* The most ids that a sequence may have: max_tokens of the rules (NULL: none) or session_max_len. */
int64_t rules_most(const struct tfmc_rules *rules, const struct tfmc_session *session);

/* The caller's function on a row of logits, then the check: TFMC_RT_E_LOGITS for NaN and +infinity,
 * TFMC_RT_E_CANCELLED when the function wants no more. */
int rules_logits(const struct rules *r, float *logits, const int32_t *ids, uint64_t n);
/* Which ids may not follow ids[0..n), of which n - n_first are new, to r->excluded. */
void rules_mark(struct rules *r, const int32_t *ids, uint64_t n);
/* Excludes text where timestamps together are likelier than any of it. shift: subtracted from logits to make scores. */
void rules_weigh_timestamps(struct rules *r, const float *logits, double shift);
/* The score of an id after the changes of the rules, and those of a row: logits itself without any. For the
 * sequence of rules_mark. */
double rules_score(const struct rules *r, int32_t id, double score);
const float *rules_scores(struct rules *r, const float *logits);
bool rules_is_stop(const struct rules *r, int32_t id);
/* ids[0..n), whose last one is new, end with a token in which a stop text ends. */
bool rules_stop_text(struct rules *r, const int32_t *ids, uint64_t n);

/* Whether tokens have texts, of the object or of the caller. */
bool rules_have_text(const struct rules *r);
/* A start or stop id. */
bool token_is_end(const struct tfmc_record *record, int32_t id);
/* Text of one token, "" for start, stop and pad ids; NULL: not in the vocabulary. */
const char *text_of_token(const struct tfmc_record *record, int32_t id, size_t *bytes);

/* ---- text as it comes ---- */
struct stream {
	const struct rules *rules;
	int (*emit)(void *user, const char *text, uint64_t bytes); /* NULL: nothing is kept */
	void *user;
	char *held; /* [n]: not yet decided */
	uint64_t n, cap;
	bool is_stopped, is_ended; /* by a stop text; by emit */
};

/* Takes the text of one more token. */
int stream_token(struct stream *s, int32_t id);
/* Nothing follows: what is held goes out. */
void stream_end(struct stream *s);
void stream_close(struct stream *s);

#endif
