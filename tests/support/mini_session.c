/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes, code generation and a session for the small model; calls of its entries.
 */
#include "tests/support/mini_session.h"

#include <check.h>
#include <string.h>

#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/effort.h"
#include "tests/support/mini_model.h"
#include "tests/support/planned.h"

static void compile(struct mini_session *m, const char *vocabulary, const struct target *target,
                    const char *level)
{
	static const int64_t start[] = {MINI_START}, stop[] = {MINI_STOP}, banned[] = {MINI_BANNED},
	                     first[] = {MINI_FIRST};
	struct backend_facts facts = {.generate_kind = 2,
	                              .start = {start, 1},
	                              .stop = {stop, 1},
	                              .suppress = {banned, 1},
	                              .suppress_first = {first, 1},
	                              .pad = -1,
	                              .max_len = MINI_MAX_T,
	                              .tokens = "tok",
	                              .source = "src",
	                              .logits = "logits",
	                              .vocabulary = vocabulary};
	struct arena a;
	struct pipeline p;
	struct pass_options po = {.target = target};
	struct backend_options bo = {.opt_level = strcmp(level, "O0") ? effort_of_code() : 0,
	                             .facts = &facts};
	struct diag_context *cx = &m->graph.cx;
	arena_init(&a);
	ck_assert_int_eq(pipeline_parse(&a, cx, level, &p), TFMC_OK);
	ck_assert_int_eq(passes_run(cx, &p, &po, m->graph.m, &m->planned, NULL), TFMC_OK);
	backend_output_init(&m->out);
	ck_assert_int_eq(planned_compile(cx, m->planned, po.target, NULL, &bo, &m->out), TFMC_OK);
	ck_assert_int_eq(backend_jit_load(cx, &m->out.object, &m->jit), TFMC_OK);
	arena_destroy(&a);
}

void mini_open(struct mini_session *m, const char *vocabulary, int64_t workers)
{
	mini_open_for(m, vocabulary, workers, target_native(), "O2");
}

void mini_open_for(struct mini_session *m, const char *vocabulary, int64_t workers,
                   const struct target *target, const char *level)
{
	mini_open_text(m, mini_model, vocabulary, workers, target, level);
}

void mini_open_text(struct mini_session *m, const char *text, const char *vocabulary, int64_t workers,
                    const struct target *target, const char *level)
{
	struct tfmc_session_options o = {.struct_size = sizeof(o), .workers = workers};
	struct tfmc_model model;
	tir_init(&m->graph);
	tir_load(&m->graph, text);
	compile(m, vocabulary, target, level);
	ck_assert(backend_jit_model(m->jit, "mini", &model));
	ck_assert_int_eq(tfmc_session_open(&model, &o, &m->session), TFMC_RT_OK);
}

void mini_close(struct mini_session *m)
{
	tfmc_session_close(m->session);
	backend_jit_destroy(m->jit);
	backend_output_destroy(&m->out);
	ir_module_destroy(m->planned);
	tir_destroy(&m->graph);
}

int mini_call(struct tfmc_session *s, const char *name, int64_t batch, struct tfmc_buffer *in, float *logits)
{
	int64_t entry = tfmc_entry_find(tfmc_session_record(s), name);
	bool encodes = !strcmp(name, "encode");
	int64_t rows = (int64_t)in[0].count / batch, dims[] = {batch, encodes ? rows : 1, encodes ? 1 : rows};
	struct tfmc_buffer out[] = {{logits, logits ? (uint64_t)(batch * MINI_V) : 0}};
	ck_assert_int_ge(entry, 0);
	return tfmc_session_call(s, entry, dims, in, out);
}

void mini_encode(struct tfmc_session *s, const int32_t *ids, uint64_t n)
{
	struct tfmc_buffer in[] = {{(void *)(uintptr_t)ids, n}, {NULL, 0}};
	ck_assert_int_eq(tfmc_session_reset(s), TFMC_RT_OK);
	ck_assert_int_eq(mini_call(s, "encode", 1, in, NULL), TFMC_RT_OK);
}

void mini_prefill(struct tfmc_session *s, const int32_t *ids, uint64_t n, float *logits)
{
	struct tfmc_buffer in[] = {{(void *)(uintptr_t)ids, n}};
	ck_assert_int_eq(mini_call(s, "prefill", 1, in, logits), TFMC_RT_OK);
}

int mini_hear(void *user, const char *text, uint64_t bytes)
{
	struct mini_heard *h = user;
	ck_assert_uint_gt(bytes, 0);
	memcpy(h->text + h->n, text, (size_t)bytes);
	h->n += (size_t)bytes;
	h->text[h->n] = 0;
	h->pieces++;
	return h->limit && h->pieces >= h->limit;
}

int mini_count_token(void *user, int32_t id)
{
	struct mini_heard *h = user;
	(void)id;
	h->tokens++;
	return 0;
}
