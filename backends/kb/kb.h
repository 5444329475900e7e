/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel builder: about fifty operations on scalars and vectors that
 * templates call in plain C. It records {op, type, operands, immediate} and
 * replays the record to a printer (backends/llvm: LLVM IR), to a dump, or to
 * the kernel interpreter that tests templates without any back end.
 *
 * A template never asks which printer will come; it asks capabilities. All
 * values are immutable; named variables are the only mutable things. `get`
 * snapshots. Failure (out of memory, ill-typed use) is sticky; kb_verify tells.
 * Index values have a type of their own, whose width the printer chooses (i64 on
 * CPUs, int in OpenCL C). Addresses are bytes: load and store take a pointer, an
 * index in elements of the accessed scalar type, and a constant displacement
 * in elements that printers keep apart from the index (no extra registers).
 */
#ifndef TFMC_BACKENDS_KB_KB_H
#define TFMC_BACKENDS_KB_KB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/diag/diag.h"

#define KB_LANES_MAX 64

enum kb_scalar {
	KB_VOID,
	KB_BOOL,
	KB_I8,
	KB_U8,
	KB_I16,
	KB_U16,
	KB_I32,
	KB_I64,
	KB_INDEX, /* of elements and bytes; in memory, where it may be at all, as i64 */
	KB_F16,
	KB_BF16,
	KB_F32,
	KB_F64,
	KB_PTR
};

struct kb_type {
	enum kb_scalar scalar;
	int lanes; /* 1: scalar */
};
#define KB_TYPE(s, n) ((struct kb_type){(s), (n)})
#define KB_F32_T      KB_TYPE(KB_F32, 1)
#define KB_I32_T      KB_TYPE(KB_I32, 1)
#define KB_INDEX_T    KB_TYPE(KB_INDEX, 1)
#define KB_BOOL_T     KB_TYPE(KB_BOOL, 1)
#define KB_PTR_T      KB_TYPE(KB_PTR, 1)

struct kb_val {
	uint32_t id; /* 0: none */
};
struct kb_var {
	uint32_t id;
};

/* What the machine offers; schedules are chosen before, templates only ask. */
struct kb_caps {
	int lanes;        /* f32 elements of a native vector */
	int registers;    /* vector registers */
	bool has_fma;     /* fma is one instruction; otherwise it may round twice */
	bool has_f16;     /* conversions between f16 and f32 are instructions */
	bool has_nearest; /* kb_cvt_nearest is one, of four lanes and more */
	/* bool has_dot_u8s8, ..: the dot product is one, of four lanes and more; others are written out */
#define KB_DOT(op, name) bool has_##name;
#include "backends/kb/kb_ops.def"
	bool has_tiles;       /* kb_tile_config, .. */
	bool short_bytes;     /* vectors of bytes have at most 16 lanes */
	int64_t shared_bytes; /* that the items of a work-group may share */
};

struct target;
/* Of a machine. */
struct kb_caps kb_caps_of(const struct target *t);

struct kb_module; /* all kernels and functions of an object, in order of definition */
struct kb;        /* the function under construction */

struct kb_module *kb_module_create(struct arena *arena, const struct kb_caps *caps);
/* Of all functions that have ended. */
size_t kb_module_instructions(const struct kb_module *m);
enum { KB_BASELINE = -1 };
/* Functions that begin from here on are code of variant `number` (at first 0), for a machine with these caps;
 * KB_BASELINE: they run on every processor of the architecture. */
void kb_module_variant(struct kb_module *m, int number, const struct kb_caps *caps);
/* Whether a function of the variant has called kb_tile_config. */
bool kb_module_has_tiles(const struct kb_module *m, int number);
const struct kb_caps *kb_caps(const struct kb *k);
bool kb_module_failed(const struct kb_module *m);

/* KERNEL: launched over work-groups; gives nothing, is not called. */
enum kb_linkage { KB_INTERNAL, KB_EXPORTED, KB_KERNEL };
enum kb_comment_flags { KB_PLACE = 1 };
enum kb_call_flags { KB_OTHER = 1 };
enum kb_param_flags { KB_NOALIAS = 1, KB_READONLY = 2 };

/* ---- functions ---- */
/* Begins a function; result KB_VOID, KB_I32, KB_INDEX or KB_PTR. A comment line (shapes, YAML place) may
 * follow. Never NULL: without memory what is recorded is lost, and the module has failed. */
struct kb *kb_begin(struct kb_module *m, const char *name, enum kb_linkage linkage, enum kb_scalar result);
struct kb_val kb_param(struct kb *k, const char *name, struct kb_type type, unsigned flags);
/* States that a parameter, a number or an address in bytes, is a multiple of `align`, a power of two. */
void kb_assume_multiple(struct kb *k, struct kb_val param, int align);
void kb_comment(struct kb *k, const char *fmt, ...) TFMC_PRINTF(2, 3);
/* A comment that says which place of the model follows: FILE:LINE:COL and perhaps a path. */
void kb_place(struct kb *k, const char *fmt, ...) TFMC_PRINTF(2, 3);
void kb_return(struct kb *k, struct kb_val v); /* none for KB_VOID; may be inside if_ */
void kb_end(struct kb *k);
/* Takes away what an ended function does not need: unused values and parameters, variables nobody reads. */
void kb_prune(struct kb *k);
/* Calls a function of the module by name (defined before or later). Gives none for KB_VOID. */
struct kb_val kb_call(struct kb *k, const char *name, enum kb_scalar result, const struct kb_val *args,
                      size_t n);
/* Calls a function of another object, with the C calling convention. */
struct kb_val kb_call_other(struct kb *k, const char *name, enum kb_scalar result, const struct kb_val *args,
                            size_t n);
/* Calls through a function pointer with the C calling convention. */
struct kb_val kb_call_ptr(struct kb *k, struct kb_val fn, enum kb_scalar result, const struct kb_val *args,
                          size_t n);
struct kb_val kb_func_addr(struct kb *k, const char *name);

/* ---- constants ---- */
struct kb_val kb_f32(struct kb *k, float v);
struct kb_val kb_f64(struct kb *k, double v);
struct kb_val kb_i32(struct kb *k, int32_t v);
struct kb_val kb_i64(struct kb *k, int64_t v);
struct kb_val kb_index(struct kb *k, int64_t v);
struct kb_val kb_bool(struct kb *k, bool v);
struct kb_val kb_null(struct kb *k);
/* Address of a zero-terminated constant string, of constant bytes (align: power of two), or of an external
 * read-only symbol. */
struct kb_val kb_string(struct kb *k, const char *text);
/* Defines read-only data of the module; visible by kb_symbol under its name. */
void kb_data(struct kb_module *m, const char *name, enum kb_linkage linkage, const void *bytes, size_t n,
             int align);
struct kb_val kb_symbol(struct kb *k, const char *name);
/* <0, 1, .., lanes-1> as i32. */
struct kb_val kb_lane_ids(struct kb *k, int lanes);

/* ---- variables, local arrays ---- */
struct kb_var kb_var(struct kb *k, const char *name, struct kb_type type,
                     struct kb_val init); /* init may be none */
struct kb_val kb_get(struct kb *k, struct kb_var v);
void kb_set(struct kb *k, struct kb_var v, struct kb_val value);
/* A small array on the stack, 64-byte aligned; gives its address. Call at function level. */
struct kb_val kb_local(struct kb *k, const char *name, enum kb_scalar type, int64_t count);

/* ---- control flow ---- */
enum kb_loop_flags { KB_NONEMPTY = 1 /* lo < hi is known: no guard */ };
/* for (i = lo; i < hi; i += step): gives i (index). step > 0 constant. */
struct kb_val kb_loop(struct kb *k, const char *name, struct kb_val lo, struct kb_val hi, int64_t step,
                      unsigned flags);
void kb_end_loop(struct kb *k);
void kb_forever(struct kb *k);                      /* until kb_break_if */
void kb_break_if(struct kb *k, struct kb_val cond); /* directly inside kb_forever */
void kb_end_forever(struct kb *k);
void kb_if(struct kb *k, struct kb_val cond);
void kb_else(struct kb *k);
void kb_end_if(struct kb *k);

/* ---- memory ---- */
/* Element index + disp, in elements of type.scalar. align in bytes (0: that of the scalar). */
struct kb_val kb_load(struct kb *k, struct kb_type type, struct kb_val ptr, struct kb_val index, int64_t disp,
                      int align);
void kb_store(struct kb *k, struct kb_val value, struct kb_val ptr, struct kb_val index, int64_t disp,
              int align);
/* Loads one scalar into all lanes. */
struct kb_val kb_load_splat(struct kb *k, struct kb_type type, struct kb_val ptr, struct kb_val index,
                            int64_t disp);
/* Only the first n lanes (constant, 1..lanes): memory of the others is not touched, loaded as 0. */
struct kb_val kb_load_part(struct kb *k, struct kb_type type, int n, struct kb_val ptr, struct kb_val index,
                           int64_t disp);
void kb_store_part(struct kb *k, struct kb_val value, int n, struct kb_val ptr, struct kb_val index,
                   int64_t disp);
struct kb_val kb_ptr_add(struct kb *k, struct kb_val ptr, struct kb_val bytes, int64_t disp_bytes);
/* The same address, which a compiler does not know to be the same: what is loaded through it is loaded again,
 * where it would have taken a register to keep what was loaded through ptr. */
struct kb_val kb_ptr_apart(struct kb *k, struct kb_val ptr);
/* Into all caches; into the second-level cache and those behind it. */
void kb_prefetch(struct kb *k, struct kb_val ptr, struct kb_val index_bytes, int64_t disp_bytes);
void kb_prefetch_l2(struct kb *k, struct kb_val ptr, struct kb_val index_bytes, int64_t disp_bytes);

/* ---- arithmetic: operands of equal type; ints wrap ---- */
enum kb_bin {
#define KB_BIN(op, name, sign, operands) KB_##op,
#include "backends/kb/kb_ops.def"
};
enum kb_un {
#define KB_UN(op, name, operands) KB_##op,
#include "backends/kb/kb_ops.def"
};
enum kb_dot {
#define KB_DOT(op, name) KB_##op,
#include "backends/kb/kb_ops.def"
};
enum kb_cmp {
#define KB_CMP(op, name, sign) KB_##op,
#include "backends/kb/kb_ops.def"
};
struct kb_val kb_bin(struct kb *k, enum kb_bin op, struct kb_val a, struct kb_val b);
struct kb_val kb_un(struct kb *k, enum kb_un op, struct kb_val a);
struct kb_val kb_fma(struct kb *k, struct kb_val a, struct kb_val b, struct kb_val c); /* a * b + c */
/*
 * kb_dot_u8s8(k, sum, a, b), .._u7s8, .._s8s8, .._s16s16, .._u7s8_halves (sum i32) and .._bf16, .._bf16_odd (sum f32): sum[i] + a[i] . b[i],
 * where each word i32 of a and b holds neighbours along K; .._2x2: the same for matrices of 2 x 2 words. kb_ops.def has
 * the arithmetic. The operand that is loaded into all lanes should be b: then it is an operand in memory.
 */
#define KB_DOT(op, name) \
	struct kb_val kb_##name(struct kb *k, struct kb_val sum, struct kb_val a, struct kb_val b);
#include "backends/kb/kb_ops.def"
struct kb_val kb_cmp(struct kb *k, enum kb_cmp op, struct kb_val a, struct kb_val b); /* bool, same lanes */
struct kb_val kb_select(struct kb *k, struct kb_val cond, struct kb_val a, struct kb_val b);
struct kb_val kb_splat(struct kb *k, struct kb_val scalar, int lanes);
struct kb_val kb_lane(struct kb *k, struct kb_val vector, int lane);
/* Value conversion (float to int truncates, saturating; a wider int sign-extends, from U8 and U16 zero-extends; a
 * narrower one takes the low bits; f16/bf16 round to even). */
struct kb_val kb_cvt(struct kb *k, struct kb_val v, enum kb_scalar to);
/* f32 to bf16 for kb_dot_bf16 and tiles, where numbers below 2^-126 count as zeros: they may become some here. */
struct kb_val kb_cvt_factor(struct kb *k, struct kb_val v);
/* f32 to the nearest i32, halfway to the even one. For |v| <= 2^22; other v and NaN give some number. One
 * instruction: vcvtps2dq, fcvtns. */
struct kb_val kb_cvt_nearest(struct kb *k, struct kb_val v);
/* The same bytes, as in memory (little-endian): as many lanes as they are of the other type. */
struct kb_val kb_bitcast(struct kb *k, struct kb_val v, enum kb_scalar to);
/* lanes[i] in [0, 2 * lanes of a): element of a then b; b may be none. */
struct kb_val kb_shuffle(struct kb *k, struct kb_val a, struct kb_val b, const int *lanes, int n);
/*
 * Byte indices[i] modulo 16 of the table, which is U8 x 16; indices are U8, 16, 32 or 64 of them. One instruction: vpermb;
 * vpshufb, tbl behind an `and`.
 */
struct kb_val kb_lookup16(struct kb *k, struct kb_val table, struct kb_val indices);
/* A constant table, U8 x 16. */
struct kb_val kb_bytes16(struct kb *k, const uint8_t bytes[16]);
/* One fixed tree everywhere: halves added pairwise. op: KB_ADD, KB_MAX, KB_MIN. */
struct kb_val kb_reduce(struct kb *k, enum kb_bin op, struct kb_val vector);

/* ---- several workers ---- */
struct kb_val kb_atomic_load(struct kb *k, struct kb_val ptr, int64_t disp);              /* i32, acquire */
void kb_atomic_store(struct kb *k, struct kb_val value, struct kb_val ptr, int64_t disp); /* i32, release */
struct kb_val kb_atomic_add(struct kb *k, struct kb_val value, struct kb_val ptr,
                            int64_t disp); /* i32, acq_rel; old value */

/* ---- what takes nothing: kb_pause, kb_barrier, ..; kb_ops.def says what each gives ---- */
#define KB_ASK(op, name, effect, result, in_kernels) struct kb_val kb_##name(struct kb *k);
#include "backends/kb/kb_ops.def"

/* ---- matrix tiles: only where kb_caps says has_tiles ---- */
/*
 * Registers 0 .. 7 of the worker, of up to 16 rows of up to 64 bytes. They keep their contents over calls and belong
 * to the code between kb_tile_config and kb_tile_release; other printers than LLVM refuse them. LLVM: AMX.
 */
enum { KB_TILES = 8, KB_TILE_ROWS = 16, KB_TILE_BYTES = 64, KB_TILE_CONFIG = 64 };
/* Writes what kb_tile_config reads, of one tile; bytes a multiple of 4. The rest of `config` is zero at first. */
void kb_tile_shape(uint8_t config[KB_TILE_CONFIG], int tile, int rows, int bytes);
/* Gives the tiles the shapes at ptr, KB_TILE_CONFIG bytes, and zeros. ldtilecfg */
void kb_tile_config(struct kb *k, struct kb_val ptr);
/* The same with shapes that it writes there first: from these on whole tiles of sums, 16 rows of so many bytes of x, as
 * many bytes of each column of weights. */
enum { KB_TILE_SUMS = 0, KB_TILE_X = 4, KB_TILE_WEIGHTS = 6 };
void kb_tile_config_products(struct kb *k, struct kb_val ptr, int bytes);
void kb_tile_zero(struct kb *k, int tile); /* tilezero */
/* Rows at ptr, ptr + stride, ..; stride (index) in bytes. tileloadd, tilestored */
void kb_tile_load(struct kb *k, int tile, struct kb_val ptr, struct kb_val stride);
void kb_tile_store(struct kb *k, int tile, struct kb_val ptr, struct kb_val stride);
/*
 * Row m, word n of the sum grows by the dot products of words [k][n] of a and [m][k] of b, over all k: a is a matrix in
 * panels (a line of 16 columns is a row of a), b rows of x. DOT_U8S8 (tdpbsud), DOT_S8S8 (tdpbssd): exact, wraps.
 * DOT_BF16 (tdpbf16ps): the first of the pairs have a sum of their own from 0 on, and the second, each by fma; then
 * sum + (first + second); with the zeros of kb_dot_bf16.
 */
void kb_tile_dot(struct kb *k, enum kb_dot dot, int sum, int a, int b);

/* ---- work-groups (KB_KERNEL functions) ---- */
/*
 * A launch runs `groups` work-groups of `items` work-items each, in one dimension; templates make more of
 * them by division. Items of a group share arrays and wait for each other, groups never do.
 */
/* Sets the items of a group; after the parameters, once. Functions that do not say have one. */
void kb_group_size(struct kb *k, int64_t items);
/* An array that all items of a group share; at function level; its contents are undefined at first. */
struct kb_val kb_shared(struct kb *k, const char *name, enum kb_scalar type, int64_t count);
/* A barrier: nobody needs the arrays any more. Those that are asked for from now on lie in their place. */
void kb_reuse_shared(struct kb *k);

/* ---- x86 processors: what they offer ---- */
/* Register reg (0..3: eax, ebx, ecx, edx) of cpuid with that leaf and subleaf, i32. */
struct kb_val kb_cpuid(struct kb *k, int64_t leaf, int subleaf, int reg);

/* Type of a value (lanes and scalar). */
struct kb_type kb_type_of(const struct kb *k, struct kb_val v);
bool kb_const_index(const struct kb *k, struct kb_val v, int64_t *out); /* true when v is a constant index */

/* Shorthands. */
static inline struct kb_val kb_add(struct kb *k, struct kb_val a, struct kb_val b)
{
	return kb_bin(k, KB_ADD, a, b);
}
static inline struct kb_val kb_sub(struct kb *k, struct kb_val a, struct kb_val b)
{
	return kb_bin(k, KB_SUB, a, b);
}
static inline struct kb_val kb_mul(struct kb *k, struct kb_val a, struct kb_val b)
{
	return kb_bin(k, KB_MUL, a, b);
}
static inline struct kb_val kb_min(struct kb *k, struct kb_val a, struct kb_val b)
{
	return kb_bin(k, KB_MIN, a, b);
}
static inline struct kb_val kb_max(struct kb *k, struct kb_val a, struct kb_val b)
{
	return kb_bin(k, KB_MAX, a, b);
}
static inline struct kb_val kb_add_const(struct kb *k, struct kb_val a, int64_t c)
{
	return kb_bin(k, KB_ADD, a, kb_index(k, c));
}
static inline struct kb_val kb_mul_const(struct kb *k, struct kb_val a, int64_t c)
{
	return kb_bin(k, KB_MUL, a, kb_index(k, c));
}
static inline struct kb_val kb_div_const(struct kb *k, struct kb_val a, int64_t c)
{
	return kb_bin(k, KB_DIV, a, kb_index(k, c));
}
static inline struct kb_val kb_rem_const(struct kb *k, struct kb_val a, int64_t c)
{
	return kb_bin(k, KB_REM, a, kb_index(k, c));
}

/* Checks the whole record: types, nesting, definitions before use, calls fit. Reports INTERNAL diagnostics.
 */
TFMC_MUST_USE enum tfmc_status kb_verify(const struct kb_module *m, struct diag_context *cx);
/* Deterministic text of one function (NULL: all), for people and tests. */
void kb_dump(struct buf *out, const struct kb_module *m, const char *name);

#endif
