/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dialect OpenCL C 1.2 without extensions: what the core of the printer asks
 * for. Kernels take pointers to global memory; every other pointer's address
 * space comes from backends/print/space.h. A place of the model in a comment becomes the name
 * of the "file" that compilers cite: they name the step and the line in its kernel.
 */
#include <inttypes.h>
#include <string.h>

#include "backends/print_opencl/memory.h"
#include "ir/support/compiler.h"

/* ---- functions ---- */

static void prelude(struct print *p, struct buf *out)
{
	buf_str(out, "/* OpenCL C 1.2, no extensions. */\n#pragma OPENCL FP_CONTRACT OFF\n\n");
	buf_printf(out, "typedef %s idx; /* counts elements and bytes */\n",
	           p->options->index_bits == 64 ? "long" : "int");
}

static void print_type(struct print *p, struct kb_type t, struct space_pointer pointer, struct buf *out)
{
	if (t.scalar == KB_PTR)
		opencl_pointer_type(out, pointer);
	else
		opencl_type(out, t, p->options->index_bits);
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
		buf_printf(out, "__kernel __attribute__((reqd_work_group_size(%" PRId64 ", 1, 1))) ",
		           f->group_size);
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

/* ---- what cannot be said ---- */

static const char *refuse_type(struct kb_type t)
{
	if (t.scalar == KB_F64)
		return "f64 in OpenCL C";
	return t.lanes > OPENCL_LANES_MAX ? "vectors of more than 16 lanes in OpenCL C" : NULL;
}

static bool has_data(const struct print *p, const char *name)
{
	for (size_t i = 0; i < kb_data_count(p->m); i++)
		if (strcmp(kb_data_at(p->m, i)->name, name) == 0)
			return true;
	for (size_t i = 0; i < p->options->n_data; i++)
		if (strcmp(p->options->data[i].name, name) == 0)
			return true;
	return false;
}

static const char *refuse_inst(const struct print *p, const struct kb_inst *i)
{
	switch (i->op) {
	case KBO_ATOMIC_LOAD:
	case KBO_ATOMIC_STORE:
	case KBO_ATOMIC_ADD: return "atomics in OpenCL C";
	case KBO_CPUID:
	case KBO_XGETBV: return "registers of an x86 processor in OpenCL C";
	case KBO_SYMBOL: return has_data(p, i->name) ? NULL : "data outside of the file in OpenCL C";
	case KBO_CONST_INT:
		if (i->type.scalar == KB_INDEX && p->options->index_bits == 32 && i->imm != (int32_t)i->imm)
			return "an index beyond 32 bits";
		return NULL;
	case KBO_LOAD:
	case KBO_STORE:
		if (i->align < kb_scalar_bytes(i->type.scalar))
			return "elements off their alignment in OpenCL C";
		return refuse_type(i->type);
	case KBO_LOCAL:
	case KBO_SHARED: return refuse_type(KB_TYPE(i->element, 1));
	default: return refuse_type(i->type);
	}
}

static const char *refuse(const struct print *p, const struct kb_func *f)
{
	const char *why = f->linkage == KB_EXPORTED ? "exported functions in OpenCL C" : NULL;
	for (size_t i = 0; i < f->n_insts && !why; i++)
		why = refuse_inst(p, &f->insts[i]);
	return why;
}

/* ---- expressions ---- */

static struct opencl_address address(const struct print *p, const struct kb_inst *i, size_t k)
{
	int64_t c;
	bool zero = print_const_arg(p, i, k + 1, &c) && c == 0;
	const struct print_value *index = print_arg_value(p, i, k + 1);
	return (struct opencl_address){print_arg_space(p, i, k), print_arg(p, i, k),
	                               zero ? NULL : index->text, index->bare, i->imm};
}

/* Octal escapes end after three digits. */
static void print_string(const char *text, struct buf *out)
{
	buf_str(out, "(__constant uchar *)\"");
	for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
		bool plain = *s >= ' ' && *s < 127 && *s != '"' && *s != '\\' && *s != '?';
		buf_printf(out, plain ? "%c" : "\\%03o", *s);
	}
	buf_char(out, '"');
}

static enum print_level print_expr(struct print *p, const struct kb_inst *i, struct buf *out)
{
	struct opencl_address at;
	switch (i->op) {
	case KBO_STRING: print_string(i->name, out); return PRINT_PRIMARY;
	case KBO_SYMBOL: buf_str(out, print_global(p, i->name)); return PRINT_PRIMARY;
	case KBO_PTR_APART: return print_same(p, i, 0, out);
	case KBO_PTR_ADD: at = address(p, i, 0); return opencl_ptr_add(out, &at);
	case KBO_LOAD:
	case KBO_LOAD_SPLAT:
	case KBO_LOAD_PART: at = address(p, i, 0); return opencl_load(out, i, &at, p->options->index_bits);
	default: return opencl_expression(p, i, out);
	}
}

/* ---- statements ---- */

/* A value that is in several statements has a name. */
static const char *named_value(struct print *p, const struct kb_inst *i)
{
	const char *value = print_arg(p, i, 0), *name;
	struct buf type;
	if (print_arg_value(p, i, 0)->is_name)
		return value;
	name = print_local_name(p, "part");
	buf_init(&type);
	opencl_type(&type, i->type, p->options->index_bits);
	print_line(p, "const %s %s = %s;", type.data, name, value);
	p->body.failed |= type.failed;
	buf_destroy(&type);
	return name;
}

static void print_store(struct print *p, const struct kb_inst *i)
{
	struct opencl_address at = address(p, i, 1);
	struct buf value, indent;
	buf_init(&value);
	buf_init(&indent);
	buf_fill(&indent, '\t', (size_t)p->depth);
	if (i->op == KBO_STORE_PART)
		buf_str(&value, named_value(p, i));
	else
		print_bare_arg(p, i, 0, &value);
	opencl_store(&p->body, i, &at, value.data, p->options->index_bits, indent.data);
	p->body.failed |= value.failed || indent.failed;
	buf_destroy(&value);
	buf_destroy(&indent);
}

static void print_stmt(struct print *p, const struct kb_inst *i)
{
	if (i->op == KBO_STORE || i->op == KBO_STORE_PART)
		print_store(p, i);
	else if (i->op == KBO_BARRIER)
		print_line(p, "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);");
	/* a prefetch and a pause are hints */
}

static void print_array(struct print *p, const struct kb_inst *i, const char *name)
{
	struct buf line;
	buf_init(&line);
	opencl_array(&line, i, name);
	print_line(p, "%s", line.data);
	p->body.failed |= line.failed;
	buf_destroy(&line);
}

static void array_text(struct print *p, const struct kb_inst *i, const char *name, struct buf *out)
{
	(void)p;
	buf_printf(out, "((%s uchar *)%s)",
	           space_qualifier(i->op == KBO_SHARED ? SPACE_LOCAL : SPACE_PRIVATE), name);
}

static void print_data(struct print *p, const struct kb_data_item *d, const char *name, struct buf *out)
{
	(void)p;
	opencl_data(out, d, name);
}

/* ---- places of the model ---- */

static const char *digits(const char *s)
{
	while (*s >= '0' && *s <= '9')
		s++;
	return s;
}

/* The name of a file, for messages of compilers. */
static void print_place(struct print *p, const char *text)
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

/* Of OpenCL C, and functions of its library that a name of ours would hide or meet. */
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
                                       NULL};

/* Digits after a name make it another one: what is reserved must not be a prefix. */
static bool is_reserved(const char *name)
{
	static const char *const prefixes[] = {"as_",    "convert_",   "vload",
	                                       "vstore", "vload_half", "vstore_half"};
	if (opencl_is_type(name) || opencl_is_helper(name))
		return true;
	for (size_t i = 0; i < TFMC_COUNT(prefixes); i++) {
		size_t n = strlen(prefixes[i]);
		const char *rest = name + n;
		if (strncmp(name, prefixes[i], n) == 0 && (opencl_is_type(rest) || digits(rest) > rest))
			return opencl_is_type(rest) || strlen(rest) < 3;
	}
	return false;
}

const struct cfamily_dialect_table *cfamily_opencl(void)
{
	static const struct cfamily_dialect_table table = {
	        .has_spaces = true,
	        .has_f16 = true,
	        .prelude = prelude,
	        .refuse = refuse,
	        .type = print_type,
	        .head = print_head,
	        .expr = print_expr,
	        .stmt = print_stmt,
	        .array = print_array,
	        .array_text = array_text,
	        .data = print_data,
	        .place = print_place,
	        .reserved = reserved,
	        .is_reserved = is_reserved,
	};
	return &table;
}
