/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portable C dialect: C11 with the vector extensions that gcc and clang share. Pointers are char *; memory is
 * accessed through may_alias types. Operations that the kernel IR defines are never undefined in the emitted C:
 * signed arithmetic is done in unsigned types, so that it wraps.
 */
#include "backends/print/c.h"

#include <string.h>

static const struct {
	const char *name, *scalar;
	int bits;
} elements[] = {[C_I8] = {"i8", "int8_t", 8},     [C_U8] = {"u8", "uint8_t", 8},
                [C_I16] = {"i16", "int16_t", 16}, [C_U16] = {"u16", "uint16_t", 16},
                [C_I32] = {"i32", "int32_t", 32}, [C_U32] = {"u32", "uint32_t", 32},
                [C_I64] = {"i64", "int64_t", 64}, [C_U64] = {"u64", "uint64_t", 64},
                [C_F32] = {"f32", "float", 32},   [C_F64] = {"f64", "double", 64},
                [C_PTR] = {"ptr", "char *", 64},  [C_BOOL] = {"bool", "bool", 8}};

enum c_element c_element_of(enum kb_scalar s, int lanes)
{
	switch (s) {
	case KB_VOID:
	case KB_BOOL: return lanes > 1 ? C_I32 : C_BOOL;
	case KB_I8: return C_I8;
	case KB_U8: return C_U8;
	case KB_I16: return C_I16;
	case KB_U16: return C_U16;
	case KB_I32: return C_I32;
	case KB_I64:
	case KB_INDEX: return C_I64;
	case KB_F16:
	case KB_BF16: return C_U16;
	case KB_F32: return C_F32;
	case KB_F64: return C_F64;
	case KB_PTR: return C_PTR;
	}
	return C_I32;
}

enum c_element c_unsigned(enum c_element e)
{
	switch (elements[e].bits) {
	case 8: return C_U8;
	case 16: return C_U16;
	case 32: return C_U32;
	default: return C_U64;
	}
}

enum c_element c_signed(enum c_element e)
{
	switch (elements[e].bits) {
	case 8: return C_I8;
	case 16: return C_I16;
	case 32: return C_I32;
	default: return C_I64;
	}
}

bool c_is_float(enum c_element e)
{
	return e == C_F32 || e == C_F64;
}

int c_bits(enum c_element e)
{
	return elements[e].bits;
}

const char *c_element_name(enum c_element e)
{
	return elements[e].name;
}

const char *c_element_scalar(enum c_element e)
{
	return elements[e].scalar;
}

const char *c_suffix(struct print *p, enum c_element e, int lanes)
{
	return lanes > 1 ? arena_printf(p->arena, "%sx%d", elements[e].name, lanes) : elements[e].name;
}

const char *c_type(struct print *p, enum c_element e, int lanes)
{
	if (lanes == 1)
		return elements[e].scalar;
	const char *name = c_suffix(p, e, lanes);
	if (print_once(p, name))
		buf_printf(&p->types, "typedef %s %s __attribute__((vector_size(%d)));\n", elements[e].scalar,
		           name, elements[e].bits / 8 * lanes);
	return name;
}

const char *c_fill(struct print *p, const char *x, int lanes)
{
	const char *text = x;
	for (int i = 1; i < lanes; i++)
		text = arena_printf(p->arena, "%s, %s", text, x);
	return arena_printf(p->arena, "{%s}", text);
}

/* ---- the file ---- */

extern const unsigned char c_prelude[]; /* prelude.c.in */

static const char *placeholder(struct print *p, const struct print_helper *h, char letter)
{
	switch (letter) {
	case 'V': return c_type(p, (enum c_element)h->element, h->lanes);
	case 'S': return c_element_scalar((enum c_element)h->element);
	case 'I': return c_type(p, c_signed((enum c_element)h->element), h->lanes);
	case 'U': return c_type(p, c_unsigned((enum c_element)h->element), h->lanes);
	case 'M': return c_type(p, C_I32, h->lanes);
	case 'B': return arena_printf(p->arena, "%d", c_bits((enum c_element)h->element) / 8);
	case 'L': return arena_printf(p->arena, "%d", h->lanes);
	default: return (enum c_element)h->element == C_F32 ? "f" : "";
	}
}

static void prelude(struct print *p, struct buf *out)
{
	print_block(p, "begin", &(struct print_helper){.name = ""}, out);
}

static const char *missing_feature(const struct print *p, const struct kb_func *f)
{
	if (f->linkage == KB_KERNEL)
		return "work-groups in C";
	for (size_t i = 0; i < f->n_insts; i++)
		if (f->insts[i].op == KBO_TILE_CONFIG)
			return "matrix tiles in C: choose a level without them, such as -mcpu=x86-64-v4-bf16";
	return p->options->index_bits == 64 ? NULL : "indices of 32 bits in C";
}

static void type(struct print *p, struct kb_type t, struct space_pointer pointer, struct buf *out)
{
	(void)pointer;
	buf_str(out, c_type(p, c_element_of(t.scalar, t.lanes), t.lanes));
}

static void result_type(enum kb_scalar s, struct buf *out)
{
	buf_str(out, s == KB_VOID ? "void " : c_element_scalar(c_element_of(s, 1)));
	if (s != KB_VOID && s != KB_PTR)
		buf_char(out, ' ');
}

static void head(struct print *p, const struct kb_func *f, bool is_used, struct buf *out)
{
	size_t n = 0;
	if (f->linkage == KB_INTERNAL)
		buf_str(out, is_used ? "static " : "static __attribute__((unused)) ");
	result_type(f->result, out);
	buf_printf(out, "%s(", print_global(p, f->name));
	for (; n < f->n_insts && f->insts[n].op == KBO_PARAM; n++) {
		const struct kb_inst *i = &f->insts[n];
		buf_str(out, n ? ", " : "");
		type(p, i->type, (struct space_pointer){SPACE_NONE, true}, out);
		if (i->type.scalar != KB_PTR)
			buf_char(out, ' ');
		else if (i->flags & KB_NOALIAS)
			buf_str(out, "restrict ");
		buf_str(out, print_value_name(p, i->result));
	}
	buf_str(out, n ? ")" : "void)");
}

/* Little-endian 64-bit word at byte `at`, padded with zeros. */
static uint64_t u64_at(const struct kb_data_item *d, size_t at)
{
	const unsigned char *bytes = d->bytes;
	uint64_t word = 0;
	for (size_t k = 8; k-- > 0;)
		word = word << 8 | (at + k < d->n ? bytes[at + k] : 0u);
	return word;
}

static void data(struct print *p, const struct kb_data_item *d, const char *name, struct buf *out)
{
	size_t n_words = d->n / 8 + (d->n % 8 != 0);
	static const char digits[] = "0123456789abcdef";
	(void)p;
	if (d->linkage != KB_INTERNAL)
		buf_printf(out, "extern const uint64_t %s[];\n", name);
	buf_printf(out, "%sconst uint64_t %s[%zu] __attribute__((aligned(%d)%s)) = {",
	           d->linkage == KB_INTERNAL ? "static " : "", name, n_words ? n_words : 1,
	           d->align > 8 ? d->align : 8, d->linkage == KB_INTERNAL ? ", unused" : "");
	for (size_t i = 0; i < n_words; i++) {
		uint64_t w = u64_at(d, 8 * i);
		char text[19] = "0x";
		int n = 2;
		for (int shift = 60; shift >= 0; shift -= 4)
			if (n > 2 || (w >> shift) & 15 || shift == 0)
				text[n++] = digits[(w >> shift) & 15];
		buf_str(out, i % 6 ? ", " : i ? ",\n\t" : "\n\t");
		buf_bytes(out, text, (size_t)n);
	}
	buf_str(out, n_words ? "\n};\n" : "0};\n");
}

/* ---- values ---- */

enum print_prec c_call_ptr(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_str(out, "((");
	result_type(i->type.scalar, out);
	buf_str(out, "(*)(");
	for (size_t k = 1; k < i->n_args; k++) {
		struct kb_type t = print_arg_type(p, i, k);
		buf_printf(out, "%s%s", k > 1 ? ", " : "",
		           c_type(p, c_element_of(t.scalar, t.lanes), t.lanes));
	}
	buf_printf(out, "%s))(uintptr_t)%s)", i->n_args > 1 ? "" : "void", print_arg(p, i, 0));
	return print_call_text(p, i, 1, "", out);
}

enum print_prec c_symbol(struct print *p, const struct kb_inst *i, struct buf *out)
{
	bool known = strmap_has(&p->globals, i->name);
	if (!known && print_once(p, i->name))
		buf_printf(&p->types, "extern const char %s[];\n", i->name);
	buf_printf(out, "(char *)%s", print_global(p, i->name));
	return PRINT_PRIMARY;
}

enum print_prec c_func_addr(struct print *p, const struct kb_inst *i, struct buf *out)
{
	buf_printf(out, "(char *)(uintptr_t)%s", print_global(p, i->name));
	return PRINT_PRIMARY;
}

enum print_prec c_string(struct print *p, const struct kb_inst *i, struct buf *out)
{
	(void)p;
	buf_str(out, "(char *)");
	print_string(i->name, out);
	return PRINT_PRIMARY;
}

static void array(struct print *p, const struct kb_inst *i, const char *name)
{
	int bytes = c_bits(c_element_of(i->element, 1)) / 8;
	print_line(p, "char %s[%lld * %d] __attribute__((aligned(%d))); /* %s [%lld] */", name,
	           (long long)i->imm, bytes, i->align, c_element_name(c_element_of(i->element, 1)),
	           (long long)i->imm);
}

static void array_text(struct print *p, const struct kb_inst *i, const char *name, struct buf *out)
{
	(void)p;
	(void)i;
	buf_str(out, name);
}

/* Identifiers of this dialect's types ("f32x8") and helpers (OPERATION_TYPE), and those that C reserves. */
static bool is_reserved(const char *name)
{
	const char *last = strrchr(name, '_');
	const char *end = last ? last + 1 : name;
	if (!strncmp(name, "__", 2) || !strcmp(name, "TFMC_INLINE") || strstr(name, "int8_t") ||
	    !strcmp(end, "t"))
		return true;
	for (int e = C_I8; e <= C_PTR; e++)
		if (!strncmp(end, elements[e].name, strlen(elements[e].name)))
			return true;
	return false;
}

static const char *const reserved[] = {"INT64_C", "UINT64_C", "spin_pause", NULL};

#define c_load_part    c_load
#define c_store_part   c_store
#define c_atomic_store c_atomic_load
#define c_atomic_add   c_atomic_load
#define c_nearest      print_unsupported
#define c_tile_config  print_unsupported
#define c_tile_zero    print_unsupported
#define c_tile_load    print_unsupported
#define c_tile_store   print_unsupported
#define c_tile_dot     print_unsupported
#define c_tile_release print_unsupported
#define c_cpuid        print_unsupported
#define c_xgetbv       print_unsupported
#define c_group_id     print_unsupported
#define c_group_count  print_unsupported
#define c_item_id      print_unsupported
#define c_device_dot   print_unsupported
#define c_barrier      print_unsupported

static print_op *const ops[] = {
#define KB_CFAMILY(op, name, effect)
#define KB_OP(op, name, effect) [KBO_##op] = c_##name,
#include "backends/kb/kb_ops.def"
};

const struct cfamily_dialect_table *cfamily_c(void)
{
	static const struct cfamily_dialect_table table = {
	        .name = "C",
	        .helpers = (const char *)c_prelude,
	        .placeholder = placeholder,
	        .has = {.has_dot_u8s8 = true, .has_dot_s8s8 = true, .has_dot_s16s16 = true},
	        .prelude = prelude,
	        .missing_feature = missing_feature,
	        .type = type,
	        .head = head,
	        .ops = ops,
	        .array = array,
	        .array_text = array_text,
	        .data = data,
	        .reserved = reserved,
	        .is_reserved = is_reserved};
	return &table;
}
