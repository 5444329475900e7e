/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Op descriptors, expanded from ops.def and keywords.def. The tables of an op are static in a function of its own, in
 * which `self` is its attribute struct, so that the attribute macros can take offsets.
 */
#include "ir/core/op.h"

#include <string.h>

/* Names of the traits in ops.def. */
enum {
	PURE = TRAIT_PURE,
	VIEW = TRAIT_VIEW,
	ELEMENTWISE = TRAIT_ELEMENTWISE,
	ROWWISE = TRAIT_ROWWISE,
	REDUCE = TRAIT_REDUCE,
	CONTRACT = TRAIT_CONTRACT,
	MOVE = TRAIT_MOVE,
	CONST = TRAIT_CONST,
	STATEFUL = TRAIT_STATEFUL,
	REGION = TRAIT_REGION,
	TERMINATOR = TRAIT_TERMINATOR,
	COMMUTATIVE = TRAIT_COMMUTATIVE,
};

#define WORD(list, word)         #word,
#define WORDS(list, name, words) static const char *const words_of_##list[] = {words};
#include "ir/core/keywords.def"
#undef WORD

struct word_list {
	const char *const *words;
	int n;
};

static const struct word_list word_lists[] = {
#define WORDS(list, name, words) [KEYWORDS_##list] = {words_of_##list, (int)TFMC_COUNT(words_of_##list)},
#include "ir/core/keywords.def"
};

int ir_keyword_count(enum ir_keyword_list list)
{
	return word_lists[list].n;
}

const char *ir_keyword(enum ir_keyword_list list, int word)
{
	return word_lists[list].words[word];
}

#define IN(name, cls)                 {#name, CLASS_##cls, OPERAND_REQUIRED},
#define OPT(name, cls)                {#name, CLASS_##cls, OPERAND_OPTIONAL},
#define VAR(name, cls)                {#name, CLASS_##cls, OPERAND_VARIADIC},
#define ATTR(name, kind, f, i, words) {#name, kind, offsetof(self, name), f, i, words},
#define FLOAT(name, def)              ATTR(name, ATTR_FLOAT, def, 0, KEYWORDS_MASK)
#define INT(name, def)                ATTR(name, ATTR_INT, 0.0, def, KEYWORDS_MASK)
#define FLAG(name)                    ATTR(name, ATTR_FLAG, 0.0, 0, KEYWORDS_MASK)
#define DIMATTR(name)                 ATTR(name, ATTR_DIM, 0.0, 0, KEYWORDS_MASK)
#define DIMS(name)                    ATTR(name, ATTR_DIMS, 0.0, 0, KEYWORDS_MASK)
#define INTS(name)                    ATTR(name, ATTR_INTS, 0.0, 0, KEYWORDS_MASK)
#define DTYPEATTR(name)               ATTR(name, ATTR_DTYPE, 0.0, 0, KEYWORDS_MASK)
#define KEYWORDATTR(name, list, def)  ATTR(name, ATTR_KEYWORD, 0.0, list##_##def, KEYWORDS_##list)
#define WEIGHT(name)                  ATTR(name, ATTR_WEIGHT, 0.0, 0, KEYWORDS_MASK)
#define EACH                          "EACH"
#define BY_RULE                       NULL
#define OP(op, op_traits, op_operands, op_attributes, op_results, op_axes, op_formula) \
	static const struct ir_op_desc *describe_##op(void)                            \
	{                                                                              \
		typedef struct attrs_##op self;                                        \
		static const struct ir_operand_desc operands[] = {                     \
		        op_operands{NULL, CLASS_ANY, OPERAND_REQUIRED}};               \
		static const struct ir_attr_desc attrs[] = {                           \
		        op_attributes{NULL, ATTR_FLOAT, 0, 0.0, 0, KEYWORDS_MASK}};    \
		static const struct ir_op_desc desc = {.code = OP_##op,                \
		                                       .name = #op,                    \
		                                       .traits = op_traits,            \
		                                       .operands = operands,           \
		                                       .attrs = attrs,                 \
		                                       .attrs_bytes = sizeof(self),    \
		                                       .results = op_results,          \
		                                       .axes = op_axes,                \
		                                       .formula = op_formula};         \
		return &desc;                                                          \
	}
#include "ir/core/ops.def"

typedef const struct ir_op_desc *describe_fn(void);

static describe_fn *const descriptions[] = {
#define OP(name, traits, operands, attributes, results, axes, formula) [OP_##name] = describe_##name,
#include "ir/core/ops.def"
};

const struct ir_op_desc *ir_op_desc(enum ir_opcode code)
{
	return descriptions[code]();
}

bool ir_op_find(const char *name, size_t n, enum ir_opcode *out)
{
	for (int i = 0; i < IR_N_OPS; i++) {
		const char *s = ir_op_desc((enum ir_opcode)i)->name;
		if (strlen(s) == n && memcmp(s, name, n) == 0) {
			*out = (enum ir_opcode)i;
			return true;
		}
	}
	return false;
}

bool ir_op_has(enum ir_opcode code, unsigned traits)
{
	return (ir_op_desc(code)->traits & traits) == traits;
}

bool ir_is_matrix_transpose(const struct ir_int_list *perm)
{
	int64_t n = (int64_t)perm->n;
	for (int64_t i = 0; i < n; i++)
		if (perm->items[i] != (i < n - 2 ? i : 2 * n - 3 - i))
			return false;
	return n >= 2;
}
