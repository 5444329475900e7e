/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 64 sequences join, leave, fork, grow, are cut, saved, restored and misused in
 * random order, on every model that was linked (soak.sh). Whatever a slot shows
 * is compared, byte for byte, with a session that reads the same ids from the
 * beginning: in one call, in parts, or token after token.
 *
 *	soak --seconds N [--seed S] [--workers N]
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tfmc_rt.h"
#include "models.h" /* made by soak.sh: soak_models[] */

enum { MAX_SLOTS = 64, MAX_IDS = 512, MAX_SOURCE = 24, N_SAVED = 16, ROUND = 300, PART = 7 };
enum { MAX_ROWS = 8, MAX_WIDTH = 32, MAX_VOCAB = 4096 };

/* Expected state of a sequence. */
struct sequence {
	int is_active;
	int64_t slot;
	int32_t source[MAX_SOURCE], ids[MAX_IDS];
	uint64_t n_source, n;
};

struct saved {
	void *bytes;
	uint64_t n;
	struct sequence of;
};

struct counts {
	uint64_t joins, leaves, forks, steps, rows, feeds, trims, saves, restores, refused, batches, compared;
};

struct soak {
	uint64_t random;
	int64_t workers;
	const struct soak_model *model;
	struct tfmc_session *session, *fresh, *parts,
	        *batch; /* fresh: whole prompts; parts: PART tokens in a call */
	struct tfmc_slots *slots;
	int64_t n_slots, vocab, source_vocab, longest;
	struct sequence sequences[MAX_SLOTS];
	struct saved saved[N_SAVED];
	struct counts counts;
};

/* SplitMix64 */
static uint64_t draw(struct soak *s, uint64_t below)
{
	uint64_t z = s->random += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % below;
}

static void fail(const struct soak *s, const char *what, int status)
{
	fprintf(stderr, "soak: %s: %s (%s)\n", s->model->name, what, tfmc_rt_status_text(status));
	exit(1);
}

static void expect(const struct soak *s, const char *what, int status, int wanted)
{
	if (status != wanted)
		fail(s, what, status);
}

/* ---- fresh runs ---- */

/* Rows of a call: ids [rows, width], of which the first lengths[b] are real; logits [rows, V] or NULL. */
struct rows {
	const int32_t *ids, *lengths; /* NULL: all are */
	uint64_t rows, width;
	float *logits;
};

static void call_rows(const struct soak *s, struct tfmc_session *session, const char *name,
                      const struct rows *c)
{
	const struct tfmc_record *r = tfmc_session_record(session);
	int64_t entry = tfmc_entry_find(r, name), dims[16];
	struct tfmc_buffer in[8] = {{0}}, out[8] = {{0}};
	for (uint64_t i = 0; i < r->n_dims; i++)
		dims[i] = (int64_t)(i == 0 ? c->rows : c->width); /* B, and S or T */
	for (uint64_t i = 0; i < tfmc_entry_at(r, entry)->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(r, entry, i);
		if (t->below <= 0)
			continue;
		in[i] = (struct tfmc_buffer){(void *)(uintptr_t)c->ids, c->rows * c->width};
		if (c->lengths)
			in[t->lengths] = (struct tfmc_buffer){(void *)(uintptr_t)c->lengths, c->rows};
	}
	for (uint64_t i = 0; i < tfmc_entry_at(r, entry)->n_outputs; i++)
		if (!strcmp(tfmc_record_text(r, tfmc_entry_output(r, entry, i)->name),
		            tfmc_record_text(r, (uint64_t)r->logits_name)))
			out[i] =
			        (struct tfmc_buffer){c->logits, c->logits ? c->rows * (uint64_t)s->vocab : 0};
	expect(s, name, tfmc_session_call(session, entry, dims, in, out), TFMC_RT_OK);
}

static void call(const struct soak *s, struct tfmc_session *session, const char *name, const int32_t *ids,
                 uint64_t n, float *logits)
{
	call_rows(s, session, name, &(struct rows){.ids = ids, .rows = 1, .width = n, .logits = logits});
}

/* Logits after the ids, read from the beginning: at once, in parts, or id after id after the first ones. */
static void run_fresh(struct soak *s, const struct sequence *q, float *logits)
{
	uint64_t kind = draw(s, 3), at, part;
	struct tfmc_session *session = kind == 1 ? s->parts : s->fresh;
	expect(s, "reset", tfmc_session_reset(session), TFMC_RT_OK);
	if (q->n_source)
		call(s, session, "encode", q->source, q->n_source, NULL);
	for (at = 0; at < q->n; at += part) {
		part = kind == 0 ? q->n : kind == 1 ? 1 + draw(s, PART) : at == 0 ? 1 + draw(s, q->n) : 1;
		part = part < q->n - at ? part : q->n - at;
		call(s, session, kind == 2 && at ? "step" : "prefill", q->ids + at, part, logits);
	}
}

static void compare_logits(struct soak *s, const struct sequence *q, const float *got)
{
	static float want[MAX_VOCAB];
	run_fresh(s, q, want);
	if (memcmp(got, want, (size_t)s->vocab * sizeof(*want)) != 0)
		fail(s, "logits differ from those of a fresh run", TFMC_RT_OK);
	s->counts.compared++;
}

static void compare(struct soak *s, const struct sequence *q)
{
	const float *got = tfmc_slots_logits(s->slots, q->slot);
	if (tfmc_slots_length(s->slots, q->slot) != (int64_t)q->n)
		fail(s, "a slot has another length", TFMC_RT_OK);
	if (!got)
		fail(s, "a slot has no logits", TFMC_RT_OK);
	compare_logits(s, q, got);
}

/* ---- sequences ---- */

static struct sequence *find(struct soak *s, int is_active)
{
	uint64_t first = draw(s, (uint64_t)s->n_slots);
	for (int64_t i = 0; i < s->n_slots; i++) {
		struct sequence *q = &s->sequences[(first + (uint64_t)i) % (uint64_t)s->n_slots];
		if (q->is_active == is_active)
			return q;
	}
	return NULL;
}

/* Mostly short, sometimes long. */
static uint64_t draw_length(struct soak *s, uint64_t most)
{
	uint64_t usual = most < 12 ? most : 12;
	return most == 0 ? 0 : 1 + draw(s, draw(s, 8) ? usual : most);
}

static void draw_ids(struct soak *s, int32_t *ids, uint64_t n, int64_t vocab)
{
	for (uint64_t i = 0; i < n; i++)
		ids[i] = (int32_t)draw(s, (uint64_t)vocab);
}

static void join(struct soak *s)
{
	static struct sequence q;
	int64_t slot;
	struct sequence *to = find(s, 0);
	q.n_source = s->source_vocab
	                     ? 1 + draw(s, (uint64_t)(s->longest < MAX_SOURCE ? s->longest : MAX_SOURCE))
	                     : 0;
	q.n = draw_length(s, (uint64_t)s->longest);
	draw_ids(s, q.source, q.n_source, s->source_vocab ? s->source_vocab : 1);
	draw_ids(s, q.ids, q.n, s->vocab);
	int status = tfmc_slots_join(s->slots, q.ids, q.n, q.source, q.n_source, &slot);
	if (!to) {
		expect(s, "join without a free slot", status, TFMC_RT_E_SLOT);
		s->counts.refused++;
		return;
	}
	expect(s, "join", status, TFMC_RT_OK);
	*to = q;
	to->is_active = 1;
	to->slot = slot;
	s->counts.joins++;
	compare(s, to);
}

static void leave(struct soak *s)
{
	struct sequence *q = find(s, 1);
	if (!q)
		return;
	expect(s, "leave", tfmc_slots_leave(s->slots, q->slot), TFMC_RT_OK);
	q->is_active = 0;
	s->counts.leaves++;
}

static void fork_one(struct soak *s)
{
	struct sequence *from = find(s, 1), *to = find(s, 0);
	int64_t slot;
	if (!from)
		return;
	int status = tfmc_slots_fork(s->slots, from->slot, &slot);
	expect(s, "fork", status, to ? TFMC_RT_OK : TFMC_RT_E_SLOT);
	if (!to)
		return;
	*to = *from;
	to->slot = slot;
	s->counts.forks++;
	compare(s, to);
}

/* A random part of the sequences takes a step; all of them are looked at afterwards. */
static void step(struct soak *s)
{
	struct tfmc_slot_token tokens[MAX_SLOTS] = {{0}};
	struct sequence *who[MAX_SLOTS];
	uint64_t n = 0, part = 1 + draw(s, 4);
	for (int64_t i = 0; i < s->n_slots; i++) {
		struct sequence *q = &s->sequences[i];
		if (!q->is_active || q->n >= (uint64_t)s->longest || draw(s, 4) >= part)
			continue;
		who[n] = q;
		tokens[n++] = (struct tfmc_slot_token){q->slot, (int32_t)draw(s, (uint64_t)s->vocab)};
	}
	expect(s, "step", tfmc_slots_step(s->slots, tokens, n), TFMC_RT_OK);
	for (uint64_t i = 0; i < n; i++)
		who[i]->ids[who[i]->n++] = tokens[i].id;
	for (uint64_t i = 0; i < n; i++)
		compare(s, who[i]);
	struct sequence *other = find(s, 1);
	if (other)
		compare(s, other);
	s->counts.steps++;
	s->counts.rows += n;
}

static void feed(struct soak *s, struct sequence *q)
{
	uint64_t n = q ? draw_length(s, (uint64_t)s->longest - q->n) : 0;
	if (n == 0)
		return;
	draw_ids(s, q->ids + q->n, n, s->vocab);
	expect(s, "feed", tfmc_slots_feed(s->slots, q->slot, q->ids + q->n, n), TFMC_RT_OK);
	q->n += n;
	s->counts.feeds++;
	compare(s, q);
}

/* Cut, then something else after it. */
static void trim(struct soak *s)
{
	struct sequence *q = find(s, 1);
	if (!q)
		return;
	uint64_t length = draw(s, q->n);
	expect(s, "trim", tfmc_slots_trim(s->slots, q->slot, (int64_t)length), TFMC_RT_OK);
	q->n = length;
	s->counts.trims++;
	feed(s, q);
}

/* ---- saving ---- */

static void save(struct soak *s)
{
	struct sequence *q = find(s, 1);
	struct saved *to = &s->saved[draw(s, N_SAVED)];
	uint64_t n;
	if (!q)
		return;
	expect(s, "size of a save", tfmc_slots_save(s->slots, q->slot, NULL, 0, &n), TFMC_RT_E_SIZE);
	free(to->bytes);
	*to = (struct saved){.bytes = malloc((size_t)n), .n = n, .of = *q};
	if (!to->bytes)
		fail(s, "save", TFMC_RT_E_MEMORY);
	expect(s, "save", tfmc_slots_save(s->slots, q->slot, to->bytes, n, &n), TFMC_RT_OK);
	s->counts.saves++;
}

/* The last id is read again, which shows all of the state. */
static void look_again(struct soak *s, struct sequence *q)
{
	expect(s, "trim", tfmc_slots_trim(s->slots, q->slot, (int64_t)q->n - 1), TFMC_RT_OK);
	struct tfmc_slot_token last = {q->slot, q->ids[q->n - 1]};
	expect(s, "step", tfmc_slots_step(s->slots, &last, 1), TFMC_RT_OK);
	compare(s, q);
}

static void restore(struct soak *s)
{
	struct saved *from = &s->saved[draw(s, N_SAVED)];
	struct sequence *to = find(s, 0);
	unsigned char *bytes = from->bytes;
	int64_t slot;
	if (!bytes || !to)
		return;
	if (draw(s, 4) == 0) { /* one bit is wrong */
		uint64_t at = draw(s, from->n);
		unsigned char bit = (unsigned char)(1u << draw(s, 8));
		bytes[at] ^= bit;
		expect(s, "damaged", tfmc_slots_restore(s->slots, bytes, from->n, &slot), TFMC_RT_E_SAVED);
		bytes[at] ^= bit;
		s->counts.refused++;
	}
	expect(s, "restore", tfmc_slots_restore(s->slots, bytes, from->n, &slot), TFMC_RT_OK);
	*to = from->of;
	to->slot = slot;
	s->counts.restores++;
	look_again(s, to);
}

/* ---- misuse ---- */

/* A rejected call leaves all slots unchanged. */
static void misuse(struct soak *s)
{
	struct sequence *q = find(s, 1), *other = find(s, 1);
	static const int32_t wrong[MAX_IDS] = {-1};
	static int32_t many[2 * MAX_IDS];
	int64_t slot;
	if (!q)
		return;
	const struct tfmc_slot_token twice[] = {{q->slot, 0}, {q->slot, 1}};
	const struct tfmc_slot_token bad[] = {{q->slot, (int32_t)s->vocab}};
	const struct tfmc_slot_token none[] = {{s->n_slots, 0}};
	const struct tfmc_slot_token good[] = {{q->slot, 0}};
	int full = q->n >= (uint64_t)s->longest;
	expect(s, "two tokens", tfmc_slots_step(s->slots, twice, 2), TFMC_RT_E_SLOT);
	expect(s, "an id", tfmc_slots_step(s->slots, bad, 1), TFMC_RT_E_PROMPT);
	expect(s, "no slot", tfmc_slots_step(s->slots, none, 1), TFMC_RT_E_SLOT);
	if (full)
		expect(s, "a full slot", tfmc_slots_step(s->slots, good, 1), TFMC_RT_E_FULL);
	else
		expect(s, "an id", tfmc_slots_feed(s->slots, q->slot, wrong, 1), TFMC_RT_E_PROMPT);
	expect(s, "too many", tfmc_slots_feed(s->slots, q->slot, many, (uint64_t)s->longest + 1),
	       TFMC_RT_E_FULL);
	expect(s, "too far", tfmc_slots_trim(s->slots, q->slot, (int64_t)q->n + 1), TFMC_RT_E_LENGTH);
	expect(s, "cut off", tfmc_slots_restore(s->slots, wrong, sizeof(wrong), &slot),
	       tfmc_slots_active(s->slots) < s->n_slots ? TFMC_RT_E_SAVED : TFMC_RT_E_SLOT);
	tfmc_session_cancel(s->session);
	expect(s, "cancelled", tfmc_slots_step(s->slots, good, 1), TFMC_RT_E_CANCELLED);
	s->counts.refused += 8;
	compare(s, q);
	compare(s, other);
}

/* ---- batches ---- */

struct batch {
	struct sequence q[MAX_ROWS];
	uint64_t n;
	int32_t ids[MAX_ROWS * MAX_WIDTH], lengths[MAX_ROWS];
	float logits[MAX_ROWS * MAX_VOCAB];
};

/* Rows of unequal lengths, none among them; together with the padding they may reach beyond the state. */
static void grow_batch(struct soak *s, struct batch *b, const char *entry, uint64_t width)
{
	draw_ids(s, b->ids, b->n * width, s->vocab);
	for (uint64_t i = 0; i < b->n; i++) {
		uint64_t room = (uint64_t)s->longest - b->q[i].n, n = draw(s, width + 1);
		n = n < room ? n : room;
		memcpy(b->q[i].ids + b->q[i].n, b->ids + i * width, (size_t)n * sizeof(*b->ids));
		b->q[i].n += n;
		b->lengths[i] = (int32_t)n;
	}
	call_rows(s, s->batch, entry, &(struct rows){b->ids, b->lengths, b->n, width, b->logits});
	for (uint64_t i = 0; i < b->n; i++)
		if (b->lengths[i])
			compare_logits(s, &b->q[i], b->logits + i * (uint64_t)s->vocab);
}

static void encode_batch(struct soak *s, struct batch *b)
{
	uint64_t width = 1 + draw(s, MAX_SOURCE);
	draw_ids(s, b->ids, b->n * width, s->source_vocab);
	for (uint64_t i = 0; i < b->n; i++) {
		b->q[i].n_source = 1 + draw(s, width);
		b->lengths[i] = (int32_t)b->q[i].n_source;
		memcpy(b->q[i].source, b->ids + i * width, (size_t)b->q[i].n_source * sizeof(*b->ids));
	}
	call_rows(s, s->batch, "encode", &(struct rows){b->ids, b->lengths, b->n, width, NULL});
}

static void batch(struct soak *s)
{
	static struct batch b;
	uint64_t most = s->longest < MAX_WIDTH ? (uint64_t)s->longest : MAX_WIDTH;
	memset(b.q, 0, sizeof(b.q));
	b.n = 1 + draw(s, MAX_ROWS);
	expect(s, "reset", tfmc_session_reset(s->batch), TFMC_RT_OK);
	if (s->source_vocab)
		encode_batch(s, &b);
	for (int turn = 0; turn < 3; turn++) {
		grow_batch(s, &b, "prefill", 1 + draw(s, most));
		grow_batch(s, &b, "step", 1);
	}
	s->counts.batches++;
}

/* ---- rounds ---- */

static void act(struct soak *s)
{
	uint64_t what = draw(s, 32);
	if (what < 9)
		join(s);
	else if (what < 14)
		leave(s);
	else if (what < 17)
		fork_one(s);
	else if (what < 20)
		save(s);
	else if (what < 23)
		restore(s);
	else if (what < 25)
		trim(s);
	else if (what < 27)
		feed(s, find(s, 1));
	else if (what < 28)
		misuse(s);
	else if (what < 29)
		batch(s);
	else
		step(s);
}

static struct tfmc_session *open_session(struct soak *s, int64_t batch, int64_t call_tokens, int64_t workers)
{
	struct tfmc_session *session;
	struct tfmc_model model = s->model->model();
	struct tfmc_session_options o = {.struct_size = sizeof(o),
	                                 .batch = batch,
	                                 .workers = workers,
	                                 .all_workers = 1,
	                                 .spin_us = -1,
	                                 .call_tokens = call_tokens};
	expect(s, "open", tfmc_session_open(&model, &o, &session), TFMC_RT_OK);
	return session;
}

static void open_round(struct soak *s, const struct soak_model *model)
{
	s->model = model;
	s->session = open_session(s, MAX_SLOTS, MAX_SLOTS, s->workers);
	s->fresh = open_session(s, 1, 0, 1);
	s->parts = open_session(s, 1, MAX_SOURCE, s->workers);
	s->batch = open_session(s, MAX_ROWS, MAX_ROWS * MAX_WIDTH, 1);
	expect(s, "slots", tfmc_slots_open(s->session, &s->slots), TFMC_RT_OK);
	const struct tfmc_record *r = tfmc_session_record(s->session);
	s->n_slots = tfmc_session_batch(s->session);
	s->vocab = tfmc_slots_vocabulary(s->slots);
	if (s->vocab > MAX_VOCAB)
		fail(s, "the vocabulary is too large for this test", TFMC_RT_OK);
	s->longest = (int64_t)r->context_limit < MAX_IDS ? (int64_t)r->context_limit : MAX_IDS;
	s->source_vocab = 0;
	if (r->generate_kind == 2)
		s->source_vocab = tfmc_entry_input(r, tfmc_entry_find(r, "encode"), 0)->below;
	memset(s->sequences, 0, sizeof(s->sequences));
}

static void close_round(struct soak *s)
{
	for (int i = 0; i < N_SAVED; i++)
		free(s->saved[i].bytes);
	memset(s->saved, 0, sizeof(s->saved));
	tfmc_slots_close(s->slots);
	tfmc_session_close(s->session);
	tfmc_session_close(s->fresh);
	tfmc_session_close(s->parts);
	tfmc_session_close(s->batch);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void report(const struct soak *s, double seconds, uint64_t rounds)
{
	const struct counts *c = &s->counts;
	printf("%.0f s, %llu rounds: %llu joins, %llu leaves, %llu forks, %llu steps of %llu rows, %llu "
	       "feeds, %llu "
	       "trims, %llu saves, %llu restores, %llu refused, %llu batches; %llu compared with fresh runs, "
	       "all equal\n",
	       seconds, (unsigned long long)rounds, (unsigned long long)c->joins,
	       (unsigned long long)c->leaves, (unsigned long long)c->forks, (unsigned long long)c->steps,
	       (unsigned long long)c->rows, (unsigned long long)c->feeds, (unsigned long long)c->trims,
	       (unsigned long long)c->saves, (unsigned long long)c->restores, (unsigned long long)c->refused,
	       (unsigned long long)c->batches, (unsigned long long)c->compared);
}

int main(int argc, char **argv)
{
	static struct soak s = {.random = 1, .workers = 1};
	double seconds = 5, begin = now();
	uint64_t rounds = 0;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seconds"))
			seconds = strtod(argv[i + 1], NULL);
		else if (!strcmp(argv[i], "--seed"))
			s.random = strtoull(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--workers"))
			s.workers = strtoll(argv[i + 1], NULL, 10);
		else
			return 2;
	}
	/* every model once at least, for an equal part of the time */
	for (; rounds < N_MODELS || now() - begin < seconds; rounds++) {
		double end = now() + (seconds / 4 < 5 ? seconds / 4 : 5) * 4 / N_MODELS;
		open_round(&s, &soak_models[rounds % N_MODELS]);
		for (int i = 0; i < ROUND && now() < end; i++)
			act(&s);
		close_round(&s);
	}
	report(&s, now() - begin, rounds);
	return 0;
}
