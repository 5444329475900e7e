/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of operations that are single instructions of some machines (dot products, table look-ups, AMX), by target
 * intrinsics, since LLVM does not match plain IR to all of them. Vectors wider than the machine's are split and the
 * results concatenated; operations that the machine lacks have been legalized.
 */
#include "backends/object/llvm_emit.h"

/* The intrinsic of an instruction for vectors of some width. Tables list the widest forms of a machine first. */
struct intrinsic_form {
	enum target_arch arch;
	int detail; /* kb_inst.detail: which dot product */
	int lanes;  /* of the result */
	const char *name;
	bool is_overloaded; /* on the types of the result and of the operands */
};

/* The widest form of the detail (which dot product) that fits the result and the machine's vectors (target->lanes f32,
 * so 4 lanes / bytes elements); NULL: none. Tables are sorted by width, the widest first. */
static const struct intrinsic_form *find_form(const struct llvm_func *r, const struct kb_inst *i,
                                              const struct intrinsic_form *forms, size_t n)
{
	int most = 4 * r->target->lanes / kb_scalar_bytes(i->type.scalar);
	most = i->type.lanes < most ? i->type.lanes : most;
	for (size_t k = 0; k < n; k++)
		if (forms[k].arch == r->target->arch && forms[k].detail == i->detail &&
		    forms[k].lanes <= most)
			return &forms[k];
	return NULL;
}

/* Emits a form for operands of its width; apply_X below do so for the tables of the operation X. */
typedef LLVMValueRef apply_form(struct llvm_func *r, const struct intrinsic_form *f, LLVMValueRef *args);

/* The lanes of a, then those of b, which has as many. */
static LLVMValueRef concat(struct llvm_func *r, LLVMValueRef a, LLVMValueRef b)
{
	LLVMValueRef ids[KB_LANES_MAX];
	unsigned n = 2 * LLVMGetVectorSize(LLVMTypeOf(a));
	for (unsigned k = 0; k < n; k++)
		ids[k] = llvm_int(r->module, KB_I32_T, k);
	return LLVMBuildShuffleVector(r->builder, a, b, LLVMConstVector(ids, n), "");
}

/* Splits the operation into forms of the machine's width. Operands with as many lanes as the result are split
 * likewise; others (a look-up table) are passed unchanged to each piece. The results are concatenated pairwise. */
static LLVMValueRef emit_split(struct llvm_func *r, const struct kb_inst *i,
                               const struct intrinsic_form *forms, size_t n_forms, apply_form *apply)
{
	LLVMValueRef parts[KB_LANES_MAX], args[3];
	const struct intrinsic_form *f = find_form(r, i, forms, n_forms);
	if (!f) {
		llvm_emit_fail(r->module, "an operation that the machine does not have");
		return LLVMGetPoison(llvm_type(r->module, i->type));
	}
	int n = i->type.lanes / f->lanes;
	for (int p = 0; p < n; p++) {
		for (size_t a = 0; a < i->n_args; a++) {
			bool is_split = n > 1 && llvm_operand_type(r, i, a).lanes == i->type.lanes;
			args[a] = llvm_operand(r, i, a);
			if (is_split)
				args[a] = llvm_lanes(r, args[a], p * f->lanes, f->lanes);
		}
		parts[p] = apply(r, f, args);
	}
	for (; n > 1; n /= 2)
		for (int p = 0; p < n / 2; p++)
			parts[p] = concat(r, parts[2 * p], parts[2 * p + 1]);
	return parts[0];
}

/* ---- to the nearest integer ---- */

/* f32 to i32, nearest even. Only the form of 512 bits takes a mask (all ones) and a rounding mode. */
static LLVMValueRef apply_nearest(struct llvm_func *r, const struct intrinsic_form *f, LLVMValueRef *args)
{
	LLVMTypeRef types[] = {llvm_type(r->module, KB_TYPE(KB_I32, f->lanes)), LLVMTypeOf(args[0])};
	LLVMTypeRef mask = LLVMInt16TypeInContext(r->module->context);
	LLVMValueRef masked[] = {args[0], LLVMConstNull(types[0]), LLVMConstAllOnes(mask),
	                         llvm_int(r->module, KB_I32_T, 4 /* current rounding mode: nearest even */)};
	bool is_masked = f->lanes == 16;
	return llvm_intrinsic(r, f->name, types, f->is_overloaded ? 2 : 0, is_masked ? masked : args,
	                      is_masked ? 4 : 1);
}

/* f32 to the nearest i32, ties to even: cvtps2dq in the default rounding mode, fcvtns. */
LLVMValueRef llvm_emit_nearest(struct llvm_func *r, const struct kb_inst *i)
{
	static const struct intrinsic_form forms[] = {
	        {ARCH_X86_64, 0, 16, "llvm.x86.avx512.mask.cvtps2dq.512", false},
	        {ARCH_X86_64, 0, 8, "llvm.x86.avx.cvt.ps2dq.256", false},
	        {ARCH_X86_64, 0, 4, "llvm.x86.sse2.cvtps2dq", false},
	        {ARCH_AARCH64, 0, 4, "llvm.aarch64.neon.fcvtns", true},
	};
	return emit_split(r, i, forms, TFMC_COUNT(forms), apply_nearest);
}

/* ---- dot products ---- */

static const struct intrinsic_form dot_forms[] = {
        {ARCH_X86_64, KB_DOT_U8S8, 16, "llvm.x86.avx512.vpdpbusd.512", false},
        {ARCH_X86_64, KB_DOT_U8S8, 8, "llvm.x86.avx512.vpdpbusd.256", false},
        {ARCH_X86_64, KB_DOT_U8S8, 4, "llvm.x86.avx512.vpdpbusd.128", false},
        {ARCH_X86_64, KB_DOT_U7S8, 16, "llvm.x86.avx512.pmaddubs.w.512", false},
        {ARCH_X86_64, KB_DOT_U7S8, 8, "llvm.x86.avx2.pmadd.ub.sw", false},
        {ARCH_X86_64, KB_DOT_U7S8, 4, "llvm.x86.ssse3.pmadd.ub.sw.128", false},
        {ARCH_X86_64, KB_DOT_U7S8_I16, 16, "llvm.x86.avx512.pmaddubs.w.512", false},
        {ARCH_X86_64, KB_DOT_U7S8_I16, 8, "llvm.x86.avx2.pmadd.ub.sw", false},
        {ARCH_X86_64, KB_DOT_U7S8_I16, 4, "llvm.x86.ssse3.pmadd.ub.sw.128", false},
        {ARCH_X86_64, KB_DOT_S8S8, 8, "llvm.x86.avx2.vpdpbssd.256", false},
        {ARCH_X86_64, KB_DOT_S8S8, 4, "llvm.x86.avx2.vpdpbssd.128", false},
        {ARCH_X86_64, KB_DOT_S16S16, 16, "llvm.x86.avx512.pmaddw.d.512", false},
        {ARCH_X86_64, KB_DOT_S16S16, 8, "llvm.x86.avx2.pmadd.wd", false},
        {ARCH_X86_64, KB_DOT_S16S16, 4, "llvm.x86.sse2.pmadd.wd", false},
        {ARCH_X86_64, KB_DOT_BF16, 16, "llvm.x86.avx512bf16.dpbf16ps.512", false},
        {ARCH_X86_64, KB_DOT_BF16, 8, "llvm.x86.avx512bf16.dpbf16ps.256", false},
        {ARCH_X86_64, KB_DOT_BF16, 4, "llvm.x86.avx512bf16.dpbf16ps.128", false},
        {ARCH_AARCH64, KB_DOT_U8S8, 4, "llvm.aarch64.neon.usdot", true},
        {ARCH_AARCH64, KB_DOT_S8S8, 4, "llvm.aarch64.neon.sdot", true},
        {ARCH_AARCH64, KB_DOT_BF16_ODD, 4, "llvm.aarch64.neon.bfdot", true},
        {ARCH_AARCH64, KB_DOT_U8S8_2X2, 4, "llvm.aarch64.neon.usmmla", true},
        {ARCH_AARCH64, KB_DOT_S8S8_2X2, 4, "llvm.aarch64.neon.smmla", true},
        {ARCH_AARCH64, KB_DOT_BF16_ODD_2X2, 4, "llvm.aarch64.neon.bfmmla", false},
};

/* x86 pmaddwd and pmaddubsw: sums of two adjacent products, of 32 or 16 bits. */
static LLVMValueRef multiply_add_pairs(struct llvm_func *r, const struct intrinsic_form *f, LLVMValueRef a,
                                       LLVMValueRef b)
{
	LLVMTypeRef type = f->detail == KB_DOT_S16S16 ? llvm_type(r->module, KB_TYPE(KB_I16, 2 * f->lanes))
	                                              : llvm_type(r->module, KB_TYPE(KB_I8, 4 * f->lanes));
	LLVMValueRef args[] = {LLVMBuildBitCast(r->builder, a, type, ""),
	                       LLVMBuildBitCast(r->builder, b, type, "")};
	return llvm_intrinsic(r, f->name, NULL, 0, args, 2);
}

/* acc + pmaddwd(a, b) */
static LLVMValueRef add_pairs(struct llvm_func *r, const struct intrinsic_form *f, LLVMValueRef sum,
                              LLVMValueRef a, LLVMValueRef b)
{
	return LLVMBuildAdd(r->builder, sum, multiply_add_pairs(r, f, a, b), "");
}

/* The form of pmaddwd for that width. */
static const struct intrinsic_form *s16_form(int lanes)
{
	const struct intrinsic_form *f = dot_forms;
	while (f->detail != KB_DOT_S16S16 || f->lanes != lanes)
		f++;
	return f;
}

/* args: accumulators, a, b. x86's forms for U7S8 and S16S16 only add pairs of products: the accumulators are added
 * here, as i32 (for U7S8 after a product with ones, which adds pairs of i16) or as i16. Other forms add to the
 * accumulators themselves, and require the operands in their own types. */
static LLVMValueRef apply_dot(struct llvm_func *r, const struct intrinsic_form *f, LLVMValueRef *args)
{
	if (f->detail == KB_DOT_S16S16)
		return add_pairs(r, f, args[0], args[1], args[2]);
	if (f->detail == KB_DOT_U7S8) {
		LLVMValueRef ones = llvm_int(r->module, KB_TYPE(KB_I16, 2 * f->lanes), 1);
		return add_pairs(r, s16_form(f->lanes), args[0], multiply_add_pairs(r, f, args[1], args[2]),
		                 ones);
	}
	if (f->detail == KB_DOT_U7S8_I16) {
		LLVMValueRef pairs = multiply_add_pairs(r, f, args[1], args[2]);
		LLVMTypeRef packed = LLVMTypeOf(args[0]);
		args[0] = LLVMBuildBitCast(r->builder, args[0], LLVMTypeOf(pairs), "");
		return LLVMBuildBitCast(r->builder, LLVMBuildAdd(r->builder, args[0], pairs, ""), packed, "");
	}
	bool is_float = kb_dot_is_float((enum kb_dot)f->detail);
	enum kb_scalar s = is_float ? KB_BF16 : f->arch == ARCH_X86_64 ? KB_I32 : KB_I8;
	struct kb_type operand = KB_TYPE(s, 4 * f->lanes / kb_scalar_bytes(s));
	LLVMTypeRef types[] = {LLVMTypeOf(args[0]), llvm_type(r->module, operand)};
	args[1] = LLVMBuildBitCast(r->builder, args[1], types[1], "");
	args[2] = LLVMBuildBitCast(r->builder, args[2], types[1], "");
	return llvm_intrinsic(r, f->name, types, f->is_overloaded ? 2 : 0, args, 3);
}

LLVMValueRef llvm_emit_dot(struct llvm_func *r, const struct kb_inst *i)
{
	return emit_split(r, i, dot_forms, TFMC_COUNT(dot_forms), apply_dot);
}

/* ---- table look-up ---- */

/* The 16-byte table repeated to `lanes` bytes. */
static LLVMValueRef repeat_table(struct llvm_func *r, int lanes, LLVMValueRef table)
{
	LLVMValueRef ids[KB_LANES_MAX];
	for (int k = 0; k < lanes; k++)
		ids[k] = llvm_int(r->module, KB_I32_T, k % 16);
	LLVMValueRef none = LLVMGetPoison(LLVMTypeOf(table)), all = LLVMConstVector(ids, (unsigned)lanes);
	return LLVMBuildShuffleVector(r->builder, table, none, all, "");
}

/* vpshufb looks up within each 16 bytes, tbl in one table; the high bits of an index must be 0 (vpshufb gives 0 if
 * bit 7 is set, tbl if the index is 16 or more). */
static LLVMValueRef apply_lookup(struct llvm_func *r, const struct intrinsic_form *f, LLVMValueRef *args)
{
	LLVMTypeRef type = LLVMTypeOf(args[1]);
	LLVMValueRef low = llvm_int(r->module, KB_TYPE(KB_U8, f->lanes), 15);
	args[1] = LLVMBuildAnd(r->builder, args[1], low, "");
	if (f->is_overloaded)
		return llvm_intrinsic(r, f->name, &type, 1, args, 2);
	args[0] = repeat_table(r, f->lanes, args[0]);
	return llvm_intrinsic(r, f->name, NULL, 0, args, 2);
}

/* vpermb uses as many low bits of an index as address all lanes, which all repetitions of the table are in. */
static LLVMValueRef apply_permute(struct llvm_func *r, const struct intrinsic_form *f, LLVMValueRef *args)
{
	args[0] = repeat_table(r, f->lanes, args[0]);
	return llvm_intrinsic(r, f->name, NULL, 0, args, 2);
}

/* A table of 16 bytes, looked up by index. vpermb needs no mask of the indices and is preferred where there is
 * one. */
LLVMValueRef llvm_emit_lookup16(struct llvm_func *r, const struct kb_inst *i)
{
	static const struct intrinsic_form permutes[] = {
	        {ARCH_X86_64, 0, 64, "llvm.x86.avx512.permvar.qi.512", false},
	        {ARCH_X86_64, 0, 32, "llvm.x86.avx512.permvar.qi.256", false},
	        {ARCH_X86_64, 0, 16, "llvm.x86.avx512.permvar.qi.128", false},
	};
	static const struct intrinsic_form forms[] = {
	        {ARCH_X86_64, 0, 64, "llvm.x86.avx512.pshuf.b.512", false},
	        {ARCH_X86_64, 0, 32, "llvm.x86.avx2.pshuf.b", false},
	        {ARCH_X86_64, 0, 16, "llvm.x86.ssse3.pshuf.b.128", false},
	        {ARCH_AARCH64, 0, 16, "llvm.aarch64.neon.tbl1", true},
	};
	if (r->target->arch == ARCH_X86_64 && target_has(r->target, FEATURE_AVX512VBMI))
		return emit_split(r, i, permutes, TFMC_COUNT(permutes), apply_permute);
	return emit_split(r, i, forms, TFMC_COUNT(forms), apply_lookup);
}

/* ---- tiles ---- */

static LLVMValueRef tile_number(struct llvm_func *r, int64_t number)
{
	return llvm_int(r->module, KB_TYPE(KB_I8, 1), number);
}

static LLVMValueRef tile_call(struct llvm_func *r, const char *name, LLVMValueRef *args, unsigned n)
{
	if (!r->ir->caps.has_tiles) {
		llvm_emit_fail(r->module, "tiles that the machine does not have");
		return NULL;
	}
	return llvm_intrinsic(r, name, NULL, 0, args, n);
}

LLVMValueRef llvm_emit_tile_config(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef ptr = llvm_operand(r, i, 0);
	return tile_call(r, "llvm.x86.ldtilecfg", &ptr, 1);
}

LLVMValueRef llvm_emit_tile_release(struct llvm_func *r, const struct kb_inst *i)
{
	(void)i;
	return tile_call(r, "llvm.x86.tilerelease", NULL, 0);
}

LLVMValueRef llvm_emit_tile_zero(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef tile = tile_number(r, i->imm);
	return tile_call(r, "llvm.x86.tilezero", &tile, 1);
}

static LLVMValueRef tile_memory(struct llvm_func *r, const struct kb_inst *i, const char *name)
{
	LLVMValueRef args[] = {tile_number(r, i->imm), llvm_operand(r, i, 0), llvm_operand(r, i, 1)};
	return tile_call(r, name, args, 3);
}

LLVMValueRef llvm_emit_tile_load(struct llvm_func *r, const struct kb_inst *i)
{
	return tile_memory(r, i, "llvm.x86.tileloadd64");
}

LLVMValueRef llvm_emit_tile_store(struct llvm_func *r, const struct kb_inst *i)
{
	return tile_memory(r, i, "llvm.x86.tilestored64");
}

/* The instruction takes the row operand first, which is b of kb_tile_dot; imm has the tiles acc, a, b in three bits
 * each. */
LLVMValueRef llvm_emit_tile_dot(struct llvm_func *r, const struct kb_inst *i)
{
	static const char *const names[] = {[KB_DOT_U8S8] = "llvm.x86.tdpbsud",
	                                    [KB_DOT_U7S8] = NULL, /* kb_tile_dot rejects the NULL ones */
	                                    [KB_DOT_U7S8_I16] = NULL,
	                                    [KB_DOT_S8S8] = "llvm.x86.tdpbssd",
	                                    [KB_DOT_S16S16] = NULL,
	                                    [KB_DOT_BF16] = "llvm.x86.tdpbf16ps",
	                                    [KB_DOT_BF16_ODD] = NULL,
	                                    [KB_DOT_U8S8_2X2] = NULL,
	                                    [KB_DOT_S8S8_2X2] = NULL,
	                                    [KB_DOT_BF16_ODD_2X2] = NULL};
	LLVMValueRef args[] = {tile_number(r, i->imm & 7), tile_number(r, i->imm >> 6 & 7),
	                       tile_number(r, i->imm >> 3 & 7)};
	return tile_call(r, names[i->dot], args, 3);
}
