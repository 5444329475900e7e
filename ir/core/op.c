/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Op descriptors, expanded from ops.def and keywords.def. The tables of an op are static in a function of its own, in
 * which `self` is its attribute struct, so that the attribute macros can take offsets.
 */
#include "ir/core/op.h"
#include "ir/core/builder.h"

#include <inttypes.h>
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
	EXCHANGE = TRAIT_EXCHANGE,
};
/* Kinds of groups. */
enum {
	LINEAR = 1 << GROUP_linear,
	ATTENTION = 1 << GROUP_attention,
	ROWS = 1 << GROUP_rowwise,
	LOOPS = 1 << GROUP_loops,
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
#define ATTR(name, kind, f, i, words) {#name, kind, offsetof(self, name), f, i, words, 0},
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

#define SIZE(name, kinds) {#name, ATTR_INT, offsetof(self, name), 0.0, 0, KEYWORDS_MASK, kinds},
#define DECISION(name, list, kinds) \
	{#name, ATTR_KEYWORD, offsetof(self, name), 0.0, 0, KEYWORDS_##list, kinds},
#define OP(op, op_traits, op_operands, op_attributes, op_results, op_axes, op_formula) \
	static const struct ir_op_desc *describe_##op(void)                            \
	{                                                                              \
		typedef struct attrs_##op self;                                        \
		static const struct ir_operand_desc operands[] = {                     \
		        op_operands{NULL, CLASS_ANY, OPERAND_REQUIRED}};               \
		static const struct ir_attr_desc attrs[] = {                           \
		        op_attributes{NULL, ATTR_FLOAT, 0, 0.0, 0, KEYWORDS_MASK, 0}}; \
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

/* The last two axes n - 2 and n - 1 are exchanged: their sum is 2 n - 3. */
bool ir_is_matrix_transpose(const struct ir_int_list *perm)
{
	int64_t n = (int64_t)perm->n;
	for (int64_t i = 0; i < n; i++)
		if (perm->items[i] != (i < n - 2 ? i : 2 * n - 3 - i))
			return false;
	return n >= 2;
}

/* ---- attributes by descriptor ---- */

/*
 * Attribute structs handled by their descriptors: defaults, deep copies, equality, hash; and equality of ops as keys.
 */

static const void *attr_at(const void *attrs, const struct ir_attr_desc *d)
{
	return (const char *)attrs + d->offset;
}

/* Other attributes are 0: flags unset, lists empty, dims and weights NULL. */
void *ir_default_attrs(struct arena *a, enum ir_opcode code)
{
	const struct ir_op_desc *op = ir_op_desc(code);
	char *attrs = arena_alloc(a, op->attrs_bytes);
	if (attrs == NULL)
		return NULL;
	for (const struct ir_attr_desc *d = op->attrs; d->name != NULL; d++) {
		int word = (int)d->int_default;
		if (d->kind == ATTR_FLOAT)
			memcpy(attrs + d->offset, &d->float_default, sizeof(double));
		else if (d->kind == ATTR_INT)
			memcpy(attrs + d->offset, &d->int_default, sizeof(int64_t));
		else if (d->kind == ATTR_KEYWORD)
			memcpy(attrs + d->offset, &word, sizeof(word));
	}
	return attrs;
}

/* Copies a list of n elements of `size` bytes; *out is NULL for n = 0. False without memory. */
static bool copy_list(struct arena *a, const void *from, size_t n, size_t size, void **out)
{
	*out = NULL;
	if (n == 0)
		return true;
	*out = arena_calloc(a, n, size);
	if (*out == NULL)
		return false;
	memcpy(*out, from, n * size);
	return true;
}

/* Lists are copied, as they may be of the caller or of another module; their dims are not (import_attrs does that). */
void *build_copy_attrs(struct ir_module *m, enum ir_opcode code, const void *attrs)
{
	const struct ir_op_desc *op = ir_op_desc(code);
	char *copy = arena_alloc(&m->arena, op->attrs_bytes);
	if (copy == NULL)
		return NULL;
	memcpy(copy, attrs, op->attrs_bytes);
	for (const struct ir_attr_desc *d = op->attrs; d->name != NULL; d++) {
		void *items;
		if (d->kind == ATTR_DIMS) {
			struct ir_dim_list *list = (struct ir_dim_list *)(void *)(copy + d->offset);
			if (!copy_list(&m->arena, list->items, list->n, sizeof(*list->items), &items))
				return NULL;
			list->items = items;
		} else if (d->kind == ATTR_INTS) {
			struct ir_int_list *list = (struct ir_int_list *)(void *)(copy + d->offset);
			if (!copy_list(&m->arena, list->items, list->n, sizeof(*list->items), &items))
				return NULL;
			list->items = items;
		}
	}
	return copy;
}

bool ir_attr_is_default(const struct ir_attr_desc *d, const void *a)
{
	switch (d->kind) {
	case ATTR_FLOAT: return memcmp(a, &d->float_default, sizeof(double)) == 0;
	case ATTR_INT: return *(const int64_t *)a == d->int_default;
	case ATTR_FLAG: return !*(const bool *)a;
	case ATTR_KEYWORD: return *(const int *)a == (int)d->int_default;
	case ATTR_WEIGHT: return true;
	case ATTR_DIMS: return ((const struct ir_dim_list *)a)->n == 0;
	case ATTR_DIM:
	case ATTR_INTS:
	case ATTR_DTYPE: return false;
	}
	return false;
}

void ir_dims_print(struct buf *out, const struct ir_dims *dims, const struct ir_dim_list *list,
                   const char *separator)
{
	buf_char(out, '[');
	for (size_t i = 0; i < list->n; i++) {
		buf_str(out, i > 0 ? separator : "");
		ir_dim_print(out, dims, list->items[i], true);
	}
	buf_char(out, ']');
}

static void print_ints(struct buf *out, const struct ir_int_list *list)
{
	buf_char(out, '[');
	for (size_t i = 0; i < list->n; i++)
		buf_printf(out, "%s%" PRId64, i > 0 ? "," : "", list->items[i]);
	buf_char(out, ']');
}

void ir_attr_print(struct buf *out, const struct ir_dims *dims, const struct ir_attr_desc *d, const void *a)
{
	buf_str(out, d->name);
	if (d->kind != ATTR_FLAG)
		buf_char(out, '=');
	switch (d->kind) {
	case ATTR_FLOAT: buf_f64(out, *(const double *)a); break;
	case ATTR_INT: buf_printf(out, "%" PRId64, *(const int64_t *)a); break;
	case ATTR_FLAG: break;
	case ATTR_DIM: ir_dim_print(out, dims, *(const struct ir_dim *const *)a, true); break;
	case ATTR_DIMS: ir_dims_print(out, dims, a, ","); break;
	case ATTR_INTS: print_ints(out, a); break;
	case ATTR_DTYPE: buf_str(out, ir_dtype_name(*(const enum ir_dtype *)a)); break;
	case ATTR_KEYWORD: buf_str(out, ir_keyword(d->words, *(const int *)a)); break;
	case ATTR_WEIGHT: break; /* never: ir_attr_is_default */
	}
}

const struct ir_attr_desc *ir_next_nest_attr(const struct attrs_group *a, const struct ir_attr_desc *after)
{
	for (const struct ir_attr_desc *d = after ? after + 1 : ir_op_desc(OP_group)->attrs; d->name; d++) {
		bool is_of_nest = d->offset >= offsetof(struct attrs_group, mc) &&
		                  d->offset < offsetof(struct attrs_group, at);
		if (is_of_nest && !ir_attr_is_default(d, attr_at(a, d)))
			return d;
	}
	return NULL;
}

static bool lists_equal(const void *a, size_t n_a, const void *b, size_t n_b, size_t size)
{
	return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * size) == 0);
}

/* Two attributes described by d are equal: floats bit by bit, dims and weights by pointer, since they are unique
 * in a module. */
static bool attr_equal(const struct ir_attr_desc *d, const void *a, const void *b)
{
	switch (d->kind) {
	case ATTR_FLOAT: return memcmp(a, b, sizeof(double)) == 0;
	case ATTR_INT: return *(const int64_t *)a == *(const int64_t *)b;
	case ATTR_FLAG: return *(const bool *)a == *(const bool *)b;
	case ATTR_DIM: return *(const struct ir_dim *const *)a == *(const struct ir_dim *const *)b;
	case ATTR_DTYPE: return *(const enum ir_dtype *)a == *(const enum ir_dtype *)b;
	case ATTR_KEYWORD: return *(const int *)a == *(const int *)b;
	case ATTR_WEIGHT: return *(const struct ir_weight *const *)a == *(const struct ir_weight *const *)b;
	case ATTR_DIMS: {
		const struct ir_dim_list *x = a, *y = b;
		return lists_equal(x->items, x->n, y->items, y->n, sizeof(*x->items));
	}
	case ATTR_INTS: {
		const struct ir_int_list *x = a, *y = b;
		return lists_equal(x->items, x->n, y->items, y->n, sizeof(*x->items));
	}
	}
	return false;
}

static bool attrs_equal(enum ir_opcode code, const void *a, const void *b)
{
	for (const struct ir_attr_desc *d = ir_op_desc(code)->attrs; d->name != NULL; d++)
		if (!attr_equal(d, attr_at(a, d), attr_at(b, d)))
			return false;
	return true;
}

/* Continues hash h with an attribute, by serial numbers and names in place of addresses, which differ from run to
 * run. NULL adds nothing. */
static uint64_t attr_hash(uint64_t h, const struct ir_attr_desc *d, const void *a)
{
	switch (d->kind) {
	case ATTR_FLOAT: return hash_bytes64(h, a, sizeof(double));
	case ATTR_INT: return hash_bytes64(h, a, sizeof(int64_t));
	case ATTR_FLAG: return hash_bytes64(h, a, sizeof(bool));
	case ATTR_DTYPE: return hash_bytes64(h, a, sizeof(enum ir_dtype));
	case ATTR_KEYWORD: return hash_bytes64(h, a, sizeof(int));
	case ATTR_DIM: {
		const struct ir_dim *x = *(const struct ir_dim *const *)a;
		return x == NULL ? h : hash_bytes64(h, &x->serial, sizeof(x->serial));
	}
	case ATTR_WEIGHT: {
		const struct ir_weight *w = *(const struct ir_weight *const *)a;
		return w == NULL ? h : hash_bytes64(h, w->name, strlen(w->name));
	}
	case ATTR_DIMS: {
		const struct ir_dim_list *x = a;
		for (size_t i = 0; i < x->n; i++)
			h = hash_bytes64(h, &x->items[i]->serial, sizeof(uint32_t));
		return h;
	}
	case ATTR_INTS: {
		const struct ir_int_list *x = a;
		return x->n == 0 ? h : hash_bytes64(h, x->items, x->n * sizeof(*x->items));
	}
	}
	return h;
}

/* The order of the two operands does not matter. */
static bool is_commutative(const struct op_key *key)
{
	return key->n_operands == 2 && ir_op_has(key->code, TRAIT_COMMUTATIVE);
}

/* Operands of commutative ops in the order of their ids, so that a + b and b + a have one hash. A key is what makes
 * two pure ops equal: code, operands, attributes. */
uint64_t op_key_hash(const struct op_key *key)
{
	uint64_t h = hash_bytes64(HASH64_SEED, &key->code, sizeof(key->code));
	if (is_commutative(key)) {
		uint32_t a = key->operands[0].id, b = key->operands[1].id;
		uint32_t pair[2] = {a < b ? a : b, a < b ? b : a};
		h = hash_bytes64(h, pair, sizeof(pair));
	} else {
		for (size_t i = 0; i < key->n_operands; i++)
			h = hash_bytes64(h, &key->operands[i].id, sizeof(uint32_t));
	}
	for (const struct ir_attr_desc *d = ir_op_desc(key->code)->attrs; d->name != NULL; d++)
		h = attr_hash(h, d, attr_at(key->attrs, d));
	return h;
}

/* intern_equal of ops: `item` is an op, `k` a key. Commutative operands may be exchanged. */
bool op_key_equal(const void *item, const void *k)
{
	const struct ir_op *op = item;
	const struct op_key *key = k;
	if (op->code != key->code || op->n_operands != key->n_operands ||
	    !attrs_equal(op->code, op->attrs, key->attrs))
		return false;
	if (is_commutative(key) && ir_same_value(op->operands[0], key->operands[1]) &&
	    ir_same_value(op->operands[1], key->operands[0]))
		return true;
	for (size_t i = 0; i < op->n_operands; i++)
		if (!ir_same_value(op->operands[i], key->operands[i]))
			return false;
	return true;
}
