/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole models: the trained example and the golden models. `run` at several sizes;
 * with a state also encode, prefill and step one after another, as generation calls
 * them. The interpreter runs the module the frontend made; its lengths are kept here.
 */
#include <stdio.h>
#include <string.h>

#include "tests/matrix/files.h"
#include "tests/matrix/matrix.h"

struct example {
	const char *row, *path;
};
static const struct example examples[] = {
        {"examples/dates", "examples/dates/model.yaml"},
        {"examples/names", "examples/names/model.yaml"},
        {"torch_encoder", "tests/golden/torch_encoder/model.yaml"},
        {"torch_decoder", "tests/golden/torch_decoder/model.yaml"},
        {"torch_seq2seq", "tests/golden/torch_seq2seq/model.yaml"},
        {"torch_seq2seq_prenorm", "tests/golden/torch_seq2seq_prenorm/model.yaml"},
};

struct walk {
	struct suite *s;
	size_t batch;
	const char *row;
	struct interp_state *state;
	struct interp_tensor past; /* i32 [B], data NULL: all 0 */
};

/* Symbols get the sizes in order, within their bounds. */
static int64_t *pick_dims(struct walk *w, const int64_t *want)
{
	const struct ir_dims *t = w->s->batches.items[w->batch].graph->dims;
	int64_t *dims = ARENA_ARRAY(w->s->arena, int64_t, ir_dims_count(t) + 1);
	for (size_t i = 0; dims && i < ir_dims_count(t); i++) {
		const struct ir_dim_sym *sym = ir_dims_sym(t, i);
		int64_t v = want[i < 2 ? i : 2];
		dims[i] = v < sym->lo ? sym->lo : v > sym->hi ? sym->hi : v;
	}
	return dims;
}

/* The lengths that the state has take the place of what was drawn. */
static bool set_past(struct walk *w, struct matrix_case *c)
{
	for (size_t i = 0; i < c->n_inputs; i++) {
		if (input_is_caller(c->f, i))
			continue;
		for (int64_t k = 0; k < interp_count(&c->inputs[i]); k++)
			c->inputs[i].data[k] = w->past.data ? w->past.data[k] : 0;
	}
	return true;
}

static bool interpret(struct walk *w, struct matrix_case *c)
{
	const struct batch *b = &w->s->batches.items[w->batch];
	struct interp_args args = {.dims = c->dims,
	                           .inputs = c->inputs,
	                           .outputs = c->outputs,
	                           .state = w->state,
	                           .weights = &b->weights,
	                           .arena = w->s->arena};
	if (interp_run(w->s->cx, b->graph, c->f, &args) != TFMC_OK)
		return false;
	for (size_t i = 0; i < c->n_outputs; i++)
		if (!output_is_caller(c->f, i))
			w->past = c->outputs[i];
	return true;
}

static bool add_call(struct walk *w, const char *function, const char *entry, bool reset, const int64_t *want,
                     uint64_t seed)
{
	const struct ir_module *m = w->s->batches.items[w->batch].graph;
	const struct ir_func *f = ir_find_func(m, function);
	const int64_t *dims = pick_dims(w, want);
	struct matrix_case *c = dims ? suite_add_call(w->s, w->batch, f, dims, seed, FILL_RANDOM) : NULL;
	if (!c)
		return false;
	c->row = w->row;
	c->entry = entry;
	c->reset = reset;
	c->what = arena_printf(w->s->arena, "%s as %s", c->what, entry);
	if (reset) {
		w->state = interp_state_create(w->s->arena, m, MATRIX_SEQUENCES);
		w->past.data = NULL;
	}
	set_past(w, c);
	return interpret(w, c);
}

/* Symbols in the models' order: B, then lengths. */
static bool add_calls(struct walk *w)
{
	static const int64_t shapes[][3] = {{1, 1, 1}, {2, 5, 4}, {3, 7, 6}, {1, 11, 9}};
	static const int64_t first[3] = {2, 5, 3}, one[3] = {2, 5, 1};
	const struct ir_module *m = w->s->batches.items[w->batch].graph;
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++)
		if (!add_call(w, "run", "run", true, shapes[i], i + 1))
			return false;
	bool encodes = ir_find_func(m, "encode") != NULL;
	if (!ir_find_func(m, "decode"))
		return true;
	if (encodes && !add_call(w, "encode", "encode", true, first, 1))
		return false;
	/* A causal model has one length only: the first of the sizes after B. */
	const int64_t *prompt = encodes ? first : (const int64_t[]){2, 3, 3};
	const int64_t *token = encodes ? one : (const int64_t[]){2, 1, 1};
	bool ok = add_call(w, "decode", "prefill", !encodes, prompt, 2);
	for (uint64_t i = 0; ok && i < 3; i++)
		ok = add_call(w, "decode", "step", false, token, 3 + i);
	return ok;
}

static bool load(struct suite *s, const struct example *e, struct batch *b)
{
	const struct frontend_options options = {0};
	const char *path = arena_printf(s->arena, "%s/%s", s->source, e->path);
	if (frontend_load(s->cx, path, &options, &b->model) != TFMC_OK ||
	    frontend_lower(b->model, &b->graph) != TFMC_OK)
		return false;
	b->weights = frontend_weights(b->model);
	b->name = frontend_name(b->model);
	return true;
}

bool suite_add_examples(struct suite *s)
{
	for (size_t i = 0; i < TFMC_COUNT(examples); i++) {
		struct batch *b = ARENA_PUSH(s->arena, &s->batches);
		if (!b)
			return false;
		*b = (struct batch){.pipeline = "O2", .few = true, .turn = i};
		if (!load(s, &examples[i], b))
			return false;
		struct walk w = {.s = s, .batch = s->batches.n - 1, .row = examples[i].row};
		if (!add_calls(&w))
			return false;
	}
	return true;
}
