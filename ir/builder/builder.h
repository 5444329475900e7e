/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the builder, shared by build*.c, fold.c, clone.c and the parser.
 */
#ifndef TFMC_IR_BUILDER_BUILDER_H
#define TFMC_IR_BUILDER_BUILDER_H

#include "ir/builder/build.h"
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
	struct intern merged; /* pure ops by content */
};

struct ir_builder {
	struct ir_module *m;
	struct diag_context *cx;
	struct ir_func *f;
	struct ir_loc loc;
	struct loc report_at;        /* where messages point when it has a source; else loc.at */
	const struct ir_case *bound; /* what dims of clones have their symbols replaced by; NULL: nothing */
	bool failed, literal;
	size_t depth, n_ops, cap_params;
	struct build_scope *scope;
};

/* Reports at the current location and fails the builder. */
void build_fail(struct ir_builder *b, enum diag_code code, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* Messages point here from now on (a place in a parsed text); LOC_NONE: at the ops' own locations. */
void build_report_at(struct ir_builder *b, struct loc at);
struct loc build_at(const struct ir_builder *b);
/* A new value of the type. */
struct ir_value build_value(struct ir_builder *b, const struct ir_type *type, const struct ir_op *def,
                            unsigned index);
/* Opens a region. NULL after failure. */
struct build_scope *build_open(struct ir_builder *b, enum ir_opcode code);
/* Appends an op without folding; gives its results. NULL after failure. */
struct ir_op *build_append(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                           size_t n);
bool build_results(struct ir_builder *b, struct ir_op *op, const struct ir_type *const *types, size_t n);
/* A deep copy of the attributes of an op, in the module. */
void *build_copy_attrs(struct ir_module *m, enum ir_opcode code, const void *attrs);
/* The value that the op would give, when it is trivial; otherwise IR_NO_VALUE. */
struct ir_value build_fold(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                           const struct ir_type *result, const void *attrs);

/* Pure ops by content: code, operands, attributes. */
struct op_key {
	enum ir_opcode code;
	const struct ir_value *operands;
	size_t n_operands;
	const void *attrs;
};
uint64_t op_key_hash(const struct op_key *key);
bool op_key_equal(const void *op, const void *key);

#endif
