/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder: functions, parameters, ops, regions, and one typed call for each op. Every op passes through irb_op,
 * which infers types, folds, eliminates common subexpressions, and appends to the innermost region. The op that owns
 * a region is appended to the enclosing region when its own region ends. Invariant: after a failure nothing is added
 * any more.
 */
#include "ir/core/builder.h"

#include <math.h>
#include <string.h>

/* ---- simplification ---- */

/*
 * Algebraic simplification in the builder, only where the bits are the same for every input: x * 1, x + (-0), views of
 * views, casts to the same type. A handler returns the value to use in place of the op, or IR_NO_VALUE. Constants are
 * `full` ops, which have one value for all elements; bools are 0 and 1.
 */

struct fold {
	struct ir_builder *b;
	const struct ir_value *operands;
	const struct ir_type *result;
	const void *attrs;
};

typedef struct ir_value fold_fn(const struct fold *f);

/* The op that defines operand i if it has that code, else NULL. */
static const struct ir_op *defined_by(const struct fold *f, size_t i, enum ir_opcode code)
{
	return ir_def_as(f->b->f, f->operands[i], code);
}

/* Operand i is `full` with exactly these bits. */
static bool is_full(const struct fold *f, size_t i, double value)
{
	const struct ir_op *op = defined_by(f, i, OP_full);
	if (op == NULL)
		return false;
	const struct attrs_full *a = op->attrs;
	return a->value == value && signbit(a->value) == signbit(value);
}

/* A view of `full` or `dim_value`, whose elements are all equal, is the same op with the shape of the view. */
static struct ir_value fold_constant_view(const struct fold *f)
{
	const struct ir_op *full = defined_by(f, 0, OP_full), *dim = defined_by(f, 0, OP_dim_value);
	if (full != NULL) {
		const struct attrs_full *a = full->attrs;
		return irb_full_of(f->b, a->value, a->dtype, f->result->rank, f->result->dims);
	}
	if (dim == NULL)
		return IR_NO_VALUE;
	const struct attrs_dim_value *a = dim->attrs;
	return irb_dim_value_of(f->b, a->dim, f->result->rank, f->result->dims);
}

/* The iota that v is, seen through views, which only choose among its values, and casts to i32 and i64, which keep
 * them; NULL: none. */
static const struct ir_op *index_root(const struct fold *f, struct ir_value v)
{
	const struct ir_op *op = ir_def(f->b->f, v);
	while (op != NULL && (ir_op_has(op->code, TRAIT_VIEW) || op->code == OP_cast) &&
	       (irb_type(f->b, op->results[0])->dtype == DT_I32 ||
	        irb_type(f->b, op->results[0])->dtype == DT_I64))
		op = ir_def(f->b->f, op->operands[0]);
	return op != NULL && op->code == OP_iota ? op : NULL;
}

/* The i32 that operand i is an i64 of, if it is an index; else no value. (ONNX computes positions in i64.) */
static struct ir_value short_index(const struct fold *f, size_t i)
{
	const struct ir_op *cast = defined_by(f, i, OP_cast);
	bool is_longer = cast != NULL && irb_type(f->b, f->operands[i])->dtype == DT_I64 &&
	                 irb_type(f->b, cast->operands[0])->dtype == DT_I32 &&
	                 index_root(f, cast->operands[0]) != NULL;
	return is_longer ? cast->operands[0] : IR_NO_VALUE;
}

/* A view of an i64 index is taken of its i32 and then cast, so that casts move outward and masks of i64 have the
 * form of others. Else as fold_constant_view. */
static struct ir_value fold_index_view(const struct fold *f, enum ir_opcode code)
{
	struct ir_value x = short_index(f, 0);
	if (x.id == 0)
		return fold_constant_view(f);
	x = irb_op1(f->b, code, &x, 1, f->attrs);
	return irb_cast(f->b, x, &(struct attrs_cast){.dtype = DT_I64});
}

/* The operand itself if the op does not change its type. */
static struct ir_value fold_same_type(const struct fold *f)
{
	return irb_type(f->b, f->operands[0]) == f->result ? f->operands[0] : IR_NO_VALUE;
}

/* ---- arithmetic ---- */

static struct ir_value fold_scale(const struct fold *f)
{
	const struct attrs_scale *a = f->attrs;
	return a->f == 1.0 ? f->operands[0] : IR_NO_VALUE;
}

static struct ir_value fold_mul(const struct fold *f)
{
	if (is_full(f, 1, 1.0))
		return f->operands[0];
	return is_full(f, 0, 1.0) ? f->operands[1] : IR_NO_VALUE;
}

static struct ir_value fold_div(const struct fold *f)
{
	return is_full(f, 1, 1.0) ? f->operands[0] : IR_NO_VALUE;
}

/* dim_value + sign * full, both i32, is a dim_value if it fits into i32 for all values of the symbols; else it would
 * wrap. */
static struct ir_value fold_dim_sum(const struct fold *f, int sign)
{
	struct ir_dims *dims = f->b->m->dims;
	const struct ir_op *dim = defined_by(f, 0, OP_dim_value), *full = defined_by(f, 1, OP_full);
	if (dim == NULL || full == NULL)
		return IR_NO_VALUE;
	const struct ir_dim *n =
	        ir_dim_const(dims, sign * (int64_t)((const struct attrs_full *)full->attrs)->value);
	n = ir_dim_add(dims, ((const struct attrs_dim_value *)dim->attrs)->dim, n);
	bool fits = ir_dim_lo(dims, n) >= INT32_MIN && ir_dim_hi(dims, n) <= INT32_MAX;
	return fits ? irb_dim_value_of(f->b, n, f->result->rank, f->result->dims) : IR_NO_VALUE;
}

/* x + (-0.0) is x for every float; x + 0.0 is not for x = -0.0. */
static struct ir_value fold_add(const struct fold *f)
{
	double zero = ir_dtype_class(f->result->dtype) == DTCLASS_FLOAT ? -0.0 : 0.0;
	if (is_full(f, 1, zero))
		return f->operands[0];
	return is_full(f, 0, zero) ? f->operands[1] : fold_dim_sum(f, 1);
}

static struct ir_value fold_sub(const struct fold *f)
{
	return is_full(f, 1, 0.0) ? f->operands[0] : fold_dim_sum(f, -1);
}

/* Involutions: neg of neg, not of not. */
static struct ir_value fold_involution(const struct fold *f, enum ir_opcode code)
{
	const struct ir_op *op = defined_by(f, 0, code);
	return op != NULL ? op->operands[0] : IR_NO_VALUE;
}

static struct ir_value fold_neg(const struct fold *f)
{
	return fold_involution(f, OP_neg);
}

static struct ir_value fold_not(const struct fold *f)
{
	return fold_involution(f, OP_not);
}

/* A comparison of an index (an iota, also through views and casts) with a constant that is at most its start is a
 * constant, since the start is its least value: index >= c is true, index < c false, also with the operands
 * exchanged. Two i64 that are i32 indices are compared as these. */
static struct ir_value fold_cmp(const struct fold *f)
{
	struct ir_value a = short_index(f, 0), b = short_index(f, 1);
	int kind = ((const struct attrs_cmp *)f->attrs)->kind;
	bool is_second = defined_by(f, 0, OP_full) != NULL;
	const struct ir_op *full = defined_by(f, is_second ? 0 : 1, OP_full),
	                   *root = full != NULL ? index_root(f, f->operands[is_second ? 1 : 0]) : NULL;
	bool is_least = root != NULL && ((const struct attrs_full *)full->attrs)->value <=
	                                        (double)((const struct attrs_iota *)root->attrs)->start;
	if (is_least && kind == (is_second ? CMP_le : CMP_ge))
		return irb_full_of(f->b, 1.0, DT_BOOL, f->result->rank, f->result->dims);
	if (is_least && kind == (is_second ? CMP_gt : CMP_lt))
		return irb_full_of(f->b, 0.0, DT_BOOL, f->result->rank, f->result->dims);
	return a.id != 0 && b.id != 0 ? irb_cmp(f->b, a, b, f->attrs) : IR_NO_VALUE;
}

static struct ir_value fold_and(const struct fold *f)
{
	if (is_full(f, 1, 1.0))
		return f->operands[0];
	return is_full(f, 0, 1.0) ? f->operands[1] : IR_NO_VALUE;
}

/* To the same type; 0 and 1, which every type has (-0.0 is no int); an index as i64 and back. */
static struct ir_value fold_cast(const struct fold *f)
{
	struct ir_value same = fold_same_type(f), index = short_index(f, 0);
	const struct ir_op *full = defined_by(f, 0, OP_full);
	double v = full != NULL ? ((const struct attrs_full *)full->attrs)->value : -1;
	if (same.id != 0)
		return same;
	if (index.id != 0 && f->result->dtype == DT_I32)
		return index;
	if ((v == 0 && !signbit(v)) || v == 1)
		return irb_full_of(f->b, v, f->result->dtype, f->result->rank, f->result->dims);
	return IR_NO_VALUE;
}

/* A constant condition selects one operand; so do equal operands. */
static struct ir_value fold_where(const struct fold *f)
{
	if (is_full(f, 0, 1.0))
		return f->operands[1];
	if (is_full(f, 0, 0.0))
		return f->operands[2];
	return ir_same_value(f->operands[1], f->operands[2]) ? f->operands[1] : IR_NO_VALUE;
}

static struct ir_value fold_mask_rows(const struct fold *f)
{
	const struct ir_op *op = defined_by(f, 0, OP_mask_rows);
	return op != NULL && ir_same_value(op->operands[1], f->operands[1]) ? f->operands[0] : IR_NO_VALUE;
}

/* ---- movement ---- */

/* Reshape to the same shape is x; a reshape of a reshape is one reshape. */
static struct ir_value fold_reshape(const struct fold *f)
{
	struct ir_value same = fold_same_type(f);
	if (same.id != 0)
		return same;
	const struct ir_op *inner = defined_by(f, 0, OP_reshape);
	if (inner != NULL)
		return irb_reshape_to(f->b, inner->operands[0], f->result->rank, f->result->dims);
	return fold_index_view(f, OP_reshape);
}

/* The identity is x; two transposes are one with the composed permutation: axis i of the result is axis
 * first[perm[i]] of the inner operand. */
static struct ir_value fold_transpose(const struct fold *f)
{
	const struct attrs_transpose *a = f->attrs;
	int64_t perm[IR_RANK_MAX];
	bool identity = true;
	for (size_t i = 0; i < a->perm.n; i++)
		identity = identity && a->perm.items[i] == (int64_t)i;
	if (identity)
		return f->operands[0];
	const struct ir_op *inner = defined_by(f, 0, OP_transpose);
	if (inner == NULL)
		return fold_index_view(f, OP_transpose);
	const struct attrs_transpose *first = inner->attrs;
	for (size_t i = 0; i < a->perm.n; i++)
		perm[i] = first->perm.items[a->perm.items[i]];
	return irb_transpose_by(f->b, inner->operands[0], (int)a->perm.n, perm);
}

/* Broadcast to the same shape is x; a broadcast of a broadcast is one broadcast. */
static struct ir_value fold_broadcast(const struct fold *f)
{
	struct ir_value same = fold_same_type(f);
	if (same.id != 0)
		return same;
	const struct ir_op *inner = defined_by(f, 0, OP_broadcast);
	if (inner != NULL)
		return irb_broadcast_to(f->b, inner->operands[0], f->result->rank, f->result->dims);
	return fold_index_view(f, OP_broadcast);
}

/* The slice of all of an axis is x; two slices of one axis are one whose begins are added. */
static struct ir_value fold_slice(const struct fold *f)
{
	const struct attrs_slice *a = f->attrs;
	struct ir_value same = fold_same_type(f);
	if (same.id != 0)
		return same;
	const struct ir_op *inner = defined_by(f, 0, OP_slice);
	if (inner == NULL)
		return fold_index_view(f, OP_slice);
	const struct attrs_slice *first = inner->attrs;
	if (first->axis != a->axis)
		return IR_NO_VALUE;
	const struct ir_dim *begin = ir_dim_add(f->b->m->dims, first->begin, a->begin);
	return irb_slice_of(f->b, inner->operands[0], (int)a->axis, begin, a->size);
}

/* The transpose that operand i of an elementwise op is, of floats that a linear or an elementwise op computes; else
 * NULL. Ints are indices, whose casts fold_index_view moves the other way. */
static const struct attrs_transpose *computed_transpose(const struct fold *f, size_t i)
{
	const struct ir_op *op = defined_by(f, i, OP_transpose),
	                   *source = op != NULL ? ir_def(f->b->f, op->operands[0]) : NULL;
	bool is_computed = source != NULL &&
	                   (source->code == OP_linear || ir_op_has(source->code, TRAIT_ELEMENTWISE)) &&
	                   ir_dtype_class(irb_type(f->b, f->operands[i])->dtype) == DTCLASS_FLOAT;
	return is_computed ? op->attrs : NULL;
}

/*
 * An elementwise op of transposes by one permutation, constants and broadcasts is the transpose of the op: after a
 * convolution, whose result is a transpose (channels last in memory), activations join the epilogue of its linear,
 * and the transpose before the next convolution undoes this one.
 */
static struct ir_value fold_elementwise(const struct fold *f, enum ir_opcode code, size_t n)
{
	struct ir_value x[3]; /* where has three operands */
	const struct attrs_transpose *t = NULL;
	int64_t inverse[IR_RANK_MAX];
	for (size_t i = 0; i < n && n <= TFMC_COUNT(x); i++) {
		const struct attrs_transpose *own = computed_transpose(f, i);
		if (own == NULL && defined_by(f, i, OP_full) == NULL &&
		    defined_by(f, i, OP_broadcast) == NULL)
			return IR_NO_VALUE;
		if (own != NULL && t != NULL &&
		    memcmp(own->perm.items, t->perm.items, t->perm.n * sizeof(*inverse)) != 0)
			return IR_NO_VALUE;
		t = own != NULL ? own : t;
	}
	if (t == NULL || code == OP_mask_rows) /* which masks along axis 1 */
		return IR_NO_VALUE;
	for (size_t i = 0; i < t->perm.n; i++)
		inverse[t->perm.items[i]] = (int64_t)i;
	for (size_t i = 0; i < n; i++)
		x[i] = irb_transpose_by(f->b, f->operands[i], (int)t->perm.n, inverse);
	return irb_transpose_by(f->b, irb_op1(f->b, code, x, n, f->attrs), (int)t->perm.n, t->perm.items);
}

/* Algebraic simplification: an existing (or simpler new) value with the same bits as the op, or IR_NO_VALUE. */
static struct ir_value build_fold(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                                  size_t n, const struct ir_type *result, const void *attrs)
{
	static fold_fn *const folds[IR_N_OPS] = {
	        [OP_scale] = fold_scale,
	        [OP_mul] = fold_mul,
	        [OP_div] = fold_div,
	        [OP_add] = fold_add,
	        [OP_sub] = fold_sub,
	        [OP_neg] = fold_neg,
	        [OP_not] = fold_not,
	        [OP_cmp] = fold_cmp,
	        [OP_and] = fold_and,
	        [OP_where] = fold_where,
	        [OP_mask_rows] = fold_mask_rows,
	        [OP_reshape] = fold_reshape,
	        [OP_transpose] = fold_transpose,
	        [OP_broadcast] = fold_broadcast,
	        [OP_slice] = fold_slice,
	        [OP_cast] = fold_cast,
	        [OP_pad] = fold_same_type,
	};
	const struct fold f = {b, operands, result, attrs};
	struct ir_value v = folds[code] != NULL ? folds[code](&f) : IR_NO_VALUE;
	return v.id == 0 && ir_op_has(code, TRAIT_ELEMENTWISE) ? fold_elementwise(&f, code, n) : v;
}

/* ---- the builder ---- */

/* ---- state ---- */

struct ir_module *irb_module(const struct ir_builder *b)
{
	return b->m;
}

const struct ir_func *irb_func(const struct ir_builder *b)
{
	return b->f;
}

bool irb_failed(const struct ir_builder *b)
{
	return b->failed;
}

void irb_set_loc(struct ir_builder *b, struct ir_loc loc)
{
	b->loc = ir_import_loc(b->m, loc);
}

void irb_set_literal(struct ir_builder *b, bool literal)
{
	b->literal = literal;
}

void build_report_at(struct ir_builder *b, struct loc at)
{
	b->report_at = at;
}

struct loc build_at(const struct ir_builder *b)
{
	return b->report_at.source != 0 ? b->report_at : b->loc.at;
}

/* Reports once, at the location of build_at; later failures follow from the first. */
void build_fail(struct ir_builder *b, enum diag_code code, const char *fmt, ...)
{
	if (b->failed)
		return;
	b->failed = true;
	va_list ap;
	va_start(ap, fmt);
	diag_error(b->cx, build_at(b), code, "%s", arena_vprintf(&b->m->arena, fmt, ap));
	va_end(ap);
}

/* ---- values and ops ---- */

/* Appends a value to the function, defined in the innermost region. def: NULL for a parameter or an argument of a
 * region; index: among the results of def, or among these arguments. f->values moves when it grows. */
static struct ir_value build_value(struct ir_builder *b, const struct ir_type *type, const struct ir_op *def,
                                   unsigned index)
{
	struct ir_func *f = b->f;
	if (f->n_values == f->cap_values) {
		size_t want = f->cap_values == 0 ? 64 : f->cap_values * 2;
		void *values = arena_grow(&b->m->arena, f->values, f->n_values, want, sizeof(*f->values));
		/* A limit at each doubling keeps ids and capacity within 32 bits. */
		if (values == NULL || f->n_values > UINT32_MAX / 4) {
			build_fail(b, DIAG_LIMIT, "too many values in function %s", f->name);
			return IR_NO_VALUE;
		}
		f->values = values;
		f->cap_values = want;
	}
	struct ir_value v = {(uint32_t)f->n_values++};
	f->values[v.id] = (struct ir_value_info){type, NULL, def, b->scope->region, index};
	return v;
}

/* Appends an op to the innermost region, without inference or folding; NULL after failure. operands are copied;
 * attributes and results are the caller's to set. */
static struct ir_op *build_append(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                                  size_t n)
{
	struct ir_op *op = ARENA_NEW(&b->m->arena, struct ir_op);
	struct ir_value *list = n == 0 ? NULL : ARENA_ARRAY(&b->m->arena, struct ir_value, n);
	if (b->failed)
		return NULL;
	if (b->n_ops++ >= BUILD_OPS_MAX) {
		build_fail(b, DIAG_LIMIT, "function %s has more than %d ops", b->f->name, BUILD_OPS_MAX);
		return NULL;
	}
	struct ir_op **slot = ARENA_PUSH(&b->m->arena, &b->scope->ops);
	if (op == NULL || (n > 0 && list == NULL) || slot == NULL) {
		b->failed = true;
		return NULL;
	}
	if (n > 0)
		memcpy(list, operands, n * sizeof(*list));
	*op = (struct ir_op){.code = code, .loc = b->loc, .operands = list, .n_operands = n};
	*slot = op;
	return op;
}

/* Creates the results of op, values of these types. False after failure. */
static bool build_results(struct ir_builder *b, struct ir_op *op, const struct ir_type *const *types,
                          size_t n)
{
	struct ir_value *list = n == 0 ? NULL : ARENA_ARRAY(&b->m->arena, struct ir_value, n);
	if (n > 0 && list == NULL) {
		b->failed = true;
		return false;
	}
	for (size_t i = 0; i < n; i++)
		list[i] = build_value(b, types[i], op, (unsigned)i);
	op->results = list;
	op->n_results = n;
	return !b->failed;
}

/* ---- regions ---- */

/* Opens a region owned by a new op `code`, which is appended when the region ends; OP_return: the body of a function,
 * which no op owns. NULL after failure. */
static struct build_scope *build_open(struct ir_builder *b, enum ir_opcode code)
{
	struct build_scope *s = ARENA_NEW(&b->m->arena, struct build_scope);
	struct ir_region *r = ARENA_NEW(&b->m->arena, struct ir_region);
	if (b->failed)
		return NULL;
	if (b->depth >= IR_DEPTH_MAX) {
		build_fail(b, DIAG_LIMIT, "regions are nested deeper than %d", IR_DEPTH_MAX);
		return NULL;
	}
	if (s == NULL || r == NULL) {
		b->failed = true;
		return NULL;
	}
	*s = (struct build_scope){.parent = b->scope, .region = r, .loc = b->loc};
	intern_init(&s->merged, &b->m->arena);
	if (code != OP_return) {
		s->owner = ARENA_NEW(&b->m->arena, struct ir_op);
		if (s->owner == NULL) {
			b->failed = true;
			return NULL;
		}
		*s->owner = (struct ir_op){.code = code, .loc = b->loc, .region = r};
		r->owner = s->owner;
		r->parent = b->scope->region;
	}
	b->scope = s;
	b->depth++;
	return s;
}

/* ---- functions and parameters ---- */

/*
 * Begins a function with an empty body. Value 0 is reserved: it is IR_NO_VALUE. Without memory for the function, and
 * for a name that exists, the builder is returned as failed: errors are sticky, and irb_finish() fails. irb_finish()
 * adds the function to the module, so a function that failed never is in it.
 */
struct ir_builder *irb_begin(struct ir_module *m, struct diag_context *cx, const char *name,
                             struct ir_loc loc)
{
	struct ir_builder *b = ARENA_NEW(&m->arena, struct ir_builder);
	if (b == NULL)
		return NULL;
	*b = (struct ir_builder){.m = m, .cx = cx, .f = ARENA_NEW(&m->arena, struct ir_func)};
	irb_set_loc(b, loc);
	if (b->f == NULL || build_open(b, OP_return) == NULL) {
		b->failed = true;
		return b;
	}
	b->f->name = strmap_intern(&m->strings, name, strlen(name));
	b->f->loc = b->loc;
	b->f->body = b->scope->region;
	build_value(b, NULL, NULL, 0); /* id 0 is no value */
	if (ir_find_func(m, name) != NULL)
		build_fail(b, DIAG_NAME_CLASH, "there is already a function @%s", name);
	return b;
}

/* Appends a zeroed parameter to the function; NULL without memory. ARENA_PUSH needs items, n and cap in one
 * struct. */
static struct ir_param *push_param(struct ir_builder *b)
{
	struct {
		struct ir_param *items;
		size_t n, cap;
	} list = {b->f->params, b->f->n_params, b->cap_params};
	struct ir_param *p = ARENA_PUSH(&b->m->arena, &list);
	b->f->params = list.items;
	b->f->n_params = list.n;
	b->cap_params = list.cap;
	return p;
}

/* Adds v to the arguments of the body, which are the parameters. False without memory. Parameters are few: the array
 * is copied for each. */
static bool push_argument(struct ir_builder *b, struct ir_value v)
{
	struct ir_region *r = b->f->body;
	struct ir_value *args = arena_grow(&b->m->arena, r->args, r->n_args, r->n_args + 1, sizeof(*args));
	if (args == NULL)
		return false;
	args[r->n_args++] = v;
	r->args = args;
	return true;
}

/* Parameters come before ops, in the body of the function. */
struct ir_value irb_param(struct ir_builder *b, const struct ir_param *p, const struct ir_type *type)
{
	if (b->failed)
		return IR_NO_VALUE;
	if (type == NULL || b->scope->parent != NULL || b->scope->ops.n > 0) {
		build_fail(b, DIAG_IR_TYPE, "parameter %s has no type or comes after an op",
		           p->name != NULL ? p->name : "");
		return IR_NO_VALUE;
	}
	struct ir_value v = build_value(b, type, NULL, (unsigned)b->f->n_params);
	struct ir_param *copy = push_param(b);
	if (copy == NULL || !push_argument(b, v)) {
		b->failed = true;
		return IR_NO_VALUE;
	}
	*copy = *p;
	copy->value = v;
	copy->loc = ir_import_loc(b->m, p->loc);
	if (p->name != NULL) {
		copy->name = strmap_intern(&b->m->strings, p->name, strlen(p->name));
		b->f->values[v.id].name = copy->name;
	}
	return v;
}

void irb_name(struct ir_builder *b, struct ir_value v, const char *name)
{
	if (v.id == 0 || v.id >= b->f->n_values || name == NULL || b->f->values[v.id].name != NULL)
		return;
	b->f->values[v.id].name = strmap_intern(&b->m->strings, name, strlen(name));
}

const struct ir_type *irb_type(const struct ir_builder *b, struct ir_value v)
{
	return v.id < b->f->n_values ? b->f->values[v.id].type : NULL;
}

/* ---- ops ---- */

/* Common subexpression elimination: an equal op of this or an enclosing region, which dominates the new one; NULL if
 * there is none. Tables are per region, so ops of a region that has ended are not found. */
static struct ir_op *find_equal_op(const struct ir_builder *b, uint64_t hash, const struct op_key *key)
{
	for (const struct build_scope *s = b->scope; s != NULL; s = s->parent) {
		struct ir_op *op = intern_find(&s->merged, hash, op_key_equal, key);
		if (op != NULL)
			return op;
	}
	return NULL;
}

/* Appends IR_NO_VALUE for absent optional operands, so that every op has all operand slots and OPERAND() is its
 * index. Returns their number; operand_types reports one above BUILD_LIST_MAX. */
static size_t fill_slots(enum ir_opcode code, const struct ir_value *given, size_t n, struct ir_value *slots)
{
	const struct ir_operand_desc *d = ir_op_desc(code)->operands;
	size_t fixed = 0;
	while (d[fixed].name != NULL && d[fixed].kind != OPERAND_VARIADIC)
		fixed++;
	for (size_t i = 0; i < n && i < BUILD_LIST_MAX; i++)
		slots[i] = given[i];
	for (; n < fixed; n++)
		slots[n] = IR_NO_VALUE;
	return n;
}

/* types[i]: type of operand i, NULL if it is absent (id 0). False after a report of too many operands or of an
 * id of another function. */
static bool operand_types(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                          size_t n, const struct ir_type **types)
{
	if (n > BUILD_LIST_MAX) {
		build_fail(b, DIAG_LIMIT, "%s has more than %d operands", ir_op_desc(code)->name,
		           BUILD_LIST_MAX);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (operands[i].id >= b->f->n_values) {
			build_fail(b, DIAG_INTERNAL, "operand %zu of %s is not a value of function %s", i,
			           ir_op_desc(code)->name, b->f->name);
			return false;
		}
		types[i] = irb_type(b, operands[i]);
	}
	return true;
}

/* Appends the op with its attributes and results, and a pure one to the table of find_equal_op; with `literal`
 * nothing is looked up, so nothing is stored. */
static void append_op(struct ir_builder *b, const struct op_key *key, const struct ir_type *const *types,
                      size_t n_results, struct ir_value *results)
{
	struct ir_op *op = build_append(b, key->code, key->operands, key->n_operands);
	if (op == NULL)
		return;
	op->attrs = build_copy_attrs(b->m, key->code, key->attrs);
	if (op->attrs == NULL || !build_results(b, op, types, n_results)) {
		b->failed = true;
		return;
	}
	memcpy(results, op->results, n_results * sizeof(*results));
	if (ir_op_has(key->code, TRAIT_PURE) && !b->literal)
		if (!intern_add(&b->scope->merged, op_key_hash(key), op))
			b->failed = true;
}

/* True if the op folds to an existing value or an equal op exists; results[0] is then that value. Only pure ops,
 * which have one result. A failure of the handler, which builds ops, counts as true: nothing is to be appended. */
static bool fold_or_reuse(struct ir_builder *b, const struct op_key *key, const struct ir_type *type,
                          struct ir_value *results)
{
	if (b->literal || !ir_op_has(key->code, TRAIT_PURE))
		return false;
	results[0] = build_fold(b, key->code, key->operands, key->n_operands, type, key->attrs);
	if (results[0].id != 0 || b->failed)
		return true;
	const struct ir_op *op = find_equal_op(b, op_key_hash(key), key);
	if (op != NULL)
		results[0] = op->results[0];
	return op != NULL;
}

/* Results are IR_NO_VALUE until they are known, so also after a failure. Types are inferred before folding, which
 * relies on them. */
void irb_op(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands, size_t n_operands,
            const void *attrs, struct ir_value *results, size_t n_results)
{
	const struct ir_type *types[BUILD_LIST_MAX], *out[2] = {NULL, NULL};
	struct ir_value slots[BUILD_LIST_MAX];
	for (size_t i = 0; i < n_results; i++)
		results[i] = IR_NO_VALUE;
	n_operands = fill_slots(code, operands, n_operands, slots);
	operands = slots;
	if (b->failed || !operand_types(b, code, operands, n_operands, types))
		return;
	if (n_results == 0 || n_results != ir_op_desc(code)->results) {
		build_fail(b, DIAG_INTERNAL, "%s has %zu results, %zu were asked for", ir_op_desc(code)->name,
		           ir_op_desc(code)->results, n_results);
		return;
	}
	if (attrs == NULL)
		attrs = ir_default_attrs(&b->m->arena, code);
	struct ir_loc loc = {build_at(b), NULL};
	if (attrs == NULL || !ir_infer(b->m, b->cx, loc, code, types, n_operands, attrs, out)) {
		b->failed = true;
		return;
	}
	struct op_key key = {code, operands, n_operands, attrs};
	if (!fold_or_reuse(b, &key, out[0], results))
		append_op(b, &key, out, n_results, results);
}

struct ir_value irb_op1(struct ir_builder *b, enum ir_opcode code, const struct ir_value *operands,
                        size_t n_operands, const void *attrs)
{
	struct ir_value v;
	irb_op(b, code, operands, n_operands, attrs, &v, 1);
	return v;
}

/* ---- ends of regions ---- */

/* Ends the innermost region with the terminator `end`, which has the location of the owner, and appends the owner to
 * the enclosing region, after the ops that its operands are. Returns the owner (the terminator for a function), NULL
 * after failure. */
static struct ir_op *build_close(struct ir_builder *b, enum ir_opcode end, const struct ir_value *values,
                                 size_t n)
{
	struct build_scope *s = b->scope;
	struct ir_loc inner = b->loc;
	b->loc = s->loc;
	struct ir_op *last = build_append(b, end, values, n);
	if (last == NULL)
		return NULL;
	last->attrs = ir_default_attrs(&b->m->arena, end);
	s->region->ops = s->ops.items;
	s->region->n_ops = s->ops.n;
	b->loc = inner;
	b->scope = s->parent;
	b->depth--;
	if (s->owner == NULL)
		return last;
	struct ir_op **slot = ARENA_PUSH(&b->m->arena, &b->scope->ops);
	if (slot == NULL) {
		b->failed = true;
		return NULL;
	}
	*slot = s->owner;
	return s->owner;
}

/* Reports ids that are not values of this function; false after a report. `what`: the op, for the message. */
static bool check_values(struct ir_builder *b, const char *what, const struct ir_value *values, size_t n)
{
	if (n > BUILD_LIST_MAX) {
		build_fail(b, DIAG_LIMIT, "%s has more than %d values", what, BUILD_LIST_MAX);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (values[i].id == 0 || values[i].id >= b->f->n_values) {
			build_fail(b, DIAG_INTERNAL, "value %zu of %s is no value of function %s", i, what,
			           b->f->name);
			return false;
		}
	}
	return true;
}

static void clear_values(struct ir_value *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		values[i] = IR_NO_VALUE;
}

/* Gives the owner of an ended region results with the types of the yielded values, now that the enclosing region is
 * the innermost one. */
static void finish_owner(struct ir_builder *b, struct ir_op *op, const struct ir_value *yields, size_t n,
                         struct ir_value *results)
{
	const struct ir_type *types[BUILD_LIST_MAX] = {NULL};
	for (size_t i = 0; i < n; i++)
		types[i] = irb_type(b, yields[i]);
	if (build_results(b, op, types, n) && n > 0)
		memcpy(results, op->results, n * sizeof(*results));
}

/* The innermost region belongs to an op of that kind; reports if not. */
static bool is_inside(struct ir_builder *b, enum ir_opcode code)
{
	if (b->scope->owner != NULL && b->scope->owner->code == code)
		return true;
	build_fail(b, DIAG_INTERNAL, "the innermost region is not that of a %s", ir_op_desc(code)->name);
	return false;
}

/* ---- repeat ---- */

/* The owner is filled before its body is built, as check_yields reads it; arguments are values of the body: index
 * i32[], then one of the type of each init. */
void irb_repeat_begin(struct ir_builder *b, int64_t count, const struct ir_value *init, size_t n_init,
                      struct ir_value *args)
{
	clear_values(args, 1 + n_init);
	if (b->failed || !check_values(b, "repeat", init, n_init))
		return;
	if (count < 0 || count > INT32_MAX) {
		build_fail(b, DIAG_IR_TYPE, "repeat cannot run %lld times", (long long)count);
		return;
	}
	struct build_scope *s = build_open(b, OP_repeat);
	struct ir_value *list = ARENA_ARRAY(&b->m->arena, struct ir_value, 2 * (n_init + 1));
	if (s == NULL || list == NULL || arena_failed(&b->m->arena)) {
		b->failed = true;
		return;
	}
	struct ir_value *operands = list + n_init + 1;
	list[0] = build_value(b, ir_type_tensor(b->m->types, DT_I32, 0, NULL), NULL, 0);
	for (size_t i = 0; i < n_init; i++) {
		operands[i] = init[i];
		list[i + 1] = build_value(b, irb_type(b, init[i]), NULL, (unsigned)i + 1);
	}
	s->region->args = list;
	s->region->n_args = n_init + 1;
	s->owner->operands = operands;
	s->owner->n_operands = n_init;
	struct attrs_repeat *attrs = ir_default_attrs(&b->m->arena, OP_repeat);
	s->owner->attrs = attrs;
	if (attrs != NULL)
		attrs->count = count;
	else
		b->failed = true;
	memcpy(args, list, (n_init + 1) * sizeof(*args));
}

/* The yields of a repeat have the types of its carries, as they are the arguments of the next iteration; reports if
 * not. */
static bool check_yields(struct ir_builder *b, const struct ir_value *yields, size_t n)
{
	const struct ir_op *owner = b->scope->owner;
	if (n != owner->n_operands) {
		build_fail(b, DIAG_IR_TYPE, "repeat carries %zu values, its body yields %zu",
		           owner->n_operands, n);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		const struct ir_type *want = irb_type(b, owner->operands[i]), *got = irb_type(b, yields[i]);
		if (want == got)
			continue;
		build_fail(b, DIAG_IR_TYPE, "carried value %zu of repeat is %s, the body yields %s", i,
		           ir_type_to_string(&b->m->arena, b->m->dims, want),
		           ir_type_to_string(&b->m->arena, b->m->dims, got));
		return false;
	}
	return true;
}

void irb_repeat_end(struct ir_builder *b, const struct ir_value *yields, size_t n, struct ir_value *results)
{
	clear_values(results, n);
	if (b->failed || !is_inside(b, OP_repeat) || !check_values(b, "yield", yields, n) ||
	    !check_yields(b, yields, n))
		return;
	struct ir_op *op = build_close(b, OP_yield, yields, n);
	if (op != NULL)
		finish_owner(b, op, yields, n, results);
}

/* ---- group ---- */

void irb_group_begin(struct ir_builder *b)
{
	if (!b->failed && build_open(b, OP_group) == NULL)
		b->failed = true;
}

/* Attributes come at the end: the position of the root is known only now. A group has no operands: its ops use outer
 * values. */
void irb_group_end(struct ir_builder *b, const struct attrs_group *attrs, const struct ir_value *yields,
                   size_t n, struct ir_value *results)
{
	clear_values(results, n);
	if (b->failed || !is_inside(b, OP_group) || !check_values(b, "yield", yields, n))
		return;
	struct ir_op *op = build_close(b, OP_yield, yields, n);
	if (op == NULL)
		return;
	op->attrs = build_copy_attrs(b->m, OP_group, attrs);
	if (op->attrs == NULL)
		b->failed = true;
	else
		finish_owner(b, op, yields, n, results);
}

/* ---- end of the function ---- */

/* Stores names and properties of the n results in the function. False without memory. */
static bool copy_results(struct ir_builder *b, const struct ir_result *results, size_t n)
{
	if (n == 0)
		return true;
	b->f->results = ARENA_ARRAY(&b->m->arena, struct ir_result, n);
	if (b->f->results == NULL)
		return false;
	for (size_t i = 0; i < n; i++) {
		b->f->results[i] = results[i];
		if (results[i].name != NULL)
			b->f->results[i].name =
			        strmap_intern(&b->m->strings, results[i].name, strlen(results[i].name));
	}
	b->f->n_results = n;
	return true;
}

/* Without a reported error a failure is one of memory. */
static enum tfmc_status finish_status(const struct ir_builder *b)
{
	return b->cx->n_errors > 0 ? TFMC_INVALID : TFMC_NO_MEMORY;
}

/* The function is added to the module last, when nothing can fail but memory. */
enum tfmc_status irb_finish(struct ir_builder *b, const struct ir_value *values,
                            const struct ir_result *results, size_t n, const struct ir_dim *arena)
{
	if (b->failed || !check_values(b, "return", values, n))
		return finish_status(b);
	if (b->scope->parent != NULL) {
		build_fail(b, DIAG_INTERNAL, "function %s ends inside a region", b->f->name);
		return TFMC_INTERNAL;
	}
	if (build_close(b, OP_return, values, n) == NULL || !copy_results(b, results, n))
		return finish_status(b);
	b->f->arena = arena;
	if (ir_dims_failed(b->m->dims)) {
		build_fail(b, DIAG_OVERFLOW, "a dim of function %s does not fit into 64 bits", b->f->name);
		return TFMC_INVALID;
	}
	struct ir_func **slot = ARENA_PUSH(&b->m->arena, &b->m->funcs);
	if (slot == NULL || !strmap_set(&b->m->func_names, b->f->name, b->f))
		return TFMC_NO_MEMORY;
	*slot = b->f;
	return arena_failed(&b->m->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- typed calls ---- */

/*
 * irb_<op>(b, operands.., attrs) for every row of ops.def. IN and OPT turn the operands of a row into a sequence
 * (x)(w)(b); PARAMETERS and NAMES iterate over it with two macros that expand each other.
 */
#define IN(name, class)  (name)
#define OPT(name, class) (name)

#define PARAMETER_A(name) , struct ir_value name PARAMETER_B
#define PARAMETER_B(name) , struct ir_value name PARAMETER_A
#define PARAMETER_A_END
#define PARAMETER_B_END
#define NAME_A(name) , name NAME_B
#define NAME_B(name) , name NAME_A
#define NAME_A_END
#define NAME_B_END
#define END(...)             END_(__VA_ARGS__)
#define END_(...)            __VA_ARGS__##_END
#define PARAMETERS(sequence) END(PARAMETER_A sequence)
#define NAMES(sequence)      END(NAME_A sequence)

#define OP(name, traits, operands, attributes, results, axes, formula)                 \
	struct ir_value irb_##name(struct ir_builder *irb PARAMETERS(operands),        \
	                           const struct attrs_##name *attrs)                   \
	{                                                                              \
		const struct ir_value list[] = {{0} NAMES(operands)};                  \
		return irb_op1(irb, OP_##name, list + 1, TFMC_COUNT(list) - 1, attrs); \
	}
#include "ir/core/ops.def"

struct ir_value irb_weight_ref(struct ir_builder *b, const struct ir_weight *w, const struct ir_value *index,
                               size_t n)
{
	return irb_op1(b, OP_weight, index, n, &(struct attrs_weight){.weight = w});
}

struct ir_value irb_scale_by(struct ir_builder *b, struct ir_value x, double f)
{
	return irb_scale(b, x, &(struct attrs_scale){.f = f});
}

/* An attribute list of dims; copied because its items are not const. */
static struct ir_dim_list dim_list(const struct ir_dim **storage, int rank, const struct ir_dim *const *dims)
{
	struct ir_dim_list list = {storage, (size_t)rank};
	for (int i = 0; i < rank; i++)
		storage[i] = dims[i];
	return list;
}

/* Storage of the callers has IR_RANK_MAX elements. */
static bool rank_fits(struct ir_builder *b, int rank)
{
	if (rank < 0 || rank > IR_RANK_MAX)
		build_fail(b, DIAG_SHAPE, "a tensor of rank %d: at most %d axes are possible", rank,
		           IR_RANK_MAX);
	return rank >= 0 && rank <= IR_RANK_MAX;
}

struct ir_value irb_reshape_to(struct ir_builder *b, struct ir_value x, int rank,
                               const struct ir_dim *const *dims)
{
	const struct ir_dim *storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	return irb_reshape(b, x, &(struct attrs_reshape){.dims = dim_list(storage, rank, dims)});
}

/* The list is copied because its items are not const. */
struct ir_value irb_transpose_by(struct ir_builder *b, struct ir_value x, int rank, const int64_t *perm)
{
	int64_t storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	for (int i = 0; i < rank; i++)
		storage[i] = perm[i];
	return irb_transpose(b, x, &(struct attrs_transpose){.perm = {storage, (size_t)rank}});
}

struct ir_value irb_broadcast_to(struct ir_builder *b, struct ir_value x, int rank,
                                 const struct ir_dim *const *dims)
{
	const struct ir_dim *storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	return irb_broadcast(b, x, &(struct attrs_broadcast){.dims = dim_list(storage, rank, dims)});
}

struct ir_value irb_slice_of(struct ir_builder *b, struct ir_value x, int axis, const struct ir_dim *begin,
                             const struct ir_dim *size)
{
	return irb_slice(b, x, &(struct attrs_slice){.axis = axis, .begin = begin, .size = size});
}

struct ir_value irb_dim_value_of(struct ir_builder *b, const struct ir_dim *dim, int rank,
                                 const struct ir_dim *const *dims)
{
	const struct ir_dim *storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	return irb_dim_value(b, &(struct attrs_dim_value){.dim = dim, .dims = dim_list(storage, rank, dims)});
}

struct ir_value irb_full_of(struct ir_builder *b, double value, enum ir_dtype dtype, int rank,
                            const struct ir_dim *const *dims)
{
	const struct ir_dim *storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	return irb_full(b, &(struct attrs_full){
	                           .value = value, .dims = dim_list(storage, rank, dims), .dtype = dtype});
}
