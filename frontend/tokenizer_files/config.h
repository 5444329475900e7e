/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies beside the vocabulary in a hub folder: tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json. Keys that change ids are read here; a key that is known to change them and cannot be
 * followed is refused; all others say nothing of ids (templates of chats, lengths, sides of padding,
 * decoding).
 */
#ifndef TFMC_FRONTEND_TOKENIZER_FILES_CONFIG_H
#define TFMC_FRONTEND_TOKENIZER_FILES_CONFIG_H

#include "frontend/text/json.h"
#include "frontend/tokenizer/tokenizer.h"

enum tokenizer_role {
	TOKENIZER_BOS,
	TOKENIZER_EOS,
	TOKENIZER_UNK,
	TOKENIZER_SEP,
	TOKENIZER_PAD,
	TOKENIZER_CLS,
	TOKENIZER_MASK,
	TOKENIZER_N_ROLES
};

/* What a class of the library does around the text. */
enum tokenizer_template {
	TOKENIZER_T_FLAGS,    /* bos and eos, as add_bos_token and add_eos_token say */
	TOKENIZER_T_BERT,     /* cls A sep, cls A sep B sep */
	TOKENIZER_T_ROBERTA,  /* cls A sep, cls A sep sep B sep */
	TOKENIZER_T_CLIP,     /* the same of bos and eos */
	TOKENIZER_T_EOS,      /* A eos, A eos B eos */
	TOKENIZER_T_LANGUAGE, /* src_lang A eos */
	TOKENIZER_T_BEHIND,   /* A eos src_lang */
	TOKENIZER_T_WHISPER   /* <|startoftranscript|> language task A eos */
};

/* Which files a class reads when there is no tokenizer.json. */
enum tokenizer_files {
	TOKENIZER_F_JSON,     /* tokenizer.json alone */
	TOKENIZER_F_BPE,      /* vocab.json, merges.txt */
	TOKENIZER_F_WORDS,    /* vocab.txt */
	TOKENIZER_F_PIECES,   /* a model of SentencePiece; its ids */
	TOKENIZER_F_FAIRSEQ,  /* the same; ids are one more after <s> <pad> </s> <unk> */
	TOKENIZER_F_SENTINELS /* the same; <extra_id_99> .. <extra_id_0> are after the pieces */
};

struct tokenizer_class {
	const char *names; /* separated by blanks, without Fast */
	enum tokenizer_files files;
	enum tokenizer_template around;
	const char *normalizer, *splitter, *model; /* members of a tokenizer.json; of files that are lists */
	const char *roles[TOKENIZER_N_ROLES];      /* "": none */
	bool prefix_space;                         /* unless the file says otherwise */
	bool reads_prefix;                         /* add_prefix_space counts, also against tokenizer.json */
	bool mask_strips;                          /* the mask takes blanks before it */
	const char *languages;                     /* tokens after the pieces, unless the file lists them */
};

struct tokenizer_named {
	const char *text;
	int64_t id;     /* -1: that of the vocabulary, or the next one */
	uint32_t flags; /* enum tfmc_tok_added_flag */
	bool normalized;
	bool is_whole;   /* flags are those of a file, not those of a mere name */
	bool is_listed;  /* in added_tokens_decoder, which is above tokenizer.json */
	bool is_implied; /* by the class: left out where the vocabulary lacks it */
};

/* Flags are -1 where the files do not have them. */
struct tokenizer_config {
	const char *name; /* of the file, for messages */
	const char *class_name;
	const struct tokenizer_class *class;  /* NULL: none that is known */
	const char *roles[TOKENIZER_N_ROLES]; /* NULL: none */
	int add_bos, add_eos, prefix_space, lowercase, keep_accents, strip_accents, chinese, legacy_language,
	        timestamps;
	const char *src_lang, *language, *task; /* NULL: none */
	struct tokenizer_named *tokens;
	size_t n_tokens;
};

struct tokenizer_config_file {
	const char *name;
	const struct json_node *root; /* NULL: there is no such file */
};
struct tokenizer_config_files {
	struct tokenizer_config_file config, special, added;
	const char *
	        class_name; /* where the files name none; TOKENIZER_AS_IT_IS: whatever they name; NULL: none */
};

/* Messages name the file that is wrong. */
TFMC_MUST_USE enum tfmc_status tokenizer_config_read(const struct tokenizer_source *s,
                                                     const struct tokenizer_config_files *files,
                                                     struct tokenizer_config *out);

/* NULL: none that is known. A name may end in Fast. */
const struct tokenizer_class *tokenizer_class_find(const char *name);
/* The class for a type of config.json; NULL: none that is known. TOKENIZER_AS_IT_IS: its tokenizer.json, if it has one, is read
 * without a class, whatever files name. */
#define TOKENIZER_AS_IT_IS "TokenizersBackend"
const char *tokenizer_class_of_type(const char *type, bool has_json);

#endif
