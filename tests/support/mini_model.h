/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole model in a page of text: a sequence-to-sequence Transformer with two
 * rolled layers, every kind of state, padded batches and a plain function.
 */
#ifndef TFMC_TESTS_SUPPORT_MINI_MODEL_H
#define TFMC_TESTS_SUPPORT_MINI_MODEL_H

/* Stage graph: encode(src, len) -> memory; decode(tok, past) -> logits of the last row; run(src, len) ->
 * memory, pooled. */
extern const char mini_model[];

#endif
