/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonicalize: one spelling for equal computations.
 *
 * Requires   nothing.
 * Ensures    multiplications by a constant are `scale` and no scale follows a scale; transposed operands of
 *            matmul are flags; a bias row added to a linear is its operand; take_rows stands as early as it
 * can; no dead op, no two equal pure ops in a region (the builder merges and folds). Example    %s = div %x,
 * %c8   %t = scale %s {f=2.0}
 *        ->  %t = scale %x {f=0.25}
 * Refuses    division by 0; moving take_rows over a value that has other uses: it would be computed twice.
 */
#include <math.h>

#include "passes/rebuild.h"
#include "passes/take_rows.h"

#define ROUNDS_MAX 8

/* --- scale --------------------------------------------------------------------------------------------- */

static bool constant_of(const struct rebuild *r, struct ir_value v, double *out)
{
	const struct ir_op *op = rebuild_def(r, v, OP_full);
	if (op == NULL)
		return false;
	*out = ((const struct attrs_full *)op->attrs)->value;
	return true;
}

static bool is_float(const struct rebuild *r, struct ir_value v)
{
	return ir_dtype_class(ir_type_of(r->f, v)->dtype) == DTCLASS_FLOAT;
}

/* op is x times a constant. */
static bool one_scale(const struct rebuild *r, const struct ir_op *op, struct ir_value *x, double *f)
{
	double c;
	if (op == NULL)
		return false;
	if (op->code == OP_scale) {
		*x = op->operands[0];
		*f = ((const struct attrs_scale *)op->attrs)->f;
		return true;
	}
	if ((op->code != OP_mul && op->code != OP_div) || !is_float(r, op->results[0]))
		return false;
	*x = op->operands[0];
	if (constant_of(r, op->operands[1], &c) && isfinite(c) && (op->code == OP_mul || c != 0)) {
		*f = op->code == OP_mul ? c : 1 / c;
		return isfinite(*f);
	}
	*x = op->operands[1];
	if (op->code != OP_mul || !constant_of(r, op->operands[0], &c) || !isfinite(c))
		return false;
	*f = c;
	return true;
}

/* The whole chain of scales that ends in op; n is its length. */
static bool all_scales(const struct rebuild *r, const struct ir_op *op, struct ir_value *x, double *f,
                       size_t *n)
{
	struct ir_value inner;
	double more;
	*n = 0;
	if (!one_scale(r, op, x, f))
		return false;
	for (*n = 1; one_scale(r, ir_def(r->f, *x), &inner, &more) && isfinite(*f * more); ++*n) {
		*f *= more;
		*x = inner;
	}
	return true;
}

static bool match_scale(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x;
	double f;
	size_t n;
	if (!all_scales(r, op, &x, &f, &n) || (n == 1 && op->code == OP_scale))
		return false;
	rebuild_need(r, x);
	return true;
}

static void emit_scale(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value x;
	double f;
	size_t n;
	if (all_scales(r, op, &x, &f, &n))
		rebuild_set(r, op->results[0], irb_scale_by(r->b, rebuild_get(r, x), f));
}

/* --- matmul -------------------------------------------------------------------------------------------- */

/* v is x with its last two axes exchanged, and nothing else. */
static bool swapped(const struct rebuild *r, struct ir_value v, struct ir_value *x)
{
	const struct ir_op *op = rebuild_def(r, v, OP_transpose);
	if (op == NULL)
		return false;
	const struct ir_int_list *perm = &((const struct attrs_transpose *)op->attrs)->perm;
	int64_t n = (int64_t)perm->n;
	for (int64_t i = 0; i < n; i++) {
		int64_t want = i < n - 2 ? i : (i == n - 2 ? n - 1 : n - 2);
		if (perm->items[i] != want)
			return false;
	}
	*x = op->operands[0];
	return n >= 2;
}

static bool plain_matmul(const struct rebuild *r, const struct ir_op *op, struct ir_value x[2],
                         struct attrs_matmul *attrs)
{
	*attrs = *(const struct attrs_matmul *)op->attrs;
	x[0] = op->operands[0];
	x[1] = op->operands[1];
	bool a = swapped(r, x[0], &x[0]), b = swapped(r, x[1], &x[1]);
	attrs->ta ^= a;
	attrs->tb ^= b;
	return a || b;
}

static bool match_matmul(struct rebuild *r, const struct ir_op *op)
{
	struct attrs_matmul attrs;
	struct ir_value x[2];
	if (!plain_matmul(r, op, x, &attrs))
		return false;
	rebuild_need(r, x[0]);
	rebuild_need(r, x[1]);
	return true;
}

static void emit_matmul(struct rebuild *r, const struct ir_op *op)
{
	struct attrs_matmul attrs;
	struct ir_value x[2];
	plain_matmul(r, op, x, &attrs);
	rebuild_set(r, op->results[0], irb_matmul(r->b, rebuild_get(r, x[0]), rebuild_get(r, x[1]), &attrs));
}

/* --- bias ---------------------------------------------------------------------------------------------- */

/* op = linear(x, w) + broadcast(bias): the linear and the bias [N]. */
static const struct ir_op *biased_linear(const struct rebuild *r, const struct ir_op *op,
                                         struct ir_value *bias)
{
	for (size_t i = 0; i < 2; i++) {
		const struct ir_op *linear = rebuild_def(r, op->operands[i], OP_linear);
		const struct ir_op *row = rebuild_def(r, op->operands[1 - i], OP_broadcast);
		if (linear == NULL || row == NULL || linear->operands[2].id != 0)
			continue;
		*bias = row->operands[0];
		const struct ir_type *t = ir_type_of(r->f, *bias), *y = ir_type_of(r->f, linear->results[0]);
		if (t->rank == 1 && t->dims[0] == y->dims[y->rank - 1] &&
		    rebuild_once(r, linear->results[0]) &&
		    ir_info(r->f, linear->results[0])->region == ir_info(r->f, op->results[0])->region)
			return linear;
	}
	return NULL;
}

static bool match_add(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value bias;
	const struct ir_op *linear = biased_linear(r, op, &bias);
	if (linear == NULL)
		return false;
	rebuild_need(r, linear->operands[0]);
	rebuild_need(r, linear->operands[1]);
	rebuild_need(r, bias);
	return true;
}

static void emit_add(struct rebuild *r, const struct ir_op *op)
{
	struct ir_value bias;
	const struct ir_op *linear = biased_linear(r, op, &bias);
	irb_set_loc(r->b, linear->loc);
	rebuild_set(r, op->results[0],
	            irb_linear(r->b, rebuild_get(r, linear->operands[0]), rebuild_get(r, linear->operands[1]),
	                       rebuild_get(r, bias), NULL));
}

/* --- ops that do nothing ------------------------------------------------------------------------------- */

static bool does_nothing(const struct ir_op *op)
{
	if (op->code == OP_concat)
		return op->n_operands == 1;
	const struct attrs_mask *a = op->attrs;
	return op->code == OP_mask && a->mask == MASK_none && op->operands[1].id == 0;
}

static bool match_nothing(struct rebuild *r, const struct ir_op *op)
{
	if (!does_nothing(op))
		return false;
	rebuild_need(r, op->operands[0]);
	return true;
}

static void emit_nothing(struct rebuild *r, const struct ir_op *op)
{
	rebuild_set(r, op->results[0], rebuild_get(r, op->operands[0]));
}

/* --- all of them --------------------------------------------------------------------------------------- */

struct rule {
	bool (*match)(struct rebuild *r, const struct ir_op *op);
	void (*emit)(struct rebuild *r, const struct ir_op *op);
};

static const struct rule rules[IR_N_OPS] = {
        [OP_scale] = {match_scale, emit_scale},    [OP_mul] = {match_scale, emit_scale},
        [OP_div] = {match_scale, emit_scale},      [OP_matmul] = {match_matmul, emit_matmul},
        [OP_add] = {match_add, emit_add},          [OP_concat] = {match_nothing, emit_nothing},
        [OP_mask] = {match_nothing, emit_nothing}, [OP_take_rows] = {take_rows_match, take_rows_emit},
};

static bool match(struct rebuild *r, const struct ir_op *op)
{
	return rules[op->code].match != NULL && rules[op->code].match(r, op);
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	rules[op->code].emit(r, op);
}

/*
 * A round may make room for the next one (a folded operand, a value with one use left), so there are rounds
 * until nothing is replaced. The first one also folds what the parser keeps as written.
 */
enum tfmc_status pass_canonicalize(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	const struct rewrite rewrite = {.match = match, .emit = emit};
	struct ir_module *last = NULL;
	int64_t changes = 1;
	enum tfmc_status st = TFMC_OK;

	for (int round = 0; round < ROUNDS_MAX && (changes > 0 || round < 2) && st == TFMC_OK; round++) {
		struct ir_module *next = ir_module_create_like(in);
		if (next == NULL)
			st = TFMC_NO_MEMORY;
		else
			st = rebuild_module(p, last != NULL ? last : in, next, &rewrite, &changes);
		pass_count(p, "rewrites", changes);
		ir_module_destroy(last);
		last = next;
	}
	if (st == TFMC_OK)
		st = rebuild_module(p, last, out, &(const struct rewrite){.match = NULL}, NULL);
	ir_module_destroy(last);
	return st;
}
