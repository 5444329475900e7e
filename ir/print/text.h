/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form (.tir). Laws, each a test: print(parse(t)) == t for canonical
 * text; parse(print(m)) verifies and prints equal. Unknown ops, attributes and
 * names are errors with position and nearest name. The format belongs to one
 * version of the tool.
 *
 * The grammar is in ir/text.md. One op per line:
 *   %y = linear %x, @ffn.up.weight[%l], @ffn.up.bias[%l] : f32[B,S,128] loc("model.yaml":24:13 "encoder.layers.mlp")
 */
#ifndef TFMC_IR_PRINT_TEXT_H
#define TFMC_IR_PRINT_TEXT_H

#include "ir/core/module.h"

/* Registers the text as a source and parses it. On failure *out is NULL. The caller destroys the module. */
TFMC_MUST_USE enum tfmc_status ir_parse(struct diag_context *cx, const char *file_name, const char *text,
                                        size_t len, struct ir_module **out);

/* Locations whose source is the module's `tir_source` (a parsed .tir) are left out; `cx` resolves source
 * names, NULL: no locations at all. */
void ir_print(struct buf *out, const struct diag_context *cx, const struct ir_module *m);
/*
 * Equal for modules that differ in locations and in the names of values only (64 bits of the text without
 * them), so unequal values mean a change of structure.
 */
uint64_t ir_structure_hash(const struct ir_module *m);
/* One function. */
void ir_print_func(struct buf *out, const struct diag_context *cx, const struct ir_module *m,
                   const struct ir_func *f);

/* The reference of all ops as a Markdown table, from ir/core/ops.def: the file ir/ops.md. */
void ir_print_op_reference(struct buf *out);

#endif
