/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every public function of libtfmcrt and libtfmctok with pointers that are missing, counts that are zero,
 * huge or negative: a status, or nothing, and no byte is touched that is not the caller's (run with
 * sanitizers). What is refused changes nothing: the session generates the same ids afterwards.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tokenizer/tfmc_tokenizer.h"
#include "tests/support/mini_session.h"

#define HUGE_N   (UINT64_MAX - 1)
#define HALF     ((uint64_t)1 << 63) /* negative as a signed number */
#define LARGE    INT64_MAX
#define N_SOURCE 6
#define MAX_S    12 /* of mini_model.h */

/* One row: what a call gives. */
#define IS(want, call) is((int64_t)(want), (int64_t)(call), #call)
#define NONE(call)     ck_assert_msg(!(call), "%s gives something", #call)

static void is(int64_t want, int64_t got, const char *call)
{
	ck_assert_msg(got == want, "%s gives %lld, not %lld", call, (long long)got, (long long)want);
}

static const int32_t source[N_SOURCE] = {4, 9, 1, 13, 17, 2}, first[] = {3, 8, 1};
static const uint64_t counts[] = {13,     INT32_MAX, (uint64_t)UINT32_MAX + 2, INT64_MAX, HALF, HALF + 3,
                                  HUGE_N, UINT64_MAX};
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))

/* Compiled once: every test runs in a process of its own. */
static struct mini_session m;

static void open_mini(void)
{
	mini_open(&m, "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\no\np\nq\nr\ns\nt\n", 1);
}

static void close_mini(void)
{
	mini_close(&m);
}

static uint64_t generate(struct tfmc_session *s, int32_t out[MINI_MAX_T])
{
	uint64_t n;
	memset(out, 0, MINI_MAX_T * sizeof(*out));
	IS(TFMC_RT_OK, tfmc_generate(s, NULL, source, N_SOURCE, NULL, 0, out, MINI_MAX_T, &n));
	return n;
}

START_TEST(records_and_files)
{
	struct tfmc_mapping map;
	char path[64];
	int64_t dims[16] = {1, 1, 1};
	const struct tfmc_record *r = tfmc_session_record(m.session);
	IS(TFMC_RT_E_NULL, tfmc_weights_map(NULL, r, 0, &map));
	IS(TFMC_RT_E_NULL, tfmc_weights_map("x", NULL, 0, &map));
	IS(TFMC_RT_E_NULL, tfmc_weights_map("x", r, 0, NULL));
	IS(TFMC_RT_E_NULL, tfmc_weights_find(NULL, path, 64));
	IS(TFMC_RT_E_NULL, tfmc_weights_find(r, NULL, 64));
	IS(TFMC_RT_E_NO_WEIGHTS, tfmc_weights_find(r, path, 64));
	tfmc_weights_unmap(NULL);
	NONE(tfmc_session_record(NULL));
	NONE(tfmc_session_variant(NULL));
	NONE(tfmc_variant_name(NULL, 0));
	NONE(tfmc_variant_name(r, LARGE));
	IS(-1, tfmc_variant_find(NULL, "x"));
	IS(-1, tfmc_variant_find(r, NULL));
	IS(-1, tfmc_entry_find(NULL, "x"));
	IS(-1, tfmc_entry_find(r, NULL));
	NONE(tfmc_entry_at(NULL, 0));
	NONE(tfmc_entry_at(r, LARGE));
	NONE(tfmc_entry_input(NULL, 0, 0));
	NONE(tfmc_entry_input(r, 0, HUGE_N));
	NONE(tfmc_entry_output(NULL, 0, 0));
	NONE(tfmc_entry_output(r, 0, HUGE_N));
	NONE(tfmc_record_dim_at(NULL, 0));
	NONE(tfmc_record_dim_at(r, HUGE_N));
	NONE(tfmc_record_text(NULL, 0));
	NONE(tfmc_record_tokenizer(NULL, NULL));
	NONE(tfmc_record_tokenizer(r, NULL));
	const struct tfmc_record_tensor *t = tfmc_entry_input(r, 0, 0);
	IS(-1, tfmc_tensor_size(NULL, t, 0, dims));
	IS(-1, tfmc_tensor_size(r, NULL, 0, dims));
	IS(-1, tfmc_tensor_size(r, t, HUGE_N, dims));
	IS(-1, tfmc_tensor_size(r, t, 0, NULL));
	IS(-1, tfmc_tensor_count(NULL, t, dims));
	IS(-1, tfmc_tensor_count(r, NULL, dims));
	IS(-1, tfmc_tensor_count(r, t, NULL));
	dims[0] = dims[1] = LARGE;
	IS(-1, tfmc_tensor_count(r, t, dims));
	IS(0, tfmc_dtype_bytes(HUGE_N));
	IS(7, tfmc_entry_workers(NULL, 0, dims, 7));
	IS(7, tfmc_entry_workers(r, LARGE, dims, 7));
	ck_assert_int_ge(tfmc_entry_workers(r, 0, NULL, 7), 1);
}
END_TEST

static void count_call(void *arg, int64_t i, int64_t n)
{
	(void)i;
	*(int64_t *)arg += n;
}

START_TEST(pools)
{
	struct tfmc_pool *g = NULL;
	int64_t n = 0;
	IS(TFMC_RT_E_NULL, tfmc_pool_create(2, NULL));
	IS(TFMC_RT_E_WORKER, tfmc_pool_create(LARGE, &g));
	IS(TFMC_RT_E_WORKER, tfmc_pool_create(INT64_MIN, &g));
	IS(TFMC_RT_E_WORKER, tfmc_pool_create_spinning(2, LARGE, &g));
	NONE(g);
	tfmc_pool_destroy(NULL);
	IS(1, tfmc_pool_size(NULL));
	tfmc_pool_run(NULL, count_call, &n);
	tfmc_pool_run_some(NULL, LARGE, count_call, &n);
	tfmc_pool_parallel_for(NULL, 3, count_call, &n);
	IS(1 + 1 + 9, n);
	tfmc_pool_parallel_for(NULL, INT64_MIN, count_call, &n);
	tfmc_pool_parallel_for(NULL, 3, NULL, &n);
	tfmc_pool_run(NULL, NULL, &n);
	IS(11, n);
}
END_TEST

static int refuse_text(void *user, const char *text, uint64_t bytes)
{
	(void)text;
	*(uint64_t *)user += bytes;
	return 1;
}

/* Appends to a struct buf. */
static int append_text(void *user, const char *text, uint64_t bytes)
{
	buf_bytes(user, text, (size_t)bytes);
	return buf_failed(user);
}

/* Groups are counted from the begin of their call, those of a call that is not recorded (yet), too. */
START_TEST(iterations_of_a_call_not_recorded)
{
	struct tfmc_timeline *t;
	struct buf text;
	struct tfmc_timeline_options o = {
	        .struct_size = sizeof(o), .write = append_text, .write_user = &text};
	const struct tfmc_span share = {1, 2};
	const struct tfmc_group_run group = {count_call, share, &share, 1};
	int64_t dims[TFMC_DIMS_MAX] = {0};
	const struct tfmc_call_run call = {0, dims, share, 0};
	buf_init(&text);
	IS(TFMC_RT_OK, tfmc_timeline_create(tfmc_session_record(m.session), 16, &t));
	const struct tfmc_trace *trace = tfmc_timeline_trace(t);
	trace->group(trace->user, &group);
	trace->group(trace->user, &group);
	trace->call(trace->user, &call);
	trace->group(trace->user, &group);
	IS(TFMC_RT_OK, tfmc_timeline_write(t, &o));
	int64_t want[] = {0, 1, 0};
	const char *at = text.data;
	for (size_t i = 0; i < 3; i++) {
		at = strstr(at, "\"iteration\":");
		ck_assert_ptr_nonnull(at);
		at += strlen("\"iteration\":");
		IS(want[i], strtoll(at, NULL, 10));
	}
	NONE(strstr(at, "\"iteration\":"));
	buf_destroy(&text);
	tfmc_timeline_destroy(t);
}
END_TEST

START_TEST(timelines)
{
	struct tfmc_timeline *t = NULL;
	struct tfmc_record wrong = {0};
	uint64_t bytes = 0;
	const struct tfmc_record *r = tfmc_session_record(m.session);
	const struct tfmc_timeline_options none = {.struct_size = sizeof(none)},
	                                   old = {.struct_size = 8, .write = refuse_text},
	                                   refused = {.struct_size = sizeof(refused),
	                                              .write = refuse_text,
	                                              .write_user = &bytes};
	IS(TFMC_RT_E_NULL, tfmc_timeline_create(r, 0, NULL));
	IS(TFMC_RT_E_NULL, tfmc_timeline_create(NULL, 0, &t));
	IS(TFMC_RT_E_RECORD, tfmc_timeline_create(&wrong, 0, &t));
	for (size_t i = 1; i < N_COUNTS; i++)
		IS(TFMC_RT_E_SIZE, tfmc_timeline_create(r, counts[i], &t));
	NONE(t);
	tfmc_timeline_destroy(NULL);
	NONE(tfmc_timeline_trace(NULL));
	IS(TFMC_RT_E_NULL, tfmc_timeline_save(NULL, "x", NULL));
	IS(TFMC_RT_OK, tfmc_timeline_create(r, 1, &t));
	IS(TFMC_RT_E_NULL, tfmc_timeline_write(NULL, &refused));
	IS(TFMC_RT_E_NULL, tfmc_timeline_write(t, NULL));
	IS(TFMC_RT_E_NULL, tfmc_timeline_write(t, &none));
	IS(TFMC_RT_E_ABI, tfmc_timeline_write(t, &old));
	IS(TFMC_RT_E_NULL, tfmc_timeline_save(t, NULL, NULL));
	IS(TFMC_RT_E_ABI, tfmc_timeline_save(t, "x", &old));
	IS(TFMC_RT_E_FILE, tfmc_timeline_save(t, "/no/such/directory/x", NULL));
	IS(TFMC_RT_E_FILE, tfmc_timeline_write(t, &refused));
	ck_assert_uint_gt(bytes, 0);
	tfmc_timeline_destroy(t);
}
END_TEST

START_TEST(ranks)
{
	static const int64_t invalid[] = {0, -1, INT64_MIN, LARGE, TFMC_LOCAL_RANKS_MAX + 1};
	const struct tfmc_link links[] = {{-1, 1}, {1, 0}, {LARGE, 1}}, link = {0, UINT64_MAX};
	struct tfmc_local_ranks *group = NULL;
	struct tfmc_ranks mirror, none = {0};
	struct tfmc_delayed_ranks d;
	for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
		IS(TFMC_RT_E_RANKS, tfmc_local_ranks_create(invalid[i], &group));
		IS(TFMC_RT_E_RANKS, tfmc_mirror_ranks_init(&mirror, invalid[i]));
		NONE(group);
	}
	IS(TFMC_RT_E_NULL, tfmc_local_ranks_create(1, NULL));
	IS(TFMC_RT_E_NULL, tfmc_mirror_ranks_init(NULL, 1));
	IS(TFMC_RT_OK, tfmc_local_ranks_create(TFMC_LOCAL_RANKS_MAX, &group));
	ck_assert_ptr_nonnull(tfmc_local_rank(group, TFMC_LOCAL_RANKS_MAX - 1));
	NONE(tfmc_local_rank(group, TFMC_LOCAL_RANKS_MAX));
	NONE(tfmc_local_rank(group, -1));
	NONE(tfmc_local_rank(NULL, 0));
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		IS(TFMC_RT_E_DIM, tfmc_delayed_ranks_init(&d, tfmc_local_rank(group, 0), &links[i]));
	IS(TFMC_RT_E_NULL, tfmc_delayed_ranks_init(NULL, tfmc_local_rank(group, 0), &link));
	IS(TFMC_RT_E_NULL, tfmc_delayed_ranks_init(&d, NULL, &link));
	IS(TFMC_RT_E_NULL, tfmc_delayed_ranks_init(&d, &none, &link));
	IS(TFMC_RT_E_NULL, tfmc_delayed_ranks_init(&d, tfmc_local_rank(group, 0), NULL));
	ck_assert(tfmc_link_sum_ns(NULL, 2, 1) == 0);
	tfmc_local_ranks_fail(NULL);
	tfmc_local_ranks_destroy(NULL);
	tfmc_local_ranks_destroy(group);
}
END_TEST

static void open_one(int want, struct tfmc_session_options o)
{
	struct tfmc_model model;
	struct tfmc_session *s = NULL;
	ck_assert(backend_jit_model(m.jit, "mini", &model));
	o.struct_size = sizeof(o);
	IS(want, tfmc_session_open(&model, &o, &s));
	ck_assert((s != NULL) == (want == TFMC_RT_OK));
	tfmc_session_close(s);
}

START_TEST(sessions)
{
	struct tfmc_model model, none = {0};
	ck_assert(backend_jit_model(m.jit, "mini", &model));
	struct tfmc_session_options o = {.struct_size = 8};
	struct tfmc_session *s = NULL;
	IS(TFMC_RT_E_NULL, tfmc_session_open(NULL, NULL, &s));
	IS(TFMC_RT_E_NULL, tfmc_session_open(&none, NULL, &s));
	IS(TFMC_RT_E_NULL, tfmc_session_open(&model, NULL, NULL));
	IS(TFMC_RT_E_NULL, tfmc_session_open(&model,
	                                     &(struct tfmc_session_options){.struct_size = sizeof(o),
	                                                                    .trace = &(struct tfmc_trace){0}},
	                                     &s));
	for (o.struct_size = 0; o.struct_size < 1000; o.struct_size++)
		if (o.struct_size != offsetof(struct tfmc_session_options, weights) &&
		    o.struct_size != offsetof(struct tfmc_session_options, verify_weights) &&
		    o.struct_size != offsetof(struct tfmc_session_options, device) &&
		    o.struct_size != offsetof(struct tfmc_session_options, context) &&
		    o.struct_size != offsetof(struct tfmc_session_options, ranks) &&
		    o.struct_size != offsetof(struct tfmc_session_options, message) &&
		    o.struct_size != offsetof(struct tfmc_session_options, message_bytes) &&
		    o.struct_size != offsetof(struct tfmc_session_options, trace) &&
		    o.struct_size != sizeof(o))
			IS(TFMC_RT_E_ABI, tfmc_session_open(&model, &o, &s));
	o.struct_size = HUGE_N;
	IS(TFMC_RT_E_ABI, tfmc_session_open(&model, &o, &s));
	IS(TFMC_RT_E_NULL, tfmc_session_follow(NULL));
	IS(TFMC_RT_E_RANKS, tfmc_session_follow(m.session));
	NONE(s);
	/* options of an older header end before verify_weights: what lies there is not looked at */
	struct {
		struct tfmc_session_options o;
	} old = {.o = {.struct_size = offsetof(struct tfmc_session_options, verify_weights),
	               .verify_weights = -1}};
	IS(TFMC_RT_OK, tfmc_session_open(&model, &old.o, &s));
	tfmc_session_close(s);
	tfmc_session_close(NULL);
	const int64_t far[16] = {LARGE, LARGE, LARGE}, less[16] = {-1};
	IS(0, tfmc_session_arena_bytes(NULL, NULL));
	IS(0, tfmc_session_arena_bytes(&none, NULL));
	IS(0, tfmc_session_arena_bytes(&model, &(struct tfmc_session_options){.struct_size = 8}));
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.context = -1});
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.context = LARGE});
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.batch = LARGE});
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.batch = -1});
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.batch = LARGE, .call_tokens = 1});
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.dims_max = far});
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.dims_max = less, .call_tokens = 1});
	open_one(TFMC_RT_E_WORKER, (struct tfmc_session_options){.workers = LARGE});
	open_one(TFMC_RT_E_WORKER, (struct tfmc_session_options){.workers = INT64_MIN});
	open_one(TFMC_RT_E_WORKER, (struct tfmc_session_options){.decode_workers = LARGE});
	open_one(TFMC_RT_E_WORKER, (struct tfmc_session_options){.decode_workers = -1});
	open_one(TFMC_RT_E_WORKER, (struct tfmc_session_options){.workers = 2, .spin_us = LARGE});
	open_one(TFMC_RT_E_NAME, (struct tfmc_session_options){.variant = "none"});
	open_one(TFMC_RT_E_FILE, (struct tfmc_session_options){.weights_path = "/"});
	open_one(TFMC_RT_OK, (struct tfmc_session_options){.call_tokens = LARGE});
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.call_tokens = INT64_MIN});
	open_one(TFMC_RT_E_DIM, (struct tfmc_session_options){.call_tokens = -5});
	open_one(TFMC_RT_OK, (struct tfmc_session_options){.spin_us = INT64_MIN});
}
END_TEST

START_TEST(sequences)
{
	struct tfmc_session *s = m.session;
	const struct tfmc_record *r = tfmc_session_record(s);
	const int64_t dims[16] = {1, 1, 1}, from[] = {LARGE, -1};
	struct tfmc_buffer none[8] = {{NULL, HUGE_N}};
	char bytes[256];
	uint64_t n = 5;
	IS(TFMC_RT_E_NULL, tfmc_session_call(NULL, 0, dims, none, none));
	IS(TFMC_RT_E_NULL, tfmc_session_call(s, 0, NULL, none, none));
	IS(TFMC_RT_E_NULL, tfmc_session_call(s, 0, dims, NULL, none));
	IS(TFMC_RT_E_NULL, tfmc_session_call(s, tfmc_entry_find(r, "prefill"), dims, none, NULL));
	IS(TFMC_RT_E_NULL, tfmc_session_call(s, 0, dims, none, none));
	IS(TFMC_RT_E_NAME, tfmc_session_call(s, LARGE, dims, none, none));
	IS(TFMC_RT_E_NULL, tfmc_session_reset(NULL));
	IS(0, tfmc_session_batch(NULL));
	IS(-1, tfmc_session_length(NULL, 0));
	IS(-1, tfmc_session_length(s, LARGE));
	IS(TFMC_RT_E_NULL, tfmc_session_select(NULL, 0, 0));
	IS(TFMC_RT_E_DIM, tfmc_session_select(s, LARGE, -1));
	IS(TFMC_RT_E_NULL, tfmc_session_reorder(NULL, from, 1));
	IS(TFMC_RT_E_NULL, tfmc_session_reorder(s, NULL, 1));
	IS(TFMC_RT_OK, tfmc_session_reorder(s, NULL, 0));
	IS(TFMC_RT_E_DIM, tfmc_session_reorder(s, from, 1));
	IS(TFMC_RT_E_DIM, tfmc_session_reorder(s, from, LARGE));
	IS(TFMC_RT_E_NULL, tfmc_session_trim(NULL, 0, 0));
	IS(TFMC_RT_E_DIM, tfmc_session_trim(s, LARGE, 0));
	IS(TFMC_RT_E_NULL, tfmc_session_fork(NULL, 0, 0));
	IS(TFMC_RT_E_DIM, tfmc_session_fork(s, 0, LARGE));
	IS(TFMC_RT_E_NULL, tfmc_session_save(NULL, 0, bytes, 256, &n));
	IS(TFMC_RT_E_NULL, tfmc_session_save(s, 0, bytes, 256, NULL));
	IS(TFMC_RT_E_SIZE, tfmc_session_save(s, 0, NULL, HUGE_N, &n));
	IS(TFMC_RT_E_DIM, tfmc_session_save(s, LARGE, bytes, 256, &n));
	IS(TFMC_RT_E_NULL, tfmc_session_restore(NULL, 0, bytes, 256));
	IS(TFMC_RT_E_SAVED, tfmc_session_restore(s, 0, NULL, HUGE_N));
	IS(TFMC_RT_E_SAVED, tfmc_session_restore(s, 0, bytes, 0));
	IS(TFMC_RT_E_NULL, tfmc_state_save(NULL, NULL, bytes, 1, 0, bytes, 256, &n));
	IS(TFMC_RT_E_NULL, tfmc_state_save(r, NULL, bytes, 1, 0, bytes, 256, NULL));
	IS(TFMC_RT_E_STATE, tfmc_state_save(r, NULL, NULL, 1, 0, bytes, 256, &n));
	IS(TFMC_RT_E_DIM, tfmc_state_save(r, NULL, bytes, INT64_MIN, 0, bytes, 256, &n));
	IS(TFMC_RT_E_NULL, tfmc_state_restore(NULL, NULL, bytes, 1, 0, bytes, 256));
	IS(TFMC_RT_E_STATE, tfmc_state_restore(r, NULL, NULL, 1, 0, bytes, 256));
	IS(TFMC_RT_E_NULL, tfmc_session_set_source(NULL, bytes, dims, 1));
	IS(TFMC_RT_E_NULL, tfmc_session_set_source(s, bytes, NULL, 1));
	IS(TFMC_RT_E_PROMPT, tfmc_session_set_source(s, bytes, dims, HUGE_N));
	const int64_t large[] = {LARGE, LARGE, LARGE};
	IS(TFMC_RT_E_PROMPT, tfmc_session_set_source(s, bytes, large, 3));
	IS(TFMC_RT_OK, tfmc_session_set_source(s, NULL, NULL, HUGE_N));
	tfmc_session_cancel(NULL);
	ck_assert_str_eq(tfmc_session_status_text(NULL, TFMC_RT_E_PROMPT),
	                 tfmc_rt_status_text(TFMC_RT_E_PROMPT));
}
END_TEST

START_TEST(slots)
{
	struct tfmc_slots *s;
	int64_t a = 0, b = 0;
	char bytes[256];
	uint64_t n;
	const struct tfmc_slot_token twice[] = {{0, 1}, {0, 1}}, far[] = {{LARGE, 1}};
	IS(TFMC_RT_E_NULL, tfmc_slots_open(NULL, &s));
	IS(TFMC_RT_E_NULL, tfmc_slots_open(m.session, NULL));
	IS(TFMC_RT_OK, tfmc_slots_open(m.session, &s));
	IS(TFMC_RT_E_NULL, tfmc_slots_join(NULL, first, 3, source, N_SOURCE, &a));
	IS(TFMC_RT_E_NULL, tfmc_slots_join(s, first, 3, source, N_SOURCE, NULL));
	IS(TFMC_RT_E_NULL, tfmc_slots_join(s, NULL, 3, source, N_SOURCE, &a));
	IS(TFMC_RT_E_NULL, tfmc_slots_join(s, first, 3, NULL, N_SOURCE, &a));
	IS(TFMC_RT_E_PROMPT, tfmc_slots_join(s, first, 3, NULL, 0, &a));
	for (size_t i = 0; i < N_COUNTS; i++) {
		IS(TFMC_RT_E_FULL, tfmc_slots_join(s, first, counts[i], source, N_SOURCE, &a));
		IS(TFMC_RT_E_PROMPT, tfmc_slots_join(s, first, 3, source, counts[i], &a));
	}
	IS(-1, a);
	IS(TFMC_RT_OK, tfmc_slots_join(s, first, 3, source, N_SOURCE, &a));
	IS(TFMC_RT_E_NULL, tfmc_slots_feed(NULL, a, first, 1));
	IS(TFMC_RT_E_NULL, tfmc_slots_feed(s, a, NULL, 1));
	IS(TFMC_RT_E_SLOT, tfmc_slots_feed(s, LARGE, first, 1));
	for (size_t i = 0; i < N_COUNTS; i++)
		IS(TFMC_RT_E_FULL, tfmc_slots_feed(s, a, first, counts[i]));
	IS(TFMC_RT_E_NULL, tfmc_slots_fork(NULL, a, &b));
	IS(TFMC_RT_E_NULL, tfmc_slots_fork(s, a, NULL));
	IS(TFMC_RT_E_SLOT, tfmc_slots_fork(s, LARGE, &b));
	IS(TFMC_RT_E_NULL, tfmc_slots_leave(NULL, a));
	IS(TFMC_RT_E_SLOT, tfmc_slots_leave(s, INT64_MIN));
	IS(TFMC_RT_E_NULL, tfmc_slots_trim(NULL, a, 0));
	IS(TFMC_RT_E_SLOT, tfmc_slots_trim(s, LARGE, 0));
	IS(TFMC_RT_E_NULL, tfmc_slots_step(NULL, twice, 1));
	IS(TFMC_RT_E_NULL, tfmc_slots_step(s, NULL, 1));
	IS(TFMC_RT_OK, tfmc_slots_step(s, NULL, 0));
	IS(TFMC_RT_E_SLOT, tfmc_slots_step(s, twice, HUGE_N));
	IS(TFMC_RT_E_SLOT, tfmc_slots_step(s, far, 1));
	NONE(tfmc_slots_logits(NULL, 0));
	NONE(tfmc_slots_logits(s, LARGE));
	IS(0, tfmc_slots_vocabulary(NULL));
	IS(-1, tfmc_slots_length(NULL, 0));
	IS(-1, tfmc_slots_length(s, LARGE));
	IS(0, tfmc_slots_active(NULL));
	IS(1, tfmc_slots_active(s));
	IS(3, tfmc_slots_length(s, a));
	IS(TFMC_RT_E_NULL, tfmc_slots_save(NULL, a, bytes, 256, &n));
	IS(TFMC_RT_E_NULL, tfmc_slots_save(s, a, bytes, 256, NULL));
	IS(TFMC_RT_E_SLOT, tfmc_slots_save(s, LARGE, bytes, 256, &n));
	IS(TFMC_RT_E_NULL, tfmc_slots_restore(NULL, bytes, 256, &b));
	IS(TFMC_RT_E_NULL, tfmc_slots_restore(s, bytes, 256, NULL));
	IS(TFMC_RT_E_SAVED, tfmc_slots_restore(s, NULL, 256, &b));
	tfmc_slots_close(NULL);
	tfmc_slots_close(s);
}
END_TEST

START_TEST(generation)
{
	struct tfmc_session *s = m.session;
	int32_t before[MINI_MAX_T], out[MINI_MAX_T];
	uint64_t n_before = generate(s, before), n = 7;
	double log_p[MINI_MAX_T];
	struct tfmc_beam_options beam = {.struct_size = sizeof(beam), .beam = 2};
	struct tfmc_hypothesis h[2] = {{out, MINI_MAX_T, 0, 0, 0}, {NULL, 0, 0, 0, 0}},
	                       no_tokens = {NULL, 4, 0, 0, 0};
	IS(TFMC_RT_E_NULL, tfmc_generate(NULL, NULL, source, N_SOURCE, NULL, 0, out, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_generate(s, NULL, NULL, N_SOURCE, NULL, 0, out, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_generate(s, NULL, source, N_SOURCE, NULL, 1, out, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_generate(s, NULL, source, N_SOURCE, NULL, 0, NULL, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_generate(s, NULL, source, N_SOURCE, NULL, 0, out, 4, NULL));
	IS(TFMC_RT_E_PROMPT, tfmc_generate(s, NULL, NULL, 0, NULL, 0, out, 4, &n));
	IS(TFMC_RT_OK, tfmc_generate(s, NULL, source, N_SOURCE, NULL, 0, NULL, 0, &n));
	IS(0, n);
	IS(TFMC_RT_E_NULL, tfmc_beam_search(NULL, &beam, source, N_SOURCE, NULL, 0, h, 2, &n));
	IS(TFMC_RT_E_NULL, tfmc_beam_search(s, NULL, source, N_SOURCE, NULL, 0, h, 2, &n));
	IS(TFMC_RT_E_NULL, tfmc_beam_search(s, &beam, NULL, N_SOURCE, NULL, 0, h, 2, &n));
	IS(TFMC_RT_E_NULL, tfmc_beam_search(s, &beam, source, N_SOURCE, NULL, 1, h, 2, &n));
	IS(TFMC_RT_E_NULL, tfmc_beam_search(s, &beam, source, N_SOURCE, NULL, 0, NULL, 2, &n));
	IS(TFMC_RT_E_NULL, tfmc_beam_search(s, &beam, source, N_SOURCE, NULL, 0, &no_tokens, 1, &n));
	IS(TFMC_RT_E_NULL, tfmc_beam_search(s, &beam, source, N_SOURCE, NULL, 0, h, 2, NULL));
	IS(TFMC_RT_E_NULL, tfmc_score(NULL, source, N_SOURCE, first, 3, log_p));
	IS(TFMC_RT_E_NULL, tfmc_score(s, NULL, N_SOURCE, first, 3, log_p));
	IS(TFMC_RT_E_NULL, tfmc_score(s, source, N_SOURCE, NULL, 3, log_p));
	IS(TFMC_RT_E_NULL, tfmc_score(s, source, N_SOURCE, first, 3, NULL));
	for (size_t i = 0; i < N_COUNTS; i++) {
		IS(TFMC_RT_E_PROMPT, tfmc_generate(s, NULL, source, counts[i], NULL, 0, out, 4, &n));
		IS(TFMC_RT_E_PROMPT, tfmc_generate(s, NULL, source, N_SOURCE, first, counts[i], out, 4, &n));
		IS(TFMC_RT_E_PROMPT, tfmc_beam_search(s, &beam, source, counts[i], NULL, 0, h, 1, &n));
		IS(TFMC_RT_E_PROMPT,
		   tfmc_beam_search(s, &beam, source, N_SOURCE, first, counts[i], h, 1, &n));
		IS(TFMC_RT_E_PROMPT, tfmc_score(s, source, counts[i], first, 3, log_p));
		IS(TFMC_RT_E_PROMPT, tfmc_score(s, source, N_SOURCE, first, counts[i], log_p));
	}
	h[1].cap = 4; /* room for two hypotheses, and no place for the tokens of one */
	beam.beam = 1;
	IS(TFMC_RT_E_NULL, tfmc_beam_search(s, &beam, source, N_SOURCE, NULL, 0, h, 2, &n));
	IS(TFMC_RT_OK, tfmc_beam_search(s, &beam, source, N_SOURCE, NULL, 0, NULL, 0, &n));
	IS(0, n);
	/* more room than there is: nothing is written after what is generated */
	IS(TFMC_RT_OK, tfmc_generate(s, NULL, source, N_SOURCE, NULL, 0, out, UINT64_MAX, &n));
	ck_assert_uint_eq(n, n_before);
	ck_assert_uint_eq(generate(s, out), n_before);
	ck_assert_mem_eq(out, before, sizeof(before));
}
END_TEST

START_TEST(many)
{
	int32_t out[MINI_MAX_T];
	struct tfmc_generation good = {source, N_SOURCE, NULL, 0, out, MINI_MAX_T, NULL, 0, 0, 0};
	struct tfmc_generation items[] = {good, good, good, good, good};
	items[0].prompt = NULL;
	items[1].n_target = 1;
	items[2].out = NULL;
	items[3].n_prompt = HALF;
	IS(TFMC_RT_E_NULL, tfmc_generate_many(NULL, NULL, items, 5));
	IS(TFMC_RT_E_NULL, tfmc_generate_many(m.session, NULL, NULL, 5));
	IS(TFMC_RT_OK, tfmc_generate_many(m.session, NULL, NULL, 0));
	IS(TFMC_RT_OK, tfmc_generate_many(m.session, NULL, items, 5));
	for (int i = 0; i < 3; i++)
		IS(TFMC_RT_E_NULL, items[i].status);
	IS(TFMC_RT_E_PROMPT, items[3].status);
	IS(TFMC_RT_OK, items[4].status);
	ck_assert_str_eq(tfmc_session_status_text(m.session, items[3].status),
	                 "the source has 9223372036854775807 ids; 1 to 12 are possible");
}
END_TEST

/* Memory for few tokens and many workers: a call that one worker does has no more of it than one of all. */
START_TEST(small_arenas)
{
	struct tfmc_model model;
	struct tfmc_session *s;
	int64_t dims[16];
	int32_t out[MINI_MAX_T];
	uint64_t n;
	ck_assert(backend_jit_model(m.jit, "mini", &model));
	for (uint64_t i = 0; i < model.record->n_dims; i++)
		dims[i] = tfmc_record_dim_at(model.record, i)->lo;
	struct tfmc_session_options o = {.struct_size = sizeof(o), .workers = 8, .dims_max = dims};
	IS(TFMC_RT_OK, tfmc_session_open(&model, &o, &s));
	IS(TFMC_RT_E_SIZE, tfmc_generate(s, NULL, source, N_SOURCE, NULL, 0, out, MINI_MAX_T, &n));
	tfmc_session_close(s);
}
END_TEST

/* A session for fewer tokens than the object allows writes the same ids until it is full. */
START_TEST(few_tokens)
{
	struct tfmc_model model;
	struct tfmc_session *s;
	struct tfmc_slots *l;
	int32_t all[MINI_MAX_T], out[MINI_MAX_T];
	uint64_t n, n_all = generate(m.session, all);
	int64_t slot;
	enum tfmc_finish finish;
	struct tfmc_generate_options g = {.struct_size = sizeof(g), .ignore_stop = 1, .finish = &finish};
	IS(TFMC_RT_OK, tfmc_generate(m.session, &g, source, N_SOURCE, NULL, 0, all, MINI_MAX_T, &n_all));
	ck_assert(backend_jit_model(m.jit, "mini", &model));
	struct tfmc_session_options o = {.struct_size = sizeof(o), .context = 4};
	IS(TFMC_RT_OK, tfmc_session_open(&model, &o, &s));
	ck_assert_uint_eq(tfmc_session_arena_bytes(&model, &o), tfmc_session_arena_bytes(&model, NULL));
	IS(TFMC_RT_OK, tfmc_generate(s, &g, source, N_SOURCE, NULL, 0, out, MINI_MAX_T, &n));
	IS(3, n); /* after the start id */
	IS(TFMC_FINISH_LENGTH, finish);
	ck_assert_mem_eq(out, all, 3 * sizeof(*out));
	IS(TFMC_RT_E_PROMPT, tfmc_generate(s, &g, source, N_SOURCE, source, 5, out, MINI_MAX_T, &n));
	ck_assert_str_eq(tfmc_session_status_text(s, TFMC_RT_E_PROMPT),
	                 "the target has 5 ids; at most 4 are possible");
	IS(TFMC_RT_OK, tfmc_slots_open(s, &l));
	IS(TFMC_RT_OK, tfmc_slots_join(l, first, 3, source, N_SOURCE, &slot));
	const struct tfmc_slot_token next = {slot, 1};
	IS(TFMC_RT_OK, tfmc_slots_step(l, &next, 1));
	IS(TFMC_RT_E_FULL, tfmc_slots_step(l, &next, 1));
	IS(TFMC_RT_E_FULL, tfmc_slots_feed(l, slot, first, 1));
	IS(4, tfmc_slots_length(l, slot));
	tfmc_slots_close(l);
	tfmc_session_close(s);
}
END_TEST

static int cancel_late(void *user, int32_t id)
{
	(void)id;
	tfmc_session_cancel(user);
	return 0;
}

/* A cancel ends what goes on, all of it, and nothing that begins later. */
START_TEST(cancels)
{
	struct tfmc_session *s = m.session;
	int32_t out[MINI_MAX_T], before[MINI_MAX_T];
	struct tfmc_generation items[3];
	uint64_t n, n_before = generate(s, before);
	for (int i = 0; i < 3; i++)
		items[i] =
		        (struct tfmc_generation){source, N_SOURCE, NULL, 0, out, MINI_MAX_T, NULL, 0, 0, 0};
	tfmc_session_cancel(s);
	IS(TFMC_RT_E_CANCELLED, tfmc_generate_many(s, NULL, items, 3));
	for (int i = 0; i < 3; i++)
		IS(TFMC_RT_E_CANCELLED, items[i].status);
	struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .max_new_tokens = 1, .on_token = cancel_late, .user = s};
	IS(TFMC_RT_OK, tfmc_generate(s, &o, source, N_SOURCE, NULL, 0, out, MINI_MAX_T, &n));
	ck_assert_uint_eq(generate(s, out), n_before);
	ck_assert_mem_eq(out, before, sizeof(before));
}
END_TEST

START_TEST(rules_and_samplers)
{
	int32_t out[4];
	uint64_t n;
	struct tfmc_constraints constraints[] = {
	        {.forced = {NULL, 1}}, {.suppress = {NULL, 1}},        {.stop = {NULL, 1}},   {.n_banned = 1},
	        {.n_stop_texts = 1},   {.no_repeat_ngram = INT64_MIN}, {.min_new_tokens = -1}};
	for (size_t i = 0; i < sizeof(constraints) / sizeof(constraints[0]); i++) {
		constraints[i].struct_size = sizeof(constraints[i]);
		struct tfmc_generate_options o = {.struct_size = sizeof(o), .constraints = &constraints[i]};
		IS(TFMC_RT_E_CONSTRAINTS,
		   tfmc_generate(m.session, &o, source, N_SOURCE, NULL, 0, out, 4, &n));
	}
	IS(3, tfmc_text_stop(NULL, "abc"));
	IS(3, tfmc_text_stop(&constraints[4], "abc"));
	IS(0, tfmc_text_stop(&constraints[0], NULL));
	struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;
	struct tfmc_sampler *s = NULL;
	const float logits[2] = {0, 1};
	IS(TFMC_RT_E_NULL, tfmc_sampler_create(NULL, 2, &s));
	IS(TFMC_RT_E_NULL, tfmc_sampler_create(&o, 2, NULL));
	IS(TFMC_RT_E_SAMPLE, tfmc_sampler_create(&o, 0, &s));
	IS(TFMC_RT_E_SAMPLE, tfmc_sampler_create(&o, LARGE, &s));
	NONE(s);
	IS(TFMC_RT_OK, tfmc_sampler_create(&o, 2, &s));
	IS(-1, tfmc_sampler_draw(NULL, logits, NULL, NULL, 0));
	IS(-1, tfmc_sampler_draw(s, NULL, NULL, NULL, 0));
	IS(-1, tfmc_sampler_draw(s, logits, NULL, NULL, HUGE_N));
	tfmc_sampler_destroy(s);
	tfmc_sampler_destroy(NULL);
}
END_TEST

START_TEST(texts)
{
	const struct tfmc_record *r = tfmc_session_record(m.session);
	int32_t ids[4];
	uint64_t n;
	char out[64], cut[64];
	IS(TFMC_RT_E_NULL, tfmc_text_encode(NULL, "a", ids, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_text_encode(r, NULL, ids, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_text_encode(r, "a", NULL, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_text_encode(r, "a", ids, 4, NULL));
	IS(TFMC_RT_E_NULL, tfmc_text_encode_target(NULL, "a", ids, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_text_decode(NULL, ids, 0, out, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_text_decode(r, NULL, 1, out, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_text_decode(r, ids, 0, NULL, 4, &n));
	IS(TFMC_RT_E_NULL, tfmc_text_decode(r, ids, 0, out, 4, NULL));
	IS(TFMC_RT_OK, tfmc_text_decode(r, NULL, 0, NULL, 0, &n));
	IS(TFMC_RT_E_NULL, tfmc_generate_text(NULL, "ab", out, 64));
	IS(TFMC_RT_E_NULL, tfmc_generate_text(m.session, NULL, out, 64));
	IS(TFMC_RT_E_NULL, tfmc_generate_text(m.session, "ab", NULL, 64));
	/* a text that does not fit is said not to */
	IS(TFMC_RT_OK, tfmc_generate_text(m.session, "ab", out, 64));
	size_t length = strlen(out);
	ck_assert_uint_gt(length, 2);
	for (size_t cap = 0; cap <= length + 1; cap++) {
		memset(cut, '?', sizeof(cut));
		IS(cap > length ? TFMC_RT_OK : TFMC_RT_E_SIZE,
		   tfmc_generate_text(m.session, "ab", cap ? cut : NULL, cap));
		ck_assert(cap == 0 || (strlen(cut) == cap - 1 && !memcmp(cut, out, cap - 1)));
		ck_assert_int_eq(cut[cap], '?');
	}
}
END_TEST

START_TEST(prompts_are_named)
{
	struct tfmc_session *s = m.session;
	int32_t out[4];
	const int32_t wrong[] = {4, 20, 1};
	uint64_t n;
	int status = tfmc_generate(s, NULL, wrong, 3, NULL, 0, out, 4, &n);
	ck_assert_str_eq(tfmc_session_status_text(s, status),
	                 "id 20, number 2 of the source, is outside of the vocabulary of 20");
	status = tfmc_generate(s, NULL, NULL, 0, NULL, 0, out, 4, &n);
	ck_assert_str_eq(tfmc_session_status_text(s, status), "the source is empty");
	const int32_t far[MAX_S + 1] = {4};
	status = tfmc_generate(s, NULL, far, MAX_S + 1, NULL, 0, out, 4, &n);
	ck_assert_str_eq(tfmc_session_status_text(s, status), "the source has 13 ids; 1 to 12 are possible");
	status = tfmc_generate(s, NULL, source, N_SOURCE, first, 11, out, 4, &n);
	ck_assert_str_eq(tfmc_session_status_text(s, status),
	                 "the target has 11 ids; at most 10 are possible");
	/* that was the last one's, not any one's */
	ck_assert_str_eq(tfmc_session_status_text(s, TFMC_RT_E_FULL), tfmc_rt_status_text(TFMC_RT_E_FULL));
	(void)generate(s, (int32_t[MINI_MAX_T]){0});
	ck_assert_str_eq(tfmc_session_status_text(s, TFMC_RT_E_PROMPT),
	                 tfmc_rt_status_text(TFMC_RT_E_PROMPT));
}
END_TEST

START_TEST(tokenizers)
{
	struct tfmc_tokenizer *t = NULL;
	struct tfmc_token_stream stream;
	int32_t ids[2];
	char out[4];
	uint64_t n;
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_open(NULL, 8, &t));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_open(out, 4, NULL));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_open_target(NULL, 8, &t));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_open_target(out, 4, NULL));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_open_file(NULL, &t));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_open_file("x", NULL));
	NONE(t);
	tfmc_tokenizer_close(NULL);
	IS(0, tfmc_tokenizer_size(NULL));
	IS(0, tfmc_tokenizer_is_bare(NULL));
	NONE(tfmc_tokenizer_piece(NULL, 0, &n));
	IS(0, tfmc_tokenizer_is_special(NULL, 0));
	IS(-1, tfmc_tokenizer_find(NULL, "a", 1));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_encode(NULL, "a", 1, 0, ids, 2, &n));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_encode_pair(NULL, "a", 1, "b", 1, ids, ids, 2, &n));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_normalize(NULL, "a", 1, out, 4, &n));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_tokenizer_decode(NULL, ids, 0, 0, out, 4, &n));
	tfmc_token_stream_begin(NULL, NULL, 0, NULL, NULL);
	tfmc_token_stream_begin(&stream, NULL, 0, NULL, NULL);
	IS(TFMC_TOKENIZER_E_NULL, tfmc_token_stream_add(NULL, 0));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_token_stream_add(&stream, 0));
	IS(TFMC_TOKENIZER_E_NULL, tfmc_token_stream_end(NULL));
	IS(TFMC_TOKENIZER_OK, tfmc_token_stream_end(&stream));
}
END_TEST

Suite *suite_misuse(void);
Suite *suite_misuse(void)
{
	Suite *s = suite_create("misuse");
	TCase *c = tcase_create("misuse");
	tcase_set_timeout(c, 120);
	tcase_add_unchecked_fixture(c, open_mini, close_mini);
	tcase_add_test(c, records_and_files);
	tcase_add_test(c, pools);
	tcase_add_test(c, timelines);
	tcase_add_test(c, iterations_of_a_call_not_recorded);
	tcase_add_test(c, ranks);
	tcase_add_test(c, sessions);
	tcase_add_test(c, sequences);
	tcase_add_test(c, slots);
	tcase_add_test(c, generation);
	tcase_add_test(c, many);
	tcase_add_test(c, small_arenas);
	tcase_add_test(c, few_tokens);
	tcase_add_test(c, cancels);
	tcase_add_test(c, rules_and_samplers);
	tcase_add_test(c, texts);
	tcase_add_test(c, prompts_are_named);
	tcase_add_test(c, tokenizers);
	suite_add_tcase(s, c);
	return s;
}
