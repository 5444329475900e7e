/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cached decoders: inputs with the keys and values of the tokens before (past), to which each layer appends its own,
 * and outputs with both, become the state of a model that generates. It is whole if
 *
 *   - each past is the first operand of one Concat along the sequence, or an operand of attention of ONNX Runtime,
 *   - only causal attention reads it (sdpa.c), for every size of the past, which is a dim of its own here,
 *   - the other inputs are ids, positions, and masks (ones: tokens of a state are all real),
 *   - one output is left, the logits.
 *
 * Whether it is shows when all nodes are read: then nothing that the logits need has the dim of the past, or one of the
 * inputs that are gone. Who says bounds for the size of the past gets the inputs and outputs of the file.
 * In im->past, `appends` has the inputs and their nodes, `presents` the outputs of such nodes, `size` the name of the
 * size of the past.
 */
#include "frontend/onnx/import.h"

#include <string.h>

#define PAST_MAX (1 << 20) /* tokens, for the bounds of the dim */

/* Notes that the node appends to the past, an input of the graph (NULL: it is none), which it reads as `name`. A past
   whose size is a number of the file is no cache that grows. */
static void add_past(struct importer *im, const struct onnx_value *past, const char *name,
                     struct onnx_node *node)
{
	if (past == NULL || past->sizes[2].value > 0)
		return;
	strmap_set(&im->past.appends, past->name, node);
	strmap_set(&im->past.appends, name, node);
	im->past.size = import_size_name(im, past, 2);
}

/* The index of the operand with the keys of the past, which the values follow, of attention of ONNX Runtime; 0: the
   node is none. */
static size_t fused_past(const struct onnx_node *node)
{
	size_t i = strcmp(node->op, "MultiHeadAttention") == 0    ? 6
	           : strcmp(node->op, "GroupQueryAttention") == 0 ? 3
	                                                          : 0;
	return node->inputs.n > i + 1 && strcmp(node->domain, "com.microsoft") == 0 ? i : 0;
}

/* Finds inputs [B, K, P, E] that a Concat along axis 2, or attention of ONNX Runtime, appends to, also behind an
   Identity or a Concat of one operand. */
void past_find(struct importer *im)
{
	struct strmap inputs;
	strmap_init(&inputs, im->a);
	for (size_t i = 0; i < im->onnx->graph.inputs.n; i++)
		if (im->onnx->graph.inputs.items[i].has_shape && im->onnx->graph.inputs.items[i].rank == 4)
			strmap_set(&inputs, im->onnx->graph.inputs.items[i].name,
			           &im->onnx->graph.inputs.items[i]);
	for (size_t i = 0; i < im->onnx->graph.nodes.n; i++) {
		struct onnx_node *node = &im->onnx->graph.nodes.items[i];
		const struct onnx_attribute *axis = onnx_attribute(node, "axis");
		const char *const *in = node->inputs.items;
		if (node->inputs.n == 1 && node->outputs.n == 1 && strmap_has(&inputs, in[0]) &&
		    (strcmp(node->op, "Concat") == 0 || strcmp(node->op, "Identity") == 0 ||
		     strcmp(node->op, "Cast") == 0))
			strmap_set(&inputs, node->outputs.items[0], strmap_get(&inputs, in[0]));
		if (strcmp(node->op, "Concat") == 0 && node->inputs.n == 2 && axis != NULL &&
		    (axis->i == 2 || axis->i == -2))
			add_past(im, strmap_get(&inputs, in[0]), in[0], node);
		for (size_t k = 0, at = fused_past(node); at > 0 && k < 2; k++) {
			add_past(im, strmap_get(&inputs, in[at + k]), in[at + k], node);
			if (node->outputs.n > k + 1)
				strmap_set(&im->past.presents, node->outputs.items[k + 1], node);
		}
	}
}

/* Declares the size as a dim 0..PAST_MAX of the inference, in which both the past and the tokens vary; the model file
   does not have it. */
bool past_declare(struct importer *im)
{
	im->past.is_state = true;
	strmap_set(&im->names, im->past.size, im);
	return ir_dims_declare(im->m->scope.dims, im->past.size, 0, PAST_MAX) ||
	       import_refuse(im, "a size is called '%s'", im->past.size);
}

/* Inputs of two axes are told by their names, as exporters call them: nothing else in a graph says that an input is a
   mask or has positions. */
enum past_role past_role(const struct importer *im, const struct onnx_value *v)
{
	bool is_table = im->past.is_state && v->has_shape && v->rank == 2;
	if (im->past.is_state && strmap_has(&im->past.appends, v->name))
		return PAST_KEYS;
	if (is_table && strstr(v->name, "mask") != NULL)
		return PAST_MASK;
	return is_table && strstr(v->name, "position") != NULL ? PAST_POSITIONS : PAST_NONE;
}

/* With `past` and a value that is an Identity of, or itself, the Concat of a past and new keys (values), the new
   ones, and the past in *past; an output of attention of ONNX Runtime has both and is its own name. */
const char *import_past(const struct importer *im, const char *name, const char **past)
{
	const struct onnx_node *node = strmap_get(&im->makers, name);
	if (im->past.is_state && past != NULL && strmap_has(&im->past.presents, name)) {
		*past = name;
		return name;
	}
	if (!im->past.is_state || past == NULL || node == NULL || node->inputs.n != 2 ||
	    strmap_get(&im->past.appends, node->inputs.items[0]) != node)
		return name;
	*past = node->inputs.items[0];
	return node->inputs.items[1];
}

/* The only input [B, S] of checked ids that is not called positions: the tokens. NULL: none or several. */
static const struct frontend_input *find_tokens(const struct importer *im)
{
	const struct frontend_input *tokens = NULL;
	for (size_t i = 0; i < im->m->inputs.n; i++) {
		const struct frontend_input *in = &im->m->inputs.items[i];
		if (in->below > 0 && in->rank == 2 && strstr(in->name, "position") == NULL && tokens != NULL)
			return NULL;
		if (in->below > 0 && in->rank == 2 && strstr(in->name, "position") == NULL)
			tokens = in;
	}
	return tokens;
}

/* The name of positions(tokens), made once; NULL: there are no tokens. The inference binds the name to iota + past,
   as the file computes them, so that causal masks and rotary positions of the file compare equal. */
static const char *positions_name(struct importer *im)
{
	const struct frontend_input *tokens = find_tokens(im);
	if (tokens == NULL || im->past.positions != NULL)
		return im->past.positions;
	im->past.positions = import_statement(im, "positions", "positions(%s)", tokens->name);
	const struct ir_type *t = import_type(im, im->past.positions);
	if (t == NULL)
		return NULL;
	const char *counted =
	        import_statement(im, "counted", "broadcast(iota([%s]) + %s, %s)", dim_text(im, t->dims[1]),
	                         im->past.size, dims_text(im, 2, t->dims));
	const struct lowered *v = im->failed ? NULL : lower_find(im->lw, counted);
	if (v != NULL)
		lower_bind(im->lw, im->past.positions, v);
	return im->past.positions;
}

const char *past_positions_name(struct importer *im, const struct ir_dim *first, const struct ir_dim *batch,
                                const struct ir_dim *tokens)
{
	const char *name = first == ir_dim_sym(im->dims, im->past.size) ? positions_name(im) : NULL;
	const struct ir_type *t = name != NULL ? import_type(im, name) : NULL;
	return t != NULL && t->dims[0] == batch && t->dims[1] == tokens ? name : NULL;
}

/* The positions as an operand that import_ids() reads as they are (`ids`), of the type that the file has. */
struct operand *past_positions(struct importer *im, const struct operand *input)
{
	const char *name = positions_name(im);
	struct frontend_input *at = ARENA_NEW(im->a, struct frontend_input);
	struct operand *v = ARENA_NEW(im->a, struct operand);
	if (name == NULL || at == NULL || v == NULL)
		return NULL;
	at->name = name;
	*v = *input;
	v->name = input->dtype == DT_I32 ? at->name : NULL;
	v->ids = at;
	return v;
}

/* Why the past cannot be a state; NULL: it can. Live names are those that the logits need. */
static const char *find_obstacle(struct importer *im, size_t n_outputs)
{
	const struct frontend_input *tokens = find_tokens(im);
	if (tokens == NULL)
		return "there is not one input of ids";
	for (int i = 0; i < 2; i++)
		if (ir_dim_is_const(tokens->dims[i], NULL))
			return import_text(im, "axis %d of '%s' has one size; 1..1 is a size with bounds", i,
			                   tokens->name);
	if (n_outputs != 1)
		return import_text(im, "beside it there are %zu outputs", n_outputs);
	if (strmap_has(&im->live, im->past.size))
		return import_text(im, "a value depends on '%s'", im->past.size);
	for (size_t i = 0; i < im->m->inputs.n; i++) {
		const char *name = im->m->inputs.items[i].name;
		if (&im->m->inputs.items[i] != tokens && strmap_has(&im->live, name))
			return import_text(im, "a value depends on '%s'", name);
	}
	return im->past.n_caches > 0 ? NULL : "no causal attention reads it";
}

/* Writes `generate` if the past has become state; max_len is the bound of the tokens' axis, its default, too. With an
   obstacle, reports that the size of the past has no bounds: with bounds it stays an input of the file. */
bool past_write(struct importer *im, const char *logits, size_t n_outputs, struct buf *out)
{
	const char *why = im->past.is_state && !im->failed ? find_obstacle(im, n_outputs) : NULL;
	const struct frontend_input *tokens = find_tokens(im);
	if (why != NULL) {
		diag_error(im->cx, im->loc, DIAG_DIM_BOUND, "the size '%s' of the past has no bounds",
		           im->past.size);
		diag_note(im->cx, LOC_NONE, "--dim=%s=1..512 says them; the past does not become state: %s",
		          im->past.size, why);
		im->failed = true;
	}
	if (im->past.is_state && !im->failed)
		buf_printf(out, "generate: {kind: causal, tokens: %s, logits: %s, max_len: %lld}\n",
		           tokens->name, logits, (long long)ir_dim_hi(im->m->scope.dims, tokens->dims[1]));
	return !im->failed;
}
