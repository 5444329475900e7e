/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights of a model that runs in this process: written while they are
 * packed, then mapped. They lie in pages of their own, without a name.
 */
#ifndef TFMC_DRIVER_PACKED_H
#define TFMC_DRIVER_PACKED_H

#include "frontend/weight_files.h"
#include "runtime/tfmc_rt.h"

struct packed {
	struct diag_context *cx;
	const struct weight_files *read; /* what they are packed from; NULL: none */
	int fd;                          /* -1: nothing was written yet */
	uint64_t since;                  /* bytes written since pages of `read` were given back */
	struct tfmc_mapping map;
};

void packed_init(struct packed *p, struct diag_context *cx, const struct weight_files *read);
/* For struct backend_sink. False after a diagnostic. */
bool packed_write(void *packed, uint64_t offset, const void *bytes, size_t n);
/* Maps what was written, a weights file, to `map`. Nothing was written: all zero. */
TFMC_MUST_USE enum tfmc_status packed_map(struct packed *p);
void packed_close(struct packed *p);

#endif
