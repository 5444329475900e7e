/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc_random [--from SEED] [--count N] [--rules FILE] [--print SEED]: fuzzing of passes. Random modules (odd
 * seeds: Transformers, even seeds: programs of any op) run through random pipelines. The result must verify, parse
 * back to the same text, and compute what the module computed; decoding is compared over several calls that share
 * a KV cache. Prints failing seeds with their pipelines. Exits with 1 if there are any, or if a pass was never
 * applied in 500 seeds. --rules adds rewrite rules (a wrong one must be found).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/core/case.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/random/random_transformer.h"
#include "tests/support/random/rng.h"

#define TOLERANCE    1e-4 /* relative to the largest result; fused ops round less often */
#define STEPS_MAX    8    /* random passes on the graph */
#define FAILURES_MAX 5
#define CALLS        3 /* of decode */

struct tester {
	struct arena arena; /* of one seed */
	struct buf log;
	struct diag_context cx;
	uint64_t seed;
	struct rng rng;
	const char *pipeline;
	struct ir_module *before, *after;
	char *rules;         /* text of --rules; NULL: none */
	uint64_t hash;       /* of the module before the running pass */
	int64_t runs[64];    /* of every pass */
	int64_t changes[64]; /* applications of passes that have fuel; of others, modules that they changed */
	size_t failures;
};

static bool report_failure(struct tester *t, const char *what)
{
	t->failures++;
	printf("seed %" PRIu64 ": %s\n  pipeline: %s\n%s%s", t->seed, what, t->pipeline,
	       t->log.len > 0 ? t->log.data : "", t->log.len > 0 ? "\n" : "");
	return false;
}

/* ---- module and pipeline ---- */

static struct ir_module *parse(struct tester *t, const char *text, size_t len)
{
	struct ir_module *m = NULL;
	if (ir_parse(&t->cx, "random.tir", text, len, &m) != TFMC_OK || ir_verify(m, &t->cx) != TFMC_OK) {
		ir_module_destroy(m);
		return NULL;
	}
	return m;
}

static struct ir_module *make_module(struct tester *t)
{
	const struct random_options options = {.n_ops = 8 + (size_t)(t->seed % 30), .smooth = true};
	struct buf text;
	if (t->seed % 2 == 0)
		return random_module(&t->cx, t->seed, &options);
	buf_init(&text);
	random_transformer(&text, t->seed, true);
	struct ir_module *m = parse(t, text.data, text.len);
	buf_destroy(&text);
	return m;
}

/* stages makes the module of one stage, which computes something else. */
static bool keeps_meaning(const struct pass_desc *pass)
{
	return pass->id != PASS_stages;
}

/* Random settings of a pass. Without `reference` shard makes the module of one rank, which computes something else. */
static void add_step(struct tester *t, struct buf *out, const struct pass_desc *pass)
{
	bool any = false;
	buf_printf(out, "%s%s", out->len > 0 ? "," : "", pass->name);
	for (size_t i = 0; i < PASS_SETTINGS_MAX && pass->settings[i].name != NULL; i++) {
		const struct pass_setting *s = &pass->settings[i];
		if (!rng_chance(&t->rng, 50) || !strcmp(s->name, "reference"))
			continue;
		int64_t hi = s->hi - s->lo > 40 ? s->lo + 40 : s->hi;
		buf_printf(out, "%s%s=%" PRId64, any ? " " : "{", s->name, rng_between(&t->rng, s->lo, hi));
		any = true;
	}
	buf_str(out, any ? "}" : "");
}

/* Graph passes in random order, some repeatedly; then, mostly, the remaining passes in the order of the table. */
static void make_pipeline(struct tester *t, struct buf *out)
{
	const struct pass_desc *graph[64];
	size_t n = 0;
	for (size_t i = 0; pass_at(i) != NULL && n < TFMC_COUNT(graph); i++)
		if (pass_at(i)->from == STAGE_GRAPH && pass_at(i)->to == STAGE_GRAPH &&
		    keeps_meaning(pass_at(i)))
			graph[n++] = pass_at(i);
	if (rng_chance(&t->rng, 30))
		buf_str(out, rng_chance(&t->rng, 80) ? "O2" : "O1");
	for (int64_t steps = out->len > 0 ? 0 : rng_between(&t->rng, 1, STEPS_MAX); steps > 0; steps--)
		add_step(t, out, graph[rng_below(&t->rng, (int64_t)n)]);
	if (out->data[0] == 'O' || rng_chance(&t->rng, 30))
		return;
	for (size_t i = 0; pass_at(i) != NULL; i++)
		if (pass_at(i)->to != STAGE_GRAPH ||
		    (pass_at(i)->id == PASS_encode && rng_chance(&t->rng, 80)))
			add_step(t, out, pass_at(i));
}

/* ---- comparing ---- */

static bool compare(struct tester *t, const char *function, const struct interp_tensor *actual,
                    const struct interp_tensor *expected)
{
	const char *why = random_compare(&t->arena, actual, expected, TOLERANCE);
	return why == NULL || report_failure(t, arena_printf(&t->arena, "@%s: %s", function, why));
}

/* Compares a call of a function without state, with random inputs. */
static bool compare_call(struct tester *t, const char *name)
{
	struct random_call a, b;
	const struct ir_func *f = ir_find_func(t->before, name), *g = ir_find_func(t->after, name);
	if (g == NULL || !random_call_make(&t->arena, t->before, f, t->seed, &a) ||
	    random_call_run(&t->cx, t->before, f, &t->arena, &a) != TFMC_OK)
		return report_failure(t, "the module itself does not run");
	g = ir_select_case(t->after, g, a.dims);
	b = a;
	b.outputs = ARENA_ARRAY(&t->arena, struct interp_tensor, a.n_outputs + 1);
	if (b.outputs == NULL || random_call_run(&t->cx, t->after, g, &t->arena, &b) != TFMC_OK)
		return report_failure(t, "the result does not run");
	for (size_t i = 0; i < a.n_outputs; i++)
		if (!compare(t, name, &b.outputs[i], &a.outputs[i]))
			return false;
	return true;
}

struct decoding {
	const struct ir_module *m;
	const struct ir_func *f;
	struct interp_state *state;
	struct interp_tensor outputs[2]; /* logits, past */
};

static struct decoding begin_decoding(struct tester *t, const struct ir_module *m, int64_t batch)
{
	return (struct decoding){
	        m, ir_find_func(m, "decode"), interp_state_create(&t->arena, m, batch), {{0}}};
}

/* Ids, lengths and past; parameters in the order of random_transformer. */
static bool make_inputs(struct tester *t, const struct decoding *d, const int64_t *dims,
                        const struct interp_tensor *past, struct interp_tensor *in)
{
	for (size_t i = 0; i < 3; i++) {
		const struct ir_param *p = &d->f->params[i];
		if (!interp_tensor_make(&t->arena, ir_type_of(d->f, p->value), dims, &in[i]))
			return false;
		for (int64_t k = 0; k < interp_count(&in[i]); k++)
			in[i].data[k] = i == 0               ? (double)rng_below(&t->rng, p->below)
			                : i == 1             ? (double)rng_between(&t->rng, 0, dims[1])
			                : past->data != NULL ? past->data[k]
			                                     : 0;
	}
	return true;
}

static bool run_decode(struct tester *t, struct decoding *d, const int64_t *dims,
                       const struct interp_tensor *in)
{
	const struct interp_args args = {
	        .dims = dims, .inputs = in, .outputs = d->outputs, .state = d->state, .arena = &t->arena};
	return interp_run(&t->cx, d->m, ir_select_case(d->m, d->f, dims), &args) == TFMC_OK ||
	       report_failure(t, "@decode does not run");
}

/* Compares several calls that share a KV cache: some rows, one row, some rows. */
static bool compare_decoding(struct tester *t)
{
	int64_t dims[2] = {rng_between(&t->rng, 1, 4), 0};
	struct decoding a = begin_decoding(t, t->before, dims[0]), b = begin_decoding(t, t->after, dims[0]);
	for (int i = 0; i < CALLS; i++) {
		struct interp_tensor in[3];
		dims[1] = i == 1 ? 1 : rng_between(&t->rng, 1, (RANDOM_TRANSFORMER_ROWS - 1) / 2);
		if (!make_inputs(t, &a, dims, &a.outputs[1], in) || !run_decode(t, &a, dims, in) ||
		    !run_decode(t, &b, dims, in))
			return false;
		if (!compare(t, "decode", &b.outputs[0], &a.outputs[0]) ||
		    !compare(t, "decode", &b.outputs[1], &a.outputs[1]))
			return false;
	}
	return true;
}

/* ---- one seed ---- */

/* The printed result parses back to the same text. */
static bool reads_back(struct tester *t)
{
	struct buf text, again;
	buf_init(&text);
	buf_init(&again);
	ir_print(&text, &t->cx, t->after);
	struct ir_module *m = parse(t, text.data, text.len);
	if (m != NULL)
		ir_print(&again, &t->cx, m);
	bool ok = m != NULL && text.len == again.len && memcmp(text.data, again.data, text.len) == 0;
	ir_module_destroy(m);
	buf_destroy(&text);
	buf_destroy(&again);
	return ok || report_failure(t, "the result does not read back");
}

static bool count_change(void *user, const char *pass, const struct ir_module *m)
{
	struct tester *t = user;
	uint64_t hash = ir_structure_hash(m);
	enum pass_id id = pass_find(pass)->id;
	t->runs[id]++;
	if (pass_setting_find(pass_at(id), "fuel") < 0)
		t->changes[id] += hash != t->hash;
	t->hash = hash;
	return true;
}

/* Applications, not changes of the module: a pass also drops dead ops, which does not show that it was applied. */
static void count_application(void *user, const char *pass, int64_t number, const char *what,
                              struct ir_loc loc)
{
	struct tester *t = user;
	(void)number;
	(void)what;
	(void)loc;
	t->changes[pass_find(pass)->id] += pass_setting_find(pass_find(pass), "fuel") >= 0;
}

/* Runs the pipeline into t->after. */
static bool run_passes(struct tester *t)
{
	const struct pass_options options = {
	        .target = target_find("x86-64-v3"),
	        .rules_text = t->rules,
	        .rules_name = "--rules",
	        .rules_len = t->rules != NULL ? strlen(t->rules) : 0,
	        .sink = {.after = count_change, .applied = count_application, .user = t}};
	struct pipeline p;
	t->hash = ir_structure_hash(t->before);
	if (pipeline_parse(&t->arena, &t->cx, t->pipeline, &p) != TFMC_OK ||
	    passes_run(&t->cx, &p, &options, t->before, &t->after, NULL) != TFMC_OK)
		return report_failure(t, "the passes fail");
	return true;
}

static bool check_module(struct tester *t)
{
	if (t->before == NULL)
		return report_failure(t, "there is no module");
	if (!run_passes(t) || !reads_back(t))
		return false;
	if (t->seed % 2 == 0)
		return compare_call(t, "f");
	return compare_call(t, "run") && compare_decoding(t);
}

static void check_seed(struct tester *t, uint64_t seed)
{
	struct buf pipeline;
	t->seed = seed;
	t->rng = rng_seed(seed ^ UINT64_C(0x5851f42d4c957f2d));
	t->before = t->after = NULL;
	arena_init(&t->arena);
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
	buf_init(&pipeline);
	make_pipeline(t, &pipeline);
	t->pipeline = pipeline.data;
	t->before = make_module(t);
	(void)check_module(t);
	ir_module_destroy(t->before);
	ir_module_destroy(t->after);
	buf_destroy(&pipeline);
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
	arena_destroy(&t->arena);
}

static void print_seed(struct tester *t, uint64_t seed)
{
	struct buf text;
	t->seed = seed;
	arena_init(&t->arena);
	diag_init(&t->cx, diag_render_text, &t->log);
	buf_init(&text);
	struct ir_module *m = make_module(t);
	if (m != NULL)
		ir_print(&text, &t->cx, m);
	fputs(text.data != NULL ? text.data : "", stdout);
	ir_module_destroy(m);
	buf_destroy(&text);
	diag_destroy(&t->cx);
	arena_destroy(&t->arena);
}

static char *read_file(const char *path)
{
	struct buf text;
	char block[4096];
	size_t n;
	FILE *f = fopen(path, "rb");
	buf_init(&text);
	while (f != NULL && (n = fread(block, 1, sizeof(block), f)) > 0)
		buf_bytes(&text, block, n);
	if (f == NULL || fclose(f) != 0 || text.len == 0) {
		fprintf(stderr, "tfmc_random: cannot read %s\n", path);
		exit(2);
	}
	buf_char(&text, '\0');
	return text.data;
}

/* Prints the last line. False if something failed or a pass was never applied. */
static bool summarize(const struct tester *t, uint64_t from, uint64_t count)
{
	bool ok = t->failures == 0;
	printf("seeds %" PRIu64 " to %" PRIu64 ": %zu failures; runs of passes and changes by them:", from,
	       from + count - 1, t->failures);
	for (size_t i = 0; pass_at(i) != NULL; i++) {
		enum pass_id id = pass_at(i)->id;
		printf(" %s %" PRId64 "/%" PRId64, pass_at(i)->name, t->runs[id], t->changes[id]);
		ok = ok && (count < 500 || t->changes[id] > 0 || !keeps_meaning(pass_at(i)));
	}
	putchar('\n');
	return ok;
}

int main(int argc, char **argv)
{
	struct tester t = {0};
	uint64_t from = 1, count = 500;
	for (int i = 1; i + 1 < argc; i += 2) {
		const char *value = argv[i + 1];
		if (strcmp(argv[i], "--print") == 0) {
			print_seed(&t, strtoull(value, NULL, 10));
			return 0;
		}
		if (strcmp(argv[i], "--from") == 0)
			from = strtoull(value, NULL, 10);
		if (strcmp(argv[i], "--count") == 0)
			count = strtoull(value, NULL, 10);
		if (strcmp(argv[i], "--rules") == 0)
			t.rules = read_file(value);
	}
	for (uint64_t i = 0; i < count && t.failures < FAILURES_MAX; i++)
		check_seed(&t, from + i);
	free(t.rules);
	return summarize(&t, from, count) ? 0 : 1;
}
