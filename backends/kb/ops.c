/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel builder, part 2: memory, arithmetic, vectors, atomics, matrix tiles. Index arithmetic on constants is
 * folded when it is emitted, so that generators write plain formulas and emitters still see constant displacements
 * and strides.
 */
#include "backends/kb/internal.h"

#include <string.h>

#include "ir/support/checked.h"

/* ---- memory ---- */

static void check_address(struct kb *k, enum kb_scalar s, struct kb_val ptr, struct kb_val index)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	kb_require(k, kb_same_type(kb_type_of(k, index), KB_INDEX_T), "the index is not of type index");
	kb_require(k, kb_scalar_bytes(s) > 0, "the type cannot be stored");
}

static bool is_lane_count(int lanes)
{
	return lanes >= 1 && lanes <= KB_LANES_MAX && (lanes & (lanes - 1)) == 0;
}

/* Moves a constant index into *disp. Returns the remaining index. */
static struct kb_val fold_into_disp(struct kb *k, struct kb_val index, int64_t *disp)
{
	int64_t c, sum;
	if (!kb_const_index(k, index, &c) || c == 0 || !checked_add_i64(*disp, c, &sum))
		return index;
	*disp = sum;
	return kb_index(k, 0);
}

static struct kb_val emit_load(struct kb *k, struct kb_inst inst, struct kb_val ptr, struct kb_val index)
{
	check_address(k, inst.type.scalar, ptr, index);
	kb_require(k, is_lane_count(inst.type.lanes), "the number of lanes is not a power of two up to 64");
	struct kb_val args[] = {ptr, fold_into_disp(k, index, &inst.imm)};
	return kb_emit(k, inst, args, 2, true);
}

static int default_align(enum kb_scalar s, int align)
{
	return align ? align : kb_scalar_bytes(s);
}

struct kb_val kb_load(struct kb *k, struct kb_type type, struct kb_val ptr, struct kb_val index, int64_t disp,
                      int align)
{
	struct kb_inst inst = {
	        .op = KBO_LOAD, .type = type, .imm = disp, .align = default_align(type.scalar, align)};
	return emit_load(k, inst, ptr, index);
}

struct kb_val kb_load_splat(struct kb *k, struct kb_type type, struct kb_val ptr, struct kb_val index,
                            int64_t disp)
{
	struct kb_inst inst = {
	        .op = KBO_LOAD_SPLAT, .type = type, .imm = disp, .align = kb_scalar_bytes(type.scalar)};
	if (type.lanes == 1)
		inst.op = KBO_LOAD;
	return emit_load(k, inst, ptr, index);
}

struct kb_val kb_load_part(struct kb *k, struct kb_type type, int n, struct kb_val ptr, struct kb_val index,
                           int64_t disp)
{
	struct kb_inst inst = {.op = KBO_LOAD_PART,
	                       .type = type,
	                       .n_lanes = n,
	                       .imm = disp,
	                       .align = kb_scalar_bytes(type.scalar)};
	kb_require(k, n >= 1 && n <= type.lanes, "more lanes than the vector has, or none");
	if (n == type.lanes)
		inst.op = KBO_LOAD;
	return emit_load(k, inst, ptr, index);
}

static void emit_store(struct kb *k, struct kb_inst inst, struct kb_val value, struct kb_val ptr,
                       struct kb_val index)
{
	check_address(k, inst.type.scalar, ptr, index);
	kb_require(k, is_lane_count(inst.type.lanes), "the number of lanes is not a power of two up to 64");
	struct kb_val args[] = {value, ptr, fold_into_disp(k, index, &inst.imm)};
	kb_emit(k, inst, args, 3, false);
}

void kb_store(struct kb *k, struct kb_val value, struct kb_val ptr, struct kb_val index, int64_t disp,
              int align)
{
	struct kb_type type = kb_type_of(k, value);
	struct kb_inst inst = {
	        .op = KBO_STORE, .type = type, .imm = disp, .align = default_align(type.scalar, align)};
	emit_store(k, inst, value, ptr, index);
}

void kb_store_part(struct kb *k, struct kb_val value, int n, struct kb_val ptr, struct kb_val index,
                   int64_t disp)
{
	struct kb_type type = kb_type_of(k, value);
	struct kb_inst inst = {.op = KBO_STORE_PART,
	                       .type = type,
	                       .n_lanes = n,
	                       .imm = disp,
	                       .align = kb_scalar_bytes(type.scalar)};
	kb_require(k, n >= 1 && n <= type.lanes, "more lanes than the vector has, or none");
	if (n == type.lanes)
		inst.op = KBO_STORE;
	emit_store(k, inst, value, ptr, index);
}

struct kb_val kb_ptr_add(struct kb *k, struct kb_val ptr, struct kb_val bytes, int64_t disp_bytes)
{
	struct kb_inst inst = {.op = KBO_PTR_ADD, .type = KB_PTR_T, .imm = disp_bytes};
	check_address(k, KB_I8, ptr, bytes);
	struct kb_val args[] = {ptr, fold_into_disp(k, bytes, &inst.imm)};
	int64_t zero;
	if (inst.imm == 0 && kb_const_index(k, args[1], &zero) && zero == 0)
		return ptr;
	return kb_emit(k, inst, args, 2, true);
}

struct kb_val kb_ptr_opaque(struct kb *k, struct kb_val ptr)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	return kb_emit(k, (struct kb_inst){.op = KBO_PTR_OPAQUE, .type = KB_PTR_T}, &ptr, 1, true);
}

static void emit_prefetch(struct kb *k, unsigned flags, struct kb_val ptr, struct kb_val index_bytes,
                          int64_t disp_bytes)
{
	struct kb_inst inst = {.op = KBO_PREFETCH, .flags = flags, .imm = disp_bytes};
	check_address(k, KB_I8, ptr, index_bytes);
	struct kb_val args[] = {ptr, index_bytes};
	kb_emit(k, inst, args, 2, false);
}

void kb_prefetch(struct kb *k, struct kb_val ptr, struct kb_val index_bytes, int64_t disp_bytes)
{
	emit_prefetch(k, 0, ptr, index_bytes, disp_bytes);
}

void kb_prefetch_l2(struct kb *k, struct kb_val ptr, struct kb_val index_bytes, int64_t disp_bytes)
{
	emit_prefetch(k, KB_L2, ptr, index_bytes, disp_bytes);
}

/* ---- arithmetic ---- */

static bool fold_consts(enum kb_bin op, int64_t x, int64_t y, int64_t *out)
{
	switch (op) {
	case KB_ADD: return checked_add_i64(x, y, out);
	case KB_SUB: return checked_sub_i64(x, y, out);
	case KB_MUL: return checked_mul_i64(x, y, out);
	case KB_DIV:
		if (y <= 0)
			return false;
		*out = x / y;
		return true;
	case KB_REM:
		if (y <= 0)
			return false;
		*out = x % y;
		return true;
	case KB_MIN: *out = x < y ? x : y; return true;
	case KB_MAX: *out = x > y ? x : y; return true;
	default: return false;
	}
}

/* x op c for x + 0, x - 0, x * 1, x / 1 (identities) and x * 0, x % 1 (zero). False for other constants. */
static bool fold_identity(struct kb *k, enum kb_bin op, struct kb_val x, int64_t c, struct kb_val *out)
{
	bool same = (c == 0 && (op == KB_ADD || op == KB_SUB)) || (c == 1 && (op == KB_MUL || op == KB_DIV));
	bool zero = (c == 0 && op == KB_MUL) || (c == 1 && op == KB_REM);
	if (!same && !zero)
		return false;
	*out = same ? x : kb_index(k, 0);
	return true;
}

/* Constant folding of index arithmetic. False if a op b must be emitted. */
static bool fold_index(struct kb *k, enum kb_bin op, struct kb_val a, struct kb_val b, struct kb_val *out)
{
	int64_t x = 0, y = 0, c;
	bool ca = kb_const_index(k, a, &x), cb = kb_const_index(k, b, &y);
	if (ca && cb && fold_consts(op, x, y, &c)) {
		*out = kb_index(k, c);
		return true;
	}
	if (cb)
		return fold_identity(k, op, a, y, out);
	return ca && (op == KB_ADD || op == KB_MUL) && fold_identity(k, op, b, x, out);
}

struct kb_val kb_bin(struct kb *k, enum kb_bin op, struct kb_val a, struct kb_val b)
{
	struct kb_type type = kb_type_of(k, a);
	if (!kb_same_type(type, kb_type_of(k, b)) || !kb_bin_fits(op, type.scalar))
		return kb_poison(k, type);
	struct kb_val folded;
	if (type.scalar == KB_INDEX && type.lanes == 1 && fold_index(k, op, a, b, &folded))
		return folded;
	struct kb_inst inst = {.op = KBO_BIN, .type = type, .bin = op};
	struct kb_val args[] = {a, b};
	return kb_emit(k, inst, args, 2, true);
}

struct kb_val kb_un(struct kb *k, enum kb_un op, struct kb_val a)
{
	struct kb_type type = kb_type_of(k, a);
	if (!kb_un_fits(op, type.scalar))
		return kb_poison(k, type);
	struct kb_inst inst = {.op = KBO_UN, .type = type, .un = op};
	return kb_emit(k, inst, &a, 1, true);
}

struct kb_val kb_fma(struct kb *k, struct kb_val a, struct kb_val b, struct kb_val c)
{
	struct kb_type type = kb_type_of(k, a);
	bool fits = kb_same_type(type, kb_type_of(k, b)) && kb_same_type(type, kb_type_of(k, c));
	if (!fits || (type.scalar != KB_F32 && type.scalar != KB_F64))
		return kb_poison(k, type);
	struct kb_inst inst = {.op = KBO_FMA, .type = type};
	struct kb_val args[] = {a, b, c};
	return kb_emit(k, inst, args, 3, true);
}

static struct kb_val emit_dot(struct kb *k, enum kb_dot dot, struct kb_val acc, struct kb_val a,
                              struct kb_val b)
{
	struct kb_type type = kb_type_of(k, acc), packed = KB_TYPE(KB_I32, type.lanes);
	bool fits = kb_same_type(packed, kb_type_of(k, a)) && kb_same_type(packed, kb_type_of(k, b)) &&
	            type.scalar == (kb_dot_is_float(dot) ? KB_F32 : KB_I32) &&
	            (type.lanes >= 4 || !kb_dot_is_2x2(dot));
	struct kb_inst inst = {.op = KBO_DOT, .type = type, .dot = dot};
	struct kb_val args[] = {acc, a, b};
	return fits ? kb_emit(k, inst, args, 3, true) : kb_poison(k, type);
}

#define KB_DOT(op, name)                                                                           \
	struct kb_val kb_##name(struct kb *k, struct kb_val acc, struct kb_val a, struct kb_val b) \
	{                                                                                          \
		return emit_dot(k, KB_##op, acc, a, b);                                            \
	}
#include "backends/kb/kb_ops.def"

struct kb_val kb_lookup16(struct kb *k, struct kb_val table, struct kb_val indices)
{
	struct kb_type type = kb_type_of(k, indices);
	bool fits = kb_same_type(kb_type_of(k, table), KB_TYPE(KB_U8, 16)) && type.scalar == KB_U8 &&
	            type.lanes >= 16;
	struct kb_val args[] = {table, indices};
	return fits ? kb_emit(k, (struct kb_inst){.op = KBO_LOOKUP16, .type = type}, args, 2, true)
	            : kb_poison(k, type);
}

/* The IR has scalar constants only: selects four u32 constants by lane number. LLVM folds it to one vector
 * constant. */
struct kb_val kb_const_u8x16(struct kb *k, const uint8_t bytes[16])
{
	struct kb_val ids = kb_lane_ids(k, 4), packed = {0};
	for (int i = 0; i < 4; i++) {
		uint32_t word = 0;
		for (int at = 3; at >= 0; at--)
			word = word << 8 | bytes[4 * i + at];
		struct kb_val all = kb_splat(k, kb_i32(k, (int32_t)word), 4);
		struct kb_val is_here = kb_cmp(k, KB_EQ, ids, kb_splat(k, kb_i32(k, i), 4));
		packed = i ? kb_select(k, is_here, all, packed) : all;
	}
	return kb_bitcast(k, packed, KB_U8);
}

struct kb_val kb_cmp(struct kb *k, enum kb_cmp op, struct kb_val a, struct kb_val b)
{
	struct kb_type type = kb_type_of(k, a);
	struct kb_inst inst = {.op = KBO_CMP, .type = KB_TYPE(KB_BOOL, type.lanes), .cmp = op};
	bool number = type.scalar == KB_F32 || type.scalar == KB_F64 || kb_is_int(type.scalar);
	bool equality = (op == KB_EQ || op == KB_NE) && type.scalar == KB_PTR;
	if (!kb_same_type(type, kb_type_of(k, b)) || !(number || equality))
		return kb_poison(k, inst.type);
	struct kb_val args[] = {a, b};
	return kb_emit(k, inst, args, 2, true);
}

struct kb_val kb_select(struct kb *k, struct kb_val cond, struct kb_val a, struct kb_val b)
{
	struct kb_type type = kb_type_of(k, a);
	struct kb_type c = kb_type_of(k, cond);
	bool fits = kb_same_type(type, kb_type_of(k, b)) && c.scalar == KB_BOOL &&
	            (c.lanes == type.lanes || c.lanes == 1);
	if (!fits)
		return kb_poison(k, type);
	struct kb_inst inst = {.op = KBO_SELECT, .type = type};
	struct kb_val args[] = {kb_splat(k, cond, type.lanes), a, b};
	return kb_emit(k, inst, args, 3, true);
}

struct kb_val kb_splat(struct kb *k, struct kb_val scalar, int lanes)
{
	struct kb_type type = kb_type_of(k, scalar);
	if (type.lanes == lanes)
		return scalar;
	struct kb_inst inst = {.op = KBO_SPLAT, .type = KB_TYPE(type.scalar, lanes)};
	if (type.lanes != 1 || type.scalar == KB_PTR || !is_lane_count(lanes))
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &scalar, 1, true);
}

struct kb_val kb_lane(struct kb *k, struct kb_val vector, int lane)
{
	struct kb_type type = kb_type_of(k, vector);
	if (type.lanes == 1 && lane == 0)
		return vector;
	struct kb_inst inst = {.op = KBO_LANE, .type = KB_TYPE(type.scalar, 1), .lane = lane};
	if (lane < 0 || lane >= type.lanes)
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &vector, 1, true);
}

struct kb_val kb_cvt(struct kb *k, struct kb_val v, enum kb_scalar to)
{
	struct kb_type from = kb_type_of(k, v);
	if (from.scalar == to)
		return v;
	struct kb_inst inst = {.op = KBO_CVT, .type = KB_TYPE(to, from.lanes)};
	bool source = kb_is_float(from.scalar) || kb_is_int(from.scalar) || from.scalar == KB_BOOL;
	bool float_to_u16 = kb_is_float(from.scalar) && to == KB_U16; /* no emitter has it */
	if (!source || float_to_u16 || !(kb_is_float(to) || kb_is_int(to)))
		return kb_poison(k, inst.type);
	int64_t c;
	if (kb_const_index(k, v, &c) && to == KB_I32 && c == (int32_t)c)
		return kb_i32(k, (int32_t)c);
	return kb_emit(k, inst, &v, 1, true);
}

struct kb_val kb_cvt_bf16_ftz(struct kb *k, struct kb_val v)
{
	struct kb_type from = kb_type_of(k, v);
	struct kb_inst inst = {.op = KBO_CVT, .flags = KB_FTZ, .type = KB_TYPE(KB_BF16, from.lanes)};
	if (from.scalar != KB_F32)
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &v, 1, true);
}

struct kb_val kb_cvt_nearest(struct kb *k, struct kb_val v)
{
	struct kb_type from = kb_type_of(k, v);
	struct kb_inst inst = {.op = KBO_NEAREST, .type = KB_TYPE(KB_I32, from.lanes)};
	if (from.scalar != KB_F32)
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &v, 1, true);
}

struct kb_val kb_bitcast(struct kb *k, struct kb_val v, enum kb_scalar to)
{
	struct kb_type from = kb_type_of(k, v);
	int before = kb_scalar_bytes(from.scalar), after = kb_scalar_bytes(to), bytes = before * from.lanes;
	bool fits = after > 0 && bytes >= after && from.scalar != KB_PTR && to != KB_PTR;
	struct kb_inst inst = {.op = KBO_BITCAST, .type = KB_TYPE(to, fits ? bytes / after : 1)};
	if (!fits || !is_lane_count(inst.type.lanes))
		return kb_poison(k, inst.type);
	return kb_emit(k, inst, &v, 1, true);
}

struct kb_val kb_shuffle(struct kb *k, struct kb_val a, struct kb_val b, const int *lanes, int n)
{
	struct kb_type type = kb_type_of(k, a);
	struct kb_inst inst = {.op = KBO_SHUFFLE, .type = KB_TYPE(type.scalar, n)};
	int limit = b.id ? 2 * type.lanes : type.lanes;
	bool fits = is_lane_count(n) && (!b.id || kb_same_type(type, kb_type_of(k, b)));
	int *copy = ARENA_ARRAY(k->module->arena, int, n);
	for (int i = 0; fits && copy && i < n; i++) {
		fits = lanes[i] >= 0 && lanes[i] < limit;
		copy[i] = lanes[i];
	}
	if (!fits)
		return kb_poison(k, inst.type);
	inst.lanes = copy;
	struct kb_val args[] = {a, b};
	return kb_emit(k, inst, args, b.id ? 2 : 1, true);
}

struct kb_val kb_reduce(struct kb *k, enum kb_bin op, struct kb_val vector)
{
	struct kb_type type = kb_type_of(k, vector);
	struct kb_inst inst = {.op = KBO_REDUCE, .type = KB_TYPE(type.scalar, 1), .bin = op};
	bool is_wide = kb_scalar_bytes(type.scalar) >= 4;
	bool fits = (op == KB_ADD || op == KB_MIN || op == KB_MAX) && is_wide && kb_bin_fits(op, type.scalar);
	if (!fits)
		return kb_poison(k, inst.type);
	if (type.lanes == 1)
		return vector;
	return kb_emit(k, inst, &vector, 1, true);
}

/* ---- atomics ---- */

struct kb_val kb_atomic_load(struct kb *k, struct kb_val ptr, int64_t disp)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	struct kb_inst inst = {.op = KBO_ATOMIC_LOAD, .type = KB_I32_T, .imm = disp, .align = 4};
	return kb_emit(k, inst, &ptr, 1, true);
}

static void check_atomic(struct kb *k, struct kb_val value, struct kb_val ptr)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	kb_require(k, kb_same_type(kb_type_of(k, value), KB_I32_T), "the value of an atomic is not i32");
}

void kb_atomic_store(struct kb *k, struct kb_val value, struct kb_val ptr, int64_t disp)
{
	check_atomic(k, value, ptr);
	struct kb_inst inst = {.op = KBO_ATOMIC_STORE, .type = KB_I32_T, .imm = disp, .align = 4};
	struct kb_val args[] = {value, ptr};
	kb_emit(k, inst, args, 2, false);
}

struct kb_val kb_atomic_add(struct kb *k, struct kb_val value, struct kb_val ptr, int64_t disp)
{
	check_atomic(k, value, ptr);
	struct kb_inst inst = {.op = KBO_ATOMIC_ADD, .type = KB_I32_T, .imm = disp, .align = 4};
	struct kb_val args[] = {value, ptr};
	return kb_emit(k, inst, args, 2, true);
}

/* ---- matrix tiles ---- */

void kb_tile_shape(uint8_t config[KB_TILE_CONFIG], int tile, int rows, int bytes)
{
	config[0] = 1; /* palette 1: eight tiles of 1 KiB; byte offsets as ldtilecfg defines them */
	config[16 + 2 * tile] = (uint8_t)bytes;
	config[48 + tile] = (uint8_t)rows;
}

/* ptr none: the instruction accesses no memory. */
static void emit_tile(struct kb *k, struct kb_inst inst, int number, struct kb_val ptr, struct kb_val stride)
{
	struct kb_val args[] = {ptr, stride};
	kb_require(k, number >= 0 && number < KB_TILES, "no such tile");
	if (ptr.id)
		check_address(k, KB_U8, ptr, stride);
	inst.imm = number;
	kb_emit(k, inst, args, ptr.id ? 2 : 0, false);
}

void kb_tile_config(struct kb *k, struct kb_val ptr)
{
	kb_require(k, kb_same_type(kb_type_of(k, ptr), KB_PTR_T), "the address is not a pointer");
	kb_emit(k, (struct kb_inst){.op = KBO_TILE_CONFIG}, &ptr, 1, false);
	if (k->module->variant != KB_BASELINE)
		k->module->tiled |= UINT64_C(1) << k->module->variant;
}

void kb_tile_config_gemm(struct kb *k, struct kb_val ptr, int bytes)
{
	uint8_t config[KB_TILE_CONFIG] = {0};
	int32_t dwords[KB_TILE_CONFIG / 4];
	for (int i = 0; i < KB_TILES; i++)
		kb_tile_shape(config, i, i < KB_TILE_WEIGHTS ? KB_TILE_ROWS : bytes / 4,
		              i < KB_TILE_X || i >= KB_TILE_WEIGHTS ? KB_TILE_BYTES : bytes);
	memcpy(dwords, config, sizeof(dwords));
	for (size_t i = 0; i < TFMC_COUNT(dwords); i++)
		kb_store(k, kb_i32(k, dwords[i]), ptr, kb_index(k, (int64_t)i), 0, 0);
	kb_tile_config(k, ptr);
}

void kb_tile_zero(struct kb *k, int number)
{
	emit_tile(k, (struct kb_inst){.op = KBO_TILE_ZERO}, number, (struct kb_val){0}, (struct kb_val){0});
}

void kb_tile_load(struct kb *k, int number, struct kb_val ptr, struct kb_val stride)
{
	emit_tile(k, (struct kb_inst){.op = KBO_TILE_LOAD}, number, ptr, stride);
}

void kb_tile_store(struct kb *k, int number, struct kb_val ptr, struct kb_val stride)
{
	emit_tile(k, (struct kb_inst){.op = KBO_TILE_STORE}, number, ptr, stride);
}

void kb_tile_dot(struct kb *k, enum kb_dot dot, int sum, int a, int b)
{
	bool are_tiles = ((sum | a | b) & ~(KB_TILES - 1)) == 0 && sum != a && sum != b && a != b;
	kb_require(k, are_tiles, "the tiles of a dot product are not three different ones");
	kb_require(k, dot != KB_DOT_S16S16 && dot <= KB_DOT_BF16, "a dot product that tiles do not have");
	struct kb_inst inst = {.op = KBO_TILE_DOT, .dot = dot, .imm = sum | a << 3 | b << 6};
	kb_emit(k, inst, NULL, 0, false);
}

/* ---- x86 processors ---- */

struct kb_val kb_cpuid(struct kb *k, int64_t leaf, int subleaf, int reg)
{
	kb_require(k, reg >= 0 && reg < 4, "no such register of cpuid");
	struct kb_inst inst = {
	        .op = KBO_CPUID, .type = KB_I32_T, .imm = leaf, .cpuid = {(int16_t)subleaf, (int16_t)reg}};
	return kb_emit(k, inst, NULL, 0, true);
}

/* ---- operations without operands ---- */

static struct kb_val emit_nullary(struct kb *k, enum kb_opcode op, enum kb_scalar result, bool in_kernels)
{
	kb_require(k, !in_kernels || k->func->linkage == KB_KERNEL,
	           "an operation of work-groups outside of a kernel");
	struct kb_inst inst = {.op = op, .type = KB_TYPE(result, result != KB_VOID)};
	return kb_emit(k, inst, NULL, 0, result != KB_VOID);
}

#define KB_NULLARY(op, name, effect, result, in_kernels)                   \
	struct kb_val kb_##name(struct kb *k)                              \
	{                                                                  \
		return emit_nullary(k, KBO_##op, KB_##result, in_kernels); \
	}
#include "backends/kb/kb_ops.def"
