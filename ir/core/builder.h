/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the builder, shared by its files and the parser. */
#ifndef TFMC_IR_CORE_BUILDER_H
#define TFMC_IR_CORE_BUILDER_H

#include "ir/core/build.h"
#include "ir/types/intern.h"

#define BUILD_OPS_MAX 1000000

/* A region under construction. */
struct build_scope {
	struct build_scope *parent;
	struct ir_region *region;
	struct ir_op *owner; /* repeat or group, filled when the region ends; NULL: the function's body */
	struct ir_loc loc;   /* of the owner */
	struct {
		struct ir_op **items;
		size_t n, cap;
	} ops;
	struct intern merged; /* pure ops by content, for common subexpression elimination */
};

struct ir_builder {
	struct ir_module *m;
	struct diag_context *cx;
	struct ir_func *f;
	struct ir_loc loc;
	struct loc report_at;        /* location of diagnostics, if it has a source; else loc.at */
	const struct ir_case *bound; /* its symbols are replaced in dims of cloned ops; NULL: none */
	bool failed, literal;        /* literal: no folding, no elimination of equal ops */
	size_t depth, n_ops, cap_params;
	struct build_scope *scope;
};

/* Reports at the current location and fails the builder. */
void build_fail(struct ir_builder *b, enum diag_code code, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* Location of diagnostics from now on (in the text being parsed); LOC_NONE: the locations of the ops. */
void build_report_at(struct ir_builder *b, struct loc at);
struct loc build_at(const struct ir_builder *b);
/* A deep copy of the attributes of an op, in m; NULL without memory. */
void *build_copy_attrs(struct ir_module *m, enum ir_opcode code, const void *attrs);

/* Key of a pure op for elimination of equal ops: code, operands, attributes. */
struct op_key {
	enum ir_opcode code;
	const struct ir_value *operands;
	size_t n_operands;
	const void *attrs;
};
/* The hash of a key; whether an op has the key. */
uint64_t op_key_hash(const struct op_key *key);
bool op_key_equal(const void *op, const void *key);

#endif
