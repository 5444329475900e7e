/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pipeline needs the least memory: every variant is run up to the plan,
 * the smallest arena at the largest dims wins (the object's arena is that of its
 * largest function, with the scratch of one worker), the fewest bytes of all
 * functions after that, and the earlier variant when all is equal.
 *
 * Variants: the pipeline as it is, and with feed-forward blocks in parts of
 * fewer and fewer columns (chunk-ffn); each also with q, k and v as linears of
 * their own that compute their norm again, so that attention writes over q.
 */
#include "passes/framework/pass.h"

#include <string.h>

static const int64_t columns[] = {512, 256, 128};

#define N_VARIANTS (2 * (1 + TFMC_COUNT(columns)))

struct variant {
	struct pipeline pipeline;
	bool fits;           /* it could be planned */
	int64_t most, total; /* bytes of the largest arena, of all of them; with scratch */
	int64_t scratch;     /* of one worker */
};

static size_t find_step(const struct pipeline *p, enum pass_id id)
{
	size_t i = 0;
	while (i < p->n && p->items[i].pass->id != id)
		i++;
	return i;
}

/* Parts are made before linears are merged, so that gate and up of a part are joined. */
static bool with_parts(struct arena *a, const struct pipeline *from, int64_t n_columns, struct pipeline *out)
{
	size_t at = find_step(from, PASS_merge_linear);
	at = at < from->n ? at : find_step(from, PASS_encode);
	if (at == from->n || find_step(from, PASS_chunk_ffn) < from->n)
		return false;
	for (size_t i = 0; i <= from->n; i++) {
		struct pipeline_step *step = ARENA_PUSH(a, out);
		if (step == NULL)
			return false;
		if (i != at) {
			*step = from->items[i < at ? i : i - 1];
			continue;
		}
		*step = (struct pipeline_step){.pass = pass_at(PASS_chunk_ffn)};
		for (size_t k = 0; step->pass->settings[k].name != NULL; k++)
			step->settings[k] = step->pass->settings[k].def;
		step->settings[0] = n_columns;
	}
	return true;
}

/* Without merge-linear, norms inside of every linear that reads them. */
static bool apart(struct arena *a, const struct pipeline *from, struct pipeline *out)
{
	if (find_step(from, PASS_merge_linear) == from->n)
		return false;
	for (size_t i = 0; i < from->n; i++) {
		if (from->items[i].pass->id == PASS_merge_linear)
			continue;
		struct pipeline_step *step = ARENA_PUSH(a, out);
		if (step == NULL)
			return false;
		*step = from->items[i];
		for (size_t k = 0; step->pass->id == PASS_group && step->pass->settings[k].name != NULL; k++)
			if (strcmp(step->pass->settings[k].name, "norms") == 0)
				step->settings[k] = step->pass->settings[k].hi;
	}
	return true;
}

static void be_silent(void *user, const struct diag_context *cx, const struct diag *m)
{
	(void)user;
	(void)cx;
	(void)m;
}

static void see_group(void *user, const struct ir_op *op)
{
	struct variant *v = user;
	int64_t bytes = op->code == OP_group ? ((const struct attrs_group *)op->attrs)->scratch : 0;
	v->scratch = bytes > v->scratch ? bytes : v->scratch;
}

/* What a variant needs; one that cannot be planned is none. */
static enum tfmc_status measure(struct variant *v, const struct pass_options *options,
                                const struct ir_module *in)
{
	struct diag_context cx;
	struct ir_module *out = NULL;
	const struct pass_options quiet = {.target = options->target,
	                                   .disable_rules = options->disable_rules,
	                                   .rules_text = options->rules_text,
	                                   .rules_name = options->rules_name,
	                                   .rules_len = options->rules_len};
	diag_init(&cx, be_silent, NULL);
	enum tfmc_status st = passes_run(&cx, &v->pipeline, &quiet, in, &out, NULL);
	v->fits = st == TFMC_OK && out->stage == STAGE_PLAN;
	for (size_t i = 0; v->fits && i < out->funcs.n; i++) {
		int64_t bytes = ir_dim_hi(out->dims, out->funcs.items[i]->arena);
		v->most = bytes > v->most ? bytes : v->most;
		v->total += bytes < INT64_MAX / 1024 ? bytes : INT64_MAX / 1024;
		ir_walk(out->funcs.items[i]->body, see_group, v);
	}
	v->most += v->scratch;
	if (out != NULL)
		ir_module_destroy(out);
	diag_destroy(&cx);
	return st == TFMC_NO_MEMORY ? st : TFMC_OK;
}

static const char *text_of(struct arena *a, const struct pipeline *p)
{
	struct buf text;
	buf_init(&text);
	pipeline_print(&text, p);
	const char *copy = arena_strdup(a, text.data);
	buf_destroy(&text);
	return copy;
}

static bool is_better(const struct variant *a, const struct variant *b)
{
	if (!a->fits || !b->fits)
		return a->fits && !b->fits;
	return a->most != b->most ? a->most < b->most : a->total < b->total;
}

enum tfmc_status pipeline_choose_memory(struct arena *a, struct diag_context *cx,
                                        const struct pass_options *options, const struct ir_module *in,
                                        const char *text, const char **out)
{
	struct variant variants[N_VARIANTS] = {0};
	size_t n = 1, best = 0;
	TFMC_TRY(pipeline_parse(a, cx, text, &variants[0].pipeline));
	for (size_t i = 0; i < TFMC_COUNT(columns); i++)
		if (with_parts(a, &variants[0].pipeline, columns[i], &variants[n].pipeline))
			n++;
	for (size_t i = 0, whole = n; i < whole; i++)
		if (apart(a, &variants[i].pipeline, &variants[n].pipeline))
			n++;
	for (size_t i = 0; i < n; i++) {
		TFMC_TRY(measure(&variants[i], options, in));
		best = is_better(&variants[i], &variants[best]) ? i : best;
	}
	for (size_t i = 0; options->remarks && i < n; i++)
		if (variants[i].fits)
			diag_remark(cx, LOC_NONE, "optimize=memory: %s%lld bytes for one worker with %s",
			            i == best ? "chosen: " : "", (long long)variants[i].most,
			            text_of(a, &variants[i].pipeline));
	*out = best == 0 ? text : text_of(a, &variants[best].pipeline);
	return arena_failed(a) ? TFMC_NO_MEMORY : TFMC_OK;
}
