/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece model of a hub folder: classes number its pieces in their own way and add tokens after them.
 */
#include <string.h>

#include "frontend/tokenizer/class.h"
#include "ir/support/strmap.h"

#define N_FRONT     4 /* <s> <pad> </s> <unk> */
#define N_BEFORE    3 /* <unk> <s> </s>, replaced by them */
#define N_SENTINELS 100

/* Copies tokens and added tokens with capacity for more; fairseq classes have four tokens in place of the
 * first three. */
static bool renumber_pieces(const struct tokenizer_source *s, struct tokenizer_desc *d, bool fairseq,
                            size_t more)
{
	size_t n = d->n_tokens, first = fairseq ? N_BEFORE : 0, to = fairseq ? N_FRONT : 0, n_added = 0;
	struct tokenizer_token *all = ARENA_ARRAY(s->arena, struct tokenizer_token, n + 1 + more);
	struct tokenizer_added *added = ARENA_ARRAY(s->arena, struct tokenizer_added, n + 1 + more);
	if (all == NULL || added == NULL)
		return false;
	for (size_t i = first; i < n; i++)
		all[i - first + to] = d->tokens[i];
	for (size_t i = 0; i < d->n_added; i++) {
		if (d->added[i].id < first)
			continue;
		added[n_added] = d->added[i];
		added[n_added++].id += (uint32_t)(to - first);
	}
	d->tokens = all;
	d->added = added;
	d->n_added = n_added;
	d->n_tokens = n - first + to;
	return true;
}

static void add_special_token(struct tokenizer_desc *d, uint32_t id, struct tokenizer_string text,
                              bool lstrip)
{
	struct tokenizer_token *t = &d->tokens[id];
	t->piece = text;
	t->is_written = true;
	t->flags |= TFMC_TOK_F_ADDED | TFMC_TOK_F_SPECIAL;
	d->added[d->n_added++] = (struct tokenizer_added){
	        id, TFMC_TOK_A_SPECIAL | (lstrip ? TFMC_TOK_A_LSTRIP : 0u), false, text};
}

static void add_fairseq_tokens(struct tokenizer_desc *d)
{
	static const char *const front[N_FRONT] = {"<s>", "<pad>", "</s>", "<unk>"};
	for (uint32_t i = 0; i < N_FRONT; i++)
		add_special_token(d, i, tokenizer_string(front[i]), false);
	d->unknown = N_FRONT - 1;
}

/* Appends the words of a list after all other tokens. */
static void append_words(struct tokenizer_desc *d, const char *words)
{
	struct word w = {words, 0};
	while (list_word_next(&w))
		add_special_token(d, (uint32_t)d->n_tokens++, (struct tokenizer_string){w.text, w.n},
		                  w.n == 6 && memcmp(w.text, "<mask>", w.n) == 0);
}

/* Appends <extra_id_99> .. <extra_id_0>. */
static void append_sentinels(const struct tokenizer_source *s, struct tokenizer_desc *d)
{
	for (int i = N_SENTINELS; i-- > 0;)
		add_special_token(d, (uint32_t)d->n_tokens++,
		                  tokenizer_string(arena_printf(s->arena, "<extra_id_%d>", i)), true);
}

static size_t count_words(const char *words)
{
	struct word w = {words, 0};
	size_t n = 0;
	while (list_word_next(&w))
		n++;
	return n;
}

/* True: the files list ids, which then define the tokens after the pieces. */
static bool lists_ids(const struct tokenizer_config *c)
{
	for (size_t i = 0; i < c->n_tokens; i++)
		if (c->tokens[i].id >= 0)
			return true;
	return false;
}

/* Numbers the pieces as the class does and adds its tokens. */
static enum tfmc_status number_pieces(const struct tokenizer_source *s, struct tokenizer_desc *d)
{
	const struct tokenizer_class *class = s->config->class;
	bool fairseq = class->files == TOKENIZER_F_FAIRSEQ, listed = lists_ids(s->config);
	size_t more = N_FRONT + N_SENTINELS + count_words(class->languages);
	if (fairseq && (d->n_tokens < N_BEFORE || d->unknown != 0))
		return tokenizer_reject_file(s, TOKENIZER_UNSUPPORTED, NULL,
		                             "'%s' with a model that does not begin with <unk> <s> </s>",
		                             s->config->class_name);
	if (!renumber_pieces(s, d, fairseq, more))
		return TFMC_NO_MEMORY;
	if (fairseq)
		add_fairseq_tokens(d);
	if (!listed)
		append_words(d, class->languages);
	if (!listed && class->files == TOKENIZER_F_SENTINELS)
		append_sentinels(s, d);
	return TFMC_OK;
}

/* Makes the added tokens from index `from` on match in the raw text. */
static void match_in_raw_text(struct tokenizer_desc *d, size_t from)
{
	for (size_t i = from; i < d->n_added; i++)
		d->added[i].in_normalized = false;
}

/*
 * Whether a mark is prepended to a text, and to the text after every added token, as SentencePiece does.
 * Llama's class of transformers 5 does so before the first text only and not before a space, unlike its
 * tokenizer.json and GGUF: all three give the same answer here.
 */
static bool adds_prefix(const struct tokenizer_config *c, bool of_model)
{
	return c->class->reads_prefix && c->prefix_space >= 0 ? c->prefix_space == 1 : of_model;
}

enum tfmc_status tokenizer_spm_of_class(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                        const struct tokenizer_spm *spm, struct tokenizer_packed *out)
{
	const struct tokenizer_config *c = s->config;
	static const struct tokenizer_lists none = {0};
	struct tokenizer_reader r = {.source = s, .desc = d, .config = c, .lists = &none};
	struct tokenizer_spm local = *spm;
	if (c->class == NULL || c->class->files < TOKENIZER_F_PIECES)
		return tokenizer_reject_file(s, TOKENIZER_UNSUPPORTED, NULL,
		                             "the class '%s' without a tokenizer.json", c->class_name);
	TFMC_TRY(number_pieces(s, d));
	size_t n_added = d->n_added;
	if (!tokenizer_add_configured(&r))
		return r.no_memory || arena_failed(s->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	match_in_raw_text(d, n_added);
	local.prefix = adds_prefix(c, spm->prefix);
	TFMC_TRY(tokenizer_spm_finish(s, d, &local));
	tokenizer_class_set_special_ids(&r);
	if (!tokenizer_class_set_template(&r))
		return TFMC_INVALID;
	if (c->class->template_kind == TOKENIZER_T_FLAGS && c->add_bos < 0 && c->add_eos < 0)
		d->flags |= TFMC_TOK_H_BARE;
	return tokenizer_pack(s, d, out);
}
