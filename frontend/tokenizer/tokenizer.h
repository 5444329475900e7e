/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers of all formats, compiled to the packed form that libtfmctok maps (runtime/tokenizer/format.h).
 * Input is validated; unsupported components are rejected by name. The packed bytes are allocated in the
 * arena of the source and depend on the input only.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_TOKENIZER_H
#define TFMC_FRONTEND_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/support/diag.h"

struct gguf;             /* frontend/weights/gguf.h */
struct json_node;        /* frontend/syntax/json.h */
struct tokenizer_config; /* frontend/tokenizer/config.h */

struct tokenizer_string {
	const char *text; /* not zero-terminated */
	size_t n;
};

/* The source, for messages, and the arena of the result. */
struct tokenizer_source {
	struct arena *arena;
	struct diag_context *cx;
	const char *name;                      /* file name in messages */
	struct loc loc;                        /* location of the reference */
	bool may_lack;                         /* "not supported" is a warning: the caller goes on without
					          a tokenizer */
	const struct tokenizer_config *config; /* configuration files of a hub folder; NULL: none */
};

/* A packed tokenizer. */
struct tokenizer_packed {
	const unsigned char *data; /* 16-byte aligned */
	size_t bytes;
};

struct tokenizer_lists; /* frontend/tokenizer/json.h */
/* The tree of Hugging Face's tokenizer.json; lists: the vocabulary as a tokenizer class reads it from its own files,
 * instead of the members of the model (NULL: none). */
TFMC_MUST_USE enum tfmc_status tokenizer_from_tree(const struct tokenizer_source *s,
                                                   const struct json_node *root,
                                                   const struct tokenizer_lists *lists,
                                                   struct tokenizer_packed *out);
/* vocab.json and merges.txt: GPT-2's byte-level BPE. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_bpe(const struct tokenizer_source *s, const char *vocab,
                                                  size_t n_vocab, const char *merges, size_t n_merges,
                                                  struct tokenizer_packed *out);
/* vocab.txt: BERT's WordPiece. Text is lower-cased and stripped of accents unless a piece has capitals. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_wordpiece(const struct tokenizer_source *s, const char *text,
                                                        size_t len, struct tokenizer_packed *out);
/* Lines of id, score and hexadecimal bytes: BPE by scores, byte fallback as `<0xNN>`. */
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

/* ---- GGUF metadata (keys tokenizer.ggml.*) ---- */
/* True: the file has a tokenizer. */
bool gguf_has_tokenizer(const struct gguf *g);

/* Packs the tokenizer; the result does not refer to the bytes of the file. s->name: file name for messages.
 * TFMC_INVALID after a diagnostic: a key has the wrong type, or a list does not have one entry for each token. */
TFMC_MUST_USE enum tfmc_status gguf_tokenizer(const struct tokenizer_source *s, const struct gguf *g,
                                              struct tokenizer_packed *out);

#endif
