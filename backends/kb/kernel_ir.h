/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel IR as emitters read it. A function is one list of instructions in order of execution, in SSA form except
 * for named variables (VAR, GET, SET). Control flow is structured: LOOP .. END_LOOP, FOREVER .. END_FOREVER, IF ..
 * ELSE .. END_IF bracket their bodies.
 */
#ifndef TFMC_BACKENDS_KB_KERNEL_IR_H
#define TFMC_BACKENDS_KB_KERNEL_IR_H

#include "backends/kb/kb.h"

enum kb_opcode {
#define KB_OP(op, name, effect) KBO_##op,
#include "backends/kb/kb_ops.def"
};

enum kb_prefetch_flags { KB_L2 = 1 }; /* kb_prefetch_l2 */
enum kb_cvt_flags { KB_FTZ = 1 };     /* kb_cvt_bf16_ftz */

/* One instruction. The rows of kb_ops.def list the operands and fields of each operation. */
struct kb_inst {
	enum kb_opcode op;
	struct kb_type type;       /* of the result; of a store: of the stored value; otherwise KB_VOID */
	uint32_t result;           /* value id, variable id for KBO_VAR, or 0 */
	const struct kb_val *args; /* [n_args] */
	size_t n_args;
	union { /* by op; zero if it uses none of them */
		enum kb_bin bin;
		enum kb_un un;
		enum kb_cmp cmp;
		enum kb_dot dot;
		enum kb_scalar element; /* of an array */
		unsigned flags;
		int lane;
		int n_lanes;
		struct {
			int16_t subleaf, reg; /* reg: 0..3 = eax ebx ecx edx */
		} cpuid;
		int detail; /* any of the above, for comparisons */
	};
	uint32_t loc; /* number for kb_loc_at, 0: none */
	int align;    /* bytes: of an access, an array; PARAM: kb_assume_multiple, or 0 */
	int64_t imm;  /* integer constant, displacement, loop step, array count, variable id of GET and SET */
	double fimm;  /* float constant */
	const char *name; /* symbol, callee, string, comment; name of a parameter, loop, variable or array */
	const int *lanes; /* SHUFFLE: [type.lanes] */
};

struct kb_func {
	const char *name;
	enum kb_linkage linkage;
	enum kb_scalar result;
	int variant;         /* kb_module_set_variant */
	struct kb_caps caps; /* of the variant's processor */
	int64_t group_size;  /* work-items of a group: kb_group_size, or 1 */
	struct kb_inst *insts;
	size_t n_insts;
	const struct kb_type *types; /* [n_values], by value id; [0] unused */
	size_t n_values;
	const struct kb_type *var_types; /* [n_vars], by variable id; [0] unused */
	size_t n_vars;
};

struct kb_data_item {
	const char *name;
	enum kb_linkage linkage;
	const void *bytes;
	size_t n;
	int align;
};

size_t kb_func_count(const struct kb_module *m);
const struct kb_func *kb_func_at(const struct kb_module *m, size_t i);
size_t kb_data_count(const struct kb_module *m);
const struct kb_data_item *kb_data_at(const struct kb_module *m, size_t i);
/* Places of instructions, numbered from 1 on; 0 without kb_module_keep_locs. */
size_t kb_loc_count(const struct kb_module *m);
const struct kb_loc *kb_loc_at(const struct kb_module *m, size_t number);
/* True if the instruction must not be removed when its value is unused. VAR and SET return false: they are needed
 * only if the variable is read. */
bool kb_has_side_effect(enum kb_opcode op);
/* Names in dumps and messages. */
const char *kb_op_name(enum kb_opcode op);
const char *kb_bin_name(enum kb_bin op);
const char *kb_un_name(enum kb_un op);
bool kb_dot_is_float(enum kb_dot dot);
bool kb_dot_is_2x2(enum kb_dot dot);
/* True if the target has the dot product. DOT_U7S8 and DOT_U7S8_I16: false also where DOT_U8S8, which is better,
 * exists. */
bool kb_has_dot(const struct kb_caps *caps, enum kb_dot dot);
/* The C operator; of MIN and MAX the one of their comparison. */
const char *kb_bin_sign(enum kb_bin op);
const char *kb_cmp_sign(enum kb_cmp op);
/* If an earlier function is identical to the last one, removes the last one and returns the earlier; otherwise
 * returns the last. */
const struct kb_func *kb_dedup_last(struct kb_module *m);
/*
 * Returns an equivalent function in operations that `has` allows (legalize.c): no conversions from or to bf16,
 * conversions of f16 (with f32 only), round-to-nearest conversions and dot products only if `has` has them. Returns f
 * itself if it is legal already, or without memory (arena_failed). Values of f keep their ids; the new function is in
 * `arena`.
 */
const struct kb_func *kb_legalize(const struct kb_func *f, struct arena *arena, const struct kb_caps *has);
/* For each value of f, by id: log2 of a power of two that divides it (an integer, or an address in bytes); 0 if
 * unknown (optimize.c). In `arena`; NULL without memory. */
const uint8_t *kb_alignments(const struct kb_func *f, struct arena *arena);
/* Known alignment in bytes of the address of a LOAD.. or STORE.. instruction, at most 4096. */
int kb_access_align(const uint8_t *alignments, const struct kb_inst *i);
/* Bytes of an element in memory; 0 for types that cannot be stored (VOID, BOOL). */
int kb_scalar_bytes(enum kb_scalar s);
/* f16, bf16, f32 or f64. */
bool kb_is_float(enum kb_scalar s);

#endif
