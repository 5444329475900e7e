/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict reader and writer of safetensors in memory. A file is accepted only if every entry is well-formed
 * and the tensors tile the data section exactly. Every rejection is a WEIGHT_FILE diagnostic that names the
 * file, the tensor and the byte offset.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_SAFETENSORS_H
#define TFMC_FRONTEND_WEIGHTS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/weights/stored.h"
#include "ir/support/buf.h"
#include "ir/support/compiler.h"

#define SAFETENSORS_HEADER_MAX ((size_t)100000000) /* bytes; the format's own limit */

TFMC_MUST_USE stored_reader safetensors_read;

/*
 * Appends a whole file: header padded to 8 bytes, then the data by decreasing element size (so that all are
 * aligned), then in list order. `data` is little-endian, row-major. False: the bytes of a tensor differ from
 * shape x dtype, or no memory.
 */
TFMC_MUST_USE bool safetensors_write(struct buf *out, const struct stored_tensor *items, size_t n);

#endif
