/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The printer's inside: what its core and its dialects share. The core owns
 * functions, names, control flow, variables, calls, comments, use counts and
 * the folding of values into the expressions that use them; a dialect says how
 * types, values, memory and machine operations are spelled.
 *
 * The text of a value is an expression without side effects. A dialect writes it without parentheses around it and
 * says how tightly it binds; the core adds parentheses where it is an operand.
 */
#ifndef TFMC_BACKENDS_PRINT_PRINT_H
#define TFMC_BACKENDS_PRINT_PRINT_H

#include "backends/print/cfamily.h"
#include "backends/print/space.h"
#include "ir/support/strmap.h"

/* How tightly an expression binds. */
enum print_prec {
	PRINT_PRIMARY, /* a name, a literal, a call, or a cast or a member of something that binds as tightly */
	PRINT_ADDITIVE, /* + - * / %: another term may follow */
	PRINT_LOWEST    /* anything else */
};

struct print_value {
	const char *text;  /* as an operand; NULL: not defined yet, or not used */
	const char *bare;  /* between commas or after `=` */
	const char *inner; /* C: the unsigned expression whose conversion `text` is; NULL: text is none */
	enum print_prec precedence; /* of inner, else of bare */
	bool is_name;               /* text is one */
	uint32_t uses;              /* by instructions that are printed */
	bool is_pending;            /* text is an expression of its own, not a name or a literal */
	bool has_load;              /* the expression reads memory */
	uint32_t *gets;             /* [n_gets] variables the expression reads */
	size_t n_gets;
	enum kb_opcode user; /* the last instruction that uses it */
	const struct kb_inst *definition;
};

struct print_var {
	const char *name;
	bool is_read; /* by something that is printed */
};

struct cfamily_dialect_table;

struct print {
	struct diag_context *cx;
	const struct kb_module *m;
	const struct cfamily_options *options;
	const struct cfamily_dialect_table *dialect;
	struct arena *arena;
	struct space_module spaces; /* .funcs NULL where the dialect has no address spaces */

	struct strmap needed;  /* helpers and types that were asked for */
	struct buf types;      /* printed before helpers */
	struct buf helpers;    /* printed before the first function, in order of their need */
	struct strmap globals; /* record name -> name in the text */
	struct strmap taken;   /* names in the text that stand for something at file scope */

	/* the function being printed */
	const struct kb_func *f;
	size_t f_number;
	struct print_value *values; /* [n_values], by value id */
	struct print_var *vars;     /* [n_vars], by variable id */
	const uint8_t *alignments;  /* kb_alignments */
	struct strmap locals;       /* name -> the flag of its block: in use while that is open */
	bool **blocks;              /* [depth + 1]: is open */
	uint32_t *pending;          /* ids of values whose text is an expression, in order of definition */
	size_t n_pending;
	uint32_t n_temporaries;
	int depth; /* of blocks: tabs before a statement */
	struct buf body;
	struct buf scratch; /* for one expression */
	bool failed;        /* a diagnostic was reported */
};

/*
 * An operation in a dialect: the expression of its value; of an operation that gives none the statement without its
 * semicolon, or nothing when there is no statement or it is written by print_line. Operands come from print_arg.
 */
typedef enum print_prec print_op(struct print *p, const struct kb_inst *i, struct buf *out);

/* A helper function of a printed file: a block of the dialect's text for an element and a number of lanes. */
struct print_helper {
	const char *name;
	unsigned element; /* as the dialect numbers them */
	int lanes;
	const char *args[6]; /* $1 to $6 of the block */
};

struct cfamily_dialect_table {
	const char *name;
	const char *helpers; /* what the file begins with, and the helpers, in blocks */
	/* What $letter means in a block. */
	const char *(*placeholder)(struct print *p, const struct print_helper *h, char letter);
	bool has_spaces;    /* print->spaces is filled before anything is printed */
	struct kb_caps has; /* what it has words or helpers for; kb_legalize writes out the rest */
	/* Top of the file, after the title; needed helpers follow it. */
	void (*prelude)(struct print *p, struct buf *out);
	/* Why the function cannot be said in this dialect ("f64"), or NULL. */
	const char *(*refuse)(const struct print *p, const struct kb_func *f);
	/* Type of a value or variable; `pointer` is where a KB_PTR points. Asks for what it needs. */
	void (*type)(struct print *p, struct kb_type t, struct space_pointer pointer, struct buf *out);
	/* "static void name(int32_t a, ...)" without ; or {. Parameter names: print_value_name. is_used:
	 * something in the module refers to it. */
	void (*head)(struct print *p, const struct kb_func *f, bool is_used, struct buf *out);
	/* [enum kb_opcode]: of all rows of kb_ops.def but KB_CFAMILY. */
	print_op *const *ops;
	/* The declaration of LOCAL or SHARED as one line by print_line; the value's text becomes what
	 * array_text writes. */
	void (*array)(struct print *p, const struct kb_inst *i, const char *name);
	void (*array_text)(struct print *p, const struct kb_inst *i, const char *name, struct buf *out);
	/* A whole definition of constant data at file scope. */
	void (*data)(struct print *p, const struct kb_data_item *d, const char *name, struct buf *out);
	/* A place of the model as lines by print_line. NULL: the core writes it as a comment. */
	void (*place)(struct print *p, const char *text);
	/* Words that are no names in this dialect, beside those of C; ends with NULL. */
	const char *const *reserved;
	/* Prefixes and whole names of helpers and types that the dialect prints itself. */
	bool (*is_reserved)(const char *name);
};

const struct cfamily_dialect_table *cfamily_c(void);
const struct cfamily_dialect_table *cfamily_opencl(void);

/* ---- for dialects ---- */
/* True the first time somebody asks for `name`: the caller then writes it into types or helpers. */
bool print_once(struct print *p, const char *name);
/* Operand k as an operand of any operator. */
const char *print_arg(const struct print *p, const struct kb_inst *i, size_t k);
/* What is known about operand k. */
const struct print_value *print_arg_value(const struct print *p, const struct kb_inst *i, size_t k);
/* The value of i is operand k: writes it and gives its precedence. */
enum print_prec print_forwarded_arg(const struct print *p, const struct kb_inst *i, size_t k,
                                    struct buf *out);
/* The value of i is `inner`, an unsigned expression of that precedence, converted to `type`: writes "(type)(inner)". */
enum print_prec print_converted(struct print *p, const struct kb_inst *i, const char *type, const char *inner,
                                enum print_prec precedence, struct buf *out);
struct kb_type print_arg_type(const struct print *p, const struct kb_inst *i, size_t k);
struct space_pointer print_arg_space(const struct print *p, const struct kb_inst *i, size_t k);
struct space_pointer print_value_space(const struct print *p, uint32_t id);
/* Operand k as something between commas or after `=`: without outer parentheses. */
const char *print_bare_arg(const struct print *p, const struct kb_inst *i, size_t k);
/* "name(a, b, c)" of the operands from number `first` on. */
enum print_prec print_call_text(const struct print *p, const struct kb_inst *i, size_t first,
                                const char *name, struct buf *out);
/* True for a constant index or integer operand. */
bool print_const_arg(const struct print *p, const struct kb_inst *i, size_t k, int64_t *out);
/* The name of a value that has one (parameters). */
const char *print_value_name(const struct print *p, uint32_t id);
/* The name at file scope for a record name (functions, data); also for names outside the module. */
const char *print_global(struct print *p, const char *name);
/* Prints the block among the helpers the first time that its name is asked for; what it calls was asked for before.
 * Gives the name. */
const char *print_helper(struct print *p, const char *block, const struct print_helper *h);
void print_block(struct print *p, const char *block, const struct print_helper *h, struct buf *out);
/* A string literal. */
void print_string(const char *text, struct buf *out);
/* What the dialect has no words for: a diagnostic that names the operation. */
print_op print_unsupported;
/* One statement on its own line at the current depth; the text brings its semicolon. */
void print_line(struct print *p, const char *fmt, ...) TFMC_PRINTF(2, 3);

/* ---- the core's own files ---- */
/* Fills uses and is_read of the function: what is printed at all. */
void print_count_uses(struct print *p);
/* The operands now belong to the text of this instruction. */
void print_consume(struct print *p, const struct kb_inst *i);
/* Definition of a value by an expression: its text, kept back when it is used once. */
void print_define(struct print *p, const struct kb_inst *i);
/* Prints `const type name = bare;` and lets the name stand for the value. */
void print_assign_name(struct print *p, uint32_t id, const char *bare);
/* Gives names to pending values: those that read memory, those that read variable `var` (0: none), or all. */
enum print_flush { FLUSH_LOADS, FLUSH_VAR, FLUSH_ALL };
void print_flush(struct print *p, enum print_flush which, uint32_t var);
/* From here on the value is that name. */
void print_name_value(struct print *p, uint32_t id, const char *name);
/* A fresh local name made of `name`. */
const char *print_local_name(struct print *p, const char *name);
/* Blocks: names of a closed block may be used again. */
void print_open(struct print *p);
void print_close(struct print *p);
bool print_names_begin(struct print *p);  /* of the file */
bool print_locals_begin(struct print *p); /* of the function */
void print_control(struct print *p, const struct kb_inst *i);
void print_function(struct print *p, size_t number);
void print_comment(struct print *p, const struct kb_inst *i);
/* Reports once that the dialect has no words for this. */
void print_fail(struct print *p, const char *what);

#endif
