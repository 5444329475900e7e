/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of the binary weight files of Marian (model.bin), version 1. Matrices that are packed for one processor
 * (intgemm, FBGEMM) are tensors of a type that is not supported.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_MARIAN_H
#define TFMC_FRONTEND_WEIGHTS_MARIAN_H

#include "frontend/weights/stored.h"
#include "ir/support/compiler.h"

/* True: the first 48 bytes are those of such a file. */
bool marian_has_magic(const unsigned char *bytes, size_t len);
TFMC_MUST_USE stored_reader marian_read;

#endif
