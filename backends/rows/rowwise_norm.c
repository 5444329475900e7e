/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise template: layer_norm and rms_norm. The variance is the mean of the
 * squares of centered elements (a walk of its own): E[x^2] - E[x]^2 would lose
 * all digits of rows whose mean is large.
 */
#include "backends/rows/rowwise_internal.h"

enum { X = OPERAND(layer_norm, x), GAMMA = OPERAND(layer_norm, gamma), BETA = OPERAND(layer_norm, beta) };

struct norm {
	struct rowwise_acc sum, squares;
	struct kb_val mean;    /* f32; none: 0 */
	struct kb_val inverse; /* f32: 1 / sqrt(mean square + eps) */
	struct ir_value gamma, beta;
};

static struct kb_val divide_by_width(struct rowwise *r, struct kb_val sum)
{
	return kb_bin(r->k, KB_DIV, sum, kb_cvt(r->k, rowwise_width(r), KB_F32));
}

static struct kb_val inverse_root(struct rowwise *r, const struct norm *n, double eps)
{
	struct kb *k = r->k;
	struct kb_val mean = divide_by_width(r, rowwise_acc_value(r, &n->squares));
	struct kb_val root = kb_un(k, KB_SQRT, kb_add(k, mean, kb_f32(k, (float)eps)));
	return kb_bin(k, KB_DIV, kb_f32(k, 1), root);
}

/* The chunk of gamma or beta, [D]. */
static struct kb_val parameter(struct rowwise *r, const struct rowwise_chunk *c, struct ir_value v)
{
	const struct eval_point p = {.rank = 1, .index = {c->at}, .vec = 0};
	return rowwise_splat(r, c, eval_value(&r->e, v, &p));
}

/* ---- walks ---- */

static void add_element(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val x = rowwise_first(r, c);
	rowwise_keep(r, c, x);
	rowwise_acc_add(r, &n->sum, c, x);
}

static void add_square(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val x = rowwise_first(r, c);
	rowwise_keep(r, c, x);
	rowwise_acc_square(r, &n->squares, c, x);
}

static void add_centered_square(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct norm *n = user;
	struct kb_val mean = rowwise_splat(r, c, n->mean);
	struct kb_val x = kb_sub(r->k, rowwise_again(r, c), mean);
	rowwise_acc_square(r, &n->squares, c, x);
}

struct kb_val rowwise_scaled(struct kb *k, struct kb_val x, const struct rowwise_scale *s)
{
	if (s->mean.id)
		x = kb_sub(k, x, s->mean);
	x = kb_mul(k, x, s->inverse);
	if (s->gamma.id && s->beta.id)
		return kb_fma(k, x, s->gamma, s->beta);
	if (s->gamma.id)
		return kb_mul(k, x, s->gamma);
	return s->beta.id ? kb_add(k, x, s->beta) : x;
}

static void scale_and_store(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	const struct norm *n = user;
	struct rowwise_scale s = {0};
	struct kb_val y = rowwise_again(r, c);
	if (n->mean.id)
		s.mean = rowwise_splat(r, c, n->mean);
	s.inverse = rowwise_splat(r, c, n->inverse);
	if (n->beta.id)
		s.beta = parameter(r, c, n->beta);
	if (n->gamma.id)
		s.gamma = parameter(r, c, n->gamma);
	rowwise_store(r, c, rowwise_scaled(r->k, y, &s));
}

static void store_row(struct rowwise *r, struct norm *n)
{
	const struct rowwise_walk w = {.body = scale_and_store, .user = n, .lanes = r->out_lanes};
	rowwise_walk(r, kb_index(r->k, 0), rowwise_width(r), &w);
}

/* ---- rows ---- */

void rowwise_layer_norm(struct rowwise *r)
{
	const struct attrs_layer_norm *a = r->root->attrs;
	struct norm n = {.gamma = rowwise_operand(r, GAMMA), .beta = rowwise_operand(r, BETA)};
	rowwise_acc_begin(r, &n.sum, KB_ADD);
	rowwise_all(r, add_element, &n);
	n.mean = divide_by_width(r, rowwise_acc_value(r, &n.sum));
	rowwise_acc_begin(r, &n.squares, KB_ADD);
	rowwise_all(r, add_centered_square, &n);
	n.inverse = inverse_root(r, &n, a->eps);
	store_row(r, &n);
}

void rowwise_rms_norm(struct rowwise *r)
{
	const struct attrs_rms_norm *a = r->root->attrs;
	struct norm n = {.gamma = rowwise_operand(r, GAMMA)};
	rowwise_acc_begin(r, &n.squares, KB_ADD);
	rowwise_all(r, add_square, &n);
	n.inverse = inverse_root(r, &n, a->eps);
	store_row(r, &n);
}
