/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of the files of torch.save: a zip archive with data.pkl and a stored entry for each storage (since PyTorch
 * 1.6), or pickles and storages one after another (before). Nothing is executed: pickle.h. Tensors are those of the
 * dict that the file is, or of the one dict in it under a name that is common for checkpoints; other values are
 * skipped. A name may be a view of a storage that others share.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_TORCH_H
#define TFMC_FRONTEND_WEIGHTS_TORCH_H

#include "frontend/weights/stored.h"
#include "ir/support/compiler.h"

/* True: the bytes begin as a file of torch.save does, new or old. */
bool torch_has_magic(const unsigned char *bytes, size_t len);
/* Contiguous views are read in place. Others (transposed matrices, channels last) are copied into the arena, all
 * together at most as many bytes as the file has. */
TFMC_MUST_USE stored_reader torch_read;

#endif
