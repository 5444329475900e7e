/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description of a tokenizer, filled by the readers of all formats, and its packing: tokenizer_pack checks a
 * struct tokenizer_desc and writes the format of runtime/tokenizer/format.h, the only runtime header that the
 * frontend sees.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_BUILD_H
#define TFMC_FRONTEND_TOKENIZER_BUILD_H

#include <stdarg.h>
#include <string.h>

#include "frontend/syntax/json.h"
#include "frontend/tokenizer/tokenizer.h"
#include "ir/support/buf.h"
#include "runtime/tokenizer/format.h"

/* U+2581, the word mark: SentencePiece's replacement of a space. */
#define TOKENIZER_MARK "\xe2\x96\x81"

/* A token of the vocabulary; its index is its id. */
struct tokenizer_token {
	struct tokenizer_string piece; /* bytes for TFMC_TOK_PIECES */
	struct tokenizer_string key;   /* string that the model matches; text NULL: the piece */
	double score;
	uint32_t flags;  /* enum tfmc_tok_flag */
	bool is_written; /* has a piece; an id without one decodes to nothing */
	bool is_matched; /* the model may produce it */
};

/* An added token, matched before the model runs. */
struct tokenizer_added {
	uint32_t id, flags; /* enum tfmc_tok_added_flag */
	bool in_normalized;
	struct tokenizer_string text; /* string to match; n = 0: the piece */
};

/* A BPE merge. */
struct tokenizer_merge {
	uint32_t left, right, id, rank;
};

/* A normalizer or splitter operation, see format.h. */
struct tokenizer_op {
	uint32_t kind, flags;
	struct tokenizer_string a, b;
};

struct tokenizer_ops {
	struct tokenizer_op items[TFMC_TOK_OPS_MAX];
	size_t n;
};

/* The description of a tokenizer; ids are NONE where absent. */
struct tokenizer_desc {
	enum tfmc_tok_model model;
	uint32_t flags; /* enum tfmc_tok_header_flag */
	struct tokenizer_token *tokens;
	size_t n_tokens;
	struct tokenizer_merge *merges;
	size_t n_merges;
	struct tokenizer_added *added;
	size_t n_added;
	struct tokenizer_ops normalize, split; /* enum tfmc_tok_normalize, enum tfmc_tok_split */
	struct tfmc_tok_item items[TFMC_TOK_ITEMS_MAX];
	size_t n_single, n_items; /* items for one text, then those for a pair */
	uint32_t unknown, bos, eos, pad, mask;
	uint32_t word_max;
	double unknown_score;
	struct tokenizer_string mark, prefix;
	struct tokenizer_string charsmap;
	bool has_single;
	uint32_t single[256];
};

static inline bool tokenizer_string_equals(struct tokenizer_string s, const char *text)
{
	return s.n == strlen(text) && memcmp(s.text, text, s.n) == 0;
}
static inline struct tokenizer_string tokenizer_match_key(const struct tokenizer_token *t)
{
	return t->key.text != NULL ? t->key : t->piece;
}
/* Changes the piece of a token; the model still matches the old one. */
static inline void tokenizer_set_piece(struct tokenizer_token *t, struct tokenizer_string piece)
{
	if (t->is_matched && t->key.text == NULL)
		t->key = t->piece;
	t->piece = piece;
}

/* Initializes to no ids and no operations. */
void tokenizer_desc_init(struct tokenizer_desc *d);
/* A string with the length of a zero-terminated one; NULL: empty. */
struct tokenizer_string tokenizer_string(const char *text);
/* Appends an operation; false: too many. */
bool tokenizer_add_op(struct tokenizer_ops *ops, uint32_t kind, uint32_t flags, struct tokenizer_string a,
                      struct tokenizer_string b);

enum tokenizer_rejection {
	TOKENIZER_WRONG,      /* the file is damaged or contradictory */
	TOKENIZER_UNSUPPORTED /* "not supported yet: .."; a warning if the caller goes on without a
			         tokenizer */
};
/* Reports "'NAME': PATH: ..." (path NULL: none). Returns TFMC_INVALID. */
enum tfmc_status tokenizer_reject_file(const struct tokenizer_source *s, enum tokenizer_rejection why,
                                       const char *path, const char *fmt, ...) TFMC_PRINTF(4, 5);
enum tfmc_status tokenizer_vreject_file(const struct tokenizer_source *s, enum tokenizer_rejection why,
                                        const char *path, const char *fmt, va_list ap);

/* Id of a name in a template; NONE: the item is omitted. */
struct tokenizer_named_id {
	const char *name;
	uint32_t id;
};
/*
 * Sets the templates for one text and for a pair, in the syntax of TemplateProcessing: `cls_token $A
 * sep_token` and `cls_token $A sep_token $B:1 sep_token:1`. names ends with a NULL name.
 */
void tokenizer_set_template(struct tokenizer_desc *d, const char *single, const char *pair,
                            const struct tokenizer_named_id *names);
#define TOKENIZER_TEMPLATE_BERT    "cls_token $A sep_token", "cls_token $A sep_token $B:1 sep_token:1"
#define TOKENIZER_TEMPLATE_ROBERTA "cls_token $A sep_token", "cls_token $A sep_token sep_token $B sep_token"
#define TOKENIZER_TEMPLATE_ENDS \
	"bos_token $A eos_token", "bos_token $A eos_token bos_token:1 $B:1 eos_token:1"

/* Decodes the letters of byte-level BPE (GPT-2) to bytes; a string with other characters is returned
 * unchanged. */
struct tokenizer_string tokenizer_letters_to_bytes(struct arena *a, struct tokenizer_string letters);
/* The byte of a piece `<0xNN>`, or -1. */
int tokenizer_byte_piece(struct tokenizer_string piece);
/* Makes a token named `<0xNN>` a byte token; false: another name. */
bool tokenizer_set_byte_token(struct arena *a, struct tokenizer_token *t);
/* Fills `single` with the byte tokens, or, for byte-level models, with the pieces of one byte. */
void tokenizer_find_byte_tokens(struct tokenizer_desc *d);
/* BPE merges from scores (SentencePiece): every split of a piece into two pieces; equal scores have equal
 * ranks. */
TFMC_MUST_USE enum tfmc_status tokenizer_merges_by_score(const struct tokenizer_source *s,
                                                         struct tokenizer_desc *d);
struct tokenizer_index;
/* Hash index of the pieces that the model may produce; NULL: no memory. */
struct tokenizer_index *tokenizer_index_new(struct arena *a, const struct tokenizer_desc *d);
/* Id of a piece that the model may produce, or TFMC_TOK_NONE. */
uint32_t tokenizer_index_find(const struct tokenizer_index *x, const char *text, size_t n);
/* Appends a merge to d->merges, which has capacity. False: one of the three pieces is not in the index. */
bool tokenizer_add_merge(const struct tokenizer_index *x, struct tokenizer_desc *d,
                         struct tokenizer_string left, struct tokenizer_string right);
/* Splits "left right"; false: no space after the first character. */
bool tokenizer_split_merge(struct tokenizer_string line, struct tokenizer_string *left,
                           struct tokenizer_string *right);

/* Validates and packs a description. */
TFMC_MUST_USE enum tfmc_status tokenizer_pack(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                              struct tokenizer_packed *out);

#endif
