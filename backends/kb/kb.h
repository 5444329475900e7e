/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel builder: constructs functions of the kernel IR from C calls, one call an instruction, as LLVM's
 * IRBuilder does. The IR (kernel_ir.h) has about 65 operations on scalars and vectors. Kernel generators call the
 * builder; the IR is then legalized and emitted as LLVM IR (backends/object), C or OpenCL C (backends/print), printed
 * (kb_dump), or executed by the interpreter of the tests (tests/kb_interp), which needs no back end.
 *
 * A generator does not know which emitter follows; it queries capabilities (kb_caps). Values are immutable; only
 * named variables can be assigned, and kb_get reads one at that point. Errors (no memory, wrong types) are sticky:
 * calls go on with harmless values, and kb_verify reports the first error. Control flow is structured: loops and
 * conditionals nest.
 *
 * Sizes and element indices have a type of their own, KB_INDEX, whose width the emitter chooses (i64 on CPUs, int in
 * OpenCL C). Loads and stores take a byte pointer, an index in elements of the accessed scalar type, and a constant
 * displacement in elements; emitters keep the displacement separate, so that it folds into the addressing mode.
 *
 * Each call appends an instruction, and C does not define the order of two calls in one argument list, operator or
 * initializer: use statements there, so that the output does not depend on the compiler (tests/shell/emit_order.py
 * checks).
 */
#ifndef TFMC_BACKENDS_KB_KB_H
#define TFMC_BACKENDS_KB_KB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/support/diag.h"

#define KB_SIGN_BITS (-0x7f7f7f80) /* 0x80808080: the top bits of four bytes */
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
	KB_INDEX, /* sizes and indices; stored in memory as i64 */
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

/* An SSA value of one function. */
struct kb_val {
	uint32_t id; /* 0: none */
};
/* A mutable variable of one function. */
struct kb_var {
	uint32_t id;
};

/* Capabilities of the target. Tile sizes and loop orders are chosen before, by passes; generators only query this. */
struct kb_caps {
	int lanes;        /* f32 elements of a native vector */
	int registers;    /* vector registers */
	bool has_fma;     /* kb_fma is one instruction; otherwise it may round twice */
	bool has_f16;     /* conversions between f16 and f32 are instructions */
	bool has_nearest; /* kb_cvt_nearest of 4 and more lanes is an instruction */
	/* bool has_dot_u8s8, ..: the dot product of 4 and more lanes is an instruction; others are legalized */
#define KB_DOT(op, name) bool has_##name;
#include "backends/kb/kb_ops.def"
	bool has_tiles;       /* AMX: kb_tile_config, .. */
	bool short_bytes;     /* vectors of bytes have at most 16 lanes */
	int64_t shared_bytes; /* shared (local) memory of a work-group, bytes */
};

struct target;
/* The capabilities of a target. */
struct kb_caps kb_caps_of(const struct target *t);

struct kb_module; /* all functions and constant data of an object, in order of definition */
struct kb;        /* the function under construction */

/* An empty module in `arena`, which owns all of it; its functions are for `caps`. NULL without memory. */
struct kb_module *kb_module_create(struct arena *arena, const struct kb_caps *caps);
/* Instructions of all finished functions. */
size_t kb_module_inst_count(const struct kb_module *m);
enum { KB_BASELINE = -1 };
/* Function multiversioning: functions begun from now on belong to variant `number` (initially 0), for a processor
 * with these caps; KB_BASELINE: they run on every processor of the architecture. */
void kb_module_set_variant(struct kb_module *m, int number, const struct kb_caps *caps);
/* True if a function of the variant configures AMX tiles. */
bool kb_module_has_tiles(const struct kb_module *m, int number);
const struct kb_caps *kb_caps(const struct kb *k);
/* True after an error or without memory. */
bool kb_module_failed(const struct kb_module *m);

/* KB_KERNEL: launched over work-groups; returns nothing and is never called. */
enum kb_linkage { KB_INTERNAL, KB_EXPORTED, KB_KERNEL };
enum kb_comment_flags { KB_SOURCE_LOC = 1 };
/* Where code comes from: a line of the model and the layer path of its step, "" without one. file NULL: unknown. */
struct kb_loc {
	const char *file, *path;
	uint32_t line, col;
};
enum kb_call_flags { KB_EXTERNAL = 1 };
enum kb_param_flags { KB_NOALIAS = 1, KB_READONLY = 2 };

/* ---- functions ---- */
/* Begins a function; result is KB_VOID, KB_I32, KB_INDEX or KB_PTR. Never NULL: without memory the function is
 * lost and the module has failed. */
struct kb *kb_begin(struct kb_module *m, const char *name, enum kb_linkage linkage, enum kb_scalar result);
struct kb_val kb_param(struct kb *k, const char *name, struct kb_type type, unsigned flags);
/* Promises that a parameter (an integer, or an address in bytes) is a multiple of `align`, a power of two. */
void kb_assume_multiple(struct kb *k, struct kb_val param, int align);
void kb_comment(struct kb *k, const char *fmt, ...) TFMC_PRINTF(2, 3);
/* A comment that gives the source location of the following code in the model: FILE:LINE:COL and perhaps a path. */
void kb_source_loc(struct kb *k, const struct kb_loc *p);
/* From now on instructions of the module record their locations (debug information); functions from different ones
 * differ for kb_dedup_last. */
void kb_module_keep_locs(struct kb_module *m);
/* The location of the instructions from now on (file NULL: as before); its strings stay the caller's. Returns the
 * number of the one before, for kb_reset_loc. Without kb_module_keep_locs both do nothing. */
uint32_t kb_set_loc(struct kb *k, const struct kb_loc *p);
void kb_reset_loc(struct kb *k, uint32_t number);
void kb_return(struct kb *k, struct kb_val v); /* v: none for KB_VOID; may be inside kb_if */
/* Finishes the function, whose loops and conditions must be closed. */
void kb_end(struct kb *k);
/* Dead code elimination in a finished function: removes unused values and parameters, and variables that are never
 * read. */
void kb_dce(struct kb *k);
/* Calls a function of the module by name; it may be defined later. Returns none for KB_VOID. */
struct kb_val kb_call(struct kb *k, const char *name, enum kb_scalar result, const struct kb_val *args,
                      size_t n);
/* Calls a function outside of the module, with the C calling convention. */
struct kb_val kb_call_external(struct kb *k, const char *name, enum kb_scalar result,
                               const struct kb_val *args, size_t n);
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
/* Address of a zero-terminated constant string. */
struct kb_val kb_string(struct kb *k, const char *text);
/* Defines n bytes of read-only data of the module, which are copied; align: a power of two. kb_symbol gives its
 * address. */
void kb_data(struct kb_module *m, const char *name, enum kb_linkage linkage, const void *bytes, size_t n,
             int align);
/* Address of data of the module, or of an external read-only symbol. */
struct kb_val kb_symbol(struct kb *k, const char *name);
/* <0, 1, .., lanes-1> as i32. */
struct kb_val kb_lane_ids(struct kb *k, int lanes);

/* ---- variables, local arrays ---- */
/* Declares a variable; init may be none. */
struct kb_var kb_var(struct kb *k, const char *name, struct kb_type type, struct kb_val init);
struct kb_val kb_get(struct kb *k, struct kb_var v);
void kb_set(struct kb *k, struct kb_var v, struct kb_val value);
/* Address of a new array on the stack, 64-byte aligned, of at most 65536 elements. Only outside of loops and
 * conditionals. */
struct kb_val kb_local(struct kb *k, const char *name, enum kb_scalar type, int64_t count);

/* ---- control flow ---- */
enum kb_loop_flags { KB_NONEMPTY = 1 /* lo < hi is known: no guard is emitted */ };
/* for (i = lo; i < hi; i += step): returns i (KB_INDEX). step: a constant > 0. */
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
/* Loads at ptr + (index + disp) elements of type.scalar. Lanes: a power of two up to KB_LANES_MAX. align: bytes
 * (0: the size of the scalar). */
struct kb_val kb_load(struct kb *k, struct kb_type type, struct kb_val ptr, struct kb_val index, int64_t disp,
                      int align);
void kb_store(struct kb *k, struct kb_val value, struct kb_val ptr, struct kb_val index, int64_t disp,
              int align);
/* Broadcast: loads one scalar into all lanes. */
struct kb_val kb_load_splat(struct kb *k, struct kb_type type, struct kb_val ptr, struct kb_val index,
                            int64_t disp);
/* Masked: only the first n lanes (1 .. lanes). Memory of the other lanes is not accessed; they are loaded as 0. */
struct kb_val kb_load_part(struct kb *k, struct kb_type type, int n, struct kb_val ptr, struct kb_val index,
                           int64_t disp);
void kb_store_part(struct kb *k, struct kb_val value, int n, struct kb_val ptr, struct kb_val index,
                   int64_t disp);
/* ptr + bytes + disp_bytes. */
struct kb_val kb_ptr_add(struct kb *k, struct kb_val ptr, struct kb_val bytes, int64_t disp_bytes);
/* An opaque copy of the address (LLVM: empty inline assembly). The compiler cannot tell that both are equal, so a
 * load through the copy is emitted again instead of keeping the earlier value in a register (less register
 * pressure). */
struct kb_val kb_ptr_opaque(struct kb *k, struct kb_val ptr);
/* Prefetches for reading, into all cache levels; _l2: into the second level and outer ones. */
void kb_prefetch(struct kb *k, struct kb_val ptr, struct kb_val index_bytes, int64_t disp_bytes);
void kb_prefetch_l2(struct kb *k, struct kb_val ptr, struct kb_val index_bytes, int64_t disp_bytes);

/* ---- arithmetic: operands of equal type; integers wrap ---- */
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
const char *kb_dot_name(enum kb_dot dot); /* in dumps and messages: dot_u8s8 */
enum kb_cmp {
#define KB_CMP(op, name, sign) KB_##op,
#include "backends/kb/kb_ops.def"
};
/* a op b, op a: lane by lane, with the arithmetic of kb_ops.def; operands have one type, which is that of the
 * result. */
struct kb_val kb_bin(struct kb *k, enum kb_bin op, struct kb_val a, struct kb_val b);
struct kb_val kb_un(struct kb *k, enum kb_un op, struct kb_val a);
struct kb_val kb_fma(struct kb *k, struct kb_val a, struct kb_val b, struct kb_val c); /* a * b + c */
/*
 * kb_dot(k, dot, acc, a, b), kb_dot_u8s8(k, acc, a, b), ..: acc[i] + dot(a[i], b[i]). Each i32 lane of a and b packs
 * neighbours along K (4 bytes, 2 i16 or 2 bf16), as VNNI and SDOT take them; acc is i32, of bf16 f32. .._2x2: matrices
 * of 2 x 2 lanes (MMLA). kb_ops.def defines the arithmetic. Pass a broadcast operand as b: x86 then takes it from
 * memory.
 */
struct kb_val kb_dot(struct kb *k, enum kb_dot dot, struct kb_val acc, struct kb_val a, struct kb_val b);
#define KB_DOT(op, name) \
	struct kb_val kb_##name(struct kb *k, struct kb_val acc, struct kb_val a, struct kb_val b);
#include "backends/kb/kb_ops.def"
struct kb_val kb_cmp(struct kb *k, enum kb_cmp op, struct kb_val a, struct kb_val b); /* bool, same lanes */
/* cond ? a : b, lane by lane; a scalar cond is broadcast. */
struct kb_val kb_select(struct kb *k, struct kb_val cond, struct kb_val a, struct kb_val b);
/* The scalar in all lanes (a vector of `lanes` lanes stays as it is); lane `lane` of a vector. */
struct kb_val kb_splat(struct kb *k, struct kb_val scalar, int lanes);
struct kb_val kb_lane(struct kb *k, struct kb_val vector, int lane);
/* Converts values. Float to integer truncates, saturates, NaN gives 0; a wider integer sign-extends (from U8 and U16
 * zero-extends), a narrower one takes the low bits; to f16 and bf16 rounds to nearest even. */
struct kb_val kb_cvt(struct kb *k, struct kb_val v, enum kb_scalar to);
/* f32 to bf16 as an operand of kb_dot_bf16 and AMX tiles, which treat denormals as zero: they may be flushed here, so
 * that vcvtneps2bf16 can be used. */
struct kb_val kb_cvt_bf16_ftz(struct kb *k, struct kb_val v);
/* f32 to the nearest i32, ties to even, for |v| <= 2^22; the result for other v and NaN is unspecified. One
 * instruction: vcvtps2dq, fcvtns. */
struct kb_val kb_cvt_nearest(struct kb *k, struct kb_val v);
/* Reinterprets the bytes as they are in memory (little-endian); the number of lanes changes with the element size. */
struct kb_val kb_bitcast(struct kb *k, struct kb_val v, enum kb_scalar to);
/* Result lane i is lane lanes[i] of the concatenation of a and b; b may be none. The array is copied. */
struct kb_val kb_shuffle(struct kb *k, struct kb_val a, struct kb_val b, const int *lanes, int n);
/* Table look-up: byte indices[i] mod 16 of the table. table: U8 x 16; indices: U8 x 16, 32 or 64. One instruction:
 * vpermb; vpshufb and tbl after an `and`. */
struct kb_val kb_lookup16(struct kb *k, struct kb_val table, struct kb_val indices);
/* The constant U8 x 16. */
struct kb_val kb_const_u8x16(struct kb *k, const uint8_t bytes[16]);
/* Horizontal reduction by the same tree for every target: lower half op upper half, until one lane is left. op:
 * KB_ADD, KB_MAX, KB_MIN. */
struct kb_val kb_reduce(struct kb *k, enum kb_bin op, struct kb_val vector);

/* ---- atomics ---- */
struct kb_val kb_atomic_load(struct kb *k, struct kb_val ptr, int64_t disp);              /* i32, acquire */
void kb_atomic_store(struct kb *k, struct kb_val value, struct kb_val ptr, int64_t disp); /* i32, release */
/* i32, acq_rel; returns the old value */
struct kb_val kb_atomic_add(struct kb *k, struct kb_val value, struct kb_val ptr, int64_t disp);

/* ---- operations without operands: kb_pause, kb_barrier, ..; defined in kb_ops.def ---- */
#define KB_NULLARY(op, name, effect, result, in_kernels) struct kb_val kb_##name(struct kb *k);
#include "backends/kb/kb_ops.def"

/* ---- matrix tiles (AMX): only with kb_caps.has_tiles ---- */
/*
 * Tile registers 0 .. 7 of the worker, up to 16 rows of up to 64 bytes each. They keep their contents over calls and
 * are valid between kb_tile_config and kb_tile_release. Only the LLVM emitter supports them.
 */
enum { KB_TILES = 8, KB_TILE_ROWS = 16, KB_TILE_BYTES = 64, KB_TILE_CONFIG = 64 };
/* Sets the shape of one tile in the operand of kb_tile_config, which is zero at first; bytes: a multiple of 4. */
void kb_tile_shape(uint8_t config[KB_TILE_CONFIG], int tile, int rows, int bytes);
/* Sets all shapes from the KB_TILE_CONFIG bytes at ptr and zeroes the tiles. ldtilecfg */
void kb_tile_config(struct kb *k, struct kb_val ptr);
/* Configures the tiles of a GEMM; ptr: KB_TILE_CONFIG bytes, which it writes. From KB_TILE_ACC on: 16 x 16
 * accumulators; from KB_TILE_X on: 16 rows of `bytes` bytes of x; from KB_TILE_WEIGHTS on: `bytes` bytes of each
 * of 16 columns. */
enum { KB_TILE_ACC = 0, KB_TILE_X = 4, KB_TILE_WEIGHTS = 6 };
void kb_tile_config_gemm(struct kb *k, struct kb_val ptr, int bytes);
void kb_tile_zero(struct kb *k, int tile); /* tilezero */
/* The rows are at ptr, ptr + stride, ..; stride: KB_INDEX, bytes. tileloadd, tilestored */
void kb_tile_load(struct kb *k, int tile, struct kb_val ptr, struct kb_val stride);
void kb_tile_store(struct kb *k, int tile, struct kb_val ptr, struct kb_val stride);
/*
 * acc[m][n] += dot(a[k][n], b[m][k]) over all k, on lanes of 32 bits: a is packed weights (a k-row of a 16-column
 * panel is a row of a), b is rows of x; both are exchanged against Intel's names. DOT_U8S8 (tdpbsud), DOT_S8S8
 * (tdpbssd): exact, wraps. DOT_BF16 (tdpbf16ps): the first elements of the pairs are accumulated from 0 by fma, the
 * second ones likewise; then acc + (first + second); denormals count as zero, as in kb_dot_bf16.
 */
void kb_tile_dot(struct kb *k, enum kb_dot dot, int acc, int a, int b);

/* ---- work-groups (KB_KERNEL functions) ---- */
/*
 * A launch runs `groups` work-groups of `items` work-items each, in one dimension. Work-items of a group share arrays
 * and synchronize by barriers; groups are independent.
 */
/* Sets the work-items of a group, once, after the parameters; the default is 1. */
void kb_group_size(struct kb *k, int64_t items);
/* Address of a new array in shared (OpenCL: local) memory of the group, uninitialized. Only outside of loops and
 * conditionals. */
struct kb_val kb_shared(struct kb *k, const char *name, enum kb_scalar type, int64_t count);
/* Emits a barrier and frees all shared arrays: later kb_shared calls return their memory again, first fit by type. */
void kb_reuse_shared(struct kb *k);

/* ---- x86 ---- */
/* Register reg (0..3: eax, ebx, ecx, edx) of cpuid for the leaf and subleaf, i32. */
struct kb_val kb_cpuid(struct kb *k, int64_t leaf, int subleaf, int reg);

/* Type of a value; KB_VOID for none. */
struct kb_type kb_type_of(const struct kb *k, struct kb_val v);
/* True, with the value in *out, if v is a constant KB_INDEX. */
bool kb_const_index(const struct kb *k, struct kb_val v, int64_t *out);
/* v, a KB_INDEX, as a value plus a constant: returns the value, none if v is constant, and adds the constant to
 * *plus. */
struct kb_val kb_split_index(const struct kb *k, struct kb_val v, int64_t *plus);

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

/* Verifies the module (verify.c). TFMC_INTERNAL after a diagnostic for the first violation. */
TFMC_MUST_USE enum tfmc_status kb_verify(const struct kb_module *m, struct diag_context *cx);
/* Appends the text form of one function (NULL: all). */
void kb_dump(struct buf *out, const struct kb_module *m, const char *name);

#endif
