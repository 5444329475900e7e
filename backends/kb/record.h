/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel builder recorded, for printers. Instructions of a function
 * are one list in order; structured control flow is bracketed by its ops.
 */
#ifndef TFMC_BACKENDS_KB_RECORD_H
#define TFMC_BACKENDS_KB_RECORD_H

#include "backends/kb/kb.h"

enum kb_opcode {
	KBO_PARAM,
	KBO_COMMENT,
	KBO_RETURN,
	KBO_CALL,
	KBO_CALL_PTR,
	KBO_FUNC_ADDR,
	KBO_CONST_INT /* BOOL I32 I64 */,
	KBO_CONST_FLOAT,
	KBO_NULL,
	KBO_STRING,
	KBO_SYMBOL,
	KBO_LANE_IDS,
	KBO_VAR,
	KBO_GET,
	KBO_SET,
	KBO_LOCAL,
	KBO_LOOP,
	KBO_END_LOOP,
	KBO_FOREVER,
	KBO_BREAK_IF,
	KBO_END_FOREVER,
	KBO_IF,
	KBO_ELSE,
	KBO_END_IF,
	KBO_LOAD,
	KBO_STORE,
	KBO_LOAD_SPLAT,
	KBO_LOAD_PART,
	KBO_STORE_PART,
	KBO_PTR_ADD,
	KBO_PREFETCH,
	KBO_BIN,
	KBO_UN,
	KBO_FMA,
	KBO_CMP,
	KBO_SELECT,
	KBO_SPLAT,
	KBO_LANE,
	KBO_CVT,
	KBO_BITCAST,
	KBO_SHUFFLE,
	KBO_REDUCE,
	KBO_ATOMIC_LOAD,
	KBO_ATOMIC_STORE,
	KBO_ATOMIC_ADD,
	KBO_PAUSE,
	KBO_GROUP_ID,
	KBO_GROUP_COUNT,
	KBO_ITEM_ID,
	KBO_SHARED /* as LOCAL */,
	KBO_BARRIER,
	KBO_CPUID /* imm: leaf, align: subleaf, sub: 0..3 = eax ebx ecx edx */,
	KBO_XGETBV /* register 0, low half */,
};

struct kb_inst {
	enum kb_opcode op;
	struct kb_type type; /* of the result; of the stored value for stores; KB_VOID else */
	uint32_t result;     /* value id, variable id for KBO_VAR, or 0 */
	const struct kb_val
	        *args; /* [n_args]; LOAD: ptr, index; STORE: value, ptr, index; LOOP: lo, hi; SET: value */
	size_t n_args;
	int sub; /* enum kb_bin / kb_un / kb_cmp; part count; lane; loop flags; param flags; PTR_ADD: 1 =
	            apart */
	int align;
	int64_t imm; /* integer constant, displacement, loop step, local count, variable id of GET and SET */
	double fimm; /* float constant */
	const char *name; /* symbol, callee, string text, comment, loop or variable name */
	const int *lanes; /* SHUFFLE: [type.lanes] */
};

struct kb_func {
	const char *name;
	enum kb_linkage linkage;
	enum kb_scalar result;
	int variant;        /* whose code it is: kb_module_variant */
	int64_t group_size; /* work-items of a group; 1 unless a kernel says more */
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
/* The same variant, parameters and code; names of functions, values and variables, and comments do not count.
 */
bool kb_same_func(const struct kb_func *a, const struct kb_func *b);
/* The function that was recorded last, or an earlier one that equals it; the last one is then taken out
 * again. */
const struct kb_func *kb_share_last(struct kb_module *m);
/* Bytes of an element in memory; 0 for what has no place there (VOID, BOOL). */
int kb_scalar_bytes(enum kb_scalar s);
bool kb_is_float(enum kb_scalar s);
const struct kb_caps *kb_module_caps(const struct kb_module *m);

#endif
