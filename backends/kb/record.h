/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel builder recorded, for printers. Instructions of a function
 * are one list in order; structured control flow is bracketed by its ops.
 */
#ifndef TFMC_BACKENDS_KB_RECORD_H
#define TFMC_BACKENDS_KB_RECORD_H

#include "backends/kb/kb.h"

enum kb_opcode {
#define KB_OP(op, name, effect) KBO_##op,
#include "backends/kb/kb_ops.def"
};

enum kb_prefetch_flags { KB_L2 = 1 }; /* kb_prefetch_l2 */
enum kb_cvt_flags { KB_FACTOR = 1 };  /* kb_cvt_factor */

/* One instruction. The rows of kb_ops.def say which operands and fields an operation uses. */
struct kb_inst {
	enum kb_opcode op;
	struct kb_type type;       /* of the result; of the stored value for stores; KB_VOID else */
	uint32_t result;           /* value id, variable id for KBO_VAR, or 0 */
	const struct kb_val *args; /* [n_args] */
	size_t n_args;
	union { /* by op; zero where it uses none of them */
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
		int detail; /* any of them, to be compared */
	};
	int align;   /* bytes: of an access, an array; PARAM: kb_assume_multiple, or 0 */
	int64_t imm; /* integer constant, displacement, loop step, local count, variable id of GET and SET */
	double fimm; /* float constant */
	const char *name; /* symbol, callee, string text, comment, loop or variable name */
	const int *lanes; /* SHUFFLE: [type.lanes] */
};

struct kb_func {
	const char *name;
	enum kb_linkage linkage;
	enum kb_scalar result;
	int variant;         /* whose code it is: kb_module_variant */
	struct kb_caps caps; /* of that variant's machine */
	int64_t group_size;  /* work-items of a group; 1 unless a kernel says more */
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
/* Does more than giving a value, whoever uses it. Variables count by their readers: VAR and SET do not. */
bool kb_has_effect(enum kb_opcode op);
/* The operation in dumps and in messages. */
const char *kb_op_name(enum kb_opcode op);
const char *kb_bin_name(enum kb_bin op);
const char *kb_un_name(enum kb_un op);
const char *kb_dot_name(enum kb_dot dot);
bool kb_dot_is_float(enum kb_dot dot);
bool kb_dot_is_2x2(enum kb_dot dot);
/* Whether it is one instruction; DOT_U7S8 and its halves: and DOT_U8S8 is none, which is better. */
bool kb_has_dot(const struct kb_caps *caps, enum kb_dot dot);
/* The operator of C; that of a compare for MIN and MAX. */
const char *kb_bin_sign(enum kb_bin op);
const char *kb_cmp_sign(enum kb_cmp op);
/* The function that was recorded last, or an earlier one that equals it; the last one is then taken out
 * again. */
const struct kb_func *kb_share_last(struct kb_module *m);
/*
 * The same function without conversions from or to bf16, and with conversions of f16, conversions to the nearest and
 * dot products only where `has` says so (f16: to and from f32); f itself when it has no others. Values of f keep
 * their numbers. New parts live in `arena`; when there is no memory (arena_failed) it gives f.
 */
const struct kb_func *kb_legalize(const struct kb_func *f, struct arena *arena, const struct kb_caps *has);
/*
 * log2 of a power of two that divides each value of f (an integer, or an address in bytes), by value id; 0 where nothing
 * is known. In `arena`; NULL when there is no memory.
 */
const uint8_t *kb_alignments(const struct kb_func *f, struct arena *arena);
/* Bytes that the address of a LOAD, STORE or a kind of them is a multiple of: at most 4096. */
int kb_access_align(const uint8_t *alignments, const struct kb_inst *i);
/* Bytes of an element in memory; 0 for what has no place there (VOID, BOOL). */
int kb_scalar_bytes(enum kb_scalar s);
bool kb_is_float(enum kb_scalar s);
const struct kb_caps *kb_module_caps(const struct kb_module *m);

#endif
