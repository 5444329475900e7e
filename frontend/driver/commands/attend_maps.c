/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention probabilities. After the passes that recognize attention, passes/graph adds the probabilities of the
 * selected attentions as results; the module is compiled and runs once. The iterations of a repeat are layers, whose
 * index follows the repeat in the path.
 */
#include <string.h>

#include "frontend/driver/commands/attend.h"

#define MAX_DIMS  16
#define STEP_NAME ".attention" /* last component of a path when the step has no id; not shown */

struct maps_run {
	struct attend *a;
	struct loaded probed; /* the model; its module returns the probabilities of the selected attentions */
	const struct ir_func *f; /* run, with attention ops, without the added results */
	int64_t dims[MAX_DIMS];
};

/* ---- names ---- */

static bool is_used_path(const struct attend *a, const char *path)
{
	for (size_t i = 0; i < a->maps.n; i++)
		if (!strcmp(a->maps.items[i].path, path))
			return true;
	return false;
}

/* A second attention of the same step gets a number. */
static const char *unique_path(struct attend *a, const char *name)
{
	struct arena *arena = &a->d->arena;
	size_t n = strlen(name), skip = strlen(STEP_NAME);
	if (n > skip && !strcmp(name + n - skip, STEP_NAME))
		n -= skip;
	const char *plain = n ? arena_strndup(arena, name, n) : "attention", *path = plain;
	for (int i = 2; is_used_path(a, path) && !arena_failed(arena); i++)
		path = arena_printf(arena, "%s.%d", plain, i);
	return path;
}

/* ---- maps ---- */

/* Returns the sequence whose input has this dim as axis 1; -1: none. Searches from the last: a target may have the dim
 * of the source. */
static int find_sequence_of_size(const struct maps_run *r, const struct ir_dim *size)
{
	for (size_t s = r->a->n_sequences; s-- > 0;)
		for (size_t i = 0; i < r->f->n_params; i++) {
			const struct ir_param *p = &r->f->params[i];
			if (!strcmp(p->name, r->a->sequences[s].input) &&
			    ir_type_of(r->f, p->value)->dims[1] == size)
				return (int)s;
		}
	return -1;
}

/* Returns the stack of an attention: cross-attention if queries and keys are of different sequences, otherwise that of
 * their sequence. -1 is the source of a seq2seq model if no sequence is (images); otherwise it gives ATTEND_OTHER. */
static enum attend_stack classify_map(const struct attend *a, const struct attend_map *m)
{
	const struct frontend_generate *g = frontend_generate(a->l->model);
	bool is_pair = g->kind == GENERATE_SEQ2SEQ;
	bool has_source = a->n_sequences > 0 && a->sequences[0].is_source;
	if (!is_pair && (m->queries < 0 || m->keys < 0))
		return ATTEND_OTHER;
	if (is_pair && has_source && (m->queries < 0 || m->keys < 0))
		return ATTEND_OTHER;
	if (m->queries != m->keys)
		return ATTEND_CROSS;
	bool is_decoder = g->kind == GENERATE_CAUSAL ||
	                  (is_pair && m->queries >= 0 && !a->sequences[m->queries].is_source);
	return is_decoder ? ATTEND_DECODER : ATTEND_ENCODER;
}

/* Adds the map of an attention: the sequences of its queries and keys, and its sizes in this call. TFMC_INVALID,
 * without a diagnostic: a size overflows. */
static enum tfmc_status add_map(struct maps_run *r, const char *name, const struct ir_op *op)
{
	struct attend *a = r->a;
	const struct ir_type *q = ir_type_of(r->f, op->operands[0]), *k = ir_type_of(r->f, op->operands[1]);
	struct attend_map m = {.path = unique_path(a, name),
	                       .queries = find_sequence_of_size(r, q->dims[2]),
	                       .keys = find_sequence_of_size(r, k->dims[2])};
	m.stack = classify_map(a, &m);
	if (!ir_dim_eval(q->dims[1], r->dims, &m.all_heads) || !ir_dim_eval(q->dims[2], r->dims, &m.rows) ||
	    !ir_dim_eval(k->dims[2], r->dims, &m.columns))
		return TFMC_INVALID;
	if (!ARENA_ADDED(&a->d->arena, &a->maps, m))
		return TFMC_NO_MEMORY;
	return TFMC_OK;
}

/* Adds a map for each attention of the function (for each iteration of a repeat), then keeps those that the options
 * select; q->taken tells probe_insert which. TFMC_INVALID: the model has no attention or too many, the options select
 * none, or add_map fails. */
static enum tfmc_status choose_maps(struct maps_run *r, struct probe_request *q)
{
	struct probe_sites sites = {0};
	struct probe_names names = {0};
	TFMC_TRY(probe_list(q, r->f, &sites, &names));
	for (size_t i = 0; i < names.n; i++)
		TFMC_TRY(add_map(r, names.items[i].name, sites.items[names.items[i].site].op));
	if (!names.n) {
		diag_error(&r->a->d->diag, LOC_NONE, DIAG_INPUT, "the model has no attention");
		return TFMC_INVALID;
	}
	bool *selected = ARENA_ARRAY(q->arena, bool, names.n);
	if (!selected)
		return TFMC_NO_MEMORY;
	q->taken = selected;
	return attend_select(r->a, selected);
}

/* p [1, H, S, T]; moves the selected heads to the front. */
static enum tfmc_status read_map(struct maps_run *r, const struct named_tensor *p)
{
	struct attend_map *m = &r->a->maps.items[p->probe - r->probed.probes.items];
	size_t plane = (size_t)m->rows * (size_t)m->columns;
	if (p->dims[1] != m->all_heads || p->dims[2] != m->rows || p->dims[3] != m->columns)
		return TFMC_INTERNAL;
	m->p = p->data;
	for (int64_t h = 0; h < m->heads; h++)
		memmove(m->p + (size_t)h * plane, m->p + (size_t)attend_head(r->a, h) * plane,
		        plane * sizeof(*m->p));
	return TFMC_OK;
}

/* ---- the run ---- */

static const struct attend_sequence *find_sequence(const struct attend *a, const char *input)
{
	for (size_t i = 0; i < a->n_sequences; i++)
		if (!strcmp(a->sequences[i].input, input))
			return &a->sequences[i];
	return NULL;
}

static const struct frontend_input *find_input(const struct attend *a, const char *name)
{
	size_t n;
	const struct frontend_input *in = frontend_inputs(a->l->model, &n);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(in[i].name, name))
			return &in[i];
	return NULL;
}

enum tfmc_status attend_check_length(const struct attend *a, const struct attend_sequence *s)
{
	const struct ir_func *f = ir_find_func(a->l->module, "run");
	const struct frontend_input *in = find_input(a, s->input);
	const struct ir_type *t = NULL;
	for (size_t i = 0; f && i < f->n_params; i++)
		if (!strcmp(f->params[i].name, s->input))
			t = ir_type_of(f, f->params[i].value);
	if (!t || !in)
		return TFMC_INTERNAL;
	if (t->rank != 2 || t->dtype != DT_I32) {
		diag_error(&a->d->diag, in->loc, DIAG_UNSUPPORTED,
		           "not supported yet: attend requires an input i32[B, S], '%s' is not", s->input);
		return TFMC_INVALID;
	}
	int64_t hi = ir_dim_hi(a->l->module->dims, t->dims[1]);
	if (s->ids.n >= 1 && (int64_t)s->ids.n <= hi)
		return TFMC_OK;
	diag_error(&a->d->diag, in->loc, DIAG_INPUT, "input '%s' takes 1 to %lld tokens, not %zu", s->input,
	           (long long)hi, s->ids.n);
	return TFMC_INVALID;
}

/* Sets the dim when it is alone on the axis. */
static void bind_dim(struct maps_run *r, const struct ir_dim *axis, int64_t size)
{
	struct ir_dims *table = r->a->l->module->dims;
	for (size_t k = 0; k < ir_dims_count(table); k++)
		if (ir_dim_sym(table, ir_dims_sym(table, k)->name) == axis)
			r->dims[k] = size;
}

/* Takes dims from a tensor of --inputs. False after a diagnostic: wrong rank or size, or several sequences. */
static bool bind_given_dims(struct maps_run *r, const struct ir_param *p, const struct named_tensor *v)
{
	const struct ir_type *t = ir_type_of(ir_find_func(r->a->l->module, "run"), p->value);
	if (v->rank != t->rank) {
		diag_error(&r->a->d->diag, p->loc.at, DIAG_INPUT, "input '%s' has %d axes, not %d", p->name,
		           t->rank, v->rank);
		return false;
	}
	if (v->rank > 0 && v->dims[0] != 1 && !ir_dim_equals(t->dims[0], v->dims[0])) {
		diag_error(&r->a->d->diag, p->loc.at, DIAG_INPUT, "attend takes one sequence; '%s' has %lld",
		           p->name, (long long)v->dims[0]);
		return false;
	}
	for (int i = 0; i < t->rank; i++) {
		int64_t hi = ir_dim_hi(r->a->l->module->dims, t->dims[i]);
		int64_t lo = ir_dim_is_const(t->dims[i], NULL) ? hi : 1;
		if (v->dims[i] < lo || v->dims[i] > hi) {
			diag_error(&r->a->d->diag, p->loc.at, DIAG_INPUT,
			           "axis %d of input '%s' is %lld, not %lld to %lld", i, p->name,
			           (long long)v->dims[i], (long long)lo, (long long)hi);
			return false;
		}
		bind_dim(r, t->dims[i], v->dims[i]);
	}
	return true;
}

/* Dims of the call: one sequence, with as many rows as tokens. */
static bool choose_dims(struct maps_run *r)
{
	struct ir_dims *table = r->a->l->module->dims;
	const struct ir_func *f = ir_find_func(r->a->l->module, "run");
	if (ir_dims_count(table) > MAX_DIMS) {
		diag_error(&r->a->d->diag, f->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: attend of a model with more than %d dims", MAX_DIMS);
		return false;
	}
	for (size_t i = 0; i < ir_dims_count(table); i++)
		r->dims[i] = ir_dims_sym(table, i)->lo > 1 ? ir_dims_sym(table, i)->lo : 1;
	for (size_t i = 0; i < f->n_params; i++) {
		const struct attend_sequence *s = find_sequence(r->a, f->params[i].name);
		const struct named_tensor *v = tensors_find(&r->a->given, f->params[i].name);
		if (s)
			bind_dim(r, ir_type_of(f, f->params[i].value)->dims[1], (int64_t)s->ids.n);
		else if (v && !bind_given_dims(r, &f->params[i], v))
			return false;
	}
	return true;
}

/* The object would reject ids beyond the vocabulary without telling which. */
static bool check_ids(const struct maps_run *r, const struct ir_param *p, const struct attend_sequence *s)
{
	for (size_t i = 0; s && p->below > 0 && i < s->ids.n; i++) {
		if (s->ids.items[i] < p->below)
			continue;
		diag_error(&r->a->d->diag, p->loc.at, DIAG_INPUT,
		           "input '%s' has the value %d at %zu, not in [0,%lld]", p->name, s->ids.items[i], i,
		           (long long)p->below - 1);
		return false;
	}
	return true;
}

static enum tfmc_status use_given(struct maps_run *r, struct named_tensor *given,
                                  struct named_tensors *inputs)
{
	struct named_tensor *slot = ARENA_PUSH(&r->a->d->arena, inputs);
	if (!slot)
		return TFMC_NO_MEMORY;
	given->used = true;
	*slot = *given;
	return TFMC_OK;
}

/* Tokens, a tensor of --inputs, or the default. Optional inputs (lengths) are left out: the object computes
 * them. */
static enum tfmc_status add_input(struct maps_run *r, const struct ir_param *p, struct named_tensors *inputs)
{
	const struct attend_sequence *s = find_sequence(r->a, p->name);
	const struct frontend_input *in = find_input(r->a, p->name);
	const struct ir_type *t = ir_type_of(r->f, p->value);
	int64_t dims[IR_RANK_MAX] = {0}, value = 0;
	struct named_tensor *given = tensors_find(&r->a->given, p->name);
	if (given && !s)
		return use_given(r, given, inputs);
	if (!s && p->has_default)
		return TFMC_OK;
	if (!s && (!in || !in->has_default)) {
		diag_error(&r->a->d->diag, p->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: attend of a model whose input '%s' has no default; --inputs "
		           "gives it",
		           p->name);
		return TFMC_INVALID;
	}
	if (!check_ids(r, p, s))
		return TFMC_INVALID;
	if (!s && in->default_dim && !ir_dim_eval(in->default_dim, r->dims, &value))
		return TFMC_INVALID;
	for (int i = 0; i < t->rank; i++)
		if (!ir_dim_eval(t->dims[i], r->dims, &dims[i]))
			return TFMC_INVALID;
	struct named_tensor *v = tensors_add(r->a->d, inputs, p->name, t->dtype, t->rank, dims);
	double *values = v ? ARENA_ARRAY(&r->a->d->arena, double, v->count + 1) : NULL;
	if (!values)
		return TFMC_NO_MEMORY;
	double fill_value = !s && !in->default_dim ? in->fill : (double)value;
	for (int64_t i = 0; i < v->count; i++)
		values[i] = s ? (i < (int64_t)s->ids.n ? s->ids.items[i] : 0) : fill_value;
	tensor_set_values(v, values);
	return TFMC_OK;
}

static enum tfmc_status call_model(struct maps_run *r, struct compiled *c)
{
	struct driver *d = r->a->d;
	struct named_tensors in = {0}, out = {0};
	for (size_t i = 0; i < r->f->n_params; i++)
		TFMC_TRY(add_input(r, &r->f->params[i], &in));
	for (size_t i = 0; i < r->a->given.n; i++)
		if (!r->a->given.items[i].used)
			diag_warning(&d->diag, LOC_NONE, DIAG_INPUT,
			             "the tensor %s of --inputs is not an input, or is given otherwise",
			             r->a->given.items[i].name);
	TFMC_TRY(caller_open_session(d, c, "run", &in));
	struct caller caller = {
	        .d = d, .session = c->session, .record = c->model.record, .probes = &r->probed.probes};
	enum tfmc_status st = caller_run(&caller, "run", &in, &out);
	for (size_t i = 0; st == TFMC_OK && i < out.n; i++)
		if (out.items[i].probe)
			st = read_map(r, &out.items[i]);
	return st;
}

enum tfmc_status attend_run(struct attend *a)
{
	static const char *const run[] = {"run"};
	struct driver *d = a->d;
	struct maps_run r = {.a = a, .probed = *a->l};
	struct ir_module *fused = NULL;
	struct compiled c = {0};
	const struct target *target = driver_best_target(d, d->options.mcpu);
	if (!target)
		return TFMC_INVALID;
	TFMC_TRY(driver_run_passes(d, a->l->module, "canonicalize,fuse-softmax,fuse-attention", target,
	                           &fused));
	struct probe_request q = {.cx = &d->diag, .arena = &d->arena, .functions = run, .n_functions = 1};
	q.attentions = true;
	r.f = ir_find_func(fused, "run");
	r.probed.probes = (struct probe_values){0};
	enum tfmc_status st = !r.f ? TFMC_INTERNAL : choose_dims(&r) ? TFMC_OK : TFMC_INVALID;
	if (st == TFMC_OK)
		st = choose_maps(&r, &q);
	if (st == TFMC_OK)
		st = probe_insert(&q, fused, &r.probed.module, &r.probed.probes);
	if (st == TFMC_OK)
		st = driver_compile_jit(d, &r.probed, (struct entry_names){run, 1}, &c);
	if (st == TFMC_OK)
		st = call_model(&r, &c);
	compiled_destroy(&c);
	if (r.probed.module != a->l->module)
		ir_module_destroy(r.probed.module);
	ir_module_destroy(fused);
	return st;
}
