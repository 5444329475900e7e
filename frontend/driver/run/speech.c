/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of a transcript: --language, --task and --timestamps, and the language that a model of speech hears.
 */
#include <string.h>

#include "frontend/driver/run/prompts.h"

struct hearing {
	const struct frontend_names *languages;
	int64_t best; /* -1: not asked yet */
};

/* The likeliest language after the first id; nothing more is wanted. */
static int hear(void *user, float *logits, int64_t vocab, const int32_t *ids, uint64_t n)
{
	struct hearing *h = user;
	(void)ids;
	(void)n;
	for (size_t i = 0; i < h->languages->n; i++) {
		int64_t id = h->languages->ids[i];
		if (id >= vocab)
			continue;
		bool is_equal = h->best >= 0 && logits[id] == logits[h->best];
		if (h->best < 0 || logits[id] > logits[h->best] || (is_equal && id < h->best))
			h->best = id;
	}
	return 1;
}

/* One step of the decoder after its first id. */
static enum tfmc_status detect_language(struct driver *d, struct tfmc_session *session,
                                        const struct frontend_speech *s, int64_t *id)
{
	struct hearing h = {&s->languages, -1};
	const struct tfmc_constraints rules = {.struct_size = sizeof(rules), .on_logits = hear, .user = &h};
	const struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .max_new_tokens = 1, .rules = &rules};
	int32_t first = (int32_t)s->start, out;
	uint64_t n;
	int status = tfmc_generate(session, &o, NULL, 0, &first, 1, &out, 1, &n);
	*id = h.best;
	return h.best >= 0 ? TFMC_OK : prompt_status(d, session, "generate", status);
}

enum tfmc_status driver_speech_start(struct driver *d, struct tfmc_session *session,
                                     const struct frontend_generate *g, struct ids *out)
{
	const struct driver_options *o = &d->options;
	const struct speech_request wish = {o->language, o->task, o->timestamps};
	int64_t ids[SPEECH_START_MAX];
	size_t n;
	if (!g->speech.given || g->start.n == 0)
		return TFMC_OK;
	const char *wrong = frontend_speech_start(&d->arena, &g->speech, &wish, ids, &n);
	if (wrong) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s", wrong);
		return TFMC_INVALID;
	}
	if (n > 1 && ids[1] == SPEECH_DETECTED)
		TFMC_TRY(detect_language(d, session, &g->speech, &ids[1]));
	for (size_t i = 0; i < n; i++)
		TFMC_TRY(prompt_append(d, &(int32_t){(int32_t)ids[i]}, 1, out));
	return TFMC_OK;
}
