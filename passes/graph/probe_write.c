/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds probed values as results of a function. Inside a repeat, a loop-carried tensor [count, ..] collects one
 * slot for each iteration: slot i is replaced in iteration i. Values that fusion keeps in registers are recomputed
 * from the nearest materialized values; the clones read max(x, -inf) (= x), so that CSE cannot merge them with the
 * originals.
 */
#include <math.h>
#include <string.h>

#include "ir/core/build.h"
#include "passes/graph/probe.h"

struct probe_writer {
	const struct probe_request *q;
	const struct ir_func *f;
	struct ir_builder *b;
	struct probe_sites *sites;
	struct ir_value *map;    /* [n_values] value of f -> its copy in the new function */
	struct ir_value *clones; /* [n_values] value of f -> its recomputation; id 0: none yet */
	uint32_t *uses;          /* [n_values] */
	bool *is_summed;         /* [n_values] an add reads it */
	bool *is_carried;        /* [n_values] is yielded or returned */
	bool *in_slice;          /* [n_values] by first result: op of the backward slice that is cloned */
	bool failed;
};

/* ---- recomputation ---- */

/* Marks operands of op that an add reads, and those that are yielded or returned. */
static void note_readers(struct probe_writer *w, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->code == OP_add)
			w->is_summed[op->operands[i].id] = true;
		if (ir_op_has(op->code, TRAIT_TERMINATOR))
			w->is_carried[op->operands[i].id] = true;
	}
}

/* v is materialized in memory however the function is fused, so recomputation starts from it: arguments, values
 * of other regions, results of repeats and states, and the residual stream (an elementwise op or norm that is
 * carried, or that an add and another op read). A view is recomputed with its operand. */
static bool is_boundary(const struct probe_writer *w, struct ir_value v, const struct ir_region *here)
{
	const struct ir_op *op = ir_def(w->f, v);
	if (!op || ir_value_info(w->f, v)->region != here || op->region ||
	    ir_op_has(op->code, TRAIT_STATEFUL))
		return true;
	if (ir_op_has(op->code, TRAIT_VIEW))
		return false;
	bool is_local = ir_op_has(op->code, TRAIT_ELEMENTWISE) || ir_is_norm(op->code);
	return is_local && (w->is_carried[v.id] || (w->is_summed[v.id] && w->uses[v.id] > 1));
}

static bool is_float(const struct ir_type *t)
{
	return t->kind == IR_TENSOR && (t->dtype == DT_F32 || t->dtype == DT_F16 || t->dtype == DT_BF16);
}

/* The value that clones read in place of a materialized one: max(v, -inf) of a float of this region, else its copy. */
static struct ir_value boundary_copy(struct probe_writer *w, struct ir_value v, const struct ir_region *here)
{
	const struct ir_op *op = ir_def(w->f, v);
	const struct ir_type *t = irb_type(w->b, w->map[v.id]);
	bool is_local =
	        ir_value_info(w->f, v)->region == here && !(op && ir_op_has(op->code, TRAIT_STATEFUL));
	if (!is_local || !is_float(t))
		return w->map[v.id];
	struct ir_value low = irb_full_of(w->b, -INFINITY, t->dtype, t->rank, t->dims);
	return irb_max(w->b, w->map[v.id], low, NULL);
}

/* One step of the backward slice: marks the ops that define operands of op and are to be cloned. */
static void mark_slice_operands(struct probe_writer *w, const struct ir_op *op, const struct ir_region *here)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = op->operands[i];
		const struct ir_op *def = v.id ? ir_def(w->f, v) : NULL;
		if (def && !w->clones[v.id].id && !ir_op_has(def->code, TRAIT_CONST) &&
		    !is_boundary(w, v, here))
			w->in_slice[def->results[0].id] = true;
	}
}

/*
 * Appends a clone of op, an op of the slice of region `here`. It reads clones of its operands; materialized values of
 * the region through boundary_copy(); copies (map) of constants and of values of other regions.
 */
static void clone_op(struct probe_writer *w, const struct ir_op *op, const struct ir_region *here)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = op->operands[i];
		const struct ir_op *def = v.id ? ir_def(w->f, v) : NULL;
		if (!v.id || w->clones[v.id].id)
			continue;
		bool is_outside =
		        ir_value_info(w->f, v)->region != here || (def && ir_op_has(def->code, TRAIT_CONST));
		struct ir_value clone = is_outside ? w->map[v.id] : boundary_copy(w, v, here);
		w->clones[v.id] = clone;
	}
	irb_clone(w->b, w->f, op, w->clones);
	/* The copy of a value of another region is no recomputation: recompute() of that value must not find it. */
	for (size_t i = 0; i < op->n_operands; i++)
		if (op->operands[i].id && ir_value_info(w->f, op->operands[i])->region != here)
			w->clones[op->operands[i].id] = IR_NO_VALUE;
}

/* Recomputes v by cloning its backward slice within its region, up to materialized values: marks the slice from
 * v backward, then clones it in program order. Returns the copy of v itself if it is materialized. */
static struct ir_value recompute(struct probe_writer *w, struct ir_value v)
{
	const struct ir_region *here = ir_value_info(w->f, v)->region;
	const struct ir_op *op = ir_def(w->f, v);
	size_t end = 0;
	if (!op || is_boundary(w, v, here))
		return w->map[v.id];
	if (w->clones[v.id].id)
		return w->clones[v.id];
	while (here->ops[end] != op)
		end++;
	memset(w->in_slice, 0, w->f->n_values * sizeof(*w->in_slice));
	w->in_slice[op->results[0].id] = true;
	for (size_t i = end + 1; i-- > 0;)
		if (here->ops[i]->n_results && w->in_slice[here->ops[i]->results[0].id])
			mark_slice_operands(w, here->ops[i], here);
	for (size_t i = 0; i <= end; i++)
		if (here->ops[i]->n_results && w->in_slice[here->ops[i]->results[0].id])
			clone_op(w, here->ops[i], here);
	return w->clones[v.id];
}

/* The value to store for a probe of v. */
static struct ir_value probed_value(struct probe_writer *w, struct ir_value v)
{
	return !v.id || w->q->mode == PROBE_BARRIER ? w->map[v.id] : recompute(w, v);
}

/* Broadcasts keys k [B, K, T, E] to the heads of q: [B, H, T, E]. */
static struct ir_value broadcast_heads(struct probe_writer *w, struct ir_value k, const struct ir_type *q)
{
	const struct ir_type *t = irb_type(w->b, k);
	struct ir_dims *d = irb_module(w->b)->dims;
	int64_t heads, key_heads;
	if (!ir_dim_is_const(q->dims[1], &heads) || !ir_dim_is_const(t->dims[1], &key_heads) ||
	    key_heads < 1 || heads == key_heads)
		return k;
	const struct ir_dim *one[] = {t->dims[0], t->dims[1], ir_dim_const(d, 1), t->dims[2], t->dims[3]};
	const struct ir_dim *wide[] = {t->dims[0], t->dims[1], ir_dim_const(d, heads / key_heads), t->dims[2],
	                               t->dims[3]};
	const struct ir_dim *flat[] = {t->dims[0], q->dims[1], t->dims[2], t->dims[3]};
	k = irb_broadcast_to(w->b, irb_reshape_to(w->b, k, 5, one), 5, wide);
	return irb_reshape_to(w->b, k, 4, flat);
}

/* Probabilities of scores p [B, H, S, T] with attention sinks, written out, since masked_softmax has no sinks. */
static struct ir_value probabilities_with_sinks(struct probe_writer *w, const struct ir_op *op,
                                                struct ir_value p, const struct attrs_masked_softmax *m)
{
	struct ir_builder *b = w->b;
	const struct attrs_mask mask = {.mask = m->mask, .window = m->window};
	const struct ir_type *t = irb_type(b, p);
	const struct ir_dim *one = ir_dim_const(irb_module(b)->dims, 1);
	const struct ir_dim *heads[] = {one, t->dims[1], one, one};
	const struct ir_dim *column[] = {t->dims[0], t->dims[1], t->dims[2], one};
	p = irb_scale_by(b, p, m->scale);
	if (m->softcap > 0)
		p = irb_softcap(b, p, &(struct attrs_softcap){.c = m->softcap});
	p = irb_mask(b, p, w->map[op->operands[OPERAND(attention, len)].id],
	             w->map[op->operands[OPERAND(attention, past)].id], &mask);
	struct ir_value sinks =
	        irb_reshape_to(b, probed_value(w, op->operands[OPERAND(attention, sinks)]), 4, heads);
	const struct ir_value both[] = {p, irb_broadcast_to(b, sinks, 4, column)};
	p = irb_op1(b, OP_concat, both, 2, &(struct attrs_concat){.axis = 3});
	return irb_slice_of(b, irb_softmax(b, p, NULL), 3, ir_dim_const(irb_module(b)->dims, 0), t->dims[3]);
}

/* Probabilities of an attention, written out: softmax(mask(softcap(q k^T scale + bias))). q and k are converted,
 * scaled and rounded as the op does it; heads of k are broadcast. */
static struct ir_value probabilities_of(struct probe_writer *w, const struct ir_op *op)
{
	const struct attrs_attention *a = op->attrs;
	struct ir_value q = probed_value(w, op->operands[OPERAND(attention, q)]);
	struct ir_value k = probed_value(w, op->operands[OPERAND(attention, k)]);
	struct ir_value bias = probed_value(w, op->operands[OPERAND(attention, bias)]);
	struct ir_value scale = probed_value(w, op->operands[OPERAND(attention, k_scale)]);
	if (irb_type(w->b, k)->dtype != irb_type(w->b, q)->dtype)
		k = irb_cast(w->b, k, &(struct attrs_cast){.dtype = irb_type(w->b, q)->dtype});
	if (scale.id)
		k = irb_mul(w->b, k, irb_broadcast_to(w->b, scale, 4, irb_type(w->b, k)->dims), NULL);
	if (a->factors == FACTORS_bf16) {
		q = irb_quantize_rows(w->b, q, &(struct attrs_quantize_rows){.to = ROUND_bf16});
		k = irb_quantize_rows(w->b, k, &(struct attrs_quantize_rows){.to = ROUND_bf16});
	}
	k = broadcast_heads(w, k, irb_type(w->b, q));
	struct ir_value p = irb_matmul(w->b, q, k, &(struct attrs_matmul){.tb = true});
	struct attrs_masked_softmax m = {
	        .scale = a->scale, .softcap = a->softcap, .mask = a->mask, .window = a->window};
	if (bias.id) {
		p = irb_add(w->b, irb_scale_by(w->b, p, a->scale), bias, NULL);
		m.scale = 1.0;
	}
	if (op->operands[OPERAND(attention, sinks)].id)
		return probabilities_with_sinks(w, op, p, &m);
	return irb_masked_softmax(w->b, p, w->map[op->operands[OPERAND(attention, len)].id],
	                          w->map[op->operands[OPERAND(attention, past)].id], &m);
}

/* ---- iterations ---- */

/* Iteration, flattened over the repeats around a region, as of probe_site.first and last: for each repeat, outermost
 * first, number = number * count + index; i32[]. */
static struct ir_value iteration_number(struct probe_writer *w, const struct ir_region *r)
{
	const struct ir_region *around[64];
	size_t n = 0;
	for (; r->owner && n < TFMC_COUNT(around); r = r->parent)
		around[n++] = r;
	struct ir_value number = IR_NO_VALUE;
	for (size_t i = n; i-- > 0;) {
		const struct attrs_repeat *repeat = around[i]->owner->attrs;
		struct ir_value index = w->map[around[i]->args[REPEAT_INDEX].id];
		if (number.id) {
			struct ir_value count = irb_full_of(w->b, (double)repeat->count, DT_I32, 0, NULL);
			number = irb_add(w->b, irb_mul(w->b, number, count, NULL), index, NULL);
		} else {
			number = index;
		}
	}
	return number;
}

/* Dims of the tensor with a slot for each requested iteration. Returns its rank. */
static int slot_dims(struct probe_writer *w, const struct probe_site *s, const struct ir_type *t,
                     const struct ir_dim *dims[IR_RANK_MAX])
{
	dims[0] = ir_dim_const(irb_module(w->b)->dims, s->last - s->first + 1);
	for (int i = 0; i < t->rank && i + 1 < IR_RANK_MAX; i++)
		dims[i + 1] = t->dims[i];
	return t->rank + 1;
}

/* Type of column sums: f32 [2 K + 1], of experts [E, 2 K + 1]. */
static const struct ir_type *columns_type(struct probe_writer *w, const struct ir_op *op)
{
	struct ir_module *m = irb_module(w->b);
	const struct ir_type *x = ir_type_of(w->f, op->operands[0]),
	                     *weight = ir_type_of(w->f, op->operands[1]);
	bool has_experts = op->code == OP_expert_linear;
	struct ir_type t = {.kind = IR_TENSOR, .dtype = DT_F32, .rank = 1 + has_experts};
	t.dims[0] = weight->dims[0];
	const struct ir_dim *k = x->dims[x->rank - 1];
	t.dims[has_experts] = ir_dim_add(m->dims, ir_dim_add(m->dims, k, k), ir_dim_const(m->dims, 1));
	return ir_import_type(m, &t);
}

/* Creates the tensor of slots, before the outermost repeat. */
static void begin_slots(struct probe_writer *w, struct probe_site *s)
{
	const struct ir_type *t = ir_type_of(w->f, s->op->results[s->result]);
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_type copy = *t;
	if (s->part == PROBE_PROBABILITIES) /* [B, H, S, E] becomes [B, H, S, T] */
		copy.dims[3] = ir_type_of(w->f, s->op->operands[1])->dims[2];
	const struct ir_type *type = s->part == PROBE_COLUMN_SUMS ? columns_type(w, s->op)
	                                                          : ir_import_type(irb_module(w->b), &copy);
	if (type->rank + 1 > IR_RANK_MAX) {
		diag_error(w->q->cx, s->op->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: a probe of rank %d in a repeat", type->rank);
		w->failed = true;
		return;
	}
	int rank = slot_dims(w, s, type, dims);
	s->value = irb_full_of(w->b, 0.0, type->dtype, rank, dims);
}

/* slots = where(slot index = iteration, v, slots): an iteration outside of the requested range equals no index. */
static void fill_slot(struct probe_writer *w, struct probe_site *s, struct ir_value v)
{
	const struct ir_type *t = irb_type(w->b, s->value);
	const struct ir_region *r = ir_value_info(w->f, s->op->results[0])->region;
	const struct attrs_iota count = {
	        .dims = {(const struct ir_dim **)(uintptr_t)t->dims, (size_t)t->rank},
	        .axis = 0,
	        .start = s->first};
	struct ir_value slot = irb_iota(w->b, &count);
	struct ir_value iteration = irb_broadcast_to(w->b, iteration_number(w, r), t->rank, t->dims);
	struct ir_value is_now = irb_cmp(w->b, slot, iteration, &(struct attrs_cmp){.kind = CMP_eq});
	s->value = irb_where(w->b, is_now, irb_broadcast_to(w->b, v, t->rank, t->dims), s->value, NULL);
}

/* ---- the function ---- */

/* The site is wanted, and its op is in the body of the repeat, however deep. */
static bool is_inside(const struct probe_writer *w, const struct probe_site *s, const struct ir_op *repeat)
{
	const struct ir_region *r = ir_value_info(w->f, s->op->results[0])->region;
	for (; s->wanted && r; r = r->parent)
		if (r->owner == repeat)
			return true;
	return false;
}

/* Copies a repeat, with the tensors of slots of the sites in it as further carries. A tensor of slots is created
 * before the outermost repeat around its site; inner repeats carry on what the outer one carries. While the body is
 * copied, fill_slot() replaces s->value by the filled tensor, which is then yielded. */
static void write_repeat(struct ir_copy *c, const struct ir_op *op)
{
	struct probe_writer *w = c->user;
	struct ir_value values[BUILD_LIST_MAX], args[BUILD_LIST_MAX + 1];
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	struct probe_site *inside[BUILD_LIST_MAX];
	size_t n = op->n_operands, extra = 0;
	for (size_t i = 0; i < w->sites->n && n + extra < BUILD_LIST_MAX; i++)
		if (is_inside(w, &w->sites->items[i], op))
			inside[extra++] = &w->sites->items[i];
	for (size_t i = 0; i < extra; i++)
		if (!inside[i]->value.id)
			begin_slots(w, inside[i]);
	if (w->failed)
		return;
	ir_copy_values(c, op->operands, n, values);
	for (size_t i = 0; i < extra; i++)
		values[n + i] = inside[i]->value;
	ir_copy_repeat_begin(c, op, ((const struct attrs_repeat *)op->attrs)->count, values, n + extra, args);
	for (size_t i = 0; i < extra; i++)
		inside[i]->value = args[1 + n + i];
	ir_copy_region(c, op->region);
	ir_copy_values(c, yield->operands, n, values);
	for (size_t i = 0; i < extra; i++)
		values[n + i] = inside[i]->value;
	ir_copy_repeat_end(c, op, values, n + extra, args);
	for (size_t i = 0; i < extra; i++)
		inside[i]->value = args[n + i];
}

/* The column sums of the input of a linear or expert_linear. */
static struct ir_value columns_of(struct probe_writer *w, const struct ir_op *op)
{
	struct ir_value x = w->map[op->operands[0].id];
	int64_t experts = 0;
	if (op->code == OP_linear)
		return probe_column_sums(w->b, x, IR_NO_VALUE, 0);
	(void)ir_dim_is_const(ir_type_of(w->f, op->operands[OPERAND(expert_linear, w)])->dims[0], &experts);
	return probe_column_sums(w->b, x, w->map[op->operands[OPERAND(expert_linear, ids)].id], experts);
}

/* Builds the value of a site, and stores it in its slot if it is in a repeat. */
static void write_probe(struct probe_writer *w, struct probe_site *s)
{
	irb_set_loc(w->b, s->op->loc);
	struct ir_value v = IR_NO_VALUE;
	switch (s->part) {
	case PROBE_RESULT: v = probed_value(w, s->op->results[s->result]); break;
	case PROBE_PROBABILITIES: v = probabilities_of(w, s->op); break;
	case PROBE_COLUMN_SUMS: v = columns_of(w, s->op); break;
	}
	if (s->depth)
		fill_slot(w, s, v);
	else
		s->value = v;
}

/* Copies an op, and after it the probes of its results. After a failure nothing more is copied. */
static bool write_op(struct ir_copy *c, const struct ir_op *op)
{
	struct probe_writer *w = c->user;
	bool has_sites = false;
	if (w->failed)
		return true;
	for (size_t k = 0; k < w->sites->n && op->code == OP_repeat && !has_sites; k++)
		has_sites = is_inside(w, &w->sites->items[k], op);
	if (has_sites)
		write_repeat(c, op);
	else
		irb_clone(w->b, w->f, op, w->map);
	for (size_t k = 0; k < w->sites->n; k++)
		if (w->sites->items[k].wanted && w->sites->items[k].op == op)
			write_probe(w, &w->sites->items[k]);
	return true;
}

/* Finishes the function. Results without a name are internal to the object and stay last. With q->alone the results
 * of f are dropped. */
static enum tfmc_status finish(struct probe_writer *w)
{
	const struct ir_op *ret = w->f->body->ops[w->f->body->n_ops - 1];
	size_t total = ret->n_operands + w->sites->n, n = 0, next = 0;
	struct ir_value *values = ARENA_ARRAY(w->q->arena, struct ir_value, total + 1);
	struct ir_result *results = ARENA_ARRAY(w->q->arena, struct ir_result, total + 1);
	if (!values || !results)
		return TFMC_NO_MEMORY;
	size_t named = w->q->alone ? 0 : ret->n_operands;
	for (; next < named && w->f->results[next].name; next++, n++) {
		values[n] = w->map[ret->operands[next].id];
		results[n] = w->f->results[next];
	}
	for (size_t i = 0; i < w->sites->n; i++) {
		const struct probe_site *s = &w->sites->items[i];
		if (!s->wanted)
			continue;
		values[n] = s->value;
		results[n++] = (struct ir_result){.name = s->result_name, .lengths = -1};
	}
	for (; !w->q->alone && next < ret->n_operands; next++, n++) {
		values[n] = w->map[ret->operands[next].id];
		results[n] = w->f->results[next];
	}
	irb_set_loc(w->b, ret->loc);
	return irb_finish(w->b, values, results, n, NULL);
}

/* The builder copies literally, since the function shall keep its ops; only the probes are new. Sites that are not
 * wanted add nothing. */
enum tfmc_status probe_write(const struct probe_request *q, const struct ir_func *f, struct ir_module *out,
                             struct probe_sites *sites)
{
	struct arena *a = q->arena;
	struct probe_writer w = {.q = q, .f = f, .sites = sites};
	w.map = ARENA_ARRAY(a, struct ir_value, f->n_values);
	w.clones = ARENA_ARRAY(a, struct ir_value, f->n_values);
	w.is_summed = ARENA_ARRAY(a, bool, f->n_values);
	w.is_carried = ARENA_ARRAY(a, bool, f->n_values);
	w.in_slice = ARENA_ARRAY(a, bool, f->n_values);
	w.uses = ir_count_uses(a, f);
	w.b = irb_begin(out, q->cx, f->name, f->loc);
	if (arena_failed(a) || !w.uses || !w.b)
		return TFMC_NO_MEMORY;
	irb_set_literal(w.b, true);
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		note_readers(&w, it.op);
	irb_clone_params(w.b, f, w.map);
	ir_copy_region(&(struct ir_copy){w.b, f, w.map, write_op, &w}, f->body);
	return w.failed ? TFMC_INVALID : finish(&w);
}
