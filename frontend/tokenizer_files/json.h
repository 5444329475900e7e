/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the reader of tokenizer.json: its parts, each of which adds to the
 * description. Places of refusals are paths such as normalizer.normalizers[1].
 */
#ifndef TFMC_FRONTEND_TOKENIZER_FILES_JSON_H
#define TFMC_FRONTEND_TOKENIZER_FILES_JSON_H

#include "frontend/tokenizer/build.h"

struct tokenizer_class;
struct tokenizer_config;

/* A vocabulary {"piece": id, ..}, for BPE merges ["left right", ..], as a class reads them: that of the
 * source's configuration, or without one a given class and what else a tokenizer.json would say. */
struct tokenizer_lists {
	const struct json_node *vocab, *merges; /* merges NULL: WordPiece */
	const struct tokenizer_class *class;
	const char *normalizer; /* NULL: that of the class */
	const char *unknown;    /* NULL: none */
	const char *more;       /* members, each with a comma before */
};

struct tokenizer_reader {
	const struct tokenizer_source *source;
	const struct tokenizer_config *config; /* NULL: there are no files beside it */
	struct tokenizer_desc *desc;
	bool byte_level; /* the vocabulary is written in letters of bytes */
	bool in_letters; /* a splitter has turned the text into such letters */
	bool failed;     /* a refusal was reported, or memory ran out */
	bool no_memory;
	bool has_decoder;
	const struct tokenizer_lists
	        *lists; /* what a class reads, instead of members of the model; NULL: none */
};

/* The first refusal is reported; sets failed. Returns false. */
bool tokenizer_reject(struct tokenizer_reader *r, enum tokenizer_refusal why, const char *path,
                      const char *fmt, ...) TFMC_PRINTF(4, 5);
const char *tokenizer_path(struct tokenizer_reader *r, const char *path, const char *key);
const char *tokenizer_item(struct tokenizer_reader *r, const char *path, const char *key, size_t i);

/* Members of an object; a wrong type is refused. Absent or null: the default. */
const char *tokenizer_text(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                           const char *key, const char *fallback);
bool tokenizer_bool(struct tokenizer_reader *r, const struct json_node *o, const char *path, const char *key,
                    bool fallback);
int64_t tokenizer_int(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                      const char *key, int64_t fallback);
/* An id below n_tokens, or NONE after a refusal. */
uint32_t tokenizer_id(struct tokenizer_reader *r, const struct json_node *n, const char *path);

/* A component, by its type. Absent or null says nothing; a Sequence has others under a key of its own. */
typedef bool tokenizer_read_fn(struct tokenizer_reader *r, const struct json_node *n, const char *path);
struct tokenizer_part {
	const char *type;        /* NULL: the end of a list of them */
	tokenizer_read_fn *read; /* NULL: changes nothing */
};
bool tokenizer_is_type(const struct json_node *n, const char *type);
/* Other types than those of the parts are refused. */
bool tokenizer_read_part(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                         const struct tokenizer_part *parts, const char *sequence, tokenizer_read_fn *each);

bool tokenizer_read_normalizer(struct tokenizer_reader *r, const struct json_node *n, const char *path);
bool tokenizer_read_splitter(struct tokenizer_reader *r, const struct json_node *n, const char *path);
bool tokenizer_read_decoder(struct tokenizer_reader *r, const struct json_node *n, const char *path);
bool tokenizer_read_template(struct tokenizer_reader *r, const struct json_node *n, const char *path);
/* Vocabulary and merges; after the splitter, which says whether pieces are letters of bytes. */
bool tokenizer_read_model(struct tokenizer_reader *r, const struct json_node *n);
/* {"piece": id, ..} as tokens that are written and matched. */
bool tokenizer_read_vocab(struct tokenizer_reader *r, const struct json_node *vocab, const char *path);
/* Makes room for ids that are after the vocabulary; then marks added tokens. */
bool tokenizer_read_added(struct tokenizer_reader *r, const struct json_node *n);

/* Over them those of the files beside it. */
bool tokenizer_add_configured(struct tokenizer_reader *r);
/* The id of an added token or a piece, NONE without one. */
uint32_t tokenizer_added_id(const struct tokenizer_reader *r, const char *text);
/* base64; NULL after a refusal. */
struct tokenizer_string tokenizer_base64(struct tokenizer_reader *r, const char *path, const char *text);

/* A regular expression of a splitter as an operation; false: not one of those that are known. */
bool tokenizer_known_regex(const char *regex, struct tokenizer_op *out);

#endif
