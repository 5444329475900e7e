/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of the inputs of linears (for calibration): sums of columns and of their squares, computed by the
 * model itself, so that a call returns 2 K + 1 values for a weight however many rows its input has.
 */
#include <string.h>

#include "passes/graph/probe.h"

#define MAX_RESULTS 96 /* as of probes */
#define MAX_COLUMNS ((size_t)1 << 19)
#define MAX_DEPTH   32

struct columns {
	const struct probe_request *q;
	const struct ir_func *f;
	struct probe_sites sites;
	struct probe_columns *list;
	bool too_many;
};

/* ---- building the sums ---- */

static const struct ir_dim *one(struct ir_builder *b)
{
	return ir_dim_const(irb_module(b)->dims, 1);
}

/* [R, 2 K + 1]: x * x, x, and a column of ones, in f32. */
static struct ir_value squares_and_values(struct ir_builder *b, struct ir_value x, const struct ir_dim *rows)
{
	const struct ir_type *t = irb_type(b, x);
	const struct ir_dim *flat[] = {rows, t->dims[t->rank - 1]}, *column[] = {rows, one(b)};
	x = irb_reshape_to(b, x, 2, flat);
	if (t->dtype != DT_F32)
		x = irb_cast(b, x, &(struct attrs_cast){.dtype = DT_F32});
	struct ir_value square = irb_mul(b, x, x, NULL), ones = irb_full_of(b, 1.0, DT_F32, 2, column);
	const struct ir_value all[] = {square, x, ones};
	return irb_op1(b, OP_concat, all, TFMC_COUNT(all), &(struct attrs_concat){.axis = 1});
}

/* [R, E]: 1 if the row is routed to the expert, else 0. ids are clamped to [0, E), as by the op. */
static struct ir_value routing_mask(struct ir_builder *b, struct ir_value ids, const struct ir_dim *rows,
                                    int64_t experts)
{
	const struct ir_dim *wide[] = {rows, ir_dim_const(irb_module(b)->dims, experts)},
	                    *column[] = {rows, one(b)};
	struct ir_value last = irb_full_of(b, (double)experts - 1, DT_I32, 2, column);
	struct ir_value first = irb_full_of(b, 0.0, DT_I32, 2, column);
	ids = irb_reshape_to(b, ids, 2, column);
	ids = irb_max(b, irb_min(b, ids, last, NULL), first, NULL);
	struct ir_value numbers = irb_iota(b, &(struct attrs_iota){.dims = {wide, 2}, .axis = 1});
	struct ir_value same =
	        irb_cmp(b, irb_broadcast_to(b, ids, 2, wide), numbers, &(struct attrs_cmp){.kind = CMP_eq});
	return irb_cast(b, same, &(struct attrs_cast){.dtype = DT_F32});
}

/* R = product of all axes but the last. Without routing the rows of [R, 2 K + 1] are added; with routing mask^T [E,
 * R] times that matrix adds them for each expert. */
struct ir_value probe_column_sums(struct ir_builder *b, struct ir_value x, struct ir_value ids,
                                  int64_t experts)
{
	const struct ir_type *t = irb_type(b, x);
	const struct ir_dim *rows = one(b);
	int64_t axis = 0;
	for (int i = 0; i + 1 < t->rank; i++)
		rows = ir_dim_mul(irb_module(b)->dims, rows, t->dims[i]);
	struct ir_value all = squares_and_values(b, x, rows);
	if (!ids.id)
		return irb_reduce_sum(b, all, &(struct attrs_reduce_sum){.axes = {&axis, 1}});
	return irb_matmul(b, routing_mask(b, ids, rows, experts), all, &(struct attrs_matmul){.ta = true});
}

/* ---- sites ---- */

/* The weight op of a linear or expert_linear, or NULL. */
static const struct ir_op *weight_op(const struct ir_func *f, const struct ir_op *op)
{
	bool is_product = op->code == OP_linear || op->code == OP_expert_linear;
	return is_product ? ir_def_as(f, op->operands[1], OP_weight) : NULL;
}

/* Linears of one input share its sums; expert_linears also need the same ids and number of experts. */
static bool shares_sums(const struct ir_func *f, const struct ir_op *a, const struct ir_op *b)
{
	bool same = a->code == b->code && ir_same_value(a->operands[0], b->operands[0]) &&
	            ir_value_info(f, a->results[0])->region == ir_value_info(f, b->results[0])->region;
	if (!same || a->code == OP_linear)
		return same;
	const size_t w = OPERAND(expert_linear, w), ids = OPERAND(expert_linear, ids);
	return ir_same_value(a->operands[ids], b->operands[ids]) &&
	       ir_type_of(f, a->operands[w])->dims[0] == ir_type_of(f, b->operands[w])->dims[0];
}

/* The site whose sums apply to op, or NULL. */
static struct probe_site *site_of(struct columns *c, const struct ir_op *op)
{
	for (size_t i = 0; i < c->sites.n; i++)
		if (shares_sums(c->f, c->sites.items[i].op, op))
			return &c->sites.items[i];
	return NULL;
}

/* Finds the linears of a region and of the repeats in it, one site for each input. */
static void find_sites(struct columns *c, const struct ir_region *r, size_t depth, int64_t iterations)
{
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		if (op->code == OP_repeat && depth < MAX_DEPTH)
			find_sites(c, op->region, depth + 1,
			           iterations * ((const struct attrs_repeat *)op->attrs)->count);
		if (!weight_op(c->f, op) || site_of(c, op))
			continue;
		ARENA_ADD(c->q->arena, &c->sites,
		          (struct probe_site){
		                  .op = op,
		                  .part = PROBE_COLUMN_SUMS,
		                  .depth = depth,
		                  .wanted = true,
		                  .last = iterations - 1,
		                  .result_name = arena_printf(c->q->arena, "columns_%zu", c->sites.n - 1)});
	}
}

/* ---- list of weights ---- */

/* Adds `weight` with rows [first, first + rows) of the result of site s. Sets c->too_many without space. */
static void add_column(struct columns *c, const char *weight, const struct probe_site *s, int64_t first,
                       int64_t rows)
{
	const struct ir_type *x = ir_type_of(c->f, s->op->operands[0]);
	struct probe_column *slot = c->list->n < MAX_COLUMNS ? ARENA_PUSH(c->q->arena, c->list) : NULL;
	c->too_many |= !slot;
	if (!slot)
		return;
	*slot = (struct probe_column){
	        .weight = weight, .result = s->result_name, .first = first, .rows = rows};
	(void)ir_dim_is_const(x->dims[x->rank - 1], &slot->k);
}

/* If experts have separate parameters, the weight that concatenates them has "all" in place of the number of an
 * expert, and each expert is listed under its own name; else the weight, with a row for each expert. */
static void add_experts(struct columns *c, const char *weight, const struct probe_site *s, int64_t iteration)
{
	int64_t experts = 0;
	const char *all = strstr(weight, ".all.");
	(void)ir_dim_is_const(ir_type_of(c->f, s->op->operands[1])->dims[0], &experts);
	if (!all)
		add_column(c, weight, s, iteration * experts, experts);
	for (int64_t e = 0; all && e < experts && !c->too_many; e++)
		add_column(c,
		           arena_printf(c->q->arena, "%.*s.%lld%s", (int)(all - weight), weight, (long long)e,
		                        all + 4),
		           s, iteration * experts + e, 1);
}

/* Lists the weights in order of execution, with the rows of the result that hold their sums. */
static void list_region(struct columns *c, const struct ir_region *r, int64_t *at, size_t depth,
                        int64_t iteration)
{
	for (size_t i = 0; i < r->n_ops && !c->too_many; i++) {
		const struct ir_op *op = r->ops[i], *w = weight_op(c->f, op);
		int64_t count = op->code == OP_repeat ? ((const struct attrs_repeat *)op->attrs)->count : 0;
		for (int64_t k = 0; k < count && depth < MAX_DEPTH && !c->too_many; k++) {
			at[depth] = k;
			list_region(c, op->region, at, depth + 1, iteration * count + k);
		}
		const struct probe_site *s = w ? site_of(c, op) : NULL;
		if (!s)
			continue;
		const char *path = probe_weight_path(c->q->arena, c->f, w, r, at, depth);
		if (op->code == OP_linear)
			add_column(c, path, s, iteration, 1);
		else
			add_experts(c, path, s, iteration);
	}
}

/* Error: no linear, or too many. */
static enum tfmc_status report_count(const struct columns *c, size_t n)
{
	if (n == 0)
		diag_error(c->q->cx, c->f->loc.at, DIAG_OPTION, "%s multiplies nothing with a weight",
		           c->f->name);
	else
		diag_error(c->q->cx, c->f->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: statistics of %s, which multiplies %zu values with weights "
		           "(rounds of a "
		           "repeat count once); at most %d",
		           c->f->name, n, MAX_RESULTS);
	return TFMC_INVALID;
}

/* Finds the sites, lists the weights, and writes the function with the sums as results. */
static enum tfmc_status write_sums(struct columns *c, const struct ir_module *in, struct ir_module *out)
{
	int64_t at[MAX_DEPTH];
	find_sites(c, c->f->body, 0, 1);
	if (arena_failed(c->q->arena))
		return TFMC_NO_MEMORY;
	if (c->sites.n == 0 || c->sites.n > MAX_RESULTS)
		return report_count(c, c->sites.n);
	list_region(c, c->f->body, at, 0, 0);
	if (c->too_many)
		return arena_failed(c->q->arena) ? TFMC_NO_MEMORY : report_count(c, c->list->n);
	for (size_t i = 0; i < in->weights.n; i++)
		if (!ir_add_weight(out, in->weights.items[i]))
			return TFMC_NO_MEMORY;
	return probe_write(c->q, c->f, out, &c->sites);
}

/* The sums replace the results of the function (alone). They read x itself (columns_of), so nothing is recomputed. */
enum tfmc_status probe_columns(const struct probe_request *q, const struct ir_module *in,
                               struct ir_module **out, struct probe_columns *columns)
{
	struct probe_request alone = *q;
	struct columns c = {.q = &alone, .f = ir_find_func(in, q->functions[0]), .list = columns};
	alone.alone = true;
	*out = NULL;
	if (in->stage != STAGE_GRAPH || !c.f) {
		diag_error(q->cx, LOC_NONE, DIAG_UNSUPPORTED,
		           "not supported yet: statistics of a module without %s, or whose kernels are "
		           "formed already",
		           q->functions[0]);
		return TFMC_INVALID;
	}
	struct ir_module *made = ir_module_create_like(in);
	if (!made)
		return TFMC_NO_MEMORY;
	made->stage = in->stage;
	enum tfmc_status st = write_sums(&c, in, made);
	if (st == TFMC_OK)
		*out = made;
	else
		ir_module_destroy(made);
	return st;
}
