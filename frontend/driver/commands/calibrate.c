/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc calibrate: runs the model as stored on texts and collects statistics of the inputs of its matrices as a
 * profile. The compiled model returns sums over the rows of a call; sums of calls are added in f64 in the order of
 * the texts, so the result does not depend on the number of workers.
 *
 * Texts are fed as by `score`: after the start ids, without the last id. Those longer than LONGEST ids, or than the
 * model reads, are cut, and each chunk begins with the start ids; sources and targets of sequence-to-sequence models
 * are not cut. Models that do not generate read the whole text with the special tokens of its tokenizer.
 *
 * A calibration profile holds statistics of the inputs of each matrix, which quantization reads to weight errors (an
 * importance matrix).
 *
 * It is a safetensors file with one F32 tensor for each parameter W [N, K] that multiplies rows x of the model, y = x
 * W^T. Its name is the path of the parameter with the indices of repeats, as in weights.map, and the word inputs
 * ("layers.3.self.attention.q.weight.inputs"). Its shape is [2, K], or [E, 2, K] for a parameter of E experts. Row 0
 * has the means of x(k)^2 over all rows x that were multiplied with W (for an expert: that were routed to it; for a
 * parameter that is used in several places: over the rows of all of them), row 1 the means of x(k).
 * ir/weights/quants.h tells how they are used. All zeros: the matrix was not used. Parameters that are not multiplied
 * with rows (embedding tables that are only looked up, norms, biases) have no tensor.
 *
 * The reader is frontend/lower/profile.c. It rejects, with the location: a file without tensors, a tensor whose type
 * or shape differs from its parameter's, values that are negative, infinite or NaN, and names that the model does not
 * have (the profile of another model). A matrix without a tensor is a warning: its columns count equally.
 */
#include <math.h>
#include <string.h>

#include "frontend/driver/commands/prompts.h"

/* ---- the profile ---- */

/* Sums over all calls so far: for each parameter `rows` rows of K sums of squares, K sums and a count, in f64. */
struct profile {
	struct profile_entry {
		const char *name;
		int64_t rows, k;
		double *sums; /* [rows, 2 k + 1] */
	} * items;
	size_t n, cap;
	struct strmap numbers; /* name to its number plus 1 */
};

/* Allocates all parameters of the list, zeroed. False: no memory. The list has a parameter once for each of its
   uses. */
static bool profile_begin(struct driver *d, const struct probe_columns *columns, struct profile *out)
{
	*out = (struct profile){0};
	strmap_init(&out->numbers, &d->arena);
	for (size_t i = 0; i < columns->n; i++) {
		const struct probe_column *c = &columns->items[i];
		if (strmap_get(&out->numbers, c->weight))
			continue;
		struct profile_entry *e = ARENA_PUSH(&d->arena, out);
		double *sums = ARENA_ARRAY(&d->arena, double, (size_t)c->rows *(size_t)(2 * c->k + 1));
		if (!e || !sums || !strmap_set(&out->numbers, c->weight, (void *)(uintptr_t)out->n))
			return false;
		*e = (struct profile_entry){.name = c->weight, .rows = c->rows, .k = c->k, .sums = sums};
	}
	return true;
}

/* Adds the results of a call, which have the names of the list. TFMC_INVALID after a diagnostic: a sum is not finite.
   The sums of c->weight are the `rows` rows from c->first on. */
static enum tfmc_status profile_add(struct driver *d, const struct probe_columns *columns,
                                    const struct named_tensors *results, struct profile *p)
{
	for (size_t i = 0; i < columns->n; i++) {
		const struct probe_column *c = &columns->items[i];
		const struct named_tensor *t = tensors_find(results, c->result);
		struct profile_entry *e =
		        &p->items[(size_t)(uintptr_t)strmap_get(&p->numbers, c->weight) - 1];
		int64_t row = 2 * c->k + 1, n = c->rows * row;
		if (!t || e->k != c->k || e->rows != c->rows || t->count < (c->first + c->rows) * row)
			return TFMC_INTERNAL;
		const float *sums = (const float *)t->data + c->first * row;
		for (int64_t j = 0; j < n; j++) {
			if (!isfinite(sums[j])) {
				diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
				           "calibrate: an input of %s is NaN or infinite, or its square is",
				           e->name);
				return TFMC_INVALID;
			}
			e->sums[j] += (double)sums[j];
		}
	}
	return TFMC_OK;
}

/* Writes the means of all sums, in the order in which the model uses the parameters. A parameter without rows gets
 * zeros. */
static enum tfmc_status profile_write(struct driver *d, const struct profile *p, const char *path)
{
	struct named_tensors out = {0};
	for (size_t i = 0; i < p->n; i++) {
		const struct profile_entry *e = &p->items[i];
		const int64_t dims[] = {e->rows, 2, e->k};
		const char *name = arena_printf(&d->arena, "%s" FRONTEND_INPUTS, e->name);
		struct named_tensor *t = tensors_add(d, &out, name, DT_F32, e->rows > 1 ? 3 : 2,
		                                     e->rows > 1 ? dims : dims + 1);
		if (!t)
			return TFMC_NO_MEMORY;
		for (int64_t r = 0; r < e->rows; r++) {
			const double *sums = e->sums + r * (2 * e->k + 1), n = sums[2 * e->k];
			for (int64_t j = 0; j < 2 * e->k; j++)
				((float *)t->data)[r * 2 * e->k + j] = n > 0 ? (float)(sums[j] / n) : 0;
		}
	}
	return tensors_write(d, path, &out);
}

#define LONGEST 512 /* ids of one call, which bounds its arena */

struct calibration {
	struct driver *d;
	struct texts texts;
	struct loaded loaded;
	struct compiled compiled;
	struct caller caller;
	struct probe_columns columns;
	struct profile profile;
	const struct frontend_input *tokens, *source; /* source: NULL when there is none */
	int64_t longest;                              /* ids of tokens in one call */
	struct ids start;
	int64_t n_calls;
};

/* ---- inputs ---- */

/* Finds the inputs for tokens and for the source. TFMC_INVALID after a diagnostic: one that is read as ids is
 * not [B, S]. */
static enum tfmc_status find_inputs(struct calibration *c)
{
	const struct frontend_model *m = c->loaded.model;
	const struct frontend_generate *g = frontend_generate(m);
	c->tokens = frontend_find_input(m, g->tokens);
	c->source = g->source ? frontend_find_input(m, g->source) : NULL;
	if (c->tokens && c->tokens->rank == 2 &&
	    (!c->source || !c->texts.reads_source || c->source->rank == 2))
		return TFMC_OK;
	diag_error(&c->d->diag, LOC_NONE, DIAG_INPUT, "calibrate: '%s' reads no rows of ids",
	           c->d->options.input);
	return TFMC_INVALID;
}

/* Returns the upper bound of an axis of an input of run, at most LONGEST. */
static int64_t max_axis_size(struct calibration *c, const char *name, uint64_t axis)
{
	const struct tfmc_record *r = c->compiled.model.record;
	int64_t run = tfmc_entry_find(r, "run"), bound = LONGEST;
	int64_t *dims = ARENA_ARRAY(&c->d->arena, int64_t, r->n_dims + 1);
	for (uint64_t i = 0; dims && i < r->n_dims; i++)
		dims[i] = tfmc_record_dim_at(r, i)->hi;
	for (uint64_t i = 0; dims && run >= 0 && i < tfmc_entry_at(r, run)->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(r, run, i);
		if (!strcmp(tfmc_record_text(r, t->name), name) && axis < t->rank)
			bound = tfmc_tensor_size(r, t, axis, dims);
	}
	return bound < LONGEST ? bound : LONGEST;
}

/* Adds the input `name`, i32 [1, before->n + n]: the ids of `before`, then n ids. */
static enum tfmc_status add_ids(struct calibration *c, struct named_tensors *in, const char *name,
                                const struct ids *before, const int32_t *ids, size_t n)
{
	const int64_t dims[] = {1, (int64_t)(before->n + n)};
	struct named_tensor *t = tensors_add(c->d, in, name, DT_I32, 2, dims);
	if (!t)
		return TFMC_NO_MEMORY;
	if (before->n)
		memcpy(t->data, before->items, before->n * sizeof(*ids));
	if (n)
		memcpy((int32_t *)t->data + before->n, ids, n * sizeof(*ids));
	return TFMC_OK;
}

/* Adds one row of the features as a batch of one. */
static enum tfmc_status add_feature_row(struct calibration *c, struct named_tensors *in, int64_t row)
{
	const struct named_tensor *all = c->texts.rows;
	int64_t dims[IR_RANK_MAX];
	memcpy(dims, all->dims, sizeof(dims));
	dims[0] = 1;
	struct named_tensor *t = tensors_add(c->d, in, c->source->name, all->dtype, all->rank, dims);
	if (!t)
		return TFMC_NO_MEMORY;
	size_t bytes = (size_t)t->count * (size_t)ir_dtype_bytes(t->dtype);
	memcpy(t->data, (const char *)all->data + (size_t)row * bytes, bytes);
	return TFMC_OK;
}

/* Adds the encoder input of a text: a row of features, or ids. A decoder has none. */
static enum tfmc_status add_source(struct calibration *c, const struct text *text, struct named_tensors *in)
{
	if (text->row >= 0)
		return add_feature_row(c, in, text->row);
	const struct ids none = {0};
	return c->texts.reads_source
	               ? add_ids(c, in, c->source->name, &none, text->source.items, text->source.n)
	               : TFMC_OK;
}

/* ---- calls ---- */

/* Calls the model on the start ids and n ids of a text, and adds the column sums that it returns to the
 * profile. */
static enum tfmc_status run_chunk(struct calibration *c, const struct text *text, const int32_t *ids,
                                  size_t n)
{
	struct named_tensors in = {0}, out = {0};
	struct arena_mark mark = arena_mark(&c->d->arena);
	TFMC_TRY(add_source(c, text, &in));
	TFMC_TRY(add_ids(c, &in, c->tokens->name, &c->start, ids, n));
	TFMC_TRY(caller_run(&c->caller, "run", &in, &out));
	TFMC_TRY(profile_add(c->d, &c->columns, &out, &c->profile));
	arena_release(&c->d->arena, mark);
	c->n_calls++;
	return TFMC_OK;
}

/* text_fn: feeds the ids of a text, but the last, in chunks that fit a call (the head of this file tells
 * which). */
static enum tfmc_status run_text(void *user, const struct text *text)
{
	struct calibration *c = user;
	size_t n = text->ids.n - (c->texts.kind != GENERATE_NONE && text->ids.n > 0), at = 0;
	size_t max_chunk = (size_t)c->longest > c->start.n ? (size_t)c->longest - c->start.n : 1;
	if (c->texts.kind == GENERATE_SEQ2SEQ) /* a source belongs to its whole target */
		max_chunk = n;
	if (n + c->start.n == 0)
		return TFMC_OK;
	do {
		size_t n_chunk = n - at < max_chunk ? n - at : max_chunk;
		TFMC_TRY(run_chunk(c, text, text->ids.items + at, n_chunk));
		at += n_chunk;
	} while (at < n);
	return TFMC_OK;
}

/* Opens a session with memory for the longest calls; the inputs serve for their shapes only. */
static enum tfmc_status open_longest_session(struct calibration *c)
{
	const struct ids none = {0};
	struct named_tensors in = {0};
	struct arena_mark mark = arena_mark(&c->d->arena);
	size_t n = (size_t)c->longest;
	int32_t *zeros = ARENA_ARRAY(&c->d->arena, int32_t, LONGEST);
	if (!zeros)
		return TFMC_NO_MEMORY;
	TFMC_TRY(add_ids(c, &in, c->tokens->name, &none, zeros, n));
	if (c->texts.reads_source)
		TFMC_TRY(add_ids(c, &in, c->source->name, &none, zeros,
		                 (size_t)max_axis_size(c, c->source->name, 1)));
	if (c->texts.rows)
		TFMC_TRY(add_feature_row(c, &in, 0));
	TFMC_TRY(caller_open_session(c->d, &c->compiled, "run", &in));
	arena_release(&c->d->arena, mark);
	return TFMC_OK;
}

/*
 * Loads the model unrounded, because the statistics serve to quantize its matrices; replaces the module by one that
 * returns the column sums of their inputs (probes); compiles it and opens a session for the longest call. The record's
 * n_start may be -1: no start ids.
 */
static enum tfmc_status open_model(struct calibration *c)
{
	static const char *const run[] = {"run"};
	struct driver *d = c->d;
	struct probe_request q = {.cx = &d->diag, .arena = &d->arena, .functions = run, .n_functions = 1};
	d->is_unrounded = true;
	TFMC_TRY(driver_load(d, &c->loaded));
	TFMC_TRY(texts_open(&c->texts, &c->loaded));
	TFMC_TRY(find_inputs(c));
	c->loaded.plain = c->loaded.module;
	TFMC_TRY(probe_columns(&q, c->loaded.plain, &c->loaded.module, &c->columns));
	TFMC_TRY(driver_compile_jit(d, &c->loaded, (struct entry_names){run, 1}, &c->compiled));
	c->longest = max_axis_size(c, c->tokens->name, 1);
	TFMC_TRY(open_longest_session(c));
	const struct tfmc_record *r = c->compiled.model.record;
	c->texts.record = r;
	c->caller = (struct caller){.d = d,
	                            .session = c->compiled.session,
	                            .record = r,
	                            .module = c->loaded.module,
	                            .weights = &c->loaded.weights};
	if (!profile_begin(d, &c->columns, &c->profile))
		return TFMC_NO_MEMORY;
	return prompt_append_record_ids(d, r, r->start, r->n_start > 0 ? r->n_start : 0, &c->start);
}

/* Without a call all statistics would be zeros, which mean unused matrices: an error. */
enum exit_code command_calibrate(struct driver *d)
{
	struct calibration c = {.d = d, .texts = {.d = d, .command = "calibrate", .accepts_any = true}};
	enum exit_code usage = texts_check_options(d);
	if (usage != EXIT_OK)
		return usage;
	if (!d->options.output)
		return driver_usage_error(d, "calibrate requires -o FILE");
	enum tfmc_status st = open_model(&c);
	if (st == TFMC_OK)
		st = texts_each(&c.texts, run_text, &c);
	if (st == TFMC_OK && c.n_calls == 0) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "calibrate: the texts have no ids");
		st = TFMC_INVALID;
	}
	if (st == TFMC_OK)
		st = profile_write(d, &c.profile, d->options.output);
	compiled_destroy(&c.compiled);
	loaded_destroy(&c.loaded);
	return exit_code_of(st);
}
