/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers of all formats into the packed form that the runtime library
 * tfmctok maps (runtime/tokenizer/format.h). Everything is read and checked
 * here; components that are not supported are refused by name. The packed
 * bytes lie in the arena of the source and depend on the input alone.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_TOKENIZER_H
#define TFMC_FRONTEND_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/diag/diag.h"

struct json_node;        /* frontend/text/json.h */
struct tokenizer_config; /* frontend/tokenizer_files/config.h */

struct tokenizer_string {
	const char *text; /* not zero-terminated */
	size_t n;
};

/* What is read, for messages, and where the result goes. */
struct tokenizer_source {
	struct arena *arena;
	struct diag_context *cx;
	const char *name;                      /* file name as shown */
	struct loc loc;                        /* who asked for it */
	bool may_lack;                         /* refusals are warnings: the caller goes on without text */
	const struct tokenizer_config *config; /* of a hub folder; NULL: none */
};

struct tokenizer_packed {
	const unsigned char *data; /* 16-byte aligned */
	size_t bytes;
};

/* tokenizer.json of Hugging Face. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_json(const struct tokenizer_source *s, const char *text,
                                                   size_t len, struct tokenizer_packed *out);
struct tokenizer_lists; /* frontend/tokenizer_files/json.h */
/* The same of its tree, of which lists are a part (NULL: none). */
TFMC_MUST_USE enum tfmc_status tokenizer_from_tree(const struct tokenizer_source *s,
                                                   const struct json_node *root,
                                                   const struct tokenizer_lists *lists,
                                                   struct tokenizer_packed *out);
/* vocab.json and merges.txt: byte-level BPE as GPT-2 has it. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_bpe(const struct tokenizer_source *s, const char *vocab,
                                                  size_t n_vocab, const char *merges, size_t n_merges,
                                                  struct tokenizer_packed *out);
/* vocab.txt: WordPiece as BERT has it. Text becomes lower case without accents unless a piece has capitals.
 */
TFMC_MUST_USE enum tfmc_status tokenizer_from_wordpiece(const struct tokenizer_source *s, const char *text,
                                                        size_t len, struct tokenizer_packed *out);
/* Lines of id, score and bytes in hexadecimal: BPE by scores, bytes as `<0xNN>`. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_scored(const struct tokenizer_source *s, const char *text,
                                                     size_t len, struct tokenizer_packed *out);
/* The tokenizer file of llama2.c. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_llama2c(const struct tokenizer_source *s,
                                                      const unsigned char *data, size_t len,
                                                      struct tokenizer_packed *out);
/* tokenizer.model of SentencePiece: BPE and Unigram. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_spm(const struct tokenizer_source *s, const unsigned char *data,
                                                  size_t len, struct tokenizer_packed *out);

/* Marian: pieces and scores of one side's SentencePiece model, ids of vocab.json. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_marian(const struct tokenizer_source *s,
                                                     const unsigned char *spm, size_t n_spm,
                                                     const char *vocab, size_t n_vocab,
                                                     struct tokenizer_packed *out);

#endif
