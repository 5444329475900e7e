/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizer configuration of a hub folder: tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json. Keys that change ids are read; unsupported keys that change ids are rejected; all others
 * (chat templates, lengths, padding side, decoding) are ignored.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_CONFIG_H
#define TFMC_FRONTEND_TOKENIZER_CONFIG_H

#include "frontend/syntax/json.h"
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

/* Template of a tokenizer class: special tokens around a text and a pair. */
enum tokenizer_template {
	TOKENIZER_T_FLAGS,         /* bos and eos by add_bos_token and add_eos_token */
	TOKENIZER_T_BERT,          /* cls A sep, cls A sep B sep */
	TOKENIZER_T_ROBERTA,       /* cls A sep, cls A sep sep B sep */
	TOKENIZER_T_CLIP,          /* as ROBERTA, with bos and eos */
	TOKENIZER_T_EOS,           /* A eos, A eos B eos */
	TOKENIZER_T_LANGUAGE,      /* src_lang A eos */
	TOKENIZER_T_LANGUAGE_LAST, /* A eos src_lang */
	TOKENIZER_T_WHISPER        /* <|startoftranscript|> language task A eos */
};

/* Files that a class reads when there is no tokenizer.json. */
enum tokenizer_files {
	TOKENIZER_F_JSON,     /* tokenizer.json only */
	TOKENIZER_F_BPE,      /* vocab.json, merges.txt */
	TOKENIZER_F_WORDS,    /* vocab.txt */
	TOKENIZER_F_PIECES,   /* SentencePiece model with its own ids */
	TOKENIZER_F_FAIRSEQ,  /* SentencePiece model, ids shifted by one after <s> <pad> </s> <unk> */
	TOKENIZER_F_SENTINELS /* SentencePiece model, then <extra_id_99> .. <extra_id_0> */
};

/* A tokenizer class, a row of classes.def. */
struct tokenizer_class {
	const char *names; /* separated by spaces, without Fast */
	enum tokenizer_files files;
	enum tokenizer_template template_kind;
	const char *normalizer, *splitter, *model; /* members of a tokenizer.json, for vocabulary lists */
	const char *roles[TOKENIZER_N_ROLES];      /* "": none */
	bool prefix_space;                         /* default of add_prefix_space */
	bool reads_prefix;                         /* add_prefix_space is read and overrides tokenizer.json */
	bool mask_strips;                          /* the mask token strips spaces before it */
	const char *languages;                     /* tokens after the pieces, unless a file lists them */
};

/* A token of the configuration files. */
struct tokenizer_named {
	const char *text;
	int64_t id;     /* -1: that of the piece, or the next one */
	uint32_t flags; /* enum tfmc_tok_added_flag */
	bool normalized;
	bool has_explicit_flags; /* flags are from a file, not implied by a bare name */
	bool is_listed;          /* in added_tokens_decoder, which overrides tokenizer.json */
	bool is_implied;         /* implied by the class: omitted if the vocabulary lacks it */
};

/* Flags that the files do not have are -1. */
struct tokenizer_config {
	const char *name; /* file name for messages */
	const char *class_name;
	const struct tokenizer_class *class;  /* NULL: unknown class */
	const char *roles[TOKENIZER_N_ROLES]; /* NULL: none */
	int add_bos, add_eos, prefix_space, lowercase, keep_accents, strip_accents, chinese, legacy_language,
	        timestamps;
	const char *src_lang, *language, *task; /* NULL: none */
	struct tokenizer_named *tokens;
	size_t n_tokens;
};

struct tokenizer_config_file {
	const char *name;
	const struct json_node *root; /* NULL: no such file */
};
/* The configuration files of a folder. */
struct tokenizer_config_files {
	struct tokenizer_config_file config, special, added;
	const char *
	        class_name; /* default class; TOKENIZER_AS_IT_IS: overrides the class of the files; NULL: none */
};

/* Reads the files; diagnostics name the wrong file. */
TFMC_MUST_USE enum tfmc_status tokenizer_config_read(const struct tokenizer_source *s,
                                                     const struct tokenizer_config_files *files,
                                                     struct tokenizer_config *out);

/* The class of a name, which may end in Fast; NULL: unknown. */
const struct tokenizer_class *tokenizer_class_find(const char *name);
/* The class for a model type of config.json; NULL: unknown. TOKENIZER_AS_IT_IS: tokenizer.json, if there
 * is one, is read without a class, whatever class the files name. */
#define TOKENIZER_AS_IT_IS "TokenizersBackend"
const char *tokenizer_class_of_type(const char *type, bool has_json);

#endif
