/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the functions of a module: run, and for generating models encode, decode and score; and type inference
 * of statements.
 * An entry function describes one of them.
 */
#include "frontend/lower/lower.h"

#include <stdlib.h>
#include <string.h>

struct entry_function {
	const char *name;
	enum lower_mode mode;
	struct graph_body body;
	const size_t *outputs;     /* indices of the model outputs it returns */
	const char *const *values; /* their graph names */
	size_t n_outputs;
	bool tokens, others; /* which inputs are parameters: tokens and their lengths; all others */
	bool scores;         /* decode that returns log p of given tokens */
	struct loc loc;
};

/* True if an input is a parameter of the function: encode and decode of a seq2seq model divide the inputs. */
static bool is_entry_parameter(const struct frontend_model *m, const struct entry_function *e, size_t input)
{
	bool tokens = m->tokens >= 0 &&
	              ((int)input == m->tokens || m->inputs.items[m->tokens].lengths_at == (int)input);
	return tokens ? e->tokens : e->others;
}

/* Initializes *lw and begins the function in the module; false after a report, or without memory. The dim of the rows
 * of a call is bound first, as every dim is imported through it (lower_dim). */
static bool begin_function(struct lowering *lw, struct frontend_model *m, struct ir_module *module,
                           const struct entry_function *e, struct state_types *types)
{
	*lw = (struct lowering){
	        .m = m, .arena = &m->arena, .cx = m->cx, .mode = e->mode, .module = module, .types = types};
	lw->env = model_env(&m->scope, true);
	lw->outputs = e->values;
	lw->n_outputs = e->n_outputs;
	strmap_init(&lw->vars, &m->arena);
	lw->parameter = ARENA_ARRAY(lw->arena, int, m->inputs.n);
	for (size_t i = 0, n = 0; lw->parameter != NULL && i < m->inputs.n; i++)
		lw->parameter[i] = is_entry_parameter(m, e, i) ? (int)n++ : -1;
	if (lw->parameter == NULL)
		return false;
	if ((e->mode == LOWER_DECODE || e->mode == LOWER_ENCODE) && !lower_list_source_dims(lw))
		return false;
	lw->b = irb_begin(module, m->cx, e->name, (struct ir_loc){e->loc, NULL});
	return lw->b != NULL && lower_bind_rows(lw, e->scores);
}

/* ---- parameters ---- */

/* Adds an input of the model as a parameter, and binds its name. An input of lengths is at most the number of rows of
 * the input that it measures. */
static bool add_input(struct lowering *lw, const struct frontend_input *in)
{
	struct frontend_model *m = lw->m;
	struct ir_param p = {.name = in->name,
	                     .loc = {in->loc, NULL},
	                     .role = ROLE_INPUT,
	                     .below = in->below,
	                     .has_default = in->has_default};
	p.lengths = in->lengths_at < 0 ? -1 : lw->parameter[in->lengths_at];
	p.fill = in->fill;
	if (in->default_dim != NULL)
		p.default_value = lower_dim(lw, in->default_dim);
	if (in->measures >= 0)
		p.max = lower_dim(lw, m->inputs.items[in->measures].dims[1]);
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < in->rank; i++)
		dims[i] = lower_dim(lw, in->dims[i]);
	const struct ir_type *type = ir_type_tensor(lw->module->types, in->dtype, in->rank, dims);
	struct lowered v = lowered_tensor(irb_param(lw->b, &p, type));
	lower_bind(lw, in->name, &v);
	return !irb_failed(lw->b);
}

static const struct ir_type *batch_type(struct lowering *lw)
{
	const struct ir_dim *dims[] = {lower_batch_dim(lw)};
	return ir_type_tensor(lw->module->types, DT_I32, 1, dims);
}

/* Declares a state whose type has been recorded, and adds it as a parameter. The parameter has the last component of
 * its name if that is unique, else a number. */
static bool add_state(struct lowering *lw, const char *name)
{
	const struct state_type *t = lower_find_state_type(lw, name);
	if (t == NULL)
		return lower_fail(lw, LOC_NONE, DIAG_INTERNAL, "no state is called '%s'", name);
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < t->rank; i++)
		dims[i] = lower_dim(lw, t->dims[i]);
	const struct ir_type *type = ir_type_tensor(lw->module->types, t->dtype, t->rank, dims);
	const struct ir_state_decl *decl = type == NULL ? NULL : ir_add_state(lw->module, name, type, t->loc);
	struct lower_state *s = decl == NULL ? NULL : ARENA_PUSH(lw->arena, &lw->states);
	if (s == NULL)
		return lower_fail(lw, LOC_NONE, DIAG_INTERNAL, "the state '%s' cannot be declared", name);
	const char *last = strrchr(name, '.');
	struct ir_param p = {.name = last == NULL ? name : last + 1, .loc = t->loc, .lengths = -1};
	if (lower_find(lw, p.name) != NULL || lw->states.n > 1) /* parameter names are unique */
		p.name = arena_printf(lw->arena, "state%zu", lw->states.n);
	*s = (struct lower_state){name, decl, irb_param(lw->b, &p, ir_type_state(lw->module->types, decl))};
	return !irb_failed(lw->b);
}

/* For longrope, whose factors depend on the sequence length: adds the parameter call_end, the length of each
 * sequence after the last part of a prompt that is read in several calls. */
static bool add_call_end(struct lowering *lw)
{
	struct ir_param p = {.name = "call_end",
	                     .loc = {lw->m->generate.loc, NULL},
	                     .role = ROLE_INPUT,
	                     .has_default = true,
	                     .default_value = ir_dim_const(lw->module->dims, 0),
	                     .lengths = -1};
	if (lower_find(lw, p.name) != NULL)
		return lower_fail(lw, lw->m->generate.loc, DIAG_GENERATE,
		                  "an input is called '%s', a name reserved in models with two lists of "
		                  "longrope factors",
		                  p.name);
	lw->call_end = irb_param(lw->b, &p, batch_type(lw));
	return !irb_failed(lw->b);
}

/* Adds the parameters of a function: inputs, targets (score), past and call_end (decode), states. */
static bool add_parameters(struct lowering *lw, const struct entry_function *e)
{
	struct names_list names = {NULL, 0, 0};
	for (size_t i = 0; i < lw->m->inputs.n; i++) {
		if (lw->parameter[i] >= 0 && !add_input(lw, &lw->m->inputs.items[i]))
			return false;
	}
	int lengths = lw->m->tokens < 0 ? -1 : lw->m->inputs.items[lw->m->tokens].lengths_at;
	if (e->scores && !score_add_targets(lw, lengths < 0 ? -1 : lw->parameter[lengths]))
		return false;
	if (e->mode == LOWER_DECODE) {
		struct ir_param past = {.name = lower_find(lw, "past") == NULL ? "past" : "past_lengths",
		                        .role = ROLE_PAST,
		                        .lengths = -1,
		                        .loc = {e->loc, NULL}};
		lw->past = irb_param(lw->b, &past, batch_type(lw));
		lw->grows = lower_dim(lw, lw->m->inputs.items[lw->m->tokens].dims[1]);
	}
	if (e->mode == LOWER_DECODE && lw->m->generate.long_from > 0 && !add_call_end(lw))
		return false;
	if (e->mode != LOWER_DECODE && e->mode != LOWER_ENCODE)
		return true; /* no states */
	if (!lower_body_states(lw, &e->body, &names))
		return false;
	for (size_t i = 0; i < names.n; i++) {
		if (!add_state(lw, names.items[i]))
			return false;
	}
	/* states for the sizes of the source that decode reads */
	for (size_t i = 0; i < lw->source.n; i++) {
		if ((lw->types->sizes >> i & 1) != 0 && !add_state(lw, lw->source.items[i].state))
			return false;
	}
	return e->mode == LOWER_DECODE ? lower_read_sizes(lw) : lower_write_sizes(lw);
}

/* ---- the last real row ---- */

/* i32 [B]: number of real tokens in this call. */
static struct ir_value new_tokens(struct lowering *lw)
{
	const struct frontend_input *in = &lw->m->inputs.items[lw->m->tokens];
	if (in->lengths_at >= 0)
		return lower_find(lw, lw->m->inputs.items[in->lengths_at].name)->v;
	return irb_dim_value_of(lw->b, lw->grows, 1, batch_type(lw)->dims);
}

/* Binds the logits `name` [B, S, vocab] to their last real row of each sequence [B, vocab]. Only here:
 * canonicalize moves select_rows toward the inputs, so the other rows are not computed. False after a report. */
static bool select_last_row(struct lowering *lw, const char *name)
{
	const struct lowered *x = lower_find(lw, name);
	if (x == NULL || x->kind != LOWERED_TENSOR || irb_type(lw->b, x->v)->rank != 3)
		return lower_fail(lw, LOC_NONE, DIAG_GENERATE, "logits must have the shape [B, S, vocab]");
	struct ir_value n = new_tokens(lw);
	struct ir_value one = irb_full_of(lw->b, 1.0, DT_I32, 1, batch_type(lw)->dims);
	struct lowered row = lowered_tensor(irb_select_rows(lw->b, x->v, irb_sub(lw->b, n, one, NULL), NULL));
	lower_bind(lw, name, &row);
	return !irb_failed(lw->b);
}

/* Checks that the ids of a key of `generate` are below the vocabulary size; ids that the file does not write
 * (defaults) are not checked. */
static bool check_ids(struct lowering *lw, const char *key, const struct frontend_ids *ids, int64_t below)
{
	const struct yaml_node *node = yaml_find(model_section(lw->m, "generate"), key);
	for (size_t i = 0; node != NULL && i < ids->n; i++) {
		struct yaml_list list = yaml_as_list(lw->arena, node);
		/* of the id, if written one by one */
		struct loc at = list.n == ids->n ? list.items[i]->loc : node->loc;
		if (ids->items[i] >= below) {
			diag_error(lw->cx, at, DIAG_GENERATE,
			           "%s has the id %lld, but the vocabulary has %lld ids (0 to %lld)", key,
			           (long long)ids->items[i], (long long)below, (long long)(below - 1));
			return false;
		}
	}
	return true;
}

static bool check_sequences(struct lowering *lw, const char *key, const struct frontend_sequences *list,
                            int64_t below)
{
	bool ok = true;
	for (size_t i = 0; ok && i < list->n; i++)
		ok = check_ids(lw, key, &list->items[i].ids, below);
	return ok;
}

/* Checks ids that are read (start, pad) against the rows of the embedding, ids that are chosen against the
 * number of logits. */
static bool check_generate_ids(struct lowering *lw, const char *logits)
{
	const struct frontend_generate *g = &lw->m->generate;
	const struct frontend_ids pad = {&g->pad, 1};
	const struct lowered *x = lower_find(lw, logits);
	const struct ir_type *t = x != NULL && x->kind == LOWERED_TENSOR ? irb_type(lw->b, x->v) : NULL;
	int64_t vocab = INT64_MAX, read = lw->m->inputs.items[lw->m->tokens].below;
	if (t != NULL && t->rank > 0)
		(void)ir_dim_is_const(t->dims[t->rank - 1], &vocab);
	read = read > 0 ? read : vocab;
	return check_ids(lw, "start", &g->start, read) && check_ids(lw, "pad", &pad, read) &&
	       check_ids(lw, "stop", &g->stop, vocab) && check_ids(lw, "suppress", &g->suppress, vocab) &&
	       check_ids(lw, "suppress_first", &g->suppress_first, vocab) &&
	       check_ids(lw, "forced_last", &g->forced_last, vocab) &&
	       check_sequences(lw, "banned", &g->banned, vocab) &&
	       check_sequences(lw, "bias", &g->bias, vocab);
}

/* ---- results ---- */

/* Number of the parameter with the real lengths of output o; -1: it has none, or is of decode, which returns one row
   of each sequence. */
static int result_lengths(const struct lowering *lw, const struct entry_function *e,
                          const struct model_output *o)
{
	int input = o->lengths == NULL || e->mode == LOWER_DECODE
	                    ? -1
	                    : model_find_input(&lw->m->inputs, o->lengths);
	return input < 0 ? -1 : lw->parameter[input];
}

/* Adds the results in the order outputs, the new past of decode and encode, states; each state has been threaded
 * through the function. False after a report, or without memory. */
static bool finish_function(struct lowering *lw, const struct entry_function *e)
{
	size_t n = 0, capacity = e->n_outputs + 1 + lw->states.n;
	struct ir_value *values = ARENA_ARRAY(lw->arena, struct ir_value, capacity);
	struct ir_result *results = ARENA_ARRAY(lw->arena, struct ir_result, capacity);
	if (values == NULL || results == NULL)
		return false;
	irb_set_loc(lw->b, (struct ir_loc){e->loc, NULL});
	for (size_t i = 0; i < e->n_outputs; i++) {
		const struct model_output *o = &lw->m->outputs.items[e->outputs[i]];
		const struct lowered *v = lower_find(lw, e->values[i]);
		if (v == NULL || v->kind != LOWERED_TENSOR)
			return lower_fail(lw, o->value_loc, DIAG_UNKNOWN_VALUE, "no value is called '%s'",
			                  e->values[i]);
		values[n] = v->v;
		results[n++] = (struct ir_result){.name = e->scores ? score_output : o->name,
		                                  .lengths = result_lengths(lw, e, o)};
	}
	if (e->mode == LOWER_DECODE)
		values[n] = irb_add(lw->b, lw->past, new_tokens(lw), NULL);
	if (e->mode == LOWER_ENCODE) /* no token has been read yet */
		values[n] = irb_full_of(lw->b, 0.0, DT_I32, 1, batch_type(lw)->dims);
	if (e->mode == LOWER_DECODE || e->mode == LOWER_ENCODE)
		results[n++] = (struct ir_result){.role = ROLE_PAST, .lengths = -1};
	for (size_t i = 0; i < lw->states.n; i++) {
		values[n] = lw->states.items[i].value;
		results[n++] = (struct ir_result){.lengths = -1};
	}
	return irb_finish(lw->b, values, results, n, NULL) == TFMC_OK;
}

/* Builds one function: parameters, body, and in place of the logits their last row (decode) or scores of targets
 * (score). False after a report, or without memory. */
static bool build_function(struct frontend_model *m, struct ir_module *module, const struct entry_function *e,
                           struct state_types *types)
{
	struct lowering lw;
	if (!begin_function(&lw, m, module, e, types) || !add_parameters(&lw, e))
		return false;
	bool ok = lower_body(&lw, &e->body, false);
	if (ok && e->scores)
		ok = score_finish(&lw, e->values[0]);
	else if (ok && e->mode == LOWER_DECODE)
		ok = select_last_row(&lw, e->values[0]) && check_generate_ids(&lw, e->values[0]);
	return ok && finish_function(&lw, e);
}

/* ---- modules ---- */

/* A module that declares the dims of the model first, so that a symbol has the same number in both tables, then those
 * of the source; NULL without memory. */
static struct ir_module *create_module(struct frontend_model *m)
{
	struct ir_module *module = ir_module_create(m->name);
	for (size_t i = 0; module != NULL && i < ir_dims_count(m->scope.dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->scope.dims, i);
		ir_dims_declare(module->dims, s->name, s->lo, s->hi);
	}
	if (module == NULL || lower_declare_source(m, module->dims, &m->arena))
		return module;
	ir_module_destroy(module);
	return NULL;
}

/* Sets outputs and body of an entry: it returns the outputs i with chosen[i] (NULL: all), and has the statements of
 * `body` on which they, and the calls of `effect` (NULL: none), depend. False without memory. */
static bool set_entry_body(struct frontend_model *m, struct entry_function *e, const bool *chosen,
                           const struct graph_body *body, const char *effect)
{
	const char **values = ARENA_ARRAY(&m->arena, const char *, m->outputs.n);
	size_t *outputs = ARENA_ARRAY(&m->arena, size_t, m->outputs.n);
	if (values == NULL || outputs == NULL)
		return false;
	for (size_t i = 0; i < m->outputs.n; i++) {
		if (chosen != NULL && !chosen[i])
			continue;
		values[e->n_outputs] = m->outputs.items[i].value;
		outputs[e->n_outputs++] = i;
	}
	e->values = values;
	e->outputs = outputs;
	e->body = graph_prune(&m->arena, body, values, e->n_outputs, effect);
	return true;
}

/* Builds decode, which returns the logits, and, with options.score, score. */
static bool build_decode(struct frontend_model *m, struct ir_module *module, const struct graph_body *body,
                         struct state_types *types)
{
	struct entry_function e = {.name = "decode",
	                           .mode = LOWER_DECODE,
	                           .tokens = true,
	                           /* else encode reads them */
	                           .others = m->generate.kind == GENERATE_CAUSAL,
	                           .loc = m->generate.loc};
	bool *is_logits = ARENA_ARRAY(&m->arena, bool, m->outputs.n);
	if (is_logits == NULL)
		return false;
	is_logits[model_find_output(&m->outputs, m->generate.logits)] = true;
	if (!set_entry_body(m, &e, is_logits, body, NULL) || !build_function(m, module, &e, types))
		return false;
	if (!m->options.score)
		return true;
	e.name = "score";
	e.scores = true;
	return build_function(m, module, &e, types);
}

/* Builds decode and score of a seq2seq model in a module of their own; a second time if they turned out to read sizes
 * of the source that have no state yet. types->sizes only gains bits, so this ends. NULL on failure. */
static struct ir_module *build_with_source(struct frontend_model *m, const struct graph_body *body,
                                           struct state_types *types)
{
	struct ir_module *module = create_module(m);
	bool ok = module != NULL && build_decode(m, module, body, types),
	     must_repeat = ok && types->sizes_missed;
	if (ok && !must_repeat)
		return module;
	ir_module_destroy(module);
	types->sizes_missed = false;
	return must_repeat ? build_with_source(m, body, types) : NULL;
}

/* Builds decode (which determines the sizes it reads), then encode, which stores them, and clones decode into the
 * module with the dims of the source bound to their capacity. */
static bool build_encode_and_decode(struct frontend_model *m, struct ir_module *module,
                                    const struct split_result *s, struct state_types *types)
{
	struct entry_function encode = {
	        .name = "encode", .mode = LOWER_ENCODE, .others = true, .loc = m->generate.loc};
	bool ok = set_entry_body(m, &encode, s->of_source, &s->body, "state_put") &&
	          lower_record_sizes(m, module, types);
	struct ir_module *decode = ok ? build_with_source(m, &s->body, types) : NULL;
	ok = decode != NULL && build_function(m, module, &encode, types) &&
	     lower_bind_source(m, decode, module);
	ir_module_destroy(decode);
	return ok;
}

/* Warns if dtype.cache is given but no function has a cache. */
static void check_cache_dtype_used(const struct frontend_model *m, const struct ir_module *module)
{
	const struct yaml_node *cache = yaml_find(model_section(m, "dtype"), "cache");
	if (cache != NULL && m->dtypes.cache != DT_F32 && module->states.n == 0)
		diag_warning(m->cx, cache->loc, DIAG_MISSING,
		             "dtype: cache has no effect: the model has no KV cache");
}

/* Builds all functions of the module; run first, which records the types of the states of the others. */
static bool build_functions(struct frontend_model *m, struct ir_module *module)
{
	struct entry_function run = {.name = "run", .mode = LOWER_RUN, .tokens = true, .others = true};
	struct state_types types = {0};
	struct split_result parts;
	bool is_seq2seq = m->generate.kind == GENERATE_SEQ2SEQ;
	if (!set_entry_body(m, &run, NULL, &m->graph, NULL) ||
	    (is_seq2seq && !split_encode_decode(m, &run.body, &parts)))
		return false;
	if (is_seq2seq)
		run.body = parts.body;
	if (!build_function(m, module, &run, &types))
		return false;
	if (m->generate.kind == GENERATE_CAUSAL && !build_decode(m, module, &m->graph, &types))
		return false;
	return !is_seq2seq || build_encode_and_decode(m, module, &parts, &types);
}

/* Lowers again with repeats split where parameters change their format (mixed quantization). If the unrolled graph
 * exceeds MODEL_STEPS_MAX, the module stays as it is: those weights become f32. */
static bool relower_with_split_repeats(struct frontend_model *m, struct ir_module **module)
{
	struct graph_body parts = {NULL, 0, 0};
	if (!graph_split_repeats(&m->arena, &m->graph, &parts))
		return false;
	m->weights.formats_differ = false; /* warnings of weights that become f32 are given from now on */
	if (graph_count(&parts) > MODEL_STEPS_MAX)
		return true;
	ir_module_destroy(*module);
	*module = create_module(m);
	m->graph = parts;
	m->weights.repeats_split = true;
	return *module != NULL && build_functions(m, *module);
}

enum tfmc_status frontend_lower(struct frontend_model *m, struct ir_module **out)
{
	size_t errors = m->cx->n_errors;
	struct ir_module *module = create_module(m);
	*out = NULL;
	if (module == NULL)
		return TFMC_NO_MEMORY;
	enum tfmc_status opened = weights_open(m);
	bool ok = opened == TFMC_OK && build_functions(m, module);
	if (ok && m->weights.formats_differ)
		ok = relower_with_split_repeats(m, &module);
	if (ok)
		check_cache_dtype_used(m, module);
	/* parameters without a tensor are collected by the map, so that one cause is one error */
	if (!ok && m->weights.map != NULL)
		(void)weight_map_report(m->weights.map);
	bool has_weights = ok && !m->weights.shapes_only;
	ok = ok && (!has_weights || weight_map_finish(m->weights.map, m->options.allow_unused)) &&
	     model_quantize_finish(m) && profile_finish(m);
	if (ok && m->cx->n_errors == errors) {
		*out = module;
		return TFMC_OK;
	}
	ir_module_destroy(module);
	return m->cx->n_errors == errors ? TFMC_NO_MEMORY : opened == TFMC_OK ? TFMC_INVALID : opened;
}

/* ---- type inference ---- */

/* The function is never finished: only the types of its values are read. */
struct lowering *lower_begin_inference(struct frontend_model *m)
{
	static const char *const x[] = {"x"}; /* stays live: the next step reads it */
	const struct entry_function e = {.name = "infer",
	                                 .mode = LOWER_INFER,
	                                 .values = x,
	                                 .n_outputs = 1,
	                                 .tokens = true,
	                                 .others = true};
	struct lowering *lw = ARENA_NEW(&m->arena, struct lowering);
	struct ir_module *module = create_module(m);
	if (lw != NULL && module != NULL && begin_function(lw, m, module, &e, NULL) && add_parameters(lw, &e))
		return lw;
	ir_module_destroy(module);
	return NULL;
}

void lower_end_inference(struct lowering *lw)
{
	if (lw != NULL)
		ir_module_destroy(lw->module);
}
