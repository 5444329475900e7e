/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids to text: each token is written as a few byte runs, to a buffer or to a stream that emits whole
 * characters.
 *
 * A piece is the string of a token; a word mark in it (SentencePiece's U+2581) is a space. The header has the flags of
 * the model's decoder (TFMC_TOK_H_), each token has its kind (TFMC_TOK_F_). WordPiece: n_prefix bytes (`##`) begin
 * pieces that continue a word; with DECODE_SUFFIX the same bytes end pieces that end one.
 */
#include <string.h>

#include "ir/support/utf8.h"
#include "runtime/tokenizer/tok.h"

/* Output of the decoder, common to buffers and streams. */
struct output {
	const struct tfmc_tokenizer *t;
	unsigned flags;
	bool is_begun;    /* text has been written before */
	bool is_stripped; /* a leading space of this token was removed */
	bool has_blank;   /* pending space of an end-of-word suffix, written when something follows */
	void (*put)(struct output *s, const char *bytes, size_t n);
	void *user;
	char *out;
	uint64_t cap, n;
};

/* Writes bytes, without the first space of the text where DECODE_STRIP removes it, which the encoder has added. With
 * DECODE_STRIP_ALL the next token is still the first. */
static void write_text(struct output *s, const char *bytes, size_t n)
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

/* Writes a piece with its word marks replaced by spaces. */
static void write_unmarked(struct output *s, const char *p, size_t n)
{
	const char *mark = s->t->mark;
	size_t n_mark = s->t->head->n_mark, from = 0;
	for (size_t at = 0; n_mark && at + n_mark <= n;) {
		if (p[at] != mark[0] || memcmp(p + at, mark, n_mark) != 0) {
			at++;
			continue;
		}
		write_text(s, p + from, at - from);
		write_text(s, " ", 1);
		at += n_mark;
		from = at;
	}
	write_text(s, p + from, n - from);
}

/* True for punctuation and contractions, which take no space before them: `clean_up_tokenization_spaces` of
 * transformers. */
static bool takes_no_space(const char *p, size_t n)
{
	static const char *const strings[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++)
		if (n >= strlen(strings[i]) && !memcmp(p, strings[i], strlen(strings[i])))
			return true;
	return false;
}

/* Writes a token of a decoder of words: after a space unless it continues a word or is punctuation. A continuation
 * that begins the text keeps its prefix. */
static void write_word(struct output *s, const char *p, size_t n)
{
	const struct tfmc_tok_header *h = s->t->head;
	bool is_remaining = h->model == TFMC_TOK_WORDPIECE && h->n_prefix && n >= h->n_prefix &&
	                    !memcmp(p, s->t->prefix, h->n_prefix);
	if (s->is_begun && is_remaining) {
		p += h->n_prefix;
		n -= h->n_prefix;
	} else if (s->is_begun && !(h->flags & TFMC_TOK_H_DECODE_CLEAN && takes_no_space(p, n))) {
		write_text(s, " ", 1);
	}
	write_unmarked(s, p, n);
	s->is_begun = true;
}

/* Writes one token as its flags say. E_ID: no such token. The space of an end-of-word suffix is written before the
 * next token, so that none ends the text. Tokens of single bytes are written as they are: their bytes are no marks. */
static int write_token(struct output *s, int32_t id)
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
		write_text(s, " ", 1);
	s->has_blank = false;
	uint32_t suffix = t->head->n_prefix;
	if (t->head->flags & TFMC_TOK_H_DECODE_SUFFIX && suffix && n >= suffix &&
	    !memcmp(p + n - suffix, t->prefix, suffix)) {
		s->has_blank = true;
		n -= suffix;
	}
	if (t->head->flags & TFMC_TOK_H_DECODE_WORDS)
		write_word(s, p, (size_t)n);
	else if (t->flags[id] & TFMC_TOK_F_BYTE)
		write_text(s, p, (size_t)n);
	else
		write_unmarked(s, p, (size_t)n);
	return TFMC_TOKENIZER_OK;
}

/* ---- all at once ---- */

static void write_buffer(struct output *s, const char *bytes, size_t n)
{
	uint64_t available = s->n < s->cap ? s->cap - s->n : 0;
	if (available)
		memcpy(s->out + s->n, bytes, n < available ? n : (size_t)available);
	s->n += n;
}

/* AFTER: as if text had been written before: no space is stripped, and a decoder of words treats the first word as a
 * later one (write_word). A space of an end-of-word suffix that is still pending at the end is dropped. */
int tfmc_tokenizer_decode(const struct tfmc_tokenizer *t, const int32_t *ids, uint64_t n_ids, unsigned flags,
                          char *out, uint64_t cap, uint64_t *n)
{
	if (!t || (!ids && n_ids) || (!out && cap) || !n)
		return TFMC_TOKENIZER_E_NULL;
	struct output s = {
	        .t = t, .flags = flags, .is_begun = flags & TFMC_DETOKENIZE_AFTER, .put = write_buffer};
	int status = TFMC_TOKENIZER_OK;
	s.out = out;
	s.cap = cap;
	for (uint64_t i = 0; status == TFMC_TOKENIZER_OK && i < n_ids; i++)
		status = write_token(&s, ids[i]);
	*n = s.n;
	return status;
}

/* ---- streams ---- */

static void flush_stream(struct tfmc_token_stream *s)
{
	if (s->n_text && !s->has_failed && s->on_text && s->on_text(s->user, s->text, s->n_text))
		s->has_failed = 1;
	s->n_text = 0;
}

/* Appends a whole character to the output buffer of a stream. */
static void append_char(struct tfmc_token_stream *s, const char *bytes, unsigned n)
{
	if (s->n_text + n > sizeof(s->text))
		flush_stream(s);
	memcpy(s->text + s->n_text, bytes, n);
	s->n_text += n;
}

/* True: held[0..n), 0 < n < 4, is an incomplete prefix of a valid character: it is one with the lowest or the highest
 * continuation bytes (some first bytes restrict the second). More bytes than n must be used, or it is complete. */
static bool is_incomplete(const char *held, unsigned n)
{
	char low[4], high[4];
	uint32_t cp;
	memset(low, 0x80, sizeof(low));
	memset(high, 0xbf, sizeof(high));
	memcpy(low, held, n);
	memcpy(high, held, n);
	return utf8_decode(low, 4, &cp) > n || utf8_decode(high, 4, &cp) > n;
}

/* Emits the withheld bytes that are decided: complete characters, and U+FFFD for bytes that cannot begin one. An
 * incomplete character at the end waits for the next token. */
static void emit_decided(struct tfmc_token_stream *s)
{
	while (s->n_held && !is_incomplete(s->held, s->n_held)) {
		uint32_t cp;
		unsigned len = (unsigned)tok_decode(s->held, s->n_held, &cp);
		if (cp & TOK_INVALID) {
			/* The maximal invalid prefix becomes one U+FFFD (Unicode's recommended practice). */
			while (len < s->n_held && is_incomplete(s->held, len + 1))
				len++;
			append_char(s, "\xef\xbf\xbd", 3);
		} else {
			append_char(s, s->held, len);
		}
		s->n_held -= len;
		memmove(s->held, s->held + len, s->n_held);
	}
}

static void write_stream(struct output *output, const char *bytes, size_t n)
{
	struct tfmc_token_stream *s = output->user;
	for (size_t i = 0; i < n; i++) {
		s->held[s->n_held++] = bytes[i];
		emit_decided(s);
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

/* Emits the text of each token once, in full characters. The stream stores the state that the next token depends on. */
int tfmc_token_stream_add(struct tfmc_token_stream *s, int32_t id)
{
	if (!s || !s->tokenizer)
		return TFMC_TOKENIZER_E_NULL;
	struct output output = {.t = s->tokenizer,
	                        .flags = s->flags,
	                        .is_begun = s->is_begun,
	                        .has_blank = s->has_blank,
	                        .put = write_stream,
	                        .user = s};
	int status = write_token(&output, id);
	s->is_begun = output.is_begun;
	s->has_blank = output.has_blank;
	flush_stream(s);
	return status == TFMC_TOKENIZER_OK && s->has_failed ? (int)TFMC_TOKENIZER_E_STOPPED : status;
}

int tfmc_token_stream_end(struct tfmc_token_stream *s)
{
	if (!s)
		return TFMC_TOKENIZER_E_NULL;
	if (s->n_held)
		append_char(s, "\xef\xbf\xbd", 3);
	s->n_held = 0;
	flush_stream(s);
	return s->has_failed ? TFMC_TOKENIZER_E_STOPPED : TFMC_TOKENIZER_OK;
}
