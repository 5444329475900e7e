/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form (.tir). Invariants, each tested: print(parse(t)) == t for canonical text; parse(print(m)) verifies and
 * prints equal. Unknown ops, attributes and names are errors with location and nearest name. The format may change with
 * every version of the tool.
 *
 * The grammar is in ir/text.md. One op per line:
 *   %encoder.mlp = linear %r, @ffn.up.weight[%l], @ffn.up.bias[%l] : f32[B,S,128] loc(#loc24)
 *   #loc24 = loc("model.yaml":24:13 "encoder.layers.mlp")
 * Values are called after the steps of the model (ir/core/names.h), locations defined at the end of the text.
 */
#ifndef TFMC_IR_TEXT_TEXT_H
#define TFMC_IR_TEXT_TEXT_H

#include "ir/core/module.h"

/* Registers the text as a diagnostic source and parses it. *out: the caller destroys it; NULL on failure. */
TFMC_MUST_USE enum tfmc_status ir_parse(struct diag_context *cx, const char *file_name, const char *text,
                                        size_t len, struct ir_module **out);

/* Appends the text of the module. `cx` resolves source names; NULL: without locations. Locations in the .tir that the
 * module was parsed from are left out. */
void ir_print(struct buf *out, const struct diag_context *cx, const struct ir_module *m);
/* Hash of the text with numbers for value names and without locations: different hashes mean different structure. */
uint64_t ir_structure_hash(const struct ir_module *m);
/* Appends the text of one function, and the locations that it uses. */
void ir_print_func(struct buf *out, const struct diag_context *cx, const struct ir_module *m,
                   const struct ir_func *f);

/* Appends the op reference as a Markdown table, generated from ir/core/ops.def: the file ir/ops.md. */
void ir_print_op_reference(struct buf *out);

#endif
