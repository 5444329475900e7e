/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc attend: attention probabilities of every layer and head for given tokens. Reads or generates the tokens, selects
 * attentions and heads (--attentions, --layers, --heads, and as many as fit on the page), runs the model on the tokens
 * and writes one offline page (attend_page.c), and a NumPy file for each attention.
 *
 * After the passes that recognize attention, passes/graph adds the probabilities of the selected attentions as results;
 * the module is compiled and runs once. The iterations of a repeat are layers, whose index follows the repeat in the
 * path.
 * A map is the probabilities of one attention, [heads, rows, columns]: rows are queries, columns keys. A sequence is
 * the tokens of one input of the model; a stack tells whose tokens attend: the encoder's, the decoder's, or the
 * decoder's to the encoder's (cross). A probe is a result that is added to a function for a value inside of it
 * (passes/graph/probe.h).
 */
#define _POSIX_C_SOURCE 200809L

#include "frontend/driver/commands/attend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/driver/commands/generation_config.h"
#include "ir/support/utf8.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

#define PAGE_WEIGHTS_MAX (INT64_C(16) << 20) /* probabilities on a page, 2 bytes each */

/* ---- options ---- */

#define BIT(stack) (1u << (stack))

/* The stacks that a word of --attentions selects, as bits 1 << enum attend_stack; 0: no such word. */
static unsigned parse_stack(const char *word, size_t n)
{
	static const struct {
		const char *word;
		unsigned stacks;
	} words[] = {
	        {"encoder", BIT(ATTEND_ENCODER)},
	        {"decoder", BIT(ATTEND_DECODER)},
	        {"cross", BIT(ATTEND_CROSS)},
	        {"self", BIT(ATTEND_ENCODER) | BIT(ATTEND_DECODER) | BIT(ATTEND_OTHER)},
	};
	for (size_t i = 0; i < TFMC_COUNT(words); i++)
		if (strlen(words[i].word) == n && !memcmp(words[i].word, word, n))
			return words[i].stacks;
	return 0;
}

/* Parses a comma-separated list of these words and adds their bits to *out. False: not such a list. */
static bool parse_stacks(const char *text, unsigned *out)
{
	for (;;) {
		size_t n = strcspn(text, ",");
		unsigned stacks = parse_stack(text, n);
		*out |= stacks;
		text += n;
		if (!stacks || !*text++)
			return stacks != 0;
	}
}

static int compare_ints(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return x < y ? -1 : x > y;
}

/* Parses a list of ids, then sorts it and removes repetitions. False: not such a list, or empty. */
static bool parse_numbers(struct driver *d, const char *text, const int32_t **out, size_t *n_out)
{
	int32_t *items;
	size_t n, kept = 0;
	if (!parse_id_list(d, text, &items, &n) || !n)
		return false;
	qsort(items, n, sizeof(*items), compare_ints);
	for (size_t i = 0; i < n; i++)
		if (!kept || items[kept - 1] != items[i])
			items[kept++] = items[i];
	*out = items;
	*n_out = kept;
	return true;
}

/* Parses --attentions, --layers and --heads; *out stays zero (everything) for those not given. EXIT_USAGE
 * after a message. */
static enum exit_code attend_parse_selection(struct driver *d, struct attend_selection *out)
{
	const struct driver_options *o = &d->options;
	if (o->attentions && !parse_stacks(o->attentions, &out->stacks))
		return driver_usage_error(
		        d, "--attentions is a list of encoder, decoder, cross and self, not %s",
		        o->attentions);
	if (o->layers && !parse_numbers(d, o->layers, &out->layers, &out->n_layers))
		return driver_usage_error(d, "--layers is a list of numbers such as 0,1,2, not %s",
		                          o->layers);
	if (o->heads && !parse_numbers(d, o->heads, &out->heads, &out->n_heads))
		return driver_usage_error(d, "--heads is a list of numbers such as 0,1,2, not %s", o->heads);
	return EXIT_OK;
}

int64_t attend_head(const struct attend *a, int64_t h)
{
	return a->choice.n_heads ? a->choice.heads[h] : h;
}

/* ---- selection ---- */

/* The first number of a path: 3 of encoder.layers.3.self; -1: it has none. */
static int64_t layer_index(const char *path)
{
	while (*path) {
		size_t n = strcspn(path, ".");
		if (n && n < 10 && strspn(path, "0123456789") == n)
			return strtoll(path, NULL, 10);
		path += n + (path[n] != 0);
	}
	return -1;
}

/* Whether --layers and --attentions select a map. An option that is not given selects all. */
static bool is_selected(const struct attend_selection *c, const struct attend_map *m)
{
	int64_t layer = c->n_layers ? layer_index(m->path) : 0;
	bool found = !c->n_layers;
	for (size_t i = 0; i < c->n_layers; i++)
		found |= c->layers[i] == layer;
	return found && (!c->stacks || (c->stacks & BIT(m->stack)));
}

/* How many of the selected heads an attention with `all` heads has: the first ones, since they are sorted. */
static int64_t count_heads(const struct attend_selection *c, int64_t all)
{
	int64_t n = 0;
	while (n < (int64_t)c->n_heads && c->heads[n] < all)
		n++;
	return c->n_heads ? n : all;
}

/* ---- the limit of a page ---- */

/* Cuts the heads of each attention to as many as still fit on the page; cross-attention first, then decoder
 * and encoder. */
static void limit_heads_to_page(struct attend *a)
{
	static const enum attend_stack order[] = {ATTEND_CROSS, ATTEND_DECODER, ATTEND_ENCODER, ATTEND_OTHER};
	double room = (double)PAGE_WEIGHTS_MAX;
	for (size_t s = 0; s < TFMC_COUNT(order); s++)
		for (size_t i = 0; i < a->maps.n; i++) {
			struct attend_map *m = &a->maps.items[i];
			double plane = (double)m->rows * (double)m->columns;
			if (m->stack != order[s])
				continue;
			if ((double)m->heads * plane > room)
				m->heads = (int64_t)(room / plane);
			room -= (double)m->heads * plane;
		}
}

/* Cuts the selected heads until a page holds their probabilities, and warns about those left out (also
 * a->left_out, for the page). TFMC_INVALID after a diagnostic: not even one head fits. */
static enum tfmc_status limit_to_page(struct attend *a)
{
	double total = 0; /* f64: sizes come from the command line, so their product may exceed 64 bits */
	size_t n_chosen = 0, n_shown = 0, n_cut = 0;
	for (size_t i = 0; i < a->maps.n; i++) {
		const struct attend_map *m = &a->maps.items[i];
		total += (double)m->heads * (double)m->rows * (double)m->columns;
		n_chosen += m->heads > 0;
	}
	if (total <= (double)PAGE_WEIGHTS_MAX)
		return TFMC_OK;
	limit_heads_to_page(a);
	for (size_t i = 0; i < a->maps.n; i++) {
		const struct attend_map *m = &a->maps.items[i];
		n_shown += m->heads > 0;
		n_cut += m->heads > 0 && m->heads < count_heads(&a->choice, m->all_heads);
	}
	if (!n_shown) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_LIMIT,
		           "a page holds at most %lld weights, one head alone has more; --npy=DIR without "
		           "--html has no such limit",
		           (long long)PAGE_WEIGHTS_MAX);
		return TFMC_INVALID;
	}
	a->left_out =
	        arena_printf(&a->d->arena,
	                     "a page holds at most %lld weights, these are %.0f: %zu of %zu attentions "
	                     "are shown, %zu of them with fewer heads; --attentions, --layers and --heads "
	                     "choose others",
	                     (long long)PAGE_WEIGHTS_MAX, total, n_shown, n_chosen, n_cut);
	if (!a->left_out)
		return TFMC_NO_MEMORY;
	diag_warning(&a->d->diag, LOC_NONE, DIAG_LIMIT, "%s", a->left_out);
	return TFMC_OK;
}

/*
 * Removes from a->maps (p is not computed yet) the maps and heads that are not selected or, when a
 * page is written, do not fit on it. selected[i] is set for each former map that stays. TFMC_INVALID after a
 * diagnostic when none stays.
 */
static enum tfmc_status attend_select(struct attend *a, bool *selected)
{
	size_t n_chosen = 0, n = 0;
	for (size_t i = 0; i < a->maps.n; i++) {
		struct attend_map *m = &a->maps.items[i];
		m->heads = is_selected(&a->choice, m) ? count_heads(&a->choice, m->all_heads) : 0;
		n_chosen += m->heads > 0;
	}
	if (!n_chosen) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_OPTION,
		           "--attentions, --layers and --heads choose none of the %zu attentions, such as %s "
		           "with "
		           "%lld "
		           "heads",
		           a->maps.n, a->maps.items[0].path, (long long)a->maps.items[0].all_heads);
		return TFMC_INVALID;
	}
	if (a->d->options.html)
		TFMC_TRY(limit_to_page(a));
	for (size_t i = 0; i < a->maps.n; i++) {
		selected[i] = a->maps.items[i].heads > 0;
		if (selected[i])
			a->maps.items[n++] = a->maps.items[i];
	}
	a->maps.n = n;
	return TFMC_OK;
}

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

/* The path that names a map: the step's path, without the component .attention of a step without an id, and
 * with a number for a further attention of the same step. */
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

/*
 * Returns the stack of an attention: cross-attention if queries and keys are of different sequences, otherwise that
 * of their sequence. -1, rows that are not tokens, means the source (images) in a seq2seq model that has no source
 * of tokens; in every other model the result is ATTEND_OTHER.
 */
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

/* Adds the map of an attention: the sequences of its queries and keys, and its sizes in this call.
 * TFMC_INVALID after a diagnostic: a size overflows. */
static enum tfmc_status add_map(struct maps_run *r, const char *name, const struct ir_op *op)
{
	struct attend *a = r->a;
	const struct ir_type *q = ir_type_of(r->f, op->operands[0]), *k = ir_type_of(r->f, op->operands[1]);
	struct attend_map m = {.path = unique_path(a, name),
	                       .queries = find_sequence_of_size(r, q->dims[2]),
	                       .keys = find_sequence_of_size(r, k->dims[2])};
	m.stack = classify_map(a, &m);
	if (!ir_dim_eval(q->dims[1], r->dims, &m.all_heads) || !ir_dim_eval(q->dims[2], r->dims, &m.rows) ||
	    !ir_dim_eval(k->dims[2], r->dims, &m.columns)) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_LIMIT, "the sizes of attention %s exceed 64 bits",
		           m.path);
		return TFMC_INVALID;
	}
	if (!ARENA_ADDED(&a->d->arena, &a->maps, m))
		return TFMC_NO_MEMORY;
	return TFMC_OK;
}

/* Adds a map for each attention of the function (for each iteration of a repeat), then keeps those that the options
 * select; q->taken tells probe_insert which. TFMC_INVALID after a diagnostic: the model has no attention or too many,
 * one has sizes beyond 64 bits, or the options select none. */
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

/* Reads the probabilities p [1, H, S, T] that the run returned into their map; moves the selected heads to
 * the front, since all H were computed. */
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

/* Checks type and length of a sequence against its input; diagnostics point at the input. */
static enum tfmc_status attend_check_length(const struct attend *a, const struct attend_sequence *s)
{
	const struct ir_func *f = ir_find_func(a->l->module, "run");
	const struct frontend_input *in = frontend_find_input(a->l->model, s->input);
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

/* Sets r->dims of the symbol that is this axis; an axis that is a constant or an expression of symbols sets none.
 * Equal dims of a module are one object, so pointers are compared. */
static void bind_dim(struct maps_run *r, const struct ir_dim *axis, int64_t size)
{
	struct ir_dims *table = r->a->l->module->dims;
	for (size_t k = 0; k < ir_dims_count(table); k++)
		if (ir_dim_sym(table, ir_dims_sym(table, k)->name) == axis)
			r->dims[k] = size;
}

/* Sets the dims of the call from a tensor of --inputs. False after a diagnostic: wrong rank or size, or several
   sequences. An axis of constant size has that size only, others any up to their bound. */
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

/* Sets the dims of the call: those of the inputs that are given, one sequence with as many positions as
 * tokens, and the lower bounds of all others. False after a diagnostic. */
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

/* False after a diagnostic: an id is outside of the vocabulary. The object would reject it, too, but without
 * its value and position. */
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

/* Adds the tensor of one parameter of `run`: tokens, a tensor of --inputs, or the default of the model file
 * (a value or a dim). Optional inputs (lengths) are left out: the object computes them. */
static enum tfmc_status add_input(struct maps_run *r, const struct ir_param *p, struct named_tensors *inputs)
{
	const struct attend_sequence *s = find_sequence(r->a, p->name);
	const struct frontend_input *in = frontend_find_input(r->a->l->model, p->name);
	const struct ir_type *t = ir_type_of(r->f, p->value);
	int64_t dims[IR_RANK_MAX] = {0}, value = 0;
	struct named_tensor *given = tensors_find(&r->a->given, p->name);
	if (given && !s) {
		given->used = true;
		return ARENA_ADDED(&r->a->d->arena, inputs, *given) ? TFMC_OK : TFMC_NO_MEMORY;
	}
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

/* Calls `run` on the sequences and the tensors of --inputs, and reads the probabilities that it returns into
 * the maps. */
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

/* Runs the compiled model on the sequences and reads the probabilities of the selected attentions. Passes find the
 * attentions first; maps get their sizes from the dims of the call; the probed module is compiled. */
static enum tfmc_status attend_run(struct attend *a)
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

/* ---- tokens ---- */

/* The id of a token's text, or that of the unknown token; -1: neither. */
static int64_t find_token(const struct frontend_vocab *v, const char *text, size_t n)
{
	for (size_t i = 0; i < v->n; i++)
		if (strlen(v->tokens[i]) == n && !memcmp(v->tokens[i], text, n))
			return (int64_t)i;
	return v->unknown;
}

/* Appends the id of each code point: the model's tokenizer is of kind chars. TFMC_INVALID after a diagnostic. */
static enum tfmc_status append_characters(struct driver *d, struct attend_sequence *s, const char *text)
{
	size_t len = strlen(text), bad = utf8_check(text, len);
	if (!s->vocab->n) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
		           "the model has no vocabulary for the %s; give it as ids", s->name);
		return TFMC_INVALID;
	}
	if (bad < len) {
		diag_error(&d->diag, LOC_NONE, DIAG_ENCODING, "the %s is not UTF-8 from byte %zu", s->name,
		           bad);
		return TFMC_INVALID;
	}
	for (size_t n; *text; text += n) {
		uint32_t cp = 0;
		n = utf8_decode(text, strlen(text), &cp);
		int64_t id = find_token(s->vocab, text, n);
		if (id < 0) {
			diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
			           "U+%04X of the %s is not in the vocabulary", (unsigned)cp, s->name);
			return TFMC_INVALID;
		}
		TFMC_TRY(prompt_append_ids(d, &(int32_t){(int32_t)id}, 1, &s->ids));
	}
	return TFMC_OK;
}

/* A source gets the tokenizer's special tokens, which replace the model's start ids. */
static enum tfmc_status append_tokens(struct attend *a, struct attend_sequence *s, const char *text)
{
	int32_t *ids;
	uint64_t n;
	if (s->is_source && !tfmc_tokenizer_is_bare(a->d->tokenizer))
		s->ids.n = 0;
	TFMC_TRY(driver_tokenize(a->d, s->is_source ? PROMPT_SOURCE : PROMPT_TARGET, text, &ids, &n));
	return prompt_append_ids(a->d, ids, n, &s->ids);
}

/* Appends ids as they are, or the tokens of a text after the model's start ids if the sequence is generated
 * text (`appended`). Neither: the start ids alone, which generation continues. */
static enum tfmc_status read_sequence(struct attend *a, struct attend_sequence *s, const char *text,
                                      const char *ids, bool appended)
{
	const struct frontend_ids *start = &frontend_generate(a->l->model)->start;
	if (ids)
		return prompt_append_list(a->d, "attend", ids, &s->ids);
	for (size_t i = 0; appended && i < start->n; i++)
		TFMC_TRY(prompt_append_ids(a->d, &(int32_t){(int32_t)start->items[i]}, 1, &s->ids));
	return !text             ? TFMC_OK
	       : a->d->tokenizer ? append_tokens(a, s, text)
	                         : append_characters(a->d, s, text);
}

/* Reads the target from the tensor i32[1, S] of --inputs that has the name of the decoder's input. */
static enum tfmc_status append_given_target(struct attend *a, struct attend_sequence *s)
{
	struct named_tensor *v = tensors_find(&a->given, s->input);
	if (v->dtype != DT_I32 || v->rank != 2 || v->dims[0] != 1) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_INPUT, "input %s is not i32[1, S]", s->input);
		return TFMC_INVALID;
	}
	v->used = true;
	TFMC_TRY(prompt_append_ids(a->d, v->data, (uint64_t)v->count, &s->ids));
	a->sequences[a->n_sequences++] = *s;
	return TFMC_OK;
}

/* Reads the sequences of the call from the options: the source, unless --inputs gives it as features, and for
 * a seq2seq model the target. TFMC_INVALID after a diagnostic. */
static enum tfmc_status read_sequences(struct attend *a)
{
	const struct driver_options *o = &a->d->options;
	const struct frontend_generate *g = frontend_generate(a->l->model);
	const struct frontend_tokenizer *t = frontend_tokenizer_head(a->l->model);
	if (t->kind == TOKENIZER_CHARS)
		TFMC_TRY(frontend_tokenizer(a->l->model, true, &t));
	else
		TFMC_TRY(driver_open_tokenizer(a->d, a->l->model, o->prompt || o->target_text));
	struct attend_sequence source = {.name = g->kind == GENERATE_SEQ2SEQ ? "source" : "tokens",
	                                 .vocab = t->source.n ? &t->source : &t->target,
	                                 .is_source = true};
	struct attend_sequence target = {.name = "target", .vocab = &t->target, .input = g->tokens};
	bool is_pair = g->kind == GENERATE_SEQ2SEQ;
	size_t n;
	const struct frontend_input *in = frontend_inputs(a->l->model, &n);
	source.input = is_pair ? g->source : g->kind == GENERATE_CAUSAL ? g->tokens : in[0].name;
	if (!is_pair && (o->target_text || o->target_tokens)) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_OPTION, "the model has no target, only tokens");
		return TFMC_INVALID;
	}
	if (o->prompt || o->tokens) {
		TFMC_TRY(read_sequence(a, &source, o->prompt, o->tokens, g->kind == GENERATE_CAUSAL));
		TFMC_TRY(attend_check_length(a, &source));
		a->sequences[a->n_sequences++] = source;
	}
	if (!is_pair)
		return TFMC_OK;
	bool is_given = !o->target_text && !o->target_tokens && tensors_find(&a->given, g->tokens);
	if (is_given)
		return append_given_target(a, &target);
	if (a->n_sequences == 0 && !o->target_text && !o->target_tokens) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_OPTION,
		           "with a source of --inputs attend requires --target-text or --target-tokens, too");
		return TFMC_INVALID;
	}
	TFMC_TRY(read_sequence(a, &target, o->target_text, o->target_tokens, true));
	a->sequences[a->n_sequences++] = target;
	return TFMC_OK;
}

/* ---- generated tokens ---- */

static bool is_stop(const struct frontend_generate *g, int32_t id)
{
	for (size_t i = 0; i < g->stop.n; i++)
		if (g->stop.items[i] == id)
			return true;
	return false;
}

/* Appends greedily generated tokens to the last sequence: at most `steps` (0: as the model says), without the
 * stop id, and within the length that the model reads. */
static enum tfmc_status continue_tokens(struct attend *a, struct tfmc_session *s, int64_t steps)
{
	const struct frontend_generate *g = frontend_generate(a->l->model);
	const struct attend_sequence *prompt = &a->sequences[0];
	struct attend_sequence *appended = &a->sequences[a->n_sequences - 1];
	struct tfmc_constraints constraints;
	if (!generation_constraints(a->d, g, tfmc_session_record(s), &constraints))
		return TFMC_INVALID;
	struct tfmc_generate_options o = {.struct_size = sizeof(o),
	                                  .max_new_tokens = steps ? steps : g->max_new,
	                                  .constraints = &constraints};
	uint64_t n, cap = (uint64_t)g->max_len;
	int32_t *out = ARENA_ARRAY(&a->d->arena, int32_t, cap + 1);
	if (!out)
		return TFMC_NO_MEMORY;
	int status = tfmc_generate(s, &o, prompt->ids.items, prompt->ids.n, NULL, 0, out, cap, &n);
	TFMC_TRY(prompt_check_status(a->d, s, "attend", status));
	for (uint64_t i = 0; i < n && !is_stop(g, out[i]); i++)
		if ((int64_t)appended->ids.n < g->max_len)
			TFMC_TRY(prompt_append_ids(a->d, &out[i], 1, &appended->ids));
	return TFMC_OK;
}

/* Generates the target of a sequence-to-sequence model that was not given (not with --inputs), or `steps` tokens
   after a prompt. Nothing for other models and options. */
static enum tfmc_status generate_tokens(struct attend *a, int64_t steps)
{
	const struct driver_options *o = &a->d->options;
	const struct frontend_generate *g = frontend_generate(a->l->model);
	bool needs_target = g->kind == GENERATE_SEQ2SEQ && !o->target_text && !o->target_tokens &&
	                    a->n_sequences == 2 && !a->given.n;
	if (!needs_target && !(g->kind == GENERATE_CAUSAL && steps && a->n_sequences))
		return TFMC_OK;
	static const char *const entries[] = {"prefill", "step", "encode"};
	struct compiled c = {0};
	const struct entry_names called = {entries, g->kind == GENERATE_SEQ2SEQ ? 3 : 2};
	enum tfmc_status st = driver_compile_and_open(a->d, a->l, called, 1, &c);
	if (st == TFMC_OK)
		st = continue_tokens(a, c.session, steps);
	compiled_destroy(&c);
	return st;
}

/* ---- files ---- */

static enum tfmc_status write_page(struct attend *a)
{
	struct buf text;
	buf_init(&text);
	enum tfmc_status st = attend_page(a, &text);
	if (st == TFMC_OK)
		st = driver_write_output(a->d, a->d->options.html, &text);
	buf_destroy(&text);
	return st;
}

/* A NumPy array file, version 1.0: magic, header length, the header (a Python dictionary, padded so that the
 * data are 64-byte aligned), and the elements as f32, little-endian, row-major. */
static void print_npy(struct buf *out, const float *data, size_t rank, const int64_t *dims)
{
	struct buf header;
	size_t count = 1;
	buf_init(&header);
	buf_str(&header, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
	for (size_t i = 0; i < rank; i++) {
		buf_printf(&header, "%lld, ", (long long)dims[i]);
		count *= (size_t)dims[i];
	}
	buf_str(&header, "), }");
	size_t prefix = 10 + header.len + 1; /* magic, version, length; the newline at the end */
	buf_fill(&header, ' ', (64 - prefix % 64) % 64);
	buf_char(&header, '\n');
	buf_bytes(out, "\x93NUMPY\x01", 7);
	buf_char(out, 0);
	buf_char(out, (char)(header.len & 255));
	buf_char(out, (char)(header.len >> 8));
	buf_append(out, &header);
	for (size_t i = 0; i < count; i++) {
		uint32_t bits;
		memcpy(&bits, &data[i], sizeof(bits));
		buf_u32le(out, bits);
	}
	if (buf_failed(&header))
		out->failed = true;
	buf_destroy(&header);
}

/* Writes the probabilities of a map to DIR/PATH.npy, [heads, rows, columns]. */
static enum tfmc_status write_array(struct attend *a, const struct attend_map *m)
{
	const char *path = arena_printf(&a->d->arena, "%s/%s.npy", a->d->options.npy, m->path);
	const int64_t dims[] = {m->heads, m->rows, m->columns};
	struct buf bytes;
	buf_init(&bytes);
	print_npy(&bytes, m->p, TFMC_COUNT(dims), dims);
	enum tfmc_status st = driver_write_output(a->d, path, &bytes);
	buf_destroy(&bytes);
	return st;
}

/* Writes the page and the arrays, and commits them. *made: the directory of --npy was created here. */
static enum tfmc_status write_files(struct attend *a, bool *made)
{
	const struct driver_options *o = &a->d->options;
	if (o->html)
		TFMC_TRY(write_page(a));
	if (o->npy) {
		*made = !mkdir(o->npy, 0777);
		if (!*made && errno != EEXIST) {
			diag_environment_error(&a->d->diag, LOC_NONE, DIAG_FILE,
			                       "cannot make the directory %s: %s", o->npy, strerror(errno));
			return TFMC_IO;
		}
	}
	for (size_t i = 0; o->npy && i < a->maps.n; i++)
		TFMC_TRY(write_array(a, &a->maps.items[i]));
	return outputs_commit(&a->d->outputs);
}

/* Writes all outputs. On failure a directory that was created is removed. */
static enum tfmc_status write_outputs(struct attend *a)
{
	bool made = false;
	enum tfmc_status st = write_files(a, &made);
	outputs_discard(&a->d->outputs);
	if (st != TFMC_OK && made)
		(void)rmdir(a->d->options.npy);
	return st;
}

/* ---- the command ---- */

/* EXIT_USAGE after a message: there is no output, not one source, two targets, or a list that is none. */
static enum exit_code check_attend_options(struct driver *d)
{
	const struct driver_options *o = &d->options;
	const char *const lists[] = {o->tokens, o->target_tokens};
	int32_t *ids;
	size_t n;
	if (!o->html && !o->npy)
		return driver_usage_error(d, "attend requires --html=FILE or --npy=DIR");
	/* With --inputs they are optional: the source may be features. */
	if (o->inputs ? o->tokens && o->prompt : !o->tokens == !o->prompt)
		return driver_usage_error(d, "one of --prompt, --tokens is required, or --inputs");
	if (o->target_text && o->target_tokens)
		return driver_usage_error(d, "only one of --target-text, --target-tokens");
	for (size_t i = 0; i < TFMC_COUNT(lists); i++)
		if (lists[i] && !parse_id_list(d, lists[i], &ids, &n))
			return driver_usage_error(d, "a list of ids is such as 1,2,3, not %s", lists[i]);
	return EXIT_OK;
}

/* Tokens are read and, where some are missing, generated; lengths are checked again with those. IR text has neither
 * the inputs nor the tokenizer of a model file, which the tokens need. */
enum exit_code command_attend(struct driver *d)
{
	struct loaded l;
	struct attend_selection choice = {0};
	enum exit_code code = check_attend_options(d);
	if (code == EXIT_OK)
		code = attend_parse_selection(d, &choice);
	if (code != EXIT_OK)
		return code;
	if (file_ends_with(d->options.input, ".tir"))
		return driver_usage_error(d, "attend requires a model file, not IR text");
	enum tfmc_status st = driver_load(d, &l);
	struct attend a = {.d = d, .l = &l, .choice = choice};
	if (st == TFMC_OK && d->options.inputs)
		st = tensors_read(d, d->options.inputs, d->options.prefix, &a.given);
	if (st == TFMC_OK)
		st = read_sequences(&a);
	if (st == TFMC_OK)
		st = generate_tokens(&a, option_int(d->options.max_tokens, 0));
	for (size_t i = 0; st == TFMC_OK && i < a.n_sequences; i++) /* again, with generated tokens */
		st = attend_check_length(&a, &a.sequences[i]);
	if (st == TFMC_OK)
		st = attend_run(&a);
	if (st == TFMC_OK)
		st = write_outputs(&a);
	loaded_destroy(&l);
	return exit_code_of(st);
}
