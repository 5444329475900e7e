/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of ops for reports (timings, plans). */
#include "ir/core/describe.h"

#include <string.h>

/* Name of the first weight that op reads, and its length without the last component (`.weight`, `.bias`); NULL if
 * none. */
static const char *weight_path(const struct ir_func *f, const struct ir_op *op, size_t *len)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_weight *w = ir_weight_of(f, op->operands[i]);
		if (w == NULL)
			continue;
		const char *last = strrchr(w->name, '.');
		*len = last != NULL ? (size_t)(last - w->name) : strlen(w->name);
		return w->name;
	}
	return NULL;
}

void ir_op_describe(struct buf *out, const struct diag_context *cx, const struct ir_func *f,
                    const struct ir_op *op)
{
	if (op->code == OP_group)
		op = op->region->ops[((const struct attrs_group *)op->attrs)->root];
	size_t len = 0;
	const char *path = weight_path(f, op, &len);
	if (path != NULL)
		buf_bytes(out, path, len);
	else if (op->loc.path != NULL)
		buf_str(out, op->loc.path);
	buf_printf(out, "%s%s", path != NULL || op->loc.path != NULL ? " " : "", ir_op_desc(op->code)->name);
	const char *file = diag_source_name(cx, op->loc.at.source), *slash = strrchr(file, '/');
	if (op->loc.at.line != 0)
		buf_printf(out, " (%s:%u)", slash != NULL ? slash + 1 : file, (unsigned)op->loc.at.line);
}
