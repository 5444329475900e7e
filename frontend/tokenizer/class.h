/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: tokenizer classes of transformers; the table is classes.def.
 */
#ifndef TFMC_FRONTEND_TOKENIZER_FILES_CLASS_H
#define TFMC_FRONTEND_TOKENIZER_FILES_CLASS_H

#include "frontend/tokenizer/config.h"
#include "frontend/tokenizer/json.h"
#include "frontend/tokenizer/spm.h"

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
bool tokenizer_class_set_special_ids(struct tokenizer_reader *r);

/* Packs vocabulary lists as a class reads them. */
TFMC_MUST_USE enum tfmc_status tokenizer_from_lists(const struct tokenizer_source *s,
                                                    const struct tokenizer_lists *lists,
                                                    struct tokenizer_packed *out);

#endif
