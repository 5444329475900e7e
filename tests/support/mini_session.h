/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small model of mini_model.h as an object in this process with an open
 * session, for tests of what the runtime library does on top of objects.
 */
#ifndef TFMC_TESTS_SUPPORT_MINI_SESSION_H
#define TFMC_TESTS_SUPPORT_MINI_SESSION_H

#include "backends/backend.h"
#include "runtime/tfmc_rt.h"
#include "tests/support/tir.h"

enum {
	MINI_V = 20,
	MINI_MAX_B = 4,
	MINI_MAX_T = 10,
	MINI_START = 3,
	MINI_STOP = 5,
	MINI_BANNED = 7,
	MINI_FIRST = 11
};

/* Tokens of MINI_V ids. */
#define MINI_VOCABULARY "<pad>\na\nb\n<s>\nab\n</s>\nc\nxx\nba\nd\nca\ne\nf\nbc\ng\nh\ni\nj\nk\nl\n"

struct mini_session {
	struct tir graph;
	struct ir_module *planned;
	struct backend_output out;
	struct backend_jit *jit;
	struct tfmc_session *session;
};

/* Start, stop, suppressed and first suppressed ids as above; vocabulary: newline-separated tokens or NULL. */
void mini_open(struct mini_session *m, const char *vocabulary, int64_t workers);
/* The same for a target that this machine runs, at a level of optimization ("O0", "O1", "O2"). */
void mini_open_for(struct mini_session *m, const char *vocabulary, int64_t workers,
                   const struct target *target, const char *level);
/* The same for another text with these entries. */
void mini_open_text(struct mini_session *m, const char *text, const char *vocabulary, int64_t workers,
                    const struct target *target, const char *level);
void mini_close(struct mini_session *m);
/* Resets, then the source; ids after those in the state, logits [MINI_V] of the last. */
void mini_encode(struct tfmc_session *s, const int32_t *ids, uint64_t n);
void mini_prefill(struct tfmc_session *s, const int32_t *ids, uint64_t n, float *logits);
/* Calls an entry on `batch` sequences. */
int mini_call(struct tfmc_session *s, const char *name, int64_t batch, struct tfmc_buffer *in, float *logits);

/* Arguments that callbacks of a generation received; user: struct mini_heard. */
struct mini_heard {
	char text[256];
	size_t n;
	int pieces, tokens, limit; /* limit: pieces after which no more is wanted, 0: none */
};
int mini_hear(void *user, const char *text, uint64_t bytes);
int mini_count_token(void *user, int32_t id);

#endif
