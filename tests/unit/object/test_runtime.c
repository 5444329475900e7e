/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of libtfmcrt that need no object: the pool of workers, weights
 * files, text and ids, status texts.
 */
#define _DEFAULT_SOURCE /* truncate, usleep */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/tfmc_rt.h"

/* ---- pool ---- */
#define MAX_WORKERS 8

struct tally {
	int counts[MAX_WORKERS * 4];
	int64_t n_workers;
};

static void count_worker(void *arg, int64_t worker, int64_t n_workers)
{
	struct tally *t = arg;
	t->counts[worker]++;
	if (worker == 0)
		t->n_workers = n_workers;
}

START_TEST(pool_runs_every_worker_once)
{
	for (int64_t n = 1; n <= MAX_WORKERS; n++) {
		struct tfmc_pool *pool;
		struct tally tally = {0};
		ck_assert_int_eq(tfmc_pool_create(n, &pool), TFMC_RT_OK);
		ck_assert_int_eq(tfmc_pool_size(pool), n);
		for (int round = 1; round <= 50; round++)
			tfmc_pool_run(pool, count_worker, &tally);
		for (int64_t i = 0; i < n; i++)
			ck_assert_int_eq(tally.counts[i], 50);
		ck_assert_int_eq(tally.n_workers, n);
		tfmc_pool_destroy(pool);
	}
}
END_TEST

/* Some rounds follow at once, before others everybody has fallen asleep. */
static void run_rounds(int64_t n, int64_t microseconds, int rounds)
{
	struct tfmc_pool *pool;
	struct tally tally = {0};
	ck_assert_int_eq(tfmc_pool_create_spinning(n, microseconds, &pool), TFMC_RT_OK);
	for (int round = 0; round < rounds; round++) {
		if (round % 16 == 15)
			usleep((useconds_t)microseconds + 200);
		tfmc_pool_run(pool, count_worker, &tally);
		for (int64_t i = 0; i < n; i++)
			ck_assert_int_eq(tally.counts[i], round + 1);
	}
	tfmc_pool_destroy(pool);
}

START_TEST(pool_wakes_sleeping_workers)
{
	static const int64_t spins[] = {0, 1, 20, 100};
	for (size_t i = 0; i < sizeof(spins) / sizeof(spins[0]); i++) {
		run_rounds(2, spins[i], 100);
		run_rounds(MAX_WORKERS, spins[i], 20);
	}
}
END_TEST

START_TEST(pool_runs_some)
{
	struct tfmc_pool *pool;
	ck_assert_int_eq(tfmc_pool_create(4, &pool), TFMC_RT_OK);
	for (int64_t n = -1; n <= 6; n++) {
		struct tally tally = {0};
		int64_t used = n < 1 ? 1 : n > 4 ? 4 : n;
		tfmc_pool_run_some(pool, n, count_worker, &tally);
		ck_assert_int_eq(tally.n_workers, used);
		for (int64_t i = 0; i < 4; i++)
			ck_assert_int_eq(tally.counts[i], i < used);
	}
	tfmc_pool_destroy(pool);
}
END_TEST

/* Threads that have never worked, that look and that sleep all end. */
START_TEST(pool_is_torn_down_at_any_time)
{
	for (int round = 0; round < 40; round++) {
		struct tfmc_pool *pool;
		struct tally tally = {0};
		ck_assert_int_eq(tfmc_pool_create_spinning(3, round % 3 * 10, &pool), TFMC_RT_OK);
		if (round % 2)
			tfmc_pool_run(pool, count_worker, &tally);
		if (round % 5 == 4)
			usleep(100);
		tfmc_pool_destroy(pool);
	}
}
END_TEST

START_TEST(pool_deals_out_any_number)
{
	struct tfmc_pool *pool;
	ck_assert_int_eq(tfmc_pool_create(3, &pool), TFMC_RT_OK);
	for (int64_t n = 0; n <= MAX_WORKERS * 4; n++) {
		struct tally tally = {0};
		tfmc_pool_parallel_for(pool, n, count_worker, &tally);
		for (int64_t i = 0; i < MAX_WORKERS * 4; i++)
			ck_assert_int_eq(tally.counts[i], i < n);
	}
	tfmc_pool_destroy(pool);
}
END_TEST

START_TEST(pool_rejects_no_workers)
{
	struct tfmc_pool *pool;
	ck_assert_int_ne(tfmc_pool_create(0, &pool), TFMC_RT_OK);
	ck_assert_int_ne(tfmc_pool_create(-1, &pool), TFMC_RT_OK);
	ck_assert_int_ne(tfmc_pool_create_spinning(2, -1, &pool), TFMC_RT_OK);
	ck_assert_ptr_null(pool);
	tfmc_pool_destroy(NULL);
}
END_TEST

/* ---- how many workers ---- */

struct small_record {
	struct tfmc_record record;
	struct tfmc_record_entry entry;
	uint64_t flops[8]; /* 1000 S + 3 S S */
};

static void make_small_record(struct small_record *r, int has_flops)
{
	static const uint64_t flops[] = {2, 1000, 1, 0, 3, 2, 0, 0};
	memset(r, 0, sizeof(*r));
	r->record.n_entries = 1;
	r->record.entries = offsetof(struct small_record, entry);
	r->entry.steps = 2;
	r->entry.flops = has_flops ? offsetof(struct small_record, flops) : 0;
	memcpy(r->flops, flops, sizeof(flops));
}

/* n workers share a step when it has n (n - 1) TFMC_STEP_FLOPS. */
START_TEST(workers_grow_with_the_work)
{
	struct small_record r;
	int64_t before = 1;
	make_small_record(&r, 1);
	for (int64_t s = 1; s < 100000; s += 1 + s / 8) {
		double per_step = (double)(1000 * s + 3 * s * s) / 2;
		int64_t n = tfmc_entry_workers(&r.record, 0, &s, 16);
		ck_assert_int_ge(n, before);
		ck_assert(n == 1 || per_step >= (double)(n * (n - 1)) * TFMC_STEP_FLOPS);
		ck_assert(n == 16 || per_step < (double)(n * (n + 1)) * TFMC_STEP_FLOPS);
		ck_assert_int_eq(tfmc_entry_workers(&r.record, 0, &s, 1), 1);
		before = n;
	}
	ck_assert_int_eq(before, 16);
	make_small_record(&r, 0);
	ck_assert_int_eq(tfmc_entry_workers(&r.record, 0, &before, 5), 5);
}
END_TEST

/* ---- weights ---- */
static const char weights_path[] = "test_runtime.weights";

static void write_weights(const struct tfmc_weights_header *h, const void *bytes, size_t n)
{
	static const char zeros[TFMC_WEIGHTS_DATA];
	FILE *f = fopen(weights_path, "wb");
	ck_assert_ptr_nonnull(f);
	fwrite(h, 1, sizeof(*h), f);
	fwrite(zeros, 1, sizeof(zeros) - sizeof(*h), f);
	fwrite(bytes, 1, n, f);
	ck_assert_int_eq(fclose(f), 0);
}

/* The definition, word by word. */
static uint64_t plain_hash(const unsigned char *bytes, uint64_t n)
{
	uint64_t streams[16], all = 0xcbf29ce484222325u;
	for (int i = 0; i < 16; i++)
		streams[i] = 0xcbf29ce484222325u;
	for (uint64_t i = 0; i * 4 < n; i++) {
		uint64_t word = 0;
		for (uint64_t k = 0; k < 4 && i * 4 + k < n; k++)
			word |= (uint64_t)bytes[i * 4 + k] << (8 * k);
		streams[i % 16] = (streams[i % 16] ^ word) * 0x100000001b3u;
	}
	for (int i = 0; i < 16; i++)
		all = (all ^ streams[i]) * 0x100000001b3u;
	return (all ^ n) * 0x100000001b3u;
}

START_TEST(hashes_by_the_definition)
{
	unsigned char bytes[500];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 37 + i / 7);
	for (uint64_t n = 0; n <= sizeof(bytes); n += 1 + n / 9) {
		for (uint64_t first = 0; first <= n; first += 4) {
			struct tfmc_weights_hash h;
			tfmc_weights_hash_begin(&h);
			tfmc_weights_hash_add(&h, bytes, first);
			tfmc_weights_hash_add(&h, bytes + first, n - first);
			ck_assert_uint_eq(tfmc_weights_hash_end(&h), plain_hash(bytes, n));
		}
	}
}
END_TEST

/* Whoever waits for a writer of a FIFO waits for ever. */
START_TEST(weights_are_regular_files)
{
	struct tfmc_record record = {.structure_hash = 7, .ranks = 1, .weights_bytes = 1};
	struct tfmc_mapping m;
	ck_assert_int_eq(mkfifo("test_runtime.fifo", 0600), 0);
	alarm(10);
	ck_assert_int_eq(tfmc_weights_map("test_runtime.fifo", &record, 0, &m), TFMC_RT_E_FILE);
	alarm(0);
	remove("test_runtime.fifo");
	ck_assert_int_eq(tfmc_weights_map("/dev/zero", &record, 0, &m), TFMC_RT_E_FILE);
	ck_assert_int_eq(tfmc_weights_map(".", &record, 0, &m), TFMC_RT_E_FILE);
}
END_TEST

/* By what is in it, not by its name; the first name of several; nothing that is not the object's. */
START_TEST(weights_are_found)
{
	struct tfmc_record record = {.structure_hash = 7, .ranks = 1, .weights_bytes = 1, .weights_hash = 5};
	struct tfmc_weights_header h = {TFMC_WEIGHTS_MAGIC, TFMC_ABI_VERSION, 7, 4, 1, 5, 0, 1};
	char path[64];
	write_weights(&h, "a", 1);
	ck_assert_int_eq(mkfifo("a.weights", 0600), 0); /* comes before */
	alarm(10);
	ck_assert_int_eq(tfmc_weights_find(&record, path, sizeof(path)), TFMC_RT_OK);
	alarm(0);
	remove("a.weights");
	ck_assert_str_eq(strrchr(path, '/'), "/test_runtime.weights");
	ck_assert_int_eq(tfmc_weights_find(&record, path, strlen(path)), TFMC_RT_E_SIZE);
	record.weights_hash = 6;
	ck_assert_int_eq(tfmc_weights_find(&record, path, sizeof(path)), TFMC_RT_E_NO_WEIGHTS);
	record.weights_hash = 5;
	record.ranks = 3; /* the part of a rank */
	h.ranks = 3;
	h.rank = 2;
	write_weights(&h, "a", 1);
	ck_assert_int_eq(tfmc_weights_find(&record, path, sizeof(path)), TFMC_RT_E_NO_WEIGHTS);
	ck_assert_int_eq(tfmc_weights_find_rank(&record, 1, path, sizeof(path)), TFMC_RT_E_NO_WEIGHTS);
	ck_assert_int_eq(tfmc_weights_find_rank(&record, 2, path, sizeof(path)), TFMC_RT_OK);
	remove(weights_path);
	record.ranks = 1;
	ck_assert_int_eq(tfmc_weights_find(&record, path, sizeof(path)), TFMC_RT_E_NO_WEIGHTS);
}
END_TEST

/* Large files are copied to large pages and may then change; a small file stays mapped. */
START_TEST(weights_on_large_pages)
{
	enum { BYTES = (5 << 20) + 3 };
	unsigned char *bytes = malloc(BYTES);
	struct tfmc_mapping m;
	ck_assert_ptr_nonnull(bytes);
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 251);
	struct tfmc_record record = {.structure_hash = 7, .ranks = 1, .weights_bytes = BYTES};
	struct tfmc_weights_header h = {
	        TFMC_WEIGHTS_MAGIC, TFMC_ABI_VERSION, 7, plain_hash(bytes, BYTES), BYTES, 0, 0, 1};
	write_weights(&h, bytes, BYTES);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, TFMC_MAP_VERIFY | TFMC_MAP_LARGE_PAGES, &m),
	                 TFMC_RT_OK);
	ck_assert_int_eq(truncate(weights_path, 0), 0);
	ck_assert_uint_eq(m.bytes, BYTES);
	ck_assert_uint_eq(m.hash, h.weights_hash);
	ck_assert_uint_eq(((uintptr_t)m.data - TFMC_WEIGHTS_DATA) % (2 << 20), 0);
	ck_assert_int_eq(memcmp(m.data, bytes, BYTES), 0);
	tfmc_weights_unmap(&m);
	ck_assert_ptr_null(m.base);

	record.structure_hash = 8; /* refused as without the flag */
	write_weights(&h, bytes, BYTES);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, TFMC_MAP_LARGE_PAGES, &m),
	                 TFMC_RT_E_WEIGHTS);
	ck_assert_ptr_null(m.base);

	record = (struct tfmc_record){.structure_hash = 7, .ranks = 1, .weights_bytes = 3};
	h.bytes = 3;
	write_weights(&h, bytes, 3);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, TFMC_MAP_LARGE_PAGES, &m), TFMC_RT_OK);
	ck_assert_int_eq(memcmp(m.data, bytes, 3), 0);
	tfmc_weights_unmap(&m);
	remove(weights_path);
	free(bytes);
}
END_TEST

START_TEST(weights_are_checked)
{
	const uint64_t hash_of_a = plain_hash((const unsigned char *)"a", 1);
	struct tfmc_record record = {.structure_hash = 7, .ranks = 1, .weights_bytes = 1};
	struct tfmc_weights_header h = {TFMC_WEIGHTS_MAGIC, TFMC_ABI_VERSION, 7, hash_of_a, 1, 0, 0, 1};
	struct tfmc_mapping m;
	write_weights(&h, "a", 1);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, TFMC_MAP_VERIFY, &m), TFMC_RT_OK);
	ck_assert_uint_eq(m.bytes, 1);
	ck_assert_int_eq(*(const char *)m.data, 'a');
	ck_assert_uint_eq((uintptr_t)m.data % 64, 0);
	tfmc_weights_unmap(&m);

	write_weights(&h, "b", 1); /* same length, other bytes: only the full check sees it */
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_OK);
	tfmc_weights_unmap(&m);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, TFMC_MAP_VERIFY, &m), TFMC_RT_E_WEIGHTS);

	record.structure_hash = 8;
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_WEIGHTS);
	record.structure_hash = 7;
	record.ranks = 2; /* of two processes */
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_RANKS);
	h.ranks = 2;
	h.rank = 2;
	write_weights(&h, "b", 1);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_RANKS);
	h.rank = 1;
	write_weights(&h, "b", 1);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_OK);
	ck_assert_int_eq(m.rank, 1);
	tfmc_weights_unmap(&m);
	const int64_t no_rank[] = {-1, INT64_MIN, 2, INT64_MAX}, others[] = {0, 1, -1, INT64_MIN, INT64_MAX};
	for (size_t i = 0; i < sizeof(no_rank) / sizeof(no_rank[0]); i++) {
		h.rank = no_rank[i];
		write_weights(&h, "b", 1);
		ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_RANKS);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		h.rank = 0;
		h.ranks = others[i];
		write_weights(&h, "b", 1);
		ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_RANKS);
		ck_assert_ptr_null(m.base);
	}
	h.rank = 0;
	h.ranks = record.ranks = 1;
	write_weights(&h, "aa", 2); /* longer than the header says */
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_FILE);
	h.magic++;
	write_weights(&h, "a", 1);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_FILE);
	ck_assert_int_eq(truncate(weights_path, 100), 0);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_FILE);
	remove(weights_path);
	ck_assert_int_eq(tfmc_weights_map(weights_path, &record, 0, &m), TFMC_RT_E_FILE);
	ck_assert_ptr_null(m.base);
}
END_TEST

/* ---- text ---- */
struct text_record {
	struct tfmc_record head;
	int64_t start[1], stop[1];
	char vocabulary[64], unknown[8];
};

static struct text_record make_record(void)
{
	struct text_record r = {.start = {1}, .stop = {2}};
	r.head.start = offsetof(struct text_record, start);
	r.head.n_start = 1;
	r.head.stop = offsetof(struct text_record, stop);
	r.head.n_stop = 1;
	r.head.pad = 0;
	r.head.vocabulary = offsetof(struct text_record, vocabulary);
	r.head.unknown_token = offsetof(struct text_record, unknown);
	strncpy(r.vocabulary, "<blank>\n<s>\n</s>\na\n\xc3\xa4\n \n<unk>\n", sizeof(r.vocabulary) - 1);
	strncpy(r.unknown, "<unk>", sizeof(r.unknown) - 1);
	return r;
}

START_TEST(text_goes_through_ids)
{
	struct text_record r = make_record();
	const int32_t want[] = {3, 4, 5, 6, 3};
	int32_t ids[8];
	uint64_t n;
	char text[32];
	ck_assert_int_eq(tfmc_text_encode(&r.head,
	                                  "a\xc3\xa4 z"
	                                  "a",
	                                  ids, 8, &n),
	                 TFMC_RT_OK);
	ck_assert_uint_eq(n, 5);
	ck_assert_mem_eq(ids, want, sizeof(want));
	const int32_t answer[] = {1, 3, 4, 5, 3, 2};
	ck_assert_int_eq(tfmc_text_decode(&r.head, answer, 6, text, sizeof(text), &n), TFMC_RT_OK);
	ck_assert_str_eq(text, "a\xc3\xa4 a");
	ck_assert_uint_eq(n, 5);
	ck_assert_int_eq(tfmc_text_decode(&r.head, answer, 6, text, 3, &n), TFMC_RT_OK);
	ck_assert_uint_eq(strlen(text), 2);
	ck_assert_int_eq(tfmc_text_encode(&r.head, "", NULL, 0, &n), TFMC_RT_OK);
	ck_assert_uint_eq(n, 0);
}
END_TEST

START_TEST(text_must_be_utf8)
{
	static const char *const bad[] = {
	        "\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"};
	struct text_record r = make_record();
	uint64_t n;
	ck_assert_int_eq(tfmc_text_encode(&r.head, bad[_i], NULL, 0, &n), TFMC_RT_E_TEXT);
}
END_TEST

START_TEST(ids_must_be_in_the_vocabulary)
{
	struct text_record r = make_record();
	const int32_t large[] = {7}, negative[] = {-1};
	char text[8];
	uint64_t n;
	ck_assert_int_eq(tfmc_text_decode(&r.head, large, 1, text, sizeof(text), &n), TFMC_RT_E_TEXT);
	ck_assert_int_eq(tfmc_text_decode(&r.head, negative, 1, text, sizeof(text), &n), TFMC_RT_E_TEXT);
}
END_TEST

START_TEST(every_status_has_a_text)
{
	const char *none = tfmc_rt_status_text(99);
	for (int i = 0; i <= TFMC_RT_E_STATE; i++)
		ck_assert_str_ne(tfmc_rt_status_text(i), none);
	for (int i = TFMC_RT_E_MEMORY; i <= TFMC_RT_E_TEXT; i++)
		ck_assert_str_ne(tfmc_rt_status_text(i), none);
}
END_TEST

Suite *suite_runtime(void);
Suite *suite_runtime(void)
{
	Suite *s = suite_create("runtime");
	TCase *t = tcase_create("all");
	tcase_add_test(t, pool_runs_every_worker_once);
	tcase_add_test(t, pool_wakes_sleeping_workers);
	tcase_add_test(t, pool_runs_some);
	tcase_add_test(t, workers_grow_with_the_work);
	tcase_add_test(t, pool_is_torn_down_at_any_time);
	tcase_add_test(t, pool_deals_out_any_number);
	tcase_add_test(t, pool_rejects_no_workers);
	tcase_add_test(t, hashes_by_the_definition);
	tcase_add_test(t, weights_are_checked);
	tcase_add_test(t, weights_on_large_pages);
	tcase_add_test(t, weights_are_regular_files);
	tcase_add_test(t, weights_are_found);
	tcase_add_test(t, text_goes_through_ids);
	tcase_add_loop_test(t, text_must_be_utf8, 0, 7);
	tcase_add_test(t, ids_must_be_in_the_vocabulary);
	tcase_add_test(t, every_status_has_a_text);
	suite_add_tcase(s, t);
	return s;
}
