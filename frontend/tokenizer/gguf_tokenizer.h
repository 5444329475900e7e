/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the tokenizer in the metadata of a GGUF file (keys tokenizer.ggml.*). */
#ifndef TFMC_FRONTEND_SENTENCEPIECE_GGUF_TOKENIZER_H
#define TFMC_FRONTEND_SENTENCEPIECE_GGUF_TOKENIZER_H

#include "frontend/weights/gguf.h"
#include "frontend/tokenizer/tokenizer.h"

/* True: the file has a tokenizer. */
bool gguf_has_tokenizer(const struct gguf *g);

/* s->name: file name for messages; the result does not refer to the bytes of the file. TFMC_INVALID after
 * a diagnostic: a key has the wrong type, or a list does not have one entry for each token. */
TFMC_MUST_USE enum tfmc_status gguf_tokenizer(const struct tokenizer_source *s, const struct gguf *g,
                                              struct tokenizer_packed *out);

#endif
