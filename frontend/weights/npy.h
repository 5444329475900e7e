/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict readers of NumPy's formats in memory: .npy (one array) and .npz (a zip archive of arrays, stored or
 * deflated). Little- and big-endian elements, C and Fortran order. Input is hostile: headers, central
 * directory and local headers must agree with each other and with the size of the file.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_NPY_H
#define TFMC_FRONTEND_WEIGHTS_NPY_H

#include "frontend/weights/stored.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/support/diag.h"

#define NPY_HEADER_MAX 65536 /* bytes */

/* True: the bytes begin as an array does; of an archive zip_has_magic says it. */
bool npy_has_magic(const unsigned char *bytes, size_t len);

/* Tensor name: of an .npy file the file name without directory and extension, in an .npz file the entry
 * without extension. */
TFMC_MUST_USE stored_reader npy_read;
/* Compressed entries are inflated into the arena, up to 4 GiB of an archive and only if the header agrees
 * with the size in the directory; stored entries are read in place. */
TFMC_MUST_USE stored_reader npz_read;

#endif
