/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmctok: text to ids and back with a packed tokenizer, which the compiler makes from the files of a
 * model (`tfmc tokenize -o`, or embedded in the object). Depends on libc only; programs that work on ids do
 * not need it. An open tokenizer is immutable: any number of threads may use it.
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
	TFMC_TOKENIZER_E_FORMAT,     /* the bytes are not a packed tokenizer, or are damaged */
	TFMC_TOKENIZER_E_VERSION,    /* packed for another version of this library */
	TFMC_TOKENIZER_E_ALIGN,      /* memory is not aligned to 8 bytes */
	TFMC_TOKENIZER_E_MEMORY,     /* no memory */
	TFMC_TOKENIZER_E_FILE,       /* the file cannot be read */
	TFMC_TOKENIZER_E_ID,         /* no token has this id */
	TFMC_TOKENIZER_E_STOPPED,    /* a callback returned nonzero */
	TFMC_TOKENIZER_E_GROWTH,     /* normalizers write more than 32 bytes for each byte of the text and
				        64 KiB */
};
/* Message of a status. Never NULL. */
const char *tfmc_tokenizer_status_text(int status);

struct tfmc_tokenizer;
/*
 * Opens packed bytes in place: 8-byte aligned, owned by the caller, unchanged until close. Everything is
 * validated: damaged or hostile bytes are rejected and never read out of bounds.
 */
int tfmc_tokenizer_open(const void *data, uint64_t bytes, struct tfmc_tokenizer **out);
/* Opens the target tokenizer of bytes with two (Marian has one for each side), else the only one. */
int tfmc_tokenizer_open_target(const void *data, uint64_t bytes, struct tfmc_tokenizer **out);
/* Maps a file and opens its first tokenizer. */
int tfmc_tokenizer_open_file(const char *path, struct tfmc_tokenizer **out);
void tfmc_tokenizer_close(struct tfmc_tokenizer *t); /* NULL is allowed */

/* Size of the vocabulary: all ids are below it. */
int32_t tfmc_tokenizer_size(const struct tfmc_tokenizer *t);
/* Nonzero: the source file defines no special tokens; the caller prepends the model's start ids. */
int tfmc_tokenizer_is_bare(const struct tfmc_tokenizer *t);
/* Bytes of a token as in the vocabulary (byte-level models: the bytes it stands for), not zero-terminated;
 * NULL: no such id. */
const char *tfmc_tokenizer_piece(const struct tfmc_tokenizer *t, int32_t id, uint64_t *bytes);
/* Nonzero for control tokens such as <s>. */
int tfmc_tokenizer_is_special(const struct tfmc_tokenizer *t, int32_t id);
/* Id of a piece or of an added token, or -1. */
int32_t tfmc_tokenizer_find(const struct tfmc_tokenizer *t, const char *piece, uint64_t bytes);

/* ---- text to ids ---- */

#define TFMC_TOKENIZE_SPECIAL 1u /* add the special tokens around a text, such as [CLS] .. [SEP] */
#define TFMC_TOKENIZE_PLAIN   2u /* control tokens in the text are ordinary text: for untrusted input */
/*
 * Encodes text[0..bytes) to ids[0..cap); *n: number of ids, also when cap is smaller (cap 0: only counts).
 * Any bytes are text: invalid UTF-8 is kept by byte-level models and by models with byte fallback, and is
 * unknown to others. The time is linear in the text for any input, except for merging within words of more
 * than 32 characters, which is n log n. Normalizers and splitters may write 32 bytes for each byte of the
 * text, and 64 KiB.
 */
int tfmc_tokenizer_encode(const struct tfmc_tokenizer *t, const char *text, uint64_t bytes, unsigned flags,
                          int32_t *ids, uint64_t cap, uint64_t *n);
/* Encodes two texts with the template for pairs; types[cap], if not NULL, receives the segment id of each
 * token. */
int tfmc_tokenizer_encode_pair(const struct tfmc_tokenizer *t, const char *a, uint64_t n_a, const char *b,
                               uint64_t n_b, int32_t *ids, int32_t *types, uint64_t cap, uint64_t *n);
/* Normalized text (lower case, normalization forms, replacements), not yet split. *n: bytes, also when cap
 * is smaller. */
int tfmc_tokenizer_normalize(const struct tfmc_tokenizer *t, const char *text, uint64_t bytes, char *out,
                             uint64_t cap, uint64_t *n);

/* ---- ids to text ---- */

#define TFMC_DETOKENIZE_KEEP  1u /* write control tokens; default: omit them */
#define TFMC_DETOKENIZE_AFTER 2u /* other text precedes: a space at the beginning stays */
/* Decodes ids to bytes, which need not be valid UTF-8; not zero-terminated. *n: bytes, also when cap is
 * smaller. */
int tfmc_tokenizer_decode(const struct tfmc_tokenizer *t, const int32_t *ids, uint64_t n_ids, unsigned flags,
                          char *out, uint64_t cap, uint64_t *n);

/*
 * Streaming decoder. on_text always gets whole characters: bytes that may begin a longer one are withheld,
 * bytes that cannot are replaced by U+FFFD. Allocates nothing.
 */
struct tfmc_token_stream {
	const struct tfmc_tokenizer *tokenizer;
	unsigned flags;
	int is_begun, has_blank, has_failed;
	unsigned n_held;
	char held[4];
	/* Called with new text, bytes > 0; nonzero stops the stream. */
	int (*on_text)(void *user, const char *text, uint64_t bytes);
	void *user;
	unsigned n_text;
	char text[256];
};
void tfmc_token_stream_begin(struct tfmc_token_stream *s, const struct tfmc_tokenizer *t, unsigned flags,
                             int (*on_text)(void *user, const char *text, uint64_t bytes), void *user);
/* Adds one id. TFMC_TOKENIZER_E_ID: no such token; E_STOPPED: on_text returned nonzero. */
int tfmc_token_stream_add(struct tfmc_token_stream *s, int32_t id);
/* Ends the stream: an unfinished character becomes U+FFFD. */
int tfmc_token_stream_end(struct tfmc_token_stream *s);

#ifdef __cplusplus
}
#endif

#endif
