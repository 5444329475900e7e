/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the C-family emitter. The core (this directory) emits functions, names, control flow, variables, calls
 * and comments, counts uses, and folds single-use values into the expressions that use them; a dialect (c.c,
 * opencl.c) supplies the syntax of types, values, memory and machine operations through a cfamily_dialect_table.
 *
 * The text of a value is an expression without side effects. A dialect writes it without outer parentheses and
 * returns its precedence; the core adds parentheses where it is an operand.
 */
#ifndef TFMC_BACKENDS_PRINT_PRINT_H
#define TFMC_BACKENDS_PRINT_PRINT_H

#include "backends/print/cfamily.h"
#include "backends/print/space.h"
#include "ir/support/strmap.h"

/* Precedence of an expression. */
enum print_prec {
	PRINT_PRIMARY,  /* a name, a literal, a call, or a cast or a member of a primary expression */
	PRINT_ADDITIVE, /* + - * / %: another term may be added without parentheses */
	PRINT_LOWEST    /* anything else */
};

/* The expression of a value. */
struct print_value {
	const char *text;  /* as an operand, in parentheses if needed; NULL: not defined yet, or not used */
	const char *bare;  /* without outer parentheses: as an argument or after `=` */
	const char *inner; /* C: set if text is "(type)(inner)" with an unsigned expression; else NULL */
	enum print_prec precedence; /* of inner if set, otherwise of bare */
	bool is_name;               /* text is an identifier */
	uint32_t uses;              /* by instructions that are printed */
	bool is_pending; /* not assigned to a name: folded into its only use, or named by print_flush */
	bool has_load;   /* the expression reads memory */
	uint32_t *gets;  /* [n_gets] variables that the expression reads */
	size_t n_gets;
	enum kb_opcode user; /* of uses == 1: the instruction that uses it */
	const struct kb_inst *definition;
};

struct print_var {
	const char *name;
	bool is_read; /* by an instruction that is printed */
};

struct cfamily_dialect_table;

struct print {
	struct diag_context *cx;
	const struct kb_module *m;
	const struct cfamily_options *options;
	const struct cfamily_dialect_table *dialect;
	struct arena *arena;
	struct space_module spaces; /* .funcs NULL where the dialect has no address spaces */

	struct strmap needed;  /* helpers and types that have been requested */
	struct buf types;      /* typedefs, printed before helpers */
	struct buf helpers;    /* printed before the first function, in order of first request */
	struct strmap globals; /* IR name -> identifier in the text */
	struct strmap taken;   /* identifiers at file scope */

	/* the function being printed */
	const struct kb_func *f;
	size_t f_number;
	struct print_value *values; /* [n_values], by value id */
	struct print_var *vars;     /* [n_vars], by variable id */
	const uint8_t *alignments;  /* kb_alignments */
	struct strmap locals;       /* identifier -> flag of its block: in use while the block is open */
	bool **blocks;              /* [depth + 1]: flags of the open blocks */
	uint32_t *pending;          /* ids of pending values, in order of definition */
	size_t n_pending;
	uint32_t n_temporaries;
	int depth; /* nesting of blocks, which is the indentation in tabs */
	struct buf body;
	struct buf scratch; /* for one expression */
	bool failed;        /* a diagnostic was reported */
};

/*
 * Emits an operation in a dialect: appends the expression of its value to `out` and returns its precedence. An
 * operation without a value appends its statement without the semicolon, or nothing if there is no statement or
 * print_line has written it. Operands come from print_arg.
 */
typedef enum print_prec print_op(struct print *p, const struct kb_inst *i, struct buf *out);

/* An instance of a helper function: a block of the dialect's prelude, with placeholders for an element type and
 * lanes. */
struct print_helper {
	const char *name;
	unsigned element; /* element type in the dialect's numbering */
	int lanes;
	const char *args[6]; /* replace $1 to $6 of the block */
};

struct cfamily_dialect_table {
	const char *name;
	/* prelude.c.in or prelude.cl.in: blocks, each under a line "@@ NAME: .." */
	const char *helpers;
	/* The replacement of $letter in a block. */
	const char *(*placeholder)(struct print *p, const struct print_helper *h, char letter);
	bool has_spaces; /* pointers have address spaces: print->spaces is inferred before anything is printed */
	struct kb_caps has; /* operations with syntax or helpers; kb_legalize expands the others */
	/* Prints the top of the file, after the title and before the requested helpers. */
	void (*prelude)(struct print *p, struct buf *out);
	/* Returns what the dialect lacks for the function ("f64"), or NULL. */
	const char *(*missing_feature)(const struct print *p, const struct kb_func *f);
	/* Prints the type of a value or variable, and requests its typedef; `pointer`: address space of a KB_PTR. */
	void (*type)(struct print *p, struct kb_type t, struct space_pointer pointer, struct buf *out);
	/* Prints "static void name(int32_t a, ...)" without ; or {. Parameters are named by print_value_name.
	 * is_used: the module refers to the function. */
	void (*head)(struct print *p, const struct kb_func *f, bool is_used, struct buf *out);
	/* [enum kb_opcode]: for all rows of kb_ops.def but KB_CFAMILY. */
	print_op *const *ops;
	/* Prints the declaration of LOCAL or SHARED with print_line. */
	void (*array)(struct print *p, const struct kb_inst *i, const char *name);
	/* Prints the expression of the array's address. */
	void (*array_text)(struct print *p, const struct kb_inst *i, const char *name, struct buf *out);
	/* Prints a definition of constant data at file scope. */
	void (*data)(struct print *p, const struct kb_data_item *d, const char *name, struct buf *out);
	/* Prints a source location of the model with print_line. NULL: the core prints a comment. */
	void (*source_loc)(struct print *p, const char *text);
	/* Keywords of the dialect besides those of C; ends with NULL. */
	const char *const *reserved;
	/* True for other identifiers that must not be used, such as names of helpers and types. */
	bool (*is_reserved)(const char *name);
};

/* The tables of the dialects: C11 with the vector extensions of gcc and clang; OpenCL C 1.2. */
const struct cfamily_dialect_table *cfamily_c(void);
const struct cfamily_dialect_table *cfamily_opencl(void);

/* ---- for dialects ---- */
/* True the first time that `name` is requested: the caller then prints it into types or helpers. */
bool print_once(struct print *p, const char *name);
/* Operand k as an operand of any operator: in parentheses unless it is primary. */
const char *print_arg(const struct print *p, const struct kb_inst *i, size_t k);
const struct print_value *print_arg_value(const struct print *p, const struct kb_inst *i, size_t k);
/* For an operation whose value is operand k, unchanged: prints the operand and returns its precedence. */
enum print_prec print_forwarded_arg(const struct print *p, const struct kb_inst *i, size_t k,
                                    struct buf *out);
/* Prints "(type)(inner)" and stores `inner`, an unsigned expression of that precedence, so that a use which
 * continues in unsigned arithmetic can leave the conversion out. */
enum print_prec print_converted(struct print *p, const struct kb_inst *i, const char *type, const char *inner,
                                enum print_prec precedence, struct buf *out);
struct kb_type print_arg_type(const struct print *p, const struct kb_inst *i, size_t k);
struct space_pointer print_arg_space(const struct print *p, const struct kb_inst *i, size_t k);
struct space_pointer print_value_space(const struct print *p, uint32_t id);
/* Operand k without outer parentheses: as an argument or after `=`. */
const char *print_bare_arg(const struct print *p, const struct kb_inst *i, size_t k);
/* Prints "name(a, b, c)" with the operands from `first` on. */
enum print_prec print_call_text(const struct print *p, const struct kb_inst *i, size_t first,
                                const char *name, struct buf *out);
/* True, with its value in *out, if operand k is an integer constant. */
bool print_const_arg(const struct print *p, const struct kb_inst *i, size_t k, int64_t *out);
/* The name of a value that has one (parameters). */
const char *print_value_name(const struct print *p, uint32_t id);
/* Prints the parameters of the function and the parenthesis after them; `first` and `next` precede the parameters. */
void print_params(struct print *p, const char *first, const char *next, struct buf *out);
/* The identifier of a function or data; external names stay as they are. */
const char *print_global(struct print *p, const char *name);
/* Instantiates a block of the prelude on the first request of h->name; helpers that it calls must be requested
 * before. Returns h->name. */
const char *print_helper(struct print *p, const char *block, const struct print_helper *h);
/* Prints a block of the prelude to `out`, with the name, arguments and types of h for its $ letters. */
void print_block(struct print *p, const char *block, const struct print_helper *h, struct buf *out);
/* A string literal. */
void print_string(const char *text, struct buf *out);
/* For operations that the dialect lacks: a diagnostic that names the operation. */
print_op print_unsupported;
/* Prints a line at the current depth, such as a statement with its semicolon. */
void print_line(struct print *p, const char *fmt, ...) TFMC_PRINTF(2, 3);

/* ---- the core's own files ---- */
/* Assigns pending values to names before an effect that could change them: those that read memory, those that read
 * variable `var`, or all. */
enum print_flush { FLUSH_LOADS, FLUSH_VAR, FLUSH_ALL };
/* A new local identifier derived from `name`. */
const char *print_local_name(struct print *p, const char *name);
/* Reports that the dialect cannot express `what`; only the first time. */
void print_fail(struct print *p, const char *what);

#endif
