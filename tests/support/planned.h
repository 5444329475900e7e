/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One planned module through the back end: what tests need and tfmc does not, which always compiles sets of variants
 * and packs weights beside code.
 */
#ifndef TFMC_TESTS_SUPPORT_PLANNED_H
#define TFMC_TESTS_SUPPORT_PLANNED_H

#include "backends/backend.h"
#include "backends/object/internal.h"

/* backend_compile of one module. */
TFMC_MUST_USE static inline enum tfmc_status
planned_compile(struct diag_context *cx, const struct ir_module *planned, const struct target *target,
                const struct weight_source *source, const struct backend_options *options,
                struct backend_output *out)
{
	const struct backend_variant alone = {planned, target};
	return backend_compile(cx, &alone, 1, source, options, out);
}

/* Writes the weights file of a module to the sink: packed bytes, then the header. */
TFMC_MUST_USE static inline enum tfmc_status planned_pack(struct diag_context *cx,
                                                          const struct ir_module *planned,
                                                          const struct weight_source *source,
                                                          const struct backend_sink *sink)
{
	static const struct backend_options none;
	struct arena arena;
	struct object o;
	arena_init(&arena);
	object_init(&o, cx, &arena, planned, NULL, &none);
	enum tfmc_status status = layout_weights(&o);
	if (status == TFMC_OK)
		status = pack_weights(&o, source, sink, TFMC_WEIGHTS_DATA);
	if (status == TFMC_OK)
		status = pack_header(&o, sink, 0);
	arena_destroy(&arena);
	return status;
}

#endif
