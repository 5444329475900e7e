/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict readers of NumPy's formats over bytes in memory: .npy (one array) and .npz (a zip archive of them,
 * stored or compressed by deflate). Little- and big-endian numbers, both orders of axes. Nothing is believed:
 * headers, directory and local entries must agree with each other and with the bytes that are there.
 */
#ifndef TFMC_FRONTEND_FORMATS_NPY_H
#define TFMC_FRONTEND_FORMATS_NPY_H

#include "frontend/formats/stored.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/diag/diag.h"

#define NPY_HEADER_MAX  65536 /* bytes */
#define NPZ_ENTRIES_MAX 65535

/* The file begins with the magic of the format. */
bool npy_is(const unsigned char *bytes, size_t len);
bool npz_is(const unsigned char *bytes, size_t len);

/* The tensor of an .npy file is called as the file without directory and ending, those of an .npz file as their
 * entries without ending. */
TFMC_MUST_USE stored_reader npy_read;
/* What was compressed lies in the arena, up to 4 GiB of an archive, once its header says the size that the directory names; the
 * rest is read where it lies. */
TFMC_MUST_USE stored_reader npz_read;

/* ---- private to npy.c, npz.c ---- */

/* Bytes of a file that have the whole header, where it is longer. */
#define NPY_HEAD_MAX (12 + NPY_HEADER_MAX)
/* One array of `len` bytes, of which the first `have` are at `bytes`, the whole header at least, into *t, whose name is set:
 * but for data, *data bytes behind them. False after a diagnostic. */
bool npy_header(const struct stored_source *src, const unsigned char *bytes, size_t have, size_t len,
                struct stored_tensor *t, size_t *data);

#endif
