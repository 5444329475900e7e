/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids to text: each token becomes a few runs of bytes, which go to a buffer as
 * they are or through a stream that lets whole characters out.
 */
#include <string.h>

#include "runtime/tokenizer/tok.h"

/* What is the same for a buffer and a stream. */
struct sink {
	const struct tfmc_tokenizer *t;
	unsigned flags;
	bool is_begun;    /* text is before */
	bool is_stripped; /* the token has lost its first blank */
	bool has_blank;   /* of the suffix of a word, written when something follows */
	void (*put)(struct sink *s, const char *bytes, size_t n);
	void *user;
	char *out;
	uint64_t cap, n;
};

static void put_text(struct sink *s, const char *bytes, size_t n)
{
	uint32_t flags = s->t->head->flags;
	if (n && !s->is_begun && flags & TFMC_TOK_H_DECODE_STRIP && !s->is_stripped && bytes[0] == ' ') {
		bytes++;
		n--;
		s->is_stripped = true;
		s->is_begun = !(flags & TFMC_TOK_H_DECODE_STRIP_ALL);
	}
	if (n) {
		s->is_begun = true;
		s->put(s, bytes, n);
	}
}

/* The mark is a blank. */
static void put_marked(struct sink *s, const char *p, size_t n)
{
	const char *mark = s->t->mark;
	size_t n_mark = s->t->head->n_mark, from = 0;
	for (size_t at = 0; n_mark && at + n_mark <= n;) {
		if (p[at] != mark[0] || memcmp(p + at, mark, n_mark) != 0) {
			at++;
			continue;
		}
		put_text(s, p + from, at - from);
		put_text(s, " ", 1);
		at += n_mark;
		from = at;
	}
	put_text(s, p + from, n - from);
}

static bool begins_with(const char *p, size_t n, const char *with)
{
	return n >= strlen(with) && !memcmp(p, with, strlen(with));
}

/* No blank before these. */
static bool is_close(const char *p, size_t n)
{
	static const char *const words[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (begins_with(p, n, words[i]))
			return true;
	return false;
}

static void put_word(struct sink *s, const char *p, size_t n)
{
	const struct tfmc_tok_header *h = s->t->head;
	bool is_rest = h->model == TFMC_TOK_WORDPIECE && h->n_prefix && n >= h->n_prefix &&
	               !memcmp(p, s->t->prefix, h->n_prefix);
	if (s->is_begun && is_rest) {
		p += h->n_prefix;
		n -= h->n_prefix;
	} else if (s->is_begun && !(h->flags & TFMC_TOK_H_DECODE_CLEAN && is_close(p, n))) {
		put_text(s, " ", 1);
	}
	put_marked(s, p, n);
	s->is_begun = true;
}

static int put_token(struct sink *s, int32_t id)
{
	const struct tfmc_tokenizer *t = s->t;
	uint64_t n;
	const char *p = tfmc_tokenizer_piece(t, id, &n);
	s->is_stripped = false;
	if (!p)
		return TFMC_TOKENIZER_E_ID;
	if (t->flags[id] & TFMC_TOK_F_SPECIAL && !(s->flags & TFMC_DETOKENIZE_KEEP))
		return TFMC_TOKENIZER_OK;
	if (s->has_blank)
		put_text(s, " ", 1);
	s->has_blank = false;
	uint32_t suffix = t->head->n_prefix;
	if (t->head->flags & TFMC_TOK_H_DECODE_SUFFIX && suffix && n >= suffix &&
	    !memcmp(p + n - suffix, t->prefix, suffix)) {
		s->has_blank = true;
		n -= suffix;
	}
	if (t->head->flags & TFMC_TOK_H_DECODE_WORDS)
		put_word(s, p, (size_t)n);
	else if (t->flags[id] & TFMC_TOK_F_BYTE)
		put_text(s, p, (size_t)n);
	else
		put_marked(s, p, (size_t)n);
	return TFMC_TOKENIZER_OK;
}

/* ---- all at once ---- */

static void put_buffer(struct sink *s, const char *bytes, size_t n)
{
	uint64_t room = s->n < s->cap ? s->cap - s->n : 0;
	if (room)
		memcpy(s->out + s->n, bytes, n < room ? n : (size_t)room);
	s->n += n;
}

int tfmc_tokenizer_decode(const struct tfmc_tokenizer *t, const int32_t *ids, uint64_t n_ids, unsigned flags,
                          char *out, uint64_t cap, uint64_t *n)
{
	if (!t || (!ids && n_ids) || (!out && cap) || !n)
		return TFMC_TOKENIZER_E_NULL;
	struct sink s = {
	        .t = t, .flags = flags, .is_begun = flags & TFMC_DETOKENIZE_AFTER, .put = put_buffer};
	int status = TFMC_TOKENIZER_OK;
	s.out = out;
	s.cap = cap;
	for (uint64_t i = 0; status == TFMC_TOKENIZER_OK && i < n_ids; i++)
		status = put_token(&s, ids[i]);
	*n = s.n;
	return status;
}

/* ---- streams ---- */

static void send_text(struct tfmc_token_stream *s)
{
	if (s->n_text && !s->has_failed && s->on_text && s->on_text(s->user, s->text, s->n_text))
		s->has_failed = 1;
	s->n_text = 0;
}

static void put_whole(struct tfmc_token_stream *s, const char *bytes, unsigned n)
{
	if (s->n_text + n > sizeof(s->text))
		send_text(s);
	memcpy(s->text + s->n_text, bytes, n);
	s->n_text += n;
}

/* Bytes a character has that begins so; 0: none begins so. */
static unsigned length_of(unsigned char c)
{
	return c < 0x80                ? 1
	       : c >= 0xc2 && c < 0xe0 ? 2
	       : (c & 0xf0) == 0xe0    ? 3
	       : c >= 0xf0 && c < 0xf5 ? 4
	                               : 0;
}

/* Whether held[0..n) may begin a character: also the second byte of some is bounded. */
static bool may_begin(const char *held, unsigned n)
{
	const unsigned char *u = (const unsigned char *)held;
	unsigned want = length_of(u[0]);
	if (want <= n)
		return false;
	for (unsigned i = 1; i < n; i++)
		if ((u[i] & 0xc0) != 0x80)
			return false;
	if (n < 2)
		return true;
	return !(u[0] == 0xe0 && u[1] < 0xa0) && !(u[0] == 0xed && u[1] >= 0xa0) &&
	       !(u[0] == 0xf0 && u[1] < 0x90) && !(u[0] == 0xf4 && u[1] >= 0x90);
}

/* Lets out what is decided of the held bytes. */
static void settle(struct tfmc_token_stream *s)
{
	while (s->n_held && !may_begin(s->held, s->n_held)) {
		uint32_t cp;
		unsigned len = (unsigned)tok_decode(s->held, s->n_held, &cp);
		if (cp & TOK_INVALID) {
			/* The longest part that could have begun a character is replaced by one sign. */
			while (len < s->n_held && may_begin(s->held, len + 1))
				len++;
			put_whole(s, "\xef\xbf\xbd", 3);
		} else {
			put_whole(s, s->held, len);
		}
		s->n_held -= len;
		memmove(s->held, s->held + len, s->n_held);
	}
}

static void put_stream(struct sink *sink, const char *bytes, size_t n)
{
	struct tfmc_token_stream *s = sink->user;
	for (size_t i = 0; i < n; i++) {
		s->held[s->n_held++] = bytes[i];
		settle(s);
	}
}

void tfmc_token_stream_begin(struct tfmc_token_stream *s, const struct tfmc_tokenizer *t, unsigned flags,
                             int (*on_text)(void *user, const char *text, uint64_t bytes), void *user)
{
	if (!s)
		return;
	*s = (struct tfmc_token_stream){.tokenizer = t, .flags = flags, .on_text = on_text, .user = user};
	s->is_begun = (flags & TFMC_DETOKENIZE_AFTER) != 0;
}

int tfmc_token_stream_add(struct tfmc_token_stream *s, int32_t id)
{
	if (!s || !s->tokenizer)
		return TFMC_TOKENIZER_E_NULL;
	struct sink sink = {.t = s->tokenizer,
	                    .flags = s->flags,
	                    .is_begun = s->is_begun,
	                    .has_blank = s->has_blank,
	                    .put = put_stream,
	                    .user = s};
	int status = put_token(&sink, id);
	s->is_begun = sink.is_begun;
	s->has_blank = sink.has_blank;
	send_text(s);
	return status == TFMC_TOKENIZER_OK && s->has_failed ? (int)TFMC_TOKENIZER_E_STOPPED : status;
}

int tfmc_token_stream_end(struct tfmc_token_stream *s)
{
	if (!s)
		return TFMC_TOKENIZER_E_NULL;
	if (s->n_held)
		put_whole(s, "\xef\xbf\xbd", 3);
	s->n_held = 0;
	send_text(s);
	return s->has_failed ? TFMC_TOKENIZER_E_STOPPED : TFMC_TOKENIZER_OK;
}
