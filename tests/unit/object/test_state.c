/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences of a session on the small sequence-to-sequence model: windows of rows,
 * a shared source, reorder, saved sequences, slots, prompts in parts, and that
 * what is refused changes nothing. Equal means equal bytes.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/mini_model.h"
#include "tests/support/mini_session.h"

enum { V = MINI_V, MAX_B = MINI_MAX_B, MAX_T = MINI_MAX_T, N_SOURCE = 6, SAVED = 16384 };

static const int32_t source[MAX_B][N_SOURCE] = {
        {4, 9, 1, 13, 17, 2}, {3, 3, 8, 19, 0, 11}, {12, 1, 6, 5, 18, 7}, {2, 16, 10, 4, 14, 9}};
static const int32_t text[MAX_B][MAX_T] = {{3, 8, 1, 6, 12, 9, 2, 15, 4, 10},
                                           {3, 17, 5, 5, 0, 1, 13, 2, 2, 7},
                                           {3, 1, 19, 4, 4, 16, 8, 11, 6, 0},
                                           {3, 12, 12, 7, 9, 3, 14, 10, 1, 5}};

/* Reference, a sequence of one slot: logits [V] after the first n ids of text[b]. */
static void expect(struct tfmc_session *s, int b, uint64_t n, float *logits)
{
	mini_encode(s, source[b], N_SOURCE);
	mini_prefill(s, text[b], n, logits);
}

static void encode_at(struct tfmc_session *s, int b, int64_t sequence)
{
	struct tfmc_buffer in[] = {{(void *)(uintptr_t)source[b], N_SOURCE}, {NULL, 0}};
	ck_assert_int_eq(tfmc_session_select(s, sequence, -1), TFMC_RT_OK);
	ck_assert_int_eq(mini_call(s, "encode", 1, in, NULL), TFMC_RT_OK);
}

/* Sequence b gets source b and the first n[b] ids of text b. */
static void fill(struct tfmc_session *s, const uint64_t *n)
{
	float logits[V];
	ck_assert_int_eq(tfmc_session_reset(s), TFMC_RT_OK);
	for (int b = 0; b < MAX_B; b++) {
		encode_at(s, b, b);
		if (n[b])
			mini_prefill(s, text[b], n[b], logits);
	}
	ck_assert_int_eq(tfmc_session_select(s, 0, -1), TFMC_RT_OK);
}

struct image {
	uint64_t n[MAX_B];
	char bytes[MAX_B][SAVED];
};

static void take(struct tfmc_session *s, struct image *i)
{
	for (int64_t b = 0; b < MAX_B; b++)
		ck_assert_int_eq(tfmc_session_save(s, b, i->bytes[b], SAVED, &i->n[b]), TFMC_RT_OK);
}

static void check_same(struct tfmc_session *s, const struct image *want)
{
	static struct image now;
	take(s, &now);
	for (int b = 0; b < MAX_B; b++) {
		ck_assert_uint_eq(now.n[b], want->n[b]);
		ck_assert_mem_eq(now.bytes[b], want->bytes[b], (size_t)now.n[b]);
	}
}

static const uint64_t lengths[MAX_B] = {2, 5, 1, 7};

START_TEST(rows_lie_where_select_says)
{
	struct mini_session m;
	float want[MAX_B][V], got[MAX_B][V];
	mini_open(&m, NULL, 1);
	for (int b = 0; b < MAX_B; b++)
		expect(m.session, b, lengths[b] + 1, want[b]);
	for (int64_t first = 0; first < MAX_B; first++)
		for (int64_t rows = 1; first + rows <= MAX_B; rows++) {
			int32_t ids[MAX_B];
			fill(m.session, lengths);
			ck_assert_int_eq(tfmc_session_select(m.session, first, -1), TFMC_RT_OK);
			for (int64_t b = 0; b < rows; b++)
				ids[b] = text[first + b][lengths[first + b]];
			struct tfmc_buffer in[] = {{ids, (uint64_t)rows}};
			ck_assert_int_eq(mini_call(m.session, "step", rows, in, got[0]), TFMC_RT_OK);
			ck_assert_mem_eq(got, want[first], (size_t)rows * sizeof(got[0]));
			for (int64_t b = 0; b < MAX_B; b++)
				ck_assert_int_eq(tfmc_session_length(m.session, b),
				                 (int64_t)lengths[b] + (b >= first && b < first + rows));
		}
	ck_assert_int_eq(tfmc_session_length(m.session, MAX_B), -1);
	mini_close(&m);
}
END_TEST

START_TEST(beams_read_one_source)
{
	struct mini_session m;
	float want[V], got[MAX_B][V], first[V];
	mini_open(&m, NULL, 1);
	expect(m.session, 1, 4, want);
	ck_assert_int_eq(tfmc_session_reset(m.session), TFMC_RT_OK);
	encode_at(m.session, 1, 2);
	mini_prefill(m.session, text[1], 3, first);
	ck_assert_int_eq(tfmc_session_select(m.session, 0, 2), TFMC_RT_OK);
	for (int64_t b = 0; b < MAX_B; b++)
		ck_assert_int_eq(tfmc_session_fork(m.session, 2, b), TFMC_RT_OK);
	int32_t ids[] = {text[1][3], text[1][3], text[1][3], text[1][3]};
	struct tfmc_buffer in[] = {{ids, MAX_B}};
	ck_assert_int_eq(mini_call(m.session, "step", MAX_B, in, got[0]), TFMC_RT_OK);
	for (int b = 0; b < MAX_B; b++)
		ck_assert_mem_eq(got[b], want, sizeof(want));
	/* no other sequence has a source */
	ck_assert_int_eq(tfmc_session_select(m.session, 0, 1), TFMC_RT_E_STATE);
	ck_assert_int_eq(tfmc_session_select(m.session, 0, -1), TFMC_RT_OK);
	ck_assert_int_eq(mini_call(m.session, "step", 1, (struct tfmc_buffer[]){{ids, 1}}, got[0]),
	                 TFMC_RT_E_STATE);
	mini_close(&m);
}
END_TEST

/* All orders of all numbers of sequences. */
START_TEST(reorder_is_all_at_once)
{
	struct mini_session m;
	static struct image before, after;
	mini_open(&m, NULL, 1);
	fill(m.session, lengths);
	take(m.session, &before);
	for (int64_t n = 0; n <= MAX_B; n++)
		for (int code = 0; code < 256 && (n > 0 || code == 0); code++) {
			int64_t from[MAX_B];
			for (int i = 0; i < MAX_B; i++) {
				from[i] = code >> (2 * i) & 3;
				ck_assert_int_eq(
				        tfmc_session_restore(m.session, i, before.bytes[i], before.n[i]),
				        TFMC_RT_OK);
			}
			ck_assert_int_eq(tfmc_session_reorder(m.session, from, n), TFMC_RT_OK);
			take(m.session, &after);
			for (int64_t i = 0; i < MAX_B; i++) {
				int64_t who = i < n ? from[i] : i;
				ck_assert_uint_eq(after.n[i], before.n[who]);
				ck_assert_mem_eq(after.bytes[i], before.bytes[who], (size_t)after.n[i]);
			}
		}
	mini_close(&m);
}
END_TEST

START_TEST(saved_sequences_come_back_anywhere)
{
	struct mini_session m, other;
	static char bytes[SAVED];
	float want[V], got[V];
	uint64_t n;
	mini_open(&m, NULL, 1);
	mini_open(&other, NULL, 2);
	for (uint64_t tokens = 0; tokens < MAX_T; tokens++) {
		expect(m.session, 2, tokens + 1, want);
		mini_encode(m.session, source[2], N_SOURCE);
		if (tokens)
			mini_prefill(m.session, text[2], tokens, got);
		ck_assert_int_eq(tfmc_session_save(m.session, 0, NULL, 0, &n), TFMC_RT_E_SIZE);
		ck_assert_int_eq(tfmc_session_save(m.session, 0, bytes, n - 1, &n), TFMC_RT_E_SIZE);
		ck_assert_int_eq(tfmc_session_save(m.session, 0, bytes, n, &n), TFMC_RT_OK);
		int64_t to = (int64_t)tokens % MAX_B;
		fill(other.session, lengths);
		ck_assert_int_eq(tfmc_session_restore(other.session, to, bytes, n), TFMC_RT_OK);
		ck_assert_int_eq(tfmc_session_length(other.session, to), (int64_t)tokens);
		ck_assert_int_eq(tfmc_session_select(other.session, to, -1), TFMC_RT_OK);
		mini_prefill(other.session, text[2] + tokens, 1, got);
		ck_assert_mem_eq(got, want, sizeof(want));
	}
	mini_close(&m);
	mini_close(&other);
}
END_TEST

/* mini_model with keys of bf16 and values of f16 in its cache. */
static void narrow_model(struct buf *out)
{
	static const char *const swaps[][2] = {{"state @k : f32[", "state @k : bf16["},
	                                       {"state @v : f32[", "state @v : f16["},
	                                       {"%ks, %sk1 = state_append %sk, %kh, %past, %l : f32[",
	                                        "%kn = cast %kh {dtype=bf16} : bf16[B,4,T,4]\n"
	                                        "%ks, %sk1 = state_append %sk, %kn, %past, %l : bf16["},
	                                       {"%vs, %sv1 = state_append %sv, %qh, %past, %l : f32[",
	                                        "%vn = cast %qh {dtype=f16} : f16[B,4,T,4]\n"
	                                        "%vs, %sv1 = state_append %sv, %vn, %past, %l : f16["}};
	const char *from = mini_model;
	for (size_t i = 0; i < TFMC_COUNT(swaps); i++) {
		const char *at = strstr(from, swaps[i][0]);
		ck_assert_ptr_nonnull(at);
		buf_printf(out, "%.*s%s", (int)(at - from), from, swaps[i][1]);
		from = at + strlen(swaps[i][0]);
	}
	buf_printf(out, "%s", from);
}

/* Saved, restored, reordered and forked bit for bit; saved ones are shorter, and for this model only. */
START_TEST(narrow_caches_come_back)
{
	static const char *const names[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
	static const int64_t swap[MAX_B] = {2, 2, 0, 1};
	static struct image image;
	struct mini_session m, wide;
	float want[V], got[V];
	struct buf model;
	uint64_t n;
	const struct target *target = target_find(names[_i]);
	if (!target_runs_on_host(target))
		return;
	buf_init(&model);
	narrow_model(&model);
	mini_open_text(&m, model.data, NULL, 2, target, "O2");
	mini_open_for(&wide, NULL, 1, target, "O2");
	expect(m.session, 2, 2, want);
	fill(m.session, lengths);
	take(m.session, &image);
	ck_assert_int_eq(tfmc_session_restore(wide.session, 0, image.bytes[3], image.n[3]),
	                 TFMC_RT_E_MODEL_MISMATCH);
	fill(wide.session, lengths);
	ck_assert_int_eq(tfmc_session_save(wide.session, 3, NULL, 0, &n), TFMC_RT_E_SIZE);
	ck_assert_uint_eq(n - image.n[3], 2 * 2 * 4 * 7 * 4 * 2); /* k and v, layers, heads, rows, columns */
	ck_assert_int_eq(tfmc_session_reorder(m.session, swap, MAX_B), TFMC_RT_OK);
	for (int64_t b = 0; b < MAX_B; b++) {
		ck_assert_int_eq(tfmc_session_length(m.session, b), (int64_t)lengths[swap[b]]);
		ck_assert_int_eq(tfmc_session_restore(m.session, b, image.bytes[2], image.n[2]), TFMC_RT_OK);
	}
	ck_assert_int_eq(tfmc_session_select(m.session, 1, -1), TFMC_RT_OK);
	mini_prefill(m.session, text[2] + 1, 1, got);
	ck_assert_mem_eq(got, want, sizeof(want));
	mini_close(&m);
	mini_close(&wide);
	buf_destroy(&model);
}
END_TEST

/* Logits of another machine's code, or of another order of the same sums. */
static void check_near(const float *got, const float *want)
{
	for (int i = 0; i < V; i++)
		ck_assert_float_eq_tol(got[i], want[i], 1e-4f * (1 + fabsf(want[i])));
}

/* A sequence of one object goes on in another; gives what that one says of it. */
static int move(struct mini_session *from, struct mini_session *to, float *got)
{
	static char bytes[SAVED];
	uint64_t n;
	mini_encode(from->session, source[1], N_SOURCE);
	mini_prefill(from->session, text[1], 5, got);
	ck_assert_int_eq(tfmc_session_save(from->session, 0, bytes, SAVED, &n), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_reset(to->session), TFMC_RT_OK);
	int status = tfmc_session_restore(to->session, 0, bytes, n);
	if (status == TFMC_RT_OK)
		mini_prefill(to->session, text[1] + 5, 2, got);
	return status;
}

START_TEST(other_variants_take_them)
{
	static const char *const names[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
	struct mini_session m[3];
	float want[V], got[V];
	int n = 0;
	for (int i = 0; i < 3; i++)
		if (target_runs_on_host(target_find(names[i])))
			mini_open_for(&m[n++], NULL, 1, target_find(names[i]), "O2");
	for (int from = 0; from < n; from++)
		for (int to = 0; to < n; to++) {
			expect(m[to].session, 1, 7, want);
			ck_assert_int_eq(move(&m[from], &m[to], got), TFMC_RT_OK);
			if (from == to)
				ck_assert_mem_eq(got, want, sizeof(want));
			check_near(got, want);
		}
	while (n > 0)
		mini_close(&m[--n]);
}
END_TEST

/* States of optimization levels may differ: the other level then rejects them. */
START_TEST(other_levels_take_them_or_refuse)
{
	static const char *const levels[] = {"O0", "O1", "O2"};
	struct mini_session m[3];
	float want[V], got[V];
	for (int i = 0; i < 3; i++)
		mini_open_for(&m[i], NULL, 1, target_native(), levels[i]);
	for (int from = 0; from < 3; from++)
		for (int to = 0; to < 3; to++) {
			expect(m[to].session, 1, 7, want);
			int status = move(&m[from], &m[to], got);
			if (status == TFMC_RT_OK)
				check_near(got, want);
			else
				ck_assert_int_eq(status, TFMC_RT_E_MODEL_MISMATCH);
			ck_assert(from != to || status == TFMC_RT_OK);
		}
	for (int i = 0; i < 3; i++)
		mini_close(&m[i]);
}
END_TEST

START_TEST(damaged_ones_are_refused)
{
	struct mini_session m;
	static struct image before;
	static char bytes[SAVED];
	mini_open(&m, NULL, 1);
	fill(m.session, lengths);
	take(m.session, &before);
	uint64_t n = before.n[1];
	for (uint64_t i = 0; i < n; i += i < 160 ? 1 : 37) {
		memcpy(bytes, before.bytes[1], (size_t)n);
		bytes[i] = (char)(bytes[i] ^ 0x10);
		ck_assert_int_eq(tfmc_session_restore(m.session, 0, bytes, n), TFMC_RT_E_SAVED);
		ck_assert_int_eq(tfmc_session_restore(m.session, 0, before.bytes[1], i), TFMC_RT_E_SAVED);
	}
	ck_assert_int_eq(tfmc_session_restore(m.session, 0, NULL, 0), TFMC_RT_E_SAVED);
	ck_assert_int_eq(tfmc_session_restore(m.session, MAX_B, before.bytes[1], n), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_restore(m.session, -1, before.bytes[1], n), TFMC_RT_E_DIM);
	/* another model: the same bytes under another name of its weights or states */
	struct tfmc_record *r = malloc((size_t)tfmc_session_record(m.session)->bytes);
	memcpy(r, tfmc_session_record(m.session), (size_t)tfmc_session_record(m.session)->bytes);
	char *state = calloc(1, (size_t)(r->state_fixed_bytes + r->state_batch_bytes));
	r->weights_hash ^= 1;
	ck_assert_int_eq(tfmc_state_restore(r, NULL, state, 1, 0, before.bytes[1], n),
	                 TFMC_RT_E_MODEL_MISMATCH);
	r->weights_hash ^= 1;
	r->state_hash ^= 1;
	ck_assert_int_eq(tfmc_state_restore(r, NULL, state, 1, 0, before.bytes[1], n),
	                 TFMC_RT_E_MODEL_MISMATCH);
	r->state_hash ^= 1;
	ck_assert_int_eq(tfmc_state_restore(r, NULL, NULL, 1, 0, before.bytes[1], n), TFMC_RT_E_STATE);
	ck_assert_int_eq(tfmc_state_restore(r, NULL, state, 1, 0, before.bytes[1], n), TFMC_RT_OK);
	free(state);
	free(r);
	check_same(m.session, &before);
	mini_close(&m);
}
END_TEST

/* A weights file of the model with zeros in it, under a hash of its own. */
static const char *write_zeros(const struct tfmc_record *r, const char *path, uint64_t hash)
{
	static const char zeros[TFMC_WEIGHTS_DATA];
	struct tfmc_weights_header h = {TFMC_WEIGHTS_MAGIC,
	                                TFMC_ABI_VERSION,
	                                r->structure_hash,
	                                hash,
	                                r->weights_bytes,
	                                r->weights_hash,
	                                0,
	                                1};
	FILE *f = fopen(path, "wb");
	ck_assert_ptr_nonnull(f);
	fwrite(&h, 1, sizeof(h), f);
	fwrite(zeros, 1, sizeof(zeros) - sizeof(h), f);
	for (uint64_t i = 0; i < r->weights_bytes; i++)
		fputc(0, f);
	ck_assert_int_eq(fclose(f), 0);
	return path;
}

static void open_with(struct mini_session *m, const char *weights, struct tfmc_session **s)
{
	struct tfmc_session_options o = {.struct_size = sizeof(o), .weights_path = weights};
	struct tfmc_model model;
	ck_assert(backend_jit_model(m->jit, "mini", &model));
	ck_assert_int_eq(tfmc_session_open(&model, &o, s), TFMC_RT_OK);
}

/* Weights of equal structure and other values: what one computed is nothing for the other. */
START_TEST(other_weights_refuse)
{
	static const char *const paths[] = {"test_state.a", "test_state.b"};
	struct mini_session m;
	struct tfmc_session *s[2];
	static char bytes[SAVED], mine[SAVED];
	uint64_t n, n_mine;
	mini_open(&m, NULL, 1);
	const struct tfmc_record *r = tfmc_session_record(m.session);
	fill(m.session, lengths);
	ck_assert_int_eq(tfmc_session_save(m.session, 1, mine, SAVED, &n_mine), TFMC_RT_OK);
	/* who asks for it has all bytes looked at, not only the hash in the header */
	struct tfmc_session_options o = {.struct_size = sizeof(o), .verify_weights = 1};
	struct tfmc_model model;
	ck_assert(backend_jit_model(m.jit, "mini", &model));
	o.weights_path = write_zeros(r, paths[0], r->weights_hash);
	ck_assert_int_eq(tfmc_session_open(&model, &o, &s[0]), TFMC_RT_E_WEIGHTS);
	for (int i = 0; i < 2; i++)
		open_with(&m, write_zeros(r, paths[i], r->weights_hash + 1 + (uint64_t)i), &s[i]);
	fill(s[0], lengths);
	ck_assert_int_eq(tfmc_session_save(s[0], 1, bytes, SAVED, &n), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_restore(s[0], 2, bytes, n), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_restore(s[1], 1, bytes, n), TFMC_RT_E_MODEL_MISMATCH);
	ck_assert_int_eq(tfmc_session_restore(m.session, 1, bytes, n), TFMC_RT_E_MODEL_MISMATCH);
	ck_assert_int_eq(tfmc_session_restore(s[0], 1, mine, n_mine), TFMC_RT_E_MODEL_MISMATCH);
	tfmc_session_close(s[0]);
	/* the object's own weights in a file: the same as those inside */
	open_with(&m, write_zeros(r, paths[0], r->weights_hash), &s[0]);
	ck_assert_int_eq(tfmc_session_restore(s[0], 1, mine, n_mine), TFMC_RT_OK);
	/* without a session */
	struct tfmc_mapping w;
	char *state = calloc(1, (size_t)(r->state_fixed_bytes + r->state_batch_bytes));
	ck_assert_int_eq(tfmc_weights_map(paths[1], r, 0, &w), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_state_restore(r, &w, state, 1, 0, mine, n_mine), TFMC_RT_E_MODEL_MISMATCH);
	ck_assert_int_eq(tfmc_state_restore(r, NULL, state, 1, 0, mine, n_mine), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_state_save(r, &w, state, 1, 0, bytes, SAVED, &n), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_session_restore(s[1], 1, bytes, n), TFMC_RT_OK);
	tfmc_weights_unmap(&w);
	for (int i = 0; i < 2; i++) {
		tfmc_session_close(s[i]);
		remove(paths[i]);
	}
	free(state);
	mini_close(&m);
}
END_TEST

START_TEST(misuse_changes_nothing)
{
	struct mini_session m;
	static struct image before;
	float logits[MAX_B * V];
	int32_t ids[MAX_T * MAX_B] = {0};
	int64_t from[] = {0, 1, 2, MAX_B};
	mini_open(&m, NULL, 1);
	fill(m.session, lengths);
	take(m.session, &before);
	ck_assert_int_eq(tfmc_session_select(m.session, -1, -1), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_select(m.session, MAX_B, -1), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_select(m.session, 0, MAX_B), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_select(m.session, 0, -2), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_reorder(m.session, from, MAX_B), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_reorder(m.session, from, MAX_B + 1), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_reorder(m.session, from, -1), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_reorder(m.session, NULL, 1), TFMC_RT_E_NULL);
	ck_assert_int_eq(tfmc_session_trim(m.session, 1, 6), TFMC_RT_E_LENGTH);
	ck_assert_int_eq(tfmc_session_fork(m.session, 0, MAX_B), TFMC_RT_E_DIM);
	struct tfmc_buffer all[] = {{ids, MAX_B}}, some[] = {{ids, 4 * MAX_B}};
	ck_assert_int_eq(mini_call(m.session, "prefill", MAX_B, some, logits), TFMC_RT_E_FULL);
	ck_assert_int_eq(tfmc_session_select(m.session, 1, -1), TFMC_RT_OK);
	ck_assert_int_eq(mini_call(m.session, "step", MAX_B, all, logits), TFMC_RT_E_DIM);
	ck_assert_int_eq(tfmc_session_select(m.session, 0, -1), TFMC_RT_OK);
	ids[2] = V;
	ck_assert_int_eq(mini_call(m.session, "step", MAX_B, all, logits), TFMC_RT_E_TOKEN);
	check_same(m.session, &before);
	mini_close(&m);
}
END_TEST

/* Steps of a slot against a sequence of its own. */
static void check_slot(struct tfmc_slots *slots, struct tfmc_session *fresh, int64_t slot, int b, uint64_t n)
{
	float want[V];
	expect(fresh, b, n, want);
	ck_assert_int_eq(tfmc_slots_length(slots, slot), (int64_t)n);
	ck_assert_ptr_nonnull(tfmc_slots_logits(slots, slot));
	ck_assert_mem_eq(tfmc_slots_logits(slots, slot), want, sizeof(want));
}

START_TEST(slots_join_and_leave)
{
	struct mini_session m, fresh;
	struct tfmc_slots *s;
	int64_t slot[MAX_B + 1];
	static char bytes[SAVED];
	uint64_t n;
	mini_open(&m, NULL, 1);
	mini_open(&fresh, NULL, 1);
	ck_assert_int_eq(tfmc_slots_open(m.session, &s), TFMC_RT_OK);
	for (int b = 0; b < MAX_B; b++) {
		ck_assert_int_eq(tfmc_slots_join(s, text[b], lengths[b], source[b], N_SOURCE, &slot[b]),
		                 TFMC_RT_OK);
		ck_assert_int_eq(slot[b], b);
		check_slot(s, fresh.session, slot[b], b, lengths[b]);
	}
	ck_assert_int_eq(tfmc_slots_join(s, text[0], 1, source[0], N_SOURCE, &slot[MAX_B]), TFMC_RT_E_SLOT);
	const struct tfmc_slot_token some[] = {{3, text[3][7]}, {0, text[0][2]}}, wrong[] = {{3, 1}, {1, V}};
	ck_assert_int_eq(tfmc_slots_step(s, wrong, 2), TFMC_RT_E_PROMPT);
	ck_assert_int_eq(tfmc_slots_step(s, some, 2), TFMC_RT_OK);
	check_slot(s, fresh.session, 3, 3, 8);
	check_slot(s, fresh.session, 0, 0, 3);
	check_slot(s, fresh.session, 1, 1, 5);
	ck_assert_int_eq(tfmc_slots_leave(s, 1), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_slots_leave(s, 1), TFMC_RT_E_SLOT);
	ck_assert_ptr_null(tfmc_slots_logits(s, 1));
	ck_assert_int_eq(tfmc_slots_active(s), 3);
	ck_assert_int_eq(tfmc_slots_feed(s, 3, text[3] + 8, 2), TFMC_RT_OK);
	check_slot(s, fresh.session, 3, 3, 10);
	ck_assert_int_eq(tfmc_slots_step(s, &some[0], 1), TFMC_RT_E_FULL);
	ck_assert_int_eq(tfmc_slots_feed(s, 3, text[3], 1), TFMC_RT_E_FULL);
	check_slot(s, fresh.session, 3, 3, 10);
	ck_assert_int_eq(tfmc_slots_save(s, 3, bytes, SAVED, &n), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_slots_fork(s, 0, &slot[1]), TFMC_RT_OK);
	check_slot(s, fresh.session, slot[1], 0, 3);
	ck_assert_int_eq(tfmc_slots_leave(s, 3), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_slots_restore(s, bytes, n, &slot[3]), TFMC_RT_OK);
	ck_assert_ptr_null(tfmc_slots_logits(s, slot[3]));
	ck_assert_int_eq(tfmc_slots_trim(s, slot[3], 6), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_slots_feed(s, slot[3], text[3] + 6, 3), TFMC_RT_OK);
	check_slot(s, fresh.session, slot[3], 3, 9);
	const struct tfmc_slot_token twice[] = {{0, 1}, {0, 2}};
	ck_assert_int_eq(tfmc_slots_step(s, twice, 2), TFMC_RT_E_SLOT);
	tfmc_slots_close(s);
	mini_close(&m);
	mini_close(&fresh);
}
END_TEST

/* Prompts in parts, with an arena for these parts only. */
START_TEST(prompts_are_read_in_parts)
{
	struct mini_session m;
	struct tfmc_model model;
	struct tfmc_session *small;
	int32_t want[MAX_T], got[MAX_T];
	uint64_t n_want, n_got;
	mini_open(&m, NULL, 1);
	ck_assert(backend_jit_model(m.jit, "mini", &model));
	for (int64_t tokens = N_SOURCE; tokens <= 9; tokens++)
		for (int b = 0; b < MAX_B; b++) {
			struct tfmc_session_options o = {.struct_size = sizeof(o), .call_tokens = tokens};
			struct tfmc_generate_options g = {.struct_size = sizeof(g), .ignore_stop = 1};
			ck_assert_int_eq(tfmc_session_open(&model, &o, &small), TFMC_RT_OK);
			ck_assert_int_eq(tfmc_generate(m.session, &g, source[b], N_SOURCE, text[b], 8, want,
			                               MAX_T, &n_want),
			                 TFMC_RT_OK);
			ck_assert_int_eq(
			        tfmc_generate(small, &g, source[b], N_SOURCE, text[b], 8, got, MAX_T, &n_got),
			        TFMC_RT_OK);
			ck_assert_uint_eq(n_got, n_want);
			ck_assert_mem_eq(got, want, (size_t)n_want * sizeof(*want));
			tfmc_session_close(small);
		}
	mini_close(&m);
}
END_TEST

Suite *suite_state(void)
{
	Suite *s = suite_create("state");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	tcase_add_test(t, rows_lie_where_select_says);
	tcase_add_test(t, beams_read_one_source);
	tcase_add_test(t, reorder_is_all_at_once);
	tcase_add_test(t, saved_sequences_come_back_anywhere);
	tcase_add_loop_test(t, narrow_caches_come_back, 0, 3);
	tcase_add_test(t, other_variants_take_them);
	tcase_add_test(t, other_levels_take_them_or_refuse);
	tcase_add_test(t, damaged_ones_are_refused);
	tcase_add_test(t, other_weights_refuse);
	tcase_add_test(t, misuse_changes_nothing);
	tcase_add_test(t, slots_join_and_leave);
	tcase_add_test(t, prompts_are_read_in_parts);
	suite_add_tcase(s, t);
	return s;
}
