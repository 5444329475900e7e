/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmctok: text to ids and back with a packed tokenizer, which the compiler
 * makes of the files of a model (`tfmc tokenize -o`, or embedded in the object).
 * Depends on libc alone; programs that work on ids need nothing of it. An open
 * tokenizer never changes: any number of threads may use it.
 */
#ifndef TFMC_RUNTIME_TOKENIZER_TFMC_TOKENIZER_H
#define TFMC_RUNTIME_TOKENIZER_TFMC_TOKENIZER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tfmc_tokenizer_status {
	TFMC_TOKENIZER_OK = 0,
	TFMC_TOKENIZER_E_NULL = 200, /* a required pointer is null */
	TFMC_TOKENIZER_E_FORMAT,     /* the bytes are no packed tokenizer, or are damaged */
	TFMC_TOKENIZER_E_VERSION,    /* packed for another version of this library */
	TFMC_TOKENIZER_E_ALIGN,      /* memory is not aligned to 8 bytes */
	TFMC_TOKENIZER_E_MEMORY,     /* no memory */
	TFMC_TOKENIZER_E_FILE,       /* the file cannot be read */
	TFMC_TOKENIZER_E_ID,         /* an id is not that of a token */
	TFMC_TOKENIZER_E_STOPPED,    /* a callback wanted no more */
	TFMC_TOKENIZER_E_GROWTH,     /* normalizers make the text more than 32 times as long, and 64 KiB */
};
const char *tfmc_tokenizer_status_text(int status);

struct tfmc_tokenizer;
/*
 * Opens packed bytes where they lie: 8-byte aligned, the caller's, unchanged until close. Everything is
 * checked, so that damaged or hostile bytes are refused and never read beyond.
 */
int tfmc_tokenizer_open(const void *data, uint64_t bytes, struct tfmc_tokenizer **out);
/* Of bytes with two tokenizers, as Marian has one for each side, that of the target; else the only one. */
int tfmc_tokenizer_open_target(const void *data, uint64_t bytes, struct tfmc_tokenizer **out);
/* The first one of a file, which is mapped. */
int tfmc_tokenizer_open_file(const char *path, struct tfmc_tokenizer **out);
void tfmc_tokenizer_close(struct tfmc_tokenizer *t); /* NULL is allowed */

/* Ids are below this number. */
int32_t tfmc_tokenizer_size(const struct tfmc_tokenizer *t);
/* Nonzero: its source says nothing of special tokens; a model's start ids go before the ids of a text.
 */
int tfmc_tokenizer_is_bare(const struct tfmc_tokenizer *t);
/* Bytes of a token as the vocabulary has them (of byte-level models the bytes it stands for), not
 * zero-terminated; NULL: no such id. */
const char *tfmc_tokenizer_piece(const struct tfmc_tokenizer *t, int32_t id, uint64_t *bytes);
/* Nonzero for control tokens such as <s>. */
int tfmc_tokenizer_is_special(const struct tfmc_tokenizer *t, int32_t id);
/* The id of a piece or of an added token, -1: there is none. */
int32_t tfmc_tokenizer_find(const struct tfmc_tokenizer *t, const char *piece, uint64_t bytes);

/* ---- text to ids ---- */

#define TFMC_TOKENIZE_SPECIAL 1u /* the tokens that are around a text, such as [CLS] .. [SEP] */
#define TFMC_TOKENIZE_PLAIN   2u /* control tokens that are in the text are text: for text of others */
/*
 * Ids of text[0..bytes) go to ids[0..cap); *n: how many there are, also when cap is smaller (call it with
 * cap 0 to ask). Any bytes are text: what is no UTF-8 is kept by byte-level models and by models with tokens
 * for bytes, and is unknown to others. The time is linear in the text, whatever is in it, but for merging
 * within words of more than 32 characters, which is n log n. Normalizers and splitters may write 32 bytes for
 * each byte of the text, and 64 KiB.
 */
int tfmc_tokenizer_encode(const struct tfmc_tokenizer *t, const char *text, uint64_t bytes, unsigned flags,
                          int32_t *ids, uint64_t cap, uint64_t *n);
/* Two texts with the template of pairs; types[cap], when it is not NULL, receives the segment of each id. */
int tfmc_tokenizer_encode_pair(const struct tfmc_tokenizer *t, const char *a, uint64_t n_a, const char *b,
                               uint64_t n_b, int32_t *ids, int32_t *types, uint64_t cap, uint64_t *n);
/* The text as the model reads it: normalized (lower case, forms, replacements), not yet split. *n: bytes,
 * also when cap is smaller. */
int tfmc_tokenizer_normalize(const struct tfmc_tokenizer *t, const char *text, uint64_t bytes, char *out,
                             uint64_t cap, uint64_t *n);

/* ---- ids to text ---- */

#define TFMC_DETOKENIZE_KEEP  1u /* control tokens are written; else they are left out */
#define TFMC_DETOKENIZE_AFTER 2u /* text is before: a blank at the beginning stays */
/* All bytes of the ids, also such as are no UTF-8; not zero-terminated. *n: bytes, also when cap is smaller.
 */
int tfmc_tokenizer_decode(const struct tfmc_tokenizer *t, const int32_t *ids, uint64_t n_ids, unsigned flags,
                          char *out, uint64_t cap, uint64_t *n);

/*
 * Ids one after the other, as a model makes them. What is given out is always whole characters: bytes that
 * may begin a longer one are held back, those that cannot are replaced by U+FFFD. All memory is here.
 */
struct tfmc_token_stream {
	const struct tfmc_tokenizer *tokenizer;
	unsigned flags;
	int is_begun, has_blank, has_failed;
	unsigned n_held;
	char held[4];
	/* Called with new text, bytes > 0; nonzero ends it. */
	int (*on_text)(void *user, const char *text, uint64_t bytes);
	void *user;
	unsigned n_text;
	char text[256];
};
void tfmc_token_stream_begin(struct tfmc_token_stream *s, const struct tfmc_tokenizer *t, unsigned flags,
                             int (*on_text)(void *user, const char *text, uint64_t bytes), void *user);
/* TFMC_TOKENIZER_E_ID, or E_STOPPED when on_text wanted no more. */
int tfmc_token_stream_add(struct tfmc_token_stream *s, int32_t id);
/* Nothing follows: an unfinished character becomes U+FFFD. */
int tfmc_token_stream_end(struct tfmc_token_stream *s);

#ifdef __cplusplus
}
#endif

#endif
