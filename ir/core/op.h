/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Op codes, attribute structs and op descriptors, generated from ops.def and keywords.def. Facts only: inference,
 * folding, evaluation and code generation have tables of their own, indexed by op code.
 */
#ifndef TFMC_IR_CORE_OP_H
#define TFMC_IR_CORE_OP_H

#include "ir/types/type.h"

enum ir_opcode {
#define OP(name, traits, operands, attributes, results, axes, formula) OP_##name,
#include "ir/core/ops.def"
};
#define OP(name, traits, operands, attributes, results, axes, formula) +1
enum {
	IR_N_OPS = 0
#include "ir/core/ops.def"
};

/* Traits of ops: X(NAME, bit, name in the reference). */
#define IR_TRAITS(X)                                                                                   \
	X(PURE, 0, pure) /* no side effects */                                                         \
	X(VIEW, 1, view) /* the result is the operand's elements under other strides, no copy */       \
	X(ELEMENTWISE, 2, elementwise) /* element i depends on elements i of the operands */           \
	X(ROWWISE, 3, rowwise)         /* a row of the last axis depends on that row of the operand */ \
	X(REDUCE, 4, reduce)                                                                           \
	X(CONTRACT, 5, contract) /* sums products: matmul, linear, attention */                        \
	X(MOVE, 6, move)         /* copies elements, no arithmetic */                                  \
	X(CONST, 7, const)       /* no tensor operands */                                              \
	X(STATEFUL, 8, stateful) /* consumes a state and returns it */                                 \
	X(REGION, 9, region)                                                                           \
	X(TERMINATOR, 10, terminator)                                                                  \
	X(COMMUTATIVE, 11, commutative)                                                                \
	X(EXCHANGE, 12, exchange) /* reads values of other ranks; attributes begin with `ranks` and `tag` */

enum ir_traits {
#define X(NAME, bit, name) TRAIT_##NAME = 1 << (bit),
	IR_TRAITS(X)
#undef X
};

#define IR_RANKS_MAX  1024      /* processes of one model */
#define IR_WINDOW_MAX (1 << 30) /* of attention masks: position + window stays below 2^31 */

/* enum ir_keyword_mask { MASK_none, MASK_causal }, .. */
#define WORD(list, word)         list##_##word,
#define WORDS(list, name, words) enum ir_keyword_##name{words};
#include "ir/core/keywords.def"
#undef WORD

enum ir_keyword_list {
#define WORDS(list, name, words) KEYWORDS_##list,
#include "ir/core/keywords.def"
};
/* Number of keywords of a list, and keyword `word` as text. */
int ir_keyword_count(enum ir_keyword_list list);
const char *ir_keyword(enum ir_keyword_list list, int word);

struct ir_weight;

struct ir_dim_list {
	const struct ir_dim **items;
	size_t n;
};
struct ir_int_list {
	int64_t *items;
	size_t n;
};

/* The permutation exchanges the last two axes only. */
bool ir_is_matrix_transpose(const struct ir_int_list *perm);

/* struct attrs_<op>; the unused member is for ops without attributes. */
#define FLOAT(name, def)             double name;
#define INT(name, def)               int64_t name;
#define FLAG(name)                   bool name;
#define DIMATTR(name)                const struct ir_dim *name;
#define DIMS(name)                   struct ir_dim_list name;
#define INTS(name)                   struct ir_int_list name;
#define DTYPEATTR(name)              enum ir_dtype name;
#define KEYWORDATTR(name, list, def) int name; /* enum ir_keyword_<list> */
#define WEIGHT(name)                 const struct ir_weight *name;
#define SIZE(name, kinds)            int64_t name;
#define DECISION(name, list, kinds)  int name; /* enum ir_keyword_<list>, 0: automatic */
#define OP(name, traits, operands, attributes, results, axes, formula) \
	struct attrs_##name {                                          \
		attributes char unused_;                               \
	};
#include "ir/core/ops.def"

/*
 * Index of an operand as a constant: op->operands[OPERAND(attention, past)]. Every op has slots for all its operands,
 * absent optional ones are IR_NO_VALUE; variadic operands begin at their index, OPERAND(state_read, at).
 */
#define IN(name, class)  char name;
#define OPT(name, class) char name;
#define VAR(name, class) char name;
#define OP(name, traits, operands, attributes, results, axes, formula) \
	struct operands_##name {                                       \
		operands char unused_;                                 \
	};
#include "ir/core/ops.def"
#define OPERAND(op, name) offsetof(struct operands_##op, name)

enum ir_operand_class { CLASS_ANY, CLASS_FLOAT, CLASS_INT, CLASS_I32, CLASS_BOOL, CLASS_NUMBER, CLASS_STATE };

enum ir_operand_kind { OPERAND_REQUIRED, OPERAND_OPTIONAL, OPERAND_VARIADIC };

struct ir_operand_desc {
	const char *name; /* NULL ends the list */
	enum ir_operand_class class;
	enum ir_operand_kind kind;
};

enum ir_attr_kind {
	ATTR_FLOAT,
	ATTR_INT,
	ATTR_FLAG,
	ATTR_DIM,
	ATTR_DIMS,
	ATTR_INTS,
	ATTR_DTYPE,
	ATTR_KEYWORD,
	ATTR_WEIGHT,
};

struct ir_attr_desc {
	const char *name; /* NULL ends the list */
	enum ir_attr_kind kind;
	size_t offset;              /* in struct attrs_<op> */
	double float_default;       /* ATTR_FLOAT */
	int64_t int_default;        /* ATTR_INT, ATTR_KEYWORD */
	enum ir_keyword_list words; /* ATTR_KEYWORD */
	/* Of groups that have the attribute, bits 1 << enum ir_keyword_group; 0: all, or the op is no group. */
	unsigned kinds;
};

struct ir_op_desc {
	enum ir_opcode code;
	const char *name;
	unsigned traits; /* enum ir_traits */
	const struct ir_operand_desc *operands;
	const struct ir_attr_desc *attrs;
	size_t attrs_bytes; /* sizeof(struct attrs_<op>) */
	size_t results;     /* number; 0: determined by the region or the function */
	const char *axes;   /* named axes (ir/core/axes.h); NULL: only a rule of type inference */
	const char *formula;
};

const struct ir_op_desc *ir_op_desc(enum ir_opcode code);
/* The attribute at `a` has the default of d, so texts omit it. Floats are compared bit by bit: -0.0 is not 0.0. Dims,
 * lists of integers and dtypes have no default; a weight is printed with the operands. */
bool ir_attr_is_default(const struct ir_attr_desc *d, const void *a);
/* Appends the attribute at `a` as texts have it, `name=value`; the name alone for a flag, which is set. dims: of the
 * module, for attributes of dims. */
void ir_attr_print(struct buf *out, const struct ir_dims *dims, const struct ir_attr_desc *d, const void *a);
/* Appends `[4,B*S]`. The separator is `,` in attributes, `, ` after the body of a group. */
void ir_dims_print(struct buf *out, const struct ir_dims *dims, const struct ir_dim_list *list,
                   const char *separator);
/* False when no op has that name. */
bool ir_op_find(const char *name, size_t n, enum ir_opcode *out);
bool ir_op_has(enum ir_opcode code, unsigned traits); /* all of these traits */
static inline bool ir_is_norm(enum ir_opcode code)
{
	return code == OP_layer_norm || code == OP_rms_norm;
}

#endif
