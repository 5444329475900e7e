/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece: meaning of its types and settings, and tokenizer.model, a protobuf of which only the
 * relevant fields are read; unsupported fields that change results are rejected.
 */
#include "frontend/tokenizer/spm.h"

#include <string.h>

/* ---- common to all sources ---- */

bool tokenizer_add_token(const struct tokenizer_source *s, struct tokenizer_desc *d, uint32_t id,
                         uint32_t flags, bool in_normalized)
{
	struct tokenizer_token *t = &d->tokens[id];
	if (d->added == NULL)
		d->added = ARENA_ARRAY(s->arena, struct tokenizer_added, d->n_tokens);
	if (d->added == NULL)
		return false;
	d->added[d->n_added++] = (struct tokenizer_added){id, flags, in_normalized, {NULL, 0}};
	t->flags |= TFMC_TOK_F_ADDED | (flags & TFMC_TOK_A_SPECIAL ? TFMC_TOK_F_SPECIAL : 0u);
	return true;
}

bool tokenizer_set_type(const struct tokenizer_source *s, struct tokenizer_desc *d, size_t i, int64_t type)
{
	struct tokenizer_token *t = &d->tokens[i];
	bool ok = true;
	t->is_written = true;
	t->is_matched = type == TOKENIZER_PIECE_NORMAL || type == TOKENIZER_PIECE_USER;
	if (type == TOKENIZER_PIECE_UNKNOWN) {
		d->unknown = (uint32_t)i;
		t->flags |= TFMC_TOK_F_SPECIAL;
	} else if (type == TOKENIZER_PIECE_CONTROL) {
		ok = tokenizer_add_token(s, d, (uint32_t)i, TFMC_TOK_A_SPECIAL, false);
	} else if (type == TOKENIZER_PIECE_USER) {
		ok = tokenizer_add_token(s, d, (uint32_t)i, 0, true);
	} else if (type == TOKENIZER_PIECE_BYTE) {
		ok = tokenizer_set_byte_token(s->arena, t);
		if (!ok)
			(void)tokenizer_reject_file(s, TOKENIZER_WRONG, NULL,
			                            "token %zu is of type byte and is called '%.*s'", i,
			                            (int)t->piece.n, t->piece.text);
	} else if (type < TOKENIZER_PIECE_NORMAL || type > TOKENIZER_PIECE_BYTE) {
		(void)tokenizer_reject_file(s, TOKENIZER_WRONG, NULL, "token %zu has the unknown type %lld",
		                            i, (long long)type);
		ok = false;
	}
	return ok;
}

/*
 * Unigram: user-defined pieces are not split off but take part in the segmentation with the scores that
 * SentencePiece gives them, above all other pieces, so that the sum decides between overlapping ones. BPE
 * splits at the longest from the left.
 */
static void score_user_pieces(struct tokenizer_desc *d)
{
	for (size_t i = 0; i < d->n_added; i++) {
		struct tokenizer_token *t = &d->tokens[d->added[i].id];
		if (!d->added[i].in_normalized || !t->is_matched)
			continue;
		d->added[i].flags |= TFMC_TOK_A_HIDDEN;
		t->score = 0.1 * ((double)t->piece.n - 1);
	}
}

enum tfmc_status tokenizer_spm_finish(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                      const struct tokenizer_spm *spm)
{
	double lowest = 0;
	bool is_first = true;
	uint32_t flags = (spm->extra_blanks ? 0u : 1u) | (spm->prefix ? 2u : 0u);
	if (arena_failed(s->arena) ||
	    !tokenizer_add_op(&d->normalize, TFMC_TOK_SENTENCEPIECE, flags, tokenizer_string(spm->mark),
	                      (struct tokenizer_string){"", 0}))
		return TFMC_NO_MEMORY;
	d->model = spm->is_unigram ? TFMC_TOK_UNIGRAM : TFMC_TOK_BPE;
	d->mark = tokenizer_string(spm->mark);
	d->flags |= TFMC_TOK_H_FUSE_UNKNOWN | (spm->prefix ? TFMC_TOK_H_DECODE_STRIP : 0u) |
	            (spm->extra_blanks ? 0u : TFMC_TOK_H_DECODE_STRIP_ALL);
	tokenizer_find_byte_tokens(d);
	if (d->has_single)
		d->flags |= TFMC_TOK_H_FALLBACK;
	for (size_t i = 0; i < d->n_tokens; i++) {
		if (!d->tokens[i].is_matched || d->tokens[i].flags & TFMC_TOK_F_ADDED)
			continue;
		lowest = is_first || d->tokens[i].score < lowest ? d->tokens[i].score : lowest;
		is_first = false;
	}
	d->unknown_score = lowest - 10;
	if (spm->is_unigram)
		score_user_pieces(d);
	return spm->is_unigram ? TFMC_OK : tokenizer_merges_by_score(s, d);
}

/* ---- protobuf ---- */

/* Remaining bytes of a protobuf message. */
struct reader {
	const unsigned char *at, *end;
	bool failed;
};

/* A protobuf field. */
struct field {
	uint64_t number;
	unsigned wire; /* 0 varint, 1 64 bits, 2 bytes, 5 32 bits */
	uint64_t value;
	struct reader bytes;
};

static uint64_t read_varint(struct reader *r)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (r->at == r->end)
			break;
		unsigned char c = *r->at++;
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80))
			return v;
	}
	r->failed = true;
	return 0;
}

static uint64_t read_fixed(struct reader *r, unsigned n)
{
	uint64_t v = 0;
	if ((size_t)(r->end - r->at) < n) {
		r->failed = true;
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)*r->at++ << (8 * i);
	return v;
}

/* Reads the next field; false: at the end, or malformed (r->failed). */
static bool next_field(struct reader *r, struct field *f)
{
	if (r->failed || r->at == r->end)
		return false;
	uint64_t key = read_varint(r);
	*f = (struct field){.number = key >> 3, .wire = (unsigned)(key & 7)};
	if (f->wire == 0) {
		f->value = read_varint(r);
	} else if (f->wire == 1 || f->wire == 5) {
		f->value = read_fixed(r, f->wire == 1 ? 8 : 4);
	} else if (f->wire == 2) {
		uint64_t n = read_varint(r);
		if (r->failed || n > (uint64_t)(r->end - r->at)) {
			r->failed = true;
			return false;
		}
		f->bytes = (struct reader){r->at, r->at + n, false};
		r->at += n;
	} else {
		r->failed = true;
	}
	return !r->failed;
}

/* ---- tokenizer.model ---- */

/* A tokenizer.model while it is read. */
struct model {
	const struct tokenizer_source *source;
	struct tokenizer_desc *desc;
	struct tokenizer_spm spm;
	uint64_t type; /* model type: 1 unigram, 2 BPE */
	bool escapes;  /* escape_whitespaces */
	bool suffix;
};

/* Reads a SentencePiece message: piece, score, type. */
static bool read_piece(struct model *m, struct reader piece, size_t i)
{
	struct tokenizer_token *t = &m->desc->tokens[i];
	int64_t type = TOKENIZER_PIECE_NORMAL;
	struct field f;
	while (next_field(&piece, &f)) {
		if (f.number == 1 && f.wire == 2)
			t->piece = (struct tokenizer_string){(const char *)f.bytes.at,
			                                     (size_t)(f.bytes.end - f.bytes.at)};
		if (f.number == 2 && f.wire == 5) {
			uint32_t bits = (uint32_t)f.value;
			float score;
			memcpy(&score, &bits, sizeof(score));
			t->score = (double)score;
		}
		if (f.number == 3 && f.wire == 0)
			type = (int64_t)f.value;
	}
	return !piece.failed && tokenizer_set_type(m->source, m->desc, i, type);
}

/* Reads TrainerSpec: model type and whitespace suffix. */
static bool read_trainer(struct model *m, struct reader spec)
{
	struct field f;
	while (next_field(&spec, &f)) {
		if (f.number == 3 && f.wire == 0)
			m->type = f.value;
		if (f.number == 24 && f.wire == 0)
			m->suffix = f.value != 0;
	}
	return !spec.failed;
}

/* Reads NormalizerSpec: character map and space handling. */
static bool read_normalizer(struct model *m, struct reader spec)
{
	struct field f;
	while (next_field(&spec, &f)) {
		if (f.number == 2 && f.wire == 2)
			m->desc->charsmap = (struct tokenizer_string){(const char *)f.bytes.at,
			                                              (size_t)(f.bytes.end - f.bytes.at)};
		if (f.number == 3 && f.wire == 0)
			m->spm.prefix = f.value != 0;
		if (f.number == 4 && f.wire == 0)
			m->spm.extra_blanks = f.value == 0;
		if (f.number == 5 && f.wire == 0)
			m->escapes = f.value != 0;
	}
	return !spec.failed;
}

static bool read_model(struct model *m, struct reader all)
{
	struct reader count = all;
	struct field f;
	size_t i = 0;
	while (next_field(&count, &f))
		m->desc->n_tokens += f.number == 1 && f.wire == 2;
	m->desc->tokens = ARENA_ARRAY(m->source->arena, struct tokenizer_token, m->desc->n_tokens + 1);
	if (count.failed || m->desc->tokens == NULL || m->desc->n_tokens > TFMC_TOK_TOKENS_MAX)
		return false;
	bool ok = true;
	while (ok && next_field(&all, &f)) {
		if (f.wire != 2)
			continue;
		if (f.number == 1)
			ok = read_piece(m, f.bytes, i++);
		else if (f.number == 2)
			ok = read_trainer(m, f.bytes);
		else if (f.number == 3)
			ok = read_normalizer(m, f.bytes);
	}
	return ok && !all.failed;
}

enum tfmc_status tokenizer_spm_read(const struct tokenizer_source *s, const unsigned char *data, size_t len,
                                    struct tokenizer_desc **out, struct tokenizer_spm *spm)
{
	struct tokenizer_desc *d = *out = ARENA_NEW(s->arena, struct tokenizer_desc);
	struct model m = {s, d, {false, true, false, TOKENIZER_MARK}, 1, true, false};
	if (d == NULL)
		return TFMC_NO_MEMORY;
	tokenizer_desc_init(d);
	size_t errors = s->cx->n_errors;
	if (!read_model(&m, (struct reader){data, data + len, false})) {
		if (s->cx->n_errors == errors)
			(void)tokenizer_reject_file(s, TOKENIZER_WRONG, NULL, "no model of SentencePiece");
		return TFMC_INVALID;
	}
	const char *unsupported = m.suffix                     ? "treat_whitespace_as_suffix"
	                          : !m.escapes                 ? "escape_whitespaces false"
	                          : m.type == 3                ? "model type word"
	                          : m.type != 1 && m.type != 2 ? "model type char"
	                                                       : NULL;
	if (unsupported != NULL)
		return tokenizer_reject_file(s, TOKENIZER_UNSUPPORTED, NULL, "%s", unsupported);
	m.spm.is_unigram = m.type == 1;
	*spm = m.spm;
	return TFMC_OK;
}

enum tfmc_status tokenizer_from_spm(const struct tokenizer_source *s, const unsigned char *data, size_t len,
                                    struct tokenizer_packed *out)
{
	struct tokenizer_desc *d;
	struct tokenizer_spm spm;
	TFMC_TRY(tokenizer_spm_read(s, data, len, &d, &spm));
	if (s->config != NULL)
		return tokenizer_spm_of_class(s, d, &spm, out);
	d->flags |= TFMC_TOK_H_BARE;
	TFMC_TRY(tokenizer_spm_finish(s, d, &spm));
	return tokenizer_pack(s, d, out);
}
