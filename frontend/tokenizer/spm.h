/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece vocabularies of all sources: tokenizer.model, GGUF metadata, llama2.c. A reader fills pieces
 * and types; tokenizer_spm_finish does the rest.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_SPM_H
#define TFMC_FRONTEND_TOKENIZER_SPM_H

#include "frontend/tokenizer/build.h"

/* Numbered as in the format. */
enum tokenizer_piece_type {
	TOKENIZER_PIECE_NORMAL = 1,
	TOKENIZER_PIECE_UNKNOWN = 2,
	TOKENIZER_PIECE_CONTROL = 3,
	TOKENIZER_PIECE_USER = 4,
	TOKENIZER_PIECE_UNUSED = 5,
	TOKENIZER_PIECE_BYTE = 6,
};

/* Settings of a SentencePiece model. */
struct tokenizer_spm {
	bool is_unigram;
	bool prefix;       /* prepends a mark to the text */
	bool extra_blanks; /* keeps leading, trailing and repeated spaces */
	const char *mark;  /* string of a space in pieces */
};

/* Parses {"piece": id, ..} into tokens that are written and matched. */
TFMC_MUST_USE enum tfmc_status tokenizer_read_ids(const struct tokenizer_source *s, const char *text,
                                                  size_t len, struct tokenizer_desc **out);

/* Sets the type of piece i, whose text and score are set. False after a diagnostic. */
bool tokenizer_set_type(const struct tokenizer_source *s, struct tokenizer_desc *d, size_t i, int64_t type);
/* Appends an added token; false: no memory. */
bool tokenizer_add_token(const struct tokenizer_source *s, struct tokenizer_desc *d, uint32_t id,
                         uint32_t flags, bool in_normalized);
/* Sets model, merges, operations and decoding, after all types are set. */
TFMC_MUST_USE enum tfmc_status tokenizer_spm_finish(const struct tokenizer_source *s,
                                                    struct tokenizer_desc *d,
                                                    const struct tokenizer_spm *spm);
/* BERT's WordPiece, for sources without a configuration. */
struct tokenizer_bert {
	int lowercase, strip_accents; /* 0, 1; -1: by the vocabulary, as `lowercase` */
	const char *unknown;          /* unknown token */
	uint32_t bos, eos;            /* NONE: not known */
	uint32_t cls, sep;            /* around a text; NONE: [CLS] and [SEP], if the vocabulary has both */
	bool add_cls, add_between, add_sep;
};
#define TOKENIZER_BERT                                                                                   \
	{                                                                                                \
		-1, -1, "[UNK]", TFMC_TOK_NONE, TFMC_TOK_NONE, TFMC_TOK_NONE, TFMC_TOK_NONE, true, true, \
		        true                                                                             \
	}
/* Packs a WordPiece vocabulary; `bert` is used where the source has no configuration. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_words(const struct tokenizer_source *s,
                                                    const char *const *words, size_t n,
                                                    const struct tokenizer_bert *bert,
                                                    struct tokenizer_packed *out);

#endif
