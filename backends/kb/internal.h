/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the kernel builder: the module, the function under construction, and kb_emit, which appends an
 * instruction. Emitters include kernel_ir.h and kernel generators kb.h instead.
 */
#ifndef TFMC_BACKENDS_KB_INTERNAL_H
#define TFMC_BACKENDS_KB_INTERNAL_H

#include "backends/kb/kernel_ir.h"

struct kb {
	struct kb_module *module;
	struct kb_caps caps; /* of the function's variant */
	struct kb_func *func;
	struct {
		struct kb_inst *items;
		size_t n, cap;
	} insts;
	struct {
		struct kb_type *items; /* by value id */
		size_t n, cap;
	} types;
	struct {
		uint32_t *items; /* by value id: the defining instruction */
		size_t n, cap;
	} defs;
	struct {
		struct kb_type *items; /* by variable id */
		size_t n, cap;
	} vars;
	struct {
		enum kb_opcode *items; /* stack of open scopes: LOOP, FOREVER, IF, ELSE */
		size_t n, cap;
	} open;
	uint32_t loc;              /* of the next instructions */
	size_t reused, reused_end; /* kb_reuse_shared: SHARED among these instructions are free again */
	bool ended;
};

struct kb_module {
	struct arena *arena;
	struct kb_caps caps; /* of functions begun from now on: kb_module_set_variant */
	int variant;         /* of functions begun from now on */
	uint64_t tiled;      /* bit i: code of variant i configures AMX tiles */
	struct kb
	        lost; /* the function that kb_begin returns without memory; the arena remembers the failure */
	struct kb_func lost_func;
	const char *error; /* the first invalid call, NULL: none */
	struct {
		struct kb **items;
		size_t n, cap;
	} funcs;
	struct {
		struct kb_data_item *items;
		size_t n, cap;
	} data;
	bool keeps_locs;
	struct {
		struct kb_loc *items; /* by number - 1 */
		size_t n, cap;
	} locs;
	size_t n_insts; /* of all finished functions */
};

/* Returns ok. If it is false, sets the module's error to `what`, which names the violation, unless one is set. */
bool kb_require(struct kb *k, bool ok, const char *what);
/* Appends inst with copies of its n operands. Returns its new value, none without has_result or memory. */
struct kb_val kb_emit(struct kb *k, struct kb_inst inst, const struct kb_val *args, size_t n,
                      bool has_result);

bool kb_is_int(enum kb_scalar s); /* I8 .. I64, INDEX */
/* Whether the operator accepts operands of the type. */
bool kb_bin_fits(enum kb_bin op, enum kb_scalar s);
bool kb_un_fits(enum kb_un op, enum kb_scalar s);
/* Names in dumps and messages, such as "i32", "lt". */
const char *kb_scalar_name(enum kb_scalar s);
const char *kb_cmp_name(enum kb_cmp op);
static inline bool kb_same_type(struct kb_type a, struct kb_type b)
{
	return a.scalar == b.scalar && a.lanes == b.lanes;
}

#endif
