/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece vocabularies, wherever they are written: tokenizer.model, GGUF
 * metadata, llama2.c. A reader fills pieces with their types; the rest follows.
 */
#ifndef TFMC_FRONTEND_SENTENCEPIECE_SPM_H
#define TFMC_FRONTEND_SENTENCEPIECE_SPM_H

#include "frontend/tokenizer/build.h"

/* Numbers of the format. */
enum tokenizer_piece_type {
	TOKENIZER_PIECE_NORMAL = 1,
	TOKENIZER_PIECE_UNKNOWN = 2,
	TOKENIZER_PIECE_CONTROL = 3,
	TOKENIZER_PIECE_USER = 4,
	TOKENIZER_PIECE_UNUSED = 5,
	TOKENIZER_PIECE_BYTE = 6,
};

struct tokenizer_spm {
	bool is_unigram;
	bool prefix;       /* a mark before the text */
	bool extra_blanks; /* blanks at the ends and runs of blanks stay */
	const char *mark;  /* what pieces have for a space */
};

/* tokenizer.model as it is: pieces with types, no operations yet. */
TFMC_MUST_USE enum tfmc_status tokenizer_spm_read(const struct tokenizer_source *s, const unsigned char *data,
                                                  size_t len, struct tokenizer_desc **out,
                                                  struct tokenizer_spm *spm);
/* The same pieces as the class of the source's configuration numbers them, its special tokens, packed. */
TFMC_MUST_USE enum tfmc_status tokenizer_spm_of_class(const struct tokenizer_source *s,
                                                      struct tokenizer_desc *d,
                                                      const struct tokenizer_spm *spm,
                                                      struct tokenizer_packed *out);
/* {"piece": id, ..} as tokens that are written and matched. */
TFMC_MUST_USE enum tfmc_status tokenizer_read_ids(const struct tokenizer_source *s, const char *text,
                                                  size_t len, struct tokenizer_desc **out);

/* Type of piece i; d->tokens[i] has its text and score. false after a refusal. */
bool tokenizer_set_type(const struct tokenizer_source *s, struct tokenizer_desc *d, size_t i, int64_t type);
/* One more added token; false: no memory. */
bool tokenizer_add_token(const struct tokenizer_source *s, struct tokenizer_desc *d, uint32_t id,
                         uint32_t flags, bool in_normalized);
/* Model, merges, operations and decoding, when all types are set. */
TFMC_MUST_USE enum tfmc_status tokenizer_spm_finish(const struct tokenizer_source *s,
                                                    struct tokenizer_desc *d,
                                                    const struct tokenizer_spm *spm);
/* WordPiece as BERT has it, of a source without a configuration. */
struct tokenizer_bert {
	int lowercase, strip_accents; /* 0, 1; -1: as the words are written, as `lowercase` */
	const char *unknown;          /* its word */
	uint32_t bos, eos;            /* NONE: not known */
	uint32_t cls, sep;            /* around a text; NONE: [CLS] and [SEP], if the words have both */
	bool add_cls, add_between, add_sep;
};
#define TOKENIZER_BERT                                                                                   \
	{                                                                                                \
		-1, -1, "[UNK]", TFMC_TOK_NONE, TFMC_TOK_NONE, TFMC_TOK_NONE, TFMC_TOK_NONE, true, true, \
		        true                                                                             \
	}
/* `bert` counts where the source has no configuration. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_words(const struct tokenizer_source *s,
                                                    const char *const *words, size_t n,
                                                    const struct tokenizer_bert *bert,
                                                    struct tokenizer_packed *out);

#endif
