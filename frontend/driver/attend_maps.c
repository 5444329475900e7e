/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights of every attention: the graph with its attention ops recognized runs
 * once in the interpreter, which shows what each of them computed. Rounds of a repeat
 * become layers: their indices stand in the path behind that of the repeat.
 */
#include <string.h>

#include "frontend/driver/attend.h"
#include "ir/support/number.h"

#define MAX_INPUTS 32
#define MAX_DIMS   16
#define MAX_ROUNDS 16
#define STEP_NAME  ".attention" /* a path ends so when the step has no id of its own */

struct maps_run {
	struct attend *a;
	const struct ir_module *m;
	const struct ir_func *f;
	bool failed; /* no memory */
};

/* --- names ------------------------------------------------------------------------------------------ */

/* Paths of the repeats around an op, the outermost first; their number. */
static size_t repeat_paths(const struct interp_attention *x, const char *paths[MAX_ROUNDS])
{
	size_t n = 0;
	const struct ir_region *r = ir_info(x->f, x->op->results[0])->region;
	for (; r && n < MAX_ROUNDS; r = r->parent)
		if (r->owner && r->owner->code == OP_repeat)
			paths[n++] = r->owner->loc.path;
	for (size_t i = 0; i < n / 2; i++) {
		const char *inner = paths[i];
		paths[i] = paths[n - 1 - i];
		paths[n - 1 - i] = inner;
	}
	return n;
}

/* Bytes of ".3_5" at the begin of a path: the rounds of a loop that is a part of a repeat; 0: none.
 * *first: 3. */
static size_t label_length(const char *path, int64_t *first)
{
	size_t low = path[0] == '.' ? strspn(path + 1, "0123456789") : 0;
	size_t high = low && path[1 + low] == '_' ? strspn(path + 2 + low, "0123456789") : 0;
	char end = high ? path[2 + low + high] : 'x';
	*first = 0;
	if ((end != '.' && end) || !number_parse_i64(path + 1, low, first))
		return 0;
	return 2 + low + high;
}

/* The path of the op with the index of each repeat behind the path of the repeat. */
static const char *indexed_path(struct arena *arena, const struct interp_attention *x, const int64_t *at)
{
	const char *paths[MAX_ROUNDS], *path = x->op->loc.path ? x->op->loc.path : "attention";
	size_t n = repeat_paths(x, paths), total = strlen(path), done = 0;
	size_t skip = strlen(STEP_NAME);
	if (total > skip && !strcmp(path + total - skip, STEP_NAME))
		total -= skip;
	const char *text = "";
	for (size_t i = 0; i < n && i < x->n_at; i++) {
		int64_t first;
		size_t k = paths[i] ? strlen(paths[i]) : 0;
		bool inside = k && k >= done && k < total && path[k] == '.' && !strncmp(path, paths[i], k);
		size_t to = inside ? k : total, label = label_length(path + to, &first);
		text = arena_printf(arena, "%s%.*s.%lld", text, (int)(to - done), path + done,
		                    (long long)(at[i] + (label ? first : 0)));
		done = to + label;
	}
	return arena_printf(arena, "%s%.*s", text, done < total ? (int)(total - done) : 0, path + done);
}

static bool is_taken(const struct attend *a, const char *path)
{
	for (size_t i = 0; i < a->maps.n; i++)
		if (!strcmp(a->maps.items[i].path, path))
			return true;
	return false;
}

/* Rounds of one name go on counting; two attentions of one step get a number at the end. */
static const char *unique_path(struct attend *a, const struct interp_attention *x)
{
	struct arena *arena = &a->d->arena;
	int64_t at[MAX_ROUNDS] = {0};
	size_t n = x->n_at < MAX_ROUNDS ? x->n_at : MAX_ROUNDS;
	memcpy(at, x->at, n * sizeof(*at));
	const char *path = indexed_path(arena, x, at);
	while (n && is_taken(a, path) && !arena_failed(arena)) {
		at[n - 1]++;
		path = indexed_path(arena, x, at);
	}
	const char *plain = path;
	for (int i = 2; is_taken(a, path) && !arena_failed(arena); i++)
		path = arena_printf(arena, "%s.%d", plain, i);
	return path;
}

/* --- maps ------------------------------------------------------------------------------------------- */

/* The sequence whose axis 1 has this size, or -1. The last one first: a target may have the source's dim. */
static int sequence_of(const struct maps_run *r, const struct ir_dim *size)
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

static enum attend_stack stack_of(const struct attend *a, const struct attend_map *m)
{
	const struct frontend_generate *g = frontend_generate(a->l->model);
	if (m->queries < 0 || m->keys < 0)
		return ATTEND_OTHER;
	if (m->queries != m->keys)
		return ATTEND_CROSS;
	bool is_decoder = g->kind == GENERATE_CAUSAL || (g->kind == GENERATE_SEQ2SEQ && m->queries == 1);
	return is_decoder ? ATTEND_DECODER : ATTEND_ENCODER;
}

static void take(void *user, const struct interp_attention *x)
{
	struct maps_run *r = user;
	struct attend *a = r->a;
	const struct ir_type *q = ir_type_of(x->f, x->op->operands[0]),
	                     *k = ir_type_of(x->f, x->op->operands[1]);
	struct attend_map m = {.path = unique_path(a, x),
	                       .queries = sequence_of(r, q->dims[2]),
	                       .keys = sequence_of(r, k->dims[2]),
	                       .heads = x->p->dims[1],
	                       .rows = x->p->dims[2],
	                       .columns = x->p->dims[3]};
	int64_t n = m.heads * m.rows * m.columns; /* p has as many elements */
	m.stack = stack_of(a, &m);
	m.p = ARENA_ARRAY(&a->d->arena, float, n);
	struct attend_map *slot = m.p ? ARENA_PUSH(&a->d->arena, &a->maps) : NULL;
	r->failed = r->failed || !slot;
	for (int64_t i = 0; slot && i < n; i++)
		m.p[i] = (float)x->p->data[i]; /* of sequence 0, the only one */
	if (slot)
		*slot = m;
}

/* --- the run ------------------------------------------------------------------------------------------ */

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

enum tfmc_status attend_check(const struct attend *a, const struct attend_sequence *s)
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
		           "not supported yet: attend wants an input i32[B, S], '%s' is none", s->input);
		return TFMC_INVALID;
	}
	int64_t hi = ir_dim_hi(a->l->module->dims, t->dims[1]);
	if (s->n >= 1 && (int64_t)s->n <= hi)
		return TFMC_OK;
	diag_error(&a->d->diag, in->loc, DIAG_INPUT, "input '%s' takes 1 to %lld tokens, not %zu", s->input,
	           (long long)hi, s->n);
	return TFMC_INVALID;
}

/* Sizes of the call: one sequence, as many rows as there are tokens. */
static void choose_dims(const struct maps_run *r, int64_t dims[MAX_DIMS])
{
	struct ir_dims *table = r->m->dims;
	for (size_t i = 0; i < ir_dims_count(table); i++)
		dims[i] = ir_dims_sym(table, i)->lo > 1 ? ir_dims_sym(table, i)->lo : 1;
	for (size_t i = 0; i < r->f->n_params; i++) {
		const struct attend_sequence *s = find_sequence(r->a, r->f->params[i].name);
		const struct ir_type *t = ir_type_of(r->f, r->f->params[i].value);
		for (size_t k = 0; s && k < ir_dims_count(table); k++)
			if (ir_dim_sym(table, ir_dims_sym(table, k)->name) == t->dims[1])
				dims[k] = (int64_t)s->n;
	}
}

/* Tokens, or the default; counts that are left out are filled by the interpreter. */
static enum tfmc_status make_input(const struct maps_run *r, const struct ir_param *p, const int64_t *dims,
                                   struct interp_tensor *out)
{
	const struct attend_sequence *s = find_sequence(r->a, p->name);
	const struct frontend_input *in = find_input(r->a, p->name);
	*out = (struct interp_tensor){0};
	if (!s && p->has_default)
		return TFMC_OK;
	int64_t value = 0;
	if (!s && !(in && in->has_default)) {
		diag_error(&r->a->d->diag, p->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: attend of a model whose input '%s' has no default", p->name);
		return TFMC_INVALID;
	}
	if (!s && in->default_dim && !ir_dim_eval(in->default_dim, dims, &value))
		return TFMC_INVALID;
	if (!interp_tensor_make(&r->a->d->arena, ir_type_of(r->f, p->value), dims, out))
		return TFMC_NO_MEMORY;
	int64_t n = interp_count(out);
	for (int64_t i = 0; i < n; i++)
		out->data[i] = s ? (i < (int64_t)s->n ? s->ids[i] : 0) : (double)value;
	return TFMC_OK;
}

static enum tfmc_status call(struct maps_run *r)
{
	struct driver *d = r->a->d;
	struct interp_tensor in[MAX_INPUTS], *out;
	int64_t dims[MAX_DIMS] = {0};
	if (r->f->n_params > MAX_INPUTS || ir_dims_count(r->m->dims) > MAX_DIMS) {
		diag_error(&d->diag, r->f->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: attend of a model with more than %d inputs or %d dims",
		           MAX_INPUTS, MAX_DIMS);
		return TFMC_INVALID;
	}
	choose_dims(r, dims);
	for (size_t i = 0; i < r->f->n_params; i++)
		TFMC_TRY(make_input(r, &r->f->params[i], dims, &in[i]));
	out = ARENA_ARRAY(&d->arena, struct interp_tensor, r->f->n_results + 1);
	if (!out)
		return TFMC_NO_MEMORY;
	struct interp_args args = {.dims = dims,
	                           .inputs = in,
	                           .outputs = out,
	                           .weights = &r->a->l->weights,
	                           .arena = &d->arena,
	                           .attention = take,
	                           .attention_user = r};
	TFMC_TRY(interp_run(&d->diag, r->m, r->f, &args));
	return r->failed ? TFMC_NO_MEMORY : TFMC_OK;
}

enum tfmc_status attend_run(struct attend *a)
{
	struct ir_module *m = NULL;
	const struct target *target = driver_target(a->d, a->d->options.mcpu);
	if (!target)
		return TFMC_INVALID;
	TFMC_TRY(driver_passes(a->d, a->l->module, "canonicalize,fuse-softmax,fuse-attention", target, &m));
	struct maps_run r = {.a = a, .m = m, .f = ir_find_func(m, "run")};
	enum tfmc_status st = r.f ? call(&r) : TFMC_INTERNAL;
	ir_module_destroy(m);
	if (st == TFMC_OK && !a->maps.n) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_INPUT, "the model has no attention");
		return TFMC_INVALID;
	}
	return st;
}
