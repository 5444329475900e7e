/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer as its readers describe it, and the packing of that description.
 * Readers of a format fill a struct tokenizer_desc; tokenizer_pack checks it and
 * writes the form of runtime/tokenizer/format.h, the only header of the runtime
 * that the frontend sees.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_BUILD_H
#define TFMC_FRONTEND_TOKENIZER_BUILD_H

#include <stdarg.h>
#include <string.h>

#include "frontend/text/json.h"
#include "frontend/tokenizer/tokenizer.h"
#include "ir/support/buf.h"
#include "runtime/tokenizer/format.h"

/* U+2581, which SentencePiece writes for a space. */
#define TOKENIZER_MARK "\xe2\x96\x81"

struct tokenizer_token {
	struct tokenizer_string piece; /* as TFMC_TOK_PIECES wants it */
	struct tokenizer_string key;   /* what the model matches when it is not the piece; text NULL: it is */
	double score;
	uint32_t flags;  /* enum tfmc_tok_flag */
	bool is_written; /* has a piece; an id without one is decoded to nothing */
	bool is_matched; /* the model may produce it */
};

struct tokenizer_added {
	uint32_t id, flags; /* enum tfmc_tok_added_flag */
	bool in_normalized;
	struct tokenizer_string text; /* what is looked for; n = 0: the piece */
};

struct tokenizer_merge {
	uint32_t left, right, id, rank;
};

struct tokenizer_op {
	uint32_t kind, flags;
	struct tokenizer_string a, b;
};

struct tokenizer_ops {
	struct tokenizer_op items[TFMC_TOK_OPS_MAX];
	size_t n;
};

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
	size_t n_single, n_items; /* those of one text, then those of a pair */
	uint32_t unknown, bos, eos, pad, mask;
	uint32_t word_max;
	double unknown_score;
	struct tokenizer_string mark, prefix;
	struct tokenizer_string charsmap;
	bool has_single;
	uint32_t single[256];
};

static inline bool tokenizer_is(struct tokenizer_string s, const char *text)
{
	return s.n == strlen(text) && memcmp(s.text, text, s.n) == 0;
}
static inline struct tokenizer_string tokenizer_matched(const struct tokenizer_token *t)
{
	return t->key.text != NULL ? t->key : t->piece;
}
/* Gives a token other text; what the model matches stays. */
static inline void tokenizer_rename(struct tokenizer_token *t, struct tokenizer_string piece)
{
	if (t->is_matched && t->key.text == NULL)
		t->key = t->piece;
	t->piece = piece;
}

/* Everything absent: no ids, no operations. */
void tokenizer_desc_init(struct tokenizer_desc *d);
struct tokenizer_string tokenizer_string(const char *text);
/* false: there are too many. */
bool tokenizer_add_op(struct tokenizer_ops *ops, uint32_t kind, uint32_t flags, struct tokenizer_string a,
                      struct tokenizer_string b);

enum tokenizer_refusal {
	TOKENIZER_WRONG,      /* the file is damaged, or says what cannot be */
	TOKENIZER_UNSUPPORTED /* "not supported yet: ..": a warning where the caller goes on without text */
};
/* A refusal of the file: "'NAME': PATH: ...", path NULL: none. Gives TFMC_INVALID. */
enum tfmc_status tokenizer_refuse(const struct tokenizer_source *s, enum tokenizer_refusal why,
                                  const char *path, const char *fmt, ...) TFMC_PRINTF(4, 5);
enum tfmc_status tokenizer_vrefuse(const struct tokenizer_source *s, enum tokenizer_refusal why,
                                   const char *path, const char *fmt, va_list ap);

/* The token that a template names, NONE: it is left out. */
struct tokenizer_named_id {
	const char *name;
	uint32_t id;
};
/*
 * What is around one text and around two, written as TemplateProcessing does it: `cls_token $A sep_token`
 * and `cls_token $A sep_token $B:1 sep_token:1`. Names end in one that is NULL.
 */
void tokenizer_set_template(struct tokenizer_desc *d, const char *single, const char *pair,
                            const struct tokenizer_named_id *names);
#define TOKENIZER_TEMPLATE_BERT    "cls_token $A sep_token", "cls_token $A sep_token $B:1 sep_token:1"
#define TOKENIZER_TEMPLATE_ROBERTA "cls_token $A sep_token", "cls_token $A sep_token sep_token $B sep_token"
#define TOKENIZER_TEMPLATE_ENDS \
	"bos_token $A eos_token", "bos_token $A eos_token bos_token:1 $B:1 eos_token:1"

/* The bytes for which byte-level BPE writes these letters; text that has others stays as it is. */
struct tokenizer_string tokenizer_letters_to_bytes(struct arena *a, struct tokenizer_string letters);
/* -1, or the byte of `<0xNN>`. */
int tokenizer_byte_piece(struct tokenizer_string piece);
/* Makes a token of a byte of one that is called so; false: it is not. */
bool tokenizer_set_byte(struct arena *a, struct tokenizer_token *t);
/* Fills `single` with the tokens flagged as bytes, or, of byte-level models, with pieces of one byte. */
void tokenizer_find_single(struct tokenizer_desc *d);
/* Merges of BPE by scores: every way to cut a piece into two pieces; equal scores have equal ranks. */
TFMC_MUST_USE enum tfmc_status tokenizer_merges_by_score(const struct tokenizer_source *s,
                                                         struct tokenizer_desc *d);
struct tokenizer_index;
struct tokenizer_index *tokenizer_index_new(struct arena *a, const struct tokenizer_desc *d);
/* The id of a piece that the model may produce, or TFMC_TOK_NONE. */
uint32_t tokenizer_index_find(const struct tokenizer_index *x, const char *text, size_t n);
/* The next merge; there is room in d->merges. False: one of the three pieces is not in the index. */
bool tokenizer_add_merge(const struct tokenizer_index *x, struct tokenizer_desc *d,
                         struct tokenizer_string left, struct tokenizer_string right);
/* "left right"; false: there is no blank after the first character. */
bool tokenizer_cut_merge(struct tokenizer_string line, struct tokenizer_string *left,
                         struct tokenizer_string *right);

/* ---- the double array ---- */
struct tokenizer_key {
	struct tokenizer_string text;
	uint32_t value;
};
struct tokenizer_trie {
	struct tfmc_tok_node *nodes;
	size_t n, cap;
	uint32_t *next, *prev; /* free nodes, in order; 0 ends the list */
	struct arena *arena;
};
/* Keys are sorted and cleared of those that occur twice (the first value stays). */
TFMC_MUST_USE enum tfmc_status tokenizer_trie_build(struct arena *a, struct tokenizer_key *keys, size_t n,
                                                    struct tokenizer_trie *out);

TFMC_MUST_USE enum tfmc_status tokenizer_pack(const struct tokenizer_source *s, struct tokenizer_desc *d,
                                              struct tokenizer_packed *out);

#endif
