/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leader and followers: a model written here that notes what it is called with, on ranks that are threads. All ranks
 * note the same, which is what one process notes; an open with different options, weights or objects, a failure in the
 * middle and acts that no leader sends end with the documented status on all ranks. Stages work at different calls of a
 * prompt at the same time. One object with an exchange.
 */
#include <check.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/backend.h"
#include "runtime/lead.h"
#include "tests/support/planned.h"
#include "tests/support/tir.h"

Suite *suite_lead(void);

enum {
	N_RANKS = 3,
	V = 11,        /* vocabulary */
	MAX_B = 3,     /* sequences */
	MAX_S = 80,    /* tokens of a call: more than one broadcast has */
	CHUNK = 4,     /* of a prompt */
	CAPACITY = 12, /* tokens of a sequence */
	LONG = 40      /* the same, where a test says so */
};

/* ---- a model that notes its calls ---- */

/* Of one rank; the address is that of its weights, where init finds it. */
struct journal {
	int64_t variant; /* that the processor of the rank runs */
	int init_status;
	struct tfmc_local_ranks *group;
	int fails_at; /* number of the call in which the rank gives up; 0: none */
	int calls, outputs;
	int32_t capacity;
	bool is_stage;                  /* each rank is a stage of a pipeline */
	void (*first_call)(void *user); /* before the first call ends; NULL: nothing */
	void *user;
	atomic_int begun; /* calls */
	size_t n;
	char text[8192]; /* a line for each function that was called */
};

static void note(struct journal *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct journal *j, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(j->text + j->n, sizeof(j->text) - j->n, fmt, ap);
	va_end(ap);
	ck_assert_int_ge(n, 0);
	ck_assert_uint_lt((size_t)n, sizeof(j->text) - j->n);
	j->n += (size_t)n;
}

struct noted_state {
	int32_t past[16];
	int32_t tokens[MAX_B][LONG];
};

struct noted_context {
	struct journal *journal;
	const struct tfmc_ranks *ranks;
	struct noted_state *state;
	int64_t batch, first, variant;
};

/* Record of the model: prefill and step of tokens [B,S] with lengths [B], logits [B,V]. */
struct noted_record {
	struct tfmc_record record;
	struct tfmc_record_dim dims[2];
	struct tfmc_record_entry entries[2];
	struct tfmc_record_tensor tensors[3];
	uint64_t used[2], variants[2], size_b[4], size_s[4], size_v[3];
	int64_t start, stop;
	char names[9][16];
};

static uint64_t name_at(struct noted_record *r, int i, const char *name)
{
	ck_assert_uint_lt(strlen(name), sizeof(r->names[i]));
	strcpy(r->names[i], name);
	return (uint64_t)((char *)r->names[i] - (char *)r);
}

#define AT(field) offsetof(struct noted_record, field)

static void make_record(struct noted_record *r, int64_t ranks)
{
	memset(r, 0, sizeof(*r));
	const struct noted_record tables = {.used = {0, 1},
	                                    .size_b = {1, 1, 1, 0},
	                                    .size_s = {1, 1, 1, 1},
	                                    .size_v = {1, V, 0},
	                                    .start = 3,
	                                    .stop = V - 1};
	*r = tables;
	r->record = (struct tfmc_record){.magic = TFMC_RECORD_MAGIC,
	                                 .abi_version = TFMC_ABI_VERSION,
	                                 .structure_hash = 77,
	                                 .weights_hash = 55,
	                                 .weights_bytes = 1,
	                                 .context_bytes = sizeof(struct noted_context),
	                                 .state_fixed_bytes = 1,
	                                 .context_limit = CAPACITY,
	                                 .n_dims = 2,
	                                 .dims = AT(dims),
	                                 .n_entries = 2,
	                                 .entries = AT(entries),
	                                 .n_variants = 2,
	                                 .variants = AT(variants),
	                                 .start = AT(start),
	                                 .n_start = 1,
	                                 .stop = AT(stop),
	                                 .n_stop = 1,
	                                 .pad = -1,
	                                 .max_len = CAPACITY,
	                                 .generate_kind = 1,
	                                 .tokens_name = (int64_t)name_at(r, 0, "tokens"),
	                                 .logits_name = (int64_t)name_at(r, 1, "logits"),
	                                 .ranks = ranks};
	r->dims[0] = (struct tfmc_record_dim){name_at(r, 2, "B"), 1, MAX_B};
	r->dims[1] = (struct tfmc_record_dim){name_at(r, 3, "S"), 1, MAX_S};
	r->variants[0] = name_at(r, 4, "low");
	r->variants[1] = name_at(r, 5, "high");
	r->tensors[0] = (struct tfmc_record_tensor){.name = AT(names[0]),
	                                            .dtype = 6,
	                                            .rank = 2,
	                                            .sizes = {AT(size_b), AT(size_s)},
	                                            .below = V,
	                                            .lengths = 1};
	r->tensors[1] = (struct tfmc_record_tensor){.name = name_at(r, 6, "lengths"),
	                                            .dtype = 6,
	                                            .rank = 1,
	                                            .sizes = {AT(size_b)},
	                                            .has_default = 1,
	                                            .lengths = -1};
	r->tensors[2] = (struct tfmc_record_tensor){
	        .name = AT(names[1]), .rank = 2, .sizes = {AT(size_b), AT(size_v)}, .lengths = -1};
	r->entries[0] = (struct tfmc_record_entry){.name = name_at(r, 7, "prefill"),
	                                           .kind = TFMC_ENTRY_PREFILL,
	                                           .n_dims = 2,
	                                           .dims = AT(used),
	                                           .n_inputs = 2,
	                                           .inputs = AT(tensors),
	                                           .n_outputs = 1,
	                                           .outputs = AT(tensors[2])};
	r->entries[1] = r->entries[0];
	r->entries[1].kind = TFMC_ENTRY_STEP;
	r->entries[1].name = name_at(r, 8, "step");
}

static int32_t noted_init(void *context, const struct tfmc_config *config)
{
	struct noted_context *c = context;
	*c = (struct noted_context){.journal = (struct journal *)(uintptr_t)config->weights,
	                            .ranks = config->ranks,
	                            .state = config->state,
	                            .batch = config->batch,
	                            .variant = -1};
	uint64_t allowed = config->variants ? config->variants : 3;
	for (int64_t i = 0; i <= c->journal->variant; i++)
		c->variant = allowed >> i & 1 ? i : c->variant;
	return c->journal->init_status ? c->journal->init_status
	       : c->variant < 0        ? (int32_t)TFMC_RT_E_CPU
	                               : (int32_t)TFMC_RT_OK;
}

/* The share of this rank in the logits after a sequence: small integers, which have the same sum in any order. */
static void add_logits(const struct noted_context *c, int64_t sequence, float *logits)
{
	enum { UNITS = 6 };
	int64_t rank = c->ranks ? c->ranks->rank : 0, n = c->ranks ? c->ranks->n : 1;
	uint32_t h = 1;
	for (int32_t i = 0; i < c->state->past[sequence]; i++)
		h = h * 1103515245u + (uint32_t)c->state->tokens[sequence][i] + 12345u;
	for (int64_t k = rank; k < UNITS; k += n)
		for (int64_t v = 0; v < V; v++)
			logits[v] += (float)((h >> (4 * k) & 15) * (uint64_t)((v * (k + 3) + k * k) % 5));
}

static int32_t append(struct noted_context *c, int64_t b, int64_t s, const int32_t *tokens,
                      const int32_t *lengths)
{
	for (int64_t i = 0; i < b; i++)
		if (c->state->past[c->first + i] + (lengths ? lengths[i] : s) > c->journal->capacity)
			return TFMC_RT_E_FULL;
	for (int64_t i = 0; i < b; i++)
		for (int64_t k = 0; k < (lengths ? lengths[i] : s); k++) {
			int64_t sequence = c->first + i;
			c->state->tokens[sequence][c->state->past[sequence]++] = tokens[i * s + k];
		}
	return TFMC_RT_OK;
}

/* sum [count] of the shares of all ranks: exact, in whatever order. */
static void add_shares(const struct noted_context *c, const float *part, float *sum, uint64_t count)
{
	const struct tfmc_ranks *r = c->ranks;
	float before[MAX_B * V] = {0}, through[MAX_B * V];
	if (!c->journal->is_stage) {
		r->sum(r->user, part, sum, count, r->n, 7, 0, 1);
		return;
	}
	r->receive(r->user, before, through, count, 1, 0, 0, 1);
	for (uint64_t i = 0; i < count; i++)
		through[i] += part[i];
	r->send(r->user, through, sum, count, 1, 1, 0, 1);
}

static int32_t noted_call(void *context, uint64_t entry, const uint64_t *args, int64_t worker)
{
	struct noted_context *c = context;
	struct journal *j = c->journal;
	int64_t b = (int64_t)args[0], s = (int64_t)args[1];
	const int32_t *tokens = (const int32_t *)(uintptr_t)args[2],
	              *lengths = (const int32_t *)(uintptr_t)args[4];
	float part[MAX_B * V] = {0}, sum[MAX_B * V], *out = (float *)(uintptr_t)args[6];
	int32_t past[MAX_B];
	ck_assert_int_eq(worker, -1);
	ck_assert_int_le(b * s, MAX_B * MAX_S);
	ck_assert_uint_ge(args[3], (uint64_t)(b * s));
	note(j, "call %d:", (int)entry);
	for (int64_t i = 0; i < b * s; i++)
		note(j, " %d", tokens[i]);
	for (int64_t i = 0; lengths && i < b; i++)
		note(j, " of %d", lengths[i]);
	note(j, "\n");
	j->outputs += out != NULL;
	atomic_fetch_add(&j->begun, 1);
	for (int64_t i = 0; i < b * s; i++)
		if (tokens[i] < 0 || tokens[i] >= V)
			return TFMC_RT_E_TOKEN;
	memcpy(past, c->state->past, sizeof(past));
	int32_t status = append(c, b, s, tokens, lengths);
	if (status != TFMC_RT_OK)
		return status;
	for (int64_t i = 0; i < b; i++)
		add_logits(c, c->first + i, part + i * V);
	if (++j->calls == j->fails_at)
		tfmc_local_ranks_fail(j->group);
	if (c->ranks)
		add_shares(c, part, sum, (uint64_t)(b * V));
	if (j->calls == 1 && j->first_call)
		j->first_call(j->user);
	if (c->ranks && c->ranks->status(c->ranks->user)) {
		memcpy(c->state->past, past, sizeof(past));
		return TFMC_RT_E_RANK;
	}
	if (out)
		memcpy(out, c->ranks ? sum : part, (size_t)(b * V) * sizeof(float));
	return TFMC_RT_OK;
}

static int32_t noted_reset(void *context)
{
	struct noted_context *c = context;
	note(c->journal, "reset\n");
	memset(c->state, 0, sizeof(*c->state));
	c->first = 0;
	return TFMC_RT_OK;
}

static int32_t noted_trim(void *context, int64_t sequence, int64_t length)
{
	struct noted_context *c = context;
	note(c->journal, "trim %d %d\n", (int)sequence, (int)length);
	if (sequence < 0 || sequence >= c->batch)
		return TFMC_RT_E_DIM;
	if (length < 0 || length > c->state->past[sequence])
		return TFMC_RT_E_LENGTH;
	c->state->past[sequence] = (int32_t)length;
	return TFMC_RT_OK;
}

static int32_t noted_reorder(void *context, const int64_t *from, int64_t n)
{
	struct noted_context *c = context;
	const struct noted_state before = *c->state;
	note(c->journal, "reorder");
	for (int64_t i = 0; i < n; i++)
		note(c->journal, " %d", (int)from[i]);
	note(c->journal, "\n");
	for (int64_t i = 0; i < n; i++) {
		c->state->past[i] = before.past[from[i]];
		memcpy(c->state->tokens[i], before.tokens[from[i]], sizeof(before.tokens[0]));
	}
	return n < 0 ? (int32_t)TFMC_RT_E_DIM : (int32_t)TFMC_RT_OK;
}

static int32_t noted_fork(void *context, int64_t from, int64_t to)
{
	struct noted_context *c = context;
	note(c->journal, "fork %d %d\n", (int)from, (int)to);
	if (from < 0 || from >= c->batch || to < 0 || to >= c->batch)
		return TFMC_RT_E_DIM;
	c->state->past[to] = c->state->past[from];
	memmove(c->state->tokens[to], c->state->tokens[from], sizeof(c->state->tokens[0]));
	return TFMC_RT_OK;
}

static int32_t noted_select(void *context, int64_t first, int64_t source)
{
	struct noted_context *c = context;
	note(c->journal, "select %d %d\n", (int)first, (int)source);
	if (first < 0 || first >= c->batch)
		return TFMC_RT_E_DIM;
	c->first = first;
	return TFMC_RT_OK;
}

static int32_t noted_close(void *context)
{
	(void)context;
	return TFMC_RT_OK;
}

static int32_t of_sequence(void *context, int64_t sequence)
{
	(void)context, (void)sequence;
	return TFMC_RT_OK;
}

static int64_t noted_variant(void *context)
{
	return ((const struct noted_context *)context)->variant;
}

static uint64_t noted_arena(const int64_t *dims, int64_t workers)
{
	(void)dims, (void)workers;
	return 64;
}

static uint64_t noted_state_size(int64_t batch)
{
	(void)batch;
	return sizeof(struct noted_state);
}

static struct tfmc_model noted_model(const struct noted_record *r)
{
	return (struct tfmc_model){.record = &r->record,
	                           .init = noted_init,
	                           .call = noted_call,
	                           .reset = noted_reset,
	                           .trim = noted_trim,
	                           .fork = noted_fork,
	                           .select = noted_select,
	                           .reorder = noted_reorder,
	                           .fetch = of_sequence,
	                           .store = of_sequence,
	                           .close = noted_close,
	                           .variant = noted_variant,
	                           .set_workers = of_sequence,
	                           .arena_size = noted_arena,
	                           .state_size = noted_state_size};
}

/* ---- ranks as threads ---- */

struct rank {
	struct journal journal;
	struct noted_record record;
	struct tfmc_mapping weights;
	struct tfmc_session_options options;
	char message[160], variant[8];
	struct tfmc_session *session;
	int opened, followed,
	        refused; /* statuses: of open, of follow, of a call that a follower must not make */
	pthread_t thread;
};

/* One process, or a group of ranks whose leader is the calling thread. */
struct group {
	struct tfmc_local_ranks *ranks; /* NULL: one process */
	int64_t n;
	struct rank rank[N_RANKS];
};

static void prepare(struct group *g, int64_t n)
{
	memset(g, 0, sizeof(*g));
	g->n = n;
	alarm(60); /* a hang fails */
	if (n > 1)
		ck_assert_int_eq(tfmc_local_ranks_create(n, &g->ranks), TFMC_RT_OK);
	for (int64_t i = 0; i < n; i++) {
		struct rank *r = &g->rank[i];
		make_record(&r->record, n);
		r->journal.variant = 1;
		r->journal.group = g->ranks;
		r->journal.capacity = CAPACITY;
		r->weights = (struct tfmc_mapping){.data = &r->journal, .bytes = 1, .rank = i};
		r->options =
		        (struct tfmc_session_options){.struct_size = sizeof(r->options),
		                                      .weights = &r->weights,
		                                      .call_tokens = CHUNK,
		                                      .ranks = n > 1 ? tfmc_local_rank(g->ranks, i) : NULL,
		                                      .message = r->message,
		                                      .message_bytes = sizeof(r->message)};
	}
}

static void open_rank(struct rank *r)
{
	const struct tfmc_model model = noted_model(&r->record);
	r->opened = tfmc_session_open(&model, &r->options, &r->session);
	if (r->opened == TFMC_RT_OK)
		strcpy(r->variant, tfmc_session_variant(r->session));
}

static void *follow(void *arg)
{
	struct rank *r = arg;
	open_rank(r);
	if (r->opened != TFMC_RT_OK)
		return NULL;
	r->refused = tfmc_session_reset(r->session);
	r->followed = tfmc_session_follow(r->session);
	if (r->followed != TFMC_RT_OK)
		tfmc_local_ranks_fail(r->journal.group);
	tfmc_session_close(r->session);
	return NULL;
}

/* Opens all ranks; returns the session of the leader, NULL: its status is rank[0].opened. */
static struct tfmc_session *start(struct group *g)
{
	for (int64_t i = 1; i < g->n; i++)
		ck_assert_int_eq(pthread_create(&g->rank[i].thread, NULL, follow, &g->rank[i]), 0);
	open_rank(&g->rank[0]);
	return g->rank[0].session;
}

static void finish(struct group *g)
{
	tfmc_session_close(g->rank[0].session);
	for (int64_t i = 1; i < g->n; i++)
		pthread_join(g->rank[i].thread, NULL);
	tfmc_local_ranks_destroy(g->ranks);
	alarm(0);
}

/* All ranks noted what the leader did, followers computed no output, and all ended well. */
static void check_followers(const struct group *g)
{
	for (int64_t i = 1; i < g->n; i++) {
		ck_assert_str_eq(g->rank[i].journal.text, g->rank[0].journal.text);
		ck_assert_int_eq(g->rank[i].journal.outputs, 0);
		ck_assert_int_eq(g->rank[i].followed, TFMC_RT_OK);
		ck_assert_int_eq(g->rank[i].refused, TFMC_RT_E_RANKS);
	}
}

static struct group one, many;

/* ---- calls ---- */

static int call(struct tfmc_session *s, int64_t b, int64_t n, const int32_t *tokens, const int32_t *lengths,
                float *logits)
{
	const int64_t dims[] = {b, n};
	const struct tfmc_buffer in[] = {{(void *)(uintptr_t)tokens, (uint64_t)(b * n)},
	                                 {(void *)(uintptr_t)lengths, (uint64_t)(lengths ? b : 0)}},
	                         out = {logits, (uint64_t)(logits ? b * V : 0)};
	return tfmc_session_call(s, 0, dims, in, &out);
}

/* Every act once, and calls that fail on all ranks. */
static void do_every_act(struct tfmc_session *s, float logits[MAX_B * V])
{
	static const int32_t tokens[2 * MAX_S] = {1, 2, 3, 4, 5, 6, [2 * MAX_S - 1] = 7}, wrong[] = {V};
	static const int64_t swapped[] = {1, 0};
	ck_assert_int_eq(call(s, 2, 3, tokens, (const int32_t[]){3, 1}, logits), TFMC_RT_OK);
	ck_assert_int_eq(call(s, 1, 1, wrong, NULL, logits), TFMC_RT_E_TOKEN);
	ck_assert_int_eq(call(s, 2, MAX_S, tokens, NULL, logits), TFMC_RT_E_FULL);
	ck_assert_int_eq(tfmc_session_fork(s, 0, 2), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_fork(s, 0, MAX_B), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_trim(s, 2, 2), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_reorder(s, swapped, 2), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_reorder(s, swapped, MAX_B + 1), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_reorder(s, swapped, -1), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_select(s, 1, -1), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_length(s, 0), 1);
	ck_assert_int_eq(call(s, 2, 2, tokens + 1, NULL, logits), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_reset(s), TFMC_RT_OK);
	ck_assert_int_eq(call(s, 3, 2, tokens, NULL, logits), TFMC_RT_OK);
}

START_TEST(followers_repeat_every_act)
{
	float want[MAX_B * V], have[MAX_B * V];
	prepare(&one, 1);
	do_every_act(start(&one), want);
	finish(&one);
	for (int64_t n = 2; n <= N_RANKS; n++) {
		prepare(&many, n);
		do_every_act(start(&many), have);
		finish(&many);
		check_followers(&many);
		ck_assert_str_eq(many.rank[0].journal.text, one.rank[0].journal.text);
		ck_assert_mem_eq(have, want, sizeof(want));
	}
}
END_TEST

/* The leader rejects what no other rank could know of; followers hear nothing of it. */
START_TEST(leader_checks_its_buffers)
{
	static const int32_t tokens[] = {1, 2, 3};
	float logits[V];
	const struct tfmc_buffer in[] = {{(void *)(uintptr_t)tokens, 3}, {NULL, 0}};
	const int64_t dims[] = {1, 3}, large[] = {1, MAX_S + 1};
	struct tfmc_buffer out = {logits, V - 1};
	prepare(&many, N_RANKS);
	struct tfmc_session *s = start(&many);
	ck_assert_int_eq(tfmc_session_call(s, 0, dims, in, &out), TFMC_RT_E_SIZE);
	out.count = V;
	ck_assert_int_eq(tfmc_session_call(s, 0, large, in, &out), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_call(s, 0, (const int64_t[]){2, 3}, in, &out), TFMC_RT_E_SIZE);
	ck_assert_int_eq(tfmc_session_call(s, 2, dims, in, &out), TFMC_RT_E_NAME);
	ck_assert_str_eq(many.rank[0].journal.text, "");
	ck_assert_int_eq(tfmc_session_call(s, 0, dims, in, &out), TFMC_RT_OK);
	finish(&many);
	check_followers(&many);
}
END_TEST

START_TEST(what_ranks_refuse)
{
	char saved[64];
	uint64_t n;
	prepare(&one, 1);
	ck_assert_int_eq(tfmc_session_follow(start(&one)), TFMC_RT_E_RANKS);
	finish(&one);
	ck_assert_int_eq(tfmc_session_follow(NULL), TFMC_RT_E_NULL);
	prepare(&many, N_RANKS);
	struct tfmc_session *s = start(&many);
	ck_assert_int_eq(tfmc_session_follow(s), TFMC_RT_E_RANKS);
	ck_assert_int_eq(tfmc_session_save(s, 0, saved, sizeof(saved), &n), TFMC_RT_E_RANKS);
	ck_assert_int_eq(tfmc_session_restore(s, 0, saved, sizeof(saved)), TFMC_RT_E_RANKS);
	ck_assert_ptr_nonnull(strstr(tfmc_session_status_text(s, TFMC_RT_E_RANKS), "tfmc_session_follow"));
	finish(&many);
	check_followers(&many);
	ck_assert_str_eq(many.rank[0].journal.text, "");
}
END_TEST

/* ---- generation ---- */

struct results {
	int32_t greedy[CAPACITY], drawn[CAPACITY], beams[2][CAPACITY], slots[4];
	double log_p[6];
	uint64_t n_greedy, n_drawn, n_beams;
	struct tfmc_generation items[4];
};

static void generate_all(struct tfmc_session *s, struct results *x)
{
	static const int32_t prompt[] = {4, 8, 1, 9, 2, 7};
	static int32_t out[4][CAPACITY];
	const struct tfmc_sample_options sample = {.struct_size = sizeof(sample),
	                                           .repetition_penalty = 1.1,
	                                           .temperature = 9,
	                                           .top_p = 1,
	                                           .seed = 5};
	const struct tfmc_generate_options plain = {.struct_size = sizeof(plain), .ignore_stop = 1},
	                                   drawn = {.struct_size = sizeof(drawn), .sample = &sample};
	const struct tfmc_beam_options beam = {.struct_size = sizeof(beam), .beam = 2, .max_new_tokens = 4};
	struct tfmc_hypothesis found[2] = {{x->beams[0], CAPACITY, 0, 0, 0},
	                                   {x->beams[1], CAPACITY, 0, 0, 0}};
	struct tfmc_slots *slots;
	int64_t slot;
	memset(x, 0, sizeof(*x));
	ck_assert_int_eq(tfmc_generate(s, &plain, prompt, 6, NULL, 0, x->greedy, CAPACITY, &x->n_greedy),
	                 TFMC_RT_OK);
	ck_assert_uint_eq(x->n_greedy, 6);
	ck_assert_int_eq(tfmc_generate(s, &drawn, prompt, 3, NULL, 0, x->drawn, CAPACITY, &x->n_drawn),
	                 TFMC_RT_OK);
	ck_assert_int_eq(tfmc_beam_search(s, &beam, prompt, 2, NULL, 0, found, 2, &x->n_beams), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_score(s, NULL, 0, prompt, 6, x->log_p), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_slots_open(s, &slots), TFMC_RT_OK);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(tfmc_slots_join(slots, prompt + i, 2, NULL, 0, &slot), TFMC_RT_OK);
		ck_assert_int_eq(slot, i);
	}
	ck_assert_int_eq(tfmc_slots_leave(slots, 0), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_slots_step(slots, (const struct tfmc_slot_token[]){{2, 5}}, 1), TFMC_RT_OK);
	for (int v = 0; v < 4; v++)
		x->slots[v] = (int32_t)tfmc_slots_logits(slots, 2)[v];
	tfmc_slots_close(slots);
	for (int i = 0; i < 4; i++)
		x->items[i] = (struct tfmc_generation){
		        .prompt = prompt, .n_prompt = (uint64_t)i + 1, .out = out[i], .cap = CAPACITY};
	ck_assert_int_eq(tfmc_generate_many(s, &plain, x->items, 4), TFMC_RT_OK);
}

START_TEST(generation_is_that_of_one_process)
{
	static struct results want, have;
	prepare(&one, 1);
	generate_all(start(&one), &want);
	finish(&one);
	for (int64_t n = 2; n <= N_RANKS; n++) {
		prepare(&many, n);
		generate_all(start(&many), &have);
		finish(&many);
		check_followers(&many);
		ck_assert_str_eq(many.rank[0].journal.text, one.rank[0].journal.text);
		ck_assert_mem_eq(&have, &want, sizeof(want));
	}
}
END_TEST

static int cancel(void *user, int32_t token)
{
	(void)token;
	tfmc_session_cancel(user);
	return 0;
}

/* All ranks complete the call that runs, none begins the next one. */
START_TEST(cancels_between_calls)
{
	static const int32_t prompt[] = {4, 8};
	int32_t out[CAPACITY];
	uint64_t n;
	prepare(&many, N_RANKS);
	struct tfmc_session *s = start(&many);
	struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .ignore_stop = 1, .on_token = cancel, .user = s};
	ck_assert_int_eq(tfmc_generate(s, &o, prompt, 2, NULL, 0, out, CAPACITY, &n), TFMC_RT_E_CANCELLED);
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(many.rank[0].journal.text, "reset\ncall 0: 4 8\n");
	o.on_token = NULL;
	ck_assert_int_eq(tfmc_generate(s, &o, prompt, 2, NULL, 0, out, CAPACITY, &n), TFMC_RT_OK);
	finish(&many);
	check_followers(&many);
}
END_TEST

/* ---- runs of calls ---- */

/* Each rank is a stage, and sequences have room for `capacity` tokens by the record. */
static void make_stages(struct group *g, int64_t capacity)
{
	for (int64_t i = 0; i < g->n; i++) {
		struct rank *r = &g->rank[i];
		r->journal.is_stage = true;
		r->journal.capacity = (int32_t)capacity;
		r->record.record.context_limit = (uint64_t)capacity;
		r->record.record.max_len = capacity;
	}
}

/* Status of a prompt of n ids; its logits. */
static int join(struct tfmc_session *s, uint64_t n, float logits[V])
{
	int32_t prompt[LONG];
	struct tfmc_slots *slots;
	int64_t slot;
	for (int i = 0; i < LONG; i++)
		prompt[i] = (i * i + 3) % (V - 1);
	ck_assert_int_eq(tfmc_slots_open(s, &slots), TFMC_RT_OK);
	int status = tfmc_slots_join(slots, prompt, n, NULL, 0, &slot);
	if (status == TFMC_RT_OK)
		memcpy(logits, tfmc_slots_logits(slots, slot), V * sizeof(*logits));
	tfmc_slots_close(slots);
	return status;
}

/* Returns when each stage in front of the last one has begun as many calls more as it is stages in front; a stage that
 * waits for the last one never does. */
static void wait_for_stages(void *user)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct group *g = user;
	for (int64_t r = 1; r < g->n; r++)
		while (atomic_load(&g->rank[r].journal.begun) < 1 + g->n - r)
			nanosleep(&pause, NULL); /* prepare has set an alarm */
}

/* The last stage does not end the first call of a prompt before those in front of it have begun the next ones. */
START_TEST(stages_overlap)
{
	float want[V], have[V];
	prepare(&one, 1);
	ck_assert_int_eq(join(start(&one), CAPACITY, want), TFMC_RT_OK);
	finish(&one);
	for (int64_t n = 2; n <= N_RANKS; n++) {
		prepare(&many, n);
		make_stages(&many, CAPACITY);
		many.rank[0].journal.first_call = wait_for_stages;
		many.rank[0].journal.user = &many;
		ck_assert_int_eq(join(start(&many), CAPACITY, have), TFMC_RT_OK);
		finish(&many);
		check_followers(&many);
		ck_assert_str_eq(many.rank[0].journal.text, one.rank[0].journal.text);
		ck_assert_mem_eq(have, want, sizeof(want));
	}
}
END_TEST

static void cancel_session(void *user)
{
	const struct rank *r = user;
	tfmc_session_cancel(r->session);
}

/* Calls of prompts are sent in runs of 16: the run that has begun is completed. */
START_TEST(cancels_between_runs)
{
	float logits[V];
	for (int64_t n = 1; n <= N_RANKS; n++) {
		prepare(&many, n);
		make_stages(&many, LONG);
		for (int64_t i = 0; i < n; i++)
			many.rank[i].options.call_tokens = 1;
		many.rank[0].journal.first_call = cancel_session;
		many.rank[0].journal.user = &many.rank[0];
		struct tfmc_session *s = start(&many);
		ck_assert_int_eq(join(s, LONG, logits), TFMC_RT_E_CANCELLED);
		ck_assert_int_eq(many.rank[0].journal.calls, n > 1 ? 16 : 1);
		ck_assert_int_eq(join(s, LONG, logits), TFMC_RT_OK);
		ck_assert_int_eq(many.rank[0].journal.calls, n > 1 ? 16 + LONG : 1 + LONG);
		finish(&many);
		check_followers(&many);
	}
}
END_TEST

/* A call that all ranks refuse is the last one of its run on all of them. */
START_TEST(a_run_ends_with_a_refused_call)
{
	float logits[V];
	for (int64_t n = 2; n <= N_RANKS; n++) {
		prepare(&many, n);
		make_stages(&many, CAPACITY);
		for (int64_t i = 0; i < n; i++)
			many.rank[i].journal.capacity = CHUNK + 1;
		struct tfmc_session *s = start(&many);
		ck_assert_int_eq(join(s, CAPACITY, logits), TFMC_RT_E_FULL);
		ck_assert_int_eq(atomic_load(&many.rank[0].journal.begun), 2);
		ck_assert_int_eq(join(s, CHUNK, logits), TFMC_RT_OK);
		finish(&many);
		check_followers(&many);
	}
}
END_TEST

/* ---- ranks that differ ---- */

/* Opens N_RANKS ranks that all fail alike; the message contains `text`. */
static void check_open(int status, const char *text)
{
	ck_assert_ptr_null(start(&many));
	finish(&many);
	for (int i = 0; i < N_RANKS; i++) {
		ck_assert_int_eq(many.rank[i].opened, status);
		ck_assert_str_eq(many.rank[i].message, text);
	}
}

START_TEST(differences_are_named)
{
	static const int64_t bounds[] = {MAX_B, 2};
	struct rank *r = &many.rank[2];
	prepare(&many, N_RANKS);
	r->record.record.abi_version++;
	check_open(TFMC_RT_E_RANKS, "rank 2 differs from rank 0 in the version of the interface: 12, not 11");
	prepare(&many, N_RANKS);
	r->record.record.structure_hash += (uint64_t)1 << 60;
	check_open(TFMC_RT_E_RANKS, "rank 2 differs from rank 0 in the object");
	prepare(&many, N_RANKS);
	r->record.record.program_hash = 1;
	check_open(TFMC_RT_E_RANKS, "rank 2 differs from rank 0 in the code of the object");
	prepare(&many, N_RANKS);
	many.rank[1].record.record.weights_hash = 0;
	r->record.record.weights_hash = 1;
	check_open(TFMC_RT_E_RANKS, "rank 1 differs from rank 0 in the weights of the object");
	prepare(&many, N_RANKS);
	r->record.record.ranks = 1;
	check_open(TFMC_RT_E_RANKS,
	           "rank 2 differs from rank 0 in the number of ranks of the object: 1, not 3");
	prepare(&many, N_RANKS);
	r->options.variant = "low";
	check_open(TFMC_RT_E_RANKS, "rank 2 differs from rank 0 in variant");
	prepare(&many, N_RANKS);
	r->options.batch = 2;
	many.rank[0].options.batch = many.rank[1].options.batch = 3;
	check_open(TFMC_RT_E_RANKS, "rank 2 differs from rank 0 in batch: 2, not 3");
	prepare(&many, N_RANKS);
	many.rank[0].options.call_tokens = 5;
	check_open(TFMC_RT_E_RANKS, "rank 1 differs from rank 0 in call_tokens: 4, not 5");
	prepare(&many, N_RANKS);
	r->options.context = 7;
	check_open(TFMC_RT_E_RANKS, "rank 2 differs from rank 0 in context: 7, not 0");
	prepare(&many, N_RANKS);
	r->options.dims_max = bounds;
	check_open(TFMC_RT_E_RANKS, "rank 2 differs from rank 0 in the bound of dim S: 2, not 80");
	prepare(&many, N_RANKS);
	for (int i = 0; i < N_RANKS; i++)
		many.rank[i].record.record.ranks = 2;
	check_open(TFMC_RT_E_RANKS, "the object is for 2 ranks, and there are 3");
}
END_TEST

/* A rank that cannot open: no other one opens, either. */
START_TEST(failures_are_named)
{
	prepare(&many, N_RANKS);
	many.rank[1].journal.init_status = TFMC_RT_E_MEMORY;
	check_open(TFMC_RT_E_MEMORY, "rank 1: memory could not be allocated");
	prepare(&many, N_RANKS);
	many.rank[2].options.weights = NULL;
	many.rank[2].options.weights_path = "/no such file";
	check_open(TFMC_RT_E_FILE, "rank 2: the file cannot be read, or is not a weights file");
	prepare(&many, N_RANKS);
	many.rank[0].options.workers = -1;
	check_open(TFMC_RT_E_WORKER, "rank 0: a worker number is outside of the workers of the context");
	prepare(&many, N_RANKS);
	many.rank[2].weights.rank = 1;
	check_open(TFMC_RT_E_RANKS, "rank 2 has the weights of rank 1");
	prepare(&many, N_RANKS);
	many.rank[1].weights.set_hash = 54;
	check_open(TFMC_RT_E_RANKS, "rank 1 differs from rank 0 in the set of its weights");
	for (int i = 0; i < N_RANKS; i++)
		ck_assert_str_eq(many.rank[i].journal.text, "");
}
END_TEST

START_TEST(all_take_the_lowest_variant)
{
	for (int low = 0; low < N_RANKS; low++) {
		prepare(&many, N_RANKS);
		many.rank[low].journal.variant = 0;
		ck_assert_int_eq(tfmc_session_reset(start(&many)), TFMC_RT_OK);
		finish(&many);
		check_followers(&many);
		for (int i = 0; i < N_RANKS; i++)
			ck_assert_str_eq(many.rank[i].variant, "low");
	}
	prepare(&many, N_RANKS);
	ck_assert_ptr_nonnull(start(&many));
	finish(&many);
	for (int i = 0; i < N_RANKS; i++)
		ck_assert_str_eq(many.rank[i].variant, "high");
}
END_TEST

/* Without other ranks that could wait. */
START_TEST(tables_are_checked)
{
	struct tfmc_ranks alone;
	static const int32_t prompt[] = {4, 8};
	int32_t out[CAPACITY];
	uint64_t n;
	prepare(&one, 1);
	one.rank[0].options.ranks = &alone;
	one.rank[0].record.record.ranks = N_RANKS;
	ck_assert_int_eq(tfmc_mirror_ranks_init(&alone, N_RANKS), TFMC_RT_OK);
	alone.struct_size--;
	ck_assert_ptr_null(start(&one));
	ck_assert_int_eq(one.rank[0].opened, TFMC_RT_E_ABI);
	ck_assert_str_eq(one.rank[0].message, "the caller was built for another interface version");
	ck_assert_int_eq(tfmc_mirror_ranks_init(&alone, N_RANKS), TFMC_RT_OK);
	alone.broadcast = NULL;
	ck_assert_ptr_null(start(&one));
	ck_assert_int_eq(one.rank[0].opened, TFMC_RT_E_NULL);
	ck_assert_int_eq(tfmc_mirror_ranks_init(&alone, N_RANKS), TFMC_RT_OK);
	alone.rank = N_RANKS;
	ck_assert_ptr_null(start(&one));
	ck_assert_int_eq(one.rank[0].opened, TFMC_RT_E_RANKS);
	ck_assert_int_eq(tfmc_mirror_ranks_init(&alone, N_RANKS - 1), TFMC_RT_OK);
	ck_assert_ptr_null(start(&one));
	ck_assert_int_eq(one.rank[0].opened, TFMC_RT_E_RANKS);
	/* one rank that takes the others for equal opens and generates */
	ck_assert_int_eq(tfmc_mirror_ranks_init(&alone, N_RANKS), TFMC_RT_OK);
	ck_assert_ptr_nonnull(start(&one));
	ck_assert_str_eq(one.rank[0].message, "");
	ck_assert_int_eq(tfmc_generate(one.rank[0].session, NULL, prompt, 2, NULL, 0, out, CAPACITY, &n),
	                 TFMC_RT_OK);
	finish(&one);
}
END_TEST

/* ---- failures ---- */

/* A prompt of n ids on ranks of which one gives up: the generation ends on all of them, and so do later calls. */
static void check_failure(uint64_t n_prompt, bool are_stages, int64_t fails, int at)
{
	static const int32_t prompt[CAPACITY] = {4, 8, 1};
	const struct tfmc_generate_options o = {.struct_size = sizeof(o), .ignore_stop = 1};
	int32_t out[CAPACITY];
	uint64_t n;
	prepare(&many, N_RANKS);
	if (are_stages)
		make_stages(&many, CAPACITY);
	many.rank[fails].journal.fails_at = at;
	struct tfmc_session *s = start(&many);
	ck_assert_int_eq(tfmc_generate(s, &o, prompt, n_prompt, NULL, 0, out, CAPACITY, &n), TFMC_RT_E_RANK);
	ck_assert_uint_lt(n, (uint64_t)at + 1);
	ck_assert_int_eq(call(s, 1, 1, prompt, NULL, NULL), TFMC_RT_E_RANK);
	ck_assert_int_eq(tfmc_session_reset(s), TFMC_RT_E_RANK);
	ck_assert_int_eq(tfmc_session_trim(s, 0, 0), TFMC_RT_E_RANK);
	finish(&many);
	for (int i = 1; i < N_RANKS; i++)
		ck_assert_int_eq(many.rank[i].followed, TFMC_RT_E_RANK);
}

/* Whichever rank gives up in whichever call, of a run, too. */
START_TEST(a_failure_ends_all)
{
	for (int64_t fails = 0; fails < N_RANKS; fails++)
		for (int at = 1; at < 4; at++) {
			check_failure(CHUNK - 1, false, fails, at);
			check_failure(CHUNK - 1, true, fails, at);
			check_failure(2 * CHUNK + 1, true, fails, at);
		}
}
END_TEST

/* Bytes from a call to the next one, and to its tokens. */
enum { CALL_TOKENS = 320, CALL_STRIDE = 384 };

/* Broadcasts that no leader sends: the act with its payload, then the payload. */
struct script {
	struct act act;
	unsigned char payload[1024];
	int n;
};

static int32_t read_script(void *user, void *data, uint64_t bytes)
{
	struct script *s = user;
	ck_assert_uint_le(bytes, sizeof(s->payload));
	memcpy(data, (const char *)s + (s->n++ ? offsetof(struct script, payload) : 0), (size_t)bytes);
	return 0;
}

/* Reads an act of calls, all of which are the same; their entry and first id. */
static int read_act(struct act act, int64_t entry, int32_t first, struct noted_record *r)
{
	static struct script s;
	const struct tfmc_ranks table = {
	        .struct_size = sizeof(table), .user = &s, .rank = 1, .n = 2, .broadcast = read_script};
	struct lead l = {.ranks = &table};
	struct session_call c;
	uint64_t at = 0;
	s = (struct script){.act = act};
	for (int i = 0; i < 2; i++) {
		unsigned char *payload = s.payload + i * CALL_STRIDE;
		memcpy(payload, (const int64_t[]){entry, 2, 3}, 3 * sizeof(int64_t)); /* B, S */
		payload[(1 + TFMC_DIMS_MAX) * sizeof(int64_t)] = 1;                   /* tokens, no lengths */
		memcpy(payload + CALL_TOKENS, &first, sizeof(first));
	}
	int status = lead_receive(&l, &act);
	for (int64_t i = 0; status == TFMC_RT_OK && act.kind == ACT_CALLS && i < act.a; i++) {
		status = lead_read_call(&l, &r->record, &act, i, &at, &c);
		if (status != TFMC_RT_OK)
			break;
		ck_assert_int_eq(c.entry, entry);
		ck_assert_int_eq(c.dims[1], 3);
		ck_assert_uint_eq(c.inputs[0].count, 6);
		ck_assert_uint_eq((uintptr_t)c.inputs[0].data % 64, 0);
		ck_assert_int_eq(*(const int32_t *)c.inputs[0].data, first);
		ck_assert_ptr_null(c.inputs[1].data);
		ck_assert_ptr_null(c.outputs[0].data);
	}
	lead_close(&l);
	return status;
}

START_TEST(acts_are_checked)
{
	const uint64_t bytes = CALL_TOKENS + 6 * sizeof(int32_t), two = CALL_STRIDE + bytes;
	static struct noted_record r;
	make_record(&r, 2);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 1, 0, bytes}, 1, 9, &r), TFMC_RT_OK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 1, 0, bytes - 1}, 1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 1, 0, bytes + 64}, 1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 1, 0, 8}, 1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 1, 0, bytes}, 2, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 1, 0, bytes}, -1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 2, 0, two}, 0, 9, &r), TFMC_RT_OK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 2, 0, two - 1}, 0, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 1, 0, two}, 0, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_CALLS, 3, 0, two}, 0, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_CLOSE + 1, 0, 0, 0}, 1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){-1, 0, 0, 0}, 1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_REORDER, 2, 0, 16}, 1, 9, &r), TFMC_RT_OK);
	ck_assert_int_eq(read_act((struct act){ACT_REORDER, 3, 0, 16}, 1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_REORDER, INT64_MAX, 0, 16}, 1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_RESET, 0, 0, UINT64_MAX - 3}, 1, 9, &r), TFMC_RT_E_RANK);
	ck_assert_int_eq(read_act((struct act){ACT_RESET, 0, 0, UINT64_MAX / 4}, 1, 9, &r), TFMC_RT_E_RANK);
}
END_TEST

/* ---- an object ---- */

/* The outputs are exchanges and nothing else, so that a rank that requests none of them must compute them all the
 * same. */
static const char exchanges[] = "module \"sums\" stage=plan\n"
                                "dim B in [1,4]\n"
                                "func @run(%x: f32[B,8]) -> (y: f32[B,8], z: f32[B,8]) arena=256*B {\n"
                                "  %a = group loops {\n"
                                "    root %1 = scale %x {f=3.0} : f32[B,8]\n"
                                "    yield %1\n"
                                "  } at [0] : f32[B,8]\n"
                                "  %y = group exchange {\n"
                                "    root %2 = all_reduce %a {ranks=2} : f32[B,8]\n"
                                "    yield %2\n"
                                "  } at [-1] : f32[B,8]\n"
                                "  %b = group loops {\n"
                                "    root %3 = scale %x {f=0.5} : f32[B,8]\n"
                                "    yield %3\n"
                                "  } at [0] : f32[B,8]\n"
                                "  %z = group exchange {\n"
                                "    root %4 = all_reduce %b {ranks=2 tag=1} : f32[B,8]\n"
                                "    yield %4\n"
                                "  } at [-1] : f32[B,8]\n"
                                "  return %y, %z\n"
                                "}\n";

struct object_rank {
	struct tfmc_model model;
	struct tfmc_session_options options;
	int followed;
};

static void *follow_object(void *arg)
{
	struct object_rank *r = arg;
	struct tfmc_session *s;
	r->followed = tfmc_session_open(&r->model, &r->options, &s);
	if (r->followed == TFMC_RT_OK)
		r->followed = tfmc_session_follow(s);
	tfmc_session_close(s);
	return NULL;
}

static void call_object(struct tfmc_session *s)
{
	float x[16], y[16], z[16];
	const int64_t dims[] = {2};
	for (int i = 0; i < 16; i++)
		x[i] = (float)i;
	const struct tfmc_buffer in = {x, 16}, all[] = {{y, 16}, {z, 16}}, last[] = {{NULL, 0}, {z, 16}};
	ck_assert_int_eq(tfmc_session_call(s, 0, dims, &in, all), TFMC_RT_OK);
	for (int i = 0; i < 16; i++) {
		ck_assert_float_eq(y[i], 6 * x[i]);
		ck_assert_float_eq(z[i], x[i]);
		z[i] = 0;
	}
	ck_assert_int_eq(tfmc_session_call(s, 0, dims, &in, last), TFMC_RT_OK);
	ck_assert_float_eq(z[15], x[15]);
}

START_TEST(exchanges_run_on_all_ranks)
{
	const struct backend_options o = {.opt_level = 2};
	const struct weight_source no_weights = {0};
	struct tir tir;
	struct backend_output out;
	struct backend_jit *jit;
	struct tfmc_local_ranks *ranks;
	struct tfmc_session *s;
	pthread_t thread;
	alarm(60);
	tir_init(&tir);
	tir_load(&tir, exchanges);
	backend_output_init(&out);
	enum tfmc_status status = planned_compile(&tir.cx, tir.m, target_native(), &no_weights, &o, &out);
	ck_assert_msg(status == TFMC_OK, "%s", tir.log.data);
	ck_assert_int_eq(backend_jit_load(&tir.cx, &out.object, &jit), TFMC_OK);
	struct object_rank r = {.options = {.struct_size = sizeof(r.options), .all_workers = 1}};
	ck_assert(backend_jit_model(jit, "sums", &r.model));
	ck_assert_int_eq(tfmc_session_open(&r.model, &r.options, &s), TFMC_RT_E_RANKS);
	for (int64_t workers = 1; workers <= 3; workers++) {
		ck_assert_int_eq(tfmc_local_ranks_create(2, &ranks), TFMC_RT_OK);
		struct tfmc_session_options leader = r.options;
		leader.ranks = tfmc_local_rank(ranks, 0);
		leader.workers = workers;
		r.options.ranks = tfmc_local_rank(ranks, 1);
		r.options.workers = 4 - workers;
		ck_assert_int_eq(pthread_create(&thread, NULL, follow_object, &r), 0);
		ck_assert_int_eq(tfmc_session_open(&r.model, &leader, &s), TFMC_RT_OK);
		call_object(s);
		tfmc_session_close(s);
		pthread_join(thread, NULL);
		ck_assert_int_eq(r.followed, TFMC_RT_OK);
		tfmc_local_ranks_destroy(ranks);
	}
	backend_jit_destroy(jit);
	backend_output_destroy(&out);
	tir_destroy(&tir);
	alarm(0);
}
END_TEST

Suite *suite_lead(void)
{
	Suite *s = suite_create("lead");
	TCase *tc = tcase_create("lead");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, followers_repeat_every_act);
	tcase_add_test(tc, leader_checks_its_buffers);
	tcase_add_test(tc, what_ranks_refuse);
	tcase_add_test(tc, generation_is_that_of_one_process);
	tcase_add_test(tc, cancels_between_calls);
	tcase_add_test(tc, stages_overlap);
	tcase_add_test(tc, cancels_between_runs);
	tcase_add_test(tc, a_run_ends_with_a_refused_call);
	tcase_add_test(tc, differences_are_named);
	tcase_add_test(tc, failures_are_named);
	tcase_add_test(tc, all_take_the_lowest_variant);
	tcase_add_test(tc, tables_are_checked);
	tcase_add_test(tc, a_failure_ends_all);
	tcase_add_test(tc, acts_are_checked);
	tcase_add_test(tc, exchanges_run_on_all_ranks);
	suite_add_tcase(s, tc);
	return s;
}
