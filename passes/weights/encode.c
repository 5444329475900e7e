/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode: weights and keys get the layout that the kernels read.
 *
 * Requires   merge-linear (the final weights), when it runs at all.
 * Ensures    every f32 weight that is `w` of a linear or expert_linear is #panel16 there, and in gathers of its
 *            rows too (a tied embedding is one weight). One that something else reads as well keeps its row-major
 *            entry beside a second one named NAME.panel16. Every state of f32, f16 or bf16 whose slices are keys
 *            of attention and nothing else, in all functions, is #panel16: positions are columns.
 * Example    weight @up.w : f32[128,32]   %y = linear %x, @up.w
 *        ->  weight @up.w : f32[128,32] #panel16
 * Refuses    other element types, and weights and slices after a view: their linears become plain loops, such
 *            keys are transposed by the kernel.
 */
#include "passes/weights/join_weights.h"

/* By name: weights that linears read in panels, that something reads which needs rows; non-NULL. */
struct encoder {
	struct strmap linears, row_uses;
};

static const struct ir_weight *linear_weight(const struct ir_func *f, const struct ir_op *op)
{
	bool experts = op->code == OP_expert_linear;
	const struct ir_weight *weight =
	        experts || op->code == OP_linear ? ir_weight_of(f, op->operands[1]) : NULL;
	if (weight == NULL)
		return NULL;
	struct ir_value bias = op->operands[experts ? 3 : 2];
	bool f32 = weight->type->dtype == DT_F32 && ir_type_of(f, op->operands[0])->dtype == DT_F32 &&
	           (bias.id == 0 || ir_type_of(f, bias)->dtype == DT_F32);
	return f32 && weight->encoding == ENC_ROW ? weight : NULL;
}

/* The state whose slice v is, or NULL. */
static const struct ir_state_decl *slice_of(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = ir_def(f, v);
	bool gives = op != NULL && (op->code == OP_state_append || op->code == OP_state_read) &&
	             ir_same_value(op->results[0], v);
	return gives ? ir_type_of(f, op->operands[0])->state : NULL;
}

/* keys, others: by name, states whose slices are keys, are something else; non-NULL. */
static void mark_slices(const struct ir_func *f, const struct ir_op *op, struct strmap *keys,
                        struct strmap *others)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_state_decl *s = slice_of(f, op->operands[i]);
		if (s == NULL)
			continue;
		bool is_key = op->code == OP_attention && i == 1 && ir_dtype_allows_panels(s->type->dtype) &&
		              ir_type_of(f, op->operands[i])->rank == 4;
		strmap_set(is_key ? keys : others, s->name, keys);
	}
}

/* States of `out`, which are those of `in`. */
static void encode_states(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct strmap keys, others;
	strmap_init(&keys, p->arena);
	strmap_init(&others, p->arena);
	for (size_t i = 0; i < in->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(in->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			mark_slices(in->funcs.items[i], it.op, &keys, &others);
	for (size_t i = 0; i < in->states.n; i++) {
		const char *name = in->states.items[i]->name;
		if (strmap_has(&keys, name) && !strmap_has(&others, name) &&
		    ir_set_state_encoding(out, name, ENC_PANEL16))
			pass_count(p, "states", 1);
	}
}

static void mark_weights(const struct ir_func *f, const struct ir_op *op, struct encoder *e)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_weight *w = ir_weight_of(f, op->operands[i]);
		if (w != NULL && i == 1 && linear_weight(f, op) != NULL)
			strmap_set(&e->linears, w->name, e);
		else if (w != NULL && op->code != OP_gather)
			strmap_set(&e->row_uses, w->name, e);
	}
}

/* The weight that op reads in panels, *at: its operand; or NULL. */
static const struct ir_weight *panel_weight(const struct encoder *e, const struct ir_func *f,
                                            const struct ir_op *op, size_t *at)
{
	*at = op->code == OP_gather ? 0 : 1;
	if (op->code != OP_gather)
		return linear_weight(f, op);
	const struct ir_weight *w = ir_weight_of(f, op->operands[0]);
	bool in_panels = w != NULL && !strmap_has(&e->row_uses, w->name) &&
	                 (strmap_has(&e->linears, w->name) || ir_format_is_quantized(w->format));
	return in_panels && w->encoding == ENC_ROW ? w : NULL;
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	size_t w;
	if (panel_weight(r->rewrite->user, r->f, op, &w) == NULL)
		return false;
	const struct ir_op *ref = ir_def(r->f, op->operands[w]);
	for (size_t i = 0; i < op->n_operands; i++)
		if (i != w)
			rebuild_need(r, op->operands[i]);
	for (size_t i = 0; i < ref->n_operands; i++)
		rebuild_need(r, ref->operands[i]);
	return true;
}

static const struct ir_weight *packed(struct rebuild *r, const struct ir_weight *w)
{
	const struct encoder *e = r->rewrite->user;
	struct ir_weight copy = *w;
	copy.encoding = ENC_PANEL16;
	copy.type = ir_import_type(r->out, w->type);
	if (!strmap_has(&e->row_uses, w->name))
		return ir_add_weight(r->out, &copy);
	copy.name = arena_printf(r->p->arena, "%s.panel16", w->name);
	return join_add_weight(r, &copy);
}

static void emit(struct rebuild *r, const struct ir_op *op)
{
	size_t at_weight;
	const struct ir_weight *w = packed(r, panel_weight(r->rewrite->user, r->f, op, &at_weight));
	const struct ir_op *ref = ir_def(r->f, op->operands[at_weight]);
	struct ir_value at[IR_RANK_MAX];

	if (w == NULL) {
		pass_internal(r->p, op->loc, "a packed weight has two meanings");
		return;
	}
	for (size_t i = 0; i < ref->n_operands; i++)
		at[i] = rebuild_get(r, ref->operands[i]);
	struct ir_value packed_ref = irb_weight_ref(r->b, w, at, ref->n_operands);
	struct ir_value in[4] = {IR_NO_VALUE};
	for (size_t i = 0; i < op->n_operands && i < TFMC_COUNT(in); i++)
		in[i] = i == at_weight ? packed_ref : rebuild_get(r, op->operands[i]);
	rebuild_set(r, op->results[0], irb_op1(r->b, op->code, in, op->n_operands, op->attrs));
	pass_count(r->p, op->code == OP_gather ? "gathers" : "linears", 1);
}

enum tfmc_status pass_encode(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct encoder e;
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &e};
	size_t errors = p->cx->n_errors;

	strmap_init(&e.linears, p->arena);
	strmap_init(&e.row_uses, p->arena);
	for (size_t i = 0; i < in->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(in->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			mark_weights(in->funcs.items[i], it.op, &e);
	for (size_t i = 0; i < in->weights.n; i++) {
		const struct ir_weight *w = in->weights.items[i];
		if (ir_format_is_quantized(w->format) && strmap_has(&e.row_uses, w->name))
			diag_warning(p->cx, w->loc.at, DIAG_UNSUPPORTED,
			             "the weight '%s' of %s becomes f32: more reads it than products and "
			             "lookups of rows",
			             w->name, ir_format(w->format)->name);
	}
	encode_states(p, in, out);
	TFMC_TRY(rebuild_module(p, in, out, &rewrite, NULL));
	return p->cx->n_errors > errors ? TFMC_INTERNAL : TFMC_OK;
}
