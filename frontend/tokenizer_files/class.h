/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classes of tokenizers, inside the readers: the table is classes.def.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_FILES_CLASS_H
#define TFMC_FRONTEND_TOKENIZER_FILES_CLASS_H

#include "frontend/tokenizer_files/config.h"
#include "frontend/tokenizer_files/json.h"
#include "frontend/sentencepiece/spm.h"

/* After tokenizer_add_configured; false after a refusal. What the class puts around the text. */
bool tokenizer_class_around(struct tokenizer_reader *r);
/* The same where it replaces a template of the file: languages, and tokens of roles. */
bool tokenizer_class_language(struct tokenizer_reader *r);
/* A blank before the text: what the files say, or -1 for the file at hand. */
int tokenizer_class_prefix(const struct tokenizer_reader *r);
/* The same before text that a ByteLevel splits: classes of SentencePiece have none. */
int tokenizer_class_byte_prefix(const struct tokenizer_reader *r);
/* The class sets all flags of a BertNormalizer. */
bool tokenizer_class_is_bert(const struct tokenizer_reader *r);
/* The ids of bos, eos, pad and mask. */
bool tokenizer_class_roles(struct tokenizer_reader *r);

/* Lists as a class reads them. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_lists(const struct tokenizer_source *s,
                                                    const struct tokenizer_lists *lists,
                                                    struct tokenizer_packed *out);

#endif
