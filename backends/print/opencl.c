/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL C 1.2 dialect, without extensions. Parameters of kernels point to global memory; the address spaces of
 * other pointers are inferred (backends/print/space.h). A source location of the model is printed as a #line
 * directive, so that compiler messages name the step of the model and the line in its kernel.
 */
#include "backends/print/opencl.h"

#include <inttypes.h>
#include <string.h>

#include "ir/support/compiler.h"

extern const unsigned char opencl_prelude[]; /* prelude.cl.in */

static const char *placeholder(struct print *p, const struct print_helper *h, char letter)
{
	switch (letter) {
	case 'V': return opencl_type(p, (enum kb_scalar)h->element, h->lanes);
	case 'S': return opencl_scalar(p, (enum kb_scalar)h->element);
	default: return opencl_lanes(p, "", h->lanes);
	}
}

/* ---- functions ---- */

static void prelude(struct print *p, struct buf *out)
{
	struct print_helper h = {.name = "", .args = {opencl_scalar(p, KB_INDEX)}};
	print_block(p, "begin", &h, out);
}

void opencl_qualifiers(struct space_pointer to, struct buf *out)
{
	buf_printf(out, "%s %s", space_qualifier(to.space),
	           !to.is_written && to.space != SPACE_CONSTANT ? "const " : "");
}

/* Pointers: "__global const uchar *". */
static void print_type(struct print *p, struct kb_type t, struct space_pointer to, struct buf *out)
{
	if (t.scalar != KB_PTR) {
		buf_str(out,
		        t.scalar == KB_INDEX && t.lanes == 1 ? "idx" : opencl_type(p, t.scalar, t.lanes));
		return;
	}
	if (to.space == SPACE_NONE) /* always null: any space */
		to.space = SPACE_GLOBAL;
	opencl_qualifiers(to, out);
	buf_str(out, "uchar *");
}

static void print_param(struct print *p, const struct kb_inst *i, struct buf *out)
{
	print_type(p, i->type, print_value_space(p, i->result), out);
	if (i->type.scalar != KB_PTR)
		buf_char(out, ' ');
	else if (i->flags & KB_NOALIAS)
		buf_str(out, "restrict ");
	buf_str(out, print_value_name(p, i->result));
}

static void print_head(struct print *p, const struct kb_func *f, bool is_used, struct buf *out)
{
	if (f->linkage == KB_KERNEL)
		buf_printf(out, "__kernel __attribute__((reqd_work_group_size(%" PRId64 ", 1, 1)%s)) ",
		           f->group_size, f->group_size > 1 ? ", vec_type_hint(float4)" : "");
	else
		buf_str(out, is_used ? "static " : "__attribute__((unused)) static ");
	print_type(p, KB_TYPE(f->result, 1), p->spaces.funcs[p->f_number].result, out);
	buf_printf(out, "%s%s(", f->result == KB_PTR ? "" : " ", print_global(p, f->name));
	size_t n = 0;
	for (; n < f->n_insts && f->insts[n].op == KBO_PARAM; n++) {
		buf_str(out, n ? ",\n\t\t" : "\n\t\t");
		print_param(p, &f->insts[n], out);
	}
	buf_str(out, n ? ")" : "void)");
}

/* ---- missing features ---- */

static const char *missing_type(struct kb_type t)
{
	if (t.scalar == KB_F64)
		return "f64 in OpenCL C";
	return t.lanes > OPENCL_LANES_MAX ? "vectors of more than 16 lanes in OpenCL C" : NULL;
}

static const char *missing_feature(const struct print *p, const struct kb_func *f)
{
	const char *why = f->linkage == KB_EXPORTED ? "exported functions in OpenCL C" : NULL;
	(void)p;
	for (size_t i = 0; i < f->n_insts && !why; i++) {
		const struct kb_inst *inst = &f->insts[i];
		bool is_array = inst->op == KBO_LOCAL || inst->op == KBO_SHARED;
		why = missing_type(is_array ? KB_TYPE(inst->element, 1) : inst->type);
	}
	return why;
}

/* ---- names and arrays ---- */

enum print_prec opencl_string(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	buf_str(out, "(__constant uchar *)");
	print_string(i->name, out);
	return PRINT_PRIMARY;
}

enum print_prec opencl_symbol(struct print *p, const struct kb_inst *i, struct buf *out)
{
	if (!strmap_has(&p->globals, i->name))
		print_fail(p, "data outside of the file in OpenCL C");
	buf_str(out, print_global(p, i->name));
	return PRINT_PRIMARY;
}

/* TFMC_DOT is a macro that the host may define when it compiles the program. */
enum print_prec opencl_device_dot(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)i;
	buf_str(out, print_helper(p, "device dot", &(struct print_helper){.name = "TFMC_DOT"}));
	return PRINT_PRIMARY;
}

enum print_prec opencl_barrier(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	buf_str(out, "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)");
	return PRINT_PRIMARY;
}

/* PREFETCH and PAUSE are hints: nothing is emitted. */
static enum print_prec no_statement(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	(void)i;
	(void)out;
	return PRINT_PRIMARY;
}

static void print_array(struct print *p, const struct kb_inst *i, const char *name)
{
	print_line(p, "%s %s %s[%" PRId64 "] __attribute__((aligned(64)));",
	           i->op == KBO_SHARED ? "__local" : "__private", opencl_memory_scalar(p, i->element), name,
	           i->imm);
}

static void array_text(struct print *p, const struct kb_inst *i, const char *name, struct buf *out)
{
	(void)p;
	buf_printf(out, "((%s uchar *)%s)",
	           space_qualifier(i->op == KBO_SHARED ? SPACE_LOCAL : SPACE_PRIVATE), name);
}

static void print_data(struct print *p, const struct kb_data_item *d, const char *name, struct buf *out)
{
	const unsigned char *bytes = d->bytes;
	(void)p;
	buf_printf(out, "__constant uchar %s[%zu] __attribute__((aligned(%d))) = {", name, d->n ? d->n : 1,
	           d->align > 0 ? d->align : 1);
	for (size_t i = 0; i < d->n; i++)
		buf_printf(out, "%s%u,", i % 24 ? " " : "\n\t", (unsigned)bytes[i]);
	buf_str(out, d->n ? "\n};\n" : "0};\n");
}

/* ---- source locations ---- */

static const char *digits(const char *s)
{
	while (*s >= '0' && *s <= '9')
		s++;
	return s;
}

/* #line with the location as the file name, without characters that a string literal would need to escape. */
static void print_source_loc(struct print *p, const char *text)
{
	struct buf clean;
	buf_init(&clean);
	for (const char *s = text; *s; s++)
		buf_char(&clean, (unsigned char)*s < ' ' || strchr("\"\\?", *s) ? ' ' : *s);
	print_line(p, "#line 1 \"%s\"", clean.data);
	p->body.failed |= clean.failed;
	buf_destroy(&clean);
}

/* ---- names ---- */

/* Keywords of OpenCL C, and built-in functions that an identifier of ours would hide or collide with. */
static const char *const reserved[] = {"kernel",
                                       "global",
                                       "local",
                                       "constant",
                                       "private",
                                       "half",
                                       "uchar",
                                       "ushort",
                                       "uint",
                                       "ulong",
                                       "idx",
                                       "size_t",
                                       "quad",
                                       "pipe",
                                       "generic",
                                       "read_only",
                                       "write_only",
                                       "read_write",
                                       "select",
                                       "min",
                                       "max",
                                       "abs",
                                       "fabs",
                                       "sqrt",
                                       "floor",
                                       "ceil",
                                       "isnan",
                                       "barrier",
                                       "all",
                                       "any",
                                       "dot",
                                       "cross",
                                       "length",
                                       "distance",
                                       "normalize",
                                       "step",
                                       "mix",
                                       "clamp",
                                       "sign",
                                       "exp",
                                       "log",
                                       "pow",
                                       "sin",
                                       "cos",
                                       "tan",
                                       "tanh",
                                       "erf",
                                       "round",
                                       "rint",
                                       "trunc",
                                       "fract",
                                       "fma",
                                       "mad",
                                       "shuffle",
                                       "shuffle2",
                                       "prefetch",
                                       "rotate",
                                       "popcount",
                                       "clz",
                                       "bitselect",
                                       "mad24",
                                       "mul24",
                                       "hypot",
                                       "remainder",
                                       "exp2",
                                       "log2",
                                       "rsqrt",
                                       "degrees",
                                       "radians",
                                       "smoothstep",
                                       "sinh",
                                       "cosh",
                                       "get_group_id",
                                       "get_num_groups",
                                       "get_local_id",
                                       "mem_fence",
                                       "read_mem_fence",
                                       "write_mem_fence",
                                       "wait_group_events",
                                       "printf",
                                       "complex",
                                       "imaginary",
                                       "TFMC_DOT",
                                       "dot_4x8packed_ss_int",
                                       NULL};

/* float, int8, ...: an element type and perhaps a number of lanes. */
static bool is_type(const char *name)
{
	static const char *const scalars[] = {"char", "uchar", "short", "ushort", "int", "uint",
	                                      "long", "ulong", "float", "double", "half"};
	static const char *const lanes[] = {"", "2", "3", "4", "8", "16"};
	for (size_t i = 0; i < TFMC_COUNT(scalars); i++) {
		size_t n = strlen(scalars[i]);
		for (size_t k = 0; strncmp(name, scalars[i], n) == 0 && k < TFMC_COUNT(lanes); k++)
			if (strcmp(name + n, lanes[k]) == 0)
				return true;
	}
	return false;
}

static bool is_helper(const char *name)
{
	static const char *const prefixes[] = {
	        "fma_",     "lesser_",  "greater_",  "sum_",      "least_",      "most_",     "f16_of_",
	        "f16_to_",  "trunc_",   "dot_u8s8_", "dot_s8s8_", "dot_s16s16_", "packed1_",  "packed2_",
	        "packed4_", "packed8_", "packed16_", "packed32_", "packed64_",   "packed128_"};
	for (size_t i = 0; i < TFMC_COUNT(prefixes); i++) {
		size_t n = strlen(prefixes[i]);
		if (strncmp(name, prefixes[i], n) == 0 && is_type(name + n))
			return true;
	}
	return false;
}

/* print_local_name appends digits until an identifier is free, so it must not end in a longer reserved one. */
static bool is_reserved(const char *name)
{
	static const char *const prefixes[] = {"as_",    "convert_",   "vload",
	                                       "vstore", "vload_half", "vstore_half"};
	if (is_type(name) || is_helper(name))
		return true;
	for (size_t i = 0; i < TFMC_COUNT(prefixes); i++) {
		size_t n = strlen(prefixes[i]);
		const char *suffix = name + n;
		if (strncmp(name, prefixes[i], n) == 0 && (is_type(suffix) || digits(suffix) > suffix))
			return is_type(suffix) || strlen(suffix) < 3;
	}
	return false;
}

#define opencl_load_splat   opencl_load
#define opencl_load_part    opencl_load
#define opencl_group_count  opencl_group_id
#define opencl_item_id      opencl_group_id
#define opencl_prefetch     no_statement
#define opencl_pause        no_statement
#define opencl_call_ptr     print_unsupported
#define opencl_func_addr    print_unsupported
#define opencl_atomic_load  print_unsupported
#define opencl_atomic_store print_unsupported
#define opencl_atomic_add   print_unsupported
#define opencl_nearest      print_unsupported
#define opencl_tile_config  print_unsupported
#define opencl_tile_zero    print_unsupported
#define opencl_tile_load    print_unsupported
#define opencl_tile_store   print_unsupported
#define opencl_tile_dot     print_unsupported
#define opencl_tile_release print_unsupported
#define opencl_cpuid        print_unsupported
#define opencl_xgetbv       print_unsupported

static print_op *const ops[] = {
#define KB_CFAMILY(op, name, effect)
#define KB_OP(op, name, effect) [KBO_##op] = opencl_##name,
#include "backends/kb/kb_ops.def"
};

const struct cfamily_dialect_table *cfamily_opencl(void)
{
	static const struct cfamily_dialect_table table = {
	        .name = "OpenCL C",
	        .helpers = (const char *)opencl_prelude,
	        .placeholder = placeholder,
	        .has_spaces = true,
	        .has = {.has_f16 = true, .has_dot_u8s8 = true, .has_dot_s8s8 = true, .has_dot_s16s16 = true},
	        .prelude = prelude,
	        .missing_feature = missing_feature,
	        .type = print_type,
	        .head = print_head,
	        .ops = ops,
	        .array = print_array,
	        .array_text = array_text,
	        .data = print_data,
	        .source_loc = print_source_loc,
	        .reserved = reserved,
	        .is_reserved = is_reserved,
	};
	return &table;
}
