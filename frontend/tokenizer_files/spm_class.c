/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of SentencePiece in a hub folder: classes number its pieces in their own way and have tokens after
 * them.
 */
#include <string.h>

#include "frontend/tokenizer_files/class.h"
#include "ir/support/strmap.h"

#define N_FRONT     4 /* <s> <pad> </s> <unk> */
#define N_BEFORE    3 /* <unk> <s> </s>, which they replace */
#define N_SENTINELS 100

/* Tokens, and added ones, with room for more; ids from 3 on are one more when the class has four before. */
static bool renumber(const struct tokenizer_source *s, struct tokenizer_desc *d, bool fairseq, size_t more)
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

static void put_added(struct tokenizer_desc *d, uint32_t id, struct tokenizer_string text, bool lstrip)
{
	struct tokenizer_token *t = &d->tokens[id];
	t->piece = text;
	t->is_written = true;
	t->flags |= TFMC_TOK_F_ADDED | TFMC_TOK_F_SPECIAL;
	d->added[d->n_added++] = (struct tokenizer_added){
	        id, TFMC_TOK_A_SPECIAL | (lstrip ? TFMC_TOK_A_LSTRIP : 0u), false, text};
}

static void put_front(struct tokenizer_desc *d)
{
	static const char *const front[N_FRONT] = {"<s>", "<pad>", "</s>", "<unk>"};
	for (uint32_t i = 0; i < N_FRONT; i++)
		put_added(d, i, tokenizer_string(front[i]), false);
	d->unknown = N_FRONT - 1;
}

/* Words of a list after all other tokens. */
static void put_words(struct tokenizer_desc *d, const char *words)
{
	struct word w = {words, 0};
	while (list_word_next(&w))
		put_added(d, (uint32_t)d->n_tokens++, (struct tokenizer_string){w.text, w.n},
		          w.n == 6 && memcmp(w.text, "<mask>", w.n) == 0);
}

/* They are counted down. */
static void put_sentinels(const struct tokenizer_source *s, struct tokenizer_desc *d)
{
	for (int i = N_SENTINELS; i-- > 0;)
		put_added(d, (uint32_t)d->n_tokens++,
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

/* Whether the files give ids: then what is after the pieces is theirs. */
static bool gives_ids(const struct tokenizer_config *c)
{
	for (size_t i = 0; i < c->n_tokens; i++)
		if (c->tokens[i].id >= 0)
			return true;
	return false;
}

static enum tfmc_status number_pieces(const struct tokenizer_source *s, struct tokenizer_desc *d)
{
	const struct tokenizer_class *class = s->config->class;
	bool fairseq = class->files == TOKENIZER_F_FAIRSEQ, listed = gives_ids(s->config);
	size_t more = N_FRONT + N_SENTINELS + count_words(class->languages);
	if (fairseq && (d->n_tokens < N_BEFORE || d->unknown != 0))
		return tokenizer_refuse(s, TOKENIZER_UNSUPPORTED, NULL,
		                        "'%s' with a model that does not begin with <unk> <s> </s>",
		                        s->config->class_name);
	if (!renumber(s, d, fairseq, more))
		return TFMC_NO_MEMORY;
	if (fairseq)
		put_front(d);
	if (!listed)
		put_words(d, class->languages);
	if (!listed && class->files == TOKENIZER_F_SENTINELS)
		put_sentinels(s, d);
	return TFMC_OK;
}

/* Added tokens are looked for in the text as it is. */
static void in_text(struct tokenizer_desc *d, size_t from)
{
	for (size_t i = from; i < d->n_added; i++)
		d->added[i].in_normalized = false;
}

/*
 * The mark before a text and after every added token, as SentencePiece writes it. Llama's class of transformers 5 has it before
 * the first text alone and not before a blank, which neither its tokenizer.json nor a GGUF file does: one answer for all three.
 */
static bool prefix_of(const struct tokenizer_config *c, bool of_model)
{
	return c->class->reads_prefix && c->prefix_space >= 0 ? c->prefix_space == 1 : of_model;
}

enum tfmc_status tokenizer_spm_of_class(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                        const struct tokenizer_spm *spm, struct tokenizer_packed *out)
{
	const struct tokenizer_config *c = s->config;
	static const struct tokenizer_lists none = {0};
	struct tokenizer_reader r = {.source = s, .desc = d, .config = c, .lists = &none};
	struct tokenizer_spm own = *spm;
	if (c->class == NULL || c->class->files < TOKENIZER_F_PIECES)
		return tokenizer_refuse(s, TOKENIZER_UNSUPPORTED, NULL,
		                        "the class '%s' without a tokenizer.json", c->class_name);
	TFMC_TRY(number_pieces(s, d));
	size_t n_added = d->n_added;
	if (!tokenizer_add_configured(&r))
		return r.no_memory || arena_failed(s->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	in_text(d, n_added);
	own.prefix = prefix_of(c, spm->prefix);
	TFMC_TRY(tokenizer_spm_finish(s, d, &own));
	tokenizer_class_roles(&r);
	if (!tokenizer_class_around(&r))
		return TFMC_INVALID;
	if (c->class->around == TOKENIZER_T_FLAGS && c->add_bos < 0 && c->add_eos < 0)
		d->flags |= TFMC_TOK_H_BARE;
	return tokenizer_pack(s, d, out);
}
