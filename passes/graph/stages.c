/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages: divides the layers of a model among the `stages` of a pipeline (Huang et al. 2019, GPipe), each of `ranks`
 * processes. All of them run one module.
 *
 * Requires   layers that are one repeat; shard, if a stage has several ranks.
 * Ensures    the repeat of L layers, or L periods of layers that alternate (frontend/lower/compound.c), runs
 *            ceil(L / stages) of them; its weights and states have as many, those of the stage. `receive`
 *            in front of it gives what the stage before has computed, `send` behind it passes the result on. Ranks are
 *            rotated: 0 .. ranks - 1 are the last stage, so that rank 0, which leads, has the logits. Where L is no
 *            multiple, the last stages have a layer less: its weights are zeros, and `where` drops its result, which is
 *            exact whatever the layer computes.
 * Example    %y = repeat %i = 0 to 4 carry (%c = %x) { .. @w[%i] .. }
 *        ->  %r = receive %x  %z = repeat %i = 0 to 2 carry (%c = %r) { .. }  %y = send %z
 * Skips      all but the repeat whose weights are largest, with repeats of the same weights or states: what is in front
 *            of and behind them runs on every stage, and behind them only the values of the last stage are used. Layers
 *            that share their weights are divided where there are no others: each stage has the weights. Errors:
 *            no such repeat, fewer layers than stages, an index that is a number, layers that follow themselves.
 * Benefit    a rank has the weights and states of its layers only.
 */
#include <inttypes.h>
#include <string.h>

#include "ir/support/strmap.h"
#include "passes/framework/pass_impl.h"
#include "passes/graph/concat_weights.h"

struct stager {
	struct pass_context *p;
	const struct ir_module *in;
	struct ir_module *out;
	int64_t ranks, stages, n_layers, local; /* local: layers of the fullest stage */
	struct strmap names;      /* of weights and, after a blank, of states that the layers select from */
	struct strmap shared;     /* of the weights of layers that select none */
	bool grows;               /* a name was added */
	const struct ir_op *main; /* the repeat with the largest weights */
	int64_t tag;              /* of the next exchange of the function */
};

static enum tfmc_status reject(const struct stager *s, const struct ir_op *op, const char *why)
{
	diag_error(s->p->cx, op != NULL ? op->loc.at : LOC_NONE, DIAG_UNSUPPORTED,
	           "the model cannot be divided among %" PRId64 " stages: %s", s->stages, why);
	return TFMC_INVALID;
}

/* ---- the layers ---- */

/* Position of the first index of the weight or state that op selects from; SIZE_MAX: it selects none. */
static size_t first_index(const struct ir_op *op)
{
	switch (op->code) {
	case OP_weight: return 0;
	case OP_state_append: return OPERAND(state_append, at);
	case OP_state_write: return OPERAND(state_write, at);
	case OP_state_read: return OPERAND(state_read, at);
	default: return SIZE_MAX;
	}
}

/* The name in the table of the weight or state that op reads or writes; NULL: none. */
static const char *name_of(const struct stager *s, const struct ir_func *f, const struct ir_op *op)
{
	if (op->code == OP_weight)
		return ((const struct attrs_weight *)op->attrs)->weight->name;
	return first_index(op) == SIZE_MAX
	               ? NULL
	               : arena_printf(s->p->arena, " %s", ir_type_of(f, op->operands[0])->state->name);
}

/* name_of op if op selects a matrix or state by `index` first; else NULL. */
static const char *selected(const struct stager *s, const struct ir_func *f, const struct ir_op *op,
                            struct ir_value index)
{
	size_t at = first_index(op);
	return at < op->n_operands && ir_same_value(op->operands[at], index) ? name_of(s, f, op) : NULL;
}

/* Elements of the weights that the index of a repeat selects from; shared: of all weights of its layers. A
 * double, since it is only compared and cannot overflow. */
static double layer_elements(const struct stager *s, const struct ir_func *f, const struct ir_op *repeat,
                             bool shared)
{
	double sum = 0;
	for (struct ir_iter it = ir_iter_begin(repeat->region); it.op != NULL; ir_iter_next(&it)) {
		const struct attrs_weight *a = it.op->attrs;
		double n = it.op->code == OP_weight &&
		           (shared || selected(s, f, it.op, repeat->region->args[0]) != NULL);
		for (int i = 0; n > 0 && i < a->weight->type->rank; i++) {
			int64_t size = 1;
			(void)ir_dim_is_const(a->weight->type->dims[i], &size);
			n *= (double)size;
		}
		sum += n;
	}
	return sum;
}

/* The repeat selects some of the weights or states of the layers by its index, or reads those that they share. */
static bool is_layers(const struct stager *s, const struct ir_func *f, const struct ir_op *repeat)
{
	if (repeat->code != OP_repeat)
		return false;
	for (struct ir_iter it = ir_iter_begin(repeat->region); it.op != NULL; ir_iter_next(&it)) {
		const char *name = selected(s, f, it.op, repeat->region->args[0]);
		if (name != NULL && strmap_get(&s->names, name) != NULL)
			return true;
		if (it.op->code == OP_weight && strmap_get(&s->shared, name_of(s, f, it.op)) != NULL)
			return true;
	}
	return false;
}

/* Adds what the index of the repeat selects from to the names of the layers. */
static void add_names(struct stager *s, const struct ir_func *f, const struct ir_op *repeat)
{
	for (struct ir_iter it = ir_iter_begin(repeat->region); it.op != NULL; ir_iter_next(&it)) {
		const char *name = selected(s, f, it.op, repeat->region->args[0]);
		if (name == NULL || strmap_get(&s->names, name) != NULL)
			continue;
		strmap_set(&s->names, name, s);
		s->grows = true;
	}
}

/* Adds the weights of the repeat to those that its layers share. */
static void add_shared(struct stager *s, const struct ir_func *f, const struct ir_op *repeat)
{
	for (struct ir_iter it = ir_iter_begin(repeat->region); it.op != NULL; ir_iter_next(&it))
		if (it.op->code == OP_weight)
			strmap_set(&s->shared, name_of(s, f, it.op), s);
}

/* Finds the repeat with the largest weights, of those that its index selects or of those that its layers share.
 * Its names are those of the layers so far; find_layers adds the others. */
static void find_main(struct stager *s, bool shared)
{
	double largest = 0;
	for (size_t i = 0; i < s->in->funcs.n; i++) {
		const struct ir_func *f = s->in->funcs.items[i];
		for (size_t k = 0; k < f->body->n_ops; k++) {
			const struct ir_op *op = f->body->ops[k];
			double n = op->code == OP_repeat ? layer_elements(s, f, op, shared) : 0;
			if (n <= largest)
				continue;
			largest = n;
			s->main = op;
			strmap_init(&s->names, s->p->arena);
			strmap_init(&s->shared, s->p->arena);
			add_names(s, f, op);
			if (shared)
				add_shared(s, f, op);
		}
	}
}

/* Finds the repeat of the layers, and all weights and states of the repeats that have some in common with it. */
static enum tfmc_status find_layers(struct stager *s)
{
	find_main(s, false);
	if (s->main == NULL)
		find_main(s, true);
	if (s->main == NULL)
		return reject(s, NULL, "its layers are not one repeat, since they differ without a period");
	s->n_layers = ((const struct attrs_repeat *)s->main->attrs)->count;
	s->local = (s->n_layers + s->stages - 1) / s->stages;
	do {
		s->grows = false;
		for (size_t i = 0; i < s->in->funcs.n; i++) {
			const struct ir_func *f = s->in->funcs.items[i];
			for (size_t k = 0; k < f->body->n_ops; k++)
				if (is_layers(s, f, f->body->ops[k]))
					add_names(s, f, f->body->ops[k]);
		}
	} while (s->grows);
	return arena_failed(s->p->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- refusals ---- */

static bool is_of_layers(const struct stager *s, const struct ir_func *f, const struct ir_op *op)
{
	const char *name = name_of(s, f, op);
	return name != NULL && strmap_get(&s->names, name) != NULL;
}

/* Whether the index of a repeat selects layers and nothing else does, and nothing else is computed from it. */
static bool index_selects(const struct stager *s, const struct ir_func *f, const struct ir_op *repeat)
{
	struct ir_value index = repeat->region->args[0];
	for (struct ir_iter it = ir_iter_begin(repeat->region); it.op != NULL; ir_iter_next(&it)) {
		bool selects = selected(s, f, it.op, index) != NULL;
		if (is_of_layers(s, f, it.op) && !selects)
			return false;
		for (size_t i = 0; i < it.op->n_operands; i++)
			if (ir_same_value(it.op->operands[i], index) && !(selects && i == first_index(it.op)))
				return false;
	}
	return true;
}

/* The repeat carries tensors besides states; *dtype: DT_F32, or the type of one that has another. */
static bool carries_tensor(const struct ir_func *f, const struct ir_op *repeat, enum ir_dtype *dtype)
{
	bool carries = false;
	*dtype = DT_F32;
	for (size_t i = 0; i < repeat->n_results; i++) {
		const struct ir_type *t = ir_type_of(f, repeat->results[i]);
		carries = carries || t->kind == IR_TENSOR;
		*dtype = t->kind == IR_TENSOR && t->dtype != DT_F32 ? t->dtype : *dtype;
	}
	return carries;
}

/* Rejects a repeat of layers that cannot be divided, with the reason. *has_sent: a repeat of this function
 * carries tensors through the stages; there may be one. */
static enum tfmc_status check_repeat(const struct stager *s, const struct ir_func *f, const struct ir_op *op,
                                     bool *has_sent)
{
	enum ir_dtype dtype;
	bool carries = carries_tensor(f, op, &dtype);
	for (struct ir_iter it = ir_iter_begin(op->region); it.op != NULL; ir_iter_next(&it)) {
		const struct attrs_weight *a = it.op->attrs;
		if (it.op->code == OP_weight && is_of_layers(s, f, it.op) &&
		    (a->weight->init == NULL || a->weight->encoding != ENC_ROW))
			return reject(s, it.op, "a weight has no values, or is packed");
		if (it.op->code != OP_weight && first_index(it.op) != SIZE_MAX && !is_of_layers(s, f, it.op))
			return reject(s, it.op, "its layers share a state");
	}
	if (((const struct attrs_repeat *)op->attrs)->count != s->n_layers)
		return reject(s, op, "repeats of different length use the same layers");
	if (*has_sent)
		return reject(s, op, "its layers run twice in one call");
	if (dtype != DT_F32)
		return reject(s, op, "its layers pass on values that are not f32");
	if (!index_selects(s, f, op))
		return reject(s, op, "the number of a layer is used for more than its weights and states");
	/* Nothing would send such a value, since nothing needs it, though the next stage receives it. */
	const uint32_t *uses = ir_count_uses(s->p->arena, f);
	for (size_t i = 0; uses != NULL && i < op->n_results; i++)
		if (ir_type_of(f, op->results[i])->kind == IR_TENSOR && uses[op->results[i].id] == 0)
			return reject(s, op, "a value that its layers pass on is not read behind them");
	*has_sent = carries;
	return TFMC_OK;
}

/* Outside of the layers nothing may select one of them, whose weights a stage need not have. */
static enum tfmc_status check_other(const struct stager *s, const struct ir_func *f, const struct ir_op *op)
{
	return is_of_layers(s, f, op) ? reject(s, op, "a layer is used outside of the repeat of the layers")
	                              : TFMC_OK;
}

enum side { BEFORE = 1, AFTER };

/*
 * A state that is written behind the layers is right on the last stage only: nothing in front of them may read it.
 * sides: enum side of the states so far, by name.
 */
static enum tfmc_status check_state(const struct stager *s, const struct ir_func *f, const struct ir_op *op,
                                    enum side side, struct strmap *sides)
{
	if (first_index(op) == SIZE_MAX || op->code == OP_weight)
		return TFMC_OK;
	const char *name = ir_type_of(f, op->operands[0])->state->name;
	uintptr_t other = (uintptr_t)strmap_get(sides, name);
	if (other != 0 && other != side)
		return reject(s, op, "a state is used both in front of and behind its layers");
	strmap_set(sides, name, (void *)(uintptr_t)side);
	return TFMC_OK;
}

/* Rejects uses of the layers outside of their repeat, and states used on both sides of it. `alone`: op with its
 * region, for the iterator. */
static enum tfmc_status check_function(const struct stager *s, const struct ir_func *f, struct strmap *sides)
{
	bool has_sent = false;
	for (size_t i = 0; i < f->body->n_ops; i++) {
		const struct ir_op *op = f->body->ops[i];
		if (is_layers(s, f, op)) {
			TFMC_TRY(check_repeat(s, f, op, &has_sent));
			continue;
		}
		const struct ir_region alone = {.ops = &f->body->ops[i], .n_ops = 1};
		for (struct ir_iter it = ir_iter_begin(&alone); it.op != NULL; ir_iter_next(&it)) {
			TFMC_TRY(check_other(s, f, it.op));
			TFMC_TRY(check_state(s, f, it.op, has_sent ? AFTER : BEFORE, sides));
		}
	}
	return TFMC_OK;
}

/* Exchanges in front of this pass are those of shard, among the ranks of a stage. The attributes of all exchanges
 * begin like those of all_reduce: ranks, tag. */
static enum tfmc_status check_exchanges(const struct stager *s)
{
	for (size_t i = 0; i < s->in->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(s->in->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it)) {
			const struct attrs_all_reduce *a = it.op->attrs;
			if (!ir_op_has(it.op->code, TRAIT_EXCHANGE) ||
			    (a->ranks == s->ranks && it.op->code != OP_send && it.op->code != OP_receive))
				continue;
			diag_error(s->p->cx, it.op->loc.at, DIAG_PIPELINE,
			           "the module is divided among other ranks, or among stages, already");
			return TFMC_INVALID;
		}
	return TFMC_OK;
}

/* All conditions on the module, before anything is written. */
static enum tfmc_status check(const struct stager *s)
{
	struct strmap sides;
	strmap_init(&sides, s->p->arena);
	if (s->n_layers < s->stages)
		return reject(s, s->main,
		              arena_printf(s->p->arena, "its layers repeat %" PRId64 " times", s->n_layers));
	for (size_t i = 0; i < s->in->funcs.n; i++)
		TFMC_TRY(check_function(s, s->in->funcs.items[i], &sides));
	return arena_failed(s->p->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- weights ---- */

/* Layers [*begin, *end) of a stage; the first stages have one more where they are not divided evenly. */
static void layers_of(const struct stager *s, int64_t stage, int64_t *begin, int64_t *end)
{
	int64_t each = s->n_layers / s->stages, more = s->n_layers % s->stages;
	*begin = stage * each + (stage < more ? stage : more);
	*end = *begin + each + (stage < more);
}

/* Ranks 0 .. ranks - 1 are the last stage. */
static int64_t stage_of(const struct stager *s, int64_t rank)
{
	return (rank / s->ranks + s->stages - 1) % s->stages;
}

/* The n layers of e, then zeros up to those of the fullest stage; NULL without memory. */
static const struct ir_wexpr *pad_layers(const struct stager *s, const struct ir_wexpr *e, int64_t n)
{
	struct arena *a = &s->out->arena;
	int64_t dims[IR_RANK_MAX];
	if (e == NULL || n == s->local)
		return e;
	memcpy(dims, e->dims, sizeof(dims));
	dims[0] = s->local - n;
	const struct ir_wexpr *pieces[] = {e, wexpr_full(a, 0, e->rank, dims)};
	return wexpr_concat(a, 0, TFMC_COUNT(pieces), pieces);
}

/* The part of weight expression e that a rank has. */
static const struct ir_wexpr *part_of(const struct stager *s, const struct ir_wexpr *e, bool is_layers,
                                      int64_t rank)
{
	int64_t begin, end;
	if (e->kind == WX_RANKS)
		e = e->args[rank % s->ranks];
	if (!is_layers)
		return e;
	layers_of(s, stage_of(s, rank), &begin, &end);
	return pad_layers(s, wexpr_slice(&s->out->arena, 0, begin, end, e), end - begin);
}

/* The weight with the parts of all ranks; NULL: it is the same on all of them. */
static const struct ir_weight *weight_of_stages(struct stager *s, const struct ir_weight *old)
{
	bool is_layers = strmap_get(&s->names, old->name) != NULL;
	int64_t n = s->ranks * s->stages;
	const struct ir_wexpr **parts = ARENA_ARRAY(s->p->arena, const struct ir_wexpr *, n);
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_weight new = *old;
	if (!is_layers && (old->init == NULL || old->init->kind != WX_RANKS))
		return NULL;
	for (int64_t rank = 0; parts != NULL && rank < n; rank++)
		parts[rank] = part_of(s, old->init, is_layers, rank);
	for (int i = 0; i < old->type->rank; i++)
		dims[i] = is_layers && i == 0 ? ir_dim_const(s->out->dims, s->local)
		                              : ir_import_dim(s->out, old->type->dims[i]);
	new.type = ir_type_tensor(s->out->types, old->type->dtype, old->type->rank, dims);
	new.init = parts != NULL ? wexpr_ranks(&s->out->arena, (size_t)n, parts) : NULL;
	if (new.type == NULL || new.init == NULL)
		return NULL;
	new.format = wexpr_fits_format(new.init, old->format) ? old->format : FORMAT_PLAIN;
	return ir_add_weight(s->out, &new);
}

/* f32 [local], 1 for each layer that a rank has, then zeros. */
static const struct ir_weight *counts_of_layers(struct stager *s)
{
	int64_t n = s->ranks * s->stages;
	const struct ir_wexpr **parts = ARENA_ARRAY(s->p->arena, const struct ir_wexpr *, n);
	const struct ir_dim *dims[] = {ir_dim_const(s->out->dims, s->local)};
	for (int64_t rank = 0; parts != NULL && rank < n; rank++) {
		int64_t begin, end;
		layers_of(s, stage_of(s, rank), &begin, &end);
		parts[rank] = pad_layers(s, wexpr_full(&s->out->arena, 1, 1, (int64_t[]){end - begin}),
		                         end - begin);
	}
	struct ir_weight w = {.name = "stages.layers",
	                      .type = ir_type_tensor(s->out->types, DT_F32, 1, dims),
	                      .loc = s->main->loc};
	w.init = parts != NULL ? wexpr_ranks(&s->out->arena, (size_t)n, parts) : NULL;
	return w.type != NULL && w.init != NULL ? add_weight_renamed(s->p->arena, s->in, s->out, &w) : NULL;
}

/* ---- the module of every rank ---- */

/* new, or `old` where the stage has no layer of this index. */
static struct ir_value drop_missing(struct ir_copy *c, struct ir_value index, struct ir_value old,
                                    struct ir_value new)
{
	const struct ir_weight *counts = counts_of_layers(c->user);
	const struct ir_type *t = irb_type(c->b, new);
	const struct ir_dim *ones[IR_RANK_MAX];
	if (counts == NULL || t == NULL)
		return new;
	struct ir_dims *dims = irb_module(c->b)->dims;
	for (int i = 0; i < t->rank; i++)
		ones[i] = ir_dim_const(dims, 1);
	struct ir_value count = irb_weight_ref(c->b, counts, &index, 1);
	count = irb_reshape_to(c->b, count, t->rank, ones);
	count = irb_broadcast_to(c->b, count, t->rank, t->dims);
	struct ir_value zero = irb_full_of(c->b, 0, DT_F32, t->rank, t->dims);
	struct ir_value has = irb_cmp(c->b, count, zero, &(struct attrs_cmp){.kind = CMP_gt});
	return irb_where(c->b, has, new, old, NULL);
}

/* Copies the repeat with the layers of one stage: receives the carried tensors before it, and sends its results. All
 * processes number exchanges in the same order, so tags agree. */
static void copy_layers(struct ir_copy *c, const struct ir_op *op)
{
	struct stager *s = c->user;
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	struct ir_value *values = ARENA_ARRAY(s->p->arena, struct ir_value, op->n_operands + 1);
	struct ir_value *args = ARENA_ARRAY(s->p->arena, struct ir_value, op->n_operands + 1);
	if (values == NULL || args == NULL)
		return;
	ir_copy_values(c, op->operands, op->n_operands, values);
	for (size_t i = 0; i < op->n_operands; i++)
		if (ir_is_tensor(c->from, op->operands[i]))
			values[i] =
			        irb_receive(c->b, values[i],
			                    &(struct attrs_receive){
			                            .ranks = s->ranks, .tag = s->tag++, .stages = s->stages});
	ir_copy_repeat_begin(c, op, s->local, values, op->n_operands, args);
	ir_copy_region(c, op->region);
	ir_copy_values(c, yield->operands, yield->n_operands, values);
	for (size_t i = 0; i < op->n_operands && s->n_layers % s->stages != 0; i++)
		if (ir_is_tensor(c->from, op->operands[i]))
			values[i] = drop_missing(c, args[0], args[1 + i], values[i]);
	ir_copy_repeat_end(c, op, values, yield->n_operands, args);
	for (size_t i = 0; i < op->n_results; i++)
		if (ir_is_tensor(c->from, op->results[i]))
			ir_copy_set(c, op->results[i],
			            irb_send(c->b, args[i],
			                     &(struct attrs_send){.ranks = s->ranks,
			                                          .tag = s->tag++,
			                                          .stages = s->stages}));
	pass_count(s->p, "divided", 1);
}

/* Hook of ir_copy_region: layers become those of one stage, weights of ranks those of all processes; false: op
 * is cloned. */
static bool copy_op(struct ir_copy *c, const struct ir_op *op)
{
	struct stager *s = c->user;
	struct ir_value index[IR_RANK_MAX];
	if (is_layers(s, c->from, op)) {
		copy_layers(c, op);
		return true;
	}
	const struct ir_weight *w =
	        op->code == OP_weight ? weight_of_stages(s, ((const struct attrs_weight *)op->attrs)->weight)
	                              : NULL;
	if (w == NULL)
		return false;
	ir_copy_values(c, op->operands, op->n_operands, index);
	ir_copy_set(c, op->results[0], irb_weight_ref(c->b, w, index, op->n_operands));
	return true;
}

/* The layer axis of a state follows the batch. */
static enum tfmc_status set_states(struct stager *s)
{
	for (size_t i = 0; i < s->in->states.n; i++) {
		const struct ir_state_decl *d = s->in->states.items[i];
		const struct ir_dim *dims[IR_RANK_MAX];
		if (strmap_get(&s->names, arena_printf(s->p->arena, " %s", d->name)) == NULL)
			continue;
		for (int k = 0; k < d->type->rank; k++)
			dims[k] = k == 1 ? ir_dim_const(s->out->dims, s->local)
			                 : ir_import_dim(s->out, d->type->dims[k]);
		const struct ir_type *t = ir_type_tensor(s->out->types, d->type->dtype, d->type->rank, dims);
		if (t == NULL || !ir_set_state_type(s->out, d->name, t))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}

/* Number of the next exchange of a function: those of shard have lower ones. The attributes of all exchanges begin
 * like those of all_reduce. */
static int64_t next_tag(const struct ir_func *f)
{
	int64_t next = 0;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it)) {
		const struct attrs_all_reduce *a = it.op->attrs;
		if (ir_op_has(it.op->code, TRAIT_EXCHANGE) && a->tag >= next)
			next = a->tag + 1;
	}
	return next;
}

/* Checks, then copies all functions; each process has the layers of its stage. */
enum tfmc_status pass_stages(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct stager s = {.p = p,
	                   .in = in,
	                   .out = out,
	                   .ranks = p->step->settings[SETTING_stages_ranks],
	                   .stages = p->step->settings[SETTING_stages_stages]};
	strmap_init(&s.names, p->arena);
	strmap_init(&s.shared, p->arena);
	TFMC_TRY(check_exchanges(&s));
	TFMC_TRY(find_layers(&s));
	TFMC_TRY(check(&s));
	TFMC_TRY(set_states(&s));
	for (size_t i = 0; i < in->funcs.n; i++) {
		const struct ir_func *f = in->funcs.items[i];
		struct ir_copy c = {irb_begin(out, p->cx, f->name, f->loc), f,
		                    ARENA_ARRAY(p->arena, struct ir_value, f->n_values), copy_op, &s};
		s.tag = next_tag(f);
		if (c.b == NULL || arena_failed(p->arena))
			return TFMC_NO_MEMORY;
		irb_clone_params(c.b, f, c.map);
		ir_copy_region(&c, f->body);
		TFMC_TRY(ir_copy_finish(&c, NULL));
	}
	return TFMC_OK;
}
