/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer in the metadata of a GGUF file (keys tokenizer.ggml.*), packed. */
#ifndef TFMC_FRONTEND_SENTENCEPIECE_GGUF_TOKENIZER_H
#define TFMC_FRONTEND_SENTENCEPIECE_GGUF_TOKENIZER_H

#include "frontend/formats/gguf.h"
#include "frontend/tokenizer/tokenizer.h"

/* Whether there is one at all. */
bool gguf_has_tokenizer(const struct gguf *g);

/* s->name names the file, whose bytes are not needed after. TFMC_INVALID after a diagnostic: a key has the
 * wrong type, or lists do not have one entry for each token. */
TFMC_MUST_USE enum tfmc_status gguf_tokenizer(const struct tokenizer_source *s, const struct gguf *g,
                                              struct tokenizer_packed *out);

#endif
