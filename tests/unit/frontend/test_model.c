/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading of models from text: parameters and their order, the sections that
 * others read through frontend.h, and the graph level's laws on the expansion.
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/frontend.h"
#include "frontend/syntax/graph.h"

Suite *suite_model(void);

static struct diag_context cx;
static struct buf messages;
static char dir[] = "tfmc-model-XXXXXX";
static char path[64];

static void setup(void)
{
	buf_init(&messages);
	diag_init(&cx, diag_render_text, &messages);
	memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/model.yaml", dir);
}

static void teardown(void)
{
	unlink(path);
	char vocab[80];
	snprintf(vocab, sizeof(vocab), "%s/v.txt", dir);
	unlink(vocab);
	rmdir(dir);
	diag_destroy(&cx);
	buf_destroy(&messages);
}

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(name, "wb");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fputs(text, f) >= 0, 1);
	ck_assert_int_eq(fclose(f), 0);
}

static struct frontend_model *load(const char *text, const struct frontend_options *options)
{
	struct frontend_model *m;
	write_file(path, text);
	enum tfmc_status st = frontend_load(&cx, path, options, &m);
	ck_assert_int_eq(st == TFMC_OK, m != NULL);
	return m;
}

#define HEAD                                                                                               \
	"tfmc: 1\nname: m\nparams: {d: 8, ff: 4*d, kinds: [1, 2.5]}\ndims: {B: 1..4, S: 1..ff}\n"          \
	"inputs:\n  ids: {shape: [B, S], dtype: i32, lengths: n}\n  n: {shape: [B], dtype: i32, default: " \
	"S}\n"                                                                                             \
	"weights: {files: [w.safetensors]}\n"
#define BODY                                                                                        \
	"model: [embed: {vocab: 9, dim: d}, repeat: {count: 2, body: [attention: {heads: 2, mask: " \
	"causal}]}, "                                                                               \
	"linear: {out: ff}]\noutputs: {logits: x}\n"

static const char *expanded(struct frontend_model *m, struct buf *out)
{
	buf_init(out);
	ck_assert_int_eq(frontend_expand(m, "", out), TFMC_OK);
	return out->data;
}

START_TEST(parameters_follow_overrides)
{
	static const char *const sets[] = {"d=16"};
	struct frontend_options o = {.sets = sets, .n_sets = 1};
	struct frontend_model *m = load(HEAD "set: {d: 12}\n" BODY, &o);
	struct buf text;
	ck_assert_msg(m != NULL, "%s", messages.data);
	ck_assert_ptr_nonnull(strstr(expanded(m, &text), "x = linear(x, \"linear\", out=64, bias=true)"));
	ck_assert_ptr_nonnull(strstr(text.data, "S: 1..64"));
	buf_destroy(&text);
	frontend_destroy(m);
}
END_TEST

START_TEST(wrong_parameters_are_refused)
{
	static const char *const unknown[] = {"dd=16"};
	struct frontend_options o = {.sets = unknown, .n_sets = 1};
	ck_assert_ptr_null(load(HEAD BODY, &o));
	ck_assert_ptr_nonnull(strstr(messages.data, "known: d"));
	buf_clear(&messages);
	ck_assert_ptr_null(
	        load("tfmc: 1\nname: m\nparams: {a: b + 1, b: a}\ninputs: {v: 'f32[2]'}\nmodel: []\n"
	             "outputs: {y: x}\n",
	             NULL));
	ck_assert_ptr_nonnull(strstr(messages.data, "depends on itself"));
	buf_clear(&messages);
	ck_assert_ptr_null(load(HEAD "require: [d < 8]\n" BODY, NULL));
	ck_assert_ptr_nonnull(strstr(messages.data, "required condition does not hold: d = 8"));
}
END_TEST

START_TEST(generate_section)
{
	struct frontend_model *m = load(
	        HEAD BODY "generate: {kind: causal, start: [3, 4], stop: 2, max_len: d, sample: {top_k: 5}, "
	                  "search: {beam: 4, penalty: gnmt}}\n",
	        NULL);
	ck_assert_msg(m != NULL, "%s", messages.data);
	const struct frontend_generate *g = frontend_generate(m);
	ck_assert_int_eq(g->kind, GENERATE_CAUSAL);
	ck_assert_str_eq(g->tokens, "ids");
	ck_assert_ptr_null(g->source);
	ck_assert_uint_eq(g->start.n, 2);
	ck_assert_int_eq(g->start.items[1], 4);
	ck_assert_int_eq(g->stop.items[0], 2);
	ck_assert_int_eq(g->max_len, 8);
	ck_assert(g->sample.given && g->sample.top_k == 5 && g->sample.temperature == 1.0);
	ck_assert(g->search.given && g->search.beam == 4 && g->search.penalty == PENALTY_GNMT);
	frontend_destroy(m);
}
END_TEST

START_TEST(checks_section)
{
	struct frontend_model *m = load(HEAD BODY "checks:\n"
	                                          "  - {file: c.safetensors, cases: [one, two], rtol: 1e-3, "
	                                          "rename: {logits: out}, rows: [0, 2]}\n"
	                                          "  - {name: here, call: logits, with: {ids: [[1, 2], [3, "
	                                          "4]]}, expect: {logits: [0.5], atol: 1}}\n",
	                                NULL);
	size_t n;
	ck_assert_msg(m != NULL, "%s", messages.data);
	const struct frontend_check *c = frontend_checks(m, &n);
	ck_assert_uint_eq(n, 3);
	ck_assert_str_eq(c[1].name, "two");
	ck_assert_str_eq(c[1].with.prefix, "two.");
	ck_assert(c[1].short_form && c[1].rows.n == 2 && c[1].n_rename == 1 && c[1].rtol == 1e-3 &&
	          c[1].steps == -1);
	ck_assert_str_eq(c[2].only_output, "logits");
	ck_assert_int_eq(c[2].with.items[0].rank, 2);
	ck_assert_double_eq(c[2].with.items[0].values[3], 4.0);
	ck_assert_uint_eq(c[2].expect.n, 1);
	ck_assert_double_eq(c[2].atol, 1.0);
	frontend_destroy(m);
}
END_TEST

START_TEST(tokenizer_section)
{
	char vocab[80];
	const struct frontend_tokenizer *t;
	snprintf(vocab, sizeof(vocab), "%s/v.txt", dir);
	write_file(vocab, "<s>\n\xc3\xa4\n\n<unk>");
	struct frontend_model *m =
	        load(HEAD BODY "tokenizer: {kind: chars, file: v.txt, unknown: <unk>}\n", NULL);
	ck_assert_msg(m != NULL, "%s", messages.data);
	ck_assert_int_eq(frontend_tokenizer(m, true, &t), TFMC_OK);
	ck_assert_uint_eq(t->source.n, 4);
	ck_assert_str_eq(t->source.tokens[1], "\xc3\xa4");
	ck_assert_str_eq(t->target.tokens[2], "");
	ck_assert_int_eq(t->target.unknown, 3);
	frontend_destroy(m);
	write_file(vocab, "a\n\xff\n");
	m = load(HEAD BODY "tokenizer: {kind: chars, file: v.txt}\n", NULL);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(frontend_tokenizer(m, true, &t), TFMC_INVALID);
	ck_assert_ptr_nonnull(strstr(messages.data, "line 2 of the vocabulary is not valid UTF-8"));
	frontend_destroy(m);
}
END_TEST

/* The expansion is a model of the graph level that expands to itself. */
START_TEST(expansion_is_a_fixed_point)
{
	struct buf first, second;
	struct frontend_model *m = load(HEAD BODY "generate: {kind: causal}\n", NULL);
	ck_assert_msg(m != NULL, "%s", messages.data);
	expanded(m, &first);
	frontend_destroy(m);
	m = load(first.data, NULL);
	ck_assert_msg(m != NULL, "%s", messages.data);
	ck_assert_str_eq(expanded(m, &second), first.data);
	frontend_destroy(m);
	buf_destroy(&first);
	buf_destroy(&second);
}
END_TEST

/* ---- the graph level ---- */

static void push(struct graph_body *body, const char *text)
{
	const struct expr_source source = {text, strlen(text), LOC_NONE, false};
	ck_assert(graph_push_statement(&cx.arena, body, (struct ir_loc){LOC_NONE, ""},
	                               expr_parse_statement(&cx.arena, &cx, source)));
}

START_TEST(names_of_statements)
{
	struct graph_body body = {NULL, 0, 0};
	push(&body, "a, b = split(x, axis=0, sizes=[1, 1])");
	push(&body, "x = a + x");
	ck_assert_int_eq(graph_first_use(&body, 0, "x"), GRAPH_READ);
	ck_assert_int_eq(graph_first_use(&body, 0, "a"), GRAPH_WRITTEN);
	ck_assert_int_eq(graph_first_use(&body, 1, "a"), GRAPH_READ);
	ck_assert_int_eq(graph_first_use(&body, 0, "c"), GRAPH_UNUSED);
	size_t n;
	const char *const *names = graph_targets(&cx.arena, &body, &n);
	ck_assert_uint_eq(n, 3);
	ck_assert_str_eq(names[2], "x");
}
END_TEST

START_TEST(pruning_keeps_what_a_loop_carries)
{
	struct graph_body body = {NULL, 0, 0};
	static const char *const outputs[] = {"y"};
	push(&body, "h = x");
	push(&body, "unused = exp(x)");
	struct graph_node *loop = graph_push(&cx.arena, &body, GRAPH_REPEAT, (struct ir_loc){LOC_NONE, ""});
	ck_assert_ptr_nonnull(loop);
	loop->count = 3;
	loop->as = "i";
	push(&loop->body, "y = y + h");
	push(&loop->body, "dead = exp(h)");
	push(&loop->body, "h = tanh(h)");
	struct graph_body live = graph_prune(&cx.arena, &body, outputs, 1, NULL);
	ck_assert_uint_eq(live.n, 2);
	ck_assert_uint_eq(live.items[1]->body.n, 2);
	ck_assert_str_eq(live.items[1]->body.items[1]->st->targets[0].name, "h");
}
END_TEST

START_TEST(indices_are_filled_in)
{
	ck_assert_str_eq(replace_placeholder(&cx.arena, "a.{i}.b.{ii}.{i}", "i", "7"), "a.7.b.{ii}.7");
	struct graph_body body = {NULL, 0, 0}, out = {NULL, 0, 0};
	push(&body, "x = linear(x, \"l.{i}\", out=3)");
	ck_assert(graph_substitute(&cx.arena, &body, "i", (struct index_map){0, 2}, &out));
	ck_assert_str_eq(out.items[0]->st->values[0]->args[1]->text, "l.2");
	ck_assert(!graph_equal(&body, &out));
}
END_TEST

START_TEST(maps_of_indices_compose)
{
	static const struct {
		const char *text, *with; /* for 3 * i + 4 */
		const char *at;          /* for 7 */
	} cases[] = {
	        {"{i}", "{3*i+4}", "7"},
	        {"{2*i}.{i+1}", "{6*i+8}.{3*i+5}", "14.8"},
	        {"{2*i+1}", "{6*i+9}", "15"},
	        {"{999999999*i+999999999}", "{2999999997*i+4999999995}", "7999999992"},
	        {"{0*i}{1000000000*i}{i+1000000000}{i+}{i-1}{*i}{i*2}{j}{2*ii}{i", NULL, NULL},
	};
	for (size_t k = 0; k < TFMC_COUNT(cases); k++) {
		const char *text = cases[k].text;
		bool has = cases[k].with != NULL;
		ck_assert_int_eq(has_index(&cx.arena, text, "i"), has);
		ck_assert_str_eq(substitute_index(&cx.arena, text, "i", (struct index_map){3, 4}),
		                 has ? cases[k].with : text);
		ck_assert_str_eq(substitute_index(&cx.arena, text, "i", (struct index_map){0, 7}),
		                 has ? cases[k].at : text);
	}
	ck_assert_str_eq(substitute_index(&cx.arena, "{2*i+1}", "i", (struct index_map){1, 0}), "{2*i+1}");
	ck_assert_str_eq(substitute_index(&cx.arena, "{i}", "i", (struct index_map){1, 0}), "{i}");
}
END_TEST

START_TEST(expressions_print_as_written)
{
	static const char *const texts[] = {"-a ** 2 + (b - c) * 0.5", "f(x, [1, 2], axis=-1, keep=true)[0]",
	                                    "not (a < b) or c == \"d.{i}\"", "a // 2 % 3"};
	for (size_t i = 0; i < TFMC_COUNT(texts); i++) {
		struct expr_source src = {texts[i], strlen(texts[i]), LOC_NONE, false};
		const struct expr *e = expr_parse(&cx.arena, &cx, src, EXPR_GRAPH);
		struct buf out;
		ck_assert_ptr_nonnull(e);
		buf_init(&out);
		expr_print(&out, NULL, e);
		ck_assert_str_eq(out.data, texts[i]);
		buf_destroy(&out);
	}
}
END_TEST

Suite *suite_model(void)
{
	Suite *s = suite_create("model");
	TCase *t = tcase_create("model");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, parameters_follow_overrides);
	tcase_add_test(t, wrong_parameters_are_refused);
	tcase_add_test(t, generate_section);
	tcase_add_test(t, checks_section);
	tcase_add_test(t, tokenizer_section);
	tcase_add_test(t, expansion_is_a_fixed_point);
	tcase_add_test(t, names_of_statements);
	tcase_add_test(t, pruning_keeps_what_a_loop_carries);
	tcase_add_test(t, indices_are_filled_in);
	tcase_add_test(t, maps_of_indices_compose);
	tcase_add_test(t, expressions_print_as_written);
	suite_add_tcase(s, t);
	return s;
}
