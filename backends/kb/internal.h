/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the kernel builder share: the module, the function under
 * construction, and how an instruction is appended. Printers and templates do
 * not include this; they use record.h and kb.h.
 */
#ifndef TFMC_BACKENDS_KB_INTERNAL_H
#define TFMC_BACKENDS_KB_INTERNAL_H

#include "backends/kb/record.h"

struct kb {
	struct kb_module *module;
	struct kb_caps caps; /* of its variant */
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
		enum kb_opcode *items; /* open constructs: LOOP, FOREVER, IF, ELSE */
		size_t n, cap;
	} open;
	size_t reused, reused_end; /* instructions whose arrays that items share are taken again */
	bool ended;
};

struct kb_module {
	struct arena *arena;
	struct kb_caps caps; /* of the functions that begin now */
	int variant;         /* likewise */
	uint64_t tiled;      /* bit i: code of variant i configures tiles */
	struct kb lost;      /* is recorded when there is no memory; the arena remembers */
	struct kb_func lost_func;
	const char *error; /* the first misuse, NULL: none */
	struct {
		struct kb **items;
		size_t n, cap;
	} funcs;
	struct {
		struct kb_data_item *items;
		size_t n, cap;
	} data;
	size_t n_insts; /* of the functions that have ended */
};

/* Remembers the first misuse, when `ok` is false; gives ok. */
bool kb_require(struct kb *k, bool ok, const char *what);
/* The type of v, KB_VOID for none. */
struct kb_type kb_typeof(const struct kb *k, struct kb_val v);
/* Appends an instruction with copies of its operands; a result when its type is not void and it is no store.
 */
struct kb_val kb_emit(struct kb *k, struct kb_inst inst, const struct kb_val *args, size_t n,
                      bool has_result);
/* A valid value of a type after a misuse, so that recording goes on. */
struct kb_val kb_poison(struct kb *k, struct kb_type type);

/* What stands for a dot product, or a conversion to the nearest, on a machine that has none of it. */
struct kb_val kb_write_dot(struct kb *k, enum kb_dot dot, const struct kb_val *args,
                           const struct kb_caps *has);
struct kb_val kb_write_nearest(struct kb *k, struct kb_val v);

bool kb_is_int(enum kb_scalar s); /* I8 .. I64 */
/* Whether the operation takes operands of the type. */
bool kb_bin_fits(enum kb_bin op, enum kb_scalar s);
bool kb_un_fits(enum kb_un op, enum kb_scalar s);
const char *kb_scalar_name(enum kb_scalar s);
const char *kb_cmp_name(enum kb_cmp op);
static inline bool kb_same_type(struct kb_type a, struct kb_type b)
{
	return a.scalar == b.scalar && a.lanes == b.lanes;
}

#endif
