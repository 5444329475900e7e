/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode: gives weights and keys the packed layout that the kernels read.
 *
 * Requires   merge-linear (the final weights), if it runs at all.
 * Ensures    every f32 weight that is operand w of a linear or expert_linear is packed (#panel16), also in gathers
 *            of its rows (a tied embedding is one weight). If another op reads it as rows, it keeps its row-major
 *            entry and a second weight NAME.panel16 is added. A state of f32, f16 or bf16 whose slices are keys of
 *            attention and nothing else, in all functions, is #panel16: its columns are positions. A view of iota is
 *            an iota of its shape, which its readers compute where they need it.
 * Example    weight @up.w : f32[128,32]   %y = linear %x, @up.w
 *        ->  weight @up.w : f32[128,32] #panel16
 * Skips      other element types, and weights and slices behind a view: those linears become plain loops, those
 *            keys are transposed by the kernel.
 */
#include "ir/core/view.h"
#include "passes/graph/concat_weights.h"

/* Sets of weight names: read packed by linears; read as rows by another op. The values are non-NULL. */
struct encoder {
	struct strmap linears, row_uses;
};

/* The weight of a linear that can be packed, or NULL: f32, stored by rows, with f32 rows of x and an f32 bias, as
 * the kernels of packed weights have. */
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

/* The state that v is a slice of (the first result of state_append and state_read), or NULL. */
static const struct ir_state_decl *state_of_slice(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = ir_def(f, v);
	bool uses_state = op != NULL && (op->code == OP_state_append || op->code == OP_state_read) &&
	                  ir_same_value(op->results[0], v);
	return uses_state ? ir_type_of(f, op->operands[0])->state : NULL;
}

/* Adds the states that op reads to one of two sets of names: slices [B,K,T,E] that are keys (operand 1 of
 * attention), or others. Only keys of attention are read in panels, so a state in both sets stays row-major. */
static void note_state_readers(const struct ir_func *f, const struct ir_op *op, struct strmap *keys,
                               struct strmap *others)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_state_decl *s = state_of_slice(f, op->operands[i]);
		if (s == NULL)
			continue;
		bool is_key = op->code == OP_attention && i == 1 && ir_dtype_allows_panels(s->type->dtype) &&
		              ir_type_of(f, op->operands[i])->rank == 4;
		strmap_set(is_key ? keys : others, s->name, keys);
	}
}

/* Packs the states of `out` (those of `in`) whose slices are keys only. */
static void encode_states(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct strmap keys, others;
	strmap_init(&keys, p->arena);
	strmap_init(&others, p->arena);
	for (size_t i = 0; i < in->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(in->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			note_state_readers(in->funcs.items[i], it.op, &keys, &others);
	for (size_t i = 0; i < in->states.n; i++) {
		const char *name = in->states.items[i]->name;
		if (strmap_has(&keys, name) && !strmap_has(&others, name) &&
		    ir_set_state_encoding(out, name, ENC_PANEL16))
			pass_count(p, "states", 1);
	}
}

/* Adds the weights that op reads to the sets of e. A gather reads rows of either layout, so it is in neither. */
static void note_weight_readers(const struct ir_func *f, const struct ir_op *op, struct encoder *e)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_weight *w = ir_weight_of(f, op->operands[i]);
		if (w != NULL && i == 1 && linear_weight(f, op) != NULL)
			strmap_set(&e->linears, w->name, e);
		else if (w != NULL && op->code != OP_gather)
			strmap_set(&e->row_uses, w->name, e);
	}
}

/* The weight that op reads packed, or NULL; *at: index of the operand. A gather reads the packed one if linears
 * do and no op needs rows; a quantized weight also without linears, since quantized formats are stored in
 * panels only. */
static const struct ir_weight *packed_operand(const struct encoder *e, const struct ir_func *f,
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

/* op is a view whose elements are iota along one axis, from a constant on: *out, without dims. Axes of size 1 or
 * stride 0 (broadcasts) do not count. False: a view of another value, of several axes, or with another stride. */
static bool find_index(struct rebuild *r, const struct ir_op *op, struct attrs_iota *out)
{
	struct ir_view view;
	int64_t offset;
	if (!ir_op_has(op->code, TRAIT_VIEW) || !ir_view_resolve(r->in, r->f, op->results[0], &view))
		return false;
	const struct ir_op *base = ir_def_as(r->f, view.base, OP_iota);
	const struct attrs_iota *iota = base != NULL ? base->attrs : NULL;
	if (iota == NULL || iota->dims.n != 1 || !ir_dim_is_const(view.offset, &offset))
		return false;
	int n_axes = 0;
	*out = (struct attrs_iota){.start = iota->start + offset};
	for (int i = 0; i < view.rank; i++) {
		if (ir_dim_equals(view.size[i], 1) || ir_dim_equals(view.stride[i], 0))
			continue;
		if (!ir_dim_equals(view.stride[i], 1))
			return false;
		out->axis = i;
		n_axes++;
	}
	return n_axes == 1;
}

/* Replaces the view that find_index has matched by an iota of its shape. */
static void emit_index(struct rebuild *r, const struct ir_op *op, const struct attrs_iota *index)
{
	const struct ir_type *t = ir_type_of(r->f, op->results[0]);
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < t->rank; i++)
		dims[i] = ir_import_dim(r->out, t->dims[i]);
	const struct attrs_iota iota = {
	        .dims = {dims, (size_t)t->rank}, .axis = index->axis, .start = index->start};
	rebuild_set(r, op->results[0], irb_iota(r->b, &iota));
	pass_count(r->p, "indices", 1);
}

/* Matches ops with an operand that is read packed; needs the other operands and the indices of the weight. */
static bool match(struct rebuild *r, const struct ir_op *op)
{
	struct attrs_iota index;
	size_t w;
	if (find_index(r, op, &index))
		return true;
	if (packed_operand(r->rewrite->user, r->f, op, &w) == NULL)
		return false;
	const struct ir_op *ref = ir_def(r->f, op->operands[w]);
	for (size_t i = 0; i < op->n_operands; i++)
		if (i != w)
			rebuild_need(r, op->operands[i]);
	for (size_t i = 0; i < ref->n_operands; i++)
		rebuild_need(r, ref->operands[i]);
	return true;
}

/* Adds the packed weight to r->out: w with another encoding, or if ops read w as rows, a second weight
 * NAME.panel16. NULL: another weight has its name, or no memory. */
static const struct ir_weight *add_packed(struct rebuild *r, const struct ir_weight *w)
{
	const struct encoder *e = r->rewrite->user;
	struct ir_weight copy = *w;
	copy.encoding = ENC_PANEL16;
	copy.type = ir_import_type(r->out, w->type);
	if (!strmap_has(&e->row_uses, w->name))
		return ir_add_weight(r->out, &copy);
	copy.name = arena_printf(r->p->arena, "%s.panel16", w->name);
	return add_weight_renamed(r->p->arena, r->in, r->out, &copy);
}

/* Rebuilds op with a reference to the packed weight, at the same indices. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	struct attrs_iota index;
	size_t at_weight;
	if (find_index(r, op, &index)) {
		emit_index(r, op, &index);
		return;
	}
	const struct ir_weight *w = add_packed(r, packed_operand(r->rewrite->user, r->f, op, &at_weight));
	const struct ir_op *ref = ir_def(r->f, op->operands[at_weight]);
	struct ir_value at[IR_RANK_MAX];

	if (w == NULL) {
		pass_internal_error(r->p, op->loc, "a packed weight has two meanings");
		return;
	}
	for (size_t i = 0; i < ref->n_operands; i++)
		at[i] = rebuild_get(r, ref->operands[i]);
	struct ir_value packed_ref = irb_weight_ref(r->b, w, at, ref->n_operands);
	struct ir_value in[4] = {IR_NO_VALUE}; /* x w b, x w ids b, or table ids */
	for (size_t i = 0; i < op->n_operands && i < TFMC_COUNT(in); i++)
		in[i] = i == at_weight ? packed_ref : rebuild_get(r, op->operands[i]);
	rebuild_set(r, op->results[0], irb_op1(r->b, op->code, in, op->n_operands, op->attrs));
	pass_count(r->p, op->code == OP_gather ? "gathers" : "linears", 1);
}

/* Finds first what reads which weights in all functions, since a weight has one layout for all. Quantized formats
 * exist in panels only: one that an op reads as rows becomes f32, with a warning. */
enum tfmc_status pass_encode(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct encoder e;
	const struct rewrite rewrite = {.match = match, .emit = emit, .user = &e};
	size_t errors = p->cx->n_errors; /* emit() reports its error, and cannot return it */

	strmap_init(&e.linears, p->arena);
	strmap_init(&e.row_uses, p->arena);
	for (size_t i = 0; i < in->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(in->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it))
			note_weight_readers(in->funcs.items[i], it.op, &e);
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
