/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: the parts of the reader of tokenizer.json, each of which adds to the description. Diagnostics
 * name paths such as normalizer.normalizers[1].
 */
#ifndef TFMC_FRONTEND_TOKENIZER_JSON_H
#define TFMC_FRONTEND_TOKENIZER_JSON_H

#include "frontend/tokenizer/build.h"
#include "frontend/tokenizer/config.h"

/* Vocabulary {"piece": id, ..} and, for BPE, merges ["left right", ..], as a class reads them: the class
 * of the source's configuration, or without one a given class and further members of a tokenizer.json. */
struct tokenizer_lists {
	const struct json_node *vocab, *merges; /* merges NULL: WordPiece */
	const struct tokenizer_class *class;
	const char *normalizer; /* NULL: from the class */
	const char *unknown;    /* NULL: none */
	const char *more;       /* members, each preceded by a comma */
};

/* State of reading a tokenizer.json, or vocabulary lists. */
struct tokenizer_reader {
	const struct tokenizer_source *source;
	const struct tokenizer_config *config; /* NULL: no configuration files */
	struct tokenizer_desc *desc;
	bool byte_level; /* pieces are written in GPT-2 letters of bytes */
	bool in_letters; /* a splitter has converted the text to such letters */
	bool failed;     /* an error was reported, or no memory */
	bool no_memory;
	bool has_decoder;
	const struct tokenizer_lists
	        *lists; /* vocabulary lists instead of members of the model; NULL: none */
};

/* Reports the first error; sets failed. Returns false. */
bool tokenizer_reject(struct tokenizer_reader *r, enum tokenizer_rejection why, const char *path,
                      const char *fmt, ...) TFMC_PRINTF(4, 5);
/* Path of a member, for messages. */
const char *tokenizer_member_path(struct tokenizer_reader *r, const char *path, const char *key);

/* Member of an object; absent or null: the default; a wrong type is an error. */
const char *tokenizer_string_member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                                    const char *key, const char *fallback);
bool tokenizer_bool_member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                           const char *key, bool fallback);

/* Reader of a component by its type. Absent or null: nothing; a Sequence has a list of components under
 * its own key. */
typedef bool tokenizer_read_fn(struct tokenizer_reader *r, const struct json_node *n, const char *path);
/* A supported component type. */
struct tokenizer_component {
	const char *type;        /* NULL: end of the list */
	tokenizer_read_fn *read; /* NULL: no effect on ids */
};
/* True: the component has this type. */
bool tokenizer_is_type(const struct json_node *n, const char *type);
/* Reads a component by the table of parts; other types are rejected. */
bool tokenizer_read_component(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                              const struct tokenizer_component *parts, const char *sequence,
                              tokenizer_read_fn *each);

bool tokenizer_read_normalizer(struct tokenizer_reader *r, const struct json_node *n, const char *path);
bool tokenizer_read_splitter(struct tokenizer_reader *r, const struct json_node *n, const char *path);
/* Reads {"piece": id, ..} as tokens that are written and matched. */
bool tokenizer_read_vocab(struct tokenizer_reader *r, const struct json_node *vocab, const char *path);

/* Overrides and adds the tokens of the configuration files. */
bool tokenizer_add_configured(struct tokenizer_reader *r);
/* Id of an added token or a piece, or NONE. */
uint32_t tokenizer_added_id(const struct tokenizer_reader *r, const char *text);

/* ---- tokenizer classes of transformers, in class.c ---- */
/* Sets the template of the class, after tokenizer_add_configured. False after a diagnostic. */
bool tokenizer_class_set_template(struct tokenizer_reader *r);
/* The same for classes that override a template of the file: languages, and templates of special tokens. */
bool tokenizer_class_override_template(struct tokenizer_reader *r);
/* Whether a space is prepended to the text: 0 or 1 by the files or the class, -1: as tokenizer.json says. */
int tokenizer_class_prefix(const struct tokenizer_reader *r);
/* The same for text that ByteLevel splits; SentencePiece classes: -1. */
int tokenizer_class_byte_prefix(const struct tokenizer_reader *r);
/* True: the class overrides all flags of BertNormalizer. */
bool tokenizer_class_is_bert(const struct tokenizer_reader *r);
/* Sets the ids of bos, eos, pad and mask. */
void tokenizer_class_set_special_ids(struct tokenizer_reader *r);

/* Packs vocabulary lists as a class reads them. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_lists(const struct tokenizer_source *s,
                                                    const struct tokenizer_lists *lists,
                                                    struct tokenizer_packed *out);

#endif
