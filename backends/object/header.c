/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAME.h: the C99 (and C++) header of an object, with shapes, units and errors in comments. The argument
 * structs have the layout of the argument slots in runtime/abi.h: dims (int64), then of each input and output a pointer
 * and its number of elements. Names of a model may be anything: identifiers that C, C++ or standard headers reserve, or
 * that are taken in the same scope, get an ending (unique_name). Macros and functions have the model's name as prefix,
 * members of structs have none.
 */
#include "backends/object/internal.h"
#include "backends/print/cfamily.h"
#include "ir/support/chars.h"
#include "ir/support/strmap.h"

#include <string.h>

/* runtime/abi.h as a zero-terminated string (ir/support/embed.cmake). */
extern const unsigned char runtime_abi_h[];

struct header_writer {
	const struct object *object;
	struct buf *out;
	const char *upper; /* the model's name in capitals, the prefix of macros */
	struct strmap names_used;
	bool is_unprefixed; /* names are used without the model's prefix: must not be keywords or macros */
};

/* A copy in capitals, with - and . as _; "" without memory (the arena remembers the failure). */
static const char *to_macro_case(const struct object *o, const char *s)
{
	char *copy = ARENA_ARRAY(o->arena, char, strlen(s) + 1);
	for (size_t i = 0; copy && s[i]; i++)
		copy[i] = s[i] >= 'a' && s[i] <= 'z'   ? (char)(s[i] - 'a' + 'A')
		          : s[i] == '-' || s[i] == '.' ? '_'
		                                       : s[i];
	return copy ? copy : "";
}

/* The C type of an element; f16 and bf16, which C lacks, as the integers of their bits. */
static const char *c_type(enum ir_dtype t)
{
	switch (t) {
	case DT_F32: return "float";
	case DT_F16:
	case DT_BF16: return "uint16_t";
	case DT_F64: return "double";
	case DT_I8: return "int8_t";
	case DT_U8:
	case DT_BOOL: return "uint8_t";
	case DT_I16: return "int16_t";
	case DT_I32: return "int32_t";
	case DT_I64: return "int64_t";
	}
	return "void";
}

/* ---- names ---- */

/* C++ keywords that are not C keywords (cfamily_is_keyword knows those). */
static const char *const keywords[] = {
        "and",       "and_eq",       "bitand",     "bitor",     "catch",     "char16_t",
        "char32_t",  "char8_t",      "class",      "co_await",  "co_return", "co_yield",
        "compl",     "concept",      "const_cast", "consteval", "constinit", "decltype",
        "delete",    "dynamic_cast", "explicit",   "export",    "friend",    "mutable",
        "namespace", "new",          "noexcept",   "not",       "not_eq",    "operator",
        "or",        "or_eq",        "private",    "protected", "public",    "reinterpret_cast",
        "requires",  "static_cast",  "template",   "this",      "throw",     "try",
        "typeid",    "typename",     "using",      "virtual",   "wchar_t",   "xor",
        "xor_eq",
};

/* Macros of standard headers: no member may have such a name, since a program may include any header first. */
static const char *const standard_macros[] = {
#define NAME(name) #name,
#define BEGINS(word)
#include "backends/object/c_names.def"
};

static const char *const macro_prefixes[] = {
#define NAME(name)
#define BEGINS(word) #word "_",
#include "backends/object/c_names.def"
};

static bool list_contains(const char *const *list, size_t n, const char *s)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], s))
			return true;
	return false;
}

static bool is_capital(char c)
{
	return (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_all_capitals(const char *s)
{
	while (is_capital(*s) || char_is_digit(*s))
		s++;
	return *s == 0;
}

/* Whether the name belongs to a family of macros of standard headers: a word, _, capitals, such as INT32_MAX. */
static bool has_macro_prefix(const char *s)
{
	size_t n;
	for (size_t i = 0; i < TFMC_COUNT(macro_prefixes); i++) {
		n = strlen(macro_prefixes[i]);
		if (!strncmp(s, macro_prefixes[i], n) && is_all_capitals(s + n))
			return true;
	}
	/* formats of inttypes.h: PRId64, SCNxPTR */
	return (!strncmp(s, "PRI", 3) || !strncmp(s, "SCN", 3)) && s[3] && strchr("diouxX", s[3]) &&
	       is_all_capitals(s + 4);
}

/* Reserved for the implementation: _Bool, __FILE__, .. */
static bool is_reserved(const char *s)
{
	return s[0] == '_' && is_capital(s[1]);
}

static bool is_reserved_by_c(const char *s)
{
	return is_reserved(s) || cfamily_is_keyword(s) || list_contains(keywords, TFMC_COUNT(keywords), s) ||
	       list_contains(standard_macros, TFMC_COUNT(standard_macros), s) || has_macro_prefix(s);
}

/* Begins a scope of names: the members of a struct, or the macros of one kind. */
static void begin_scope(struct header_writer *w, bool is_unprefixed)
{
	w->is_unprefixed = is_unprefixed;
	strmap_init(&w->names_used, w->object->arena);
}

/* The name, with the ending and a number appended if C reserves it or the scope has it already. suffix (or NULL): name
 * + suffix must be free as well (the count of a tensor); both are then taken. A reserved name (_X, __x) gets the ending
 * in front, as an appended one would leave it reserved. */
static const char *unique_name(struct header_writer *w, const char *name, const char *ending,
                               const char *suffix)
{
	struct arena *a = w->object->arena;
	const char *base =
	        w->is_unprefixed && is_reserved(name) ? arena_printf(a, "%s%s", ending, name) : name;
	const char *text = base, *companion = suffix ? arena_printf(a, "%s%s", base, suffix) : base;
	for (int n = 1; (w->is_unprefixed && is_reserved_by_c(text)) || strmap_has(&w->names_used, text) ||
	                strmap_has(&w->names_used, companion);
	     n++) {
		text = n == 1 ? arena_printf(a, "%s_%s", base, ending)
		              : arena_printf(a, "%s_%s%d", base, ending, n);
		companion = suffix ? arena_printf(a, "%s%s", text, suffix) : text;
	}
	(void)strmap_set(&w->names_used, text, w);
	(void)strmap_set(&w->names_used, companion, w);
	return text;
}

static void print_dim(struct header_writer *w, const struct entry *e, const struct ir_dim *d)
{
	ir_dim_print(w->out, w->object->module->dims, entry_dim(w->object, e, d), true);
}

/* Prints a tensor's type for a comment, such as "f32 [B,S,512]". */
static void print_shape(struct header_writer *w, const struct entry *e, const struct ir_type *t)
{
	buf_printf(w->out, "%s [", ir_dtype_name(t->dtype));
	for (int i = 0; i < t->rank; i++) {
		buf_str(w->out, i ? "," : "");
		print_dim(w, e, t->dims[i]);
	}
	buf_str(w->out, "]");
}

/* ---- preamble, macros ---- */

/* Copies the parts of runtime/abi.h that generated headers need, under the same guards: either header may be included
 * first. A part ends at the first #endif: it contains no other. */
static void print_abi_parts(struct header_writer *w)
{
	static const char *const guards[] = {"#ifndef TFMC_CONFIG_DEFINED", "#ifndef TFMC_MODEL_DEFINED"};
	static const char last[] = "#endif\n";
	for (size_t i = 0; i < TFMC_COUNT(guards); i++) {
		const char *from = strstr((const char *)runtime_abi_h, guards[i]);
		const char *end = strstr(from, last) + strlen(last);
		buf_printf(w->out, "%.*s\n", (int)(end - from), from);
	}
}

/* Prints the comment of the file, the include guard and the opening of extern "C"; header_build closes both. */
static void print_preamble(struct header_writer *w)
{
	const struct object *o = w->object;
	buf_printf(w->out,
	           "/*\n"
	           " * Model %s, compiled by tfmc for %s. Made by a tool: do not edit.\n"
	           " *\n"
	           " * Every function returns a status (0: ok), allocates nothing and prints nothing.\n"
	           " * A context is used by one call at a time; any number of contexts may share the\n"
	           " * weights. Tensors are row-major; a count is the number of elements a buffer\n"
	           " * holds. Rows at or beyond a sequence's length are zero in outputs.\n"
	           " */\n"
	           "#ifndef %s_H\n#define %s_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n"
	           "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
	           o->name, object_target_names(o, ", "), w->upper, w->upper);
}

/* Prints macros for the bounds of dims and the bytes that a program reserves (of the state only if there is one). Dims
 * whose names differ in case alone get an ending. */
static void print_macros(struct header_writer *w)
{
	const struct object *o = w->object;
	const struct ir_dims *dims = o->module->dims;
	begin_scope(w, false);
	buf_str(w->out, "/* Bounds of the dims, inclusive. */\n");
	for (size_t i = 0; i < ir_dims_count(dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(dims, i);
		const char *name = unique_name(w, to_macro_case(o, s->name), "DIM", NULL);
		buf_printf(w->out, "#define %s_%s_MIN %lld\n#define %s_%s_MAX %lld\n", w->upper, name,
		           (long long)s->lo, w->upper, name, (long long)s->hi);
	}
	buf_printf(w->out,
	           "\n/* Bytes. The arena at the bounds of all dims; functions below give it for smaller "
	           "ones. */\n"
	           "#define %s_CONTEXT_BYTES %d\n"
	           "#define %s_WEIGHTS_BYTES %lldu\n"
	           "#define %s_WEIGHTS_EMBEDDED %d\n"
	           "#define %s_ARENA_BYTES_MAX(workers) (%lldu + (uint64_t)(workers) * %lldu)\n",
	           w->upper, CONTEXT_BYTES, w->upper, (long long)o->weights.bytes, w->upper, o->embedded,
	           w->upper, (long long)object_arena_max(o), (long long)o->scratch);
	if (o->states.batch_dim >= 0)
		buf_printf(w->out, "#define %s_STATE_BYTES(batch) (%lldu + (uint64_t)(batch) * %lldu)\n",
		           w->upper, (long long)o->states.fixed_bytes, (long long)o->states.batch_bytes);
	if (o->states.context_limit > 0)
		buf_printf(w->out,
		           "/* Tokens a sequence may have in the state. */\n#define %s_CONTEXT_TOKENS %lld\n",
		           w->upper, (long long)o->states.context_limit);
	buf_str(w->out, "\n");
}

/* Macros for tfmc_config.variants, one bit per variant. */
static void print_variants(struct header_writer *w)
{
	const struct object *o = w->object;
	if (o->n_all < 2)
		return;
	buf_str(w->out,
	        "/* Variants of the code, for tfmc_config.variants; what runs where init is called. */\n");
	for (size_t i = 0; i < o->n_all; i++)
		buf_printf(w->out, "#define %s_VARIANT_%s %uu /* %s */\n", w->upper,
		           to_macro_case(o, target_level_name(o->all[i].target)), 1u << i,
		           o->all[i].target->name);
	buf_str(w->out, "\n");
}

/* Prints the token ids as an initializer of an array, with a macro for their number; nothing if there are none. */
static void print_ids(struct header_writer *w, const char *what, const struct backend_ids *ids)
{
	if (ids->n == 0)
		return;
	buf_printf(w->out, "#define %s_%s {", w->upper, what);
	for (size_t i = 0; i < ids->n; i++)
		buf_printf(w->out, "%s%lld", i ? ", " : "", (long long)ids->items[i]);
	buf_printf(w->out, "}\n#define %s_N_%s %zu\n", w->upper, what, ids->n);
}

/* Prints macros for programs that generate text themselves; nothing for models that do not generate. */
static void print_generation(struct header_writer *w)
{
	const struct backend_facts *f = w->object->options->facts;
	if (!f || !f->generate_kind)
		return;
	buf_str(w->out,
	        "/* Generation: the ids a sequence begins with and ends at, and the longest sequence. */\n");
	print_ids(w, "START", &f->start);
	print_ids(w, "STOP", &f->stop);
	buf_printf(w->out, "#define %s_MAX_LEN %lld\n\n", w->upper, (long long)f->max_len);
}

/* Prints the status codes (TFMC_STATUS_TABLE of abi.h) as an enum with the model's prefix. */
static void print_status(struct header_writer *w)
{
	const struct object *o = w->object;
	buf_printf(w->out, "enum %s_status {\n", o->name);
#define ROW(name, value, text) \
	buf_printf(w->out, "%s\t%s_" #name " = %d /* %s */", value ? ",\n" : "", w->upper, value, text);
	TFMC_STATUS_TABLE(ROW)
#undef ROW
	buf_str(w->out, "\n};\n\n");
}

/* ---- entries ---- */

/* Prints a pointer member and begins its comment with the shape; the caller ends the comment. */
static void print_tensor(struct header_writer *w, const struct entry *e, const struct ir_type *t,
                         const char *field, const char *qualifier)
{
	buf_printf(w->out, "\t%s%s *%s; /* ", qualifier, c_type(t->dtype), field);
	print_shape(w, e, t);
}

/* Prints the members of a parameter, pointer and count of elements, with its limits and default as comment. */
static void print_input(struct header_writer *w, const struct entry *e, size_t i)
{
	const struct function *f = &w->object->functions.items[e->function];
	const struct ir_param *p = &f->func->params[i];
	const char *field = unique_name(w, p->name, "data", "_count");
	print_tensor(w, e, ir_type_of(f->func, p->value), field, "const ");
	if (p->below > 0)
		buf_printf(w->out, "; ids in [0,%lld)", (long long)p->below);
	if (p->lengths >= 0 && param_is_input(f->func, (size_t)p->lengths))
		buf_printf(w->out, "; real positions: %s", f->func->params[p->lengths].name);
	if (p->max) {
		buf_str(w->out, "; values in [0,");
		print_dim(w, e, p->max);
		buf_str(w->out, "]");
	}
	if (p->has_default) {
		buf_str(w->out, "; NULL: all ");
		if (p->default_value)
			print_dim(w, e, p->default_value);
		else
			buf_f64(w->out, p->fill);
	}
	buf_printf(w->out, " */\n\tuint64_t %s_count;\n", field);
}

/* Prints the members of a result, pointer and count of elements. */
static void print_output(struct header_writer *w, const struct entry *e, size_t i)
{
	const struct function *f = &w->object->functions.items[e->function];
	const char *field = unique_name(w, f->func->results[i].name, "out", "_count");
	print_tensor(w, e, ir_type_of(f->func, func_result(f->func, i)), field, "");
	buf_printf(w->out, "; NULL: not wanted */\n\tuint64_t %s_count;\n", field);
}

/* The comment over an entry's argument struct. */
static const char *entry_description(enum tfmc_entry_kind kind)
{
	switch (kind) {
	case TFMC_ENTRY_RUN: return "Inputs to outputs, every position, no state.";
	case TFMC_ENTRY_ENCODE: return "The source: fills what the decoder reads of it into the state.";
	case TFMC_ENTRY_PREFILL:
		return "Any number of tokens after those in the state; logits of the last one.";
	case TFMC_ENTRY_STEP: return "One more token for each sequence.";
	case TFMC_ENTRY_SCORE:
		return "Some tokens after those in the state; log p of the target after each of them.";
	}
	return "";
}

/* Prints the argument struct of an entry, in the order of the slots: dims, inputs, outputs; and its two functions. A
 * struct without members, which C lacks, gets one. */
static void print_entry(struct header_writer *w, const struct entry *e)
{
	const struct object *o = w->object;
	const struct function *f = &o->functions.items[e->function];
	uint64_t *dims = ARENA_ARRAY(o->arena, uint64_t, ir_dims_count(o->module->dims) + 1);
	size_t n = dims ? entry_dims(o, e, dims) : 0;
	buf_printf(w->out, "/* %s */\nstruct %s_%s_args {\n", entry_description(e->kind), o->name, e->name);
	begin_scope(w, true);
	for (size_t i = 0; i < n; i++) {
		const char *name = ir_dims_sym(o->module->dims, dims[i])->name;
		buf_printf(w->out, "\tint64_t %s;\n", unique_name(w, name, "dim", NULL));
	}
	for (size_t i = 0; i < f->func->n_params; i++)
		if (param_is_input(f->func, i))
			print_input(w, e, i);
	for (size_t i = 0; i < f->func->n_results; i++)
		if (result_is_output(f->func, i))
			print_output(w, e, i);
	if (n + f->n_inputs + f->n_outputs == 0)
		buf_str(w->out, "\tint64_t unused;\n");
	buf_printf(w->out,
	           "};\n"
	           "int32_t %s_%s(void *context, const struct %s_%s_args *args);\n"
	           "/* Called by all workers of the context at the same time with equal arguments. */\n"
	           "int32_t %s_%s_spmd(void *context, const struct %s_%s_args *args, int64_t worker);\n\n",
	           o->name, e->name, o->name, e->name, o->name, e->name, o->name, e->name);
}

/* ---- functions ---- */

/* Prints a declaration, NAME_name, without a space between a pointer's * and the name. */
static void print_function(struct header_writer *w, const char *result, const char *name,
                           const char *parameters, const char *comment)
{
	const char *space = result[strlen(result) - 1] == '*' ? "" : " ";
	buf_printf(w->out, "/* %s */\n%s%s%s_%s(%s);\n", comment, result, space, w->object->name, name,
	           parameters);
}

/* Prints the context, the record, and the functions that are not entries: those of struct tfmc_model (MODEL) and the
 * others are declared alike. */
static void print_functions(struct header_writer *w)
{
	buf_printf(w->out,
	           "struct %s_context {\n\tuint64_t words[%d];\n};\n\n"
	           "/* Identity record, constant; struct tfmc_record of tfmc's runtime/abi.h. */\n"
	           "extern const uint64_t %s_record[];\n",
	           w->object->name, CONTEXT_BYTES / 8, w->object->name);
#define MODEL(field, name, result, parameters, comment) print_function(w, result, #name, parameters, comment);
#define OTHER(name, result, parameters, comment)        print_function(w, result, #name, parameters, comment);
#include "backends/interface.def"
	if (w->object->options->labels)
		buf_printf(w->out,
		           "/* Names groups of kernels: struct tfmc_timeline_options of tfmc_rt.h. */\n"
		           "struct tfmc_group_query;\nstruct tfmc_group_label;\n"
		           "int %s_label(void *user, const struct tfmc_group_query *group, struct "
		           "tfmc_group_label "
		           "*out);\n",
		           w->object->name);
	buf_char(w->out, '\n');
}

/* Prints inline functions that give the bytes to reserve. Parameters are dims with _ appended, as a dim's own
 * name may be a macro or keyword. */
static void print_arena_size(struct header_writer *w)
{
	const struct object *o = w->object;
	size_t n = ir_dims_count(o->module->dims);
	buf_printf(w->out, "static inline uint64_t %s_arena_size(", o->name);
	for (size_t i = 0; i < n; i++)
		buf_printf(w->out, "int64_t %s_, ", ir_dims_sym(o->module->dims, i)->name);
	buf_printf(w->out, "int64_t workers)\n{\n\tint64_t dims[%zu];\n", n > 0 ? n : 1);
	buf_str(w->out, n > 0 ? "" : "\tdims[0] = 0;\n");
	for (size_t i = 0; i < n; i++)
		buf_printf(w->out, "\tdims[%zu] = %s_;\n", i, ir_dims_sym(o->module->dims, i)->name);
	buf_printf(w->out, "\treturn %s_arena_bytes(dims, workers);\n}\n\n", o->name);
	buf_printf(w->out,
	           "static inline uint64_t %s_weights_size(void)\n{\n\treturn %s_WEIGHTS_BYTES;\n}\n\n"
	           "static inline uint64_t %s_state_size(int64_t batch)\n{\n\treturn "
	           "%s_state_bytes(batch);\n}\n\n",
	           o->name, w->upper, o->name, o->name);
}

/* Prints NAME_model(), which collects the record and the functions for programs that link a runtime. Inline, so
 * that the object has no table of addresses, which would need relocations. */
static void print_model(struct header_writer *w)
{
	const char *n = w->object->name;
	buf_printf(w->out,
	           "/* For the functions of tfmc_rt.h. */\n"
	           "static inline struct tfmc_model %s_model(void)\n{\n"
	           "\tstruct tfmc_model model;\n"
	           "\tmodel.record = (const struct tfmc_record *)(const void *)%s_record;\n",
	           n, n);
#define MODEL(field, name, result, parameters, comment) \
	buf_printf(w->out, "\tmodel." #field " = %s_" #name ";\n", n);
#define OTHER(name, result, parameters, comment)
#include "backends/interface.def"
	buf_str(w->out, "\treturn model;\n}\n\n");
}

void header_build(const struct object *o, struct buf *out)
{
	struct header_writer w = {.object = o, .out = out, .upper = to_macro_case(o, o->name)};
	print_preamble(&w);
	print_abi_parts(&w);
	print_macros(&w);
	print_variants(&w);
	print_generation(&w);
	print_status(&w);
	print_functions(&w);
	for (size_t i = 0; i < o->entries.n; i++)
		print_entry(&w, &o->entries.items[i]);
	print_arena_size(&w);
	print_model(&w);
	buf_printf(out, "#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
}
