/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials of whole models: run alone; then encode, and decode with tokens in
 * pieces, whose lengths and caches stay in the state of the device, against the
 * interpreter on the graph with a state of its own.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "frontend/frontend.h"
#include "tests/opencl/trial_internal.h"

#define OUTPUTS_MAX 16
#define INPUTS_MAX  16

struct talk {
	struct trial *t;
	const struct ir_module *graph;
	struct opencl_host *host;
	const struct weight_source *weights;
	struct interp_state *meaning; /* of the graph */
	struct interp_state *checked; /* of the planned module; used by checked runs */
	int64_t *dims, batch, length;
	struct interp_tensor past; /* lengths of the sequences, data NULL: none yet */
	enum opencl_mode mode;
	int64_t cap;
};

/* ---- inputs ---- */

static void set_dims(struct talk *k)
{
	for (size_t i = 0; i < ir_dims_count(k->graph->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(k->graph->dims, i);
		int64_t v = strcmp(s->name, "B") == 0 ? k->batch : k->length;
		k->dims[i] = v < s->lo ? s->lo : v > s->hi ? s->hi : v;
	}
}

static double value_of(const struct ir_param *p, int64_t i, int64_t max, int piece)
{
	if (p->below > 0)
		return (double)((i * 7 + 3 + piece * 5) % p->below);
	if (p->max)
		return (double)(max - 2 * i > 1 ? max - 2 * i : 1); /* sequences of different lengths */
	return sin((double)(i + piece)) * 0.7;
}

static bool make_input(struct talk *k, const struct ir_func *f, const struct ir_param *p, int piece,
                       struct interp_tensor *out)
{
	int64_t max = 0;
	if (p->role == ROLE_PAST && k->past.data) {
		*out = k->past;
		return true;
	}
	if (!interp_tensor_make(&k->t->arena, ir_type_of(f, p->value), k->dims, out) ||
	    (p->max && !ir_dim_eval(p->max, k->dims, &max)))
		return false;
	for (int64_t i = 0; p->role != ROLE_PAST && i < interp_count(out); i++)
		out->data[i] = ir_round(out->dtype, value_of(p, i, max, piece));
	return true;
}

/* The number of tensors, or INPUTS_MAX when they do not fit. */
static size_t make_inputs(struct talk *k, const struct ir_func *f, int piece, struct interp_tensor *out)
{
	size_t n = 0;
	for (size_t i = 0; i < f->n_params && n < INPUTS_MAX; i++)
		if (ir_type_of(f, f->params[i].value)->kind == IR_TENSOR &&
		    !make_input(k, f, &f->params[i], piece, &out[n++]))
			return INPUTS_MAX;
	return n;
}

/* ---- one call ---- */

static size_t count_outputs(const struct ir_func *f)
{
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	size_t n = 0;
	for (size_t i = 0; i < ret->n_operands; i++)
		n += ir_type_of(f, ret->operands[i])->kind == IR_TENSOR;
	return n;
}

/* The lengths that a function returned, for the next one. */
static void take_past(struct talk *k, const struct ir_func *f, const struct interp_tensor *outputs)
{
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	for (size_t i = 0, n = 0; i < ret->n_operands; i++) {
		if (ir_type_of(f, ret->operands[i])->kind != IR_TENSOR)
			continue;
		if (f->results[i].role == ROLE_PAST)
			k->past = outputs[n];
		n++;
	}
}

static bool call(struct talk *k, const char *name, int piece)
{
	struct interp_tensor in[INPUTS_MAX], want[OUTPUTS_MAX], have[OUTPUTS_MAX];
	const struct ir_func *f = ir_find_func(k->graph, name);
	size_t n = count_outputs(f);
	if (n > OUTPUTS_MAX || make_inputs(k, f, piece, in) == INPUTS_MAX)
		return false;
	const struct interp_args meaning = {.dims = k->dims,
	                                    .inputs = in,
	                                    .outputs = want,
	                                    .state = k->meaning,
	                                    .weights = k->weights,
	                                    .arena = &k->t->arena};
	const struct opencl_call on = {.function = name,
	                               .dims = k->dims,
	                               .inputs = in,
	                               .outputs = have,
	                               .arena = &k->t->arena,
	                               .mode = k->mode,
	                               .cap = k->cap,
	                               .state = k->checked};
	if (interp_run(&k->t->cx, k->graph, f, &meaning) != TFMC_OK ||
	    opencl_run_function(k->host, &on) != TFMC_OK)
		return false;
	take_past(k, f, want);
	return trial_outputs_agree(k->t, k->graph, name, have, want, n);
}

/* ---- a conversation ---- */

/* The symbol of the tokens' axis 1 in decode, or -1. */
static int tokens_dim(const struct talk *k, const struct ir_func *f)
{
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_type *t = ir_type_of(f, f->params[i].value);
		for (size_t s = 0; t->kind == IR_TENSOR && t->rank == 2 && s < ir_dims_count(k->graph->dims);
		     s++)
			if (t->dims[1] == ir_dim_sym(k->graph->dims, ir_dims_sym(k->graph->dims, s)->name))
				return (int)s;
	}
	return -1;
}

static bool decode(struct talk *k)
{
	static const int64_t pieces[] = {3, 1, 2};
	int sym = tokens_dim(k, ir_find_func(k->graph, "decode"));
	if (sym < 0)
		return false;
	for (size_t i = 0; i < TFMC_COUNT(pieces); i++) {
		k->dims[sym] = pieces[i];
		if (!call(k, "decode", (int)i))
			return false;
	}
	return true;
}

static bool converse(struct talk *k, enum opencl_mode mode, int64_t cap)
{
	k->mode = mode;
	k->cap = cap;
	k->past.data = NULL;
	k->meaning = interp_state_create(&k->t->arena, k->graph, k->batch);
	k->checked = interp_state_create(&k->t->arena, k->graph, k->batch);
	opencl_host_reset(k->host);
	set_dims(k);
	if (ir_find_func(k->graph, "run") && !call(k, "run", 0))
		return false;
	if (ir_find_func(k->graph, "encode") && !call(k, "encode", 0))
		return false;
	return !ir_find_func(k->graph, "decode") || decode(k);
}

static enum trial_result talk_on(struct talk *k, const struct ir_module *planned)
{
	static const int64_t caps[] = {1, 3, 64};
	k->dims = ARENA_ARRAY(&k->t->arena, int64_t, ir_dims_count(k->graph->dims) + 1);
	k->host = opencl_host_open(&k->t->cx, k->t->device, planned, k->t->target, k->weights, k->batch);
	if (!k->host || !k->dims)
		return trial_refused(k->t);
	bool ok = converse(k, OPENCL_CHECKED, k->t->cap);
	for (size_t i = 0; ok && !k->t->only_checked && i < TFMC_COUNT(caps); i++)
		ok = converse(k, OPENCL_WHOLE, caps[i]);
	opencl_host_close(k->host);
	return ok ? TRIAL_PASSED : TRIAL_FAILED;
}

static enum trial_result try_model(struct talk *k)
{
	struct ir_module *planned = NULL;
	enum trial_result result = TRIAL_FAILED;
	if (trial_plan(k->t, k->graph, &planned) == TFMC_OK)
		result = talk_on(k, planned);
	ir_module_destroy(planned);
	return result;
}

enum trial_result trial_model_text(struct trial *t, const char *text, int64_t batch, int64_t length)
{
	struct ir_module *m = trial_read(t, "model.tir", text);
	struct talk k = {.t = t, .graph = m, .batch = batch, .length = length};
	enum trial_result result = m ? try_model(&k) : TRIAL_FAILED;
	ir_module_destroy(m);
	return result;
}

enum trial_result trial_model_file(struct trial *t, const char *path, int64_t batch, int64_t length)
{
	static const struct frontend_options options;
	struct frontend_model *model = NULL;
	struct ir_module *m = NULL;
	enum trial_result result = TRIAL_FAILED;
	if (frontend_load(&t->cx, path, &options, &model) == TFMC_OK &&
	    frontend_lower(model, &m) == TFMC_OK) {
		struct weight_source weights = frontend_weights(model);
		struct talk k = {.t = t, .graph = m, .weights = &weights, .batch = batch, .length = length};
		result = try_model(&k);
	}
	ir_module_destroy(m);
	frontend_destroy(model);
	return result;
}
