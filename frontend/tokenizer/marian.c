/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marian: each side has a SentencePiece model that splits its text; vocab.json has the ids of the pieces.
 * Pieces that it lacks take part in the split and are encoded as the unknown token: they get ids after the
 * others.
 */
#include <string.h>

#include "frontend/tokenizer/spm.h"
#include "ir/support/utf8.h"

/* Tokens of the vocabulary with capacity for all pieces; none is matched yet. */
static enum tfmc_status reserve_tokens(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                       size_t n_pieces)
{
	struct tokenizer_token *all =
	        ARENA_ARRAY(s->arena, struct tokenizer_token, d->n_tokens + n_pieces + 1);
	if (all == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < d->n_tokens; i++) {
		all[i] = d->tokens[i];
		all[i].is_matched = false;
	}
	d->tokens = all;
	d->added = ARENA_ARRAY(s->arena, struct tokenizer_added, d->n_tokens + n_pieces + 1);
	return d->added != NULL ? TFMC_OK : TFMC_NO_MEMORY;
}

/* Adds the pieces with their scores. False: no memory. */
static bool add_pieces(const struct tokenizer_source *s, struct tokenizer_desc *d,
                       const struct tokenizer_desc *spm, const struct tokenizer_index *ids)
{
	for (size_t i = 0; i < spm->n_tokens; i++) {
		const struct tokenizer_token *p = &spm->tokens[i];
		if (!p->is_matched || p->piece.n == 0)
			continue;
		uint32_t id = tokenizer_index_find(ids, p->piece.text, p->piece.n);
		bool known = id != TFMC_TOK_NONE;
		struct tokenizer_token *t = &d->tokens[known ? id : d->n_tokens++];
		t->piece = p->piece;
		t->score = p->score;
		t->is_matched = true;
		t->is_written = known;
		t->flags |= known ? 0u : TFMC_TOK_F_UNKNOWN;
		if (p->flags & TFMC_TOK_F_ADDED &&
		    !tokenizer_add_token(s, d, (uint32_t)(t - d->tokens), 0, true))
			return false;
	}
	return true;
}

/* Makes single characters of the vocabulary that this side's model lacks matchable. */
static void add_characters(struct tokenizer_desc *d, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct tokenizer_token *t = &d->tokens[i];
		uint32_t cp;
		if (t->is_matched || t->flags || !t->is_written ||
		    utf8_decode(t->piece.text, t->piece.n, &cp) != t->piece.n || t->piece.n == 0)
			continue;
		t->is_matched = true;
		t->score = d->unknown_score;
		t->flags |= TFMC_TOK_F_LONE;
	}
}

/* Adds the special tokens. </s>, <pad> and <unk> are matched anywhere, language codes such as >>fr<< at
 * the beginning only. */
static enum tfmc_status add_specials(const struct tokenizer_source *s, struct tokenizer_desc *d, size_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct tokenizer_string p = d->tokens[i].piece;
		bool language = p.n >= 4 && !memcmp(p.text, ">>", 2) && !memcmp(p.text + p.n - 2, "<<", 2);
		bool end = tokenizer_string_equals(p, "</s>"), pad = tokenizer_string_equals(p, "<pad>"),
		     unknown = tokenizer_string_equals(p, "<unk>");
		d->eos = end ? i : d->eos;
		d->pad = pad ? i : d->pad;
		d->unknown = unknown ? i : d->unknown;
		if ((language || end || pad || unknown) &&
		    !tokenizer_add_token(s, d, i, language ? TFMC_TOK_A_HIDDEN : TFMC_TOK_A_SPECIAL, false))
			return TFMC_NO_MEMORY;
	}
	d->flags |= TFMC_TOK_H_CODES;
	if (d->unknown != TFMC_TOK_NONE && d->eos != TFMC_TOK_NONE)
		return TFMC_OK;
	return tokenizer_reject_file(s, TOKENIZER_WRONG, NULL, "the vocabulary has no %s",
	                             d->eos == TFMC_TOK_NONE ? "</s>" : "<unk>");
}

enum tfmc_status tokenizer_from_marian(const struct tokenizer_source *s, const unsigned char *spm_bytes,
                                       size_t n_spm, const char *vocab, size_t n_vocab,
                                       struct tokenizer_packed *out)
{
	struct tokenizer_desc *pieces, *d;
	struct tokenizer_spm spm;
	TFMC_TRY(tokenizer_spm_read(s, spm_bytes, n_spm, &pieces, &spm));
	TFMC_TRY(tokenizer_read_ids(s, vocab, n_vocab, &d));
	size_t n = d->n_tokens;
	struct tokenizer_index *ids = tokenizer_index_new(s->arena, d);
	TFMC_TRY(reserve_tokens(s, d, pieces->n_tokens));
	if (ids == NULL)
		return TFMC_NO_MEMORY;
	TFMC_TRY(add_specials(s, d, n));
	if (!add_pieces(s, d, pieces, ids))
		return TFMC_NO_MEMORY;
	d->charsmap = pieces->charsmap;
	const struct tokenizer_named_id end[] = {{"eos_token", d->eos}, {NULL, 0}};
	tokenizer_set_template(d, "$A eos_token", "$A $B eos_token", end);
	TFMC_TRY(tokenizer_spm_finish(s, d, &spm));
	if (spm.is_unigram)
		add_characters(d, n);
	return tokenizer_pack(s, d, out);
}
