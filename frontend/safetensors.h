/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict reader and writer of the safetensors format over bytes in memory. A
 * file is accepted only when every entry is well-formed and the tensors tile
 * the data section exactly, from 0 to its end. Every refusal is a WEIGHT_FILE
 * diagnostic that names the file, the tensor and the byte offset.
 */
#ifndef TFMC_FRONTEND_SAFETENSORS_H
#define TFMC_FRONTEND_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/support/compiler.h"
#include "ir/support/diag.h"
#include "ir/type.h"

#define SAFETENSORS_HEADER_MAX ((size_t)100000000) /* bytes; the format's own limit */

struct safetensor {
	const char *name;
	const char *type_name; /* "F32" */
	bool readable;         /* dtype is valid; else a known type of the format that we do not read */
	enum ir_dtype dtype;
	int rank;
	int64_t dims[IR_RANK_MAX];
	const void *data; /* into the given bytes; may be unaligned; NULL when bytes = 0 */
	size_t bytes;
};

struct safetensors {
	const struct safetensor *items; /* by data offset, then in the order of the header */
	size_t n;
};

/* name: shown in messages; loc: who asked for the file. TFMC_INVALID after a diagnostic. */
TFMC_MUST_USE enum tfmc_status safetensors_read(struct arena *a, struct diag_context *cx, const char *name,
                                                struct loc loc, const unsigned char *bytes, size_t len,
                                                struct safetensors *out);

/*
 * Appends a whole file: header padded to 8 bytes, then the data in order of
 * decreasing element size (so that all are aligned), then of the list. False
 * when a tensor's bytes do not equal shape x dtype or memory ran out. `data`
 * is little-endian, row-major.
 */
TFMC_MUST_USE bool safetensors_write(struct buf *out, const struct safetensor *items, size_t n);

#endif
