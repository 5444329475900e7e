/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of passes (passes.def), the named pipelines O0 to O2, and parsing and printing of pipelines.
 */
#include "passes/framework/pass.h"

#include <string.h>

#include "ir/support/chars.h"
#include "ir/support/number.h"
#include "ir/support/strmap.h"

#define PIPELINE_STEPS_MAX 256

/*
 * Reasons for the order (phase ordering):
 *   canonicalize    first, because fusion matches canonical forms
 *   fuse-attention  matches around the masked_softmax that fuse-softmax leaves
 *   merge-heads     needs one attention per head; its merged linears are input of merge-linear
 *   shard           needs whole attention ops and separate linears; not in O2: it divides a module for ranks
 *   demand-rows     needs whole attention ops; must separate linears that need fewer rows before merge-linear
 *                   concatenates them
 *   encode          needs the final weights, and runs before functions are specialized
 *   block-logits    needs to know which linears have packed weights
 *   specialize      copies final graphs; the copies share all weights, and group may fuse them otherwise
 *   group           needs packed weights; select needs groups; plan-memory is last, because nothing after it may
 *                   change lifetimes
 * O0 has no fusion: one kernel for each op.
 */
#define O0              "encode,group{max_ops=1},select,plan-memory"
#define O1_AFTER_FUSION "encode,group,select,plan-memory"
#define O1              "canonicalize,fuse-softmax,fuse-attention," O1_AFTER_FUSION
#define WHOLE_HEADS     "canonicalize,fuse-softmax,fuse-attention,merge-heads,"
#define AFTER_HEADS     "demand-rows,merge-linear,encode,block-logits,specialize,group,select,plan-memory"
#define O2              WHOLE_HEADS AFTER_HEADS

enum {
	N_PASSES = 0
#define PASS(id, name, from, to, summary) +1
#include "passes/framework/passes.def"
};

static const struct pass_setting settings[N_PASSES][PASS_SETTINGS_MAX + 1] = {
#define SETTING(id, index, name, def, lo, hi) [PASS_##id][index] = {#name, def, lo, hi},
#include "passes/framework/passes.def"
};

static const enum pass_exactness exactness[N_PASSES] = {
#define EXACT(id, class) [PASS_##id] = EXACT_##class,
#include "passes/framework/passes.def"
};

#define PASS(id, name, from, to, summary) \
	{PASS_##id, name, summary, STAGE_##from, STAGE_##to, settings[PASS_##id]},
static const struct pass_desc passes[] = {
#include "passes/framework/passes.def"
};

const struct pass_desc *pass_at(size_t i)
{
	return i < TFMC_COUNT(passes) ? &passes[i] : NULL;
}

const struct pass_desc *pass_find(const char *name)
{
	if (strcmp(name, "strip-logits") == 0) /* of 0.1.0; accepted for one release */
		name = "block-logits";
	for (size_t i = 0; i < TFMC_COUNT(passes); i++)
		if (strcmp(passes[i].name, name) == 0)
			return &passes[i];
	return NULL;
}

enum pass_exactness pass_exactness(const struct pass_desc *pass)
{
	return exactness[pass->id];
}

int pass_setting_find(const struct pass_desc *pass, const char *name)
{
	for (int i = 0; pass->settings[i].name != NULL; i++)
		if (strcmp(pass->settings[i].name, name) == 0)
			return i;
	return -1;
}

const char *pipeline_named(const char *name)
{
	if (strcmp(name, "O0") == 0)
		return O0;
	if (strcmp(name, "O1") == 0)
		return O1;
	return strcmp(name, "O2") == 0 ? O2 : NULL;
}

/* shard and stages read attention ops with merged heads, so WHOLE_HEADS runs before them at every level, also for O0
 * and O1; the passes of the level follow. reference=0: the module of one rank, not that of all ranks. */
const char *pipeline_of_ranks(struct arena *a, const char *name, int64_t ranks, int64_t stages)
{
	const char *before = WHOLE_HEADS, *after = AFTER_HEADS;
	if (strcmp(name, "O0") == 0)
		after = O0;
	else if (strcmp(name, "O1") == 0)
		after = O1_AFTER_FUSION;
	if (ranks > 1)
		before = arena_printf(a, "%sshard{ranks=%lld reference=0},", before, (long long)ranks);
	if (stages > 1)
		before = arena_printf(a, "%sstages{ranks=%lld stages=%lld},", before, (long long)ranks,
		                      (long long)stages);
	return arena_printf(a, "%s%s", before, after);
}

/* ---- reading ---- */

struct reader {
	struct arena *arena;
	struct diag_context *cx;
	const char *at;
	struct pipeline *out;
};

static enum tfmc_status fail(struct reader *r, const char *what, const char *name)
{
	diag_error(r->cx, LOC_NONE, DIAG_PIPELINE, "%s '%s'", what, name);
	return TFMC_INVALID;
}

static void skip_blanks(struct reader *r)
{
	while (*r->at == ' ')
		r->at++;
}

/* The next word of letters, digits, '_' and '-'; may be empty. */
static const char *read_word(struct reader *r)
{
	skip_blanks(r);
	const char *from = r->at;
	while (char_is_word(*r->at) || *r->at == '-')
		r->at++;
	const char *word = arena_strndup(r->arena, from, (size_t)(r->at - from));
	skip_blanks(r);
	return word;
}

/* Parses `name=value` and stores it in the step, in the position of its setting. fail() appends the name or value in
 * quotes to the message. */
static enum tfmc_status read_setting(struct reader *r, struct pipeline_step *step)
{
	const struct pass_setting *s = step->pass->settings;
	const char *name = read_word(r);
	int64_t v;
	size_t i = 0;

	while (s[i].name != NULL && strcmp(s[i].name, name) != 0)
		i++;
	if (s[i].name == NULL)
		return fail(r, arena_printf(r->arena, "the pass %s has no setting", step->pass->name), name);
	if (*r->at != '=')
		return fail(r, "a value is missing for the setting", name);
	r->at++;
	const char *value = read_word(r);
	if (!number_parse_i64(value, strlen(value), &v) || v < s[i].lo || v > s[i].hi) {
		const char *what =
		        arena_printf(r->arena, "the setting %s takes a number from %lld to %lld, not", name,
		                     (long long)s[i].lo, (long long)s[i].hi);
		return fail(r, what, value);
	}
	step->settings[i] = v;
	return TFMC_OK;
}

/* Parses the settings of a pass, separated by blanks, in braces: `{a=1 b=2}`; without '{' the defaults remain. */
static enum tfmc_status read_settings(struct reader *r, struct pipeline_step *step)
{
	if (*r->at != '{')
		return TFMC_OK;
	r->at++;
	skip_blanks(r);
	while (*r->at >= 'a' && *r->at <= 'z')
		TFMC_TRY(read_setting(r, step));
	if (*r->at != '}')
		return fail(r, "expected '}' before", r->at);
	r->at++;
	skip_blanks(r);
	return TFMC_OK;
}

void pass_report_unknown(struct diag_context *cx, const char *what, const char *name)
{
	const char *names[TFMC_COUNT(passes)];
	struct arena scratch;
	arena_init(&scratch);
	for (size_t i = 0; i < TFMC_COUNT(passes); i++)
		names[i] = passes[i].name;
	diag_error(cx, LOC_NONE, DIAG_PIPELINE, "%sthere is no pass '%s'%s", what, name,
	           did_you_mean_or_known(&scratch, name, names, TFMC_COUNT(passes)));
	arena_destroy(&scratch);
}

static enum tfmc_status read_steps(struct reader *r, bool may_name);

/* Parses one pass with its settings, or (may_name) the name of a pipeline, which is expanded: a pipeline names
 * passes only. */
static enum tfmc_status read_step(struct reader *r, bool may_name)
{
	const char *name = read_word(r);
	const char *text = may_name ? pipeline_named(name) : NULL;
	if (text != NULL) {
		struct reader inner = *r;
		inner.at = text;
		return read_steps(&inner, false);
	}
	const struct pass_desc *pass = pass_find(name);
	if (pass == NULL) {
		pass_report_unknown(r->cx, "", name);
		return TFMC_INVALID;
	}
	if (r->out->n >= PIPELINE_STEPS_MAX)
		return fail(r, "too many passes at", name);
	struct pipeline_step *step = ARENA_PUSH(r->arena, r->out);
	if (step == NULL)
		return TFMC_NO_MEMORY;
	step->pass = pass;
	for (size_t i = 0; pass->settings[i].name != NULL; i++)
		step->settings[i] = pass->settings[i].def;
	return read_settings(r, step);
}

/* Parses a comma-separated list up to the end of the string; the empty one is the empty pipeline. */
static enum tfmc_status read_steps(struct reader *r, bool may_name)
{
	skip_blanks(r);
	if (*r->at == '\0')
		return TFMC_OK;
	for (;;) {
		TFMC_TRY(read_step(r, may_name));
		if (*r->at == '\0')
			return TFMC_OK;
		if (*r->at != ',')
			return fail(r, "expected ',' before", r->at);
		r->at++;
	}
}

enum tfmc_status pipeline_parse(struct arena *a, struct diag_context *cx, const char *text,
                                struct pipeline *out)
{
	struct reader r = {a, cx, text, out};
	*out = (struct pipeline){0};
	return read_steps(&r, true);
}

void pipeline_print(struct buf *out, const struct pipeline *p)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct pipeline_step *step = &p->items[i];
		const struct pass_setting *s = step->pass->settings;
		bool any = false;
		buf_printf(out, "%s%s", i > 0 ? "," : "", step->pass->name);
		for (size_t k = 0; s[k].name != NULL; k++) {
			if (step->settings[k] == s[k].def)
				continue;
			buf_printf(out, "%s%s=%lld", any ? " " : "{", s[k].name,
			           (long long)step->settings[k]);
			any = true;
		}
		buf_str(out, any ? "}" : "");
	}
}
