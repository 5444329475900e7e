/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece: meaning of its types and settings, and tokenizer.model, a protobuf of which only the
 * relevant fields are read; unsupported fields that change results are rejected. Classes of hub directories number its
 * pieces in their own way and add tokens after them. Numbers of fields are those of sentencepiece_model.proto; a field
 * with another wire type is skipped.
 *
 * Marian: each side has a SentencePiece model that splits its text; vocab.json has the ids of the pieces.
 * Pieces that it lacks take part in the split and are encoded as the unknown token: they get ids after the
 * others.
 */
#include "frontend/tokenizer/spm.h"

#include <string.h>

#include "frontend/tokenizer/json.h"
#include "frontend/weights/protobuf.h"
#include "ir/support/strmap.h"
#include "ir/support/utf8.h"

/* ---- common to all sources ---- */

/* The array is allocated at the first call with capacity for all tokens, of which each is added once at most. */
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

/* Control pieces are added tokens that are matched in the raw text, user-defined ones in normalized text, as text; only
 * normal and user-defined pieces may result from encoding a word. */
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

/* As in SentencePiece, an unknown character costs 10 more than the worst piece. Decoding removes the space that
 * encoding prepends. BPE has merges by the scores of their results. */
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

/* Reads a SentencePiece message: piece (1), score (2), type (3; absent: normal). */
static bool read_piece(struct model *m, struct proto_range piece, size_t i)
{
	struct tokenizer_token *t = &m->desc->tokens[i];
	int64_t type = TOKENIZER_PIECE_NORMAL;
	struct proto_field f;
	bool ok = true;
	while (proto_next(&piece, &f, &ok)) {
		if (f.number == 1 && f.wire == WIRE_BYTES)
			t->piece = (struct tokenizer_string){(const char *)f.bytes.at,
			                                     (size_t)(f.bytes.end - f.bytes.at)};
		if (f.number == 2 && f.wire == WIRE_32) {
			uint32_t bits = (uint32_t)f.value;
			float score;
			memcpy(&score, &bits, sizeof(score));
			t->score = (double)score;
		}
		if (f.number == 3 && f.wire == WIRE_VARINT)
			type = (int64_t)f.value;
	}
	return ok && tokenizer_set_type(m->source, m->desc, i, type);
}

/* Reads TrainerSpec: model type (3) and treat_whitespace_as_suffix (24). */
static bool read_trainer(struct model *m, struct proto_range spec)
{
	struct proto_field f;
	bool ok = true;
	while (proto_next(&spec, &f, &ok)) {
		if (f.number == 3 && f.wire == WIRE_VARINT)
			m->type = f.value;
		if (f.number == 24 && f.wire == WIRE_VARINT)
			m->suffix = f.value != 0;
	}
	return ok;
}

/* Reads NormalizerSpec: character map (2), dummy prefix (3), removal of extra (4) and escape of white space (5). */
static bool read_normalizer(struct model *m, struct proto_range spec)
{
	struct proto_field f;
	bool ok = true;
	while (proto_next(&spec, &f, &ok)) {
		if (f.number == 2 && f.wire == WIRE_BYTES)
			m->desc->charsmap = (struct tokenizer_string){(const char *)f.bytes.at,
			                                              (size_t)(f.bytes.end - f.bytes.at)};
		if (f.number == 3 && f.wire == WIRE_VARINT)
			m->spm.prefix = f.value != 0;
		if (f.number == 4 && f.wire == WIRE_VARINT)
			m->spm.extra_blanks = f.value == 0;
		if (f.number == 5 && f.wire == WIRE_VARINT)
			m->escapes = f.value != 0;
	}
	return ok;
}

/* Reads a ModelProto: counts the pieces (1), whose array is then allocated, then reads pieces, TrainerSpec (2) and
 * NormalizerSpec (3). False: malformed, or after a diagnostic. */
static bool read_model(struct model *m, struct proto_range all)
{
	struct proto_range count = all;
	struct proto_field f;
	bool ok = true;
	size_t i = 0;
	while (proto_next(&count, &f, &ok))
		m->desc->n_tokens += f.number == 1 && f.wire == WIRE_BYTES;
	m->desc->tokens = ARENA_ARRAY(m->source->arena, struct tokenizer_token, m->desc->n_tokens + 1);
	if (!ok || m->desc->tokens == NULL || m->desc->n_tokens > TFMC_TOK_TOKENS_MAX)
		return false;
	while (proto_next(&all, &f, &ok)) {
		if (f.wire != WIRE_BYTES)
			continue;
		if (f.number == 1)
			ok = read_piece(m, f.bytes, i++);
		else if (f.number == 2)
			ok = read_trainer(m, f.bytes);
		else if (f.number == 3)
			ok = read_normalizer(m, f.bytes);
	}
	return ok;
}

/* Parses tokenizer.model: pieces with types, no operations yet. *spm: its settings, with the format's defaults for
 * absent fields. */
static enum tfmc_status tokenizer_spm_read(const struct tokenizer_source *s, const unsigned char *data,
                                           size_t len, struct tokenizer_desc **out, struct tokenizer_spm *spm)
{
	struct tokenizer_desc *d = *out = ARENA_NEW(s->arena, struct tokenizer_desc);
	struct model m = {s, d, {false, true, false, TOKENIZER_MARK}, 1, true, false};
	if (d == NULL)
		return TFMC_NO_MEMORY;
	tokenizer_desc_init(d);
	size_t errors = s->cx->n_errors;
	if (!read_model(&m, (struct proto_range){data, data + len})) {
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

/* ---- a class of a hub directory ---- */

#define N_FRONT  4 /* <s> <pad> </s> <unk> */
#define N_BEFORE 3 /* <unk> <s> </s>, replaced by them */
/* the tokens <extra_id_N> of T5 */
#define N_SENTINELS 100

/* Copies tokens and added tokens with capacity for `more`. In fairseq classes <s> <pad> </s> <unk> come in place of
   <unk> <s> </s>, so that all pieces after them move up by one. */
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

/* Makes token `id` a special token with this text, matched in the raw text. */
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

/* True: the files list ids, which then define the tokens after the pieces. */
static bool lists_ids(const struct tokenizer_config *c)
{
	for (size_t i = 0; i < c->n_tokens; i++)
		if (c->tokens[i].id >= 0)
			return true;
	return false;
}

/* Numbers the pieces as the class does and adds its tokens: languages and <mask>, or T5's sentinels, unless a file
 * lists tokens with ids, which tokenizer_add_configured then adds. */
static enum tfmc_status number_pieces(const struct tokenizer_source *s, struct tokenizer_desc *d)
{
	const struct tokenizer_class *class = s->config->class;
	bool fairseq = class->files == TOKENIZER_F_FAIRSEQ, listed = lists_ids(s->config);
	static const char *const front[N_FRONT] = {"<s>", "<pad>", "</s>", "<unk>"};
	size_t more = N_FRONT + N_SENTINELS;
	for (struct word w = {class->languages, 0}; list_word_next(&w);)
		more++;
	if (fairseq && (d->n_tokens < N_BEFORE || d->unknown != 0))
		return tokenizer_reject_file(s, TOKENIZER_UNSUPPORTED, NULL,
		                             "'%s' with a model that does not begin with <unk> <s> </s>",
		                             s->config->class_name);
	if (!renumber_pieces(s, d, fairseq, more))
		return TFMC_NO_MEMORY;
	for (uint32_t i = 0; fairseq && i < N_FRONT; i++)
		add_special_token(d, i, tokenizer_string(front[i]), false);
	d->unknown = fairseq ? N_FRONT - 1 : d->unknown;
	for (struct word w = {class->languages, 0}; !listed && list_word_next(&w);)
		add_special_token(d, (uint32_t)d->n_tokens++, (struct tokenizer_string){w.text, w.n},
		                  w.n == 6 && memcmp(w.text, "<mask>", w.n) == 0);
	for (int i = N_SENTINELS; !listed && class->files == TOKENIZER_F_SENTINELS && i-- > 0;)
		add_special_token(d, (uint32_t)d->n_tokens++,
		                  tokenizer_string(arena_printf(s->arena, "<extra_id_%d>", i)), true);
	return TFMC_OK;
}

/* Numbers the pieces as the class of the configuration does, adds its special tokens, and packs. Tokens of the
 * configuration are split off before SentencePiece normalizes the text, so they are matched in the raw text. */
static enum tfmc_status tokenizer_spm_of_class(const struct tokenizer_source *s, struct tokenizer_desc *d,
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
	for (size_t i = n_added; i < d->n_added; i++)
		d->added[i].in_normalized = false;
	/*
	 * Whether a mark is prepended to a text, and to the text after every added token, as SentencePiece does.
	 * Llama's class of transformers 5 does so before the first text only and not before a space, unlike its
	 * tokenizer.json and GGUF: all three give the same answer here.
	 */
	if (c->class->reads_prefix && c->prefix_space >= 0)
		local.prefix = c->prefix_space == 1;
	TFMC_TRY(tokenizer_spm_finish(s, d, &local));
	tokenizer_class_set_special_ids(&r);
	if (!tokenizer_class_set_template(&r))
		return TFMC_INVALID;
	if (c->class->template_kind == TOKENIZER_T_FLAGS && c->add_bos < 0 && c->add_eos < 0)
		d->flags |= TFMC_TOK_H_BARE;
	return tokenizer_pack(s, d, out);
}

/* BARE: the file alone does not say which special tokens surround a text; a class of a hub directory does. */
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

/* ---- Marian ---- */

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

/* Adds the pieces with their scores: to the token of the vocabulary that has the piece, else to a new one after it
 * (F_UNKNOWN). False: no memory. */
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

/* Makes single characters of the vocabulary that this side's model lacks matchable, with the score of an unknown
 * character: Marian looks up an unknown character in the vocabulary, by itself only (F_LONE), as unknown ones in a row
 * are one piece. n: tokens of vocab.json; gaps among its ids have no piece (is_written), added tokens have flags. Call
 * it after tokenizer_spm_finish(), which sets unknown_score by the matched tokens. */
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

/* n: tokens of vocab.json, before pieces that it lacks are appended. The template has an end token alone; the first
 * token of a translation is the model's matter. */
enum tfmc_status tokenizer_from_marian(const struct tokenizer_source *s, const unsigned char *spm_bytes,
                                       size_t n_spm, const char *vocab, size_t n_vocab,
                                       struct tokenizer_packed *out)
{
	struct tokenizer_desc *pieces, *d;
	struct tokenizer_spm spm;
	TFMC_TRY(tokenizer_spm_read(s, spm_bytes, n_spm, &pieces, &spm));
	TFMC_TRY(tokenizer_read_ids(s, vocab, n_vocab, &d));
	size_t n = d->n_tokens;
	/* before reserve_tokens(): the index has pieces that are matched, and then none is */
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
